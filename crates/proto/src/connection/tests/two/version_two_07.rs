//! Rules of version-two-07 (P3) alone: credits per message, properties that are exchanged once, its errors.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_xdr::Stream;

use crate::testing::*;
use crate::wire::two::{self, Exchange, Profile, Subset, Value};
use crate::wire::{Body, ChunkLists, Codec, Direction, ErrorBody, Header, WriteChunk, two::p3::V2P3};
use crate::{
    Call, CallError, Characteristic, CloseReason, Config, Limits, NotExchanged, ReverseSupport, Side,
    Versions,
};

pub(super) fn client() -> Config {
    Config { versions: Versions::two(Profile::P3), ..Config::default() }
}

pub(super) fn server() -> Config {
    Config { versions: Versions::both(Profile::P3), ..server_config() }
}

/// Client and server, after the first call.
fn pair(client: Config, server: Config) -> Pair {
    let mut pair = Pair::with(FabricConfig::default(), client, server);
    check_reply(0, 0, pair.round_trip(null(1)));
    pair
}

pub(super) fn header(xid: u32, credit: u32, direction: Direction, body: Body) -> Header {
    Header { xid, version: 2, credit, direction: Some(direction), invalidate: 0, body }
}

fn bytes(header: &Header, payload: &Stream) -> Bytes {
    let mut out = BytesMut::new();
    V2P3.encode(header, &mut out);
    out.extend_from_slice(&payload.flatten().0);
    out.freeze()
}

/// More messages than any test here causes.
pub(super) const MANY: u32 = 1000;

fn call(xid: u32) -> Bytes {
    bytes(&header(xid, MANY, Direction::Call, Body::Message(ChunkLists::default())), &null(xid).message)
}

pub(super) fn operation(xid: u32, exchange: Exchange) -> Bytes {
    bytes(&header(xid, MANY, Direction::Call, Body::Two(two::Body::Exchange(exchange))), &Stream::new())
}

pub(super) fn last_of(values: Vec<Value>) -> Exchange {
    let constant: Subset = (0..values.len()).collect();
    Exchange::Initial { start: values, constant }
}

pub(super) fn word(id: u32, word: u32) -> Value {
    Value { id, data: Bytes::copy_from_slice(&word.to_be_bytes()) }
}

fn sent(raw: &Raw) -> Vec<Header> {
    raw.received.iter().map(|message| V2P3.decode(message, &Limits::default()).unwrap().0).collect()
}

/// A peer whose first call was answered.
fn raw(config: Config) -> Raw {
    let mut raw = Raw::new(Side::Server, config);
    raw.send(call(1));
    raw
}

fn faults(raw: &Raw, name: &str) -> u64 {
    raw.end.connection.stats().errors.get(name).copied().unwrap_or(0)
}

#[track_caller]
fn refusal(raw: &mut Raw, message: Bytes) -> (u32, ErrorBody) {
    raw.received.clear();
    raw.send(message);
    let answers = sent(raw);
    let [Header { xid, body: Body::Error(error), .. }] = &answers[..] else { panic!("{answers:?}") };
    (*xid, *error)
}

// requirement: v2-07-4.1-1, v2-07-4.3-1
#[test]
fn v2_07_s5_each_side_tells_its_properties_once() {
    let mut raw = raw(server());
    let answers = sent(&raw);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[0].body, Body::Message(ChunkLists::default()), "the answer comes first");
    let Body::Two(two::Body::Exchange(Exchange::Initial { start, .. })) = &answers[1].body else {
        panic!("{answers:?}")
    };
    assert_eq!(start[..], [word(1, 4096), word(2, 4096), word(3, 0x80_0000), word(4, 256), word(5, 2)]);
    raw.send(operation(2, last_of(vec![word(2, 8192), word(77, 1)])));
    raw.send(call(3));
    assert_eq!(sent(&raw).len(), 3, "not again");
    let told = raw.end.connection.peer_characteristics().unwrap();
    assert_eq!((told.receive_size, told.send_size, told.segment_count), (8192, Some(4096), Some(16)));
    let pair = pair(client(), server());
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.connection.exchanges_characteristics(), Some(true));
        assert_eq!(
            (end.connection.stats().operations_sent, end.connection.stats().operations_received),
            (1, 1)
        );
        assert!(end.connection.stats().errors.is_empty());
    }
}

