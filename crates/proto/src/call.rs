//! Calls that a caller gives to a connection, and their replies and failures.
//!
//! A [`Call`] owns its message and the memory for its results. Memory that was opened to the peer returns only when its
//! window is closed: with the reply, or with the end of the connection ([`CallFailure::call`]).

use std::time::Duration;

use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;

/// An RPC Call for the requester.
#[derive(Debug)]
pub struct Call {
    /// The XID, equal to the first word of the message, and unique among the calls in progress.
    pub xid: u32,
    /// The RPC program, for traces.
    pub program: u32,
    /// The version of the program, for traces.
    pub version: u32,
    /// The procedure, for traces.
    pub procedure: u32,
    /// The complete RPC message, from its XID on.
    pub message: Stream,
    /// The bounds of the reply.
    pub reply: ReplyShape,
    /// Whether the security flavour protects or hides the data (RPCSEC_GSS integrity or privacy). Then no item is
    /// reduced (RFC 8166 §8.2.2.3).
    pub flavor_touches_data: bool,
    /// The time to wait for the reply; `None` for [`Timeouts::call`](crate::timers::Timeouts::call).
    pub timeout: Option<Duration>,
}

impl Call {
    /// Whether the message begins with the call's XID.
    pub(crate) fn begins_with_xid(&self) -> bool {
        let first = self.message.pieces().first().and_then(|piece| piece.data().first_chunk::<4>());
        first == Some(&self.xid.to_be_bytes())
    }
}

/// The largest reply that a Call can have.
#[derive(Debug, Default)]
pub struct ReplyShape {
    /// Bytes of the largest possible RPC reply, from its XID on, *without* the data of the results in `sinks`.
    pub max_len: usize,
    /// A sink for each DDP-eligible result, in the order of the reply.
    pub sinks: Vec<Sink>,
}

impl ReplyShape {
    /// Returns the shape of a reply of at most `max_len` bytes without DDP-eligible results.
    #[must_use]
    pub const fn plain(max_len: usize) -> Self {
        Self { max_len, sinks: Vec::new() }
    }
}

/// The memory for a DDP-eligible result that travels in a Write chunk.
#[derive(Debug)]
pub enum Sink {
    /// Memory of the protection domain, for at most this many bytes.
    Pool(usize),
    /// Memory of the caller, which the peer writes directly. The result refers to this memory. A failed call returns
    /// the memory only if it came back from its window; otherwise a retransmission uses the pool.
    Buffer(Buffer),
}

impl Sink {
    /// Returns the capacity, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Pool(len) => *len,
            Self::Buffer(buffer) => buffer.len(),
        }
    }

    /// Whether the capacity is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The id of a call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

impl CallId {
    /// Returns the id of the call with this number, among the calls of its owner, and this XID.
    pub(crate) const fn new(count: u32, xid: u32) -> Self {
        Self((count as u64) << 32 | xid as u64)
    }

    /// Returns the XID.
    pub(crate) fn xid(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(0)
    }
}

/// The form of a message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// RDMA_MSG, everything inline.
    #[default]
    Inline,
    /// RDMA_MSGP, everything inline and long opaque data aligned (RFC 5666 §3.9; an opt-in).
    Padded,
    /// RDMA_MSG with items in Read chunks (a Call) or Write chunks (a reply).
    Reduced,
    /// Several Sends, perhaps with items in chunks (version-two-07 §6.6.2).
    Continued,
    /// A Send or several, with items placed in the receiver's segments (rtrext-02 §7).
    Placed,
    /// RDMA_NOMSG: a Position-Zero Read chunk (a Call) or the Reply chunk (a reply), perhaps with items in other chunks.
    Long,
}

/// The bytes of a message by the way that they travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Travelled {
    /// The form of the message.
    pub form: Form,
    /// Bytes of the Sends, headers included.
    pub sent: usize,
    /// Bytes moved by RDMA Read.
    pub read: usize,
    /// Bytes placed in Write chunks.
    pub written: usize,
    /// Bytes placed in the Reply chunk.
    pub reply_chunk: usize,
    /// Segments that carried these bytes.
    pub segments: usize,
}

