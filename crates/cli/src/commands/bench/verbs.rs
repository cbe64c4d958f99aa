//! `rpcrdma bench verbs`: measures an RDMA provider between two ends at one address, which may lie on an
//! adapter.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use rpcrdma_verbs::Counters;
use serde::Serialize;

use super::mechanisms::cases::{Task, VERSION_ONE};
use super::mechanisms::measure::{Cost, Subject, to_float};
use super::streams::{self, Streams};
use super::{Ends, OPERATION_LEN, machine, measured, prepare, table, temporary_directory};
use crate::arguments::{Common, whole};
use crate::exit::Failure;
use crate::output::{self, Text};
use crate::provider::ProviderOptions;

const AFTER_HELP: &str = "\
Client and server run in this process, each on a thread of its own, with Version One and an inline size of 4 KiB. All rows take \
turns, round by round, after a round that warms up. Each value is the median of the rounds.

  RDMA Write, RDMA Read, Send  streams of operations of 1 MiB on the provider alone
  window                       windows that are opened and closed again, which nobody uses
  NULL                         one call after the other: the time of a call; at a depth: calls a second
  WRITE, READ                  NFS calls by chunks, on a file system in memory, of 4 KiB and 1 MiB
  depth                        operations in flight

The counts are for one operation: of the client for streams, of client and server for calls.

  bound       windows that were bound
  local       windows that their owner invalidated
  remote      windows that the peer invalidated
  sends       system calls that sent; for adapters, calls of ibv_post_send
  events      system calls that received; for adapters, completion events that were read
  done        completions of an adapter
  registered  registrations of memory with an adapter

--json prints {machine, provider, address, rounds, operations, milliseconds, rows: [{name, bytes, depth, unit, value, \
least, most, counts: {windows_bound, local_invalidations, remote_invalidations, send_calls, receive_calls, completions, \
completions_per_event, registrations}}]}. The unit is MiB/s, seconds, windows/s or calls/s.";

/// Most calls in flight at a depth.
const DEPTH: u32 = 16;
/// Lengths of data of calls.
const LENGTHS: [u32; 2] = [4 << 10, 1 << 20];

/// Measure an RDMA provider: streams, NULL calls, and calls with chunks
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Verbs {
    /// Run briefly for a first impression, with fewer rounds, less data and less time
    #[arg(long)]
    quick: bool,
    /// Rounds, 1 to 99 [default: 7, with --quick 3]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1, 99))]
    rounds: Option<u16>,
    /// Operations of each stream in a round [default: 1024, with --quick 64]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 1_000_000))]
    operations: Option<u32>,
    /// Time for each kind of call in a round, in milliseconds, 1 to 10000 [default: 500, with --quick 100]
    #[arg(long, value_name = "MILLISECONDS", value_parser = whole::<u16>(1, 10_000))]
    milliseconds: Option<u16>,
    /// Address of both ends: of an adapter, or of any interface for software iWARP
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    #[command(flatten)]
    provider: ProviderOptions,
}

#[derive(Serialize)]
struct Document {
    machine: String,
    provider: &'static str,
    address: IpAddr,
    rounds: u16,
    operations: u32,
    milliseconds: u16,
    rows: Vec<Row>,
}

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    Send,
    /// Windows of this length that are opened and closed, and how many at a time.
    Windows(u32, u32),
    /// NULL calls, one after the other.
    Latency,
    Calls(Task, u32),
}

impl Kind {
    /// Returns the rows in the order of their measurement.
    fn all() -> Vec<Self> {
        let mut all = vec![Self::Write, Self::Read, Self::Send];
        all.extend(LENGTHS.iter().flat_map(|&len| [1, DEPTH].map(|depth| Self::Windows(len, depth))));
        all.extend([Self::Latency, Self::Calls(Task::Null, DEPTH)]);
        for len in LENGTHS {
            for task in [Task::Write(len), Task::Read(len)] {
                all.extend([1, DEPTH].map(|depth| Self::Calls(task, depth)));
            }
        }
        all
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Write => "RDMA Write",
            Self::Read => "RDMA Read",
            Self::Send => "Send",
            Self::Windows(..) => "window",
            Self::Latency => Task::Null.name(),
            Self::Calls(task, _) => task.name(),
        }
    }

    const fn bytes(self) -> u32 {
        match self {
            Self::Write | Self::Read | Self::Send => OPERATION_LEN,
            Self::Windows(len, _) => len,
            Self::Latency => 0,
            Self::Calls(task, _) => task.bytes(),
        }
    }

    const fn depth(self) -> u32 {
        match self {
            Self::Write | Self::Read => streams::DEPTH,
            Self::Send => streams::SENDS,
            Self::Latency => 1,
            Self::Windows(_, depth) | Self::Calls(_, depth) => depth,
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Write | Self::Read | Self::Send => "MiB/s",
            Self::Windows(..) => "windows/s",
            Self::Latency => "seconds",
            Self::Calls(..) => "calls/s",
        }
    }
}

