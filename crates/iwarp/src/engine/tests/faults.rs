//! Faults of a peer, and the Terminate that answers each.

use rpcrdma_verbs::TerminateCause;

use super::*;
use crate::wire::ddp::{Tagged, Untagged};
use crate::wire::fpdu::{fpdu_len, seal};
use crate::wire::rdmap::ReadRequest as Request;
use crate::wire::terminate::{TerminateView, cause};

pub(super) fn tagged(control: u8, stag: u32, offset: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = Tagged { last, control, stag, offset }.encode().to_vec();
    ulpdu.extend_from_slice(payload);
    seal(&ulpdu, true).unwrap()
}

pub(super) fn untagged(
    control: u8,
    queue: u32,
    msn: u32,
    offset: u32,
    last: bool,
    payload: &[u8],
) -> Vec<u8> {
    let mut ulpdu = Untagged { last, control, invalidate: 0, queue, msn, offset }.encode().to_vec();
    ulpdu.extend_from_slice(payload);
    seal(&ulpdu, true).unwrap()
}

/// Returns a segment of one byte of the Send with MSN 2, with this Invalidate STag.
fn invalidating(control: u8, invalidate: u32, offset: u32, last: bool) -> Vec<u8> {
    let mut ulpdu = Untagged { last, control, invalidate, queue: 0, msn: 2, offset }.encode().to_vec();
    ulpdu.push(b'x');
    seal(&ulpdu, true).unwrap()
}

fn read_request(msn: u32, size: u32, source: RemoteSegment) -> Vec<u8> {
    let request = Request {
        sink_stag: 7,
        sink_offset: 0,
        size,
        source_stag: source.key.0,
        source_offset: source.address,
    };
    untagged(0x41, 1, msn, 0, true, &request.encode())
}

