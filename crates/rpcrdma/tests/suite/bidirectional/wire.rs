//! The bytes of the two directions on the wire (RFC 8167 §2.4, §5.1, §5.2).

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpcrdma_sim::{Delivery, MessageKind, Side};

use super::world::{World, credits};
use crate::support::{echo, put};

/// A Send as words, with its sender; the fabric's side A is the client.
type Sent = (Side, Vec<u32>);

/// Returns a record of all Sends, which grows with them.
fn tapped(world: &World) -> Arc<Mutex<Vec<Sent>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let taps = Arc::clone(&seen);
    world.fabric.tap(move |delivery: &Delivery| {
        if delivery.kind == MessageKind::Send {
            let words =
                delivery.message.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
            taps.lock().unwrap().push((delivery.from, words.collect()));
        }
    });
    seen
}

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// rdma_xid, rdma_vers, rdma_credit, rdma_proc, three empty lists, then the XID and direction of the RPC message.
fn inline(xid: u32, credit: u32, direction: u32) -> Vec<u32> {
    vec![xid, 1, credit, 0, 0, 0, 0, xid, direction]
}

// requirement: rfc8167-5.1-1, rfc8167-5.1-2, rfc8167-5.2-1, rfc8167-5.2-2
#[tokio::test(start_paused = true)]
async fn s5_1_s5_2_headers_of_the_reverse_direction() {
    let (client, server) = credits(5, 7);
    let asked = (client.protocol.calls, server.protocol.calls);
    let world = World::with(Default::default(), client, server).await;
    let seen = tapped(&world);
    let forward = echo(&world.client, b"forward").await.unwrap().xid;
    let reverse = echo(&world.back(), b"reverse").await.unwrap().xid;
    let next = echo(&world.back(), b"reverse").await.unwrap().xid;
    assert_ne!(reverse, next, "RFC 8167 §5.1: a fresh XID");
    let seen: Vec<_> =
        seen.lock().unwrap().iter().map(|(from, words)| (*from, words[..9].to_vec())).collect();
    // Each direction requests and grants its own credits (§4.1); the client grants at most 5, the server 7.
    let expected = [
        (Side::A, inline(forward, asked.0, CALL)),
        (Side::B, inline(forward, 7, REPLY)),
        (Side::B, inline(reverse, asked.1, CALL)),
        (Side::A, inline(reverse, 5, REPLY)),
        (Side::B, inline(next, asked.1, CALL)),
        (Side::A, inline(next, 5, REPLY)),
    ];
    assert_eq!(seen, expected);
    world.end().await;
}

/// RFC 8167 §2.4.1: concurrent Calls of both directions may have the same XID.
#[tokio::test(start_paused = true)]
async fn s2_4_1_the_same_xid_in_both_directions_at_once() {
    let world = World::new().await;
    let xid = echo(&world.client, b"").await.unwrap().xid.wrapping_add(1);
    let back = world.back();
    let (forward, reverse) = tokio::join!(
        world.client.call_raw(crate::support::sleep_call(10)),
        back.call_as(xid, crate::support::sleep_call(20))
    );
    let (mut forward, mut reverse) = (forward.unwrap(), reverse.unwrap());
    assert_eq!((forward.xid, reverse.xid), (xid, xid));
    assert_eq!((forward.results.u32().unwrap(), reverse.results.u32().unwrap()), (10, 20));
    drop((forward, reverse));
    world.end().await;
}

/// RFC 8166 §4.2.3, RFC 8797 §4.1: with chunks too, a reply returns the offered lists and invalidates a tag of its
/// Call.
#[tokio::test(start_paused = true)]
async fn s5_3_chunks_of_the_reverse_direction_on_the_wire() {
    let (mut client, mut server) = credits(5, 7);
    client.protocol.reverse_chunks = true;
    server.protocol.reverse_chunks = true;
    let world = World::with(Default::default(), client, server).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let taps = Arc::clone(&seen);
    world.fabric.tap(move |delivery: &Delivery| {
        taps.lock().unwrap().push((delivery.from, delivery.kind, delivery.key.is_some()));
    });
    put(&world.back(), Bytes::from(vec![7; 5_000])).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(
        seen,
        [
            (Side::B, MessageKind::Send, false),
            (Side::A, MessageKind::ReadRequest, true),
            (Side::B, MessageKind::ReadResponse, false),
            (Side::A, MessageKind::Send, true),
        ]
    );
    world.end().await;
}
