//! Replies whose data is exposed to the Requester's RDMA Reads (RFC 5666 §3.8, §11).
//!
//! The data of a reply is shared, read-only memory. The provider owns it from the reservation of its window until the
//! window is invalid, after the RDMA_DONE or after a time. In the latter case the connection continues without that
//! memory. Only a Requester that still reads it loses the connection (RFC 5666 §3.8: "which amounts to the same
//! thing"). The number of exposed replies and their bytes are bounded, so a Requester that never sends RDMA_DONE delays
//! only itself. Exposed bytes count as memory of the domain, which bounds all connections together.

use std::collections::BTreeMap;
use std::time::Instant;

use rpcrdma_verbs::{Key, Reserved, WindowErrorKind, WindowMemory, Windows, WorkRequest};

use crate::core::{Core, segment};
use crate::error::ProtocolError;
use crate::event::CloseReason;
use crate::outbound::Origin;
use crate::planner::PlannedRead;
use crate::timers::{Flow, Moving, after};
use crate::wire::ReadSegment;

/// The exposed replies of a connection, by the token of their Call.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    open: BTreeMap<u64, Exposure>,
    bytes: usize,
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
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether the reply to this Call is exposed.
    pub(crate) fn has(&self, token: u64) -> bool {
        self.open.contains_key(&token)
    }

    /// Returns the exposed bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Opens the chunks of a reply; returns the Read list. A failure changes nothing, except that the reservations are
    /// released.
    pub(crate) fn expose(
        &mut self,
        core: &mut Core,
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
                    core.exposed_windows += 1;
                    windows.push(window.key);
                    list.push(ReadSegment::new(position, segment(&window)));
                }
                Err(error) => {
                    for key in windows {
                        core.invalidate(Origin::Conceal { token, key }, key);
                    }
                    return Err(error.kind);
                }
            }
        }
        for key in &windows {
            core.stats.registrations += 1;
            core.post(Origin::Expose, WorkRequest::BindWindow { key: *key });
        }
        core.ledger.expose();
        self.bytes += bytes;
        // The Requester reads data exposed earlier first.
        let exposed = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        let open = Moving::new(now, core.config.timeouts.done, Flow::Link, core.told.as_ref(), exposed);
        self.open.insert(token, Exposure { xid, bytes, windows, closing: false, open, _charged: charged });
        Ok(list)
    }

    /// Handles the RDMA_DONE for a reply; of several under this XID, the oldest.
    pub(crate) fn done(&mut self, core: &mut Core, now: Instant, xid: u32) -> Result<(), ProtocolError> {
        let found = self.open.iter_mut().find(|(_, exposure)| exposure.xid == xid && !exposure.closing);
        let Some((token, exposure)) = found else { return Err(ProtocolError::UnknownDone { xid }) };
        core.stats.dones_received += 1;
        exposure.close(core, now, *token);
        Ok(())
    }

    /// Records a window as invalid; returns whether it was the last window of its reply.
    pub(crate) fn closed(&mut self, core: &mut Core, token: u64, key: Key) -> bool {
        core.exposed_windows = core.exposed_windows.saturating_sub(1);
        core.stats.local_invalidations += 1;
        let Some(exposure) = self.open.get_mut(&token) else { return false };
        exposure.windows.retain(|open| *open != key);
        let last = exposure.windows.is_empty();
        if last {
            self.bytes -= exposure.bytes;
            self.open.remove(&token);
            core.ledger.conceal();
        }
        last
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.open.values().map(|exposure| exposure.open.deadline).min()
    }

    pub(crate) fn handle_timeout(&mut self, core: &mut Core, now: Instant) {
        let timeouts = &core.config.timeouts;
        let pace = timeouts.pace(timeouts.done);
        for (token, exposure) in self.open.iter_mut().filter(|(_, exposure)| exposure.open.deadline <= now) {
            if !exposure.closing && exposure.open.goes_on(now, pace, core.told.as_ref()) {
                continue;
            }
            if exposure.closing {
                core.fail(CloseReason::Timeout("the invalidation of a window"));
            } else {
                tracing::debug!(side = %core.side, xid = format_args!("{:#010x}", exposure.xid), "no RDMA_DONE in time");
                core.stats.exposures_expired += 1;
            }
            exposure.close(core, now, *token);
        }
    }

    /// Forgets everything: the end of the connection has closed every window.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Exposure {
    fn close(&mut self, core: &mut Core, now: Instant, token: u64) {
        if !std::mem::replace(&mut self.closing, true) {
            for key in &self.windows {
                core.invalidate(Origin::Conceal { token, key: *key }, *key);
            }
        }
        self.open.deadline = after(now, core.config.timeouts.invalidate);
    }
}
