use proptest::prelude::*;

use super::*;
use crate::wire::two::p3::V2P3;
use crate::wire::v1::V1;
use crate::wire::{ChunkLists, Direction};

fn targets(segments: &[Range<usize>]) -> Targets {
    Targets { segments: segments.to_vec(), total: segments.last().map_or(0, |last| last.end) }
}

fn bounds(targets: &Targets, send: usize, most: usize) -> Bounds<'_> {
    Bounds { targets: Some(targets), headed: Headed::First, send, further_header: 40, most }
}

/// The segments of the first item.
fn segments(arrangement: &Arrangement) -> Vec<u32> {
    arrangement.segments(0).collect()
}

fn payloads(arrangement: &Arrangement) -> Vec<usize> {
    arrangement.sends.iter().map(|send| send.payload).collect()
}

fn header(counts: &[usize]) -> usize {
    60 + counts.iter().map(|count| 20 + 4 * count).sum::<usize>()
}

/// Rule I5: a peer's structure is used if it is consistent, and has no more segments than are ever used.
#[test]
fn i5_segments_of_a_peer_are_bounded_and_consistent() {
    let of = |count| Targets::of(&BufferStructure::with_items(count, 1024));
    assert_eq!(of(64).map(|targets| targets.in_group(1)), Some(64));
    assert_eq!((of(65), of(1 << 20)), (None, None));
    let mut structure = BufferStructure::with_items(2, 1024);
    structure.total -= 4;
    assert_eq!(Targets::of(&structure), None, "its sum is another");
}

/// rtissues-03 §3.3: nothing lies between the Payload and the beginning of the segment.
#[test]
fn rtrext_s7_2_an_item_lies_where_a_segment_begins() {
    let (first, second) = (1024..9216, 9216..17408);
    let targets = targets(&[first, second]);
    let arranged = arrange(&bounds(&targets, 17408, 1), 200, &[8192], header).unwrap();
    let run = PlacedRun { segment: 0, at: 1024, item: 0, range: 0..8192 };
    assert_eq!(arranged.sends, [ArrangedSend { payload: 200, placed: vec![run] }]);
    assert_eq!(segments(&arranged), [0]);
}

#[test]
fn rtrext_s6_2_segments_used_for_the_payload_have_numbers_too() {
    let targets = targets(&[512..1024, 1024..2048]);
    let arranged = arrange(&bounds(&targets, 2048, 1), 500, &[100], header).unwrap();
    assert_eq!(segments(&arranged), [1]);
}

/// rtrext-02 §7.3: an item goes on in the segments that are listed.
#[test]
fn rtrext_s7_3_an_item_goes_on_in_further_sends() {
    let targets = targets(&[Range { start: 1024, end: 5120 }]);
    let arranged = arrange(&bounds(&targets, 5120, 3), 100, &[10_000], header).unwrap();
    assert_eq!(segments(&arranged), [0, 1, 2]);
    let runs: Vec<_> = arranged.sends.iter().map(|send| send.placed[0].range.clone()).collect();
    assert_eq!(runs, [0..4096, 4096..8192, 8192..10_000]);
    assert!(arranged.sends.iter().all(|send| send.placed[0].at == 1024));
    assert_eq!(arrange(&bounds(&targets, 5120, 2), 100, &[10_000], header), None);
}

#[test]
fn without_targets_nothing_is_placed() {
    let bounds = |send| Bounds { targets: None, headed: Headed::First, send, further_header: 40, most: 8 };
    assert_eq!(arrange(&bounds(4096), 100, &[8], header), None);
    let plain = arrange(&bounds(1024), 2000, &[], header).unwrap();
    assert_eq!(payloads(&plain), [964, 984, 52]);
    assert_eq!(arrange(&bounds(32), 100, &[], header), None);
}

