//! The descriptors that are kept, and which of them is closed first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use super::file::OpenFile;
use super::uncommitted::{Snapshot, Uncommitted, UnstableWrite};
use crate::fs::types::{FileId, Identity};

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) who: Identity,
    pub(super) file: Arc<OpenFile>,
    pub(super) last_used: Instant,
    /// Whether a caller has asked to write to the file.
    pub(super) written: bool,
    /// User for whom the file is kept because it could not be opened again.
    pub(super) keeper: Option<u32>,
}

/// Cost of closing an open file. Cheaper ones are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// The kernel can open the file again.
    Reopens,
    /// The file is kept for its owner, and all its data is on stable storage.
    Finished,
    /// The file is kept for its owner, who is about to write.
    Needed,
}

impl Slot {
    fn worth(&self, uncommitted: bool) -> Worth {
        if self.keeper.is_none() {
            Worth::Reopens
        } else if self.written && !uncommitted && Arc::strong_count(&self.file) == 1 {
            Worth::Finished
        } else {
            Worth::Needed
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) slots: Vec<Slot>,
    pub(super) uncommitted: Option<Arc<Uncommitted>>,
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.uncommitted.is_none()
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) files: HashMap<FileId, Entry>,
    pub(super) slots: usize,
    pub(super) uncommitted: usize,
    /// Whether a thread works on the table.
    pub(super) tended: bool,
    pub(super) last_look: Option<Instant>,
    pub(super) closed: bool,
}

/// Files removed from the table, to be dropped without the lock.
pub(super) type Taken = Vec<Arc<OpenFile>>;

/// A descriptor that stays open for longer than [`IDLE`](super::IDLE).
pub(super) enum Lasting {
    Kept(FileId, Arc<OpenFile>),
    Witness(FileId, Arc<Uncommitted>),
}

impl Lasting {
    pub(super) fn id(&self) -> &FileId {
        match self {
            Self::Kept(id, _) | Self::Witness(id, _) => id,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kept(_, file) => file.as_fd(),
            Self::Witness(_, uncommitted) => uncommitted.file.as_fd(),
        }
    }
}

impl Table {
    /// Removes the slots of a file that `which` selects.
    pub(super) fn take_slots(
        &mut self,
        id: &FileId,
        taken: &mut Taken,
        mut which: impl FnMut(&Slot) -> bool,
    ) {
        let MapEntry::Occupied(mut entry) = self.files.entry(*id) else { return };
        let before = taken.len();
        taken.extend(entry.get_mut().slots.extract_if(.., |slot| which(slot)).map(|slot| slot.file));
        self.slots -= taken.len() - before;
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    /// Removes the slots of all files that `which` selects. Its second argument is whether the file has
    /// uncommitted data.
    pub(super) fn take_all_slots(&mut self, taken: &mut Taken, mut which: impl FnMut(&Slot, bool) -> bool) {
        let before = taken.len();
        self.files.retain(|_, entry| {
            let uncommitted = entry.uncommitted.is_some();
            taken.extend(entry.slots.extract_if(.., |slot| which(slot, uncommitted)).map(|slot| slot.file));
            !entry.is_empty()
        });
        self.slots -= taken.len() - before;
    }

    /// Removes at least `number` least recently used slots that the kernel can open again. If there are none,
    /// removes one that is kept for an owner.
    pub(super) fn shrink(&mut self, number: usize, taken: &mut Taken) {
        let all = || {
            self.files.values().flat_map(|entry| {
                let uncommitted = entry.uncommitted.is_some();
                entry.slots.iter().map(move |slot| (slot.worth(uncommitted), slot))
            })
        };
        let Some(worth) = all().map(|(worth, _)| worth).min() else { return };
        let cheapest = all().filter(|(known, _)| *known == worth).map(|(_, slot)| slot);
        if worth == Worth::Reopens {
            let mut ages: Vec<_> = cheapest.map(|slot| slot.last_used).collect();
            let index = number.clamp(1, ages.len()) - 1;
            let (_, limit, _) = ages.select_nth_unstable(index);
            let limit = *limit;
            self.take_all_slots(taken, |slot, uncommitted| {
                slot.worth(uncommitted) == worth && slot.last_used <= limit
            });
            return;
        }
        // Number of each user's files, and the least recently used of them.
        let mut keepers: HashMap<Option<u32>, (usize, Instant)> = HashMap::new();
        for slot in cheapest {
            let (count, oldest) = keepers.entry(slot.keeper).or_insert((0, slot.last_used));
            *count += 1;
            *oldest = slot.last_used.min(*oldest);
        }
        let most = keepers.into_iter().max_by_key(|(_, (count, oldest))| (*count, Reverse(*oldest)));
        let Some((keeper, (_, oldest))) = most else { return };
        let mut found = false;
        self.take_all_slots(taken, |slot, uncommitted| {
            let one = !found
                && slot.keeper == keeper
                && slot.last_used == oldest
                && slot.worth(uncommitted) == worth;
            found |= one;
            one
        });
    }

    /// Begins a write to a file that has a witness.
    pub(super) fn write_on(&mut self, id: &FileId, now: Instant) -> Option<UnstableWrite> {
        let uncommitted = self.files.get(id)?.uncommitted.as_ref()?;
        let mut state = uncommitted.state();
        state.epoch += 1;
        state.now += 1;
        state.last = now;
        drop(state);
        Some(UnstableWrite(Arc::clone(uncommitted)))
    }

    /// Removes the witness of a synced file, if nothing was written since.
    pub(super) fn settle(&mut self, id: &FileId, snapshot: &Snapshot) -> Option<Arc<Uncommitted>> {
        let MapEntry::Occupied(mut entry) = self.files.entry(*id) else { return None };
        let same = |uncommitted: &mut Arc<Uncommitted>| Arc::ptr_eq(uncommitted, &snapshot.uncommitted);
        let witness = entry.get_mut().uncommitted.take_if(|kept| same(kept) && snapshot.is_all())?;
        self.uncommitted -= 1;
        if entry.get().is_empty() {
            entry.remove();
        }
        Some(witness)
    }

    /// Returns up to `number` files with uncommitted data and no write in progress, those first that have
    /// waited longest.
    pub(super) fn oldest_uncommitted(&self, number: usize) -> Vec<(FileId, Snapshot)> {
        let mut all: Vec<_> = self
            .files
            .iter()
            .filter_map(|(id, entry)| {
                let uncommitted = entry.uncommitted.as_ref()?;
                let state = uncommitted.state();
                let (last, idle) = (state.last, state.now == 0);
                drop(state);
                idle.then(|| (last, *id, Snapshot::of(uncommitted)))
            })
            .collect();
        all.sort_by_key(|(last, ..)| *last);
        all.into_iter().take(number).map(|(_, id, snapshot)| (id, snapshot)).collect()
    }

    /// Returns the descriptors that stay open for longer than [`IDLE`](super::IDLE).
    pub(super) fn lasting(&self) -> Vec<Lasting> {
        let mut all = Vec::new();
        for (id, entry) in &self.files {
            let kept = entry.slots.iter().filter(|slot| slot.keeper.is_some());
            all.extend(kept.map(|slot| Lasting::Kept(*id, Arc::clone(&slot.file))));
            all.extend(entry.uncommitted.iter().map(|file| Lasting::Witness(*id, Arc::clone(file))));
        }
        all
    }
}
