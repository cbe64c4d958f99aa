use std::cell::RefCell;
use std::fs;

use super::*;
use crate::client::CopyOptions;

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
    Wanted { source, copying: Copying::new(&options) }
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

/// The owner of the directory gives the name of a new link to another file, before or after the open.
#[test]
fn i6_a_file_in_the_place_of_a_new_link_keeps_its_attributes() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("victim"), "precious").unwrap();
    let before = fs::metadata(at("victim")).unwrap();
    let kept = Kept { mode: 0o777, mtime: NfsTime { seconds: 7, nanoseconds: 0 }, uid: 12, gid: 12 };
    let spot = spot_of(&at("link")).unwrap();
    std::os::unix::fs::symlink("target", at("link")).unwrap();
    let link = open_symlink(b"target", &spot).unwrap();
    fs::rename(at("link"), at("moved")).unwrap();
    fs::hard_link(at("victim"), at("link")).unwrap();
    keep_symlink(&link, &kept);
    open_symlink(b"target", &spot).unwrap_err();
    let after = fs::metadata(at("victim")).unwrap();
    assert_eq!((after.uid(), after.gid(), after.mtime()), (before.uid(), before.gid(), before.mtime()));
    let moved = fs::symlink_metadata(at("moved")).unwrap();
    assert_eq!(moved.mtime(), 7);
    if rustix::process::geteuid().is_root() {
        assert_eq!((moved.uid(), moved.gid()), (12, 12));
    }
    // Another link, and a link with a second name.
    for name in ["other", "second"] {
        fs::remove_file(at("link")).unwrap();
        match name {
            "other" => std::os::unix::fs::symlink(name, at("link")).unwrap(),
            _ => fs::hard_link(at("moved"), at("link")).unwrap(),
        }
        open_symlink(b"target", &spot).unwrap_err();
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
    let sink = Sink { file, kind: Kind::Stream, storage: Storage { sync, close: failing_close } };
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
