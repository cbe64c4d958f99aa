//! Calls that make the server ask the database of users, and callers that wait for it.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::{Membership, UserDatabase};
use super::*;
use crate::extents::{EXTENTS_PROGRAM, EXTENTS_VERSION, ExtentsArgs, ExtentsResult};
use crate::mount::MountStatus;

/// Time after which a waiting test has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// More users than the server remembers.
const FLOOD: u32 = 17_000;
/// For users from this number on, the database answers on demand.
const SLOW: u32 = 1_000_000;

/// Database in which each user is in a group of the same number.
pub(super) struct Counting {
    asked: AtomicUsize,
    answers: Semaphore,
}

impl UserDatabase for Counting {
    fn membership(&self, user: u32) -> io::Result<Option<Membership>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        while user >= SLOW && self.answers.try_acquire().is_err() && !self.answers.is_closed() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Some(Membership { primary: user, groups: vec![user] }))
    }
}

impl Counting {
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Answers all open look-ups when a test fails.
struct Closer(Arc<Counting>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.answers.close();
    }
}

/// Returns a server that manages groups, with one export.
fn serve(tune: impl FnOnce(&mut Export)) -> (NfsServer, Arc<Counting>) {
    let mut export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    export.squash = Squash::Nobody;
    tune(&mut export);
    serve_all(vec![export])
}

pub(super) fn serve_all(exports: Vec<Export>) -> (NfsServer, Arc<Counting>) {
    let users = Arc::new(Counting { asked: AtomicUsize::new(0), answers: Semaphore::new(0) });
    let options = ServerOptions { manage_groups: true, users: users.clone(), ..ServerOptions::default() };
    (NfsServer::new(HandleKey::random(), exports, options).unwrap(), users)
}

impl Bed {
    async fn extents(&self, file: FileHandle) -> Result<(), Status> {
        let call = [EXTENTS_PROGRAM, EXTENTS_VERSION, 1];
        let results = self.rpc(call, &ExtentsArgs { file, offset: 0, count: 1 }).await.unwrap();
        match Decoder::new(results).decode_all().unwrap() {
            ExtentsResult::Ok(_) => Ok(()),
            ExtentsResult::Fail { status, .. } => Err(status),
        }
    }

    /// Makes a call of each kind that an object can get. Returns the statuses.
    pub(super) async fn each_kind(&self, handle: FileHandle) -> Vec<Option<Status>> {
        let list = ReaddirArgs { dir: handle, cookie: 0, verifier: [0; 8], count: 1024 };
        vec![
            self.getattr(handle).await.err(),
            self.status(&ReadlinkArgs { symlink: handle }).await,
            self.read(handle, 0, 1).await.err(),
            self.write(handle, 0, b"x").await.err(),
            self.status(&list).await,
            self.extents(handle).await.err(),
        ]
    }
}

#[tokio::test]
async fn i6_whom_no_export_admits_asks_nothing_of_the_database() {
    let (server, users) = serve(|export| {
        export.allow = vec!["203.0.113.0/24".parse().unwrap()].into();
        export.secure = true;
    });
    let refused = MountResult::Fail(MountStatus::Acces);
    let mut bed = Bed::calling(&server, "/", "192.0.2.1", 1);
    for peer in ["192.0.2.1:700", "203.0.113.1:1024"] {
        bed.peer = peer.parse().unwrap();
        let statuses = bed.each_kind(bed.root).await;
        assert!(statuses.iter().all(|status| *status == Some(Status::Acces)), "{peer} {statuses:?}");
        for path in ["/", "/dir"] {
            assert_eq!(bed.mnt(path).await, refused, "{peer}");
        }
    }
    assert_eq!(users.asked(), 0);
    // An invented handle, or a handle of another server, has no effect either.
    bed.peer = "203.0.113.1:700".parse().unwrap();
    let forged = serve(|_| {}).0.root_handle("/").unwrap();
    let statuses = bed.each_kind(forged).await;
    assert!(statuses.iter().all(|status| *status == Some(Status::BadHandle)), "{statuses:?}");
    assert_eq!(users.asked(), 0);
    // Other callers make it ask.
    assert_eq!(bed.getattr(bed.root).await.map(drop), Ok(()));
    assert_eq!(users.asked(), 1);
}

#[tokio::test]
async fn who_is_squashed_needs_no_groups() {
    for (squash, uid, asked) in
        [(Squash::Everybody, 1, 0), (Squash::Root, 0, 0), (Squash::Root, 1, 1), (Squash::Nobody, 0, 1)]
    {
        let (server, users) = serve(|export| export.squash = squash);
        let mut bed = Bed::calling(&server, "/", "192.0.2.1", uid);
        bed.each_kind(bed.root).await;
        assert!(matches!(bed.mnt("/").await, MountResult::Ok(_)));
        assert_eq!(users.asked(), asked, "{squash:?} {uid}");
        bed.credential = Credential::None;
        bed.getattr(bed.root).await.unwrap();
        assert_eq!(users.asked(), asked, "{squash:?} nobody");
    }
}

#[tokio::test]
async fn i6_made_up_users_of_one_address_push_out_nobody_elses() {
    let (server, users) = serve(|_| {});
    let own = Bed::calling(&server, "/", "192.0.2.2", 7);
    own.getattr(own.root).await.unwrap();
    let mut other = Bed::calling(&server, "/", "192.0.2.1", 0);
    for uid in 1000..1000 + FLOOD {
        other.credential = user(uid, uid);
        other.getattr(other.root).await.unwrap();
    }
    let asked = users.asked();
    assert_eq!(asked, 1 + usize::try_from(FLOOD).unwrap());
    own.getattr(own.root).await.unwrap();
    assert_eq!(users.asked(), asked, "it was known");
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_slow_look_ups_of_one_address_delay_nobody_elses() {
    let (server, users) = serve(|_| {});
    let _closer = Closer(users.clone());
    let mut flood = JoinSet::new();
    for number in 0..32 {
        let bed = Bed::calling(&server, "/", "192.0.2.1", SLOW + number);
        flood.spawn(async move { bed.getattr(bed.root).await.map(drop) });
    }
    while users.asked() == 0 {
        tokio::task::yield_now().await;
    }
    for (peer, uid) in [("192.0.2.2", 1), ("192.0.2.3", 2)] {
        let own = Bed::calling(&server, "/", peer, uid);
        timeout(PATIENCE, own.getattr(own.root)).await.expect("it waits for another address").unwrap();
    }
    assert_eq!(users.asked(), 3, "one address has one look-up at a time");
    users.answers.close();
    assert!(flood.join_all().await.iter().all(Result::is_ok));
}
