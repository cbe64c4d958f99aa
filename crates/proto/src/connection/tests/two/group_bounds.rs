//! The costs of transmission groups: memory for a receiver, and credits for a sender (rtrext-02 §4.3).

use bytes::Bytes;
use rpcrdma_verbs::{ProtectionDomain, QueuePair};
use rpcrdma_xdr::Stream;

use super::reports::{
    OPTIONAL, XMTREQ, XMTRESP, answer, answers, bare, bodies, bytes, call, check_usable, client, client_with,
    continuation, id, item, make, narrow, plain, request, server, structured, targets,
};
use super::version_two::{EXCHANGING, faults, header_of, last, message_of, raw};
use crate::testing::*;
use crate::wire::two::transmission::{
    ErrorReport, Operation, ReportedError, TransmissionId, TransmitRequest, TransmitResponse,
};
use crate::wire::{Body, Direction, ErrorBody, two};
use crate::wire::{Limits, two::Profile};
use crate::{CallError, Config, Form, Side, Versions};

fn bounded(continued_len: usize) -> Config {
    let limits = Limits { continued_len, ..server_config().limits };
    Config { limits, ..structured() }
}

/// A STORE in three Sends of a kilobyte.
fn in_three(profile: Profile, xid: u32) -> [Bytes; 3] {
    let all = store(xid, 2956).message.flatten().0;
    assert_eq!(all.len(), 3000);
    [
        call(profile, xid, request(vec![], 3, 1000), &all[..1000]),
        call(profile, xid, continuation(1, XMTREQ, 1000), &all[1000..2000]),
        call(profile, xid, continuation(2, XMTREQ, 1000), &all[2000..]),
    ]
}

/// rtrext-02 §4.2: the Payload streams of a group form one stream, whose length our limit bounds as in P3.
#[test]
fn rtrext_s4_2_a_call_in_several_sends_is_as_long_as_is_taken() {
    for profile in EXCHANGING {
        for (most, reported) in [(1996, Some((1, 2000))), (2996, Some((2, 3000))), (3000, None)] {
            let mut raw = raw(profile, bounded(most));
            in_three(profile, 10).into_iter().for_each(|send| raw.send(send));
            let expected: Vec<_> = reported
                .map(|(number, value)| {
                    let error = ReportedError::PayloadLength { value, least: 0, most: narrow(most) };
                    (10, ErrorReport { bad: id(10, number), lead: Some(id(10, 0)), error })
                })
                .into_iter()
                .collect();
            let replies = if reported.is_some() { vec![] } else { vec![10] };
            assert_eq!(answers(&raw, profile), (expected, replies), "{most}");
            assert_eq!(faults(&raw, "group_too_long"), u64::from(reported.is_some()));
            check_usable(raw, profile);
        }
    }
}

/// Items in Receives count, and their length is known from the first transmission on.
#[test]
fn rtrext_s7_3_items_in_receives_count_for_the_length_of_a_message() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, bounded(2000));
        let lead = request(vec![item(44, 1960, targets(0, vec![0, 1]))], 2, 44);
        raw.send(call(profile, 10, lead, &write(10, 1960).message.flatten().0[..44]));
        let error = ReportedError::PayloadLength { value: 2004, least: 0, most: 2000 };
        let report = ErrorReport { bad: id(10, 0), lead: None, error };
        assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
        raw.received.clear();
        raw.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
        assert_eq!(answers(&raw, profile), (vec![], vec![]));
        check_usable(raw, profile);
    }
}

