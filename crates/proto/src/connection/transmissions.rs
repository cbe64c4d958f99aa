//! Messages in transmission groups (rtrext-02 §4, §5.4), from their operations to the message that all of a group is.
//!
//! Every transmission of a Call is counted against the grant, as each has used a Receive, also one that is passed over; when the Call is
//! whole, or given up, one credit is left for its answer. *On error*: what is wrong with a group is reported to its sender (§5.4). To who made a Call that is the
//! answer; a reply that is reported is answered by an RDMA_ERROR, so that its Call ends. A message that comes between the
//! transmissions of a group ends that, and is taken as if it had come alone: the draft does not say what becomes of it.

use std::time::Instant;

use bytes::Bytes;

use super::Connection;
use super::receiving::Arrived;
use crate::error::{ProtocolError, Taken};
use crate::limits::Limits;
use crate::responder::AskedReply;
use crate::two::assembly::{Assembled, Broken, Fragment, Lead, MessageId, Place};
use crate::wire::two::transmission::{
    ErrorReport, Location, Operation, OperationBase, OperationType, PlacedItem, ReportedError, ResponseSet,
    TransmissionId, TransmitRequest, TransmitResponse,
};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, Fixed, Header, ReadSegment, WriteChunk, two};

/// `rdma_proc` of an RDMA2_OPTIONAL.
const RDMA2_OPTIONAL: u32 = 5;
/// That of an RDMA2_MSG.
const RDMA2_MSG: u32 = 0;

impl Connection {
    /// Whether operations on transmissions are taken.
    pub(super) fn takes_groups(&self) -> bool {
        self.core.codec.rules().two.is_some_and(|two| two.operations.is_some())
            && self.core.config.transmissions.enabled
    }

    /// Which numbers the operations have.
    fn operation_base(&self) -> OperationBase {
        self.core.codec.rules().two.and_then(|two| two.operations).unwrap_or_default()
    }

