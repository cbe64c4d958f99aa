//! Calls in transmission groups: their replies, and the recovery when the peer refuses a group (rtrext-02 §5.4, §7.4).

use std::time::Instant;

use rpcrdma_xdr::{Payload, ReadChunk, Stream};

use crate::call::{Form, Travelled};
use crate::core::Core;
use crate::flow::{Lease, Settled};
use crate::planner::narrow;
use crate::reads::Pulled;
use crate::requester::{Answered, Requester, Stage, Transaction, Written};
use crate::two::arrange::Arrangement;
use crate::two::assembly::Lead;
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, WriteChunk, two};
use crate::wire::{
    ProtocolError,
    two::transmission::{
        ErrorReport, Location, Operation, Outcome, PlacedItem, ReportedError, ResponseDirection,
        ResponseLocation, TransmissionId, TransmitResponse,
    },
};

/// Consecutive reports after which Calls leave in groups only if nothing else carries them; otherwise each would leave
/// twice.
const REPORTS: u32 = 3;

/// The state of transmission groups for a sent call of ours.
#[derive(Debug, Default)]
pub(crate) struct SentGroup {
    /// The directions for the items of the reply, if the call left in a group.
    directions: Option<Vec<ResponseDirection>>,
    /// The peer has refused the group. The call then leaves again in plain messages.
    refused: bool,
    /// The reply was reported to the peer as wrong.
    reported: bool,
}

impl Transaction {
    /// Returns the directions for the items of the reply, if the call is in a group.
    fn directions(&self) -> Option<&[ResponseDirection]> {
        self.group.as_ref().and_then(|group| group.directions.as_deref())
    }

    /// Returns whether the reply was reported before, and records that it is.
    fn is_reported(&mut self) -> bool {
        std::mem::replace(&mut self.group.get_or_insert_default().reported, true)
    }
}

impl Core {
    /// Records a valid reply to a Call in a group: the peer accepts such Calls, unless this one left again without one.
    pub(crate) fn note_reply(&mut self, group: &SentGroup) {
        if let Some(sending) = &mut self.sending
            && group.directions.is_some()
        {
            sending.reported = 0;
        }
    }
}

impl Requester {
    /// Checks the first transmission of a reply in a group: its Call left in a group, and there are Receives for all
    /// Sends.
    pub(crate) fn expects(&self, xid: u32, response: &TransmitResponse) -> Result<(), ProtocolError> {
        let transaction = self.sent(xid)?;
        let most = transaction.lease().map_or(1, Lease::replies);
        let error = match transaction.directions() {
            None => Lead::unexpected(),
            Some(_) if response.count > most => {
                ReportedError::Sequence { expected: most, seen: response.count }
            }
            Some(_) => return Ok(()),
        };
        Err(ProtocolError::Two(two::Error::Group(report(xid, error))))
    }

    /// Handles a complete reply in a group.
    pub(crate) fn handle_group_reply(
        &mut self,
        core: &mut Core,
        now: Instant,
        (xid, credit): (u32, u32),
        (payload, items, placed): (Payload, Vec<ReadChunk>, Vec<PlacedItem>),
        (continued, len): (bool, usize),
    ) -> Result<(), ProtocolError> {
        let transaction = self.sent(xid)?;
        let directions = transaction.directions().unwrap_or_default();
        let results = results(directions, &placed, items)
            .map_err(|error| ProtocolError::Two(two::Error::Group(report(xid, error))))?;
        let in_chunks = |result: &Written| if let Written::Chunk(len) = result { *len } else { 0 };
        let total: usize = results.iter().map(in_chunks).sum();
        let placed = results.iter().any(|result| matches!(result, Written::Placed(_)));
        let form = match (placed, continued, total) {
            (true, ..) => Form::Placed,
            (false, true, _) => Form::Continued,
            (false, false, 0) => Form::Inline,
            (false, false, _) => Form::Reduced,
        };
        let travelled = Travelled { form, sent: len, written: total, ..Travelled::default() };
        if let Some(group) = &transaction.group {
            core.note_reply(group);
        }
        core.stats.replies_received.count(&travelled);
        let reply = Answered::Reply {
            inline: Some(payload),
            padding: None,
            written: results,
            reply_chunk: 0,
            pulled: Pulled::default(),
            travelled,
        };
        self.answer(core, now, xid, Settled::Answered { grant: credit }, reply);
        Ok(())
    }

