//! Items that travelled outside the inline part.
//!
//! Two sources have different rules. A *Read chunk* has a position in the unreduced stream; it must meet an eligible
//! item exactly there (RFC 8166 §3.4.5). *Write chunks* have no position. Eligible results take them in the order of
//! the Write list. A requester that offered a chunk must find the result in it (RFC 8166 §4.3.2).

use std::collections::VecDeque;

use bytes::Bytes;

use super::{UNIT, pad_len, padded_len};
use crate::{DecodeError, Payload};

/// A Read chunk of a Call: all its segments, read and joined in list order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Position of the chunk's first byte in the unreduced stream; a multiple of four (RFC 8166 §3.4.5).
    pub position: u32,
    /// The item, with or without its pad.
    pub data: Payload,
}

impl ReadChunk {
    fn start(&self) -> usize {
        usize::try_from(self.position).unwrap_or(usize::MAX)
    }

    /// Checks a chunk list before decoding: positions are multiples of four and ascend, and no chunk reaches into the
    /// next. Chunks at equal positions are one chunk, and must be joined first.
    ///
    /// # Errors
    /// [`DecodeError::ReadChunkUnaligned`] and [`DecodeError::ReadChunkOrder`], for the first wrong chunk.
    pub fn check(chunks: &[Self]) -> Result<(), DecodeError> {
        let mut previous = None;
        let mut end = 0;
        for chunk in chunks {
            let position = chunk.start();
            // RFC 8166 §3.4.5: the position is a multiple of four.
            if !position.is_multiple_of(UNIT) {
                return Err(DecodeError::ReadChunkUnaligned { position });
            }
            // A chunk is one item (RFC 8166 §3.4.5), so the next one starts behind it.
            if let Some(previous) = previous
                && (position <= previous || position < end)
            {
                return Err(DecodeError::ReadChunkOrder { position, previous });
            }
            previous = Some(position);
            end = position.saturating_add(padded_len(chunk.data.len()));
        }
        Ok(())
    }
}

/// A Write chunk that a Call offered, as its Reply returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReturnedChunk {
    /// The chunk was offered without segments: the requester wants this result inline (RFC 8166 §4.3.2.3).
    Empty,
    /// The chunk was offered with memory.
    Filled {
        /// The data that the responder placed, as many bytes as the sum of the returned segment lengths. Empty if the
        /// chunk came back unused.
        data: Payload,
        /// Length of the offered memory, in bytes.
        offered: usize,
    },
}

impl ReturnedChunk {
    /// Returns whether nothing was placed in the chunk.
    fn is_vacant(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Filled { data, .. } => data.is_empty(),
        }
    }
}

/// Departures from RFC 8166 that a requester accepts in a Reply; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteChunkRules {
    /// Accept a returned length that includes the item's pad, or the part of the pad that the chunk can hold. RFC 5666
    /// §3.7 requires such a length; RFC 8166 §3.4.6.2 forbids it.
    pub accept_padded: bool,
    /// Accept a result inline although its chunk could hold it, against RFC 8166 §4.3.2.
    pub accept_inline: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ReadChunks {
    waiting: VecDeque<ReadChunk>,
}

impl ReadChunks {
    pub(super) const NONE: Self = Self { waiting: VecDeque::new() };

    pub(super) fn new(chunks: Vec<ReadChunk>) -> Self {
        Self { waiting: chunks.into() }
    }

    /// Refuses to read inline over a chunk: the item there isn't eligible, or the chunk's position is wrong.
    pub(super) fn admit_inline(&self, position: usize, length: usize) -> Result<(), DecodeError> {
        match self.waiting.front() {
            // RFC 8166 §6.1: only an eligible item may have been reduced.
            Some(chunk) if chunk.start() < position.saturating_add(length) => {
                Err(DecodeError::ReadChunkMisplaced { chunk: chunk.start(), position })
            }
            _ => Ok(()),
        }
    }

