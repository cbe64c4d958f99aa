//! The one receive queue of a connection, counted (rule I3).
//!
//! A Receive is consumed by whatever the peer sends next, so only their number matters: one for each credit that the peer
//! may use and one for each call of ours that waits for a reply. Memory is attached by the provider; a Receive that is
//! posted is never withdrawn, only drained.

/// Counts the Receives that are posted.
#[derive(Debug, Default)]
pub struct Receives {
    posted: u32,
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

    /// One completed.
    pub const fn complete(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }
}
