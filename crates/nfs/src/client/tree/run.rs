//! The part of a command that its copies share: names that have their file already, and the report so far.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CopyReport;

/// Most paths that a report has of each kind; the rest is counted. With paths of at most some KiB a report stays below
/// 20 MiB, whatever the server lists.
pub const MAX_REPORTED: usize = 1000;

/// Shared by the copies of one command, by [`CopyOptions::run`](super::CopyOptions::run). Copies go one after the other.
///
/// - The second source that would get the name of an earlier one fails. Directories are joined.
/// - A file that was written in place is not written in place again under another name.
/// - A copy that was dropped, or ended by an error, has its report here: [`take_report`](Self::take_report).
#[derive(Clone, Default)]
pub struct CopyRun {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    report: Mutex<CopyReport>,
    names: Names,
    in_place: Mutex<HashSet<(u64, u64)>>,
}

/// Names as numbers of 128 bits: a tree may have millions. Both hashes are keyed at random, so that nobody can choose names
/// that are taken for each other.
#[derive(Default)]
struct Names {
    hashers: [RandomState; 2],
    taken: Mutex<HashSet<[u64; 2]>>,
}

impl CopyRun {
    /// The report of copies that did not return one. It is empty afterwards.
    pub fn take_report(&self) -> CopyReport {
        std::mem::take(&mut lock(&self.shared.report))
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut CopyReport)) {
        change(&mut lock(&self.shared.report));
    }

    /// Takes a final name: a directory and a name in it. Whether no earlier source has it.
    pub(super) fn claim(&self, name: &impl Hash) -> bool {
        let Names { hashers, taken } = &self.shared.names;
        let number = hashers.each_ref().map(|hasher| hasher.hash_one(name));
        lock(taken).insert(number)
    }

    /// Takes a file, by file system and number, to write it in place. Whether it was not written so before.
    pub(super) fn first_in_place(&self, file: (u64, u64)) -> bool {
        lock(&self.shared.in_place).insert(file)
    }
}

impl fmt::Debug for CopyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyRun").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
