//! Recorded sessions: pcap files, their text form, and the calls in them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rpcrdma_capture::exchange::{Exchanges, Part};
use rpcrdma_capture::pcap::{TcpSegment, tcp_segments};
use rpcrdma_capture::reduce::{Keep, reduce};
use rpcrdma_capture::roce::management::{Content, Management};
use rpcrdma_capture::roce::{PORT, icrc};
use rpcrdma_capture::session::{Kind, Session};
use rpcrdma_capture::sessions;
use rpcrdma_capture::tcp::{Side, connections};
use rpcrdma_capture::text;

use crate::split_piece;

/// Recordings (`rpcrdma_capture`): any bytes are read or refused, with memory in proportion to their number. A
/// session that was written as text must be read again, before and after its reduction. A stream that was cut into
/// TCP segments, which come in any order and repeatedly, must be assembled again. A session over RoCE that was written
/// as pcap must be read again. The first byte selects the form of the others: a pcap file, a text, or a stream with its
/// cuts.
pub fn capture(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    match choice % 3 {
        0 => {
            let Ok(sessions) = sessions(data) else { return };
            assert!(sessions.iter().map(length).sum::<usize>() <= data.len());
            sessions.iter().for_each(examine);
            sessions.iter().for_each(record_again);
        }
        1 => {
            let Ok(text) = str::from_utf8(data) else { return };
            let Ok(sessions) = text::read(text) else { return };
            assert_eq!(text::read(&text::write("about\n\nit", &sessions)).as_ref(), Ok(&sessions));
            // A cut takes more memory than its text: those beyond are not examined.
            sessions.iter().filter(|session| length(session) <= 1 << 20).for_each(examine);
        }
        _ => assemble(choice / 3, data),
    }
}

fn length(session: &Session) -> usize {
    session.items.iter().map(|item| item.bytes.len()).sum()
}

fn examine(session: &Session) {
    let reduced = reduce(session, &Keep { message: 64, tagged: 32, front: 8 });
    assert_eq!(length(&reduced), length(session));
    for session in [session, &reduced] {
        let written = text::write("about", std::slice::from_ref(session));
        assert_eq!(text::read(&written).as_deref(), Ok(std::slice::from_ref(session)));
        let exchanges = Exchanges::of(session);
        let held =
            |part: &Part| part.message.len() + part.moved.iter().map(|moved| moved.data.len()).sum::<usize>();
        let calls = exchanges.all.iter().map(|call| held(&call.call) + call.reply.as_ref().map_or(0, held));
        let odd = exchanges.odd.iter().map(|message| message.bytes.len());
        let total: usize = calls.chain(odd).sum();
        assert!(total <= length(session), "{total} bytes of {}", length(session));
    }
}

/// Writes the packets of a session over RoCE to a pcap file, and compares what is read.
fn record_again(session: &Session) {
    // Each REQ of another queue pair begins a session of its own, and so may numbers that are used again.
    let messages = session.packets().filter_map(|item| Management::decode(&item.bytes));
    let set_up =
        messages.filter(|message| matches!(message.content, Content::Request(_) | Content::Reply(_)));
    // The header of IPv4 leaves less room than that of IPv6.
    let fits = session.items.iter().all(|item| item.bytes.len() < 60_000);
    if fits && set_up.count() == 2 {
        for ipv6 in [false, true] {
            assert_eq!(sessions(&roce_pcap(session, ipv6)).as_deref(), Ok(std::slice::from_ref(session)));
        }
    }
}

/// Returns the segments in a pcap file, with the link header of Ethernet or none, in either byte order.
pub(crate) fn pcap(segments: &[TcpSegment], ethernet: bool, big: bool) -> Vec<u8> {
    let mut file = Pcap::new(ethernet, big);
    for segment in segments {
        let ports = [segment.source.port(), segment.destination.port()].map(u16::to_be_bytes).concat();
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = bit(segment.fin, 1) | bit(segment.syn, 2) | bit(segment.rst, 4) | bit(segment.ack, 16);
        let sequence = segment.sequence.to_be_bytes();
        let tcp = [&ports[..], &sequence, &[0; 4], &[0x50, flags], &[0; 6], &segment.payload].concat();
        let header = ip_header(segment.source.ip(), segment.destination.ip(), 6, tcp.len());
        file.push(segment.source.is_ipv4(), &[header, tcp].concat());
    }
    file.bytes
}

/// Returns the packets of a session over RoCE in a pcap file. Packets with a wrong check sum get one again.
pub(crate) fn roce_pcap(session: &Session, ipv6: bool) -> Vec<u8> {
    let mut file = Pcap::new(true, false);
    for item in &session.items {
        let (Kind::Packet | Kind::Rest) = item.kind else { continue };
        // Two addresses: the sides differ by them only.
        let side = |side| match (side == Side::Client, ipv6) {
            (client, true) => IpAddr::V6(Ipv6Addr::from(if client { 1 } else { 2 })),
            (client, false) => IpAddr::from([10, 0, 2, if client { 16 } else { 15 }]),
        };
        let length = item.bytes.len() + 12;
        let udp =
            [[0xC0, 0], PORT.to_be_bytes(), u16::try_from(length).unwrap().to_be_bytes(), [0, 0]].concat();
        let headers = [ip_header(side(item.from), side(item.from.peer()), 17, length), udp].concat();
        let right = icrc(&headers, &item.bytes);
        let sum = if item.kind == Kind::Rest { !right } else { right };
        file.push(!ipv6, &[&headers[..], &item.bytes, &sum.to_le_bytes()].concat());
    }
    file.bytes
}

