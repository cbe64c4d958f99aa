//! The Read-Read transfer model (RFC 5666 §3.8, §5.1, §11) where both sides opted in, and RFC 8166 §4.6.2 elsewhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig, MessageKind, Side as SimSide};
use rpcrdma_verbs::{Buffer, Completion, ProtectionDomain, RemoteSegment, Status, Work, WorkRequest, WrId};
use rpcrdma_xdr::Stream;

use super::super::requester::{accepted, discarded, plain, result, send};
use super::super::responder::{at, expect_alive, expect_error, lists, rpc};
use super::super::rules::{complete, hold_all, receive};
use crate::testing::*;
use crate::wire::{Body, ChunkLists, Codec, ErrorBody, Header, ReadSegment, Segment, v1::V1};
use crate::{
    Call, CallError, CloseReason, Compatibility, Config, Form, Limits, ReadRead, ReplyShape, Side, Sink,
    Timeouts,
};

fn opted(read_read: ReadRead, config: Config) -> Config {
    Config {
        compatibility: Compatibility { read_read: Some(read_read), ..Compatibility::default() },
        ..config
    }
}

/// A client that offers no chunks for its replies.
fn withholding() -> Config {
    opted(ReadRead { withhold_chunks: true, ..ReadRead::default() }, Config::default())
}

fn exposing(read_read: ReadRead) -> Config {
    opted(read_read, server_config())
}

fn fabrics() -> [FabricConfig; 3] {
    let jitter = Duration::from_micros(50);
    [
        FabricConfig::default(),
        FabricConfig { completion_mode: CompletionMode::Acknowledged, ..FabricConfig::default() },
        FabricConfig {
            seed: 3,
            jitter,
            completion_jitter: jitter,
            segment_size: 700,
            ..FabricConfig::default()
        },
    ]
}

fn done(xid: u32) -> Bytes {
    message(&header(xid, Body::Done), &Stream::new())
}

/// RFC 5666 §3.8: results travel in Read chunks. RFC 5666 §5.1: one Read chunk carries a whole reply.
// requirement: rfc5666-3.5-1
#[test]
fn rfc5666_3_8_replies_are_read_by_the_client() {
    for fabric in fabrics() {
        for max_segment_len in [1 << 30, 1500] {
            let server = Config { max_segment_len, ..exposing(ReadRead::default()) };
            let mut pair = Pair::with(fabric.clone(), withholding(), server);
            check_reply(0, 0, pair.round_trip(null(1)));
            for (xid, len) in [(2, 5001), (3, 20_003), (4, 4000)] {
                let reply = pair.round_trip(read(xid, len));
                let expected = if len == 4000 { Form::Inline } else { Form::Reduced };
                assert_eq!((reply.call.form, reply.reply.form), (Form::Inline, expected));
                assert_eq!(reply.reply.read, if len == 4000 { 0 } else { len });
                check_reply(READ, len, reply);
            }
            let reply = pair.round_trip(list(5, 9001));
            assert_eq!((reply.reply.form, reply.reply.read), (Form::Long, REPLY_HEADER + 9004));
            check_reply(LIST, 9001, reply);
            // A Call with Read chunks and a reply with Read chunks.
            check_reply(ECHO, 9001, pair.round_trip(echo(6, 9001)));
            for end in [&pair.client, &pair.server] {
                assert_eq!(end.connection.stats().payload_bytes_copied, 0);
            }
            assert_eq!(pair.client.connection.stats().dones_sent, 4);
            assert_eq!(pair.server.connection.stats().dones_received, 4);
            // Every window that was opened is closed, and counted once.
            let stats = pair.server.connection.stats();
            assert_eq!(stats.registrations, stats.local_invalidations);
            assert_eq!(stats.read_segments, pair.client.connection.stats().read_segments);
            assert!(stats.replies_sent.read_bytes > 0);
            assert!(pair.client.closed.is_none() && pair.server.closed.is_none());
            pair.check_no_leak();
        }
    }
}

/// Read chunks stand beside the Position-Zero chunk and beside Write chunks.
#[test]
fn rfc5666_3_8_all_combinations() {
    for fabric in fabrics() {
        for max_read_chunks in [0, 1, 2] {
            let server = Config { max_read_chunks, ..exposing(ReadRead::default()) };
            let mut pair = Pair::with(fabric.clone(), withholding(), server);
            let mut message = pair.round_trip(both(1, 7001, 6003)).message;
            message.bytes_fixed(24).unwrap();
            assert_eq!(message.payload(MAX).unwrap(), pattern(7001));
            assert_eq!(message.opaque(MAX).unwrap(), pattern(6003));
            message.finish().unwrap();
            let joined = [pattern(6001), pattern(5002)].concat();
            let mut message = pair.round_trip(two(2, 6001, 5002)).message;
            message.bytes_fixed(24).unwrap();
            assert_eq!(message.payload(MAX).unwrap(), joined);
            assert_eq!(message.payload(MAX).unwrap(), joined);
            message.finish().unwrap();
            pair.check_no_leak();
        }
        // The first result leaves in its Write chunk; the call announced too few bytes for the second.
        let mut pair = Pair::with(
            fabric.clone(),
            opted(ReadRead::default(), Config::default()),
            exposing(ReadRead::default()),
        );
        let mut call = both(3, 7001, 6003);
        call.reply = ReplyShape { max_len: 1000, sinks: vec![Sink::Pool(7001)] };
        let failure = pair.call(call);
        pair.run_for(Duration::from_secs(61));
        let (id, result) = pair.client.replies.pop().unwrap();
        assert_eq!(
            (id, result.unwrap_err().error),
            (failure, CallError::TimedOut),
            "more than the call allows"
        );
    }
}

/// The client reads exposed results into the caller's memory, like results that arrive by RDMA Write.
#[test]
fn rfc5666_3_8_results_are_read_into_the_callers_sinks() {
    for fabric in fabrics() {
        for max_segment_len in [1 << 30, 1500] {
            let server = Config { max_segment_len, ..exposing(ReadRead::default()) };
            let mut pair = Pair::with(fabric.clone(), withholding(), server);
            let memory = vec![0; 6000];
            let place = memory.as_ptr();
            let mut call = read(1, 5001);
            call.reply.sinks = vec![Sink::Buffer(rpcrdma_verbs::Buffer::adopt(memory))];
            let mut reply = pair.round_trip(call);
            assert_eq!(reply.reply.read, 5001);
            reply.message.bytes_fixed(24).unwrap();
            let data = reply.message.payload(MAX).unwrap();
            assert_eq!((data.as_ptr(), &data), (place, &pattern(5001)));
            pair.check_no_leak();
        }
    }
    // With its pad the item is longer than the caller's memory, so the client reads into memory of the pool.
    let mut raw = Raw::new(Side::Client, withholding());
    let mut call = read(1, 5001);
    call.reply.sinks = vec![Sink::Buffer(rpcrdma_verbs::Buffer::adopt(vec![0; 5001]))];
    send(&mut raw, call);
    let list = vec![at(28, raw.readable(&[&pattern(5001)[..], &[0; 3]].concat()))];
    raw.send(reply_with(1, list, 5001));
    check_reply(READ, 5001, result(&mut raw).unwrap().unwrap());
}

/// Offered Write chunks come first; Read chunks carry only the results that no offered chunk holds.
#[test]
fn rfc5666_5_2_write_and_reply_chunks_come_first() {
    let client = opted(ReadRead::default(), Config::default());
    let mut pair = Pair::with(FabricConfig::default(), client, exposing(ReadRead::default()));
    let reply = pair.round_trip(both(1, 7001, 6003));
    assert_eq!((reply.reply.form, reply.reply.written, reply.reply.read), (Form::Long, 7001, 0));
    assert_eq!(pair.client.connection.stats().dones_sent, 0);
}

/// RFC 8166 §4.6.2 and §4.3.1: the opt-in of one side does not change the behaviour of the other.
// requirement: rfc8166-4.3.1-1, rfc8166-4.6.2-2
#[test]
fn s4_6_2_without_the_opt_in_of_both_sides() {
    // The client offers no chunks, and the server exposes nothing.
    let mut pair = Pair::with(FabricConfig::default(), withholding(), server_config());
    assert_eq!(pair.outcome(read(1, 9000)).unwrap_err().error, CallError::Chunk);
    check_reply(0, 0, pair.round_trip(null(2)));
    // The server may expose, but the client does not accept that: it offers chunks for everything, so nothing is exposed.
    let mut pair = Pair::with(FabricConfig::default(), Config::default(), exposing(ReadRead::default()));
    check_reply(READ, 9000, pair.round_trip(read(1, 9000)));
    assert_eq!(pair.server.connection.stats().replies_sent.read_bytes, 0);
    // RDMA_DONE is discarded by default.
    let mut raw = Raw::new(Side::Server, server_config());
    raw.send(done(1));
    assert!(raw.received.is_empty());
    assert_eq!(raw.end.connection.stats().errors.get("unexpected_done"), Some(&1));
    expect_alive(&mut raw);
}

