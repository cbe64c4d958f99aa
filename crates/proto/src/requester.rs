//! The half of a connection that sends Calls (RFC 8166 §2.2.2).
//!
//! A call waits for a credit (rule I4), for windows and for memory; it is planned and encoded when it leaves. From then
//! on the connection holds the call's windows, XID and credit until the reply has come *and* every window is closed
//! (rules I1, I2, I10). The peer's Send with Invalidate closes one of them, LocalInvalidate the others; the end of the
//! connection closes all. A malformed reply is discarded; the call then waits until its deadline.

mod flight;
mod reply;
mod transmit;

pub(crate) use flight::{Answered, Flight, Phase, Place, Written};
pub(crate) use reply::returned;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use rpcrdma_verbs::{Key, WindowMemory};

use crate::call::{Call, CallFailure, CallId, IncomingReply, Refused, RefusedKind};
use crate::core::Core;
use crate::error::{CallError, CloseReason};
use crate::event::Event;
use crate::flow::Lease;
use crate::ids::IdMap;
use crate::settings::timers::{Flow, Moving, after};

#[derive(Debug, Default)]
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
    pub(crate) no_window: bool,
    /// Bytes of the chunks of calls in flight.
    pub(crate) bulk: u64,
    /// Bytes of memory that the next call waits for.
    pub(crate) wants_memory: Option<usize>,
}

/// A call from its start until all its memory is back.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) id: CallId,
    pub(crate) call: Call,
    pub(crate) stage: Stage,
    /// The caller has abandoned the call, or knows that it failed.
    pub(crate) abandoned: bool,
    /// When the call's timer is due, if it runs; reads of the reply have their own timer.
    pub(crate) deadline: Instant,
    /// The longest time without progress that the caller accepts.
    pub(crate) wait: Duration,
    /// The deadline without progress: of the caller, or of the connection once the call is abandoned.
    pub(crate) caller: Moving,
    /// The deadline was reached once: from then on only bytes of the calls then in flight extend it.
    pub(crate) counted: bool,
}

/// The stage of a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most calls are in flight, and a box costs each an allocation")]
pub(crate) enum Stage {
    /// The call has not left.
    Queued,
    /// The call has left.
    InFlight(Flight),
}

impl Requester {
    pub(crate) fn new(max_windows: usize) -> Self {
        Self { max_windows, ..Self::default() }
    }

    /// Whether a call under this XID is unfinished, or abandoned with memory still held.
    pub(crate) fn knows(&self, xid: u32) -> bool {
        self.calls.contains_key(&xid)
    }

    /// Whether no key belongs to a call.
    #[cfg(test)]
    pub(crate) fn has_no_key(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the peer may be reading the arguments of a call.
    pub(crate) fn is_read(&self) -> bool {
        let open = |window: &flight::Window| window.open && window.place == Place::Read;
        let sent = self.calls.values().filter(|call| call.lease().is_some()).filter_map(Transaction::flight);
        sent.flat_map(|flight| &flight.windows).any(open)
    }

    #[cfg(test)]
    pub(crate) fn windows_of(&self, xid: u32) -> (usize, usize) {
        let flight = self.calls.get(&xid).and_then(Transaction::flight);
        let windows = flight.map_or(&[][..], |flight| &flight.windows);
        (windows.len(), windows.iter().filter(|window| window.open).count())
    }

    /// Returns the lowest number of a Call without a reply.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.calls.values().filter_map(Transaction::lease).map(Lease::number).min()
    }

    /// Whether a reply for this XID is awaited.
    pub(crate) fn awaits(&self, xid: u32) -> bool {
        self.calls.get(&xid).is_some_and(|call| call.lease().is_some())
    }

    /// Returns the id of a new call under this XID.
    pub(crate) const fn new_id(&mut self, xid: u32) -> CallId {
        self.next_id = self.next_id.wrapping_add(1);
        CallId::new(self.next_id, xid)
    }

