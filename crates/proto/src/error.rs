//! The peer's faults: one variant per refusal, and the one function that says what each is answered with.
//!
//! Nothing is owned here. An error is never answered with an error: what is wrong in a reply or in an RDMA_ERROR is
//! discarded (RFC 8166 §4.5), only what is taken as a Call is answered.

use std::fmt;

use thiserror::Error;

use crate::wire::Direction;
use crate::wire::two::combined;
use crate::wire::two::transmission::{ErrorReport, Malformed};

/// Which part of a header did not decode.
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
    /// The words before the lists in Version Two.
    Direction,
    /// The handle before the lists in version-two-07 §6.3.
    Handle,
    /// The word before a part of a Payload in version-two-07 §6.3.
    Remaining,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "Read list",
            Self::Write => "Write list",
            Self::Reply => "Reply chunk",
            Self::Padding => "RDMA_MSGP words",
            Self::Direction => "rdma_direction",
            Self::Handle => "rdma_inv_handle",
            Self::Remaining => "rdma_remaining",
        })
    }
}

/// What a peer did against RFC 8166, or beyond our [`Limits`](crate::limits::Limits).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// RFC 8166 §4.5: too short to be looked at.
    #[error("message of {len} bytes, at least {least} are needed")]
    ShortMessage {
        /// Bytes received.
        len: usize,
        /// Bytes needed.
        least: usize,
    },
    /// RFC 8166 §4.5.1.
    #[error("version {version} is not spoken here")]
    UnsupportedVersion {
        /// The `rdma_vers` seen.
        version: u32,
    },
    /// RFC 8166 §4.5.2.
    #[error("unknown rdma_proc {procedure}")]
    UnknownProcedure {
        /// The value seen.
        procedure: u32,
    },
    /// A list runs past the end of the message.
    #[error("the {list} runs past the end of the message")]
    ListTruncated {
        /// Which one.
        list: List,
    },
    /// An optional-data word is neither 0 nor 1 (RFC 4506 §4.19).
    #[error("discriminator {value} in the {list}, only 0 and 1 exist")]
    BadDiscriminator {
        /// Which list.
        list: List,
        /// The word.
        value: u32,
    },
    /// A segment marked as XDR padding by the discriminator 2, as the last-call slides of 2006 proposed (option A).
    #[error("Read segment marked as padding (discriminator 2), which was never adopted")]
    PaddingSegment,
    /// A segment marked as XDR padding that is no pad: that has one to three bytes.
    #[error("padding segment of {length} bytes, a pad has 1 to 3")]
    PaddingLength {
        /// Its length.
        length: u32,
    },
    /// A segment marked as XDR padding that does not complete the chunk before it to a multiple of four.
    #[error("padding segment of {length} bytes at Position {position} completes no Read chunk")]
    MisplacedPadding {
        /// The Position.
        position: u32,
        /// The length.
        length: u32,
    },
    /// More Read segments than all Read chunks may have together.
    #[error("more than {allowed} Read segments")]
    TooManyReadSegments {
        /// The limit.
        allowed: usize,
    },
    /// More Read chunks than allowed.
    #[error("{seen} Read chunks, {allowed} are allowed")]
    TooManyReadChunks {
        /// Chunks in the list.
        seen: usize,
        /// The limit.
        allowed: usize,
    },
    /// More segments in one chunk than allowed.
    #[error("{count} segments in one chunk of the {list}, {allowed} are allowed")]
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
    TooManyWriteChunks {
        /// The limit.
        allowed: usize,
    },
    /// One Read segment is unreasonably large (RFC 8166 §8.1.4).
    #[error("Read segment of {length} bytes, {allowed} are allowed")]
    ReadSegmentTooLong {
        /// Its length.
        length: u32,
        /// The limit.
        allowed: u64,
    },
    /// The Read segments together are unreasonably large (RFC 8166 §8.1.4).
    #[error("Read list of at least {total} bytes, {allowed} are allowed")]
    ReadListTooLong {
        /// Sum up to the segment that was too much.
        total: u64,
        /// The limit.
        allowed: u64,
    },
    /// RFC 8166 §3.4.5.
    #[error("Position {position} is not a multiple of 4")]
    UnalignedPosition {
        /// The Position.
        position: u32,
    },
    /// A Read chunk begins inside the one before it.
    #[error("Read chunk at Position {position} begins before byte {reached}, where the one before it ends")]
    OverlappingPosition {
        /// The Position.
        position: u32,
        /// End of the data before it in the unreduced stream.
        reached: u64,
    },
    /// A Read chunk begins beyond the bytes that come before it.
    #[error("Read chunk at Position {position}, but the message has only {available} bytes before it")]
    PositionBeyondMessage {
        /// The Position.
        position: u32,
        /// End of the data before it in the unreduced stream.
        available: u64,
    },
    /// A Position-Zero chunk outside RDMA_NOMSG has no meaning.
    #[error("Position-Zero Read chunk in an RDMA_MSG")]
    PositionZeroInMessage,
    /// version-two-07 §6.3.7: the Position-Zero chunk stands among those of data items.
    #[error("Position-Zero Read segment in rdma_reads")]
    PositionZeroInReads,
    /// version-two-07 §6.3.5: the Call chunk is a Position-Zero chunk.
    #[error("Call chunk with a segment at Position {position}, only 0 is possible")]
    CallChunkPosition {
        /// The Position.
        position: u32,
    },
    /// version-two-07 §4.5.1.1: Positions of a Read list go up.
    #[error("Read segment at Position {position} behind one at {before}")]
    PositionOrder {
        /// The Position.
        position: u32,
        /// That of the segment before it.
        before: u32,
    },
    /// RFC 8166 §4.5.2: RDMA_NOMSG with all lists absent.
    #[error("RDMA_NOMSG without any chunk")]
    NoChunks,
    /// RFC 8166 §4.2.4: a long Call without its Payload.
    #[error("RDMA_NOMSG Call without a Position-Zero Read chunk")]
    NoPositionZero,
    /// RFC 8166 §4.6.1, without the opt-in.
    #[error("RDMA_MSGP is not supported")]
    PaddedMessage,
    /// RFC 5666 §3.9: an alignment that nothing can have.
    #[error("RDMA_MSGP with rdma_align {align}, at least 1 is needed")]
    BadAlignment {
        /// `rdma_align`.
        align: u32,
    },
    /// RFC 8166 §4.6.2, without the opt-in to RFC 5666 §3.8.
    #[error("RDMA_DONE has no meaning here")]
    UnexpectedDone,
    /// RFC 5666 §3.8: an RDMA_DONE for no reply that is exposed, or for one that is being closed already.
    #[error("RDMA_DONE for XID {xid:#010x}, under which nothing is exposed")]
    UnknownDone {
        /// The XID.
        xid: u32,
    },
    /// The Payload is too short to say whether it is a Call.
    #[error("RPC message of {len} bytes, at least {least} are needed")]
    ShortPayload {
        /// Bytes in the Payload.
        len: usize,
        /// Bytes needed.
        least: usize,
    },
    /// RFC 8166 §4.5.2.
    #[error("rdma_xid {header:#010x} differs from the XID {payload:#010x} of the RPC message")]
    XidMismatch {
        /// `rdma_xid`.
        header: u32,
        /// The RPC message's.
        payload: u32,
    },
    /// The RPC direction word is neither CALL nor REPLY, or not the one expected.
    #[error("RPC message type {value} where a {expected} is expected")]
    WrongDirection {
        /// The word.
        value: u32,
        /// What it should say.
        expected: &'static str,
    },
    /// RFC 8166 §6.1: something is reduced that the Upper-Layer Binding does not allow to be.
    #[error("{chunks} Read chunks for a procedure with {eligible} DDP-eligible arguments")]
    NotEligible {
        /// Chunks at non-zero Positions.
        chunks: usize,
        /// What the binding allows.
        eligible: usize,
    },
    /// The argument decoder met a chunk where no DDP-eligible item is (RFC 8166 §6.1).
    #[error("a Read chunk stands where no DDP-eligible argument is")]
    MisplacedChunk,
    /// RFC 8167 §5.3.
    #[error("chunks are not supported in the reverse direction")]
    ReverseChunks,
    /// rtissues-03 §3.5: chunks in the forward direction where they were not taken.
    #[error("chunks in a Call of the forward direction, where they are not taken")]
    ForwardChunks,
    /// The Call needs more memory than the domain can ever give.
    #[error("{len} bytes of Read chunks exceed the memory of this side")]
    ExceedsMemory {
        /// Length of the chunk.
        len: u64,
    },
    /// RFC 8166 §4.5.3: on an earlier connection the RDMA Read of this Call's chunks failed.
    #[error("the chunks of XID {xid:#010x} could not be read on an earlier connection")]
    EarlierReadFailed {
        /// The XID.
        xid: u32,
    },
    /// The peer said that no RDMA Read can be under way at it (RFC 5666 §6.2), or connection set-up did (RFC 6581 §9.1).
    #[error("Read chunks from a peer that agreed to 0 RDMA Reads")]
    ReadsNotAgreed,
    /// RFC 8166 §4.5.3: an item does not fit its Write chunk.
    #[error("result of {len} bytes, its Write chunk holds {capacity}")]
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
    ReplyTooLong {
        /// The reply's length without what is in Write chunks.
        len: u64,
        /// Inline room for it.
        inline: u64,
        /// Capacity of the Reply chunk; 0 without one.
        reply_chunk: u64,
    },
    /// RFC 5666 §3.8, §11: only Read chunks could carry the reply, and our settings or the grant do not let it be exposed.
    #[error(
        "reply with {len} bytes that would have to be exposed, more than is allowed or with too few credits ({grant})"
    )]
    ReplyNotExposed {
        /// Bytes for Read chunks.
        len: u64,
        /// The grant of the moment.
        grant: u32,
    },
    /// RFC 8166 §4.3.1: a reply has no Read list, without the opt-in to RFC 5666 §3.8.
    #[error("reply with a Read list")]
    ReplyReadList,
    /// RFC 5666 §3.8: results are exposed that the Upper-Layer Binding does not allow to be.
    #[error("reply with {chunks} Read chunks, {eligible} DDP-eligible results are possible")]
    ReplyReadChunks {
        /// Chunks at non-zero Positions.
        chunks: usize,
        /// Results that may leave the stream.
        eligible: usize,
    },
    /// RFC 5666 §3.8: more is exposed than the reply may be long.
    #[error("reply with {len} bytes in its chunks, the call allows {allowed}")]
    ReplyReadTooLong {
        /// Bytes of the Read list, or of that and the Write list.
        len: u64,
        /// What the call said.
        allowed: u64,
    },
    /// RFC 8166 §4.3.2: a reply returns the chunks that it was given.
    #[error("reply returns a {list} that differs from the one offered")]
    ReplyListDiffers {
        /// Which one.
        list: List,
    },
    /// RFC 8166 §3.4.6: a returned segment says more than was offered, or a gap was left before it.
    #[error("reply returns a {list} that is not filled from the front")]
    ReplyListLengths {
        /// Which one.
        list: List,
    },
    /// RFC 8166 §3.5.3: an RDMA_NOMSG reply is in the Reply chunk, an RDMA_MSG one is not.
    #[error("the Reply chunk returned does not fit rdma_proc")]
    ReplyChunkUse,
    /// No call of ours is pending under this XID.
    #[error("no call is pending under XID {xid:#010x}")]
    UnknownXid {
        /// The XID.
        xid: u32,
    },
    /// RFC 8166 §4.5: an RDMA_ERROR that does not decode.
    #[error("RDMA_ERROR that is cut off")]
    ErrorTruncated,
    /// RFC 8166 §4.5: an RDMA_ERROR that does not decode.
    #[error("RDMA_ERROR with unknown code {code}")]
    UnknownErrorCode {
        /// The code.
        code: u32,
    },
    /// version-two-01 §4.2: `rdma_direction` or `rdma_optdir` is neither CALL nor REPLY.
    #[error("rdma_direction {value}, only 0 and 1 exist")]
    BadDirection {
        /// The word.
        value: u32,
    },
    /// version-two-01 §3.1: an optional operation that is not supported.
    #[error("rdma_opttype {operation} is not supported")]
    UnknownOperation {
        /// `rdma_opttype`.
        operation: u32,
    },
    /// xcharext-02 §2.1: an operation on characteristics runs past its end.
    #[error("an operation on characteristics runs past the end of the message")]
    OperationTruncated,
    /// version-two-07 §5.1: the data of a property runs past the end of the message.
    #[error("property {id:#x} with {len} bytes of data, which is more than the message has")]
    ValueTruncated {
        /// Its id.
        id: u32,
        /// The length that is said.
        len: u32,
    },
    /// xcharext-02 §4: `rdma_optinfo` goes on behind the operation.
    #[error("an operation on characteristics ends before its rdma_optinfo")]
    OperationTooLong,
    /// RFC 4506 §4.4: a bool is neither 0 nor 1.
    #[error("bool {value}, only 0 and 1 exist")]
    BadFlag {
        /// The word.
        value: u32,
    },
    /// More characteristics, or words of a subset, than are looked at.
    #[error("{count} characteristics in one operation, {allowed} are allowed")]
    TooManyCharacteristics {
        /// The count seen.
        count: u32,
        /// The limit.
        allowed: usize,
    },
    /// xcharext-02 §2.1: a subset names elements that its set does not have.
    #[error("a subset names element {end} of a set of {len}")]
    SubsetTooLong {
        /// How many elements the set would need.
        end: usize,
        /// How many it has.
        len: usize,
    },
    /// xcharext-02 §2.1: the data of a characteristic is not of its type.
    #[error("characteristic {id:#x} with {len} bytes that are not a value of it")]
    BadCharacteristic {
        /// Its id.
        id: u32,
        /// Bytes of its data.
        len: usize,
    },
    /// xcharext-02 §4.3: a response to no request.
    #[error("a response about characteristics under XID {xid:#010x}, under which nothing was asked")]
    UnexpectedResponse {
        /// The XID.
        xid: u32,
    },
    /// xcharext-02 §4.3: done, rejected and pending are not apart, or do not cover what was asked.
    #[error("a response says {saying} of element {place} of the request")]
    ResponseUnclear {
        /// The element.
        place: usize,
        /// How much is said of it.
        saying: &'static str,
    },
    /// xcharext-02 §3.1: Receives got smaller although nobody had asked for it.
    #[error("Receives of {size} bytes instead of {before}, which nobody has asked for")]
    UnaskedReduction {
        /// What is said.
        size: u32,
        /// What was said before.
        before: u32,
    },
    /// xcharext-02 §4.4: an update of something that is not known.
    #[error("an update of characteristic {id:#x}, which is not known")]
    UnknownCharacteristic {
        /// Its id.
        id: u32,
    },
    /// More operations on characteristics than are taken.
    #[error("more than {allowed} operations on characteristics without a Call or reply between them")]
    TooManyOperations {
        /// The limit.
        allowed: u32,
    },
    /// version-two-01 §4.2.2: the header's direction is not that of the RPC message.
    #[error("rdma_direction {header:?} before an RPC message that goes the other way")]
    DirectionMismatch {
        /// What the header says.
        header: crate::wire::Direction,
    },
    /// version-two-01 §4.2.2: a Requester's operation says REPLY, or that of a Responder CALL.
    #[error("rdma_optdir {said:?} in an operation of rdma_opttype {operation}, which goes the other way")]
    OperationDirection {
        /// `rdma_opttype`.
        operation: u32,
        /// `rdma_optdir`.
        said: Direction,
    },
    /// version-two-01 §5: the version changed on a connection.
    #[error("version {version} after version {used} on the same connection")]
    VersionChanged {
        /// The `rdma_vers` seen.
        version: u32,
        /// That of the messages before.
        used: u32,
    },
    /// A message that is valid in another document of the same version.
    #[error(
        "a message of {theirs:?} of Version Two, where {ours:?} is spoken: none of its documents interoperates with another"
    )]
    OtherProfile {
        /// What is spoken here.
        ours: crate::wire::two::Profile,
        /// What the bytes look like.
        theirs: crate::wire::two::Profile,
    },
    /// RFC 8166 §3.3.1: more Calls than were granted.
    #[error("Call beyond the {granted} credits granted")]
    CreditsExceeded {
        /// The highest grant that left.
        granted: u32,
    },
    /// version-two-07 §4.2.1: a message beyond the limit that was told.
    #[error("message beyond the limit of {limit}, by the count of all that have come")]
    LimitExceeded {
        /// The limit that was told last.
        limit: u32,
    },
    /// version-two-07 §6.3.4: properties are told once.
    #[error("properties after the last message of them")]
    ToldTwice,
    /// version-two-07 §6.3.3, §6.3.6, §6.3.9: what was begun goes on, and nothing else comes before its end.
    #[error("a message of type {procedure} where {expected} has to go on")]
    Interrupted {
        /// The `rdma_proc` seen.
        procedure: u32,
        /// What had begun.
        expected: &'static str,
    },
    /// version-two-07 §6.3.6: what is said to remain of a continued message does not agree with what has come.
    #[error("{seen} bytes remain of a continued message, {expected} should")]
    ContinuationLength {
        /// Bytes that are said to remain, or that the last part has.
        seen: usize,
        /// What that should be.
        expected: usize,
    },
    /// A continued message that is longer than what is taken.
    #[error("continued message of {len} bytes, {allowed} are taken")]
    ContinuationTooLong {
        /// Its length.
        len: usize,
        /// The limit.
        allowed: usize,
    },
    /// There is no memory for a continued Call.
    #[error("no memory for a continued message of {len} bytes")]
    ContinuationMemory {
        /// Its length.
        len: usize,
    },
    /// A continued message in more Sends than are taken.
    #[error("continued message in more than {allowed} parts")]
    TooManyParts {
        /// The limit.
        allowed: usize,
    },
    /// rtrext-02: an operation or property on transmissions that does not decode.
    #[error(transparent)]
    RoundTrips(#[from] Malformed),
    /// rtrext-02 §5.4: a transmission group that is not as it has to be.
    #[error("transmission {} of XID {:#010x}: {}", .0.bad.number, .0.bad.xid, .0.error)]
    Group(ErrorReport),
    /// The peer refuses a Send of several messages, which it has said that it takes.
    #[error("several messages in one Send are refused by a peer that says that it takes them")]
    CombinedRefused,
    /// A Send of several messages that is not as it says.
    #[error(transparent)]
    Combined(#[from] combined::Malformed),
    /// A message in several transmissions that is longer than what is taken.
    #[error("message of {len} bytes in a transmission group, {allowed} are taken")]
    GroupTooLong {
        /// What its sender is told.
        report: ErrorReport,
        /// Its length, as far as it is known: Payload stream, and items in Receives.
        len: u64,
        /// The limit.
        allowed: usize,
    },
    /// RFC 8797 §4.1: the tag invalidated must belong to the XID answered.
    #[error("a message for XID {xid:#010x} invalidated a tag of another call")]
    ForeignInvalidation {
        /// The message's XID.
        xid: u32,
    },
}

/// How a message that cannot be used is seen: its direction if known, else by what this side usually receives
/// (RFC 8167 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// As a Call: faults are answered.
    AsCall,
    /// As a reply (or an error): faults are discarded.
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

/// What a fault leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Nothing is sent; the Receive is posted again.
    Discard,
    /// RDMA_ERROR with ERR_VERS (RFC 8166 §4.5.1).
    AnswerVersion,
    /// RDMA_ERROR as the version says ([`Codec::refusal`](crate::wire::Codec::refusal)): ERR_CHUNK (RFC 8166 §4.5.2, §4.5.3).
    Answer,
    /// The connection ends.
    Close,
}

