//! Operations on characteristics as they look on the wire, and what is made of answers that say too much or too little.

use bytes::{Bytes, BytesMut};
use rpcrdma_sim::FabricConfig;
use rpcrdma_verbs::{QueuePair, SendRequest, WorkRequest, WrId};
use rpcrdma_xdr::Stream;

use super::version_two::{EXCHANGING, PROFILES, faults, header_of, last, message_of, operate, raw, size};
use crate::testing::*;
use crate::two::characteristics::{EXPERIMENTAL, REGISTERED_MAX, REGISTERED_MOST};
use crate::wire::two::transmission::{BufferStructure, Property};
use crate::wire::two::{self, Exchange, Profile, Rest, Subset, Value};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, Header};
use crate::{
    CallError, Characteristic, ChunkSupport, Config, Disposition, Event, Exchanged, Limits, NotExchanged,
    Notice, Post, Registered, ReverseSupport, Side, Versions,
};

/// What a client sends to a peer of this profile; its first call is answered.
fn client(profile: Profile, config: Config) -> Raw {
    let mut raw = Raw::new(Side::Client, Config { versions: Versions::two(profile), ..config });
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(1)).unwrap();
    raw.settle();
    answer(&mut raw, profile, 1, Body::Message(ChunkLists::default()));
    raw
}

/// Answers a call.
fn answer(raw: &mut Raw, profile: Profile, xid: u32, body: Body) {
    let payload = match body {
        Body::Message(_) => super::super::requester::accepted(xid, &[]),
        _ => Stream::new(),
    };
    raw.send(message_of(profile.codec(), &header_of(xid, Direction::Reply, body), &payload));
}

/// The client asks for this; the XID of its request. Before it come more calls than are granted: only they prove to it that its
/// first operation has arrived.
fn ask(raw: &mut Raw, profile: Profile, want: Vec<Characteristic>) -> u32 {
    for xid in 100..120 {
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(xid)).unwrap();
        raw.settle();
        answer(raw, profile, xid, Body::Message(ChunkLists::default()));
    }
    raw.end.connection.ask(want).unwrap();
    raw.settle();
    let (header, _) = last(raw, profile);
    assert!(matches!(header.body, Body::Two(two::Body::Exchange(Exchange::Request { .. }))), "{header:?}");
    header.xid
}

/// Version-two-01 §4.2.2: an operation has an XID of its direction. While its answer is due, no call has that XID.
#[test]
fn v2_01_s4_2_2_the_xid_of_a_request_is_in_use() {
    for profile in EXCHANGING {
        let mut raw = client(profile, Config::default());
        let xid = ask(&mut raw, profile, vec![size(8192)]);
        assert!(raw.end.connection.xid_in_use(xid));
        let now = raw.fabric.instant();
        let refused = raw.end.connection.call(now, null(xid)).unwrap_err();
        assert_eq!(refused.kind, crate::RefusedKind::XidInUse(xid));
        assert!(!raw.end.connection.xid_in_use(xid ^ 1));
    }
}

// requirement: v2-01-4.2.1-2, v2-03-6.2.1-2
#[test]
fn v2_01_s4_2_1_nothing_follows_an_error() {
    for profile in PROFILES {
        let mut raw = raw(profile, server_config());
        // A Call whose RPC message is none, a bad value, a version that is not spoken: each refusal has a form of its own.
        let lists = ChunkLists::default();
        raw.send(message_of(
            profile.codec(),
            &header_of(7, Direction::Call, Body::NoMessage(lists)),
            &Stream::new(),
        ));
        let start = vec![Value { id: 1, data: Bytes::from_static(&[9]) }];
        operate(
            &mut raw,
            profile,
            8,
            Direction::Call,
            Exchange::Initial { start, constant: Subset::default() },
        );
        let answers: Vec<_> = raw
            .received
            .iter()
            .map(|message| (profile.codec().decode(message, &Limits::default()).unwrap(), message.len()))
            .collect();
        assert_eq!(answers.len(), 2, "{profile:?}");
        for ((header, end), len) in answers {
            assert!(matches!(header.body, Body::Error(_)), "{header:?}");
            assert_eq!(end, len, "{header:?}");
        }
    }
}

