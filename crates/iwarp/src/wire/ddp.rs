//! DDP segment headers (RFC 5041 §4): tagged (14 bytes) and untagged (18 bytes).
//!
//! RDMAP defines RsvdULP: its first byte is the RDMAP control field, and in untagged segments the other four are the
//! Invalidate STag ([`rdmap`](super::rdmap)).

use super::{be32, be64, put};

/// Length of a tagged segment's header, in bytes.
pub const TAGGED_LEN: usize = 14;
/// Length of an untagged segment's header, in bytes.
pub const UNTAGGED_LEN: usize = 18;
/// The DDP version this crate speaks (RFC 5041 §4.1: DV = 01).
pub const VERSION: u8 = 1;
/// The MSN of the first message of each queue (RFC 5041 §4.3).
pub const FIRST_MSN: u32 = 1;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;

mod field {
    pub(super) const CONTROL: usize = 0;
    pub(super) const RSVD_ULP: usize = 1;
    pub(super) const STAG: usize = 2;
    pub(super) const TAGGED_OFFSET: usize = 6;
    pub(super) const QUEUE: usize = 6;
    pub(super) const MSN: usize = 10;
    pub(super) const MESSAGE_OFFSET: usize = 14;
}

/// Untagged buffer queues of RDMAP (RFC 5040 §4.1, Figure 3).
pub mod queue {
    /// Send messages.
    pub const SEND: u32 = 0;
    /// RDMA Read Requests.
    pub const READ_REQUEST: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
}

/// A header of DDP version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Header of a segment that is placed by steering tag and tagged offset.
    Tagged(Tagged),
    /// Header of a segment that is placed into the next buffer of a queue.
    Untagged(Untagged),
}

/// Header of a tagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// This is the last segment of its message.
    pub last: bool,
    /// First byte of RsvdULP: the RDMAP control field.
    pub control: u8,
    /// Steering tag.
    pub stag: u32,
    /// Tagged offset of the segment's first byte.
    pub offset: u64,
}

/// Header of an untagged segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// This is the last segment of its message.
    pub last: bool,
    /// First byte of RsvdULP: the RDMAP control field.
    pub control: u8,
    /// The other four bytes of RsvdULP: the Invalidate STag, or 0.
    pub invalidate: u32,
    /// Queue number.
    pub queue: u32,
    /// Message sequence number, counted for each queue from 1.
    pub msn: u32,
    /// Offset of the segment's first byte in its message.
    pub offset: u32,
}

/// Reason why bytes are no DDP header of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The ULPDU ends inside the header.
    #[error("ULPDU of {0} bytes is too short for its DDP header")]
    Truncated(usize),
    /// DV is not 1.
    #[error("DDP version {version}; {VERSION} is known")]
    Version {
        /// The T bit, which selects the error type of the Terminate.
        tagged: bool,
        /// Value of DV.
        version: u8,
    },
}

impl Header {
    /// Decodes the header at the front of `ulpdu`.
    pub fn decode(ulpdu: &[u8]) -> Result<Self, HeaderError> {
        let view = HeaderView::new(ulpdu);
        let (Some(tagged), Some(version)) = (view.is_tagged(), view.version()) else {
            return Err(HeaderError::Truncated(ulpdu.len()));
        };
        // RFC 5041 §7.1: DV is checked before the fields whose meaning it defines.
        if version != VERSION {
            return Err(HeaderError::Version { tagged, version });
        }
        let header =
            if tagged { view.tagged().map(Self::Tagged) } else { view.untagged().map(Self::Untagged) };
        header.ok_or(HeaderError::Truncated(ulpdu.len()))
    }

    /// Returns the length of this header, in bytes.
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_LEN,
            Self::Untagged(_) => UNTAGGED_LEN,
        }
    }

    /// Returns the RDMAP control byte.
    pub const fn control(&self) -> u8 {
        match self {
            Self::Tagged(header) => header.control,
            Self::Untagged(header) => header.control,
        }
    }

    /// Returns whether this is the last segment of its message.
    pub const fn is_last(&self) -> bool {
        match self {
            Self::Tagged(header) => header.last,
            Self::Untagged(header) => header.last,
        }
    }
}

impl Tagged {
    /// Encodes the header to 14 bytes.
    pub fn encode(&self) -> [u8; TAGGED_LEN] {
        let mut bytes = [0; TAGGED_LEN];
        put(&mut bytes, field::CONTROL, &[TAGGED | if self.last { LAST } else { 0 } | VERSION]);
        put(&mut bytes, field::RSVD_ULP, &[self.control]);
        put(&mut bytes, field::STAG, &self.stag.to_be_bytes());
        put(&mut bytes, field::TAGGED_OFFSET, &self.offset.to_be_bytes());
        bytes
    }
}

impl Untagged {
    /// Encodes the header to 18 bytes.
    pub fn encode(&self) -> [u8; UNTAGGED_LEN] {
        let mut bytes = [0; UNTAGGED_LEN];
        put(&mut bytes, field::CONTROL, &[if self.last { LAST } else { 0 } | VERSION]);
        put(&mut bytes, field::RSVD_ULP, &[self.control]);
        put(&mut bytes, field::STAG, &self.invalidate.to_be_bytes());
        put(&mut bytes, field::QUEUE, &self.queue.to_be_bytes());
        put(&mut bytes, field::MSN, &self.msn.to_be_bytes());
        put(&mut bytes, field::MESSAGE_OFFSET, &self.offset.to_be_bytes());
        bytes
    }
}

/// The fields of a DDP header as received, of any version.
#[derive(Clone, Copy, Debug)]
pub struct HeaderView<'a> {
    bytes: &'a [u8],
}

impl<'a> HeaderView<'a> {
    /// Returns a view of the front of a ULPDU.
    pub const fn new(ulpdu: &'a [u8]) -> Self {
        Self { bytes: ulpdu }
    }

    fn flags(&self) -> Option<u8> {
        self.bytes.get(field::CONTROL).copied()
    }

    /// Returns the T bit.
    pub fn is_tagged(&self) -> Option<bool> {
        Some(self.flags()? & TAGGED != 0)
    }

    /// Returns the DV field.
    pub fn version(&self) -> Option<u8> {
        Some(self.flags()? & VERSION_MASK)
    }

    /// Returns the length of the header that the T bit announces, in bytes.
    pub fn header_len(&self) -> Option<usize> {
        Some(if self.is_tagged()? { TAGGED_LEN } else { UNTAGGED_LEN })
    }

    /// Returns the fields of a tagged segment, whatever the T bit is.
    pub fn tagged(&self) -> Option<Tagged> {
        Some(Tagged {
            last: self.flags()? & LAST != 0,
            control: self.bytes.get(field::RSVD_ULP).copied()?,
            stag: be32(self.bytes, field::STAG)?,
            offset: be64(self.bytes, field::TAGGED_OFFSET)?,
        })
    }

    /// Returns the fields of an untagged segment, whatever the T bit is.
    pub fn untagged(&self) -> Option<Untagged> {
        Some(Untagged {
            last: self.flags()? & LAST != 0,
            control: self.bytes.get(field::RSVD_ULP).copied()?,
            invalidate: be32(self.bytes, field::STAG)?,
            queue: be32(self.bytes, field::QUEUE)?,
            msn: be32(self.bytes, field::MSN)?,
            offset: be32(self.bytes, field::MESSAGE_OFFSET)?,
        })
    }

    /// Returns the bytes that follow the header.
    pub fn payload(&self) -> Option<&'a [u8]> {
        self.bytes.get(self.header_len()?..)
    }
}

#[cfg(test)]
mod tests;