/// A server, and a peer that has received its reply to READ with this Read list.
fn exposed(read_read: ReadRead, timeouts: Timeouts, len: u32) -> (Raw, Vec<ReadSegment>) {
    let config = Config { timeouts, ..exposing(read_read) };
    let mut raw = Raw::new(Side::Server, config);
    let read = ask(&mut raw, 1, len);
    (raw, read)
}

fn ask(raw: &mut Raw, xid: u32, len: u32) -> Vec<ReadSegment> {
    raw.send(message(
        &header(xid, Body::Message(ChunkLists::default())),
        &rpc(xid, READ, &len.to_be_bytes()),
    ));
    let (answer, _) = raw.last();
    raw.received.clear();
    let Body::Message(lists) = answer.body else { panic!("{:?}", answer.body) };
    assert!(answer.credit >= 2, "a credit beyond the RDMA_DONE");
    lists.read
}

/// The header of the reply has the same words as a Call of the other direction.
// requirement: rfc5042-6.3.2-1, rfc5042-6.3.4-1, rfc5042-A-3
#[test]
fn rfc5666_3_8_what_is_sent() {
    let (mut raw, read) = exposed(ReadRead::default(), Timeouts::default(), 5001);
    let [entry] = read[..] else { panic!("{read:?}") };
    // Behind the RPC header of 24 bytes and the count.
    assert_eq!((entry.position, entry.segment.length, entry.padding), (28, 5001, false));
    assert_eq!(raw.fabric.outstanding().windows, 1);
    raw.send(done(1));
    assert_eq!(raw.fabric.outstanding().windows, 0);
    assert!(raw.received.is_empty(), "nothing answers an RDMA_DONE");
    // RFC 5666 §5.1
    raw.send(message(
        &header(2, Body::Message(ChunkLists::default())),
        &rpc(2, LIST, &9001_u32.to_be_bytes()),
    ));
    let (answer, rest) = raw.last();
    let Body::NoMessage(lists) = answer.body else { panic!("{:?}", answer.body) };
    assert_eq!((lists.read[0].position, rest.len(), lists.write.len(), lists.reply), (0, 0, 0, None));
    assert_eq!(lists.read.iter().map(|entry| entry.segment.length).sum::<u32>(), 28 + 9004);
}

/// Least rights: a peer can read exposed memory but not write to it.
#[test]
fn i7_exposed_memory_is_read_only() {
    let (mut raw, read) = exposed(ReadRead::default(), Timeouts::default(), 5001);
    raw.write(Bytes::from_static(&[0xff; 4]), read[0].segment);
    assert!(raw.end.closed.is_some());
    assert_eq!(raw.fabric.outstanding().windows, 0);
}

/// A second RDMA_DONE and one for an unknown XID are discarded; one before any RDMA Read is believed.
#[test]
fn rfc5666_3_8_every_rdma_done() {
    let (mut raw, read) = exposed(ReadRead::default(), Timeouts::default(), 5001);
    raw.send(done(77));
    assert_eq!(raw.end.connection.stats().errors.get("unknown_done"), Some(&1));
    assert_eq!(raw.fabric.outstanding().windows, 1);
    // An RDMA_DONE before any RDMA Read means that the peer does not want the reply.
    raw.send(done(1));
    assert_eq!(raw.fabric.outstanding().windows, 0);
    raw.send(done(1));
    assert_eq!(raw.end.connection.stats().errors.get("unknown_done"), Some(&2));
    assert_eq!(raw.end.connection.stats().dones_received, 1);
    expect_alive(&mut raw);
    // An RDMA Read of closed memory ends the connection.
    let id = rpcrdma_verbs::WrId(1 << 40);
    let sink = rpcrdma_verbs::Buffer::adopt(vec![0; 5001]);
    let sources = vec![RemoteSegment::from(&read[0].segment)];
    let request = rpcrdma_verbs::WorkRequest::Read { sink, sources };
    rpcrdma_verbs::QueuePair::post(&mut raw.peer, id, request).unwrap();
    raw.settle();
    assert!(raw.end.closed.is_some());
}

/// A flood of RDMA_DONEs costs neither Receives nor credits.
// requirement: rfc5666-3.8-4
#[test]
fn i6_rdma_dones_without_number_are_survived() {
    let (mut raw, _) = exposed(ReadRead::default(), Timeouts::default(), 5001);
    for xid in 0..300 {
        raw.send(done(xid));
    }
    assert_eq!(raw.end.connection.stats().dones_received, 1);
    expect_alive(&mut raw);
}

/// RFC 5666 §11: if a client never sends RDMA_DONE, a timer closes the memory, and the connection goes on.
// requirement: rfc5666-11-4, rfc5666-11-6, rfc5042-6.3.3-1
#[test]
fn i6_rfc5666_11_exposure_is_limited_in_time() {
    let timeouts =
        Timeouts { done: Duration::from_secs(7), idle: Some(Duration::from_secs(3)), ..Timeouts::default() };
    let (mut raw, _) = exposed(ReadRead::default(), timeouts, 5001);
    let due = raw.end.connection.poll_timeout().unwrap();
    assert!(due > raw.fabric.instant() + Duration::from_secs(6), "not idle");
    raw.fabric.advance(Duration::from_secs(7));
    let now = raw.fabric.instant();
    raw.end.connection.handle_timeout(now);
    raw.settle();
    assert_eq!(raw.fabric.outstanding().windows, 0);
    assert_eq!(raw.end.connection.stats().exposures_expired, 1);
    raw.send(done(1));
    assert_eq!(raw.end.connection.stats().errors.get("unknown_done"), Some(&1));
    expect_alive(&mut raw);
}

/// Rules I1, I2: if the window of exposed memory does not close, the connection ends.
#[test]
fn i2_a_failed_invalidation_of_exposed_memory_ends_the_connection() {
    for (status, reason) in [(Status::Fatal, Some(CloseReason::InvalidationFailed)), (Status::Success, None)]
    {
        let (mut raw, _) = exposed(ReadRead::default(), Timeouts::default(), 5001);
        let now = raw.fabric.instant();
        // The RDMA_DONE bypasses the provider, because the provider's windows always close.
        let message = Buffer::adopt(done(1).to_vec());
        let (len, buffers) = (message.len(), vec![message]);
        let work = Work::Receive { len, buffers, invalidated: None, solicited: false };
        let connection = &mut raw.end.connection;
        connection.handle_completion(now, Completion { id: WrId(1), status: Status::Success, work });
        assert_eq!(connection.stats().dones_received, 1);
        let mut invalidation = None;
        while let Some(post) = connection.poll_transmit(now, &mut raw.end.qp) {
            if let crate::Post::Work(id, WorkRequest::LocalInvalidate { .. }) = post {
                invalidation = Some(id);
            }
        }
        let id = invalidation.expect("the window is being closed");
        let work = Work::LocalInvalidate { memory: None };
        connection.handle_completion(now, Completion { id, status, work });
        let aborts = matches!(connection.poll_transmit(now, &mut raw.end.qp), Some(crate::Post::Abort));
        assert_eq!(aborts, reason.is_some());
        if aborts {
            rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
        }
        raw.settle();
        assert_eq!(raw.end.closed, reason);
    }
}

/// RFC 5666 §11: the number and bytes of exposed replies per connection are bounded. Further replies wait for earlier
/// ones to close.
// requirement: rfc5666-11-4
#[test]
fn i6_rfc5666_11_exposure_is_limited_in_number_and_bytes() {
    for read_read in [
        ReadRead { exposed_replies: 2, ..ReadRead::default() },
        ReadRead { exposed_bytes: 12_000, ..ReadRead::default() },
    ] {
        let (mut raw, _) = exposed(read_read.clone(), Timeouts::default(), 5001);
        ask(&mut raw, 2, 5001);
        for xid in 3..6 {
            raw.send(message(
                &header(xid, Body::Message(ChunkLists::default())),
                &rpc(xid, READ, &5001_u32.to_be_bytes()),
            ));
        }
        assert!(raw.received.is_empty(), "they wait");
        assert_eq!(raw.fabric.outstanding().windows, 2);
        // A reply that exposes nothing does not wait.
        expect_alive(&mut raw);
        raw.send(done(2));
        assert_eq!((raw.received.len(), raw.last().0.xid), (1, 3));
        // The timer that closes exposed memory lets the next reply leave, too.
        raw.fabric.advance(Duration::from_secs(30));
        let now = raw.fabric.instant();
        raw.end.connection.handle_timeout(now);
        raw.settle();
        assert_eq!((raw.received.len(), raw.last().0.xid), (3, 5));
        raw.received.clear();
        // A reply beyond the whole limit is refused for good.
        raw.send(message(
            &header(9, Body::Message(ChunkLists::default())),
            &rpc(9, READ, &20_000_u32.to_be_bytes()),
        ));
        if read_read.exposed_bytes < 20_000 {
            expect_error(&mut raw, 9, ErrorBody::Chunk, "reply_not_exposed");
        } else {
            assert!(raw.received.is_empty());
        }
    }
}

