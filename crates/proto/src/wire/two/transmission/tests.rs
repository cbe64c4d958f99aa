use proptest::prelude::*;

use super::*;
use crate::wire::two::Error;
use crate::wire::{Direction, ProtocolError, Segment};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn encoded(operation: &Operation) -> BytesMut {
    let mut out = BytesMut::new();
    operation.encode(&mut out);
    assert_eq!(out.len(), operation.encoded_len());
    out
}

fn decoded(kind: OperationType, hex: &str) -> Result<Operation, Malformed> {
    Operation::decode(kind, &bytes(hex), &Limits::default())
}

/// Checks that the bytes decode to `expected`, which encodes to the same bytes, and that no shorter or longer
/// message decodes.
#[track_caller]
fn check(hex: &str, expected: &Operation) {
    let (bytes, kind, limits) = (bytes(hex), expected.kind(), Limits::default());
    assert_eq!(Operation::decode(kind, &bytes, &limits).as_ref(), Ok(expected));
    assert_eq!(encoded(expected), bytes);
    for len in 0..bytes.len() {
        let cut = Operation::decode(kind, &bytes[..len], &limits);
        assert_eq!(cut, Err(Malformed::Truncated), "{len}");
    }
    for extra in 1..6 {
        let longer = [bytes.clone(), vec![0; extra]].concat();
        let refused = Operation::decode(kind, &longer, &limits);
        assert_eq!(refused, Err(Malformed::Trailing { extra }));
    }
}

#[track_caller]
fn check_structure(hex: &str, expected: &BufferStructure) {
    let (bytes, limits) = (bytes(hex), Limits::default());
    assert_eq!(BufferStructure::decode(&bytes, &limits).as_ref(), Ok(expected));
    let mut out = BytesMut::new();
    expected.encode(&mut out);
    assert_eq!(out, bytes);
    assert_eq!(out.len(), expected.encoded_len());
    for len in 0..bytes.len() {
        let cut = BufferStructure::decode(&bytes[..len], &limits);
        assert_eq!(cut, Err(Malformed::Truncated), "{len}");
    }
    let longer = BufferStructure::decode(&[bytes, vec![0]].concat(), &limits);
    assert_eq!(longer, Err(Malformed::Trailing { extra: 1 }));
}

fn request(placed: Vec<PlacedItem>, response: Vec<ResponseSet>) -> Operation {
    let (count, response_buffers, payload_len) = (2, 3, 0x0fa0);
    Operation::Request(TransmitRequest { placed, response, count, response_buffers, payload_len })
}

fn response(placed: Vec<PlacedItem>) -> Operation {
    Operation::Response(TransmitResponse { placed, count: 2, payload_len: 0x0fa0 })
}

fn item(location: Location) -> PlacedItem {
    PlacedItem { displacement: 0x80, length: 0x2000, location }
}

fn set(begin: u32, end: u32, locations: Vec<ResponseLocation>) -> ResponseSet {
    let directions = locations.into_iter().map(|location| ResponseDirection { least_len: 0x200, location });
    ResponseSet { begin, end, directions: directions.collect() }
}

fn segments() -> Vec<Segment> {
    vec![
        Segment { handle: 0x11, length: 0x1000, offset: 0x1_0000_0002 },
        Segment { handle: 0x12, length: 0x1000, offset: 3 },
    ]
}

const SEGMENTS: &str = "00 00 00 02 00 00 00 11 00 00 10 00 00 00 00 01 00 00 00 02 \
                        00 00 00 12 00 00 10 00 00 00 00 00 00 00 00 03";
const ITEM: &str = "00 00 00 80 00 00 20 00";
const REQUEST_END: &str = "00 00 00 02 00 00 00 03 00 00 0f a0";
const RESPONSE_END: &str = "00 00 00 02 00 00 0f a0";

fn group(count: u32, length: u32, align: u32, flags: u32) -> BufferGroup {
    BufferGroup { count, length, align, flags }
}

// requirement: rtrext-02-9.1-1
#[test]
fn rtrext_s9_1_numbers_of_operations() {
    let numbers = |base| OperationType::ALL.map(|operation| operation.number(base));
    assert_eq!(numbers(OperationBase::default()), [5, 6, 7, 8]);
    assert_eq!(numbers(OperationBase::Tables), [1, 2, 3, 4]);
    let of = |base| (0..10).map(|number| OperationType::of(number, base)).collect::<Vec<_>>();
    let all = OperationType::ALL.map(Some);
    assert_eq!(of(OperationBase::Separate), [&[None; 5][..], &all, &[None]].concat());
    assert_eq!(of(OperationBase::Tables), [&[None][..], &all, &[None; 5]].concat());
}

