//! RDMA_MSGP (RFC 5666 §3.9), received and sent where both sides opted in.

use bytes::Bytes;
use rpcrdma_sim::{CompletionMode, FabricConfig};

use super::super::requester::{accepted, client, discarded, plain, result, send};
use super::super::responder::{at, expect_error, lists, rpc};
use crate::testing::*;
use crate::wire::{Body, ChunkLists, Codec, ErrorBody, v1::V1};
use crate::{Agreement, AlignmentBase, Compatibility, Config, Form, Limits, PaddedMessages, Side};

const HEADER: usize = 36;

fn taking(padded_messages: PaddedMessages, config: Config) -> Config {
    let compatibility = Compatibility { padded_messages, ..Compatibility::default() };
    Config { compatibility, ..config }
}

fn aligned(alignment: u32, alignment_base: AlignmentBase) -> Config {
    let padded_messages = PaddedMessages::Honour;
    let compatibility =
        Compatibility { padded_messages, alignment, alignment_base, ..Compatibility::default() };
    Config { compatibility, ..Config::default() }
}

fn padded(align: u32, threshold: u32) -> Body {
    Body::Padded { align, threshold, lists: ChunkLists::default() }
}

/// A WRITE with `pad` nonzero bytes before its data.
fn write_call(align: u32, threshold: u32, len: usize, pad: usize) -> Bytes {
    let count = u32::try_from(len).unwrap().to_be_bytes();
    let arguments = [&count[..], &vec![0xee; pad], &pattern(len)].concat();
    message(&header(1, padded(align, threshold)), &rpc(1, WRITE, &arguments))
}

/// The data of WRITE begins at 80: after 36 bytes of header, 40 of RPC header and the count.
// requirement: rfc5666-3.9-1, rfc5666-4.1-6
#[test]
fn rfc5666_3_9_the_padding_is_skipped_where_it_was_agreed() {
    for (align, threshold, len, pad) in [
        (64, 100, 500, 48),
        (64, 500, 500, 48),
        (64, 501, 500, 0),
        (256, 1, 5, 176),
        (80, 0, 7, 0),
        (1, 0, 7, 0),
        (1024, 1024, 2000, 944),
    ] {
        let mut raw = Raw::new(Side::Server, taking(PaddedMessages::Honour, server_config()));
        raw.send(write_call(align, threshold, len, pad));
        let (answer, results) = raw.last();
        assert_eq!(answer.body, Body::Message(ChunkLists::default()));
        assert_eq!(results[24..], u32::try_from(len).unwrap().to_be_bytes(), "{align} {threshold}");
        assert_eq!(raw.end.connection.stats().calls_received.padded, 1);
    }
}

#[test]
fn rfc5666_3_9_the_alignment_may_count_from_the_rpc_message() {
    let mut config = taking(PaddedMessages::Honour, server_config());
    config.compatibility.alignment_base = AlignmentBase::Payload;
    let mut raw = Raw::new(Side::Server, config);
    raw.send(write_call(64, 100, 500, 20));
    assert_eq!(raw.last().1[24..], 500_u32.to_be_bytes());
}

/// An item in a Read chunk is not inline, so nothing aligns it.
#[test]
fn rfc5666_3_9_chunks_are_not_padded() {
    let mut raw = Raw::new(Side::Server, taking(PaddedMessages::Honour, server_config()));
    let read = lists(vec![at(44, raw.readable(&pattern(500)))], vec![], None);
    let body = Body::Padded { align: 4096, threshold: 1, lists: read };
    raw.send(message(&header(1, body), &rpc(1, WRITE, &500_u32.to_be_bytes())));
    assert_eq!(raw.last().1[24..], 500_u32.to_be_bytes());
}

/// RFC 8166 §4.6.1: an RDMA_MSGP without the opt-in. With it, an unusable alignment, and padding longer than the message.
// requirement: rfc8166-4.6.1-2
#[test]
fn s4_6_1_a_padded_call_gets_err_chunk() {
    for (mode, align, name) in
        [(PaddedMessages::Refuse, 64, "padded_message"), (PaddedMessages::Honour, 0, "bad_alignment")]
    {
        let mut raw = Raw::new(Side::Server, taking(mode, server_config()));
        raw.send(write_call(align, 100, 500, 48));
        expect_error(&mut raw, 1, ErrorBody::Chunk, name);
    }
    let mut raw = Raw::new(Side::Server, taking(PaddedMessages::Honour, server_config()));
    raw.send(write_call(u32::MAX, 0, 500, 48));
    assert_eq!(raw.last().1[20..24], 4_u32.to_be_bytes(), "GARBAGE_ARGS");
}

