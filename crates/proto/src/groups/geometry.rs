//! Where placed items lie in the Receives of a transmission group (rtrext-02 §6.2, §7.2, §7.3).
//!
//! A receiver says how its Receives are structured; [`Targets`] are the parts of that structure that items can be placed in.
//! [`arrange`] divides a message among Sends so that items begin where such a part begins, and says what is put between. Numbers
//! only: no buffer is owned here, and nothing fails but by not fitting.

use std::ops::Range;

use crate::wire::two::transmission::BufferStructure;

/// The most targetable segments in a Receive that are looked at: pages in the longest one that there is.
const MOST_TARGETS: u64 = 64;

/// The targetable segments of each Receive of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    segments: Vec<Range<usize>>,
    /// Bytes of a Receive; 0 if there are no segments. It is never less while the connection lives.
    total: usize,
}

impl Targets {
    /// Those of a structure; none if it is not consistent, or has more of them than anybody needs.
    pub(crate) fn of(structure: &BufferStructure) -> Self {
        let count = structure.targets();
        if structure.check().is_err() || count > MOST_TARGETS {
            return Self::default();
        }
        let segments = (0..count).filter_map(|number| structure.target(number)).filter_map(|segment| {
            let start = usize::try_from(segment.offset).ok()?;
            Some(start..start + usize::try_from(segment.length).ok()?)
        });
        let segments: Vec<_> = segments.collect();
        let total = if segments.is_empty() { 0 } else { usize::try_from(structure.total).unwrap_or(0) };
        Self { segments, total }
    }

    /// Bytes of the longest Send: a threshold, or as much as the segments go up to. How long Sends are is the sender's choice, and who
    /// has such segments wants them to be used.
    pub(crate) fn longest_send(&self, threshold: usize) -> usize {
        threshold.max(self.total)
    }

    /// Bytes of a Receive; 0 if items cannot be placed in it.
    pub(crate) const fn receive(&self) -> usize {
        self.total
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// How many a group of so many transmissions has, used or not (rtrext-02 §6.2).
    pub(crate) fn in_group(&self, transmissions: usize) -> usize {
        self.segments.len().saturating_mul(transmissions)
    }

    /// In which transmission of its group a segment is, and where there.
    pub(crate) fn segment(&self, number: u32) -> Option<(usize, Range<usize>)> {
        let number = usize::try_from(number).ok()?;
        let place = number.checked_rem(self.segments.len())?;
        Some((number / self.segments.len(), self.segments.get(place)?.clone()))
    }
}

/// A message divided among Sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrangement {
    pub(crate) sends: Vec<ArrangedSend>,
    /// For each item the numbers of the segments that it lies in; it begins where the first of them does.
    pub(crate) segments: Vec<Vec<u32>>,
}

/// What one Send carries behind its header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArrangedSend {
    /// Bytes of the Payload stream, the next ones.
    pub(crate) payload: usize,
    /// What lies in targetable segments, in ascending order.
    pub(crate) placed: Vec<PlacedRun>,
}

/// A part of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedRun {
    /// Where it begins in its Send; up to there is nothing.
    pub(crate) at: usize,
    /// Of which item.
    pub(crate) item: usize,
    /// Which bytes of that.
    pub(crate) range: Range<usize>,
}

/// What bounds an arrangement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    /// The receiver's.
    pub(crate) targets: &'a Targets,
    /// Bytes of the longest Send.
    pub(crate) send: usize,
    /// Bytes of the header of each Send but the first.
    pub(crate) further_header: usize,
    /// Sends, at most.
    pub(crate) most: usize,
}

/// The Payload stream is cut at multiples of this, bytes.
const UNIT: usize = 4;

/// Divides a message of `payload` bytes and items of these lengths, none of them without bytes; `first_header` says how long the header of the first Send is
/// if items lie in so many segments each. `None` if that takes more Sends than there may be.
pub(crate) fn arrange(
    bounds: &Bounds<'_>,
    payload: usize,
    items: &[usize],
    first_header: impl Fn(&[usize]) -> usize,
) -> Option<Arrangement> {
    let mut counts = vec![1; items.len()];
    // A longer header can push an item into other segments, and those make it longer; never shorter.
    loop {
        let arrangement = fill(bounds, payload, items, first_header(&counts))?;
        let lie_in = || arrangement.segments.iter().map(Vec::len);
        if lie_in().zip(&counts).all(|(now, counted)| now <= *counted) {
            return Some(arrangement);
        }
        counts.iter_mut().zip(lie_in()).for_each(|(counted, now)| *counted = now.max(*counted));
    }
}

