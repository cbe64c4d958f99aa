//! Copies from one server to another, and within a server.

use bytes::Bytes;

use super::*;
use crate::client::{Client, CopyOptions, Error};
use crate::wire::{
    Attributes, DirEntryPlus, DirListPlus, FileName, NfsProcedure, NfsTime, ReaddirplusArgs, ReaddirplusOk,
    SetAttributes, SetTime, Status, WriteArgs,
};

fn recursive() -> CopyOptions {
    CopyOptions { recursive: true, ..CopyOptions::default() }
}

async fn store(client: &Client, path: &str, content: Bytes) {
    let file = client.create(path, SetAttributes { mode: Some(0o644), ..Default::default() }).await.unwrap();
    file.write_at(0, content).await.unwrap();
    file.sync().await.unwrap();
}

async fn content(client: &Client, path: &str) -> Bytes {
    let file = client.open(path).await.unwrap();
    let mut stream = file.read_stream(0, None).await.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await.unwrap() {
        all.extend_from_slice(&piece);
    }
    all.into()
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let mut names: Vec<String> =
        client.read_dir(path).await.unwrap().iter().map(|item| item.name.to_string()).collect();
    names.sort();
    names
}

fn directory() -> SetAttributes {
    SetAttributes { mode: Some(0o755), ..SetAttributes::default() }
}

/// Returns a client of a server of its own with a tree: `/t/f`, `/t/big`, `/t/hard` (also `big`), `/t/d/g`, `/t/l`.
async fn source() -> Client {
    let client = Loopback::exporting(&["/"]).mount().await;
    client.mkdir("/t", directory()).await.unwrap();
    client.mkdir("/t/d", directory()).await.unwrap();
    store(&client, "/t/f", "content".into()).await;
    store(&client, "/t/big", vec![7; 3_000_001].into()).await;
    client.link("/t/big", "/t/hard").await.unwrap();
    store(&client, "/t/d/g", "deep".into()).await;
    client.symlink("f", "/t/l").await.unwrap();
    let mtime = SetTime::ClientTime(NfsTime { seconds: 1_000_000, nanoseconds: 5 });
    let attributes = SetAttributes { mode: Some(0o604), mtime, ..SetAttributes::default() };
    client.set_attributes("/t/f", attributes).await.unwrap();
    client.set_attributes("/t/d", SetAttributes { mode: Some(0o500), ..attributes }).await.unwrap();
    client
}

#[tokio::test]
async fn a_tree_arrives_as_it_is() {
    let (from, to) = (source().await, Loopback::exporting(&["/"]).mount().await);
    for _ in 0..2 {
        let report = from.copy_to("/t", &to, "/", &recursive()).await.unwrap();
        assert_eq!(format!("{:?}", report.failures), "[]");
        assert_eq!((report.files, report.directories, report.symlinks, report.hard_links), (3, 2, 1, 1));
        assert_eq!(report.bytes, 3_000_001 + 7 + 4);
    }
    assert_eq!(names(&to, "/t").await, ["big", "d", "f", "hard", "l"]);
    for path in ["/t/f", "/t/big", "/t/d/g"] {
        assert_eq!(content(&to, path).await, content(&from, path).await, "{path}");
    }
    let kept = |found: Attributes| (found.mode, found.mtime, found.file_type);
    for path in ["/t/f", "/t/d"] {
        assert_eq!(kept(to.stat(path).await.unwrap()), kept(from.stat(path).await.unwrap()), "{path}");
    }
    assert_eq!(to.readlink("/t/l").await.unwrap(), b"f");
    assert_eq!(to.stat("/t/big").await.unwrap().fileid, to.stat("/t/hard").await.unwrap().fileid);
    // Another name, and without attributes.
    let options = CopyOptions { preserve: false, umask: 0o077, ..recursive() };
    from.copy_to("/t", &to, "/new", &options).await.unwrap();
    let file = to.stat("/new/f").await.unwrap();
    assert_eq!(file.mode, 0o600);
    assert!(file.mtime.seconds > 1_000_000);
}

