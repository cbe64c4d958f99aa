//! Peers of the server that violate RFC 8166, on the simulated fabric. Each is answered or cut off, and a good client
//! beside them never notices (rule I6).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::support::raw::{NULL_CALL, Peer, message, words};
use crate::support::{TestProgram, echo, get, pattern, put};
use bytes::Bytes;
use rpcrdma::{Client, Server, ServerConfig, ServerMonitor, Transport};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};
use tokio::time::timeout;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 20049);
const GOOD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const MIB: usize = 1 << 20;
const BAD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66));

struct Scene {
    fabric: Fabric,
    monitor: ServerMonitor,
    good: Client,
}

impl Scene {
    async fn new() -> Self {
        Self::with(CompletionMode::Local).await
    }

    async fn with(completion_mode: CompletionMode) -> Self {
        let fabric = FabricConfig { completion_mode, ..FabricConfig::default() };
        Self::serving(fabric, ServerConfig::default()).await
    }

    async fn serving(fabric: FabricConfig, config: ServerConfig) -> Self {
        let fabric = Fabric::on_tokio(fabric);
        let listener = fabric.listen(SERVER).unwrap();
        let shares = config.shares();
        let program = Arc::new(TestProgram { shares: Some(shares.clone()), ..TestProgram::default() });
        let server = Server::builder()
            .config(config)
            .shares(shares)
            .program(program)
            .listen_rdma(Box::new(listener))
            .build()
            .unwrap();
        let monitor = server.monitor();
        tokio::spawn(server.serve(std::future::pending()));
        tokio::task::yield_now().await;
        let good = Client::builder()
            .transport(Transport::rdma_on(Arc::new(fabric.connector(GOOD))))
            .connect(SERVER)
            .await
            .unwrap();
        Self { fabric, monitor, good }
    }

    async fn connect(&self) -> Peer {
        Peer::connect(&self.fabric, BAD, SERVER).await
    }

    /// Connects as [`connect`](Self::connect) does; returns `None` if the server does not accept in time.
    async fn try_connect(&self) -> Option<Peer> {
        Peer::try_connect(&self.fabric, BAD, SERVER).await
    }

    /// Checks that the good client has not noticed.
    async fn unharmed(&self) {
        echo(&self.good, &pattern(10_000)).await.unwrap();
        assert_eq!(self.good.stats().connections, 1);
    }
}

/// Returns whether an answer is an RDMA_ERROR for XID 7 with this code (RFC 8166 §4.5).
fn is_error(answer: &[u8], code: u32) -> bool {
    answer[..4] == words(&[7])[..] && answer[12..20] == words(&[4, code])[..]
}

// requirement: rfc8166-4.5-2, rfc8166-4.5-4, rfc8166-4.5-6, rfc8166-4.5.2-1, rfc8166-4.6.1-2, rfc8166-6.1-2
#[tokio::test(start_paused = true)]
async fn i6_what_deserves_err_chunk_gets_it() {
    let scene = Scene::new().await;
    let cases: &[(&str, Vec<u8>)] = &[
        ("unknown rdma_proc", message(&[7, 1, 1, 9, 0, 0, 0])),
        ("RDMA_MSGP", message(&[7, 1, 1, 2, 0, 0, 0, 0, 0])),
        ("discriminator 2", message(&[7, 1, 1, 0, 2, 0, 0])),
        ("RDMA_NOMSG without chunks", words(&[7, 1, 1, 1, 0, 0, 0])),
        ("list cut off", words(&[7, 1, 1, 0, 1, 4, 9])),
        ("position not a multiple of 4", message(&[7, 1, 1, 0, 1, 42, 1, 8, 0, 0, 0, 0, 0])),
        ("Read segment of 4 GiB", message(&[7, 1, 1, 0, 1, 40, 1, u32::MAX, 0, 0, 0, 0, 0])),
        ("a million segments", message(&[7, 1, 1, 0, 0, 1, 1_000_000, 0, 0])),
        ("XID differs", [words(&[7, 1, 1, 0, 0, 0, 0]), words(&[8, 0, 2, 1, 1, 0, 0, 0, 0, 0])].concat()),
        ("a chunk where nothing is eligible", message(&[7, 1, 1, 0, 1, 40, 1, 8, 0, 0, 0, 0, 0])),
    ];
    for (name, bytes) in cases {
        let mut peer = scene.connect().await;
        peer.send(bytes.clone());
        let (answers, ended) = peer.answers().await;
        assert!(answers.len() == 1 && is_error(&answers[0], 2), "{name}: {answers:?}");
        assert!(!ended, "{name}");
        // The connection goes on.
        peer.send(message(&[7, 1, 1, 0, 0, 0, 0]));
        let (answers, _) = peer.answers().await;
        assert_eq!(answers.len(), 1, "{name}");
        assert_eq!(answers[0][28..], words(&[7, 1, 0, 0, 0, 0])[..], "{name}");
        scene.unharmed().await;
    }
}

