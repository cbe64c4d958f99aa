//! Sides that support different subsets (rtissues-03 §3.5, rtrext-02 §5): in either role each keeps to the peer's
//! announcement.

use rpcrdma_sim::FabricConfig;

use super::reports::{call, request};
use super::version_two::{EXCHANGING, faults, last, raw};
use crate::planner::Refusal;
use crate::testing::*;
use crate::wire::two::Profile;
use crate::wire::two::transmission::{BufferGroup, BufferStructure, OperationBase, TARGETABLE};
use crate::wire::{Body, ErrorBody, two};
use crate::{CallError, ChunkSupport, Config, Features, Form, OperationNumbers, ReplyPlacement, Versions};

/// Receives of a kilobyte, followed by a segment of eight kilobytes for an item.
fn structured(config: &mut Config) {
    let group = |length, flags| BufferGroup { count: 1, length, align: 4, flags };
    config.place_items(BufferStructure::new([group(1024, 0), group(8192, TARGETABLE)]).unwrap());
}

/// A subset of features: its name, and the settings for it.
type Subset = (&'static str, fn(&mut Config));

const SUBSETS: [Subset; 9] = [
    ("all", structured),
    ("all, and no places for items", |_| {}),
    ("continuation only", |config| {
        structured(config);
        config.transmissions.calls.placement = false;
        config.transmissions.replies.placement = false;
    }),
    ("placement only", |config| {
        structured(config);
        config.transmissions.calls.continuation = false;
        config.transmissions.replies.continuation = false;
    }),
    ("Calls by Sends, replies by chunks", |config| {
        structured(config);
        config.transmissions.asked = ReplyPlacement::Explicit;
        config.transmissions.continued_replies = false;
    }),
    ("Calls by chunks, replies by Sends", |config| {
        structured(config);
        config.transmissions.calls = Features::NONE;
    }),
    ("no Calls in groups are taken", |config| {
        structured(config);
        config.transmissions.takes_calls = false;
    }),
    ("nothing in several Sends is taken", |config| {
        structured(config);
        config.limits.continued_parts = 1;
        config.transmissions.continued_replies = false;
    }),
    ("nothing", |config| config.transmissions.enabled = false),
];

/// The forms that the Calls of one side to the other are expected to use.
struct Expected {
    /// A Call too long for one Send is continued.
    continued_call: bool,
    continued_reply: bool,
    placed_call: bool,
    placed_reply: bool,
}

impl Expected {
    fn of(caller: &Config, responder: &Config) -> Self {
        let (ours, theirs) = (&caller.transmissions, &responder.transmissions);
        let groups = ours.enabled && theirs.enabled && theirs.takes_calls;
        Self {
            continued_call: groups && ours.calls.continuation && responder.limits.continued_parts > 1,
            continued_reply: groups
                && ours.continued_replies
                && caller.limits.continued_parts > 1
                && theirs.replies.continuation,
            placed_call: groups && ours.calls.placement && theirs.structure.is_some(),
            placed_reply: groups
                && ours.asked != ReplyPlacement::Explicit
                && ours.structure.is_some()
                && theirs.replies.placement,
        }
    }
}

/// Makes Calls in one direction and checks their forms; no Call fails, and none leaves twice.
#[track_caller]
fn check(pair: &mut Pair, from_client: bool, expected: &Expected, what: &str) {
    let now = pair.now();
    let Expected { continued_call, continued_reply, placed_call, placed_reply } = *expected;
    for (call, call_form, reply_form) in [
        (store(30, 10_000), Some(continued_call).map(|yes| (Form::Continued, yes)), None),
        (list(31, 10_000), None, Some((Form::Continued, continued_reply))),
        (write(32, 8192), Some((Form::Placed, placed_call)), None),
        (read(33, 8192), None, Some((Form::Placed, placed_reply))),
    ] {
        let (procedure, len) = (call.procedure, if call.procedure < 4 { 8192 } else { 10_000 });
        let end = if from_client { &mut pair.client } else { &mut pair.server };
        end.connection.call(now, call).unwrap();
        pair.settle();
        let end = if from_client { &mut pair.client } else { &mut pair.server };
        let (_, reply) = end.replies.pop().expect(what);
        let reply = reply.unwrap_or_else(|failure| panic!("{what}: {procedure}: {failure}"));
        for (form, expected) in [(reply.call.form, call_form), (reply.reply.form, reply_form)] {
            if let Some((expected, yes)) = expected {
                assert_eq!(form == expected, yes, "{what}: {procedure}: {form:?}");
            }
        }
        check_reply(procedure, len, reply);
    }
}

/// rtissues-03 §3.5: "implementations which might not support the same subset of OPTIONAL features can successfully interact".
// requirement: rtrext-02-5.3-1, rtrext-02-5.3-2, rtrext-02-8.4-1, rtrext-02-8.5-1
#[test]
fn rtissues_s3_5_every_pair_of_subsets_keeps_to_what_was_told() {
    for profile in EXCHANGING {
        for (ours, set_ours) in SUBSETS {
            for (theirs, set_theirs) in SUBSETS {
                let reverse_chunks = true;
                let mut client =
                    Config { versions: Versions::two(profile), reverse_chunks, ..server_config() };
                let mut server =
                    Config { versions: Versions::both(profile), reverse_chunks, ..server_config() };
                set_ours(&mut client);
                set_theirs(&mut server);
                let forward = Expected::of(&client, &server);
                let reverse = Expected::of(&server, &client);
                let mut pair = Pair::with(FabricConfig::default(), client, server);
                (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
                // The first Call of a direction has one credit.
                let now = pair.now();
                pair.server.connection.call(now, null(20)).unwrap();
                pair.settle();
                pair.server.replies.clear();
                let what = format!("{profile:?}: client: {ours}; server: {theirs}");
                check(&mut pair, true, &forward, &format!("{what}; forward"));
                check(&mut pair, false, &reverse, &format!("{what}; reverse"));
                for end in [&pair.client, &pair.server] {
                    let stats = end.connection.stats();
                    assert!(stats.errors.is_empty() && stats.sent_plainly == 0, "{what}: {stats:?}");
                    assert_eq!(end.closed, None);
                }
                pair.check_no_leak();
            }
        }
    }
}

const SUPPORT: [ChunkSupport; 4] = [
    ChunkSupport::Required,
    ChunkSupport::Forward,
    ChunkSupport::Optional { forward: true },
    ChunkSupport::Optional { forward: false },
];

/// The three choices of rtissues-03 §3.5 for chunks, chosen for each side, and whether a client accepts them in the
/// reverse direction.
#[test]
fn rtissues_s3_5_chunks_in_either_direction() {
    for profile in EXCHANGING {
        for ours in SUPPORT {
            for theirs in SUPPORT {
                for reverse_chunks in [false, true] {
                    let mut client = Config {
                        versions: Versions::two(profile),
                        reverse_chunks,
                        chunks: ours,
                        ..server_config()
                    };
                    let server = Config {
                        versions: Versions::both(profile),
                        reverse_chunks: true,
                        chunks: theirs,
                        ..server_config()
                    };
                    client.bindings = None;
                    let mut pair = Pair::with(FabricConfig::default(), client, server);
                    (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
                    let what = format!("{profile:?} {ours:?} {theirs:?} {reverse_chunks}");
                    // Without chunks the messages leave in several Sends.
                    check_reply(STORE, 9000, pair.round_trip(store(10, 9000)));
                    check_reply(LIST, 9000, pair.round_trip(list(11, 9000)));

                    let none = ChunkSupport::Optional { forward: false };
                    let (id, now) = (pair.call(write(12, 100_000)), pair.now());
                    pair.settle();
                    let at = pair.client.replies.iter().position(|(ended, _)| *ended == id).unwrap();
                    match pair.client.replies.swap_remove(at).1 {
                        Ok(reply) => {
                            assert!(ours != none && theirs != none, "{what}");
                            assert_eq!(reply.call.form, Form::Reduced);
                        }
                        Err(failure) if ours == none => {
                            let refused =
                                matches!(failure.error, CallError::Unsendable(Refusal::CallTooLong { .. }));
                            assert!(refused && !failure.sent, "{what}: {failure:?}");
                        }
                        Err(failure) => {
                            assert_eq!((failure.error, theirs), (CallError::Chunk, none), "{what}");
                        }
                    }

                    // A client announces whether it accepts chunks; where they are required, it always does.
                    let taken = reverse_chunks || ours == ChunkSupport::Required;
                    let used = taken || theirs == ChunkSupport::Required;
                    pair.server.connection.call(now, write(30, 100_000)).unwrap();
                    pair.settle();
                    match pair.server.replies.pop().unwrap().1 {
                        Ok(reply) => assert!(taken && reply.call.form == Form::Reduced, "{what}"),
                        Err(failure) if used => {
                            assert!(failure.error == CallError::Chunk && !taken, "{what}");
                        }
                        Err(failure) => {
                            let refused =
                                matches!(failure.error, CallError::Unsendable(Refusal::CallTooLong { .. }));
                            assert!(refused && !taken, "{what}: {failure:?}");
                        }
                    }
                    check_reply(0, 0, pair.round_trip(null(40)));
                    assert_eq!((pair.client.closed.clone(), pair.server.closed.clone()), (None, None));
                    pair.check_no_leak();
                }
            }
        }
    }
}

/// A client without chunks delays a first call that is too long for one Send until the server has sent its characteristics.
#[test]
fn rtissues_s3_5_without_chunks_a_first_call_waits_for_what_is_told() {
    for profile in EXCHANGING {
        let chunks = ChunkSupport::Optional { forward: false };
        let client = Config { versions: Versions::two(profile), chunks, ..Config::default() };
        let server = Config { versions: Versions::both(profile), ..server_config() };
        let mut pair = Pair::with(FabricConfig::default(), client, server);
        pair.call(null(1));
        check_reply(STORE, 9000, pair.round_trip(store(2, 9000)));
        assert_eq!(pair.client.connection.stats().calls_sent.continued, 1);
        // The wait for a server that sends none is bounded.
        let mut silent = server_config();
        silent.characteristics.enabled = false;
        let client = Config { versions: Versions::two(profile), chunks, ..Config::default() };
        let server = Config { versions: Versions::both(profile), ..silent };
        let mut pair = Pair::with(FabricConfig::default(), client, server);
        check_reply(0, 0, pair.round_trip(null(1)));
        let failure = pair.outcome(store(2, 9000)).unwrap_err();
        assert!(matches!(failure.error, CallError::Unsendable(Refusal::CallTooLong { .. })), "{failure:?}");
    }
}

/// A server that accepts no chunks refuses them with an error, and the connection goes on.
#[test]
fn rtissues_s3_5_chunks_that_are_not_taken_are_refused() {
    for profile in EXCHANGING {
        let chunks = ChunkSupport::Optional { forward: false };
        let mut raw = raw(profile, Config { chunks, ..server_config() });
        let segment = raw.readable(&pattern(1000));
        let lists = crate::wire::ChunkLists {
            read: vec![crate::wire::ReadSegment::new(44, segment)],
            ..crate::wire::ChunkLists::default()
        };
        let header = super::version_two::header_of(10, crate::wire::Direction::Call, Body::Message(lists));
        let all = write(10, 1000).message.flatten().0;
        let mut payload = rpcrdma_xdr::Stream::new();
        payload.push(rpcrdma_xdr::Piece::Inline(all.slice(..44)));
        raw.send(super::version_two::message_of(profile.codec(), &header, &payload));
        assert_eq!(last(&raw, profile).0.body, Body::Error(ErrorBody::Chunk));
        assert_eq!(faults(&raw, "forward_chunks"), 1);
        super::reports::check_usable(raw, profile);
    }
}

/// rtrext-02 §9.1 numbers the operations 5 to 8; §9.2 to §9.5 number them 1 to 4, which P1 gives to other operations
/// (xcharext-02 §4).
#[test]
fn rtrext_s9_1_the_operations_have_the_numbers_that_both_sides_were_told() {
    let tables = |versions: Versions| versions.with_operations(OperationBase::Tables);
    for (versions, refused) in [
        (Versions::ONE, OperationNumbers::None),
        (Versions::both(Profile::P3), OperationNumbers::None),
        (Versions::both(Profile::P1), OperationNumbers::Taken { first: 1 }),
    ] {
        assert_eq!(tables(versions), Err(refused));
    }
    let separate = Versions::both(Profile::P1).with_operations(OperationBase::Separate);
    assert_eq!(separate, Ok(Versions::both(Profile::P1)));

    let [ours, theirs] =
        [Versions::two(Profile::P2), Versions::both(Profile::P2)].map(|spoken| tables(spoken).unwrap());
    let pair = |ours, theirs| {
        let (mut client, mut server) =
            (Config { versions: ours, ..Config::default() }, Config { versions: theirs, ..server_config() });
        structured(&mut client);
        structured(&mut server);
        let mut pair = Pair::with(FabricConfig::default(), client, server);
        (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
        for (call, len) in [(store(10, 10_000), 10_000), (write(11, 8192), 8192), (read(12, 8192), 8192)] {
            let procedure = call.procedure;
            check_reply(procedure, len, pair.round_trip(call));
        }
        check_reply(LIST, 10_000, pair.round_trip(list(13, 10_000)));
        pair
    };
    let both = pair(ours, theirs);
    let stats = both.client.connection.stats();
    assert_eq!((stats.calls_sent.continued, stats.calls_sent.placed, stats.sent_plainly), (1, 1, 0));
    assert_eq!((stats.replies_received.continued, stats.replies_received.placed), (1, 1));
    // A Call with the other numbers is refused, and leaves again in plain messages.
    for (ours, theirs) in [(ours, Versions::both(Profile::P2)), (Versions::two(Profile::P2), theirs)] {
        let one = pair(ours, theirs);
        let stats = one.client.connection.stats();
        assert_eq!((stats.calls_sent.continued, stats.sent_plainly), (1, 1));
        assert_eq!(stats.calls_sent.long + stats.calls_sent.inline + stats.calls_sent.reduced, 7);
    }
}

/// A refused message gets one refusal, in however many Sends it came.
#[test]
fn v2_01_s3_1_a_group_with_other_numbers_is_refused_once() {
    let theirs = Versions::both(Profile::P2).with_operations(OperationBase::Tables).unwrap();
    let client = Config { versions: Versions::two(Profile::P2), ..Config::default() };
    let server = Config { versions: theirs, ..server_config() };
    let mut pair = Pair::with(FabricConfig::default(), client, server);
    (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
    check_reply(STORE, 30_000, pair.round_trip(store(10, 30_000)));
    let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
    assert_eq!((ours.calls_sent.continued, ours.sent_plainly, ours.calls_sent.long), (1, 1, 1));
    assert_eq!(ours.replies_received.errors, 1);
    assert_eq!((theirs.errors["unknown_operation"], theirs.operations_received), (8, 2), "its own, and one");
    check_reply(STORE, 30_000, pair.round_trip(store(11, 30_000)));
    assert_eq!(pair.client.connection.stats().calls_sent.continued, 1, "no other is tried");
    assert_eq!((pair.client.closed.clone(), pair.server.closed.clone()), (None, None));
    pair.check_no_leak();
}

/// If any message comes between two unknown operations, each of the two gets a refusal.
#[test]
fn v2_01_s3_1_an_operation_that_comes_again_later_is_refused_again() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, server_config());
        let mut unknown =
            super::reports::call(profile, 10, super::reports::request(vec![], 2, 20), []).to_vec();
        unknown[20..24].copy_from_slice(&77_u32.to_be_bytes());
        let mut broken = unknown.clone();
        broken[12..16].copy_from_slice(&99_u32.to_be_bytes());
        let answers = |raw: &Raw| raw.received.len();
        raw.send(unknown.clone());
        raw.send(unknown.clone());
        assert_eq!(answers(&raw), 1, "one for both");
        raw.send(broken);
        assert_eq!(answers(&raw), 2);
        raw.send(unknown);
        assert_eq!((answers(&raw), raw.end.closed.clone()), (3, None));
    }
}

/// Small messages leave as express Sends unless a message may need several Sends.
#[test]
fn small_messages_pass_transfers_where_no_group_can_be() {
    for (parts, express) in [(8, false), (1, true)] {
        let client = Config { versions: Versions::two(Profile::P1), ..Config::default() };
        let server =
            Config { versions: Versions::both(Profile::P1), continued_parts: parts, ..server_config() };
        let mut pair = Pair::with(FabricConfig::default(), client, server);
        (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
        pair.server.serving = false;
        pair.call(null(10));
        pair.settle();
        let now = pair.now();
        let (token, _, _, message) = pair.server.calls.pop().unwrap();
        pair.server.connection.reply(now, token, serve(message));
        let posts = std::iter::from_fn(|| pair.server.connection.poll_transmit(now, &mut pair.server.qp));
        let sends: Vec<bool> = posts
            .filter_map(|post| match post {
                crate::Post::Work(_, rpcrdma_verbs::WorkRequest::Send(send)) => Some(send.express),
                _ => None,
            })
            .collect();
        assert_eq!(sends, [express], "{parts}");
    }
}

/// The numbers on the wire, and those in reports.
#[test]
fn rtrext_s9_2_the_numbers_of_the_tables_are_on_the_wire() {
    let versions = Versions::both(Profile::P2).with_operations(OperationBase::Tables).unwrap();
    let codec = Profile::P2.codec_with(OperationBase::Tables);
    let mut raw = Raw::new(crate::Side::Server, Config { versions, ..server_config() });
    let all = null(10).message.flatten().0;
    let renumbered = |message: bytes::Bytes, from: u8, to: u8| {
        let mut message = message.to_vec();
        assert_eq!(message[20..24], [0, 0, 0, from]);
        message[23] = to;
        message
    };
    raw.send(renumbered(call(Profile::P2, 10, request(vec![], 2, 20), &all[..20]), 5, 1));
    raw.send(renumbered(call(Profile::P2, 10, super::reports::continuation(1, 1, 20), &all[20..]), 7, 3));
    let decode = |message: &bytes::Bytes| codec.decode(message, &crate::Limits::default()).unwrap().0;
    let header = decode(raw.received.last().unwrap());
    assert!(header.xid == 10 && matches!(header.body, Body::Message(_)), "{header:?}");
    // A continuation names an initial type by its number in the other numbering.
    raw.send(renumbered(call(Profile::P2, 11, request(vec![], 2, 20), &all[..20]), 5, 1));
    raw.send(renumbered(call(Profile::P2, 11, super::reports::continuation(1, 5, 20), &all[20..]), 7, 3));
    let last = raw.received.last().unwrap();
    assert_eq!(last[20..24], [0, 0, 0, 4], "ROPT_REPTERR");
    let Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) = decode(last).body else {
        panic!("{last:?}")
    };
    let error = crate::wire::two::transmission::ReportedError::OperationType { expected: 1, seen: 5 };
    assert_eq!(report.error, error);
}
