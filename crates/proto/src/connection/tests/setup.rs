//! Limits of a connection at its start: the receive queue, private data, and Receives that the owner provides. The limits
//! of segments follow, which apply to each Call.

use std::sync::Arc;

use rpcrdma_verbs::{Capabilities, Key, ProtectionDomain};

use crate::testing::*;
use crate::two::characteristics::OPERATION_RECEIVES;
use crate::wire::{Body, ChunkLists, Segment, WriteChunk};
use crate::{Config, Connection, Post, Side, Versions};

fn with_queue(side: Side, config: &Config, max_recv_wr: usize) -> Connection {
    let mut capabilities = Capabilities::default();
    capabilities.max_recv_wr = max_recv_wr;
    let peer = Config::default().private_data().encode();
    Connection::new(side, Arc::new(config.clone()), &peer, &capabilities, std::time::Instant::now())
}

/// The credits that a connection requests in each Call.
fn requested(connection: &mut Connection) -> u32 {
    let offer = connection.core.ledger.ask_call((1, 1), true, &ProtectionDomain::new(1 << 20)).unwrap();
    offer.credit()
}

/// Each direction has half of the receive queue, beyond the Receives for operations, GRANTs and RDMA_DONEs.
#[test]
fn i3_the_receive_queue_that_was_asked_for_has_room_for_all_calls() {
    let all = [
        Versions::ONE,
        #[cfg(feature = "two")]
        Versions::both(crate::Profile::P1),
        #[cfg(feature = "two")]
        Versions::both(crate::Profile::P3),
    ];
    for versions in all {
        let config = Config { calls: 16, grant: 4, versions, ..Config::default() };
        let enough = config.max_recv_wr();
        // Version One has no operations.
        let least = if versions.profile().is_some() { enough } else { enough - OPERATION_RECEIVES };
        for (queue, credits) in [(enough, 16), (least, 16), (least - 1, 15), (least - 2, 15), (least - 3, 14)]
        {
            let mut connection = with_queue(Side::Client, &config, queue);
            assert_eq!(requested(&mut connection), credits, "{versions:?}: {queue}");
        }
    }
    assert_eq!(requested(&mut with_queue(Side::Client, &Config::default(), 3)), 1, "one for each direction");
}

/// Calls before the first grant use the half of the receive queue that belongs to the peer's Calls, and no more.
#[test]
fn i3_early_calls_are_bounded_by_half_of_the_receive_queue() {
    let config = Config { early_calls: 30, ..server_config() };
    let mut raw = Raw::new(Side::Server, config.clone());
    let now = raw.fabric.instant();
    let mut connection = with_queue(Side::Server, &config, 20);
    let posts = std::iter::from_fn(|| connection.poll_transmit(now, &mut raw.end.qp));
    assert_eq!(posts.filter(|post| matches!(post, Post::Receive(..))).count(), 10);
}

/// RFC 8797 §4.1: a side that announces nothing expects no invalidation of the peer, and sends none.
#[test]
fn rfc8797_s4_1_a_side_that_announces_nothing_takes_part_in_no_invalidation() {
    for (announce, invalidates) in [(true, true), (false, false)] {
        let config = Config { announce, remote_invalidation: true, ..server_config() };
        let connection = with_queue(Side::Server, &config, 64);
        assert_eq!(connection.core.peer.invalidates, invalidates, "announces: {announce}");
    }
}

/// Rule I3: the Receives that a listener reserved are posted first. Later ones come from the same share.
#[test]
fn i3_provided_receives_come_from_the_share_of_the_listener() {
    let config = Config { early_calls: 5, ..server_config() };
    let (count, len) = config.first_receives();
    assert_eq!((count, len), (5, 4096));
    let mut raw = Raw::new(Side::Server, config.clone());
    let now = raw.fabric.instant();
    let mut connection = with_queue(Side::Server, &config, 64);
    let own = ProtectionDomain::new(1 << 20);
    let share = own.share(usize::MAX);
    connection.provide(share.clone(), (0..3).map(|_| share.reserve(len).unwrap()).collect(), None);
    let before = (raw.end.domain.usage().in_use, own.usage().in_use);
    let posts: Vec<_> = std::iter::from_fn(|| connection.poll_transmit(now, &mut raw.end.qp)).collect();
    assert_eq!(posts.len(), 5);
    let room = ProtectionDomain::room_for(len);
    assert_eq!((raw.end.domain.usage().in_use, own.usage().in_use), (before.0, before.1 + 2 * room));
}

