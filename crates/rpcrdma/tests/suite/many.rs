//! Many connections on one server (`ServerConfig::least_credits`), on tokio's paused clock: each has credits that memory
//! backs, and goes on whatever others hold.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PROGRAM, echo, get, pattern, program, put};
use bytes::Bytes;
use rpcrdma::{Client, ClientConfig, PeerShares, ServeError, Server, ServerConfig, ServerMonitor, Transport};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::{Buffer, ProtectionDomain};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const CONNECTIONS: usize = 40;
const LEAST: u32 = 2;
/// Credits that late connections get at most.
const FEW: u32 = 8;
/// Time for all calls of a test: each connection lasts longer without progress.
const LIMIT: Duration = Duration::from_secs(20);

/// Settings under which the memory backs all credits of a few connections only.
fn config() -> ServerConfig {
    let mut config = ServerConfig::default();
    config.memory = 8 << 20;
    config.memory_per_peer = Some(8 << 20);
    config.least_credits = Some(LEAST);
    config.max_reverse_calls = 0;
    config.max_connections = CONNECTIONS;
    config.max_connections_per_peer = CONNECTIONS;
    assert!(CONNECTIONS * config.receives() > config.memory);
    config
}

/// Otherwise every server with default settings would begin with a warning.
#[test]
fn default_connections_leave_half_of_the_memory_for_payload() {
    let config = ServerConfig::default();
    let of_peer = config.memory_per_peer.unwrap_or(config.memory / 4);
    assert!(config.receives() * config.max_connections <= config.memory / 2);
    assert!(config.receives() * config.max_connections_per_peer <= of_peer / 2);
}

struct Running {
    fabric: Fabric,
    shares: PeerShares,
    monitor: ServerMonitor,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn serve(config: ServerConfig) -> Running {
    let fabric = Fabric::on_tokio(FabricConfig { seed: 1, ..FabricConfig::default() });
    let shares = config.shares();
    let server = Server::builder()
        .config(config)
        .shares(shares.clone())
        .program(program())
        .listen_rdma(Box::new(fabric.listen(SERVER).unwrap()))
        .build()
        .unwrap();
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        server.serve(async { drop(stopped.await) }).await.unwrap();
    });
    Running { fabric, shares, monitor, stop, task }
}

fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

impl Running {
    /// Returns connected clients from one address, in the order of their connections.
    async fn clients(&self, last: u8, count: usize) -> Vec<Client> {
        tokio::task::yield_now().await;
        let mut clients = Vec::new();
        for _ in 0..count {
            let connector = Arc::new(self.fabric.connector(host(last)));
            let client =
                Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap();
            client.null(PROGRAM, 1).await.unwrap();
            clients.push(client);
        }
        clients
    }

    /// Takes all payload memory of an address.
    fn hold(&self, last: u8) -> Vec<Buffer> {
        let share = self.shares.of(Some(host(last)));
        [1 << 20, 1 << 16, 1 << 10]
            .into_iter()
            .flat_map(|len| {
                let share = share.clone();
                std::iter::from_fn(move || share.allocate(len, 1).ok())
            })
            .collect()
    }

    async fn end(self, clients: Vec<Client>) {
        for client in clients {
            client.close().await;
        }
        self.stop.send(()).unwrap();
        timeout(Duration::from_secs(60), self.task).await.unwrap().unwrap();
        let stats = self.monitor.stats();
        assert_eq!((stats.connections, stats.memory_in_use), (0, 0));
    }
}

fn granted(client: &Client) -> u32 {
    client.rdma().unwrap().connection_stats().unwrap().protocol.credits_granted_to_us
}

/// Four calls at a time on each connection, twice: more than most have credits.
async fn call_all(clients: &[Client]) {
    for _ in 0..2 {
        let mut tasks = JoinSet::new();
        for client in clients {
            let client = client.clone();
            tasks.spawn(async move {
                let (small, long) = (pattern(100), pattern(3000));
                let answers = tokio::join!(
                    echo(&client, &small),
                    echo(&client, &long),
                    put(&client, Bytes::from(pattern(20_000))),
                    get(&client, 20_000),
                );
                for answer in [answers.0, answers.1, answers.2, answers.3] {
                    answer.unwrap();
                }
            });
        }
        timeout(LIMIT, tasks.join_all()).await.unwrap();
    }
}

/// Rule I3: each connection has credits that memory backs, although there is not memory for all credits of all.
#[tokio::test(start_paused = true)]
async fn i3_least_credits_suffice_for_more_connections_than_have_memory_for_all_credits() {
    let server = serve(config());
    let clients = server.clients(2, CONNECTIONS).await;
    let grants: Vec<u32> = clients.iter().map(granted).collect();
    let asked = ClientConfig::default().protocol.calls;
    assert_eq!(
        grants[0],
        asked.min(config().protocol.grant),
        "the first connection gets its wish: {grants:?}"
    );
    assert!(grants.is_sorted_by(|earlier, later| earlier >= later), "{grants:?}");
    assert!((LEAST..=FEW).contains(&grants[CONNECTIONS - 1]), "{grants:?}");
    call_all(&clients).await;
    assert_eq!(server.monitor.stats().accepted, CONNECTIONS as u64, "no connection was lost");
    // Credits of connections that have ended serve later ones.
    let mut clients = clients;
    for client in clients.drain(..CONNECTIONS / 2) {
        client.close().await;
    }
    sleep(Duration::from_secs(1)).await;
    let newcomer = server.clients(2, 1).await.remove(0);
    assert!(granted(&newcomer) > FEW);
    clients.push(newcomer);
    server.end(clients).await;
}

