//! Every form of transfer, both ways, in both completion modes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma_sim::{CompletionMode, FabricConfig, MessageKind, Side as SimSide};
use rpcrdma_verbs::{Buffer, Capabilities};

use crate::testing::*;
use crate::{CallError, Config, Form, Invalidations, Sink};

fn fabrics() -> Vec<FabricConfig> {
    let jitter = Duration::from_micros(50);
    let mut plain = Capabilities::default();
    plain.remote_invalidation = false;
    vec![
        FabricConfig::default(),
        FabricConfig { completion_mode: CompletionMode::Acknowledged, ..FabricConfig::default() },
        FabricConfig {
            seed: 7,
            jitter,
            completion_jitter: jitter,
            segment_size: 700,
            ..FabricConfig::default()
        },
        FabricConfig { bandwidth: None, capabilities: plain, ..FabricConfig::default() },
    ]
}

fn pairs() -> impl Iterator<Item = Pair> {
    let cut = Config { max_segment_len: 1500, ..Config::default() };
    let pairs = fabrics().into_iter().flat_map(move |fabric| {
        [Config::default(), cut.clone()].map(|client| Pair::with(fabric.clone(), client, server_config()))
    });
    pairs.collect::<Vec<_>>().into_iter()
}

#[test]
fn inline_both_ways() {
    for mut pair in pairs() {
        let reply = pair.round_trip(null(1));
        assert_eq!((reply.call.form, reply.reply.form), (Form::Inline, Form::Inline));
        assert_eq!((reply.call.sent, reply.reply.sent), (68, 52));
        assert_eq!(reply.invalidations, Invalidations::default());
        check_reply(0, 0, reply);
        let reply = pair.round_trip(echo(2, 1000));
        assert_eq!((reply.call.form, reply.reply.form), (Form::Inline, Form::Inline));
        check_reply(ECHO, 1000, reply);
        pair.check_no_leak();
    }
}

#[test]
fn read_chunks() {
    for len in [4096, 4097, 5001, 20_003] {
        for mut pair in pairs() {
            let reply = pair.round_trip(write(1, len));
            assert_eq!(
                (reply.call.form, reply.call.read, reply.reply.form),
                (Form::Reduced, len, Form::Inline)
            );
            check_reply(WRITE, len, reply);
            assert_eq!(pair.client.connection.stats().payload_bytes_copied, 0);
            assert_eq!(pair.server.connection.stats().payload_bytes_copied, 0);
            pair.check_no_leak();
        }
    }
}

#[test]
fn write_chunks() {
    for len in [4096, 4097, 5001, 20_003] {
        for mut pair in pairs() {
            let reply = pair.round_trip(read(1, len));
            assert_eq!(
                (reply.call.form, reply.reply.form, reply.reply.written),
                (Form::Inline, Form::Reduced, len)
            );
            check_reply(READ, len, reply);
            assert_eq!(pair.client.connection.stats().payload_bytes_copied, 0);
            assert_eq!(pair.server.connection.stats().payload_bytes_copied, 0);
            pair.check_no_leak();
        }
    }
}

/// Write chunks longer than their data, and unused ones.
#[test]
fn write_chunks_that_are_not_filled() {
    for (len, room) in [(5001, 8192), (1, 8192), (0, 8192), (3001, 20_000)] {
        for mut pair in pairs() {
            let mut call = read(1, len);
            call.reply.sinks = vec![Sink::Pool(room)];
            let reply = pair.round_trip(call);
            assert_eq!(reply.reply.written, len);
            check_reply(READ, len, reply);
            pair.check_no_leak();
        }
    }
}

#[test]
fn read_and_write_chunks_in_one_call() {
    for mut pair in pairs() {
        let reply = pair.round_trip(echo(1, 9001));
        assert_eq!((reply.call.form, reply.reply.form), (Form::Reduced, Form::Reduced));
        check_reply(ECHO, 9001, reply);
        pair.check_no_leak();
    }
}