/// RFC 5666 §11: the limits themselves are allowed, and no reply is exposed where none may be.
// requirement: rfc5666-11-4
#[test]
fn i6_rfc5666_11_as_much_as_the_limits_is_exposed() {
    let (mut raw, _) =
        exposed(ReadRead { exposed_bytes: 10_002, ..ReadRead::default() }, Timeouts::default(), 5001);
    assert_eq!(ask(&mut raw, 2, 5001).len(), 1, "both fill the limit");
    raw.send(done(1));
    raw.send(done(2));
    assert_eq!(ask(&mut raw, 3, 10_002).len(), 1, "one fills the limit");
    raw.send(read_call(4, 8));
    assert!(raw.received.is_empty(), "it waits");

    let config = exposing(ReadRead { exposed_replies: 0, ..ReadRead::default() });
    let mut raw = Raw::new(Side::Server, config);
    raw.send(read_call(1, 8));
    expect_error(&mut raw, 1, ErrorBody::Chunk, "reply_not_exposed");
}

/// RFC 5666 §11: the credits of a client cover the RDMA_DONEs of all exposed replies and one Call more.
// requirement: rfc5666-3.8-2, rfc5666-11-5
#[test]
fn rfc5666_11_a_reply_waits_for_the_rdma_dones_that_fill_the_grant() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    raw.send(read_call(1, 2));
    assert_eq!(raw.last().0.xid, 1);
    raw.received.clear();
    raw.send(read_call(2, 2));
    assert!(raw.received.is_empty(), "it waits");
    // It waits for the other reply, which has a timer of its own, and not for memory.
    assert_eq!(raw.end.connection.wants_memory(), None);
    raw.send(done(1));
    let (answer, _) = raw.last();
    assert_eq!((answer.xid, answer.credit), (2, 2));
    assert!(matches!(answer.body, Body::Message(lists) if lists.read.len() == 1));
}

/// Rules I2, I6: a window of exposed memory that does not close in time ends the connection. Until then, a second
/// RDMA_DONE is for an unknown XID, and nothing is invalidated twice.
#[test]
fn i6_the_invalidation_of_exposed_memory_has_a_deadline() {
    let (mut raw, _) = exposed(ReadRead::default(), Timeouts::default(), 5001);
    let now = raw.fabric.instant();
    let mut invalidations = 0;
    // Whether the connection ends, with nothing handed to the provider.
    let mut ends = |raw: &mut Raw, at| {
        while let Some(post) = raw.end.connection.poll_transmit(at, &mut raw.end.qp) {
            match post {
                crate::Post::Work(_, WorkRequest::LocalInvalidate { .. }) => invalidations += 1,
                crate::Post::Abort => return true,
                _ => {}
            }
        }
        false
    };
    // The RDMA_DONEs bypass the provider, because the provider's windows always close.
    for number in 1..=2 {
        let message = Buffer::adopt(done(1).to_vec());
        let (len, buffers) = (message.len(), vec![message]);
        let work = Work::Receive { len, buffers, invalidated: None, solicited: false };
        let completion = Completion { id: WrId(number), status: Status::Success, work };
        raw.end.connection.handle_completion(now, completion);
        assert!(!ends(&mut raw, now));
    }
    assert_eq!(raw.end.connection.stats().dones_received, 1);
    assert_eq!(raw.end.connection.stats().errors.get("unknown_done"), Some(&1));
    let due = now + Timeouts::default().invalidate;
    let before = due - Duration::from_nanos(1);
    raw.end.connection.handle_timeout(before);
    assert!(!ends(&mut raw, before), "not before its deadline");
    // Data that moves gives the closing of a window no time.
    raw.end.connection.handle_progress(before, rpcrdma_verbs::Progress::new(0, 1 << 30, 0));
    raw.end.connection.handle_timeout(due);
    assert!(ends(&mut raw, due));
    assert_eq!(invalidations, 1);
    rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("the invalidation of a window")));
}

/// RFC 5666 §11: "originating from one or many clients". Exposed memory counts against the domain, and a reply waits
/// for it as for any other memory.
// requirement: rfc5666-11-4
#[test]
fn i6_rfc5666_11_what_is_exposed_is_charged_to_the_domain() {
    let (mut raw, _) = exposed(ReadRead::default(), Timeouts::default(), 5001);
    let used = raw.end.domain.usage().in_use;
    raw.send(done(1));
    assert_eq!(used - raw.end.domain.usage().in_use, ProtectionDomain::room_for(5001));
    for in_time in [true, false] {
        let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
        let held = hold_all(&raw.end.domain);
        raw.send(read_call(1, 8));
        assert!(raw.received.is_empty());
        assert_eq!(raw.end.connection.wants_memory(), Some(ProtectionDomain::room_for(5001)));
        if in_time {
            drop(held);
            raw.settle();
            assert!(matches!(raw.last().0.body, Body::Message(lists) if lists.read.len() == 1));
        } else {
            pass(&mut raw, Duration::from_secs(30));
            assert_eq!(raw.end.closed, Some(CloseReason::Timeout("memory for an answer")));
        }
    }
}

fn read_call(xid: u32, credit: u32) -> Bytes {
    let header = Header { credit, ..header(xid, Body::Message(ChunkLists::default())) };
    message(&header, &rpc(xid, READ, &5001_u32.to_be_bytes()))
}

fn pass(raw: &mut Raw, time: Duration) {
    raw.fabric.advance(time);
    let now = raw.fabric.instant();
    raw.end.connection.handle_timeout(now);
    raw.settle();
}

/// RFC 5666 §11: a grant of 1 while Receives are lacking is temporary; ERR_CHUNK would be final.
#[test]
fn rfc5666_11_a_passing_lack_of_credits_is_waited_for() {
    let config = Config { grant: 8, early_calls: 3, ..exposing(ReadRead::default()) };
    let mut raw = Raw::new(Side::Server, config);
    let held = hold_all(&raw.end.domain);
    raw.send(read_call(1, 8));
    assert!(raw.received.is_empty());
    assert!(raw.end.connection.wants_memory().is_some() && raw.end.connection.poll_timeout().is_some());
    drop(held);
    raw.settle();
    assert_eq!(raw.last().0.credit, 8);
    assert!(matches!(raw.last().0.body, Body::Message(lists) if lists.read.len() == 1));
    // A client that asks for one credit only never gets two.
    raw.send(done(1));
    raw.received.clear();
    raw.send(read_call(2, 1));
    expect_error(&mut raw, 2, ErrorBody::Chunk, "reply_not_exposed");
}

/// A reply waits for windows that our own calls hold. If none closes in time, the connection ends (rule I6).
#[test]
fn i6_windows_for_a_reply_are_waited_for() {
    for in_time in [true, false] {
        let mut capabilities = rpcrdma_verbs::Capabilities::default();
        capabilities.max_windows = 2;
        let fabric = Fabric::new(FabricConfig { capabilities, ..FabricConfig::default() });
        let config = Config { reverse_chunks: true, ..exposing(ReadRead::default()) };
        let mut raw = Raw::on(&fabric, Side::Server, config, &Config::default());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, store(100, 9000)).unwrap();
        raw.settle();
        assert_eq!(raw.fabric.outstanding().windows, 2, "{:?}", raw.end.replies);
        raw.received.clear();
        raw.send(read_call(1, 8));
        assert!(raw.received.is_empty());
        // A reply that needs no window does not wait.
        expect_alive(&mut raw);
        raw.received.clear();
        if in_time {
            let stored = accepted(100, &9000_u32.to_be_bytes());
            raw.send(message(&header(100, Body::Message(ChunkLists::default())), &stored));
            assert!(matches!(raw.last().0.body, Body::Message(lists) if lists.read.len() == 1));
            pass(&mut raw, Duration::from_secs(31));
            assert!(raw.end.closed.is_none());
        } else {
            let due = raw.end.connection.poll_timeout().unwrap() - raw.fabric.instant();
            let before = Duration::from_nanos(1);
            pass(&mut raw, due - before);
            assert!(raw.end.closed.is_none(), "not before its deadline");
            pass(&mut raw, before);
            assert_eq!(raw.end.closed, Some(CloseReason::Timeout("windows for an answer")));
        }
    }
}

