//! Errors reported about transmission groups, and the fate of the reported message (rtrext-02 §5.4, §9.5).

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{Buffer, QueuePair, SendRequest, WorkRequest, WrId};
use rpcrdma_xdr::Stream;

use super::version_two::{EXCHANGING, faults, header_of, last, message_of, operate, raw};
use crate::testing::*;
use crate::two::settings::TransmissionSettings;
use crate::wire::two::transmission::{
    BufferGroup, BufferStructure, ErrorReport, Location, Operation, PlacedItem, Property, ReportedError,
    ResponseDirection, ResponseLocation, ResponseSet, SUPPORT_CONTINUATION, SUPPORT_REQUEST,
    SUPPORT_RESPONSE, TARGETABLE, TransmissionId, TransmitContinuation, TransmitRequest, TransmitResponse,
};
use crate::wire::two::{self, Exchange, Profile, Subset, Value, operation_len};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, Segment};
use crate::{CallError, Config, Form, Limits, OperationBase, Post, Side, Sink, Versions};

pub(super) const XMTREQ: u32 = 5;
pub(super) const XMTRESP: u32 = 6;
pub(super) const XMTCONT: u32 = 7;
pub(super) const OPTIONAL: u32 = 5;

/// Receives of a kilobyte, and two segments of the same size for items.
pub(super) fn structured() -> Config {
    let group = |count, flags| BufferGroup { count, length: 1024, align: 4, flags };
    let structure = BufferStructure::new([group(1, 0), group(2, TARGETABLE)]).unwrap();
    let transmissions =
        TransmissionSettings { structure: Some(structure), ..TransmissionSettings::default() };
    Config { receive_size: 3072, transmissions, ..server_config() }
}

/// A server that has answered its first call.
pub(super) fn server(profile: Profile) -> Raw {
    raw(profile, structured())
}

pub(super) const fn bare(count: u32, payload_len: u32) -> TransmitRequest {
    TransmitRequest { placed: vec![], response: vec![], count, response_buffers: 1, payload_len }
}

pub(super) fn request(placed: Vec<PlacedItem>, count: u32, payload_len: u32) -> Operation {
    Operation::Request(TransmitRequest { placed, ..bare(count, payload_len) })
}

pub(super) const fn continuation(number: u32, initial_type: u32, payload_len: u32) -> Operation {
    Operation::Continuation(TransmitContinuation { number, initial_type, payload_len })
}

/// A transmission with these bytes after its header.
pub(super) fn bytes(
    profile: Profile,
    xid: u32,
    direction: Direction,
    operation: Operation,
    behind: impl AsRef<[u8]>,
) -> Bytes {
    let mut out = BytesMut::new();
    profile
        .codec()
        .encode(&header_of(xid, direction, Body::Two(two::Body::Transmission(operation))), &mut out);
    out.extend_from_slice(behind.as_ref());
    out.freeze()
}

pub(super) fn call(profile: Profile, xid: u32, operation: Operation, behind: impl AsRef<[u8]>) -> Bytes {
    bytes(profile, xid, Direction::Call, operation, behind)
}

pub(super) fn plain(profile: Profile, xid: u32) -> Bytes {
    let header = header_of(xid, Direction::Call, Body::Message(ChunkLists::default()));
    message_of(profile.codec(), &header, &null(xid).message)
}

/// The message of a TWO with items of these lengths, which are multiples of 4.
fn two_items(first: usize, second: usize) -> Bytes {
    two(10, first, second).message.flatten().0
}

pub(super) fn narrow(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

pub(super) const fn id(xid: u32, number: u32) -> TransmissionId {
    TransmissionId { xid, direction: Direction::Call, number }
}

/// The reports that the peer received, by the XID of their headers, and the XIDs that were answered.
pub(super) fn answers(raw: &Raw, profile: Profile) -> (Vec<(u32, ErrorReport)>, Vec<u32>) {
    let (mut reports, mut replies) = (vec![], vec![]);
    for message in &raw.received {
        let (header, _) = profile.codec().decode(message, &crate::Limits::default()).unwrap();
        match header.body {
            Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) => reports.push((header.xid, report)),
            Body::Message(_) => replies.push(header.xid),
            Body::Two(two::Body::Exchange(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    (reports, replies)
}

/// Checks that nothing of a message is left, and that the connection still works.
#[track_caller]
pub(super) fn check_usable(mut raw: Raw, profile: Profile) {
    raw.received.clear();
    let all = null(70).message.flatten().0;
    let (first, second) = all.split_at(20);
    raw.send(call(profile, 70, request(vec![], 2, 20), first));
    raw.send(call(profile, 70, continuation(1, XMTREQ, narrow(second.len())), second));
    assert_eq!(answers(&raw, profile), (vec![], vec![70]));
    assert_eq!((raw.end.closed.clone(), raw.end.connection.in_progress()), (None, 0));
}

// requirement: rtrext-02-5.4-1
#[test]
fn rtrext_s9_5_badhmt_another_message_type_comes_between() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.send(call(profile, 10, request(vec![], 3, 20), &null(10).message.flatten().0[..20]));
        raw.send(plain(profile, 11));
        let error = ReportedError::HeaderType { expected: OPTIONAL, seen: 0 };
        let report = ErrorReport { bad: id(11, 0), lead: Some(id(10, 0)), error };
        assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![11]), "what came between is answered");
        // The remaining transmissions of the group are discarded.
        raw.received.clear();
        raw.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
        raw.send(call(profile, 10, continuation(2, XMTREQ, 20), &null(10).message.flatten().0[20..]));
        assert_eq!(answers(&raw, profile), (vec![], vec![]));
        check_usable(raw, profile);
    }
}

#[test]
fn rtrext_s9_5_badomt_another_operation_comes_between() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.send(call(profile, 10, request(vec![], 2, 20), &null(10).message.flatten().0[..20]));
        raw.send(call(profile, 11, request(vec![], 1, 40), null(11).message.flatten().0));
        let error = ReportedError::OperationType { expected: XMTCONT, seen: XMTREQ };
        let report = ErrorReport { bad: id(11, 0), lead: Some(id(10, 0)), error };
        assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![11]));
        check_usable(raw, profile);

        // §9.4, optxc_itype: the continuation names another initial type.
        let mut raw = server(profile);
        raw.send(call(profile, 10, request(vec![], 2, 20), &null(10).message.flatten().0[..20]));
        raw.send(call(profile, 10, continuation(1, XMTRESP, 20), &null(10).message.flatten().0[20..]));
        let error = ReportedError::OperationType { expected: XMTREQ, seen: XMTRESP };
        let report = ErrorReport { bad: id(10, 1), lead: Some(id(10, 0)), error };
        assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
        check_usable(raw, profile);
    }
}

#[test]
fn rtrext_s9_5_badcont_nothing_is_to_be_continued() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
        let report = ErrorReport { bad: id(10, 1), lead: None, error: ReportedError::Continuation };
        assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
        check_usable(raw, profile);
    }
}

