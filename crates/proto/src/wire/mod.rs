//! The transport header: what every version shares.
//!
//! A version of RPC-over-RDMA is a codec with a table of rules ([`Codec`], [`Rules`]). The rest of the crate
//! works on the typed [`Header`] and never on the byte layout of a version. Nothing here owns a buffer:
//! decoding borrows the received bytes, encoding appends to the caller's. Every refusal is a
//! [`ProtocolError`], and [`ProtocolError::action`] decides whether there is an answer.

mod error;
mod header;
mod limits;
mod lists;
mod reader;
pub mod segment;
#[cfg(feature = "two")]
pub mod two;
#[cfg(not(feature = "two"))]
#[path = "no_two.rs"]
pub mod two;
pub mod v1;

use std::fmt;

use bytes::{BufMut, BytesMut};

pub(crate) use error::faults;
pub use error::{Action, List, ProtocolError, Taken};
pub use header::{Body, Direction, ErrorBody, FIXED_LEN, Fixed, Header, RDMA_DONE, RDMA_ERROR};
pub use limits::Limits;
use reader::Reader;
pub use segment::{ChunkLists, ReadSegment, Segment, WriteChunk};

/// The direction of a message and the numbers of its chunks and segments: all that the length of its header
/// depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The direction of the message.
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

/// The table of rules of one version: the differences from others besides the bytes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rules {
    /// The value of `rdma_vers`.
    pub version: u32,
    /// The name of the version in messages to people.
    pub name: &'static str,
    /// The inline threshold of each direction when nothing says more, in bytes; also the least one.
    pub default_inline: usize,
    /// The largest inline threshold that can be negotiated, in bytes.
    pub largest_inline: usize,
    /// Credits a Requester may assume before the first reply (RFC 8166 §3.3.3).
    pub initial_credits: u32,
    /// The rules of Version Two; `None` in Version One.
    pub two: Option<two::Rules>,
}

/// A version of the protocol on the wire.
pub trait Codec: fmt::Debug + Send + Sync {
    /// Returns the rules that go with the bytes.
    fn rules(&self) -> &'static Rules;

    /// Decodes a header strictly and returns it with its length in bytes; the Payload stream, if there is
    /// one, follows.
    ///
    /// # Errors
    /// Each refusal is its own [`ProtocolError`] variant.
    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError>;

    /// Returns the length in bytes of a message header of this shape.
    fn header_len(&self, shape: &Shape) -> usize;

    /// Returns the RDMA_ERROR that answers a Call refused for this error.
    fn refusal(&self, error: &ProtocolError) -> ErrorBody;

    /// Returns the bytes that the header of an RDMA_MSGP has beyond that of an RDMA_MSG; `None` if the
    /// version has no RDMA_MSGP.
    fn padded_extra(&self) -> Option<usize> {
        None
    }

    /// Appends the encoded header to `out`. A body that this version does not have is a fault of the caller.
    /// An RDMA_ERROR about the header takes its place, which can harm nobody.
    fn encode(&self, header: &Header, out: &mut BytesMut);
}

/// Opens a header of `version`: its fixed part, and a reader of the bytes behind that. `least` says how many
/// bytes a message of an `rdma_proc` has at least. A shorter message is not parsed at all (RFC 8166 §4.5).
fn open(message: &[u8], version: u32, least: fn(u32) -> usize) -> Result<(Fixed, Reader<'_>), ProtocolError> {
    let fixed = Fixed::decode(message)?;
    let least = least(fixed.procedure);
    if message.len() < least {
        return Err(ProtocolError::ShortMessage { len: message.len(), least });
    }
    // RFC 8166 §4.5.1. An RDMA_ERROR is read whatever its version: an ERR_VERS carries that of the failed
    // request.
    if fixed.version != version && fixed.procedure != RDMA_ERROR {
        return Err(ProtocolError::UnsupportedVersion { version: fixed.version });
    }
    Ok((fixed, Reader::new(message.get(FIXED_LEN..).unwrap_or_default())))
}

/// Returns a length in 64 bits.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Returns a number in 32 bits, at most [`u32::MAX`].
pub(crate) fn narrow(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

/// Returns a number of the wire as a length in memory, at most [`usize::MAX`].
pub(crate) fn sized(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

/// Appends the first three words.
fn put_start(header: &Header, out: &mut BytesMut) {
    let words = [header.xid, header.version, header.credit].map(u32::to_be_bytes);
    out.put_slice(words.as_flattened());
}

fn put_error(code: u32, words: &[u32], out: &mut BytesMut) {
    out.put_u32(RDMA_ERROR);
    out.put_u32(code);
    words.iter().for_each(|word| out.put_u32(*word));
}
