//! Connections to the server, with the settings of the command `rpcrdma`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use rpcrdma::{Client, ClientConfig};
use rpcrdma_iwarp::{Config, IwarpConnector, LargeFpdu};
use rpcrdma_verbs::ConnectError;

/// Time for a connection, and for each reply.
const LIMIT: Duration = Duration::from_secs(60);

/// Transport of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proto {
    /// RPC over RDMA, on software iWARP
    Rdma,
    /// RPC over TCP
    Tcp,
}

/// Opens a connection whose messages and data take at most `memory` bytes at a time.
pub(crate) async fn connect(proto: Proto, to: SocketAddr, memory: usize) -> Result<Client, ConnectError> {
    let mut config = ClientConfig { memory, ..ClientConfig::default() };
    config.protocol.timeouts.call = LIMIT;
    config.protocol.timeouts.connect = LIMIT;
    match proto {
        Proto::Rdma => {
            let mut iwarp = Config::default();
            iwarp.large_fpdu = LargeFpdu::Offered;
            Client::rdma(Arc::new(IwarpConnector::new(iwarp)), to, config).await
        }
        Proto::Tcp => Client::tcp(to, config).await,
    }
}
