//! RDMA Reads of the chunks in the peer's messages: arguments of Calls, and data that replies expose under the
//! Read-Read model (RFC 5666 §3.8).
//!
//! The memory for a whole message is allocated before its first RDMA Read is posted. Otherwise two messages that each
//! hold half of their memory would wait for ever. Replies precede Calls, as the handler of a Call may wait for a reply.
//! As many messages are read at a time as RDMA Reads can be in flight, plus one that is ready to follow. A peer that
//! answers no Read thus holds no more memory than these (rule I6). An agreed limit counts the Reads for both kinds of
//! message together.
//!
//! The timer measures lack of progress. Received bytes extend the deadline of the RDMA Reads in flight ([`Moving`]).
//! Bytes of earlier requests do too, since an RDMA Read Request leaves after them. A message in the queue waits as long
//! as those before it make progress. The timer for memory runs only while nothing is read. It does not expire while
//! Sends or RDMA Writes are in flight, which may hold that memory and have a timer of their own.
//!
//! A chunk is one work request, unless it has more segments than RDMA Reads may be in flight (RFC 5666 §6.2). Then its
//! memory is cut at segments. The parts are posted as earlier Reads complete, and joined at the end without a copy.
//!
//! *Buffers.* This module owns the memory of a message until the Read is posted; then the provider owns it until the
//! completion. The memory comes from the domain; results of a call may use the caller's.
//!
//! *Errors.* A failed Read ends the connection; memory not yet returned then goes with the queue pair.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, Capabilities, PoolExhausted, RemoteSegment, Status, Windows, WorkRequest};
use rpcrdma_xdr::ReadChunk as PulledChunk;

use crate::call::Sink;
use crate::core::{Core, allocate_together, remote};
use crate::event::CloseReason;
use crate::outbound::Origin;
use crate::reassembly::{Layout, ReadChunk};
use crate::timers::{Flow, Moving, after, earliest};

/// The message of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The reply to our call under this XID.
    Reply(u32),
    /// A Call of the peer, by its token.
    Call(u64),
}

/// The chunks of one message.
#[derive(Debug, Default)]
pub(crate) struct Pull {
    /// The chunks, Position-Zero first.
    chunks: Vec<Chunk>,
    /// The number of chunks not read yet.
    left: usize,
}

/// The data of the chunks of one message.
#[derive(Debug, Default)]
pub(crate) struct Pulled {
    /// The Position-Zero chunk, if there is one.
    pub(crate) zero: Option<Bytes>,
    /// The other chunks by ascending Position.
    pub(crate) chunks: Vec<PulledChunk>,
}

#[derive(Debug)]
struct Chunk {
    layout: ReadChunk,
    /// Memory without a posted Read.
    rest: Option<Buffer>,
    /// Segments with a posted Read.
    posted: usize,
    /// The number of segments of each part, and its memory once it is read.
    parts: Vec<(usize, Option<Buffer>)>,
    data: Option<Bytes>,
}

impl Pull {
    pub(crate) fn new(layout: Layout) -> Self {
        let chunks: Vec<Chunk> = layout.zero.into_iter().chain(layout.chunks).map(Chunk::new).collect();
        let left = chunks.iter().filter(|chunk| chunk.data.is_none()).count();
        Self { chunks, left }
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn len(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.layout.len).fold(0, u64::saturating_add)
    }

    /// Whether nothing is left to read.
    pub(crate) const fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Uses the caller's memory for the results, if each result is in a chunk and fits; an item with its pad may not.
    /// In `sinks`, memory of the pool replaces the used memory.
    pub(crate) fn read_into(&mut self, sinks: &mut [Sink]) {
        let mut results: Vec<_> = self.chunks.iter_mut().filter(|chunk| chunk.layout.position > 0).collect();
        if results.len() != sinks.len() {
            return;
        }
        for (chunk, sink) in results.iter_mut().zip(sinks) {
            let (len, room) = (chunk.len(), sink.len());
            if (1..=room).contains(&len)
                && matches!(sink, Sink::Buffer(_))
                && let Sink::Buffer(mut memory) = std::mem::replace(sink, Sink::Pool(room))
            {
                memory.truncate(len);
                chunk.rest = Some(memory);
            }
        }
    }

