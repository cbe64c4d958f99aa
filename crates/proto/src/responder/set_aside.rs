//! Answers that go on in several Sends and wait for credits for all of them (version-two-07 §4.2.1, §6.6.4).
//!
//! Such an answer waits only if the peer's limit, as it was told last, has room for it once nothing of ours is outstanding
//! ([`MessageCredits::lasting`](crate::credits::messages::MessageCredits::lasting)); else it is planned without. While it waits it
//! keeps its memory and stands aside: answers that need one credit pass it as long as enough is left for it, others that go on line
//! up behind it, and our own Calls leave the room that it needs. It has a deadline of its own; then it leaves as what the credits
//! carry that are there, which may be a refusal. A peer that takes nothing at all by then loses its connection.

use std::time::Instant;

use super::{Responder, SetAside};
use crate::core::Core;
use crate::event::CloseReason;
use crate::timers::after;

/// What an answer or RDMA_ERROR waits for that the peer does not let leave.
pub(super) const NO_CREDITS: &str = "credits for an answer";

/// Where the next answer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It leaves now, if there is a credit.
    Next,
    /// It would take what one that was set aside waits for.
    Behind,
    /// It waits for credits for all its Sends.
    Aside,
}

impl Responder {
    /// Messages that the first answer that was set aside needs beyond one, if there will be so many. `calls` are
    /// those that our Calls without a reply took.
    pub(crate) fn sends_awaited(&self, core: &Core, calls: u32) -> u32 {
        self.expected(core, calls).map_or(0, |sends| sends.saturating_sub(1))
    }

    /// Sends of the first answer that was set aside, as long as the peer's limit has room for them.
    fn expected(&self, core: &Core, calls: u32) -> Option<u32> {
        self.set_aside.front().map(|first| first.sends).filter(|sends| *sends <= core.lasting(calls))
    }

    /// Finds the place of the next answer, which takes so many Sends.
    pub(super) fn place(&self, core: &Core, calls: u32, sends: u32) -> Place {
        let Some((token, _)) = self.answers.front().filter(|_| sends > 1 || !self.set_aside.is_empty())
        else {
            return Place::Next;
        };
        let in_turn = self.calls.get(token).is_some_and(|call| call.in_turn);
        let fits = core.may_send(sends);
        match sends {
            _ if in_turn => Place::Next,
            2.. if !fits || !self.set_aside.is_empty() => Place::Aside,
            2.. => Place::Next,
            _ if self.expected(core, calls).is_some_and(|first| core.lasting(calls) <= first) => {
                Place::Behind
            }
            _ => Place::Next,
        }
    }

    /// Sets the next answer aside until there are credits for so many Sends.
    pub(super) fn put_aside(&mut self, core: &Core, now: Instant, sends: u32) {
        let Some((token, answer)) = self.answers.pop_front() else { return };
        let deadline = after(now, core.config.timeouts.credits);
        self.set_aside.push_back(SetAside { token, answer, sends, deadline });
        self.stalled = None;
    }

    /// The first answer that was set aside is next, if it can leave.
    pub(super) fn take_turn(&mut self, core: &Core) {
        if self.set_aside.front().is_some_and(|first| core.may_send(first.sends)) {
            self.end_wait();
        }
    }

    fn end_wait(&mut self) {
        let Some(SetAside { token, answer, .. }) = self.set_aside.pop_front() else { return };
        // One of two answers to a Call that is answered.
        let Some(call) = self.calls.get_mut(&token) else { return };
        call.in_turn = true;
        self.answers.push_front((token, answer));
    }

    /// What was set aside and has waited long enough leaves as it can (rule I6).
    pub(super) fn end_waits(&mut self, core: &mut Core, now: Instant) {
        while self.set_aside.front().is_some_and(|first| first.deadline <= now) {
            if !core.may_send(1) {
                core.fail(CloseReason::Timeout(NO_CREDITS));
                self.set_aside.clear();
                return;
            }
            self.end_wait();
        }
    }
}
