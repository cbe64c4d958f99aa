//! Transmission groups of rtrext-02: messages in several Sends, and items that a Send brings to their place.
//!
//! The operations are optional. If the server refuses them, their rows are not applicable. A wrong operation that decodes
//! has a report of its own (§5.4, §9.5), and its call must not be executed.

use bytes::Bytes;
use rpcrdma_proto::Profile;
use rpcrdma_proto::wire::two::transmission::{
    Location, Operation, PlacedItem, Property, ResponseDirection, ResponseLocation, ResponseSet,
    TransmitContinuation, TransmitRequest,
};
use rpcrdma_proto::wire::two::{self, Exchange, Value, operation_len};
use rpcrdma_proto::wire::{Body, ChunkLists};

use super::headers::scratch;
use super::properties::announce;
use super::talk::{Case, Code, Heard, SUCCESS, Talk, alive, each, encode, raw};
use crate::message::{Words, u32_of};
use crate::nfs;
use crate::placement::target_of;
use crate::report::{Outcome, Wrong, fail, not_applicable};
use crate::server::bench::{Bench, differing, pattern};

/// `rdma_opttype` of the operations (rtrext-02 §9.1, table 4).
const XMTREQ: u32 = 5;
/// Length of the first part of a NULL call, in bytes.
const CUT: usize = 20;
/// Number of connections that a row opens at once.
const MANY: usize = 8;
/// Number of a target buffer segment that no peer has.
const NO_SEGMENT: u32 = 4_000_000;

pub(super) fn encoded(profile: Profile, xid: u32, operation: Operation, payload: &[u8]) -> Bytes {
    encode(profile, xid, 0, Body::Two(two::Body::Transmission(operation)), payload)
}

/// Returns a request in `count` transmissions, of which this one has `payload_len` bytes of the Payload stream.
pub(super) const fn request(count: u32, payload_len: u32) -> TransmitRequest {
    TransmitRequest { placed: vec![], response: vec![], count, response_buffers: 1, payload_len }
}

fn first(profile: Profile, xid: u32, count: u32, payload: &[u8]) -> Bytes {
    encoded(profile, xid, Operation::Request(request(count, u32_of(payload.len()))), payload)
}

fn next(profile: Profile, xid: u32, number: u32, payload: &[u8]) -> Bytes {
    let payload_len = u32_of(payload.len());
    let operation = TransmitContinuation { number, initial_type: XMTREQ, payload_len };
    encoded(profile, xid, Operation::Continuation(operation), payload)
}

/// Returns a NULL call in two parts.
fn parts(bench: &mut Bench<'_>) -> (u32, Bytes, Bytes) {
    let xid = bench.xid();
    let mut call = bench.null_rpc().call(xid, 0).finish();
    let first = call.split_to(CUT);
    (xid, first, call)
}

/// Opens a connection to a server that takes groups.
pub(super) async fn ready(bench: &mut Bench<'_>, profile: Profile) -> Result<Talk, Wrong> {
    let mut talk = Talk::ready(bench, profile).await?;
    let xid = bench.xid();
    let call = bench.null_rpc().call(xid, 0).finish();
    talk.send(first(profile, xid, 1, &call));
    match talk.observe(xid, bench.limit()).await.heard {
        heard if heard == SUCCESS => Ok(talk),
        heard @ Heard::Error(Code::Option | Code::Type) => {
            Err(not_applicable(format!("the server takes no transmission groups: {heard}")))
        }
        heard => Err(fail(format!("a call in one transmission: {heard}"))),
    }
}

/// Sends a message on a connection with groups, with the usual checks.
async fn one(
    bench: &mut Bench<'_>,
    profile: Profile,
    message: impl FnOnce(u32, Bytes) -> Bytes,
    code: &[Code],
) -> Outcome {
    let mut talk = ready(bench, profile).await?;
    let xid = bench.xid();
    let bytes = message(xid, bench.null_rpc().call(xid, 0).finish());
    let allowed: Vec<Heard> = code.iter().map(|code| Heard::Error(*code)).collect();
    let answer = talk.provoke(bench, Case { label: String::new(), xid, bytes }, &allowed).await?;
    talk.finish(bench).await?;
    Ok(answer.heard.to_string())
}

