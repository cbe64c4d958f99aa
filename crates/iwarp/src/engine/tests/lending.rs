//! The slices lent to the socket. Payload with much still to arrive goes straight to its place, and no byte is read
//! ahead that would then need a copy.

use super::faults::{tagged, untagged};
use super::*;
use crate::wire::fpdu::MAX_FPDU;

const READ_AHEAD: usize = 32 * 1024;
/// A length field and a tagged header.
const PREFIX: usize = 16;
const CRC: usize = 4;

/// Returns the lengths of the slices lent for the next read.
fn lent(end: &mut End) -> Vec<usize> {
    let mut lengths = Vec::new();
    end.engine.with_receive_slices(|slices| {
        lengths.extend(slices.iter().map(|slice| slice.len()));
        0
    });
    lengths
}

/// Feeds the front of a stream in one read, and returns the lengths of the slices lent afterwards.
fn after(pair: &mut Pair, stream: &mut &[u8], count: usize) -> Vec<usize> {
    let (now, later) = stream.split_at(count);
    *stream = later;
    pair.server.take_whole(now, pair.now);
    lent(&mut pair.server)
}

#[test]
fn where_no_bulk_is_expected_much_is_read_ahead() {
    let mut pair = Pair::open(&Setup::default());
    let receive = pair.server.receive(100);
    assert_eq!(lent(&mut pair.server), [READ_AHEAD]);
    let fpdu = untagged(0x43, 0, 2, 0, true, &pattern(100));
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 10), [READ_AHEAD - 10]);
    assert_eq!(after(&mut pair, &mut stream, 114), [READ_AHEAD]);
    assert_eq!(pair.server.message(receive), pattern(100));
}

#[test]
fn where_bulk_is_expected_only_headers_are_read_ahead() {
    let mut pair = Pair::open(&Setup::default());
    let window = pair.server.open_write(60_000);
    assert_eq!(lent(&mut pair.server), [PREFIX]);
    let fpdu = tagged(0x40, window.key.0, window.address, true, &pattern(60_000));
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 7), [PREFIX - 7]);
    assert_eq!(after(&mut pair, &mut stream, 8), [1]);
    assert_eq!(after(&mut pair, &mut stream, 1), [60_000, CRC + PREFIX]);
    assert_eq!(after(&mut pair, &mut stream, 30_000), [30_000, CRC + PREFIX]);
    assert_eq!(after(&mut pair, &mut stream, 30_002), [CRC - 2 + PREFIX]);
    assert_eq!(after(&mut pair, &mut stream, 2), [PREFIX]);
    assert_eq!(pair.server.engine.counters().payload_bytes_copied, 0);
    assert_eq!(pair.server.close(window), pattern(60_000));
    assert_eq!(lent(&mut pair.server), [READ_AHEAD]);
}

#[test]
fn the_header_of_a_send_is_read_to_its_end_where_bulk_is_expected() {
    let mut pair = Pair::open(&Setup::default());
    pair.server.open_write(60_000);
    let (small, large) = (pair.server.receive(100), pair.server.receive(60_000));
    let fpdu = untagged(0x43, 0, 2, 0, true, &pattern(100));
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 10), [PREFIX - 10]);
    assert_eq!(after(&mut pair, &mut stream, 6), [fpdu.len()], "the rest, and the next header");
    assert_eq!(after(&mut pair, &mut stream, 4), [fpdu.len() - 4]);
    assert_eq!(after(&mut pair, &mut stream, 104), [PREFIX]);
    let fpdu = untagged(0x43, 0, 3, 0, true, &pattern(60_000));
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 16), [4]);
    assert_eq!(after(&mut pair, &mut stream, 3), [1]);
    assert_eq!(after(&mut pair, &mut stream, 1), [60_000, CRC + PREFIX]);
    assert_eq!(after(&mut pair, &mut stream, 60_004), [PREFIX]);
    assert_eq!(pair.server.message(small), pattern(100));
    assert_eq!(pair.server.message(large), pattern(60_000));
}

/// Small segments may follow the last segment of a message; after any other segment the next one of the message
/// follows.
#[test]
fn a_large_send_is_placed_directly() {
    for (last, ahead) in [(true, READ_AHEAD), (false, CRC + PREFIX)] {
        let mut pair = Pair::open(&Setup::default());
        pair.server.receive(100_000);
        let fpdu = untagged(0x43, 0, 2, 0, last, &pattern(60_000));
        let mut stream = &fpdu[..];
        assert_eq!(after(&mut pair, &mut stream, 19), [READ_AHEAD - 19]);
        assert_eq!(after(&mut pair, &mut stream, 1), [60_000, ahead]);
        assert_eq!(after(&mut pair, &mut stream, 60_004), [READ_AHEAD]);
        assert_eq!(pair.server.engine.counters().segments_received, 2);
    }
}

