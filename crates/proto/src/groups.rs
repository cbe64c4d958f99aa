//! Transmission groups: RPC messages in several Sends, and items that lie in a Receive where they are wanted (rtrext-02 §4, §6, §7).
//!
//! The first transmission of a group says all there is to say about the message: how many transmissions there are, and where items are
//! that were taken out of its Payload stream. *Sending*: `geometry` says what goes into which Send; the planner asks, and all Sends of
//! a group are posted at once, so that nothing comes between them. *Receiving*: `Groups` holds the group that has begun, one at
//! a time, in the Receives that it came in, until the last of them is there. Then an item is handed out as the part of the Receive that
//! it lies in; one that lies in several is joined, and so is the Payload stream of several, in memory of the domain.
//!
//! *On error*: what breaks the rules of the extension is a [`ProtocolError::Group`], whose report goes to the sender (§5.4); the group
//! is given up, and what else comes of it is passed over without another word. A group that does not go on has a timer (rule I6).

pub(crate) mod geometry;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, ProtectionDomain};
use rpcrdma_xdr::ReadChunk;

use self::geometry::Targets;
use crate::characteristics::Transmissions;
use crate::config::Config;
use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::wire::Direction;
use crate::wire::round_trips::{
    BufferStructure, ErrorReport, Location, OperationBase, OperationType, PlacedItem, ReportedError,
    SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE, TransmissionId, TransmitContinuation,
    TransmitRequest, TransmitResponse,
};

/// What a side does with transmission groups, in the profiles of Version Two that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmissionSettings {
    /// Take part: say what is supported, and use it. Without it the operations are refused as not supported (version-two-01 §3.1).
    pub enabled: bool,
    /// How our Receives are structured, so that peers can place items in them. It has to be as long as they are
    /// ([`Config::receive_size`]), and to be consistent ([`BufferStructure::check`]), else it is as if there was none. `None`: nothing is
    /// placed.
    pub structure: Option<BufferStructure>,
    /// DDP-eligible items of at least this many bytes are placed in the peer's Receives, if these have room for them.
    pub place_from: usize,
}

impl Default for TransmissionSettings {
    fn default() -> Self {
        Self { enabled: true, structure: None, place_from: 1024 }
    }
}

impl TransmissionSettings {
    /// What the peer is told of them.
    pub(crate) fn told(&self, config: &Config) -> Transmissions {
        if !self.enabled {
            return Transmissions::default();
        }
        let narrow = |sends: usize| u32::try_from(sends.max(1)).unwrap_or(u32::MAX);
        Transmissions {
            support: SUPPORT_REQUEST | SUPPORT_RESPONSE | SUPPORT_CONTINUATION,
            structure: config.structure().cloned(),
            request_limit: narrow(config.limits.continued_parts),
            response_limit: narrow(config.continued_parts),
        }
    }
}

/// Which message: XID, and which way it goes.
pub(crate) type MessageId = (u32, Direction);

/// Groups that were given up and whose end has not come; older ones are forgotten.
const GIVEN_UP: usize = 16;

/// The first transmission of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    Request(TransmitRequest),
    Response(TransmitResponse),
}

impl Lead {
    fn placed(&self) -> &[PlacedItem] {
        match self {
            Self::Request(request) => &request.placed,
            Self::Response(response) => &response.placed,
        }
    }

    const fn count(&self) -> u32 {
        match self {
            Self::Request(request) => request.count,
            Self::Response(response) => response.count,
        }
    }

    const fn payload_len(&self) -> u32 {
        match self {
            Self::Request(request) => request.payload_len,
            Self::Response(response) => response.payload_len,
        }
    }

    /// What `optxc_itype` of the others has to be.
    const fn initial_type(&self) -> u32 {
        match self {
            Self::Request(_) => OperationType::Request,
            Self::Response(_) => OperationType::Response,
        }
        .number(OperationBase::Separate)
    }

    pub(crate) const fn direction(&self) -> Direction {
        match self {
            Self::Request(_) => Direction::Call,
            Self::Response(_) => Direction::Reply,
        }
    }
}

/// A message of which all transmissions have come.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) lead: Lead,
    /// The Payload stream.
    pub(crate) payload: Bytes,
    /// What was placed in our Receives, each with its displacement in the virtual stream.
    pub(crate) items: Vec<ReadChunk>,
    /// How many transmissions it came in.
    pub(crate) transmissions: usize,
    /// Bytes of all of them.
    pub(crate) len: usize,
    /// Bytes that were joined: of the Payload stream, and of items.
    pub(crate) joined: (usize, usize),
}

