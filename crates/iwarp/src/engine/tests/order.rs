//! Operations that may pass others, and operations that wait for others.

use super::*;

const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;

// requirement: rfc5044-7.1.2-12
#[test]
fn rfc5044_7_1_2_a_responder_speaks_second() {
    let mut pair = Pair::new(&small());
    let receive = pair.client.receive(100);
    pair.server.send(b"too early");
    assert!(pair.server.transmit(pair.now).is_empty());
    let opened = pair.server.receive(100);
    pair.client.send(b"first");
    pair.run();
    assert_eq!(pair.server.message(opened), b"first");
    assert_eq!(pair.client.message(receive), b"too early");
}

// requirement: rfc5040-5.3-5, rfc5040-5.5-4
#[test]
fn rfc5040_5_5_a_send_stays_behind_its_write_but_an_express_one_does_not() {
    let mut pair = Pair::open(&small());
    let window = pair.server.open_write(1 << 20);
    pair.client.write(pattern(1 << 20), window);
    pair.client.send(b"plain");
    let first = pair.client.transmit_some(usize::MAX, pair.now);
    pair.client.post(WorkRequest::Send(SendRequest { express: true, ..send(b"express") }));
    let mut stream = first.clone();
    stream.extend_from_slice(&pair.client.transmit(pair.now));
    let opcodes = super::opcodes(&stream);
    let sends: Vec<usize> =
        opcodes.iter().enumerate().filter(|&(_, &opcode)| opcode == SEND).map(|(at, _)| at).collect();
    assert_eq!(sends.len(), 2);
    assert_eq!(sends[1], opcodes.len() - 1, "the plain Send comes last");
    assert!(sends[0] < opcodes.len() / 3, "the express Send passes what has not been laid out");
    let [one, two] = [pair.server.receive(100), pair.server.receive(100)];
    pair.server.take_whole(&stream, pair.now);
    assert_eq!(pair.server.message(one), b"express");
    assert_eq!(pair.server.message(two), b"plain");
    assert_eq!(pair.server.close(window), pattern(1 << 20));
}

// requirement: rfc5041-5.3-2
#[test]
fn a_long_read_response_lets_sends_through() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(1 << 20));
    let read = pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    assert_eq!(opcodes(&request), [READ_REQUEST]);
    pair.server.take_whole(&request, pair.now);
    let first = pair.server.transmit_some(usize::MAX, pair.now);
    assert!(opcodes(&first).iter().all(|&opcode| opcode == READ_RESPONSE));
    pair.server.send(b"small");
    let mut stream = first;
    stream.extend_from_slice(&pair.server.transmit(pair.now));
    let opcodes = opcodes(&stream);
    let place = opcodes.iter().position(|&opcode| opcode == SEND).unwrap();
    assert!(place < opcodes.len() / 3);
    let receive = pair.client.receive(100);
    pair.client.take_whole(&stream, pair.now);
    assert_eq!(pair.client.message(receive), b"small");
    assert_eq!(pair.client.sink(read), pattern(1 << 20));
}

// requirement: rfc5041-5.3-2
#[test]
fn segments_of_two_tagged_messages_never_mix() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(100_000));
    let target = pair.client.open_write(100_000);
    pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    pair.server.write(pattern(100_000), target);
    let opcodes = opcodes(&pair.server.transmit(pair.now));
    let changes = opcodes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 1);
    assert!(opcodes.contains(&WRITE) && opcodes.contains(&READ_RESPONSE));
}

// requirement: rfc5041-5.3-2
#[test]
fn a_write_waits_for_the_end_of_a_read_response_that_has_begun() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(1 << 20));
    let target = pair.client.open_write(100_000);
    let read = pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    let mut stream = pair.server.transmit_some(usize::MAX, pair.now);
    pair.server.write(pattern(100_000), target);
    stream.extend_from_slice(&pair.server.transmit(pair.now));
    let mut opcodes = opcodes(&stream);
    opcodes.dedup();
    assert_eq!(opcodes, [READ_RESPONSE, WRITE]);
    pair.client.take_whole(&stream, pair.now);
    assert_eq!(pair.client.sink(read), pattern(1 << 20));
    assert_eq!(pair.client.close(target), pattern(100_000));
}

// requirement: rfc5666-3.3-4, rfc5042-6.4.3.3-2
// requirement: rfc5040-8.1.1-12
// requirement: rfc5040-5.5-4, rfc5040-5.5-6, rfc5040-6.1-3, rfc5040-6.1-4
#[test]
fn rfc5040_6_1_reads_beyond_ord_wait_and_later_sends_pass() {
    let mut pair = Pair::open(&Setup { ord: 2, ird: 2, ..small() });
    let reads: Vec<_> = (0..5)
        .map(|_| {
            let source = pair.server.open_read(pattern(5000));
            pair.client.read(source)
        })
        .collect();
    let sent = pair.client.send(b"passes");
    let receive = pair.server.receive(100);
    let stream = pair.client.transmit(pair.now);
    // It completes before the Reads that were posted earlier.
    assert_eq!(pair.client.take(sent).unwrap().status, Status::Success);
    assert!(reads.iter().all(|&read| pair.client.take(read).is_none()));
    let mut kinds = opcodes(&stream);
    kinds.sort_unstable();
    assert_eq!(kinds, [READ_REQUEST, READ_REQUEST, SEND]);
    pair.server.take_whole(&stream, pair.now);
    assert_eq!(pair.server.message(receive), b"passes");
    pair.run();
    for read in reads {
        assert_eq!(pair.client.sink(read), pattern(5000));
    }
}

