//! Windows of a connection: their memory, their keys, and what the adapter knows of them.
//!
//! A window of the adapter has a key whose low octet the owner chooses for each bind. Here it is random, and none comes
//! again before all others were used. Windows are used in turn, so a key that the peer still knows stays invalid for
//! long. Nothing is invalidated twice: rxe, the RoCE of Linux in software, panics the kernel then. So only a window that
//! is bound is invalidated, and the table alone knows which ones are.

use std::collections::{HashMap, VecDeque};

use rpcrdma_verbs::{Key, WindowMemory, WrId};

use crate::hardware::Window;
use crate::memory::{Place, Region};

/// Windows of the adapter that are made before one is used again.
const SPREAD: usize = 32;

/// What the adapter knows of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing: no bind is posted.
    Reserved,
    /// Nothing, and it was given up.
    Released,
    /// A bind is queued here.
    Queued,
    /// The bind was posted.
    Bound,
    /// The invalidation was posted.
    Closing,
}

/// How a window is made.
#[derive(Debug)]
pub(super) enum Backing {
    /// By a window of the adapter, over registered memory.
    Window {
        spare: Spare,
        place: Place,
        /// Octets that are exposed.
        len: u64,
        /// A registration for this window alone, if the memory has none that stays.
        #[allow(dead_code, reason = "the window is over it")]
        region: Option<Region>,
    },
    /// By a registration. The peer can use it from the reservation on.
    Registration(Region),
}

/// A window of this connection.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) memory: WindowMemory,
    pub(super) backing: Backing,
    pub(super) state: State,
    /// Invalidations that wait for the one that was posted.
    pub(super) waiting: Vec<WrId>,
}

/// A window of the adapter that is not bound.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) window: Window,
    /// Its key without the low octet.
    base: u32,
    octets: Octets,
}

impl Spare {
    /// Returns a new window of the adapter, which has this key now.
    pub(super) fn new(window: Window, key: u32) -> Self {
        let mut octets = Octets::default();
        octets.take(key.to_le_bytes()[0]);
        Self { window, base: key & !0xff, octets }
    }

    fn next_key(&mut self) -> Key {
        Key(self.base | u32::from(self.octets.next(rand::random())))
    }
}

/// Low octets of keys that a window has used lately.
#[derive(Debug, Default)]
struct Octets {
    used: [u64; 4],
    count: u32,
    last: u8,
}

impl Octets {
    fn take(&mut self, octet: u8) -> bool {
        let Some(word) = self.used.get_mut(usize::from(octet >> 6)) else { return false };
        let bit = 1 << (octet & 63);
        let free = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(free);
        if free {
            self.last = octet;
        }
        free
    }

    /// Returns the first octet from `wish` on that was not used lately.
    fn next(&mut self, wish: u8) -> u8 {
        if self.count == 256 {
            // The key of the last bind may still be on its way.
            let last = self.last;
            *self = Self::default();
            self.take(last);
        }
        let mut octet = wish;
        while !self.take(octet) {
            octet = octet.wrapping_add(1);
        }
        octet
    }
}

/// All windows of a connection.
#[derive(Debug)]
pub(super) struct Table {
    windows: HashMap<Key, Entry>,
    spare: VecDeque<Spare>,
    /// Windows of the adapter that were made.
    made: usize,
    pub(super) limit: usize,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self { windows: HashMap::new(), spare: VecDeque::new(), made: 0, limit }
    }

    /// Returns whether no more windows are allowed.
    pub(super) fn is_full(&self) -> bool {
        self.windows.len() >= self.limit
    }

    /// Returns a window of the adapter that is free, if enough exist that none is used again at once.
    pub(super) fn take_spare(&mut self) -> Option<Spare> {
        if self.made < self.limit.min(SPREAD) { None } else { self.spare.pop_front() }
    }

    /// Returns a window of the adapter that is free, however few there are.
    pub(super) fn any_spare(&mut self) -> Option<Spare> {
        self.spare.pop_front()
    }

    /// Counts a window of the adapter that was made.
    pub(super) fn made_one(&mut self) {
        self.made += 1;
    }

    /// Returns the number of windows that the adapter has made.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Adds a window, and returns its key and address.
    pub(super) fn add(&mut self, memory: WindowMemory, mut backing: Backing) -> (Key, u64) {
        let (key, address) = match &mut backing {
            Backing::Window { spare, place, .. } => (spare.next_key(), place.address),
            Backing::Registration(region) => (Key(region.remote_key), region.beginning().address),
        };
        self.windows.insert(key, Entry { memory, backing, state: State::Reserved, waiting: Vec::new() });
        (key, address)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Entry> {
        self.windows.get_mut(&key)
    }

    /// Returns whether the peer can have invalidated this window.
    pub(super) fn is_open(&self, key: Key) -> bool {
        self.windows.get(&key).is_some_and(|entry| matches!(entry.state, State::Bound | State::Closing))
    }

    /// Takes a window out that the peer cannot use any more. Its memory comes back, with the invalidations that wait.
    pub(super) fn remove(&mut self, key: Key) -> Option<(WindowMemory, Vec<WrId>)> {
        let Entry { memory, backing, waiting, .. } = self.windows.remove(&key)?;
        if let Backing::Window { spare, .. } = backing {
            self.spare.push_back(spare);
        }
        Some((memory, waiting))
    }

    /// Takes all windows out. The queue pair and its windows must have ended.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Key, Entry)> + use<> {
        std::mem::take(&mut self.windows).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i7_no_octet_comes_again_before_all_others() {
        for wish in [0_u8, 7, 255] {
            let mut octets = Octets::default();
            let mut last = None;
            for round in 0..3 {
                let mut seen: std::collections::BTreeSet<u8> = last.into_iter().collect();
                // From the second round on, the last octet of the round before counts.
                for number in 0..=255_u8 - u8::from(round > 0) {
                    let octet = octets.next(wish.wrapping_mul(number));
                    assert!(seen.insert(octet));
                    last = Some(octet);
                }
                assert_eq!(seen.len(), 256);
            }
        }
    }

    #[test]
    fn an_octet_that_is_taken_is_not_the_first_choice() {
        let mut octets = Octets::default();
        octets.take(9);
        assert_eq!((octets.next(9), octets.next(8), octets.next(8)), (10, 8, 11));
    }
}
