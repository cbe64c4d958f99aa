//! Copies over existing objects, of pipes and devices, of sparse files and deep trees; attributes that are
//! kept.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_oncrpc::{AuthSys, Credential};
use rustix::fs::{CWD, FileType as LocalType, Mode, makedev, mknodat};
use tempfile::{TempDir, tempdir};

use super::loopback::{arguments, options};
use super::*;
use crate::client::{Client, ClientOptions, CopyEvent, CopyOptions, CopyReport, Error};
use crate::fs::{MemoryFs, MemoryOptions};
use crate::server::{Export, Squash};
use crate::wire::{
    CreateArgs, DirEntryPlus, DirListPlus, FileName, FileType, MknodArgs, MknodData, NfsProcedure, ReadArgs,
    ReadOk, ReaddirplusArgs, ReaddirplusOk, SetAttributes, SetattrArgs, Status, WriteArgs,
};

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

fn plain() -> CopyOptions {
    CopyOptions { preserve: false, ..CopyOptions::default() }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root may do this");
    }
    root
}

/// Returns a server that accepts root as root.
fn believing() -> Arc<Loopback> {
    let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    export.squash = Squash::Nobody;
    Loopback::serving(vec![export])
}

/// Returns a client that calls as root.
async fn as_root(server: &Arc<Loopback>) -> Client {
    let root = ClientOptions { credential: Credential::Sys(AuthSys::default()), ..options() };
    server.mount_with("/", root).await
}

async fn store(client: &Client, path: &str, content: &'static [u8]) {
    let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let file = client.create(path, attributes).await.unwrap();
    file.write_at(0, Bytes::from_static(content)).await.unwrap();
    file.sync().await.unwrap();
}

async fn content(client: &Client, path: &str) -> Vec<u8> {
    let file = client.open(path).await.unwrap();
    let length = u32::try_from(file.len().await.unwrap()).unwrap();
    file.read_at(0, length.max(1)).await.unwrap().to_vec()
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let mut names: Vec<String> =
        client.read_dir(path).await.unwrap().into_iter().map(|item| item.name.to_string()).collect();
    names.sort();
    names
}

fn local_names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn good(report: &CopyReport) {
    assert_eq!(format!("{:?}", report.failures), "[]");
}

/// Makes a local file with this content.
fn local_file(directory: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Waits until the directory has these entries, because tasks clean up after a dropped copy.
async fn until_names(client: &Client, expected: &[&str]) {
    for _ in 0..400 {
        if names(client, "/").await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(names(client, "/").await, expected);
}

// Interrupted copies.

/// A WRITE that fails half way leaves the old file unchanged, and no other file.
#[tokio::test]
async fn a_put_that_fails_leaves_the_old_file() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    store(&client, "/f", b"precious").await;
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", vec![7; 100_000]);
    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Write if arguments::<WriteArgs>(bytes).offset > 50_000 => {
            Step::fail::<WriteArgs>(Status::NoSpc, Default::default())
        }
        _ => Step::Serve,
    });
    let report = client.put(&source, "/f", &CopyOptions::default()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].error.status(), Some(Status::NoSpc));
    assert_eq!(content(&client, "/f").await, b"precious");
    assert_eq!(names(&client, "/").await, ["f"]);
}

/// A copy dropped half way leaves the old file unchanged, and removes its temporary file.
#[tokio::test]
async fn a_dropped_put_leaves_the_old_file() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    store(&client, "/f", b"precious").await;
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", vec![7; 300_000]);
    let (started, mut wait) = tokio::sync::mpsc::unbounded_channel();
    let progress = move |event: CopyEvent<'_>| {
        if let CopyEvent::Bytes(_) = event {
            let _ = started.send(());
        }
    };
    let copy = CopyOptions { progress: Some(Arc::new(progress)), ..CopyOptions::default() };
    let mut copying = Box::pin(client.put(&source, "/f", &copy));
    tokio::select! {
        biased;
        _ = wait.recv() => {}
        result = &mut copying => panic!("{result:?}"),
    }
    drop(copying);
    until_names(&client, &["f"]).await;
    assert_eq!(content(&client, "/f").await, b"precious");
}

