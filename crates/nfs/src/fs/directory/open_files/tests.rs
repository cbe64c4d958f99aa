//! Tests of the table, with a clock of their own.

use std::fs::{File, OpenOptions};

use super::super::convert::stat;
use super::super::storage::tests::Faulty;
use super::super::storage::{Reach, Storage};
use super::super::verifier::WriteVerifier;
use super::*;

impl OpenFiles {
    /// Closes idle files, as a long time without a call would.
    pub(in super::super) fn close_idle(&self) {
        let mut taken = Taken::new();
        self.shared.lock().take_all_slots(&mut taken, |slot, _| slot.keeper.is_none());
        drop(taken);
    }
}

struct Bed {
    device: Arc<Faulty>,
    storage: Storage,
    files: OpenFiles,
    place: tempfile::TempDir,
    start: Instant,
}

fn id(number: u8) -> FileId {
    FileId::from_array(&[number])
}

fn who(uid: u32) -> Identity {
    Identity { uid, gid: uid, groups: Vec::new() }
}

impl Bed {
    fn new(capacity: usize) -> Self {
        let device = Arc::new(Faulty::default());
        let storage = Storage::on(Arc::clone(&device) as Arc<_>, WriteVerifier::default());
        let files = OpenFiles::new(capacity);
        // The test controls the clock, so no thread runs.
        files.shared.lock().tended = true;
        // Ahead of the real clock, which gives the end of writes.
        let start = Instant::now() + Duration::from_secs(1000);
        Self { device, storage, files, place: tempfile::tempdir().unwrap(), start }
    }

    fn after(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn path(&self, number: u8) -> std::path::PathBuf {
        self.place.path().join(number.to_string())
    }

    fn file(&self, number: u8) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(self.path(number)).unwrap()
    }

    fn open(&self, number: u8, readable: bool, writable: bool) -> Arc<OpenFile> {
        self.open_as(self.file(number), readable, writable)
    }

    fn open_as(&self, file: File, readable: bool, writable: bool) -> Arc<OpenFile> {
        let stat = stat(&file).unwrap();
        Arc::new(OpenFile::new(file.into(), (readable, writable), &stat, &self.storage, self.start))
    }

    fn insert(&self, number: u8, readable: bool, writable: bool, now: Instant) {
        self.files.insert(id(number), &who(0), &self.open(number, readable, writable), None, now);
    }

    fn has(&self, number: u8, purpose: Purpose, now: Instant) -> bool {
        self.files.get(&id(number), &who(0), purpose, now).is_some()
    }

    fn begin(&self, number: u8, now: Instant) -> Option<UnstableWrite> {
        drop(OpenOptions::new().append(true).create(true).open(self.path(number)));
        self.files.begin_unstable(&id(number), now, || {
            let file = File::open(self.path(number)).unwrap();
            let stat = stat(&file).unwrap();
            Some(OpenFile::new(file.into(), (true, false), &stat, &self.storage, now))
        })
    }

    fn is_uncommitted(&self, number: u8) -> bool {
        self.files.uncommitted(&id(number)).is_some()
    }

    /// Sweeps, and syncs the data found. Returns the number of these files.
    fn sweep(&self, now: Instant) -> usize {
        let aged = self.files.shared.sweep(now);
        for (id, snapshot) in &aged {
            let _ = self.files.shared.sync(id, snapshot);
        }
        aged.len()
    }
}

#[test]
fn the_table_is_bounded_and_the_oldest_go() {
    let bed = Bed::new(16);
    for number in 0..100 {
        let now = bed.after(f64::from(number));
        bed.insert(number, true, false, now);
        // The first file is used all the time.
        assert!(number == 0 || bed.has(0, Purpose::Read, now));
        assert!(bed.files.len() <= 16);
    }
    assert!(bed.has(99, Purpose::Read, bed.after(100.0)));
    assert!(!bed.has(50, Purpose::Read, bed.after(100.0)));
}