/// Rule I6: without a Receive for the next Call the only Call in progress cannot be answered; that wait has a timer, too.
#[test]
fn i6_an_answer_does_not_wait_for_a_receive_for_ever() {
    let config = Config { grant: 8, early_calls: 1, ..server_config() };
    let mut raw = Raw::new(Side::Server, config);
    raw.end.serving = false;
    let _held = hold_all(&raw.end.domain);
    raw.send(message(&header(1, Body::Message(ChunkLists::default())), &rpc(1, 0, &[])));
    // The Call's message still holds the memory of its Receive.
    let (token, .., message) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(message.clone()));
    raw.settle();
    assert!(raw.received.is_empty());
    pass(&mut raw, Duration::from_secs(29));
    assert!(raw.end.closed.is_none());
    pass(&mut raw, Duration::from_secs(1));
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("memory for an answer")));
    assert_eq!(raw.end.connection.poll_timeout(), None);
    drop(message);
}

/// Rule I3: the receive queue holds one Receive for each credit, each call in the reverse direction and each RDMA_DONE.
#[test]
fn i3_the_receive_queue_has_room_for_rdma_dones_and_reverse_calls() {
    let config = Config { grant: 8, calls: 8, ..exposing(ReadRead::default()) };
    assert_eq!(config.max_recv_wr(), 8 + 8 + 16 + 1 + crate::OPERATION_RECEIVES);
    let mut raw = Raw::new(Side::Server, config);
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(100)).unwrap();
    raw.settle();
    raw.send(message(&header(100, Body::Message(ChunkLists::default())), &accepted(100, &[])));
    raw.received.clear();
    for xid in 101..109 {
        raw.end.connection.call(now, null(xid)).unwrap();
    }
    raw.settle();
    assert_eq!(raw.received.len(), 8);
    for xid in 1..=7 {
        assert_eq!(ask(&mut raw, xid, 5001).len(), 1);
    }
    assert_eq!(raw.end.connection.receives_posted(), 8 + 8 + 7);
    assert!(raw.end.closed.is_none());
    for xid in 1..=7 {
        raw.send(done(xid));
    }
    expect_alive(&mut raw);
}

/// RFC 5666 §11: the grant leaves a credit beyond the RDMA_DONEs, or nothing is exposed.
// requirement: rfc5666-3.8-2, rfc5666-11-5
#[test]
fn rfc5666_11_rdma_dones_never_take_the_last_credit() {
    let config = Config { grant: 1, ..exposing(ReadRead::default()) };
    let mut raw = Raw::new(Side::Server, config);
    raw.send(message(
        &header(1, Body::Message(ChunkLists::default())),
        &rpc(1, READ, &5001_u32.to_be_bytes()),
    ));
    expect_error(&mut raw, 1, ErrorBody::Chunk, "reply_not_exposed");
}

/// Rules I3 and I4 with RDMA_DONEs. Calls and RDMA_DONEs whose Receive is not back never exceed the grant. With the
/// fewest possible credits all calls still end.
// requirement: rfc5666-3.8-2, rfc5666-3.8-3, rfc5666-3.8-4
#[test]
fn i4_rdma_dones_stay_within_the_grant() {
    for fabric in fabrics() {
        for grant in [2, 3, 5, 64] {
            let fabric = Fabric::new(fabric.clone());
            let server = Config {
                grant,
                early_calls: 1,
                ..exposing(ReadRead { exposed_replies: 64, ..ReadRead::default() })
            };
            let mut pair = Pair::on(&fabric, withholding(), server, 64 << 20);
            // Messages of the client whose Receive the server has not posted again: Calls until their reply, RDMA_DONEs
            // until the reply to a later Call.
            let state = Arc::new(Mutex::new((Vec::<(u32, bool)>::new(), 0_usize)));
            let seen = Arc::clone(&state);
            fabric.tap(move |delivery| {
                if delivery.kind != MessageKind::Send {
                    return;
                }
                let (header, _) = V1.decode(&delivery.message, &Limits::default()).unwrap();
                let (open, most) = &mut *seen.lock().unwrap();
                if delivery.from == SimSide::A {
                    open.push((header.xid, header.body == Body::Done));
                    *most = (*most).max(open.len());
                } else if let Some(at) = open.iter().position(|(xid, done)| *xid == header.xid && !done) {
                    open.remove(at);
                    let mut index = 0;
                    open.retain(|(_, done)| {
                        index += 1;
                        !(*done && index <= at)
                    });
                }
            });
            for xid in 0..40 {
                pair.call(if xid % 3 == 0 { null(xid) } else { read(xid, 5001) });
            }
            pair.settle();
            assert_eq!(pair.client.replies.len(), 40, "{grant}");
            assert!(pair.client.replies.iter().all(|(_, result)| result.is_ok()));
            let most = u32::try_from(state.lock().unwrap().1).unwrap();
            assert!(most <= grant, "{most} of {grant}");
            assert_eq!(pair.client.connection.stats().dones_sent, 26);
            assert!(pair.client.closed.is_none() && pair.server.closed.is_none());
            pair.check_no_leak();
        }
    }
}

/// A server exposes a reply although it grants one credit; the RDMA_DONE takes that credit, so no Call could ever follow.
#[test]
fn i8_a_client_without_a_credit_beyond_its_rdma_dones_starts_afresh() {
    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, read(1, 5001));
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(2)).unwrap();
    let data = raw.readable(&pattern(5001));
    let one = Header { credit: 1, ..header(1, Body::Message(lists(vec![at(28, data)], vec![], None))) };
    raw.send(message(&one, &accepted(1, &5001_u32.to_be_bytes())));
    assert_eq!(raw.end.closed, Some(CloseReason::CreditsInDones));
    let results: Vec<_> = raw.end.replies.drain(..).collect();
    assert!(results[0].1.is_ok());
    let failure = results[1].1.as_ref().unwrap_err();
    assert!(failure.call.is_some() && !failure.sent, "to be tried on the next connection");
}

/// A reply to READ with this Read list.
fn reply_with(xid: u32, read: Vec<ReadSegment>, len: u32) -> Bytes {
    message(&header(xid, Body::Message(lists(read, vec![], None))), &accepted(xid, &len.to_be_bytes()))
}

/// The RDMA_DONE leaves after the RDMA Reads, and then the call completes.
// requirement: rfc5666-3.5-1
#[test]
fn rfc5666_3_8_the_client_reads_then_says_done() {
    for padded in [false, true] {
        let mut raw = Raw::new(Side::Client, opted(ReadRead::default(), Config::default()));
        send(&mut raw, read(1, 5001));
        let mut data = pattern(5001).to_vec();
        if padded {
            data.extend([0; 3]);
        }
        let (first, second) = data.split_at(2000);
        let list = vec![at(28, raw.readable(first)), at(28, raw.readable(second))];
        raw.send(reply_with(1, list, 5001));
        assert_eq!(raw.last().0, Header { credit: 128, ..header(1, Body::Done) });
        assert_eq!(raw.received.last().unwrap().len(), 16);
        check_reply(READ, 5001, result(&mut raw).unwrap().unwrap());
    }
}

/// The client refuses Read lists beyond the limits, the call or the binding, and Read lists that make no message.
#[test]
fn i5_a_read_list_of_a_reply_is_bounded_before_anything_is_read() {
    let nowhere = |position, length| at(position, Segment { handle: 0xbad, length, offset: 0 });
    let inline = |read| reply_with(1, read, 5001);
    let long = |read| message(&header(1, Body::NoMessage(lists(read, vec![], None))), &Stream::new());
    let touched = {
        let mut call = read(1, 5001);
        call.flavor_touches_data = true;
        call
    };
    for (call, bad, name) in [
        (read(1, 5001), inline(vec![nowhere(28, 5008)]), "reply_read_too_long"),
        (read(1, 5001), inline(vec![nowhere(28, 5005)]), "reply_read_too_long"),
        (read(1, 5001), inline(vec![nowhere(28, u32::MAX)]), "read_segment_too_long"),
        (read(1, 5001), inline(vec![nowhere(24, 4), nowhere(28, 5001)]), "reply_read_chunks"),
        (read(1, 5001), inline(vec![nowhere(32, 5001)]), "position_beyond_message"),
        (read(1, 5001), inline(vec![nowhere(0, 5001)]), "position_zero_in_message"),
        (read(1, 5001), inline(vec![nowhere(30, 5001)]), "unaligned_position"),
        (read(1, 5001), long(vec![nowhere(28, 5001)]), "position_beyond_message"),
        (read(1, 5001), long(vec![nowhere(0, 5036)]), "reply_read_too_long"),
        (touched, inline(vec![nowhere(28, 5001)]), "reply_read_chunks"),
        (null(1), inline(vec![nowhere(28, 4)]), "reply_read_chunks"),
        (null(1), long(vec![nowhere(0, 32)]), "reply_read_too_long"),
    ] {
        let mut raw = Raw::new(Side::Client, opted(ReadRead::default(), Config::default()));
        send(&mut raw, call);
        discarded(&mut raw, bad, plain(1), name);
    }
}

