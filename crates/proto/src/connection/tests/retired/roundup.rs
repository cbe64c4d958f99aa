//! XDR roundup in every form that a document allows or proposed. See implementation-experience §3.7 (Read chunks) and
//! §3.8 (Write chunks), and the last-call slides of 2006. Forms that RFC 8166 does not allow need an opt-in.

use bytes::Bytes;
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};

use super::super::requester::{accepted, client, discarded, plain, result, send};
use super::super::responder::{at, expect_error, lists, rpc};
use crate::testing::*;
use crate::wire::{Body, ChunkLists, ErrorBody, ReadSegment, Segment, WriteChunk};
use crate::{Compatibility, Config, Side};

fn both_modes() -> [Fabric; 2] {
    [CompletionMode::Local, CompletionMode::Acknowledged]
        .map(|completion_mode| Fabric::new(FabricConfig { completion_mode, ..FabricConfig::default() }))
}

fn word(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap().to_be_bytes()
}

/// The place of the pad of a Read chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pad {
    None,
    /// In the last segment.
    Inside,
    /// In a segment of its own, with the Position of the chunk.
    Segment,
    /// In a segment of its own that is marked (slides, option A), with the Position of the chunk or its own.
    Marked {
        own_position: bool,
    },
    /// In a chunk of its own at the end of the data (RFC 5666 §3.7).
    Chunk,
}

/// A WRITE with its data in a Read chunk of two segments and this pad, after inline content or before it.
fn write_call(raw: &mut Raw, len: usize, pad: Pad) -> Bytes {
    const POSITION: u32 = 44;
    let data = pattern(len);
    let zeros = &[0; 3][..len.next_multiple_of(4) - len];
    let (first, second) = data.split_at(len / 2);
    let tail = if pad == Pad::Inside { [second, zeros].concat() } else { second.to_vec() };
    let mut read: Vec<ReadSegment> = [first, &tail]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| at(POSITION, raw.readable(part)))
        .collect();
    match pad {
        Pad::None | Pad::Inside => {}
        _ if zeros.is_empty() => {}
        Pad::Segment => read.push(at(POSITION, raw.readable(zeros))),
        // The marked segment is never read, so its handle names no memory.
        Pad::Marked { own_position } => {
            let position = if own_position { POSITION + u32::try_from(len).unwrap() } else { POSITION };
            let length = u32::try_from(zeros.len()).unwrap();
            let segment = Segment { handle: 0xbad, length, offset: 0 };
            read.push(ReadSegment { position, segment, padding: true });
        }
        Pad::Chunk => {
            let pad = raw.readable(zeros);
            read.push(at(POSITION + u32::try_from(len).unwrap(), pad));
        }
    }
    message(&header(1, Body::Message(lists(read, vec![], None))), &rpc(1, WRITE, &word(len)))
}

const LENGTHS: [usize; 6] = [1, 2, 3, 4, 6001, 6003];

/// Implementation-experience §3.7, RFC 8166 §3.4.5.2: a Responder accepts both without any opt-in.
// requirement: rfc8166-3.4.5.2-2, rfc8166-3.4.5.2-3, rfc5666-3.7-1
#[test]
fn ie_3_7_a_read_chunk_comes_with_its_pad_or_without() {
    for fabric in both_modes() {
        for len in LENGTHS {
            for pad in [Pad::None, Pad::Inside, Pad::Segment] {
                let mut raw = Raw::on(&fabric, Side::Server, server_config(), &Config::default());
                let call = write_call(&mut raw, len, pad);
                raw.send(call);
                let (answer, results) = raw.last();
                assert_eq!(answer.body, Body::Message(ChunkLists::default()), "{len} {pad:?}");
                assert_eq!(results[24..], word(len), "{len} {pad:?}");
            }
        }
    }
}