#[test]
fn v2_07_s5_1_nothing_is_asked_or_changed() {
    let mut pair = pair(client(), server());
    let size = Characteristic::ReceiveSize(8192);
    assert_eq!(pair.client.connection.ask(vec![size.clone()]), Err(NotExchanged::ToldOnce));
    assert_eq!(pair.client.connection.change(size), Err(NotExchanged::ToldOnce));
}

// requirement: v2-07-6.3.4-1
#[test]
fn v2_07_s6_3_4_properties_after_the_last_of_them_are_an_invalid_continuation() {
    let mut raw = raw(server());
    raw.send(operation(2, last_of(vec![word(2, 8192)])));
    for again in [last_of(vec![word(2, 16_384)]), Exchange::Part { start: vec![word(2, 16_384)] }] {
        assert_eq!(
            refusal(&mut raw, operation(3, again)),
            (3, ErrorBody::Two(two::ErrorBody::InvalidContinuation))
        );
    }
    assert_eq!(faults(&raw, "told_twice"), 2);
    assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 8192);
}

// requirement: v2-07-6.3.3-1
#[test]
fn v2_07_s6_3_3_nothing_comes_between_the_parts_of_properties() {
    let mut raw = raw(server());
    raw.send(operation(2, Exchange::Part { start: vec![word(1, 16_384)] }));
    assert_eq!(refusal(&mut raw, call(3)), (3, ErrorBody::Two(two::ErrorBody::InvalidContinuation)));
    assert_eq!(faults(&raw, "interrupted"), 1);
    // A GRANT only raises a limit and belongs to no sequence, and an error is never answered.
    raw.received.clear();
    raw.send(bytes(&header(0, MANY, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    raw.send(bytes(
        &header(9, MANY, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::System))),
        &Stream::new(),
    ));
    assert!(raw.received.is_empty());
    raw.send(operation(4, Exchange::Part { start: vec![word(3, 4096)] }));
    raw.send(operation(5, last_of(vec![word(2, 8192)])));
    let told = raw.end.connection.peer_characteristics().unwrap();
    assert_eq!((told.send_size, told.segment_size, told.receive_size), (Some(16_384), Some(4096), 8192));
    raw.send(call(6));
    assert_eq!(sent(&raw).last().unwrap().body, Body::Message(ChunkLists::default()));
}

/// §6.3.4 gives the peer no second try: messages after a refused part are handled as usual.
#[test]
fn v2_07_s7_2_2_a_part_that_is_refused_is_the_last_of_its_sequence() {
    let cut = {
        let whole = operation(3, last_of(vec![word(2, 8192)]));
        whole.slice(..whole.len() - 4)
    };
    for refused in [
        operation(3, last_of(vec![word(5, 100)])),
        operation(3, Exchange::Part { start: vec![word(5, 100)] }),
        cut,
    ] {
        let mut raw = raw(server());
        raw.send(operation(2, Exchange::Part { start: vec![word(1, 16_384)] }));
        assert_eq!(refusal(&mut raw, refused), (3, ErrorBody::Two(two::ErrorBody::BadValue)));
        raw.send(call(4));
        assert_eq!(sent(&raw).last().unwrap().body, Body::Message(ChunkLists::default()));
    }
}

fn make(raw: &mut Raw, call: Call) {
    let now = raw.fabric.instant();
    raw.end.connection.call(now, call).unwrap();
    raw.settle();
}

/// A client whose first Call was answered by a peer that has not sent its properties.
fn answered(config: Config) -> Raw {
    let mut raw = Raw::new(Side::Client, config);
    make(&mut raw, null(1));
    let accepted = super::super::requester::accepted(1, &[]);
    let lists = Body::Message(ChunkLists::default());
    raw.send(bytes(&header(1, MANY, Direction::Reply, lists), &accepted));
    raw.received.clear();
    raw.end.replies.clear();
    raw
}

/// Any number parses, and the client believes it: messages that fit leave, and the others are refused locally.
#[test]
fn v2_07_s7_2_2_a_size_that_parses_is_no_bad_value_however_small() {
    for small in [word(1, 0), word(1, 1000), word(2, 0), word(2, 76), word(3, 0), word(3, 3), word(4, 0)] {
        let mut raw = answered(client());
        raw.send(operation(0, last_of(vec![small.clone(), word(5, 3)])));
        assert!(raw.received.is_empty(), "{small:?} {:?}", raw.received);
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().reverse, ReverseSupport::General);
        assert!(raw.end.connection.stats().errors.is_empty());
        // A Call that fits the size, and one that needs a chunk each way, which the reply returns.
        let (fits, chunks) = (small != word(2, 0), small == word(1, 1000));
        for (call, fits) in [(null(2), fits), (echo(3, 90_000), chunks)] {
            make(&mut raw, call);
            assert_eq!(raw.received.len(), usize::from(fits), "{small:?}");
            raw.received.clear();
            let refused = raw.end.replies.pop().map(|(_, result)| result.unwrap_err().error);
            assert_eq!(matches!(refused, Some(CallError::Unsendable(_))), !fits, "{small:?} {refused:?}");
        }
        assert!(raw.end.closed.is_none());
    }
}

