//! The use of chunks by Linux: assumptions of our requester and responder.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use bytes::BytesMut;
use rpcrdma_capture::exchange::{Exchange, Exchanges};
use rpcrdma_capture::linux;
use rpcrdma_capture::session::{Item, Kind, Session};
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::ddp::{Tagged, Untagged};
use rpcrdma_iwarp::wire::fpdu::seal;
use rpcrdma_iwarp::wire::rdmap::Opcode;
use rpcrdma_proto::reassembly::Layout;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, ChunkLists, Codec, Header, Segment, WriteChunk};
use rpcrdma_proto::{Config, Limits};

/// The inline threshold of Linux in both directions, in bytes.
const INLINE: usize = 4096;

/// Returns calls and replies of all recordings in which both sides are Linux.
fn exchanges() -> Vec<Exchange> {
    let names = ["nfs3-acl", "nfs3-io", "nfs3-io-mtu1500", "nfs3-meta", "nfs41-meta"];
    let sessions = names.iter().flat_map(|name| linux::sessions(name).unwrap());
    sessions.flat_map(|session| Exchanges::of(&session).all).collect()
}

/// Chunks come back with their handles, offsets and number of segments, filled from the front. Segments without written
/// bytes (the pad of an unaligned direct READ) have length 0.
#[test]
fn returned_chunks_are_those_that_were_offered() {
    let (mut chunks, mut longer, mut unused) = (0, 0, 0);
    for exchange in exchanges() {
        let (offered, returned) =
            (exchange.call.lists().unwrap(), exchange.reply.as_ref().unwrap().lists().unwrap());
        assert_eq!(returned.write.len(), offered.write.len());
        assert_eq!(returned.reply.is_some(), offered.reply.is_some());
        let pairs =
            offered.write.iter().zip(&returned.write).chain(offered.reply.iter().zip(&returned.reply));
        for (offered, returned) in pairs {
            assert_eq!(offered.filled(returned.total()), *returned);
            chunks += 1;
            longer += usize::from(offered.total() > returned.total());
            unused += returned.segments.iter().filter(|segment| segment.length == 0).count();
        }
    }
    assert_eq!((chunks, longer, unused), (59, 55, 48));
}

/// A chunk has the bytes of its item and no pad, both in the client's Read chunks and in the server's Writes.
#[test]
fn chunks_have_no_pad() {
    let unaligned = |length: u64| !length.is_multiple_of(4);
    let mut read = 0;
    let mut written = 0;
    for exchange in exchanges() {
        let lists = exchange.call.lists().unwrap();
        read += lists.read.iter().filter(|entry| unaligned(entry.segment.length.into())).count();
        let returned = exchange.reply.as_ref().unwrap().lists().unwrap();
        written += returned.write.iter().filter(|chunk| unaligned(chunk.total())).count();
    }
    assert_eq!((read, written), (9, 16));
}

/// A Call that offers a Reply chunk gets its reply there, even a short one; our requester must not expect it inline.
#[test]
fn knfsd_always_uses_the_reply_chunk() {
    let mut shortest = u64::MAX;
    let mut used = 0;
    for exchange in exchanges() {
        let reply = exchange.reply.unwrap();
        let chunk = reply.lists().unwrap().reply.as_ref().map(WriteChunk::total);
        assert_eq!(chunk.is_some_and(|length| length > 0), matches!(reply.header.body, Body::NoMessage(_)));
        if let Some(length) = chunk {
            shortest = shortest.min(length);
            used += 1;
        }
    }
    assert_eq!((used, shortest), (35, 24));
}

/// Read lists follow our rules. A long Call has two segments at Position zero, a reduced Call has a chunk behind the
/// fixed part of its arguments.
#[test]
fn read_lists_are_accepted() {
    let (mut zero, mut other) = (0, 0);
    for exchange in exchanges() {
        let (call, lists) = (&exchange.call, exchange.call.lists().unwrap());
        let inline = if lists.has_position_zero() { 0 } else { call.message.len() };
        let layout = Layout::new(&lists.read, inline, &Limits::default()).unwrap();
        if layout.zero.is_some() {
            assert_eq!(lists.read.len(), 2);
            zero += 1;
        } else {
            other += lists.read.len();
        }
    }
    assert_eq!((zero, other), (3, 17));
}

