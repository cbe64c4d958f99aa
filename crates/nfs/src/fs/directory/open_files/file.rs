//! Open regular files, and the checks of the rights to them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, Statx};
use rustix::process::{Resource, getrlimit};

use crate::fs::directory::storage::{Losses, Reach, Storage, Syncs};
use crate::fs::types::FsError;

/// Time for which a check of rights is valid.
pub(super) const RECHECK: Duration = Duration::from_secs(1);
/// Time for which it is valid if every later change of the rights shows in the time of change.
const RECHECK_SETTLED: Duration = Duration::from_secs(60);
/// Age that the last change has to have for that, at the check. Later changes have another time then: file systems take
/// it from a clock that ticks each few milliseconds, and some keep whole seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// Returns the time for which a check is valid on this thread: tests of what is in memory do not depend on their speed.
fn recheck() -> Duration {
    #[cfg(test)]
    return RECHECK_HERE.get();
    #[cfg(not(test))]
    RECHECK
}

#[cfg(test)]
thread_local! {
    pub(crate) static RECHECK_HERE: std::cell::Cell<Duration> = const { std::cell::Cell::new(RECHECK) };
}

/// Descriptors kept by all tables of this process.
pub(super) static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the most descriptors that all tables may keep.
pub(super) fn allowance() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 2).unwrap_or(usize::MAX)
}

/// Use that a call makes of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs::directory) enum Purpose {
    Read,
    Write,
}

/// Attributes that determine the rights to a file. A change of an access control list changes the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    mode: u16,
    owner: u32,
    group: u32,
    changed: (i64, u32),
}

impl From<&Statx> for Rights {
    fn from(stat: &Statx) -> Self {
        Self {
            mode: stat.stx_mode,
            owner: stat.stx_uid,
            group: stat.stx_gid,
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }
}

/// A check of rights.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs::directory) struct Checked {
    rights: Rights,
    at: Instant,
    /// Whether every later change shows in the time of change.
    settled: bool,
}

impl Checked {
    /// Returns a check of an object, on a local file system or another one. It began at `at`.
    pub(in crate::fs::directory) fn new(stat: &Statx, local: bool, at: Instant) -> Self {
        let changed = u64::try_from(stat.stx_ctime.tv_sec)
            .ok()
            .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::new(seconds, stat.stx_ctime.tv_nsec)));
        // A pause since then, of the thread or of the machine, makes the change no older.
        let began = SystemTime::now().checked_sub(at.elapsed());
        let age = changed.and_then(|changed| began?.duration_since(changed).ok());
        let settled = local && age.is_some_and(|age| age >= SETTLED);
        Self { rights: stat.into(), at, settled }
    }

    pub(super) fn is_valid(&self, stat: &Statx, now: Instant) -> bool {
        let limit = if self.settled { RECHECK_SETTLED } else { recheck() };
        self.rights == Rights::from(stat) && now.saturating_duration_since(self.at) < limit
    }
}

#[derive(Debug, Default)]
struct Checks {
    read: Option<Checked>,
    write: Option<Checked>,
}

impl Checks {
    fn of(&mut self, purpose: Purpose) -> &mut Option<Checked> {
        match purpose {
            Purpose::Read => &mut self.read,
            Purpose::Write => &mut self.write,
        }
    }
}

/// An open regular file. It is counted, and closed through the storage.
#[derive(Debug)]
pub(in crate::fs::directory) struct OpenFile {
    /// `Some` until the drop.
    fd: Option<OwnedFd>,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether the file is on a local file system.
    local: bool,
    storage: Storage,
    syncs: Syncs,
    checks: Mutex<Checks>,
}

impl OpenFile {
    /// Wraps a file that was opened just now, with attributes from before. `local`: it is on a local file system.
    pub(in crate::fs::directory) fn new(
        fd: OwnedFd,
        (readable, writable): (bool, bool),
        stat: &Statx,
        storage: &Storage,
        local: bool,
        now: Instant,
    ) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        let checked = Some(Checked::new(stat, local, now));
        let checks = Checks { read: checked.filter(|_| readable), write: checked.filter(|_| writable) };
        let (storage, syncs) = (storage.clone(), Syncs::default());
        Self { fd: Some(fd), readable, writable, local, storage, syncs, checks: Mutex::new(checks) }
    }

    /// Returns the failures of the storage reported to this descriptor up to now.
    pub(in crate::fs::directory) fn losses(&self) -> Losses {
        self.syncs.losses()
    }

    /// Makes all data stable that was written before this call. `since` was read before the caller's first
    /// byte.
    ///
    /// # Errors
    /// A failure of the storage, including one reported to another call since then.
    pub(in crate::fs::directory) fn sync(&self, reach: Reach, since: Losses) -> Result<(), FsError> {
        self.storage.sync_shared(self, reach, &self.syncs, since)
    }

    fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the last check of the rights is still valid, and the file has a name.
    pub(in crate::fs::directory) fn is_current(&self, purpose: Purpose, stat: &Statx, now: Instant) -> bool {
        let checked = *self.checks().of(purpose);
        stat.stx_nlink > 0 && checked.is_some_and(|checked| checked.is_valid(stat, now))
    }

    /// Records a new check of the rights.
    pub(in crate::fs::directory) fn confirm(&self, purpose: Purpose, stat: &Statx, now: Instant) {
        *self.checks().of(purpose) = Some(Checked::new(stat, self.local, now));
    }

    /// Records a change by this server, which needs no new check.
    pub(super) fn moved(&self, before: Rights, after: Rights) {
        let mut checks = self.checks();
        for purpose in [Purpose::Read, Purpose::Write] {
            if let Some(checked) = checks.of(purpose)
                && checked.rights == before
            {
                (checked.rights, checked.settled) = (after, false);
            }
        }
    }

    pub(super) const fn is_local(&self) -> bool {
        self.local
    }

    pub(super) fn serves(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Read => self.readable,
            Purpose::Write => self.writable,
        }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // The other descriptor cannot be used to read, write or sync.
        self.fd.as_ref().map_or(CWD, AsFd::as_fd)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        match self.fd.take() {
            Some(fd) if self.writable => self.storage.close(fd),
            fd => drop(fd),
        }
    }
}
