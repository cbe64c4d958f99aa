//! Flow control (RFC 8167 §4): each direction has its own credits, and each credit is backed by a Receive.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpcrdma::{CallError, Client, ClientConfig, Execution, ServerConfig, Transport};
use rpcrdma_oncrpc::Refused;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::world::{HOST, SERVER, World, credits};
use crate::support::{call, count, echo, sleep_call};

/// RFC 8166 §3.3.3 also holds for the server's first Call: one may leave, then as many as its reply grants.
#[tokio::test(start_paused = true)]
async fn s4_1_i4_no_more_reverse_calls_in_flight_than_granted() {
    let (client, server) = credits(4, 64);
    let world = World::with(Default::default(), client, server).await;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let back = world.back();
        tasks.spawn(async move { back.call_raw(sleep_call(1_000)).await.map(drop) });
    }
    for (second, calls) in [(0, 1), (1, 5), (2, 9), (3, 13), (4, 17), (5, 20)] {
        sleep(Duration::from_millis(if second == 0 { 500 } else { 1_005 })).await;
        assert_eq!(world.at_client.calls.load(Ordering::SeqCst), calls, "after {second} s");
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    assert_eq!((world.client.stats().served, world.monitor.stats().reverse_calls), (20, 20));
    world.end().await;
}

/// A server never asks for more calls than its configuration sets, whatever the client would grant.
#[tokio::test(start_paused = true)]
async fn s4_1_no_more_reverse_calls_in_flight_than_requested() {
    let (client, mut server) = credits(64, 64);
    server.protocol.calls = 3;
    let world = World::with(Default::default(), client, server).await;
    echo(&world.back(), b"first").await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..9 {
        let back = world.back();
        tasks.spawn(async move { back.call_raw(sleep_call(1_000)).await.map(drop) });
    }
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.at_client.calls.load(Ordering::SeqCst), 1 + 3);
    let stats = world.client.rdma().unwrap().connection_stats().unwrap().protocol;
    assert_eq!(stats.credits_granted_to_peer, 3);
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    world.end().await;
}

/// RFC 8167 §4.1: the credits are accounted separately, so one direction does not hold up the other. Their numbers may
/// differ.
#[tokio::test(start_paused = true)]
async fn s4_1_neither_direction_is_blocked_by_the_other() {
    let (client, server) = credits(2, 3);
    let world = World::with(Default::default(), client, server).await;
    echo(&world.client, b"forward").await.unwrap();
    echo(&world.back(), b"reverse").await.unwrap();
    let stats = world.client.rdma().unwrap().connection_stats().unwrap().protocol;
    assert_eq!((stats.credits_granted_to_us, stats.credits_granted_to_peer), (3, 2));
    // All credits of one direction are in use.
    let mut forward = JoinSet::new();
    for _ in 0..6 {
        let client = world.client.clone();
        forward
            .spawn(async move { client.call_raw(sleep_call(60_000).timeout(Duration::MAX)).await.map(drop) });
    }
    sleep(Duration::from_secs(1)).await;
    for _ in 0..10 {
        echo(&world.back(), b"reverse").await.unwrap();
    }
    assert!(forward.join_all().await.iter().all(Result::is_ok));
    let mut reverse = JoinSet::new();
    for _ in 0..6 {
        let back = world.back();
        reverse
            .spawn(async move { back.call_raw(sleep_call(60_000).timeout(Duration::MAX)).await.map(drop) });
    }
    sleep(Duration::from_secs(1)).await;
    for _ in 0..10 {
        echo(&world.client, b"forward").await.unwrap();
    }
    assert!(reverse.join_all().await.iter().all(Result::is_ok));
    assert_eq!(world.client.stats().connections, 1);
    world.end().await;
}

/// RFC 8167 §4.3, rule I3: the Receives that each side has posted when both use all of their credits.
#[tokio::test(start_paused = true)]
async fn s4_3_i3_receives_back_both_directions() {
    let (client, mut server) = credits(5, 7);
    server.protocol.calls = 5;
    let world = World::with(Default::default(), client, server).await;
    // RFC 8167 §4.3.1: a client posts its reverse credits from the start, for a first flight of one.
    sleep(Duration::from_millis(1)).await;
    let receives = |world: &World| world.fabric.outstanding().receives;
    assert_eq!(receives(&world), 1 + 7, "and the server for early calls of a client");
    echo(&world.client, b"").await.unwrap();
    echo(&world.back(), b"").await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let (client, back) = (world.client.clone(), world.back());
        tasks.spawn(async move { client.call_raw(sleep_call(1_000)).await.map(drop) });
        tasks.spawn(async move { back.call_raw(sleep_call(1_000)).await.map(drop) });
    }
    sleep(Duration::from_millis(500)).await;
    // In flight, 7 forward and 5 reverse Calls have taken their Receives; each has one for its reply.
    assert!(receives(&world) >= 7 + 5, "{}", receives(&world));
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    // Idle, every credit has its Receive again, and replies need none: 5 at the client, 7 at the server. Receives that
    // were posted for replies are not withdrawn.
    let idle = receives(&world);
    assert!((5 + 7..=2 * (5 + 7)).contains(&idle), "{idle}");
    world.end().await;
}

/// RFC 8167 §6: a client that serves no program answers so, and grants no more than that takes.
#[tokio::test(start_paused = true)]
async fn s6_a_client_that_serves_nothing_answers_with_one_credit() {
    let world = World::new().await;
    let other = Client::builder()
        .transport(Transport::rdma_on(Arc::new(world.fabric.connector(HOST))))
        .connect(SERVER)
        .await;
    let other = other.unwrap();
    echo(&other, b"forward").await.unwrap();
    let back = world.monitor.backchannels().pop().unwrap();
    for _ in 0..3 {
        let mut tasks = JoinSet::new();
        for _ in 0..10 {
            let back = back.clone();
            tasks.spawn(async move { count(&back).await });
        }
        for refused in tasks.join_all().await {
            let error = refused.unwrap_err();
            assert!(matches!(error, CallError::Refused(Refused::ProgramUnavailable)), "{error}");
            assert_eq!(error.execution(), Execution::NotExecuted);
        }
    }
    assert_eq!(other.rdma().unwrap().connection_stats().unwrap().protocol.credits_granted_to_peer, 1);
    assert_eq!((other.stats().served, other.stats().connections), (30, 1));
    echo(&other, b"forward").await.unwrap();
    other.close().await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_a_backchannel_is_bounded() {
    let (client, mut server) = credits(1, 64);
    server.max_reverse_calls = 4;
    let world = World::with(Default::default(), client, server).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let back = world.back();
        tasks.spawn(async move { back.call_raw(sleep_call(1_000)).await.map(drop) });
    }
    sleep(Duration::from_millis(10)).await;
    let error = echo(&world.back(), b"").await.unwrap_err();
    assert!(matches!(error, CallError::QueueFull { limit: 4 }), "{error}");
    assert_eq!(error.execution(), Execution::NotExecuted);
    tasks.join_next().await.unwrap().unwrap().unwrap();
    echo(&world.back(), b"there is room again").await.unwrap();
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_set_not_to_call_does_not() {
    let mut server = ServerConfig::default();
    server.max_reverse_calls = 0;
    let world = World::with(Default::default(), ClientConfig::default(), server).await;
    let error = world.back().call_raw(call(0)).await.unwrap_err();
    assert!(matches!(error, CallError::QueueFull { limit: 0 }), "{error}");
    assert_eq!(world.client.stats().served, 0);
    world.end().await;
}
