//! MPA markers (RFC 5044 §4.2, §4.3): four bytes at every 512th byte of the TCP stream, pointing back to the start of the FPDU
//! they stand in.
//!
//! We generate them when a peer asks; we never ask, so none are received.

/// Distance of the first bytes of two markers in the TCP stream.
pub const INTERVAL: usize = 512;
/// Bytes of a marker.
pub const MARKER_LEN: usize = 4;

/// The marker that stands `fpdu_pointer` bytes after the first byte of its FPDU's length field; 0 for one between FPDUs.
pub const fn marker(fpdu_pointer: u16) -> [u8; MARKER_LEN] {
    // RFC 5044 §4.2: the two low bits are always 0.
    let [high, low] = (fpdu_pointer & !3).to_be_bytes();
    [0, 0, high, low]
}

/// FPDUPTR of the four bytes of a marker (RFC 5044 §4.2: a receiver takes its two low bits as zero).
pub const fn fpdu_pointer(marker: [u8; MARKER_LEN]) -> u16 {
    let [_, _, high, low] = marker;
    u16::from_be_bytes([high, low]) & !3
}

/// Where in the outgoing stream the next marker stands.
///
/// Counts the bytes since the first byte of full operation, which is itself the place of the first marker.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkerClock {
    position: u64,
}

impl MarkerClock {
    /// The stream is at the first byte of full operation.
    pub const fn new() -> Self {
        Self { position: 0 }
    }

    /// Bytes that may follow before a marker is due; 0: one is due now.
    pub fn until_marker(&self) -> usize {
        let past = usize::try_from(self.position % INTERVAL as u64).unwrap_or_default();
        if past == 0 { 0 } else { INTERVAL - past }
    }

    /// `bytes` more, markers included, were laid out.
    pub fn advance(&mut self, bytes: usize) {
        self.position = self.position.wrapping_add(bytes as u64);
    }
}
