//! Credits per transaction (RFC 8166 §3.3.1; rules I3 and I4).
//!
//! A Call uses a credit until its reply arrives. [`RequesterCredits`] keeps our Calls within the peer's grant.
//! [`ResponderCredits`] decides our grant and detects a peer that exceeds it. Both only count.
//!
//! *RDMA_DONE* uses a credit too (RFC 5666 §3.8), and has no answer. The Requester keeps the credit of a Call whose
//! reply it has to read, and sends the RDMA_DONE on that credit. The credit is free again when the RDMA_DONE is known
//! to have [arrived](super::arrival). Only the answer to a later Call proves that, so the last credit is reserved for a
//! Call that follows an RDMA_DONE.

use std::collections::VecDeque;

use super::arrival::{Mark, Shown};
use crate::wire::narrow;

/// Credits of our Calls, within the peer's grant.
#[derive(Debug)]
pub(crate) struct RequesterCredits {
    requested: u32,
    granted: u32,
    in_flight: u32,
    /// Calls sent so far.
    sent: u64,
    /// Credits of Calls in flight for their Sends beyond the first.
    further: u32,
    /// Calls that have their reply and owe an RDMA_DONE.
    owed: u32,
    /// RDMA_DONEs that may not have arrived.
    dones: VecDeque<Mark>,
    /// Sends of answered Calls that may not have arrived.
    unproved: VecDeque<Mark>,
    /// Whether Calls may owe an RDMA_DONE.
    read_read: bool,
    /// The highest number of a Call that has its reply.
    answered: u64,
    /// A reply other than an error has granted credits.
    told: bool,
}

impl RequesterCredits {
    /// `requested` is the credit request of every Call, at least 1; `initial` is the grant before the first reply.
    pub(crate) fn new(requested: u32, initial: u32) -> Self {
        Self {
            requested: requested.max(1),
            granted: initial.max(1),
            in_flight: 0,
            sent: 0,
            further: 0,
            owed: 0,
            dones: VecDeque::new(),
            unproved: VecDeque::new(),
            read_read: false,
            answered: 0,
            told: false,
        }
    }

    /// Returns credits for replies that may have to be read (RFC 5666 §3.8). At least 2 are requested: with one, no
    /// Call could follow an RDMA_DONE.
    pub(crate) fn with_read_read(requested: u32, initial: u32) -> Self {
        Self { read_read: true, ..Self::new(requested.max(2), initial) }
    }

    /// Returns the value for `rdma_credit` of a Call.
    pub(super) const fn requested(&self) -> u32 {
        self.requested
    }

    /// Returns the grant in force: never 0, never above our request.
    pub(crate) fn granted(&self) -> u32 {
        self.granted.min(self.requested)
    }

    /// Returns the number of Calls without a reply.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Uses a credit for a Call, if one is free.
    pub(super) fn take(&mut self) -> bool {
        let free = self.available();
        if free {
            self.in_flight += 1;
            self.sent += 1;
        }
        free
    }

    /// Returns the number of Calls sent, which is the number of the last Call.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of the last Call, in send order, that has its reply.
    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns the credits of Calls without a reply, and of RDMA_DONEs not sent or not known to have arrived.
    fn in_use(&self) -> u32 {
        let dones = narrow(self.dones.len());
        self.in_flight.saturating_add(self.further).saturating_add(self.owed).saturating_add(dones)
    }

    /// Returns all credits in use, including other Sends not known to have arrived.
    fn taken(&self) -> u32 {
        self.in_use().saturating_add(narrow(self.unproved.len()))
    }

    /// Returns the Sends that a Call may use now, each of which uses a Receive of the peer (rtrext-02 §4.3).
    pub(super) fn room(&self) -> u32 {
        if self.available() { self.granted().saturating_sub(self.taken()).max(1) } else { 0 }
    }

