//! Decoding items of a message, with or without chunks.
//!
//! The decoder owns the inline part and the chunks of a message, each in one or several slices. It counts its position
//! in the *unreduced* stream, as if nothing had been moved (RFC 8166 §3.4.5). Opaque items are handed out as slices of
//! that memory. An item that lies in several slices is joined, and [`Decoder::copied`] counts that copy. Only
//! [`Decoder::payload_slices`] hands such an item out as it lies.
//!
//! Only the reads of payload look into chunks. Any other read that would pass a Read chunk is a chunk violation,
//! reported there; [`Decoder::finish`] reports chunks that were never reached. Pad bytes are skipped, and their content
//! is ignored. After an error the decoder must not be used.

use bytes::{Buf, Bytes, TryGetError};

use crate::{CopyCount, DecodeError, Payload, UNIT, pad_len, padded_len};

mod chunks;

pub use chunks::{ReadChunk, ReturnedChunk, WriteChunkRules};
use chunks::{ReadChunks, WriteChunks};

/// Bytes in front of opaque data that align it, as RDMA_MSGP announces them (RFC 5666 §3.9).
///
/// The unreduced stream does not contain them, so positions do not count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Variable-length opaque data starts at a multiple of this many bytes; 0 and 1 pad nothing.
    pub align: usize,
    /// Data of at least this many bytes is aligned. (RFC 5666 §3.9 says both "at or above" and "exceeds".)
    pub threshold: usize,
    /// Bytes in front of the message that count for the alignment.
    pub before: usize,
}

/// A [`Padding`] and the message that it applies to.
#[derive(Clone, Copy, Debug)]
struct Padded {
    rules: Padding,
    /// Length of the inline part in bytes, pads included.
    total: usize,
}

/// A reader of items of a message, one after the other.
///
/// It counts its position in the *unreduced* stream (RFC 8166 §3.4.5) and hands opaque items out as slices of the
/// message. Only [`payload`](Self::payload) and [`payload_slices`](Self::payload_slices) look into chunks. After an
/// error it must not be used.
#[derive(Clone, Debug)]
pub struct Decoder {
    base: Payload,
    position: usize,
    read: ReadChunks,
    write: WriteChunks,
    padded: Option<Padded>,
    copied: CopyCount,
    /// Values around the next one that a recursive type could have made.
    depth: usize,
}

impl Decoder {
    /// Most values inside one another that are read, each in a box, an array or a list of the one around it. A peer
    /// chooses the depth of a recursive type's values, and each level takes stack.
    pub const DEPTH_MAX: usize = 64;

    /// Creates a decoder of a message in one run of memory: nothing was moved by chunks.
    pub const fn new(base: Bytes) -> Self {
        Self::of_slices(Payload::new(base))
    }

    /// Creates a decoder of a message in several slices: nothing was moved by chunks.
    pub const fn of_slices(base: Payload) -> Self {
        Self {
            base,
            position: 0,
            read: ReadChunks::NONE,
            write: WriteChunks::NONE,
            padded: None,
            copied: CopyCount { inline: 0, payload: 0 },
            depth: 0,
        }
    }

    /// Creates a decoder of a reduced Call. `base` is the inline part (or the Position-Zero chunk). `chunks` are the
    /// other Read chunks, their segments joined, in ascending order of position. A bad order is refused early by
    /// [`ReadChunk::check`], otherwise by the first read that meets the bad chunk.
    pub fn with_read_chunks(base: impl Into<Payload>, chunks: Vec<ReadChunk>) -> Self {
        Self { read: ReadChunks::new(chunks), ..Self::of_slices(base.into()) }
    }

    /// Creates a decoder of a Reply whose DDP-eligible results may stand in the Write chunks that its Call offered.
    /// `chunks` are in the order of the Write list, one entry for each chunk offered.
    pub fn with_write_chunks(base: impl Into<Payload>, chunks: Vec<ReturnedChunk>) -> Self {
        Self { write: WriteChunks::new(chunks), ..Self::of_slices(base.into()) }
    }

    /// Accepts Write chunks by other rules than RFC 8166's. Has no effect without Write chunks.
    pub fn accept(mut self, rules: WriteChunkRules) -> Self {
        self.write.rules = rules;
        self
    }

    /// Takes items from these Read chunks too: for a Reply whose Responder exposed results without an offered Write
    /// chunk (RFC 5666 §3.4). An item in a Read chunk takes no Write chunk.
    pub fn and_read_chunks(mut self, chunks: Vec<ReadChunk>) -> Self {
        self.read = ReadChunks::new(chunks);
        self
    }

    /// Skips alignment in front of variable-length opaque data and strings. Must be called before anything is read. The
    /// result of [`peek`](Self::peek) then contains the skipped bytes.
    pub fn skip_padding(mut self, rules: Padding) -> Self {
        self.padded = Some(Padded { rules, total: self.base.len() });
        self
    }

    /// Returns the position of the next item in the unreduced stream, in bytes.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Returns the bytes left inline, without those left in chunks.
    pub fn remaining(&self) -> usize {
        self.base.len()
    }