/// Makes calls in three transmissions, of which the second has nothing of the Payload stream.
pub(super) async fn several(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = ready(bench, profile).await?;
    for _ in 0..3 {
        let (xid, head, rest) = parts(bench);
        talk.send(first(profile, xid, 3, &head));
        talk.send(next(profile, xid, 1, &[]));
        let case = Case { label: String::new(), xid, bytes: next(profile, xid, 2, &rest) };
        talk.provoke(bench, case, &[SUCCESS]).await?;
    }
    talk.finish(bench).await?;
    Ok("three calls in three transmissions each".into())
}

/// Begins a group, sends another message, and returns the report about the group. Rtrext-02 §9.5 orders no checks. Where type
/// and XID are wrong, either error is right.
async fn interrupt(
    bench: &mut Bench<'_>,
    profile: Profile,
    message: impl FnOnce(u32, u32, &Bytes) -> Bytes,
    codes: &[Code],
) -> Result<(Talk, u32, Code), Wrong> {
    let mut talk = ready(bench, profile).await?;
    let (xid, head, rest) = parts(bench);
    talk.send(first(profile, xid, 2, &head));
    let other = bench.xid();
    talk.send(message(xid, other, &rest));
    match talk.observe(xid, bench.limit()).await.heard {
        Heard::Error(code) if codes.contains(&code) => Ok((talk, other, code)),
        heard => Err(fail(heard.to_string())),
    }
}

/// Waits for the answer to the message between, and checks that the connection goes on.
async fn after(
    bench: &mut Bench<'_>,
    mut talk: Talk,
    report: Code,
    between: Option<(u32, &[Heard])>,
) -> Outcome {
    let mut seen = report.to_string();
    if let Some((xid, allowed)) = between {
        let silent = allowed.contains(&Heard::Nothing);
        let limit = if silent { bench.target.silence } else { bench.limit() };
        let heard = talk.observe(xid, limit).await.heard;
        if !allowed.contains(&heard) {
            return Err(fail(format!("the message between: {heard}")));
        }
        seen += &format!(", the message between: {heard}");
    }
    talk.null(bench).await?;
    talk.finish(bench).await?;
    Ok(seen)
}

pub(super) async fn interrupted(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let rpc = bench.null_rpc().call(0, 0).finish().slice(4..);
    let message = |_, other: u32, _: &Bytes| {
        let payload = Words::new().words(&[other]).bytes(&rpc).finish();
        encode(profile, other, 0, Body::Message(ChunkLists::default()), &payload)
    };
    let (talk, other, code) = interrupt(bench, profile, message, &[Code::HeaderType, Code::Xid]).await?;
    after(bench, talk, code, Some((other, &[SUCCESS]))).await
}

/// Begins another group before the end of the first.
pub(super) async fn another_group(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let rpc = bench.null_rpc().call(0, 0).finish().slice(4..);
    let message = |_, other: u32, _: &Bytes| {
        let payload = Words::new().words(&[other]).bytes(&rpc).finish();
        first(profile, other, 1, &payload)
    };
    let (talk, other, code) = interrupt(bench, profile, message, &[Code::OperationType, Code::Xid]).await?;
    after(bench, talk, code, Some((other, &[SUCCESS]))).await
}

/// Sends the second transmission under the number of the third.
pub(super) async fn sequence(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let message = |xid, _, rest: &Bytes| next(profile, xid, 2, rest);
    let (talk, _, code) = interrupt(bench, profile, message, &[Code::Sequence]).await?;
    after(bench, talk, code, None).await
}

/// Sends the second transmission under another XID.
pub(super) async fn other_xid(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let message = |_, other, rest: &Bytes| next(profile, other, 1, rest);
    let (talk, other, code) = interrupt(bench, profile, message, &[Code::Xid]).await?;
    let allowed = [Heard::Nothing, Heard::Error(Code::StrayContinuation)];
    after(bench, talk, code, Some((other, &allowed))).await
}

