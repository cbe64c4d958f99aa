//! The encoded form of a message: an ordered list of pieces.
//!
//! Small items lie in runs that the encoder wrote; large opaque items are the caller's own memory, shared. The pad of a
//! payload is never stored: it belongs to the unreduced stream, but leaves it together with the payload (RFC 8166
//! §3.4.4.4). Only [`Stream::flatten`] and [`Stream::copy_to`] copy a stream together, and both count the bytes copied.

use std::ops::AddAssign;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::{BufferTooSmall, pad_len, padded_len};

const PAD: Bytes = Bytes::from_static(&[0; 3]);

/// A part of a [`Stream`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A run of whole XDR items, pads included; its length is a multiple of four in a stream made by an
    /// [`Encoder`](crate::Encoder).
    Inline(Bytes),
    /// The bytes of one opaque item. Its count stands at the end of the inline run before it; its pad is implied.
    Payload {
        /// The item, without count and without pad. May be empty if eligible: an empty eligible result still takes
        /// its Write chunk (RFC 8166 §4.3.2.1).
        data: Bytes,
        /// Whether the Upper-Layer Binding lets this item leave the stream by a chunk (RFC 8166 §6.1).
        ddp_eligible: bool,
    },
}

impl Piece {
    /// Returns the length of this piece in the unreduced stream in bytes, pad included.
    pub const fn len(&self) -> usize {
        match self {
            Self::Inline(data) => data.len(),
            Self::Payload { data, .. } => padded_len(data.len()),
        }
    }

    /// Returns whether the piece adds nothing to the stream.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stored bytes, without the implied pad.
    pub const fn data(&self) -> &Bytes {
        match self {
            Self::Inline(data) | Self::Payload { data, .. } => data,
        }
    }
}

/// Number of bytes copied by [`Stream::flatten`] or [`Stream::copy_to`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCount {
    /// Bytes of inline runs, and pads.
    pub inline: usize,
    /// Bytes of payload pieces.
    pub payload: usize,
}

impl AddAssign for CopyCount {
    fn add_assign(&mut self, other: Self) {
        self.inline += other.inline;
        self.payload += other.payload;
    }
}

/// An encoded message or part of one: ordered pieces. Cloning shares the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Most small messages are a single run.
    pieces: SmallVec<[Piece; 1]>,
    len: usize,
}

impl Stream {
    /// Creates an empty stream.
    pub const fn new() -> Self {
        Self { pieces: SmallVec::new_const(), len: 0 }
    }

    /// Returns the pieces in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the pieces in order, without the stream.
    pub fn into_pieces(self) -> Vec<Piece> {
        self.pieces.into_vec()
    }

    /// Returns the length of the unreduced stream in bytes, all pads included.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether [`len`](Self::len) is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a piece at the end. An empty inline run is left out, and so is an empty payload that isn't eligible.
    pub fn push(&mut self, piece: Piece) {
        let kept = !piece.is_empty() || matches!(piece, Piece::Payload { ddp_eligible: true, .. });
        if kept {
            self.len = self.len.saturating_add(piece.len());
            self.pieces.push(piece);
        }
    }

    /// Adds all pieces of `other` at the end.
    pub fn append(&mut self, other: Self) {
        self.len = self.len.saturating_add(other.len);
        self.pieces.extend(other.pieces);
    }

    /// Lets only the first `max` DDP-eligible items leave the stream by chunks. Further ones stay payloads of it.
    pub fn limit_eligible(&mut self, max: usize) {
        let eligible = self.pieces.iter_mut().filter_map(|piece| match piece {
            Piece::Payload { ddp_eligible, .. } if *ddp_eligible => Some(ddp_eligible),
            _ => None,
        });
        eligible.skip(max).for_each(|eligible| *eligible = false);
        self.pieces
            .retain(|piece| !piece.is_empty() || matches!(piece, Piece::Payload { ddp_eligible: true, .. }));
    }

    /// Returns the unreduced stream as memory for a gather list, with explicit pads; nothing is copied.
    pub fn gather(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.pieces
            .iter()
            .flat_map(|piece| [piece.data().clone(), PAD.slice(..piece.len() - piece.data().len())])
            .filter(|part| !part.is_empty())
    }

    /// Copies the unreduced stream to the front of `target`; returns the number of bytes copied.
    ///
    /// # Errors
    /// [`BufferTooSmall`], before anything is copied.
    pub fn copy_to(&self, target: &mut [u8]) -> Result<CopyCount, BufferTooSmall> {
        let too_small = BufferTooSmall { needed: self.len, available: target.len() };
        let mut copied = CopyCount::default();
        let mut rest = target;
        for piece in &self.pieces {
            let data = piece.data();
            let (here, after) = rest.split_at_mut_checked(piece.len()).ok_or(too_small)?;
            let (body, pad) = here.split_at_mut_checked(data.len()).ok_or(too_small)?;
            body.copy_from_slice(data);
            pad.fill(0);
            copied += count(piece);
            rest = after;
        }
        Ok(copied)
    }

    /// Returns the unreduced stream in one run of memory, and the number of bytes copied for it. A stream of a single
    /// inline run (or of nothing) is handed out without a copy.
    pub fn flatten(&self) -> (Bytes, CopyCount) {
        match self.pieces.as_slice() {
            [] => return (Bytes::new(), CopyCount::default()),
            [Piece::Inline(data)] => return (data.clone(), CopyCount::default()),
            _ => {}
        }
        let mut flat = BytesMut::with_capacity(self.len);
        let mut copied = CopyCount::default();
        for piece in &self.pieces {
            let data = piece.data();
            flat.extend_from_slice(data);
            flat.resize(flat.len() + piece.len() - data.len(), 0);
            copied += count(piece);
        }
        (flat.freeze(), copied)
    }
}

const fn count(piece: &Piece) -> CopyCount {
    match piece {
        Piece::Inline(data) => CopyCount { inline: data.len(), payload: 0 },
        Piece::Payload { data, .. } => CopyCount { inline: pad_len(data.len()), payload: data.len() },
    }
}

/// Makes a stream of one inline run of whole XDR items.
impl From<Bytes> for Stream {
    fn from(data: Bytes) -> Self {
        let mut stream = Self::new();
        stream.push(Piece::Inline(data));
        stream
    }
}

#[cfg(test)]
mod tests;
