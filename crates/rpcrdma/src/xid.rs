//! Transaction identifiers, and the random numbers that they begin with.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Returns a number that differs from run to run, from the system's random source by way of a hasher's key.
pub(crate) fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a number in which each bit depends on all bits of this one (the finalizer of SplitMix64).
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A source of consecutive XIDs from a random start. So the XIDs of a restarted client do not match replies kept for
/// its predecessor (RFC 5531 §9 leaves the choice free).
#[derive(Debug)]
pub(crate) struct Xids {
    next: u32,
}

impl Xids {
    pub(crate) fn new() -> Self {
        let [a, b, c, d, ..] = entropy().to_be_bytes();
        Self { next: u32::from_be_bytes([a, b, c, d]) }
    }

    pub(crate) fn take(&mut self) -> u32 {
        let xid = self.next;
        self.next = xid.wrapping_add(1);
        xid
    }
}
