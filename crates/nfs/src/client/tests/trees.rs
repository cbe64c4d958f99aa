//! Copies of trees.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpcrdma::CallError;
use rpcrdma_oncrpc::{AuthSys, Credential};
use tempfile::tempdir;

use super::loopback::{arguments, options};
use super::*;
use crate::client::{Client, ClientOptions, CopyEvent, CopyOptions, Error};
use crate::fs::{MemoryFs, MemoryOptions};
use crate::server::{Export, Squash};
use crate::wire::{
    DirEntryPlus, DirListPlus, FileName, FileType, MknodArgs, MknodData, NfsProcedure, ReadArgs,
    ReaddirplusArgs, ReaddirplusOk, ReadlinkArgs, ReadlinkOk, SetAttributes, SetattrArgs, Status,
};

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

/// Returns everything below a directory: path, then type, mode, time and content.
fn contents(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let what = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                let kept = format!("{:o} {}.{}", metadata.mode(), metadata.mtime(), metadata.mtime_nsec());
                if metadata.is_dir() {
                    waiting.push(path);
                    kept
                } else {
                    format!("{kept} {:?}", Bytes::from(fs::read(&path).unwrap()))
                }
            };
            found.insert(name, what);
        }
    }
    found
}

/// Makes a tree with files of odd lengths, odd names, deep directories and links.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/and/deeper")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for (n, length) in [0, 1, 2, 3, 1023, 1024, 1025, 5000, 70_001].into_iter().enumerate() {
        let data: Vec<u8> = (0..length).map(|i| u8::try_from((i * 31 + n) % 256).unwrap()).collect();
        fs::write(root.join(format!("file-{length}")), &data).unwrap();
        fs::write(root.join("deep/er").join(format!("f{n}")), &data).unwrap();
    }
    fs::write(root.join("deep/er/and/deeper/é 雪 %20"), "unicode").unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"latin-\xe9")), "bytes").unwrap();
    fs::write(root.join("script"), "#!/bin/sh").unwrap();
    fs::set_permissions(root.join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("file-1024", root.join("link")).unwrap();
    symlink("/nowhere/else", root.join("deep/dangling")).unwrap();
    let time =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567, 89));
    fs::File::options().write(true).open(root.join("script")).unwrap().set_times(time).unwrap();
    fs::File::open(root.join("deep/er")).unwrap().set_times(time).unwrap();
    fs::set_permissions(root.join("deep/er"), fs::Permissions::from_mode(0o500)).unwrap();
}

/// Makes a temporary directory removable.
fn unlock(root: &Path) {
    fs::set_permissions(root.join("deep/er"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_tree_there_and_back() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 4096, ..options() }).await;
    let local = tempdir().unwrap();
    let source = local.path().join("source");
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    let report = client.put(&source, "/", &recursive()).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    assert_eq!((report.files, report.directories, report.symlinks), (21, 6, 2));

    let bytes = Arc::new(AtomicU64::new(0));
    let found = Arc::new(AtomicU64::new(0));
    let (moved, sizes) = (bytes.clone(), found.clone());
    let progress = move |event: CopyEvent<'_>| match event {
        CopyEvent::Found { bytes, .. } => drop(sizes.fetch_add(bytes, Ordering::Relaxed)),
        CopyEvent::Bytes(count) => drop(moved.fetch_add(count, Ordering::Relaxed)),
        _ => {}
    };
    let options = CopyOptions { progress: Some(Arc::new(progress)), ..recursive() };
    let target = local.path().join("target");
    let report = client.get("/source", &target, &options).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    assert_eq!((report.files, report.directories, report.symlinks), (21, 6, 2));
    assert_eq!(report.bytes, bytes.load(Ordering::Relaxed));
    assert_eq!(report.bytes, found.load(Ordering::Relaxed));
    assert_eq!(contents(&target), contents(&source));

    // A directory as target gets the copy as an entry. Then again, over existing objects.
    unlock(&target);
    client
        .set_attributes("/source/deep/er", SetAttributes { mode: Some(0o700), ..SetAttributes::default() })
        .await
        .unwrap();
    for _ in 0..2 {
        let report = client.get("/source", local.path().join("empty-no"), &recursive()).await.unwrap();
        assert_eq!(format!("{:?}", report.failures), "[]");
    }
    assert!(local.path().join("empty-no/source/link").is_symlink());
    client
        .set_attributes("/source/deep/er", SetAttributes { mode: Some(0o500), ..SetAttributes::default() })
        .await
        .unwrap();
    unlock(&source);
    let report = client.put(&source, "/", &recursive()).await.unwrap();
    // Nothing can be made in the server's read-only directory: its files are written in place.
    assert_eq!((report.directories, report.files), (6, 21));
}

