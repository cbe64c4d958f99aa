//! Directions for the items of a reply, and the possible responses (rtrext-02 §7.4, table 2); faults of a reply in a
//! transmission group (§5.4, §9.5).

use bytes::Bytes;
use rpcrdma_xdr::Encoder;

use super::reports::{
    OPTIONAL, XMTCONT, XMTREQ, XMTRESP, answer, answers, bare, bodies, bytes, call, check_usable,
    client_with, continuation, id, item, make, narrow, reply, targets, told_groups,
};
use super::version_two::{EXCHANGING, header_of, message_of, operate, raw};
use crate::testing::*;
use crate::wire::two::transmission::{
    BufferGroup, BufferStructure, ErrorReport, Location, Operation, Outcome, PlacedItem, PlacementType,
    ReportedError, ResponseDirection, ResponseLocation, ResponseSet, TARGETABLE, TransmissionId,
    TransmitRequest, TransmitResponse,
};
use crate::wire::two::{self, Exchange, Profile, Subset, operation_len};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, Segment};
use crate::{CallError, Config, Form, ReplyPlacement, Versions};

/// Receives of a kilobyte, and one segment of this size for items.
fn placing(length: u32, asked: ReplyPlacement, config: Config) -> Config {
    let group = |length, flags| BufferGroup { count: 1, length, align: 4, flags };
    let mut config = config;
    config.place_items(BufferStructure::new([group(1024, 0), group(length, TARGETABLE)]).unwrap());
    config.transmissions.asked = asked;
    config.transmissions.place_from = 1024;
    config.transmissions.reply_sends = config.continued_parts;
    config
}

/// Returns the form of the reply to a READ of up to 30,000 bytes that returns `len` bytes.
fn form(pair: &mut Pair, len: usize) -> Form {
    let mut asked = read(10, 30_000);
    asked.message = read(10, len).message;
    let reply = pair.round_trip(asked);
    let form = reply.reply.form;
    check_reply(READ, len, reply);
    pair.check_no_leak();
    form
}

