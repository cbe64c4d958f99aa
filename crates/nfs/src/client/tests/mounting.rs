//! Discovery and mounts of exports.

use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::Call;

use super::loopback::options;
use super::*;
use crate::client::connect::{mount_by, mount_containing_by};
use crate::client::transport::{ReplyFuture, Transport};
use crate::client::{Client, ClientOptions, CopyOptions, Error, MountClient};
use crate::fs::{MemoryFs, MemoryOptions};
use crate::mount::{DirPath, Exports, MOUNT_PROGRAM, MountProcedure, MountResult, MountStatus};
use crate::server::{Export, Security};
use crate::wire::SetAttributes;
use crate::wire::tests::{from_bytes, in_slices, to_bytes};

#[tokio::test]
async fn the_longest_export_that_contains_the_path() {
    let server = Loopback::exporting(&["/", "/data", "/data/deep"]);
    let service = server.mount_client();
    for (path, export, rest) in [
        ("/", "/", ""),
        ("/x/y", "/", "x/y"),
        ("/data", "/data", ""),
        ("/data/x", "/data", "/x"),
        ("/database", "/", "database"),
        ("/data/deep/a/b", "/data/deep", "/a/b"),
    ] {
        let (client, found) =
            mount_containing_by(service.clone(), server.clone(), path.as_bytes(), options()).await.unwrap();
        assert_eq!(found, rest.as_bytes(), "{path}");
        let expected = service.mnt(export).await.unwrap().handle;
        assert_eq!(client.root(), expected, "{path}");
        // A further path of this export needs no mount of its own.
        assert_eq!(client.rest_of(path.as_bytes()), Some(found), "{path}");
        let same = |other: &str| client.rest_of(other.as_bytes()).is_some();
        assert_eq!(
            [same("/z"), same("/data/z"), same("/data/deep/z")],
            [export == "/", export == "/data", export == "/data/deep"]
        );
    }
}

// requirement: rfc1813-5.2.0-1
#[tokio::test]
async fn exports_and_mounts_are_listed() {
    let server = Loopback::exporting(&["/a", "/b"]);
    let service = server.mount_client();
    service.null().await.unwrap();
    let exports = service.exports().await.unwrap();
    let names: Vec<String> = exports.iter().map(|export| export.directory.to_string()).collect();
    assert_eq!(names, ["/a", "/b"]);
    let client = server.mount_with("/a", options()).await;
    client.mkdir("x", SetAttributes::default()).await.unwrap();
    client.unmount().await.unwrap();
    service.dump().await.unwrap();
    service.umntall().await.unwrap();
    assert!(server.mount_with("/b", options()).await.read_dir("/").await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_exported() {
    let server = Loopback::exporting(&["/a"]);
    let mounted = mount_by(server.mount_client(), server.clone(), b"/none", options(), Arc::default()).await;
    let Err(Error::Mount { status, path }) = mounted else { panic!("mounted") };
    assert_eq!((status, path.as_str()), (MountStatus::NoEnt, "/none"));
    let mounted = mount_containing_by(server.mount_client(), server.clone(), b"/none", options()).await;
    assert!(matches!(mounted, Err(Error::Mount { status: MountStatus::NoEnt, .. })));
}

/// RFC 5531 §9: a server without MOUNT on this connection reports that; the caller then uses TCP.
#[tokio::test]
async fn no_mount_service_here() {
    let server = Loopback::exporting(&["/"]);
    server.without_mount();
    assert!(matches!(server.mount_client().null().await, Err(Error::Rpc { operation: "NULL", .. })));
}

#[tokio::test]
async fn defaults() {
    let options = ClientOptions::default();
    assert_eq!(options.credential.flavor(), 1);
    assert!(options.window >= options.file_window);
}

/// RFC 1813 §5.2.1: a client does not use a flavour that the export does not list.
#[tokio::test]
async fn rfc1813_5_2_1_an_export_of_other_flavours_is_not_used() {
    for (security, refusal) in [
        (vec![Security::Krb5i, Security::Krb5p], Some("/ allows krb5i, krb5p only, and not sys")),
        (vec![Security::Krb5, Security::Sys], None),
    ] {
        let export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
        let server = Loopback::serving(vec![Export { security, ..export }]);
        let mounted = mount_by(server.mount_client(), server.clone(), b"/", options(), Arc::default()).await;
        assert_eq!(mounted.err().map(|error| error.to_string()).as_deref(), refusal);
    }
}

/// A server that lists no exports, and mounts what `mounts` allows.
struct Closed {
    server: Arc<Loopback>,
    mounts: fn(&str) -> bool,
}

impl Transport for Closed {
    fn call(&self, call: Call) -> ReplyFuture<'_> {
        if (call.program, call.procedure) == (MOUNT_PROGRAM, MountProcedure::Export.number()) {
            let none = in_slices(to_bytes(&Exports { exports: Vec::new() }));
            return Box::pin(std::future::ready(Ok(none)));
        }
        if (call.program, call.procedure) == (MOUNT_PROGRAM, MountProcedure::Mnt.number()) {
            let path: DirPath = from_bytes(call.arguments.clone().flatten().0).unwrap();
            if !(self.mounts)(&path.to_string()) {
                let refused = in_slices(to_bytes(&MountResult::Fail(MountStatus::Acces)));
                return Box::pin(std::future::ready(Ok(refused)));
            }
        }
        self.server.call(call)
    }
}

/// Mounts what contains `/dir/file`, with the rest of that path.
async fn mounted_file(mounts: fn(&str) -> bool) -> (Client, Vec<u8>) {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    client.mkdir("dir", SetAttributes::default()).await.unwrap();
    let file = client.create("dir/file", SetAttributes::default()).await.unwrap();
    file.write_at(0, Bytes::from_static(b"content")).await.unwrap();
    file.sync().await.unwrap();
    let closed = Arc::new(Closed { server, mounts });
    let service = MountClient::on(closed.clone(), options().credential, None);
    mount_containing_by(service, closed, b"/dir/file", options()).await.unwrap()
}

/// Servers of Linux mount single files. A name in the directory can be removed, the root of a mount cannot.
#[tokio::test]
async fn the_directory_of_a_file_is_mounted_rather_than_the_file() {
    let (client, rest) = mounted_file(|_| true).await;
    assert_eq!(rest, b"/file");
    client.remove(rest).await.unwrap();
}

#[tokio::test]
async fn a_single_file_that_is_exported_is_read_and_written() {
    let (client, rest) = mounted_file(|path| path == "/dir/file").await;
    assert_eq!(rest, b"");
    assert_eq!(client.stat(&rest).await.unwrap().size, 7);
    let file = client.open(&rest).await.unwrap();
    assert_eq!(file.read_at(0, 100).await.unwrap(), &b"content"[..]);
    file.write_at(7, Bytes::from_static(b"!")).await.unwrap();
    assert_eq!(client.stat("").await.unwrap().size, 8);
    // A slash after its name would make it a directory.
    let error = client.stat("/").await.unwrap_err();
    assert!(matches!(error, Error::NotDirectory { .. }), "{error}");
    let error = client.remove("").await.unwrap_err();
    assert!(matches!(error, Error::NoName { .. }), "{error}");
}

#[tokio::test]
async fn a_single_file_that_is_exported_is_copied() {
    let (client, rest) = mounted_file(|path| path == "/dir/file").await;
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("copy");
    client.get(&rest, &copy, &CopyOptions::default()).await.unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), b"content");
}
