//! Faults of the peer that only Version Two knows: one table, in the manner of
//! [`ProtocolError`](crate::wire::ProtocolError).

use super::transmission::{self, ErrorReport};
use super::words::End;
use super::{Profile, combined};
use crate::wire::Action::{self, Answer, Close, Discard};
use crate::wire::{Direction, faults};

faults! {
    /// A fault of the peer against the documents of Version Two and its extensions, or beyond our
    /// [`Limits`](crate::wire::Limits).
    #[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Error {
        /// A word that is neither in a list nor in an operation lies beyond the end of the message.
        #[error("the {word} runs past the end of the message")]
        #[fault(Answer, "list_truncated")]
        WordTruncated {
            /// The name of the word in the document.
            word: &'static str,
        },
        /// version-two-07 §6.3.7: the Position-Zero chunk stands among those of data items.
        #[error("Position-Zero Read segment in rdma_reads")]
        #[fault(Answer, "position_zero_in_reads")]
        PositionZeroInReads,
        /// version-two-07 §6.3.5: the Call chunk is a Position-Zero chunk.
        #[error("Call chunk with a segment at Position {position}, only 0 is possible")]
        #[fault(Answer, "call_chunk_position")]
        CallChunkPosition {
            /// The Position.
            position: u32,
        },
        /// version-two-07 §4.5.1.1: Positions of a Read list go up.
        #[error("Read segment at Position {position} behind one at {before}")]
        #[fault(Answer, "position_order")]
        PositionOrder {
            /// The Position.
            position: u32,
            /// That of the segment before it.
            before: u32,
        },
        /// version-two-01 §4.2: `rdma_direction` or `rdma_optdir` is neither CALL nor REPLY.
        #[error("rdma_direction {value}, only 0 and 1 exist")]
        #[fault(Answer, "bad_direction")]
        BadDirection {
            /// The word.
            value: u32,
        },
        /// version-two-01 §3.1: an optional operation that is not supported.
        #[error("rdma_opttype {operation} is not supported")]
        #[fault(Answer, "unknown_operation")]
        UnknownOperation {
            /// `rdma_opttype`.
            operation: u32,
        },
        /// xcharext-02 §2.1: an operation on characteristics runs past its end.
        #[error("an operation on characteristics runs past the end of the message")]
        #[fault(Answer, "operation_truncated")]
        OperationTruncated,
        /// version-two-07 §5.1: the data of a property runs past the end of the message.
        #[error("property {id:#x} with {len} bytes of data, which is more than the message has")]
        #[fault(Answer, "value_truncated")]
        ValueTruncated {
            /// Its id.
            id: u32,
            /// The length of its data, as the property says it.
            len: u32,
        },
        /// xcharext-02 §4: `rdma_optinfo` goes on behind the operation.
        #[error("an operation on characteristics ends before its rdma_optinfo")]
        #[fault(Answer, "operation_too_long")]
        OperationTooLong,
        /// RFC 4506 §4.4: a bool is neither 0 nor 1.
        #[error("bool {value}, only 0 and 1 exist")]
        #[fault(Answer, "bad_flag")]
        BadFlag {
            /// The word.
            value: u32,
        },
        /// More characteristics, or words of a subset, than are looked at.
        #[error("{count} characteristics in one operation, {allowed} are allowed")]
        #[fault(Answer, "too_many_characteristics")]
        TooManyCharacteristics {
            /// The count seen.
            count: u32,
            /// The limit.
            allowed: usize,
        },
        /// xcharext-02 §2.1: a subset names elements that its set does not have.
        #[error("a subset names element {end} of a set of {len}")]
        #[fault(Answer, "subset_too_long")]
        SubsetTooLong {
            /// How many elements the set would need.
            end: usize,
            /// How many it has.
            len: usize,
        },
        /// xcharext-02 §2.1: the data of a characteristic is not of its type.
        #[error("characteristic {id:#x} with {len} bytes that are not a value of it")]
        #[fault(Answer, "bad_characteristic")]
        BadCharacteristic {
            /// Its id.
            id: u32,
            /// Bytes of its data.
            len: usize,
        },
        /// xcharext-02 §4.3: a response to no request.
        #[error("a response about characteristics under XID {xid:#010x}, under which nothing was asked")]
        #[fault(Discard, "unexpected_response")]
        UnexpectedResponse {
            /// The XID.
            xid: u32,
        },
        /// xcharext-02 §4.3: done, rejected and pending are not apart, or do not cover what was asked.
        #[error("a response says {saying} of element {place} of the request")]
        #[fault(Discard, "response_unclear")]
        ResponseUnclear {
            /// The element.
            place: usize,
            /// How many subsets name it.
            saying: &'static str,
        },
        /// xcharext-02 §3.1: Receives got smaller although nobody had asked for it.
        #[error("Receives of {size} bytes instead of {before}, which nobody has asked for")]
        #[fault(Discard, "unasked_reduction")]
        UnaskedReduction {
            /// The size told.
            size: u32,
            /// The size told before.
            before: u32,
        },
        /// xcharext-02 §4.4: an update of something that is not known.
        #[error("an update of characteristic {id:#x}, which is not known")]
        #[fault(Discard, "unknown_characteristic")]
        UnknownCharacteristic {
            /// Its id.
            id: u32,
        },
        /// More operations on characteristics than are taken.
        #[error("more than {allowed} operations on characteristics without a Call or reply between them")]
        #[fault(Close, "too_many_operations")]
        TooManyOperations {
            /// The limit.
            allowed: u32,
        },
        /// version-two-01 §4.2.2: the header's direction is not that of the RPC message.
        #[error("rdma_direction {header:?} before an RPC message that goes the other way")]
        #[fault(Answer, "direction_mismatch")]
        DirectionMismatch {
            /// The direction in the header.
            header: Direction,
        },
        /// version-two-01 §4.2.2: a Requester's operation says REPLY, or that of a Responder CALL.
        #[error("rdma_optdir {said:?} in an operation of rdma_opttype {operation}, which goes the other way")]
        #[fault(Answer, "operation_direction")]
        OperationDirection {
            /// `rdma_opttype`.
            operation: u32,
            /// `rdma_optdir`.
            said: Direction,
        },
        /// A message that is valid in another document of the same version.
        #[error(
            "a message of {theirs:?} of Version Two, where {ours:?} is spoken: none of its documents interoperates with \
             another"
        )]
        #[fault(Answer, "other_profile")]
        OtherProfile {
            /// The profile spoken here.
            ours: Profile,
            /// The profile whose bytes these look like.
            theirs: Profile,
        },
        /// version-two-07 §4.2.1: a message beyond the limit that was told.
        #[error("message beyond the limit of {limit}, by the count of all that have come")]
        #[fault(Close, "limit_exceeded")]
        LimitExceeded {
            /// The limit that was told last.
            limit: u32,
        },
        /// version-two-07 §6.3.4: properties are told once.
        #[error("properties after the last message of them")]
        #[fault(Answer, "told_twice")]
        ToldTwice,
        /// version-two-07 §6.3.3, §6.3.6, §6.3.9: nothing else comes before the end of a message that has
        /// begun.
        #[error("a message of type {procedure} where {expected} has to go on")]
        #[fault(Answer, "interrupted")]
        Interrupted {
            /// The `rdma_proc` seen.
            procedure: u32,
            /// The message that had begun.
            expected: &'static str,
        },
        /// version-two-07 §6.3.6: `rdma_remaining` disagrees with the parts of the message that have come.
        #[error("{seen} bytes remain of a continued message, {expected} should")]
        #[fault(Answer, "continuation_length")]
        ContinuationLength {
            /// `rdma_remaining`, or the bytes of the last part.
            seen: usize,
            /// Bytes that should remain.
            expected: usize,
        },
        /// A continued message that is longer than what is taken.
        #[error("continued message of {len} bytes, {allowed} are taken")]
        #[fault(Answer, "continuation_too_long")]
        ContinuationTooLong {
            /// Its length.
            len: usize,
            /// The limit.
            allowed: usize,
        },
        /// There is no memory for the rest of a Call that holds all Receives of its connection.
        #[error("no memory for the rest of a continued message, of which {len} bytes are there")]
        #[fault(Answer, "continuation_memory")]
        ContinuationMemory {
            /// Bytes that have come.
            len: usize,
        },
        /// A continued message in more Sends than are taken.
        #[error("continued message in more than {allowed} parts")]
        #[fault(Answer, "too_many_parts")]
        TooManyParts {
            /// The limit.
            allowed: usize,
        },
        /// rtrext-02: an operation or property on transmissions that does not decode.
        #[error(transparent)]
        #[fault(Answer, malformed.row().1)]
        Transmission(malformed: #[from] transmission::Malformed),
        /// rtrext-02 §5.4: a transmission group that is not as it has to be.
        #[error("transmission {} of XID {:#010x}: {}", .0.bad.number, .0.bad.xid, .0.error)]
        #[fault(Answer, report.error.name())]
        Group(report: ErrorReport),
        /// The peer refuses a Send of several messages, which it has said that it takes.
        #[error("several messages in one Send are refused by a peer that says that it takes them")]
        #[fault(Close, "combined_refused")]
        CombinedRefused,
        /// A Send of several messages that is not as it says. Calls were in it that can have no answer (RFC
        /// 8166 §4.5.4).
        #[error(transparent)]
        #[fault(Close, "combined")]
        Combined(_: #[from] combined::Malformed),
        /// A message in several transmissions that is longer than what is taken.
        #[error("message of {len} bytes in a transmission group, {allowed} are taken")]
        #[fault(Answer, "group_too_long")]
        GroupTooLong {
            /// The report to its sender.
            report: ErrorReport,
            /// Its length, as far as it is known: Payload stream, and items in Receives.
            len: u64,
            /// The limit.
            allowed: usize,
        },
    }
}