pub(super) async fn stray(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    one(bench, profile, |xid, call| next(profile, xid, 1, &call), &[Code::StrayContinuation]).await
}

/// Says that the Payload stream is longer than the Send.
pub(super) async fn payload_length(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let message = |xid, call: Bytes| {
        let operation = Operation::Request(request(1, u32_of(call.len()) + 4));
        encoded(profile, xid, operation, &call)
    };
    one(bench, profile, message, &[Code::PayloadLength]).await
}

/// Announces groups of no transmission, and of more than any credits.
pub(super) async fn count(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let none = one(bench, profile, |xid, call| first(profile, xid, 0, &call), &[Code::Sequence]).await?;
    let many =
        one(bench, profile, |xid, call| first(profile, xid, u32::MAX, &call), &[Code::Sequence]).await?;
    Ok(format!("none: {none}, 2^32-1: {many}"))
}

/// Sends an operation that is cut off: it does not decode, so there is no report (§9.5).
pub(super) async fn cut(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    ready(bench, profile).await?.endpoint.close().await;
    let xid = bench.xid();
    // Four of the five words of ROPT_XMTREQ.
    let bytes = raw(profile, xid, &[5, 0, XMTREQ, 16, 0, 0, 1, 1], &[]);
    each(bench, profile, vec![Case { label: String::new(), xid, bytes }], &[Heard::Error(Code::BadXdr)]).await
}

/// Begins groups that are never finished; others are served meanwhile and afterwards.
pub(super) async fn never(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut open = Vec::new();
    for _ in 0..MANY {
        let mut talk = ready(bench, profile).await?;
        let (xid, head, _) = parts(bench);
        talk.send(first(profile, xid, 2, &head));
        talk.endpoint.push().await;
        open.push(talk);
    }
    alive(bench, profile).await?;
    for talk in open {
        talk.endpoint.abort().await;
    }
    alive(bench, profile).await?;
    Ok(format!("a new connection is served beside {MANY} unfinished groups, and after them"))
}

/// Returns a call with one item of 8 bytes at this location, behind its Payload stream.
fn with_item(profile: Profile, xid: u32, call: &Bytes, location: Location) -> Bytes {
    let displacement = u32_of(call.len());
    let placed = vec![PlacedItem { displacement, length: 8, location }];
    let operation = Operation::Request(TransmitRequest { placed, ..request(1, displacement) });
    encoded(profile, xid, operation, &[&call[..], &[0; 8]].concat())
}

pub(super) async fn no_segment(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let location = Location::Targets { offset: 0, segments: vec![NO_SEGMENT] };
    one(bench, profile, |xid, call| with_item(profile, xid, &call, location), &[Code::Target]).await
}

/// Names types of locations that only a response can have.
pub(super) async fn only_in_responses(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut seen = String::new();
    for location in [Location::TooShort, Location::NoItem] {
        let message = |xid, call: Bytes| with_item(profile, xid, &call, location);
        seen = one(bench, profile, message, &[Code::Offset]).await?;
    }
    Ok(format!("{seen} (2 messages)"))
}

/// Names types of locations that do not exist in a request.
pub(super) async fn no_type(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    ready(bench, profile).await?.endpoint.close().await;
    let mut cases = Vec::new();
    for kind in [0, 3, 4, 7] {
        let xid = bench.xid();
        let call = bench.null_rpc().call(xid, 0).finish();
        // An item without a location behind its type, no directions, and the three counts.
        let operation = [1, 40, 8, kind, 0, 1, 1, 40];
        let words = [&[5, 0, XMTREQ, u32_of(4 * operation.len())][..], &operation].concat();
        cases.push(Case { label: format!("xmdp_type {kind}"), xid, bytes: raw(profile, xid, &words, &call) });
    }
    each(bench, profile, cases, &[Heard::Error(Code::BadXdr)]).await
}

/// Gives directions for the response whose ranges go down.
pub(super) async fn response_order(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let set = |begin, end| ResponseSet {
        begin,
        end,
        directions: vec![ResponseDirection { least_len: 4, location: ResponseLocation::Targets }],
    };
    let message = |xid, call: Bytes| {
        let response = vec![set(20, 40), set(0, 20)];
        let operation = Operation::Request(TransmitRequest { response, ..request(1, u32_of(call.len())) });
        encoded(profile, xid, operation, &call)
    };
    one(bench, profile, message, &[Code::Offset]).await
}

