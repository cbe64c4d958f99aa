//! Divides a message among Sends: for the parts of version-two-07 §6.6.2, and for transmission groups (rtrext-02 §4,
//! §6.2, §7.2, §7.3).
//!
//! In both, one Send has the header of the message, and the others have a short one. [`arrange`] fills the Send with that
//! header first. The others fill up in order, and the last of them takes the rest. Parts have the header in their last
//! Send, groups in the first one.
//!
//! In a group, items can be placed in the Receives of the other side, which announces their structure. [`Targets`]
//! lists the segments for items. An item begins at the start of such a segment, after all of the Payload stream.
//!
//! An [`Arrangement`] owns no buffer of its own: items are shared. All Sends of an arrangement are posted at once, so
//! that nothing comes between them, and only when the peer takes that many. *On error*: [`arrange`] returns `None` for a
//! message that does not fit.

use std::ops::Range;

use bytes::Bytes;
use rpcrdma_xdr::{Piece, Stream};

use crate::message::Form;
use crate::wire::Codec;
use crate::wire::narrow;
use crate::wire::two::transmission::{
    BufferStructure, Location, Operation, ResponseDirection, TransmitRequest, TransmitResponse,
};

/// The Payload stream is cut at multiples of this, bytes: XDR items can end there.
const UNIT: usize = 4;

/// The most targetable segments of a Receive that are used: the pages of the longest one.
const MOST_TARGETS: u64 = 64;

/// The targetable segments of each Receive of one side; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// In ascending order, none without bytes.
    segments: Vec<Range<usize>>,
    /// Bytes of a Receive, which never decrease during a connection.
    total: usize,
}

impl Targets {
    /// Returns the targets of a structure; `None` if it has none, is not consistent, or has more than [`MOST_TARGETS`].
    pub(crate) fn of(structure: &BufferStructure) -> Option<Self> {
        let count = structure.targets();
        if structure.check().is_err() || count > MOST_TARGETS {
            return None;
        }
        let segments = (0..count).filter_map(|number| structure.target(number)).filter_map(|segment| {
            let start = usize::try_from(segment.offset).ok()?;
            Some(start..start + usize::try_from(segment.length).ok()?)
        });
        let segments: Vec<_> = segments.collect();
        let total = usize::try_from(structure.total).unwrap_or(0);
        (!segments.is_empty()).then_some(Self { segments, total })
    }

    /// Returns the bytes of the longest Send: the threshold, or the size of the Receive if that is more. A sender
    /// chooses the length of its Sends, and the receiver's segments are there to be used.
    pub(crate) fn longest_send(&self, threshold: usize) -> usize {
        threshold.max(self.total)
    }

    /// Returns the bytes of a Receive.
    pub(crate) const fn receive(&self) -> usize {
        self.total
    }

    /// Returns the number of segments in a group of so many transmissions, used or not (rtrext-02 §6.2).
    pub(crate) fn in_group(&self, transmissions: usize) -> usize {
        self.segments.len().saturating_mul(transmissions)
    }

    /// Returns the transmission of a segment in its group, and the place in it.
    pub(crate) fn segment(&self, number: u32) -> Option<(usize, Range<usize>)> {
        let number = usize::try_from(number).ok()?;
        let place = number.checked_rem(self.segments.len())?;
        Some((number / self.segments.len(), self.segments.get(place)?.clone()))
    }
}

/// Returns the bytes of the longest Send of a group, where `threshold` bounds other messages. The peer's segments may go
/// up to more.
pub(crate) fn longest_send(targets: Option<&Targets>, threshold: usize) -> usize {
    targets.map_or(threshold, |targets| targets.longest_send(threshold))
}

/// A message divided among Sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrangement {
    /// The Sends in order.
    pub(crate) sends: Vec<ArrangedSend>,
    /// The Send that has the header of the message.
    headed: Headed,
    /// The operation in that header, if the Sends are transmissions of a group.
    pub(super) lead: Option<Box<Operation>>,
    /// The directions of that operation for a reply, with their memory, once the operation is taken.
    pub(super) directions: Option<Vec<ResponseDirection>>,
    /// The items that are placed.
    pub(crate) items: Vec<Bytes>,
}

/// The contents of one Send after its header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrangedSend {
    /// Bytes of the Payload stream, the next ones.
    pub(crate) payload: usize,
    /// Runs in targetable segments, in ascending order.
    pub(crate) placed: Vec<PlacedRun>,
}

/// A part of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedRun {
    /// The number of the segment in its group.
    pub(crate) segment: u32,
    /// The offset of the segment in its Send; the bytes before it are unused.
    pub(crate) at: usize,
    /// The index of the item.
    pub(crate) item: usize,
    /// The bytes of the item.
    pub(crate) range: Range<usize>,
}

