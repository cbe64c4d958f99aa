//! Sending answers: RDMA Writes, then the Send; or an RDMA_ERROR.
//!
//! A Receive for the credit that comes free is posted before the answer leaves (rule I3). What the peer's chunks cannot take
//! is found out before the first byte is written (RFC 8166 §4.5.3).

use std::time::Instant;

use rpcrdma_verbs::{PoolExhausted, WindowErrorKind, Windows, WorkRequest};
use rpcrdma_xdr::Stream;

use super::set_aside::{NO_CREDITS, Place};
use super::{AskedReply, Fault, Incoming, Responder, Stall, narrow};
use crate::call::Travelled;
use crate::core::{Allowance, Core, Origin, remote};
use crate::error::ProtocolError;
use crate::event::Answer;
use crate::gather::Gather;
use crate::planner::{ChunkRules, ReplyGroups, ReplyInput, ReplyPlan, Route, plan_reply};
use crate::timers::after;
use crate::wire::{Body, Direction, ErrorBody, Header, ReadSegment, WriteChunk, two};

impl Responder {
    /// Makes progress: one error or answer. `in_flight` is the number of Receives that replies to our own calls need; `calls` is how many
    /// messages these took, and `windows` how many windows they hold.
    pub(crate) fn transmit(
        &mut self,
        core: &mut Core,
        now: Instant,
        (in_flight, calls, windows): (u32, u32, usize),
        qp: &mut dyn Windows,
    ) -> bool {
        self.wants_memory = None;
        // What is not answered needs no grant; a second answer to the same Call gives no credit back.
        let silent = |(token, answer): &(u64, Answer)| match answer {
            Answer::Drop => true,
            // All answers before leave first.
            Answer::Lost => self.set_aside.is_empty(),
            _ => !self.calls.contains_key(token),
        };
        if self.answers.front().is_some_and(silent) {
            if let Some((token, answer)) = self.answers.pop_front()
                && self.forget(token).is_some()
            {
                self.reply_lost |= matches!(answer, Answer::Lost);
                self.credits.finish();
            }
            self.stalled = None;
            return true;
        }
        if !self.errors.is_empty() {
            let Some(grant) = self.grant(core, now, in_flight, Waiting::Error, qp) else { return false };
            self.credits.finish();
            self.stalled_error = None;
            if let Some(Fault { xid, version, body }) = self.errors.pop_front() {
                send_error(core, xid, version, grant, body);
            }
            return true;
        }
        if !self.set_aside.is_empty() {
            self.take_turn(core);
        }
        if self.answers.front().is_none_or(|(_, answer)| matches!(answer, Answer::Lost)) {
            return false;
        }
        let Some(mut plan) = self.plan_next(core, calls) else { return false };
        let exposing = plan.as_ref().is_ok_and(|plan| !plan.read.is_empty());
        let for_done = narrow(usize::from(exposing));
        let sends = narrow(plan.as_ref().map_or(1, |plan| plan.route.sends()));
        match self.place(core, calls, sends) {
            Place::Next => {}
            Place::Behind => return false,
            Place::Aside => {
                self.put_aside(core, now, sends);
                return true;
            }
        }
        let in_flight = in_flight.saturating_add(for_done);
        let Some(grant) = self.grant(core, now, in_flight, Waiting::Answer, qp) else { return false };
        let read = match &plan {
            Ok(planned) if exposing => match self.expose_next(core, now, (grant, windows), planned, qp) {
                Ok(read) => read,
                Err(Room::Later) => {
                    self.withhold(core, now);
                    return true;
                }
                Err(Room::Memory(room)) => {
                    self.wait_for(core, now, Waiting::Answer, room);
                    return false;
                }
                Err(Room::Never) => {
                    let len = u64::try_from(planned.exposed()).unwrap_or(u64::MAX);
                    plan = Err(ProtocolError::ReplyNotExposed { len, grant });
                    vec![]
                }
                Err(Room::Ended) => return false,
            },
            _ => vec![],
        };
        self.credits.finish();
        self.stalled = None;
        if let Some((token, _)) = self.answers.pop_front()
            && let Some(call) = self.forget(token)
        {
            if matches!(&plan, Ok(ReplyPlan { route: Route::Sends(sends), .. }) if sends.is_group()) {
                self.left_in_group(call.xid);
            }
            let sent = plan.and_then(|plan| send_reply(core, &call, plan, read, grant));
            if let Err(refusal) = sent {
                refuse(core, &call, &refusal, grant);
            }
        }
        true
    }

