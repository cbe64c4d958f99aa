//! NFSv3, MOUNT and file handles: the codecs, and a server over file systems in memory.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_nfs::fs::{MemoryFs, MemoryOptions};
use rpcrdma_nfs::mount::{
    DirPath, Exports, Groups, MOUNT_PROGRAM, MOUNT_VERSION, MountBody, MountList, MountProcedure, MountResult,
};
use rpcrdma_nfs::server::{Export, HandleKey, MOUNTS_PER_HOST, NfsServer, ServerOptions, Squash};
use rpcrdma_nfs::wire::{
    AccessArgs, CommitArgs, CreateArgs, CreateHow, DirOpArgs, FileHandle, FsinfoArgs, FsstatArgs,
    GetattrArgs, LinkArgs, LookupArgs, MAX_HANDLE, MkdirArgs, MknodArgs, NFS_PROGRAM, NFS_VERSION, NfsCall,
    NfsResult, PathconfArgs, ReadArgs, ReaddirArgs, ReaddirplusArgs, ReadlinkArgs, RemoveArgs, RenameArgs,
    RmdirArgs, SetAttributes, SetattrArgs, Status, SymlinkArgs, WriteArgs,
};
use rpcrdma_oncrpc::{
    AuthSys, CallHeader, Credential, Dispatcher, OpaqueAuth, Outcome, Peer, ReplyBody, ReplyHeader,
    TransportKind,
};
use rpcrdma_xdr::{Decoder, Encoder, ReadChunk, encode};

use crate::{split_piece, survives};

fn arguments<C: NfsCall + PartialEq + Debug>(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    if let Ok(arguments) = Decoder::new(message.clone()).decode_all::<C>() {
        let mut encoder = Encoder::new();
        if arguments.encode(&mut encoder).is_ok() {
            let again = Decoder::new(encoder.finish().flatten().0).decode_all::<C>();
            assert!(matches!(again, Ok(same) if same == arguments));
        }
    }
    if let Ok(result) = Decoder::new(message.clone()).decode_all::<NfsResult<C::Ok, C::Fail>>() {
        let bytes = encode(&result).expect("results that were decoded are within their limits").flatten().0;
        assert_eq!(bytes.len(), data.len());
    }
    if let Some((&[position, length], base)) = data.split_first_chunk() {
        let chunk =
            ReadChunk { position: u32::from(position) * 4, data: vec![0; usize::from(length)].into() };
        let _ = Decoder::with_read_chunks(Bytes::copy_from_slice(base), vec![chunk]).decode_all::<C>();
    }
}

/// Arguments and results of every NFSv3 procedure (RFC 1813 §3.3), plain and with a Read chunk: decoded or refused.
/// Arguments that decode must encode to the same value, results to as many bytes. The first byte selects the
/// procedure.
pub fn nfs_arguments(data: &[u8]) {
    let Some((&procedure, data)) = data.split_first() else { return };
    match procedure % 21 {
        0 => arguments::<GetattrArgs>(data),
        1 => arguments::<SetattrArgs>(data),
        2 => arguments::<LookupArgs>(data),
        3 => arguments::<AccessArgs>(data),
        4 => arguments::<ReadlinkArgs>(data),
        5 => arguments::<ReadArgs>(data),
        6 => arguments::<WriteArgs>(data),
        7 => arguments::<CreateArgs>(data),
        8 => arguments::<MkdirArgs>(data),
        9 => arguments::<SymlinkArgs>(data),
        10 => arguments::<MknodArgs>(data),
        11 => arguments::<RemoveArgs>(data),
        12 => arguments::<RmdirArgs>(data),
        13 => arguments::<RenameArgs>(data),
        14 => arguments::<LinkArgs>(data),
        15 => arguments::<ReaddirArgs>(data),
        16 => arguments::<ReaddirplusArgs>(data),
        17 => arguments::<FsstatArgs>(data),
        18 => arguments::<FsinfoArgs>(data),
        19 => arguments::<PathconfArgs>(data),
        _ => arguments::<CommitArgs>(data),
    }
}

/// A server of the exports `/` and `/other`, each with a file `f` and a directory `d`.
struct World {
    server: NfsServer,
    dispatcher: Dispatcher,
}

impl World {
    fn new() -> Self {
        let export = |name: &str| {
            let mut export = Export::new(name, Arc::new(MemoryFs::new(MemoryOptions::default())));
            export.squash = Squash::Nobody;
            export
        };
        let exports = vec![export("/"), export("/other")];
        let server = NfsServer::new(HandleKey::random(), exports, ServerOptions::default()).unwrap();
        let mut dispatcher = Dispatcher::new(Arc::default());
        dispatcher.register(server.nfs_program()).unwrap();
        dispatcher.register(server.mount_program()).unwrap();
        Self { server, dispatcher }
    }