#[test]
fn rtrext_s9_5_badseq_another_number_is_due() {
    for profile in EXCHANGING {
        for number in [0, 2, u32::MAX] {
            let mut raw = server(profile);
            raw.send(call(profile, 10, request(vec![], 3, 20), &null(10).message.flatten().0[..20]));
            raw.send(call(profile, 10, continuation(number, XMTREQ, 0), []));
            let error = ReportedError::Sequence { expected: 1, seen: number };
            let lead = (number > 0).then_some(id(10, 0));
            let report = ErrorReport { bad: id(10, number), lead, error };
            assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
            check_usable(raw, profile);
        }
        // A group never has that many transmissions; the remaining ones are discarded.
        for (count, expected) in [(0, 1), (65, 64), (u32::MAX, 64)] {
            let mut raw = server(profile);
            raw.send(call(profile, 10, request(vec![], count, 40), null(10).message.flatten().0));
            let error = ReportedError::Sequence { expected, seen: count };
            let report = ErrorReport { bad: id(10, 0), lead: None, error };
            assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
            raw.received.clear();
            if count > 0 {
                raw.send(call(profile, 10, continuation(1, XMTREQ, 0), []));
                assert_eq!(answers(&raw, profile), (vec![], vec![]));
            }
            check_usable(raw, profile);
        }
    }
}

// requirement: rtrext-02-9.4-1
#[test]
fn rtrext_s9_5_badxid_a_group_goes_on_under_its_xid() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.send(call(profile, 10, request(vec![], 2, 20), &null(10).message.flatten().0[..20]));
        raw.send(call(profile, 11, continuation(1, XMTREQ, 20), &null(10).message.flatten().0[20..]));
        let error = ReportedError::Xid { expected: 10, seen: 11 };
        let interrupted = ErrorReport { bad: id(11, 1), lead: Some(id(10, 0)), error };
        let stray = ErrorReport { bad: id(11, 1), lead: None, error: ReportedError::Continuation };
        assert_eq!(answers(&raw, profile), (vec![(10, interrupted), (11, stray)], vec![]));
        check_usable(raw, profile);
    }
}

#[test]
fn rtrext_s9_5_badpl_the_payload_is_in_its_transmission() {
    for profile in EXCHANGING {
        for (seen, len) in [(44, 40), (u32::MAX, 40), (38, 40), (4, 0)] {
            let mut raw = server(profile);
            raw.send(call(profile, 10, request(vec![], 1, seen), &null(10).message.flatten().0[..len]));
            let error = ReportedError::PayloadLength { value: seen, least: 0, most: narrow(len) };
            let report = ErrorReport { bad: id(10, 0), lead: None, error };
            assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
            check_usable(raw, profile);
        }
    }
}

/// Sends a WRITE whose items of this length are placed at `items`, and returns the report.
fn placed(profile: Profile, length: u32, items: Vec<PlacedItem>) -> ReportedError {
    let mut raw = server(profile);
    let all = write(10, usize::try_from(length).unwrap()).message.flatten().0;
    // The Payload is everything before the data, which is at the beginning of the first segment.
    let operation = request(items, 1, 44);
    let mut behind = all[..44].to_vec();
    behind.resize(1024 - operation_len(&operation), 0);
    behind.extend_from_slice(&all[44..]);
    raw.send(call(profile, 10, operation, behind));
    let (reports, replies) = answers(&raw, profile);
    assert_eq!((reports.len(), replies), (1, vec![]));
    let (xid, report) = reports[0];
    assert_eq!((xid, report.bad, report.lead), (10, id(10, 0), None));
    check_usable(raw, profile);
    report.error
}

pub(super) fn item(displacement: u32, length: u32, location: Location) -> PlacedItem {
    PlacedItem { displacement, length, location }
}

pub(super) const fn targets(offset: u32, segments: Vec<u32>) -> Location {
    Location::Targets { offset, segments }
}

// requirement: rtrext-02-7.3-3, rtrext-02-9.2-1
#[test]
fn rtrext_s7_3_an_item_that_is_where_it_is_said_to_be() {
    for profile in EXCHANGING {
        for (length, segments) in [(1000, vec![0]), (1024, vec![0]), (2000, vec![0, 1])] {
            let mut raw = server(profile);
            let all = write(10, length).message.flatten().0;
            let operation = request(vec![item(44, narrow(length), targets(0, segments))], 1, 44);
            let mut behind = all[..44].to_vec();
            behind.resize(1024 - operation_len(&operation), 0);
            behind.extend_from_slice(&all[44..]);
            raw.send(call(profile, 10, operation, behind));
            assert_eq!(answers(&raw, profile), (vec![], vec![10]), "{length}");
            check_usable(raw, profile);
        }
    }
}

#[test]
fn rtrext_s9_5_badtbsn_there_is_no_such_segment() {
    for profile in EXCHANGING {
        for number in [2, 3, u32::MAX] {
            let error = placed(profile, 1000, vec![item(44, 1000, targets(0, vec![number]))]);
            assert_eq!(error, ReportedError::Target { value: number, least: 0, most: 1 });
        }
    }
}

#[test]
fn rtrext_s9_5_badoff_an_offset_that_cannot_be() {
    let segment = Segment { handle: 7, length: 100, offset: 0 };
    for profile in EXCHANGING {
        for (items, error) in [
            // The end is beyond the segment; the offset is not a multiple of four, although the value would be possible.
            (vec![item(44, 1000, targets(1024, vec![0]))], (1024, 0, 1024)),
            (vec![item(44, 1000, targets(u32::MAX, vec![0]))], (u32::MAX, 0, 1024)),
            (vec![item(44, 1000, targets(2, vec![0]))], (2, 0, 1024)),
            // The item goes on behind its segments, or behind the transmission.
            (vec![item(44, 1000, targets(512, vec![0]))], (1000, 0, 488)),
            (vec![item(44, 1000, targets(0, vec![]))], (1000, 0, 0)),
            (vec![item(44, 1024, targets(0, vec![0]))], (1024, 0, 1000)),
            // Two items in the same place.
            (
                vec![item(44, 500, targets(0, vec![0])), item(544, 500, targets(400, vec![0]))],
                (400, 500, u32::MAX),
            ),
            // Offsets in the virtual stream: not a multiple of four, before the end of the previous item, beyond the
            // whole stream.
            (vec![item(42, 1000, targets(0, vec![0]))], (42, 0, 44)),
            (
                vec![item(44, 500, targets(0, vec![0])), item(540, 500, targets(500, vec![0]))],
                (540, 544, 544),
            ),
            (vec![item(48, 1000, targets(0, vec![0]))], (48, 0, 44)),
            // The memory is shorter than its item.
            (vec![item(44, 1000, Location::Explicit(vec![segment]))], (1000, 100, 100)),
            // §6.2, table 1: types that only a response has.
            (vec![item(44, 1000, Location::TooShort)], (5, 1, 2)),
            (vec![item(44, 1000, Location::NoItem)], (6, 1, 2)),
        ] {
            let (value, least, most) = error;
            let what = format!("{items:?}");
            assert_eq!(placed(profile, 1000, items), ReportedError::Offset { value, least, most }, "{what}");
        }
        // The item goes on behind several segments, each of which counts.
        let error = placed(profile, 1500, vec![item(44, 1025, targets(0, vec![0]))]);
        assert_eq!(error, ReportedError::Offset { value: 1025, least: 0, most: 1024 }, "one byte is missing");
        for (segments, most) in [(vec![0], 1024), (vec![0, 1], 1500)] {
            let error = placed(profile, 1500, vec![item(44, 1600, targets(0, segments))]);
            assert_eq!(error, ReportedError::Offset { value: 1600, least: 0, most });
        }
    }
}

