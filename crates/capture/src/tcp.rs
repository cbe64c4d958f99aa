//! Connections, assembled from TCP segments.
//!
//! A connection begins with its SYN. If the file does not have its beginning, the connection is left out, since iWARP
//! cannot be decoded without the MPA frames. Retransmitted bytes count once. After a hole (lost by the recorder) the
//! direction ends.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::pcap::TcpSegment;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The side that accepted the connection.
    Server,
}

impl Side {
    /// Returns the other side.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The kind of end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// FIN.
    Closed,
    /// RST.
    Reset,
}

/// Consecutive bytes of one direction, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Sender of the bytes.
    pub from: Side,
    /// Content; empty for an end alone.
    pub bytes: Vec<u8>,
    /// Set with the last chunk of a direction.
    pub end: Option<End>,
}

/// A connection, in the order of the recording.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Address of the side that opened the connection.
    pub client: SocketAddr,
    /// Address of the side that accepted the connection.
    pub server: SocketAddr,
    /// Bytes and ends of both directions.
    pub chunks: Vec<Chunk>,
    /// Segments behind a hole: the recorder lost bytes in front of them.
    pub behind_holes: usize,
    /// Segments that were recorded before an earlier one of their direction. Those behind a hole do not count.
    pub out_of_order: usize,
}

/// A direction during its assembly.
#[derive(Debug, Default)]
struct Direction {
    /// Next expected sequence number; `None` before the SYN.
    due: Option<u32>,
    /// Segments that came too early.
    early: Vec<TcpSegment>,
    /// Segments that came too early, and whose turn came later.
    out_of_order: usize,
    ended: bool,
}

impl Direction {
    /// Processes a segment; `out` gets the bytes that are in order now.
    fn take(&mut self, segment: TcpSegment, out: &mut impl FnMut(Vec<u8>, Option<End>)) {
        if self.ended {
            return;
        }
        // The turn of this segment comes at once or later; that of a SYN, which may be a repeated one, is not counted.
        let mut at_once = usize::from(!segment.syn);
        if segment.syn {
            self.due.get_or_insert(segment.sequence.wrapping_add(1));
        } else {
            self.early.push(segment);
        }
        while let Some(due) = self.due
            && let Some(at) = self.early.iter().position(|segment| is_due(segment, due))
        {
            let segment = self.early.swap_remove(at);
            self.out_of_order += 1 - std::mem::take(&mut at_once);
            let seen = usize::try_from(due.wrapping_sub(segment.sequence)).unwrap_or(usize::MAX);
            let fresh = segment.payload.get(seen..).unwrap_or_default().to_vec();
            let end = match (segment.rst, segment.fin) {
                (true, _) => Some(End::Reset),
                (false, true) => Some(End::Closed),
                (false, false) => None,
            };
            let length = u32::try_from(fresh.len()).unwrap_or_default();
            self.due = Some(due.wrapping_add(length));
            self.ended = end.is_some();
            if !fresh.is_empty() || end.is_some() {
                out(fresh, end);
            }
            if self.ended {
                self.early.clear();
            }
        }
    }
}

/// Returns whether a segment begins at `due` or before it: there is no hole in front of it.
fn is_due(segment: &TcpSegment, due: u32) -> bool {
    due.wrapping_sub(segment.sequence) < 1 << 31
}