// requirement: v2-01-4.2.2-4
#[test]
fn v2_01_s4_2_2_an_operation_is_a_call_and_its_response_a_reply() {
    let profile = Profile::P1;
    let mut raw = client(profile, Config::default());
    ask(&mut raw, profile, vec![size(8192)]);
    let mut seen = Vec::new();
    for message in &raw.received {
        let (header, _) = profile.codec().decode(message, &Limits::default()).unwrap();
        if let Body::Two(two::Body::Exchange(exchange)) = header.body {
            seen.push((header.direction, exchange));
        }
    }
    let [(initial, Exchange::Initial { .. }), (request, Exchange::Request { .. })] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!((*initial, *request), (Some(Direction::Call), Some(Direction::Call)));
    let want = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x10, 0]) }];
    operate(&mut raw, profile, 9, Direction::Call, Exchange::Request { want });
    let (response, _) = last(&raw, profile);
    assert!(
        matches!(response.body, Body::Two(two::Body::Exchange(Exchange::Response { .. }))),
        "{response:?}"
    );
    assert_eq!((response.xid, response.direction), (9, Some(Direction::Reply)));
}

// requirement: v2-03-5.3.3-2, v2-03-5.3.3-4
#[test]
fn v2_03_s5_3_3_what_a_response_does_not_say_once_is_rejected() {
    let profile = Profile::P2;
    let own = |place: u32, data: &'static [u8]| Characteristic::Registered {
        id: EXPERIMENTAL + place,
        data: Bytes::from_static(data),
    };
    let mut exchanged = Exchanged::default();
    for place in 0..4 {
        exchanged.register(Registered::new(EXPERIMENTAL + place, Bytes::new(), false).unwrap()).unwrap();
    }
    let mut raw = client(profile, Config { characteristics: exchanged, ..Config::default() });
    raw.end.notices.clear();
    let wants: Vec<_> = (0..3).map(|place| own(place, b"want")).collect();
    let xid = ask(&mut raw, profile, wants.clone());
    // The first is done, the second done and rejected, the third not mentioned; of a fourth nobody spoke.
    let instead = vec![Value { id: EXPERIMENTAL + 3, data: Bytes::from_static(b"four") }];
    let response = Exchange::Response {
        done: [0, 1].into_iter().collect(),
        rejected: [1].into_iter().collect(),
        rest: Rest::Other(instead),
    };
    operate(&mut raw, profile, xid, Direction::Reply, response);
    let dispositions: Vec<_> =
        wants.into_iter().zip([Disposition::Done, Disposition::Rejected, Disposition::Rejected]).collect();
    let answered: Vec<_> = raw
        .end
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Answered { dispositions, .. } => Some(dispositions.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(answered, [dispositions]);
    let known = &raw.end.connection.peer_characteristics().unwrap().registered;
    assert_eq!(known.get(&EXPERIMENTAL).map(|data| &data[..]), Some(&b"want"[..]));
    assert_eq!(known.get(&(EXPERIMENTAL + 3)), None, "what was not asked for");
    assert_eq!(faults(&raw, "response_unclear"), 2);
    assert!(raw.end.closed.is_none());
}

// requirement: v2-03-6.2.4-7
#[test]
fn v2_03_s6_2_4_a_call_that_gets_a_system_error_is_over() {
    let profile = Profile::P2;
    let mut raw = client(profile, Config::default());
    raw.end.replies.clear();
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(2)).unwrap();
    raw.settle();
    answer(&mut raw, profile, 2, Body::Error(ErrorBody::Two(two::ErrorBody::System)));
    let (_, result) = raw.end.replies.pop().expect("the call has ended");
    let error = result.unwrap_err().error;
    assert!(matches!(error, CallError::Refused(two::ErrorBody::System)), "{error:?}");
    assert!(raw.end.closed.is_none());
    // The next one goes on as if nothing had been.
    raw.end.connection.call(now, null(3)).unwrap();
    raw.settle();
    answer(&mut raw, profile, 3, Body::Message(ChunkLists::default()));
    assert!(raw.end.replies.pop().expect("the call has ended").1.is_ok());
}

