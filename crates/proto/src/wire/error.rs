//! The peer's faults, in one table: for each a variant, its message, its consequence, and its name in counters.
//!
//! An error is never answered with an error: faults of replies and of RDMA_ERRORs are discarded (RFC 8166 §4.5). Only
//! faults of Calls are answered.

use std::fmt;

use Action::{Answer, AnswerVersion, Close, Discard};
use thiserror::Error;

use super::{Direction, two};

/// The part of a header that did not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum List {
    /// The Read list.
    Read,
    /// The Write list.
    Write,
    /// The Reply chunk.
    Reply,
    /// The two words of an RDMA_MSGP.
    Padding,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "Read list",
            Self::Write => "Write list",
            Self::Reply => "Reply chunk",
            Self::Padding => "RDMA_MSGP words",
        })
    }
}

/// Defines an enum of faults from one table. Each variant has its message in `error`. The columns of `fault` are the
/// [`Action`] that the fault of a Call leads to, and the name in counters.
///
/// The field of a tuple variant has a name in the table, for use in these columns.
macro_rules! faults {
    (
        $(#[$meta:meta])*
        pub enum $Fault:ident {
            $(
                $(#[doc = $doc:literal])*
                #[error($($text:tt)+)]
                #[fault($action:expr, $name:expr)]
                $Variant:ident
                $(($inner:tt: $(#[$from:ident])? $Inner:ty))?
                $({ $( $(#[doc = $field_doc:literal])* $field:ident: $Field:ty, )+ })?
                ,
            )+
        }
    ) => {
        $(#[$meta])*
        pub enum $Fault {
            $(
                $(#[doc = $doc])*
                #[error($($text)+)]
                $Variant $(($(#[$from])? $Inner))? $({ $( $(#[doc = $field_doc])* $field: $Field, )+ })?,
            )+
        }

        impl $Fault {
            /// Returns the columns of the table: the action if the message is taken as a Call, and the name.
            pub(crate) const fn row(&self) -> (Action, &'static str) {
                match self {
                    $( Self::$Variant $(($inner))? $({ $( $field: _, )+ })? => ($action, $name), )+
                }
            }
        }
    };
}
pub(crate) use faults;

self::faults! {
    /// A fault of the peer: against RFC 8166, or beyond our [`Limits`](crate::wire::Limits).
    #[derive(Clone, Debug, Error, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ProtocolError {
        /// RFC 8166 §4.5: too short to decode.
        #[error("message of {len} bytes, at least {least} are needed")]
        #[fault(Discard, "short_message")]
        ShortMessage {
            /// Bytes received.
            len: usize,
            /// Bytes needed.
            least: usize,
        },
        /// RFC 8166 §4.5.1.
        #[error("version {version} is not spoken here")]
        #[fault(AnswerVersion, "unsupported_version")]
        UnsupportedVersion {
            /// The `rdma_vers` seen.
            version: u32,
        },
        /// RFC 8166 §4.5.2.
        #[error("unknown rdma_proc {procedure}")]
        #[fault(Answer, "unknown_procedure")]
        UnknownProcedure {
            /// The value seen.
            procedure: u32,
        },
        /// A list runs past the end of the message.
        #[error("the {list} runs past the end of the message")]
        #[fault(Answer, "list_truncated")]
        ListTruncated {
            /// Which one.
            list: List,
        },
        /// An optional-data word is neither 0 nor 1 (RFC 4506 §4.19).
        #[error("discriminator {value} in the {list}, only 0 and 1 exist")]
        #[fault(Answer, "bad_discriminator")]
        BadDiscriminator {
            /// Which list.
            list: List,
            /// The word.
            value: u32,
        },
        /// A segment marked as XDR padding by the discriminator 2, as the last-call slides of 2006 proposed (option A).
        #[error("Read segment marked as padding (discriminator 2), which was never adopted")]
        #[fault(Answer, "padding_segment")]
        PaddingSegment,
        /// A segment marked as XDR padding with the wrong length: a pad has one to three bytes.
        #[error("padding segment of {length} bytes, a pad has 1 to 3")]
        #[fault(Answer, "padding_length")]
        PaddingLength {
            /// Its length.
            length: u32,
        },
        /// A segment marked as XDR padding that does not complete the chunk before it to a multiple of four.
        #[error("padding segment of {length} bytes at Position {position} completes no Read chunk")]
        #[fault(Answer, "misplaced_padding")]
        MisplacedPadding {
            /// The Position.
            position: u32,
            /// The length.
            length: u32,
        },
        /// More Read segments than all Read chunks may have together.
        #[error("more than {allowed} Read segments")]
        #[fault(Answer, "too_many_read_segments")]
        TooManyReadSegments {
            /// The limit.
            allowed: usize,
        },
        /// More Read chunks than allowed.
        #[error("{seen} Read chunks, {allowed} are allowed")]
        #[fault(Answer, "too_many_read_chunks")]
        TooManyReadChunks {
            /// Chunks in the list.
            seen: usize,
            /// The limit.
            allowed: usize,
        },
        /// More segments in one chunk than allowed.
        #[error("{count} segments in one chunk of the {list}, {allowed} are allowed")]
        #[fault(Answer, "too_many_segments")]
        TooManySegments {
            /// Which list.
            list: List,
            /// Segments in the chunk.
            count: u32,
            /// The limit.
            allowed: usize,
        },
        /// More Write chunks than allowed.
        #[error("more than {allowed} Write chunks")]
        #[fault(Answer, "too_many_write_chunks")]
        TooManyWriteChunks {
            /// The limit.
            allowed: usize,
        },
        /// A Read segment is unreasonably large (RFC 8166 §8.1.4).
        #[error("Read segment of {length} bytes, {allowed} are allowed")]
        #[fault(Answer, "read_segment_too_long")]
        ReadSegmentTooLong {
            /// Its length.
            length: u32,
            /// The limit.
            allowed: u64,
        },
        /// The Read segments together are unreasonably large (RFC 8166 §8.1.4).
        #[error("Read list of at least {total} bytes, {allowed} are allowed")]
        #[fault(Answer, "read_list_too_long")]
        ReadListTooLong {
            /// Sum up to the segment that was too much.
            total: u64,
            /// The limit.
            allowed: u64,
        },
        /// RFC 8166 §3.4.5.
        #[error("Position {position} is not a multiple of 4")]
        #[fault(Answer, "unaligned_position")]
        UnalignedPosition {
            /// The Position.
            position: u32,
        },
        /// A Read chunk begins inside the one before it.
        #[error("Read chunk at Position {position} begins before byte {reached}, where the one before it ends")]
        #[fault(Answer, "overlapping_position")]
        OverlappingPosition {
            /// The Position.
            position: u32,
            /// End of the data before it in the unreduced stream.
            reached: u64,
        },
        /// A Read chunk begins beyond the bytes that come before it.
        #[error("Read chunk at Position {position}, but the message has only {available} bytes before it")]
        #[fault(Answer, "position_beyond_message")]
        PositionBeyondMessage {
            /// The Position.
            position: u32,
            /// End of the data before it in the unreduced stream.
            available: u64,
        },
        /// A Position-Zero chunk outside RDMA_NOMSG has no meaning.
        #[error("Position-Zero Read chunk in an RDMA_MSG")]
        #[fault(Answer, "position_zero_in_message")]
        PositionZeroInMessage,
        /// RFC 8166 §4.5.2: RDMA_NOMSG with all lists absent.
        #[error("RDMA_NOMSG without any chunk")]
        #[fault(Answer, "no_chunks")]
        NoChunks,
        /// RFC 8166 §4.2.4: a long Call without its Payload.
        #[error("RDMA_NOMSG Call without a Position-Zero Read chunk")]
        #[fault(Answer, "no_position_zero")]
        NoPositionZero,
        /// RFC 8166 §4.6.1, without the opt-in.
        #[error("RDMA_MSGP is not supported")]
        #[fault(Answer, "padded_message")]
        PaddedMessage,
        /// RFC 5666 §3.9: an impossible alignment.
        #[error("RDMA_MSGP with rdma_align {align}, at least 1 is needed")]
        #[fault(Answer, "bad_alignment")]
        BadAlignment {
            /// `rdma_align`.
            align: u32,
        },
        /// RFC 8166 §4.6.2, without the opt-in to RFC 5666 §3.8.
        #[error("RDMA_DONE has no meaning here")]
        #[fault(Discard, "unexpected_done")]
        UnexpectedDone,
        /// RFC 5666 §3.8: an RDMA_DONE for a reply that is not exposed, or is being closed already.
        #[error("RDMA_DONE for XID {xid:#010x}, under which nothing is exposed")]
        #[fault(Answer, "unknown_done")]
        UnknownDone {
            /// The XID.
            xid: u32,
        },
        /// The Payload is too short to hold the direction of the message.
        #[error("RPC message of {len} bytes, at least {least} are needed")]
        #[fault(Answer, "short_payload")]
        ShortPayload {
            /// Bytes in the Payload.
            len: usize,
            /// Bytes needed.
            least: usize,
        },
        /// RFC 8166 §4.5.2.
        #[error("rdma_xid {header:#010x} differs from the XID {payload:#010x} of the RPC message")]
        #[fault(Answer, "xid_mismatch")]
        XidMismatch {
            /// `rdma_xid`.
            header: u32,
            /// The RPC message's.
            payload: u32,
        },
        /// The RPC direction word is neither CALL nor REPLY, or not the expected one.
        #[error("RPC message type {value} where a {expected} is expected")]
        #[fault(Answer, "wrong_direction")]
        WrongDirection {
            /// The word.
            value: u32,
            /// The direction that is due.
            expected: &'static str,
        },
        /// RFC 8166 §6.1: the Call reduces an item that the Upper-Layer Binding does not allow.
        #[error("{chunks} Read chunks for a procedure with {eligible} DDP-eligible arguments")]
        #[fault(Answer, "not_eligible")]
        NotEligible {
            /// Chunks at non-zero Positions.
            chunks: usize,
            /// DDP-eligible arguments by the binding.
            eligible: usize,
        },
        /// The argument decoder found a chunk without a DDP-eligible item (RFC 8166 §6.1).
        #[error("a Read chunk stands where no DDP-eligible argument is")]
        #[fault(Answer, "misplaced_chunk")]
        MisplacedChunk,
        /// RFC 8167 §5.3.
        #[error("chunks are not supported in the reverse direction")]
        #[fault(Answer, "reverse_chunks")]
        ReverseChunks,
        /// rtissues-03 §3.5: chunks in the forward direction, which this side does not accept.
        #[error("chunks in a Call of the forward direction, where they are not taken")]
        #[fault(Answer, "forward_chunks")]
        ForwardChunks,
        /// The Call needs more memory than the domain can ever give.
        #[error("{len} bytes of Read chunks exceed the memory of this side")]
        #[fault(Answer, "exceeds_memory")]
        ExceedsMemory {
            /// Length of the chunk.
            len: u64,
        },
        /// RFC 8166 §4.5.3: on an earlier connection the RDMA Read of this Call's chunks failed.
        #[error("the chunks of XID {xid:#010x} could not be read on an earlier connection")]
        #[fault(Answer, "earlier_read_failed")]
        EarlierReadFailed {
            /// The XID.
            xid: u32,
        },
        /// The peer allows no RDMA Read (RFC 5666 §6.2), or connection set-up did not (RFC 6581 §9.1).
        #[error("Read chunks from a peer that agreed to 0 RDMA Reads")]
        #[fault(Answer, "reads_not_agreed")]
        ReadsNotAgreed,
        /// RFC 8166 §4.5.3: an item does not fit its Write chunk.
        #[error("result of {len} bytes, its Write chunk holds {capacity}")]
        #[fault(Answer, "write_chunk_too_small")]
        WriteChunkTooSmall {
            /// The chunk's place in the Write list; the first one has 0.
            chunk: usize,
            /// The item's length.
            len: u64,
            /// The chunk's.
            capacity: u64,
        },
        /// RFC 8166 §4.5.3: the reply fits neither inline nor the Reply chunk.
        #[error("reply of {len} bytes, {inline} fit inline and {reply_chunk} in the Reply chunk")]
        #[fault(Answer, "reply_too_long")]
        ReplyTooLong {
            /// The reply's length without what is in Write chunks.
            len: u64,
            /// Inline room for it.
            inline: u64,
            /// Capacity of the Reply chunk; 0 without one.
            reply_chunk: u64,
        },
        /// RFC 5666 §3.8, §11: only Read chunks could carry the reply, and our settings or the grant exclude them.
        #[error(
            "reply with {len} bytes that would have to be exposed, more than is allowed or with too few credits \
             ({grant})"
        )]
        #[fault(Answer, "reply_not_exposed")]
        ReplyNotExposed {
            /// Bytes for Read chunks.
            len: u64,
            /// The grant of the moment.
            grant: u32,
        },
        /// RFC 8166 §4.3.1: a reply has no Read list, without the opt-in to RFC 5666 §3.8.
        #[error("reply with a Read list")]
        #[fault(Answer, "reply_read_list")]
        ReplyReadList,
        /// RFC 5666 §3.8: the reply exposes results that the Upper-Layer Binding does not allow.
        #[error("reply with {chunks} Read chunks, {eligible} DDP-eligible results are possible")]
        #[fault(Answer, "reply_read_chunks")]
        ReplyReadChunks {
            /// Chunks at non-zero Positions.
            chunks: usize,
            /// Results that may leave the stream.
            eligible: usize,
        },
        /// RFC 5666 §3.8: the reply exposes more than its longest length.
        #[error("reply with {len} bytes in its chunks, the call allows {allowed}")]
        #[fault(Answer, "reply_read_too_long")]
        ReplyReadTooLong {
            /// Bytes of the Read list, or of that and the Write list.
            len: u64,
            /// Bytes that the call allows.
            allowed: u64,
        },
        /// RFC 8166 §4.3.2: the reply does not return the offered chunks.
        #[error("reply returns a {list} that differs from the one offered")]
        #[fault(Answer, "reply_list_differs")]
        ReplyListDiffers {
            /// Which one.
            list: List,
        },
        /// RFC 8166 §3.4.6: a returned segment is longer than offered, or follows an unfilled one.
        #[error("reply returns a {list} that is not filled from the front")]
        #[fault(Answer, "reply_list_lengths")]
        ReplyListLengths {
            /// Which one.
            list: List,
        },
        /// RFC 8166 §3.5.3: an RDMA_NOMSG reply is in the Reply chunk, an RDMA_MSG one is not.
        #[error("the Reply chunk returned does not fit rdma_proc")]
        #[fault(Answer, "reply_chunk_use")]
        ReplyChunkUse,
        /// No call of ours is pending under this XID.
        #[error("no call is pending under XID {xid:#010x}")]
        #[fault(Discard, "unknown_xid")]
        UnknownXid {
            /// The XID.
            xid: u32,
        },
        /// RFC 8166 §4.5: an RDMA_ERROR that does not decode.
        #[error("RDMA_ERROR that is cut off")]
        #[fault(Discard, "error_truncated")]
        ErrorTruncated,
        /// RFC 8166 §4.5: an RDMA_ERROR that does not decode.
        #[error("RDMA_ERROR with unknown code {code}")]
        #[fault(Discard, "unknown_error_code")]
        UnknownErrorCode {
            /// The code.
            code: u32,
        },
        /// version-two-01 §5: the version changed on a connection.
        #[error("version {version} after version {used} on the same connection")]
        #[fault(AnswerVersion, "version_changed")]
        VersionChanged {
            /// The `rdma_vers` seen.
            version: u32,
            /// That of the messages before.
            used: u32,
        },
        /// RFC 8166 §3.3.1: more Calls than granted.
        #[error("Call beyond the {granted} credits granted")]
        #[fault(Close, "credits_exceeded")]
        CreditsExceeded {
            /// The highest grant that left.
            granted: u32,
        },
        /// RFC 8797 §4.1: the invalidated handle must belong to the XID of the message.
        #[error("a message for XID {xid:#010x} invalidated a tag of another call")]
        #[fault(Close, "foreign_invalidation")]
        ForeignInvalidation {
            /// The message's XID.
            xid: u32,
        },
        /// A fault of Version Two.
        #[error(transparent)]
        #[fault(error.row().0, error.row().1)]
        Two(error: #[from] two::Error),
    }
}

/// The kind of an unusable message. If its direction is unknown, the role of this side decides: a server mostly
/// receives Calls, a client replies (RFC 8167 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A Call: faults are answered.
    AsCall,
    /// A reply (or an error): faults are discarded.
    AsReply,
}

impl From<Direction> for Taken {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Call => Self::AsCall,
            Direction::Reply => Self::AsReply,
        }
    }
}

/// The consequence of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Send nothing, and post the Receive again. RFC 8166 requires that for short messages (§4.5), RDMA_DONEs (§4.6.2),
    /// and faults of replies and errors (§4.2.4, §4.5).
    Discard,
    /// RDMA_ERROR with ERR_VERS (RFC 8166 §4.5.1).
    AnswerVersion,
    /// Send RDMA_ERROR in the form of the version ([`Codec::refusal`](crate::wire::Codec::refusal)): ERR_CHUNK (RFC
    /// 8166 §4.5.2, §4.5.3).
    Answer,
    /// End the connection: the only defence against a peer that violates the flow control or invalidates the memory of
    /// others.
    Close,
}

impl ProtocolError {
    /// Returns the consequence of the fault (RFC 8166 §4.5, §4.6).
    #[must_use]
    pub const fn action(&self, taken: Taken) -> Action {
        match (self.row().0, taken) {
            (Answer | AnswerVersion, Taken::AsReply) => Discard,
            (action, _) => action,
        }
    }

    /// Returns a stable name of the variant, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.row().1
    }
}
