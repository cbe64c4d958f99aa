//! Messages in several Sends, and the credits that they wait for (version-two-07 §4.2.1, §6.6.2).

use std::time::Duration;

use bytes::Bytes;
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::{Buffer, ProtectionDomain};
use rpcrdma_xdr::Stream;

use super::continued::{bytes, errors, faults, middle, pair, parts_of, pin, sent};
use super::version_two_07::{MANY, client, header, last_of, operation, server, word};
use crate::testing::*;
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, two};
use crate::{Call, CloseReason, Config, Form, Limits, Side, Timeouts};

/// Length of a message that takes three Sends.
const THREE: usize = 9000;

/// A peer that has made its first call and accepts Calls in several Sends. Its received messages are kept, because
/// their number counts.
fn begun(config: Config) -> Raw {
    let mut raw = Raw::new(Side::Server, config);
    raw.send(message(1, MANY, Direction::Call, &null(1).message));
    raw.send(operation(2, last_of(vec![word(5, 2)])));
    make(&mut raw, null(40));
    reply(&mut raw, 40, MANY);
    raw.end.replies.clear();
    raw
}

fn message(xid: u32, credit: u32, direction: Direction, message: &Stream) -> Bytes {
    bytes(&header(xid, credit, direction, Body::Message(ChunkLists::default())), &message.flatten().0)
}

/// The limit that lets us send this many more messages.
fn room(raw: &Raw, messages: u32) -> u32 {
    u32::try_from(raw.received.len()).unwrap() + messages
}

/// A Call of the peer, which lets us send this many messages.
fn call(raw: &mut Raw, messages: u32, call: &Call) {
    let credit = room(raw, messages);
    raw.send(message(call.xid, credit, Direction::Call, &call.message));
}

fn grant(raw: &mut Raw, messages: u32) {
    let credit = room(raw, messages);
    raw.send(bytes(&header(0, credit, Direction::Call, Body::Two(two::Body::Grant)), &[]));
}

fn reply(raw: &mut Raw, xid: u32, messages: u32) {
    let credit = room(raw, messages);
    raw.send(message(xid, credit, Direction::Reply, &super::super::requester::accepted(xid, &[])));
}

/// A message that no codec accepts, and that gets a refusal.
fn fault(raw: &mut Raw, xid: u32, messages: u32) {
    let credit = room(raw, messages);
    raw.send(message(xid, credit, Direction::Call, &null(xid).message).slice(..18));
}

/// Answers a Call of the peer that was kept.
fn answer(raw: &mut Raw, xid: u32) {
    let place = raw.end.calls.iter().position(|(_, kept, ..)| *kept == xid).unwrap();
    let (token, _, _, message) = raw.end.calls.remove(place);
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(message));
    raw.settle();
}

fn make(raw: &mut Raw, call: Call) {
    let now = raw.fabric.instant();
    raw.end.connection.call(now, call).unwrap();
    raw.settle();
}

/// The XIDs of the messages that left from this one on.
fn xids(raw: &Raw, from: usize) -> Vec<u32> {
    sent(raw)[from..].iter().map(|(header, _)| header.xid).collect()
}

/// Replies 2 and 3 take three Sends each, and the limit allows five: 2 leaves, and 3 waits.
fn waiting() -> (Raw, usize) {
    let mut raw = begun(server());
    raw.end.serving = false;
    for list in [list(2, THREE), list(3, THREE), null(4), null(5), list(6, THREE)] {
        call(&mut raw, 5, &list);
    }
    let before = raw.received.len();
    answer(&mut raw, 2);
    answer(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2]);
    (raw, before)
}

#[test]
fn v2_07_s6_6_4_an_answer_that_waits_for_credits_stands_aside() {
    let (mut raw, before) = waiting();
    answer(&mut raw, 4);
    assert_eq!(xids(&raw, before), [2, 2, 2, 4], "what fits passes it");
    answer(&mut raw, 5);
    assert_eq!(xids(&raw, before), [2, 2, 2, 4], "as long as enough is left for it");
    grant(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2, 4, 3, 3, 3]);
    grant(&mut raw, 1);
    assert_eq!(xids(&raw, before), [2, 2, 2, 4, 3, 3, 3, 5]);
    assert!(errors(&raw).is_empty());
}