/// If the RDMA Read of a reply fails, the connection ends, and the call is tried again on the next one.
#[test]
fn i8_a_reply_that_cannot_be_read_loses_the_connection_and_not_the_call() {
    for completion_mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let fabric = Fabric::new(FabricConfig { completion_mode, ..FabricConfig::default() });
        let mut raw = Raw::on(&fabric, Side::Client, withholding(), &Config::default());
        send(&mut raw, read(1, 5001));
        raw.send(reply_with(1, vec![at(28, Segment { handle: 0xbad, length: 5001, offset: 0 })], 5001));
        assert!(raw.end.closed.is_some());
        let failure = result(&mut raw).unwrap().unwrap_err();
        assert!(failure.sent && failure.call.is_some(), "{failure}");
        assert!(!raw.received.iter().any(|sent| sent[12..16] == 3_u32.to_be_bytes()), "no RDMA_DONE");
    }
}

/// For an abandoned call the client sends RDMA_DONE without reading.
#[test]
fn i10_an_abandoned_reply_is_not_read() {
    let mut raw = Raw::new(Side::Client, withholding());
    let now = raw.fabric.instant();
    let id = raw.end.connection.call(now, read(1, 5001)).unwrap();
    raw.settle();
    raw.end.connection.abandon(now, id);
    raw.send(reply_with(1, vec![at(28, Segment { handle: 0xbad, length: 5001, offset: 0 })], 5001));
    assert_eq!(raw.last().0.body, Body::Done);
    assert!(raw.end.replies.is_empty() && raw.end.closed.is_none());
    assert!(!raw.end.connection.xid_in_use(1));
}

/// A timer bounds the wait for memory to read into. More than the domain ever has fails the call, and an RDMA_DONE leaves.
#[test]
fn i6_memory_for_a_reply_is_waited_for() {
    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, read(1, 5001));
    let held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(5001));
    raw.send(reply_with(1, vec![at(28, data)], 5001));
    assert_eq!(raw.end.connection.wants_memory(), Some(ProtectionDomain::room_for(5001)));
    assert!(raw.end.replies.is_empty());
    drop(held);
    raw.settle();
    check_reply(READ, 5001, result(&mut raw).unwrap().unwrap());

    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, read(1, 5001));
    let held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(5001));
    raw.send(reply_with(1, vec![at(28, data)], 5001));
    raw.fabric.advance(Duration::from_secs(30));
    let now = raw.fabric.instant();
    raw.end.connection.handle_timeout(now);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("memory for a reply's chunks")));
    drop(held);
}

/// The call's own deadline runs while its reply is read. After that deadline nothing is read, and the connection stays.
#[test]
fn i10_a_call_times_out_while_its_reply_waits_for_memory() {
    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, Call { timeout: Some(Duration::from_secs(5)), ..read(1, 5001) });
    let _held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(5001));
    raw.send(reply_with(1, vec![at(28, data)], 5001));
    assert!(raw.end.replies.is_empty());
    pass(&mut raw, Duration::from_secs(5));
    assert_eq!(result(&mut raw).unwrap().unwrap_err().error, CallError::TimedOut);
    assert_eq!(raw.last().0.body, Body::Done);
    assert!(raw.end.closed.is_none() && !raw.end.connection.xid_in_use(1));
    assert_eq!(raw.end.connection.wants_memory(), None);
}

/// The client reads before the peer can be expected to close exposed memory, whatever its timers for memory and RDMA
/// Reads allow.
#[test]
fn i6_replies_are_read_before_their_exposure_ends() {
    for (done, expected) in [(8, 6), (30, 22), (400, 30)] {
        let timeouts = Timeouts { done: Duration::from_secs(done), ..Timeouts::default() };
        let mut raw = Raw::new(Side::Client, Config { timeouts, ..withholding() });
        send(&mut raw, read(1, 5001));
        let _held = hold_all(&raw.end.domain);
        let data = raw.readable(&pattern(5001));
        raw.send(reply_with(1, vec![at(28, data)], 5001));
        let due = raw.end.connection.poll_timeout().unwrap() - raw.fabric.instant();
        assert_eq!(due.as_secs(), expected, "{done}");
    }
}

/// RFC 8166 §4.2.1, §4.5.2: a reply that was read is checked like an inline reply.
#[test]
fn s4_2_1_what_was_read_as_the_reply_is_its_reply() {
    for (words, name) in [([2, 1], "xid_mismatch"), ([1, 0], "wrong_direction")] {
        let mut raw = Raw::new(Side::Client, withholding());
        send(&mut raw, list(1, 5000));
        let mut data = accepted(1, &pattern(5004)).flatten().0.to_vec();
        data[..8].copy_from_slice(&words.map(u32::to_be_bytes).concat());
        let exposed = raw.readable(&data);
        let read = lists(vec![at(0, exposed)], vec![], None);
        raw.send(message(&header(1, Body::NoMessage(read)), &Stream::new()));
        let error = result(&mut raw).unwrap().unwrap_err().error;
        assert!(matches!(error, CallError::BadReply(fault) if fault.name() == name));
        assert_eq!(raw.end.connection.stats().errors.get(name), Some(&1));
    }
}

/// If the connection is lost at any step, no memory is lost, and every call has its event.
#[test]
fn i1_nothing_is_lost_when_the_connection_ends_at_any_step() {
    for completion_mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        for steps in 0..60 {
            let fabric =
                Fabric::new(FabricConfig { completion_mode, segment_size: 2000, ..FabricConfig::default() });
            let mut pair = Pair::on(&fabric, withholding(), exposing(ReadRead::default()), 64 << 20);
            for xid in 0..4 {
                pair.call(if xid % 2 == 0 { read(xid, 9001) } else { list(xid, 7000) });
            }
            for _ in 0..steps {
                pair.pump();
                if !fabric.step() {
                    break;
                }
            }
            rpcrdma_verbs::QueuePair::abort(&mut pair.server.qp);
            pair.settle();
            assert_eq!(pair.client.replies.len(), 4);
            assert!(pair.client.closed.is_some() && pair.server.closed.is_some());
            assert_eq!(fabric.outstanding().windows, 0);
            assert_eq!(pair.server.connection.poll_timeout(), None);
        }
    }
}

/// A reply counts as sent whatever other replies are exposed; else a client that always keeps one exposed would prove
/// no arrival.
#[test]
fn i6_i8_only_an_exposed_reply_waits_to_be_read() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    raw.end.serving = false;
    let call = |raw: &mut Raw, xid, procedure, arguments: &[u8]| {
        raw.send(message(
            &header(xid, Body::Message(ChunkLists::default())),
            &rpc(xid, procedure, arguments),
        ));
        let (token, _, _, message) = raw.end.calls.pop().unwrap();
        let now = raw.fabric.instant();
        raw.end.connection.reply(now, token, serve(message));
        raw.settle();
        token
    };
    // The reply cache's view: replies that wait to leave, and replies that left and may be dropped.
    let (mut waiting, mut left, mut in_order) = (vec![], std::collections::VecDeque::new(), 0);
    let mut exposed = vec![];
    for xid in 1..=160 {
        if xid % 10 == 1 {
            exposed.push((xid, call(&mut raw, xid, READ, &20_000_u32.to_be_bytes())));
        }
        // Some reply is always exposed, but each only briefly.
        if exposed.len() == 2 {
            let (first, token) = exposed.remove(0);
            assert!(!raw.end.connection.has_departed(token), "it is not read");
            raw.send(done(first));
            assert!(raw.end.connection.has_departed(token));
        }
        waiting.push(call(&mut raw, 10_000 + xid, STORE, &0_u32.to_be_bytes()));
        let connection = &raw.end.connection;
        let mark = connection.posted();
        left.extend(waiting.extract_if(.., |token| connection.has_departed(*token)).map(|_| mark));
        while left.front().is_some_and(|mark| connection.is_in_order(*mark)) {
            left.pop_front();
            in_order += 1;
        }
        assert!(left.len() + waiting.len() <= 2, "after {xid} of them {} wait", left.len() + waiting.len());
        raw.received.clear();
    }
    assert_eq!(in_order, 160);
}

fn ask_for(raw: &mut Raw, xid: u32, len: u32) {
    let call = rpc(xid, READ, &len.to_be_bytes());
    raw.send(message(&header(xid, Body::Message(ChunkLists::default())), &call));
}

/// A reply waits for a window that another reply holds. If none is held, it never finds its windows, and is refused.
#[test]
fn i6_a_reply_waits_for_windows_only_while_any_is_held() {
    let mut capabilities = rpcrdma_verbs::Capabilities::default();
    capabilities.max_windows = 1;
    let fabric = Fabric::new(FabricConfig { capabilities, ..FabricConfig::default() });
    let config = Config { max_segment_len: 6000, ..exposing(ReadRead::default()) };
    let mut raw = Raw::on(&fabric, Side::Server, config, &Config::default());
    ask_for(&mut raw, 1, 15_000);
    expect_error(&mut raw, 1, ErrorBody::Chunk, "reply_not_exposed");
    assert_eq!(raw.fabric.outstanding().windows, 0, "the reservation is released");
    raw.received.clear();
    ask(&mut raw, 2, 5001);
    ask_for(&mut raw, 3, 5001);
    assert!(raw.received.is_empty(), "it waits");
    raw.send(done(2));
    assert_eq!(raw.last().0.xid, 3);
}

