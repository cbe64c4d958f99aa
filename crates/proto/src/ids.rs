//! Maps and sets by numbers that this side gave out: work requests, calls, tokens, XIDs of our own calls.
//!
//! Every message is looked up a dozen times under such numbers. The standard hasher withstands keys that an attacker picks,
//! and takes several times as long as the rest of a look-up; it stays where the peer picks the key.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers of ours.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A set of numbers of ours.
pub type IdSet<K> = HashSet<K, BuildHasherDefault<IdHasher>>;

/// Spreads numbers that mostly count up. Not for keys that a peer chooses.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl IdHasher {
    /// 2^64 divided by the golden ratio, odd: multiples of it fall far apart.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(Self::SPREAD);
    }

    /// The upper half is the one that every bit of the number has reached; a table looks at the lower bits first.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, Hash};

    use super::*;

    /// The most numbers that share a slot of a table with `1 << bits` of them.
    fn fullest<K: Hash>(bits: u32, keys: impl Iterator<Item = K>) -> usize {
        let mut slots = vec![0; 1 << bits];
        for key in keys {
            let hash = BuildHasherDefault::<IdHasher>::default().hash_one(key);
            slots[usize::try_from(hash % (1 << bits)).unwrap()] += 1;
        }
        slots.into_iter().max().unwrap()
    }

    #[test]
    fn keys_that_are_bytes_differ_by_each_of_them() {
        let hash = |key: [u8; 3]| BuildHasherDefault::<IdHasher>::default().hash_one(key);
        let hashes: HashSet<u64> = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]].map(hash).into();
        assert_eq!(hashes.len(), 4);
    }

    #[test]
    fn counted_numbers_spread_whatever_their_step() {
        for step in [1, 2, 16, 1 << 16, 1 << 32, (1 << 32) + 1] {
            assert!(fullest(10, (0..1024_u64).map(|n| n * step)) <= 8, "step {step}");
        }
        assert!(fullest(10, (0..1024_u32).map(|n| n.wrapping_add(u32::MAX - 500))) <= 8);
    }
}