/// The root of an export has no name: its contents are copied.
#[tokio::test]
async fn the_root() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    fs::create_dir(local.path().join("a")).unwrap();
    fs::write(local.path().join("a/f"), "1").unwrap();
    let report = client.put(local.path().join("a/."), "/", &recursive()).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    let out = local.path().join("out");
    client.get("/", &out, &recursive()).await.unwrap();
    assert_eq!(contents(&out).into_keys().collect::<Vec<_>>(), ["f"]);
    client.get("/", &out, &recursive()).await.unwrap();
    assert!(!out.join("out").exists());
}

/// `cp` without `-r`: one file, under its own or a new name; links are followed; a directory is refused.
#[tokio::test]
async fn single_files() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let file = local.path().join("f");
    fs::write(&file, "content").unwrap();
    symlink("f", local.path().join("l")).unwrap();
    client.put(&file, "/renamed", &CopyOptions::default()).await.unwrap();
    client.mkdir("/d", SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).await.unwrap();
    client.put(local.path().join("l"), "/d", &CopyOptions::default()).await.unwrap();
    assert_eq!(client.lookup_link("/d/l").await.unwrap().attributes.file_type, FileType::Regular);
    client.symlink("renamed", "/link").await.unwrap();
    let out = local.path().join("out");
    client.get("/link", &out, &CopyOptions::default()).await.unwrap();
    assert_eq!(fs::read(&out).unwrap(), b"content");
    client.get("/renamed", local.path(), &CopyOptions::default()).await.unwrap();
    assert_eq!(fs::read(local.path().join("renamed")).unwrap(), b"content");
    let error = client.get("/d", &out, &CopyOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::IsDirectory { .. }));
    assert!(error.to_string().contains("recursively"));
    assert!(matches!(
        client.put(local.path(), "/x", &CopyOptions::default()).await,
        Err(Error::IsDirectory { .. })
    ));
    assert_eq!(
        client.get("/none", &out, &CopyOptions::default()).await.unwrap_err().status(),
        Some(Status::NoEnt)
    );
    assert!(matches!(
        client.put(local.path().join("none"), "/x", &CopyOptions::default()).await,
        Err(Error::Local { .. })
    ));
    // A directory has the final name: the file does not get lost in that directory.
    fs::create_dir(local.path().join("dir")).unwrap();
    fs::create_dir(local.path().join("dir/renamed")).unwrap();
    let report = client.get("/renamed", local.path().join("dir"), &CopyOptions::default()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(contents(&local.path().join("dir")).len(), 1, "no temporary file is left");
}

/// Without `preserve`, the copy has the umask of the process and the current time.
#[tokio::test]
async fn without_preserving() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    make_tree(local.path());
    let options = CopyOptions { preserve: false, ..recursive() };
    client.put(local.path().join("script"), "/script", &options).await.unwrap();
    let out = local.path().join("out");
    client.get("/script", &out, &options).await.unwrap();
    let metadata = fs::metadata(&out).unwrap();
    assert!(metadata.mode() & 0o100 != 0);
    assert!(metadata.mtime() > 1_234_567);
    unlock(local.path());
}

/// Objects that are neither file, directory nor link are left out and reported.
#[tokio::test]
async fn special_files() {
    let client = Loopback::exporting(&["/"]).mount().await;
    for (name, what) in [
        ("fifo", MknodData::Fifo(SetAttributes::default())),
        ("socket", MknodData::Socket(SetAttributes::default())),
    ] {
        let place = crate::wire::DirOpArgs { dir: client.root(), name: FileName::from(name) };
        client.procedures().mknod(&MknodArgs { place, what }).await.unwrap();
    }
    let local = tempdir().unwrap();
    let report = client.get("/", local.path(), &recursive()).await.unwrap();
    let mut skipped = report.skipped;
    skipped.sort();
    assert_eq!(skipped, [("/fifo".into(), "a named pipe".into()), ("/socket".into(), "a socket".into())]);
    let _listener = std::os::unix::net::UnixListener::bind(local.path().join("s")).unwrap();
    let report = client.put(local.path(), "/", &recursive()).await.unwrap();
    assert_eq!(report.skipped.len(), 1);
}

/// The root of an export has no name; reports of failures call it "/".
#[tokio::test]
async fn a_failure_at_the_root_of_an_export_names_it() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", options()).await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Readdirplus => Step::fail::<ReaddirplusArgs>(Status::Acces, None),
        _ => Step::Serve,
    });
    let local = tempdir().unwrap();
    let report = client.get("", local.path().join("out"), &recursive()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].path, "/");
}

