//! Connections of a recording, from the set-up by the connection manager to the end of the file.
//!
//! A packet names only the queue pair of its receiver. The REQ and the REP of a connection name both, so packets of a
//! connection without them are left out. A session has every packet of its connection: repeated ones, and those of an
//! unknown operation, too.

use std::net::IpAddr;

use super::management::{Content, Management};
use super::{BaseHeader, ICRC_LEN, MANAGEMENT_QUEUE_PAIR, PORT, icrc};
use crate::pcap::{PcapError, UdpDatagram, udp_datagrams};
use crate::session::{Item, Kind, Session};
use crate::tcp::Side;

/// An end of a connection.
#[derive(Debug)]
struct End {
    address: IpAddr,
    queue_pair: Option<u32>,
}

/// A connection during its assembly.
#[derive(Debug)]
struct Connection {
    /// The name that the client gave to the connection.
    name: u32,
    client: End,
    server: End,
    session: Session,
}

impl Connection {
    /// Returns the sender of a datagram between the ends of this connection.
    fn sender(&self, datagram: &UdpDatagram) -> Option<Side> {
        let ends = (datagram.source.ip(), datagram.destination.ip());
        if ends == (self.client.address, self.server.address) {
            Some(Side::Client)
        } else if ends == (self.server.address, self.client.address) {
            Some(Side::Server)
        } else {
            None
        }
    }

    /// Returns the sender if a packet to this queue pair belongs to the connection.
    fn sender_to(&self, datagram: &UdpDatagram, queue_pair: u32) -> Option<Side> {
        let side = self.sender(datagram)?;
        let receiver = if side == Side::Client { &self.server } else { &self.client };
        (receiver.queue_pair == Some(queue_pair)).then_some(side)
    }

    /// Returns the sender if a message of the connection manager belongs to the connection.
    fn sender_of(&self, datagram: &UdpDatagram, message: &Management) -> Option<Side> {
        let side = self.sender(datagram)?;
        let name = if side == Side::Client { message.local } else { message.remote };
        (name == self.name).then_some(side)
    }
}

/// Returns the connections of a pcap file that speak RoCE version 2.
///
/// # Errors
/// Those of [`udp_datagrams`].
pub fn from_pcap(file: &[u8]) -> Result<Vec<Session>, PcapError> {
    let mut all: Vec<Connection> = Vec::new();
    for datagram in udp_datagrams(file)?.into_iter().filter(|datagram| datagram.destination.port() == PORT) {
        let Some((bytes, sum)) = datagram.payload.split_last_chunk::<ICRC_LEN>() else { continue };
        let Some(header) = BaseHeader::decode(bytes) else { continue };
        // A receiver drops a packet with a wrong sum.
        let is_right = *sum == icrc(&datagram.headers, bytes).to_le_bytes();
        let found = if header.queue_pair == MANAGEMENT_QUEUE_PAIR {
            Management::decode(bytes)
                .filter(|_| is_right)
                .and_then(|message| manage(&mut all, &datagram, &message))
        } else {
            // The newest connection, since numbers of queue pairs are used again.
            all.iter_mut().rev().find_map(|connection| {
                connection.sender_to(&datagram, header.queue_pair).map(|side| (connection, side))
            })
        };
        let Some((connection, from)) = found else { continue };
        let kind = if is_right { Kind::Packet } else { Kind::Rest };
        connection.session.items.push(Item::new(from, kind, bytes.to_vec()));
    }
    Ok(all.into_iter().map(|connection| connection.session).collect())
}

/// Returns the connection of a message, with the side that sent it. A new REQ makes a connection.
fn manage<'a>(
    all: &'a mut Vec<Connection>,
    datagram: &UdpDatagram,
    message: &Management,
) -> Option<(&'a mut Connection, Side)> {
    let known = all.iter().rposition(|connection| connection.sender_of(datagram, message).is_some());
    if let Content::Request(request) = &message.content
        && known
            .and_then(|at| all.get(at))
            .is_none_or(|known| known.client.queue_pair != Some(request.queue_pair))
    {
        let client = End { address: datagram.source.ip(), queue_pair: Some(request.queue_pair) };
        let server = End { address: datagram.destination.ip(), queue_pair: None };
        all.push(Connection { name: message.local, client, server, session: Session::default() });
        return all.last_mut().map(|connection| (connection, Side::Client));
    }
    let connection = all.get_mut(known?)?;
    let side = connection.sender_of(datagram, message)?;
    if let Content::Reply(reply) = &message.content {
        connection.server.queue_pair = Some(reply.queue_pair);
    }
    Some((connection, side))
}

