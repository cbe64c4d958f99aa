//! The first message of a client decides the version, even after the server has begun to call in Version One by guess.

use std::time::Duration;

use rpcrdma_sim::FabricConfig;
use rpcrdma_xdr::Stream;

use super::version_two::{PROFILES, faults, header_of, last, message_of};
use crate::testing::*;
use crate::wire::{Body, ChunkLists, Codec, Direction, ErrorBody, Header, two::Profile, v1::V1};
use crate::{CallError, Config, Limits, Side, Versions};

fn serving(profile: Profile) -> Config {
    Config { versions: Versions::both(profile), ..server_config() }
}

/// A server that has waited for its client in vain, and has called in Version One.
fn guessing(profile: Profile) -> Raw {
    guessing_with(serving(profile), 50)
}

fn guessing_with(config: Config, xid: u32) -> Raw {
    let mut raw = Raw::new(Side::Server, config);
    let now = raw.fabric.instant();
    raw.end.connection.call(now, store(xid, 100)).unwrap();
    raw.settle();
    assert!(raw.received.is_empty());
    raw.fabric.advance(Duration::from_secs(1));
    let now = raw.fabric.instant();
    raw.end.connection.handle_timeout(now);
    raw.settle();
    let (call, _) = V1.decode(&raw.received[0], &Limits::default()).unwrap();
    assert_eq!((call.xid, call.version, raw.end.connection.version().is_none()), (xid, 1, true));
    raw.received.clear();
    raw
}

fn plain(profile: Profile, xid: u32) -> bytes::Bytes {
    let call = header_of(xid, Direction::Call, Body::Message(ChunkLists::default()));
    message_of(profile.codec(), &call, &null(xid).message)
}

fn version_of(end: &End) -> Option<u32> {
    end.connection.version().map(|rules| rules.version)
}

/// Version-two-01 §5.3: a server's own Call waits for the first message, and leaves by a guess only when its time is over.
#[test]
fn v2_01_s5_3_no_guess_is_made_early() {
    let mut raw = Raw::new(Side::Server, serving(Profile::P1));
    let now = raw.fabric.instant();
    raw.end.connection.call(now, store(50, 100)).unwrap();
    raw.settle();
    let due = now + raw.end.connection.core.config.timeouts.first_message;
    raw.end.connection.handle_timeout(due - Duration::from_millis(1));
    raw.settle();
    assert!(raw.received.is_empty());
    raw.end.connection.handle_timeout(due);
    raw.settle();
    assert_eq!(raw.received.len(), 1);
}

/// Without Version One there is nothing to guess.
#[test]
fn v2_01_s5_3_a_server_of_version_two_alone_makes_no_guess() {
    let config = Config { versions: crate::Versions::two(Profile::P1), ..serving(Profile::P1) };
    let mut raw = Raw::new(Side::Server, config);
    let now = raw.fabric.instant();
    raw.end.connection.call(now, store(50, 100)).unwrap();
    raw.settle();
    let due = now + raw.end.connection.core.config.timeouts.first_message;
    raw.end.connection.handle_timeout(due + Duration::from_secs(1));
    raw.settle();
    assert!(raw.received.is_empty());
}

#[test]
fn v2_01_s5_3_a_first_message_after_the_guess_still_decides_the_version() {
    for profile in PROFILES {
        let mut raw = guessing(profile);
        raw.send(plain(profile, 7));
        let answers: Vec<_> = raw
            .received
            .iter()
            .map(|message| profile.codec().decode(message, &Limits::default()).unwrap().0)
            .collect();
        assert_eq!((answers[0].xid, &answers[0].body), (7, &Body::Message(ChunkLists::default())));
        assert_eq!(version_of(&raw.end), Some(2));
        // The Call that left by guess is refused, and ends nothing else.
        raw.send(message(&header(50, Body::Error(ErrorBody::Version { low: 2, high: 2 })), &Stream::new()));
        let (_, result) = raw.end.replies.pop().unwrap();
        assert_eq!(result.unwrap_err().error, CallError::Version { low: 2, high: 2 });
        raw.send(plain(profile, 8));
        assert_eq!(last(&raw, profile).0.xid, 8);
        assert!(raw.end.connection.stats().errors.is_empty(), "{:?}", raw.end.connection.stats().errors);
    }
}

