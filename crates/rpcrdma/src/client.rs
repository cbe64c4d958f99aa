//! [`Client`]: calls RPC programs of one server over RDMA or TCP.
//!
//! A client is one connection at a time that is opened again when it is lost, and any number of calls in flight on it.
//! Cloning shares it; it closes when the last clone is gone.
//!
//! *Who owns which buffer.* A call's arguments and result sinks belong to the call until it ends; a DDP-eligible result is
//! handed out as a slice of its sink, without a copy.
//!
//! *What happens on error.* Every call ends with its reply or one [`CallError`] that says what is known about its
//! execution. Dropping a call's future abandons the answer, not the memory (rule I10).

use std::net::SocketAddr;
use std::sync::Arc;

use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_oncrpc::ReplyHeader;
use rpcrdma_proto::{Agreement, Stats};
use rpcrdma_verbs::{ConnectError, Connector, Counters, ProtectionDomain};
use rpcrdma_xdr::Decoder;
use tokio::time::Instant;

use crate::call::{Call, Reply, Transfer};
use crate::config::ClientConfig;
use crate::error::CallError;
use crate::rdma::client::RdmaClient;
use crate::tcp::client::TcpClient;

/// Calls RPC programs of one server; see the module's introduction. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    to: SocketAddr,
    link: Link,
}

enum Link {
    Rdma(RdmaClient),
    Tcp(TcpClient),
}

/// What a client did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// Calls made.
    pub calls: u64,
    /// Calls that got no reply in time.
    pub timed_out: u64,
    /// Calls sent again after a connection was lost.
    pub retransmissions: u64,
    /// Connections opened.
    pub connections: u64,
    /// Connections that agreed by CONF_RDMA ([`ccp`](crate::ccp)).
    pub agreed: u64,
    /// Connections whose server has no CONF_RDMA, or refused it.
    pub not_agreed: u64,
    /// Octets of the client's memory in use.
    pub memory_in_use: usize,
    /// Octets that were copied between the RDMA link and the memory of calls. Providers may copy what travels by Send; of
    /// payload in chunks nothing is.
    pub payload_bytes_copied: u64,
}

/// The counters of one RPC-over-RDMA connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Those of the protocol: messages by form, bytes by path, chunks, credits, errors.
    pub protocol: Stats,
    /// What was agreed by CONF_RDMA ([`ccp`](crate::ccp)), if anything.
    pub agreement: Option<Agreement>,
    /// Those of the provider.
    pub link: Counters,
}

impl Client {
    /// Opens an RPC-over-RDMA connection by this provider. Later connections of the client go the same way.
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection.
    pub async fn rdma(
        connector: Arc<dyn Connector>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, ConnectError> {
        let link = Link::Rdma(RdmaClient::connect(connector, to, config).await?);
        Ok(Self { inner: Arc::new(Inner { to, link }) })
    }

    /// Opens an RPC-over-RDMA connection by software iWARP, with the default configuration.
    ///
    /// # Errors
    /// As [`rdma`](Self::rdma).
    pub async fn connect_rdma(to: SocketAddr) -> Result<Self, ConnectError> {
        Self::rdma(Arc::new(IwarpConnector::default()), to, ClientConfig::default()).await
    }

    /// Opens a TCP connection with record marking (RFC 5531 §11).
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection.
    pub async fn tcp(to: SocketAddr, config: ClientConfig) -> Result<Self, ConnectError> {
        let link = Link::Tcp(TcpClient::connect(to, config).await?);
        Ok(Self { inner: Arc::new(Inner { to, link }) })
    }

    /// Makes a call and waits for its reply.
    ///
    /// The future may be dropped at any point: what was sent may then still be carried out.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] says what is known about the call's execution.
    pub async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let (program, version, procedure, name) = (call.program, call.version, call.procedure, call.name);
        let start = tracing::enabled!(target: "rpcrdma::call", tracing::Level::DEBUG).then(Instant::now);
        let result = match &self.inner.link {
            Link::Rdma(client) => client.call(call).await,
            Link::Tcp(client) => client.call(call).await,
        };
        let to = self.inner.to;
        let elapsed = start.map(|start| tracing::field::debug(start.elapsed()));
        match &result {
            Ok(reply) => tracing::debug!(
                target: "rpcrdma::call",
                %to, xid = reply.xid, program, version, procedure, name, elapsed, travelled = %reply.travelled
            ),
            Err(error) => tracing::debug!(
                target: "rpcrdma::call",
                %to, program, version, procedure, name, elapsed, %error
            ),
        }
        result
    }

    /// Calls procedure 0 of a program: it does nothing, so it shows that the server is there and how long a call takes.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn null(&self, program: u32, version: u32) -> Result<Transfer, CallError> {
        let reply = self.call(Call::new(program, version, 0).name("NULL")).await?;
        reply.results.finish()?;
        Ok(reply.travelled)
    }

    /// The server.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.inner.to
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        match &self.inner.link {
            Link::Rdma(client) => client.stats(),
            Link::Tcp(client) => client.stats(),
        }
    }

    /// The counters of the present RPC-over-RDMA connection; `None` over TCP, and while there is no connection.
    #[must_use]
    pub fn connection_stats(&self) -> Option<ConnectionStats> {
        match &self.inner.link {
            Link::Rdma(client) => client.connection_stats(),
            Link::Tcp(_) => None,
        }
    }

    /// Where this client's memory comes from: Buffers for arguments and results are best allocated here.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        match &self.inner.link {
            Link::Rdma(client) => client.domain(),
            Link::Tcp(client) => client.domain(),
        }
    }

    /// Refuses new calls, waits for those in progress (their timers bound that), then closes the connection in order.
    pub async fn close(&self) {
        match &self.inner.link {
            Link::Rdma(client) => client.close().await,
            Link::Tcp(client) => client.close().await,
        }
    }
}

/// Takes the RPC header off a reply.
pub(crate) fn open_reply(mut message: Decoder, travelled: Transfer) -> Result<Reply, CallError> {
    let header: ReplyHeader = message.decode()?;
    header.success()?;
    Ok(Reply { xid: header.xid, results: message, travelled })
}
