//! The connections of a session, one after the other: attempts, pauses and ends.
//!
//! The pauses grow while connections fail or come to nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rpcrdma_verbs::Capabilities;

use super::{NoProgram, Session, SessionEvent, State};
use crate::connection::Connection;
use crate::error::{CallError, CloseReason};
use crate::settings::config::Side;
use crate::settings::timers::{Timeouts, after};

/// The record of failures and losses that lengthen the pause.
#[derive(Debug)]
pub(super) struct Backoff {
    rng: StdRng,
    /// Consecutive failures to connect.
    failures: u32,
    /// Connections lost since the last answer, or since a connection that lasted [`Timeouts::reconnect_most`]. They
    /// count like failures, against a peer that accepts connections and ends them at once.
    pub(super) losses: u32,
    /// The time when the present connection came up.
    connected: Option<Instant>,
}

impl Backoff {
    /// Returns a record without failures, and a random number from the same source.
    pub(super) fn new(entropy: u64) -> (Self, u32) {
        let mut rng = StdRng::seed_from_u64(entropy);
        let number = rng.random();
        (Self { rng, failures: 0, losses: 0, connected: None }, number)
    }

    /// Records the loss of the connection.
    pub(super) fn lost(&mut self, now: Instant, timeouts: &Timeouts) {
        let lasted = self.connected.map(|since| now.saturating_duration_since(since));
        if lasted >= Some(timeouts.reconnect_most) {
            self.losses = 0;
        }
        self.losses = self.losses.saturating_add(1);
    }

    /// Returns the time of the next attempt. The pause doubles with each failure and each loss. A random factor between
    /// a half and one keeps the clients of a restarted server from reconnecting all at once.
    pub(super) fn next_attempt(&mut self, now: Instant, timeouts: &Timeouts) -> Instant {
        let doublings = self.failures.saturating_add(self.losses).saturating_sub(1).min(16);
        let longest: Duration =
            timeouts.reconnect_least.saturating_mul(1 << doublings).min(timeouts.reconnect_most);
        after(now, longest.mul_f64(self.rng.random_range(0.5..=1.0)))
    }
}

impl Session {
    /// Requests a connection without a call.
    ///
    /// # Errors
    /// [`NoProgram`] if the highest version is Two, [`Config::program`](crate::Config::program) is not set, and no call
    /// was made before.
    pub fn connect(&mut self, now: Instant) -> Result<(), NoProgram> {
        if self.offer.program.is_none() && self.config.versions.highest().rules().two.is_some() {
            return Err(NoProgram);
        }
        self.want_connection(now);
        Ok(())
    }

    /// Hands over the queue pair of an attempt. `false`: the attempt is no longer current, and the driver drops the
    /// queue pair.
    #[must_use]
    pub fn connected(
        &mut self,
        now: Instant,
        attempt: u32,
        peer_private_data: &[u8],
        capabilities: &Capabilities,
    ) -> bool {
        if !self.is_current(attempt) {
            return false;
        }
        let config = Arc::clone(&self.config);
        let codec = self.first_codec(now);
        let mut connection =
            Connection::with_codec(Side::Client, config, codec, peer_private_data, capabilities, now);
        connection.number_tokens_from(u64::from(attempt) << u32::BITS);
        connection.keep(now, self.config.keep_connected);
        self.connection = Some(connection);
        self.backoff.failures = 0;
        self.backoff.connected = Some(now);
        self.stats.connections += 1;
        if codec.rules().two.is_some() {
            self.offer_version(now);
        } else {
            self.begin(now, self.prelude);
        }
        true
    }

    /// Starts to use the connection.
    pub(super) fn begin(&mut self, now: Instant, prelude: bool) {
        self.state = if prelude { State::Prelude } else { State::Connected };
        self.events.push_back(SessionEvent::Connected);
        if !prelude {
            self.issue_waiting(now);
        }
    }

    /// Handles a failed attempt. If `retry`, another attempt follows after a pause. Otherwise no attempt would succeed,
    /// and the waiting calls fail.
    pub fn connect_failed(&mut self, now: Instant, attempt: u32, reason: String, retry: bool) {
        if !self.is_current(attempt) {
            return;
        }
        let failures = self.backoff.failures.saturating_add(1);
        self.backoff.failures = failures;
        self.stats.connect_failures += 1;
        tracing::debug!(failures, %reason, retry, "connecting failed");
        self.events.push_back(SessionEvent::ConnectFailed { failures, reason: reason.clone() });
        let given_up = !retry || self.config.connect_attempts.is_some_and(|most| failures >= most);
        if retry && (!given_up || self.config.keep_connected) {
            self.state = State::Wanted(self.backoff.next_attempt(now, &self.config.timeouts));
        } else {
            self.backoff.failures = 0;
            self.state = State::Idle;
        }
        if given_up {
            self.fail_waiting(&CallError::Unreachable { attempts: failures, reason }, None);
        }
    }

    /// Whether this is the number of the attempt in progress.
    const fn is_current(&self, attempt: u32) -> bool {
        attempt == self.attempt && matches!(self.state, State::Connecting(_))
    }

    /// Handles the end of the connection. Another one follows if calls wait, or if the owner needs one.
    pub(super) fn connection_ended(&mut self, now: Instant, reason: &CloseReason) {
        self.connection = None;
        self.offer.call = None;
        self.heed_refusal(reason);
        let offered = match self.state {
            State::Offering(_) => true,
            State::Connected | State::Prelude => false,
            _ => return,
        };
        // version-two-01 §5.2: the first message was lost, or its refusal was. A fall-back to Version One needs no pause.
        let at = if offered && self.first_codec(now).rules().two.is_none() {
            now
        } else {
            self.backoff.lost(now, &self.config.timeouts);
            self.backoff.next_attempt(now, &self.config.timeouts)
        };
        let wanted = self.config.keep_connected || !self.calls.waiting.is_empty();
        self.state = if wanted { State::Wanted(at) } else { State::Idle };
    }
}
