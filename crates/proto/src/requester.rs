//! The half of a connection that sends Calls (RFC 8166 §2.2.2).
//!
//! A call waits for a credit (rule I4), for windows and for memory; it is planned and encoded when it leaves. From then
//! on the connection holds the call's windows, XID and credit until the reply has come *and* every window is closed
//! (rules I1, I2, I10). The peer's Send with Invalidate closes one of them, LocalInvalidate the others; the end of the
//! connection closes all. A malformed reply is discarded; the call then waits until its deadline.

mod reply;
mod transmit;

pub(crate) use reply::Received;
pub(crate) use transmit::CallRoom;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, Key, WindowMemory};
use rpcrdma_xdr::{Decoder, Padding, ReturnedChunk, WriteChunkRules};

use crate::call::{
    Call, CallError, CallFailure, CallId, IncomingReply, Invalidations, Refused, RefusedKind, Sink, Travelled,
};
use crate::core::Core;
use crate::event::{CloseReason, Event};
use crate::flow::Lease;
use crate::ids::IdMap;
use crate::outbound::Origin;
use crate::reads::Pulled;
use crate::responder::{REPLY, check_prefix};
use crate::retired::Reading;
use crate::timers::{Flow, Moving, after};
use crate::two::requests::SentGroup;
use crate::wire::ChunkLists;

#[derive(Debug)]
pub(crate) struct Requester {
    /// XIDs of unsent calls, in order, except those in the ledger's line.
    pub(crate) queue: VecDeque<u32>,
    pub(crate) calls: IdMap<u32, Transaction>,
    /// Open windows.
    keys: HashMap<Key, (u32, usize)>,
    deadlines: BTreeSet<(Instant, u32)>,
    next_id: u32,
    max_windows: usize,
    /// No window was free; the next one that returns allows another try.
    no_window: bool,
    /// Bytes of the chunks of calls in flight.
    pub(crate) bulk: u64,
    /// Bytes of memory that the next call waits for.
    pub(crate) wants_memory: Option<usize>,
}

/// A call from its start until all its memory is back.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) id: CallId,
    pub(crate) call: Box<Call>,
    pub(crate) stage: Stage,
    /// The caller has abandoned the call, or knows that it failed.
    pub(crate) abandoned: bool,
    /// When the call's timer is due, if it runs; reads of the reply have their own timer.
    pub(crate) deadline: Instant,
    /// The longest time without progress that the caller accepts.
    pub(crate) wait: Duration,
    /// The deadline without progress: of the caller, or of the connection once the call is abandoned.
    pub(crate) caller: Moving,
    /// Bytes of the chunks of a sent call, and of the data that the peer exposes for it.
    pub(crate) bulk: u64,
    /// The deadline was reached once: from then on only bytes of the calls then in flight extend it.
    pub(crate) counted: bool,
    /// The transmission group of the call, if it has left in one.
    pub(crate) group: Option<Box<SentGroup>>,
    pub(crate) windows: Vec<Window>,
    /// Sinks whose memory came from the caller.
    pub(crate) lent: Vec<usize>,
    pub(crate) offered: ChunkLists,
    pub(crate) travelled: Travelled,
    pub(crate) invalidations: Invalidations,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Queued,
    /// The call has left, and holds its credits.
    Sent(Lease),
    /// The reply is complete, except data that the peer exposes (RFC 5666 §3.8).
    Reading(Box<Reading>),
    Answered(Answered),
}

/// The place of a result for which memory or a segment of our Receives was offered.
#[derive(Debug)]
pub(crate) enum Written {
    /// In its Write chunk, with this length in bytes; with length 0, inline.
    Chunk(usize),
    /// Inline, despite offered memory (rtrext-02 §7.4, XMPTYPE_TOOSHORT).
    Inline,
    /// In a Receive (rtrext-02 §7.3).
    Placed(Bytes),
}

/// The peer's answer, which the caller gets when the windows are closed.
#[derive(Debug)]
pub(crate) enum Answered {
    Reply {
        /// The Payload stream after the header; `None` if it is in the Reply chunk.
        inline: Option<Bytes>,
        /// The alignment of the Payload stream.
        padding: Option<Padding>,
        /// The place of the result for each Write chunk.
        written: Vec<Written>,
        /// Bytes in the Reply chunk.
        reply_chunk: usize,
        /// The data that was read from the peer.
        pulled: Pulled,
        travelled: Travelled,
    },
    Failed(CallError),
    /// The peer refuses the call in a group: it leaves again in plain messages.
    Again,
}