#[test]
fn i6_each_answer_that_stands_aside_has_a_deadline_of_its_own() {
    let (mut raw, _) = waiting();
    let began = raw.fabric.instant();
    raw.fabric.advance(Duration::from_secs(20));
    answer(&mut raw, 6);
    for (due, xid) in [(30, 3), (50, 6)] {
        let deadline = raw.end.connection.poll_timeout().unwrap();
        assert_eq!(deadline - began, Duration::from_secs(due));
        raw.end.connection.handle_timeout(deadline);
        raw.settle();
        assert!(
            matches!(errors(&raw).last(), Some((refused, ErrorBody::Two(two::ErrorBody::ReplyResource { .. }))) if *refused == xid)
        );
    }
    assert!(raw.end.closed.is_none());
}

/// Answers that wait in line have no timer left when the connection fails for one of them.
#[test]
fn i6_a_timer_that_has_ended_the_connection_is_not_due_again() {
    let (mut raw, _) = waiting();
    answer(&mut raw, 6);
    grant(&mut raw, 0);
    let now = raw.fabric.instant() + Config::default().timeouts.credits;
    raw.end.connection.handle_timeout(now);
    let next = raw.end.connection.poll_timeout();
    assert!(next.is_none_or(|next| next > now), "due again at once");
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("credits for an answer")));
}

#[test]
fn i6_an_answer_does_not_wait_for_what_the_peer_once_let_us_send() {
    let mut raw = begun(server());
    raw.end.serving = false;
    call(&mut raw, 100, &list(2, THREE));
    call(&mut raw, 2, &null(3));
    answer(&mut raw, 2);
    assert!(matches!(errors(&raw)[..], [(2, ErrorBody::Two(two::ErrorBody::ReplyResource { .. }))]));
    answer(&mut raw, 3);
    assert_eq!(xids(&raw, raw.received.len() - 1), [3]);
}

#[test]
fn i6_our_own_calls_leave_room_for_an_answer_that_waits() {
    let (mut raw, before) = waiting();
    make(&mut raw, null(50));
    make(&mut raw, null(51));
    assert_eq!(xids(&raw, before), [2, 2, 2]);
    // Those of other Calls that are not answered as well.
    grant(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2, 3, 3, 3]);
    grant(&mut raw, 5);
    assert_eq!(xids(&raw, before), [2, 2, 2, 3, 3, 3, 50, 51]);
}

#[test]
fn i6_what_leaves_meanwhile_gives_an_answer_no_more_time() {
    let (mut raw, _) = waiting();
    let deadline = raw.end.connection.poll_timeout();
    raw.fabric.advance(Duration::from_secs(20));
    fault(&mut raw, 7, 2);
    answer(&mut raw, 4);
    assert_eq!(errors(&raw).len(), 1);
    assert_eq!(raw.end.connection.poll_timeout(), deadline);

    let mut raw = begun(server());
    call(&mut raw, 0, &null(3));
    let deadline = raw.end.connection.poll_timeout().unwrap();
    raw.fabric.advance(Duration::from_secs(20));
    fault(&mut raw, 7, 1);
    assert_eq!(errors(&raw).len(), 1);
    assert_eq!(raw.end.connection.poll_timeout(), Some(deadline));
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("credits for an answer")));
}

/// A Call waits for credits that will come back; a Call beyond the peer's limits is refused.
#[test]
fn v2_07_s6_6_2_a_call_in_the_reverse_direction_waits_for_credits_that_come_back() {
    let mut raw = begun(server());
    grant(&mut raw, 3);
    let before = raw.received.len();
    make(&mut raw, null(50));
    make(&mut raw, store(51, THREE));
    make(&mut raw, null(52));
    assert_eq!(xids(&raw, before), [50, 52], "others pass it");
    reply(&mut raw, 50, 3);
    assert_eq!(xids(&raw, before), [50, 52, 51, 51, 51]);
    make(&mut raw, store(53, THREE));
    assert_eq!(raw.end.replies.len(), 1);
    reply(&mut raw, 52, 1);
    reply(&mut raw, 51, 1);
    let (_, result) = raw.end.replies.pop().unwrap();
    assert!(result.unwrap_err().to_string().contains("chunks are not allowed"));
    assert_eq!(xids(&raw, before).len(), 5);
}

