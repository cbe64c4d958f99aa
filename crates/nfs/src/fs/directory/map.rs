//! The map from inodes to names, for servers that cannot use the kernel's file handles.
//!
//! In memory, each object has the names under which it was seen, as directory and entry. So renaming a
//! directory changes one record, however many objects are below. On disk, in the state directory, there is a
//! log of names learnt and forgotten, with one appended record each. Opening the map rewrites the log without
//! the dead records. So does the next use of a handle when they outnumber the living ones. A record reaches
//! the kernel before its id reaches a client. So ids survive any end of the process; after a loss of power
//! the newest may be stale. A torn record at the end, and anything after it, is dropped when the log is read.
//!
//! *A log that cannot be written* (a full disk) undoes no operation. The id is valid, because the map in
//! memory has the name. A partial record is truncated again. The log is rewritten from memory as soon as
//! possible. If the process ends before, the handles whose records are missing become stale. A forgotten name
//! that reappears then does no harm: an object found under a name counts only if it has the key of the
//! handle.
//!
//! *Locks.* Look-ups hold a lock for some microseconds. They never hold it during a system call, or for a
//! whole path, which clients can make of any length. New names are written to the log first, under a lock of
//! its own. Both locks are held while the records of a new log are made from memory. While these are written,
//! both are free, and records go to both logs.
//!
//! Memory grows with the number of objects that clients have seen, by about 150 bytes each. A record is
//! removed with its name, if that is removed through this server. It is also removed when a handle is used
//! and its object is not found under the name.
//!
//! *Two servers.* A server that follows another one reads the log of that one, as long as that one runs ([`followed`]). It
//! writes nothing meanwhile, and then the log anew. If both end before, handles of that time become stale.
//!
//! On overlayfs, only inode number and kind identify an object. Its first change copies a file of a lower
//! layer up, which changes its time of birth. Number and kind stay if all layers are on one file system or
//! `xino` is on (the default where possible). So the handle of a removed object may later mean a new object
//! of that kind, if the upper layer uses the number again.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rpcrdma_sys::handle_of;
use rustix::fs::{FileType, FlockOperation, flock};
use siphasher::sip::SipHasher24;

use super::followed::Own;
use super::ids::Object;
use crate::fs::state::{StateDirectory, StateError};
use crate::fs::types::{FileId, FsError};

/// Most names kept for one object; a further hard link replaces the oldest.
const NAMES_MAX: usize = 8;
/// Most directories above an object; a longer way is a ring of stale records.
const DEPTH_MAX: usize = 2048;
/// Directories climbed before the lock of the map is released: some microseconds.
const CLIMB_STEPS: usize = 64;
/// Interval of the attempts to rewrite a log that lacks records, and of the log messages about that.
const REPAIR: Duration = Duration::from_secs(10);
/// Least number of dead records for which a log is rewritten.
const DEAD_RECORDS_MIN: u64 = 10_000;

const LEARNT: u8 = 1;
const FORGOTTEN: u8 = 2;
/// Kind, object, directory, length of the name; the checksum follows the name.
const RECORD_HEAD: usize = 1 + KEY_SIZE + KEY_SIZE + 2;
const CHECKSUM: usize = 8;
const KEY_SIZE: usize = 16;

/// Method to distinguish the use of an inode number by one object from that by a later object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// A hash of the kernel's file handle, in which file systems put the inode's generation. Making a handle
    /// needs no rights; only opening does. Without a handle, as `Birth`.
    Handle,
    /// The time of birth in nanoseconds, where handles are not lasting (FUSE). If an object is removed and
    /// made again within one tick of the kernel's clock, a few milliseconds, both count as one.
    Birth,
    /// A hash of the kernel's file handle. Usually there is none, and the kind of the object is used
    /// (overlayfs).
    Kind,
}

/// Inode number and the value of [`Generation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    number: u64,
    born: u64,
}

