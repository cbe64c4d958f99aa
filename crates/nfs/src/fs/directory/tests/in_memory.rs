//! Answers from what the kernel has in memory: they are those that an I/O thread would give.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn all() -> Access {
    Access::from_bits(0x3f)
}

fn user(uid: u32) -> Identity {
    Identity { uid, gid: uid, groups: Vec::new() }
}

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn entry(text: &str) -> LookupName<'_> {
    LookupName::Entry(name(text))
}

/// Runs a test where a look may be answered from memory.
fn where_quick(test: impl Fn(&Path, &DirectoryFs)) {
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    if !fs.is_local || !fs.has_kernel_handles() {
        println!("skipped: {} is on no local file system with handles of the kernel", tree.path().display());
        return;
    }
    // These tests are about what the kernel says, and not about the time since then.
    RECHECK_HERE.set(std::time::Duration::from_secs(3600));
    test(tree.path(), &fs);
}

/// Returns whether a name is missing, as far as the kernel knows without waiting. Not every file system remembers that.
fn is_missing(found: Option<Result<Found, FsError>>) -> bool {
    matches!(found, None | Some(Err(FsError::NotFound)))
}

fn make(fs: &DirectoryFs, text: &str, mode: u32) -> FileId {
    let new = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    let made = fs.create(&Identity::superuser(), &fs.root(), name(text), &CreateHow::Guarded(new));
    made.result.unwrap().id
}

#[test]
fn what_was_looked_at_is_answered_from_memory() {
    where_quick(|tree, fs| {
        let who = Identity::superuser();
        let id = make(fs, "file", 0o644);
        assert_eq!(fs.try_attributes(&id), None, "nobody has looked at it");
        assert_eq!(fs.try_access(&who, &id, all()), None);
        let first = fs.attributes(&id).unwrap();
        assert_eq!(fs.try_attributes(&id), Some(first));
        assert_eq!(fs.try_access(&who, &id, all()), None, "the kernel has not decided yet");
        let access = fs.access(&who, &id, all()).unwrap();
        assert_eq!(fs.try_access(&who, &id, all()), Some(access));
        let read = Access::READ;
        assert_eq!(fs.try_access(&who, &id, read).unwrap().0, access.0.intersection(read));
        // Changes by others show at once.
        fs::write(tree.join("file"), "longer").unwrap();
        fs::set_permissions(tree.join("file"), Permissions::from_mode(0o600)).unwrap();
        let now = fs.try_attributes(&id).unwrap();
        assert_eq!((now.size, now.mode), (6, 0o600));
        assert_eq!(now, fs.attributes(&id).unwrap());
        assert_eq!(fs.try_access(&who, &id, all()), None, "the mode has changed");
        if fs.acts_as_callers() {
            let other = user(1000);
            assert_eq!(fs.try_access(&other, &id, all()), None, "another caller");
            let refused = fs.access(&other, &id, all()).unwrap();
            assert_eq!(fs.try_access(&other, &id, all()), Some(refused));
            assert_eq!(refused.0, Access::from_bits(0));
        }
    });
}

#[test]
fn what_was_removed_is_not_answered_from_memory() {
    where_quick(|tree, fs| {
        let who = Identity::superuser();
        for by_server in [true, false] {
            let id = make(fs, "file", 0o644);
            fs.access(&who, &id, all()).unwrap();
            fs::create_dir(tree.join("dir")).unwrap();
            let dir = fs.lookup(&who, &fs.root(), entry("dir")).unwrap().node.id;
            assert!(fs.try_attributes(&dir).is_some(), "looked up");
            if by_server {
                fs.remove(&who, &fs.root(), name("file")).result.unwrap();
                fs.remove_directory(&who, &fs.root(), name("dir")).result.unwrap();
                assert!(fs.open_files.object(&id, std::time::Instant::now()).is_none(), "closed");
            } else {
                fs::remove_file(tree.join("file")).unwrap();
                fs::remove_dir(tree.join("dir")).unwrap();
            }
            for gone in [id, dir] {
                assert_eq!((fs.try_attributes(&gone), fs.try_access(&who, &gone, all())), (None, None));
                assert_eq!(fs.attributes(&gone), Err(FsError::Stale));
                assert_eq!(fs.try_lookup(&who, &gone, entry("name")), None);
            }
        }
    });
}