fn own(data: &'static [u8]) -> Characteristic {
    Characteristic::Registered { id: EXPERIMENTAL, data: Bytes::from_static(data) }
}

/// Returns a side with a characteristic of its own. A client has announced it.
fn with_own(side: Side, profile: Profile) -> Raw {
    let mut exchanged = Exchanged::default();
    exchanged.register(Registered::new(EXPERIMENTAL, Bytes::new(), true).unwrap()).unwrap();
    let config = Config { characteristics: exchanged, ..server_config() };
    match side {
        Side::Client => client(profile, config),
        Side::Server => raw(profile, config),
    }
}

/// Announces the characteristics of the peer, all with their defaults.
fn tell(raw: &mut Raw, profile: Profile) {
    let initial = Exchange::Initial { start: vec![], constant: Subset::default() };
    operate(raw, profile, 2, Direction::Call, initial);
}

/// A peer that tells its receive size by its structure reduces the size by another structure: that is the change which this
/// side asked for.
#[test]
fn xcharext_s3_1_a_size_that_was_asked_for_may_come_as_a_structure() {
    let profile = Profile::P1;
    let structure = |size| {
        let mut data = BytesMut::new();
        BufferStructure::default_of(size).encode(&mut data);
        let now = vec![Value { id: Property::BufferStructure.id(profile).unwrap(), data: data.freeze() }];
        Exchange::Update { now, clears: false }
    };
    for is_asked in [true, false] {
        let mut raw = with_own(Side::Client, profile);
        tell(&mut raw, profile);
        operate(&mut raw, profile, 3, Direction::Call, structure(16_384));
        if is_asked {
            prove(&mut raw, profile, 100);
            raw.received.clear();
            raw.end.connection.ask(vec![size(8192)]).unwrap();
            raw.settle();
            let [(request, Exchange::Request { .. })] = operations(&raw, profile)[..] else {
                panic!("{:?}", operations(&raw, profile))
            };
            let none = Subset::default;
            let rest = Rest::Pending([0].into_iter().collect());
            let response = Exchange::Response { done: none(), rejected: none(), rest };
            operate(&mut raw, profile, request, Direction::Reply, response);
        }
        operate(&mut raw, profile, 4, Direction::Call, structure(8192));
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, 8192);
        assert_eq!(faults(&raw, "unasked_reduction"), u64::from(!is_asked));
    }
}

/// Answers a new Call, which proves that the operations before it have arrived.
fn prove(raw: &mut Raw, profile: Profile, xid: u32) {
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(xid)).unwrap();
    raw.settle();
    answer(raw, profile, xid, Body::Message(ChunkLists::default()));
}

/// Returns the operations that the peer has received, with their XIDs.
fn operations(raw: &Raw, profile: Profile) -> Vec<(u32, Exchange)> {
    let decoded =
        raw.received.iter().map(|message| profile.codec().decode(message, &Limits::default()).unwrap());
    let operations = decoded.filter_map(|(header, _)| match header.body {
        Body::Two(two::Body::Exchange(exchange)) => Some((header.xid, exchange)),
        _ => None,
    });
    operations.collect()
}

/// Sends a request, which has arrived for certain, and an update, which may be on its way. A second update waits. Returns the
/// XID of the request.
fn between_request_and_response(raw: &mut Raw, profile: Profile) -> u32 {
    prove(raw, profile, 100);
    raw.received.clear();
    raw.end.connection.ask(vec![size(8192)]).unwrap();
    raw.settle();
    prove(raw, profile, 101);
    for data in [b"one", b"two"] {
        raw.end.connection.change(own(data)).unwrap();
        raw.settle();
    }
    let [(request, Exchange::Request { .. }), (_, Exchange::Update { .. })] = operations(raw, profile)[..]
    else {
        panic!("{:?}", operations(raw, profile))
    };
    request
}

