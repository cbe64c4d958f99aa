//! Version Two: its profiles, how a connection comes to one, and transport characteristics.

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_sim::FabricConfig;
use rpcrdma_xdr::Stream;

use crate::testing::*;
use crate::two::characteristics::EXPERIMENTAL;
use crate::wire::two::{self, Exchange, Profile, Rest, Subset, Value};
use crate::wire::{Body, ChunkLists, Codec, Direction, ErrorBody, Header, WriteChunk, v1::V1};
use crate::{
    Characteristic, Config, Disposition, Exchanged, Limits, NotExchanged, Notice, Registered, ReverseSupport,
    Side, Versions,
};

pub(super) const PROFILES: [Profile; 3] = [Profile::P1, Profile::P2, Profile::P3];
/// The profiles whose characteristics can change, and which count credits per transaction.
pub(super) const EXCHANGING: [Profile; 2] = [Profile::P1, Profile::P2];

fn two(profile: Profile) -> Config {
    Config { versions: Versions::two(profile), ..Config::default() }
}

fn serving(profile: Profile) -> Config {
    Config { versions: Versions::both(profile), ..server_config() }
}

/// Client and server of one profile, after the first call.
fn pair(profile: Profile, client: Config, server: Config) -> Pair {
    let client = Config { versions: Versions::two(profile), ..client };
    let server = Config { versions: Versions::both(profile), ..server };
    let mut pair = Pair::with(FabricConfig::default(), client, server);
    check_reply(0, 0, pair.round_trip(null(1)));
    pair.client.notices.clear();
    pair.server.notices.clear();
    pair
}

/// Makes more calls than the grant, which proves that earlier messages arrived.
fn prove(pair: &mut Pair) {
    for xid in 1000..1100 {
        check_reply(0, 0, pair.round_trip(null(xid)));
    }
}

pub(super) fn message_of(codec: &dyn Codec, header: &Header, payload: &Stream) -> Bytes {
    let mut out = bytes::BytesMut::new();
    codec.encode(header, &mut out);
    out.extend_from_slice(&payload.flatten().0);
    out.freeze()
}

pub(super) fn header_of(xid: u32, direction: Direction, body: Body) -> Header {
    Header { xid, version: 2, credit: 8, direction: Some(direction), invalidate: 0, body }
}

/// A peer that has made its first call in this profile and was answered.
pub(super) fn raw(profile: Profile, config: Config) -> Raw {
    let mut raw = Raw::new(Side::Server, Config { versions: Versions::both(profile), ..config });
    let call = header_of(1, Direction::Call, Body::Message(ChunkLists::default()));
    raw.send(message_of(profile.codec(), &call, &null(1).message));
    let (answer, _) = profile.codec().decode(&raw.received[0], &Limits::default()).unwrap();
    assert_eq!(answer.body, Body::Message(ChunkLists::default()));
    raw.received.clear();
    raw
}

#[track_caller]
pub(super) fn last(raw: &Raw, profile: Profile) -> (Header, Bytes) {
    let message = raw.received.last().expect("a message");
    let (header, len) = profile.codec().decode(message, &Limits::default()).unwrap();
    (header, message.slice(len..))
}

pub(super) fn operate(raw: &mut Raw, profile: Profile, xid: u32, direction: Direction, exchange: Exchange) {
    let header = header_of(xid, direction, Body::Two(two::Body::Exchange(exchange)));
    raw.send(message_of(profile.codec(), &header, &Stream::new()));
}

/// The peer allows Receives of up to 64 KiB.
fn generous(config: Config) -> Config {
    let mut characteristics = Exchanged::default();
    characteristics.most_receive_size = 65_536;
    Config { characteristics, ..config }
}

pub(super) fn size(size: u32) -> Characteristic {
    Characteristic::ReceiveSize(size)
}

pub(super) fn faults(raw: &Raw, name: &str) -> u64 {
    raw.end.connection.stats().errors.get(name).copied().unwrap_or(0)
}

// requirement: v2-01-4.2.1-1, v2-03-6.2.1-1, v2-03-6.2.3-1, v2-03-6.2.3-4
#[test]
fn every_form_travels_in_every_profile() {
    for profile in PROFILES {
        let mut pair = pair(profile, Config::default(), server_config());
        for len in [0, 1, 5, 1000, 4000, 4096, 5001, 70_000, 1 << 20] {
            check_reply(1, len, pair.round_trip(echo(10, len)));
            check_reply(2, len, pair.round_trip(read(11, len)));
            check_reply(3, len, pair.round_trip(write(12, len)));
            check_reply(4, len, pair.round_trip(list(13, len)));
            check_reply(5, len, pair.round_trip(store(14, len)));
        }
        assert_eq!(pair.client.connection.version().unwrap().two.unwrap().profile, profile);
        assert!(pair.server.connection.stats().errors.is_empty(), "{:?}", pair.server.connection.stats());
        assert!(pair.client.connection.stats().errors.is_empty());
        assert!(pair.client.connection.stats().remote_invalidations > 0, "{profile:?}");
        pair.check_no_leak();
    }
}

// requirement: v2-01-5-1, v2-03-7-1
// requirement: v2-07-4.3-2
#[test]
fn v2_01_s5_one_message_of_1024_bytes_until_the_version_is_known() {
    for profile in PROFILES {
        let mut pair = Pair::with(FabricConfig::default(), two(profile), serving(profile));
        // Every later message could hold 2000 bytes, but not the first one.
        let first = pair.call(store(1, 2000));
        let second = pair.call(store(2, 2000));
        pair.settle();
        let sent = &pair.client.connection.stats().calls_sent;
        assert_eq!((sent.long, sent.inline), (1, 1), "{profile:?}");
        let mut ended: Vec<_> = pair.client.replies.iter().map(|(id, _)| *id).collect();
        ended.sort_unstable();
        assert_eq!(ended, [first, second]);
    }
}

