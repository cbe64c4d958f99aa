//! Chunks in the reverse direction (RFC 8167 §5.3) and the inline limits without them (§4.2).

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{CallError, ClientConfig, Execution, Form, ServerConfig, Sink};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::world::{MIB, MODES, World};
use crate::support::{echo, echo_call, get, get_call, pattern, put, put_call};

/// Returns settings in which both sides take chunks in the reverse direction.
fn both_with_chunks() -> (ClientConfig, ServerConfig) {
    let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    (client, server)
}

/// RFC 8167 §5.3: without chunks, no message is longer than inline. Refused calls never leave.
#[tokio::test(start_paused = true)]
async fn s5_3_calls_over_the_inline_threshold_are_refused() {
    let world = World::new().await;
    let back = world.back();
    echo(&back, &pattern(3_000)).await.unwrap();
    let too_long = [
        echo_call(&pattern(5_000)).results(8),
        echo_call(b"").results(5_000),
        put_call(Bytes::from(pattern(5_000))),
        get_call(5_000, Sink::Pool(5_000)),
    ];
    for call in too_long {
        let error = back.call_raw(call).await.unwrap_err();
        assert!(
            matches!(
                error,
                CallError::CallTooLong { len, room } | CallError::ResultsTooLong { len, room }
                    if len > 5_000 && room == 4096
            ),
            "{error}"
        );
        assert_eq!(error.execution(), Execution::NotExecuted);
    }
    assert_eq!(world.client.stats().served, 1);
    echo(&back, &pattern(3_000)).await.unwrap();
    assert_eq!(world.client.stats().connections, 1);
    world.end().await;
}

/// RFC 8167 §4.2: the call threshold of one direction is the reply threshold of the other.
#[tokio::test(start_paused = true)]
async fn s4_2_thresholds_of_the_reverse_direction_are_those_of_the_forward_one_swapped() {
    for (to_client, to_server) in [(1024, 4096), (4096, 1024)] {
        let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
        client.protocol.receive_size = to_client;
        server.protocol.receive_size = to_server;
        let world = World::with(Default::default(), client, server).await;
        let back = world.back();
        // A long Call with a short reply, and the other way round.
        let calls = [echo_call(&pattern(2_000)).results(8), echo_call(b"").results(2_000)];
        for (call, allowed) in calls.into_iter().zip([to_client, to_server]) {
            let result = back.call_raw(call).await;
            // The reply of the first call does not fit its announced size, which the client finds out.
            let sent = !matches!(
                result,
                Err(CallError::CallTooLong { room: 1024, .. } | CallError::ResultsTooLong { room: 1024, .. })
            );
            assert_eq!(sent, allowed == 4096, "{to_client} {to_server} {result:?}");
        }
        world.end().await;
    }
}

/// A reply that does not fit inline is answered with ERR_CHUNK, as in the forward direction (RFC 8166 §4.5.3).
#[tokio::test(start_paused = true)]
async fn s5_3_a_reply_over_the_inline_threshold_is_an_error_of_its_call() {
    let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
    client.protocol.receive_size = 8192;
    server.protocol.send_size = 8192;
    let world = World::with(Default::default(), client, server).await;
    let back = world.back();
    let error = back.call_raw(echo_call(&pattern(5_000)).results(8)).await.unwrap_err();
    assert!(matches!(error, CallError::Chunk), "{error}");
    assert_eq!(error.execution(), Execution::Unknown);
    echo(&back, b"unharmed").await.unwrap();
    assert_eq!(world.client.stats().connections, 1);
    world.end().await;
}

/// RFC 8167 §5.3: a client without chunks in the reverse direction MUST answer Calls with chunks by ERR_CHUNK.
// requirement: rfc8167-5.3-1
#[tokio::test(start_paused = true)]
async fn s5_3_a_client_without_reverse_chunks_answers_err_chunk() {
    for mode in MODES {
        let (_, server) = both_with_chunks();
        let world = World::with(mode, ClientConfig::default(), server).await;
        let back = world.back();
        let calls = [
            put_call(Bytes::from(pattern(5_000))),
            get_call(5_000, Sink::Pool(5_000)),
            echo_call(&pattern(5_000)),
        ];
        for call in calls {
            let error = back.call_raw(call).await.unwrap_err();
            assert!(matches!(error, CallError::Chunk), "{error}");
        }
        echo(&back, b"unharmed").await.unwrap();
        assert_eq!(world.client.stats().connections, 1);
        assert_eq!(
            world.client.rdma().unwrap().connection_stats().unwrap().protocol.errors["reverse_chunks"],
            3
        );
        world.end().await;
    }
}