/// The failure of one file does not end the copy. The loss of the server does, and leaves no incomplete file.
#[tokio::test]
async fn failures() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    let local = tempdir().unwrap();
    let source = local.path().join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..20 {
        fs::write(source.join(format!("f{n}")), vec![n; 5000]).unwrap();
    }
    client.put(&source, "/", &recursive()).await.unwrap();
    let bad = client.lookup("/source/f7").await.unwrap().handle;
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Read if arguments::<ReadArgs>(bytes).file == bad => {
            Step::fail::<ReadArgs>(Status::Io, None)
        }
        _ => Step::Serve,
    });
    let failed = Arc::new(Mutex::new(Vec::new()));
    let log = failed.clone();
    let progress = move |event: CopyEvent<'_>| {
        if let CopyEvent::Failed { path, error } = event {
            log.lock().unwrap().push(format!("{path}: {error}"));
        }
    };
    let options = CopyOptions { progress: Some(Arc::new(progress)), ..recursive() };
    let out = local.path().join("out");
    let report = client.get("/source", &out, &options).await.unwrap();
    assert_eq!(report.files, 19);
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].path, "/source/f7");
    assert_eq!(failed.lock().unwrap().len(), 1);
    assert!(!out.join("f7").exists());
    assert_eq!(contents(&out).len(), 19, "no temporary file is left");

    let mut left = 30;
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Read if left == 0 => {
            Step::Fail(CallError::ConnectionLost { reason: rpcrdma::Cause::message("test") })
        }
        NfsProcedure::Read => {
            left -= 1;
            Step::Serve
        }
        _ => Step::Serve,
    });
    let out = local.path().join("lost");
    assert!(matches!(client.get("/source", &out, &recursive()).await, Err(Error::Transport { .. })));
    // Cancelled tasks remove their files once their threads have finished with them.
    let parts = || {
        let names = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains(".part")).count()
    };
    for _ in 0..200 {
        if parts() == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    for (name, content) in contents(&out) {
        assert!(!name.contains(".part"), "{name}");
        assert_eq!(content.len(), contents(&source)[&name].len(), "{name} is whole");
    }
}

fn entry(name: &str, cookie: u64) -> DirEntryPlus {
    DirEntryPlus { fileid: cookie, name: FileName::from(name), cookie, attributes: None, handle: None }
}

/// Makes a server whose root lists `names`; the real server answers LOOKUP.
fn lists(server: &Loopback, client: &Client, names: Vec<String>) {
    let root = client.root();
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Readdirplus if arguments::<ReaddirplusArgs>(bytes).dir == root => {
            let entries = names.iter().zip(1..).map(|(name, cookie)| entry(name, cookie)).collect();
            let reply = DirListPlus { entries, eof: true };
            Step::ok::<ReaddirplusArgs>(ReaddirplusOk { dir_attributes: None, verifier: [0; 8], reply })
        }
        _ => Step::Serve,
    });
}

/// Names that would lead out of the target end the listing, and nothing is written outside.
#[tokio::test]
async fn hostile_names_are_refused() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    client.create("/ok", SetAttributes::default()).await.unwrap();
    for name in ["../escaped", "/escaped", "", "a\0b"] {
        let local = tempdir().unwrap();
        let out = local.path().join("out");
        lists(&server, &client, vec![name.into(), "ok".into()]);
        let report = client.get("/", &out, &recursive()).await.unwrap();
        assert_eq!(report.failures.len(), 1, "{name:?}");
        assert!(matches!(report.failures[0].error, Error::Protocol { .. }), "{name:?}");
        assert!(!local.path().join("escaped").exists());
    }
    let local = tempdir().unwrap();
    lists(&server, &client, vec!["..".into(), ".".into(), "ok".into()]);
    let report = client.get("/", local.path().join("out"), &recursive()).await.unwrap();
    assert_eq!((report.files, report.failures.len()), (1, 0));
}

