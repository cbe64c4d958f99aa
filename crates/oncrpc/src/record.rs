//! Record marking: RPC messages on a byte stream such as TCP (RFC 5531 §11). RPC-over-RDMA doesn't use it.
//!
//! A record is one message, sent as fragments, each with a word in front. The word's highest bit marks the last
//! fragment, the others hold its length. Both sides here are without I/O. A driver reads into [`RecordReader::buffer`]
//! and asks for records. It sends the bytes that a [`RecordWriter`] shows as a [`Buf`], by vectored writes.
//!
//! *Buffers.* The reader owns the bytes read. A record of one fragment is split off and handed out without a copy; the
//! fragments of a longer record are copied together once. The writer shares the pieces of the message until they are
//! sent.
//!
//! *Errors.* The stream can't be trusted any more: the connection must be closed.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use rpcrdma_xdr::Stream;
use thiserror::Error;

/// Length of a fragment's header, in bytes.
pub const HEADER_LEN: usize = 4;

/// Longest fragment, in bytes: 31 bits.
pub const FRAGMENT_MAX: usize = 0x7fff_ffff;

const LAST_FRAGMENT: u32 = 0x8000_0000;

/// Space that the reader offers when it doesn't know how much comes, in bytes.
const READ_AHEAD: usize = 16 * 1024;

/// The header of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Length of the fragment, in bytes, at most [`FRAGMENT_MAX`].
    pub length: usize,
    /// Whether the fragment is the last of its record.
    pub last: bool,
}

impl FragmentHeader {
    /// Decodes the four bytes on the wire; every value has a meaning.
    pub fn decode(bytes: [u8; HEADER_LEN]) -> Self {
        let word = u32::from_be_bytes(bytes);
        let length = usize::try_from(word & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        Self { length, last: word & LAST_FRAGMENT != 0 }
    }

    /// Returns the four bytes on the wire. A longer `length` is written as [`FRAGMENT_MAX`].
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let length = u32::try_from(self.length.min(FRAGMENT_MAX)).unwrap_or(!LAST_FRAGMENT);
        (length | if self.last { LAST_FRAGMENT } else { 0 }).to_be_bytes()
    }
}

/// The limits of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Longest record, in bytes without headers.
    pub record: usize,
    /// Most fragments of a record.
    pub fragments: usize,
}

/// The reason why a byte stream holds no acceptable records.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A record is longer than the limit.
    #[error("record of {length} bytes or more, at most {max} are allowed")]
    TooLong {
        /// Bytes announced up to now.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A record has more fragments than the limit.
    #[error("record of more than {max} fragments")]
    TooManyFragments {
        /// The limit.
        max: usize,
    },
    /// The stream ended inside a record.
    #[error("stream ended inside a record, {pending} bytes after its start")]
    Truncated {
        /// Bytes of the record that had arrived, headers included.
        pending: usize,
    },
}

/// A reader of records from a byte stream. Read into [`buffer`](Self::buffer), then call
/// [`next_record`](Self::next_record) until it has none; at the end of the stream call [`finish`](Self::finish).
#[derive(Debug)]
pub struct RecordReader {
    limits: RecordLimits,
    buffer: BytesMut,
    /// The fragment whose header was taken from the buffer.
    fragment: Option<FragmentHeader>,
    fragments: usize,
    record: BytesMut,
}

impl RecordReader {
    /// Creates a reader at the start of a stream.
    pub fn new(limits: RecordLimits) -> Self {
        Self { limits, buffer: BytesMut::new(), fragment: None, fragments: 0, record: BytesMut::new() }
    }

    /// Returns the buffer to which the driver appends bytes read. It has space for the rest of the fragment, whose
    /// length was checked. Memory without data costs the process no page.
    pub fn buffer(&mut self) -> &mut BytesMut {
        let present = self.buffer.len();
        let missing = self.fragment.map_or(0, |fragment| fragment.length.saturating_sub(present));
        if missing > 0 {
            self.buffer.reserve(missing);
        } else if self.buffer.capacity() - present < READ_AHEAD / 4 {
            self.buffer.reserve(READ_AHEAD);
        }
        &mut self.buffer
    }

