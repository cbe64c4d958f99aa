//! A test that runs in a realm of its own.
//!
//! The library reads its configuration from the environment. So the test itself runs in a process of its own, with the
//! environment of the realm.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rpcrdma_realm::Realm;

/// Set for the process that runs a test in its realm.
const INNER: &str = "RPCRDMA_TEST_REALM";
/// Maximum time of a test in its realm, as `timeout` reads it. Tests take some seconds.
const LIMIT: &str = "300s";
/// The service of the keytab `server.keytab`.
pub(crate) const SERVER: &str = "nfs@server.test";

/// Returns the command of a program that lasts no longer than [`LIMIT`]. The kernel ends it with this process, too.
fn bounded(program: &Path) -> Command {
    // The limit has to end with its parent, and the program with the limit.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "timeout", "--signal", "KILL", LIMIT]);
    command.args(["setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Runs a test in a process of its own, in a realm, whose keys may be of one encryption type. Returns the place of the realm in
/// that process.
pub(crate) fn in_realm(test: &str, tickets: bool, encryption: Option<&str>) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(INNER) {
        return Some(place.into());
    }
    if let Err(error) = rpcrdma_realm::installed() {
        println!("skipped: {error}");
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let realm = match encryption {
        Some(name) => Realm::start_of_type(place.path(), Ipv4Addr::LOCALHOST, name),
        None => Realm::start(place.path(), Ipv4Addr::LOCALHOST),
    };
    let realm = realm.unwrap();
    realm.add_service("nfs/server.test", &path("server.keytab")).unwrap();
    realm.add_service("host/server.test", &path("other.keytab")).unwrap();
    realm.add_user("alice", "secret").unwrap();
    if tickets {
        realm.kinit("alice", "secret", &path("tickets")).unwrap();
    }
    let mut inner = bounded(&std::env::current_exe().unwrap());
    inner.args([test, "--exact", "--nocapture"]).env(INNER, place.path());
    Realm::surround(&mut inner, place.path());
    let output = inner.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{}; the limit is {LIMIT}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    None
}
