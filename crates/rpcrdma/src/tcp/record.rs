//! Records on a TCP stream (RFC 5531 §11): reading and writing without copying payloads.
//!
//! The source takes short records from a read-ahead block, and reads a long fragment straight into memory of the
//! protection domain, so that all connections together stay within its limit (which is why it isn't `oncrpc`'s reader,
//! whose memory is its own). An idle connection holds no memory. The sink sends queued records by vectored writes from where
//! their pieces lie.
//!
//! *Who owns which buffer.* A finished record is [`Bytes`]; its memory goes back when the last slice is dropped. Queued
//! pieces are shared and released as they are written.
//!
//! *What happens on error.* The caller drops the connection. Both halves are cancel safe: all state is in the structs, so
//! that a `select!` may drop their futures.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rpcrdma_oncrpc::record::{FragmentHeader, HEADER_LEN, RecordWriter};
use rpcrdma_verbs::{Buffer, PoolExhausted, ProtectionDomain};
use rpcrdma_xdr::Stream;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Size of the read-ahead block, in octets.
const READ_AHEAD: usize = 16 << 10;
/// Fragments of one record that are accepted; current peers send one.
const MAX_FRAGMENTS: usize = 256;
/// Pieces given to one vectored write.
const MAX_SLICES: usize = 64;

/// Why a stream of records ended other than at a record boundary.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum RecordError {
    /// The link failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed inside a record.
    #[error("the peer closed inside a record, {received} octets of it had arrived")]
    Truncated {
        /// Octets of the record that had arrived.
        received: usize,
    },
    /// A record longer than allowed.
    #[error("record of {length} octets or more, allowed are {max}")]
    TooLong {
        /// Octets announced so far.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A record in more fragments than allowed.
    #[error("record in more than {max} fragments")]
    TooManyFragments {
        /// The limit.
        max: usize,
    },
    /// The rest of a record did not arrive in time.
    #[error("a record did not arrive within {limit:?}")]
    ReadStalled {
        /// The limit.
        limit: Duration,
    },
    /// The peer took nothing for too long.
    #[error("the peer took nothing for {limit:?}, {queued} octets wait")]
    WriteStalled {
        /// The limit.
        limit: Duration,
        /// Octets that wait.
        queued: usize,
    },
    /// The record will never fit the memory limit.
    #[error("no memory for a record: {0}")]
    Memory(PoolExhausted),
}

/// Reads records from a stream.
#[derive(Debug)]
pub(crate) struct RecordSource {
    domain: ProtectionDomain,
    max_record: usize,
    stall_limit: Duration,
    ahead: BytesMut,
    /// Finished fragments of the record under way.
    parts: Vec<Bytes>,
    parts_len: usize,
    /// The fragment that is read directly.
    fragment: Option<Fragment>,
    /// When the first octet of the record under way arrived.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Fragment {
    last: bool,
    buffer: Buffer,
    filled: usize,
}

impl RecordSource {
    /// A reader of records of at most `max_record` octets, each of which must arrive within `stall_limit`.
    pub(crate) fn new(domain: ProtectionDomain, max_record: usize, stall_limit: Duration) -> Self {
        Self {
            domain,
            max_record,
            stall_limit,
            ahead: BytesMut::new(),
            parts: Vec::new(),
            parts_len: 0,
            fragment: None,
            deadline: None,
        }
    }

