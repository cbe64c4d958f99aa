//! READs at random places of one file, or NULL calls, with a number of them in flight.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rpcrdma::tls::{Anchors, TlsClient};
use rpcrdma_nfs::client::{Client, ClientOptions, File};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Failure;
use crate::connect::{Flavor, Proto, connect};

/// Memory for messages and data, in bytes.
const MEMORY: usize = 64 << 20;
/// Beginning that does not count.
const WARM_UP: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Address of the server
    #[arg(value_name = "ADDR:PORT")]
    server: SocketAddr,
    /// Path of the file, at least as long as one READ
    path: String,
    /// Transport of the calls
    #[arg(long, value_enum, default_value_t = Proto::Rdma)]
    proto: Proto,
    /// TCP port of the MOUNT service, if the server has none on its port for NFS
    #[arg(long, value_name = "PORT")]
    mountport: Option<u16>,
    /// READs in flight, 1 to 1024
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Bytes of each READ, 1 to 1 MiB
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    size: u32,
    /// Make NULL calls instead of READs
    #[arg(long)]
    null: bool,
    /// Security flavour of the READs. Those of Kerberos take the user's ticket
    #[arg(long, value_enum, default_value_t = Flavor::Sys)]
    sec: Flavor,
    /// Name of the server in its Kerberos principal, nfs/NAME [default: its address]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Authority, a PEM file, for TLS with the server's address. Only over TCP
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Seconds of the measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

pub(crate) async fn run(options: Options) -> Result<Value, Failure> {
    let Options { server, path, proto, mountport, depth, size, null, sec, server_name, tls_ca, seconds } =
        options;
    let time = Duration::try_from_secs_f64(seconds)?;
    let tls = match tls_ca {
        Some(file) => Some(TlsClient::new(&server.ip().to_string(), &Anchors::from_file(file)?, None)?),
        None => None,
    };
    let rpc = connect(proto, server, MEMORY, tls).await?;
    let mut mount = ClientOptions::default();
    mount.mount_port = mountport;
    mount.gss = sec.user(&server_name.unwrap_or_else(|| server.ip().to_string()))?;
    let (client, rest) = Client::mount_containing(&rpc, &path, mount).await?;
    let file = client.open(rest).await?;
    let places = file.len().await? / u64::from(size);
    if places == 0 {
        return Err(format!("{path} is shorter than {size} bytes").into());
    }
    let begin = Instant::now() + WARM_UP;
    let end = begin + time;
    let mut readers = JoinSet::new();
    for number in 0..depth {
        let own = (!null).then(|| (file.clone(), Places::new(number, places), size));
        readers.spawn(caller(client.clone(), own, begin, end));
    }
    let (mut calls, mut all) = (0_u64, 0_u64);
    while let Some(counted) = readers.join_next().await {
        let (counted, made) = counted??;
        calls += counted;
        all += made;
    }
    let elapsed = begin.elapsed().as_secs_f64();
    // More calls than an f64 holds exactly take years.
    #[allow(clippy::cast_precision_loss, reason = "see above")]
    let rate = calls as f64 / elapsed;
    rpc.close().await;
    Ok(json!({ "calls": calls, "all_calls": all, "seconds": elapsed, "calls_per_second": rate }))
}

/// Calls until the end: READs of so many bytes, or NULL without a file. Returns the calls that ended after the beginning, and
/// all.
async fn caller(
    client: Client,
    mut file: Option<(File, Places, u32)>,
    begin: Instant,
    end: Instant,
) -> Result<(u64, u64), Failure> {
    let (mut calls, mut all) = (0, 0);
    loop {
        match &mut file {
            Some((file, places, size)) => {
                let offset = places.next() * u64::from(*size);
                let data = file.read_at(offset, *size).await?;
                if u32::try_from(data.len()) != Ok(*size) {
                    return Err(format!("{} bytes read at {offset}, {size} expected", data.len()).into());
                }
            }
            None => client.procedures().null().await?,
        }
        let now = Instant::now();
        all += 1;
        if now >= end {
            return Ok((calls, all));
        }
        calls += u64::from(now >= begin);
    }
}

/// Places in a file, in an order without a pattern that is the same in each run (SplitMix64).
struct Places {
    state: u64,
    count: u64,
}

impl Places {
    fn new(number: u32, count: u64) -> Self {
        Self { state: u64::from(number) << 32, count }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_file_and_reach_all_of_it() {
        let mut places = Places::new(7, 16);
        let mut seen = [0; 16];
        for _ in 0..1600 {
            seen[usize::try_from(places.next()).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
    }

    #[test]
    fn readers_go_to_different_places() {
        let first = |number| Places::new(number, 1 << 40).next();
        assert_ne!(first(0), first(1));
        assert_eq!(first(1), first(1));
    }
}