// requirement: v2-01-2.3-1, v2-03-2.3-1, v2-01-2.3-2, v2-03-2.3-2, v2-01-5.2-2
#[test]
fn v2_01_s5_1_then_4096_bytes_both_ways() {
    for profile in PROFILES {
        let config = Config { send_size: 1024, receive_size: 1024, ..Config::default() };
        let mut pair = pair(profile, config.clone(), Config { bindings: server_config().bindings, ..config });
        let thresholds = pair.client.connection.thresholds();
        assert_eq!((thresholds.send, thresholds.receive), (4096, 4096));
        let thresholds = pair.server.connection.thresholds();
        assert_eq!((thresholds.send, thresholds.receive), (4096, 4096));
        let header = profile.codec().header_len(&ChunkLists::default().shape(Direction::Call));
        let fits = 4096 - header - 44;
        check_reply(5, fits, pair.round_trip(store(5, fits)));
        check_reply(4, 4096 - header - 28, pair.round_trip(list(6, 4096 - header - 28)));
        let stats = pair.client.connection.stats();
        assert_eq!((stats.calls_sent.inline, stats.replies_received.inline), (3, 3), "{stats:?}");
    }
}

// requirement: v2-01-5.3-1, v2-03-7.3-1
// requirement: v2-07-4.3.3-1
#[test]
fn v2_01_s5_3_a_server_answers_in_the_version_of_the_call() {
    for profile in PROFILES {
        let mut pair = Pair::with(FabricConfig::default(), Config::default(), serving(profile));
        check_reply(1, 9000, pair.round_trip(echo(1, 9000)));
        let version = |end: &End| end.connection.version().unwrap().version;
        assert_eq!((version(&pair.client), version(&pair.server)), (1, 1));
        // Values from private data hold, and the server sends no operation that this version does not know.
        assert_eq!(pair.server.connection.peer_characteristics(), None);
        assert_eq!(pair.client.connection.stats().operations_received, 0);
    }
}

// requirement: v2-01-5.2-1, v2-03-7.2-1
#[test]
fn rfc8166_s4_5_1_a_server_without_version_two_says_what_it_speaks() {
    let mut pair = Pair::with(FabricConfig::default(), two(Profile::P1), server_config());
    let failure = pair.outcome(null(1)).unwrap_err();
    assert_eq!(failure.error, crate::CallError::Version { low: 1, high: 1 });
    assert_eq!(pair.client.connection.version().map(|rules| rules.version), None);
}

#[test]
fn the_version_of_a_connection_does_not_change() {
    let mut raw = raw(Profile::P1, server_config());
    raw.send(message(&header(2, Body::Message(ChunkLists::default())), &null(2).message));
    let (answer, _) = V1.decode(raw.received.last().unwrap(), &Limits::default()).unwrap();
    assert_eq!((answer.version, answer.body), (1, Body::Error(ErrorBody::Version { low: 2, high: 2 })));
    assert_eq!(faults(&raw, "version_changed"), 1);
    // For a version that neither side speaks, the error names all versions that the server speaks.
    let unknown = Header { version: 3, ..header(3, Body::Message(ChunkLists::default())) };
    raw.send(message(&unknown, &null(3).message));
    let (answer, _) = V1.decode(raw.received.last().unwrap(), &Limits::default()).unwrap();
    assert_eq!((answer.version, answer.body), (3, Body::Error(ErrorBody::Version { low: 1, high: 2 })));
}

// requirement: v2-01-4.2.2-2, v2-03-6.2.2-2
#[test]
fn v2_01_s4_2_2_the_direction_is_that_of_the_rpc_message() {
    for profile in PROFILES {
        let mut raw = raw(profile, server_config());
        let wrong = header_of(2, Direction::Reply, Body::Message(ChunkLists::default()));
        raw.send(message_of(profile.codec(), &wrong, &null(2).message));
        assert_eq!(last(&raw, profile).0.body, Body::Error(ErrorBody::Chunk));
        assert_eq!(faults(&raw, "direction_mismatch"), 1);
    }
}

// requirement: v2-01-4.2.2-4
#[test]
fn v2_01_s4_2_2_an_operation_says_the_direction_of_who_sends_it() {
    let none = Subset::default;
    let initial = || Exchange::Initial { start: vec![], constant: none() };
    let request = || Exchange::Request { want: vec![Value { id: 77, data: Bytes::new() }] };
    let update = || {
        let now = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x40, 0]) }];
        Exchange::Update { now, clears: false }
    };
    let response = || Exchange::Response { done: none(), rejected: none(), rest: Rest::Pending(none()) };
    // An operation marked as a reply is not answered (RFC 8166 §4.5); an unsolicited response is.
    for (exchange, said, answered) in [
        (initial(), Direction::Reply, false),
        (request(), Direction::Reply, false),
        (update(), Direction::Reply, false),
        (response(), Direction::Call, true),
    ] {
        let mut raw = raw(Profile::P1, server_config());
        operate(&mut raw, Profile::P1, 7, said, exchange.clone());
        assert_eq!(faults(&raw, "operation_direction"), 1, "{exchange:?}");
        assert_eq!(raw.received.len(), usize::from(answered), "{exchange:?}");
        if answered {
            let (answer, _) = last(&raw, Profile::P1);
            assert_eq!((answer.xid, answer.body), (7, Body::Error(ErrorBody::Chunk)));
        }
        assert_eq!(raw.end.connection.exchanges_characteristics(), None, "nothing was taken");
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 4096);
    }
    // An unknown operation is refused whatever its direction is (§3.1).
    let mut raw = raw(Profile::P1, server_config());
    let header = header_of(8, Direction::Reply, Body::Two(two::Body::Exchange(initial())));
    let mut unknown = message_of(Profile::P1.codec(), &header, &Stream::new()).to_vec();
    unknown[23] = 9;
    raw.send(unknown);
    let (answer, _) = last(&raw, Profile::P1);
    assert_eq!((answer.xid, answer.body), (8, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption))));
}

// requirement: v2-03-6.2.4-1
#[test]
fn v2_03_s6_2_4_a_message_type_of_p3_is_not_known_in_p2() {
    for procedure in 10..=13 {
        let mut raw = raw(Profile::P2, server_config());
        let call = header_of(7, Direction::Call, Body::Message(ChunkLists::default()));
        let mut message = message_of(Profile::P2.codec(), &call, &null(7).message).to_vec();
        message[15] = procedure;
        raw.send(message);
        let (answer, _) = last(&raw, Profile::P2);
        assert_eq!(
            (answer.xid, answer.body),
            (7, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidProcedure))),
            "{procedure}"
        );
        assert_eq!(faults(&raw, "other_profile"), 1);
    }
}

