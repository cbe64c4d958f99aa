use bytes::{Bytes, BytesMut};

use super::*;
use crate::wire::two::{Exchange, Subset, Value};
use crate::wire::{
    Body, ChunkLists, Codec, ErrorBody, Header, Limits, List, ProtocolError, ReadSegment, Segment, WriteChunk,
};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn header(direction: Option<Direction>, body: Body) -> Header {
    Header { xid: 0x1122_3344, version: 2, credit: 32, direction, invalidate: 0, body }
}

fn call(invalidate: u32, body: Body) -> Header {
    Header { invalidate, ..header(Some(Direction::Call), body) }
}

fn reply(body: Body) -> Header {
    header(Some(Direction::Reply), body)
}

const FIXED: &str = "11 22 33 44 00 00 00 02 00 00 00 20";
/// A segment with handle 7, 8 bytes, offset 9.
const SEGMENT: &str = "00 00 00 07 00 00 00 08 00 00 00 00 00 00 00 09";
const NONE: &str = "00 00 00 00";
const ONE: &str = "00 00 00 01";
/// The first word of a Payload.
const FIRST_WORD: &str = "11 22 33 44";

fn segment() -> Segment {
    Segment { handle: 7, length: 8, offset: 9 }
}

fn chunk() -> WriteChunk {
    WriteChunk { segments: vec![segment()] }
}

/// Checks that the bytes decode to `expected`, which encodes to the same bytes, and that no byte can be
/// omitted.
#[track_caller]
fn check(hex: &str, expected: &Header) {
    let message = bytes(hex);
    assert_eq!(V2P3.decode(&message, &Limits::default()).unwrap(), (expected.clone(), message.len()));
    let mut out = BytesMut::new();
    V2P3.encode(expected, &mut out);
    assert_eq!(out[..], message);
    if let Body::Message(lists) | Body::NoMessage(lists) = &expected.body {
        assert_eq!(V2P3.header_len(&lists.shape(expected.direction.unwrap())), message.len());
    }
    for cut in 0..message.len() {
        assert!(V2P3.decode(&message[..cut], &Limits::default()).is_err(), "cut at {cut}");
    }
}

fn refused(hex: &str) -> ProtocolError {
    V2P3.decode(&bytes(hex), &Limits::default()).unwrap_err()
}

#[test]
fn v2_07_s6_3_7_call_inline() {
    let empty = format!("{FIXED} 00 00 00 0a {NONE} {NONE} {NONE} {NONE}");
    check(&empty, &call(0, Body::Message(ChunkLists::default())));
    let lists = ChunkLists {
        read: vec![ReadSegment::new(4, segment()), ReadSegment::new(4, segment())],
        write: vec![chunk(), WriteChunk::default()],
        reply: Some(chunk()),
    };
    let four = "00 00 00 01 00 00 00 04";
    let all = format!(
        "{FIXED} 00 00 00 0a 00 00 00 07 {four} {SEGMENT} {four} {SEGMENT} {NONE} {ONE} {ONE} {SEGMENT} {ONE} {NONE} {NONE} \
         {ONE} {ONE} {SEGMENT}"
    );
    check(&all, &call(7, Body::Message(lists)));
}

#[test]
fn v2_07_s6_3_5_call_external_has_the_call_chunk_in_a_list_of_its_own() {
    let zero = ReadSegment::new(0, segment());
    let lists = ChunkLists { read: vec![zero], ..ChunkLists::default() };
    let alone = format!("{FIXED} 00 00 00 08 {NONE} {ONE} {NONE} {SEGMENT} {NONE} {NONE} {NONE} {NONE}");
    check(&alone, &call(0, Body::NoMessage(lists)));
    let lists = ChunkLists {
        read: vec![zero, zero, ReadSegment::new(12, segment())],
        write: vec![chunk()],
        reply: Some(WriteChunk::default()),
    };
    let all = format!(
        "{FIXED} 00 00 00 08 00 00 00 07 {ONE} {NONE} {SEGMENT} {ONE} {NONE} {SEGMENT} {NONE} \
         {ONE} 00 00 00 0c {SEGMENT} {NONE} {ONE} {ONE} {SEGMENT} {NONE} {ONE} {NONE}"
    );
    check(&all, &call(7, Body::NoMessage(lists)));
}

