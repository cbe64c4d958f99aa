//! Handling of replies: each has to belong to one of our Calls, and return the offered chunks.
//!
//! A reply that fails a check is counted and discarded, and its Receive is posted again (RFC 8166 §4.5). A valid reply
//! ends the call by closing its windows.

use std::time::Instant;

use super::{Answered, Flight, Phase, Requester, Transaction, Written};
use crate::core::Core;
use crate::error::CallError;
use crate::flow::Settled;
use crate::inbound::reads::Pulled;
use crate::inbound::received::Received;
use crate::message::Travelled;
use crate::settings::timers::after;
use crate::wire::{ChunkLists, ErrorBody, List, ProtocolError, WriteChunk, wide};

/// The chunks that a reply returns.
pub(crate) struct Returned {
    /// Bytes in each Write chunk.
    pub(crate) written: Vec<usize>,
    /// Bytes in the Reply chunk.
    pub(crate) reply_chunk: usize,
}

impl Requester {
    /// Handles a reply.
    pub(crate) fn handle_reply(
        &mut self,
        core: &mut Core,
        now: Instant,
        received: Received,
    ) -> Result<(), ProtocolError> {
        let transaction = self.sent(received.xid)?;
        // RFC 8166 §4.3.1
        if !received.lists.read.is_empty() {
            return self.handle_exposed_reply(core, now, received);
        }
        let returned = returned(core, transaction.flight(), &received.lists)?;
        // RFC 8166 §3.5.3, §4.3.3: RDMA_NOMSG if and only if the reply is in the Reply chunk.
        if received.payload.is_some() == (returned.reply_chunk > 0) {
            return Err(ProtocolError::ReplyChunkUse);
        }
        let (xid, credit) = (received.xid, received.credit);
        let reply = received.into_answer(core, returned, None);
        self.answer(core, now, xid, Settled::Answered { grant: credit }, reply);
        Ok(())
    }

    /// Handles an RDMA_ERROR: a permanent error of the call (RFC 8166 §4.5).
    pub(crate) fn handle_error(
        &mut self,
        core: &mut Core,
        now: Instant,
        xid: u32,
        credit: u32,
        error: ErrorBody,
    ) -> Result<(), ProtocolError> {
        if let ErrorBody::Two(error) = &error
            && self.handle_group_refusal(core, now, (xid, credit), error)?
        {
            return Ok(());
        }
        self.sent(xid)?;
        core.stats.replies_received.errors += 1;
        let error = match error {
            ErrorBody::Version { low, high } => CallError::Version { low, high },
            ErrorBody::Chunk => CallError::Chunk,
            ErrorBody::Two(error) => CallError::Refused(error),
        };
        self.answer(core, now, xid, Settled::Refused { grant: credit }, Answered::Failed(error));
        Ok(())
    }

    /// Fails the Call that left in Version One by guess, since the peer speaks another; returns its XID.
    pub(crate) fn fail_guessed(&mut self, core: &mut Core, now: Instant) -> Option<u32> {
        let xid = self.calls.iter().find(|(_, call)| call.lease().is_some()).map(|(xid, _)| *xid)?;
        let grant = core.ledger.calls.granted();
        let version = core.codec.rules().version;
        let error = CallError::Version { low: version, high: version };
        self.answer(core, now, xid, Settled::Refused { grant }, Answered::Failed(error));
        Some(xid)
    }

    pub(crate) fn sent(&self, xid: u32) -> Result<&Transaction, ProtocolError> {
        let transaction = self.calls.get(&xid).filter(|call| call.lease().is_some());
        transaction.ok_or(ProtocolError::UnknownXid { xid })
    }

    /// Ends the wait for an answer: the credit is free, and the windows are closed (rule I2).
    pub(crate) fn answer(
        &mut self,
        core: &mut Core,
        now: Instant,
        xid: u32,
        settled: Settled,
        answered: Answered,
    ) {
        let invalidate = core.config.timeouts.invalidate;
        if let Some(flight) = self.calls.get_mut(&xid).and_then(Transaction::flight_mut) {
            if let Phase::Sent(lease) = std::mem::replace(&mut flight.phase, Phase::Closing(answered)) {
                core.ledger.settle(lease, settled);
                core.note_grant();
            }
            core.close_windows(xid, &flight.windows);
        }
        self.set_deadline(xid, after(now, invalidate));
        self.complete_if_closed(core, xid);
    }
}

