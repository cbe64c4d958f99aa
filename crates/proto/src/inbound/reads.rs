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
//! *Errors.* A failed Read is returned, to end the connection; memory not yet returned then goes with the queue pair.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{
    Buffer, Capabilities, PoolExhausted, ProtectionDomain, RemoteSegment, Status, WorkRequest,
};
use rpcrdma_xdr::ReadChunk as PulledChunk;

use crate::call::Sink;
use crate::inbound::reassembly::{Layout, ReadChunk};
use crate::outbound::{Origin, Outbox, Owner};
use crate::settings::config::Config;
use crate::settings::timers::{Flow, Moving, after, earliest};
use crate::stats::Stats;
use crate::wire::{sized, wide};

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
        sized(self.layout.len)
    }

    /// Cuts off the memory for at most `most` Reads; returns the number of the part, and its work.
    fn next_part(&mut self, most: usize) -> Option<(usize, Buffer, Vec<RemoteSegment>)> {
        let mut sink = self.rest.take()?;
        let left = self.layout.segments.get(self.posted..).unwrap_or_default();
        let taken = left.get(..most).unwrap_or(left);
        if taken.len() < left.len() {
            let len = taken.iter().map(|segment| u64::from(segment.length)).sum::<u64>();
            self.rest = Some(sink.split_off(sized(len)));
        }
        self.posted += taken.len();
        self.parts.push((taken.len(), None));
        Some((self.parts.len() - 1, sink, taken.iter().map(RemoteSegment::from).collect()))
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
    config: Arc<Config>,
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
    pub(crate) wants_memory: Option<usize>,
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
    pub(crate) fn new(config: Arc<Config>, capabilities: &Capabilities) -> Self {
        Self {
            config,
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

impl Reads {
    /// Returns the next RDMA Reads to post.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        outbox: &Outbox,
        stats: &mut Stats,
    ) -> Option<(Origin, WorkRequest)> {
        self.wants_memory = None;
        loop {
            let room = self.allowed.saturating_sub(self.under_way);
            let &owner = self.issuing.front().filter(|_| room > 0)?;
            let chunks =
                self.messages.get_mut(&owner).into_iter().flat_map(|message| &mut message.pull.chunks);
            let next = chunks.enumerate().find_map(|(index, chunk)| Some((index, chunk.next_part(room)?)));
            let Some((chunk, (part, sink, sources))) = next else {
                self.issuing.pop_front();
                continue;
            };
            self.under_way += sources.len();
            stats.reads_at_once = stats.reads_at_once.max(wide(self.under_way));
            let bytes = wide(sink.len());
            self.bytes_under_way = self.bytes_under_way.saturating_add(bytes);
            self.time(now, bytes, outbox);
            return Some((Origin::Read { owner, chunk, part }, WorkRequest::Read { sink, sources }));
        }
    }

    /// Allocates memory for the next message; `false` if no message can have memory now.
    ///
    /// # Errors
    /// The message that exceeds the domain's memory for ever, which is removed.
    pub(crate) fn take_memory(
        &mut self,
        now: Instant,
        domain: &ProtectionDomain,
        stats: &mut Stats,
    ) -> Result<bool, (Owner, PoolExhausted)> {
        let Some(&owner) = self.replies.front().or(self.calls.front()).filter(|_| self.has_room()) else {
            return Ok(false);
        };
        let Some(message) = self.messages.get_mut(&owner) else { return Ok(false) };
        let chunks = &mut message.pull.chunks;
        let lengths: Vec<usize> =
            chunks.iter().map(|chunk| if chunk.rest.is_some() { 0 } else { chunk.len() }).collect();
        match domain.allocate_together(&lengths) {
            Ok(sinks) => {
                for (chunk, sink) in chunks.iter_mut().zip(sinks) {
                    chunk.rest = chunk.rest.take().or(sink);
                }
                self.line(owner).pop_front();
                self.issuing.push_back(owner);
                self.wait = None;
                Ok(true)
            }
            Err(PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. }) => {
                if !std::mem::replace(&mut message.waited, true) {
                    stats.memory_waits += 1;
                }
                self.wants_memory = Some(requested);
                if self.wait.is_none_or(|(waiting, _)| waiting != owner) {
                    self.wait = Some((owner, after(now, self.config.timeouts.memory)));
                }
                Ok(false)
            }
            Err(error) => {
                self.line(owner).pop_front();
                self.remove(owner);
                // The wait of another message goes on.
                self.wait.take_if(|(waiting, _)| *waiting == owner);
                Err((owner, error))
            }
        }
    }

    /// Handles the completed RDMA Reads of a part of a chunk; returns the data of the message after the last one.
    ///
    /// # Errors
    /// The status of RDMA Reads that did not succeed.
    pub(crate) fn complete(
        &mut self,
        now: Instant,
        owner: Owner,
        (chunk, part): (usize, usize),
        (status, sink): (Status, Buffer),
        outbox: &Outbox,
    ) -> Result<Option<Pulled>, Status> {
        if !status.is_success() {
            return Err(status);
        }
        let bytes = wide(sink.len());
        let Some(message) = self.messages.get_mut(&owner) else { return Ok(None) };
        let Pull { chunks, left } = &mut message.pull;
        let Some(chunk) = chunks.get_mut(chunk) else { return Ok(None) };
        let reads = chunk.part_read(part, sink).ok_or(Status::Fatal)?;
        *left -= usize::from(chunk.data.is_some());
        let complete = *left == 0;
        self.under_way = self.under_way.saturating_sub(reads);
        self.bytes_under_way = self.bytes_under_way.saturating_sub(bytes);
        self.moving = None;
        if self.under_way > 0 {
            self.time(now, self.bytes_under_way, outbox);
        }
        // Without RDMA Reads in flight, the deadline of a wait for memory restarts.
        if let (None, Some((_, deadline))) = (&self.moving, &mut self.wait) {
            *deadline = after(now, self.config.timeouts.memory);
        }
        if !complete {
            return Ok(None);
        }
        // The last Read of a message is also the last one posted for it.
        self.issuing.retain(|issuing| *issuing != owner);
        Ok(self.remove(owner).map(Pull::into_pulled))
    }

    /// Starts or extends the deadline of RDMA Reads of so many bytes; bytes that leave before the last Request extend
    /// it too.
    fn time(&mut self, now: Instant, bytes: u64, outbox: &Outbox) {
        let (to_leave, posted) = (outbox.bytes_to_leave(), outbox.bytes_made());
        let before = std::mem::replace(&mut self.before, posted);
        match &mut self.moving {
            Some(moving) => moving.add(bytes.saturating_add(posted.saturating_sub(before))),
            none => {
                let left = bytes.saturating_add(to_leave);
                let stall = self.config.timeouts.rdma_read;
                *none = Some(Moving::new(now, stall, Flow::SentAndRead, outbox.told(), left));
            }
        }
    }

    /// Returns the name of a Read or wait that has made no progress until its deadline.
    pub(crate) fn late(&mut self, now: Instant, outbox: &Outbox) -> Option<&'static str> {
        let timeouts = &self.config.timeouts;
        let mut late = None;
        match &mut self.moving {
            Some(moving) if moving.deadline <= now => {
                if !moving.goes_on(now, timeouts.pace(timeouts.rdma_read), outbox.told()) {
                    self.moving = None;
                    self.wait = None;
                    late = Some(AN_RDMA_READ);
                }
            }
            Some(_) => {}
            None => match &mut self.wait {
                Some((_, deadline)) if *deadline <= now && outbox.is_sending() => {
                    *deadline = after(now, timeouts.memory);
                }
                Some((owner, deadline)) if *deadline <= now => {
                    late = Some(memory_for(*owner));
                    self.wait = None;
                }
                _ => {}
            },
        }
        while let Some((deadline, owner)) =
            self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now)
        {
            self.deadlines.remove(&(deadline, owner));
            let for_memory = self.is_waiting(owner) && self.has_room();
            let pace = timeouts.pace(timeouts.read_by());
            let by = self.messages.get_mut(&owner).and_then(|message| message.by.as_mut());
            if let Some(by) = by
                && by.goes_on(now, pace, outbox.told())
            {
                self.deadlines.insert((by.deadline, owner));
            } else {
                late = late.or(Some(if for_memory { memory_for(owner) } else { AN_RDMA_READ }));
            }
        }
        late
    }
}

const AN_RDMA_READ: &str = "an RDMA Read";

const fn memory_for(owner: Owner) -> &'static str {
    match owner {
        Owner::Reply(_) => "memory for a reply's chunks",
        Owner::Call(_) => "memory for a Call's chunks",
    }
}

#[cfg(test)]
mod tests;
