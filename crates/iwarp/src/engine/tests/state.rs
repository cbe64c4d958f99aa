//! The state that an engine reports, and its bookkeeping: queues, counters, timers.

use rpcrdma_verbs::PostErrorKind;

use super::faults::{tagged, untagged};
use super::*;

// requirement: rfc5040-6.1-2, rfc5040-6.1-3
#[test]
fn the_engine_says_what_it_can() {
    let pair = Pair::new(&Setup { ird: 3, ord: 5, max_send_wr: 17, ..small() });
    let capabilities = pair.client.engine.capabilities();
    assert_eq!((capabilities.ird, capabilities.ord), (3, 5));
    assert_eq!((capabilities.max_send_wr, capabilities.max_recv_wr, capabilities.max_windows), (17, 64, 64));
}

#[test]
fn counters_tell_bytes_segments_and_windows() {
    let mut pair = Pair::open(&Setup::default());
    let (client, server) = (pair.client.engine.counters(), pair.server.engine.counters());
    let window = pair.server.open_write(100);
    let receive = pair.server.receive(50);
    pair.client.write(pattern(100), window);
    pair.client.send(&pattern(50));
    let stream = pair.client.transmit(pair.now);
    pair.server.take_whole(&stream, pair.now);
    assert_eq!(pair.server.message(receive), pattern(50));
    pair.server.close(window);
    let (sent, received) = (pair.client.engine.counters(), pair.server.engine.counters());
    assert_eq!(sent.segments_sent - client.segments_sent, 2);
    assert_eq!(sent.link_bytes_sent - client.link_bytes_sent, stream.len() as u64);
    assert_eq!(received.link_bytes_received - server.link_bytes_received, stream.len() as u64);
    assert_eq!(received.segments_received - server.segments_received, 2);
    assert_eq!(received.tagged_bytes_received - server.tagged_bytes_received, 100);
    assert_eq!(received.payload_bytes_copied - server.payload_bytes_copied, 100);
    assert_eq!(received.message_bytes_copied - server.message_bytes_copied, 50);
    assert_eq!(received.windows_bound - server.windows_bound, 1);
    assert_eq!(received.local_invalidations - server.local_invalidations, 1);
    // An invalidation of an unknown key closes no window.
    pair.server.post(WorkRequest::LocalInvalidate { key: window.key });
    assert_eq!(pair.server.engine.counters().local_invalidations, received.local_invalidations);
}

/// Requests report progress before any of them completes; data that the peer writes does not count as its answer to a
/// Read.
#[test]
fn progress_of_requests_is_told_while_they_are_under_way() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(100_000));
    let read = pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    let response = pair.server.transmit(pair.now);
    let before = pair.client.engine.progress();
    let fpdus = fpdus(&response);
    let half: usize = fpdus[..fpdus.len() / 2].iter().map(|fpdu| fpdu.len()).sum();
    pair.client.take_whole(&response[..half], pair.now);
    assert!(pair.client.take(read).is_none());
    let told = pair.client.engine.progress();
    assert_eq!(told.received - before.received, half as u64);
    assert!((45_000..55_000).contains(&(told.read - before.read)), "{told:?}");
    assert_eq!(told.sent, before.sent);
    pair.client.take_whole(&response[half..], pair.now);
    assert_eq!(pair.client.sink(read), pattern(100_000));
    assert_eq!(pair.client.engine.progress().read - before.read, 100_000);
    let window = pair.client.open_write(1000);
    pair.server.write(pattern(1000), window);
    pair.run();
    assert_eq!(pair.client.engine.progress().read - before.read, 100_000);
}

#[test]
fn a_wrong_crc_is_counted() {
    let mut pair = Pair::open(&small());
    assert_eq!(pair.server.engine.crc_errors(), 0);
    pair.server.take_whole(&tagged(0x40, 9, 9, true, b"x"), pair.now);
    assert_eq!(pair.server.engine.crc_errors(), 0);
    let mut pair = Pair::open(&small());
    let mut fpdu = untagged(0x43, 0, 2, 0, true, b"x");
    fpdu[20] ^= 1;
    pair.server.take_whole(&fpdu, pair.now);
    assert_eq!(pair.server.engine.crc_errors(), 1);
}

