//! Rows of `rpcrdma bench` on the loopback interface: streams, NULL calls, memory of idle connections.

use std::time::Duration;

use serde::Deserialize;

use super::figure::{Figure, Round};
use super::goals::Outcome;
use super::lab::Lab;
use crate::failure::{Context, Failure};

/// Rows of `rpcrdma bench`, in the order of the group's rows.
const ROWS: [&str; 7] = [
    "NFS READ over RDMA / TCP stream",
    "NFS WRITE over RDMA / TCP stream",
    "pread and send of the file / TCP stream",
    "RDMA Read stream / TCP stream",
    "RDMA Write stream / TCP stream",
    "NULL, both ends on one processor",
    "NULL over RDMA / TCP ping-pong of 128 B",
];
/// Words around the number of connections in the name of a row.
const MEMORY: (&str, &str) = ("server memory, ", " idle connections");
/// Maximum time of one run.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The document of `rpcrdma bench --json`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Document {
    rounds: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    value: f64,
    base: f64,
    ratio: f64,
    ratio_least: f64,
    ratio_most: f64,
}

impl Document {
    fn figure(&self, name: &str) -> Result<Figure, Failure> {
        let row = self.rows.iter().find(|row| row.name == name);
        let row = row.ok_or_else(|| Failure::new(format!("rpcrdma bench has no row {name:?}")))?;
        Ok(Figure {
            measured: row.ratio,
            least: row.ratio_least,
            most: row.ratio_most,
            rounds: self.rounds,
            value: row.value,
            base: Some(row.base),
        })
    }

    /// Returns the memory of each connection, and the number of connections.
    fn memory(&self) -> Result<(f64, u32), Failure> {
        let (before, after) = MEMORY;
        let count = |row: &Row| {
            row.name.strip_prefix(before)?.strip_suffix(after)?.parse::<u32>().ok().filter(|&n| n > 0)
        };
        let found = self.rows.iter().find_map(|row| Some((row.value, count(row)?)));
        let (bytes, count) = found
            .ok_or_else(|| Failure::new("rpcrdma bench has no row about the memory of idle connections"))?;
        Ok((bytes / f64::from(count), count))
    }
}

/// Measures streams and NULL calls.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let (rounds, operations) = (lab.effort.rounds.to_string(), lab.effort.operations.to_string());
    let words = ["bench", "--json", "--rounds", &rounds, "--operations", &operations];
    let document: Document = lab.document(words, LIMIT).context("loopback")?;
    let figures = ROWS.iter().map(|name| document.figure(name)).collect::<Result<_, _>>()?;
    Ok(Outcome { figures, notes: Vec::new() })
}

/// Measures the memory of idle connections: each run has a server of its own.
pub(crate) fn memory(lab: &Lab) -> Result<Outcome, Failure> {
    let mut rounds = Vec::new();
    let mut connections = 0;
    for round in 1..=lab.effort.rounds {
        lab.progress(round);
        // The other rows are as short as they can be.
        let words = ["bench", "--json", "--quick", "--rounds", "1", "--operations", "1"];
        let document: Document = lab.document(words, LIMIT)?;
        let (bytes, count) = document.memory()?;
        rounds.push(Round::value(bytes));
        connections = count;
    }
    let note =
        format!("Memory of an idle connection: growth of the resident memory by {connections} of them.");
    Ok(Outcome { figures: vec![Figure::of(&rounds)?], notes: vec![note] })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BENCH: &str = r#"{"machine": "2 x a processor, Linux 6", "rounds": 7, "operations": 1024, "seconds": 9.5, "rows": [
        {"name": "NFS READ over RDMA / TCP stream", "unit": "bytes/s", "value": 2.5e9, "base": 5e9, "ratio": 0.51,
         "ratio_least": 0.4, "ratio_most": 0.6, "target": ">= 0.50", "met": true},
        {"name": "server memory, 200 idle connections", "unit": "bytes", "value": 8192000.0, "base": 52428800.0,
         "ratio": 0.16, "ratio_least": 0.16, "ratio_most": 0.16, "target": "<= 1.00", "met": true}]}"#;

    #[test]
    fn a_row_is_found_by_its_name() {
        let document: Document = serde_json::from_str(BENCH).unwrap();
        let figure = document.figure(ROWS[0]).unwrap();
        assert_eq!((figure.measured, figure.least, figure.most), (0.51, 0.4, 0.6));
        assert_eq!((figure.value, figure.base, figure.rounds), (2.5e9, Some(5e9), 7));
        let missing = document.figure("another row").unwrap_err().to_string();
        assert!(missing.contains("another row"), "{missing}");
    }

    #[test]
    fn memory_is_that_of_each_connection() {
        let document: Document = serde_json::from_str(BENCH).unwrap();
        assert_eq!(document.memory().unwrap(), (40_960.0, 200));
        let none: Document = serde_json::from_str(r#"{"rounds": 1, "rows": []}"#).unwrap();
        assert!(none.memory().is_err());
    }
}
