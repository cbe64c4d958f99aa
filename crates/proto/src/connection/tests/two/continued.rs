//! Messages that a sender splits into several Sends (version-two-07 §6.6.2).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rpcrdma_sim::FabricConfig;
use rpcrdma_verbs::{Buffer, ProtectionDomain};
use rpcrdma_xdr::{Piece, Stream};

use super::version_two_07::{MANY, client, header, server};
use crate::testing::*;
use crate::wire::{
    Body, ChunkLists, Codec, Direction, ErrorBody, Header, ReadSegment, Segment, WriteChunk, two,
    two::p3::V2P3,
};
use crate::{Answer, CloseReason, Config, Form, Limits, Side};

/// Message bytes in one part, with Receives of 4096 bytes.
const PART: usize = 4096 - 20;

/// Client and server that have exchanged their properties.
pub(super) fn pair(client: Config, server: Config) -> Pair {
    let mut pair = Pair::with(FabricConfig::default(), client, server);
    for xid in 0..2 {
        check_reply(0, 0, pair.round_trip(null(xid)));
    }
    pair
}

pub(super) fn bytes(header: &Header, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    V2P3.encode(header, &mut out);
    out.extend_from_slice(payload);
    out.freeze()
}

pub(super) fn last(xid: u32, payload: &[u8]) -> Bytes {
    bytes(&header(xid, MANY, Direction::Call, Body::Message(ChunkLists::default())), payload)
}

pub(super) fn middle(xid: u32, payload: &[u8], remaining: usize) -> Bytes {
    let remaining = u32::try_from(remaining).unwrap();
    bytes(&header(xid, MANY, Direction::Call, Body::Two(two::Body::Middle { remaining })), payload)
}

/// A peer whose first call was answered.
pub(super) fn raw(config: Config) -> Raw {
    let mut raw = Raw::new(Side::Server, config);
    raw.send(last(1, &null(1).message.flatten().0));
    raw.received.clear();
    raw
}

pub(super) fn sent(raw: &Raw) -> Vec<(Header, Bytes)> {
    let decode = |message: &Bytes| {
        let (header, len) = V2P3.decode(message, &Limits::default()).unwrap();
        (header, message.slice(len..))
    };
    raw.received.iter().map(decode).collect()
}

pub(super) fn errors(raw: &Raw) -> Vec<(u32, ErrorBody)> {
    let answers = sent(raw).into_iter();
    answers
        .filter_map(
            |(header, _)| if let Body::Error(error) = header.body { Some((header.xid, error)) } else { None },
        )
        .collect()
}

/// Returns whether a reply answered the Call with this XID.
fn is_answered(raw: &Raw, xid: u32) -> bool {
    sent(raw).iter().any(|(header, _)| header.xid == xid && matches!(header.body, Body::Message(_)))
}

pub(super) fn faults(raw: &Raw, name: &str) -> u64 {
    raw.end.connection.stats().errors.get(name).copied().unwrap_or(0)
}

// requirement: v2-07-4.1-2, v2-07-6.1-1
#[test]
fn v2_07_s6_6_2_a_call_that_does_not_fit_goes_on_in_several_sends() {
    let mut pair = pair(client(), server());
    let plain = V2P3.header_len(&ChunkLists::default().shape(Direction::Call));
    let fits = 4096 - plain - 44;
    let mut expected = 0;
    for len in [fits - 4, fits, fits + 4, fits + PART, fits + PART + 4, fits + 7 * PART] {
        check_reply(5, len, pair.round_trip(store(10, len)));
        expected += u64::from(len > fits);
        let (ours, theirs) = (pair.client.connection.stats(), pair.server.connection.stats());
        assert_eq!(
            (ours.calls_sent.continued, theirs.calls_received.continued),
            (expected, expected),
            "{len}"
        );
        assert_eq!(ours.calls_sent.send_bytes, theirs.calls_received.send_bytes);
        assert_eq!(ours.registrations, 0, "no chunk is needed");
    }
    // The message would take more Sends than this side's own limit.
    let len = fits + 7 * PART + 4;
    check_reply(5, len, pair.round_trip(store(10, len)));
    assert_eq!(pair.client.connection.stats().calls_sent.long, 1);
    pair.check_no_leak();
}

