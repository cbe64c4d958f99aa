use proptest::prelude::*;

use super::*;
use crate::wire::ddp::Untagged;
use crate::wire::fpdu::FpduView;
use crate::wire::hex::hex;
use crate::wire::marker::{INTERVAL, MARKER_LEN, fpdu_pointer};

fn send_header(msn: u32) -> [u8; 18] {
    Untagged { last: true, control: 0x43, invalidate: 0, queue: 0, msn, offset: 0 }.encode()
}

fn lay_out(output: &mut Output, msn: u32, payload: Vec<Vec<u8>>) {
    let mut gather = Gather::new(payload.into_iter().map(Bytes::from).collect());
    let length = gather.remaining();
    output.fpdu(&[&send_header(msn)], &mut gather, length, Finish::Send(WrId(u64::from(msn))));
}

fn flatten(output: &Output) -> Vec<u8> {
    output.with_slices(|slices, _| slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>())
}

/// Returns all queued bytes, written by system calls of at most `step` bytes.
fn drain(output: &mut Output, step: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    while !output.is_empty() {
        let mut next = flatten(output);
        next.truncate(step);
        output.wrote(next.len());
        stream.extend_from_slice(&next);
    }
    stream
}

// requirement: rfc5044-4.2-1, rfc5044-4.2-2, rfc5044-4.3-1, rfc5044-4.3-2, rfc5044-4.3-3, rfc5044-4.3-5
// requirement: rfc5044-4.3-7, rfc5044-4.3-9, rfc5044-4.4-8, rfc5044-4.4-9
#[test]
fn rfc5044_figure_5_the_first_fpdu_opens_with_a_marker() {
    let mut output = Output::new(true, true);
    lay_out(&mut output, 1, vec![vec![0; 24]]);
    let mut figure = hex("00000000 002a 4143 00000000 00000000 00000001 00000000");
    figure.extend_from_slice(&[0; 24]);
    figure.extend_from_slice(&hex("52239983"));
    assert_eq!(flatten(&output), figure);
}

// requirement: rfc5044-4.2-1, rfc5044-4.2-2, rfc5044-4.3-1, rfc5044-4.3-2, rfc5044-4.3-3, rfc5044-4.3-9
// requirement: rfc5044-4.4-8, rfc5044-4.4-9
#[test]
fn rfc5044_figure_6_a_marker_inside_the_second_fpdu() {
    // The first FPDU takes bytes 0 to 0x1ec of the stream, its marker included.
    let mut output = Output::new(true, true);
    lay_out(&mut output, 1, vec![vec![0; 492 - 4 - 6 - 18]]);
    assert_eq!(drain(&mut output, usize::MAX).len(), 492);
    // The payload is scattered: the marker stands between two slices of it.
    lay_out(&mut output, 2, vec![vec![0; 7], vec![0; 17]]);
    let mut figure = hex("002a 4143 00000000 00000000 00000002 00000000 00000014");
    figure.extend_from_slice(&[0; 24]);
    figure.extend_from_slice(&hex("84925898"));
    assert_eq!(flatten(&output), figure);
}

// requirement: rfc5044-4.4-9
#[test]
fn rfc5044_4_4_a_marker_after_the_pad_is_covered() {
    // 4 + 2 + 18 + 488 = 512: the pad ends where the second marker is due.
    let mut output = Output::new(true, true);
    lay_out(&mut output, 1, vec![vec![7; 488]]);
    let stream = flatten(&output);
    assert_eq!(stream.len(), 512 + 4 + 4);
    assert_eq!(&stream[512..516], &marker(508));
    let mut crc = Crc::new();
    crc.update(&stream[..516]);
    assert_eq!(stream[516..], crc.wire());
}

