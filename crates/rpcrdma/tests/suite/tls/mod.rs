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
use rpcrdma::{
    AttemptError, Client, ClientConfig, ConnectError, Server, ServerConfig, ServerMonitor, Transport, verbs,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{TestProgram, with};

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
    serve_with(crate::support::program(), with(ServerConfig::default(), |config| config.tls = Some(tls)))
        .await
}

fn quick(tls: Option<TlsClient>) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.tls = tls;
    config.protocol.timeouts.call = Duration::from_secs(20);
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    config.protocol.program = Some((crate::support::PROGRAM, crate::support::VERSION));
    config
}

async fn connect(address: SocketAddr, tls: TlsClient) -> Result<Client, ConnectError> {
    Client::builder().config(quick(Some(tls))).transport(Transport::tcp()).connect(address).await
}

/// Returns why no connection is had.
async fn refusal(address: SocketAddr, tls: TlsClient) -> String {
    let error = connect(address, tls).await.err().expect("connected");
    let [attempt] = error.attempts() else { panic!("{error}") };
    let refused =
        matches!(attempt.error, AttemptError::Tls(_) | AttemptError::Link(verbs::ConnectError::Protocol(_)));
    assert!(refused, "{error}");
    error.to_string()
}
