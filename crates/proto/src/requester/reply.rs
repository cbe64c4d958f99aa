//! Handling of replies: each has to belong to one of our Calls, and return the offered chunks.
//!
//! A reply that fails a check is counted and discarded, and its Receive is posted again (RFC 8166 §4.5). A valid reply
//! ends the call by closing its windows. If the Read-Read model is enabled, a reply with a Read list ends the call
//! after its data was read and the RDMA_DONE sent.

use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::PoolExhausted;
use rpcrdma_xdr::{Padding, Stream, padded_len};

use super::{Answered, Requester, Stage, Transaction, Written};
use crate::call::{CallError, Form, Travelled};
use crate::core::Core;
use crate::error::{List, ProtocolError};
use crate::flow::Settled;
use crate::reads::{Owner, Pull, Pulled};
use crate::reassembly::Layout;
use crate::timers::{Flow, Moving, after};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, WriteChunk};

/// A reply as received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) xid: u32,
    pub(crate) credit: u32,
    pub(crate) lists: ChunkLists,
    /// The bytes after the header; `None` for RDMA_NOMSG.
    pub(crate) payload: Option<Bytes>,
    /// The alignment of the payload in an RDMA_MSGP.
    pub(crate) padding: Option<Padding>,
    /// The reply came in several Sends.
    pub(crate) continued: bool,
    /// Bytes of all Sends of the reply.
    pub(crate) len: usize,
}

/// The places of the parts of a reply.
struct Returned {
    /// Bytes in each Write chunk.
    written: Vec<usize>,
    /// Bytes in the Reply chunk.
    reply_chunk: usize,
    /// The Read chunks, if there is a Read list.
    read: Option<Layout>,
}

impl Requester {
    /// Handles a reply.
    pub(crate) fn handle_reply(
        &mut self,
        core: &mut Core,
        now: Instant,
        received: Received,
    ) -> Result<(), ProtocolError> {
        let Received { xid, credit, lists, payload, padding, continued, len } = received;
        let transaction = self.sent(xid)?;
        let in_group = transaction.directions.is_some();
        let Returned { written, reply_chunk, read } =
            transaction.check(core, &lists, payload.as_ref().map(Bytes::len))?;
        let placed: usize = written.iter().sum();
        let form = match payload {
            None => Form::Long,
            Some(_) if continued => Form::Continued,
            Some(_) if placed > 0 || read.is_some() => Form::Reduced,
            Some(_) if padding.is_some() => Form::Padded,
            Some(_) => Form::Inline,
        };
        let filled = lists.write.iter().chain(&lists.reply).flat_map(|chunk| &chunk.segments);
        let segments = filled.filter(|segment| segment.length > 0).count() + lists.read.len();
        let exposed = read.as_ref().map_or(0, Layout::total).try_into().unwrap_or(usize::MAX);
        let travelled = Travelled { form, sent: len, read: exposed, written: placed, reply_chunk, segments };
        if in_group {
            core.group_accepted();
        }
        core.stats.replies_received.count(&travelled);
        core.stats.read_segments += u64::try_from(lists.read.len()).unwrap_or(u64::MAX);
        let pulled = Pulled::default();
        let written = written.into_iter().map(Written::Chunk).collect();
        let reply = Answered::Reply { inline: payload, padding, written, reply_chunk, pulled, travelled };
        match read {
            Some(layout) => self.read(core, now, (xid, credit), reply, layout),
            None => self.answer(core, now, xid, Settled::Answered { grant: credit }, reply),
        }
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
        let Stage::Sent(lease) = std::mem::replace(&mut transaction.stage, Stage::Queued) else { return };
        let owed = core.ledger.owe_done(lease, credit);
        core.note_grant();
        core.close_windows(xid, &transaction.windows);
        let (abandoned, caller) = (transaction.abandoned, transaction.caller.deadline);
        transaction.stage = Stage::Reading(owed, Box::new(reply));
        let mut pull = Pull::new(layout);
        if pull.is_complete() {
            self.handle_pulled(core, now, xid, pull.into_pulled());
        } else if abandoned {
            // An abandoned call skips the RDMA Reads.
            self.finish_reading(core, now, xid);
        } else {
            // With Write chunks, the caller's memory is the offered one, and is not used for reads.
            if transaction.offered.write.is_empty() {
                pull.read_into(&mut transaction.call.reply.sinks);
            }
            // Bytes to read move on the link like chunks, and extend the deadlines of this call and of later ones.
            transaction.bulk = transaction.bulk.saturating_add(pull.len());
            self.bulk = self.bulk.saturating_add(pull.len());
            transaction.counted = false;
            transaction.caller.see(core.told.as_ref());
            let (stall, told) = (core.config.timeouts.read_by(), core.told.as_ref());
            let by = |bytes| Moving::new(now, stall, Flow::Read, told, bytes);
            core.reads.add(Owner::Reply(xid), pull, Some(by));
            self.set_deadline(xid, caller);
        }
    }

    /// Handles the data read for a reply.
    pub(crate) fn handle_pulled(&mut self, core: &mut Core, now: Instant, xid: u32, read: Pulled) {
        if let Some(Stage::Reading(_, reply)) = self.calls.get_mut(&xid).map(|call| &mut call.stage)
            && let Answered::Reply { pulled, .. } = reply.as_mut()
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
        if let Some(Stage::Reading(_, reply)) = self.calls.get_mut(&xid).map(|call| &mut call.stage) {
            **reply = Answered::Failed(error.into());
            self.finish_reading(core, now, xid);
        }
    }

