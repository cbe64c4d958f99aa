//! Client and server together over every transport: software iWARP and TCP on the loopback interface, and the
//! simulated fabric on tokio's paused clock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::experimental::{BufferStructure, Profile};
use rpcrdma::rpcbind::RpcbindService;
use rpcrdma::{
    AuthSys, ClientConfig, Credential, PeerShares, Server, ServerBuilder, ServerConfig, ServerMonitor,
    Versions,
};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_nfs::client::{ClientOptions, CopyOptions, Error};
use rpcrdma_nfs::fs::{DirectoryFs, DirectoryOptions, MemoryFs, MemoryOptions, StateDirectory};
use rpcrdma_nfs::mount::{MOUNT_PROGRAM, MOUNT_VERSION};
use rpcrdma_nfs::server::{Export, HandleKey, NfsServer, ServerOptions, Squash};
use rpcrdma_nfs::wire::{NFS_PROGRAM, NFS_VERSION, SetAttributes};
use rpcrdma_nfs::{Client, mount::MountStatus};
use rpcrdma_oncrpc::rpcbind::{Netid, Registration};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};
use rpcrdma_verbs::Listener;
use tempfile::tempdir;
use tokio::net::TcpListener;

const SIM_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const SIM_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const MIB: usize = 1 << 20;

/// Returns an NFS server of two exports in memory. Its READ buffers come from the transport's memory, so that
/// the transport sends what the file system filled.
fn nfs_server() -> (NfsServer, PeerShares) {
    let export = |name| Export::new(name, Arc::new(MemoryFs::new(MemoryOptions::default())));
    let shares = ServerConfig::default().shares();
    let options = ServerOptions { shares: shares.clone(), ..ServerOptions::default() };
    let server = NfsServer::new(HandleKey::random(), vec![export("/"), export("/second")], options).unwrap();
    (server, shares)
}

/// Serves NFS and MOUNT.
fn serve(rdma: Option<Box<dyn Listener>>, tcp: Option<TcpListener>) -> ServerMonitor {
    serve_with(ServerConfig::default(), rdma, tcp)
}

fn serve_with(
    config: ServerConfig,
    rdma: Option<Box<dyn Listener>>,
    tcp: Option<TcpListener>,
) -> ServerMonitor {
    let (nfs, shares) = nfs_server();
    let mut builder = Server::builder().config(config).shares(shares);
    builder = builder.program(nfs.nfs_program()).program(nfs.mount_program());
    if let Some(listener) = rdma {
        builder = builder.listen_rdma(listener);
    }
    if let Some(listener) = tcp {
        builder = builder.listen_tcp(listener);
    }
    let server = builder.build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    monitor
}

async fn over_iwarp() -> (rpcrdma::Client, ServerMonitor) {
    let listener = IwarpListener::bind(LOOPBACK, rpcrdma_iwarp::Config::default()).await.unwrap();
    let address = listener.local_address().unwrap();
    let monitor = serve(Some(Box::new(listener)), None);
    (connect_iwarp(address).await, monitor)
}

async fn connect_iwarp(address: SocketAddr) -> rpcrdma::Client {
    let connector = Arc::new(IwarpConnector::default());
    rpcrdma::Client::builder()
        .transport(rpcrdma::Transport::rdma_on(connector))
        .connect(address)
        .await
        .unwrap()
}

async fn over_tcp() -> (rpcrdma::Client, ServerMonitor) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    let monitor = serve(None, Some(listener));
    (rpcrdma::Client::builder().transport(rpcrdma::Transport::tcp()).connect(address).await.unwrap(), monitor)
}

async fn over_sim(completion_mode: CompletionMode) -> (rpcrdma::Client, ServerMonitor) {
    let fabric = Fabric::on_tokio(FabricConfig { completion_mode, seed: 7, ..FabricConfig::default() });
    let monitor = serve(Some(Box::new(fabric.listen(SIM_SERVER).unwrap())), None);
    tokio::task::yield_now().await;
    let connector = Arc::new(fabric.connector(SIM_HOST));
    (
        rpcrdma::Client::builder()
            .transport(rpcrdma::Transport::rdma_on(connector))
            .connect(SIM_SERVER)
            .await
            .unwrap(),
        monitor,
    )
}

