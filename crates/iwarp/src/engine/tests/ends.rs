//! The ways in which connections end, and the completions of each.

use super::*;

/// Returns a pair with every kind of work in flight on the client, which then ends, and the number of completions due.
fn busy() -> (Pair, usize) {
    let mut pair = Pair::open(&small());
    let target = pair.server.open_write(1 << 20);
    let source = pair.server.open_read(pattern(1 << 20));
    pair.client.open_write(100);
    pair.client.open_read(vec![1; 100]);
    pair.client.engine.reserve_window(WindowMemory::Read(Bytes::from_static(b"reserved"))).unwrap();
    pair.client.collect();
    pair.client.done.clear();
    pair.client.read(source);
    pair.client.write(pattern(1 << 20), target);
    pair.client.send(b"behind");
    pair.client.post(WorkRequest::Send(SendRequest { express: true, ..send(b"express") }));
    pair.client.receive(100);
    pair.client.receive_into(&[10, 20]);
    pair.client.transmit_some(3000, pair.now);
    // Read, Write, two Sends, two Receives, three windows.
    (pair, 9)
}

fn assert_flushed(end: &mut End, count: usize) {
    end.collect();
    let flushed = end.done.iter().filter(|completion| completion.status == Status::Flushed).count();
    let completed = end.done.iter().filter(|completion| completion.status == Status::Success).count();
    assert_eq!(flushed + completed, count, "{:?}", end.done);
    let windows = end.done.iter().filter(|done| matches!(done.work, Work::WindowFlushed { .. })).count();
    assert_eq!(windows, 3);
    let scattered =
        end.done.iter().any(|done| matches!(&done.work, Work::Receive { buffers, .. } if buffers.len() == 2));
    assert!(scattered, "scatter buffers come back");
    assert!(end.done.iter().any(|done| matches!(&done.work, Work::Read { sink } if sink.len() == 1 << 20)));
}

// requirement: rfc5040-5.4-5, rfc5040-6.2.1-2, rfc5041-3-4, rfc5041-3-10, rfc5041-6.2.1-4, rfc5041-6.2.2-1
// requirement: rfc5041-6.2.2-2, rfc5041-7-1, rfc5044-7.2-1, rfc5044-8-1
#[test]
fn every_end_flushes_everything() {
    for end in 0..5 {
        let (mut pair, outstanding) = busy();
        let client = &mut pair.client;
        let due = match end {
            0 => {
                client.engine.abort();
                Disconnected::Local
            }
            1 => {
                client.engine.handle_end_of_stream();
                Disconnected::Peer
            }
            2 => {
                client.engine.handle_link_error("reset".to_owned());
                Disconnected::Link("reset".to_owned())
            }
            3 => {
                client.engine.handle_timeout(pair.now + seconds(1000));
                Disconnected::Timeout("the peer did not answer an RDMA Read")
            }
            _ => {
                // A Terminate of the peer.
                pair.server.take_whole(&[0, 2, 0xFF, 0xFF, 0, 0, 0, 0], pair.now);
                let terminate = pair.server.transmit(pair.now);
                client.take_whole(&terminate, pair.now);
                Disconnected::Terminated(crate::wire::terminate::cause::MPA_CRC)
            }
        };
        assert!(client.engine.end().is_none() || client.done.len() >= outstanding);
        assert_flushed(client, outstanding);
        assert_eq!(client.end(), Some(due));
        assert!(client.engine.post(WrId(1), WorkRequest::Send(send(b""))).is_err());
        assert!(client.engine.post(WrId(1), WorkRequest::LocalInvalidate { key: Key(1) }).is_err());
        assert!(client.engine.reserve_window(WindowMemory::Read(Bytes::new())).is_err());
        assert!(client.engine.post_receive(WrId(1), ReceiveMemory::Scatter(vec![])).is_err());
        assert_eq!(client.engine.send_room(), 256);
        assert_eq!(client.engine.poll_timeout(), None);
    }
}

// requirement: rfc5041-3-10, rfc5041-6.2.1-1, rfc5041-6.2.1-2, rfc5041-6.2.1-4, rfc5044-7.2-1
#[test]
fn a_graceful_end_sends_what_was_posted_and_awaits_reads() {
    let mut pair = Pair::open(&small());
    let target = pair.server.open_write(300_000);
    let source = pair.server.open_read(pattern(300_000));
    let receive = pair.server.receive(100);
    let write = pair.client.write(pattern(300_000), target);
    let read = pair.client.read(source);
    let last = pair.client.send(b"last");
    let open_receive = pair.client.receive(10);
    pair.client.engine.disconnect(pair.now);
    assert!(!pair.client.engine.shutdown_due());
    assert!(pair.client.engine.post(WrId(99), WorkRequest::Send(send(b""))).is_err());
    pair.run();
    assert!(pair.client.engine.shutdown_due());
    pair.client.engine.handle_shutdown();
    assert_eq!(pair.client.sink(read), pattern(300_000));
    assert_eq!(pair.client.take(write).unwrap().status, Status::Success);
    assert_eq!(pair.client.take(last).unwrap().status, Status::Success);
    assert_eq!(pair.server.message(receive), b"last");
    assert_eq!(pair.server.close(target), pattern(300_000));
    assert!(pair.client.end().is_none());
    pair.server.engine.handle_end_of_stream();
    assert_eq!(pair.server.end(), Some(Disconnected::Peer));
    pair.client.engine.handle_end_of_stream();
    assert_eq!(pair.client.take(open_receive).unwrap().status, Status::Flushed);
    assert_eq!(pair.client.end(), Some(Disconnected::Local));
}

