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
    output.with_slices(|slices| slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>())
}

/// All that is queued, written by system calls of at most `step` octets.
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

#[test]
fn rfc5044_figure_5_the_first_fpdu_opens_with_a_marker() {
    let mut output = Output::new(true, true);
    lay_out(&mut output, 1, vec![vec![0; 24]]);
    let mut figure = hex("00000000 002a 4143 00000000 00000000 00000001 00000000");
    figure.extend_from_slice(&[0; 24]);
    figure.extend_from_slice(&hex("52239983"));
    assert_eq!(flatten(&output), figure);
}

#[test]
fn rfc5044_figure_6_a_marker_inside_the_second_fpdu() {
    // The first FPDU takes octets 0 to 0x1ec of the stream, its marker included.
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

#[test]
fn small_messages_share_slices() {
    let mut output = Output::new(true, false);
    for msn in 1..=3 {
        lay_out(&mut output, msn, vec![vec![1; 100]]);
    }
    // Header and payload of each; the trailer of one rides with the header of the next.
    assert_eq!(output.with_slices(|slices| slices.len()), 7);
}

#[test]
fn a_piece_leaves_with_its_last_octet() {
    let mut output = Output::new(true, false);
    lay_out(&mut output, 1, vec![vec![1; 100]]);
    let lengths = |output: &Output| {
        output.with_slices(|slices| slices.iter().map(|slice| slice.len()).collect::<Vec<_>>())
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

#[test]
fn completions_follow_the_last_octet() {
    let mut output = Output::new(false, false);
    lay_out(&mut output, 1, vec![vec![1; 102]]);
    output.wrote(127);
    assert_eq!(output.take_finished(), None);
    output.wrote(1);
    assert_eq!(output.take_finished(), Some(Finish::Send(WrId(1))));
    assert!(output.is_empty());
}

proptest! {
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
        // Take the markers out; check each pointer against the FPDU chain.
        let mut starts = Vec::new();
        let mut stripped = Vec::new();
        let mut at = 0;
        let mut fpdu_start = 0;
        let mut left = 0_usize;
        let mut plain_at = 0;
        let expected = drain(&mut plain, usize::MAX);
        while at < stream.len() {
            if at % INTERVAL == 0 {
                let octets = *stream[at..].first_chunk::<MARKER_LEN>().unwrap();
                let between = left == 0;
                prop_assert_eq!(usize::from(fpdu_pointer(octets)), if between { 0 } else { at - fpdu_start });
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