/// Counts of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Counts {
    windows_bound: f64,
    local_invalidations: f64,
    remote_invalidations: f64,
    send_calls: f64,
    receive_calls: f64,
    completions: f64,
    completions_per_event: f64,
    registrations: f64,
}

impl Counts {
    fn new(counters: &Counters, operations: u64) -> Self {
        let share = |count, of: u64| to_float(count) / to_float(of.max(1));
        let each = |count| share(count, operations);
        Self {
            windows_bound: each(counters.windows_bound),
            local_invalidations: each(counters.local_invalidations),
            remote_invalidations: each(counters.remote_invalidations),
            send_calls: each(counters.send_calls),
            receive_calls: each(counters.receive_calls),
            completions: each(counters.completions),
            completions_per_event: share(counters.completions, counters.receive_calls),
            registrations: each(counters.registrations),
        }
    }
}

/// Result of a row.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: &'static str,
    bytes: u32,
    depth: u32,
    unit: &'static str,
    value: f64,
    least: f64,
    most: f64,
    counts: Counts,
}

/// Measurements of a row.
#[derive(Clone, Debug, Default)]
struct Measured {
    values: Vec<f64>,
    operations: u64,
    counters: Counters,
}

impl Measured {
    fn add(&mut self, value: f64, operations: u64, counters: &Counters) {
        self.values.push(value);
        self.operations += operations;
        self.counters = self.counters.plus(counters);
    }

    fn row(&self, kind: Kind) -> Row {
        Row {
            name: kind.name(),
            bytes: kind.bytes(),
            depth: kind.depth(),
            unit: kind.unit(),
            value: table::median(self.values.clone()),
            least: self.values.iter().copied().fold(f64::INFINITY, f64::min),
            most: self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            counts: Counts::new(&self.counters, self.operations),
        }
    }
}

const HEAD: &str = "\
| what       |   bytes | depth |          value | bound | local | remote |  sends | events |   done | registered |
| ---------- | ------: | ----: | -------------: | ----: | ----: | -----: | -----: | -----: | -----: | ---------: |";

impl Row {
    fn line(&self) -> String {
        let Self { name, bytes, depth, unit, value, counts, .. } = self;
        let value = match *unit {
            "seconds" => format!("{:.1} us", value * 1e6),
            unit => format!("{value:.0} {unit}"),
        };
        format!(
            "| {name:10} | {bytes:>7} | {depth:>5} | {value:>14} | {:5.1} | {:5.1} | {:6.1} | {:6.1} | {:6.1} | {:6.1} | {:10.3} |",
            counts.windows_bound,
            counts.local_invalidations,
            counts.remote_invalidations,
            counts.send_calls,
            counts.receive_calls,
            counts.completions,
            counts.registrations,
        )
    }
}

/// Amount of work in a round.
#[derive(Clone, Copy, Debug)]
struct Effort {
    rounds: u16,
    operations: u32,
    milliseconds: u16,
}

impl Verbs {
    pub(super) fn run(&self, common: Common) -> Result<(), Failure> {
        self.provider.check([&self.provider.provider], false)?;
        if self.address.is_unspecified() {
            return Err(Failure::usage(
                "--address needs an address of this machine: nobody connects to all addresses",
            ));
        }
        let effort = Effort {
            rounds: self.rounds.unwrap_or(if self.quick { 3 } else { 7 }),
            operations: self.operations.unwrap_or(if self.quick { 64 } else { 1024 }),
            milliseconds: self.milliseconds.unwrap_or(if self.quick { 100 } else { 500 }),
        };
        let ends = Ends { options: self.provider.clone(), address: self.address };
        let directory = temporary_directory()?;
        let place = directory.path().to_owned();
        let (provider, rows) = measured(async move { measure(&ends, &place, effort).await })?;
        let Effort { rounds, operations, milliseconds } = effort;
        if common.json {
            return output::json(&Document {
                machine: machine(),
                provider,
                address: self.address,
                rounds,
                operations,
                milliseconds,
                rows,
            });
        }
        let mut text = Text::stdout();
        text.line(format_args!(
            "{}; {provider} at {}; {rounds} rounds of {operations} operations of 1 MiB, or {milliseconds} ms\n",
            machine(),
            self.address
        ))?;
        text.line(HEAD)?;
        rows.iter().try_for_each(|row| text.line(row.line()))?;
        text.flush()
    }
}