    /// Queues a report that a reply violates the protocol; at most one, since the report leaves on the credit of its
    /// Call.
    pub(crate) fn report(&mut self, core: &mut Core, xid: u32, report: ErrorReport) {
        if let Some(transaction) = self.calls.get_mut(&xid)
            && transaction.lease().is_some()
            && let Some(sending) = &mut core.sending
            && !transaction.is_reported()
        {
            sending.reports.push_back((xid, report));
        }
    }

    /// Sends a report; `false` if there is none.
    pub(crate) fn transmit_report(&mut self, core: &mut Core) -> bool {
        // Without the Call the report has no credit.
        let Some(sending) = &mut core.sending else { return false };
        let reports = std::iter::from_fn(|| sending.reports.pop_front());
        let held = |(xid, report)| Some((xid, report, self.calls.get(&xid)?.lease()?));
        let Some((xid, report, lease)) = reports.into_iter().find_map(held) else { return false };
        let permit = core.ledger.report(lease);
        let body = Body::Error(ErrorBody::Two(two::ErrorBody::Report(report)));
        let header = core.header(Direction::Call, xid, &permit, body);
        core.send(permit, &header, &Stream::new(), None, false);
        core.stats.reports_sent += 1;
        true
    }

    /// Whether a Call of this XID leaves or left in a group.
    pub(crate) fn in_group(&self, xid: u32) -> bool {
        let group = self.calls.get(&xid).and_then(|call| call.group.as_ref());
        group.is_some_and(|group| group.refused || group.directions.is_some())
    }

    /// Handles an error that may be the refusal of a Call's group; returns whether the Call leaves again in plain messages,
    /// once its windows are closed (rule I2).
    ///
    /// # Errors
    /// [`ProtocolError::UnknownXid`]: no such message is in flight.
    pub(crate) fn handle_group_refusal(
        &mut self,
        core: &mut Core,
        now: Instant,
        (xid, credit): (u32, u32),
        error: &two::ErrorBody,
    ) -> Result<bool, ProtocolError> {
        if !error.may_be_of_group() {
            return Ok(false);
        }
        let unknown = ProtocolError::UnknownXid { xid };
        let sent = |call: &&mut Transaction| call.lease().is_some();
        let Some(transaction) = self.calls.get_mut(&xid).filter(sent) else { return Err(unknown) };
        let Some(group) = &mut transaction.group else { return Ok(false) };
        // A second error about the earlier group concerns no message in flight.
        if group.refused {
            return Err(unknown);
        }
        if group.directions.is_none() {
            return Ok(false);
        }
        group_refused(core, error);
        if transaction.abandoned {
            return Ok(false);
        }
        group.directions = None;
        group.refused = true;
        core.stats.replies_received.errors += 1;
        core.stats.sent_plainly += 1;
        self.answer(core, now, xid, Settled::Refused { grant: credit }, Answered::Again);
        Ok(true)
    }

    /// Queues a Call that shall leave again, once its windows are closed; `false` if it shall not.
    pub(crate) fn queue_again(&mut self, xid: u32) -> bool {
        let Some(transaction) =
            self.calls.get_mut(&xid).filter(|call| call.leaves_again() && !call.abandoned)
        else {
            return false;
        };
        transaction.restore_sinks();
        let bulk = transaction.flight().map_or(0, |flight| flight.bulk);
        self.bulk = self.bulk.saturating_sub(bulk);
        transaction.stage = Stage::Queued;
        let caller = transaction.caller.deadline;
        self.queue.push_front(xid);
        self.set_deadline(xid, caller);
        true
    }
}

