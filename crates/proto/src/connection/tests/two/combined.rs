//! Several messages in one Send ([`wire::two::combined`](crate::wire::two::combined)), an idea of rtissues-03 §4.

use bytes::{Bytes, BytesMut};
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::WorkRequest;
use rpcrdma_xdr::Stream;

use super::version_two::{EXCHANGING, faults, header_of, message_of, operate, raw};
use crate::testing::*;
use crate::two::characteristics::{EXPERIMENTAL, Registered};
use crate::wire::two::transmission::{Operation, TransmitRequest, TransmitResponse};
use crate::wire::two::{self, Exchange, Profile, Subset, Value};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, Fixed};
use crate::wire::{
    ProtocolError,
    two::combined::{CHARACTERISTIC, Malformed, OPERATION},
};
use crate::{CallId, CloseReason, Config, Limits, Post, Side, Versions};

fn combining(messages: usize, config: Config) -> Config {
    let limits = Limits { combined_messages: messages, ..config.limits.clone() };
    Config { combined_messages: messages, limits, ..config }
}

/// Client and server of one profile that have exchanged characteristics.
fn pair(profile: Profile, client: Config, server: Config) -> Pair {
    pair_on(FabricConfig::default(), profile, client, server)
}

fn pair_on(fabric: FabricConfig, profile: Profile, client: Config, server: Config) -> Pair {
    let client = Config { versions: Versions::two(profile), ..client };
    let server = Config { versions: Versions::both(profile), ..server };
    let mut pair = Pair::with(fabric, client, server);
    for xid in 0..3 {
        check_reply(0, 0, pair.round_trip(null(xid)));
    }
    pair
}

/// Makes calls at one time, which the server answers at one time; returns the replies in the order of the calls.
fn at_once(pair: &mut Pair, calls: Vec<crate::Call>) -> Vec<crate::IncomingReply> {
    let ids = hold(pair, calls);
    answer_all(pair);
    pair.server.serving = true;
    pair.settle();
    let mut replies = std::mem::take(&mut pair.client.replies);
    assert_eq!(replies.len(), ids.len());
    replies.sort_by_key(|(id, _)| ids.iter().position(|wanted| wanted == id));
    replies.into_iter().map(|(_, reply)| reply.unwrap()).collect()
}

fn nulls(count: u32) -> Vec<crate::Call> {
    (0..count).map(|xid| null(100 + xid)).collect()
}

fn sends(pair: &Pair) -> (u64, u64) {
    (pair.client.connection.stats().sends, pair.server.connection.stats().sends)
}

#[track_caller]
fn check_quiet(pair: &Pair) {
    for end in [&pair.client, &pair.server] {
        assert_eq!(end.closed, None);
        assert!(end.connection.stats().errors.is_empty(), "{:?}", end.connection.stats().errors);
    }
    pair.check_no_leak();
}

#[test]
fn calls_that_are_made_together_leave_together_and_so_do_their_replies() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, combining(8, Config::default()), combining(8, server_config()));
        assert_eq!(pair.client.connection.peer_characteristics().unwrap().combined, 8);
        let before = sends(&pair);
        for reply in at_once(&mut pair, nulls(20)) {
            check_reply(0, 0, reply);
        }
        let after = sends(&pair);
        assert_eq!((after.0 - before.0, after.1 - before.1), (3, 3), "8, 8, and 4 in a Send");
        let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
        assert_eq!((ours.sends_combined, ours.messages_combined, ours.receives_combined), (3, 20, 3));
        assert_eq!((theirs.sends_combined, theirs.messages_combined, theirs.receives_combined), (3, 20, 3));
        assert_eq!(theirs.calls_received.inline, 23);
        // A single message leaves as usual.
        check_reply(0, 0, pair.round_trip(null(7)));
        assert_eq!(pair.client.connection.stats().sends_combined, 3);
        check_quiet(&pair);
    }
}

