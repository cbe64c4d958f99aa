//! The transmission of replies that the client reads (RFC 5666 §3.8), within the limits of the settings.

use std::time::Instant;

use rpcrdma_verbs::{PoolExhausted, WindowErrorKind, Windows};

use crate::core::Core;
use crate::flow::{Offer, Wait};
use crate::planner::ReplyPlan;
use crate::responder::Responder;
use crate::settings::timers::after;
use crate::wire::{ProtocolError, ReadSegment, sized, wide};

impl Responder {
    /// Sends the next answer once its exposed data is open; `false` if nothing can be done now.
    pub(crate) fn transmit_exposed(
        &mut self,
        core: &mut Core,
        now: Instant,
        (token, mut plan): (u64, ReplyPlan),
        offer: Offer,
        qp: &mut dyn Windows,
    ) -> bool {
        match self.expose(core, now, (token, offer.credit()), &plan, qp) {
            Ok(read) => {
                plan.lists.read = read;
                self.send_next(core, Ok(plan), offer);
            }
            Err(Room::Later) => {
                self.withhold(core, now);
                return true;
            }
            Err(Room::Memory(room)) => {
                self.wait_for_answer(core, now, Wait::Receives(room));
                return false;
            }
            Err(Room::Never) => {
                let (len, grant) = (wide(plan.exposed()), offer.credit());
                self.send_next(core, Err(ProtocolError::ReplyNotExposed { len, grant }), offer);
            }
            Err(Room::Ended) => return false,
        }
        if let Some(exposures) = core.exposures_mut() {
            exposures.deadlines.remove(&token);
        }
        true
    }

    /// Opens the exposed data of the answer to this Call, within the limits. The bytes count as memory of the domain,
    /// which bounds all connections together (RFC 5666 §11: "originating from one or many clients").
    fn expose(
        &self,
        core: &mut Core,
        now: Instant,
        (token, grant): (u64, u32),
        plan: &ReplyPlan,
        qp: &mut dyn Windows,
    ) -> Result<Vec<ReadSegment>, Room> {
        let (replies, exposed) = core.exposures().map_or((0, 0), |open| (open.count(), open.bytes()));
        let others = replies > 0;
        let room = |room| if others { Room::Later } else { Room::Memory(room) };
        let (bytes, windows) =
            (plan.exposed(), plan.read.iter().map(|chunk| chunk.segments.len()).sum::<usize>());
        let most = qp.capabilities().max_windows;
        let Some(limits) = core.exposes_replies() else { return Err(Room::Never) };
        let (most_replies, most_bytes) = (limits.exposed_replies, limits.exposed_bytes);
        if bytes > most_bytes || most_replies == 0 || windows > most || core.ledger.served.wanted() < 2 {
            return Err(Room::Never);
        }
        // Windows that a failed try gave back would cause the next try at once.
        let lacking = core.windows + windows > most;
        let full = replies >= most_replies || exposed.saturating_add(bytes) > most_bytes || lacking;
        // RFC 5666 §11: RDMA_DONEs that are due must not use the last credit.
        let starving = sized(grant) < replies + 2;
        if full {
            return Err(Room::Later);
        }
        if starving {
            return Err(room(core.ledger.receives.room_for_one()));
        }
        let Some(call) = self.calls.get(&token) else { return Err(Room::Never) };
        let charged = qp.domain().reserve(bytes).map_err(|error| match error {
            PoolExhausted::InUse { requested, .. } | PoolExhausted::Unfair { requested, .. } => {
                room(requested)
            }
            _ => Room::Never,
        })?;
        let call = (token, call.call.xid);
        core.expose(now, call, (&plan.read, charged), qp).map_err(|kind| match kind {
            WindowErrorKind::Disconnected => Room::Ended,
            _ => Room::Never,
        })
    }

    /// Withholds the next answer until a window is closed. If no reply is exposed, calls of ours hold the windows, and
    /// the wait ends with the timer for memory.
    fn withhold(&mut self, core: &mut Core, now: Instant) {
        let Some(token) = self.withdraw_next() else { return };
        let deadline = after(now, core.config.timeouts.memory);
        if let Some(exposures) = core.exposures_mut() {
            if exposures.count() == 0 {
                exposures.deadlines.entry(token).or_insert(deadline);
            }
            exposures.withheld.push_back(token);
        }
    }
}

/// Reasons why nothing can be exposed for a reply.
enum Room {
    /// Other exposed replies must be done first.
    Later,
    /// The domain lacks this much memory, bytes, which others than this direction of the connection hold.
    Memory(usize),
    /// The data exceeds the limits for ever.
    Never,
    /// The connection has ended.
    Ended,
}