/// Tells a structure whose segments are not the buffer.
pub(super) async fn structure(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    let mut talk = ready(bench, profile).await?;
    let id = Property::BufferStructure.id(profile).unwrap_or_default();
    // The group runs past the end of its data.
    let data = Words::new().words(&[8192, 1, 1, 8192]).finish();
    let xid = bench.xid();
    let exchange = Exchange::Initial { start: vec![Value { id, data }], constant: two::Subset::default() };
    let bytes = super::talk::operation(profile, xid, exchange);
    let case = Case { label: String::new(), xid, bytes };
    let answer = talk.provoke(bench, case, &[Heard::Error(Code::BadXdr)]).await?;
    talk.finish(bench).await?;
    Ok(answer.heard.to_string())
}

/// The targetable segments of the Receives of a server: the begin of the first, and its length, in bytes.
async fn targets(bench: &mut Bench<'_>, talk: &mut Talk) -> Result<(usize, usize), Wrong> {
    announce(bench, talk, vec![]).await?;
    let id = Property::BufferStructure.id(talk.profile);
    let values = talk.told.iter().flat_map(|told| match &told.exchange {
        Exchange::Initial { start, .. } => &start[..],
        _ => &[],
    });
    let told = values.filter(|value| Some(value.id) == id).last();
    let none = || {
        not_applicable("the server tells no segments to place items in; rpcrdma serve --placement has some")
    };
    target_of(&told.ok_or_else(none)?.data)?.ok_or_else(none)
}

/// A WRITE whose data is in the first targetable segment, as far as the location says.
async fn write(
    bench: &mut Bench<'_>,
    profile: Profile,
    offset: u32,
    surplus: u32,
    allowed: &[Heard],
) -> Outcome {
    const LEN: usize = 1000;
    let scratch = scratch(bench).await?;
    let mut talk = ready(bench, profile).await?;
    let (begin, _) = targets(bench, &mut talk).await?;
    let xid = bench.xid();
    let data = pattern(xid, LEN);
    let call = nfs::write(bench.nfs_rpc().call(xid, nfs::WRITE), &scratch.sink, 0, LEN).finish();
    let displacement = u32_of(call.len());
    let location = Location::Targets { offset, segments: vec![0] };
    let placed = vec![PlacedItem { displacement, length: u32_of(LEN) + surplus, location }];
    let operation = Operation::Request(TransmitRequest { placed, ..request(1, displacement) });
    let mut behind = call.to_vec();
    let Some(room) = begin.checked_sub(operation_len(&operation)).filter(|room| *room >= behind.len()) else {
        return Err(not_applicable(format!(
            "no space for a WRITE in the {begin} bytes before the first segment"
        )));
    };
    behind.resize(room, 0);
    behind.extend_from_slice(&data);
    let bytes = encoded(profile, xid, operation, &behind);
    let answer = talk.provoke(bench, Case { label: String::new(), xid, bytes }, allowed).await?;
    talk.finish(bench).await?;
    if answer.heard == SUCCESS
        && let Some(difference) = differing(&bench.content(&scratch.sink, LEN).await?, &data)
    {
        return Err(fail(format!("the file does not hold the data of the item: {difference}")));
    }
    Ok(answer.heard.to_string())
}

pub(super) async fn placed(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    write(bench, profile, 0, 0, &[SUCCESS]).await
}

/// Places an item beyond its segment.
pub(super) async fn placed_outside(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    write(bench, profile, u32::MAX - 3, 0, &[Heard::Error(Code::Offset)]).await
}

/// Places an item that is longer than what the Send brought.
pub(super) async fn placed_too_long(bench: &mut Bench<'_>, profile: Profile) -> Outcome {
    // No section names the error of a length.
    let codes = [Code::Offset, Code::Target, Code::PayloadLength];
    write(bench, profile, 0, 4, &codes.map(Heard::Error)).await
}
