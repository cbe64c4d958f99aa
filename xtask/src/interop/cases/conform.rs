//! The conformance tester (`rpcrdma conform`) on the kernel's server and client: each row must have the verdict of the
//! lists.
//!
//! Rows against the server that the list marks `alone` harm the guest. Each of them runs alone at the end, on a freshly
//! booted guest, and the expectation includes the kernel's messages.

use std::fmt::Write;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use self::expected::{Entry, Ran, Row};
use super::{Case, Detail};
use crate::failure::{Context, Failure, ensure};
use crate::figures::Origin;
use crate::interop::lab::Lab;
use crate::interop::network::HOST;
use crate::interop::{origin, process};

mod expected;

pub(super) const CASES: &[Case] = &[CLIENT, SERVER];

const SERVER: Case = Case::new(
    "server",
    "Every row of `rpcrdma conform --server` has the expected verdict on knfsd: pass, or that of the list of differences",
    server,
)
.within(180)
.unseen();

const CLIENT: Case = Case::new(
    "client",
    "Every row of `rpcrdma conform --client` has the expected verdict on a mount: pass, or that of the list of differences",
    client,
)
.within(180)
.unseen();

/// Maximum time for a run of the tester, multiplied by the patience of the guest.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Output of `--json`.
#[derive(Debug, Deserialize)]
struct Document<T> {
    rows: Vec<T>,
}

#[derive(Debug, Deserialize)]
struct Name {
    name: String,
}

fn server(lab: &mut Lab) -> Result<Detail, Failure> {
    let list = expected::list(expected::SERVER)?;
    let names: Vec<String> =
        tester::<Name>(lab, &["--server", "nowhere", "--list"])?.into_iter().map(|row| row.name).collect();
    let (alone, together): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| list.rows.iter().any(|entry| entry.alone && entry.name == **name));
    let mut ran = vec![rows(lab, &together)?];
    for name in alone {
        lab.renew()?;
        ran.push(rows(lab, &[name])?);
    }
    lab.renew()?;
    let problems = expected::judge(&list, &names, &ran);
    ensure!(problems.is_empty(), "{} rows came out otherwise: {}", problems.len(), problems.join(" | "));
    let page = page(&lab.description(), &origin(lab), &names, &list.rows, &ran);
    lab.page("docs/conform.md", page);
    Ok(summary(ran.iter().flat_map(|ran| &ran.rows)))
}

/// Endless calls on a mount whose files change all the time. Two processes make small calls; others have a Reply chunk,
/// a Write chunk or a Read chunk. Another server provides MOUNT.
const CALLS: &str = "mkdir -p /mnt/conform\n\
    until mount -t nfs -o vers=3,proto=rdma,port=$2,mountproto=tcp,mountport=$3,nolock,soft,timeo=60,retry=0,noac \
    \"$1:/\" /mnt/conform; do sleep 0.2; done\n\
    long=$(printf '%04090d' 0)\n\
    while true; do stat /mnt/conform; sleep 0.02; done >/dev/null 2>&1 &\n\
    while true; do ls /mnt/conform; cat /mnt/conform/file; \
    ln -s \"$long\" /mnt/conform/link; sleep 0.02; done >/dev/null 2>&1";

/// Seconds for which the client is watched for its next call: more than an emulated guest needs. Rows hold replies back
/// for several times this time. They end before the mount's `timeo`, after which the client abandons the connection.
const SILENCE: &str = "1.5";

