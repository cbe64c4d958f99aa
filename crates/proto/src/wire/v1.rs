//! The header of RPC-over-RDMA Version One (RFC 8166 §4).
//!
//! Decoding is strict and bounded: counts are checked against [`Limits`] as they are met, nothing is allocated ahead of
//! the bytes that prove it, and an error says what was seen. No buffer is owned here. Encoding cannot fail: lengths are
//! the planner's business.

use bytes::{BufMut, BytesMut};

use super::reader::Reader;
use super::{
    Body, ChunkLists, Codec, ErrorBody, Fixed, Header, RDMA_DONE, RDMA_ERROR, ReadSegment, Rules, Segment,
    Shape, WriteChunk,
};
use crate::error::{List, ProtocolError};
use crate::limits::Limits;

/// The value of `rdma_vers`.
pub const VERSION: u32 = 1;

const RDMA_MSG: u32 = 0;
const RDMA_NOMSG: u32 = 1;
const RDMA_MSGP: u32 = 2;

/// The discriminator that marks a Read segment as XDR padding (last-call slides of 2006, option A).
const PADDING: u32 = 2;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// An RDMA_MSG or RDMA_NOMSG header with three absent lists; nothing else may be shorter (RFC 8166 §4.5).
const LEAST_MESSAGE: usize = 28;

const WORD: usize = 4;
const READ_ENTRY: usize = 24;
const SEGMENT: usize = 16;
const CHUNK_OVERHEAD: usize = 8;

static RULES: Rules =
    Rules { version: VERSION, default_inline: 1024, largest_inline: 262_144, initial_credits: 1 };

/// The codec of Version One.
#[derive(Clone, Copy, Debug)]
pub struct V1;

impl Codec for V1 {
    fn rules(&self) -> &'static Rules {
        &RULES
    }

    fn decode(&self, message: &[u8], limits: &Limits) -> Result<(Header, usize), ProtocolError> {
        let fixed = Fixed::decode(message)?;
        let mut reader = Reader::new(message.get(super::FIXED_LEN..).unwrap_or_default());
        // RFC 8166 §4.5: what is too short is not parsed at all; errors and RDMA_DONE are shorter by nature.
        if !matches!(fixed.procedure, RDMA_DONE | RDMA_ERROR) && message.len() < LEAST_MESSAGE {
            return Err(ProtocolError::ShortMessage { len: message.len(), least: LEAST_MESSAGE });
        }
        // RFC 8166 §4.5.1. An RDMA_ERROR is read whatever its version: an ERR_VERS carries that of the failed request.
        if fixed.version != VERSION && fixed.procedure != RDMA_ERROR {
            return Err(ProtocolError::UnsupportedVersion { version: fixed.version });
        }
        let body = match fixed.procedure {
            RDMA_MSG => Body::Message(chunk_lists(&mut reader, limits)?),
            RDMA_NOMSG => Body::NoMessage(chunk_lists(&mut reader, limits)?),
            RDMA_MSGP => {
                let align = reader.u32().ok_or(ProtocolError::ListTruncated { list: List::Padding })?;
                let threshold = reader.u32().ok_or(ProtocolError::ListTruncated { list: List::Padding })?;
                Body::Padded { align, threshold, lists: chunk_lists(&mut reader, limits)? }
            }
            RDMA_DONE => Body::Done,
            RDMA_ERROR => Body::Error(error_body(&mut reader)?),
            // RFC 8166 §4.5.2
            procedure => return Err(ProtocolError::UnknownProcedure { procedure }),
        };
        let header = Header { xid: fixed.xid, version: fixed.version, credit: fixed.credit, body };
        Ok((header, super::FIXED_LEN + reader.position()))
    }

    fn header_len(&self, shape: &Shape) -> usize {
        let chunks = shape.write_segments.iter().chain(shape.reply_segments.as_ref());
        let writes: usize = chunks.map(|segments| CHUNK_OVERHEAD + SEGMENT * segments).sum();
        // A present Reply chunk has its discriminator in its own eight bytes instead of the empty word.
        let reply_word = if shape.reply_segments.is_some() { 0 } else { WORD };
        super::FIXED_LEN + READ_ENTRY * shape.read_segments + WORD + writes + WORD + reply_word
    }

    fn padded_extra(&self) -> Option<usize> {
        Some(2 * WORD)
    }

    fn encode(&self, header: &Header, out: &mut BytesMut) {
        out.put_u32(header.xid);
        out.put_u32(header.version);
        out.put_u32(header.credit);
        match &header.body {
            Body::Message(lists) => {
                out.put_u32(RDMA_MSG);
                put_lists(lists, out);
            }
            Body::NoMessage(lists) => {
                out.put_u32(RDMA_NOMSG);
                put_lists(lists, out);
            }
            Body::Padded { align, threshold, lists } => {
                out.put_u32(RDMA_MSGP);
                out.put_u32(*align);
                out.put_u32(*threshold);
                put_lists(lists, out);
            }
            Body::Done => out.put_u32(RDMA_DONE),
            Body::Error(error) => {
                out.put_u32(RDMA_ERROR);
                match error {
                    ErrorBody::Version { low, high } => {
                        out.put_u32(ERR_VERS);
                        out.put_u32(*low);
                        out.put_u32(*high);
                    }
                    ErrorBody::Chunk => out.put_u32(ERR_CHUNK),
                }
            }
        }
    }
}

