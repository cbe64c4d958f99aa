//! The transport header: what every version shares.
//!
//! A version of RPC-over-RDMA is a codec plus a table of rules ([`Codec`], [`Rules`]); the rest of the crate works on the
//! typed [`Header`] and never on the byte layout of one version. Nothing here owns a buffer: decoding borrows the
//! received bytes, encoding appends to the caller's. Every refusal is a [`ProtocolError`]; what is answered, if anything,
//! is decided in one place, [`ProtocolError::action`].

mod reader;
pub mod segment;
pub mod v1;

use std::fmt;

use bytes::BytesMut;

use crate::error::ProtocolError;
use crate::limits::Limits;
use reader::Reader;
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
    /// What `rdma_proc` selects.
    pub body: Body,
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
}

/// The arms of an RDMA_ERROR (RFC 8166 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// ERR_VERS: the inclusive range of versions that the sender supports.
    Version {
        /// `rdma_vers_low`.
        low: u32,
        /// `rdma_vers_high`.
        high: u32,
    },
    /// ERR_CHUNK.
    Chunk,
}

/// How many chunks and segments a header carries: all that its length depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Read segments, of all chunks together.
    pub read_segments: usize,
    /// Segments of each Write chunk.
    pub write_segments: Vec<usize>,
    /// Segments of the Reply chunk, if there is one.
    pub reply_segments: Option<usize>,
}

/// The table of rules of one version: what differs from others besides the bytes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rules {
    /// The value of `rdma_vers`.
    pub version: u32,
    /// The inline threshold of each direction when nothing says more, in bytes; also the least one.
    pub default_inline: usize,
    /// The largest inline threshold that can be negotiated, in bytes.
    pub largest_inline: usize,
    /// Credits a Requester may assume before the first reply (RFC 8166 §3.3.3).
    pub initial_credits: u32,
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

    /// The length in bytes of a message header of this shape.
    fn header_len(&self, shape: &Shape) -> usize;

    /// The bytes that the header of an RDMA_MSGP has beyond that; `None` if the version has no such message.
    fn padded_extra(&self) -> Option<usize>;

    /// Appends the encoded header to `out`.
    fn encode(&self, header: &Header, out: &mut BytesMut);
}

/// The codecs of all versions that are spoken, lowest first.
pub static CODECS: &[&dyn Codec] = &[&v1::V1];

/// The codec of `version`, if it is spoken.
#[must_use]
pub fn codec(version: u32) -> Option<&'static dyn Codec> {
    CODECS.iter().copied().find(|codec| codec.rules().version == version)
}

/// The inclusive range of spoken versions, as ERR_VERS reports it.
#[must_use]
pub fn supported_versions() -> (u32, u32) {
    let versions = || CODECS.iter().map(|codec| codec.rules().version);
    (versions().min().unwrap_or(0), versions().max().unwrap_or(0))
}