/// Connects by Version Two. For client and server each, `sides` has the most Sends of a message, and the
/// bytes for an item in a Receive.
async fn over_sim_in_groups(
    profile: Profile,
    sides: [(usize, Option<u32>); 2],
) -> (rpcrdma::Client, ServerMonitor) {
    let fabric = Fabric::on_tokio(FabricConfig { seed: 11, ..FabricConfig::default() });
    let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
    for (protocol, (sends, place)) in [&mut client.protocol, &mut server.protocol].into_iter().zip(sides) {
        protocol.versions = Versions::two(profile);
        protocol.continued_parts = sends.max(1);
        protocol.transmissions.enabled = sends > 0;
        protocol.transmissions.reply_sends = sends.max(1);
        if let Some(bytes) = place {
            protocol.place_items(BufferStructure::with_items(1, bytes));
        }
    }
    client.protocol.program = Some((NFS_PROGRAM, NFS_VERSION));
    let monitor = serve_with(server, Some(Box::new(fabric.listen(SIM_SERVER).unwrap())), None);
    tokio::task::yield_now().await;
    let connector = Arc::new(fabric.connector(SIM_HOST));
    (
        rpcrdma::Client::builder()
            .config(client)
            .transport(rpcrdma::Transport::rdma_on(connector))
            .connect(SIM_SERVER)
            .await
            .unwrap(),
        monitor,
    )
}

fn options() -> ClientOptions {
    let mut options = ClientOptions::default();
    options.credential = Credential::Sys(AuthSys { uid: 1000, gid: 1000, ..AuthSys::default() });
    options
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 131 % 251) as u8).collect()
}

/// Runs operations of every kind, small and large.
async fn work(rpc: &rpcrdma::Client) {
    let (client, rest) = Client::mount_containing(rpc, "/second/a/b", options()).await.unwrap();
    assert_eq!(rest, b"/a/b");
    let exports = Client::exports(rpc, &options()).await.unwrap();
    assert_eq!(exports.len(), 2);
    let refused = Client::mount(rpc, "/none", options()).await.err().unwrap();
    assert!(matches!(refused, Error::Mount { status: MountStatus::NoEnt, .. }));

    client.mkdir("/a", SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).await.unwrap();
    for length in [0, 1, 2, 3, 900, 1000, 3000, 4095, 4096, 5001, 65_537, MIB - 1, MIB, 5 * MIB + 3] {
        let path = format!("/a/{length}");
        let data = Bytes::from(pattern(length));
        let file = client.create(&path, SetAttributes::default()).await.unwrap();
        let mut stream = file.write_stream(0);
        stream.write(data.clone()).await.unwrap();
        stream.finish().await.unwrap();
        let mut stream = client.open(&path).await.unwrap().read_stream(0, None).await.unwrap();
        let mut read = Vec::new();
        while let Some(piece) = stream.next().await.unwrap() {
            read.extend_from_slice(&piece);
        }
        assert!(read == data, "{length} bytes came back changed");
    }
    // Link targets travel in chunks if they are long enough.
    for length in [1, 100, 1023, 4000] {
        let target = "t".repeat(length);
        let path = format!("/link-{length}");
        client.symlink(&target, &path).await.unwrap();
        assert_eq!(client.readlink(&path).await.unwrap(), target.as_bytes());
    }
    // Listings too long for one Send.
    client.mkdir("/many", SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).await.unwrap();
    for n in 0..300 {
        client.create(format!("/many/{n:0>100}"), SetAttributes::default()).await.unwrap();
    }
    assert_eq!(client.read_dir("/many").await.unwrap().len(), 300);
    client.rename("/a/900", "/renamed").await.unwrap();
    client.link("/renamed", "/hard").await.unwrap();
    assert_eq!(client.stat("/hard").await.unwrap().nlink, 2);
    client.remove("/hard").await.unwrap();
    client.unmount().await.unwrap();
}