/// rtrext-02 §8.4: a peer that keeps to the announced number of transmissions never exceeds the limit in bytes.
#[test]
fn rtrext_s8_4_no_more_transmissions_are_told_than_there_is_room_for() {
    for profile in EXCHANGING {
        for (continued_len, limit) in [(1000, 1), (9000, 2), (Limits::DEFAULT_CONTINUED_LEN, 64)] {
            let limits = Limits { continued_len, ..server_config().limits };
            let client = Config { versions: Versions::two(profile), ..Config::default() };
            let server = Config { versions: Versions::both(profile), limits, ..server_config() };
            let mut pair = Pair::with(rpcrdma_sim::FabricConfig::default(), client, server);
            (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
            let told = pair.client.connection.peer_characteristics().unwrap().transmissions.request_limit;
            assert_eq!(told, limit);
            for len in [4500, 7000, 9000] {
                check_reply(STORE, len, pair.round_trip(store(10, len)));
            }
            assert!(pair.server.connection.stats().errors.is_empty());
        }
    }
}

#[test]
fn rtrext_s4_2_a_reply_in_several_sends_is_as_long_as_is_taken() {
    for profile in EXCHANGING {
        let with = |continued_len| {
            let limits = Limits { continued_len, ..Limits::default() };
            client_with(profile, Config { limits, ..Config::default() })
        };
        // The client does not ask for a reply that may be longer than its limit.
        let mut raw = with(9000);
        make(&mut raw, list(10, 9000));
        assert!(
            matches!(&bodies(&raw, profile)[..], [(10, Body::Message(lists))] if lists.reply.is_some()),
            "{:?}",
            bodies(&raw, profile)
        );
        // A longer reply is reported. Three Receives hold more.
        let mut raw = with(10_000);
        make(&mut raw, list(10, 9000));
        raw.received.clear();
        for number in 0..3 {
            let operation = match number {
                0 => Operation::Response(TransmitResponse { placed: vec![], count: 3, payload_len: 4000 }),
                _ => continuation(number, XMTRESP, 4000),
            };
            raw.send(bytes(profile, 10, Direction::Reply, operation, vec![0; 4000]));
        }
        let first = TransmissionId { xid: 10, direction: Direction::Reply, number: 0 };
        let error = ReportedError::PayloadLength { value: 12_000, least: 0, most: 10_000 };
        let bad = TransmissionId { number: 2, ..first };
        let report = ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead: Some(first), error }));
        assert_eq!(bodies(&raw, profile), [(10, Body::Error(report))]);
        answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Chunk);
        let (_, result) = raw.end.replies.pop().unwrap();
        assert_eq!(result.unwrap_err().error, CallError::Chunk);
    }
}

/// Rule I6: an item of four bytes does not hold a Receive.
#[test]
fn i6_a_call_holds_no_more_receives_than_it_fills() {
    for profile in EXCHANGING {
        for (len, copied, receives) in [(4, 8, 0), (1024, 2048, 0), (2048, 0, 2)] {
            let structure = crate::wire::two::transmission::BufferStructure::new([(1024, 0), (2048, 1)].map(
                |(length, flags)| crate::wire::two::transmission::BufferGroup {
                    count: 1,
                    length,
                    align: 4,
                    flags,
                },
            ));
            let mut config = server_config();
            config.place_items(structure.unwrap());
            config.receive_size = 3072;
            let mut raw = raw(profile, config);
            raw.end.serving = false;
            let before = raw.end.domain.usage().in_use;
            // Each of the two items lies in a Receive of its own.
            let data = usize::try_from(len).unwrap();
            let all = two(10, data, data).message.flatten().0;
            let second = 48 + len;
            let places = vec![item(44, len, targets(0, vec![1])), item(second, len, targets(0, vec![2]))];
            raw.send(call(profile, 10, request(places, 3, 44), &all[..44]));
            for number in [1, 2] {
                let operation = continuation(number, XMTREQ, if number == 1 { 4 } else { 0 });
                let mut behind = if number == 1 { all[44 + data..48 + data].to_vec() } else { vec![] };
                behind.resize(1024 - crate::wire::two::operation_len(&operation), 0);
                behind.extend_from_slice(&pattern(data));
                raw.send(call(profile, 10, operation, behind));
            }
            assert_eq!(answers(&raw, profile), (vec![], vec![]));
            // The Receive for the Call's credit is posted only with the answer.
            let room = ProtectionDomain::room_for(3072);
            let held = raw.end.domain.usage().in_use + room - before;
            let small = 2 * ProtectionDomain::room_for(data) + ProtectionDomain::room_for(48);
            let most = if receives == 0 { small } else { receives * room + ProtectionDomain::room_for(48) };
            assert!(held <= most, "{len}: {held} {most}");
            assert_eq!(raw.end.connection.stats().payload_bytes_copied, copied);
            let (token, _, travelled, mut message) = raw.end.calls.pop().unwrap();
            assert_eq!(travelled.form, Form::Placed);
            (0..10).for_each(|_| assert!(message.u32().is_ok()));
            assert_eq!([(); 2].map(|()| message.payload(MAX).unwrap()), [pattern(data), pattern(data)]);
            message.finish().unwrap();
            let now = raw.fabric.instant();
            let done = crate::Answer::message(super::reports::result(10, &[]));
            raw.end.connection.reply(now, token, done);
            raw.end.serving = true;
            raw.settle();
            assert_eq!(answers(&raw, profile), (vec![], vec![10]));
            assert!(raw.end.domain.usage().in_use <= before + room);
        }
    }
}