    fn root(&self, export: &str) -> FileHandle {
        self.server.root_handle(export).unwrap()
    }

    /// Returns the results of a call, or the reply without success. The file systems in memory answer at once.
    fn call(&self, [program, version, procedure]: [u32; 3], arguments: &[u8]) -> Result<Bytes, ReplyBody> {
        let credential = Credential::Sys(AuthSys::default());
        let header = CallHeader {
            xid: 1,
            program,
            version,
            procedure,
            credential: OpaqueAuth::try_from(&credential).unwrap(),
            verifier: OpaqueAuth::none(),
        };
        let mut message = encode(&header).unwrap().flatten().0.to_vec();
        message.extend_from_slice(arguments);
        // Calls of a peer without an address do not pass the cache of replies.
        let peer =
            Peer { address: None, transport: TransportKind::Sim, window: None, attached: None, owner: None };
        let mut served =
            pin!(self.dispatcher.dispatch(peer, Decoder::new(Bytes::from(message)), Instant::now()));
        let Poll::Ready(outcome) = served.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("a call waits");
        };
        let Outcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
        let reply = reply.flatten().0;
        let mut decoder = Decoder::new(reply.clone());
        let header = decoder.decode::<ReplyHeader>().expect("a server makes replies");
        header.success().map_err(|_| header.body)?;
        Ok(reply.slice(reply.len() - decoder.remaining()..))
    }

    fn nfs<C: NfsCall>(&self, arguments: &C) -> Result<C::Ok, Status> {
        let arguments = encode(arguments).unwrap().flatten().0;
        let results = self.call([NFS_PROGRAM, NFS_VERSION, C::PROCEDURE.number()], &arguments);
        let results = Decoder::new(results.expect("arguments that decode"));
        let results = results.decode_all::<NfsResult<C::Ok, C::Fail>>().expect("results that decode");
        results.into_result().map_err(|(status, _)| status)
    }

    fn create(&self, dir: FileHandle, name: &str) -> FileHandle {
        let how = CreateHow::Unchecked(SetAttributes::default());
        self.nfs(&CreateArgs { place: place(dir, name), how }).unwrap().object.unwrap()
    }

    fn mkdir(&self, dir: FileHandle, name: &str) -> FileHandle {
        let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        self.nfs(&MkdirArgs { place: place(dir, name), attributes }).unwrap().object.unwrap()
    }

    /// Fills the exports. Returns all handles; the first is the root of `/`, the second its file `f`.
    fn fill(&self) -> Vec<FileHandle> {
        let roots = ["/", "/other"].map(|export| self.root(export));
        roots.iter().flat_map(|&root| [root, self.create(root, "f"), self.mkdir(root, "d")]).collect()
    }
}

fn place(dir: FileHandle, name: &str) -> DirOpArgs {
    DirOpArgs { dir, name: name.into() }
}

/// File handles that a client made up, changed, or has from another server. Only a handle that this server issued,
/// for an object that still exists, may have an effect, in any place of a call. The handle of a removed object never
/// means the object that has its name later.
pub fn file_handles(mut data: &[u8]) {
    let world = World::new();
    let mut live = world.fill();
    let mut dead: Vec<FileHandle> = World::new().fill();
    while let Some((&[kind, first, second], rest)) = data.split_first_chunk() {
        data = rest;
        let handle = |index: u8| live[usize::from(index) % live.len()].as_bytes().to_vec();
        let bytes = match kind % 6 {
            0 => split_piece(&mut data).unwrap_or_default().to_vec(),
            1 => {
                let mut bytes = handle(first);
                let place = usize::from(second) % bytes.len();
                bytes[place] ^= (kind / 6).max(1);
                bytes
            }
            2 => {
                let mut bytes = handle(first);
                bytes.resize(usize::from(second) % (MAX_HANDLE + 1), kind / 6);
                bytes
            }
            3 => dead[usize::from(first) % dead.len()].as_bytes().to_vec(),
            4 => {
                let (mut bytes, other) = (handle(first), handle(second));
                let cut = usize::from(kind / 6) % bytes.len().min(other.len());
                bytes[cut..].copy_from_slice(&other[cut..]);
                bytes
            }
            _ => {
                let object = place(live[0], "f");
                assert_eq!(world.nfs(&RemoveArgs { object }).map(|_| ()), Ok(()));
                let again = world.create(live[0], "f");
                dead.push(std::mem::replace(&mut live[1], again));
                continue;
            }
        };
        let Ok(object) = FileHandle::new(&bytes) else { continue };
        let known = live.contains(&object);
        let refused = |status| matches!(status, Err(Status::BadHandle | Status::Stale));
        let got = world.nfs(&GetattrArgs { object }).map(|_| ());
        assert!(if known { got.is_ok() } else { refused(got) }, "GETATTR of {object:?}: {got:?}");
        if !known {
            let (into, from) = (place(object, "g"), place(live[0], "f"));
            let renamed = world.nfs(&RenameArgs { from: from.clone(), to: into.clone() }).map(|_| ());
            let back = world.nfs(&RenameArgs { from: into.clone(), to: from }).map(|_| ());
            let linked = world.nfs(&LinkArgs { file: live[1], link: into }).map(|_| ());
            let link = world.nfs(&LinkArgs { file: object, link: place(live[0], "g") }).map(|_| ());
            for got in [renamed, back, linked, link] {
                assert!(refused(got), "{object:?}: {got:?}");
            }
        }
    }
    for object in live {
        assert!(world.nfs(&GetattrArgs { object }).is_ok(), "{object:?} means nothing any more");
    }
}