/// Returns a server's end whose Receives have memory apart, for so many of them, under a grant of `credits`.
fn raw_with_memory_apart(config: &Config, receives: usize, credits: u32) -> (Raw, ProtectionDomain) {
    let fabric = rpcrdma_sim::Fabric::new(rpcrdma_sim::FabricConfig::default());
    let nothing = ProtectionDomain::new(0);
    let mut raw =
        Raw::with_memory(&fabric, Side::Server, config.clone(), &Config::default(), (16, 16), nothing);
    let (_, len) = config.first_receives();
    let apart = ProtectionDomain::new(receives * ProtectionDomain::room_for(len));
    let share = apart.share(usize::MAX);
    share.keep(receives * ProtectionDomain::room_for(len));
    let first = (0..receives).map(|_| share.reserve(len).unwrap()).collect();
    raw.end.connection.provide(share, first, Some(credits));
    raw.settle();
    (raw, apart)
}

/// Rule I3: where Receives have memory apart, grants keep to its credits. A missing Receive waits for that memory, not for
/// the domain's, and the connection does not rest.
#[test]
fn i3_i6_a_receive_with_memory_apart_waits_for_that_memory_only() {
    use std::task::{Context, Waker};
    let mut cx = Context::from_waker(Waker::noop());
    let (mut raw, apart) = raw_with_memory_apart(&server_config(), 2, 2);
    assert_eq!((raw.end.connection.receives_posted(), apart.usage().in_use), (2, apart.usage().limit));
    raw.end.serving = false;
    for round in 0..3_u32 {
        let xids = [2 * round + 1, 2 * round + 2];
        for xid in xids {
            raw.send(message(&header(xid, Body::Message(ChunkLists::default())), &null(xid).message));
        }
        let now = raw.fabric.instant();
        let mut calls = std::mem::take(&mut raw.end.calls);
        assert_eq!(calls.len(), 2);
        // The message of an answered Call is still in use.
        let (first, second) = (calls.remove(0), calls.remove(0));
        let held = first.3.clone();
        raw.end.connection.reply(now, first.0, serve(first.3));
        raw.settle();
        assert_eq!(raw.last().0.credit, 1, "for the other Call");
        assert_eq!((raw.end.connection.wants_memory(), raw.end.connection.receives_posted()), (None, 0));
        assert!(raw.end.connection.poll_receives(&mut cx).is_pending());
        drop(held);
        assert!(raw.end.connection.poll_receives(&mut cx).is_ready());
        raw.settle();
        assert_eq!(raw.end.connection.receives_posted(), 1);
        raw.end.connection.reply(now, second.0, serve(second.3));
        raw.settle();
        assert_eq!(raw.last().0.credit, 2);
        assert_eq!((raw.end.connection.receives_posted(), apart.usage().in_use), (2, apart.usage().limit));
    }
    assert_eq!(raw.received.len(), 6);
}

/// Calls before the first grant are accepted as far as Receives are posted, also for other messages, although the grant
/// will be smaller. All are answered.
#[cfg(feature = "two")]
#[test]
fn i3_i6_early_calls_beyond_a_small_grant_are_answered() {
    let config = Config { early_calls: 16, versions: Versions::both(crate::Profile::P1), ..server_config() };
    let (mut raw, apart) = raw_with_memory_apart(&config, 2 + OPERATION_RECEIVES, 2);
    let early = u32::try_from(2 + OPERATION_RECEIVES).unwrap();
    raw.end.serving = false;
    for xid in 1..=early {
        raw.send(message(&header(xid, Body::Message(ChunkLists::default())), &null(xid).message));
    }
    assert_eq!((raw.end.calls.len(), raw.end.connection.receives_posted()), (2 + OPERATION_RECEIVES, 0));
    let now = raw.fabric.instant();
    for (token, _, _, call) in std::mem::take(&mut raw.end.calls) {
        raw.end.connection.reply(now, token, serve(call));
        raw.settle();
    }
    assert_eq!(raw.received.len(), 2 + OPERATION_RECEIVES);
    assert_eq!((raw.last().0.credit, raw.end.connection.wants_memory()), (2, None));
    assert!(raw.end.closed.is_none() && apart.usage().in_use == apart.usage().limit);
    assert!(raw.end.connection.receives_posted() >= 2);
}