/// An operation of RDMA2_OPTIONAL that does not exist is refused, and the connection goes on.
// requirement: v2-03-4.1-1, v2-03-6.2.4-6
#[test]
fn v2_03_s4_1_an_unknown_rdma_opttype_is_refused() {
    for operation in [1, 99, u32::MAX] {
        let mut raw = raw(Profile::P2, server_config());
        // The fixed words, RDMA2_OPTIONAL, a Call, the operation, no data.
        let words = [7, 2, 8, 5, 0, operation, 0];
        raw.send(words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect::<Vec<u8>>());
        let (answer, rest) = last(&raw, Profile::P2);
        assert_eq!((answer.xid, rest.len()), (7, 0));
        assert_eq!(answer.body, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)), "{operation}");
        assert_eq!(faults(&raw, "unknown_operation"), 1);
        let call = header_of(8, Direction::Call, Body::Message(ChunkLists::default()));
        raw.send(message_of(Profile::P2.codec(), &call, &null(8).message));
        assert_eq!(last(&raw, Profile::P2).0.body, Body::Message(ChunkLists::default()));
    }
}

#[test]
fn a_message_of_another_profile_is_known_for_what_it_is() {
    let mut raw = Raw::new(Side::Server, serving(Profile::P1));
    let call = header_of(77, Direction::Call, Body::Message(ChunkLists::default()));
    raw.send(message_of(Profile::P2.codec(), &call, &null(77).message));
    assert_eq!(last(&raw, Profile::P1).0.body, Body::Error(ErrorBody::Chunk));
    assert_eq!(faults(&raw, "other_profile"), 1);

    let mut raw = Raw::new(Side::Server, serving(Profile::P2));
    raw.send(message_of(Profile::P1.codec(), &call, &null(77).message));
    assert_eq!(last(&raw, Profile::P2).0.body, Body::Error(ErrorBody::Chunk));
    assert_eq!(faults(&raw, "other_profile"), 1);
}

/// The client begins even where the server speaks one document only: the client may speak another.
#[test]
fn v2_01_s5_a_server_of_version_two_calls_when_the_client_has_said_it() {
    for profile in EXCHANGING {
        for versions in [Versions::both(profile), Versions::two(profile)] {
            let mut raw = Raw::new(Side::Server, Config { versions, ..server_config() });
            let now = raw.fabric.instant();
            raw.end.connection.call(now, store(50, 100)).unwrap();
            raw.settle();
            assert!(raw.received.is_empty() && raw.end.connection.version().is_none());
            // A Call of another document does not confirm the version either.
            let other = if profile == Profile::P1 { Profile::P2 } else { Profile::P1 };
            let call = header_of(77, Direction::Call, Body::Message(ChunkLists::default()));
            raw.send(message_of(other.codec(), &call, &null(77).message));
            assert_eq!(last(&raw, profile).0.body, Body::Error(ErrorBody::Chunk));
            assert!(raw.received.len() == 1 && raw.end.connection.version().is_none());
            raw.send(message_of(profile.codec(), &call, &null(77).message));
            assert!(raw.end.connection.version().is_some());
            assert_eq!(last(&raw, profile).0.xid, 50, "{versions:?}");
        }
    }
}

/// A Call of another profile does not confirm the version for a client either, and its sender gets an error.
#[test]
fn v2_01_s5_a_call_of_another_profile_confirms_nothing() {
    for (profile, other) in [(Profile::P1, Profile::P2), (Profile::P2, Profile::P1)] {
        let mut raw = Raw::new(Side::Client, two(profile));
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        let call = header_of(77, Direction::Call, Body::Message(ChunkLists::default()));
        raw.send(message_of(other.codec(), &call, &null(77).message));
        let (answer, _) = last(&raw, profile);
        assert_eq!((answer.xid, answer.body), (77, Body::Error(ErrorBody::Chunk)));
        assert_eq!(faults(&raw, "other_profile"), 1);
        assert!(raw.end.connection.version().is_none());
        assert_eq!(raw.received.len(), 2, "the first Call and the refusal, no characteristics");
    }
}

// requirement: xchar-02-4.1-1, xchar-02-4-2
#[test]
fn xcharext_s4_1_both_sides_tell_what_they_are_like() {
    for profile in PROFILES {
        let client = Config { receive_size: 16_384, reverse_chunks: true, ..Config::default() };
        let server = Config { receive_size: 8192, ..server_config() };
        let pair = pair(profile, client, server);
        let of_server = pair.client.connection.peer_characteristics().unwrap();
        let of_client = pair.server.connection.peer_characteristics().unwrap();
        assert_eq!((of_server.receive_size, of_client.receive_size), (8192, 16_384), "{profile:?}");
        assert_eq!(of_client.reverse, ReverseSupport::General);
        assert_eq!(of_client.remote_invalidation, profile == Profile::P1);
        assert_eq!(pair.client.connection.exchanges_characteristics(), Some(true));
        // version-two-07 §5.2.1: the server has announced how much it sends.
        let counted_on = if profile == Profile::P3 { 4096 } else { 16_384 };
        assert_eq!(pair.client.connection.thresholds().receive, counted_on);
        // The server's own setting bounds its Sends; the client still counts on the announced value.
        assert_eq!(pair.server.connection.thresholds().send, 4096);
        let mut pair = pair;
        for len in [4000, 5000, 9000, 16_000, 20_000] {
            check_reply(4, len, pair.round_trip(list(60, len)));
            check_reply(2, len, pair.round_trip(read(61, len)));
        }
    }
}

/// A Requester counts on its own Receives alone: no message announces the sizes that the other side prefers.
#[test]
fn xcharext_s3_1_a_reply_may_be_as_long_as_the_receives_whatever_its_sender_would_like() {
    for profile in EXCHANGING {
        let client = Config { receive_size: 16_384, ..Config::default() };
        let mut pair = pair(profile, client, server_config());
        assert_eq!(pair.server.connection.thresholds().send, 4096);
        check_reply(4, 10_000, pair.round_trip(list(4, 10_000)));
        assert_eq!(pair.client.connection.stats().replies_received.inline, 2, "{profile:?}");
        assert!(pair.server.connection.stats().errors.is_empty());
    }
}

