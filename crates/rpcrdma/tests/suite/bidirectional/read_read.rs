//! The Read-Read transfer model (RFC 5666 §3.8) through `Client` and `Server`, with calls of both directions at once.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma::experimental::ReadRead;
use rpcrdma::{ClientConfig, Form, ServerConfig};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::iwarp::pair;
use super::world::{MIB, MODES, World, credits};
use crate::support::{Caller, echo, get, pattern, put};

/// Returns settings in which both sides take part; the client offers neither Write list nor Reply chunk.
fn read_read(reverse: u32, forward: u32) -> (ClientConfig, ServerConfig) {
    let (mut client, mut server) = credits(reverse, forward);
    let mut model = ReadRead::default();
    model.withhold_chunks = true;
    client.protocol.compatibility.read_read = Some(model.clone());
    server.protocol.compatibility.read_read = Some(model);
    (client, server)
}

/// Makes calls and replies of all forms, one after the other.
async fn all_forms(client: &impl Caller) {
    for length in [0, 1, 3, 4, 5, 3_000, 4_096, 5_000, 65_537, MIB] {
        echo(client, &pattern(length)).await.unwrap();
        put(client, Bytes::from(pattern(length))).await.unwrap();
        get(client, length).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn s3_8_results_are_read_by_the_client() {
    for mode in MODES {
        let (client, server) = read_read(16, 64);
        let world = World::with(mode, client, server).await;
        let read = get(&world.client, MIB).await.unwrap().travelled;
        assert_eq!((read.reply.form, read.reply.read, read.reply.written), (Form::Reduced, MIB, 0));
        let long = echo(&world.client, &pattern(100_001)).await.unwrap().travelled;
        assert_eq!((long.reply.form, long.reply.reply_chunk), (Form::Long, 0));
        assert!(long.reply.read > 100_000, "{long:?}");
        all_forms(&world.client).await;
        assert_eq!(world.client.stats().connections, 1);
        world.end().await;
    }
}

/// RFC 5666 §11: an exposed reply holds the call's credit until its RDMA_DONE. The other direction is not held up.
#[tokio::test(start_paused = true)]
async fn s3_8_s11_results_are_read_while_the_server_calls() {
    for (reverse, forward) in [(16, 64), (2, 3)] {
        let (client, server) = read_read(reverse, forward);
        let world = World::with(Default::default(), client, server).await;
        let mut tasks = JoinSet::new();
        for i in 0..100 {
            let (client, back) = (world.client.clone(), world.back());
            tasks.spawn(async move {
                match i % 2 {
                    0 => drop(get(&client, i * 200).await.unwrap()),
                    _ => drop(echo(&client, &pattern(i * 100)).await.unwrap()),
                }
            });
            tasks.spawn(async move { drop(echo(&back, &pattern(i)).await.unwrap()) });
        }
        timeout(Duration::from_secs(50), tasks.join_all()).await.unwrap();
        assert_eq!((world.client.stats().connections, world.client.stats().timed_out), (1, 0));
        world.end().await;
    }
}

#[tokio::test]
async fn s3_8_results_are_read_over_iwarp() {
    let (client, server) = read_read(16, 64);
    let pair = pair(client, server).await;
    let read = get(&pair.client, MIB).await.unwrap().travelled;
    assert_eq!((read.reply.form, read.reply.read), (Form::Reduced, MIB));
    all_forms(&pair.client).await;
    let back = pair.back();
    let both = async {
        for i in 0..50 {
            echo(&back, &pattern(i)).await.unwrap();
        }
    };
    tokio::join!(all_forms(&pair.client), both);
    drop(back);
    assert_eq!(pair.client.stats().connections, 1);
    pair.end().await;
}