impl From<End> for Error {
    fn from(end: End) -> Self {
        match end {
            End::Early => Self::OperationTruncated,
            End::Late(_) => Self::OperationTooLong,
        }
    }
}

impl Error {
    /// Whether the message is of another profile, so that its payload was not decoded.
    pub(crate) const fn is_of_other_profile(&self) -> bool {
        matches!(self, Self::OtherProfile { .. })
    }

    /// Whether the peer refused a combined Send.
    pub(crate) const fn is_refusal_of_combined(&self) -> bool {
        matches!(self, Self::CombinedRefused)
    }

    /// Returns the report to the sender of a transmission group (rtrext-02 §5.4), if the fault is one of a
    /// group.
    #[must_use]
    pub const fn report(&self) -> Option<ErrorReport> {
        match self {
            Self::Group(report) | Self::GroupTooLong { report, .. } => Some(*report),
            _ => None,
        }
    }

    /// Returns whether the fault is an operation on characteristics that did not decode.
    pub(crate) const fn is_of_operation(&self) -> bool {
        matches!(
            self,
            Self::UnknownOperation { .. }
                | Self::OperationDirection { .. }
                | Self::OperationTruncated
                | Self::OperationTooLong
                | Self::ValueTruncated { .. }
                | Self::BadFlag { .. }
                | Self::TooManyCharacteristics { .. }
                | Self::SubsetTooLong { .. }
        )
    }
}