// requirement: rtrext-02-8.1-1
#[test]
fn rtrext_s8_1_numbers_and_defaults_of_properties() {
    let ids = |profile| Property::ALL.map(|property| property.id(profile));
    assert_eq!(ids(Profile::P1), [Some(4), Some(5), Some(6), Some(7)]);
    assert_eq!(ids(Profile::P2), [Some(3), Some(4), Some(5), Some(6)]);
    assert_eq!(ids(Profile::P3), [None; 4]);
    for profile in [Profile::P1, Profile::P2] {
        let known = (0..20).filter_map(|id| Property::of(profile, id)).collect::<Vec<_>>();
        assert_eq!(known, Property::ALL);
    }
    assert_eq!(Property::of(Profile::P3, 4), None);
    assert_eq!(Property::ALL.map(Property::default_word), [Some(0), None, Some(1), Some(1)]);
    assert_eq!([SUPPORT_REQUEST, SUPPORT_RESPONSE, SUPPORT_CONTINUATION], [1, 2, 4]);
}

#[test]
fn rtrext_s9_2_a_request_without_bulk_items() {
    check(&format!("00 00 00 00 00 00 00 00 {REQUEST_END}"), &request(vec![], vec![]));
}

#[test]
fn rtrext_s9_3_a_response_without_bulk_items() {
    check(&format!("00 00 00 00 {RESPONSE_END}"), &response(vec![]));
}

#[test]
fn rtrext_s9_4_a_continuation() {
    let continuation = TransmitContinuation { number: 1, initial_type: 5, payload_len: 0x0fa0 };
    check("00 00 00 01 00 00 00 05 00 00 0f a0", &Operation::Continuation(continuation));
    // rtrext-02 §9.4: a continuation without a part of the Payload.
    let empty = TransmitContinuation { payload_len: 0, ..continuation };
    check("00 00 00 01 00 00 00 05 00 00 00 00", &Operation::Continuation(empty));
}

/// Every type as the location of an item, in a request and in a response.
#[test]
fn rtrext_s7_3_locations() {
    let targets = Location::Targets { offset: 0x10, segments: vec![4, 0] };
    for (words, location) in [
        (format!("00 00 00 01 {SEGMENTS}"), Location::Explicit(segments())),
        ("00 00 00 01 00 00 00 00".into(), Location::Explicit(vec![])),
        ("00 00 00 02 00 00 00 10 00 00 00 02 00 00 00 04 00 00 00 00".into(), targets),
        ("00 00 00 02 00 00 00 00 00 00 00 00".into(), Location::Targets { offset: 0, segments: vec![] }),
        ("00 00 00 05".into(), Location::TooShort),
        ("00 00 00 06".into(), Location::NoItem),
    ] {
        let items = vec![item(location)];
        check(
            &format!("00 00 00 01 {ITEM} {words} 00 00 00 00 {REQUEST_END}"),
            &request(items.clone(), vec![]),
        );
        check(&format!("00 00 00 01 {ITEM} {words} {RESPONSE_END}"), &response(items));
    }
}

#[test]
fn rtrext_s7_3_locations_of_several_types() {
    let items = vec![
        item(Location::Explicit(segments())),
        item(Location::NoItem),
        item(Location::Targets { offset: 0, segments: vec![7] }),
    ];
    check(
        &format!(
            "00 00 00 03 {ITEM} 00 00 00 01 {SEGMENTS} {ITEM} 00 00 00 06 \
             {ITEM} 00 00 00 02 00 00 00 00 00 00 00 01 00 00 00 07 {RESPONSE_END}"
        ),
        &response(items),
    );
}

