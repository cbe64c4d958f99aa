//! Messages that our own side sends, in both directions, and its assumptions about the peer.

use bytes::Bytes;
use rpcrdma_sim::{Fabric, FabricConfig};
use rpcrdma_verbs::{
    Buffer, Completion, ConnectParameters, PostErrorKind, ProtectionDomain, Status, Work, WorkRequest, WrId,
};
use rpcrdma_xdr::Stream;

use crate::testing::*;
use crate::wire::{Body, ChunkLists, WriteChunk};
use crate::{Answer, CallError, CloseReason, Config, Event, Invalidations, Post, Side, Sink, Thresholds};

const CALL: u32 = 0;
const REPLY: u32 = 1;

/// XID and direction of the RPC message behind a header.
fn prefix(payload: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
    (word(0), word(4))
}

fn accepted(xid: u32, results: &[u32]) -> Stream {
    let words = [&[xid, REPLY, 0, 0, 0, 0][..], results].concat();
    Stream::from(Bytes::from(words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>()))
}

/// RFC 8166 §4.2: headers have version one and the XID of the RPC message, in either role.
// requirement: rfc8166-4.2.1-1, rfc8166-4.2.2-1, rfc5666-4.1-2, rfc5666-4.1-6, rfc8167-5.1-1, rfc8167-5.1-2
// requirement: rfc8167-5.2-1, rfc8167-5.2-2
#[test]
fn s4_2_headers_of_calls_and_replies() {
    // (our side, XID): the Requester is first the client, then the server.
    for (side, xid) in [(Side::Client, 0x0102_0304), (Side::Server, 5)] {
        let mut raw = Raw::new(side, server_config());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(xid)).unwrap();
        raw.settle();
        let (header, payload) = raw.last();
        assert_eq!((header.xid, header.version), (xid, 1), "{side:?}");
        assert_eq!(prefix(&payload), (xid, CALL), "{side:?}");
        // The peer makes a Call, too, with the same XID.
        raw.send(message(
            &crate::testing::header(xid, Body::Message(ChunkLists::default())),
            &null(xid).message,
        ));
        let (header, payload) = raw.last();
        assert_eq!((header.xid, header.version), (xid, 1), "{side:?}");
        assert_eq!(prefix(&payload), (xid, REPLY), "{side:?}");
    }
}

