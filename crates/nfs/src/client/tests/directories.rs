//! Directory listings.

use std::collections::BTreeSet;

use super::loopback::arguments;
use super::*;
use crate::client::{Client, DirItem, Error, Violation};
use crate::wire::{
    DirEntryPlus, DirListPlus, FileName, FsinfoArgs, NameError, NfsProcedure, ReaddirplusArgs, ReaddirplusOk,
    SetAttributes, Status,
};

/// Returns a client of a directory with `count` files. Replies are small, so that a listing needs several.
async fn full(server: &std::sync::Arc<Loopback>, count: usize) -> Client {
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Fsinfo => Step::change::<FsinfoArgs>(|ok| ok.readdir_preferred = 0),
        _ => Step::Serve,
    });
    let client = server.mount().await;
    for n in 0..count {
        client.create(format!("/file-{n:04}"), SetAttributes::default()).await.unwrap();
    }
    server.hook(|_, _| Step::Serve);
    server.calls();
    client
}

fn names(items: &[DirItem]) -> BTreeSet<String> {
    items.iter().map(|item| item.name.to_string()).collect()
}

fn expected(count: usize) -> BTreeSet<String> {
    (0..count).map(|n| format!("file-{n:04}")).collect()
}

// requirement: rfc1813-3.3.17-4
#[tokio::test]
async fn readdirplus_in_several_calls() {
    let server = Loopback::exporting(&["/"]);
    let client = full(&server, 200).await;
    let items = client.read_dir("/").await.unwrap();
    assert_eq!(items.len(), 200);
    assert_eq!(names(&items), expected(200));
    assert!(items.iter().all(|item| item.attributes.is_some() && item.handle.is_some()));
    assert!(server.count(NfsProcedure::Readdirplus) > 5);
}

/// RFC 1813 §3.3.17: a server need not have READDIRPLUS. The client tries it once.
// requirement: rfc1813-3.3.17-5
#[tokio::test]
async fn readdir_where_there_is_no_readdirplus() {
    let server = Loopback::exporting(&["/"]);
    let client = full(&server, 200).await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Readdirplus => Step::fail::<ReaddirplusArgs>(Status::NotSupp, None),
        _ => Step::Serve,
    });
    for _ in 0..2 {
        let items = client.read_dir("/").await.unwrap();
        assert_eq!(names(&items), expected(200));
        assert!(items.iter().all(|item| item.handle.is_none()));
    }
    assert_eq!(server.count(NfsProcedure::Readdirplus), 1);
    assert!(server.count(NfsProcedure::Readdir) >= 4);
}

/// After NFS3ERR_BAD_COOKIE the listing starts again, without repeated names, for a limited number of times.
// requirement: rfc1813-3.3.16-9
#[tokio::test]
async fn stale_cookies() {
    let server = Loopback::exporting(&["/"]);
    let client = full(&server, 200).await;
    let mut bad = 2;
    server.hook(move |procedure, bytes| match procedure {
        NfsProcedure::Readdirplus if bad > 0 && arguments::<ReaddirplusArgs>(bytes).cookie != 0 => {
            bad -= 1;
            Step::fail::<ReaddirplusArgs>(Status::BadCookie, None)
        }
        _ => Step::Serve,
    });
    let items = client.read_dir("/").await.unwrap();
    assert_eq!(items.len(), 200);
    assert_eq!(names(&items), expected(200));
    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Readdirplus if arguments::<ReaddirplusArgs>(bytes).cookie != 0 => {
            Step::fail::<ReaddirplusArgs>(Status::BadCookie, None)
        }
        _ => Step::Serve,
    });
    assert_eq!(client.read_dir("/").await.unwrap_err().status(), Some(Status::BadCookie));
}

