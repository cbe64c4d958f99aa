//! Messages that wait to leave together in one Send ([`wire::two::combined`](crate::wire::two::combined)).
//!
//! Messages are combined if they are ready at the same time, have no transfer between them, and are short enough for
//! one Send. Operations, parts of longer messages, messages with an invalidation, and messages in another version leave
//! alone. No message waits for one that is not ready, nor for an RDMA Write or Read of another message. Waiting
//! messages leave before these, and as soon as nothing more is ready. Until then this module owns their headers, and
//! shares their payloads.
//!
//! *Errors*: when the connection ends, waiting messages are lost, like those in the send queue.

use bytes::{Bytes, BytesMut};
use rpcrdma_xdr::Stream;

use crate::outbound::entries;
use crate::wire::two::combined::{aligned, header_len};
use crate::wire::{Body, Direction, ErrorBody, Header, two};

/// A message with its header.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) xid: u32,
    pub(crate) direction: Direction,
    pub(crate) credit: u32,
    /// The grant in the message.
    pub(crate) grant: Option<u32>,
    pub(crate) header: BytesMut,
    pub(crate) payload: Stream,
    /// Whether it may pass RDMA Writes.
    pub(crate) express: bool,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// The capacity of one Send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes.
    pub(crate) len: usize,
    /// Entries of the gather list.
    pub(crate) entries: usize,
}

/// The messages that wait.
#[derive(Debug, Default)]
pub(crate) struct Combine {
    /// The most messages in one Send; below two no message waits.
    pub(super) most: usize,
    waiting: Vec<Waiting>,
    /// Bytes of all waiting messages, with the zeroes between them.
    len: usize,
    /// Entries of a gather list that the messages need.
    entries: usize,
    /// A combined Send has left.
    pub(super) used: bool,
}

/// Zeroes between two messages.
pub(crate) const BETWEEN: Bytes = Bytes::from_static(&[0; 3]);

impl Combine {
    /// Whether no message waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a message with this header, and no invalidation, may be combined on a connection of this `version`.
    pub(crate) const fn takes(&self, header: &Header, version: u32) -> bool {
        let alone = matches!(header.body, Body::Error(ErrorBody::Two(two::ErrorBody::Report(_))))
            || !matches!(header.body, Body::Message(_) | Body::NoMessage(_) | Body::Error(_))
            || header.version != version;
        self.most > 1 && !alone
    }

    /// Whether another message fits into the Send of the waiting ones.
    pub(crate) fn fits(&self, message: &Waiting, room: Room) -> bool {
        let messages = self.waiting.len() + 1;
        let entries = self.entries + entries(&message.payload);
        messages <= self.most
            && self.waiting.last().is_none_or(|last| last.express == message.express)
            && header_len(messages) + self.len + message.len() <= room.len
            && entries < room.entries
    }

    /// Adds a message that fits.
    pub(crate) fn push(&mut self, message: Waiting) {
        self.len += aligned(message.len());
        self.entries += entries(&message.payload);
        self.waiting.push(message);
    }

    /// Removes and returns all waiting messages, in order.
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        self.len = 0;
        self.entries = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.used |= waiting.len() > 1;
        waiting
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_xdr::Piece;

    use super::*;
    use crate::wire::ChunkLists;
    use crate::wire::two::transmission::{ErrorReport, ReportedError, TransmissionId};

    fn header(version: u32, body: Body) -> Header {
        Header { xid: 1, version, credit: 1, direction: Some(Direction::Call), invalidate: 0, body }
    }

    fn waiting(len: usize, express: bool) -> Waiting {
        let mut payload = Stream::new();
        payload.push(Piece::Inline(Bytes::from(vec![0; len])));
        Waiting {
            xid: 1,
            direction: Direction::Call,
            credit: 1,
            grant: None,
            header: BytesMut::zeroed(40),
            payload,
            express,
        }
    }

    /// Operations, reports, and messages in another version leave alone; all do if a Send has one message.
    #[test]
    fn only_messages_and_errors_of_the_version_share_a_send() {
        let combine = |most| Combine { most, ..Combine::default() };
        let message = || Body::Message(ChunkLists::default());
        let bad = TransmissionId { xid: 1, direction: Direction::Call, number: 0 };
        let report = ErrorReport { bad, lead: None, error: ReportedError::Continuation };
        for (body, version, takes) in [
            (message(), 2, true),
            (Body::NoMessage(ChunkLists::default()), 2, true),
            (Body::Error(ErrorBody::Chunk), 2, true),
            (Body::Error(ErrorBody::Chunk), 1, false),
            (Body::Error(ErrorBody::Two(two::ErrorBody::Report(report))), 2, false),
            (Body::Two(two::Body::Grant), 2, false),
        ] {
            let header = header(version, body);
            assert_eq!(combine(2).takes(&header, 2), takes, "{header:?}");
            assert!(!combine(1).takes(&header, 2));
        }
    }

    /// A Send may be filled exactly. Messages of another order have another Send.
    #[test]
    fn messages_share_a_send_as_long_as_it_holds_them() {
        let mut combine = Combine { most: 3, ..Combine::default() };
        let room = |len| Room { len, entries: 8 };
        combine.push(waiting(60, true));
        let both = header_len(2) + 200;
        assert!(combine.fits(&waiting(60, true), room(both)));
        assert!(!combine.fits(&waiting(60, true), room(both - 1)));
        assert!(!combine.fits(&waiting(60, false), room(both)), "it may not pass");
        assert!(!combine.fits(&waiting(60, true), Room { len: both, entries: 0 }));
        combine.push(waiting(60, true));
        combine.push(waiting(60, true));
        assert!(!combine.fits(&waiting(4, true), room(1 << 20)), "three are enough");
        assert_eq!(combine.take().len(), 3);
        assert!(combine.used && combine.is_empty());
        let alone = |entries| Room { len: header_len(1) + 100, entries };
        let fresh = Combine { most: 3, ..Combine::default() };
        let least = (0..8).find(|entries| fresh.fits(&waiting(60, true), alone(*entries))).unwrap();
        assert!(combine.fits(&waiting(60, true), alone(least)), "it begins anew");
    }

    /// One message in a Send is no combined Send: its refusal means something else.
    #[test]
    fn a_single_message_is_not_combined() {
        let mut combine = Combine { most: 3, ..Combine::default() };
        combine.push(waiting(60, true));
        assert_eq!(combine.take().len(), 1);
        assert!(!combine.used);
    }
}