// requirement: v2-07-4.1-3, v2-07-6.3.6-1
#[test]
fn v2_07_s6_6_2_nothing_comes_between_the_parts() {
    // For a Call of four Sends the peer has to accept that many messages.
    for (calls, grant) in [(1, 4), (3, 4), (64, 64)] {
        let config = |config: Config| Config { calls, grant, ..config };
        let mut pair = pair(config(client()), config(server()));
        let now = pair.now();
        for xid in 0..40_u32 {
            let len = usize::try_from(xid).unwrap() * 400;
            pair.call(store(100 + xid, len));
            pair.call(read(200 + xid, 9000));
            pair.server.connection.call(now, store(300 + xid, len)).unwrap();
        }
        pair.settle();
        assert_eq!((pair.client.replies.len(), pair.server.replies.len()), (80, 40), "{calls} {grant}");
        for end in [&mut pair.client, &mut pair.server] {
            assert!(end.replies.iter().all(|(_, reply)| reply.is_ok()), "{:?}", end.replies);
            assert!(end.connection.stats().errors.is_empty(), "{:?}", end.connection.stats());
        }
        // In the reverse direction no other form was possible.
        assert!(pair.server.connection.stats().calls_sent.continued > 0);
        assert_eq!(pair.server.connection.stats().calls_sent.long, 0);
        pair.check_no_leak();
    }
}

#[test]
fn with_one_part_nothing_is_continued() {
    let mut pair = pair(Config { continued_parts: 1, ..client() }, server());
    check_reply(5, 9000, pair.round_trip(store(10, 9000)));
    let stats = pair.client.connection.stats();
    assert_eq!((stats.calls_sent.continued, stats.calls_sent.long), (0, 1));
}

/// §5.2.5: CONT. The Receives for such a reply are reserved before the Call leaves.
#[test]
fn v2_07_s4_6_4_replies_in_the_reverse_direction_go_on_without_chunks() {
    let mut pair = pair(client(), server());
    let now = pair.now();
    for xid in 50..60 {
        pair.server.connection.call(now, list(xid, 12_000)).unwrap();
    }
    pair.settle();
    assert_eq!(pair.server.replies.len(), 10);
    for (_, reply) in std::mem::take(&mut pair.server.replies) {
        let reply = reply.unwrap();
        assert_eq!(reply.reply.form, Form::Continued);
        check_reply(4, 12_000, reply);
    }
    assert_eq!(pair.client.connection.stats().replies_sent.continued, 10);
    // A longer reply needs chunks.
    pair.server.connection.call(now, list(70, 40_000)).unwrap();
    pair.settle();
    let (_, reply) = pair.server.replies.pop().unwrap();
    assert!(reply.unwrap_err().to_string().contains("chunks are not allowed"));
    pair.check_no_leak();
}

/// §6.3.9: a Requester that offers no Reply chunk.
// requirement: v2-07-4.1-2, v2-07-6.3.9-1, v2-07-6.6.4-1
#[test]
fn v2_07_s6_6_4_a_reply_that_no_chunk_holds_goes_on() {
    let mut raw = raw(server());
    raw.send(last(2, &list(2, 9000).message.flatten().0));
    let answers = sent(&raw);
    let whole: usize = answers.iter().map(|(_, part)| part.len()).sum();
    let mut left = whole;
    assert_eq!(answers.len(), 3);
    for (place, (header, part)) in answers.iter().enumerate() {
        left -= part.len();
        assert_eq!((header.xid, header.direction), (2, Some(Direction::Reply)));
        let expected = match place {
            2 => Body::Message(ChunkLists::default()),
            _ => Body::Two(two::Body::Middle { remaining: u32::try_from(left).unwrap() }),
        };
        assert_eq!(header.body, expected);
    }
    assert_eq!((left, whole), (0, 9000 + 28));
}

