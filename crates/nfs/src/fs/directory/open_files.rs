//! Files and other objects kept open between calls, so that a READ or WRITE costs one system call and a look at the
//! attributes.
//!
//! NFS version 3 has no OPEN and no CLOSE. A table with four kinds of descriptors replaces them:
//!
//! * **Open files.** Each is open *for an identity*: the kernel checked the rights of that identity, and only
//!   that identity uses the file. Where callers do not act as themselves, the user of the process stands for
//!   all of them. While a file is open for writing, nobody can execute it (`ETXTBSY`). So the table closes it
//!   [`IDLE`] after its last use, a COMMIT closes it too, and a READ does not prolong its life. A file that is
//!   open to read only hinders nobody but those who want a lease of it. On a local file system it stays for
//!   [`READ_IDLE`] after its last use. Elsewhere an open file may hide changes that others make, or its removal.
//! * **Looked objects.** A descriptor that grants no rights keeps an object in memory that a caller has looked at,
//!   also for [`READ_IDLE`]. That of a directory in which a caller has changed something can be synced. So the thread of a connection can answer the next GETATTR, ACCESS or LOOKUP there
//!   (`looks`). After [`FIND_AGAIN`] the object has to be found again, by its id or by a name. The kernel's last decisions
//!   about rights to the object stay with it.
//! * **Files kept for their owner.** An owner may write what the mode forbids (RFC 1813 §4.4): `git` and
//!   `tar` make files read-only before they write them. An unprivileged process cannot open such a file
//!   again. It keeps the descriptor that CREATE opened, or that was open when SETATTR removed the right. A
//!   temporary change of the mode would leave a wrong mode after a crash, and could undo a change by another
//!   user. The table closes these files after [`KEPT_IDLE`], and executable ones as soon as they have no
//!   uncommitted data.
//! * **Witnesses.** Each file with uncommitted data has one read-only descriptor. Linux reports a failed
//!   write-back at the `fsync` of a descriptor that was open before; a later one may get no report. So the
//!   server opens a witness before the first byte of an UNSTABLE write, and syncs it at COMMIT. Without a
//!   COMMIT the table syncs the file itself after [`UNCOMMITTED_IDLE`]. If no witness is available, the
//!   server makes the data stable at once. Each failure goes to [`Storage`](super::storage::Storage), which
//!   changes the write verifier.
//!
//! **Rights.** A check of rights is valid only while owner, group, mode and time of change stay equal. After that the
//! kernel checks again, for the caller. So a change of an access control list ends the use of an open file. A second
//! change within one tick of the clock does not show in the time. So the check is valid for
//! [`RECHECK`](file::RECHECK) only. It is valid for [`RECHECK_SETTLED`](file::RECHECK_SETTLED) on local file systems, if
//! the file was not changed shortly before it. A WRITE of this server changes the time of change, but needs no new
//! check.
//!
//! **Bounds.** The capacity limits the open files of a table, and half of it limits the witnesses among them. As
//! many looked objects are kept beside. All tables of a process together keep at most half of `RLIMIT_NOFILE`, and
//! looked objects leave half of that to files. Connections and calls in progress have the rest. The least recently
//! used one is closed first. A call that finds no descriptor closes what is kept, looked objects first, then waits
//! for other calls ([`OpenFiles::opening`]). A user who fills the table costs others a little time.
//!
//! Files kept for owners are the exception: once closed, they cannot be opened again. They are closed last,
//! first those whose data is all on stable storage. Among these, and then among the others, the next file is
//! that of the user with the most. So a user who makes more files read-only than the table holds, and writes
//! to them later, loses those. AUTH_SYS believes users: a client that claims to be many users can still
//! displace the file of another. The next WRITE to that file is refused.
//!
//! **The thread.** A thread of the table examines it each [`TICK`] while it keeps anything. So files are
//! closed without calls too: a program can be executed, and a removed file frees its space. A removal through this
//! server closes it, another one is noticed at a look ([`LOOK`], [`LOOK_AT_ALL`]). Closing may wait
//! for the storage, as `fsync` does; both happen outside the lock. The last user of a descriptor closes it. Threads
//! of connections must not wait: what is [`Lent`] is closed by the thread of the table.

