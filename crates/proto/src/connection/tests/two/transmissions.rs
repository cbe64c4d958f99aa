//! Messages in transmission groups (rtrext-02): in several Sends, and with items where the receiver wants them.

use rpcrdma_sim::FabricConfig;

use super::reports::{bare, bodies, call, narrow, plain};
use super::version_two::{EXCHANGING, raw};
use crate::testing::*;
use crate::two::sending::PeerGroups;
use crate::two::settings::TransmissionSettings;
use crate::wire::Body;
use crate::wire::two::transmission::{BufferGroup, BufferStructure, Operation, TARGETABLE, TransmitRequest};
use crate::wire::two::{self, Profile};
use crate::{Config, Form, Limits, Versions};

/// Receives of a kilobyte for the Payload, followed by this many segments of `length` bytes for items.
fn structured(segments: u32, length: u32, config: Config) -> Config {
    let plain = BufferGroup { count: 1, length: 1024, align: 4, flags: 0 };
    let targets = BufferGroup { count: segments, length, align: 4, flags: TARGETABLE };
    let structure = BufferStructure::new([plain, targets]).unwrap();
    let receive_size = usize::try_from(structure.total).unwrap();
    let transmissions = TransmissionSettings {
        structure: Some(structure),
        place_from: 1024,
        ..TransmissionSettings::default()
    };
    Config { receive_size, send_size: 32 << 10, transmissions, ..config }
}

/// Client and server of one profile that have exchanged characteristics. Replies may use as many Sends as the client
/// accepts.
fn pair(profile: Profile, mut client: Config, server: Config) -> Pair {
    client.transmissions.reply_sends = client.continued_parts;
    client.transmissions.place_from = 1024;
    pair_as_told(profile, client, server)
}

/// Client and server of one profile that have exchanged characteristics, with the default settings for replies.
fn pair_as_told(profile: Profile, client: Config, server: Config) -> Pair {
    let client = Config { versions: Versions::two(profile), ..client };
    let server = Config { versions: Versions::both(profile), ..server };
    let mut pair = Pair::with(FabricConfig::default(), client, server);
    for xid in 0..3 {
        check_reply(0, 0, pair.round_trip(null(xid)));
    }
    pair
}

fn without(config: Config) -> Config {
    let transmissions = TransmissionSettings { enabled: false, ..TransmissionSettings::default() };
    Config { transmissions, ..config }
}

#[track_caller]
fn check_quiet(pair: &Pair) {
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.closed, None);
        assert!(end.connection.stats().errors.is_empty(), "{:?}", end.connection.stats().errors);
    }
    pair.check_no_leak();
}

// requirement: rtrext-02-9.4-2, rtrext-02-9.4-4
#[test]
fn rtrext_s4_2_a_call_that_does_not_fit_goes_on_in_several_sends() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, Config::default(), server_config());
        let mut expected = 0;
        for (xid, len) in [(10, 2000), (11, 4500), (12, 9000), (13, 30_000)] {
            check_reply(STORE, len, pair.round_trip(store(xid, len)));
            expected += u64::from(len > 4096);
            let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
            assert_eq!((ours.calls_sent.continued, theirs.calls_received.continued), (expected, expected));
            assert_eq!(ours.calls_sent.send_bytes, theirs.calls_received.send_bytes);
            assert_eq!(ours.registrations, 0, "no chunk is needed");
        }
        // The message would take more Sends than this side's own limit.
        check_reply(STORE, 40_000, pair.round_trip(store(20, 40_000)));
        assert_eq!(pair.client.connection.stats().calls_sent.long, 1);
        check_quiet(&pair);
    }
}

#[test]
fn rtrext_s4_3_a_reply_that_does_not_fit_goes_on_in_several_sends() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, Config::default(), server_config());
        for (xid, len) in [(10, 4500), (11, 9000), (12, 30_000)] {
            check_reply(LIST, len, pair.round_trip(list(xid, len)));
        }
        // A reply that may be long, but is short, comes inline.
        let mut short = list(13, 9000);
        short.message = list(13, 100).message;
        check_reply(LIST, 100, pair.round_trip(short));
        let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
        assert_eq!((theirs.replies_sent.continued, ours.replies_received.continued), (3, 3));
        assert_eq!(ours.registrations, 0, "no chunk is needed");
        // The reply would take more Sends than the Responder allows itself.
        check_reply(LIST, 40_000, pair.round_trip(list(20, 40_000)));
        assert_eq!(pair.client.connection.stats().replies_received.long, 1);
        check_quiet(&pair);
    }
}