/// Implementation-experience §7.1.3.1: the two words are ignored, which is right without padding and wrong with it.
// requirement: experience-7.1.3.1-1
#[test]
fn ie_7_1_3_1_as_rdma_msg() {
    for (align, pad, status) in [(0, 0, 0), (64, 0, 0), (64, 48, 4)] {
        let mut raw = Raw::new(Side::Server, taking(PaddedMessages::AsMessage, server_config()));
        let message = write_call(align, 100, 500, pad);
        if pad > 0 {
            // The pad is decoded as data, which `serve` would notice.
            raw.end.serving = false;
            raw.send(message);
            let (.., mut decoder) = raw.end.calls.pop().unwrap();
            decoder.bytes_fixed(40).unwrap();
            assert_ne!(decoder.payload(500).unwrap(), pattern(500));
        } else {
            raw.send(message);
            let (_, results) = raw.last();
            assert_eq!(results[20..24], u32::to_be_bytes(status));
            assert_eq!(raw.end.connection.stats().calls_received.inline, 1);
        }
    }
}

/// A reply may have padding, too.
#[test]
fn rfc5666_3_9_a_padded_reply() {
    // The data begins at 64: after 36 bytes of header, 24 of RPC header and the count.
    let reply = |align, pad| {
        let results = [&500_u32.to_be_bytes()[..], &vec![0xee; pad], &pattern(500)].concat();
        message(&header(1, padded(align, 100)), &accepted(1, &results))
    };
    for (align, pad) in [(64, 0), (128, 64), (100, 36)] {
        let config = taking(PaddedMessages::Honour, Config::default());
        let mut raw = Raw::new(Side::Client, config);
        send(&mut raw, read(1, 500));
        raw.send(reply(align, pad));
        let reply = result(&mut raw).unwrap().unwrap();
        assert_eq!(reply.reply.form, Form::Padded);
        check_reply(READ, 500, reply);
    }
    let (mut raw, _) = client(read(1, 500));
    discarded(&mut raw, reply(64, 0), plain(1), "padded_message");
}

/// Both sides opted in, and the client knows the alignment from its settings or from an agreement.
// requirement: rfc5666-3.9-1
#[test]
fn rfc5666_3_9_long_data_is_aligned_in_both_completion_modes() {
    for completion_mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        for alignment_base in [AlignmentBase::Send, AlignmentBase::Payload] {
            for at_run_time in [false, true] {
                let fabric = FabricConfig { completion_mode, ..FabricConfig::default() };
                let mut server = taking(PaddedMessages::Honour, server_config());
                server.compatibility.alignment_base = alignment_base;
                let client = aligned(if at_run_time { 0 } else { 512 }, alignment_base);
                let mut pair = Pair::with(fabric, client, server);
                if at_run_time {
                    assert_eq!(pair.round_trip(write(9, 2001)).call.form, Form::Inline);
                    let agreement = Agreement {
                        call_size: 4096,
                        reply_size: 4096,
                        client_reads: 16,
                        server_reads: 16,
                        align: 512,
                    };
                    pair.client.connection.agree(agreement).unwrap();
                }
                let reply = pair.round_trip(write(1, 2001));
                assert_eq!((reply.call.form, reply.reply.form), (Form::Padded, Form::Inline));
                check_reply(WRITE, 2001, reply);
                let reply = pair.round_trip(store(2, 1500));
                assert_eq!(reply.call.form, Form::Padded, "not only what is DDP-eligible");
                check_reply(STORE, 1500, reply);
                // A message without long data, and one that would be too long with its pad.
                assert_eq!(pair.round_trip(null(3)).call.form, Form::Inline);
                assert_eq!(pair.round_trip(write(4, 3900)).call.form, Form::Inline);
                assert_eq!(pair.round_trip(write(5, 9000)).call.form, Form::Reduced);
                assert_eq!(pair.client.connection.stats().calls_sent.padded, 2);
                pair.check_no_leak();
            }
        }
    }
}

/// RFC 5666 §6.2: the sides agree on the alignment of the server's Receives; that of the client's is unknown.
#[test]
fn rfc5666_6_2_calls_of_the_server_are_not_aligned() {
    let server = taking(PaddedMessages::Honour, server_config());
    let mut pair = Pair::with(FabricConfig::default(), Config::default(), server);
    let agreement =
        Agreement { call_size: 4096, reply_size: 4096, client_reads: 16, server_reads: 16, align: 64 };
    pair.client.connection.agree(agreement).unwrap();
    pair.server.connection.agree(agreement).unwrap();
    let now = pair.now();
    pair.server.connection.call(now, store(1, 2001)).unwrap();
    pair.settle();
    let reply = pair.server.replies.pop().unwrap().1.unwrap();
    assert_eq!(reply.call.form, Form::Inline);
    check_reply(STORE, 2001, reply);
}

