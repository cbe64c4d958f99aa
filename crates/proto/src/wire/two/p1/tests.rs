use bytes::{Bytes, BytesMut};

use super::*;
use crate::wire::two::{Exchange, Rest, Subset, Value};
use crate::wire::{
    Body, ChunkLists, Codec, ErrorBody, Header, Limits, List, ProtocolError, ReadSegment, Segment, WriteChunk,
};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn header(direction: Direction, body: Body) -> Header {
    Header { xid: 0x1122_3344, version: 2, credit: 32, direction: Some(direction), invalidate: 0, body }
}

fn value(id: u32, data: &'static [u8]) -> Value {
    Value { id, data: Bytes::from_static(data) }
}

/// Checks that the bytes decode to `expected`, and that `expected` encodes to the same bytes.
#[track_caller]
fn check(hex: &str, expected: &Header) {
    let message = bytes(hex);
    assert_eq!(V2P1.decode(&message, &Limits::default()).unwrap(), (expected.clone(), message.len()));
    let mut out = BytesMut::new();
    V2P1.encode(expected, &mut out);
    assert_eq!(out[..], message);
}

fn refused(hex: &str) -> ProtocolError {
    V2P1.decode(&bytes(hex), &Limits::default()).unwrap_err()
}

const FIXED: &str = "11 22 33 44 00 00 00 02 00 00 00 20";

