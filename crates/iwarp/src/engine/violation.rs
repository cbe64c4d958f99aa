//! Violations by a peer after set-up, each with its own name, and the Terminate that answers each.

use rpcrdma_verbs::TerminateCause;

use crate::wire::ddp::HeaderError;
use crate::wire::rdmap::{ControlError, Opcode};
use crate::wire::terminate::cause;

/// An FPDU that breaks MPA, DDP or RDMAP. Each ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The CRC field does not match (RFC 5044 §4.4).
    #[error("CRC mismatch in an FPDU with a ULPDU of {ulpdu_len} bytes")]
    Crc {
        /// Bytes of the ULPDU, by a length field that may itself be damaged.
        ulpdu_len: usize,
    },
    /// The DDP header is illegal.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The RDMAP control byte is illegal.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// An opcode is in a segment of the wrong kind, or changes inside a message.
    #[error("{0:?} is not expected here")]
    UnexpectedOpcode(Opcode),
    /// A queue does not exist or does not carry this opcode.
    #[error("{opcode:?} on untagged queue {queue}")]
    Queue {
        /// Opcode of the segment.
        opcode: Opcode,
        /// Queue number of the segment.
        queue: u32,
    },
    /// A message is not the next of its queue.
    #[error("message sequence number {seen} on untagged queue {queue}; {due} is due")]
    Msn {
        /// Queue number.
        queue: u32,
        /// Message sequence number received.
        seen: u32,
        /// Message sequence number expected.
        due: u32,
    },
    /// A segment does not begin at the next byte of its message.
    #[error("message offset {seen}; {due} is due")]
    Offset {
        /// Offset received, in bytes.
        seen: u32,
        /// Offset expected, in bytes.
        due: usize,
    },
    /// A Send arrived without a posted Receive.
    #[error("a Send of {0} bytes or more came, but no Receive is posted")]
    NoReceive(usize),
    /// A message is longer than its buffer: a Send than its Receive, an RDMA Read Request or a Terminate than any.
    #[error("a message of {seen} bytes or more came for a buffer of {capacity}")]
    TooLong {
        /// Bytes so far.
        seen: usize,
        /// Capacity of the buffer, in bytes.
        capacity: usize,
    },
    /// The Invalidate STag differs between segments of one message.
    #[error("the Invalidate STag changes inside a message")]
    InvalidateChanged,
    /// A Send with Invalidate names no window of this connection.
    #[error("the peer cannot invalidate STag {0:#010x}")]
    CannotInvalidate(u32),
    /// A tagged segment has an STag that names no window open to RDMA Writes.
    #[error("STag {0:#010x} is not open to RDMA Writes")]
    WriteStag(u32),
    /// A tagged segment begins or ends outside its memory.
    #[error("{length} bytes at {offset:#x} are outside the memory of STag {stag:#010x}")]
    WriteBounds {
        /// Steering tag.
        stag: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: usize,
    },
    /// The range of a tagged segment wraps.
    #[error("{length} bytes at {offset:#x} wrap")]
    WriteWrap {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: usize,
    },
    /// A Read Response answers no request, or names another sink.
    #[error("a Read Response for STag {0:#010x} came, which no outstanding Read names")]
    ResponseStag(u32),
    /// A Read Response is out of place or exceeds the request.
    #[error("a Read Response of {length} bytes at {offset:#x}; {due} bytes at {due_offset:#x} are due")]
    ResponseBounds {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: usize,
        /// Offset at which the next byte is due.
        due_offset: u64,
        /// Maximum number of bytes due.
        due: u32,
    },
    /// The Last flag of a Read Response comes too early or not at all.
    #[error(
        "the Last flag of a Read Response does not stand where the Read ends; {missing} bytes are missing"
    )]
    ResponseLast {
        /// Bytes still due.
        missing: u32,
    },
    /// An RDMA Read Request is not one segment with 28 bytes.
    #[error("an RDMA Read Request with {0} bytes; 28 in one segment are due")]
    ReadRequestLength(usize),
    /// A Terminate is not one segment, or is shorter than its header (RFC 5040 §4.8, §5.4).
    #[error("a Terminate with {0} bytes; at least 4 in one segment are due")]
    TerminateLength(usize),
    /// The peer has more RDMA Read Requests outstanding than negotiated.
    #[error("more than {0} RDMA Read Requests outstanding")]
    TooManyReads(u16),
    /// The source of an RDMA Read names no window.
    #[error("STag {0:#010x} is not valid for an RDMA Read")]
    ReadStag(u32),
    /// The source of an RDMA Read names a window that is open to Writes only.
    #[error("STag {0:#010x} is not open to RDMA Reads")]
    ReadAccess(u32),
    /// The source of an RDMA Read is outside its window.
    #[error("{size} bytes at {offset:#x} are outside the memory of STag {stag:#010x}")]
    ReadBounds {
        /// Steering tag.
        stag: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        size: u32,
    },
    /// The source of an RDMA Read wraps.
    #[error("{size} bytes at {offset:#x} wrap")]
    ReadWrap {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        size: u32,
    },
}