/// The new content gets its name only after COMMIT reports that it is stable.
#[tokio::test]
async fn a_put_renames_after_commit() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", vec![7; 10_000]);
    server.calls();
    good(&client.put(&source, "/f", &CopyOptions::default()).await.unwrap());
    let calls = server.calls();
    let at = |wanted| calls.iter().rposition(|call| *call == wanted).unwrap();
    assert!(at(NfsProcedure::Commit) < at(NfsProcedure::Rename));
    assert!(at(NfsProcedure::Write) < at(NfsProcedure::Commit));
}

/// A file that replaces another keeps that file's mode, unless the copy keeps the mode of the source.
#[tokio::test]
async fn a_put_keeps_the_mode_of_what_it_replaces() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/f", b"old").await;
    client
        .set_attributes("/f", SetAttributes { mode: Some(0o640), ..SetAttributes::default() })
        .await
        .unwrap();
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "new");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
    good(&client.put(&source, "/f", &plain()).await.unwrap());
    assert_eq!(content(&client, "/f").await, b"new");
    assert_eq!(client.stat("/f").await.unwrap().mode, 0o640);
    good(&client.put(&source, "/f", &CopyOptions::default()).await.unwrap());
    assert_eq!(client.stat("/f").await.unwrap().mode, 0o755);
}

/// A file with several names has the new content under all names.
#[tokio::test]
async fn a_put_keeps_hard_links_at_the_server() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", b"a longer text").await;
    client.link("/f", "/other").await.unwrap();
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "new");
    good(&client.put(&source, "/f", &plain()).await.unwrap());
    assert_eq!(content(&client, "/other").await, b"new");
    assert_eq!(client.stat("/f").await.unwrap().nlink, 2);
    assert_eq!(names(&client, "/").await, ["f", "other"]);
}

/// In a directory where nothing can be made, a writable file is written in place.
#[tokio::test]
async fn a_put_into_a_directory_that_may_not_be_written() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/f", b"a longer text").await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Create => Step::fail::<CreateArgs>(Status::Acces, Default::default()),
        _ => Step::Serve,
    });
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "new");
    good(&client.put(&source, "/f", &plain()).await.unwrap());
    assert_eq!(content(&client, "/f").await, b"new");
    let report = client.put(&source, "/new", &plain()).await.unwrap();
    assert_eq!(report.failures[0].error.status(), Some(Status::Acces));
}

/// A writable file of another user keeps its owner.
#[tokio::test]
async fn a_put_over_a_file_of_somebody_else_keeps_its_owner() {
    let server = believing();
    let root = as_root(&server).await;
    let open = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    root.set_attributes("/", open).await.unwrap();
    store(&root, "/f", b"a longer text").await;
    let attributes = SetAttributes { mode: Some(0o666), ..SetAttributes::default() };
    root.set_attributes("/f", attributes).await.unwrap();
    let client = server.mount().await;
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "new");
    good(&client.put(&source, "/f", &plain()).await.unwrap());
    let after = client.stat("/f").await.unwrap();
    assert_eq!((after.uid, after.mode), (0, 0o666));
    assert_eq!(content(&client, "/f").await, b"new");
    assert_eq!(names(&client, "/").await, ["f"]);
}

// Symbolic links, devices and pipes.

/// A symbolic link at the server is followed, to any place within the export.
#[tokio::test]
async fn a_put_follows_links_at_the_server() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
    client.mkdir("/d", attributes).await.unwrap();
    store(&client, "/d/f", b"old").await;
    client.symlink("d/f", "/link").await.unwrap();
    client.symlink("../made", "/d/dangling").await.unwrap();
    client.symlink("/d/f", "/d/absolute").await.unwrap();
    client.symlink("loop", "/loop").await.unwrap();
    let local = tempdir().unwrap();
    let source = local_file(&local, "absolute", "one");
    good(&client.put(&source, "/link", &plain()).await.unwrap());
    assert_eq!(content(&client, "/d/f").await, b"one");
    fs::write(&source, "two").unwrap();
    good(&client.put(&source, "/d/dangling", &plain()).await.unwrap());
    assert_eq!(content(&client, "/made").await, b"two");
    good(&client.put(&source, "/d", &plain()).await.unwrap());
    assert_eq!(content(&client, "/d/f").await, b"two");
    for link in ["/link", "/d/dangling", "/d/absolute"] {
        assert_eq!(client.lookup_link(link).await.unwrap().attributes.file_type, FileType::Symlink, "{link}");
    }
    assert!(client.put(&source, "/loop", &plain()).await.is_err());
    // In a tree links are followed too.
    fs::write(&source, "three").unwrap();
    let tree = local.path().join(".");
    good(&client.put(&tree, "/d", &CopyOptions { recursive: true, ..plain() }).await.unwrap());
    assert_eq!(content(&client, "/d/f").await, b"three");
}

