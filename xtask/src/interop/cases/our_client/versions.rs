//! Version Two with a server that knows only Version One.

use serde_json::Value;

use super::copies;
use super::remote::Remote;
use crate::failure::{Context, Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::lab::Lab;

/// Exit code of a command whose server cannot fulfil the request.
const FAILED: i32 = 1;

/// Checks the fallback: `auto` costs one refused NULL call, and all later calls are in Version One on the same
/// connection; `2` reports the versions of the server (RFC 8166 §4.5.1).
pub(super) fn fallback(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "fallback")?;
    let mut files = 0;
    for profile in ["p1", "p2", "p3"] {
        let version = |version| ["--rpcrdma-version", version, "--profile", profile];
        let address = remote.address();
        let ping = ["-v", "--json", "ping", "--count", "3", "--interval", "0", address];
        let finished = remote.succeed(lab, &[&ping[..], &version("auto")].concat())?;
        let document: Value = serde_json::from_slice(&finished.output).context("the JSON of ping")?;
        let spoken = document.pointer("/rpcrdma/version").and_then(Value::as_u64);
        ensure!(spoken == Some(1), "{profile}: version {spoken:?} is spoken");
        let connected = finished.errors.matches("connected").count();
        ensure!(connected == 1, "{profile}: {connected} connections: {}", finished.errors);
        remote.fail(lab, FAILED, "versions 1 to 1", &[&ping[..], &version("2")].concat())?;
        files = copies::there_and_back(lab, &remote, &version("auto"))?;
    }
    Ok(format!("{files} files with each profile offered"))
}
