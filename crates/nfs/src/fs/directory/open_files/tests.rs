//! Tests of the table, with a clock of their own.

use std::fs::{File, OpenOptions};

use super::super::convert::stat;
use super::super::storage::tests::Faulty;
use super::super::storage::{Reach, Storage};
use super::super::verifier::WriteVerifier;
use super::*;
use crate::fs::types::Access;

impl OpenFiles {
    /// Closes idle files, as a long time without a call would.
    pub(in super::super) fn close_idle(&self) {
        let mut taken = Taken::default();
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

    fn object(&self, number: u8) -> (Object, Option<Syncs>) {
        (Object::new(self.file(number).into()).unwrap(), None)
    }

    fn open(&self, number: u8, readable: bool, writable: bool) -> Arc<OpenFile> {
        self.open_as(self.file(number), readable, writable)
    }

    fn open_as(&self, file: File, readable: bool, writable: bool) -> Arc<OpenFile> {
        let stat = stat(&file).unwrap();
        Arc::new(OpenFile::new(file.into(), (readable, writable), &stat, &self.storage, false, self.start))
    }

    fn look(&self, number: u8, judgement: Option<Judgement>, now: Instant) {
        self.files.keep_object(id(number), self.object(number), judgement, Room::Make, now);
    }

    /// Returns a decision of the kernel about all rights.
    fn judged(&self, user: u32, bits: u32) -> Judgement {
        let stat = stat(self.file(1)).unwrap();
        let checked = Checked::new(&stat, false, self.start);
        Judgement { who: who(user), asked: Access::ALL, granted: Access::from_bits(bits), checked }
    }

    fn looked(&self) -> usize {
        self.files.shared.lock().looked
    }

    fn is_looked(&self, number: u8) -> bool {
        self.files.shared.lock().files.get(&id(number)).is_some_and(|entry| entry.looked.is_some())
    }

    fn insert(&self, number: u8, readable: bool, writable: bool, now: Instant) {
        self.files.insert(id(number), &who(0), &self.open(number, readable, writable), None, now);
    }

    /// Keeps a file that is open to read, on a local file system or another one.
    fn insert_to_read(&self, number: u8, local: bool, now: Instant) {
        let file = self.file(number);
        let stat = stat(&file).unwrap();
        let file = OpenFile::new(file.into(), (true, false), &stat, &self.storage, local, self.start);
        self.files.insert(id(number), &who(0), &Arc::new(file), None, now);
    }

    fn has(&self, number: u8, purpose: Purpose, now: Instant) -> bool {
        self.files.get(&id(number), &who(0), purpose, now).is_some()
    }

    fn begin(&self, number: u8, now: Instant) -> Option<UnstableWrite> {
        drop(OpenOptions::new().append(true).create(true).open(self.path(number)));
        self.files.begin_unstable(&id(number), now, || {
            let file = File::open(self.path(number)).unwrap();
            let stat = stat(&file).unwrap();
            Some(OpenFile::new(file.into(), (true, false), &stat, &self.storage, false, now))
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
fn what_can_write_is_closed_within_a_second() {
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
}

#[test]
fn what_only_reads_stays_for_a_minute_after_its_last_use() {
    let bed = Bed::new(16);
    bed.insert_to_read(1, true, bed.start);
    bed.insert_to_read(3, false, bed.start);
    bed.look(2, None, bed.start);
    bed.sweep(bed.after(0.5));
    assert_eq!(bed.files.len(), 2);
    for second in [30, 60, 89] {
        bed.sweep(bed.after(f64::from(second)));
        assert_eq!((bed.files.len(), bed.is_looked(2)), (1, true), "{second}");
        if second == 30 {
            assert!(bed.has(1, Purpose::Read, bed.after(30.0)));
            assert!(bed.files.object(&id(2), bed.after(30.0)).is_some());
        }
    }
    bed.sweep(bed.after(90.0));
    assert!(bed.files.shared.lock().files.is_empty());
    assert_eq!(bed.looked(), 0);
}

#[test]
fn what_only_reads_is_closed_soon_when_it_is_removed_elsewhere() {
    let bed = Bed::new(16);
    for number in [1, 2] {
        bed.insert_to_read(number, true, bed.start);
        bed.look(number, None, bed.start);
        bed.look(number + 2, None, bed.start);
    }
    bed.sweep(bed.after(1.0));
    for number in [1, 3] {
        std::fs::remove_file(bed.path(number)).unwrap();
    }
    bed.sweep(bed.after(1.0 + LOOK_AT_ALL.as_secs_f64()));
    assert!(!bed.is_looked(1) && !bed.has(1, Purpose::Read, bed.start) && !bed.is_looked(3));
    assert!(bed.is_looked(2) && bed.has(2, Purpose::Read, bed.start) && bed.is_looked(4));
    // A removal through the server closes them at once.
    bed.files.remove(&id(2));
    assert_eq!((bed.files.len(), bed.looked()), (0, 1));
}

#[test]
fn i6_objects_to_look_at_are_bounded_and_the_oldest_go() {
    let bed = Bed::new(16);
    for number in 0..100 {
        let now = bed.after(f64::from(number));
        bed.look(number, None, now);
        assert!(bed.files.object(&id(0), now).is_some(), "used all the time");
        assert!(bed.looked() <= 16);
    }
    assert!(bed.is_looked(99) && !bed.is_looked(50));
    // They take no space from files.
    for number in 100..116 {
        bed.insert(number, true, false, bed.after(100.0));
    }
    assert_eq!(bed.files.len(), 16);
    assert!(bed.is_looked(99));
    // When descriptors run out, they go first.
    assert!(bed.files.shared.relieve());
    assert_eq!((bed.files.len(), bed.looked()), (16, 0));
}

#[test]
fn an_object_is_kept_once_and_decisions_about_it_stay_known() {
    let bed = Bed::new(16);
    bed.look(1, None, bed.start);
    let first = bed.files.object(&id(1), bed.start).unwrap();
    let object = first.get().unwrap();
    let now = stat(object).unwrap();
    assert_eq!(object.granted(&who(1), Access::ALL, &now, bed.start), None);
    bed.look(1, Some(bed.judged(1, 1)), bed.start);
    bed.look(1, None, bed.start);
    let again = bed.files.object(&id(1), bed.start).unwrap();
    assert!(std::ptr::eq(object, again.get().unwrap()));
    assert_eq!(object.granted(&who(1), Access::ALL, &now, bed.start), Some(Access::from_bits(1)));
    assert_eq!(object.granted(&who(2), Access::ALL, &now, bed.start), None, "another caller");
    assert_eq!(bed.looked(), 1);
    assert!(bed.files.object(&id(2), bed.start).is_none());
    // A decision about some rights is none about others, and displaces none.
    let read = Access::READ;
    let search = Judgement { asked: Access::LOOKUP, granted: Access::LOOKUP, ..bed.judged(2, 0) };
    bed.look(1, Some(search), bed.start);
    assert_eq!(object.granted(&who(2), Access::LOOKUP, &now, bed.start), Some(Access::LOOKUP));
    assert_eq!(object.granted(&who(2), read, &now, bed.start), None);
    bed.look(1, Some(Judgement { asked: Access::LOOKUP, ..bed.judged(1, 2) }), bed.start);
    assert_eq!(object.granted(&who(1), read, &now, bed.start), Some(read));
    // For a limited time, and for this mode.
    assert_eq!(object.granted(&who(1), Access::ALL, &now, bed.start + file::RECHECK), None);
    let mut changed = now;
    changed.stx_mode ^= 1;
    assert_eq!(object.granted(&who(1), Access::ALL, &changed, bed.start), None);
}

#[test]
fn i6_decisions_about_an_object_are_bounded() {
    let bed = Bed::new(16);
    bed.look(1, None, bed.start);
    let lent = bed.files.object(&id(1), bed.start).unwrap();
    let object = lent.get().unwrap();
    let now = stat(object).unwrap();
    for user in 0..10 {
        bed.look(1, Some(bed.judged(user, user)), bed.start);
    }
    // The last decision about a caller counts.
    bed.look(1, Some(bed.judged(9, 3)), bed.start);
    let known: Vec<_> =
        (0..10).map(|user| object.granted(&who(user), Access::ALL, &now, bed.start)).collect();
    assert!(known[..2].iter().all(Option::is_none) && known[2..].iter().all(Option::is_some), "{known:?}");
    assert_eq!(known[9], Some(Access::from_bits(3)));
    let crowd = Identity { groups: (0..100).collect(), ..who(20) };
    bed.look(1, Some(Judgement { who: crowd.clone(), ..bed.judged(20, 1) }), bed.start);
    assert_eq!(object.granted(&crowd, Access::ALL, &now, bed.start), None, "a caller with many groups");
}

#[test]
fn an_object_has_to_be_found_by_its_id_from_time_to_time() {
    let bed = Bed::new(16);
    bed.look(1, None, bed.start);
    for minute in 0..5 {
        let now = bed.after(60.0 * f64::from(minute));
        assert!(bed.files.object(&id(1), now).is_some(), "{minute}");
        bed.sweep(now);
    }
    let later = bed.start + FIND_AGAIN;
    assert!(bed.files.object(&id(1), later).is_none());
    bed.look(1, None, later);
    assert!(bed.files.object(&id(1), later).is_some());
}

/// Closing a removed file frees its space, which takes long for a large one.
#[test]
fn i10_a_thread_that_must_not_wait_closes_nothing() {
    let bed = Bed::new(2);
    let leaving = || bed.files.shared.lock().leaving.len();
    // The table gives the object and the file up while a call uses them.
    bed.look(1, None, bed.start);
    bed.insert(1, true, false, bed.start);
    let object = bed.files.object(&id(1), bed.start).unwrap();
    let file = bed.files.get_to_read(&id(1), &who(0), bed.start).unwrap();
    bed.files.remove(&id(1));
    assert_eq!(leaving(), 0);
    drop((object, file));
    assert_eq!(leaving(), 2);
    // Without space, a new one is left to the thread, and no other one is closed.
    for number in 2..4 {
        bed.look(number, None, bed.start);
    }
    bed.files.keep_object(id(4), bed.object(4), None, Room::IfFree, bed.start);
    assert_eq!((leaving(), bed.looked()), (3, 2));
    bed.files.keep_object(id(3), bed.object(3), None, Room::IfFree, bed.start);
    assert_eq!(leaving(), 3, "known");
    assert!(!bed.files.has_room_to_look());
    bed.files.shared.close_leaving(&Arc::default());
    assert_eq!((leaving(), bed.looked()), (0, 2));
    // With the table in place, nothing is left.
    drop(bed.files.object(&id(3), bed.start));
    assert_eq!(leaving(), 0);
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

/// A later change within the same tick of the clock has the same time of change.
#[test]
fn rights_to_a_file_that_changed_long_ago_are_valid_for_a_minute() {
    let bed = Bed::new(16);
    let mut old = stat(bed.file(1)).unwrap();
    old.stx_ctime.tv_sec -= 10;
    for (local, limit) in [(true, 60.0), (false, 1.0)] {
        let fd = bed.file(1).into();
        let file = OpenFile::new(fd, (true, false), &old, &bed.storage, local, bed.start);
        assert!(file.is_current(Purpose::Read, &old, bed.after(limit - 0.1)), "{local}");
        assert!(!file.is_current(Purpose::Read, &old, bed.after(limit)), "{local}");
        file.confirm(Purpose::Read, &old, bed.after(limit));
        assert!(file.is_current(Purpose::Read, &old, bed.after(2.0 * limit - 0.1)), "{local}");
        let mut changed = old;
        changed.stx_ctime.tv_nsec ^= 1;
        assert!(!file.is_current(Purpose::Read, &changed, bed.after(limit)), "{local}");
        // A change by this server may be followed by another one at once.
        file.moved((&old).into(), (&changed).into());
        assert!(file.is_current(Purpose::Read, &changed, bed.after(limit + 0.9)), "{local}");
        assert!(!file.is_current(Purpose::Read, &changed, bed.after(limit + 1.0)), "{local}");
    }
    // A pause of eight seconds after the beginning of the check makes the change no older.
    let began = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
    let file = OpenFile::new(bed.file(1).into(), (true, false), &old, &bed.storage, true, began);
    assert!(!file.is_current(Purpose::Read, &old, began + Duration::from_secs(1)));
    // The clock was set back, or the time of change is none.
    for seconds in [i64::MAX, old.stx_ctime.tv_sec + 1000, -1] {
        let mut odd = old;
        odd.stx_ctime.tv_sec = seconds;
        let file = OpenFile::new(bed.file(1).into(), (true, false), &odd, &bed.storage, true, bed.start);
        assert!(!file.is_current(Purpose::Read, &odd, bed.after(1.0)), "{seconds}");
    }
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
    // What is about to be closed is closed at once, and then files that are not kept.
    assert!(bed.files.shared.relieve());
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