/// An item must lie behind the Payload of its transmission.
#[test]
fn rtrext_s9_5_badoff_an_item_in_the_payload() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        let all = store(10, 1500).message.flatten().0;
        let operation = request(vec![item(44, 100, targets(0, vec![0]))], 1, narrow(all.len()));
        let end = operation_len(&operation) + all.len();
        raw.send(call(profile, 10, operation, all));
        let error = ReportedError::Offset { value: 0, least: narrow(end - 1024), most: 1024 };
        let report = ErrorReport { bad: id(10, 0), lead: None, error };
        assert_eq!(answers(&raw, profile), (vec![(10, report)], vec![]));
        check_usable(raw, profile);
    }
}

/// version-two-01 §3.1: a side without transmission groups knows none of the operations.
#[test]
fn rtrext_s5_1_operations_that_are_not_supported() {
    for profile in EXCHANGING {
        let transmissions = TransmissionSettings { enabled: false, ..TransmissionSettings::default() };
        let mut raw = raw(profile, Config { transmissions, ..server_config() });
        raw.send(call(profile, 10, request(vec![], 1, 40), null(10).message.flatten().0));
        let (answer, _) = last(&raw, profile);
        assert_eq!(
            (answer.xid, answer.body),
            (10, Body::Error(ErrorBody::Two(two::ErrorBody::InvalidOption)))
        );
        raw.send(plain(profile, 11));
        assert_eq!(last(&raw, profile).0.xid, 11);
    }
}

/// Our client, whose first call was answered by a peer that supports everything.
pub(super) fn client(profile: Profile) -> Raw {
    let transmissions = TransmissionSettings { place_from: 1024, ..TransmissionSettings::default() };
    client_with(profile, Config { transmissions, ..Config::default() })
}

pub(super) fn client_with(profile: Profile, config: Config) -> Raw {
    let mut raw = Raw::new(Side::Client, Config { versions: Versions::two(profile), ..config });
    make(&mut raw, null(1));
    reply(&mut raw, profile, 1, 0);
    let start = told_support(profile);
    operate(
        &mut raw,
        profile,
        0x8000_0001,
        Direction::Call,
        Exchange::Initial { start, constant: Subset::default() },
    );
    raw.received.clear();
    raw
}

/// The value that announces support for everything.
pub(super) fn told_support(profile: Profile) -> Vec<Value> {
    let all = SUPPORT_REQUEST | SUPPORT_RESPONSE | SUPPORT_CONTINUATION;
    let value = |property: Property, word: u32| Value {
        id: property.id(profile).unwrap(),
        data: Bytes::copy_from_slice(&word.to_be_bytes()),
    };
    vec![value(Property::Support, all), value(Property::RequestLimit, 8), value(Property::ResponseLimit, 8)]
}

/// Support for everything, and Receives of this structure, as announced.
pub(super) fn told_groups(profile: Profile, structure: &BufferStructure) -> Vec<Value> {
    let mut told = told_support(profile);
    told.push(told_structure(profile, structure));
    told
}

/// The value that announces the structure of one side's Receives.
fn told_structure(profile: Profile, structure: &BufferStructure) -> Value {
    let mut data = BytesMut::new();
    structure.encode(&mut data);
    Value { id: Property::BufferStructure.id(profile).unwrap(), data: data.freeze() }
}

pub(super) fn make(raw: &mut Raw, call: crate::Call) {
    let now = raw.fabric.instant();
    raw.end.connection.call(now, call).unwrap();
    raw.settle();
}

/// The reply to STORE with these words as its result, which may be empty.
pub(super) fn result(xid: u32, words: &[u32]) -> Stream {
    let mut encoder = rpcrdma_xdr::Encoder::new();
    [xid, 1, 0, 0, 0, 0].iter().chain(words).for_each(|word| encoder.u32(*word));
    encoder.finish()
}

pub(super) fn reply(raw: &mut Raw, profile: Profile, xid: u32, words: usize) {
    let header = header_of(xid, Direction::Reply, Body::Message(ChunkLists::default()));
    raw.send(message_of(profile.codec(), &header, &result(xid, &vec![9000; words])));
}

pub(super) fn answer(raw: &mut Raw, profile: Profile, xid: u32, direction: Direction, error: ErrorBody) {
    let header = header_of(xid, direction, Body::Error(error));
    raw.send(message_of(profile.codec(), &header, &Stream::new()));
}

pub(super) fn bodies(raw: &Raw, profile: Profile) -> Vec<(u32, Body)> {
    let decode = |message: &Bytes| {
        let (header, _) = profile.codec().decode(message, &crate::Limits::default()).unwrap();
        (header.xid, header.body)
    };
    raw.received.iter().map(decode).collect()
}

// requirement: rtrext-02-5.4-2
/// rtrext-02 §5.4: "the requestor can respond to the error indication by proceeding to send the request using existing
/// facilities".
#[test]
fn rtrext_s5_4_a_call_that_is_reported_leaves_again_in_plain_messages() {
    for profile in EXCHANGING {
        let error = ReportedError::Sequence { expected: 1, seen: 3 };
        let report = ErrorReport { bad: id(10, 3), lead: Some(id(10, 0)), error };
        for refusal in
            [ErrorBody::Two(two::ErrorBody::Report(report)), ErrorBody::Two(two::ErrorBody::InvalidOption)]
        {
            let mut raw = client(profile);
            make(&mut raw, store(10, 9000));
            let sent = bodies(&raw, profile);
            assert_eq!(sent.len(), 3, "{sent:?}");
            assert!(
                sent.iter()
                    .all(|(xid, body)| *xid == 10 && matches!(body, Body::Two(two::Body::Transmission(_))))
            );
            raw.received.clear();
            answer(&mut raw, profile, 10, Direction::Reply, refusal);
            let sent = bodies(&raw, profile);
            assert!(
                matches!(&sent[..], [(10, Body::NoMessage(lists))] if lists.has_position_zero()),
                "{sent:?}"
            );
            reply(&mut raw, profile, 10, 1);
            let (_, result) = raw.end.replies.pop().unwrap();
            let taken = result.unwrap();
            assert_eq!(taken.call.form, Form::Long);
            check_reply(STORE, 9000, taken);
            assert_eq!(raw.end.connection.stats().sent_plainly, 1);
            assert!(raw.end.connection.stats().errors.is_empty(), "a refusal is no fault");
        }
    }
}

