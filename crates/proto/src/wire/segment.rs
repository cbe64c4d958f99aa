//! Segments, chunks and chunk lists (RFC 8166 §3.4.3, §4.1.2).
//!
//! These are plain values: who may touch the memory they name is decided by the windows behind them.

use crate::wire::narrow;
use rpcrdma_verbs::{Key, RemoteSegment};

/// Memory at the Requester: a plain segment, `HLOO` on the wire (RFC 8166 §3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Steering tag.
    pub handle: u32,
    /// Bytes.
    pub length: u32,
    /// Address or offset within the memory named by the handle.
    pub offset: u64,
}

/// The segment of a window of ours.
impl From<&RemoteSegment> for Segment {
    fn from(window: &RemoteSegment) -> Self {
        Self { handle: window.key.0, length: window.length, offset: window.address }
    }
}

/// The provider's form of a segment of the peer.
impl From<&Segment> for RemoteSegment {
    fn from(segment: &Segment) -> Self {
        Self { key: Key(segment.handle), address: segment.offset, length: segment.length }
    }
}

/// An entry of the Read list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Offset in the unreduced Payload stream; equal for all segments of one chunk (RFC 8166 §3.4.5).
    pub position: u32,
    /// The memory to read.
    pub segment: Segment,
    /// Whether it is marked as XDR padding, by the discriminator 2: option A of the last-call slides of 2006.
    pub padding: bool,
}

impl ReadSegment {
    /// Data at this Position.
    #[must_use]
    pub const fn new(position: u32, segment: Segment) -> Self {
        Self { position, segment, padding: false }
    }

    /// Whether it is a chunk of its own for the XDR pad of the item that ends at its Position (RFC 5666
    /// §3.7).
    #[must_use]
    pub fn is_pad_chunk(&self) -> bool {
        let Self { position, segment: Segment { length, .. }, padding } = *self;
        !padding && position % 4 != 0 && length == 4 - position % 4
    }
}

/// A Write chunk or a Reply chunk: memory that is filled in the order of its segments (RFC 8166 §3.4.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteChunk {
    /// The segments, possibly none: an *empty* chunk.
    pub segments: Vec<Segment>,
}

impl WriteChunk {
    /// The sum of the segment lengths in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// Returns the chunk with the lengths that `written` bytes, filled in from the front, come to. Handles
    /// and offsets stay as they were received (RFC 8166 §4.3.2). Bytes beyond the capacity are not counted.
    #[must_use]
    pub fn filled(&self, written: u64) -> Self {
        let mut left = written;
        let segments = self
            .segments
            .iter()
            .map(|segment| {
                let length = narrow(left).min(segment.length);
                left -= u64::from(length);
                Segment { length, ..*segment }
            })
            .collect();
        Self { segments }
    }

    /// Returns the chunk filled to its end, with the XDR pad of its content counted into the last length. The
    /// segment has no bytes for the pad (RFC 5666 §3.7).
    #[must_use]
    pub fn padded_at_end(&self) -> Self {
        let mut segments = self.segments.clone();
        let pad = self.total().next_multiple_of(4) - self.total();
        if let Some(last) = segments.iter_mut().rev().find(|segment| segment.length > 0) {
            last.length = last.length.saturating_add(u32::try_from(pad).unwrap_or(0));
        }
        Self { segments }
    }
}

/// The three chunk lists of a message header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkLists {
    /// The Read list.
    pub read: Vec<ReadSegment>,
    /// The Write list.
    pub write: Vec<WriteChunk>,
    /// The Reply chunk.
    pub reply: Option<WriteChunk>,
}

impl ChunkLists {
    /// Whether all three are absent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty() && self.reply.is_none()
    }

    /// Bytes of all segments together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let read = self.read.iter().map(|entry| u64::from(entry.segment.length));
        let written = self.write.iter().chain(&self.reply).map(WriteChunk::total);
        read.chain(written).fold(0, u64::saturating_add)
    }

    /// Whether the Read list has a Position-Zero chunk.
    #[must_use]
    pub fn has_position_zero(&self) -> bool {
        self.read.iter().any(|entry| entry.position == 0)
    }

    /// Whether a Read segment is marked as XDR padding.
    #[must_use]
    pub fn has_padding(&self) -> bool {
        self.read.iter().any(|entry| entry.padding)
    }

    /// The Position of the first Read chunk that can only be a pad.
    #[must_use]
    pub fn pad_chunk(&self) -> Option<u32> {
        self.read.iter().find(|entry| entry.is_pad_chunk()).map(|entry| entry.position)
    }

    /// The handle of every segment that has any bytes, in the order of the header, with repetitions.
    pub fn handles(&self) -> impl Iterator<Item = u32> + '_ {
        let reads = self.read.iter().map(|entry| &entry.segment);
        let writes = self.write.iter().chain(self.reply.as_ref()).flat_map(|chunk| &chunk.segments);
        reads.chain(writes).filter(|segment| segment.length > 0).map(|segment| segment.handle)
    }

    /// Returns the shape of a message header with these lists.
    #[must_use]
    pub fn shape(&self, direction: super::Direction) -> super::Shape {
        super::Shape {
            direction,
            read_segments: self.read.len(),
            write_segments: self.write.iter().map(|chunk| chunk.segments.len()).collect(),
            reply_segments: self.reply.as_ref().map(|chunk| chunk.segments.len()),
            long: self.has_position_zero(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_those_of_segments_with_bytes_in_the_order_of_the_header() {
        let segment = |handle, length| Segment { handle, length, offset: 0 };
        let chunk = |segments: &[(u32, u32)]| WriteChunk {
            segments: segments.iter().map(|(handle, length)| segment(*handle, *length)).collect(),
        };
        let lists = ChunkLists {
            read: vec![ReadSegment::new(0, segment(1, 0)), ReadSegment::new(4, segment(2, 1))],
            write: vec![chunk(&[(3, 0), (4, 9)]), chunk(&[(2, 1)])],
            reply: Some(chunk(&[(5, 7), (6, 0)])),
        };
        assert_eq!(lists.handles().collect::<Vec<_>>(), [2, 4, 2, 5]);
    }
}
