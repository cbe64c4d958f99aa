//! A connection as its MPA frames and FPDUs, or as its packets of RoCE. Both directions are in the order of their
//! completion.
//!
//! For iWARP, a [`Splitter`] processes the bytes of one direction, [`Session::of`] a complete [`Connection`]. Bytes
//! other than an MPA frame where one is due, and the rest at the end, are kept as [`Kind::Rest`]. FPDUs are cut only by
//! their length fields: their content may break every rule. Markers are not removed.

use std::ops::Range;

use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::mpa::{FrameKind, FrameView};

use crate::tcp::{Connection, End, Side};

/// The kind of an [`Item`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The MPA Request or Reply.
    Frame,
    /// An FPDU.
    Fpdu,
    /// A packet of RoCE from its BTH to its pad, without the invariant CRC.
    Packet,
    /// Other bytes: not MPA, an FPDU whose end never came, or a packet of RoCE with a wrong CRC.
    Rest,
    /// The direction ended.
    End(End),
}

/// An item that one side sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Sender of the item.
    pub from: Side,
    /// Kind of the item.
    pub kind: Kind,
    /// Content of the item; empty for an end.
    pub bytes: Vec<u8>,
    /// Range of the payload that was cut out ([`reduce`](crate::reduce)), and is zero now.
    pub cut: Range<usize>,
}

impl Item {
    /// Returns an item of which no byte was cut.
    #[must_use]
    pub const fn new(from: Side, kind: Kind, bytes: Vec<u8>) -> Self {
        Self { from, kind, bytes, cut: 0..0 }
    }
}

/// A recorded connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Items in the order of the recording.
    pub items: Vec<Item>,
}

impl Session {
    /// Splits a connection into its items.
    #[must_use]
    pub fn of(connection: &Connection) -> Self {
        let mut items = Vec::new();
        let (mut client, mut server) = (Splitter::default(), Splitter::default());
        for chunk in &connection.chunks {
            let from = chunk.from;
            let splitter = if from == Side::Client { &mut client } else { &mut server };
            let mut push = |kind, bytes| items.push(Item::new(from, kind, bytes));
            splitter.feed(&chunk.bytes, &mut push);
            if let Some(end) = chunk.end {
                splitter.finish(&mut push);
                push(Kind::End(end), Vec::new());
            }
        }
        for (from, splitter) in [(Side::Client, &mut client), (Side::Server, &mut server)] {
            splitter.finish(&mut |kind, bytes| items.push(Item::new(from, kind, bytes)));
        }
        Self { items }
    }

    /// Returns the MPA frame of one side, if it sent any.
    #[must_use]
    pub fn frame(&self, from: Side) -> Option<&[u8]> {
        let item = self.items.iter().find(|item| item.from == from && item.kind == Kind::Frame)?;
        Some(&item.bytes)
    }

    /// Returns the FPDUs of both sides, in order.
    pub fn fpdus(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.kind == Kind::Fpdu)
    }

    /// Returns the packets of RoCE of both sides, in order.
    pub fn packets(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.kind == Kind::Packet)
    }

    /// Returns the end of one side's direction, if there was one.
    #[must_use]
    pub fn end(&self, from: Side) -> Option<End> {
        self.items.iter().find_map(|item| match item.kind {
            Kind::End(end) if item.from == from => Some(end),
            _ => None,
        })
    }
}

/// Cuts the bytes of one direction into frames and FPDUs.
#[derive(Debug, Default)]
pub struct Splitter {
    bytes: Vec<u8>,
    /// The MPA frame has passed.
    operating: bool,
}

impl Splitter {
    /// Processes bytes; `out` gets complete items.
    pub fn feed(&mut self, bytes: &[u8], out: &mut impl FnMut(Kind, Vec<u8>)) {
        self.bytes.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(rest) = self.bytes.get(used..)
            && let Some((kind, length)) = next(rest, self.operating)
            && let Some(item) = rest.get(..length)
        {
            out(kind, item.to_vec());
            self.operating = true;
            used += length;
        }
        self.bytes.drain(..used);
    }

    /// Ends the direction: `out` gets the remaining bytes.
    pub fn finish(&mut self, out: &mut impl FnMut(Kind, Vec<u8>)) {
        let rest = std::mem::take(&mut self.bytes);
        if !rest.is_empty() {
            out(Kind::Rest, rest);
        }
    }
}

/// Returns the kind of the next item, and its length by its own fields.
fn next(bytes: &[u8], operating: bool) -> Option<(Kind, usize)> {
    if operating {
        return Some((Kind::Fpdu, FpduView::new(bytes).fpdu_len()?));
    }
    let view = FrameView::new(bytes);
    let (FrameKind::Request | FrameKind::Reply) = view.kind()?;
    Some((Kind::Frame, view.frame_len()?))
}

#[cfg(test)]
mod tests {
    use rpcrdma_iwarp::wire::fpdu::seal;

    use super::*;
    use crate::tcp::Chunk;

    fn connection(parts: &[(Side, &[u8], Option<End>)]) -> Connection {
        let chunks =
            parts.iter().map(|&(from, bytes, end)| Chunk { from, bytes: bytes.to_vec(), end }).collect();
        let address = "127.0.0.1:1".parse().unwrap();
        Connection { client: address, server: address, chunks, behind_holes: 0, out_of_order: 0 }
    }

    #[test]
    fn frames_and_fpdus_however_they_are_cut() {
        let request = [&b"MPA ID Req Frame\x10\x02\x00\x02"[..], b"pd"].concat();
        let whole =
            [request.clone(), seal(b"one", true).unwrap(), seal(b"", false).unwrap(), vec![0, 9, 1]].concat();
        for step in 1..whole.len() {
            let parts: Vec<_> = whole.chunks(step).map(|part| (Side::Client, part, None)).collect();
            let session = Session::of(&connection(&parts));
            let kinds: Vec<_> = session.items.iter().map(|item| item.kind).collect();
            assert_eq!(kinds, [Kind::Frame, Kind::Fpdu, Kind::Fpdu, Kind::Rest], "{step}");
            assert_eq!(session.frame(Side::Client), Some(&request[..]));
            assert_eq!(session.items.concat_bytes(), whole);
        }
    }

    #[test]
    fn what_does_not_speak_mpa_is_kept_as_it_is() {
        let parts =
            [(Side::Client, &b"GET / HTTP/1.0"[..], None), (Side::Server, &b""[..], Some(End::Reset))];
        let session = Session::of(&connection(&parts));
        assert_eq!(session.frame(Side::Client), None);
        assert_eq!(session.end(Side::Server), Some(End::Reset));
        assert_eq!(session.end(Side::Client), None);
        assert_eq!(session.items[1].kind, Kind::Rest);
    }

    trait ConcatBytes {
        fn concat_bytes(&self) -> Vec<u8>;
    }

    impl ConcatBytes for Vec<Item> {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|item| item.bytes.clone()).collect()
        }
    }
}
