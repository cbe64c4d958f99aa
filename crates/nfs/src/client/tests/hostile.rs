//! Servers with impossible directories, and all that goes through whole trees: each such walk ends, and tells why.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::{TempDir, tempdir};

use super::loopback::arguments;
use super::*;
use crate::client::{Client, CopyOptions, CopyReport, Error, SyncOptions, Violation};
use crate::wire::{
    Attributes, DirEntryPlus, DirListPlus, FileHandle, FileName, LookupArgs, LookupOk, NfsProcedure,
    ReaddirplusArgs, ReaddirplusOk, SetAttributes,
};

/// Kind of the listing of the directory `/t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// More and more files.
    Endless,
    /// Directories with directories in them, a hundred each, without end.
    Endlessly,
    /// The directory itself.
    Itself,
    /// One cookie in each reply.
    Stuck,
    /// Two cookies by turns.
    Circle,
    /// A name that is none.
    Name(&'static str),
}

/// Walks through whole trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    Get,
    SyncToLocal,
    /// The directory is the target.
    SyncFromLocal,
    CopyTo,
    Remove,
    ReadDir,
}

const LISTINGS: [Listing; 8] = [
    Listing::Endless,
    Listing::Endlessly,
    Listing::Itself,
    Listing::Stuck,
    Listing::Circle,
    Listing::Name(""),
    Listing::Name("../escaped"),
    Listing::Name("/etc/escaped"),
];
const WALKS: [Walk; 6] =
    [Walk::Get, Walk::SyncToLocal, Walk::SyncFromLocal, Walk::CopyTo, Walk::Remove, Walk::ReadDir];

/// Beginning of the handles of directories that the server invents.
const INVENTED: [u8; 8] = [0xab; 8];

/// A server with a directory `/t` in which a walk finds what `listing` tells.
struct Hostile {
    client: Client,
    replies: Arc<AtomicU64>,
}

impl Hostile {
    async fn new(listing: Listing) -> Self {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount().await;
        let mode = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        let top = client.mkdir("/t", mode).await.unwrap();
        client.create("/t/f", SetAttributes::default()).await.unwrap();
        let file = client.lookup("/t/f").await.unwrap();
        let replies = Arc::new(AtomicU64::new(0));
        let count = replies.clone();
        let entry = |name: String, cookie, of: Option<(Attributes, FileHandle)>| DirEntryPlus {
            fileid: cookie,
            name: FileName::from(name.as_bytes()),
            cookie,
            attributes: of.map(|(attributes, _)| attributes),
            handle: of.map(|(_, handle)| handle),
        };
        let plain = Some((file.attributes, file.handle));
        let fresh = move |number: u64| {
            let handle = FileHandle::new(&[INVENTED, number.to_be_bytes()].concat()).unwrap();
            Some((Attributes { fileid: 1 << 40 | number, ..top.attributes }, handle))
        };
        server.hook(move |procedure, bytes| {
            let at = match procedure {
                NfsProcedure::Readdirplus => arguments::<ReaddirplusArgs>(bytes).dir,
                // Invented directories are found by their names too.
                NfsProcedure::Lookup if listing == Listing::Endlessly => {
                    let place = arguments::<LookupArgs>(bytes).what;
                    let name = String::from_utf8_lossy(place.name.as_bytes()).into_owned();
                    let Some(number) = name.strip_prefix('n').and_then(|number| number.parse().ok()) else {
                        return Step::Serve;
                    };
                    let (attributes, handle) = fresh(number).unwrap();
                    let ok = LookupOk { object: handle, attributes: Some(attributes), dir_attributes: None };
                    return Step::ok::<LookupArgs>(ok);
                }
                _ => return Step::Serve,
            };
            if at != top.handle && !at.as_bytes().starts_with(&INVENTED) {
                return Step::Serve;
            }
            let reply = count.fetch_add(1, Ordering::Relaxed);
            let numbers = reply * 100..reply * 100 + 100;
            let (entries, eof) = match listing {
                Listing::Endless => {
                    (numbers.map(|number| entry(format!("f{number}"), number + 1, plain)).collect(), false)
                }
                Listing::Endlessly => {
                    let made = numbers.map(|number| entry(format!("n{number}"), number + 1, fresh(number)));
                    (made.collect(), true)
                }
                Listing::Itself => (vec![entry("d".into(), 1, Some((top.attributes, top.handle)))], true),
                Listing::Stuck => (vec![entry(format!("f{reply}"), 7, plain)], false),
                Listing::Circle => (vec![entry(format!("f{}", reply % 2), 1 + reply % 2, plain)], false),
                Listing::Name(name) => {
                    (vec![entry("f".into(), 1, plain), entry(name.into(), 2, plain)], true)
                }
            };
            let reply = DirListPlus { entries, eof };
            Step::ok::<ReaddirplusArgs>(ReaddirplusOk { dir_attributes: None, verifier: [0; 8], reply })
        });
        Self { client, replies }
    }

