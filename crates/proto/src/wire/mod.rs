//! The transport header: what every version shares.
//!
//! A version of RPC-over-RDMA is a codec plus a table of rules ([`Codec`], [`Rules`]); the rest of the crate works on the
//! typed [`Header`] and never on the byte layout of one version. Nothing here owns a buffer: decoding borrows the
//! received bytes, encoding appends to the caller's. Every refusal is a [`ProtocolError`]; what is answered, if anything,
//! is decided in one place, [`ProtocolError::action`].

pub mod combined;
pub mod exchange;
mod lists;
mod reader;
pub mod round_trips;
pub mod segment;
pub mod v1;
pub mod v2_p1;
pub mod v2_p2;
pub mod v2_p3;

use std::fmt;

use bytes::{BufMut, BytesMut};

use crate::error::ProtocolError;
use crate::limits::Limits;
pub use exchange::{Exchange, Rest, Subset, Value};
use reader::Reader;
use round_trips::{ErrorReport, Operation, OperationBase, OperationType, TransmitRequest, TransmitResponse};
pub use segment::{ChunkLists, ReadSegment, Segment, WriteChunk};

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
    /// Reads the first sixteen bytes; the only part that may be looked at before the version is known.
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
    /// Which way it goes, where the header says so: in Version Two. Elsewhere the Payload does (RFC 8166 §4.2.1).
    pub direction: Option<Direction>,
    /// `rdma_inv_handle`: what the answer to this Call may invalidate; 0 for nothing. Only in version-two-03 §6.2.3 and later;
    /// 0 elsewhere.
    pub invalidate: u32,
    /// What `rdma_proc` selects.
    pub body: Body,
}

/// Which way a message goes: `msg_type` of RFC 5531 §9, `rdma_direction` of version-two-01 §4.2.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From a Requester to a Responder.
    #[default]
    Call,
    /// From a Responder to a Requester.
    Reply,
}

impl Direction {
    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> u32 {
        match self {
            Self::Call => 0,
            Self::Reply => 1,
        }
    }

    /// What the word on the wire says.
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
    /// A header of Version One, which says neither direction nor what may be invalidated.
    #[must_use]
    pub const fn v1(xid: u32, credit: u32, body: Body) -> Self {
        Self { xid, version: v1::VERSION, credit, direction: None, invalidate: 0, body }
    }
}

/// What `rdma_proc` selects (RFC 8166 §4.1.2, §4.2.4).
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
    /// An operation on characteristics: RDMA2_OPTIONAL of xcharext-02 §4, or a message type of its own (version-two-03 §5.3).
    Exchange(Exchange),
    /// RDMA2_CALL_MIDDLE, RDMA2_REPLY_MIDDLE: a part of the Payload stream follows, and more messages do (version-two-07 §6.3.6,
    /// §6.3.9).
    Middle {
        /// `rdma_remaining`: bytes of the Payload stream that come in the messages after this one.
        remaining: u32,
    },
    /// ROPT_XMTREQ, ROPT_XMTRESP, ROPT_XMTCONT: what follows is told by the operation (rtrext-02 §9). A ROPT_REPTERR is an
    /// [`ErrorBody::Report`].
    Transmission(Operation),
    /// Several messages in one Send, with these lengths; they follow the header ([`combined`]).
    Combined(Vec<u32>),
    /// RDMA2_GRANT: nothing but `rdma_credit` (version-two-07 §6.3.2).
    Grant,
}

/// The arms of an RDMA_ERROR (RFC 8166 §4.5, version-two-03 §6.2.4). A version has some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// RDMA2_ERR_INVAL_OPTION: an operation that is not known or not supported (version-two-01 §3.1).
    InvalidOption,
    /// RDMA2_ERR_INVAL_PROC, later RDMA2_ERR_INVAL_HTYPE: an `rdma_proc` that is not known (version-two-03 §6.2.4).
    InvalidProcedure,
    /// RDMA2_ERR_REPLY_RESOURCE: the chunks offered do not hold the reply (version-two-03 §6.2.4); in version-two-07 §7.3.5 the
    /// Reply chunk, and no segment is named.
    ReplyResource {
        /// Which segment is too short, counted from 1 over the Write list and the Reply chunk; 0 if that is not known.
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

impl fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { low, high } => write!(f, "versions {low} to {high} only"),
            Self::Chunk => f.write_str("transport header or chunk error"),
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

/// Which way a message goes and how many chunks and segments it carries: all that the length of its header depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Which way it goes.
    pub direction: Direction,
    /// Read segments, of all chunks together.
    pub read_segments: usize,
    /// Segments of each Write chunk.
    pub write_segments: Vec<usize>,
    /// Segments of the Reply chunk, if there is one.
    pub reply_segments: Option<usize>,
    /// Whether the message itself is in a Read chunk, the Position-Zero chunk.
    pub long: bool,
}