// requirement: rfc5042-6.2.2-2
// requirement: rfc5040-8.1.1-7, rfc5041-8.3.1-7
#[test]
fn i1_invalidation_waits_for_half_sent_read_responses() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(1 << 20));
    let read = pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    pair.server.take_whole(&request, pair.now);
    let mut stream = pair.server.transmit_some(5000, pair.now);
    let invalidate = pair.server.post(WorkRequest::LocalInvalidate { key: source.key });
    assert!(pair.server.take(invalidate).is_none());
    // All bytes but the last.
    loop {
        let part = pair.server.transmit_some(200_000, pair.now);
        stream.extend_from_slice(&part);
        if part.len() < 200_000 {
            break;
        }
        assert!(pair.server.take(invalidate).is_none());
    }
    stream.extend_from_slice(&pair.server.transmit(pair.now));
    let Work::LocalInvalidate { memory: Some(WindowMemory::Read(memory)) } =
        pair.server.take(invalidate).unwrap().work
    else {
        panic!("no memory")
    };
    assert_eq!(memory.len(), 1 << 20);
    pair.client.take_whole(&stream, pair.now);
    assert_eq!(pair.client.sink(read), pattern(1 << 20));
}

// requirement: rfc5040-5.3-8, rfc5040-5.5-1
#[test]
fn i2_a_send_with_invalidate_is_delivered_after_the_read_response_left() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(1 << 20));
    let receive = pair.server.receive(100);
    let later = pair.server.receive(100);
    pair.client.read(source);
    pair.client.post(WorkRequest::Send(SendRequest { invalidate: Some(source.key), ..send(b"over") }));
    pair.client.send(b"behind it");
    let stream = pair.client.transmit(pair.now);
    pair.server.take_whole(&stream, pair.now);
    pair.server.transmit_some(100, pair.now);
    assert!(pair.server.take(receive).is_none() && pair.server.take(later).is_none());
    pair.server.transmit(pair.now);
    let Work::Receive { invalidated: Some((key, _)), .. } = pair.server.take(receive).unwrap().work else {
        panic!("no invalidation")
    };
    assert_eq!(key, source.key);
    assert_eq!(pair.server.message(later), b"behind it");
}

/// The first message names the window whose response leaves last.
// requirement: rfc5040-5.3-8
#[test]
fn i2_each_message_waits_for_its_own_window() {
    let mut pair = Pair::open(&small());
    let [first, last] = [1 << 20, 1 << 19].map(|length| pair.server.open_read(pattern(length)));
    let receives = [pair.server.receive(100), pair.server.receive(100)];
    for source in [first, last] {
        pair.client.read(source);
    }
    for source in [last, first] {
        let request = SendRequest { invalidate: Some(source.key), ..send(b"over") };
        pair.client.post(WorkRequest::Send(request));
    }
    let stream = pair.client.transmit(pair.now);
    pair.server.take_whole(&stream, pair.now);
    assert!(receives.iter().all(|receive| pair.server.take(*receive).is_none()));
    pair.server.transmit(pair.now);
    for (receive, source) in receives.into_iter().zip([last, first]) {
        let Work::Receive { invalidated: Some((key, WindowMemory::Read(memory))), .. } =
            pair.server.take(receive).unwrap().work
        else {
            panic!("no invalidation")
        };
        assert_eq!((key, memory.len()), (source.key, usize::try_from(source.length).unwrap()));
    }
}

#[test]
fn i1_a_half_placed_segment_keeps_the_window_memory() {
    let mut pair = Pair::open(&Setup::default());
    let window = pair.server.open_write(60_000);
    pair.client.write(pattern(60_000), window);
    let stream = pair.client.transmit(pair.now);
    let (front, back) = stream.split_at(30_000);
    pair.server.take_whole(front, pair.now);
    let invalidate = pair.server.post(WorkRequest::LocalInvalidate { key: window.key });
    assert!(pair.server.take(invalidate).is_none());
    pair.server.take_whole(&back[..back.len() - 1], pair.now);
    assert!(pair.server.take(invalidate).is_none(), "the CRC is still open");
    pair.server.take_whole(&back[back.len() - 1..], pair.now);
    let Work::LocalInvalidate { memory: Some(WindowMemory::Write(memory)) } =
        pair.server.take(invalidate).unwrap().work
    else {
        panic!("no memory")
    };
    assert_eq!(memory[..], pattern(60_000));
}

