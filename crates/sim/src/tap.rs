//! The wire tap: delivered messages, for tests that count them.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::Key;

use crate::Side;

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A Send; `key` is the invalidated key, if any.
    Send,
    /// An RDMA Write message: one for each target that got data.
    Write,
    /// An RDMA Read Request: one for each source.
    ReadRequest,
    /// The answer to one RDMA Read Request.
    ReadResponse,
    /// The report of an error that ends the connection.
    Terminate,
}

/// A message that was delivered completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Fabric time of the delivery.
    pub at: Duration,
    /// Number of the connection, in order of creation.
    pub connection: u64,
    /// The sender.
    pub from: Side,
    /// The kind of message.
    pub kind: MessageKind,
    /// Bytes of payload; for a Read Request, the bytes that it asks for.
    pub length: usize,
    /// The key that the message names.
    pub key: Option<Key>,
    /// The first address that the message names.
    pub address: Option<u64>,
    /// The bytes of a Send; empty for every other kind.
    pub message: Bytes,
}