/// Feeds FPDUs to a server (whose next Send MSN is 2) and returns its Terminate.
fn terminate(pair: &mut Pair, fpdus: &[Vec<u8>]) -> (TerminateCause, Vec<u8>) {
    for fpdu in fpdus {
        pair.server.take_whole(fpdu, pair.now);
    }
    let stream = pair.server.transmit(pair.now);
    let all = super::fpdus(&stream);
    let last = all.last().expect("a Terminate");
    assert_eq!(last[2..4], [0x41, 0x47]);
    assert_eq!(last[8..20], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(FpduView::new(last).crc_matches(), Some(true));
    let header = FpduView::new(last).ulpdu().unwrap()[18..].to_vec();
    assert!(pair.server.engine.shutdown_due());
    pair.server.engine.handle_shutdown();
    pair.server.engine.handle_end_of_stream();
    assert!(matches!(pair.server.end(), Some(Disconnected::ProtocolError(_))));
    (TerminateView::new(&header).cause().unwrap(), header)
}

// requirement: rfc5042-6.4.3.3-1, rfc5042-A-4
// requirement: rfc5040-4.1-2, rfc5040-4.1-4, rfc5040-4.8-3, rfc5040-4.8-4, rfc5040-4.8-6, rfc5040-4.8-7
// requirement: rfc5040-4.8-8, rfc5040-5.1-1, rfc5040-5.2.1-1, rfc5040-5.2.1-4, rfc5040-5.2.1-9, rfc5040-5.2.2-1
// requirement: rfc5040-5.3-1, rfc5040-5.3-2, rfc5040-5.3-4, rfc5040-5.3-8, rfc5040-5.4-1, rfc5040-5.4-2
// requirement: rfc5040-6.1-5, rfc5040-6.2.1-1, rfc5040-7.1-1, rfc5040-7.1-2, rfc5040-7.2-1, rfc5040-7.2-2
// requirement: rfc5040-7.2-3, rfc5040-7.2-4, rfc5040-7.2-6, rfc5040-7.2-7, rfc5040-7.2-9, rfc5040-7.2-12
// requirement: rfc5040-7.2-13, rfc5041-3-8, rfc5041-3-12, rfc5041-4.1-7, rfc5041-4.2-3, rfc5041-4.2-5, rfc5041-4.3-7
// requirement: rfc5041-4.3-10, rfc5041-4.3-11, rfc5041-4.4-1, rfc5041-5.2-6, rfc5041-5.3-4, rfc5041-6.2.2-1
// requirement: rfc5041-6.2.2-3, rfc5041-6.2.2-4, rfc5041-7-1, rfc5041-7.1-1, rfc5041-7.1-2, rfc5041-7.1-3
// requirement: rfc5041-7.1-4, rfc5041-7.1-5, rfc5041-7.1-7, rfc5041-7.2-1, rfc5041-8.3-4, rfc5041-8.3.1-1
// requirement: rfc5044-3-9, rfc5044-4.4-11, rfc5044-8-1, rfc5044-8-5, rfc5044-C.1-1
#[test]
fn rfc5040_7_and_rfc5041_7_each_violation_has_its_terminate() {
    type Make = fn(&mut Pair) -> Vec<Vec<u8>>;
    let big = 70_usize;
    assert!(big > 64);
    let cases: &[(&str, TerminateCause, Make)] = &[
        ("write to an unknown STag", cause::TAGGED_INVALID_STAG, |_| vec![tagged(0x40, 9, 9, true, b"x")]),
        ("write into a read window", cause::TAGGED_INVALID_STAG, |pair| {
            let window = pair.server.open_read(vec![0; 10]);
            vec![tagged(0x40, window.key.0, window.address, true, b"x")]
        }),
        ("write behind the window", cause::TAGGED_BOUNDS, |pair| {
            let window = pair.server.open_write(10);
            vec![tagged(0x40, window.key.0, window.address + 1, true, &[0; 10])]
        }),
        ("write before the window", cause::TAGGED_BOUNDS, |pair| {
            let window = pair.server.open_write(10);
            vec![tagged(0x40, window.key.0, window.address - 1, true, b"x")]
        }),
        ("a second segment behind the window", cause::TAGGED_BOUNDS, |pair| {
            let window = pair.server.open_write(10);
            vec![
                tagged(0x40, window.key.0, window.address, false, &[0; 10]),
                tagged(0x40, window.key.0, window.address + 10, true, b"x"),
            ]
        }),
        ("write that wraps", cause::TAGGED_WRAP, |pair| {
            let window = pair.server.open_write(10);
            vec![tagged(0x40, window.key.0, u64::MAX, true, b"xy")]
        }),
        ("tagged DDP version 2", cause::TAGGED_VERSION, |_| {
            let mut ulpdu = Tagged { last: true, control: 0x40, stag: 0, offset: 0 }.encode().to_vec();
            ulpdu[0] = 0xC2;
            vec![seal(&ulpdu, true).unwrap()]
        }),
        ("untagged DDP version 0", cause::UNTAGGED_VERSION, |_| {
            let fpdu = untagged(0x43, 0, 2, 0, true, b"");
            let mut ulpdu = FpduView::new(&fpdu).ulpdu().unwrap().to_vec();
            ulpdu[0] = 0x40;
            vec![seal(&ulpdu, true).unwrap()]
        }),
        ("RDMAP version 0", cause::RDMAP_VERSION, |_| vec![untagged(0x03, 0, 2, 0, true, b"")]),
        ("opcode 8", cause::UNEXPECTED_OPCODE, |_| vec![untagged(0x48, 0, 2, 0, true, &[0; 8])]),
        ("tagged Send", cause::UNEXPECTED_OPCODE, |_| vec![tagged(0x43, 0, 0, true, b"")]),
        ("untagged Write", cause::UNEXPECTED_OPCODE, |_| vec![untagged(0x40, 0, 2, 0, true, b"")]),
        ("queue 5", cause::INVALID_QUEUE, |_| vec![untagged(0x43, 5, 2, 0, true, b"")]),
        ("Send on the queue of Reads", cause::INVALID_QUEUE, |_| vec![untagged(0x43, 1, 1, 0, true, b"")]),
        ("no Receive", cause::NO_BUFFER, |_| vec![untagged(0x43, 0, 2, 0, true, b"")]),
        ("MSN skipped", cause::INVALID_MSN, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 3, 0, true, b"")]
        }),
        ("MSN repeated", cause::INVALID_MSN, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 1, 0, true, b"")]
        }),
        ("a message that begins in the middle", cause::INVALID_MO, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 2, 1, true, b"x")]
        }),
        ("a hole in a message", cause::INVALID_MO, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 2, 0, false, b"x"), untagged(0x43, 0, 2, 2, true, b"x")]
        }),
        ("longer than the Receive", cause::MESSAGE_TOO_LONG, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 2, 0, true, &[0; 11])]
        }),
        ("longer than the Receive, in two segments", cause::MESSAGE_TOO_LONG, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 2, 0, false, &[0; 10]), untagged(0x43, 0, 2, 10, true, b"x")]
        }),
        ("an opcode that changes inside a message", cause::UNEXPECTED_OPCODE, |pair| {
            pair.server.receive(10);
            vec![untagged(0x43, 0, 2, 0, false, b"x"), untagged(0x45, 0, 2, 1, true, b"x")]
        }),
        ("an Invalidate STag that changes inside a message", cause::UNSPECIFIED, |pair| {
            pair.server.receive(10);
            vec![invalidating(0x44, 5, 0, false), invalidating(0x44, 6, 1, true)]
        }),
        ("invalidation of an unknown STag", cause::CANNOT_INVALIDATE, |pair| {
            pair.server.receive(10);
            vec![untagged(0x44, 0, 2, 0, true, b"")]
        }),
        ("a Read Response nobody asked for", cause::TAGGED_INVALID_STAG, |_| {
            vec![tagged(0x42, 0, 0, true, b"")]
        }),
        ("a Read of an unknown STag", cause::READ_INVALID_STAG, |_| {
            vec![read_request(1, 1, RemoteSegment { key: Key(9), address: 0, length: 0 })]
        }),
        ("a Read of a write window", cause::READ_ACCESS, |pair| {
            let window = pair.server.open_write(10);
            vec![read_request(1, 1, window)]
        }),
        ("a Read behind the window", cause::READ_BOUNDS, |pair| {
            let window = pair.server.open_read(vec![0; 10]);
            vec![read_request(1, 11, window)]
        }),
        ("a Read of 4 GiB", cause::READ_BOUNDS, |pair| {
            let mut window = pair.server.open_read(vec![0; 10]);
            window.address &= u64::MAX >> 1;
            vec![read_request(1, u32::MAX, window)]
        }),
        ("a Read that wraps", cause::READ_WRAP, |pair| {
            let window = pair.server.open_read(vec![0; 10]);
            vec![read_request(1, 2, RemoteSegment { address: u64::MAX, ..window })]
        }),
        ("Read Request MSN skipped", cause::INVALID_MSN, |pair| {
            let window = pair.server.open_read(vec![0; 10]);
            vec![read_request(2, 1, window)]
        }),
        ("Read Request with payload", cause::MESSAGE_TOO_LONG, |_| {
            vec![untagged(0x41, 1, 1, 0, true, &[0; 29])]
        }),
        ("Read Request cut short", cause::STREAM_CATASTROPHIC, |_| {
            vec![untagged(0x41, 1, 1, 0, true, &[0; 27])]
        }),
        ("Read Request in two segments", cause::STREAM_CATASTROPHIC, |_| {
            vec![untagged(0x41, 1, 1, 0, false, &[0; 28])]
        }),
        ("more Reads than IRD", cause::NO_BUFFER, |pair| {
            let window = pair.server.open_read(vec![0; 10]);
            (1..=5).map(|msn| read_request(msn, 1, window)).collect()
        }),
        ("ULPDU of length 0", cause::STREAM_CATASTROPHIC, |_| vec![seal(b"", true).unwrap()]),
        ("ULPDU shorter than a tagged header", cause::STREAM_CATASTROPHIC, |_| {
            vec![seal(&[0xC1; 13], true).unwrap()]
        }),
        ("ULPDU shorter than an untagged header", cause::STREAM_CATASTROPHIC, |_| {
            vec![seal(&[0x41; 17], true).unwrap()]
        }),
        ("CRC", cause::MPA_CRC, |_| {
            let mut fpdu = untagged(0x43, 0, 2, 0, true, b"x");
            *fpdu.last_mut().unwrap() ^= 1;
            vec![fpdu]
        }),
    ];
    for (name, due, make) in cases {
        let mut pair = Pair::open(&small());
        let fpdus = make(&mut pair);
        let (seen, header) = terminate(&mut pair, &fpdus);
        assert_eq!(seen, *due, "{name}");
        // RFC 5040 Figure 10.
        let names_segment = due.layer < 2 && header.len() > 4;
        let flags = header[2];
        match (due.layer, due.error_type) {
            (0, 1) if *due != cause::CANNOT_INVALIDATE => assert_eq!(flags, 0xE0, "{name}"),
            (0 | 1, _) if names_segment => assert_eq!(flags, 0xC0, "{name}"),
            _ => assert_eq!(flags, 0, "{name}"),
        }
        if flags & 0x40 != 0 {
            let culprit = FpduView::new(fpdus.last().unwrap());
            assert_eq!(header[4..6], culprit.ulpdu_len().unwrap().to_be_bytes(), "{name}");
            let header_len = if header[6] & 0x80 != 0 { 14 } else { 18 };
            assert_eq!(header[6..6 + header_len], culprit.ulpdu().unwrap()[..header_len], "{name}");
        }
    }
}

