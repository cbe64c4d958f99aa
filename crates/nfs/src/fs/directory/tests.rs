//! Tests of behaviour that NFS calls do not show, or that needs another place than an empty directory.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::map::Key;
use super::storage::tests::Faulty;
use super::*;
use crate::fs::{MemoryFs, MemoryOptions};

mod confined;
mod descriptors;
mod in_memory;
mod locks;
mod looks;
mod losses;
mod unwritten;

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(32))]

    /// A write puts its slices one after the other, however the data is cut.
    #[test]
    fn slices_are_written_in_order(
        writes in proptest::collection::vec(
            (65_000_u64..66_000, proptest::collection::vec(proptest::collection::vec(1_u8.., 0..900), 0..5)),
            1..5,
        ),
    ) {
        let (tree, who) = (tempfile::tempdir().unwrap(), Identity::superuser());
        let (_place, directory) = open(tree.path(), HandleSource::Automatic);
        let stores: [&dyn FileSystem; 2] = [&directory, &MemoryFs::new(MemoryOptions::default())];
        for fs in stores {
            let how = CreateHow::Guarded(SetAttributes::default());
            let id = fs.create(&who, &fs.root(), Name::new(b"f").unwrap(), &how).result.unwrap().id;
            let mut expected = Vec::new();
            for (at, slices) in &writes {
                let data: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
                let told = std::cell::Cell::new(0);
                let tell = || told.set(told.get() + 1);
                let written = fs.write_telling(&who, &id, *at, &data, Stability::Unstable, &tell).result.unwrap();
                let flat = slices.concat();
                proptest::prop_assert_eq!((written.length, told.get()), (flat.len(), 1));
                let at = usize::try_from(*at).unwrap();
                if !flat.is_empty() {
                    expected.resize(expected.len().max(at + flat.len()), 0);
                    expected[at..at + flat.len()].copy_from_slice(&flat);
                }
            }
            let mut read = vec![0xff; expected.len() + 1];
            let length = fs.read(&who, &id, 0, &mut read).unwrap().length;
            proptest::prop_assert!(read[..length] == expected[..]);
        }
    }
}

fn open(path: &Path, handles: HandleSource) -> (tempfile::TempDir, DirectoryFs) {
    let place = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(place.path()).unwrap();
    let options = DirectoryOptions { handles, ..DirectoryOptions::default() };
    let fs = DirectoryFs::open(path, &state, options).unwrap();
    (place, fs)
}

// requirement: rfc1813-3.3.3-2
#[test]
fn other_file_systems_below_are_listed_and_not_entered() {
    // Nearly everywhere these are other file systems than /dev.
    let device = |path: &str| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if std::env::temp_dir().starts_with("/dev") {
        return;
    }
    for inner in ["pts", "shm"] {
        let below = device(&format!("/dev/{inner}"));
        if below.is_none() || below == device("/dev") {
            continue;
        }
        let (_place, fs) = open(Path::new("/dev"), HandleSource::Automatic);
        let who = Identity::superuser();
        let name = LookupName::new(inner.as_bytes()).unwrap();
        assert_eq!(fs.lookup(&who, &fs.root(), name).unwrap_err(), FsError::AccessDenied);
        let mut nodes = HashMap::new();
        fs.read_directory(&who, &fs.root(), 0, 0, true, &mut |entry| {
            nodes.insert(entry.name.to_vec(), entry.node);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(nodes.get(inner.as_bytes()), Some(&None), "{inner}");
        assert!(nodes.get(b"null".as_slice()).is_some_and(Option::is_some));
    }
}

/// Makes a chain of directories. Returns the ids of all, from a look-up of each in the one above.
fn chain(fs: &DirectoryFs, tree: &Path, depth: usize) -> Vec<FileId> {
    let who = Identity::superuser();
    let mut ids = vec![fs.root()];
    let mut at: OwnedFd = std::fs::File::open(tree).unwrap().into();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, c"d", Mode::RWXU).unwrap();
        at = openat(&at, c"d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let name = LookupName::new(b"d").unwrap();
        ids.push(fs.lookup(&who, ids.last().unwrap(), name).unwrap().node.id);
    }
    ids
}

/// Removes a chain without a descriptor for each directory.
fn unchain(tree: &Path) {
    let (top, rest) = (tree.join("d"), tree.join("rest"));
    while std::fs::rename(top.join("d"), &rest).is_ok() {
        std::fs::remove_dir(&top).unwrap();
        std::fs::rename(&rest, &top).unwrap();
    }
}

#[test]
fn i6_a_parent_costs_the_same_however_deep_it_is() {
    let who = Identity::superuser();
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let tree = tempfile::tempdir().unwrap();
        let (_place, fs) = open(tree.path(), handles);
        // The kernel reports no path of more than 4095 bytes; without its handles a path has at most 2048
        // names.
        let depth = if fs.has_kernel_handles() { 3500 } else { 1500 };
        let ids = chain(&fs, tree.path(), depth);
        let opened = |depth: usize| {
            let before = ids::OPENED.get();
            let found = fs.lookup(&who, &ids[depth], LookupName::Parent).unwrap();
            assert_eq!(found.node.id, ids[depth - 1], "{depth}");
            ids::OPENED.get() - before
        };
        assert_eq!(opened(2), opened(1000));
        assert!((opened(2)..opened(2) + 8).contains(&opened(depth)), "{}", opened(depth));
        let listed = |depth: usize| {
            let before = ids::OPENED.get();
            fs.read_directory(&who, &ids[depth], 0, 0, true, &mut |_| std::ops::ControlFlow::Continue(()))
                .unwrap();
            ids::OPENED.get() - before
        };
        assert_eq!(listed(2), listed(999));
        unchain(tree.path());
    }
}

