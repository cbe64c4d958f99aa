//! Transmission of a Call: plan, memory, windows and header, made anew for each transmission.
//!
//! Until the first work request is posted everything can be undone. Memory is allocated first, and a failed reservation
//! of a window releases the earlier ones.

use std::time::Instant;

use rpcrdma_verbs::{
    Buffer, PoolExhausted, WindowError, WindowErrorKind, WindowMemory, Windows, WorkRequest,
};

use super::flight::Window;
use super::{Flight, Phase, Place, Requester, Stage, Transaction};
use crate::call::{CallFailure, Invalidations, Sink};
use crate::core::Core;
use crate::error::{CallError, CloseReason};
use crate::event::Event;
use crate::flow::{Offer, Wait};
use crate::message::Travelled;
use crate::outbound::Origin;
use crate::peer::ReverseSupport;
use crate::planner::{CallInput, CallPlan, ChunkRules, Refusal, plan_call};
use crate::settings::config::Side;
use crate::wire::{ChunkLists, Direction, ReadSegment, Segment, WriteChunk, narrow, sized};

/// Reasons why a call cannot have memory and windows.
enum Obstacle {
    /// Others hold them, or the connection is about to end.
    Passing,
    /// There will never be enough.
    Lasting(CallError),
}

/// Memory to open to the peer, in header order.
type Exposure = (Place, u32, WindowMemory);

/// The memory of a call that is about to leave.
struct Opened {
    windows: Vec<Window>,
    offered: ChunkLists,
    /// Sinks whose memory came from the caller.
    lent: Vec<usize>,
}

impl Requester {
    /// Sends the next call if a credit, its Receive, memory and windows are there.
    ///
    /// A call that needs several Sends joins the line if its credits will come with the answers to earlier calls. Other
    /// calls may pass a bounded number of times.
    pub(crate) fn transmit(&mut self, core: &mut Core, now: Instant, qp: &mut dyn Windows) -> bool {
        self.wants_memory = None;
        let Some(xid) = self.next(core) else { return false };
        let Some(transaction) = self.calls.get(&xid) else {
            self.queue.pop_front();
            return true;
        };
        let plan = match plan(core, transaction, self.queue.len()) {
            Ok(plan) => plan,
            Err(refusal) => return self.refuse(core, xid, refusal),
        };
        let takes = (narrow(plan.route.sends()), narrow(plan.reply_sends));
        // A call that can use chunks does not wait for credits or Receives for several Sends; any other does.
        let offer = match core.ledger.ask_call(takes, core.uses_chunks(), qp.domain()) {
            Ok(offer) => offer,
            Err(Wait::Line) => {
                self.queue.pop_front();
                core.ledger.line.join_call(xid, takes.0);
                return true;
            }
            Err(Wait::Receives(room)) => {
                self.wants_memory = Some(room);
                return false;
            }
            Err(Wait::Credits | Wait::Never) => return false,
        };
        match self.open(core, xid, &plan, qp) {
            Ok(opened) => {
                self.queue.pop_front();
                self.send(core, now, xid, (plan, opened), offer);
                true
            }
            Err(Obstacle::Passing) => false,
            Err(Obstacle::Lasting(error)) => {
                self.fail_queued(core, xid, error);
                true
            }
        }
    }

    /// Fails a call that no form carries; `false` if the peer's announcement, which has not come yet, may allow one.
    fn refuse(&mut self, core: &mut Core, xid: u32, refusal: Refusal) -> bool {
        let may_help = refusal.is_of_segments() || !core.uses_chunks();
        let Some(until) = core.untold().filter(|_| may_help) else {
            self.fail_queued(core, xid, refusal.into());
            return true;
        };
        if self.calls.get(&xid).is_some_and(|call| until < call.deadline) {
            self.set_deadline(xid, until);
        }
        false
    }

    /// Returns the next call to send, if it has a credit.
    fn next(&mut self, core: &mut Core) -> Option<u32> {
        // Data that replies expose is read before further calls leave.
        if core.reads.reply_waits() {
            return None;
        }
        if let Some(xid) = core.ledger.next_in_line().ok()? {
            self.queue.push_front(xid);
        }
        let xid = self.queue.front().copied()?;
        match core.ledger.may_call() {
            Ok(()) if self.no_window => None,
            Ok(()) => Some(xid),
            Err(Wait::Never) => {
                core.fail(CloseReason::CreditsInDones);
                None
            }
            Err(_) => None,
        }
    }