/// RFC 8166 §4.5: in either direction an RDMA_MSGP is refused if it is a Call, and discarded if it is a reply.
#[test]
fn s4_5_the_direction_of_a_refused_rdma_msgp_counts() {
    let reply = message(&header(1, padded(64, 100)), &accepted(1, &500_u32.to_be_bytes()));
    let mut raw = Raw::new(Side::Server, Config::default());
    let now = raw.fabric.instant();
    raw.end.connection.call(now, store(1, 500)).unwrap();
    raw.settle();
    raw.received.clear();
    raw.send(reply);
    assert!(raw.received.is_empty(), "nothing answers a reply");
    assert_eq!(raw.end.connection.stats().errors.get("padded_message"), Some(&1));
    raw.send(message(&header(1, Body::Message(ChunkLists::default())), &accepted(1, &500_u32.to_be_bytes())));
    check_reply(STORE, 500, raw.end.replies.pop().unwrap().1.unwrap());

    let mut raw = Raw::new(Side::Client, Config::default());
    raw.send(write_call(64, 100, 500, 48));
    assert_eq!(raw.last().0.body, Body::Error(ErrorBody::Chunk));
    assert_eq!(raw.end.connection.stats().errors.get("padded_message"), Some(&1));
    // RFC 8166 §4.5.2: a segment with the discriminator 2.
    let marked = |xid, direction: u32| {
        let words =
            [xid, 1, 8, 0, 2, 4, 0xbad, 3, 0, 0, 0, 0, 0, xid, direction, 2, PROGRAM, VERSION, 0, 0, 0, 0, 0];
        Bytes::from(words.map(u32::to_be_bytes).concat())
    };
    raw.send(marked(2, 0));
    assert_eq!((raw.received.len(), raw.last().0.body), (2, Body::Error(ErrorBody::Chunk)));
    raw.send(marked(3, 1));
    assert_eq!(raw.received.len(), 2);
    assert_eq!(raw.end.connection.stats().errors.get("padding_segment"), Some(&2));
}

/// The words and the place of the data in a message that leaves.
#[test]
fn rfc5666_3_9_what_is_sent() {
    let mut raw = Raw::new(Side::Client, aligned(512, AlignmentBase::Send));
    let now = raw.fabric.instant();
    raw.end.connection.call(now, write(1, 2001)).unwrap();
    raw.settle();
    let sent = raw.received.last().unwrap();
    let (header, len) = V1.decode(sent, &Limits::default()).unwrap();
    assert_eq!(len, HEADER);
    let Body::Padded { align: 512, threshold, lists } = header.body else { panic!("{:?}", header.body) };
    assert!(lists.is_empty());
    // The 44 bytes before the data can hold no opaque of this length.
    assert_eq!(threshold, 44);
    assert_eq!(sent[512..512 + 2001], pattern(2001));
    assert!(sent[80..512].iter().all(|byte| *byte == 0));
}

/// No RDMA_MSGP leaves without the opt-in or with an unusable alignment.
// requirement: rfc8166-4.6.1-1, experience-7.1.3.1-1
#[test]
fn i9_no_padded_message_is_sent_unless_agreed() {
    for (mode, alignment) in [
        (PaddedMessages::Refuse, 512),
        (PaddedMessages::AsMessage, 512),
        (PaddedMessages::Honour, 0),
        (PaddedMessages::Honour, 2),
        (PaddedMessages::Honour, 513),
    ] {
        let mut config = taking(mode, Config::default());
        config.compatibility.alignment = alignment;
        let mut pair = Pair::with(FabricConfig::default(), config, server_config());
        assert_eq!(pair.round_trip(write(1, 2001)).call.form, Form::Inline, "{mode:?} {alignment}");
    }
}

/// Integrity and privacy wrap the items, so the Responder would not find them at their places.
#[test]
fn s8_2_2_3_a_protected_call_is_not_padded() {
    let mut pair = Pair::with(FabricConfig::default(), aligned(512, AlignmentBase::Send), server_config());
    let call = crate::Call { flavor_touches_data: true, ..write(1, 2001) };
    assert_eq!(pair.round_trip(call).call.form, Form::Inline);
}

/// RFC 5666 §3.9: an alignment of 4 is the least that is used.
#[test]
fn rfc5666_3_9_an_alignment_of_four_is_used() {
    let config = aligned(4, AlignmentBase::Send);
    assert!(config.honours_padding());
    let others = [PaddedMessages::Refuse, PaddedMessages::AsMessage];
    assert!(others.iter().all(|mode| !taking(*mode, Config::default()).honours_padding()));
    let server = taking(PaddedMessages::Honour, server_config());
    let mut pair = Pair::with(FabricConfig::default(), config, server);
    let reply = pair.round_trip(write(1, 2001));
    assert_eq!(reply.call.form, Form::Padded);
    check_reply(WRITE, 2001, reply);
}