impl Key {
    /// Returns the key of an object.
    pub(super) fn of(object: &Object, generation: Generation) -> Self {
        let handle = match generation {
            Generation::Birth => None,
            Generation::Handle | Generation::Kind => handle_of(object.as_fd()).ok(),
        };
        let born = match (handle, generation) {
            (Some(handle), _) => {
                let mut hasher = SipHasher24::new();
                hasher.write(&handle.kind.to_be_bytes());
                hasher.write(&handle.bytes);
                hasher.finish()
            }
            (None, Generation::Kind) => {
                u64::from(FileType::from_raw_mode(object.stat.stx_mode.into()).as_raw_mode())
            }
            (None, _) => {
                let time = &object.stat.stx_btime;
                let seconds = u64::from_ne_bytes(time.tv_sec.to_ne_bytes());
                seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from(time.tv_nsec))
            }
        };
        Self { number: object.stat.stx_ino, born }
    }
}

impl Key {
    fn to_bytes(self) -> [u8; KEY_SIZE] {
        (u128::from(self.number) << 64 | u128::from(self.born)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; KEY_SIZE]) -> Self {
        let value = u128::from_be_bytes(bytes);
        let low = value & u128::from(u64::MAX);
        Self {
            number: u64::try_from(value >> 64).unwrap_or_default(),
            born: u64::try_from(low).unwrap_or_default(),
        }
    }

    pub(super) fn id(self) -> FileId {
        FileId::from_array(&self.to_bytes())
    }

    pub(super) fn from_id(id: &FileId) -> Option<Self> {
        id.as_bytes().try_into().ok().map(Self::from_bytes)
    }
}

/// Names from the root downwards.
pub(super) type Path = Vec<Box<[u8]>>;

type Names = Vec<(Key, Box<[u8]>)>;

#[derive(Debug, Default)]
pub(super) struct Known {
    objects: HashMap<Key, Names>,
    pub(super) names: u64,
}

impl Known {
    /// Returns the names of an object, the oldest one first.
    fn names_of(&self, key: Key) -> &[(Key, Box<[u8]>)] {
        self.objects.get(&key).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether this is the newest name of an object.
    fn is_newest(&self, key: Key, directory: Key, name: &[u8]) -> bool {
        let newest = self.names_of(key).last();
        newest.is_some_and(|(parent, known)| *parent == directory && **known == *name)
    }

    /// Returns whether this is a name of an object.
    fn has(&self, key: Key, directory: Key, name: &[u8]) -> bool {
        let mut names = self.names_of(key).iter();
        names.any(|(parent, known)| *parent == directory && **known == *name)
    }

    /// Makes this the newest name of an object. Returns whether that is a change.
    pub(super) fn learn(&mut self, key: Key, directory: Key, name: &[u8]) -> bool {
        let names = self.objects.entry(key).or_default();
        let known = names.iter().position(|(parent, known)| *parent == directory && **known == *name);
        if let Some(place) = known {
            let newest = place + 1 == names.len();
            if !newest {
                let name = names.remove(place);
                names.push(name);
            }
            return !newest;
        }
        if names.len() >= NAMES_MAX {
            names.remove(0);
            self.names -= 1;
        }
        names.push((directory, name.into()));
        self.names += 1;
        true
    }

    /// Removes and returns all names of an object.
    fn take(&mut self, key: Key) -> Names {
        let names = self.objects.remove(&key).unwrap_or_default();
        self.names -= names.len() as u64;
        names
    }

    /// Removes a name. Returns whether it was known.
    pub(super) fn forget(&mut self, key: Key, directory: Key, name: &[u8]) -> bool {
        let Some(names) = self.objects.get_mut(&key) else { return false };
        let before = names.len();
        names.retain(|(parent, known)| *parent != directory || **known != *name);
        let gone = before - names.len();
        if names.is_empty() {
            self.objects.remove(&key);
        }
        self.names -= gone as u64;
        gone > 0
    }
}

#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: File,
    /// Bytes of complete records; of another server's log, bytes of those that were taken over.
    pub(super) length: u64,
    /// Time at which to rewrite the log, while records are missing: after a failed write, and after another server's end.
    pub(super) repair: Option<Instant>,
    /// Time of the last attempt.
    tried: Option<Instant>,
    /// Records to add to the new log, while the log is rewritten.
    behind: Option<Behind>,
    /// Changes of this server, as long as the server before it runs and writes the log. Nothing else is written meanwhile.
    pub(super) own: Option<Own>,
}

