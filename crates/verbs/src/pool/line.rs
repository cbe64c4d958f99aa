//! [`Line`]: tasks that wait for memory of one pool.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::task::Waker;

use super::MIN_CLASS;

/// Tells apart the fair shares of a pool; `None`: whether a task may have room does not depend on its share.
pub(super) type ShareId = Option<usize>;

/// Tasks that this pool's limit, not that of the whole, kept from having memory when they asked.
///
/// Room goes to those that came first, as far as it is enough for them. Whether a fair share may have it is known when one of its tasks has
/// come. So one is woken at a time, and if it came in vain, no other of that share that wants as much. Memory that returns thus
/// costs a wake for each task that it serves, and one for each such share and size, however many wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The number of the next to come.
    next: u64,
    /// Room that those who were woken have not come for.
    offered: usize,
    places: HashMap<u64, Waiting>,
    /// Those that were offered nothing: by share, room and number.
    unserved: HashMap<ShareId, BTreeMap<usize, BTreeMap<u64, Waker>>>,
    fair: HashMap<usize, Standing>,
}

/// What is known of a fair share of which tasks wait.
#[derive(Debug, Default)]
struct Standing {
    /// Tasks in line.
    tasks: usize,
    /// One of them was woken and has not come.
    asked: bool,
    /// The least room that was refused since memory came back last.
    refused: Option<usize>,
}

/// A task that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    share: ShareId,
    room: usize,
    /// It was woken, since there was so much room.
    offered: bool,
}

impl Line {
    /// Adds a task; returns its number.
    pub(super) fn join(&mut self, waker: Waker, room: usize, share: ShareId) -> u64 {
        let number = self.next;
        self.next += 1;
        self.places.insert(number, Waiting { share, room, offered: false });
        if let Some(share) = share {
            self.fair.entry(share).or_default().tasks += 1;
        }
        self.wait(number, waker);
        number
    }

    fn wait(&mut self, number: u64, waker: Waker) {
        if let Some(&Waiting { share, room, .. }) = self.places.get(&number) {
            self.unserved.entry(share).or_default().entry(room).or_default().insert(number, waker);
        }
    }

    fn wait_no_more(&mut self, number: u64, Waiting { share, room, .. }: Waiting) -> Option<Waker> {
        let rooms = self.unserved.get_mut(&share)?;
        let numbers = rooms.get_mut(&room)?;
        let waker = numbers.remove(&number);
        if numbers.is_empty() {
            rooms.remove(&room);
        }
        if rooms.is_empty() {
            self.unserved.remove(&share);
        }
        waker
    }

    /// Memory has come back: what a share may have must be found out anew.
    pub(super) fn returned(&mut self) {
        self.fair.values_mut().for_each(|standing| standing.refused = None);
    }

    /// Keeps the place of a task that came in vain. If its share was `refused`, the others of that share that want as much wait on.
    /// Returns the wakers of tasks that are offered its room instead; `left` as for [`offer`](Self::offer).
    #[must_use]
    pub(super) fn stay(
        &mut self,
        number: u64,
        waker: &Waker,
        room: usize,
        refused: bool,
        left: usize,
    ) -> Vec<Waker> {
        let Some(&before) = self.places.get(&number) else { return Vec::new() };
        self.wait_no_more(number, before);
        self.places.insert(number, Waiting { room, offered: false, ..before });
        if refused && let Some(standing) = self.standing(before.share) {
            standing.refused = Some(standing.refused.map_or(room, |least| least.min(room)));
        }
        let woken = if before.offered {
            self.came(before);
            self.offer(left)
        } else {
            Vec::new()
        };
        // Behind the offer, which would be to this task again.
        self.wait(number, waker.clone());
        woken
    }

    /// Removes a task; returns whether it was offered anything.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Some(waiting) = self.places.remove(&number) else { return false };
        self.wait_no_more(number, waiting);
        if waiting.offered {
            self.came(waiting);
        }
        if let Some(share) = waiting.share
            && let Some(standing) = self.fair.get_mut(&share)
        {
            standing.tasks -= 1;
            if standing.tasks == 0 {
                self.fair.remove(&share);
            }
        }
        waiting.offered
    }

    fn standing(&mut self, share: ShareId) -> Option<&mut Standing> {
        self.fair.get_mut(&share?)
    }

    /// A task that was woken has come, or will not.
    fn came(&mut self, waiting: Waiting) {
        self.offered -= waiting.room;
        if let Some(standing) = self.standing(waiting.share) {
            standing.asked = false;
        }
    }

    /// What a task of this share may want to be woken now.
    fn most(&self, share: ShareId, left: usize) -> Bound<usize> {
        match share.and_then(|share| self.fair.get(&share)) {
            Some(Standing { asked: true, .. }) => Bound::Excluded(0),
            Some(&Standing { refused: Some(refused), .. }) if refused <= left => Bound::Excluded(refused),
            _ => Bound::Included(left),
        }
    }

    /// Offers room to tasks in their order: of the `left` that nobody holds, what nobody was offered. Returns the wakers, to be called without
    /// the lock.
    #[must_use]
    pub(super) fn offer(&mut self, left: usize) -> Vec<Waker> {
        let mut woken = Vec::new();
        loop {
            let left = left.saturating_sub(self.offered);
            if left < MIN_CLASS {
                break;
            }
            let first = self
                .unserved
                .iter()
                .flat_map(|(share, rooms)| rooms.range((Bound::Unbounded, self.most(*share, left))))
                .filter_map(|(_, numbers)| numbers.first_key_value())
                .map(|(&number, _)| number)
                .min();
            let Some(number) = first else { break };
            let Some(waiting) = self.places.get_mut(&number) else { break };
            waiting.offered = true;
            let waiting = *waiting;
            self.offered += waiting.room;
            if let Some(standing) = self.standing(waiting.share) {
                standing.asked = true;
            }
            woken.extend(self.wait_no_more(number, waiting));
        }
        woken
    }
}