    /// Takes the chunk for the eligible item of `length` bytes at `position`; returns `None` if the item is inline.
    pub(super) fn take(&mut self, position: usize, length: usize) -> Result<Option<Payload>, DecodeError> {
        let Some(chunk) = self.waiting.pop_front_if(|chunk| chunk.start() == position) else {
            return Ok(None);
        };
        let mut data = chunk.data;
        // RFC 8166 §3.4.5.2: the chunk holds the item, and may hold its pad.
        if data.len() != length && data.len() != padded_len(length) {
            return Err(DecodeError::ReadChunkLength { position, item: length, chunk: data.len() });
        }
        data.truncate(length);
        Ok(Some(data))
    }

    pub(super) fn admit_end(&self, position: usize) -> Result<(), DecodeError> {
        match self.waiting.front() {
            Some(chunk) => Err(DecodeError::ReadChunkMisplaced { chunk: chunk.start(), position }),
            None => Ok(()),
        }
    }

    /// Returns up to `max` bytes of the unreduced stream from `position` on; `base` is the rest of the inline part
    /// there.
    pub(super) fn peek(&self, base: &Payload, mut position: usize, max: usize) -> Vec<Bytes> {
        const PAD: Bytes = Bytes::from_static(&[0; UNIT]);
        let mut base = base.clone();
        let mut wanted = max;
        let mut parts = Vec::new();
        let mut put = |mut part: Payload| {
            part.truncate(wanted);
            wanted -= part.len();
            parts.extend(part.iter().cloned());
        };
        for chunk in &self.waiting {
            let before = chunk.start().saturating_sub(position).min(base.len());
            put(base.split_to(before));
            put(chunk.data.clone());
            put(PAD.slice(..pad_len(chunk.data.len())).into());
            position = position.saturating_add(before).saturating_add(padded_len(chunk.data.len()));
        }
        put(base);
        parts
    }
}

#[derive(Clone, Debug)]
pub(super) struct WriteChunks {
    waiting: VecDeque<ReturnedChunk>,
    taken: usize,
    pub(super) rules: WriteChunkRules,
}

impl WriteChunks {
    pub(super) const NONE: Self = Self {
        waiting: VecDeque::new(),
        taken: 0,
        rules: WriteChunkRules { accept_padded: false, accept_inline: false },
    };

    pub(super) fn new(chunks: Vec<ReturnedChunk>) -> Self {
        Self { waiting: chunks.into(), ..Self::NONE }
    }

    /// Takes the content of the next chunk for the eligible item of `length` bytes at `position`. Returns `None` if the
    /// item is inline, as it must be when no chunk is left (RFC 8166 §4.3.2.1).
    pub(super) fn take(&mut self, position: usize, length: usize) -> Result<Option<Payload>, DecodeError> {
        // An item of no bytes fills no chunk. RFC 8166 §4.3.2.1 gives it a chunk all the same, but some responders give
        // that chunk to the next item.
        let meant_for_it = |chunk: &mut ReturnedChunk| length > 0 || chunk.is_vacant();
        let Some(chunk) = self.waiting.pop_front_if(meant_for_it) else {
            return Ok(None);
        };
        self.taken += 1;
        let ReturnedChunk::Filled { mut data, offered } = chunk else {
            return Ok(None);
        };
        // RFC 8166 §4.3.2: an eligible result goes into the chunk that was offered for it.
        if data.is_empty() && length > 0 {
            return if self.rules.accept_inline {
                Ok(None)
            } else {
                Err(DecodeError::WriteChunkIgnored { position, item: length, offered })
            };
        }
        // RFC 8166 §3.4.6.2: the returned length is the item's, without its pad.
        let most = if self.rules.accept_padded { padded_len(length) } else { length };
        if !(length..=most).contains(&data.len()) {
            return Err(DecodeError::WriteChunkLength { position, item: length, chunk: data.len() });
        }
        data.truncate(length);
        Ok(Some(data))
    }

    /// Checks that chunks without an item of their own came back unused (RFC 8166 §4.3.2.2).
    pub(super) fn admit_end(&self) -> Result<(), DecodeError> {
        for (index, chunk) in self.waiting.iter().enumerate() {
            if let ReturnedChunk::Filled { data, .. } = chunk
                && !data.is_empty()
            {
                return Err(DecodeError::WriteChunkLeft { index: self.taken + index, chunk: data.len() });
            }
        }
        Ok(())
    }
}