#[test]
fn nothing_is_combined_unless_both_sides_say_that_they_take_it() {
    for profile in EXCHANGING {
        let sending_only = |config| Config { combined_messages: 8, ..config };
        let taking_only = |config: Config| Config { combined_messages: 1, ..combining(8, config) };
        for (client, server, expected) in [
            (combining(8, Config::default()), server_config(), (0, 0)),
            (Config::default(), combining(8, server_config()), (0, 0)),
            (sending_only(Config::default()), combining(8, server_config()), (0, 0)),
            (taking_only(Config::default()), combining(8, server_config()), (0, 4)),
            (combining(4, Config::default()), combining(2, server_config()), (2, 2)),
        ] {
            let mut pair = pair(profile, client, server);
            at_once(&mut pair, nulls(4));
            let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
            let seen = (
                ours.messages_combined / ours.sends_combined.max(1),
                theirs.messages_combined / theirs.sends_combined.max(1),
            );
            assert_eq!(seen, expected, "{profile:?}");
            check_quiet(&pair);
        }
    }
}

#[test]
fn no_send_is_longer_than_the_peer_takes() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, combining(8, Config::default()), combining(8, server_config()));
        let before = sends(&pair);
        let lengths = [1900, 1901, 1902, 3900, 1, 30, 1000, 1000, 1000, 1000, 4000];
        let calls = lengths.iter().zip(100..).map(|(len, xid)| store(xid, *len)).collect();
        for (reply, len) in at_once(&mut pair, calls).into_iter().zip(lengths) {
            check_reply(STORE, len, reply);
        }
        // 1900 and 1901, 1902 alone, 3900 alone, 1 to the second 1000, three others, 4000 alone.
        assert_eq!(sends(&pair).0 - before.0, 6);
        // Replies that need separate Sends: at most two of a kilobyte and a half share one.
        let calls = (200..206).map(|xid| list(xid, 1500)).collect();
        let before = sends(&pair);
        for reply in at_once(&mut pair, calls) {
            check_reply(LIST, 1500, reply);
        }
        assert_eq!(sends(&pair).1 - before.1, 3);
        check_quiet(&pair);
    }
}

#[test]
fn messages_with_chunks_and_in_groups_go_with_others_or_between_them() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, combining(16, Config::default()), combining(16, server_config()));
        let calls = vec![
            null(100),
            write(101, 30_000),
            null(102),
            store(103, 9000),
            null(104),
            read(105, 50_000),
            read(106, 100),
            list(107, 9000),
            echo(108, 20_000),
            null(109),
        ];
        let expected = [
            (0, 0),
            (3, 30_000),
            (0, 0),
            (5, 9000),
            (0, 0),
            (2, 50_000),
            (2, 100),
            (4, 9000),
            (1, 20_000),
            (0, 0),
        ];
        for (reply, (procedure, len)) in at_once(&mut pair, calls).into_iter().zip(expected) {
            check_reply(procedure, len, reply);
        }
        let stats = pair.client.connection.stats();
        assert_eq!(stats.calls_sent.continued, 1);
        assert!(stats.sends_combined >= 2, "before the group, and behind it");
        assert!(stats.remote_invalidations > 0, "a reply that invalidates comes alone");
        check_quiet(&pair);
    }
}

#[test]
fn both_directions_share_a_send() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, combining(16, Config::default()), combining(16, server_config()));
        check_reply(0, 0, {
            let now = pair.now();
            pair.server.connection.call(now, null(1)).unwrap();
            pair.settle();
            pair.server.replies.pop().unwrap().1.unwrap()
        });
        hold(&mut pair, nulls(3));
        answer_all(&mut pair);
        let now = pair.now();
        for call in nulls(2) {
            pair.server.connection.call(now, call).unwrap();
        }
        let before = sends(&pair).1;
        pair.settle();
        assert_eq!(sends(&pair).1 - before, 1, "three replies and two Calls");
        assert_eq!((pair.client.replies.len(), pair.server.replies.len()), (3, 2));
        check_quiet(&pair);
    }
}

