//! A call in progress holds at most the memory reserved for it. Further memory counts against the share of
//! its address.

use super::super::{FUTURE_ROOM, Membership, UserDatabase};
use super::gated::{GatedFs, Opener};
use super::*;
use crate::extents::{
    EXTENTS_PROGRAM, EXTENTS_VERSION, ExtentsArgs, ExtentsProcedure, ExtentsResult, MAX_EXTENTS,
};
use crate::fs::{FileSystem, FsError, Identity};

/// Groups of every user of [`Crowd`].
const GROUPS: u32 = 1000;

struct Crowd;

impl UserDatabase for Crowd {
    fn membership(&self, _user: u32) -> std::io::Result<Option<Membership>> {
        Ok(Some(Membership { primary: 1, groups: (1..=GROUPS).collect() }))
    }
}

impl Bed {
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
    let options = ServerOptions { manage_groups: true, users: Arc::new(Crowd), ..ServerOptions::default() };
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
    let call = [EXTENTS_PROGRAM, EXTENTS_VERSION, ExtentsProcedure::Extents.number()];
    let all = ExtentsArgs { file, offset: 0, count: u32::MAX };
    let reply = bed.reply(call, &all).await;
    assert!(reply.len() > 16 * MAX_EXTENTS, "{}", reply.len());
    assert!(share.usage().in_use >= 16 * MAX_EXTENTS, "{}", share.usage().in_use);
    drop(reply);
    assert_eq!(share.usage().in_use, 0);
    // A client that does not read results has no more memory.
    let held: Vec<_> = std::iter::from_fn(|| share.allocate(1, 1).ok()).collect();
    tokio::time::pause();
    let put_off = bed.rpc(call, &all).await.unwrap();
    let put_off: ExtentsResult = Decoder::new(put_off).decode_all().unwrap();
    assert_eq!(put_off.into_result().unwrap_err().0, Status::Jukebox);
    drop(held);
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
