//! The one receive queue of a connection, counted (rule I3).
//!
//! A Receive is consumed by whatever the peer sends next, so only their number matters: one for each credit that the peer
//! may use and one for each call of ours that waits for a reply. Memory is attached by the provider; a Receive that is
//! posted is never withdrawn, only drained.
//!
//! Receives are reserved in a share of the domain that belongs to the connection. The share keeps the room of as many as the peer
//! was granted. When a message is done with, its room is for the next Receive, and other users of a full domain do not get it. So
//! a grant need not shrink, and an answer finds the Receive for its credit.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use rpcrdma_verbs::{ProtectionDomain, Reserved};

/// Counts the Receives that are posted.
#[derive(Debug, Default)]
pub struct Receives {
    posted: u32,
    /// Those of earlier sizes that are posted still, oldest first: size in bytes, and how many.
    earlier: VecDeque<(usize, u32)>,
    /// Where they are reserved, as soon as the domain is known.
    domain: Option<ProtectionDomain>,
    /// Room for the first of them, which was there before the connection.
    provided: Vec<Reserved>,
    /// The room that is kept, bytes.
    kept: usize,
    /// There was no room for one that is needed.
    lacking: bool,
}

impl Receives {
    /// Takes the share in which Receives are reserved, and room in it for the first of them.
    pub fn provide(&mut self, share: ProtectionDomain, receives: Vec<Reserved>) {
        self.domain = Some(share);
        self.provided = receives;
    }

    /// Reserves room for one of `size` bytes, if there is some.
    pub fn reserve(&mut self, size: usize, whole: &ProtectionDomain) -> Option<Reserved> {
        let provided = self.provided.pop().filter(|reserved| reserved.len() == size);
        let reserved = provided.or_else(|| self.domain(whole).reserve(size).ok());
        self.lacking |= reserved.is_none();
        reserved
    }

    /// It is decided anew which ones are needed: nothing is lacking until one of them finds no room.
    pub const fn decide_anew(&mut self) {
        self.lacking = false;
    }

    /// Ready when there is room again for a Receive of `size` bytes that is lacking, since a message is done with; otherwise the
    /// task is woken then.
    pub fn poll_room(&self, cx: &mut Context<'_>, size: usize) -> Poll<()> {
        match self.domain.as_ref().filter(|_| self.lacking) {
            Some(domain) => domain.poll_kept(cx, size),
            None => Poll::Pending,
        }
    }

    fn domain(&mut self, whole: &ProtectionDomain) -> &ProtectionDomain {
        self.domain.get_or_insert_with(|| whole.share(usize::MAX))
    }

    /// Keeps the room of so many Receives of `size` bytes from one message to the next.
    pub fn keep(&mut self, receives: u32, size: usize, whole: &ProtectionDomain) {
        let receives = usize::try_from(receives).unwrap_or(usize::MAX);
        let room = receives.saturating_mul(ProtectionDomain::room_for(size));
        if self.kept != room {
            self.kept = room;
            self.domain(whole).keep(room);
        }
    }

    /// Gives the room back that is kept: the connection is over.
    pub fn end(&mut self) {
        self.provided.clear();
        if let Some(domain) = self.domain.take() {
            domain.keep(0);
        }
    }

    /// Receives posted and not completed.
    #[must_use]
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// How many more must be posted when `owed` are needed.
    #[must_use]
    pub const fn missing(&self, owed: u32) -> u32 {
        owed.saturating_sub(self.posted)
    }

    /// How many of those posted are not spoken for by `replies` that are expected.
    #[must_use]
    pub const fn beyond(&self, replies: u32) -> u32 {
        self.posted.saturating_sub(replies)
    }

    /// One was posted.
    pub const fn post(&mut self) {
        self.posted += 1;
    }

    /// One completed: the oldest, as every receive queue is in order.
    pub fn complete(&mut self) {
        self.posted = self.posted.saturating_sub(1);
        if let Some((_, left)) = self.earlier.front_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.earlier.pop_front();
            }
        }
    }

    /// Those posted from now on are of another size than `size`, that of the last ones so far.
    pub fn resize(&mut self, size: usize) {
        let counted: u32 = self.earlier.iter().map(|(_, count)| count).sum();
        let last = self.posted.saturating_sub(counted);
        if last > 0 {
            self.earlier.push_back((size, last));
        }
    }

    /// The smallest of those posted before the last [`resize`](Self::resize), if any are left.
    #[must_use]
    pub fn least_earlier(&self) -> Option<usize> {
        self.earlier.iter().map(|(size, _)| *size).min()
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.end();
    }
}
