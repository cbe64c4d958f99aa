//! Counts of the receive queue of a connection (rule I3).
//!
//! Any message of the peer consumes the oldest Receive, so only their number matters. The queue holds one for each
//! credit that the peer may use, and one for each call of ours that waits for a reply. The provider attaches the
//! memory. A posted Receive is never withdrawn, only flushed.
//!
//! Receives are reserved in a share of the protection domain that belongs to the connection. The share keeps memory for
//! as many Receives as the peer was granted. When a message has been processed, its memory serves the next Receive, and
//! other users of a full domain cannot get it. A grant therefore never has to shrink, and an answer finds the Receive
//! that backs its credit.
//!
//! The owner can also [provide](Receives::provide) a share that is apart from the domain of the queue pair. It has enough
//! memory for all Receives of the connection, and keeps it already. A missing Receive then waits for that memory only.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use rpcrdma_verbs::{ProtectionDomain, ReceiveMemory, Reserved, Rest};

use super::ledger::ReceiveSize;
use crate::wire::{narrow, sized};

/// Counts of Receives that are posted, or reserved to be posted at once.
#[derive(Debug)]
pub(crate) struct Receives {
    /// The size of Receives that are reserved from now on.
    size: ReceiveSize,
    posted: u32,
    /// Receives that are reserved and not posted.
    ready: VecDeque<Reserved>,
    /// Posted Receives of earlier sizes, oldest first: size in bytes, and number.
    earlier: VecDeque<(usize, u32)>,
    /// The share in which Receives are reserved, once the domain is known.
    domain: Option<ProtectionDomain>,
    /// The share is no part of the queue pair's domain.
    apart: bool,
    /// Memory that the share keeps, bytes.
    kept: usize,
    /// The domain had no memory for a needed Receive.
    pub(crate) lacking: bool,
}

impl Receives {
    pub(super) const fn new(size: ReceiveSize) -> Self {
        Self {
            size,
            posted: 0,
            ready: VecDeque::new(),
            earlier: VecDeque::new(),
            domain: None,
            apart: false,
            kept: 0,
            lacking: false,
        }
    }

    /// Sets the share in which Receives are reserved, and memory in it for the first ones, which are posted at once. A
    /// share `apart` keeps the memory of all Receives by itself.
    pub(crate) fn provide(&mut self, share: ProtectionDomain, receives: Vec<Reserved>, apart: bool) {
        self.domain = Some(share);
        self.apart = apart;
        self.kept = 0;
        self.ready.extend(receives.into_iter().filter(|reserved| reserved.len() == self.size.len));
        self.posted = narrow(self.ready.len());
    }

    /// Reserves memory until `owed` Receives are there, or the domain is exhausted; returns how many are missing.
    pub(super) fn reserve(&mut self, owed: u32, whole: &ProtectionDomain) -> u32 {
        while self.posted < owed {
            let len = self.size.len;
            let Ok(reserved) = self.domain(whole).reserve(len) else {
                self.lacking = true;
                break;
            };
            self.ready.push_back(reserved);
            self.posted += 1;
        }
        owed.saturating_sub(self.posted)
    }

    /// Returns the memory of the next Receive to post.
    pub(super) fn next(&mut self) -> Option<ReceiveMemory> {
        let reserved = self.ready.pop_front()?;
        Some(ReceiveMemory::Pooled(reserved.aligned(self.size.align)))
    }

    /// Whether a Receive is reserved and not posted.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Releases memory that only many new Receives at a time need.
    pub(crate) fn rest(&mut self) {
        self.ready.rest();
    }

    /// Clears the mark of missing memory, before the needed Receives are determined again.
    pub(super) const fn decide_anew(&mut self) {
        self.lacking = false;
    }

    /// Returns ready when memory for a missing Receive is free again, after a message was processed; otherwise
    /// registers the task.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.domain.as_ref().filter(|_| self.lacking) {
            Some(domain) => domain.poll_kept(cx, self.size.len),
            None => Poll::Pending,
        }
    }

    fn domain(&mut self, whole: &ProtectionDomain) -> &ProtectionDomain {
        self.domain.get_or_insert_with(|| whole.share(usize::MAX))
    }

    /// Keeps memory for so many Receives from one message to the next.
    pub(super) fn keep(&mut self, receives: u32, whole: &ProtectionDomain) {
        let receives = sized(receives);
        let room = receives.saturating_mul(self.room_for_one());
        if self.kept != room {
            self.kept = room;
            self.domain(whole).keep(room);
        }
    }

    /// Returns the memory that one Receive uses in the queue pair's domain, bytes; 0 if its memory is apart.
    pub(crate) fn room_for_one(&self) -> usize {
        if self.apart { 0 } else { ProtectionDomain::room_for(self.size.len) }
    }

    /// Releases the kept memory at the end of the connection.
    pub(crate) fn end(&mut self) {
        self.ready.clear();
        if let Some(domain) = self.domain.take() {
            domain.keep(0);
        }
    }

    /// Returns the number of Receives posted and not completed.
    pub(super) const fn posted(&self) -> u32 {
        self.posted
    }

    /// Counts the completion of the oldest Receive; receive queues complete in order.
    pub(crate) fn complete(&mut self) {
        self.posted = self.posted.saturating_sub(1);
        if let Some((_, left)) = self.earlier.front_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.earlier.pop_front();
            }
        }
    }

    /// Returns the size of Receives that are reserved from now on, bytes.
    pub(crate) const fn len(&self) -> usize {
        self.size.len
    }

    /// Sets the size of Receives that are reserved from now on, bytes, without a count of the smaller ones.
    pub(crate) const fn set_len(&mut self, len: usize) {
        self.size.len = len;
    }

    /// Sets the size of Receives that are reserved from now on, bytes, and counts the earlier ones.
    pub(crate) fn resize(&mut self, len: usize) {
        let counted: u32 = self.earlier.iter().map(|(_, count)| count).sum();
        let last = self.posted.saturating_sub(counted);
        if last > 0 {
            self.earlier.push_back((self.size.len, last));
        }
        self.size.len = len;
    }

    /// Returns the size of the smallest Receive posted before the last [`resize`](Self::resize), bytes, if one is left.
    pub(crate) fn least_earlier(&self) -> Option<usize> {
        self.earlier.iter().map(|(size, _)| *size).min()
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.end();
    }
}
