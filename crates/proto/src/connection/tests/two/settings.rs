//! Settings for retired forms change nothing in Version Two, which has none of them.

use bytes::Bytes;
use rpcrdma_xdr::{Piece, Stream};

use super::reports::{answers, call, item, narrow, request, structured, targets};
use super::version_two::{EXCHANGING, raw};
use super::{continued, version_two_07};
use crate::testing::*;
use crate::wire::two::operation_len;
use crate::wire::two::transmission::Location;
use crate::wire::{Body, ChunkLists, Direction, ReadSegment};
use crate::{Compatibility, Config, Messages};

/// Returns the settings without retired forms, and with one that shows in the Read list.
fn settings() -> [Compatibility; 2] {
    let marked = Compatibility { padding_segments: true, ..Compatibility::default() };
    [Compatibility::default(), marked]
}

/// Returns the numbers of reduced, continued and placed messages.
fn forms(received: &Messages) -> [u64; 3] {
    [received.reduced, received.continued, received.placed]
}

#[test]
fn a_continued_call_with_a_read_chunk_counts_as_continued() {
    for compatibility in settings() {
        let config = Config { compatibility, ..version_two_07::server() };
        let mut raw = continued::raw(config);
        let mut inline = Stream::new();
        let mut data = Bytes::new();
        for piece in write(10, 3000).message.pieces() {
            match piece {
                Piece::Payload { data: item, .. } => data = item.clone(),
                piece => inline.push(piece.clone()),
            }
        }
        let (whole, _) = inline.flatten();
        raw.send(continued::middle(10, &whole[..24], whole.len() - 24));
        let read = vec![ReadSegment::new(narrow(whole.len()), raw.readable(&data))];
        let body = Body::Message(ChunkLists { read, ..ChunkLists::default() });
        let header = version_two_07::header(10, version_two_07::MANY, Direction::Call, body);
        raw.send(continued::bytes(&header, &whole[24..]));
        assert_eq!(forms(&raw.end.connection.stats().calls_received), [0, 1, 0]);
    }
}

#[test]
fn a_call_with_items_in_receives_and_in_chunks_counts_as_placed() {
    for (profile, compatibility) in
        EXCHANGING.into_iter().flat_map(|profile| settings().map(|set| (profile, set)))
    {
        let mut raw = raw(profile, Config { compatibility, ..structured() });
        let message = two(10, 1000, 1000).message.flatten().0;
        let segment = raw.readable(&message[1048..]);
        let items =
            vec![item(44, 1000, targets(0, vec![0])), item(1048, 1000, Location::Explicit(vec![segment]))];
        let operation = request(items, 1, 48);
        // The first item lies at the beginning of the first segment, behind everything that is in no item.
        let mut behind = [&message[..44], &message[1044..1048]].concat();
        behind.resize(1024 - operation_len(&operation), 0);
        behind.extend_from_slice(&message[44..1044]);
        raw.send(call(profile, 10, operation, behind));
        assert_eq!(answers(&raw, profile), (vec![], vec![10]));
        assert_eq!(forms(&raw.end.connection.stats().calls_received), [0, 0, 1]);
    }
}