/// knfsd invalidates remotely if and only if the Call registered one steering tag; the client announced support.
#[test]
fn send_with_invalidate_names_the_only_handle() {
    let mut seen = 0;
    for exchange in exchanges() {
        let handles: Vec<u32> = exchange.call.lists().unwrap().handles().collect();
        let reply = exchange.reply.unwrap();
        match reply.opcode {
            Opcode::SendInvalidate => {
                assert_eq!(handles, [reply.invalidate.unwrap()]);
                seen += 1;
            }
            other => {
                assert_eq!(other, Opcode::Send);
                assert_ne!(handles.len(), 1);
            }
        }
    }
    assert_eq!(seen, 41);
}

/// Steering tags change their key with each use, and offsets use all of their 64 bits.
#[test]
fn names_of_memory() {
    let segments: Vec<Segment> = exchanges()
        .iter()
        .flat_map(|exchange| {
            let lists = exchange.call.lists().unwrap();
            let reads = lists.read.iter().map(|entry| entry.segment);
            let writes = lists.write.iter().chain(&lists.reply).flat_map(|chunk| chunk.segments.clone());
            reads.chain(writes).collect::<Vec<_>>()
        })
        .collect();
    assert!(segments.iter().any(|segment| segment.offset >> 63 == 1));
    let again = |one: &Segment| {
        segments.iter().any(|other| other.handle >> 8 == one.handle >> 8 && other.handle != one.handle)
    };
    assert!(segments.iter().any(again));
}

/// Linux asks for 128 credits and grants 64; in the reverse direction it asks for 2 and gets a grant of 16.
#[test]
fn credits_and_the_backchannel() {
    let mut backchannel = 0;
    for exchange in exchanges() {
        let credits = (exchange.call.header.credit, exchange.reply.as_ref().unwrap().header.credit);
        match exchange.caller {
            Side::Client => assert_eq!(credits, (128, 64)),
            Side::Server => {
                assert_eq!(credits, (2, 16));
                assert!(exchange.call.lists().unwrap().is_empty());
                backchannel += 1;
            }
        }
    }
    assert!(backchannel > 0, "{backchannel}");
    // Our grant is that of knfsd, as a client of Linux expects.
    assert_eq!((Config::default().calls, Config::default().grant), (128, 64));
}

/// The threshold that both sides announce bounds the complete Send, header included; a byte more is answered by a
/// Terminate.
#[test]
fn sends_keep_within_the_inline_threshold() {
    let sent = exchanges()
        .iter()
        .flat_map(|exchange| [exchange.call.sent, exchange.reply.as_ref().unwrap().sent])
        .max();
    assert!(sent.unwrap() <= INLINE && sent.unwrap() > 3900, "{sent:?}");
    let config = Config::default();
    assert_eq!((config.send_size, config.receive_size), (INLINE, INLINE));
}

/// Found by fuzzing: each segment that a Call offered took as much memory as it named, up to 16 MiB, before any byte
/// had moved, and each reply that named the segment copied that.
#[test]
fn i6_chunks_take_memory_only_for_bytes_that_moved() {
    let segment = |handle| Segment { handle, length: 1 << 24, offset: 0 };
    let chunk = WriteChunk { segments: (0..16).map(segment).collect() };
    let lists = |write| ChunkLists { write, ..ChunkLists::default() };
    let send = |from, msn, kind: u8, lists: ChunkLists| {
        let header = Untagged { last: true, control: 0x43, invalidate: 0, queue: 0, msn, offset: 0 };
        let mut message = BytesMut::new();
        V1.encode(&Header::v1(7, 1, Body::Message(lists)), &mut message);
        let rpc = [0, 0, 0, 7, 0, 0, 0, kind];
        let bytes = seal(&[&header.encode()[..], &message, &rpc].concat(), false).unwrap();
        Item::new(from, Kind::Fpdu, bytes)
    };
    let write = |offset, payload: &[u8]| {
        let header = Tagged { last: true, control: 0x40, stag: 3, offset };
        let bytes = seal(&[&header.encode()[..], payload].concat(), false).unwrap();
        Item::new(Side::Server, Kind::Fpdu, bytes)
    };
    let items = vec![
        send(Side::Client, 1, 0, lists(vec![chunk.clone()])),
        write(0, b"front"),
        write(1 << 20, b"far behind a hole"),
        send(Side::Server, 1, 1, lists(vec![chunk.clone(), chunk])),
    ];
    let exchanges = Exchanges::of(&Session { items });
    let [first, second] = &exchanges.all[0].reply.as_ref().unwrap().moved[..] else { panic!("two chunks") };
    assert_eq!((&first.data[..], first.genuine), (&b"front"[..], false));
    assert_eq!((&second.data[..], second.genuine), (&b""[..], false));
}
