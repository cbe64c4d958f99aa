//! Ends of a connection, and its behaviour between the reason and the end. Where the simulated provider would end by
//! itself, the test plays the provider.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_verbs::{
    Buffer, Capabilities, Completion, PostErrorKind, ReceiveMemory, Status, WindowMemory, Work, WorkRequest,
    WrId,
};
use rpcrdma_xdr::Stream;

use crate::testing::*;
use crate::wire::{Body, ChunkLists};
use crate::{CloseReason, Config, Connection, Event, Post, RefusedKind, Side, Timeouts};

/// A connection of this side whose provider refused to post a request, and that has not been polled since.
fn failing(side: Side) -> Raw {
    let mut raw = Raw::new(side, server_config());
    raw.end.connection.handle_post_error(WrId(999), &PostErrorKind::Invalid("test"));
    raw
}

fn received(bytes: &[u8]) -> Completion {
    let buffer = Buffer::adopt(bytes.to_vec());
    let work =
        Work::Receive { len: buffer.len(), buffers: vec![buffer], invalidated: None, solicited: false };
    Completion { id: WrId(0), status: Status::Success, work }
}

#[test]
fn a_connection_that_has_failed_takes_no_calls() {
    let mut raw = failing(Side::Client);
    let now = raw.fabric.instant();
    assert_eq!(raw.end.connection.call(now, null(1)).unwrap_err().kind, RefusedKind::Closed);
}

#[test]
fn a_connection_that_has_failed_hears_nothing() {
    let mut raw = failing(Side::Server);
    let now = raw.fabric.instant();
    let call = message(&header(1, Body::Message(ChunkLists::default())), &null(1).message);
    raw.end.connection.handle_completion(now, received(&call));
    assert!(raw.end.connection.poll_event().is_none());
    assert_eq!(raw.end.connection.in_progress(), 0);
}

/// The first reason counts, and after a failure the connection is aborted.
#[test]
fn closing_does_not_hide_a_failure() {
    let mut raw = failing(Side::Client);
    let now = raw.fabric.instant();
    raw.end.connection.close(now);
    assert!(matches!(raw.end.connection.poll_transmit(now, &mut raw.end.qp), Some(Post::Abort)));
    rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
    raw.settle();
    assert_eq!(raw.end.closed, Some(CloseReason::WorkFailed(Status::Fatal)));
}

/// No call waits for a Send, a Receive or a bind, so a failure of these ends the connection. A flushed request announces
/// an end that is already coming.
#[test]
fn work_that_failed_ends_the_connection() {
    let receive = || Work::Receive { buffers: vec![], len: 0, invalidated: None, solicited: false };
    for status in [Status::RemoteAccess, Status::Fatal, Status::Flushed] {
        let mut raw = Raw::new(Side::Client, Config::default());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, null(1)).unwrap();
        let mut posted = vec![(WrId(0), receive())];
        while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
            if let Post::Work(id, WorkRequest::Send(_)) = post {
                posted.push((id, Work::Send));
            }
        }
        assert_eq!(posted.len(), 2);
        let (id, work) = posted.remove(usize::from(status == Status::Fatal));
        raw.end.connection.handle_completion(now, Completion { id, status, work });
        let post = raw.end.connection.poll_transmit(now, &mut raw.end.qp);
        assert_eq!(matches!(post, Some(Post::Abort)), status != Status::Flushed, "{status:?}");
    }
}

/// An invalidation after the peer's returns no memory, which is no failure. A flushed invalidation that returns memory
/// closes its window.
#[test]
fn i2_an_invalidation_succeeds_by_its_status_or_by_its_memory() {
    for (status, memory) in [
        (Status::Success, None),
        (Status::Flushed, Some(WindowMemory::Write(Buffer::adopt(vec![0; 5000])))),
        (Status::Success, Some(WindowMemory::Write(Buffer::adopt(vec![0; 5000])))),
    ] {
        let mut raw = Raw::new(Side::Client, Config::default());
        let now = raw.fabric.instant();
        raw.end.connection.call(now, read(1, 5000)).unwrap();
        raw.settle();
        let Body::Message(lists) = raw.last().0.body else { panic!("RDMA_MSG") };
        let returned = ChunkLists { write: vec![lists.write[0].filled(0)], ..ChunkLists::default() };
        let words = [1, 1, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let reply = message(&header(1, Body::Message(returned)), &Stream::from(bytes::Bytes::from(words)));
        raw.end.connection.handle_completion(now, received(&reply));
        let mut invalidation = None;
        while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
            if let Post::Work(id, WorkRequest::LocalInvalidate { .. }) = post {
                invalidation = Some(id);
            }
        }
        let completion =
            Completion { id: invalidation.unwrap(), status, work: Work::LocalInvalidate { memory } };
        raw.end.connection.handle_completion(now, completion);
        assert!(matches!(raw.end.connection.poll_event(), Some(Event::Reply { result: Ok(_), .. })));
        assert!(raw.end.connection.call(now, null(2)).is_ok(), "{status:?}: goes on");
    }
}