    /// Returns the next whole record, if it has arrived.
    pub fn next_record(&mut self) -> Result<Option<Bytes>, RecordError> {
        loop {
            let FragmentHeader { length, last } = match self.fragment {
                Some(fragment) => fragment,
                None => match self.header()? {
                    Some(fragment) => *self.fragment.insert(fragment),
                    None => return Ok(None),
                },
            };
            if self.buffer.len() < length {
                return Ok(None);
            }
            let part = self.buffer.split_to(length);
            self.fragment = None;
            if self.record.is_empty() {
                self.record = part;
            } else {
                self.record.extend_from_slice(&part);
            }
            if last {
                self.fragments = 0;
                return Ok(Some(std::mem::take(&mut self.record).freeze()));
            }
        }
    }

    /// Takes a fragment's header from the buffer and checks its length.
    fn header(&mut self) -> Result<Option<FragmentHeader>, RecordError> {
        let Some(&bytes) = self.buffer.first_chunk() else {
            return Ok(None);
        };
        self.buffer.advance(HEADER_LEN);
        let fragment = FragmentHeader::decode(bytes);
        let RecordLimits { record: max, fragments } = self.limits;
        let length = self.record.len().saturating_add(fragment.length);
        if length > max {
            return Err(RecordError::TooLong { length, max });
        }
        self.fragments += 1;
        if self.fragments > fragments {
            return Err(RecordError::TooManyFragments { max: fragments });
        }
        Ok(Some(fragment))
    }

    /// Returns whether the stream stands between two records, so that it may end here.
    pub fn is_idle(&self) -> bool {
        self.buffer.is_empty() && self.fragments == 0
    }

    /// Checks that the stream didn't end inside a record.
    pub fn finish(&self) -> Result<(), RecordError> {
        if self.is_idle() {
            return Ok(());
        }
        let pending = self.record.len() + self.buffer.len() + self.fragments * HEADER_LEN;
        Err(RecordError::Truncated { pending })
    }
}

/// Messages on their way into a byte stream. As a [`Buf`], the writer shows header and pieces for vectored writes;
/// [`advance`](Buf::advance) removes the bytes that were sent.
#[derive(Debug, Default)]
pub struct RecordWriter {
    parts: VecDeque<Bytes>,
    remaining: usize,
}

impl RecordWriter {
    /// Creates a writer with nothing to send.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message as one record, in one fragment unless it is longer than [`FRAGMENT_MAX`].
    pub fn push(&mut self, message: &Stream) {
        self.push_fragments(message, FRAGMENT_MAX);
    }

    /// Adds a message as one record in fragments of at most `fragment_max` bytes (at least 1, at most
    /// [`FRAGMENT_MAX`]).
    pub fn push_fragments(&mut self, message: &Stream, fragment_max: usize) {
        let fragment_max = fragment_max.clamp(1, FRAGMENT_MAX);
        let mut left = message.len();
        let mut room = self.push_header(left, fragment_max);
        for mut part in message.gather() {
            while !part.is_empty() {
                if room == 0 {
                    room = self.push_header(left, fragment_max);
                }
                let cut = part.split_to(part.len().min(room));
                room -= cut.len();
                left -= cut.len();
                self.push_part(cut);
            }
        }
    }

    /// Adds the header of a fragment that takes as many of the `left` bytes as possible; returns its length.
    fn push_header(&mut self, left: usize, fragment_max: usize) -> usize {
        let length = left.min(fragment_max);
        let header = FragmentHeader { length, last: length == left };
        self.push_part(Bytes::copy_from_slice(&header.encode()));
        length
    }

    /// Adds bytes of records, their headers included.
    pub fn push_part(&mut self, part: Bytes) {
        if part.is_empty() {
            return;
        }
        self.remaining += part.len();
        self.parts.push_back(part);
    }
}

impl Buf for RecordWriter {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], AsRef::as_ref)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(&self.parts).map(|(slice, part)| *slice = IoSlice::new(part));
        filled.count()
    }

    /// Removes sent bytes; a `count` beyond [`remaining`](Buf::remaining) counts as that.
    fn advance(&mut self, count: usize) {
        let mut count = count.min(self.remaining);
        self.remaining -= count;
        while let Some(part) = self.parts.front_mut() {
            if part.len() > count {
                part.advance(count);
                return;
            }
            count -= part.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
