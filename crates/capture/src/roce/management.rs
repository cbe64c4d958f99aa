//! Messages of the connection manager (InfiniBand Architecture Specification, volume 1, chapter 12).
//!
//! They are datagrams to the queue pair for management, each with a management datagram (MAD) of 256 bytes. The side
//! that connects sends a REQ, the other side answers by a REP, and an RTU completes the set-up. `rdma_cm` of Linux puts
//! a header with the IP addresses in front of the private data of a REQ.

use super::{Operation, Packet, be24, be32};

/// The management class of the connection manager.
const CLASS: u8 = 7;
/// Length of the common header of a MAD, in bytes.
const HEADER: usize = 24;
/// Length of a message, in bytes: the rest of the MAD.
const MESSAGE: usize = 232;
/// Offset of the private data in a REQ.
const REQUEST_DATA: usize = 140;
/// Length of the header of rdma_cm in the private data of a REQ.
const ADDRESSES: usize = 36;
/// Offset of the private data in a REP.
const REPLY_DATA: usize = 36;

/// A request for a connection (REQ).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The service that the request asks for: with rdma_cm, the port is in the lowest 16 bits.
    pub service: u64,
    /// Queue pair of the side that connects.
    pub queue_pair: u32,
    /// Sequence number of the first packet that this side receives.
    pub sequence: u32,
    /// Maximum payload of a packet, in bytes: 256 to 4096, also if the field has a reserved value.
    pub mtu: usize,
    /// The number of Reads of the other side that this side accepts at a time.
    pub responder_resources: u8,
    /// The number of Reads that this side issues at a time.
    pub initiator_depth: u8,
    /// Number of repetitions after a time-out.
    pub retries: u8,
    /// Number of repetitions if the other side has no Receive.
    pub not_ready_retries: u8,
    /// Private data behind the header of rdma_cm.
    pub private_data: Vec<u8>,
}

/// An acceptance (REP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Queue pair of the side that accepts.
    pub queue_pair: u32,
    /// Sequence number of the first packet that this side receives.
    pub sequence: u32,
    /// The number of Reads of the other side that this side accepts at a time.
    pub responder_resources: u8,
    /// The number of Reads that this side issues at a time.
    pub initiator_depth: u8,
    /// Number of repetitions if the other side has no Receive.
    pub not_ready_retries: u8,
    /// Private data.
    pub private_data: Vec<u8>,
}

/// The meaning of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// REQ.
    Request(Request),
    /// REP.
    Reply(Reply),
    /// REJ, with its reason.
    Reject(u16),
    /// RTU.
    ReadyToUse,
    /// DREQ.
    DisconnectRequest,
    /// DREP.
    DisconnectReply,
    /// Another message, with its attribute.
    Other(u16),
}

/// A message of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// The name that the sender gives to the connection.
    pub local: u32,
    /// The name that the receiver gave to it; 0 in a REQ.
    pub remote: u32,
    /// Content of the message.
    pub content: Content,
}