/// rtrext-02 §4.3: each transmission uses a Receive, even if it is discarded.
#[test]
fn i4_what_is_passed_over_needs_a_credit_and_comes_once() {
    let begun = |raw: &mut Raw, profile| {
        raw.send(call(profile, 10, request(vec![], 3, 3), [0; 4]));
        let error = ReportedError::PayloadLength { value: 3, least: 0, most: 4 };
        let report = ErrorReport { bad: id(10, 0), lead: None, error };
        assert_eq!(answers(raw, profile), (vec![(10, report)], vec![]));
        raw.received.clear();
    };
    for profile in EXCHANGING {
        // The second copy continues nothing, so it is reported, which takes a credit.
        let mut twice = server(profile);
        begun(&mut twice, profile);
        twice.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
        assert!(twice.received.is_empty());
        twice.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
        let stray = ErrorReport { bad: id(10, 1), lead: None, error: ReportedError::Continuation };
        assert_eq!(answers(&twice, profile), (vec![(10, stray)], vec![]));
        check_usable(twice, profile);

        // Other Calls use all remaining credits.
        let mut beyond = raw(profile, Config { grant: 2, early_calls: 1, ..structured() });
        begun(&mut beyond, profile);
        beyond.end.serving = false;
        beyond.send(plain(profile, 11));
        beyond.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
        assert_eq!(beyond.end.closed, None, "there is one left");
        beyond.send(plain(profile, 12));
        beyond.send(call(profile, 10, continuation(2, XMTREQ, 0), []));
        assert_eq!(faults(&beyond, "credits_exceeded"), 1);
        assert!(beyond.end.closed.is_some());
    }
}

/// Rtrext-02 §4.3: the last transmission of a Call has a credit of its own, too. A complete Call has one.
#[test]
fn i4_the_last_transmission_of_a_call_is_within_the_grant() {
    for profile in EXCHANGING {
        for (others, exceeds) in [(0, false), (1, true)] {
            let mut raw = raw(profile, Config { grant: 2, early_calls: 1, ..structured() });
            raw.end.serving = false;
            for other in 0..others {
                raw.send(plain(profile, 20 + other));
            }
            let all = null(10).message.flatten().0;
            raw.send(call(profile, 10, request(vec![], 2, 20), &all[..20]));
            assert_eq!(raw.end.closed, None);
            raw.send(call(profile, 10, continuation(1, XMTREQ, narrow(all.len() - 20)), &all[20..]));
            assert_eq!(faults(&raw, "credits_exceeded"), u64::from(exceeds), "{profile:?}: {others} others");
            if !exceeds {
                raw.send(plain(profile, 30));
                assert_eq!(
                    (faults(&raw, "credits_exceeded"), raw.end.calls.len()),
                    (0, 2),
                    "it has one credit"
                );
                raw.send(plain(profile, 31));
                assert_eq!(faults(&raw, "credits_exceeded"), 1);
            }
        }
    }
}

