//! Sending a Call: plan, memory, windows, header; all afresh for each transmission.
//!
//! Until the first work request is posted everything can be taken back: memory is allocated first, and a window that could
//! not be had closes those reserved before it.

use std::time::Instant;

use rpcrdma_verbs::{
    Buffer, PoolExhausted, WindowError, WindowErrorKind, WindowMemory, Windows, WorkRequest,
};

use super::{Aside, Place, Requester, Stage, Transaction, Window};
use crate::call::{CallError, CallFailure, Sink, Travelled};
use crate::characteristics::ReverseSupport;
use crate::config::Side;
use crate::core::{Allowance, Core, Origin, allocate_together, segment};
use crate::event::{CloseReason, Event};
use crate::planner::{CallGroups, CallInput, CallPlan, ChunkRules, Refusal, Route, plan_call};
use crate::two::settings::ReplyPlacement;
use crate::wire::two::transmission::{Location, Operation, ResponseDirection, ResponseLocation};
use crate::wire::{Body, ChunkLists, Direction, ReadSegment, Segment, WriteChunk, two};

/// Calls that may pass one that waits for credits for several Sends, while others are awaited whose replies bring some.
const PASSES: u32 = 16;

/// Messages that are left for answers to the peer, where they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers {
    /// One for each Call that the peer waits for.
    pub(crate) in_progress: u32,
    /// Those that one waits for beyond that.
    pub(crate) awaited: u32,
}

/// What there is for a Call and its reply in transmission groups.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Credits, of which each Send takes one.
    sends: u32,
    /// Sends that a reply is asked for at the most, rather than given memory.
    replies: usize,
    /// Bytes of an item that lies in several Receives, at the most.
    joined: usize,
    /// Receives that are kept for the transmissions of other replies.
    set_aside: u32,
}

/// Memory to be exposed, in the order of the header.
type Exposure = (Place, u32, WindowMemory);