    /// If a group has begun that this message is no part of, that is the end of it (rtrext-02 §4.2).
    pub(super) fn interrupt_group(&mut self, now: Instant, header: &Header, fixed: Fixed) {
        let Some(((xid, direction), _)) = self.assembly.group() else { return };
        let base = self.operation_base();
        let due = OperationType::Continuation.number(base);
        let said = header.direction.unwrap_or_default();
        let (number, error) = match &header.body {
            Body::Two(two::Body::Transmission(Operation::Continuation(_)))
                if (fixed.xid, said) == (xid, direction) =>
            {
                return;
            }
            Body::Two(two::Body::Transmission(Operation::Continuation(continuation))) => {
                (continuation.number, ReportedError::Xid { expected: xid, seen: fixed.xid })
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
            _ => (0, ReportedError::HeaderType { expected: RDMA2_OPTIONAL, seen: fixed.procedure }),
        };
        let by = TransmissionId { xid: fixed.xid, direction: said, number };
        let Some((id, transmissions)) = self.assembly.give_up_group() else { return };
        let lead = TransmissionId { xid, direction, number: 0 };
        let report = ErrorReport { bad: by, lead: Some(lead), error };
        self.core.stats.fault(&ProtocolError::Two(two::Error::Group(report)));
        tracing::debug!(side = %self.core.side, error = %ProtocolError::Two(two::Error::Group(report)), "group interrupted");
        match id {
            // It begins anew, and is answered as that.
            (xid, Direction::Call) if (xid, Direction::Call) == (fixed.xid, said) => {
                self.give_back(transmissions);
            }
            (xid, Direction::Call) => self.report_call(now, xid, transmissions, report),
            (xid, Direction::Reply) => self.requester.report(xid, report),
        }
    }

    /// Reports a Call of which so many transmissions had come; on one of their credits.
    fn report_call(&mut self, now: Instant, xid: u32, transmissions: usize, report: ErrorReport) {
        self.give_back(transmissions);
        if let Some(charge) = self.admit(now, None) {
            let version = self.core.codec.rules().version;
            self.responder.answer_error(xid, version, ErrorBody::Two(two::ErrorBody::Report(report)), charge);
        }
    }

    /// Counts a transmission of a Call that is not whole against the grant.
    fn admit_part(&mut self, now: Instant, requested: Option<u32>) -> bool {
        let admitted = self.core.ledger.admit_part(requested);
        if let Err(granted) = admitted {
            self.fault(now, ProtocolError::CreditsExceeded { granted }, Taken::AsCall, None);
        }
        admitted.is_ok()
    }

    /// Whether a transmission is of what was given up. It has used a Receive all the same: the peer needs a credit for it, which is
    /// free at once.
    fn passes_over(&mut self, now: Instant, id: MessageId, place: &Place) -> bool {
        let passes = self.assembly.passes_over(id, place);
        if passes && id.1 == Direction::Call && self.admit_part(now, None) {
            self.give_back(1);
        }
        passes
    }

    /// If a group has begun, a message that does not decode is the end of it; whether it has its XID.
    pub(super) fn break_group(&mut self, now: Instant, fixed: Fixed) -> bool {
        let Some(((xid, direction), transmissions)) = self.assembly.give_up_group() else { return false };
        let number = u32::try_from(transmissions).unwrap_or(u32::MAX);
        let report = ErrorReport {
            bad: TransmissionId { xid: fixed.xid, direction, number },
            lead: Some(TransmissionId { xid, direction, number: 0 }),
            error: ReportedError::HeaderType { expected: RDMA2_OPTIONAL, seen: fixed.procedure },
        };
        self.core.stats.fault(&ProtocolError::Two(two::Error::Group(report)));
        match direction {
            Direction::Call => self.report_call(now, xid, transmissions, report),
            Direction::Reply => self.requester.report(xid, report),
        }
        xid == fixed.xid
    }

    /// Takes a transmission.
    pub(super) fn handle_transmission(
        &mut self,
        now: Instant,
        fixed: Fixed,
        (said, operation): (Direction, Operation),
        (message, header): (Bytes, usize),
    ) {
        let taken = Taken::from(said);
        let operation_number = operation.kind().number(self.operation_base());
        let id = (fixed.xid, said);
        let place = match operation {
            Operation::Request(request) => Place::Lead(Lead::Request(request)),
            Operation::Response(response) => Place::Lead(Lead::Response(response)),
            Operation::Continuation(later) => Place::Later(later),
            // Decoded as an error.
            Operation::Report(_) => return,
        };
        if self.assembly.group().is_none() && self.passes_over(now, id, &place) {
            return;
        }
        let settings = &self.core.config.transmissions;
        let refused = matches!(place, Place::Lead(Lead::Request(_))) && !settings.takes_calls;
        if !self.takes_groups() || refused {
            if let Place::Lead(Lead::Request(TransmitRequest { count, .. })) = &place {
                self.assembly.refuse_group(id, *count);
            }
            let error = ProtocolError::Two(two::Error::UnknownOperation { operation: operation_number });
            return self.fault(now, error, taken, Some(fixed));
        }
        let checked = match &place {
            Place::Lead(lead) => self.may_begin(id, lead),
            _ => Ok(()),
        };
        let fragment = Fragment { id, message, header, place };
        let assembled = match checked {
            Ok(()) => self.assembly.take(now, fragment),
            Err(error) => Err(Broken { error, sends: 0 }),
        };
        match assembled {
            Ok(None) => {
                if taken == Taken::AsCall {
                    self.admit_part(now, Some(fixed.credit));
                }
            }
            Ok(Some(assembled)) => {
                if taken == Taken::AsCall {
                    self.give_back(assembled.sends.saturating_sub(1));
                }
                self.take_assembled(now, fixed, header, assembled);
            }
            Err(Broken { error, sends }) => {
                if taken == Taken::AsCall {
                    self.give_back(sends);
                } else if let ProtocolError::Two(error) = &error
                    && let Some(report) = error.report()
                {
                    self.requester.report(fixed.xid, report);
                }
                self.fault(now, error, taken, Some(fixed));
            }
        }
    }

    /// Checks whether a group may begin so; another one with this id is forgotten.
    fn may_begin(&mut self, id: MessageId, lead: &Lead) -> Result<(), ProtocolError> {
        // version-two-01 §4.2.2
        if lead.direction() != id.1 {
            return Err(ProtocolError::Two(two::Error::DirectionMismatch { header: id.1 }));
        }
        if let Lead::Response(response) = lead {
            self.requester.expects(id.0, response)?;
        }
        self.assembly.begins_anew(id);
        Ok(())
    }

    /// Credits of transmissions whose message has one still.
    fn give_back(&mut self, transmissions: usize) {
        self.core.ledger.give_back(transmissions);
    }

    fn take_assembled(&mut self, now: Instant, fixed: Fixed, header_len: usize, assembled: Assembled) {
        let Assembled { lead, payload, items, sends, len, copied } = assembled;
        self.core.stats.copied(copied);
        let continued = sends > 1;
        let Some(lead) = lead else { return };
        match lead {
            Lead::Request(TransmitRequest { placed, response, response_buffers, .. }) => {
                if let Err(error) = within_limits(&placed, &response, &self.core.config.limits) {
                    return self.fault(now, error, Taken::AsCall, Some(fixed));
                }
                let read = placed.into_iter().flat_map(|item| match item.location {
                    Location::Explicit(segments) => segments
                        .into_iter()
                        .map(|segment| ReadSegment { position: item.displacement, segment, padding: false })
                        .collect(),
                    _ => vec![],
                });
                let directions: Vec<_> = response.into_iter().flat_map(|set| set.directions).collect();
                // A place in the Requester's Receives is no chunk (RFC 8167 §5.3).
                let write = directions
                    .iter()
                    .map(|direction| direction.location.segments())
                    .filter(|segments| !segments.is_empty())
                    .map(|segments| WriteChunk { segments: segments.to_vec() })
                    .collect();
                let lists = ChunkLists { read: read.collect(), write, reply: None };
                let group = Some(AskedReply { directions, buffers: response_buffers });
                let payload = Some(payload);
                let arrived = Arrived {
                    lists,
                    payload,
                    header_len,
                    continued,
                    len,
                    items,
                    group,
                    ..Arrived::default()
                };
                self.take(now, fixed, (Some(Direction::Call), 0), arrived);
            }
            Lead::Response(TransmitResponse { placed, .. }) => {
                let taken = self.requester.handle_group_reply(
                    &mut self.core,
                    now,
                    (fixed.xid, fixed.credit),
                    (payload, items, placed),
                    (continued, len),
                );
                match taken {
                    Ok(()) => self.rpc_taken(),
                    Err(error) => {
                        if let ProtocolError::Two(error) = &error
                            && let Some(report) = error.report()
                        {
                            self.requester.report(fixed.xid, report);
                        }
                        self.fault(now, error, Taken::AsReply, None);
                    }
                }
            }
        }
    }

    /// The peer reports a reply of ours. It is gone, so its Call is answered by an error; the report has come on the Call's credit.
    pub(super) fn reply_reported(&mut self, now: Instant, report: &ErrorReport) {
        tracing::debug!(side = %self.core.side, error = %ProtocolError::Two(two::Error::Group(*report)), "reply reported");
        let xid = report.group().xid;
        // An error is never answered with an error, but for what a report is about (rtrext-02 §5.4).
        if !self.takes_groups() || !self.responder.may_be_reported(xid) {
            return self.fault(now, ProtocolError::Two(two::Error::Group(*report)), Taken::AsReply, None);
        }
        self.core.stats.replies_reported += 1;
        if let Some(charge) = self.admit(now, None) {
            let version = self.core.codec.rules().version;
            self.responder.answer_error(xid, version, ErrorBody::Chunk, charge);
        }
    }
}

/// The bounds on chunks hold for explicit RDMA in a group too (RFC 8166 §8.1.4).
fn within_limits(
    placed: &[PlacedItem],
    response: &[ResponseSet],
    limits: &Limits,
) -> Result<(), ProtocolError> {
    let mut total = 0_u64;
    for item in placed {
        let Location::Explicit(segments) = &item.location else { continue };
        for segment in segments {
            let (length, allowed) = (segment.length, limits.read_segment_len);
            if u64::from(length) > allowed {
                return Err(ProtocolError::ReadSegmentTooLong { length, allowed });
            }
            total = total.saturating_add(u64::from(length));
        }
    }
    if total > limits.read_total {
        return Err(ProtocolError::ReadListTooLong { total, allowed: limits.read_total });
    }
    let offers = response.iter().flat_map(|set| &set.directions);
    let chunks = offers.filter(|direction| !direction.location.segments().is_empty()).count();
    if chunks > limits.write_chunks {
        return Err(ProtocolError::TooManyWriteChunks { allowed: limits.write_chunks });
    }
    Ok(())
}

impl Lead {
    /// What a reply has to be an answer to: a Call that came in plain messages has no reply in a group (rtrext-02 §5.2).
    pub(crate) fn unexpected() -> ReportedError {
        ReportedError::HeaderType { expected: RDMA2_MSG, seen: RDMA2_OPTIONAL }
    }
}
