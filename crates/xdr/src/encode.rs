//! Encoding items into a [`Stream`].
//!
//! The encoder owns the run that it is writing. It shares payloads and never copies them, except small ones that no
//! chunk could carry ([`INLINE_COPY_MAX`]). After an error the encoder must not be used.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Decoder, EncodeError, Piece, Stream, pad_len, padded_len};

/// Longest payload, in bytes, that is copied into the inline run if it isn't DDP-eligible. An entry of its own in a
/// gather list would cost more than the copy.
pub const INLINE_COPY_MAX: usize = 1024;

/// Size of the first run, in bytes: most headers with small arguments or results fit without growing it.
const FIRST_RUN: usize = 256;

/// A writer of items, which builds a [`Stream`]. It shares payloads and never copies them, except small ones that no
/// chunk could carry ([`INLINE_COPY_MAX`]). After an error it must not be used.
#[derive(Debug)]
pub struct Encoder {
    done: Stream,
    run: BytesMut,
    /// Values around the next one that a recursive type could have made.
    depth: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::with_capacity(FIRST_RUN)
    }
}

impl Encoder {
    /// Creates an encoder at position 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an encoder whose first run has this capacity in bytes. A run that fills it exactly costs no second
    /// allocation when it is shared.
    pub fn with_capacity(first_run: usize) -> Self {
        Self { done: Stream::new(), run: BytesMut::with_capacity(first_run), depth: 0 }
    }

    /// Returns the bytes encoded so far, in the unreduced stream: the position of the next item.
    pub fn position(&self) -> usize {
        self.done.len().saturating_add(self.run.len())
    }

    /// Writes an unsigned integer (RFC 4506 §4.2).
    pub fn u32(&mut self, value: u32) {
        self.run.put_u32(value);
    }

    /// Writes an integer (RFC 4506 §4.1), also the form of an enumeration (§4.3).
    pub fn i32(&mut self, value: i32) {
        self.run.put_i32(value);
    }

    /// Writes an unsigned hyper integer (RFC 4506 §4.5).
    pub fn u64(&mut self, value: u64) {
        self.run.put_u64(value);
    }

    /// Writes a hyper integer (RFC 4506 §4.5).
    pub fn i64(&mut self, value: i64) {
        self.run.put_i64(value);
    }

    /// Writes a floating-point number of single precision (RFC 4506 §4.6), bit for bit.
    pub fn f32(&mut self, value: f32) {
        self.run.put_f32(value);
    }

    /// Writes a floating-point number of double precision (RFC 4506 §4.7), bit for bit.
    pub fn f64(&mut self, value: f64) {
        self.run.put_f64(value);
    }

    /// Writes a boolean (RFC 4506 §4.4), also the discriminant of optional data (§4.19).
    pub fn bool(&mut self, value: bool) {
        self.run.put_u32(u32::from(value));
    }

    /// Writes the count of a counted item, which must not exceed `max`.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for more than `max`, or more than 2³² - 1.
    pub fn count(&mut self, length: usize, max: usize) -> Result<(), EncodeError> {
        match u32::try_from(length) {
            Ok(count) if length <= max => {
                self.run.put_u32(count);
                Ok(())
            }
            _ => Err(EncodeError::too_long(length, max)),
        }
    }

    /// Writes fixed-length opaque data (RFC 4506 §4.9): bytes and pad, no count.
    pub fn opaque_fixed(&mut self, data: &[u8]) {
        self.run.reserve(padded_len(data.len()));
        self.run.put_slice(data);
        self.run.put_bytes(0, pad_len(data.len()));
    }

    /// Writes variable-length opaque data or a string (RFC 4506 §4.10, §4.11), copied into the inline run.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn opaque(&mut self, data: &[u8], max: usize) -> Result<(), EncodeError> {
        self.count(data.len(), max)?;
        self.opaque_fixed(data);
        Ok(())
    }

    /// Writes variable-length opaque data as a [`Piece::Payload`], without moving it. `ddp_eligible` states whether the
    /// Upper-Layer Binding lets it travel in a chunk. Data that isn't eligible and not longer than [`INLINE_COPY_MAX`]
    /// is copied into the inline run instead.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn payload(&mut self, data: Bytes, max: usize, ddp_eligible: bool) -> Result<(), EncodeError> {
        if !ddp_eligible && data.len() <= INLINE_COPY_MAX {
            return self.opaque(&data, max);
        }
        self.count(data.len(), max)?;
        self.end_run();
        self.done.push(Piece::Payload { data, ddp_eligible });
        Ok(())
    }

    /// Writes what `write` writes, one level deeper inside the values around it. Refuses more than
    /// [`Decoder::DEPTH_MAX`] levels, which no [`Decoder`] would read. Boxes, arrays and lists count their level by
    /// themselves; a hand-written `Encode` that calls itself by another way must use this function.
    pub fn nested(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        if self.depth >= Decoder::DEPTH_MAX {
            return Err(EncodeError::TooDeep { max: Decoder::DEPTH_MAX });
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// Appends a part that was encoded before.
    pub fn append(&mut self, stream: Stream) {
        if !stream.pieces().is_empty() {
            self.end_run();
            self.done.append(stream);
        }
    }

    /// Returns the stream of all items encoded.
    pub fn finish(mut self) -> Stream {
        self.done.push(Piece::Inline(self.run.freeze()));
        self.done
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.done.push(Piece::Inline(self.run.split().freeze()));
        }
    }
}

#[cfg(test)]
mod tests;
