//! How connections of both directions end in order: stopping, closing, idling; and handlers that panic.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rpcrdma::{CallError, ClientConfig, ServerConfig, Transport};
use rpcrdma_oncrpc::Refused;
use tokio::time::{sleep, timeout};

use super::world::{HOST, MODES, SERVER, World};
use crate::support::bounce::{Bounce, bounce, subscribe};
use crate::support::{PANIC, call, count, echo, sleep_call};

#[tokio::test(start_paused = true)]
async fn a_stopping_server_finishes_the_calls_of_both_directions() {
    for mode in MODES {
        let mut world = World::with(mode, Default::default(), Default::default()).await;
        bounce(&world.client, 1).await.unwrap();
        let nested = tokio::spawn({
            let client = world.client.clone();
            async move { bounce(&client, 6).await }
        });
        let reverse = tokio::spawn({
            let back = world.back();
            async move { back.call_raw(sleep_call(3_000)).await.map(drop) }
        });
        sleep(Duration::from_millis(1)).await;
        world.stop.take().unwrap().send(()).unwrap();
        assert_eq!(nested.await.unwrap().unwrap(), 6);
        reverse.await.unwrap().unwrap();
        timeout(Duration::from_secs(20), &mut world.task).await.unwrap().unwrap();
        assert_eq!((world.monitor.stats().connections, world.monitor.stats().memory_in_use), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stopped_waiting_says_so_to_those_who_call_back() {
    let mut server = ServerConfig::default();
    server.grace = Duration::from_secs(2);
    let mut world = World::with(Default::default(), ClientConfig::default(), server).await;
    let back = world.back();
    let reverse = tokio::spawn({
        let back = back.clone();
        async move { back.call_raw(sleep_call(30_000)).await.map(drop) }
    });
    sleep(Duration::from_secs(1)).await;
    world.stop.take().unwrap().send(()).unwrap();
    let error = reverse.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
    assert!(matches!(echo(&back, b"").await, Err(CallError::Unreachable { sent: false, .. })));
    world.task.await.unwrap();
    assert!(world.monitor.backchannels().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_closed_client_serves_no_more() {
    for mode in MODES {
        let world = World::with(mode, Default::default(), Default::default()).await;
        let back = world.back();
        echo(&back, b"first").await.unwrap();
        let reverse = tokio::spawn({
            let back = back.clone();
            async move { back.call_raw(sleep_call(30_000)).await.map(drop) }
        });
        let forward = tokio::spawn({
            let client = world.client.clone();
            async move { client.call_raw(sleep_call(2_000)).await.map(drop) }
        });
        sleep(Duration::from_secs(1)).await;
        let closing = tokio::spawn({
            let client = world.client.clone();
            async move { client.close().await }
        });
        sleep(Duration::from_millis(1)).await;
        // As long as a call of its own is in progress, the server may have to call to answer it.
        echo(&back, b"still served").await.unwrap();
        forward.await.unwrap().unwrap();
        closing.await.unwrap();
        let error = reverse.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
        // A closed client does not connect again to be called.
        sleep(Duration::from_secs(60)).await;
        assert!(world.monitor.backchannels().is_empty());
        world.end().await;
    }
}

/// A program that can call through its own client does not keep that client open.
#[tokio::test(start_paused = true)]
async fn a_client_that_serves_closes_with_its_last_handle() {
    let world = World::new().await;
    let other = rpcrdma::Client::builder().program(std::sync::Arc::new(Bounce::default()));
    let connector = std::sync::Arc::new(world.fabric.connector(HOST));
    let other = other.transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap();
    bounce(&other, 1).await.unwrap();
    assert_eq!(bounce(&other, 3).await.unwrap(), 3);
    let back = world.monitor.backchannels().pop().unwrap();
    drop(other);
    back.wait_ended().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.monitor.backchannels().len(), 1);
    world.end().await;
}

/// As at the server, the connection lives, and calls of both directions go on.
#[tokio::test(start_paused = true)]
async fn i6_a_panicking_handler_of_the_client_ends_only_its_call() {
    for mode in MODES {
        let world = World::with(mode, Default::default(), Default::default()).await;
        world.at_server.delay.store(500, Ordering::SeqCst);
        let forward = tokio::spawn({
            let client = world.client.clone();
            async move { count(&client).await }
        });
        sleep(Duration::from_millis(100)).await;
        let error = world.back().call_raw(call(PANIC)).await.unwrap_err();
        assert!(matches!(error, CallError::Refused(Refused::SystemError)), "{error}");
        assert_eq!(forward.await.unwrap().unwrap(), 1);
        assert_eq!((world.client.stats().connections, world.client.stats().retransmissions), (1, 0));
        echo(&world.back(), b"serving still").await.unwrap();
        world.end().await;
    }
}

/// RFC 8167 §5.4: as long as the server may call, the connection stays.
// requirement: rfc8167-5.4-1
// requirement: v2-07-4.6.5-1
#[tokio::test(start_paused = true)]
async fn s5_4_a_connection_whose_backchannel_is_kept_is_not_idle() {
    let config = ClientConfig::default();
    let world = World::with(Default::default(), config, ServerConfig::default()).await;
    subscribe(&world.client).await;
    sleep(3 * ServerConfig::RDMA_IDLE).await;
    assert_eq!(world.client.stats().connections, 1);
    echo(&world.back(), b"callback").await.unwrap();
    // No handle is left: the connection is closed like others, and the client opens another one to be called on.
    let subscribed = world.bounce.subscribed.lock().unwrap().pop().unwrap();
    sleep(2 * ServerConfig::RDMA_IDLE).await;
    assert!(subscribed.ended().is_none());
    drop(subscribed);
    sleep(ServerConfig::RDMA_IDLE - Duration::from_secs(1)).await;
    assert_eq!(world.client.stats().connections, 1);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.client.stats().connections, 2);
    echo(&world.back(), b"callback").await.unwrap();
    world.end().await;
}
