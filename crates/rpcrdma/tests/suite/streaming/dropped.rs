//! Streams whose futures are dropped, on tokio's paused clock (rule I10).

use std::time::Duration;

use rpcrdma::streaming::{Pieces, receive, send};
use tokio::time::{sleep, timeout};

use super::world::{CALL_TIME, Objects, PIECE, World, pattern, pieces, read, write};

/// Waits until the calls in progress have ended, at both ends. Then drops what the server has stored.
async fn settle(world: &World, at_rest: usize) {
    sleep(Duration::from_millis(3 * CALL_TIME)).await;
    assert_eq!(world.client.stats().memory_in_use, at_rest, "the calls have given their memory back");
    world.objects.stored.lock().unwrap().clear();
}

/// Whenever a stream is dropped, its memory returns when its calls have ended. The connection stays, and the next stream
/// is whole.
#[tokio::test(start_paused = true)]
async fn i10_a_stream_to_the_server_may_be_dropped_at_any_time() {
    let world = World::new(Objects::default()).await;
    let (client, all) = (&world.client, pattern(9 * PIECE));
    // A Receive.
    let at_rest = client.stats().memory_in_use;
    let stream = || {
        let call = |offset, data| write(client, offset, data);
        send(client.domain(), &all[..], Pieces::of(PIECE).window(4), call)
    };
    assert_eq!(stream().await.unwrap(), pieces(9));
    settle(&world, at_rest).await;
    for millis in (0..3 * CALL_TIME).step_by(7) {
        let dropped = timeout(Duration::from_millis(millis), stream()).await;
        assert!(dropped.is_err(), "not at its end");
        settle(&world, at_rest).await;
    }
    assert_eq!(stream().await.unwrap(), pieces(9));
    assert_eq!(world.objects.stored_from(0), all);
    assert_eq!(client.stats().connections, 1);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_stream_from_the_server_may_be_dropped_at_any_time() {
    let world = World::with_object(9 * PIECE).await;
    let client = &world.client;
    // A Receive.
    let at_rest = client.stats().memory_in_use;
    let stream = async || {
        let mut target = Vec::new();
        let call = |offset, count| read(client, offset, count);
        receive(&mut target, Pieces::of(PIECE).window(4), call).await.map(|_| target)
    };
    assert_eq!(stream().await.unwrap(), pattern(9 * PIECE));
    settle(&world, at_rest).await;
    for millis in (0..3 * CALL_TIME).step_by(7) {
        let dropped = timeout(Duration::from_millis(millis), stream()).await;
        assert!(dropped.is_err(), "not at its end");
        settle(&world, at_rest).await;
    }
    assert_eq!(stream().await.unwrap(), pattern(9 * PIECE));
    assert_eq!(client.stats().connections, 1);
    world.end().await;
}
