//! Limits on the calls that the programs of a server carry out at a time: in total, and of one address or IPv6 network
//! ([`Origin`]). A call beyond them is shed: it gets SYSTEM_ERR at once, and does not begin.
//!
//! Places are shared out fairly ([`is_fair`]): as places run out, the limit of an address shrinks. So a few addresses
//! cannot have all calls of others shed (I6). An address without a call in progress may begin one as long as any place is
//! free. All peers without an address count as one.
//!
//! A call holds its place until its handler has ended or is dropped, also beyond the end of its connection. Procedure 0 takes
//! no place, and is never shed. Repeats of a call in progress, or of one whose reply is kept, take none either.
//!
//! *Errors.* Nothing here fails.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rpcrdma_oncrpc::Origin;
use rpcrdma_verbs::is_fair;

/// Limits on the calls that the programs of a server carry out at a time ([`ServerBuilder::shed`]).
///
/// A call beyond a limit gets SYSTEM_ERR at once. It does not begin, and the reply cache does not keep that reply: a
/// repeat of the call may be executed later. Procedure 0 is never shed.
///
/// RPC has no other answer for this (RFC 5531 §9), and SYSTEM_ERR does not say that the call did not begin. So
/// [`CallError::execution`](crate::CallError::execution) is unknown, and a [`Retry`](crate::Retry)
/// repeats idempotent calls only. A program whose other calls are to be made again needs a status of its own in their
/// results, as NFS has NFS3ERR_JUKEBOX.
///
/// Other limits make calls wait instead: credits and memory of connections ([`ServerConfig`](crate::ServerConfig)). Those
/// here are for programs whose callers rather have an error than wait.
///
/// [`ServerBuilder::shed`]: crate::ServerBuilder::shed
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShedLimits {
    /// Most calls in progress.
    pub total: usize,
    /// Most calls in progress from one address, or IPv6 network ([`Origin`]), while no other has any. The limit shrinks as
    /// others take places ([`is_fair`]), unless it is `total` or more.
    pub per_origin: usize,
}

impl ShedLimits {
    /// Returns limits of `total` calls, and half of it for one address, rounded up.
    #[must_use]
    pub const fn new(total: usize) -> Self {
        Self { total, per_origin: total.div_ceil(2) }
    }
}

/// Calls in progress, and calls shed since the start; zeros for a server without [`ShedLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShedStats {
    /// Calls in progress now.
    pub in_progress: usize,
    /// Calls shed because the server had as many in progress as it may.
    pub total: u64,
    /// Calls shed because their address had as many in progress as it may, or its fair part.
    pub per_origin: u64,
}

/// The reason why a call is shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The server has as many calls in progress as it may.
    Total { limit: usize },
    /// The address has as many calls in progress as it may.
    Origin { origin: Option<Origin>, limit: usize },
    /// The free places are for other addresses.
    Unfair { origin: Option<Origin>, held: usize, left: usize },
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |origin: Option<Origin>| {
            origin.map_or_else(|| "a peer without an address".to_owned(), |origin| origin.to_string())
        };
        match *self {
            Self::Total { limit } => write!(f, "{limit} calls are in progress, the limit"),
            Self::Origin { origin, limit } => {
                write!(f, "{} has {limit} calls in progress, the limit for one address", name(origin))
            }
            Self::Unfair { origin, held, left } => write!(
                f,
                "{} has {held} calls in progress, and {left} more may be for all addresses",
                name(origin)
            ),
        }
    }
}

/// The count of calls in progress, with its limits.
#[derive(Debug)]
pub(crate) struct Shedder {
    limits: ShedLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stats: ShedStats,
    /// Origins with calls in progress.
    by_origin: HashMap<Option<Origin>, usize>,
}

impl Shedder {
    pub(crate) fn new(limits: ShedLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    pub(crate) fn stats(&self) -> ShedStats {
        self.lock().stats
    }

    /// Takes a place for a call of this peer.
    pub(crate) fn begin(&self, peer: Option<SocketAddr>) -> Result<(), Full> {
        let origin = origin_of(peer);
        let ShedLimits { total, per_origin } = self.limits;
        let mut state = self.lock();
        let held = state.by_origin.get(&origin).copied().unwrap_or(0);
        let Some(left) = total.checked_sub(state.stats.in_progress + 1) else {
            state.stats.total += 1;
            return Err(Full::Total { limit: total });
        };
        if held >= per_origin {
            state.stats.per_origin += 1;
            return Err(Full::Origin { origin, limit: per_origin });
        }
        if held > 0 && !is_fair(held + 1, left, per_origin, total) {
            state.stats.per_origin += 1;
            return Err(Full::Unfair { origin, held, left: left + 1 });
        }
        state.stats.in_progress += 1;
        state.by_origin.insert(origin, held + 1);
        Ok(())
    }

    /// Gives the place of a call back.
    pub(crate) fn end(&self, peer: Option<SocketAddr>) {
        let origin = origin_of(peer);
        let mut state = self.lock();
        state.stats.in_progress = state.stats.in_progress.saturating_sub(1);
        match state.by_origin.get_mut(&origin) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(state.by_origin.remove(&origin)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn origin_of(peer: Option<SocketAddr>) -> Option<Origin> {
    peer.map(|address| Origin::of(address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8, port: u16) -> Option<SocketAddr> {
        Some(([192, 0, 2, host], port).into())
    }

    /// Takes places for a peer until a call is shed; returns the number of calls that began.
    fn fill(shedder: &Shedder, peer: Option<SocketAddr>) -> usize {
        (0..1000).take_while(|_| shedder.begin(peer).is_ok()).count()
    }

    #[test]
    fn i6_addresses_have_fair_parts_of_the_places() {
        let shedder = Shedder::new(ShedLimits::new(12));
        assert_eq!(fill(&shedder, peer(1, 1)), 6, "half of all");
        assert_eq!(shedder.begin(peer(1, 2)), Err(Full::Origin { origin: origin_of(peer(1, 1)), limit: 6 }));
        assert_eq!(fill(&shedder, peer(2, 1)), 3, "as much as is then left");
        assert_eq!((fill(&shedder, peer(3, 1)), fill(&shedder, peer(4, 1))), (1, 1));
        assert_eq!(fill(&shedder, peer(5, 1)), 1, "the last place is for an address without one");
        assert_eq!(shedder.begin(peer(6, 1)), Err(Full::Total { limit: 12 }));
        let stats = ShedStats { in_progress: 12, total: 2, per_origin: 5 };
        assert_eq!(shedder.stats(), stats);
    }

    #[test]
    fn a_place_is_given_back() {
        let shedder = Shedder::new(ShedLimits { total: 2, per_origin: 2 });
        for peer in [peer(1, 1), None] {
            assert_eq!(fill(&shedder, peer), 2);
            shedder.end(peer);
            assert_eq!((fill(&shedder, peer), shedder.lock().by_origin.len()), (1, 1));
            (0..2).for_each(|_| shedder.end(peer));
            assert!(shedder.lock().by_origin.is_empty());
            assert_eq!(shedder.stats().in_progress, 0);
        }
    }

    #[test]
    fn no_place_at_all() {
        let shedder = Shedder::new(ShedLimits::new(0));
        assert_eq!(shedder.begin(None), Err(Full::Total { limit: 0 }));
        let shedder = Shedder::new(ShedLimits { total: 1, per_origin: 0 });
        assert_eq!(shedder.begin(None), Err(Full::Origin { origin: None, limit: 0 }));
    }
}