/// A link and a directory have one name: the second is not copied. No directory is ever made through a link
/// of an earlier copy.
#[tokio::test]
async fn links_do_not_lead_out() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let local = tempdir().unwrap();
    let outside = local.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let out = local.path().join("out");
    fs::create_dir(&out).unwrap();
    symlink(&outside, out.join("trap")).unwrap();
    client.mkdir("/trap", SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).await.unwrap();
    client.create("/trap/f", SetAttributes::default()).await.unwrap();
    let report = client.get("/", &out, &recursive()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].path, "/trap");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // A link in the place of a file is replaced; the file is not written through it.
    fs::write(outside.join("target"), "untouched").unwrap();
    fs::remove_file(out.join("trap")).unwrap();
    symlink(outside.join("target"), out.join("f")).unwrap();
    let file = client.create("/f", SetAttributes::default()).await.unwrap();
    file.write_at(0, "new".into()).await.unwrap();
    let report = client.get("/", &out, &recursive()).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    assert_eq!(fs::read(outside.join("target")).unwrap(), b"untouched");
    assert_eq!(fs::read(out.join("f")).unwrap(), b"new");
}

/// A link whose target is invalid on this system is a failure of that link only.
#[tokio::test]
async fn impossible_link_targets() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    client.symlink("x", "/l").await.unwrap();
    for target in [b"".as_slice(), b"a\0b"] {
        server.hook(move |procedure, _| match procedure {
            NfsProcedure::Readlink => {
                Step::ok::<ReadlinkArgs>(ReadlinkOk { attributes: None, data: Bytes::from_static(target) })
            }
            _ => Step::Serve,
        });
        let local = tempdir().unwrap();
        let report = client.get("/", local.path(), &recursive()).await.unwrap();
        assert_eq!(report.failures.len(), 1);
        assert_eq!(contents(local.path()).len(), 0);
    }
}

/// The server shows a directory inside itself: the copy ends.
#[tokio::test]
async fn endless_depth() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let root = client.root();
    let attributes = client.root_attributes().await.unwrap();
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Readdirplus => {
            let again = DirEntryPlus { attributes: Some(attributes), handle: Some(root), ..entry("d", 1) };
            let reply = DirListPlus { entries: vec![again], eof: true };
            Step::ok::<ReaddirplusArgs>(ReaddirplusOk { dir_attributes: None, verifier: [0; 8], reply })
        }
        _ => Step::Serve,
    });
    let local = tempdir().unwrap();
    let report = client.get("/", local.path().join("o"), &recursive()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert!(matches!(report.failures[0].error, Error::DirectoryLoop { .. }));
    assert_eq!(report.directories, 1);
}

/// A dropped copy removes its temporary files.
#[tokio::test]
async fn a_dropped_copy_leaves_no_half_file() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    let local = tempdir().unwrap();
    let source = local.path().join("big");
    fs::write(&source, vec![7; 300_000]).unwrap();
    client.put(&source, "/big", &CopyOptions::default()).await.unwrap();
    let out = local.path().join("out");
    fs::create_dir(&out).unwrap();
    let (started, mut wait) = tokio::sync::mpsc::unbounded_channel();
    let progress = move |event: CopyEvent<'_>| {
        if let CopyEvent::Bytes(_) = event {
            let _ = started.send(());
        }
    };
    let copy = CopyOptions { progress: Some(Arc::new(progress)), ..CopyOptions::default() };
    let mut copying = Box::pin(client.get("/big", &out, &copy));
    tokio::select! {
        biased;
        _ = wait.recv() => {}
        result = &mut copying => panic!("{result:?}"),
    }
    drop(copying);
    for _ in 0..200 {
        if contents(&out).is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(contents(&out).len(), 0);
}

/// Linux and NFS-Ganesha clear set-ID bits when an owner is set, those of the same SETATTR too. Then the bits come alone.
#[tokio::test]
async fn set_id_bits_that_a_server_clears_with_the_owner_are_set_again() {
    for clears in [false, true] {
        let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
        export.squash = Squash::Nobody;
        let server = Loopback::serving(vec![export]);
        let root = ClientOptions { credential: Credential::Sys(AuthSys::default()), ..options() };
        let client = server.mount_with("/", root).await;
        let local = tempdir().unwrap();
        let file = local.path().join("file");
        fs::write(&file, "program").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        let set = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&set);
        server.hook(move |procedure, bytes| {
            if procedure != NfsProcedure::Setattr {
                return Step::Serve;
            }
            let new = arguments::<SetattrArgs>(bytes).new_attributes;
            seen.lock().unwrap().push((new.uid.is_some(), new.mode));
            if !clears || new.uid.is_none() {
                return Step::Serve;
            }
            Step::change::<SetattrArgs>(|wcc| wcc.after.as_mut().unwrap().mode &= 0o777)
        });
        client.put(&file, "/file", &CopyOptions::default()).await.unwrap();
        let expected: &[_] = &[(true, Some(0o4755)), (false, Some(0o4755))];
        assert_eq!(*set.lock().unwrap(), expected[..1 + usize::from(clears)], "{clears}");
    }
}
