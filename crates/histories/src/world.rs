//! The treatment of time in all histories. Every action that is possible at once comes first, then the next event of
//! the fabric or the next timer.

use std::time::{Duration, Instant};

use rpcrdma_sim::Fabric;

use crate::settings::MOST_ROUNDS;

/// Endpoints on a fabric.
pub(crate) trait World {
    fn fabric(&self) -> &Fabric;

    /// Performs once the actions that are possible without time passing. Returns whether there were any.
    fn round(&mut self) -> bool;

    /// Checks properties that hold whenever no action is possible without time passing.
    fn check(&self);

    /// Returns the earliest timer of an endpoint.
    fn next_timeout(&self) -> Option<Instant>;

    fn handle_timeout(&mut self, now: Instant);

    fn now(&self) -> Instant {
        self.fabric().instant()
    }

    /// Performs all actions that are possible without time passing.
    fn pump(&mut self) {
        for _ in 0..MOST_ROUNDS {
            if !self.round() {
                return self.check();
            }
        }
        panic!("the endpoints do not come to rest");
    }

    /// Processes some events of the fabric, with their consequences; timers fire when they are due.
    fn advance(&mut self, events: usize) {
        for _ in 0..events {
            self.pump();
            let Some(next) = self.fabric().next_event() else { return };
            self.tick(self.fabric().instant_at(next));
        }
    }

    /// Runs for this time.
    fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        for _ in 0..MOST_ROUNDS {
            self.pump();
            self.tick(end);
            if self.now() >= end {
                return self.pump();
            }
        }
        panic!("{time:?} do not pass: a timer is due for ever");
    }

    /// Moves the clock to the next event or timer, but not beyond `end`.
    fn tick(&mut self, end: Instant) {
        let event = self.fabric().next_event().map(|at| self.fabric().instant_at(at));
        let next = self.next_timeout().into_iter().chain(event).min().unwrap_or(end).min(end);
        self.fabric().advance(next.saturating_duration_since(self.now()));
        self.handle_timeout(self.now());
    }
}