    /// Gets memory and windows for a call; a failure changes nothing.
    fn open(
        &mut self,
        core: &mut Core,
        xid: u32,
        plan: &CallPlan,
        qp: &mut dyn Windows,
    ) -> Result<Opened, Obstacle> {
        let Some(transaction) = self.calls.get_mut(&xid) else { return Err(Obstacle::Passing) };
        let needed = plan.segments();
        if needed > self.max_windows {
            return Err(Obstacle::Lasting(WindowErrorKind::Exhausted { limit: self.max_windows }.into()));
        }
        if core.windows + needed > self.max_windows {
            return Err(Obstacle::Passing);
        }
        let (exposures, lent) = allocate(plan, transaction, qp).map_err(|error| match error {
            PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. } => {
                self.wants_memory = Some(requested);
                Obstacle::Passing
            }
            error => Obstacle::Lasting(error.into()),
        })?;
        self.open_windows(core, xid, (exposures, lent), plan, qp).map_err(|error| match error {
            WindowErrorKind::Exhausted { .. } if core.windows > 0 => {
                self.no_window = true;
                Obstacle::Passing
            }
            WindowErrorKind::Disconnected => Obstacle::Passing,
            error => Obstacle::Lasting(error.into()),
        })
    }

    /// Reserves and binds the windows. A failure changes nothing, except that the reservations are released.
    fn open_windows(
        &mut self,
        core: &mut Core,
        xid: u32,
        (exposures, mut lent): (Vec<Exposure>, Vec<usize>),
        plan: &CallPlan,
        qp: &mut dyn Windows,
    ) -> Result<Opened, WindowErrorKind> {
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
                    lists.add(place, position, Segment::from(&window));
                    reserved.push(Window { key: window.key, place, open: true, memory: None });
                }
                Err(WindowError { kind, memory }) => {
                    failed = Some((kind, place, memory));
                    break;
                }
            }
        }
        core.windows += reserved.len();
        if let Some((kind, place, memory)) = failed {
            for window in reserved {
                core.invalidate(Origin::Release, window.key);
            }
            // The reserved memory is gone with its window; the next try takes memory from the pool instead.
            if let Some(transaction) = self.calls.get_mut(&xid) {
                let left = exposures.map(|(place, _, memory)| (place, memory));
                for (place, memory) in [(place, memory)].into_iter().chain(left) {
                    keep(&mut transaction.call.reply.sinks, &mut lent, place, memory);
                }
            }
            return Err(kind);
        }
        for (index, window) in reserved.iter().enumerate() {
            self.keys.insert(window.key, (xid, index));
            core.stats.registrations += 1;
            core.post(Origin::Bind { xid, window: index }, WorkRequest::BindWindow { key: window.key });
        }
        Ok(Opened { windows: reserved, offered: lists, lent })
    }

    fn send(
        &mut self,
        core: &mut Core,
        now: Instant,
        xid: u32,
        (mut plan, opened): (CallPlan, Opened),
        offer: Offer,
    ) {
        let Opened { windows, offered, lent } = opened;
        let Some(transaction) = self.calls.get_mut(&xid) else { return };
        let (permit, lease) = core.ledger.take_call(offer);
        core.stats.copied(plan.copied);
        core.stats.count_segments(&offered);
        let body = plan.route.body(offered.clone());
        let mut header = core.header(Direction::Call, xid, &permit, body);
        header.invalidate = core.invalidates(&offered);
        let payload = plan.inline.of(&transaction.call.message);
        // Windows are bound before any later request leaves, so the Send depends on no earlier request.
        let sent = core.send_by(&mut plan.route, permit, &header, payload, (None, true));
        let read = plan.read.iter().flat_map(|chunk| &chunk.segments).map(bytes::Bytes::len).sum();
        let form = plan.form();
        let travelled = Travelled { form, sent, read, segments: offered.read.len(), ..Travelled::default() };
        core.stats.calls_sent.add(&travelled);
        let bulk = offered.total();
        let (phase, invalidations) = (Phase::Sent(lease), Invalidations::default());
        let flight = Flight { phase, windows, lent, offered, travelled, invalidations, bulk };
        if !flight.offered.is_empty() || self.bulk > 0 {
            self.bulk = self.bulk.saturating_add(bulk);
            transaction.counted = false;
            transaction.caller.see(core.outbox.told());
        }
        transaction.stage = Stage::InFlight(flight);
        let waited = transaction.deadline != transaction.caller.deadline;
        let (in_flight, granted) = (core.ledger.calls.in_flight(), core.ledger.calls.granted());
        let call = &transaction.call;
        tracing::debug!(
            side = %core.side(), xid = format_args!("{xid:#010x}"), program = call.program, version = call.version,
            procedure = call.procedure, ?form, sent, read, write_chunks = plan.write.len(),
            reply_chunk = plan.reply.is_some(), in_flight, granted, ?now, "call"
        );
        if waited {
            let caller = transaction.caller.deadline;
            self.set_deadline(xid, caller);
        }
    }

    /// Fails every unsent call, since the owner closed the connection.
    pub(crate) fn fail_all_queued(&mut self, core: &mut Core) {
        let in_line: Vec<u32> = core.ledger.line.take_calls().collect();
        for xid in in_line.into_iter().chain(std::mem::take(&mut self.queue)) {
            if let Some(transaction) = self.calls.remove(&xid) {
                self.deadlines.remove(&(transaction.deadline, xid));
                let sent = transaction.has_left(core);
                core.forget_group(xid);
                let call = Some(Box::new(transaction.call));
                let result = Err(CallFailure { error: CallError::Closed, call, sent, sent_before: false });
                core.events.push_back(Event::Reply { id: transaction.id, result });
            }
        }
    }
}