/// RFC 8167 §5.3: chunks operate the same way as in the forward direction.
#[tokio::test(start_paused = true)]
async fn s5_3_all_forms_in_the_reverse_direction() {
    for mode in MODES {
        let (mut client, mut server) = both_with_chunks();
        // The client reads and the server exposes memory, whatever was set for the forward direction.
        (client.ord, server.ird) = (0, 0);
        let world = World::with(mode, client, server).await;
        let back = world.back();
        let written = put(&back, Bytes::from(pattern(MIB))).await.unwrap().travelled;
        assert_eq!((written.call.form, written.call.read), (Form::Reduced, MIB));
        let copied = world.client.stats().payload_bytes_copied;
        let read = get(&back, MIB).await.unwrap().travelled;
        assert_eq!((read.reply.form, read.reply.written), (Form::Reduced, MIB));
        assert_eq!((copied, world.client.stats().payload_bytes_copied), (0, 0));
        let long = echo(&back, &pattern(100_001)).await.unwrap().travelled;
        assert_eq!((long.call.form, long.reply.form), (Form::Long, Form::Long));
        // RFC 8797 §4.1: the R flags of both sides hold for both directions.
        for travelled in [written, read, long] {
            assert!(travelled.invalidations.remote >= 1, "{travelled}");
        }
        for length in [0, 1, 2, 3, 4, 5, 3_000, 4_096, 5_000, 65_537] {
            echo(&back, &pattern(length)).await.unwrap();
            put(&back, Bytes::from(pattern(length))).await.unwrap();
            get(&back, length).await.unwrap();
        }
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s5_3_windows_are_invalidated_by_their_side_if_the_other_does_not_do_it() {
    for client_says_so in [true, false] {
        let (mut client, mut server) = both_with_chunks();
        client.protocol.remote_invalidation = client_says_so;
        server.protocol.remote_invalidation = !client_says_so;
        let world = World::with(Default::default(), client, server).await;
        let travelled = get(&world.back(), MIB).await.unwrap().travelled;
        assert_eq!((travelled.invalidations.remote, travelled.invalidations.local), (0, 1));
        world.end().await;
    }
}

/// The client's memory bounds the memory that its server's Calls take.
#[tokio::test(start_paused = true)]
async fn i6_calls_of_the_server_wait_for_memory_of_the_client() {
    let (client, server) = both_with_chunks();
    let mut client = client;
    client.memory = 4 * MIB;
    let world = World::with(Default::default(), client, server).await;
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let back = world.back();
        tasks.spawn(async move { put(&back, Bytes::from(pattern(MIB))).await.map(drop) });
    }
    let mut most = 0;
    while !tasks.is_empty() {
        if let Some(done) = tasks.try_join_next() {
            done.unwrap().unwrap();
        }
        most = most.max(world.client.stats().memory_in_use);
        sleep(Duration::from_micros(50)).await;
    }
    assert!((MIB..=4 * MIB).contains(&most), "{most}");
    world.end().await;
    // A Call with more than the limit gets ERR_CHUNK, and nothing is read.
    let mut limits = ClientConfig::default();
    limits.protocol.reverse_chunks = true;
    limits.protocol.limits.read_total = 100_000;
    let world = World::with(Default::default(), limits, both_with_chunks().1).await;
    put(&world.back(), Bytes::from(pattern(99_000))).await.unwrap();
    let error = world.back().call_raw(put_call(Bytes::from(pattern(101_000)))).await.unwrap_err();
    assert!(matches!(error, CallError::Chunk), "{error}");
    assert_eq!(world.client.stats().connections, 1);
    world.end().await;
}
