//! RoCE version 2: the transport of InfiniBand in UDP datagrams (InfiniBand Architecture Specification, volume 1,
//! chapter 9 and annex A17).
//!
//! | module | mechanism |
//! | --- | --- |
//! | here | headers of a packet, and its check sum |
//! | [`management`] | messages of the connection manager: the set-up of a connection, with its private data |
//! | [`connections`] | the packets of a recording, sorted by their connections |
//!
//! A packet begins with the base transport header (BTH), and extended headers follow by its opcode. An item of a
//! session has these and the payload. It does not have the invariant CRC at the end, which also covers IP and UDP.

use std::ops::Range;

pub mod connections;
pub mod management;

/// The UDP port that receives RoCE version 2.
pub const PORT: u16 = 4791;
/// Length of the base transport header, in bytes.
pub const BTH_LEN: usize = 12;
/// Length of the invariant CRC at the end of a packet, in bytes.
pub const ICRC_LEN: usize = 4;
/// Number of the queue pair for management.
pub const MANAGEMENT_QUEUE_PAIR: u32 = 1;

/// Packet sequence numbers have 24 bits.
const PSN_MASK: u32 = 0x00FF_FFFF;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send.
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Acknowledgment, positive or negative.
    Acknowledge,
    /// Send on an unreliable datagram queue pair, as those of the connection manager.
    Datagram,
}

/// The RDMA extended transport header: a range of the receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Virtual address of the first byte.
    pub address: u64,
    /// The R_Key of the memory.
    pub key: u32,
    /// Length of the complete operation, in bytes.
    pub length: u32,
}

/// The meaning of an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All requests up to this packet sequence number arrived.
    Acknowledged,
    /// The receiver has no Receive, and asks for a repetition.
    NotReady,
    /// The receiver misses an earlier packet, and asks for a repetition.
    OutOfSequence,
    /// The receiver refuses the request, and the connection ends. The code is 1 for an invalid request, 2 for a remote
    /// access error, 3 for a remote operational error.
    Refused(u8),
    /// A reserved value.
    Reserved(u8),
}

impl Syndrome {
    /// Decodes the first byte of the ACK extended transport header.
    const fn decode(byte: u8) -> Self {
        match (byte >> 5, byte & 0x1F) {
            (0, _) => Self::Acknowledged,
            (1, _) => Self::NotReady,
            (3, 0) => Self::OutOfSequence,
            (3, code) => Self::Refused(code),
            _ => Self::Reserved(byte),
        }
    }
}

/// The base transport header, which every packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseHeader {
    /// Kind of the packet, and the transport service.
    pub opcode: u8,
    /// Solicited event, migration, pad count and version of the header.
    pub flags: u8,
    /// Number of the receiver's queue pair.
    pub queue_pair: u32,
    /// Packet sequence number, 24 bits.
    pub sequence: u32,
}

impl BaseHeader {
    /// Decodes the header; `None` if the packet is too short.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [opcode, flags, _, _, _, queue_pair @ .., _, high, middle, low] =
            bytes.first_chunk::<BTH_LEN>()?;
        Some(Self {
            opcode: *opcode,
            flags: *flags,
            queue_pair: be24(queue_pair, 0)?,
            sequence: u32::from_be_bytes([0, *high, *middle, *low]),
        })
    }

    /// Returns whether the version of the header is the only known one.
    const fn is_known_version(self) -> bool {
        self.flags & 0x0F == 0
    }

    /// Returns whether the packet is a request without an [`Operation`], as an atomic one.
    ///
    /// Reliable connections have the opcodes below 0x20, and 0x12 answers an atomic operation.
    pub(crate) const fn is_unknown_request(self) -> bool {
        self.is_known_version() && self.opcode < 0x20 && self.opcode != 0x12 && meaning(self.opcode).is_none()
    }
}

/// A packet with its headers decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Kind of the packet.
    pub operation: Operation,
    /// The packet is the first of its operation.
    pub first: bool,
    /// The packet is the last of its operation.
    pub last: bool,
    /// The sender asks for a solicited event at the receiver.
    pub solicited: bool,
    /// Number of the receiver's queue pair.
    pub queue_pair: u32,
    /// Packet sequence number, 24 bits.
    pub sequence: u32,
    /// RETH of a Write's first packet and of a Read Request.
    pub range: Option<MemoryRange>,
    /// AETH of an acknowledgment, and of the first and the last Read Response.
    pub syndrome: Option<Syndrome>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// IETH: the R_Key that a Send invalidates.
    pub invalidate: Option<u32>,
    /// Number of the sender's queue pair, of datagrams only.
    pub source_queue_pair: Option<u32>,
    /// Range of the payload in the packet's bytes, without the pad behind it.
    pub payload: Range<usize>,
}

/// The extended headers that an opcode has.
#[derive(Clone, Copy)]
struct Extended {
    range: bool,
    acknowledge: bool,
    immediate: bool,
    invalidate: bool,
    datagram: bool,
}