#[test]
fn what_waits_for_others_leaves_before_the_connection_closes() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, combining(8, Config::default()), combining(8, server_config()));
        hold(&mut pair, nulls(3));
        answer_all(&mut pair);
        // The answers are ready. Their Calls' memory becomes Receives, which are posted first.
        let now = pair.now();
        let sent = pair.server.connection.stats().sends;
        let first = pair.server.connection.poll_transmit(now, &mut pair.server.qp).unwrap();
        assert!(matches!(first, Post::Receive(..)), "{first:?}");
        pair.server.post(first);
        assert_eq!(pair.server.connection.stats().sends, sent);
        pair.server.connection.close(now);
        pair.settle();
        assert_eq!(pair.server.connection.stats().sends, sent + 1);
        let (answered, lost): (Vec<_>, Vec<_>) =
            pair.client.replies.iter().map(|(_, reply)| reply.is_ok()).partition(|answered| *answered);
        assert_eq!((answered.len(), lost.len()), (3, 0));
        assert_eq!(pair.server.closed, Some(CloseReason::Local));
    }
}

#[test]
fn no_message_waits_for_the_transfers_of_another() {
    for profile in EXCHANGING {
        let client = combining(8, Config { remote_invalidation: false, ..Config::default() });
        let mut pair = pair(profile, client, combining(8, server_config()));
        hold(&mut pair, vec![null(100), null(101), read(102, 50_000), null(103), read(104, 50_000)]);
        answer_all(&mut pair);
        let now = pair.now();
        let mut order = String::new();
        while let Some(post) = pair.server.connection.poll_transmit(now, &mut pair.server.qp) {
            order.push(match &post {
                Post::Work(_, WorkRequest::Send(_)) => 'S',
                Post::Work(_, WorkRequest::Write { .. }) => 'W',
                _ => '.',
            });
            pair.server.post(post);
        }
        order.retain(|post| post != '.');
        // The two ready replies share a Send; the first READ's reply shares one with the next reply; the second READ's
        // leaves alone.
        assert_eq!(order, "SWSWS", "{profile:?}");
        assert_eq!(pair.server.connection.stats().messages_combined, 4);
        pair.settle();
        assert_eq!(pair.client.replies.len(), 5);
        check_quiet(&pair);
    }
}

#[test]
fn no_more_is_gathered_than_the_queue_pair_takes() {
    for profile in EXCHANGING {
        let mut fabric = FabricConfig::default();
        fabric.capabilities.max_sge = 9;
        let big = |config| combining(32, Config { send_size: 65_536, receive_size: 65_536, ..config });
        let mut pair = pair_on(fabric, profile, big(Config::default()), big(server_config()));
        let calls = (100..120).map(|xid| store(xid, 1500)).collect();
        let copied = pair.client.connection.stats().inline_bytes_copied;
        for reply in at_once(&mut pair, calls) {
            check_reply(STORE, 1500, reply);
        }
        let copied = pair.client.connection.stats().inline_bytes_copied - copied;
        assert!(copied < 20 * 1500, "{copied}: headers are, what is long is not");
        assert!(pair.client.connection.stats().sends_combined > 1);
        check_quiet(&pair);
    }
}

/// Makes calls that the server has not answered yet.
fn hold(pair: &mut Pair, calls: Vec<crate::Call>) -> Vec<CallId> {
    pair.server.serving = false;
    let now = pair.now();
    let ids = calls.into_iter().map(|call| pair.client.connection.call(now, call).unwrap()).collect();
    pair.settle();
    ids
}

/// A reply that waits for others in its Send has not left, although the Send is posted as soon as the queue has a place.
#[test]
fn i8_a_reply_that_waits_for_others_has_not_left() {
    for profile in EXCHANGING {
        let fabric = Fabric::new(FabricConfig::default());
        let client = Config { remote_invalidation: false, ..combining(8, Config::default()) };
        let client = Config { versions: Versions::two(profile), ..client };
        let server = Config { versions: Versions::both(profile), ..combining(8, server_config()) };
        let mut pair = Pair::on_queues(&fabric, client, server, 64 << 20, 2);
        for xid in 0..3 {
            check_reply(0, 0, pair.round_trip(null(xid)));
        }
        hold(&mut pair, (10..13).map(|xid| read(xid, 1 << 20)).collect());
        let tokens: Vec<_> = pair.server.calls.iter().map(|(token, ..)| *token).collect();
        answer_all(&mut pair);
        let now = pair.now();
        while pair.server.pump(now) {}
        let connection = &pair.server.connection;
        assert!(connection.core.holds_messages(), "a reply waits");
        let left = tokens.iter().filter(|token| connection.has_departed(**token)).count();
        assert_eq!(left, 0, "which of them waits is not known");
        pair.settle();
        let connection = &pair.server.connection;
        assert!(tokens.iter().all(|token| connection.has_departed(*token)));
        assert!(connection.is_in_order(connection.posted()));
        assert_eq!(pair.client.replies.len(), 3);
        check_quiet(&pair);
    }
}