/// RFC 5040 §4.3, Figure 4: the field is reserved in Sends without invalidation.
// requirement: rfc5040-4.1-7
#[test]
fn the_invalidate_stag_of_a_plain_send_means_nothing() {
    let mut pair = Pair::open(&small());
    let receive = pair.server.receive(10);
    pair.server.take_whole(&invalidating(0x43, 5, 0, false), pair.now);
    pair.server.take_whole(&invalidating(0x43, 6, 1, true), pair.now);
    assert_eq!(pair.server.message(receive), b"xx");
}

// requirement: rfc5040-4.8-7, rfc5041-7.1-5
#[test]
fn rfc5040_golden_terminate_for_a_bad_write() {
    let mut pair = Pair::open(&small());
    let write = crate::wire::hex::hex(
        "00 16 c1 40 00 00 20 01 00 00 7f 00 00 01 00 00 00 01 02 03 04 05 06 07 63 65 c0 b0",
    );
    pair.server.take_whole(&write, pair.now);
    let golden = "00 26 41 47 00 00 00 00 00 00 00 02 00 00 00 01 00 00 00 00 11 00 c0 00 00 16 c1 40 00 00 20 01 00 00 7f 00 \
                  00 01 00 00 23 61 40 3b";
    assert_eq!(pair.server.transmit(pair.now), crate::wire::hex::hex(golden));
}

