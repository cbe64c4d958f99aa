//! [`Shelf`]: kept replies by address, and which of them goes first.
//!
//! *What happens on error:* nothing here fails; a reply that is not there is not removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::CacheKey;

/// Replies of one standing and one budget. Numbers give their order and are unique.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    holdings: HashMap<IpAddr, Holding>,
    /// Addresses by what they hold.
    ranking: BTreeSet<(usize, IpAddr)>,
    cost: usize,
}

#[derive(Debug, Default)]
struct Holding {
    keys: BTreeMap<u64, CacheKey>,
    cost: usize,
}

impl Shelf {
    /// Octets that all of it counts for.
    pub(super) const fn cost(&self) -> usize {
        self.cost
    }

    pub(super) fn insert(&mut self, key: CacheKey, number: u64, cost: usize) {
        let holding = self.holdings.entry(key.peer).or_default();
        self.ranking.remove(&(holding.cost, key.peer));
        holding.keys.insert(number, key);
        holding.cost += cost;
        self.ranking.insert((holding.cost, key.peer));
        self.cost += cost;
    }

    pub(super) fn remove(&mut self, key: &CacheKey, number: u64, cost: usize) {
        let Some(holding) = self.holdings.get_mut(&key.peer) else { return };
        if holding.keys.remove(&number).is_none() {
            return;
        }
        self.ranking.remove(&(holding.cost, key.peer));
        holding.cost -= cost;
        self.cost -= cost;
        if holding.keys.is_empty() {
            self.holdings.remove(&key.peer);
        } else {
            self.ranking.insert((holding.cost, key.peer));
        }
    }

    /// The oldest reply of the address that holds most.
    pub(super) fn first_to_go(&self) -> Option<CacheKey> {
        let (_, peer) = self.ranking.last()?;
        self.holdings.get(peer)?.keys.values().next().copied()
    }
}