impl Received {
    /// Returns the complete reply; `exposed` is the number of bytes in its Read list, if there is one.
    pub(crate) fn into_answer(self, core: &mut Core, returned: Returned, exposed: Option<u64>) -> Answered {
        let Returned { written, reply_chunk } = returned;
        let placed: usize = written.iter().sum();
        let form = self.form(placed > 0 || exposed.is_some());
        let Self { lists, payload, padding, len, .. } = self;
        let filled = lists.write.iter().chain(&lists.reply).flat_map(|chunk| &chunk.segments);
        let segments = filled.filter(|segment| segment.length > 0).count() + lists.read.len();
        let read = exposed.unwrap_or(0).try_into().unwrap_or(usize::MAX);
        let travelled = Travelled { form, sent: len, read, written: placed, reply_chunk, segments };
        core.stats.replies_received.add(&travelled);
        core.stats.read_segments += wide(lists.read.len());
        let written = written.into_iter().map(Written::Chunk).collect();
        let pulled = Pulled::default();
        Answered::Reply { inline: payload, padding, written, reply_chunk, pulled, travelled }
    }
}

/// Checks the chunks that a reply returns.
pub(crate) fn returned(
    core: &Core,
    flight: Option<&Flight>,
    lists: &ChunkLists,
) -> Result<Returned, ProtocolError> {
    let unoffered = ChunkLists::default();
    let all = flight.map_or(&unoffered, |flight| &flight.offered);
    // RFC 8166 §4.3.2: every chunk is returned. A missing list counts as returned unused: then all its results must
    // be inline, which the result decoder checks.
    let offered = &all.write;
    let written = if lists.write.is_empty() {
        vec![0; offered.len()]
    } else if lists.write.len() == offered.len() {
        let pairs = offered.iter().zip(&lists.write);
        pairs
            .map(|(offered, returned)| filled(core, List::Write, offered, returned))
            .collect::<Result<_, _>>()?
    } else {
        return Err(ProtocolError::ReplyListDiffers { list: List::Write });
    };
    let reply_chunk = match (&all.reply, &lists.reply) {
        (_, None) => 0,
        (None, Some(_)) => return Err(ProtocolError::ReplyListDiffers { list: List::Reply }),
        (Some(offered), Some(returned)) => filled(core, List::Reply, offered, returned)?,
    };
    Ok(Returned { written, reply_chunk })
}

/// Returns the bytes in a returned chunk. RFC 8166 §4.3.2: handles, offsets and the number of segments return
/// unchanged; the lengths count the bytes written, from the front (§3.4.6). A chunk returned without segments is unused
/// (RFC 8267 §6.4.1). If that is accepted, the last length may count a pad beyond the chunk's end (RFC 5666 §3.7: it is
/// not transferred).
fn filled(
    core: &Core,
    list: List,
    offered: &WriteChunk,
    returned: &WriteChunk,
) -> Result<usize, ProtocolError> {
    if returned.segments.is_empty() {
        return Ok(0);
    }
    if returned.segments.len() != offered.segments.len() {
        return Err(ProtocolError::ReplyListDiffers { list });
    }
    for (ours, theirs) in offered.segments.iter().zip(&returned.segments) {
        if (ours.handle, ours.offset) != (theirs.handle, theirs.offset) {
            return Err(ProtocolError::ReplyListDiffers { list });
        }
    }
    let total = returned.total();
    let capacity = offered.total();
    let exact = offered.filled(total) == *returned;
    let padded = || total == capacity.next_multiple_of(4) && offered.padded_at_end() == *returned;
    if !(exact || core.accepts_roundup() && padded()) {
        return Err(ProtocolError::ReplyListLengths { list });
    }
    usize::try_from(total.min(capacity)).map_err(|_| ProtocolError::ReplyListLengths { list })
}
