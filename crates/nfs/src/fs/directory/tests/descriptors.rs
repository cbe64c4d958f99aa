//! Descriptors between calls, as other local processes and other users see them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::fs::{Gid, Uid, XattrFlags, setxattr};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::*;

/// An unprivileged user.
const ORDINARY: u32 = 4242;

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn user(uid: u32) -> Identity {
    Identity { uid, gid: uid, groups: Vec::new() }
}

/// Returns the access modes of this process's descriptors of a file.
fn open_modes(path: &Path) -> Vec<OFlags> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let here = descriptors.filter_map(|entry| {
        let entry = entry.unwrap();
        if fs::read_link(entry.path()).ok()? != path {
            return None;
        }
        let info = fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = OFlags::from_bits_retain(u32::from_str_radix(flags.trim(), 8).unwrap());
        (!flags.contains(OFlags::PATH)).then_some(flags & OFlags::RWMODE)
    });
    here.collect()
}

/// While a process has a program open for writing, nobody can execute it.
#[test]
fn a_commit_closes_what_can_write() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let who = Identity::superuser();
    let how = CreateHow::Guarded(mode(0o755));
    let file = fs.create(&who, &fs.root(), name("program"), &how).result.unwrap();
    fs.write(&who, &file.id, 0, b"#!/bin/true\n", Stability::Unstable).result.unwrap();
    fs.commit(&who, &file.id, 0, 0).result.unwrap();
    assert_eq!(open_modes(&tree.path().join("program")), []);
}

#[test]
fn without_a_call_a_program_can_be_executed_and_a_removed_file_is_gone() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let who = Identity::superuser();
    let path = tree.path().join("file");
    let how = CreateHow::Guarded(mode(0o755));
    let file = fs.create(&who, &fs.root(), name("file"), &how).result.unwrap();
    fs.write(&who, &file.id, 0, b"text", Stability::FileSync).result.unwrap();
    let started = std::time::Instant::now();
    while !open_modes(&path).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "still open");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A file that waits for its COMMIT has a descriptor that hinders nobody. If the file is removed, its
    // space is freed.
    fs.write(&who, &file.id, 0, b"text", Stability::Unstable).result.unwrap();
    while open_modes(&path) != [OFlags::RDONLY] {
        assert!(started.elapsed() < Duration::from_secs(20), "still open for writing");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::remove_file(&path).unwrap();
    let removed = tree.path().join("file (deleted)");
    while !open_modes(&removed).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "its space is in use");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a `system.posix_acl_access` with rights of one named user, which the mode does not show.
fn access_list(uid: u32, rights: u16) -> Vec<u8> {
    const UNDEFINED: u32 = u32::MAX;
    let entries =
        [(1, 6, UNDEFINED), (2, rights, uid), (4, 0, UNDEFINED), (0x10, 6, UNDEFINED), (0x20, 0, UNDEFINED)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(rights));
        list.extend(u32::to_le_bytes(id));
    }
    list
}

#[test]
fn what_an_access_list_takes_away_is_gone_although_the_file_is_open() {
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    if !fs.acts_as_callers() {
        println!("skipped: this process cannot act as its callers");
        return;
    }
    let path = tree.path().join("file");
    fs::write(&path, "text").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    let set =
        |rights| setxattr(&path, c"system.posix_acl_access", &access_list(1000, rights), XattrFlags::empty());
    if let Err(errno) = set(6) {
        println!("skipped: no access control lists here: {errno}");
        return;
    }
    let who = user(1000);
    let id = fs.lookup(&who, &fs.root(), LookupName::new(b"file").unwrap()).unwrap().node.id;
    let read = || {
        let mut buffer = [0; 4];
        let cached = fs.try_read(&who, &id, 0, &mut buffer);
        cached.unwrap_or_else(|| fs.read(&who, &id, 0, &mut buffer)).map(|read| read.length)
    };
    let write = || fs.write(&who, &id, 0, b"more", Stability::Unstable).result.map(|written| written.length);
    for _ in 0..2 {
        assert_eq!((read(), write()), (Ok(4), Ok(4)));
    }
    let before = fs::metadata(&path).unwrap().mode();
    set(4).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), before, "the mode shows nothing of it");
    // A READ that has its right must not confirm the right to write.
    assert_eq!((read(), write(), read()), (Ok(4), Err(FsError::AccessDenied), Ok(4)));
    set(0).unwrap();
    assert_eq!((read(), write()), (Err(FsError::AccessDenied), Err(FsError::AccessDenied)));
    assert_eq!(fs.commit(&who, &id, 0, 0).result, Err(FsError::AccessDenied));
    set(6).unwrap();
    assert_eq!((read(), write()), (Ok(4), Ok(4)));
}