#[test]
fn a_connection_with_a_call_in_progress_is_not_idle() {
    let timeouts = Timeouts {
        idle: Some(Duration::from_secs(10)),
        call: Duration::from_secs(60),
        ..Timeouts::default()
    };
    let client = Config { timeouts, ..Config::default() };
    let mut pair = Pair::with(rpcrdma_sim::FabricConfig::default(), client, server_config());
    pair.server.serving = false;
    pair.call(null(1));
    pair.run_for(Duration::from_secs(30));
    assert_eq!(pair.client.closed, None);
    let (token, _, _, call) = pair.server.calls.remove(0);
    let now = pair.now();
    pair.server.connection.reply(now, token, serve(call));
    pair.run_for(Duration::from_secs(11));
    assert_eq!(pair.client.closed, Some(CloseReason::Idle));
}

/// The two directions share the receive queue: neither requests or grants more than half of it.
#[test]
fn i3_credits_are_bounded_by_half_of_the_receive_queue() {
    let mut capabilities = Capabilities::default();
    capabilities.max_recv_wr = 20;
    for side in [Side::Client, Side::Server] {
        let mut raw = Raw::new(side, server_config());
        let now = raw.fabric.instant();
        let (config, peer) = (Arc::new(server_config()), Config::default().private_data().encode());
        let mut connection = Connection::new(side, config, &peer, &capabilities, now);
        let mut receives = 0;
        let mut sent = Vec::new();
        let mut pump = |connection: &mut Connection| {
            while let Some(post) = connection.poll_transmit(now, &mut raw.end.qp) {
                match post {
                    Post::Receive(_, ReceiveMemory::Pooled(_)) => receives += 1,
                    Post::Work(_, WorkRequest::Send(send)) => sent = send.gather.concat(),
                    other => panic!("{other:?}"),
                }
            }
        };
        pump(&mut connection);
        match side {
            Side::Client => {
                connection.call(now, null(1)).unwrap();
                pump(&mut connection);
            }
            Side::Server => {
                let asking =
                    crate::wire::Header { credit: 1000, ..header(1, Body::Message(ChunkLists::default())) };
                let call = message(&asking, &null(1).message);
                connection.handle_completion(now, received(&call));
                let Some(Event::Call(call)) = connection.poll_event() else { panic!("a Call") };
                connection.reply(now, call.token, serve(call.message));
                pump(&mut connection);
            }
        }
        assert_eq!(sent[8..12], 10_u32.to_be_bytes(), "{side}");
        assert!(receives <= 20, "{receives}");
    }
}

/// An idle connection without memory for the Receives that it owes waits for memory, too.
#[test]
fn i3_missing_receives_wait_for_memory() {
    let fabric = rpcrdma_sim::Fabric::new(rpcrdma_sim::FabricConfig::default());
    let config = Config { early_calls: 5, ..server_config() };
    for (rooms, wanted) in [(5, None), (4, Some(4096))] {
        let mut pair = Pair::on(&fabric, Config::default(), config.clone(), rooms * 4096);
        pair.pump();
        assert_eq!(pair.server.connection.wants_memory(), wanted, "{rooms} of 5");
    }
}

