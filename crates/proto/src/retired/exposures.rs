//! Replies whose data is exposed to the Requester's RDMA Reads (RFC 5666 §3.8, §11).
//!
//! The data of a reply is shared, read-only memory. The provider owns it from the reservation of its window until the
//! window is invalid, after the RDMA_DONE or after a time. In the latter case the connection continues without that
//! memory. Only a Requester that still reads it loses the connection (RFC 5666 §3.8: "which amounts to the same
//! thing"). The number of exposed replies and their bytes are bounded, so a Requester that never sends RDMA_DONE delays
//! only itself. Exposed bytes count as memory of the domain, which bounds all connections together.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use rpcrdma_verbs::{Key, Reserved, WindowErrorKind, WindowMemory, Windows, WorkRequest};

use crate::core::Core;
use crate::error::CloseReason;
use crate::outbound::Origin;
use crate::planner::PlannedRead;
use crate::settings::timers::{Flow, Moving, after};
use crate::wire::{ProtocolError, ReadSegment, Segment, wide};

/// The exposed replies of a connection, and the answers that wait until they are done.
#[derive(Debug, Default)]
pub(super) struct Exposures {
    /// By the token of the Call.
    open: BTreeMap<u64, Exposure>,
    bytes: usize,
    /// Calls whose answer waits until less memory is exposed, or our own calls hold fewer windows.
    pub(super) withheld: VecDeque<u64>,
    /// Deadlines of withheld answers, by the token of their Call.
    pub(super) deadlines: BTreeMap<u64, Instant>,
}

#[derive(Debug)]
struct Exposure {
    xid: u32,
    bytes: usize,
    /// Windows that are not invalid yet.
    windows: Vec<Key>,
    /// Whether the windows are being closed.
    closing: bool,
    /// The time until the windows are closed, which progress of reads extends; then the time for their closing.
    open: Moving,
    /// The reservation in the domain for the exposed bytes.
    _charged: Reserved,
}

impl Exposures {
    /// Returns the number of exposed replies.
    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Returns the exposed bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.open.values().map(|exposure| exposure.open.deadline).min()
    }

    /// Returns the first deadline of a withheld answer.
    pub(super) fn withheld_until(&self) -> Option<Instant> {
        self.deadlines.values().min().copied()
    }
}

impl Core {
    pub(super) fn exposures(&self) -> Option<&Exposures> {
        self.retired.as_ref().map(|retired| &retired.exposures)
    }

    pub(super) fn exposures_mut(&mut self) -> Option<&mut Exposures> {
        self.retired.as_mut().map(|retired| &mut retired.exposures)
    }

    /// Whether the answer to this Call is exposed to the peer's RDMA Reads.
    pub(crate) fn has_exposed(&self, token: u64) -> bool {
        self.exposures().is_some_and(|exposures| exposures.open.contains_key(&token))
    }

    /// Opens the chunks of a reply; returns the Read list. A failure changes nothing, except that the reservations are
    /// released.
    pub(super) fn expose(
        &mut self,
        now: Instant,
        (token, xid): (u64, u32),
        (read, charged): (&[PlannedRead], Reserved),
        qp: &mut dyn Windows,
    ) -> Result<Vec<ReadSegment>, WindowErrorKind> {
        let mut list = Vec::new();
        let mut windows = Vec::new();
        let mut bytes = 0;
        for (position, data) in
            read.iter().flat_map(|chunk| chunk.segments.iter().map(|data| (chunk.position, data)))
        {
            match qp.reserve_window(WindowMemory::Read(data.clone())) {
                Ok(window) => {
                    bytes += data.len();
                    self.windows += 1;
                    windows.push(window.key);
                    list.push(ReadSegment::new(position, Segment::from(&window)));
                }
                Err(error) => {
                    for key in windows {
                        self.invalidate(Origin::Release, key);
                    }
                    return Err(error.kind);
                }
            }
        }
        for key in &windows {
            self.stats.registrations += 1;
            self.post(Origin::Expose, WorkRequest::BindWindow { key: *key });
        }
        self.ledger.expose();
        let (stall, told) = (self.config.timeouts.done, self.outbox.told().copied());
        if let Some(exposures) = self.exposures_mut() {
            exposures.bytes += bytes;
            // The Requester reads data exposed earlier first.
            let exposed = wide(exposures.bytes);
            let open = Moving::new(now, stall, Flow::Link, told.as_ref(), exposed);
            let exposure = Exposure { xid, bytes, windows, closing: false, open, _charged: charged };
            exposures.open.insert(token, exposure);
        }
        Ok(list)
    }