/// Answers that cannot leave, because the peer grants no credits, are few.
#[test]
fn i6_operations_that_do_not_decode_are_bounded_like_others() {
    let mut raw = raw(server());
    let told = u32::try_from(sent(&raw).len()).unwrap();
    let bad = |xid| {
        let whole = bytes(
            &header(xid, told, Direction::Call, Body::Two(two::Body::Exchange(last_of(vec![word(2, 8192)])))),
            &Stream::new(),
        );
        whole.slice(..whole.len() - 4)
    };
    for xid in 2..100 {
        if raw.end.closed.is_some() {
            break;
        }
        raw.send(bad(xid));
    }
    assert_eq!(faults(&raw, "too_many_operations"), 1);
    assert!(raw.end.closed.is_some());
}

// requirement: v2-07-5.1-1, v2-07-5.1-2, v2-07-7.2.2-1, v2-07-7.2.2-2
#[test]
fn v2_07_s7_2_2_a_bad_value_is_refused_and_nothing_is_applied() {
    for bad in [
        Value { id: 5, data: Bytes::from_static(&[1]) },
        word(5, 4),
        Value { id: 2, data: Bytes::from_static(&[0; 3]) },
        Value { id: 1, data: Bytes::from_static(&[0; 5]) },
    ] {
        let mut raw = raw(server());
        let values = vec![word(2, 8192), bad.clone()];
        assert_eq!(
            refusal(&mut raw, operation(7, last_of(values))),
            (7, ErrorBody::Two(two::ErrorBody::BadValue)),
            "{bad:?}"
        );
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 4096);
        // §5.1: a property without data has its default.
        raw.send(operation(8, last_of(vec![Value { id: 5, data: Bytes::new() }, word(2, 16_384)])));
        let told = raw.end.connection.peer_characteristics().unwrap();
        assert_eq!((told.receive_size, told.reverse), (16_384, ReverseSupport::None));
    }
}

// requirement: v2-07-7-2, v2-07-7-3, v2-07-7-4, v2-07-7.1.1-1, v2-07-7.1.1-2, v2-07-7.1.2-1, v2-07-7.1.2-2
// requirement: v2-07-7.1.3-1, v2-07-7.1.3-2
#[test]
fn v2_07_s7_1_what_is_not_known_is_refused_by_its_own_code() {
    let mut raw = raw(server());
    let mut unknown = BytesMut::from(&call(2)[..]);
    unknown[15] = 14;
    assert_eq!(refusal(&mut raw, unknown.freeze()), (2, ErrorBody::Two(two::ErrorBody::InvalidProcedure)));
    let truncated = call(3).slice(..24);
    assert_eq!(refusal(&mut raw, truncated), (3, ErrorBody::Chunk));
    // §7.1.2: the error has the version of the request.
    let one = message(&crate::testing::header(4, Body::Message(ChunkLists::default())), &null(4).message);
    assert_eq!(refusal(&mut raw, one), (4, ErrorBody::Two(two::ErrorBody::VersionMismatch)));
    assert_eq!(sent(&raw)[0].version, 1);
    let three = Header { version: 3, ..crate::testing::header(5, Body::Message(ChunkLists::default())) };
    let three = message(&three, &null(5).message);
    assert_eq!(refusal(&mut raw, three), (5, ErrorBody::Version { low: 1, high: 2 }));
}

// requirement: v2-07-7.3.5-1, v2-07-7.3.5-2
#[test]
fn v2_07_s7_3_5_a_reply_that_nothing_holds_says_how_much_it_needs() {
    let mut raw = raw(server());
    let chunk = WriteChunk { segments: vec![raw.writable(64)] };
    let lists = ChunkLists { reply: Some(chunk), ..ChunkLists::default() };
    let large = bytes(&header(2, MANY, Direction::Call, Body::Message(lists)), &list(2, 90_000).message);
    let (xid, error) = refusal(&mut raw, large);
    let ErrorBody::Two(two::ErrorBody::ReplyResource { segment: 0, needed }) = error else {
        panic!("{error:?}")
    };
    assert!(xid == 2 && (90_000..90_100).contains(&needed), "{needed}");
}

