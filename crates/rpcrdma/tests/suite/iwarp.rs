//! Client and server over software iWARP on loopback, with real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{
    PROGRAM, TestProgram, VERSION, count, echo, get, get_call, pattern, program, put, sleep_call,
};
use bytes::Bytes;
use rpcrdma::experimental::Profile;
use rpcrdma::{
    CallError, Client, ClientConfig, Form, PeerShares, Server, ServerConfig, ServerMonitor, Sink, Versions,
};
use rpcrdma_iwarp::{Config, IwarpListener};
use rpcrdma_verbs::Buffer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const MIB: usize = 1 << 20;

struct Running {
    address: SocketAddr,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn serve(program: Arc<TestProgram>, shares: Option<PeerShares>) -> Running {
    serve_with(ServerConfig::default(), program, shares).await
}

async fn serve_with(config: ServerConfig, program: Arc<TestProgram>, shares: Option<PeerShares>) -> Running {
    let listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), Config::default()).await.unwrap();
    let mut server = Server::builder().config(config).program(program).listen_rdma(Box::new(listener));
    if let Some(shares) = shares {
        server = server.shares(shares);
    }
    let server = server.build().unwrap();
    let address = server.rdma_addresses().unwrap()[0];
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    Running { address, monitor, stop, task }
}

impl Running {
    async fn end(self, client: Client) {
        client.close().await;
        assert_eq!(client.stats().memory_in_use, 0);
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap();
        assert_eq!((self.monitor.stats().connections, self.monitor.stats().memory_in_use), (0, 0));
    }
}

#[tokio::test]
async fn all_forms() {
    let server = serve(program(), None).await;
    let client = Client::connect(server.address).await.unwrap();
    for length in [0, 1, 3, 4, 5, 100, 3_000, 4_000, 5_000, 65_537, MIB - 1, MIB] {
        echo(&client, &pattern(length)).await.unwrap();
        put(&client, Bytes::from(pattern(length))).await.unwrap();
        get(&client, length).await.unwrap();
    }
    client.null(PROGRAM, 1).await.unwrap();
    server.end(client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_in_flight_on_several_threads() {
    let server = serve(program(), None).await;
    let client = Client::connect(server.address).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..200_usize {
        let client = client.clone();
        tasks.spawn(async move {
            match i % 4 {
                0 => drop(echo(&client, &pattern(i * 100)).await.unwrap()),
                1 => drop(put(&client, Bytes::from(pattern(i * 1000))).await.unwrap()),
                2 => drop(get(&client, i * 1000).await.unwrap()),
                _ => drop(client.call_raw(sleep_call(u32::try_from(i % 7).unwrap())).await.unwrap()),
            }
        });
    }
    tasks.join_all().await;
    server.end(client).await;
}

#[tokio::test]
async fn payload_of_1_mib_is_never_copied() {
    let shares = ServerConfig::default().shares();
    let program = Arc::new(TestProgram { shares: Some(shares.clone()), ..TestProgram::default() });
    let server = serve(program, Some(shares)).await;
    let client = Client::connect(server.address).await.unwrap();
    // Like NFS WRITE: from the caller's memory.
    let written = put(&client, Bytes::from(pattern(MIB))).await.unwrap().travelled;
    assert_eq!((written.call.form, written.call.read), (Form::Reduced, MIB));
    // Like NFS READ: into the caller's memory.
    let memory = vec![0; MIB];
    let address = memory.as_ptr();
    let mut reply = client.call_raw(get_call(MIB, Sink::Buffer(Buffer::adopt(memory)))).await.unwrap();
    let data = reply.results.payload(MIB).unwrap();
    assert_eq!((data.as_ptr(), reply.travelled.reply.written), (address, MIB));
    assert_eq!(data, pattern(MIB));
    assert_eq!((client.stats().payload_bytes_copied, server.monitor.stats().payload_bytes_copied), (0, 0));
    drop((reply, data));
    server.end(client).await;
}

/// Starts a proxy that passes a connection on until it is signalled to cut it.
async fn proxy(server: SocketAddr) -> (SocketAddr, tokio::sync::mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (cut, mut cuts) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(server).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = cuts.recv() => {}
            }
        }
    });
    (address, cut)
}

