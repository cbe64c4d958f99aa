//! Walks along paths; objects made, removed and changed by path.

use super::*;
use crate::client::{Error, MAX_SYMLINKS};
use crate::wire::{
    CreateArgs, FileType, LookupArgs, MkdirArgs, NameError, NfsProcedure, NfsTime, SetAttributes, SetTime,
    Status,
};

fn with_mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn status(result: Result<impl std::fmt::Debug, Error>) -> Status {
    result.unwrap_err().status().expect("an NFS status")
}

// requirement: rfc8267-3-1, rfc8267-4.1-1
#[tokio::test]
async fn everything_by_path() {
    let client = Loopback::exporting(&["/"]).mount().await;
    client.mkdir("/a", with_mode(0o755)).await.unwrap();
    client.mkdir("a/b", with_mode(0o700)).await.unwrap();
    let file = client.create("/a/b/file", with_mode(0o640)).await.unwrap();
    file.write_at(0, "hello".into()).await.unwrap();
    file.sync().await.unwrap();
    let attributes = client.stat("/a//./b/../b/file").await.unwrap();
    assert_eq!((attributes.file_type, attributes.size, attributes.mode), (FileType::Regular, 5, 0o640));

    client.symlink("b/file", "/a/link").await.unwrap();
    assert_eq!(client.readlink("/a/link").await.unwrap(), b"b/file");
    assert_eq!(client.lookup("/a/link").await.unwrap().handle, file.handle());
    let link = client.lookup_link("/a/link").await.unwrap();
    assert_eq!(link.attributes.file_type, FileType::Symlink);
    assert_eq!(client.open("/a/link").await.unwrap().len().await.unwrap(), 5);

    client.link("/a/b/file", "/hard").await.unwrap();
    assert_eq!(client.stat("/hard").await.unwrap().nlink, 2);
    client.rename("/hard", "/a/moved").await.unwrap();
    assert_eq!(status(client.stat("/hard").await), Status::NoEnt);
    assert_eq!(client.stat("/a/moved").await.unwrap().fileid, attributes.fileid);

    let time = NfsTime { seconds: 1_000_000, nanoseconds: 5 };
    let change = SetAttributes { mtime: SetTime::ClientTime(time), ..with_mode(0o600) };
    client.set_attributes("/a/moved", change).await.unwrap();
    let attributes = client.stat("/a/link").await.unwrap();
    assert_eq!((attributes.mtime, attributes.mode), (time, 0o600));

    assert_eq!(status(client.rmdir("/a/b").await), Status::NotEmpty);
    client.remove("/a/moved").await.unwrap();
    client.remove("/a/b/file").await.unwrap();
    client.remove("/a/link").await.unwrap();
    client.rmdir("/a/b").await.unwrap();
    client.rmdir("/a").await.unwrap();
    assert_eq!(client.read_dir("/").await.unwrap(), []);
    assert!(client.fsstat().await.unwrap().total_bytes > 0);
    assert_eq!(client.pathconf("/").await.unwrap().name_max, 255);
    client.procedures().null().await.unwrap();
    client.unmount().await.unwrap();
}

// requirement: rfc1813-3.2-4
#[tokio::test]
async fn dot_dot_never_leaves_the_root() {
    let client = Loopback::exporting(&["/"]).mount().await;
    client.mkdir("/a", with_mode(0o755)).await.unwrap();
    for path in ["/..", "/../..", "/a/../..", "", "/", ".", "a/.."] {
        assert_eq!(client.lookup(path).await.unwrap().handle, client.root(), "{path}");
    }
    assert_eq!(client.lookup("../a").await.unwrap().handle, client.lookup("/a").await.unwrap().handle);
}

// requirement: rfc1813-3.3.3-4
#[tokio::test]
async fn links_are_followed_here() {
    let client = Loopback::exporting(&["/"]).mount().await;
    client.mkdir("/a", with_mode(0o755)).await.unwrap();
    client.mkdir("/a/b", with_mode(0o755)).await.unwrap();
    client.symlink("/a/b", "/absolute").await.unwrap();
    client.symlink("../../absolute/.", "/a/b/up").await.unwrap();
    let b = client.lookup("/a/b").await.unwrap().handle;
    assert_eq!(client.lookup("/absolute").await.unwrap().handle, b);
    assert_eq!(client.lookup("/a/b/up/up/up").await.unwrap().handle, b);
    // `..` goes back from the target of the link, not from the link's own directory.
    assert_eq!(
        client.lookup("/absolute/..").await.unwrap().handle,
        client.lookup("/a").await.unwrap().handle
    );
    client.mkdir("/absolute/new", with_mode(0o755)).await.unwrap();
    assert!(client.stat("/a/b/new").await.is_ok());

    client.symlink("loop", "/loop").await.unwrap();
    assert!(matches!(client.stat("/loop").await, Err(Error::TooManyLinks { .. })));
    assert!(client.lookup_link("/loop").await.is_ok());
    // A chain with as many links as the client follows, and a chain with one link more.
    client.symlink("/a", "/0").await.unwrap();
    for n in 1..=MAX_SYMLINKS {
        client.symlink(format!("/{}", n - 1), format!("/{n}")).await.unwrap();
    }
    assert!(client.stat(format!("/{}", MAX_SYMLINKS - 1)).await.is_ok());
    assert!(matches!(client.stat(format!("/{MAX_SYMLINKS}")).await, Err(Error::TooManyLinks { .. })));
}