/// Every type as a direction for the response, each alone and all in two sets.
#[test]
fn rtrext_s7_4_directions() {
    let all = [
        (format!("00 00 00 01 {SEGMENTS}"), ResponseLocation::Explicit(segments())),
        ("00 00 00 02".into(), ResponseLocation::Targets),
        (format!("00 00 00 03 {SEGMENTS}"), ResponseLocation::Choice(segments())),
        (
            format!("00 00 00 04 00 00 10 00 {SEGMENTS}"),
            ResponseLocation::BySize { threshold: 0x1000, segments: segments() },
        ),
    ];
    for (words, location) in all.clone() {
        check(
            &format!(
                "00 00 00 00 00 00 00 01 00 00 00 40 00 00 00 60 00 00 00 01 00 00 02 00 {words} {REQUEST_END}"
            ),
            &request(vec![], vec![set(0x40, 0x60, vec![location])]),
        );
    }
    let (words, locations): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    check(
        &format!(
            "00 00 00 00 00 00 00 02 00 00 00 40 00 00 00 60 00 00 00 04 00 00 02 00 {} \
             00 00 00 60 00 00 00 80 00 00 00 00 {REQUEST_END}",
            words.join(" 00 00 02 00 ")
        ),
        &request(vec![], vec![set(0x40, 0x60, locations), set(0x60, 0x80, vec![])]),
    );
}

/// Each placement type decodes exactly where table 1 allows it.
// requirement: rtrext-02-6.2-1, rtrext-02-6.2-2
#[test]
fn rtrext_s6_2_table_1() {
    let decodes = |place, value: u32| {
        // An arm of each length, filled with zeros, before the end of the operation.
        let alone = |kind, before: &str, after: &str| {
            ["", "00 00 00 00", "00 00 00 00 00 00 00 00"].into_iter().find_map(|arm| {
                match decoded(kind, &format!("{before} 00 00 00 {value:02x} {arm} {after}")) {
                    Ok(_) => Some(Ok(())),
                    Err(error @ Malformed::BadPlacement { .. }) => Some(Err(error)),
                    Err(_) => None,
                }
            })
        };
        let direction = "00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 04 00 00 00 01 00 00 00 00";
        match place {
            PlacementUse::RequestLocation => alone(
                OperationType::Request,
                &format!("00 00 00 01 {ITEM}"),
                &format!("00 00 00 00 {REQUEST_END}"),
            ),
            PlacementUse::ResponseDirection => alone(OperationType::Request, direction, REQUEST_END),
            PlacementUse::ResponseLocation => {
                alone(OperationType::Response, &format!("00 00 00 01 {ITEM}"), RESPONSE_END)
            }
        }
        .expect("one of the arms has the right length")
    };
    use Validity::{SemanticallyInvalid as Sem, Valid, XdrInvalid as Xdr};
    for (place, row) in [
        (PlacementUse::RequestLocation, [Valid, Valid, Xdr, Xdr, Sem, Sem]),
        (PlacementUse::ResponseDirection, [Valid, Valid, Valid, Valid, Xdr, Xdr]),
        (PlacementUse::ResponseLocation, [Valid, Valid, Xdr, Xdr, Valid, Valid]),
    ] {
        for (value, placement, expected) in (1..)
            .zip(PlacementType::ALL)
            .zip(row)
            .map(|((value, placement), expected)| (value, placement, expected))
        {
            assert_eq!((placement.word(), PlacementType::of(value)), (value, Some(placement)));
            assert_eq!(placement.validity(place), expected, "{placement:?} as {place}");
            let result = decodes(place, value);
            assert_eq!(result.is_err(), expected == Xdr, "{placement:?} as {place}: {result:?}");
        }
        for value in [0, 7, 0xff] {
            let bad = Malformed::BadPlacement { value, place };
            assert_eq!(decodes(place, value), Err(bad));
        }
    }
}

// requirement: rtrext-02-7.3-2
#[test]
fn rtrext_s6_2_results_in_a_request_are_reported() {
    let fault = |location| match request(vec![item(Location::Explicit(vec![])), item(location)], vec![]) {
        Operation::Request(request) => request.fault(),
        _ => unreachable!(),
    };
    assert_eq!(fault(Location::Explicit(segments())), None);
    assert_eq!(fault(Location::Targets { offset: 9, segments: vec![1] }), None);
    let report = |value| Some(ReportedError::Offset { value, least: 1, most: 2 });
    assert_eq!(fault(Location::TooShort), report(5));
    assert_eq!(fault(Location::NoItem), report(6));
}