/// rtrext-02 §7.2: an item may begin where the Payload ends.
#[test]
fn rtrext_s7_2_no_gap_is_needed_behind_the_payload() {
    let used = |start| {
        let targets = targets(&[Range { start, end: 1000 }]);
        arrange(&bounds(&targets, 1000, 1), 200, &[100], header).as_ref().map(segments)
    };
    // A header of 84 bytes and a Payload of 200.
    assert_eq!((used(284), used(283)), (Some(vec![0]), None));
}

/// A Send whose Payload leaves no segment free is followed by one whose segments are.
#[test]
fn rtrext_s7_2_an_item_takes_the_first_send_with_a_free_segment() {
    let early = targets(&[Range { start: 50, end: 600 }]);
    let arranged = arrange(&bounds(&early, 600, 2), 0, &[100], header).unwrap();
    assert_eq!((segments(&arranged), payloads(&arranged)), (vec![1], vec![0, 0]));
    let late = targets(&[Range { start: 300, end: 600 }]);
    let arranged = arrange(&bounds(&late, 600, 3), 516 + 400, &[200], header).unwrap();
    assert_eq!((segments(&arranged), payloads(&arranged)), (vec![2], vec![516, 400, 0]));
}

/// The header of a further Send matters only if there is one.
#[test]
fn a_further_send_needs_room_behind_its_header() {
    let sends = |payload, further_header| {
        let bounds = Bounds { targets: None, headed: Headed::First, send: 40, further_header, most: 8 };
        arrange(&bounds, payload, &[], |_| 20).as_ref().map(payloads)
    };
    for further_header in [40, 41] {
        assert_eq!((sends(20, further_header), sends(24, further_header)), (Some(vec![20]), None));
    }
    assert_eq!(sends(24, 36), Some(vec![20, 4]));
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| at.to_le_bytes()[0]).collect()
}

/// Bytes of the header of the last part of a Call.
fn call_header() -> usize {
    V2P3.header_len(&ChunkLists::default().shape(Direction::Call))
}

/// The parts of a message of `len` bytes, whose last has a header of `header` bytes.
fn parts(codec: &dyn Codec, send: usize, header: usize, len: usize, most: usize) -> Option<Arrangement> {
    arrange(&Bounds::of_parts(codec, send, most)?, len, &[], |_| header)
}

#[test]
fn a_message_is_cut_into_as_few_sends_as_possible() {
    // Parts of 44 bytes each, the last of 32 bytes.
    let cut = |len, most| parts(&V2P3, 64, call_header(), len, most).as_ref().map(payloads);
    assert_eq!(cut(36, 2), Some(vec![4, 32]));
    assert_eq!(cut(76, 2), Some(vec![44, 32]));
    assert_eq!(cut(80, 2), None);
    assert_eq!(cut(80, 3), Some(vec![44, 4, 32]));
    assert_eq!(cut(4, 3), Some(vec![4]), "nothing is left for a second part");
    assert_eq!((cut(81, 9), cut(33, 9)), (None, None), "no XDR message");
    assert_eq!(parts(&V1, 64, 28, 80, 9), None, "no such version");
    assert_eq!(parts(&V2P3, 64, 64, 80, 9), None, "no room behind the header of the last");
}

