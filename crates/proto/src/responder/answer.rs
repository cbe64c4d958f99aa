//! Transmission of answers: RDMA Writes, then the Send; or an RDMA_ERROR.
//!
//! A Receive for the returned credit is posted before the answer leaves (rule I3). An answer that does not fit the
//! peer's chunks is refused before the first byte is written (RFC 8166 §4.5.3).

use std::time::Instant;

use rpcrdma_verbs::{RemoteSegment, Windows, WorkRequest};
use rpcrdma_xdr::Stream;

use super::{Fault, Incoming, Responder, Stall};
use crate::core::Core;
use crate::error::CloseReason;
use crate::event::Answer;
use crate::flow::{Offer, Wait};
use crate::message::Travelled;
use crate::outbound::Origin;
use crate::planner::{ReplyInput, ReplyPlan, Route, plan_reply};
use crate::settings::timers::after;
use crate::wire::{Body, Direction, Header, ProtocolError, WriteChunk, narrow, wide};

impl Responder {
    /// Sends one error or answer.
    pub(crate) fn transmit(&mut self, core: &mut Core, now: Instant, qp: &mut dyn Windows) -> bool {
        self.wants_memory = None;
        if self.drop_next(core) {
            return true;
        }
        if !self.errors.is_empty() {
            return self.transmit_error(core, now, qp);
        }
        if let Some(token) = core.ledger.next_answer_in_line() {
            self.end_wait(token);
        }
        let Some((token, plan)) = self.plan_next(core) else { return false };
        let exposing = plan.as_ref().is_ok_and(|plan| !plan.read.is_empty());
        let sends = narrow(plan.as_ref().map_or(1, |plan| plan.route.sends()));
        let in_turn = self.calls.get(&token).is_some_and(|call| call.in_turn);
        let offer = match core.ledger.ask_answer(sends, (exposing, in_turn), qp.domain()) {
            Ok(offer) => offer,
            // An answer of one Send would use a credit that the first in line waits for.
            Err(Wait::Line) if sends == 1 => return false,
            Err(Wait::Line) => {
                self.answers.pop_front();
                let deadline = after(now, core.config.timeouts.credits);
                core.ledger.line.join_answer(token, sends, deadline);
                self.stalled = None;
                return true;
            }
            Err(wait) => {
                self.wait_for_answer(core, now, wait);
                return false;
            }
        };
        match plan {
            Ok(plan) if exposing => self.transmit_exposed(core, now, (token, plan), offer, qp),
            plan => {
                self.send_next(core, plan, offer);
                true
            }
        }
    }

    /// Drops the next answer if its Call shall get none; such a Call needs no grant.
    fn drop_next(&mut self, core: &mut Core) -> bool {
        let Some(token) = self.answers.front() else { return false };
        let lost = match self.calls.get(token).map(|call| &call.answer) {
            // All earlier answers leave first.
            Some(Some(Answer::Lost)) if !core.ledger.line.has_answers() => true,
            Some(Some(Answer::Drop)) => false,
            None => false,
            Some(_) => return false,
        };
        if let Some(call) = self.answers.pop_front().and_then(|token| self.calls.remove(&token)) {
            self.reply_lost |= lost;
            core.ledger.finish(call.charge);
        }
        self.stalled = None;
        true
    }

    fn transmit_error(&mut self, core: &mut Core, now: Instant, qp: &dyn Windows) -> bool {
        match core.ledger.ask_answer(1, (false, true), qp.domain()) {
            Ok(offer) => {
                self.stalled_error = None;
                if let Some(Fault { xid, version, body, charge }) = self.errors.pop_front() {
                    let permit = core.ledger.take_answer(offer, charge);
                    // RFC 8166 §4.5.1: an ERR_VERS has the version of the request.
                    let header =
                        Header { version, ..core.header(Direction::Reply, xid, &permit, Body::Error(body)) };
                    core.send(permit, &header, &Stream::new(), None, true);
                    core.stats.replies_sent.errors += 1;
                }
                true
            }
            Err(wait) => {
                let stall = self.stall(core, now, wait);
                self.stalled_error.get_or_insert(stall);
                false
            }
        }
    }

    /// Returns the next answer, which does not leave now.
    pub(crate) fn withdraw_next(&mut self) -> Option<u64> {
        self.stalled = None;
        self.answers.pop_front()
    }

    /// Sends the next answer as planned, or refuses its Call.
    pub(crate) fn send_next(
        &mut self,
        core: &mut Core,
        plan: Result<ReplyPlan, ProtocolError>,
        offer: Offer,
    ) {
        self.stalled = None;
        let Some(call) = self.answers.pop_front().and_then(|token| self.calls.remove(&token)) else { return };
        match plan {
            Ok(plan) => send_reply(core, call, plan, offer),
            Err(refusal) => {
                tracing::debug!(
                    side = %core.side(), xid = format_args!("{:#010x}", call.call.xid), error = %refusal, "call refused"
                );
                // Errors leave before answers, so this one is next.
                self.refuse_call(core, call.call.xid, &refusal, call.charge);
            }
        }
    }

    /// Marks an answer that has waited in line as the next one.
    fn end_wait(&mut self, token: u64) {
        if let Some(call) = self.calls.get_mut(&token) {
            call.in_turn = true;
            self.answers.push_front(token);
        }
    }