// requirement: rfc8166-4.2.4-3, rfc8166-4.5-1, rfc8166-4.5-7, rfc8166-4.5.1-1, rfc8166-4.6.2-2
// requirement: experience-4.6.1-1
#[tokio::test(start_paused = true)]
async fn i6_another_version_gets_err_vers_and_an_error_gets_nothing() {
    let scene = Scene::new().await;
    let mut peer = scene.connect().await;
    peer.send(message(&[7, 3, 1, 0, 0, 0, 0]));
    let (answers, _) = peer.answers().await;
    assert!(is_error(&answers[0], 1));
    for silent in [
        words(&[7, 1, 1, 4, 2]),
        words(&[7, 9, 1, 4, 1, 1, 1]),
        words(&[7, 1, 1, 3]),
        words(&[7, 1]),
        Vec::new(),
        words(&[7, 1, 1, 0, 0, 0]),
    ] {
        peer.send(silent.clone());
        let (answers, ended) = peer.answers().await;
        assert!(answers.is_empty() && !ended, "{silent:?}: {answers:?}");
    }
    scene.unharmed().await;
}

// requirement: experience-7.2.1.1-1
#[tokio::test(start_paused = true)]
async fn i6_calls_beyond_the_grant_end_only_their_connection() {
    let scene = Scene::new().await;
    let mut peer = scene.connect().await;
    let mut sleeping = words(&[7, 1, 1, 0, 0, 0, 0]);
    sleeping.extend(words(&[
        7,
        0,
        2,
        crate::support::PROGRAM,
        1,
        crate::support::SLEEP,
        0,
        0,
        0,
        0,
        600_000,
    ]));
    for _ in 0..60 {
        peer.send(sleeping.clone());
    }
    let (_, ended) = peer.answers().await;
    assert!(ended);
    scene.unharmed().await;
}

#[tokio::test(start_paused = true)]
async fn i6_a_chunk_that_cannot_be_read_ends_only_its_connection() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let scene = Scene::with(mode).await;
        let mut peer = scene.connect().await;
        // PUT of 8 bytes with data under a key that does not exist.
        let mut put = words(&[7, 1, 1, 0, 1, 44, 0xbad, 8, 0, 0, 0, 0, 0]);
        put.extend(words(&[7, 0, 2, crate::support::PROGRAM, 1, crate::support::PUT, 0, 0, 0, 0, 8]));
        peer.send(put.clone());
        let (answers, ended) = peer.answers().await;
        assert!(answers.is_empty() && ended, "{answers:?}");
        scene.unharmed().await;
        // RFC 8166 §4.5.3: sent again on the next connection, the XID gets the reason. That also holds if the fabric
        // reports only that the peer ended the connection over a key, since no other Call was being read.
        let mut peer = scene.connect().await;
        peer.send(put);
        let (answers, ended) = peer.answers().await;
        assert!(!ended && is_error(&answers[0], 2), "{mode:?} {answers:?}");
    }
}