/// Returns the meaning of an opcode: operation, first, last, extended headers. Atomic operations have none here.
const fn meaning(opcode: u8) -> Option<(Operation, bool, bool, Extended)> {
    const NONE: Extended =
        Extended { range: false, acknowledge: false, immediate: false, invalidate: false, datagram: false };
    const RANGE: Extended = Extended { range: true, ..NONE };
    const ACKNOWLEDGE: Extended = Extended { acknowledge: true, ..NONE };
    const IMMEDIATE: Extended = Extended { immediate: true, ..NONE };
    const INVALIDATE: Extended = Extended { invalidate: true, ..NONE };
    const DATAGRAM: Extended = Extended { datagram: true, ..NONE };
    use Operation::{Acknowledge, Datagram, ReadRequest, ReadResponse, Send, Write};
    Some(match opcode {
        0x00 => (Send, true, false, NONE),
        0x01 => (Send, false, false, NONE),
        0x02 => (Send, false, true, NONE),
        0x03 => (Send, false, true, IMMEDIATE),
        0x04 => (Send, true, true, NONE),
        0x05 => (Send, true, true, IMMEDIATE),
        0x06 => (Write, true, false, RANGE),
        0x07 => (Write, false, false, NONE),
        0x08 => (Write, false, true, NONE),
        0x09 => (Write, false, true, IMMEDIATE),
        0x0A => (Write, true, true, RANGE),
        0x0B => (Write, true, true, Extended { immediate: true, ..RANGE }),
        0x0C => (ReadRequest, true, true, RANGE),
        0x0D => (ReadResponse, true, false, ACKNOWLEDGE),
        0x0E => (ReadResponse, false, false, NONE),
        0x0F => (ReadResponse, false, true, ACKNOWLEDGE),
        0x10 => (ReadResponse, true, true, ACKNOWLEDGE),
        0x11 => (Acknowledge, true, true, ACKNOWLEDGE),
        0x16 => (Send, false, true, INVALIDATE),
        0x17 => (Send, true, true, INVALIDATE),
        0x64 => (Datagram, true, true, DATAGRAM),
        0x65 => (Datagram, true, true, Extended { immediate: true, ..DATAGRAM }),
        _ => return None,
    })
}

impl Packet {
    /// Decodes the headers; `None` if the opcode is unknown, or the packet ends inside a header.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let base = BaseHeader::decode(bytes)?;
        let (operation, first, last, extended) = meaning(base.opcode)?;
        if !base.is_known_version() {
            return None;
        }
        let mut at = BTH_LEN;
        let mut take = |length: usize| {
            let start = at;
            at += length;
            bytes.get(start..at)
        };
        let mut packet = Self {
            operation,
            first,
            last,
            solicited: base.flags & 0x80 != 0,
            queue_pair: base.queue_pair,
            sequence: base.sequence,
            range: None,
            syndrome: None,
            immediate: None,
            invalidate: None,
            source_queue_pair: None,
            payload: 0..0,
        };
        if extended.datagram {
            packet.source_queue_pair = Some(be24(take(8)?, 5)?);
        }
        if extended.range {
            let header = take(16)?;
            let address = u64::from(be32(header, 0)?) << 32 | u64::from(be32(header, 4)?);
            packet.range = Some(MemoryRange { address, key: be32(header, 8)?, length: be32(header, 12)? });
        }
        if extended.acknowledge {
            packet.syndrome = Some(Syndrome::decode(*take(4)?.first()?));
        }
        if extended.immediate {
            packet.immediate = Some(be32(take(4)?, 0)?);
        }
        if extended.invalidate {
            packet.invalidate = Some(be32(take(4)?, 0)?);
        }
        let pad = usize::from(base.flags >> 4 & 3);
        packet.payload = at..bytes.len().checked_sub(pad).filter(|&end| end >= at)?;
        Some(packet)
    }
}

fn be24(bytes: &[u8], at: usize) -> Option<u32> {
    let [high, middle, low] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, high, middle, low]))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Returns the sequence number `packets` after this one.
pub(crate) const fn advance(sequence: u32, packets: u32) -> u32 {
    sequence.wrapping_add(packets) & PSN_MASK
}

/// Returns how many packets `to` is after `from`; `None` if `to` is before `from`.
pub(crate) fn distance(from: u32, to: u32) -> Option<u32> {
    Some(to.wrapping_sub(from) & PSN_MASK).filter(|&distance| distance <= PSN_MASK / 2)
}

/// Returns the invariant CRC of a packet (annex A17.3.3), as a number of which the lowest byte is sent first.
///
/// `headers` are the headers of IP and UDP, `bytes` the packet from its BTH to its pad. Fields that routers and network
/// stacks change count as ones, and so do eight bytes in front, where InfiniBand has its local header.
#[must_use]
pub fn icrc(headers: &[u8], bytes: &[u8]) -> u32 {
    let udp = headers.len().saturating_sub(8);
    let (variable, masks): (&[usize], _) = match headers.first().map(|first| first >> 4) {
        // Type of service, time to live, check sum.
        Some(4) => (&[1, 8, 10, 11], None),
        // Traffic class, flow label, hop limit.
        _ => (&[1, 2, 3, 7], Some(0x0F)),
    };
    let mut crc = Crc32::new();
    crc.update([0xFF; 8]);
    crc.update(headers.iter().enumerate().map(|(at, &byte)| match masks {
        Some(mask) if at == 0 => byte | mask,
        _ if variable.contains(&at) || at == udp + 6 || at == udp + 7 => 0xFF,
        _ => byte,
    }));
    // Congestion notifications, and reserved bits.
    crc.update(bytes.iter().enumerate().map(|(at, &byte)| if at == 4 { 0xFF } else { byte }));
    crc.value()
}