#[test]
fn v2_01_s4_2_messages_with_a_direction_and_the_lists_of_version_one() {
    let empty = format!("{FIXED} 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
    check(&empty, &header(Direction::Call, Body::Message(ChunkLists::default())));
    let reply = format!("{FIXED} 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00");
    check(&reply, &header(Direction::Reply, Body::Message(ChunkLists::default())));
    let segment = Segment { handle: 7, length: 8, offset: 9 };
    let lists = ChunkLists {
        read: vec![ReadSegment::new(0, segment)],
        write: vec![WriteChunk { segments: vec![segment] }],
        reply: Some(WriteChunk { segments: vec![] }),
    };
    let all = "00 00 00 07 00 00 00 08 00 00 00 00 00 00 00 09";
    let long = format!(
        "{FIXED} 00 00 00 01 00 00 00 00 00 00 00 01 00 00 00 00 {all} 00 00 00 00 00 00 00 01 00 00 00 01 {all} \
         00 00 00 00 00 00 00 01 00 00 00 00"
    );
    let header = header(Direction::Call, Body::NoMessage(lists.clone()));
    check(&long, &header);
    assert_eq!(V2P1.header_len(&lists.shape(Direction::Call)), bytes(&long).len());
}

#[test]
fn v2_01_s4_2_errors_go_to_the_requester() {
    for (words, error) in [
        ("00 00 00 01 00 00 00 01 00 00 00 02", ErrorBody::Version { low: 1, high: 2 }),
        ("00 00 00 02", ErrorBody::Chunk),
        ("00 00 00 03", ErrorBody::Two(two::ErrorBody::InvalidOption)),
    ] {
        check(&format!("{FIXED} 00 00 00 04 {words}"), &header(Direction::Reply, Body::Error(error)));
    }
    assert_eq!(
        refused(&format!("{FIXED} 00 00 00 04 00 00 00 04")),
        ProtocolError::UnknownErrorCode { code: 4 }
    );
    assert_eq!(refused(&format!("{FIXED} 00 00 00 04")), ProtocolError::ErrorTruncated);
    assert_eq!(refused(&format!("{FIXED} 00 00 00 04 00 00 00 01 00 00")), ProtocolError::ErrorTruncated);
}

/// The refusal by a server of Version One only: its words have the same places in every version.
#[test]
fn rfc8166_s4_5_1_the_refusal_of_a_version_is_read_whatever_its_version() {
    for version in ["01", "02", "09"] {
        let hex = format!(
            "11 22 33 44 00 00 00 {version} 00 00 00 20 00 00 00 04 00 00 00 01 00 00 00 01 00 00 00 01"
        );
        let (header, _) = V2P1.decode(&bytes(&hex), &Limits::default()).unwrap();
        assert_eq!(header.body, Body::Error(ErrorBody::Version { low: 1, high: 1 }));
    }
}

#[test]
fn xcharext_s4_1_initxch() {
    let start = vec![value(1, &[0, 0, 0x40, 0]), value(2, &[0, 0, 0, 1])];
    check(
        "11 22 33 44 00 00 00 02 00 00 00 20 00 00 00 05 00 00 00 00 00 00 00 01 00 00 00 20 00 00 00 02 \
         00 00 00 01 00 00 00 04 00 00 40 00 00 00 00 02 00 00 00 04 00 00 00 01 00 00 00 00",
        &header(
            Direction::Call,
            Body::Two(two::Body::Exchange(Exchange::Initial {
                start: start.clone(),
                constant: Subset::default(),
            })),
        ),
    );
    // The second value will not change; data of five bytes has padding.
    let start = vec![value(1, &[0, 0, 0x40, 0]), value(0xffff_ff00, b"hello")];
    check(
        "11 22 33 44 00 00 00 02 00 00 00 20 00 00 00 05 00 00 00 00 00 00 00 01 00 00 00 28 00 00 00 02 \
         00 00 00 01 00 00 00 04 00 00 40 00 ff ff ff 00 00 00 00 05 68 65 6c 6c 6f 00 00 00 00 00 00 01 00 00 00 02",
        &header(
            Direction::Call,
            Body::Two(two::Body::Exchange(Exchange::Initial { start, constant: [1].into_iter().collect() })),
        ),
    );
}

#[test]
fn xcharext_s4_2_to_s4_4_reqxch_respxch_updxch() {
    let size = value(1, &[0, 0, 0x20, 0]);
    check(
        "11 22 33 44 00 00 00 02 00 00 00 20 00 00 00 05 00 00 00 00 00 00 00 02 00 00 00 10 00 00 00 01 \
         00 00 00 01 00 00 00 04 00 00 20 00",
        &header(
            Direction::Call,
            Body::Two(two::Body::Exchange(Exchange::Request { want: vec![size.clone()] })),
        ),
    );
    let response = Exchange::Response {
        done: [0].into_iter().collect(),
        rejected: Subset::default(),
        rest: Rest::Pending([1, 33].into_iter().collect()),
    };
    check(
        "11 22 33 44 00 00 00 02 00 00 00 20 00 00 00 05 00 00 00 01 00 00 00 03 00 00 00 18 00 00 00 01 00 00 00 01 \
         00 00 00 00 00 00 00 02 00 00 00 02 00 00 00 02",
        &header(Direction::Reply, Body::Two(two::Body::Exchange(response))),
    );
    check(
        "11 22 33 44 00 00 00 02 00 00 00 20 00 00 00 05 00 00 00 00 00 00 00 04 00 00 00 10 00 00 00 01 00 00 00 04 \
         00 00 20 00 00 00 00 01",
        &header(
            Direction::Call,
            Body::Two(two::Body::Exchange(Exchange::Update { now: vec![size], clears: true })),
        ),
    );
}

/// An update that clears nothing says so, and RDMA_MSGP exists in Version One only.
#[test]
fn v2_01_s4_2_an_update_says_what_it_clears() {
    let update = |clears| Exchange::Update { now: vec![value(1, b"\0\0\x20\0")], clears };
    let hex = |clears: u8| {
        let info = "00 00 00 10 00 00 00 01 00 00 00 04 00 00 20 00";
        format!("{FIXED} 00 00 00 05 00 00 00 00 00 00 00 04 {info} 00 00 00 0{clears}")
    };
    for clears in [false, true] {
        let body = Body::Two(two::Body::Exchange(update(clears)));
        check(&hex(u8::from(clears)), &header(Direction::Call, body));
    }
    assert_eq!(V2P1.padded_extra(), None);
}

// requirement: xchar-02-2.1-1
#[test]
fn xcharext_s2_1_data_that_runs_past_the_end_is_an_xdr_error() {
    let operation = |info: &str| refused(&format!("{FIXED} 00 00 00 05 00 00 00 00 {info}"));
    for cut in [
        // rdma_optinfo is longer than the message, or lacks its pad.
        "00 00 00 01 00 00 00 08 00 00 00 00",
        "00 00 00 01 00 00 00 05 00 00 00 00 00",
        // xchv_data is longer than rdma_optinfo.
        "00 00 00 01 00 00 00 10 00 00 00 01 00 00 00 01 00 00 00 08 00 00 40 00",
        "00 00 00 01 00 00 00 10 00 00 00 01 00 00 00 01 ff ff ff ff 00 00 40 00",
        // optixch_nochg is missing; pendclr is missing.
        "00 00 00 01 00 00 00 04 00 00 00 00",
        "00 00 00 04 00 00 00 0c 00 00 00 01 00 00 00 04 00 00 20 00",
    ] {
        assert_eq!(operation(cut), ProtocolError::Two(two::Error::OperationTruncated), "{cut}");
    }
    assert_eq!(
        operation("00 00 00 02 00 00 00 08 00 00 00 00 00 00 00 00"),
        ProtocolError::Two(two::Error::OperationTooLong)
    );
    assert_eq!(
        operation("00 00 00 04 00 00 00 10 00 00 00 01 00 00 00 04 00 00 20 00 00 00 00 02"),
        ProtocolError::Two(two::Error::BadFlag { value: 2 })
    );
    assert_eq!(
        operation("00 00 00 02 00 00 00 04 00 00 00 41"),
        ProtocolError::Two(two::Error::TooManyCharacteristics { count: 65, allowed: 64 })
    );
    // Element 1 of a set with a single element.
    assert_eq!(
        operation(
            "00 00 00 01 00 00 00 18 00 00 00 01 00 00 00 01 00 00 00 04 00 00 40 00 00 00 00 01 00 00 00 02"
        ),
        ProtocolError::Two(two::Error::SubsetTooLong { end: 2, len: 1 })
    );
}

// requirement: v2-01-3.1-1
#[test]
fn v2_01_s3_1_an_operation_that_is_not_known() {
    for operation in [0, 9, 0xffff_ffff_u32] {
        let word = operation.to_be_bytes().map(|byte| format!("{byte:02x}")).join(" ");
        let error = refused(&format!("{FIXED} 00 00 00 05 00 00 00 00 {word} 00 00 00 00"));
        assert_eq!(error, ProtocolError::Two(two::Error::UnknownOperation { operation }));
        assert_eq!(V2P1.refusal(&error), ErrorBody::Two(two::ErrorBody::InvalidOption));
    }
    assert_eq!(V2P1.refusal(&ProtocolError::Two(two::Error::OperationTruncated)), ErrorBody::Chunk);
}

#[test]
fn v2_01_s4_2_what_is_not_a_message_of_this_document() {
    let proc =
        |word: &str| refused(&format!("{FIXED} {word} 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"));
    for (word, procedure) in [("00 00 00 02", 2), ("00 00 00 03", 3), ("00 00 00 0e", 14)] {
        assert_eq!(proc(word), ProtocolError::UnknownProcedure { procedure });
    }
    for (word, theirs) in [("00 00 00 06", Profile::P2), ("00 00 00 0a", Profile::P3)] {
        assert_eq!(proc(word), ProtocolError::Two(two::Error::OtherProfile { ours: Profile::P1, theirs }));
    }
    assert_eq!(
        refused(&format!("{FIXED} 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00")),
        ProtocolError::Two(two::Error::BadDirection { value: 2 })
    );
    assert_eq!(
        refused(&format!("{FIXED} 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00")),
        ProtocolError::ShortMessage { len: 32 - 4, least: 32 }
    );
    let marked = format!("{FIXED} 00 00 00 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00");
    assert_eq!(refused(&marked), ProtocolError::BadDiscriminator { list: List::Read, value: 2 });
    let one =
        "11 22 33 44 00 00 00 01 00 00 00 20 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00";
    assert_eq!(refused(one), ProtocolError::UnsupportedVersion { version: 1 });
}

/// No byte of a message can be omitted.
#[test]
fn every_cut_is_refused() {
    let whole = bytes(
        "11 22 33 44 00 00 00 02 00 00 00 20 00 00 00 05 00 00 00 00 00 00 00 01 00 00 00 20 00 00 00 02 \
         00 00 00 01 00 00 00 04 00 00 40 00 00 00 00 02 00 00 00 04 00 00 00 01 00 00 00 00",
    );
    for cut in 0..whole.len() {
        assert!(V2P1.decode(&whole[..cut], &Limits::default()).is_err(), "{cut}");
    }
}

/// RFC 8166 §3.4.5: Version Two has no pads in the Read list, so each Position is a multiple of four.
#[test]
fn s3_4_5_a_pad_in_a_chunk_of_its_own_is_refused() {
    let pad = ReadSegment::new(30, Segment { handle: 7, length: 2, offset: 9 });
    let lists = ChunkLists { read: vec![pad], ..ChunkLists::default() };
    let mut message = BytesMut::new();
    V2P1.encode(&header(Direction::Call, Body::Message(lists)), &mut message);
    let error = V2P1.decode(&message, &Limits::default()).unwrap_err();
    assert_eq!(error, ProtocolError::UnalignedPosition { position: 30 });
}

/// version-two-01 §3.1: an error without a code in this document is RDMA2_ERR_BAD_HEADER.
#[test]
fn v2_01_s3_1_what_the_document_has_no_code_for() {
    for error in [
        ProtocolError::NotEligible { chunks: 2, eligible: 1 },
        ProtocolError::TooManyWriteChunks { allowed: 4 },
        ProtocolError::UnknownProcedure { procedure: 14 },
        ProtocolError::Two(two::Error::ToldTwice),
    ] {
        assert_eq!(V2P1.refusal(&error), ErrorBody::Chunk, "{error}");
    }
}

/// version-two-01 §4.2: a header whose direction was not read still carries the code of its error.
#[test]
fn v2_01_s4_2_an_error_may_be_without_a_direction() {
    let encoded = |direction| {
        let body = Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption));
        let mut out = BytesMut::new();
        V2P1.encode(&Header { direction, ..header(Direction::Reply, body) }, &mut out);
        out
    };
    for direction in [None, Some(Direction::Call), Some(Direction::Reply)] {
        assert_eq!(encoded(direction)[..], bytes(&format!("{FIXED} 00 00 00 04 00 00 00 03")));
    }
}

/// xcharext-02 §4.4: an update has one value.
#[test]
fn xcharext_s4_4_an_update_of_several_values_leaves_with_the_first() {
    let encoded = |now| {
        let body = Body::Two(two::Body::Exchange(Exchange::Update { now, clears: false }));
        let mut out = BytesMut::new();
        V2P1.encode(&header(Direction::Call, body), &mut out);
        out
    };
    let (first, second) = (value(1, b"\0\0\x20\0"), value(2, b"\0\0\0\x01"));
    assert_eq!(encoded(vec![first.clone(), second]), encoded(vec![first]));
}

/// A Payload with the XID in its second word is one of this document, unless the word before is the end of P2's lists.
#[test]
fn only_a_message_with_one_more_absent_list_is_of_p2() {
    let message = |word: &str| {
        bytes(&format!(
            "{FIXED} 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 {word} 11 22 33 44"
        ))
    };
    assert!(V2P1.decode(&message("00 00 00 05"), &Limits::default()).is_ok());
    assert_eq!(
        V2P1.decode(&message("00 00 00 00"), &Limits::default()).unwrap_err(),
        ProtocolError::Two(two::Error::OtherProfile { ours: Profile::P1, theirs: Profile::P2 })
    );
}
