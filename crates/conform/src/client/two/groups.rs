//! Transmission groups (rtrext-02): replies in several transmissions, and items that a Send places in the client's
//! Receives.
//!
//! Rows about the reply to a call in a group announce groups on a new connection. A client then chooses groups for calls
//! whose replies may be long, or have an item. Without such calls the rows are not applicable. A faulty reply has a report
//! of its own (§5.4), and the client still waits: the good reply follows in plain messages.

use bytes::Bytes;
use rpcrdma_proto::wire::two::operation_len;
use rpcrdma_proto::wire::two::transmission::{
    ErrorReport, Location, Operation, PlacedItem, Property, ReportedError, ResponseLocation, TransmissionId,
    TransmitContinuation, TransmitResponse,
};
use rpcrdma_proto::wire::{Body, Direction, ErrorBody, Segment, two};

use super::{Answers, null_reply, one_error, refused, settled};
use crate::client::broken::still_waits;
use crate::client::serve::{NO_ITEM, accepted, read_apart, reply};
use crate::client::stage::{Call, ONE, Stage};
use crate::message::u32_of;
use crate::nfs;
use crate::placement::target_of;
use crate::report::{Outcome, Wrong, fail, not_applicable};

/// `rdma_opttype` of ROPT_XMTRESP and ROPT_XMTCONT (rtrext-02 §9.1, table 4).
const RESPONSE: u32 = 6;
const CONTINUATION: u32 = 7;

/// `rdma_proc` of replies outside of groups, and of those in groups.
const PLAIN: u32 = 0;
const OPTIONAL: u32 = 5;

/// Length of the first part of a reply, in bytes.
const CUT: usize = 12;
/// Number of a target buffer segment that no peer has.
const NO_SEGMENT: u32 = 4_000_000;
/// A handle that names no window.
const NOWHERE: u32 = 0x00ba_d000;

/// Returns the report about a transmission of a reply.
const fn report(xid: u32, number: u32, error: ReportedError) -> ErrorBody {
    let bad = TransmissionId { xid, direction: Direction::Reply, number };
    ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead: None, error }))
}

fn encoded(stage: &Stage, xid: u32, operation: Operation, behind: &[u8]) -> Bytes {
    stage.wire.encode(xid, ONE, Body::Two(two::Body::Transmission(operation)), behind)
}

/// Returns the first of `count` transmissions of a reply.
fn first(stage: &Stage, xid: u32, count: u32, payload: &[u8]) -> Bytes {
    let operation = TransmitResponse { placed: Vec::new(), count, payload_len: u32_of(payload.len()) };
    encoded(stage, xid, Operation::Response(operation), payload)
}

/// Returns a later transmission of a reply.
fn next(stage: &Stage, xid: u32, number: u32, payload: &[u8]) -> Bytes {
    let (initial_type, payload_len) = (RESPONSE, u32_of(payload.len()));
    let operation = TransmitContinuation { number, initial_type, payload_len };
    encoded(stage, xid, Operation::Continuation(operation), payload)
}

pub(super) async fn continuation_alone(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let bytes = next(stage, call.xid, 1, &accepted(call.xid, 0).finish());
    let errors =
        [report(call.xid, 1, ReportedError::Continuation), ErrorBody::Two(two::ErrorBody::InvalidOption)];
    refused(stage, &call, bytes, Answers { xid: call.xid, errors: &errors, silence: true }).await
}

pub(super) async fn response_unasked(stage: &mut Stage) -> Outcome {
    let call = settled(stage).await?;
    let bytes = first(stage, call.xid, 2, &accepted(call.xid, 0).finish());
    let due = ReportedError::HeaderType { expected: PLAIN, seen: OPTIONAL };
    let errors = [report(call.xid, 0, due), ErrorBody::Two(two::ErrorBody::InvalidOption)];
    refused(stage, &call, bytes, Answers { xid: call.xid, errors: &errors, silence: true }).await
}

/// The messages that answer a call, and the end that is due.
enum Sent {
    /// A good reply.
    Good(Vec<Bytes>),
    /// A faulty reply. The client reports one of these errors, or any if there is none.
    Faulty(Vec<Bytes>, Vec<ReportedError>),
}

/// Returns an answer to a call.
type Answer = fn(&Stage, &Call) -> Result<Sent, Wrong>;

/// A kind of call that a row needs.
struct Kind {
    is: fn(&Call) -> bool,
    name: &'static str,
}

