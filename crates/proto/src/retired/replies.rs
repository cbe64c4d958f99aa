//! Replies whose data the client reads under the Read-Read model (RFC 5666 §3.8).
//!
//! The requester reads all of that data into memory of the domain, or none, with a separate timer. Before the call
//! completes, an RDMA_DONE leaves on the call's credit.

use std::time::Instant;

use rpcrdma_verbs::PoolExhausted;
use rpcrdma_xdr::{Payload, Stream, padded_len};

use crate::core::Core;
use crate::flow::DoneOwed;
use crate::inbound::reads::{Pull, Pulled};
use crate::inbound::reassembly::Layout;
use crate::inbound::received::Received;
use crate::outbound::Owner;
use crate::requester::{Answered, Phase, Requester, Stage, Transaction, returned};
use crate::settings::timers::{Flow, Moving, after};
use crate::wire::{Body, ChunkLists, Direction, ProtocolError, wide};

/// A reply whose data is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    owed: DoneOwed,
    reply: Answered,
}

impl Requester {
    /// Handles a reply with a Read list.
    ///
    /// # Errors
    /// The reply is malformed, or the Read-Read model is not enabled.
    pub(crate) fn handle_exposed_reply(
        &mut self,
        core: &mut Core,
        now: Instant,
        received: Received,
    ) -> Result<(), ProtocolError> {
        if !core.reads_replies() {
            return Err(ProtocolError::ReplyReadList);
        }
        let transaction = self.sent(received.xid)?;
        let lists = &received.lists;
        let returned = returned(core, transaction.flight(), lists)?;
        let placed = returned.written.iter().map(|len| padded_len(*len)).sum();
        let inline = received.payload.as_ref().map(Payload::len);
        let layout =
            transaction.check_exposed(core, lists, inline.unwrap_or(returned.reply_chunk), placed)?;
        // RFC 8166 §3.5.3, §4.3.3: RDMA_NOMSG if and only if the reply is in the Reply chunk. RFC 5666 §5.1 also allows
        // a Position-Zero Read chunk.
        match (inline.is_some(), layout.zero.is_some(), returned.reply_chunk > 0) {
            (true, true, _) => return Err(ProtocolError::PositionZeroInMessage),
            (true, false, false) | (false, true, false) | (false, false, true) => {}
            _ => return Err(ProtocolError::ReplyChunkUse),
        }
        let call = (received.xid, received.credit);
        let reply = received.into_answer(core, returned, Some(layout.total()));
        self.read(core, now, call, reply, layout);
        Ok(())
    }

    /// Begins to read the data that the peer exposes. The Call's credit is kept for the RDMA_DONE.
    fn read(
        &mut self,
        core: &mut Core,
        now: Instant,
        (xid, credit): (u32, u32),
        reply: Answered,
        layout: Layout,
    ) {
        let Some(transaction) = self.calls.get_mut(&xid) else { return };
        let (abandoned, caller) = (transaction.abandoned, transaction.caller.deadline);
        let Stage::InFlight(flight) = &mut transaction.stage else { return };
        let Phase::Sent(lease) = flight.take_phase() else { return };
        let owed = core.ledger.owe_done(lease, credit);
        flight.phase = Phase::Reading(Box::new(Reading { owed, reply }));
        core.note_grant();
        core.close_windows(xid, &flight.windows);
        let mut pull = Pull::new(layout);
        if pull.is_complete() {
            self.handle_pulled(core, now, xid, pull.into_pulled());
        } else if abandoned {
            // An abandoned call skips the RDMA Reads.
            self.finish_reading(core, now, xid);
        } else {
            // With Write chunks, the caller's memory is the offered one: its sinks have none left.
            pull.read_into(&mut transaction.call.reply.sinks);
            // Bytes to read move on the link like chunks, and extend the deadlines of this call and of later ones.
            flight.bulk = flight.bulk.saturating_add(pull.len());
            self.bulk = self.bulk.saturating_add(pull.len());
            transaction.counted = false;
            transaction.caller.see(core.outbox.told());
            let (stall, told) = (core.config.timeouts.read_by(), core.outbox.told());
            let by = |bytes| Moving::new(now, stall, Flow::Read, told, bytes);
            core.reads.add(Owner::Reply(xid), pull, Some(by));
            self.set_deadline(xid, caller);
        }
    }

