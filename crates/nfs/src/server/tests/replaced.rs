//! Other exports while a server runs.

use tokio::time::timeout;

use super::super::{ClientRule, Replaced, Terms};
use super::gated::{GatedFs, Opener, PATIENCE};
use super::*;
use crate::mount::{MountList, MountProcedure, MountStatus};

fn memory() -> Arc<MemoryFs> {
    Arc::new(MemoryFs::new(MemoryOptions::default()))
}

fn export(name: &str, file_system: Arc<MemoryFs>) -> Export {
    Export { squash: Squash::Nobody, ..Export::new(name, file_system) }
}

fn serving(exports: Vec<Export>) -> NfsServer {
    let options = ServerOptions { io_threads: 8, ..ServerOptions::default() };
    NfsServer::new(HandleKey::random(), exports, options).unwrap()
}

#[tokio::test]
async fn handles_of_an_export_that_is_gone_are_stale_and_others_stay() {
    let (kept, gone) = (memory(), memory());
    let server = serving(vec![export("/kept", kept.clone()), export("/gone", gone.clone())]);
    let (at_kept, at_gone) =
        (Bed::calling(&server, "/kept", "192.0.2.1", 0), Bed::calling(&server, "/gone", "192.0.2.1", 0));
    let file = at_kept.make_file(at_kept.root, "file", 0o644).await;
    let lost = at_gone.make_file(at_gone.root, "file", 0o644).await;
    let replaced = server.replace(vec![export("/new", memory()), export("/kept", kept.clone())]).unwrap();
    let expected =
        Replaced { added: vec!["/new".into()], removed: vec!["/gone".into()], renumbered: Vec::new() };
    assert_eq!(replaced, expected);
    assert!(at_kept.getattr(file).await.is_ok());
    for handle in [at_gone.root, lost] {
        assert_eq!(at_gone.getattr(handle).await, Err(Status::Stale));
    }
    assert_eq!(at_gone.mnt("/gone").await, MountResult::Fail(MountStatus::NoEnt));
    assert!(matches!(at_gone.mnt("/new").await, MountResult::Ok(_)));
    // The export comes back, and its handles with it.
    server.replace(vec![export("/kept", kept), export("/gone", gone)]).unwrap();
    assert!(at_gone.getattr(lost).await.is_ok());
}

#[tokio::test]
async fn other_terms_hold_from_the_next_call() {
    let tree = memory();
    let server = serving(vec![export("/", tree.clone())]);
    let mut bed = Bed::calling(&server, "/", "192.0.2.1", 0);
    let file = bed.make_file(bed.root, "file", 0o600).await;
    let change = |change: &dyn Fn(&mut Export)| {
        let mut export = export("/", tree.clone());
        change(&mut export);
        assert_eq!(server.replace(vec![export]).unwrap(), Replaced::default());
    };
    change(&|export| export.read_only = true);
    assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Rofs);
    change(&|export| export.squash = Squash::Root);
    assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Acces);
    change(&|export| export.security = vec![crate::server::Security::Krb5]);
    assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Acces);
    change(&|export| export.allow = vec!["198.51.100.0/24".parse().unwrap()].into());
    assert_eq!(bed.getattr(bed.root).await, Err(Status::Acces));
    assert_eq!(bed.mnt("/").await, MountResult::Fail(MountStatus::Acces));
    bed.peer = "198.51.100.1:700".parse().unwrap();
    bed.write(file, 0, b"x").await.unwrap();
    // Some clients may write, others not.
    change(&|export| {
        let terms = Terms { read_only: true, ..export.terms() };
        export.rules = vec![ClientRule { networks: vec!["198.51.100.1/32".parse().unwrap()], terms }];
    });
    assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Rofs);
    assert_eq!(bed.access(file).await & 0x3f, 1, "READ alone");
    bed.peer = "198.51.100.2:700".parse().unwrap();
    bed.write(file, 0, b"x").await.unwrap();
}

#[tokio::test]
async fn wrong_exports_leave_the_old_ones_in_force() {
    let tree = memory();
    let server = serving(vec![export("/", tree.clone())]);
    let bed = Bed::calling(&server, "/", "192.0.2.1", 0);
    assert!(server.replace(vec![export("/", memory()), export("/", memory())]).is_err());
    assert!(bed.getattr(bed.root).await.is_ok());
}

#[tokio::test]
async fn mounts_that_nobody_could_make_again_are_forgotten() {
    let tree = memory();
    let server = serving(vec![export("/", tree.clone()), export("/gone", memory())]);
    let mut bed = Bed::calling(&server, "/", "192.0.2.1", 0);
    for (peer, path) in [("192.0.2.1:1", "/"), ("192.0.2.1:1", "/gone"), ("198.51.100.1:1", "/")] {
        bed.peer = peer.parse().unwrap();
        assert!(matches!(bed.mnt(path).await, MountResult::Ok(_)));
    }
    let mut closed = export("/", tree);
    closed.allow = vec!["192.0.2.0/24".parse().unwrap(), "198.51.100.0/32".parse().unwrap()].into();
    server.replace(vec![closed]).unwrap();
    let dump = [MOUNT_PROGRAM, MOUNT_VERSION, MountProcedure::Dump.number()];
    let list: MountList = Decoder::new(bed.rpc(dump, &()).await.unwrap()).decode_all().unwrap();
    let listed: Vec<_> = list.mounts.iter().map(|mount| mount.directory.to_string()).collect();
    // `/gone` is a path below `/` now, which the client may mount.
    assert_eq!(listed, ["/", "/gone"]);
    assert!(list.mounts.iter().all(|mount| mount.hostname.as_bytes() == b"192.0.2.1"));
}

/// A call that waits for a disk ends by the exports that it began with.
#[tokio::test]
async fn a_call_in_progress_ends_as_it_began() {
    let (file_system, gate) = GatedFs::new(|_| true);
    let _opener = Opener(gate.clone());
    let mut slow = Export::new("/slow", file_system);
    slow.squash = Squash::Nobody;
    let server = serving(vec![slow]);
    let bed = Bed::calling(&server, "/slow", "192.0.2.1", 0);
    let root = bed.root;
    gate.close();
    let call = tokio::spawn(async move { (bed.getattr(bed.root).await, bed) });
    gate.holding(1).await;
    server.replace(vec![export("/", memory())]).unwrap();
    gate.open();
    let (result, bed) = timeout(PATIENCE, call).await.unwrap().unwrap();
    assert!(result.is_ok());
    assert_eq!(bed.getattr(root).await, Err(Status::Stale));
}