/// Calls whose replies may have several transmissions, without directions.
const LONG: Kind = Kind {
    is: |call| call.buffers > 1 && call.directions.is_empty(),
    name: "call in a transmission group whose reply may have several transmissions",
};
/// Calls whose replies may have an item in the client's Receives.
const PLACING: Kind = Kind {
    is: |call| {
        let may_be = |location: &ResponseLocation| !matches!(location, ResponseLocation::Explicit(_));
        (call.program, call.procedure) == (nfs::PROGRAM, nfs::READ)
            && call.directions.first().is_some_and(|direction| may_be(&direction.location))
    },
    name: "NFSv3 READ in a transmission group that lets Sends place its data",
};

/// Announces groups on a new connection, and answers a call of this kind in each of these ways.
async fn in_groups(stage: &mut Stage, kind: &Kind, answers: &[Answer]) -> Outcome {
    if stage.absent.contains(&kind.name) {
        return Err(not_applicable(format!("the client makes no {}", kind.name)));
    }
    stage.clear().await;
    stage.wire.groups = true;
    let mut outcome = Err(fail("no answer"));
    for answer in answers {
        outcome = answered(stage, kind, *answer).await;
        if outcome.is_err() {
            break;
        }
    }
    stage.wire.groups = false;
    stage.clear().await;
    outcome
}

async fn answered(stage: &mut Stage, kind: &Kind, answer: Answer) -> Outcome {
    let limit = stage.limit;
    let mut any = false;
    let wanted = |call: &Call| {
        any = true;
        call.settled && (kind.is)(call)
    };
    let Some(call) = stage.call_where(wanted, limit).await? else {
        if !any {
            return Err(fail(format!("the client makes no call within {limit:?}")));
        }
        stage.absent.push(kind.name);
        return Err(not_applicable(format!("the client makes no {} within {limit:?}", kind.name)));
    };
    match answer(stage, &call)? {
        Sent::Good(mut messages) => {
            let last = messages.pop().unwrap_or_default();
            for message in messages {
                stage.send(&call, message).await?;
            }
            stage.end(&call, last).await?;
            stage.ended(&call).await
        }
        Sent::Faulty(messages, errors) => {
            for message in messages {
                stage.send(&call, message).await?;
            }
            let seen = reported(stage, &call, &errors).await?;
            let text = still_waits(stage, &call).await?;
            Ok(format!("{seen}; {text}"))
        }
    }
}

/// Waits for the report about the reply to a call.
async fn reported(stage: &mut Stage, call: &Call, errors: &[ReportedError]) -> Outcome {
    let is_due = |seen: &ReportedError| {
        errors.is_empty()
            || errors.iter().any(|due| match due {
                // The range of valid values depends on the structure of the client.
                ReportedError::Offset { .. }
                | ReportedError::Target { .. }
                | ReportedError::PayloadLength { .. } => {
                    std::mem::discriminant(due) == std::mem::discriminant(seen)
                }
                due => due == seen,
            })
    };
    // `optre_bad` is where the error was detected, which may be a transmission of another XID. `optre_lead` is optional.
    let is_of_reply = |id: &TransmissionId| {
        [call.xid, other(call.xid)].contains(&id.xid) && id.direction == Direction::Reply
    };
    let is_good = |error: &ErrorBody| match error {
        ErrorBody::Two(two::ErrorBody::Report(ErrorReport { bad, lead, error })) => {
            is_due(error) && (is_of_reply(bad) || lead.as_ref().is_some_and(is_of_reply))
        }
        _ => false,
    };
    one_error(stage, call, (call.xid, false), is_good).await
}

/// Returns the parts of a good reply to a call.
fn parts(call: &Call) -> (Bytes, Bytes) {
    let mut first = reply(call).payload;
    let rest = first.split_off(CUT.min(first.len()));
    (first, rest)
}

/// Returns an XID that no call has.
const fn other(xid: u32) -> u32 {
    xid.wrapping_add(0x4000_0000)
}

/// Returns the error about a transmission with the [`other`] XID. §9.5 orders no checks: where the type is wrong too,
/// either error is right.
const fn bad_xid(call: &Call) -> ReportedError {
    ReportedError::Xid { expected: call.xid, seen: other(call.xid) }
}

/// Returns the first of two transmissions, and the rest of the Payload stream.
fn begun(stage: &Stage, call: &Call) -> (Bytes, Bytes) {
    let (head, rest) = parts(call);
    (first(stage, call.xid, 2, &head), rest)
}

/// Answers in as many transmissions as the client allows, three at most; of three the second has no payload.
pub(super) async fn good(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let (head, rest) = parts(call);
        let count = call.buffers.min(3);
        let mut messages = vec![first(stage, call.xid, count, &head)];
        if count > 2 {
            messages.push(next(stage, call.xid, 1, &[]));
        }
        messages.push(next(stage, call.xid, count - 1, &rest));
        Ok(Sent::Good(messages))
    };
    in_groups(stage, &LONG, &[answer]).await
}

