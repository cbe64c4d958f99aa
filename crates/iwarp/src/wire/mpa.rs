//! MPA start-up frames: Request and Reply, revision 1 (RFC 5044 §7.1.1) and revision 2 with enhanced data (RFC 6581 §6,
//! §9).
//!
//! A frame owns its private data (at most 512 bytes). A malformed frame is a [`FrameError`]; RFC 5044 §7.1.2 requires
//! to close TCP after each of them.

use super::{array, be16, be32};

/// Length of key, flags, revision and private data length, in bytes.
pub const HEADER_LEN: usize = 20;
/// Largest PD_Length (RFC 5044 §7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;
/// Length of the enhanced data, in bytes. They precede the private data when the S flag is set (RFC 6581 §9).
pub const ENHANCED_LEN: usize = 4;
/// Largest IRD or ORD that fits its field; [`NOT_NEGOTIATED`] is not a count.
pub const MAX_DEPTH: u16 = 0x3FFE;
/// IRD or ORD value for "not negotiated here": the ULP negotiates it (RFC 6581 §9.1).
pub const NOT_NEGOTIATED: u16 = 0x3FFF;

/// Flag: the sender of the frame requires markers in its input.
pub const FLAG_MARKERS: u8 = 0x80;
/// Flag: CRC preferred.
pub const FLAG_CRC: u8 = 0x40;
/// Flag: connection rejected (Reply only).
pub const FLAG_REJECT: u8 = 0x20;
/// Flag: enhanced data present (revision 2 only).
pub const FLAG_ENHANCED: u8 = 0x10;
/// Flag in the reserved field that Linux `siw` interprets as "FPDUs larger than one TCP segment are welcome".
pub const FLAG_LARGE_FPDU: u8 = 0x08;

const KEY_LEN: usize = 16;
const REQUEST_KEY: [u8; KEY_LEN] = *b"MPA ID Req Frame";
const REPLY_KEY: [u8; KEY_LEN] = *b"MPA ID Rep Frame";

mod field {
    pub(super) const FLAGS: usize = 16;
    pub(super) const REVISION: usize = 17;
    pub(super) const PD_LENGTH: usize = 18;
}

/// The kind of a start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// From the Initiator.
    Request,
    /// From the Responder.
    Reply,
}

impl FrameKind {
    /// Returns the 16 bytes at the start of such a frame.
    pub const fn key(self) -> [u8; KEY_LEN] {
        match self {
            Self::Request => REQUEST_KEY,
            Self::Reply => REPLY_KEY,
        }
    }
}

/// MPA revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581.
    Two,
}

impl Revision {
    const fn wire(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// The message types that can serve as Ready-To-Receive indication (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrSet {
    /// A zero-length Send (FULPDU).
    pub send: bool,
    /// A zero-length RDMA Write.
    pub write: bool,
    /// A zero-length RDMA Read.
    pub read: bool,
}

impl RtrSet {
    /// Returns the types in both sets.
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// Returns whether the set has no type.
    pub const fn is_empty(self) -> bool {
        !(self.send || self.write || self.read)
    }
}

/// Enhanced data: four bytes in front of the ULP's private data (RFC 6581 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// `Some`: peer-to-peer model with these RTR types (bit A with B, C, D); `None`: client-server model.
    pub peer_to_peer: Option<RtrSet>,
    /// RDMA Read Requests that the sender accepts at a time; 14 bits.
    pub ird: u16,
    /// RDMA Read Requests that the sender wants to have outstanding; 14 bits.
    pub ord: u16,
}

impl Enhanced {
    const A: u32 = 1 << 31;
    const B: u32 = 1 << 30;
    const C: u32 = 1 << 15;
    const D: u32 = 1 << 14;

    /// Decodes the four bytes; every value is legal.
    pub fn decode(word: [u8; ENHANCED_LEN]) -> Self {
        let word = u32::from_be_bytes(word);
        // RFC 6581 §9.2: without A the other three bits are ignored.
        let peer_to_peer = (word & Self::A != 0).then_some(RtrSet {
            send: word & Self::B != 0,
            write: word & Self::C != 0,
            read: word & Self::D != 0,
        });
        Self { peer_to_peer, ird: depth(word >> 16), ord: depth(word) }
    }