/// A reply that needs more windows than are free waits without another try until some are closed. One that needs more than
/// there are does not wait.
#[test]
fn i6_a_reply_that_waits_for_several_windows_is_at_rest() {
    let mut capabilities = rpcrdma_verbs::Capabilities::default();
    capabilities.max_windows = 2;
    let fabric = Fabric::new(FabricConfig { capabilities, ..FabricConfig::default() });
    let config = Config { max_segment_len: 6000, ..exposing(ReadRead::default()) };
    let mut raw = Raw::on(&fabric, Side::Server, config, &Config::default());
    ask(&mut raw, 1, 5001);
    ask_for(&mut raw, 2, 11_000);
    assert!(raw.received.is_empty(), "it waits");
    assert_eq!(raw.end.connection.stats().local_invalidations, 0, "nothing was reserved");
    raw.send(done(1));
    assert_eq!(raw.last().0.xid, 2);
    raw.received.clear();
    ask_for(&mut raw, 3, 15_000);
    expect_error(&mut raw, 3, ErrorBody::Chunk, "reply_not_exposed");
}

/// If the queue pair has ended, nothing is exposed, and the reply is no fault.
#[test]
fn i8_no_reply_is_exposed_on_a_queue_pair_that_has_ended() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    raw.end.serving = false;
    ask_for(&mut raw, 1, 5001);
    let (token, .., message) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
    raw.end.connection.reply(now, token, serve(message));
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
        assert!(!matches!(post, crate::Post::Work(_, WorkRequest::Send { .. })), "{post:?}");
    }
    assert_eq!(raw.end.connection.stats().errors.get("reply_not_exposed"), None);
    raw.settle();
}

/// Hands over a message by a completion, without the provider.
fn bypass(raw: &mut Raw, number: u64, message: &Bytes) {
    let message = Buffer::adopt(message.to_vec());
    let (len, buffers) = (message.len(), vec![message]);
    let work = Work::Receive { len, buffers, invalidated: None, solicited: false };
    let now = raw.fabric.instant();
    let completion = Completion { id: WrId(number), status: Status::Success, work };
    raw.end.connection.handle_completion(now, completion);
}

/// Returns the requests that are ready now, without handing them to the provider.
fn posts(raw: &mut Raw) -> Vec<(WrId, WorkRequest)> {
    let now = raw.fabric.instant();
    let connection = &mut raw.end.connection;
    let ready = std::iter::from_fn(|| connection.poll_transmit(now, &mut raw.end.qp));
    ready
        .filter_map(|post| if let crate::Post::Work(id, work) = post { Some((id, work)) } else { None })
        .collect()
}

/// Rule I1: a reply is exposed until the last of its windows is invalid.
#[test]
fn i1_a_reply_is_exposed_until_all_its_windows_are_invalid() {
    let config = Config { max_segment_len: 3000, ..exposing(ReadRead::default()) };
    let mut raw = Raw::new(Side::Server, config);
    raw.end.serving = false;
    ask_for(&mut raw, 1, 5001);
    let (token, .., message) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(message));
    raw.settle();
    assert_eq!(raw.fabric.outstanding().windows, 2);
    bypass(&mut raw, 1, &done(1));
    let invalidations: Vec<_> = posts(&mut raw)
        .into_iter()
        .filter(|(_, work)| matches!(work, WorkRequest::LocalInvalidate { .. }))
        .collect();
    assert_eq!(invalidations.len(), 2);
    for (index, (id, _)) in invalidations.into_iter().enumerate() {
        assert!(!raw.end.connection.has_departed(token), "{index} windows are invalid");
        let work = Work::LocalInvalidate { memory: None };
        raw.end.connection.handle_completion(now, Completion { id, status: Status::Success, work });
    }
    assert!(raw.end.connection.has_departed(token));
}

/// A connection counts as idle once no reply is exposed.
#[test]
fn i6_a_connection_is_idle_after_the_last_rdma_done() {
    let timeouts = Timeouts { idle: Some(Duration::from_secs(3)), ..Timeouts::default() };
    let (mut raw, _) = exposed(ReadRead::default(), timeouts, 5001);
    raw.send(done(1));
    pass(&mut raw, Duration::from_secs(3));
    assert_eq!(raw.end.closed, Some(CloseReason::Idle));
}

/// RFC 5666 §3.8: the form holds in the forward direction, so a server reads no reply.
#[test]
fn rfc5666_3_8_a_server_reads_no_reply() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(100)).unwrap();
    raw.settle();
    raw.send(reply_with(100, vec![at(28, Segment { handle: 0xbad, length: 4, offset: 0 })], 4));
    assert_eq!(raw.end.connection.stats().errors.get("reply_read_list"), Some(&1));
    assert!(raw.end.replies.is_empty());
}

/// RFC 8166 §4.3.1: another form does not enable exposed replies.
#[test]
fn s4_3_1_another_form_exposes_no_reply() {
    let compatibility = Compatibility { pad_chunks: true, ..Compatibility::default() };
    let mut raw = Raw::new(Side::Server, Config { compatibility, ..server_config() });
    ask_for(&mut raw, 1, 9000);
    expect_error(&mut raw, 1, ErrorBody::Chunk, "reply_too_long");
}

/// RFC 6581 §9.1: to a client whose ORD is 0 no reply is exposed.
#[test]
fn rfc5666_3_8_a_client_that_cannot_read_gets_no_exposed_reply() {
    let fabric = Fabric::new(FabricConfig::default());
    let mut raw =
        Raw::with_depths(&fabric, Side::Server, exposing(ReadRead::default()), &Config::default(), (16, 0));
    ask_for(&mut raw, 1, 9000);
    expect_error(&mut raw, 1, ErrorBody::Chunk, "reply_too_long");
}

/// A segment is never shorter than 1024 bytes, whatever the configuration says.
#[test]
fn rfc5666_3_8_segments_of_exposed_replies_have_a_least_length() {
    let config = Config { max_segment_len: 1, ..exposing(ReadRead::default()) };
    let mut raw = Raw::new(Side::Server, config);
    let lengths: Vec<_> = ask(&mut raw, 1, 5001).iter().map(|entry| entry.segment.length).collect();
    assert_eq!(lengths, [1024, 1024, 1024, 1024, 905]);
}

/// A Read list without bytes needs no RDMA Read: the RDMA_DONE leaves at once, and the call completes.
#[test]
fn rfc5666_3_8_a_read_list_without_bytes_is_not_read() {
    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, read(1, 5001));
    raw.send(reply_with(1, vec![at(28, Segment { handle: 0xbad, length: 0, offset: 0 })], 0));
    assert_eq!(raw.last().0.body, Body::Done);
    check_reply(READ, 0, result(&mut raw).unwrap().unwrap());
    assert!(raw.end.closed.is_none() && !raw.end.connection.xid_in_use(1));
}

/// RFC 8166 §4.3.3, RFC 5666 §5.1: a reply in the Reply chunk has no Position-Zero chunk.
#[test]
fn s4_3_3_a_reply_is_in_the_reply_chunk_or_in_a_read_chunk() {
    for len in [1, 24] {
        let mut raw = Raw::new(Side::Client, opted(ReadRead::default(), Config::default()));
        let offered = send(&mut raw, list(1, 9001));
        let mut read = lists(vec![at(0, Segment { handle: 0xbad, length: 32, offset: 0 })], vec![], None);
        read.reply = Some(offered.reply.as_ref().unwrap().filled(len));
        raw.send(message(&header(1, Body::NoMessage(read)), &Stream::new()));
        assert_eq!(raw.end.connection.stats().errors.get("reply_chunk_use"), Some(&1), "{len}");
        assert!(raw.end.closed.is_none());
    }
}

/// Without RDMA Reads, by the peer's IRD, no Read list of a reply is accepted.
#[test]
fn i6_a_read_list_of_a_peer_that_cannot_be_read_is_refused() {
    let fabric = Fabric::new(FabricConfig::default());
    let peer = Config::default();
    let mut raw = Raw::with_depths(&fabric, Side::Client, withholding(), &peer, (0, 16));
    send(&mut raw, read(1, 5001));
    let list = vec![at(28, Segment { handle: 0xbad, length: 5001, offset: 0 })];
    discarded(&mut raw, reply_with(1, list, 5001), plain(1), "reads_not_agreed");
}