/// The CRC-32 of Ethernet.
struct Crc32(u32);

impl Crc32 {
    const fn new() -> Self {
        Self(u32::MAX)
    }

    fn update(&mut self, bytes: impl IntoIterator<Item = u8>) {
        for byte in bytes {
            self.0 ^= u32::from(byte);
            for _ in 0..8 {
                let bit = self.0 & 1;
                self.0 = self.0 >> 1 ^ (0xEDB8_8320 * bit);
            }
        }
    }

    const fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_by_opcode() {
        let bth = [0x00, 0x80 | 2 << 4, 0xFF, 0xFF, 0, 0x01, 0x02, 0x03, 0x80, 0x0A, 0x0B, 0x0C];
        let packet = |opcode: u8, rest: &[u8]| {
            let bytes = [&[opcode], &bth[1..], rest].concat();
            // No prefix that ends inside a header is a packet.
            for length in 0..bytes.len() - 4 {
                assert_eq!(Packet::decode(&bytes[..length]), None, "{opcode:#x} {length}");
            }
            Packet::decode(&bytes).unwrap()
        };
        // Two bytes of payload and two of pad.
        let send = packet(0x17, &[0, 0, 0, 9, 1, 2, 0, 0]);
        assert_eq!(
            (send.operation, send.first, send.last, send.solicited),
            (Operation::Send, true, true, true)
        );
        assert_eq!((send.queue_pair, send.sequence, send.invalidate), (0x01_0203, 0x0A_0B0C, Some(9)));
        assert_eq!(send.payload, 16..18);
        let range = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
        let write = packet(0x0B, &[&range[..], &[0, 0, 0, 5, 1, 2, 0, 0]].concat());
        assert_eq!(write.range, Some(MemoryRange { address: 0x1_0000_0002, key: 3, length: 4 }));
        assert_eq!((write.operation, write.immediate), (Operation::Write, Some(5)));
        let response = packet(0x0D, &[0x1F, 0, 0, 1, 1, 2, 0, 0]);
        assert_eq!((response.operation, response.last), (Operation::ReadResponse, false));
        assert_eq!(response.syndrome, Some(Syndrome::Acknowledged));
        let datagram = packet(0x64, &[0x80, 1, 0, 0, 0, 0, 0, 7, 1, 2, 0, 0]);
        assert_eq!((datagram.operation, datagram.source_queue_pair), (Operation::Datagram, Some(7)));
        // An atomic operation, and another version of the header.
        assert_eq!(Packet::decode(&[&[0x13], &bth[1..], &[0; 64]].concat()), None);
        assert_eq!(Packet::decode(&[4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn acknowledgments() {
        for (byte, syndrome) in [
            (0x00, Syndrome::Acknowledged),
            (0x1F, Syndrome::Acknowledged),
            (0x2E, Syndrome::NotReady),
            (0x60, Syndrome::OutOfSequence),
            (0x62, Syndrome::Refused(2)),
            (0x40, Syndrome::Reserved(0x40)),
            (0x80, Syndrome::Reserved(0x80)),
        ] {
            assert_eq!(Syndrome::decode(byte), syndrome, "{byte:#x}");
        }
    }

    #[test]
    fn the_sum_is_that_of_ethernet_with_the_bits_in_the_usual_order() {
        let mut crc = Crc32::new();
        crc.update(*b"123456789");
        assert_eq!(crc.value(), 0xCBF4_3926);
    }

    /// An acknowledgment by rxe of Linux 6.1.
    #[test]
    fn the_sum_of_linux() {
        let mut headers = [
            0x45, 0, 0, 0x30, 0x5E, 0xB3, 0x40, 0, 0x40, 0x11, 0xC3, 0xEB, 10, 0, 2, 15, 10, 0, 2, 16, 0xEE,
            0x99, 0x12, 0xB7, 0, 0x1C, 0, 0,
        ];
        let packet = [0x11, 0, 0xFF, 0xFF, 0, 0, 0, 0x11, 0, 0xC7, 0x6C, 0x58, 0x1F, 0, 0, 1];
        let sum = [0xDF, 0x81, 0x2B, 0xA6];
        assert_eq!(icrc(&headers, &packet).to_le_bytes(), sum);
        // The type of service, the time to live and both check sums can change on the way.
        for at in [1, 8, 10, 11, 26, 27] {
            headers[at] ^= 0xFF;
        }
        assert_eq!(icrc(&headers, &packet).to_le_bytes(), sum);
        headers[12] ^= 1;
        assert_ne!(icrc(&headers, &packet).to_le_bytes(), sum);
    }
}