#[derive(Debug)]
struct Group {
    xid: u32,
    lead: Lead,
    parts: Vec<Part>,
    deadline: Instant,
}

/// A transmission that has come.
#[derive(Debug)]
struct Part {
    message: Bytes,
    /// Where its part of the Payload stream is.
    payload: Range<usize>,
}

/// The group of the peer that has begun, if one has.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Where items can be in our Receives.
    targets: Targets,
    open: Option<Group>,
    /// With how many transmissions they have.
    given_up: VecDeque<(MessageId, u32)>,
    domain: Option<ProtectionDomain>,
}

impl Groups {
    pub(crate) fn new(structure: Option<&BufferStructure>) -> Self {
        Self { targets: structure.map(Targets::of).unwrap_or_default(), ..Self::default() }
    }

    /// The connection's memory, as soon as it is known.
    pub(crate) fn use_domain(&mut self, domain: &ProtectionDomain) {
        self.domain.get_or_insert_with(|| domain.clone());
    }

    /// Takes the first transmission of a group, `header` bytes of it being its header; the rest has to come until `deadline`. Says the
    /// whole message if that is all of it.
    ///
    /// # Errors
    /// [`ProtocolError::Group`]; the group is given up.
    pub(crate) fn begin(
        &mut self,
        xid: u32,
        lead: Lead,
        (message, header): (Bytes, usize),
        limits: &Limits,
        deadline: Instant,
    ) -> Result<Option<Whole>, ProtocolError> {
        let id = (xid, lead.direction());
        let checked = check_lead(&lead, limits)
            .and_then(|()| payload(&message, header, lead.payload_len()))
            .map_err(|error| report(TransmissionId { xid, direction: id.1, number: 0 }, None, error));
        match checked {
            Ok(payload) => {
                self.open = Some(Group { xid, lead, parts: vec![Part { message, payload }], deadline });
                self.finish()
            }
            Err(error) => {
                if lead.count() > 1 {
                    self.give_up(id, lead.count());
                }
                Err(error)
            }
        }
    }