/// A device or pipe at the server is neither written nor replaced.
#[tokio::test]
async fn a_put_does_not_replace_what_is_no_file() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let place = crate::wire::DirOpArgs { dir: client.root(), name: FileName::from("fifo") };
    let what = MknodData::Fifo(SetAttributes::default());
    client.procedures().mknod(&MknodArgs { place, what }).await.unwrap();
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "new");
    let report = client.put(&source, "/fifo", &plain()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert_eq!(client.stat("/fifo").await.unwrap().file_type, FileType::Fifo);
}

/// A named pipe given by the caller is read to its end; a pipe in a tree is left out.
#[tokio::test]
async fn a_named_pipe_is_stored() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let fifo = local.path().join("fifo");
    mknodat(CWD, &fifo, LocalType::Fifo, Mode::from(0o600), 0).unwrap();
    for (target, options) in [("/stored", plain()), ("/stored again", recursive())] {
        let path = fifo.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = fs::File::options().write(true).open(path).unwrap();
            pipe.write_all(&vec![5; 200_000]).unwrap();
        });
        let report = client.put(&fifo, target, &options).await.unwrap();
        // Without a reader the writer would wait for ever, so the pipe is opened once more if the copy did
        // not open it.
        let stored = client.stat(target).await;
        if stored.is_err() {
            drop(fs::File::options().read(true).write(true).open(&fifo).unwrap());
        }
        assert_eq!((report.files, report.skipped.len()), (1, 0));
        assert_eq!((stored.unwrap().size, report.bytes), (200_000, 200_000));
        writer.join().unwrap();
    }
    let report = client.put(local.path(), "/", &recursive()).await.unwrap();
    assert_eq!((report.files, report.skipped.len()), (0, 1));
}

/// A link is followed: its target is replaced as if the caller had named it.
#[tokio::test]
async fn a_get_follows_the_link_that_is_named() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", b"new").await;
    let local = tempdir().unwrap();
    fs::create_dir(local.path().join("d")).unwrap();
    let real = local_file(&local, "d/real", "old");
    symlink("d/real", local.path().join("link")).unwrap();
    symlink("d/made", local.path().join("dangling")).unwrap();
    symlink("../link", local.path().join("d/f")).unwrap();
    good(&client.get("/f", local.path().join("link"), &plain()).await.unwrap());
    assert_eq!(fs::read(&real).unwrap(), b"new");
    good(&client.get("/f", local.path().join("dangling"), &plain()).await.unwrap());
    assert_eq!(fs::read(local.path().join("d/made")).unwrap(), b"new");
    fs::write(&real, "old").unwrap();
    good(&client.get("/f", local.path().join("d"), &plain()).await.unwrap());
    assert_eq!(fs::read(&real).unwrap(), b"new");
    for link in ["link", "dangling", "d/f"] {
        assert!(local.path().join(link).is_symlink(), "{link}");
    }
}

/// A link to an open file of this process, such as `/dev/stdout`, leads to exactly that file.
#[tokio::test]
async fn a_get_writes_to_an_open_file_through_its_link() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", b"new").await;
    let local = tempdir().unwrap();
    let path = local_file(&local, "open", "a longer text");
    let open = fs::File::open(&path).unwrap();
    let inode = open.metadata().unwrap().ino();
    let link = local.path().join("stdout");
    symlink(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)), &link).unwrap();
    good(&client.get("/f", &link, &plain()).await.unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(local_names(local.path()), ["open", "stdout"]);
}

