//! `rpcrdma bench`: measures throughput, latency and memory as ratios to plain TCP in the same run.

mod ends;
mod mechanisms;
mod memory;
mod nfs;
mod processor;
mod roundtrips;
mod server;
mod streams;
mod table;
mod tcp;
mod verbs;
mod versions;

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;
use tempfile::TempDir;

use self::ends::Ends;
use self::mechanisms::Mechanisms;
use self::nfs::NfsStreams;
use self::processor::Processors;
use self::roundtrips::Roundtrips;
use self::server::{Addresses, BenchServer};
use self::table::{Row, RowDocument, Target, Unit};
use self::verbs::Verbs;
use crate::arguments::{Common, Proto, whole};
use crate::commands::until_signal;
use crate::exit::Failure;
use crate::output::{self, Text};

/// Bytes of one operation.
const OPERATION: usize = 1 << 20;
/// Bytes of an operation, as the length of a segment.
const OPERATION_LEN: u32 = 1 << 20;
/// Length of the file that is read or written, in operations.
const FILE_OPERATIONS: u32 = 64;
/// Name of the file that is read.
const FILE: &str = "cached";
/// Name of the export with the file system in memory.
const MEMORY_EXPORT: &str = "/memory";

const AFTER_HELP: &str = "\
Everything runs on the loopback interface in this process, with client and server on a thread each, CRC32C on, and operations of \
1 MiB. Base and subject take turns for several rounds. Each ratio is the median over the rounds of subject by base.

  base          a plain TCP stream of 1 MiB writes; for latency a ping-pong of 128 bytes on TCP
  RDMA streams  RDMA Writes, and RDMA Reads, on the iWARP provider alone
  NFS           READ of a cached file in a directory, WRITE to a file system in memory, each over
                RDMA and over TCP
  NULL          round trip of a NULL call over RDMA: with a processor for each end, and with both
                ends on one processor, where no wake-up hides their work
  memory        growth of the resident memory of a server in another process by 200 idle RDMA
                connections, against connections x credits x inline size

--json prints {machine, rounds, operations, seconds, rows: [{name, unit, value, base, ratio, ratio_least, ratio_most, target, \
met}]}.

--versions measures other things instead: GETATTR, LOOKUP, ACCESS, READDIRPLUS of 50 entries and CREATE on a file system in memory, \
by version and inline threshold. It shows which calls need no chunk, and how many calls are made a second, one after the other. \
With --json it prints {machine, rounds, settings: [{version, inline, calls: [{name, without_chunks, per_second}], \
without_chunks}]}; the last field is in percent.";

/// Measure this machine: throughput, latency and memory against plain TCP
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    other: Option<Other>,
    /// Run briefly for a first impression, with fewer rounds and less data
    #[arg(long)]
    quick: bool,
    /// Measure metadata calls by version of RPC-over-RDMA and inline threshold
    #[arg(long, conflicts_with = "operations")]
    versions: bool,
    /// Rounds, 1 to 99 [default: 7, with --quick 3]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>(1, 99))]
    rounds: Option<u16>,
    /// Operations of 1 MiB in each measurement of a round [default: 1024, with --quick 256]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 1_000_000))]
    operations: Option<u32>,
}

/// Benchmarks of the protocol.
#[derive(Debug, Subcommand)]
enum Other {
    /// Measure the ways in which a call or a reply can travel, on the loopback interface
    Mechanisms(Mechanisms),
    /// Measure an RDMA provider: streams, NULL calls, and calls with chunks
    Verbs(Verbs),
    /// Count the round trips of each way in which an operation can travel, on a simulated link or through a
    /// delay line
    Roundtrips(Roundtrips),
}

#[derive(Serialize)]
struct Document {
    machine: String,
    rounds: u16,
    operations: u32,
    seconds: f64,
    rows: Vec<RowDocument>,
}

/// Amount of work of a measurement.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u16,
    operations: u32,
    /// Round trips in each measurement of latency.
    trips: u32,
}

impl Bench {
    pub(crate) fn run(&self, common: Common) -> Result<(), Failure> {
        match &self.other {
            Some(Other::Mechanisms(mechanisms)) => return mechanisms.run(common),
            Some(Other::Verbs(verbs)) => return verbs.run(common),
            Some(Other::Roundtrips(roundtrips)) => return roundtrips.run(common),
            None => {}
        }
        let effort = Effort {
            rounds: self.rounds.unwrap_or(if self.quick { 3 } else { 7 }),
            operations: self.operations.unwrap_or(if self.quick { 256 } else { 1024 }),
            trips: if self.quick { 1000 } else { 5000 },
        };
        let started = Instant::now();
        let place = temporary_directory()?;
        let (directory, state) = (place.path().join("export"), place.path().join("state"));
        prepare(&directory)?;
        if self.versions {
            return versions(place.path(), effort.rounds, common);
        }
        let machine = machine();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed("start the client's runtime"))?;
        let mut rows = Vec::new();
        runtime.block_on(until_signal(async {
            let (growth, bound) = memory::measure(&directory, &place.path().join("state2")).await?;
            let mut memory =
                Row::new("server memory, 200 idle connections", Unit::Memory, Target::AtMost(1.0));
            memory.add(growth, bound);

            let server = BenchServer::start(&Ends::default(), &directory, &state, |_| ())?;
            let processors = Processors::new(server.addresses.thread);
            // In a task of its own, so that each step does not also poll whatever else this runtime waits
            // for.
            let measuring = tokio::spawn(measure(server.addresses, effort, processors));
            rows = measuring.await.map_err(failed("run the benchmark"))??;
            rows.push(memory);
            Ok(())
        }))?;
        if common.json {
            return output::json(&Document {
                machine,
                rounds: effort.rounds,
                operations: effort.operations,
                seconds: started.elapsed().as_secs_f64(),
                rows: rows.iter().map(Row::document).collect(),
            });
        }
        let mut text = Text::stdout();
        let Effort { rounds, operations, .. } = effort;
        text.line(format_args!("{machine}; {rounds} rounds of {operations} operations of 1 MiB\n"))?;
        text.line(table::HEAD)?;
        for row in &rows {
            text.line(row.line())?;
        }
        text.flush()
    }
}