/// Records that arrived while the log was rewritten.
#[derive(Debug, Default)]
struct Behind {
    bytes: Vec<u8>,
    records: u64,
}

/// A log to rewrite.
struct Anew {
    bytes: Vec<u8>,
    records: u64,
}

/// The map of an export.
#[derive(Debug)]
pub(super) struct PathMap {
    root: Key,
    generation: Generation,
    pub(super) path: PathBuf,
    /// Names in memory. Only the holder of [`Self::log`] changes them, so that both have the same order of
    /// changes.
    known: RwLock<Known>,
    log: Mutex<Log>,
    /// Number of records in the log; changes with it.
    pub(super) records: AtomicU64,
    /// Whether [`Log::repair`] is set; changes with it.
    pub(super) lacking: AtomicBool,
    /// Number of records at which to rewrite the log, after a failed attempt.
    tidy_from: AtomicU64,
    /// Whether [`Log::own`] is set; changes with it.
    pub(super) follows: AtomicBool,
    /// Number of notes of a name, known or not.
    learnt: AtomicU64,
    /// Renames that are not recorded yet, and look-ups that must not meet them.
    phases: Phases,
}

/// Time for which a search for a missing handle waits for unrecorded renames, and the reverse.
const REST: Duration = Duration::from_secs(2);

/// Two kinds of work that exclude each other. Many calls may do one of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Renaming,
    Looking,
}

/// Separates two kinds of work, in the order of their arrival: neither can delay the other by its number.
#[derive(Debug, Default)]
struct Phases {
    state: Mutex<InPhases>,
    changed: Condvar,
}

/// Calls at work, and calls that wait.
#[derive(Debug, Default)]
struct InPhases {
    all: BTreeMap<u64, Phase>,
    next: u64,
}

impl InPhases {
    /// Returns whether a call of the other kind came before.
    fn must_wait(&self, number: u64, phase: Phase) -> bool {
        self.all.range(..number).any(|(_, other)| *other != phase)
    }
}

/// Guard for work of one kind, until the drop.
#[derive(Debug)]
#[must_use]
pub(super) struct InPhase<'a> {
    phases: &'a Phases,
    number: u64,
}

impl Phases {
    fn state(&self) -> MutexGuard<'_, InPhases> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no earlier call does the other kind of work.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if that takes too long.
    fn enter(&self, phase: Phase, wait: Duration) -> Result<InPhase<'_>, FsError> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.all.insert(number, phase);
        let entered = InPhase { phases: self, number };
        let (state, _) = self
            .changed
            .wait_timeout_while(state, wait, |state| state.must_wait(number, phase))
            .unwrap_or_else(PoisonError::into_inner);
        let late = state.must_wait(number, phase);
        drop(state);
        if late { Err(FsError::TryLater) } else { Ok(entered) }
    }
}

impl Drop for InPhase<'_> {
    fn drop(&mut self) {
        self.phases.state().all.remove(&self.number);
        self.phases.changed.notify_all();
    }
}

fn record(kind: u8, key: Key, directory: Key, name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_HEAD + name.len() + CHECKSUM);
    bytes.push(kind);
    bytes.extend_from_slice(&key.to_bytes());
    bytes.extend_from_slice(&directory.to_bytes());
    bytes.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(name);
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = SipHasher24::new();
    hasher.write(bytes);
    hasher.finish().to_be_bytes()
}