    /// Sends the RDMA_DONE, and ends the call when its windows are closed.
    pub(super) fn finish_reading(&mut self, core: &mut Core, now: Instant, xid: u32) {
        let Some(transaction) = self.calls.get_mut(&xid) else { return };
        let Stage::Reading(owed, reply) = std::mem::replace(&mut transaction.stage, Stage::Queued) else {
            return;
        };
        transaction.stage = Stage::Answered(*reply);
        let permit = core.ledger.done(owed);
        let header = core.header(Direction::Call, xid, &permit, Body::Done);
        core.send(permit, &header, &Stream::new(), None, true);
        core.stats.dones_sent += 1;
        self.set_deadline(xid, after(now, core.config.timeouts.invalidate));
        self.complete_if_closed(core, xid);
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
        // A second error about the earlier group concerns no message in flight.
        let of_group = matches!(&error, ErrorBody::Two(error) if error.may_be_of_group());
        if of_group && self.sent(xid)?.plain {
            return Err(ProtocolError::UnknownXid { xid });
        }
        let of_group = self.sent(xid)?.directions.is_some() && of_group;
        core.stats.replies_received.errors += 1;
        let settled = Settled::Refused { grant: credit };
        if of_group {
            Self::group_refused(core, &error);
        }
        if of_group && self.send_plainly(core, now, xid, settled) {
            return Ok(());
        }
        let error = match error {
            ErrorBody::Version { low, high } => CallError::Version { low, high },
            ErrorBody::Chunk => CallError::Chunk,
            ErrorBody::Two(error) => CallError::Refused(error),
        };
        self.answer(core, now, xid, settled, Answered::Failed(error));
        Ok(())
    }

    pub(crate) fn sent(&self, xid: u32) -> Result<&Transaction, ProtocolError> {
        let transaction = self.calls.get(&xid).filter(|call| matches!(call.stage, Stage::Sent(_)));
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
        if let Some(transaction) = self.calls.get_mut(&xid) {
            if let Stage::Sent(lease) = std::mem::replace(&mut transaction.stage, Stage::Answered(answered)) {
                core.settle(lease, settled);
            }
            core.close_windows(xid, &transaction.windows);
        }
        self.set_deadline(xid, after(now, invalidate));
        self.complete_if_closed(core, xid);
    }
}

impl Transaction {
    /// Checks the lists of a reply with so many bytes after its header; returns the places of its parts.
    fn check(
        &self,
        core: &Core,
        lists: &ChunkLists,
        inline: Option<usize>,
    ) -> Result<Returned, ProtocolError> {
        let roundup = core.config.compatibility.write_roundup;
        // RFC 8166 §4.3.1
        if !lists.read.is_empty() && core.reads_replies().is_none() {
            return Err(ProtocolError::ReplyReadList);
        }
        // RFC 8166 §4.3.2: every chunk is returned. A missing list counts as returned unused: then all its results must
        // be inline, which the result decoder checks.
        let offered = &self.offered.write;
        let written = if lists.write.is_empty() {
            vec![0; offered.len()]
        } else if lists.write.len() == offered.len() {
            let pairs = offered.iter().zip(&lists.write);
            pairs
                .map(|(offered, returned)| filled(List::Write, offered, returned, roundup))
                .collect::<Result<_, _>>()?
        } else {
            return Err(ProtocolError::ReplyListDiffers { list: List::Write });
        };
        let reply_chunk = match (&self.offered.reply, &lists.reply) {
            (_, None) => 0,
            (None, Some(_)) => return Err(ProtocolError::ReplyListDiffers { list: List::Reply }),
            (Some(offered), Some(returned)) => filled(List::Reply, offered, returned, roundup)?,
        };
        let read = if lists.read.is_empty() {
            None
        } else {
            let placed = written.iter().map(|len| padded_len(*len)).sum();
            Some(self.check_exposed(core, lists, inline.unwrap_or(reply_chunk), placed)?)
        };
        // RFC 8166 §3.5.3, §4.3.3: RDMA_NOMSG if and only if the reply is in the Reply chunk. RFC 5666 §5.1 also allows
        // a Position-Zero Read chunk.
        let zero = read.as_ref().is_some_and(|layout| layout.zero.is_some());
        match (inline.is_some(), zero, reply_chunk > 0) {
            (true, true, _) => Err(ProtocolError::PositionZeroInMessage),
            (true, false, false) | (false, true, false) | (false, false, true) => {
                Ok(Returned { written, reply_chunk, read })
            }
            _ => Err(ProtocolError::ReplyChunkUse),
        }
    }

    /// Checks the Read list of a reply against the reply sizes that the call declared, before anything is read. `base`
    /// bytes lie outside all chunks, `placed` bytes in Write chunks.
    fn check_exposed(
        &self,
        core: &Core,
        lists: &ChunkLists,
        base: usize,
        placed: usize,
    ) -> Result<Layout, ProtocolError> {
        let wide = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
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

/// Returns the bytes in a returned chunk. RFC 8166 §4.3.2: handles, offsets and the number of segments return
/// unchanged; the lengths count the bytes written, from the front (§3.4.6). A chunk returned without segments is unused
/// (RFC 8267 §6.4.1). With `roundup` the last length may count a pad beyond the chunk's end (RFC 5666 §3.7: it is not
/// transferred).
fn filled(
    list: List,
    offered: &WriteChunk,
    returned: &WriteChunk,
    roundup: bool,
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
    let padded = || roundup && total == capacity.next_multiple_of(4) && offered.padded_at_end() == *returned;
    if !(exact || padded()) {
        return Err(ProtocolError::ReplyListLengths { list });
    }
    usize::try_from(total.min(capacity)).map_err(|_| ProtocolError::ReplyListLengths { list })
}
