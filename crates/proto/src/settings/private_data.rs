//! CM private data, which both sides send at connection set-up (RFC 8797).
//!
//! The data has eight bytes, and other layers may put their own data before it, so the decoder searches for it. Absent
//! or invalid data means the defaults, never an error.

use bytes::Bytes;

/// Format identifier (RFC 8797 §4).
const IDENTIFIER: [u8; 4] = 0xf6ab_0e18_u32.to_be_bytes();
/// The only version, of exactly eight bytes.
const VERSION: u8 = 1;
const LEN: usize = 8;
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;
/// Sizes are in units of 1024 bytes, less one.
const UNIT: usize = 1024;

/// The private data of one side (RFC 8797 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// R: this side accepts Send with Invalidate.
    pub remote_invalidation: bool,
    /// The largest message this side sends inline, bytes; 1024 to 262144 in steps of 1024.
    pub send_size: usize,
    /// The largest message this side receives inline, bytes; 1024 to 262144 in steps of 1024.
    pub receive_size: usize,
}

impl Default for PrivateData {
    /// Returns the values that hold for a side without private data (RFC 8797 §5.1).
    fn default() -> Self {
        Self { remote_invalidation: false, send_size: UNIT, receive_size: UNIT }
    }
}

impl PrivateData {
    /// Returns the eight bytes. Sizes are rounded down to the unit of the format.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let flags = if self.remote_invalidation { FLAG_REMOTE_INVALIDATION } else { 0 };
        let mut data = Vec::with_capacity(LEN);
        data.extend_from_slice(&IDENTIFIER);
        data.extend([VERSION, flags, encode_size(self.send_size), encode_size(self.receive_size)]);
        data.into()
    }

    /// Finds the data at any byte offset (RFC 8797 §5.1). `None` if there is none, or only of another version or
    /// incomplete.
    #[must_use]
    pub fn find(data: &[u8]) -> Option<Self> {
        data.windows(LEN).find_map(|window| match window {
            [a, b, c, d, VERSION, flags, send, receive] if [*a, *b, *c, *d] == IDENTIFIER => Some(Self {
                // The other flag bits are reserved: ignored (RFC 8797 §4).
                remote_invalidation: flags & FLAG_REMOTE_INVALIDATION != 0,
                send_size: decode_size(*send),
                receive_size: decode_size(*receive),
            }),
            _ => None,
        })
    }
}

/// RFC 8797 §4.2.
fn encode_size(bytes: usize) -> u8 {
    u8::try_from((bytes / UNIT).saturating_sub(1)).unwrap_or(u8::MAX)
}

fn decode_size(units: u8) -> usize {
    (usize::from(units) + 1) * UNIT
}

/// The inline thresholds of one connection as this side sees them, header included; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The longest message this side may send, bytes.
    pub send: usize,
    /// The longest message this side may receive, bytes.
    pub receive: usize,
}

impl Thresholds {
    /// Returns, for each direction, the smaller of the sender's and the receiver's size (RFC 8797 §4.2).
    #[must_use]
    pub fn negotiate(local: &PrivateData, peer: &PrivateData) -> Self {
        Self {
            send: announced(local.send_size).min(announced(peer.receive_size)),
            receive: announced(local.receive_size).min(announced(peer.send_size)),
        }
    }
}

/// Returns a size as private data announces it, bytes.
pub(crate) fn announced(size: usize) -> usize {
    decode_size(encode_size(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example G of the reference.
    const EXAMPLE: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

    // requirement: rfc8797-5.2-1
    #[test]
    fn s5_1_other_data_is_passed_over() {
        let other = [0xf6, 0xab, 0x0e, 0x19, 1, 1, 3, 3];
        assert_eq!(PrivateData::find(&other), None);
        assert_eq!(PrivateData::find(&[other, EXAMPLE].concat()), PrivateData::find(&EXAMPLE));
    }

    // requirement: rfc8797-4-2
    #[test]
    fn golden_r_set_4096_both_ways() {
        let data = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
        assert_eq!(&data.encode()[..], &EXAMPLE);
        assert_eq!(PrivateData::find(&EXAMPLE), Some(data));
    }

    #[test]
    fn s5_1_found_at_any_offset() {
        for before in 0..40 {
            let mut data = vec![0xf6; before];
            data.extend_from_slice(&EXAMPLE);
            data.extend_from_slice(&[0; 5]);
            assert_eq!(PrivateData::find(&data).unwrap().send_size, 4096, "offset {before}");
        }
    }

    // requirement: rfc8797-5.2-1
    #[test]
    fn s5_2_invalid_data_is_none() {
        for cut in 0..EXAMPLE.len() {
            assert_eq!(PrivateData::find(&EXAMPLE[..cut]), None);
        }
        let mut other = EXAMPLE;
        other[4] = 2;
        assert_eq!(PrivateData::find(&other), None);
        assert_eq!(PrivateData::find(&[0; 64]), None);
    }

    // requirement: rfc8797-4-3
    #[test]
    fn s4_reserved_flags_are_ignored() {
        let mut data = EXAMPLE;
        data[5] = 0xfe;
        assert!(!PrivateData::find(&data).unwrap().remote_invalidation);
        data[5] = 0xff;
        assert!(PrivateData::find(&data).unwrap().remote_invalidation);
    }

    #[test]
    fn s4_2_range_of_sizes() {
        for (bytes, said) in
            [(0, 0), (1023, 0), (1024, 0), (2047, 0), (2048, 1), (262_144, 255), (1 << 30, 255)]
        {
            assert_eq!(encode_size(bytes), said, "{bytes}");
        }
        assert_eq!((decode_size(0), decode_size(3), decode_size(255)), (1024, 4096, 262_144));
    }

    // requirement: rfc8166-3.3.3-3, rfc8797-5.1-1
    #[test]
    fn s4_2_thresholds_are_the_smaller_of_both() {
        let local = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 8192 };
        let peer = PrivateData { remote_invalidation: true, send_size: 2048, receive_size: 16_384 };
        assert_eq!(Thresholds::negotiate(&local, &peer), Thresholds { send: 4096, receive: 2048 });
        let silent = Thresholds::negotiate(&local, &PrivateData::default());
        assert_eq!(silent, Thresholds { send: 1024, receive: 1024 });
    }
}