#[test]
fn files_are_closed_when_descriptors_run_out() {
    let bed = Bed::new(16);
    assert!(!bed.files.shared.relieve());
    for number in 0..10 {
        bed.insert(number, true, false, bed.after(f64::from(number)));
    }
    let _ = (bed.begin(20, bed.start).unwrap(), bed.begin(21, bed.start).unwrap());
    let mut left = 5;
    let opened = bed.files.opening(out_of_descriptors, || {
        left -= 1;
        if left > 0 { Err(Errno::MFILE) } else { Ok(bed.files.len()) }
    });
    assert_eq!(opened, Ok(0));
    // Then uncommitted data is made stable, one file after the other.
    assert!(bed.files.shared.relieve());
    assert_eq!(*bed.device.synced.lock().unwrap(), [Reach::File]);
    while bed.files.shared.relieve() {}
    assert_eq!(bed.device.synced.lock().unwrap().len(), 2);
    assert!(bed.files.shared.lock().files.is_empty());
    // Another error has no such effect.
    assert_eq!(bed.files.opening(out_of_descriptors, || Err::<(), _>(Errno::ACCESS)), Err(Errno::ACCESS));
    // With nothing left to close, the call waits for others, for a limited time.
    let mut calls = 0;
    let opened = bed.files.opening(out_of_descriptors, || {
        calls += 1;
        if calls < 10 { Err(Errno::NFILE) } else { Ok(()) }
    });
    assert_eq!(opened, Ok(()));
    assert_eq!(bed.files.opening(out_of_descriptors, || Err::<(), _>(Errno::MFILE)), Err(Errno::MFILE));
}

#[test]
fn an_open_file_serves_its_identity_and_its_purpose() {
    let bed = Bed::new(16);
    let now = bed.start;
    bed.insert(1, true, false, now);
    assert!(bed.files.get(&id(1), &who(1), Purpose::Read, now).is_none());
    assert!(!bed.has(1, Purpose::Write, now));
    bed.insert(1, true, true, now);
    assert_eq!(bed.files.len(), 1, "one for both replaces one for reading");
    bed.files.remove_for(&id(1), &who(1));
    assert_eq!(bed.files.len(), 1);
    bed.files.remove(&id(1));
    assert_eq!(bed.files.len(), 0);
}

#[test]
fn what_is_idle_is_closed_within_a_second() {
    let bed = Bed::new(16);
    bed.insert(1, true, true, bed.start);
    bed.insert(2, true, false, bed.start);
    for tenth in 1..=30 {
        let now = bed.after(f64::from(tenth) / 10.0);
        bed.sweep(now);
        // Only the right to read is used, of both.
        let open = bed.has(1, Purpose::Read, now);
        assert_eq!(open, now < bed.start + IDLE, "{tenth}");
        assert!(bed.has(2, Purpose::Read, now));
    }
    assert!(IDLE + TICK <= Duration::from_secs(1));
    bed.sweep(bed.after(3.8));
    assert_eq!(bed.files.len(), 0);
}

#[test]
fn rights_are_checked_anew_after_a_second_or_a_change() {
    let bed = Bed::new(16);
    let file = bed.open(1, true, true);
    let mut stat = stat(&*file).unwrap();
    for purpose in [Purpose::Read, Purpose::Write] {
        assert!(file.is_current(purpose, &stat, bed.after(0.9)));
        assert!(!file.is_current(purpose, &stat, bed.after(1.0)));
    }
    // Each right is checked by itself.
    file.confirm(Purpose::Read, &stat, bed.after(1.0));
    assert!(file.is_current(Purpose::Read, &stat, bed.after(1.9)));
    assert!(!file.is_current(Purpose::Write, &stat, bed.after(1.9)));
    let before = stat;
    stat.stx_ctime.tv_nsec ^= 1;
    assert!(!file.is_current(Purpose::Read, &stat, bed.after(1.1)));
    // A change by this server is known, and prolongs no life.
    bed.files.insert(id(1), &who(0), &file, None, bed.start);
    bed.files.moved(&id(1), &before, &stat);
    assert!(file.is_current(Purpose::Read, &stat, bed.after(1.1)));
    assert!(!file.is_current(Purpose::Read, &stat, bed.after(2.0)));
    stat.stx_nlink = 0;
    assert!(!file.is_current(Purpose::Read, &stat, bed.after(1.1)), "no name");
}

