//! Connections that are lost with calls of both directions outstanding (RFC 8167 §5.4), and calls that are given up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{CallError, Execution, ServerConfig, Sink};
use rpcrdma_sim::CompletionMode;
use tokio::time::{sleep, timeout};

use super::world::{MIB, MODES, World, credits};
use crate::support::bounce::subscribe;
use crate::support::{COUNT, call, count, echo, echo_call, get_call, pattern, put_call, sleep_call};

#[tokio::test(start_paused = true)]
async fn s5_4_calls_of_the_server_end_with_their_connection() {
    for mode in MODES {
        let (client, server) = credits(1, 64);
        let world = World::with(mode, client, server).await;
        let back = world.back();
        assert!(back.ended().is_none());
        let in_flight = tokio::spawn({
            let back = back.clone();
            async move { back.call_raw(sleep_call(10_000)).await.map(drop) }
        });
        sleep(Duration::from_millis(1)).await;
        let queued = tokio::spawn({
            let back = back.clone();
            async move { back.call_raw(sleep_call(10_000)).await.map(drop) }
        });
        sleep(Duration::from_millis(1)).await;
        world.cut();
        // A call that left may have been carried out; a call that did not leave was not.
        let error = in_flight.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::ConnectionLost { .. }), "{error}");
        assert_eq!(error.execution(), Execution::Unknown);
        let error = queued.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Unreachable { sent: false, .. }), "{error}");
        assert_eq!(error.execution(), Execution::NotExecuted);
        // The handle reports the end, and its calls fail.
        assert!(back.wait_ended().await.is::<rpcrdma::CloseReason>());
        assert!(back.ended().is_some());
        let error = echo(&back, b"late").await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable { sent: false, .. }), "{error}");
        world.end().await;
    }
}

/// RFC 8167 §5.4: the server waits for the client, which keeps a connection even without calls of its own.
// requirement: rfc8167-5.4-1
#[tokio::test(start_paused = true)]
async fn s5_4_a_client_that_serves_comes_back_and_is_another_backchannel() {
    let world = World::new().await;
    let first = world.back();
    subscribe(&world.client).await;
    assert_eq!(world.bounce.subscribed.lock().unwrap().pop().unwrap(), first);
    let connections = world.client.stats().connections;
    world.cut();
    assert_eq!(world.client.rdma().unwrap().connected_again(connections).await, 2);
    first.wait_ended().await;
    sleep(Duration::from_secs(1)).await;
    let second = world.back();
    assert_ne!(first, second);
    // By a call, the client tells the server that it can be called again (RFC 8167 §6).
    subscribe(&world.client).await;
    assert_eq!(world.bounce.subscribed.lock().unwrap().pop().unwrap(), second);
    echo(&second, b"on the new connection").await.unwrap();
    assert!(echo(&first, b"on the old one").await.is_err());
    world.end().await;
}

/// RFC 8167 §5.4: a retransmission has the XID of the call that it repeats, and is carried out once (rule I8).
#[tokio::test(start_paused = true)]
async fn s5_4_i8_a_call_sent_again_on_the_next_backchannel_runs_once() {
    for mode in MODES {
        let world = World::with(mode, Default::default(), Default::default()).await;
        // The handler is at work when the connection ends; it finishes before the repeat comes, or after.
        for (runs, delay) in [(1, 500), (2, 5_000)] {
            world.at_client.delay.store(delay, Ordering::SeqCst);
            let back = world.back();
            let xid = back.next_xid();
            let again = || call(COUNT).name("COUNT").results(4);
            let lost = tokio::spawn({
                let back = back.clone();
                async move { back.call_as(xid, again()).await.map(drop) }
            });
            sleep(Duration::from_millis(100)).await;
            world.cut();
            assert!(matches!(lost.await.unwrap(), Err(CallError::ConnectionLost { .. })));
            sleep(Duration::from_secs(1)).await;
            let mut reply = world.back().call_as(xid, again()).await.unwrap();
            assert_eq!((reply.xid, reply.results.u32().unwrap()), (xid, runs));
            assert_eq!(world.at_client.count.load(Ordering::SeqCst), runs);
        }
        world.end().await;
    }
}

/// The client's own calls survive a loss while it serves (rule I8).
#[tokio::test(start_paused = true)]
async fn s5_4_i8_forward_calls_survive_a_loss_beside_reverse_ones() {
    for mode in MODES {
        let world = World::with(mode, Default::default(), Default::default()).await;
        world.at_server.delay.store(300, Ordering::SeqCst);
        for loss in 1..=5 {
            let forward = tokio::spawn({
                let client = world.client.clone();
                async move { count(&client).await }
            });
            let reverse = tokio::spawn({
                let back = world.back();
                async move { back.call_raw(sleep_call(10_000)).await.map(drop) }
            });
            sleep(Duration::from_millis(100)).await;
            world.cut();
            assert!(matches!(reverse.await.unwrap(), Err(CallError::ConnectionLost { .. })));
            assert_eq!(forward.await.unwrap().unwrap(), loss);
            assert_eq!(world.at_server.count.load(Ordering::SeqCst), loss);
        }
        assert_eq!(world.client.stats().connections, 6);
        world.end().await;
    }
}

