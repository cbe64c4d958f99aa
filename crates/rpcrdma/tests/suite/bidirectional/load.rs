//! Both sides call and serve at once, and call from inside handlers: no call waits for ever.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{CallError, ClientConfig, ServerConfig};
use rpcrdma_oncrpc::Refused;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::world::{MODES, World, credits};
use crate::support::bounce::{bounce, bounce_call};
use crate::support::{Caller, echo, get, pattern, put, sleep_call};

/// Makes one call of a mix.
async fn one(caller: &impl Caller, i: usize, chunks: bool) {
    match i % 4 {
        0 if chunks => drop(echo(caller, &pattern(i * 50)).await.unwrap()),
        1 if chunks => drop(put(caller, Bytes::from(pattern(i * 100))).await.unwrap()),
        2 if chunks => drop(get(caller, i * 100).await.unwrap()),
        3 => drop(caller.call_raw(sleep_call(u32::try_from(i % 7).unwrap())).await.unwrap()),
        _ => drop(echo(caller, &pattern(i)).await.unwrap()),
    }
}

/// RFC 8167 §2.3: both endpoints act as a Requester and a Responder at the same time.
async fn both_at_once(client: ClientConfig, server: ServerConfig) {
    let chunks = client.protocol.reverse_chunks;
    for mode in MODES {
        let world = World::with(mode, client.clone(), server.clone()).await;
        let mut tasks = JoinSet::new();
        for i in 0..200 {
            let (client, back) = (world.client.clone(), world.back());
            tasks.spawn(async move { one(&client, i, true).await });
            tasks.spawn(async move { one(&back, i, chunks).await });
        }
        timeout(Duration::from_secs(50), tasks.join_all()).await.unwrap();
        assert_eq!((world.client.stats().connections, world.client.stats().timed_out), (1, 0));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s2_3_both_sides_under_load() {
    let (client, server) = credits(16, 64);
    both_at_once(client, server).await;
}

#[tokio::test(start_paused = true)]
async fn s2_3_both_sides_under_load_with_chunks_both_ways() {
    let (mut client, mut server) = credits(16, 64);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    both_at_once(client, server).await;
}

#[tokio::test(start_paused = true)]
async fn s2_3_both_sides_under_load_with_a_credit_each() {
    let (mut client, mut server) = credits(1, 1);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    both_at_once(client, server).await;
}

/// A send queue that is always full makes both directions wait, not stop.
#[tokio::test(start_paused = true)]
async fn s2_3_both_sides_under_load_with_short_send_queues() {
    let (mut client, mut server) = credits(4, 4);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    (client.max_send_wr, server.max_send_wr) = (4, 4);
    both_at_once(client, server).await;
}

/// A handler calls back from inside a call, whose handler calls forward again, and so on.
#[tokio::test(start_paused = true)]
async fn s2_3_calls_from_inside_handlers() {
    for mode in MODES {
        let world = World::with(mode, ClientConfig::default(), ServerConfig::default()).await;
        // The first call of each direction brings its credits.
        assert_eq!(bounce(&world.client, 1).await.unwrap(), 1);
        for depth in 0..12 {
            assert_eq!(bounce(&world.client, depth).await.unwrap(), depth);
            assert_eq!(bounce(&world.back(), depth).await.unwrap(), depth);
        }
        assert_eq!(world.client.stats().connections, 1);
        world.end().await;
    }
}

/// A call that waits for another of its own direction holds a credit meanwhile. So `n` credits carry chains of up to
/// `n` calls in each direction, as long as all chains together have enough.
#[tokio::test(start_paused = true)]
async fn s2_3_chains_of_calls_within_few_credits() {
    for mode in MODES {
        let (client, server) = credits(4, 4);
        let world = World::with(mode, client, server).await;
        bounce(&world.client, 1).await.unwrap();
        // Two chains of two calls each way.
        let chains = Arc::new(Semaphore::new(2));
        let mut tasks = JoinSet::new();
        for i in 0..100 {
            let (client, back, chains) = (world.client.clone(), world.back(), Arc::clone(&chains));
            tasks.spawn(async move {
                let _chain = chains.acquire().await.unwrap();
                let times = if i % 2 == 0 { bounce(&client, 3).await } else { bounce(&back, 3).await };
                assert_eq!(times.unwrap(), 3);
            });
        }
        timeout(Duration::from_secs(50), tasks.join_all()).await.unwrap();
        assert_eq!(world.client.stats().timed_out, 0);
        world.end().await;
    }
}

/// With more nested calls than credits, neither side can answer the other first. The innermost call runs out of time,
/// and all others end.
#[tokio::test(start_paused = true)]
async fn i6_a_chain_longer_than_its_credits_ends_by_its_timers() {
    for mode in MODES {
        let (client, server) = credits(1, 1);
        let world = World::with(mode, client, server).await;
        assert_eq!(bounce(&world.client, 1).await.unwrap(), 1);
        let start = Instant::now();
        // The third call forward waits for the credit that the first holds.
        let error =
            world.client.call_raw(bounce_call(2).timeout(Duration::from_secs(100))).await.unwrap_err();
        assert!(matches!(error, CallError::Refused(Refused::SystemError)), "{error}");
        assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());
        assert_eq!(bounce(&world.client, 1).await.unwrap(), 1, "unharmed");
        assert_eq!(world.client.stats().connections, 1);
        world.end().await;
    }
}