/// RFC 5666 §3.7: "as an additional Chunk", whose Position is where the item ends.
#[test]
fn rfc5666_3_7_a_pad_in_a_chunk_of_its_own_is_taken_if_agreed() {
    for fabric in both_modes() {
        for len in LENGTHS {
            let compatibility = Compatibility { pad_chunks: true, ..Compatibility::default() };
            let config = Config { compatibility, ..server_config() };
            let mut raw = Raw::on(&fabric, Side::Server, config, &Config::default());
            let call = write_call(&mut raw, len, Pad::Chunk);
            raw.send(call);
            let (answer, results) = raw.last();
            assert_eq!(answer.body, Body::Message(ChunkLists::default()), "{len}");
            assert_eq!(results[24..], word(len), "{len}");
            assert_eq!(raw.end.connection.stats().calls_received.read_bytes, u64::try_from(len).unwrap());
        }
    }
}

#[test]
fn s3_4_5_a_pad_in_a_chunk_of_its_own_gets_err_chunk_by_default() {
    let mut raw = Raw::new(Side::Server, server_config());
    let call = write_call(&mut raw, 5, Pad::Chunk);
    raw.send(call);
    expect_error(&mut raw, 1, ErrorBody::Chunk, "unaligned_position");
}

/// With the opt-in, too, a pad chunk that does not complete an item is refused.
#[test]
fn rfc5666_3_7_a_pad_chunk_must_complete_an_item() {
    let compatibility = Compatibility { pad_chunks: true, ..Compatibility::default() };
    let nowhere = |length| Segment { handle: 0xbad, length, offset: 0 };
    for (position, length, name) in [
        (47, 1, "misplaced_padding"),
        (50, 2, "misplaced_padding"),
        (49, 2, "unaligned_position"),
        (49, 7, "unaligned_position"),
    ] {
        let config = Config { compatibility: compatibility.clone(), ..server_config() };
        let mut raw = Raw::new(Side::Server, config);
        let read = vec![at(44, raw.readable(&pattern(5))), at(position, nowhere(length))];
        raw.send(message(&header(1, Body::Message(lists(read, vec![], None))), &rpc(1, WRITE, &word(5))));
        expect_error(&mut raw, 1, ErrorBody::Chunk, name);
    }
}

/// Implementation-experience §3.7: inline content that follows a chunk never holds its pad.
// requirement: experience-3.7.1-1
#[test]
fn ie_3_7_a_pad_left_inline_is_data() {
    let mut raw = Raw::new(Side::Server, server_config());
    let read = vec![at(44, raw.readable(&pattern(5)))];
    let inline = [&word(5)[..], &[0; 3], &[0; 1]].concat();
    raw.send(message(&header(1, Body::Message(lists(read, vec![], None))), &rpc(1, WRITE, &inline)));
    let (_, results) = raw.last();
    assert_eq!(results[20..24], word(4), "GARBAGE_ARGS");
}

/// The slides' option A, with the opt-in: the marked segment is not read.
#[test]
fn slides_2006_option_a_is_taken_if_agreed() {
    for fabric in both_modes() {
        for len in LENGTHS {
            for own_position in [false, true] {
                let compatibility = Compatibility { padding_segments: true, ..Compatibility::default() };
                let config = Config { compatibility, ..server_config() };
                let mut raw = Raw::on(&fabric, Side::Server, config, &Config::default());
                let call = write_call(&mut raw, len, Pad::Marked { own_position });
                raw.send(call);
                let (answer, results) = raw.last();
                assert_eq!(answer.body, Body::Message(ChunkLists::default()), "{len}");
                assert_eq!(results[24..], word(len));
            }
        }
    }
}

#[test]
fn slides_2006_option_a_gets_err_chunk_by_default() {
    let mut raw = Raw::new(Side::Server, server_config());
    let call = write_call(&mut raw, 5, Pad::Marked { own_position: false });
    raw.send(call);
    expect_error(&mut raw, 1, ErrorBody::Chunk, "padding_segment");
}

