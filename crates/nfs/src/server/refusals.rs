//! Log lines about refused callers.
//!
//! A refused caller may call again at once, thousands of times a second. So the log has one refusal of each
//! kind in a second, with the number of those not logged.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Least time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(1);

/// Kinds of refusals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// A MOUNT.
    Mount,
    /// A caller that an export does not admit.
    Caller,
    /// A handle that this server did not make.
    Handle,
    /// A principal without a user.
    Principal,
}

/// Refusals of one kind.
#[derive(Debug, Default)]
struct Told {
    /// Earliest time of the next line; `None`: now.
    quiet_until: Option<Instant>,
    /// Refusals since the last line.
    untold: u64,
}

/// Counters of refusals, by kind.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    mounts: Mutex<Told>,
    callers: Mutex<Told>,
    handles: Mutex<Told>,
    principals: Mutex<Told>,
}

impl Refusals {
    /// Logs a refusal, or counts it.
    pub(crate) fn refuse(&self, refusal: Refusal, peer: Option<SocketAddr>, why: fmt::Arguments<'_>) {
        let (kind, name) = match refusal {
            Refusal::Mount => (&self.mounts, "mount"),
            Refusal::Caller => (&self.callers, "caller"),
            Refusal::Handle => (&self.handles, "file handle"),
            Refusal::Principal => (&self.principals, "principal"),
        };
        let now = Instant::now();
        let mut told = kind.lock().unwrap_or_else(PoisonError::into_inner);
        if told.quiet_until.is_some_and(|until| now < until) {
            told.untold += 1;
            return;
        }
        told.quiet_until = Some(now + EVERY);
        let untold = std::mem::take(&mut told.untold);
        drop(told);
        match peer {
            Some(peer) => tracing::warn!(%peer, not_logged = untold, "{name} refused: {why}"),
            None => tracing::warn!(not_logged = untold, "{name} refused: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn i6_a_flood_of_refusals_is_one_line_a_second_of_each_kind() {
        let refusals = Refusals::default();
        let untold = |kind: &Mutex<Told>| kind.lock().unwrap().untold;
        for _ in 0..1000 {
            refusals.refuse(Refusal::Mount, None, format_args!("no such export"));
        }
        refusals.refuse(Refusal::Handle, None, format_args!("not ours"));
        assert_eq!((untold(&refusals.mounts), untold(&refusals.handles)), (999, 0));
        tokio::time::advance(EVERY).await;
        refusals.refuse(Refusal::Mount, None, format_args!("no such export"));
        assert_eq!(untold(&refusals.mounts), 0, "told with the next line");
    }
}
