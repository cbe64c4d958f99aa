//! The part of a command that its copies share: names that have their file already, and the report so far.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CopyReport;
use crate::client::walk::Place;

/// Most paths that a report has of each kind; the rest is counted. With paths of at most some KiB a report stays below
/// 20 MiB, whatever the server lists.
pub const MAX_REPORTED: usize = 1000;

/// Shared by the copies of one command, by [`CopyOptions::run`](super::CopyOptions::run). Copies go one after the other.
///
/// - The second source that would get the name of an earlier one fails. Directories are joined.
/// - So does a source that would replace the object of an earlier one under another name. A target that folds case, or
///   normalises, takes two names for one.
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
    in_place: Mutex<HashSet<ObjectId>>,
    /// Objects that no other source may replace or write.
    objects: Mutex<HashSet<ObjectId>>,
    /// Held while a local name is looked at and then given.
    local_turn: Mutex<()>,
    /// Likewise for names at the server.
    turns: [tokio::sync::Mutex<()>; TURNS],
}

/// File system and number of an object at the target.
type ObjectId = (u64, u64);

/// Names at the server that are given at the same time, at most.
const TURNS: usize = 32;

/// The part that names have in common if a target takes them for one. It does not tell case, dots and spaces. Names beyond ASCII
/// and short names of DOS are all alike.
fn outline(name: &[u8]) -> Vec<u8> {
    if !name.is_ascii() || name.contains(&b'~') {
        return Vec::new();
    }
    let told = name.iter().filter(|byte| !matches!(byte, b'.' | b' '));
    told.map(u8::to_ascii_lowercase).collect()
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

    /// Takes an object for one source: it was made, or has no other name. Whether no earlier source has it.
    pub(super) fn take(&self, object: ObjectId) -> bool {
        lock(&self.shared.objects).insert(object)
    }

    /// Whether an earlier source has this object.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        lock(&self.shared.objects).contains(&object)
    }

    /// Waits until no other local name is looked at and given.
    pub(super) fn local_turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.shared.local_turn)
    }

    /// Waits until no name at the server that may be the same is looked at and given.
    pub(super) async fn turn(&self, place: &Place) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let [hasher, _] = &self.shared.names.hashers;
        let number = hasher.hash_one((place.dir, outline(place.name.as_bytes())));
        let turns = u64::try_from(TURNS).unwrap_or(u64::MAX);
        let turn = self.shared.turns.get(usize::try_from(number % turns).unwrap_or_default())?;
        Some(turn.lock().await)
    }

    /// Takes a file, by file system and number, to write it in place. Whether it was not written so before.
    pub(super) fn first_in_place(&self, file: ObjectId) -> bool {
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
