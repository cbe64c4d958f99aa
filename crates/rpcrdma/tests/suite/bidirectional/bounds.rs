//! Peers that violate RFC 8167: a client that answers the server's Calls wrongly, a server that calls a client wrongly.
//! Each harms only its own connection (rule I6).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpcrdma::{Backchannel, CallError, Client, ClientConfig, ServerConfig, Transport};
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig, SimListener};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::world::{HOST, SERVER, World};
use crate::support::raw::{Peer, message, words};
use crate::support::{self, TestProgram, call, echo, program};

const BAD: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 66));

/// Returns a client that sends any bytes, and the server's backchannel to it.
async fn bad_client(world: &World) -> (Peer, Backchannel) {
    let known = world.monitor.backchannels();
    let peer = Peer::connect(&world.fabric, BAD, SERVER).await;
    loop {
        if let Some(back) = world.monitor.backchannels().into_iter().find(|back| !known.contains(back)) {
            return (peer, back);
        }
        tokio::task::yield_now().await;
    }
}

fn null(back: &Backchannel) -> JoinHandle<Result<(), CallError>> {
    let back = back.clone();
    tokio::spawn(async move { back.call_raw(call(0).timeout(Duration::from_secs(20))).await.map(drop) })
}

/// Returns a message of these words with the call's XID in place of 7.
fn with_xid(bytes: &[u8], xid: &[u8]) -> Vec<u8> {
    let words = bytes.chunks_exact(4);
    words.flat_map(|word| if word == [0, 0, 0, 7] { xid.to_vec() } else { word.to_vec() }).collect()
}

/// RFC 8166 §4.5: wrong replies are discarded, in this direction too; the call waits for its timer.
#[tokio::test(start_paused = true)]
async fn s5_2_i6_replies_that_are_wrong_are_discarded() {
    let world = World::new().await;
    let reply = [7, 1, 0, 0, 0, 0];
    let rpc = |header: &[u32]| [words(header), words(&reply)].concat();
    let cases: &[(&str, Vec<u8>)] = &[
        ("another XID", [words(&[8, 1, 1, 0, 0, 0, 0]), words(&[8, 1, 0, 0, 0, 0])].concat()),
        ("XIDs that differ", [words(&[7, 1, 1, 0, 0, 0, 0]), words(&[8, 1, 0, 0, 0, 0])].concat()),
        ("a Write list that nobody offered", rpc(&[7, 1, 1, 0, 0, 1, 1, 0xbad, 8, 0, 0, 0, 0])),
        ("a Reply chunk that nobody offered", rpc(&[7, 1, 1, 0, 0, 0, 1, 1, 0xbad, 8, 0, 0])),
        ("a Read list", rpc(&[7, 1, 1, 0, 1, 40, 0xbad, 8, 0, 0, 0, 0, 0])),
        ("RDMA_ERROR for another XID", words(&[8, 1, 1, 4, 2])),
        ("RDMA_ERROR that is cut off", words(&[7, 1, 1, 4])),
        ("RDMA_ERROR of an unknown kind", words(&[7, 1, 1, 4, 9])),
        ("RDMA_DONE", words(&[7, 1, 1, 3])),
        ("nothing", Vec::new()),
    ];
    for (name, bytes) in cases {
        let (mut peer, back) = bad_client(&world).await;
        let call = null(&back);
        let (calls, _) = peer.answers().await;
        assert_eq!(calls.len(), 1, "{name}");
        let xid = calls[0][..4].to_vec();
        peer.send(with_xid(bytes, &xid));
        let (answers, ended) = peer.answers().await;
        assert!(answers.is_empty() && !ended && !call.is_finished(), "{name}");
        // The right reply still arrives.
        peer.send(with_xid(&rpc(&[7, 1, 1, 0, 0, 0, 0]), &xid));
        peer.leave().await;
        call.await.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
        echo(&world.client, b"unharmed").await.unwrap();
    }
    world.end().await;
}