/// Serves a tree as a process of an ordinary user.
fn as_ordinary_user(test: impl FnOnce(&Path, &DirectoryFs) + Send) {
    as_ordinary_user_with(DirectoryOptions::default(), test);
}

fn as_ordinary_user_with(options: DirectoryOptions, test: impl FnOnce(&Path, &DirectoryFs) + Send) {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let root = rustix::process::geteuid().is_root();
    if root {
        for place in &places {
            std::os::unix::fs::chown(place.path(), Some(ORDINARY), Some(ORDINARY)).unwrap();
        }
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if root {
                let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
                set_thread_groups(&[]).unwrap();
                set_thread_res_gid(gid, gid, gid).unwrap();
                set_thread_res_uid(uid, uid, uid).unwrap();
            }
            let state = StateDirectory::open(places[1].path()).unwrap();
            let fs = DirectoryFs::open(places[0].path(), &state, options).unwrap();
            assert!(!fs.acts_as_callers());
            test(places[0].path(), &fs);
        });
        thread.join().unwrap();
    });
}

/// RFC 1813 §4.4. `git`, `tar` and `rpcrdma put` make files in this way.
#[test]
fn an_ordinary_user_serves_files_that_are_made_read_only() {
    as_ordinary_user(|tree, fs| {
        let who = user(1000);
        for (case, bits) in [("guarded", 0o444), ("unreadable", 0o000), ("program", 0o555)] {
            let how = CreateHow::Guarded(mode(bits));
            let file = fs.create(&who, &fs.root(), name(case), &how).result.unwrap();
            fs.write(&who, &file.id, 0, b"first", Stability::Unstable).result.unwrap();
            fs.write(&who, &file.id, 5, b" second", Stability::Unstable).result.unwrap();
            fs.commit(&who, &file.id, 0, 0).result.unwrap();
            assert_eq!(fs.attributes(&file.id).unwrap().mode, bits, "{case}");
            let path = tree.join(case);
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"first second", "{case}");
        }
        // A Linux client makes files in this way.
        let how = CreateHow::Exclusive(*b"verifier");
        let file = fs.create(&who, &fs.root(), name("exclusive"), &how).result.unwrap();
        let now = SetAttributes { accessed: SetTime::Now, modified: SetTime::Now, ..mode(0o444) };
        fs.set_attributes(&who, &file.id, &now, None).result.unwrap();
        fs.write(&who, &file.id, 0, b"text", Stability::Unstable).result.unwrap();
        fs.commit(&who, &file.id, 0, 0).result.unwrap();
        // And again after the COMMIT, as `git index-pack` does.
        fs.write(&who, &file.id, 0, b"TEXT", Stability::FileSync).result.unwrap();
        let mut buffer = [0; 4];
        fs.read(&who, &file.id, 0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"TEXT");
        let cut = SetAttributes { size: Some(2), modified: SetTime::Now, ..SetAttributes::default() };
        fs.set_attributes(&who, &file.id, &cut, None).result.unwrap();
        assert_eq!(fs.attributes(&file.id).unwrap().mode, 0o444);
        // A file that was read-only before the server started has never been open.
        fs::write(tree.join("old"), "old").unwrap();
        fs::set_permissions(tree.join("old"), Permissions::from_mode(0o444)).unwrap();
        let old = fs.lookup(&who, &fs.root(), LookupName::new(b"old").unwrap()).unwrap().node.id;
        let refused = fs.write(&who, &old, 0, b"new", Stability::Unstable).result;
        assert_eq!(refused, Err(FsError::AccessDenied));
        // A committed, read-only program is closed like any other file.
        assert_eq!(open_modes(&tree.join("program")), []);
    });
}

