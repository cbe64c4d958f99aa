//! Calls in transmission groups: their replies, and the recovery when the peer refuses a group (rtrext-02 §5.4, §7.4).

use std::time::Instant;

use rpcrdma_xdr::{Payload, ReadChunk, Stream};

use crate::core::Core;
use crate::flow::{Lease, Settled};
use crate::inbound::reads::Pulled;
use crate::inbound::received::{REPLY, check_prefix};
use crate::message::{Form, Travelled};
use crate::requester::{Answered, Requester, Stage, Written};
use crate::two::arrange::Arrangement;
use crate::two::assembly::Lead;
use crate::wire::{Body, ChunkLists, Direction, ErrorBody, WriteChunk, narrow, sized, two};
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

impl SentGroup {
    /// Returns the state of a call that leaves in a group with these directions.
    pub(crate) fn new(directions: Vec<ResponseDirection>) -> Self {
        Self { directions: Some(directions), ..Self::default() }
    }
}

impl Core {
    fn sent_group(&self, xid: u32) -> Option<&SentGroup> {
        self.sending.as_ref()?.groups.get(&xid)
    }

    /// Returns the directions for the items of the reply to a Call of ours, if the Call is in a group.
    fn directions(&self, xid: u32) -> Option<&[ResponseDirection]> {
        self.sent_group(xid)?.directions.as_deref()
    }

    /// Whether a Call of ours is in a group, with directions for its reply.
    pub(crate) fn is_directed(&self, xid: u32) -> bool {
        self.directions(xid).is_some()
    }

    /// Whether a Call of ours leaves or left in a group.
    pub(crate) fn in_group(&self, xid: u32) -> bool {
        self.sent_group(xid).is_some_and(|group| group.refused || group.directions.is_some())
    }

    /// Forgets the group of a Call that has ended.
    pub(crate) fn forget_group(&mut self, xid: u32) {
        if let Some(sending) = &mut self.sending {
            sending.groups.remove(&xid);
        }
    }

    /// Records a valid reply to a Call in a group: the peer accepts such Calls, unless this one left again without one.
    pub(crate) fn note_reply(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.reported = 0;
        }
    }
}