/// A device is written, not replaced. The device is a private copy of the null device.
#[tokio::test]
async fn a_get_writes_into_devices() {
    if !is_root() {
        return;
    }
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", b"new").await;
    let local = tempdir().unwrap();
    let device = local.path().join("null");
    mknodat(CWD, &device, LocalType::CharacterDevice, Mode::from(0o666), makedev(1, 3)).unwrap();
    let before = fs::symlink_metadata(&device).unwrap().mode();
    symlink("null", local.path().join("link")).unwrap();
    for name in ["null", "link"] {
        let report = client.get("/f", local.path().join(name), &CopyOptions::default()).await;
        // A file system may be mounted without devices.
        if matches!(&report, Ok(report) if report.failures.len() == 1)
            && fs::File::options().write(true).open(&device).is_err()
        {
            eprintln!("skipped: devices do not work in {}", local.path().display());
            return;
        }
        good(&report.unwrap());
        let after = fs::symlink_metadata(&device).unwrap();
        assert!(after.file_type().is_char_device());
        assert_eq!(after.mode(), before);
    }
}

/// A named pipe as target receives the content.
#[tokio::test]
async fn a_get_writes_into_a_pipe() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", b"new").await;
    let local = tempdir().unwrap();
    let fifo = local.path().join("fifo");
    mknodat(CWD, &fifo, LocalType::Fifo, Mode::from(0o600), 0).unwrap();
    let path = fifo.clone();
    // Both ends are open, so that neither side waits for the other.
    let mut pipe = fs::File::options().read(true).write(true).open(path).unwrap();
    good(&client.get("/f", &fifo, &plain()).await.unwrap());
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    let mut read = [0; 3];
    pipe.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"new");
}

/// A tree never writes into a device or pipe that has the name of a file, and does not replace it.
#[tokio::test]
async fn a_tree_leaves_local_pipes_alone() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/fifo", b"new").await;
    let local = tempdir().unwrap();
    let fifo = local.path().join("fifo");
    mknodat(CWD, &fifo, LocalType::Fifo, Mode::from(0o600), 0).unwrap();
    let report = client.get("/", local.path(), &recursive()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
}

/// An existing file keeps mode, owner and group, and its other names.
#[tokio::test]
async fn a_get_keeps_mode_owner_and_links_of_what_it_replaces() {
    let client = Loopback::exporting(&["/"]).mount().await;
    store(&client, "/f", b"new").await;
    let local = tempdir().unwrap();
    let target = local_file(&local, "f", "a longer text");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        chown(&target, Some(12), Some(34)).unwrap();
    }
    let before = fs::metadata(&target).unwrap();
    good(&client.get("/f", &target, &plain()).await.unwrap());
    let after = fs::metadata(&target).unwrap();
    assert_eq!((before.uid(), before.gid(), before.mode()), (after.uid(), after.gid(), after.mode()));
    assert_eq!(fs::read(&target).unwrap(), b"new");
    let other = local.path().join("other");
    fs::write(&target, "a longer text").unwrap();
    fs::hard_link(&target, &other).unwrap();
    good(&client.get("/f", &target, &plain()).await.unwrap());
    assert_eq!(fs::read(&other).unwrap(), b"new");
    assert_eq!(fs::metadata(&other).unwrap().nlink(), 2);
    assert_eq!(local_names(local.path()), ["f", "other"]);
}

// Servers that lie, files that grow.

/// A server never reports the end of a file: the client reads the length in the attributes.
#[tokio::test]
async fn i6_a_file_without_an_end_is_read_as_far_as_its_attributes_say() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    store(&client, "/f", b"12345").await;
    let reads = Arc::new(Mutex::new(0));
    let count = reads.clone();
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Read => {
            let wanted = arguments::<ReadArgs>(bytes).count;
            *count.lock().unwrap() += 1;
            if *count.lock().unwrap() > 2000 {
                return Step::fail::<ReadArgs>(Status::Io, None);
            }
            let data = vec![b'x'; usize::try_from(wanted).unwrap()].into();
            Step::ok::<ReadArgs>(ReadOk { attributes: None, count: wanted, eof: false, data })
        }
        _ => Step::Serve,
    });
    let local = tempdir().unwrap();
    let out = local.path().join("f");
    good(&client.get("/f", &out, &plain()).await.unwrap());
    assert_eq!(fs::read(&out).unwrap(), b"xxxxx");
    assert!(*reads.lock().unwrap() < 3);
}