#[test]
fn a_silent_responder_is_nudged_at_growing_intervals() {
    let mut pair = Pair::new(&small());
    pair.client.send(b"hello");
    let mut stream = pair.client.transmit(pair.now);
    assert_eq!(opcodes(&stream), [SEND]);
    for nudge in 0..NUDGES_MAX {
        pair.wait(NUDGE_AFTER * (1 << nudge) - Duration::from_millis(1));
        assert!(pair.client.transmit(pair.now).is_empty());
        pair.wait(Duration::from_millis(1));
        let nudge = pair.client.transmit(pair.now);
        assert_eq!(opcodes(&nudge), [WRITE]);
        assert_eq!(nudge[..16], crate::wire::hex::hex("000e c140 00000000 0000000000000000")[..]);
        stream.extend(nudge);
    }
    pair.wait(seconds(10));
    assert!(pair.client.transmit(pair.now).is_empty());
    let receive = pair.server.receive(10);
    pair.server.take_whole(&stream, pair.now);
    assert_eq!(pair.server.message(receive), b"hello");
}

#[test]
fn nudging_ends_with_the_answer() {
    let mut pair = Pair::new(&small());
    let call = pair.server.receive(10);
    let answer = pair.client.receive(10);
    pair.client.send(b"hello");
    let stream = pair.client.transmit(pair.now);
    pair.wait(NUDGE_AFTER);
    let nudge = pair.client.transmit(pair.now);
    assert_eq!(opcodes(&nudge), [WRITE]);
    pair.server.take_whole(&[stream, nudge].concat(), pair.now);
    assert_eq!(pair.server.message(call), b"hello");
    pair.server.send(b"answer");
    pair.run();
    assert_eq!(pair.client.message(answer), b"answer");
    pair.wait(seconds(10));
    assert!(pair.client.transmit(pair.now).is_empty());
}

/// The answer may come while the first data still leave.
#[test]
fn an_initiator_that_was_answered_early_does_not_nudge() {
    let mut pair = Pair::new(&small());
    pair.server.receive(10);
    pair.server.receive(5000);
    let receive = pair.client.receive(10);
    pair.client.send(b"hello");
    pair.client.send(&pattern(5000));
    let first = pair.client.transmit_some(200, pair.now);
    pair.server.take_whole(&first, pair.now);
    pair.server.send(b"answer");
    let answer = pair.server.transmit(pair.now);
    pair.client.take_whole(&answer, pair.now);
    assert_eq!(pair.client.message(receive), b"answer");
    assert!(!pair.client.transmit(pair.now).is_empty());
    assert_eq!(pair.client.engine.poll_timeout(), None);
}

#[test]
fn an_answered_initiator_does_not_nudge() {
    let mut pair = Pair::new(&small());
    pair.server.receive(10);
    pair.client.receive(10);
    pair.client.send(b"hello");
    pair.server.send(b"answer");
    pair.run();
    pair.wait(seconds(1));
    assert!(pair.client.transmit(pair.now).is_empty());
}

// requirement: rfc6581-5-1, rfc6581-9.2-3, rfc6581-9.2-8
#[test]
fn rfc6581_9_2_each_ready_to_receive_message_comes_first_and_completes_nothing() {
    use crate::startup::{Negotiated, Role, Rtr};
    let now = Instant::now();
    for (rtr, opcode) in [(Rtr::Write, WRITE), (Rtr::Read, READ_REQUEST), (Rtr::Send, SEND)] {
        let setup = small();
        let negotiated = |role| Negotiated {
            rtr: (role == Role::Initiator).then_some(rtr),
            rtr_send_expected: role == Role::Responder && rtr == Rtr::Send,
            ..setup.negotiated(role)
        };
        let mut pair = Pair {
            client: End::new(setup.engine_with(negotiated(Role::Initiator), now)),
            server: End::new(setup.engine_with(negotiated(Role::Responder), now)),
            now,
        };
        pair.client.send(b"call");
        let receive = pair.server.receive(10);
        let greeting = pair.client.receive(10);
        pair.server.send(b"greeting");
        let stream = pair.client.transmit(now);
        assert_eq!(opcodes(&stream)[0], opcode);
        pair.server.take_whole(&stream, now);
        pair.run();
        assert_eq!(pair.server.message(receive), b"call");
        assert_eq!(pair.client.message(greeting), b"greeting");
    }
}

#[test]
fn bulk_delays_an_express_send_by_one_batch_at_most() {
    let mut pair = Pair::open(&small());
    let window = pair.server.open_write(8 << 20);
    pair.client.write(pattern(8 << 20), window);
    pair.client.engine.prepare(pair.now);
    let queued = pair
        .client
        .engine
        .with_transmit_slices(|slices, _| slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>())
        .len();
    assert!(queued <= 512 * 1024);
}
