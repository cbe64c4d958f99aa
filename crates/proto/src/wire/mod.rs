//! The transport header: what every version shares.
//!
//! A version of RPC-over-RDMA is a codec plus a table of rules ([`Codec`], [`Rules`]); the rest of the crate works on the
//! typed [`Header`] and never on the byte layout of one version. Nothing here owns a buffer: decoding borrows the
//! received bytes, encoding appends to the caller's. Every refusal is a [`ProtocolError`]; what is answered, if anything,
//! is decided in one place, [`ProtocolError::action`].

mod header;
mod lists;
mod reader;
pub mod segment;
pub mod two;
pub mod v1;

use std::fmt;

use bytes::{BufMut, BytesMut};

use crate::error::ProtocolError;
use crate::limits::Limits;
pub use header::{Body, Direction, ErrorBody, FIXED_LEN, Fixed, Header, RDMA_DONE, RDMA_ERROR};
use reader::Reader;
pub use segment::{ChunkLists, ReadSegment, Segment, WriteChunk};
use two::Profile;
use two::transmission::OperationBase;

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

/// A Send of a message that is divided among several, other than the one with the header of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its number in the message, from 0.
    pub number: u32,
    /// Bytes of the Payload stream in it.
    pub len: u32,
    /// Bytes of the Payload stream in the Sends after it.
    pub remaining: u32,
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

    /// The body of a fragment of a message whose own header has this body. To divide a message of a version that has no fragments
    /// is a fault of the caller, as in [`encode`](Self::encode).
    fn fragment(&self, message: &Body, fragment: Fragment) -> Body {
        let _ = (message, fragment);
        Body::Error(ErrorBody::Chunk)
    }

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
