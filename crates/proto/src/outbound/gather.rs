//! Gather lists: the pieces of a message in the form that a queue pair accepts.
//!
//! Long pieces stay in place. Short neighbours are copied together, since a separate entry would cost more. Copies are
//! counted. All data is shared memory.

use bytes::{Bytes, BytesMut};
use rpcrdma_xdr::{CopyCount, Piece, Stream, pad_len};
use smallvec::SmallVec;

/// Pieces up to this long are joined with their neighbours, bytes.
const JOIN_MAX: usize = 1024;

const PAD: [u8; 3] = [0; 3];

/// Returns the most entries of a gather list for a stream, with short pieces joined.
pub(crate) fn entries(stream: &Stream) -> usize {
    // A short run before each long piece.
    stream.pieces().iter().filter(|piece| piece.data().len() > JOIN_MAX).count() * 2
}

/// A part of a message.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    data: &'a [u8],
    /// The memory of the data, if the list may share it.
    shared: Option<&'a Bytes>,
    payload: bool,
}

impl Part<'_> {
    const fn is_short(&self) -> bool {
        self.data.len() <= JOIN_MAX
    }
}

/// Returns the gather list of a header and a stream with its pads, of at most `limit` entries (at least 1), and the
/// bytes copied to join short parts.
pub(crate) fn gather(header: &[u8], stream: &Stream, limit: usize) -> (Vec<Bytes>, CopyCount) {
    let mut parts = SmallVec::<[Part<'_>; 4]>::new();
    parts.push(Part { data: header, shared: None, payload: false });
    for piece in stream.pieces() {
        let (data, payload) = (piece.data(), matches!(piece, Piece::Payload { .. }));
        parts.push(Part { data, shared: Some(data), payload });
        let pad = if payload { pad_len(data.len()) } else { 0 };
        parts.push(Part { data: PAD.get(..pad).unwrap_or_default(), shared: None, payload: false });
    }
    parts.retain(|part| !part.data.is_empty());
    let mut copied = CopyCount::default();
    let runs = || parts.chunk_by(|a, b| a.is_short() && b.is_short());
    let list = if runs().nth(limit).is_some() {
        vec![join(&parts, &mut copied)]
    } else {
        runs().map(|run| join(run, &mut copied)).collect()
    };
    (list, copied)
}

/// Returns the memory of a single part that may be shared; otherwise copies the parts into one.
fn join(parts: &[Part<'_>], copied: &mut CopyCount) -> Bytes {
    if let [Part { shared: Some(data), .. }] = parts {
        return Bytes::clone(data);
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(|part| part.data.len()).sum());
    for part in parts {
        joined.extend_from_slice(part.data);
        // A header alone has no neighbour that it is joined with.
        if parts.len() > 1 {
            let counted = if part.payload { &mut copied.payload } else { &mut copied.inline };
            *counted += part.data.len();
        }
    }
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Bytes {
        (0..len).map(|i| i.to_le_bytes()[0]).collect()
    }

    /// Returns the gather list of these parts, each payload or not.
    fn list(parts: impl IntoIterator<Item = (Bytes, bool)>, limit: usize) -> (Vec<Bytes>, CopyCount) {
        let mut stream = Stream::new();
        for (data, payload) in parts {
            stream.push(if payload {
                Piece::Payload { data, ddp_eligible: true }
            } else {
                Piece::Inline(data)
            });
        }
        gather(&[], &stream, limit)
    }

    #[test]
    fn short_neighbours_are_joined_and_long_ones_stay() {
        let long = bytes(JOIN_MAX + 1);
        let parts = [bytes(10), bytes(20), long.clone(), bytes(3), bytes(0), bytes(4)];
        let (parts, copied) = list(parts.map(|part| (part, false)), 64);
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [30, JOIN_MAX + 1, 7]);
        assert_eq!(parts[1].as_ptr(), long.as_ptr());
        assert_eq!(copied, CopyCount { inline: 37, payload: 0 });
    }

    #[test]
    fn a_single_short_part_is_not_copied() {
        let part = bytes(JOIN_MAX);
        let (parts, copied) = list([(part.clone(), true)], 1);
        assert_eq!(parts[0].as_ptr(), part.as_ptr());
        assert_eq!(copied, CopyCount::default());
    }

    #[test]
    fn a_header_leads_the_list() {
        let header = bytes(28);
        assert_eq!(gather(&header, &Stream::new(), 1), (vec![header.clone()], CopyCount::default()));
        let (parts, copied) = gather(&header, &Stream::from(bytes(40)), 64);
        assert_eq!(parts, [[header, bytes(40)].concat()]);
        assert_eq!(copied, CopyCount { inline: 68, payload: 0 });
    }

    #[test]
    fn neighbours_of_the_longest_short_length_are_joined_and_the_limit_may_be_reached() {
        let parts = [bytes(JOIN_MAX), bytes(JOIN_MAX), bytes(JOIN_MAX + 4)];
        let (parts, copied) = list(parts.map(|part| (part, true)), 2);
        assert_eq!(parts.iter().map(Bytes::len).collect::<Vec<_>>(), [2 * JOIN_MAX, JOIN_MAX + 4]);
        assert_eq!(copied.payload, 2 * JOIN_MAX);
    }

    #[test]
    fn the_limit_is_kept_and_the_copy_is_counted() {
        let (parts, copied) = list(std::iter::repeat_n((bytes(2000), true), 3), 2);
        assert_eq!(parts.concat(), [bytes(2000), bytes(2000), bytes(2000)].concat());
        assert_eq!((parts.len(), copied.payload), (1, 6000));
    }

    #[test]
    fn pads_of_payloads_are_explicit() {
        let (parts, _) = list([(bytes(1501), true), (bytes(8), false)], 64);
        assert_eq!(parts.concat(), [bytes(1501), vec![0; 3].into(), bytes(8)].concat());
    }
}
