//! Records on a TCP stream (RFC 5531 §11): reading and writing without copying long payloads.
//!
//! All memory that a peer makes a server hold comes from the [`ProtectionDomain`] of that peer, which bounds it (I6).
//! That is the read-ahead block, each fragment, the record, and the replies that the peer has not taken. The reader of
//! `oncrpc` does not serve here, because it allocates its own memory. An idle connection holds no memory.
//!
//! *Reading.* The source copies short fragments out of a read-ahead block, which then serves the next ones. It reads
//! long ones straight into memory of their own. A source without memory reads nothing.
//!
//! *Writing.* The sink copies the short pieces of a reply, and its header, into one run of memory of the domain.
//! Several short replies share a run. A long piece is sent from its own memory. [`RecordSource::next_with_room`]
//! reserves [`CALL_ROOM`] bytes or more before it takes memory for a record. So a complete record of one fragment needs no more
//! memory, and its reply has some, whatever the others hold.
//!
//! *Buffers.* A finished record is [`Bytes`]; its memory goes back when the last slice is dropped. Queued pieces are
//! shared and released as they are written.
//!
//! *Errors.* The caller drops the connection. Both halves are cancel safe: all state is in the structs, so that a
//! `select!` may drop their futures.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rpcrdma_oncrpc::record::{FRAGMENT_MAX, FragmentHeader, HEADER_LEN, RecordWriter};
use rpcrdma_proto::Pace;
use rpcrdma_verbs::{Buffer, PoolExhausted, ProtectionDomain, Reserved, RoomWait};
use rpcrdma_xdr::Stream;
use thiserror::Error;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::Moved;
use super::stream::ByteStream;
use crate::config::ServerConfig;
use crate::handlers::TASK_ROOM;
use crate::turns::end_turn;

/// Size of the read-ahead block, in bytes.
const READ_AHEAD: usize = 16 << 10;
/// Longest fragment that is collected in the read-ahead block, header included, in bytes.
const SHORT_FRAGMENT: usize = 4 << 10;
/// Memory of a call in progress in the share of its peer, beside its record, in bytes. First the handler and the task
/// that polls it use this memory, then the reply.
pub(crate) const CALL_ROOM: usize = ServerConfig::HANDLER_ROOM + TASK_ROOM;
/// Longest piece of a reply that is copied together with its neighbours, in bytes.
const SHORT_PIECE: usize = 2 << 10;
/// Longest run of memory for several short replies, in bytes.
const RUN_MAX: usize = 16 << 10;
/// Most reads of the socket and records taken, together, before other tasks have their turn (I6). The number is small
/// because a client with many connections takes as many turns.
const STEPS_PER_TURN: u32 = 4;
/// Most fragments of one record; current peers send one.
const MAX_FRAGMENTS: usize = 256;
/// Most pieces given to one vectored write.
const MAX_SLICES: usize = 64;

/// A fault that ends a stream of records.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum RecordError {
    /// The link failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed inside a record.
    #[error("the peer closed inside a record, {received} bytes of it had arrived")]
    Truncated {
        /// Bytes of the record that had arrived.
        received: usize,
    },
    /// A record is longer than allowed.
    #[error("record of {length} bytes or more; at most {max} are allowed")]
    TooLong {
        /// Bytes announced so far.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A record has more fragments than allowed.
    #[error("record in more than {max} fragments")]
    TooManyFragments {
        /// The limit.
        max: usize,
    },
    /// The rest of a record did not arrive in time.
    #[error("a record stood still for {limit:?}, or nearly so")]
    ReadStalled {
        /// The limit.
        limit: Duration,
    },
    /// The peer took nothing for too long.
    #[error("the peer took nothing for {limit:?}, or next to nothing; {queued} bytes wait")]
    WriteStalled {
        /// The limit.
        limit: Duration,
        /// Bytes that wait.
        queued: usize,
    },
    /// The share of the peer's address had no memory for too long.
    #[error("no memory for a record for {limit:?}: the peer's address holds all it may")]
    NoMemory {
        /// The limit.
        limit: Duration,
    },
    /// The record will never fit the memory limit.
    #[error("no memory for a record: {0}")]
    Memory(PoolExhausted),
}