#[test]
fn xcharext_s4_1_who_leads_with_it_is_answered() {
    for profile in PROFILES {
        let mut raw = Raw::new(Side::Server, serving(profile));
        let id = if profile == Profile::P3 { 2 } else { 1 };
        let start = vec![Value { id, data: Bytes::from_static(&[0, 0, 0x20, 0]) }];
        operate(
            &mut raw,
            profile,
            9,
            Direction::Call,
            Exchange::Initial { start, constant: Subset::default() },
        );
        let Body::Two(two::Body::Exchange(Exchange::Initial { start, .. })) = last(&raw, profile).0.body
        else {
            panic!()
        };
        assert_eq!(start[0], Value { id: 1, data: Bytes::from_static(&[0, 0, 0x10, 0]) });
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 8192);
    }
}

// requirement: xchar-02-4-1, xchar-02-4.1-2, v2-03-5.3-1
#[test]
fn xcharext_s4_a_peer_without_them_is_left_alone() {
    for profile in EXCHANGING {
        let mut off = Exchanged::default();
        off.enabled = false;
        let server = Config { characteristics: off, ..server_config() };
        let client = Config { receive_size: 16_384, ..Config::default() };
        let mut pair = pair(profile, client, server);
        assert_eq!(pair.client.connection.exchanges_characteristics(), Some(false));
        assert_eq!(pair.client.connection.stats().operations_refused, 1);
        // The peer still assumes the default, so the client counts on that size.
        assert_eq!(pair.client.connection.thresholds().receive, 4096);
        check_reply(4, 9000, pair.round_trip(list(4, 9000)));
        assert_eq!(pair.client.connection.ask(vec![size(8192)]), Err(NotExchanged::Unsupported));
    }
}

// requirement: xchar-02-2.1-2, v2-03-5.1.1-2, v2-03-6.2.4-2
#[test]
fn xcharext_s2_1_a_bad_value_is_an_xdr_error_and_nothing_is_applied() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, server_config());
        let start = vec![
            Value { id: 1, data: Bytes::from_static(&[0, 0, 0x20, 0]) },
            Value { id: 2, data: Bytes::from_static(&[9]) },
        ];
        operate(
            &mut raw,
            profile,
            7,
            Direction::Call,
            Exchange::Initial { start, constant: Subset::default() },
        );
        let (answer, _) = last(&raw, profile);
        assert_eq!((answer.xid, answer.body), (7, Body::Error(ErrorBody::Chunk)));
        assert_eq!(faults(&raw, "bad_characteristic"), 1);
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 4096);
    }
}

#[test]
fn xcharext_s4_3_a_response_to_no_request_and_an_update_of_what_nobody_knows() {
    let mut raw = raw(Profile::P1, server_config());
    let response = Exchange::Response {
        done: Subset::default(),
        rejected: Subset::default(),
        rest: Rest::Pending(Subset::default()),
    };
    operate(&mut raw, Profile::P1, 5, Direction::Reply, response);
    assert_eq!(faults(&raw, "unexpected_response"), 1);
    let now = vec![Value { id: 77, data: Bytes::from_static(b"abcd") }];
    operate(&mut raw, Profile::P1, 6, Direction::Call, Exchange::Update { now, clears: false });
    assert_eq!(faults(&raw, "unknown_characteristic"), 1);
    assert!(raw.received.is_empty(), "{:?}", raw.received);
    // A reduction that this side did not ask for is recorded and followed.
    for bytes in [[0, 0, 0x40, 0], [0, 0, 0x20, 0]] {
        let now = vec![Value { id: 1, data: Bytes::copy_from_slice(&bytes) }];
        operate(&mut raw, Profile::P1, 6, Direction::Call, Exchange::Update { now, clears: false });
    }
    assert_eq!(faults(&raw, "unasked_reduction"), 1);
    assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 8192);
    assert!(raw.end.closed.is_none());
}

#[test]
fn xcharext_s2_3_a_request_and_its_response_are_a_call_and_do_not_end_the_connection() {
    for profile in EXCHANGING {
        let limits = Limits { operations: 10, ..Limits::default() };
        let client = Config { limits: limits.clone(), ..Config::default() };
        let mut pair = pair(profile, client, Config { limits, ..server_config() });
        prove(&mut pair);
        for _ in 0..30 {
            pair.client.connection.ask(vec![size(4096)]).unwrap();
            pair.settle();
        }
        for end in [&pair.client, &pair.server] {
            assert!(end.closed.is_none(), "{profile:?} {:?}", end.closed);
            assert!(end.connection.stats().errors.is_empty());
        }
        assert!(pair.client.connection.stats().operations_received > 30);
    }
}

#[test]
fn operations_without_end_end_the_connection() {
    for profile in EXCHANGING {
        let limits = Limits { operations: 10, ..Limits::default() };
        let mut raw = raw(profile, Config { limits, ..server_config() });
        let update = || Exchange::Update {
            now: vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x40, 0]) }],
            clears: false,
        };
        for xid in 0..10 {
            operate(&mut raw, profile, xid, Direction::Call, update());
        }
        assert!(raw.end.closed.is_none());
        operate(&mut raw, profile, 11, Direction::Call, update());
        assert_eq!(faults(&raw, "too_many_operations"), 1);
        assert!(raw.end.closed.is_some());
    }
}

