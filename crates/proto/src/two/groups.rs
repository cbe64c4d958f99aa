//! Messages in transmission groups (rtrext-02 §4, §5.4), between the assembly and the two halves.
//!
//! Every transmission of a Call counts against the grant, even an ignored one, as each has used a Receive. When the
//! Call is complete, or given up, one credit is left for its answer. A message between the transmissions of a group
//! ends that group, and is handled like any other; the draft does not define that case.
//!
//! *Errors*: a fault of a group is reported to its sender (§5.4), which treats the report on a Call as the answer. A
//! reply that the peer reports is answered by an RDMA_ERROR, so that its Call ends.

use std::time::Instant;

use bytes::Bytes;
use rpcrdma_xdr::{Payload, ReadChunk};

use super::Two;
use super::assembly::{Assembled, Broken, Fragment, Lead, MessageId, Place};
use super::receiving::complete;
use crate::connection::{Halves, Outcome};
use crate::core::Core;
use crate::message::Form;
use crate::wire::{
    Body, ChunkLists, Direction, ErrorBody, Fixed, Header, ProtocolError, ReadSegment, Taken, WriteChunk,
    narrow, two,
};
use crate::wire::{
    Limits,
    two::transmission::{
        ErrorReport, Location, Operation, OperationBase, OperationType, PlacedItem, ReportedError,
        ResponseDirection, TransmissionId, TransmitRequest,
    },
};

/// `rdma_proc` of an RDMA2_OPTIONAL.
const RDMA2_OPTIONAL: u32 = 5;
/// `rdma_proc` of an RDMA2_MSG.
const RDMA2_MSG: u32 = 0;

/// The parts of a received Call in a transmission group, beyond its content and chunk lists.
#[derive(Debug)]
pub(crate) struct CallGroup {
    /// Directions for the items of the reply (rtrext-02 §7.4, §9.2). This layer does not know the parts of the Call that
    /// they refer to, and uses them in order.
    pub(crate) directions: Vec<ResponseDirection>,
    /// Receives that the peer has for the reply.
    pub(crate) buffers: u32,
}

impl Two {
    /// Gives up the group that has begun, if this message is no part of it (rtrext-02 §4.2).
    pub(super) fn interrupt_group(&mut self, halves: &mut Halves<'_>, header: &Header, fixed: Fixed) {
        let Some((open, _)) = self.assembly.group() else { return };
        let base = operation_base(halves.core);
        let due = OperationType::Continuation.number(base);
        let by = (fixed.xid, header.direction.unwrap_or_default());
        let (number, error) = match &header.body {
            Body::Two(two::Body::Transmission(Operation::Continuation(_))) if by == open => return,
            Body::Two(two::Body::Transmission(Operation::Continuation(continuation))) => {
                (continuation.number, ReportedError::Xid { expected: open.0, seen: fixed.xid })
            }
            Body::Two(two::Body::Transmission(operation)) => {
                let seen = operation.kind().number(base);
                (0, ReportedError::OperationType { expected: due, seen })
            }
            Body::Error(ErrorBody::Two(two::ErrorBody::Report(_))) => {
                let seen = OperationType::Report.number(base);
                (0, ReportedError::OperationType { expected: due, seen })
            }
            _ if fixed.procedure == RDMA2_OPTIONAL => {
                (0, ReportedError::OperationType { expected: due, seen: 0 })
            }
            _ => (0, other_type(fixed)),
        };
        let bad = TransmissionId { xid: by.0, direction: by.1, number };
        // A Call that begins anew is answered as the new message.
        self.end_group(halves, bad, error, by == open);
    }

    /// Gives up the group in progress when a message does not decode; returns whether they share an XID.
    pub(super) fn break_group(&mut self, halves: &mut Halves<'_>, fixed: Fixed) -> bool {
        let Some(((xid, direction), sends)) = self.assembly.group() else { return false };
        let bad = TransmissionId { xid: fixed.xid, direction, number: narrow(sends) };
        self.end_group(halves, bad, other_type(fixed), false);
        xid == fixed.xid
    }

    /// Gives up the group in progress, and reports it; `anew`: its message begins anew.
    fn end_group(&mut self, halves: &mut Halves<'_>, bad: TransmissionId, error: ReportedError, anew: bool) {
        let Some(((xid, direction), sends)) = self.assembly.give_up_group() else { return };
        let report = ErrorReport { bad, lead: Some(TransmissionId { xid, direction, number: 0 }), error };
        halves.core.stats.fault(&two::Error::Group(report).into());
        tracing::debug!(side = %halves.core.side(), error = %two::Error::Group(report), "group given up");
        if direction == Direction::Reply {
            return halves.requester.report(halves.core, xid, report);
        }
        halves.core.ledger.give_back(sends);
        if !anew {
            answer(halves, xid, ErrorBody::Two(two::ErrorBody::Report(report)));
        }
    }