    pub(crate) fn call(
        &mut self,
        core: &mut Core,
        now: Instant,
        id: CallId,
        call: Call,
    ) -> Result<(), Refused> {
        let xid = call.xid;
        if !call.begins_with_xid() {
            return Err(Refused { kind: RefusedKind::XidMismatch(xid), call: Box::new(call) });
        }
        let wait = call.timeout.unwrap_or(core.config.timeouts.call);
        let caller = Moving::new(now, wait, Flow::Link, core.outbox.told(), 0);
        let deadline = caller.deadline;
        self.deadlines.insert((deadline, xid));
        if !self.queue.is_empty() || !core.ledger.calls.available() {
            core.stats.calls_queued += 1;
        }
        self.queue.push_back(xid);
        let transaction = Transaction {
            id,
            call,
            stage: Stage::Queued,
            abandoned: false,
            deadline,
            wait,
            caller,
            counted: false,
        };
        self.calls.insert(xid, transaction);
        Ok(())
    }

    /// Abandons a call: the caller no longer wants the answer (rule I10).
    pub(crate) fn abandon(&mut self, core: &mut Core, now: Instant, id: CallId) {
        let xid = id.xid();
        let Some(transaction) = self.calls.get_mut(&xid).filter(|call| call.id == id && !call.abandoned)
        else {
            return;
        };
        match transaction.phase() {
            None => self.forget(core, xid),
            // The RDMA_DONE releases the call's memory; the reads have a timer of their own.
            Some(Phase::Reading(_)) => {
                transaction.abandoned = true;
                self.stop_timer(xid);
            }
            Some(Phase::Sent(_)) => {
                transaction.abandoned = true;
                transaction.counted = false;
                transaction.caller.deadline = after(now, core.config.timeouts.abandoned);
                let deadline = transaction.caller.deadline;
                self.set_deadline(xid, deadline);
            }
            // The windows are being closed already, with a timer of their own.
            Some(Phase::Closing(_)) => transaction.abandoned = true,
        }
    }

    pub(crate) fn set_deadline(&mut self, xid: u32, deadline: Instant) {
        if let Some(transaction) = self.calls.get_mut(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
            self.deadlines.insert((deadline, xid));
            transaction.deadline = deadline;
        }
    }

    /// Removes an unsent call.
    fn forget(&mut self, core: &mut Core, xid: u32) {
        if let Some(transaction) = self.calls.remove(&xid) {
            self.deadlines.remove(&(transaction.deadline, xid));
            self.queue.retain(|queued| *queued != xid);
            core.ledger.line.forget_call(xid);
            core.forget_group(xid);
        }
    }

