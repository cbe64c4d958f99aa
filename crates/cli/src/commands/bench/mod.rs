//! `rpcrdma bench`: measures throughput, latency, memory and processor time as ratios to plain TCP in the same
//! run.
//!
//! `loopback` measures this machine, and `remote` against a server on another host; `wire` builds two hosts
//! from network namespaces and does that there. The other modules are shared, or are commands of their own.

mod chart;
mod ends;
mod loopback;
mod mechanisms;
mod memory;
mod nfs;
mod processor;
mod program;
mod remote;
mod roundtrips;
mod server;
mod streams;
mod svg;
mod table;
mod tcp;
mod verbs;
mod versions;
mod wire;

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use tempfile::TempDir;

use self::ends::Ends;
use self::loopback::Loopback;
use self::mechanisms::Mechanisms;
use self::remote::ClientOptions;
use self::remote::serve::ServerOptions;
use self::roundtrips::Roundtrips;
use self::verbs::Verbs;
use self::wire::Wire;
use crate::arguments::Common;
use crate::commands::until_signal;
use crate::exit::Failure;
use crate::provider::ProviderOptions;

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
Without HOST and --server, everything runs on the loopback interface in this process, with client and server on a thread each, CRC32C on, and operations of \
1 MiB. Base and subject take turns for several rounds. Each ratio is the median over the rounds of subject by base.

  base          a plain TCP stream of 1 MiB writes; for latency a ping-pong of 128 bytes on TCP
  RDMA streams  RDMA Writes, and RDMA Reads, on the iWARP provider alone
  pread, send   the TCP stream with data that is read from the cached file first, as an NFS server
                reads it
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
without_chunks}]}; the last field is in percent.

Between two hosts, run rpcrdma bench --server on one, and rpcrdma bench HOST on the other (docs/performance.md):

  TCP stream     raw TCP in each direction, by the best of three write sizes, which is named
  TCP ping-pong  round trip of 128 bytes on raw TCP
  NULL           round trip of one call after the other, and calls a second at --depth, over RDMA
                 and over RPC/TCP
  metadata       calls a second at --depth whose replies have the lengths of GETATTR, LOOKUP, ACCESS,
                 SETATTR and READDIRPLUS; the last is a long reply over RDMA
  WRITE, READ    calls that bring data to the server, or fetch it, in memory, without a file system
  raw TCP        the same direction on raw TCP in the same run; the ratio is value by raw TCP. Calls a
                 second have none
  both ways      with --bidir, WRITE and READ, or two raw streams, at the same time; the value is their sum
  CPU            processor time of the client's and of the server's process, for a GiB of data and
                 for a call. Work of the kernel for nobody's account is not in it

Below the table, a sentence for each row says what limits it, with the number that shows it. --json prints {address, provider, \
client: {machine, processors}, server: {machine, processors}, seconds, connections, depth, size, others, rows: [{name, transport, \
unit, value, base, ratio, size, depth, connections, seconds, bytes, calls, microseconds: {p50, p99}, directions: {to, from}, client: {cpu_seconds, busy, \
machine, cpu_seconds_per_gib, cpu_microseconds_per_call}, server: {the same}, limit: {by, text}, intervals: [{until, bytes, calls, \
rate}]}]}. What a row does not have is null. machine is the share of all processors that worked.

The server prints one line for each client that comes, for each result, and for each end; with --json, one document each: {event, \
client, ...} after {event: \"ready\", pid, control, rdma, raw, provider}.";

/// Measure this machine, or two hosts: throughput, latency and CPU against plain TCP
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    client: ClientOptions,
    #[command(flatten)]
    loopback: Loopback,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    provider: ProviderOptions,
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
    /// Measure between two network namespaces of this machine, on virtual Ethernet with several settings
    Wire(Wire),
}

impl Bench {
    pub(crate) fn run(&self, common: Common) -> Result<(), Failure> {
        match &self.other {
            Some(Other::Mechanisms(mechanisms)) => return mechanisms.run(common),
            Some(Other::Verbs(verbs)) => return verbs.run(common),
            Some(Other::Roundtrips(roundtrips)) => return roundtrips.run(common),
            Some(Other::Wire(wire)) => return wire.run(common),
            None => {}
        }
        if self.client.host.is_none() {
            self.client.check_none(self.server.server)?;
        }
        if self.server.server {
            return self.server.run(&self.provider, self.client.port, common);
        }
        if let Some(host) = &self.client.host {
            return self.client.run(host, &self.provider, common);
        }
        if let Some(option) = self.provider.given() {
            return Err(Failure::usage(format!(
                "{option} has no meaning on the loopback interface: name a host, or add --server"
            )));
        }
        self.loopback.run(common)
    }
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

/// Makes the error of a connection a failure. Its text names the address.
fn no_connection(error: rpcrdma::ConnectError) -> Failure {
    Failure::failed(error.to_string())
}

/// Returns a function that makes the error of a step of the benchmark a failure.
fn failed<E: Display>(step: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::failed(format!("cannot {step}: {error}"))
}