    /// Ends waits in line that are too long; such answers leave with the credits that there are (rule I6).
    pub(super) fn end_waits(&mut self, core: &mut Core, now: Instant) {
        while core.ledger.line.deadline().is_some_and(|deadline| deadline <= now) {
            let token = core.ledger.line.pop_answer();
            if !core.ledger.may_send(1) {
                core.fail(CloseReason::Timeout(NO_CREDITS));
            } else if let Some(token) = token {
                self.end_wait(token);
            }
        }
    }

    /// Decides how the next answer travels; `None` if there is none.
    fn plan_next(&self, core: &Core) -> Option<(u64, Result<ReplyPlan, ProtocolError>)> {
        let token = self.answers.front()?;
        let call = self.calls.get(token)?;
        let plan = |send| {
            let Some(Answer::Message { message, flavor_touches_data }) = &call.answer else {
                return Err(ProtocolError::MisplacedChunk);
            };
            let flavor_touches_data = *flavor_touches_data;
            let input = ReplyInput {
                codec: core.codec,
                message,
                flavor_touches_data,
                send,
                offered: &call.call.lists,
            };
            if core.is_plain() {
                plan_reply(&input)
            } else {
                core.plan_reply(&input, &call.call, call.in_turn)
            }
        };
        // All answers before a lost one leave first.
        if matches!(call.answer, Some(Answer::Lost)) {
            return None;
        }
        let (send, earlier) = (core.peer.thresholds.send, core.peer.send_earlier);
        let planned = match plan(send) {
            // The Requester counted on the larger size when it made the Call, and its Receives hold that (xcharext-02
            // §3.1).
            Err(ProtocolError::ReplyTooLong { .. }) if earlier > send => plan(earlier),
            planned => planned,
        };
        Some((*token, planned))
    }

    /// Starts the timer of the next answer, so that its wait ends (rule I6).
    pub(crate) fn wait_for_answer(&mut self, core: &Core, now: Instant, wait: Wait) {
        let stall = self.stall(core, now, wait);
        self.stalled.get_or_insert(stall);
    }

    /// Returns the end of a wait that begins now. Answers and RDMA_ERRORs have a timer each: progress of the other kind does
    /// not extend it.
    fn stall(&mut self, core: &Core, now: Instant, wait: Wait) -> Stall {
        let timeouts = &core.config.timeouts;
        match wait {
            Wait::Receives(room) => {
                self.wants_memory = Some(room);
                (after(now, timeouts.memory), "memory for an answer")
            }
            Wait::Credits | Wait::Line | Wait::Never => (after(now, timeouts.credits), NO_CREDITS),
        }
    }
}

/// The reason for a wait that the peer causes.
const NO_CREDITS: &str = "credits for an answer";

/// Sends a reply as planned.
fn send_reply(core: &mut Core, call: Incoming, mut plan: ReplyPlan, offer: Offer) {
    let permit = core.ledger.take_answer(offer, call.charge);
    let grant = permit.credit();
    let nothing = Stream::new();
    let message = if let Some(Answer::Message { message, .. }) = &call.answer { message } else { &nothing };
    let rest = plan.rest.of(message);
    let mut travelled = Travelled { form: plan.form(), read: plan.exposed(), ..Travelled::default() };
    travelled.segments = plan.lists.read.len();
    core.stats.read_segments += wide(travelled.segments);
    core.stats.copied(plan.copied);
    for (index, data) in plan.placed {
        let Some(chunk) = plan.lists.write.get(index) else { continue };
        travelled.written += data.len();
        write(core, chunk, vec![data]);
    }
    let long = matches!(plan.route, Route::Long);
    if !rest.is_empty()
        && long
        && let Some(chunk) = &plan.lists.reply
    {
        let gather = core.gather(&[], rest);
        travelled.reply_chunk = rest.len();
        write(core, chunk, gather);
    }
    // RFC 8797 §4.1, version-two-03 §6.2.3
    let invalidate = core.invalidated_by_reply(&call.call.lists, call.call.invalidate);
    core.stats.invalidations_sent += u64::from(invalidate.is_some());
    let payload = if long { &nothing } else { rest };
    let body = plan.route.body(plan.lists);
    let header = core.header(Direction::Reply, call.call.xid, &permit, body);
    // A Send that returns written chunks must not pass the RDMA Writes.
    let express = travelled.written == 0 && !long;
    travelled.sent = core.send_by(&mut plan.route, permit, &header, payload, (invalidate, express));
    core.stats.replies_sent.add(&travelled);
    tracing::debug!(
        side = %core.side(), xid = format_args!("{:#010x}", call.call.xid), form = ?travelled.form, sent = travelled.sent,
        written = travelled.written, reply_chunk = travelled.reply_chunk, invalidates = invalidate.is_some(), grant,
        "reply"
    );
}

/// Writes into a chunk, whose segment lengths are those of the written data.
fn write(core: &mut Core, chunk: &WriteChunk, gather: Vec<bytes::Bytes>) {
    let targets =
        chunk.segments.iter().filter(|segment| segment.length > 0).map(RemoteSegment::from).collect();
    core.post(Origin::Write, WorkRequest::Write { gather, targets });
}