/// A reader of records from a stream.
#[derive(Debug)]
pub(crate) struct RecordSource {
    domain: ProtectionDomain,
    /// The wait for memory that is not free.
    room: RoomWait,
    max_record: usize,
    pace: Pace,
    /// Counts the bytes that have passed, for calls that wait.
    told: Option<Arc<Moved>>,
    ahead: ReadAhead,
    /// Finished fragments of the record under way.
    parts: Vec<Bytes>,
    parts_len: usize,
    /// The fragment that is read directly.
    fragment: Option<Fragment>,
    /// Whether all fragments of the record are in `parts`.
    complete: bool,
    /// The reservation for the call in the record under way.
    call_room: Option<Reserved>,
    /// Length of such a reservation, in bytes.
    call_room_len: usize,
    /// Time by which more of the record under way must arrive.
    deadline: Option<Instant>,
    /// Steps since the last wait.
    turn: u32,
}

/// Bytes that belong to no fragment yet.
#[derive(Debug, Default)]
struct ReadAhead {
    /// [`READ_AHEAD`] bytes, or none.
    block: Option<Buffer>,
    start: usize,
    end: usize,
}

impl ReadAhead {
    fn bytes(&self) -> &[u8] {
        self.block.as_ref().and_then(|block| block.get(self.start..self.end)).unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    fn advance(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    fn fill(&mut self, block: Buffer) {
        *self = Self { block: Some(block), start: 0, end: 0 };
    }

    /// Gives the block back to the domain.
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the space to read into; moves bytes already read to the front if there is none behind them.
    fn room(&mut self) -> &mut [u8] {
        let Some(block) = &mut self.block else { return &mut [] };
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == block.len() {
            block.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        block.get_mut(self.end..).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Fragment {
    last: bool,
    buffer: Buffer,
    filled: usize,
}

impl RecordSource {
    /// Creates a reader of records of at most `max_record` bytes, which must arrive at this pace once they have begun.
    pub(crate) fn new(domain: ProtectionDomain, max_record: usize, pace: Pace) -> Self {
        Self {
            room: domain.wait(),
            domain,
            max_record,
            pace,
            told: None,
            ahead: ReadAhead::default(),
            parts: Vec::new(),
            parts_len: 0,
            fragment: None,
            complete: false,
            call_room: None,
            call_room_len: CALL_ROOM,
            deadline: None,
            turn: 0,
        }
    }

    /// Reserves this much for each call, instead of [`CALL_ROOM`].
    pub(crate) fn with_call_room(self, call_room_len: usize) -> Self {
        Self { call_room_len, ..self }
    }

    /// Counts the bytes that pass in `told`, too.
    pub(crate) fn telling(self, told: Arc<Moved>) -> Self {
        Self { told: Some(told), ..self }
    }

    /// Returns the next record; `None` at the end of the stream. Cancel safe.
    pub(crate) async fn next(&mut self, stream: &impl ByteStream) -> Result<Option<Bytes>, RecordError> {
        if !self.read_record(stream, false).await? {
            return Ok(None);
        }
        self.join().await.map(Some)
    }

    /// Returns the next record, as [`next`](Self::next) does, and the reserved bytes for its call. Waits for
    /// the reservation before it takes memory for the record, so that complete records never wait for memory of
    /// incomplete ones.
    pub(crate) async fn next_with_room(
        &mut self,
        stream: &impl ByteStream,
    ) -> Result<Option<(Bytes, Reserved)>, RecordError> {
        if !self.read_record(stream, true).await? {
            return Ok(None);
        }
        // A record without bytes comes here without a reservation.
        self.reserve_call_room().await?;
        let record = self.join().await?;
        Ok(self.call_room.take().map(|room| (record, room)))
    }

    /// Reserves memory for the call in the record under way, unless that was done. Cancel safe.
    async fn reserve_call_room(&mut self) -> Result<(), RecordError> {
        if self.call_room.is_none() {
            let len = self.call_room_len;
            self.call_room = Some(self.obtain(len, |domain| domain.reserve(len)).await?);
        }
        Ok(())
    }

    /// Reads until the record is complete; returns `false` at the end of the stream.
    async fn read_record(&mut self, stream: &impl ByteStream, is_call: bool) -> Result<bool, RecordError> {
        loop {
            // A peer that sends fast enough never makes this loop wait for the socket.
            if self.turn >= STEPS_PER_TURN {
                // A client has no line.
                if is_call {
                    end_turn().await;
                } else {
                    yield_now().await;
                }
                // Set afterwards: if this future is dropped meanwhile, it has not made way for others.
                self.turn = 0;
            }
            if self.complete {
                return Ok(true);
            }
            match self.take_fragment(is_call).await? {
                Some(last) => self.complete = last,
                None if self.read_some(stream).await? => {}
                None => {
                    return match self.received() {
                        0 if self.fragment.is_none() => Ok(false),
                        received => Err(RecordError::Truncated { received }),
                    };
                }
            }
        }
    }

    /// Notes that the caller reads nothing for now, through no fault of the peer: the time for a record begins anew.
    /// Memory that the source waited for goes to others meanwhile. So does the reservation for a call of which nothing
    /// has arrived.
    pub(crate) fn pause(&mut self) {
        self.deadline = None;
        self.room.leave();
        if self.parts.is_empty() && self.fragment.is_none() {
            self.call_room = None;
        }
    }

    /// Returns whether the next record is here whole, and may be taken before others have their turn.
    pub(crate) fn has_record(&self) -> bool {
        let here = self.ahead.len();
        self.turn < STEPS_PER_TURN
            && self.fragment.is_none()
            && self.header().is_some_and(|(length, last)| last && HEADER_LEN.saturating_add(length) <= here)
    }

    /// Returns whether nothing has arrived behind the records taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.received() == 0 && self.fragment.is_none()
    }

    /// Notes that the rest of the turn was spent on records already read.
    pub(crate) const fn end_turn(&mut self) {
        self.turn = STEPS_PER_TURN;
    }

    /// Returns the length of the fragment at the start of the read-ahead block, and whether it is its record's last.
    fn header(&self) -> Option<(usize, bool)> {
        let FragmentHeader { length, last } = FragmentHeader::decode(*self.ahead.bytes().first_chunk()?);
        Some((length, last))
    }

    /// Returns the bytes of the record under way that have arrived.
    fn received(&self) -> usize {
        self.parts_len + self.ahead.len() + self.fragment.as_ref().map_or(0, |fragment| fragment.filled)
    }

    /// Moves a complete fragment to `parts` and returns whether it was the record's last; `None` if more must be read.
    async fn take_fragment(&mut self, is_call: bool) -> Result<Option<bool>, RecordError> {
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
        // The bound is checked before any memory is taken for the fragment.
        let total = self.parts_len.saturating_add(length);
        if total > self.max_record {
            return Err(RecordError::TooLong { length: total, max: self.max_record });
        }
        if length == 0 {
            self.ahead.advance(HEADER_LEN);
            self.add_part(Bytes::new());
            return Ok(Some(last));
        }
        let filled = length.min(self.ahead.len() - HEADER_LEN);
        if filled < length && length + HEADER_LEN <= SHORT_FRAGMENT {
            return Ok(None);
        }
        if is_call {
            self.reserve_call_room().await?;
        }
        let mut buffer = self.allocate(length).await?;
        self.ahead.advance(HEADER_LEN);
        if let (Some(target), Some(source)) = (buffer.get_mut(..filled), self.ahead.bytes().get(..filled)) {
            target.copy_from_slice(source);
        }
        self.ahead.advance(filled);
        if filled == length {
            self.add_part(buffer.freeze());
            return Ok(Some(last));
        }
        // Nothing is read ahead until the fragment is there.
        self.ahead.clear();
        self.fragment = Some(Fragment { last, buffer, filled });
        Ok(None)
    }

    fn add_part(&mut self, part: Bytes) {
        self.parts_len += part.len();
        self.parts.push(part);
    }

    /// Reads once from the stream, waiting if there is nothing; returns `false` at its end.
    async fn read_some(&mut self, stream: &impl ByteStream) -> Result<bool, RecordError> {
        loop {
            if self.fragment.is_none() && self.ahead.block.is_none() {
                // Between records no memory is held, and the peer may take its time.
                if self.received() == 0 {
                    self.deadline = None;
                    stream.readable().await?;
                }
                let block = self.allocate(READ_AHEAD).await?;
                self.ahead.fill(block);
            }
            let result = match &mut self.fragment {
                Some(fragment) => {
                    let target = fragment.buffer.get_mut(fragment.filled..).unwrap_or_default();
                    stream.try_read(target).inspect(|count| fragment.filled += count)
                }
                None => stream.try_read(self.ahead.room()).inspect(|count| self.ahead.end += count),
            };
            match result {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.turn += 1;
                    self.moved(count);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.turn = 0,
                Err(error) => return Err(error.into()),
            }
            if self.received() == 0 && self.fragment.is_none() {
                self.ahead.clear();
            } else {
                let limit = self.pace.stall;
                self.in_time(stream.readable()).await.ok_or(RecordError::ReadStalled { limit })??;
            }
        }
    }

    /// Returns the time by which more of the record under way must arrive; starts that time unless it has begun.
    fn deadline(&mut self) -> Instant {
        *self.deadline.get_or_insert_with(|| super::after(Instant::now(), self.pace.stall))
    }

    /// Extends the deadline for bytes that have arrived.
    fn moved(&mut self, count: usize) {
        let now = match self.deadline {
            None => {
                self.deadline();
                None
            }
            Some(deadline) => {
                let now = Instant::now();
                self.deadline = Some(extended(self.pace, deadline, count, now));
                Some(now)
            }
        };
        if let Some(told) = &self.told {
            told.add(count, now.unwrap_or_else(Instant::now));
        }
    }

    /// Waits for `future`; returns `None` if it was not ready by the deadline of the record under way.
    async fn in_time<F: Future>(&mut self, future: F) -> Option<F::Output> {
        timeout_at(self.deadline(), future).await.ok()
    }

    async fn allocate(&mut self, length: usize) -> Result<Buffer, RecordError> {
        self.obtain(length, |domain| domain.allocate(length, 1)).await
    }

    /// Takes memory of the domain for `length` bytes; waits for it as long as the record may stand still. The wait is
    /// not the peer's fault, so the peer's time begins anew.
    async fn obtain<T>(
        &mut self,
        length: usize,
        take: impl Fn(&ProtectionDomain) -> Result<T, PoolExhausted>,
    ) -> Result<T, RecordError> {
        let domain = self.domain.clone();
        loop {
            match take(&domain) {
                Ok(taken) => {
                    self.room.leave();
                    return Ok(taken);
                }
                Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {
                    let limit = self.pace.stall;
                    let deadline = self.deadline();
                    let available = poll_fn(|cx| self.room.poll(cx, ProtectionDomain::room_for(length)));
                    timeout_at(deadline, available).await.map_err(|_| RecordError::NoMemory { limit })?;
                    self.deadline = None;
                }
                Err(error) => return Err(RecordError::Memory(error)),
            }
        }
    }

    /// Ends the record and returns it in one run of memory. Several fragments are copied together, into memory of the
    /// domain; no current peer sends them. Cancel safe: the parts stay until there is memory.
    async fn join(&mut self) -> Result<Bytes, RecordError> {
        self.parts.retain(|part| !part.is_empty());
        let record = if self.parts.len() < 2 {
            self.parts.pop().unwrap_or_default()
        } else {
            let mut buffer = self.allocate(self.parts_len).await?;
            let mut at = 0;
            for part in self.parts.drain(..) {
                let end = at + part.len();
                if let Some(room) = buffer.get_mut(at..end) {
                    room.copy_from_slice(&part);
                }
                at = end;
            }
            buffer.freeze()
        };
        self.turn += 1;
        self.complete = false;
        self.deadline = None;
        self.parts_len = 0;
        Ok(record)
    }
}

/// A queue of records, and their writer.
#[derive(Debug)]
pub(crate) struct RecordSink {
    queue: RecordWriter,
    /// Short replies behind those in the queue.
    run: Option<Run>,
    /// Whether replies wait for which the domain had no memory.
    overdrawn: bool,
    pace: Pace,
    /// Counts the bytes that have passed, for calls that wait.
    told: Option<Arc<Moved>>,
    /// Time by which more must have been written.
    deadline: Instant,
}

/// Memory of the domain with short replies, to which others can be added.
#[derive(Debug)]
struct Run {
    buffer: Buffer,
    sent: usize,
    filled: usize,
}

impl Run {
    fn new(buffer: Buffer) -> Self {
        Self { buffer, sent: 0, filled: 0 }
    }

    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.sent..self.filled).unwrap_or_default()
    }

    /// Copies the message with its header, if there is space; returns whether there was.
    fn add(&mut self, message: &Stream) -> bool {
        let end = self.filled + HEADER_LEN + message.len();
        let Some(room) = self.buffer.get_mut(self.filled..end) else { return false };
        let Some((head, body)) = room.split_at_mut_checked(HEADER_LEN) else { return false };
        head.copy_from_slice(&FragmentHeader { length: message.len(), last: true }.encode());
        // The space is as long as the message.
        if message.copy_to(body).is_err() {
            return false;
        }
        self.filled = end;
        true
    }
}

impl RecordSink {
    /// Creates a sink whose peer must take what is queued at this pace.
    pub(crate) fn new(pace: Pace) -> Self {
        let queue = RecordWriter::new();
        Self { queue, run: None, overdrawn: false, pace, told: None, deadline: Instant::now() }
    }

    /// Counts the bytes that pass in `told`, too.
    pub(crate) fn telling(self, told: Arc<Moved>) -> Self {
        Self { told: Some(told), ..self }
    }

    /// Returns the bytes that wait.
    pub(crate) fn queued(&self) -> usize {
        self.queue.remaining() + self.run.as_ref().map_or(0, |run| run.bytes().len())
    }

    /// Returns whether replies wait that count against no share. Until they have left, no call may begin.
    pub(crate) const fn is_overdrawn(&self) -> bool {
        self.overdrawn
    }

    /// Queues a message as one record. Its memory stays in place; the maker of the message accounts for it.
    pub(crate) fn push(&mut self, message: &Stream) {
        self.begin();
        self.seal();
        self.queue.push(message);
    }

    /// Queues a reply as one record. Short pieces move to memory of `domain`, or to `room`, which the call had
    /// reserved. A piece of more than [`SHORT_PIECE`] bytes stays in place: programs take the memory of long results
    /// from the share themselves ([`ServerBuilder::program`](crate::ServerBuilder::program)).
    pub(crate) fn push_reply(&mut self, message: &Stream, room: Reserved, domain: &ProtectionDomain) {
        let pieces = || message.gather().map(|piece| (piece.len() <= SHORT_PIECE, piece));
        let short: usize = pieces().filter_map(|(short, piece)| short.then_some(piece.len())).sum();
        if message.len() > FRAGMENT_MAX {
            return self.push(message);
        }
        let waiting = self.queued();
        self.begin();
        if short == message.len() {
            if self.run.as_mut().is_some_and(|run| run.add(message)) {
                return;
            }
            self.seal();
            let length = HEADER_LEN + short;
            // The more replies wait, the more are to come.
            let buffer = self.memory(length.max(waiting.min(RUN_MAX)), length, room, domain);
            let mut run = Run::new(buffer);
            run.add(message);
            self.run = Some(run);
            return;
        }
        self.seal();
        let length = HEADER_LEN + short;
        let mut buffer = self.memory(length, length, room, domain);
        buffer.truncate(length);
        let mut at = HEADER_LEN;
        if let Some(head) = buffer.get_mut(..HEADER_LEN) {
            head.copy_from_slice(&FragmentHeader { length: message.len(), last: true }.encode());
        }
        for (_, piece) in pieces().filter(|(short, _)| *short) {
            if let Some(target) = buffer.get_mut(at..at + piece.len()) {
                target.copy_from_slice(&piece);
            }
            at += piece.len();
        }
        let mut copied = buffer.freeze();
        // Short pieces lie in the copy in the order of the message.
        let mut run = HEADER_LEN;
        for (short, piece) in pieces() {
            if short {
                run += piece.len();
            } else {
                self.queue.push_part(copied.split_to(std::mem::take(&mut run).min(copied.len())));
                self.queue.push_part(piece);
            }
        }
        self.queue.push_part(copied);
    }

    /// Returns memory for `wanted` bytes, or at least for `least`.
    fn memory(&mut self, wanted: usize, least: usize, room: Reserved, domain: &ProtectionDomain) -> Buffer {
        if let Ok(buffer) = domain.allocate(wanted, 1) {
            return buffer;
        }
        if least <= room.len() {
            return room.into_buffer();
        }
        drop(room);
        domain.allocate(least, 1).unwrap_or_else(|_| {
            self.overdrawn = true;
            Buffer::adopt(vec![0; least])
        })
    }

    fn begin(&mut self) {
        if self.queued() == 0 {
            self.deadline = super::after(Instant::now(), self.pace.stall);
        }
    }

    /// Moves the run to the queue; the next piece is not short.
    fn seal(&mut self) {
        if let Some(Run { mut buffer, sent, filled }) = self.run.take() {
            buffer.truncate(filled);
            self.queue.push_part(buffer.freeze().slice(sent..));
        }
    }

    /// Writes as much as the stream takes at once.
    pub(crate) fn write_now(&mut self, stream: &impl ByteStream) -> Result<(), RecordError> {
        while self.queued() > 0 && self.write_some(stream)? {}
        Ok(())
    }

    /// Writes until the queue is empty. Cancel safe.
    pub(crate) async fn flush(&mut self, stream: &impl ByteStream) -> Result<(), RecordError> {
        loop {
            self.write_now(stream)?;
            if self.queued() == 0 {
                return Ok(());
            }
            let limit = self.pace.stall;
            timeout_at(self.deadline, stream.writable())
                .await
                .map_err(|_| RecordError::WriteStalled { limit, queued: self.queued() })??;
        }
    }

    /// Writes once; returns `false` if the stream takes nothing now.
    fn write_some(&mut self, stream: &impl ByteStream) -> Result<bool, RecordError> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let mut count = self.queue.chunks_vectored(&mut slices);
        if let (Some(run), Some(slice)) = (&self.run, slices.get_mut(count)) {
            *slice = IoSlice::new(run.bytes());
            count += 1;
        }
        match stream.try_write_vectored(slices.get(..count).unwrap_or_default()) {
            Ok(written) => {
                self.wrote(written);
                let now = Instant::now();
                self.deadline = extended(self.pace, self.deadline, written, now);
                if let Some(told) = &self.told {
                    told.add(written, now);
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn wrote(&mut self, count: usize) {
        let of_queue = count.min(self.queue.remaining());
        self.queue.advance(of_queue);
        if let Some(run) = &mut self.run {
            run.sent += count - of_queue;
            if run.bytes().is_empty() {
                self.run = None;
            }
        }
        if self.queued() == 0 {
            self.overdrawn = false;
        }
    }
}

/// Returns the time by which more must have moved, now that `bytes` have.
fn extended(pace: Pace, deadline: Instant, bytes: usize, now: Instant) -> Instant {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Instant::from_std(pace.extended(deadline.into_std(), bytes, now.into_std()))
}

#[cfg(test)]
mod tests;
