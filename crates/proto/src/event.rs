//! What goes out of a connection: work for the queue pair, and events for its owner.

use rpcrdma_verbs::{Disconnected, ReceiveMemory, WorkRequest, WrId};
use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;

use crate::call::{CallFailure, CallId, IncomingReply, Travelled};
use crate::characteristics::Notice;
use crate::error::ProtocolError;

/// Something for the queue pair, in this order.
#[derive(Debug)]
pub enum Post {
    /// To be posted to the send queue.
    Work(WrId, WorkRequest),
    /// To be posted to the receive queue.
    Receive(WrId, ReceiveMemory),
    /// End the connection in order ([`QueuePair::disconnect`](rpcrdma_verbs::QueuePair::disconnect)).
    Disconnect,
    /// End the connection at once ([`QueuePair::abort`](rpcrdma_verbs::QueuePair::abort)).
    Abort,
}

/// Something for the owner of the connection.
#[derive(Debug)]
pub enum Event {
    /// A Call of the peer, all its chunks pulled. It wants one [`Answer`].
    Call(IncomingCall),
    /// A call of ours ended.
    Reply {
        /// Which one.
        id: CallId,
        /// Its reply, or why there is none.
        result: Result<IncomingReply, CallFailure>,
    },
    /// News about transport characteristics.
    Characteristics(Notice),
    /// The connection is over, all memory is back and every call has had its event. Always the last event.
    Closed(CloseReason),
}

/// Names a Call of the peer that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub(crate) u64);

/// A Call of the peer.
#[derive(Debug)]
pub struct IncomingCall {
    /// To answer it with.
    pub token: ReplyToken,
    /// Its XID.
    pub xid: u32,
    /// The RPC message, from its XID on. A DecodeError that is a chunk violation is answered by [`Answer::ChunkError`].
    pub message: Decoder,
    /// How it travelled.
    pub travelled: Travelled,
}

/// The answer to a Call of the peer.
#[derive(Debug)]
pub enum Answer {
    /// An RPC reply, from its XID on. It travels as the planner decides.
    Message {
        /// The reply.
        message: Stream,
        /// Whether the security flavour protects or hides the data: nothing is reduced then (RFC 8166 §8.2.2.3).
        flavor_touches_data: bool,
    },
    /// ERR_CHUNK: the argument decoder found a chunk where no eligible item is (RFC 8166 §6.1).
    ChunkError,
    /// Nothing, and its credit is free: the owner is about to end the connection, and the peer sends the Call again on another.
    Drop,
    /// None can be made. The connection closes in order, behind the answers before this one, so that the peer knows that a reply
    /// was lost (RFC 8166 §4.5.4).
    Lost,
}

impl Answer {
    /// An RPC reply whose data the security flavour leaves alone.
    #[must_use]
    pub const fn message(message: Stream) -> Self {
        Self::Message { message, flavor_touches_data: false }
    }

    /// Bytes of the reply, its data included; 0 if there is none.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message { message, .. } => message.len(),
            Self::ChunkError | Self::Drop | Self::Lost => 0,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Its owner closed it.
    #[error("closed here")]
    Local,
    /// Nothing was in progress for the idle time.
    #[error("idle")]
    Idle,
    /// The queue pair ended.
    #[error(transparent)]
    Link(#[from] Disconnected),
    /// The peer broke a rule that allows no answer.
    #[error("protocol error of the peer: {0}")]
    Protocol(#[from] ProtocolError),
    /// A window could not be closed: its memory must not be given back while the peer may touch it (rule I2).
    #[error("a window could not be invalidated")]
    InvalidationFailed,
    /// A work request failed.
    #[error("a work request failed: {0:?}")]
    WorkFailed(rpcrdma_verbs::Status),
    /// What the peer said when the connection began is of no use.
    #[error("{0}")]
    Refused(String),
    /// A Call of the peer got [`Answer::Lost`].
    #[error("no reply could be made to a Call")]
    ReplyLost,
    /// All credits are with RDMA_DONEs, and no reply is due that could tell of their return (RFC 5666 §3.8: the Responder should
    /// have granted more).
    #[error("no credit is left but those of RDMA_DONEs")]
    CreditsInDones,
    /// A timer ran out.
    #[error("timeout: {0}")]
    Timeout(&'static str),
}