impl ProtocolError {
    /// What the fault leads to. RFC 8166 §4.5, §4.6; reference table of this crate's tests.
    #[must_use]
    pub fn action(&self, taken: Taken) -> Action {
        match self {
            // Against a peer that breaks the flow control or takes away the memory of others there is only one means.
            Self::CreditsExceeded { .. }
            | Self::LimitExceeded { .. }
            | Self::ForeignInvalidation { .. }
            // Calls were in it that can have no answer (RFC 8166 §4.5.4).
            | Self::Combined(_)
            | Self::CombinedRefused
            | Self::TooManyOperations { .. } => Action::Close,
            // RFC 8166 §4.5 (too short), §4.6.2 (RDMA_DONE), §4.2.4 and §4.5 (an error is never answered).
            Self::ShortMessage { .. }
            | Self::UnexpectedDone
            | Self::ErrorTruncated
            | Self::UnknownErrorCode { .. }
            | Self::UnexpectedResponse { .. }
            | Self::ResponseUnclear { .. }
            | Self::UnaskedReduction { .. }
            | Self::UnknownCharacteristic { .. }
            | Self::UnknownXid { .. } => Action::Discard,
            _ if taken == Taken::AsReply => Action::Discard,
            Self::UnsupportedVersion { .. } | Self::VersionChanged { .. } => Action::AnswerVersion,
            _ => Action::Answer,
        }
    }