/// RFC 8166 §3.3.1: a grant of 0 counts as 1, and a grant beyond the request counts as the request.
#[tokio::test(start_paused = true)]
async fn s4_1_i4_grants_of_a_bad_client_are_bounded() {
    for (grant, in_flight) in [(0, 1), (3, 3), (u32::MAX, 8)] {
        assert_eq!(ServerConfig::REVERSE_CALLS, 8);
        let world = World::new().await;
        let (mut peer, back) = bad_client(&world).await;
        let first = null(&back);
        let (calls, _) = peer.answers().await;
        let reply = [words(&[7, 1, grant, 0, 0, 0, 0]), words(&[7, 1, 0, 0, 0, 0])].concat();
        peer.send(with_xid(&reply, &calls[0][..4]));
        peer.leave().await;
        first.await.unwrap().unwrap();
        let waiting: Vec<_> = (0..30).map(|_| null(&back)).collect();
        let (calls, ended) = peer.answers().await;
        assert!(!ended);
        assert_eq!(calls.len(), in_flight, "granted {grant}");
        for call in waiting {
            let error = call.await.unwrap().unwrap_err();
            assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
        }
        echo(&world.client, b"unharmed").await.unwrap();
        drop(peer);
        world.end().await;
    }
}

/// A client takes the server's Calls and answers none. Few of them wait, each ends by its timer, and so does the
/// connection.
#[tokio::test(start_paused = true)]
async fn i6_a_client_that_never_answers_costs_few_calls_and_no_worker() {
    const WAITING: usize = 16;
    let mut server = ServerConfig::default();
    server.max_reverse_calls = WAITING;
    let world = World::with(CompletionMode::Local, ClientConfig::default(), server).await;
    let good = world.back();
    // The first replies bring the credits, and with them the Receives.
    echo(&good, b"called").await.unwrap();
    echo(&world.client, b"served").await.unwrap();
    let (mut peer, back) = bad_client(&world).await;
    sleep(Duration::from_millis(1)).await;
    let held = world.monitor.stats().memory_in_use;
    for round in 0..3 {
        let calls: Vec<_> = (0..1000).map(|_| null(&back)).collect();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(calls.iter().filter(|call| !call.is_finished()).count(), WAITING);
        // A Receive for the reply of the call that left.
        let now = world.monitor.stats().memory_in_use;
        assert!(now <= held + 4096, "round {round}: {held}, then {now}");
        // Another client is called and served meanwhile.
        echo(&good, b"called").await.unwrap();
        echo(&world.client, b"served").await.unwrap();
        let (mut refused, mut timed_out) = (0, 0);
        for call in calls {
            match call.await.unwrap().unwrap_err() {
                CallError::QueueFull { limit: WAITING } => refused += 1,
                CallError::TimedOut { .. } => timed_out += 1,
                other => panic!("{other}"),
            }
        }
        assert_eq!((refused, timed_out), (1000 - WAITING, WAITING));
    }
    // RFC 8167 §4.1: one Call left before the first reply, however many waited.
    let (calls, ended) = peer.answers().await;
    assert_eq!((calls.len(), ended), (1, false));
    // Its memory waits for the late reply as long as the timer says.
    sleep(ServerConfig::default().protocol.timeouts.abandoned).await;
    assert!(back.ended().is_some());
    assert!(matches!(null(&back).await.unwrap(), Err(CallError::Unreachable { sent: false, .. })));
    echo(&good, b"unharmed").await.unwrap();
    drop((good, peer));
    world.end().await;
}

/// A client ends its connection over a tag of another call, or over no tag.
#[tokio::test(start_paused = true)]
async fn i6_a_client_that_leaves_ends_only_its_own_backchannel() {
    let world = World::new().await;
    let (peer, back) = bad_client(&world).await;
    let call = null(&back);
    sleep(Duration::from_millis(1)).await;
    drop(peer);
    assert!(matches!(call.await.unwrap(), Err(CallError::ConnectionLost { .. })));
    assert!(matches!(null(&back).await.unwrap(), Err(CallError::Unreachable { sent: false, .. })));
    echo(&world.back(), b"unharmed").await.unwrap();
    world.end().await;
}

/// Returns a server that sends any bytes to a client with a program.
async fn bad_server(config: ClientConfig) -> (SimListener, Peer, Client, Arc<TestProgram>) {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let mut listener = fabric.listen(SERVER).unwrap();
    let program = program();
    let client = Client::builder().config(config).program(Arc::clone(&program) as _);
    let connector = Arc::new(fabric.connector(HOST));
    let (client, peer) = tokio::join!(
        client.transport(Transport::rdma_on(connector)).connect(SERVER),
        Peer::accept(&mut listener)
    );
    (listener, peer, client.unwrap(), program)
}

/// Returns a Call of the server under XID 7 that takes a minute.
fn sleeping() -> Vec<u8> {
    let header = words(&[7, 1, 100, 0, 0, 0, 0]);
    [header, words(&[7, 0, 2, support::PROGRAM, 1, support::SLEEP, 0, 0, 0, 0, 60_000])].concat()
}

