//! The results of several calls as one piece.

use bytes::BytesMut;
use rpcrdma_xdr::Payload;

/// Results shorter than this are copied, whatever their calls offered, in bytes: each takes memory of some size.
const KEPT_MIN: usize = 1024;

/// The results of several calls, which follow each other, as one piece.
///
/// A result holds the memory that its call offered for it. If the result fills at least half of that, and has 1 KiB or
/// more, its slices are kept as they are. Shorter results are copied together, except the last of a piece. So however a
/// server cuts its results, a piece holds about twice its own length, and the memory of one call.
#[derive(Debug, Default)]
pub struct Gathered {
    whole: Payload,
    /// Short results, which follow `whole`.
    joined: BytesMut,
    copied: usize,
    /// The last result, which follows `joined`, and the bytes that its call asked for.
    last: (Payload, usize),
}

impl Gathered {
    /// Adds the results of a call that asked for so many bytes.
    pub fn push(&mut self, data: Payload, asked: usize) {
        let (data, asked) = std::mem::replace(&mut self.last, (data, asked));
        if data.len() < asked.div_ceil(2).max(KEPT_MIN) {
            self.copied += data.len();
            data.iter().for_each(|slice| self.joined.extend_from_slice(slice));
        } else {
            self.append(&data);
        }
    }

    fn append(&mut self, data: &Payload) {
        self.whole.push(self.joined.split().freeze());
        data.iter().for_each(|slice| self.whole.push(slice.clone()));
    }

    /// Returns the piece, and the number of bytes that were copied for it.
    #[must_use]
    pub fn finish(mut self) -> (Payload, usize) {
        let (last, _) = std::mem::take(&mut self.last);
        self.append(&last);
        (self.whole, self.copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Gathers results of these lengths, of calls that asked for so many bytes. Returns the addresses of the slices within
    /// the results, or none where a slice is a copy, and the number of bytes copied.
    fn gather(results: &[(usize, usize)]) -> (Vec<Option<usize>>, usize) {
        let length = results.iter().map(|(length, _)| length).sum();
        let all: Bytes = (0..length).map(|at| at.to_le_bytes()[0]).collect();
        let (mut gathered, mut rest) = (Gathered::default(), all.clone());
        for (length, asked) in results {
            gathered.push(rest.split_to(*length).into(), *asked);
        }
        let (piece, copied) = gathered.finish();
        assert_eq!(piece, all);
        let start = all.as_ptr() as usize;
        let within = |slice: &Bytes| (slice.as_ptr() as usize).checked_sub(start).filter(|at| *at < length);
        (piece.iter().map(within).collect(), copied)
    }

    #[test]
    fn only_results_shorter_than_half_are_copied() {
        let results = [(50_000, 100_000), (10_000, 50_000), (9_000, 40_000), (0, 31_000), (16_000, 31_000)];
        assert_eq!(gather(&results), (vec![Some(0), None, Some(69_000)], 19_000));
        // Nothing follows the last result, so no other one holds memory.
        assert_eq!(gather(&[(1, 100_000)]), (vec![Some(0)], 0));
        assert_eq!(gather(&[(40_000, 100_000), (1, 60_000)]), (vec![None, Some(40_000)], 40_000));
        assert_eq!(gather(&[]), (vec![], 0));
    }

    #[test]
    fn i6_a_server_of_tiny_results_fills_no_memory() {
        let (slices, copied) = gather(&[(2, 2); 1000]);
        assert_eq!((slices, copied), (vec![None, Some(1998)], 1998));
    }
}
