//! The choice of how a message of Version Two travels. The ways are a transmission group (rtrext-02), several Sends
//! (version-two-07 §6.6), and those of the [planner](crate::planner).
//!
//! A Call travels in a group if items can be placed in the Responder's Receives, or if it needs several Sends. So does
//! a Call whose reply shall use either. Otherwise a group gains nothing. A reply travels in a group if its Call gave
//! directions for items, or if it is too long for one Send. Both require that its Call came in a group (§5.2).

use bytes::Bytes;
use rpcrdma_xdr::{CopyCount, Piece, Stream, padded_len};

use crate::planner::{
    CallInput, CallPlan, ChunkRules, Located, Offer, PlannedRead, Refusal, ReplyInput, ReplyPlan, Route,
    choose_reduced, cut_lengths, locate, offer, place, plan_long, plan_short, take_out,
};
use crate::two::arrange::{Arrangement, Bounds, Headed, Targets, arrange, longest_send};
use crate::two::settings::ReplyPlacement;
use crate::wire::two::transmission::{
    Location, Operation, PlacedItem, ResponseDirection, ResponseLocation, ResponseSet, TransmitContinuation,
    TransmitRequest, TransmitResponse,
};
use crate::wire::{
    ChunkLists, Codec, Direction, ProtocolError, Segment, Shape, WriteChunk, narrow, sized, wide,
};
use crate::wire::{Limits, two::operation_len};

/// Options of Version Two for a Call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions<'a> {
    /// The most Sends for the Call, with continuation; 1 otherwise.
    pub(crate) continued: usize,
    /// The most Sends for the reply, if it may have no chunks: as many as we have Receives for.
    pub(crate) continued_reply: usize,
    /// The longest reply that we accept in several Sends, bytes.
    pub(crate) continued_reply_len: usize,
    /// Options of transmission groups, if the profile and the peer have them.
    pub(crate) groups: Option<CallGroups<'a>>,
}

impl CallOptions<'_> {
    /// Decides how a Call travels: in a group, in one Send, continued in several Sends, or in chunks. Several Sends save
    /// the round trip and the registration of a Position-Zero chunk.
    ///
    /// # Errors
    /// [`Refusal`]: no form carries the Call.
    pub(crate) fn plan_call(&self, input: &CallInput<'_>) -> Result<CallPlan, Refusal> {
        if let Some(plan) = self.groups.as_ref().and_then(|groups| plan_group(input, groups)) {
            return Ok(plan);
        }
        let offer = match offer(input) {
            Err(Refusal::ReplyTooLong { len, allowed }) => self.receives(input, len, allowed)?,
            offer => offer?,
        };
        let excess = match plan_short(input, offer)? {
            Ok(plan) => return Ok(plan),
            Err(excess) => excess,
        };
        // version-two-07 §6.6.2.1: continued messages may have Read chunks of data items.
        match parts(input.codec, input.send, excess.header, excess.rest.len(), self.continued) {
            Some(parts) => Ok(excess.divided(parts)),
            None => plan_long(input, excess),
        }
    }

    /// Returns the offer of Receives for a reply of `len` bytes, header included, without chunks. A single Receive holds
    /// `allowed` bytes.
    fn receives(&self, input: &CallInput<'_>, len: usize, allowed: usize) -> Result<Offer, Refusal> {
        let direction = Direction::Reply;
        let header = input.codec.header_len(&Shape { direction, ..Shape::default() });
        let bounds = Bounds::of_parts(input.codec, input.receive, self.continued_reply);
        let capacity = bounds.and_then(|bounds| bounds.capacity(header));
        let capacity = capacity.ok_or(Refusal::ReplyTooLong { len, allowed })?;
        let (len, allowed) = (len - header, capacity.min(self.continued_reply_len));
        let parts = parts(input.codec, input.receive, header, len, self.continued_reply);
        let parts = parts.filter(|_| len <= allowed);
        let sends = parts.ok_or(Refusal::ContinuedReplyTooLong { len, allowed })?.count();
        Ok(Offer::receives(sends))
    }
}

