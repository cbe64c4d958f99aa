//! Transmission groups: RPC messages in several Sends, and items that lie in a Receive where they are wanted (rtrext-02 §4, §6, §7).
//!
//! The first transmission of a group says all there is to say about the message: how many transmissions there are, and where items are
//! that were taken out of its Payload stream. *Sending*: `two::arrange` says what goes into which Send. *Receiving*: `Groups` holds the group that has begun, one at
//! a time, in the Receives that it came in, until the last of them is there. Then an item is handed out as the part of the Receive that
//! it lies in; one that lies in several is joined, and so is the Payload stream of several, in memory of the domain. So that a message
//! holds no more Receives than it fills, an item is copied out of one of several that would be held for less than half of it.
//!
//! *On error*: what breaks the rules of the extension is a [`ProtocolError::Group`], whose report goes to the sender (§5.4), and so does
//! that of a message beyond our bound, a [`ProtocolError::GroupTooLong`]; the group is given up, and what else comes of it is passed over
//! without another word, each transmission once. A group that does not go on has a timer (rule I6).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, ProtectionDomain};
use rpcrdma_xdr::ReadChunk;

use crate::characteristics::Transmissions;
use crate::config::Config;
use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::two::arrange::Targets;
use crate::wire::Direction;
use crate::wire::two::transmission::{
    BufferStructure, ErrorReport, Location, OperationBase, OperationType, PlacedItem, ReportedError,
    SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE, TransmissionId, TransmitContinuation,
    TransmitRequest, TransmitResponse,
};

/// The two features of the extension (rtissues-03 §3.5), as far as one that sends decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Messages go on in several Sends, up to [`Config::continued_parts`].
    pub continuation: bool,
    /// DDP-eligible items are placed by Sends.
    pub placement: bool,
}

impl Features {
    /// Both.
    pub const ALL: Self = Self { continuation: true, placement: true };
    /// Neither.
    pub const NONE: Self = Self { continuation: false, placement: false };
}

/// What a Call asks for items of its reply (`xmdp_rsdloc`, rtrext-02 §7.4), if they can be placed in our Receives. Memory for RDMA Writes
/// is offered only if chunks are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyPlacement {
    /// XMPTYPE_EXRW: RDMA Writes, as if they could not.
    Explicit,
    /// XMPTYPE_TBSN: Sends. No memory is needed, so there is nothing to invalidate.
    #[default]
    Targets,
    /// XMPTYPE_CHOICE: either, as the Responder likes.
    Choice,
    /// XMPTYPE_BYSIZE: RDMA Writes for items of this many bytes or more, Sends for others.
    BySize(u32),
}

/// What a side does with transmission groups, in the profiles of Version Two that have them. What it tells the peer agrees with it, and it
/// keeps to what the peer tells; the two need not be alike, nor what is sent and what is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmissionSettings {
    /// Take part: say what is supported, and use it. Without it the operations are refused as not supported (version-two-01 §3.1).
    pub enabled: bool,
    /// Take Calls in groups: in how many Sends, [`Limits::continued_parts`] says. Without it they are refused as not supported, and
    /// it is not said that they were (RTRS_XREQ).
    pub takes_calls: bool,
    /// What is used for Calls, of what the peer says that it takes.
    pub calls: Features,
    /// What is used for replies, if their Calls allow it. Without placement that is not said to be possible (RTRS_XRESP), and without
    /// continuation that they have more than one Send (RESPSXLIM).
    pub replies: Features,
    /// Take replies in several Sends.
    pub continued_replies: bool,
    /// Where items of replies shall be.
    pub asked: ReplyPlacement,
    /// How our Receives are structured, so that peers can place items in them. It has to be as long as they are
    /// ([`Config::receive_size`]), and to be consistent ([`BufferStructure::check`]), else it is as if there was none. `None`: nothing is
    /// placed.
    pub structure: Option<BufferStructure>,
    /// DDP-eligible items of at least this many bytes are placed in the peer's Receives, if these have room for them. Shorter ones go
    /// inline, as far as that is long enough, which costs less.
    pub place_from: usize,
    /// Items that lie in several Receives are joined, by a copy. Those of more than this many bytes take explicit RDMA instead, if they
    /// may.
    pub join_up_to: usize,
    /// Sends that a reply may come in at the most, if the Call could offer memory for it instead: RDMA Writes take no more round trips,
    /// and need no copy. Beyond [`Config::continued_parts`] it has no effect.
    pub reply_sends: usize,
}

