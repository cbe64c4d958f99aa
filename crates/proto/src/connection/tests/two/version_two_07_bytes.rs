//! version-two-07 (P3) as a peer sees it: the contents of messages, the answer to each fault, and the fate of a refused
//! call.

use bytes::Bytes;
use rpcrdma_verbs::{Completion, Status, Work, WorkRequest};
use rpcrdma_xdr::Stream;

use super::super::requester::accepted;
use super::super::responder::{at, lists, rpc};
use super::version_two::{faults, message_of, operate, raw as server};
use crate::testing::*;
use crate::wire::two::{self, Exchange, Profile, Subset, Value};
use crate::wire::{
    Body, ChunkLists, Codec, Direction, ErrorBody, Header, Segment, WriteChunk, two::p3::V2P3,
};
use crate::{CallError, CloseReason, Config, Limits, Post, Side, Versions};

/// More messages than any test here causes.
const CREDIT: u32 = 1000;

fn bytes(xid: u32, direction: Direction, body: Body, payload: &Stream) -> Bytes {
    let direction = Some(direction);
    message_of(&V2P3, &Header { xid, version: 2, credit: CREDIT, direction, invalidate: 0, body }, payload)
}

fn inline(xid: u32, direction: Direction, payload: &Stream) -> Bytes {
    bytes(xid, direction, Body::Message(ChunkLists::default()), payload)
}

/// A client whose first call was answered, and that has sent its properties.
fn client(config: Config) -> Raw {
    let mut raw = Raw::new(Side::Client, Config { versions: Versions::two(Profile::P3), ..config });
    call(&mut raw, null(1));
    raw.send(inline(1, Direction::Reply, &accepted(1, &[])));
    raw.end.replies.pop().unwrap().1.unwrap();
    raw.received.clear();
    raw
}

fn call(raw: &mut Raw, call: crate::Call) {
    let now = raw.fabric.instant();
    raw.end.connection.call(now, call).unwrap();
    raw.settle();
}

/// The only message that the peer received, and the bytes after its header.
#[track_caller]
fn only(raw: &mut Raw) -> (Header, Bytes) {
    let [message] = &raw.received[..] else { panic!("{:?}", raw.received) };
    let (header, len) = V2P3.decode(message, &Limits::default()).unwrap();
    let message = message.slice(len..);
    raw.received.clear();
    (header, message)
}

fn first_word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().unwrap())
}

const fn nowhere(length: u32) -> Segment {
    Segment { handle: 0xbad, length, offset: 0 }
}

fn chunk(segments: usize) -> WriteChunk {
    WriteChunk { segments: vec![nowhere(8); segments] }
}

// requirement: v2-07-6.3.5-1
#[test]
fn v2_07_s6_3_5_a_call_external_has_the_xid_of_its_call() {
    let mut raw = client(Config::default());
    call(&mut raw, store(0x77, 90_000));
    let (header, rest) = only(&mut raw);
    let Body::NoMessage(lists) = header.body else { panic!("{header:?}") };
    assert_eq!((header.xid, header.version, rest.len()), (0x77, 2, 0));
    assert!(lists.read.iter().all(|entry| entry.position == 0) && !lists.read.is_empty());
}

// requirement: v2-07-6.3.8-1, v2-07-6.3.8-2
#[test]
fn v2_07_s6_3_8_a_reply_external_has_the_xid_of_its_reply() {
    let mut raw = server(Profile::P3, server_config());
    let segment = raw.writable(10_000);
    let offered = lists(vec![], vec![], Some(WriteChunk { segments: vec![segment] }));
    raw.received.clear();
    raw.send(bytes(0x77, Direction::Call, Body::Message(offered), &list(0x77, 9000).message));
    let (header, rest) = only(&mut raw);
    let Body::NoMessage(returned) = header.body else { panic!("{header:?}") };
    assert_eq!((header.xid, header.direction, rest.len()), (0x77, Some(Direction::Reply), 0));
    assert_eq!(returned.reply.map(|chunk| chunk.total()), Some(24 + 4 + 9000));
    let memory = raw.take_back(segment);
    assert_eq!((first_word(&memory), first_word(&memory[4..])), (0x77, 1));
}