/// Returns the first record, as kind, object, directory and name, with its length.
fn parse(log: &[u8]) -> Option<(u8, Key, Key, &[u8], usize)> {
    let (head, _) = log.split_first_chunk::<RECORD_HEAD>()?;
    let (kind, head) = head.split_first()?;
    let (key, head) = head.split_first_chunk::<KEY_SIZE>()?;
    let (directory, head) = head.split_first_chunk::<KEY_SIZE>()?;
    let length = usize::from(u16::from_be_bytes(*head.first_chunk()?));
    let signed = log.get(..RECORD_HEAD + length)?;
    let name = signed.get(RECORD_HEAD..)?;
    let sum = log.get(RECORD_HEAD + length..RECORD_HEAD + length + CHECKSUM)?;
    let whole = RECORD_HEAD + length + CHECKSUM;
    (sum == checksum(signed)).then_some((
        *kind,
        Key::from_bytes(*key),
        Key::from_bytes(*directory),
        name,
        whole,
    ))
}

impl PathMap {
    /// Opens the map of the export whose root is `root`.
    pub(super) fn open(
        state: &StateDirectory,
        root: &Object,
        generation: Generation,
    ) -> Result<Self, StateError> {
        let root = Key::of(root, generation);
        let name: String = root.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let (path, mut file, is_alone) = state.open_locked(&format!("names-{name}"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(StateError::io(&path))?;
        let mut known = Known::default();
        let mut length = known.apply(&bytes, &mut Own::default());
        if is_alone {
            let bytes = known.records();
            file = replace(&path, &bytes).map_err(StateError::io(&path))?;
            length = bytes.len() as u64;
        }
        let own = (!is_alone).then(Own::default);
        let records = known.names;
        Ok(Self {
            root,
            generation,
            path,
            known: RwLock::new(known),
            follows: AtomicBool::new(own.is_some()),
            log: Mutex::new(Log { file, length, repair: None, tried: None, behind: None, own }),
            records: AtomicU64::new(records),
            lacking: AtomicBool::new(false),
            tidy_from: AtomicU64::new(0),
            learnt: AtomicU64::new(0),
            phases: Phases::default(),
        })
    }

    /// Returns the key of an object of this export.
    pub(super) fn key(&self, object: &Object) -> Key {
        *object.key.get_or_init(|| Key::of(object, self.generation))
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a name of an object.
    pub(super) fn remember(&self, key: Key, directory: Key, name: &[u8]) {
        if key == self.root {
            return;
        }
        self.learnt.fetch_add(1, Ordering::AcqRel);
        // The usual case does not need the log.
        if self.known().is_newest(key, directory, name) {
            return;
        }
        let mut log = self.log();
        if !self.known().is_newest(key, directory, name) {
            self.append(&mut log, LEARNT, key, directory, name);
            self.change().learn(key, directory, name);
        }
    }

    /// Records that an object no longer has a name.
    pub(super) fn forget(&self, key: Key, directory: Key, name: &[u8]) {
        let mut log = self.log();
        if self.known().has(key, directory, name) {
            self.change().forget(key, directory, name);
            self.append(&mut log, FORGOTTEN, key, directory, name);
        }
    }

    /// Writes to another file from now on.
    #[cfg(test)]
    pub(super) fn replace_log(&self, file: File) {
        self.log().file = file;
    }

    /// Rewrites the log as after [`REPAIR`].
    #[cfg(test)]
    pub(super) fn repair_now(&self) {
        self.log().repair.iter_mut().for_each(|repair| *repair = Instant::now());
        self.tidy();
    }

    /// Returns whether records are missing.
    #[cfg(test)]
    pub(super) fn is_lacking(&self) -> bool {
        self.lacking.load(Ordering::Relaxed)
    }

    /// Returns the number of known objects.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known().objects.len()
    }

    /// Returns a mark for [`Self::drop_gone`].
    pub(super) fn learnt(&self) -> u64 {
        self.learnt.load(Ordering::Acquire)
    }

    /// Removes an object that was found under none of its names. If any name was recorded since the mark was
    /// read, the object stays, because that name may be its own. The next use of the handle will decide.
    pub(super) fn drop_gone(&self, key: Key, mark: u64) {
        let mut log = self.log();
        let mut known = self.change();
        if self.learnt() != mark {
            return;
        }
        let names = known.take(key);
        drop(known);
        for (directory, name) in names {
            self.append(&mut log, FORGOTTEN, key, directory, &name);
        }
    }

    /// Appends a record, or records that the log lacks it.
    fn append(&self, log: &mut Log, kind: u8, key: Key, directory: Key, name: &[u8]) {
        if let Some(own) = &mut log.own {
            if kind == LEARNT {
                own.learn(key, directory, name);
            } else {
                own.forget(key, directory, name);
            }
            return;
        }
        let record = record(kind, key, directory, name);
        if let Some(behind) = &mut log.behind {
            behind.bytes.extend_from_slice(&record);
            behind.records += 1;
        }
        // At the end of the last complete record, so that no partial record ever precedes others.
        let written = log.file.write_all_at(&record, log.length);
        match written {
            Ok(()) => {
                log.length += record.len() as u64;
                self.records.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                // If this fails too, the next record overwrites the partial one.
                let _ = log.file.set_len(log.length);
                self.lacks(log, &error);
            }
        }
    }

    /// Records that the log lacks records. Rewriting the log repairs it.
    fn lacks(&self, log: &mut Log, error: &io::Error) {
        if log.repair.is_none() {
            tracing::error!(
                %error, path = %self.path.display(),
                "cannot write the map of names: handles may be stale after the next start"
            );
            let now = Instant::now();
            log.repair = Some(log.tried.map_or(now, |tried| now.max(tried + REPAIR)));
            self.lacking.store(true, Ordering::Relaxed);
        }
    }

    /// Rewrites the log if most of it is dead or records are missing, once it is this server's. Only with the identity of the
    /// process, because other users may not make files in the state directory. Other calls go on meanwhile.
    pub(super) fn tidy(&self) {
        self.catch_up();
        if let Some(anew) = self.begin_anew() {
            let written = write_anew(&self.path, &anew.bytes);
            self.end_anew(&anew, written);
        }
    }

    /// Returns whether most records of the log are dead.
    fn is_mostly_dead(&self) -> bool {
        let records = self.records.load(Ordering::Relaxed);
        records > DEAD_RECORDS_MIN
            && records >= self.tidy_from.load(Ordering::Relaxed)
            && records > DEAD_RECORDS_MIN + 2 * self.known().names
    }

    /// Returns the records of a new log, if the log must be rewritten and no other thread does so.
    fn begin_anew(&self) -> Option<Anew> {
        let lacking = self.lacking.load(Ordering::Relaxed);
        if !lacking && !self.is_mostly_dead() {
            return None;
        }
        let mut log = self.log();
        if log.behind.is_some() || log.own.is_some() {
            return None;
        }
        if let Some(repair) = log.repair {
            let now = Instant::now();
            if repair > now {
                return None;
            }
            (log.tried, log.repair) = (Some(now), Some(now + REPAIR));
        }
        log.behind = Some(Behind::default());
        let known = self.known();
        Some(Anew { bytes: known.records(), records: known.names })
    }

    /// Replaces the old log by the new one, with the records that arrived meanwhile.
    fn end_anew(&self, anew: &Anew, written: io::Result<File>) {
        let mut log = self.log();
        let behind = log.behind.take().unwrap_or_default();
        let done = written.and_then(|mut file| {
            file.write_all(&behind.bytes)?;
            std::fs::rename(name_anew(&self.path), &self.path)?;
            Ok(file)
        });
        match done {
            Ok(file) => {
                log.file = file;
                log.length = (anew.bytes.len() + behind.bytes.len()) as u64;
                if log.repair.take().is_some() {
                    self.lacking.store(false, Ordering::Relaxed);
                    tracing::info!(path = %self.path.display(), "the map of names is complete again");
                }
                self.records.store(anew.records + behind.records, Ordering::Relaxed);
                self.tidy_from.store(0, Ordering::Relaxed);
            }
            Err(error) => {
                // The new file may occupy the space that is missing.
                let _ = std::fs::remove_file(name_anew(&self.path));
                tracing::warn!(%error, path = %self.path.display(), "cannot rewrite the map of names, which keeps growing");
                // The next attempt comes later.
                let again = self.records.load(Ordering::Relaxed) + DEAD_RECORDS_MIN;
                self.tidy_from.store(again, Ordering::Relaxed);
            }
        }
    }

    /// Returns a guard for a rename and its records. The file system may take any time for a rename.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if searches for handles delay it too long.
    pub(super) fn renaming(&self) -> Result<InPhase<'_>, FsError> {
        self.phases.enter(Phase::Renaming, REST)
    }

    /// Waits for renames that are not recorded yet. While the guard is held there are none, and
    /// [`Self::paths`] is this server's current knowledge.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if they do not end in time: the file system may be frozen.
    pub(super) fn at_rest(&self) -> Result<InPhase<'_>, FsError> {
        self.phases.enter(Phase::Looking, REST)
    }