/// version-two-01 §5.1: the sizes of the first message hold until its answer, however many transmissions carry it.
#[test]
fn v2_01_s5_1_transmissions_are_no_answers() {
    for profile in EXCHANGING {
        let config = Config { versions: Versions::both(profile), ..structured() };
        let mut raw = Raw::new(Side::Server, config);
        raw.end.serving = false;
        let all = null(10).message.flatten().0;
        raw.send(call(profile, 10, request(vec![], 2, 20), &all[..20]));
        raw.send(call(profile, 10, continuation(1, XMTREQ, 20), &all[20..]));
        assert_eq!(raw.end.connection.thresholds().send, 1024);
        let (token, _, _, message) = raw.end.calls.pop().unwrap();
        let now = raw.fabric.instant();
        raw.end.connection.reply(now, token, serve(message));
        raw.settle();
        assert_eq!(raw.end.connection.thresholds().send, 4096);
        raw.end.serving = true;
        raw.received.clear();
        check_usable(raw, profile);
    }
}

pub(super) fn refusal(profile: Profile, xid: u32, credit: u32) -> Bytes {
    let error = ReportedError::Sequence { expected: 1, seen: 3 };
    let report = ErrorReport { bad: id(xid, 3), lead: Some(id(xid, 0)), error };
    let header =
        header_of(xid, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))));
    message_of(profile.codec(), &crate::wire::Header { credit, ..header }, &Stream::new())
}

/// A report lowers the grant below the number of reported Sends: the Call leaves again, and nothing waits for ever.
#[test]
fn rtrext_s4_3_a_lower_grant_does_not_count_sends_of_a_higher_one() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, store(10, 9000));
        assert_eq!(bodies(&raw, profile).len(), 3);
        raw.received.clear();
        raw.send(refusal(profile, 10, 1));
        assert!(matches!(&bodies(&raw, profile)[..], [(10, Body::NoMessage(_))]), "{:?}", raw.end.closed);
        // Only one Call is in flight until the answer comes.
        raw.received.clear();
        make(&mut raw, null(11));
        assert!(raw.received.is_empty());
        super::reports::reply(&mut raw, profile, 10, 1);
        assert!(matches!(&bodies(&raw, profile)[..], [(11, Body::Message(_))]));
        super::reports::reply(&mut raw, profile, 11, 0);
        assert_eq!((raw.end.closed.clone(), raw.end.replies.len()), (None, 3));
    }
}

/// A Call that can leave only in several Sends does not wait for credits that nothing would free.
#[test]
fn rtrext_s4_3_without_chunks_a_call_does_not_wait_for_what_nothing_proves() {
    for profile in EXCHANGING {
        let chunks = crate::ChunkSupport::Optional { forward: false };
        let mut raw = client_with(profile, Config { chunks, ..Config::default() });
        make(&mut raw, store(10, 9000));
        raw.send(refusal(profile, 10, 3));
        let (_, result) = raw.end.replies.pop().unwrap();
        let failure = result.unwrap_err();
        assert!(matches!(failure.error, CallError::Unsendable(_)) && failure.sent, "{failure:?}");
        raw.received.clear();
        make(&mut raw, store(11, 9000));
        assert_eq!(bodies(&raw, profile).len(), 3);
        raw.received.clear();
        make(&mut raw, null(12));
        assert!(raw.received.is_empty(), "it waits");
        super::reports::reply(&mut raw, profile, 11, 1);
        assert!(matches!(&bodies(&raw, profile)[..], [(12, Body::Message(_))]));
    }
}