impl Management {
    /// Decodes a message from a packet; `None` if it is no message of the connection manager.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let packet = Packet::decode(bytes)?;
        if packet.operation != Operation::Datagram || packet.queue_pair != super::MANAGEMENT_QUEUE_PAIR {
            return None;
        }
        let datagram = bytes.get(packet.payload)?;
        if *datagram.get(1)? != CLASS {
            return None;
        }
        let message = datagram.get(HEADER..)?.get(..MESSAGE)?;
        let byte = |at: usize| message.get(at).copied();
        let half = |at: usize| Some(u16::from_be_bytes([byte(at)?, byte(at + 1)?]));
        let data = |at: usize| message.get(at..).map(<[u8]>::to_vec);
        let [.., high, low, _, _, _, _, _, _] = datagram.first_chunk::<HEADER>()?;
        let content = match u16::from_be_bytes([*high, *low]) {
            0x10 => Content::Request(Request {
                service: u64::from(be32(message, 8)?) << 32 | u64::from(be32(message, 12)?),
                queue_pair: be24(message, 32)?,
                responder_resources: byte(35)?,
                initiator_depth: byte(39)?,
                sequence: be24(message, 44)?,
                retries: byte(47)? & 7,
                mtu: 128 << (byte(50)? >> 4).clamp(1, 5),
                not_ready_retries: byte(50)? & 7,
                private_data: data(REQUEST_DATA + ADDRESSES)?,
            }),
            0x12 => Content::Reject(half(10)?),
            0x13 => Content::Reply(Reply {
                queue_pair: be24(message, 12)?,
                sequence: be24(message, 20)?,
                responder_resources: byte(24)?,
                initiator_depth: byte(25)?,
                not_ready_retries: byte(27)? >> 5,
                private_data: data(REPLY_DATA)?,
            }),
            0x14 => Content::ReadyToUse,
            0x15 => Content::DisconnectRequest,
            0x16 => Content::DisconnectReply,
            other => Content::Other(other),
        };
        let remote = if matches!(content, Content::Request(_)) { 0 } else { be32(message, 4)? };
        Some(Self { local: be32(message, 0)?, remote, content })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a message of the connection manager, with these bytes at these offsets.
    pub(crate) fn message(attribute: u8, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; super::super::BTH_LEN + 8 + HEADER + MESSAGE];
        let bth = [0x64, 0, 0xFF, 0xFF, 0, 0, 0, 1];
        bytes[..bth.len()].copy_from_slice(&bth);
        bytes[20..24].copy_from_slice(&[1, CLASS, 2, 3]);
        bytes[37] = attribute;
        for (at, field) in fields {
            bytes[44 + at..44 + at + field.len()].copy_from_slice(field);
        }
        bytes
    }

    #[test]
    fn messages_by_their_attributes() {
        let request = message(
            0x10,
            &[
                (0, &[0, 0, 0, 7]),
                (8, &[0, 0, 0, 0, 1, 6, 0x4E, 0x51]),
                (32, &[0, 0, 0x11, 32]),
                (36, &[0, 0, 0, 16]),
                (44, &[1, 2, 3, 6]),
                (50, &[3 << 4 | 5]),
                (176, b"data"),
            ],
        );
        let Some(Management { local: 7, remote: 0, content: Content::Request(request) }) =
            Management::decode(&request)
        else {
            panic!("a REQ")
        };
        assert_eq!((request.service, request.queue_pair, request.sequence), (0x0106_4E51, 0x11, 0x01_0203));
        assert_eq!((request.responder_resources, request.initiator_depth), (32, 16));
        assert_eq!((request.mtu, request.retries, request.not_ready_retries), (1024, 6, 5));
        assert_eq!((&request.private_data[..5], request.private_data.len()), (&b"data\0"[..], 56));

        let reply = message(
            0x13,
            &[
                (0, &[0, 0, 0, 8, 0, 0, 0, 7]),
                (12, &[0, 0, 0x12]),
                (20, &[4, 5, 6]),
                (24, &[3, 4]),
                (27, &[6 << 5]),
                (36, b"data"),
            ],
        );
        let Some(Management { local: 8, remote: 7, content: Content::Reply(reply) }) =
            Management::decode(&reply)
        else {
            panic!("a REP")
        };
        assert_eq!((reply.queue_pair, reply.sequence, reply.not_ready_retries), (0x12, 0x04_0506, 6));
        assert_eq!((reply.responder_resources, reply.initiator_depth), (3, 4));
        assert_eq!((&reply.private_data[..5], reply.private_data.len()), (&b"data\0"[..], 196));

        for (attribute, content) in [
            (0x11, Content::Other(0x11)),
            (0x12, Content::Reject(28)),
            (0x14, Content::ReadyToUse),
            (0x15, Content::DisconnectRequest),
            (0x16, Content::DisconnectReply),
        ] {
            let bytes = message(attribute, &[(10, &[0, 28])]);
            assert_eq!(Management::decode(&bytes).unwrap().content, content);
            for length in 0..bytes.len() {
                assert_eq!(Management::decode(&bytes[..length]), None, "{length}");
            }
        }
        let mut other = message(0x14, &[]);
        other[21] = 3;
        assert_eq!(Management::decode(&other), None, "a message of another class");
        other = message(0x14, &[]);
        other[7] = 2;
        assert_eq!(Management::decode(&other), None, "a datagram to another queue pair");
    }
}
