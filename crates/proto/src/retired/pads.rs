//! XDR pads in the Read list: marked segments, and Read chunks of their own.
//!
//! A pad completes a chunk to a multiple of four, and is never read. It is checked and removed before the list is laid
//! out.

use crate::wire::{Limits, ProtocolError, ReadSegment};

/// A Read chunk, as far as a pad needs to know it.
struct Padded {
    position: u32,
    len: u64,
    /// Whether a pad ended the chunk.
    ended: bool,
}

/// Checks the pads of a Read list, and removes them.
///
/// A pad repeats the Position of its chunk, or has the Position after that chunk's data. Option A of the last-call
/// slides of 2006 does not decide between these. A pad in a chunk of its own (RFC 5666 §3.7) has the second Position.
///
/// # Errors
/// [`ProtocolError::MisplacedPadding`], [`ProtocolError::TooManyReadChunks`].
pub(super) fn remove(read: &mut Vec<ReadSegment>, limits: &Limits) -> Result<(), ProtocolError> {
    let is_pad = |entry: &ReadSegment| entry.padding || entry.is_pad_chunk();
    if !read.iter().any(is_pad) {
        return Ok(());
    }
    let mut chunks: Vec<Padded> = Vec::new();
    for entry in &*read {
        let (position, length) = (entry.position, entry.segment.length);
        let misplaced = ProtocolError::MisplacedPadding { position, length };
        if is_pad(entry) {
            let owner = chunks.iter_mut().find(|chunk| {
                position == chunk.position || u64::from(position) == u64::from(chunk.position) + chunk.len
            });
            match owner {
                Some(chunk) if chunk.takes(length) => chunk.ended = true,
                _ => return Err(misplaced),
            }
            continue;
        }
        match chunks.iter_mut().find(|chunk| chunk.position == position) {
            Some(chunk) if chunk.ended => return Err(misplaced),
            Some(chunk) => chunk.len += u64::from(length),
            None => {
                limits.check_read_chunks(chunks.len())?;
                chunks.push(Padded { position, len: u64::from(length), ended: false });
            }
        }
    }
    read.retain(|entry| !is_pad(entry));
    Ok(())
}

impl Padded {
    /// Whether a pad of this length completes the chunk.
    const fn takes(&self, length: u32) -> bool {
        self.position > 0 && !self.ended && self.len + length as u64 == self.len.next_multiple_of(4)
    }
}

#[cfg(test)]
mod tests;
