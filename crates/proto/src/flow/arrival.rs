//! The rule that proves the arrival of a message of ours.
//!
//! Sends arrive in send order. A message has arrived as soon as the peer proves that a later one has:
//!
//! - by an answer to a Call that left after the message;
//! - or by more Calls than the peer could make without a later grant: those received before, and one for each credit
//!   that the peer had.

/// The position of a message in our send order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Calls of ours that left before the message.
    pub(crate) calls: u64,
    /// Calls that the peer can make without a message that left later.
    pub(crate) allowed: u64,
}

/// The peer's proof of messages that have arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The highest number of a Call of ours that has its answer.
    pub(crate) answered: u64,
    /// Calls of the peer received.
    pub(crate) received: u64,
}

impl Mark {
    /// Returns a mark that only an answer to a later Call of ours proves.
    pub(crate) const fn after_calls(calls: u64) -> Self {
        Self { calls, allowed: u64::MAX }
    }

    /// Whether the message has arrived.
    pub(crate) const fn is_proved(&self, shown: Shown) -> bool {
        shown.answered > self.calls || shown.received > self.allowed
    }
}