#[test]
fn v2_07_s6_6_2_a_call_that_waits_for_credits_is_not_passed_for_ever() {
    let mut raw = begun(server());
    grant(&mut raw, 3);
    let before = raw.received.len();
    make(&mut raw, null(50));
    make(&mut raw, store(51, THREE));
    for xid in 100..140 {
        make(&mut raw, null(xid));
    }
    let mut answered = 0;
    while !xids(&raw, before).contains(&51) {
        let left = xids(&raw, before);
        let outstanding = u32::try_from(left.len() - answered - 1).unwrap();
        reply(&mut raw, left[answered], 3 - outstanding);
        answered += 1;
        assert!(answered < 30, "{left:?}");
    }
    assert!(raw.end.replies.iter().all(|(_, reply)| reply.is_ok()));
}

/// A long reply does not depend on the peer's credits, because it goes to our Receives.
#[test]
fn i3_a_reply_in_several_sends_is_bounded_by_our_receives() {
    let mut pair = pair(Config { grant: 1, ..client() }, server());
    let now = pair.now();
    pair.server.connection.call(now, list(60, 20_000)).unwrap();
    pair.settle();
    let (_, reply) = pair.server.replies.pop().unwrap();
    let reply = reply.unwrap();
    assert_eq!(reply.reply.form, Form::Continued);
    check_reply(4, 20_000, reply);
    for (limits, allowed) in [
        (Limits { continued_len: 10_000, ..server_config().limits }, 10_000),
        (Limits { continued_parts: 2, ..server_config().limits }, 4076 + 4076),
    ] {
        let mut pair = self::pair(client(), Config { limits, ..server() });
        let now = pair.now();
        pair.server.connection.call(now, list(60, THREE + 3000)).unwrap();
        pair.settle();
        let (_, reply) = pair.server.replies.pop().unwrap();
        assert_eq!(
            reply.unwrap_err().to_string(),
            format!(
                "the call cannot be sent: reply of up to 12028 bytes: chunks are not allowed, and in several Sends \
                 {allowed} bytes are taken"
            )
        );
    }
}

/// A peer that was granted four Calls, in a full domain; and the messages that it may send, one of which it has sent.
fn granted_four(timeouts: &Timeouts) -> (Raw, Vec<Buffer>, u32) {
    let mut raw = Raw::new(Side::Server, Config { grant: 4, timeouts: timeouts.clone(), ..server() });
    raw.send(message(1, MANY, Direction::Call, &null(1).message));
    let pinned = pin(&raw.end.domain);
    let told = sent(&raw).iter().map(|(header, _)| header.credit).max().unwrap();
    (raw, pinned, told)
}

/// A message that holds all Receives of its connection would wait for messages that may wait for it.
#[test]
fn i6_a_message_that_holds_all_receives_does_not_wait_for_memory() {
    let (mut raw, pinned, told) = granted_four(&Timeouts::default());
    for left in (0..told - 1).rev() {
        assert!(errors(&raw).is_empty());
        raw.send(middle(10, &[0; 4], 4 * usize::try_from(left).unwrap() + 100));
    }
    assert_eq!(errors(&raw), [(10, ErrorBody::Two(two::ErrorBody::System))]);
    assert_eq!(faults(&raw, "continuation_memory"), 1);
    // The Receives are free again, although the domain is still full. The rest of the message is ignored.
    raw.send(bytes(&header(10, MANY, Direction::Call, Body::Message(ChunkLists::default())), &[0; 100]));
    raw.send(message(11, MANY, Direction::Call, &null(11).message));
    assert_eq!((errors(&raw).len(), xids(&raw, raw.received.len() - 1)), (1, vec![11]));
    assert!(raw.end.closed.is_none());
    drop(pinned);
}

/// There is memory for further Receives, and only the peer's own limit keeps the GRANT back: that message is not refused.
#[test]
fn i6_a_message_is_refused_only_if_memory_is_lacking() {
    let (mut raw, pinned, told) = granted_four(&Timeouts::default());
    drop(pinned);
    let mut left = 4 * told + 100;
    for _ in 0..told - 1 {
        left -= 4;
        let middle = Body::Two(two::Body::Middle { remaining: left });
        raw.send(bytes(&header(10, 1, Direction::Call, middle), &[0; 4]));
    }
    assert_eq!((errors(&raw), faults(&raw, "continuation_memory")), (vec![], 0));
    assert_eq!(raw.end.connection.stats().grants_sent, 0);
    grant(&mut raw, MANY);
    assert_eq!((errors(&raw), raw.end.connection.stats().grants_sent), (vec![], 1));
}