// requirement: rfc5044-7.1.2-12
#[test]
fn rfc5044_7_1_2_a_responder_does_not_even_terminate_before_a_valid_fpdu() {
    let mut pair = Pair::new(&small());
    pair.server.receive(10);
    let mut fpdu = untagged(0x43, 0, 1, 0, true, b"x");
    fpdu[20] ^= 1;
    pair.server.take_whole(&fpdu, pair.now);
    assert!(pair.server.transmit(pair.now).is_empty());
    assert!(pair.server.engine.shutdown_due());
    // A valid FPDU with a fault above MPA may be answered.
    let mut pair = Pair::new(&small());
    pair.server.take_whole(&untagged(0x43, 0, 1, 0, true, b"x"), pair.now);
    assert_eq!(opcodes(&pair.server.transmit(pair.now)), [7]);
}

// requirement: rfc5040-7-1, rfc5041-3-9, rfc5041-7.1-2, rfc5041-7.1-4, rfc5041-7.1-6, rfc5044-8-4
#[test]
fn nothing_of_the_peer_counts_after_an_error() {
    let mut pair = Pair::open(&small());
    let window = pair.server.open_write(100);
    let receive = pair.server.receive(10);
    pair.server.take_whole(&tagged(0x40, 9, 9, true, b"x"), pair.now);
    pair.server.take_whole(&tagged(0x40, window.key.0, window.address, true, b"late"), pair.now);
    pair.server.take_whole(&untagged(0x43, 0, 2, 0, true, b"late"), pair.now);
    assert_eq!(pair.server.take(receive).unwrap().status, Status::Flushed);
    let memory = pair.server.done.iter().find_map(|done| match &done.work {
        Work::WindowFlushed { memory: WindowMemory::Write(memory), .. } => Some(memory.to_vec()),
        _ => None,
    });
    assert_eq!(memory, Some(vec![0; 100]));
    assert_eq!(opcodes(&pair.server.transmit(pair.now)), [7]);
}

