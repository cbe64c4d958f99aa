//! State that the copies of one command share: names already used, and the report so far.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CopyReport;
use crate::client::walk::Place;

/// Most paths of each kind in a report; the rest is only counted. With paths of at most some KiB a report
/// stays below 20 MiB, whatever the server lists.
pub const MAX_REPORTED: usize = 1000;

/// State that the copies of one command share, by [`CopyOptions::run`](super::CopyOptions::run). The copies
/// run one after the other.
///
/// - The second source that would get the name of an earlier one fails. Directories are merged.
/// - A source also fails if it would replace the object of an earlier one under another name. Targets that
///   fold case or normalise names treat two names as one.
/// - A file that was written in place is not written in place again under another name.
/// - The report of a copy that was dropped, or ended by an error, is available from
///   [`take_report`](Self::take_report).
#[derive(Clone, Default)]
pub struct CopyRun {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    report: Mutex<CopyReport>,
    names: Names,
    /// Outlines of the names given at the server.
    outlines: Names,
    in_place: Mutex<HashSet<ObjectId>>,
    /// Objects that no other source may replace or write.
    objects: Mutex<HashSet<ObjectId>>,
    /// Further names of objects: the object, its directory, and the outline of the name.
    links: Names,
    /// Held from the check of a local name until the name is given.
    local_turn: Mutex<()>,
    /// Held from the check of a name at the server until the name is given.
    turns: [tokio::sync::Mutex<()>; TURNS],
}

/// Turn of a name at the server: no name that may be equal is between check and use meanwhile.
pub(super) struct Turn<'a> {
    /// Whether no earlier source has a name that may be equal, so that nothing needs to be checked.
    pub(super) alone: bool,
    _guard: Option<tokio::sync::MutexGuard<'a, ()>>,
}

/// File system and number of an object at the target.
type ObjectId = (u64, u64);

/// Most names at the server that are checked and given at the same time.
const TURNS: usize = 32;

/// Returns a part that all names have in common which a target might treat as one. It ignores case, dots and
/// spaces. Names beyond ASCII and short names of DOS all have one value.
fn outline(name: &[u8]) -> Vec<u8> {
    if !name.is_ascii() || name.contains(&b'~') {
        return Vec::new();
    }
    let told = name.iter().filter(|byte| !matches!(byte, b'.' | b' '));
    told.map(u8::to_ascii_lowercase).collect()
}

/// Names as numbers of 128 bits, because a tree may have millions. Both hashes have random keys, so that
/// nobody can choose names that collide.
#[derive(Default)]
struct Names {
    hashers: [RandomState; 2],
    taken: Mutex<HashSet<[u64; 2]>>,
}

impl Names {
    /// Returns the number of a name.
    fn number(&self, name: &impl Hash) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(name))
    }
}

impl CopyRun {
    /// Returns the report of copies that did not return one. The stored report is empty afterwards.
    pub fn take_report(&self) -> CopyReport {
        std::mem::take(&mut lock(&self.shared.report))
    }

    pub(super) fn note(&self, change: impl FnOnce(&mut CopyReport)) {
        change(&mut lock(&self.shared.report));
    }

    /// Claims a final name: a directory and a name in it. Returns whether no earlier source has it.
    pub(super) fn claim(&self, name: &impl Hash) -> bool {
        let names = &self.shared.names;
        lock(&names.taken).insert(names.number(name))
    }

    /// Claims an object that was made for a source or has no other name. Returns whether no earlier source
    /// has it.
    pub(super) fn take(&self, object: ObjectId) -> bool {
        lock(&self.shared.objects).insert(object)
    }

    /// Returns whether an earlier source has this object.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        lock(&self.shared.objects).contains(&object)
    }

    /// Records that an object gets this name in a directory. The object may be older than the run, and its other names
    /// belong to nobody.
    pub(super) fn link(&self, object: ObjectId, dir: &impl Hash, name: &[u8]) {
        let links = &self.shared.links;
        lock(&links.taken).insert(links.number(&(object, dir, outline(name))));
    }

    /// Returns whether an earlier source has what has this name: the object itself, or the name, perhaps in another
    /// spelling.
    pub(super) fn has_name(&self, object: ObjectId, dir: &impl Hash, name: &[u8]) -> bool {
        let links = &self.shared.links;
        self.has(object) || lock(&links.taken).contains(&links.number(&(object, dir, outline(name))))
    }

    /// Waits until no other local name is between check and use.
    pub(super) fn local_turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.shared.local_turn)
    }

    /// Waits until no name at the server that may be equal is between check and use.
    pub(super) async fn turn(&self, place: &Place) -> Turn<'_> {
        let outlines = &self.shared.outlines;
        let number = outlines.number(&(place.dir, outline(place.name.as_bytes())));
        let turns = u64::try_from(TURNS).unwrap_or(u64::MAX);
        let guard = match self.shared.turns.get(usize::try_from(number[0] % turns).unwrap_or_default()) {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let alone = lock(&outlines.taken).insert(number);
        Turn { alone, _guard: guard }
    }

    /// Claims a file, by file system and number, to write it in place. Returns whether this is the first
    /// time.
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