/// Checks that the second update leaves when a Call is answered that left after the first.
#[track_caller]
fn check_one_on_its_way(raw: &mut Raw, profile: Profile) {
    let sent = operations(raw, profile).len();
    prove(raw, profile, 200);
    assert_eq!(operations(raw, profile).len(), sent + 1, "proved, the next one leaves");
    let (_, last) = operations(raw, profile).pop().unwrap();
    let Exchange::Update { now, .. } = &last else { panic!("{last:?}") };
    assert_eq!(&now[0].data[..], b"two");
}

/// The peer has only one Receive for operations without an answer. A response can come late: in P2 it waits for the change
/// itself (version-two-03 §5.3.3).
#[test]
fn i3_xcharext_s4_3_a_response_proves_the_arrival_of_its_request_alone() {
    for profile in EXCHANGING {
        for side in [Side::Client, Side::Server] {
            let mut raw = with_own(side, profile);
            tell(&mut raw, profile);
            let request = between_request_and_response(&mut raw, profile);
            let response = Exchange::Response {
                done: [0].into_iter().collect(),
                rejected: Subset::default(),
                rest: match profile {
                    Profile::P1 => Rest::Pending(Subset::default()),
                    _ => Rest::Other(vec![]),
                },
            };
            operate(&mut raw, profile, request, Direction::Reply, response);
            assert_eq!(
                operations(&raw, profile).len(),
                2,
                "{profile:?} {side}: the first update may be on its way"
            );
            check_one_on_its_way(&mut raw, profile);
        }
    }
}

/// A refusal of the request proves nothing else either, and updates that wait still leave.
#[test]
fn i3_xcharext_s4_a_refusal_is_of_one_operation_if_the_peer_takes_part() {
    for profile in EXCHANGING {
        for side in [Side::Client, Side::Server] {
            let mut raw = with_own(side, profile);
            tell(&mut raw, profile);
            let request = between_request_and_response(&mut raw, profile);
            raw.end.notices.clear();
            answer(&mut raw, profile, request, Body::Error(ErrorBody::Chunk));
            let rejected = vec![(size(8192), Disposition::Rejected)];
            let [Notice::Answered { dispositions, .. }] = &raw.end.notices[..] else {
                panic!("{:?}", raw.end.notices)
            };
            assert_eq!(*dispositions, rejected);
            assert_eq!(
                operations(&raw, profile).len(),
                2,
                "{profile:?} {side}: the first update may be on its way"
            );
            check_one_on_its_way(&mut raw, profile);
        }
    }
}

/// A peer that has refused the announcement does not know our receive size, whatever it announces itself. If it refuses first, no
/// more operations leave.
#[test]
fn xcharext_s4_a_refused_announcement_is_not_known_to_the_peer() {
    for (profile, refuses_first) in
        EXCHANGING.into_iter().flat_map(|profile| [(profile, true), (profile, false)])
    {
        let mut raw = client(profile, Config { receive_size: 16_384, ..Config::default() });
        let [(initial, Exchange::Initial { .. })] = operations(&raw, profile)[..] else {
            panic!("{:?}", operations(&raw, profile))
        };
        let refuse = |raw: &mut Raw| answer(raw, profile, initial, Body::Error(ErrorBody::Chunk));
        if refuses_first {
            refuse(&mut raw);
        }
        let now = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x20, 0]) }];
        operate(&mut raw, profile, 3, Direction::Call, Exchange::Update { now, clears: false });
        if !refuses_first {
            assert_eq!(raw.end.connection.thresholds().receive, 16_384, "{profile:?}");
            refuse(&mut raw);
        }
        let connection = &mut raw.end.connection;
        assert_eq!(connection.thresholds().receive, 4096, "{profile:?} {refuses_first}");
        assert_eq!(connection.peer_characteristics().unwrap().receive_size, 8192);
        assert_eq!(connection.exchanges_characteristics(), Some(!refuses_first), "{profile:?}");
        let asked = connection.ask(vec![size(8192)]);
        assert_eq!(asked == Err(NotExchanged::Unsupported), refuses_first, "{profile:?} {asked:?}");
    }
}

