//! Transmission groups (rtrext-02 §4, §6, §7), as received.
//!
//! The first transmission of a group describes the message: the number of transmissions, and the places of items
//! outside its Payload stream. An item is returned as slices of its Receives.
//!
//! *Errors*: a report goes to the sender (§5.4), from an [`Error::Group`] or an [`Error::GroupTooLong`]. Later
//! transmissions are ignored, each once.

use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use super::{Assembly, MessageId, Notation, Open, Refused, Rest, Runs, Transmission};
use crate::inbound::reassembly::Walk;
use crate::two::arrange::Targets;
use crate::wire::two::Error;
use crate::wire::two::transmission::{
    ErrorReport, Location, OperationBase, OperationType, PlacedItem, ReportedError, TransmissionId,
    TransmitContinuation, TransmitRequest, TransmitResponse,
};
use crate::wire::{Direction, Limits, narrow, sized, wide};

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

    pub(super) const fn count(&self) -> u32 {
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

    /// Returns the expected `optxc_itype` of the other transmissions.
    const fn initial_type(&self, base: OperationBase) -> u32 {
        match self {
            Self::Request(_) => OperationType::Request,
            Self::Response(_) => OperationType::Response,
        }
        .number(base)
    }

    pub(crate) const fn direction(&self) -> Direction {
        match self {
            Self::Request(_) => Direction::Call,
            Self::Response(_) => Direction::Reply,
        }
    }
}

/// Returns the place of the Payload in the first transmission of a group, if it is valid. `header` is the length of the
/// header, bytes.
///
/// # Errors
/// [`Error::Group`], [`Error::GroupTooLong`]
pub(super) fn check_lead(
    xid: u32,
    lead: &Lead,
    (message, header): (&Bytes, usize),
    limits: &Limits,
) -> Result<Range<usize>, Refused> {
    let bad = TransmissionId { xid, direction: lead.direction(), number: 0 };
    let checked = check_content(lead, limits)
        .and_then(|()| payload(message, header, lead.payload_len()))
        .map_err(|error| report(bad, None, error))
        .and_then(|payload| check_len(lead, payload.len(), limits, (bad, None)).map(|()| payload));
    checked.map_err(|error| Refused { error, rest: Some(rest(1, lead.count(), limits)) })
}

/// Returns the place of the Payload in a later transmission, like [`check_lead`].
///
/// # Errors
/// As [`check_lead`].
pub(super) fn check_later(
    (id, open): (MessageId, Option<&Open>),
    later: &TransmitContinuation,
    (message, header): (&Bytes, usize),
    (base, limits): (OperationBase, &Limits),
) -> Result<Range<usize>, Refused> {
    let TransmitContinuation { number, initial_type, payload_len } = *later;
    let first = TransmissionId { xid: id.0, direction: id.1, number: 0 };
    let bad = TransmissionId { number, ..first };
    let Some(Open { notation: Notation::Group { lead }, sends, payload: before, .. }) = open else {
        return Err(Refused { error: report(bad, None, ReportedError::Continuation), rest: None });
    };
    let due = narrow(sends.len());
    let named = (number > 0).then_some(first);
    let expected = lead.initial_type(base);
    let checked = if number != due {
        Err(ReportedError::Sequence { expected: due, seen: number })
    } else if initial_type != expected {
        Err(ReportedError::OperationType { expected, seen: initial_type })
    } else {
        payload(message, header, payload_len)
    };
    let checked = checked.map_err(|error| report(bad, named, error)).and_then(|payload| {
        let len = before.saturating_add(payload.len());
        check_len(lead, len, limits, (bad, named)).map(|()| payload)
    });
    let count = lead.count();
    let came = if (due..count).contains(&number) { number } else { due };
    let rest = Rest::Transmissions(came.saturating_add(1)..count);
    checked.map_err(|error| Refused { error, rest: Some(rest) })
}

impl Assembly {
    /// Returns the group in progress, and the number of its transmissions received.
    pub(crate) fn group(&self) -> Option<(MessageId, usize)> {
        let open = self.open.as_ref().filter(|open| matches!(open.notation, Notation::Group { .. }))?;
        Some((open.id, open.sends.len()))
    }

    /// Gives up the group in progress when another message interrupts it. Returns that group, and the number of its
    /// transmissions received.
    pub(crate) fn give_up_group(&mut self) -> Option<(MessageId, usize)> {
        let group = self.group()?;
        let (id, sends) = group;
        if let Some(Open { notation: Notation::Group { lead }, .. }) = self.open.take() {
            self.give_up(id, Rest::Transmissions(narrow(sends)..lead.count()));
        }
        Some(group)
    }

    /// Ignores any number of transmissions after a first one of a Call that did not decode.
    pub(crate) fn undecoded_group(&mut self, xid: u32) {
        self.refuse_group((xid, Direction::Call), u32::MAX);
    }

    /// Ignores the rest of a group whose first transmission was refused for a reason other than its content.
    pub(crate) fn refuse_group(&mut self, id: MessageId, count: u32) {
        self.give_up(id, rest(1, count, &self.config.limits));
    }
}

pub(super) fn report(bad: TransmissionId, lead: Option<TransmissionId>, error: ReportedError) -> Error {
    Error::Group(ErrorReport { bad, lead, error })
}