#[test]
fn the_end_is_told_and_nothing_waits_for_the_socket() {
    let mut pair = Pair::open(&small());
    pair.client.send(b"never leaves");
    pair.client.engine.prepare(pair.now);
    assert!(pair.client.engine.has_output() && pair.client.engine.has_work());
    assert!(!pair.client.engine.is_ended() && !pair.client.engine.has_completions());
    pair.client.engine.abort();
    assert!(!pair.client.engine.has_output());
    assert!(pair.client.engine.is_ended() && pair.client.engine.has_completions());
    pair.client.collect();
    assert!(!pair.client.engine.has_completions());
}

#[test]
fn a_bind_completes_at_once() {
    let mut pair = Pair::open(&small());
    let segment = pair.client.engine.reserve_window(WindowMemory::Read(Bytes::from_static(b"x"))).unwrap();
    let room = pair.client.engine.send_room();
    let id = pair.client.post(WorkRequest::BindWindow { key: segment.key });
    let completion = pair.client.take(id).unwrap();
    assert_eq!((completion.status, pair.client.engine.send_room()), (Status::Success, room));
    assert!(matches!(completion.work, Work::BindWindow));
}

#[test]
fn gather_and_scatter_lists_hold_max_sge_pieces() {
    let mut pair = Pair::open(&small());
    let most = pair.client.engine.capabilities().max_sge;
    let receive = pair.server.receive_into(&vec![2; most]);
    let gather = vec![Bytes::from_static(b"ab"); most];
    pair.client.post(WorkRequest::Send(SendRequest { gather, ..SendRequest::default() }));
    pair.run();
    assert_eq!(pair.server.message(receive), b"ab".repeat(most));
}

/// A Receive counts until it has completed, also in the middle of its message.
// requirement: rfc5042-6.4.3.2-1, rfc5042-6.4.6-1
// requirement: rfc5040-8.1.2-5
#[test]
fn the_receive_queue_is_bounded() {
    let mut pair = Pair::open(&small());
    for _ in 0..63 {
        pair.server.receive(10);
    }
    pair.server.take_whole(&untagged(0x43, 0, 2, 0, false, b"first half"[..5].into()), pair.now);
    pair.server.receive(10);
    let refused = pair.server.engine.post_receive(WrId(999), ReceiveMemory::Scatter(vec![])).unwrap_err();
    assert_eq!(refused.kind, PostErrorKind::QueueFull { limit: 64 });
    pair.server.take_whole(&untagged(0x43, 0, 2, 5, true, b"half"), pair.now);
    pair.server.receive(10);
}

/// RFC 5040 §8.1: a request without an entry for its completion is refused when it is posted. Each connection has its own
/// entries, and its own queue of RDMA Read Requests.
// requirement: rfc5040-8.1.1-11, rfc5040-8.1.2-5, rfc5040-8.1.2-7
#[test]
fn rfc5040_8_1_full_queues_of_one_connection_leave_another_alone() {
    let setup = Setup { ird: 1, ord: 1, max_send_wr: 4, ..small() };
    let (mut full, mut other) = (Pair::open(&setup), Pair::open(&setup));
    let source = full.server.open_read(pattern(100));
    full.client.read(source);
    let request = full.client.transmit(full.now);
    full.server.take_whole(&request, full.now);
    while full.client.engine.send_room() > 0 {
        full.client.send(b"");
    }
    let refused = full.client.engine.post(WrId(999), WorkRequest::Send(send(b""))).unwrap_err();
    assert_eq!(refused.kind, PostErrorKind::QueueFull { limit: 4 });
    for _ in 0..64 {
        full.server.receive(10);
    }
    let refused = full.server.engine.post_receive(WrId(999), ReceiveMemory::Scatter(vec![])).unwrap_err();
    assert_eq!(refused.kind, PostErrorKind::QueueFull { limit: 64 });

    let source = other.server.open_read(pattern(100));
    let read = other.client.read(source);
    let receive = other.server.receive(10);
    other.client.send(b"call");
    other.run();
    assert_eq!(other.client.sink(read), pattern(100));
    assert_eq!(other.server.message(receive), b"call");
}