    /// Returns the data once every chunk was read.
    pub(crate) fn into_pulled(self) -> Pulled {
        let mut chunks = self.chunks.into_iter().peekable();
        let zero = chunks.next_if(|chunk| chunk.layout.position == 0);
        Pulled {
            zero: zero.map(|chunk| chunk.data.unwrap_or_default()),
            chunks: chunks
                .map(|chunk| PulledChunk {
                    position: chunk.layout.position,
                    data: chunk.data.unwrap_or_default().into(),
                })
                .collect(),
        }
    }
}

impl Chunk {
    fn new(layout: ReadChunk) -> Self {
        let data = (layout.len == 0).then(Bytes::new);
        Self { layout, rest: None, posted: 0, parts: vec![], data }
    }

    fn len(&self) -> usize {
        usize::try_from(self.layout.len).unwrap_or(usize::MAX)
    }

    /// Cuts off the memory for at most `most` Reads; returns the number of the part, and its work.
    fn next_part(&mut self, most: usize) -> Option<(usize, Buffer, Vec<RemoteSegment>)> {
        let mut sink = self.rest.take()?;
        let left = self.layout.segments.get(self.posted..).unwrap_or_default();
        let taken = left.get(..most).unwrap_or(left);
        if taken.len() < left.len() {
            let len = taken.iter().map(|segment| u64::from(segment.length)).sum::<u64>();
            self.rest = Some(sink.split_off(usize::try_from(len).unwrap_or(usize::MAX)));
        }
        self.posted += taken.len();
        self.parts.push((taken.len(), None));
        Some((self.parts.len() - 1, sink, taken.iter().map(remote).collect()))
    }

    /// Records a part as read; returns its number of Reads. The last part completes the data.
    fn part_read(&mut self, index: usize, memory: Buffer) -> Option<usize> {
        let (segments, part) = self.parts.get_mut(index).filter(|(_, part)| part.is_none())?;
        let segments = *segments;
        *part = Some(memory);
        if self.rest.is_none() && self.parts.iter().all(|(_, part)| part.is_some()) {
            let mut parts = std::mem::take(&mut self.parts).into_iter().filter_map(|(_, part)| part);
            let mut whole = parts.next()?;
            for part in parts {
                // All parts were cut from one Buffer, in this order.
                whole.unsplit(part).ok()?;
            }
            self.data = Some(whole.freeze());
        }
        Some(segments)
    }
}

/// The messages of a connection with chunks to read.
#[derive(Debug)]
pub(crate) struct Reads {
    /// The most messages that are read at a time.
    most_messages: usize,
    /// The most RDMA Reads in flight at the peer; `usize::MAX` leaves the limit to the provider. 0 forbids them.
    allowed: usize,
    /// RDMA Reads in flight at the peer.
    under_way: usize,
    messages: BTreeMap<Owner, Message>,
    /// Replies that wait for memory, in order.
    replies: VecDeque<Owner>,
    /// Calls that wait for memory, in order.
    calls: VecDeque<Owner>,
    /// Messages with memory that have RDMA Reads to post, in order.
    issuing: VecDeque<Owner>,
    /// The progress of the RDMA Reads in flight.
    moving: Option<Moving>,
    /// Bytes that the RDMA Reads in flight have yet to bring.
    bytes_under_way: u64,
    /// Bytes of all Sends and RDMA Writes posted before the last RDMA Read, since the connection began.
    before: u64,
    /// The message that waits for memory, and its deadline while nothing is read.
    wait: Option<(Owner, Instant)>,
    /// Deadlines of messages that the peer will close.
    deadlines: BTreeSet<(Instant, Owner)>,
    /// Bytes of memory that the next message waits for.
    wants_memory: Option<usize>,
}