    /// Encodes the data to four bytes.
    pub fn encode(self) -> [u8; ENHANCED_LEN] {
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let rtr = self.peer_to_peer.unwrap_or_default();
        let word = flag(self.peer_to_peer.is_some(), Self::A)
            | flag(rtr.send, Self::B)
            | u32::from(self.ird.min(NOT_NEGOTIATED)) << 16
            | flag(rtr.write, Self::C)
            | flag(rtr.read, Self::D)
            | u32::from(self.ord.min(NOT_NEGOTIATED));
        word.to_be_bytes()
    }
}

/// Returns the low 14 bits.
fn depth(word: u32) -> u16 {
    let [_, _, high, low] = word.to_be_bytes();
    u16::from_be_bytes([high & 0x3F, low])
}

/// Reason why a start-up frame is improperly formatted (RFC 5044 §7.1.2: close TCP, error code 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The key is neither that of a Request nor that of a Reply.
    #[error("the peer does not speak MPA: its first bytes are no MPA key")]
    Key,
    /// A Request came where a Reply was due, or the reverse.
    #[error("MPA {seen:?} frame where a {due:?} frame is due: both sides play the same role")]
    Role {
        /// Kind of frame received.
        seen: FrameKind,
        /// Kind of frame expected.
        due: FrameKind,
    },
    /// The revision is neither 1 nor 2.
    #[error("MPA revision {0}; 1 and 2 are known")]
    Revision(u8),
    /// PD_Length exceeds 512.
    #[error("MPA private data of {0} bytes; at most {MAX_PRIVATE_DATA} are allowed")]
    PrivateDataTooLong(u16),
    /// The S flag announces enhanced data, but there are fewer than four bytes of private data.
    #[error("MPA enhanced data announced, but only {0} bytes of private data")]
    EnhancedTooShort(u16),
}

/// A legal Request or Reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Request or Reply.
    pub kind: FrameKind,
    /// Revision of the sender.
    pub revision: Revision,
    /// The sender wants markers in its input.
    pub markers: bool,
    /// The sender wants CRCs.
    pub crc: bool,
    /// The connection is refused. Only a Reply can refuse.
    pub rejected: bool,
    /// The sender accepts FPDUs larger than a TCP segment ([`FLAG_LARGE_FPDU`]).
    pub large_fpdu: bool,
    /// IRD, ORD and RTR; only revision 2 has them.
    pub enhanced: Option<Enhanced>,
    /// The ULP's private data, without the enhanced data.
    pub private_data: Vec<u8>,
}

impl Frame {
    /// Decodes a frame of kind `due` at the front of `stream`.
    ///
    /// `Ok(None)`: more bytes are needed. `Ok(Some((frame, used)))`: the frame took `used` bytes; later bytes belong to
    /// full operation. An error is reported with the first byte that shows it.
    pub fn decode(stream: &[u8], due: FrameKind) -> Result<Option<(Self, usize)>, FrameError> {
        // RFC 5044 §7.1.2 (5), (8): a wrong key, or the key of the other role, ends the start-up.
        let seen = stream.get(..KEY_LEN).unwrap_or(stream);
        if !due.key().starts_with(seen) {
            let other = if due == FrameKind::Request { FrameKind::Reply } else { FrameKind::Request };
            if !other.key().starts_with(seen) {
                return Err(FrameError::Key);
            }
            if seen.len() == KEY_LEN {
                return Err(FrameError::Role { seen: other, due });
            }
        }
        let view = FrameView::new(stream);
        let (Some(flags), Some(wire_revision), Some(length)) =
            (view.flags(), view.revision(), view.private_data_len())
        else {
            return Ok(None);
        };
        // RFC 6581 §6: revision 1 must still be accepted.
        let revision = match wire_revision {
            1 => Revision::One,
            2 => Revision::Two,
            other => return Err(FrameError::Revision(other)),
        };
        // RFC 5044 §7.1.2 (9): PD_Length is validated before anything is stored.
        if usize::from(length) > MAX_PRIVATE_DATA {
            return Err(FrameError::PrivateDataTooLong(length));
        }
        // RFC 6581 §6: S is reserved, and therefore ignored, in revision 1.
        let has_enhanced = revision == Revision::Two && flags & FLAG_ENHANCED != 0;
        if has_enhanced && usize::from(length) < ENHANCED_LEN {
            return Err(FrameError::EnhancedTooShort(length));
        }
        let used = HEADER_LEN + usize::from(length);
        let Some(mut private_data) = stream.get(HEADER_LEN..used) else {
            return Ok(None);
        };
        let mut enhanced = None;
        if has_enhanced && let Some((word, rest)) = private_data.split_first_chunk::<ENHANCED_LEN>() {
            enhanced = Some(Enhanced::decode(*word));
            private_data = rest;
        }
        let frame = Self {
            kind: due,
            revision,
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            // RFC 5044 §7.1.1: R is reserved, hence unchecked, in a Request.
            rejected: due == FrameKind::Reply && flags & FLAG_REJECT != 0,
            large_fpdu: flags & FLAG_LARGE_FPDU != 0,
            enhanced,
            private_data: private_data.to_vec(),
        };
        Ok(Some((frame, used)))
    }