/// Measures all rows. Returns the name of the provider too.
async fn measure(ends: &Ends, place: &Path, effort: Effort) -> Result<(&'static str, Vec<Row>), Failure> {
    let directory = place.join("export");
    prepare(&directory)?;
    let subject = Subject::start(ends, &directory, &place.join("state"), VERSION_ONE).await?;
    let to = *subject.addresses();
    let mut streams = Streams::connect(ends, to.streams).await?;
    let kinds = Kind::all();
    let mut measured = vec![Measured::default(); kinds.len()];
    // Round 0 warms up.
    for round in 0..=effort.rounds {
        for (kind, measured) in kinds.iter().zip(&mut measured) {
            let measured_once = once(&mut streams, &subject, *kind, effort).await;
            let (value, operations, counters) = measured_once.map_err(|failure| {
                let (name, bytes, depth) = (kind.name(), kind.bytes(), kind.depth());
                Failure::failed(format!("{name} of {bytes} bytes at {depth}, round {round}: {failure}"))
            })?;
            if round > 0 {
                measured.add(value, operations, &counters);
            }
        }
    }
    Ok((to.provider, kinds.into_iter().zip(&measured).map(|(kind, measured)| measured.row(kind)).collect()))
}

/// Measures a row once. Returns value, operations and counts.
async fn once(
    streams: &mut Streams,
    subject: &Subject,
    kind: Kind,
    effort: Effort,
) -> Result<(f64, u64, Counters), Failure> {
    let Effort { operations, milliseconds, .. } = effort;
    let time = Duration::from_millis(u64::from(milliseconds));
    let before = streams.counters();
    let rate = match kind {
        Kind::Write => streams.write(operations).await?,
        Kind::Read => streams.read(operations).await?,
        Kind::Send => streams.send(operations).await?,
        Kind::Windows(len, depth) => {
            let (count, seconds) = streams.windows(len, depth, time).await?;
            return Ok((to_float(count) / seconds, count, streams.counters().since(&before)));
        }
        Kind::Latency => {
            let (seconds, cost) = subject.latency(time).await?;
            return Ok((seconds, cost.calls, cost.counted.links));
        }
        Kind::Calls(task, depth) => {
            let cost: Cost = subject.run(task, depth, time).await?;
            return Ok((cost.rate(), cost.calls, cost.counted.links));
        }
    };
    Ok((rate / f64::from(OPERATION_LEN), u64::from(operations), streams.counters().since(&before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Counters {
        let mut counters = Counters::default();
        counters.windows_bound = 20;
        counters.receive_calls = 5;
        counters.completions = 40;
        counters.registrations = 1;
        counters
    }

    #[test]
    fn counts_are_for_one_operation() {
        let mut measured = Measured::default();
        measured.add(3.0, 4, &counters());
        measured.add(1.0, 6, &Counters::default());
        let row = measured.row(Kind::Calls(Task::Read(4096), 1));
        let close = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(close(row.value, 2.0) && close(row.least, 1.0) && close(row.most, 3.0), "{row:?}");
        assert!(close(row.counts.windows_bound, 2.0) && close(row.counts.registrations, 0.1), "{row:?}");
        assert!(close(row.counts.completions_per_event, 8.0), "{row:?}");
        assert_eq!(Counts::new(&Counters::default(), 0), Counts::default());
    }

    #[test]
    fn a_line_shows_value_and_counts() {
        let mut measured = Measured::default();
        measured.add(0.000_012_34, 10, &counters());
        let line = measured.row(Kind::Latency).line();
        assert!(line.starts_with("| NULL       |       0 |     1 |        12.3 us |   2.0 |"), "{line}");
        assert!(line.ends_with("|    4.0 |      0.100 |"), "{line}");
        assert!(HEAD.lines().all(|head| head.len() == line.len()), "{line}");
    }

    /// On the loopback interface, software iWARP is measured. Each call with data has one key, nothing is registered, and
    /// a window alone sends nothing.
    #[test]
    fn all_rows_are_measured_without_an_adapter() {
        let place = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let effort = Effort { rounds: 1, operations: 13, milliseconds: 5 };
        let ends = Ends::default();
        let (provider, rows) = runtime.block_on(measure(&ends, place.path(), effort)).unwrap();
        assert_eq!((provider, rows.len()), ("iwarp", Kind::all().len()));
        for row in rows {
            assert!(row.value > 0.0 && row.least <= row.value && row.value <= row.most, "{row:?}");
            let keys = if matches!(row.name, "WRITE" | "READ" | "window") { 1.0 } else { 0.0 };
            assert!((row.counts.windows_bound - keys).abs() < 0.01, "{row:?}");
            assert_eq!(row.counts.send_calls > 0.0, row.name != "window", "{row:?}");
            assert!(row.counts.registrations == 0.0, "{row:?}");
        }
    }
}