mod file;
mod looked;
mod table;
mod uncommitted;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Statx;
use rustix::io::Errno;

#[cfg(test)]
pub(crate) use self::file::RECHECK_HERE;
pub(super) use self::file::{Checked, OpenFile, Purpose};
use self::file::{OPEN, allowance};
pub(super) use self::looked::{Judgement, LookedObject};
use self::table::{Entry, Lasting, Leaves, Looked, Slot, Table, Taken};
use self::uncommitted::Writing;
pub(super) use self::uncommitted::{Snapshot, Uncommitted, UnstableWrite};
use super::ids::Object;
use super::storage::Syncs;
use crate::fs::types::{FileId, FsError, Identity};

/// Time without use after which a file that is open for writing is closed, at the next [`TICK`].
const IDLE: Duration = Duration::from_millis(750);
/// Time without use after which a file that is open to read only is closed, and an object that callers look at.
const READ_IDLE: Duration = Duration::from_secs(60);
/// Time after which an object that callers look at has to be found again.
const FIND_AGAIN: Duration = Duration::from_secs(300);
/// Time without use after which a file kept for its owner is closed.
const KEPT_IDLE: Duration = Duration::from_secs(600);
/// Time without new writes after which uncommitted data is made stable without a COMMIT.
const UNCOMMITTED_IDLE: Duration = Duration::from_secs(30);
/// Interval of the thread's work while any file is kept.
const TICK: Duration = Duration::from_millis(250);
/// Interval of the checks whether long-lived files were removed or made executable.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of the checks whether others that stay open were removed. There may be thousands.
const LOOK_AT_ALL: Duration = Duration::from_secs(5);
/// Number of descriptors to be closed that wake the thread of the table.
const LEAVING: usize = 64;
/// Most times that a call waits for a descriptor when the process has none left, and the length of each wait.
const WAITS: usize = 100;
const WAIT: Duration = Duration::from_millis(2);
/// Mode bits of the right to execute a file.
const ANY_EXECUTE: u16 = 0o111;
/// Mode bits that let an owner open a file to read and write.
const OWNER_READ_WRITE: u16 = 0o600;

/// How space for a new looked object is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Others are closed for it.
    Make,
    /// Only if there is some: the caller must not wait.
    IfFree,
}

#[derive(Debug)]
struct Shared {
    capacity: usize,
    /// Result of [`allowance`], which needs a system call.
    allowance: AtomicUsize,
    table: Mutex<Table>,
    ended: Condvar,
}

/// Table of open files.
#[derive(Debug)]
pub(super) struct OpenFiles {
    shared: Arc<Shared>,
}