/// The table of rules of one version: what differs from others besides the bytes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rules {
    /// The value of `rdma_vers`.
    pub version: u32,
    /// Which of the documents that have this version: none interoperates with another.
    pub profile: Option<Profile>,
    /// How it is called in messages to people.
    pub name: &'static str,
    /// The inline threshold of each direction when nothing says more, in bytes; also the least one.
    pub default_inline: usize,
    /// The largest inline threshold that can be negotiated, in bytes.
    pub largest_inline: usize,
    /// Credits a Requester may assume before the first reply (RFC 8166 §3.3.3).
    pub initial_credits: u32,
    /// How the Requester says what may be invalidated.
    pub invalidation: Invalidation,
    /// What `rdma_credit` counts.
    pub credits: CreditRule,
    /// How characteristics are told, if there are any.
    pub characteristics: CharacteristicsRule,
    /// Whether a reply that follows its header returns the Reply chunk, unused (RFC 8166 §4.3.3).
    pub returns_reply_chunk: bool,
    /// Bytes of the header of each part but the last of a message that comes in several Sends; `None` if none does.
    pub part_header: Option<usize>,
    /// Which numbers the operations on transmissions have (rtrext-02 §9.1); `None` if there are none.
    pub groups: Option<OperationBase>,
}

/// The documents that define Version Two, each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// draft-cel-nfsv4-rpcrdma-version-two-01 with draft-dnoveck-nfsv4-rpcrdma-xcharext-02.
    P1,
    /// draft-cel-nfsv4-rpcrdma-version-two-03.
    P2,
    /// draft-ietf-nfsv4-rpcrdma-version-two-07.
    P3,
}

impl Profile {
    /// Its codec, with the operations on transmissions under the numbers that do not stand in the way of others.
    #[must_use]
    pub const fn codec(self) -> &'static dyn Codec {
        self.codec_with(OperationBase::Separate)
    }

    /// Its codec, with the operations on transmissions under these numbers, if they can have others.
    pub(crate) const fn codec_with(self, operations: OperationBase) -> &'static dyn Codec {
        match (self, operations) {
            (Self::P1, _) => &v2_p1::V2P1,
            (Self::P2, OperationBase::Separate) => &v2_p2::V2P2(OperationBase::Separate),
            (Self::P2, OperationBase::Tables) => &v2_p2::V2P2(OperationBase::Tables),
            (Self::P3, _) => &v2_p3::V2P3,
        }
    }
}

/// How a Requester says whether a reply may come by Send with Invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Both sides say so at connection set-up (RFC 8797 §4.1).
    PrivateData,
    /// By a characteristic of the Requester (xcharext-02 §3.2).
    Characteristic,
    /// In each Call, with the handle to take (version-two-03 §6.2.3).
    PerCall,
}

/// What a credit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditRule {
    /// A Call and its reply (RFC 8166 §3.3.1).
    PerTransaction,
    /// A message, whichever way the RPC in it goes (version-two-07 §4.2.1).
    PerMessage,
}

/// How the two sides tell each other what they are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CharacteristicsRule {
    /// Not at all.
    None,
    /// By operations at any time, which can be refused as a whole (xcharext-02 §4, version-two-03 §5.3).
    Exchanged,
    /// Once, at the beginning, in one message or several (version-two-07 §5.1).
    Once,
}

/// One version of the protocol on the wire.
pub trait Codec: fmt::Debug + Send + Sync {
    /// The rules that go with the bytes.
    fn rules(&self) -> &'static Rules;

    /// Decodes a header strictly and says how many bytes it took; the Payload stream, if there is one, follows.
    ///
    /// # Errors
    /// Each refusal is its own [`ProtocolError`] variant.
    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError>;

    /// Whether a message of this `rdma_proc` is a part of one that goes on behind it ([`Body::Middle`]).
    fn is_part(&self, procedure: u32) -> bool {
        let _ = procedure;
        false
    }

    /// The direction that every message of this `rdma_proc` has, if the version has types for each (version-two-07 §6.3): known also
    /// of one that does not decode.
    fn direction_of(&self, procedure: u32) -> Option<Direction> {
        let _ = procedure;
        None
    }

    /// The length in bytes of a message header of this shape.
    fn header_len(&self, shape: &Shape) -> usize;

    /// What a Call is answered with that is refused for this.
    fn refusal(&self, error: &ProtocolError) -> ErrorBody;