// requirement: xchar-02-4.3-1, xchar-02-4.3-2, v2-03-5.3.3-3
#[test]
fn xcharext_s4_2_a_request_says_what_became_of_each() {
    for profile in EXCHANGING {
        let mut exchanged = Exchanged::default();
        let register =
            |id, changeable| Registered::new(id, Bytes::from_static(b"before"), changeable).unwrap();
        exchanged.register(register(EXPERIMENTAL, true)).unwrap();
        exchanged.register(register(EXPERIMENTAL + 1, false)).unwrap();
        let server = Config { characteristics: exchanged.clone(), ..server_config() };
        exchanged.register(register(EXPERIMENTAL + 2, false)).unwrap();
        let client = Config { characteristics: exchanged, ..Config::default() };
        let mut pair = pair(profile, client, server);
        let own = |id, data: &'static [u8]| Characteristic::Registered { id, data: Bytes::from_static(data) };
        let wants = vec![
            own(EXPERIMENTAL, b"after"),
            own(EXPERIMENTAL + 1, b"after"),
            own(EXPERIMENTAL + 2, b"unknown"),
            size(4096),
            Characteristic::Reverse(ReverseSupport::General),
        ];
        let request = pair.client.connection.ask(wants.clone()).unwrap();
        pair.settle();
        let [Notice::Answered { request: answered, dispositions }] = &pair.client.notices[..] else {
            panic!("{:?}", pair.client.notices)
        };
        assert_eq!(*answered, request);
        let (asked, said): (Vec<_>, Vec<_>) = dispositions.iter().cloned().unzip();
        assert_eq!(asked, wants);
        use Disposition::{Done, Rejected};
        assert_eq!(said, [Done, Rejected, Rejected, Done, Rejected], "{profile:?}");
        let known = &pair.client.connection.peer_characteristics().unwrap().registered;
        assert_eq!(known[&EXPERIMENTAL], "after");
        assert_eq!(known[&(EXPERIMENTAL + 1)], "before");
        assert_eq!(pair.server.notices, [Notice::Own(own(EXPERIMENTAL, b"after"))]);
        pair.client.notices.clear();
        let request = pair.client.connection.ask(vec![size(1 << 17)]).unwrap();
        pair.settle();
        let dispositions = vec![(size(1 << 17), Rejected)];
        assert_eq!(pair.client.notices, [Notice::Answered { request, dispositions }]);
    }
}

/// The difficulties of xcharext-02 §3.1: growing and shrinking on a live connection, in both directions, under load.
// requirement: xchar-02-3.1-1, xchar-02-3.1-2
#[test]
fn xcharext_s3_1_receives_grow_and_shrink_without_a_message_lost() {
    for profile in EXCHANGING {
        for by_request in [false, true] {
            let client = generous(Config { send_size: 65_536, ..Config::default() });
            let server = Config { send_size: 65_536, ..server_config() };
            let mut pair = pair(profile, client, server);
            let inline = |pair: &Pair| pair.client.connection.stats().replies_received.inline;
            let load = |pair: &mut Pair, base: u32| {
                for xid in base..base + 40 {
                    pair.call(list(xid, 20_000));
                }
            };
            let settle = |pair: &mut Pair| {
                pair.settle();
                for (_, result) in std::mem::take(&mut pair.client.replies) {
                    check_reply(4, 20_000, result.unwrap());
                }
            };
            load(&mut pair, 100);
            settle(&mut pair);
            let before = inline(&pair);
            // The Receives grow while calls are in flight.
            load(&mut pair, 200);
            if by_request {
                pair.server.connection.ask(vec![size(65_536)]).unwrap();
            } else {
                pair.client.connection.change(size(65_536)).unwrap();
            }
            settle(&mut pair);
            for base in (300..900).step_by(50) {
                load(&mut pair, base);
                settle(&mut pair);
            }
            assert!(pair.client.notices.contains(&Notice::Own(size(65_536))), "{:?}", pair.client.notices);
            assert_eq!(
                pair.server.connection.peer_characteristics().unwrap().receive_size,
                65_536,
                "{profile:?}"
            );
            assert_eq!(pair.client.connection.thresholds().receive, 65_536);
            let up = inline(&pair);
            load(&mut pair, 1000);
            settle(&mut pair);
            assert_eq!(inline(&pair) - up, 40, "all replies fit inline now");
            assert!(up > before);
            // The Receives shrink again, which only the server can ask for.
            assert_eq!(
                pair.client.connection.change(size(4096)),
                Err(NotExchanged::Reduction { size: 4096, now: 65_536 })
            );
            load(&mut pair, 1100);
            pair.pump();
            let request = pair.server.connection.ask(vec![size(4096)]).unwrap();
            settle(&mut pair);
            for base in (1200..1500).step_by(50) {
                load(&mut pair, base);
                settle(&mut pair);
            }
            assert!(pair.client.notices.contains(&Notice::Own(size(4096))));
            assert_eq!(
                pair.server.connection.peer_characteristics().unwrap().receive_size,
                4096,
                "{profile:?}"
            );
            let answered = pair.server.notices.iter().any(
                |notice| matches!(notice, Notice::Answered { request: answered, .. } if *answered == request),
            );
            assert!(answered, "{:?}", pair.server.notices);
            assert_eq!(
                pair.server.notices.contains(&Notice::Completed(size(4096))),
                profile == Profile::P1,
                "{:?}",
                pair.server.notices
            );
            let down = inline(&pair);
            load(&mut pair, 1600);
            settle(&mut pair);
            assert_eq!(inline(&pair), down, "no reply fits inline any more");
            for end in [&pair.client, &pair.server] {
                assert!(end.connection.stats().errors.is_empty(), "{:?}", end.connection.stats().errors);
                assert!(end.closed.is_none());
            }
            pair.check_no_leak();
        }
    }
}

/// If the peer's request changes a value whose update still waits, the update must not repeat the old value after the
/// response.
#[test]
fn xcharext_s4_3_an_update_that_waits_says_what_the_response_said() {
    let own =
        |data: &'static [u8]| Characteristic::Registered { id: EXPERIMENTAL, data: Bytes::from_static(data) };
    for profile in EXCHANGING {
        let mut exchanged = Exchanged::default();
        exchanged.register(Registered::new(EXPERIMENTAL, Bytes::new(), true).unwrap()).unwrap();
        let server = Config { characteristics: exchanged.clone(), ..server_config() };
        let client = Config { characteristics: exchanged, ..Config::default() };
        let mut pair = pair(profile, client, server);
        prove(&mut pair);
        // The first update leaves; the second waits for proof that the first has arrived.
        pair.client.connection.change(own(b"first")).unwrap();
        pair.settle();
        pair.client.connection.change(own(b"second")).unwrap();
        pair.server.connection.ask(vec![own(b"asked for")]).unwrap();
        pair.settle();
        prove(&mut pair);
        let told = &pair.server.connection.peer_characteristics().unwrap().registered[&EXPERIMENTAL];
        assert_eq!(told, "asked for", "{profile:?}");
        assert_eq!(&pair.client.connection.characteristics().unwrap().registered[&EXPERIMENTAL], told);
    }
}