#[test]
fn what_is_written_during_a_sync_stays_uncommitted() {
    let bed = Bed::new(16);
    drop(bed.begin(1, bed.start).unwrap());
    let snapshot = bed.files.uncommitted(&id(1)).unwrap();
    let writing = bed.begin(1, bed.start).unwrap();
    bed.files.committed(&id(1), Some(&snapshot), None);
    assert!(bed.is_uncommitted(1));
    // A COMMIT that begins while the write is in progress covers no part of it.
    let snapshot = bed.files.uncommitted(&id(1)).unwrap();
    bed.files.committed(&id(1), Some(&snapshot), None);
    assert!(bed.is_uncommitted(1));
    drop(writing);
    // Not even after the write has ended: the sync may have ended before the first byte was in the file.
    bed.files.committed(&id(1), Some(&snapshot), None);
    assert!(bed.is_uncommitted(1));
    let snapshot = bed.files.uncommitted(&id(1)).unwrap();
    bed.files.committed(&id(1), Some(&snapshot), None);
    assert!(!bed.is_uncommitted(1));
}

#[test]
fn data_that_nobody_commits_is_made_stable() {
    let bed = Bed::new(16);
    let before = bed.storage.verifier();
    drop(bed.begin(1, bed.start).unwrap());
    let writing = bed.begin(2, bed.start).unwrap();
    assert_eq!(bed.sweep(bed.after(29.0)), 0);
    bed.device.sync.lock().unwrap().push(Errno::IO);
    assert_eq!(bed.sweep(bed.after(30.0)), 1);
    assert!(!bed.is_uncommitted(1));
    assert_ne!(bed.storage.verifier(), before, "the loss is told");
    // Not while a write is in progress.
    assert!(bed.is_uncommitted(2));
    drop(writing);
    assert_eq!(bed.sweep(bed.after(60.0)), 1);
    assert!(bed.files.shared.lock().files.is_empty());
}

/// Files that are never committed cost their share of the table, and others a quarter of a second.
#[test]
fn many_uncommitted_files_are_made_stable_soon() {
    let bed = Bed::new(8);
    for number in 0..4 {
        drop(bed.begin(number, bed.after(f64::from(number))).unwrap());
    }
    assert!(bed.begin(4, bed.after(4.0)).is_none(), "half of the table");
    assert!(bed.begin(3, bed.after(4.0)).is_some(), "one that is there");
    assert_eq!(bed.sweep(bed.after(4.1)), 2);
    assert!(!bed.is_uncommitted(0) && bed.is_uncommitted(3));
    assert!(bed.begin(4, bed.after(4.1)).is_some());
}

#[test]
fn a_file_kept_for_its_owner_stays_until_it_could_be_executed() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::new(16);
    let keep = |number, mode| {
        let file = bed.file(number);
        file.set_len(1).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
        let opened = bed.open_as(file, true, true);
        bed.files.insert(id(number), &who(0), &opened, Some(0), bed.start);
    };
    keep(1, 0o444);
    keep(2, 0o555);
    keep(3, 0o555);
    keep(4, 0o444);
    keep(5, 0o644);
    let uncommitted = bed.begin(3, bed.start).unwrap();
    std::fs::remove_file(bed.path(4)).unwrap();
    for second in 1..=4 {
        bed.sweep(bed.after(f64::from(second)));
    }
    let open =
        |number| bed.files.shared.lock().files.get(&id(number)).is_some_and(|entry| !entry.slots.is_empty());
    assert_eq!([1, 2, 3, 4, 5].map(open), [true, false, true, false, false]);
    // Files that are not kept are closed first.
    bed.insert(6, true, true, bed.after(5.0));
    assert!(bed.files.shared.relieve());
    assert_eq!([1, 3, 6].map(open), [true, true, false]);
    // After its COMMIT a program can be executed, and another file be written.
    drop(uncommitted);
    for number in [1, 3] {
        let snapshot = bed.files.uncommitted(&id(number));
        let stat = stat(File::open(bed.path(number)).unwrap()).unwrap();
        bed.files.committed(&id(number), snapshot.as_ref(), Some(&stat));
    }
    assert_eq!([1, 3].map(open), [true, false]);
    bed.sweep(bed.after(KEPT_IDLE.as_secs_f64()));
    assert!(!open(1));
}

