//! The typed header that every version decodes to, and the words that are the same in all of them.
//!
//! These are plain values; no buffer is owned here. *On error*: only [`Fixed::decode`] can fail, on a message
//! that is too short.

use std::fmt;

use super::reader::Reader;
use super::segment::ChunkLists;
use super::{ProtocolError, two, v1};

/// Bytes of the part that has the same place and meaning in every version (RFC 8166 §4.2, §7).
pub const FIXED_LEN: usize = 16;

/// `rdma_proc` of an RDMA_ERROR, the same in every version (RFC 8166 §7).
pub const RDMA_ERROR: u32 = 4;
/// `rdma_proc` of an RDMA_DONE (RFC 8166 §4.1.2).
pub const RDMA_DONE: u32 = 3;

/// The fixed part of every header (RFC 8166 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// `rdma_xid`: the XID of the RPC message carried.
    pub xid: u32,
    /// `rdma_vers`.
    pub version: u32,
    /// `rdma_credit`: requested in a Call, granted in a Reply.
    pub credit: u32,
    /// `rdma_proc`, not yet interpreted.
    pub procedure: u32,
}

impl Fixed {
    /// Reads the first sixteen bytes, the only part that has a meaning before the version is known.
    ///
    /// # Errors
    /// [`ProtocolError::ShortMessage`] below [`FIXED_LEN`] bytes (RFC 8166 §4.5: discarded).
    pub fn decode(message: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new(message);
        let short = || ProtocolError::ShortMessage { len: message.len(), least: FIXED_LEN };
        Ok(Self {
            xid: reader.u32().ok_or_else(short)?,
            version: reader.u32().ok_or_else(short)?,
            credit: reader.u32().ok_or_else(short)?,
            procedure: reader.u32().ok_or_else(short)?,
        })
    }
}

/// A decoded transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`. Of an ERR_VERS it is the version of the request that failed (RFC 8166 §4.5.1).
    pub version: u32,
    /// `rdma_credit`.
    pub credit: u32,
    /// The direction, where the header says it: in Version Two. In Version One the Payload does (RFC 8166
    /// §4.2.1).
    pub direction: Option<Direction>,
    /// `rdma_inv_handle`: the handle that the answer to this Call may invalidate, or 0. Only version-two-03
    /// §6.2.3 and later drafts have the word; elsewhere the field is 0.
    pub invalidate: u32,
    /// The content that `rdma_proc` selects.
    pub body: Body,
}

/// The direction of a message: `msg_type` of RFC 5531 §9, `rdma_direction` of version-two-01 §4.2.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From a Requester to a Responder.
    #[default]
    Call,
    /// From a Responder to a Requester.
    Reply,
}

impl Direction {
    /// Returns the word on the wire.
    #[must_use]
    pub const fn word(self) -> u32 {
        match self {
            Self::Call => 0,
            Self::Reply => 1,
        }
    }

    /// Returns the direction of a word on the wire; `None` if the word is neither 0 nor 1.
    #[must_use]
    pub const fn of(word: u32) -> Option<Self> {
        match word {
            0 => Some(Self::Call),
            1 => Some(Self::Reply),
            _ => None,
        }
    }
}

impl Header {
    /// Returns a header of Version One, which has neither a direction nor a handle to invalidate.
    #[must_use]
    pub const fn v1(xid: u32, credit: u32, body: Body) -> Self {
        Self { xid, version: v1::VERSION, credit, direction: None, invalidate: 0, body }
    }
}

/// The content that `rdma_proc` selects (RFC 8166 §4.1.2, §4.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA_MSG: the Payload stream (or what is left of it) follows the header.
    Message(ChunkLists),
    /// RDMA_NOMSG: the Payload stream is in a chunk.
    NoMessage(ChunkLists),
    /// RDMA_MSGP, deprecated: not sent and refused when received (RFC 8166 §4.6.1), unless it was opted into.
    Padded {
        /// `rdma_align`, bytes.
        align: u32,
        /// `rdma_thresh`, bytes.
        threshold: u32,
        /// The chunk lists.
        lists: ChunkLists,
    },
    /// RDMA_DONE, deprecated: never sent, discarded when received (RFC 8166 §4.6.2).
    Done,
    /// RDMA_ERROR.
    Error(ErrorBody),
    /// A message that only Version Two has.
    Two(two::Body),
}

/// The content of an RDMA_ERROR (RFC 8166 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// ERR_VERS: the inclusive range of versions that the sender supports.
    Version {
        /// `rdma_vers_low`.
        low: u32,
        /// `rdma_vers_high`.
        high: u32,
    },
    /// ERR_CHUNK, RDMA2_ERR_BAD_HEADER, RDMA2_ERR_BAD_XDR: the header could not be used.
    Chunk,
    /// An error that only Version Two has.
    Two(two::ErrorBody),
}

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { low, high } => write!(f, "versions {low} to {high} only"),
            Self::Chunk => f.write_str("transport header or chunk error"),
            Self::Two(error) => error.fmt(f),
        }
    }
}
