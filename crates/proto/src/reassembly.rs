//! The layout of Read chunks in the unreduced Payload stream (RFC 8166 §3.4.5).
//!
//! The Read list is grouped by Position, and checked against the inline bytes *before* any read or allocation.
//! Overlaps, Positions beyond the message and too many chunks are refused here.
//! [`Decoder::with_read_chunks`](rpcrdma_xdr::Decoder::with_read_chunks) joins the data.

use crate::error::{List, ProtocolError};
use crate::limits::Limits;
use crate::wire::{ReadSegment, Segment};

/// A Read chunk: all segments of one Position in list order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadChunk {
    /// The Position in the unreduced stream.
    pub position: u32,
    /// The segments, except those of length 0, which need no read.
    pub segments: Vec<Segment>,
    /// Bytes of all segments.
    pub len: u64,
}

/// The chunks of a Call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The Position-Zero chunk.
    pub zero: Option<ReadChunk>,
    /// The other chunks by ascending Position.
    pub chunks: Vec<ReadChunk>,
}

impl Layout {
    /// Groups the segments of a Read list and checks their Positions. `inline` is the number of bytes after the header;
    /// a Position-Zero chunk replaces them as the base of the layout.
    ///
    /// # Errors
    /// [`ProtocolError::TooManyReadChunks`], [`TooManySegments`](ProtocolError::TooManySegments),
    /// [`OverlappingPosition`](ProtocolError::OverlappingPosition),
    /// [`PositionBeyondMessage`](ProtocolError::PositionBeyondMessage).
    pub fn new(read: &[ReadSegment], inline: usize, limits: &Limits) -> Result<Self, ProtocolError> {
        Self::of_reply(read, inline, 0, limits)
    }

    /// Groups and checks the Read list of a reply (RFC 5666 §3.8). `written` bytes of its stream, pads included, went
    /// into Write chunks. These may lie anywhere, as Write chunks have no Position.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_reply(
        read: &[ReadSegment],
        inline: usize,
        written: u64,
        limits: &Limits,
    ) -> Result<Self, ProtocolError> {
        let mut all: Vec<(ReadChunk, u32)> = Vec::new();
        for entry in read {
            let at = all.partition_point(|(chunk, _)| chunk.position < entry.position);
            if all.get(at).is_none_or(|(chunk, _)| chunk.position != entry.position) {
                if all.len() == limits.read_chunks {
                    let (seen, allowed) = (all.len() + 1, limits.read_chunks);
                    return Err(ProtocolError::TooManyReadChunks { seen, allowed });
                }
                let chunk = ReadChunk { position: entry.position, ..ReadChunk::default() };
                all.insert(at, (chunk, 0));
            }
            let Some((chunk, count)) = all.get_mut(at) else { continue };
            *count += 1;
            let (count, allowed) = (*count, limits.segments_per_chunk);
            if usize::try_from(count).map_or(true, |count| count > allowed) {
                return Err(ProtocolError::TooManySegments { list: List::Read, count, allowed });
            }
            chunk.len += u64::from(entry.segment.length);
            if entry.segment.length > 0 {
                chunk.segments.push(entry.segment);
            }
        }
        let mut chunks = all.into_iter().map(|(chunk, _)| chunk).peekable();
        let zero = chunks.next_if(|chunk| chunk.position == 0);
        let layout = Self { zero, chunks: chunks.collect() };
        let base = layout.zero.as_ref().map_or(u64::try_from(inline).unwrap_or(u64::MAX), |zero| zero.len);
        layout.check(base.saturating_add(written))?;
        Ok(layout)
    }

    /// Checks the order of the unreduced stream, with `base` bytes outside the chunks.
    fn check(&self, mut base: u64) -> Result<(), ProtocolError> {
        let mut reached = 0_u64;
        for chunk in &self.chunks {
            let position = chunk.position;
            let start = u64::from(position);
            // RFC 8166 §3.4.5: the previous chunk, with its pad, ends at or before this Position.
            let Some(between) = start.checked_sub(reached) else {
                return Err(ProtocolError::OverlappingPosition { position, reached });
            };
            let Some(left) = base.checked_sub(between) else {
                return Err(ProtocolError::PositionBeyondMessage { position, available: reached + base });
            };
            base = left;
            reached = start + chunk.len.next_multiple_of(4);
        }
        Ok(())
    }

    /// Returns the bytes to read for all chunks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.zero.iter().chain(&self.chunks).map(|chunk| chunk.len).sum()
    }
}

#[cfg(test)]
mod tests;