    /// Whether a transmission is ignored. It has used a Receive all the same, so the peer uses a credit for it, which
    /// is free at once.
    fn passes_over(&mut self, halves: &mut Halves<'_>, id: MessageId, place: &Place) -> bool {
        let passes = self.assembly.group().is_none() && self.assembly.passes_over(id, place);
        if passes && id.1 == Direction::Call && halves.admit_part(None) {
            halves.core.ledger.give_back(1);
        }
        passes
    }

    /// Handles a transmission whose header has `header` bytes.
    pub(super) fn take_transmission(
        &mut self,
        halves: &mut Halves<'_>,
        now: Instant,
        (fixed, id): (Fixed, MessageId),
        operation: Operation,
        (message, header): (Bytes, usize),
    ) -> Outcome {
        let taken = Taken::from(id.1);
        let number = operation.kind().number(operation_base(halves.core));
        let place = match operation {
            Operation::Request(request) => Place::Lead(Lead::Request(request)),
            Operation::Response(response) => Place::Lead(Lead::Response(response)),
            Operation::Continuation(later) => Place::Later(later),
            // Decoded as an error.
            Operation::Report(_) => return Outcome::Done,
        };
        if self.passes_over(halves, id, &place) {
            return Outcome::Done;
        }
        let checked = match &place {
            Place::Lead(lead) => self.may_begin(halves, id, lead, number),
            _ if takes_groups(halves.core) => Ok(()),
            _ => Err(two::Error::UnknownOperation { operation: number }.into()),
        };
        let fragment = Fragment { id, message, header, place };
        let assembled = match checked {
            Ok(()) => self.assembly.take(now, fragment),
            Err(error) => Err(Broken { error, sends: 0 }),
        };
        match assembled {
            // Each transmission of a Call has a credit (§4.3), also the last; a complete Call keeps one.
            Ok(_) if taken == Taken::AsCall && !halves.admit_part(Some(fixed.credit)) => Outcome::Done,
            Ok(None) => Outcome::Done,
            Ok(Some(assembled)) => self.take_group(halves, now, fixed, header, assembled),
            Err(Broken { error, sends }) => {
                if taken == Taken::AsCall {
                    halves.core.ledger.give_back(sends);
                } else {
                    report(halves, fixed.xid, &error);
                }
                halves.fault(error, taken, Some(fixed));
                Outcome::Done
            }
        }
    }

    /// Checks whether a group may begin with the operation of this number; an earlier group with its id is forgotten.
    fn may_begin(
        &mut self,
        halves: &Halves<'_>,
        id: MessageId,
        lead: &Lead,
        operation: u32,
    ) -> Result<(), ProtocolError> {
        let refuses_calls = !halves.core.config.transmissions.takes_calls;
        match lead {
            Lead::Request(request) if refuses_calls || !takes_groups(halves.core) => {
                self.assembly.refuse_group(id, request.count);
                return Err(two::Error::UnknownOperation { operation }.into());
            }
            Lead::Response(_) if !takes_groups(halves.core) => {
                return Err(two::Error::UnknownOperation { operation }.into());
            }
            // version-two-01 §4.2.2
            _ if lead.direction() != id.1 => {
                return Err(two::Error::DirectionMismatch { header: id.1 }.into());
            }
            Lead::Response(response) => halves.requester.expects(halves.core, id.0, response)?,
            Lead::Request(_) => {}
        }
        self.assembly.begins_anew(id);
        Ok(())
    }

    /// Handles a complete group. A Call continues as a message with chunk lists.
    fn take_group(
        &mut self,
        halves: &mut Halves<'_>,
        now: Instant,
        fixed: Fixed,
        header_len: usize,
        assembled: Assembled,
    ) -> Outcome {
        let Assembled { lead, payload, items, sends, len, copied } = assembled;
        let continued = sends > 1;
        match lead {
            Some(Lead::Request(request)) => {
                halves.core.ledger.give_back(sends);
                halves.core.stats.copied(copied);
                let (lists, group) = match chunk_lists(request, &halves.core.config.limits) {
                    Ok(lists) => lists,
                    Err(error) => {
                        halves.fault(error, Taken::AsCall, Some(fixed));
                        return Outcome::Done;
                    }
                };
                let Fixed { xid, version, credit, .. } = fixed;
                let (direction, body) = (Some(Direction::Call), Body::Message(lists));
                let header = Header { xid, version, credit, direction, invalidate: 0, body };
                let form = match (items.is_empty(), continued) {
                    (false, _) => Form::Placed,
                    (true, true) => Form::Continued,
                    (true, false) => Form::Inline,
                };
                let form = (form, items, Some(Box::new(group)));
                complete(halves, fixed, (header, header_len), (payload, len), form)
            }
            Some(Lead::Response(response)) => {
                halves.core.stats.copied(copied);
                let content = (payload, items, response.placed);
                self.take_reply(halves, now, fixed, content, (continued, len));
                Outcome::Done
            }
            None => Outcome::Done,
        }
    }

