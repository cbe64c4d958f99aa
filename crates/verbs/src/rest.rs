//! [`Rest`]: memory that a queue or map keeps while its connection is idle.
//!
//! A server can have thousands of connections of which few are busy. Collections keep the longest length that they ever
//! had: a READ of 1 MiB alone makes queues of a connection some 30 KiB long.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

/// Entries for which a collection at rest keeps memory: enough for a few calls at a time.
const FEW: usize = 4;

/// A collection that can release memory which only a burst needs.
pub trait Rest {
    /// Releases the memory of an empty collection that was longer than a few entries.
    fn rest(&mut self);
}

impl<T> Rest for VecDeque<T> {
    fn rest(&mut self) {
        if self.is_empty() && self.capacity() > FEW {
            self.shrink_to(0);
        }
    }
}

impl<T> Rest for Vec<T> {
    fn rest(&mut self) {
        if self.is_empty() && self.capacity() > FEW {
            self.shrink_to(0);
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Rest for HashMap<K, V, S> {
    fn rest(&mut self) {
        if self.is_empty() && self.capacity() > FEW {
            self.shrink_to(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_collections_that_were_long_lose_their_memory() {
        let mut queue: VecDeque<u64> = (0..100).collect();
        let mut list: Vec<u64> = (0..100).collect();
        let mut map: HashMap<u64, u64> = (0..100).map(|number| (number, number)).collect();
        queue.rest();
        list.rest();
        map.rest();
        assert_eq!((queue.len(), list.len(), map.len()), (100, 100, 100), "nothing in use is released");
        queue.clear();
        list.clear();
        map.clear();
        queue.rest();
        list.rest();
        map.rest();
        assert_eq!((queue.capacity(), list.capacity(), map.capacity()), (0, 0, 0));
        let mut short: VecDeque<u64> = VecDeque::with_capacity(FEW);
        short.rest();
        assert_eq!(short.capacity(), FEW);
    }
}