    /// The next record; `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self, stream: &TcpStream) -> Result<Option<Bytes>, RecordError> {
        loop {
            let Some(last) = self.take_fragment().await? else {
                if !self.read_some(stream).await? {
                    return match self.received() {
                        0 => Ok(None),
                        received => Err(RecordError::Truncated { received }),
                    };
                }
                continue;
            };
            if last {
                self.deadline = None;
                self.parts_len = 0;
                let parts = std::mem::take(&mut self.parts);
                return Ok(Some(self.join(parts)));
            }
        }
    }

    /// Octets for which the read-ahead block should have room.
    fn wanted(&self) -> usize {
        self.header().map_or(READ_AHEAD / 8, |(length, _)| length.clamp(HEADER_LEN, READ_AHEAD))
    }

    /// Length of the fragment at the start of the read-ahead block, and whether it is its record's last.
    fn header(&self) -> Option<(usize, bool)> {
        let FragmentHeader { length, last } = FragmentHeader::decode(*self.ahead.first_chunk()?);
        Some((length, last))
    }

    /// Octets of the record under way that have arrived.
    fn received(&self) -> usize {
        self.parts_len + self.ahead.len() + self.fragment.as_ref().map_or(0, |fragment| fragment.filled)
    }

    /// Moves a complete fragment to `parts` and says whether it was the record's last; `None` if more must be read.
    async fn take_fragment(&mut self) -> Result<Option<bool>, RecordError> {
        if let Some(fragment) = self.fragment.take_if(|fragment| fragment.filled == fragment.buffer.len()) {
            self.add_part(fragment.buffer.freeze());
            return Ok(Some(fragment.last));
        }
        if self.fragment.is_some() {
            return Ok(None);
        }
        let Some((length, last)) = self.header() else { return Ok(None) };
        if self.parts.len() >= MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments { max: MAX_FRAGMENTS });
        }
        // The bound comes before any memory is taken for the fragment.
        let total = self.parts_len.saturating_add(length);
        if total > self.max_record {
            return Err(RecordError::TooLong { length: total, max: self.max_record });
        }
        if self.ahead.len() - HEADER_LEN >= length {
            let _ = self.ahead.split_to(HEADER_LEN);
            let part = self.ahead.split_to(length).freeze();
            self.add_part(part);
            return Ok(Some(last));
        }
        if length + HEADER_LEN > READ_AHEAD {
            let mut buffer = self.allocate(length).await?;
            let start = self.ahead.split_off(HEADER_LEN);
            if let Some(target) = buffer.get_mut(..start.len()) {
                target.copy_from_slice(&start);
            }
            self.ahead = BytesMut::new();
            self.fragment = Some(Fragment { last, buffer, filled: start.len() });
        }
        Ok(None)
    }

    fn add_part(&mut self, part: Bytes) {
        self.parts_len += part.len();
        self.parts.push(part);
    }

    /// Reads once from the stream, waiting if there is nothing; `false` at its end.
    async fn read_some(&mut self, stream: &TcpStream) -> Result<bool, RecordError> {
        loop {
            let result = match &mut self.fragment {
                Some(fragment) => {
                    let target = fragment.buffer.get_mut(fragment.filled..).unwrap_or_default();
                    stream.try_read(target).inspect(|count| fragment.filled += count)
                }
                None => {
                    if self.ahead.capacity() - self.ahead.len() < self.wanted() {
                        self.ahead.reserve(READ_AHEAD);
                    }
                    stream.try_read_buf(&mut self.ahead)
                }
            };
            match result {
                Ok(0) => return Ok(false),
                Ok(_) => {
                    self.deadline.get_or_insert_with(|| Instant::now() + self.stall_limit);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if self.received() == 0 {
                // Between records: no memory is held, and the peer may take its time.
                self.ahead = BytesMut::new();
                self.deadline = None;
                stream.readable().await?;
            } else {
                self.in_time(stream.readable()).await??;
            }
        }
    }

    async fn in_time<F: Future>(&self, future: F) -> Result<F::Output, RecordError> {
        match self.deadline {
            Some(deadline) => timeout_at(deadline, future)
                .await
                .map_err(|_| RecordError::ReadStalled { limit: self.stall_limit }),
            None => Ok(future.await),
        }
    }

    /// Memory for a long fragment; waits for it as long as the record may take.
    async fn allocate(&self, length: usize) -> Result<Buffer, RecordError> {
        loop {
            match self.domain.allocate(length, 1) {
                Ok(buffer) => return Ok(buffer),
                Err(PoolExhausted::InUse { .. }) => {
                    self.in_time(poll_fn(|cx| self.domain.poll_available(cx, length))).await?;
                }
                Err(error) => return Err(RecordError::Memory(error)),
            }
        }
    }

    /// One run of memory for the record. Several fragments are copied together; no current peer sends them.
    fn join(&self, mut parts: Vec<Bytes>) -> Bytes {
        parts.retain(|part| !part.is_empty());
        match parts.len() {
            0 => Bytes::new(),
            1 => parts.swap_remove(0),
            _ => Bytes::from(parts.concat()),
        }
    }
}

/// Queues records and writes them.
#[derive(Debug)]
pub(crate) struct RecordSink {
    queue: RecordWriter,
    stall_limit: Duration,
    /// When something was last written, or first queued.
    progress: Instant,
}

impl RecordSink {
    /// A sink whose peer must take something every `stall_limit`.
    pub(crate) fn new(stall_limit: Duration) -> Self {
        Self { queue: RecordWriter::new(), stall_limit, progress: Instant::now() }
    }

    /// Octets that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.remaining()
    }

    /// Queues a message as one record.
    pub(crate) fn push(&mut self, message: &Stream) {
        if !self.queue.has_remaining() {
            self.progress = Instant::now();
        }
        self.queue.push(message);
    }

    /// Writes until the queue is empty. Cancel safe.
    pub(crate) async fn flush(&mut self, stream: &TcpStream) -> Result<(), RecordError> {
        while self.queue.has_remaining() {
            if !self.write_some(stream)? {
                let limit = self.stall_limit;
                timeout_at(self.progress + limit, stream.writable())
                    .await
                    .map_err(|_| RecordError::WriteStalled { limit, queued: self.queued() })??;
            }
        }
        Ok(())
    }

    /// Writes once; `false` if the stream takes nothing now.
    fn write_some(&mut self, stream: &TcpStream) -> Result<bool, RecordError> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = self.queue.chunks_vectored(&mut slices);
        match stream.try_write_vectored(slices.get(..count).unwrap_or_default()) {
            Ok(written) => {
                self.queue.advance(written);
                self.progress = Instant::now();
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