fn client(lab: &mut Lab) -> Result<Detail, Failure> {
    let list = expected::list(expected::CLIENT)?;
    let names: Vec<String> =
        tester::<Name>(lab, &["--client", "--list"])?.into_iter().map(|row| row.name).collect();
    let mount = lab.serve(&[])?;
    let port = lab.port();
    let output = lab.folder.join("conform.json");
    let mut command = process::bound(&lab.rpcrdma);
    command
        .args(["--json", "conform", "--client", "--listen", &format!("{HOST}:{port}"), "--silence", SILENCE])
        .stdout(fs::File::create(&output)?)
        .stderr(Stdio::null());
    let mut tester = command.spawn().context("starting rpcrdma conform")?;
    let calls = lab.guest_start(CALLS, &[&HOST.to_string(), &port.to_string(), &mount.tcp.to_string()])?;
    let status = process::wait(&mut tester, RUN_LIMIT * lab.accel().patience());
    process::kill(&mut tester);
    lab.guest_kill(&calls)?;
    let complaints = lab.take_complaints()?;
    // The server of the mount has ended.
    lab.renew()?;
    ensure!(status?.is_some(), "rpcrdma conform did not come to its end");
    let document: Document<Row> =
        serde_json::from_slice(&fs::read(&output)?).context("the output of rpcrdma conform")?;
    let ran = [Ran { rows: document.rows, complaints }];
    let problems = expected::judge(&list, &names, &ran);
    ensure!(problems.is_empty(), "{} rows came out otherwise: {}", problems.len(), problems.join(" | "));
    Ok(summary(ran.iter().flat_map(|ran| &ran.rows)))
}

/// Runs these rows on knfsd. Returns the verdicts, and the kernel's complaints.
fn rows(lab: &mut Lab, names: &[&String]) -> Result<Ran, Failure> {
    let knfsd = lab.knfsd()?;
    let (address, mountport) = (knfsd.address(), knfsd.mountd.to_string());
    let mut arguments =
        vec!["--server", &address, "--export", "/export/memory", "--mountport", mountport.as_str()];
    for name in names {
        arguments.extend(["--row", name]);
    }
    let rows = tester::<Row>(lab, &arguments)?;
    let complaints = lab.take_complaints()?;
    Ok(Ran { rows, complaints })
}

/// Returns the rows that the tester prints as JSON. It exits with 1 if a row failed; its table is complete then, too.
fn tester<T: DeserializeOwned>(lab: &Lab, arguments: &[&str]) -> Result<Vec<T>, Failure> {
    let all = [&["--json", "conform"][..], arguments].concat();
    let finished = lab.rpcrdma(RUN_LIMIT, &all)?;
    let code = finished.status.and_then(|status| status.code());
    ensure!(
        matches!(code, Some(0 | 1)) && !finished.output.is_empty(),
        "rpcrdma conform: {}: {}",
        finished.ending(),
        finished.errors.trim()
    );
    let document: Document<T> =
        serde_json::from_slice(&finished.output).context("the output of rpcrdma conform")?;
    Ok(document.rows)
}

fn summary<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let count = |verdict: &str| rows.clone().filter(|row| row.verdict == verdict).count();
    format!(
        "{} rows: {} pass, {} differ, {} fail, {} not applicable",
        rows.clone().count(),
        count("pass"),
        count("differs"),
        count("fail"),
        count("not_applicable")
    )
}

/// Returns the text for `docs/conform.md`: the differences with their reasons, then all rows.
fn page(machine: &str, origin: &Origin, names: &[String], list: &[Entry], ran: &[Ran]) -> String {
    let all: Vec<&Row> = ran.iter().flat_map(|ran| &ran.rows).collect();
    let row = |name: &str| all.iter().find(|row| row.name == name).copied();
    // Writing to a String cannot fail.
    let mut text = format!("{machine}, knfsd with 4 threads. {}.\n\n", summary(all.iter().copied()));
    let _ = write!(
        text,
        "{origin}\n\n| row | section | verdict | behaviour of knfsd |\n| --- | --- | --- | --- |\n"
    );
    for entry in list {
        if let Some(row) = row(&entry.name) {
            let _ = writeln!(text, "| {} | {} | {} | {} |", row.name, row.section, row.shown(), entry.why);
        }
    }
    let _ = write!(text, "\n{origin}\n\n| verdict | row | expected | seen |\n| --- | --- | --- | --- |\n");
    for row in names.iter().filter_map(|name| row(name)) {
        let seen = row.seen.replace('|', "/");
        let _ = writeln!(text, "| {} | {} | {} | {seen} |", row.shown(), row.name, row.expects);
    }
    text
}