/// Rule I6: answers give memory back, so an answer that waits for memory gets it before the arguments of other Calls.
#[test]
fn i6_an_answer_that_waits_for_memory_precedes_arguments() {
    let config = Config { early_calls: 2, ..exposing(ReadRead::default()) };
    let mut raw = Raw::new(Side::Server, config);
    raw.end.serving = false;
    raw.send(read_call(1, 2));
    let (token, .., call) = raw.end.calls.pop().unwrap();
    let answer = serve(call.clone());
    let mut held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(8));
    let reduced = rpc(2, WRITE, &8_u32.to_be_bytes());
    raw.send(message(&header(2, Body::Message(lists(vec![at(44, data)], vec![], None))), &reduced));
    assert_eq!(raw.end.connection.wants_memory(), Some(ProtectionDomain::room_for(8)), "for arguments");
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, answer);
    raw.settle();
    let room = ProtectionDomain::room_for(4096);
    assert_eq!(raw.end.connection.wants_memory(), Some(room), "for the RDMA_DONE of the answer");
    // One kilobyte is free: enough for the arguments, but not for a Receive.
    let place = held.iter().position(|buffer| buffer.len() == 4096).unwrap();
    drop(held.remove(place));
    held.extend((0..3).map(|_| raw.end.domain.allocate(1024, 1).unwrap()));
    assert!(raw.end.domain.allocate(1024, 1).is_ok() && raw.end.domain.allocate(4096, 1).is_err());
    raw.settle();
    assert_eq!((raw.received.len(), raw.end.calls.len()), (0, 0), "no arguments are read");
    drop(held);
    raw.settle();
    assert_eq!((raw.received.len(), raw.end.calls.len()), (1, 1));
}

/// RFC 8167 §5.3: a client that reads its replies takes a message with a Position-Zero chunk for a Call, unless it
/// awaits a reply with that XID.
#[test]
fn rfc8167_s5_3_only_an_awaited_reply_is_read() {
    for (xid, answers) in [(1, 0), (70, 1)] {
        let mut raw = Raw::new(Side::Client, withholding());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, list(1, 5000)).unwrap();
        raw.settle();
        raw.received.clear();
        let whole = raw.readable(&store(xid, 8).message.flatten().0);
        let chunk = lists(vec![at(0, whole)], vec![], None);
        raw.send(message(&header(xid, Body::NoMessage(chunk)), &Stream::new()));
        let refusals = raw.received.iter().filter(|message| {
            let (header, _) = V1.decode(message, &Limits::default()).unwrap();
            header.body == Body::Error(ErrorBody::Chunk)
        });
        assert_eq!(refusals.count(), answers, "{xid}");
    }
}

/// RFC 5666 §3.8: no Call leaves while a reply waits for the memory of its data.
#[test]
fn i6_a_reply_that_waits_for_memory_precedes_calls() {
    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, null(9));
    raw.send(plain(9));
    result(&mut raw).unwrap().unwrap();
    send(&mut raw, read(1, 100_001));
    let mut held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(100_001));
    raw.send(reply_with(1, vec![at(28, data)], 100_001));
    assert!(raw.end.replies.is_empty() && raw.end.connection.wants_memory().is_some());
    raw.received.clear();
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(2)).unwrap();
    // The Receive of the call has memory.
    held.retain(|buffer| buffer.len() > 1 << 12);
    raw.settle();
    assert!(raw.received.is_empty(), "the data comes first");
    drop(held);
    raw.settle();
    check_reply(READ, 100_001, result(&mut raw).unwrap().unwrap());
    assert!(raw.received.iter().any(|message| message[..4] == [0, 0, 0, 2]));
}

/// Rule I10: an abandoned call whose reply is being read has no timer and no event of its own.
#[test]
fn i10_a_call_that_is_abandoned_while_its_reply_is_read_has_no_event() {
    let mut raw = Raw::new(Side::Client, withholding());
    let now = raw.fabric.instant();
    let call = Call { timeout: Some(Duration::from_secs(5)), ..read(1, 5001) };
    let id = raw.end.connection.call(now, call).unwrap();
    raw.settle();
    let _held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(5001));
    raw.send(reply_with(1, vec![at(28, data)], 5001));
    raw.end.connection.abandon(now, id);
    pass(&mut raw, Duration::from_secs(6));
    assert!(raw.end.replies.is_empty() && raw.end.closed.is_none());
    assert_eq!(raw.end.connection.stats().timeouts, 0);
}

/// Rule I6: the deadline of an answer that waits for memory ends with the wait.
#[test]
fn i6_an_answer_that_has_left_has_no_deadline() {
    let config = Config { grant: 8, early_calls: 1, ..server_config() };
    let mut raw = Raw::new(Side::Server, config);
    raw.end.serving = false;
    let held = hold_all(&raw.end.domain);
    raw.send(message(&header(1, Body::Message(ChunkLists::default())), &rpc(1, 0, &[])));
    let (token, .., call) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(call.clone()));
    raw.settle();
    assert!(raw.received.is_empty() && raw.end.connection.poll_timeout().is_some());
    drop(held);
    raw.settle();
    assert_eq!(raw.received.len(), 1);
    pass(&mut raw, Duration::from_secs(31));
    assert!(raw.end.closed.is_none());
    drop(call);
}

/// RFC 5666 §5.1: a whole reply that is exposed needs no RDMA Write, even if the Call has a Reply chunk that is too small.
#[test]
fn rfc5666_5_1_an_exposed_reply_writes_nothing() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    raw.end.serving = false;
    let chunk = crate::wire::WriteChunk { segments: vec![raw.writable(8)] };
    let asked = lists(vec![], vec![], Some(chunk));
    let call = Header { credit: 2, ..header(1, Body::Message(asked)) };
    raw.send(message(&call, &rpc(1, LIST, &9000_u32.to_be_bytes())));
    let (token, .., call) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(call));
    let mut sends = 0;
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
        if let crate::Post::Work(_, request) = &post {
            assert!(!matches!(request, WorkRequest::Write { .. }), "{request:?}");
            sends += usize::from(matches!(request, WorkRequest::Send(_)));
        }
        raw.end.post(post);
    }
    assert_eq!(sends, 1);
}

/// Version Two has no RDMA_DONE, so neither side takes part in the Read-Read model.
#[cfg(feature = "two")]
#[test]
fn rfc5666_s3_8_the_model_is_of_version_one_alone() {
    use crate::{Profile, Versions};
    for (versions, reads) in [(Versions::ONE, true), (Versions::two(Profile::P1), false)] {
        let raw = Raw::new(Side::Client, Config { versions, ..withholding() });
        assert_eq!(raw.end.connection.core.reads_replies(), reads);
    }
}

/// An answer that waits for windows or other replies does not keep the one behind it from leaving.
#[test]
fn i6_an_answer_passes_one_that_waits_to_be_exposed() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead { exposed_replies: 1, ..ReadRead::default() }));
    ask(&mut raw, 1, 5001);
    raw.end.serving = false;
    raw.send(read_call(2, 8));
    raw.send(message(&header(3, Body::Message(ChunkLists::default())), &rpc(3, 0, &[])));
    let now = raw.fabric.instant();
    let calls = std::mem::take(&mut raw.end.calls);
    assert_eq!(calls.len(), 2);
    for (token, .., message) in calls {
        raw.end.connection.reply(now, token, serve(message));
    }
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
        raw.end.post(post);
    }
    raw.settle();
    assert_eq!((raw.received.len(), raw.last().0.xid), (1, 3));
}

/// Each window counts once: with one of two replies done, one window is open.
#[test]
fn rfc5666_s3_8_each_done_frees_its_own_windows() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    for xid in [1, 2, 3] {
        assert_eq!(ask(&mut raw, xid, 5001).len(), 1);
    }
    for left in [2, 1, 0] {
        raw.send(done(3 - u32::try_from(left).unwrap()));
        assert_eq!(raw.end.connection.core.windows, left);
    }
}

/// Rule I1: a reply that found too few windows gives back those that it had.
#[test]
fn i1_a_reply_that_is_not_exposed_keeps_no_window() {
    let mut raw = Raw::new(Side::Server, Config { max_segment_len: 2000, ..exposing(ReadRead::default()) });
    raw.end.serving = false;
    raw.send(read_call(1, 8));
    let (token, .., message) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(message));
    let mut few = super::super::requester::Few(&mut raw.end.qp, 2);
    let mut posts = vec![];
    while let Some(post) = raw.end.connection.poll_transmit(now, &mut few) {
        posts.push(post);
    }
    let released =
        posts.iter().filter(|post| matches!(post, crate::Post::Work(_, WorkRequest::LocalInvalidate { .. })));
    assert_eq!(released.count(), 2);
    for post in posts {
        raw.end.post(post);
    }
    raw.settle();
    assert_eq!(raw.last().0.body, Body::Error(ErrorBody::Chunk));
    assert_eq!(raw.end.connection.core.windows, 0);
    let stats = raw.end.connection.stats();
    assert_eq!((stats.registrations, stats.local_invalidations), (0, 0));
}