/// Returns the connections of a recording, by their SYNs.
#[must_use]
pub fn connections(segments: Vec<TcpSegment>) -> Vec<Connection> {
    let mut all: Vec<(Connection, Direction, Direction)> = Vec::new();
    // Ports are used again: the newest connection of each client and server.
    let mut newest: HashMap<(SocketAddr, SocketAddr), usize> = HashMap::new();
    for segment in segments {
        let (source, destination) = (segment.source, segment.destination);
        let mut as_client = newest.get(&(source, destination)).copied();
        if segment.syn && !segment.ack {
            let due = segment.sequence.wrapping_add(1);
            let known = as_client.and_then(|at| all.get(at));
            if known.is_none_or(|(_, client, _)| client.due != Some(due)) {
                as_client = Some(all.len());
                newest.insert((source, destination), all.len());
                let connection = Connection {
                    client: source,
                    server: destination,
                    chunks: Vec::new(),
                    behind_holes: 0,
                    out_of_order: 0,
                };
                all.push((connection, Direction::default(), Direction::default()));
            }
        }
        let as_server = newest.get(&(destination, source)).copied();
        // A connection to itself has one sender here.
        let from = if as_client >= as_server { Side::Client } else { Side::Server };
        let Some((connection, client, server)) = as_client.max(as_server).and_then(|at| all.get_mut(at))
        else {
            continue;
        };
        let direction = if from == Side::Client { client } else { server };
        direction.take(segment, &mut |bytes, end| connection.chunks.push(Chunk { from, bytes, end }));
    }
    all.into_iter()
        .map(|(connection, client, server)| Connection {
            behind_holes: client.early.len() + server.early.len(),
            out_of_order: client.out_of_order + server.out_of_order,
            ..connection
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(from: Side, sequence: u32, payload: &[u8]) -> TcpSegment {
        let (client, server) = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:20049".parse().unwrap());
        let (source, destination) = if from == Side::Client { (client, server) } else { (server, client) };
        TcpSegment { payload: payload.to_vec(), ..TcpSegment::empty(source, destination, sequence) }
    }

    fn syn(from: Side, sequence: u32) -> TcpSegment {
        TcpSegment { syn: true, ack: from == Side::Server, ..segment(from, sequence, b"") }
    }

    fn bytes(connection: &Connection, from: Side) -> Vec<u8> {
        connection
            .chunks
            .iter()
            .filter(|chunk| chunk.from == from)
            .flat_map(|chunk| chunk.bytes.clone())
            .collect()
    }

    #[test]
    fn order_repeats_and_wrap() {
        let start = u32::MAX - 2;
        let segments = vec![
            syn(Side::Client, start),
            syn(Side::Server, 99),
            segment(Side::Client, 0, b"cd"),
            segment(Side::Server, 100, b"reply"),
            segment(Side::Client, u32::MAX - 1, b"abc"),
            segment(Side::Client, u32::MAX - 1, b"abc"),
            segment(Side::Client, 1, b"de"),
            TcpSegment { fin: true, ..segment(Side::Client, 3, b"") },
            segment(Side::Client, 3, b"never"),
        ];
        let connections = connections(segments);
        assert_eq!(connections.len(), 1);
        assert_eq!(bytes(&connections[0], Side::Client), b"abcde");
        assert_eq!((connections[0].behind_holes, connections[0].out_of_order), (0, 1));
        assert_eq!(bytes(&connections[0], Side::Server), b"reply");
        assert_eq!(connections[0].chunks.last().unwrap().end, Some(End::Closed));
    }

    #[test]
    fn a_port_that_is_used_again_is_another_connection() {
        let segments = vec![
            segment(Side::Client, 5, b"of a connection that began before"),
            syn(Side::Client, 0),
            syn(Side::Client, 0),
            segment(Side::Client, 1, b"one"),
            TcpSegment { rst: true, ..segment(Side::Client, 4, b"") },
            syn(Side::Client, 1000),
            segment(Side::Client, 1001, b"two"),
        ];
        let connections = connections(segments);
        assert_eq!(connections.len(), 2);
        assert_eq!(bytes(&connections[0], Side::Client), b"one");
        assert_eq!(connections[0].chunks.last().unwrap().end, Some(End::Reset));
        assert_eq!(bytes(&connections[1], Side::Client), b"two");
    }

    #[test]
    fn nothing_comes_after_a_hole() {
        let segments =
            vec![syn(Side::Client, 0), segment(Side::Client, 1, b"a"), segment(Side::Client, 3, b"c")];
        let connection = &connections(segments)[0];
        assert_eq!(bytes(connection, Side::Client), b"a");
        assert_eq!((connection.behind_holes, connection.out_of_order), (1, 0));
    }

    #[test]
    fn out_of_order_is_what_an_earlier_segment_came_after() {
        let segments = vec![
            // Before the SYN.
            segment(Side::Server, 10, b"a"),
            syn(Side::Client, 0),
            segment(Side::Client, 2, b"b"),
            segment(Side::Client, 3, b"c"),
            segment(Side::Client, 1, b"a"),
            syn(Side::Server, 9),
            // A repeated SYN changes nothing.
            syn(Side::Server, 9),
            segment(Side::Server, 10, b"a"),
            segment(Side::Server, 11, b"b"),
            syn(Side::Server, 9),
            segment(Side::Server, 11, b"b"),
            // Behind a hole.
            segment(Side::Server, 13, b"d"),
        ];
        let connection = &connections(segments)[0];
        assert_eq!(bytes(connection, Side::Client), b"abc");
        assert_eq!(bytes(connection, Side::Server), b"ab");
        assert_eq!((connection.behind_holes, connection.out_of_order), (1, 2));
    }

    /// A search of all connections for each segment takes half a minute.
    #[test]
    fn the_time_for_a_segment_does_not_grow_with_the_number_of_connections() {
        const COUNT: u32 = 50_000;
        let client = |number: u32| SocketAddr::from((number.to_be_bytes(), 1000));
        let server = "127.0.0.1:20049".parse().unwrap();
        let syn =
            |number| TcpSegment { syn: true, ack: false, ..TcpSegment::empty(client(number), server, 0) };
        let data = |number| TcpSegment { payload: vec![1], ..TcpSegment::empty(client(number), server, 1) };
        let all = connections((0..COUNT).map(syn).chain((0..COUNT).map(data)).collect());
        assert_eq!(all.len(), 50_000);
        assert!(all.iter().all(|connection| connection.chunks.len() == 1));
    }
}