// requirement: rfc8166-3.5.3-1, rfc8166-3.5.3-2, rfc8166-4.2.4-1
#[test]
fn position_zero_chunk() {
    for len in [4096, 9001, 20_003] {
        for mut pair in pairs() {
            let reply = pair.round_trip(store(1, len));
            assert_eq!((reply.call.form, reply.reply.form), (Form::Long, Form::Inline));
            check_reply(STORE, len, reply);
            pair.check_no_leak();
        }
    }
}

// requirement: rfc8166-3.5.3-3, rfc8166-3.5.3-4
#[test]
fn reply_chunk() {
    for len in [4096, 9001, 20_003] {
        for mut pair in pairs() {
            let reply = pair.round_trip(list(1, len));
            assert_eq!((reply.call.form, reply.reply.form), (Form::Inline, Form::Long));
            assert_eq!(reply.reply.reply_chunk, REPLY_HEADER + len.next_multiple_of(4));
            check_reply(LIST, len, reply);
            pair.check_no_leak();
        }
    }
}

#[test]
fn reply_chunk_that_is_not_needed() {
    for mut pair in pairs() {
        let mut call = list(1, 100);
        call.reply.max_len = 8000;
        let reply = pair.round_trip(call);
        assert_eq!((reply.reply.form, reply.reply.reply_chunk), (Form::Inline, 0));
        check_reply(LIST, 100, reply);
        pair.check_no_leak();
    }
}

#[test]
fn write_list_and_reply_chunk_together() {
    for mut pair in pairs() {
        let reply = pair.round_trip(both(1, 7001, 6003));
        assert_eq!((reply.reply.form, reply.reply.written), (Form::Long, 7001));
        let mut message = reply.message;
        message.bytes_fixed(24).unwrap();
        assert_eq!(message.payload(MAX).unwrap(), pattern(7001));
        assert_eq!(message.opaque(MAX).unwrap(), pattern(6003));
        message.finish().unwrap();
        pair.check_no_leak();
    }
}

// requirement: experience-3.5.1-1
#[test]
fn several_chunks_each_way_and_interleaved_with_position_zero() {
    for max_read_chunks in [0, 1, 2] {
        for fabric in fabrics() {
            let client = Config { max_read_chunks, max_segment_len: 2000, ..Config::default() };
            let mut pair = Pair::with(fabric, client, server_config());
            let reply = pair.round_trip(two(1, 6001, 5002));
            let expected = if max_read_chunks == 2 { Form::Reduced } else { Form::Long };
            assert_eq!((reply.call.form, reply.reply.form), (expected, Form::Reduced));
            let joined = [pattern(6001), pattern(5002)].concat();
            let mut message = reply.message;
            message.bytes_fixed(24).unwrap();
            assert_eq!(message.payload(MAX).unwrap(), joined);
            assert_eq!(message.payload(MAX).unwrap(), joined);
            message.finish().unwrap();
            pair.check_no_leak();
        }
    }
}

/// "PZRC with more than one segment truncated": long calls in 1, 2 and 16 segments.
#[test]
fn long_calls_in_many_segments() {
    for segments in [1, 2, 16] {
        let len = 16_000;
        let client = Config { max_segment_len: (len + 200) / segments + 1, ..Config::default() };
        let mut pair = Pair::with(FabricConfig::default(), client, server_config());
        check_reply(STORE, len, pair.round_trip(store(1, len)));
        assert!(pair.client.connection.stats().read_segments >= u64::try_from(segments).unwrap());
    }
}

#[test]
fn s8_2_2_3_a_flavour_that_touches_the_data_reduces_nothing() {
    for mut pair in pairs() {
        let mut call = echo(1, 9001);
        call.flavor_touches_data = true;
        pair.server.serving = false;
        let id = pair.call(call);
        pair.settle();
        let (token, _, travelled, message) = pair.server.calls.pop().unwrap();
        assert_eq!(travelled.form, Form::Long);
        let crate::Answer::Message { message, .. } = serve(message) else { panic!("a reply") };
        let answer = crate::Answer::Message { message, flavor_touches_data: true };
        let now = pair.now();
        pair.server.connection.reply(now, token, answer);
        pair.settle();
        let (reply_id, reply) = pair.client.replies.pop().unwrap();
        let reply = reply.unwrap();
        assert_eq!((reply_id, reply.reply.form, reply.reply.written), (id, Form::Long, 0));
        check_reply(ECHO, 9001, reply);
    }
}

