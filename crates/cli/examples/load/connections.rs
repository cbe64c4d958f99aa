//! Many connections to a server at a time, each with calls.
//!
//! A server counts all loopback addresses as one client, and gives one client a part of its connections. So the
//! connections go to several addresses of this machine in turn. A connection to an address of its own machine
//! comes from that address.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use rpcrdma_nfs::client::{Client, ClientOptions, Procedures};
use rpcrdma_nfs::wire::{DirOpArgs, FileHandle, FileName, GetattrArgs, LookupArgs, ReadArgs};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Failure;
use crate::connect::{Proto, connect};
use crate::memory::Resident;

/// Memory of a client, in bytes: its Receives with the default credits, and the data of its calls.
const MEMORY: usize = 1 << 20;
/// Connections that are made at a time: fewer than a server has in set-up by default, which is 64, or 32 from one address.
const AT_ONCE: usize = 16;
/// Bytes of a READ.
const READ: u32 = 16 << 10;
/// Calls of a connection in one round: NULL, GETATTR, LOOKUP and READ.
const CALLS: usize = 4;
/// Time for the server to come to rest.
const REST: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Addresses of the server, on which the connections are made in turn
    #[arg(value_name = "ADDR:PORT", required = true)]
    servers: Vec<SocketAddr>,
    /// Connections
    #[arg(long, default_value_t = 5000)]
    count: usize,
    /// Rounds of calls: in each, every connection makes four calls at the same time
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Name of a file of 16 KiB or more in the root of the export /
    #[arg(long, default_value = "file")]
    file: String,
    /// Process number of the server, on this machine: the document then has its memory
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
}

/// A connection with a mounted export.
struct Caller {
    rpc: rpcrdma::Client,
    procedures: Procedures,
    root: FileHandle,
}

/// Results of many connections, or of their calls.
struct Outcome<T> {
    good: Vec<T>,
    /// Reason of the first failure.
    reason: Option<String>,
}

impl<T> Outcome<T> {
    const fn new() -> Self {
        Self { good: Vec::new(), reason: None }
    }

    fn add(&mut self, result: Result<T, Failure>) {
        match result {
            Ok(value) => self.good.push(value),
            Err(error) => drop(self.reason.get_or_insert(error.to_string())),
        }
    }
}

pub(crate) async fn run(options: Options) -> Result<Value, Failure> {
    let memory = || options.process.map(Resident::of).transpose();
    // The first connection of a server allocates what all share.
    let first = options.servers.first().ok_or("no address")?;
    open(*first).await?.rpc.close().await;
    tokio::time::sleep(REST).await;
    let empty = memory()?;
    let started = Instant::now();
    let opened = open_all(&options).await?;
    let opening = started.elapsed();
    tokio::time::sleep(REST).await;
    let idle = memory()?;
    let connected = opened.good.len();
    let started = Instant::now();
    let called = call_all(opened.good, &options).await?;
    let calling = started.elapsed();
    let used = memory()?;
    let answered = called.good.len();
    let each = |from: Option<Resident>, to: Option<Resident>| -> Option<u64> {
        let grown = to?.now.saturating_sub(from?.now);
        grown.checked_div(u64::try_from(connected).ok()?)
    };
    let document = json!({
        "asked": options.count,
        "connected": connected,
        "answered": answered,
        "connecting_seconds": opening.as_secs_f64(),
        "calls": answered * CALLS * usize::try_from(options.rounds)?,
        "calling_seconds": calling.as_secs_f64(),
        "refused_because": opened.reason,
        "unanswered_because": called.reason,
        "server_idle_bytes_each": each(empty, idle),
        "server_used_bytes_each": each(empty, used),
        "server_most_bytes": used.map(|used| used.highest),
    });
    for caller in called.good {
        caller.rpc.close().await;
    }
    Ok(document)
}

/// Opens all connections, some at a time.
async fn open_all(options: &Options) -> Result<Outcome<Caller>, Failure> {
    let mut outcome = Outcome::new();
    let mut opening = JoinSet::new();
    for server in options.servers.iter().cycle().take(options.count) {
        if opening.len() == AT_ONCE
            && let Some(opened) = opening.join_next().await
        {
            outcome.add(opened?);
        }
        opening.spawn(open(*server));
    }
    while let Some(opened) = opening.join_next().await {
        outcome.add(opened?);
    }
    Ok(outcome)
}

async fn open(server: SocketAddr) -> Result<Caller, Failure> {
    let rpc = connect(Proto::Rdma, server, MEMORY, None).await?;
    let client = Client::mount(&rpc, "/", ClientOptions::default()).await?;
    Ok(Caller { rpc, procedures: client.procedures().clone(), root: client.root() })
}

/// Calls on all connections at the same time.
async fn call_all(callers: Vec<Caller>, options: &Options) -> Result<Outcome<Caller>, Failure> {
    let mut calling = JoinSet::new();
    for caller in callers {
        calling.spawn(calls(caller, options.file.clone(), options.rounds));
    }
    let mut outcome = Outcome::new();
    while let Some(called) = calling.join_next().await {
        outcome.add(called?);
    }
    Ok(outcome)
}

/// Makes the calls of a connection. Returns it if all were answered on it.
async fn calls(caller: Caller, file: String, rounds: u32) -> Result<Caller, Failure> {
    let Caller { rpc, procedures, root } = &caller;
    let name = FileName::from(file.as_str());
    let lookup = LookupArgs { what: DirOpArgs { dir: *root, name } };
    let file = procedures.lookup(&lookup).await?.object;
    let getattr = GetattrArgs { object: *root };
    let read = ReadArgs { file, offset: 0, count: READ };
    for _ in 0..rounds {
        let (_, _, _, data) = tokio::try_join!(
            procedures.null(),
            procedures.getattr(&getattr),
            procedures.lookup(&lookup),
            procedures.read(&read),
        )?;
        if data.count != READ {
            return Err(format!("READ returned {} bytes, {READ} expected", data.count).into());
        }
    }
    let made = rpc.stats().connections;
    if made != 1 {
        return Err(format!("it took {made} connections").into());
    }
    Ok(caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_kept() {
        let mut outcome = Outcome::new();
        outcome.add(Ok(1));
        assert_eq!((outcome.good.len(), outcome.reason.as_deref()), (1, None));
        outcome.add(Err("first".into()));
        outcome.add(Err("second".into()));
        assert_eq!((outcome.good.len(), outcome.reason.as_deref()), (1, Some("first")));
    }
}
