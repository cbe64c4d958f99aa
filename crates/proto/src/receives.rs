//! The one receive queue of a connection, counted (rule I3).
//!
//! A Receive is consumed by whatever the peer sends next, so only their number matters: one for each credit that the peer
//! may use and one for each call of ours that waits for a reply. Memory is attached by the provider; a Receive that is
//! posted is never withdrawn, only drained.

use std::collections::VecDeque;

/// Counts the Receives that are posted.
#[derive(Debug, Default)]
pub struct Receives {
    posted: u32,
    /// Those of earlier sizes that are posted still, oldest first: size in bytes, and how many.
    earlier: VecDeque<(usize, u32)>,
}

impl Receives {
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