impl OpenFiles {
    /// Creates a table of at most `capacity` descriptors.
    pub(super) fn new(capacity: usize) -> Self {
        let shared = Shared {
            capacity: capacity.max(1),
            allowance: AtomicUsize::new(allowance()),
            table: Mutex::default(),
            ended: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a file that is open for `who`.
    pub(super) fn get(
        &self,
        id: &FileId,
        who: &Identity,
        purpose: Purpose,
        now: Instant,
    ) -> Option<Arc<OpenFile>> {
        let mut table = self.shared.lock();
        let slots = &mut table.files.get_mut(id)?.slots;
        let slot = slots.iter_mut().find(|slot| slot.who == *who && slot.file.serves(purpose))?;
        if purpose == Purpose::Write || !slot.file.writable {
            slot.last_used = now;
        }
        slot.written |= purpose == Purpose::Write;
        Some(Arc::clone(&slot.file))
    }

    /// Keeps a file for `who`, if there is space. With a `keeper`, the file is kept for that user because it
    /// could not be opened again.
    pub(super) fn insert(
        &self,
        id: FileId,
        who: &Identity,
        file: &Arc<OpenFile>,
        keeper: Option<u32>,
        now: Instant,
    ) {
        let mut taken = Taken::default();
        let mut table = self.shared.lock();
        // The new file replaces others that permit no more.
        let (mut keeper, mut written) = (keeper, false);
        table.take_slots(&id, &mut taken, |old| {
            let replaced = old.who == *who
                && (file.readable || !old.file.readable)
                && (file.writable || !old.file.writable);
            if replaced {
                keeper = keeper.or(old.keeper);
                written |= old.written;
            }
            replaced
        });
        if self.shared.make_room(&mut table, &mut taken) {
            let slot = Slot { who: who.clone(), file: Arc::clone(file), last_used: now, written, keeper };
            table.files.entry(id).or_default().slots.push(slot);
            table.slots += 1;
            self.tend(&mut table);
        }
        drop(table);
        drop(taken);
    }

    /// Keeps an object that a caller has looked at, found by its id or by a name just now. The kernel may have decided about
    /// rights to it. A directory that can be synced has its `syncs`, and replaces one that cannot.
    pub(super) fn keep_object(
        &self,
        id: FileId,
        (object, syncs): (Object, Option<Syncs>),
        judgement: Option<Judgement>,
        room: Room,
        now: Instant,
    ) {
        let mut taken = Taken::default();
        let mut table = self.shared.lock();
        if let Some(known) = table.files.get_mut(&id).and_then(|entry| entry.looked.as_mut()) {
            (known.last_used, known.found) = (now, now);
            if syncs.is_some() {
                let better = Arc::new(LookedObject::new(object, syncs, judgement));
                taken.objects.push(std::mem::replace(&mut known.object, better));
            } else {
                known.object.note(judgement);
                // Under the lock the other descriptor stays: this one is not the last.
                drop(object);
            }
        } else if self.shared.make_room_to_look(&mut table, &mut taken, room) {
            let object = Arc::new(LookedObject::new(object, syncs, judgement));
            table.files.entry(id).or_default().looked = Some(Looked { object, last_used: now, found: now });
            table.looked += 1;
            self.tend(&mut table);
        } else if room == Room::Make {
            taken.objects.push(Arc::new(LookedObject::new(object, syncs, None)));
        } else {
            self.leave(&mut table, LookedObject::new(object, syncs, None));
        }
        drop(table);
        drop(taken);
    }

    /// Returns whether one more object could be kept, without closing others.
    pub(super) fn has_room_to_look(&self) -> bool {
        self.shared.make_room_to_look(&mut self.shared.lock(), &mut Taken::default(), Room::IfFree)
    }

    /// Leaves a value to the thread of the table.
    fn leave(&self, table: &mut Table, value: impl Leaves) {
        value.leave(&mut table.leaving);
        self.tend(table);
        if table.leaving.len() >= LEAVING {
            self.shared.ended.notify_all();
        }
    }

    /// Returns an object that a caller has looked at, and that was found less than [`FIND_AGAIN`] ago.
    pub(super) fn object(&self, id: &FileId, now: Instant) -> Option<Lent<'_, LookedObject>> {
        self.object_found_within(FIND_AGAIN, id, now)
    }

    /// Returns a directory to be changed. It has to be found again often: some file systems remove directories at once with
    /// all below, and only a search by the id shows that.
    pub(super) fn directory(&self, id: &FileId, now: Instant) -> Option<Lent<'_, LookedObject>> {
        self.object_found_within(LOOK_AT_ALL, id, now)
    }

