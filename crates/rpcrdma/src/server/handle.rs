//! [`ServerHandle`]: a server that serves in a task of its own.
//!
//! *Errors.* [`ServeError`] of the server, and [`ServeError::Interrupted`] if its runtime ends first.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{ServeError, Server, ServerMonitor};

/// A server that serves in a task of its own ([`Server::spawn`]).
///
/// Dropping the handle stops the server in order, as [`shutdown`](Self::shutdown) does, but waits for nothing. The task
/// goes on until the calls in progress are answered, or the runtime ends.
///
/// ```
/// use rpcrdma::Server;
/// use tokio::net::TcpListener;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let server = Server::builder().listen_tcp(listener).build()?.spawn();
/// println!("serving on {:?}", server.tcp_addresses()?);
/// server.shutdown().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ServerHandle {
    monitor: ServerMonitor,
    rdma: io::Result<Vec<SocketAddr>>,
    tcp: io::Result<Vec<SocketAddr>>,
    /// Dropped to stop the server.
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
    /// The end of the task, once known.
    ended: Option<Result<(), ServeError>>,
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rdma, tcp, ended, .. } = self;
        f.debug_struct("ServerHandle")
            .field("rdma", rdma)
            .field("tcp", tcp)
            .field("ended", ended)
            .finish_non_exhaustive()
    }
}

impl ServerHandle {
    pub(super) fn new(server: Server) -> Self {
        let (rdma, tcp) = (server.rdma_addresses(), server.tcp_addresses());
        let monitor = server.monitor();
        let (stop, stopped) = oneshot::channel::<()>();
        // An error means that the handle is gone, which stops the server, too.
        let serving = tokio::spawn(server.serve(async { drop(stopped.await) }));
        Self { monitor, rdma, tcp, stop: Some(stop), serving, ended: None }
    }

    /// Returns the server's counters and open connections.
    #[must_use]
    pub fn monitor(&self) -> ServerMonitor {
        self.monitor.clone()
    }

    /// Returns the addresses of the RDMA listeners, in the order in which they were given.
    ///
    /// # Errors
    /// Errors of the provider, when the server was spawned.
    pub fn rdma_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        told(&self.rdma)
    }

    /// Returns the addresses of the TCP listeners, in the order in which they were given.
    ///
    /// # Errors
    /// Errors of the socket, when the server was spawned.
    pub fn tcp_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        told(&self.tcp)
    }

    /// Begins to stop the server, as [`shutdown`](Self::shutdown) does, without waiting for the end.
    pub fn stop(&mut self) {
        self.stop = None;
    }

    /// Stops the server in order and waits for the end: see [`Server::serve`]. Calls in progress are answered, for at most
    /// [`grace`](crate::ServerConfig::grace). If this future is dropped, the server stops all the same.
    ///
    /// # Errors
    /// As [`ended`](Self::ended).
    pub async fn shutdown(mut self) -> Result<(), ServeError> {
        self.stop();
        self.ended().await
    }

    /// Waits until the server has stopped, for whatever reason. Does not stop it. Cancel safe; after the end the result stays.
    ///
    /// # Errors
    /// [`ServeError::ListenerEnded`], [`ServeError::Interrupted`].
    pub async fn ended(&mut self) -> Result<(), ServeError> {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let ended = (&mut self.serving).await.unwrap_or(Err(ServeError::Interrupted));
        self.ended.insert(ended).clone()
    }
}

/// Returns addresses as they were found out.
fn told(addresses: &io::Result<Vec<SocketAddr>>) -> io::Result<Vec<SocketAddr>> {
    match addresses {
        Ok(addresses) => Ok(addresses.clone()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}
