//! What becomes of Calls when the peer refuses them or their transmission groups (rtrext-02 §5.4, RFC 8166 §4.5).

use std::time::Duration;

use bytes::Bytes;

use super::group_bounds::refusal;
use super::reports::{
    XMTRESP, answer, bodies, bytes, client, client_with, continuation, make, reply, result,
};
use super::version_two::{EXCHANGING, header_of, message_of};
use crate::testing::*;
use crate::wire::two::transmission::{Operation, TransmitResponse};
use crate::wire::two::{self, Profile};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, Header};
use crate::{Call, CallError, ChunkSupport, Config};

/// A reply in a group, in one Send: the result of a STORE.
fn group_reply(profile: Profile, xid: u32, count: u32) -> Bytes {
    let payload = result(xid, &[9000]).flatten().0;
    let payload_len = u32::try_from(payload.len()).unwrap();
    let response = TransmitResponse { placed: vec![], count, payload_len };
    bytes(profile, xid, Direction::Reply, Operation::Response(response), payload)
}

fn is_in_group(raw: &Raw, profile: Profile) -> bool {
    matches!(&bodies(raw, profile)[0].1, Body::Two(two::Body::Transmission(_)))
}

/// Rule I8: an error that is not about the group of a Call fails the Call, which does not leave again. Without a group, an
/// INVAL_OPTION is such an error, even if the reply was reported.
#[test]
fn i8_an_error_that_concerns_no_group_fails_its_call() {
    let option = two::ErrorBody::InvalidOption;
    for (profile, call, reported, error) in [
        (Profile::P1, null(10), false, option),
        (Profile::P2, null(10), false, option),
        (Profile::P1, null(10), true, option),
        (Profile::P2, null(10), true, option),
        (Profile::P2, store(10, 9000), false, two::ErrorBody::System),
    ] {
        let mut raw = client(profile);
        make(&mut raw, call);
        if reported {
            raw.send(group_reply(profile, 10, 1));
            assert_eq!(raw.end.connection.stats().reports_sent, 1);
        }
        raw.received.clear();
        answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Two(error));
        let (_, ended) = raw.end.replies.pop().unwrap();
        assert_eq!(ended.unwrap_err().error, CallError::Refused(error), "{profile:?} {reported}");
        assert_eq!((bodies(&raw, profile), raw.end.connection.in_progress()), (vec![], 0));
        assert_eq!(raw.end.connection.stats().sent_plainly, 0);
        make(&mut raw, store(11, 9000));
        assert!(is_in_group(&raw, profile), "groups were not refused");
    }
}

/// Rule I10: a Call that nobody waits for does not leave again, and its credit comes back.
#[test]
fn i10_a_refused_call_that_is_abandoned_does_not_leave_again() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        let now = raw.fabric.instant();
        let call = raw.end.connection.call(now, store(10, 9000)).unwrap();
        raw.settle();
        raw.end.connection.abandon(now, call);
        raw.received.clear();
        raw.end.replies.clear();
        raw.send(refusal(profile, 10, 8));
        assert_eq!((bodies(&raw, profile), raw.end.replies.len()), (vec![], 0));
        assert_eq!((raw.end.connection.in_progress(), raw.end.connection.stats().sent_plainly), (0, 0));
        assert_eq!(raw.end.connection.core.ledger.calls.in_flight(), 0);
    }
}

/// Rules I6, I10: a Call that waits to leave again ends at the deadline of its caller, alone, and not if it is abandoned.
#[test]
fn i6_a_call_that_waits_to_leave_again_has_a_deadline() {
    for (profile, abandoned) in EXCHANGING.into_iter().flat_map(|profile| [(profile, false), (profile, true)])
    {
        let mut raw = client(profile);
        make(&mut raw, null(9));
        let (now, wait) = (raw.fabric.instant(), Duration::from_secs(2));
        let call = Call { timeout: Some(wait), ..store(10, 9000) };
        let id = raw.end.connection.call(now, call).unwrap();
        raw.settle();
        raw.send(refusal(profile, 10, 1));
        raw.received.clear();
        raw.end.replies.clear();
        if abandoned {
            raw.end.connection.abandon(now, id);
        } else {
            assert_eq!(raw.end.connection.poll_timeout(), Some(now + wait));
            raw.end.connection.handle_timeout(now + wait);
            raw.settle();
            let (ended, outcome) = raw.end.replies.pop().unwrap();
            assert_eq!((ended, outcome.unwrap_err().error), (id, CallError::TimedOut));
        }
        assert_eq!(raw.end.connection.in_progress(), 1, "the other Call");
        reply(&mut raw, profile, 9, 0);
        assert_eq!((bodies(&raw, profile), raw.end.connection.in_progress()), (vec![], 0));
        assert_eq!((raw.end.replies.len(), raw.end.closed.clone()), (1, None));
    }
}

/// A reply in a group shows that the peer takes groups: only reports in a row end them.
#[test]
fn rtrext_s5_4_a_reply_in_a_group_ends_a_row_of_reports() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        for (xid, reported) in (10..).zip([true, true, false, true, true, false, true]) {
            raw.received.clear();
            make(&mut raw, store(xid, 9000));
            assert!(is_in_group(&raw, profile), "{xid}");
            if reported {
                raw.send(refusal(profile, xid, 8));
                reply(&mut raw, profile, xid, 1);
            } else {
                raw.send(group_reply(profile, xid, 1));
            }
            check_reply(STORE, 9000, raw.end.replies.pop().unwrap().1.unwrap());
        }
    }
}

