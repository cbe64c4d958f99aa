//! Replies that are lost under load, over every transport, version and direction: no call is executed twice, however
//! many others come meanwhile.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rpcrdma::experimental::Profile;
use rpcrdma::{CallError, Client, ClientConfig, Server, ServerConfig, ServerMonitor, Transport, Versions};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bidirectional::world::World;
use crate::support::raw::{Peer, words};
use crate::support::{COUNT, PROGRAM, SLEEP, TestProgram, VERSION, call, count, echo, pattern, program, put};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const VERSIONS: [Versions; 4] =
    [Versions::ONE, Versions::two(Profile::P1), Versions::two(Profile::P2), Versions::two(Profile::P3)];
/// Three times as many replies as fit into [`MEMORY`].
const WRITES: usize = 3000;
/// Memory of the reply cache, in bytes: enough for a thousand replies to WRITEs, and for as many to other calls.
const MEMORY: usize = 2 << 20;

struct Running {
    fabric: Fabric,
    program: Arc<TestProgram>,
    monitor: ServerMonitor,
    versions: Versions,
    grant: u32,
}

impl Running {
    async fn new(versions: Versions, mode: CompletionMode, grant: u32) -> Self {
        let config = FabricConfig { completion_mode: mode, seed: 1, ..FabricConfig::default() };
        let fabric = Fabric::on_tokio(config);
        let program = program();
        let mut config = ServerConfig::default();
        config.protocol.versions = versions;
        config.protocol.grant = grant;
        config.reply_cache.memory = MEMORY;
        let server = Server::builder()
            .config(config)
            .program(Arc::clone(&program) as _)
            .listen_rdma(Box::new(fabric.listen(SERVER).unwrap()))
            .build()
            .unwrap();
        let monitor = server.monitor();
        tokio::spawn(server.serve(std::future::pending()));
        // The server's task must begin to listen first.
        tokio::task::yield_now().await;
        Self { fabric, program, monitor, versions, grant }
    }

    async fn client(&self) -> Client {
        let mut config = ClientConfig::default();
        config.protocol.versions = self.versions;
        config.protocol.program = Some((PROGRAM, VERSION));
        config.protocol.calls = self.grant;
        config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
        Client::builder()
            .config(config)
            .transport(Transport::rdma_on(Arc::new(self.fabric.connector(HOST))))
            .connect(SERVER)
            .await
            .unwrap()
    }

    fn executed(&self) -> u32 {
        self.program.count.load(Ordering::SeqCst)
    }
}

