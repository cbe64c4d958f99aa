//! Packets of a pcap file: TCP segments and UDP datagrams. The file has the classic format, in either byte order, with
//! micro- or nanoseconds.
//!
//! Link types: Ethernet (with VLAN tags), Linux cooked v1 and v2, raw IP. IPv4 and IPv6. Other packets, fragments, and
//! packets that are cut off inside their headers are skipped. A file that is not pcap, or ends inside a record, is a
//! [`PcapError`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of the file header, in bytes.
const FILE_HEADER: usize = 24;
/// Length of the header of each packet, in bytes.
const RECORD_HEADER: usize = 16;

const MAGIC_MICROSECONDS: u32 = 0xA1B2_C3D4;
const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;

const LINK_ETHERNET: u32 = 1;
/// Link type that `tcpdump` calls "raw IP"; 12 is its older number on Linux.
const LINK_RAW: [u32; 2] = [101, 12];
const LINK_COOKED: u32 = 113;
const LINK_COOKED_2: u32 = 276;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// Length of the UDP header, in bytes.
const UDP_HEADER: usize = 8;

/// Reason why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The file has no magic number of pcap in either byte order.
    #[error("no pcap file: it begins with {0:#010x} (pcapng is not read; `tcpdump -w` writes pcap)")]
    Magic(u32),
    /// The link type is unknown.
    #[error("link type {0}; Ethernet, Linux cooked and raw IP are known")]
    LinkType(u32),
    /// The file ends inside a header or a packet.
    #[error("the file ends inside packet {0}")]
    Truncated(usize),
}

/// A TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    /// Number of the segment's packet in the file, from 1.
    pub packet: usize,
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Sequence number of the first byte, or of the SYN.
    pub sequence: u32,
    /// SYN flag.
    pub syn: bool,
    /// ACK flag.
    pub ack: bool,
    /// FIN flag.
    pub fin: bool,
    /// RST flag.
    pub rst: bool,
    /// Payload of the segment.
    pub payload: Vec<u8>,
}

impl TcpSegment {
    /// Returns an acknowledgment without payload, of packet 0: a base for segments that are made up.
    #[must_use]
    pub const fn empty(source: SocketAddr, destination: SocketAddr, sequence: u32) -> Self {
        Self {
            packet: 0,
            source,
            destination,
            sequence,
            syn: false,
            ack: true,
            fin: false,
            rst: false,
            payload: Vec::new(),
        }
    }
}

/// A UDP datagram with its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpDatagram {
    /// Number of the datagram's packet in the file, from 1.
    pub packet: usize,
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// The IP and UDP headers.
    pub headers: Vec<u8>,
    /// Payload of the datagram.
    pub payload: Vec<u8>,
}

/// Reads numbers in one byte order.
#[derive(Clone, Copy)]
struct Order {
    little: bool,
}

impl Order {
    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let word = *bytes.get(at..)?.first_chunk()?;
        Some(if self.little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) })
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Returns all TCP segments of a file, in order.
///
/// # Errors
/// See [`PcapError`].
pub fn tcp_segments(file: &[u8]) -> Result<Vec<TcpSegment>, PcapError> {
    Ok(ip_packets(file)?.into_iter().filter_map(|(packet, ip)| tcp_segment(ip, packet)).collect())
}

/// Returns all UDP datagrams of a file, in order.
///
/// # Errors
/// See [`PcapError`].
pub fn udp_datagrams(file: &[u8]) -> Result<Vec<UdpDatagram>, PcapError> {
    Ok(ip_packets(file)?.into_iter().filter_map(|(packet, ip)| udp_datagram(ip, packet)).collect())
}