#[test]
fn memory_of_the_caller_is_written_in_place() {
    let mut pair = Pair::new();
    let memory = vec![0; 10_000];
    let address = memory.as_ptr();
    let mut call = read(1, 9000);
    call.reply.sinks = vec![Sink::Buffer(Buffer::adopt(memory))];
    let mut reply = pair.round_trip(call).message;
    reply.bytes_fixed(24).unwrap();
    let data = reply.payload(MAX).unwrap();
    assert_eq!((data.as_ptr(), data.len()), (address, 9000));
    assert_eq!(data, pattern(9000));
}

#[test]
fn payload_of_1_mib_is_not_copied() {
    for fabric in fabrics() {
        let mut pair = Pair::with(fabric, Config::default(), server_config());
        check_reply(WRITE, 1 << 20, pair.round_trip(write(1, 1 << 20)));
        check_reply(READ, 1 << 20, pair.round_trip(read(2, 1 << 20)));
        assert_eq!(pair.client.connection.stats().payload_bytes_copied, 0);
        assert_eq!(pair.server.connection.stats().payload_bytes_copied, 0);
    }
}

/// RFC 8797 §4.1: the peer invalidates one window and we the others; we invalidate all where the provider cannot do that.
// requirement: rfc8797-4.1-2
#[test]
fn windows_are_closed_by_both_sides() {
    let mut pair = Pair::with(
        FabricConfig::default(),
        Config { max_segment_len: 2000, ..Config::default() },
        server_config(),
    );
    let reply = pair.round_trip(write(1, 5000));
    assert_eq!(reply.invalidations, Invalidations { remote: 1, local: 2 });
    for (client, server) in [(false, true), (true, false), (false, false)] {
        let client = Config { remote_invalidation: client, ..Config::default() };
        let server = Config { remote_invalidation: server, ..server_config() };
        let mut pair = Pair::with(FabricConfig::default(), client, server);
        let reply = pair.round_trip(write(1, 5000));
        assert_eq!(reply.invalidations, Invalidations { remote: 0, local: 1 });
    }
}