/// In P2 the response waits for the receive size, and reports the other values as they are at that time.
// requirement: v2-03-5.3.3-1, v2-03-5.3.3-3
#[test]
fn v2_03_s5_3_3_a_response_that_waited_says_what_is_in_effect() {
    let own =
        |data: &'static [u8]| Characteristic::Registered { id: EXPERIMENTAL, data: Bytes::from_static(data) };
    let mut exchanged = Exchanged::default();
    exchanged.register(Registered::new(EXPERIMENTAL, Bytes::new(), true).unwrap()).unwrap();
    exchanged.most_receive_size = 65_536;
    let server = Config { characteristics: exchanged.clone(), ..server_config() };
    let client = Config { characteristics: exchanged, ..Config::default() };
    let mut pair = pair(Profile::P2, client, server);
    prove(&mut pair);
    pair.server.connection.ask(vec![own(b"asked for"), size(8192)]).unwrap();
    pair.settle();
    pair.client.connection.change(own(b"again")).unwrap();
    for _ in 0..3 {
        prove(&mut pair);
    }
    let told = pair.server.connection.peer_characteristics().unwrap();
    assert_eq!((told.receive_size, &told.registered[&EXPERIMENTAL][..]), (8192, &b"again"[..]));
    let answered = pair.server.notices.iter().find_map(|notice| match notice {
        Notice::Answered { dispositions, .. } => Some(dispositions),
        _ => None,
    });
    let expected = vec![(own(b"asked for"), Disposition::Other), (size(8192), Disposition::Done)];
    assert_eq!(answered, Some(&expected));
}

/// The receive size shrinks less than the peer has asked for. Smaller Receives are posted only after the Calls that
/// count on more are answered, and the response reports the final size.
#[test]
fn xcharext_s3_1_a_reduction_that_goes_less_far_is_still_a_reduction() {
    for profile in EXCHANGING {
        let client = generous(Config { receive_size: 65_536, ..Config::default() });
        let server = Config { send_size: 65_536, ..server_config() };
        let mut pair = pair(profile, client, server);
        prove(&mut pair);
        pair.server.serving = false;
        pair.call(list(10, 20_000));
        pair.settle();
        pair.server.connection.ask(vec![size(4096)]).unwrap();
        pair.settle();
        pair.client.connection.change(size(8192)).unwrap();
        pair.settle();
        // More Calls than there are Receives of the larger size.
        pair.server.serving = true;
        prove(&mut pair);
        prove(&mut pair);
        let (token, _, _, message) = pair.server.calls.pop().unwrap();
        let now = pair.now();
        pair.server.connection.reply(now, token, serve(message));
        pair.settle();
        let (_, reply) = pair.client.replies.pop().unwrap();
        check_reply(4, 20_000, reply.unwrap());
        prove(&mut pair);
        let told = pair.server.connection.peer_characteristics().unwrap().receive_size;
        assert_eq!((told, pair.client.connection.characteristics().unwrap().receive_size), (8192, 8192));
        if profile == Profile::P2 {
            let other = pair.server.notices.iter().any(|notice| {
                matches!(notice, Notice::Answered { dispositions, .. } if dispositions[0].1 == Disposition::Other)
            });
            assert!(other, "{:?}", pair.server.notices);
        }
        for end in [&pair.client, &pair.server] {
            assert!(end.connection.stats().errors.is_empty(), "{:?}", end.connection.stats().errors);
        }
        pair.check_no_leak();
    }
}

/// A complete change is not yet announced: the peer would believe that its next request was complete, too.
#[test]
fn xcharext_s4_4_one_change_of_a_characteristic_is_pending_at_a_time() {
    let client = generous(Config { receive_size: 65_536, ..Config::default() });
    let server = Config { send_size: 65_536, ..server_config() };
    let mut pair = pair(Profile::P1, client, server);
    prove(&mut pair);
    // The operation that leaves first keeps the update waiting.
    pair.client.connection.change(Characteristic::RemoteInvalidation(false)).unwrap();
    pair.settle();
    for wanted in [8192, 5000] {
        pair.server.connection.ask(vec![size(wanted)]).unwrap();
    }
    pair.settle();
    prove(&mut pair);
    let told = pair.server.connection.peer_characteristics().unwrap().receive_size;
    assert_eq!(told, pair.client.connection.characteristics().unwrap().receive_size);
    let count =
        |said: Disposition| {
            pair.server.notices.iter().filter(
            |notice| matches!(notice, Notice::Answered { dispositions, .. } if dispositions[0].1 == said),
        ).count()
        };
    let completed =
        pair.server.notices.iter().filter(|notice| matches!(notice, Notice::Completed(_))).count();
    assert_eq!((count(Disposition::Pending), count(Disposition::Rejected), completed), (1, 1, 1));
}

#[test]
fn two_values_of_the_same_are_not_asked_for() {
    let mut pair = pair(Profile::P2, Config::default(), server_config());
    let twice = vec![size(4096), Characteristic::Reverse(ReverseSupport::None), size(8192)];
    assert_eq!(pair.client.connection.ask(twice), Err(NotExchanged::Twice(size(8192))));
}

// requirement: xchar-02-3.1-3
#[test]
fn xcharext_s3_1_a_server_grows_and_shrinks_too() {
    for profile in EXCHANGING {
        let client = Config { send_size: 65_536, ..Config::default() };
        let mut pair = pair(profile, client, generous(server_config()));
        let load = |pair: &mut Pair, base: u32| {
            for xid in base..base + 40 {
                pair.call(store(xid, 20_000));
            }
            pair.settle();
            for (_, result) in std::mem::take(&mut pair.client.replies) {
                check_reply(5, 20_000, result.unwrap());
            }
        };
        pair.client.connection.ask(vec![size(32_768)]).unwrap();
        for base in (100..900).step_by(50) {
            load(&mut pair, base);
        }
        assert_eq!(pair.client.connection.thresholds().send, 32_768, "{profile:?} {:?}", pair.client.notices);
        let inline = pair.client.connection.stats().calls_sent.inline;
        load(&mut pair, 1000);
        assert_eq!(pair.client.connection.stats().calls_sent.inline - inline, 40);
        pair.client.connection.ask(vec![size(4096)]).unwrap();
        // From the time of its request the client sends no more than that.
        assert_eq!(pair.client.connection.thresholds().send, 4096);
        load(&mut pair, 1100);
        load(&mut pair, 1200);
        assert_eq!(pair.client.connection.peer_characteristics().unwrap().receive_size, 4096);
        assert!(pair.server.connection.stats().errors.is_empty());
    }
}

