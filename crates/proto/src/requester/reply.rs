//! Receiving a reply: is it one of ours, and does it return what was offered?
//!
//! A reply that fails a check changes nothing but the counters: it is discarded and its Receive posted again
//! (RFC 8166 §4.5). Only one that passes ends the call, by closing its windows.

use std::time::Instant;

use bytes::Bytes;

use super::{Answered, Requester, Stage, Transaction};
use crate::call::{CallError, Form, Travelled};
use crate::core::Core;
use crate::error::{List, ProtocolError};
use crate::timers::after;
use crate::wire::{ChunkLists, ErrorBody, WriteChunk};

/// A reply as it came.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) xid: u32,
    pub(crate) credit: u32,
    pub(crate) lists: ChunkLists,
    /// What follows the header; `None` for RDMA_NOMSG.
    pub(crate) payload: Option<Bytes>,
    /// Bytes of the Send.
    pub(crate) len: usize,
}

impl Requester {
    /// Takes a reply.
    pub(crate) fn handle_reply(
        &mut self,
        core: &mut Core,
        now: Instant,
        received: Received,
    ) -> Result<(), ProtocolError> {
        let Received { xid, credit, lists, payload, len } = received;
        let transaction = self.sent(xid)?;
        let roundup = core.config.compatibility.write_roundup;
        let (written, reply_chunk) = transaction.check(&lists, payload.is_some(), roundup)?;
        let placed: usize = written.iter().sum();
        let form = match payload {
            None => Form::Long,
            Some(_) if placed > 0 => Form::Reduced,
            Some(_) => Form::Inline,
        };
        let filled = lists.write.iter().chain(&lists.reply).flat_map(|chunk| &chunk.segments);
        let segments = filled.filter(|segment| segment.length > 0).count();
        let travelled = Travelled { form, sent: len, read: 0, written: placed, reply_chunk, segments };
        core.stats.replies_received.count(&travelled);
        self.answer(
            core,
            now,
            xid,
            credit,
            Answered::Reply { inline: payload, written, reply_chunk, travelled },
        );
        Ok(())
    }

    /// Takes an RDMA_ERROR: a permanent error of the call (RFC 8166 §4.5).
    pub(crate) fn handle_error(
        &mut self,
        core: &mut Core,
        now: Instant,
        xid: u32,
        credit: u32,
        error: ErrorBody,
    ) -> Result<(), ProtocolError> {
        self.sent(xid)?;
        core.stats.replies_received.errors += 1;
        let error = match error {
            ErrorBody::Version { low, high } => CallError::Version { low, high },
            ErrorBody::Chunk => CallError::Chunk,
        };
        self.answer(core, now, xid, credit, Answered::Failed(error));
        Ok(())
    }

    fn sent(&self, xid: u32) -> Result<&Transaction, ProtocolError> {
        let transaction = self.calls.get(&xid).filter(|call| matches!(call.stage, Stage::Sent));
        transaction.ok_or(ProtocolError::UnknownXid { xid })
    }

    /// The call has its answer: its credit is free, its windows are closed (rule I2).
    fn answer(&mut self, core: &mut Core, now: Instant, xid: u32, credit: u32, answered: Answered) {
        self.credits.release();
        self.credits.grant(credit);
        core.stats.credits_granted_to_us = self.credits.granted();
        let invalidate = core.config.timeouts.invalidate;
        if let Some(transaction) = self.calls.get_mut(&xid) {
            transaction.stage = Stage::Answered(answered);
            core.close_windows(xid, &transaction.windows);
        }
        self.set_deadline(xid, after(now, invalidate));
        self.complete_if_closed(core, xid);
    }
}

impl Transaction {
    /// Checks the lists of a reply; says what is in each Write chunk and in the Reply chunk.
    fn check(
        &self,
        lists: &ChunkLists,
        inline: bool,
        roundup: bool,
    ) -> Result<(Vec<usize>, usize), ProtocolError> {
        // RFC 8166 §4.3.1
        if !lists.read.is_empty() {
            return Err(ProtocolError::ReplyReadList);
        }
        // RFC 8166 §4.3.2: every chunk is returned. A list that is missing altogether is taken as returned unused: all its
        // results must then be inline, which the result decoder checks.
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
        // RFC 8166 §3.5.3, §4.3.3: RDMA_NOMSG if and only if the reply is in the Reply chunk.
        if inline == (reply_chunk > 0) {
            return Err(ProtocolError::ReplyChunkUse);
        }
        Ok((written, reply_chunk))
    }
}

/// Bytes in a returned chunk. RFC 8166 §4.3.2: handles, offsets and the number of segments come back as they were; lengths
/// say what was written, from the front (§3.4.6). A chunk returned without segments is unused (RFC 8267 §6.4.1). With
/// `roundup` the last length may count a pad for which there is no room (RFC 5666 §3.7: it is not transferred).
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