/// RFC 8166 §4.5. Bytes after a recognised arm are ignored: RFC 5666 §4.3 had senders append some.
fn error_body(reader: &mut Reader<'_>) -> Result<ErrorBody, ProtocolError> {
    let mut word = || reader.u32().ok_or(ProtocolError::ErrorTruncated);
    match word()? {
        ERR_VERS => Ok(ErrorBody::Version { low: word()?, high: word()? }),
        ERR_CHUNK => Ok(ErrorBody::Chunk),
        code => Err(ProtocolError::UnknownErrorCode { code }),
    }
}

/// Reads an optional-data word: anything but 0 and 1 is not XDR (RFC 4506 §4.19).
fn more(reader: &mut Reader<'_>, list: List) -> Result<bool, ProtocolError> {
    match reader.u32() {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(value) => Err(ProtocolError::BadDiscriminator { list, value }),
        None => Err(ProtocolError::ListTruncated { list }),
    }
}

fn segment(reader: &mut Reader<'_>, list: List) -> Result<Segment, ProtocolError> {
    let short = || ProtocolError::ListTruncated { list };
    Ok(Segment {
        handle: reader.u32().ok_or_else(short)?,
        length: reader.u32().ok_or_else(short)?,
        offset: reader.u64().ok_or_else(short)?,
    })
}

/// Reads the discriminator of a Read list entry; `Some(true)` for one marked as padding.
fn more_read(reader: &mut Reader<'_>) -> Result<Option<bool>, ProtocolError> {
    match more(reader, List::Read) {
        Ok(more) => Ok(more.then_some(false)),
        Err(ProtocolError::BadDiscriminator { value: PADDING, .. }) => Ok(Some(true)),
        Err(error) => Err(error),
    }
}

fn chunk_lists(reader: &mut Reader<'_>, limits: &Limits) -> Result<ChunkLists, ProtocolError> {
    let read = read_list(reader, limits)?;
    let mut write = Vec::new();
    while more(reader, List::Write)? {
        if write.len() == limits.write_chunks {
            return Err(ProtocolError::TooManyWriteChunks { allowed: limits.write_chunks });
        }
        write.push(write_chunk(reader, List::Write, limits)?);
    }
    let reply =
        if more(reader, List::Reply)? { Some(write_chunk(reader, List::Reply, limits)?) } else { None };
    Ok(ChunkLists { read, write, reply })
}

fn read_list(reader: &mut Reader<'_>, limits: &Limits) -> Result<Vec<ReadSegment>, ProtocolError> {
    let most = limits.read_chunks.saturating_mul(limits.segments_per_chunk);
    let mut read = Vec::new();
    let mut total = 0u64;
    while let Some(padding) = more_read(reader)? {
        if read.len() == most {
            return Err(ProtocolError::TooManyReadSegments { allowed: most });
        }
        let position = reader.u32().ok_or(ProtocolError::ListTruncated { list: List::Read })?;
        let segment = segment(reader, List::Read)?;
        if padding && !(1..=3).contains(&segment.length) {
            return Err(ProtocolError::PaddingLength { length: segment.length });
        }
        // RFC 8166 §3.4.5: XDR items start at multiples of four; a pad may be given the Position where it stands.
        if position % 4 != 0 && !padding {
            return Err(ProtocolError::UnalignedPosition { position });
        }
        // RFC 8166 §8.1.4: chunks that are unreasonably large need not be pulled.
        if u64::from(segment.length) > limits.read_segment_len {
            let length = segment.length;
            return Err(ProtocolError::ReadSegmentTooLong { length, allowed: limits.read_segment_len });
        }
        total += u64::from(segment.length);
        if total > limits.read_total {
            return Err(ProtocolError::ReadListTooLong { total, allowed: limits.read_total });
        }
        read.push(ReadSegment { position, segment, padding });
    }
    Ok(read)
}

fn write_chunk(reader: &mut Reader<'_>, list: List, limits: &Limits) -> Result<WriteChunk, ProtocolError> {
    let count = reader.u32().ok_or(ProtocolError::ListTruncated { list })?;
    let allowed = limits.segments_per_chunk;
    // Before anything is allocated for them.
    if usize::try_from(count).map_or(true, |count| count > allowed) {
        return Err(ProtocolError::TooManySegments { list, count, allowed });
    }
    let segments = (0..count).map(|_| segment(reader, list)).collect::<Result<_, _>>()?;
    Ok(WriteChunk { segments })
}

fn put_segment(segment: &Segment, out: &mut BytesMut) {
    out.put_u32(segment.handle);
    out.put_u32(segment.length);
    out.put_u64(segment.offset);
}

fn put_chunk(chunk: &WriteChunk, out: &mut BytesMut) {
    out.put_u32(1);
    // A chunk is decoded or planned within limits far below 2^32 segments.
    out.put_u32(u32::try_from(chunk.segments.len()).unwrap_or(u32::MAX));
    for segment in &chunk.segments {
        put_segment(segment, out);
    }
}

fn put_lists(lists: &ChunkLists, out: &mut BytesMut) {
    for entry in &lists.read {
        out.put_u32(if entry.padding { PADDING } else { 1 });
        out.put_u32(entry.position);
        put_segment(&entry.segment, out);
    }
    out.put_u32(0);
    for chunk in &lists.write {
        put_chunk(chunk, out);
    }
    out.put_u32(0);
    match &lists.reply {
        Some(chunk) => put_chunk(chunk, out),
        None => out.put_u32(0),
    }
}

#[cfg(test)]
mod tests;
