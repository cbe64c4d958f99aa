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
use tokio::task::coop::consume_budget;
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
    /// All fragments of the record are in `parts`.
    complete: bool,
    /// When the record under way must be there.
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
            complete: false,
            deadline: None,
        }
    }

    /// The next record; `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self, stream: &TcpStream) -> Result<Option<Bytes>, RecordError> {
        // A peer that sends fast enough never makes this wait for the socket: other tasks get their turn all the same (I6).
        consume_budget().await;
        while !self.complete {
            match self.take_fragment().await? {
                Some(last) => self.complete = last,
                None if self.read_some(stream).await? => {}
                None => {
                    return match self.received() {
                        0 => Ok(None),
                        received => Err(RecordError::Truncated { received }),
                    };
                }
            }
        }
        let record = self.join().await?;
        self.complete = false;
        self.deadline = None;
        self.parts_len = 0;
        Ok(Some(record))
    }

    /// Tells that nothing is read for now, which is not the peer's fault: the time for a record begins anew.
    pub(crate) fn pause(&mut self) {
        self.deadline = None;
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
                    self.deadline();
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

    /// When the record under way must be there; its time begins now unless it has begun.
    fn deadline(&mut self) -> Instant {
        *self.deadline.get_or_insert_with(|| super::after(Instant::now(), self.stall_limit))
    }

    async fn in_time<F: Future>(&mut self, future: F) -> Result<F::Output, RecordError> {
        timeout_at(self.deadline(), future)
            .await
            .map_err(|_| RecordError::ReadStalled { limit: self.stall_limit })
    }

    /// Memory for a long fragment or a record of several; waits for it as long as the record may take.
    async fn allocate(&mut self, length: usize) -> Result<Buffer, RecordError> {
        let domain = self.domain.clone();
        loop {
            match domain.allocate(length, 1) {
                Ok(buffer) => return Ok(buffer),
                Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {
                    self.in_time(poll_fn(|cx| domain.poll_available(cx, length))).await?;
                }
                Err(error) => return Err(RecordError::Memory(error)),
            }
        }
    }

    /// One run of memory for the record. Several fragments are copied together, into memory of the domain, which bounds it; no
    /// current peer sends them. Cancel safe: the parts stay until there is memory.
    async fn join(&mut self) -> Result<Bytes, RecordError> {
        self.parts.retain(|part| !part.is_empty());
        if self.parts.len() < 2 {
            return Ok(self.parts.pop().unwrap_or_default());
        }
        let mut buffer = self.allocate(self.parts_len).await?;
        let mut at = 0;
        for part in self.parts.drain(..) {
            let end = at + part.len();
            if let Some(room) = buffer.get_mut(at..end) {
                room.copy_from_slice(&part);
            }
            at = end;
        }
        Ok(buffer.freeze())
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
                timeout_at(super::after(self.progress, limit), stream.writable())
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn i6_a_record_of_several_fragments_counts_against_the_domain() {
        let (mut near, far) = pair().await;
        let domain = ProtectionDomain::new(1 << 20);
        let mut source = RecordSource::new(domain.clone(), 1 << 20, Duration::from_secs(30));
        let send = async {
            for header in [40_000_u32, 0x8000_0000 | 50_000] {
                near.write_all(&header.to_be_bytes()).await.unwrap();
                let length = usize::try_from(header & 0x7fff_ffff).unwrap();
                near.write_all(&vec![7; length]).await.unwrap();
            }
        };
        let ((), record) = tokio::join!(send, source.next(&far));
        let record = record.unwrap().unwrap();
        assert_eq!(record, vec![7; 90_000]);
        assert!(domain.usage().in_use >= 90_000, "{:?}", domain.usage());
        drop(record);
        assert_eq!(domain.usage().in_use, 0);
    }

    #[tokio::test]
    async fn i6_a_record_that_begins_behind_another_must_come_in_time_too() {
        let (mut near, far) = pair().await;
        let limit = Duration::from_millis(50);
        let mut source = RecordSource::new(ProtectionDomain::new(1 << 20), 1 << 20, limit);
        // One whole record and the beginning of the next, in one segment.
        near.write_all(&[0x80, 0, 0, 4, 1, 2, 3, 4, 0x80, 0]).await.unwrap();
        assert_eq!(source.next(&far).await.unwrap().unwrap(), [1, 2, 3, 4][..]);
        let stalled = tokio::time::timeout(Duration::from_secs(10), source.next(&far)).await.unwrap();
        assert!(matches!(stalled, Err(RecordError::ReadStalled { .. })), "{stalled:?}");
    }

    #[tokio::test]
    async fn a_pause_of_ours_is_not_held_against_the_peer() {
        let (mut near, far) = pair().await;
        let limit = Duration::from_millis(100);
        let mut source = RecordSource::new(ProtectionDomain::new(1 << 20), 1 << 20, limit);
        near.write_all(&[0x80, 0, 0, 4, 1]).await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(20), source.next(&far)).await;
        assert!(early.is_err());
        tokio::time::sleep(limit).await;
        source.pause();
        let rest = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            near.write_all(&[2, 3, 4]).await.unwrap();
        };
        let ((), record) = tokio::join!(rest, source.next(&far));
        assert_eq!(record.unwrap().unwrap(), [1, 2, 3, 4][..]);
    }
}