// requirement: rfc5040-5.4-6
#[test]
fn a_terminate_follows_the_fpdu_that_is_half_sent() {
    let mut pair = Pair::open(&small());
    for _ in 0..3 {
        pair.server.send(&pattern(1000));
    }
    let mut stream = pair.server.transmit_some(1500, pair.now);
    pair.server.take_whole(&tagged(0x40, 9, 9, true, b"x"), pair.now);
    stream.extend_from_slice(&pair.server.transmit(pair.now));
    assert_eq!(opcodes(&stream), [3, 3, 7]);
    assert!(fpdus(&stream).iter().all(|fpdu| FpduView::new(fpdu).crc_matches() == Some(true)));
}

#[test]
fn a_large_segment_with_a_bad_header_is_answered_with_its_own_code() {
    for (damage_crc, due) in [(false, cause::TAGGED_INVALID_STAG), (true, cause::MPA_CRC)] {
        let mut pair = Pair::open(&small());
        let mut fpdu = tagged(0x40, 9, 9, true, &pattern(60_000));
        if damage_crc {
            fpdu[40_000] ^= 4;
        }
        assert_eq!(terminate(&mut pair, &[fpdu]).0, due);
    }
    // A header that cannot be decoded gets the same response.
    let mut pair = Pair::open(&small());
    let fpdu = seal(&vec![0xFE; 60_000], true).unwrap();
    assert_eq!(terminate(&mut pair, &[fpdu]).0, cause::TAGGED_VERSION);
}

#[test]
fn a_read_response_past_the_sink_is_refused() {
    // A peer that keeps the Last flag clear and continues to stream.
    for length in [100_usize, 50_000] {
        let mut pair = Pair::open(&Setup::default());
        let source = pair.server.open_read(pattern(length));
        let read = pair.client.read(source);
        let request = pair.client.transmit(pair.now);
        let asked = Request::decode(&FpduView::new(&request).ulpdu().unwrap()[18..]).unwrap();
        let fpdu = tagged(0x42, asked.sink_stag, asked.sink_offset, false, &pattern(length + 1));
        pair.client.take_whole(&fpdu, pair.now);
        assert_eq!(pair.client.take(read).unwrap().status, Status::Flushed);
        let answer = pair.client.transmit(pair.now);
        let header = FpduView::new(&answer).ulpdu().unwrap()[18..].to_vec();
        assert_eq!(TerminateView::new(&header).cause(), Some(cause::TAGGED_BOUNDS));
    }
}

