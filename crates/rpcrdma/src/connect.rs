//! How a client gets its first connection: the addresses of an endpoint in turn, within one time limit.
//!
//! *Errors.* [`ConnectError`] names the endpoint, and each address with the reason why it did not serve.

mod error;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_oncrpc::TransportKind;
use rpcrdma_verbs::Connector;
use tokio::time::{Instant, timeout_at};

pub use self::error::{Attempt, AttemptError, ConfigError, ConnectError};
use crate::endpoint::Endpoint;

/// The transport of a client's connections. The default is [`rdma`](Self::rdma).
#[derive(Clone)]
pub struct Transport(pub(crate) Way);

/// A way to open connections.
#[derive(Clone)]
pub(crate) enum Way {
    Rdma(Arc<dyn Connector>),
    Tcp,
}

impl Transport {
    /// Returns RPC-over-RDMA on software iWARP, which needs no adapter.
    #[must_use]
    pub fn rdma() -> Self {
        Self::rdma_on(Arc::new(IwarpConnector::default()))
    }

    /// Returns RPC-over-RDMA on the connections of this provider.
    #[must_use]
    pub fn rdma_on(connector: Arc<dyn Connector>) -> Self {
        Self(Way::Rdma(connector))
    }

    /// Returns TCP with record marking (RFC 5531 §11).
    #[must_use]
    pub const fn tcp() -> Self {
        Self(Way::Tcp)
    }

    /// Returns which transport this is, without its provider.
    #[must_use]
    pub const fn kind(&self) -> TransportKind {
        match self.0 {
            Way::Rdma(_) => TransportKind::Rdma,
            Way::Tcp => TransportKind::Tcp,
        }
    }

    /// Returns the port of endpoints without one.
    const fn default_port(&self) -> u16 {
        match self.0 {
            Way::Rdma(_) => Endpoint::RDMA_PORT,
            Way::Tcp => Endpoint::TCP_PORT,
        }
    }
}

impl Default for Transport {
    fn default() -> Self {
        Self::rdma()
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Transport").field(&self.kind()).finish()
    }
}

/// Opens a connection to the first address of an endpoint that takes one; returns the address too.
///
/// Lookup and attempts have `limit` together. An attempt gets an equal part of the time left, so an address that does
/// not answer leaves time for the others.
pub(crate) async fn first<T, F>(
    endpoint: &Endpoint,
    transport: &Transport,
    limit: Duration,
    open: impl Fn(SocketAddr, Duration) -> F,
) -> Result<(SocketAddr, T), ConnectError>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    endpoint.check().map_err(|error| ConnectError::Endpoint { endpoint: endpoint.clone(), error })?;
    let deadline = deadline(limit);
    let addresses = match timeout_at(deadline, endpoint.addresses(transport.default_port())).await {
        Ok(found) => found,
        Err(_) => {
            let words = format!("no answer within {limit:?}");
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, words))
        }
    };
    let addresses = addresses.map_err(|error| ConnectError::Lookup { endpoint: endpoint.clone(), error })?;
    let mut attempts = Vec::new();
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let time = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        match open(address, time).await {
            Ok(connection) => return Ok((address, connection)),
            Err(error) => {
                tracing::debug!(%address, %error, "this address takes no connection");
                attempts.push(Attempt { address, error });
            }
        }
        left = left.saturating_sub(1);
    }
    Err(ConnectError::Unreachable { endpoint: endpoint.clone(), transport: transport.kind(), attempts })
}

/// Returns the end of this time from now on. A time beyond the clock's end is one without end.
fn deadline(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + Duration::from_secs(u32::MAX.into()))
}

#[cfg(test)]
mod tests;
