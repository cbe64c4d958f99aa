//! Counters of all RDMA connections of a server together, including those that have ended.
//!
//! Each connection adds its new counts whenever it has nothing left to do: one lock for many calls under load.

use std::sync::{Mutex, PoisonError};

use rpcrdma_proto::{Messages, Stats};
use rpcrdma_verbs::Counters;

/// Counters of one connection, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    pub(crate) calls: Messages,
    pub(crate) replies: Messages,
    /// Bytes of payload that `proto` copied.
    pub(crate) copied: u64,
    /// Other bytes of messages that `proto` copied.
    pub(crate) copied_inline: u64,
    pub(crate) link: Counters,
}

impl Sums {
    /// Returns the counters of a connection that serves.
    pub(crate) fn of(protocol: &Stats, link: Counters) -> Self {
        Self {
            calls: protocol.calls_received,
            replies: protocol.replies_sent,
            copied: protocol.payload_bytes_copied,
            copied_inline: protocol.inline_bytes_copied,
            link,
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            calls: self.calls.since(&earlier.calls),
            replies: self.replies.since(&earlier.replies),
            copied: self.copied.saturating_sub(earlier.copied),
            copied_inline: self.copied_inline.saturating_sub(earlier.copied_inline),
            link: self.link.since(&earlier.link),
        }
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            calls: self.calls.plus(&other.calls),
            replies: self.replies.plus(&other.replies),
            copied: self.copied.saturating_add(other.copied),
            copied_inline: self.copied_inline.saturating_add(other.copied_inline),
            link: self.link.plus(&other.link),
        }
    }
}

/// The sums of all connections.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<Sums>);

impl Totals {
    /// Adds the counts of a connection since `before`, and sets `before` to `now`.
    pub(crate) fn add(&self, now: Sums, before: &mut Sums) {
        if now == *before {
            return;
        }
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *sums = sums.plus(&now.since(before));
        *before = now;
    }

    pub(crate) fn get(&self) -> Sums {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
