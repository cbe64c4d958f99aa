use std::cell::RefCell;
use std::fs;

use bytes::Bytes;

use super::*;
use crate::client::CopyOptions;
use crate::client::tree::local::spot_of;
use crate::wire::NfsTime;

thread_local! {
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn note(call: &'static str) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

fn sync(_: &File) -> io::Result<()> {
    note("sync");
    Ok(())
}

fn close(_: OwnedFd) -> io::Result<()> {
    note("close");
    Ok(())
}

fn failing_sync(_: &File) -> io::Result<()> {
    Err(Errno::IO.into())
}

fn failing_close(_: OwnedFd) -> io::Result<()> {
    Err(Errno::DQUOT.into())
}

fn wanted(in_place: bool) -> Wanted {
    let options = CopyOptions { in_place, preserve: false, ..CopyOptions::default() };
    let zero = NfsTime::default();
    let source = Attributes {
        file_type: crate::wire::FileType::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 3,
        used: 0,
        rdev: Default::default(),
        fsid: 0,
        fileid: 0,
        atime: zero,
        mtime: zero,
        ctime: zero,
    };
    Wanted { source, copying: Copying::new(&options), partial: false, again: false }
}

fn write(path: &Path, storage: Storage, wanted: &Wanted) -> io::Result<()> {
    let mut sink = Sink::in_tree(&spot_of(path)?, wanted)?;
    sink.storage = storage;
    sink.write(0, &b"new".to_vec().into())?;
    sink.finish(3, None).map(|_| ())
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(32))]

    /// Content in several slices is written in order. Blocks of zeros between may be left out.
    #[test]
    fn slices_are_written_in_order(
        before in 0_u64..9000,
        slices in proptest::collection::vec((0_u8..2, 0_usize..9000), 0..6),
    ) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let slices: Vec<_> = slices.into_iter().map(|(byte, length)| vec![byte; length]).collect();
        for in_place in [false, true] {
            let _ = fs::remove_file(&path);
            let mut sink = Sink::in_tree(&spot_of(&path).unwrap(), &wanted(in_place)).unwrap();
            sink.write(before, &slices.iter().cloned().map(Bytes::from).collect()).unwrap();
            let expected = [vec![0; usize::try_from(before).unwrap()], slices.concat()].concat();
            sink.finish(wide(expected.len()), None).unwrap();
            proptest::prop_assert!(fs::read(&path).unwrap() == expected);
        }
        let (reader, writer) = io::pipe().unwrap();
        let reader = std::thread::spawn(move || io::read_to_string(reader));
        let mut stream = Sink::new(File::from(OwnedFd::from(writer)), Kind::Stream);
        stream.write(before, &slices.iter().cloned().map(Bytes::from).collect()).unwrap();
        drop(stream);
        proptest::prop_assert!(reader.join().unwrap().unwrap().into_bytes() == slices.concat());
    }
}

/// If the file system reports lost data at the sync or close, the old file stays and no other file remains.
#[test]
fn a_file_whose_close_fails_replaces_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    fs::write(&path, "precious").unwrap();
    for storage in
        [Storage { sync, close: failing_close }, Storage { sync: failing_sync, close: rpcrdma_sys::close }]
    {
        write(&path, storage, &wanted(false)).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
    // A new name is not given either; a failed write in place is reported.
    let new = place.path().join("new");
    write(&new, Storage { sync, close: failing_close }, &wanted(false)).unwrap_err();
    assert!(!new.exists());
    write(&path, Storage { sync, close: failing_close }, &wanted(true)).unwrap_err();
}

/// The result of closing a stream is checked too.
#[test]
fn a_stream_whose_close_fails_is_a_failure() {
    let (_reader, writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(writer));
    let sink = Sink {
        file,
        kind: Kind::Stream,
        storage: Storage { sync, close: failing_close },
        resumed: 0,
        lasting: false,
    };
    sink.finish(3, None).unwrap_err();
}

/// Data that replaces an existing file is on stable storage first; a new name does not wait for that.
#[test]
fn only_what_replaces_a_file_is_synced_before() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let storage = Storage { sync, close };
    for expected in [&["close"][..], &["sync", "close"]] {
        CALLS.take();
        write(&path, storage, &wanted(false)).unwrap();
        assert_eq!(CALLS.take(), expected);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}

/// A copy that was given up may end later than the next one begins, which may have removed the incomplete file.
#[test]
fn only_the_own_incomplete_file_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let options = CopyOptions::default();
    let names = || fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    for of_another in [false, true] {
        let wanted = Wanted { copying: Copying::new(&options), partial: true, ..wanted(false) };
        let sink = Sink::in_tree(&spot_of(&path).unwrap(), &wanted).unwrap();
        let [part] = names().try_into().unwrap();
        if of_another {
            fs::write(place.path().join("new"), "").unwrap();
            fs::rename(place.path().join("new"), &part).unwrap();
        }
        drop(sink);
        assert_eq!(names().len(), usize::from(of_another));
    }
}

/// Both copies end with the whole file; the second one is not for a later copy.
#[test]
fn a_copy_whose_incomplete_file_is_locked_makes_another_one() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let options = CopyOptions::default();
    let sink = || {
        let wanted = Wanted { copying: Copying::new(&options), partial: true, ..wanted(false) };
        let mut sink = Sink::in_tree(&spot_of(&path).unwrap(), &wanted).unwrap();
        sink.write(0, &b"new".to_vec().into()).unwrap();
        sink
    };
    let first = sink();
    let second = sink();
    assert!(first.lasting && !second.lasting);
    drop(second);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    first.finish(3, None).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

/// A copy gives its name to no object that has taken the place of its incomplete file.
#[test]
fn only_the_own_incomplete_file_gets_the_name() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let options = CopyOptions::default();
    let wanted = Wanted { copying: Copying::new(&options), partial: true, ..wanted(false) };
    let sink = Sink::in_tree(&spot_of(&path).unwrap(), &wanted).unwrap();
    let part = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
    fs::write(place.path().join("other"), "half").unwrap();
    fs::rename(place.path().join("other"), &part).unwrap();
    sink.finish(0, None).unwrap_err();
    assert!(!path.exists());
    assert_eq!(fs::read(&part).unwrap(), b"half");
}

/// The owner can continue an incomplete file, whatever the mode of the source.
#[test]
fn an_incomplete_file_can_be_written_until_it_gets_its_name() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let options = CopyOptions { preserve: false, ..CopyOptions::default() };
    let mut wanted = Wanted { copying: Copying::new(&options), partial: true, ..wanted(false) };
    wanted.source.mode = 0o444;
    let sink = Sink::in_tree(&spot_of(&path).unwrap(), &wanted).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let part = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(mode(&part) & 0o600, 0o600);
    sink.finish(0, None).unwrap();
    assert_eq!(mode(&path) & 0o722, 0o400);
}
