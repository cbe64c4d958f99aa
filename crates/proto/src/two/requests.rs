//! Calls in transmission groups: their replies, and the recovery when the peer refuses a group (rtrext-02 §5.4, §7.4).

use std::time::Instant;

use bytes::Bytes;
use rpcrdma_xdr::{ReadChunk, Stream};

use crate::call::{Form, Invalidations, Travelled};
use crate::core::Core;
use crate::error::ProtocolError;
use crate::flow::{Lease, Settled};
use crate::reads::Pulled;
use crate::requester::{Answered, Requester, Stage, Written};
use crate::two::arrange::Arrangement;
use crate::two::assembly::Lead;
use crate::wire::two::transmission::{
    ErrorReport, Location, Operation, Outcome, PlacedItem, ReportedError, ResponseDirection,
    ResponseLocation, TransmissionId, TransmitResponse,
};
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, WriteChunk, two};

/// Consecutive reports after which Calls leave in groups only if nothing else carries them; otherwise each would leave
/// twice.
const REPORTS: u32 = 3;

impl Requester {
    /// Checks the first transmission of a reply in a group: its Call left in a group, and there are Receives for all
    /// Sends.
    pub(crate) fn expects(&self, xid: u32, response: &TransmitResponse) -> Result<(), ProtocolError> {
        let transaction = self.sent(xid)?;
        let most = transaction.stage.lease().map_or(1, Lease::replies);
        let error = match &transaction.directions {
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
        (payload, items, placed): (Bytes, Vec<ReadChunk>, Vec<PlacedItem>),
        (continued, len): (bool, usize),
    ) -> Result<(), ProtocolError> {
        let transaction = self.sent(xid)?;
        let directions = transaction.directions.as_deref().unwrap_or_default();
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
        core.group_accepted();
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
            && matches!(transaction.stage, Stage::Sent(_))
            && !transaction.reported
            && let Some(sending) = &mut core.sending
        {
            transaction.reported = true;
            sending.reports.push_back((xid, report));
        }
    }

    /// Sends a report; `false` if there is none.
    pub(crate) fn transmit_report(&mut self, core: &mut Core) -> bool {
        // Without the Call the report has no credit.
        let Some(sending) = &mut core.sending else { return false };
        let reports = std::iter::from_fn(|| sending.reports.pop_front());
        let held = |(xid, report)| Some((xid, report, self.calls.get(&xid)?.stage.lease()?));
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
        self.calls.get(&xid).is_some_and(|call| call.plain || call.directions.is_some())
    }

    /// Records the peer's refusal of a Call in a group. After a refusal of all operations, or [`REPORTS`] in a row, no
    /// more groups leave.
    pub(crate) fn group_refused(core: &mut Core, error: &ErrorBody) {
        let uses_chunks = core.uses_chunks();
        let Some(sending) = &mut core.sending else { return };
        let is_report = matches!(error, ErrorBody::Two(two::ErrorBody::Report(_)));
        sending.reported = sending.reported.saturating_add(u32::from(is_report));
        let never_taken = sending.reported >= REPORTS && uses_chunks;
        sending.refuses_groups |= *error == ErrorBody::Two(two::ErrorBody::InvalidOption) || never_taken;
    }

    /// Sends a Call refused in a group again in plain messages, once its windows are closed (rule I2). `false`: the
    /// Call did not leave in a group, or was abandoned.
    pub(crate) fn send_plainly(&mut self, core: &mut Core, now: Instant, xid: u32, settled: Settled) -> bool {
        let Some(transaction) = self.calls.get_mut(&xid) else { return false };
        if transaction.directions.is_none() || transaction.abandoned {
            return false;
        }
        transaction.directions = None;
        transaction.plain = true;
        core.stats.sent_plainly += 1;
        self.answer(core, now, xid, settled, Answered::Again);
        true
    }

    /// Queues a Call that shall leave again, once its windows are closed; `false` if it shall not.
    pub(crate) fn queue_again(&mut self, xid: u32) -> bool {
        let Some(transaction) =
            self.calls.get_mut(&xid).filter(|call| call.leaves_again() && !call.abandoned)
        else {
            return false;
        };
        transaction.restore_sinks();
        transaction.windows.clear();
        transaction.offered = ChunkLists::default();
        transaction.invalidations = Invalidations::default();
        transaction.stage = Stage::Queued;
        let caller = transaction.caller.deadline;
        self.queue.push_front(xid);
        self.set_deadline(xid, caller);
        true
    }
}

impl Arrangement {
    /// Sets the memory of a Call in the operation of its group; returns the directions for the reply. `None` without a
    /// group.
    pub(crate) fn name_memory(&mut self, offered: &ChunkLists) -> Option<Vec<ResponseDirection>> {
        self.lead_mut().map(|lead| name_memory(lead, offered))
    }
}

/// Sets the memory of a Call in the operation of its first transmission; returns the directions for the reply.
fn name_memory(lead: &mut Operation, offered: &ChunkLists) -> Vec<ResponseDirection> {
    let Operation::Request(request) = lead else { return vec![] };
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
    directions
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
    let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
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