    /// Ends an unsent call.
    fn fail_queued(&mut self, core: &mut Core, xid: u32, error: CallError) {
        if let Some(transaction) = self.calls.get(&xid) {
            let result = Err(CallFailure::permanent(error, transaction.has_left(core)));
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
            match transaction.phase() {
                // Only the peer's announcement has not come: the call counts on the defaults.
                None if deadline < transaction.caller.deadline => {
                    core.set_untold(None);
                    let caller = transaction.caller.deadline;
                    self.set_deadline(xid, caller);
                }
                Some(Phase::Sent(_)) if transaction.abandoned => {
                    core.fail(CloseReason::Timeout("the reply to an abandoned call"));
                    return self.stop_timer(xid);
                }
                Some(Phase::Closing(_)) => {
                    core.fail(CloseReason::Timeout("the invalidation of a window"));
                    return self.stop_timer(xid);
                }
                // Rule I10: the call fails, but its memory is held. Chunks without allocated memory are never read.
                _ => {
                    core.stats.timeouts += 1;
                    let (id, sent) = (transaction.id, transaction.has_left(core));
                    let result = Err(CallFailure::permanent(CallError::TimedOut, sent));
                    core.events.push_back(Event::Reply { id, result });
                    self.abandon(core, now, id);
                    self.withdraw_reading(core, now, xid);
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

    /// Records a closed window, which returns its memory; returns the XID of its call.
    pub(crate) fn window_closed(
        &mut self,
        core: &mut Core,
        key: Key,
        memory: Option<WindowMemory>,
    ) -> Option<u32> {
        let (xid, index) = self.keys.remove(&key)?;
        core.windows = core.windows.saturating_sub(1);
        let window = self.calls.get_mut(&xid)?.flight_mut()?.windows.get_mut(index)?;
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
        if let Some(flight) = self.calls.get_mut(&xid).and_then(Transaction::flight_mut) {
            flight.invalidations.remote += 1;
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
        let Some(flight) = self.calls.get_mut(&xid).and_then(Transaction::flight_mut) else { return };
        // A later call may have this XID, if the peer had invalidated the window first.
        let Some(window) = flight.windows.get_mut(index).filter(|window| window.key == key) else { return };
        if window.open {
            window.open = false;
            window.memory = memory;
            flight.invalidations.local += 1;
            core.stats.local_invalidations += 1;
            self.keys.remove(&window.key);
            core.windows = core.windows.saturating_sub(1);
        }
        self.complete_if_closed(core, xid);
    }

    /// Completes a call whose windows are all invalid (rule I2).
    pub(crate) fn complete_if_closed(&mut self, core: &mut Core, xid: u32) {
        if !self.calls.get(&xid).is_some_and(Transaction::is_closed) {
            return;
        }
        if core.sending.is_some() && self.queue_again(core, xid) {
            return;
        }
        let Some(transaction) = self.calls.remove(&xid) else { return };
        self.deadlines.remove(&(transaction.deadline, xid));
        self.bulk = self.bulk.saturating_sub(transaction.bulk());
        if !transaction.abandoned {
            let id = transaction.id;
            let result = transaction.result(core);
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
                transaction.result(core)
            } else {
                transaction.restore_sinks();
                let error = CallError::ConnectionLost(reason.clone());
                let sent = transaction.has_left(core);
                let call = Some(Box::new(transaction.call));
                Err(CallFailure { error, call, sent, sent_before: false })
            };
            core.events.push_back(Event::Reply { id, result });
        }
    }
}

impl Transaction {
    /// Whether data moves, so that the call gets more time at its deadline. `bulk` is the bytes of the chunks of all
    /// calls in flight. The call waits for them on the link in either direction, or until they are sent.
    fn goes_on(&mut self, core: &Core, now: Instant, bulk: u64) -> bool {
        let timeouts = &core.config.timeouts;
        let stall = if self.abandoned { timeouts.abandoned } else { self.wait };
        match self.phase() {
            None => self.caller.set_left(bulk),
            Some(Phase::Sent(_) | Phase::Reading(_)) => {
                if !std::mem::replace(&mut self.counted, true) {
                    self.caller.set_left(bulk);
                }
            }
            Some(Phase::Closing(_)) => return false,
        }
        self.caller.goes_on(now, timeouts.pace(stall), core.outbox.told())
    }

    /// Whether the call has left, possibly in a group that the peer refused.
    fn has_left(&self, core: &Core) -> bool {
        !matches!(self.stage, Stage::Queued) || core.in_group(self.call.xid)
    }

    /// Whether the call will leave again in plain messages, once its windows are closed.
    pub(crate) fn leaves_again(&self) -> bool {
        matches!(self.phase(), Some(Phase::Closing(Answered::Again)))
    }

    fn is_closed(&self) -> bool {
        self.flight().is_some_and(Flight::is_closed)
    }

    /// Returns the flight of a sent call.
    pub(crate) const fn flight(&self) -> Option<&Flight> {
        if let Stage::InFlight(flight) = &self.stage { Some(flight) } else { None }
    }

    pub(crate) const fn flight_mut(&mut self) -> Option<&mut Flight> {
        if let Stage::InFlight(flight) = &mut self.stage { Some(flight) } else { None }
    }

    fn phase(&self) -> Option<&Phase> {
        self.flight().map(|flight| &flight.phase)
    }

    /// Returns the holdings of a call that waits for its reply.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        if let Some(Phase::Sent(lease)) = self.phase() { Some(lease) } else { None }
    }

    fn bulk(&self) -> u64 {
        self.flight().map_or(0, |flight| flight.bulk)
    }

    /// Returns the reply for the caller.
    fn result(self, core: &Core) -> Result<IncomingReply, CallFailure> {
        match self.stage {
            Stage::InFlight(flight) => flight.into_reply(self.call.xid, core),
            Stage::Queued => Err(CallFailure::permanent(CallError::ResultLost, true)),
        }
    }

    /// Returns the caller's memory to the call, as far as it came back.
    pub(crate) fn restore_sinks(&mut self) {
        if let Stage::InFlight(flight) = &mut self.stage {
            flight.restore(&mut self.call.reply.sinks);
        }
    }
}
