//! Sending answers: RDMA Writes, then the Send; or an RDMA_ERROR.
//!
//! A Receive for the credit that comes free is posted before the answer leaves (rule I3). What the peer's chunks cannot take
//! is found out before the first byte is written (RFC 8166 §4.5.3).

use std::time::Instant;

use rpcrdma_verbs::{Key, Windows, WorkRequest};
use rpcrdma_xdr::Stream;

use super::{Fault, Incoming, Responder};
use crate::call::{Form, Travelled};
use crate::core::{Core, Origin, remote};
use crate::error::ProtocolError;
use crate::event::Answer;
use crate::gather::Gather;
use crate::planner::{ReplyInput, plan_reply};
use crate::wire::{Body, ErrorBody, Header, WriteChunk};

impl Responder {
    /// Makes progress: one error, answer or pull. `in_flight` is the number of our own calls, whose replies need Receives.
    pub(crate) fn transmit(
        &mut self,
        core: &mut Core,
        now: Instant,
        in_flight: u32,
        qp: &mut dyn Windows,
    ) -> bool {
        self.wants_memory = None;
        // What is not answered needs no grant; a second answer to the same Call gives no credit back.
        let silent = |(token, answer): &(u64, Answer)| {
            matches!(answer, Answer::Drop) || !self.calls.contains_key(token)
        };
        if self.answers.front().is_some_and(silent) {
            if let Some((token, _)) = self.answers.pop_front()
                && self.forget(token).is_some()
            {
                self.credits.finish();
            }
            return true;
        }
        if !self.errors.is_empty() || !self.answers.is_empty() {
            let Some(grant) = self.grant(core, in_flight, qp) else { return false };
            self.credits.finish();
            if let Some(Fault { xid, version, body }) = self.errors.pop_front() {
                send_error(core, xid, version, grant, body);
            } else if let Some((token, answer)) = self.answers.pop_front()
                && let Some(call) = self.forget(token)
            {
                answer_call(core, &call, answer, grant);
            }
            return true;
        }
        self.issue(core, now) || self.pull(core, qp)
    }

    /// The value for `rdma_credit`, once Receives back it.
    fn grant(&mut self, core: &mut Core, in_flight: u32, qp: &dyn Windows) -> Option<u32> {
        let owed = self.credits.receives_owed().saturating_add(1).saturating_add(in_flight);
        core.post_receives(owed, qp.domain());
        let grant = self.credits.grant(core.receives.beyond(in_flight));
        match grant {
            Some(value) => core.stats.credits_granted_to_peer = value,
            None => self.wants_memory = Some(core.receive_room()),
        }
        grant
    }
}

fn answer_call(core: &mut Core, call: &Incoming, answer: Answer, grant: u32) {
    let refusal = match answer {
        Answer::Message { message, flavor_touches_data } => {
            match send_reply(core, call, &message, flavor_touches_data, grant) {
                Ok(()) => return,
                Err(error) => error,
            }
        }
        Answer::ChunkError => ProtocolError::MisplacedChunk,
        Answer::Drop => return,
    };
    tracing::debug!(side = %core.side, xid = format_args!("{:#010x}", call.xid), error = %refusal, "call refused");
    core.stats.fault(&refusal);
    send_error(core, call.xid, core.codec.rules().version, grant, ErrorBody::Chunk);
}

fn send_error(core: &mut Core, xid: u32, version: u32, grant: u32, body: ErrorBody) {
    let header = Header { xid, version, credit: grant, body: Body::Error(body) };
    core.send(&header, &Stream::new(), None, true);
    core.stats.replies_sent.errors += 1;
}

fn send_reply(
    core: &mut Core,
    call: &Incoming,
    message: &Stream,
    flavor_touches_data: bool,
    grant: u32,
) -> Result<(), ProtocolError> {
    let plan = plan_reply(&ReplyInput {
        codec: core.codec,
        message,
        flavor_touches_data,
        send: core.thresholds.send,
        offered: &call.lists,
    })?;
    let mut travelled = Travelled { form: plan.form, ..Travelled::default() };
    for (index, data) in plan.placed {
        let Some(chunk) = plan.lists.write.get(index) else { continue };
        travelled.written += data.len();
        write(core, chunk, vec![data]);
    }
    let long = plan.form == Form::Long;
    if long && let Some(chunk) = &plan.lists.reply {
        let mut gather = Gather::default();
        gather.push_stream(&plan.rest);
        let gather = core.gather(gather);
        travelled.reply_chunk = plan.rest.len();
        write(core, chunk, gather);
    }
    // RFC 8797 §4.1: the tag must belong to this XID, so it is one of those that came with it.
    let invalidate = if core.invalidate_peer { call.lists.handles().next().map(Key) } else { None };
    core.stats.invalidations_sent += u64::from(invalidate.is_some());
    let (body, payload) = if long {
        (Body::NoMessage(plan.lists), Stream::new())
    } else {
        (Body::Message(plan.lists), plan.rest)
    };
    let header = Header { xid: call.xid, version: core.codec.rules().version, credit: grant, body };
    // A Send that says what was written must not pass the Writes.
    let express = travelled.written == 0 && !long;
    travelled.sent = core.send(&header, &payload, invalidate, express);
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