/// Options of Version Two for a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyOptions<'a> {
    /// The most Sends for the reply, with continuation; 1 otherwise.
    pub(crate) continued: usize,
    /// Options of transmission groups, if the Call came in one.
    pub(crate) groups: Option<ReplyGroups<'a>>,
}

impl ReplyOptions<'_> {
    /// Decides how a reply travels: in a group, inline or in the chunks of the Call, or continued in several Sends
    /// (version-two-07 §6.6.4).
    ///
    /// # Errors
    /// [`ProtocolError::WriteChunkTooSmall`], [`ProtocolError::ReplyTooLong`]
    pub(crate) fn plan_reply(&self, input: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
        if let Some(groups) = &self.groups
            && let Some(plan) = reply_in_group(input, groups)?
        {
            return Ok(plan);
        }
        let returns = input.codec.rules().two.is_none_or(|two| two.returns_reply_chunk);
        let left = match place(input, input.offered.reply.as_ref().filter(|_| returns))? {
            Ok(plan) => return Ok(plan),
            Err(left) => left,
        };
        let parts = parts(input.codec, input.send, left.header, left.rest.len(), self.continued);
        let Some(parts) = parts else { return Err(left.refusal(input)) };
        Ok(ReplyPlan {
            route: Route::Sends(parts),
            lists: left.lists,
            placed: left.placed,
            read: vec![],
            rest: left.rest.into(),
            copied: CopyCount::default(),
        })
    }
}

/// Options of transmission groups for a Call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallGroups<'a> {
    /// The most Sends for the Call.
    pub(crate) sends: usize,
    /// The most Receives for its reply.
    pub(crate) reply_sends: usize,
    /// Segments of the Responder's Receives in which items can be placed.
    pub(crate) theirs: Option<&'a Targets>,
    /// Segments of our Receives in which items can be placed.
    pub(crate) ours: Option<&'a Targets>,
    /// Whether the Responder follows directions for items of its replies.
    pub(crate) directs: bool,
    /// Directions to the Responder, if our Receives have segments for items.
    pub(crate) asked: ReplyPlacement,
    /// The least length of a placed item, bytes.
    pub(crate) place_from: usize,
    /// The most bytes of an item that lies in several Receives.
    pub(crate) spread_up_to: usize,
    /// The longest reply that we accept in several Sends, bytes.
    pub(crate) reply_len: usize,
}

impl CallGroups<'_> {
    /// Whether placement of items of these lengths gains anything: a long item in several Receives costs more than an
    /// RDMA Read or Write.
    fn is_worth_it(&self, arrangement: &Arrangement, lengths: impl IntoIterator<Item = usize>) -> bool {
        let mut items = lengths.into_iter().enumerate();
        items.all(|(item, len)| len <= self.spread_up_to || arrangement.segments(item).count() < 2)
    }
}

/// Options of transmission groups for a reply: directions of the Call, and segments of the Requester's Receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyGroups<'a> {
    /// The most Sends for the reply.
    pub(crate) sends: usize,
    /// Whether Sends place items, if the Call allows that.
    pub(crate) places: bool,
    /// The Call's directions for the items.
    pub(crate) directions: &'a [ResponseDirection],
    /// Segments of the Requester's Receives in which items can be placed.
    pub(crate) theirs: Option<&'a Targets>,
}

/// The location of an item in Receives, before its segments are known.
const IN_RECEIVES: Location = Location::Targets { offset: 0, segments: vec![] };

/// Returns the bounds of a group with items in these segments, of at most `most` Sends of `send` bytes.
fn bounds(targets: Option<&Targets>, send: usize, most: usize) -> Bounds<'_> {
    let continuation = TransmitContinuation { number: 0, initial_type: 0, payload_len: 0 };
    let further_header = operation_len(&Operation::Continuation(continuation));
    Bounds { targets, headed: Headed::First, send, further_header, most }
}

/// Returns stand-ins for segments whose memory is not registered yet.
fn unnamed(lengths: &[usize]) -> Vec<Segment> {
    lengths.iter().map(|len| Segment { handle: 0, length: narrow(*len), offset: 0 }).collect()
}

