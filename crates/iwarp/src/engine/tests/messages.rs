//! The octets of messages on the wire, in both directions.

use super::faults::{tagged, untagged};
use super::*;
use crate::startup::{Negotiated, Role, Rtr};
use crate::wire::ddp::{Header, HeaderView, Tagged, Untagged};
use crate::wire::fpdu::{MAX_ULPDU, mulpdu, pad_len, seal};
use crate::wire::rdmap::ReadRequest as Request;
use crate::wire::terminate::{TerminateView, cause};

const WRITE: u8 = 0x40;
const READ_REQUEST: u8 = 0x41;
const READ_RESPONSE: u8 = 0x42;
const SEND: u8 = 0x43;
const SEND_INVALIDATE: u8 = 0x44;
const SEND_SOLICITED: u8 = 0x45;
const SEND_SOLICITED_INVALIDATE: u8 = 0x46;
const TERMINATE: u8 = 0x47;

/// Returns the ULPDUs of a stream with this RDMAP control octet.
fn ulpdus(stream: &[u8], control: u8) -> Vec<Vec<u8>> {
    let all = super::fpdus(stream);
    assert_eq!(all.iter().map(|fpdu| fpdu.len()).sum::<usize>(), stream.len(), "only whole FPDUs leave");
    assert!(all.iter().all(|fpdu| FpduView::new(fpdu).crc_matches() == Some(true)));
    let all = all.iter().map(|fpdu| FpduView::new(fpdu).ulpdu().unwrap().to_vec());
    all.filter(|ulpdu| ulpdu[1] == control).collect()
}