/// The path of a deep tree may be longer than any system call accepts.
#[tokio::test]
async fn a_deep_tree_there_and_back() {
    const DEPTH: usize = 1500;
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    // With names of this length, the path is longer than any system call accepts.
    let name = "n".repeat(20);
    let make = |top: &Path| {
        fs::create_dir(top).unwrap();
        let mut at = rustix::fs::open(top, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&at, &name, Mode::from(0o755)).unwrap();
            at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let file = rustix::fs::openat(
            &at,
            "bottom",
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
            Mode::from(0o644),
        );
        fs::File::from(file.unwrap()).write_all(b"deep").unwrap();
    };
    let bottom = |top: &Path| {
        let mut at = rustix::fs::open(top, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let file = rustix::fs::openat(&at, "bottom", rustix::fs::OFlags::RDONLY, Mode::empty()).unwrap();
        let mut text = String::new();
        fs::File::from(file).read_to_string(&mut text).unwrap();
        text
    };
    let source = local.path().join("source");
    make(&source);
    let report = client.put(&source, "/tree", &recursive()).await.unwrap();
    good(&report);
    assert_eq!((report.directories, report.files), (DEPTH as u64 + 1, 1));
    let target = local.path().join("target");
    let report = client.get("/tree", &target, &recursive()).await.unwrap();
    good(&report);
    assert_eq!((report.directories, report.files), (DEPTH as u64 + 1, 1));
    assert_eq!(bottom(&target), "deep");
    // The standard library would need a descriptor for each level.
    for tree in [source, target] {
        assert!(std::process::Command::new("rm").arg("-rf").arg(tree).status().unwrap().success());
    }
}

/// A server shows a directory in itself at some depth; another invents new directories without end.
#[tokio::test]
async fn i6_a_tree_without_an_end_is_given_up() {
    let local = tempdir().unwrap();
    for period in [1, 7] {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount().await;
        let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        let (mut path, mut first) = (String::new(), None);
        for _ in 0..period {
            path.push_str("/d");
            let node = client.mkdir(&path, attributes).await.unwrap();
            first.get_or_insert(node);
        }
        let (last, first) = (client.lookup(&path).await.unwrap(), first.unwrap());
        server.hook(move |procedure, bytes| match procedure {
            NfsProcedure::Readdirplus if arguments::<ReaddirplusArgs>(bytes).dir == last.handle => {
                let (attributes, handle) = (Some(first.attributes), Some(first.handle));
                let name = FileName::from("d");
                let again = DirEntryPlus { fileid: 1, name, cookie: 1, attributes, handle };
                let reply = DirListPlus { entries: vec![again], eof: true };
                Step::ok::<ReaddirplusArgs>(ReaddirplusOk { dir_attributes: None, verifier: [0; 8], reply })
            }
            _ => Step::Serve,
        });
        let out = local.path().join(period.to_string());
        let report = client.get("/", &out, &recursive()).await.unwrap();
        assert_eq!(report.failures.len(), 1);
        assert!(matches!(report.failures[0].error, Error::DirectoryLoop { .. }), "{:?}", report.failures);
        assert!(report.directories < 40, "{}", report.directories);
        let shallow = CopyOptions { max_depth: 3, ..recursive() };
        let report = client.get("/", local.path().join(format!("{period}s")), &shallow).await.unwrap();
        if period > 3 {
            assert!(
                matches!(report.failures[0].error, Error::TooDeep { limit: 3, .. }),
                "{:?}",
                report.failures
            );
            assert_eq!(report.directories, 4);
        }
    }
}

// Holes.

const GIB: u64 = 1 << 30;

/// Makes a file of 10 GiB with a few bytes in the middle, and one byte at the end.
fn sparse(path: &Path) {
    let file = fs::File::create(path).unwrap();
    file.write_all_at(b"middle", 5 * GIB + 3).unwrap();
    file.write_all_at(b"x", 8 * GIB).unwrap();
    file.set_len(10 * GIB).unwrap();
}

async fn read(client: &Client, path: &str, offset: u64, count: u32) -> Vec<u8> {
    client.open(path).await.unwrap().read_at(offset, count).await.unwrap().to_vec()
}

/// Holes are not sent, and read as zeros at the server: in a new file, and over old data.
#[tokio::test]
async fn a_put_sends_no_holes() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/old", b"something that has to go").await;
    client.link("/old", "/other name").await.unwrap();
    let local = tempdir().unwrap();
    let source = local.path().join("sparse");
    sparse(&source);
    if fs::metadata(&source).unwrap().blocks() > 2048 {
        eprintln!("skipped: no holes in {}", local.path().display());
        return;
    }
    for target in ["/new", "/old"] {
        server.calls();
        let report = client.put(&source, target, &plain()).await.unwrap();
        good(&report);
        assert!(server.count(NfsProcedure::Write) <= 4);
        assert_eq!(report.bytes, 10 * GIB);
        assert!(report.holes > 10 * GIB - (1 << 20), "{}", report.holes);
        assert_eq!(client.stat(target).await.unwrap().size, 10 * GIB);
        assert_eq!(read(&client, target, 0, 24).await, [0; 24]);
        assert_eq!(read(&client, target, 5 * GIB, 12).await, b"\0\0\0middle\0\0\0");
        assert_eq!(read(&client, target, 8 * GIB - 1, 3).await, b"\0x\0");
    }
    assert_eq!(client.stat("/other name").await.unwrap().size, 10 * GIB);
    // A file that is only a hole.
    fs::File::create(&source).unwrap().set_len(GIB + 1).unwrap();
    server.calls();
    good(&client.put(&source, "/old", &plain()).await.unwrap());
    assert_eq!(server.count(NfsProcedure::Write), 0);
    assert_eq!(client.stat("/old").await.unwrap().size, GIB + 1);
    assert_eq!(read(&client, "/old", 5, 3).await, [0; 3]);
}