/// While the peer has no credit to continue its message, our timer for memory runs, not the timer for the continuation.
#[test]
fn i6_a_peer_without_credits_is_not_blamed_for_the_rest_of_a_message() {
    let timeouts = Timeouts {
        continuation: Duration::from_secs(10),
        memory: Duration::from_secs(20),
        ..Timeouts::default()
    };
    // The message holds less than the Receives that are kept: memory returns with the other Calls.
    let begin = || {
        let (mut raw, pinned, told) = granted_four(&timeouts);
        raw.end.serving = false;
        for xid in 20..20 + told - 4 {
            raw.send(message(xid, MANY, Direction::Call, &null(xid).message));
        }
        for left in (0..3).rev() {
            raw.send(middle(10, &[0; 4], 4 * left + 100));
        }
        assert_eq!(raw.end.connection.stats().grants_sent, 0);
        (raw, pinned)
    };
    // Rounded to a second, which hides the time that a message takes to arrive.
    let due = |raw: &Raw| {
        let due = raw.end.connection.poll_timeout().unwrap() - raw.fabric.instant();
        Duration::from_secs((due + Duration::from_millis(1)).as_secs())
    };
    let (mut raw, pinned) = begin();
    assert_eq!(due(&raw), timeouts.memory);
    raw.fabric.advance(Duration::from_secs(15));
    raw.end.connection.handle_timeout(raw.fabric.instant());
    drop(pinned);
    raw.settle();
    assert_eq!((raw.end.connection.stats().grants_sent, due(&raw)), (1, timeouts.continuation));
    let deadline = raw.end.connection.poll_timeout().unwrap();
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("the rest of a continued message")));

    let (mut raw, _pinned) = begin();
    let deadline = raw.end.connection.poll_timeout().unwrap();
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("memory for the rest of a continued message")));
    assert_eq!(faults(&raw, "continuation_memory"), 0);
}

/// Two connections on one full domain. Each peer was granted four Calls and has made one; further messages that each
/// may send.
fn two_on_a_full_domain(timeouts: &Timeouts) -> ([Raw; 2], Vec<Buffer>, u32) {
    let (fabric, domain) = (Fabric::new(FabricConfig::default()), ProtectionDomain::new(64 << 20));
    let mut both = [(); 2].map(|()| {
        let config = Config { grant: 4, timeouts: timeouts.clone(), ..server() };
        Raw::with_memory(&fabric, Side::Server, config, &Config::default(), (16, 16), domain.clone())
    });
    for raw in &mut both {
        raw.send(message(1, MANY, Direction::Call, &null(1).message));
    }
    let pinned = pin(&domain);
    let left = both.each_ref().map(|raw| told(raw) - 1);
    assert_eq!(left[0], left[1]);
    (both, pinned, left[0])
}

/// The highest number of messages that the peer may send in all.
fn told(raw: &Raw) -> u32 {
    sent(raw).iter().map(|(header, _)| header.credit).max().unwrap()
}

/// Each of two Calls holds all Receives of its connection, and would wait for memory of the other.
#[test]
fn i6_messages_of_two_connections_do_not_wait_for_each_others_memory() {
    let (mut both, _pinned, left) = two_on_a_full_domain(&Timeouts::default());
    for left in (0..left).rev() {
        for raw in &mut both {
            assert!(errors(raw).is_empty());
            raw.send(middle(10, &[0; 4], 4 * usize::try_from(left).unwrap() + 100));
        }
    }
    for raw in &mut both {
        assert_eq!(errors(raw), [(10, ErrorBody::Two(two::ErrorBody::System))]);
        raw.send(bytes(&header(10, MANY, Direction::Call, Body::Message(ChunkLists::default())), &[0; 100]));
        raw.send(message(11, MANY, Direction::Call, &null(11).message));
        assert_eq!((errors(raw).len(), xids(raw, raw.received.len() - 1)), (1, vec![11]));
        assert!(raw.end.closed.is_none());
    }
}