    fn take_reply(
        &mut self,
        halves: &mut Halves<'_>,
        now: Instant,
        fixed: Fixed,
        content: (Payload, Vec<ReadChunk>, Vec<PlacedItem>),
        length: (bool, usize),
    ) {
        let id = (fixed.xid, fixed.credit);
        match halves.requester.handle_group_reply(halves.core, now, id, content, length) {
            Ok(()) => self.rpc_taken(),
            Err(error) => {
                report(halves, fixed.xid, &error);
                halves.fault(error, Taken::AsReply, None);
            }
        }
    }

    /// Answers the Call of a reported reply with an error; the reply itself is gone. The report has arrived on the
    /// Call's credit.
    pub(super) fn reply_reported(&self, halves: &mut Halves<'_>, report: &ErrorReport) {
        tracing::debug!(side = %halves.core.side(), error = %two::Error::Group(*report), "reply reported");
        let xid = report.group().xid;
        // An error is never answered with an error, except for the reply that a report names (rtrext-02 §5.4).
        if !takes_groups(halves.core) || !halves.core.may_be_reported(xid) {
            return halves.fault(two::Error::Group(*report).into(), Taken::AsReply, None);
        }
        halves.core.stats.replies_reported += 1;
        answer(halves, xid, ErrorBody::Chunk);
    }
}

/// Whether this side accepts operations on transmissions.
pub(super) fn takes_groups(core: &Core) -> bool {
    core.codec.rules().two.is_some_and(|two| two.operations.is_some()) && core.config.transmissions.enabled
}

/// Returns the numbering of the operations.
fn operation_base(core: &Core) -> OperationBase {
    core.codec.rules().two.and_then(|two| two.operations).unwrap_or_default()
}

/// Answers a Call that was not admitted with this error, if there is a credit for it.
pub(super) fn answer(halves: &mut Halves<'_>, xid: u32, body: ErrorBody) {
    if let Some(charge) = halves.admit(None) {
        let version = halves.core.codec.rules().version;
        halves.responder.answer_error(xid, version, body, charge);
    }
}

/// Reports a reply to its sender, if the fault is one of its group.
fn report(halves: &mut Halves<'_>, xid: u32, error: &ProtocolError) {
    if let ProtocolError::Two(error) = error
        && let Some(report) = error.report()
    {
        halves.requester.report(halves.core, xid, report);
    }
}

/// Returns the report for a message of another type than RDMA2_OPTIONAL.
const fn other_type(fixed: Fixed) -> ReportedError {
    ReportedError::HeaderType { expected: RDMA2_OPTIONAL, seen: fixed.procedure }
}

/// Returns the chunks of a Call from the locations in its group, and the rest of its group. A place in the Requester's
/// Receives is no chunk (RFC 8167 §5.3).
///
/// # Errors
/// Those of the bounds on chunks, which hold for explicit RDMA in a group too (RFC 8166 §8.1.4).
fn chunk_lists(request: TransmitRequest, limits: &Limits) -> Result<(ChunkLists, CallGroup), ProtocolError> {
    let TransmitRequest { placed, response, response_buffers, .. } = request;
    let (mut lists, mut total) = (ChunkLists::default(), 0);
    for PlacedItem { displacement: position, location, .. } in placed {
        let Location::Explicit(segments) = location else { continue };
        for segment in segments {
            limits.check_read_segments(lists.read.len())?;
            limits.add_read(&mut lists.read, &mut total, ReadSegment::new(position, segment))?;
        }
    }
    let directions: Vec<_> = response.into_iter().flat_map(|set| set.directions).collect();
    for segments in directions.iter().map(|direction| direction.location.segments()) {
        if !segments.is_empty() {
            limits.check_write_chunks(lists.write.len())?;
            lists.write.push(WriteChunk { segments: segments.to_vec() });
        }
    }
    Ok((lists, CallGroup { directions, buffers: response_buffers }))
}

impl Lead {
    /// Returns the report for a reply in a group whose Call left in plain messages: it has none (rtrext-02 §5.2).
    pub(crate) fn unexpected() -> ReportedError {
        ReportedError::HeaderType { expected: RDMA2_MSG, seen: RDMA2_OPTIONAL }
    }
}