// requirement: rtrext-02-7.4-1
#[test]
fn rtrext_s7_4_ranges_are_disjoint_and_increasing() {
    let fault = |ranges: &[(u32, u32)]| {
        let sets = ranges.iter().map(|(begin, end)| set(*begin, *end, vec![])).collect();
        match request(vec![], sets) {
            Operation::Request(request) => request.fault(),
            _ => unreachable!(),
        }
    };
    let report = |value, least| Some(ReportedError::Offset { value, least, most: u32::MAX });
    assert_eq!(fault(&[(0, 0), (1, 5), (5, 6), (9, u32::MAX)]), None);
    assert_eq!(fault(&[(4, 8), (7, 9)]), report(7, 8));
    assert_eq!(fault(&[(8, 9), (4, 5)]), report(4, 9));
    assert_eq!(fault(&[(4, 3)]), report(3, 4));
    // The ranges do not strictly increase.
    assert_eq!(fault(&[(4, 4), (4, 8)]), report(4, 5));
    // Errors of items come first, because a request begins with its items.
    let both = TransmitRequest {
        placed: vec![item(Location::NoItem)],
        response: vec![set(4, 3, vec![])],
        count: 1,
        response_buffers: 1,
        payload_len: 0,
    };
    assert_eq!(both.fault(), Some(ReportedError::Offset { value: 6, least: 1, most: 2 }));
}

// requirement: rtrext-02-7.4-2
#[test]
fn rtrext_s7_4_table_2() {
    use Outcome::{Deregister as DR, Invalid as Inv, Nothing as NDR};
    use PlacementType::{BySize, Choice, Explicit, NoItem, Targets, TooShort};
    for (asked, row) in [
        (Explicit, [DR, Inv, DR, DR]),
        (Targets, [Inv, NDR, NDR, NDR]),
        (Choice, [DR, NDR, DR, DR]),
        (BySize, [DR, NDR, DR, DR]),
    ] {
        assert_eq!([Explicit, Targets, TooShort, NoItem].map(|got| asked.outcome(got)), row, "{asked:?}");
        assert_eq!([Choice, BySize].map(|got| asked.outcome(got)), [Inv; 2]);
    }
    assert_eq!([TooShort, NoItem].map(|asked| asked.outcome(NoItem)), [Inv; 2]);
}

/// Every error code with its words, with an earlier transmission and without.
// requirement: rtrext-02-9.5-2
#[test]
fn rtrext_s9_5_reports() {
    let bad = TransmissionId { xid: 0x1122_3344, direction: Direction::Call, number: 2 };
    let lead = TransmissionId { direction: Direction::Reply, number: 0, ..bad };
    let (expected, seen) = (0x0a, 0x0b);
    let (value, least, most) = (0x0c, 0x0d, 0x0e);
    let pair = "00 00 00 0a 00 00 00 0b";
    let range = "00 00 00 0c 00 00 00 0d 00 00 00 0e";
    for (code, words, error, text) in [
        (1, pair, ReportedError::HeaderType { expected, seen }, "header type 0xb where 0xa is due"),
        (2, pair, ReportedError::OperationType { expected, seen }, "operation 0xb where 0xa is due"),
        (3, "", ReportedError::Continuation, "continuation of nothing"),
        (4, pair, ReportedError::Sequence { expected, seen }, "transmission number 0xb where 0xa is due"),
        (5, pair, ReportedError::Xid { expected, seen }, "XID 0xb where 0xa is due"),
        (6, range, ReportedError::Offset { value, least, most }, "offset 12, 13 to 14 are possible"),
        (
            7,
            range,
            ReportedError::Target { value, least, most },
            "target buffer segment 12, 13 to 14 are possible",
        ),
        (
            8,
            range,
            ReportedError::PayloadLength { value, least, most },
            "payload length 12, 13 to 14 are possible",
        ),
    ] {
        assert_eq!((error.code(), error.to_string().as_str()), (code, text));
        let id = "11 22 33 44 00 00 00 00 00 00 00 02";
        check(
            &format!("{id} 00 00 00 00 00 00 00 {code:02x} {words}"),
            &Operation::Report(ErrorReport { bad, lead: None, error }),
        );
        check(
            &format!("{id} 00 00 00 01 11 22 33 44 00 00 00 01 00 00 00 00 00 00 00 {code:02x} {words}"),
            &Operation::Report(ErrorReport { bad, lead: Some(lead), error }),
        );
    }
}