#[tokio::test]
async fn over_software_iwarp() {
    let (rpc, _) = over_iwarp().await;
    work(&rpc).await;
    rpc.close().await;
}

#[tokio::test]
async fn over_plain_tcp() {
    let (rpc, _) = over_tcp().await;
    work(&rpc).await;
    rpc.close().await;
}

#[tokio::test(start_paused = true)]
async fn over_the_simulated_fabric() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let (rpc, _) = over_sim(mode).await;
        work(&rpc).await;
        rpc.close().await;
    }
}

/// The payload of a READ and a WRITE of 1 MiB goes directly between the socket and its final place.
#[tokio::test]
async fn payload_is_placed_directly() {
    let (rpc, monitor) = over_iwarp().await;
    let client = Client::mount(&rpc, "/", options()).await.unwrap();
    let file = client.create("/file", SetAttributes::default()).await.unwrap();
    let data = Bytes::from(pattern(MIB));
    file.write_at(0, data.clone()).await.unwrap();
    file.sync().await.unwrap();
    assert!(file.read_at(0, MIB as u32).await.unwrap() == data);
    assert_eq!((rpc.stats().payload_bytes_copied, monitor.stats().payload_bytes_copied), (0, 0));
}

fn tree_of(root: &Path, files: usize) {
    for n in 0..files {
        let directory = root.join(format!("d{}/ü{}", n % 7, n % 3));
        fs::create_dir_all(&directory).unwrap();
        let length = (n * n * 37) % 9000 + if n % 40 == 0 { 2 * MIB + n } else { 0 };
        fs::write(directory.join(format!("file {n}")), pattern(length)).unwrap();
    }
    std::os::unix::fs::symlink("d0", root.join("link")).unwrap();
}

