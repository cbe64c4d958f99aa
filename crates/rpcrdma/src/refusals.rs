//! [`Refusals`]: the log of refused connections.
//!
//! A refused peer may try again at once, thousands of times a second. So the first refusal is logged as it is. Those of
//! the next [`EVERY`] are counted, and one line gives their number. All listeners of a server share the count.
//!
//! *Errors.* Nothing here fails. A count that is not logged when the server stops is lost; the total is in
//! [`ServerStats::refused`](crate::ServerStats::refused).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, sleep_until};

use crate::admission::Refused;
use crate::spaced::EVERY;

/// Refused connections, for the log.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    state: Mutex<State>,
}

/// Connections refused since the start, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RefusedConnections {
    /// The server had as many connections as it allows.
    pub connections: u64,
    /// The address had as many connections as the server allows to one address, or its fair part.
    pub per_address: u64,
    /// As many connections were being set up as the server allows.
    pub half_open: u64,
    /// The address had as many connections being set up as it may.
    pub half_open_per_address: u64,
    /// The connection came from this machine, and its owner was unknown.
    pub no_owner: u64,
}

impl RefusedConnections {
    /// Returns the number for all reasons.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let Self { connections, per_address, half_open, half_open_per_address, no_owner } = *self;
        connections + per_address + half_open + half_open_per_address + no_owner
    }

    fn count(&mut self, refused: &Refused) {
        let reason = match refused {
            Refused::Connections { .. } => &mut self.connections,
            Refused::PerPeer { .. } | Refused::Unfair { .. } => &mut self.per_address,
            Refused::HalfOpen { .. } => &mut self.half_open,
            Refused::HalfOpenPeer { .. } | Refused::HalfOpenUnfair { .. } => &mut self.half_open_per_address,
            Refused::NoOwner(_) => &mut self.no_owner,
        };
        *reason += 1;
    }
}

#[derive(Debug, Default)]
struct State {
    total: RefusedConnections,
    /// Refusals since the last line.
    unsaid: u64,
    last: Option<Refusal>,
    /// Time of the next line at the earliest; `None`: at once.
    quiet_until: Option<Instant>,
}

/// A refused peer, and the reason.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    peer: Option<SocketAddr>,
    refused: Refused,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{peer}: {}", self.refused),
            None => self.refused.fmt(f),
        }
    }
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values stay consistent when a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the numbers of connections refused so far.
    pub(crate) fn total(&self) -> RefusedConnections {
        self.lock().total
    }

    /// Logs a refused connection, or counts it.
    pub(crate) fn refuse(&self, peer: Option<SocketAddr>, refused: Refused) {
        let now = Instant::now();
        let refusal = Refusal { peer, refused };
        let mut state = self.lock();
        state.total.count(&refused);
        if state.unsaid > 0 || state.quiet_until.is_some_and(|until| now < until) {
            state.unsaid += 1;
            state.last = Some(refusal);
            return;
        }
        state.quiet_until = Some(now + EVERY);
        drop(state);
        tracing::warn!("connection refused: {refusal}");
    }

    /// Waits until a count is due, and logs it. Cancel safe; never ready if nothing was counted.
    pub(crate) async fn tell(&self) {
        let due = {
            let state = self.lock();
            if state.unsaid > 0 { state.quiet_until } else { None }
        };
        let Some(due) = due else { return std::future::pending().await };
        sleep_until(due).await;
        let mut state = self.lock();
        // Another listener may have logged it.
        if state.unsaid == 0 || state.quiet_until != Some(due) {
            return;
        }
        let (count, last) = (std::mem::take(&mut state.unsaid), state.last.take());
        state.quiet_until = Some(due + EVERY);
        drop(state);
        if let Some(last) = last {
            tracing::warn!(count, "further connections refused, the last one: {last}");
        }
    }
}