/// RFC 5044 §4.1: the pad, and without CRCs their field too.
// requirement: rfc5044-4.1-1, rfc5044-4.1-2, rfc5044-4.4-8, rfc5044-4.4-9
#[test]
fn rfc5044_4_1_pads_are_zero() {
    for crc in [false, true] {
        let mut output = Output::new(crc, false);
        let payloads = [0, 1, 2, 3, 100].map(|length| vec![0xA5; length]);
        let mut expected = Vec::new();
        for (msn, payload) in (1..).zip(&payloads) {
            lay_out(&mut output, msn, vec![payload.clone()]);
            let ulpdu = [&send_header(msn)[..], payload].concat();
            expected.extend_from_slice(&u16::try_from(ulpdu.len()).unwrap().to_be_bytes());
            expected.extend_from_slice(&ulpdu);
            expected.resize(expected.len().next_multiple_of(4), 0);
            let start = expected.len() - 2 - ulpdu.len() - pad_len(ulpdu.len());
            let mut sum = Crc::new();
            sum.update(&expected[start..]);
            expected.extend_from_slice(&if crc { sum.wire() } else { [0; 4] });
        }
        assert_eq!(flatten(&output), expected);
    }
}

#[test]
fn small_messages_share_slices() {
    let mut output = Output::new(true, false);
    for msn in 1..=3 {
        lay_out(&mut output, msn, vec![vec![1; 100]]);
    }
    // Header and payload of each FPDU; the trailer of one shares a slice with the header of the next.
    assert_eq!(output.with_slices(|slices, _| slices.len()), 7);
}

#[test]
fn a_piece_leaves_with_its_last_byte() {
    let mut output = Output::new(true, false);
    lay_out(&mut output, 1, vec![vec![1; 100]]);
    let lengths = |output: &Output| {
        output.with_slices(|slices, _| slices.iter().map(|slice| slice.len()).collect::<Vec<_>>())
    };
    assert_eq!(lengths(&output), [20, 100, 4]);
    output.wrote(19);
    assert_eq!(lengths(&output), [1, 100, 4]);
    output.wrote(1);
    assert_eq!(lengths(&output), [100, 4]);
    output.wrote(104);
    assert_eq!(lengths(&output), [0; 0]);
}

#[test]
fn an_error_lets_only_the_current_fpdu_finish() {
    for written in [0, 1, 60, 127, 128, 130] {
        let mut output = Output::new(true, false);
        for msn in 1..=3 {
            lay_out(&mut output, msn, vec![vec![1; 102]]);
        }
        let whole = flatten(&output);
        assert_eq!(whole.len(), 3 * 128);
        output.wrote(written);
        while output.take_finished().is_some() {}
        output.cut_after_current();
        let kept = written.next_multiple_of(128);
        assert_eq!(output.queued(), kept - written);
        assert_eq!(flatten(&output), whole[written..kept]);
        lay_out(&mut output, 9, vec![vec![3; 2]]);
        let rest = drain(&mut output, 11);
        assert_eq!(FpduView::new(&rest[kept - written..]).crc_matches(), Some(true));
    }
}

/// Whatever an error cuts off, markers stay where they are due in the stream.
// requirement: rfc5044-4.3-1
#[test]
fn rfc5044_4_3_markers_stay_in_step_behind_an_error() {
    for written in [0, 1, 300, 430, 600, 870, 1200] {
        let mut output = Output::new(true, true);
        let starts = [1, 2, 3].map(|msn| {
            let start = output.queued();
            lay_out(&mut output, msn, vec![vec![1; 402]]);
            start
        });
        let begun = starts.iter().filter(|start| **start < written).count();
        let mut stream = flatten(&output);
        stream.truncate(written);
        output.wrote(written);
        while output.take_finished().is_some() {}
        output.cut_after_current();
        lay_out(&mut output, 9, vec![vec![3; 600]]);
        stream.extend(drain(&mut output, 11));
        let mut due = Output::new(true, true);
        for msn in (1..=3).take(begun) {
            lay_out(&mut due, msn, vec![vec![1; 402]]);
        }
        lay_out(&mut due, 9, vec![vec![3; 600]]);
        assert_eq!(stream, drain(&mut due, usize::MAX), "{written}");
    }
}