/// Memory of a call that is or was open to the peer.
#[derive(Debug)]
pub(crate) struct Window {
    key: Key,
    place: Place,
    open: bool,
    /// The memory that the closed window returned.
    memory: Option<WindowMemory>,
}

/// The use of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Read,
    Write(usize),
    Reply,
}

impl CallId {
    const fn new(count: u32, xid: u32) -> Self {
        Self((count as u64) << 32 | xid as u64)
    }

    fn xid(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(0)
    }
}

impl Requester {
    pub(crate) fn new(max_windows: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            calls: IdMap::default(),
            keys: HashMap::new(),
            deadlines: BTreeSet::new(),
            next_id: 0,
            max_windows,
            no_window: false,
            bulk: 0,
            wants_memory: None,
        }
    }

    /// Whether a call under this XID is unfinished, or abandoned with memory still held.
    pub(crate) fn knows(&self, xid: u32) -> bool {
        self.calls.contains_key(&xid)
    }

    /// Returns the number of unfinished calls, including abandoned ones.
    pub(crate) fn in_progress(&self) -> usize {
        self.calls.len()
    }

    /// Whether the peer may be reading the arguments of a call.
    pub(crate) fn is_read(&self) -> bool {
        let open = |window: &Window| window.open && window.place == Place::Read;
        self.calls.values().any(|call| matches!(call.stage, Stage::Sent(_)) && call.windows.iter().any(open))
    }

    #[cfg(test)]
    pub(crate) fn windows_of(&self, xid: u32) -> (usize, usize) {
        let windows = self.calls.get(&xid).map_or(&[][..], |call| &call.windows);
        (windows.len(), windows.iter().filter(|window| window.open).count())
    }

    /// Whether a call waits to be sent.
    pub(crate) fn has_queued(&self, core: &Core) -> bool {
        !self.queue.is_empty() || core.ledger.line().has_calls()
    }

    /// Returns the lowest number of a Call without a reply.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let sent = self.calls.values().filter_map(|call| call.stage.lease());
        sent.map(Lease::number).min()
    }

    /// Whether a reply for this XID is awaited.
    pub(crate) fn awaits(&self, xid: u32) -> bool {
        self.calls.get(&xid).is_some_and(|call| matches!(call.stage, Stage::Sent(_)))
    }

    pub(crate) fn call(&mut self, core: &mut Core, now: Instant, call: Call) -> Result<CallId, Refused> {
        let xid = call.xid;
        if self.calls.contains_key(&xid) {
            return Err(Refused { kind: RefusedKind::XidInUse(xid), call: Box::new(call) });
        }
        if !call.begins_with_xid() {
            return Err(Refused { kind: RefusedKind::XidMismatch(xid), call: Box::new(call) });
        }
        let id = CallId::new(self.next_id, xid);
        self.next_id = self.next_id.wrapping_add(1);
        let wait = call.timeout.unwrap_or(core.config.timeouts.call);
        let caller = Moving::new(now, wait, Flow::Link, core.told.as_ref(), 0);
        let deadline = caller.deadline;
        self.deadlines.insert((deadline, xid));
        if !self.queue.is_empty() || !core.ledger.has_credit() {
            core.stats.calls_queued += 1;
        }
        self.queue.push_back(xid);
        let transaction = Transaction {
            id,
            call: Box::new(call),
            stage: Stage::Queued,
            abandoned: false,
            deadline,
            wait,
            caller,
            bulk: 0,
            counted: false,
            group: None,
            windows: vec![],
            lent: vec![],
            offered: ChunkLists::default(),
            travelled: Travelled::default(),
            invalidations: Invalidations::default(),
        };
        self.calls.insert(xid, transaction);
        Ok(id)
    }

    /// Abandons a call: the caller no longer wants the answer (rule I10).
    pub(crate) fn abandon(&mut self, core: &mut Core, now: Instant, id: CallId) {
        let xid = id.xid();
        let Some(transaction) = self.calls.get_mut(&xid).filter(|call| call.id == id && !call.abandoned)
        else {
            return;
        };
        match transaction.stage {
            Stage::Queued => self.forget(core, xid),
            // The RDMA_DONE releases the call's memory; the reads have a timer of their own.
            Stage::Reading(..) => {
                transaction.abandoned = true;
                self.stop_timer(xid);
            }
            Stage::Sent(_) => {
                transaction.abandoned = true;
                transaction.counted = false;
                transaction.caller.deadline = after(now, core.config.timeouts.abandoned);
                let deadline = transaction.caller.deadline;
                self.set_deadline(xid, deadline);
            }
            // The windows are being closed already, with a timer of their own.
            Stage::Answered(_) => transaction.abandoned = true,
        }
    }

    pub(crate) fn set_deadline(&mut self, xid: u32, deadline: Instant) {
        if let Some(transaction) = self.calls.get_mut(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
            self.deadlines.insert((deadline, xid));
            transaction.deadline = deadline;
        }
    }

    /// Removes a call without open windows.
    fn forget(&mut self, core: &mut Core, xid: u32) {
        if let Some(transaction) = self.calls.remove(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
            self.bulk = self.bulk.saturating_sub(transaction.bulk);
            if matches!(transaction.stage, Stage::Queued) {
                self.queue.retain(|queued| *queued != xid);
                core.ledger.line_mut().forget_call(xid);
            }
        }
    }

    /// Ends an unsent call.
    fn fail_queued(&mut self, core: &mut Core, xid: u32, error: CallError) {
        if let Some(transaction) = self.calls.get(&xid) {
            let result = Err(CallFailure::permanent(error, transaction.has_left()));
            core.events.push_back(Event::Reply { id: transaction.id, result });
            self.forget(core, xid);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        while let Some((deadline, xid)) =
            self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now)
        {
            let Some(transaction) = self.calls.get_mut(&xid) else {
                self.deadlines.remove(&(deadline, xid));
                continue;
            };
            // Data of calls in flight moves: of this call or of earlier ones.
            if deadline == transaction.caller.deadline && transaction.goes_on(core, now, self.bulk) {
                let deadline = transaction.caller.deadline;
                self.set_deadline(xid, deadline);
                continue;
            }
            match transaction.stage {
                // Only the peer's announcement has not come: the call counts on the defaults.
                Stage::Queued if deadline < transaction.caller.deadline => {
                    core.set_untold(None);
                    let caller = transaction.caller.deadline;
                    self.set_deadline(xid, caller);
                }
                Stage::Queued => {
                    core.stats.timeouts += 1;
                    self.fail_queued(core, xid, CallError::TimedOut);
                }
                // Rule I10: the call fails, but its memory is held.
                Stage::Sent(_) if !transaction.abandoned => {
                    transaction.abandoned = true;
                    core.stats.timeouts += 1;
                    let result = Err(CallFailure::permanent(CallError::TimedOut, true));
                    core.events.push_back(Event::Reply { id: transaction.id, result });
                    transaction.counted = false;
                    transaction.caller.deadline = after(now, core.config.timeouts.abandoned);
                    let deadline = transaction.caller.deadline;
                    self.set_deadline(xid, deadline);
                }
                Stage::Sent(_) => {
                    core.fail(CloseReason::Timeout("the reply to an abandoned call"));
                    return self.stop_timer(xid);
                }
                // The caller's deadline has passed (rule I10). Chunks without allocated memory are never read.
                Stage::Reading(..) => {
                    transaction.abandoned = true;
                    core.stats.timeouts += 1;
                    let result = Err(CallFailure::permanent(CallError::TimedOut, true));
                    core.events.push_back(Event::Reply { id: transaction.id, result });
                    self.stop_timer(xid);
                    self.withdraw_reading(core, now, xid);
                }
                Stage::Answered(_) => {
                    core.fail(CloseReason::Timeout("the invalidation of a window"));
                    return self.stop_timer(xid);
                }
            }
        }
    }

    /// Stops the timer of this call.
    fn stop_timer(&mut self, xid: u32) {
        if let Some(transaction) = self.calls.get(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
        }
    }

    /// Records that a window is free.
    pub(crate) const fn window_freed(&mut self) {
        self.no_window = false;
    }

    /// Records a closed window, which returns its memory; returns the XID of its call.
    pub(crate) fn window_closed(
        &mut self,
        core: &mut Core,
        key: Key,
        memory: Option<WindowMemory>,
    ) -> Option<u32> {
        let (xid, index) = self.keys.remove(&key)?;
        core.windows = core.windows.saturating_sub(1);
        let window = self.calls.get_mut(&xid)?.windows.get_mut(index)?;
        window.open = false;
        window.memory = memory;
        Some(xid)
    }

    /// Whether the window belongs to another call.
    pub(crate) fn belongs_to_other(&self, key: Key, xid: u32) -> bool {
        self.keys.get(&key).is_some_and(|(owner, _)| *owner != xid)
    }

    /// Counts a window that the peer invalidated.
    pub(crate) fn count_remote(&mut self, core: &mut Core, xid: u32) {
        core.stats.remote_invalidations += 1;
        if let Some(transaction) = self.calls.get_mut(&xid) {
            transaction.invalidations.remote += 1;
        }
    }

    /// Handles the completion of an invalidation that we posted.
    pub(crate) fn handle_invalidated(
        &mut self,
        core: &mut Core,
        xid: u32,
        (index, key): (usize, Key),
        memory: Option<WindowMemory>,
    ) {
        let Some(transaction) = self.calls.get_mut(&xid) else { return };
        // A later call may have this XID, if the peer had invalidated the window first.
        let Some(window) = transaction.windows.get_mut(index).filter(|window| window.key == key) else {
            return;
        };
        if window.open {
            window.open = false;
            window.memory = memory;
            transaction.invalidations.local += 1;
            core.stats.local_invalidations += 1;
            self.keys.remove(&window.key);
            core.windows = core.windows.saturating_sub(1);
        }
        self.complete_if_closed(core, xid);
    }

    /// Completes a call whose windows are all invalid (rule I2).
    pub(crate) fn complete_if_closed(&mut self, core: &mut Core, xid: u32) {
        let closed = self.calls.get(&xid).is_some_and(Transaction::is_closed);
        if !closed || self.queue_again(xid) {
            return;
        }
        let Some(transaction) = self.calls.remove(&xid) else { return };
        self.deadlines.remove(&(transaction.deadline, xid));
        self.bulk = self.bulk.saturating_sub(transaction.bulk);
        if !transaction.abandoned {
            let id = transaction.id;
            let result = transaction.result(core.accepts_roundup());
            if let Err(CallFailure { error: CallError::BadReply(fault), .. }) = &result {
                core.stats.fault(fault);
            }
            core.events.push_back(Event::Reply { id, result });
        }
    }

    /// Handles the end of the connection, after all windows have returned their memory. Answered calls complete; all
    /// others return to the caller.
    pub(crate) fn handle_disconnected(&mut self, core: &mut Core, reason: &CloseReason) {
        self.queue.clear();
        self.keys.clear();
        self.deadlines.clear();
        self.bulk = 0;
        let mut calls: Vec<_> = self.calls.drain().map(|(_, transaction)| transaction).collect();
        calls.sort_by_key(|transaction| transaction.id);
        for mut transaction in calls {
            if transaction.abandoned {
                continue;
            }
            let id = transaction.id;
            let result = if transaction.is_closed() && !transaction.leaves_again() {
                transaction.result(core.accepts_roundup())
            } else {
                transaction.restore_sinks();
                let error = CallError::ConnectionLost(reason.clone());
                let sent = transaction.has_left();
                Err(CallFailure { error, call: Some(transaction.call), sent })
            };
            core.events.push_back(Event::Reply { id, result });
        }
    }
}

