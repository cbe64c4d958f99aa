//! Throughput and processor time by the number of connections, and by the processors that the server may use.
//!
//! Client and server share the processors of one machine, so the throughput cannot grow by more than these. The server's
//! processor time for a call does not depend on that. If more connections make it no greater, its threads neither spin
//! nor fight for caches. Whether they sleep for each other shows in the throughput only.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::calls::{Document, Ready, SERVER};
use super::figure::{Figure, Round};
use super::goals::{Outcome, Unit};
use super::lab::{self, Lab};
use crate::failure::{Context, Failure};
use crate::process::Process;

/// Numbers of connections. The first is the base of the others.
const CONNECTIONS: [u32; 4] = [1, 2, 4, 8];
/// Most of these connections.
const MOST: u32 = 8;
/// Calls in flight on each.
const DEPTH: u32 = 16;
/// Processors of the server, where they are limited: the first ones.
const PROCESSORS: [usize; 2] = [1, 2];
/// Maximum time of one run of the client.
const LIMIT: Duration = Duration::from_secs(120);

/// Result of a run.
#[derive(Clone, Copy, Debug)]
struct Run {
    calls: f64,
    rate: f64,
    /// Processor time of the server for a NULL call, in seconds.
    of_call: f64,
    /// Processor time of the server for a GiB that is read, in seconds.
    of_gib: f64,
}

impl Run {
    fn of(document: &Document, connections: u32) -> Result<Self, Failure> {
        let null = document.row("null", connections, DEPTH)?;
        let read = document.row("read", connections, DEPTH)?;
        let missing = || Failure::new("rpcrdma bench has no processor time of the server");
        Ok(Self {
            calls: null.value,
            rate: read.value,
            of_call: null.server.cpu_microseconds_per_call.ok_or_else(missing)? / 1e6,
            of_gib: read.server.cpu_seconds_per_gib.ok_or_else(missing)?,
        })
    }
}

/// Measures with a server.
fn run(lab: &Lab, ready: &Ready, connections: u32) -> Result<Run, Failure> {
    let server = ready.control.to_string();
    let (count, depth, seconds) =
        (connections.to_string(), DEPTH.to_string(), lab.effort.seconds.to_string());
    let words = ["bench", &server, "--json", "--only", "null,read", "--proto", "rdma", "--depth", &depth];
    let words = [&words[..], &["--connections", &count, "--seconds", &seconds]].concat();
    Run::of(&lab.document(words, LIMIT)?, connections)
}

/// Returns the numbers of the processors that this process may use.
fn own_processors() -> Result<Vec<usize>, Failure> {
    let own = sched_getaffinity(None).context("sched_getaffinity")?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| own.is_set(*number)).collect())
}

/// Returns the command of a server that uses only these processors.
fn limited(lab: &Lab, processors: &[usize]) -> Command {
    let list = processors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let words: [&OsStr; 3] = ["--cpu-list".as_ref(), list.as_ref(), lab.rpcrdma.as_ref()];
    let mut command = lab::command(Path::new("taskset"), words);
    command.args(SERVER);
    command
}

/// Measures all in turn.
pub(crate) fn measure(lab: &Lab) -> Result<Outcome, Failure> {
    let processors = own_processors()?;
    let (_server, all) = Process::announced::<Ready>(lab.rpcrdma(SERVER))?;
    let mut servers = Vec::new();
    for count in PROCESSORS {
        let first = processors.get(..count).ok_or_else(|| {
            Failure::new(format!("{} processors are here: at least {count} are needed", processors.len()))
        })?;
        servers.push(Process::announced::<Ready>(limited(lab, first))?);
    }
    let mut rounds = Rounds::default();
    for round in lab.effort.rounds() {
        lab.progress(round);
        let by_connections =
            CONNECTIONS.iter().map(|count| run(lab, &all, *count)).collect::<Result<Vec<_>, _>>()?;
        let by_processors =
            servers.iter().map(|(_, ready)| run(lab, ready, MOST)).collect::<Result<Vec<_>, _>>()?;
        if round > 0 {
            rounds.add(&by_connections, &by_processors)?;
        }
    }
    rounds.outcome()
}

/// Rounds of each row, in the order of the rows.
#[derive(Debug, Default)]
struct Rounds {
    rows: [Vec<Round>; 10],
}

impl Rounds {
    fn add(&mut self, by_connections: &[Run], by_processors: &[Run]) -> Result<(), Failure> {
        let ([one, two, four, eight], [limited, both]) = (by_connections, by_processors) else {
            return Err(Failure::new("not all runs were made"));
        };
        let values = [
            (two.calls, one.calls),
            (four.calls, one.calls),
            (eight.calls, one.calls),
            (two.rate, one.rate),
            (four.rate, one.rate),
            (eight.rate, one.rate),
            (both.calls, limited.calls),
            (both.rate, limited.rate),
            (eight.of_call, one.of_call),
            (eight.of_gib, one.of_gib),
        ];
        for (row, (value, base)) in self.rows.iter_mut().zip(values) {
            row.push(Round::ratio(value, base));
        }
        Ok(())
    }

    fn outcome(&self) -> Result<Outcome, Failure> {
        let figures = self.rows.iter().map(|row| Figure::of(row)).collect::<Result<Vec<_>, _>>()?;
        let [.., of_call, of_gib] = figures.as_slice() else {
            return Err(Failure::new("nothing was measured"));
        };
        let calculated = format!(
            "Calculated: with {MOST} connections a server takes {} of processor time for a NULL call, and {} for a GiB that \
             is read. So each of its processors serves at most {} or {}. More processors than here were not measured.",
            Unit::Trip.show(of_call.value),
            Unit::Cpu.show(of_gib.value),
            Unit::Calls.show(1.0 / of_call.value),
            Unit::Rate.show(f64::from(1 << 30) / of_gib.value),
        );
        Ok(Outcome { figures, notes: vec![calculated] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_both_rows_and_their_cost() {
        let row = |name: &str, value: f64| {
            format!(
                r#"{{"name": "{name}", "transport": "rdma", "value": {value}, "connections": 8, "depth": 16, "server":
                {{"cpu_seconds_per_gib": 0.25, "cpu_microseconds_per_call": 4.0}}}}"#
            )
        };
        let text = format!(r#"{{"rows": [{}, {}]}}"#, row("null", 100_000.0), row("read", 3e9));
        let run = Run::of(&serde_json::from_str(&text).unwrap(), 8).unwrap();
        assert_eq!((run.calls, run.rate, run.of_call, run.of_gib), (100_000.0, 3e9, 0.000_004, 0.25));
        assert!(Run::of(&serde_json::from_str(&text).unwrap(), 4).is_err());
        let mut rounds = Rounds::default();
        let twice = Run { calls: 200_000.0, ..run };
        rounds.add(&[run, twice, twice, twice], &[run, twice]).unwrap();
        let outcome = rounds.outcome().unwrap();
        let measured: Vec<f64> = outcome.figures.iter().map(|figure| figure.measured).collect();
        assert_eq!(measured, [2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0]);
        let note = outcome.notes.concat();
        assert!(note.contains("4.0 us") && note.contains("250000/s") && note.contains("4.29 GB/s"), "{note}");
        assert!(rounds.add(&[run], &[run]).is_err());
    }
}
