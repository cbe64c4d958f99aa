//! A server and a client on the simulated fabric, both of which serve the programs of the tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::{Backchannel, Client, ClientConfig, Server, ServerConfig, ServerMonitor, Transport, Versions};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig, Outstanding};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::bounce::Bounce;
use crate::support::{TestProgram, program};

pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
pub const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
pub const MIB: usize = 1 << 20;
pub const MODES: [CompletionMode; 2] = [CompletionMode::Local, CompletionMode::Acknowledged];

pub struct World {
    pub fabric: Fabric,
    pub monitor: ServerMonitor,
    /// The server's program.
    pub at_server: Arc<TestProgram>,
    /// The client's program.
    pub at_client: Arc<TestProgram>,
    /// The server's second program.
    pub bounce: Arc<Bounce>,
    pub client: Client,
    pub stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<()>,
}

impl World {
    pub async fn new() -> Self {
        Self::with(CompletionMode::Local, ClientConfig::default(), ServerConfig::default()).await
    }

    pub async fn with(mode: CompletionMode, client: ClientConfig, mut server: ServerConfig) -> Self {
        // The server may call without waiting for anything: RFC 8167 is about Version One.
        server.protocol.versions = Versions::ONE;
        let config = FabricConfig { completion_mode: mode, seed: 1, ..FabricConfig::default() };
        let fabric = Fabric::on_tokio(config);
        let (at_server, at_client, bounce) = (program(), program(), Arc::new(Bounce::default()));
        let listener = fabric.listen(SERVER).unwrap();
        let server = Server::builder()
            .config(server)
            .program(Arc::clone(&at_server) as _)
            .program(Arc::clone(&bounce) as _)
            .listen_rdma(Box::new(listener))
            .build()
            .unwrap();
        let monitor = server.monitor();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            server.serve(async { drop(stopped.await) }).await.unwrap();
        });
        // The server's task must begin to listen first.
        tokio::task::yield_now().await;
        let client = Client::builder()
            .config(client)
            .program(Arc::clone(&at_client) as _)
            .program(Arc::new(Bounce::default()))
            .transport(Transport::rdma_on(Arc::new(fabric.connector(HOST))))
            .connect(SERVER)
            .await
            .unwrap();
        let world = Self { fabric, monitor, at_server, at_client, bounce, client, stop: Some(stop), task };
        while world.monitor.backchannels().is_empty() {
            tokio::task::yield_now().await;
        }
        world
    }

    /// Returns the server's backchannel to the client.
    pub fn back(&self) -> Backchannel {
        let mut open = self.monitor.backchannels();
        assert_eq!(open.len(), 1);
        open.pop().unwrap()
    }

    /// Ends the present connection.
    pub fn cut(&self) {
        self.fabric.cut(*self.fabric.connections().last().unwrap());
    }

    /// Closes the client and stops the server; checks that neither holds memory.
    pub async fn end(mut self) {
        self.client.close().await;
        assert_eq!(self.client.stats().memory_in_use, 0, "memory of the client");
        self.stop.take().unwrap().send(()).unwrap();
        timeout(Duration::from_secs(60), self.task).await.unwrap().unwrap();
        let stats = self.monitor.stats();
        assert_eq!((stats.connections, stats.memory_in_use), (0, 0), "memory of the server");
        assert!(self.monitor.backchannels().is_empty());
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
    }
}

/// Returns configurations with these credits: of the server's calls at the client, of the client's at the server.
pub fn credits(reverse: u32, forward: u32) -> (ClientConfig, ServerConfig) {
    let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
    client.protocol.grant = reverse;
    server.protocol.grant = forward;
    (client, server)
}