/// A pcap file that is being made.
struct Pcap {
    ethernet: bool,
    big: bool,
    bytes: Vec<u8>,
}

impl Pcap {
    fn new(ethernet: bool, big: bool) -> Self {
        let mut file = Self { ethernet, big, bytes: Vec::new() };
        file.bytes.extend(file.word(0xA1B2_C3D4));
        file.bytes.resize(20, 0);
        file.bytes.extend(file.word(if ethernet { 1 } else { 101 }));
        file
    }

    const fn word(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// Appends an IP packet.
    fn push(&mut self, ipv4: bool, ip: &[u8]) {
        let ethertype = if ipv4 { [8, 0] } else { [0x86, 0xDD] };
        let link = [&[0; 12][..], &ethertype].concat();
        let packet = if self.ethernet { [&link[..], ip].concat() } else { ip.to_vec() };
        let length = self.word(u32::try_from(packet.len()).unwrap());
        self.bytes.extend([[0; 4], [0; 4], length, length].concat());
        self.bytes.extend(packet);
    }
}

/// Returns the header of an IP packet with so many bytes behind it.
fn ip_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).unwrap();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [high, low] = (length + 20).to_be_bytes();
            let head = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            [&head[..], &source.octets(), &destination.octets()].concat()
        }
        (source, destination) => {
            let octets = |address| match address {
                IpAddr::V6(address) => address.octets(),
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            };
            let [high, low] = length.to_be_bytes();
            let head = [0x60, 0, 0, 0, high, low, protocol, 64];
            [&head[..], &octets(source), &octets(destination)].concat()
        }
    }
}

/// Returns a segment of a connection, without payload.
pub(crate) fn segment(from: Side, ipv6: bool, sequence: u32) -> TcpSegment {
    let address = if ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::from([10, 0, 2, 15]) };
    let ends = [SocketAddr::new(address, 700), SocketAddr::new(address, 20049)];
    let (source, destination) = if from == Side::Client { ends.into() } else { (ends[1], ends[0]) };
    TcpSegment::empty(source, destination, sequence)
}

/// Cuts pieces of both directions into segments, moves and repeats them, and compares what is assembled.
fn assemble(choice: u8, data: &[u8]) {
    let Some((&[start @ .., repeats], mut data)) = data.split_first_chunk::<5>() else { return };
    let (ipv6, ethernet, big) = (choice & 1 == 1, choice & 2 == 2, choice & 4 == 4);
    let mut next = u32::from_be_bytes(start);
    let mut due = [next, !next];
    let syn =
        |from, sequence| TcpSegment { syn: true, ack: from == Side::Server, ..segment(from, ipv6, sequence) };
    let mut segments = vec![syn(Side::Client, due[0]), syn(Side::Server, due[1])];
    let mut sent = [Vec::new(), Vec::new()];
    due = due.map(|sequence| sequence.wrapping_add(1));
    let mut order = 2;
    while let Some(piece) = split_piece(&mut data) {
        let Some((&how, payload)) = piece.split_first() else { continue };
        let side = usize::from(how & 1);
        let from = [Side::Client, Side::Server][side];
        let piece = TcpSegment { payload: payload.to_vec(), ..segment(from, ipv6, due[side]) };
        due[side] = due[side].wrapping_add(u32::try_from(payload.len()).unwrap());
        sent[side].extend_from_slice(payload);
        if how & 2 == 2 {
            // A retransmission begins earlier, or is a part.
            let again = TcpSegment { payload: payload[..payload.len() / 2].to_vec(), ..piece.clone() };
            segments.push(again);
        }
        segments.push(piece);
        // The segment may come before some that were sent before it, but not before the SYNs.
        next = next.wrapping_mul(0x0019_660D).wrapping_add(u32::from(how | repeats));
        if how & 4 == 4 {
            let last = segments.len() - 1;
            let place = order + usize::try_from(next >> 8).unwrap() % (segments.len() - order);
            segments.swap(last, place);
        }
        if how & 8 == 8 {
            order = segments.len();
        }
    }
    let file = pcap(&segments, ethernet, big);
    let read = tcp_segments(&file).expect("a file that was written is read");
    assert_eq!(read.len(), segments.len());
    for (number, (read, segment)) in read.iter().zip(&segments).enumerate() {
        assert_eq!(*read, TcpSegment { packet: number + 1, ..segment.clone() });
    }
    let connections = connections(read);
    assert_eq!(connections.len(), 1);
    for (from, sent) in [Side::Client, Side::Server].into_iter().zip(sent) {
        let chunks = connections[0].chunks.iter().filter(|chunk| chunk.from == from);
        assert_eq!(chunks.flat_map(|chunk| chunk.bytes.clone()).collect::<Vec<u8>>(), sent);
    }
    examine(&Session::of(&connections[0]));
}
