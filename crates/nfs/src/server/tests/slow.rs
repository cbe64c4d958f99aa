//! Slow calls of another caller, another export or another file delay nobody.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::FlushError;
use super::gated::{Gate, GatedFs, Opener, PATIENCE, Step};
use super::*;

/// More calls than a server has threads.
const FLOOD: u64 = 200;

/// A server with a gate for each export.
struct House {
    server: NfsServer,
    gates: Vec<Arc<Gate>>,
    _openers: Vec<Opener>,
}

type Holds = fn(Step) -> bool;

impl House {
    fn new(exports: &[(&str, Holds)]) -> Self {
        Self::with(exports, ServerOptions::default())
    }

    fn with(exports: &[(&str, Holds)], options: ServerOptions) -> Self {
        let mut gates = Vec::new();
        let export = |(name, holds): &(&str, Holds)| {
            let (file_system, gate) = GatedFs::new(*holds);
            gates.push(gate);
            let mut export = Export::new(*name, file_system);
            export.squash = Squash::Nobody;
            export
        };
        let exports = exports.iter().map(export).collect();
        let server = NfsServer::new(HandleKey::random(), exports, options).unwrap();
        gates.iter().for_each(|gate: &Arc<Gate>| gate.close());
        let openers = gates.iter().cloned().map(Opener).collect();
        Self { server, gates, _openers: openers }
    }

    /// Returns a caller at an address, at the root of an export.
    fn caller(&self, export: &str, peer: &str, uid: u32) -> Bed {
        Bed::calling(&self.server, export, peer, uid)
    }
}

/// Returns the result of a call that must not wait for the gate.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    timeout(PATIENCE, call).await.expect("it waits for somebody else's call")
}

pub(super) fn one_byte(file: FileHandle, offset: u64, stable: StableHow) -> WriteArgs {
    WriteArgs { file, offset, count: 1, stable, data: Bytes::from_static(b"x").into() }
}

#[tokio::test]
async fn i6_a_frozen_export_leaves_the_others_their_threads() {
    let house = House::new(&[("/frozen", |_| true), ("/live", |_| false)]);
    let mut flood = JoinSet::new();
    for number in 0..FLOOD {
        let bed = house.caller("/frozen", "192.0.2.1", 0);
        flood.spawn(async move {
            match number % 2 {
                0 => bed.getattr(bed.root).await.err(),
                _ => bed.write(bed.root, 0, b"x").await.err(),
            }
        });
    }
    house.gates[0].holding(4).await;
    for peer in ["192.0.2.1", "192.0.2.2"] {
        let live = house.caller("/live", peer, 0);
        let file = soon(live.make_file(live.root, &format!("of-{peer}"), 0o644)).await;
        soon(live.write(file, 0, b"text")).await.unwrap();
        assert_eq!(soon(live.read(file, 0, 9)).await.unwrap().data, b"text"[..]);
        soon(live.getattr(live.root)).await.unwrap();
        assert!(matches!(soon(live.mnt("/live")).await, MountResult::Ok(_)));
        // Procedures that use no file system.
        for call in [[NFS_PROGRAM, NFS_VERSION, 0], [MOUNT_PROGRAM, MOUNT_VERSION, 0]] {
            soon(live.rpc(call, &())).await.unwrap();
        }
    }
    house.gates[0].open();
    let refused = flood.join_all().await;
    let written = refused.iter().filter(|refused| **refused == Some(Status::Inval)).count();
    assert_eq!((written, refused.iter().flatten().count()), (100, 100));
}