/// A server announces its characteristics after those of the client, and perhaps after an update of the client has left.
#[test]
fn i3_xcharext_s4_1_an_announcement_proves_the_arrival_of_the_announcement_before_alone() {
    for profile in EXCHANGING {
        let mut raw = with_own(Side::Client, profile);
        prove(&mut raw, profile, 100);
        for data in [b"one", b"two"] {
            raw.end.connection.change(own(data)).unwrap();
            raw.settle();
        }
        tell(&mut raw, profile);
        assert_eq!(operations(&raw, profile).len(), 2, "{profile:?}: the first update may be on its way");
        check_one_on_its_way(&mut raw, profile);
    }
}

/// A reply proves to the peer that its operation has arrived, so the refusal of that leaves first, although Receives for credits
/// are missing. If refusals waited for these, more of them than the peer has Receives for could leave at once.
#[test]
fn i3_v2_01_s3_1_a_refusal_leaves_before_a_reply() {
    for profile in EXCHANGING {
        let mut off = Exchanged::default();
        off.enabled = false;
        let mut raw = raw(profile, Config { characteristics: off, ..server_config() });
        raw.end.serving = false;
        let others = super::super::rules::hold_all(&raw.end.domain);
        for xid in [10, 11] {
            let body = Body::Message(ChunkLists::default());
            let call = Header { credit: 64, ..header_of(xid, Direction::Call, body) };
            raw.send(message_of(profile.codec(), &call, &null(xid).message));
        }
        tell(&mut raw, profile);
        let refused = |raw: &Raw| {
            let (header, _) = last(raw, profile);
            (header.xid, matches!(header.body, Body::Error(_)))
        };
        assert_eq!(raw.end.calls.len(), 2);
        assert_eq!(raw.end.connection.wants_memory(), Some(4096), "Receives for 64 credits");
        assert_eq!((raw.received.len(), refused(&raw)), (1, (2, true)), "{profile:?}");
        let (token, _, _, message) = raw.end.calls.remove(0);
        let now = raw.fabric.instant();
        raw.end.connection.reply(now, token, serve(message));
        raw.settle();
        assert_eq!((raw.received.len(), refused(&raw)), (2, (10, false)), "{profile:?}");
        drop(others);
    }
}

/// Nothing is known of the peer then: the least that every peer has is counted on.
// requirement: xchar-02-4.1-3
#[test]
fn xcharext_s4_1_the_longest_first_operation_fits_any_peer() {
    for profile in EXCHANGING {
        let mut exchanged = Exchanged::default();
        for place in 0..u32::try_from(REGISTERED_MOST).unwrap() {
            let value = Bytes::from(vec![7; REGISTERED_MAX]);
            exchanged.register(Registered::new(EXPERIMENTAL + place, value, false).unwrap()).unwrap();
        }
        let config = Config { characteristics: exchanged, send_size: 65_536, ..Config::default() };
        let raw = client(profile, config);
        let (header, _) = last(&raw, profile);
        let Body::Two(two::Body::Exchange(Exchange::Initial { start, .. })) = &header.body else {
            panic!("{header:?}")
        };
        assert!(start.len() > REGISTERED_MOST, "{profile:?}");
        let len = raw.received.last().unwrap().len();
        assert!(len > REGISTERED_MOST * REGISTERED_MAX && len <= 4096, "{profile:?}: {len}");
    }
}

/// An exchange that this side takes no part in.
fn off() -> Exchanged {
    let mut off = Exchanged::default();
    off.enabled = false;
    off
}

/// A Call of the peer without data.
fn plain(profile: Profile, xid: u32) -> Bytes {
    let call = header_of(xid, Direction::Call, Body::Message(ChunkLists::default()));
    message_of(profile.codec(), &call, &null(xid).message)
}

/// Announces that the receive size of the peer is now this.
fn grown(profile: Profile, size: u32) -> Exchange {
    let id = if profile == Profile::P3 { 2 } else { 1 };
    let now = vec![Value { id, data: Bytes::copy_from_slice(&size.to_be_bytes()) }];
    Exchange::Update { now, clears: false }
}