#[test]
fn slides_2006_option_a_must_complete_a_chunk() {
    let compatibility = Compatibility { padding_segments: true, ..Compatibility::default() };
    let mut raw = Raw::new(Side::Server, Config { compatibility, ..server_config() });
    let pad = ReadSegment { padding: true, ..at(48, Segment { handle: 0xbad, length: 3, offset: 0 }) };
    let read = vec![at(44, raw.readable(&pattern(5))), pad];
    raw.send(message(&header(1, Body::Message(lists(read, vec![], None))), &rpc(1, WRITE, &word(5))));
    expect_error(&mut raw, 1, ErrorBody::Chunk, "misplaced_padding");
}

/// RFC 8166 §3.4.6.2: we write no pad, neither in the last segment nor in a segment of its own. The "one responder" of
/// implementation-experience §3.8 writes zeros where the chunk has room.
// requirement: rfc8166-3.4.6.2-2, experience-3.8.1-1, experience-3.8.1-3, experience-3.8.1-4
#[test]
fn ie_3_8_room_for_the_pad_of_a_write_chunk_is_left_alone() {
    for fabric in both_modes() {
        for len in [1, 2, 3, 5001, 5003] {
            let pad = usize::next_multiple_of(len, 4) - len;
            for room in [vec![len], vec![len + pad], vec![len, pad]] {
                let mut raw = Raw::on(&fabric, Side::Server, server_config(), &Config::default());
                let segments: Vec<_> = room.iter().map(|room| raw.writable(*room)).collect();
                let offered = vec![WriteChunk { segments: segments.clone() }];
                let call = message(
                    &header(1, Body::Message(lists(vec![], offered.clone(), None))),
                    &rpc(1, READ, &word(len)),
                );
                raw.send(call);
                let (answer, _) = raw.last();
                let Body::Message(returned) = answer.body else { panic!("RDMA_MSG") };
                assert_eq!(returned.write, [offered[0].filled(u64::try_from(len).unwrap())]);
                let memory: Vec<Bytes> = raw
                    .invalidated
                    .drain(..)
                    .map(|(_, memory)| match memory {
                        rpcrdma_verbs::WindowMemory::Write(buffer) => buffer.freeze(),
                        rpcrdma_verbs::WindowMemory::Read(data) => data,
                    })
                    .collect();
                // The reply invalidated the first window.
                assert_eq!(memory[0][..len], pattern(len));
                assert!(memory[0][len..].iter().all(|byte| *byte == 0), "no pad, nothing else");
            }
        }
    }
}

/// A reply to READ with this many bytes in its Write chunk, whose returned length counts the pad.
fn rounded_up(raw: &mut Raw, offered: &ChunkLists, len: usize) -> Bytes {
    let chunk = &offered.write[0];
    raw.write(pattern(len), chunk.filled(u64::try_from(len).unwrap()).segments[0]);
    let padded = u64::try_from(len.next_multiple_of(4)).unwrap();
    let returned = if padded > chunk.total() { chunk.padded_at_end() } else { chunk.filled(padded) };
    assert_eq!(returned.total(), padded);
    let returned = ChunkLists { write: vec![returned], ..ChunkLists::default() };
    message(&header(1, Body::Message(returned)), &accepted(1, &word(len)))
}

/// RFC 5666 §3.7: "the chunk length sent to the receiver in the reply is simply increased to include any roundup". The
/// Write chunk has room for the pad, or has none.
#[test]
fn rfc5666_3_7_a_returned_length_with_the_pad_is_taken_if_agreed() {
    for fabric in both_modes() {
        for (len, room) in
            [(5001, 5001), (5001, 5004), (5001, 8192), (5002, 5003), (5003, 5003), (5004, 5004)]
        {
            let compatibility = Compatibility { write_roundup: true, ..Compatibility::default() };
            let config = Config { compatibility, ..Config::default() };
            let mut raw = Raw::on(&fabric, Side::Client, config, &Config::default());
            let mut call = read(1, len);
            call.reply.sinks = vec![crate::Sink::Pool(room)];
            let offered = send(&mut raw, call);
            let reply = rounded_up(&mut raw, &offered, len);
            raw.send(reply);
            check_reply(READ, len, result(&mut raw).unwrap().unwrap());
            assert_eq!(fabric.outstanding().windows, 0);
        }
    }
}

