//! The descriptors that are kept, and which of them is closed first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::{Arc, Weak};
use std::time::Instant;

use rustix::fs::Statx;

use super::super::convert::stat_cached;
use super::file::OpenFile;
use super::looked::LookedObject;
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
    /// Returns whether the file is open to read only, on a local file system: that hinders nobody.
    pub(super) fn only_reads(&self) -> bool {
        self.file.is_local() && !self.file.writable && self.keeper.is_none()
    }

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

/// An object that callers look at.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) object: Arc<LookedObject>,
    pub(super) last_used: Instant,
    /// Time at which the object was found.
    pub(super) found: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) slots: Vec<Slot>,
    pub(super) uncommitted: Option<Arc<Uncommitted>>,
    pub(super) looked: Option<Looked>,
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.uncommitted.is_none() && self.looked.is_none()
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) files: HashMap<FileId, Entry>,
    pub(super) slots: usize,
    pub(super) uncommitted: usize,
    /// Number of objects that callers look at.
    pub(super) looked: usize,
    /// Whether a thread works on the table.
    pub(super) tended: bool,
    /// Time at which no thread could be started.
    pub(super) untended: Option<Instant>,
    pub(super) last_look: Option<Instant>,
    /// Time of the last look at all that stays open, and not only at the few that may hinder others.
    pub(super) last_look_at_all: Option<Instant>,
    /// Values for the thread of the table to drop: closing a removed file frees its space, which takes long.
    pub(super) leaving: Taken,
    pub(super) closed: bool,
}

/// Descriptors that were removed from the table, to be dropped without the lock.
#[derive(Debug, Default)]
pub(in crate::fs::directory) struct Taken {
    pub(super) files: Vec<Arc<OpenFile>>,
    pub(super) objects: Vec<Arc<LookedObject>>,
}

impl Taken {
    pub(super) fn len(&self) -> usize {
        self.files.len() + self.objects.len()
    }
}

/// A value of the table that may leave it while a call uses it.
pub(in crate::fs::directory) trait Leaves: Sized {
    /// Adds the value to those that the thread of the table drops.
    fn leave(self, leaving: &mut Taken);
}

impl Leaves for OpenFile {
    fn leave(self, leaving: &mut Taken) {
        leaving.files.push(Arc::new(self));
    }
}

impl Leaves for LookedObject {
    fn leave(self, leaving: &mut Taken) {
        leaving.objects.push(Arc::new(self));
    }
}

/// A descriptor that stays open for longer than [`IDLE`](super::IDLE). There may be thousands of the last two kinds: a list
/// of them keeps none open.
pub(super) enum Lasting {
    Kept(FileId, Arc<OpenFile>),
    Witness(FileId, Arc<Uncommitted>),
    Reading(FileId, Weak<OpenFile>),
    Looked(FileId, Weak<LookedObject>),
}

impl Lasting {
    pub(super) fn id(&self) -> &FileId {
        match self {
            Self::Kept(id, _) | Self::Witness(id, _) | Self::Reading(id, _) | Self::Looked(id, _) => id,
        }
    }

    /// Returns whether nobody is hindered, unless the object was removed.
    pub(super) const fn hinders_nobody(&self) -> bool {
        matches!(self, Self::Reading(..) | Self::Looked(..))
    }

    /// Returns the attributes; `None` if the descriptor was closed meanwhile.
    pub(super) fn stat(&self) -> Option<Statx> {
        match self {
            Self::Kept(_, file) => stat_cached(file),
            Self::Witness(_, uncommitted) => stat_cached(&uncommitted.file),
            Self::Reading(_, file) => stat_cached(file.upgrade()?),
            Self::Looked(_, object) => stat_cached(object.upgrade()?),
        }
        .ok()
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
        let before = taken.files.len();
        taken.files.extend(entry.get_mut().slots.extract_if(.., |slot| which(slot)).map(|slot| slot.file));
        self.slots -= taken.files.len() - before;
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    /// Removes the slots of all files that `which` selects. Its second argument is whether the file has
    /// uncommitted data.
    pub(super) fn take_all_slots(&mut self, taken: &mut Taken, mut which: impl FnMut(&Slot, bool) -> bool) {
        let before = taken.files.len();
        self.files.retain(|_, entry| {
            let uncommitted = entry.uncommitted.is_some();
            let removed = entry.slots.extract_if(.., |slot| which(slot, uncommitted));
            taken.files.extend(removed.map(|slot| slot.file));
            !entry.is_empty()
        });
        self.slots -= taken.files.len() - before;
    }

    /// Removes the object of an id that callers look at.
    pub(super) fn take_looked(&mut self, id: &FileId, taken: &mut Taken) {
        let MapEntry::Occupied(mut entry) = self.files.entry(*id) else { return };
        let Some(looked) = entry.get_mut().looked.take() else { return };
        taken.objects.push(looked.object);
        self.looked -= 1;
        if entry.get().is_empty() {
            entry.remove();
        }
    }

    /// Removes the objects that callers last looked at until `limit`.
    pub(super) fn take_looked_until(&mut self, limit: Instant, taken: &mut Taken) {
        if self.looked == 0 {
            return;
        }
        let before = taken.objects.len();
        self.files.retain(|_, entry| {
            let old = entry.looked.take_if(|looked| looked.last_used <= limit);
            taken.objects.extend(old.map(|looked| looked.object));
            !entry.is_empty()
        });
        self.looked -= taken.objects.len() - before;
    }

    /// Removes at least `number` objects that callers look at, those first that were not used for longest.
    pub(super) fn shrink_looked(&mut self, number: usize, taken: &mut Taken) {
        let looked = self.files.values().filter_map(|entry| entry.looked.as_ref());
        let mut ages: Vec<_> = looked.map(|looked| looked.last_used).collect();
        if ages.is_empty() {
            return;
        }
        let index = number.clamp(1, ages.len()) - 1;
        let (_, limit, _) = ages.select_nth_unstable(index);
        let limit = *limit;
        self.take_looked_until(limit, taken);
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

    /// Returns the descriptors that stay open for longer than [`IDLE`](super::IDLE): those that may hinder others, or
    /// all.
    pub(super) fn lasting(&self, all: bool) -> Vec<Lasting> {
        let mut lasting = Vec::new();
        for (id, entry) in &self.files {
            let kept = entry.slots.iter().filter(|slot| slot.keeper.is_some());
            lasting.extend(kept.map(|slot| Lasting::Kept(*id, Arc::clone(&slot.file))));
            lasting.extend(entry.uncommitted.iter().map(|file| Lasting::Witness(*id, Arc::clone(file))));
            if all {
                let reading = entry.slots.iter().find(|slot| slot.only_reads());
                lasting.extend(reading.map(|slot| Lasting::Reading(*id, Arc::downgrade(&slot.file))));
                let looked = entry.looked.as_ref().filter(|_| reading.is_none());
                lasting.extend(looked.map(|looked| Lasting::Looked(*id, Arc::downgrade(&looked.object))));
            }
        }
        lasting
    }
}
