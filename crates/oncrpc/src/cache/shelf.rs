//! [`Shelf`]: kept replies by [`Origin`], and the order in which they go.
//!
//! *Errors.* Nothing here fails; removing a reply that is not there does nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::CacheKey;
use crate::origin::Origin;

/// Replies of one standing and one budget. Numbers give their order and are unique.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    holdings: HashMap<Origin, Holding>,
    /// Origins by the bytes that they hold.
    ranking: BTreeSet<(usize, Origin)>,
    cost: usize,
}

#[derive(Debug, Default)]
struct Holding {
    keys: BTreeMap<u64, CacheKey>,
    cost: usize,
}

impl Shelf {
    /// Returns the bytes that all replies count for.
    pub(super) const fn cost(&self) -> usize {
        self.cost
    }

    pub(super) fn insert(&mut self, key: CacheKey, number: u64, cost: usize) {
        let origin = Origin::of(key.peer);
        let holding = self.holdings.entry(origin).or_default();
        self.ranking.remove(&(holding.cost, origin));
        holding.keys.insert(number, key);
        holding.cost += cost;
        self.ranking.insert((holding.cost, origin));
        self.cost += cost;
    }

    pub(super) fn remove(&mut self, key: &CacheKey, number: u64, cost: usize) {
        let origin = Origin::of(key.peer);
        let Some(holding) = self.holdings.get_mut(&origin) else { return };
        if holding.keys.remove(&number).is_none() {
            return;
        }
        self.ranking.remove(&(holding.cost, origin));
        holding.cost -= cost;
        self.cost -= cost;
        if holding.keys.is_empty() {
            self.holdings.remove(&origin);
        } else {
            self.ranking.insert((holding.cost, origin));
        }
    }

    /// Returns the oldest reply of the origin that holds most.
    pub(super) fn first_to_go(&self) -> Option<CacheKey> {
        let (_, origin) = self.ranking.last()?;
        self.holdings.get(origin)?.keys.values().next().copied()
    }

    #[cfg(test)]
    pub(super) fn check_books(&self) {
        let ranking = self.holdings.iter().map(|(origin, holding)| (holding.cost, *origin));
        assert_eq!(self.ranking, ranking.collect::<BTreeSet<_>>());
        assert!(self.holdings.values().all(|holding| !holding.keys.is_empty()));
        assert_eq!(self.cost, self.holdings.values().map(|holding| holding.cost).sum::<usize>());
    }
}
