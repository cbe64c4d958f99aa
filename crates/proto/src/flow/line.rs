//! The queue of messages that need credits for several Sends at once, with credits per message (version-two-07 §4.2.1,
//! §6.6.2).
//!
//! Answers precede Calls; each kind is first come, first served. A message that needs one credit may pass. An answer
//! may do so as long as enough credits are left for the first in line, a Call a bounded number of times.

use std::collections::VecDeque;
use std::time::Instant;

/// The most Calls that pass the first Call in line, while the replies to others in flight bring credits.
const PASSES: u32 = 16;

/// The waiting messages, in order.
#[derive(Debug, Default)]
pub(crate) struct Line {
    answers: VecDeque<Answer>,
    calls: VecDeque<Call>,
}

#[derive(Debug)]
struct Answer {
    token: u64,
    sends: u32,
    deadline: Instant,
}

#[derive(Debug)]
struct Call {
    xid: u32,
    sends: u32,
    /// Calls that have passed this one.
    passed: u32,
}

impl Line {
    /// Whether an answer waits.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns the Sends of the first answer.
    pub(super) fn first_answer(&self) -> Option<u32> {
        self.answers.front().map(|first| first.sends)
    }

    /// Returns the Sends of the first Call, and whether others may pass it. `in_flight`: whether Calls are in flight.
    pub(super) fn first_call(&self, in_flight: bool) -> Option<(u32, bool)> {
        // Each Call in flight brings credits; if there is none, the next Call does.
        self.calls.front().map(|first| (first.sends, first.passed < PASSES || !in_flight))
    }

    /// Counts a Call that has passed the line.
    pub(super) fn pass(&mut self) {
        if let Some(first) = self.calls.front_mut() {
            first.passed = first.passed.saturating_add(1);
        }
    }

    pub(crate) fn join_answer(&mut self, token: u64, sends: u32, deadline: Instant) {
        self.answers.push_back(Answer { token, sends, deadline });
    }

    pub(crate) fn join_call(&mut self, xid: u32, sends: u32) {
        self.calls.push_back(Call { xid, sends, passed: 0 });
    }

    /// Removes and returns the first answer.
    pub(crate) fn pop_answer(&mut self) -> Option<u64> {
        self.answers.pop_front().map(|first| first.token)
    }

    /// Removes and returns the first Call.
    pub(crate) fn pop_call(&mut self) -> Option<u32> {
        self.calls.pop_front().map(|first| first.xid)
    }

    /// Removes a Call.
    pub(crate) fn forget_call(&mut self, xid: u32) {
        self.calls.retain(|call| call.xid != xid);
    }

    /// Removes and returns all Calls, in order.
    pub(crate) fn take_calls(&mut self) -> impl Iterator<Item = u32> {
        std::mem::take(&mut self.calls).into_iter().map(|call| call.xid)
    }

    /// Returns the deadline of the first answer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.answers.front().map(|first| first.deadline)
    }

    /// Removes all messages.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
