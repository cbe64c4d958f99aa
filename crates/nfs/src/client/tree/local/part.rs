//! Local incomplete files that a later copy continues: one copy at a time writes each of them.
//!
//! *Lock.* Every copy of one source to one name finds the same incomplete file. So a copy locks the file (flock) until
//! the file has its final name. Without the lock, a slow copy could cut off what a fast one has written, or write to
//! the file after its rename. A copy that was given up may still write for a moment, so the next one waits for
//! [`WAIT`]. On a file system without locks two copies at one time are not kept apart.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Statx, flock, openat, unlinkat};
use rustix::io::Errno;

use super::attributes::{FileId, id_of, is_type, stat_of};
use super::names::Spot;

/// Time for which a copy waits for another one that writes the incomplete file.
pub(super) const WAIT: Duration = Duration::from_secs(2);
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

/// Rules for the incomplete file of one source.
pub(super) struct Rules {
    /// Length of the source in bytes: no incomplete file is longer.
    pub(super) size: u64,
    /// Owner of the file that the copy replaces; incomplete files of this owner are continued too.
    pub(super) owner: Option<u32>,
    /// Mode of a new file.
    pub(super) mode: Mode,
}

/// Opens the incomplete file of an earlier copy, or makes one. Waits for another copy that writes it, for `wait` at
/// most. Removes an object that no copy has left.
pub(super) fn open(spot: &Spot, rules: &Rules, wait: Duration) -> io::Result<Part> {
    let deadline = Instant::now() + wait;
    loop {
        if let Some(part) = attempt(spot, rules)? {
            return Ok(part);
        }
        if Instant::now() >= deadline {
            let reason = "another copy writes this file now (its incomplete file is locked)";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns `None` if another copy has the file, or has just had it.
fn attempt(spot: &Spot, rules: &Rules) -> io::Result<Option<Part>> {
    let file = match earlier(spot, rules)? {
        Some(file) => file,
        None => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match openat(&*spot.dir.fd()?, &spot.name, flags, rules.mode) {
                Err(Errno::EXIST) => return Ok(None),
                made => File::from(made?),
            }
        }
    };
    // Any other error means that the file system has no locks.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    // The copy that had the lock may have given the file its final name, or removed it.
    let stat = stat_of(&file)?;
    let id = id_of(&stat);
    if spot.existing()?.is_none_or(|there| id_of(&there) != id) {
        return Ok(None);
    }
    let held = Held { id, _lock: file.try_clone()?.into() };
    Ok(Some(Part { file, length: stat.stx_size, held }))
}

/// Opens the incomplete file of an earlier copy. Removes an object that no such copy has left.
fn earlier(spot: &Spot, rules: &Rules) -> io::Result<Option<File>> {
    let Some(there) = spot.existing()? else { return Ok(None) };
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let dir = spot.dir.fd()?;
    if is_type(&there, FileType::RegularFile)
        && let Ok(file) = openat(&*dir, &spot.name, flags, Mode::empty()).map(File::from)
        && is_continued(&stat_of(&file)?, rules)
    {
        return Ok(Some(file));
    }
    match unlinkat(&*dir, &spot.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_continued(stat: &Statx, rules: &Rules) -> bool {
    let ours = stat.stx_uid == rustix::process::geteuid().as_raw() || Some(stat.stx_uid) == rules.owner;
    is_type(stat, FileType::RegularFile) && stat.stx_nlink == 1 && stat.stx_size <= rules.size && ours
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::client::tree::local::names::spot_of;

    const RULES: Rules = Rules { size: 10, owner: None, mode: Mode::RUSR.union(Mode::WUSR) };

    /// The copy that waits gets what the other one left, and only after its lock.
    #[test]
    fn one_copy_at_a_time_writes_an_incomplete_file() {
        let place = tempfile::tempdir().unwrap();
        let spot = spot_of(&place.path().join("part")).unwrap();
        let mut first = open(&spot, &RULES, WAIT).unwrap();
        assert_eq!(first.length, 0);
        first.file.write_all(b"12345").unwrap();
        // The lock outlives the file, which has to be closed before the rename.
        drop(first.file);
        let Err(error) = open(&spot, &RULES, Duration::ZERO) else { panic!("two copies have the file") };
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        drop(first.held);
        assert_eq!(open(&spot, &RULES, Duration::ZERO).unwrap().length, 5);
    }

    /// The file that a copy waited for may be the complete file by then.
    #[test]
    fn a_file_that_got_its_name_meanwhile_is_not_continued() {
        let place = tempfile::tempdir().unwrap();
        let spot = spot_of(&place.path().join("part")).unwrap();
        let first = open(&spot, &RULES, WAIT).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| open(&spot, &RULES, Duration::from_secs(60)).unwrap());
            std::fs::rename(place.path().join("part"), place.path().join("whole")).unwrap();
            let id = first.held.id;
            drop(first);
            let second = second.join().unwrap();
            assert_ne!(second.held.id, id);
        });
    }
}
