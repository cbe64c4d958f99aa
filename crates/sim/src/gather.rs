//! The bytes of a gather list, taken from the front in pieces of any length.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// The rest of a gather list.
#[derive(Debug)]
pub(crate) struct Gather {
    pieces: VecDeque<Bytes>,
    left: usize,
}

impl Gather {
    pub(crate) fn new(pieces: &[Bytes]) -> Self {
        let pieces: VecDeque<Bytes> = pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect();
        let left = pieces.iter().map(Bytes::len).sum();
        Self { pieces, left }
    }

    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Copies out at most `most` bytes, so that frames do not refer to the sender's memory any more.
    pub(crate) fn take(&mut self, most: usize) -> Bytes {
        let mut bytes = BytesMut::with_capacity(most.min(self.left));
        while bytes.len() < most
            && let Some(piece) = self.pieces.front_mut()
        {
            let count = piece.len().min(most - bytes.len());
            bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
            piece.advance(count);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.left -= bytes.len();
        bytes.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_and_joined_at_any_place() {
        for step in 1..12 {
            let pieces = [
                Bytes::from_static(b"ab"),
                Bytes::new(),
                Bytes::from_static(b"cdefg"),
                Bytes::from_static(b"h"),
            ];
            let mut gather = Gather::new(&pieces);
            let mut all = Vec::new();
            while gather.len() > 0 {
                let taken = gather.take(step);
                assert!(taken.len() == step || gather.len() == 0);
                all.extend_from_slice(&taken);
            }
            assert_eq!(all, b"abcdefgh");
            assert!(gather.take(step).is_empty());
        }
    }
}
