//! What a caller gives to a connection, and what it gets back.
//!
//! A [`Call`] owns its message and the memory for its results. Memory that was opened to the peer comes back only when it
//! is closed again: with the reply, or with the end of the connection ([`CallFailure::call`]).

use std::time::Duration;

use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;

/// An RPC Call as the requester takes it.
#[derive(Debug)]
pub struct Call {
    /// The XID; the same as in the first word of the message, and unique among the calls in progress.
    pub xid: u32,
    /// The RPC program, for traces.
    pub program: u32,
    /// Its version, for traces.
    pub version: u32,
    /// The procedure, for traces.
    pub procedure: u32,
    /// The whole RPC message, from its XID on.
    pub message: Stream,
    /// What the reply can look like.
    pub reply: ReplyShape,
    /// Whether the security flavour protects or hides the data (RPCSEC_GSS integrity or privacy): nothing is reduced then
    /// (RFC 8166 §8.2.2.3).
    pub flavor_touches_data: bool,
    /// How long to wait for the reply; `None` for [`Timeouts::call`](crate::timers::Timeouts::call).
    pub timeout: Option<Duration>,
}

impl Call {
    /// Whether the message begins with the XID given.
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
    /// One for each DDP-eligible result, in the order of the reply.
    pub sinks: Vec<Sink>,
}

impl ReplyShape {
    /// A reply of at most `max_len` bytes without DDP-eligible results.
    #[must_use]
    pub const fn plain(max_len: usize) -> Self {
        Self { max_len, sinks: Vec::new() }
    }
}

/// Where a DDP-eligible result goes if it travels in a Write chunk.
#[derive(Debug)]
pub enum Sink {
    /// Memory of the protection domain, for at most this many bytes.
    Pool(usize),
    /// Memory of the caller, written in place. The result is handed out as a part of it. It comes back with a failure only
    /// if it could be had; else a retransmission uses the pool.
    Buffer(Buffer),
}

impl Sink {
    /// Bytes it has room for.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Pool(len) => *len,
            Self::Buffer(buffer) => buffer.len(),
        }
    }

    /// Whether it has no room.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names a call that is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);

/// The way a message took.
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
    /// One Send or several, with items where the receiver wants them (rtrext-02 §7).
    Placed,
    /// RDMA_NOMSG: a Position-Zero Read chunk (a Call) or the Reply chunk (a reply), perhaps with items in other chunks.
    Long,
}

/// How a message travelled, by bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Travelled {
    /// The form of the message.
    pub form: Form,
    /// Bytes of the Send, header included.
    pub sent: usize,
    /// Bytes moved by RDMA Read.
    pub read: usize,
    /// Bytes placed in Write chunks.
    pub written: usize,
    /// Bytes placed in the Reply chunk.
    pub reply_chunk: usize,
    /// Segments that carried those bytes.
    pub segments: usize,
}

/// Who closed the windows of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidations {
    /// Windows closed by the peer's Send with Invalidate.
    pub remote: usize,
    /// Windows closed by us.
    pub local: usize,
}

/// The reply to a call. All windows of the call are closed.
#[derive(Debug)]
pub struct IncomingReply {
    /// The RPC message, from its XID on, with the results that travelled in Write chunks.
    pub message: Decoder,
    /// How the Call travelled.
    pub call: Travelled,
    /// How the reply travelled.
    pub reply: Travelled,
    /// Who closed the windows.
    pub invalidations: Invalidations,
}

/// A call that ended without a reply.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct CallFailure {
    /// Why.
    #[source]
    pub error: CallError,
    /// The call, to be tried again: when its connection was lost before the reply came, or it was never sent.
    pub call: Option<Box<Call>>,
    /// Whether it left: the peer may have carried it out.
    pub sent: bool,
}

impl CallFailure {
    /// A failure that is not worth another try.
    pub(crate) const fn permanent(error: CallError, sent: bool) -> Self {
        Self { error, call: None, sent }
    }
}

/// Why a call ended without a reply.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No reply in time. The peer may have carried the call out.
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
    /// The peer answered with an RDMA_ERROR that only Version Two has (version-two-03 §6.2.4).
    #[error("the peer refuses the call: {0}")]
    Refused(crate::wire::two::ErrorBody),
    /// No form of the protocol can carry the call.
    #[error("the call cannot be sent: {0}")]
    Unsendable(#[from] crate::planner::Refusal),
    /// The domain can never give the memory for the results.
    #[error("no memory for the results: {0}")]
    Memory(#[from] rpcrdma_verbs::PoolExhausted),
    /// The provider has no window left and none will come back.
    #[error("no window for the call's chunks: {0}")]
    Windows(#[from] rpcrdma_verbs::WindowErrorKind),
    /// What came in the Reply chunk, or was read from the peer, is not the reply to this call (RFC 8166 §4.2.1).
    #[error("what came as the reply is none: {0}")]
    BadReply(crate::error::ProtocolError),
    /// The memory of a result did not come back from its window.
    #[error("the memory of a result was lost with its window")]
    ResultLost,
    /// The connection ended before the reply came. The peer may have carried the call out.
    #[error("the connection ended: {0}")]
    ConnectionLost(crate::event::CloseReason),
    /// The session could not connect within the attempts allowed.
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

/// A call that was not taken; it is given back.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct Refused {
    /// Why.
    pub kind: RefusedKind,
    /// The call.
    pub call: Box<Call>,
}

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedKind {
    /// A call under this XID is in progress, or was abandoned and its memory is not back yet.
    #[error("XID {0:#010x} is in use")]
    XidInUse(u32),
    /// The message does not begin with the XID given.
    #[error("the message does not begin with XID {0:#010x}")]
    XidMismatch(u32),
    /// The connection is closing.
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
