//! Calls a second of many connections, each with one call in flight, against those of one connection.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::Lab;
use crate::failure::{Failure, ensure};
use crate::process::Process;

/// Connections.
const CONNECTIONS: u32 = 64;
/// Maximum time of one run of the client.
const LIMIT: Duration = Duration::from_secs(120);

/// Options of `rpcrdma bench` for a server of this machine.
pub(crate) const SERVER: [&str; 7] =
    ["bench", "--server", "--json", "--provider", "iwarp", "--listen", "127.0.0.1:0"];

/// The line of `rpcrdma bench --server --json` when it is ready.
#[derive(Debug, Deserialize)]
pub(crate) struct Ready {
    pub(crate) control: SocketAddr,
}

/// The document of `rpcrdma bench HOST --json`, as far as it matters.
#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    rows: Vec<Row>,
}

/// A row over one transport.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    name: String,
    transport: String,
    pub(crate) value: f64,
    connections: u32,
    depth: u32,
    pub(crate) server: Cost,
}

/// Processor time of a side.
#[derive(Debug, Deserialize)]
pub(crate) struct Cost {
    pub(crate) cpu_seconds_per_gib: Option<f64>,
    pub(crate) cpu_microseconds_per_call: Option<f64>,
}

impl Document {
    /// Returns a row over RDMA that was measured with these connections and calls in flight.
    pub(crate) fn row(&self, name: &str, connections: u32, depth: u32) -> Result<&Row, Failure> {
        let row = self.rows.iter().find(|row| row.name == name && row.transport == "rdma");
        let row = row.ok_or_else(|| Failure::new(format!("rpcrdma bench has no row {name:?} over RDMA")))?;
        let was = (row.connections, row.depth);
        ensure!(was == (connections, depth), "rpcrdma bench had (connections, depth) = {was:?}");
        Ok(row)
    }
}

/// Measures both numbers in turn.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let (_server, ready) = Process::announced::<Ready>(lab.rpcrdma(SERVER))?;
    let (server, seconds) = (ready.control.to_string(), lab.effort.seconds.to_string());
    let mut rounds = Vec::new();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let calls = |connections: u32| {
            let count = connections.to_string();
            let words = ["bench", &server, "--json", "--only", "null", "--proto", "rdma", "--depth", "1"];
            let words = [&words[..], &["--connections", &count, "--seconds", &seconds]].concat();
            let document = lab.document::<Document, _>(words, LIMIT)?;
            Ok::<_, Failure>(document.row("null", connections, 1)?.value)
        };
        let (one, many) = (calls(1)?, calls(CONNECTIONS)?);
        if round > 0 {
            rounds.push(Round::ratio(many, one));
        }
    }
    Ok(Outcome { figures: vec![Figure::of(&rounds)?], notes: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_null_calls_over_rdma_counts() {
        let document = r#"{"address": "127.0.0.1:1", "rows": [
            {"name": "null-trip", "transport": "rdma", "value": 0.00004, "connections": 1, "depth": 1,
             "server": {"cpu_seconds": 0.1, "cpu_seconds_per_gib": null, "cpu_microseconds_per_call": 9.5}},
            {"name": "null", "transport": "tcp", "value": 9.0, "connections": 64, "depth": 1,
             "server": {"cpu_seconds": 0.1, "cpu_seconds_per_gib": null, "cpu_microseconds_per_call": 9.5}},
            {"name": "null", "transport": "rdma", "value": 12345.5, "connections": 64, "depth": 1, "limit": null,
             "server": {"cpu_seconds": 0.1, "cpu_seconds_per_gib": null, "cpu_microseconds_per_call": 7.5}}]}"#;
        let document: Document = serde_json::from_str(document).unwrap();
        let row = document.row("null", 64, 1).unwrap();
        assert_eq!((row.value, row.server.cpu_microseconds_per_call), (12345.5, Some(7.5)));
        let other = document.row("null", 1, 1).unwrap_err().to_string();
        assert!(other.contains("(64, 1)"), "{other}");
        let missing = document.row("read", 64, 1).unwrap_err().to_string();
        assert!(missing.contains("\"read\""), "{missing}");
    }
}