// requirement: v2-07-6.3.7-1, v2-07-6.6.3-1
#[test]
fn v2_07_s6_3_5_what_is_not_a_call_chunk() {
    let without = format!("{FIXED} 00 00 00 08 {NONE} {NONE} {NONE} {NONE} {ONE} {ONE} {SEGMENT}");
    assert_eq!(refused(&without), ProtocolError::NoPositionZero);
    let elsewhere =
        format!("{FIXED} 00 00 00 08 {NONE} {ONE} 00 00 00 04 {SEGMENT} {NONE} {NONE} {NONE} {NONE}");
    assert_eq!(refused(&elsewhere), ProtocolError::Two(two::Error::CallChunkPosition { position: 4 }));
    let twice = format!(
        "{FIXED} 00 00 00 08 {NONE} {ONE} {NONE} {SEGMENT} {NONE} {ONE} {NONE} {SEGMENT} {NONE} {NONE} {NONE}"
    );
    assert_eq!(refused(&twice), ProtocolError::Two(two::Error::PositionZeroInReads));
    let inline = format!("{FIXED} 00 00 00 0a {NONE} {ONE} {NONE} {SEGMENT} {NONE} {NONE} {NONE}");
    assert_eq!(refused(&inline), ProtocolError::Two(two::Error::PositionZeroInReads));
}

/// Positions increase, in the Read list of either message.
// requirement: v2-07-4.5.1.1-1
#[test]
fn v2_07_s4_5_1_1_positions_that_go_down() {
    let reads = format!("{ONE} 00 00 00 08 {SEGMENT} {ONE} 00 00 00 04 {SEGMENT} {NONE}");
    let error = ProtocolError::Two(two::Error::PositionOrder { position: 4, before: 8 });
    assert_eq!(refused(&format!("{FIXED} 00 00 00 0a {NONE} {reads} {NONE} {NONE}")), error);
    let external = format!("{FIXED} 00 00 00 08 {NONE} {ONE} {NONE} {SEGMENT} {NONE} {reads} {NONE} {NONE}");
    assert_eq!(refused(&external), error);
    assert_eq!(V2P3.refusal(&error), ErrorBody::Chunk);
}

/// Rule I5: the segments of both lists have one bound together.
#[test]
fn i5_both_read_lists_of_a_call_external_have_one_bound() {
    let long = format!(
        "{FIXED} 00 00 00 08 {NONE} {ONE} {NONE} {SEGMENT} {NONE} {ONE} 00 00 00 04 {SEGMENT} {NONE} {NONE} {NONE}"
    );
    let decode = |limits: &Limits| V2P3.decode(&bytes(&long), limits).map(|(_, len)| len);
    let exact = Limits { read_chunks: 2, segments_per_chunk: 1, read_total: 16, ..Limits::default() };
    assert_eq!(decode(&exact), Ok(bytes(&long).len()));
    let fewer = Limits { read_chunks: 1, ..exact.clone() };
    assert_eq!(decode(&fewer), Err(ProtocolError::TooManyReadSegments { allowed: 1 }));
    let shorter = Limits { read_total: 15, ..exact };
    assert_eq!(decode(&shorter), Err(ProtocolError::ReadListTooLong { total: 16, allowed: 15 }));
}

// requirement: v2-07-6.3.8-2
#[test]
fn v2_07_s6_3_8_reply_external_has_one_reply_chunk() {
    let lists = ChunkLists { write: vec![chunk()], reply: Some(chunk()), ..ChunkLists::default() };
    let all = format!("{FIXED} 00 00 00 0b {ONE} {ONE} {SEGMENT} {NONE} {ONE} {ONE} {SEGMENT}");
    check(&all, &reply(Body::NoMessage(lists)));
    let without = format!("{FIXED} 00 00 00 0b {NONE} {NONE}");
    assert_eq!(refused(&without), ProtocolError::ReplyChunkUse);
}

#[test]
fn v2_07_s6_3_10_reply_inline_has_a_write_list_and_nothing_else() {
    check(&format!("{FIXED} 00 00 00 0d {NONE}"), &reply(Body::Message(ChunkLists::default())));
    let lists = ChunkLists { write: vec![chunk(), WriteChunk::default()], ..ChunkLists::default() };
    let all = format!("{FIXED} 00 00 00 0d {ONE} {ONE} {SEGMENT} {ONE} {NONE} {NONE}");
    check(&all, &reply(Body::Message(lists)));
    // The encoder omits the parts that the message has no place for.
    let mut out = BytesMut::new();
    let offered = ChunkLists { reply: Some(chunk()), ..ChunkLists::default() };
    V2P3.encode(&reply(Body::Message(offered)), &mut out);
    assert_eq!(out[..], bytes(&format!("{FIXED} 00 00 00 0d {NONE}")));
}