#[test]
fn v2_01_s5_3_a_reply_or_call_in_version_one_confirms_the_guess() {
    for profile in PROFILES {
        let mut raw = guessing(profile);
        raw.send(message(
            &header(50, Body::Message(ChunkLists::default())),
            &super::super::requester::accepted(50, &[0, 0, 0, 100]),
        ));
        check_reply(5, 100, raw.end.replies.pop().unwrap().1.unwrap());
        assert_eq!(version_of(&raw.end), Some(1));
        let mut raw = guessing(profile);
        raw.send(message(&header(9, Body::Message(ChunkLists::default())), &null(9).message));
        assert_eq!((raw.last().0.xid, raw.last().0.version, version_of(&raw.end)), (9, 1, Some(1)));
    }
}

/// A message of Version Two that cannot be read is refused in Version Two, and ends the guess. The server's further
/// Calls wait for a message that can be read.
#[test]
fn rfc8166_s4_5_a_malformed_first_message_after_the_guess_is_refused_in_its_version() {
    for profile in PROFILES {
        let mut raw = guessing(profile);
        let mut malformed = plain(profile, 7).to_vec();
        // A discriminator of a list, in each profile.
        malformed[27] = 9;
        raw.send(malformed);
        assert_eq!((last(&raw, profile).0.xid, last(&raw, profile).0.version), (7, 2));
        assert_eq!(last(&raw, profile).0.body, Body::Error(ErrorBody::Chunk));
        raw.send(message(&header(50, Body::Error(ErrorBody::Chunk)), &Stream::new()));
        raw.received.clear();
        let now = raw.fabric.instant();
        raw.end.connection.call(now, store(51, 100)).unwrap();
        raw.settle();
        assert!(raw.received.is_empty() && version_of(&raw.end).is_none());
        raw.send(plain(profile, 8));
        assert_eq!(version_of(&raw.end), Some(2));
    }
}

/// A message in Version Two that does not decode tells enough: the server does not call in Version One.
#[test]
fn v2_01_s5_a_client_that_has_tried_version_two_gets_no_call_in_version_one() {
    for profile in PROFILES {
        let mut raw = Raw::new(Side::Server, serving(profile));
        let now = raw.fabric.instant();
        raw.end.connection.call(now, store(50, 100)).unwrap();
        let mut malformed = plain(profile, 7).to_vec();
        malformed[27] = 9;
        raw.send(malformed);
        raw.received.clear();
        raw.fabric.advance(Duration::from_secs(1));
        let now = raw.fabric.instant();
        raw.end.connection.handle_timeout(now);
        raw.settle();
        assert!(raw.received.is_empty() && version_of(&raw.end).is_none());
    }
}

/// The client sends its first message before, at the time of, or after the server's Call of Version One. Either way it
/// refuses that Call at once, and both directions work in Version Two.
#[test]
fn rfc8166_s4_5_1_a_client_of_version_two_refuses_a_call_in_version_one() {
    for profile in PROFILES {
        for versions in [Versions::both(profile), Versions::two(profile)] {
            for crossing in [false, true] {
                let client = Config { versions, ..Config::default() };
                let mut pair = Pair::with(FabricConfig::default(), client, serving(profile));
                let now = pair.now();
                let guessed = pair.server.connection.call(now, store(50, 100)).unwrap();
                pair.run_for(Duration::from_millis(500));
                if !crossing {
                    pair.settle();
                }
                check_reply(0, 0, pair.round_trip(null(1)));
                let (id, result) = pair.server.replies.pop().unwrap();
                let error = CallError::Version { low: 2, high: 2 };
                assert_eq!((id, result.unwrap_err().error), (guessed, error));
                assert_eq!((version_of(&pair.client), version_of(&pair.server)), (Some(2), Some(2)));
                for xid in 2..20 {
                    check_reply(1, 9000, pair.round_trip(echo(xid, 9000)));
                }
                let now = pair.now();
                pair.server.connection.call(now, store(51, 100)).unwrap();
                pair.settle();
                check_reply(5, 100, pair.server.replies.pop().unwrap().1.unwrap());
                let faults = pair.client.connection.stats().errors.clone();
                assert_eq!(faults.len(), 1, "{profile:?} {crossing} {faults:?}");
                assert!(pair.server.connection.stats().errors.is_empty());
                pair.check_no_leak();
            }
        }
    }
}