impl Requester {
    /// Checks the first transmission of a reply in a group: its Call left in a group, and there are Receives for all
    /// Sends.
    pub(crate) fn expects(
        &self,
        core: &Core,
        xid: u32,
        response: &TransmitResponse,
    ) -> Result<(), ProtocolError> {
        let transaction = self.sent(xid)?;
        let most = transaction.lease().map_or(1, Lease::replies);
        let error = match core.directions(xid) {
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
        self.sent(xid)?;
        check_prefix(xid, &payload, REPLY)?;
        let directions = core.directions(xid).unwrap_or_default();
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
        if core.is_directed(xid) {
            core.note_reply();
        }
        core.stats.replies_received.add(&travelled);
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
        if self.awaits(xid)
            && let Some(sending) = &mut core.sending
            && !std::mem::replace(&mut sending.groups.entry(xid).or_default().reported, true)
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

    /// Handles an error that may be the refusal of a Call's group. Returns whether the Call leaves again in plain messages,
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
        let abandoned = self.sent(xid)?.abandoned;
        let Some(group) = core.sent_group(xid) else { return Ok(false) };
        // A second error about the earlier group concerns no message in flight.
        if group.refused {
            return Err(unknown);
        }
        if group.directions.is_none() {
            return Ok(false);
        }
        group_refused(core, error);
        if abandoned {
            return Ok(false);
        }
        if let Some(group) = core.sending.as_mut().and_then(|sending| sending.groups.get_mut(&xid)) {
            group.directions = None;
            group.refused = true;
        }
        core.stats.replies_received.errors += 1;
        core.stats.sent_plainly += 1;
        self.answer(core, now, xid, Settled::Refused { grant: credit }, Answered::Again);
        Ok(true)
    }

    /// Queues a Call that shall leave again, once its windows are closed; otherwise forgets its group, and returns `false`.
    pub(crate) fn queue_again(&mut self, core: &mut Core, xid: u32) -> bool {
        let Some(transaction) =
            self.calls.get_mut(&xid).filter(|call| call.leaves_again() && !call.abandoned)
        else {
            core.forget_group(xid);
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
    /// Returns the body of the message: these chunk lists, or the operation of a group, which names their memory.
    pub(crate) fn body(&mut self, lists: ChunkLists) -> Body {
        let Some(mut lead) = self.lead.take() else { return Body::Message(lists) };
        self.directions = name_memory(&mut lead, &lists);
        Body::Two(two::Body::Transmission(*lead))
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
                    let most = narrow(offered.total());
                    return Err(ReportedError::Offset { value: *length, least: 0, most });
                }
                Written::Chunk(sized(*length))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::two::transmission::TransmitRequest;
    use crate::wire::{ReadSegment, Segment};

    const MEMORY: Segment = Segment { handle: 7, length: 100, offset: 64 };

    fn explicit(segment: Segment) -> Location {
        Location::Explicit(vec![segment])
    }

    /// Rtrext-02 §7.3, §7.4: a request names the memory of each item, and of each direction, in their order.
    #[test]
    fn rtrext_s7_3_a_request_names_the_memory_of_its_items() {
        let at = |handle| Segment { handle, ..MEMORY };
        let item = |displacement, location| PlacedItem { displacement, length: 100, location };
        let direction = |location| ResponseDirection { least_len: 0, location };
        let memory = || vec![at(0)];
        let directions = vec![
            direction(ResponseLocation::Explicit(memory())),
            direction(ResponseLocation::Targets),
            direction(ResponseLocation::Choice(memory())),
        ];
        let response = vec![crate::wire::two::transmission::ResponseSet { begin: 0, end: 400, directions }];
        let placed = vec![
            item(40, explicit(at(0))),
            item(200, Location::Targets { offset: 0, segments: vec![0] }),
            item(300, explicit(at(0))),
        ];
        let mut lead = Operation::Request(TransmitRequest {
            placed,
            response,
            count: 1,
            response_buffers: 1,
            payload_len: 0,
        });
        let offered = ChunkLists {
            read: vec![
                ReadSegment::new(40, at(1)),
                ReadSegment::new(300, at(2)),
                ReadSegment::new(300, at(3)),
            ],
            write: vec![WriteChunk { segments: vec![at(4)] }, WriteChunk { segments: vec![at(5)] }],
            reply: None,
        };
        let named = name_memory(&mut lead, &offered).unwrap();
        let Operation::Request(request) = lead else { panic!("a request") };
        assert_eq!(request.placed[0].location, explicit(at(1)));
        assert_eq!(request.placed[2].location, Location::Explicit(vec![at(2), at(3)]));
        assert_eq!(named[0].location, ResponseLocation::Explicit(vec![at(4)]));
        assert_eq!(named[1].location, ResponseLocation::Targets);
        assert_eq!(named[2].location, ResponseLocation::Choice(vec![at(5)]));
        assert_eq!(named, request.response[0].directions);
    }

    /// Rtrext-02 §7.4: there is one result for each direction, of a kind that it allows, in the memory that it names.
    #[test]
    fn rtrext_s7_4_results_are_those_that_the_directions_allow() {
        let direction = |location| ResponseDirection { least_len: 0, location };
        let directions = [direction(ResponseLocation::Explicit(vec![MEMORY]))];
        let of = |length, location| {
            results(&directions, &[PlacedItem { displacement: 0, length, location }], Vec::new())
        };
        let part = |length| explicit(Segment { length, ..MEMORY });
        assert!(matches!(of(60, part(60)).unwrap()[..], [Written::Chunk(60)]));
        assert!(matches!(of(0, Location::NoItem).unwrap()[..], [Written::Chunk(0)]));
        assert!(matches!(of(0, Location::TooShort).unwrap()[..], [Written::Inline]));
        let range = ReportedError::Offset { value: 60, least: 0, most: 100 };
        assert_eq!(of(60, part(64)).err(), Some(range), "another length");
        assert_eq!(of(60, explicit(Segment { handle: 8, length: 60, ..MEMORY })).err(), Some(range));
        assert!(of(60, Location::Targets { offset: 0, segments: vec![0] }).is_err(), "not as directed");
        let none = ReportedError::Offset { value: 0, least: 1, most: 1 };
        assert_eq!(results(&directions, &[], Vec::new()).err(), Some(none));
    }
}
