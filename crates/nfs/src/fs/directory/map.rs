//! The map from inodes to names, for where the kernel's file handles cannot be used.
//!
//! In memory: for each object the names it was seen under, as directory and entry, so that renaming a directory
//! changes one record however much is below it. On disk, in the state directory: a log of names learnt and
//! forgotten, one appended record each, written anew without the dead ones when it is opened and, at the next
//! use of a handle, when they outnumber the living. A record reaches the kernel before the id it is for reaches a client, so ids survive the end
//! of the process, however it comes; after a loss of power the newest may be stale. A torn record at the end (and what
//! would follow it) is dropped when the log is read.
//!
//! *A log that cannot be written* (a full disk) undoes no operation. The id is good, since the map in memory has the name. Part
//! of a record is cut off again. The log is written anew from memory as soon as that goes. If the process ends before, the
//! handles whose records are missing are stale. A forgotten name that is back then does no harm: an object that is found under
//! a name counts only if it has the key of the handle.
//!
//! *Locks.* Names are looked up under a lock that is held for some microseconds: never for a system call, and not for a whole
//! path, which can be as long as a client likes. New names are written to the log first, under a lock of its own. Both are
//! held while the records of a new log are made from memory. While these are written, both are free, and records go to both logs.
//!
//! Memory follows the number of objects that clients have seen, about 150 bytes each. A record goes when its name is
//! taken away through this server, and when a handle is used and its object is not found under the name.
//!
//! On overlayfs an object is identified by its inode number and its kind only. Its first change copies a file of a lower
//! layer up, which gives it another time of birth; number and kind stay, if all layers are on one file system or
//! `xino` is on (the default where it is possible). So a handle of what was removed may come to name a later object
//! of that kind, if the upper layer uses its number again.

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

use super::ids::Object;
use crate::fs::state::{StateDirectory, StateError};
use crate::fs::types::{FileId, FsError};

/// Names kept for one object; a hard link beyond replaces the oldest.
const NAMES_MAX: usize = 8;
/// Directories above an object at most; a longer way is a ring of stale records.
const DEPTH_MAX: usize = 2048;
/// Directories that are climbed before the map is given to others: some microseconds.
const CLIMB_STEPS: usize = 64;
/// How often a log that lacks records is tried to be written anew, and how often that is told.
const REPAIR: Duration = Duration::from_secs(10);
/// Dead records that a log may have before it is worth writing anew.
const DEAD_RECORDS_MIN: u64 = 10_000;

const LEARNT: u8 = 1;
const FORGOTTEN: u8 = 2;
/// Kind, object, directory, length of the name; checksum behind the name.
const RECORD_HEAD: usize = 1 + KEY_SIZE + KEY_SIZE + 2;
const CHECKSUM: usize = 8;
const KEY_SIZE: usize = 16;

/// What tells the use of an inode number by one object from that by a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// A hash of the kernel's file handle, in which file systems put the inode's generation (making one needs no
    /// rights, only opening it does); where there is none, as `Birth`.
    Handle,
    /// The time of birth in nanoseconds, where handles are not lasting (FUSE). What was removed and made again within
    /// one tick of the kernel's clock, a few milliseconds, is taken for the same.
    Birth,
    /// A hash of the kernel's file handle; where there is none, which is the usual case, the kind of object (overlayfs).
    Kind,
}

/// Inode number and what [`Generation`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    number: u64,
    born: u64,
}

impl Key {
    /// The key of an object.
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
struct Known {
    objects: HashMap<Key, Names>,
    names: u64,
}

impl Known {
    /// Whether this is the newest name of an object.
    fn is_newest(&self, key: Key, directory: Key, name: &[u8]) -> bool {
        let newest = self.objects.get(&key).and_then(|names| names.last());
        newest.is_some_and(|(parent, known)| *parent == directory && **known == *name)
    }

    /// Whether this is a name of an object.
    fn has(&self, key: Key, directory: Key, name: &[u8]) -> bool {
        let names = self.objects.get(&key).map(Vec::as_slice).unwrap_or_default();
        names.iter().any(|(parent, known)| *parent == directory && **known == *name)
    }

