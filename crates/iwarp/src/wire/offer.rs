//! The offer to receive FPDUs longer than a TCP segment, at the end of the private data of an MPA start-up frame.
//!
//! RFC 5044 §4.5 fits FPDUs to TCP segments, for receivers that place segments out of order. A receiver that reads a
//! TCP socket gains nothing from that: it only gets more headers and CRCs. No RFC has a field to say so, and reserved
//! bits of MPA must be zero (§7.1.1). Private data may hold entries of several layers, told apart by their format
//! identifiers (RFC 8797 §5.2). So the offer is such an entry, and peers that do not know it pass over it.

use bytes::Bytes;

use super::fpdu::MIN_MULPDU;
use super::{be16, be32, put};

/// Length of an offer, in bytes.
pub const OFFER_LEN: usize = 8;
/// Format identifier of an offer.
pub const FORMAT: u32 = 0x7b0f_9d44;
/// Version of the format.
pub const VERSION: u8 = 1;

mod field {
    pub(super) const FORMAT: usize = 0;
    pub(super) const VERSION: usize = 4;
    pub(super) const MAX_ULPDU: usize = 6;
}

/// States the longest ULPDU that its sender receives, whatever the TCP segments are.
///
/// The byte between version and length is reserved: zero when sent, and not checked when received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpduOffer {
    max_ulpdu: u16,
}

impl FpduOffer {
    /// The offer of an endpoint that receives every ULPDU that the length field can state.
    pub const ALL: Self = Self { max_ulpdu: u16::MAX };

    /// Returns an offer of ULPDUs up to this length in bytes. `None` below 128, which every sender may reach (RFC 5044
    /// §4.5).
    pub fn new(max_ulpdu: u16) -> Option<Self> {
        (usize::from(max_ulpdu) >= MIN_MULPDU).then_some(Self { max_ulpdu })
    }

    /// Returns the longest ULPDU, in bytes.
    pub const fn max_ulpdu(self) -> u16 {
        self.max_ulpdu
    }

    /// Encodes the offer to 8 bytes.
    pub fn encode(self) -> [u8; OFFER_LEN] {
        let mut bytes = [0; OFFER_LEN];
        put(&mut bytes, field::FORMAT, &FORMAT.to_be_bytes());
        put(&mut bytes, field::VERSION, &[VERSION]);
        put(&mut bytes, field::MAX_ULPDU, &self.max_ulpdu.to_be_bytes());
        bytes
    }

    /// Separates an offer at the end of private data from the data of the ULP. Data without an offer is returned whole.
    /// An offer of too short a length is removed and counts as none.
    pub fn split(mut private_data: Bytes) -> (Bytes, Option<Self>) {
        let Some(start) = private_data.len().checked_sub(OFFER_LEN) else { return (private_data, None) };
        let entry = private_data.get(start..).unwrap_or_default();
        let known = be32(entry, field::FORMAT) == Some(FORMAT) && entry.get(field::VERSION) == Some(&VERSION);
        if !known {
            return (private_data, None);
        }
        let offer = be16(entry, field::MAX_ULPDU).and_then(Self::new);
        private_data.truncate(start);
        (private_data, offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::hex::hex;

    fn split(dump: &str) -> (Vec<u8>, Option<u16>) {
        let (data, offer) = FpduOffer::split(hex(dump).into());
        (data.to_vec(), offer.map(FpduOffer::max_ulpdu))
    }

    #[test]
    fn an_offer_stands_behind_the_data_of_the_ulp() {
        assert_eq!(FpduOffer::ALL.encode().to_vec(), hex("7b0f9d44 0100 ffff"));
        assert_eq!(split("7b0f9d44 0100 ffff"), (vec![], Some(65_535)));
        assert_eq!(split("f6ab0e18 01010303 7b0f9d44 0100 4000"), (hex("f6ab0e18 01010303"), Some(16_384)));
        // The reserved byte is not checked.
        assert_eq!(split("aa 7b0f9d44 01ff 0080"), (vec![0xAA], Some(128)));
        // Shorter than what every sender may send: no offer.
        assert_eq!(split("aa 7b0f9d44 0100 007f"), (vec![0xAA], None));
        assert_eq!(FpduOffer::new(127), None);
    }

    #[test]
    fn other_private_data_stays_whole() {
        for data in [
            "",
            "7b0f9d44",
            "0f9d44 0100 ffff",
            "7b0f9d44 0200 ffff",
            "7b0f9d45 0100 ffff",
            "7b0f9d44 0100 ffff 00",
        ] {
            assert_eq!(split(data), (hex(data), None), "{data}");
        }
    }
}