#[test]
fn rtrext_s9_5_reports_that_are_none() {
    let refused = |hex| decoded(OperationType::Report, hex).unwrap_err();
    for (hex, error) in [
        ("00 00 00 01 00 00 00 02", Malformed::BadDirection { value: 2 }),
        ("00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 02", Malformed::BadDiscriminator { value: 2 }),
        ("00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00", Malformed::UnknownReport { code: 0 }),
        ("00 00 00 01 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 09", Malformed::UnknownReport { code: 9 }),
    ] {
        assert_eq!(refused(hex), error);
    }
}

/// Each bound, met and exceeded by one; a count beyond the bound is refused before its elements are read.
#[test]
fn bounds_are_kept_before_anything_is_read() {
    let limits = Limits {
        placed_items: 2,
        response_sets: 3,
        items_per_set: 4,
        segments_per_chunk: 5,
        target_segments: 6,
        buffer_groups: 7,
        ..Limits::default()
    };
    let segment = Segment { handle: 1, length: 2, offset: 3 };
    let items = |count| response(vec![item(Location::NoItem); count]);
    let sets = |count| request(vec![], vec![set(0, 0, vec![]); count]);
    let directions = |count| request(vec![], vec![set(0, 0, vec![ResponseLocation::Targets; count])]);
    let explicit = |count| response(vec![item(Location::Explicit(vec![segment; count]))]);
    let to = |location| request(vec![], vec![set(0, 0, vec![location])]);
    let choice = |count| to(ResponseLocation::Choice(vec![segment; count]));
    let by_size = |count| to(ResponseLocation::BySize { threshold: 0, segments: vec![segment; count] });
    let targets = |count| response(vec![item(Location::Targets { offset: 0, segments: vec![0; count] })]);
    let too_many_segments = Malformed::TooManySegments { count: 6, allowed: 5 };
    for (good, bad, error) in [
        (items(2), items(3), Malformed::TooManyPlacedItems { count: 3, allowed: 2 }),
        (sets(3), sets(4), Malformed::TooManyResponseSets { count: 4, allowed: 3 }),
        (directions(4), directions(5), Malformed::TooManyDirections { count: 5, allowed: 4 }),
        (explicit(5), explicit(6), too_many_segments),
        (choice(5), choice(6), too_many_segments),
        (by_size(5), by_size(6), too_many_segments),
        (targets(6), targets(7), Malformed::TooManyTargets { count: 7, allowed: 6 }),
    ] {
        assert_eq!(Operation::decode(good.kind(), &encoded(&good), &limits), Ok(good));
        assert_eq!(Operation::decode(bad.kind(), &encoded(&bad), &limits), Err(error));
    }
    let structure = |count| {
        let mut out = BytesMut::new();
        BufferStructure { total: 1, groups: vec![group(1, 1, 1, 0); count] }.encode(&mut out);
        BufferStructure::decode(&out, &limits)
    };
    assert!(structure(7).is_ok());
    let error = Malformed::TooManyBufferGroups { count: 8, allowed: 7 };
    assert_eq!(structure(8), Err(error));
    let endless = decoded(OperationType::Response, "ff ff ff ff").unwrap_err();
    let allowed = Limits::default().placed_items;
    assert_eq!(endless, Malformed::TooManyPlacedItems { count: u32::MAX, allowed });
}

/// The buffers of rtissues-03 §3.3: a part for the header, then a targetable segment. Here are three of them,
/// and a different one.
// requirement: rtrext-02-6.2-3
#[test]
fn rtrext_s7_2_a_buffer_structure() {
    let structure = BufferStructure {
        total: 0x6600,
        groups: vec![group(1, 0x400, 1, 0), group(3, 0x2000, 0x1000, 1), group(1, 0x200, 4, 2)],
    };
    check_structure(
        "00 00 66 00 00 00 00 03 \
         00 00 00 01 00 00 04 00 00 00 00 01 00 00 00 00 \
         00 00 00 03 00 00 20 00 00 00 10 00 00 00 00 01 \
         00 00 00 01 00 00 02 00 00 00 00 04 00 00 00 02",
        &structure,
    );
    assert_eq!(structure.check(), Ok(()));
    let offset = Inconsistent::Offset { group: 1, offset: 0x400, align: 0x1000 };
    assert_eq!(structure.check_in_one_piece(), Err(offset));
    let segment = |offset, length, align, target| BufferSegment { offset, length, align, target };
    let all = [
        segment(0, 0x400, 1, None),
        segment(0x400, 0x2000, 0x1000, Some(0)),
        segment(0x2400, 0x2000, 0x1000, Some(1)),
        segment(0x4400, 0x2000, 0x1000, Some(2)),
        segment(0x6400, 0x200, 4, None),
    ];
    assert_eq!(structure.segments().collect::<Vec<_>>(), all);
    assert_eq!(structure.targets(), 3);
    let found = (0..5).map(|number| structure.target(number)).collect::<Vec<_>>();
    assert_eq!(found, [Some(all[1]), Some(all[2]), Some(all[3]), None, None]);
}