    /// Makes this the newest name of an object. Whether it was not.
    fn learn(&mut self, key: Key, directory: Key, name: &[u8]) -> bool {
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

    /// All names of an object.
    fn take(&mut self, key: Key) -> Names {
        let names = self.objects.remove(&key).unwrap_or_default();
        self.names -= names.len() as u64;
        names
    }

    /// Whether this was known.
    fn forget(&mut self, key: Key, directory: Key, name: &[u8]) -> bool {
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
struct Log {
    file: File,
    /// Bytes of whole records.
    length: u64,
    /// Records are missing since a write that failed: when to write it anew.
    repair: Option<Instant>,
    /// When that was tried last.
    tried: Option<Instant>,
    /// While the log is written anew: what has to follow there.
    behind: Option<Behind>,
}

/// Records that came while the log was being written anew.
#[derive(Debug, Default)]
struct Behind {
    bytes: Vec<u8>,
    records: u64,
}

/// A log to be written anew.
struct Anew {
    bytes: Vec<u8>,
    records: u64,
}

/// The map of one export.
#[derive(Debug)]
pub(super) struct PathMap {
    root: Key,
    generation: Generation,
    path: PathBuf,
    /// Changed only by who holds [`Self::log`], so that both say what happened in one order.
    known: RwLock<Known>,
    log: Mutex<Log>,
    /// In the log; changed with it.
    records: AtomicU64,
    /// Whether [`Log::repair`] is set; changed with it.
    lacking: AtomicBool,
    /// With how many records to write the log anew, if that failed before.
    tidy_from: AtomicU64,
    /// How often a name was noted, known or not.
    learnt: AtomicU64,
    /// Renames that are not noted yet, and who must not meet any.
    phases: Phases,
}

/// How long who looks for a handle that was not found waits for renames that are not noted yet, and the other way round.
const REST: Duration = Duration::from_secs(2);

/// Two kinds of work that must not go on at the same time. Many calls may do one of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Renaming,
    Looking,
}

/// Keeps two kinds of work apart, in the order in which they come: neither can keep the other waiting by its number.
#[derive(Debug, Default)]
struct Phases {
    state: Mutex<InPhases>,
    changed: Condvar,
}

/// Those at work and those that wait.
#[derive(Debug, Default)]
struct InPhases {
    all: BTreeMap<u64, Phase>,
    next: u64,
}

impl InPhases {
    /// Whether somebody of the other kind came before.
    fn must_wait(&self, number: u64, phase: Phase) -> bool {
        self.all.range(..number).any(|(_, other)| *other != phase)
    }
}

/// Work of one kind, until this is dropped.
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

    /// Waits until nobody who came before does the other kind of work.
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

/// The first record: kind, object, directory, name, and its length.
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
        let (path, mut log) = state.open_locked(&format!("names-{name}"))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).map_err(StateError::io(&path))?;
        let mut known = Known::default();
        let mut rest = bytes.as_slice();
        while let Some((kind, key, directory, name, length)) = parse(rest) {
            if kind == LEARNT {
                known.learn(key, directory, name);
            } else if kind == FORGOTTEN {
                known.forget(key, directory, name);
            }
            rest = rest.get(length..).unwrap_or_default();
        }
        let bytes = known.records();
        let file = write_anew(&path, &bytes)
            .and_then(|file| std::fs::rename(name_anew(&path), &path).map(|()| file))
            .map_err(StateError::io(&path))?;
        let records = known.names;
        Ok(Self {
            root,
            generation,
            path,
            known: RwLock::new(known),
            log: Mutex::new(Log {
                file,
                length: bytes.len() as u64,
                repair: None,
                tried: None,
                behind: None,
            }),
            records: AtomicU64::new(records),
            lacking: AtomicBool::new(false),
            tidy_from: AtomicU64::new(0),
            learnt: AtomicU64::new(0),
            phases: Phases::default(),
        })
    }

    /// The key of an object of this export.
    pub(super) fn key(&self, object: &Object) -> Key {
        *object.key.get_or_init(|| Key::of(object, self.generation))
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a name of an object.
    pub(super) fn remember(&self, key: Key, directory: Key, name: &[u8]) {
        if key == self.root {
            return;
        }
        self.learnt.fetch_add(1, Ordering::AcqRel);
        // Without the log: the usual case.
        if self.known().is_newest(key, directory, name) {
            return;
        }
        let mut log = self.log();
        if !self.known().is_newest(key, directory, name) {
            self.append(&mut log, &record(LEARNT, key, directory, name));
            self.change().learn(key, directory, name);
        }
    }

    /// Notes that an object no longer has a name.
    pub(super) fn forget(&self, key: Key, directory: Key, name: &[u8]) {
        let mut log = self.log();
        if self.known().has(key, directory, name) {
            self.change().forget(key, directory, name);
            self.append(&mut log, &record(FORGOTTEN, key, directory, name));
        }
    }

    /// Writes to another file from now on.
    #[cfg(test)]
    pub(super) fn replace_log(&self, file: File) {
        self.log().file = file;
    }

    /// As after [`REPAIR`].
    #[cfg(test)]
    pub(super) fn repair_now(&self) {
        self.log().repair.iter_mut().for_each(|repair| *repair = Instant::now());
        self.tidy();
    }

    /// Whether records are missing.
    #[cfg(test)]
    pub(super) fn is_lacking(&self) -> bool {
        self.lacking.load(Ordering::Relaxed)
    }

    /// How many objects are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known().objects.len()
    }