/// Interrupts calls of either direction at any time, beside others that must not notice.
async fn interrupted(after: Duration, drop_it: bool, mode: CompletionMode) {
    let (mut client, mut server) = credits(4, 4);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    let world = World::with(mode, client, server).await;
    let back = world.back();
    for call in [
        put_call(Bytes::from(pattern(50_000))),
        get_call(50_000, Sink::Pool(50_000)),
        echo_call(&pattern(50_000)),
        sleep_call(100),
    ] {
        let other = world.back();
        let other = tokio::spawn(async move { echo(&other, &pattern(30_000)).await.map(drop) });
        if drop_it {
            let _ = timeout(after, back.call_raw(call)).await;
        } else {
            match back.call_raw(call.timeout(after)).await {
                Ok(_) | Err(CallError::TimedOut { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        other.await.unwrap().unwrap();
        echo(&back, b"unharmed").await.unwrap();
        echo(&world.client, b"unharmed").await.unwrap();
    }
    // All memory of abandoned calls comes back with their late replies, on the one connection.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.client.stats().connections, 1, "after {after:?}");
    drop(back);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_reverse_call_dropped_or_out_of_time_harms_no_other() {
    for mode in MODES {
        for micros in (1..120).step_by(13).chain([1_000]) {
            interrupted(Duration::from_micros(micros), true, mode).await;
            interrupted(Duration::from_micros(micros), false, mode).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn i10_a_reverse_call_dropped_before_it_left_never_leaves() {
    let (client, server) = credits(1, 64);
    let world = World::with(Default::default(), client, server).await;
    let back = world.back();
    let first = tokio::spawn({
        let back = back.clone();
        async move { back.call_raw(sleep_call(1_000)).await.map(drop) }
    });
    sleep(Duration::from_millis(10)).await;
    // The only credit is in use: these calls wait, and are given up.
    for _ in 0..3 {
        assert!(timeout(Duration::from_millis(100), count(&back)).await.is_err());
    }
    // Given up before the connection's task has seen the call.
    drop(Box::pin(count(&back)));
    let mut unseen = Box::pin(count(&back));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(unseen.as_mut().poll(cx).is_pending())).await);
    drop(unseen);
    first.await.unwrap().unwrap();
    echo(&back, b"unharmed").await.unwrap();
    assert_eq!(world.at_client.count.load(Ordering::SeqCst), 0);
    assert_eq!(world.monitor.stats().reverse_calls, 6);
    world.end().await;
}

/// Rule I10: the window of a call that is never answered stays the connection's until a timer closes it.
#[tokio::test(start_paused = true)]
async fn i10_memory_of_an_unanswered_reverse_call_comes_back_with_the_connection() {
    let (mut client, mut server) = credits(4, 4);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    let world = World::with(Default::default(), client, server).await;
    let back = world.back();
    echo(&back, b"").await.unwrap();
    let never = back.call_raw(get_call(MIB, Sink::Pool(MIB)).timeout(Duration::from_millis(1)));
    world.fabric.partition(0);
    let error = never.await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { sent: true, .. }), "{error}");
    assert!(world.monitor.stats().memory_in_use >= MIB, "the window stays open");
    back.wait_ended().await;
    assert!(world.monitor.stats().memory_in_use < MIB, "the connection was closed for it");
    sleep(Duration::from_secs(60)).await;
    echo(&world.back(), b"on a new connection").await.unwrap();
    world.end().await;
}

/// A client that does not answer costs its own connection after a time, not the server.
#[tokio::test(start_paused = true)]
async fn i6_a_reverse_call_without_a_reply_ends_by_its_time() {
    let mut server = ServerConfig::default();
    server.protocol.timeouts.call = Duration::from_secs(7);
    let world = World::with(Default::default(), Default::default(), server).await;
    let back = world.back();
    let error = back.call_raw(sleep_call(600_000)).await.unwrap_err();
    assert!(
        matches!(error, CallError::TimedOut { sent: true, after, .. } if after == Duration::from_secs(7))
    );
    assert_eq!(error.execution(), Execution::Unknown);
    back.wait_ended().await;
    sleep(Duration::from_secs(1)).await;
    echo(&world.back(), b"on a new connection").await.unwrap();
    world.end().await;
}
