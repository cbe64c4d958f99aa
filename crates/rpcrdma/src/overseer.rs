//! [`Oversees`]: the overseer of all calls that one side's programs carry out. It sheds calls beyond the limits. It logs
//! these, slow calls, results that break the limits of their type, and panics of handlers: at most one line a second of each
//! kind. A call is slow if its handler had it for longer than a threshold.
//!
//! *Errors.* Nothing here fails.

use std::fmt::{self, Display};
use std::time::Duration;

use rpcrdma_oncrpc::{Overseer, ServedCall};
use rpcrdma_xdr::EncodeError;
use tokio::time::Instant;

use crate::clients::{NotLogged, Peer};
use crate::shed::{ShedLimits, ShedStats, Shedder};
use crate::spaced::Spaced;

/// Target of the lines about slow calls.
const SLOW: &str = "rpcrdma::slow";

/// The overseer of a server's calls, or a client's.
#[derive(Debug)]
pub(crate) struct Oversees {
    shedder: Option<Shedder>,
    shed: Spaced,
    broken: Spaced,
    panics: Spaced,
    slow: Spaced,
    /// Time of a call from which on it is slow.
    threshold: Option<Duration>,
}

impl Oversees {
    pub(crate) fn new(limits: Option<ShedLimits>, threshold: Option<Duration>) -> Self {
        let shedder = limits.map(Shedder::new);
        let [shed, broken, panics, slow] = [(); 4].map(|()| Spaced::default());
        Self { shedder, shed, broken, panics, slow, threshold }
    }

    /// Logs a call that ends now, if it was slow.
    fn tell_slow(&self, call: &ServedCall) {
        // Without a reader of the line, a call costs no look at the clock.
        let Some(threshold) = self.threshold else { return };
        if !tracing::enabled!(target: SLOW, tracing::Level::WARN) {
            return;
        }
        let took = Instant::now().into_std().saturating_duration_since(call.since);
        if took < threshold {
            return;
        }
        let Some(not_logged) = self.slow.due() else { return };
        let ServedCall { peer, xid, program, version, procedure, name, .. } = *call;
        let not_logged = Some(not_logged).filter(|count| *count > 0);
        let (user, lasted) = (&call.user, took.as_secs_f64());
        let seconds = (lasted * 1e6).round() / 1e6;
        tracing::warn!(
            target: SLOW,
            peer = peer.map(tracing::field::display), %user, xid, program, version, procedure, name, seconds, not_logged,
            "slow call {} from {} by user {user}, xid {xid:#010x}: {lasted:.3} s{}",
            Procedure(call), Peer(peer), NotLogged(not_logged)
        );
    }

    pub(crate) fn stats(&self) -> ShedStats {
        self.shedder.as_ref().map(Shedder::stats).unwrap_or_default()
    }
}

impl Overseer for Oversees {
    fn begin(&self, call: &ServedCall) -> bool {
        let Some(shedder) = &self.shedder else { return true };
        let Err(full) = shedder.begin(call.peer) else { return true };
        warn(&self.shed, call, &full, "call shed");
        false
    }

    fn end(&self, call: &ServedCall) {
        self.tell_slow(call);
        if let Some(shedder) = &self.shedder {
            shedder.end(call.peer);
        }
    }

    fn broken(&self, call: &ServedCall, error: &EncodeError) {
        warn(&self.broken, call, error, "a service broke the type of its results: the call gets SYSTEM_ERR");
    }

    fn panicked(&self, call: &ServedCall, message: &str) {
        warn(&self.panics, call, &message, "a handler panicked: its call gets SYSTEM_ERR");
    }
}

/// The procedure of a call: its name, or numbers.
struct Procedure<'a>(&'a ServedCall);

impl Display for Procedure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServedCall { program, version, procedure, name, .. } = *self.0;
        match name {
            "" => write!(f, "{program}.{version}.{procedure}"),
            name => f.write_str(name),
        }
    }
}

/// Logs what happened to a call, unless a line of its kind was logged within the last second.
fn warn(kind: &Spaced, call: &ServedCall, reason: &dyn Display, event: &str) {
    if let Some(not_logged) = kind.due() {
        let ServedCall { peer, xid, program, version, procedure, name, .. } = *call;
        let peer = peer.map(tracing::field::display);
        tracing::warn!(peer, xid, program, version, procedure, name, %reason, not_logged, "{event}");
    }
}