/// The Requester's limit does not allow that many messages.
#[test]
fn i6_a_reply_does_not_wait_for_room_to_go_on_that_will_not_be_there() {
    let mut raw = Raw::new(Side::Server, server());
    let call = |xid: u32, credit, message: &Stream| {
        let header = header(xid, credit, Direction::Call, Body::Message(ChunkLists::default()));
        bytes(&header, &message.flatten().0)
    };
    // The Requester's limit never allowed three messages.
    raw.send(call(1, 2, &null(1).message));
    raw.received.clear();
    raw.send(call(2, 4, &list(2, 9000).message));
    assert_eq!(errors(&raw).len(), 1);
    // The limit allowed three messages before, but not any more.
    raw.send(call(3, 8, &null(3).message));
    raw.received.clear();
    raw.send(call(4, 5, &list(4, 9000).message));
    assert!(
        matches!(errors(&raw)[..], [(4, ErrorBody::Two(two::ErrorBody::ReplyResource { .. }))]),
        "{:?}",
        sent(&raw)
    );
    assert!(raw.end.closed.is_none());
}

pub(super) fn parts_of(xid: u32, lengths: &[usize]) -> Vec<Bytes> {
    let (mut rest, _) = store(xid, 500).message.flatten();
    let mut messages = Vec::new();
    for len in lengths {
        let part = rest.split_to(*len);
        messages.push(middle(xid, &part, rest.len()));
    }
    messages.push(last(xid, &rest));
    messages
}

#[test]
fn v2_07_s6_3_6_parts_of_any_length_make_a_call() {
    let mut raw = raw(server());
    for (xid, lengths) in [(10, &[4][..]), (11, &[4, 4, 4, 200]), (12, &[40, 100, 300])] {
        for message in parts_of(xid, lengths) {
            raw.send(message);
            // A message that raises a limit or reports an error belongs to no sequence.
            raw.send(bytes(&header(0, MANY, Direction::Call, Body::Two(two::Body::Grant)), &[]));
            raw.send(bytes(
                &header(99, MANY, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::System))),
                &[],
            ));
        }
        assert!(is_answered(&raw, xid), "{lengths:?} {:?}", sent(&raw));
    }
    assert!(errors(&raw).is_empty());
}

// requirement: v2-07-6.3.6-2, v2-07-6.3.9-2, v2-07-7.1.4-1
#[test]
fn v2_07_s6_3_6_what_comes_between_is_an_invalid_continuation() {
    let call = |xid: u32| null(xid).message.flatten().0;
    let property = crate::wire::two::Exchange::Part { start: vec![] };
    let reply = header(10, MANY, Direction::Reply, Body::Message(ChunkLists::default()));
    for (between, answered) in [
        (last(20, &call(20)), true),
        (middle(20, &call(20), 100), true),
        (bytes(&header(20, MANY, Direction::Call, Body::Two(two::Body::Exchange(property))), &[]), true),
        // A faulty reply is never answered.
        (bytes(&reply, &call(10)), false),
    ] {
        let mut raw = raw(server());
        let parts = parts_of(10, &[40]);
        raw.send(parts[0].clone());
        raw.send(between);
        let expected =
            if answered { vec![(20, ErrorBody::Two(two::ErrorBody::InvalidContinuation))] } else { vec![] };
        assert_eq!((errors(&raw), faults(&raw, "interrupted")), (expected.clone(), 1));
        assert!(!is_answered(&raw, 20));
        // A sequence that had begun can go on, and a refused message is discarded to its end.
        raw.send(parts[1].clone());
        assert!(is_answered(&raw, 10));
        if answered {
            raw.send(last(30, &call(30)));
            assert!(is_answered(&raw, 30));
        }
        assert_eq!(errors(&raw), expected);
    }
}