// requirement: rfc1813-3.2-7
#[tokio::test]
async fn refusals_say_what_and_where() {
    let client = Loopback::exporting(&["/"]).mount().await;
    let error = client.open("/no/such").await.err().unwrap();
    assert_eq!(error.to_string(), "/no/such: no such file or directory (NFS3ERR_NOENT) [LOOKUP]");
    client.create("/file", with_mode(0o644)).await.unwrap();
    assert_eq!(status(client.stat("/file/x").await), Status::NotDir);
    assert_eq!(status(client.mkdir("/file", with_mode(0o755)).await), Status::Exist);
    for path in ["/", "", "..", "/a/.."] {
        assert!(matches!(client.mkdir(path, with_mode(0)).await, Err(Error::NoName { .. })), "{path}");
    }
    let long = "x".repeat(256);
    assert!(matches!(
        client.stat(&long).await,
        Err(Error::Name { source: NameError::TooLong { length: 256 }, .. })
    ));
    assert!(matches!(client.mkdir(&long, with_mode(0)).await, Err(Error::Name { .. })));
    assert!(matches!(
        client.mkdir(b"/a\0b", with_mode(0)).await,
        Err(Error::Name { source: NameError::Nul, .. })
    ));
}

#[tokio::test]
async fn exclusive_create_is_made_once() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let file = client.create_new("/new", with_mode(0o640)).await.unwrap();
    assert_eq!(file.attributes().await.unwrap().mode, 0o640);
    assert_eq!(status(client.create_new("/new", with_mode(0o640)).await.map(drop)), Status::Exist);
    // A plain create opens the file and truncates it.
    file.write_at(0, "data".into()).await.unwrap();
    let again = client.create("/new", SetAttributes::default()).await.unwrap();
    assert_eq!((again.handle(), again.len().await.unwrap()), (file.handle(), 0));
}

/// RFC 1813 §3.3.8: a server need not return handle and attributes of a new object.
// requirement: rfc1813-2.5-17, rfc1813-3.1-2
#[tokio::test]
async fn servers_that_tell_little() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Create => Step::change::<CreateArgs>(|ok| (ok.object, ok.attributes) = (None, None)),
        NfsProcedure::Mkdir => Step::change::<MkdirArgs>(|ok| ok.attributes = None),
        NfsProcedure::Lookup => Step::change::<LookupArgs>(|ok| ok.attributes = None),
        _ => Step::Serve,
    });
    let file = client.create("/file", with_mode(0o600)).await.unwrap();
    assert_eq!(client.lookup("/file").await.unwrap().handle, file.handle());
    let directory = client.mkdir("/dir", with_mode(0o700)).await.unwrap();
    assert_eq!(client.lookup("/dir").await.unwrap(), directory);
}

/// The client repeats calls after NFS3ERR_JUKEBOX, within a limit.
// requirement: rfc1813-2.6-7
#[tokio::test(start_paused = true)]
async fn jukebox() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let jukebox = || Step::fail::<LookupArgs>(Status::Jukebox, None);
    let mut left = 3;
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Lookup if left > 0 => {
            left -= 1;
            jukebox()
        }
        _ => Step::Serve,
    });
    server.calls();
    let start = tokio::time::Instant::now();
    assert_eq!(status(client.stat("/x").await), Status::NoEnt);
    assert_eq!(server.count(NfsProcedure::Lookup), 4);
    assert_eq!(start.elapsed().as_millis(), 100 + 200 + 400);
    server.hook(move |_, _| jukebox());
    let start = tokio::time::Instant::now();
    assert_eq!(status(client.stat("/x").await), Status::Jukebox);
    assert!(start.elapsed() <= options().jukebox_patience);
    assert!(start.elapsed() > options().jukebox_patience / 2);
}

fn options() -> crate::client::ClientOptions {
    super::loopback::options()
}