/// Version-two-01 §5.1: a server's first answer is as short as the first message of a client, whatever comes later.
#[test]
fn v2_01_s5_1_the_first_answer_is_no_longer_than_every_peer_takes() {
    for profile in PROFILES {
        let client = Config { versions: Versions::two(profile), ..Config::default() };
        let server = Config { versions: Versions::both(profile), ..server_config() };
        let mut pair = Pair::with(FabricConfig::default(), client, server);
        for (xid, inline) in [(1, 0), (2, 1)] {
            check_reply(LIST, 2000, pair.round_trip(list(xid, 2000)));
            assert_eq!(pair.client.connection.stats().replies_received.inline, inline, "{profile:?}");
        }
    }
}

/// Version-two-01 §5.1: the defaults of the version hold for a side that exchanges nothing, too.
#[test]
fn v2_01_s5_1_the_defaults_hold_without_an_exchange() {
    for profile in PROFILES {
        let raw = client(profile, Config { characteristics: off(), ..Config::default() });
        let thresholds = raw.end.connection.thresholds();
        assert_eq!((thresholds.send, thresholds.receive), (4096, 4096), "{profile:?}");
    }
}

/// A server that is set not to use Send with Invalidate does not, whatever the client takes.
#[test]
fn xcharext_s3_2_a_server_invalidates_nothing_if_it_is_set_so() {
    for profile in PROFILES {
        for (remote_invalidation, used) in [(true, true), (false, false)] {
            let client = Config { versions: Versions::two(profile), ..Config::default() };
            let server = Config { versions: Versions::both(profile), remote_invalidation, ..server_config() };
            let mut pair = Pair::with(FabricConfig::default(), client, server);
            check_reply(0, 0, pair.round_trip(null(1)));
            check_reply(ECHO, 9000, pair.round_trip(echo(2, 9000)));
            assert_eq!(pair.client.connection.stats().remote_invalidations > 0, used, "{profile:?}");
        }
    }
}

/// Rule I3: an answer to an operation is one more message to the peer, whose answer needs a Receive. It waits for the
/// Receives of operations.
#[test]
fn i3_an_answer_waits_for_the_receives_of_operations() {
    for profile in EXCHANGING {
        let config =
            Config { grant: 2, early_calls: 2, versions: Versions::both(profile), ..server_config() };
        let mut raw = Raw::new(Side::Server, config);
        raw.end.serving = false;
        let others = super::super::rules::hold_all(&raw.end.domain);
        raw.send(plain(profile, 1));
        let want = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x10, 0]) }];
        operate(&mut raw, profile, 9, Direction::Call, Exchange::Request { want });
        assert_eq!(operations(&raw, profile), []);
        drop(others);
        raw.settle();
        assert!(matches!(operations(&raw, profile)[..], [(9, Exchange::Response { .. })]));
    }
}

/// Xcharext-02 §3.1: after a decrease smaller Receives are posted.
#[test]
fn xcharext_s3_1_receives_are_smaller_after_a_decrease() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, Config { receive_size: 8192, ..server_config() });
        assert_eq!(raw.end.connection.core.ledger.receives.len(), 8192);
        let want = vec![Value { id: 1, data: Bytes::from_static(&[0, 0, 0x10, 0]) }];
        operate(&mut raw, profile, 9, Direction::Call, Exchange::Request { want });
        assert_eq!(raw.end.connection.core.ledger.receives.len(), 4096, "{profile:?}");
    }
}

/// An operation does not wait for RDMA Writes that were posted before it, where no message is divided.
#[test]
fn an_operation_passes_data_of_other_messages() {
    for profile in EXCHANGING {
        let mut raw = client(profile, Config { continued_parts: 1, ..Config::default() });
        tell(&mut raw, profile);
        raw.end.connection.ask(vec![size(8192)]).unwrap();
        let now = raw.fabric.instant();
        let mut passes = vec![];
        while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
            if let Post::Work(_, WorkRequest::Send(send)) = &post {
                passes.push(send.express);
            }
            raw.end.post(post);
        }
        assert_eq!(passes, [true], "{profile:?}");
    }
}