impl Default for TransmissionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            takes_calls: true,
            calls: Features::ALL,
            replies: Features::ALL,
            continued_replies: true,
            asked: ReplyPlacement::default(),
            structure: None,
            place_from: 4096,
            join_up_to: 64 << 10,
            reply_sends: 3,
        }
    }
}

impl TransmissionSettings {
    /// What the peer is told of them.
    pub(crate) fn told(&self, config: &Config) -> Transmissions {
        if !self.enabled {
            return Transmissions::default();
        }
        let narrow = |sends: usize| u32::try_from(sends.max(1)).unwrap_or(u32::MAX);
        // Who keeps to it never goes beyond the length that is taken.
        let of_length = config.limits.continued_len / config.largest_receive().max(1);
        let bit = |bit, set: bool| if set { bit } else { 0 };
        let continued = config.limits.continued_parts > 1 && (self.takes_calls || self.continued_replies);
        Transmissions {
            support: bit(SUPPORT_REQUEST, self.takes_calls)
                | bit(SUPPORT_RESPONSE, self.replies.placement)
                | bit(SUPPORT_CONTINUATION, continued),
            structure: config.structure().cloned(),
            request_limit: if self.takes_calls {
                narrow(config.limits.continued_parts.min(of_length))
            } else {
                1
            },
            // What came in plain messages has no reply in a group.
            response_limit: if self.takes_calls && self.replies.continuation {
                narrow(config.continued_parts)
            } else {
                1
            },
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
    /// Bytes that have come of the Payload stream.
    payload: usize,
    /// Bytes that all of it may have.
    most: usize,
    deadline: Instant,
}

/// What is left of a group that was given up.
#[derive(Debug)]
struct GivenUp {
    id: MessageId,
    /// The least number that can come, and the one behind the last.
    left: Range<u32>,
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
    targets: Option<Targets>,
    /// Which numbers the operations have.
    base: OperationBase,
    open: Option<Group>,
    given_up: VecDeque<GivenUp>,
    domain: Option<ProtectionDomain>,
}

impl Groups {
    pub(crate) fn new(config: &Config) -> Self {
        let targets = config.structure().and_then(Targets::of);
        Self { targets, base: config.versions.operations(), ..Self::default() }
    }

    /// The connection's memory, as soon as it is known.
    pub(crate) fn use_domain(&mut self, domain: &ProtectionDomain) {
        self.domain.get_or_insert_with(|| domain.clone());
    }

    /// Takes the first transmission of a group, `header` bytes of it being its header; the rest has to come until `deadline`. Says the
    /// whole message if that is all of it.
    ///
    /// # Errors
    /// [`ProtocolError::Group`], [`ProtocolError::GroupTooLong`]; the group is given up.
    pub(crate) fn begin(
        &mut self,
        xid: u32,
        lead: Lead,
        (message, header): (Bytes, usize),
        limits: &Limits,
        deadline: Instant,
    ) -> Result<Option<Whole>, ProtocolError> {
        let id = (xid, lead.direction());
        let bad = TransmissionId { xid, direction: id.1, number: 0 };
        let most = limits.continued_len;
        let checked = check_lead(&lead, limits)
            .and_then(|()| payload(&message, header, lead.payload_len()))
            .map_err(|error| report(bad, None, error))
            .and_then(|payload| check_len(&lead, payload.len(), most, (bad, None)).map(|()| payload));
        match checked {
            Ok(payload) => {
                let (len, parts) = (payload.len(), vec![Part { message, payload }]);
                self.open = Some(Group { xid, lead, parts, payload: len, most, deadline });
                self.finish()
            }
            Err(error) => {
                // As many as a group has; beyond that each is as good as a new one.
                let most = u32::try_from(limits.continued_parts).unwrap_or(u32::MAX);
                self.give_up(id, 1..lead.count().min(most));
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
        let first = TransmissionId { xid: group.xid, direction: group.lead.direction(), number: 0 };
        let (bad, lead) = (TransmissionId { number, ..first }, (number > 0).then_some(first));
        let checked = if number != due {
            Err(ReportedError::Sequence { expected: due, seen: number })
        } else if initial_type != group.lead.initial_type(self.base) {
            let expected = group.lead.initial_type(self.base);
            Err(ReportedError::OperationType { expected, seen: initial_type })
        } else {
            payload(&message, header, payload_len)
        };
        let checked = checked.map_err(|error| report(bad, lead, error)).and_then(|payload| {
            let len = group.payload.saturating_add(payload.len());
            check_len(&group.lead, len, group.most, (bad, lead)).map(|()| (payload, len))
        });
        match checked {
            Ok((payload, len)) => {
                group.parts.push(Part { message, payload });
                group.payload = len;
                self.finish()
            }
            Err(error) => {
                let count = group.lead.count();
                let came = if (due..count).contains(&number) { number } else { due };
                let left = came.saturating_add(1)..count;
                self.open = None;
                self.give_up((bad.xid, bad.direction), left);
                Err(error)
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
        let (id, transmissions) = self.broken()?;
        let lead = TransmissionId { xid: id.0, direction: id.1, number: 0 };
        Some((id, transmissions, ErrorReport { bad: by, lead: Some(lead), error }))
    }

    /// Whether a later transmission belongs to what was given up: each of them does once, in their order, up to the last one.
    pub(crate) fn passes_over(&mut self, id: MessageId, number: u32) -> bool {
        let belongs = |given_up: &GivenUp| given_up.id == id && given_up.left.contains(&number);
        let Some(place) = self.given_up.iter().position(belongs) else { return false };
        if let Some(GivenUp { left, .. }) = self.given_up.get_mut(place) {
            left.start = number.saturating_add(1);
            if left.start >= left.end {
                self.given_up.remove(place);
            }
        }
        true
    }

    /// The first transmission of a Call did not decode: how many belong to it is not known, but how many may.
    pub(crate) fn undecoded(&mut self, xid: u32, limits: &Limits) {
        let most = u32::try_from(limits.continued_parts).unwrap_or(u32::MAX);
        self.give_up((xid, Direction::Call), 1..most);
    }

    /// The first transmission of a group of so many was refused for another reason than what is in it.
    pub(crate) fn refused(&mut self, id: MessageId, count: u32, limits: &Limits) {
        let most = u32::try_from(limits.continued_parts).unwrap_or(u32::MAX);
        self.give_up(id, 1..count.min(most));
    }

    /// A message that did not decode has come where a group has to go on: that is its end. Says its message, and how many transmissions of
    /// it had come.
    pub(crate) fn broken(&mut self) -> Option<(MessageId, usize)> {
        let Group { xid, lead, parts, .. } = self.open.take()?;
        let id = (xid, lead.direction());
        self.give_up(id, u32::try_from(parts.len()).unwrap_or(u32::MAX)..lead.count());
        Some((id, parts.len()))
    }

    /// A group of this message begins anew: nothing of the one before comes any more.
    pub(crate) fn begins_anew(&mut self, id: MessageId) {
        self.given_up.retain(|given_up| given_up.id != id);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.open.as_ref().map(|group| group.deadline)
    }

    /// The connection is over.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Transmissions of these numbers are left of it.
    fn give_up(&mut self, id: MessageId, left: Range<u32>) {
        self.begins_anew(id);
        if left.is_empty() {
            return;
        }
        self.given_up.push_back(GivenUp { id, left });
        if self.given_up.len() > GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    /// The whole message, if all of it is there.
    fn finish(&mut self) -> Result<Option<Whole>, ProtocolError> {
        let complete = |group: &mut Group| usize::try_from(group.lead.count()) == Ok(group.parts.len());
        let Some(Group { xid, lead, parts, .. }) = self.open.take_if(complete) else { return Ok(None) };
        let id = TransmissionId { xid, direction: lead.direction(), number: 0 };
        let mut joined = (0, 0);
        let payload = if let [part] = &parts[..] {
            part.message.slice(part.payload.clone())
        } else {
            let pieces: Vec<Bytes> =
                parts.iter().map(|part| part.message.slice(part.payload.clone())).collect();
            self.join(&pieces, id, &mut joined.0)?
        };
        let runs = find_items(&lead, &parts, self.targets.as_ref(), payload.len())
            .map_err(|error| report(id, None, error))?;
        let scarce = self.scarcely_filled(parts.len(), &runs);
        let mut items = Vec::with_capacity(runs.len());
        for (position, pieces) in runs {
            let copies = matches!(&pieces[..], [(transmission, _)] if scarce.contains(transmission));
            let pieces: Vec<Bytes> = pieces.into_iter().map(|(_, piece)| piece).collect();
            let data = match &pieces[..] {
                [_] if copies => self.copy(&pieces, id, &mut joined.1)?,
                pieces => self.join(pieces, id, &mut joined.1)?,
            };
            items.push(ReadChunk { position, data });
        }
        let len = parts.iter().map(|part| part.message.len()).sum();
        Ok(Some(Whole { lead, payload, items, transmissions: parts.len(), len, joined }))
    }

    /// Transmissions of a group of so many whose Receives would be held for less than half of what is in them. A message of one holds
    /// that in any form.
    fn scarcely_filled(&self, transmissions: usize, runs: &Runs) -> Vec<usize> {
        let Some(targets) = self.targets.as_ref().filter(|_| transmissions > 1) else { return vec![] };
        let mut held = vec![0_usize; transmissions];
        for (_, pieces) in runs {
            if let [(transmission, data)] = &pieces[..]
                && let Some(held) = held.get_mut(*transmission)
            {
                *held = held.saturating_add(data.len());
            }
        }
        let half = targets.receive().div_ceil(2);
        held.iter()
            .enumerate()
            .filter(|(_, held)| **held < half)
            .map(|(transmission, _)| transmission)
            .collect()
    }

    /// Pieces as one: as it is, if it is one; else a copy.
    fn join(&self, pieces: &[Bytes], id: TransmissionId, copied: &mut usize) -> Result<Bytes, ProtocolError> {
        if let [] | [_] = pieces {
            return Ok(pieces.first().cloned().unwrap_or_default());
        }
        self.copy(pieces, id, copied)
    }

    /// Pieces as one, in memory of their own; counted.
    fn copy(&self, pieces: &[Bytes], id: TransmissionId, copied: &mut usize) -> Result<Bytes, ProtocolError> {
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

/// A message that comes in several Sends, and so may have to be put together, is within `most` bytes: those of the Payload stream so
/// far, and of all items in Receives. `said` is what would be wrong, and the first transmission; no error code is for the length
/// of a message, which is said as that of a Payload.
fn check_len(
    lead: &Lead,
    payload: usize,
    most: usize,
    (bad, first): (TransmissionId, Option<TransmissionId>),
) -> Result<(), ProtocolError> {
    let wide = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    let in_receives = |item: &PlacedItem| match item.location {
        Location::Targets { .. } => u64::from(item.length),
        _ => 0,
    };
    let len = lead.placed().iter().map(in_receives).fold(wide(payload), u64::saturating_add);
    if lead.count() == 1 || len <= wide(most) {
        return Ok(());
    }
    let narrow = |len: u64| u32::try_from(len).unwrap_or(u32::MAX);
    let error = ReportedError::PayloadLength { value: narrow(len), least: 0, most: narrow(wide(most)) };
    let report = ErrorReport { bad, lead: first, error };
    Err(ProtocolError::GroupTooLong { report, len, allowed: most })
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

/// The pieces of each item that is placed in our Receives, with the transmission of each, and its displacement.
type Runs = Vec<(u32, Vec<(usize, Bytes)>)>;

/// Finds the items of a whole group, and checks where they are; `payload` bytes are the whole Payload stream.
fn find_items(
    lead: &Lead,
    parts: &[Part],
    targets: Option<&Targets>,
    payload: usize,
) -> Result<Runs, ReportedError> {
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
    targets: Option<&Targets>,
    used: &mut Vec<(usize, Range<usize>, u32)>,
) -> Result<Vec<(usize, Bytes)>, ReportedError> {
    let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let mut pieces = Vec::with_capacity(segments.len());
    let mut left = usize::try_from(length).unwrap_or(usize::MAX);
    let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut found = 0;
    for number in segments {
        let all = narrow(targets.map_or(0, |targets| targets.in_group(parts.len())));
        let unknown = ReportedError::Target { value: *number, least: 0, most: all.saturating_sub(1) };
        let (transmission, range) = targets.and_then(|targets| targets.segment(*number)).ok_or(unknown)?;
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