#[derive(Debug)]
struct Message {
    pull: Pull,
    /// The deadline until which the peer exposes the message.
    by: Option<Moving>,
    /// Whether the message was counted as waiting for memory.
    waited: bool,
}

impl Reads {
    pub(crate) fn new(capabilities: &Capabilities) -> Self {
        Self {
            most_messages: usize::from(capabilities.ord).saturating_add(1),
            // A peer whose IRD is 0 accepts no RDMA Read (RFC 6581 §9.1).
            allowed: if capabilities.ord == 0 { 0 } else { usize::MAX },
            under_way: 0,
            messages: BTreeMap::new(),
            replies: VecDeque::new(),
            calls: VecDeque::new(),
            issuing: VecDeque::new(),
            moving: None,
            bytes_under_way: 0,
            before: 0,
            wait: None,
            deadlines: BTreeSet::new(),
            wants_memory: None,
        }
    }

    /// Limits the RDMA Reads in flight at the peer from now on.
    pub(crate) fn allow(&mut self, reads: usize) {
        self.allowed = self.allowed.min(reads);
        self.most_messages = self.most_messages.min(reads.saturating_add(1));
    }

    /// Whether the peer accepts any RDMA Read.
    pub(crate) const fn are_allowed(&self) -> bool {
        self.allowed > 0
    }

    pub(crate) const fn wants_memory(&self) -> Option<usize> {
        self.wants_memory
    }

    /// Whether a reply waits for memory: data exposed to us precedes new calls.
    pub(crate) fn reply_waits(&self) -> bool {
        self.wants_memory.is_some() && !self.replies.is_empty()
    }

    /// Returns the message that is being read, if there is exactly one.
    pub(crate) fn sole(&self) -> Option<Owner> {
        let mut reading = self.messages.keys().filter(|owner| !self.is_waiting(**owner));
        let first = reading.next();
        first.filter(|_| reading.next().is_none()).copied()
    }

    /// Adds a message to read. If the peer will close it, `by` makes the deadline from the bytes to read until then.
    pub(crate) fn add(&mut self, owner: Owner, pull: Pull, by: Option<impl FnOnce(u64) -> Moving>) {
        let by = by.map(|by| {
            let before = self.messages.values().map(|message| message.pull.len());
            by(before.chain([pull.len()]).fold(0, u64::saturating_add))
        });
        self.deadlines.extend(by.map(|by| (by.deadline, owner)));
        self.line(owner).push_back(owner);
        self.messages.insert(owner, Message { pull, by, waited: false });
    }

    /// Removes a message that still waits for memory; `false` if it does not wait.
    pub(crate) fn withdraw(&mut self, owner: Owner) -> bool {
        let line = self.line(owner);
        let Some(at) = line.iter().position(|waiting| *waiting == owner) else { return false };
        line.remove(at);
        self.wait = self.wait.filter(|(waiting, _)| *waiting != owner);
        self.remove(owner).is_some()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let wait = || self.wait.map(|(_, deadline)| deadline);
        let moving = self.moving.map_or_else(wait, |moving| Some(moving.deadline));
        earliest([moving, self.deadlines.first().map(|(deadline, _)| *deadline)])
    }

    /// Forgets everything: the connection is over.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.replies.clear();
        self.calls.clear();
        self.issuing.clear();
        self.moving = None;
        self.wait = None;
        self.deadlines.clear();
    }

    fn line(&mut self, owner: Owner) -> &mut VecDeque<Owner> {
        match owner {
            Owner::Reply(_) => &mut self.replies,
            Owner::Call(_) => &mut self.calls,
        }
    }

    fn is_waiting(&self, owner: Owner) -> bool {
        self.replies.contains(&owner) || self.calls.contains(&owner)
    }

    /// Whether one more message may get memory.
    fn has_room(&self) -> bool {
        self.messages.len() - self.replies.len() - self.calls.len() < self.most_messages
    }

    fn remove(&mut self, owner: Owner) -> Option<Pull> {
        let message = self.messages.remove(&owner)?;
        if let Some(by) = message.by {
            self.deadlines.remove(&(by.deadline, owner));
        }
        Some(message.pull)
    }
}

