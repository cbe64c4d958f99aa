use bytes::{Bytes, BytesMut};

use super::*;
use crate::wire::two::{Exchange, Rest, Subset, Value};
use crate::wire::{Body, ChunkLists, Codec, ErrorBody, Header, Limits, ProtocolError, ReadSegment, Segment};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn header(direction: Option<Direction>, body: Body) -> Header {
    Header { xid: 0x1122_3344, version: 2, credit: 32, direction, invalidate: 0, body }
}

fn size(bytes: u32) -> Value {
    Value { id: 1, data: Bytes::copy_from_slice(&bytes.to_be_bytes()) }
}

/// Checks that the bytes decode to `expected`, and that `expected` encodes to the same bytes.
#[track_caller]
fn check(hex: &str, expected: &Header) {
    let message = bytes(hex);
    assert_eq!(V2P2.decode(&message, &Limits::default()).unwrap(), (expected.clone(), message.len()));
    let mut out = BytesMut::new();
    V2P2.encode(expected, &mut out);
    assert_eq!(out[..], message);
}

fn refused(hex: &str) -> ProtocolError {
    V2P2.decode(&bytes(hex), &Limits::default()).unwrap_err()
}

const FIXED: &str = "11 22 33 44 00 00 00 02 00 00 00 20";

#[test]
fn v2_03_s6_2_a_handle_between_direction_and_lists() {
    let call = header(Some(Direction::Call), Body::Message(ChunkLists::default()));
    let none = "00 00 00 00 00 00 00 00 00 00 00 00";
    check(&format!("{FIXED} 00 00 00 00 00 00 00 00 00 00 00 00 {none}"), &call);
    let lists = ChunkLists {
        read: vec![ReadSegment::new(0, Segment { handle: 7, length: 8, offset: 9 })],
        ..ChunkLists::default()
    };
    assert_eq!(V2P2.header_len(&lists.shape(Direction::Call)), 60);
    let named = Header { invalidate: 7, ..header(Some(Direction::Call), Body::NoMessage(lists)) };
    check(
        &format!(
            "{FIXED} 00 00 00 01 00 00 00 00 00 00 00 07 00 00 00 01 00 00 00 00 00 00 00 07 00 00 00 08 \
             00 00 00 00 00 00 00 09 {none}"
        ),
        &named,
    );
    assert_eq!(
        refused(&format!("{FIXED} 00 00 00 00 00 00 00 00 {none}")),
        ProtocolError::ShortMessage { len: 32, least: 36 }
    );
}

#[test]
fn v2_03_s6_2_4_errors() {
    for (words, error) in [
        ("00 00 00 01 00 00 00 01 00 00 00 02", ErrorBody::Version { low: 1, high: 2 }),
        ("00 00 00 02", ErrorBody::Chunk),
        (
            "00 00 00 03 00 00 00 02 00 00 10 00",
            ErrorBody::Two(two::ErrorBody::ReplyResource { segment: 2, needed: 4096 }),
        ),
        ("00 00 00 04", ErrorBody::Two(two::ErrorBody::InvalidProcedure)),
        ("00 00 00 05", ErrorBody::Two(two::ErrorBody::InvalidOption)),
        ("00 00 00 06", ErrorBody::Two(two::ErrorBody::System)),
    ] {
        check(&format!("{FIXED} 00 00 00 04 {words}"), &header(Some(Direction::Reply), Body::Error(error)));
    }
    assert_eq!(
        refused(&format!("{FIXED} 00 00 00 04 00 00 00 07")),
        ProtocolError::UnknownErrorCode { code: 7 }
    );
    // INVAL_OPTION of another document has no words where REPLY_RESOURCE has two.
    assert_eq!(refused(&format!("{FIXED} 00 00 00 04 00 00 00 03")), ProtocolError::ErrorTruncated);
}