impl Requester {
    /// Sends the next call if a credit, its Receive, memory and windows are there. `owed` are the Receives that are needed
    /// already; where messages are counted, `answers` are left.
    ///
    /// A call that goes on in several Sends, and will have the credits for them once those of ours before it are answered, stands aside
    /// for others, but not for ever.
    pub(crate) fn transmit(
        &mut self,
        core: &mut Core,
        now: Instant,
        (owed, answers): (u32, Answers),
        qp: &mut dyn Windows,
    ) -> bool {
        self.wants_memory = None;
        // What is exposed for us comes first: others wait until it is read.
        if core.reads.reply_waits() {
            return false;
        }
        let calls = self.sends_out();
        let left = answers.in_progress.saturating_add(answers.awaited);
        if !self.aside.is_empty() && !self.take_turn(core, left) {
            return false;
        }
        let Some(&xid) = self.queue.front() else { return false };
        // Rule I4.
        if self.credits.is_stuck() {
            core.fail(CloseReason::CreditsInDones);
            return false;
        }
        if !self.credits.available() || self.no_window || !core.may_send(left.saturating_add(1)) {
            return false;
        }
        let share = self.share();
        let Some(transaction) = self.calls.get_mut(&xid) else {
            self.queue.pop_front();
            return true;
        };
        // What has chunks to fall back on does not wait for credits or Receives for several Sends; what has not, does.
        let falls_back = core.uses_chunks();
        let room = if falls_back {
            Room {
                sends: self.credits.room().min(share),
                replies: core.config.transmissions.reply_sends,
                joined: core.config.transmissions.join_up_to,
                set_aside: self.set_aside,
            }
        } else {
            Room { sends: self.credits.granted(), replies: usize::MAX, joined: usize::MAX, set_aside: 0 }
        };
        let plan = match plan(core, transaction, answers, calls, room) {
            Ok(plan) => plan,
            // What the peer takes is not told yet.
            Err(refusal) if core.untold.is_some() && (refusal.is_of_segments() || !falls_back) => {
                if let Some(until) = core.untold.filter(|until| *until < transaction.deadline) {
                    self.set_deadline(xid, until);
                }
                return false;
            }
            Err(refusal) => {
                self.fail_queued(core, xid, refusal.into());
                return true;
            }
        };
        // All Sends of a message leave together, and each uses a Receive of the peer. Where messages are counted, the Call has one
        // credit of its own.
        let sends = narrow(plan.route.sends());
        let taken = if core.messages.is_some() { 1 } else { sends };
        if taken > if falls_back { self.credits.room() } else { self.credits.room_in_turn() } {
            return false;
        }
        if !core.may_send(left.saturating_add(sends)) {
            self.queue.pop_front();
            self.aside.push_back(Aside { xid, sends, passed: 0 });
            return true;
        }
        let receives = narrow(plan.reply_sends);
        // The receive queue has room for one such reply.
        if receives > 1 && self.set_aside > 0 {
            return false;
        }
        // Rule I3: a Receive for the reply, before the Call leaves; or for all of its parts.
        if core.post_receives(owed.saturating_add(receives), qp.domain()) > 0 {
            self.wants_memory = Some(core.receive_room());
            return false;
        }
        let needed = plan.segments();
        if needed > self.max_windows {
            let error = WindowErrorKind::Exhausted { limit: self.max_windows };
            self.fail_queued(core, xid, error.into());
            return true;
        }
        if self.keys.len() + self.releasing + core.exposed_windows + needed > self.max_windows {
            return false;
        }
        let exposures = match allocate(&plan, transaction, qp) {
            Ok(exposures) => exposures,
            Err(PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. }) => {
                self.wants_memory = Some(requested);
                return false;
            }
            Err(error) => {
                self.fail_queued(core, xid, error.into());
                return true;
            }
        };
        match self.open_windows(core, xid, exposures, &plan, qp) {
            Ok(()) => {}
            Err(WindowErrorKind::Exhausted { .. })
                if !self.keys.is_empty() || self.releasing + core.exposed_windows > 0 =>
            {
                self.no_window = true;
                return false;
            }
            Err(WindowErrorKind::Disconnected) => return false,
            Err(error) => {
                self.fail_queued(core, xid, error.into());
                return true;
            }
        }
        self.queue.pop_front();
        self.send(core, now, xid, plan);
        if let Some(first) = self.aside.front_mut() {
            first.passed = first.passed.saturating_add(1);
        }
        true
    }

    /// Credits that a Call may take for its Sends if it could leave in one: those of all, divided among the Calls that are in flight or
    /// wait to be. With many at a time no round trip of one of them is waited for, but credits are, and each Send costs more than a
    /// segment of an RDMA Read.
    fn share(&self) -> u32 {
        let waiting = narrow(self.queue.len().saturating_add(self.aside.len()));
        (self.credits.granted() / self.credits.in_flight().saturating_add(waiting).max(1)).max(1)
    }

    /// The first call that was set aside is next, if it can leave, or never will; `false` if nothing passes it any more.
    fn take_turn(&mut self, core: &Core, left: u32) -> bool {
        let calls = self.sends_out();
        let Some(first) = self.aside.front() else { return true };
        let fits = core.may_send(left.saturating_add(first.sends));
        let hopeless = core.lasting(calls) < first.sends;
        if fits || hopeless {
            let xid = first.xid;
            self.aside.pop_front();
            self.queue.push_front(xid);
            return true;
        }
        // Each of those that are awaited brings credits; if none is, the next one does.
        first.passed < PASSES || calls == 0
    }

    /// Reserves and binds the windows; on failure everything is as before, but for the reservations being given up.
    fn open_windows(
        &mut self,
        core: &mut Core,
        xid: u32,
        exposures: Vec<Exposure>,
        plan: &CallPlan,
        qp: &mut dyn Windows,
    ) -> Result<(), WindowErrorKind> {
        let Some(transaction) = self.calls.get_mut(&xid) else { return Ok(()) };
        let mut lists = ChunkLists {
            read: vec![],
            write: vec![WriteChunk::default(); plan.write.len()],
            reply: plan.reply.as_ref().map(|_| WriteChunk::default()),
        };
        let mut reserved: Vec<Window> = Vec::with_capacity(exposures.len());
        let mut failed = None;
        let mut exposures = exposures.into_iter();
        for (place, position, memory) in exposures.by_ref() {
            match qp.reserve_window(memory) {
                Ok(window) => {
                    lists.add(place, position, segment(&window));
                    reserved.push(Window { key: window.key, place, open: true, memory: None });
                }
                Err(WindowError { kind, memory }) => {
                    failed = Some((kind, place, memory));
                    break;
                }
            }
        }
        if let Some((kind, place, memory)) = failed {
            self.releasing += reserved.len();
            for window in reserved {
                core.invalidate(Origin::Release, window.key);
            }
            // What was reserved is gone with its memory; the pool takes its place when the call is tried again.
            transaction.keep(place, memory);
            for (place, _, memory) in exposures {
                transaction.keep(place, memory);
            }
            return Err(kind);
        }
        for (index, window) in reserved.iter().enumerate() {
            self.keys.insert(window.key, (xid, index));
            core.stats.registrations += 1;
            core.post(Origin::Bind { xid, window: index }, WorkRequest::BindWindow { key: window.key });
        }
        transaction.windows = reserved;
        transaction.offered = lists;
        Ok(())
    }

    fn send(&mut self, core: &mut Core, now: Instant, xid: u32, mut plan: CallPlan) {
        let Some(transaction) = self.calls.get_mut(&xid) else { return };
        let taken = self.credits.take();
        debug_assert!(taken, "a credit was available");
        let lists = transaction.offered.clone();
        let shape = lists.shape(Direction::Call);
        core.stats.copied(plan.copied);
        core.stats.read_segments += wide(shape.read_segments);
        core.stats.write_segments += wide(shape.write_segments.iter().sum());
        core.stats.reply_segments += wide(shape.reply_segments.unwrap_or(0));
        transaction.directions = None;
        let body = match &mut plan.route {
            Route::Inline => Body::Message(lists),
            Route::Padded { align, threshold } => {
                Body::Padded { align: *align, threshold: *threshold, lists }
            }
            Route::Sends(arrangement) => match arrangement.take_lead() {
                None => Body::Message(lists),
                Some(mut lead) => {
                    transaction.directions = Some(name_memory(&mut lead, &lists));
                    Body::Two(two::Body::Transmission(lead))
                }
            },
            Route::Long => Body::NoMessage(lists),
        };
        let mut header = core.header(Direction::Call, xid, self.credits.requested(), body);
        header.invalidate = core.invalidates(&transaction.offered);
        let further = narrow(plan.route.sends()).saturating_sub(1);
        if core.messages.is_some() {
            transaction.parts = further;
            self.parts += further;
        } else {
            transaction.further = further;
            self.credits.take_further(further);
        }
        // Windows are bound before any later request leaves, so nothing here depends on what was posted before.
        let sent = match &plan.route {
            Route::Sends(arrangement) => core.send_arranged(&header, arrangement, &plan.inline, None),
            _ => core.send(&header, &plan.inline, None, true),
        };
        transaction.set_aside = narrow(plan.reply_sends).saturating_sub(1);
        self.set_aside += transaction.set_aside;
        let read = plan.read.iter().flat_map(|chunk| &chunk.segments).map(bytes::Bytes::len).sum();
        let form = plan.form();
        transaction.travelled =
            Travelled { form, sent, read, segments: shape.read_segments, ..Travelled::default() };
        core.stats.calls_sent.count(&transaction.travelled);
        transaction.stage = Stage::Sent;
        if !transaction.offered.is_empty() || self.bulk > 0 {
            let bulk = transaction.offered.total();
            self.bulk = self.bulk.saturating_sub(transaction.bulk).saturating_add(bulk);
            transaction.bulk = bulk;
            transaction.counted = false;
            transaction.caller.see(core.told.as_ref());
        }
        let waited = transaction.deadline != transaction.caller.deadline;
        transaction.number = self.credits.sent();
        let call = &transaction.call;
        tracing::debug!(
            side = %core.side, xid = format_args!("{xid:#010x}"), program = call.program, version = call.version,
            procedure = call.procedure, ?form, sent, read, write_chunks = plan.write.len(),
            reply_chunk = plan.reply.is_some(), in_flight = self.credits.in_flight(), granted = self.credits.granted(),
            ?now, "call"
        );
        if waited {
            let caller = transaction.caller.deadline;
            self.set_deadline(xid, caller);
        }
    }

    /// Gives back every call that has not left: the connection is closed by its owner.
    pub(crate) fn fail_all_queued(&mut self, core: &mut Core) {
        let aside = std::mem::take(&mut self.aside).into_iter().map(|aside| aside.xid);
        for xid in aside.chain(std::mem::take(&mut self.queue)) {
            if let Some(transaction) = self.calls.remove(&xid) {
                self.deadlines.remove(&(transaction.deadline, xid));
                let sent = transaction.has_left();
                let result =
                    Err(CallFailure { error: CallError::Closed, call: Some(transaction.call), sent });
                core.events.push_back(Event::Reply { id: transaction.id, result });
            }
        }
    }
}