/// Zeros are not written to a local file, but read back as zeros: in a new file, and over old data.
#[tokio::test]
async fn a_get_writes_no_zeros() {
    let client =
        Loopback::exporting(&["/"]).mount_with("/", ClientOptions { chunk: 10_000, ..options() }).await;
    let local = tempdir().unwrap();
    let mut data = vec![0; 3 << 20];
    data[1_000_003] = 1;
    data[2_000_000..2_010_000].fill(7);
    let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let file = client.create("/f", attributes).await.unwrap();
    file.write_at(0, data.clone().into()).await.unwrap();
    file.sync().await.unwrap();
    let (new, old) = (local.path().join("new"), local.path().join("old"));
    fs::write(&old, vec![9; 4 << 20]).unwrap();
    fs::hard_link(&old, local.path().join("other name")).unwrap();
    for target in [new, old] {
        good(&client.get("/f", &target, &plain()).await.unwrap());
        assert!(fs::read(&target).unwrap() == data);
        let blocks = fs::metadata(&target).unwrap().blocks();
        assert!(blocks * 512 <= 128 << 10, "{blocks} blocks");
    }
}

// Attributes that are kept.

/// Names of one file inside a tree are names of one file in the copy, if attributes are kept.
#[tokio::test]
async fn hard_links_are_kept_both_ways() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let tree = local.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("a"), "one").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    fs::hard_link(tree.join("a"), tree.join("d/c")).unwrap();
    let paths = ["/tree/a", "/tree/b", "/tree/d/c"];
    // Again over the copy, then over unrelated files.
    for round in 0..3 {
        if round == 2 {
            client.remove("/tree/b").await.unwrap();
            store(&client, "/tree/b", b"other").await;
        }
        let report = client.put(&tree, "/", &recursive()).await.unwrap();
        good(&report);
        assert_eq!((report.files, report.hard_links), (1, 2));
        let mut ids = Vec::new();
        for path in paths {
            let attributes = client.stat(path).await.unwrap();
            assert_eq!((attributes.nlink, content(&client, path).await), (3, b"one".to_vec()));
            ids.push(attributes.fileid);
        }
        assert!(ids[0] == ids[1] && ids[1] == ids[2]);
        assert_eq!(names(&client, "/tree").await, ["a", "b", "d"]);
    }
    let into = local.path().join("into");
    fs::create_dir(&into).unwrap();
    let out = into.join("tree");
    for round in 0..3 {
        if round == 2 {
            fs::remove_file(out.join("b")).unwrap();
            fs::write(out.join("b"), "other").unwrap();
        }
        let report = client.get("/tree", &into, &recursive()).await.unwrap();
        good(&report);
        assert_eq!((report.files, report.hard_links), (1, 2));
        let inodes = ["a", "b", "d/c"].map(|name| fs::metadata(out.join(name)).unwrap().ino());
        assert!(inodes[0] == inodes[1] && inodes[1] == inodes[2]);
        assert_eq!(local_names(&out), ["a", "b", "d"]);
        assert_eq!(fs::read(out.join("d/c")).unwrap(), b"one");
    }
    let copies = CopyOptions { preserve: false, ..recursive() };
    let report = client.put(&tree, "/copies", &copies).await.unwrap();
    assert_eq!((report.files, report.hard_links), (3, 0));
    assert_eq!(client.stat("/copies/a").await.unwrap().nlink, 1);
}