// requirement: v2-07-4.6.1-1, v2-07-4.6.1-2, v2-07-4.6.2-1, v2-07-4.6.2-2
#[test]
fn v2_07_s4_6_1_s4_6_2_reverse_calls_and_replies_have_xid_and_version() {
    let mut raw = server(Profile::P3, server_config());
    let takes = Value { id: 5, data: Bytes::copy_from_slice(&1_u32.to_be_bytes()) };
    let told = Exchange::Initial { start: vec![takes], constant: Subset::default() };
    operate(&mut raw, Profile::P3, 2, Direction::Call, told);
    raw.received.clear();
    call(&mut raw, store(0x99, 100));
    let (header, rest) = only(&mut raw);
    assert_eq!((header.xid, header.version, header.direction), (0x99, 2, Some(Direction::Call)));
    assert_eq!((first_word(&rest), first_word(&rest[4..])), (0x99, 0));

    let mut raw = client(Config::default());
    // The XIDs of the two directions are independent.
    call(&mut raw, store(0x99, 100));
    raw.received.clear();
    raw.send(inline(0x99, Direction::Call, &store(0x99, 100).message));
    let (header, rest) = only(&mut raw);
    assert_eq!((header.xid, header.version, header.direction), (0x99, 2, Some(Direction::Reply)));
    assert_eq!((first_word(&rest), first_word(&rest[4..])), (0x99, 1));
    assert!(raw.end.replies.is_empty());
}

// requirement: v2-07-6.5-1
#[test]
fn v2_07_s6_5_what_is_invalidated_is_the_handle_of_the_call() {
    for named in [None, Some(0), Some(1)] {
        let mut raw = server(Profile::P3, server_config());
        let segments = vec![raw.writable(2500), raw.writable(2500)];
        let handle = named.map(|at: usize| segments[at].handle);
        let offered = lists(vec![], vec![WriteChunk { segments }], None);
        let header = Header {
            xid: 7,
            version: 2,
            credit: CREDIT,
            direction: Some(Direction::Call),
            invalidate: handle.unwrap_or(0),
            body: Body::Message(offered),
        };
        raw.send(message_of(&V2P3, &header, &rpc(7, READ, &5000_u32.to_be_bytes())));
        let keys: Vec<u32> = raw.invalidated.iter().map(|(key, _)| key.0).collect();
        assert_eq!(keys, Vec::from_iter(handle), "{named:?}");
    }
}

// requirement: v2-07-4.2.2-1
#[test]
fn v2_07_s4_2_2_who_hears_no_properties_assumes_4096() {
    let config = || Config { send_size: 65_536, receive_size: 65_536, ..server_config() };
    for raw in [client(config()), server(Profile::P3, config())] {
        let thresholds = raw.end.connection.thresholds();
        assert_eq!((thresholds.send, thresholds.receive), (4096, 4096));
        assert_eq!(raw.end.connection.stats().operations_sent, 1, "what it has told nobody may have heard");
    }
}

// requirement: v2-07-4.3.3-2
#[test]
fn v2_07_s4_3_3_a_client_does_not_change_the_version() {
    let mut raw = client(Config::default());
    call(&mut raw, null(2));
    raw.received.clear();
    let range = ErrorBody::Version { low: 1, high: 1 };
    raw.send(bytes(2, Direction::Reply, Body::Error(range), &Stream::new()));
    let failure = raw.end.replies.pop().unwrap().1.unwrap_err();
    assert_eq!(failure.error, CallError::Version { low: 1, high: 1 });
    call(&mut raw, null(3));
    assert_eq!(only(&mut raw).0.version, 2);
}

/// Checks that this error alone answers the message, and that the program never sees the Call.
#[track_caller]
fn refused(config: Config, body: Body, payload: &Stream, expected: ErrorBody) {
    let mut raw = server(Profile::P3, config);
    raw.end.serving = false;
    raw.received.clear();
    raw.send(bytes(7, Direction::Call, body, payload));
    let (header, rest) = only(&mut raw);
    assert_eq!((header.xid, header.version, rest.len()), (7, 2, 0));
    assert_eq!(header.body, Body::Error(expected));
    assert!(raw.end.calls.is_empty());
    raw.end.serving = true;
    raw.send(inline(8, Direction::Call, &null(8).message));
    assert_eq!(only(&mut raw).0.xid, 8, "the connection goes on");
}

// requirement: v2-07-7.3.1-1, v2-07-7.3.1-2, v2-07-7.3.1-3
#[test]
fn v2_07_s7_3_1_more_read_chunks_than_are_taken() {
    let read = |chunks: u32| (0..chunks).map(|chunk| at(44 + 12 * chunk, nowhere(8))).collect();
    let body = |chunks| Body::Message(lists(read(chunks), vec![], None));
    for (procedure, most) in [(STORE, 0), (WRITE, 1), (TWO, 2)] {
        let expected = ErrorBody::Two(two::ErrorBody::ReadChunks { most });
        refused(server_config(), body(most + 1), &rpc(7, procedure, &[0; 12]), expected);
    }
    let limits = Limits { read_chunks: 1, ..server_config().limits };
    let config = Config { limits, ..server_config() };
    refused(config, body(2), &rpc(7, TWO, &[0; 12]), ErrorBody::Two(two::ErrorBody::ReadChunks { most: 1 }));
}

