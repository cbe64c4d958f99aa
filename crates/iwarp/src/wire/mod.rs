//! Wire formats of MPA, DDP and RDMAP.
//!
//! Each protocol has two kinds of types. A *view* (`FrameView`, [`FpduView`](fpdu::FpduView), …) reads fields out of
//! borrowed bytes without judgement. It serves a dissector, which must show all fields however wrong they are. A
//! *representation* ([`Frame`](mpa::Frame), [`Header`](ddp::Header), …) holds only legal values: `decode` refuses all
//! others with a named error, and `encode` cannot produce them. The endpoint uses representations only.
//!
//! No type here owns payload, allocates in proportion to a number read from the wire, or knows a connection.
//!
//! All integers are big-endian except the CRC of an FPDU (RFC 5044 §4.4: least significant byte first).

pub mod ddp;
pub mod fpdu;
pub mod marker;
pub mod mpa;
pub mod offer;
pub mod rdmap;
pub mod terminate;

/// Returns the `N` bytes at `at`, if all of them exist.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_be_bytes)
}

/// Writes `value` at `at`, and drops bytes outside of `bytes` (callers size their arrays by named constants).
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(room) = bytes.get_mut(at..at + value.len()) {
        room.copy_from_slice(value);
    }
}

#[cfg(test)]
pub(crate) mod hex {
    /// Returns the bytes of a hex dump; blanks and `|` are ignored.
    pub(crate) fn hex(dump: &str) -> Vec<u8> {
        let digits: Vec<u8> = dump.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }
}
