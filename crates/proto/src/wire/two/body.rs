//! The messages and errors that only Version Two has.
//!
//! These are plain values; no buffer is owned here, and nothing can fail.

use std::fmt;

use bytes::Bytes;

use super::exchange::Exchange;
use super::transmission::{ErrorReport, Operation};
use super::{Error, combined};
use crate::wire::Fixed;

/// The content of a message that Version One does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// An operation on characteristics: RDMA2_OPTIONAL of xcharext-02 §4, or a message type of its own
    /// (version-two-03 §5.3).
    Exchange(Exchange),
    /// RDMA2_CALL_MIDDLE, RDMA2_REPLY_MIDDLE: a part of the Payload stream follows, and more messages do
    /// (version-two-07 §6.3.6, §6.3.9).
    Middle {
        /// `rdma_remaining`: bytes of the Payload stream that come in the messages after this one.
        remaining: u32,
    },
    /// ROPT_XMTREQ, ROPT_XMTRESP, ROPT_XMTCONT: what follows is told by the operation (rtrext-02 §9). A
    /// ROPT_REPTERR is an [`ErrorBody::Report`].
    Transmission(Operation),
    /// Several messages in one Send, with these lengths; they follow the header
    /// ([`combined`]).
    Combined(Vec<u32>),
    /// RDMA2_GRANT: nothing but `rdma_credit` (version-two-07 §6.3.2).
    Grant,
}

impl Body {
    /// Whether this is a GRANT.
    pub(crate) const fn is_grant(&self) -> bool {
        matches!(self, Self::Grant)
    }

    /// Returns the messages of a combined Send; `None` of any other message. `behind` are the bytes after the
    /// header.
    ///
    /// # Errors
    /// Those of [`combined::split`].
    pub(crate) fn messages(&self, behind: &Bytes, fixed: Fixed) -> Option<Result<Vec<Bytes>, Error>> {
        let Self::Combined(lengths) = self else { return None };
        Some(combined::split(lengths, behind, fixed).map_err(Into::into))
    }

    /// Whether this is several messages in one Send.
    pub(crate) const fn is_combined(&self) -> bool {
        matches!(self, Self::Combined(_))
    }
}

/// The arms of an RDMA_ERROR that Version One does not have (version-two-03 §6.2.4, version-two-07 §7). A
/// profile has some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorBody {
    /// RDMA2_ERR_INVAL_OPTION: an operation that is not known or not supported (version-two-01 §3.1).
    InvalidOption,
    /// RDMA2_ERR_INVAL_PROC, later RDMA2_ERR_INVAL_HTYPE: an `rdma_proc` that is not known (version-two-03
    /// §6.2.4).
    InvalidProcedure,
    /// RDMA2_ERR_REPLY_RESOURCE: the chunks offered do not hold the reply (version-two-03 §6.2.4); in
    /// version-two-07 §7.3.5 the Reply chunk, and no segment is named.
    ReplyResource {
        /// Which segment is too short, counted from 1 over the Write list and the Reply chunk; 0 if that is
        /// not known.
        segment: u32,
        /// Bytes needed in it; 0 if that is not known.
        needed: u32,
    },
    /// RDMA2_ERR_SYSTEM: anything else (version-two-03 §6.2.4).
    System,
    /// RDMA2_ERR_BAD_PROPVAL: the value of a property that is known is none (version-two-07 §7.2.2).
    BadValue,
    /// RDMA2_ERR_INVAL_CONT: a message does not go on as the one before it began (version-two-07 §7.1.4).
    InvalidContinuation,
    /// RDMA2_ERR_READ_CHUNKS: more Read chunks than are taken (version-two-07 §7.3.1).
    ReadChunks {
        /// How many are.
        most: u32,
    },
    /// RDMA2_ERR_WRITE_CHUNKS: more Write chunks than are taken (version-two-07 §7.3.2).
    WriteChunks {
        /// How many are.
        most: u32,
    },
    /// RDMA2_ERR_SEGMENTS: a chunk with more segments than are taken (version-two-07 §7.3.3).
    Segments {
        /// How many are.
        most: u32,
    },
    /// RDMA2_ERR_WRITE_RESOURCE: a Write chunk does not hold its item (version-two-07 §7.3.4).
    WriteResource {
        /// Which chunk is too short, counted from 1; 0 if that is not known.
        chunk: u32,
        /// Bytes needed in it.
        needed: u32,
    },
    /// ROPT_REPTERR: what is wrong with a transmission group (rtrext-02 §9.5).
    Report(ErrorReport),
    /// RDMA2_ERR_VERS_MISMATCH: not the version used before on this connection (version-two-07 §7.1.2).
    VersionMismatch,
}

impl ErrorBody {
    /// Whether the error tells of a version, so that its header has the version of the request.
    pub(crate) const fn is_of_version(&self) -> bool {
        matches!(self, Self::VersionMismatch)
    }

    /// Whether the error may be about a Call in a transmission group.
    pub(crate) const fn may_be_of_group(&self) -> bool {
        matches!(self, Self::Report(_) | Self::InvalidOption)
    }
}

impl std::error::Error for ErrorBody {}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidOption => f.write_str("operation not supported"),
            Self::InvalidProcedure => f.write_str("message type not supported"),
            Self::ReplyResource { segment: 0, needed: 0 } => {
                f.write_str("the reply does not fit the chunks offered")
            }
            Self::ReplyResource { segment: 0, needed } => {
                write!(f, "the reply does not fit the chunks offered: it needs {needed} B")
            }
            Self::ReplyResource { segment, needed } => {
                write!(f, "the reply does not fit the chunks offered: segment {segment} needs {needed} B")
            }
            Self::System => f.write_str("system error"),
            Self::BadValue => f.write_str("property with a value that it cannot have"),
            Self::InvalidContinuation => f.write_str("message that does not go on as it began"),
            Self::ReadChunks { most } => write!(f, "at most {most} Read chunks"),
            Self::WriteChunks { most } => write!(f, "at most {most} Write chunks"),
            Self::Segments { most } => write!(f, "at most {most} segments in a chunk"),
            Self::WriteResource { chunk: 0, needed } => {
                write!(f, "a result does not fit its Write chunk: it needs {needed} B")
            }
            Self::WriteResource { chunk, needed } => {
                write!(f, "a result does not fit its Write chunk: number {chunk} needs {needed} B")
            }
            Self::Report(ErrorReport { bad, error, .. }) => {
                write!(f, "transmission {} of the message: {error}", bad.number)
            }
            Self::VersionMismatch => f.write_str("another version was used before on this connection"),
        }
    }
}