impl Stage {
    /// Returns the holdings of a call that waits for its reply.
    pub(crate) const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Sent(lease) => Some(lease),
            Self::Queued | Self::Reading(..) | Self::Answered(_) => None,
        }
    }
}

impl Transaction {
    /// Whether data moves, so that the call gets more time at its deadline. `bulk` is the bytes of the chunks of all
    /// calls in flight. The call waits for them on the link in either direction, or until they are sent.
    fn goes_on(&mut self, core: &Core, now: Instant, bulk: u64) -> bool {
        let timeouts = &core.config.timeouts;
        let stall = if self.abandoned { timeouts.abandoned } else { self.wait };
        match self.stage {
            Stage::Queued => self.caller.set_left(bulk),
            Stage::Sent(_) | Stage::Reading(..) => {
                if !std::mem::replace(&mut self.counted, true) {
                    self.caller.set_left(bulk);
                }
            }
            Stage::Answered(_) => return false,
        }
        self.caller.goes_on(now, timeouts.pace(stall), core.told.as_ref())
    }

    /// Whether the call has left, possibly in a group that the peer refused.
    const fn has_left(&self) -> bool {
        self.group.is_some() || !matches!(self.stage, Stage::Queued)
    }

    /// Whether the call will leave again in plain messages, once its windows are closed.
    pub(crate) const fn leaves_again(&self) -> bool {
        matches!(self.stage, Stage::Answered(Answered::Again))
    }

    fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Answered(_)) && self.windows.iter().all(|window| !window.open)
    }

    /// Returns the memory of a chunk, joined from its windows in order.
    fn memory(&mut self, place: Place) -> Option<Buffer> {
        let mut whole: Option<Buffer> = None;
        for window in self.windows.iter_mut().filter(|window| window.place == place) {
            let Some(WindowMemory::Write(part)) = window.memory.take() else { return None };
            match &mut whole {
                None => whole = Some(part),
                Some(head) => head.unsplit(part).ok()?,
            }
        }
        whole
    }

    /// Returns the first `len` bytes of a chunk's memory.
    fn content(&mut self, place: Place, len: usize) -> Option<Bytes> {
        if len == 0 {
            return Some(Bytes::new());
        }
        let mut memory = self.memory(place)?;
        if memory.len() < len {
            return None;
        }
        memory.truncate(len);
        Some(memory.freeze())
    }

    /// Returns the reply for the caller. `roundup`: a returned length may include the pad.
    fn result(mut self, roundup: bool) -> Result<IncomingReply, CallFailure> {
        let lost = || CallFailure::permanent(CallError::ResultLost, true);
        let stage = std::mem::replace(&mut self.stage, Stage::Queued);
        let (inline, padding, written, reply_chunk, pulled, travelled) = match stage {
            Stage::Answered(Answered::Reply { inline, padding, written, reply_chunk, pulled, travelled }) => {
                (inline, padding, written, reply_chunk, pulled, travelled)
            }
            Stage::Answered(Answered::Failed(error)) => return Err(CallFailure::permanent(error, true)),
            Stage::Queued | Stage::Sent(_) | Stage::Reading(..) | Stage::Answered(Answered::Again) => {
                return Err(lost());
            }
        };
        let base = match (inline, pulled.zero) {
            (Some(inline), _) => inline,
            (None, long) => {
                let base = match long {
                    Some(zero) => zero,
                    None => self.content(Place::Reply, reply_chunk).ok_or_else(lost)?,
                };
                check_prefix(self.call.xid, &base, REPLY)
                    .map_err(|error| CallFailure::permanent(CallError::BadReply(error), true))?;
                base
            }
        };
        let message = if written.is_empty() {
            Decoder::new(base)
        } else {
            let mut chunks = Vec::with_capacity(written.len());
            for (index, written) in written.into_iter().enumerate() {
                let offered = self.offered.write.get(index).map_or(0, crate::wire::WriteChunk::total);
                chunks.push(match written {
                    Written::Placed(data) => ReturnedChunk::Filled { offered: data.len(), data },
                    Written::Inline => ReturnedChunk::Empty,
                    Written::Chunk(_) if offered == 0 => ReturnedChunk::Empty,
                    Written::Chunk(len) => {
                        let offered = usize::try_from(offered).unwrap_or(usize::MAX);
                        let data = self.content(Place::Write(index), len).ok_or_else(lost)?;
                        ReturnedChunk::Filled { data, offered }
                    }
                });
            }
            let rules = WriteChunkRules { accept_padded: roundup, ..WriteChunkRules::default() };
            Decoder::with_write_chunks(base, chunks).accept(rules)
        };
        let message = message.and_read_chunks(pulled.chunks);
        let message = match padding {
            Some(padding) => message.skip_padding(padding),
            None => message,
        };
        let (call, invalidations) = (self.travelled, self.invalidations);
        Ok(IncomingReply { message, call, reply: travelled, invalidations })
    }

    /// Returns the caller's memory to the call, as far as it came back.
    pub(crate) fn restore_sinks(&mut self) {
        for index in std::mem::take(&mut self.lent) {
            let memory = self.memory(Place::Write(index));
            if let (Some(sink), Some(memory)) = (self.call.reply.sinks.get_mut(index), memory) {
                *sink = Sink::Buffer(memory);
            }
        }
    }
}

impl Core {
    /// Closes the open windows of a call.
    pub(crate) fn close_windows(&mut self, xid: u32, windows: &[Window]) {
        for (index, window) in windows.iter().enumerate().filter(|(_, window)| window.open) {
            self.invalidate(Origin::Invalidate { xid, window: index, key: window.key }, window.key);
        }
    }
}