impl Core {
    /// Posts the next RDMA Reads, or allocates memory for the next message; `false` if nothing can be done now.
    ///
    /// # Errors
    /// The message that exceeds the domain's memory for ever, which is removed.
    pub(crate) fn read_on(&mut self, now: Instant, qp: &dyn Windows) -> Result<bool, (Owner, PoolExhausted)> {
        self.reads.wants_memory = None;
        Ok(self.post_reads(now) || self.take_memory(now, qp)?)
    }

    fn post_reads(&mut self, now: Instant) -> bool {
        let reads = &mut self.reads;
        let room = reads.allowed.saturating_sub(reads.under_way);
        let Some(&owner) = reads.issuing.front().filter(|_| room > 0) else { return false };
        let chunks = reads.messages.get_mut(&owner).into_iter().flat_map(|message| &mut message.pull.chunks);
        let next = chunks.enumerate().find_map(|(index, chunk)| Some((index, chunk.next_part(room)?)));
        let Some((chunk, (part, sink, sources))) = next else {
            reads.issuing.pop_front();
            return true;
        };
        reads.under_way += sources.len();
        let under_way = reads.under_way.try_into().unwrap_or(u64::MAX);
        self.stats.reads_at_once = self.stats.reads_at_once.max(under_way);
        let bytes = u64::try_from(sink.len()).unwrap_or(u64::MAX);
        reads.bytes_under_way = reads.bytes_under_way.saturating_add(bytes);
        self.time_reads(now, bytes);
        self.post(Origin::Read { owner, chunk, part }, WorkRequest::Read { sink, sources });
        true
    }