/// The refusal of a Call in Version One uses no credit that the client has for its first message.
#[test]
fn v2_07_s4_3_a_client_that_has_refused_a_call_can_still_make_one() {
    let client = Config { versions: Versions::two(Profile::P3), ..Config::default() };
    let mut raw = Raw::new(Side::Client, client);
    raw.send(message(&header(50, Body::Message(ChunkLists::default())), &null(50).message));
    let refusal = V1.decode(&raw.received[0], &Limits::default()).unwrap().0;
    assert_eq!((refusal.version, refusal.body), (1, Body::Error(ErrorBody::Version { low: 2, high: 2 })));
    let now = raw.fabric.instant();
    for xid in [1, 2] {
        raw.end.connection.call(now, null(xid)).unwrap();
    }
    raw.settle();
    assert_eq!(raw.received.len(), 2, "the refusal, and one message (§4.3)");
    assert_eq!(faults(&raw, "unsupported_version"), 1);
}

/// An RDMA_ERROR has no answer, so no Receive of the client waits for one, in whichever version it is.
#[test]
fn v2_07_s4_2_1_an_error_in_version_one_raises_no_limit() {
    let mut raw = guessing(Profile::P3);
    let call = |xid| {
        // Two messages may come from the server: its Call by guess, and one more.
        let plain = header_of(xid, Direction::Call, Body::Message(ChunkLists::default()));
        message_of(Profile::P3.codec(), &Header { credit: 2, ..plain }, &null(xid).message)
    };
    raw.send(call(7));
    assert_eq!(raw.received.len(), 1);
    raw.send(message(&header(50, Body::Error(ErrorBody::Version { low: 2, high: 2 })), &Stream::new()));
    raw.send(call(8));
    assert_eq!(raw.received.len(), 1, "the answer waits for a credit");
}

/// The client's reply to the Call by guess, in Version One.
fn late_reply() -> bytes::Bytes {
    message(
        &header(50, Body::Message(ChunkLists::default())),
        &super::super::requester::accepted(50, &[0, 0, 0, 100]),
    )
}

/// A fault of a reply is discarded, also if the reply is in another version. Its sender has no Receive for an answer.
#[test]
fn rfc8166_s4_5_a_late_reply_to_the_guess_has_no_answer() {
    for profile in PROFILES {
        let mut malformed = late_reply().to_vec();
        // The header of this reply cannot be read.
        malformed[19] = 9;
        for first in [late_reply(), malformed.into()] {
            let mut raw = guessing(profile);
            raw.send(plain(profile, 7));
            let (_, result) = raw.end.replies.pop().unwrap();
            assert_eq!(result.unwrap_err().error, CallError::Version { low: 2, high: 2 });
            raw.received.clear();
            for reply in [first, late_reply(), late_reply()] {
                raw.send(reply);
            }
            assert!(raw.received.is_empty() && raw.end.closed.is_none(), "{profile:?} {:?}", raw.received);
            assert_eq!(faults(&raw, "version_changed"), 3);
            raw.send(plain(profile, 8));
            assert_eq!(last(&raw, profile).0.xid, 8);
        }
    }
}

