//! Many calls of all forms, on connections that are cut at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rand::RngExt;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Failure;
use crate::program::{COUNTERS, Caller, MAX, OFFSETS, State, block};
use crate::proxy::Proxy;
use crate::report::{Report, mib};
use crate::server::{self, Process, caller};
use crate::system::usage;

/// Memory of a client, in bytes.
const MEMORY: usize = 64 << 20;
/// Most calls that a client may have in flight.
const CALLS: u32 = 16;
/// Growth of resident memory after the first tenth that does not count as a leak, in bytes: allocators keep the memory
/// of the peak.
const NOISE: u64 = 48 << 20;
/// Most resident memory of either process, in bytes: three times the memory after a million calls.
const RESIDENT: u64 = 128 << 20;
/// Longest wait for the server to notice that connections have ended. A link may lose the segment that resets one. Then the
/// server's probes find it: the first one after 30 s, further ones 10 s apart.
const REST: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Calls in total
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Clients, each with a connection of its own
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Tasks that share a client and call one after the other
    #[arg(long, default_value_t = 8)]
    tasks: usize,
    /// Calls after which one connection is cut, on average
    #[arg(long, default_value_t = 1000)]
    calls_per_cut: u64,
}

/// Calls done, by form.
#[derive(Debug, Default)]
struct Done {
    total: AtomicU64,
    null: AtomicU64,
    small: AtomicU64,
    long: AtomicU64,
    put: AtomicU64,
    get: AtomicU64,
    add: AtomicU64,
    bytes: AtomicU64,
}

pub(crate) async fn run(options: Options) -> Result<bool, Failure> {
    let tasks = options.clients * options.tasks;
    if tasks > COUNTERS {
        return Err(format!("{tasks} tasks, at most {COUNTERS} have a counter").into());
    }
    let server = Process::start(server::Options::new(256, 64, 512 << 20)).await?;
    let proxy = Arc::new(Proxy::start(server.address, Duration::ZERO).await?);
    let block = block();
    // A client that is never cut asks the server for its state.
    let watcher = caller(server.address, MEMORY, 1, &block).await?;
    let before = (watcher.state().await?, server.usage()?.descriptors);
    let mut callers = Vec::new();
    for _ in 0..options.clients {
        callers.push(caller(proxy.address, MEMORY, CALLS, &block).await?);
    }

    let done = Arc::new(Done::default());
    let started = Instant::now();
    let mut running = JoinSet::new();
    for (at, caller) in (0..tasks).zip(callers.iter().cycle()) {
        let (caller, done) = (caller.clone(), Arc::clone(&done));
        running.spawn(task(caller, u32::try_from(at)?, options.count, done));
    }
    let cutting = tokio::spawn(cut(Arc::clone(&proxy), Arc::clone(&done), options.calls_per_cut));
    while done.total.load(Ordering::Relaxed) < options.count / 10 && !running.is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    let warm = (server.usage()?, usage(std::process::id())?);
    let mut added = Vec::new();
    while let Some(result) = running.join_next().await {
        added.push(result??);
    }
    let elapsed = started.elapsed();
    cutting.abort();
    let hot = (server.usage()?, usage(std::process::id())?);

    let mut duplicates = 0;
    for (counter, count) in added {
        duplicates += u64::from(watcher.counter(counter).await?.abs_diff(count));
    }
    let (mut connections, mut retransmissions, mut held) = (0, 0, 0);
    for caller in callers {
        caller.client.close().await;
        let stats = caller.client.stats();
        connections += stats.connections;
        retransmissions += stats.retransmissions;
        held += stats.memory_in_use;
    }
    let after = at_rest(&watcher, &server, before.0.connections).await?;

    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut report = Report::default();
    let rate = f64::from(u32::try_from(options.count)?) / elapsed.as_secs_f64();
    report.line("calls", format_args!("{} in {:.1} s ({rate:.0}/s)", options.count, elapsed.as_secs_f64()));
    report.line("  NULL, small ECHO", format_args!("{}, {}", number(&done.null), number(&done.small)));
    report.line("  long calls and replies", number(&done.long));
    report.line("  PUT, GET (chunks)", format_args!("{}, {}", number(&done.put), number(&done.get)));
    report.line("  ADD (not idempotent)", number(&done.add));
    report.line("data checked, all right", mib(number(&done.bytes)));
    let clients = u64::try_from(options.clients)?;
    let cuts = proxy.cuts();
    report.check(
        "connections cut, made again",
        format_args!("{cuts}, {}", connections - clients),
        connections - clients <= cuts,
    );
    // On average there is one cut in so many calls; one in twice as many is certain.
    let due = u64::from(options.count > 2 * options.calls_per_cut);
    report.check("cuts required at least", due, cuts >= due && connections - clients >= due);
    report.check("calls sent again", retransmissions, retransmissions > 0 || cuts == 0);
    report.check("ADDs executed twice or lost", duplicates, duplicates == 0);
    report.check("clients' pool in use at the end", mib(u64::try_from(held)?), held == 0);
    let (from, to) = (before.0, after.0);
    report.line("server: calls, connections", format_args!("{}, {}", to.calls, to.accepted));
    report.check(
        "server's pool in use, before and after",
        format_args!("{}, {}", mib(from.memory), mib(to.memory)),
        from.memory == to.memory,
    );
    report.check(
        "server's connections, before and after",
        format_args!("{}, {}", from.connections, to.connections),
        from.connections == to.connections,
    );
    report.check(
        "server's descriptors, before and after",
        format_args!("{}, {}", before.1, after.1),
        before.1 == after.1,
    );
    for (whose, warm, hot) in [("server", warm.0, hot.0), ("clients and proxy", warm.1, hot.1)] {
        report.check(
            &format!("{whose}: resident, after a tenth and at the end"),
            format_args!("{}, {}", mib(warm.resident), mib(hot.resident)),
            hot.resident <= warm.resident + NOISE && hot.resident <= RESIDENT,
        );
    }
    watcher.client.close().await;
    server.stop().await?;
    Ok(report.end())
}

