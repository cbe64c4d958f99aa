//! Reading the chunks of the peer's messages: arguments of its Calls, and what its replies expose under the Read-Read model
//! (RFC 5666 §3.8).
//!
//! The memory for a whole message is had before its first RDMA Read is posted, all of it or none: two messages that each hold
//! half of what they need would wait for ever. Replies go first, as the handler of a Call may be waiting for one. As many
//! messages are read at a time as RDMA Reads can be under way, and one that is ready to follow: a peer that answers none holds no
//! more memory than these take (rule I6). Reads for both kinds of message are counted together against what was agreed.
//!
//! Time runs while nothing moves. Bytes of the answers give the RDMA Reads under way more time ([`Moving`]). So do bytes of what
//! was posted before them, since an RDMA Read Request leaves behind it. A message that waits for its turn waits as long as those
//! before it go on. A wait for memory is timed while nothing is read, and does not end while Sends or RDMA Writes are under way:
//! these may hold that memory, and have a timer of their own.
//!
//! A chunk is one work request, unless fewer RDMA Reads may be under way at the peer than it has segments (RFC 5666 §6.2): then
//! its memory is cut at segments, and the parts are posted as earlier Reads complete and joined at the end, without a copy.
//!
//! *Who owns which buffer.* A message's memory is here until it is posted, then the provider's until the Read completes. It comes
//! from the domain, or is the caller's for the results of its call.
//!
//! *What happens on error.* A Read that fails ends the connection; memory that is not back then goes with the queue pair.

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
use crate::timers::{Flow, Moving, after, earlier};

/// The message that chunks belong to.
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
    /// The Position-Zero chunk first.
    chunks: Vec<Chunk>,
    /// Chunks that are not read yet.
    left: usize,
}

/// The data of the chunks of one message.
#[derive(Debug, Default)]
pub(crate) struct Pulled {
    /// The Position-Zero chunk, if there is one.
    pub(crate) zero: Option<Bytes>,
    /// The others by ascending Position.
    pub(crate) chunks: Vec<PulledChunk>,
}

#[derive(Debug)]
struct Chunk {
    layout: ReadChunk,
    /// Memory that no Read was posted for.
    rest: Option<Buffer>,
    /// Segments that Reads were posted for.
    posted: usize,
    /// Each part with its number of segments; its memory once it is read.
    parts: Vec<(usize, Option<Buffer>)>,
    data: Option<Bytes>,
}

impl Pull {
    pub(crate) fn new(layout: Layout) -> Self {
        let chunks: Vec<Chunk> = layout.zero.into_iter().chain(layout.chunks).map(Chunk::new).collect();
        let left = chunks.iter().filter(|chunk| chunk.data.is_none()).count();
        Self { chunks, left }
    }

