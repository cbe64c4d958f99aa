//! An independent client, `nfs3_client`, against this server over TCP. Agreement shows that the protocol is
//! not our invention.
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use nfs3_client::Nfs3ConnectionBuilder;
use nfs3_client::tokio::TokioConnector;
use nfs3_types::nfs3::{
    COMMIT3args, CREATE3args, GETATTR3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result, READ3args,
    READDIRPLUS3args, READLINK3args, REMOVE3args, RENAME3args, SYMLINK3args, WRITE3args, cookieverf3,
    createhow3, diropargs3, filename3, nfs_fh3, nfspath3, nfsstat3, sattr3, set_mode3, stable_how,
    symlinkdata3,
};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::Opaque;
use rpcrdma::{Server, ServerConfig};
use rpcrdma_nfs::fs::{DirectoryFs, DirectoryOptions, FileSystem, MemoryFs, MemoryOptions, StateDirectory};
use rpcrdma_nfs::server::{Export, HandleKey, NfsServer, ServerOptions, Squash};
use tokio::net::TcpListener;

const PIECE: usize = 65_536;

/// Serves a file system over TCP. Returns the port for NFS and MOUNT.
async fn serve(file_system: Arc<dyn FileSystem>) -> u16 {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shares = ServerConfig::default().shares();
    let options = ServerOptions { shares: shares.clone(), ..ServerOptions::default() };
    let mut export = Export::new("/", file_system);
    export.squash = Squash::Nobody;
    let nfs = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
    let server = Server::builder()
        .config(ServerConfig::default())
        .shares(shares)
        .program(nfs.nfs_program())
        .program(nfs.mount_program())
        .listen_tcp(listener)
        .build()
        .unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    port
}

fn at<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::borrowed(name.as_bytes())) }
}

fn status<T, F>(result: Nfs3Result<T, F>) -> nfsstat3 {
    match result {
        Nfs3Result::Ok(_) => nfsstat3::NFS3_OK,
        Nfs3Result::Err((status, _)) => status,
    }
}

fn handle(handle: Nfs3Option<nfs_fh3>) -> nfs_fh3 {
    match handle {
        Nfs3Option::Some(handle) => handle,
        Nfs3Option::None => panic!("no handle"),
    }
}

async fn work(port: u16) {
    let user = auth_unix {
        stamp: 1,
        machinename: Opaque::borrowed(b"foreign"),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: vec![],
    };
    let mut client = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/")
        .connect_from_privileged_port(false)
        .mount_port(port)
        .nfs3_port(port)
        .credential(opaque_auth::auth_unix(&user))
        .mount()
        .await
        .unwrap();
    let root = client.root_nfs_fh3();
    let mode = |mode| sattr3 { mode: set_mode3::Some(mode), ..sattr3::default() };

    let made = MKDIR3args { where_: at(&root, "dir"), attributes: mode(0o755) };
    let dir = handle(client.mkdir(&made).await.unwrap().unwrap().obj);
    assert_eq!(status(client.mkdir(&made).await.unwrap()), nfsstat3::NFS3ERR_EXIST);

    let create = CREATE3args { where_: at(&dir, "file"), how: createhow3::GUARDED(mode(0o644)) };
    let file = handle(client.create(&create).await.unwrap().unwrap().obj);
    assert_eq!(status(client.create(&create).await.unwrap()), nfsstat3::NFS3ERR_EXIST);

    let data: Vec<u8> = (0..300_001_u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut verifier = None;
    for (index, piece) in data.chunks(PIECE).enumerate() {
        let write = WRITE3args {
            file: file.clone(),
            offset: (index * PIECE) as u64,
            count: piece.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(piece),
        };
        let written = client.write(&write).await.unwrap().unwrap();
        assert_eq!(written.count as usize, piece.len());
        assert_eq!(*verifier.get_or_insert(written.verf), written.verf);
    }
    let commit = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    assert_eq!(Some(client.commit(&commit).await.unwrap().unwrap().verf), verifier);

    let mut read = Vec::new();
    loop {
        let args = READ3args { file: file.clone(), offset: read.len() as u64, count: PIECE as u32 };
        let piece = client.read(&args).await.unwrap().unwrap();
        read.extend_from_slice(piece.data.as_ref());
        if piece.eof {
            break;
        }
    }
    assert!(read == data);
    let attributes = client.getattr(&GETATTR3args { object: file }).await.unwrap().unwrap().obj_attributes;
    assert_eq!(attributes.size, data.len() as u64);

    let symlink = symlinkdata3 {
        symlink_attributes: sattr3::default(),
        symlink_data: nfspath3(Opaque::borrowed(b"dir/file")),
    };
    let made = client.symlink(&SYMLINK3args { where_: at(&root, "link"), symlink }).await.unwrap().unwrap();
    let target = client.readlink(&READLINK3args { symlink: handle(made.obj) }).await.unwrap().unwrap();
    assert_eq!(target.data.0.as_ref(), b"dir/file");

    let rename = RENAME3args { from: at(&dir, "file"), to: at(&root, "moved ünicode") };
    assert_eq!(status(client.rename(&rename).await.unwrap()), nfsstat3::NFS3_OK);
    let lookup = LOOKUP3args { what: at(&dir, "file") };
    assert_eq!(status(client.lookup(&lookup).await.unwrap()), nfsstat3::NFS3ERR_NOENT);

    let list = READDIRPLUS3args {
        dir: root.clone(),
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 8192,
        maxcount: 32_768,
    };
    let listed = client.readdirplus(&list).await.unwrap().unwrap().reply;
    assert!(listed.eof);
    let mut names: Vec<_> = listed
        .entries
        .0
        .iter()
        .map(|entry| String::from_utf8_lossy(entry.name.0.as_ref()).into_owned())
        .collect();
    names.sort();
    names.retain(|name| name != "." && name != "..");
    assert_eq!(names, ["dir", "link", "moved ünicode"]);

    let remove = REMOVE3args { object: at(&root, "moved ünicode") };
    assert_eq!(status(client.remove(&remove).await.unwrap()), nfsstat3::NFS3_OK);
    client.unmount().await.unwrap();
}

#[tokio::test]
async fn a_foreign_client_works_on_memory() {
    work(serve(Arc::new(MemoryFs::new(MemoryOptions::default()))).await).await;
}

#[tokio::test]
async fn a_foreign_client_works_on_a_directory() {
    let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = StateDirectory::open(state.path()).unwrap();
    let file_system = DirectoryFs::open(root.path(), &state, DirectoryOptions::default()).unwrap();
    work(serve(Arc::new(file_system)).await).await;
}