/// The directions of a Call for its reply.
struct Directed {
    /// Segment lengths of each direction that offers memory.
    write: Vec<Vec<usize>>,
    set: Vec<ResponseDirection>,
    receives: usize,
    /// The reply could not go inline, and needs no memory.
    gains: bool,
}

/// Divides a message of `len` bytes into parts, the last with a header of `header` bytes. `None` if that is impossible,
/// or if one Send is enough.
pub(crate) fn parts(
    codec: &dyn Codec,
    send: usize,
    header: usize,
    len: usize,
    most: usize,
) -> Option<Arrangement> {
    let bounds = Bounds::of_parts(codec, send, most)?;
    arrange(&bounds, len, &[], |_| header).filter(|arrangement| arrangement.sends.len() > 1)
}

/// Decides whether a Call travels in a group, and how; `None` if a plain message is as good, or the only way.
fn plan_group(input: &CallInput<'_>, groups: &CallGroups<'_>) -> Option<CallPlan> {
    let directed = direct(input, groups)?;
    let pieces = locate(input);
    let plain = input.codec.header_len(&Shape::default());
    let fits = plain + input.message.len() <= input.send;
    let placeable = if groups.theirs.is_none() || input.flavor_touches_data {
        vec![]
    } else {
        eligible(&pieces, groups.place_from)
    };
    if !placeable.is_empty()
        && let Some(plan) = compose(input, groups, &directed, (&pieces, &placeable), true)
    {
        return Some(plan);
    }
    if fits && !directed.gains {
        return None;
    }
    // DDP-eligible items go by Read chunk; if that is the whole gain, a plain message does the same.
    let reduced = if fits { vec![] } else { choose_reduced(&pieces, 1, input.chunks.max_read_chunks) };
    let plan = compose(input, groups, &directed, (&pieces, &reduced), false)?;
    (plan.route.sends() > 1 || directed.gains).then_some(plan)
}

/// Returns the indexes of pieces of at least `least` bytes that may leave the Payload stream.
fn eligible(pieces: &[Located<'_>], least: usize) -> Vec<usize> {
    // Peers with our default limits accept this many items; with more, the message is not placed.
    let most = Limits::default().placed_items;
    let is = |located: &Located<'_>| {
        matches!(located.piece, Piece::Payload { ddp_eligible: true, .. })
            && located.position.is_multiple_of(4)
            && u32::try_from(located.position).is_ok()
            && located.piece.data().len() >= least.max(1)
    };
    pieces.iter().enumerate().filter(|(_, located)| is(located)).map(|(index, _)| index).take(most).collect()
}

/// Returns the directions for the reply; `None` if they require a Reply chunk, which a Call in a group cannot offer
/// (§9.2).
fn direct(input: &CallInput<'_>, groups: &CallGroups<'_>) -> Option<Directed> {
    let placed: usize = input.sinks.iter().map(|len| padded_len(*len)).fold(0, usize::saturating_add);
    let reply_max = padded_len(input.reply_max);
    let direction = Direction::Reply;
    let plain = input.codec.header_len(&Shape { direction, ..Shape::default() });
    let whole = reply_max.saturating_add(placed);
    let has_items = !input.flavor_touches_data && input.sinks.iter().any(|len| *len > 0);
    let is_placed = |len: &usize| *len >= groups.place_from.max(1);
    let places = groups.ours.is_some() && has_items && input.sinks.iter().any(is_placed);
    if places
        && groups.directs
        && let Some(directed) = into_receives(input, groups, reply_max)
    {
        return Some(directed);
    }
    if plain.saturating_add(whole) <= input.receive {
        return Some(Directed { write: vec![], set: vec![], receives: 1, gains: false });
    }
    if has_items && !(input.chunks.allowed && groups.directs) {
        return None;
    }
    let (write, payload) = if has_items { (memory(input)?, reply_max) } else { (vec![], whole) };
    let explicit = |lengths: &Vec<usize>| ResponseLocation::Explicit(unnamed(lengths));
    let set: Vec<_> =
        write.iter().map(|lengths| ResponseDirection { least_len: 0, location: explicit(lengths) }).collect();
    let header = response_with(written(&write));
    let receives = arrange(&reply_bounds(input, groups, None), payload, &[], |_| header)?.count();
    // A reply in several Sends must fit our limit.
    let taken = receives == 1 || payload <= groups.reply_len;
    taken.then_some(Directed { write, set, receives, gains: !has_items || receives > 1 })
}

