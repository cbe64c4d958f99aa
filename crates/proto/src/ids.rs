//! Maps by numbers that this side assigns: work requests, calls, tokens, XIDs of our own calls.
//!
//! Every message needs a dozen look-ups by such numbers. The standard hasher resists keys that an attacker chooses, and
//! takes several times as long as the rest of a look-up. Maps with keys of the peer use the standard hasher.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers of this side.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A hasher that spreads mostly consecutive numbers; unsafe for keys that a peer chooses.
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

    /// Returns the hash. Every bit of the number affects the upper half, while a table uses the lower bits first, so
    /// the halves are exchanged.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
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
