//! Loses replies of calls that change state, while WRITEs of the same address go on at the machine's full rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;
use crate::program::{COUNTERS, Caller, block};
use crate::proxy::Proxy;
use crate::report::{Report, mib};
use crate::server::{self, Process, caller};
use crate::system::usage;

/// Memory of a client, in bytes.
const MEMORY: usize = 64 << 20;
/// Calls that a client has in flight. All of their replies are lost together.
const CALLS: u32 = 16;
/// Time for which replies are lost before their connections are cut.
const SILENCE: Duration = Duration::from_millis(20);
/// Least time for which connections work in between.
const WORK: Duration = Duration::from_millis(30);
/// Length of a WRITE, in bytes.
const WRITE: usize = 4096;
/// Most resident memory of the server, in bytes.
const RESIDENT: u64 = 192 << 20;
/// Most time for the whole task.
const TIME: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Least number of replies to lose in total
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// Clients whose replies are lost, with 16 calls in flight each
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Clients that write, with 16 calls in flight each
    #[arg(long, default_value_t = 2)]
    writers: usize,
    /// Time for which a lost connection stays away, in milliseconds
    #[arg(long, default_value_t = 100)]
    outage: u64,
}

pub(crate) async fn run(options: Options) -> Result<bool, Failure> {
    let calls = usize::try_from(CALLS)?;
    if options.clients * calls > COUNTERS {
        return Err(format!("{} clients, at most {} have counters", options.clients, COUNTERS / calls).into());
    }
    let server = Process::start(server::Options::new(256, 64, 512 << 20)).await?;
    let proxy = Proxy::start(server.address, Duration::from_millis(options.outage)).await?;
    let block = block();
    let watcher = caller(server.address, MEMORY, 1, &block).await?;

    let stopped = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let mut writing = JoinSet::new();
    for _ in 0..options.writers {
        let caller = caller(server.address, MEMORY, CALLS, &block).await?;
        for _ in 0..calls {
            writing.spawn(write(caller.clone(), Arc::clone(&stopped), Arc::clone(&written)));
        }
    }
    let mut callers = Vec::new();
    let mut adding = JoinSet::new();
    for client in 0..options.clients {
        let caller = caller(proxy.address, MEMORY, CALLS, &block).await?;
        for task in 0..calls {
            let counter = u32::try_from(client * calls + task)?;
            adding.spawn(add(caller.clone(), counter, Arc::clone(&stopped)));
        }
        callers.push(caller);
    }

    let started = Instant::now();
    let before = written.load(Ordering::Relaxed);
    let mut during = 0;
    let mut outages = 0;
    let mut state = watcher.state().await?;
    while state.repeats < options.count && started.elapsed() < TIME && !adding.is_empty() {
        // Each client has calls in flight again.
        sleep(WORK).await;
        let connections: u64 = callers.iter().map(|caller| caller.client.stats().connections).sum();
        let writes = written.load(Ordering::Relaxed);
        proxy.silence_all(SILENCE);
        while callers.iter().map(|caller| caller.client.stats().connections).sum::<u64>()
            < connections + u64::try_from(options.clients)?
            && started.elapsed() < TIME
        {
            sleep(Duration::from_millis(1)).await;
        }
        during += written.load(Ordering::Relaxed) - writes;
        outages += 1;
        state = watcher.state().await?;
        // A failed call is reported at once.
        while let Some(ended) = adding.try_join_next() {
            ended??;
        }
    }
    stopped.store(true, Ordering::Relaxed);
    let elapsed = started.elapsed();
    let writes = written.load(Ordering::Relaxed) - before;
    let mut duplicates = 0;
    let mut adds = 0;
    while let Some(ended) = adding.join_next().await {
        let (counter, added) = ended??;
        adds += u64::from(added);
        duplicates += u64::from(watcher.counter(counter).await?.abs_diff(added));
    }
    while let Some(ended) = writing.join_next().await {
        ended??;
    }
    state = watcher.state().await?;
    let resident = (server.usage()?.resident, usage(std::process::id())?.resident);

    let mut report = Report::default();
    let seconds = elapsed.as_secs_f64();
    let rate = |count: u64| -> Result<f64, Failure> { Ok(f64::from(u32::try_from(count)?) / seconds) };
    report.line("calls that change state", format_args!("{adds} in {seconds:.1} s ({:.0}/s)", rate(adds)?));
    report.line("WRITEs of the same address", format_args!("{writes} ({:.0}/s)", rate(writes)?));
    report.line("  of these while replies were lost", format_args!("{during} in {outages} outages"));
    report.line("connections cut", proxy.cuts());
    report.check(
        "replies lost, and asked for again",
        format_args!("{} (at least {})", state.repeats, options.count),
        state.repeats >= options.count,
    );
    report.check("executed twice or not at all", duplicates, duplicates == 0);
    report.line("replies that a later call proved received", state.proven);
    report.check("replies dropped too early", state.evicted, state.evicted == 0);
    report.line("memory of the reply cache", mib(state.cache));
    report.check("server: resident", mib(resident.0), resident.0 <= RESIDENT);
    report.line("clients and proxy: resident", mib(resident.1));
    for caller in callers {
        caller.client.close().await;
    }
    watcher.client.close().await;
    server.stop().await?;
    Ok(report.end())
}

/// Writes until `stopped` is set.
async fn write(caller: Caller, stopped: Arc<AtomicBool>, written: Arc<AtomicU64>) -> Result<(), Failure> {
    while !stopped.load(Ordering::Relaxed) {
        caller.put(0, WRITE).await?;
        written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Adds one to its counter until `stopped` is set; returns the counter and the number of calls.
async fn add(caller: Caller, counter: u32, stopped: Arc<AtomicBool>) -> Result<(u32, u32), Failure> {
    let mut added = 0;
    while !stopped.load(Ordering::Relaxed) {
        added += 1;
        let value = caller.add(counter).await?;
        if value != added {
            return Err(format!("ADD was executed {value} times, called {added} times").into());
        }
    }
    Ok((counter, added))
}