/// Returns the only ULPDU of a stream with this RDMAP control octet.
fn ulpdu(stream: &[u8], control: u8) -> Vec<u8> {
    let mut found = ulpdus(stream, control);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

/// Returns the octets of a tagged header with these first two octets.
fn tagged_octets(control: [u8; 2], stag: u32, offset: u64) -> Vec<u8> {
    [&control[..], &stag.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// Returns the octets of an untagged header of the first segment of a message.
fn untagged_octets(control: [u8; 2], invalidate: u32, queue: u32, msn: u32) -> Vec<u8> {
    let words = [invalidate, queue, msn, 0].map(u32::to_be_bytes);
    [&control[..], &words.concat()].concat()
}

fn invalidate(key: Key, solicited: bool, message: &[u8]) -> WorkRequest {
    WorkRequest::Send(SendRequest { invalidate: Some(key), solicited, ..send(message) })
}

/// RFC 5040 §4, Figures 3 to 7: all fields of every message, and what becomes of it.
// requirement: rfc5040-3.1-1, rfc5040-4.1-1, rfc5040-4.1-2, rfc5040-4.1-3, rfc5040-4.1-4, rfc5040-4.1-5
// requirement: rfc5040-4.1-6, rfc5040-4.1-7, rfc5040-4.2-1, rfc5040-4.4-1, rfc5040-4.4-2, rfc5040-5.1-1
// requirement: rfc5040-5.1-2, rfc5040-5.2-1, rfc5040-5.2.1-1, rfc5040-5.2.1-3, rfc5040-5.2.1-4, rfc5040-5.2.1-8
// requirement: rfc5040-5.2.2-1, rfc5040-5.2.2-3, rfc5040-5.3-1, rfc5040-5.3-3, rfc5040-5.3-4, rfc5040-5.3-7
// requirement: rfc5040-5.3-8, rfc5040-5.4-1, rfc5040-5.4-2, rfc5040-5.5-1, rfc5040-6.1-1, rfc5040-7.1-2
// requirement: rfc5041-4.1-1, rfc5041-4.1-2, rfc5041-4.1-3, rfc5041-4.1-6, rfc5041-4.1-7, rfc5041-4.2-1
// requirement: rfc5041-4.2-2, rfc5041-4.2-3, rfc5041-4.2-6, rfc5041-4.3-1, rfc5041-4.3-2, rfc5041-4.3-3
// requirement: rfc5041-4.3-6, rfc5041-4.3-7, rfc5041-4.3-11, rfc5041-4.4-1, rfc5041-5.2-7, rfc5041-5.3-5
// requirement: rfc5041-5.4-2, rfc5041-5.4-3, rfc5041-8.3.1-1, rfc5044-3-1, rfc5044-3-9, rfc5044-4.1-1, rfc5044-4.3-10
// requirement: rfc5044-8-5, rfc5044-C.1-1
#[test]
fn rfc5040_figure_4_each_message_has_its_fields() {
    let mut pair = Pair::open(&small());
    let target = pair.server.open_write(10);
    let source = pair.server.open_read(pattern(20));
    let [first, second] = [pair.server.open_read(vec![1]), pair.server.open_read(vec![2])];
    for _ in 0..4 {
        pair.server.receive(10);
    }
    pair.server.collect();
    pair.server.done.clear();
    pair.client.write(pattern(10), target);
    let read = pair.client.read(source);
    pair.client.send(b"plain");
    pair.client.post(WorkRequest::Send(SendRequest { solicited: true, ..send(b"solicited") }));
    pair.client.post(invalidate(first.key, false, b"one"));
    pair.client.post(invalidate(second.key, true, b"two"));
    let stream = pair.client.transmit(pair.now);
    assert_eq!(super::fpdus(&stream).len(), 6);

    let write = tagged_octets([0xC1, WRITE], target.key.0, target.address);
    assert_eq!(ulpdu(&stream, WRITE), [write, pattern(10)].concat());
    let request = ulpdu(&stream, READ_REQUEST);
    assert_eq!(request[..18], untagged_octets([0x41, READ_REQUEST], 0, 1, 1));
    let [sink_stag, sink_offset] = [&request[18..22], &request[22..30]];
    let size_and_source =
        [&20_u32.to_be_bytes()[..], &source.key.0.to_be_bytes(), &source.address.to_be_bytes()].concat();
    assert_eq!(request[30..], size_and_source);
    for (control, stag, msn, message) in [
        (SEND, 0, 2, &b"plain"[..]),
        (SEND_SOLICITED, 0, 3, b"solicited"),
        (SEND_INVALIDATE, first.key.0, 4, b"one"),
        (SEND_SOLICITED_INVALIDATE, second.key.0, 5, b"two"),
    ] {
        let header = untagged_octets([0x41, control], stag, 0, msn);
        assert_eq!(ulpdu(&stream, control), [&header, message].concat());
    }

    pair.server.take_whole(&stream, pair.now);
    let delivered = pair.server.done.iter().map(|done| match &done.work {
        Work::Receive { len, invalidated, solicited, .. } => {
            (*len, invalidated.as_ref().map(|(key, _)| *key), *solicited)
        }
        other => panic!("a Write or a Read Request is no work of the target: {other:?}"),
    });
    let due = [(5, None, false), (9, None, true), (3, Some(first.key), false), (3, Some(second.key), true)];
    assert_eq!(delivered.collect::<Vec<_>>(), due);
    let response = pair.server.transmit(pair.now);
    let header = [&[0xC1, READ_RESPONSE][..], sink_stag, sink_offset].concat();
    assert_eq!(ulpdu(&response, READ_RESPONSE), [header, pattern(20)].concat());
    pair.client.take_whole(&response, pair.now);
    assert_eq!(pair.client.sink(read), pattern(20));
    assert_eq!(pair.server.close(target), pattern(10));

    let mut damaged = untagged(SEND, 0, 6, 0, true, b"x");
    damaged[20] ^= 1;
    pair.server.take_whole(&damaged, pair.now);
    let header = untagged_octets([0x41, TERMINATE], 0, 2, 1);
    assert_eq!(ulpdu(&pair.server.transmit(pair.now), TERMINATE), [&header[..], &[0x20, 2, 0, 0]].concat());
}

/// RFC 5041 §4, §5.2: the segments of each kind of message.
// requirement: rfc5040-5.2.2-5, rfc5040-5.3-7, rfc5040-6.1-1, rfc5041-3-5, rfc5041-4.1-3, rfc5041-4.1-4
// requirement: rfc5041-4.1-5, rfc5041-4.1-7, rfc5041-4.2-4, rfc5041-4.2-8, rfc5041-4.3-4, rfc5041-4.3-6
// requirement: rfc5041-4.3-10, rfc5041-4.3-11, rfc5041-5.2-1, rfc5041-5.2-2, rfc5041-5.2-4, rfc5041-5.2-5
// requirement: rfc5041-5.2-6, rfc5041-5.2-8, rfc5041-5.3-3, rfc5044-3-3
#[test]
fn rfc5041_5_2_the_segments_of_a_message() {
    const LENGTH: usize = 5000;
    let mut pair = Pair::open(&small());
    let target = pair.server.open_write(LENGTH);
    let source = pair.server.open_read(pattern(LENGTH));
    let closed = pair.server.open_read(vec![1]);
    pair.client.write(pattern(LENGTH), target);
    pair.client.post(invalidate(closed.key, false, &pattern(LENGTH)));
    pair.client.read(source);
    let mut stream = pair.client.transmit(pair.now);
    let receive = pair.server.receive(LENGTH);
    pair.server.take_whole(&stream, pair.now);
    assert_eq!(pair.server.message(receive), pattern(LENGTH));
    stream.extend(pair.server.transmit(pair.now));
    let most = mulpdu(1448, false);
    for control in [WRITE, SEND_INVALIDATE, READ_RESPONSE] {
        let segments = ulpdus(&stream, control);
        assert!(segments.len() > 1);
        let mut payload = Vec::new();
        let first = Header::decode(&segments[0]).unwrap();
        for (number, segment) in segments.iter().enumerate() {
            assert!(segment.len() <= most);
            let last = number + 1 == segments.len();
            let at = payload.len();
            let due = match first {
                Header::Tagged(first) => {
                    Header::Tagged(Tagged { last, offset: first.offset + at as u64, ..first })
                }
                Header::Untagged(first) => {
                    let offset = u32::try_from(at).unwrap();
                    Header::Untagged(Untagged {
                        last,
                        offset,
                        invalidate: closed.key.0,
                        queue: 0,
                        msn: 2,
                        ..first
                    })
                }
            };
            assert_eq!(Header::decode(segment), Ok(due));
            payload.extend_from_slice(HeaderView::new(segment).payload().unwrap());
        }
        assert_eq!(payload, pattern(LENGTH));
    }
}

// requirement: rfc5040-5.2.1-10, rfc5040-5.2.1-11, rfc5040-5.2.2-3, rfc5040-5.3-6, rfc5041-5.2-9, rfc5041-5.2-10
#[test]
fn rfc5041_5_2_a_message_without_bytes_is_one_segment() {
    let mut pair = Pair::open(&small());
    let nowhere = RemoteSegment { key: Key(0xDEAD_BEEF), address: u64::MAX, length: 0 };
    let receive = pair.server.receive(0);
    pair.client.write(vec![], nowhere);
    let read = pair.client.read(nowhere);
    pair.client.send(b"");
    let stream = pair.client.transmit(pair.now);
    assert_eq!([WRITE, READ_REQUEST, SEND].map(|control| ulpdu(&stream, control).len()), [14, 46, 18]);
    pair.server.take_whole(&stream, pair.now);
    // It takes a Receive like any other.
    assert_eq!(pair.server.message(receive), b"");
    let response = pair.server.transmit(pair.now);
    assert_eq!(ulpdu(&response, READ_RESPONSE).len(), 14);
    pair.client.take_whole(&response, pair.now);
    assert_eq!(pair.client.sink(read), b"");
    pair.server.take_whole(&untagged(SEND, 0, 3, 0, true, b""), pair.now);
    assert_eq!(terminated(&mut pair.server, pair.now), cause::NO_BUFFER);
}

/// Returns the cause of the Terminate that leaves.
fn terminated(end: &mut End, now: Instant) -> rpcrdma_verbs::TerminateCause {
    let stream = end.transmit(now);
    TerminateView::new(&ulpdu(&stream, TERMINATE)[18..]).cause().unwrap()
}

/// RFC 5040 §4.1, RFC 5041 §4.1, RFC 5044 §4.1: bits that are reserved, and the pad, have no meaning yet.
// requirement: rfc5040-4.1-6, rfc5041-4.1-6, rfc5044-4.1-2
#[test]
fn reserved_bits_and_pads_are_ignored() {
    for pad in [0, 0xFF] {
        let mut pair = Pair::open(&small());
        let window = pair.server.open_write(1);
        let receive = pair.server.receive(10);
        let write = Tagged { last: true, control: WRITE | 0x30, stag: window.key.0, offset: window.address };
        let send = Untagged { last: true, control: SEND | 0x30, invalidate: 0, queue: 0, msn: 2, offset: 0 };
        for mut ulpdu in [[&write.encode()[..], b"w"].concat(), [&send.encode()[..], b"s"].concat()] {
            ulpdu[0] |= 0x3C;
            let mut fpdu = [&u16::try_from(ulpdu.len()).unwrap().to_be_bytes()[..], &ulpdu].concat();
            let padded = fpdu.len() + pad_len(ulpdu.len());
            assert!(padded > fpdu.len());
            fpdu.resize(padded, pad);
            let mut crc = crate::wire::fpdu::Crc::new();
            crc.update(&fpdu);
            fpdu.extend_from_slice(&crc.wire());
            pair.server.take_whole(&fpdu, pair.now);
        }
        assert_eq!(pair.server.message(receive), b"s");
        assert_eq!(pair.server.close(window), b"w");
    }
}

/// RFC 5040 §4.1: only the two kinds of Send with Invalidate have this field.
// requirement: rfc5040-4.1-7
#[test]
fn the_invalidate_stag_of_other_messages_is_ignored() {
    let mut pair = Pair::open(&small());
    let window = pair.server.open_read(pattern(10));
    let receives = [pair.server.receive(10), pair.server.receive(10)];
    let request = Request {
        sink_stag: 7,
        sink_offset: 8,
        size: 10,
        source_stag: window.key.0,
        source_offset: window.address,
    }
    .encode();
    let cause = [0x20, 0x02, 0, 0];
    for (control, queue, msn, payload) in [
        (SEND, 0, 2, &b"plain"[..]),
        (SEND_SOLICITED, 0, 3, b"solicited"),
        (READ_REQUEST, 1, 1, &request),
        (TERMINATE, 2, 1, &cause),
    ] {
        let invalidate = window.key.0;
        let header = Untagged { last: true, control, invalidate, queue, msn, offset: 0 }.encode();
        pair.server.take_whole(&seal(&[&header[..], payload].concat(), true).unwrap(), pair.now);
        if control == READ_REQUEST {
            let response = pair.server.transmit(pair.now);
            assert_eq!(ulpdu(&response, READ_RESPONSE)[14..], pattern(10));
        }
    }
    assert_eq!(
        receives.map(|receive| pair.server.message(receive)),
        [b"plain".to_vec(), b"solicited".to_vec()]
    );
    assert_eq!(pair.server.engine.counters().remote_invalidations, 0);
    assert_eq!(pair.server.end(), Some(Disconnected::Terminated(cause::MPA_CRC)));
}

fn read_request(msn: u32, sink_offset: u64, size: u32, source: RemoteSegment) -> Vec<u8> {
    let (source_stag, source_offset) = (source.key.0, source.address);
    let request = Request { sink_stag: 0x7777 + msn, sink_offset, size, source_stag, source_offset };
    untagged(READ_REQUEST, 1, msn, 0, true, &request.encode())
}

/// RFC 5040 §5.2.1, §5.2.2: the queue has a buffer for each negotiated Read Request, and no more.
// requirement: rfc5040-4.4-2, rfc5040-5.2-1, rfc5040-5.2.1-2, rfc5040-5.2.1-3, rfc5040-5.2.1-6, rfc5040-5.2.1-8
// requirement: rfc5040-5.2.1-11, rfc5040-5.2.2-2, rfc5040-5.2.2-4, rfc5040-5.2.2-5, rfc5040-5.5-3, rfc5040-5.5-8
// requirement: rfc5040-5.5-10, rfc5040-6.1-2, rfc5040-6.1-5, rfc5040-7.2-6, rfc5041-7.1-1
#[test]
fn rfc5040_5_2_2_as_many_reads_as_negotiated_are_answered_in_order() {
    let mut pair = Pair::open(&Setup { ird: 3, ..small() });
    let long = pair.server.open_read(pattern(5000));
    let short = pair.server.open_read(pattern(10));
    pair.server.collect();
    pair.server.done.clear();
    let requests = [(1, 5000, long), (2, 10, short), (3, 0, short)];
    for (msn, size, source) in requests {
        let request = read_request(msn, 1 << 40, size, source);
        let (front, last) = request.split_at(request.len() - 1);
        pair.server.take_whole(front, pair.now);
        if msn == 1 {
            assert!(pair.server.transmit(pair.now).is_empty(), "not before the request is complete");
        }
        pair.server.take_whole(last, pair.now);
    }
    let stream = pair.server.transmit(pair.now);
    let responses = ulpdus(&stream, READ_RESPONSE);
    let stags: Vec<_> =
        responses.iter().map(|response| u32::from_be_bytes(response[2..6].try_into().unwrap())).collect();
    assert!(stags.is_sorted());
    for (msn, size, _) in requests {
        let of_this = responses.iter().filter(|response| response[2..6] == (0x7777 + msn).to_be_bytes());
        let mut at = 0;
        for response in of_this {
            let Ok(Header::Tagged(header)) = Header::decode(response) else { panic!("a tagged header") };
            assert_eq!(header.offset, (1 << 40) + at as u64);
            at += response.len() - 14;
            assert_eq!(header.last, at == usize::try_from(size).unwrap());
        }
        assert_eq!(at, usize::try_from(size).unwrap());
    }
    pair.server.collect();
    assert!(pair.server.done.is_empty(), "{:?}", pair.server.done);
    // All were answered: three more may come, and no fourth.
    for msn in 4..7 {
        pair.server.take_whole(&read_request(msn, 0, 10, short), pair.now);
    }
    assert_eq!(pair.server.end(), None);
    pair.server.take_whole(&read_request(7, 0, 10, short), pair.now);
    assert_eq!(terminated(&mut pair.server, pair.now), cause::NO_BUFFER);
}

// requirement: rfc5040-4.8-6, rfc5040-4.8-7, rfc5040-7.1-3, rfc5041-7.1-5
#[test]
fn rfc5040_7_1_the_terminate_names_the_first_of_two_errors() {
    let mut pair = Pair::open(&small());
    let first = tagged(WRITE, 9, 9, true, b"first");
    let second = untagged(0x48, 0, 2, 0, true, b"second");
    pair.server.take_whole(&[&first[..], &second].concat(), pair.now);
    let stream = pair.server.transmit(pair.now);
    let terminate = ulpdu(&stream, TERMINATE);
    assert_eq!(terminate[18..22], [0x11, 0, 0xC0, 0]);
    assert_eq!(terminate[22..], [&[0, 19], &first[2..16]].concat());
}

// requirement: rfc5040-5.4-6, rfc5040-7-1, rfc5041-3-9
#[test]
fn rfc5040_5_4_nothing_leaves_behind_a_terminate() {
    let mut pair = Pair::open(&small());
    let source = pair.server.open_read(pattern(10));
    let posted = pair.server.send(b"posted before");
    pair.server.take_whole(&read_request(1, 0, 10, source), pair.now);
    pair.server.take_whole(&tagged(WRITE, 9, 9, true, b"x"), pair.now);
    assert!(pair.server.engine.post(WrId(99), WorkRequest::Send(send(b"after"))).is_err());
    assert_eq!(pair.server.take(posted).unwrap().status, Status::Flushed);
    assert_eq!(opcodes(&pair.server.transmit(pair.now)), [7]);
    pair.server.take_whole(&tagged(WRITE, 9, 9, true, b"again"), pair.now);
    pair.wait(NUDGE_AFTER);
    assert!(pair.server.transmit(pair.now).is_empty());
}

/// RFC 5041 §7.1: the Terminate Queue has one buffer, for the message with MSN 1 and the longest Terminate.
// requirement: rfc5040-5.4-3, rfc5040-5.4-4, rfc5040-5.4-5, rfc5041-7.1-1
#[test]
fn rfc5040_5_4_a_terminate_has_its_own_buffer() {
    let longest = [&[0x11, 0, 0xE0, 0][..], &[0; 48]].concat();
    // No Receive is posted.
    let mut pair = Pair::open(&Setup { ird: 0, ord: 0, ..small() });
    pair.server.take_whole(&untagged(TERMINATE, 2, 1, 0, true, &longest), pair.now);
    assert_eq!(pair.server.end(), Some(Disconnected::Terminated(cause::TAGGED_INVALID_STAG)));
    assert!(pair.server.transmit(pair.now).is_empty(), "it gets no answer");
    for (msn, offset, payload, due) in [
        (0, 0, &longest[..], cause::INVALID_MSN),
        (2, 0, &longest, cause::INVALID_MSN),
        (1, 4, &longest, cause::INVALID_MO),
        (1, 0, &[0; 53], cause::MESSAGE_TOO_LONG),
        (1, 0, &pattern(20_000), cause::MESSAGE_TOO_LONG),
    ] {
        let mut pair = Pair::open(&small());
        pair.server.take_whole(&untagged(TERMINATE, 2, msn, offset, true, payload), pair.now);
        assert_eq!(terminated(&mut pair.server, pair.now), due);
    }
}

/// RFC 5040 §5.4: an invalid Terminate is an error of its own, and reports none.
// requirement: rfc5040-4.8-1
#[test]
fn rfc5040_4_8_a_terminate_is_one_segment_with_a_whole_header() {
    for (last, payload) in
        [(true, &[][..]), (true, &[0x11]), (true, &[0x11, 0, 0]), (false, &[0x11, 0, 0, 0])]
    {
        let mut pair = Pair::open(&small());
        pair.server.take_whole(&untagged(TERMINATE, 2, 1, 0, last, payload), pair.now);
        assert_eq!(terminated(&mut pair.server, pair.now), cause::STREAM_CATASTROPHIC, "{last} {payload:?}");
        assert!(!matches!(pair.server.end(), Some(Disconnected::Terminated(_))), "{last} {payload:?}");
    }
}

#[test]
fn a_long_terminate_ends_nothing_before_its_crc_matched() {
    let mut pair = Pair::open(&small());
    let mut fpdu = untagged(TERMINATE, 2, 1, 0, true, &pattern(20_000));
    *fpdu.last_mut().unwrap() ^= 1;
    pair.server.take_whole(&fpdu[..30], pair.now);
    assert_eq!(pair.server.end(), None);
    pair.server.take_whole(&fpdu[30..], pair.now);
    assert_eq!(terminated(&mut pair.server, pair.now), cause::MPA_CRC);
}

/// RFC 6581 §9.2: only the first FPDU is a Ready-To-Receive message. An empty Send behind it is a message.
// requirement: rfc5040-5.3-6
#[test]
fn an_empty_send_behind_another_ready_to_receive_message_is_delivered() {
    let now = Instant::now();
    for rtr in [Rtr::Write, Rtr::Read, Rtr::Send] {
        let negotiated = |role| Negotiated {
            rtr: (role == Role::Initiator).then_some(rtr),
            rtr_send_expected: role == Role::Responder,
            ..small().negotiated(role)
        };
        let mut pair = Pair {
            client: End::new(small().engine_with(negotiated(Role::Initiator), now)),
            server: End::new(small().engine_with(negotiated(Role::Responder), now)),
            now,
        };
        let receive = pair.server.receive(10);
        pair.client.send(b"");
        pair.run();
        assert_eq!(pair.server.message(receive), b"", "{rtr:?}");
    }
}

/// RFC 6581 §9.2: an empty Send announces readiness. Any other Send is a message, also as the first FPDU.
// requirement: rfc5040-5.3-6
#[test]
fn a_first_send_that_announces_nothing_is_delivered() {
    let now = Instant::now();
    for (message, solicited) in [(&b"hello"[..], false), (b"", true)] {
        let expecting = Negotiated { rtr_send_expected: true, ..small().negotiated(Role::Responder) };
        let mut pair = Pair {
            client: End::new(small().engine(Role::Initiator, now)),
            server: End::new(small().engine_with(expecting, now)),
            now,
        };
        let receive = pair.server.receive(10);
        pair.client.post(WorkRequest::Send(SendRequest { solicited, ..send(message) }));
        pair.run();
        assert_eq!(pair.server.message(receive), message);
    }
}

// requirement: rfc5041-5.2-3
#[test]
fn rfc5041_5_2_a_message_is_shorter_than_four_gib() {
    let mut pair = Pair::new(&small());
    let piece = Bytes::from(vec![0; 1 << 26]);
    let mut post = |gather| {
        let request = SendRequest { gather, ..SendRequest::default() };
        pair.client.engine.post(WrId(1), WorkRequest::Send(request)).map_err(|refused| refused.kind)
    };
    let mut gather = vec![piece.clone(); 64];
    assert!(matches!(post(gather.clone()), Err(PostErrorKind::Invalid(_))));
    gather[0] = piece.slice(1..);
    assert_eq!(post(gather), Ok(()));
}

/// RFC 5044 §3: whatever the size of TCP segments.
// requirement: rfc5041-5.2-2, rfc5044-3-4, rfc5044-3-5
#[test]
fn rfc5044_3_no_ulpdu_is_longer_than_64768_octets() {
    for large_fpdu in [None, Some(u16::MAX)] {
        let setup = Setup { emss: 1 << 20, ..Setup::default() };
        let negotiated = Negotiated { large_fpdu, ..setup.negotiated(Role::Initiator) };
        let mut client = End::new(setup.engine_with(negotiated, Instant::now()));
        client.send(&pattern(64_768 - 18));
        client.send(&pattern(64_768 - 17));
        let stream = client.transmit(Instant::now());
        let lengths: Vec<_> = ulpdus(&stream, SEND).iter().map(|ulpdu| ulpdu.len()).collect();
        assert_eq!(lengths.len(), 3);
        assert_eq!(lengths[0], 64_768);
        assert!(lengths.iter().all(|&length| length <= 64_768), "{lengths:?}");
    }
    // Received ones may be longer.
    let mut pair = Pair::open(&Setup::default());
    let receive = pair.server.receive(MAX_ULPDU - 18);
    pair.server.take_whole(&untagged(SEND, 0, 2, 0, true, &pattern(MAX_ULPDU - 18)), pair.now);
    assert_eq!(pair.server.message(receive), pattern(MAX_ULPDU - 18));
}

/// RFC 5041 §3 (1), (2), §5.2: segments that wait for the socket keep their length, and those that follow have the new
/// one, also within a message.
// requirement: rfc5041-3-2, rfc5041-3-3, rfc5041-5.2-2, rfc5044-3-2, rfc5044-3-3, rfc5044-5.1-1
#[test]
fn rfc5041_5_2_segments_follow_a_new_size() {
    const LENGTH: usize = 1 << 20;
    for (control, before) in [WRITE, SEND, READ_RESPONSE].into_iter().flat_map(|it| [(it, 1448), (it, 700)]) {
        let after = 2148 - before;
        let mut pair = Pair::open(&Setup { emss: before, ..Setup::default() });
        if control == WRITE {
            let target = pair.server.open_write(LENGTH);
            pair.client.write(pattern(LENGTH), target);
        } else if control == SEND {
            pair.client.send(&pattern(LENGTH));
        } else {
            let source = pair.client.open_read(pattern(LENGTH));
            pair.server.read(source);
            let request = pair.server.transmit(pair.now);
            pair.client.take_whole(&request, pair.now);
        }
        pair.client.engine.prepare(pair.now);
        pair.client.engine.set_emss(after);
        let stream = pair.client.transmit(pair.now);
        let lengths: Vec<_> = ulpdus(&stream, control).iter().map(|ulpdu| ulpdu.len()).collect();
        let old = lengths.iter().take_while(|&&length| length == mulpdu(before, false)).count();
        assert!(old > 100, "these were laid out");
        let new = &lengths[old..];
        assert!(after > before || new.len() > 100);
        assert!(new.iter().all(|&length| length <= mulpdu(after, false)), "{control:#x}");
    }
}

/// Each target has its message, and each message its turn.
// requirement: rfc5040-5.1-3, rfc5040-5.1-4
#[test]
fn rfc5040_5_1_writes_leave_in_the_order_of_posting() {
    let mut pair = Pair::open(&small());
    let target = |stag| RemoteSegment { key: Key(stag), address: u64::from(stag), length: 2000 };
    for targets in [vec![target(5)], vec![target(4), target(9)], vec![target(1)]] {
        let gather = vec![Bytes::from(pattern(2000 * targets.len()))];
        pair.client.post(WorkRequest::Write { gather, targets });
    }
    let stream = pair.client.transmit(pair.now);
    let messages = ulpdus(&stream, WRITE).into_iter().map(|segment| match Header::decode(&segment) {
        Ok(Header::Tagged(header)) => (header.stag, header.offset, header.last),
        other => panic!("{other:?}"),
    });
    let due = [5, 4, 9, 1].map(|stag| {
        let offset = u64::from(stag);
        [(stag, offset, false), (stag, offset + (mulpdu(1448, false) - 14) as u64, true)]
    });
    assert_eq!(messages.collect::<Vec<_>>(), due.concat());
}

/// RFC 5044 §6: whatever the kind of the message.
// requirement: rfc5044-6-3
#[test]
fn each_fpdu_takes_effect_with_its_last_octet() {
    for length in [10, 20_000] {
        let mut pair = Pair::open(&Setup::default());
        let receive = pair.server.receive(length);
        let send = untagged(SEND, 0, 2, 0, true, &pattern(length));
        let (front, last) = send.split_at(send.len() - 1);
        pair.server.take_whole(front, pair.now);
        assert!(pair.server.take(receive).is_none());
        pair.server.take_whole(last, pair.now);
        assert_eq!(pair.server.message(receive), pattern(length));
        let terminate = untagged(TERMINATE, 2, 1, 0, true, &[0x20, 2, 0, 0]);
        let (front, last) = terminate.split_at(terminate.len() - 1);
        pair.server.take_whole(front, pair.now);
        assert_eq!(pair.server.end(), None);
        pair.server.take_whole(last, pair.now);
        assert_eq!(pair.server.end(), Some(Disconnected::Terminated(cause::MPA_CRC)));
    }
}
