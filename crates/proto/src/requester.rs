//! The half of a connection that sends Calls (RFC 8166 §2.2.2).
//!
//! A call waits for a credit (rule I4), for windows and for memory; it is planned and encoded when it leaves. From then on its
//! windows, its XID and its credit stay with the connection until the reply has come *and* every window is closed (rules I1,
//! I2, I10): by the peer's Send with Invalidate for one of them, by LocalInvalidate for the others, or by the end of the
//! connection. A reply that is malformed is discarded; the call then waits for its time to run out.
//!
//! Under the Read-Read model (RFC 5666 §3.8) a reply may leave data at the peer. It is read into memory of the domain, all of it or
//! none, by timers of its own, and an RDMA_DONE goes on the call's credit before the call completes.

mod groups;
mod reply;
mod transmit;

pub(crate) use reply::Received;

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
use crate::flow::{DoneOwed, Lease};
use crate::ids::IdMap;
use crate::outbound::Origin;
use crate::reads::{Owner, Pulled};
use crate::responder::{REPLY, check_prefix};
use crate::timers::{Flow, Moving, after};
use crate::wire::ChunkLists;
use crate::wire::two::transmission::{ErrorReport, ResponseDirection};

#[derive(Debug)]
pub(crate) struct Requester {
    /// XIDs of calls that were not sent, in order, but for those that wait in the ledger's line.
    queue: VecDeque<u32>,
    calls: IdMap<u32, Transaction>,
    /// Open windows.
    keys: HashMap<Key, (u32, usize)>,
    deadlines: BTreeSet<(Instant, u32)>,
    next_id: u32,
    max_windows: usize,
    /// No window was left; another try is due when one comes back.
    no_window: bool,
    /// Calls in groups that the peer has reported one after the other.
    reported: u32,
    /// Bytes of the chunks of calls in flight.
    bulk: u64,
    /// What the peer is to be told about its replies.
    reports: VecDeque<(u32, ErrorReport)>,
    /// Reservations that are being given up.
    releasing: usize,
    /// Bytes that the next call waits for.
    pub(crate) wants_memory: Option<usize>,
}

/// A call from the moment it is made until all its memory is back.
#[derive(Debug)]
struct Transaction {
    id: CallId,
    call: Box<Call>,
    stage: Stage,
    /// The caller is not interested any more, or was already told that it failed.
    abandoned: bool,
    /// When its timer is due, if it has one; what is being read has another.
    deadline: Instant,
    /// For how long the caller waits without progress.
    wait: Duration,
    /// When the caller stops waiting, if nothing moves; once abandoned, when the connection does.
    caller: Moving,
    /// Bytes of its chunks, once sent, and of what the peer exposes for it, once that is read.
    bulk: u64,
    /// Its time was up once: bytes of the calls in flight then give it more, and no others.
    counted: bool,
    /// What its reply was told to do with items, if it left in a transmission group.
    directions: Option<Vec<ResponseDirection>>,
    /// It leaves in plain messages only: the peer has refused it in a group.
    plain: bool,
    /// The peer was told that its reply is not as it has to be.
    reported: bool,
    windows: Vec<Window>,
    /// Sinks whose memory was the caller's.
    lent: Vec<usize>,
    offered: ChunkLists,
    travelled: Travelled,
    invalidations: Invalidations,
}

#[derive(Debug)]
enum Stage {
    Queued,
    /// It has left, and holds its credits.
    Sent(Lease),
    /// The reply is here but for what the peer exposes (RFC 5666 §3.8).
    Reading(DoneOwed, Box<Answered>),
    Answered(Answered),
}

/// Where a result is that memory was offered for, or a place in our Receives.
#[derive(Debug)]
enum Written {
    /// In its Write chunk, so many bytes; if none, inline.
    Chunk(usize),
    /// Inline, whatever memory there was (rtrext-02 §7.4, XMPTYPE_TOOSHORT).
    Inline,
    /// In a Receive (rtrext-02 §7.3).
    Placed(Bytes),
}