/// Returns the IP packets of a file with their numbers, from 1.
fn ip_packets(file: &[u8]) -> Result<Vec<(usize, &[u8])>, PcapError> {
    let magic = be32(file, 0).ok_or(PcapError::Truncated(0))?;
    let order = match magic {
        MAGIC_MICROSECONDS | MAGIC_NANOSECONDS => Order { little: false },
        other if matches!(other.swap_bytes(), MAGIC_MICROSECONDS | MAGIC_NANOSECONDS) => {
            Order { little: true }
        }
        other => return Err(PcapError::Magic(other)),
    };
    let link = order.u32(file, 20).ok_or(PcapError::Truncated(0))?;
    let known = [LINK_ETHERNET, LINK_COOKED, LINK_COOKED_2];
    if !known.contains(&link) && !LINK_RAW.contains(&link) {
        return Err(PcapError::LinkType(link));
    }
    let mut packets = Vec::new();
    let mut rest = file.get(FILE_HEADER..).ok_or(PcapError::Truncated(0))?;
    let mut packet = 0;
    while !rest.is_empty() {
        packet += 1;
        let truncated = PcapError::Truncated(packet);
        let captured = order.u32(rest, 8).and_then(|len| usize::try_from(len).ok()).ok_or(truncated)?;
        let end = RECORD_HEADER.saturating_add(captured);
        let bytes = rest.get(RECORD_HEADER..end).ok_or(truncated)?;
        packets.extend(ip_packet(bytes, link).map(|ip| (packet, ip)));
        rest = rest.get(end..).unwrap_or_default();
    }
    Ok(packets)
}

/// Returns the bytes behind the link header, if they are IP.
fn ip_packet(bytes: &[u8], link: u32) -> Option<&[u8]> {
    let (mut ethertype, mut header) = match link {
        LINK_ETHERNET => (be16(bytes, 12)?, 14),
        LINK_COOKED => (be16(bytes, 14)?, 16),
        LINK_COOKED_2 => (be16(bytes, 0)?, 20),
        _ => return Some(bytes),
    };
    if ethertype == ETHERTYPE_VLAN {
        ethertype = be16(bytes, header + 2)?;
        header += 4;
    }
    matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6).then(|| bytes.get(header..)).flatten()
}

/// An IP packet, taken apart.
struct Ip<'a> {
    source: IpAddr,
    destination: IpAddr,
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ip<'a> {
    /// Returns the packet if it is a complete one of this protocol.
    fn of(ip: &'a [u8], protocol: u8) -> Option<Self> {
        let (source, destination, header, end): (IpAddr, IpAddr, usize, usize) = match ip.first()? >> 4 {
            4 => {
                let fragment = be16(ip, 6)? & 0x3FFF != 0;
                if *ip.get(9)? != protocol || fragment {
                    return None;
                }
                let address = |at: usize| be32(ip, at).map(Ipv4Addr::from);
                let header = usize::from(ip.first()? & 0x0F) * 4;
                (address(12)?.into(), address(16)?.into(), header, usize::from(be16(ip, 2)?))
            }
            6 => {
                if *ip.get(6)? != protocol {
                    return None;
                }
                let address =
                    |at: usize| ip.get(at..)?.first_chunk::<16>().map(|bytes| Ipv6Addr::from(*bytes));
                let length = usize::from(be16(ip, 4)?);
                (address(8)?.into(), address(24)?.into(), 40, if length == 0 { 0 } else { 40 + length })
            }
            _ => return None,
        };
        // Segmentation offload sets a length of 0: then the packet has all captured bytes.
        let end = if end == 0 { ip.len() } else { end.min(ip.len()) };
        Some(Self { source, destination, header: ip.get(..header)?, payload: ip.get(header..end)? })
    }
}

fn tcp_segment(ip: &[u8], packet: usize) -> Option<TcpSegment> {
    let Ip { source, destination, payload: tcp, .. } = Ip::of(ip, PROTOCOL_TCP)?;
    let flags = *tcp.get(13)?;
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    Some(TcpSegment {
        packet,
        source: SocketAddr::new(source, be16(tcp, 0)?),
        destination: SocketAddr::new(destination, be16(tcp, 2)?),
        sequence: be32(tcp, 4)?,
        syn: flags & 0x02 != 0,
        ack: flags & 0x10 != 0,
        fin: flags & 0x01 != 0,
        rst: flags & 0x04 != 0,
        payload: tcp.get(header..)?.to_vec(),
    })
}

