//! [`Outcome`]: the decision about a received message.

use rpcrdma_xdr::{DecodeError, Stream};

/// The decision about a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send this reply message.
    Reply(Stream),
    /// A chunk stands where the program allows none: send `RDMA_ERROR` with `ERR_CHUNK` (RFC 8166 §4.5.2). A transport
    /// without chunks never gets this.
    ChunkViolation(DecodeError),
    /// Send nothing.
    Drop,
}