/// A call that was sent in a group and comes back to its caller is marked as sent.
#[test]
fn a_call_that_waits_to_leave_again_has_left() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, null(9));
        make(&mut raw, store(10, 9000));
        raw.received.clear();
        raw.send(refusal(profile, 10, 1));
        assert!(raw.received.is_empty(), "it waits for the credit of the other");
        raw.peer.abort();
        raw.settle();
        let sent = |(_, result): &(_, Result<_, crate::CallFailure>)| match result {
            Ok(_) => None,
            Err(failure) => Some((failure.call.as_ref().unwrap().xid, failure.sent)),
        };
        let failed: Vec<_> = raw.end.replies.iter().filter_map(sent).collect();
        assert_eq!(failed, [(9, true), (10, true)]);
    }
}

/// Rule I10: nothing is left of a call that is abandoned while it waits to leave again: a later one with its XID has not left.
#[test]
fn i10_nothing_is_left_of_an_abandoned_call_that_waits_to_leave_again() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, null(9));
        let now = raw.fabric.instant();
        let id = raw.end.connection.call(now, store(10, 9000)).unwrap();
        raw.settle();
        raw.send(refusal(profile, 10, 1));
        assert!(raw.end.connection.core.in_group(10));
        raw.end.connection.abandon(now, id);
        assert!(!raw.end.connection.core.in_group(10) && !raw.end.connection.xid_in_use(10));
    }
}

/// A Requester that counts on an earlier size has sent directions, too (xcharext-02 §3.1).
#[test]
fn rtrext_s5_2_a_long_reply_keeps_its_length_while_the_size_is_lowered() {
    use crate::planner::ReplyInput;
    use crate::two::plan::{ReplyGroups, ReplyOptions};
    use crate::wire::two::transmission::{ResponseDirection, ResponseLocation};
    let mut encoder = rpcrdma_xdr::Encoder::new();
    [10_u32, 1, 0, 0, 0, 0].iter().for_each(|word| encoder.u32(*word));
    encoder.payload(pattern(9000), MAX, true).unwrap();
    let message = encoder.finish();
    let directions = [ResponseDirection { least_len: 10_000, location: ResponseLocation::Targets }];
    for profile in EXCHANGING {
        let plan = |send| {
            let groups = ReplyGroups { sends: 1, places: true, directions: &directions, theirs: None };
            let options = ReplyOptions { continued: 1, groups: Some(groups) };
            options.plan_reply(&ReplyInput {
                codec: profile.codec(),
                message: &message,
                flavor_touches_data: false,
                send,
                offered: &crate::wire::ChunkLists::default(),
            })
        };
        assert!(plan(4096).is_err());
        assert_eq!(plan(16_384).unwrap().route.sends(), 1);
    }
}

/// After a transmission that does not decode, at most as many as a group may have are discarded.
#[test]
fn rtrext_s4_2_what_follows_a_request_that_does_not_decode() {
    for profile in EXCHANGING {
        let mut raw = raw(
            profile,
            Config { limits: Limits { continued_parts: 3, ..Limits::default() }, ..structured() },
        );
        let whole = call(profile, 10, Operation::Request(TransmitRequest { ..bare(9, 0) }), []);
        let mut cut = whole[..whole.len() - 4].to_vec();
        cut[27] -= 4;
        raw.send(cut);
        assert_eq!(last(&raw, profile).0.body, Body::Error(ErrorBody::Chunk));
        raw.received.clear();
        for number in [1, 2] {
            raw.send(call(profile, 10, continuation(number, XMTREQ, 0), []));
            assert!(raw.received.is_empty(), "{number}");
        }
        raw.send(call(profile, 10, continuation(3, XMTREQ, 0), []));
        let stray = ErrorReport { bad: id(10, 3), lead: None, error: ReportedError::Continuation };
        assert_eq!(answers(&raw, profile), (vec![(10, stray)], vec![]));
        check_usable(raw, profile);
    }
}