// requirement: rtrext-02-7.4-2, rtrext-02-7.4-5
#[test]
fn rtrext_s7_4_a_requester_asks_for_what_it_likes() {
    for profile in EXCHANGING {
        for (asked, forms) in [
            (ReplyPlacement::Explicit, [Form::Reduced, Form::Reduced, Form::Reduced]),
            (ReplyPlacement::Targets, [Form::Inline, Form::Placed, Form::Placed]),
            (ReplyPlacement::Choice, [Form::Inline, Form::Placed, Form::Placed]),
            (ReplyPlacement::BySize(4000), [Form::Inline, Form::Placed, Form::Reduced]),
        ] {
            let client =
                placing(8192, asked, Config { versions: Versions::two(profile), ..Config::default() });
            let server = Config { versions: Versions::both(profile), send_size: 32 << 10, ..server_config() };
            let mut pair = Pair::with(rpcrdma_sim::FabricConfig::default(), client, server);
            (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
            assert_eq!([500, 3996, 30_000].map(|len| form(&mut pair, len)), forms, "{asked:?}");
            // A reply without an item, and two items of which only the first ends at a multiple of four.
            let mut none = null(14);
            none.reply = read(14, 30_000).reply;
            check_reply(0, 0, pair.round_trip(none));
            check_reply(TWO, 0, pair.round_trip(two(15, 3000, 1001)));
            // A Call does not ask for placement of an item that is too long for that.
            check_reply(READ, 100_000, pair.round_trip(read(16, 100_000)));
            let stats = pair.client.connection.stats();
            assert_eq!(stats.registrations, stats.local_invalidations + stats.remote_invalidations);
            for end in [&pair.client, &pair.server] {
                assert!(end.connection.stats().errors.is_empty(), "{:?}", end.connection.stats().errors);
            }
        }
    }
}

/// RFC 8167 §5.3: without chunks a Call offers no memory for items.
#[test]
fn rtrext_s7_4_without_chunks_no_memory_is_offered() {
    for profile in EXCHANGING {
        let asked = ReplyPlacement::Choice;
        let client = Config { versions: Versions::two(profile), send_size: 32 << 10, ..Config::default() };
        let server = placing(8192, asked, Config { versions: Versions::both(profile), ..server_config() });
        let mut pair = Pair::with(rpcrdma_sim::FabricConfig::default(), client, server);
        (0..3).for_each(|xid| check_reply(0, 0, pair.round_trip(null(xid))));
        let now = pair.now();
        pair.server.connection.call(now, read(30, 8192)).unwrap();
        pair.settle();
        let (_, reply) = pair.server.replies.pop().unwrap();
        assert_eq!(reply.unwrap().reply.form, Form::Placed);
        assert_eq!(pair.server.connection.stats().registrations, 0);
    }
}

const KILOBYTE: u32 = 1024;
/// Offset of the data in the virtual stream of the reply to a BOTH.
const DATA: u32 = 28;

/// A client that asks in this way, whose peer supports everything.
fn asking(profile: Profile, asked: ReplyPlacement) -> Raw {
    client_with(profile, placing(KILOBYTE, asked, Config::default()))
}

/// Makes a BOTH with an item of a kilobyte and a list, possibly too long for one Send; returns the item's direction.
fn asked_of(raw: &mut Raw, profile: Profile) -> ResponseLocation {
    make(raw, both(10, 1024, 9000));
    let sent = bodies(raw, profile);
    let [(10, Body::Two(two::Body::Transmission(Operation::Request(request))))] = &sent[..] else {
        panic!("{sent:?}")
    };
    let [ResponseSet { directions, .. }] = &request.response[..] else { panic!("{request:?}") };
    let location = directions[0].location.clone();
    raw.received.clear();
    location
}

/// The reply in one Send, with its item in this place.
fn replied(profile: Profile, location: Location) -> Bytes {
    let mut encoder = Encoder::new();
    [10_u32, 1, 0, 0, 0, 0].iter().for_each(|word| encoder.u32(*word));
    let inline = matches!(location, Location::TooShort);
    let in_receive = matches!(location, Location::Targets { .. });
    if !matches!(location, Location::NoItem) {
        encoder.u32(KILOBYTE);
        if inline {
            encoder.opaque_fixed(&pattern(1024));
        }
        encoder.u32(0);
    }
    let all = encoder.finish().flatten().0;
    let (at, length) = match location {
        Location::NoItem => (0, 0),
        Location::TooShort => (DATA, 0),
        _ => (DATA, KILOBYTE),
    };
    let placed = vec![PlacedItem { displacement: at, length, location }];
    let operation =
        Operation::Response(TransmitResponse { placed, count: 1, payload_len: narrow(all.len()) });
    let mut behind = all.to_vec();
    if in_receive {
        behind.resize(1024 - operation_len(&operation), 0);
        behind.extend_from_slice(&pattern(1024));
    }
    bytes(profile, 10, Direction::Reply, operation, behind)
}

// requirement: rtrext-02-7.4-2, rtrext-02-7.4-5
/// rtrext-02 §7.4, table 2: every pair of a direction and a location, after which no window stays open.
#[test]
fn rtrext_s7_4_table_2_pair_by_pair() {
    use PlacementType::{BySize, Choice, Explicit, NoItem, Targets, TooShort};
    for profile in EXCHANGING {
        for (asked, setting) in [
            (Explicit, ReplyPlacement::Explicit),
            (Targets, ReplyPlacement::Targets),
            (Choice, ReplyPlacement::Choice),
            (BySize, ReplyPlacement::BySize(1024)),
        ] {
            for got in [Explicit, Targets, TooShort, NoItem] {
                let mut raw = asking(profile, setting);
                let location = asked_of(&mut raw, profile);
                assert_eq!(location.placement(), asked);
                let offered = raw.end.connection.windows_of(10);
                assert_eq!(offered.1, usize::from(asked != Targets), "{asked:?}");
                let segments = location.segments().to_vec();
                let said = match got {
                    Explicit if segments.is_empty() => {
                        Location::Explicit(vec![Segment { handle: 7, length: KILOBYTE, offset: 0 }])
                    }
                    Explicit => {
                        raw.write(pattern(1024), segments[0]);
                        Location::Explicit(segments)
                    }
                    Targets => targets(0, vec![0]),
                    TooShort => Location::TooShort,
                    _ => Location::NoItem,
                };
                raw.send(replied(profile, said));
                let allowed = asked.outcome(got) != Outcome::Invalid;
                assert_eq!(allowed, !matches!((asked, got), (Explicit, Targets) | (Targets, Explicit)));
                if !allowed {
                    let word = asked.word();
                    let error = ReportedError::Offset { value: got.word(), least: word, most: word };
                    let bad = TransmissionId { xid: 10, direction: Direction::Reply, number: 0 };
                    let report =
                        ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead: None, error }));
                    assert_eq!(bodies(&raw, profile), [(10, Body::Error(report))], "{asked:?} {got:?}");
                    answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Chunk);
                }
                let (_, result) = raw.end.replies.pop().unwrap();
                match result {
                    Ok(reply) => {
                        assert!(allowed);
                        let mut message = reply.message;
                        (0..6).for_each(|_| assert!(message.u32().is_ok()));
                        if got != NoItem {
                            assert_eq!(message.payload(MAX).unwrap(), pattern(1024), "{asked:?} {got:?}");
                            assert_eq!(message.opaque(MAX).unwrap(), Bytes::new());
                        }
                    }
                    Err(failure) => assert!(!allowed && failure.error == CallError::Chunk, "{failure:?}"),
                }
                assert_eq!(raw.end.connection.windows_of(10), (0, 0));
                assert_eq!(raw.fabric.outstanding().windows, 0, "{asked:?} {got:?}");
                assert_eq!(raw.end.closed, None);
            }
        }
    }
}