/// Answers all held Calls at one time.
fn answer_all(pair: &mut Pair) {
    let now = pair.now();
    for (token, _, _, message) in std::mem::take(&mut pair.server.calls) {
        pair.server.connection.reply(now, token, serve(message));
    }
}

/// Several messages in one Send, as any peer might build it.
fn together(profile: Profile, lengths: &[u32], behind: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    let header = header_of(100, Direction::Call, Body::Two(two::Body::Combined(lengths.to_vec())));
    profile.codec().encode(&header, &mut out);
    out.extend_from_slice(behind);
    out.freeze()
}

fn plain(profile: Profile, xid: u32) -> Bytes {
    let header = header_of(xid, Direction::Call, Body::Message(ChunkLists::default()));
    message_of(profile.codec(), &header, &null(xid).message)
}

fn narrow(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

#[test]
fn the_bytes_are_those_of_the_description() {
    let header = |profile: Profile| {
        let mut out = BytesMut::new();
        profile.codec().encode(
            &header_of(0x11, Direction::Reply, Body::Two(two::Body::Combined(vec![24, 17]))),
            &mut out,
        );
        out
    };
    let expected: Vec<u8> = [0x11, 2, 8, 5, 1, OPERATION, 12, 2, 24, 17]
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    for profile in EXCHANGING {
        let bytes = header(profile);
        assert_eq!(bytes, expected, "{profile:?}");
        let limits = Limits { combined_messages: 2, ..Limits::default() };
        let (decoded, len) = profile.codec().decode(&bytes, &limits).unwrap();
        assert_eq!((decoded.body, len), (Body::Two(two::Body::Combined(vec![24, 17])), 40));
        let unknown = profile.codec().decode(&bytes, &Limits::default());
        assert_eq!(
            unknown.unwrap_err(),
            ProtocolError::Two(two::Error::UnknownOperation { operation: OPERATION })
        );
    }
    // The profile without operations encodes an error instead, which does no harm.
    let none = Profile::P3.codec().decode(&header(Profile::P3), &Limits::default()).unwrap().0;
    assert!(matches!(none.body, Body::Error(_)));
}

#[test]
fn each_message_is_answered_as_if_it_had_come_alone() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, combining(8, server_config()));
        let (good, odd) = (plain(profile, 100), plain(profile, 101));
        // A message with invalid lists stands between two valid ones, and another is a byte longer than a multiple of four.
        let mut bad = plain(profile, 102).to_vec();
        let at = if profile == Profile::P1 { 20 } else { 24 };
        bad[at..at + 4].copy_from_slice(&9_u32.to_be_bytes());
        let odd = [&odd[..], &[0]].concat();
        let behind = [&good[..], &bad, &odd, &[0; 3], &good[..]].concat();
        let lengths = [good.len(), bad.len(), odd.len(), good.len()].map(narrow);
        let mut again = together(profile, &lengths, &behind).to_vec();
        // The last message gets another XID.
        let at = again.len() - good.len();
        again[at..].copy_from_slice(&plain(profile, 103));
        raw.send(again);
        let answers: Vec<(u32, bool)> = raw
            .received
            .iter()
            .map(|message| profile.codec().decode(message, &Limits::default()).unwrap().0)
            .map(|header| (header.xid, matches!(header.body, Body::Error(ErrorBody::Chunk))))
            .collect();
        assert_eq!(answers.iter().filter(|(_, error)| *error).collect::<Vec<_>>(), [&(102, true)]);
        let mut xids: Vec<u32> = answers.iter().map(|(xid, _)| *xid).collect();
        xids.sort_unstable();
        assert_eq!(xids, [100, 101, 102, 103]);
        assert_eq!(raw.end.closed, None);
    }
}