    /// Returns the number of bytes for the ULP's private data in a frame with or without enhanced data.
    pub const fn private_data_capacity(enhanced: bool) -> usize {
        if enhanced { MAX_PRIVATE_DATA - ENHANCED_LEN } else { MAX_PRIVATE_DATA }
    }

    /// Encodes the complete frame, which must leave in one write.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let enhanced = self.enhanced.filter(|_| self.revision == Revision::Two);
        let length = self.private_data.len() + if enhanced.is_some() { ENHANCED_LEN } else { 0 };
        let wire_length = u16::try_from(length).unwrap_or(u16::MAX);
        if length > MAX_PRIVATE_DATA {
            return Err(FrameError::PrivateDataTooLong(wire_length));
        }
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.markers, FLAG_MARKERS)
            | flag(self.crc, FLAG_CRC)
            | flag(self.rejected && self.kind == FrameKind::Reply, FLAG_REJECT)
            | flag(enhanced.is_some(), FLAG_ENHANCED)
            | flag(self.large_fpdu, FLAG_LARGE_FPDU);
        let mut bytes = Vec::with_capacity(HEADER_LEN + length);
        bytes.extend_from_slice(&self.kind.key());
        bytes.extend_from_slice(&[flags, self.revision.wire()]);
        bytes.extend_from_slice(&wire_length.to_be_bytes());
        if let Some(enhanced) = enhanced {
            bytes.extend_from_slice(&enhanced.encode());
        }
        bytes.extend_from_slice(&self.private_data);
        Ok(bytes)
    }
}

/// The fields of a start-up frame as received, legal or not.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    bytes: &'a [u8],
}

impl<'a> FrameView<'a> {
    /// Returns a view of `bytes`, which may be too short or continue after the frame.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the kind of the key at the front of the frame, if it is valid.
    pub fn kind(&self) -> Option<FrameKind> {
        let key: [u8; KEY_LEN] = array(self.bytes, 0)?;
        [FrameKind::Request, FrameKind::Reply].into_iter().find(|kind| kind.key() == key)
    }

    /// Returns the flags byte.
    pub fn flags(&self) -> Option<u8> {
        self.bytes.get(field::FLAGS).copied()
    }

    /// Returns the revision byte.
    pub fn revision(&self) -> Option<u8> {
        self.bytes.get(field::REVISION).copied()
    }

    /// Returns PD_Length.
    pub fn private_data_len(&self) -> Option<u16> {
        be16(self.bytes, field::PD_LENGTH)
    }

    /// Returns all private data so far, enhanced data included.
    pub fn private_data(&self) -> Option<&'a [u8]> {
        let end = HEADER_LEN + usize::from(self.private_data_len()?);
        self.bytes.get(HEADER_LEN..end.min(self.bytes.len()))
    }

    /// Returns the enhanced data, if flags and revision announce them.
    pub fn enhanced(&self) -> Option<Enhanced> {
        let announced = self.revision()? >= 2 && self.flags()? & FLAG_ENHANCED != 0;
        let word = be32(self.private_data()?, 0).filter(|_| announced)?;
        Some(Enhanced::decode(word.to_be_bytes()))
    }

    /// Returns the length of the complete frame by its length field, in bytes.
    pub fn frame_len(&self) -> Option<usize> {
        Some(HEADER_LEN + usize::from(self.private_data_len()?))
    }
}

#[cfg(test)]
mod tests;