/// A call whose result memory is open to the peer leaves again with the same memory, after that is closed (rules I1, I2).
#[test]
fn rtrext_s5_4_i2_a_reported_call_leaves_again_when_its_windows_are_closed() {
    for profile in EXCHANGING {
        let report = ErrorReport { bad: id(10, 0), lead: None, error: ReportedError::Continuation };
        for refusal in
            [ErrorBody::Two(two::ErrorBody::Report(report)), ErrorBody::Two(two::ErrorBody::InvalidOption)]
        {
            let mut raw = client(profile);
            let mut call = both(10, 5000, 8000);
            let memory = vec![7; 5000];
            let address = memory.as_ptr();
            call.reply.sinks = vec![Sink::Buffer(Buffer::adopt(memory))];
            make(&mut raw, call);
            let [(10, Body::Two(two::Body::Transmission(Operation::Request(asked))))] =
                &bodies(&raw, profile)[..]
            else {
                panic!("{:?}", bodies(&raw, profile));
            };
            let first = asked.response[0].directions[0].location.segments()[0];
            assert_eq!((asked.response_buffers, raw.fabric.outstanding().windows), (2, 1));
            raw.received.clear();
            answer(&mut raw, profile, 10, Direction::Reply, refusal);
            let sent = bodies(&raw, profile);
            let [(10, Body::Message(lists))] = &sent[..] else { panic!("{sent:?}") };
            let again = lists.write[0].segments[0];
            assert_ne!(first.handle, again.handle, "the first window is closed");
            assert_eq!(raw.fabric.outstanding().windows, 2, "for the result, and the Reply chunk");
            // A second report still concerns the group.
            answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Two(two::ErrorBody::Report(report)));
            raw.write(pattern(5000), again);
            let mut returned = lists.clone();
            returned.reply = returned.reply.map(|chunk| chunk.filled(0));
            let header = header_of(10, Direction::Reply, Body::Message(returned));
            raw.send(message_of(profile.codec(), &header, &result(10, &[5000, 0])));
            let (_, result) = raw.end.replies.pop().unwrap();
            let mut taken = result.unwrap().message;
            for _ in 0..6 {
                taken.u32().unwrap();
            }
            let data = taken.payload(MAX).unwrap();
            assert_eq!((&data, data.as_ptr()), (&pattern(5000), address), "the caller's memory");
            assert_eq!(raw.end.connection.requester.bulk, 0, "no bytes of chunks are in flight");
            assert_eq!((raw.end.connection.stats().sent_plainly, raw.fabric.outstanding().windows), (1, 0));
            assert_eq!(raw.end.connection.in_progress(), 0);
        }
    }
}

/// If the connection ends before that, the Call waits for the next one; an abandoned Call does not leave again.
#[test]
fn rtrext_s5_4_i8_a_reported_call_is_not_lost_while_its_windows_close() {
    for profile in EXCHANGING {
        let report = ErrorReport { bad: id(10, 0), lead: None, error: ReportedError::Continuation };
        for abandoned in [false, true] {
            let mut raw = client(profile);
            raw.end.replies.clear();
            let now = raw.fabric.instant();
            let call = raw.end.connection.call(now, both(10, 5000, 8000)).unwrap();
            raw.settle();
            raw.received.clear();
            let header =
                header_of(10, Direction::Reply, Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))));
            let gather = vec![message_of(profile.codec(), &header, &Stream::new())];
            let request = SendRequest { gather, ..SendRequest::default() };
            raw.peer.post(WrId(u64::MAX), WorkRequest::Send(request)).unwrap();
            // The report has come, and nothing was posted since.
            while raw.end.connection.stats().sent_plainly == 0 {
                raw.take_completions();
                let taken = raw.end.connection.stats().sent_plainly > 0;
                assert!(raw.fabric.step() || taken, "the report arrives, and is taken");
            }
            assert_eq!(raw.fabric.outstanding().windows, 1);
            if abandoned {
                raw.end.connection.abandon(now, call);
                raw.settle();
                assert_eq!(bodies(&raw, profile), [], "nobody waits for it");
                assert_eq!((raw.end.replies.len(), raw.end.connection.in_progress()), (0, 0));
                assert_eq!(raw.fabric.outstanding().windows, 0);
            } else {
                raw.end.qp.abort();
                raw.settle();
                let (ended, result) = raw.end.replies.pop().unwrap();
                let failure = result.unwrap_err();
                assert_eq!((ended, failure.sent, failure.call.is_some()), (call, true, true));
                assert!(matches!(failure.error, CallError::ConnectionLost(_)), "{failure:?}");
            }
        }
    }
}

/// A peer that reports every group gets no more of them where chunks can carry the Calls: each Call would leave twice.
#[test]
fn rtrext_s5_4_groups_that_are_always_reported_are_given_up() {
    for profile in EXCHANGING {
        let report = |xid| {
            let error = ReportedError::Sequence { expected: 1, seen: 3 };
            ErrorBody::Two(two::ErrorBody::Report(ErrorReport {
                bad: id(xid, 3),
                lead: Some(id(xid, 0)),
                error,
            }))
        };
        let mut raw = client(profile);
        raw.end.replies.clear();
        let mut long = |xid: u32, reported: bool| {
            raw.received.clear();
            make(&mut raw, store(xid, 9000));
            let in_group = matches!(&bodies(&raw, profile)[0].1, Body::Two(two::Body::Transmission(_)));
            if reported {
                answer(&mut raw, profile, xid, Direction::Reply, report(xid));
            }
            reply(&mut raw, profile, xid, 1);
            check_reply(STORE, 9000, raw.end.replies.pop().unwrap().1.unwrap());
            in_group
        };
        // A peer that accepts some of them gets more.
        for (xid, reported) in (10..).zip([true, true, false, true, true, false, true, true, true]) {
            assert!(long(xid, reported), "{xid}");
        }
        assert!(!long(30, false) && !long(31, false));
    }
}

#[test]
fn rtrext_s5_4_a_call_that_is_refused_in_plain_messages_too_has_failed() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, store(10, 9000));
        // An error that answers each transmission concerns the group.
        for _ in 0..3 {
            answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Two(two::ErrorBody::InvalidOption));
        }
        assert_eq!(raw.end.replies.len(), 1, "of the first call");
        answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Chunk);
        let (_, result) = raw.end.replies.pop().unwrap();
        assert_eq!(result.unwrap_err().error, CallError::Chunk);
        // From then on no Call leaves in a group.
        raw.received.clear();
        make(&mut raw, store(11, 9000));
        assert!(matches!(&bodies(&raw, profile)[..], [(11, Body::NoMessage(_))]));
    }
}

// requirement: rtrext-02-5.2-1
/// A reply is reported once, on the credit of its Call. The peer's answer then ends that Call.
#[test]
fn rtrext_s5_4_a_reply_that_is_not_as_it_has_to_be_is_reported() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, list(10, 9000));
        let [(10, Body::Two(two::Body::Transmission(Operation::Request(asked))))] =
            &bodies(&raw, profile)[..]
        else {
            panic!("{:?}", bodies(&raw, profile));
        };
        assert_eq!((asked.count, asked.response_buffers), (1, 3));
        raw.received.clear();
        let begin = |count| {
            let response = TransmitResponse { placed: vec![], count, payload_len: 24 };
            bytes(profile, 10, Direction::Reply, Operation::Response(response), result(10, &[]).flatten().0)
        };
        raw.send(begin(4));
        raw.send(begin(4));
        let bad = TransmissionId { xid: 10, direction: Direction::Reply, number: 0 };
        let error = ReportedError::Sequence { expected: 3, seen: 4 };
        let report = ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead: None, error }));
        assert_eq!(bodies(&raw, profile), [(10, Body::Error(report))]);
        let (header, _) = last(&raw, profile);
        assert_eq!(header.direction, Some(Direction::Call));
        answer(&mut raw, profile, 10, Direction::Reply, ErrorBody::Chunk);
        let (_, result) = raw.end.replies.pop().unwrap();
        assert_eq!(result.unwrap_err().error, CallError::Chunk);
        assert_eq!(raw.end.connection.stats().reports_sent, 1);
        let faults: u64 = raw.end.connection.stats().errors.values().sum();
        assert_eq!(faults, 2, "each of the two is counted");
    }
}