    /// Bytes of all chunks.
    pub(crate) fn len(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.layout.len).fold(0, u64::saturating_add)
    }

    /// Whether nothing has to be read.
    pub(crate) const fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Reads into the caller's memory for its results, if each of them is in a chunk and there is room: an item that comes with
    /// its pad is longer than that. What is taken becomes memory of the pool in `sinks`.
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

    /// What was read, once all of it was.
    pub(crate) fn into_pulled(self) -> Pulled {
        let mut chunks = self.chunks.into_iter().peekable();
        let zero = chunks.next_if(|chunk| chunk.layout.position == 0);
        Pulled {
            zero: zero.map(|chunk| chunk.data.unwrap_or_default()),
            chunks: chunks
                .map(|chunk| PulledChunk {
                    position: chunk.layout.position,
                    data: chunk.data.unwrap_or_default(),
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

    /// Cuts off what at most `most` Reads fetch: the number of the part, and its work.
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

    /// A part is read; says how many Reads that were. The data is there with the last one.
    fn part_read(&mut self, index: usize, memory: Buffer) -> Option<usize> {
        let (segments, part) = self.parts.get_mut(index).filter(|(_, part)| part.is_none())?;
        let segments = *segments;
        *part = Some(memory);
        if self.rest.is_none() && self.parts.iter().all(|(_, part)| part.is_some()) {
            let mut parts = std::mem::take(&mut self.parts).into_iter().filter_map(|(_, part)| part);
            let mut whole = parts.next()?;
            for part in parts {
                // They were cut from one Buffer, in this order.
                whole.unsplit(part).ok()?;
            }
            self.data = Some(whole.freeze());
        }
        Some(segments)
    }
}

/// All messages of a connection that have chunks to be read.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Messages that are read at a time.
    most_messages: usize,
    /// RDMA Reads that may be under way at the peer; `usize::MAX` leaves it to the provider. With 0 the peer cannot be read from.
    allowed: usize,
    /// RDMA Reads under way at the peer.
    under_way: usize,
    messages: BTreeMap<Owner, Message>,
    /// Replies that wait for memory, in order.
    replies: VecDeque<Owner>,
    /// Calls that do.
    calls: VecDeque<Owner>,
    /// Of those with memory, the ones that have RDMA Reads to be posted yet, in order.
    issuing: VecDeque<Owner>,
    /// The RDMA Reads under way.
    moving: Option<Moving>,
    /// Bytes that they are to bring yet.
    bytes_under_way: u64,
    /// Bytes of Sends and RDMA Writes that were posted before the last of them, from the beginning of the connection on.
    before: u64,
    /// The message that waits for memory, and how long it may while nothing is read.
    wait: Option<(Owner, Instant)>,
    /// Of messages that must be read before the peer closes them.
    deadlines: BTreeSet<(Instant, Owner)>,
    /// Bytes that the next message waits for.
    wants_memory: Option<usize>,
}

#[derive(Debug)]
struct Message {
    pull: Pull,
    /// How long the peer lets it be read.
    by: Option<Moving>,
    /// Whether it was counted as waiting for memory.
    waited: bool,
}

impl Reads {
    pub(crate) fn new(capabilities: &Capabilities) -> Self {
        Self {
            most_messages: usize::from(capabilities.ord).saturating_add(1),
            // A peer whose IRD is 0 takes none (RFC 6581 §9.1).
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

    /// No more than so many RDMA Reads may be under way at the peer from now on.
    pub(crate) fn allow(&mut self, reads: usize) {
        self.allowed = self.allowed.min(reads);
        self.most_messages = self.most_messages.min(reads.saturating_add(1));
    }

    /// Whether the peer may be read from at all.
    pub(crate) const fn are_allowed(&self) -> bool {
        self.allowed > 0
    }

    pub(crate) const fn wants_memory(&self) -> Option<usize> {
        self.wants_memory
    }

    /// Whether memory for a reply is waited for: what is exposed to us comes before new calls.
    pub(crate) fn reply_waits(&self) -> bool {
        self.wants_memory.is_some() && !self.replies.is_empty()
    }

    /// The message that is being read, if there is exactly one.
    pub(crate) fn sole(&self) -> Option<Owner> {
        let mut reading = self.messages.keys().filter(|owner| !self.is_waiting(**owner));
        let first = reading.next();
        first.filter(|_| reading.next().is_none()).copied()
    }

    /// A message is to be read. If the peer closes it after a time, `by` is made of the bytes that are to be read until then.
    pub(crate) fn add(&mut self, owner: Owner, pull: Pull, by: Option<impl FnOnce(u64) -> Moving>) {
        let by = by.map(|by| {
            let before = self.messages.values().map(|message| message.pull.len());
            by(before.chain([pull.len()]).fold(0, u64::saturating_add))
        });
        self.deadlines.extend(by.map(|by| (by.deadline, owner)));
        self.line(owner).push_back(owner);
        self.messages.insert(owner, Message { pull, by, waited: false });
    }

    /// Forgets a message, if it still waits for memory.
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
        earlier(moving, self.deadlines.first().map(|(deadline, _)| *deadline))
    }

    /// The connection is over.
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

    /// Whether memory may be taken for one more message.
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
    /// Posts the next RDMA Reads, or takes memory for the next message; `false` if nothing can be done now.
    ///
    /// # Errors
    /// A message that the domain will never have the memory for. It is forgotten.
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

    /// The RDMA Reads of a part of a chunk have ended; the data of the message, if that was the last of them.
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
        // Its last Read was the last thing to be posted for it.
        self.reads.issuing.retain(|issuing| *issuing != owner);
        self.reads.remove(owner).map(Pull::into_pulled)
    }

    /// RDMA Reads of so many bytes go on, or begin: these give them time, and so does what leaves before the last Request.
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

    /// RDMA Reads have ended: the next ones have their time from now on, and so has a wait for memory if there are none.
    fn read_has_ended(&mut self, now: Instant) {
        self.reads.moving = None;
        if self.reads.under_way > 0 {
            self.time_reads(now, self.reads.bytes_under_way);
        }
        if let (None, Some((_, deadline))) = (&self.reads.moving, &mut self.reads.wait) {
            *deadline = after(now, self.config.timeouts.memory);
        }
    }

    /// Time has passed: what does not go on by now ends the connection.
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
