//! Every RPC-over-RDMA header of the recordings is decoded, and encodes to the same bytes.
//!
//! Another program took the counts from the recordings, so a decoder that skips unknown messages fails here.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use bytes::BytesMut;
use rpcrdma_capture::linux;
use rpcrdma_capture::message::{Event, Message, events};
use rpcrdma_iwarp::wire::ddp::UNTAGGED_LEN;
use rpcrdma_iwarp::wire::rdmap::Opcode;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec, ErrorBody, Header};
use rpcrdma_proto::{Limits, ProtocolError};

/// Counts of one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Count {
    plain: usize,
    read: usize,
    write: usize,
    reply_chunk: usize,
    long: usize,
    reply_message: usize,
    reply_no_message: usize,
    invalidating: usize,
    errors: usize,
    /// Values of the credit field.
    credits: Vec<u32>,
    /// Messages of an unsupported version, sent to provoke ERR_VERS.
    other_version: usize,
    /// Messages in segments that break a rule of DDP or RDMAP, sent to provoke a Terminate.
    in_odd_segments: usize,
}

impl Count {
    fn add(&mut self, header: &Header, message: &Message, inline: &[u8]) {
        if message.opcode == Opcode::SendInvalidate {
            self.invalidating += 1;
        }
        let is_call = inline.get(4..8) == Some(&[0; 4]);
        match &header.body {
            Body::Error(ErrorBody::Version { low: 1, high: 1 }) => self.errors += 1,
            Body::NoMessage(lists) if lists.has_position_zero() => self.long += 1,
            Body::NoMessage(lists) => {
                assert!(lists.reply.is_some() && lists.read.is_empty());
                self.reply_no_message += 1;
            }
            Body::Message(lists) if is_call => {
                let kind = match (lists.read.is_empty(), lists.write.is_empty(), &lists.reply) {
                    (true, true, None) => &mut self.plain,
                    (false, true, None) => &mut self.read,
                    (true, false, None) => &mut self.write,
                    (true, true, Some(_)) => &mut self.reply_chunk,
                    other => panic!("chunks of several kinds: {other:?}"),
                };
                *kind += 1;
            }
            Body::Message(_) => self.reply_message += 1,
            other => panic!("{other:?}"),
        }
        if !self.credits.contains(&header.credit) {
            self.credits.push(header.credit);
            self.credits.sort_unstable();
        }
    }
}

/// Decodes the header of a message, unless its version is 2, and encodes it again.
fn round_trip(bytes: &[u8], genuine: usize) -> Option<(Header, usize)> {
    let (header, len) = match V1.decode(bytes, &Limits::default()) {
        Err(ProtocolError::UnsupportedVersion { version: 2 }) => return None,
        other => other.unwrap(),
    };
    assert!(len <= genuine, "a header was cut");
    let mut again = BytesMut::new();
    V1.encode(&header, &mut again);
    assert_eq!(again[..], bytes[..len]);
    Some((header, len))
}

fn count(text: &str) -> Count {
    let mut count = Count::default();
    for event in rpcrdma_capture::text::read(text).unwrap().iter().flat_map(events) {
        match event {
            Event::Message(message) => match round_trip(&message.bytes, message.genuine) {
                Some((header, len)) => count.add(&header, &message, &message.bytes[len..]),
                None => count.other_version += 1,
            },
            Event::Odd(_, ulpdu) => {
                round_trip(&ulpdu[UNTAGGED_LEN..], ulpdu.len()).unwrap();
                count.in_odd_segments += 1;
            }
            _ => {}
        }
    }
    count
}

#[test]
fn every_header_of_linux_is_read_and_encodes_to_the_same_bytes() {
    #[rustfmt::skip]
    let expected = [
        ("kclient-probe", [9, 0, 0, 0, 0], [9, 0, 0, 0], vec![16, 128]),
        ("knfsd-probe", [22, 0, 0, 0, 0], [11, 0, 1, 1], vec![32, 64]),
        ("nfs3-acl", [22, 0, 0, 6, 3], [25, 6, 0, 0], vec![64, 128]),
        ("nfs3-io", [67, 9, 15, 2, 0], [91, 2, 21, 0], vec![64, 128]),
        ("nfs3-io-mtu1500", [43, 6, 9, 2, 0], [58, 2, 12, 0], vec![64, 128]),
        ("nfs3-meta", [56, 1, 0, 11, 0], [57, 11, 1, 0], vec![64, 128]),
        ("nfs41-meta", [73, 1, 0, 14, 0], [74, 14, 7, 0], vec![2, 16, 64, 128]),
        ("roce-kclient", [24, 1, 3, 1, 0], [29, 0, 5, 0], vec![64, 128]),
        ("roce-rpcrdma", [45, 1, 1, 6, 0], [53, 0, 8, 0], vec![64]),
        ("roce-knfsd", [40, 1, 1, 1, 0], [42, 1, 3, 0], vec![64]),
    ];
    assert_eq!(linux::IWARP.len() + linux::ROCE.len(), expected.len());
    let recordings = linux::IWARP.iter().chain(linux::ROCE);
    for ((name, text), (expected_name, calls, replies, credits)) in recordings.zip(expected) {
        assert_eq!(*name, expected_name);
        let seen = count(text);
        let [plain, read, write, reply_chunk, long] = calls;
        let [reply_message, reply_no_message, invalidating, errors] = replies;
        let (other_version, in_odd_segments) = if name == &"knfsd-probe" { (1, 5) } else { (0, 0) };
        let expected = Count {
            plain: plain - other_version - in_odd_segments,
            read,
            write,
            reply_chunk,
            long,
            reply_message,
            reply_no_message,
            invalidating,
            errors,
            credits,
            other_version,
            in_odd_segments,
        };
        assert_eq!(seen, expected, "{name}");
    }
}