/// After NFS3ERR_TOOSMALL the client requests more.
#[tokio::test]
async fn counts_that_are_too_small() {
    let server = Loopback::exporting(&["/"]);
    let client = full(&server, 3).await;
    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Readdirplus if arguments::<ReaddirplusArgs>(bytes).maxcount < 16 << 10 => {
            Step::fail::<ReaddirplusArgs>(Status::TooSmall, None)
        }
        _ => Step::Serve,
    });
    assert_eq!(client.read_dir("/").await.unwrap().len(), 3);
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Readdirplus => Step::fail::<ReaddirplusArgs>(Status::TooSmall, None),
        _ => Step::Serve,
    });
    assert_eq!(client.read_dir("/").await.unwrap_err().status(), Some(Status::TooSmall));
}

fn listing(names: &[&[u8]], first_cookie: u64, eof: bool) -> Step {
    let entry = |(n, name): (usize, &&[u8])| DirEntryPlus {
        fileid: 1,
        name: FileName::from(*name),
        cookie: first_cookie + u64::try_from(n).unwrap(),
        attributes: None,
        handle: None,
    };
    let entries = names.iter().enumerate().map(entry).collect();
    let reply = DirListPlus { entries, eof };
    Step::ok::<ReaddirplusArgs>(ReaddirplusOk { dir_attributes: None, verifier: [0; 8], reply })
}

async fn refusal(step: impl Fn() -> Step + Send + 'static) -> Violation {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Readdirplus => step(),
        _ => Step::Serve,
    });
    match client.read_dir("/").await {
        Err(Error::Protocol { violation, .. }) => violation,
        other => panic!("{other:?}"),
    }
}

/// Names that would lead out of a directory, or cannot exist.
#[tokio::test]
async fn hostile_names() {
    for (name, expected) in [
        (b"".as_slice(), NameError::Empty),
        (b"/etc/passwd", NameError::Separator),
        (b"../x", NameError::Separator),
        (b"a\0b", NameError::Nul),
        (&[b'x'; 256], NameError::TooLong { length: 256 }),
    ] {
        let violation = refusal(move || listing(&[b"good", name], 1, true)).await;
        assert!(
            matches!(violation, Violation::EntryName { source, .. } if source == expected),
            "{violation}"
        );
    }
}

/// A listing that does not advance.
#[tokio::test]
async fn stuck_listings() {
    assert!(matches!(refusal(|| listing(&[], 1, false)).await, Violation::StuckDirectory { cookie: 0 }));
    assert!(matches!(refusal(|| listing(&[b"a"], 7, false)).await, Violation::StuckDirectory { cookie: 7 }));
}

/// `.` and `..` are omitted at any position, and a repeated name is returned once.
#[tokio::test]
async fn odd_listings() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Readdirplus => listing(&[b"a", b"..", b"b", b"a", b"."], 1, true),
        _ => Step::Serve,
    });
    assert_eq!(names(&client.read_dir("/").await.unwrap()), ["a".into(), "b".into()].into());
    assert_eq!(client.read_dir("/").await.unwrap().len(), 2);
}

/// A directory changes during a listing: entries that stay are listed once.
// requirement: rfc1813-3.3.16-9
#[tokio::test]
async fn directories_that_change() {
    let server = Loopback::exporting(&["/"]);
    let client = full(&server, 200).await;
    let root = client.root();
    let mut reader = client.dir_reader(root, "/");
    let mut items = reader.next().await.unwrap().unwrap();
    for n in 0..100 {
        client.remove(format!("/file-{n:04}")).await.unwrap();
    }
    client.create("/new", SetAttributes::default()).await.unwrap();
    while let Some(batch) = reader.next().await.unwrap() {
        items.extend(batch);
    }
    let listed = names(&items);
    assert_eq!(listed.len(), items.len());
    assert!((100..200).all(|n| listed.contains(&format!("file-{n:04}"))));
}

#[tokio::test]
async fn no_directory() {
    let server = Loopback::exporting(&["/"]);
    let client = full(&server, 1).await;
    assert_eq!(client.read_dir("/file-0000").await.unwrap_err().status(), Some(Status::NotDir));
    assert_eq!(client.read_dir("/none").await.unwrap_err().status(), Some(Status::NoEnt));
}