// requirement: rfc5040-5.5-5
#[test]
fn what_is_laid_out_and_has_not_left_is_flushed() {
    let mut pair = Pair::open(&small());
    let target = pair.server.open_write(100);
    let ids = [pair.client.send(b"one"), pair.client.write(pattern(100), target), pair.client.send(b"two")];
    pair.client.engine.prepare(pair.now);
    pair.client.engine.abort();
    for id in ids {
        assert_eq!(pair.client.take(id).unwrap().status, Status::Flushed);
    }
    assert!(pair.client.done.is_empty(), "each once");
}

/// A request to close a window gets its memory, also where the end of the connection closes the window.
#[test]
fn i1_a_window_being_closed_at_the_end_comes_back_by_its_invalidation() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(1 << 20));
    pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    pair.server.transmit_some(5000, pair.now);
    let invalidate = pair.server.post(WorkRequest::LocalInvalidate { key: source.key });
    assert!(pair.server.take(invalidate).is_none());
    pair.server.engine.abort();
    let completion = pair.server.take(invalidate).unwrap();
    assert!(matches!(completion.work, Work::LocalInvalidate { memory: Some(_) }), "{completion:?}");
    assert!(!pair.server.done.iter().any(|done| matches!(done.work, Work::WindowFlushed { .. })));
}

#[test]
fn i6_the_next_deadline_is_told() {
    let timeouts = Timeouts::default();
    let mut pair = Pair::new(&small());
    assert_eq!(pair.client.engine.poll_timeout(), None);
    assert_eq!(pair.server.engine.poll_timeout(), Some(pair.now + timeouts.first_fpdu));
    let receive = pair.server.receive(10);
    pair.server.take_whole(&untagged(0x43, 0, 1, 0, true, b"hello"), pair.now);
    assert_eq!(pair.server.message(receive), b"hello");
    assert_eq!(pair.server.engine.poll_timeout(), None, "it was heard");
    pair.wait(timeouts.first_fpdu * 2);
    assert_eq!(pair.server.end(), None);
}

/// A stream of which every read ends inside an FPDU makes progress as long as FPDUs are finished.
#[test]
fn i6_each_fpdu_has_its_own_time() {
    let mut pair = Pair::open(&small());
    let mut stream = Vec::new();
    let receives: Vec<_> = (0..6).map(|_| pair.server.receive(10)).collect();
    for msn in 2..8 {
        stream.extend_from_slice(&untagged(0x43, 0, msn, 0, true, b"hello"));
    }
    let fpdu = stream.len() / 6;
    let wait = Timeouts::default().partial_fpdu - Duration::from_secs(1);
    let mut rest = &stream[..];
    for at in 0..6 {
        let (now, later) = rest.split_at(if at == 0 { fpdu - 3 } else { fpdu });
        pair.server.take_whole(now, pair.now);
        rest = later;
        pair.wait(wait);
        assert_eq!(pair.server.end(), None, "{at}");
    }
    pair.server.take_whole(rest, pair.now);
    for receive in receives {
        assert_eq!(pair.server.message(receive), b"hello");
    }
}

/// Returns the seconds until the connection ends, or `None` if the whole FPDU arrives. Of its 60,000 bytes `per_second`
/// arrive in each second.
fn fpdu_lasts(per_second: impl Fn(u64) -> usize) -> Option<u64> {
    let mut pair = Pair::open(&small());
    let receive = pair.server.receive(60_000);
    let fpdu = untagged(0x43, 0, 2, 0, true, &pattern(60_000));
    let mut rest = &fpdu[..];
    for second in 0..1000 {
        let (now, later) = rest.split_at(per_second(second).min(rest.len()));
        if !now.is_empty() {
            pair.server.take_whole(now, pair.now);
        }
        rest = later;
        if rest.is_empty() {
            assert_eq!(pair.server.message(receive), pattern(60_000));
            return None;
        }
        pair.wait(Duration::from_secs(1));
        if let Some(end) = pair.server.end() {
            assert!(matches!(end, Disconnected::Timeout(_)), "{end:?}");
            return Some(second + 1);
        }
    }
    panic!("it neither comes nor ends");
}