/// Checks that a later call is answered.
#[track_caller]
fn check_client_usable(mut raw: Raw, profile: Profile) {
    answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Chunk);
    let (_, result) = raw.end.replies.pop().unwrap();
    assert_eq!(result.unwrap_err().error, CallError::Chunk);
    raw.received.clear();
    make(&mut raw, null(11));
    reply(&mut raw, profile, 11, 0);
    let (_, result) = raw.end.replies.pop().unwrap();
    check_reply(0, 0, result.unwrap());
    assert_eq!((raw.end.closed.clone(), raw.end.connection.in_progress()), (None, 0));
}

// requirement: rtrext-02-5.4-1
/// rtrext-02 §9.5: every code, about a reply. The report leaves once, and the connection stays.
#[test]
fn rtrext_s9_5_every_fault_of_a_reply_is_reported() {
    let part = |xid, number| TransmissionId { xid, direction: Direction::Reply, number };
    let first = Some(part(10, 0));
    for profile in EXCHANGING {
        let begun = |count, payload_len, placed: Vec<PlacedItem>| {
            let response = TransmitResponse { placed, count, payload_len };
            let all = super::reports::result(10, &[]).flatten().0;
            bytes(profile, 10, Direction::Reply, Operation::Response(response), all)
        };
        let goes_on = |xid, number, initial_type, payload_len| {
            let operation = continuation(number, initial_type, payload_len);
            bytes(profile, xid, Direction::Reply, operation, [0; 8])
        };
        let header = header_of(99, Direction::Reply, Body::Message(ChunkLists::default()));
        let plain = message_of(profile.codec(), &header, &super::reports::result(99, &[]));
        let other = Operation::Response(TransmitResponse { placed: vec![], count: 1, payload_len: 0 });
        let other = bytes(profile, 99, Direction::Reply, other, []);
        let in_target = |offset, number| vec![item(24, 4, targets(offset, vec![number]))];
        let range = |value, least, most| (value, least, most);
        let offset = |(value, least, most)| ReportedError::Offset { value, least, most };
        let operation = |expected, seen| ReportedError::OperationType { expected, seen };
        let length = |value, most| ReportedError::PayloadLength { value, least: 0, most };
        for (sends, bad, lead, error) in [
            // BADHMT, BADOMT, BADXID: another message comes between.
            (
                vec![begun(2, 24, vec![]), plain],
                part(99, 0),
                first,
                ReportedError::HeaderType { expected: OPTIONAL, seen: 0 },
            ),
            (vec![begun(2, 24, vec![]), other], part(99, 0), first, operation(XMTCONT, XMTRESP)),
            (
                vec![begun(2, 24, vec![]), goes_on(99, 1, XMTRESP, 0)],
                part(99, 1),
                first,
                ReportedError::Xid { expected: 10, seen: 99 },
            ),
            (
                vec![begun(2, 24, vec![]), goes_on(10, 1, XMTREQ, 0)],
                part(10, 1),
                first,
                operation(XMTRESP, XMTREQ),
            ),
            // BADCONT, BADSEQ
            (vec![goes_on(10, 1, XMTRESP, 0)], part(10, 1), None, ReportedError::Continuation),
            (
                vec![begun(3, 24, vec![]), goes_on(10, 2, XMTRESP, 0)],
                part(10, 2),
                first,
                ReportedError::Sequence { expected: 1, seen: 2 },
            ),
            (vec![begun(0, 24, vec![])], part(10, 0), None, ReportedError::Sequence { expected: 1, seen: 0 }),
            // BADPL: the length exceeds the transmission, or is no multiple of four.
            (vec![begun(1, 28, vec![])], part(10, 0), None, length(28, 24)),
            (vec![begun(2, 24, vec![]), goes_on(10, 1, XMTRESP, 12)], part(10, 1), first, length(12, 8)),
            (vec![begun(2, 24, vec![]), goes_on(10, 1, XMTRESP, 6)], part(10, 1), first, length(6, 8)),
            // BADTBSN, BADOFF
            (
                vec![begun(1, 24, in_target(0, 1))],
                part(10, 0),
                None,
                ReportedError::Target { value: 1, least: 0, most: 0 },
            ),
            (vec![begun(1, 24, in_target(1024, 0))], part(10, 0), None, offset(range(1024, 0, 1024))),
            (vec![begun(1, 24, in_target(2, 0))], part(10, 0), None, offset(range(2, 0, 1024))),
            // An item for each direction.
            (vec![begun(1, 24, vec![])], part(10, 0), None, offset(range(0, 1, 1))),
        ] {
            let mut raw = asking(profile, ReplyPlacement::Targets);
            asked_of(&mut raw, profile);
            sends.into_iter().for_each(|send| raw.send(send));
            let report = ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead, error }));
            assert_eq!(bodies(&raw, profile), [(10, Body::Error(report))]);
            assert_eq!(raw.end.connection.stats().reports_sent, 1);
            check_client_usable(raw, profile);
        }
    }
}