    /// Returns the paths from the root under which an object may be found, newest name first. Each is built
    /// when it is requested. A rename may be in progress; see [`Self::at_rest`].
    pub(super) fn paths(&self, key: Key) -> Result<impl Iterator<Item = Path> + '_, FsError> {
        let at_root = key == self.root;
        let names = match self.known().objects.get(&key) {
            _ if at_root => Names::new(),
            Some(names) => names.clone(),
            None => return Err(FsError::Stale),
        };
        let below = names.into_iter().rev().filter_map(move |(directory, name)| self.path(directory, name));
        Ok(at_root.then(Path::new).into_iter().chain(below))
    }

    /// Returns the path to `name` in `directory`, by the newest name of each directory above.
    fn path(&self, directory: Key, name: Box<[u8]>) -> Option<Path> {
        let mut path = vec![name];
        let mut at = directory;
        while at != self.root {
            // A rename between two parts gives a path that never existed; an object found there is not the
            // right one.
            let known = self.known();
            for _ in 0..CLIMB_STEPS {
                if at == self.root {
                    break;
                }
                if path.len() > DEPTH_MAX {
                    return None;
                }
                let (parent, name) = known.objects.get(&at)?.last()?;
                path.push(name.clone());
                at = *parent;
            }
        }
        path.reverse();
        Some(path)
    }
}