/// Each of two Calls waits for memory that its own connection keeps. The other connection cannot get that.
#[test]
fn i6_messages_of_two_connections_go_on_with_the_memory_of_their_own_calls() {
    let (mut both, _pinned, left) = two_on_a_full_domain(&Timeouts::default());
    let mut rests = Vec::new();
    for raw in &mut both {
        raw.end.serving = false;
        for xid in 20..20 + left - 3 {
            raw.send(message(xid, MANY, Direction::Call, &null(xid).message));
        }
        let mut parts = parts_of(10, &[4; 3]);
        rests.push(parts.pop().unwrap());
        parts.into_iter().for_each(|part| raw.send(part));
        assert_eq!(told(raw), left + 1, "no memory for a further Receive");
    }
    for (raw, rest) in both.iter_mut().zip(rests) {
        answer(raw, 20);
        assert_eq!(told(raw), left + 2, "the memory of the answered Call has become a Receive");
        raw.send(rest);
        answer(raw, 10);
        assert_eq!((errors(raw), faults(raw, "continuation_memory")), (vec![], 0));
        assert!(raw.end.closed.is_none());
    }
}

/// One of two Calls waits, because a program answers no Call. The end of its connection gives the other one memory.
#[test]
fn i6_a_message_that_waits_for_memory_ends_in_time_and_gives_way_to_another() {
    let timeouts = Timeouts { memory: Duration::from_secs(20), ..Timeouts::default() };
    let (mut both, _pinned, left) = two_on_a_full_domain(&timeouts);
    for (raw, later) in both.iter_mut().zip([0, 5]) {
        raw.end.serving = false;
        raw.fabric.advance(Duration::from_secs(later));
        for xid in 20..20 + left - 3 {
            raw.send(message(xid, MANY, Direction::Call, &null(xid).message));
        }
        parts_of(10, &[4; 4]).into_iter().take(3).for_each(|part| raw.send(part));
    }
    let [mut first, mut second] = both;
    let deadline = first.end.connection.poll_timeout().unwrap();
    assert!(deadline < second.end.connection.poll_timeout().unwrap());
    first.end.connection.handle_timeout(deadline);
    first.settle();
    assert_eq!(first.end.closed, Some(CloseReason::Timeout("memory for the rest of a continued message")));
    first.end.calls.clear();
    second.settle();
    for part in parts_of(10, &[4; 4]).into_iter().skip(3) {
        second.send(part);
    }
    answer(&mut second, 10);
    assert_eq!((errors(&second), &second.end.closed), (vec![], &None));
}

/// Calls that have not left fail at once when the owner asks for that, even in line, and on an aborted connection.
#[test]
fn calls_in_line_fail_at_once_on_an_aborted_connection() {
    let mut raw = begun(server());
    grant(&mut raw, 3);
    make(&mut raw, null(50));
    make(&mut raw, store(51, THREE));
    assert!(raw.end.connection.poll_event().is_none());
    raw.end.connection.give_up();
    let now = raw.fabric.instant();
    let post = raw.end.connection.poll_transmit(now, &mut raw.end.qp);
    assert!(matches!(post, Some(crate::Post::Abort)), "{post:?}");
    raw.end.connection.fail_queued();
    let event = raw.end.connection.poll_event();
    assert!(
        matches!(&event, Some(crate::Event::Reply { id, result: Err(_) }) if id.xid() == 51),
        "{event:?}"
    );
}

/// version-two-07 §6.6.2: a Call that joins the line does not keep the one behind it from leaving.
#[test]
fn v2_07_s6_6_2_a_short_call_passes_in_the_same_pass() {
    let config = Config { chunks: crate::ChunkSupport::Optional { forward: false }, ..server() };
    let mut raw = begun(config);
    grant(&mut raw, 2);
    let from = raw.received.len();
    let now = raw.fabric.instant();
    raw.end.connection.call(now, store(70, THREE)).unwrap();
    raw.end.connection.call(now, null(71)).unwrap();
    let posts = std::iter::from_fn(|| raw.end.connection.poll_transmit(now, &mut raw.end.qp));
    for post in posts.collect::<Vec<_>>() {
        raw.end.post(post);
    }
    raw.settle();
    assert_eq!(xids(&raw, from), [71]);
}