// requirement: rtrext-02-8.3-2
#[test]
fn rtrext_s8_3_structure_and_receive_size_from_each_other() {
    let structure = BufferStructure::default_of(4096);
    check_structure("00 00 10 00 00 00 00 01 00 00 00 01 00 00 10 00 00 00 00 01 00 00 00 00", &structure);
    assert_eq!(structure.check_in_one_piece(), Ok(()));
    assert_eq!((structure.sum(), structure.targets(), structure.target(0)), (4096, 0, None));
    let two = BufferStructure { total: 1, groups: vec![group(2, 512, 1, 0), group(1, 7, 1, 1)] };
    assert_eq!(two.sum(), 1031);
}

/// Rule I5: no length makes the alignment of a structure fail.
#[test]
fn rtrext_s7_2_a_structure_without_bytes_is_only_inconsistent() {
    for count in [0, 1] {
        let structure = BufferStructure::behind_head(0, count, 4096);
        assert_eq!(structure.check(), Err(Inconsistent::NoBytes { group: 0 }));
    }
    assert_eq!(BufferStructure { total: 0, groups: vec![] }.align(), 1);
}

#[test]
fn rtrext_s7_2_inconsistent_structures() {
    let structure = |total, groups: &[BufferGroup]| BufferStructure { total, groups: groups.to_vec() };
    let good = group(1, 8, 8, 0);
    for (structure, wrong) in [
        (structure(8, &[good, group(0, 8, 8, 0)]), Inconsistent::NoSegments { group: 1 }),
        (structure(8, &[good, group(1, 0, 8, 0)]), Inconsistent::NoBytes { group: 1 }),
        (structure(16, &[good, group(1, 8, 0, 0)]), Inconsistent::Alignment { group: 1, align: 0 }),
        (structure(16, &[good, group(1, 8, 6, 0)]), Inconsistent::Alignment { group: 1, align: 6 }),
        (structure(9, &[good]), Inconsistent::Total { sum: 8, total: 9 }),
        (structure(7, &[good]), Inconsistent::Total { sum: 8, total: 7 }),
        (structure(0, &[]), Inconsistent::Total { sum: 0, total: 0 }),
    ] {
        assert_eq!(structure.check(), Err(wrong));
        assert_eq!(structure.check_in_one_piece(), Err(wrong));
    }
    for (groups, offset) in [
        // The misaligned segment is the first of its group, then the second.
        (vec![group(1, 4, 4, 0), group(1, 8, 8, 0)], Some(4)),
        (vec![group(1, 8, 8, 0), group(2, 12, 8, 1)], Some(20)),
        (vec![group(1, 8, 8, 0), group(1, 12, 8, 1)], None),
        (vec![group(3, 16, 8, 0)], None),
    ] {
        let structure = BufferStructure::new(groups.clone()).unwrap();
        let result = offset
            .map_or(Ok(()), |offset| Err(Inconsistent::Offset { group: groups.len() - 1, offset, align: 8 }));
        assert_eq!(structure.check_in_one_piece(), result);
    }
}

