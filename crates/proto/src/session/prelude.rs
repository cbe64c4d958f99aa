//! The prelude of a connection: calls of the owner that belong to this connection alone, before all other calls (RFC
//! 5666 §6.1).

use std::time::Instant;

use super::{Session, State};
use crate::call::{Call, CallId, Refused, RefusedKind};
use crate::error::CloseReason;
use crate::settings::agreement::{Agreement, BelowBasic};

impl Session {
    /// Whether the prelude of the connection is in progress.
    #[must_use]
    pub fn is_prelude(&self) -> bool {
        self.state == State::Prelude
    }

    /// Makes a call that belongs to the present connection: it precedes all waiting calls, and ends with the
    /// connection.
    ///
    /// # Errors
    /// [`Refused`], which returns the call; [`RefusedKind::Closed`] outside a prelude.
    pub fn prelude_call(&mut self, now: Instant, call: Call) -> Result<CallId, Refused> {
        let (id, call) = self.accept(now, call, self.is_prelude())?;
        match self.give(now, id, call) {
            None => Ok(id),
            Some(call) => {
                self.calls.open.remove(&id.xid());
                Err(Refused { kind: RefusedKind::Closed, call: Box::new(call) })
            }
        }
    }

    /// Applies [`Connection::agree`](crate::Connection::agree) to the present connection.
    ///
    /// # Errors
    /// [`BelowBasic`]: see there.
    pub fn agree(&mut self, agreement: Agreement) -> Result<(), BelowBasic> {
        self.connection.as_mut().map_or(Ok(()), |connection| connection.agree(agreement))
    }

    /// Ends the prelude and sends the waiting calls.
    pub fn prelude_done(&mut self, now: Instant) {
        if self.is_prelude() {
            self.state = State::Connected;
            self.issue_waiting(now);
        }
    }

    /// Ends a connection whose prelude has failed. Another connection follows after a pause, which grows with each
    /// failure.
    pub fn prelude_failed(&mut self, reason: String) {
        if self.is_prelude() {
            self.on_connection(|connection| connection.fail(CloseReason::Refused(reason)));
        }
    }
}