/// Without chunks nothing else carries a long Call, so reports do not end groups.
#[test]
fn rtrext_s5_4_without_chunks_groups_go_on_after_reports() {
    for profile in EXCHANGING {
        let chunks = ChunkSupport::Optional { forward: false };
        let mut raw = client_with(profile, Config { chunks, ..Config::default() });
        for xid in 10..16 {
            raw.received.clear();
            make(&mut raw, store(xid, 9000));
            assert!(is_in_group(&raw, profile), "{xid}");
            raw.send(refusal(profile, xid, 8));
            let failure = raw.end.replies.pop().unwrap().1.unwrap_err();
            assert!(matches!(failure.error, CallError::Unsendable(_)), "{failure:?}");
        }
    }
}

/// Rule I6: nothing is kept of a reply that no Call waits for.
#[test]
fn i6_nothing_is_kept_of_transmissions_that_nobody_waits_for() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        for xid in 500..520 {
            raw.send(bytes(profile, xid, Direction::Reply, continuation(1, XMTRESP, 0), []));
        }
        assert_eq!((bodies(&raw, profile), raw.end.closed.clone()), (vec![], None));
        assert!(raw.end.connection.core.sending.as_ref().unwrap().groups.is_empty());
    }
}

/// Rule I3: the peer answers a report with an error, so a report waits for the Receives that are missing.
#[test]
fn i3_a_report_waits_for_receives() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, list(10, 9000));
        let others = super::super::rules::hold_all(&raw.end.domain);
        let call = header_of(70, Direction::Call, Body::Message(ChunkLists::default()));
        raw.send(message_of(profile.codec(), &Header { credit: 64, ..call }, &null(70).message));
        assert_eq!(raw.end.connection.wants_memory(), Some(4096), "Receives for 64 credits");
        raw.received.clear();
        raw.send(group_reply(profile, 10, 4));
        assert_eq!(bodies(&raw, profile), []);
        drop(others);
        raw.settle();
        let [(10, Body::Error(ErrorBody::Two(two::ErrorBody::Report(_))))] = &bodies(&raw, profile)[..]
        else {
            panic!("{:?}", bodies(&raw, profile))
        };
    }
}

/// A reply that is discarded shows nothing: the row of reports goes on.
#[test]
fn rtrext_s5_4_a_discarded_reply_ends_no_row_of_reports() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        raw.end.replies.clear();
        for xid in 10..13 {
            raw.received.clear();
            make(&mut raw, store(xid, 9000));
            assert!(is_in_group(&raw, profile), "{xid}");
            let header = header_of(xid, Direction::Reply, Body::Message(ChunkLists::default()));
            raw.send(message_of(profile.codec(), &header, &super::reports::result(xid + 50, &[9000])));
            assert!(raw.end.replies.is_empty(), "of another XID");
            raw.send(refusal(profile, xid, 8));
            reply(&mut raw, profile, xid, 1);
            check_reply(STORE, 9000, raw.end.replies.pop().unwrap().1.unwrap());
        }
        raw.received.clear();
        make(&mut raw, store(20, 9000));
        assert!(!is_in_group(&raw, profile));
    }
}

/// RFC 8166 §4.2.1, §4.5.2, version-two-01 §4.2.2: a reply in a group is checked like any other: its XID and its direction.
// requirement: v2-01-4.2.2-3
#[test]
fn s4_5_2_a_bad_reply_in_a_group_is_discarded() {
    for profile in EXCHANGING {
        for (words, name) in [([60, 1], "xid_mismatch"), ([10, 0], "wrong_direction")] {
            let mut raw = client(profile);
            raw.end.replies.clear();
            make(&mut raw, store(10, 9000));
            let mut all = super::reports::result(10, &[9000]).flatten().0.to_vec();
            all[..8].copy_from_slice(&words.map(u32::to_be_bytes).concat());
            let payload_len = super::reports::narrow(all.len());
            let lead = Operation::Response(TransmitResponse { placed: vec![], count: 1, payload_len });
            raw.send(bytes(profile, 10, Direction::Reply, lead, all));
            assert_eq!(raw.end.connection.stats().errors.get(name), Some(&1), "{profile:?}");
            assert!(raw.end.replies.is_empty() && raw.end.closed.is_none());
            raw.send(group_reply(profile, 10, 1));
            check_reply(STORE, 9000, raw.end.replies.pop().unwrap().1.unwrap());
        }
    }
}

/// Rule I6: a Call that leaves again gets time for what moves then, even if it had time for other data before.
#[test]
fn i6_a_call_that_leaves_again_gets_time_for_its_data() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        raw.end.replies.clear();
        raw.end.tells = false;
        let start = raw.fabric.instant();
        let moves = |raw: &mut Raw, seconds, bytes| {
            let at = start + Duration::from_secs(seconds);
            raw.end.connection.handle_progress(at, rpcrdma_verbs::Progress::new(0, bytes, 0));
        };
        moves(&mut raw, 0, 0);
        let id = raw.end.connection.call(start, store(10, 9000)).unwrap();
        raw.settle();
        assert!(is_in_group(&raw, profile));
        make(&mut raw, write(11, 300_000));
        moves(&mut raw, 55, 300_000);
        raw.end.connection.handle_timeout(start + Duration::from_secs(61));
        assert!(raw.end.connection.poll_event().is_none(), "both have more time");
        raw.send(refusal(profile, 10, 8));
        moves(&mut raw, 90, 500_000);
        raw.end.connection.handle_timeout(start + Duration::from_secs(98));
        raw.settle();
        assert!(raw.end.replies.iter().all(|(ended, _)| *ended != id), "{:?}", raw.end.replies);
        assert_eq!(raw.end.replies.len(), 1, "the other Call has had its time");
    }
}