#[test]
fn rfc8166_s4_5_4_a_send_that_is_not_as_it_says_ends_the_connection() {
    for profile in EXCHANGING {
        let (one, two) = (plain(profile, 100), plain(profile, 101));
        let both = [&one[..], &two[..]].concat();
        let (a, b) = (narrow(one.len()), narrow(two.len()));
        let there = both.len();
        let mut foreign = both.clone();
        foreign[4..8].copy_from_slice(&1_u32.to_be_bytes());
        let mut operation = both.clone();
        operation[one.len() + 12..one.len() + 16].copy_from_slice(&5_u32.to_be_bytes());
        let nine: Vec<u8> = one.repeat(9);
        for (lengths, behind, error) in [
            (vec![], &both, Malformed::Count { count: 0, allowed: 8 }),
            (vec![a], &one.to_vec(), Malformed::Count { count: 1, allowed: 8 }),
            (vec![a; 9], &nine, Malformed::Count { count: 9, allowed: 8 }),
            (vec![a, b + 4], &both, Malformed::Total { said: u64::from(a + b + 4), there }),
            (vec![a, b - 4], &both, Malformed::Total { said: u64::from(a + b - 4), there }),
            (vec![a, u32::MAX], &both, Malformed::Total { said: u64::from(a) + u64::from(u32::MAX), there }),
            (vec![12, a + b - 12], &both, Malformed::Short { index: 0, len: 12 }),
            (vec![a, b, 0], &both, Malformed::Short { index: 2, len: 0 }),
            (vec![a, b], &foreign, Malformed::Version { index: 0, version: 1 }),
            (vec![a, b], &operation, Malformed::Operation { index: 1, procedure: 5 }),
        ] {
            let mut raw = raw(profile, combining(8, server_config()));
            raw.send(together(profile, &lengths, behind));
            assert_eq!(
                raw.end.closed,
                Some(ProtocolError::Two(two::Error::Combined(error)).into()),
                "{profile:?} {error}"
            );
            assert!(raw.received.is_empty(), "none of them is carried out");
        }
        // The lengths themselves are cut off.
        let mut raw = raw(profile, combining(8, server_config()));
        raw.send(together(profile, &[a, b], &both).slice(..34));
        assert_eq!(raw.end.closed, Some(ProtocolError::Two(two::Error::Combined(Malformed::Lengths)).into()));
    }
}

#[test]
fn i4_credits_count_messages_and_not_sends() {
    for profile in EXCHANGING {
        let config = Config { grant: 3, early_calls: 1, ..combining(8, server_config()) };
        let mut raw = raw(profile, config);
        raw.end.serving = false;
        let calls: Vec<Bytes> = (100..104).map(|xid| plain(profile, xid)).collect();
        let lengths: Vec<u32> = calls.iter().map(|call| narrow(call.len())).collect();
        raw.send(together(profile, &lengths[..3], &calls[..3].concat()));
        assert_eq!((raw.end.calls.len(), raw.end.closed.clone()), (3, None));
        let mut raw = super::version_two::raw(
            profile,
            Config { grant: 3, early_calls: 1, ..combining(8, server_config()) },
        );
        raw.end.serving = false;
        raw.send(together(profile, &lengths, &calls.concat()));
        assert!(
            matches!(
                &raw.end.closed,
                Some(CloseReason::Protocol(ProtocolError::CreditsExceeded { granted: 3 }))
            ),
            "{:?}",
            raw.end.closed
        );
    }
}

#[test]
fn who_does_not_take_it_says_so_and_goes_on() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, server_config());
        let call = plain(profile, 100);
        raw.send(together(profile, &[narrow(call.len()); 2], &call.repeat(2)));
        let (header, _) = profile.codec().decode(&raw.received[0], &Limits::default()).unwrap();
        assert_eq!(
            (header.xid, header.body),
            (100, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)))
        );
        assert_eq!((faults(&raw, "unknown_operation"), raw.end.closed.clone()), (1, None));
        raw.received.clear();
        raw.send(plain(profile, 101));
        assert_eq!(raw.received.len(), 1);
    }
}

/// The peer announces that it accepts four messages.
fn tell(raw: &mut Raw, profile: Profile) {
    let said = Value { id: CHARACTERISTIC, data: Bytes::copy_from_slice(&4_u32.to_be_bytes()) };
    let initial = Exchange::Initial { start: vec![said], constant: Subset::default() };
    operate(raw, profile, 0, Direction::Call, initial);
    raw.received.clear();
}