// requirement: xchar-02-3.2-1, v2-03-6.2.3-2, v2-03-6.2.3-3
#[test]
fn xcharext_s3_2_without_readiness_plain_sends() {
    for profile in PROFILES {
        let client = Config { remote_invalidation: false, ..Config::default() };
        let mut pair = pair(profile, client, server_config());
        check_reply(1, 9000, pair.round_trip(echo(1, 9000)));
        assert_eq!(pair.client.connection.stats().remote_invalidations, 0);
        assert!(pair.client.connection.stats().local_invalidations > 0);
    }
    // The characteristic alone switches this on a live connection; private data stays the same.
    let mut pair = pair(Profile::P1, Config::default(), server_config());
    check_reply(1, 9000, pair.round_trip(echo(1, 9000)));
    let before = pair.client.connection.stats().remote_invalidations;
    assert!(before > 0);
    pair.client.connection.change(Characteristic::RemoteInvalidation(false)).unwrap();
    pair.settle();
    check_reply(1, 9000, pair.round_trip(echo(1, 9000)));
    assert_eq!(pair.client.connection.stats().remote_invalidations, before);
}

#[test]
fn xcharext_s3_3_a_server_keeps_to_what_the_client_takes() {
    for (reverse_chunks, expected) in [(false, false), (true, true)] {
        let client = Config { reverse_chunks, ..Config::default() };
        let server = Config { reverse_chunks: true, ..server_config() };
        let mut pair = pair(Profile::P1, client, server);
        let now = pair.now();
        let id = pair.server.connection.call(now, store(50, 9000)).unwrap();
        pair.settle();
        let (answered, result) = pair.server.replies.pop().unwrap();
        assert_eq!((answered, result.is_ok()), (id, expected), "{result:?}");
        let id = pair.server.connection.call(now, store(51, 900)).unwrap();
        pair.run_for(Duration::from_secs(1));
        let (answered, result) = pair.server.replies.pop().unwrap();
        assert_eq!(answered, id);
        check_reply(5, 900, result.unwrap());
    }
}

#[test]
fn a_server_that_calls_first_speaks_version_one_to_a_client_that_says_nothing() {
    let mut pair = Pair::with(FabricConfig::default(), Config::default(), serving(Profile::P1));
    let now = pair.now();
    let id = pair.server.connection.call(now, store(50, 900)).unwrap();
    pair.settle();
    assert!(pair.server.replies.is_empty(), "it waits for the client to say the version");
    pair.run_for(Duration::from_secs(1));
    let (answered, result) = pair.server.replies.pop().unwrap();
    assert_eq!(answered, id);
    check_reply(5, 900, result.unwrap());
    assert_eq!(pair.server.connection.version().map(|rules| rules.version), Some(1));
}

// requirement: v2-01-4.2.2-1, v2-03-6.2.2-1
#[test]
fn a_server_that_calls_first_speaks_what_the_client_has_offered() {
    for profile in PROFILES {
        let mut pair = Pair::with(FabricConfig::default(), two(profile), serving(profile));
        let now = pair.now();
        let id = pair.server.connection.call(now, store(50, 900)).unwrap();
        check_reply(0, 0, pair.round_trip(null(1)));
        let (answered, result) = pair.server.replies.pop().unwrap();
        assert_eq!(answered, id);
        check_reply(5, 900, result.unwrap());
    }
}

// requirement: rfc8166-4.5-1
#[test]
fn rfc8166_s4_5_a_malformed_first_message_is_refused_in_its_version() {
    for profile in PROFILES {
        let mut raw = Raw::new(Side::Server, serving(profile));
        let lists = ChunkLists { read: vec![], write: vec![], reply: None };
        raw.send(message(&header(7, Body::NoMessage(lists)), &Stream::new()));
        let (answer, _) = V1.decode(raw.received.last().unwrap(), &Limits::default()).unwrap();
        assert_eq!((answer.xid, answer.version, answer.body), (7, 1, Body::Error(ErrorBody::Chunk)));
        raw.send(&[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]);
        let (answer, _) = V1.decode(raw.received.last().unwrap(), &Limits::default()).unwrap();
        assert_eq!((answer.xid, answer.version, answer.body), (8, 1, Body::Error(ErrorBody::Chunk)));
    }
}

#[test]
fn i6_nothing_is_kept_of_what_is_not_registered_here() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, server_config());
        let many = |from: u32| {
            (0..60).map(|id| Value { id: EXPERIMENTAL + from + id, data: Bytes::from(vec![7; 40]) }).collect()
        };
        for from in [0, 60, 120] {
            let start = many(from);
            operate(
                &mut raw,
                profile,
                from,
                Direction::Call,
                Exchange::Initial { start, constant: Subset::default() },
            );
        }
        assert!(raw.end.connection.peer_characteristics().unwrap().registered.is_empty());
        let mut exchanged = Exchanged::default();
        exchanged.register(Registered::new(EXPERIMENTAL, Bytes::new(), false).unwrap()).unwrap();
        let mut raw = self::raw(profile, Config { characteristics: exchanged, ..server_config() });
        let start = vec![Value { id: EXPERIMENTAL, data: Bytes::from(vec![7; 300]) }];
        operate(
            &mut raw,
            profile,
            5,
            Direction::Call,
            Exchange::Initial { start, constant: Subset::default() },
        );
        assert_eq!(faults(&raw, "bad_characteristic"), 1);
    }
}