/// The same, the header of the first Send having this length at the most.
fn fill(bounds: &Bounds<'_>, payload: usize, items: &[usize], first_header: usize) -> Option<Arrangement> {
    let mut arrangement = Arrangement { sends: vec![], segments: vec![vec![]; items.len()] };
    let mut left = payload;
    let mut lengths = items.iter().copied().enumerate();
    let mut item = lengths.next();
    let mut done = 0;
    loop {
        let index = arrangement.sends.len();
        if index == bounds.most {
            return None;
        }
        let header = if index == 0 { first_header } else { bounds.further_header };
        let room = bounds.send.checked_sub(header)?;
        let mut send = ArrangedSend { payload: left.min(room - room % UNIT), placed: vec![] };
        left -= send.payload;
        let mut at = header + send.payload;
        // Items come behind all of the Payload.
        for (place, target) in bounds.targets.segments.iter().enumerate().filter(|_| left == 0) {
            let Some((which, len)) = item else { break };
            let now = (len - done).min(target.len());
            // What goes on fills its segment.
            if target.start < at || now == 0 || target.start + now > bounds.send {
                continue;
            }
            let number = bounds.targets.segments.len() * index + place;
            arrangement.segments.get_mut(which)?.push(u32::try_from(number).ok()?);
            send.placed.push(PlacedRun { at: target.start, item: which, range: done..done + now });
            at = target.start + now;
            done += now;
            if done == len {
                (item, done) = (lengths.next(), 0);
            }
        }
        let empty = index > 0 && send.payload == 0 && send.placed.is_empty();
        arrangement.sends.push(send);
        match (left, item) {
            (0, None) => return Some(arrangement),
            // Nothing fits, and nothing will.
            _ if empty => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn targets(segments: &[Range<usize>]) -> Targets {
        Targets { segments: segments.to_vec(), total: segments.last().map_or(0, |last| last.end) }
    }

    fn bounds(targets: &Targets, send: usize, most: usize) -> Bounds<'_> {
        Bounds { targets, send, further_header: 40, most }
    }

    fn header(counts: &[usize]) -> usize {
        60 + counts.iter().map(|count| 20 + 4 * count).sum::<usize>()
    }

    /// rtissues-03 §3.3: behind the Payload, up to where the segment begins, there is nothing.
    #[test]
    fn rtrext_s7_2_an_item_lies_where_a_segment_begins() {
        let (first, second) = (1024..9216, 9216..17408);
        let targets = targets(&[first, second]);
        let arranged = arrange(&bounds(&targets, 17408, 1), 200, &[8192], header).unwrap();
        let run = PlacedRun { at: 1024, item: 0, range: 0..8192 };
        assert_eq!(arranged.sends, [ArrangedSend { payload: 200, placed: vec![run] }]);
        assert_eq!(arranged.segments, [[0]]);
    }

    #[test]
    fn rtrext_s6_2_segments_used_for_the_payload_have_numbers_too() {
        let targets = targets(&[512..1024, 1024..2048]);
        let arranged = arrange(&bounds(&targets, 2048, 1), 500, &[100], header).unwrap();
        assert_eq!(arranged.segments, [[1]]);
    }

    /// rtrext-02 §7.3: an item goes on in the segments that are listed.
    #[test]
    fn rtrext_s7_3_an_item_goes_on_in_further_sends() {
        let targets = targets(&[Range { start: 1024, end: 5120 }]);
        let arranged = arrange(&bounds(&targets, 5120, 3), 100, &[10_000], header).unwrap();
        assert_eq!(arranged.segments, [[0, 1, 2]]);
        let runs: Vec<_> = arranged.sends.iter().map(|send| send.placed[0].range.clone()).collect();
        assert_eq!(runs, [0..4096, 4096..8192, 8192..10_000]);
        assert!(arranged.sends.iter().all(|send| send.placed[0].at == 1024));
        assert_eq!(arrange(&bounds(&targets, 5120, 2), 100, &[10_000], header), None);
    }

    #[test]
    fn without_targets_nothing_is_placed() {
        let none = Targets::default();
        assert_eq!(arrange(&bounds(&none, 4096, 8), 100, &[8], header), None);
        let plain = arrange(&bounds(&none, 1024, 8), 2000, &[], header).unwrap();
        assert_eq!(plain.sends.iter().map(|send| send.payload).collect::<Vec<_>>(), [964, 984, 52]);
        assert_eq!(arrange(&bounds(&none, 32, 8), 100, &[], header), None);
    }

    proptest! {
        /// Everything is sent once, in order, and items lie in the segments that are said.
        #[test]
        fn nothing_is_lost_and_all_items_lie_in_targets(
            lengths in prop::collection::vec((0_usize..300, 1_usize..600), 0..6),
            send in 100_usize..2000,
            payload in (0_usize..3000).prop_map(|len| len * 4),
            items in prop::collection::vec(1_usize..2500, 0..4),
        ) {
            let mut at = 0;
            let mut segments = Vec::new();
            for (gap, len) in lengths {
                segments.push(at + gap..at + gap + len);
                at += gap + len;
            }
            let targets = targets(&segments);
            let Some(arranged) = arrange(&bounds(&targets, send, 12), payload, &items, header) else {
                return Ok(());
            };
            let counts: Vec<usize> = arranged.segments.iter().map(Vec::len).collect();
            prop_assert_eq!(arranged.sends.iter().map(|send| send.payload).sum::<usize>(), payload);
            let mut found: Vec<Vec<(u32, Range<usize>)>> = vec![vec![]; items.len()];
            for (index, one) in arranged.sends.iter().enumerate() {
                let mut at = one.payload + if index == 0 { header(&counts) } else { 40 };
                for run in &one.placed {
                    prop_assert!(run.at >= at);
                    at = run.at;
                    let number = segments.iter().position(|segment| segment.start == at).unwrap();
                    at += run.range.len();
                    prop_assert!(at <= segments[number].end);
                    let number = u32::try_from(index * segments.len() + number).unwrap();
                    found[run.item].push((number, run.range.clone()));
                }
                prop_assert!(at <= send);
            }
            for ((runs, numbers), len) in found.iter().zip(&arranged.segments).zip(&items) {
                prop_assert_eq!(&runs.iter().map(|(number, _)| *number).collect::<Vec<_>>(), numbers);
                let mut end = 0;
                for (number, range) in runs {
                    prop_assert_eq!(range.start, end);
                    end = range.end;
                    // All but the last are used up.
                    let segment = targets.segment(*number).unwrap().1;
                    prop_assert!(end == *len || segment.len() == range.len());
                }
                prop_assert_eq!(end, *len);
            }
        }
    }
}