    fn object_found_within(
        &self,
        age: Duration,
        id: &FileId,
        now: Instant,
    ) -> Option<Lent<'_, LookedObject>> {
        let mut table = self.shared.lock();
        let looked = table.files.get_mut(id)?.looked.as_mut()?;
        if now.saturating_duration_since(looked.found) >= age {
            return None;
        }
        looked.last_used = now;
        let value = Some(Arc::clone(&looked.object));
        drop(table);
        Some(Lent { files: self, value })
    }

    /// Returns a file as [`Self::get`] does, for a thread that must not wait.
    pub(super) fn get_to_read(
        &self,
        id: &FileId,
        who: &Identity,
        now: Instant,
    ) -> Option<Lent<'_, OpenFile>> {
        let value = Some(self.get(id, who, Purpose::Read, now)?);
        Some(Lent { files: self, value })
    }

    /// Keeps a file that is open for `who` to write, for the user `keeper`, because it could not be opened
    /// again. Returns whether there is one.
    pub(super) fn keep(&self, id: &FileId, who: &Identity, keeper: u32) -> bool {
        let mut table = self.shared.lock();
        let Some(entry) = table.files.get_mut(id) else { return false };
        let slot = entry.slots.iter_mut().find(|slot| slot.who == *who && slot.file.writable);
        slot.is_some_and(|slot| {
            slot.keeper = Some(keeper);
            true
        })
    }

    /// Records that this server changed the attributes of a file, under the lock of the file.
    pub(super) fn moved(&self, id: &FileId, before: &Statx, after: &Statx) {
        let (before, after) = (before.into(), after.into());
        if before == after {
            return;
        }
        let table = self.shared.lock();
        for slot in table.files.get(id).into_iter().flat_map(|entry| &entry.slots) {
            slot.file.moved(before, after);
        }
    }

    /// Closes the descriptors of a file for `who`, who has lost the right.
    pub(super) fn remove_for(&self, id: &FileId, who: &Identity) {
        let mut taken = Taken::default();
        self.shared.lock().take_slots(id, &mut taken, |slot| slot.who == *who);
    }

    /// Closes all descriptors of an object that is gone.
    pub(super) fn remove(&self, id: &FileId) {
        let mut table = self.shared.lock();
        let removed = table.files.remove(id);
        if let Some(entry) = &removed {
            table.slots -= entry.slots.len();
            table.uncommitted -= usize::from(entry.uncommitted.is_some());
            table.looked -= usize::from(entry.looked.is_some());
        }
        drop(table);
        drop(removed);
    }

    /// Begins an UNSTABLE write. `open` opens a witness if there is none yet. Returns `None` if no witness is
    /// possible; the data must then be made stable at once.
    pub(super) fn begin_unstable(
        &self,
        id: &FileId,
        now: Instant,
        open: impl FnOnce() -> Option<OpenFile>,
    ) -> Option<UnstableWrite> {
        {
            let mut table = self.shared.lock();
            if let Some(writing) = table.write_on(id, now) {
                return Some(writing);
            }
            let mut taken = Taken::default();
            let room = table.uncommitted < self.shared.capacity() / 2
                && self.shared.make_room(&mut table, &mut taken);
            drop(table);
            drop(taken);
            if !room {
                return None;
            }
        }
        let file = open()?;
        let mut table = self.shared.lock();
        if let Some(writing) = table.write_on(id, now) {
            // Another call was faster, and its witness is older than this write too.
            drop(table);
            drop(file);
            return Some(writing);
        }
        let state = Mutex::new(Writing { epoch: 1, now: 1, last: now });
        let uncommitted = Arc::new(Uncommitted { file, state });
        table.files.entry(*id).or_default().uncommitted = Some(Arc::clone(&uncommitted));
        table.uncommitted += 1;
        self.tend(&mut table);
        Some(UnstableWrite(uncommitted))
    }

    /// Returns the uncommitted data of a file, for a sync.
    pub(super) fn uncommitted(&self, id: &FileId) -> Option<Snapshot> {
        let table = self.shared.lock();
        table.files.get(id)?.uncommitted.as_ref().map(Snapshot::of)
    }

    /// Records the end of a COMMIT, whatever its result, because a failure has changed the verifier. Closes
    /// the descriptors that can write, and the witness if nothing was written since the snapshot. A file kept
    /// for its owner stays open as long as nobody could execute it.
    pub(super) fn committed(&self, id: &FileId, snapshot: Option<&Snapshot>, stat: Option<&Statx>) {
        let mut taken = Taken::default();
        let mut table = self.shared.lock();
        let witness = snapshot.and_then(|snapshot| table.settle(id, snapshot));
        let all = table.files.get(id).is_some_and(|entry| entry.uncommitted.is_none());
        let executable = all && stat.is_some_and(is_executable);
        table.take_slots(id, &mut taken, |slot| slot.file.writable && (slot.keeper.is_none() || executable));
        drop(table);
        drop((taken, witness));
    }

    /// Makes all uncommitted data stable.
    ///
    /// # Errors
    /// The first failure; the other files are synced as well.
    pub(super) fn sync_all(&self) -> Result<(), FsError> {
        let all: Vec<_> = {
            let table = self.shared.lock();
            let uncommitted = |(id, entry): (&FileId, &Entry)| {
                entry.uncommitted.as_ref().map(|uncommitted| (*id, Snapshot::of(uncommitted)))
            };
            table.files.iter().filter_map(uncommitted).collect()
        };
        let mut result = Ok(());
        for (id, snapshot) in all {
            result = result.and(self.shared.sync(&id, &snapshot));
        }
        result
    }

    /// Makes a system call that needs a descriptor. `out` recognises the error of a process without
    /// descriptors. After that error this closes kept files and repeats the call. Without kept files it waits
    /// for descriptors of other calls.
    pub(super) fn opening<T, E>(
        &self,
        out: impl Fn(&E) -> bool,
        mut call: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let mut waits = 0;
        loop {
            match call() {
                Err(error) if out(&error) => {
                    if !self.shared.relieve() {
                        if waits == WAITS {
                            return Err(error);
                        }
                        waits += 1;
                        thread::sleep(WAIT);
                    }
                }
                result => return result,
            }
        }
    }

    /// Starts a thread for the table. Only for a thread with the identity of the process, which the new
    /// thread inherits.
    fn tend(&self, table: &mut Table) {
        if table.tended || table.closed || table.untended.is_some_and(|since| since.elapsed() < TICK) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        match thread::Builder::new().name("nfs-files".to_owned()).spawn(move || shared.look_after()) {
            Ok(_) => (table.tended, table.untended) = (true, None),
            // A later call tries again; until then nothing is closed.
            Err(error) => {
                if table.untended.replace(Instant::now()).is_none() {
                    tracing::warn!(%error, "cannot start a thread that closes unused files");
                }
            }
        }
    }

    /// Returns the number of open files, without witnesses.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shared.lock().slots
    }
}