/// Two exports of one server, and one export with itself, with one client or two.
#[tokio::test]
async fn nothing_is_copied_onto_or_into_itself() {
    let server = Loopback::exporting(&["/"]);
    let (one, other) = (server.mount().await, server.mount().await);
    one.mkdir("/d", directory()).await.unwrap();
    one.mkdir("/d/e", directory()).await.unwrap();
    store(&one, "/d/f", "content".into()).await;
    for to in [&one, &other] {
        let report = one.copy_to("/d/f", to, "/d/f", &CopyOptions::default()).await.unwrap();
        assert!(matches!(report.failures[0].error, Error::SameFile { .. }), "{report:?}");
        let report = one.copy_to("/d/f", to, "/d", &CopyOptions::default()).await.unwrap();
        assert!(matches!(report.failures[0].error, Error::SameFile { .. }), "{report:?}");
        let report = one.copy_to("/d", to, "/d/e", &recursive()).await.unwrap();
        assert!(matches!(report.failures[0].error, Error::IntoItself { .. }), "{report:?}");
        let report = one.copy_to("/d", to, "/d", &recursive()).await.unwrap();
        assert!(report.failures.iter().any(|failed| matches!(failed.error, Error::IntoItself { .. })));
        one.procedures().null().await.unwrap();
    }
    assert_eq!(content(&one, "/d/f").await, "content");
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused() {
    let (from, to) = (source().await, Loopback::exporting(&["/"]).mount().await);
    assert!(matches!(
        from.copy_to("/t", &to, "/", &CopyOptions::default()).await,
        Err(Error::IsDirectory { .. })
    ));
    let missing = from.copy_to("/none", &to, "/", &recursive()).await.unwrap_err();
    assert_eq!(missing.status(), Some(Status::NoEnt));
    assert!(matches!(
        from.copy_to("/t/f", &to, "/new/", &recursive()).await,
        Err(Error::NotDirectory { .. })
    ));
    // A directory stands where a file should be, and a file where a directory should be.
    to.mkdir("/f", directory()).await.unwrap();
    to.mkdir("/f/f", directory()).await.unwrap();
    let report = from.copy_to("/t/f", &to, "/f", &recursive()).await.unwrap();
    assert!(matches!(report.failures[0].error, Error::Exists { .. }), "{report:?}");
    store(&to, "/t", "x".into()).await;
    let report = from.copy_to("/t", &to, "/", &recursive()).await.unwrap();
    assert_eq!((report.failures.len(), content(&to, "/t").await), (1, "x".into()));
}

/// A server shows a directory inside itself: the copy ends.
#[tokio::test]
async fn endless_depth_at_the_source() {
    let server = Loopback::exporting(&["/"]);
    let (from, to) = (server.mount().await, Loopback::exporting(&["/"]).mount().await);
    let root = from.root();
    let attributes = from.root_attributes().await.unwrap();
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Readdirplus => {
            let again = DirEntryPlus {
                fileid: 1,
                name: FileName::from("d"),
                cookie: 1,
                attributes: Some(attributes),
                handle: Some(root),
            };
            let reply = DirListPlus { entries: vec![again], eof: true };
            Step::ok::<ReaddirplusArgs>(ReaddirplusOk { dir_attributes: None, verifier: [0; 8], reply })
        }
        _ => Step::Serve,
    });
    let report = from.copy_to("/", &to, "/", &recursive()).await.unwrap();
    assert_eq!(report.failures.len(), 1);
    assert!(matches!(report.failures[0].error, Error::DirectoryLoop { .. }), "{report:?}");
}

/// A write that fails leaves the old file, and no temporary one.
#[tokio::test]
async fn a_copy_that_fails_leaves_the_old_file() {
    let from = source().await;
    let server = Loopback::exporting(&["/"]);
    let to = server.mount().await;
    store(&to, "/f", "old".into()).await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Write => Step::fail::<WriteArgs>(Status::NoSpc, Default::default()),
        _ => Step::Serve,
    });
    let report = from.copy_to("/t/f", &to, "/f", &CopyOptions::default()).await.unwrap();
    assert_eq!(report.failures[0].error.status(), Some(Status::NoSpc));
    assert_eq!((names(&to, "/").await, content(&to, "/f").await), (vec!["f".to_owned()], "old".into()));
}

/// Holes that the server of the source reports are neither read nor written.
#[tokio::test]
async fn holes_stay_holes() {
    const GIB: u64 = 1 << 30;
    let (source, target) = (Loopback::exporting(&["/"]), Loopback::exporting(&["/"]));
    let (from, to) = (source.mount().await, target.mount().await);
    for (path, middle) in [("/sparse", true), ("/empty", false)] {
        let file = from.create(path, SetAttributes::default()).await.unwrap();
        if middle {
            file.write_at(5 * GIB + 3, "middle".into()).await.unwrap();
            file.sync().await.unwrap();
        }
        file.set_len(10 * GIB).await.unwrap();
        source.calls();
        target.calls();
        let report = from.copy_to(path, &to, "/", &CopyOptions::default()).await.unwrap();
        assert_eq!((report.bytes, report.files, report.failures.len()), (10 * GIB, 1, 0));
        assert!(report.holes > 10 * GIB - (1 << 20), "{}", report.holes);
        let calls = (source.count(NfsProcedure::Read), target.count(NfsProcedure::Write));
        assert!(calls.0 <= 2 && calls.1 <= 2 && (middle || calls == (0, 0)), "{calls:?}");
        assert_eq!(to.stat(path).await.unwrap().size, 10 * GIB);
    }
    let copy = to.open("/sparse").await.unwrap();
    assert_eq!(copy.read_at(5 * GIB, 12).await.unwrap(), "\0\0\0middle\0\0\0");
}