/// The settings of a listener: no fewer Receives than the first Call needs, no more than the largest grant.
#[test]
fn i3_first_receives_are_within_the_grant() {
    for (early_calls, grant, count) in [(0, 8, 1), (1, 8, 1), (5, 8, 5), (9, 8, 8), (5, 0, 1)] {
        let config = Config { early_calls, grant, ..server_config() };
        assert_eq!(config.first_receives().0, count, "{early_calls} of {grant}");
    }
    for (receive_size, len) in [(1024, 1024), (512, 1024), (8192, 8192)] {
        let config = Config { receive_size, ..server_config() };
        assert_eq!((config.first_receives().1, config.largest_receive()), (len, len), "{receive_size}");
    }
}

/// A client of this configuration whose peer accepts segments of this length, and so many in all chunks of a message.
/// Returns what the Call offers; `None` if it is refused.
fn offered(config: Config, segments: (Option<u32>, Option<u32>), call: crate::Call) -> Option<ChunkLists> {
    let mut raw = Raw::new(Side::Client, config);
    let now = raw.fabric.instant();
    raw.end.connection.core.peer.segments = segments;
    raw.end.connection.call(now, call).unwrap();
    raw.settle();
    match raw.received.len() {
        0 => {
            assert!(raw.end.replies.remove(0).1.is_err());
            None
        }
        _ => match raw.last().0.body {
            Body::Message(lists) | Body::NoMessage(lists) => Some(lists),
            body => panic!("{body:?}"),
        },
    }
}

/// version-two-07 §5.2.4: no segment is longer than the peer accepts, and all chunks together have no more segments. A
/// peer that accepts no byte accepts no segment.
#[test]
fn v2_07_s5_2_4_segments_are_within_the_limits_of_the_peer() {
    let config = || Config { max_segments: 16, ..Config::default() };
    let lengths =
        |lists: ChunkLists| lists.write[0].segments.iter().map(|segment| segment.length).collect::<Vec<_>>();
    assert_eq!(offered(config(), (None, None), read(1, 5000)).map(lengths), Some(vec![5000]));
    assert_eq!(
        offered(config(), (Some(2000), None), read(1, 5000)).map(lengths),
        Some(vec![2000, 2000, 1000])
    );
    assert!(offered(config(), (Some(0), None), read(1, 5000)).is_none());
    assert!(offered(config(), (Some(2000), Some(3)), read(1, 5000)).is_some());
    assert!(offered(config(), (Some(2000), Some(2)), read(1, 5000)).is_none());
    assert!(offered(config(), (None, Some(0)), read(1, 5000)).is_none());
    let reduced = |longest| {
        let config = Config { reduce_from: Some(4), ..config() };
        offered(config, (Some(longest), None), write(1, 8)).map(|lists| lists.read.len())
    };
    assert_eq!((reduced(8), reduced(1)), (Some(1), Some(8)));
    assert!(reduced(0).is_none_or(|segments| segments == 0));
    for (all, leaves) in [(1, false), (2, true), (3, true)] {
        assert_eq!(offered(config(), (None, Some(all)), both(1, 40_000, 40_000)).is_some(), leaves, "{all}");
    }
}