/// A peer that was delayed and continues does not count as stalled.
#[test]
fn i6_an_fpdu_may_be_slow_but_not_stand_still() {
    assert_eq!(fpdu_lasts(|second| if second == 0 || second > 24 { 7000 } else { 0 }), None);
    // The peer is silent for the whole time.
    assert_eq!(fpdu_lasts(|second| if second == 0 { 7000 } else { 0 }), Some(30));
    // A single byte now and then is no progress: bytes extend the time only in proportion to their number.
    assert_eq!(fpdu_lasts(|_| 1), Some(31));
    assert!(matches!(fpdu_lasts(|_| 1000), Some(30..=37)));
}

#[test]
fn i6_a_peer_that_takes_a_little_now_and_then_is_waited_for() {
    let mut pair = Pair::open(&small());
    let wait = Timeouts::default().stalled_send - Duration::from_secs(1);
    pair.server.send(&pattern(1000));
    for _ in 0..5 {
        pair.server.transmit_some(100, pair.now);
        pair.wait(wait);
        assert_eq!(pair.server.end(), None);
    }
    pair.server.transmit(pair.now);
    assert_eq!(pair.server.engine.poll_timeout(), None);
}

#[test]
fn a_nudge_is_not_sent_behind_other_data_or_the_end() {
    let mut pair = Pair::new(&small());
    pair.client.send(b"hello");
    pair.client.transmit(pair.now);
    pair.client.send(b"more");
    pair.client.engine.prepare(pair.now);
    pair.wait(NUDGE_AFTER);
    assert_eq!(opcodes(&pair.client.transmit(pair.now)), [3]);

    let mut pair = Pair::new(&small());
    pair.client.send(b"hello");
    pair.client.transmit(pair.now);
    pair.client.engine.disconnect(pair.now);
    pair.wait(NUDGE_AFTER);
    assert!(!pair.client.engine.has_output());
}

#[test]
fn a_graceful_end_awaits_the_response_to_a_read_that_has_left() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(10));
    let read = pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    assert!(!pair.client.engine.has_output() && pair.client.engine.has_work());
    pair.client.engine.disconnect(pair.now);
    assert!(!pair.client.engine.shutdown_due());
    pair.server.take_whole(&request, pair.now);
    let response = pair.server.transmit(pair.now);
    pair.client.take_whole(&response, pair.now);
    assert_eq!(pair.client.sink(read), pattern(10));
    assert!(pair.client.engine.shutdown_due());
}

/// A message that the peer sent before it saw our end still arrives.
// requirement: rfc5041-6.2.1-5
#[test]
fn a_message_arrives_behind_our_own_end() {
    let mut pair = Pair::open(&small());
    let receive = pair.client.receive(10);
    pair.client.engine.disconnect(pair.now);
    pair.client.engine.prepare(pair.now);
    assert!(pair.client.engine.shutdown_due());
    pair.client.engine.handle_shutdown();
    pair.server.send(b"crossing");
    let stream = pair.server.transmit(pair.now);
    pair.client.take_whole(&stream, pair.now);
    assert_eq!(pair.client.message(receive), b"crossing");
}

/// A Write without data is one empty message to its only target, and none to several; targets of length 0 get none.
// requirement: rfc5040-5.1-4
#[test]
fn empty_writes_and_empty_targets() {
    let mut pair = Pair::open(&small());
    let target = |length| RemoteSegment { key: Key(0xDEAD_BEEF), address: 0, length };
    for (bytes, targets, segments) in [
        (0, vec![target(0)], 1),
        (0, vec![target(5)], 1),
        (0, vec![target(0), target(0)], 0),
        (0, vec![target(5), target(5)], 0),
        (0, vec![], 0),
        (7, vec![target(0), target(7), target(0)], 1),
        (7, vec![target(3), target(0), target(4)], 2),
    ] {
        let name = format!("{bytes} {targets:?}");
        let gather = vec![Bytes::from(pattern(bytes))];
        let id = pair.client.post(WorkRequest::Write { gather, targets });
        let stream = pair.client.transmit(pair.now);
        assert_eq!(pair.client.take(id).unwrap().status, Status::Success, "{name}");
        assert_eq!(opcodes(&stream), vec![0; segments], "{name}");
    }
}