// requirement: rtrext-02-6.2-4, rtrext-02-8.3-1
#[test]
fn rtrext_s7_2_items_of_a_call_lie_where_the_receiver_wants_them() {
    for profile in EXCHANGING {
        let client = Config { send_size: 32 << 10, ..Config::default() };
        let mut pair = pair(profile, client, structured(1, 8192, server_config()));
        let told = pair.client.connection.peer_characteristics().unwrap();
        let structure = told.transmissions.structure.as_ref().unwrap();
        assert_eq!((structure.total, told.receive_size), (9216, 9216));
        for (xid, len) in [(10, 1024), (11, 4096), (12, 8191), (13, 8192)] {
            check_reply(WRITE, len, pair.round_trip(write(xid, len)));
        }
        let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
        assert_eq!((ours.calls_sent.placed, theirs.calls_received.placed), (4, 4));
        assert_eq!((ours.registrations, theirs.payload_bytes_copied), (0, 0));
        // The item lies in several Receives.
        check_reply(WRITE, 30_000, pair.round_trip(write(14, 30_000)));
        assert_eq!(pair.server.connection.stats().payload_bytes_copied, 0, "handed on in slices");
        check_reply(TWO, 0, pair.round_trip(two(15, 5000, 6000)));
        assert_eq!(pair.client.connection.stats().calls_sent.placed, 6);
        // The item is too long for placement.
        check_reply(WRITE, 100_000, pair.round_trip(write(16, 100_000)));
        assert_eq!(pair.client.connection.stats().calls_sent.reduced, 1);
        check_quiet(&pair);
    }
}

// requirement: rtrext-02-5.3-2, rtrext-02-7.4-3, rtrext-02-7.4-4, rtrext-02-11-1
#[test]
fn rtrext_s7_4_items_of_a_reply_lie_where_the_requester_wants_them() {
    for profile in EXCHANGING {
        let server = Config { send_size: 32 << 10, ..server_config() };
        let mut pair = pair(profile, structured(1, 8192, Config::default()), server);
        for (xid, len) in [(10, 8192), (11, 8191), (12, 30_000)] {
            check_reply(READ, len, pair.round_trip(read(xid, len)));
        }
        let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
        assert_eq!((theirs.replies_sent.placed, ours.replies_received.placed), (3, 3));
        assert_eq!(ours.registrations, 0);
        // A result shorter than an item has to be (TOOSHORT), and no result (NOITEM).
        let mut short = read(13, 30_000);
        short.message = read(13, 500).message;
        check_reply(READ, 500, pair.round_trip(short));
        let mut none = null(14);
        none.reply = read(14, 30_000).reply;
        check_reply(0, 0, pair.round_trip(none));
        check_reply(BOTH, 0, pair.round_trip(both(15, 6000, 700)));
        assert_eq!(pair.client.connection.stats().replies_received.placed, 4);
        // The item is too long for placement.
        check_reply(READ, 100_000, pair.round_trip(read(16, 100_000)));
        assert_eq!(pair.client.connection.stats().replies_received.reduced, 1);
        check_quiet(&pair);
    }
}

// requirement: rtrext-02-5.3-1
#[test]
fn rtrext_s5_against_a_peer_without_it_all_is_as_before() {
    for profile in EXCHANGING {
        for (client, server) in [
            (structured(2, 8192, Config::default()), without(server_config())),
            (without(Config::default()), structured(2, 8192, server_config())),
        ] {
            let mut pair = pair(profile, client, server);
            check_reply(STORE, 9000, pair.round_trip(store(10, 9000)));
            check_reply(LIST, 9000, pair.round_trip(list(11, 9000)));
            check_reply(WRITE, 50_000, pair.round_trip(write(12, 50_000)));
            check_reply(READ, 50_000, pair.round_trip(read(13, 50_000)));
            for end in [&pair.client, &pair.server] {
                let stats = end.connection.stats();
                let sent = [&stats.calls_sent, &stats.replies_sent];
                assert!(sent.iter().all(|sent| (sent.continued, sent.placed) == (0, 0)));
            }
            check_quiet(&pair);
        }
    }
}