#[test]
fn i6_a_graceful_end_goes_on_while_data_leaves() {
    let mut pair = Pair::open(&small());
    let target = pair.server.open_write(30_000);
    let write = pair.client.write(pattern(30_000), target);
    pair.client.engine.disconnect(pair.now);
    for _ in 0..10 {
        assert!(!pair.client.transmit_some(1000, pair.now).is_empty());
        pair.wait(seconds(4));
        assert_eq!(pair.client.end(), None);
    }
    assert!(pair.client.take(write).is_none());
    pair.wait(seconds(5));
    assert_eq!(pair.client.take(write).unwrap().status, Status::Flushed);
    assert_eq!(pair.client.end(), Some(Disconnected::Local));
}

#[test]
fn i6_a_peer_that_does_not_close_is_left() {
    let mut pair = Pair::open(&small());
    pair.client.engine.disconnect(pair.now);
    pair.client.engine.prepare(pair.now);
    assert!(pair.client.engine.shutdown_due());
    pair.client.engine.handle_shutdown();
    pair.wait(seconds(5));
    assert_eq!(pair.client.end(), Some(Disconnected::Local));
}

// requirement: rfc5044-7.1.2-18
#[test]
fn i6_no_wait_is_without_a_timer() {
    // A Responder that never receives an FPDU.
    let mut pair = Pair::new(&small());
    pair.wait(seconds(60));
    assert_eq!(
        pair.server.end(),
        Some(Disconnected::Timeout("the peer sent nothing after connection set-up"))
    );
    // An FPDU that never ends, however slowly it drips.
    let mut pair = Pair::open(&small());
    pair.client.send(&pattern(1000));
    let stream = pair.client.transmit(pair.now);
    pair.server.receive(2000);
    for byte in &stream[..31] {
        pair.server.take_whole(std::slice::from_ref(byte), pair.now);
        pair.wait(seconds(1));
    }
    assert_eq!(pair.server.end(), Some(Disconnected::Timeout("the peer did not finish an FPDU")));
    // A Read that is never answered.
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(10));
    pair.client.read(source);
    pair.client.transmit(pair.now);
    pair.wait(seconds(60));
    assert_eq!(pair.client.end(), Some(Disconnected::Timeout("the peer did not answer an RDMA Read")));
    // A peer that reads no data.
    let mut pair = Pair::open(&small());
    pair.client.send(b"stuck");
    pair.client.engine.prepare(pair.now);
    pair.wait(seconds(60));
    assert_eq!(pair.client.end(), Some(Disconnected::Timeout("the peer takes no data")));
}

#[test]
fn slow_progress_is_no_timeout() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(100_000));
    let read = pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    let response = pair.server.transmit(pair.now);
    for fpdu in fpdus(&response) {
        pair.client.take_whole(fpdu, pair.now);
        pair.wait(seconds(20));
    }
    assert_eq!(pair.client.sink(read), pattern(100_000));
    pair.wait(seconds(1000));
    assert_eq!(pair.client.end(), None);
}

/// An FPDU without payload whose CRC is wrong.
const BAD: [u8; 8] = [0, 2, 0xFF, 0xFF, 0, 0, 0, 0];

#[test]
fn i6_a_peer_that_takes_no_terminate_is_left() {
    let mut pair = Pair::open(&small());
    pair.client.take_whole(&BAD, pair.now);
    assert!(pair.client.engine.has_output());
    assert_eq!(pair.client.engine.poll_timeout(), Some(pair.now + seconds(5)));
    assert_eq!(pair.client.end(), None);
    pair.wait(seconds(5));
    assert!(matches!(pair.client.end(), Some(Disconnected::ProtocolError(_))));
}

/// A violation during our own end changes nothing about its reason. Behind our half of TCP no Terminate can follow.
#[test]
fn a_violation_during_our_own_end() {
    let mut pair = Pair::open(&small());
    pair.client.engine.disconnect(pair.now);
    pair.client.take_whole(&BAD, pair.now);
    assert!(!pair.client.transmit(pair.now).is_empty(), "the Terminate");
    pair.client.engine.handle_end_of_stream();
    assert_eq!(pair.client.end(), Some(Disconnected::Local));

    let mut pair = Pair::open(&small());
    pair.client.engine.disconnect(pair.now);
    pair.client.engine.prepare(pair.now);
    pair.client.engine.handle_shutdown();
    pair.client.take_whole(&BAD, pair.now);
    assert!(!pair.client.engine.has_output());
    assert_eq!(pair.client.end(), Some(Disconnected::Local));
}

#[test]
fn a_stream_that_ends_inside_an_fpdu_is_a_link_failure() {
    let mut pair = Pair::open(&small());
    pair.client.send(&pattern(100));
    let stream = pair.client.transmit(pair.now);
    pair.server.take_whole(&stream[..50], pair.now);
    pair.server.engine.handle_end_of_stream();
    assert!(matches!(pair.server.end(), Some(Disconnected::Link(_))));
}

// requirement: rfc5044-7.1-2, rfc5044-7.1.2-7
#[test]
fn what_start_up_left_behind_is_delivered() {
    let now = Instant::now();
    let mut pair = Pair::new(&small());
    pair.client.send(b"very early");
    let stream = pair.client.transmit(now);
    let setup = small();
    let mut parameters = Parameters {
        negotiated: setup.negotiated(Role::Responder),
        domain: ProtectionDomain::new(1 << 20),
        max_send_wr: 8,
        max_recv_wr: 8,
        max_windows: 8,
        strict_crc: false,
        timeouts: Timeouts::default(),
        emss: setup.emss,
        seed: [3; 32],
    };
    parameters.negotiated.ord = 0;
    let mut server = End::new(Engine::new(parameters, &stream, now));
    let receive = server.receive(100);
    server.engine.start(now);
    assert_eq!(server.message(receive), b"very early");
}