#[test]
fn a_deep_directory_that_was_moved_out_has_no_parent() {
    let who = Identity::superuser();
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        let (_place, fs) = open(&tree, handles);
        let ids = chain(&fs, &tree, 20);
        // By handles, directories continue where paths end.
        let name = "n".repeat(250);
        let mut deep = *ids.last().unwrap();
        for _ in 0..30 {
            let name = Name::new(name.as_bytes()).unwrap();
            let made = fs.make(&who, &deep, name, &Special::Directory, &SetAttributes::default());
            deep = made.result.unwrap().id;
        }
        assert!(fs.lookup(&who, &deep, LookupName::Parent).is_ok());
        std::fs::rename(tree.join("d/d/d"), place.path().join("outside")).unwrap();
        let refused = fs.lookup(&who, &deep, LookupName::Parent).unwrap_err();
        assert!(matches!(refused, FsError::AccessDenied | FsError::Stale), "{refused}");
        // The directories above are unchanged.
        assert_eq!(fs.lookup(&who, &ids[2], LookupName::Parent).unwrap().node.id, ids[1]);
    }
}

#[test]
fn trees_that_share_a_verifier_change_it_together() {
    let trees = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let place = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(place.path()).unwrap();
    let options = DirectoryOptions::default();
    let device = Arc::new(Faulty::default());
    let storage = Storage::on(Arc::clone(&device) as Arc<_>, options.verifier.clone());
    let one = DirectoryFs::open_on(storage, trees[0].path(), &state, options.clone()).unwrap();
    let other = DirectoryFs::open(trees[1].path(), &state, options.clone()).unwrap();
    let before = other.storage.verifier();
    device.sync.lock().unwrap().push(Errno::IO);
    assert_eq!(one.flush(), Err(FsError::Io));
    assert_eq!(one.storage.verifier(), other.storage.verifier());
    assert_ne!(other.storage.verifier(), before);
    // Other options have another verifier.
    assert_ne!(DirectoryOptions::default().verifier.get(), options.verifier.get());
}

#[test]
fn ids_out_of_nowhere_are_refused() {
    let tree = tempfile::tempdir().unwrap();
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let (_place, fs) = open(tree.path(), handles);
        for bytes in [&b""[..], b"x", b"\x01\0\0\0\0\0\0\0\0", &[0xff; 16], &[0xff; 39]] {
            let refusal = fs.attributes(&FileId::new(bytes).unwrap()).unwrap_err();
            assert!(matches!(refusal, FsError::BadId | FsError::Stale), "{bytes:?}: {refusal}");
        }
    }
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_walked_in_parts() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Map);
    let who = Identity::superuser();
    let name = "d".repeat(200);
    let mut at = fs.root();
    for _ in 0..40 {
        let name = Name::new(name.as_bytes()).unwrap();
        let made = fs.make(&who, &at, name, &Special::Directory, &SetAttributes::default());
        at = made.result.unwrap().id;
    }
    assert_eq!(fs.attributes(&at).unwrap().kind, FileKind::Directory);
    // A directory below is found by its handle, and the way up leads to the root.
    let mut depth = 0;
    while at != fs.root() {
        at = fs.lookup(&who, &at, LookupName::Parent).unwrap().node.id;
        depth += 1;
    }
    assert_eq!(depth, 40);
}