fn files_of(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_symlink() {
                found.push((name, fs::read_link(&path).unwrap().display().to_string().into_bytes()));
            } else if path.is_dir() {
                waiting.push(path);
            } else {
                found.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// rtrext-02: messages in several Sends and items placed by Sends, alone and together, and against a side
/// without either.
#[tokio::test(start_paused = true)]
async fn over_the_simulated_fabric_with_fewer_round_trips() {
    for profile in [Profile::P1, Profile::P2] {
        for sides in [
            [(16, None), (16, None)],
            [(1, Some(8192)), (1, Some(65_536))],
            [(8, Some(65_536)), (32, Some(8192))],
            [(8, Some(8192)), (0, None)],
            [(0, None), (8, Some(8192))],
        ] {
            let (rpc, _) = over_sim_in_groups(profile, sides).await;
            work(&rpc).await;
            rpc.close().await;
        }
    }
}

/// The items of a WRITE and a READ in several Receives reach the file at either end as they lie.
#[tokio::test(start_paused = true)]
async fn payload_in_several_receives_is_not_copied() {
    let (rpc, monitor) = over_sim_in_groups(Profile::P1, [(8, Some(8192)); 2]).await;
    let mut small = options();
    (small.chunk, small.file_window) = (32 << 10, 1);
    let client = Client::mount(&rpc, "/", small).await.unwrap();
    let file = client.create("/file", SetAttributes::default()).await.unwrap();
    let data = pattern(100_001);
    file.write_at(0, data.clone().into()).await.unwrap();
    file.sync().await.unwrap();
    let local = tempdir().unwrap();
    let target = local.path().join("file");
    client.get("/file", &target, &CopyOptions::default()).await.unwrap();
    assert!(fs::read(&target).unwrap() == data);
    let ours = rpc.rdma().unwrap().connection_stats().unwrap().protocol;
    assert_eq!((ours.calls_sent.placed, ours.replies_received.placed), (3, 3));
    assert_eq!((ours.payload_bytes_copied, monitor.stats().payload_bytes_copied), (0, 0));
}

/// A tree is stored and fetched back, over RDMA in one direction and TCP in the other.
#[tokio::test]
async fn trees() {
    let iwarp = IwarpListener::bind(LOOPBACK, rpcrdma_iwarp::Config::default()).await.unwrap();
    let tcp = TcpListener::bind(LOOPBACK).await.unwrap();
    let (rdma_address, tcp_address) = (iwarp.local_address().unwrap(), tcp.local_addr().unwrap());
    serve(Some(Box::new(iwarp)), Some(tcp));
    let rdma = connect_iwarp(rdma_address).await;
    let tcp =
        rpcrdma::Client::builder().transport(rpcrdma::Transport::tcp()).connect(tcp_address).await.unwrap();
    let local = tempdir().unwrap();
    let source = local.path().join("source");
    fs::create_dir(&source).unwrap();
    tree_of(&source, 120);
    let expected = files_of(&source);
    let mut copy = CopyOptions::default();
    copy.recursive = true;
    for (n, (to, from)) in [(&rdma, &tcp), (&tcp, &rdma), (&rdma, &rdma)].into_iter().enumerate() {
        let (name, out) = (format!("/copy-{n}"), local.path().join(format!("out-{n}")));
        let client = Client::mount(to, "/", options()).await.unwrap();
        let report = client.put(&source, &name, &copy).await.unwrap();
        assert_eq!((report.files, report.failures.len()), (120, 0), "{:?}", report.failures);
        let client = Client::mount(from, "/", options()).await.unwrap();
        let report = client.get(&name, &out, &copy).await.unwrap();
        assert_eq!(
            (report.files, report.symlinks, report.failures.len()),
            (120, 1, 0),
            "{:?}",
            report.failures
        );
        assert!(files_of(&out) == expected, "copy {n} differs");
    }
}

/// RFC 8267 §5.1: if the NFS connection has no MOUNT service, the client uses MOUNT over TCP.
// requirement: rfc8267-5.1-1
#[tokio::test]
async fn mount_over_tcp() {
    let (nfs, shares) = nfs_server();
    let iwarp = IwarpListener::bind(LOOPBACK, rpcrdma_iwarp::Config::default()).await.unwrap();
    let tcp = TcpListener::bind(LOOPBACK).await.unwrap();
    let (rdma_address, tcp_address) = (iwarp.local_address().unwrap(), tcp.local_addr().unwrap());
    let only_nfs = Server::builder().shares(shares).program(nfs.nfs_program()).listen_rdma(Box::new(iwarp));
    tokio::spawn(only_nfs.build().unwrap().serve(std::future::pending()));
    let only_mount = Server::builder().program(nfs.mount_program()).listen_tcp(tcp);
    tokio::spawn(only_mount.build().unwrap().serve(std::future::pending()));

    let rpc = connect_iwarp(rdma_address).await;
    let mut options = options();
    options.mount_port = Some(tcp_address.port());
    let client = Client::mount(&rpc, "/second", options.clone()).await.unwrap();
    client.create("/file", SetAttributes::default()).await.unwrap();
    client.unmount().await.unwrap();
    // Without a listener, the error names the attempts.
    let nobody = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap().port();
    options.mount_port = Some(nobody);
    let error = Client::mount(&rpc, "/second", options).await.err().unwrap();
    assert!(matches!(error, Error::NoMountService { .. }), "{error}");
    assert!(error.to_string().contains(&nobody.to_string()), "{error}");
}

/// RFC 1813 §5.1.3, RFC 1833 §2.2: without a port, the client asks rpcbind on TCP port 111 of the server for MOUNT.
// requirement: rfc1813-5.1.3-1
// requirement: rfc1833-1-1, rfc1833-2.2-1
#[tokio::test]
async fn mount_asks_rpcbind_on_port_111() {
    let host = IpAddr::from([127, 0, 0, 77]);
    let Ok(rpcbind) = TcpListener::bind((host, 111)).await else {
        println!("skipped: this process cannot listen on port 111 of {host}");
        return;
    };
    let (nfs, shares) = nfs_server();
    let iwarp = IwarpListener::bind((host, 0).into(), rpcrdma_iwarp::Config::default()).await.unwrap();
    let tcp = TcpListener::bind((host, 0)).await.unwrap();
    let (rdma_address, address) = (iwarp.local_address().unwrap(), tcp.local_addr().unwrap());
    let mount = Registration {
        program: MOUNT_PROGRAM,
        version: MOUNT_VERSION,
        netid: Netid::Tcp,
        address,
        owner: "root".into(),
    };
    let only_nfs = Server::builder().shares(shares).program(nfs.nfs_program()).listen_rdma(Box::new(iwarp));
    tokio::spawn(only_nfs.build().unwrap().serve(std::future::pending()));
    let only_mount = Server::builder().program(nfs.mount_program()).listen_tcp(tcp);
    tokio::spawn(only_mount.build().unwrap().serve(std::future::pending()));
    let versions = RpcbindService::new(vec![mount]).versions();
    let binder = versions.into_iter().fold(Server::builder(), ServerBuilder::program).listen_tcp(rpcbind);
    tokio::spawn(binder.build().unwrap().serve(std::future::pending()));

    let rpc = connect_iwarp(rdma_address).await;
    let client = Client::mount(&rpc, "/second", options()).await.unwrap();
    client.create("/found", SetAttributes::default()).await.unwrap();
}

/// A server stops and starts again at the same address. The client reconnects, handles stay valid, and
/// uncommitted data is written again, because the write verifier has changed.
// requirement: rfc1813-1.6-2, rfc1813-3.3.7-17
#[tokio::test]
async fn a_server_that_restarts() {
    let places = tempdir().unwrap();
    let (exported, state) = (places.path().join("export"), places.path().join("state"));
    fs::create_dir(&exported).unwrap();
    let start = async |address: SocketAddr| {
        let state = StateDirectory::open(&state).unwrap();
        let files = DirectoryFs::open(&exported, &state, DirectoryOptions::default()).unwrap();
        let mut export = Export::new("/", Arc::new(files));
        export.squash = Squash::Nobody;
        let nfs =
            NfsServer::new(HandleKey::from_state(&state), vec![export], ServerOptions::default()).unwrap();
        let listener = IwarpListener::bind(address, rpcrdma_iwarp::Config::default()).await.unwrap();
        let address = listener.local_address().unwrap();
        let builder = Server::builder().program(nfs.nfs_program()).program(nfs.mount_program());
        // An idle client must not hold the server up: if it did, the test would last an hour.
        let mut config = ServerConfig::default();
        config.grace = Duration::from_secs(3600);
        let server = builder.config(config).listen_rdma(Box::new(listener)).build().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(server.serve(async { drop(stopped.await) }));
        (address, nfs, stop, task)
    };
    let (address, _, stop, task) = start(LOOPBACK).await;
    let rpc = connect_iwarp(address).await;
    // The caller is this process: nothing else works without privileges.
    let client = Client::mount(&rpc, "/", ClientOptions::default()).await.unwrap();
    let file = client.create("/file", SetAttributes::default()).await.unwrap();
    let data = Bytes::from(pattern(100_001));
    file.write_at(0, data.clone()).await.unwrap();
    assert_eq!(file.unstable_bytes(), data.len());
    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
    ended.expect("an idle client holds the server up").unwrap().unwrap();

    let (_, nfs, stop, task) = start(address).await;
    file.sync().await.unwrap();
    assert_eq!(file.unstable_bytes(), 0);
    assert_eq!(nfs.counters().bytes_written(), data.len() as u64, "written again");
    assert!(file.read_at(0, MIB as u32).await.unwrap() == data);
    assert_eq!(client.lookup("/file").await.unwrap().handle, file.handle());
    assert!(fs::read(exported.join("file")).unwrap() == data);
    rpc.close().await;
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}
