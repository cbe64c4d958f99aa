//! Long objects in pieces: files and byte streams that many calls store or fetch.
//!
//! A program with procedures like WRITE and READ moves an object of any length by many calls. [`send`] cuts a source
//! into [`Pieces`] and makes a call for each of them. [`receive`] makes a call for each piece, and writes the results to
//! a target in the order of their offsets. Sources are [`AsyncRead`]s and files ([`FileAt`]); targets are
//! [`AsyncWrite`]s and files. Several calls are in progress at once, up to [`Pieces::window`].
//!
//! ```
//! use bytes::Bytes;
//! use rpcrdma::streaming::{FileAt, Part, Pieces, Received, StreamError, receive, send};
//! use rpcrdma::xdr::{Payload, Xdr};
//! use rpcrdma::{Bounds, CallError, Client};
//!
//! /// Most bytes of one call.
//! const MAX: usize = 1 << 20;
//!
//! #[derive(Xdr)]
//! pub struct Data {
//!     offset: u64,
//!     #[xdr(ddp, max = MAX)]
//!     data: Bytes,
//! }
//!
//! #[derive(Xdr)]
//! pub struct Range {
//!     offset: u64,
//!     count: u32,
//! }
//!
//! #[derive(Xdr)]
//! pub struct Found {
//!     end: bool,
//!     #[xdr(ddp, max = MAX)]
//!     data: Payload,
//! }
//!
//! rpcrdma::program! {
//!     pub mod object {
//!         program 0x2000_0001, version 1;
//!         /// Stores bytes at an offset.
//!         fn write = 1, Write(Data) -> (), Data;
//!         /// Returns the bytes at an offset, and whether the object ends after them.
//!         fn read = 2, Read(Range) -> Found, Idempotent;
//!     }
//! }
//!
//! /// Stores a file, with eight calls in progress.
//! async fn store(client: &Client, file: FileAt) -> Result<u64, StreamError<CallError>> {
//!     send(client.domain(), file, Pieces::of(MAX).window(8), |offset, data| {
//!         client.call::<object::Write>(Data { offset, data })
//!     })
//!     .await
//! }
//!
//! /// Fetches the object into a file.
//! async fn fetch(client: &Client, file: FileAt) -> Result<Received, StreamError<CallError>> {
//!     receive(file, Pieces::of(MAX), async |offset, count| {
//!         let range = Range { offset, count: u32::try_from(count).unwrap_or(u32::MAX) };
//!         let Found { end, data } = client.call::<object::Read>(range).await?;
//!         Ok(Part { data, end })
//!     })
//!     .await
//! }
//! # fn main() {}
//! ```
//!
//! # Order and memory
//!
//! Calls start in the order of their offsets. Those of [`send`] may end in any order. It reads the next piece from the
//! source as soon as fewer than [`window`](Pieces::window) calls are in progress. [`receive`] hands the pieces to the
//! target in order. A piece keeps its place in the window until the target has all of it, so a slow target holds further
//! calls back. Either way a stream holds at most `window` pieces of [`piece`](Pieces::piece) bytes. Short results can hold
//! up to three times as much ([`Gathered`]).
//!
//! [`send`] takes the memory of its pieces from a [`ProtectionDomain`], for instance
//! [`Client::domain`](crate::Client::domain). While the domain is used up, the stream waits. Replies over TCP need memory of
//! this domain too, so its limit should be more than `window` pieces of each stream.
//!
//! # Copies
//!
//! | way of the bytes | copied by the processor |
//! | --- | --- |
//! | file → [`send`] | by the kernel, from its cache into the Buffer (`pread`) |
//! | [`AsyncRead`] → [`send`] | by the reader alone, which writes into the Buffer: a socket's by the kernel |
//! | Buffer → the call, over RDMA | not at all: the peer's RDMA Reads take the Buffer's own memory. Software iWARP gives it to the kernel's socket, which copies it. Of a call that is small enough for one Send, the payload is copied into that Send |
//! | Buffer → the call, over TCP | by the kernel, into the socket |
//! | results in a Write chunk → slices | not at all: they are the sink's memory. Software iWARP reads from the socket into it |
//! | results by Send → slices | by the provider, into the Receives: it may copy what travels by Send |
//! | results over TCP → slices | by the kernel, from the socket into the record |
//! | slices → [`AsyncWrite`] | by the writer alone, which gets the slices in one vectored write |
//! | slices → file | by the kernel, from the slices into its cache (`pwritev`) |
//! | short results that others follow in a piece | once, together, so that few bytes do not hold much memory. [`Gathered`] has the rule, [`Received::copied`] counts the bytes |
//!
//! So only the kernel copies large pieces over RDMA, unless results are much shorter than asked for.
//! [`ClientStats::payload_bytes_copied`] counts the copies of protocol and provider.
//! `tokio::fs::File` is an [`AsyncRead`] as well, but copies all bytes through memory of its own.
//!
//! [`ClientStats::payload_bytes_copied`]: crate::ClientStats::payload_bytes_copied
//!
//! # Ends and errors
//!
//! A stream ends at the end of its file or byte stream, or at the result of a call that says so ([`Part::end`]). With
//! [`Pieces::length`] it ends after that many bytes, and an earlier end is an error. A result may be shorter than asked
//! for without being the end; another call then asks for the rest. To refuse such results, return an error from the
//! closure.
//!
//! Any fault ends the stream with a [`StreamError`], which has the offset. [`send`] then starts no further call, and waits
//! for those in progress. Their own timers bound the wait. It returns the fault of the lowest offset, and none of its
//! calls is on its way any more. [`receive`] writes everything before the fault to the target, and abandons later calls.
//!
//! # Dropping a stream
//!
//! The future of a stream may be dropped at any time. Its calls are then abandoned, as if their own futures were dropped
//! (rule I10). They may still be carried out, and their memory returns when the connection allows. Work that a thread has
//! begun on a file is finished there.

