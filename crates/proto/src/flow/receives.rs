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

use rpcrdma_verbs::{ProtectionDomain, ReceiveMemory, Reserved};

use super::ledger::ReceiveSize;

/// Counts the Receives that are posted, or reserved to be posted at once.
#[derive(Debug)]
pub(crate) struct Receives {
    /// Of those that are reserved from now on.
    size: ReceiveSize,
    posted: u32,
    /// Those that are to be posted.
    ready: VecDeque<Reserved>,
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
    pub(crate) const fn new(size: ReceiveSize) -> Self {
        Self {
            size,
            posted: 0,
            ready: VecDeque::new(),
            earlier: VecDeque::new(),
            domain: None,
            provided: Vec::new(),
            kept: 0,
            lacking: false,
        }
    }

    /// Takes the share in which Receives are reserved, and room in it for the first of them.
    pub(crate) fn provide(&mut self, share: ProtectionDomain, receives: Vec<Reserved>) {
        self.domain = Some(share);
        self.provided = receives;
    }

    /// Reserves room until `owed` Receives are there, or the domain has none; returns how many are missing.
    pub(crate) fn reserve(&mut self, owed: u32, whole: &ProtectionDomain) -> u32 {
        while self.posted < owed {
            let len = self.size.len;
            let provided = self.provided.pop().filter(|reserved| reserved.len() == len);
            let Some(reserved) = provided.or_else(|| self.domain(whole).reserve(len).ok()) else {
                self.lacking = true;
                break;
            };
            self.ready.push_back(reserved);
            self.posted += 1;
        }
        owed.saturating_sub(self.posted)
    }

    /// The memory of the next Receive to be posted.
    pub(crate) fn next(&mut self) -> Option<ReceiveMemory> {
        let reserved = self.ready.pop_front()?;
        Some(ReceiveMemory::Pooled(reserved.aligned(self.size.align)))
    }

    /// It is decided anew which ones are needed: nothing is lacking until one of them finds no room.
    pub(crate) const fn decide_anew(&mut self) {
        self.lacking = false;
    }

    /// Ready when there is room again for a Receive that is lacking, since a message is done with; otherwise the task is woken then.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.domain.as_ref().filter(|_| self.lacking) {
            Some(domain) => domain.poll_kept(cx, self.size.len),
            None => Poll::Pending,
        }
    }

    fn domain(&mut self, whole: &ProtectionDomain) -> &ProtectionDomain {
        self.domain.get_or_insert_with(|| whole.share(usize::MAX))
    }

    /// Keeps the room of so many Receives from one message to the next.
    pub(crate) fn keep(&mut self, receives: u32, whole: &ProtectionDomain) {
        let receives = usize::try_from(receives).unwrap_or(usize::MAX);
        let room = receives.saturating_mul(self.room_for_one());
        if self.kept != room {
            self.kept = room;
            self.domain(whole).keep(room);
        }
    }

    /// Room that one takes of the domain, bytes.
    pub(crate) fn room_for_one(&self) -> usize {
        ProtectionDomain::room_for(self.size.len)
    }

    /// Gives the room back that is kept: the connection is over.
    pub(crate) fn end(&mut self) {
        self.provided.clear();
        self.ready.clear();
        if let Some(domain) = self.domain.take() {
            domain.keep(0);
        }
    }

    /// Receives posted and not completed.
    pub(crate) const fn posted(&self) -> u32 {
        self.posted
    }

    /// How many of those posted are not spoken for by `replies` that are expected.
    pub(crate) const fn beyond(&self, replies: u32) -> u32 {
        self.posted.saturating_sub(replies)
    }

    /// One completed: the oldest, as every receive queue is in order.
    pub(crate) fn complete(&mut self) {
        self.posted = self.posted.saturating_sub(1);
        if let Some((_, left)) = self.earlier.front_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.earlier.pop_front();
            }
        }
    }

    /// Bytes of each that is reserved from now on.
    pub(crate) const fn len(&self) -> usize {
        self.size.len
    }

    /// Those reserved from now on hold so many bytes; the peer does not ask when smaller ones are gone.
    pub(crate) const fn set_len(&mut self, len: usize) {
        self.size.len = len;
    }

    /// Those reserved from now on hold so many bytes; the earlier ones are counted.
    pub(crate) fn resize(&mut self, len: usize) {
        let counted: u32 = self.earlier.iter().map(|(_, count)| count).sum();
        let last = self.posted.saturating_sub(counted);
        if last > 0 {
            self.earlier.push_back((self.size.len, last));
        }
        self.size.len = len;
    }

    /// The smallest of those posted before the last [`resize`](Self::resize), if any are left.
    pub(crate) fn least_earlier(&self) -> Option<usize> {
        self.earlier.iter().map(|(size, _)| *size).min()
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.end();
    }
}