fn udp_datagram(ip: &[u8], packet: usize) -> Option<UdpDatagram> {
    let Ip { source, destination, header, payload: udp } = Ip::of(ip, PROTOCOL_UDP)?;
    // A datagram that the recorder cut off would look like a shorter one.
    let length = usize::from(be16(udp, 4)?);
    Some(UdpDatagram {
        packet,
        source: SocketAddr::new(source, be16(udp, 0)?),
        destination: SocketAddr::new(destination, be16(udp, 2)?),
        headers: [header, udp.get(..UDP_HEADER)?].concat(),
        payload: udp.get(UDP_HEADER..length)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_pcap_is_refused() {
        assert_eq!(tcp_segments(&[]), Err(PcapError::Truncated(0)));
        assert_eq!(tcp_segments(&[0x0A, 0x0D, 0x0D, 0x0A]), Err(PcapError::Magic(0x0A0D_0D0A)));
        let mut file = MAGIC_MICROSECONDS.to_le_bytes().to_vec();
        file.resize(20, 0);
        assert_eq!(tcp_segments(&file), Err(PcapError::Truncated(0)));
        file.extend(147_u32.to_le_bytes());
        assert_eq!(tcp_segments(&file), Err(PcapError::LinkType(147)));
        file.truncate(20);
        file.extend(LINK_ETHERNET.to_le_bytes());
        assert_eq!(tcp_segments(&file), Ok(vec![]));
        file.push(0);
        assert_eq!(tcp_segments(&file), Err(PcapError::Truncated(1)));
    }

    /// Reads a segment under each link header, in IPv4 and IPv6.
    #[test]
    fn link_types_and_address_families() {
        let tcp = |payload: &[u8]| {
            let mut tcp = vec![0x4E, 0x51, 0x03, 0xE8, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0];
            tcp.extend_from_slice(payload);
            tcp
        };
        let mut v4 = vec![0x45, 0, 0, 43, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 2, 15, 10, 0, 2, 2];
        v4.extend(tcp(b"abc"));
        // The padding of Ethernet to 60 bytes is not payload.
        v4.extend([0; 3]);
        let mut v6 = vec![0x60, 0, 0, 0, 0, 23, 6, 64];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend(tcp(b"abc"));
        let link = |kind: u32, ethertype: [u8; 2]| match kind {
            LINK_ETHERNET => [&[0; 12][..], &ethertype].concat(),
            LINK_COOKED => [&[0; 14][..], &ethertype].concat(),
            LINK_COOKED_2 => [&ethertype[..], &[0; 18]].concat(),
            _ => vec![],
        };
        for (kind, big) in [(LINK_ETHERNET, true), (LINK_COOKED, false), (LINK_COOKED_2, true), (101, false)]
        {
            let number = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
            let mut file = number(MAGIC_NANOSECONDS).to_vec();
            file.resize(20, 0);
            file.extend(number(kind));
            for (ip, ethertype) in [(&v4, [8, 0]), (&v6, [0x86, 0xDD])] {
                let packet = [link(kind, ethertype), ip.clone()].concat();
                let length = number(u32::try_from(packet.len()).unwrap());
                file.extend([[0; 4], [0; 4], length, length].concat());
                file.extend(packet);
            }
            let segments = tcp_segments(&file).unwrap();
            assert_eq!(segments.len(), 2, "link type {kind}");
            for (segment, address) in segments.iter().zip(["10.0.2.15:20049", "[::1]:20049"]) {
                assert_eq!(segment.source, address.parse().unwrap());
                assert_eq!(segment.destination.port(), 1000);
                assert_eq!((segment.sequence, &segment.payload[..]), (7, &b"abc"[..]));
                assert!(segment.ack && !segment.syn && !segment.fin && !segment.rst);
            }
        }
    }
}