/// Version-two-01 §4.2.2: an operation has another XID than a Call without an answer.
#[test]
fn v2_01_s4_2_2_an_operation_does_not_take_the_xid_of_a_call() {
    for profile in PROFILES {
        let mut raw =
            Raw::new(Side::Client, Config { versions: Versions::two(profile), ..Config::default() });
        let now = raw.fabric.instant();
        for xid in [1, 0x8000_0000] {
            raw.end.connection.call(now, null(xid)).unwrap();
        }
        raw.settle();
        answer(&mut raw, profile, 1, Body::Message(ChunkLists::default()));
        let [(xid, Exchange::Initial { .. })] = operations(&raw, profile)[..] else {
            panic!("{:?}", operations(&raw, profile))
        };
        assert_ne!(xid, 0x8000_0000, "{profile:?}");
    }
}

/// Rule I4: operations use no credits of Calls, and neither does the refusal of one.
#[test]
fn i4_the_refusal_of_an_operation_uses_no_credit_of_a_call() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, Config { grant: 2, early_calls: 1, ..server_config() });
        raw.end.serving = false;
        raw.send(plain(profile, 10));
        raw.send(plain(profile, 11));
        assert_eq!(raw.end.calls.len(), 2, "all credits are in use");
        let start = vec![Value { id: 1, data: Bytes::from_static(&[9]) }];
        let initial = Exchange::Initial { start, constant: Subset::default() };
        operate(&mut raw, profile, 12, Direction::Call, initial);
        let (header, _) = last(&raw, profile);
        assert_eq!((header.xid, header.body), (12, Body::Error(ErrorBody::Chunk)), "{profile:?}");
        assert_eq!(raw.end.closed, None);
    }
}