/// version-two-07 §6.6.4: an answer whose turn has come does not stand in line again behind a later one.
#[test]
fn v2_07_s6_6_4_an_answer_stands_in_line_once() {
    let (mut raw, before) = waiting();
    answer(&mut raw, 6);
    grant(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2, 3, 3, 3]);
    grant(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2, 3, 3, 3, 6, 6, 6]);
}

/// Rule I6: an answer of two Sends that lacks a credit has a deadline.
#[test]
fn i6_an_answer_of_two_sends_has_a_deadline() {
    let mut raw = begun(server());
    raw.end.serving = false;
    for list in [list(2, THREE), list(3, 5000)] {
        call(&mut raw, 4, &list);
    }
    let before = raw.received.len();
    answer(&mut raw, 2);
    assert_eq!(raw.end.connection.poll_timeout(), None);
    answer(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2], "one credit is left");
    let due = raw.fabric.instant() + raw.end.connection.core.config.timeouts.credits;
    assert_eq!(raw.end.connection.poll_timeout(), Some(due));
}

/// An answer that joins the line does not keep the one behind it from leaving.
#[test]
fn v2_07_s6_6_4_an_answer_of_one_send_passes_in_the_same_pass() {
    let mut raw = begun(server());
    raw.end.serving = false;
    for list in [list(2, THREE), list(3, THREE), null(4)] {
        call(&mut raw, 5, &list);
    }
    let before = raw.received.len();
    answer(&mut raw, 2);
    let now = raw.fabric.instant();
    for (token, _, _, message) in std::mem::take(&mut raw.end.calls) {
        raw.end.connection.reply(now, token, serve(message));
    }
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
        raw.end.post(post);
    }
    raw.settle();
    assert_eq!(xids(&raw, before), [2, 2, 2, 4]);
}

/// RFC 8166 §4.5.4: a lost answer ends the connection, after all earlier answers, also those in line. It has no error.
#[test]
fn s4_5_4_a_lost_answer_waits_for_those_in_line() {
    let (mut raw, before) = waiting();
    let place = raw.end.calls.iter().position(|(_, xid, ..)| *xid == 4).unwrap();
    let (token, ..) = raw.end.calls.remove(place);
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, crate::Answer::Lost);
    raw.settle();
    assert_eq!((xids(&raw, before), &raw.end.closed), (vec![2, 2, 2], &None));
    grant(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2, 3, 3, 3]);
    assert_eq!(raw.end.closed, Some(crate::CloseReason::ReplyLost));
}

/// Rule I6: an answer of one Send that gives way to the line waits for a credit of its own only afterwards, and has its
/// whole time for that.
#[test]
fn i6_an_answer_behind_the_line_has_its_own_time() {
    let (mut raw, before) = waiting();
    answer(&mut raw, 4);
    answer(&mut raw, 5);
    raw.fabric.advance(Duration::from_secs(20));
    grant(&mut raw, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2, 4, 3, 3, 3], "no credit is left");
    let left = raw.end.connection.poll_timeout().expect("a deadline") - raw.fabric.instant();
    assert!(left > Duration::from_secs(29), "{left:?}");
}

/// Rule I6: an answer that stands in line has the deadline of the line alone, even if it lacked a credit before.
#[test]
fn i6_an_answer_that_joins_the_line_leaves_its_earlier_deadline() {
    let mut raw = begun(server());
    raw.end.serving = false;
    make(&mut raw, null(60));
    call(&mut raw, 0, &list(2, THREE));
    let before = raw.received.len();
    answer(&mut raw, 2);
    assert!(raw.end.connection.poll_timeout().is_some());
    raw.fabric.advance(Duration::from_secs(20));
    // With the credit of our own Call, three messages will be allowed.
    grant(&mut raw, 2);
    assert_eq!(xids(&raw, before), [], "it waits in line");
    raw.fabric.advance(Duration::from_secs(11));
    let now = raw.fabric.instant();
    raw.end.connection.handle_timeout(now);
    raw.settle();
    assert_eq!(raw.end.closed, None);
    reply(&mut raw, 60, 3);
    assert_eq!(xids(&raw, before), [2, 2, 2]);
}