    async fn walk(&self, walk: Walk, local: &TempDir) -> Result<CopyReport, Error> {
        let sync = SyncOptions { delete: true, ..SyncOptions::default() };
        let options = CopyOptions { recursive: true, sync, ..CopyOptions::default() };
        let (source, out) = (local.path().join("source"), local.path().join("out"));
        match walk {
            Walk::Get => self.client.get("/t", &out, &options).await,
            Walk::SyncToLocal => self.client.sync_to_local("/t", &out, &options).await,
            Walk::SyncFromLocal => {
                fs::create_dir(&source).unwrap();
                fs::write(source.join("kept"), "kept").unwrap();
                self.client.sync_from_local(&source, "/t", &options).await
            }
            Walk::CopyTo => {
                let other = Loopback::exporting(&["/"]).mount().await;
                self.client.copy_to("/t", &other, "/copy", &options).await
            }
            Walk::Remove => self.client.remove_tree("/t").await,
            Walk::ReadDir => self.client.read_dir("/t").await.map(|_| CopyReport::default()),
        }
    }
}

/// Every walk ends after a bounded number of replies, with an error that names the fault.
#[tokio::test]
async fn i6_every_walk_through_an_impossible_directory_ends() {
    for listing in LISTINGS {
        for walk in WALKS {
            // A listing of one directory shows what is in it, whatever that leads to. A sync spares the directory that it
            // fills, under all its names.
            let harmless = match walk {
                Walk::ReadDir => matches!(listing, Listing::Itself | Listing::Endlessly),
                Walk::SyncFromLocal => listing == Listing::Itself,
                _ => false,
            };
            let local = tempdir().unwrap();
            let hostile = Hostile::new(listing).await;
            let result = hostile.walk(walk, &local).await;
            let about = format!("{listing:?} {walk:?}");
            let error = match &result {
                Ok(report) if harmless => {
                    assert!(report.failures.is_empty(), "{about}: {:?}", report.failures);
                    continue;
                }
                Err(error) => error,
                Ok(report) => {
                    let mut failed = report.failures.iter().map(|failure| &failure.error);
                    failed.next_back().expect(&about)
                }
            };
            let right = match (listing, error) {
                (Listing::Itself, Error::DirectoryLoop { .. }) => true,
                (_, Error::Protocol { violation, .. }) => match listing {
                    Listing::Endless | Listing::Endlessly => {
                        matches!(violation, Violation::EndlessDirectory { .. })
                    }
                    Listing::Stuck | Listing::Circle => matches!(violation, Violation::StuckDirectory { .. }),
                    Listing::Name(_) => matches!(violation, Violation::EntryName { .. }),
                    Listing::Itself => false,
                },
                _ => false,
            };
            assert!(right, "{about}: {error}");
            let replies = hostile.replies.load(Ordering::Relaxed);
            assert!(replies < 500, "{about}: {replies} replies");
            assert!(!local.path().join("escaped").exists(), "{about}");
        }
    }
}

/// A directory goes with everything in it; its links are not followed.
#[tokio::test]
async fn a_tree_is_removed() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let mode = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
    for path in ["/t", "/t/a", "/t/a/b", "/kept"] {
        client.mkdir(path, mode).await.unwrap();
    }
    for path in ["/t/f", "/t/a/b/f", "/kept/f"] {
        client.create(path, SetAttributes::default()).await.unwrap();
    }
    client.symlink("/kept", "/t/link").await.unwrap();
    let report = client.remove_tree("/t").await.unwrap();
    assert_eq!((report.deleted, report.failures.len()), (6, 0));
    assert!(client.lookup("/t").await.is_err() && client.lookup("/kept/f").await.is_ok());
    // A single object is a tree too; the root is none.
    client.remove_tree("/kept/f").await.unwrap();
    assert!(client.remove_tree("/kept/f").await.is_err());
    client.remove_tree("/").await.unwrap_err();
    assert!(client.lookup("/kept").await.is_ok());
}