    /// Returns the Sends for a Call that must be divided. If only unconfirmed Sends hold credits, the Call gets the
    /// whole grant, since waiting would prove nothing.
    pub(super) fn room_in_turn(&self) -> u32 {
        if self.in_use() == 0 { self.granted() } else { self.room() }
    }

    /// Uses credits for the Sends of a Call beyond the first, for which [`take`](Self::take) used one.
    /// [`room`](Self::room) has to allow them.
    pub(super) const fn take_further(&mut self, sends: u32) {
        self.further = self.further.saturating_add(sends);
    }

    /// Keeps the credits of further Sends of an answered Call that may not have arrived. They are free when a later
    /// Call is answered, like those of RDMA_DONEs.
    pub(super) fn leave_unproved(&mut self, sends: u32) {
        self.release_further(sends);
        let mark = Mark::after_calls(self.sent);
        (0..sends).for_each(|_| self.unproved.push_back(mark));
    }

    /// Frees the credits of further Sends of an answered Call.
    pub(super) const fn release_further(&mut self, sends: u32) {
        self.further = self.further.saturating_sub(sends);
    }

    /// Whether a Call may be sent (RFC 8166 §3.3.1).
    ///
    /// A Call may always leave when only Sends of unconfirmed arrival hold credits, even if they exceed a lowered
    /// grant. The peer had granted those Sends, and its latest grant adds to them. Only the answer to another Call
    /// proves their arrival.
    pub(crate) fn available(&self) -> bool {
        let (taken, granted) = (self.taken(), self.granted());
        let last = self.read_read && taken + 1 == granted;
        let proves = self.in_use() == 0;
        (taken < granted || proves) && (!last || proves || !self.dones.is_empty())
    }

    /// Whether RDMA_DONEs in flight hold every credit, so that no credit can ever become free.
    pub(super) fn is_stuck(&self) -> bool {
        self.in_flight == 0 && self.owed == 0 && !self.dones.is_empty() && !self.available()
    }

    /// Keeps the credit of an answered Call for its RDMA_DONE.
    pub(super) const fn owe_done(&mut self) {
        self.release();
        self.owed += 1;
    }

    /// Counts an RDMA_DONE that is sent.
    pub(super) fn send_done(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        self.dones.push_back(Mark::after_calls(self.sent));
    }

    /// Records the reply to the `number`th Call: RDMA_DONEs sent before that Call have arrived.
    pub(super) fn cover(&mut self, number: u64) {
        self.answered = self.answered.max(number);
        let shown = Shown { answered: number, received: 0 };
        for sent in [&mut self.dones, &mut self.unproved] {
            while sent.front().is_some_and(|mark| mark.is_proved(shown)) {
                sent.pop_front();
            }
        }
    }

    /// Frees the credit of an answered Call.
    pub(super) const fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Sets the peer's grant. A grant of 0 would stop the connection for ever, and counts as 1.
    pub(super) fn grant(&mut self, value: u32) {
        self.granted = value.max(1);
        self.told = true;
    }

    /// Sets the grant of an error. Before the first other reply the value is ignored, since some peers return the
    /// header of the Call (RFC 8166 §3.3.3: "a valid reply"; version-two-01 §5: "a non-error message").
    pub(super) fn grant_by_error(&mut self, value: u32) {
        if self.told {
            self.granted = value.max(1);
        }
    }
}

/// Credits of the peer's Calls, within our grant.
#[derive(Debug)]
pub(crate) struct ResponderCredits {
    most: u32,
    wanted: u32,
    highest: u32,
    in_progress: u32,
    /// Transmissions of incomplete Calls, part of `in_progress`.
    parts: u32,
    accepted: u64,
}

impl ResponderCredits {
    /// `most` is the largest grant (at least 1); `initial` is the peer's credit before the first grant.
    pub(crate) fn new(most: u32, initial: u32) -> Self {
        let most = most.max(1);
        let wanted = initial.clamp(1, most);
        Self { most, wanted, highest: initial.max(1), in_progress: 0, parts: 0, accepted: 0 }
    }