#[test]
fn bogus_replies_do_not_make_room_for_more_operations() {
    let limits = Limits { operations: 10, ..Limits::default() };
    let mut raw = raw(Profile::P1, Config { limits, ..server_config() });
    for xid in 0..10 {
        let now = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x40, 0]) }];
        operate(&mut raw, Profile::P1, xid, Direction::Call, Exchange::Update { now, clears: false });
        let reply = header_of(99, Direction::Reply, Body::Message(ChunkLists::default()));
        raw.send(message_of(Profile::P1.codec(), &reply, &super::super::requester::accepted(99, &[])));
    }
    let now = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x40, 0]) }];
    operate(&mut raw, Profile::P1, 50, Direction::Call, Exchange::Update { now, clears: false });
    assert!(raw.end.closed.is_some());
}

#[test]
fn xcharext_s3_1_a_change_on_the_way_down_waits_for_the_calls_in_flight() {
    for profile in EXCHANGING {
        let client = generous(Config { receive_size: 16_384, ..Config::default() });
        let server = Config { send_size: 65_536, ..server_config() };
        let mut pair = pair(profile, client, server);
        // So many calls prove that the server's first operation arrived.
        for xid in 300..500 {
            check_reply(0, 0, pair.round_trip(null(xid)));
        }
        pair.server.serving = false;
        pair.call(list(5, 16_000));
        pair.settle();
        pair.server.connection.ask(vec![size(4096)]).unwrap();
        pair.settle();
        // The owner asks for a size in between; the reply to the earlier call still arrives.
        pair.client.connection.change(size(8192)).unwrap();
        pair.settle();
        pair.server.serving = true;
        let now = pair.now();
        let calls = std::mem::take(&mut pair.server.calls);
        for xid in 100..300 {
            check_reply(4, 100, pair.round_trip(list(xid, 100)));
        }
        for (token, _, _, message) in calls {
            pair.server.connection.reply(now, token, serve(message));
        }
        pair.settle();
        check_reply(4, 16_000, pair.client.replies.pop().unwrap().1.unwrap());
        assert!(pair.client.notices.contains(&Notice::Own(size(8192))), "{:?}", pair.client.notices);
        let told = pair.server.connection.peer_characteristics().unwrap().receive_size;
        assert_eq!(told, pair.client.connection.characteristics().unwrap().receive_size, "{profile:?}");
        assert!(pair.client.closed.is_none());
    }
}

#[test]
fn version_two_01_s5_an_error_tells_no_grant_before_a_reply_has() {
    let mut raw = Raw::new(Side::Client, Config::default());
    let now = raw.fabric.instant();
    for xid in 1..5 {
        raw.end.connection.call(now, null(xid)).unwrap();
    }
    raw.settle();
    assert_eq!(raw.received.len(), 1);
    let error = Header { credit: 128, ..header(1, Body::Error(ErrorBody::Chunk)) };
    raw.send(message(&error, &Stream::new()));
    assert_eq!(raw.received.len(), 2, "one at a time still");
}

/// version-two-03 §6.2.3: `rdma_inv_handle` is zero in a reply.
#[test]
fn v2_03_s6_2_3_a_reply_names_no_handle() {
    let mut raw = raw(Profile::P2, server_config());
    let call = header_of(2, Direction::Call, Body::Message(ChunkLists::default()));
    raw.send(message_of(Profile::P2.codec(), &call, &null(2).message));
    let (reply, _) = last(&raw, Profile::P2);
    assert_eq!((reply.direction, reply.invalidate), (Some(Direction::Reply), 0));
}

/// version-two-01 §4.2.2: the header says the direction, whatever the chunks suggest. A Call with nothing but a Reply
/// chunk is a bad Call, and has an answer.
#[test]
fn v2_01_s4_2_2_the_header_says_that_a_message_in_a_chunk_is_a_call() {
    for profile in EXCHANGING {
        let mut raw = Raw::new(Side::Client, two(profile));
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        let reply = header_of(1, Direction::Reply, Body::Message(ChunkLists::default()));
        raw.send(message_of(profile.codec(), &reply, &super::super::requester::accepted(1, &[])));
        let chunk = WriteChunk { segments: vec![raw.writable(64)] };
        let lists = || ChunkLists { reply: Some(chunk.clone()), ..ChunkLists::default() };
        for (direction, answers) in [(Direction::Call, 1), (Direction::Reply, 0)] {
            raw.received.clear();
            raw.send(message_of(
                profile.codec(),
                &header_of(70, direction, Body::NoMessage(lists())),
                &Stream::new(),
            ));
            assert_eq!(raw.received.len(), answers, "{profile:?} {direction:?}");
        }
    }
}

/// Rule I3: Receives for operations are those of Version Two alone. A connection that goes back to Version One has none.
#[test]
fn i3_version_one_keeps_no_receives_for_operations() {
    let receives = |versions: Versions| {
        let mut raw = Raw::new(Side::Client, Config { versions, ..Config::default() });
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        if versions.profile().is_some() {
            operate(
                &mut raw,
                Profile::P1,
                9,
                Direction::Call,
                Exchange::Initial { start: vec![], constant: Subset::default() },
            );
            assert!(raw.end.connection.version().is_some());
            raw.end.connection.speak(&V1);
        }
        for _ in 0..8 {
            raw.send(message(&header(77, Body::Done), &Stream::new()));
        }
        raw.end.connection.receives_posted()
    };
    assert_eq!(receives(Versions::both(Profile::P1)), receives(Versions::ONE));
}

/// xcharext-02 §2.1: each operation that cannot be read is refused, also under the XID of an earlier one.
#[test]
fn xcharext_s2_1_operations_that_are_cut_off_are_refused_one_by_one() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, server_config());
        let initial = Exchange::Initial { start: vec![], constant: Subset::default() };
        let body = Body::Two(two::Body::Exchange(initial));
        let whole = message_of(profile.codec(), &header_of(9, Direction::Call, body), &Stream::new());
        for answers in 1..=2 {
            raw.send(whole.slice(..whole.len() - 4));
            let errors = raw.received.iter().filter(|message| {
                let (header, _) = profile.codec().decode(message, &Limits::default()).unwrap();
                header.xid == 9 && matches!(header.body, Body::Error(_))
            });
            assert_eq!(errors.count(), answers, "{profile:?}");
        }
    }
}