/// If the first name of a file cannot be copied, the next name gets the content.
#[tokio::test]
async fn a_further_name_stands_in_for_one_that_failed() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
    client.mkdir("/d", attributes).await.unwrap();
    store(&client, "/d/a", b"one").await;
    client.link("/d/a", "/d/b").await.unwrap();
    let mut first = true;
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Read if std::mem::take(&mut first) => Step::fail::<ReadArgs>(Status::Io, None),
        _ => Step::Serve,
    });
    let local = tempdir().unwrap();
    let report = client.get("/d", local.path().join("d"), &recursive()).await.unwrap();
    assert_eq!((report.failures.len(), report.files, report.hard_links), (1, 1, 0));
    assert_eq!(local_names(&local.path().join("d")).len(), 1);
}

/// Root keeps owners and set-id bits. A server that treats root as nobody keeps neither, and the report
/// counts that.
#[tokio::test]
async fn root_keeps_owners_and_set_id_bits() {
    if !is_root() {
        return;
    }
    let server = believing();
    let root = as_root(&server).await;
    let local = tempdir().unwrap();
    let tree = local.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "one").unwrap();
    symlink("f", tree.join("l")).unwrap();
    for name in ["f", "."] {
        chown(tree.join(name), Some(12), Some(34)).unwrap();
    }
    std::os::unix::fs::lchown(tree.join("l"), Some(12), Some(34)).unwrap();
    fs::set_permissions(tree.join("f"), fs::Permissions::from_mode(0o6755)).unwrap();
    let report = root.put(&tree, "/", &recursive()).await.unwrap();
    good(&report);
    assert_eq!(report.owners_not_kept, 0);
    for (path, mode) in [("/tree/f", Some(0o6755)), ("/tree", None), ("/tree/l", None)] {
        let attributes = root.lookup_link(path).await.unwrap().attributes;
        assert_eq!((attributes.uid, attributes.gid), (12, 34), "{path}");
        assert!(mode.is_none_or(|mode| attributes.mode == mode), "{path} {:o}", attributes.mode);
    }
    let out = local.path().join("out");
    let report = root.get("/tree", &out, &recursive()).await.unwrap();
    good(&report);
    for (name, mode) in [("f", Some(0o6755)), ("", None), ("l", None)] {
        let metadata = fs::symlink_metadata(out.join(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12, 34), "{name}");
        assert!(mode.is_none_or(|mode| metadata.mode() & 0o7777 == mode), "{name} {:o}", metadata.mode());
    }

    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Setattr if arguments::<SetattrArgs>(bytes).new_attributes.uid.is_some() => {
            Step::fail::<SetattrArgs>(Status::Perm, Default::default())
        }
        _ => Step::Serve,
    });
    let report = root.put(&tree, "/second", &recursive()).await.unwrap();
    good(&report);
    assert_eq!(report.owners_not_kept, 3);
    assert_eq!(root.stat("/second/f").await.unwrap().mode, 0o755);
}

/// Without the right to give files away, set-id bits are not copied, because they would stand for another
/// user.
#[tokio::test]
async fn set_id_bits_do_not_change_their_owner() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "one");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o4755)).unwrap();
    good(&client.put(&source, "/f", &CopyOptions::default()).await.unwrap());
    assert_eq!(client.stat("/f").await.unwrap().mode, 0o755);
}