    /// Decides how the next answer travels; `None` if there is none. `calls` are messages that our Calls without a reply took.
    fn plan_next(&self, core: &Core, calls: u32) -> Option<Result<ReplyPlan, ProtocolError>> {
        let (token, answer) = self.answers.front()?;
        let call = self.calls.get(token)?;
        // Credits that will be there are waited for, once.
        let allowance =
            if call.in_turn { Allowance::Now { others: 0 } } else { Allowance::Lasting { others: 0, calls } };
        let plan = |send| match answer {
            Answer::Message { message, flavor_touches_data } => plan_reply(&ReplyInput {
                codec: core.codec,
                message,
                flavor_touches_data: *flavor_touches_data,
                send,
                offered: &call.lists,
                expose: core.exposes_replies().map(|_| ChunkRules {
                    allowed: true,
                    read: true,
                    reduce_from: None,
                    max_segment_len: core.config.max_segment_len.max(1024),
                    max_segments: core.config.max_segments,
                    max_read_chunks: core.config.max_read_chunks,
                }),
                continued: core.continued_parts(allowance),
                groups: call.group.as_ref().map(|group| core.reply_groups(group)),
            }),
            Answer::ChunkError | Answer::Drop | Answer::Lost => Err(ProtocolError::MisplacedChunk),
        };
        let (send, earlier) = (core.thresholds.send, core.send_earlier);
        Some(match plan(send) {
            // Whoever made the Call counted on more; its Receives hold that (xcharext-02 §3.1).
            Err(ProtocolError::ReplyTooLong { .. }) if earlier > send => plan(earlier),
            plan => plan,
        })
    }

    /// Opens what the next answer exposes, if there is room for it. What is exposed counts as memory of the domain: all
    /// connections together are bounded by it (RFC 5666 §11: "originating from one or many clients").
    fn expose_next(
        &mut self,
        core: &mut Core,
        now: Instant,
        (grant, windows): (u32, usize),
        plan: &ReplyPlan,
        qp: &mut dyn Windows,
    ) -> Result<Vec<ReadSegment>, Room> {
        let others = self.exposures.count() > 0;
        let room = |room| if others { Room::Later } else { Room::Memory(room) };
        let bytes = plan.exposed();
        let Some(limits) = core.exposes_replies() else { return Err(Room::Never) };
        if bytes > limits.exposed_bytes || limits.exposed_replies == 0 || self.credits.wanted() < 2 {
            return Err(Room::Never);
        }
        let full = self.exposures.count() >= limits.exposed_replies
            || self.exposures.bytes().saturating_add(bytes) > limits.exposed_bytes;
        // RFC 5666 §11: RDMA_DONEs that are due must not take the last credit.
        let starving = usize::try_from(grant).unwrap_or(usize::MAX) < self.exposures.count() + 2;
        if full {
            return Err(Room::Later);
        }
        if starving {
            return Err(room(core.receive_room()));
        }
        let Some((token, _)) = self.answers.front() else { return Err(Room::Never) };
        let Some(call) = self.calls.get(token) else { return Err(Room::Never) };
        let charged = qp.domain().reserve(bytes).map_err(|error| match error {
            PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. } => {
                room(requested)
            }
            _ => Room::Never,
        })?;
        let call = (*token, call.xid);
        self.exposures.expose(core, now, call, (&plan.read, charged), qp).map_err(|kind| match kind {
            WindowErrorKind::Disconnected => Room::Ended,
            WindowErrorKind::Exhausted { .. } if others || windows > 0 => Room::Later,
            _ => Room::Never,
        })
    }

    /// Sets the next answer aside until a window is closed. If none is exposed, those are calls' of ours, and not waited for
    /// longer than for memory.
    fn withhold(&mut self, core: &Core, now: Instant) {
        let Some((token, answer)) = self.answers.pop_front() else { return };
        let timed = self.calls.get(&token).is_none_or(|call| call.deadline.is_some());
        if self.exposures.count() == 0 && !timed {
            self.set_deadline(token, after(now, core.config.timeouts.memory));
        }
        self.withheld.push_back((token, answer));
        self.stalled = None;
    }

    /// The next answer or RDMA_ERROR waits for so much room, and not for ever (rule I6).
    fn wait_for(&mut self, core: &Core, now: Instant, waiting: Waiting, room: usize) {
        self.wants_memory = Some(room);
        self.stall(waiting).get_or_insert((after(now, core.config.timeouts.memory), "memory for an answer"));
    }

    /// What leaves meanwhile of the one kind gives the other no more time.
    const fn stall(&mut self, waiting: Waiting) -> &mut Option<Stall> {
        match waiting {
            Waiting::Answer => &mut self.stalled,
            Waiting::Error => &mut self.stalled_error,
        }
    }

    /// The value for `rdma_credit`, once Receives back it. `in_flight` are Receives that others need. Where messages are counted, the
    /// value is found when the message leaves, and there has to be a credit for it; [`place`](Self::place) has seen to those for
    /// more Sends than one.
    fn grant(
        &mut self,
        core: &mut Core,
        now: Instant,
        in_flight: u32,
        waiting: Waiting,
        qp: &dyn Windows,
    ) -> Option<u32> {
        let owed = self.receives_owed().saturating_add(1).saturating_add(in_flight);
        core.post_receives(owed, qp.domain());
        if core.messages.is_some() {
            if core.may_send(1) {
                return Some(0);
            }
            let deadline = after(now, core.config.timeouts.credits);
            self.stall(waiting).get_or_insert((deadline, NO_CREDITS));
            return None;
        }
        let spoken_for = in_flight.saturating_add(narrow(self.exposures.count()));
        let grant = self.credits.grant(core.receives.beyond(spoken_for));
        match grant {
            Some(value) => core.stats.credits_granted_to_peer = value,
            None => self.wait_for(core, now, waiting, core.receive_room()),
        }
        grant
    }
}