#[test]
fn an_inode_number_that_is_used_again_is_another_object() {
    let tree = tempfile::tempdir().unwrap();
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let (_place, fs) = open(tree.path(), handles);
        let who = Identity::superuser();
        let name = Name::new(b"file").unwrap();
        let mut last = None;
        for _ in 0..50 {
            // Within one tick of the kernel's clock.
            let how = CreateHow::Guarded(SetAttributes::default());
            let made = fs.create(&who, &fs.root(), name, &how).result.unwrap();
            if let Some(last) = last.replace(made.id) {
                assert_ne!(last, made.id);
                assert_eq!(fs.attributes(&last), Err(FsError::Stale));
            }
            fs.remove(&who, &fs.root(), name).result.unwrap();
        }
    }
}

/// The server learns of local changes only when a handle is used. Then the map does not grow by removed
/// objects.
#[test]
fn what_is_found_gone_is_dropped_from_the_map() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Map);
    let Ids::Map(map) = &fs.ids else { panic!("the map was asked for") };
    let who = Identity::superuser();
    let path = tree.path().join("file");
    for _ in 0..20 {
        fs::write(&path, "text").unwrap();
        let id = fs.lookup(&who, &fs.root(), LookupName::new(b"file").unwrap()).unwrap().node.id;
        assert!(fs.attributes(&id).is_ok());
        fs::remove_file(&path).unwrap();
        assert_eq!(fs.attributes(&id), Err(FsError::Stale));
        assert_eq!(map.len(), 0);
    }
}

/// A WRITE holds the lock from the attributes before it to those after it.
#[test]
fn a_create_that_cuts_a_file_waits_for_a_write_to_it() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let who = Identity::superuser();
    let name = Name::new(b"file").unwrap();
    let how = CreateHow::Unchecked(SetAttributes { size: Some(0), ..SetAttributes::default() });
    let file = fs.create(&who, &fs.root(), name, &how).result.unwrap();
    fs.write(&who, &file.id, 0, b"text", Stability::Unstable).result.unwrap();
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let writing = fs.locks.lock(&file.id).unwrap();
        scope.spawn(|| {
            done.send(fs.create(&who, &fs.root(), name, &how).result.map(|made| made.attributes.size))
        });
        assert!(outcome.recv_timeout(std::time::Duration::from_millis(50)).is_err());
        assert_eq!(fs.attributes(&file.id).unwrap().size, 4);
        drop(writing);
        assert_eq!(outcome.recv(), Ok(Ok(0)));
    });
}