/// `answers` are messages that are left, `calls` those that our Calls without a reply took.
fn plan(
    core: &Core,
    transaction: &Transaction,
    answers: Answers,
    calls: u32,
    room: Room,
) -> Result<CallPlan, Refusal> {
    let call = &transaction.call;
    let config = &core.config;
    if core.side == Side::Server && core.peer_reverse == Some(ReverseSupport::None) {
        return Err(Refusal::ReverseNotTaken);
    }
    let sinks: Vec<usize> = call.reply.sinks.iter().map(Sink::len).collect();
    let narrow =
        |value: Option<u32>| value.map_or(usize::MAX, |value| usize::try_from(value).unwrap_or(usize::MAX));
    let (longest, most) = (narrow(core.peer_segments.0), narrow(core.peer_segments.1));
    // Of segments without a byte it takes none.
    let most = if longest == 0 { 0 } else { most };
    let allowed = core.uses_chunks();
    let continues = core.side == Side::Client || core.peer_reverse >= Some(ReverseSupport::Continued);
    let continued = match (continues, allowed) {
        (false, _) => 1,
        // What cannot leave so at once has another way.
        (true, true) => core
            .continued_parts(Allowance::Now { others: answers.in_progress.saturating_add(answers.awaited) }),
        (true, false) => core.continued_parts(Allowance::Lasting { others: answers.in_progress, calls }),
    };
    let attempt = |max_segments| {
        plan_call(&CallInput {
            codec: core.codec,
            message: &call.message,
            flavor_touches_data: call.flavor_touches_data,
            send: core.thresholds.send,
            receive: core.thresholds.receive,
            reply_max: call.reply.max_len,
            sinks: &sinks,
            chunks: ChunkRules {
                allowed,
                read: core.read_chunks(),
                reduce_from: config.reduce_from,
                max_segment_len: config.max_segment_len.max(1024).min(longest),
                max_segments,
                max_read_chunks: config.max_read_chunks,
            },
            withhold: core.reads_replies().is_some_and(|read_read| read_read.withhold_chunks),
            alignment: core.alignment(),
            continued,
            continued_reply: if continues { core.continued_reply_parts() } else { 1 },
            continued_reply_len: config.limits.continued_len,
            groups: if transaction.plain { None } else { core.call_groups(room) },
        })
    };
    let mut plan = attempt(config.max_segments.min(most))?;
    // version-two-07 §5.2.4: those of all chunks together.
    let segments = plan.segments();
    if segments > most {
        let chunks = plan.read.len() + plan.write.len() + usize::from(plan.reply.is_some());
        let fewer = attempt((most / chunks.max(1)).max(1)).ok().filter(|plan| plan.segments() <= most);
        plan = fewer.ok_or(Refusal::TooManySegmentsInAll { segments, allowed: most })?;
    }
    // The reply returns what it was offered: with more than we take in a header it would be discarded.
    let (chunks, allowed) = (plan.write.len(), config.limits.write_chunks);
    if chunks > allowed {
        return Err(Refusal::TooManyWriteChunks { chunks, allowed });
    }
    let segments = plan.write.iter().chain(&plan.reply).map(Vec::len).max().unwrap_or(0);
    let allowed = config.limits.segments_per_chunk;
    if segments > allowed {
        return Err(Refusal::TooManySegments { segments, allowed });
    }
    Ok(plan)
}