/// The guessed Call holds the only credit until the client answers it. A client that never does gets no other Call, and
/// no timer ends the connection.
#[test]
fn i4_a_call_after_the_guess_waits_for_the_answer_to_the_guess() {
    for (profile, refuses) in
        [(Profile::P1, true), (Profile::P1, false), (Profile::P2, true), (Profile::P2, false)]
    {
        let mut raw = guessing(profile);
        raw.send(plain(profile, 7));
        assert!(raw.end.replies.pop().unwrap().1.is_err());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, store(51, 100)).unwrap();
        raw.send(plain(profile, 8));
        let calls = |raw: &Raw| {
            let header = |message| profile.codec().decode(message, &Limits::default()).unwrap().0;
            raw.received.iter().filter(|message| header(message).xid == 51).count()
        };
        assert_eq!(calls(&raw), 0, "{profile:?}");
        if refuses {
            raw.send(message(
                &header(50, Body::Error(ErrorBody::Version { low: 2, high: 2 })),
                &Stream::new(),
            ));
            assert_eq!(calls(&raw), 1, "{profile:?}");
            continue;
        }
        let timeouts = Config::default().timeouts;
        for wait in [timeouts.call, timeouts.abandoned] {
            raw.fabric.advance(wait);
            let now = raw.fabric.instant();
            raw.end.connection.handle_timeout(now);
            raw.settle();
        }
        assert_eq!(raw.end.replies.pop().unwrap().1.unwrap_err().error, CallError::TimedOut);
        raw.send(plain(profile, 9));
        assert_eq!(last(&raw, profile).0.xid, 9);
        assert!(raw.end.closed.is_none(), "{profile:?}");
    }
}

/// Rule I3: the answer to the guessed Call has a Receive, and the receive queue has an entry for it.
#[test]
fn i3_the_receive_queue_holds_the_answer_to_the_guess_and_everything_else() {
    for profile in [Profile::P1, Profile::P2] {
        let config = Config { grant: 4, calls: 4, continued_parts: 1, ..serving(profile) };
        let mut raw = guessing_with(config, 50);
        raw.send(plain(profile, 7));
        raw.send(plain(profile, 8));
        let refusal = Header { credit: 4, ..header(50, Body::Error(ErrorBody::Version { low: 2, high: 2 })) };
        raw.send(message(&refusal, &Stream::new()));
        let now = raw.fabric.instant();
        raw.end.connection.call(now, store(51, 100)).unwrap();
        raw.settle();
        let reply = header_of(51, Direction::Reply, Body::Message(ChunkLists::default()));
        let results = super::super::requester::accepted(51, &[0, 0, 0, 100]);
        raw.send(message_of(profile.codec(), &Header { credit: 4, ..reply }, &results));
        for xid in 52..56 {
            let now = raw.fabric.instant();
            raw.end.connection.call(now, store(xid, 100)).unwrap();
        }
        raw.settle();
        raw.send(plain(profile, 9));
        assert_eq!((last(&raw, profile).0.xid, last(&raw, profile).0.credit), (9, 4), "{profile:?}");
        assert!(raw.end.closed.is_none(), "{profile:?} {:?}", raw.end.closed);
        assert_eq!(raw.end.connection.core.ledger.calls.in_flight(), 4, "{profile:?}");
    }
}

/// Both directions count their XIDs alone, so the Call by guess can have the XID of the client's own Call.
#[test]
fn rfc8167_s5_3_a_guessed_call_with_the_xid_of_a_call_is_refused_too() {
    for profile in PROFILES {
        let client = Config { versions: Versions::both(profile), ..Config::default() };
        let mut raw = Raw::new(Side::Client, client);
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(50)).unwrap();
        raw.settle();
        raw.received.clear();
        raw.send(message(&header(50, Body::Message(ChunkLists::default())), &null(50).message));
        let refusal = V1.decode(raw.received.last().unwrap(), &Limits::default()).unwrap().0;
        let body = Body::Error(ErrorBody::Version { low: 2, high: 2 });
        assert_eq!((refusal.xid, refusal.version, refusal.body), (50, 1, body));
        assert!(raw.end.replies.is_empty());
    }
}

