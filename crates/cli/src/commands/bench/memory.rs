//! Memory of a server with many idle connections: the resident memory of a process of its own, before and
//! after.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rpcrdma_nfs::wire::{NFS_PROGRAM, NFS_VERSION};
use serde::Deserialize;

use super::{Ends, failed, no_connection};
use crate::exit::Failure;

/// Connections to open.
pub(super) const CONNECTIONS: u32 = 200;
/// Credits of each connection, and longest message in bytes: the defaults of `rpcrdma serve`.
const CREDITS: u32 = 64;
const INLINE: u32 = 4096;
/// Time for the server to come to rest.
const REST: Duration = Duration::from_millis(500);

/// Server process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Deserialize)]
struct Ready {
    rdma: SocketAddr,
}

/// Returns the growth of the server's resident memory, and its bound, both in bytes.
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

    // The first connection allocates the state that all connections share.
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

/// Opens a connection and makes a call on it.
async fn open(to: SocketAddr) -> Result<rpcrdma::Client, Failure> {
    let mut config = rpcrdma::ClientConfig::default();
    config.memory = 1 << 20;
    let connector = Ends::default().connector(to).await?;
    let client = rpcrdma::Client::builder()
        .config(config)
        .transport(rpcrdma::Transport::rdma_on(connector))
        .connect(to)
        .await
        .map_err(no_connection)?;
    client.null(NFS_PROGRAM, NFS_VERSION).await.map_err(failed("call NULL"))?;
    Ok(client)
}

/// Returns the resident memory of a process in bytes.
fn resident(id: u32) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).map_err(failed("read /proc"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<u32>().ok())
        .ok_or_else(|| Failure::failed("/proc does not show the memory of a process"))?;
    Ok(f64::from(kib) * 1024.0)
}
