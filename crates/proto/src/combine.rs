//! Messages that wait for others, to leave with them in one Send ([`wire::two::combined`](crate::wire::two::combined)).
//!
//! Here is decided which messages travel together: those that are ready at the same time, follow each other without a transfer between
//! them, are short enough for one Send, and are no operation, no part of something longer, without an invalidation, and of the version
//! spoken. No message waits for one that is not ready, nor for an RDMA Write or Read of another: what is here leaves before these, and
//! as soon as nothing more is to be sent. Owns the headers, and shared references to what follows them, until then.
//!
//! *On error*: when the connection ends, what waits here is lost as what waits for the send queue is.

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
    /// What it grants.
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

/// What one Send can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes.
    pub(crate) len: usize,
    /// Entries of its gather list.
    pub(crate) entries: usize,
}

/// The messages that wait.
#[derive(Debug, Default)]
pub(crate) struct Combine {
    /// The most in one Send; with less than two none waits.
    most: usize,
    waiting: Vec<Waiting>,
    /// Their lengths together, zeroes between them included.
    len: usize,
    /// The entries of a gather list that they take.
    entries: usize,
    /// A Send with several has left.
    used: bool,
}

/// The zeroes between two messages.
pub(crate) const BETWEEN: Bytes = Bytes::from_static(&[0; 3]);

impl Combine {
    /// What both sides allow.
    pub(crate) const fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Whether none waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a message like that may leave with others, where `version` is spoken.
    pub(crate) const fn takes(&self, header: &Header, invalidates: bool, version: u32) -> bool {
        let alone = matches!(header.body, Body::Error(ErrorBody::Two(two::ErrorBody::Report(_))))
            || !matches!(header.body, Body::Message(_) | Body::NoMessage(_) | Body::Error(_))
            || header.version != version;
        self.most > 1 && !invalidates && !alone
    }

    /// Whether one more fits into the Send of those that wait.
    pub(crate) fn fits(&self, message: &Waiting, room: Room) -> bool {
        let messages = self.waiting.len() + 1;
        let entries = self.entries + entries(&message.payload);
        messages <= self.most
            && self.waiting.last().is_none_or(|last| last.express == message.express)
            && header_len(messages) + self.len + message.len() <= room.len
            && entries < room.entries
    }

    /// Adds one that fits.
    pub(crate) fn push(&mut self, message: Waiting) {
        self.len += aligned(message.len());
        self.entries += entries(&message.payload);
        self.waiting.push(message);
    }

    /// All that wait, in their order.
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        self.len = 0;
        self.entries = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.used |= waiting.len() > 1;
        waiting
    }

    /// Whether several messages have left in one Send.
    pub(crate) const fn is_used(&self) -> bool {
        self.used
    }
}