fn refuse(raw: &mut Raw, profile: Profile, xid: u32) {
    let error = header_of(xid, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)));
    raw.send(message_of(profile.codec(), &error, &Stream::new()));
}

#[test]
fn who_refuses_what_it_has_said_to_take_is_left() {
    for profile in EXCHANGING {
        let config = Config { versions: Versions::two(profile), ..combining(8, Config::default()) };
        let mut raw = Raw::new(Side::Client, config);
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        let header = header_of(1, Direction::Reply, Body::Message(ChunkLists::default()));
        let mut reply = BytesMut::from(&message_of(profile.codec(), &header, &Stream::new())[..]);
        [1_u32, 1, 0, 0, 0, 0].iter().for_each(|word| reply.extend_from_slice(&word.to_be_bytes()));
        tell(&mut raw, profile);
        raw.send(reply.freeze());
        assert_eq!(raw.end.replies.len(), 1);
        raw.received.clear();
        for call in nulls(3) {
            raw.end.connection.call(now, call).unwrap();
        }
        raw.settle();
        assert_eq!(raw.received.len(), 1, "all three in one Send");
        refuse(&mut raw, profile, 100);
        assert_eq!(raw.end.closed, Some(ProtocolError::Two(two::Error::CombinedRefused).into()));
        assert_eq!(faults(&raw, "combined_refused"), 1);
    }
}

#[test]
fn who_refuses_replies_that_it_has_said_to_take_is_left_too() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, combining(8, server_config()));
        tell(&mut raw, profile);
        let calls = [plain(profile, 100), plain(profile, 101)];
        raw.send(together(profile, &calls.each_ref().map(|call| narrow(call.len())), &calls.concat()));
        assert_eq!((raw.received.len(), raw.end.connection.stats().messages_combined), (1, 2));
        refuse(&mut raw, profile, 100);
        assert_eq!(raw.end.closed, Some(ProtocolError::Two(two::Error::CombinedRefused).into()));
    }
}

/// An ERR_VERS has the version of the request (RFC 8166 §4.5.1), so it goes alone.
#[test]
fn rfc8166_s4_5_1_an_err_vers_is_in_no_send_with_others() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, combining(8, server_config()));
        tell(&mut raw, profile);
        raw.end.serving = false;
        raw.send(plain(profile, 100));
        raw.send(plain(profile, 101));
        let mut other = plain(profile, 102).to_vec();
        other[4..8].copy_from_slice(&3_u32.to_be_bytes());
        let now = raw.fabric.instant();
        for (token, _, _, message) in std::mem::take(&mut raw.end.calls) {
            raw.end.connection.reply(now, token, serve(message));
        }
        raw.send(other);
        let versions: Vec<u32> =
            raw.received.iter().map(|message| Fixed::decode(message).unwrap().version).collect();
        assert_eq!(versions, [2, 3], "two replies, and the refusal");
        assert_eq!(raw.end.connection.stats().messages_combined, 2);
        assert_eq!(raw.end.closed, None);
    }
}

/// rtrext-02 §4.2: a Send of several messages ends a group, and each of its messages is handled as if it had come alone.
#[test]
fn a_send_of_several_between_the_transmissions_of_a_group_is_taken() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, combining(8, server_config()));
        let request = TransmitRequest {
            placed: vec![],
            response: vec![],
            count: 2,
            response_buffers: 1,
            payload_len: 20,
        };
        let mut first = BytesMut::new();
        let body = Body::Two(two::Body::Transmission(Operation::Request(request)));
        profile.codec().encode(&header_of(50, Direction::Call, body), &mut first);
        first.extend_from_slice(&null(50).message.flatten().0[..20]);
        raw.send(first.freeze());
        let calls = [plain(profile, 100), plain(profile, 101)];
        raw.send(together(profile, &calls.each_ref().map(|call| narrow(call.len())), &calls.concat()));
        let xids: Vec<u32> = raw.received.iter().map(|message| Fixed::decode(message).unwrap().xid).collect();
        assert_eq!(xids, [50, 100, 101], "a report, and two replies");
        assert_eq!(raw.end.closed, None);
    }
}

