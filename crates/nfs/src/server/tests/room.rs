//! A call in progress holds at most the memory reserved for it. Further memory counts against the share of
//! its address.

use super::super::{FUTURE_ROOM, GIDS_MAX, Membership, UserDatabase};
use super::gated::{GatedFs, Opener};
use super::watched::{Watch, WatchedFs};
use super::*;
use crate::extents::{EXTENTS_PROGRAM, EXTENTS_VERSION, ExtentsArgs, ExtentsOk, ExtentsResult, MAX_EXTENTS};
use crate::fs::{Extents, FileSystem, FsError, Identity};

/// More groups than a call can claim.
const GROUPS: u32 = 1000;

/// Database in which every user has this many groups.
struct Crowd(u32);

/// Program, version and procedure of EXTENTS.
const EXTENTS: [u32; 3] = [EXTENTS_PROGRAM, EXTENTS_VERSION, 1];

impl UserDatabase for Crowd {
    fn membership(&self, _user: u32) -> std::io::Result<Option<Membership>> {
        Ok(Some(Membership { primary: 1, groups: (1..=self.0).collect() }))
    }
}

impl Bed {
    /// Calls EXTENTS for the whole file.
    async fn ranges(&self, file: FileHandle, count: u32) -> Result<ExtentsOk, Status> {
        let found = self.rpc(EXTENTS, &ExtentsArgs { file, offset: 0, count }).await.unwrap();
        let found: ExtentsResult = Decoder::new(found).decode_all().unwrap();
        found.into_result().map_err(|(status, ())| status)
    }

    /// Returns the size of the future that serves this call, in bytes.
    fn future_of<C: NfsCall + Encode>(&self, arguments: &C) -> usize {
        let context = CallContext {
            peer: Some(self.peer),
            transport: self.transport,
            xid: 1,
            program: NFS_PROGRAM,
            version: NFS_VERSION,
            procedure: C::PROCEDURE.number(),
            credential: self.credential.clone(),
            attached: None,
            owner: None,
        };
        let (arguments, _) = encode(arguments).unwrap().flatten();
        size_of_val(&*self.server.nfs_program().call(context, Decoder::new(arguments)))
    }
}

#[tokio::test]
async fn i6_the_future_of_a_call_fits_into_its_room() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let (dir, what) = (bed.root, place(bed.root, "name"));
    let list = ReaddirplusArgs { dir, cookie: 0, verifier: [0; 8], dircount: 512, maxcount: 4096 };
    let symlink = SymlinkData { attributes: SetAttributes::default(), target: Bytes::from_static(b"to") };
    for (procedure, bytes) in [
        ("GETATTR", bed.future_of(&GetattrArgs { object: dir })),
        ("SETATTR", bed.future_of(&SetattrArgs { object: dir, new_attributes: mode(0), guard: None })),
        ("LOOKUP", bed.future_of(&LookupArgs { what: what.clone() })),
        ("READLINK", bed.future_of(&ReadlinkArgs { symlink: dir })),
        ("READ", bed.future_of(&ReadArgs { file: dir, offset: 0, count: 1 })),
        ("WRITE", bed.future_of(&super::slow::one_byte(dir, 0, StableHow::Unstable))),
        ("CREATE", bed.future_of(&create(dir, "name", CreateHow::Guarded(mode(0))))),
        ("SYMLINK", bed.future_of(&SymlinkArgs { place: what.clone(), symlink })),
        ("RENAME", bed.future_of(&RenameArgs { from: what.clone(), to: what })),
        ("READDIRPLUS", bed.future_of(&list)),
    ] {
        assert!((200..=FUTURE_ROOM).contains(&bytes), "{procedure}: {bytes}");
    }
}

#[tokio::test]
async fn i6_groups_of_the_database_count_against_the_share_of_their_caller() {
    let (file_system, gate) = GatedFs::new(|_| true);
    let _opener = Opener(Arc::clone(&gate));
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let options =
        ServerOptions { manage_groups: true, users: Arc::new(Crowd(GROUPS)), ..ServerOptions::default() };
    bed.server = NfsServer::new(HandleKey::random(), vec![Export::new("/", file_system)], options).unwrap();
    bed.root = bed.server.root_handle("/").unwrap();
    bed.dispatcher = Dispatcher::new(Arc::new(ReplyCache::new(CacheLimits::default())));
    bed.dispatcher.register(bed.server.nfs_program()).unwrap();
    let bed = bed.by(7, 7);
    gate.close();
    let share = bed.server.shared.shares.of(Some(bed.peer.ip()));
    let calling = tokio::spawn(async move { bed.getattr(bed.root).await });
    gate.holding(1).await;
    let least = usize::try_from(GROUPS).unwrap() * size_of::<u32>();
    assert!(share.usage().in_use >= least, "{}", share.usage().in_use);
    gate.open();
    calling.await.unwrap().unwrap();
    assert_eq!(share.usage().in_use, 0);
}

