//! Objects kept open by a descriptor that grants no rights.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::Statx;

use super::file::{Checked, OPEN};
use crate::fs::types::{Access, Identity};

/// Most decisions about one object that are remembered.
const JUDGED_MAX: usize = 8;
/// Most groups of a caller whose rights are remembered.
const GROUPS_MAX: usize = 32;

/// An object that a caller has looked at, by an `O_PATH` descriptor. It is counted.
///
/// The kernel keeps the object in memory while the descriptor is open. So on a local file system its attributes are
/// there without waiting. The kernel's decisions about rights to it are remembered, as those about open files are.
#[derive(Debug)]
pub(in crate::fs::directory) struct LookedObject {
    fd: OwnedFd,
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
    pub(super) fn new(fd: OwnedFd, judgement: Option<Judgement>) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        let object = Self { fd, judged: Mutex::default() };
        object.note(judgement);
        object
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
        self.fd.as_fd()
    }
}

impl Drop for LookedObject {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}
