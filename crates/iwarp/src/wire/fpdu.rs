//! FPDU framing (RFC 5044 §4): length, ULPDU, pad, CRC32c, and the maximum length of a ULPDU.

use crc_fast::{CrcAlgorithm, Digest};

use super::{array, be16};

/// Length in bytes from which folding with wide registers is faster than the CRC instruction of the processor. Folding
/// is about four times as fast for bulk data, and slower for headers.
const WIDE_MIN: usize = 512;

/// Length of the ULPDU_Length field, in bytes.
pub const LENGTH_LEN: usize = 2;
/// Length of the CRC field, in bytes.
pub const CRC_LEN: usize = 4;
/// Bytes that an FPDU adds to its ULPDU, without pad and markers.
pub const OVERHEAD: usize = LENGTH_LEN + CRC_LEN;
/// Largest ULPDU that the length field can state, in bytes.
pub const MAX_ULPDU: usize = u16::MAX as usize;
/// Largest pad, in bytes.
pub const MAX_PAD: usize = 3;
/// Largest FPDU without markers, in bytes.
pub const MAX_FPDU: usize = LENGTH_LEN + MAX_ULPDU + MAX_PAD + CRC_LEN;
/// Minimum that an MPA sender offers to DDP, in bytes (RFC 5044 §4.5).
pub const MIN_MULPDU: usize = 128;
/// Maximum that an MPA sender offers to DDP, in bytes (RFC 5044 §3). Received ULPDUs may be longer.
pub const MAX_MULPDU: usize = 64_768;

/// Returns the number of zero bytes after a ULPDU of `ulpdu_len` bytes (RFC 5044 §4.1: length field, ULPDU and pad are
/// a multiple of four).
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() & 3
}

/// Returns the length of an FPDU without markers, in bytes.
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    OVERHEAD + ulpdu_len + pad_len(ulpdu_len)
}

/// Returns the largest ULPDU whose FPDU fits a TCP segment of `emss` bytes (RFC 5044 §4.5), within 128 and 64768.
pub fn mulpdu(emss: usize, markers: bool) -> usize {
    let marker_bytes = if markers { 4 * emss.div_ceil(super::marker::INTERVAL) } else { 0 };
    emss.saturating_sub(OVERHEAD + marker_bytes + emss % 4).clamp(MIN_MULPDU, MAX_MULPDU)
}

/// A running CRC32c over the bytes of one FPDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc(u32);

impl Crc {
    /// Returns a CRC that covers no bytes yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Extends the CRC over `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        if bytes.len() < WIDE_MIN {
            self.0 = crc32c::crc32c_append(self.0, bytes);
        } else {
            // This library keeps the sum before its final complement.
            let mut wide = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!self.0));
            wide.update(bytes);
            self.0 = u32::try_from(wide.finalize() & u64::from(u32::MAX)).unwrap_or_default();
        }
    }

    /// Returns the CRC field (RFC 5044 §4.4, Figure 5: least significant byte first).
    pub const fn wire(self) -> [u8; CRC_LEN] {
        self.0.to_le_bytes()
    }
}

/// Returns a complete FPDU around `ulpdu`, without markers. The CRC field is zero when `crc` is off. `None` above 65535
/// bytes.
///
/// For tools, tests and start-up: the endpoint never copies payload into an FPDU.
pub fn seal(ulpdu: &[u8], crc: bool) -> Option<Vec<u8>> {
    let length = u16::try_from(ulpdu.len()).ok()?;
    let mut bytes = Vec::with_capacity(fpdu_len(ulpdu.len()));
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len() + pad_len(ulpdu.len()), 0);
    let mut sum = Crc::new();
    if crc {
        sum.update(&bytes);
    }
    bytes.extend_from_slice(&sum.wire());
    Some(bytes)
}

/// The parts of an FPDU without markers, as received.
#[derive(Clone, Copy, Debug)]
pub struct FpduView<'a> {
    bytes: &'a [u8],
}

impl<'a> FpduView<'a> {
    /// Returns a view of `bytes`, which may be too short or continue after the FPDU.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns ULPDU_Length.
    pub fn ulpdu_len(&self) -> Option<u16> {
        be16(self.bytes, 0)
    }

    /// Returns the ULPDU, if it is complete.
    pub fn ulpdu(&self) -> Option<&'a [u8]> {
        let length = usize::from(self.ulpdu_len()?);
        self.bytes.get(LENGTH_LEN..LENGTH_LEN + length)
    }

    /// Returns the CRC field.
    pub fn crc(&self) -> Option<[u8; CRC_LEN]> {
        array(self.bytes, self.fpdu_len()? - CRC_LEN)
    }

    /// Returns whether the CRC field holds the CRC32c of the bytes before it; `None` if the FPDU is not complete.
    pub fn crc_matches(&self) -> Option<bool> {
        let mut sum = Crc::new();
        sum.update(self.bytes.get(..self.fpdu_len()? - CRC_LEN)?);
        Some(sum.wire() == self.crc()?)
    }

    /// Returns the length of the complete FPDU by its length field, in bytes.
    pub fn fpdu_len(&self) -> Option<usize> {
        Some(fpdu_len(usize::from(self.ulpdu_len()?)))
    }
}

#[cfg(test)]
mod tests;
