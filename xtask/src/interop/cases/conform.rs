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
use crate::page::Markers;
use crate::process;

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
.within(300)
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
    let list = expected::list(expected::SERVER, None)?;
    let names = names(lab, &["--server", "nowhere", "--list"])?;
    let (alone, together): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| list.rows.iter().any(|entry| entry.alone && entry.name == **name));
    let mut ran = vec![rows(lab, &together, &[])?];
    for name in alone {
        lab.renew()?;
        ran.push(rows(lab, &[name], &[])?);
    }
    lab.renew()?;
    let problems = expected::judge(&list, &names, &ran);
    ensure!(problems.is_empty(), "{} rows came out otherwise: {}", problems.len(), problems.join(" | "));
    let page = page(&lab.description(), &lab.origin(), &names, &list.rows, &ran);
    lab.page("docs/conform.md", Markers::USUAL, page);
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

/// Maximum number of rows in which a race of the kernel's client may decide.
const MOST_RACED: usize = 3;

/// Runs the tester on a mount.
///
/// The kernel's client sometimes closes a connection on its own when a reply ends a call (`client.toml`). Rows to which that
/// happened against the list count by their result in a second run.
pub(super) fn client(lab: &mut Lab) -> Result<Detail, Failure> {
    let fabric = lab.fabric();
    let list = expected::list(expected::CLIENT, fabric)?;
    let names = names(lab, &["--client", "--list"])?;
    let mut ran = [client_run(lab)?];
    let raced = expected::raced(&list, &ran);
    ensure!(
        raced.len() <= MOST_RACED,
        "the client has left the connection in {} rows: {}",
        raced.len(),
        raced.join(", ")
    );
    let mut again = String::new();
    if !raced.is_empty() {
        if let Some(fabric) = fabric {
            lab.use_fabric(fabric)?;
        }
        let second = client_run(lab)?;
        let [first] = &mut ran;
        first.complaints.extend(second.complaints);
        first.rows.retain(|row| !raced.contains(&row.name));
        first.rows.extend(second.rows.into_iter().filter(|row| raced.contains(&row.name)));
        again = format!("; by a second run: {}", raced.join(", "));
    }
    let problems = expected::judge(&list, &names, &ran);
    ensure!(problems.is_empty(), "{} rows came out otherwise: {}", problems.len(), problems.join(" | "));
    Ok(summary(ran.iter().flat_map(|ran| &ran.rows)) + &again)
}

/// Runs all rows on a mount: on the host, or in the guest if the case has a fabric. Then boots the guest.
fn client_run(lab: &mut Lab) -> Result<Ran, Failure> {
    let mount = lab.serve(&[])?;
    let (address, port) = (mount.address.to_string(), lab.port().to_string());
    let listen = format!("{address}:{port}");
    let arguments = ["--json", "conform", "--client", "--listen", &listen, "--silence", SILENCE];
    let calls = [address.as_str(), &port, &mount.tcp.to_string()];
    let (ended, output) = if mount.address == HOST {
        client_of_host(lab, &arguments, &calls)?
    } else {
        client_of_guest(lab, &arguments, &calls)?
    };
    let complaints = lab.take_complaints()?;
    // The server of the mount has ended.
    lab.renew()?;
    ensure!(ended, "rpcrdma conform did not come to its end");
    let document: Document<Row> = serde_json::from_slice(&output).context("the output of rpcrdma conform")?;
    Ok(Ran { rows: document.rows, complaints })
}

/// Runs the tester on the host. Returns whether it ended in time, and its output.
fn client_of_host(lab: &mut Lab, arguments: &[&str], calls: &[&str]) -> Result<(bool, Vec<u8>), Failure> {
    let output = lab.folder.join("conform.json");
    let mut command = process::bound(&lab.rpcrdma);
    command.args(arguments).stdout(fs::File::create(&output)?).stderr(Stdio::null());
    let mut tester = command.spawn().context("starting rpcrdma conform")?;
    let calls = lab.guest_start(CALLS, calls)?;
    let status = process::wait(&mut tester, RUN_LIMIT * lab.accel().patience());
    process::kill(&mut tester);
    lab.guest_kill(&calls)?;
    Ok((status?.is_some(), fs::read(&output)?))
}

/// Runs the tester in the guest. Returns whether it ended in time, and its output.
fn client_of_guest(lab: &mut Lab, arguments: &[&str], calls: &[&str]) -> Result<(bool, Vec<u8>), Failure> {
    let calls = lab.guest_start(CALLS, calls)?;
    let finished = lab.rpcrdma(RUN_LIMIT, arguments)?;
    lab.guest_kill(&calls)?;
    Ok((finished.status.is_some(), finished.output))
}

/// Rows that would end the guest on rxe with memory windows: the reply may invalidate a window that the tester has closed
/// by itself, and rxe of Linux 6.1 panics when a window is invalidated twice.
const CLOSED_WINDOWS: [&str; 2] = ["read-revoked", "write-revoked"];

/// Runs the rows on knfsd that leave the guest unharmed, with the tester in the guest.
pub(super) fn server_on_fabric(lab: &mut Lab) -> Result<Detail, Failure> {
    let fabric = lab.current_fabric()?;
    let mut list = expected::list(expected::SERVER, Some(fabric))?;
    let mut names = names(lab, &["--server", "nowhere", "--list"])?;
    names.retain(|name| !list.rows.iter().any(|entry| entry.alone && entry.name == *name));
    names.retain(|name| !fabric.has_windows() || !CLOSED_WINDOWS.contains(&name.as_str()));
    list.rows.retain(|entry| names.contains(&entry.name));
    let ran = [rows(lab, &names.iter().collect::<Vec<_>>(), &["--limit", "20"])?];
    // knfsd may still hold connections that the rows have left open, and they would keep the device.
    lab.renew()?;
    let problems = expected::judge(&list, &names, &ran);
    ensure!(problems.is_empty(), "{} rows came out otherwise: {}", problems.len(), problems.join(" | "));
    Ok(summary(ran.iter().flat_map(|ran| &ran.rows)))
}

/// Returns the names of all rows.
fn names(lab: &mut Lab, arguments: &[&str]) -> Result<Vec<String>, Failure> {
    Ok(tester::<Name>(lab, arguments)?.into_iter().map(|row| row.name).collect())
}

/// Runs these rows on knfsd, with further options of the tester. Returns the verdicts, and the kernel's complaints.
fn rows(lab: &mut Lab, names: &[&String], options: &[&str]) -> Result<Ran, Failure> {
    let knfsd = lab.knfsd()?;
    let (address, mountport) = (knfsd.address(), knfsd.mountd.to_string());
    let mut arguments =
        vec!["--server", &address, "--export", "/export/memory", "--mountport", mountport.as_str()];
    arguments.extend(options);
    for name in names {
        arguments.extend(["--row", name]);
    }
    let rows = tester::<Row>(lab, &arguments)?;
    let complaints = lab.take_complaints()?;
    Ok(Ran { rows, complaints })
}

/// Returns the rows that the tester prints as JSON. It exits with 1 if a row failed; its table is complete then, too.
fn tester<T: DeserializeOwned>(lab: &mut Lab, arguments: &[&str]) -> Result<Vec<T>, Failure> {
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