/// A descriptor of the table for a time: of an object that was looked at, of a directory to be changed, or of a file to be read.
/// If the table gives the descriptor up meanwhile, the thread of the table closes it: the borrower may be the thread of a
/// connection, which must not wait.
pub(super) struct Lent<'a, T: Leaves> {
    files: &'a OpenFiles,
    /// `Some` until the drop.
    value: Option<Arc<T>>,
}

impl<T: Leaves> Lent<'_, T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_deref()
    }
}

impl<T: Leaves> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take().and_then(Arc::into_inner) {
            self.files.leave(&mut self.files.shared.lock(), value);
        }
    }
}

/// Returns the number of descriptors of all tables, without those of this one that are about to be closed.
fn in_use(table: &Table) -> usize {
    OPEN.load(Ordering::Relaxed).saturating_sub(table.leaving.len())
}

/// Returns whether a file is not empty and anybody may execute it.
fn is_executable(stat: &Statx) -> bool {
    stat.stx_mode & ANY_EXECUTE != 0 && stat.stx_size > 0
}

/// Returns whether a system call failed because no descriptors are left.
pub(super) fn out_of_descriptors(errno: &Errno) -> bool {
    matches!(*errno, Errno::MFILE | Errno::NFILE)
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        table.closed = true;
        let files = std::mem::take(&mut table.files);
        (table.slots, table.uncommitted, table.looked) = (0, 0, 0);
        drop(table);
        self.shared.ended.notify_all();
        drop(files);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the most descriptors of all tables, as they were at the last look.
    fn allowance(&self) -> usize {
        self.allowance.load(Ordering::Relaxed)
    }

    /// Returns the most open files, and the most looked objects.
    fn capacity(&self) -> usize {
        self.capacity.min(self.allowance())
    }

    /// Frees space for one more descriptor. Returns whether there is any.
    fn make_room(&self, table: &mut Table, taken: &mut Taken) -> bool {
        let full = |table: &Table, taken: &Taken| {
            // Files in `taken` count as open until they are dropped.
            table.slots + table.uncommitted >= self.capacity()
                || in_use(table).saturating_sub(taken.len()) >= self.allowance()
        };
        while full(table, taken) {
            if table.looked > 0 && table.slots + table.uncommitted < self.capacity() {
                table.shrink_looked(table.looked / 8 + 1, taken);
            } else if table.slots == 0 {
                return false;
            } else {
                table.shrink(table.slots / 8 + 1, taken);
            }
        }
        true
    }

    /// Finds space for one more looked object. Returns whether there is any.
    fn make_room_to_look(&self, table: &mut Table, taken: &mut Taken, room: Room) -> bool {
        while table.looked >= self.capacity()
            || in_use(table).saturating_sub(taken.len()) >= self.allowance() / 2
        {
            if room == Room::IfFree || table.looked == 0 {
                return false;
            }
            table.shrink_looked(table.looked / 8 + 1, taken);
        }
        true
    }

    /// Closes some files because the process has no descriptors left. Returns whether there were any.
    fn relieve(&self) -> bool {
        let mut table = self.lock();
        let mut taken = std::mem::take(&mut table.leaving);
        if taken.len() + table.slots + table.looked > 0 {
            table.shrink_looked(usize::MAX, &mut taken);
            if taken.len() == 0 {
                table.shrink(self.capacity() / 8 + 1, &mut taken);
            }
            drop(table);
            drop(taken);
            return true;
        }
        let oldest = table.oldest_uncommitted(1).pop();
        drop(table);
        oldest.is_some_and(|(id, snapshot)| {
            let _ = self.sync(&id, &snapshot);
            true
        })
    }

    /// Makes the uncommitted data of a file stable. A failure reaches all clients through the verifier.
    fn sync(&self, id: &FileId, snapshot: &Snapshot) -> Result<(), FsError> {
        let synced = snapshot.sync();
        let witness = self.lock().settle(id, snapshot);
        drop(witness);
        synced
    }

    /// Runs on the thread of the table, until no file is kept.
    fn look_after(self: Arc<Self>) {
        let (syncing, closing) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        loop {
            {
                let mut table = self.lock();
                if table.closed || (table.files.is_empty() && table.leaving.len() == 0) {
                    table.tended = false;
                    return;
                }
                table = self
                    .ended
                    .wait_timeout(table, TICK)
                    .map_or_else(|error| error.into_inner().0, |(table, _)| table);
                drop(table);
            }
            let aged = self.sweep(Instant::now());
            self.close_leaving(&closing);
            // A sync that panicked has ended.
            if aged.is_empty() || matches!(syncing.try_lock(), Err(TryLockError::WouldBlock)) {
                continue;
            }
            // The storage may be slow, and programs must become executable meanwhile.
            let (shared, syncing) = (Arc::clone(&self), Arc::clone(&syncing));
            let sync = move || {
                let _one_at_a_time = syncing.lock();
                for (id, snapshot) in aged {
                    let _ = shared.sync(&id, &snapshot);
                }
            };
            if let Err(error) = thread::Builder::new().name("nfs-sync".to_owned()).spawn(sync) {
                tracing::warn!(%error, "cannot start a thread that syncs uncommitted data");
            }
        }
    }

    /// Closes the descriptors that were left to the thread of the table. Another thread does so, of which there is one at a
    /// time: the space of a large file takes long to free.
    fn close_leaving(&self, closing: &Arc<Mutex<()>>) {
        if matches!(closing.try_lock(), Err(TryLockError::WouldBlock)) {
            return;
        }
        let leaving = std::mem::take(&mut self.lock().leaving);
        if leaving.len() == 0 {
            return;
        }
        let closing = Arc::clone(closing);
        let close = move || {
            let _one_at_a_time = closing.lock();
            drop(leaving);
        };
        if let Err(error) = thread::Builder::new().name("nfs-close".to_owned()).spawn(close) {
            tracing::warn!(%error, "cannot start a thread that closes files");
        }
    }

    /// Closes files that were idle for too long, and finds those that were removed. Returns the uncommitted data to be made
    /// stable now.
    fn sweep(&self, now: Instant) -> Vec<(FileId, Snapshot)> {
        let mut taken = Taken::default();
        // Somebody may have changed the limit of the process.
        self.allowance.store(allowance(), Ordering::Relaxed);
        let mut table = self.lock();
        // Tables with many files that are read leave some descriptors to others.
        let crowd = in_use(&table) >= self.allowance() / 4 * 3;
        let idle = |slot: &Slot| {
            let limit = match slot.keeper {
                Some(_) => KEPT_IDLE,
                None if slot.only_reads() && !crowd => READ_IDLE,
                None => IDLE,
            };
            now.saturating_duration_since(slot.last_used) >= limit
        };
        table.take_all_slots(&mut taken, |slot, _| idle(slot));
        let is_due = |last: Option<Instant>, interval| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= interval)
        };
        let all = is_due(table.last_look_at_all, LOOK_AT_ALL);
        let look = all || is_due(table.last_look, LOOK);
        if look {
            table.last_look = Some(now);
            if let Some(limit) = now.checked_sub(READ_IDLE) {
                table.take_looked_until(limit, &mut taken);
            }
        }
        if all {
            table.last_look_at_all = Some(now);
        }
        let lasting = if look { table.lasting(all) } else { Vec::new() };
        let crowded = table.uncommitted >= (self.capacity() / 2).max(1);
        let wanted = if crowded { table.uncommitted / 4 + 1 } else { usize::MAX };
        let mut aged = table.oldest_uncommitted(wanted);
        if !crowded {
            aged.retain(|(_, snapshot)| {
                now.saturating_duration_since(snapshot.uncommitted.state().last) >= UNCOMMITTED_IDLE
            });
        }
        drop(table);
        drop(taken);
        self.look_at(lasting);
        aged
    }

    /// Closes long-lived files that were removed or can be executed.
    fn look_at(&self, files: Vec<Lasting>) {
        for lasting in files {
            let Some(stat) = lasting.stat() else { continue };
            if stat.stx_nlink > 0 && lasting.hinders_nobody() {
                continue;
            }
            let mut table = self.lock();
            let witness = match &lasting {
                _ if stat.stx_nlink == 0 => {
                    let id = lasting.id();
                    let mut taken = std::mem::take(&mut table.leaving);
                    table.take_slots(id, &mut taken, |_| true);
                    table.take_looked(id, &mut taken);
                    table.leaving = taken;
                    table.files.get(id).and_then(|entry| entry.uncommitted.clone()).and_then(|uncommitted| {
                        // The data of a removed file is not needed.
                        table.settle(id, &Snapshot::of(&uncommitted))
                    })
                }
                // Or its owner could open the file again.
                Lasting::Kept(id, file)
                    if is_executable(&stat) || stat.stx_mode & OWNER_READ_WRITE == OWNER_READ_WRITE =>
                {
                    if let Some(entry) = table.files.get_mut(id)
                        && entry.uncommitted.is_none()
                    {
                        for slot in entry.slots.iter_mut().filter(|slot| Arc::ptr_eq(&slot.file, file)) {
                            slot.keeper = None;
                        }
                    }
                    None
                }
                _ => None,
            };
            drop(table);
            drop(witness);
        }
    }
}

#[cfg(test)]
mod tests;