/// A client of Version One discards messages of other versions: none of them is a Call to it.
#[test]
fn rfc8166_s4_5_a_client_answers_no_reply_of_an_unknown_version() {
    let mut raw = Raw::new(Side::Client, Config::default());
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(1)).unwrap();
    raw.settle();
    raw.received.clear();
    for xid in [1, 9] {
        let unknown = Header { version: 9, ..header(xid, Body::Message(ChunkLists::default())) };
        raw.send(message(&unknown, &super::super::requester::accepted(xid, &[])));
    }
    assert!(raw.received.is_empty());
    assert_eq!(faults(&raw, "unsupported_version"), 2);
}

/// RFC 8166 §4.5.3, version-two-07 §7.1.2: any RDMA_ERROR answers the guessed Call, and returns its credit.
#[test]
fn rfc8166_s4_5_every_error_answers_the_guess() {
    let mismatch = ErrorBody::Two(crate::wire::two::ErrorBody::VersionMismatch);
    for (profile, version, error) in [
        (Profile::P1, 1, ErrorBody::Chunk),
        (Profile::P2, 1, ErrorBody::Chunk),
        (Profile::P3, 1, mismatch),
        (Profile::P3, 2, mismatch),
    ] {
        let mut raw = guessing(profile);
        raw.send(plain(profile, 7));
        let holds = |raw: &Raw| raw.end.connection.two.as_ref().unwrap().holds_calls();
        assert!(holds(&raw), "{profile:?}");
        let refusal = Header { version, ..header_of(50, Direction::Reply, Body::Error(error)) };
        raw.send(message_of(profile.codec(), &refusal, &Stream::new()));
        assert!(!holds(&raw), "{profile:?} {error:?}");
        assert!(raw.end.connection.stats().errors.is_empty(), "{profile:?} {error:?}");
    }
}

/// version-two-01 §4.2.2: an operation has another XID than a Call without an answer, even one that has failed.
#[test]
fn v2_01_s4_2_2_an_operation_does_not_take_the_xid_of_the_guess() {
    for profile in PROFILES {
        let mut raw = guessing_with(serving(profile), 0x8000_0000);
        for xid in [7, 8, 9] {
            let call = header_of(xid, Direction::Call, Body::Message(ChunkLists::default()));
            raw.send(message_of(profile.codec(), &Header { credit: 60, ..call }, &null(xid).message));
        }
        assert!(raw.end.connection.two.as_ref().unwrap().holds_calls());
        assert!(
            raw.received.iter().all(|message| message[..4] != 0x8000_0000_u32.to_be_bytes()),
            "{profile:?}"
        );
    }
}

/// version-two-07 §4.2.1: a limit counts all messages, also those in Version One before the first message. The answer to
/// the guess has a Receive before it comes, and a place in the window after it has come.
#[test]
fn v2_07_s4_2_1_what_came_in_version_one_is_counted() {
    let refusal =
        || message(&header(50, Body::Error(ErrorBody::Version { low: 2, high: 2 })), &Stream::new());
    let limit = |answered: bool| {
        let mut raw = guessing(Profile::P3);
        if answered {
            raw.send(refusal());
        }
        raw.send(plain(Profile::P3, 7));
        last(&raw, Profile::P3).0.credit
    };
    assert_eq!(limit(true), limit(false));
}

/// Version-two-01 §5.3: the wait for the first message has a timer only while a Call waits.
#[test]
fn v2_01_s5_3_nothing_is_guessed_without_a_call() {
    let raw = Raw::new(Side::Server, serving(Profile::P1));
    assert_eq!(raw.end.connection.poll_timeout(), None);
}

/// Rules I3, I4: the answer to the guess has a Receive beside those of credits and operations. An error under another XID
/// is not that answer.
#[test]
fn i3_the_answer_to_the_guess_has_a_receive_until_it_comes() {
    for profile in [Profile::P1, Profile::P2] {
        let config = || Config { grant: 4, ..serving(profile) };
        let usual = super::version_two::raw(profile, config()).end.connection.receives_posted();
        let mut raw = guessing_with(config(), 50);
        raw.send(plain(profile, 7));
        let posted = |raw: &Raw| raw.end.connection.receives_posted();
        let holds = |raw: &Raw| raw.end.connection.two.as_ref().unwrap().holds_calls();
        let error =
            |xid| message(&header(xid, Body::Error(ErrorBody::Version { low: 2, high: 2 })), &Stream::new());
        assert_eq!((posted(&raw), holds(&raw)), (usual + 1, true), "{profile:?}");
        raw.send(error(51));
        assert_eq!((posted(&raw), holds(&raw)), (usual + 1, true), "{profile:?}");
        raw.send(error(50));
        assert_eq!((posted(&raw), holds(&raw)), (usual, false), "{profile:?}");
    }
}