impl Known {
    /// Takes over the records of a log. Names there count as older than own ones. Returns the length of the complete records in
    /// bytes.
    pub(super) fn apply(&mut self, log: &[u8], own: &mut Own) -> u64 {
        let mut rest = log;
        while let Some((kind, key, directory, name, length)) = parse(rest) {
            if kind == LEARNT && !own.forgotten.has(key, directory, name) {
                self.learn(key, directory, name);
                for (directory, name) in own.learnt.names_of(key) {
                    self.learn(key, *directory, name);
                }
            } else if kind == FORGOTTEN {
                own.learnt.forget(key, directory, name);
                self.forget(key, directory, name);
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        (log.len() - rest.len()) as u64
    }

    /// Returns the records of a log with only the current names.
    pub(super) fn records(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, names) in &self.objects {
            for (directory, name) in names {
                bytes.extend_from_slice(&record(LEARNT, *key, *directory, name));
            }
        }
        bytes
    }
}

/// Returns the name of a log that is being written.
fn name_anew(path: &std::path::Path) -> PathBuf {
    path.with_extension("new")
}

/// Replaces a log by a new one with these records.
fn replace(path: &std::path::Path, records: &[u8]) -> io::Result<File> {
    let file = write_anew(path, records)?;
    std::fs::rename(name_anew(path), path)?;
    Ok(file)
}

/// Writes a log under another name, which then replaces the old log by a rename. The new file is locked
/// before, so that no second server can use it.
fn write_anew(path: &std::path::Path, records: &[u8]) -> io::Result<File> {
    let mut log =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(name_anew(path))?;
    flock(&log, FlockOperation::NonBlockingLockExclusive)?;
    log.write_all(records)?;
    log.sync_all()?;
    Ok(log)
}

#[cfg(test)]
mod tests;