/// Rule I6: the values of a peer take the place of those that the application has not read.
#[test]
fn i6_values_that_nobody_has_read_are_replaced() {
    for profile in EXCHANGING {
        let mut raw = with_own(Side::Client, profile);
        tell(&mut raw, profile);
        for (id, size) in [(1, 0x2000), (2, 0x4000)] {
            let body = Body::Two(two::Body::Exchange(grown(profile, size)));
            let update = message_of(profile.codec(), &header_of(3, Direction::Call, body), &Stream::new());
            let request = SendRequest { gather: vec![update], ..SendRequest::default() };
            raw.peer.post(WrId(u64::MAX - id), WorkRequest::Send(request)).unwrap();
        }
        // Both have come, and no event was read.
        while raw.end.connection.stats().operations_received < 3 {
            raw.take_completions();
            let taken = raw.end.connection.stats().operations_received == 3;
            assert!(raw.fabric.step() || taken, "the updates arrive");
        }
        let events = std::iter::from_fn(|| raw.end.connection.poll_event());
        let told: Vec<_> = events
            .map(|event| match event {
                Event::Characteristics(Notice::Peer(values)) => values.receive_size,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, [0x4000], "{profile:?}");
    }
}

/// Version-two-07 §5.2.5: continued Calls are taken by a side that takes a message in two parts or more, and only in P3.
#[test]
fn v2_07_s5_2_5_continued_calls_are_taken_where_there_are_parts() {
    use ReverseSupport::{Continued, Inline};
    for (profile, continued_parts, expected) in [
        (Profile::P3, 1, Inline),
        (Profile::P3, 2, Continued),
        (Profile::P2, 2, Inline),
        (Profile::P1, 8, Inline),
    ] {
        let limits = Limits { continued_parts, ..Limits::default() };
        let raw = client(profile, Config { limits, ..Config::default() });
        let told = raw.end.connection.characteristics().unwrap().reverse;
        assert_eq!(told, expected, "{profile:?} {continued_parts}");
    }
}

/// A Call waits for the server's announcement where that can help: for its properties in P3, and without chunks for its
/// transmission groups. It does not wait on a side that exchanges nothing.
#[test]
fn rtissues_s3_5_a_call_waits_for_an_announcement_that_can_help() {
    let none = ChunkSupport::Optional { forward: false };
    let with = |profile, chunks, characteristics| {
        client(profile, Config { chunks, characteristics, ..Config::default() })
    };
    for (profile, chunks, characteristics, waits) in [
        (Profile::P3, ChunkSupport::Required, Exchanged::default(), true),
        (Profile::P1, ChunkSupport::Required, Exchanged::default(), false),
        (Profile::P1, none, Exchanged::default(), true),
        (Profile::P1, none, off(), false),
    ] {
        let mut raw = with(profile, chunks, characteristics);
        assert_eq!(raw.end.connection.core.untold().is_some(), waits, "{profile:?} {chunks:?}");
        if profile == Profile::P1 && chunks == none {
            raw.end.replies.clear();
            let now = raw.fabric.instant();
            raw.end.connection.call(now, store(2, 9000)).unwrap();
            raw.settle();
            let failed = raw.end.replies.pop().map(|(_, outcome)| outcome.unwrap_err().error);
            assert_eq!(matches!(failed, Some(CallError::Unsendable(_))), !waits, "{failed:?}");
        }
    }
}

/// Rule I6: operations are counted from the last Call or reply on.
#[test]
fn i6_a_call_or_reply_begins_the_count_of_operations_anew() {
    let limits = Limits { operations: 10, ..Limits::default() };
    for profile in EXCHANGING {
        for side in [Side::Client, Side::Server] {
            let config = Config { limits: limits.clone(), ..server_config() };
            let mut raw = match side {
                Side::Client => client(profile, config),
                Side::Server => raw(profile, config),
            };
            for round in 100..103 {
                for xid in 0..10 {
                    operate(&mut raw, profile, xid, Direction::Call, grown(profile, 8192));
                }
                match side {
                    Side::Client => prove(&mut raw, profile, round),
                    Side::Server => raw.send(plain(profile, round)),
                }
            }
            assert_eq!(raw.end.closed, None, "{profile:?} {side}");
        }
    }
}

/// The end of the exchange is reported, if there was one.
#[test]
fn the_end_of_an_exchange_is_reported() {
    for profile in PROFILES {
        let mut raw = client(profile, Config::default());
        raw.end.notices.clear();
        raw.peer.abort();
        raw.settle();
        assert_eq!(raw.end.notices, [Notice::Ended], "{profile:?}");
        // The version was offered only.
        let mut raw =
            Raw::new(Side::Client, Config { versions: Versions::two(profile), ..Config::default() });
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        raw.peer.abort();
        raw.settle();
        assert!(raw.end.closed.is_some());
        assert_eq!(raw.end.notices, [], "{profile:?}");
    }
}

/// xcharext-02 §4: a refusal of our request is told to the owner at once, and is no fault.
#[test]
fn xcharext_s4_a_refused_request_is_told_at_once() {
    for profile in EXCHANGING {
        let mut raw = with_own(Side::Server, profile);
        tell(&mut raw, profile);
        prove(&mut raw, profile, 100);
        raw.received.clear();
        raw.end.connection.ask(vec![size(8192)]).unwrap();
        raw.settle();
        let [(request, Exchange::Request { .. })] = operations(&raw, profile)[..] else {
            panic!("{:?}", operations(&raw, profile))
        };
        raw.end.notices.clear();
        let before = raw.end.connection.stats().errors.clone();
        answer(&mut raw, profile, request, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)));
        assert!(!raw.end.notices.is_empty(), "{profile:?}");
        let stats = raw.end.connection.stats();
        assert_eq!((&stats.errors, stats.operations_refused), (&before, 1));
    }
}

/// Xcharext-02 §4: a peer may refuse the announcement after it has answered later Calls, which proves only the arrival.
#[test]
fn xcharext_s4_a_refusal_may_come_late() {
    for profile in EXCHANGING {
        let mut raw = client(profile, Config::default());
        let [(initial, Exchange::Initial { .. })] = operations(&raw, profile)[..] else {
            panic!("{:?}", operations(&raw, profile))
        };
        for xid in 100..103 {
            prove(&mut raw, profile, xid);
        }
        answer(&mut raw, profile, initial, Body::Error(ErrorBody::Chunk));
        let connection = &raw.end.connection;
        assert_eq!(connection.exchanges_characteristics(), Some(false), "{profile:?}");
        assert_eq!((connection.stats().operations_refused, connection.stats().errors.len()), (1, 0));
    }
}