// requirement: rtrext-02-9.3-1
#[test]
fn rtrext_s9_3_a_reply_put_together_by_hand() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        make(&mut raw, list(10, 9000));
        let mut encoder = rpcrdma_xdr::Encoder::new();
        [10_u32, 1, 0, 0, 0, 0].iter().for_each(|word| encoder.u32(*word));
        encoder.payload(pattern(3000), MAX, false).unwrap();
        let all = encoder.finish().flatten().0;
        for (number, range) in [(0, 0..1000), (1, 1000..1000), (2, 1000..all.len())] {
            let payload_len = narrow(range.len());
            let operation = match number {
                0 => Operation::Response(TransmitResponse { placed: vec![], count: 3, payload_len }),
                _ => continuation(number, XMTRESP, payload_len),
            };
            raw.send(bytes(profile, 10, Direction::Reply, operation, &all[range]));
        }
        let (_, result) = raw.end.replies.pop().unwrap();
        let taken = result.unwrap();
        assert_eq!(taken.reply.form, Form::Continued);
        check_reply(LIST, 3000, taken);
    }
}

// requirement: rtrext-02-9.5-1
#[test]
fn rtrext_s9_5_what_does_not_decode_is_no_matter_of_reports() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        let whole = call(profile, 10, request(vec![], 1, 40), []);
        // The operation is a word shorter than its XDR.
        let mut cut = whole[..whole.len() - 4].to_vec();
        cut[27] -= 4;
        raw.send(cut);
        let (header, _) = last(&raw, profile);
        assert_eq!((header.xid, header.body), (10, Body::Error(ErrorBody::Chunk)));
        check_usable(raw, profile);
    }
}

/// RFC 8166 §4.5: neither an RDMA_ERROR nor a reply is answered with an RDMA_ERROR.
#[test]
fn a_reply_in_a_group_that_does_not_decode_is_discarded() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        let response = TransmitResponse { placed: vec![], count: 1, payload_len: 24 };
        let whole = bytes(profile, 10, Direction::Reply, Operation::Response(response), []);
        let mut cut = whole[..whole.len() - 4].to_vec();
        cut[27] -= 4;
        raw.send(cut);
        assert_eq!(answers(&raw, profile), (vec![], vec![]));
        check_usable(raw, profile);
    }
}

#[test]
fn a_report_that_does_not_decode_is_discarded() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        let bad = TransmissionId { xid: 10, direction: Direction::Reply, number: 0 };
        let report = ErrorReport { bad, lead: None, error: ReportedError::Continuation };
        let header =
            header_of(10, Direction::Call, Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))));
        let whole = message_of(profile.codec(), &header, &Stream::new());
        // An unknown error code, and an operation that ends too early.
        let mut unknown = whole.to_vec();
        *unknown.last_mut().unwrap() = 77;
        raw.send(unknown);
        raw.send(whole.slice(..whole.len() - 4));
        assert!(raw.received.is_empty());
        check_usable(raw, profile);
    }
}

// requirement: rtrext-02-11-2
#[test]
fn rtrext_s11_nothing_is_between_the_payload_and_a_place() {
    for profile in EXCHANGING {
        let mut raw = client(profile);
        let structure = structured().transmissions.structure.unwrap();
        let value = told_structure(profile, &structure);
        let update = Exchange::Update { now: vec![value], clears: false };
        operate(&mut raw, profile, 0x8000_0002, Direction::Call, update);
        raw.received.clear();
        make(&mut raw, write(10, 1024));
        let (header, payload) = last(&raw, profile);
        let Body::Two(two::Body::Transmission(Operation::Request(request))) = header.body else {
            panic!("{header:?}")
        };
        assert_eq!(request.placed, [item(44, 1024, targets(0, vec![0]))]);
        let payload_len = usize::try_from(request.payload_len).unwrap();
        let before = raw.received.last().unwrap().len() - payload.len();
        assert!(payload[payload_len..1024 - before].iter().all(|byte| *byte == 0));
        assert_eq!(payload.slice(1024 - before..), pattern(1024));
    }
}

/// At the server, a report about a reply ends the Call with an error.
#[test]
fn rtrext_s5_4_who_reports_a_reply_is_answered() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.send(plain(profile, 10));
        let long = list(11, 9000).message.flatten().0;
        let asked = TransmitRequest { response_buffers: 8, ..bare(1, narrow(long.len())) };
        raw.send(call(profile, 11, Operation::Request(asked), long));
        raw.received.clear();
        // The report is answered once, and never if the reply was a plain message.
        for (xid, answers) in [(10, 0), (11, 1), (11, 1), (12, 1)] {
            let bad = TransmissionId { xid, direction: Direction::Reply, number: 0 };
            let report = ErrorReport { bad, lead: None, error: ReportedError::Continuation };
            answer(&mut raw, profile, xid, Direction::Call, ErrorBody::Two(two::ErrorBody::Report(report)));
            assert_eq!(raw.received.len(), answers, "{xid}");
        }
        let (header, _) = last(&raw, profile);
        assert_eq!((header.xid, header.body), (11, Body::Error(ErrorBody::Chunk)));
        assert_eq!(raw.end.connection.stats().replies_reported, 1);
        check_usable(raw, profile);
    }
}

/// A message between the transmissions of a group that does not decode ends the group, too; each XID gets one answer.
#[test]
fn rtrext_s4_2_what_does_not_decode_comes_between() {
    for profile in EXCHANGING {
        for (xid, expected) in [(10, vec![10]), (11, vec![10, 11])] {
            let mut raw = server(profile);
            let all = null(10).message.flatten().0;
            raw.send(call(profile, 10, request(vec![], 2, 20), &all[..20]));
            let mut cut = call(profile, xid, continuation(1, XMTREQ, 20), [])[..36].to_vec();
            cut[27] -= 4;
            raw.send(cut);
            raw.send(call(profile, 10, continuation(1, XMTREQ, 20), &all[20..]));
            let answered: Vec<u32> = bodies(&raw, profile).into_iter().map(|(xid, _)| xid).collect();
            assert_eq!(answered, expected);
            check_usable(raw, profile);
        }
    }
}

/// A structure that is longer than the Receives or than any Send is not used for items (rtrext-02 §8.3).
#[test]
fn rtrext_s8_3_a_structure_is_believed_as_far_as_the_receive_size() {
    for profile in EXCHANGING {
        for plain in [4096, (1 << 20) - 1024, u32::MAX - 2047] {
            let mut raw = client(profile);
            let groups = [(1, plain, 0), (1, 1024, TARGETABLE)];
            let group = |(count, length, flags)| BufferGroup { count, length, align: 1, flags };
            let structure = BufferStructure::new(groups.map(group)).unwrap();
            let mut now = vec![told_structure(profile, &structure)];
            // No Send is as long as the others, whatever the Receives are.
            if plain == 4096 {
                now.insert(0, Value { id: 1, data: Bytes::copy_from_slice(&4096_u32.to_be_bytes()) });
            }
            let update = Exchange::Update { now, clears: false };
            operate(&mut raw, profile, 0x8000_0002, Direction::Call, update);
            raw.received.clear();
            make(&mut raw, write(10, 1024));
            assert!(matches!(&bodies(&raw, profile)[..], [(10, Body::Message(_))]), "{plain}");
        }
    }
}