/// Calls with arguments to read wait for payload memory on every connection at once. Other calls of these connections are
/// answered all the same, and nothing is lost when the memory is there again.
#[tokio::test(start_paused = true)]
async fn i6_connections_that_all_wait_for_rdma_reads_still_answer_calls() {
    let server = serve(config());
    let clients = server.clients(2, CONNECTIONS).await;
    let held = server.hold(2);
    let mut waiting = JoinSet::new();
    for client in &clients {
        let client = client.clone();
        waiting.spawn(async move { put(&client, Bytes::from(pattern(100_000))).await });
    }
    // All of them are at the server.
    sleep(Duration::from_secs(1)).await;
    for client in &clients {
        for _ in 0..8 {
            timeout(LIMIT, echo(client, &pattern(500))).await.unwrap().unwrap();
        }
    }
    assert!(waiting.try_join_next().is_none(), "no call can have its arguments yet");
    drop(held);
    let answered = timeout(LIMIT, waiting.join_all()).await.unwrap();
    assert!(answered.iter().all(Result::is_ok));
    assert_eq!(server.monitor.stats().accepted, CONNECTIONS as u64, "no connection was lost");
    call_all(&clients).await;
    server.end(clients).await;
}

/// If the memory never comes back, the wait of each call ends with the timer for memory.
#[tokio::test(start_paused = true)]
async fn i6_a_wait_for_payload_memory_ends() {
    let server = serve(config());
    let clients = server.clients(2, 4).await;
    let held = server.hold(2);
    let config = config();
    let began = Instant::now();
    let call = put(&clients[0], Bytes::from(pattern(100_000)));
    let _ = timeout(config.protocol.timeouts.memory + Duration::from_secs(1), call).await;
    assert!(began.elapsed() >= config.protocol.timeouts.memory);
    let accepted = server.monitor.stats().accepted;
    assert!(accepted > 4, "the connection that waited was closed");
    drop(held);
    call_all(&clients).await;
    server.end(clients).await;
}

/// Payload that one address holds keeps no connection of another address, or of its own, from being set up.
#[tokio::test(start_paused = true)]
async fn i6_payload_takes_no_receive_from_anybody() {
    let server = serve(config());
    let first = server.clients(2, 1).await;
    let held = [server.hold(2), server.hold(3), server.hold(4)];
    let mut clients = server.clients(2, CONNECTIONS / 4).await;
    clients.extend(server.clients(3, CONNECTIONS / 4).await);
    clients.extend(first);
    for client in &clients {
        assert!(granted(client) >= LEAST);
        timeout(LIMIT, echo(client, &pattern(500))).await.unwrap().unwrap();
    }
    drop(held);
    server.end(clients).await;
}

/// An address with as many connections as it may have leaves further credits to others.
#[tokio::test(start_paused = true)]
async fn i6_an_address_with_many_connections_leaves_credits_to_others() {
    let mut config = config();
    config.memory_per_peer = Some(4 << 20);
    let server = serve(config);
    let mut clients = server.clients(2, CONNECTIONS - 2).await;
    assert!((LEAST..=FEW).contains(&granted(&clients[CONNECTIONS - 3])));
    clients.extend(server.clients(3, 1).await);
    assert!(granted(&clients[CONNECTIONS - 2]) >= 16, "{}", granted(&clients[CONNECTIONS - 2]));
    server.end(clients).await;
}

/// A server that could not back its promise does not start.
#[tokio::test(start_paused = true)]
async fn i3_promised_credits_without_memory_are_refused_at_the_start() {
    let refused = |config: ServerConfig, shares: Option<PeerShares>| {
        let fabric = Fabric::on_tokio(FabricConfig::default());
        let mut builder = Server::builder().listen_rdma(Box::new(fabric.listen(SERVER).unwrap()));
        if let Some(shares) = shares {
            builder = builder.shares(shares);
        }
        builder.config(config).build().err()
    };
    assert!(refused(config(), None).is_none());
    let one = config().least_receives();
    let mut many_credits = config();
    many_credits.least_credits = Some(1024);
    many_credits.max_connections = 1;
    many_credits.protocol.grant = 1024;
    let mut many_connections = config();
    many_connections.max_connections = config().memory / one;
    let others = PeerShares::new(ProtectionDomain::new(8 << 20), 8 << 20).receives_apart(one);
    for (config, shares) in [(many_credits, None), (many_connections, None), (config(), Some(others))] {
        let all = config.least_receives() * config.max_connections;
        match refused(config, shares) {
            Some(ServeError::Memory { needed, memory }) => assert!(needed == all && memory < all),
            other => panic!("{other:?}"),
        }
    }
}