/// RFC 1813 §3.3.8: the file and its verifier become stable in one step. So a server that dies at any moment leaves no
/// file that the repeated call does not know as its own.
// requirement: rfc1813-3.3.8-5
#[test]
fn an_exclusive_file_has_its_verifier_before_its_name() {
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let (who, name) = (Identity::superuser(), Name::new(b"file").unwrap());
    let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let watched = WatchFlags::CREATE | WatchFlags::ATTRIB | WatchFlags::MOVED_TO | WatchFlags::MODIFY;
    add_watch(&events, tree.path(), watched).unwrap();
    let create = |verifier| fs.create(&who, &fs.root(), name, &CreateHow::Exclusive(verifier)).result;
    let made = create(*b"verifier").unwrap();
    assert_eq!((made.attributes.links, made.attributes.mode), (1, 0o600));
    fs.write(&who, &made.id, 0, b"text", Stability::Unstable).result.unwrap();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(events, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = events.next() {
        if event.file_name() == Some(c"file") {
            seen.push(event.events());
        }
    }
    // The descriptor for WRITE has the name too.
    assert_eq!(seen, [ReadFlags::CREATE, ReadFlags::MODIFY]);
    assert_eq!(create(*b"verifier").err(), Some(FsError::Exists));
    fs.remove(&who, &fs.root(), name).result.unwrap();
    let again = create(*b"verifier").unwrap();
    assert_eq!(create(*b"verifier").unwrap().id, again.id);
    assert_eq!(create(*b"VERIFIER").err(), Some(FsError::Exists));
}

#[test]
fn a_handle_is_good_while_a_directory_above_is_renamed() {
    let tree = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let state = StateDirectory::open(place.path()).unwrap();
    let options =
        DirectoryOptions { handles: HandleSource::Map, sync_metadata: false, ..DirectoryOptions::default() };
    let fs = DirectoryFs::open(tree.path(), &state, options).unwrap();
    let who = Identity::superuser();
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let none = SetAttributes::default();
    let above = fs.make(&who, &fs.root(), name("0"), &Special::Directory, &none).result.unwrap();
    let file = fs.create(&who, &above.id, name("file"), &CreateHow::Guarded(none)).result.unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2_000 {
                for (from, to) in [("0", "1"), ("1", "0")] {
                    fs.rename(&who, &fs.root(), name(from), &fs.root(), name(to)).result.unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            assert_eq!(fs.attributes(&file.id).map(|found| found.kind), Ok(FileKind::Regular));
        }
    });
}

/// As on a frozen file system: a call that cannot decide whether a handle is stale reports that, and releases
/// its thread.
#[test]
fn i6_a_rename_that_does_not_end_puts_handles_off_that_are_not_found() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Map);
    let fs = Arc::new(fs);
    let who = Identity::superuser();
    let seen = |name: &str| {
        fs::write(tree.path().join(name), "").unwrap();
        fs.lookup(&who, &fs.root(), LookupName::new(name.as_bytes()).unwrap()).unwrap().node.id
    };
    let (gone, there) = (seen("gone"), seen("there"));
    fs::remove_file(tree.path().join("gone")).unwrap();
    let renaming = fs.ids.renaming().unwrap();
    let (sender, answer) = std::sync::mpsc::channel();
    let looking = Arc::clone(&fs);
    std::thread::spawn(move || sender.send([gone, there].map(|id| looking.attributes(&id).map(drop))));
    let answer = answer.recv_timeout(std::time::Duration::from_secs(30));
    assert_eq!(answer, Ok([Err(FsError::TryLater), Ok(())]));
    drop(renaming);
    assert_eq!(fs.attributes(&gone), Err(FsError::Stale));
}

/// Names are learnt from a listing that runs as its caller, who has no rights in the state directory.
#[test]
fn a_listing_of_somebody_else_does_not_keep_the_log_from_being_written_anew() {
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (place, fs) = open(tree.path(), HandleSource::Map);
    // Each listing learns both names of one object again.
    fs::write(tree.path().join("name"), "").unwrap();
    fs::hard_link(tree.path().join("name"), tree.path().join("other")).unwrap();
    let Ids::Map(map) = &fs.ids else { panic!("the map was asked for") };
    let length = || {
        let entries = fs::read_dir(place.path()).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap()
    };
    let (root, key) = (map.key(&fs.root), Key::from_id(&FileId::from_array(&[7; 16])).unwrap());
    for _ in 0..5_000 {
        map.remember(key, root, b"name");
        map.forget(key, root, b"name");
    }
    assert!(length() > 100_000);
    let who = Identity { uid: 1000, gid: 1000, groups: Vec::new() };
    for _ in 0..10 {
        let mut seen = 0;
        fs.read_directory(&who, &fs.root(), 0, 0, true, &mut |entry| {
            seen += usize::from(entry.node.is_some());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(seen, 4);
    }
    assert!(length() < 1_000);
}

/// Opens a tree as a process that may not act as others.
fn open_without_rights(path: &Path) -> (tempfile::TempDir, DirectoryFs) {
    let path = path.to_owned();
    let opened = std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(rustix::thread::CapabilitySet::SETGID);
            sets.permitted.remove(rustix::thread::CapabilitySet::SETGID);
            rustix::thread::set_capabilities(None, sets).unwrap();
        }
        open(&path, HandleSource::Automatic)
    });
    opened.join().unwrap()
}