#[test]
fn i6_empty_segments_of_a_read_response_buy_no_time() {
    let mut pair = Pair::open(&Setup::default());
    let source = pair.server.open_read(pattern(1000));
    pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    let stag = u32::from_be_bytes(request[20..24].try_into().unwrap());
    let offset = u64::from_be_bytes(request[24..32].try_into().unwrap());
    for _ in 0..12 {
        pair.client.take_whole(&tagged(0x42, stag, offset, false, b""), pair.now);
        assert_eq!(pair.client.end(), None);
        pair.wait(Duration::from_secs(5));
    }
    assert_eq!(pair.client.end(), Some(Disconnected::Timeout("the peer did not answer an RDMA Read")));
}

// requirement: rfc5040-6.2.1-3, rfc5041-6.2.2-3
#[test]
fn rfc5040_6_2_1_a_terminate_leaves_though_the_peer_closed_its_half() {
    let mut pair = Pair::open(&Setup::default());
    pair.server.take_whole(&tagged(0x40, 9, 9, true, b"x"), pair.now);
    pair.server.engine.handle_end_of_stream();
    assert!(!pair.server.engine.wants_input());
    assert_eq!(pair.server.end(), None);
    let stream = pair.server.transmit(pair.now);
    assert_eq!(stream[2..4], [0x41, 0x47]);
    assert!(pair.server.engine.shutdown_due());
    pair.server.engine.handle_shutdown();
    assert!(matches!(pair.server.end(), Some(Disconnected::ProtocolError(_))));
}

// requirement: rfc5042-6.2.2-2, rfc5042-6.3.5-1, rfc5042-A-2
// requirement: rfc5040-8.1.1-7, rfc5041-8.3.1-7, rfc5040-8.1.1-6, rfc5041-8.3.1-6
// requirement: rfc5041-8.3-2
#[test]
fn i7_a_read_sink_cannot_be_written_and_a_used_key_is_dead() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(10));
    pair.client.read(source);
    let request = pair.client.transmit(pair.now);
    let asked = Request::decode(&FpduView::new(&request).ulpdu().unwrap()[18..]).unwrap();
    pair.client.take_whole(&tagged(0x40, asked.sink_stag, asked.sink_offset, true, b"x"), pair.now);
    assert!(pair.client.engine.end().is_none());
    assert_eq!(opcodes(&pair.client.transmit(pair.now)), [7]);

    let mut pair = Pair::open(&small());
    let window = pair.server.open_write(10);
    pair.server.close(window);
    let fpdu = tagged(0x40, window.key.0, window.address, true, b"x");
    assert_eq!(terminate(&mut pair, &[fpdu]).0, cause::TAGGED_INVALID_STAG);
}

/// Flips every bit of an FPDU, in turn: none may complete any work.
fn flips(setup: &Setup, length: usize, bits: impl Iterator<Item = usize>) {
    for bit in bits {
        let mut pair = Pair::open(setup);
        let window = pair.server.open_write(length.max(1));
        let receive = pair.server.receive_into(&[length + 64]);
        let write = tagged(0x40, window.key.0, window.address, true, &pattern(length));
        let send = untagged(0x43, 0, 2, 0, true, &pattern(length));
        for mut stream in [write, send] {
            let bit = bit % (stream.len() * 8);
            stream[bit / 8] ^= 1 << (bit % 8);
            // A damaged length makes the receiver wait; further bytes let it continue.
            stream.extend_from_slice(&vec![0; 140_000]);
            pair.server.take_whole(&stream, pair.now);
            if pair.server.engine.counters().segments_received > 1 {
                panic!("bit {bit} was not seen");
            }
        }
        let completion = pair.server.take(receive);
        assert!(completion.is_none_or(|done| done.status == Status::Flushed), "bit {bit}");
        let returned = pair.server.done.iter().find_map(|done| match &done.work {
            Work::WindowFlushed { .. } => Some(done.status),
            _ => None,
        });
        assert_eq!(returned, Some(Status::Flushed), "bit {bit}");
    }
}