/// N6, N7: the handles and offsets of one call all differ. N14–N16: each segment takes one RDMA operation.
// requirement: rfc8797-4.1-1
#[test]
fn what_a_sniffer_sees_of_a_call() {
    let mut pair = Pair::with(
        FabricConfig::default(),
        Config { max_segment_len: 2000, ..Config::default() },
        server_config(),
    );
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tap = Arc::clone(&seen);
    pair.fabric.tap(move |delivery| tap.lock().unwrap().push(delivery.clone()));
    pair.round_trip(echo(1, 5001));
    let seen = seen.lock().unwrap();
    let of =
        |kind, from| seen.iter().filter(|d| d.kind == kind && d.from == from).cloned().collect::<Vec<_>>();
    let reads = of(MessageKind::ReadRequest, SimSide::B);
    let writes = of(MessageKind::Write, SimSide::B);
    let lens = |list: &[rpcrdma_sim::Delivery]| list.iter().map(|d| d.length).collect::<Vec<_>>();
    assert_eq!((lens(&reads), lens(&writes)), (vec![2000, 2000, 1001], vec![2000, 2000, 1001]));
    let mut keys: Vec<_> = reads.iter().chain(&writes).map(|d| d.key.unwrap()).collect();
    let mut addresses: Vec<_> = reads.iter().chain(&writes).map(|d| d.address.unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!((keys.len(), addresses.len()), (6, 6));
    let sends = of(MessageKind::Send, SimSide::B);
    assert_eq!(sends.len(), 1);
    assert!(keys.contains(&sends[0].key.unwrap()), "Send with Invalidate of a tag of this call");
}

// requirement: rfc8166-3.3.3-2, experience-4.1.1-1, experience-6.3.1-1
#[test]
fn thresholds_are_1024_without_private_data_and_the_smaller_with_it() {
    for (client, server, expected) in [(1024, 4096, 1024), (8192, 4096, 4096), (2048, 8192, 2048)] {
        let size = |size, config| Config { send_size: size, receive_size: size, ..config };
        let mut pair = Pair::with(
            FabricConfig::default(),
            size(client, Config::default()),
            size(server, server_config()),
        );
        assert_eq!(pair.client.connection.thresholds().send, expected);
        // A Call of exactly the threshold is inline; a Call longer by a word is not.
        let fits = expected - 28 - 44;
        let inline = pair.round_trip(store(1, fits));
        assert_eq!((inline.call.form, inline.call.sent), (Form::Inline, expected));
        assert_eq!(pair.round_trip(store(2, fits + 4)).call.form, Form::Long);
        // A reply of exactly the threshold is inline; a reply longer by a word is not.
        let fits = expected - 28 - REPLY_HEADER;
        let inline = pair.round_trip(list(3, fits));
        assert_eq!((inline.reply.form, inline.reply.sent), (Form::Inline, expected));
        assert_eq!(pair.round_trip(list(4, fits + 4)).reply.form, Form::Long);
    }
}

/// More calls at once than there are credits.
#[test]
fn calls_beyond_the_credits_wait() {
    for fabric in fabrics() {
        let server = Config { grant: 4, ..server_config() };
        let mut pair = Pair::with(fabric, Config::default(), server);
        let ids: Vec<_> = (0..40)
            .map(|xid| pair.call(if xid % 2 == 0 { echo(xid, 6000) } else { list(xid, 6000) }))
            .collect();
        pair.settle();
        let mut ended: Vec<_> =
            pair.client.replies.iter().map(|(id, result)| (*id, result.is_ok())).collect();
        ended.sort();
        assert_eq!(ended, ids.into_iter().map(|id| (id, true)).collect::<Vec<_>>());
        pair.check_no_leak();
    }
}

#[test]
fn s5_3_the_reverse_direction_is_inline_only() {
    let mut pair = Pair::new();
    pair.round_trip(null(1));
    let now = pair.now();
    let id = pair.server.connection.call(now, echo(1, 500)).unwrap();
    pair.settle();
    let (reply_id, reply) = pair.server.replies.pop().unwrap();
    assert_eq!(reply_id, id);
    check_reply(ECHO, 500, reply.unwrap());
    // Both directions have a call with the same XID in progress.
    pair.call(echo(7, 400));
    pair.server.connection.call(now, echo(7, 300)).unwrap();
    pair.settle();
    check_reply(ECHO, 400, pair.client.replies.pop().unwrap().1.unwrap());
    check_reply(ECHO, 300, pair.server.replies.pop().unwrap().1.unwrap());
    for call in [write(2, 8000), read(3, 8000), store(4, 8000), list(5, 8000)] {
        pair.server.connection.call(now, call).unwrap();
        pair.settle();
        let failure = pair.server.replies.pop().unwrap().1.unwrap_err();
        assert!(matches!(failure.error, CallError::Unsendable(_)), "{failure}");
    }
    pair.check_no_leak();
}

#[test]
fn s5_3_chunks_in_the_reverse_direction_if_both_agree() {
    let client = Config { reverse_chunks: true, ..Config::default() };
    let server = Config { reverse_chunks: true, ..server_config() };
    let mut pair = Pair::with(FabricConfig::default(), client, server);
    pair.round_trip(null(1));
    for call in [write(2, 8000), store(3, 8000), list(4, 8000), echo(5, 8000)] {
        let procedure = call.procedure;
        let now = pair.now();
        pair.server.connection.call(now, call).unwrap();
        pair.settle();
        check_reply(procedure, 8000, pair.server.replies.pop().unwrap().1.unwrap());
    }
    pair.check_no_leak();
}