    /// Limits all grants. Calls before the first one are accepted as before, as far as Receives are posted.
    pub(crate) fn limit(&mut self, most: u32) {
        self.most = self.most.min(most).max(1);
        self.wanted = self.wanted.min(self.most);
    }

    /// Records the credit request of a Call.
    pub(super) fn request(&mut self, requested: u32) {
        self.wanted = requested.clamp(1, self.most);
    }

    /// Returns the intended grant, which Receives still have to back.
    pub(crate) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Counts a Call; `false` if it exceeds every grant that ever left.
    pub(crate) const fn accept(&mut self) -> bool {
        if self.in_progress >= self.highest {
            return false;
        }
        self.in_progress += 1;
        self.accepted += 1;
        true
    }

    /// Counts a transmission of an incomplete or abandoned Call, but not as a Call; `false` as in
    /// [`accept`](Self::accept).
    pub(super) const fn accept_part(&mut self) -> bool {
        if self.in_progress >= self.highest {
            return false;
        }
        self.in_progress += 1;
        self.parts += 1;
        true
    }

    /// Frees the credits of transmissions whose Call is now complete, and has one credit, or was abandoned.
    pub(super) fn give_back(&mut self, parts: u32) {
        let parts = parts.min(self.parts);
        self.parts -= parts;
        self.in_progress = self.in_progress.saturating_sub(parts);
    }

    /// Counts a Call that other credits bound ([`messages`]).
    pub(super) const fn count(&mut self) {
        self.in_progress += 1;
        self.accepted += 1;
    }

    /// Returns the Calls in progress beyond the grant. With credits per message, they use credits intended for replies.
    pub(super) fn overdrawn(&self) -> u32 {
        self.in_progress.saturating_sub(self.backed())
    }

    /// Returns the highest grant that ever left, which the peer may still use.
    pub(crate) fn highest(&self) -> u32 {
        self.highest.min(self.most)
    }

    /// Returns the most Calls that the peer may have in progress: by its grant, or before the first one.
    pub(crate) const fn accepted_at_once(&self) -> u32 {
        self.highest
    }

    /// Returns the unanswered Calls, and the transmissions of incomplete ones.
    pub(crate) const fn in_progress(&self) -> u32 {
        self.in_progress
    }

    /// Returns the number of Calls that have arrived and are no longer in progress.
    pub(crate) fn finished(&self) -> u64 {
        self.accepted.saturating_sub(u64::from(self.in_progress.saturating_sub(self.parts)))
    }

    /// Returns the number of Calls that have arrived.
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of Receives to have posted: one for each credit that the peer has or shall get. Those that
    /// its Calls in progress have used do not count. A lower grant does not undo a higher one that the peer may still use.
    pub(super) fn receives_owed(&self) -> u32 {
        self.backed().saturating_sub(self.in_progress)
    }

    /// Returns the credits that the peer has or shall get, each with a Receive.
    fn backed(&self) -> u32 {
        self.wanted.max(self.highest).min(self.most)
    }

    /// Ends a Call in progress: its Receive is due again.
    pub(super) const fn finish(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    /// Returns the grant for an answer that leaves now, while its Call still counts as in progress. `backed` is the
    /// number of posted Receives that no Call of ours waits for. `None` if the grant would be 0: then the answer has to
    /// wait (rule I3). Other Calls in progress need no Receive until they are answered, so only the last answer waits
    /// for one.
    pub(super) fn grant(&self, backed: u32) -> Option<u32> {
        let value = self.wanted.min(backed.saturating_add(self.in_progress.saturating_sub(1)));
        (value > 0).then_some(value)
    }

    /// Records the grant of an answer that leaves.
    pub(crate) fn granted(&mut self, value: u32) {
        self.highest = self.highest.max(value);
    }
}

#[cfg(test)]
mod tests;