/// RFC 8166 §4.2.4, §4.6: the answer to a good Call is RDMA_MSG or, with a filled Reply chunk, RDMA_NOMSG.
// requirement: rfc8166-4.2.4-1, rfc8166-4.3.1-1, rfc8166-4.6.1-1, rfc8166-4.6.2-1, experience-3.6.1-2
#[test]
fn s4_6_replies_are_rdma_msg_or_rdma_nomsg() {
    for (procedure, room, long) in
        [(LIST, 8000, true), (LIST, 0, false), (0, 8000, false), (READ, 8000, false)]
    {
        let mut raw = Raw::new(Side::Server, server_config());
        let chunk = |raw: &mut Raw| WriteChunk { segments: vec![raw.writable(8000)] };
        let reply = (room > 0).then(|| chunk(&mut raw));
        let write = if procedure == READ { vec![chunk(&mut raw)] } else { vec![] };
        let lists = ChunkLists { read: vec![], write, reply };
        let length: u32 = if long { 7000 } else { 100 };
        let call = call_of(1, procedure, |encoder| {
            if procedure != 0 {
                encoder.u32(length);
            }
        });
        raw.send(message(&header(1, Body::Message(lists)), &call.message));
        let (header, payload) = raw.last();
        match header.body {
            Body::Message(lists) => {
                assert!(!long);
                assert!(lists.read.is_empty() && lists.reply.is_none_or(|chunk| chunk.total() == 0));
                assert_eq!(prefix(&payload), (1, REPLY));
            }
            Body::NoMessage(lists) => {
                assert!(long && payload.is_empty() && lists.read.is_empty());
                assert_eq!(lists.reply.unwrap().total(), 24 + 4 + 7000);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// RFC 8797 §5.1: without this private data a peer has the defaults: 1024 bytes each way, no Send with Invalidate.
// requirement: rfc8166-3.3.3-3, rfc8797-4.1-2, rfc8797-5.1-1, rfc8797-5.2-1, experience-4.2.1-1
#[test]
fn s5_1_a_peer_without_private_data_has_the_defaults() {
    for said in [Bytes::new(), Bytes::from_static(b"of another layer")] {
        let fabric = Fabric::new(FabricConfig::default());
        let domains = [ProtectionDomain::new(64 << 20), ProtectionDomain::new(64 << 20)];
        let client = Config { send_size: 8192, receive_size: 8192, ..Config::default() };
        let silent = ConnectParameters { private_data: said.into(), ..parameters(&client, &domains[0]) };
        let server = Config { send_size: 8192, receive_size: 8192, ..server_config() };
        let (a, b) = fabric.pair(silent, parameters(&server, &domains[1]));
        let [ours, theirs] = domains;
        let now = fabric.instant();
        // A client that follows the defaults, as the server must assume.
        let client = Config { send_size: 1024, receive_size: 1024, remote_invalidation: false, ..client };
        let mut pair = Pair {
            fabric: fabric.clone(),
            client: End::new(Side::Client, client.into(), a, ours, now),
            server: End::new(Side::Server, server.into(), b, theirs, now),
        };
        assert_eq!(pair.server.connection.thresholds(), Thresholds { send: 1024, receive: 1024 });
        let reply = pair.round_trip(read(1, 5000));
        assert_eq!(reply.invalidations, Invalidations { remote: 0, local: 1 });
        check_reply(READ, 5000, reply);
        // The reply would fit 8192 bytes.
        check_reply(LIST, 3000, pair.round_trip(list(2, 3000)));
        assert_eq!(pair.server.connection.stats().replies_sent.long, 1);
        assert_eq!(pair.server.connection.stats().invalidations_sent, 0);
    }
}

/// RFC 8166 §4.3.2.2: the peer may have written to a chunk that it returns as unused. Nothing of the chunk becomes a
/// result, and the caller gets the memory back as it is.
// requirement: rfc8166-4.3.2.2-4, rfc5666-3.4-4
#[test]
fn s4_3_2_2_an_unused_write_chunk_may_have_been_modified() {
    let mut raw = Raw::new(Side::Client, Config::default());
    let now = raw.fabric.instant();
    let mut call = read(1, 5000);
    call.reply.sinks = vec![Sink::Buffer(Buffer::adopt(vec![0; 5000]))];
    raw.end.connection.call(now, call).unwrap();
    raw.settle();
    let Body::Message(lists) = raw.last().0.body else { panic!("RDMA_MSG") };
    raw.write(pattern(5000), lists.write[0].segments[0]);
    let unused = ChunkLists { write: vec![lists.write[0].filled(0)], ..ChunkLists::default() };
    raw.send(message(&header(1, Body::Message(unused)), &accepted(1, &[0])));
    let reply = raw.end.replies.pop().unwrap().1.unwrap();
    assert_eq!((reply.reply.written, reply.invalidations.remote + reply.invalidations.local), (0, 1));
    check_reply(READ, 0, reply);
    assert_eq!(raw.fabric.outstanding().windows, 0);
}

/// RFC 8166 §4.5.4: if an answer cannot leave, the end of the connection shows that to the Requester.
// requirement: rfc8166-4.5.4-2, experience-7.2.1.1-1
// requirement: v2-07-7.4-2
#[test]
fn s4_5_4_an_answer_that_cannot_leave_closes_the_connection() {
    let mut raw = Raw::new(Side::Server, server_config());
    let now = raw.fabric.instant();
    let call = message(&header(1, Body::Message(ChunkLists::default())), &null(1).message);
    let work = Work::Receive {
        len: call.len(),
        buffers: vec![Buffer::adopt(call.to_vec())],
        invalidated: None,
        solicited: false,
    };
    raw.end.connection.handle_completion(now, Completion { id: WrId(0), status: Status::Success, work });
    let Some(Event::Call(call)) = raw.end.connection.poll_event() else { panic!("the Call") };
    raw.end.connection.reply(now, call.token, serve(call.message));
    let mut answer = None;
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
        if let Post::Work(id, WorkRequest::Send(_)) = post {
            answer = Some(id);
        }
    }
    raw.end.connection.handle_post_error(answer.expect("the answer"), &PostErrorKind::Invalid("test"));
    assert!(matches!(raw.end.connection.poll_transmit(now, &mut raw.end.qp), Some(Post::Abort)));
    rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::WorkFailed(Status::Fatal)));
    assert!(raw.ended.is_some(), "the Requester is told");
}

/// RFC 8166 §4.5.4: if a Call gets no answer, the connection ends as well, after the earlier answers.
// requirement: rfc8166-4.5.4-2
// requirement: v2-07-7.4-2
#[test]
fn s4_5_4_a_call_without_an_answer_closes_the_connection() {
    let mut raw = Raw::new(Side::Server, server_config());
    raw.end.serving = false;
    for xid in 1..=3 {
        raw.send(message(&header(xid, Body::Message(ChunkLists::default())), &null(xid).message));
    }
    let now = raw.fabric.instant();
    for (answered, (token, _, _, call)) in
        [true, false, true].into_iter().zip(std::mem::take(&mut raw.end.calls))
    {
        let answer = if answered { serve(call) } else { Answer::Lost };
        raw.end.connection.reply(now, token, answer);
    }
    raw.settle();
    assert_eq!((raw.received.len(), raw.last().0.xid), (1, 1));
    assert_eq!(raw.end.closed, Some(CloseReason::ReplyLost));
    assert!(raw.ended.is_some(), "the Requester is told");
}

/// A lost reply in the reverse direction ends the connection, too; our calls that did not leave wait for the next
/// connection.
// requirement: rfc8166-4.5.4-2
#[test]
fn s4_5_4_i8_a_lost_reply_loses_no_call_of_the_other_direction() {
    let mut raw = Raw::new(Side::Client, Config::default());
    raw.end.serving = false;
    let now = raw.fabric.instant();
    for xid in 1..=2 {
        raw.end.connection.call(now, null(xid)).unwrap();
    }
    raw.send(message(&header(7, Body::Message(ChunkLists::default())), &null(7).message));
    let (token, ..) = raw.end.calls.pop().unwrap();
    raw.end.connection.reply(now, token, Answer::Lost);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::ReplyLost));
    let failures: Vec<_> = raw.end.replies.drain(..).map(|(_, result)| result.unwrap_err()).collect();
    let sent: Vec<_> = failures.iter().map(|failure| (failure.sent, failure.call.is_some())).collect();
    assert_eq!(sent, [(true, true), (false, true)]);
    let lost = CallError::ConnectionLost(CloseReason::ReplyLost);
    assert!(failures.iter().all(|failure| failure.error == lost));
}