/// The table holds few of the files that one user makes read-only, and another caller keeps a file of its
/// own.
#[test]
fn i6_who_makes_many_read_only_files_takes_none_from_others() {
    for finished in [true, false] {
        let options =
            DirectoryOptions { open_files: 16, sync_metadata: false, ..DirectoryOptions::default() };
        as_ordinary_user_with(options, |_, fs| {
            let create = |uid, case: &str| {
                let how = CreateHow::Guarded(mode(0o444));
                fs.create(&user(uid), &fs.root(), name(case), &how).result.unwrap().id
            };
            let write = |uid, id: &FileId, offset| {
                let written = fs.write(&user(uid), id, offset, b"text", Stability::Unstable);
                written.result.map(|written| written.length)
            };
            let fresh = create(1000, "fresh");
            let begun = create(1000, "begun");
            assert_eq!(write(1000, &begun, 0), Ok(4));
            for number in 0..64 {
                let file = create(2000, &number.to_string());
                if finished {
                    assert_eq!(write(2000, &file, 0), Ok(4));
                    fs.commit(&user(2000), &file, 0, 0).result.unwrap();
                }
            }
            assert_eq!((write(1000, &fresh, 0), write(1000, &begun, 4)), (Ok(4), Ok(4)), "{finished}");
        });
    }
}

/// Truncation by a caller with the right to write, at a server that cannot act as others.
#[test]
fn an_ordinary_user_refuses_before_anything_is_changed() {
    as_ordinary_user(|tree, fs| {
        let who = user(1000);
        let how = CreateHow::Guarded(mode(0o644));
        let file = fs.create(&who, &fs.root(), name("file"), &how).result.unwrap();
        fs.write(&who, &file.id, 0, b"precious", Stability::FileSync).result.unwrap();
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        let before = fs.attributes(&file.id).unwrap();
        for refused in [SetAttributes { uid: Some(1), ..cut }, SetAttributes { gid: Some(1), ..cut }] {
            let outcome = fs.set_attributes(&who, &file.id, &refused, None);
            assert_eq!(outcome.result, Err(FsError::NotPermitted));
            assert_eq!(fs.attributes(&file.id).unwrap(), before);
        }
        fs.set_attributes(&who, &file.id, &SetAttributes { modified: SetTime::Now, ..cut }, None)
            .result
            .unwrap();
        assert_eq!(fs::metadata(tree.join("file")).unwrap().len(), 0);
    });
}

/// In a process of its own, because the limit belongs to the process.
#[test]
fn a_low_limit_of_descriptors_costs_time_only() {
    const INNER: &str = "RPCRDMA_TEST_LOW_LIMIT";
    const LIMIT: u64 = 80;
    if std::env::var_os(INNER).is_none() {
        let test = std::thread::current().name().unwrap().to_owned();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output = command.args([&test, "--exact", "--nocapture"]).env(INNER, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum }).unwrap();
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let who = Identity::superuser();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (fs, who) = (&fs, &who);
            scope.spawn(move || {
                let mut made = Vec::new();
                for number in 0..40 {
                    let how = CreateHow::Guarded(mode(0o644));
                    let name = format!("{thread}-{number}");
                    let file = fs.create(who, &fs.root(), Name::new(name.as_bytes()).unwrap(), &how);
                    let id = file.result.unwrap().id;
                    fs.write(who, &id, 0, name.as_bytes(), Stability::Unstable).result.unwrap();
                    made.push((id, name));
                }
                for (id, name) in made {
                    let mut buffer = [0; 16];
                    let read = fs.read(who, &id, 0, &mut buffer).unwrap();
                    assert_eq!(&buffer[..read.length], name.as_bytes());
                    fs.commit(who, &id, 0, 0).result.unwrap();
                }
            });
        }
    });
    // Half of them are never used for this.
    assert!(fs::read_dir("/proc/self/fd").unwrap().count() < usize::try_from(LIMIT / 2).unwrap() + 16);
}
