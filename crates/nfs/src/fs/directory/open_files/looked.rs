//! Objects kept open by a descriptor that grants no rights, and directories that clients change.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::Statx;

use super::super::ids::Object;
use super::super::storage::Syncs;
use super::file::{Checked, OPEN};
use crate::fs::types::{Access, Identity};

/// Most decisions about one object that are remembered.
const JUDGED_MAX: usize = 8;
/// Most groups of a caller whose rights are remembered.
const GROUPS_MAX: usize = 32;

/// An object that a caller has looked at, by an `O_PATH` descriptor, or a directory that a caller has changed. It is counted.
///
/// The kernel keeps the object in memory while the descriptor is open. So on a local file system its attributes are
/// there without waiting. The kernel's decisions about rights to it are remembered, as those about open files are.
#[derive(Debug)]
pub(in crate::fs::directory) struct LookedObject {
    object: Object,
    /// The syncs of a directory whose descriptor can be synced.
    syncs: Option<Syncs>,
    judged: Mutex<Vec<Judgement>>,
}

/// A decision of the kernel about rights of a caller.
#[derive(Debug)]
pub(in crate::fs::directory) struct Judgement {
    pub(in crate::fs::directory) who: Identity,
    /// The rights that were in question.
    pub(in crate::fs::directory) asked: Access,
    /// Those of them that the caller has.
    pub(in crate::fs::directory) granted: Access,
    pub(in crate::fs::directory) checked: Checked,
}

impl LookedObject {
    pub(super) fn new(object: Object, syncs: Option<Syncs>, judgement: Option<Judgement>) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        let looked = Self { object, syncs, judged: Mutex::default() };
        looked.note(judgement);
        looked
    }

    /// Returns the object. Its attributes are those of the time when it was opened.
    pub(in crate::fs::directory) const fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the syncs of a directory whose descriptor can be synced.
    pub(in crate::fs::directory) const fn syncs(&self) -> Option<&Syncs> {
        self.syncs.as_ref()
    }

    fn judged(&self) -> MutexGuard<'_, Vec<Judgement>> {
        // No code that can panic runs under the lock.
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a decision of the kernel. Of too many, the oldest is forgotten.
    pub(super) fn note(&self, judgement: Option<Judgement>) {
        let Some(new) = judgement.filter(|new| new.who.groups.len() <= GROUPS_MAX) else { return };
        let mut judged = self.judged();
        judged.retain(|known| known.asked != new.asked || known.who != new.who);
        if judged.len() >= JUDGED_MAX {
            judged.remove(0);
        }
        judged.push(new);
    }

    /// Returns which of these rights a caller has to the object with these attributes, if a decision about all of them is
    /// still valid.
    pub(in crate::fs::directory) fn granted(
        &self,
        who: &Identity,
        asked: Access,
        stat: &Statx,
        now: Instant,
    ) -> Option<Access> {
        let decides = |known: &&Judgement| known.asked.contains(asked) && known.checked.is_valid(stat, now);
        let judged = self.judged();
        let known = judged.iter().filter(|known| known.who == *who).find(decides)?;
        Some(known.granted.intersection(asked))
    }
}

impl AsFd for LookedObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.object.as_fd()
    }
}

impl Drop for LookedObject {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