/// Sends the second transmission under the number of the third.
pub(super) async fn sequence(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let (lead, rest) = begun(stage, call);
        let error = ReportedError::Sequence { expected: 1, seen: 2 };
        Ok(Sent::Faulty(vec![lead, next(stage, call.xid, 2, &rest)], vec![error]))
    };
    in_groups(stage, &LONG, &[answer]).await
}

pub(super) async fn other_xid(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let (lead, rest) = begun(stage, call);
        Ok(Sent::Faulty(vec![lead, next(stage, other(call.xid), 1, &rest)], vec![bad_xid(call)]))
    };
    in_groups(stage, &LONG, &[answer]).await
}

/// Sends a plain reply to nothing between two transmissions.
pub(super) async fn interrupted(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let (lead, _) = begun(stage, call);
        let between = null_reply(other(call.xid));
        let bytes = stage.wire.encode(other(call.xid), ONE, between.body(), &between.payload);
        let errors = vec![ReportedError::HeaderType { expected: OPTIONAL, seen: PLAIN }, bad_xid(call)];
        Ok(Sent::Faulty(vec![lead, bytes], errors))
    };
    in_groups(stage, &LONG, &[answer]).await
}

/// Begins another group, which answers no call, before the end of the first.
pub(super) async fn another(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let (lead, _) = begun(stage, call);
        let bytes = first(stage, other(call.xid), 2, &accepted(other(call.xid), 0).finish());
        let errors =
            vec![ReportedError::OperationType { expected: CONTINUATION, seen: RESPONSE }, bad_xid(call)];
        Ok(Sent::Faulty(vec![lead, bytes], errors))
    };
    in_groups(stage, &LONG, &[answer]).await
}

/// Announces more transmissions than the client has Receives for, and none. The reservation may be of all transmissions
/// (§5.2), or of those behind the first (§4.3): two more are too many in any case.
pub(super) async fn count(stage: &mut Stage) -> Outcome {
    let more = |stage: &Stage, call: &Call| {
        let count = call.buffers.checked_add(2).ok_or_else(|| {
            not_applicable(format!("no number of transmissions exceeds a reservation of {}", call.buffers))
        })?;
        Ok(Sent::Faulty(vec![first(stage, call.xid, count, &parts(call).0)], Vec::new()))
    };
    let none = |stage: &Stage, call: &Call| {
        Ok(Sent::Faulty(vec![first(stage, call.xid, 0, &parts(call).0)], Vec::new()))
    };
    in_groups(stage, &LONG, &[more, none]).await
}

/// Announces a Payload stream that is longer than the Send.
pub(super) async fn payload_length(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let payload = reply(call).payload;
        let payload_len = u32_of(payload.len()).saturating_add(4);
        let operation = TransmitResponse { placed: Vec::new(), count: 1, payload_len };
        let message = encoded(stage, call.xid, Operation::Response(operation), &payload);
        let error = ReportedError::PayloadLength { value: payload_len, least: 0, most: 0 };
        Ok(Sent::Faulty(vec![message], vec![error]))
    };
    in_groups(stage, &LONG, &[answer]).await
}

const BAD_OFFSET: ReportedError = ReportedError::Offset { value: 0, least: 0, most: 0 };
const BAD_TARGET: ReportedError = ReportedError::Target { value: 0, least: 0, most: 0 };

/// Returns a location in memory that no call offers.
fn nowhere(length: u32) -> Location {
    Location::Explicit(vec![Segment { handle: NOWHERE, length, offset: 0 }])
}

/// Gives a result to a call without directions: in a target segment, and in memory.
pub(super) async fn item_unasked(stage: &mut Stage) -> Outcome {
    fn with(stage: &Stage, call: &Call, location: Location) -> Sent {
        let payload = reply(call).payload;
        let payload_len = u32_of(payload.len());
        let placed = vec![PlacedItem { displacement: payload_len, length: 8, location }];
        let operation = TransmitResponse { placed, count: 1, payload_len };
        let message = encoded(stage, call.xid, Operation::Response(operation), &payload);
        Sent::Faulty(vec![message], Vec::new())
    }
    let in_target = |stage: &Stage, call: &Call| {
        Ok(with(stage, call, Location::Targets { offset: 0, segments: vec![0] }))
    };
    let in_memory = |stage: &Stage, call: &Call| Ok(with(stage, call, nowhere(8)));
    in_groups(stage, &LONG, &[in_target, in_memory]).await
}