/// What waits to leave.
#[derive(Clone, Copy)]
enum Waiting {
    Answer,
    Error,
}

impl Core {
    /// What is possible in transmission groups for the reply to a Call that came in one.
    fn reply_groups<'a>(&'a self, asked: &'a AskedReply) -> ReplyGroups<'a> {
        let peer = self.peer_groups.as_ref();
        let buffers = usize::try_from(asked.buffers).unwrap_or(usize::MAX);
        let settings = self.config.transmissions.replies;
        ReplyGroups {
            sends: if settings.continuation { self.config.continued_parts.min(buffers).max(1) } else { 1 },
            places: settings.placement,
            directions: &asked.directions,
            theirs: peer.and_then(|peer| peer.targets.as_ref()),
        }
    }
}

/// Why nothing can be exposed for a reply.
enum Room {
    /// Others must be done first.
    Later,
    /// So much memory is needed, which others than this direction of the connection hold.
    Memory(usize),
    /// There will never be room.
    Never,
    /// The connection has ended.
    Ended,
}

fn refuse(core: &mut Core, call: &Incoming, refusal: &ProtocolError, grant: u32) {
    tracing::debug!(side = %core.side, xid = format_args!("{:#010x}", call.xid), error = %refusal, "call refused");
    core.stats.fault(refusal);
    send_error(core, call.xid, core.codec.rules().version, grant, core.codec.refusal(refusal));
}

fn send_error(core: &mut Core, xid: u32, version: u32, grant: u32, body: ErrorBody) {
    // RFC 8166 §4.5.1: an ERR_VERS has the version of the request.
    let header = Header { version, ..core.header(Direction::Reply, xid, grant, Body::Error(body)) };
    core.send(&header, &Stream::new(), None, true);
    core.stats.replies_sent.errors += 1;
}

/// Sends a reply as it was planned; `read` are the windows of what is exposed.
fn send_reply(
    core: &mut Core,
    call: &Incoming,
    mut plan: ReplyPlan,
    read: Vec<ReadSegment>,
    grant: u32,
) -> Result<(), ProtocolError> {
    let mut travelled = Travelled { form: plan.form(), read: plan.exposed(), ..Travelled::default() };
    travelled.segments = read.len();
    core.stats.read_segments += u64::try_from(read.len()).unwrap_or(u64::MAX);
    core.stats.copied(plan.copied);
    plan.lists.read = read;
    for (index, data) in plan.placed {
        let Some(chunk) = plan.lists.write.get(index) else { continue };
        travelled.written += data.len();
        write(core, chunk, vec![data]);
    }
    let long = matches!(plan.route, Route::Long);
    if !plan.rest.is_empty()
        && long
        && let Some(chunk) = &plan.lists.reply
    {
        let mut gather = Gather::default();
        gather.push_stream(&plan.rest);
        let gather = core.gather(gather);
        travelled.reply_chunk = plan.rest.len();
        write(core, chunk, gather);
    }
    // RFC 8797 §4.1, version-two-03 §6.2.3
    let invalidate = core.invalidated_by_reply(&call.lists, call.invalidate);
    core.stats.invalidations_sent += u64::from(invalidate.is_some());
    let sends = plan.route.sends();
    let (body, payload) = match &mut plan.route {
        Route::Long => (Body::NoMessage(plan.lists), Stream::new()),
        Route::Sends(arrangement) => {
            let group = arrangement.take_lead().map(|lead| Body::Two(two::Body::Transmission(lead)));
            (group.unwrap_or(Body::Message(plan.lists)), plan.rest)
        }
        _ => (Body::Message(plan.lists), plan.rest),
    };
    let header = core.header(Direction::Reply, call.xid, grant, body);
    travelled.sent = match &plan.route {
        Route::Sends(arrangement) => core.send_arranged(&header, arrangement, &payload, invalidate),
        // A Send that says what was written must not pass the Writes.
        _ => core.send(&header, &payload, invalidate, travelled.written == 0 && !long),
    };
    core.count_returning(narrow(sends.saturating_sub(1)));
    core.stats.replies_sent.count(&travelled);
    tracing::debug!(
        side = %core.side, xid = format_args!("{:#010x}", call.xid), form = ?travelled.form, sent = travelled.sent,
        written = travelled.written, reply_chunk = travelled.reply_chunk, invalidates = invalidate.is_some(), grant,
        "reply"
    );
    Ok(())
}

/// Fills a chunk whose lengths say what is written.
fn write(core: &mut Core, chunk: &WriteChunk, gather: Vec<bytes::Bytes>) {
    let targets = chunk.segments.iter().filter(|segment| segment.length > 0).map(remote).collect();
    core.post(Origin::Write, WorkRequest::Write { gather, targets });
}