#[test]
fn what_waits_is_lost_when_the_connection_is_given_up() {
    for profile in EXCHANGING {
        let mut pair = pair(profile, combining(8, Config::default()), combining(8, server_config()));
        hold(&mut pair, nulls(3));
        answer_all(&mut pair);
        let now = pair.now();
        let first = pair.server.connection.poll_transmit(now, &mut pair.server.qp).unwrap();
        pair.server.post(first);
        let sent = pair.server.connection.stats().sends;
        pair.server.connection.give_up();
        pair.settle();
        assert_eq!(pair.server.connection.stats().sends, sent);
        assert!(pair.client.replies.iter().all(|(_, reply)| reply.is_err()));
    }
}

#[test]
fn the_id_of_the_characteristic_is_taken() {
    const { assert!(CHARACTERISTIC >= EXPERIMENTAL) };
    let refused = Registered::new(CHARACTERISTIC, Bytes::new(), false);
    assert_eq!(refused, Err(crate::two::characteristics::NotRegistered::Twice { id: CHARACTERISTIC }));
}

/// version-two-01 §5: an error does not prove that the peer speaks the version, not even together with others.
#[test]
fn v2_01_s5_errors_that_share_a_send_prove_no_version() {
    for profile in EXCHANGING {
        let client = Config { versions: Versions::both(profile), ..combining(4, Config::default()) };
        let mut raw = Raw::new(Side::Client, client);
        let error = |xid| {
            let header = header_of(xid, Direction::Reply, Body::Error(ErrorBody::Chunk));
            message_of(profile.codec(), &header, &Stream::new())
        };
        let (first, second) = (error(100), error(2));
        raw.send(together(profile, &[narrow(first.len()), narrow(second.len())], &[first, second].concat()));
        assert!(raw.end.closed.is_none() && raw.end.connection.version().is_none(), "{profile:?}");
        let reply = header_of(3, Direction::Reply, Body::Message(ChunkLists::default()));
        let reply = message_of(profile.codec(), &reply, &super::super::requester::accepted(3, &[]));
        let error = error(100);
        raw.send(together(profile, &[narrow(error.len()), narrow(reply.len())], &[error, reply].concat()));
        assert!(raw.end.connection.version().is_some(), "{profile:?}: a reply does");
    }
}

/// An INVAL_OPTION that answers a Call in a group refuses the group, and no Send of several messages.
#[test]
fn a_refused_group_is_no_refusal_of_combined_messages() {
    for profile in EXCHANGING {
        for in_group in [true, false] {
            let mut raw = super::reports::client_with(profile, combining(8, Config::default()));
            let said = Value { id: CHARACTERISTIC, data: Bytes::copy_from_slice(&4_u32.to_be_bytes()) };
            let update = Exchange::Update { now: vec![said], clears: false };
            operate(&mut raw, profile, 0x8000_0002, Direction::Call, update);
            let now = raw.fabric.instant();
            for call in nulls(2) {
                raw.end.connection.call(now, call).unwrap();
            }
            raw.settle();
            assert_eq!(raw.end.connection.stats().messages_combined, 2);
            if in_group {
                for xid in [100, 101] {
                    super::reports::reply(&mut raw, profile, xid, 0);
                }
                super::reports::make(&mut raw, store(110, 9000));
                raw.received.clear();
                refuse(&mut raw, profile, 110);
                let again = super::reports::bodies(&raw, profile);
                assert!(matches!(again[..], [(110, Body::NoMessage(_))]), "{again:?}");
                assert_eq!(raw.end.closed, None);
            } else {
                // The reply was reported, but the Call is in no group.
                let response = TransmitResponse { placed: vec![], count: 1, payload_len: 0 };
                let operation = Operation::Response(response);
                raw.send(super::reports::bytes(profile, 100, Direction::Reply, operation, []));
                assert_eq!(raw.end.connection.stats().reports_sent, 1);
                refuse(&mut raw, profile, 100);
                assert_eq!(raw.end.closed, Some(ProtocolError::Two(two::Error::CombinedRefused).into()));
            }
        }
    }
}

