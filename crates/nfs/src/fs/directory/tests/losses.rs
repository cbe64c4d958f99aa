//! Data that the storage does not keep. The device of these tests fails on demand.

use std::cell::Cell;
use std::io::IoSlice;

use super::*;

fn failing() -> (Arc<Faulty>, [tempfile::TempDir; 2], DirectoryFs) {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let state = StateDirectory::open(places[1].path()).unwrap();
    let options = DirectoryOptions { sync_metadata: false, ..DirectoryOptions::default() };
    let device = Arc::new(Faulty::default());
    let storage = Storage::on(Arc::clone(&device) as Arc<_>, options.verifier.clone());
    let fs = DirectoryFs::open_on(storage, places[0].path(), &state, options).unwrap();
    (device, places, fs)
}

fn file(fs: &DirectoryFs, name: &str) -> FileId {
    let how = CreateHow::Guarded(SetAttributes::default());
    fs.create(&me(), &fs.root(), Name::new(name.as_bytes()).unwrap(), &how).result.unwrap().id
}

fn me() -> Identity {
    Identity::superuser()
}

fn write(fs: &DirectoryFs, id: &FileId, stability: Stability) -> Result<WriteResult, FsError> {
    fs.write(&me(), id, 0, b"data", stability).result
}

// requirement: rfc1813-3.3.7-6, rfc1813-3.3.21-1
#[test]
fn a_commit_that_fails_changes_the_verifier_of_all() {
    let (device, _places, fs) = failing();
    let (one, other) = (file(&fs, "one"), file(&fs, "other"));
    let written = [&one, &other].map(|id| write(&fs, id, Stability::Unstable).unwrap().verifier);
    device.sync.lock().unwrap().push(Errno::IO);
    assert_eq!(fs.commit(&me(), &one, 0, 0).result, Err(FsError::Io));
    let committed = fs.commit(&me(), &other, 0, 0).result.unwrap();
    assert!(!written.contains(&committed));
    // Data that is written again is safe.
    let again = write(&fs, &one, Stability::Unstable).unwrap().verifier;
    assert_eq!(fs.commit(&me(), &one, 0, 0).result, Ok(again));
}

/// RFC 1813 §3.3.21: a COMMIT of any range flushes the range; here it flushes the whole file. Count 0 is no empty range.
// requirement: rfc1813-3.3.21-2
#[test]
fn rfc1813_3_3_21_count_0_is_the_rest_of_the_file() {
    for (offset, count) in [(0, 0), (1, 0), (0, 1), (1, 2)] {
        let (device, _places, fs) = failing();
        let one = file(&fs, "one");
        write(&fs, &one, Stability::Unstable).unwrap();
        device.sync.lock().unwrap().push(Errno::IO);
        assert_eq!(fs.commit(&me(), &one, offset, count).result, Err(FsError::Io), "{offset} {count}");
    }
}

// requirement: rfc1813-4.8-1
#[test]
fn an_error_at_the_close_reaches_the_commit() {
    let (device, _places, fs) = failing();
    let id = file(&fs, "file");
    let written = write(&fs, &id, Stability::Unstable).unwrap();
    device.close.lock().unwrap().push(Errno::NOSPC);
    // The COMMIT closes the descriptors that can write.
    assert_ne!(fs.commit(&me(), &id, 0, 0).result.unwrap(), written.verifier);
    let written = write(&fs, &id, Stability::Unstable).unwrap();
    device.close.lock().unwrap().push(Errno::IO);
    // Time closes them too.
    fs.open_files.close_idle();
    assert_ne!(fs.commit(&me(), &id, 0, 0).result.unwrap(), written.verifier);
}

// requirement: rfc1813-1.6-3, rfc1813-3.3.7-4, rfc1813-3.3.7-5, rfc1813-4.8-1
#[test]
fn what_is_asked_to_be_stable_fails_with_the_storage() {
    let (device, _places, fs) = failing();
    let id = file(&fs, "file");
    for stability in [Stability::DataSync, Stability::FileSync] {
        let before = fs.storage.verifier();
        device.sync.lock().unwrap().push(Errno::NOSPC);
        assert_eq!(write(&fs, &id, stability), Err(FsError::NoSpace));
        assert_ne!(fs.storage.verifier(), before);
        assert_eq!(write(&fs, &id, stability).unwrap().committed, stability);
    }
}

/// RFC 1813 §4.7: a change of names is on stable storage before its reply, or fails with the storage.
// requirement: rfc1813-1.6-3, rfc1813-4.8-1
#[test]
fn a_change_of_names_fails_with_the_storage() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let state = StateDirectory::open(places[1].path()).unwrap();
    let options = DirectoryOptions::default();
    assert!(options.sync_metadata, "the default");
    let device = Arc::new(Faulty::default());
    let storage = Storage::on(Arc::clone(&device) as Arc<_>, options.verifier.clone());
    let fs = DirectoryFs::open_on(storage, places[0].path(), &state, options).unwrap();
    let (root, name) = (fs.root(), |name: &'static str| Name::new(name.as_bytes()).unwrap());
    let fails = || device.sync.lock().unwrap().push(Errno::IO);
    let (new, exclusive) = (CreateHow::Guarded(SetAttributes::default()), CreateHow::Exclusive([7; 8]));
    fails();
    assert_eq!(fs.create(&me(), &root, name("a"), &new).result.err(), Some(FsError::Io));
    fails();
    assert_eq!(fs.create(&me(), &root, name("b"), &exclusive).result.err(), Some(FsError::Io));
    let file = file(&fs, "file");
    fails();
    let (what, attributes) = (Special::Directory, SetAttributes::default());
    assert_eq!(fs.make(&me(), &root, name("c"), &what, &attributes).result.err(), Some(FsError::Io));
    fails();
    let what = Special::Symlink(b"x");
    assert_eq!(fs.make(&me(), &root, name("d"), &what, &attributes).result.err(), Some(FsError::Io));
    fails();
    assert_eq!(fs.link(&me(), &file, &root, name("e")).result, Err(FsError::Io));
    fails();
    assert_eq!(fs.rename(&me(), &root, name("file"), &root, name("f")).result, Err(FsError::Io));
    fails();
    assert_eq!(fs.remove(&me(), &root, name("f")).result, Err(FsError::Io));
    fails();
    assert_eq!(fs.remove_directory(&me(), &root, name("c")).result, Err(FsError::Io));
    fails();
    let cut = SetAttributes { size: Some(5), ..SetAttributes::default() };
    assert_eq!(fs.set_attributes(&me(), &file, &cut, None).result, Err(FsError::Io));
}