/// A setting below 1024 bytes would make every chunk many segments: no segment is cut shorter for it.
#[test]
fn the_longest_segment_has_at_least_1024_bytes() {
    for (max_segment_len, expected) in
        [(1, vec![1024, 1024, 1024, 1024, 904]), (2000, vec![2000, 2000, 1000])]
    {
        let lists =
            offered(Config { max_segment_len, ..Config::default() }, (None, None), read(1, 5000)).unwrap();
        let lengths: Vec<_> = lists.write[0].segments.iter().map(|segment| segment.length).collect();
        assert_eq!(lengths, expected, "{max_segment_len}");
    }
}

/// What the owner says wakes a connection: nothing that it has to post is passed over.
#[test]
fn a_connection_looks_for_work_after_each_command() {
    let config = server_config();
    let commands: [fn(&mut Connection); 3] =
        [|connection| connection.fail_queued(), |connection| connection.refuse([1]), |_| ()];
    for command in commands {
        let mut raw = Raw::new(Side::Server, config.clone());
        let now = raw.fabric.instant();
        let mut connection = with_queue(Side::Server, &config, 64);
        command(&mut connection);
        assert!(connection.poll_transmit(now, &mut raw.end.qp).is_some());
    }
}

/// Rule I3: the receive queue keeps entries for the RDMA_DONEs of exposed replies.
#[cfg(feature = "retired")]
#[test]
fn i3_calls_leave_the_entries_of_rdma_dones_in_the_receive_queue() {
    let read_read = crate::ReadRead { exposed_replies: 3, ..crate::ReadRead::default() };
    let compatibility =
        crate::Compatibility { read_read: Some(read_read), ..crate::Compatibility::default() };
    let config = Config { calls: 16, grant: 16, compatibility, ..Config::default() };
    assert_eq!(config.max_recv_wr(), 2 * 16 + config.receives_beyond_calls());
    let enough = config.max_recv_wr() - OPERATION_RECEIVES;
    for (queue, credits) in [(enough, 16), (enough - 2, 15)] {
        assert_eq!(requested(&mut with_queue(Side::Client, &config, queue)), credits, "{queue}");
    }
    let least = Config { calls: 1, grant: 1, ..config };
    assert_eq!(
        least.max_recv_wr(),
        2 * 2 + least.receives_beyond_calls(),
        "a Call has to follow an RDMA_DONE"
    );
}

/// Too many or too long segments are refused where the Call is planned, and only those wait for an announcement.
#[test]
fn segments_of_an_item_are_within_our_own_settings() {
    let config = |max_segments| Config { max_segments, ..Config::default() };
    let longest = (Some(2000), None);
    assert!(offered(config(2), longest, read(1, 5000)).is_none());
    assert_eq!(
        offered(config(3), longest, read(1, 5000)).map(|lists| lists.write[0].segments.len()),
        Some(3)
    );
}

/// RFC 6581 §9.1: a peer that can have one RDMA Read outstanding reads chunks; one that can have none does not.
#[test]
fn rfc6581_s9_1_one_outstanding_rdma_read_is_enough() {
    for (ird, reads) in [(0, false), (1, true), (16, true)] {
        let mut capabilities = Capabilities::default();
        capabilities.ird = ird;
        let config = Arc::new(Config::default());
        let connection = Connection::new(Side::Client, config, &[], &capabilities, std::time::Instant::now());
        assert_eq!(connection.core.read_chunks(), reads, "{ird}");
    }
}

/// version-two-01 §5: a version begins with its own limits, and nothing of an earlier one holds.
#[test]
fn a_version_begins_with_its_own_limits() {
    let mut connection = with_queue(Side::Server, &server_config(), 64);
    let peer = &mut connection.core.peer;
    (peer.send_earlier, peer.invalidates) = (9999, false);
    let thresholds = crate::Thresholds { send: 2048, receive: 1024 };
    peer.begin(thresholds, true);
    assert_eq!((peer.thresholds, peer.send_earlier, peer.invalidates), (thresholds, 2048, true));
    peer.begin(thresholds, false);
    assert!(!peer.invalidates);
}