/// Returns directions that place items of the reply in our Receives; `None` if they are too few. For items where the
/// Responder has the choice, the Call offers memory too.
fn into_receives(input: &CallInput<'_>, groups: &CallGroups<'_>, reply_max: usize) -> Option<Directed> {
    let plain = response_with(std::iter::empty());
    let asked = if input.chunks.allowed { groups.asked } else { ReplyPlacement::Targets };
    let (write, longest) = match asked {
        ReplyPlacement::Explicit | ReplyPlacement::Targets => (vec![], u32::MAX),
        ReplyPlacement::Choice => (memory(input)?, u32::MAX),
        ReplyPlacement::BySize(threshold) => (memory(input)?, threshold.saturating_sub(1)),
    };
    let longest = sized(longest);
    // An item too short for placement stays in the Payload stream.
    let place_from = groups.place_from.max(1);
    let short: usize = input.sinks.iter().map(|len| padded_len((*len).min(place_from))).sum();
    let payload = reply_max.saturating_add(short);
    let lengths: Vec<usize> =
        input.sinks.iter().map(|len| (*len).min(longest)).filter(|len| *len > 0).collect();
    // Each item counts with the longer of its two possible descriptions.
    let explicit: Vec<usize> =
        written(&write).map(|location| response_with([location].into_iter()) - plain).collect();
    let named = |index: usize, count: usize| {
        explicit.get(index).copied().unwrap_or(0).max(PlacedItem::len_in_targets(count))
    };
    let header = |counts: &[usize]| {
        let mut counts = counts.iter().copied();
        let count = |len: &usize| if (*len).min(longest) > 0 { counts.next() } else { None };
        let counts = input.sinks.iter().map(count).map(|count| count.unwrap_or(1));
        plain + counts.enumerate().map(|(index, count)| named(index, count)).sum::<usize>()
    };
    let bounds = reply_bounds(input, groups, groups.ours);
    let sends = |payload, lengths: &[usize]| {
        let arranged = arrange(&bounds, payload, lengths, header)?;
        groups.is_worth_it(&arranged, lengths.iter().copied()).then_some(arranged.count())
    };
    let receives = match lengths[..] {
        // A single item is either too short or placed.
        [_] => sends(reply_max, &lengths)?.max(sends(payload, &[])?),
        _ => sends(payload, &lengths)?,
    };
    let most = lengths.iter().fold(payload, |sum, len| sum.saturating_add(*len));
    if receives > 1 && most > groups.reply_len {
        return None;
    }
    let to = |index: usize| {
        let segments = || unnamed(write.get(index).map_or(&[], Vec::as_slice));
        let location = match asked {
            ReplyPlacement::Choice => ResponseLocation::Choice(segments()),
            ReplyPlacement::BySize(threshold) => ResponseLocation::BySize { threshold, segments: segments() },
            ReplyPlacement::Explicit | ReplyPlacement::Targets => ResponseLocation::Targets,
        };
        ResponseDirection { least_len: narrow(place_from), location }
    };
    let set = (0..input.sinks.len()).map(to).collect();
    Some(Directed { write, set, receives, gains: true })
}

/// Returns the segment lengths of memory for each item of the reply; `None` if an item needs too many segments.
fn memory(input: &CallInput<'_>) -> Option<Vec<Vec<usize>>> {
    input.sinks.iter().map(|len| cut_lengths(&input.chunks, *len)).collect::<Result<_, _>>().ok()
}

/// Returns the locations of a reply whose items are all written to `memory`.
fn written(memory: &[Vec<usize>]) -> impl Iterator<Item = Location> {
    memory.iter().map(|lengths| Location::Explicit(unnamed(lengths)))
}

