//! The layout of Read chunks in the unreduced Payload stream (RFC 8166 §3.4.5).
//!
//! The Read list is grouped by Position, and checked against the inline bytes *before* any read or allocation.
//! Overlaps and Positions beyond the message are refused by one `Walk` through that stream, which transmission groups
//! use too. [`Decoder::with_read_chunks`](rpcrdma_xdr::Decoder::with_read_chunks) joins the data.

use std::ops::RangeInclusive;

use crate::wire::{Limits, List, ProtocolError, ReadSegment, Segment, wide};

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
                limits.check_read_chunks(all.len())?;
                let chunk = ReadChunk { position: entry.position, ..ReadChunk::default() };
                all.insert(at, (chunk, 0));
            }
            let Some((chunk, count)) = all.get_mut(at) else { continue };
            *count += 1;
            limits.check_segments(List::Read, *count)?;
            chunk.len += u64::from(entry.segment.length);
            if entry.segment.length > 0 {
                chunk.segments.push(entry.segment);
            }
        }
        let mut chunks = all.into_iter().map(|(chunk, _)| chunk).peekable();
        let zero = chunks.next_if(|chunk| chunk.position == 0);
        let layout = Self { zero, chunks: chunks.collect() };
        let base = layout.zero.as_ref().map_or(wide(inline), |zero| zero.len);
        layout.check(base.saturating_add(written))?;
        Ok(layout)
    }

    /// Checks the order of the unreduced stream, with `base` bytes outside the chunks.
    fn check(&self, base: u64) -> Result<(), ProtocolError> {
        let mut walk = Walk::new(base);
        for ReadChunk { position, len, .. } in &self.chunks {
            let position = *position;
            walk.pass(position, *len).map_err(|starts| match (*starts.start(), *starts.end()) {
                (reached, _) if u64::from(position) < reached => {
                    ProtocolError::OverlappingPosition { position, reached }
                }
                (_, available) => ProtocolError::PositionBeyondMessage { position, available },
            })?;
        }
        Ok(())
    }

    /// Returns the bytes to read for all chunks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.zero.iter().chain(&self.chunks).map(|chunk| chunk.len).sum()
    }
}

/// A walk through the unreduced Payload stream, from item to item in ascending order of their Positions.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    /// The end of the previous item, with its pad.
    reached: u64,
    /// Bytes of the reduced stream that are left.
    left: u64,
}

impl Walk {
    /// Begins a walk; `base` is the number of bytes outside the items.
    pub(crate) const fn new(base: u64) -> Self {
        Self { reached: 0, left: base }
    }

    /// Returns the Positions at which the next item can begin.
    pub(crate) const fn starts(&self) -> RangeInclusive<u64> {
        self.reached..=self.reached.saturating_add(self.left)
    }

    /// Passes an item. RFC 8166 §3.4.5: the previous item, with its pad, ends at or before this Position.
    ///
    /// # Errors
    /// The Positions at which the item could begin.
    pub(crate) fn pass(&mut self, position: u32, len: u64) -> Result<(), RangeInclusive<u64>> {
        let (starts, start) = (self.starts(), u64::from(position));
        if !starts.contains(&start) {
            return Err(starts);
        }
        self.left -= start - self.reached;
        self.reached = start + len.next_multiple_of(4);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