/// version-two-03 §6.2.3: a Call that names the handle 0 names none, even if the peer uses 0 as a handle.
#[test]
fn v2_03_s6_2_3_the_handle_zero_is_none() {
    let mut connection = with_queue(Side::Server, &server_config(), 64);
    let chunk = |handle| {
        let segment = Segment { handle, length: 8, offset: 0 };
        ChunkLists { write: vec![WriteChunk { segments: vec![segment] }], ..ChunkLists::default() }
    };
    let core = &mut connection.core;
    core.peer.invalidates = true;
    assert_eq!(core.invalidated_by_reply(&chunk(0), Some(0)), None);
    for handle in [1, 2] {
        assert_eq!(core.invalidated_by_reply(&chunk(handle), Some(handle)), Some(Key(handle)));
        assert_eq!(core.invalidated_by_reply(&chunk(handle), Some(0)), None);
        assert_eq!(core.invalidated_by_reply(&chunk(handle), None), Some(Key(handle)), "the first");
    }
    core.peer.invalidates = false;
    assert_eq!(core.invalidated_by_reply(&chunk(1), Some(1)), None);
}

/// version-two-07 §5.2.4: a Call gives up segments, down to one for each chunk, before it is refused.
#[test]
fn v2_07_s5_2_4_a_call_has_as_few_segments_as_the_peer_accepts() {
    let call = |data: usize, reply: usize| {
        let mut call = two(1, data, data);
        call.flavor_touches_data = true;
        call.reply = crate::ReplyShape::plain(reply);
        call
    };
    let count = |lists: ChunkLists| {
        (
            lists.read.len(),
            lists.write.iter().chain(&lists.reply).map(|chunk| chunk.segments.len()).sum::<usize>(),
        )
    };
    let all = |call, longest, most| offered(Config::default(), (longest, Some(most)), call).map(count);
    // Both data items, and what lies between them, are runs of their own. They are copied together if they have to be.
    assert_eq!(all(call(5000, 9000), None, 1), None, "a chunk each way needs two");
    let apart =
        |longest| all(call(5000, 9000), longest, 16).map_or(0, |(read, _)| u32::try_from(read).unwrap());
    assert!(apart(None) > 2);
    let joined = all(call(5000, 9000), None, apart(None)).expect("with fewer segments in each chunk");
    assert!(joined.0 < usize::try_from(apart(None)).unwrap() && joined.1 == 1, "{joined:?}");
    // The first chunk needs two of the longest segments.
    for most in 3..16 {
        assert!(all(call(5000, 9000), Some(9500), most).is_some(), "{most}");
    }
    let mut padded = store(1, 7001);
    padded.reply = crate::ReplyShape::plain(5000);
    assert_eq!(all(padded, Some(6000), 4), Some((2, 1)), "two of the longest segments");
    let mut long = store(1, 5000);
    long.reply = crate::ReplyShape::plain(9000);
    assert_eq!(all(long, None, 2), Some((1, 1)), "head and data are copied together");
    // Chunks without bytes count as chunks, and have no segment.
    let mut empty = store(1, 5000);
    empty.reply.sinks = vec![crate::Sink::Pool(0), crate::Sink::Pool(0), crate::Sink::Pool(5000)];
    assert_eq!(all(empty, None, 2), Some((1, 1)));
    // The first chunk needs two segments, or three, of the longest length.
    assert_eq!(all(call(5000, 9000), Some(9500), 4), Some((2, 1)));
    assert_eq!(all(call(6000, 5000), Some(5000), 4), Some((3, 1)), "not halved");
    // Exactly as many as the peer accepts.
    let mut results = two(1, 0, 0);
    results.reply.sinks = vec![crate::Sink::Pool(5000), crate::Sink::Pool(3000)];
    assert_eq!(all(results, Some(3000), 3), Some((0, 3)));
    let one = Config { reduce_from: Some(1), ..Config::default() };
    assert!(offered(one, (Some(0), None), write(1, 1)).is_none_or(|lists| lists.read.is_empty()));
    let limits = crate::Limits { segments_per_chunk: 0, ..crate::Limits::default() };
    assert!(offered(Config { limits, ..Config::default() }, (None, None), null(1)).is_some());
}
