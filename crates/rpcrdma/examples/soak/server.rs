//! The server, in a process of its own, and its handle for the other tasks.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use clap::Args;
use rpcrdma::{Client, ClientConfig, Server, ServerConfig};
use rpcrdma_iwarp::{Config, IwarpListener};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Failure;
use crate::program::{Caller, Service, soak};
use crate::system::{Usage, usage};

/// Credits that each connection has in any case, as with `rpcrdma serve`.
const LEAST_CREDITS: u32 = 2;

/// Settings of the server.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Connections at a time
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Credits of each connection
    #[arg(long, default_value_t = 64)]
    credits: u32,
    /// Memory for messages and payloads, in bytes
    #[arg(long, default_value_t = 512 << 20)]
    memory: usize,
}

impl Options {
    pub(crate) const fn new(connections: usize, credits: u32, memory: usize) -> Self {
        Self { connections, credits, memory }
    }
}

/// Serves until standard input ends.
pub(crate) async fn serve(options: Options) -> Result<(), Failure> {
    let mut config = ServerConfig::default();
    config.memory = options.memory;
    // All clients have one address.
    config.memory_per_peer = Some(options.memory);
    config.max_connections = options.connections;
    config.max_connections_per_peer = options.connections;
    // Half of them are for one address.
    config.max_half_open = 2 * options.connections;
    config.least_credits = Some(LEAST_CREDITS);
    config.max_reverse_calls = 0;
    config.protocol.grant = options.credits;
    let shares = config.shares();
    let service = Arc::new(Service::new(shares.clone()));
    let listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), Config::default()).await?;
    let server = Server::builder()
        .config(config)
        .shares(shares)
        .program(Arc::new(soak::serve(Arc::clone(&service))))
        .listen_rdma(Box::new(listener))
        .build()?;
    service.watch(server.monitor());
    println!("{}", server.rdma_addresses()?.first().ok_or("no address")?);
    let mut end = Vec::new();
    server
        .serve(async {
            // However the input ends, the process that started the server is gone.
            let _ = tokio::io::stdin().read_to_end(&mut end).await;
        })
        .await?;
    Ok(())
}

/// A server process; it ends when this value is dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) async fn start(options: Options) -> Result<Self, Failure> {
        let Options { connections, credits, memory } = options;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--connections", &connections.to_string()])
            .args(["--credits", &credits.to_string(), "--memory", &memory.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.ok_or("the server did not start")?;
        Ok(Self { child, address: line.parse()? })
    }

    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        usage(self.child.id().ok_or("the server has ended")?)
    }

    /// Stops the process in order.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("the server ended: {status}").into()) }
    }
}

/// Creates a client of the server at this address.
pub(crate) async fn caller(
    address: SocketAddr,
    memory: usize,
    calls: u32,
    block: &bytes::Bytes,
) -> Result<Caller, Failure> {
    let mut config = ClientConfig::default();
    config.memory = memory;
    config.protocol.calls = calls;
    config.protocol.timeouts.reconnect_least = std::time::Duration::from_millis(1);
    let client = Client::builder().config(config).connect(address).await?;
    Ok(Caller { client, block: block.clone() })
}