// requirement: v2-07-7.3.2-1, v2-07-7.3.3-1
#[test]
fn v2_07_s7_3_2_s7_3_3_more_write_chunks_or_segments_than_are_taken() {
    let limits = Limits { write_chunks: 3, segments_per_chunk: 5, ..server_config().limits };
    let config = || Config { limits: limits.clone(), ..server_config() };
    let body = |write, reply| Body::Message(lists(vec![], write, reply));
    let many = body(vec![chunk(1); 4], None);
    refused(config(), many, &null(7).message, ErrorBody::Two(two::ErrorBody::WriteChunks { most: 3 }));
    for long in [body(vec![chunk(6)], None), body(vec![], Some(chunk(6)))] {
        refused(config(), long, &null(7).message, ErrorBody::Two(two::ErrorBody::Segments { most: 5 }));
    }
}

// requirement: v2-07-7.3.4-1, v2-07-7.3.4-2, v2-07-7.3.4-3
#[test]
fn v2_07_s7_3_4_a_write_chunk_that_is_too_small_for_its_result() {
    for (rooms, chunk, needed) in
        [(&[64][..], 1, 2000), (&[2000, 1999][..], 2, 2000), (&[0, 100][..], 2, 2000)]
    {
        let mut raw = server(Profile::P3, server_config());
        let write = rooms.iter().map(|room| WriteChunk { segments: vec![raw.writable(*room)] }).collect();
        raw.received.clear();
        let offered = Body::Message(lists(vec![], write, None));
        raw.send(bytes(7, Direction::Call, offered, &two(7, 800, 1200).message));
        let (header, _) = only(&mut raw);
        let expected = ErrorBody::Two(two::ErrorBody::WriteResource { chunk, needed });
        assert_eq!((header.xid, header.body), (7, Body::Error(expected)), "{rooms:?}");
    }
}

// requirement: v2-07-4.6.4-1, v2-07-7.3.2-3
#[test]
fn v2_07_s4_6_4_chunks_in_the_reverse_direction_are_refused() {
    for lists in [
        lists(vec![at(44, nowhere(8))], vec![], None),
        lists(vec![], vec![chunk(1)], None),
        lists(vec![], vec![], Some(chunk(1))),
    ] {
        let mut raw = client(Config::default());
        raw.send(bytes(7, Direction::Call, Body::Message(lists), &rpc(7, WRITE, &[0, 0, 0, 8])));
        let (header, _) = only(&mut raw);
        assert_eq!(
            (header.xid, header.body),
            (7, Body::Error(ErrorBody::Two(two::ErrorBody::ReadChunks { most: 0 })))
        );
        assert_eq!(faults(&raw, "reverse_chunks"), 1);
    }
}

// requirement: v2-07-7.3.1-4, v2-07-7.3.2-2, v2-07-7.3.3-2, v2-07-7.3.4-4, v2-07-7.3.5-3, v2-07-7.4.1-2
#[test]
fn v2_07_s7_3_a_call_that_was_refused_ends_with_that_error_and_is_not_sent_again() {
    for error in [
        two::ErrorBody::ReadChunks { most: 0 },
        two::ErrorBody::WriteChunks { most: 0 },
        two::ErrorBody::Segments { most: 1 },
        two::ErrorBody::WriteResource { chunk: 1, needed: 5000 },
        two::ErrorBody::WriteResource { chunk: 0, needed: 0 },
        two::ErrorBody::ReplyResource { segment: 0, needed: 5000 },
        two::ErrorBody::ReplyResource { segment: 0, needed: 0 },
        two::ErrorBody::System,
    ] {
        let mut raw = client(Config::default());
        call(&mut raw, both(7, 4000, 4000));
        assert_eq!(only(&mut raw).0.xid, 7);
        raw.send(bytes(7, Direction::Reply, Body::Error(ErrorBody::Two(error)), &Stream::new()));
        let (_, result) = raw.end.replies.pop().expect("the call has ended");
        assert_eq!(result.unwrap_err().error, CallError::Refused(error));
        raw.settle();
        assert!(raw.received.is_empty() && raw.end.closed.is_none());
        assert_eq!(raw.fabric.outstanding().windows, 0);
    }
}

// requirement: v2-07-7-5
#[test]
fn v2_07_s7_an_error_that_nobody_knows_is_discarded() {
    let mut raw = client(Config::default());
    call(&mut raw, null(7));
    raw.received.clear();
    let mut error =
        bytes(7, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::System)), &Stream::new())
            .to_vec();
    error[19] = 99;
    raw.send(error.clone());
    assert!(raw.end.replies.is_empty() && raw.received.is_empty());
    raw.send(inline(7, Direction::Reply, &accepted(7, &[])));
    raw.end.replies.pop().unwrap().1.unwrap();

    let mut raw = server(Profile::P3, server_config());
    raw.received.clear();
    raw.send(error);
    assert!(raw.received.is_empty());
    assert_eq!(faults(&raw, "unknown_error_code"), 1);
}