/// §6.3.10: an inline reply does not return the Reply chunk, so the space of that chunk is free for data.
// requirement: v2-07-6.6.3-2
#[test]
fn v2_07_s6_6_3_the_reply_chunk_is_used_only_if_the_reply_is_over_the_threshold() {
    let mut pair = pair(client(), server());
    let plain = V2P3.header_len(&ChunkLists::default().shape(Direction::Reply));
    let fits = 4096 - plain - 28;
    for (len, inline) in [(fits, 1), (fits + 4, 0)] {
        let before = pair.server.connection.stats().replies_sent.inline;
        let mut roomy = list(10, len);
        roomy.reply.max_len = 9000;
        check_reply(4, len, pair.round_trip(roomy));
        assert_eq!(pair.server.connection.stats().replies_sent.inline - before, inline, "{len}");
    }
    assert!(pair.client.connection.stats().errors.is_empty());
}

#[test]
fn v2_07_s5_2_1_replies_are_counted_on_as_far_as_the_server_sends_them() {
    for (send_size, chunked) in [(4096, 1), (16_384, 0)] {
        let config = Config { send_size, ..server() };
        let mut pair = pair(Config { receive_size: 16_384, ..client() }, config);
        check_reply(4, 9000, pair.round_trip(list(2, 9000)));
        assert_eq!(pair.client.connection.thresholds().receive, send_size);
        assert_eq!(pair.client.connection.stats().replies_received.long, chunked);
    }
}

#[test]
fn v2_07_s5_2_3_and_s5_2_4_segments_are_such_as_the_peer_takes() {
    let limits = Limits { read_segment_len: 16 << 10, segments_per_chunk: 80, ..server_config().limits };
    let mut pair =
        pair(Config { max_segments: 300, ..client() }, Config { limits: limits.clone(), ..server() });
    check_reply(3, 1 << 20, pair.round_trip(write(2, 1 << 20)));
    assert_eq!(pair.client.connection.stats().read_segments, 64);
    // The limit counts all chunks together.
    let failure = pair.outcome(echo(3, 1 << 20)).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the call cannot be sent: 128 segments in all chunks of a Call, the peer takes 80"
    );
    assert!(pair.server.connection.stats().errors.is_empty());
}

#[test]
fn v2_07_s5_2_4_a_call_with_more_segments_than_the_default_waits_for_the_properties() {
    let many = |xid| write(xid, 3 << 20);
    for tells in [true, false] {
        let mut raw = answered(Config { max_segments: 2, ..client() });
        make(&mut raw, many(2));
        assert!(raw.received.is_empty() && raw.end.replies.is_empty());
        if tells {
            raw.send(operation(0, last_of(vec![word(3, 3 << 19)])));
            assert_eq!(raw.received.last().unwrap()[..4], [0, 0, 0, 2]);
            // The call's own deadline is unchanged.
            let deadline = raw.end.connection.poll_timeout().unwrap();
            assert!(deadline - raw.fabric.instant() > Duration::from_secs(59));
        } else {
            let deadline = raw.end.connection.poll_timeout().unwrap();
            assert!(deadline - raw.fabric.instant() <= Duration::from_secs(3));
            raw.end.connection.handle_timeout(deadline);
            raw.settle();
            let (_, result) = raw.end.replies.pop().unwrap();
            assert!(matches!(result.unwrap_err().error, CallError::Unsendable(_)));
        }
        // Once the property is known, nothing waits.
        make(&mut raw, write(3, 4 << 20));
        let (_, result) = raw.end.replies.pop().unwrap();
        assert!(matches!(result.unwrap_err().error, CallError::Unsendable(_)));
    }
}

// requirement: v2-07-4.6.3-1
#[test]
fn v2_07_s4_6_3_a_server_calls_when_the_client_has_said_that_it_takes_that() {
    // The client's support for Version One makes no difference.
    for versions in [Versions::both(Profile::P3), Versions::two(Profile::P3)] {
        let mut raw = Raw::new(Side::Server, Config { versions, ..server() });
        let now = raw.fabric.instant();
        raw.end.connection.call(now, store(50, 100)).unwrap();
        raw.settle();
        assert!(raw.received.is_empty(), "the client has said nothing at all");
        raw.send(call(1));
        let is_call = |header: &Header| header.direction == Some(Direction::Call) && header.xid == 50;
        assert!(!sent(&raw).iter().any(is_call), "nothing is said of it yet");
        raw.send(operation(2, last_of(vec![word(5, 1)])));
        assert!(sent(&raw).iter().any(is_call));
    }

    // By default a client accepts no reverse Calls.
    let mut raw = self::raw(server());
    raw.send(operation(2, last_of(vec![])));
    let now = raw.fabric.instant();
    raw.end.connection.call(now, store(50, 100)).unwrap();
    raw.settle();
    let (_, result) = raw.end.replies.pop().unwrap();
    assert!(result.unwrap_err().to_string().contains("no Calls in the reverse direction"));
}

