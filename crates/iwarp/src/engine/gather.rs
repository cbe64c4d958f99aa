//! A cursor over the pieces of a message. Pieces are sliced and never copied.

use bytes::Bytes;

/// The rest of a gather list.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pieces: std::vec::IntoIter<Bytes>,
    front: Bytes,
    remaining: usize,
}

impl Gather {
    pub(super) fn new(pieces: Vec<Bytes>) -> Self {
        let remaining = pieces.iter().map(Bytes::len).sum();
        Self { pieces: pieces.into_iter(), front: Bytes::new(), remaining }
    }

    /// Returns the number of bytes left.
    pub(super) const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Takes the next piece, of at most `limit` bytes; `None` when the list or the limit is used up.
    pub(super) fn take(&mut self, limit: usize) -> Option<Bytes> {
        while self.front.is_empty() {
            self.front = self.pieces.next()?;
        }
        if limit == 0 {
            return None;
        }
        let piece = if self.front.len() <= limit {
            std::mem::take(&mut self.front)
        } else {
            self.front.split_to(limit)
        };
        self.remaining -= piece.len();
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn taking_yields_all_bytes_in_order(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
            limits in proptest::collection::vec(1_usize..15, 200),
        ) {
            let whole = pieces.concat();
            let mut gather = Gather::new(pieces.into_iter().map(Bytes::from).collect());
            let mut seen = Vec::new();
            for limit in limits {
                prop_assert_eq!(gather.remaining(), whole.len() - seen.len());
                let Some(piece) = gather.take(limit) else { break };
                prop_assert!(!piece.is_empty() && piece.len() <= limit);
                seen.extend_from_slice(&piece);
            }
            prop_assert_eq!(seen, whole);
        }
    }
}