#[test]
fn v2_07_s6_3_6_s6_3_9_middle_messages_say_what_remains() {
    for (procedure, direction) in [("09", Direction::Call), ("0c", Direction::Reply)] {
        let hex = format!("{FIXED} 00 00 00 {procedure} 00 00 10 00");
        let expected = header(Some(direction), Body::Two(two::Body::Middle { remaining: 4096 }));
        let message = bytes(&format!("{hex} {FIRST_WORD}"));
        assert_eq!(V2P3.decode(&message, &Limits::default()).unwrap(), (expected.clone(), 20));
        let mut out = BytesMut::new();
        V2P3.encode(&expected, &mut out);
        assert_eq!(out[..], bytes(&hex));
        // The header includes the first word of the Payload (§8.4), so no message lacks that word.
        for cut in 0..message.len() {
            assert!(V2P3.decode(&message[..cut], &Limits::default()).is_err(), "cut at {cut}");
        }
        assert_eq!(refused(&hex), ProtocolError::ShortPayload { len: 0, least: 4 });
    }
}

// requirement: v2-07-6.3.2-2
#[test]
fn v2_07_s6_3_2_grant_has_only_the_prefix() {
    let grant = Header { xid: 0, ..header(None, Body::Two(two::Body::Grant)) };
    check("00 00 00 00 00 00 00 02 00 00 00 20 00 00 00 05", &grant);
    // §6.3.2: receivers MUST ignore the XID.
    let (other, _) = V2P3.decode(&bytes(&format!("{FIXED} 00 00 00 05")), &Limits::default()).unwrap();
    assert_eq!(other, header(None, Body::Two(two::Body::Grant)));
}

#[test]
fn v2_07_s6_3_3_s6_3_4_connprop() {
    let start = vec![
        Value { id: 2, data: Bytes::from_static(&[0, 0, 0x40, 0]) },
        Value { id: 6, data: Bytes::from_static(b"hello") },
        Value { id: 5, data: Bytes::new() },
    ];
    let set = "00 00 00 03 00 00 00 02 00 00 00 04 00 00 40 00 00 00 00 06 00 00 00 05 68 65 6c 6c 6f 00 00 00 \
               00 00 00 05 00 00 00 00";
    let part = Exchange::Part { start: start.clone() };
    check(&format!("{FIXED} 00 00 00 06 {set}"), &header(None, Body::Two(two::Body::Exchange(part))));
    let constant = (0..3).collect();
    let last = Exchange::Initial { start, constant };
    check(&format!("{FIXED} 00 00 00 07 {set}"), &header(None, Body::Two(two::Body::Exchange(last))));
    let empty = Exchange::Initial { start: vec![], constant: Subset::default() };
    check(&format!("{FIXED} 00 00 00 07 {NONE}"), &header(None, Body::Two(two::Body::Exchange(empty))));
}

/// Data that runs past the end is a bad value; a set that is cut off elsewhere is malformed XDR.
// requirement: v2-07-5.1-1
#[test]
fn v2_07_s5_1_data_of_a_property_beyond_the_message() {
    let cut = refused(&format!("{FIXED} 00 00 00 07 {ONE} 00 00 00 02 00 00 00 08 00 00 40 00"));
    assert_eq!(cut, ProtocolError::Two(two::Error::ValueTruncated { id: 2, len: 8 }));
    assert_eq!(V2P3.refusal(&cut), ErrorBody::Two(two::ErrorBody::BadValue));
    let huge = refused(&format!("{FIXED} 00 00 00 06 {ONE} 00 00 00 02 ff ff ff ff 00 00 40 00"));
    assert_eq!(huge, ProtocolError::Two(two::Error::ValueTruncated { id: 2, len: u32::MAX }));
    let unpadded = refused(&format!("{FIXED} 00 00 00 07 {ONE} 00 00 00 06 00 00 00 01 00"));
    assert_eq!(unpadded, ProtocolError::Two(two::Error::ValueTruncated { id: 6, len: 1 }));
    let short = refused(&format!("{FIXED} 00 00 00 07 {ONE} 00 00 00 02"));
    assert_eq!(short, ProtocolError::Two(two::Error::OperationTruncated));
    assert_eq!(V2P3.refusal(&short), ErrorBody::Chunk);
    let many = refused(&format!("{FIXED} 00 00 00 07 00 00 00 41"));
    assert_eq!(many, ProtocolError::Two(two::Error::TooManyCharacteristics { count: 65, allowed: 64 }));
}