/// The Send that has the header of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headed {
    /// The first (rtrext-02 §4.1). It may have nothing of the Payload stream.
    First,
    /// The last (version-two-07 §6.6.2), which has some of it.
    Last,
}

/// The bounds of an arrangement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// The receiver's segments for items.
    pub(crate) targets: Option<&'a Targets>,
    /// The Send that has the header of the message.
    pub(crate) headed: Headed,
    /// Bytes of the longest Send.
    pub(crate) send: usize,
    /// Bytes of the header of each other Send.
    pub(crate) further_header: usize,
    /// The most Sends.
    pub(crate) most: usize,
}

impl Bounds<'_> {
    /// Returns the bounds of parts; `None` in a version without parts, or if there may be only one Send.
    pub(crate) fn of_parts(codec: &dyn Codec, send: usize, most: usize) -> Option<Self> {
        let further_header = codec.rules().two?.part_header.filter(|_| most > 1)?;
        Some(Self { targets: None, headed: Headed::Last, send, further_header, most })
    }

    /// Returns the bytes of the Payload stream that fit after a header of so many bytes.
    fn payload_behind(&self, header: usize) -> Option<usize> {
        let room = self.send.checked_sub(header)?;
        Some(room - room % UNIT)
    }

    /// Returns the bytes of the longest message without items that [`arrange`] divides, if the header of the message has
    /// so many; `None` if no header fits.
    pub(crate) fn capacity(&self, header: usize) -> Option<usize> {
        let further = self.payload_behind(self.further_header)?.saturating_mul(self.most.saturating_sub(1));
        Some(further.saturating_add(self.payload_behind(header)?))
    }
}

impl Arrangement {
    /// Returns the number of Sends.
    pub(crate) fn count(&self) -> usize {
        self.sends.len()
    }

    /// Returns the form of the message; `reduced` if items of it are in chunks.
    pub(crate) fn form(&self, reduced: bool) -> Form {
        match (self.items.is_empty(), self.sends.len() > 1, reduced) {
            (false, ..) => Form::Placed,
            (true, true, _) => Form::Continued,
            (true, false, true) => Form::Reduced,
            (true, false, false) => Form::Inline,
        }
    }

    /// Returns the group with this first operation and these items. Fills in the segments of the items, the number of
    /// Sends, and the bytes of the Payload stream in the first.
    pub(crate) fn with_lead(mut self, mut lead: Operation, items: Vec<Bytes>) -> Self {
        if let Operation::Request(TransmitRequest { placed, count, payload_len, .. })
        | Operation::Response(TransmitResponse { placed, count, payload_len }) = &mut lead
        {
            *count = narrow(self.sends.len());
            *payload_len = narrow(self.sends.first().map_or(0, |send| send.payload));
            let locations = placed.iter_mut().filter_map(|item| match &mut item.location {
                Location::Targets { segments, .. } => Some(segments),
                _ => None,
            });
            locations.enumerate().for_each(|(item, segments)| *segments = self.segments(item).collect());
        }
        self.lead = Some(Box::new(lead));
        self.items = items;
        self
    }

    /// Returns the number of the Send with the header of the message.
    pub(crate) fn headed(&self) -> usize {
        match self.headed {
            Headed::First => 0,
            Headed::Last => self.sends.len().saturating_sub(1),
        }
    }

    /// Returns the numbers of the segments of an item, which begins at the first of them.
    pub(crate) fn segments(&self, item: usize) -> impl Iterator<Item = u32> {
        let placed = self.sends.iter().flat_map(|send| &send.placed);
        placed.filter(move |run| run.item == item).map(|run| run.segment)
    }

    /// Returns the Payload stream as the Sends carry it. Nothing is copied.
    pub(crate) fn split(&self, payload: &Stream) -> Vec<Stream> {
        if let [_] = &self.sends[..] {
            return vec![payload.clone()];
        }
        split(payload, self.sends.iter().map(|send| send.payload))
    }

    /// Appends the items of a Send after its first `at` bytes.
    pub(crate) fn put_items(&self, send: &ArrangedSend, mut at: usize, behind: &mut Stream) {
        for run in &send.placed {
            put_nothing(run.at.saturating_sub(at), behind);
            let item = self.items.get(run.item);
            let item = item.map(|item| item.slice(run.range.clone())).unwrap_or_default();
            at = run.at + item.len();
            behind.push(Piece::Inline(item));
        }
    }
}

/// Zeroes between the Payload stream and the segment of an item (rtrext-02 §11: no data of ours).
static NOTHING: [u8; 4096] = [0; 4096];

fn put_nothing(mut len: usize, out: &mut Stream) {
    while len > 0 {
        let now = len.min(NOTHING.len());
        out.push(Piece::Inline(Bytes::from_static(&NOTHING).slice(..now)));
        len -= now;
    }
}

