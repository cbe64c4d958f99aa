//! Files kept open between READs and WRITEs, so that one costs one system call and its attributes.
//!
//! A file is open *for somebody*: the kernel checked that identity's rights when it was opened, and only that
//! identity uses it. If owner, group or mode have changed since, it is opened anew; an access control list that
//! changes without a change of the mode is noticed when the entry is dropped. Bounded: the least recently used
//! eighth goes when the table is full. A descriptor that is in use stays open until its user is done.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::Statx;

use crate::fs::types::{FileId, Identity};

/// An open regular file.
#[derive(Debug)]
pub(super) struct OpenFile {
    fd: OwnedFd,
    readable: bool,
    writable: bool,
    /// Mode, owner and group when it was opened.
    rights: (u16, u32, u32),
}

fn rights(stat: &Statx) -> (u16, u32, u32) {
    (stat.stx_mode, stat.stx_uid, stat.stx_gid)
}

impl OpenFile {
    pub(super) fn new(fd: OwnedFd, readable: bool, writable: bool, stat: &Statx) -> Self {
        Self { fd, readable, writable, rights: rights(stat) }
    }

    /// Whether it still stands for what the opening checked: same rights, and the file has a name.
    pub(super) fn is_current(&self, stat: &Statx) -> bool {
        self.rights == rights(stat) && stat.stx_nlink > 0
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What an open file is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

#[derive(Debug)]
struct Slot {
    who: Identity,
    file: Arc<OpenFile>,
    last_used: u64,
}

impl Slot {
    fn serves(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Read => self.file.readable,
            Purpose::Write => self.file.writable,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<FileId, Vec<Slot>>,
    count: usize,
    clock: u64,
}

/// The table.
#[derive(Debug)]
pub(super) struct OpenFiles {
    capacity: usize,
    table: Mutex<Table>,
}

impl OpenFiles {
    /// A table of at most `capacity` files.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file that is open for `who`.
    pub(super) fn get(&self, id: &FileId, who: &Identity, purpose: Purpose) -> Option<Arc<OpenFile>> {
        let mut table = self.lock();
        table.clock += 1;
        let clock = table.clock;
        let slot =
            table.files.get_mut(id)?.iter_mut().find(|slot| slot.who == *who && slot.serves(purpose))?;
        slot.last_used = clock;
        Some(Arc::clone(&slot.file))
    }

    /// Keeps a file for `who`.
    pub(super) fn insert(&self, id: FileId, who: &Identity, file: &Arc<OpenFile>) {
        let mut table = self.lock();
        table.clock += 1;
        let slot = Slot { who: who.clone(), file: Arc::clone(file), last_used: table.clock };
        // What the new one can do too is not needed any more.
        let slots = table.files.entry(id).or_default();
        let before = slots.len();
        slots.retain(|old| {
            old.who != *who || (old.file.readable && !file.readable) || (old.file.writable && !file.writable)
        });
        let gone = before - slots.len();
        slots.push(slot);
        table.count = table.count + 1 - gone;
        if table.count > self.capacity {
            table.shrink(self.capacity / 8 + 1);
        }
    }

    /// Closes whatever is open of an object.
    pub(super) fn remove(&self, id: &FileId) {
        let mut table = self.lock();
        if let Some(slots) = table.files.remove(id) {
            table.count -= slots.len();
        }
    }

    /// Closes the least recently used eighth, because the process has no descriptors left. Whether there was any.
    pub(super) fn relieve(&self) -> bool {
        let mut table = self.lock();
        let any = table.count > 0;
        if any {
            table.shrink(self.capacity / 8 + 1);
        }
        any
    }

    /// How many files are open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().count
    }
}

impl Table {
    /// Drops the `number` least recently used.
    fn shrink(&mut self, number: usize) {
        let mut ages: Vec<u64> = self.files.values().flatten().map(|slot| slot.last_used).collect();
        let index = number.min(ages.len()).saturating_sub(1);
        let (_, limit, _) = ages.select_nth_unstable(index);
        let limit = *limit;
        self.files.retain(|_, slots| {
            slots.retain(|slot| slot.last_used > limit);
            !slots.is_empty()
        });
        self.count = self.files.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::convert::stat;
    use super::*;

    fn id(number: u8) -> FileId {
        FileId::from_array(&[number])
    }

    fn open(readable: bool, writable: bool) -> Arc<OpenFile> {
        let file = File::open("/dev/null").unwrap();
        let stat = stat(&file).unwrap();
        Arc::new(OpenFile::new(file.into(), readable, writable, &stat))
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_go() {
        let files = OpenFiles::new(16);
        let who = Identity::superuser();
        for number in 0..100 {
            files.insert(id(number), &who, &open(true, false));
            // The first is used all the time.
            assert!(number == 0 || files.get(&id(0), &who, Purpose::Read).is_some());
            assert!(files.len() <= 16);
        }
        assert!(files.get(&id(99), &who, Purpose::Read).is_some());
        assert!(files.get(&id(50), &who, Purpose::Read).is_none());
    }

    #[test]
    fn files_are_closed_when_descriptors_run_out() {
        let files = OpenFiles::new(16);
        assert!(!files.relieve());
        for number in 0..10 {
            files.insert(id(number), &Identity::superuser(), &open(true, false));
        }
        assert!(files.relieve());
        assert_eq!(files.len(), 7);
        assert!(files.get(&id(9), &Identity::superuser(), Purpose::Read).is_some());
        while files.relieve() {}
        assert_eq!(files.len(), 0);
    }

    #[test]
    fn an_open_file_serves_its_identity_and_its_purpose() {
        let files = OpenFiles::new(16);
        let root = Identity::superuser();
        let other = Identity { uid: 1, gid: 1, groups: Vec::new() };
        files.insert(id(1), &root, &open(true, false));
        assert!(files.get(&id(1), &other, Purpose::Read).is_none());
        assert!(files.get(&id(1), &root, Purpose::Write).is_none());
        files.insert(id(1), &root, &open(true, true));
        assert_eq!(files.len(), 1, "one for both replaces one for reading");
        files.remove(&id(1));
        assert_eq!(files.len(), 0);
    }
}
