//! Copies of files with holes from servers that report them, and from other servers.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_oncrpc::{AuthSys, Credential};
use tempfile::tempdir;

use super::loopback::options;
use super::*;
use crate::client::transport::carry;
use crate::client::{Client, CopyOptions};
use crate::extents::{Extent, ExtentsArgs, ExtentsOk, ExtentsResult, MAX_EXTENTS};
use crate::fs::{DirectoryFs, DirectoryOptions, StateDirectory};
use crate::server::{Export, Squash};
use crate::wire::{FileHandle, NfsProcedure, SetAttributes, Status};

const GIB: u64 = 1 << 30;

fn plain() -> CopyOptions {
    CopyOptions { preserve: false, ..CopyOptions::default() }
}

/// Makes a file of `size` bytes with these pieces of data.
async fn store(client: &Client, path: &str, size: u64, pieces: &[(u64, &'static [u8])]) {
    let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let file = client.create(path, attributes).await.unwrap();
    for (offset, data) in pieces {
        file.write_at(*offset, Bytes::from_static(data)).await.unwrap();
    }
    file.sync().await.unwrap();
    file.set_len(size).await.unwrap();
}

async fn ask(
    server: &Arc<Loopback>,
    credential: Credential,
    file: FileHandle,
    from: u64,
    count: u32,
) -> ExtentsResult {
    let arguments = ExtentsArgs { file, offset: from, count };
    carry::<ExtentsArgs>(&**server, &arguments, credential, None).await.unwrap()
}

fn ok(result: ExtentsResult) -> ExtentsOk {
    match result {
        ExtentsResult::Ok(ok) => ok,
        ExtentsResult::Fail { status, .. } => panic!("{status}"),
    }
}

/// A file of 10 GiB has a few bytes of data, and only those are read and written.
#[tokio::test]
async fn a_get_reads_no_holes() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/f", 10 * GIB, &[(3, b"start"), (5 * GIB + 3, b"middle")]).await;
    store(&client, "/empty", 10 * GIB, &[]).await;
    let local = tempdir().unwrap();
    let old = local.path().join("old");
    fs::write(&old, vec![9; 1 << 20]).unwrap();
    fs::hard_link(&old, local.path().join("other name")).unwrap();
    for target in [local.path().join("new"), old] {
        server.calls();
        let report = client.get("/f", &target, &plain()).await.unwrap();
        assert_eq!(format!("{:?}", report.failures), "[]");
        assert!(server.count(NfsProcedure::Read) <= 6, "{}", server.count(NfsProcedure::Read));
        assert_eq!(report.bytes, 10 * GIB);
        assert!(report.holes > 10 * GIB - (1 << 20), "{}", report.holes);
        let file = fs::File::open(&target).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10 * GIB);
        let mut read = [1; 12];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"\0\0\0start\0\0\0\0");
        file.read_exact_at(&mut read, 5 * GIB).unwrap();
        assert_eq!(&read, b"\0\0\0middle\0\0\0");
        file.read_exact_at(&mut read, 100_000).unwrap();
        assert_eq!(read, [0; 12]);
        assert!(file.metadata().unwrap().blocks() < 2048);
    }
    server.calls();
    let report = client.get("/empty", local.path().join("empty"), &plain()).await.unwrap();
    assert_eq!((report.holes, server.count(NfsProcedure::Read)), (10 * GIB, 0));
    assert_eq!(fs::metadata(local.path().join("empty")).unwrap().len(), 10 * GIB);
}

/// More ranges than fit in one reply; none is lost.
#[tokio::test]
async fn many_ranges() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let count = 2 * MAX_EXTENTS + 3;
    let file =
        client.create("/f", SetAttributes { mode: Some(0o644), ..SetAttributes::default() }).await.unwrap();
    let mut expected = vec![0; count << 17];
    for index in 0..count {
        let at = index << 17;
        let data = vec![u8::try_from(index % 255 + 1).unwrap(); 5];
        expected[at..at + 5].copy_from_slice(&data);
        file.write_at(at as u64, data.into()).await.unwrap();
    }
    file.sync().await.unwrap();
    file.set_len(expected.len() as u64).await.unwrap();
    let local = tempdir().unwrap();
    let out = local.path().join("f");
    let report = client.get("/f", &out, &plain()).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    assert!(fs::read(&out).unwrap() == expected);
    assert_eq!(report.holes, expected.len() as u64 - 5 * count as u64);
}

