//! The wire tap: what was delivered, for tests that count messages.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::Key;

use crate::Side;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A Send; `key` is the invalidated one, if any.
    Send,
    /// One RDMA Write message: one for each target that got data.
    Write,
    /// One RDMA Read Request: one for each source.
    ReadRequest,
    /// The answer to one RDMA Read Request.
    ReadResponse,
    /// The report of an error that ends the connection.
    Terminate,
}

/// One message that was delivered completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Fabric time of the delivery.
    pub at: Duration,
    /// Which connection, in order of creation.
    pub connection: u64,
    /// Who sent it.
    pub from: Side,
    /// What it was.
    pub kind: MessageKind,
    /// Bytes of payload; of a Read Request, bytes asked for.
    pub length: usize,
    /// The key that it names.
    pub key: Option<Key>,
    /// The first address that it names.
    pub address: Option<u64>,
    /// The bytes of a Send; empty for every other kind.
    pub message: Bytes,
}