proptest! {
    #[test]
    fn all_of_a_stream_is_in_its_parts(
        pieces in prop::collection::vec((0_usize..100, any::<bool>()), 0..8),
        send in 48_usize..200,
    ) {
        let mut stream = Stream::new();
        for (len, payload) in pieces {
            stream.push(if payload {
                Piece::Payload { data: bytes(len), ddp_eligible: true }
            } else {
                Piece::Inline(bytes(len * 4))
            });
        }
        if let Some(arranged) = parts(&V2P3, send, call_header(), stream.len(), usize::MAX) {
            let mut parts = arranged.split(&stream);
            prop_assert_eq!(parts.iter().map(Stream::len).collect::<Vec<_>>(), payloads(&arranged));
            let together: Vec<u8> = parts.iter().flat_map(|part| part.flatten().0.to_vec()).collect();
            prop_assert_eq!(together, stream.flatten().0.to_vec());
            let rest = parts.pop().unwrap();
            prop_assert!(parts.iter().all(|part| part.len() + 20 <= send && !part.is_empty()));
            prop_assert!(rest.len() + call_header() <= send && !rest.is_empty());
        }
    }

    /// Every byte leaves once, in order, and each item lies in its listed segments.
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
        let numbers: Vec<Vec<u32>> =
            (0..items.len()).map(|item| arranged.segments(item).collect()).collect();
        let counts: Vec<usize> = numbers.iter().map(Vec::len).collect();
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
        for ((runs, numbers), len) in found.iter().zip(&numbers).zip(&items) {
            prop_assert_eq!(&runs.iter().map(|(number, _)| *number).collect::<Vec<_>>(), numbers);
            let mut end = 0;
            for (number, range) in runs {
                prop_assert_eq!(range.start, end);
                end = range.end;
                // All segments but the last are full.
                let segment = targets.segment(*number).unwrap().1;
                prop_assert!(end == *len || segment.len() == range.len());
            }
            prop_assert_eq!(end, *len);
        }
    }
}

/// Rtrext-02 §7.2: each item lies where its segment begins, behind zeroes of any number.
#[test]
fn rtrext_s7_2_two_items_of_a_send_lie_in_their_segments() {
    for gap in [0, 1, 5000] {
        let start = 1024 + gap;
        let targets = targets(&[start..start + 100, start + 200..start + 300]);
        let arranged = arrange(&bounds(&targets, start + 300, 1), 200, &[50, 60], header).unwrap();
        let items = vec![Bytes::from(vec![1; 50]), Bytes::from(vec![2; 60])];
        let arranged = Arrangement { items, ..arranged };
        // The Payload ends where the gap begins.
        let mut behind = Stream::new();
        arranged.put_items(&arranged.sends[0], 1024, &mut behind);
        let (bytes, _) = behind.flatten();
        assert_eq!(bytes.len(), gap + 200 + 60, "{gap}");
        assert!(bytes[..gap].iter().all(|byte| *byte == 0));
        assert!(bytes[gap..gap + 50].iter().all(|byte| *byte == 1));
        assert!(bytes[gap + 50..gap + 200].iter().all(|byte| *byte == 0));
        assert!(bytes[gap + 200..].iter().all(|byte| *byte == 2));
    }
}

/// Rule I5: the search for segments ends for every structure of a peer. Here a longer description moves the first item, and
/// a shorter one moves it back.
#[test]
fn i5_the_search_for_segments_ends() {
    let targets = targets(&[
        Range { start: 116, end: 117 },
        Range { start: 117, end: 118 },
        Range { start: 118, end: 119 },
        Range { start: 120, end: 125 },
        Range { start: 200, end: 300 },
        Range { start: 300, end: 304 },
        Range { start: 304, end: 404 },
    ]);
    let arranged = arrange(&bounds(&targets, 404, 1), 0, &[8, 50], header).unwrap();
    assert_eq!(arranged.segments(0).collect::<Vec<_>>(), [4]);
    assert_eq!(arranged.segments(1).collect::<Vec<_>>(), [5, 6]);
}

/// Items lie behind all of the Payload stream, so the Send with its end is the first that may have one.
#[test]
fn no_item_lies_before_the_end_of_the_payload() {
    let targets = targets(&[Range { start: 100, end: 102 }]);
    let arranged = arrange(&bounds(&targets, 102, 3), 60, &[2], |_| 80).unwrap();
    assert_eq!(arranged.sends.first().map(|send| send.placed.len()), Some(0));
    assert!(segments(&arranged)[0] > 0);
}

/// Rtrext-02 §8.1: a structure without segments for items has no targets. A threshold above the Receive counts.
#[test]
fn rtrext_s8_1_a_plain_structure_has_no_targets() {
    assert_eq!(Targets::of(&BufferStructure::default_of(4096)), None);
    let targets = targets(&[Range { start: 1024, end: 2048 }]);
    assert_eq!((targets.longest_send(1024), targets.longest_send(4096)), (2048, 4096));
}