    /// A mark for [`Self::drop_gone`].
    pub(super) fn learnt(&self) -> u64 {
        self.learnt.load(Ordering::Acquire)
    }

    /// Drops an object that was found under none of its names; not if a name was noted since the mark was taken, which
    /// may be one of this object: the next use of the handle will tell.
    pub(super) fn drop_gone(&self, key: Key, mark: u64) {
        let mut log = self.log();
        let mut known = self.change();
        if self.learnt() != mark {
            return;
        }
        let names = known.take(key);
        drop(known);
        for (directory, name) in names {
            self.append(&mut log, &record(FORGOTTEN, key, directory, &name));
        }
    }

    /// Adds a record, or notes that the log lacks it.
    fn append(&self, log: &mut Log, record: &[u8]) {
        if let Some(behind) = &mut log.behind {
            behind.bytes.extend_from_slice(record);
            behind.records += 1;
        }
        // At the end of the last whole record, so that half a one never stands before others.
        let written = log.file.write_all_at(record, log.length);
        match written {
            Ok(()) => {
                log.length += record.len() as u64;
                self.records.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                // If that fails too, the next record overwrites the part.
                let _ = log.file.set_len(log.length);
                self.lacks(log, &error);
            }
        }
    }

    /// Notes that records are missing, from which the log recovers when it is written anew.
    fn lacks(&self, log: &mut Log, error: &io::Error) {
        if log.repair.is_none() {
            tracing::error!(
                %error, path = %self.path.display(),
                "the map of names cannot be written: handles may be stale after the next start"
            );
            let now = Instant::now();
            log.repair = Some(log.tried.map_or(now, |tried| now.max(tried + REPAIR)));
            self.lacking.store(true, Ordering::Relaxed);
        }
    }

    /// Writes the log anew if most of it is dead or records are missing. Only with the identity of the process: nobody else may make files in
    /// the state directory. Others go on meanwhile.
    pub(super) fn tidy(&self) {
        if let Some(anew) = self.begin_anew() {
            let written = write_anew(&self.path, &anew.bytes);
            self.end_anew(&anew, written);
        }
    }

    /// Whether most records of the log are dead.
    fn is_mostly_dead(&self) -> bool {
        let records = self.records.load(Ordering::Relaxed);
        records > DEAD_RECORDS_MIN
            && records >= self.tidy_from.load(Ordering::Relaxed)
            && records > DEAD_RECORDS_MIN + 2 * self.known().names
    }

    /// The records of a new log, if the old one needs one and no other thread writes it anew.
    fn begin_anew(&self) -> Option<Anew> {
        let lacking = self.lacking.load(Ordering::Relaxed);
        if !lacking && !self.is_mostly_dead() {
            return None;
        }
        let mut log = self.log();
        if log.behind.is_some() {
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

    /// Puts the new log, with what came meanwhile, in the place of the old one.
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
                // It may hold the room that is missing.
                let _ = std::fs::remove_file(name_anew(&self.path));
                tracing::warn!(%error, path = %self.path.display(), "map of names keeps growing");
                // Not at once again.
                let again = self.records.load(Ordering::Relaxed) + DEAD_RECORDS_MIN;
                self.tidy_from.store(again, Ordering::Relaxed);
            }
        }
    }

    /// To be held over a rename and the notes about it. The file system may keep it for as long as it likes.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if those that look for handles keep it waiting.
    pub(super) fn renaming(&self) -> Result<InPhase<'_>, FsError> {
        self.phases.enter(Phase::Renaming, REST)
    }

    /// Waits for renames that are not noted yet. While this is held there are none: [`Self::paths`] is what this
    /// server knows.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if they do not end in time: the file system may be frozen.
    pub(super) fn at_rest(&self) -> Result<InPhase<'_>, FsError> {
        self.phases.enter(Phase::Looking, REST)
    }

    /// The paths from the root under which an object may be found, newest name first; each is put together when it is asked
    /// for. A rename may be under way: [`Self::at_rest`].
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

    /// The path to `name` in `directory`, by the newest name of each directory above.
    fn path(&self, directory: Key, name: Box<[u8]>) -> Option<Path> {
        let mut path = vec![name];
        let mut at = directory;
        while at != self.root {
            // A rename between two parts gives a path that never was: what is found there is not the object.
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
    /// The records of a log that says no more than this.
    fn records(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, names) in &self.objects {
            for (directory, name) in names {
                bytes.extend_from_slice(&record(LEARNT, *key, *directory, name));
            }
        }
        bytes
    }
}

/// The name of a log that is being written.
fn name_anew(path: &std::path::Path) -> PathBuf {
    path.with_extension("new")
}

/// Writes a log under another name, from which it is to be renamed into the place of the old one. The new file is
/// locked before it gets there, so no second server slips in between.
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