    /// Takes a later transmission, which is of the group that has begun.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn go_on(
        &mut self,
        continuation: TransmitContinuation,
        (message, header): (Bytes, usize),
    ) -> Result<Option<Whole>, ProtocolError> {
        let Some(group) = &mut self.open else { return Ok(None) };
        let TransmitContinuation { number, initial_type, payload_len } = continuation;
        let due = u32::try_from(group.parts.len()).unwrap_or(u32::MAX);
        let checked = if number != due {
            Err(ReportedError::Sequence { expected: due, seen: number })
        } else if initial_type != group.lead.initial_type() {
            let expected = group.lead.initial_type();
            Err(ReportedError::OperationType { expected, seen: initial_type })
        } else {
            payload(&message, header, payload_len)
        };
        match checked {
            Ok(payload) => {
                group.parts.push(Part { message, payload });
                self.finish()
            }
            Err(error) => {
                let is_last = number.checked_add(1) == Some(group.lead.count());
                Err(self.refuse(number, error, is_last))
            }
        }
    }

    /// What is due before anything else comes, if something is: the XID, and how many transmissions have come.
    pub(crate) fn open(&self) -> Option<(MessageId, usize)> {
        self.open.as_ref().map(|group| ((group.xid, group.lead.direction()), group.parts.len()))
    }

    /// Another message has come where a group has to go on. The group is given up; says its message, how many transmissions of it had
    /// come, and what its sender is told.
    pub(crate) fn interrupt(
        &mut self,
        by: TransmissionId,
        error: ReportedError,
    ) -> Option<(MessageId, usize, ErrorReport)> {
        let Group { xid, lead, parts, .. } = self.open.take()?;
        let id = (xid, lead.direction());
        self.give_up(id, lead.count());
        let lead = TransmissionId { xid, direction: id.1, number: 0 };
        Some((id, parts.len(), ErrorReport { bad: by, lead: Some(lead), error }))
    }

    /// Whether a later transmission belongs to what was given up, which it does up to the last one.
    pub(crate) fn passes_over(&mut self, id: MessageId, number: u32) -> bool {
        let Some(place) = self.given_up.iter().position(|(given_up, _)| *given_up == id) else {
            return false;
        };
        if self.given_up.get(place).is_some_and(|(_, count)| number.checked_add(1) == Some(*count)) {
            self.given_up.remove(place);
        }
        true
    }

    /// The first transmission of a Call did not decode: how many belong to it is not known.
    pub(crate) fn undecoded(&mut self, xid: u32) {
        self.give_up((xid, Direction::Call), u32::MAX);
    }

    /// The first transmission of a group of so many was refused for another reason than what is in it.
    pub(crate) fn refused(&mut self, id: MessageId, count: u32) {
        if count > 1 {
            self.give_up(id, count);
        }
    }

    /// A message that did not decode has come where a group has to go on: that is its end. Says its message, and how many transmissions of
    /// it had come.
    pub(crate) fn broken(&mut self) -> Option<(MessageId, usize)> {
        let Group { xid, lead, parts, .. } = self.open.take()?;
        let id = (xid, lead.direction());
        self.give_up(id, lead.count());
        Some((id, parts.len()))
    }

    /// A group of this message begins anew: nothing of the one before comes any more.
    pub(crate) fn begins_anew(&mut self, id: MessageId) {
        self.given_up.retain(|(given_up, _)| *given_up != id);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.open.as_ref().map(|group| group.deadline)
    }

    /// The connection is over.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn give_up(&mut self, id: MessageId, count: u32) {
        self.begins_anew(id);
        self.given_up.push_back((id, count));
        if self.given_up.len() > GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    /// Gives the open group up for what is wrong in one of its transmissions.
    fn refuse(&mut self, number: u32, error: ReportedError, is_last: bool) -> ProtocolError {
        let Some(Group { xid, lead, .. }) = self.open.take() else {
            return ProtocolError::ShortPayload { len: 0, least: 0 };
        };
        let direction = lead.direction();
        if !is_last {
            self.give_up((xid, direction), lead.count());
        }
        let first = TransmissionId { xid, direction, number: 0 };
        report(TransmissionId { xid, direction, number }, (number > 0).then_some(first), error)
    }

    /// The whole message, if all of it is there.
    fn finish(&mut self) -> Result<Option<Whole>, ProtocolError> {
        let complete = |group: &mut Group| usize::try_from(group.lead.count()) == Ok(group.parts.len());
        let Some(Group { xid, lead, parts, .. }) = self.open.take_if(complete) else { return Ok(None) };
        let id = TransmissionId { xid, direction: lead.direction(), number: 0 };
        let mut joined = (0, 0);
        let pieces: Vec<Bytes> = parts.iter().map(|part| part.message.slice(part.payload.clone())).collect();
        let payload = self.join(&pieces, id, &mut joined.0)?;
        let runs = find_items(&lead, &parts, &self.targets, payload.len())
            .map_err(|error| report(id, None, error))?;
        let mut items = Vec::with_capacity(runs.len());
        for (position, pieces) in runs {
            items.push(ReadChunk { position, data: self.join(&pieces, id, &mut joined.1)? });
        }
        let len = parts.iter().map(|part| part.message.len()).sum();
        Ok(Some(Whole { lead, payload, items, transmissions: parts.len(), len, joined }))
    }

    /// Pieces as one: as it is, if it is one; else a copy, which is counted.
    fn join(&self, pieces: &[Bytes], id: TransmissionId, copied: &mut usize) -> Result<Bytes, ProtocolError> {
        if let [] | [_] = pieces {
            return Ok(pieces.first().cloned().unwrap_or_default());
        }
        let len = pieces.iter().map(Bytes::len).sum();
        *copied += len;
        let room = self.domain.as_ref().and_then(|domain| domain.allocate(len, 1).ok());
        let whole = match (room, id.direction) {
            (Some(mut room), _) => {
                let mut at = 0;
                for piece in pieces {
                    if let Some(room) = room.get_mut(at..at + piece.len()) {
                        room.copy_from_slice(piece);
                    }
                    at += piece.len();
                }
                room
            }
            // There is no memory for it now: what is reported comes again in chunks, which can wait.
            (None, Direction::Call) => {
                let value = u32::try_from(len).unwrap_or(u32::MAX);
                return Err(report(id, None, ReportedError::PayloadLength { value, least: 0, most: 0 }));
            }
            // There is nobody to ask again.
            (None, Direction::Reply) => Buffer::adopt(pieces.concat()),
        };
        Ok(whole.freeze())
    }
}

fn report(bad: TransmissionId, lead: Option<TransmissionId>, error: ReportedError) -> ProtocolError {
    ProtocolError::Group(ErrorReport { bad, lead, error })
}

/// No error code is for a wrong count: it is said as a number that is not due.
fn check_lead(lead: &Lead, limits: &Limits) -> Result<(), ReportedError> {
    let most = u32::try_from(limits.continued_parts.max(1)).unwrap_or(u32::MAX);
    let seen = lead.count();
    if seen == 0 || seen > most {
        return Err(ReportedError::Sequence { expected: seen.clamp(1, most), seen });
    }
    match lead {
        Lead::Request(request) => request.fault().map_or(Ok(()), Err),
        Lead::Response(_) => Ok(()),
    }
}