/// Otherwise any client could become the user who runs the server, by a program left in the export.
#[test]
fn who_does_not_act_as_others_lends_no_set_id_bits() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open_without_rights(tree.path());
    assert!(!fs.acts_as_callers());
    let who = Identity { uid: 1000, gid: 1000, groups: Vec::new() };
    let all = SetAttributes { mode: Some(0o7755), ..SetAttributes::default() };
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let file = fs.create(&who, &fs.root(), name("file"), &CreateHow::Guarded(all)).result.unwrap();
    let fifo = fs.make(&who, &fs.root(), name("fifo"), &Special::Fifo, &all).result.unwrap();
    let directory = fs.make(&who, &fs.root(), name("dir"), &Special::Directory, &all).result.unwrap();
    for (node, mode) in [(file, 0o1755), (fifo, 0o1755), (directory, 0o3755)] {
        assert_eq!(node.attributes.mode, mode);
        fs.set_attributes(&who, &node.id, &all, None).result.unwrap();
        assert_eq!(fs.attributes(&node.id).unwrap().mode, mode);
    }
}

/// The kernel leaves the bits if a process with all rights over files makes the change for its callers.
#[test]
fn who_does_not_act_as_others_takes_set_id_bits_off() {
    type Step<'a> = &'a dyn Fn() -> Result<(), FsError>;
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open_without_rights(tree.path());
    let path = tree.path().join("file");
    fs::write(&path, "text").unwrap();
    let who = Identity { uid: 1000, gid: 1000, groups: Vec::new() };
    let id = fs.lookup(&who, &fs.root(), LookupName::new(b"file").unwrap()).unwrap().node.id;
    let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    let written = || fs.write(&who, &id, 0, b"TEXT", Stability::Unstable).result.map(drop);
    let resized = || fs.set_attributes(&who, &id, &cut(2), None).result;
    let created = || {
        let how = CreateHow::Unchecked(cut(0));
        fs.create(&who, &fs.root(), Name::new(b"file").unwrap(), &how).result.map(drop)
    };
    let changes: [(&str, Step<'_>); 3] = [("write", &written), ("size", &resized), ("create", &created)];
    for (change, make) in changes {
        // Without the group's right to execute, the bit has another meaning.
        for (bits, left) in [(0o6755, 0o755), (0o6745, 0o2745)] {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(bits)).unwrap();
            assert_eq!(make(), Ok(()), "{change}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, left, "{change}");
        }
    }
}

#[test]
fn who_asks_for_itself_as_owner_may_create() {
    let who = Identity { uid: 1000, gid: 1001, groups: Vec::new() };
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let owned = |uid, gid| SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
    let create =
        |fs: &DirectoryFs, new| fs.create(&who, &fs.root(), name("file"), &CreateHow::Guarded(new)).result;
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let check = |fs: &DirectoryFs| {
        for new in [owned(4242, 1001), owned(1000, 4242)] {
            assert_eq!(create(fs, new).map(drop), Err(FsError::NotPermitted));
        }
        let file = create(fs, owned(1000, 1001)).unwrap();
        fs.make(&who, &fs.root(), name("dir"), &Special::Directory, &owned(1000, 1001)).result.unwrap();
        if fs.acts_as_callers() {
            assert_eq!((file.attributes.uid, file.attributes.gid), (1000, 1001));
        }
        fs.remove(&who, &fs.root(), name("file")).result.unwrap();
        fs.remove_directory(&who, &fs.root(), name("dir")).result.unwrap();
    };
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    if fs.acts_as_callers() {
        check(&fs);
    }
    let (_place, fs) = open_without_rights(tree.path());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // As a user other than root.
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(rustix::thread::CapabilitySet::CHOWN);
            rustix::thread::set_capabilities(None, sets).unwrap();
            check(&fs);
        });
    });
}

// requirement: rfc1813-2.5-16
#[test]
fn a_commit_claims_no_change_of_others() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let who = Identity::superuser();
    let how = CreateHow::Guarded(SetAttributes::default());
    let file = fs.create(&who, &fs.root(), Name::new(b"file").unwrap(), &how).result.unwrap();
    let committed = fs.commit(&who, &file.id, 0, 0);
    assert!(committed.result.is_ok());
    assert_eq!(committed.change.before, None);
    assert!(committed.change.after.is_some());
}