// requirement: rfc5040-5.5-5
#[test]
fn completions_follow_the_last_byte() {
    let mut output = Output::new(false, false);
    lay_out(&mut output, 1, vec![vec![1; 102]]);
    output.wrote(127);
    assert_eq!(output.take_finished(), None);
    output.wrote(1);
    assert_eq!(output.take_finished(), Some(Finish::Send(WrId(1))));
    assert!(output.is_empty());
}

/// Lays out FPDUs of these lengths.
fn lay_out_lengths(output: &mut Output, lengths: &[usize]) {
    for (msn, length) in lengths.iter().enumerate() {
        lay_out(output, u32::try_from(msn).unwrap(), vec![vec![1; length - 24]]);
    }
}

/// Returns the lengths of the runs that single system calls get.
fn runs(output: &mut Output) -> Vec<usize> {
    let mut runs = Vec::new();
    while !output.is_empty() {
        let run = output.with_slices(|slices, _| slices.iter().map(|slice| slice.len()).sum());
        output.wrote(run);
        while output.take_finished().is_some() {}
        runs.push(run);
    }
    runs
}

// requirement: rfc5044-5.1-3
#[test]
fn rfc5044_5_1_no_trailer_is_in_two_segments() {
    let mut output = Output::new(true, false);
    output.set_emss(128);
    lay_out_lengths(&mut output, &[128, 128, 64, 128, 128]);
    assert!(output.exceeds_segment());
    assert_eq!(runs(&mut output), [128 + 128 + 64 + 128 + 128]);
    // The second FPDU would end four bytes behind the end of a segment.
    lay_out_lengths(&mut output, &[68, 64, 128]);
    assert_eq!(runs(&mut output), [68, 64 + 128]);
    lay_out_lengths(&mut output, &[64, 64]);
    assert!(!output.exceeds_segment());
}

/// A single call suffices for many segments also where FPDUs are a little shorter than segments.
// requirement: rfc5044-5.1-3
#[test]
fn segment_sizes_that_are_no_multiple_of_four_cost_no_calls() {
    for (emss, fpdu, count) in [(1398, 1396, 100), (1459, 1456, 100), (65483, 61704, 4), (65483, 65480, 4)] {
        let mut output = Output::new(true, false);
        output.set_emss(emss);
        lay_out_lengths(&mut output, &vec![fpdu; count]);
        assert_eq!(runs(&mut output), [fpdu * count], "{emss}");
    }
}

#[test]
fn an_fpdu_longer_than_a_segment_is_not_stuck() {
    let mut output = Output::new(true, false);
    output.set_emss(100);
    // The position of its trailer does not matter.
    lay_out_lengths(&mut output, &[304, 36, 364]);
    assert_eq!(runs(&mut output), [340, 364]);
    output.set_emss(0);
    lay_out_lengths(&mut output, &[304]);
    assert_eq!(runs(&mut output), [304]);
}

#[test]
fn the_rest_of_an_fpdu_leaves_alone() {
    let mut output = Output::new(true, false);
    output.set_emss(128);
    lay_out_lengths(&mut output, &[128, 128, 128]);
    output.wrote(130);
    while output.take_finished().is_some() {}
    assert_eq!(runs(&mut output), [126, 128]);
}

#[test]
fn a_call_that_runs_out_of_slices_ends_with_an_fpdu() {
    let mut output = Output::new(true, false);
    output.set_emss(128);
    lay_out_lengths(&mut output, &[128; 200]);
    let first = runs(&mut output)[0];
    assert!(first > 100 * 128 && first.is_multiple_of(128), "{first}");
    // An FPDU with more pieces than fit is cut anywhere, and no segment needs to end there.
    lay_out(&mut output, 1, vec![vec![1]; 2 * MAX_SLICES]);
    assert!(output.with_slices(|slices, end_segment| slices.len() == MAX_SLICES && !end_segment));
    let all = runs(&mut output);
    assert!(all.len() > 1 && all.iter().sum::<usize>() == 2 * MAX_SLICES + 24, "{all:?}");
}

