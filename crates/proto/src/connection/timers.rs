//! The timer table of a connection: every deadline, and the effect of each (rule I6).
//!
//! | deadline | timeout | effect |
//! | --- | --- | --- |
//! | RDMA Reads of the peer's messages | `rdma_read`, `memory`, `done` | the connection ends |
//! | calls of ours | `call`, `offer`; then `abandoned`, `invalidate` | the call fails; then the connection ends |
//! | answers of ours | `memory`, `credits` | the connection ends |
//! | Sends and RDMA Writes of ours | `send` | the connection ends |
//! | orderly close | `close` | the connection is aborted |
//! | first message of a client | `first_message` | Calls leave in Version One by guess |
//! | no call in progress | `idle` | the connection is closed |
//!
//! A door that is open has deadlines of its own. [`Timeouts`](crate::Timeouts) describes each timeout.

use std::time::Instant;

use super::{Connection, State};
use crate::error::CloseReason;
use crate::settings::timers::{after, earliest};

impl Connection {
    /// Handles all timers that are due; harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.at_rest = false;
        if self.state == State::Closed {
            return;
        }
        let core = &mut self.core;
        if let Some(what) = core.reads.late(now, &core.outbox) {
            core.fail(CloseReason::Timeout(what));
        }
        self.requester.handle_timeout(&mut self.core, now);
        if self.core.retired.is_some() {
            self.core.handle_exposure_timeout(now);
        }
        self.responder.handle_timeout(&mut self.core, now);
        if let Some(what) = self.two.as_mut().and_then(|two| two.handle_timeout(now)) {
            self.core.fail(CloseReason::Timeout(what));
        }
        self.core.handle_sending_timeout(now);
        let timeouts = &self.core.config.timeouts;
        if let State::Closing(moving) = &mut self.state
            && moving.deadline <= now
            && !moving.goes_on(now, timeouts.pace(timeouts.close), self.core.outbox.told())
        {
            self.abort();
        }
        if self.first_message_due().is_some_and(|deadline| deadline <= now) {
            self.guess();
        }
        if self.idle_deadline().is_some_and(|deadline| deadline <= now) {
            self.close_for(now, CloseReason::Idle);
        }
    }

    /// Returns the time when [`handle_timeout`](Self::handle_timeout) is due; `None` if no timer runs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of_state = match self.state {
            State::Open => {
                earliest([self.core.outbox.timeout(), self.idle_deadline(), self.first_message_due()])
            }
            State::Closing(moving) => Some(moving.deadline),
            State::Aborting | State::Closed => None,
        };
        let of_door = if self.core.is_plain() { None } else { self.door_timeout() };
        earliest([
            of_state,
            self.core.reads.poll_timeout(),
            self.requester.poll_timeout(),
            self.responder.poll_timeout(&self.core),
            of_door,
        ])
    }

    /// Returns the time when the timer of the open door is due.
    fn door_timeout(&self) -> Option<Instant> {
        let two = self.two.as_ref().filter(|_| self.state == State::Open).and_then(|two| two.poll_timeout());
        earliest([two, self.core.retired.as_ref().and_then(|retired| retired.poll_timeout())])
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let idle = self.core.config.timeouts.idle?;
        let busy = self.in_progress() > 0 || self.core.ledger.exposes() || self.kept;
        (self.state == State::Open && !busy).then(|| after(self.last_activity, idle))
    }
}