/// A Receive holds what its segments hold together, unless the peer announces its size. Then the size counts, in either order.
// requirement: rtrext-02-8.3-3
#[test]
fn rtrext_s8_3_a_structure_without_a_receive_size_tells_the_size() {
    let size = |size: u32| Value { id: 1, data: Bytes::copy_from_slice(&size.to_be_bytes()) };
    for profile in EXCHANGING {
        let group = |(count, length, flags)| BufferGroup { count, length, align: 1, flags };
        let structure = BufferStructure::new([(1, 1024, 0), (2, 4096, TARGETABLE)].map(group)).unwrap();
        let told = told_structure(profile, &structure);
        let odd = BufferStructure { total: 9217, groups: structure.groups.clone() };
        let small = told_structure(profile, &BufferStructure::new([group((2, 1024, 0))]).unwrap());
        for (start, receive_size) in [
            (vec![told.clone()], 9216),
            (vec![told.clone(), size(4096)], 4096),
            (vec![size(16_384), told.clone()], 16_384),
            (vec![small], 2048),
            (vec![told_structure(profile, &odd)], 4096),
        ] {
            let mut raw = client_with(profile, Config { send_size: 64 << 10, ..Config::default() });
            let initial = Exchange::Initial { start, constant: Subset::default() };
            operate(&mut raw, profile, 0x8000_0002, Direction::Call, initial);
            let told = raw.end.connection.peer_characteristics().unwrap();
            assert_eq!(told.receive_size, receive_size);
            // The size decides what leaves inline. The message has 44 bytes before its data, and a header of 40 at most.
            let len = usize::try_from(receive_size).unwrap();
            for (xid, data, is_inline) in [(10, len - 100, true), (11, len, false)] {
                let now = raw.fabric.instant();
                raw.end.connection.call(now, store(xid, data)).unwrap();
                let mut sent = vec![];
                while let Some(post) = raw.end.connection.poll_transmit(now, &mut raw.end.qp) {
                    if let Post::Work(_, WorkRequest::Send(send)) = post {
                        sent.push(send.gather.iter().map(Bytes::len).sum::<usize>());
                    }
                }
                assert_eq!(sent.len(), 1, "{receive_size}: {sent:?}");
                assert_eq!(sent[0] > data, is_inline, "{receive_size}: {sent:?}");
            }
        }
        // An update of the structure changes the size too, until the size itself is announced.
        let mut raw = client_with(profile, Config::default());
        for (value, receive_size) in [(told.clone(), 9216), (size(8192), 8192), (told.clone(), 8192)] {
            let update = Exchange::Update { now: vec![value], clears: false };
            operate(&mut raw, profile, 0x8000_0003, Direction::Call, update);
            assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, receive_size);
        }
        assert_eq!(faults(&raw, "unasked_reduction"), 1);
        // A structure that is not consistent tells no size, and the size of the one before it is over.
        let mut raw = client_with(profile, Config::default());
        for (value, receive_size) in [(told.clone(), 9216), (told_structure(profile, &odd), 4096)] {
            let update = Exchange::Update { now: vec![value], clears: false };
            operate(&mut raw, profile, 0x8000_0003, Direction::Call, update);
            assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, receive_size);
        }
    }
}

/// A value without data is the default (version-two-03 §5.1.1): here a structure of one segment, without placement. Its
/// size is the default too, unless the peer announces one.
// requirement: rtrext-02-8.3-3
#[test]
fn rtrext_s8_3_a_structure_without_data_is_the_default_and_so_is_its_size() {
    let size = Value { id: 1, data: Bytes::copy_from_slice(&8192_u32.to_be_bytes()) };
    let profile = Profile::P2;
    let group = |(count, length, flags)| BufferGroup { count, length, align: 1, flags };
    let structure = BufferStructure::new([(1, 1024, 0), (2, 4096, TARGETABLE)].map(group)).unwrap();
    let empty = Value { id: Property::BufferStructure.id(profile).unwrap(), data: Bytes::new() };
    for (start, receive_size) in [(vec![], 4096), (vec![size], 8192)] {
        let mut raw = client_with(profile, Config::default());
        let told = start.iter().cloned().chain([told_structure(profile, &structure)]).collect();
        for (now, targets) in [(told, 2), (vec![empty.clone()], 0)] {
            operate(&mut raw, profile, 0x8000_0003, Direction::Call, Exchange::Update { now, clears: false });
            let told = raw.end.connection.peer_characteristics().unwrap();
            assert_eq!(told.transmissions.structure.as_ref().map_or(0, BufferStructure::targets), targets);
        }
        assert_eq!(raw.end.connection.peer_characteristics().unwrap().receive_size, receive_size);
    }
}

/// An update counts as a whole: a size that a later value of it restores is not reduced.
#[test]
fn xcharext_s3_1_a_reduction_is_judged_at_the_end_of_an_update() {
    let size = |size: u32| Value { id: 1, data: Bytes::copy_from_slice(&size.to_be_bytes()) };
    let profile = Profile::P2;
    let group = BufferGroup { count: 2, length: 1024, align: 1, flags: 0 };
    let small = told_structure(profile, &BufferStructure::new([group]).unwrap());
    for (now, unasked) in
        [(vec![small.clone(), size(4096)], 0), (vec![small.clone()], 1), (vec![size(2048)], 1)]
    {
        let mut raw = client_with(profile, Config::default());
        operate(&mut raw, profile, 0x8000_0003, Direction::Call, Exchange::Update { now, clears: false });
        assert_eq!(faults(&raw, "unasked_reduction"), unasked);
    }
}

/// A Call has an item in a chunk and another in its Receive, in either order.
// requirement: rtrext-02-7.3-1
#[test]
fn rtrext_s7_3_items_of_one_message_travel_in_different_ways() {
    for profile in EXCHANGING {
        for (first, second) in [(512, 600), (600, 512)] {
            for explicit in [0, 1] {
                let mut raw = server(profile);
                let all = two_items(first, second);
                let (at_first, at_second) = (44, 44 + 4 + narrow(first));
                let items = [(at_first, first), (at_second, second)];
                let mut placed = vec![];
                let mut in_receive = vec![];
                for (number, (at, len)) in items.into_iter().enumerate() {
                    let begin = usize::try_from(at).unwrap();
                    let data = &all[begin..begin + len];
                    let location = if number == explicit {
                        Location::Explicit(vec![raw.readable(data)])
                    } else {
                        in_receive.extend_from_slice(data);
                        targets(0, vec![0])
                    };
                    placed.push(item(at, narrow(len), location));
                }
                let operation = request(placed, 1, 48);
                let mut behind = all[..44].to_vec();
                behind.extend_from_slice(&all[44 + first..44 + first + 4]);
                behind.resize(1024 - operation_len(&operation), 0);
                behind.extend_from_slice(&in_receive);
                raw.send(call(profile, 10, operation, behind));
                assert_eq!(answers(&raw, profile), (vec![], vec![10]), "{first}, {second}, {explicit}");
                assert_eq!(raw.end.connection.stats().errors.len(), 0);
                check_usable(raw, profile);
            }
        }
    }
}