/// Where the part of the Payload stream is in a transmission.
fn payload(message: &Bytes, header: usize, len: u32) -> Result<Range<usize>, ReportedError> {
    let available = message.len().saturating_sub(header);
    let most = u32::try_from(available).unwrap_or(u32::MAX);
    match usize::try_from(len) {
        Ok(wide) if wide <= available && wide.is_multiple_of(4) => Ok(header..header + wide),
        _ => Err(ReportedError::PayloadLength { value: len, least: 0, most }),
    }
}

/// The pieces of each item that is placed in our Receives, with its displacement.
type Runs = Vec<(u32, Vec<Bytes>)>;

/// Finds the items of a whole group, and checks where they are; `payload` bytes are the whole Payload stream.
fn find_items(lead: &Lead, parts: &[Part], targets: &Targets, payload: usize) -> Result<Runs, ReportedError> {
    let mut runs = Vec::new();
    // In the virtual stream: where the item before it ends, and how much of the Payload stream is left.
    let (mut reached, mut left) = (0_u64, u64::try_from(payload).unwrap_or(u64::MAX));
    let mut used: Vec<(usize, Range<usize>, u32)> = Vec::new();
    for PlacedItem { displacement, length, location } in lead.placed() {
        let pieces = match location {
            // Not in the stream as it is told.
            Location::TooShort | Location::NoItem => continue,
            Location::Explicit(segments) => {
                let room: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
                if room != u64::from(*length) {
                    let most = u32::try_from(room).unwrap_or(u32::MAX);
                    return Err(ReportedError::Offset { value: *length, least: most, most });
                }
                None
            }
            Location::Targets { offset, segments } => {
                Some(find_item(*length, *offset, segments, parts, targets, &mut used)?)
            }
        };
        let most = u32::try_from(reached.saturating_add(left)).unwrap_or(u32::MAX);
        let least = u32::try_from(reached).unwrap_or(u32::MAX);
        let bad = ReportedError::Offset { value: *displacement, least, most };
        let between = u64::from(*displacement).checked_sub(reached).ok_or(bad)?;
        left = left.checked_sub(between).filter(|_| displacement.is_multiple_of(4)).ok_or(bad)?;
        reached = u64::from(*displacement) + u64::from(*length).next_multiple_of(4);
        runs.extend(pieces.map(|pieces| (*displacement, pieces)));
    }
    used.sort_by_key(|(transmission, range, _)| (*transmission, range.start));
    for pair in used.windows(2) {
        if let [(before, earlier, _), (after, later, offset)] = pair
            && before == after
            && later.start < earlier.end
        {
            let least = u32::try_from(earlier.end - later.start).unwrap_or(u32::MAX).saturating_add(*offset);
            return Err(ReportedError::Offset { value: *offset, least, most: u32::MAX });
        }
    }
    Ok(runs)
}

/// The pieces of an item that begins `offset` bytes into the first of these segments.
fn find_item(
    length: u32,
    offset: u32,
    segments: &[u32],
    parts: &[Part],
    targets: &Targets,
    used: &mut Vec<(usize, Range<usize>, u32)>,
) -> Result<Vec<Bytes>, ReportedError> {
    let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let mut pieces = Vec::with_capacity(segments.len());
    let mut left = usize::try_from(length).unwrap_or(usize::MAX);
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut found = 0;
    for number in segments {
        let all = narrow(targets.in_group(parts.len()));
        let unknown = ReportedError::Target { value: *number, least: 0, most: all.saturating_sub(1) };
        let (transmission, range) = targets.segment(*number).ok_or(unknown)?;
        let Part { message, payload } = parts.get(transmission).ok_or(unknown)?;
        // Behind the Payload of its transmission, and not behind its end.
        let least = payload.end.saturating_sub(range.start);
        let bad = ReportedError::Offset { value: offset, least: narrow(least), most: narrow(range.len()) };
        if skip < least || skip >= range.len() || !skip.is_multiple_of(4) {
            return Err(bad);
        }
        let start = range.start + skip;
        let end = range.end.min(start.saturating_add(left));
        if end > message.len() {
            let most = narrow(found + message.len().saturating_sub(start));
            return Err(ReportedError::Offset { value: length, least: 0, most });
        }
        if end > start {
            used.push((transmission, start..end, narrow(skip)));
            pieces.push(message.slice(start..end));
        }
        found += end - start;
        left -= end - start;
        skip = 0;
    }
    if left > 0 {
        return Err(ReportedError::Offset { value: length, least: 0, most: narrow(found) });
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests;