/// rtrext-02 §7.4: "must be disjoint and in strictly increasing order".
#[test]
fn rtrext_s7_4_ranges_of_a_request_that_are_not_in_order() {
    for profile in EXCHANGING {
        let set = |begin, end| ResponseSet { begin, end, directions: vec![] };
        for (ranges, error) in
            [([(0, 8), (4, 12)], (4, 8)), ([(8, 16), (0, 8)], (0, 16)), ([(8, 4), (16, 20)], (4, 8))]
        {
            let mut raw = raw(profile, super::reports::structured());
            let response = ranges.map(|(begin, end)| set(begin, end)).to_vec();
            let asked = Operation::Request(TransmitRequest { response, ..bare(1, 40) });
            raw.send(call(profile, 10, asked, null(10).message.flatten().0));
            let (value, least) = error;
            let error = ReportedError::Offset { value, least, most: u32::MAX };
            let report = ErrorReport { bad: id(10, 0), lead: None, error };
            assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
            check_usable(raw, profile);
        }
    }
}

/// Our Responder follows table 2 for every direction. If no place is available, the item stays inline.
#[test]
fn rtrext_s7_4_a_responder_answers_every_direction() {
    use PlacementType::{Explicit, Targets, TooShort};
    for profile in EXCHANGING {
        for (structured, asked, len, got) in [
            (true, PlacementType::Explicit, 1000, Explicit),
            (true, PlacementType::Targets, 1000, Targets),
            (true, PlacementType::Choice, 1000, Targets),
            (true, PlacementType::BySize, 1000, Explicit),
            (true, PlacementType::BySize, 400, Targets),
            (true, PlacementType::Choice, 0, TooShort),
            (false, PlacementType::Targets, 1000, TooShort),
            (false, PlacementType::Choice, 1000, Explicit),
            (false, PlacementType::BySize, 400, Explicit),
        ] {
            let mut raw = raw(profile, server_config());
            let group = |length, flags| BufferGroup { count: 1, length, align: 4, flags };
            let structure = BufferStructure::new([group(3072, 0), group(KILOBYTE, TARGETABLE)]).unwrap();
            let start = if structured { told_groups(profile, &structure) } else { vec![] };
            let constant = Subset::default();
            operate(&mut raw, profile, 7, Direction::Call, Exchange::Initial { start, constant });
            raw.received.clear();
            let memory = vec![raw.writable(1024)];
            let location = match asked {
                Explicit => ResponseLocation::Explicit(memory),
                Targets => ResponseLocation::Targets,
                PlacementType::Choice => ResponseLocation::Choice(memory),
                _ => ResponseLocation::BySize { threshold: 500, segments: memory },
            };
            let directions = vec![ResponseDirection { least_len: 0, location }];
            let set = ResponseSet { begin: 0, end: 44, directions };
            let asked = TransmitRequest { response: vec![set], ..bare(1, 44) };
            raw.send(call(profile, 10, Operation::Request(asked), read(10, len).message.flatten().0));
            let sent = bodies(&raw, profile);
            let [(10, Body::Two(two::Body::Transmission(Operation::Response(response))))] = &sent[..] else {
                panic!("{sent:?}");
            };
            let [PlacedItem { location, .. }] = &response.placed[..] else { panic!("{response:?}") };
            assert_eq!(location.placement(), got);
        }
    }
}