/// A server without EXTENTS: the client asks once and reads everything.
#[tokio::test]
async fn a_server_that_does_not_tell() {
    let server = Loopback::exporting(&["/"]);
    server.without_extents();
    let client = server.mount().await;
    store(&client, "/f", 5 << 20, &[(3, b"start")]).await;
    let local = tempdir().unwrap();
    for name in ["a", "b"] {
        let report = client.get("/f", local.path().join(name), &plain()).await.unwrap();
        assert_eq!(format!("{:?}", report.failures), "[]");
        assert_eq!((report.bytes, report.holes), (5 << 20, 0));
        let read = fs::read(local.path().join(name)).unwrap();
        assert!(read.starts_with(b"\0\0\0start\0") && read.len() == 5 << 20);
    }
}

/// EXTENTS makes the checks of READ: the handle, and the right to read.
#[tokio::test]
async fn i6_ranges_are_told_to_whom_may_read() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    store(&client, "/f", GIB, &[(3, b"start")]).await;
    let node = client.lookup("/f").await.unwrap();
    let private = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    client.set_attributes("/f", private).await.unwrap();
    let found = ok(ask(&server, options().credential, node.handle, 0, 5).await);
    assert_eq!(found, ExtentsOk { extents: vec![Extent { offset: 0, length: 8 }], complete: true });
    assert!(ok(ask(&server, options().credential, node.handle, 9, u32::MAX).await).extents.is_empty());
    let last = ok(ask(&server, options().credential, node.handle, u64::MAX, 5).await);
    assert_eq!((last.extents, last.complete), (vec![], true));
    let none = ok(ask(&server, options().credential, node.handle, 0, 0).await);
    assert_eq!((none.extents, none.complete), (vec![], false));
    let other = Credential::Sys(AuthSys { uid: 1001, gid: 1001, ..AuthSys::default() });
    for (credential, handle, expected) in [
        (other, node.handle, Status::Acces),
        (Credential::None, node.handle, Status::Acces),
        (options().credential, client.root(), Status::IsDir),
        (options().credential, FileHandle::new(&[1; 32]).unwrap(), Status::BadHandle),
    ] {
        match ask(&server, credential, handle, 0, 5).await {
            ExtentsResult::Fail { status, .. } => assert_eq!(status, expected),
            ExtentsResult::Ok(ok) => panic!("{ok:?}"),
        }
    }
}

/// The directory file system gets the holes from the kernel, with the caller's rights.
#[tokio::test]
async fn a_directory_tells_its_holes() {
    let place = tempdir().unwrap();
    let file = fs::File::create(place.path().join("f")).unwrap();
    file.set_len(10 * GIB).unwrap();
    file.write_all_at(&[7; 4096], GIB).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if file.metadata().unwrap().blocks() > 2048 {
        eprintln!("skipped: no holes in {}", place.path().display());
        return;
    }
    let kept = tempdir().unwrap();
    let state = StateDirectory::open(kept.path()).unwrap();
    let directory = DirectoryFs::open(place.path(), &state, DirectoryOptions::default()).unwrap();
    let mut export = Export::new("/", Arc::new(directory));
    export.squash = Squash::Nobody;
    let server = Loopback::serving(vec![export]);
    let client = server.mount_with("/", crate::client::ClientOptions::default()).await;
    let local = tempdir().unwrap();
    let report = client.get("/f", local.path().join("f"), &plain()).await.unwrap();
    assert_eq!(format!("{:?}", report.failures), "[]");
    assert!(report.holes > 10 * GIB - (4 << 20), "{}", report.holes);
    let mut read = [0; 4098];
    let copy = fs::File::open(local.path().join("f")).unwrap();
    copy.read_exact_at(&mut read, GIB - 1).unwrap();
    assert!(read[0] == 0 && read[1..4097] == [7; 4096] && read[4097] == 0);
    assert_eq!(copy.metadata().unwrap().len(), 10 * GIB);
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(place.path().join("f"), fs::Permissions::from_mode(0o600)).unwrap();
        let handle = client.lookup("/f").await.unwrap().handle;
        let refused = ask(&server, options().credential, handle, 0, 5).await;
        assert!(matches!(refused, ExtentsResult::Fail { status: Status::Acces, .. }), "{refused:?}");
    } else {
        println!("skipped, the refusal: this process cannot act as its callers");
    }
}
