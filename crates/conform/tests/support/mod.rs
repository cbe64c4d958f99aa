//! Our own server on the simulated fabric, behind listeners with or without a fault.

#![allow(dead_code, reason = "each test takes what it needs")]

pub mod faulty;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rpcrdma::{AuthSys, ClientConfig, Credential, Server, ServerConfig};
use rpcrdma_conform::server::{Export, Target};
use rpcrdma_nfs::Client;
use rpcrdma_nfs::client::ClientOptions;
use rpcrdma_nfs::fs::{MemoryFs, MemoryOptions};
use rpcrdma_nfs::server::{HandleKey, NfsServer, ServerOptions};
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
    let export = rpcrdma_nfs::server::Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())));
    let shares = ServerConfig::default().shares();
    let options = ServerOptions { shares: shares.clone(), ..ServerOptions::default() };
    let nfs = NfsServer::new(HandleKey::random(), vec![export], options).unwrap();
    let mut builder = Server::builder().config(ServerConfig::default()).shares(shares);
    builder = builder.program(nfs.nfs_program()).program(nfs.mount_program());
    for listener in listeners {
        builder = builder.listen_rdma(listener);
    }
    tokio::spawn(builder.build().unwrap().serve(std::future::pending()));
}

/// Mounts the export.
pub async fn export(connector: Arc<dyn Connector>, address: SocketAddr) -> Export {
    let (uid, gid) = (1000, 1000);
    let rpc = rpcrdma::Client::rdma(connector, address, ClientConfig::default()).await.unwrap();
    let mut options = ClientOptions::default();
    options.credential = Credential::Sys(AuthSys { uid, gid, ..AuthSys::default() });
    let client = Client::mount(&rpc, "/", options).await.unwrap();
    let root = client.root().as_bytes().to_vec();
    rpc.close().await;
    Export { root, uid, gid }
}

/// Starts a server with this fault, and another listener of that server without it.
pub async fn faulty_target(fault: Fault) -> Target {
    let fabric = fabric(CompletionMode::Local);
    let faulty = FaultyListener::new(Box::new(fabric.listen(FAULTY).unwrap()), fault);
    serve(vec![Box::new(fabric.listen(GOOD).unwrap()), Box::new(faulty)]);
    tokio::task::yield_now().await;
    let connector: Arc<dyn Connector> = Arc::new(fabric.connector(HOST));
    let export = export(connector.clone(), GOOD).await;
    Target { export: Some(export), ..Target::new(connector, FAULTY) }
}

/// Starts a server without a fault.
pub async fn good_target(completion_mode: CompletionMode) -> Target {
    let fabric = fabric(completion_mode);
    serve(vec![Box::new(fabric.listen(GOOD).unwrap())]);
    tokio::task::yield_now().await;
    let connector: Arc<dyn Connector> = Arc::new(fabric.connector(HOST));
    let export = export(connector.clone(), GOOD).await;
    Target { export: Some(export), ..Target::new(connector, GOOD) }
}