/// Divides a message of `payload` bytes and items of these lengths, none of them without bytes. `header` says how long
/// the header of the message is if items lie in so many segments each. `None` if that takes more Sends than there may be.
pub(crate) fn arrange(
    bounds: &Bounds<'_>,
    payload: usize,
    items: &[usize],
    header: impl Fn(&[usize]) -> usize,
) -> Option<Arrangement> {
    let mut counts = vec![1; items.len()];
    // A longer header can push an item into other segments, and those make it longer; never shorter.
    loop {
        let arrangement = fill(bounds, payload, items, header(&counts))?;
        let lie_in = || (0..items.len()).map(|item| arrangement.segments(item).count());
        if lie_in().zip(&counts).all(|(now, counted)| now <= *counted) {
            return Some(arrangement);
        }
        counts.iter_mut().zip(lie_in()).for_each(|(counted, now)| *counted = now.max(*counted));
    }
}

/// Divides a message whose header has at most this length.
fn fill(bounds: &Bounds<'_>, payload: usize, items: &[usize], header: usize) -> Option<Arrangement> {
    let headed = bounds.payload_behind(header)?.min(payload);
    let others = payload - headed;
    let mut lengths = Vec::new();
    if others > 0 {
        let each = bounds.payload_behind(bounds.further_header).filter(|each| *each > 0)?;
        if !payload.is_multiple_of(UNIT) || others.div_ceil(each) >= bounds.most {
            return None;
        }
        lengths.extend((0..others).step_by(each).map(|start| each.min(others - start)));
    }
    match bounds.headed {
        Headed::First => lengths.insert(0, headed),
        Headed::Last if headed == 0 => return None,
        Headed::Last => lengths.push(headed),
    }
    let sends = lengths.into_iter().map(|payload| ArrangedSend { payload, placed: vec![] }).collect();
    let mut arrangement =
        Arrangement { sends, headed: bounds.headed, lead: None, directions: None, items: vec![] };
    place(&mut arrangement.sends, bounds, items, header)?;
    Some(arrangement)
}

/// Places items after all of the Payload stream, from the last of these Sends on. The first has a header of `header`
/// bytes.
fn place(sends: &mut Vec<ArrangedSend>, bounds: &Bounds<'_>, items: &[usize], header: usize) -> Option<()> {
    let mut lengths = items.iter().copied().enumerate();
    let mut item = lengths.next();
    let mut done = 0;
    let mut index = sends.len().saturating_sub(1);
    while item.is_some() {
        let targets = bounds.targets?;
        if index == sends.len() {
            sends.push(ArrangedSend::default());
        }
        let send = sends.get_mut(index).filter(|_| index < bounds.most)?;
        let at = send.payload + if index == 0 { header } else { bounds.further_header };
        for (number, target) in targets.segments.iter().enumerate() {
            let Some((which, len)) = item else { break };
            let now = (len - done).min(target.len());
            // An item that continues fills its segment.
            if target.start < at || target.start + now > bounds.send {
                continue;
            }
            let segment = u32::try_from(targets.segments.len() * index + number).ok()?;
            send.placed.push(PlacedRun { segment, at: target.start, item: which, range: done..done + now });
            done += now;
            if done == len {
                (item, done) = (lengths.next(), 0);
            }
        }
        // No item fits, nor would one in a further Send.
        if index > 0 && send.payload == 0 && send.placed.is_empty() {
            return None;
        }
        index += 1;
    }
    Some(())
}

/// Cuts a stream into parts of these lengths. Nothing is copied.
fn split(stream: &Stream, lengths: impl Iterator<Item = usize>) -> Vec<Stream> {
    let mut pieces = stream.pieces().iter().cloned();
    let mut next = pieces.next();
    let part = |len: usize| {
        let mut part = Stream::new();
        while let Some(piece) = next.take() {
            let room = len.saturating_sub(part.len());
            if piece.len() <= room {
                part.push(piece);
                next = pieces.next();
            } else {
                let (here, after) = split_piece(piece, room);
                part.push(here);
                next = Some(after);
                break;
            }
        }
        part
    };
    lengths.map(part).collect()
}

/// Cuts a piece at a multiple of four below its length: its pad, if it has one, stays behind the second part.
fn split_piece(piece: Piece, at: usize) -> (Piece, Piece) {
    let cut = |mut data: Bytes| {
        let after = data.split_off(at.min(data.len()));
        (data, after)
    };
    match piece {
        Piece::Inline(data) => {
            let (here, after) = cut(data);
            (Piece::Inline(here), Piece::Inline(after))
        }
        Piece::Payload { data, .. } => {
            let (here, after) = cut(data);
            let payload = |data| Piece::Payload { data, ddp_eligible: false };
            (payload(here), payload(after))
        }
    }
}

#[cfg(test)]
mod tests;
