//! Calls that a caller gives to a connection, and their replies and failures.
//!
//! A [`Call`] owns its message and the memory for its results. Memory that was opened to the peer returns only when its
//! window is closed: with the reply, or with the end of the connection ([`CallFailure::call`]).

use std::time::Duration;

use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;

use crate::error::CallError;
use crate::message::Travelled;

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
    /// The time to wait for the reply; `None` for [`Timeouts::call`](crate::settings::timers::Timeouts::call).
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
#[non_exhaustive]
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

    /// Returns whether the capacity is zero.
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
    /// Whether the call had left on an earlier connection too. Then the peer may have executed it, whatever this reply
    /// says.
    pub sent_before: bool,
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
    /// Whether the call had left on an earlier connection. Then the peer may have executed it, whatever the error says.
    pub sent_before: bool,
}

impl CallFailure {
    /// Returns a failure that allows no other try.
    pub(crate) const fn permanent(error: CallError, sent: bool) -> Self {
        Self { error, call: None, sent, sent_before: false }
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