/// The transmission between two others of a Call has no bytes of the Payload stream.
// requirement: rtrext-02-9.4-3
#[test]
fn rtrext_s9_4_a_continuation_may_have_nothing_of_the_payload() {
    for profile in EXCHANGING {
        let all = null(10).message.flatten().0;
        for cuts in [[0..20, 20..20, 20..40], [0..20, 20..40, 40..40], [0..0, 0..0, 0..40]] {
            let mut raw = server(profile);
            for (number, range) in cuts.into_iter().enumerate() {
                let part = &all[range];
                let operation = match number {
                    0 => request(vec![], 3, narrow(part.len())),
                    _ => continuation(narrow(number), XMTREQ, narrow(part.len())),
                };
                raw.send(call(profile, 10, operation, part));
            }
            assert_eq!(answers(&raw, profile), (vec![], vec![10]));
            assert!(raw.end.connection.stats().errors.is_empty());
            check_usable(raw, profile);
        }
    }
}

/// RFC 8166 §8.1.4: the bounds of chunks in lists.
#[test]
fn i5_explicit_segments_in_a_group_have_the_same_bounds() {
    for profile in EXCHANGING {
        let limits =
            Limits { read_segment_len: 5000, read_total: 8000, write_chunks: 1, ..Limits::default() };
        let segments = |lengths: &[u32]| {
            lengths.iter().map(|length| Segment { handle: 7, length: *length, offset: 0 }).collect::<Vec<_>>()
        };
        let explicit =
            |lengths: &[u32]| item(44, lengths.iter().sum(), Location::Explicit(segments(lengths)));
        let direct = |count: usize| {
            let location = ResponseLocation::Explicit(segments(&[8]));
            let directions = vec![ResponseDirection { least_len: 0, location }; count];
            vec![ResponseSet { begin: 0, end: 44, directions }]
        };
        for (placed, response) in
            [(vec![explicit(&[5001])], vec![]), (vec![explicit(&[4001, 4000])], vec![]), (vec![], direct(2))]
        {
            let mut raw = raw(profile, Config { limits: limits.clone(), ..structured() });
            let asked = TransmitRequest { placed, response, ..bare(1, 44) };
            raw.send(call(profile, 10, Operation::Request(asked), &write(10, 4).message.flatten().0[..44]));
            let (header, _) = last(&raw, profile);
            assert_eq!((header.xid, header.body), (10, Body::Error(ErrorBody::Chunk)));
            check_usable(raw, profile);
        }
    }
}

/// RFC 8166 §8.1.4: the number of Read segments in a group is bounded, over all its items; their bytes may fill the limit.
#[test]
fn i5_read_segments_of_a_group_are_counted_together() {
    for profile in EXCHANGING {
        let limits = Limits { read_chunks: 1, segments_per_chunk: 39, ..server_config().limits };
        let mut raw = raw(profile, Config { limits, ..structured() });
        let segments = || vec![Segment { handle: 7, length: 4, offset: 0 }; 20];
        let places = vec![
            item(44, 80, Location::Explicit(segments())),
            item(44 + 84, 80, Location::Explicit(segments())),
        ];
        raw.send(call(profile, 10, request(places, 1, 48), &two_items(80, 80)[..48]));
        assert_eq!(last(&raw, profile).0.body, Body::Error(ErrorBody::Chunk));
        assert_eq!(faults(&raw, "too_many_read_segments"), 1);

        let limits = Limits { read_total: 1000, ..server_config().limits };
        let mut raw = self::raw(profile, Config { limits, ..structured() });
        let all = write(10, 1000).message.flatten().0;
        let (first, second) = (raw.readable(&all[44..444]), raw.readable(&all[444..1044]));
        let places = vec![item(44, 1000, Location::Explicit(vec![first, second]))];
        raw.send(call(profile, 10, request(places, 1, 44), &all[..44]));
        assert_eq!(answers(&raw, profile), (vec![], vec![10]));
    }
}

/// Rule I6: if a group does not continue, a timer ends the connection.
#[test]
fn i6_a_group_that_does_not_go_on() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.send(call(profile, 10, request(vec![], 2, 20), &null(10).message.flatten().0[..20]));
        let due = raw.end.connection.poll_timeout().unwrap();
        assert!(due <= raw.fabric.instant() + crate::Timeouts::default().continuation);
        raw.end.connection.handle_timeout(due);
        raw.settle();
        let timeout = crate::CloseReason::Timeout("the rest of a transmission group");
        assert_eq!(raw.end.closed, Some(timeout));
    }
}

/// Sends a call in a group whose reply has this length, and allows this many Sends for it.
fn ask_in_group(raw: &mut Raw, profile: Profile, xid: u32, len: usize, response_buffers: u32) {
    let asked = list(xid, len).message.flatten().0;
    let lead = TransmitRequest { response_buffers, ..bare(1, narrow(asked.len())) };
    raw.received.clear();
    raw.send(call(profile, xid, Operation::Request(lead), asked));
}

/// Rtrext-02 §4.3, §5.2: a reply has no more Sends than the Call has Receives for it, than the settings allow, and than
/// both features say. No Receive counts as one.
#[test]
fn rtrext_s5_2_a_reply_has_the_sends_that_both_sides_allow() {
    for profile in EXCHANGING {
        let with = |continued_parts, continuation| {
            let mut config = Config { continued_parts, ..structured() };
            config.transmissions.replies.continuation = continuation;
            raw(profile, config)
        };
        for (buffers, len, parts, continuation, sends) in [
            (3, 9000, 8, true, Some(3)),
            (2, 9000, 8, true, None),
            (8, 9000, 2, true, None),
            (8, 4500, 2, true, Some(2)),
            (8, 4500, 8, false, None),
            (1, 4500, 8, true, None),
            (0, 4500, 8, true, None),
            (0, 100, 8, true, Some(1)),
        ] {
            let mut raw = with(parts, continuation);
            ask_in_group(&mut raw, profile, 11, len, buffers);
            let is_error = bodies(&raw, profile).iter().any(|(_, body)| matches!(body, Body::Error(_)));
            let seen = (!is_error).then_some(raw.received.len());
            assert_eq!(seen, sends, "{profile:?}: {len} bytes, {buffers} Receives, {parts} parts");
            assert!(raw.end.closed.is_none());
        }
    }
}

/// Rule I6: of replies in groups, the last 1024 can be reported.
#[test]
fn i6_replies_in_groups_are_remembered_up_to_a_limit() {
    let profile = EXCHANGING[0];
    let mut raw = server(profile);
    for xid in 100..1125 {
        raw.post_receives(2);
        ask_in_group(&mut raw, profile, xid, 4500, 8);
    }
    raw.received.clear();
    for (xid, answers) in [(100, 0), (101, 1)] {
        let bad = TransmissionId { xid, direction: Direction::Reply, number: 0 };
        let report = ErrorReport { bad, lead: None, error: ReportedError::Continuation };
        answer(&mut raw, profile, xid, Direction::Call, ErrorBody::Two(two::ErrorBody::Report(report)));
        assert_eq!(raw.received.len(), answers, "{xid}");
    }
}

/// A WRITE in one Send whose data lies `offset` bytes into these segments, in this order.
fn displaced(profile: Profile, places: Vec<PlacedItem>, segments: &[u8]) -> Raw {
    let mut raw = server(profile);
    raw.end.serving = false;
    let all = two_items(400, 500);
    let operation = request(places, 1, 48);
    let mut behind = [&all[..44], &all[444..448]].concat();
    behind.resize(1024 - operation_len(&operation), 0);
    behind.extend_from_slice(segments);
    raw.send(call(profile, 10, operation, behind));
    raw
}

