//! How many connections a server with its default memory and credits has at once, and answers.
//!
//! A server gives one address a part of its connections. So the connections come from many addresses, all of this machine.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::{self, Lab, run};
use super::server::Ready;
use crate::failure::{Context, Failure};
use crate::process::Process;

/// Number of addresses.
const ADDRESSES: u8 = 250;
/// Bytes of the file that the connections read.
const FILE: u64 = 16 << 10;
/// Maximum time of one run of the load program.
const LIMIT: Duration = Duration::from_secs(240);

/// The document of `load connections`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Load {
    asked: u32,
    connected: u32,
    answered: u32,
    calls: u32,
    calling_seconds: f64,
    refused_because: Option<String>,
    unanswered_because: Option<String>,
    server_idle_bytes_each: Option<f64>,
    server_used_bytes_each: Option<f64>,
    server_most_bytes: Option<f64>,
}

impl Load {
    /// Returns the sentences for the page.
    fn notes(&self) -> Vec<String> {
        let Self { asked, connected, answered, calls, calling_seconds, .. } = self;
        let kib = |bytes: Option<f64>| {
            bytes.map_or_else(|| "unknown".to_owned(), |n| format!("{:.1} KiB", n / 1024.0))
        };
        let most = self.server_most_bytes.map_or(0.0, |bytes| bytes / f64::from(1 << 20));
        let rate = f64::from(*calls) / calling_seconds.max(1e-9);
        let mut notes = vec![
            format!(
                "Connections at once: {asked} asked for, {connected} made, {answered} answered, {rate:.0} calls/s; `serve` without options."
            ),
            format!(
                "Resident memory of that server: {most:.0} MiB at most; {} for each connection, new, and {} after its calls.",
                kib(self.server_idle_bytes_each),
                kib(self.server_used_bytes_each)
            ),
        ];
        let failures = [("refused", &self.refused_because), ("unanswered", &self.unanswered_because)];
        for (what, reason) in failures {
            if let Some(reason) = reason {
                notes
                    .push(format!("The first connection that was {what}: {}.", reason.trim_end_matches('.')));
            }
        }
        notes
    }
}

/// Returns an address of clients, and of the server. 198.18.0.0/15 is for benchmarks (RFC 2544).
const fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 64, last)
}

/// Counts the connections that are answered.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    // A network as one address would give all connections the same source.
    let batch = lab.disk.join("addresses");
    let lines: String =
        (1..=ADDRESSES).map(|last| format!("address add {}/32 dev lo\n", address(last))).collect();
    fs::write(&batch, lines).context(batch.display())?;
    run("ip", [OsStr::new("-batch"), batch.as_os_str()])?;
    let export = lab.disk.join("export");
    fs::create_dir(&export)?;
    Lab::random_file(&export.join("file"), FILE)?;
    let mut rounds = Vec::new();
    let mut notes = Vec::new();
    for round in 1..=lab.effort.rounds {
        lab.progress(round);
        let (server, ready) = serve(lab)?;
        let port = ready.rdma.ok_or_else(|| Failure::new("the server has no address"))?.port();
        let count = lab.effort.connections.to_string();
        let process = server.id().to_string();
        let words = ["connections", "--count", &count, "--rounds", "2", "--process", &process];
        let mut command = lab::command(&lab.load, words);
        command.args((1..=ADDRESSES).map(|last| SocketAddr::from((address(last), port)).to_string()));
        let load: Load = lab::document(command, LIMIT)?;
        rounds.push(Round::value(f64::from(load.answered)));
        notes = load.notes();
    }
    Ok(Outcome { figures: vec![Figure::of(&rounds)?], notes })
}

/// Starts a server with its defaults.
fn serve(lab: &Lab) -> Result<(Process, Ready), Failure> {
    let mut command = lab.rpcrdma(["serve", "--json", "--no-tcp", "--listen", "iwarp:0.0.0.0:0", "--state"]);
    command.arg(lab.disk.join("state")).arg(lab.disk.join("export"));
    Process::announced(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: &str = r#"{"asked": 5000, "connected": 512, "answered": 511, "connecting_seconds": 1.5, "calls": 4096,
        "calling_seconds": 0.5, "refused_because": "connection refused", "unanswered_because": null,
        "server_idle_bytes_each": 40960, "server_used_bytes_each": 51200, "server_most_bytes": 104857600}"#;

    #[test]
    fn the_page_has_memory_and_reasons() {
        let load: Load = serde_json::from_str(LOAD).unwrap();
        let notes = load.notes().join("\n");
        for part in [
            "5000 asked for, 512 made, 511 answered, 8192 calls/s; `serve` without options.",
            "100 MiB at most; 40.0 KiB for each connection, new, and 50.0 KiB after",
            "was refused: connection refused.",
        ] {
            assert!(notes.contains(part), "{notes}");
        }
        assert!(!notes.contains("unanswered"), "{notes}");
    }
}