/// The Requester connects again and sends the same Call: the error says that there will be no reply.
// requirement: v2-07-7.3-1, v2-07-7.4.1-1
#[test]
fn v2_07_s7_3_what_could_not_be_read_is_refused_on_the_next_connection() {
    let fabric = rpcrdma_sim::Fabric::new(rpcrdma_sim::FabricConfig {
        completion_mode: rpcrdma_sim::CompletionMode::Acknowledged,
        ..Default::default()
    });
    let config = || Config { versions: Versions::both(Profile::P3), ..server_config() };
    let mut raw = Raw::on(&fabric, Side::Server, config(), &Config::default());
    let body = || Body::Message(lists(vec![at(44, nowhere(8))], vec![], None));
    let call = bytes(7, Direction::Call, body(), &rpc(7, WRITE, &[0, 0, 0, 8]));
    raw.send(call.clone());
    assert!(raw.end.closed.is_some());
    let failed = raw.end.connection.failed_reads().to_vec();
    assert_eq!(failed, [7]);
    let mut next = server(Profile::P3, server_config());
    next.end.serving = false;
    next.end.connection.refuse(failed);
    next.received.clear();
    next.send(call);
    let (header, _) = only(&mut next);
    assert_eq!((header.xid, header.body), (7, Body::Error(ErrorBody::Two(two::ErrorBody::System))));
    assert!(next.end.calls.is_empty());
}

// requirement: v2-07-4.5.1.1-1, v2-07-7.2.1-1, v2-07-7.2.1-2
#[test]
fn v2_07_s7_2_1_what_does_not_parse_is_refused() {
    let read = vec![at(56, nowhere(8)), at(44, nowhere(8))];
    let descending = Body::Message(lists(read, vec![], None));
    refused(server_config(), descending, &rpc(7, TWO, &[0; 8]), ErrorBody::Chunk);
    // §7.2: the RPC message has another XID.
    refused(server_config(), Body::Message(ChunkLists::default()), &null(8).message, ErrorBody::Chunk);
}

/// A message that is shorter than the prefix has no answer, and the connection goes on.
// requirement: v2-07-7-1
#[test]
fn v2_07_s7_less_than_the_prefix_is_discarded() {
    let call = inline(7, Direction::Call, &null(7).message);
    let reply = inline(7, Direction::Reply, &accepted(7, &[]));
    for len in [0, 1, 15] {
        let mut raw = server(Profile::P3, server_config());
        raw.send(call.slice(..len));
        assert!(raw.received.is_empty() && raw.end.closed.is_none(), "{len}");
        assert_eq!(faults(&raw, "short_message"), 1);
        raw.send(call.clone());
        assert_eq!(only(&mut raw).0.xid, 7);

        let mut raw = client(Config::default());
        self::call(&mut raw, null(7));
        raw.received.clear();
        raw.send(reply.slice(..len));
        assert!(raw.received.is_empty() && raw.end.replies.is_empty(), "{len}");
        raw.send(reply.clone());
        raw.end.replies.pop().unwrap().1.unwrap();
    }
    // With the prefix complete, there is an answer.
    let mut raw = server(Profile::P3, server_config());
    raw.send(call.slice(..16));
    assert_eq!(only(&mut raw).0.body, Body::Error(ErrorBody::Chunk));
}

/// The connection counts on each message to arrive once, in order, or to end the connection: no Send is posted twice, and a
/// Send that failed ends the connection and all its calls.
// requirement: v2-07-4.2-1
#[test]
fn v2_07_s4_2_a_send_that_did_not_arrive_ends_the_connection() {
    let mut raw = client(Config::default());
    call(&mut raw, null(7));
    let now = raw.fabric.instant() + std::time::Duration::from_secs(20);
    raw.end.pump(now);
    raw.settle();
    assert_eq!(only(&mut raw).0.xid, 7, "no second copy, however long the answer takes");
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(8)).unwrap();
    let mut posted = vec![];
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
        if let Post::Work(id, WorkRequest::Send(_)) = post {
            posted.push(id);
        }
    }
    let [id] = posted[..] else { panic!("{posted:?}") };
    let lost = Completion { id, status: Status::ReceiverNotReady, work: Work::Send };
    raw.end.connection.handle_completion(now, lost);
    let post = raw.end.connection.poll_transmit(now, &mut raw.end.qp);
    assert!(matches!(post, Some(Post::Abort)), "{post:?}");
    rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::WorkFailed(Status::ReceiverNotReady)));
    let failed = raw.end.replies.iter().filter(|(_, result)| result.is_err()).count();
    assert_eq!(failed, 2);
}
