//! Gather lists: the pieces of a message in the form that a queue pair accepts.
//!
//! Long pieces stay in place. Short neighbours are copied together, since a separate entry would cost more. Copies are
//! counted. All data is shared memory.

use bytes::{Bytes, BytesMut};
use rpcrdma_xdr::{CopyCount, Piece, Stream, pad_len};

/// Pieces up to this long are joined with their neighbours, bytes.
const JOIN_MAX: usize = 1024;

const PAD: Bytes = Bytes::from_static(&[0; 3]);

/// Returns the most entries of a gather list for a stream, with short pieces joined.
pub(crate) fn entries(stream: &Stream) -> usize {
    // A short run before each long piece.
    stream.pieces().iter().filter(|piece| piece.data().len() > JOIN_MAX).count() * 2
}

/// A gather list in the making.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    parts: Vec<Part>,
    /// The number of short parts at the end.
    run: usize,
    copied: CopyCount,
}

#[derive(Debug)]
struct Part {
    data: Bytes,
    payload: bool,
}

impl Gather {
    /// Adds bytes; a copy of them counts as payload if `payload` is set.
    pub(crate) fn push(&mut self, data: Bytes, payload: bool) {
        if data.is_empty() {
            return;
        }
        if data.len() > JOIN_MAX {
            self.join();
            self.parts.push(Part { data, payload });
        } else {
            self.parts.push(Part { data, payload });
            self.run += 1;
        }
    }

    /// Adds a piece with its pad.
    pub(crate) fn push_piece(&mut self, piece: &Piece) {
        let data = piece.data().clone();
        let pad = if matches!(piece, Piece::Payload { .. }) { pad_len(data.len()) } else { 0 };
        self.push(data, matches!(piece, Piece::Payload { .. }));
        self.push(PAD.slice(..pad), false);
    }

    /// Adds the pieces of a stream with their pads.
    pub(crate) fn push_stream(&mut self, stream: &Stream) {
        for piece in stream.pieces() {
            self.push_piece(piece);
        }
    }

    /// Returns the list, of at most `limit` entries (at least 1), and the bytes copied for it.
    pub(crate) fn finish(mut self, limit: usize) -> (Vec<Bytes>, CopyCount) {
        self.join();
        if self.parts.len() > limit {
            self.run = self.parts.len();
            self.join();
        }
        (self.parts.into_iter().map(|part| part.data).collect(), self.copied)
    }

    /// Copies the short parts at the end into one.
    fn join(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run < 2 {
            return;
        }
        let first = self.parts.len().saturating_sub(run);
        let mut joined =
            BytesMut::with_capacity(self.parts.iter().skip(first).map(|part| part.data.len()).sum());
        for part in self.parts.drain(first..) {
            joined.extend_from_slice(&part.data);
            let counted = if part.payload { &mut self.copied.payload } else { &mut self.copied.inline };
            *counted += part.data.len();
        }
        self.parts.push(Part { data: joined.freeze(), payload: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Bytes {
        (0..len).map(|i| i.to_le_bytes()[0]).collect()
    }

    fn joined(parts: &[Bytes]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn short_neighbours_are_joined_and_long_ones_stay() {
        let mut gather = Gather::default();
        let long = bytes(JOIN_MAX + 1);
        for part in [bytes(10), bytes(20), long.clone(), bytes(3), bytes(0), bytes(4)] {
            gather.push(part, false);
        }
        let (parts, copied) = gather.finish(64);
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [30, JOIN_MAX + 1, 7]);
        assert_eq!(parts[1].as_ptr(), long.as_ptr());
        assert_eq!(copied, CopyCount { inline: 37, payload: 0 });
    }

    #[test]
    fn a_single_short_part_is_not_copied() {
        let mut gather = Gather::default();
        let part = bytes(JOIN_MAX);
        gather.push(part.clone(), true);
        let (parts, copied) = gather.finish(1);
        assert_eq!(parts[0].as_ptr(), part.as_ptr());
        assert_eq!(copied, CopyCount::default());
    }

    #[test]
    fn neighbours_of_the_longest_short_length_are_joined_and_the_limit_may_be_reached() {
        let mut gather = Gather::default();
        for part in [bytes(JOIN_MAX), bytes(JOIN_MAX), bytes(JOIN_MAX + 1)] {
            gather.push(part, true);
        }
        let (parts, copied) = gather.finish(2);
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [2 * JOIN_MAX, JOIN_MAX + 1]);
        assert_eq!(copied.payload, 2 * JOIN_MAX);
    }

    #[test]
    fn the_limit_is_kept_and_the_copy_is_counted() {
        let mut gather = Gather::default();
        for _ in 0..3 {
            gather.push(bytes(2000), true);
        }
        let (parts, copied) = gather.finish(2);
        assert_eq!(joined(&parts), [bytes(2000), bytes(2000), bytes(2000)].concat());
        assert_eq!((parts.len(), copied.payload), (1, 6000));
    }

    #[test]
    fn pads_of_payloads_are_explicit() {
        let mut stream = Stream::new();
        stream.push(Piece::Payload { data: bytes(1501), ddp_eligible: true });
        stream.push(Piece::Inline(bytes(8)));
        let mut gather = Gather::default();
        gather.push_stream(&stream);
        let (parts, _) = gather.finish(64);
        assert_eq!(joined(&parts), [bytes(1501), vec![0; 3].into(), bytes(8)].concat());
    }
}
