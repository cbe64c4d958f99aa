//! The one rule that proves the arrival of a message of ours.
//!
//! Sends arrive in the order in which they leave. So a message has arrived as soon as the peer shows that it has a later one:
//!
//! - it answers a Call that left after the message;
//! - or it makes more Calls than it could without a later grant: those that came before, and one for each credit that it had.

/// The place of a message in the order in which ours left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Calls of ours that left before the message.
    pub(crate) calls: u64,
    /// Calls that the peer can make without a message that left later.
    pub(crate) allowed: u64,
}

/// What the peer has shown of the messages that it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The highest number of a Call of ours that has its answer.
    pub(crate) answered: u64,
    /// Calls of the peer that have come.
    pub(crate) received: u64,
}

impl Mark {
    /// A mark that only an answer to a later Call of ours passes.
    pub(crate) const fn after_calls(calls: u64) -> Self {
        Self { calls, allowed: u64::MAX }
    }

    /// Whether the message has arrived.
    pub(crate) const fn is_proved(&self, shown: Shown) -> bool {
        shown.answered > self.calls || shown.received > self.allowed
    }
}