/// Rule I3: a Call may come without a grant; one beyond every grant ends the connection.
#[tokio::test(start_paused = true)]
async fn s4_1_i3_calls_beyond_the_reverse_grant_end_their_connection() {
    let mut config = ClientConfig::default();
    config.protocol.grant = 4;
    for (granted, beyond) in [(false, 2), (true, 5)] {
        let (_listener, mut peer, client, program) = bad_server(config.clone()).await;
        if granted {
            peer.send(message(&[7, 1, 100, 0, 0, 0, 0]));
            let (answers, _) = peer.answers().await;
            assert_eq!(answers[0][8..12], words(&[4])[..], "asked for 100, granted 4");
        }
        for _ in 1..beyond {
            peer.send(sleeping());
        }
        let (_, ended) = peer.answers().await;
        assert!(!ended, "{granted}");
        assert_eq!(program.calls.load(Ordering::SeqCst), beyond - 1);
        peer.send(sleeping());
        let (_, ended) = peer.answers().await;
        assert!(ended, "{granted}");
        drop(client);
    }
}

/// RFC 8167 §5.3: each list that is not empty gets ERR_CHUNK. RFC 8166 §4.5: headers that do not parse have no
/// direction, and count as replies.
// requirement: rfc8167-5.3-1
#[tokio::test(start_paused = true)]
async fn s5_3_i6_headers_of_a_bad_server() {
    let (_listener, mut peer, client, _) = bad_server(ClientConfig::default()).await;
    let chunked = [
        message(&[7, 1, 1, 0, 1, 40, 0xbad, 8, 0, 0, 0, 0, 0]),
        message(&[7, 1, 1, 0, 0, 1, 1, 0xbad, 8, 0, 0, 0, 0]),
        message(&[7, 1, 1, 0, 0, 0, 1, 1, 0xbad, 8, 0, 0]),
        words(&[7, 1, 1, 1, 1, 0, 0xbad, 40, 0, 0, 0, 0, 0]),
        // RDMA_MSGP (RFC 8166 §4.6.1)
        message(&[7, 1, 1, 2, 0, 0, 0, 0, 0]),
    ];
    for bytes in chunked {
        peer.send(bytes.clone());
        let (answers, ended) = peer.answers().await;
        assert!(!ended && answers.len() == 1, "{bytes:?}");
        assert_eq!(answers[0], words(&[7, 1, 1, 4, 2]), "{bytes:?}");
    }
    let discarded = [
        message(&[7, 1, 1, 9, 0, 0, 0]),
        message(&[7, 1, 1, 0, 2, 0, 0]),
        message(&[7, 3, 1, 0, 0, 0, 0]),
        words(&[7, 1, 1, 4, 2]),
        words(&[7, 1]),
        Vec::new(),
    ];
    for bytes in discarded {
        peer.send(bytes.clone());
        let (answers, ended) = peer.answers().await;
        assert!(answers.is_empty() && !ended, "{bytes:?}: {answers:?}");
    }
    // Every Receive that these messages took is posted again.
    for _ in 0..20 {
        peer.send(message(&[7, 1, 1, 0, 0, 0, 0]));
        let (answers, ended) = peer.answers().await;
        assert!(!ended);
        assert_eq!(answers[0][28..], words(&[7, 1, 0, 0, 0, 0])[..]);
    }
    assert_eq!(client.stats().connections, 1);
}

/// A server calls and leaves, again and again. It has no more handlers at work in its client than one connection
/// allows.
#[tokio::test(start_paused = true)]
async fn i6_calls_of_a_server_that_leaves_do_not_pile_up() {
    let mut config = ClientConfig::default();
    config.protocol.grant = 3;
    config.protocol.timeouts.reconnect_least = Duration::from_millis(1);
    let (mut listener, first, client, program) = bad_server(config).await;
    let mut first = Some(first);
    for _ in 0..10 {
        let mut peer = match first.take() {
            Some(peer) => peer,
            None => Peer::accept(&mut listener).await,
        };
        peer.send(message(&[7, 1, 100, 0, 0, 0, 0]));
        peer.answers().await;
        for _ in 0..3 {
            peer.send(sleeping());
        }
        peer.answers().await;
    }
    assert!(client.stats().connections >= 10);
    assert_eq!(program.calls.load(Ordering::SeqCst), 3, "handlers sleep for a minute");
}
