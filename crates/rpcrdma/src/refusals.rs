//! [`Refusals`]: what is said about connections that were refused.
//!
//! Whoever is refused may try again at once, thousands of times a second. So the first refusal is told as it is; those of the
//! next [`EVERY`] are counted, and one line says how many they were. All listeners of a server share the count.
//!
//! *What happens on error.* Nothing here fails. What was counted when the server stops is said by nobody; the total is in
//! [`ServerStats::refused`](crate::ServerStats::refused).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::admission::Refused;

/// Time between two lines, at least.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Connections that were refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: u64,
    /// Since the last line.
    unsaid: u64,
    last: Option<Refusal>,
    /// When the next line may come; `None`: at once.
    quiet_until: Option<Instant>,
}

/// Who was refused, and why.
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
        // Plain values are consistent whatever unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections refused so far.
    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    /// A connection was refused: told now, or counted.
    pub(crate) fn refuse(&self, peer: Option<SocketAddr>, refused: Refused) {
        let now = Instant::now();
        let refusal = Refusal { peer, refused };
        let mut state = self.lock();
        state.total += 1;
        if state.unsaid > 0 || state.quiet_until.is_some_and(|until| now < until) {
            state.unsaid += 1;
            state.last = Some(refusal);
            return;
        }
        state.quiet_until = Some(now + EVERY);
        drop(state);
        tracing::warn!("connection refused: {refusal}");
    }

    /// Waits until there is a count to tell, and tells it. Cancel safe; for ever if nothing was counted.
    pub(crate) async fn tell(&self) {
        let due = {
            let state = self.lock();
            if state.unsaid > 0 { state.quiet_until } else { None }
        };
        let Some(due) = due else { return std::future::pending().await };
        sleep_until(due).await;
        let mut state = self.lock();
        // Another listener may have told it.
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
