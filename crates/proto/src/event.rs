//! Events for the owner of a connection, and its answers.

use rpcrdma_xdr::{Decoder, Stream};

use crate::call::{CallFailure, CallId, IncomingReply};
use crate::error::CloseReason;
use crate::message::Travelled;
use crate::two::characteristics::Notice;

/// An event for the owner of the connection.
#[derive(Debug)]
pub enum Event {
    /// A Call of the peer, with all its chunks pulled. The owner gives it one [`Answer`].
    Call(IncomingCall),
    /// A call of ours ended.
    Reply {
        /// The id that [`Connection::call`](crate::Connection::call) returned.
        id: CallId,
        /// The reply, or the reason for its absence.
        result: Result<IncomingReply, CallFailure>,
    },
    /// An event of the exchange of transport characteristics.
    Characteristics(Notice),
    /// The connection is over, all memory is back, and every call has had its event. Always the last event.
    Closed(CloseReason),
}

/// The id of a Call of the peer that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub(crate) u64);

/// A Call of the peer.
#[derive(Debug)]
pub struct IncomingCall {
    /// The token for the answer.
    pub token: ReplyToken,
    /// The XID of the Call.
    pub xid: u32,
    /// The RPC message, from its XID on. A `DecodeError` that is a chunk violation is answered by
    /// [`Answer::ChunkError`].
    pub message: Decoder,
    /// The form and the bytes of the Call.
    pub travelled: Travelled,
}

/// The answer to a Call of the peer.
#[derive(Debug)]
pub enum Answer {
    /// An RPC reply, from its XID on; the planner decides its form.
    Message {
        /// The reply.
        message: Stream,
        /// Whether the security flavour protects or hides the data. Then no item is reduced (RFC 8166 §8.2.2.3).
        flavor_touches_data: bool,
    },
    /// ERR_CHUNK: the argument decoder found a chunk without a DDP-eligible item (RFC 8166 §6.1).
    ChunkError,
    /// No answer, and the credit is free: the owner is about to end the connection, and the peer sends the Call again
    /// on another.
    Drop,
    /// No answer is possible. The connection closes in order after the earlier answers, so that the peer learns of the
    /// lost reply (RFC 8166 §4.5.4).
    Lost,
}

impl Answer {
    /// Returns an RPC reply whose data the security flavour leaves alone.
    #[must_use]
    pub const fn message(message: Stream) -> Self {
        Self::Message { message, flavor_touches_data: false }
    }

    /// Returns the bytes of the reply, its data included; 0 without a reply.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message { message, .. } => message.len(),
            Self::ChunkError | Self::Drop | Self::Lost => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rpcrdma_xdr::Piece;

    use super::*;

    #[test]
    fn an_answer_has_the_bytes_of_its_reply() {
        let mut message = Stream::new();
        message.push(Piece::Inline(Bytes::from_static(&[0; 24])));
        message.push(Piece::Payload { data: Bytes::from_static(&[0; 100]), ddp_eligible: true });
        let len = message.len();
        assert_eq!((len, Answer::message(message).bytes()), (124, 124));
        for answer in [Answer::ChunkError, Answer::Drop, Answer::Lost] {
            assert_eq!(answer.bytes(), 0);
        }
    }
}