#[derive(Serialize)]
struct VersionsDocument {
    machine: String,
    rounds: u16,
    settings: Vec<versions::Setting>,
}

/// Runs `--versions`.
fn versions(place: &Path, rounds: u16, common: Common) -> Result<(), Failure> {
    let place = place.to_owned();
    let settings = measured(async move { versions::measure(&place, rounds).await })?;
    if common.json {
        return output::json(&VersionsDocument { machine: machine(), rounds, settings });
    }
    let mut text = Text::stdout();
    versions::lines(&settings, rounds).into_iter().try_for_each(|line| text.line(line))?;
    text.flush()
}

/// Makes a directory that is removed when it is dropped.
fn temporary_directory() -> Result<TempDir, Failure> {
    tempfile::Builder::new().prefix("rpcrdma-bench-").tempdir().map_err(failed("make a temporary directory"))
}

/// Measures on a runtime of one thread, until a signal comes.
fn measured<T: Send + 'static>(
    measuring: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start the client's runtime"))?;
    // In a task of its own, so that each step does not also poll whatever else this runtime waits for.
    runtime
        .block_on(until_signal(async { tokio::spawn(measuring).await.map_err(failed("run the benchmark"))? }))
}

/// Makes the file to read.
fn prepare(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir(directory).map_err(failed("make a directory"))?;
    let mut file = std::fs::File::create(directory.join(FILE)).map_err(failed("make a file"))?;
    let block = vec![0x3c; OPERATION];
    (0..FILE_OPERATIONS).try_for_each(|_| file.write_all(&block)).map_err(failed("write a file"))
}

/// Runs all rounds of the measurements in this process.
async fn measure(to: Addresses, effort: Effort, processors: Processors) -> Result<Vec<Row>, Failure> {
    let Effort { rounds, operations, trips } = effort;
    let mut base = tcp::Stream::connect(to.base).await.map_err(failed("connect"))?;
    let mut ping_pong = tcp::PingPong::connect(to.base).await.map_err(failed("connect"))?;
    let ends = Ends::default();
    let mut raw = streams::Streams::connect(&ends, to.streams).await?;
    let rdma = NfsStreams::connect(&ends, Proto::Rdma, to.nfs_rdma, FILE).await?;
    let tcp = NfsStreams::connect(&ends, Proto::Tcp, to.nfs_tcp, FILE).await?;

    let throughput = |name, bound| Row::new(name, Unit::Throughput, Target::AtLeast(bound));
    let mut rdma_write = throughput("RDMA Write stream / TCP stream", 0.75);
    let mut rdma_read = throughput("RDMA Read stream / TCP stream", 0.75);
    let mut nfs_read = throughput("NFS READ over RDMA / TCP stream", 0.5);
    let mut nfs_write = throughput("NFS WRITE over RDMA / TCP stream", 0.5);
    let mut tcp_read = throughput("NFS READ over TCP / TCP stream", 0.5);
    let mut tcp_write = throughput("NFS WRITE over TCP / TCP stream", 0.5);
    let mut null = Row::new("NULL over RDMA / TCP ping-pong of 128 B", Unit::Time, Target::AtMost(1.5));
    let mut null_together = Row::new("NULL, both ends on one processor", Unit::Time, Target::None);
    // Round 0 warms up.
    for round in 0..=rounds {
        let stream = |error| failed("measure the TCP stream")(error);
        let before = base.run(operations).await.map_err(stream)?;
        let values = [
            raw.write(operations).await?,
            raw.read(operations).await?,
            rdma.read(operations).await?,
            rdma.write(operations).await?,
            tcp.read(operations).await?,
            tcp.write(operations).await?,
        ];
        let after = base.run(operations).await.map_err(stream)?;
        let latency = |error| failed("measure the ping-pong")(error);
        processors.apart();
        let ping = ping_pong.run(trips).await.map_err(latency)?;
        let trip = rdma.null(trips).await?;
        processors.together();
        let ping_together = ping_pong.run(trips).await.map_err(latency)?;
        let trip_together = rdma.null(trips).await?;
        processors.free();
        if round == 0 {
            continue;
        }
        // Speed of the machine in this round: the mean of the base before and after the subjects.
        let stream = f64::midpoint(before, after);
        let rows =
            [&mut rdma_write, &mut rdma_read, &mut nfs_read, &mut nfs_write, &mut tcp_read, &mut tcp_write];
        for (row, value) in rows.into_iter().zip(values) {
            row.add(value, stream);
        }
        null.add(trip, ping);
        null_together.add(trip_together, ping_together);
    }
    Ok(vec![rdma_write, rdma_read, nfs_read, nfs_write, tcp_read, tcp_write, null, null_together])
}

/// Returns bytes a second.
fn rate(operations: u32, elapsed: Duration) -> f64 {
    f64::from(operations) * f64::from(OPERATION_LEN) / elapsed.as_secs_f64().max(1e-9)
}

/// Returns number and model of the processors, and the kernel.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()))
        .unwrap_or("unknown processor");
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{count} x {model}, Linux {}", kernel.trim())
}

/// Returns a function that makes the error of a step of the benchmark a failure.
fn failed<E: Display>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::failed(format!("cannot {step}: {error}"))
}
