//! Memory of a server with many idle connections: a server in a process of its own, its resident memory before and after.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_nfs::wire::{NFS_PROGRAM, NFS_VERSION};
use serde::Deserialize;

use super::failed;
use crate::exit::Failure;

/// Connections that are opened.
pub(super) const CONNECTIONS: u32 = 200;
/// What each of them may have in flight, and how long messages are, in bytes: the defaults of `rpcrdma serve`.
const CREDITS: u32 = 64;
const INLINE: u32 = 4096;
/// For the server to come to rest.
const REST: Duration = Duration::from_millis(500);

/// A server that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Deserialize)]
struct Ready {
    rdma: SocketAddr,
}

/// Growth of the server's resident memory, and the bound on it, both in bytes.
pub(super) async fn measure(directory: &Path, state: &Path) -> Result<(f64, f64), Failure> {
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let child = Command::new(program)
        .args(["serve", "--json", "--no-tcp", "--listen", "127.0.0.1:0", "--state"])
        .args([state, directory])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("start a server"))?;
    let mut process = Process(child);
    let stdout = process.0.stdout.take().ok_or_else(|| Failure::failed("the server has no output"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).map_err(failed("read from the server"))?;
    let ready: Ready = serde_json::from_str(&line).map_err(failed("understand the server"))?;
    let id = process.0.id();

    // The first connection makes what all share.
    let mut clients = vec![open(ready.rdma).await?];
    tokio::time::sleep(REST).await;
    let before = resident(id)?;
    for _ in 0..CONNECTIONS {
        clients.push(open(ready.rdma).await?);
    }
    tokio::time::sleep(REST).await;
    let after = resident(id)?;
    let bound = f64::from(CONNECTIONS) * f64::from(CREDITS) * f64::from(INLINE);
    Ok(((after - before).max(0.0), bound))
}

/// A connection that was used once.
async fn open(to: SocketAddr) -> Result<rpcrdma::Client, Failure> {
    let config = rpcrdma::ClientConfig { memory: 1 << 20, ..rpcrdma::ClientConfig::default() };
    let client = rpcrdma::Client::rdma(Arc::new(IwarpConnector::default()), to, config)
        .await
        .map_err(failed("connect"))?;
    client.null(NFS_PROGRAM, NFS_VERSION).await.map_err(failed("call NULL"))?;
    Ok(client)
}

/// Resident memory of a process in bytes.
fn resident(id: u32) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).map_err(failed("read /proc"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<u32>().ok())
        .ok_or_else(|| Failure::failed("/proc does not tell the memory of a process"))?;
    Ok(f64::from(kib) * 1024.0)
}