// requirement: v2-03-5.1.1-1
#[test]
fn v2_03_s5_3_connprop_reqprop_resprop_updprop() {
    let values = vec![size(16_384), Value { id: 2, data: Bytes::new() }];
    let set = "00 00 00 02 00 00 00 01 00 00 00 04 00 00 40 00 00 00 00 02 00 00 00 00";
    let constant: Subset = [1].into_iter().collect();
    for (procedure, words, exchange) in [
        ("06", " 00 00 00 01 00 00 00 02", Exchange::Initial { start: values.clone(), constant }),
        ("07", "", Exchange::Request { want: values.clone() }),
        ("09", "", Exchange::Update { now: values.clone(), clears: false }),
    ] {
        check(
            &format!("{FIXED} 00 00 00 {procedure} {set}{words}"),
            &header(None, Body::Two(two::Body::Exchange(exchange))),
        );
    }
    let response = Exchange::Response {
        done: [0].into_iter().collect(),
        rejected: Subset::default(),
        rest: Rest::Other(values),
    };
    check(
        &format!("{FIXED} 00 00 00 08 00 00 00 01 00 00 00 01 00 00 00 00 {set}"),
        &header(None, Body::Two(two::Body::Exchange(response))),
    );
    for procedure in ["06", "07", "08", "09"] {
        let cut = format!("{FIXED} 00 00 00 {procedure} 00 00 00 01 00 00 00");
        assert_eq!(refused(&cut), ProtocolError::Two(two::Error::OperationTruncated));
    }
}

// requirement: v2-03-6.2.4-1, v2-03-6.2.4-3, v2-03-6.2.4-4
#[test]
fn v2_03_s6_2_4_what_each_refusal_says() {
    let unknown = refused(&format!("{FIXED} 00 00 00 0e"));
    assert_eq!(unknown, ProtocolError::UnknownProcedure { procedure: 14 });
    let other = refused(&format!("{FIXED} 00 00 00 0a"));
    assert_eq!(
        other,
        ProtocolError::Two(two::Error::OtherProfile { ours: Profile::P2, theirs: Profile::P3 })
    );
    let option = refused(&format!("{FIXED} 00 00 00 05 00 00 00 00 00 00 00 01 00 00 00 00"));
    assert_eq!(option, ProtocolError::Two(two::Error::UnknownOperation { operation: 1 }));
    let too_long = ProtocolError::ReplyTooLong { len: 9, inline: 1, reply_chunk: 0 };
    for (error, answer) in [
        (unknown, ErrorBody::Two(two::ErrorBody::InvalidProcedure)),
        (other, ErrorBody::Two(two::ErrorBody::InvalidProcedure)),
        (option, ErrorBody::Two(two::ErrorBody::InvalidOption)),
        (too_long, ErrorBody::Two(two::ErrorBody::ReplyResource { segment: 0, needed: 0 })),
        (ProtocolError::NoChunks, ErrorBody::Chunk),
    ] {
        assert_eq!(V2P2.refusal(&error), answer, "{error}");
    }
}

/// version-two-03 §6.2.4: limits of memory and of exposed replies get the code of a header that is not accepted.
#[test]
fn v2_03_s6_2_4_what_the_document_has_no_better_code_for() {
    for error in [
        ProtocolError::ReplyNotExposed { len: 9, grant: 2 },
        ProtocolError::ReadListTooLong { total: 9, allowed: 8 },
        ProtocolError::ExceedsMemory { len: 1 },
        ProtocolError::EarlierReadFailed { xid: 1 },
    ] {
        assert_eq!(V2P2.refusal(&error), ErrorBody::Chunk, "{error}");
    }
}

/// A message of P1 is known by its XID where P2 has the Reply chunk; any other word is a fault.
#[test]
fn a_bad_discriminator_alone_is_no_message_of_another_document() {
    let zeros = "00 00 00 00 ".repeat(5);
    let error = refused(&format!("{FIXED} {zeros} 00 00 00 07"));
    assert_eq!(error, ProtocolError::BadDiscriminator { list: crate::wire::List::Reply, value: 7 });
    let error = refused(&format!("{FIXED} {zeros} 11 22 33 44"));
    assert_eq!(
        error,
        ProtocolError::Two(two::Error::OtherProfile { ours: Profile::P2, theirs: Profile::P1 })
    );
}