// requirement: v2-07-7.1.4-1, v2-07-7.1.4-2
#[test]
fn v2_07_s7_1_4_all_of_a_message_is_discarded_that_does_not_go_on_as_it_began() {
    let limits = Limits { continued_parts: 4, continued_len: 2000, ..server_config().limits };
    let word = [0; 4];
    for (first, second, name) in [
        (middle(10, &word, 100), middle(10, &word, 100), "continuation_length"),
        (middle(10, &word, 100), middle(10, &word, 0), "continuation_length"),
        (middle(10, &word, 0), middle(10, &word, 96), "continuation_length"),
        (middle(10, &word, 2000), middle(10, &word, 1996), "continuation_too_long"),
        (middle(10, &word, 100), middle(10, &word, 96).slice(..18), "list_truncated"),
    ] {
        let mut raw = raw(Config { limits: limits.clone(), ..server() });
        raw.send(first);
        raw.send(second);
        assert_eq!((errors(&raw).len(), faults(&raw, name)), (1, 1), "{name} {:?}", sent(&raw));
        assert_eq!(errors(&raw)[0].0, 10);
        // No second error answers the remaining parts.
        raw.send(middle(10, &word, 92));
        raw.send(last(10, &[0; 92]));
        assert_eq!(raw.received.len(), 1, "{name}");
        // Afterwards the XID can be used like any other.
        raw.send(last(10, &null(10).message.flatten().0));
        assert!(is_answered(&raw, 10), "{name}");
    }
    // The last part has a wrong length.
    let mut raw = raw(Config { limits, ..server() });
    raw.send(middle(10, &word, 100));
    raw.send(last(10, &[0; 96]));
    assert_eq!(errors(&raw), [(10, ErrorBody::Two(two::ErrorBody::InvalidContinuation))]);
    for left in [100, 96, 92, 88] {
        raw.send(middle(11, &word, left));
    }
    assert_eq!(errors(&raw)[1..], [(11, ErrorBody::Two(two::ErrorBody::InvalidContinuation))]);
    assert_eq!(faults(&raw, "too_many_parts"), 1);
}

/// Allocates all memory that a domain gives.
pub(super) fn pin(domain: &ProtectionDomain) -> Vec<Buffer> {
    let mut pinned = Vec::new();
    for size in [1 << 20, 1 << 16, 4096, 64] {
        while let Ok(buffer) = domain.allocate(size, 1) {
            pinned.push(buffer);
        }
    }
    pinned
}

/// Each part takes memory of the domain from the first one on, until its Call is complete.
#[test]
fn i6_a_continued_call_counts_against_the_domain() {
    let mut raw = raw(server());
    raw.end.serving = false;
    let before = raw.end.domain.usage().in_use;
    let parts = parts_of(10, &[200, 200]);
    raw.send(parts[0].clone());
    let begun = raw.end.domain.usage().in_use;
    assert!(begun > before, "{begun} {before}");
    parts[1..].iter().for_each(|part| raw.send(part.clone()));
    assert_eq!(raw.end.calls.len(), 1);
    let held = raw.end.domain.usage().in_use;
    raw.end.calls.clear();
    assert!(raw.end.domain.usage().in_use < held, "the message was part of that");
}

/// A Call within its credits needs no memory besides its Receives.
#[test]
fn i6_a_continued_call_needs_no_further_memory() {
    let mut raw = raw(server());
    let pinned = pin(&raw.end.domain);
    parts_of(10, &[200, 200]).into_iter().for_each(|part| raw.send(part));
    assert!(is_answered(&raw, 10));
    assert_eq!((errors(&raw), faults(&raw, "continuation_memory")), (vec![], 0));
    let mut parts = parts_of(11, &[200, 200]).into_iter();
    raw.send(parts.next().unwrap());
    drop(pinned);
    parts.for_each(|part| raw.send(part));
    assert!(is_answered(&raw, 11));
}

/// The parts reach the program in the slices in which they arrived: nothing is copied.
#[test]
fn v2_07_s6_6_2_parts_are_handed_on_without_a_copy() {
    let mut pair = pair(client(), server());
    check_slices(&mut pair, store(100, 9000), 9000, 4);
    let now = pair.now();
    let before = pair.server.connection.stats().inline_bytes_copied;
    pair.server.serving = true;
    pair.server.connection.call(now, list(50, 12_000)).unwrap();
    pair.settle();
    let mut reply = pair.server.replies.pop().unwrap().1.unwrap();
    assert_eq!(reply.reply.form, Form::Continued);
    let copied = pair.server.connection.stats().inline_bytes_copied - before;
    assert!(copied < 100, "{copied}: more than the Call's own header and words");
    for _ in 0..6 {
        reply.message.u32().unwrap();
    }
    let data = reply.message.payload_slices(MAX).unwrap();
    assert_eq!((&data, data.iter().count()), (&pattern(12_000).into(), 3));
    assert_eq!(reply.message.copied(), rpcrdma_xdr::CopyCount::default());
}