/// Rule I6: exposed data that no memory can ever hold ends its call alone. The server learns that the reply is done.
#[test]
fn i6_exposed_data_that_no_memory_can_hold_fails_the_call() {
    let fabric = Fabric::new(FabricConfig::default());
    let small = ProtectionDomain::new(256 << 10);
    let mut raw = Raw::with_memory(&fabric, Side::Client, withholding(), &Config::default(), (16, 16), small);
    send(&mut raw, null(9));
    raw.send(plain(9));
    result(&mut raw).unwrap().unwrap();
    send(&mut raw, read(1, 1 << 20));
    let data = raw.readable(&pattern(1 << 20));
    raw.send(reply_with(1, vec![at(28, data)], 1 << 20));
    let failure = result(&mut raw).expect("the call has ended").unwrap_err();
    assert!(matches!(failure.error, CallError::Memory(_)), "{failure}");
    assert_eq!(raw.last().0.body, Body::Done);
    assert!(raw.end.closed.is_none());
}

/// Rule I6: bytes of exposed data count while they are read, and no longer.
#[test]
fn i6_bytes_of_a_reply_that_was_read_extend_nothing() {
    let mut raw = Raw::new(Side::Client, withholding());
    send(&mut raw, read(1, 5001));
    let held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(5001));
    raw.send(reply_with(1, vec![at(28, data)], 5001));
    assert_eq!(raw.end.connection.requester.bulk, 5001);
    drop(held);
    raw.settle();
    check_reply(READ, 5001, result(&mut raw).unwrap().unwrap());
    assert_eq!(raw.end.connection.requester.bulk, 0);
}

/// Rule I6: what moved before the data of a reply is read gives the call no time.
#[test]
fn i6_a_reply_gets_no_time_for_what_moved_before_it_came() {
    let mut raw = Raw::new(Side::Client, withholding());
    raw.end.tells = false;
    let start = raw.fabric.instant();
    let progress = |raw: &mut Raw, seconds, bytes| {
        let at = start + Duration::from_secs(seconds);
        raw.end.connection.handle_progress(at, rpcrdma_verbs::Progress::new(0, bytes, 0));
    };
    progress(&mut raw, 0, 1 << 30);
    send(&mut raw, read(1, 100_001));
    let _held = hold_all(&raw.end.domain);
    let data = raw.readable(&pattern(100_001));
    progress(&mut raw, 50, (1 << 30) + 90_000);
    raw.send(reply_with(1, vec![at(28, data)], 100_001));
    raw.end.connection.handle_timeout(start + Duration::from_secs(60));
    raw.settle();
    assert_eq!(result(&mut raw).expect("it has ended").unwrap_err().error, CallError::TimedOut);
}

/// Rule I6: with its data read, a call waits for the closing of its windows by that timer.
#[test]
fn i6_a_call_whose_reply_was_read_waits_for_its_windows() {
    let read_read = ReadRead { withhold_chunks: false, ..ReadRead::default() };
    let mut raw = Raw::new(Side::Client, opted(read_read, Config::default()));
    let lists = send(&mut raw, read(1, 5001));
    assert_eq!(lists.write.len(), 1);
    let data = raw.readable(&pattern(5001));
    receive(&mut raw, 0, &reply_with(1, vec![at(28, data)], 5001), None);
    let now = raw.fabric.instant();
    let posts: Vec<_> =
        std::iter::from_fn(|| raw.end.connection.poll_transmit(now, &mut raw.end.qp)).collect();
    let read = posts.into_iter().find_map(|post| match post {
        crate::Post::Work(id, WorkRequest::Read { sink, .. }) => Some((id, sink)),
        _ => None,
    });
    let (id, sink) = read.expect("an RDMA Read");
    complete(&mut raw, id, Work::Read { sink });
    let due = now + Timeouts::default().invalidate;
    assert_eq!(raw.end.connection.requester.poll_timeout(), Some(due));
}

/// Rule I10: the caller's time is over while data is being read: the RDMA_DONE leaves only when the reads are done.
#[test]
fn i10_no_done_leaves_while_the_data_is_read() {
    let mut raw = Raw::new(Side::Client, withholding());
    let call = Call { timeout: Some(Duration::from_secs(5)), ..read(1, 5001) };
    send(&mut raw, call);
    let data = raw.readable(&pattern(5001));
    receive(&mut raw, 0, &reply_with(1, vec![at(28, data)], 5001), None);
    let now = raw.fabric.instant();
    let read = std::iter::from_fn(|| raw.end.connection.poll_transmit(now, &mut raw.end.qp))
        .find(|post| matches!(post, crate::Post::Work(_, WorkRequest::Read { .. })));
    let Some(crate::Post::Work(id, WorkRequest::Read { sink, .. })) = read else { panic!("{read:?}") };
    raw.end.connection.handle_timeout(now + Duration::from_secs(5));
    assert_eq!(raw.end.connection.stats().dones_sent, 0);
    complete(&mut raw, id, Work::Read { sink });
    assert_eq!(raw.end.connection.stats().dones_sent, 1);
}

/// Rule I2: a window that is being closed is not invalidated again while its connection closes.
#[test]
fn i2_no_window_of_a_closing_connection_is_invalidated_twice() {
    let timeouts = Timeouts { close: Duration::from_secs(100), ..Timeouts::default() };
    let (mut raw, _) = exposed(ReadRead::default(), timeouts, 5001);
    let invalidations = |raw: &mut Raw| {
        posts(raw).iter().filter(|(_, work)| matches!(work, WorkRequest::LocalInvalidate { .. })).count()
    };
    receive(&mut raw, 1, &done(1), None);
    assert_eq!(invalidations(&mut raw), 1);
    let now = raw.fabric.instant();
    raw.end.connection.close(now);
    assert_eq!(invalidations(&mut raw), 0);
    raw.end.connection.handle_timeout(now + Timeouts::default().invalidate);
    assert_eq!(invalidations(&mut raw), 0);
}

/// Rule I6: a call that had time for other data gets time for the data of its exposed reply, too.
#[test]
fn i6_a_call_gets_time_for_the_data_of_its_reply() {
    let timeouts = Timeouts { done: Duration::from_secs(1000), ..Timeouts::default() };
    let mut raw = Raw::new(Side::Client, Config { timeouts, ..withholding() });
    raw.end.tells = false;
    let start = raw.fabric.instant();
    let moves = |raw: &mut Raw, seconds, bytes| {
        let at = start + Duration::from_secs(seconds);
        raw.end.connection.handle_progress(at, rpcrdma_verbs::Progress::new(0, bytes, 0));
    };
    moves(&mut raw, 0, 0);
    raw.end.connection.core.ledger.calls = crate::flow::RequesterCredits::with_read_read(8, 8);
    for xid in [1, 2] {
        raw.end.connection.call(start, read(xid, 300_000)).unwrap();
    }
    raw.settle();
    let nowhere = Segment { handle: 0xbad, length: 300_000, offset: 0 };
    let exposes = |xid| reply_with(xid, vec![at(28, nowhere)], 300_000);
    let ids: Vec<u64> = vec![0, 2];
    receive(&mut raw, ids[0], &exposes(2), None);
    moves(&mut raw, 55, 300_000);
    raw.end.connection.handle_timeout(start + Duration::from_secs(61));
    assert_eq!(raw.end.connection.stats().timeouts, 0, "both had time");
    receive(&mut raw, ids[1], &exposes(1), None);
    moves(&mut raw, 90, 600_000);
    raw.end.connection.handle_timeout(start + Duration::from_secs(98));
    assert_eq!(raw.end.connection.stats().timeouts, 1, "the other one has had its time");
}

/// Rule I6: an answer that has memory at last, but no window, waits by the timer for windows alone.
#[test]
fn i6_a_wait_for_windows_begins_when_the_wait_for_memory_is_over() {
    let mut raw = Raw::new(Side::Server, exposing(ReadRead::default()));
    raw.end.serving = false;
    raw.send(read_call(1, 8));
    let (token, .., call) = raw.end.calls.pop().unwrap();
    let answer = serve(call);
    let held = hold_all(&raw.end.domain);
    let start = raw.fabric.instant();
    raw.end.connection.reply(start, token, answer);
    raw.settle();
    assert!(raw.received.is_empty() && raw.end.connection.wants_memory().is_some());
    drop(held);
    raw.end.connection.core.windows = rpcrdma_verbs::Windows::capabilities(&raw.end.qp).max_windows;
    raw.fabric.advance(Duration::from_secs(20));
    raw.settle();
    assert!(raw.received.is_empty());
    pass(&mut raw, Duration::from_secs(11));
    assert!(raw.end.closed.is_none(), "{:?}", raw.end.closed);
    pass(&mut raw, Duration::from_secs(20));
    assert_eq!(raw.end.closed, Some(CloseReason::Timeout("windows for an answer")));
}
