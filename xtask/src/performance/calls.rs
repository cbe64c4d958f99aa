//! Calls a second of many connections, each with one call in flight, against those of one connection.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::Lab;
use super::server::Process;
use crate::failure::{Failure, ensure};

/// Connections.
const CONNECTIONS: u32 = 64;
/// Maximum time of one run of the client.
const LIMIT: Duration = Duration::from_secs(120);

/// The line of `rpcrdma bench --server --json` when it is ready.
#[derive(Debug, Deserialize)]
struct Ready {
    control: SocketAddr,
}

/// The document of `rpcrdma bench HOST --json`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Document {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    transport: String,
    value: f64,
    connections: u32,
    depth: u32,
}

impl Document {
    /// Returns the NULL calls a second over RDMA.
    fn null_calls(&self, connections: u32) -> Result<f64, Failure> {
        let row = self.rows.iter().find(|row| row.name == "null" && row.transport == "rdma");
        let row = row.ok_or_else(|| Failure::new("rpcrdma bench has no row \"null\" over RDMA"))?;
        let was = (row.connections, row.depth);
        ensure!(was == (connections, 1), "rpcrdma bench had (connections, depth) = {was:?}");
        Ok(row.value)
    }
}

/// Measures both numbers in turn.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let listen = ["bench", "--server", "--json", "--provider", "iwarp", "--listen", "127.0.0.1:0"];
    let (_server, ready) = Process::announced::<Ready>(lab.rpcrdma(listen))?;
    let (server, seconds) = (ready.control.to_string(), lab.effort.seconds.to_string());
    let mut rounds = Vec::new();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let calls = |connections: u32| {
            let count = connections.to_string();
            let words = ["bench", &server, "--json", "--only", "null", "--proto", "rdma", "--depth", "1"];
            let words = [&words[..], &["--connections", &count, "--seconds", &seconds]].concat();
            lab.document::<Document, _>(words, LIMIT)?.null_calls(connections)
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
            {"name": "null-trip", "transport": "rdma", "value": 0.00004, "connections": 1, "depth": 1},
            {"name": "null", "transport": "tcp", "value": 9.0, "connections": 64, "depth": 1},
            {"name": "null", "transport": "rdma", "value": 12345.5, "connections": 64, "depth": 1, "limit": null}]}"#;
        let document: Document = serde_json::from_str(document).unwrap();
        assert_eq!(document.null_calls(64).unwrap(), 12345.5);
        let other = document.null_calls(1).unwrap_err().to_string();
        assert!(other.contains("(64, 1)"), "{other}");
        assert!(Document { rows: Vec::new() }.null_calls(1).is_err());
    }
}