/// §7.3: the peer sends again a message that was refused at its end; none of its parts is discarded.
#[test]
fn v2_07_s7_3_a_message_whose_last_part_is_refused_can_be_sent_again() {
    let mut raw = raw(server());
    for cut in [18, 22] {
        raw.received.clear();
        raw.send(middle(10, &[0; 4], 92));
        raw.send(last(10, &[0; 92]).slice(..cut));
        assert_eq!(errors(&raw).len(), 1, "{cut}");
        raw.send(last(10, &null(10).message.flatten().0));
        assert!(is_answered(&raw, 10), "{cut}");
    }
}

/// A message in another form with the XID of a sequence ends that sequence.
#[test]
fn v2_07_s7_1_4_a_sender_that_begins_anew_is_understood_afterwards() {
    let mut raw = raw(server());
    raw.send(middle(10, &[0; 4], 92));
    let segment = Segment { handle: 9, length: 40, offset: 0 };
    let read = vec![ReadSegment { position: 0, segment, padding: false }];
    let external = Body::NoMessage(ChunkLists { read, ..ChunkLists::default() });
    raw.send(bytes(&header(10, MANY, Direction::Call, external), &[]));
    assert_eq!(errors(&raw), [(10, ErrorBody::Two(two::ErrorBody::InvalidContinuation))]);
    raw.send(last(11, &null(11).message.flatten().0));
    assert!(is_answered(&raw, 11));
}

/// Parts of two messages arrive in turn: the last part of the refused message is not decoded as a message.
// requirement: v2-07-7.1.4-2
#[test]
fn v2_07_s7_1_4_the_end_of_what_was_mixed_in_is_no_message() {
    let mut raw = raw(server());
    let whole = null(11).message.flatten().0;
    raw.send(middle(10, &[0; 4], 40));
    raw.send(middle(11, &[0; 4], whole.len()));
    assert_eq!(errors(&raw), [(11, ErrorBody::Two(two::ErrorBody::InvalidContinuation))]);
    raw.send(middle(10, &[0; 4], 36));
    raw.received.clear();
    raw.send(last(11, &whole));
    assert!(raw.received.is_empty(), "{:?}", sent(&raw));
}

#[test]
fn i6_the_rest_of_a_message_is_not_waited_for_without_end() {
    let mut raw = raw(server());
    raw.send(parts_of(10, &[40]).remove(0));
    let deadline = raw.end.connection.poll_timeout().unwrap();
    assert_eq!(deadline - raw.fabric.instant(), Duration::from_secs(30));
    raw.end.connection.handle_timeout(deadline);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("the rest of a continued message")));
}

#[test]
fn the_parts_of_a_reply_that_nobody_awaits_are_not_kept() {
    let mut raw = Raw::new(Side::Client, client());
    let part = |remaining| {
        bytes(&header(77, MANY, Direction::Reply, Body::Two(two::Body::Middle { remaining })), &[0; 4])
    };
    raw.send(part(100));
    raw.send(part(96));
    assert_eq!((faults(&raw, "unknown_xid"), raw.end.connection.stats().parts_received), (1, 0));
    assert_eq!(raw.end.connection.poll_timeout(), None);
}

/// A connection that has ended keeps no memory of a message that had begun.
#[test]
fn i6_parts_of_a_message_are_released_with_the_end_of_the_connection() {
    let mut raw = raw(server());
    raw.send(middle(10, &[0; 400], 100));
    assert_eq!(raw.end.connection.stats().parts_received, 1);
    rpcrdma_verbs::QueuePair::abort(&mut raw.peer);
    raw.settle();
    assert!(raw.end.closed.is_some());
    assert_eq!(raw.end.domain.usage().in_use, 0);
}

/// The Positions of a message count in all its parts together.
#[test]
fn v2_07_s6_6_2_1_positions_count_in_the_whole_message() {
    let mut raw = raw(server());
    let message = write(10, 3000).message;
    let mut inline = Stream::new();
    let mut data = Bytes::new();
    for piece in message.pieces() {
        match piece {
            Piece::Payload { data: item, .. } => data = item.clone(),
            piece => inline.push(piece.clone()),
        }
    }
    let (whole, _) = inline.flatten();
    raw.send(middle(10, &whole[..8], inline.len() - 8));
    raw.send(middle(10, &whole[8..24], inline.len() - 24));
    let position = u32::try_from(inline.len()).unwrap();
    let read = vec![crate::wire::ReadSegment::new(position, raw.readable(&data))];
    let lists = ChunkLists { read, ..ChunkLists::default() };
    raw.send(bytes(&header(10, MANY, Direction::Call, Body::Message(lists)), &whole[24..]));
    assert!(is_answered(&raw, 10), "{:?}", sent(&raw));
}