/// RFC 8166 §4.5.1: any answer to the guess lets the server's Calls go, also a reply in Version One, in which the guess was.
/// A Call of the client under its XID is no answer.
#[test]
fn rfc8166_s4_5_1_a_reply_in_version_one_answers_the_guess() {
    for profile in [Profile::P1, Profile::P2] {
        let call = message(&header(50, Body::Message(ChunkLists::default())), &null(50).message);
        for (answer, leaves) in [(late_reply(), true), (call, false)] {
            let mut raw = guessing(profile);
            raw.send(plain(profile, 7));
            let now = raw.fabric.instant();
            raw.end.connection.call(now, store(51, 100)).unwrap();
            raw.settle();
            raw.received.clear();
            raw.send(answer);
            let left = raw.received.iter().any(|message| message[..4] == [0, 0, 0, 51]);
            assert_eq!(left, leaves, "{profile:?}");
        }
    }
}

/// RFC 8166 §4.5.1: a message in Version One that cannot be read is a Call at a server, unless it answers the guess.
#[test]
fn rfc8166_s4_5_1_a_server_refuses_what_it_cannot_read_in_version_one() {
    for profile in PROFILES {
        let mut raw = super::version_two::raw(profile, serving(profile));
        let mut malformed =
            message(&header(50, Body::Message(ChunkLists::default())), &null(50).message).to_vec();
        malformed[19] = 9;
        raw.send(malformed);
        let refusal = raw.received.last().expect("an answer");
        // Version One, RDMA_ERROR.
        assert_eq!((&refusal[..8], &refusal[12..16]), (&[0, 0, 0, 50, 0, 0, 0, 1][..], &[0, 0, 0, 4][..]));
        // An RDMA_DONE is no Call.
        raw.received.clear();
        raw.send(message(&header(51, Body::Done), &Stream::new()));
        assert!(raw.received.is_empty(), "{profile:?}");
    }
}

/// RFC 8166 §4.5.1: the number of a message type says nothing in an unknown version: such a message is a Call at a server.
#[test]
fn rfc8166_s4_5_1_a_reply_type_in_another_version_is_refused() {
    let mut raw = super::version_two::raw(Profile::P3, serving(Profile::P3));
    let mut reply = message_of(
        Profile::P3.codec(),
        &header_of(9, Direction::Reply, Body::Message(ChunkLists::default())),
        &null(9).message,
    )
    .to_vec();
    reply[7] = 3;
    raw.send(reply);
    let answer = raw.received.last().expect("an answer");
    let words: Vec<u32> = answer.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    // RDMA_ERROR, ERR_VERS, and the range.
    assert_eq!((words[..2].to_vec(), words[3..].to_vec()), (vec![9, 3], vec![4, 1, 1, 2]));
}

/// RFC 8167 §4.1: a client that has only offered the version answers no operation that does not decode.
#[test]
fn rfc8167_s4_1_an_operation_before_the_version_is_known_has_no_answer() {
    for profile in [Profile::P1, Profile::P2] {
        let config = Config { versions: Versions::both(profile), ..Config::default() };
        let mut raw = Raw::new(Side::Client, config);
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        raw.settle();
        raw.received.clear();
        let exchange = crate::wire::two::Exchange::Initial { start: vec![], constant: Default::default() };
        let body = Body::Two(crate::wire::two::Body::Exchange(exchange));
        let whole = message_of(profile.codec(), &header_of(9, Direction::Call, body), &Stream::new());
        raw.send(whole.slice(..whole.len() - 4));
        assert!(raw.received.is_empty() && raw.end.connection.version().is_none(), "{profile:?}");
    }
}