/// What the peer said; handed out when the windows are closed.
#[derive(Debug)]
enum Answered {
    Reply {
        /// The Payload after the header; `None` if it is in the Reply chunk.
        inline: Option<Bytes>,
        /// How that is aligned.
        padding: Option<Padding>,
        /// Where the result for each Write chunk is.
        written: Vec<Written>,
        /// Bytes in the Reply chunk.
        reply_chunk: usize,
        /// What was read from the peer.
        pulled: Pulled,
        travelled: Travelled,
    },
    Failed(CallError),
    /// The peer does not take it as it left, in a group: it leaves again in plain messages.
    Again,
}

/// Memory of the call that is or was open to the peer.
#[derive(Debug)]
struct Window {
    key: Key,
    place: Place,
    open: bool,
    /// Back from the window.
    memory: Option<WindowMemory>,
}

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
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
            reported: 0,
            bulk: 0,
            reports: VecDeque::new(),
            releasing: 0,
            wants_memory: None,
        }
    }

    /// Whether a call under this XID is not finished, or abandoned and its memory not back.
    pub(crate) fn knows(&self, xid: u32) -> bool {
        self.calls.contains_key(&xid)
    }

    /// Calls that are not finished, abandoned ones included.
    pub(crate) fn in_progress(&self) -> usize {
        self.calls.len()
    }

    /// Windows that calls hold.
    pub(crate) fn windows(&self) -> usize {
        self.keys.len()
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

    /// The lowest number of a Call that has no reply.
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
            directions: None,
            plain: false,
            reported: false,
            windows: vec![],
            lent: vec![],
            offered: ChunkLists::default(),
            travelled: Travelled::default(),
            invalidations: Invalidations::default(),
        };
        self.calls.insert(xid, transaction);
        Ok(id)
    }

    /// The caller is not interested in the answer any more (rule I10).
    pub(crate) fn abandon(&mut self, core: &mut Core, now: Instant, id: CallId) {
        let xid = id.xid();
        let Some(transaction) = self.calls.get_mut(&xid).filter(|call| call.id == id && !call.abandoned)
        else {
            return;
        };
        match transaction.stage {
            Stage::Queued => self.forget(core, xid),
            // Its memory is what the peer is told to be done with; the Reads have a timer of their own.
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
            // Already being closed; that has a timer of its own.
            Stage::Answered(_) => transaction.abandoned = true,
        }
    }

    fn set_deadline(&mut self, xid: u32, deadline: Instant) {
        if let Some(transaction) = self.calls.get_mut(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
            self.deadlines.insert((deadline, xid));
            transaction.deadline = deadline;
        }
    }

    /// Forgets a call that has no open window.
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

    /// Ends a call that waits to be sent.
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
            // Data of calls in flight moves, its own or that of those before it.
            if deadline == transaction.caller.deadline && transaction.goes_on(core, now, self.bulk) {
                let deadline = transaction.caller.deadline;
                self.set_deadline(xid, deadline);
                continue;
            }
            match transaction.stage {
                // Only what it waited for has not come: the peer is taken for one that tells nothing.
                Stage::Queued if deadline < transaction.caller.deadline => {
                    core.untold = None;
                    let caller = transaction.caller.deadline;
                    self.set_deadline(xid, caller);
                }
                Stage::Queued => {
                    core.stats.timeouts += 1;
                    self.fail_queued(core, xid, CallError::TimedOut);
                }
                // Rule I10: the answer is given up, the memory is not.
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
                // The caller's time has gone on (rule I10). What no memory was had for is not read.
                Stage::Reading(..) => {
                    transaction.abandoned = true;
                    core.stats.timeouts += 1;
                    let result = Err(CallFailure::permanent(CallError::TimedOut, true));
                    core.events.push_back(Event::Reply { id: transaction.id, result });
                    self.stop_timer(xid);
                    if core.reads.withdraw(Owner::Reply(xid)) {
                        self.finish_reading(core, now, xid);
                    }
                }
                Stage::Answered(_) => {
                    core.fail(CloseReason::Timeout("the invalidation of a window"));
                    return self.stop_timer(xid);
                }
            }
        }
    }

    /// Nothing more is timed for this call.
    fn stop_timer(&mut self, xid: u32) {
        if let Some(transaction) = self.calls.get(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
        }
    }

    /// A window that was reserved and not bound is given up.
    pub(crate) const fn reservation_released(&mut self) {
        self.releasing = self.releasing.saturating_sub(1);
        self.no_window = false;
    }

    /// A window that others had is free.
    pub(crate) const fn window_freed(&mut self) {
        self.no_window = false;
    }

    /// A window's memory is back: it is closed. Says which call it belonged to.
    pub(crate) fn window_closed(&mut self, key: Key, memory: Option<WindowMemory>) -> Option<u32> {
        self.no_window = false;
        let (xid, index) = self.keys.remove(&key)?;
        let window = self.calls.get_mut(&xid)?.windows.get_mut(index)?;
        window.open = false;
        window.memory = memory;
        Some(xid)
    }

    /// Whether the window belongs to a call other than this.
    pub(crate) fn belongs_to_other(&self, key: Key, xid: u32) -> bool {
        self.keys.get(&key).is_some_and(|(owner, _)| *owner != xid)
    }

    /// Counts a window that the peer closed.
    pub(crate) fn count_remote(&mut self, core: &mut Core, xid: u32) {
        core.stats.remote_invalidations += 1;
        if let Some(transaction) = self.calls.get_mut(&xid) {
            transaction.invalidations.remote += 1;
        }
    }

    /// An invalidation that we posted has completed.
    pub(crate) fn handle_invalidated(
        &mut self,
        core: &mut Core,
        xid: u32,
        (index, key): (usize, Key),
        memory: Option<WindowMemory>,
    ) {
        self.no_window = false;
        let Some(transaction) = self.calls.get_mut(&xid) else { return };
        // The call may be a later one under the same XID, if the peer had closed the window first.
        let Some(window) = transaction.windows.get_mut(index).filter(|window| window.key == key) else {
            return;
        };
        if window.open {
            window.open = false;
            window.memory = memory;
            transaction.invalidations.local += 1;
            core.stats.local_invalidations += 1;
            self.keys.remove(&window.key);
        }
        self.complete_if_closed(core, xid);
    }

    /// Rule I2: a call completes only after every window offered for it is invalid.
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
            let result = transaction.result(core.config.compatibility.write_roundup);
            if let Err(CallFailure { error: CallError::BadReply(fault), .. }) = &result {
                core.stats.fault(fault);
            }
            core.events.push_back(Event::Reply { id, result });
        }
    }

    /// The connection is over and all windows have given their memory back: what has its reply completes, the rest goes back
    /// to the caller.
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
                transaction.result(core.config.compatibility.write_roundup)
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
    /// What a call holds that waits for its reply.
    const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Sent(lease) => Some(lease),
            Self::Queued | Self::Reading(..) | Self::Answered(_) => None,
        }
    }
}