/// §4.1: Payload streams of several messages are not mixed, even where a short message could pass a long RDMA Write.
// requirement: v2-07-4.1-3
#[test]
fn v2_07_s4_1_no_answer_passes_between_the_parts_of_another() {
    let mut between = Vec::new();
    for steps in 0..60 {
        let mut raw = raw(server());
        raw.end.serving = false;
        let write = vec![WriteChunk { segments: vec![raw.writable(30_000)] }];
        let lists = ChunkLists { write, ..ChunkLists::default() };
        let call = header(10, MANY, Direction::Call, Body::Message(lists));
        raw.send(bytes(&call, &null(10).message.flatten().0));
        raw.send(last(11, &null(11).message.flatten().0));
        let mut message = super::super::requester::accepted(10, &[]);
        message.push(Piece::Payload { data: vec![1; 30_000].into(), ddp_eligible: true });
        message.push(Piece::Inline(vec![2; 9000].into()));
        let now = raw.fabric.instant();
        let [one, two] = [0, 1].map(|at: usize| raw.end.calls[at].0);
        raw.end.connection.reply(now, one, Answer::Message { message, flavor_touches_data: false });
        for _ in 0..=steps {
            raw.end.pump(raw.fabric.instant());
            raw.fabric.step();
        }
        let message = super::super::requester::accepted(11, &[]);
        raw.end.connection.reply(now, two, Answer::Message { message, flavor_touches_data: false });
        raw.settle();
        let xids: Vec<_> = sent(&raw).iter().map(|(header, _)| header.xid).filter(|xid| *xid > 1).collect();
        assert!(matches!(xids[..], [10, 10, 10, 11] | [11, 10, 10, 10]), "{steps}: {xids:?}");
        between.push(xids[0]);
    }
    assert!(between.contains(&10));
}

/// version-two-07 §5.2.5: in the reverse direction, messages are divided if the client has said that it takes that. In the
/// forward direction they are. Without a credit there is one Send.
#[test]
fn v2_07_s5_2_5_reverse_messages_are_divided_if_the_client_takes_that() {
    use crate::ReverseSupport::{Continued, General, Inline};
    let mut pair = pair(client(), server());
    for (support, divided) in [(Inline, false), (Continued, true), (General, true)] {
        let core = &mut pair.server.connection.core;
        core.peer.reverse = Some(support);
        let options = core.call_options(10, 1).unwrap();
        assert_eq!((options.continued > 1, options.continued_reply > 1), (divided, divided), "{support:?}");
        let core = &mut pair.client.connection.core;
        core.peer.reverse = Some(support);
        let options = core.call_options(10, 1).unwrap();
        assert!(options.continued > 1 && options.continued_reply > 1, "{support:?}");
    }
    let mut raw = raw(server());
    raw.end.serving = false;
    let core = &mut raw.end.connection.core;
    core.ledger.count_message(false, Some(0)).unwrap();
    assert_eq!(core.reply_options(None, true).unwrap().continued, 1, "no credit, one Send");
}

/// A Send passes no part of another message, and may pass where no message has parts.
#[test]
fn v2_07_s6_6_2_nothing_passes_where_messages_are_divided() {
    for (continued_parts, express) in [(0, true), (1, true), (2, false)] {
        let mut pair = pair(Config { continued_parts, ..client() }, server());
        pair.call(null(10));
        let now = pair.now();
        let posts = std::iter::from_fn(|| pair.client.connection.poll_transmit(now, &mut pair.client.qp));
        let sends: Vec<bool> = posts
            .filter_map(|post| match post {
                crate::Post::Work(_, rpcrdma_verbs::WorkRequest::Send(send)) => Some(send.express),
                _ => None,
            })
            .collect();
        assert_eq!(sends, [express], "{continued_parts}");
    }
}