/// Linux reports a failed write-back once to each descriptor, and two calls share one. The call without the
/// report must not claim that its data is safe, because a client keeps no copy of stable data.
#[test]
fn a_loss_that_another_call_was_told_of_fails_each_write_that_it_may_concern() {
    for stability in [Stability::DataSync, Stability::FileSync] {
        let (device, _places, fs) = failing();
        let id = file(&fs, "file");
        write(&fs, &id, stability).unwrap();
        device.sync.lock().unwrap().push(Errno::NOSPC);
        let other = Cell::new(None);
        // The other call writes and syncs after this one's write and before its sync.
        let meanwhile = || other.set(Some(write(&fs, &id, stability)));
        let outcome = fs.write_telling(&me(), &id, 4, &[IoSlice::new(b"more")], stability, &meanwhile);
        assert_eq!(other.take(), Some(Err(FsError::NoSpace)));
        assert_eq!(outcome.result, Err(FsError::NoSpace));
        // Data written afterwards is not concerned.
        assert_eq!(write(&fs, &id, stability).unwrap().committed, stability);
    }
}

/// Some file systems cannot sync: that does not undo an operation.
#[test]
fn what_cannot_be_synced_is_done_all_the_same() {
    let (device, _places, fs) = failing();
    let id = file(&fs, "file");
    let refuse = || device.sync.lock().unwrap().push(Errno::INVAL);
    let before = fs.storage.verifier();
    for stability in [Stability::DataSync, Stability::FileSync] {
        refuse();
        assert!(write(&fs, &id, stability).is_ok());
    }
    refuse();
    assert_eq!(fs.commit(&me(), &id, 0, 0).result, Ok(before));
    refuse();
    assert_eq!(fs.flush(), Ok(()));
}

// requirement: rfc1813-3.3.21-1
#[test]
fn uncommitted_data_is_synced_through_its_witness() {
    let (device, _places, fs) = failing();
    let id = file(&fs, "file");
    assert!(fs.open_files.uncommitted(&id).is_none());
    let written = write(&fs, &id, Stability::Unstable).unwrap();
    assert_eq!(written.committed, Stability::Unstable);
    let witness = fs.open_files.uncommitted(&id).unwrap();
    let flags = rustix::fs::fcntl_getfl(witness.file()).unwrap();
    assert_eq!(flags & OFlags::RWMODE, OFlags::RDONLY);
    // The witness stays when all other descriptors are closed, and over further writes.
    fs.open_files.close_idle();
    write(&fs, &id, Stability::Unstable).unwrap();
    let later = fs.open_files.uncommitted(&id).unwrap();
    assert_eq!(later.file().as_fd().as_raw_fd(), witness.file().as_fd().as_raw_fd());
    let synced = device.synced.lock().unwrap().len();
    fs.commit(&me(), &id, 0, 0).result.unwrap();
    assert_eq!(device.synced.lock().unwrap()[synced..], [Reach::File]);
    assert!(fs.open_files.uncommitted(&id).is_none());
}

#[test]
fn a_flush_tells_of_every_file() {
    let (device, _places, fs) = failing();
    for name in ["one", "other"] {
        write(&fs, &file(&fs, name), Stability::Unstable).unwrap();
    }
    let before = fs.storage.verifier();
    device.sync.lock().unwrap().push(Errno::IO);
    assert_eq!(fs.flush(), Err(FsError::Io));
    assert_ne!(fs.storage.verifier(), before);
    assert_eq!(*device.synced.lock().unwrap(), [Reach::File, Reach::File, Reach::FileSystem]);
    assert_eq!(fs.flush(), Ok(()));
}

/// Without a witness there is no UNSTABLE: the answer states the stability achieved.
#[test]
fn without_room_for_a_witness_data_is_made_stable_at_once() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let state = StateDirectory::open(places[1].path()).unwrap();
    let options = DirectoryOptions { open_files: 4, sync_metadata: false, ..DirectoryOptions::default() };
    let device = Arc::new(Faulty::default());
    let storage = Storage::on(Arc::clone(&device) as Arc<_>, options.verifier.clone());
    let fs = DirectoryFs::open_on(storage, places[0].path(), &state, options).unwrap();
    let ids = ["a", "b", "c"].map(|name| file(&fs, name));
    let committed = ids.map(|id| write(&fs, &id, Stability::Unstable).unwrap().committed);
    assert_eq!(committed, [Stability::Unstable, Stability::Unstable, Stability::DataSync]);
    assert_eq!(*device.synced.lock().unwrap(), [Reach::Data]);
    fs.commit(&me(), &ids[0], 0, 0).result.unwrap();
    assert_eq!(write(&fs, &ids[2], Stability::Unstable).unwrap().committed, Stability::Unstable);
}