// requirement: rtrext-02-4.2-1, rtrext-02-4.3-1
/// rtrext-02 §4.2: "without any intervening message"; §4.3: no credit is overdrawn, and no message waits for ever.
#[test]
fn rtrext_s4_2_nothing_comes_between_the_transmissions() {
    for profile in EXCHANGING {
        for (calls, grant) in [(1, 1), (3, 4), (400, 400)] {
            let config = |config: Config| Config { calls, grant, reverse_chunks: true, ..config };
            let (client, server) =
                (structured(1, 4096, Config::default()), structured(1, 4096, server_config()));
            let mut pair = pair(profile, config(client), config(server));
            let now = pair.now();
            for xid in 0..40_u32 {
                let len = usize::try_from(xid).unwrap() * 400;
                pair.call(store(100 + xid, len));
                pair.call(read(200 + xid, 9000));
                pair.call(write(400 + xid, len));
                pair.server.connection.call(now, store(300 + xid, len)).unwrap();
                pair.server.connection.call(now, list(500 + xid, len)).unwrap();
            }
            pair.settle();
            assert_eq!((pair.client.replies.len(), pair.server.replies.len()), (120, 80), "{calls} {grant}");
            for end in [&pair.client, &pair.server] {
                let failed = end.replies.iter().find_map(|(_, reply)| reply.as_ref().err());
                assert!(failed.is_none(), "{calls} {grant}: {failed:?}");
            }
            if grant > 8 {
                let sent = pair.client.connection.stats().calls_sent;
                assert!(sent.placed > 0 && sent.continued > 0, "{sent:?}");
            }
            check_quiet(&pair);
        }
    }
}

/// Each Send of a Call takes a credit. A Call with another form takes no credits that other Calls could use.
#[test]
fn rtrext_s4_3_a_call_takes_no_more_credits_than_its_share() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, Config::default(), Config { grant: 12, ..server_config() });
        // 9000 bytes take three Sends.
        for (first, calls, continued, long) in [(10, 1, 1, 0), (20, 4, 5, 0), (30, 6, 5, 6)] {
            for xid in first..first + calls {
                pair.call(store(xid, 9000));
            }
            pair.settle();
            let sent = &pair.client.connection.stats().calls_sent;
            assert_eq!((sent.continued, sent.long), (continued, long), "{calls} at a time");
        }
        check_quiet(&pair);
    }
}

/// A reply that RDMA Writes can carry without another round trip uses only a few Sends.
#[test]
fn a_reply_that_can_have_a_reply_chunk_comes_in_few_sends() {
    for profile in EXCHANGING {
        let mut pair = pair_as_told(profile, Config::default(), server_config());
        let few = 4096 * Config::default().transmissions.reply_sends;
        for (xid, len, continued, long) in [(10, few - 1000, 1, 0), (11, few, 1, 1), (12, 30_000, 1, 2)] {
            check_reply(LIST, len, pair.round_trip(list(xid, len)));
            let sent = &pair.server.connection.stats().replies_sent;
            assert_eq!((sent.continued, sent.long), (continued, long), "{len}");
        }
        check_quiet(&pair);
    }
}

/// A provider may copy what Sends carry, so a long item takes explicit RDMA instead of several Receives.
#[test]
fn long_items_that_lie_in_several_receives_take_explicit_rdma() {
    for profile in EXCHANGING {
        let most = Config::default().transmissions.spread_up_to;
        let config = |config| structured(1, 48 << 10, config);
        let mut pair = pair(profile, config(Config::default()), config(server_config()));
        for (xid, len, placed, reduced) in
            [(10, 48 << 10, 1, 0), (20, most, 2, 0), (30, most + 1, 2, 1), (40, 1 << 20, 2, 2)]
        {
            check_reply(WRITE, len, pair.round_trip(write(xid, len)));
            check_reply(READ, len, pair.round_trip(read(xid + 1, len)));
            let ours = pair.client.connection.stats();
            assert_eq!((ours.calls_sent.placed, ours.replies_received.placed), (placed, placed), "{len}");
            assert_eq!((ours.calls_sent.reduced, ours.replies_received.reduced), (reduced, reduced), "{len}");
        }
        check_quiet(&pair);
    }
}

/// An item is either placed or, if it is too short, inline. The Payload before a placed item need not hold the item as
/// well. So one Receive is enough for each reply, and many replies come at a time.
#[test]
fn rtrext_s7_4_a_reply_with_one_item_takes_one_receive() {
    for profile in EXCHANGING {
        let config = structured(1, 8192, Config::default());
        let mut pair = pair(profile, config, Config { send_size: 32 << 10, ..server_config() });
        for xid in 10..40 {
            pair.call(read(xid, 8192));
        }
        // The longest data that may stay inline.
        for xid in 40..50 {
            let mut short = read(xid, 8192);
            short.message = read(xid, 1020).message;
            pair.call(short);
        }
        pair.settle();
        assert!(pair.client.replies.iter().all(|(_, reply)| reply.is_ok()));
        let received = &pair.client.connection.stats().replies_received;
        assert_eq!((received.placed, received.inline), (30, 10 + 3));
        check_quiet(&pair);
    }
}

