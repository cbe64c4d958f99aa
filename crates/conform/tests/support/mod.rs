//! Our own server on the simulated fabric, behind listeners with or without a fault, and checks of a table of rows.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod faulty;
pub mod script;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rpcrdma::{AuthSys, Credential, Server, ServerConfig};
use rpcrdma_conform::report::RowInfo;
use rpcrdma_conform::server::{Export, Target};
use rpcrdma_conform::{Report, Verdict};
use rpcrdma_nfs::Client;
use rpcrdma_nfs::client::ClientOptions;
use rpcrdma_nfs::fs::{MemoryFs, MemoryOptions};
use rpcrdma_nfs::server::{HandleKey, NfsServer, ServerOptions};
use rpcrdma_proto::{BufferStructure, Profile, Versions};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};
use rpcrdma_verbs::{Connector, Listener};

use faulty::{Fault, FaultyListener};

pub const GOOD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
pub const FAULTY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20050);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

pub fn fabric(completion_mode: CompletionMode) -> Fabric {
    Fabric::on_tokio(FabricConfig { completion_mode, seed: 3, ..FabricConfig::default() })
}

/// Serves NFS and MOUNT of a file system in memory.
pub fn serve(listeners: Vec<Box<dyn Listener>>) {
    serve_as(None, listeners);
}

/// Serves in these versions. In P1 and P2, the Receives have a segment for items.
pub fn serve_as(versions: Option<Versions>, listeners: Vec<Box<dyn Listener>>) {
    let export = rpcrdma_nfs::server::Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    let mut config = ServerConfig::default();
    config.protocol.grant = 600;
    if let Some(versions) = versions {
        config.protocol.versions = versions;
        if matches!(versions.profile(), Some(Profile::P1 | Profile::P2)) {
            config.protocol.place_items(BufferStructure::with_items(1, 4096));
        }
    }
    let shares = config.shares();
    let options = ServerOptions { shares: shares.clone(), ..ServerOptions::default() };
    let nfs = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
    let mut builder = Server::builder().config(config).shares(shares);
    builder = builder.program(nfs.nfs_program()).program(nfs.mount_program());
    for listener in listeners {
        builder = builder.listen_rdma(listener);
    }
    tokio::spawn(builder.build().unwrap().serve(std::future::pending()));
}

/// Mounts the export.
pub async fn export(connector: Arc<dyn Connector>, address: SocketAddr) -> Export {
    let (uid, gid) = (1000, 1000);
    let rpc = rpcrdma::Client::builder()
        .transport(rpcrdma::Transport::rdma_on(connector))
        .connect(address)
        .await
        .unwrap();
    let mut options = ClientOptions::default();
    options.credential = Credential::Sys(AuthSys { uid, gid, ..AuthSys::default() });
    let client = Client::mount(&rpc, "/", options).await.unwrap();
    let root = client.root().as_bytes().to_vec();
    rpc.close().await;
    Export { root, uid, gid }
}

/// Starts a server with this fault, and another listener of that server without it.
pub async fn faulty_target(fault: Fault) -> Target {
    faulty_target_as(None, fault).await
}

/// Starts a server with this fault that speaks these versions.
pub async fn faulty_target_as(versions: Option<Versions>, fault: Fault) -> Target {
    let fabric = fabric(CompletionMode::Local);
    let faulty = FaultyListener::new(Box::new(fabric.listen(FAULTY).unwrap()), fault);
    serve_as(versions, vec![Box::new(fabric.listen(GOOD).unwrap()), Box::new(faulty)]);
    Target { profile: versions.and_then(|versions| versions.profile()), ..target(&fabric, FAULTY).await }
}

/// Starts a server without a fault.
pub async fn good_target(completion_mode: CompletionMode) -> Target {
    good_target_as(None, completion_mode).await
}

/// Starts a server without a fault that speaks these versions.
pub async fn good_target_as(versions: Option<Versions>, completion_mode: CompletionMode) -> Target {
    let fabric = fabric(completion_mode);
    serve_as(versions, vec![Box::new(fabric.listen(GOOD).unwrap())]);
    Target { profile: versions.and_then(|versions| versions.profile()), ..target(&fabric, GOOD).await }
}

/// Returns the server at an address as a target, with its export.
async fn target(fabric: &Fabric, address: SocketAddr) -> Target {
    tokio::task::yield_now().await;
    let connector: Arc<dyn Connector> = Arc::new(fabric.connector(HOST));
    let export = export(connector.clone(), GOOD).await;
    Target { export: Some(export), ..Target::new(connector, address) }
}

/// Checks that all of so many rows pass.
#[track_caller]
pub fn all_pass(report: &Report, rows: usize) {
    let bad: Vec<_> = report.rows.iter().filter(|row| row.verdict != Verdict::Pass).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(report.rows.len(), rows);
    assert!(report.is_good());
}

/// A row, a fault that it finds, and a part of the text that it then shows.
pub type Found = (&'static str, Fault, &'static str);

/// Checks that each of the rows has a fault that it finds.
#[track_caller]
pub fn each_has_a_fault(rows: &[RowInfo], faults: &[Found]) {
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    let faults: BTreeSet<&str> = faults.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, faults);
    assert_eq!(names.len(), rows.len(), "names are unique");
}

/// Checks that each of the rows finds the fault of a peer that goes on: one that only dies is found by any row.
#[track_caller]
pub fn each_has_a_live_fault(rows: &[RowInfo], faults: &[Found]) {
    let found = |row: &&RowInfo| faults.iter().any(|(name, fault, _)| *name == row.name && fault.is_live());
    let without: Vec<_> = rows.iter().filter(|row| !found(row)).map(|row| row.name).collect();
    assert!(without.is_empty(), "{without:?}");
}

/// Checks that each row fails on its fault; `run` runs the row of this name on a peer with this fault.
pub async fn each_is_red(faults: &[Found], run: impl AsyncFn(&'static str, Fault) -> Report) {
    let mut green = Vec::new();
    for (name, fault, expected) in faults {
        let report = run(name, *fault).await;
        if report.rows[0].verdict != Verdict::Fail || !report.rows[0].seen.contains(expected) {
            green.push((report.rows[0].clone(), *expected));
        }
    }
    assert!(green.is_empty(), "{green:#?}");
}

/// Checks that `docs/conform.md` lists the present rows under this heading, in the table of a run in which all passed.
#[track_caller]
pub fn page_shows(heading: &str, rows: &[RowInfo]) {
    let page = include_str!("../../../../docs/conform.md");
    let (_, section) = page.split_once(&format!("## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let shown: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| pass"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(shown.len(), rows.len());
    for (shown, row) in shown.iter().zip(rows) {
        assert_eq!(shown[2..6], [row.name, row.section, &row.rule.to_string(), row.expects]);
    }
}