// requirement: v2-07-7-4
#[test]
fn v2_07_s6_3_1_errors_with_their_words() {
    for (words, error) in [
        ("00 00 00 01 00 00 00 01 00 00 00 02", ErrorBody::Version { low: 1, high: 2 }),
        ("00 00 00 02", ErrorBody::Chunk),
        ("00 00 00 03", ErrorBody::Two(two::ErrorBody::BadValue)),
        ("00 00 00 04", ErrorBody::Two(two::ErrorBody::InvalidProcedure)),
        ("00 00 00 05", ErrorBody::Two(two::ErrorBody::InvalidContinuation)),
        ("00 00 00 06 00 00 00 01", ErrorBody::Two(two::ErrorBody::ReadChunks { most: 1 })),
        ("00 00 00 07 00 00 00 00", ErrorBody::Two(two::ErrorBody::WriteChunks { most: 0 })),
        ("00 00 00 08 00 00 00 10", ErrorBody::Two(two::ErrorBody::Segments { most: 16 })),
        (
            "00 00 00 09 00 00 00 02 00 00 10 00",
            ErrorBody::Two(two::ErrorBody::WriteResource { chunk: 2, needed: 4096 }),
        ),
        (
            "00 00 00 0a 00 00 10 00",
            ErrorBody::Two(two::ErrorBody::ReplyResource { segment: 0, needed: 4096 }),
        ),
        ("00 00 00 0b", ErrorBody::Two(two::ErrorBody::VersionMismatch)),
        ("00 00 00 64", ErrorBody::Two(two::ErrorBody::System)),
    ] {
        check(&format!("{FIXED} 00 00 00 04 {words}"), &reply(Body::Error(error)));
    }
    // §7: such errors are silently discarded.
    for (code, number) in [("00", 0), ("0c", 12), ("63", 99), ("65", 101)] {
        let error = refused(&format!("{FIXED} 00 00 00 04 00 00 00 {code}"));
        assert_eq!(error, ProtocolError::UnknownErrorCode { code: number });
    }
}

/// The refusal by a server of Version One only: its words have the same places in every version.
#[test]
fn rfc8166_s4_5_1_the_refusal_of_a_version_is_read_whatever_its_version() {
    let hex = "11 22 33 44 00 00 00 01 00 00 00 20 00 00 00 04 00 00 00 01 00 00 00 01 00 00 00 01";
    let (header, _) = V2P3.decode(&bytes(hex), &Limits::default()).unwrap();
    assert_eq!(header.body, Body::Error(ErrorBody::Version { low: 1, high: 1 }));
    let call = format!("11 22 33 44 00 00 00 01 00 00 00 20 00 00 00 0a {NONE} {NONE} {NONE} {NONE}");
    assert_eq!(refused(&call), ProtocolError::UnsupportedVersion { version: 1 });
}

/// §7 counts twenty bytes, which include a word that the prefix no longer has; the prefix of §6.4 has
/// sixteen.
#[test]
fn v2_07_s7_less_than_the_prefix_is_discarded_and_more_is_answered() {
    let prefix = format!("{FIXED} 00 00 00 0a");
    let short = V2P3.decode(&bytes(&prefix)[..15], &Limits::default()).unwrap_err();
    assert_eq!(short, ProtocolError::ShortMessage { len: 15, least: 16 });
    let cut = refused(&prefix);
    assert_eq!(cut, ProtocolError::Two(two::Error::WordTruncated { word: "rdma_inv_handle" }));
    assert_eq!(V2P3.refusal(&cut), ErrorBody::Chunk);
    let middle = refused(&format!("{FIXED} 00 00 00 09 00 00"));
    assert_eq!(middle, ProtocolError::Two(two::Error::WordTruncated { word: "rdma_remaining" }));
}

#[test]
fn v2_07_s7_1_3_header_types_that_do_not_exist() {
    for procedure in [0, 1, 2, 3, 14, u32::MAX] {
        let mut message = bytes(FIXED);
        message.extend(procedure.to_be_bytes());
        message.resize(64, 0);
        let error = V2P3.decode(&message, &Limits::default()).unwrap_err();
        assert_eq!(error, ProtocolError::UnknownProcedure { procedure });
        assert_eq!(V2P3.refusal(&error), ErrorBody::Two(two::ErrorBody::InvalidProcedure));
    }
}