/// Finished files are closed first, and then those of the user with the most.
#[test]
fn i6_files_kept_for_one_user_do_not_push_out_those_of_others() {
    let bed = Bed::new(8);
    let keep = |number, uid| {
        bed.files.insert(id(number), &who(0), &bed.open(number, true, true), Some(uid), bed.start);
    };
    let open =
        |number| bed.files.shared.lock().files.get(&id(number)).is_some_and(|entry| !entry.slots.is_empty());
    keep(1, 1000);
    // Of another user: a file that was written, without uncommitted data.
    keep(2, 2000);
    drop(bed.files.get(&id(2), &who(0), Purpose::Write, bed.after(1.0)).unwrap());
    // And a file in the middle of a write.
    keep(3, 2000);
    let writing = bed.files.get(&id(3), &who(0), Purpose::Write, bed.after(1.0)).unwrap();
    for number in 4..=8 {
        keep(number, 2000);
    }
    assert!((1..=8).all(open));
    keep(9, 2000);
    assert!(!open(2) && (3..=9).all(open) && open(1), "finished");
    for number in 10..40 {
        keep(number, 2000);
        assert_eq!(bed.files.len(), 8);
    }
    assert!(open(1), "the only one of its user");
    drop(writing);
}

#[test]
fn a_removed_file_is_closed_with_its_uncommitted_data() {
    let bed = Bed::new(16);
    drop(bed.begin(1, bed.start).unwrap());
    bed.sweep(bed.after(1.0));
    assert!(bed.is_uncommitted(1));
    std::fs::remove_file(bed.path(1)).unwrap();
    bed.sweep(bed.after(2.0));
    assert!(!bed.is_uncommitted(1));
    assert!(bed.device.synced.lock().unwrap().is_empty(), "nobody misses it");
}

#[test]
fn an_error_at_a_close_changes_the_verifier() {
    let bed = Bed::new(16);
    let idle = |bed: &Bed| assert_eq!(bed.sweep(bed.after(2.0)), 0);
    for close in [|bed: &Bed| bed.files.remove(&id(1)), idle] {
        let before = bed.storage.verifier();
        bed.insert(1, true, true, bed.start);
        bed.device.close.lock().unwrap().push(Errno::IO);
        close(&bed);
        assert_ne!(bed.storage.verifier(), before);
    }
    // A file that was only read lost nothing.
    let before = bed.storage.verifier();
    bed.insert(1, true, false, bed.start);
    bed.device.close.lock().unwrap().push(Errno::IO);
    bed.files.remove(&id(1));
    assert_eq!(bed.storage.verifier(), before);
}

/// The thread exists only while it is needed.
#[test]
fn the_thread_ends_with_the_last_file() {
    let bed = Bed::new(16);
    let shared = Arc::clone(&bed.files.shared);
    shared.lock().tended = false;
    bed.insert(1, true, true, Instant::now() - IDLE);
    let started = Instant::now();
    while shared.lock().tended {
        assert!(started.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bed.files.len(), 0);
    // The thread also ends with the table.
    bed.insert(1, true, true, Instant::now() + Duration::from_secs(100));
    assert!(shared.lock().tended);
    drop(bed);
    while Arc::strong_count(&shared) > 1 {
        assert!(started.elapsed() < Duration::from_secs(20));
        thread::sleep(Duration::from_millis(5));
    }
}
