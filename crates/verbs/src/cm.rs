//! Connection set-up, in the role of librdmacm.
//!
//! All traits are object safe, so that the layers above are not generic over the provider.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use thiserror::Error;

use crate::{Capabilities, ProtectionDomain, QueuePair};

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Private data for the peer. It may depend on the queue pair's abilities, which only the provider knows during set-up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnPrivateData {
    able: Bytes,
    unable: Bytes,
}

impl OwnPrivateData {
    /// Returns `able` for queue pairs that can send and receive Send with Invalidate, and `unable` for others (RFC 8797
    /// §4.1: the flag R).
    #[must_use]
    pub const fn by_invalidation(able: Bytes, unable: Bytes) -> Self {
        Self { able, unable }
    }

    /// Returns the private data that a queue pair with these capabilities states.
    #[must_use]
    pub const fn stated_by(&self, capabilities: &Capabilities) -> &Bytes {
        if capabilities.remote_invalidation { &self.able } else { &self.unable }
    }

    /// Returns the length of the longest private data that this can be, in bytes.
    #[must_use]
    pub fn max_len(&self) -> usize {
        self.able.len().max(self.unable.len())
    }
}

/// The same private data for every queue pair.
impl From<Bytes> for OwnPrivateData {
    fn from(private_data: Bytes) -> Self {
        Self { able: private_data.clone(), unable: private_data }
    }
}

/// The parameters that each side states when a connection is set up.
#[derive(Debug, Clone)]
pub struct ConnectParameters {
    /// Private data for the peer (RFC 8797 for RPC-over-RDMA).
    pub private_data: OwnPrivateData,
    /// RDMA Reads that the peer may have outstanding at this side.
    pub ird: u16,
    /// RDMA Reads that this side wants to have outstanding at the peer.
    pub ord: u16,
    /// Work requests that the send queue must hold.
    pub max_send_wr: usize,
    /// Receives that the receive queue must hold.
    pub max_recv_wr: usize,
    /// The source of the connection's Buffers.
    pub domain: ProtectionDomain,
}

/// A provider's way to open connections.
pub trait Connector: Send + Sync {
    /// Connects to a listener. The future may be dropped at any point.
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>>;
}

/// A provider's way to accept connections.
pub trait Listener: Send {
    /// Waits for the next connection attempt. Cancel safe. An error concerns one attempt unless the listener itself is
    /// gone; callers log it and go on after a pause.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>>;

    /// Returns the name of the provider, for logs and reports: one word, such as "iwarp".
    fn provider(&self) -> &'static str {
        "rdma"
    }

    /// Returns the address on which the listener listens.
    ///
    /// # Errors
    /// Errors of the socket below.
    fn local_address(&self) -> io::Result<SocketAddr>;
}

/// The ends of an accepted TCP connection, for questions to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEnds {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub peer: SocketAddr,
    /// Inode of our socket (`st_ino` of `fstat`). The addresses may belong to a later connection by now; the inode does
    /// not.
    pub inode: u64,
}

/// A connection attempt of which only the origin is known.
pub trait Incoming: Send {
    /// Returns the peer's address.
    fn peer_address(&self) -> Option<SocketAddr>;

    /// Returns the ends of the link if it is a TCP connection in this machine's kernel, which then knows the owner of
    /// the other end. `None` for adapters.
    ///
    /// # Errors
    /// The kernel carries the link but does not report its ends, so the owner of the other end cannot be known.
    fn tcp_ends(&self) -> io::Result<Option<TcpEnds>> {
        Ok(None)
    }

    /// Waits, for a limited time, for the peer's connection request. Must run in a task of its own: a silent peer must
    /// not hold up others.
    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>>;
}

/// A connection attempt that waits for our answer (`RDMA_CM_EVENT_CONNECT_REQUEST`).
pub trait ConnectionRequest: Send {
    /// Returns the peer's private data.
    fn private_data(&self) -> &Bytes;

    /// Returns the peer's address.
    fn peer_address(&self) -> Option<SocketAddr>;

    /// Accepts the connection. Receives posted before the first [`QueuePair::poll`] are in time for the peer's first
    /// message. The answer may leave only with that poll: the peer is not connected before it.
    fn accept(
        self: Box<Self>,
        parameters: ConnectParameters,
    ) -> BoxFuture<'static, Result<Box<dyn QueuePair>, ConnectError>>;

    /// Refuses the connection, with private data for the peer.
    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), ConnectError>>;
}

/// The reason why a connection was not set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The link could not be opened.
    #[error("cannot connect: {0}")]
    Io(#[from] io::Error),
    /// The peer rejected the connection.
    #[error("the peer rejected the connection: {0}")]
    Rejected(RejectReason),
    /// The peer does not speak the protocol as required.
    #[error("connection set-up failed: {0}")]
    Protocol(String),
    /// The peer did not answer in time.
    #[error("timeout during connection set-up: {0}")]
    Timeout(&'static str),
    /// The requested parameters are impossible.
    #[error("invalid connection parameters: {0}")]
    Invalid(String),
}

/// The data of a rejection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} bytes of private data", private_data.len())]
pub struct RejectReason {
    /// Private data of the rejecting peer.
    pub private_data: Bytes,
}
