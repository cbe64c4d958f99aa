//! Local incomplete files that a later copy continues: one copy at a time writes each of them.
//!
//! *Lock.* Every copy of one source to one name finds the same incomplete file. So a copy locks the file (flock) until
//! the file has its final name. Without the lock, a slow copy could cut off what a fast one has written, or write to
//! the file after its rename. A copy that was given up may still write for a moment, so the next one waits for
//! [`WAIT`] at most. Then it makes a file of its own, which no later copy continues. A file system without
//! locks does not keep two copies apart.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Statx, flock, openat, unlinkat};
use rustix::io::Errno;

use super::attributes::{FileId, id_of, is_type, stat_of};
use super::names::Spot;

/// Time for which a copy waits for another one that writes the incomplete file.
pub(super) const WAIT: Duration = Duration::from_secs(1);
/// Time between two attempts to lock an incomplete file.
const PAUSE: Duration = Duration::from_millis(10);

/// Lock of an incomplete file, until the drop.
pub(super) struct Held {
    pub(super) id: FileId,
    /// A duplicate of the descriptor, so that the lock outlives the close of the file.
    _lock: OwnedFd,
}

/// An incomplete file, open and locked.
pub(super) struct Part {
    pub(super) file: File,
    /// Length of the content that an earlier copy left, in bytes.
    pub(super) length: u64,
    pub(super) held: Held,
}

impl Part {
    fn new(file: File, stat: &Statx) -> io::Result<Self> {
        let held = Held { id: id_of(stat), _lock: file.try_clone()?.into() };
        Ok(Self { file, length: stat.stx_size, held })
    }
}

/// Rules for the incomplete file of one source.
pub(super) struct Rules {
    /// Length of the source in bytes: no incomplete file is longer.
    pub(super) size: u64,
    /// Effective user of this process.
    pub(super) user: u32,
    /// Owner of the file that the copy replaces; incomplete files of this owner are continued too.
    pub(super) owner: Option<u32>,
    /// Mode of a new file.
    pub(super) mode: Mode,
}

/// Opens the incomplete file of an earlier copy, or makes one. Waits for another copy that writes it, for `wait` at
/// most, and then returns `None`. Removes an object that no copy has left.
pub(super) fn open(spot: &Spot, rules: &Rules, wait: Duration) -> io::Result<Option<Part>> {
    let deadline = Instant::now() + wait;
    loop {
        let part = attempt(spot, rules)?;
        if part.is_some() || Instant::now() >= deadline {
            return Ok(part);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns `None` if another copy has the file, or has just had it.
fn attempt(spot: &Spot, rules: &Rules) -> io::Result<Option<Part>> {
    match spot.existing()? {
        Some(there) => take(spot, &there, rules),
        None => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // A later copy of this user has to open the file, whatever its final mode.
            match openat(&*spot.dir.fd()?, &spot.name, flags, rules.mode | Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => Ok(None),
                made => {
                    let file = File::from(made?);
                    // The file system may give it another owner.
                    let locked = lock(spot, &file)?;
                    locked.map(|stat| Part::new(file, &stat)).transpose()
                }
            }
        }
    }
}

/// Opens the incomplete file of an earlier copy. Removes an object that no such copy has left.
fn take(spot: &Spot, there: &Statx, rules: &Rules) -> io::Result<Option<Part>> {
    let dir = spot.dir.fd()?;
    let open = |access| {
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        openat(&*dir, &spot.name, flags, Mode::empty()).map(File::from)
    };
    if is_type(there, FileType::RegularFile) {
        if let Ok(file) = open(OFlags::WRONLY) {
            return part_of(spot, file, rules);
        }
        // A copy that is nearly complete has taken the right to write off its file.
        if let Ok(file) = open(OFlags::RDONLY)
            && lock(spot, &file)?.is_none()
        {
            return Ok(None);
        }
    }
    discard(spot)
}

/// Removes an object, so that the next attempt makes a new file.
fn discard(spot: &Spot) -> io::Result<Option<Part>> {
    match unlinkat(&*spot.dir.fd()?, &spot.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes an open file, or removes it if no copy of this source has left it. Returns `None` if another copy has it.
fn part_of(spot: &Spot, file: File, rules: &Rules) -> io::Result<Option<Part>> {
    let Some(stat) = lock(spot, &file)? else { return Ok(None) };
    if !is_continued(&stat, rules) {
        return discard(spot);
    }
    Part::new(file, &stat).map(Some)
}

/// Locks an open file, and returns its attributes. Returns `None` if another copy has the file, or has just given it
/// its final name.
fn lock(spot: &Spot, file: &File) -> io::Result<Option<Statx>> {
    // Any other error means that the file system has no locks.
    if flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    let stat = stat_of(file)?;
    let same = spot.existing()?.is_some_and(|there| id_of(&there) == id_of(&stat));
    Ok(same.then_some(stat))
}

fn is_continued(stat: &Statx, rules: &Rules) -> bool {
    let ours = stat.stx_uid == rules.user || Some(stat.stx_uid) == rules.owner;
    is_type(stat, FileType::RegularFile) && stat.stx_nlink == 1 && stat.stx_size <= rules.size && ours
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::client::tree::local::names::spot_of;

    fn rules() -> Rules {
        let user = rustix::process::geteuid().as_raw();
        Rules { size: 10, user, owner: None, mode: Mode::RUSR | Mode::WUSR }
    }

    /// The copy that waits gets what the other one left, and only after its lock.
    #[test]
    fn one_copy_at_a_time_writes_an_incomplete_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("part");
        let spot = spot_of(&path).unwrap();
        let mut first = open(&spot, &rules(), WAIT).unwrap().unwrap();
        assert_eq!(first.length, 0);
        first.file.write_all(b"12345").unwrap();
        // The lock outlives the file, which has to be closed before the rename.
        drop(first.file);
        // A locked file is not removed either, even one that would not be continued.
        for rules in [rules(), Rules { size: 2, ..rules() }] {
            assert!(open(&spot, &rules, Duration::ZERO).unwrap().is_none());
        }
        drop(first.held);
        assert_eq!(open(&spot, &rules(), Duration::ZERO).unwrap().unwrap().length, 5);
        assert_eq!(open(&spot, &Rules { size: 2, ..rules() }, WAIT).unwrap().unwrap().length, 0);
    }

    /// FAT, and a server that squashes users, give a new file another owner. It is used, but not continued.
    #[test]
    fn a_new_file_is_used_whatever_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let spot = spot_of(&place.path().join("part")).unwrap();
        let rules = Rules { user: rules().user + 1, ..rules() };
        let mut first = open(&spot, &rules, Duration::ZERO).unwrap().unwrap();
        first.file.write_all(b"12345").unwrap();
        drop(first);
        assert_eq!(open(&spot, &rules, WAIT).unwrap().unwrap().length, 0);
    }

    /// The file that a copy waited for may be the complete file by then.
    #[test]
    fn a_file_that_got_its_name_meanwhile_is_not_continued() {
        let place = tempfile::tempdir().unwrap();
        let spot = spot_of(&place.path().join("part")).unwrap();
        let first = open(&spot, &rules(), WAIT).unwrap().unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| open(&spot, &rules(), Duration::from_secs(60)).unwrap().unwrap());
            std::fs::rename(place.path().join("part"), place.path().join("whole")).unwrap();
            let id = first.held.id;
            drop(first);
            assert_ne!(second.join().unwrap().held.id, id);
        });
    }
}