// requirement: rtrext-02-8.4-1
#[test]
fn rtrext_s8_4_no_call_has_more_transmissions_than_the_responder_takes() {
    for profile in EXCHANGING {
        let limits = Limits { continued_parts: 2, ..server_config().limits };
        let mut pair = pair(profile, Config::default(), Config { limits, ..server_config() });
        check_reply(STORE, 7000, pair.round_trip(store(10, 7000)));
        check_reply(STORE, 9000, pair.round_trip(store(11, 9000)));
        let sent = &pair.client.connection.stats().calls_sent;
        assert_eq!((sent.continued, sent.long), (1, 1));
        check_quiet(&pair);
    }
}

// requirement: rtrext-02-8.5-1
#[test]
fn rtrext_s8_5_no_reply_has_more_transmissions_than_the_responder_makes() {
    for profile in EXCHANGING {
        let server = Config { continued_parts: 2, ..server_config() };
        let mut pair = pair(profile, Config::default(), server);
        check_reply(LIST, 7000, pair.round_trip(list(10, 7000)));
        check_reply(LIST, 9000, pair.round_trip(list(11, 9000)));
        let sent = &pair.server.connection.stats().replies_sent;
        assert_eq!((sent.continued, sent.long), (1, 1));
        check_quiet(&pair);
    }
}

/// RFC 8167 §5.3: a client without chunks still accepts items in Sends.
#[test]
fn rtrext_s7_4_reverse_calls_without_chunks_have_items_placed_too() {
    for profile in EXCHANGING {
        let (client, server) = (structured(1, 8192, Config::default()), structured(1, 8192, server_config()));
        let mut pair = pair(profile, client, server);
        let now = pair.now();
        for (xid, len) in [(30, 8192), (31, 2000)] {
            pair.server.connection.call(now, echo(xid, len)).unwrap();
        }
        pair.settle();
        for (_, reply) in std::mem::take(&mut pair.server.replies) {
            let reply = reply.unwrap();
            assert_eq!((reply.call.form, reply.reply.form), (Form::Placed, Form::Placed));
        }
        assert_eq!(pair.client.connection.stats().calls_received.placed, 2);
        check_quiet(&pair);
    }
}

/// Without chunks as a fallback, a message waits for the Sends or Receives that it needs.
#[test]
fn reverse_calls_without_chunks_wait_for_their_turn() {
    for profile in EXCHANGING {
        let client = Config { grant: 4, ..Config::default() };
        let mut pair = pair(profile, client, server_config());
        let now = pair.now();
        for xid in 30..40 {
            let call = if xid % 2 == 0 { list(xid, 10_000) } else { store(xid, 10_000) };
            pair.server.connection.call(now, call).unwrap();
        }
        pair.settle();
        assert_eq!(pair.server.replies.len(), 10);
        let failed = pair.server.replies.iter().find_map(|(_, reply)| reply.as_ref().err());
        assert!(failed.is_none(), "{failed:?}");
        check_quiet(&pair);
    }
}

#[test]
fn a_call_says_how_it_and_its_reply_travelled() {
    let mut pair =
        pair(Profile::P1, structured(1, 8192, Config::default()), structured(1, 8192, server_config()));
    let reply = pair.round_trip(echo(10, 8000));
    assert_eq!((reply.call.form, reply.reply.form), (Form::Placed, Form::Placed));
    check_reply(ECHO, 8000, reply);
    check_quiet(&pair);
}

