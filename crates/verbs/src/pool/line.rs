//! [`Line`]: tasks that wait for memory of one pool.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::task::Waker;

use super::MIN_CLASS;

/// Identifies a fair share of a pool; `None` if the limit of a task does not depend on its share.
pub(super) type ShareId = Option<usize>;

/// Tasks that found too little memory by this pool's limit, and not by that of the whole.
///
/// Memory goes to the tasks that came first, as far as it is enough for them. Whether a fair share may have it is known
/// only when one of its tasks has come. So one task of a share is woken at a time. If it came in vain, no other task of
/// that share is woken that wants as much. Memory that returns thus costs a wake for each task that it serves, and one
/// for each such share and size, however many wait.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The number of the next task.
    next: u64,
    /// Bytes offered to woken tasks that have not come yet.
    offered: usize,
    places: HashMap<u64, Waiting>,
    /// Wakers of tasks without an offer, by share, size and number.
    unserved: HashMap<ShareId, BTreeMap<usize, BTreeMap<u64, Waker>>>,
    fair: HashMap<usize, Standing>,
}

/// State of a fair share with waiting tasks.
#[derive(Debug, Default)]
struct Standing {
    /// Tasks in line.
    tasks: usize,
    /// Whether one of them was woken and has not come.
    asked: bool,
    /// The least number of bytes refused since memory last came back.
    refused: Option<usize>,
}

/// A waiting task.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    share: ShareId,
    room: usize,
    /// Whether the task was woken with an offer of its bytes.
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

    /// Forgets refusals after memory has come back: the limits of shares may have changed.
    pub(super) fn returned(&mut self) {
        self.fair.values_mut().for_each(|standing| standing.refused = None);
    }

    /// Keeps the place of a task that came in vain. If its share was `refused`, other tasks of that share that want as
    /// much wait on. Returns the wakers of tasks that get its offer instead; `left` as for [`offer`](Self::offer).
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
        // After the offer, which could otherwise go to this task again.
        self.wait(number, waker.clone());
        woken
    }

    /// Removes a task; returns whether it had an offer.
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

    /// Ends an offer: the woken task has come, or will not.
    fn came(&mut self, waiting: Waiting) {
        self.offered -= waiting.room;
        if let Some(standing) = self.standing(waiting.share) {
            standing.asked = false;
        }
    }

    /// Returns the bound of bytes that a task of this share may want to be woken now.
    fn most(&self, share: ShareId, left: usize) -> Bound<usize> {
        match share.and_then(|share| self.fair.get(&share)) {
            Some(Standing { asked: true, .. }) => Bound::Excluded(0),
            Some(&Standing { refused: Some(refused), .. }) if refused <= left => Bound::Excluded(refused),
            _ => Bound::Included(left),
        }
    }

    /// Offers memory to tasks in their order: the `left` free bytes without those offered already. Returns the wakers,
    /// to be called without the lock.
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