/// A server whose send queue holds three requests, and that has answered five Calls. Its posts are not carried out. The
/// last answer carries memory of the domain.
fn answering() -> (Raw, Connection, Vec<WrId>) {
    let mut capabilities = Capabilities::default();
    capabilities.max_send_wr = 3;
    let mut raw = Raw::new(Side::Server, server_config());
    let now = raw.fabric.instant();
    let peer = Config::default().private_data().encode();
    let mut connection = Connection::new(Side::Server, Arc::new(server_config()), &peer, &capabilities, now);
    sends(&mut connection, &mut raw);
    for xid in 1..=5 {
        let call = message(&header(xid, Body::Message(ChunkLists::default())), &null(xid).message);
        let completion = Completion { id: WrId(xid.into()), ..received(&call) };
        connection.handle_completion(now, completion);
        let Some(Event::Call(call)) = connection.poll_event() else { panic!("a Call") };
        let mut reply = Stream::from(bytes::Bytes::from([xid, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat()));
        if xid == 4 {
            let data = raw.end.domain.allocate(2000, 1).unwrap().freeze();
            reply.push(rpcrdma_xdr::Piece::Payload { data, ddp_eligible: false });
        }
        connection.reply(now, call.token, crate::Answer::message(reply));
    }
    let posted = sends(&mut connection, &mut raw);
    (raw, connection, posted)
}

fn sends(connection: &mut Connection, raw: &mut Raw) -> Vec<WrId> {
    let now = raw.fabric.instant();
    let mut sends = Vec::new();
    while let Some(post) = connection.poll_transmit(now, &mut raw.end.qp) {
        match post {
            Post::Work(id, WorkRequest::Send(_)) => sends.push(id),
            Post::Receive(..) => {}
            other => panic!("{other:?}"),
        }
    }
    sends
}

#[test]
fn the_send_queue_is_filled_and_not_beyond() {
    let (mut raw, mut connection, posted) = answering();
    assert_eq!(posted.len(), 3);
    let now = raw.fabric.instant();
    for id in posted {
        connection.handle_completion(now, Completion { id, status: Status::Success, work: Work::Send });
    }
    assert_eq!(sends(&mut connection, &mut raw).len(), 2);
}

/// Requests that wait for a place in the send queue do not delay an abort.
#[test]
fn i6_an_abort_passes_what_was_not_posted() {
    let (mut raw, mut connection, _) = answering();
    connection.handle_post_error(WrId(999), &PostErrorKind::Invalid("test"));
    let now = raw.fabric.instant();
    assert!(matches!(connection.poll_transmit(now, &mut raw.end.qp), Some(Post::Abort)));
}

/// The owner may keep the connection for its counters; memory of unposted requests is freed.
#[test]
fn what_was_not_posted_is_given_up_with_the_connection() {
    let (raw, mut connection, _) = answering();
    let before = raw.end.domain.usage().in_use;
    connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
    assert!(raw.end.domain.usage().in_use + 2000 <= before);
}

/// Rule I6: a window that the provider does not close holds its call, and then ends the connection.
#[test]
fn i6_the_invalidation_of_a_window_has_a_timer() {
    let timeouts = Timeouts { invalidate: Duration::from_secs(7), ..Timeouts::default() };
    for abandoned in [false, true] {
        let mut raw = Raw::new(Side::Client, Config { timeouts: timeouts.clone(), ..Config::default() });
        let now = raw.fabric.instant();
        let id = raw.end.connection.call(now, read(1, 5000)).unwrap();
        raw.settle();
        let Body::Message(lists) = raw.last().0.body else { panic!("RDMA_MSG") };
        let returned = ChunkLists { write: vec![lists.write[0].filled(0)], ..ChunkLists::default() };
        let words = [1, 1, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let reply = message(&header(1, Body::Message(returned)), &Stream::from(bytes::Bytes::from(words)));
        raw.end.connection.handle_completion(now, received(&reply));
        let invalidations = std::iter::from_fn(|| raw.end.connection.poll_transmit(now, &mut raw.end.qp))
            .filter(|post| matches!(post, Post::Work(_, WorkRequest::LocalInvalidate { .. })));
        assert_eq!(invalidations.count(), 1);
        if abandoned {
            raw.end.connection.abandon(now, id);
        }
        let deadline = now + timeouts.invalidate;
        assert_eq!(raw.end.connection.poll_timeout(), Some(deadline));
        raw.end.connection.handle_timeout(deadline - Duration::from_millis(1));
        assert!(raw.end.connection.poll_transmit(now, &mut raw.end.qp).is_none());
        raw.end.connection.handle_timeout(deadline);
        assert!(raw.end.connection.poll_event().is_none(), "rule I2: the call has not ended");
        assert!(matches!(raw.end.connection.poll_transmit(deadline, &mut raw.end.qp), Some(Post::Abort)));
        assert_eq!(raw.end.connection.poll_timeout(), None, "a deadline that is past would ring for ever");
        rpcrdma_verbs::QueuePair::abort(&mut raw.end.qp);
        raw.settle();
        assert_eq!(raw.end.closed, Some(CloseReason::Timeout("the invalidation of a window")));
    }
}

/// The calls of a lost connection are reported in the order in which they were made.
#[test]
fn i8_calls_that_are_lost_are_told_in_their_order() {
    let mut raw = Raw::new(Side::Client, Config::default());
    let now = raw.fabric.instant();
    let ids: Vec<_> =
        [7, 3, 0x8000_0000, 1, 4, 900].map(|xid| raw.end.connection.call(now, null(xid)).unwrap()).into();
    raw.end.connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
    raw.settle();
    assert_eq!(raw.end.replies.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
}

/// After its end a connection takes nothing, posts nothing, has no deadline, and reports nothing again.
#[test]
fn i6_a_connection_that_is_gone_does_nothing_more() {
    let timeouts = Timeouts { idle: Some(Duration::from_secs(10)), ..Timeouts::default() };
    for side in [Side::Client, Side::Server] {
        let mut raw = Raw::new(side, Config { timeouts: timeouts.clone(), ..server_config() });
        let now = raw.fabric.instant();
        let connection = &mut raw.end.connection;
        connection.responder.wait_for_answer(&connection.core, now, crate::flow::Wait::Credits);
        connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
        assert!(matches!(connection.poll_event(), Some(Event::Closed(_))));
        assert_eq!(connection.call(now, null(1)).unwrap_err().kind, RefusedKind::Closed);
        connection.close(now);
        connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
        connection.handle_timeout(now + Duration::from_secs(3600));
        assert_eq!(connection.poll_timeout(), None);
        assert!(connection.poll_transmit(now, &mut raw.end.qp).is_none());
        assert!(connection.poll_event().is_none(), "its end is reported once");
    }
}

/// The first failure is the reason of the end.
#[test]
fn the_first_failure_is_the_reason() {
    let mut raw = Raw::new(Side::Client, Config::default());
    raw.end.connection.fail(CloseReason::InvalidationFailed);
    raw.end.connection.fail(CloseReason::ReplyLost);
    raw.end.connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
    assert!(matches!(raw.end.connection.poll_event(), Some(Event::Closed(CloseReason::InvalidationFailed))));
}

/// The idle time of a connection begins with the last Call or message of either side. A release of a connection that was
/// not kept is none.
#[test]
fn idle_time_begins_with_the_last_call_or_message() {
    let second = Duration::from_secs(1);
    let timeouts = Timeouts { idle: Some(second * 60), send: second * 3600, ..Timeouts::default() };
    let config = |config: Config| Config { timeouts: timeouts.clone(), ..config };
    let mut raw = Raw::new(Side::Client, config(Config::default()));
    let start = raw.fabric.instant();
    let connection = &mut raw.end.connection;
    let id = connection.call(start + second * 10, null(1)).unwrap();
    connection.abandon(start + second * 10, id);
    assert_eq!(connection.poll_timeout(), Some(start + second * 70), "a Call that never left");
    connection.keep(start + second * 20, false);
    assert_eq!(connection.poll_timeout(), Some(start + second * 70));
    connection.call(start + second * 30, null(2)).unwrap();
    raw.settle();
    let words = [2, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let reply =
        message(&header(2, Body::Message(ChunkLists::default())), &Stream::from(bytes::Bytes::from(words)));
    raw.end.connection.handle_completion(start + second * 40, received(&reply));
    assert_eq!(raw.end.connection.poll_timeout(), Some(start + second * 100), "a reply");

    let mut raw = Raw::new(Side::Server, config(server_config()));
    let start = raw.fabric.instant();
    let call = message(&header(1, Body::Message(ChunkLists::default())), &null(1).message);
    raw.end.connection.handle_completion(start, received(&call));
    let Some(Event::Call(call)) = raw.end.connection.poll_event() else { panic!("a Call") };
    assert!(!raw.end.connection.has_departed(call.token), "its answer is still to come");
    raw.end.connection.reply(start + second * 50, call.token, serve(call.message));
    raw.settle();
    assert_eq!(raw.end.connection.poll_timeout(), Some(start + second * 110), "an answer");
    assert!(raw.end.connection.has_departed(call.token));
}

/// Rule I6: an orderly close has all of its time.
#[test]
fn i6_a_close_is_not_cut_off_before_its_time() {
    let mut raw = Raw::new(Side::Client, Config::default());
    let now = raw.fabric.instant();
    let connection = &mut raw.end.connection;
    connection.close(now);
    assert!(matches!(connection.poll_transmit(now, &mut raw.end.qp), Some(Post::Disconnect)));
    let deadline = connection.poll_timeout().unwrap();
    connection.handle_timeout(deadline - Duration::from_millis(1));
    assert!(connection.poll_transmit(now, &mut raw.end.qp).is_none());
    connection.handle_timeout(deadline);
    assert!(matches!(connection.poll_transmit(deadline, &mut raw.end.qp), Some(Post::Abort)));
}

/// A queue pair that has ended is waited for: the timer of a Send that it did not take is no reason for the end.
#[test]
fn i6_a_send_that_was_not_posted_has_no_timer() {
    let timeouts = Timeouts { send: Duration::from_secs(5), ..Timeouts::default() };
    let mut raw = Raw::new(Side::Client, Config { timeouts, ..Config::default() });
    let now = raw.fabric.instant();
    raw.end.connection.call(now, null(1)).unwrap();
    let id = std::iter::from_fn(|| raw.end.connection.poll_transmit(now, &mut raw.end.qp))
        .find_map(|post| match post {
            Post::Work(id, WorkRequest::Send(_)) => Some(id),
            _ => None,
        })
        .expect("the Call");
    raw.end.connection.handle_post_error(id, &PostErrorKind::Disconnected);
    raw.end.connection.handle_timeout(now + Duration::from_secs(5));
    raw.end.connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
    let events = std::iter::from_fn(|| raw.end.connection.poll_event());
    let closed =
        events.filter_map(|event| if let Event::Closed(reason) = event { Some(reason) } else { None });
    assert_eq!(closed.collect::<Vec<_>>(), [CloseReason::Link(rpcrdma_verbs::Disconnected::Peer)]);
}

/// A connection that fails posts no Receive that it had reserved: the end comes first.
#[test]
fn a_connection_that_is_given_up_posts_nothing_before_its_end() {
    let mut raw = Raw::new(Side::Server, server_config());
    let now = raw.fabric.instant();
    let capabilities = Capabilities::default();
    let mut connection = Connection::new(Side::Server, Arc::new(server_config()), &[], &capabilities, now);
    let first = connection.poll_transmit(now, &mut raw.end.qp);
    assert!(matches!(first, Some(Post::Receive(..))), "one of several");
    connection.give_up();
    assert!(matches!(connection.poll_transmit(now, &mut raw.end.qp), Some(Post::Abort)));
    assert!(connection.poll_transmit(now, &mut raw.end.qp).is_none());
}

/// `handle_timeout` is harmless if no timer is due: a closing connection keeps its time for data that moves.
#[test]
fn i6_an_early_timeout_takes_no_time_from_a_connection_that_closes() {
    let timeouts = Timeouts { close: Duration::from_secs(5), ..Timeouts::default() };
    let mut raw = Raw::new(Side::Client, Config { timeouts, ..Config::default() });
    let now = raw.fabric.instant();
    let progress = |sent| rpcrdma_verbs::Progress::new(0, sent, 0);
    raw.end.connection.handle_progress(now, progress(0));
    raw.end.connection.call(now, null(1)).unwrap();
    while raw.end.connection.poll_transmit(now, &mut raw.end.qp).is_some() {}
    raw.end.connection.close(now);
    let deadline = raw.end.connection.poll_timeout().expect("a deadline");
    raw.end.connection.handle_progress(now + Duration::from_secs(1), progress(40));
    raw.end.connection.handle_timeout(now + Duration::from_secs(1));
    assert_eq!(raw.end.connection.poll_timeout(), Some(deadline));
}

/// Nothing can pass an answer on a connection that has ended.
#[test]
fn i8_answers_of_a_closed_connection_are_in_order() {
    let mut raw = Raw::new(Side::Server, server_config());
    let chunk = crate::wire::WriteChunk { segments: vec![raw.writable(5000)] };
    let lists = ChunkLists { write: vec![chunk], ..ChunkLists::default() };
    raw.end.serving = false;
    raw.send(message(&header(1, Body::Message(lists)), &read(1, 5000).message));
    let (token, .., call) = raw.end.calls.pop().unwrap();
    let now = raw.fabric.instant();
    raw.end.connection.reply(now, token, serve(call));
    while raw.end.connection.poll_transmit(now, &mut raw.end.qp).is_some() {}
    let mark = raw.end.connection.posted();
    assert!(!raw.end.connection.is_in_order(mark), "the Send has not completed");
    raw.end.connection.handle_disconnected(rpcrdma_verbs::Disconnected::Peer);
    assert!(raw.end.connection.is_in_order(mark));
}
