//! [`Oversees`]: the overseer of all calls that one side's programs carry out. It sheds calls beyond the limits. It logs
//! these, results that break the limits of their type, and panics of handlers: at most one line a second of each kind.
//!
//! *Errors.* Nothing here fails.

use std::fmt::Display;

use rpcrdma_oncrpc::{Overseer, ServedCall};
use rpcrdma_xdr::EncodeError;

use crate::shed::{ShedLimits, ShedStats, Shedder};
use crate::spaced::Spaced;

/// The overseer of a server's calls, or a client's.
#[derive(Debug)]
pub(crate) struct Oversees {
    shedder: Option<Shedder>,
    shed: Spaced,
    broken: Spaced,
    panics: Spaced,
}

impl Oversees {
    pub(crate) fn new(limits: Option<ShedLimits>) -> Self {
        let shedder = limits.map(Shedder::new);
        Self { shedder, shed: Spaced::default(), broken: Spaced::default(), panics: Spaced::default() }
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

/// Logs what happened to a call, unless a line of its kind was logged within the last second.
fn warn(kind: &Spaced, call: &ServedCall, reason: &dyn Display, event: &str) {
    if let Some(not_logged) = kind.due() {
        let ServedCall { peer, xid, program, version, procedure, name, .. } = *call;
        let peer = peer.map(tracing::field::display);
        tracing::warn!(peer, xid, program, version, procedure, name, %reason, not_logged, "{event}");
    }
}