/// Version-two-01 §5.1: what a client has announced holds from the second answer on, so the first one leaves alone.
#[test]
fn v2_01_s5_1_the_first_answer_is_in_no_send_with_others() {
    for profile in EXCHANGING {
        let config = Config { versions: Versions::both(profile), ..combining(8, server_config()) };
        let mut raw = Raw::new(Side::Server, config);
        raw.end.serving = false;
        tell(&mut raw, profile);
        for xids in [[100, 101], [102, 103]] {
            raw.received.clear();
            for xid in xids {
                raw.send(plain(profile, xid));
            }
            let now = raw.fabric.instant();
            for (token, _, _, message) in std::mem::take(&mut raw.end.calls) {
                raw.end.connection.reply(now, token, serve(message));
            }
            raw.settle();
            let is_first = xids[0] == 100;
            assert_eq!(raw.received.len(), if is_first { 2 } else { 1 }, "{profile:?}");
            assert_eq!(raw.end.connection.stats().messages_combined > 0, !is_first);
        }
    }
}

/// version-two-01 §3.1: only the refusal of an option, by a peer that got a combined Send, and about no Call in a group, ends
/// the connection.
#[test]
fn only_the_refusal_of_a_combined_send_ends_the_connection() {
    for profile in EXCHANGING {
        for (combined, error) in
            [(true, ErrorBody::Chunk), (false, ErrorBody::Two(two::ErrorBody::InvalidOption))]
        {
            let mut raw = raw(profile, combining(8, server_config()));
            tell(&mut raw, profile);
            if combined {
                let calls = [plain(profile, 100), plain(profile, 101)];
                raw.send(together(
                    profile,
                    &calls.each_ref().map(|call| narrow(call.len())),
                    &calls.concat(),
                ));
                assert_eq!(raw.end.connection.stats().sends_combined, 1);
            }
            let error = header_of(100, Direction::Reply, Body::Error(error));
            raw.send(message_of(profile.codec(), &error, &Stream::new()));
            assert_eq!(
                (&raw.end.closed, faults(&raw, "combined_refused")),
                (&None, 0),
                "{profile:?} {combined}"
            );
        }
    }
}

/// Rule I3: while a size changes, a Send of several messages is no longer than either of the two.
#[test]
fn i3_a_combined_send_is_within_both_sizes() {
    let sizes = |send, earlier| {
        let mut raw = raw(EXCHANGING[0], combining(8, server_config()));
        tell(&mut raw, EXCHANGING[0]);
        let peer = &mut raw.end.connection.core.peer;
        (peer.thresholds.send, peer.send_earlier) = (send, earlier);
        let calls = [plain(EXCHANGING[0], 100), plain(EXCHANGING[0], 101)];
        raw.send(together(EXCHANGING[0], &calls.each_ref().map(|call| narrow(call.len())), &calls.concat()));
        raw.end.connection.stats().sends_combined
    };
    assert_eq!((sizes(4096, 4096), sizes(100, 4096), sizes(4096, 100)), (1, 0, 0));
}

/// Messages of any length begin at a multiple of four, and nothing follows the last one.
#[test]
fn zeroes_are_between_the_messages_and_not_behind_them() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, combining(8, server_config()));
        tell(&mut raw, profile);
        raw.end.serving = false;
        for xid in [100, 101] {
            raw.send(plain(profile, xid));
        }
        let now = raw.fabric.instant();
        for (token, xid, ..) in std::mem::take(&mut raw.end.calls) {
            let odd = [&super::reports::result(xid, &[]).flatten().0[..], &[7; 1]].concat();
            raw.end.connection.reply(now, token, crate::Answer::message(Bytes::from(odd).into()));
        }
        raw.settle();
        let limits = Limits { combined_messages: 8, ..Limits::default() };
        let message = raw.received.last().expect("a message");
        let (header, len) = profile.codec().decode(message, &limits).unwrap();
        let behind = message.slice(len..);
        let Body::Two(two::Body::Combined(lengths)) = header.body else { panic!("{header:?}") };
        let [first, second] = lengths[..] else { panic!("{lengths:?}") };
        let (first, second) = (usize::try_from(first).unwrap(), usize::try_from(second).unwrap());
        assert_eq!((first % 4, behind.len()), (1, first + 3 + second), "{profile:?}");
        assert_eq!(behind[first - 1..first + 3], [7, 0, 0, 0]);
        assert_eq!(behind.last(), Some(&7));
    }
}