/// Extended attributes are not copied. They are counted, if attributes are to be kept.
#[tokio::test]
async fn extended_attributes_are_counted() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let local = tempdir().unwrap();
    let tree = local.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b"] {
        fs::write(tree.join(name), "one").unwrap();
    }
    let none = rustix::fs::XattrFlags::empty();
    for path in [tree.clone(), tree.join("a")] {
        if let Err(error) = rustix::fs::setxattr(&path, "user.comment", b"x", none) {
            eprintln!("skipped: no extended attributes in {}: {error}", local.path().display());
            return;
        }
    }
    let report = client.put(&tree, "/", &recursive()).await.unwrap();
    good(&report);
    assert_eq!(report.xattrs_not_kept, 2);
    let report = client.put(&tree, "/", &CopyOptions { preserve: false, ..recursive() }).await.unwrap();
    assert_eq!(report.xattrs_not_kept, 0);
    // A local file that is replaced keeps its extended attributes.
    store(&client, "/new", b"new").await;
    good(&client.get("/new", tree.join("a"), &plain()).await.unwrap());
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(tree.join("a"), "user.comment", &mut value), Ok(1));
    assert_eq!(fs::read(tree.join("a")).unwrap(), b"new");
}

/// In place, no temporary name appears, and an existing file keeps its number.
#[tokio::test]
async fn in_place_makes_no_other_names() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/f", b"a longer text").await;
    let before = client.stat("/f").await.unwrap().fileid;
    let local = tempdir().unwrap();
    let source = local_file(&local, "f", "new");
    let options = CopyOptions { in_place: true, ..plain() };
    server.calls();
    good(&client.put(&source, "/f", &options).await.unwrap());
    good(&client.put(&source, "/g", &options).await.unwrap());
    assert_eq!(server.count(NfsProcedure::Rename), 0);
    assert_eq!(client.stat("/f").await.unwrap().fileid, before);
    assert_eq!(
        (content(&client, "/f").await, content(&client, "/g").await),
        (b"new".to_vec(), b"new".to_vec())
    );
    let target = local_file(&local, "target", "a longer text");
    let inode = fs::metadata(&target).unwrap().ino();
    good(&client.get("/f", &target, &options).await.unwrap());
    good(&client.get("/f", local.path().join("made"), &options).await.unwrap());
    assert_eq!((fs::metadata(&target).unwrap().ino(), fs::read(&target).unwrap()), (inode, b"new".to_vec()));
    assert_eq!(fs::read(local.path().join("made")).unwrap(), b"new");
}

/// An open pipe is read to its end.
#[tokio::test]
async fn an_open_pipe_is_stored() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&vec![5; 3_000_000]).unwrap());
    let source = fs::File::from(std::os::fd::OwnedFd::from(reader));
    let options = CopyOptions::default();
    let report = client.put_open(source, "a pipe", 0o640, "/f", &options).await.unwrap();
    good(&report);
    thread.join().unwrap();
    let attributes = client.stat("/f").await.unwrap();
    assert_eq!((attributes.size, attributes.mode, report.files), (3_000_000, 0o640, 1));
    let again = fs::File::open("/dev/null").unwrap();
    assert!(matches!(client.put_open(again, "x", 0o640, "/", &options).await, Err(Error::Exists { .. })));
}

/// A ticket may end while a file is copied. Then nobody can ask the server to remove the unfinished file.
#[tokio::test]
async fn a_copy_that_the_server_refuses_to_go_on_with_names_its_unfinished_file() {
    for last in [NfsProcedure::Write, NfsProcedure::Commit, NfsProcedure::Rename] {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount().await;
        let local = tempdir().unwrap();
        // More than one WRITE, so that a COMMIT follows.
        fs::write(local.path().join("f"), vec![7; 3 << 20]).unwrap();
        let mut ended = false;
        server.hook(move |procedure, _| {
            ended |= procedure == last;
            let reason = rpcrdma::Cause::message("ticket expired");
            if ended {
                Step::Fail(rpcrdma::CallError::NoContext { reason, sent: false })
            } else {
                Step::Serve
            }
        });
        let put = client.put(local.path().join("f"), "/f", &CopyOptions::default()).await;
        let error = put.expect_err(last.name());
        // The task that tries to remove the file fails, too.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        server.hook(|_, _| Step::Serve);
        let left = names(&client, "/").await;
        let told = error.to_string();
        assert!(left.len() == 1 && left[0].contains(".part") && told.contains(&left[0]), "{told}: {left:?}");
        assert!(told.contains("ticket expired") && error.ends_everything(), "{last:?} {told}");
    }
}
