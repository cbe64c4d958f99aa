//! Reading and writing chunk lists, which look the same in every version (RFC 8166 §4.1.2).
//!
//! [`Limits`] checks counts as they are met; nothing is allocated ahead of the bytes that prove it.

use bytes::{BufMut, BytesMut};

use super::reader::Reader;
use super::{ChunkLists, Limits, List, ProtocolError, ReadSegment, Segment, Shape, WriteChunk, narrow};

/// The discriminator that marks a Read segment as XDR padding (last-call slides of 2006, option A).
const PADDING: u32 = 2;

const WORD: usize = 4;
const READ_ENTRY: usize = 24;
const SEGMENT: usize = 16;
const CHUNK_OVERHEAD: usize = 8;

/// The length of the three lists in bytes.
pub(super) fn lists_len(shape: &Shape) -> usize {
    let reply_word = if shape.reply_segments.is_some() { 0 } else { WORD };
    // A present Reply chunk has its discriminator in its own eight bytes instead of the empty word.
    read_list_len(shape.read_segments)
        + write_list_len(&shape.write_segments)
        + shape.reply_segments.map_or(0, chunk_len)
        + reply_word
}

pub(super) const fn read_list_len(segments: usize) -> usize {
    READ_ENTRY * segments + WORD
}

pub(super) fn write_list_len(chunks: &[usize]) -> usize {
    chunks.iter().map(|segments| chunk_len(*segments)).sum::<usize>() + WORD
}

/// The length of a chunk with the word that says that it is there.
pub(super) const fn chunk_len(segments: usize) -> usize {
    CHUNK_OVERHEAD + SEGMENT * segments
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
fn more_read(reader: &mut Reader<'_>, pads: bool) -> Result<Option<bool>, ProtocolError> {
    match more(reader, List::Read) {
        Ok(more) => Ok(more.then_some(false)),
        Err(ProtocolError::BadDiscriminator { value: PADDING, .. }) if pads => Ok(Some(true)),
        Err(error) => Err(error),
    }
}

/// Reads the three lists. With `pads`, Read segments can be XDR padding, marked or by their Position: in
/// Version One only.
pub(super) fn chunk_lists(
    reader: &mut Reader<'_>,
    limits: &Limits,
    pads: bool,
) -> Result<ChunkLists, ProtocolError> {
    let read = read_list(reader, limits, pads)?;
    let write = write_list(reader, limits)?;
    Ok(ChunkLists { read, write, reply: reply_chunk(reader, limits)? })
}

pub(super) fn write_list(reader: &mut Reader<'_>, limits: &Limits) -> Result<Vec<WriteChunk>, ProtocolError> {
    let mut write = Vec::new();
    while more(reader, List::Write)? {
        limits.check_write_chunks(write.len())?;
        write.push(write_chunk(reader, List::Write, limits)?);
    }
    Ok(write)
}

pub(super) fn reply_chunk(
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Result<Option<WriteChunk>, ProtocolError> {
    if more(reader, List::Reply)? { write_chunk(reader, List::Reply, limits).map(Some) } else { Ok(None) }
}

pub(super) fn read_list(
    reader: &mut Reader<'_>,
    limits: &Limits,
    pads: bool,
) -> Result<Vec<ReadSegment>, ProtocolError> {
    let mut read = Vec::new();
    read_on(reader, limits, pads, &mut read)?;
    Ok(read)
}

/// Reads one more Read list behind the entries of another; the bounds are on both together.
pub(super) fn read_on(
    reader: &mut Reader<'_>,
    limits: &Limits,
    pads: bool,
    read: &mut Vec<ReadSegment>,
) -> Result<(), ProtocolError> {
    let mut total: u64 = read.iter().map(|entry| u64::from(entry.segment.length)).sum();
    while let Some(padding) = more_read(reader, pads)? {
        limits.check_read_segments(read.len())?;
        let position = reader.u32().ok_or(ProtocolError::ListTruncated { list: List::Read })?;
        let segment = segment(reader, List::Read)?;
        if padding && !(1..=3).contains(&segment.length) {
            return Err(ProtocolError::PaddingLength { length: segment.length });
        }
        // RFC 8166 §3.4.5: XDR items start at multiples of four; only a pad may be given the Position where
        // it stands.
        let entry = ReadSegment { position, segment, padding };
        let pad = padding || (pads && entry.is_pad_chunk());
        if position % 4 != 0 && !pad {
            return Err(ProtocolError::UnalignedPosition { position });
        }
        limits.add_read(read, &mut total, entry)?;
    }
    Ok(())
}

fn write_chunk(reader: &mut Reader<'_>, list: List, limits: &Limits) -> Result<WriteChunk, ProtocolError> {
    let count = reader.u32().ok_or(ProtocolError::ListTruncated { list })?;
    limits.check_segments(list, count)?;
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
    out.put_u32(narrow(chunk.segments.len()));
    for segment in &chunk.segments {
        put_segment(segment, out);
    }
}

pub(super) fn put_lists(lists: &ChunkLists, out: &mut BytesMut) {
    put_read_list(&lists.read, out);
    put_write_list(&lists.write, out);
    put_reply_chunk(lists.reply.as_ref(), out);
}

pub(super) fn put_read_list<'a>(read: impl IntoIterator<Item = &'a ReadSegment>, out: &mut BytesMut) {
    for entry in read {
        out.put_u32(if entry.padding { PADDING } else { 1 });
        out.put_u32(entry.position);
        put_segment(&entry.segment, out);
    }
    out.put_u32(0);
}

pub(super) fn put_write_list(write: &[WriteChunk], out: &mut BytesMut) {
    for chunk in write {
        put_chunk(chunk, out);
    }
    out.put_u32(0);
}

pub(super) fn put_reply_chunk(reply: Option<&WriteChunk>, out: &mut BytesMut) {
    match reply {
        Some(chunk) => put_chunk(chunk, out),
        None => out.put_u32(0),
    }
}