/// Connects peers of one address that answer no RDMA Read and take no RDMA Write. Returns whether a good client is
/// served meanwhile.
async fn served_beside_silent_peers(memory_per_peer: Option<usize>) -> bool {
    let mut config = ServerConfig::default();
    config.memory = 64 * MIB;
    config.memory_per_peer = memory_per_peer;
    let share = config.shares().limit();
    // An RDMA Write holds its memory until the peer has the data; the peer's own messages leave at once.
    let (completion_mode, bandwidth) = (CompletionMode::Acknowledged, None);
    let fabric = FabricConfig { completion_mode, bandwidth, ..FabricConfig::default() };
    let scene = Scene::serving(fabric, config).await;
    let mib = u32::try_from(MIB).unwrap();
    let mut peers = Vec::new();
    for _ in 0..16 {
        // When memory does not even suffice for a first Receive, no more peers are accepted.
        let Some(mut peer) = scene.try_connect().await else { break };
        for xid in (0..14).step_by(2) {
            let mut put = words(&[xid, 1, 1, 0, 1, 44, 0xbad, mib, 0, 0, 0, 0, 0]);
            put.extend(words(&[xid, 0, 2, crate::support::PROGRAM, 1, crate::support::PUT, 0, 0, 0, 0, mib]));
            peer.send(put);
            let xid = xid + 1;
            let mut get = words(&[xid, 1, 1, 0, 0, 1, 1, 0xbad, mib, 0, 0, 0, 0]);
            get.extend(words(&[xid, 0, 2, crate::support::PROGRAM, 1, crate::support::GET, 0, 0, 0, 0, mib]));
            peer.send(get);
        }
        peer.leave().await;
        peers.push(peer);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let held = scene.monitor.stats().memory_in_use;
    assert!(held > share - 2 * MIB, "{held} bytes of {share} are held");
    let good = async {
        for _ in 0..20 {
            put(&scene.good, Bytes::from(pattern(MIB))).await.unwrap();
            get(&scene.good, MIB).await.unwrap();
        }
    };
    let served = timeout(Duration::from_secs(5), good).await.is_ok();
    let now = scene.monitor.stats().memory_in_use;
    assert!(held.abs_diff(now) <= 2 * MIB, "{held} bytes were held, then {now}");
    served
}

// requirement: rfc5042-6.4.1-1, rfc5042-6.4.3.1-1
// requirement: rfc5041-8.3-5, rfc5041-8.3.2-1, rfc5040-8.1.2-8, rfc5041-8.3.2-7
#[tokio::test(start_paused = true)]
async fn i6_peers_that_pin_memory_leave_the_rest_to_other_addresses() {
    assert!(served_beside_silent_peers(None).await);
    // Without a share, such peers take all memory.
    assert!(!served_beside_silent_peers(Some(usize::MAX)).await);
}

#[tokio::test(start_paused = true)]
async fn i6_random_bytes_never_harm_others() {
    let scene = Scene::new().await;
    let mut seed = 0x9e37_79b9_u32;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed
    };
    for round in 0..300 {
        let mut peer = scene.connect().await;
        for _ in 0..8 {
            let length = usize::try_from(random() % 40).unwrap();
            let mut header = vec![7, 1, 1, random() % 6];
            header.extend((0..length).map(|_| if random() % 3 == 0 { random() } else { random() % 3 }));
            let mut bytes = words(&header);
            bytes.extend(words(&NULL_CALL));
            bytes.truncate(usize::try_from(random() % 200).unwrap());
            peer.send(bytes);
        }
        if round % 50 == 0 {
            peer.answers().await;
            scene.unharmed().await;
        }
    }
    scene.unharmed().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(scene.monitor.stats().connections, 1, "{:?}", scene.monitor.stats());
}