/// An unrelated message between the transmissions of a Call needs a credit beside theirs.
#[test]
fn i4_an_interrupted_call_leaves_one_credit_for_its_report() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, Config { grant: 3, early_calls: 1, ..structured() });
        for xid in [10, 20, 30] {
            raw.send(call(profile, xid, request(vec![], 4, 20), &null(xid).message.flatten().0[..20]));
            raw.send(call(profile, xid, continuation(1, XMTREQ, 0), []));
            raw.send(plain(profile, xid + 1));
            let error = ReportedError::HeaderType { expected: OPTIONAL, seen: 0 };
            let report = ErrorReport { bad: id(xid + 1, 0), lead: Some(id(xid, 0)), error };
            assert_eq!(answers(&raw, profile), (vec![(xid, report)], vec![xid + 1]));
            assert_eq!(raw.end.connection.in_progress(), 0);
            raw.received.clear();
        }
        check_usable(raw, profile);
    }
}

/// rtrext-02 §4.2: behind a wrong number, the transmissions that were still due are ignored, each once.
#[test]
fn rtrext_s4_2_the_rest_behind_a_wrong_number_is_ignored_once() {
    // With the second due, a later one comes, or one that there cannot be.
    for (wrong, ignored, reported) in [(2, &[3][..], &[2, 3][..]), (9, &[2, 3], &[3, 9]), (0, &[2, 3], &[1])]
    {
        for profile in EXCHANGING {
            let mut raw = server(profile);
            raw.send(call(profile, 10, request(vec![], 4, 20), &null(10).message.flatten().0[..20]));
            raw.send(call(profile, 10, continuation(wrong, XMTREQ, 0), []));
            assert_eq!(answers(&raw, profile).0.len(), 1);
            raw.received.clear();
            if wrong == 2 {
                raw.send(call(profile, 10, continuation(2, XMTREQ, 0), []));
                assert_eq!(answers(&raw, profile).0.len(), 1, "it was the wrong one");
                raw.received.clear();
            }
            for number in ignored {
                raw.send(call(profile, 10, continuation(*number, XMTREQ, 0), []));
                assert_eq!(answers(&raw, profile).0, [], "{number} after {wrong}");
            }
            for number in reported {
                raw.send(call(profile, 10, continuation(*number, XMTREQ, 0), []));
                assert_eq!(answers(&raw, profile).0.len(), 1, "{number} after {wrong}");
                raw.received.clear();
            }
            check_usable(raw, profile);
        }
    }
}

/// Rule I5: one transmission is always taken, and as many as the setting says.
#[test]
fn i5_a_group_has_as_many_transmissions_as_the_setting_says() {
    for (setting, count, taken) in [(0, 1, true), (0, 2, false), (1, 1, true), (1, 2, false), (2, 2, true)] {
        for profile in EXCHANGING {
            let limits = Limits { continued_parts: setting, ..server_config().limits };
            let mut raw = raw(profile, Config { limits, ..structured() });
            let all = null(10).message.flatten().0;
            raw.send(call(
                profile,
                10,
                request(vec![], count, 20 * (3 - count)),
                &all[..if count == 1 { 40 } else { 20 }],
            ));
            if count == 2 && taken {
                raw.send(call(profile, 10, continuation(1, XMTREQ, 20), &all[20..]));
            }
            let (reports, replies) = answers(&raw, profile);
            assert_eq!((reports.is_empty(), replies.is_empty()), (taken, !taken), "{count} of {setting}");
        }
    }
}

/// rtrext-02 §7.3: only what lies in Receives is joined, so only that counts for the length of a message. A message in one
/// Send has no such bound.
#[test]
fn i6_only_items_in_several_receives_count_for_the_length() {
    for profile in EXCHANGING {
        let mut raw = raw(profile, bounded(44));
        let all = write(10, 512).message.flatten().0;
        let chunk = crate::wire::two::transmission::Location::Explicit(vec![raw.readable(&all[44..])]);
        raw.send(call(profile, 10, request(vec![item(44, 512, chunk)], 2, 20), &all[..20]));
        raw.send(call(profile, 10, continuation(1, XMTREQ, 24), &all[20..44]));
        assert_eq!(answers(&raw, profile), (vec![], vec![10]));

        let mut raw = self::raw(profile, bounded(48));
        let all = write(10, 1024).message.flatten().0;
        let operation = request(vec![item(44, 1024, targets(0, vec![0]))], 1, 44);
        let mut behind = all[..44].to_vec();
        behind.resize(1024 - crate::wire::two::operation_len(&operation), 0);
        behind.extend_from_slice(&all[44..]);
        raw.send(call(profile, 10, operation, behind));
        assert_eq!(answers(&raw, profile), (vec![], vec![10]));
    }
}