/// An item is aligned in memory as the structure says: to a page, for example.
#[test]
fn rtrext_s7_2_items_are_aligned_to_pages_if_receives_are() {
    for profile in EXCHANGING {
        for (head, align) in [(1024, 1024), (4096, 4096)] {
            let mut server = server_config();
            server.place_items(BufferStructure::behind_head(head, 1, 8192));
            let client = Config { send_size: 32 << 10, ..Config::default() };
            let mut pair = pair(profile, client, server);
            let told = pair.client.connection.peer_characteristics().unwrap();
            assert_eq!(told.transmissions.structure.as_ref().map(BufferStructure::align), Some(align));
            pair.server.serving = false;
            for xid in 10..14 {
                pair.call(write(xid, 8192));
                pair.settle();
                let (token, _, travelled, mut message) = pair.server.calls.pop().unwrap();
                assert_eq!(travelled.form, Form::Placed);
                for _ in 0..10 {
                    message.u32().unwrap();
                }
                let item = message.payload(MAX).unwrap();
                assert_eq!((item.as_ptr().align_offset(align), item), (0, pattern(8192)));
                let now = pair.now();
                pair.server.connection.reply(now, token, crate::Answer::ChunkError);
                pair.settle();
            }
        }
    }
}

/// rtrext-02 §4.2: no message comes between the Sends of a group, even if the peer has sent no characteristics.
#[test]
fn rtrext_s4_2_no_reply_passes_the_sends_of_another() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, server_config());
        raw.end.serving = false;
        let asked = list(10, 9000).message.flatten().0;
        let request =
            Operation::Request(TransmitRequest { response_buffers: 8, ..bare(1, narrow(asked.len())) });
        raw.send(call(profile, 10, request, asked));
        raw.send(plain(profile, 11));
        raw.received.clear();
        for (token, _, _, message) in std::mem::take(&mut raw.end.calls) {
            let now = raw.fabric.instant();
            raw.end.connection.reply(now, token, serve(message));
            // The first Send of the first answer is on the link when the second answer is made.
            raw.end.pump(now);
        }
        raw.settle();
        let sent = bodies(&raw, profile);
        let [(10, first), (10, second), (10, third), (11, Body::Message(_))] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert!(matches!(first, Body::Two(two::Body::Transmission(Operation::Response(_)))));
        for (number, later) in [(1, second), (2, third)] {
            let Body::Two(two::Body::Transmission(Operation::Continuation(later))) = later else {
                panic!("{later:?}")
            };
            assert_eq!(later.number, number);
        }
    }
}

/// Continued and placed messages reach the program in the slices in which they arrived: nothing is copied.
#[test]
fn messages_in_several_receives_are_handed_on_without_a_copy() {
    for profile in EXCHANGING {
        let placing = |config: Config| structured(1, 8192, Config { send_size: 32 << 10, ..config });
        let mut plain = pair(profile, Config::default(), server_config());
        let mut placed = pair(profile, placing(Config::default()), placing(server_config()));
        check_slices(&mut plain, store(100, 9000), 9000, 4);
        check_slices(&mut plain, list(101, 9000), 4, 9000);
        check_slices(&mut placed, write(102, 30_000), 30_000, 4);
        check_slices(&mut placed, read(103, 30_000), 4, 30_000);
    }
}

/// An invalidation follows the data: the last Send of a reply in several Sends invalidates the window of its call, and no
/// earlier one. In P2 a Call in a group names no handle (version-two-03 §6.2.3), so nothing is invalidated.
#[test]
fn the_last_send_of_a_reply_invalidates_the_window() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, Config::default(), server_config());
        let reply = pair.round_trip(both(10, 5000, 9000));
        let expected = if profile == Profile::P1 { (1, 0) } else { (0, 1) };
        assert_eq!((reply.invalidations.remote, reply.invalidations.local), expected, "{profile:?}");
        assert_eq!(pair.server.connection.stats().replies_sent.continued, 1);
        check_quiet(&pair);
    }
}

/// The Sends and segments that a Call may use, with these settings and a peer of these abilities.
fn options(config: Config, peer: PeerGroups) -> (usize, usize, usize, bool, bool) {
    let mut raw = super::reports::client_with(Profile::P1, config);
    let core = &mut raw.end.connection.core;
    core.sending.as_mut().unwrap().peer_groups = Some(peer);
    let groups = core.call_options(10, 1).unwrap().groups.expect("the peer takes Calls in groups");
    (groups.sends, groups.reply_sends, groups.spread_up_to, groups.ours.is_some(), groups.directs)
}

fn able(responses: usize, places: bool) -> PeerGroups {
    PeerGroups { takes_calls: true, places, requests: 8, responses, targets: None }
}