#[tokio::test]
async fn i8_a_call_in_progress_at_the_loss_runs_once() {
    let program = program();
    program.held.send_replace(true);
    let server = serve(Arc::clone(&program), None).await;
    let (address, cut) = proxy(server.address).await;
    let mut config = ClientConfig::default();
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    let client = Client::builder().config(config).connect(address).await.unwrap();
    let call = tokio::spawn({
        let client = client.clone();
        async move { count(&client).await }
    });
    while program.calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    cut.send(()).await.unwrap();
    while client.stats().retransmissions == 0 {
        tokio::task::yield_now().await;
    }
    program.held.send_replace(false);
    assert_eq!(call.await.unwrap().unwrap(), 1);
    assert_eq!(program.count.load(Ordering::SeqCst), 1);
    assert_eq!((client.stats().connections, client.stats().retransmissions), (2, 1));
    server.end(client).await;
}

#[tokio::test]
async fn i10_a_dropped_or_late_call_harms_no_other() {
    let server = serve(program(), None).await;
    let client = Client::connect(server.address).await.unwrap();
    for wait in [0, 1, 5] {
        let _ = timeout(Duration::from_millis(wait), client.call_raw(get_call(MIB, Sink::Pool(MIB)))).await;
        let _ = timeout(Duration::from_millis(wait), client.call_raw(sleep_call(3))).await;
        echo(&client, b"unharmed").await.unwrap();
    }
    let late = client.call_raw(sleep_call(50).timeout(Duration::from_millis(5))).await.unwrap_err();
    assert!(matches!(late, CallError::TimedOut { sent: true, .. }), "{late}");
    client.call_raw(sleep_call(60)).await.unwrap();
    assert_eq!(client.stats().connections, 1);
    server.end(client).await;
}

#[tokio::test]
async fn i6_a_stream_that_is_not_mpa_harms_no_other() {
    let server = serve(program(), None).await;
    let client = Client::connect(server.address).await.unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"MPA ID Req Frame", &[0; 100]] {
        let mut bad = TcpStream::connect(server.address).await.unwrap();
        bad.write_all(bytes).await.unwrap();
        echo(&client, b"unharmed").await.unwrap();
    }
    server.end(client).await;
}

/// Starts a server of every version, and a client of these.
async fn connected_in(client: Versions, combined: usize) -> (Running, Client) {
    let mut config = ServerConfig::default();
    config.protocol.versions = client;
    config.protocol.combined_messages = combined;
    config.protocol.limits.combined_messages = combined;
    let mut protocol = config.protocol.clone();
    protocol.program = Some((PROGRAM, VERSION));
    let server = serve_with(config, program(), None).await;
    let mut config = ClientConfig::default();
    config.protocol = protocol;
    let client = Client::builder().config(config).connect(server.address).await.unwrap();
    // After these calls, everything is announced and granted.
    for _ in 0..3 {
        client.null(PROGRAM, 1).await.unwrap();
    }
    (server, client)
}

async fn at_once(client: &Client, count: usize) -> rpcrdma::ConnectionStats {
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..count {
        let client = client.clone();
        calls.spawn(async move { client.null(PROGRAM, 1).await });
    }
    for reply in calls.join_all().await {
        reply.unwrap();
    }
    client.rdma().unwrap().connection_stats().unwrap()
}

#[tokio::test]
async fn calls_that_are_made_together_share_system_calls_in_every_version() {
    let two = [Profile::P1, Profile::P2, Profile::P3].map(Versions::two);
    for versions in [Versions::ONE].into_iter().chain(two) {
        let (server, client) = connected_in(versions, 1).await;
        let before = client.rdma().unwrap().connection_stats().unwrap();
        let after = at_once(&client, 32).await;
        assert!(after.protocol.sends - before.protocol.sends >= 32);
        // The first call is alone when it is made, and so drives the connection itself.
        let calls = after.link.send_calls - before.link.send_calls;
        assert!(calls <= 8, "{calls} system calls for 32 Sends");
        server.end(client).await;
    }
}

#[tokio::test]
async fn calls_that_are_made_together_share_sends_if_both_sides_take_that() {
    for profile in [Profile::P1, Profile::P2] {
        let (server, client) = connected_in(Versions::two(profile), 16).await;
        let before = client.rdma().unwrap().connection_stats().unwrap();
        let after = at_once(&client, 33).await;
        let sends = after.protocol.sends - before.protocol.sends;
        assert!(sends <= 6, "{sends} Sends for 33 Calls");
        assert!(after.protocol.sends_combined >= 2 && after.protocol.receives_combined >= 1);
        server.end(client).await;
    }
}