/// rtrext-02 §7.3: items lie in a segment in any order. The offset is that of the first segment; in later ones an item
/// begins at their front.
#[test]
fn rtrext_s7_3_items_lie_in_any_order_and_go_on_at_the_front() {
    for profile in EXCHANGING {
        let all = two_items(400, 500);
        let (first, second) = (&all[44..444], &all[448..948]);
        let check = |mut raw: Raw| {
            assert_eq!(answers(&raw, profile), (vec![], vec![]));
            let (.., mut message) = raw.end.calls.pop().unwrap();
            (0..10).for_each(|_| assert!(message.u32().is_ok()));
            assert_eq!(
                (message.payload(MAX).unwrap(), message.payload(MAX).unwrap()),
                (pattern(400), pattern(500))
            );
        };
        let places = vec![item(44, 400, targets(500, vec![0])), item(448, 500, targets(0, vec![0]))];
        check(displaced(profile, places, &[second, first].concat()));
        let places = vec![item(44, 400, targets(0, vec![0])), item(448, 500, targets(800, vec![0, 1]))];
        let mut segments = first.to_vec();
        segments.resize(800, 0);
        segments.extend_from_slice(second);
        check(displaced(profile, places, &segments));
    }
}

/// rtrext-02 §7.3: the decoder gets the items in the order of their Positions, wherever they came from.
#[test]
fn rtrext_s7_3_an_item_in_a_receive_may_precede_one_in_a_chunk() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        raw.end.serving = false;
        let all = two_items(400, 500);
        let chunk = Location::Explicit(vec![raw.readable(&all[448..948])]);
        let operation = request(vec![item(44, 400, targets(0, vec![0])), item(448, 500, chunk)], 1, 48);
        let mut behind = [&all[..44], &all[444..448]].concat();
        behind.resize(1024 - operation_len(&operation), 0);
        behind.extend_from_slice(&all[44..444]);
        raw.send(call(profile, 10, operation, behind));
        let (.., mut message) = raw.end.calls.pop().unwrap();
        (0..10).for_each(|_| assert!(message.u32().is_ok()));
        assert_eq!(
            (message.payload(MAX).unwrap(), message.payload(MAX).unwrap()),
            (pattern(400), pattern(500))
        );
    }
}

/// rtrext-02 §9.5: reports and operations on characteristics come between, too.
#[test]
fn rtrext_s9_5_badomt_an_operation_without_transmissions_comes_between() {
    const REPORT: u32 = 8;
    for profile in EXCHANGING {
        for seen in [REPORT, 0] {
            let mut raw = server(profile);
            raw.send(call(profile, 10, request(vec![], 2, 20), &null(10).message.flatten().0[..20]));
            if seen == REPORT {
                let bad = TransmissionId { xid: 11, direction: Direction::Reply, number: 0 };
                let report = ErrorReport { bad, lead: None, error: ReportedError::Continuation };
                let report = ErrorBody::Two(two::ErrorBody::Report(report));
                answer(&mut raw, profile, 11, Direction::Call, report);
            } else {
                let initial = Exchange::Initial { start: vec![], constant: Subset::default() };
                operate(&mut raw, profile, 11, Direction::Call, initial);
            }
            // In P2 characteristics have message types of their own.
            let error = if seen == 0 && profile == Profile::P2 {
                ReportedError::HeaderType { expected: OPTIONAL, seen: 6 }
            } else {
                ReportedError::OperationType { expected: XMTCONT, seen }
            };
            let report = ErrorReport { bad: id(11, 0), lead: Some(id(10, 0)), error };
            assert_eq!(answers(&raw, profile).0, [(10, report)], "{seen}");
            check_usable(raw, profile);
        }
    }
}

/// A Call that begins anew before its end is answered once, as the new message. The first one is a fault.
#[test]
fn rtrext_s4_2_a_call_that_begins_anew_is_answered_once() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        let all = null(10).message.flatten().0;
        raw.send(call(profile, 10, request(vec![], 3, 20), &all[..20]));
        raw.send(call(profile, 10, request(vec![], 2, 20), &all[..20]));
        assert_eq!(raw.end.connection.stats().errors.values().sum::<u64>(), 1);
        raw.send(call(profile, 10, continuation(1, XMTREQ, 20), &all[20..]));
        assert_eq!(answers(&raw, profile), (vec![], vec![10]));
        // Nothing of it is left to be ignored.
        raw.received.clear();
        raw.send(call(profile, 10, continuation(2, XMTREQ, 0), []));
        let stray = ErrorReport { bad: id(10, 2), lead: None, error: ReportedError::Continuation };
        assert_eq!(answers(&raw, profile), (vec![(10, stray)], vec![]));
        check_usable(raw, profile);
    }
}

/// rtrext-02 §9.1: a report counts operations by the numbers in use.
#[test]
fn rtrext_s9_1_a_report_has_the_numbers_of_the_operations_in_use() {
    for (base, numbers) in [(OperationBase::Separate, [5, 6, 7]), (OperationBase::Tables, [1, 2, 3])] {
        let versions = Versions::both(Profile::P2).with_operations(base).unwrap();
        let mut raw = Raw::new(Side::Server, Config { versions, ..structured() });
        let codec = versions.codec(2).unwrap();
        let send = |raw: &mut Raw, xid, operation| {
            let header = header_of(xid, Direction::Call, Body::Two(two::Body::Transmission(operation)));
            raw.send(message_of(codec, &header, &null(xid).message));
        };
        send(&mut raw, 9, request(vec![], 1, 40));
        raw.received.clear();
        send(&mut raw, 10, request(vec![], 2, 40));
        send(&mut raw, 10, continuation(1, numbers[1], 40));
        let (header, _) = codec.decode(&raw.received[0], &Limits::default()).unwrap();
        let Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) = header.body else {
            panic!("{header:?}")
        };
        assert_eq!(report.error, ReportedError::OperationType { expected: numbers[0], seen: numbers[1] });
        send(&mut raw, 11, request(vec![], 2, 40));
        send(&mut raw, 12, request(vec![], 1, 40));
        let (header, _) = codec.decode(&raw.received[1], &Limits::default()).unwrap();
        let Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))) = header.body else {
            panic!("{header:?}")
        };
        assert_eq!(report.error, ReportedError::OperationType { expected: numbers[2], seen: numbers[0] });
    }
}

/// A report about our reply concerns no Call of ours with its XID, and is no fault.
#[test]
fn rtrext_s5_4_a_report_about_a_reply_is_no_answer_to_a_call() {
    for profile in EXCHANGING {
        let mut raw = server(profile);
        ask_in_group(&mut raw, profile, 11, 4500, 8);
        let before = raw.end.connection.stats().errors.clone();
        let bad = TransmissionId { xid: 11, direction: Direction::Reply, number: 0 };
        let report = ErrorReport { bad, lead: None, error: ReportedError::Continuation };
        answer(&mut raw, profile, 11, Direction::Call, ErrorBody::Two(two::ErrorBody::Report(report)));
        assert_eq!(raw.end.connection.stats().errors, before);
    }
}