    fn reading(&mut self, xid: u32) -> Option<&mut Reading> {
        match &mut self.calls.get_mut(&xid)?.flight_mut()?.phase {
            Phase::Reading(reading) => Some(reading),
            Phase::Sent(_) | Phase::Closing(_) => None,
        }
    }

    /// Handles the data read for a reply.
    pub(crate) fn handle_pulled(&mut self, core: &mut Core, now: Instant, xid: u32, read: Pulled) {
        if let Some(reading) = self.reading(xid)
            && let Answered::Reply { pulled, .. } = &mut reading.reply
        {
            *pulled = read;
            self.finish_reading(core, now, xid);
        }
    }

    /// Fails a call whose exposed data can never have memory.
    pub(crate) fn handle_unreadable(
        &mut self,
        core: &mut Core,
        now: Instant,
        xid: u32,
        error: PoolExhausted,
    ) {
        if let Some(reading) = self.reading(xid) {
            reading.reply = Answered::Failed(error.into());
            self.finish_reading(core, now, xid);
        }
    }

    /// Sends the RDMA_DONE, and ends the call when its windows are closed.
    fn finish_reading(&mut self, core: &mut Core, now: Instant, xid: u32) {
        let Some(flight) = self.calls.get_mut(&xid).and_then(Transaction::flight_mut) else { return };
        if !matches!(flight.phase, Phase::Reading(_)) {
            return;
        }
        let Phase::Reading(reading) = flight.take_phase() else { return };
        let Reading { owed, reply } = *reading;
        flight.phase = Phase::Closing(reply);
        let permit = core.ledger.done(owed);
        let header = core.header(Direction::Call, xid, &permit, Body::Done);
        core.send(permit, &header, &Stream::new(), None, true);
        core.stats.dones_sent += 1;
        self.set_deadline(xid, after(now, core.config.timeouts.invalidate));
        self.complete_if_closed(core, xid);
    }

    /// Gives up the data of a reply whose caller no longer waits, if it still waits for memory.
    pub(crate) fn withdraw_reading(&mut self, core: &mut Core, now: Instant, xid: u32) {
        if core.reads.withdraw(Owner::Reply(xid)) {
            self.finish_reading(core, now, xid);
        }
    }
}

impl Transaction {
    /// Checks the Read list of a reply against the reply sizes that the call declared, before anything is read. `base`
    /// bytes lie outside all chunks, `placed` bytes in Write chunks.
    fn check_exposed(
        &self,
        core: &Core,
        lists: &ChunkLists,
        base: usize,
        placed: usize,
    ) -> Result<Layout, ProtocolError> {
        let layout = Layout::of_reply(&lists.read, base, wide(placed), &core.config.limits)?;
        if !core.reads.are_allowed() {
            return Err(ProtocolError::ReadsNotAgreed);
        }
        // RFC 8166 §8.2.2.3: under integrity or privacy no item leaves the stream.
        let sinks = &self.call.reply.sinks;
        let eligible = if self.call.flavor_touches_data { 0 } else { sinks.len() };
        let chunks = layout.chunks.len();
        if chunks > eligible {
            return Err(ProtocolError::ReplyReadChunks { chunks, eligible });
        }
        let results = sinks.iter().map(|sink| padded_len(sink.len())).fold(0, usize::saturating_add);
        let whole = padded_len(self.call.reply.max_len).saturating_add(results);
        let of_results = layout.chunks.iter().map(|chunk| chunk.len).sum();
        let of_reply = layout.total().saturating_add(wide(placed));
        for (len, allowed) in [(of_results, wide(results)), (of_reply, wide(whole))] {
            if len > allowed {
                return Err(ProtocolError::ReplyReadTooLong { len, allowed });
            }
        }
        Ok(layout)
    }
}