/// The ends that closed the windows of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidations {
    /// Windows that the peer's Send with Invalidate closed.
    pub remote: usize,
    /// Windows that this side invalidated.
    pub local: usize,
}

/// The reply to a call, whose windows are all closed.
#[derive(Debug)]
pub struct IncomingReply {
    /// The RPC message, from its XID on, with the results that travelled in Write chunks.
    pub message: Decoder,
    /// The form and the bytes of the Call.
    pub call: Travelled,
    /// The form and the bytes of the reply.
    pub reply: Travelled,
    /// The ends that closed the windows.
    pub invalidations: Invalidations,
}

/// A call that ended without a reply.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct CallFailure {
    /// The reason.
    #[source]
    pub error: CallError,
    /// The call for another try, if its connection was lost before the reply, or it was never sent.
    pub call: Option<Box<Call>>,
    /// Whether the call left, so that the peer may have executed it.
    pub sent: bool,
}

impl CallFailure {
    /// Returns a failure that allows no other try.
    pub(crate) const fn permanent(error: CallError, sent: bool) -> Self {
        Self { error, call: None, sent }
    }
}

/// Reasons why a call ended without a reply.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No reply came in time. The peer may have executed the call.
    #[error("no reply in time")]
    TimedOut,
    /// The peer answered ERR_VERS (RFC 8166 §4.5.1).
    #[error("the peer speaks versions {low} to {high} of RPC-over-RDMA only")]
    Version {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The peer answered ERR_CHUNK: it could not use the chunks, or the reply did not fit them (RFC 8166 §4.5.2, §4.5.3).
    #[error("the peer reports a transport header or chunk error (ERR_CHUNK)")]
    Chunk,
    /// The peer answered with an RDMA_ERROR of Version Two (version-two-03 §6.2.4).
    #[error("the peer refuses the call: {0}")]
    Refused(crate::wire::two::ErrorBody),
    /// No form of the protocol can carry the call.
    #[error("the call cannot be sent: {0}")]
    Unsendable(#[from] crate::planner::Refusal),
    /// The domain can never give the memory for the results.
    #[error("no memory for the results: {0}")]
    Memory(#[from] rpcrdma_verbs::PoolExhausted),
    /// The provider has no free window, and none will return.
    #[error("no window for the call's chunks: {0}")]
    Windows(#[from] rpcrdma_verbs::WindowErrorKind),
    /// The data in the Reply chunk, or read from the peer, is not the reply to this call (RFC 8166 §4.2.1).
    #[error("what came as the reply is none: {0}")]
    BadReply(crate::wire::ProtocolError),
    /// The memory of a result did not come back from its window.
    #[error("the memory of a result was lost with its window")]
    ResultLost,
    /// The connection ended before the reply. The peer may have executed the call.
    #[error("the connection ended: {0}")]
    ConnectionLost(crate::event::CloseReason),
    /// The session could not connect within the allowed attempts.
    #[error("no connection after {attempts} attempts: {reason}")]
    Unreachable {
        /// Attempts made.
        attempts: u32,
        /// The last failure.
        reason: String,
    },
    /// The session or connection was closed by its owner.
    #[error("closed")]
    Closed,
}

impl CallError {
    /// Whether the error is an answer of the peer.
    pub(crate) const fn is_answer(&self) -> bool {
        matches!(self, Self::Chunk | Self::Version { .. } | Self::Refused(_))
    }
}

/// A refused call, which returns to the caller.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct Refused {
    /// Why.
    pub kind: RefusedKind,
    /// The call.
    pub call: Box<Call>,
}

/// Reasons why a call is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedKind {
    /// A call under this XID is in progress, or was abandoned and still holds memory.
    #[error("XID {0:#010x} is in use")]
    XidInUse(u32),
    /// The message does not begin with the call's XID.
    #[error("the message does not begin with XID {0:#010x}")]
    XidMismatch(u32),
    /// The connection is closing, or closed.
    #[error("closed")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_is_empty_without_room() {
        for (len, empty) in [(0, true), (1, false)] {
            for sink in [Sink::Pool(len), Sink::Buffer(Buffer::adopt(vec![0; len]))] {
                assert_eq!((sink.len(), sink.is_empty()), (len, empty));
            }
        }
    }
}
