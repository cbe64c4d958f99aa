//! Replies whose data is exposed to the Requester's RDMA Reads (RFC 5666 §3.8, §11).
//!
//! The data of a reply is shared, read-only memory; the provider owns it from the moment its window is reserved until the window
//! is invalid. That is after the RDMA_DONE, or after a time: the connection then goes on without that memory, and only a Requester
//! that reads it all the same loses the connection (RFC 5666 §3.8: "which amounts to the same thing"). How many replies
//! and bytes are exposed at a time is bounded, so that a Requester that never says RDMA_DONE waits for itself; and they count as
//! memory of the domain, so that all connections together are bounded too.

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

/// All replies that are exposed on a connection, by the token of their Call.
#[derive(Debug, Default)]
pub(crate) struct Exposures {
    open: BTreeMap<u64, Exposure>,
    bytes: usize,
}

#[derive(Debug)]
struct Exposure {
    xid: u32,
    bytes: usize,
    /// Those that are not invalid yet.
    windows: Vec<Key>,
    /// Whether they are being closed.
    closing: bool,
    /// How long it stays open, longer while it is read; then how long its windows may take to close.
    open: Moving,
    /// Room of the domain that it counts as.
    _charged: Reserved,
}

impl Exposures {
    /// Replies that hold memory open.
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether this one does.
    pub(crate) fn has(&self, token: u64) -> bool {
        self.open.contains_key(&token)
    }

    /// Bytes of those.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Opens the chunks of a reply; says what the Read list is. On failure everything is as before, but for the reservations
    /// being given up.
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
        // What is exposed already is read first.
        let exposed = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        let open = Moving::new(now, core.config.timeouts.done, Flow::Link, core.told.as_ref(), exposed);
        self.open.insert(token, Exposure { xid, bytes, windows, closing: false, open, _charged: charged });
        Ok(list)
    }

    /// The Requester has what it wanted of the reply, the oldest one if there are several.
    pub(crate) fn done(&mut self, core: &mut Core, now: Instant, xid: u32) -> Result<(), ProtocolError> {
        let found = self.open.iter_mut().find(|(_, exposure)| exposure.xid == xid && !exposure.closing);
        let Some((token, exposure)) = found else { return Err(ProtocolError::UnknownDone { xid }) };
        core.stats.dones_received += 1;
        exposure.close(core, now, *token);
        Ok(())
    }

    /// A window is invalid; says whether it was the last one of its reply.
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

    /// The connection is over, and with it every window.
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
