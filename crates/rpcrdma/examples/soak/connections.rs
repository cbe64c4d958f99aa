//! Many connections at a time, each with calls.

use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;

use crate::Failure;
use crate::program::{Caller, block};
use crate::report::{Report, mib};
use crate::server::{self, Process, caller};
use crate::system::usage;

/// Credits of each connection, the default of a server.
const CREDITS: u32 = 64;
/// Memory of a client, in bytes: its Receives, and the results of its calls.
const MEMORY: usize = 512 << 10;
/// Most resident memory of either process for each connection that was used, in bytes.
const RESIDENT: u64 = 256 << 10;
/// Most resident memory of the server for each connection that has made one call, in bytes.
const IDLE: u64 = 24 << 10;
/// Connections that are made at a time.
const AT_ONCE: usize = 64;
/// Time for all connections to be closed at the server.
const REST: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Connections
    #[arg(long, default_value_t = 2000)]
    count: usize,
    /// Rounds of calls: in each, every connection makes a NULL, a small ECHO, an ADD and a GET of 16 KiB
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Memory of the server, in bytes: by default that of `rpcrdma serve`
    #[arg(long, default_value_t = 512 << 20)]
    memory: usize,
}

/// Calls of a connection in one round.
const CALLS: usize = 4;

pub(crate) async fn run(options: Options) -> Result<bool, Failure> {
    let Options { count, rounds, memory } = options;
    let server = Process::start(server::Options::new(count + 1, CREDITS, memory)).await?;
    let block = block();
    let watcher = caller(server.address, MEMORY, 1, &block).await?;
    let empty = (watcher.state().await?, server.usage()?, usage(std::process::id())?);

    let started = Instant::now();
    let mut callers = Vec::with_capacity(count);
    let mut connecting = JoinSet::new();
    while callers.len() < count {
        while connecting.len() < AT_ONCE && callers.len() + connecting.len() < count {
            let (address, block) = (server.address, block.clone());
            connecting.spawn(async move {
                let caller = caller(address, MEMORY, CREDITS, &block).await?;
                caller.null().await?;
                Ok::<_, Failure>(caller)
            });
        }
        if let Some(caller) = connecting.join_next().await {
            callers.push(caller??);
        }
    }
    let connected = started.elapsed();
    let full = (watcher.state().await?, server.usage()?, usage(std::process::id())?);

    let started = Instant::now();
    let mut calling = JoinSet::new();
    for caller in &callers {
        calling.spawn(calls(caller.clone(), rounds));
    }
    while let Some(result) = calling.join_next().await {
        result??;
    }
    let called = started.elapsed();
    let used = (server.usage()?, usage(std::process::id())?);
    let added = watcher.counter(0).await?;
    let made: u64 = callers.iter().map(|caller| caller.client.stats().connections).sum();

    let mut closing = JoinSet::new();
    for caller in callers {
        closing.spawn(async move { caller.client.close().await });
    }
    closing.join_all().await;
    let deadline = Instant::now() + REST;
    let mut end = watcher.state().await?;
    while end.connections > empty.0.connections && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
        end = watcher.state().await?;
    }
    let descriptors = server.usage()?.descriptors;

    let mut report = Report::default();
    let connections = f64::from(u32::try_from(count)?);
    let total = f64::from(rounds) * connections * f64::from(u32::try_from(CALLS)?);
    let each = |from: u64, to: u64| {
        format!("{} KiB", (to.saturating_sub(from) / u64::try_from(count).unwrap_or(1)).div_ceil(1 << 10))
    };
    let seconds = connected.as_secs_f64();
    report.line(
        "connections",
        format_args!("{count} in {seconds:.2} s ({:.0}/s), each with a NULL", connections / seconds),
    );
    let seconds = called.as_secs_f64();
    report.line(
        "calls on all of them",
        format_args!("{total:.0} in {seconds:.2} s ({:.0}/s)", total / seconds),
    );
    let resident = |from: u64, idle: u64, used: u64| format!("{}, {}", each(from, idle), each(from, used));
    let most = RESIDENT * u64::try_from(count)?;
    report.check(
        "server: resident for each, new and used",
        resident(empty.1.resident, full.1.resident, used.0.resident),
        full.1.resident <= empty.1.resident + IDLE * u64::try_from(count)?
            && used.0.resident <= empty.1.resident + most,
    );
    report.check(
        "clients: resident for each, new and used",
        resident(empty.2.resident, full.2.resident, used.1.resident),
        used.1.resident <= empty.2.resident + most,
    );
    report.line("server: pool reserved for each", each(empty.0.memory, full.0.memory));
    let now = usize::try_from(full.0.connections)?;
    report.check("server's connections with all of them", now, now == count + 1);
    let files = full.1.descriptors;
    report.check(
        "server's descriptors: none, all, closed",
        format_args!("{}, {files}, {descriptors}", empty.1.descriptors),
        files <= empty.1.descriptors + count && descriptors == empty.1.descriptors,
    );
    let adds = u64::from(rounds) * u64::try_from(count)?;
    report.check("ADDs called, executed", format_args!("{adds}, {added}"), adds == u64::from(added));
    report.check("connections lost", made - u64::try_from(count)?, made == u64::try_from(count)?);
    report.check(
        "server's pool in use, before and after",
        format_args!("{}, {}", mib(empty.0.memory), mib(end.memory)),
        empty.0.memory == end.memory,
    );
    watcher.client.close().await;
    server.stop().await?;
    Ok(report.end())
}

async fn calls(caller: Caller, rounds: u32) -> Result<(), Failure> {
    for _ in 0..rounds {
        tokio::try_join!(caller.null(), caller.echo(1, 200), caller.get(2, 16 << 10), async {
            // All clients share the counter, so only the number of all ADDs is known.
            caller.add(0).await.map(drop)
        })?;
    }
    Ok(())
}