/// Returns the bounds of a reply. The Responder does not announce the length of its Sends, but every peer can send the
/// default size. Receives therefore suffice for Sends of that size, also while thresholds change.
fn reply_bounds<'a>(
    input: &CallInput<'_>,
    groups: &CallGroups<'_>,
    targets: Option<&'a Targets>,
) -> Bounds<'a> {
    let least = input.codec.rules().default_inline.min(input.receive);
    bounds(targets, longest_send(targets, least), groups.reply_sends)
}

/// Returns the bytes that items add to a header, if each lies in so many segments.
fn placed_len(counts: &[usize]) -> usize {
    counts.iter().map(|count| PlacedItem::len_in_targets(*count)).sum()
}

/// Returns the header length of the first transmission of a reply with items in these locations, bytes.
fn response_with(locations: impl Iterator<Item = Location>) -> usize {
    let placed = locations.map(|location| PlacedItem { displacement: 0, length: 0, location }).collect();
    operation_len(&Operation::Response(TransmitResponse { placed, count: 0, payload_len: 0 }))
}

/// Divides a message of a group among Sends: `payload` bytes of the Payload stream, and the items that the first
/// operation locates in Receives. Sets their segments in that operation.
fn group(bounds: &Bounds<'_>, lead: Operation, payload: usize, items: Vec<Bytes>) -> Option<Arrangement> {
    let lengths: Vec<usize> = items.iter().map(Bytes::len).collect();
    // The segments of the items are not in the operation yet.
    let others = operation_len(&lead).saturating_sub(placed_len(&vec![0; items.len()]));
    let arrangement = arrange(bounds, payload, &lengths, |counts| others + placed_len(counts))?;
    Some(arrangement.with_lead(lead, items))
}