    fn take_memory(&mut self, now: Instant, qp: &dyn Windows) -> Result<bool, (Owner, PoolExhausted)> {
        let reads = &mut self.reads;
        let Some(&owner) = reads.replies.front().or(reads.calls.front()).filter(|_| reads.has_room()) else {
            return Ok(false);
        };
        let Some(message) = reads.messages.get_mut(&owner) else { return Ok(false) };
        let chunks = &mut message.pull.chunks;
        let lengths: Vec<usize> =
            chunks.iter().map(|chunk| if chunk.rest.is_some() { 0 } else { chunk.len() }).collect();
        match allocate_together(qp.domain(), &lengths) {
            Ok(sinks) => {
                for (chunk, sink) in chunks.iter_mut().zip(sinks) {
                    chunk.rest = chunk.rest.take().or(sink);
                }
                reads.line(owner).pop_front();
                reads.issuing.push_back(owner);
                reads.wait = None;
                Ok(true)
            }
            Err(PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. }) => {
                if !std::mem::replace(&mut message.waited, true) {
                    self.stats.memory_waits += 1;
                }
                reads.wants_memory = Some(requested);
                if reads.wait.is_none_or(|(waiting, _)| waiting != owner) {
                    reads.wait = Some((owner, after(now, self.config.timeouts.memory)));
                }
                Ok(false)
            }
            Err(error) => {
                reads.line(owner).pop_front();
                reads.remove(owner);
                reads.wait = None;
                Err((owner, error))
            }
        }
    }

    /// Handles the completed RDMA Reads of a part of a chunk; returns the data of the message after the last one.
    pub(crate) fn handle_read(
        &mut self,
        now: Instant,
        owner: Owner,
        (chunk, part): (usize, usize),
        status: Status,
        sink: Buffer,
    ) -> Option<Pulled> {
        match status {
            Status::Success => {}
            Status::Flushed => return None,
            _ => {
                self.fail(CloseReason::WorkFailed(status));
                return None;
            }
        }
        let bytes = u64::try_from(sink.len()).unwrap_or(u64::MAX);
        let Pull { chunks, left } = &mut self.reads.messages.get_mut(&owner)?.pull;
        let chunk = chunks.get_mut(chunk)?;
        let Some(reads) = chunk.part_read(part, sink) else {
            self.fail(CloseReason::WorkFailed(Status::Fatal));
            return None;
        };
        *left -= usize::from(chunk.data.is_some());
        let complete = *left == 0;
        self.reads.under_way = self.reads.under_way.saturating_sub(reads);
        self.reads.bytes_under_way = self.reads.bytes_under_way.saturating_sub(bytes);
        self.read_has_ended(now);
        if !complete {
            return None;
        }
        // The last Read of a message is also the last one posted for it.
        self.reads.issuing.retain(|issuing| *issuing != owner);
        self.reads.remove(owner).map(Pull::into_pulled)
    }

    /// Starts or extends the deadline of RDMA Reads of so many bytes; bytes that leave before the last Request extend
    /// it too.
    fn time_reads(&mut self, now: Instant, bytes: u64) {
        let (to_leave, posted) = (self.outbox.bytes_to_leave(), self.outbox.bytes_made());
        let stall = self.config.timeouts.rdma_read;
        let (reads, told) = (&mut self.reads, self.told.as_ref());
        let before = std::mem::replace(&mut reads.before, posted);
        match &mut reads.moving {
            Some(moving) => moving.add(bytes.saturating_add(posted.saturating_sub(before))),
            none => {
                let left = bytes.saturating_add(to_leave);
                *none = Some(Moving::new(now, stall, Flow::SentAndRead, told, left));
            }
        }
    }

    /// Restarts the deadline of the next RDMA Reads; without any, that of a wait for memory.
    fn read_has_ended(&mut self, now: Instant) {
        self.reads.moving = None;
        if self.reads.under_way > 0 {
            self.time_reads(now, self.reads.bytes_under_way);
        }
        if let (None, Some((_, deadline))) = (&self.reads.moving, &mut self.reads.wait) {
            *deadline = after(now, self.config.timeouts.memory);
        }
    }

    /// Ends the connection if a Read or a wait has made no progress until its deadline.
    pub(crate) fn handle_read_timeout(&mut self, now: Instant) {
        let timeouts = &self.config.timeouts;
        let sending = self.outbox.is_sending();
        let (reads, told) = (&mut self.reads, self.told.as_ref());
        let mut late = None;
        match &mut reads.moving {
            Some(moving) if moving.deadline <= now => {
                if !moving.goes_on(now, timeouts.pace(timeouts.rdma_read), told) {
                    reads.moving = None;
                    reads.wait = None;
                    late = Some(AN_RDMA_READ);
                }
            }
            Some(_) => {}
            None => match &mut reads.wait {
                Some((_, deadline)) if *deadline <= now && sending => {
                    *deadline = after(now, timeouts.memory);
                }
                Some((owner, deadline)) if *deadline <= now => {
                    late = Some(memory_for(*owner));
                    reads.wait = None;
                }
                _ => {}
            },
        }
        while let Some((deadline, owner)) =
            reads.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now)
        {
            reads.deadlines.remove(&(deadline, owner));
            let for_memory = reads.is_waiting(owner) && reads.has_room();
            let pace = timeouts.pace(timeouts.read_by());
            let by = reads.messages.get_mut(&owner).and_then(|message| message.by.as_mut());
            if let Some(by) = by
                && by.goes_on(now, pace, told)
            {
                reads.deadlines.insert((by.deadline, owner));
            } else {
                late = late.or(Some(if for_memory { memory_for(owner) } else { AN_RDMA_READ }));
            }
        }
        if let Some(what) = late {
            self.fail(CloseReason::Timeout(what));
        }
    }
}

const AN_RDMA_READ: &str = "an RDMA Read";

const fn memory_for(owner: Owner) -> &'static str {
    match owner {
        Owner::Reply(_) => "memory for a reply's chunks",
        Owner::Call(_) => "memory for a Call's chunks",
    }
}
