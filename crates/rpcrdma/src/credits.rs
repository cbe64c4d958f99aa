//! [`Credits`]: how many credits each RDMA connection of a server can be granted, where
//! [`least_credits`](crate::ServerConfig::least_credits) is set.
//!
//! Every connection has its least credits, and memory for them, from its set-up to its end. Further credits come from a
//! stock, of which each address has its fair part ([`is_fair`]): its connections leave credits to those of other
//! addresses (I6). While an address holds less than half of that part, its connections get all that they want. From then
//! on each gets at most a [part](PART) of what is left for the address. So later connections get fewer, and the stock
//! never runs out at once.
//!
//! A credit is a number here. Its memory is reserved in the domain of Receives, which has room for all of them (I3). A
//! connection's [`Place`](crate::admission::Place) keeps its further credits, so they come back when its messages do.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_oncrpc::Origin;
use rpcrdma_verbs::{ProtectionDomain, is_fair};

use crate::config::ServerConfig;
use crate::shares::PeerShares;

/// A connection of an address that holds half of its part gets at most one further credit in so many of those left.
const PART: usize = 32;

/// The stock of further credits.
#[derive(Debug, Clone)]
pub(crate) struct Credits {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    total: usize,
    per_peer: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given: usize,
    /// Connections without an address count as one.
    by_peer: HashMap<Option<Origin>, usize>,
}

impl Credits {
    /// Creates a stock of `total` credits; the connections of one address have at most `per_peer` of them while others
    /// have none.
    pub(crate) fn new(total: usize, per_peer: usize) -> Self {
        Self { inner: Arc::new(Inner { total, per_peer: per_peer.min(total), state: Mutex::default() }) }
    }

    /// Creates the stock of a server: what the memory for Receives holds beyond the least credits of all connections.
    /// `None` if Receives have no memory of their own.
    pub(crate) fn of(config: &ServerConfig, shares: &PeerShares) -> Option<Self> {
        let memory = shares.receives().filter(|_| config.least_credits.is_some())?.usage().limit;
        let first = config.least_receives().saturating_mul(config.max_connections);
        let room = ProtectionDomain::room_for(config.protocol.largest_receive());
        let total = memory.saturating_sub(first) / room;
        Some(Self::new(total, config.further_per_peer() / room))
    }

    /// Takes further credits for a connection from `peer`, at most `wanted`.
    pub(crate) fn take(&self, peer: Option<SocketAddr>, wanted: u32) -> Further {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let peer = peer.map(|address| Origin::of(address.ip()));
        let Inner { total, per_peer, .. } = *self.inner;
        let mut state = self.inner.lock();
        let held = state.by_peer.get(&peer).copied().unwrap_or_default();
        let free = total.saturating_sub(state.given);
        // The most that the address may hold now.
        let (mut fair, mut unfair) = (held, held.saturating_add(free).min(per_peer).max(held) + 1);
        while fair + 1 < unfair {
            let middle = fair.midpoint(unfair);
            if is_fair(middle, free - (middle - held), per_peer, total) {
                fair = middle;
            } else {
                unfair = middle;
            }
        }
        let left = fair - held;
        let count = wanted.min(if held < fair.div_ceil(2) { left } else { left / PART });
        if count > 0 {
            state.given += count;
            state.by_peer.insert(peer, held + count);
        }
        Further { inner: Arc::clone(&self.inner), peer, count }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot interrupt a change half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The further credits of a connection, which go back to the stock with it.
#[derive(Debug)]
pub(crate) struct Further {
    inner: Arc<Inner>,
    peer: Option<Origin>,
    count: usize,
}

impl Further {
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.count).unwrap_or(u32::MAX)
    }

    /// Gives back all but `count` credits.
    pub(crate) fn shrink_to(&mut self, count: usize) {
        let back = self.count.saturating_sub(count);
        if back == 0 {
            return;
        }
        self.count -= back;
        let mut state = self.inner.lock();
        state.given -= back;
        if let Some(held) = state.by_peer.get_mut(&self.peer) {
            *held -= back;
            if *held == 0 {
                state.by_peer.remove(&self.peer);
            }
        }
    }
}

impl Drop for Further {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8, port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, last], port)))
    }

    /// The numbers of `serve` with its defaults.
    #[test]
    fn the_first_connections_get_all_that_they_want_and_later_ones_fewer() {
        let credits = Credits::new(32_768, 8192);
        let taken: Vec<Further> = (0..5000).map(|port| credits.take(peer(1, port), 62)).collect();
        let counts: Vec<u32> = taken.iter().map(Further::count).collect();
        assert!(counts.is_sorted_by(|earlier, later| earlier >= later));
        assert!(counts[..90].iter().all(|count| *count == 62), "{:?}", &counts[..100]);
        assert_eq!(counts[4999], 0);
        assert!(counts.iter().sum::<u32>() <= 8192);
        drop(taken);
        let state = credits.inner.lock();
        assert!(state.given == 0 && state.by_peer.is_empty());
    }

    #[test]
    fn an_address_below_half_of_its_part_gets_its_wish() {
        for (total, per_peer, wish) in [(32_768, 8192, 1022), (512, 128, 62), (512, 128, 128), (8, 8, 8)] {
            let credits = Credits::new(total, per_peer);
            let first = credits.take(peer(1, 1), wish);
            assert_eq!(first.count(), wish, "{total} {per_peer}");
        }
        let credits = Credits::new(512, 128);
        assert_eq!(credits.take(peer(1, 1), 1022).count(), 128, "no more than there are");
        assert_eq!(credits.inner.lock().given, 0);
    }

    #[test]
    fn credits_without_memory_go_back() {
        let credits = Credits::new(100, 100);
        let mut taken = credits.take(peer(1, 1), 60);
        taken.shrink_to(80);
        assert_eq!(taken.count(), 60);
        taken.shrink_to(10);
        assert_eq!((taken.count(), credits.inner.lock().given), (10, 10));
        taken.shrink_to(0);
        assert!(credits.inner.lock().by_peer.is_empty());
        drop(taken);
        assert_eq!(credits.inner.lock().given, 0);
    }

    #[test]
    fn i6_addresses_with_many_connections_leave_credits_to_others() {
        for addresses in [1, 2, 10, 100] {
            let credits = Credits::new(32_768, 8192);
            let mut taken = Vec::new();
            for port in 0..1000 {
                taken.extend((1..=addresses).map(|last| credits.take(peer(last, port), 62)));
            }
            let newcomer = credits.take(peer(200, 1), 62).count();
            let least = if addresses < 100 { 32 } else { 4 };
            assert!(newcomer >= least, "{addresses} addresses: {newcomer}");
        }
    }

    #[test]
    fn an_empty_stock_gives_nothing() {
        let credits = Credits::new(0, 0);
        assert_eq!(credits.take(peer(1, 1), 62).count(), 0);
        assert!(credits.inner.lock().by_peer.is_empty());
    }
}