// requirement: v2-07-4.2-1
// requirement: rfc5040-5.5-7, rfc5041-3-7, rfc5044-4.1-2, rfc5044-4.4-6, rfc5044-4.4-11, rfc5044-7.1.1-4, rfc5044-8-4
#[test]
fn i11_a_flipped_bit_in_any_field_never_reaches_a_completion() {
    let small_fpdu = fpdu_len(18 + 5);
    flips(&small(), 5, 0..small_fpdu * 8);
}

// requirement: rfc5044-3-7, rfc5044-4.4-10, rfc5044-4.4-11, rfc5044-6-1
#[test]
fn i11_a_flipped_bit_in_a_directly_placed_segment_never_reaches_a_completion() {
    let whole = fpdu_len(18 + 20_000) * 8;
    let header = 0..22 * 8;
    let trailer = whole - 64..whole;
    let middle = (22 * 8..whole).step_by(9973);
    flips(&Setup::default(), 20_000, header.chain(middle).chain(trailer));
}

// requirement: rfc5044-3-7, rfc5044-4.4-10, rfc5044-6-1
#[test]
fn i11_strict_mode_places_nothing_before_the_crc_matched() {
    let mut pair = Pair::open(&Setup { strict_crc: true, ..Setup::default() });
    let window = pair.server.open_write(50_000);
    let mut fpdu = tagged(0x40, window.key.0, window.address, true, &pattern(50_000));
    *fpdu.last_mut().unwrap() ^= 1;
    pair.server.take_whole(&fpdu, pair.now);
    pair.server.collect();
    let untouched = pair.server.done.iter().any(|done| {
        matches!(&done.work, Work::WindowFlushed { memory: WindowMemory::Write(memory), .. }
            if memory.iter().all(|&byte| byte == 0))
    });
    assert!(untouched);
}

// requirement: rfc5044-4.1-3, rfc5044-4.4-7, rfc5044-7.1.1-4
#[test]
fn crc_off_is_not_checked() {
    let mut pair = Pair::open(&Setup { crc: false, ..Setup::default() });
    let receive = pair.server.receive(10);
    let mut fpdu = untagged(0x43, 0, 2, 0, true, b"x");
    *fpdu.last_mut().unwrap() ^= 1;
    pair.server.take_whole(&fpdu, pair.now);
    assert_eq!(pair.server.message(receive), b"x");
}

proptest! {
    /// For any input, no code panics, all posted work completes, and the connection ends or waits with a timer.
    #[test]
    fn i6_any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..600), crc: bool, framed: bool, step in 1_usize..700,
    ) {
        let mut pair = Pair::open(&Setup { crc, ..small() });
        let window = pair.server.open_write(100);
        let receive = pair.server.receive(1000);
        let mut stream = Vec::new();
        if framed {
            for chunk in bytes.chunks(40) {
                let mut ulpdu = chunk.to_vec();
                // Mostly legal control bytes, so that deeper checks are reached.
                ulpdu[0] = ulpdu[0] & 0xC0 | 1;
                if let Some(control) = ulpdu.get_mut(1) {
                    *control = *control & 7 | 0x40;
                }
                if let Some(stag) = ulpdu.get_mut(2..6).filter(|stag| stag[0] & 1 == 1) {
                    stag.copy_from_slice(&window.key.0.to_be_bytes());
                }
                stream.extend_from_slice(&seal(&ulpdu, crc).unwrap());
            }
        } else {
            stream = bytes;
        }
        pair.server.feed(&stream, || step, pair.now);
        pair.server.transmit(pair.now);
        pair.server.engine.handle_end_of_stream();
        prop_assert!(pair.server.end().is_some());
        prop_assert!(pair.server.take(receive).is_some());
    }
}