async fn write(client: &Client, writes: usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..writes / 16 {
                put(&client, Bytes::from_static(&[7; 100])).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// A connection breaks with the reply of COUNT under way. Thousands of WRITEs from its address pass before the client
/// asks again.
#[tokio::test(start_paused = true)]
async fn i8_a_lost_reply_outlasts_any_number_of_writes() {
    for versions in VERSIONS {
        let server = Running::new(versions, CompletionMode::Local, 64).await;
        let victim = server.client().await;
        echo(&victim, b"the version is settled").await.unwrap();
        let connection = server.fabric.connections()[0];
        server.program.delay.store(100, Ordering::SeqCst);
        let lost = tokio::spawn(async move { (count(&victim).await, victim) });
        sleep(Duration::from_millis(50)).await;
        server.fabric.partition(connection);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(server.executed(), 1, "{versions:?}");
        write(&server.client().await, WRITES).await;
        server.fabric.cut(connection);
        let (value, victim) = lost.await.unwrap();
        assert_eq!((value.unwrap(), server.executed()), (1, 1), "{versions:?}");
        assert_eq!(victim.stats().retransmissions, 1, "{versions:?}");
        let cache = server.monitor.stats().reply_cache;
        assert_eq!((cache.replayed, cache.evicted), (1, 0), "{versions:?}: {cache:?}");
    }
}

/// Makes calls of all effects on connections of one address that break again and again.
async fn history(versions: Versions, mode: CompletionMode, seed: u64) {
    const CLIENTS: usize = 3;
    const TASKS: usize = 6;
    const CALLS: usize = 40;
    let what = format!("{versions:?} {mode:?} {seed}");
    let server = Running::new(versions, mode, 4).await;
    server.program.delay.store(2, Ordering::SeqCst);
    let mut tasks = JoinSet::new();
    for at in 0..CLIENTS {
        let client = server.client().await;
        for task in 0..TASKS {
            let client = client.clone();
            let mut random = StdRng::seed_from_u64(seed * 100 + u64::try_from(at * TASKS + task).unwrap());
            tasks.spawn(async move {
                let mut values = Vec::new();
                for _ in 0..CALLS {
                    match random.random_range(0..4) {
                        0 => drop(put(&client, Bytes::from_static(&[7; 100])).await.unwrap()),
                        1 => drop(echo(&client, &pattern(50)).await.unwrap()),
                        _ => values.push(count(&client).await.unwrap()),
                    }
                }
                values
            });
        }
    }
    let breaking = tokio::spawn({
        let (fabric, mut random) = (server.fabric.clone(), StdRng::seed_from_u64(seed));
        async move {
            loop {
                sleep(Duration::from_millis(random.random_range(5..60))).await;
                let open = fabric.connections();
                if open.is_empty() {
                    continue;
                }
                let connection = open[random.random_range(0..open.len())];
                // Messages under way are lost, in both directions.
                fabric.partition(connection);
                sleep(Duration::from_millis(random.random_range(1..10))).await;
                fabric.cut(connection);
            }
        }
    });
    let mut values = Vec::new();
    while let Some(done) = tasks.join_next().await {
        values.extend(done.unwrap());
    }
    breaking.abort();
    let distinct: BTreeSet<u32> = values.iter().copied().collect();
    assert_eq!(distinct.len(), values.len(), "{what}: one execution answered two calls");
    assert_eq!(
        usize::try_from(server.executed()).unwrap(),
        values.len(),
        "{what}: a call was executed twice"
    );
    let cache = server.monitor.stats().reply_cache;
    assert!(cache.replayed + cache.waited > 0 && cache.proven > 0, "{what}: nothing was tried: {cache:?}");
    assert_eq!(cache.evicted, 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn i8_no_history_of_losses_executes_a_call_twice() {
    for versions in VERSIONS {
        for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
            for seed in 0..3 {
                history(versions, mode, seed).await;
            }
        }
    }
}

/// For a peer that never looks at its replies, credits alone prove which replies it has.
#[tokio::test(start_paused = true)]
async fn i8_credits_prove_which_replies_arrived() {
    const GRANT: u32 = 4;
    let server = Running::new(Versions::ONE, CompletionMode::Local, GRANT).await;
    let mut peer = Peer::connect(&server.fabric, HOST, SERVER).await;
    let mut sent = 0;
    for (calls, proven) in [(1, 0), (GRANT - 1, 0), (1, 1), (GRANT - 1, 4), (GRANT, 8)] {
        for _ in 0..calls {
            sent += 1;
            let header = words(&[sent, 1, GRANT, 0, 0, 0, 0]);
            let message = words(&[sent, 0, 2, PROGRAM, 1, COUNT, 0, 0, 0, 0]);
            peer.send([header, message].concat());
        }
        let (answers, _) = peer.answers().await;
        assert_eq!(u32::try_from(answers.len()).unwrap(), calls);
        let cache = server.monitor.stats().reply_cache;
        assert_eq!(cache.proven, proven, "{sent} Calls, so the peer can miss the last {GRANT} replies");
    }
}

#[tokio::test]
async fn i8_over_tcp_a_lost_reply_outlasts_any_number_of_writes() {
    let program = program();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = ServerConfig::default();
    config.tcp_calls = 16;
    config.reply_cache.memory = MEMORY;
    let served = Arc::clone(&program) as _;
    let server = Server::builder().config(config).program(served).listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let xid = 77;
    let message = words(&[xid, 0, 2, PROGRAM, 1, COUNT, 0, 0, 0, 0]);
    let record = [words(&[0x8000_0000 | u32::try_from(message.len()).unwrap()]), message].concat();
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(&record).await.unwrap();
    // The reply is there, but the client does not take it.
    first.readable().await.unwrap();
    drop(first);
    let writer = Client::builder().transport(Transport::tcp()).connect(address).await.unwrap();
    write(&writer, WRITES).await;
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(&record).await.unwrap();
    let mut reply = [0; 32];
    second.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, words(&[0x8000_001c, xid, 1, 0, 0, 0, 0, 1])[..], "the reply of the one execution");
    assert_eq!(program.count.load(Ordering::SeqCst), 1);
    let cache = monitor.stats().reply_cache;
    assert_eq!((cache.replayed, cache.evicted), (1, 0));
    // All but the replies that the writer could miss.
    assert!(cache.proven >= u64::try_from(WRITES / 16 * 16 - 2 * 16).unwrap(), "{cache:?}");
}

/// Without a reply to come, a client would wait for ever: it sends a Call again on another connection only. The replies that are
/// ready leave first.
#[tokio::test]
async fn i8_over_tcp_a_record_without_a_reply_ends_the_connection_behind_the_replies() {
    let program = program();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::clone(&program) as _;
    let server = Server::builder().program(served).listen_tcp(listener).build().unwrap();
    let monitor = server.monitor();
    tokio::spawn(server.serve(std::future::pending()));
    let record = |message: &[u32]| {
        let length = u32::try_from(4 * message.len()).unwrap();
        words(&[&[0x8000_0000 | length], message].concat())
    };
    let count = record(&[100, 0, 2, PROGRAM, 1, COUNT, 0, 0, 0, 0]);
    // This call takes as long as the test: its end is not waited for.
    let held = record(&[99, 0, 2, PROGRAM, 1, SLEEP, 0, 0, 0, 0, 3_600_000]);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&[held, count.clone(), record(&[7])].concat()).await.unwrap();
    let mut replies = Vec::new();
    timeout(Duration::from_secs(60), stream.read_to_end(&mut replies)).await.unwrap().unwrap();
    assert_eq!(replies.len(), 32);
    assert_eq!((monitor.stats().calls, monitor.stats().reply_cache.proven), (3, 0));
    // On the next connection the reply is still there.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&count).await.unwrap();
    let mut again = [0; 32];
    stream.read_exact(&mut again).await.unwrap();
    assert_eq!((&again[..], program.count.load(Ordering::SeqCst)), (&replies[..], 1));
}

/// A client that serves (RFC 8167) keeps its replies for the server.
#[tokio::test(start_paused = true)]
async fn i8_s5_4_a_lost_reply_of_the_client_outlasts_other_calls() {
    let world = World::new().await;
    world.at_client.delay.store(100, Ordering::SeqCst);
    let back = world.back();
    let xid = back.next_xid();
    let again = || call(COUNT).name("COUNT").results(4);
    let lost = tokio::spawn({
        let back = back.clone();
        async move { back.call_as(xid, again()).await.map(drop) }
    });
    sleep(Duration::from_millis(50)).await;
    let connection = *world.fabric.connections().last().unwrap();
    world.fabric.partition(connection);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(world.at_client.count.load(Ordering::SeqCst), 1);
    world.at_client.delay.store(0, Ordering::SeqCst);
    world.fabric.cut(connection);
    assert!(matches!(lost.await.unwrap(), Err(CallError::ConnectionLost { .. })));
    sleep(Duration::from_secs(1)).await;
    let back = world.back();
    for value in 2..=200 {
        assert_eq!(count(&back).await.unwrap(), value);
    }
    let cache = world.client.stats().reply_cache;
    assert!(cache.proven >= 150 && cache.evicted == 0, "{cache:?}");
    let mut reply = back.call_as(xid, again()).await.unwrap();
    assert_eq!((reply.xid, reply.results.u32().unwrap()), (xid, 1));
    drop(reply);
    assert_eq!(world.client.stats().reply_cache.replayed, 1);
    world.end().await;
}