impl Core {
    /// What is possible in transmission groups for a Call that leaves now. The receive queue has room for one reply in several Sends.
    fn call_groups(&self, room: Room) -> Option<CallGroups<'_>> {
        let wide = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let peer = self.peer_groups.as_ref().filter(|peer| peer.takes_calls && !self.refuses_groups)?;
        let settings = &self.config.transmissions;
        let most = self.config.continued_parts.max(1);
        let own = if settings.calls.continuation { most } else { 1 };
        let awaited =
            if settings.continued_replies && room.set_aside == 0 { most.min(room.replies) } else { 1 };
        let awaited = awaited.min(self.config.limits.continued_parts).min(peer.responses).max(1);
        let asks = peer.places && settings.asked != ReplyPlacement::Explicit;
        Some(CallGroups {
            sends: own.min(peer.requests).min(wide(room.sends)).max(1),
            reply_sends: awaited,
            theirs: peer.targets.as_ref().filter(|_| settings.calls.placement),
            ours: self.targets.as_ref().filter(|_| asks),
            // Who makes such replies for nothing else makes them in several Sends.
            directs: peer.places || peer.responses > 1,
            asked: settings.asked,
            place_from: settings.place_from,
            join_up_to: room.joined,
            reply_len: self.config.limits.continued_len,
        })
    }
}