    /// What the sender of a transmission group is told (rtrext-02 §5.4).
    #[must_use]
    pub const fn report(&self) -> Option<ErrorReport> {
        match self {
            Self::Group(report) | Self::GroupTooLong { report, .. } => Some(*report),
            _ => None,
        }
    }

    /// Whether it is about an operation on characteristics that did not decode.
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

    /// A stable name of the variant, for counters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ShortMessage { .. } => "short_message",
            Self::UnsupportedVersion { .. } => "unsupported_version",
            Self::UnknownProcedure { .. } => "unknown_procedure",
            Self::ListTruncated { .. } => "list_truncated",
            Self::BadDiscriminator { .. } => "bad_discriminator",
            Self::PaddingSegment => "padding_segment",
            Self::PaddingLength { .. } => "padding_length",
            Self::MisplacedPadding { .. } => "misplaced_padding",
            Self::TooManyReadSegments { .. } => "too_many_read_segments",
            Self::TooManyReadChunks { .. } => "too_many_read_chunks",
            Self::TooManySegments { .. } => "too_many_segments",
            Self::TooManyWriteChunks { .. } => "too_many_write_chunks",
            Self::ReadSegmentTooLong { .. } => "read_segment_too_long",
            Self::ReadListTooLong { .. } => "read_list_too_long",
            Self::UnalignedPosition { .. } => "unaligned_position",
            Self::OverlappingPosition { .. } => "overlapping_position",
            Self::PositionBeyondMessage { .. } => "position_beyond_message",
            Self::PositionZeroInMessage => "position_zero_in_message",
            Self::PositionZeroInReads => "position_zero_in_reads",
            Self::CallChunkPosition { .. } => "call_chunk_position",
            Self::PositionOrder { .. } => "position_order",
            Self::NoChunks => "no_chunks",
            Self::NoPositionZero => "no_position_zero",
            Self::PaddedMessage => "padded_message",
            Self::BadAlignment { .. } => "bad_alignment",
            Self::UnexpectedDone => "unexpected_done",
            Self::UnknownDone { .. } => "unknown_done",
            Self::ShortPayload { .. } => "short_payload",
            Self::XidMismatch { .. } => "xid_mismatch",
            Self::WrongDirection { .. } => "wrong_direction",
            Self::NotEligible { .. } => "not_eligible",
            Self::MisplacedChunk => "misplaced_chunk",
            Self::ReverseChunks => "reverse_chunks",
            Self::ForwardChunks => "forward_chunks",
            Self::ExceedsMemory { .. } => "exceeds_memory",
            Self::EarlierReadFailed { .. } => "earlier_read_failed",
            Self::ReadsNotAgreed => "reads_not_agreed",
            Self::WriteChunkTooSmall { .. } => "write_chunk_too_small",
            Self::ReplyTooLong { .. } => "reply_too_long",
            Self::ReplyNotExposed { .. } => "reply_not_exposed",
            Self::ReplyReadList => "reply_read_list",
            Self::ReplyReadChunks { .. } => "reply_read_chunks",
            Self::ReplyReadTooLong { .. } => "reply_read_too_long",
            Self::ReplyListDiffers { .. } => "reply_list_differs",
            Self::ReplyListLengths { .. } => "reply_list_lengths",
            Self::ReplyChunkUse => "reply_chunk_use",
            Self::UnknownXid { .. } => "unknown_xid",
            Self::ErrorTruncated => "error_truncated",
            Self::UnknownErrorCode { .. } => "unknown_error_code",
            Self::BadDirection { .. } => "bad_direction",
            Self::UnknownOperation { .. } => "unknown_operation",
            Self::OperationTruncated => "operation_truncated",
            Self::OperationTooLong => "operation_too_long",
            Self::ValueTruncated { .. } => "value_truncated",
            Self::BadFlag { .. } => "bad_flag",
            Self::TooManyCharacteristics { .. } => "too_many_characteristics",
            Self::SubsetTooLong { .. } => "subset_too_long",
            Self::BadCharacteristic { .. } => "bad_characteristic",
            Self::UnexpectedResponse { .. } => "unexpected_response",
            Self::ResponseUnclear { .. } => "response_unclear",
            Self::UnaskedReduction { .. } => "unasked_reduction",
            Self::UnknownCharacteristic { .. } => "unknown_characteristic",
            Self::TooManyOperations { .. } => "too_many_operations",
            Self::DirectionMismatch { .. } => "direction_mismatch",
            Self::OperationDirection { .. } => "operation_direction",
            Self::VersionChanged { .. } => "version_changed",
            Self::OtherProfile { .. } => "other_profile",
            Self::CreditsExceeded { .. } => "credits_exceeded",
            Self::LimitExceeded { .. } => "limit_exceeded",
            Self::ToldTwice => "told_twice",
            Self::Interrupted { .. } => "interrupted",
            Self::ContinuationLength { .. } => "continuation_length",
            Self::ContinuationTooLong { .. } => "continuation_too_long",
            Self::ContinuationMemory { .. } => "continuation_memory",
            Self::TooManyParts { .. } => "too_many_parts",
            Self::RoundTrips(malformed) => malformed.name(),
            Self::Group(report) => report.error.name(),
            Self::Combined(_) => "combined",
            Self::CombinedRefused => "combined_refused",
            Self::GroupTooLong { .. } => "group_too_long",
            Self::ForeignInvalidation { .. } => "foreign_invalidation",
        }
    }
}