/// Decides how a call travels, the first of `queued`.
fn plan(core: &Core, transaction: &Transaction, queued: usize) -> Result<CallPlan, Refusal> {
    let call = &transaction.call;
    let config = &core.config;
    if core.side() == Side::Server && core.peer.reverse == Some(ReverseSupport::None) {
        return Err(Refusal::ReverseNotTaken);
    }
    let sinks: Vec<usize> = call.reply.sinks.iter().map(Sink::len).collect();
    let most = |value: Option<u32>| value.map_or(usize::MAX, sized);
    let (longest, most) = (most(core.peer.segments.0), most(core.peer.segments.1));
    // A peer that accepts no byte in a segment accepts no segment.
    let most = if longest == 0 { 0 } else { most };
    let allowed = core.uses_chunks();
    let attempt = |max_segments| {
        let input = CallInput {
            codec: core.codec,
            message: &call.message,
            flavor_touches_data: call.flavor_touches_data,
            send: core.peer.thresholds.send,
            receive: core.peer.thresholds.receive,
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
        };
        if core.is_plain() { plan_call(&input) } else { core.plan_call(&input, call.xid, queued) }
    };
    let mut plan = attempt(config.max_segments.min(most))?;
    // version-two-07 §5.2.4: the limit is for all chunks together.
    let segments = plan.segments();
    if segments > most {
        let chunks = plan.read.len() + plan.write.len() + usize::from(plan.reply.is_some());
        let fewer = attempt((most / chunks.max(1)).max(1)).ok().filter(|plan| plan.segments() <= most);
        plan = fewer.ok_or(Refusal::TooManySegmentsInAll { segments, allowed: most })?;
    }
    // The reply returns the offered chunks; with more than our own limit it would be discarded.
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

/// Allocates all memory of a call, or none; returns it with the indexes of the sinks that lent theirs.
fn allocate(
    plan: &CallPlan,
    transaction: &mut Transaction,
    qp: &dyn Windows,
) -> Result<(Vec<Exposure>, Vec<usize>), PoolExhausted> {
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
    let mut pooled = domain.allocate_together(&needed)?;
    let reply = plan.reply.as_ref().and_then(|lengths| Some((pooled.pop()??, lengths)));
    // Nothing fails from here on, so the caller's memory may be used.
    let mut lent = Vec::new();
    for (index, (buffer, lengths)) in pooled.into_iter().zip(&plan.write).enumerate() {
        let sinks = &mut transaction.call.reply.sinks;
        let buffer = buffer.or_else(|| lend(sinks, &mut lent, index).filter(|buffer| !buffer.is_empty()));
        if let Some(buffer) = buffer {
            split(buffer, lengths, Place::Write(index), &mut exposures);
        }
    }
    if let Some((buffer, lengths)) = reply {
        split(buffer, lengths, Place::Reply, &mut exposures);
    }
    Ok((exposures, lent))
}

/// Divides the memory of a chunk into its windows.
fn split(mut rest: Buffer, lengths: &[usize], place: Place, exposures: &mut Vec<Exposure>) {
    for (index, len) in lengths.iter().enumerate() {
        // Even an empty tail counts, since the pool keeps only complete buffers.
        let last = index + 1 == lengths.len();
        let tail = if last { None } else { Some(rest.split_off(*len)) };
        exposures.push((place, 0, WindowMemory::Write(rest)));
        match tail {
            Some(tail) => rest = tail,
            None => return,
        }
    }
}

/// Takes the caller's memory out of a sink.
fn lend(sinks: &mut [Sink], lent: &mut Vec<usize>, index: usize) -> Option<Buffer> {
    let sink = sinks.get_mut(index)?;
    let len = sink.len();
    match std::mem::replace(sink, Sink::Pool(len)) {
        Sink::Buffer(buffer) => {
            lent.push(index);
            Some(buffer)
        }
        Sink::Pool(_) => None,
    }
}

/// Returns the complete memory of the caller if a call could not be sent.
fn keep(sinks: &mut [Sink], lent: &mut Vec<usize>, place: Place, memory: WindowMemory) {
    if let (Place::Write(index), WindowMemory::Write(buffer)) = (place, memory)
        && let Some(at) = lent.iter().position(|lent| *lent == index)
        && let Some(sink) = sinks.get_mut(index)
        && sink.len() == buffer.len()
    {
        lent.swap_remove(at);
        *sink = Sink::Buffer(buffer);
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