/// By default the result decoder refuses the length where the chunk has room, and the header is invalid where it has none.
// requirement: rfc8166-3.4.6.2-3
#[test]
fn s3_4_6_2_a_returned_length_with_the_pad_is_refused_by_default() {
    let (mut raw, offered) = client({
        let mut call = read(1, 5001);
        call.reply.sinks = vec![crate::Sink::Pool(8192)];
        call
    });
    let reply = rounded_up(&mut raw, &offered, 5001);
    raw.send(reply);
    let mut decoder = result(&mut raw).unwrap().unwrap().message;
    decoder.bytes_fixed(24).unwrap();
    assert!(decoder.payload(MAX).unwrap_err().is_chunk_violation());

    let (mut raw, offered) = client(read(1, 5001));
    let reply = rounded_up(&mut raw, &offered, 5001);
    let good = message(
        &header(
            1,
            Body::Message(ChunkLists { write: vec![offered.write[0].filled(0)], ..ChunkLists::default() }),
        ),
        &accepted(1, &word(0)),
    );
    discarded(&mut raw, reply, good, "reply_list_lengths");
}

/// With the opt-in, too, the length may exceed the data only by the pad.
#[test]
fn rfc5666_3_7_no_other_length_is_taken() {
    let compatibility = Compatibility { write_roundup: true, ..Compatibility::default() };
    for length in [5002, 5003, 5005, 5008] {
        let mut raw =
            Raw::new(Side::Client, Config { compatibility: compatibility.clone(), ..Config::default() });
        let offered = send(&mut raw, read(1, 5001));
        let mut returned = offered.write[0].clone();
        returned.segments[0].length = length;
        let returned = ChunkLists { write: vec![returned], ..ChunkLists::default() };
        raw.send(message(&header(1, Body::Message(returned)), &accepted(1, &word(5001))));
        assert!(result(&mut raw).is_none(), "{length}");
        assert_eq!(raw.end.connection.stats().errors.get("reply_list_lengths"), Some(&1));
        raw.send(plain(1));
        assert!(result(&mut raw).is_some());
    }
}

/// The pad is behind the data, so only the last length counts it.
#[test]
fn rfc5666_3_7_only_the_last_segment_has_the_pad() {
    let compatibility = Compatibility { write_roundup: true, ..Compatibility::default() };
    for (lengths, taken) in [([3000, 2004], true), ([3003, 2001], false)] {
        let config =
            Config { compatibility: compatibility.clone(), max_segment_len: 3000, ..Config::default() };
        let mut raw = Raw::new(Side::Client, config);
        let mut returned = send(&mut raw, read(1, 5001));
        for (segment, length) in returned.write[0].segments.iter_mut().zip(lengths) {
            segment.length = length;
        }
        raw.send(message(&header(1, Body::Message(returned)), &accepted(1, &word(5001))));
        assert_eq!(result(&mut raw).is_some(), taken, "{lengths:?}");
    }
}

/// Each form has its own setting: another form enables neither padding segments nor lengths with the pad.
#[test]
fn s4_5_2_another_form_enables_no_pads() {
    let compatibility = Compatibility { pad_chunks: true, ..Compatibility::default() };
    let mut raw = Raw::new(Side::Server, Config { compatibility: compatibility.clone(), ..server_config() });
    let pad = ReadSegment { padding: true, ..at(44, Segment { handle: 0xbad, length: 3, offset: 0 }) };
    let read = vec![at(44, raw.readable(&pattern(5))), pad];
    raw.send(message(&header(1, Body::Message(lists(read, vec![], None))), &rpc(1, WRITE, &word(5))));
    expect_error(&mut raw, 1, ErrorBody::Chunk, "padding_segment");

    let mut raw = Raw::new(Side::Client, Config { compatibility, ..Config::default() });
    let offered = send(&mut raw, crate::testing::read(1, 5001));
    let reply = rounded_up(&mut raw, &offered, 5001);
    raw.send(reply);
    assert!(result(&mut raw).is_none());
    assert_eq!(raw.end.connection.stats().errors.get("reply_list_lengths"), Some(&1));
}