#[test]
fn names_are_found_in_memory() {
    where_quick(|tree, fs| {
        let (who, root) = (Identity::superuser(), fs.root());
        let id = make(fs, "file", 0o644);
        assert_eq!(fs.try_lookup(&who, &root, entry("file")), None, "nobody has looked at the directory");
        let found = fs.lookup(&who, &root, entry("file")).unwrap();
        assert_eq!(found.node.id, id);
        assert_eq!(fs.try_lookup(&who, &root, entry("file")), Some(Ok(found)));
        fs::write(tree.join("new"), "").unwrap();
        // Another time of change may mean other rights.
        assert_eq!(fs.try_lookup(&who, &root, entry("new")), None);
        let new = fs.lookup(&who, &root, entry("new")).unwrap();
        assert_eq!(fs.try_lookup(&who, &root, entry("new")), Some(Ok(new)));
        // A name that is missing, and one that was removed.
        let missing = fs.lookup(&who, &root, entry("missing"));
        assert_eq!(missing, Err(FsError::NotFound));
        assert!(is_missing(fs.try_lookup(&who, &root, entry("missing"))));
        assert!(fs.try_attributes(&root).is_some());
        fs::remove_file(tree.join("new")).unwrap();
        assert!(is_missing(fs.try_lookup(&who, &root, entry("new"))));
        fs::write(tree.join("missing"), "").unwrap();
        let found = fs.lookup(&who, &root, entry("missing")).unwrap();
        assert_eq!(fs.try_lookup(&who, &root, entry("missing")), Some(Ok(found)));
        for other in [LookupName::SelfEntry, LookupName::Parent] {
            assert_eq!(fs.try_lookup(&who, &root, other), None);
        }
        // What is no directory has no names.
        assert_eq!(fs.try_lookup(&who, &id, entry("name")), None);
        assert_eq!(fs.lookup(&who, &id, entry("name")), Err(FsError::NotDirectory));
        // No symbolic link is followed.
        std::os::unix::fs::symlink("/", tree.join("link")).unwrap();
        let link = fs.lookup(&who, &root, entry("link")).unwrap();
        assert_eq!(link.node.attributes.kind, FileKind::Symlink);
        assert_eq!(fs.try_lookup(&who, &root, entry("link")), Some(Ok(link)));
        assert_eq!(fs.try_lookup(&who, &link.node.id, entry("etc")), None);
    });
}

#[test]
fn the_kernel_decides_who_may_look_a_name_up() {
    where_quick(|tree, fs| {
        if !fs.acts_as_callers() {
            println!("skipped: this process cannot act as its callers");
            return;
        }
        let who = Identity::superuser();
        fs::create_dir(tree.join("closed")).unwrap();
        fs::write(tree.join("closed/file"), "").unwrap();
        fs::set_permissions(tree.join("closed"), Permissions::from_mode(0o700)).unwrap();
        let closed = fs.lookup(&who, &fs.root(), entry("closed")).unwrap().node.id;
        let found = fs.lookup(&who, &closed, entry("file")).unwrap();
        assert_eq!(fs.try_lookup(&who, &closed, entry("file")), Some(Ok(found)));
        assert_eq!(fs.try_lookup(&user(1000), &closed, entry("file")), None);
        assert_eq!(fs.lookup(&user(1000), &closed, entry("file")), Err(FsError::AccessDenied));
        fs.access(&user(1000), &closed, all()).unwrap();
        assert_eq!(fs.try_lookup(&user(1000), &closed, entry("file")), None, "the kernel has said no");
        fs::set_permissions(tree.join("closed"), Permissions::from_mode(0o711)).unwrap();
        let found = fs.lookup(&user(1000), &closed, entry("file")).unwrap();
        assert_eq!(fs.try_lookup(&user(1000), &closed, entry("file")), Some(Ok(found)));
        // The kernel has decided about the right to search, and about no other.
        let access = |wanted| fs.try_access(&user(1000), &closed, wanted).map(|(granted, _)| granted);
        assert_eq!((access(Access::LOOKUP), access(all())), (Some(Access::LOOKUP), None));
    });
}

/// With the map, an id is good only while its object is under a name that the map knows.
#[test]
fn with_the_map_nothing_is_answered_from_memory() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Map);
    let who = Identity::superuser();
    let id = make(&fs, "file", 0o644);
    fs.access(&who, &id, all()).unwrap();
    fs.lookup(&who, &fs.root(), entry("file")).unwrap();
    fs::rename(tree.path().join("file"), tree.path().join("moved")).unwrap();
    assert_eq!((fs.try_attributes(&id), fs.try_access(&who, &id, all())), (None, None));
    assert_eq!(fs.try_lookup(&who, &fs.root(), entry("moved")), None);
    assert_eq!(fs.attributes(&id), Err(FsError::Stale));
}

/// A READ that finds its right changed asks the kernel again, on a thread that may act as the caller.
#[test]
fn a_read_of_an_open_file_has_its_right_checked_again_after_a_change() {
    where_quick(|tree, fs| {
        let who = user(1000);
        if !fs.acts_as_callers() {
            println!("skipped: this process cannot act as its callers");
            return;
        }
        let id = make(fs, "file", 0o644);
        fs::write(tree.join("file"), "text").unwrap();
        let read = || {
            let mut buffer = [0; 4];
            fs.try_read(&who, &id, 0, &mut buffer).map(|read| read.unwrap().length)
        };
        assert_eq!(read(), None, "not open");
        assert_eq!(fs.read(&who, &id, 0, &mut [0; 4]).unwrap().length, 4);
        if read().is_none() {
            println!("skipped: this file system does not read without waiting");
            return;
        }
        assert_eq!(read(), Some(4));
        fs::set_permissions(tree.join("file"), Permissions::from_mode(0o604)).unwrap();
        assert_eq!(read(), None, "the right may have changed");
        assert_eq!(fs.read(&who, &id, 0, &mut [0; 4]).unwrap().length, 4);
        assert_eq!(read(), Some(4));
        fs::set_permissions(tree.join("file"), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(), None);
        assert_eq!(fs.read(&who, &id, 0, &mut [0; 4]), Err(FsError::AccessDenied));
        fs::set_permissions(tree.join("file"), Permissions::from_mode(0o604)).unwrap();
        assert_eq!(read(), None, "it was closed");
        assert_eq!(fs.read(&who, &id, 0, &mut [0; 4]).unwrap().length, 4);
        assert_eq!(read(), Some(4));
    });
}