proptest! {
    #[test]
    fn rfc5044_5_1_segments_end_outside_of_trailers(
        payloads in proptest::collection::vec(0_usize..104, 1..60),
        emss in prop_oneof![Just(128_usize), 128_usize..600],
        short in proptest::collection::vec(1_usize..400, 0..6),
    ) {
        let mut output = Output::new(false, false);
        output.set_emss(emss);
        for (msn, payload) in payloads.iter().enumerate() {
            lay_out(&mut output, u32::try_from(msn).unwrap(), vec![vec![1; *payload]]);
        }
        let mut short = short.into_iter();
        // The rest of an FPDU that the kernel wrote in part.
        let mut rest = 0;
        while !output.is_empty() {
            prop_assert!(output.with_slices(|_, end_segment| end_segment));
            let lent = flatten(&output);
            let mut at = 0;
            if rest > 0 {
                prop_assert_eq!(lent.len(), rest);
                at = rest;
            }
            let mut ends = vec![at];
            while at < lent.len() {
                let fpdu = FpduView::new(&lent[at..]);
                let trailer = pad_len(fpdu.ulpdu().unwrap().len()) + CRC_LEN;
                at += fpdu.fpdu_len().unwrap();
                prop_assert!((at - trailer) / emss == (at - 1) / emss, "a trailer ends at {} of {}", at, emss);
                ends.push(at);
            }
            prop_assert_eq!(at, lent.len());
            let written = short.next().unwrap_or(usize::MAX).min(lent.len());
            rest = ends.iter().find(|&&end| end >= written).unwrap() - written;
            output.wrote(written);
            while output.take_finished().is_some() {}
        }
    }

    // requirement: rfc5044-4.3-2, rfc5044-4.3-3, rfc5044-4.3-7, rfc5044-4.3-8, rfc5044-4.3-9
    #[test]
    fn rfc5044_4_3_markers_come_out_again(
        payloads in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700), 0..4), 1..12),
        step in 1_usize..3000,
    ) {
        let mut output = Output::new(true, true);
        let mut plain = Output::new(false, false);
        for (msn, payload) in payloads.iter().enumerate() {
            let msn = u32::try_from(msn).unwrap();
            lay_out(&mut output, msn, payload.clone());
            lay_out(&mut plain, msn, payload.clone());
        }
        let stream = drain(&mut output, step);
        // Removes the markers, and checks each pointer against the FPDU chain.
        let mut starts = Vec::new();
        let mut stripped = Vec::new();
        let mut at = 0;
        let mut fpdu_start = 0;
        let mut left = 0_usize;
        let mut plain_at = 0;
        let expected = drain(&mut plain, usize::MAX);
        while at < stream.len() {
            if at % INTERVAL == 0 {
                let bytes = *stream[at..].first_chunk::<MARKER_LEN>().unwrap();
                let between = left == 0;
                prop_assert_eq!(usize::from(fpdu_pointer(bytes)), if between { 0 } else { at - fpdu_start });
                at += MARKER_LEN;
                continue;
            }
            if left == 0 {
                left = FpduView::new(&expected[plain_at..]).fpdu_len().unwrap();
                fpdu_start = at;
                starts.push(at);
            }
            stripped.push(stream[at]);
            at += 1;
            left -= 1;
            plain_at += 1;
        }
        prop_assert_eq!(starts.len(), payloads.len());
        prop_assert_eq!(stripped.len(), expected.len());
        // All but the CRC fields are equal.
        let mut rest = &stripped[..];
        let mut due = &expected[..];
        while !due.is_empty() {
            let length = FpduView::new(due).fpdu_len().unwrap();
            prop_assert_eq!(&rest[..length - 4], &due[..length - 4]);
            rest = &rest[length..];
            due = &due[length..];
        }
    }
}