#[tokio::test]
async fn i6_data_that_waits_for_a_disk_leaves_attributes_and_names_their_threads() {
    let house = House::new(&[("/", |step| {
        matches!(step, Step::Write(..) | Step::Read(_) | Step::Commit(_) | Step::Settle(_))
    })]);
    let bed = house.caller("/", "192.0.2.1", 0);
    let mut files = Vec::new();
    for number in 0..FLOOD {
        files.push(bed.make_file(bed.root, &format!("file{number}"), 0o644).await);
    }
    let mut flood = JoinSet::new();
    for (number, file) in files.iter().copied().enumerate() {
        let bed = house.caller("/", "192.0.2.1", 0);
        flood.spawn(async move {
            match number % 3 {
                0 => bed.write(file, 0, b"x").await.map(drop),
                1 => bed.read(file, 0, 1).await.map(drop),
                _ => bed.status(&CommitArgs { file, offset: 0, count: 0 }).await.map_or(Ok(()), Err),
            }
        });
    }
    house.gates[0].holding(4).await;
    // This includes other calls of the slow caller.
    for peer in ["192.0.2.1", "192.0.2.2"] {
        let bed = house.caller("/", peer, 0);
        soon(bed.getattr(files[0])).await.unwrap();
        soon(bed.lookup(bed.root, "file1")).await.unwrap();
        soon(bed.make_file(bed.root, peer, 0o644)).await;
    }
    house.gates[0].open();
    assert!(flood.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn i6_one_address_leaves_the_others_threads_of_each_kind() {
    let house = House::new(&[("/", |step| matches!(step, Step::Access(1) | Step::Write(1, ..)))]);
    let slow = house.caller("/", "192.0.2.1", 1);
    let other = house.caller("/", "192.0.2.2", 2);
    let root = house.caller("/", "192.0.2.3", 0);
    assert_eq!(root.set(root.root, mode(0o777)).await, None);
    let mut files = Vec::new();
    for number in 0..FLOOD {
        files.push(slow.make_file(slow.root, &format!("file{number}"), 0o666).await);
    }
    let mut flood = JoinSet::new();
    for file in files.iter().copied() {
        let bed = house.caller("/", "192.0.2.1", 1);
        flood.spawn(async move { bed.write(file, 0, b"x").await.map(drop) });
        let bed = house.caller("/", "192.0.2.1", 1);
        flood.spawn(async move {
            bed.access(bed.root).await;
            Ok(())
        });
    }
    house.gates[0].holding(4).await;
    let file = soon(other.make_file(other.root, "other", 0o644)).await;
    soon(other.write(file, 0, b"text")).await.unwrap();
    soon(other.access(other.root)).await;
    assert!(!house.gates[0].held().is_empty());
    house.gates[0].open();
    assert!(flood.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn i6_the_addresses_of_one_ipv6_network_hold_the_threads_of_one() {
    let house = House::new(&[("/", |step| matches!(step, Step::Access(1)))]);
    let mut flood = JoinSet::new();
    for number in 0..FLOOD {
        let bed = house.caller("/", &format!("2001:db8::{number:x}"), 1);
        flood.spawn(async move { bed.access(bed.root).await });
    }
    house.gates[0].holding(4).await;
    for peer in ["2001:db8:0:1::1", "192.0.2.1"] {
        let other = house.caller("/", peer, 2);
        soon(other.access(other.root)).await;
    }
    house.gates[0].open();
    flood.join_all().await;
}

#[tokio::test]
async fn i6_writes_to_one_file_hold_one_thread() {
    let house = House::new(&[("/", |step| matches!(step, Step::Write(1, ..)))]);
    let slow = house.caller("/", "192.0.2.1", 1);
    let root = house.caller("/", "192.0.2.3", 0);
    assert_eq!(root.set(root.root, mode(0o777)).await, None);
    let one = slow.make_file(slow.root, "one", 0o666).await;
    let mut flood = JoinSet::new();
    for number in 0..FLOOD {
        let bed = house.caller("/", "192.0.2.1", 1);
        // In the order of the offsets: a task begins at its first poll.
        flood.spawn(async move { bed.call(&one_byte(one, number, StableHow::FileSync)).await.map(drop) });
    }
    house.gates[0].holding(1).await;
    // Meanwhile its address writes to other files, reads this file and commits it.
    for number in 0..20 {
        let bed = house.caller("/", "192.0.2.1", 0);
        let file = soon(bed.make_file(bed.root, &format!("other{number}"), 0o644)).await;
        soon(bed.write(file, 0, b"text")).await.unwrap();
        soon(bed.read(one, 0, 1)).await.unwrap();
        let commit = CommitArgs { file: one, offset: 0, count: 0 };
        assert_eq!(soon(bed.status(&commit)).await, None);
    }
    house.gates[0].open();
    assert!(flood.join_all().await.iter().all(Result::is_ok));
    assert_eq!(house.gates[0].most(), 1);
    let offsets: Vec<u64> = house.gates[0]
        .passed()
        .into_iter()
        .filter_map(|step| if let Step::Write(1, _, offset) = step { Some(offset) } else { None })
        .collect();
    assert_eq!(offsets, (0..FLOOD).collect::<Vec<_>>());
}

#[tokio::test]
async fn syncs_of_one_file_run_side_by_side() {
    let house = House::new(&[("/", |step| matches!(step, Step::Settle(_)))]);
    let bed = house.caller("/", "192.0.2.1", 0);
    let file = bed.make_file(bed.root, "file", 0o644).await;
    let mut flood = JoinSet::new();
    for offset in 0..4 {
        let bed = house.caller("/", "192.0.2.1", 0);
        flood.spawn(async move { bed.call(&one_byte(file, offset, StableHow::FileSync)).await.map(drop) });
    }
    // They are synced together.
    house.gates[0].holding(4).await;
    house.gates[0].open();
    assert!(flood.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn i6_a_frozen_export_does_not_keep_the_server_from_stopping() {
    let house = House::with(
        &[("/frozen", |_| true), ("/live", |_| false)],
        ServerOptions { flush_wait: Duration::from_millis(50), ..ServerOptions::default() },
    );
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        let bed = house.caller("/frozen", "192.0.2.1", 0);
        flood.spawn(async move { bed.write(bed.root, 0, b"x").await.map(drop) });
    }
    house.gates[0].holding(1).await;
    let late = FlushError::Late { export: "/frozen".to_owned(), waited: Duration::from_millis(50) };
    assert_eq!(soon(house.server.flush()).await, Err(late));
    house.gates[1].has_passed(1).await;
    assert_eq!(house.gates[1].passed(), [Step::Flush]);
    // Stuck threads delay nothing here.
    flood.shutdown().await;
    let House { server, gates, _openers } = house;
    drop(server);
    assert!(gates[0].held().contains(&Step::Flush));
}

#[tokio::test]
async fn a_file_system_of_two_exports_is_flushed_once() {
    let (file_system, gate) = GatedFs::new(|_| false);
    let exports = ["/", "/again"].map(|name| Export::new(name, file_system.clone()));
    let server = NfsServer::new(HandleKey::random(), exports.into(), ServerOptions::default()).unwrap();
    gate.close();
    server.flush().await.unwrap();
    assert_eq!(gate.passed(), [Step::Flush]);
}

#[tokio::test]
async fn a_file_system_that_panics_fails_that_call() {
    let house = House::new(&[("/", |_| false)]);
    let bed = house.caller("/", "192.0.2.1", 0);
    for _ in 0..FLOOD {
        let call = [NFS_PROGRAM, NFS_VERSION, NfsProcedure::Lookup.number()];
        let failed = bed.rpc(call, &LookupArgs { what: place(bed.root, "panic") }).await.unwrap_err();
        let status = rpcrdma_oncrpc::AcceptStat::SystemError;
        assert!(matches!(failed, ReplyBody::Accepted { status: got, .. } if got == status), "{failed:?}");
    }
    soon(bed.getattr(bed.root)).await.unwrap();
}