impl Transaction {
    /// Its time is up: whether it goes on, because data moves. `bulk` are bytes of the chunks of calls in flight, its own among them:
    /// it waits for those, on the link in either direction, or to be sent.
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

    /// Whether it has left, perhaps in a group that the peer did not take: it leaves again then.
    const fn has_left(&self) -> bool {
        self.plain || !matches!(self.stage, Stage::Queued)
    }

    /// Whether it is to leave again in plain messages, as soon as its windows are closed.
    const fn leaves_again(&self) -> bool {
        matches!(self.stage, Stage::Answered(Answered::Again))
    }

    fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Answered(_)) && self.windows.iter().all(|window| !window.open)
    }

    /// The memory of a chunk, its windows joined in order.
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

    /// The first `len` bytes of a chunk's memory.
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

    /// `roundup`: a returned length may include the pad.
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

    /// Puts the caller's memory back into the call, as far as it came back.
    fn restore_sinks(&mut self) {
        for index in std::mem::take(&mut self.lent) {
            let memory = self.memory(Place::Write(index));
            if let (Some(sink), Some(memory)) = (self.call.reply.sinks.get_mut(index), memory) {
                *sink = Sink::Buffer(memory);
            }
        }
    }
}

impl Core {
    /// Closes the windows of a call that are still open.
    fn close_windows(&mut self, xid: u32, windows: &[Window]) {
        for (index, window) in windows.iter().enumerate().filter(|(_, window)| window.open) {
            self.invalidate(Origin::Invalidate { xid, window: index, key: window.key }, window.key);
        }
    }
}