#[test]
fn v2_07_s7_what_each_refusal_says() {
    for (error, answer) in [
        (
            ProtocolError::VersionChanged { version: 1, used: 2 },
            ErrorBody::Two(two::ErrorBody::VersionMismatch),
        ),
        (
            ProtocolError::Two(two::Error::BadCharacteristic { id: 2, len: 3 }),
            ErrorBody::Two(two::ErrorBody::BadValue),
        ),
        (
            ProtocolError::TooManyReadChunks { seen: 3, allowed: 2 },
            ErrorBody::Two(two::ErrorBody::ReadChunks { most: 2 }),
        ),
        (
            ProtocolError::NotEligible { chunks: 2, eligible: 1 },
            ErrorBody::Two(two::ErrorBody::ReadChunks { most: 1 }),
        ),
        (ProtocolError::ReverseChunks, ErrorBody::Two(two::ErrorBody::ReadChunks { most: 0 })),
        (
            ProtocolError::TooManyWriteChunks { allowed: 4 },
            ErrorBody::Two(two::ErrorBody::WriteChunks { most: 4 }),
        ),
        (
            ProtocolError::TooManySegments { list: List::Reply, count: 17, allowed: 16 },
            ErrorBody::Two(two::ErrorBody::Segments { most: 16 }),
        ),
        (
            ProtocolError::TooManyReadSegments { allowed: 32 },
            ErrorBody::Two(two::ErrorBody::Segments { most: 32 }),
        ),
        (
            ProtocolError::WriteChunkTooSmall { chunk: 1, len: 9, capacity: 8 },
            ErrorBody::Two(two::ErrorBody::WriteResource { chunk: 2, needed: 9 }),
        ),
        (
            ProtocolError::ReplyTooLong { len: 1 << 33, inline: 1, reply_chunk: 0 },
            ErrorBody::Two(two::ErrorBody::ReplyResource { segment: 0, needed: u32::MAX }),
        ),
        (ProtocolError::ExceedsMemory { len: 1 }, ErrorBody::Two(two::ErrorBody::System)),
        (ProtocolError::EarlierReadFailed { xid: 1 }, ErrorBody::Two(two::ErrorBody::System)),
        (ProtocolError::XidMismatch { header: 1, payload: 2 }, ErrorBody::Chunk),
        (ProtocolError::MisplacedChunk, ErrorBody::Chunk),
    ] {
        assert_eq!(V2P3.refusal(&error), answer, "{error}");
    }
}

/// A body of another version is encoded as an error.
#[test]
fn what_this_document_does_not_have_is_encoded_as_an_error() {
    let update = Exchange::Update { now: vec![], clears: false };
    for body in [Body::Done, Body::Two(two::Body::Exchange(update))] {
        let mut out = BytesMut::new();
        V2P3.encode(&header(None, body), &mut out);
        assert_eq!(out[..], bytes(&format!("{FIXED} 00 00 00 04 00 00 00 02")));
    }
}

/// A message of P1 is known by the XID of its RPC message. XIDs 0 and 1 look like words of a list.
#[test]
fn an_xid_that_could_be_a_discriminator_tells_no_document() {
    for (xid, is_known) in [(0_u32, false), (1, false), (2, true)] {
        let mut message = bytes(FIXED);
        message[..4].copy_from_slice(&xid.to_be_bytes());
        message.extend([0; 5 * 4]);
        message.extend(xid.to_be_bytes());
        let error = V2P3.decode(&message, &Limits::default()).unwrap_err();
        let other = two::Error::OtherProfile { ours: Profile::P3, theirs: Profile::P1 };
        let expected = if is_known { other.into() } else { ProtocolError::UnknownProcedure { procedure: 0 } };
        assert_eq!(error, expected, "{xid}");
    }
}

/// version-two-07 §7.1.3: the document has operations neither on characteristics nor on transmissions.
#[test]
fn v2_07_s7_1_3_errors_of_operations_have_codes_of_this_document() {
    use crate::wire::two::transmission::{ErrorReport, ReportedError, TransmissionId};
    let unknown = ProtocolError::Two(two::Error::UnknownOperation { operation: 9 });
    assert_eq!(V2P3.refusal(&unknown), ErrorBody::Two(two::ErrorBody::InvalidProcedure));
    let bad = TransmissionId { xid: 1, direction: Direction::Call, number: 0 };
    let report = ErrorReport { bad, lead: None, error: ReportedError::HeaderType { expected: 0, seen: 1 } };
    assert_eq!(V2P3.refusal(&ProtocolError::Two(two::Error::Group(report))), ErrorBody::Chunk);
}
