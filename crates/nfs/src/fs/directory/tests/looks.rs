//! Looks at objects, and objects opened, by the changes that small files consist of.

use super::super::convert::LOOKS;
use super::*;

/// Counts the looks at objects, and the objects opened, during a change.
fn counted<T>(change: impl FnOnce() -> T) -> (T, [usize; 2]) {
    let count = || [LOOKS.get(), ids::OPENED.get()];
    let before = count();
    let result = change();
    let after = count();
    (result, [after[0] - before[0], after[1] - before[1]])
}

/// The directory before and after, and the new file once, unless its attributes are set. The directory stays open where ids
/// are the kernel's; it was looked at when it was opened.
#[test]
fn a_new_file_is_looked_at_once() {
    let who = Identity::superuser();
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let tree = tempfile::tempdir().unwrap();
        let (_place, fs) = open(tree.path(), handles);
        let create = |name: &[u8], new: SetAttributes| {
            let name = Name::new(name).unwrap();
            let (made, counts) = counted(|| fs.create(&who, &fs.root(), name, &CreateHow::Guarded(new)));
            let node = made.result.unwrap();
            let now = fs.attributes(&node.id).unwrap();
            assert_eq!(node.attributes, now, "the reply has the attributes that the file has");
            counts
        };
        let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        assert_eq!(create(b"plain", mode), [4, 2]);
        let opened = usize::from(!fs.remembers_looks());
        let counts = [4 + opened, 1 + opened];
        let time = SetTime::To(Timestamp { seconds: 1, nanoseconds: 0 });
        assert_eq!(create(b"time", SetAttributes { modified: time, ..mode }), counts);
        assert_eq!(create(b"size", SetAttributes { size: Some(10), ..mode }), counts);
    }
}

/// A directory stays open after a change, but does not outlive its removal by a local user.
#[test]
fn a_directory_that_was_removed_is_stale_for_the_next_change() {
    let who = Identity::superuser();
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let tree = tempfile::tempdir().unwrap();
        let (_place, fs) = open(tree.path(), handles);
        let how = CreateHow::Guarded(SetAttributes::default());
        let name = |name| Name::new(name).unwrap();
        let dir = fs.make(&who, &fs.root(), name(b"dir"), &Special::Directory, &SetAttributes::default());
        let dir = dir.result.unwrap().id;
        fs.create(&who, &dir, name(b"file"), &how).result.unwrap();
        std::fs::remove_dir_all(tree.path().join("dir")).unwrap();
        assert_eq!(fs.create(&who, &dir, name(b"other"), &how).result, Err(FsError::Stale));
        assert_eq!(fs.remove(&who, &dir, name(b"file")).result, Err(FsError::Stale));
        // Another directory of this name is another directory.
        std::fs::create_dir(tree.path().join("dir")).unwrap();
        let made = fs.create(&who, &dir, name(b"other"), &how).result;
        assert!(made.is_err(), "{made:?}");
    }
}

/// The directory before and after. Where it does not stay open, it is opened, and so is the file for the map of names.
#[test]
fn a_rename_within_a_directory_looks_at_it_once() {
    let who = Identity::superuser();
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let how = CreateHow::Guarded(SetAttributes::default());
    let root = fs.root();
    let [old, new] = [&b"old"[..], b"new"].map(|name| Name::new(name).unwrap());
    fs.create(&who, &root, old, &how).result.unwrap();
    let (renamed, counts) = counted(|| fs.rename(&who, &root, old, &root, new));
    renamed.result.unwrap();
    assert_eq!(counts, if fs.remembers_looks() { [2, 0] } else { [4, 2] });
    assert_eq!(renamed.from, renamed.to);
    let (before, after) = (renamed.from.before.unwrap(), renamed.from.after.unwrap());
    assert!(before.changed <= after.changed);
    assert_eq!(fs.attributes(&root).unwrap(), after);
}
