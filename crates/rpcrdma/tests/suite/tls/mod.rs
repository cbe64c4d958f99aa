//! RPC-with-TLS (RFC 9289) on loopback, between clients and servers of this crate and hand-made peers.

mod calls;
mod certificates;
mod context;
mod hostile;
mod probe;
mod raw;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::tls::{TlsClient, TlsServer};
use rpcrdma::{Client, ClientConfig, Server, ServerConfig, ServerMonitor};
use rpcrdma_verbs::ConnectError;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::TestProgram;

/// A server that runs.
struct Running {
    address: SocketAddr,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// Stops the server in order.
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

async fn serve_with(program: Arc<TestProgram>, config: ServerConfig) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().config(config).program(program).listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let stopped = async {
            // Without its handle a server goes on until the test ends.
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        server.serve(stopped).await.unwrap();
    });
    Running { address, monitor, stop, task }
}

async fn serve(tls: TlsServer) -> Running {
    serve_with(crate::support::program(), ServerConfig { tls: Some(tls), ..ServerConfig::default() }).await
}

fn quick(tls: Option<TlsClient>) -> ClientConfig {
    let mut config = ClientConfig { tls, ..ClientConfig::default() };
    config.protocol.timeouts.call = Duration::from_secs(20);
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    config.protocol.program = Some((crate::support::PROGRAM, crate::support::VERSION));
    config
}

async fn connect(address: SocketAddr, tls: TlsClient) -> Result<Client, ConnectError> {
    Client::tcp(address, quick(Some(tls))).await
}

/// Returns why no connection is had.
async fn refusal(address: SocketAddr, tls: TlsClient) -> String {
    match connect(address, tls).await {
        Ok(_) => panic!("connected"),
        Err(error @ ConnectError::Protocol(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
    }
}
