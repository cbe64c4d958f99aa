//! MPA markers (RFC 5044 §4.2, §4.3): four bytes at every 512th byte of the TCP stream. They point back to the start of
//! the FPDU around them.
//!
//! This provider generates them when a peer asks. It never asks, so it receives none.

/// Distance between the first bytes of two markers in the TCP stream, in bytes.
pub const INTERVAL: usize = 512;
/// Length of a marker, in bytes.
pub const MARKER_LEN: usize = 4;

/// Returns the marker that stands `fpdu_pointer` bytes after the first byte of its FPDU's length field; 0 for a marker
/// between FPDUs.
pub const fn marker(fpdu_pointer: u16) -> [u8; MARKER_LEN] {
    // RFC 5044 §4.2: the two low bits are always 0.
    let [high, low] = (fpdu_pointer & !3).to_be_bytes();
    [0, 0, high, low]
}

/// Returns FPDUPTR of the four bytes of a marker (RFC 5044 §4.2: a receiver ignores its two low bits).
pub const fn fpdu_pointer(marker: [u8; MARKER_LEN]) -> u16 {
    let [_, _, high, low] = marker;
    u16::from_be_bytes([high, low]) & !3
}

/// Position of the next marker in the outgoing stream.
///
/// Counts the bytes since the first byte of full operation, which is itself the position of the first marker.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkerClock {
    position: u64,
}

impl MarkerClock {
    /// Returns a clock at the first byte of full operation.
    pub const fn new() -> Self {
        Self { position: 0 }
    }

    /// Returns the number of bytes that may follow before a marker is due; 0: a marker is due now.
    pub fn until_marker(&self) -> usize {
        let past = usize::try_from(self.position % INTERVAL as u64).unwrap_or_default();
        if past == 0 { 0 } else { INTERVAL - past }
    }

    /// Advances by `bytes` that were laid out, markers included.
    pub fn advance(&mut self, bytes: usize) {
        self.position = self.position.wrapping_add(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // requirement: rfc5044-4.2-2, rfc5044-4.2-3
    #[test]
    fn rfc5044_4_2_the_bits_of_a_marker() {
        assert_eq!(marker(0xABCF), [0, 0, 0xAB, 0xCC]);
        assert_eq!(fpdu_pointer([0xFF, 0xFF, 0xAB, 0xCF]), 0xABCC);
    }
}