#[test]
fn the_read_ahead_is_not_reached_before_the_end_of_a_scatter_list() {
    let mut pair = Pair::open(&Setup::default());
    let receive = pair.server.receive_into(&[5000; 12]);
    let fpdu = untagged(0x43, 0, 2, 0, true, &pattern(60_000));
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 20), [5000; 8]);
    assert_eq!(after(&mut pair, &mut stream, 19_999), [&[1][..], &[5000; 7]].concat());
    assert_eq!(after(&mut pair, &mut stream, 1001), [&[4000][..], &[5000; 7], &[READ_AHEAD]].concat());
    assert_eq!(after(&mut pair, &mut stream, 39_004), [READ_AHEAD]);
    assert_eq!(pair.server.message(receive), pattern(60_000));
}

/// An FPDU with `DIRECT_PLACEMENT_MIN` bytes missing, and with one byte less.
#[test]
fn what_is_almost_here_goes_through_the_read_ahead() {
    let fpdu = untagged(0x43, 0, 2, 0, true, &pattern(DIRECT_PLACEMENT_MIN - 4));
    assert_eq!(fpdu.len(), DIRECT_PLACEMENT_MIN + 20);
    for (front, expected) in [(20, vec![DIRECT_PLACEMENT_MIN - 4, READ_AHEAD]), (21, vec![READ_AHEAD - 21])] {
        let mut pair = Pair::open(&Setup::default());
        let receive = pair.server.receive(5000);
        let mut stream = &fpdu[..];
        assert_eq!(after(&mut pair, &mut stream, front), expected);
        let rest = stream.len();
        after(&mut pair, &mut stream, rest);
        assert_eq!(pair.server.message(receive), pattern(DIRECT_PLACEMENT_MIN - 4));
    }
}

/// Where a peer cuts its Writes small, reading header by header would cost more than copying.
#[test]
fn small_tagged_segments_are_read_ahead_until_a_large_one_comes() {
    let mut pair = Pair::open(&Setup::default());
    let window = pair.server.open_write(100_000);
    let mut at = window.address;
    let mut segment = |length: usize, last| {
        let fpdu = tagged(0x40, window.key.0, at, last, &pattern(length));
        at += length as u64;
        fpdu
    };
    for (length, last, expected) in [
        (100, true, PREFIX),
        (100, false, READ_AHEAD),
        (DIRECT_PLACEMENT_MIN - 1, false, READ_AHEAD),
        (DIRECT_PLACEMENT_MIN, false, PREFIX),
    ] {
        pair.server.feed(&segment(length, last), || usize::MAX, pair.now);
        assert_eq!(lent(&mut pair.server), [expected], "{length}");
    }
    let fpdu = segment(20_000, false);
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 16), [20_000, CRC + PREFIX]);
    assert_eq!(after(&mut pair, &mut stream, 20_004), [PREFIX]);
}

#[test]
fn i11_strict_mode_lends_no_memory_of_the_application() {
    let mut pair = Pair::open(&Setup { strict_crc: true, ..Setup::default() });
    let window = pair.server.open_write(60_000);
    let fpdu = tagged(0x40, window.key.0, window.address, true, &pattern(60_000));
    let mut stream = &fpdu[..];
    assert_eq!(lent(&mut pair.server), [2 * MAX_FPDU]);
    assert_eq!(after(&mut pair, &mut stream, 16), [2 * MAX_FPDU - 16]);
    assert_eq!(after(&mut pair, &mut stream, 60_004), [2 * MAX_FPDU]);
    assert_eq!(pair.server.close(window), pattern(60_000));
}

/// A segment without a target is read through to its CRC, which proves whether the peer sent it so.
#[test]
fn a_segment_that_goes_nowhere_is_read_into_the_read_ahead() {
    let mut pair = Pair::open(&Setup::default());
    pair.server.open_write(60_000);
    let fpdu = tagged(0x40, 9, 9, true, &pattern(60_000));
    let mut stream = &fpdu[..];
    assert_eq!(after(&mut pair, &mut stream, 16), [READ_AHEAD]);
    while stream.len() > 4 {
        let count = (stream.len() - 4).min(READ_AHEAD);
        let expected = if stream.len() - count > 4 { READ_AHEAD } else { CRC + PREFIX };
        assert_eq!(after(&mut pair, &mut stream, count), [expected]);
    }
    assert_eq!(pair.server.engine.counters().payload_bytes_copied, 0);
    pair.server.take_whole(stream, pair.now);
    assert_eq!(opcodes(&pair.server.transmit(pair.now)), [7]);
}
