//! Messages that need credits for several Sends at once, where messages are counted (version-two-07 §4.2.1, §6.6.2).
//!
//! They stand in line: answers before Calls, each kind first come, first served. What needs one credit may pass: an answer as long
//! as enough is left for the first in line, a Call a bounded number of times.

use std::collections::VecDeque;
use std::time::Instant;

/// Calls that may pass the first one in line, while others are in flight whose replies bring credits.
const PASSES: u32 = 16;

/// Those that wait, in order.
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
    /// Calls that have passed it.
    passed: u32,
}

impl Line {
    /// Whether an answer waits.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether a Call waits.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// How many Calls wait.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Sends of the first answer.
    pub(super) fn first_answer(&self) -> Option<u32> {
        self.answers.front().map(|first| first.sends)
    }

    /// Sends of the first Call, and whether others may pass it; `in_flight`: whether Calls are in flight.
    pub(super) fn first_call(&self, in_flight: bool) -> Option<(u32, bool)> {
        // Each of those in flight brings credits; if none is, the next one does.
        self.calls.front().map(|first| (first.sends, first.passed < PASSES || !in_flight))
    }

    /// A Call has left beside the line.
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

    /// The first answer leaves the line.
    pub(crate) fn pop_answer(&mut self) -> Option<u64> {
        self.answers.pop_front().map(|first| first.token)
    }

    /// The first Call leaves the line.
    pub(crate) fn pop_call(&mut self) -> Option<u32> {
        self.calls.pop_front().map(|first| first.xid)
    }

    /// A Call gives up.
    pub(crate) fn forget_call(&mut self, xid: u32) {
        self.calls.retain(|call| call.xid != xid);
    }

    /// All Calls give up; returns them in order.
    pub(crate) fn take_calls(&mut self) -> impl Iterator<Item = u32> {
        std::mem::take(&mut self.calls).into_iter().map(|call| call.xid)
    }

    /// Until when the first answer waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.answers.front().map(|first| first.deadline)
    }

    /// No answer waits any more.
    pub(crate) fn clear_answers(&mut self) {
        self.answers.clear();
    }

    /// Nobody waits any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