/// RFC 5044 §4.5: with its markers an FPDU still fits a TCP segment.
// requirement: rfc5044-4.5-1, rfc5044-4.5-2, rfc5044-7.1.1-3
#[test]
fn rfc5044_4_5_fpdus_leave_room_for_markers() {
    for markers in [false, true] {
        let mut pair = Pair::new(&Setup { markers, ..small() });
        pair.client.send(&pattern(10_000));
        let stream = pair.client.transmit(pair.now);
        // The first marker stands in front of the first FPDU.
        let front = if markers { 4 } else { 0 };
        let length = usize::from(u16::from_be_bytes([stream[front], stream[front + 1]]));
        assert_eq!(length, crate::wire::fpdu::mulpdu(1448, markers));
    }
}

#[test]
fn an_idle_engine_has_no_work() {
    let mut pair = Pair::open(&small());
    assert!(!pair.client.engine.has_work() && !pair.server.engine.has_work());
    let source = pair.server.open_read(pattern(10));
    pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    assert!(pair.server.engine.has_work(), "a response");
    pair.server.engine.disconnect(pair.now);
    assert!(!pair.server.engine.shutdown_due(), "it leaves first");
    let response = pair.server.transmit(pair.now);
    assert_eq!(opcodes(&response), [2]);
    assert!(pair.server.engine.shutdown_due());
}

/// The pool recovers its memory by itself; a partly received message in it is of no use to the caller.
// requirement: rfc5041-5.4-1
#[test]
fn a_half_arrived_message_gives_only_scattered_buffers_back() {
    for pooled in [true, false] {
        let mut pair = Pair::open(&small());
        let receive = if pooled { pair.server.receive(10) } else { pair.server.receive_into(&[10]) };
        pair.server.take_whole(&untagged(0x43, 0, 2, 0, false, b"half"), pair.now);
        pair.server.engine.abort();
        let Work::Receive { buffers, len: 0, .. } = pair.server.take(receive).unwrap().work else {
            panic!("a flushed Receive")
        };
        assert_eq!(buffers.is_empty(), pooled);
    }
}

#[test]
fn i1_the_end_leaves_no_reference_to_a_window() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(1 << 20));
    pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    pair.server.transmit_some(5000, pair.now);
    pair.server.engine.abort();
    pair.server.collect();
    let unique = pair.server.done.iter().find_map(|done| match &done.work {
        Work::WindowFlushed { memory: WindowMemory::Read(memory), .. } => Some(memory.is_unique()),
        _ => None,
    });
    assert_eq!(unique, Some(true));
}

/// Only output beyond one segment has an end of a segment to care for.
#[test]
fn output_beyond_one_segment_is_told() {
    let mut pair = Pair::open(&small());
    for (length, exceeds) in [(1000, false), (1000, true)] {
        pair.client.send(&pattern(length));
        pair.client.engine.prepare(pair.now);
        assert_eq!(pair.client.engine.output_exceeds_segment(), exceeds);
    }
    pair.client.engine.set_emss(9000);
    assert!(!pair.client.engine.output_exceeds_segment());
}

#[test]
fn large_fpdus_do_not_follow_the_size_of_a_segment() {
    use crate::startup::{Negotiated, Role};
    let setup = small();
    // A peer that takes less than a segment gets segments: those everybody must take (RFC 5044 §4.5).
    for (large_fpdu, count) in [(Some(u16::MAX), 1), (Some(16_018), 4), (Some(128), 43), (None, 43)] {
        let negotiated = Negotiated { large_fpdu, ..setup.negotiated(Role::Initiator) };
        let now = Instant::now();
        let mut end = End::new(setup.engine_with(negotiated, now));
        end.send(&pattern(60_000));
        assert_eq!(fpdus(&end.transmit(now)).len(), count);
    }
}

#[test]
fn requests_without_segments() {
    let mut pair = Pair::open(&small());
    let engine = &mut pair.client.engine;
    let read = WorkRequest::Read { sink: Buffer::adopt(vec![]), sources: vec![] };
    assert!(matches!(engine.post(WrId(1), read), Err(PostError { kind: PostErrorKind::Invalid(_), .. })));
    let room = engine.send_room();
    engine.post(WrId(2), WorkRequest::Write { gather: vec![], targets: vec![] }).unwrap();
    assert_eq!(engine.send_room(), room - 1, "it takes a place until it completes");
}