/// version-two-01 §3.1: where groups are not accepted, none of their operations is known. Each message has one answer.
#[test]
fn v2_01_s3_1_without_groups_each_message_has_one_answer() {
    for profile in EXCHANGING {
        let of = |enabled, takes_calls| {
            let mut config = structured();
            (config.transmissions.enabled, config.transmissions.takes_calls) = (enabled, takes_calls);
            raw(profile, config)
        };
        let invalid = |raw: &Raw| {
            let (header, _) = last(raw, profile);
            (header.xid, header.body) == (10, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)))
        };
        let all = null(10).message.flatten().0;
        for (enabled, takes_calls) in [(true, false), (false, true)] {
            let mut raw = of(enabled, takes_calls);
            raw.send(call(profile, 10, request(vec![], 2, 20), &all[..20]));
            assert!(invalid(&raw) && raw.received.len() == 1);
            raw.send(call(profile, 10, continuation(1, XMTREQ, 20), &all[20..]));
            assert_eq!(raw.received.len(), 1, "the rest is ignored");
        }
        let mut raw = of(false, true);
        raw.send(call(profile, 10, continuation(1, XMTREQ, 20), &all[20..]));
        assert!(invalid(&raw), "nothing is known of continuations");
        // A reply in a group has no answer.
        let config = Config { versions: Versions::two(profile), ..structured() };
        let transmissions =
            crate::two::settings::TransmissionSettings { enabled: false, ..config.transmissions.clone() };
        let mut raw = client_with(profile, Config { transmissions, ..config });
        make(&mut raw, null(10));
        raw.received.clear();
        raw.end.replies.clear();
        let response = Operation::Response(TransmitResponse { placed: vec![], count: 1, payload_len: 24 });
        raw.send(bytes(profile, 10, Direction::Reply, response, super::reports::result(10, &[]).flatten().0));
        assert!(raw.received.is_empty() && raw.end.replies.is_empty());
        assert_eq!(faults(&raw, "unknown_operation"), 1);
    }
}

/// version-two-01 §4.2.2: a group has the direction that its header says.
#[test]
fn v2_01_s4_2_2_a_request_in_the_direction_of_replies_is_refused() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        let all = null(10).message.flatten().0;
        raw.send(bytes(profile, 10, Direction::Reply, request(vec![], 1, 40), &all));
        assert_eq!(faults(&raw, "direction_mismatch"), 1);
        assert_eq!(answers(&raw, profile), (vec![], vec![]), "a reply has no answer");
        check_usable(raw, profile);
    }
}

/// Rule I4: transmissions of our replies use no credits of the peer's Calls, not even if they are ignored.
#[test]
fn i4_what_is_ignored_of_a_reply_uses_no_credit_of_a_call() {
    for profile in EXCHANGING {
        let config = Config { grant: 1, ..Config::default() };
        let mut raw = client_with(profile, config);
        make(&mut raw, list(10, 9000));
        raw.end.serving = false;
        raw.send(plain(profile, 70));
        assert_eq!(raw.end.calls.len(), 1, "it uses the only credit");
        let begin = Operation::Response(TransmitResponse { placed: vec![], count: 3, payload_len: 3 });
        raw.send(bytes(profile, 10, Direction::Reply, begin, [0; 4]));
        assert_eq!(raw.end.connection.stats().reports_sent, 1);
        raw.send(bytes(profile, 10, Direction::Reply, continuation(1, XMTRESP, 0), []));
        assert_eq!(faults(&raw, "credits_exceeded"), 0);
        assert!(raw.end.closed.is_none());
    }
}