/// Names the memory of a Call in the operation of its first transmission; says what its reply was directed to do.
fn name_memory(lead: &mut Operation, offered: &ChunkLists) -> Vec<ResponseDirection> {
    let Operation::Request(request) = lead else { return vec![] };
    for item in &mut request.placed {
        if let Location::Explicit(segments) = &mut item.location {
            let chunk = offered.read.iter().filter(|entry| entry.position == item.displacement);
            *segments = chunk.map(|entry| entry.segment).collect();
        }
    }
    let mut chunks = offered.write.iter();
    let mut directions = Vec::new();
    for direction in request.response.iter_mut().flat_map(|set| &mut set.directions) {
        if let ResponseLocation::Explicit(segments)
        | ResponseLocation::Choice(segments)
        | ResponseLocation::BySize { segments, .. } = &mut direction.location
        {
            *segments = chunks.next().map(|chunk| chunk.segments.clone()).unwrap_or_default();
        }
        directions.push(direction.clone());
    }
    directions
}

/// Gets all memory of a call together, or none of it.
fn allocate(
    plan: &CallPlan,
    transaction: &mut Transaction,
    qp: &dyn Windows,
) -> Result<Vec<Exposure>, PoolExhausted> {
    let domain = qp.domain();
    let mut exposures = Vec::new();
    for chunk in &plan.read {
        for data in &chunk.segments {
            exposures.push((Place::Read, chunk.position, WindowMemory::Read(data.clone())));
        }
    }
    let sinks = plan.write.iter().zip(&transaction.call.reply.sinks);
    let mut needed: Vec<usize> = sinks
        .map(|(lengths, sink)| if matches!(sink, Sink::Pool(_)) { lengths.iter().sum() } else { 0 })
        .collect();
    needed.extend(plan.reply.iter().map(|lengths| lengths.iter().sum::<usize>()));
    let mut pooled = allocate_together(domain, &needed)?;
    let reply = plan.reply.as_ref().and_then(|lengths| Some((pooled.pop()??, lengths)));
    // Nothing fails from here on: the caller's memory can be taken.
    for (index, (buffer, lengths)) in pooled.into_iter().zip(&plan.write).enumerate() {
        let buffer = buffer.or_else(|| transaction.lend(index).filter(|buffer| !buffer.is_empty()));
        if let Some(buffer) = buffer {
            split(buffer, lengths, Place::Write(index), &mut exposures);
        }
    }
    if let Some((buffer, lengths)) = reply {
        split(buffer, lengths, Place::Reply, &mut exposures);
    }
    Ok(exposures)
}

/// Cuts the memory of a chunk into its windows.
fn split(mut rest: Buffer, lengths: &[usize], place: Place, exposures: &mut Vec<Exposure>) {
    for (index, len) in lengths.iter().enumerate() {
        // Not even an empty tail: the pool keeps only what is whole.
        let last = index + 1 == lengths.len();
        let tail = if last { None } else { Some(rest.split_off(*len)) };
        exposures.push((place, 0, WindowMemory::Write(rest)));
        match tail {
            Some(tail) => rest = tail,
            None => return,
        }
    }
}

impl Transaction {
    /// Takes the caller's memory out of a sink.
    fn lend(&mut self, index: usize) -> Option<Buffer> {
        let sink = self.call.reply.sinks.get_mut(index)?;
        let len = sink.len();
        match std::mem::replace(sink, Sink::Pool(len)) {
            Sink::Buffer(buffer) => {
                self.lent.push(index);
                Some(buffer)
            }
            Sink::Pool(_) => None,
        }
    }

    /// Puts the caller's memory back if a call could not be sent and it is whole.
    fn keep(&mut self, place: Place, memory: WindowMemory) {
        if let (Place::Write(index), WindowMemory::Write(buffer)) = (place, memory)
            && let Some(at) = self.lent.iter().position(|lent| *lent == index)
            && let Some(sink) = self.call.reply.sinks.get_mut(index)
            && sink.len() == buffer.len()
        {
            self.lent.swap_remove(at);
            *sink = Sink::Buffer(buffer);
        }
    }
}

impl ChunkLists {
    fn add(&mut self, place: Place, position: u32, segment: Segment) {
        let chunk = match place {
            Place::Read => return self.read.push(ReadSegment::new(position, segment)),
            Place::Write(index) => self.write.get_mut(index),
            Place::Reply => self.reply.as_mut(),
        };
        if let Some(chunk) = chunk {
            chunk.segments.push(segment);
        }
    }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