/// Returns the transmissions from a number on of a group of so many, as far as a group can have them. Beyond that each is
/// as good as a new one.
fn rest(from: u32, count: u32, limits: &Limits) -> Rest {
    Rest::Transmissions(from..count.min(narrow(limits.continued_parts)))
}

/// Checks the words of a first transmission. No error code is for a wrong count: it is reported as a number that is not due.
fn check_content(lead: &Lead, limits: &Limits) -> Result<(), ReportedError> {
    let most = narrow(limits.continued_parts.max(1));
    let seen = lead.count();
    if seen == 0 || seen > most {
        return Err(ReportedError::Sequence { expected: seen.clamp(1, most), seen });
    }
    match lead {
        Lead::Request(request) => request.fault().map_or(Ok(()), Err),
        Lead::Response(_) => Ok(()),
    }
}

/// Checks the length of a message in several Sends, which may have to be joined: `payload` bytes of the Payload stream so
/// far, and all items in Receives. `bad` is the transmission that would be wrong, `first` the first one. No error code is
/// for the length of a message, which is reported as that of a Payload.
fn check_len(
    lead: &Lead,
    payload: usize,
    limits: &Limits,
    (bad, first): (TransmissionId, Option<TransmissionId>),
) -> Result<(), Error> {
    let most = limits.continued_len;
    let in_receives = |item: &PlacedItem| match item.location {
        Location::Targets { .. } => u64::from(item.length),
        _ => 0,
    };
    let len = lead.placed().iter().map(in_receives).fold(wide(payload), u64::saturating_add);
    if lead.count() == 1 || len <= wide(most) {
        return Ok(());
    }
    let error = ReportedError::PayloadLength { value: narrow(len), least: 0, most: narrow(wide(most)) };
    let report = ErrorReport { bad, lead: first, error };
    Err(Error::GroupTooLong { report, len, allowed: most })
}

/// Returns the place of the Payload in a transmission.
fn payload(message: &Bytes, header: usize, len: u32) -> Result<Range<usize>, ReportedError> {
    let available = message.len().saturating_sub(header);
    let most = narrow(available);
    match usize::try_from(len) {
        Ok(wide) if wide <= available && wide.is_multiple_of(4) => Ok(header..header + wide),
        _ => Err(ReportedError::PayloadLength { value: len, least: 0, most }),
    }
}

/// Returns the slices of each item that is placed in our Receives, with its displacement; checks their places. `payload`
/// bytes are the whole Payload stream.
pub(super) fn find_items(
    lead: &Lead,
    transmissions: &[Transmission],
    targets: Option<&Targets>,
    payload: usize,
) -> Result<Vec<(u32, Runs)>, ReportedError> {
    let mut runs = Vec::new();
    let mut walk = Walk::new(wide(payload));
    let mut used: Vec<(usize, Range<usize>, u32)> = Vec::new();
    for PlacedItem { displacement, length, location } in lead.placed() {
        let pieces = match location {
            // Not in the stream as it is told.
            Location::TooShort | Location::NoItem => continue,
            Location::Explicit(segments) => {
                let room: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
                if room != u64::from(*length) {
                    let most = narrow(room);
                    return Err(ReportedError::Offset { value: *length, least: most, most });
                }
                None
            }
            Location::Targets { offset, segments } => {
                Some(find_item(*length, *offset, segments, transmissions, targets, &mut used)?)
            }
        };
        let misplaced = |starts: RangeInclusive<u64>| {
            let (least, most) = (narrow(*starts.start()), narrow(*starts.end()));
            ReportedError::Offset { value: *displacement, least, most }
        };
        if !displacement.is_multiple_of(4) {
            return Err(misplaced(walk.starts()));
        }
        walk.pass(*displacement, u64::from(*length)).map_err(misplaced)?;
        runs.extend(pieces.map(|pieces| (*displacement, pieces)));
    }
    used.sort_by_key(|(transmission, range, _)| (*transmission, range.start));
    for pair in used.windows(2) {
        if let [(before, earlier, _), (after, later, offset)] = pair
            && before == after
            && later.start < earlier.end
        {
            let least = narrow(earlier.end - later.start).saturating_add(*offset);
            return Err(ReportedError::Offset { value: *offset, least, most: u32::MAX });
        }
    }
    Ok(runs)
}

/// Returns the pieces of an item that begins `offset` bytes into the first of these segments.
fn find_item(
    length: u32,
    offset: u32,
    segments: &[u32],
    transmissions: &[Transmission],
    targets: Option<&Targets>,
    used: &mut Vec<(usize, Range<usize>, u32)>,
) -> Result<Runs, ReportedError> {
    let mut pieces = Vec::with_capacity(segments.len());
    let mut left = sized(length);
    let mut skip = sized(offset);
    let mut found = 0;
    for number in segments {
        let all = narrow(targets.map_or(0, |targets| targets.in_group(transmissions.len())));
        let unknown = ReportedError::Target { value: *number, least: 0, most: all.saturating_sub(1) };
        let (transmission, range) = targets.and_then(|targets| targets.segment(*number)).ok_or(unknown)?;
        let Transmission { message, payload } = transmissions.get(transmission).ok_or(unknown)?;
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
            pieces.push((transmission, message.slice(start..end)));
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