    /// Returns the bytes that were copied so far to join items that lay in several slices.
    pub const fn copied(&self) -> CopyCount {
        self.copied
    }

    /// Returns an upper layer's refusal of a value just read.
    pub const fn invalid(&self, reason: &'static str) -> DecodeError {
        DecodeError::Invalid { position: self.position, reason }
    }

    /// Reads an unsigned integer (RFC 4506 §4.2).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.read(4, Bytes::try_get_u32)
    }

    /// Reads an integer (RFC 4506 §4.1), also the form of an enumeration (§4.3).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.read(4, Bytes::try_get_i32)
    }

    /// Reads an unsigned hyper integer (RFC 4506 §4.5).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.read(8, Bytes::try_get_u64)
    }

    /// Reads a hyper integer (RFC 4506 §4.5).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.read(8, Bytes::try_get_i64)
    }

    /// Reads a floating-point number of single precision (RFC 4506 §4.6), bit for bit.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn f32(&mut self) -> Result<f32, DecodeError> {
        self.read(4, Bytes::try_get_f32)
    }

    /// Reads a floating-point number of double precision (RFC 4506 §4.7), bit for bit.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.read(8, Bytes::try_get_f64)
    }

    /// Reads a boolean, also the discriminant of optional data: 0 or 1 (RFC 4506 §4.4, §4.19).
    ///
    /// # Errors
    /// As [`u32`](Self::u32), and [`DecodeError::InvalidBool`] for another number.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        let position = self.position;
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::InvalidBool { position, value }),
        }
    }

    /// Returns the next word without reading it: the discriminant of a union.
    ///
    /// # Errors
    /// As [`u32`](Self::u32).
    pub fn peek_u32(&self) -> Result<u32, DecodeError> {
        self.read.admit_inline(self.position, 4)?;
        match self.base.first.first_chunk() {
            Some(word) => Ok(u32::from_be_bytes(*word)),
            None => self.clone().u32(),
        }
    }

    /// Returns the next bytes without reading them, if they are inline in one slice. Nothing is copied but these.
    pub fn peek_inline<const N: usize>(&self) -> Option<[u8; N]> {
        self.read.admit_inline(self.position, N).ok()?;
        self.base.first.first_chunk().copied()
    }

    /// Reads fixed-length opaque data (RFC 4506 §4.9).
    ///
    /// # Errors
    /// As [`bytes_fixed`](Self::bytes_fixed).
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut data = [0; N];
        data.copy_from_slice(&self.bytes_fixed(N)?);
        Ok(data)
    }

    /// Reads fixed-length opaque data (RFC 4506 §4.9) as a slice of the message.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message ends inside the item, [`DecodeError::ReadChunkMisplaced`] if a Read
    /// chunk begins in it.
    pub fn bytes_fixed(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        let padded = padded_len(length);
        let mut data = self.read(padded, |base| Ok(base.split_to(padded)))?;
        data.truncate(length);
        Ok(data)
    }

    /// Reads variable-length opaque data of at most `max` bytes (RFC 4506 §4.10), as a slice of the message. The item
    /// is not DDP-eligible: a chunk in its place is a violation.
    ///
    /// # Errors
    /// As [`bytes_fixed`](Self::bytes_fixed), and [`DecodeError::TooLong`] for more than `max` bytes, before they are
    /// read.
    pub fn opaque(&mut self, max: usize) -> Result<Bytes, DecodeError> {
        let length = self.count(max)?;
        self.bytes_counted(length)
    }

    /// Reads a string of at most `max` bytes (RFC 4506 §4.11) that must be UTF-8.
    ///
    /// # Errors
    /// As [`opaque`](Self::opaque), and [`DecodeError::InvalidUtf8`].
    pub fn string(&mut self, max: usize) -> Result<String, DecodeError> {
        let length = self.count(max)?;
        let position = self.position;
        let data = self.bytes_counted(length)?;
        let text = str::from_utf8(&data).map_err(|_| DecodeError::InvalidUtf8 { position })?;
        Ok(text.to_owned())
    }

    /// Reads DDP-eligible variable-length opaque data of at most `max` bytes as one slice. Data that lies in several is
    /// joined, which [`payload_slices`](Self::payload_slices) avoids.
    ///
    /// # Errors
    /// As [`payload_slices`](Self::payload_slices).
    pub fn payload(&mut self, max: usize) -> Result<Bytes, DecodeError> {
        let (data, copied) = self.payload_slices(max)?.join();
        self.copied.payload += copied;
        Ok(data)
    }

    /// Reads DDP-eligible variable-length opaque data of at most `max` bytes. Data that travelled in a chunk is taken
    /// from there, other data from the inline part, each in the slices in which it lies.
    ///
    /// # Errors
    /// As [`opaque`](Self::opaque). [`DecodeError::ReadChunkLength`] or [`DecodeError::WriteChunkLength`] if the
    /// chunk has another length than the item. [`DecodeError::WriteChunkIgnored`] if the data came inline although a
    /// Write chunk was offered for it.
    pub fn payload_slices(&mut self, max: usize) -> Result<Payload, DecodeError> {
        let length = self.count(max)?;
        let placed = match self.read.take(self.position, length)? {
            None => self.write.take(self.position, length)?,
            read => read,
        };
        match placed {
            // RFC 8166 §3.4.4.4: the pad left the stream together with the item.
            Some(data) => {
                self.position = self.position.saturating_add(padded_len(length));
                Ok(data)
            }
            None => {
                self.skip_pads(length)?;
                let padded = padded_len(length);
                self.admit(padded)?;
                let mut data = self.base.split_to(padded);
                data.truncate(length);
                self.position = self.position.saturating_add(padded);
                Ok(data)
            }
        }
    }

    /// Reads the count of a variable-length array of at most `max` elements (RFC 4506 §4.13), each at least
    /// `min_item_len` bytes long. Refuses a count that the rest of the message can't hold.
    ///
    /// # Errors
    /// As [`u32`](Self::u32), [`DecodeError::TooLong`] for more than `max` elements, and
    /// [`DecodeError::CountBeyondMessage`].
    pub fn array_len(&mut self, max: usize, min_item_len: usize) -> Result<usize, DecodeError> {
        let position = self.position;
        let count = self.count(max)?;
        let available = self.remaining();
        if count.saturating_mul(min_item_len) > available {
            return Err(DecodeError::CountBeyondMessage { position, count, min_item_len, available });
        }
        Ok(count)
    }

    /// Reads what `read` reads, one level deeper inside the values around it. Refuses more than
    /// [`DEPTH_MAX`](Self::DEPTH_MAX) levels. Boxes, arrays and lists count their level by themselves; a hand-written
    /// `Decode` that calls itself by another way must use this function.
    ///
    /// # Errors
    /// Those of `read`, and [`DecodeError::TooDeep`].
    pub fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if self.depth >= Self::DEPTH_MAX {
            return Err(DecodeError::TooDeep { position: self.position, max: Self::DEPTH_MAX });
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Checks that nothing is left: no bytes inline, no Read chunk unread, no filled Write chunk without its item.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`], [`DecodeError::ReadChunkMisplaced`] for a chunk that was not read, and
    /// [`DecodeError::WriteChunkLeft`].
    pub fn finish(self) -> Result<(), DecodeError> {
        self.read.admit_end(self.position)?;
        self.write.admit_end()?;
        match self.base.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { position: self.position, count }),
        }
    }

    /// Returns slices of the unreduced stream from here on, at most `max` bytes, without reading it. Read chunks appear
    /// at their positions, with or without an eligible item there. Two forms of one Call, reduced and not, give equal
    /// bytes here.
    pub fn peek(&self, max: usize) -> Vec<Bytes> {
        self.read.peek(&self.base, self.position, max)
    }

    fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let position = self.position;
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > max {
            return Err(DecodeError::TooLong { position, count, max });
        }
        Ok(count)
    }

    /// Reads data whose count was just read, and skips its alignment.
    fn bytes_counted(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        self.skip_pads(length)?;
        self.bytes_fixed(length)
    }

    /// Skips the alignment in front of opaque data of `length` bytes.
    fn skip_pads(&mut self, length: usize) -> Result<(), DecodeError> {
        if let Some(Padded { rules: Padding { align, threshold, before }, total }) = self.padded
            && length >= threshold
            && align > 0
        {
            let left = self.base.len();
            let at = before.saturating_add(total - left);
            let skip = at.checked_next_multiple_of(align).map_or(usize::MAX, |aligned| aligned - at);
            if left < skip {
                return Err(self.truncated(skip));
            }
            let _ = self.base.split_to(skip);
        }
        Ok(())
    }

    /// Reads `length` bytes of the inline part by `read`.
    fn read<T>(
        &mut self,
        length: usize,
        read: impl FnOnce(&mut Bytes) -> Result<T, TryGetError>,
    ) -> Result<T, DecodeError> {
        self.read.admit_inline(self.position, length)?;
        if self.base.first.len() < length {
            self.join(length)?;
        }
        let Ok(item) = read(&mut self.base.first) else {
            return Err(self.truncated(length));
        };
        self.position = self.position.saturating_add(length);
        Ok(item)
    }

    /// Makes the next `length` bytes one slice: an item lies in several.
    #[cold]
    fn join(&mut self, length: usize) -> Result<(), DecodeError> {
        self.admit(length)?;
        let (item, copied) = self.base.split_to(length).join();
        self.copied.inline += copied;
        self.base.push_front(item);
        Ok(())
    }

    /// Checks that the next `length` bytes of the unreduced stream are all inline.
    fn admit(&self, length: usize) -> Result<(), DecodeError> {
        self.read.admit_inline(self.position, length)?;
        if self.base.len() < length {
            return Err(self.truncated(length));
        }
        Ok(())
    }

    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeError::Truncated { position: self.position, needed, available: self.base.len() }
    }
}

#[cfg(test)]
mod tests;