/// rtrext-02 §4.3, §5.2: Calls and replies have the Sends that both sides allow, and at least one. A Call with another form
/// asks for few.
#[test]
fn rtrext_s5_2_a_call_and_its_reply_have_the_sends_that_both_allow() {
    let without = crate::ChunkSupport::Optional { forward: false };
    let with = |continued_parts, limit, chunks| {
        let limits = crate::Limits { continued_parts: limit, ..crate::Limits::default() };
        Config { continued_parts, limits, chunks, ..Config::default() }
    };
    let both = |config, responses| {
        let (sends, reply_sends, ..) = options(config, able(responses, true));
        (sends, reply_sends)
    };
    let usual = Config::default().chunks;
    assert_eq!(both(with(0, 64, usual), 8), (1, 1));
    assert_eq!(both(with(2, 64, usual), 8).1, 2, "as our own messages");
    assert_eq!(both(with(8, 64, usual), 8).1, 3, "as the setting");
    assert_eq!(both(with(8, 64, usual), 2).1, 2, "as the peer");
    assert_eq!(both(with(8, 2, usual), 8).1, 2, "as our limit");
    assert_eq!(both(with(8, 0, usual), 8).1, 1);
    assert_eq!(both(with(8, 64, usual), 0).1, 1);
    assert_eq!(both(with(8, 64, without), 8).1, 8, "without chunks there is no other form");
    let (.., spread_up_to, _, _) = options(with(8, 64, without), able(8, true));
    assert_eq!(spread_up_to, usize::MAX);
    let mut config = with(8, 64, usual);
    config.transmissions.continued_replies = false;
    assert_eq!(both(config, 8).1, 1);
}

/// Rule I3: one long reply at a time has its Receives. A Call with another form does not wait for them, any other does.
#[test]
fn i3_a_call_with_another_form_does_not_ask_for_a_second_long_reply() {
    for (forward, reply_sends) in [(true, 1), (false, 8)] {
        let config = Config { chunks: crate::ChunkSupport::Optional { forward }, ..Config::default() };
        let mut raw = super::reports::client_with(Profile::P1, config);
        let core = &mut raw.end.connection.core;
        core.sending.as_mut().unwrap().peer_groups = Some(able(8, true));
        let domain = rpcrdma_verbs::ProtectionDomain::new(1 << 20);
        let offer = core.ledger.ask_call((1, 3), true, &domain).unwrap();
        let _held = core.ledger.take_call(offer);
        assert_eq!(core.call_options(10, 1).unwrap().groups.unwrap().reply_sends, reply_sends);
    }
}

/// rtrext-02 §5.3, §8: a peer that does not place gets no direction to our Receives. A peer whose replies have one Send, and
/// that does not place, gets none at all.
#[test]
fn rtrext_s5_3_directions_are_for_peers_that_follow_them() {
    for (places, responses, ours, directs) in
        [(true, 1, true, true), (false, 2, false, true), (false, 1, false, false)]
    {
        let mut config = structured(1, 4096, Config::default());
        config.transmissions.asked = crate::ReplyPlacement::Targets;
        let (.., seen_ours, seen_directs) = options(config, able(responses, places));
        assert_eq!((seen_ours, seen_directs), (ours, directs), "{places} {responses}");
    }
}

/// rtrext-02 §4.3: a Call that has no Receive for its reply gets one Send.
#[test]
fn rtrext_s4_3_a_reply_has_one_send_at_least() {
    let mut raw = super::reports::server(Profile::P1);
    let core = &mut raw.end.connection.core;
    let group = crate::two::groups::CallGroup { directions: vec![], buffers: 0 };
    assert_eq!(core.reply_options(Some(&group), false).unwrap().groups.unwrap().sends, 1);
}

/// RFC 8797 §4.1: of a reply in several Sends, the last one invalidates.
#[test]
fn rfc8797_s4_1_no_earlier_send_of_a_reply_invalidates() {
    for parts in [2_usize, 3] {
        let mut pair = pair(Profile::P1, Config::default(), server_config());
        pair.server.serving = false;
        pair.call(both(10, 5000, 4096 * parts - 3000));
        pair.settle();
        let (token, _, _, message) = pair.server.calls.pop().unwrap();
        let now = pair.now();
        pair.server.connection.reply(now, token, serve(message));
        let mut invalidates = vec![];
        while let Some(post) = pair.server.connection.poll_transmit(now, &mut pair.server.qp) {
            if let crate::Post::Work(_, rpcrdma_verbs::WorkRequest::Send(send)) = &post {
                invalidates.push(send.invalidate.is_some());
            }
            pair.server.post(post);
        }
        let mut expected = vec![false; parts];
        expected[parts - 1] = true;
        assert_eq!(invalidates, expected);
    }
}