/// Returns the plan of a group that takes these pieces out of the Payload stream: into the Responder's Receives, or into
/// Read chunks.
fn compose(
    input: &CallInput<'_>,
    groups: &CallGroups<'_>,
    directed: &Directed,
    (pieces, taken): (&[Located<'_>], &[usize]),
    into_receives: bool,
) -> Option<CallPlan> {
    let uncut = ChunkRules { max_segment_len: usize::MAX, max_segments: usize::MAX, ..input.chunks };
    let (inline, read) = take_out(if into_receives { &uncut } else { &input.chunks }, pieces, taken).ok()?;
    let placed = read.iter().map(|PlannedRead { position, segments }| {
        let lengths: Vec<usize> = segments.iter().map(Bytes::len).collect();
        PlacedItem {
            displacement: *position,
            length: narrow(lengths.iter().sum::<usize>()),
            location: if into_receives { IN_RECEIVES } else { Location::Explicit(unnamed(&lengths)) },
        }
    });
    let all = ResponseSet { begin: 0, end: narrow(input.message.len()), directions: directed.set.clone() };
    let lead = Operation::Request(TransmitRequest {
        placed: placed.collect(),
        response: if directed.set.is_empty() { vec![] } else { vec![all] },
        count: 1,
        response_buffers: narrow(directed.receives),
        payload_len: 0,
    });
    let (items, read) = if into_receives {
        (read.into_iter().flat_map(|chunk| chunk.segments).collect(), vec![])
    } else {
        (vec![], read)
    };
    let targets = groups.theirs.filter(|_| into_receives);
    let bounds = bounds(targets, longest_send(groups.theirs, input.send), groups.sends);
    let arrangement = group(&bounds, lead, inline.len(), items)?;
    groups.is_worth_it(&arrangement, arrangement.items.iter().map(Bytes::len)).then(|| CallPlan {
        route: Route::Sends(arrangement),
        inline: inline.into(),
        reply_sends: directed.receives,
        read,
        write: directed.write.clone(),
        reply: None,
        copied: CopyCount::default(),
    })
}

/// Decides how the reply to a Call in a group travels; `None` if a plain message is as good.
///
/// # Errors
/// [`ProtocolError::WriteChunkTooSmall`], [`ProtocolError::ReplyTooLong`]
fn reply_in_group(
    input: &ReplyInput<'_>,
    groups: &ReplyGroups<'_>,
) -> Result<Option<ReplyPlan>, ProtocolError> {
    let direction = Direction::Reply;
    let plain = input.codec.header_len(&Shape { direction, ..Shape::default() });
    if groups.directions.is_empty() && plain + input.message.len() <= input.send {
        return Ok(None);
    }
    // Sends place items as long as the Receives have segments for them. Further items go to memory, if the Responder may
    // choose, or stay inline.
    let placed = if groups.places { attempt(input, groups, true)? } else { None };
    let plan = match placed {
        None => attempt(input, groups, false)?,
        placed => placed,
    };
    let len = wide(input.message.len());
    let inline = wide(input.send.saturating_sub(response_with(std::iter::empty())));
    plan.map(Some).ok_or(ProtocolError::ReplyTooLong { len, inline, reply_chunk: 0 })
}

fn attempt(
    input: &ReplyInput<'_>,
    groups: &ReplyGroups<'_>,
    places: bool,
) -> Result<Option<ReplyPlan>, ProtocolError> {
    let places = places && groups.theirs.is_some();
    let mut directions = groups.directions.iter().enumerate();
    let (mut placed, mut write) = (Vec::new(), Vec::new());
    let (mut written, mut items, mut rest) = (Vec::new(), Vec::new(), Stream::new());
    let mut position = 0_usize;
    for piece in input.message.pieces() {
        let displacement = narrow(position);
        position = position.saturating_add(piece.len());
        let eligible =
            matches!(piece, Piece::Payload { ddp_eligible: true, .. }) && !input.flavor_touches_data;
        let Some((chunk, direction)) = (if eligible { directions.next() } else { None }) else {
            rest.push(piece.clone());
            continue;
        };
        let (data, offered) = (piece.data(), offered(direction));
        let (len, capacity) = (wide(data.len()), offered.total());
        let mut location = way(direction, len, places, capacity);
        let mut returned = offered.filled(0);
        match &mut location {
            Location::Explicit(_) if len > capacity => {
                return Err(ProtocolError::WriteChunkTooSmall { chunk, len, capacity });
            }
            Location::Explicit(segments) => {
                written.push((chunk, data.clone()));
                returned = offered.filled(len);
                segments.clone_from(&returned.segments);
            }
            Location::Targets { .. } => items.push(data.clone()),
            Location::TooShort | Location::NoItem => rest.push(piece.clone()),
        }
        placed.push(PlacedItem { displacement, length: narrow(data.len()), location });
        write.push(returned);
    }
    for (_, direction) in directions {
        placed.push(PlacedItem { displacement: 0, length: 0, location: Location::NoItem });
        write.push(offered(direction).filled(0));
    }
    let lead = Operation::Response(TransmitResponse { placed, count: 1, payload_len: 0 });
    let bounds = bounds(groups.theirs, longest_send(groups.theirs, input.send), groups.sends);
    Ok(group(&bounds, lead, rest.len(), items).map(|arrangement| ReplyPlan {
        route: Route::Sends(arrangement),
        lists: ChunkLists { read: vec![], write, reply: None },
        placed: written,
        read: vec![],
        rest: rest.into(),
        copied: CopyCount::default(),
    }))
}

/// Returns the memory that a direction offers.
fn offered(direction: &ResponseDirection) -> WriteChunk {
    WriteChunk { segments: direction.location.segments().to_vec() }
}

/// Returns the kind of location of an item of `len` bytes with this direction, which offers `capacity` bytes of memory.
fn way(direction: &ResponseDirection, len: u64, places: bool, capacity: u64) -> Location {
    let placed = match &direction.location {
        ResponseLocation::Targets | ResponseLocation::Choice(_) => places,
        // The draft does not say on which side of the threshold (§6.2); here explicit RDMA carries items of at
        // least that length.
        ResponseLocation::BySize { threshold, .. } => len < u64::from(*threshold) && places,
        ResponseLocation::Explicit(_) => false,
    };
    if len == 0 || len < u64::from(direction.least_len) || (!placed && capacity == 0) {
        Location::TooShort
    } else if placed {
        IN_RECEIVES
    } else {
        Location::Explicit(vec![])
    }
}

#[cfg(test)]
mod tests;