/// Returns whether MNT of this path may succeed; `None` if the path climbs. A slash or a dot after a name makes it
/// the name of a directory.
fn is_exported(path: &[u8]) -> Option<bool> {
    let is_empty = |part: &&[u8]| matches!(part, [] | [b'.']);
    let parts = path.split(|byte| *byte == b'/');
    let names_directory = parts.clone().next_back().is_some_and(|last| is_empty(&last));
    let parts: Vec<&[u8]> = parts.filter(|part| !is_empty(part)).collect();
    if parts.contains(&&b".."[..]) {
        return None;
    }
    let directories: [&[&[u8]]; 4] = [&[], &[b"d"], &[b"other"], &[b"other", b"d"]];
    let files: [&[&[u8]]; 2] = [&[b"f"], &[b"other", b"f"]];
    Some(directories.contains(&&parts[..]) || (!names_directory && files.contains(&&parts[..])))
}

/// MOUNT (RFC 1813 §5). Results that a client decodes must survive encoding. A server that gets any arguments must
/// refuse those that do not decode, and answer others with results that the client decodes. It mounts directories and
/// files of its exports alone, with handles that NFS accepts, and remembers a bounded number of mounts. The first byte selects
/// what the others are.
pub fn mount(data: &[u8]) {
    let Some((&choice, mut data)) = data.split_first() else { return };
    match choice % 6 {
        0 => drop(survives::<MountResult>(data)),
        1 => drop(survives::<MountList>(data)),
        2 => drop(survives::<Exports>(data)),
        3 => drop((survives::<Groups>(data), survives::<MountBody>(data))),
        _ => {
            let world = World::new();
            world.fill();
            while let Some((&kind, rest)) = data.split_first() {
                data = rest;
                let Some(procedure) = MountProcedure::from_number(u32::from(kind % 8)) else { continue };
                let mut piece = split_piece(&mut data).unwrap_or_default().to_vec();
                if kind & 0x80 != 0 && piece.len() <= 1024 {
                    piece = encode(&DirPath::new(piece)).unwrap().flatten().0.to_vec();
                }
                serve_mount(&world, procedure, &piece);
            }
        }
    }
}

fn serve_mount(world: &World, procedure: MountProcedure, piece: &[u8]) {
    let results = world.call([MOUNT_PROGRAM, MOUNT_VERSION, procedure.number()], piece);
    let path = survives::<DirPath>(piece);
    let decodes = match procedure {
        MountProcedure::Mnt | MountProcedure::Umnt => path.is_some(),
        _ => piece.is_empty(),
    };
    assert_eq!(results.is_ok(), decodes, "{procedure}: {results:?}");
    let (Ok(results), path) = (results, path.unwrap_or_default()) else { return };
    match procedure {
        MountProcedure::Null | MountProcedure::Umnt | MountProcedure::UmntAll => assert!(results.is_empty()),
        MountProcedure::Mnt => {
            let result = Decoder::new(results).decode_all::<MountResult>().unwrap();
            let mounted = matches!(result, MountResult::Ok(_));
            if let Some(exported) = is_exported(path.as_bytes()) {
                assert_eq!(mounted, exported, "{path:?}: {result:?}");
            }
            if let MountResult::Ok(ok) = result {
                assert!(world.nfs(&GetattrArgs { object: ok.handle }).is_ok());
            }
        }
        MountProcedure::Dump => {
            let list = Decoder::new(results).decode_all::<MountList>().unwrap();
            assert!(list.mounts.len() <= MOUNTS_PER_HOST);
        }
        MountProcedure::Export => {
            let list = Decoder::new(results).decode_all::<Exports>().unwrap();
            assert_eq!(list.exports.len(), 2);
        }
    }
}