/// On either side an error answers only a message of a Call type, whether the message decodes or not.
// requirement: v2-07-7.2.1-1
#[test]
fn v2_07_s7_1_3_the_type_says_the_direction() {
    let reply =
        bytes(&header(7, MANY, Direction::Reply, Body::Message(ChunkLists::default())), &null(7).message);
    let middle = bytes(
        &header(7, MANY, Direction::Reply, Body::Two(two::Body::Middle { remaining: 8 })),
        &Stream::new(),
    );
    let mut at_server = raw(server());
    at_server.received.clear();
    // The message is cut off within the Write list.
    at_server.send(reply.slice(..18));
    at_server.send(middle);
    assert!(at_server.received.is_empty(), "{:?}", at_server.received);
    assert!(at_server.end.closed.is_none());

    let mut at_client = Raw::new(Side::Client, client());
    let now = at_client.fabric.instant();
    at_client.end.connection.call(now, null(1)).unwrap();
    at_client.settle();
    let accepted = super::super::requester::accepted(1, &[]);
    at_client
        .send(bytes(&header(1, MANY, Direction::Reply, Body::Message(ChunkLists::default())), &accepted));
    assert_eq!(refusal(&mut at_client, call(9).slice(..18)), (9, ErrorBody::Chunk));
}

/// A limit counts from the first message on; statistics report the largest possible number in flight, however many are
/// in flight now.
#[test]
fn v2_07_s4_2_1_the_grant_is_the_limit_less_what_the_peer_has_taken() {
    let pair = pair(Config { calls: 100, ..client() }, Config { grant: 10, ..server() });
    let (at_client, at_server) = (pair.client.connection.stats(), pair.server.connection.stats());
    assert_eq!(at_client.credits_granted_to_us, at_server.credits_granted_to_peer, "at rest");

    let mut raw = Raw::new(Side::Client, client());
    let granted = |raw: &Raw| raw.end.connection.stats().credits_granted_to_us;
    let reply = |raw: &mut Raw, xid, limit| {
        let body = Body::Message(ChunkLists::default());
        let accepted = super::super::requester::accepted(xid, &[]);
        raw.send(bytes(&header(xid, limit, Direction::Reply, body), &accepted));
    };
    let call = |raw: &mut Raw, xid| {
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(xid)).unwrap();
        raw.settle();
        u32::try_from(raw.received.len()).unwrap()
    };
    assert_eq!(call(&mut raw, 1), 1);
    reply(&mut raw, 1, 1 + 9);
    assert_eq!(granted(&raw), 9);
    call(&mut raw, 2);
    call(&mut raw, 3);
    let sent = call(&mut raw, 4);
    // Two Calls have no answer yet, and leave two credits less for others.
    reply(&mut raw, 2, sent + 7);
    assert_eq!(granted(&raw), 9);
    raw.send(bytes(&header(0, sent + 8, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    assert_eq!(granted(&raw), 10);
    // A lower limit is followed, too.
    reply(&mut raw, 3, sent + 4);
    reply(&mut raw, 4, sent + 4);
    assert_eq!(granted(&raw), 4);
}

/// The number that a server states for the Receives of a connection includes all of them.
#[test]
fn i3_s4_2_1_1_the_receive_for_a_grant_is_counted_with_the_others() {
    for continued_parts in [1, 8] {
        let pair = pair(client(), Config { grant: 10, continued_parts, ..server() });
        let beyond = pair.server.connection.core.config.receives_beyond_calls();
        let at_rest = u32::try_from(10 + beyond + 1 - continued_parts).unwrap();
        assert_eq!(pair.server.connection.receives_posted(), at_rest);
        assert_eq!(at_rest, 10 + 2 + 1, "operations, and a GRANT");
    }
}

#[test]
fn v2_07_s4_2_1_calls_both_ways_at_once_come_to_an_end() {
    for (calls, grant) in [(1, 1), (2, 1), (8, 2), (64, 64)] {
        let config = |config: Config| Config { calls, grant, ..config };
        let mut pair = pair(config(client()), config(server()));
        let now = pair.now();
        for xid in 0..100 {
            pair.call(store(100 + xid, 500));
            pair.server.connection.call(now, store(300 + xid, 500)).unwrap();
        }
        pair.settle();
        for end in [&mut pair.client, &mut pair.server] {
            assert_eq!(end.replies.len(), 100, "{calls} {grant} {:?}", end.connection.stats());
            for (_, reply) in std::mem::take(&mut end.replies) {
                check_reply(5, 500, reply.unwrap());
            }
            assert!(end.connection.stats().errors.is_empty());
        }
        pair.check_no_leak();
    }
}

/// Calls in progress keep their Receives, so that never more of them arrive than the grant (rule I6).
#[test]
fn i6_calls_that_are_not_answered_are_bounded() {
    let mut pair = pair(Config { calls: 100, ..client() }, Config { grant: 10, ..server() });
    pair.server.serving = false;
    for xid in 0..50 {
        pair.call(store(100 + xid, 500));
    }
    pair.settle();
    // A Call may also use the Receives for other messages, because nothing tells them apart.
    let most = 10 + crate::OPERATION_RECEIVES;
    assert!((10..=most).contains(&pair.server.calls.len()), "{}", pair.server.calls.len());
    let now = pair.now();
    pair.server.serving = true;
    for (token, _, _, message) in std::mem::take(&mut pair.server.calls) {
        pair.server.connection.reply(now, token, serve(message));
    }
    pair.settle();
    assert_eq!(pair.client.replies.len(), 50);
}

#[test]
fn i4_a_peer_beyond_its_limit_loses_its_connection() {
    let mut raw = raw(Config { grant: 4, ..server() });
    raw.end.serving = false;
    for xid in 2..30 {
        if raw.end.closed.is_none() {
            raw.send(call(xid));
        }
    }
    assert!(
        matches!(&raw.end.closed, Some(CloseReason::Protocol(error)) if error.name() == "limit_exceeded")
    );
}

/// §6.5: `rdma_inv_handle` is 0 in a reply, and in a Call that allows no invalidation.
#[test]
fn v2_07_s6_5_no_handle_is_zero() {
    for (remote_invalidation, named) in [(true, true), (false, false)] {
        let mut raw = Raw::new(Side::Client, Config { remote_invalidation, ..client() });
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        assert_eq!(sent(&raw)[0].invalidate, 0, "a Call without chunks");
        let answer = header(1, MANY, Direction::Reply, Body::Message(ChunkLists::default()));
        raw.send(bytes(&answer, &super::super::requester::accepted(1, &[])));
        raw.end.connection.call(now, crate::testing::read(2, 5000)).unwrap();
        raw.settle();
        let call = sent(&raw).pop().unwrap();
        let Body::Message(lists) = &call.body else { panic!("{call:?}") };
        let handle = lists.write[0].segments[0].handle;
        assert_eq!(call.invalidate, if named { handle } else { 0 });
    }
    let mut raw = raw(server());
    raw.send(call(2));
    let reply = sent(&raw).pop().unwrap();
    assert_eq!((reply.xid, reply.invalidate), (2, 0));
}

// requirement: v2-07-4.2.1-5, v2-07-4.3-1
#[test]
fn i4_nothing_leaves_beyond_the_limit_of_the_peer() {
    let mut raw = Raw::new(Side::Client, client());
    let now = raw.fabric.instant();
    for xid in 1..10 {
        raw.end.connection.call(now, null(xid)).unwrap();
    }
    raw.settle();
    assert_eq!(raw.received.len(), 1, "§4.3: one message until there is a limit");
    let reply = |credit| {
        let header = header(1, credit, Direction::Reply, Body::Message(ChunkLists::default()));
        bytes(&header, &super::super::requester::accepted(1, &[]))
    };
    raw.send(reply(4));
    assert_eq!(raw.received.len(), 4);
    // §4.2.1.1: a GRANT raises it.
    raw.send(bytes(&header(0, 6, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    assert_eq!((raw.received.len(), raw.end.connection.stats().grants_received), (6, 1));
    // A GRANT that lowers the limit is followed.
    raw.send(bytes(&header(0, 5, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    raw.send(bytes(&header(0, 6, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    assert_eq!(raw.received.len(), 6);
}

/// Messages without an answer use up the announced credits; a GRANT gives them back.
// requirement: v2-07-4.2.1.1-1, v2-07-6.3.2-1
#[test]
fn v2_07_s4_2_1_1_a_grant_leaves_when_the_peer_is_running_out() {
    let mut raw = raw(server());
    raw.received.clear();
    let error = || {
        bytes(
            &header(99, MANY, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::System))),
            &Stream::new(),
        )
    };
    let limit = raw.end.connection.stats().credits_granted_to_peer;
    for _ in 0..2 * limit {
        raw.send(error());
    }
    let grants = sent(&raw);
    assert!(
        grants.iter().all(|header| header.body == Body::Two(two::Body::Grant) && header.xid == 0),
        "{grants:?}"
    );
    assert!((2..=8).contains(&grants.len()), "{grants:?}");
    assert_eq!(raw.end.connection.stats().grants_sent, u64::try_from(grants.len()).unwrap());
    assert!(raw.end.closed.is_none());
}

/// An answer for which the peer grants no credit has a deadline (rule I6).
#[test]
fn i6_an_answer_waits_for_a_credit_so_long_and_no_longer() {
    let mut raw = Raw::new(Side::Server, server());
    let first = header(1, 1, Direction::Call, Body::Message(ChunkLists::default()));
    raw.send(bytes(&first, &null(1).message));
    assert_eq!(raw.received.len(), 1);
    let second = Header { xid: 2, ..first };
    raw.send(bytes(&second, &null(2).message));
    assert_eq!(raw.received.len(), 1, "one message was all that the peer takes");
    let deadline = raw.end.connection.poll_timeout().unwrap();
    assert_eq!(deadline - raw.fabric.instant(), Duration::from_secs(30));
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("credits for an answer")));
}

#[test]
fn a_message_of_another_profile_is_known_for_what_it_is() {
    let lists = || Body::Message(ChunkLists::default());
    let of = |profile: Profile| {
        let mut out = BytesMut::new();
        profile.codec().encode(&header(77, 8, Direction::Call, lists()), &mut out);
        out.extend_from_slice(&null(77).message.flatten().0);
        out.freeze()
    };
    for (ours, theirs) in [
        (Profile::P3, Profile::P1),
        (Profile::P3, Profile::P2),
        (Profile::P1, Profile::P3),
        (Profile::P2, Profile::P3),
    ] {
        let mut raw = Raw::new(Side::Server, Config { versions: Versions::both(ours), ..server_config() });
        raw.send(of(theirs));
        assert_eq!(faults(&raw, "other_profile"), 1, "{ours:?} {theirs:?}");
        // The error is one that the other profile knows: P1 has no code for an unknown type; P2 and P3 share theirs.
        let (answer, _) = theirs.codec().decode(raw.received.last().unwrap(), &Limits::default()).unwrap();
        let error = if ours == Profile::P2 || theirs == Profile::P2 {
            ErrorBody::Two(two::ErrorBody::InvalidProcedure)
        } else {
            ErrorBody::Chunk
        };
        assert_eq!((answer.xid, answer.body), (77, Body::Error(error)), "{ours:?} {theirs:?}");
    }
}

// requirement: v2-07-4.3.2-1
#[test]
fn v2_07_s4_3_2_a_server_without_version_two_is_spoken_to_in_version_one() {
    let mut pair = Pair::with(FabricConfig::default(), client(), server_config());
    let failure = pair.outcome(null(1)).unwrap_err();
    assert_eq!(failure.error, CallError::Version { low: 1, high: 1 });
}

/// §4.2.1.1: a peer without credits may send one GRANT, but no other message, not even one that is too short to be read.
// requirement: v2-07-4.2.1.1-1
#[test]
fn i4_only_a_grant_goes_beyond_the_limit() {
    let grant = bytes(&header(0, MANY, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new());
    let properties = operation(99, last_of(vec![word(2, 8192)]));
    for (message, allowed) in [(grant, true), (properties, false), (Bytes::from_static(&[0; 7]), false)] {
        let mut raw = raw(Config { grant: 4, ..server() });
        raw.end.serving = false;
        for xid in 2..30 {
            if raw.end.connection.core.ledger.peer_may_send() {
                raw.send(call(xid));
            }
        }
        assert!(raw.end.closed.is_none());
        raw.send(message);
        let exceeded = |reason: &CloseReason| matches!(reason, CloseReason::Protocol(error) if error.name() == "limit_exceeded");
        assert_eq!(raw.end.closed.as_ref().map(exceeded), (!allowed).then_some(true));
    }
}

/// §4.2.1: a refusal is a message too, and waits for a credit.
#[test]
fn i4_the_refusal_of_a_call_waits_for_a_credit() {
    let mut raw = Raw::new(Side::Server, server());
    let first = header(1, 1, Direction::Call, Body::Message(ChunkLists::default()));
    raw.send(bytes(&first, &null(1).message));
    assert_eq!(raw.received.len(), 1);
    let cut = bytes(&Header { xid: 2, ..first }, &null(2).message).slice(..24);
    raw.send(cut);
    assert_eq!(raw.received.len(), 1, "one message was all that the peer takes");
    let deadline = raw.fabric.instant() + raw.end.connection.core.config.timeouts.credits;
    assert_eq!(raw.end.connection.poll_timeout(), Some(deadline));
    // The server's properties precede answers.
    raw.send(bytes(&header(0, 3, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    let refusal = sent(&raw).pop().unwrap();
    assert_eq!((raw.received.len(), refusal.xid, refusal.body), (3, 2, Body::Error(ErrorBody::Chunk)));
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert!(raw.end.closed.is_none(), "it waits no more");
    // A connection that has ended waits for nothing.
    raw.send(
        bytes(
            &Header {
                xid: 3,
                credit: 3,
                ..header(3, 3, Direction::Call, Body::Message(ChunkLists::default()))
            },
            &null(3).message,
        )
        .slice(..24),
    );
    assert!(raw.end.connection.poll_timeout().is_some());
    raw.end.connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
    assert_eq!(raw.end.connection.poll_timeout(), None);
}

/// RFC 8797 §4.1: a Call names no handle if the provider cannot tell that a Send has invalidated one.
#[test]
fn rfc8797_s4_1_a_provider_without_remote_invalidation_names_no_handle() {
    for able in [true, false] {
        let mut capabilities = rpcrdma_verbs::Capabilities::default();
        capabilities.remote_invalidation = able;
        let fabric = Fabric::new(FabricConfig { capabilities, ..FabricConfig::default() });
        let mut raw = Raw::on(&fabric, Side::Client, client(), &Config::default());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, read(1, 5000)).unwrap();
        raw.settle();
        assert_eq!(sent(&raw)[0].invalidate != 0, able);
    }
}

/// version-two-07 §4.3: counting begins with the first message in this version. What came before it is no fault.
#[test]
fn v2_07_s4_3_short_messages_before_the_version_exceed_no_limit() {
    let mut raw = Raw::new(Side::Server, server());
    raw.send(Bytes::from_static(&[0; 3]));
    raw.send(Bytes::from_static(&[0; 3]));
    raw.send(call(1));
    assert!(raw.end.closed.is_none());
    assert_eq!(sent(&raw)[0].body, Body::Message(ChunkLists::default()));
}

/// §5.1: only a Call that other properties would help waits for them, and no longer than its own time.
#[test]
fn v2_07_s5_1_a_call_waits_for_properties_that_can_help() {
    let limits = Limits { write_chunks: 1, ..Limits::default() };
    let mut raw = answered(Config { limits, ..client() });
    let mut chunks = two(2, 0, 0);
    chunks.reply.sinks = vec![crate::Sink::Pool(5000), crate::Sink::Pool(5000)];
    make(&mut raw, chunks);
    let (_, result) = raw.end.replies.pop().expect("properties change no limit of ours");
    assert!(matches!(result.unwrap_err().error, CallError::Unsendable(_)));

    let mut raw = answered(Config { max_segments: 2, ..client() });
    make(&mut raw, Call { timeout: Some(Duration::from_secs(1)), ..write(2, 3 << 20) });
    let deadline = raw.end.connection.poll_timeout().unwrap();
    assert_eq!(deadline - raw.fabric.instant(), Duration::from_secs(1));
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert_eq!(raw.end.replies.pop().unwrap().1.unwrap_err().error, CallError::TimedOut);
}

/// Rule I4: properties need a credit like any message, and leave when there is one.
#[test]
fn i4_properties_wait_for_a_credit() {
    let mut raw = Raw::new(Side::Server, server());
    let lists = Body::Message(ChunkLists::default());
    raw.send(bytes(&header(1, 1, Direction::Call, lists), &null(1).message));
    assert_eq!(sent(&raw).len(), 1, "the answer");
    raw.send(bytes(&header(0, 2, Direction::Call, Body::Two(two::Body::Grant)), &Stream::new()));
    let sent = sent(&raw);
    assert!(matches!(&sent[1..], [Header { body: Body::Two(two::Body::Exchange(_)), .. }]), "{sent:?}");
}