#[test]
fn rtrext_s7_2_a_structure_is_told_in_as_few_groups_as_there_can_be() {
    let (page, small) = (group(1, 4096, 4096, 1), group(1, 512, 4, 0));
    let structure = BufferStructure::new([small, page, page, group(3, 4096, 4096, 1), small]).unwrap();
    assert_eq!(structure.groups, [small, group(5, 4096, 4096, 1), small]);
    assert_eq!(structure.total, 5 * 4096 + 2 * 512);
    // Each difference begins a group, and so does a count that would not fit.
    let different = [page, group(1, 4095, 4096, 1), group(1, 4095, 1, 1), group(1, 4095, 1, 0)];
    assert_eq!(BufferStructure::new(different).unwrap().groups, different);
    let most = group(u32::MAX, 1, 1, 0);
    let total = Inconsistent::Total { sum: u128::from(u32::MAX) + 1, total: u32::MAX };
    assert_eq!(BufferStructure::new([most, group(1, 1, 1, 0)]), Err(total));
    assert_eq!(BufferStructure::new([most]).map(|structure| structure.total), Ok(u32::MAX));
    assert_eq!(BufferStructure::new([]), Err(Inconsistent::Total { sum: 0, total: 0 }));
    assert_eq!(BufferStructure::new([small, group(0, 9, 1, 0)]), Err(Inconsistent::NoSegments { group: 1 }));
}

/// A peer may announce any sizes: nothing is computed before a caller asks for it, and no sum wraps.
#[test]
fn a_structure_as_large_as_can_be_said_costs_nothing() {
    let largest = group(u32::MAX, u32::MAX, 1, 1);
    let structure = BufferStructure { total: 0, groups: vec![largest; 16] };
    let sum = u128::from(u32::MAX) * u128::from(u32::MAX) * 16;
    assert_eq!(structure.sum(), sum);
    assert_eq!(structure.check(), Err(Inconsistent::Total { sum, total: 0 }));
    assert_eq!(structure.targets(), u64::from(u32::MAX) * 16);
    let last = structure.target(structure.targets() - 1).unwrap();
    assert_eq!(last.offset, u64::MAX);
    assert_eq!(structure.target(structure.targets()), None);
    assert_eq!(structure.segments().nth(2).unwrap().offset, 2 * u64::from(u32::MAX));
}

/// Each refusal has a stable name, and a text with the refused and the allowed value.
#[test]
fn refusals_are_named() {
    let place = PlacementUse::ResponseDirection;
    for (malformed, name, text) in [
        (
            Malformed::Truncated,
            "transmission_truncated",
            "an operation or property on transmissions runs past the end of its data",
        ),
        (
            Malformed::BadPlacement { value: 5, place },
            "bad_placement",
            "placement type 5 as a direction for a response",
        ),
        (
            Malformed::TooManyPlacedItems { count: 17, allowed: 16 },
            "too_many_placed_items",
            "17 placed items in a message, 16 are allowed",
        ),
    ] {
        let error = ProtocolError::Two(Error::Transmission(malformed));
        assert_eq!((error.name(), error.to_string().as_str()), (name, text));
    }
}

fn any_segments() -> impl Strategy<Value = Vec<Segment>> {
    let segment = (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(handle, length, offset)| Segment {
        handle,
        length,
        offset,
    });
    prop::collection::vec(segment, 0..4)
}

fn any_items() -> impl Strategy<Value = Vec<PlacedItem>> {
    let location = prop_oneof![
        any_segments().prop_map(Location::Explicit),
        (any::<u32>(), prop::collection::vec(any::<u32>(), 0..5))
            .prop_map(|(offset, segments)| Location::Targets { offset, segments }),
        Just(Location::TooShort),
        Just(Location::NoItem),
    ];
    let item = (any::<u32>(), any::<u32>(), location)
        .prop_map(|(displacement, length, location)| PlacedItem { displacement, length, location });
    prop::collection::vec(item, 0..4)
}

fn any_sets() -> impl Strategy<Value = Vec<ResponseSet>> {
    let location = prop_oneof![
        any_segments().prop_map(ResponseLocation::Explicit),
        any_segments().prop_map(ResponseLocation::Choice),
        (any::<u32>(), any_segments())
            .prop_map(|(threshold, segments)| ResponseLocation::BySize { threshold, segments }),
        Just(ResponseLocation::Targets),
    ];
    let direction =
        (any::<u32>(), location).prop_map(|(least_len, location)| ResponseDirection { least_len, location });
    let set = (any::<u32>(), any::<u32>(), prop::collection::vec(direction, 0..4))
        .prop_map(|(begin, end, directions)| ResponseSet { begin, end, directions });
    prop::collection::vec(set, 0..4)
}

