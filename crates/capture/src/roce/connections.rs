//! Connections of a recording, from the set-up by the connection manager to the end of the file.
//!
//! A packet names only the queue pair of its receiver. The REQ and the REP of a connection name both, so packets of a
//! connection without them are left out. A session has every packet of its connection: repeated ones, and those of an
//! unknown operation, too.

use std::collections::HashMap;
use std::net::IpAddr;

use super::management::{Content, Management};
use super::{BaseHeader, ICRC_LEN, MANAGEMENT_QUEUE_PAIR, PORT, icrc};
use crate::pcap::{PcapError, udp_datagrams};
use crate::session::{Item, Kind, Session};
use crate::tcp::Side;

/// A connection during its assembly.
#[derive(Debug)]
struct Connection {
    client: IpAddr,
    server: IpAddr,
    /// Queue pair of the client.
    queue_pair: u32,
    session: Session,
}

/// The connections of a recording.
///
/// Names and queue pairs are used again. The maps have the newest connection of each.
#[derive(Debug, Default)]
struct Connections {
    all: Vec<Connection>,
    /// Index of a connection by the addresses of client and server, and the name that the client gave to it.
    names: HashMap<(IpAddr, IpAddr, u32), usize>,
    /// Index of a connection, and the sender, by the addresses of sender and receiver, and the receiver's queue pair.
    queue_pairs: HashMap<(IpAddr, IpAddr, u32), (usize, Side)>,
}

/// Returns the connections of a pcap file that speak RoCE version 2.
///
/// # Errors
/// Those of [`udp_datagrams`].
pub fn from_pcap(file: &[u8]) -> Result<Vec<Session>, PcapError> {
    let mut connections = Connections::default();
    for datagram in udp_datagrams(file)?.into_iter().filter(|datagram| datagram.destination.port() == PORT) {
        let Some((bytes, sum)) = datagram.payload.split_last_chunk::<ICRC_LEN>() else { continue };
        let Some(header) = BaseHeader::decode(bytes) else { continue };
        // A receiver drops a packet with a wrong sum.
        let is_right = *sum == icrc(&datagram.headers, bytes).to_le_bytes();
        let (source, destination) = (datagram.source.ip(), datagram.destination.ip());
        let found = if header.queue_pair == MANAGEMENT_QUEUE_PAIR {
            Management::decode(bytes)
                .filter(|_| is_right)
                .and_then(|message| connections.manage(source, destination, &message))
        } else {
            connections.queue_pairs.get(&(source, destination, header.queue_pair)).copied()
        };
        let Some((index, from)) = found else { continue };
        let Some(connection) = connections.all.get_mut(index) else { continue };
        let kind = if is_right { Kind::Packet } else { Kind::Rest };
        connection.session.items.push(Item::new(from, kind, bytes.to_vec()));
    }
    Ok(connections.all.into_iter().map(|connection| connection.session).collect())
}

impl Connections {
    /// Returns the connection of a message, with the side that sent it. A new REQ makes a connection.
    fn manage(&mut self, source: IpAddr, destination: IpAddr, message: &Management) -> Option<(usize, Side)> {
        let find = |key, side| self.names.get(&key).map(|&index| (index, side));
        let as_client = find((source, destination, message.local), Side::Client);
        let as_server = find((destination, source, message.remote), Side::Server);
        let known = as_server.into_iter().chain(as_client).max_by_key(|&(index, _)| index);
        match &message.content {
            Content::Request(request) if !self.has_queue_pair(known, request.queue_pair) => {
                let index = self.all.len();
                let queue_pair = request.queue_pair;
                self.names.insert((source, destination, message.local), index);
                self.queue_pairs.insert((destination, source, queue_pair), (index, Side::Server));
                let (client, server, session) = (source, destination, Session::default());
                self.all.push(Connection { client, server, queue_pair, session });
                return Some((index, Side::Client));
            }
            Content::Reply(reply) => {
                let (index, _) = known?;
                let connection = self.all.get(index)?;
                let newest = self
                    .queue_pairs
                    .entry((connection.client, connection.server, reply.queue_pair))
                    .or_insert((index, Side::Client));
                if newest.0 < index {
                    *newest = (index, Side::Client);
                }
            }
            _ => {}
        }
        known
    }

    fn has_queue_pair(&self, known: Option<(usize, Side)>, queue_pair: u32) -> bool {
        known
            .and_then(|(index, _)| self.all.get(index))
            .is_some_and(|connection| connection.queue_pair == queue_pair)
    }
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

    /// A search of all connections for each packet takes half a minute.
    #[test]
    fn the_time_for_a_packet_does_not_grow_with_the_number_of_connections() {
        const COUNT: u32 = 50_000;
        let requests = (0..COUNT).map(|number| {
            let queue_pair = &(number + 2).to_be_bytes()[1..];
            (1, message(0x10, &[(0, &number.to_be_bytes()), (32, queue_pair)]))
        });
        let strange = (0..2 * COUNT).map(|_| (1, send(2, 0)));
        let first = [(2, send(2, 0)), (2, send(3, 0))];
        let packets: Vec<_> = requests.chain(strange).chain(first).collect();
        let sessions = from_pcap(&file(&packets)).unwrap();
        let lengths = sessions.iter().map(|session| session.items.len());
        let expected = (0..COUNT).map(|number| if number < 2 { 2 } else { 1 });
        assert!(lengths.eq(expected));
    }
}