    /// Handles an RDMA_DONE (RFC 5666 §3.8); of several replies under this XID it means the oldest.
    ///
    /// # Errors
    /// [`ProtocolError::UnexpectedDone`] without the Read-Read model, [`ProtocolError::UnknownDone`].
    pub(crate) fn handle_done(&mut self, now: Instant, xid: u32) -> Result<(), ProtocolError> {
        if !self.config.has_read_read() {
            return Err(ProtocolError::UnexpectedDone);
        }
        let mut open = self.exposures().into_iter().flat_map(|exposures| &exposures.open);
        let found = open.find(|(_, exposure)| exposure.xid == xid && !exposure.closing);
        let Some((&token, _)) = found else { return Err(ProtocolError::UnknownDone { xid }) };
        self.stats.dones_received += 1;
        self.conceal(now, token);
        Ok(())
    }

    /// Closes the windows of an exposed reply.
    fn conceal(&mut self, now: Instant, token: u64) {
        let deadline = after(now, self.config.timeouts.invalidate);
        let exposure = self.exposures_mut().and_then(|exposures| exposures.open.get_mut(&token));
        let Some(exposure) = exposure else { return };
        exposure.open.deadline = deadline;
        if !std::mem::replace(&mut exposure.closing, true) {
            for key in exposure.windows.clone() {
                self.invalidate(Origin::Conceal { token, key }, key);
            }
        }
    }

    /// Records a window of an exposed reply as invalid.
    pub(crate) fn concealed(&mut self, token: u64, key: Key) {
        self.windows = self.windows.saturating_sub(1);
        self.stats.local_invalidations += 1;
        let Some(exposures) = self.exposures_mut() else { return };
        let Some(exposure) = exposures.open.get_mut(&token) else { return };
        exposure.windows.retain(|open| *open != key);
        if exposure.windows.is_empty() {
            exposures.bytes -= exposure.bytes;
            exposures.open.remove(&token);
            self.ledger.conceal();
        }
    }

    /// Returns the withheld answers, since a window is free: the last first.
    pub(crate) fn take_withheld(&mut self) -> impl Iterator<Item = u64> + use<> {
        let withheld = self.exposures_mut().map(|exposures| std::mem::take(&mut exposures.withheld));
        withheld.unwrap_or_default().into_iter().rev()
    }

    /// Closes the windows of replies without an RDMA_DONE in time, and ends waits for windows.
    pub(crate) fn handle_exposure_timeout(&mut self, now: Instant) {
        let timeouts = &self.config.timeouts;
        let (pace, told) = (timeouts.pace(timeouts.done), self.outbox.told().copied());
        let mut due = Vec::new();
        let mut waited = false;
        if let Some(exposures) = self.exposures_mut() {
            let late = exposures.open.iter_mut().filter(|(_, exposure)| exposure.open.deadline <= now);
            for (token, exposure) in late {
                if exposure.closing || !exposure.open.goes_on(now, pace, told.as_ref()) {
                    due.push((*token, exposure.xid, exposure.closing));
                }
            }
            let answers = exposures.deadlines.len();
            exposures.deadlines.retain(|_, deadline| *deadline > now);
            waited = exposures.deadlines.len() < answers;
        }
        for (token, xid, closing) in due {
            if closing {
                self.fail(CloseReason::Timeout("the invalidation of a window"));
            } else {
                tracing::debug!(side = %self.side(), xid = format_args!("{xid:#010x}"), "no RDMA_DONE in time");
                self.stats.exposures_expired += 1;
            }
            self.conceal(now, token);
        }
        if waited {
            self.fail(CloseReason::Timeout("windows for an answer"));
        }
    }
}