/// A reply with its data in the first target segment of the client.
struct Placed {
    /// The results without the data.
    payload: Bytes,
    data: Bytes,
    /// Begin of the segment, in bytes.
    begin: usize,
    item: PlacedItem,
}

impl Placed {
    fn new(stage: &Stage, call: &Call) -> Result<Self, Wrong> {
        let id = stage.wire.property(Property::BufferStructure).unwrap_or_default();
        let none = || not_applicable("the client announces no segments to place items in");
        let told = stage.told(call.connection, id).ok_or_else(none)?;
        let (begin, room) = target_of(&told)?.ok_or_else(none)?;
        let (results, data) =
            read_apart(call, room).map_err(|error| fail(format!("a READ that does not decode: {error}")))?;
        let least = call.directions.first().map_or(0, |direction| direction.least_len);
        let length = u32_of(data.len());
        if data.is_empty() || length < least {
            return Err(not_applicable(format!("no item of {least} bytes fits in a segment of {room}")));
        }
        let payload = results.finish();
        let location = Location::Targets { offset: 0, segments: vec![0] };
        let item = PlacedItem { displacement: u32_of(payload.len()), length, location };
        Ok(Self { payload, data, begin, item })
    }

    /// Returns the reply with this result of the first direction, if any, and no item for the others (§7.4). The data
    /// begins where the segment does.
    fn with(&self, stage: &Stage, call: &Call, item: Option<PlacedItem>) -> Result<Bytes, Wrong> {
        let placed = item.into_iter().chain(call.directions.iter().skip(1).map(|_| NO_ITEM)).collect();
        let payload_len = u32_of(self.payload.len());
        let operation = Operation::Response(TransmitResponse { placed, count: 1, payload_len });
        let mut behind = self.payload.to_vec();
        let room = self.begin.checked_sub(operation_len(&operation)).filter(|room| *room >= behind.len());
        let Some(room) = room else {
            let begin = self.begin;
            return Err(not_applicable(format!(
                "no space for results in the {begin} bytes before a segment"
            )));
        };
        behind.resize(room, 0);
        behind.extend_from_slice(&self.data);
        Ok(encoded(stage, call.xid, operation, &behind))
    }

    /// Returns a reply whose item is changed in this way.
    fn changed(
        stage: &Stage,
        call: &Call,
        change: impl FnOnce(&mut PlacedItem),
        errors: Vec<ReportedError>,
    ) -> Result<Sent, Wrong> {
        let placed = Self::new(stage, call)?;
        let mut item = placed.item.clone();
        change(&mut item);
        Ok(Sent::Faulty(vec![placed.with(stage, call, Some(item))?], errors))
    }
}

pub(super) async fn placed(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let placed = Placed::new(stage, call)?;
        Ok(Sent::Good(vec![placed.with(stage, call, Some(placed.item.clone()))?]))
    };
    in_groups(stage, &PLACING, &[answer]).await
}

/// Names a segment that the client does not have.
pub(super) async fn placed_segment(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let change = |item: &mut PlacedItem| {
            item.location = Location::Targets { offset: 0, segments: vec![NO_SEGMENT] };
        };
        Placed::changed(stage, call, change, vec![BAD_TARGET])
    };
    in_groups(stage, &PLACING, &[answer]).await
}

/// Names an offset beyond the segment.
pub(super) async fn placed_outside(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let change = |item: &mut PlacedItem| {
            item.location = Location::Targets { offset: u32::MAX - 3, segments: vec![0] };
        };
        Placed::changed(stage, call, change, vec![BAD_OFFSET])
    };
    in_groups(stage, &PLACING, &[answer]).await
}

/// Names a length beyond that of the Send. The draft names no error for it.
pub(super) async fn placed_too_long(stage: &mut Stage) -> Outcome {
    let answer =
        |stage: &Stage, call: &Call| Placed::changed(stage, call, |item| item.length += 4, Vec::new());
    in_groups(stage, &PLACING, &[answer]).await
}

/// Says that the data is in memory that the call does not offer.
pub(super) async fn placed_elsewhere(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        Placed::changed(stage, call, |item| item.location = nowhere(item.length), Vec::new())
    };
    in_groups(stage, &PLACING, &[answer]).await
}

/// Leaves a direction without a result.
pub(super) async fn direction_unanswered(stage: &mut Stage) -> Outcome {
    let answer = |stage: &Stage, call: &Call| {
        let placed = Placed::new(stage, call)?;
        Ok(Sent::Faulty(vec![placed.with(stage, call, None)?], Vec::new()))
    };
    in_groups(stage, &PLACING, &[answer]).await
}