#[cfg(test)]
mod tests {
    use super::super::management::tests::message;
    use super::*;

    /// Returns a pcap file of raw IP packets, each from one of two hosts.
    fn file(packets: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut file = 0xA1B2_C3D4_u32.to_be_bytes().to_vec();
        file.resize(20, 0);
        file.extend(101_u32.to_be_bytes());
        for (host, bytes) in packets {
            let length = |more: usize| u16::try_from(bytes.len() + more).unwrap().to_be_bytes();
            let mut headers = vec![0x45, 0];
            headers.extend(length(32));
            headers.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, *host, 10, 0, 0, 3 - host]);
            headers.extend([0xC0, 0, 0x12, 0xB7]);
            headers.extend(length(12));
            headers.extend([0, 0]);
            let packet = [&headers[..], bytes, &icrc(&headers, bytes).to_le_bytes()].concat();
            let length = u32::try_from(packet.len()).unwrap().to_be_bytes();
            file.extend([[0; 4], [0; 4], length, length].concat());
            file.extend(packet);
        }
        file
    }

    fn send(queue_pair: u8, sequence: u8) -> Vec<u8> {
        vec![4, 0, 0xFF, 0xFF, 0, 0, 0, queue_pair, 0, 0, 0, sequence, 1, 2, 3, 4]
    }

    #[test]
    fn packets_belong_to_the_newest_connection_of_their_queue_pair() {
        let request = |name, queue_pair| message(0x10, &[(0, &[0, 0, 0, name]), (32, &[0, 0, queue_pair])]);
        let reply =
            |to, queue_pair| message(0x13, &[(0, &[0, 0, 0, 9, 0, 0, 0, to]), (12, &[0, 0, queue_pair])]);
        let mut bytes = file(&[
            (1, send(0x22, 0)),
            (1, request(7, 0x11)),
            (1, request(7, 0x11)),
            (2, reply(7, 0x22)),
            (1, message(0x14, &[(0, &[0, 0, 0, 7, 0, 0, 0, 9])])),
            (1, send(0x22, 1)),
            (2, send(0x11, 1)),
            (2, send(0x22, 1)),
            (1, request(8, 0x12)),
            (2, reply(8, 0x22)),
            (1, send(0x22, 2)),
            (2, message(0x15, &[(0, &[0, 0, 0, 9, 0, 0, 0, 7])])),
            (2, send(0x12, 3)),
        ]);
        let kinds = |bytes: &[u8]| {
            let sessions = from_pcap(bytes).unwrap();
            let items = |session: &Session| {
                session.items.iter().map(|item| (item.from, item.kind, item.bytes[0])).collect::<Vec<_>>()
            };
            sessions.iter().map(items).collect::<Vec<_>>()
        };
        use Kind::{Packet, Rest};
        use Side::{Client, Server};
        let first = vec![
            (Client, Packet, 0x64),
            (Client, Packet, 0x64),
            (Server, Packet, 0x64),
            (Client, Packet, 0x64),
            (Client, Packet, 4),
            (Server, Packet, 4),
            (Server, Packet, 0x64),
        ];
        let mut second =
            vec![(Client, Packet, 0x64), (Server, Packet, 0x64), (Client, Packet, 4), (Server, Packet, 4)];
        assert_eq!(kinds(&bytes), [first.clone(), second.clone()]);
        // A bit of the payload of the last packet.
        let at = bytes.len() - 5;
        bytes[at] ^= 1;
        second[3].1 = Rest;
        assert_eq!(kinds(&bytes), [first, second]);
    }

    #[test]
    fn packets_of_unknown_operations_are_items() {
        let request = message(0x10, &[(0, &[0, 0, 0, 7]), (32, &[0, 0, 0x11])]);
        let with = |opcode, flags| {
            let mut packet = send(0x11, 1);
            packet[..2].copy_from_slice(&[opcode, flags]);
            packet
        };
        let packets =
            [(1, request), (2, with(0x13, 0)), (2, with(0x81, 0)), (2, with(4, 1)), (2, vec![4, 0, 0xFF])];
        let sessions = from_pcap(&file(&packets)).unwrap();
        let items: Vec<_> = sessions[0].items.iter().map(|item| (item.from, &item.bytes)).collect();
        let expected: Vec<_> = [Side::Client, Side::Server, Side::Server, Side::Server]
            .into_iter()
            .zip(packets.iter().map(|(_, bytes)| bytes))
            .collect();
        assert_eq!(items, expected);
    }
}