#[tokio::test]
async fn i6_ranges_with_data_hold_memory_of_their_clients_share() {
    let mut bed = Bed::memory_with(MemoryOptions::default(), untuned);
    bed.dispatcher.register(bed.server.extents_program()).unwrap();
    let file = bed.make_file(bed.root, "file", 0o644).await;
    for range in 0..u64::try_from(MAX_EXTENTS).unwrap() {
        bed.write(file, range << 20, b"x").await.unwrap();
    }
    let share = bed.server.shared.shares.of(Some(bed.peer.ip()));
    assert_eq!(share.usage().in_use, 0);
    let found = bed.ranges(file, u32::MAX).await.unwrap();
    assert_eq!((found.extents.len(), found.complete), (MAX_EXTENTS, true), "the limit is not exceeded");
    let reply = bed.reply(EXTENTS, &ExtentsArgs { file, offset: 0, count: u32::MAX }).await;
    assert!(reply.len() > 16 * MAX_EXTENTS, "{}", reply.len());
    assert!(share.usage().in_use >= 16 * MAX_EXTENTS, "{}", share.usage().in_use);
    drop(reply);
    assert_eq!(share.usage().in_use, 0);
    // A client that does not read results has no more memory.
    let mut held: Vec<_> = std::iter::from_fn(|| share.allocate(1, 1).ok()).collect();
    tokio::time::pause();
    assert_eq!(bed.ranges(file, 1).await, Err(Status::Jukebox));
    // A range needs little of it.
    held.pop();
    assert_eq!(bed.ranges(file, u32::MAX).await, Err(Status::Jukebox));
    assert_eq!(bed.ranges(file, 1).await.map(|found| found.extents.len()), Ok(1));
}

/// File system with ranges that it must not return.
struct Careless;

impl Watch for Careless {
    fn extents(&self) -> Option<Extents> {
        Some(Extents { ranges: vec![0..1, 5..5, 8..9, 20..30], complete: true })
    }
}

#[tokio::test]
async fn ranges_without_data_or_beyond_the_limit_are_not_sent() {
    let memory = Arc::new(MemoryFs::new(MemoryOptions::default()));
    let export = Export::new("/", Arc::new(WatchedFs::over(memory, Careless)));
    let server = NfsServer::new(HandleKey::random(), vec![export], ServerOptions::default()).unwrap();
    let bed = Bed::calling(&server, "/", "192.0.2.1", 0);
    for (count, starts, complete) in [(2, vec![0], false), (3, vec![0, 8], false), (4, vec![0, 8, 20], true)]
    {
        let found = bed.ranges(bed.root, count).await.unwrap();
        let offsets: Vec<u64> = found.extents.iter().map(|extent| extent.offset).collect();
        assert_eq!((offsets, found.complete), (starts, complete), "{count}");
    }
}

/// A call over TCP has memory for them.
#[tokio::test]
async fn i6_as_many_groups_as_a_call_can_claim_take_no_memory_of_the_share() {
    let users = Arc::new(Crowd(u32::try_from(GIDS_MAX).unwrap()));
    let options = ServerOptions { manage_groups: true, users, ..ServerOptions::default() };
    let export = Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    let server = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
    let bed = Bed::calling(&server, "/", "192.0.2.1", 7);
    bed.getattr(bed.root).await.unwrap();
    let share = server.shared.shares.of(Some(bed.peer.ip()));
    let _held: Vec<_> = std::iter::from_fn(|| share.allocate(1, 1).ok()).collect();
    tokio::time::pause();
    bed.getattr(bed.root).await.unwrap();
}

/// Results need no more memory than was reserved for them, and are no longer for it. A READ of no data needs none.
#[tokio::test]
async fn i6_results_in_reserved_memory_have_their_length() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let file = bed.make_file(bed.root, "file", 0o644).await;
    let peer = Some(bed.peer.ip());
    let room = bed.server.shared.room(peer, 100).await.unwrap();
    let share = bed.server.shared.shares.of(peer);
    let read = [NFS_PROGRAM, NFS_VERSION, NfsProcedure::Read.number()];
    let before = share.usage().in_use;
    let empty = bed.reply(read, &ReadArgs { file, offset: 0, count: 4096 }).await;
    assert_eq!(share.usage().in_use, before, "there is no data");
    drop(empty);
    let held: Vec<_> = std::iter::from_fn(|| share.allocate(1, 1).ok()).collect();
    let text = room.hold(b"text").unwrap();
    assert_eq!(text, b"text"[..]);
    tokio::time::pause();
    assert_eq!(bed.read(file, 0, 0).await.unwrap().count, 0);
    drop((held, text));
}

/// RFC 4506 §3: items have a multiple of four bytes. A piece of results begins and ends with an item.
#[tokio::test]
async fn results_beyond_the_reserved_memory_are_cut_between_items() {
    let bed = Bed::memory_with(MemoryOptions::default(), untuned);
    let room = bed.server.shared.room(Some(bed.peer.ip()), 6).await.unwrap();
    let results = Stream::from(Bytes::from_static(b"\0\0\0\x01\0\0\0\x02\0\0\0\x03"));
    let kept = room.keep(&results);
    assert_eq!(kept.flatten().0, results.flatten().0);
    let lengths: Vec<usize> = kept.gather().map(|piece| piece.len()).collect();
    assert_eq!(lengths, [8, 4]);
}

#[test]
fn the_text_of_a_link_is_given_whole_or_not_at_all() {
    let (root, state) = places();
    let directory = DirectoryFs::open(
        root.path(),
        &StateDirectory::open(state.path()).unwrap(),
        DirectoryOptions::default(),
    );
    let file_systems: [Arc<dyn FileSystem>; 2] =
        [Arc::new(MemoryFs::new(MemoryOptions::default())), Arc::new(directory.unwrap())];
    for fs in file_systems {
        let who = Identity::superuser();
        let name = crate::fs::Name::new(b"link").unwrap();
        let link = crate::fs::Special::Symlink(b"twelve/bytes");
        let made = fs.make(&who, &fs.root(), name, &link, &crate::fs::SetAttributes::default());
        let id = made.result.unwrap().id;
        let mut target = [0; 13];
        assert_eq!(fs.read_link(&who, &id, &mut target).unwrap().0, 12);
        assert_eq!(&target[..12], b"twelve/bytes");
        assert_eq!(fs.read_link(&who, &id, &mut target[..11]).unwrap_err(), FsError::ServerFault);
        assert_eq!(fs.read_link(&who, &fs.root(), &mut target).unwrap_err(), FsError::InvalidArgument);
    }
}