/// Records the peer's refusal of a Call in a group. After a refusal of all operations, or [`REPORTS`] in a row, no more
/// groups leave.
fn group_refused(core: &mut Core, error: &two::ErrorBody) {
    let uses_chunks = core.uses_chunks();
    let Some(sending) = &mut core.sending else { return };
    let is_report = matches!(error, two::ErrorBody::Report(_));
    sending.reported = sending.reported.saturating_add(u32::from(is_report));
    let never_taken = sending.reported >= REPORTS && uses_chunks;
    sending.refuses_groups |= *error == two::ErrorBody::InvalidOption || never_taken;
}

impl Arrangement {
    /// Returns the body of the message: these chunk lists, or the operation of a group, which names their memory. For a
    /// Call in a group, returns that group too.
    pub(crate) fn body(&mut self, lists: ChunkLists) -> (Body, Option<Box<SentGroup>>) {
        let Some(mut lead) = self.lead.take() else { return (Body::Message(lists), None) };
        let group = name_memory(&mut lead, &lists)
            .map(|directions| Box::new(SentGroup { directions: Some(directions), ..SentGroup::default() }));
        (Body::Two(two::Body::Transmission(*lead)), group)
    }
}

/// Sets the memory of a Call in the operation of its first transmission; returns the directions for the reply.
fn name_memory(lead: &mut Operation, offered: &ChunkLists) -> Option<Vec<ResponseDirection>> {
    let Operation::Request(request) = lead else { return None };
    for item in &mut request.placed {
        if let Location::Explicit(segments) = &mut item.location {
            let chunk = offered.read.iter().filter(|entry| entry.position == item.displacement);
            *segments = chunk.map(|entry| entry.segment).collect();
        }
    }
    let mut chunks = offered.write.iter();
    let mut directions = Vec::new();
    for direction in request.response.iter_mut().flat_map(|set| &mut set.directions) {
        if let ResponseLocation::Explicit(segments)
        | ResponseLocation::Choice(segments)
        | ResponseLocation::BySize { segments, .. } = &mut direction.location
        {
            *segments = chunks.next().map(|chunk| chunk.segments.clone()).unwrap_or_default();
        }
        directions.push(direction.clone());
    }
    Some(directions)
}

fn report(xid: u32, error: ReportedError) -> ErrorReport {
    ErrorReport { bad: TransmissionId { xid, direction: Direction::Reply, number: 0 }, lead: None, error }
}

/// Returns the place of each result from the returned directions (rtrext-02 §7.4, table 2). No error code exists for a
/// result that does not fit its direction; the report names the offset.
fn results(
    directions: &[ResponseDirection],
    placed: &[PlacedItem],
    items: Vec<ReadChunk>,
) -> Result<Vec<Written>, ReportedError> {
    if placed.len() != directions.len() {
        let (value, due) = (narrow(placed.len()), narrow(directions.len()));
        return Err(ReportedError::Offset { value, least: due, most: due });
    }
    let mut items = items.into_iter();
    let mut results = Vec::with_capacity(placed.len());
    for (direction, PlacedItem { length, location, .. }) in directions.iter().zip(placed) {
        let (asked, got) = (direction.location.placement(), location.placement());
        if asked.outcome(got) == Outcome::Invalid {
            return Err(ReportedError::Offset { value: got.word(), least: asked.word(), most: asked.word() });
        }
        results.push(match location {
            Location::Explicit(segments) => {
                let offered = WriteChunk { segments: direction.location.segments().to_vec() };
                let filled = offered.filled(u64::from(*length));
                if *segments != filled.segments {
                    let most = u32::try_from(offered.total()).unwrap_or(u32::MAX);
                    return Err(ReportedError::Offset { value: *length, least: 0, most });
                }
                Written::Chunk(usize::try_from(*length).unwrap_or(usize::MAX))
            }
            Location::Targets { .. } => {
                Written::Placed(items.next().map(|item| item.data).unwrap_or_default())
            }
            Location::TooShort => Written::Inline,
            Location::NoItem => Written::Chunk(0),
        });
    }
    Ok(results)
}
