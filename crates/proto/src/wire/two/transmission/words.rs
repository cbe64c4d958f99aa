//! The cursor of this extension's decoders, and the lengths and counts of its encoders.

use bytes::{BufMut, BytesMut};

use super::Malformed;
use crate::limits::Limits;
use crate::wire::Segment;
use crate::wire::reader::Reader;

pub(super) const WORD: usize = 4;
/// Bytes of an `rpcrdma1_segment`.
const SEGMENT_LEN: usize = 4 * WORD;

/// Words of an operation or property, with errors that say where its end was met.
#[derive(Debug)]
pub(super) struct Words<'a, 'b> {
    reader: Reader<'a>,
    len: usize,
    pub(super) limits: &'b Limits,
}

impl<'a, 'b> Words<'a, 'b> {
    pub(super) const fn new(data: &'a [u8], limits: &'b Limits) -> Self {
        Self { reader: Reader::new(data), len: data.len(), limits }
    }

    pub(super) fn word(&mut self) -> Result<u32, Malformed> {
        self.reader.u32().ok_or(Malformed::Truncated)
    }

    /// An array, its count bounded before anything is allocated for it.
    pub(super) fn array<T>(
        &mut self,
        allowed: usize,
        too_many: fn(u32, usize) -> Malformed,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.word()?;
        if usize::try_from(count).map_or(true, |count| count > allowed) {
            return Err(too_many(count, allowed));
        }
        (0..count).map(|_| element(self)).collect()
    }

    pub(super) fn segments(&mut self) -> Result<Vec<Segment>, Malformed> {
        let too_many = |count, allowed| Malformed::TooManySegments { count, allowed };
        self.array(self.limits.segments_per_chunk, too_many, |words| {
            Ok(Segment {
                handle: words.word()?,
                length: words.word()?,
                offset: words.reader.u64().ok_or(Malformed::Truncated)?,
            })
        })
    }

    /// Nothing may follow.
    pub(super) const fn end(&self) -> Result<(), Malformed> {
        match self.len - self.reader.position() {
            0 => Ok(()),
            extra => Err(Malformed::Trailing { extra }),
        }
    }
}

/// The bytes of an array's count and of its elements, of which each has `element` bytes.
pub(super) const fn array_len(count: usize, element: usize) -> usize {
    WORD + count * element
}

pub(super) const fn segments_len(segments: &[Segment]) -> usize {
    array_len(segments.len(), SEGMENT_LEN)
}

pub(super) fn put_array<T>(elements: &[T], out: &mut BytesMut, put: impl Fn(&T, &mut BytesMut)) {
    // Within limits far below 2^32.
    out.put_u32(u32::try_from(elements.len()).unwrap_or(u32::MAX));
    elements.iter().for_each(|element| put(element, out));
}

pub(super) fn put_segments(segments: &[Segment], out: &mut BytesMut) {
    put_array(segments, out, |Segment { handle, length, offset }, out| {
        out.put_u32(*handle);
        out.put_u32(*length);
        out.put_u64(*offset);
    });
}