/// Makes calls one after the other until all are done; returns its counter and the number of ADDs.
async fn task(caller: Caller, counter: u32, count: u64, done: Arc<Done>) -> Result<(u32, u32), Failure> {
    let mut added = 0;
    while done.total.fetch_add(1, Ordering::Relaxed) < count {
        let (kind, offset, share) = {
            let mut random = rand::rng();
            (random.random_range(0..1000), random.random_range(0..OFFSETS), random.random_range(0.0..1.0_f64))
        };
        // Lengths from 0 on, short ones more often than long ones.
        let length = |most: u32| rounded(share * share * f64::from(most));
        let (form, bytes) = match kind {
            0..400 => {
                caller.null().await?;
                (&done.null, 0)
            }
            400..650 => {
                let length = length(1000);
                caller.echo(offset, length).await?;
                (&done.small, 2 * length)
            }
            650..700 => {
                let length = 4096 + length(60_000);
                caller.echo(offset, length).await?;
                (&done.long, 2 * length)
            }
            700..790 => {
                let length = length(65_536);
                caller.put(offset, length).await?;
                (&done.put, length)
            }
            790..880 => {
                let length = length(65_536);
                caller.get(offset, length).await?;
                (&done.get, length)
            }
            880..885 => {
                caller.put(offset, MAX).await?;
                (&done.put, MAX)
            }
            885..890 => {
                caller.get(offset, MAX).await?;
                (&done.get, MAX)
            }
            _ => {
                added += 1;
                let value = caller.add(counter).await?;
                if value != added {
                    return Err(format!("ADD was done {value} times, called {added} times").into());
                }
                (&done.add, 0)
            }
        };
        form.fetch_add(1, Ordering::Relaxed);
        done.bytes.fetch_add(u64::try_from(bytes)?, Ordering::Relaxed);
    }
    Ok((counter, added))
}

/// Converts a computed length.
fn rounded(length: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to MAX")]
    let length = length as usize;
    length.min(MAX)
}

/// Cuts a connection from time to time.
async fn cut(proxy: Arc<Proxy>, done: Arc<Done>, calls_per_cut: u64) {
    let mut next = 0;
    loop {
        sleep(Duration::from_millis(1)).await;
        if done.total.load(Ordering::Relaxed) >= next {
            if next > 0 {
                proxy.cut_one();
            }
            let pause = rand::rng().random_range(0..=2 * calls_per_cut);
            next = done.total.load(Ordering::Relaxed) + pause.max(1);
        }
    }
}

/// Returns the server's state when at most `connections` are left, and its descriptors.
async fn at_rest(watcher: &Caller, server: &Process, connections: u32) -> Result<(State, usize), Failure> {
    let deadline = Instant::now() + REST;
    loop {
        let state = (watcher.state().await?, server.usage()?.descriptors);
        if state.0.connections <= connections || Instant::now() > deadline {
            return Ok(state);
        }
        sleep(Duration::from_millis(50)).await;
    }
}