mod ends;
mod file;
mod gathered;
mod in_flight;
mod receive;
mod send;
mod vectored;

use std::error::Error;
use std::fmt;
use std::io;

use rpcrdma_verbs::PoolExhausted;
use rpcrdma_xdr::Payload;
use thiserror::Error;
#[cfg(doc)]
use {
    rpcrdma_verbs::ProtectionDomain,
    tokio::io::{AsyncRead, AsyncWrite},
};

pub use ends::{Source, Target};
pub use file::FileAt;
pub use gathered::Gathered;
pub use in_flight::InFlight;
pub use receive::{Received, receive};
pub use send::send;
pub use vectored::write_all;

/// The part of an object that a stream moves, how it is cut, and how many calls may be in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pieces {
    /// Offset of the first byte; 0 by default.
    pub offset: u64,
    /// Number of bytes; `None`, the default, up to the end of the source.
    pub length: Option<u64>,
    /// Bytes of a piece, at least 1; only the last piece is shorter.
    pub piece: usize,
    /// Most pieces held at a time, and so the most calls in progress; at least 1.
    pub window: usize,
}

impl Pieces {
    /// Default of [`window`](Self::window).
    pub const WINDOW: usize = 8;

    /// Returns pieces of `piece` bytes of a whole object.
    #[must_use]
    pub const fn of(piece: usize) -> Self {
        Self { offset: 0, length: None, piece, window: Self::WINDOW }
    }

    /// Sets the [`offset`](Self::offset) of the first byte.
    #[must_use]
    pub const fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets the number of bytes. If the source ends before, the stream fails with [`Fault::Ended`].
    #[must_use]
    pub const fn length(mut self, length: u64) -> Self {
        self.length = Some(length);
        self
    }

    /// Sets the most pieces held at a time, and so the most calls in progress.
    #[must_use]
    pub const fn window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    /// Returns the most calls in progress.
    fn places(&self) -> usize {
        self.window.max(1)
    }

    /// Returns the bytes of the piece at this offset; 0 behind the last.
    fn length_at(&self, offset: u64) -> usize {
        let left = self.left_at(offset).unwrap_or(u64::MAX - offset);
        usize::try_from(left).unwrap_or(usize::MAX).min(self.piece.max(1))
    }

    /// Returns the bytes from this offset to the end, if the [`length`](Self::length) is given.
    fn left_at(&self, offset: u64) -> Option<u64> {
        self.length.map(|length| self.offset.saturating_add(length).saturating_sub(offset))
    }

    /// Returns the fault of a source that has ended at this offset: none unless it had to be longer.
    fn early_end<E>(&self, offset: u64) -> Option<Fault<E>> {
        self.left_at(offset).filter(|left| *left > 0).map(|left| Fault::Ended { left })
    }
}

/// The results of one call that reads.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// The bytes, in the slices in which they arrived; no more than were asked for.
    pub data: Payload,
    /// Whether the object ends after these bytes. A result without bytes has to be the end.
    pub end: bool,
}

impl Part {
    /// Returns the results of a call: its bytes, and whether the object ends after them.
    pub fn new(data: impl Into<Payload>, end: bool) -> Self {
        Self { data: data.into(), end }
    }
}

/// The reason why a stream stopped, and where. `E` is the error of the calls.
#[derive(Debug)]
#[non_exhaustive]
pub struct StreamError<E> {
    /// Offset of the fault. That of a failed call is the first byte of its piece.
    pub offset: u64,
    /// All bytes before this offset, from the first byte of the stream on, are stored by calls ([`send`]) or taken by the
    /// target ([`receive`]). A repetition can begin here.
    pub done: u64,
    /// The fault.
    pub fault: Fault<E>,
}

impl<E: fmt::Display> fmt::Display for StreamError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at offset {}: {}", self.offset, self.fault)
    }
}

impl<E: Error + 'static> Error for StreamError<E> {
    /// Returns the error of the source, of the target, of the domain or of the call.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.fault.source()
    }
}

/// The kinds of faults that stop a stream. `E` is the error of the calls.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault<E> {
    /// The source cannot be read.
    #[error("the source fails: {0}")]
    Source(#[source] io::Error),
    /// The target does not take the bytes.
    #[error("the target fails: {0}")]
    Target(#[source] io::Error),
    /// A call failed.
    #[error("{0}")]
    Call(#[source] E),
    /// The source ended before the [length](Pieces::length) of the stream.
    #[error("the data ends {left} bytes too early")]
    Ended {
        /// Bytes that are missing.
        left: u64,
    },
    /// A call brought no bytes, although the object does not end there.
    #[error("a call brought no data, and not the end")]
    Empty,
    /// A call brought more bytes than were asked for.
    #[error("a call brought {length} bytes of {asked}")]
    TooLong {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that came.
        length: usize,
    },
    /// A piece is larger than the domain of its memory allows.
    #[error("no memory for a piece: {0}")]
    Memory(#[source] PoolExhausted),
}

/// Returns a length as part of an offset.
fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
