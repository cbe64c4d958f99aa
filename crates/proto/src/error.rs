//! The reasons why a call ends without a reply, and why a connection ends.

use rpcrdma_verbs::{Disconnected, PoolExhausted, Status, WindowErrorKind};
use thiserror::Error;

use crate::planner::Refusal;
use crate::wire::ProtocolError;
use crate::wire::two::ErrorBody;

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
    Refused(#[source] ErrorBody),
    /// No form of the protocol can carry the call.
    #[error("the call cannot be sent: {0}")]
    Unsendable(#[from] Refusal),
    /// The domain can never give the memory for the results.
    #[error("no memory for the results: {0}")]
    Memory(#[from] PoolExhausted),
    /// The provider has no free window, and none will return.
    #[error("no window for the call's chunks: {0}")]
    Windows(#[from] WindowErrorKind),
    /// The data in the Reply chunk, or read from the peer, is not the reply to this call (RFC 8166 §4.2.1).
    #[error("what came as the reply is none: {0}")]
    BadReply(#[source] ProtocolError),
    /// The memory of a result did not come back from its window.
    #[error("the memory of a result was lost with its window")]
    ResultLost,
    /// The connection ended before the reply. The peer may have executed the call.
    #[error("the connection ended: {0}")]
    ConnectionLost(#[source] CloseReason),
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

/// Reasons for the end of a connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner closed the connection.
    #[error("closed here")]
    Local,
    /// No call was in progress for the idle time.
    #[error("idle")]
    Idle,
    /// The queue pair ended.
    #[error(transparent)]
    Link(#[from] Disconnected),
    /// The peer violated the protocol in a way that allows no answer.
    #[error("protocol error of the peer: {0}")]
    Protocol(#[from] ProtocolError),
    /// A window could not be closed: its memory must not return while the peer may access it (rule I2).
    #[error("a window could not be invalidated")]
    InvalidationFailed,
    /// A work request failed.
    #[error("a work request failed: {0:?}")]
    WorkFailed(Status),
    /// The peer's messages at the beginning make the connection useless.
    #[error("{0}")]
    Refused(String),
    /// A Call of the peer got [`Answer::Lost`](crate::Answer::Lost).
    #[error("no reply could be made to a Call")]
    ReplyLost,
    /// RDMA_DONEs hold all credits, and no reply is due that could confirm them (RFC 5666 §3.8: the Responder should
    /// have granted more).
    #[error("no credit is left but those of RDMA_DONEs")]
    CreditsInDones,
    /// A timer expired.
    #[error("timeout: {0}")]
    Timeout(&'static str),
}
