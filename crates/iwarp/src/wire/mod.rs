//! The bytes of MPA, DDP and RDMAP.
//!
//! Each protocol has two faces. A *view* (`FrameView`, [`FpduView`](fpdu::FpduView), …) reads fields out of borrowed bytes and
//! makes no judgement: it serves a dissector, which must show what is there however wrong it is. A *representation*
//! ([`Frame`](mpa::Frame), [`Header`](ddp::Header), …) holds only legal values: `decode` refuses everything else with a named
//! error and `encode` cannot produce anything else. The endpoint uses representations only.
//!
//! Nothing here owns payload, allocates in proportion to a number read from the wire, or knows a connection.
//!
//! All integers are big-endian except the CRC of an FPDU (RFC 5044 §4.4: least significant byte first).

pub mod ddp;
pub mod fpdu;
pub mod marker;
pub mod mpa;
pub mod rdmap;
pub mod terminate;

/// The `N` bytes at `at`, if they are there.
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

/// Writes `value` at `at`; what lies outside `bytes` is dropped (callers size their arrays by named constants).
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(room) = bytes.get_mut(at..at + value.len()) {
        room.copy_from_slice(value);
    }
}

#[cfg(test)]
pub(crate) mod hex {
    /// Bytes of a hex dump; blanks and `|` are for the reader.
    pub(crate) fn hex(dump: &str) -> Vec<u8> {
        let digits: Vec<u8> = dump.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }
}