fn any_report() -> impl Strategy<Value = ErrorReport> {
    let id = || {
        (any::<u32>(), prop_oneof![Just(Direction::Call), Just(Direction::Reply)], any::<u32>())
            .prop_map(|(xid, direction, number)| TransmissionId { xid, direction, number })
    };
    let error = (0..8, any::<[u32; 3]>()).prop_map(|(code, [value, least, most])| {
        let (expected, seen) = (value, least);
        match code {
            0 => ReportedError::HeaderType { expected, seen },
            1 => ReportedError::OperationType { expected, seen },
            2 => ReportedError::Continuation,
            3 => ReportedError::Sequence { expected, seen },
            4 => ReportedError::Xid { expected, seen },
            5 => ReportedError::Offset { value, least, most },
            6 => ReportedError::Target { value, least, most },
            _ => ReportedError::PayloadLength { value, least, most },
        }
    });
    (id(), prop::option::of(id()), error).prop_map(|(bad, lead, error)| ErrorReport { bad, lead, error })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (any_items(), any_sets(), any::<[u32; 3]>()).prop_map(|(placed, response, words)| {
            let [count, response_buffers, payload_len] = words;
            Operation::Request(TransmitRequest { placed, response, count, response_buffers, payload_len })
        }),
        (any_items(), any::<u32>(), any::<u32>()).prop_map(|(placed, count, payload_len)| {
            Operation::Response(TransmitResponse { placed, count, payload_len })
        }),
        any::<[u32; 3]>().prop_map(|[number, initial_type, payload_len]| {
            Operation::Continuation(TransmitContinuation { number, initial_type, payload_len })
        }),
        any_report().prop_map(Operation::Report),
    ]
}

fn any_groups(count: u32, length: u32) -> impl Strategy<Value = Vec<BufferGroup>> {
    let align = prop_oneof![4 => (0..8).prop_map(|bits| 1_u32 << bits), 1 => any::<u32>()];
    let group = (0..count, 0..length, align, any::<u32>())
        .prop_map(|(count, length, align, flags)| BufferGroup { count, length, align, flags });
    prop::collection::vec(group, 0..6)
}

proptest! {
    #[test]
    fn operations_survive_the_wire(operation in any_operation()) {
        let bytes = encoded(&operation);
        let limits = Limits::default();
        prop_assert_eq!(Operation::decode(operation.kind(), &bytes, &limits), Ok(operation.clone()));
        for len in 0..bytes.len() {
            let cut = Operation::decode(operation.kind(), &bytes[..len], &limits);
            prop_assert_eq!(cut, Err(Malformed::Truncated));
        }
    }

    #[test]
    fn structures_survive_the_wire(total in any::<u32>(), groups in any_groups(u32::MAX, u32::MAX)) {
        let structure = BufferStructure { total, groups };
        let mut bytes = BytesMut::new();
        structure.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), structure.encoded_len());
        prop_assert_eq!(BufferStructure::decode(&bytes, &Limits::default()), Ok(structure));
    }

    #[test]
    fn any_words_decode_to_what_encodes_to_them_or_are_refused(
        kind in prop::sample::select(&OperationType::ALL[..]),
        words in prop::collection::vec(prop_oneof![0_u32..7, any::<u32>()], 0..40),
    ) {
        let bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        if let Ok(operation) = Operation::decode(kind, &bytes, &Limits::default()) {
            prop_assert_eq!(operation.kind(), kind);
            prop_assert_eq!(&encoded(&operation)[..], &bytes[..]);
        }
    }

    /// The counts that skip the segments agree with the segments themselves.
    #[test]
    fn segments_and_targets_agree(groups in any_groups(6, 100)) {
        let structure = BufferStructure { total: 0, groups };
        let segments = structure.segments().collect::<Vec<_>>();
        prop_assert_eq!(structure.sum(), segments.iter().map(|segment| u128::from(segment.length)).sum());
        let targets = segments.iter().filter(|segment| segment.target.is_some()).copied().collect::<Vec<_>>();
        prop_assert_eq!(structure.targets(), targets.len() as u64);
        for (number, target) in targets.iter().enumerate() {
            prop_assert_eq!(structure.target(number as u64), Some(*target));
        }
        prop_assert_eq!(structure.target(structure.targets()), None);
        let one_piece = segments.iter().all(|segment| segment.offset.is_multiple_of(u64::from(segment.align).max(1)));
        let total = u32::try_from(structure.sum()).unwrap();
        let checked = BufferStructure { total, ..structure };
        if checked.check().is_ok() {
            prop_assert_eq!(checked.check_in_one_piece().is_ok(), one_piece);
        }
    }
}
