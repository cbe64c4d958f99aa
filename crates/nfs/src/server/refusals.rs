//! Log lines about refused callers: levels WARN, targets `rpcrdma::mounts` for mounts and `rpcrdma::callers` for others.
//!
//! A refused caller may call again at once, thousands of times a second. So the first refusal of each kind is logged as it
//! is. Those of the next [`EVERY`] are counted, and one line gives their number.
//!
//! *Errors.* Nothing here fails. Outside of a runtime the count waits for the next refusal of its kind.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpcrdma_oncrpc::Shown;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// Least time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(1);

/// Kinds of refusals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal<'a> {
    /// A MOUNT of this path.
    Mount(Shown<'a>),
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
    /// Address of the last of these.
    last: Option<SocketAddr>,
    /// Whether a task waits to tell their number.
    waits: bool,
}

/// Refusals of one kind, with its name.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    told: Mutex<Told>,
}

/// Counters of refusals, by kind.
#[derive(Debug)]
pub(crate) struct Refusals {
    mounts: Arc<Kind>,
    callers: Arc<Kind>,
    handles: Arc<Kind>,
    principals: Arc<Kind>,
}

impl Default for Refusals {
    fn default() -> Self {
        let kind = |name| Arc::new(Kind { name, told: Mutex::default() });
        let (mounts, callers) = (kind("mount"), kind("caller"));
        Self { mounts, callers, handles: kind("file handle"), principals: kind("principal") }
    }
}

impl Refusals {
    /// Logs a refusal, or counts it.
    pub(crate) fn refuse(&self, refusal: Refusal<'_>, peer: Option<SocketAddr>, why: &dyn fmt::Display) {
        let kind = match refusal {
            Refusal::Mount(_) => &self.mounts,
            Refusal::Caller => &self.callers,
            Refusal::Handle => &self.handles,
            Refusal::Principal => &self.principals,
        };
        let Some(not_logged) = kind.due(peer) else {
            kind.tell_later();
            return;
        };
        let not_logged = Some(not_logged).filter(|count| *count > 0);
        let (name, from) = (kind.name, From(peer));
        let peer = peer.map(tracing::field::display);
        match refusal {
            Refusal::Mount(path) => tracing::warn!(
                target: "rpcrdma::mounts", peer, %path, reason = %why, not_logged,
                "refused mount from {from} of \"{path}\": {why}"
            ),
            _ => tracing::warn!(
                target: "rpcrdma::callers", peer, kind = name, reason = %why, not_logged,
                "refused {name} from {from}: {why}"
            ),
        }
    }
}

impl Kind {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of refusals not told before this one; `None` if this one is counted only.
    fn due(&self, peer: Option<SocketAddr>) -> Option<u64> {
        let now = Instant::now();
        let mut told = self.lock();
        if told.quiet_until.is_some_and(|until| now < until) {
            told.untold += 1;
            told.last = peer;
            return None;
        }
        told.quiet_until = Some(now + EVERY);
        Some(std::mem::take(&mut told.untold))
    }

    /// Lets a task tell the number of refusals when a line is due.
    fn tell_later(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if std::mem::replace(&mut self.lock().waits, true) {
            return;
        }
        let kind = Arc::clone(self);
        runtime.spawn(async move {
            let due = kind.lock().quiet_until;
            if let Some(due) = due {
                sleep_until(due).await;
            }
            kind.tell();
        });
    }

    /// Logs the number of refusals since the last line.
    fn tell(&self) {
        let mut told = self.lock();
        told.waits = false;
        let (count, last) = (std::mem::take(&mut told.untold), told.last);
        if count == 0 {
            // The next refusal came first, and told it.
            return;
        }
        told.quiet_until = Some(Instant::now() + EVERY);
        drop(told);
        let (name, from) = (self.name, From(last));
        let peer = last.map(tracing::field::display);
        let what = if count == 1 { name.to_owned() } else { format!("{name}s") };
        if name == "mount" {
            tracing::warn!(target: "rpcrdma::mounts", peer, count, "refused {count} more {what}, the last one from {from}");
        } else {
            tracing::warn!(
                target: "rpcrdma::callers", peer, kind = name, count,
                "refused {count} more {what}, the last one from {from}"
            );
        }
    }
}

/// An address, if the transport has one.
struct From(Option<SocketAddr>);

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => peer.fmt(f),
            None => f.write_str("an unknown address"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn untold(kind: &Kind) -> u64 {
        kind.lock().untold
    }

    #[tokio::test(start_paused = true)]
    async fn i6_a_flood_of_refusals_is_one_line_a_second_of_each_kind() {
        let refusals = Refusals::default();
        for _ in 0..1000 {
            refusals.refuse(Refusal::Mount(Shown(b"/")), None, &"no such export");
        }
        refusals.refuse(Refusal::Handle, None, &"not ours");
        assert_eq!((untold(&refusals.mounts), untold(&refusals.handles)), (999, 0));
        tokio::time::sleep(EVERY / 2).await;
        assert_eq!(untold(&refusals.mounts), 999);
        tokio::time::sleep(EVERY).await;
        assert_eq!(untold(&refusals.mounts), 0, "told without a further refusal");
        refusals.refuse(Refusal::Mount(Shown(b"/")), None, &"no such export");
        assert_eq!(untold(&refusals.mounts), 1, "the sum was a line, too");
    }

    #[test]
    fn without_a_runtime_the_next_refusal_tells() {
        let refusals = Refusals::default();
        for _ in 0..3 {
            refusals.refuse(Refusal::Handle, None, &"not ours");
        }
        assert_eq!(untold(&refusals.handles), 2);
    }
}