    /// The bytes that the header of an RDMA_MSGP has beyond that; `None` if the version has no such message.
    fn padded_extra(&self) -> Option<usize>;

    /// Appends the encoded header to `out`. A body that this version does not have is a fault of the caller: it is encoded as an
    /// RDMA_ERROR about the header, which can harm nobody.
    fn encode(&self, header: &Header, out: &mut BytesMut);
}

/// Opens a header of `version`: its fixed part, and a reader of what follows. `least` says how many bytes a message of an
/// `rdma_proc` has at least; what is shorter is not parsed at all (RFC 8166 §4.5).
fn open(message: &[u8], version: u32, least: fn(u32) -> usize) -> Result<(Fixed, Reader<'_>), ProtocolError> {
    let fixed = Fixed::decode(message)?;
    let least = least(fixed.procedure);
    if message.len() < least {
        return Err(ProtocolError::ShortMessage { len: message.len(), least });
    }
    // RFC 8166 §4.5.1. An RDMA_ERROR is read whatever its version: an ERR_VERS carries that of the failed request.
    if fixed.version != version && fixed.procedure != RDMA_ERROR {
        return Err(ProtocolError::UnsupportedVersion { version: fixed.version });
    }
    Ok((fixed, Reader::new(message.get(FIXED_LEN..).unwrap_or_default())))
}

/// Appends the first three words.
fn put_start(header: &Header, out: &mut BytesMut) {
    for word in [header.xid, header.version, header.credit] {
        out.put_u32(word);
    }
}

fn put_error(code: u32, words: &[u32], out: &mut BytesMut) {
    out.put_u32(RDMA_ERROR);
    out.put_u32(code);
    words.iter().for_each(|word| out.put_u32(*word));
}

/// The bytes before `rdma_optinfo` of an RDMA2_OPTIONAL: fixed part, `rdma_optdir`, `rdma_opttype`, and the length of what follows.
const OPTIONAL_LEN: usize = FIXED_LEN + 3 * 4;

/// Bytes of the header of the first transmission of a Call.
pub(crate) fn request_len(request: &TransmitRequest) -> usize {
    OPTIONAL_LEN + request.encoded_len()
}

/// The same of a reply.
pub(crate) fn response_len(response: &TransmitResponse) -> usize {
    OPTIONAL_LEN + response.encoded_len()
}

/// Bytes of the header of a message with this operation of rtrext-02.
#[must_use]
pub fn operation_len(operation: &Operation) -> usize {
    OPTIONAL_LEN + operation.encoded_len()
}

/// The body of an RDMA2_OPTIONAL with an operation of rtrext-02, or with several messages; `None` if the number is neither.
fn transmission(
    (number, base): (u32, OperationBase),
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Option<Result<Body, ProtocolError>> {
    if number == combined::OPERATION && limits.combined_messages > 1 {
        let malformed = |_| ProtocolError::Combined(combined::Malformed::Lengths);
        let info = exchange::Operands { reader, limits }.opaque().map_err(malformed);
        let lengths = info.and_then(|info| {
            combined::lengths(&info, limits.combined_messages).map_err(ProtocolError::Combined)
        });
        return Some(lengths.map(Body::Combined));
    }
    let kind = OperationType::of(number, base)?;
    let cut = || ProtocolError::RoundTrips(round_trips::Malformed::Truncated);
    let info = exchange::Operands { reader, limits }.opaque().map_err(|_| cut());
    let decoded = info.and_then(|info| Operation::decode(kind, &info, limits)).map_err(|error| match kind {
        // An error is never answered (RFC 8166 §4.5).
        OperationType::Report => ProtocolError::ErrorTruncated,
        _ => error,
    });
    Some(decoded.map(|operation| match operation {
        Operation::Report(report) => Body::Error(ErrorBody::Report(report)),
        operation => Body::Transmission(operation),
    }))
}

/// Appends an RDMA2_OPTIONAL of several messages from its `rdma_proc` on.
fn put_combined(procedure: u32, direction: Direction, lengths: &[u32], out: &mut BytesMut) {
    out.put_u32(procedure);
    out.put_u32(direction.word());
    out.put_u32(combined::OPERATION);
    combined::put(lengths, out);
}

/// Appends an RDMA2_OPTIONAL from its `rdma_proc` on.
fn put_transmission(
    (procedure, base): (u32, OperationBase),
    direction: Direction,
    operation: &Operation,
    out: &mut BytesMut,
) {
    out.put_u32(procedure);
    out.put_u32(direction.word());
    out.put_u32(operation.kind().number(base));
    out.put_u32(u32::try_from(operation.encoded_len()).unwrap_or(u32::MAX));
    operation.encode(out);
}