impl Violation {
    /// Returns layer, type and code of the Terminate (RFC 5040 Figure 9, RFC 5041 §7.2, RFC 5044 §8).
    pub const fn cause(&self) -> TerminateCause {
        match self {
            Self::Crc { .. } => cause::MPA_CRC,
            Self::Header(HeaderError::Version { tagged: true, .. }) => cause::TAGGED_VERSION,
            Self::Header(HeaderError::Version { tagged: false, .. }) => cause::UNTAGGED_VERSION,
            // The tables have no code for a segment that is too short: the stream as such is broken.
            Self::Header(HeaderError::Truncated(_))
            | Self::ReadRequestLength(_)
            | Self::TerminateLength(_) => cause::STREAM_CATASTROPHIC,
            Self::Control(ControlError::Version(_)) => cause::RDMAP_VERSION,
            Self::Control(ControlError::Opcode(_)) | Self::UnexpectedOpcode(_) => cause::UNEXPECTED_OPCODE,
            Self::Queue { .. } => cause::INVALID_QUEUE,
            Self::Msn { .. } => cause::INVALID_MSN,
            Self::Offset { .. } => cause::INVALID_MO,
            // RFC 5040 §5.2.2: the queue of RDMA Read Requests has as many buffers as were negotiated.
            Self::NoReceive(_) | Self::TooManyReads(_) => cause::NO_BUFFER,
            Self::TooLong { .. } => cause::MESSAGE_TOO_LONG,
            Self::InvalidateChanged | Self::ResponseLast { .. } => cause::UNSPECIFIED,
            Self::CannotInvalidate(_) => cause::CANNOT_INVALIDATE,
            Self::WriteStag(_) | Self::ResponseStag(_) => cause::TAGGED_INVALID_STAG,
            Self::WriteBounds { .. } | Self::ResponseBounds { .. } => cause::TAGGED_BOUNDS,
            Self::WriteWrap { .. } => cause::TAGGED_WRAP,
            Self::ReadStag(_) => cause::READ_INVALID_STAG,
            Self::ReadAccess(_) => cause::READ_ACCESS,
            Self::ReadBounds { .. } => cause::READ_BOUNDS,
            Self::ReadWrap { .. } => cause::READ_WRAP,
        }
    }

    /// Returns whether the Terminate carries the DDP header. Local catastrophic errors and MPA errors, both of type 0,
    /// do not carry it (RFC 5040 Figure 10).
    pub(super) const fn names_segment(&self) -> bool {
        self.cause().error_type != 0
    }

    /// Returns whether the Terminate carries the RDMA Read Request (RFC 5040 §7.1 (3)).
    pub(super) const fn names_read_request(&self) -> bool {
        matches!(
            self,
            Self::ReadStag(_) | Self::ReadAccess(_) | Self::ReadBounds { .. } | Self::ReadWrap { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc5040_figure_10_errors_of_mpa_name_no_segment() {
        assert!(!Violation::Crc { ulpdu_len: 9 }.names_segment());
        assert!(Violation::WriteStag(1).names_segment() && Violation::ReadStag(1).names_segment());
        assert!(Violation::NoReceive(1).names_segment());
    }
}
