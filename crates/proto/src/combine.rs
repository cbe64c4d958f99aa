//! Messages that wait for others, to leave with them in one Send ([`wire::combined`](crate::wire::combined)).
//!
//! Here is decided which messages travel together: those that are ready at the same time, short enough for one Send, and not an
//! operation, a part of something longer, or with an invalidation. No message waits for one that is not ready: as soon as nothing
//! more is to be sent, what is here leaves. Owns the headers, and shared references to what follows them, until then.
//!
//! *On error*: when the connection ends, what waits here is lost as what waits for the send queue is.

use bytes::{Bytes, BytesMut};
use rpcrdma_xdr::Stream;

use crate::wire::combined::{aligned, header_len};
use crate::wire::{Body, Direction, ErrorBody};

/// A message with its header.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) xid: u32,
    pub(crate) direction: Direction,
    pub(crate) credit: u32,
    pub(crate) header: BytesMut,
    pub(crate) payload: Stream,
    pub(crate) express: bool,
}

impl Waiting {
    pub(crate) fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }
}

/// The messages that wait.
#[derive(Debug, Default)]
pub(crate) struct Combine {
    /// The most in one Send; with less than two none waits.
    most: usize,
    waiting: Vec<Waiting>,
    /// Their lengths together, zeroes between them included.
    len: usize,
}

/// The zeroes between two messages.
pub(crate) const BETWEEN: Bytes = Bytes::from_static(&[0; 3]);

impl Combine {
    /// What both sides allow.
    pub(crate) const fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Whether messages like that may leave with others.
    pub(crate) const fn takes(&self, body: &Body, invalidates: bool) -> bool {
        let alone = matches!(body, Body::Error(ErrorBody::Report(_)))
            || !matches!(body, Body::Message(_) | Body::NoMessage(_) | Body::Error(_));
        self.most > 1 && !invalidates && !alone
    }

    /// Whether one more of this length fits, the Send being `room` bytes long at the most.
    pub(crate) fn fits(&self, len: usize, room: usize) -> bool {
        let messages = self.waiting.len() + 1;
        messages <= self.most && header_len(messages) + self.len + len <= room
    }

    /// Adds one that fits.
    pub(crate) fn push(&mut self, message: Waiting) {
        self.len += aligned(message.len());
        self.waiting.push(message);
    }

    /// All that wait, in their order.
    pub(crate) fn take(&mut self) -> Vec<Waiting> {
        self.len = 0;
        std::mem::take(&mut self.waiting)
    }
}
