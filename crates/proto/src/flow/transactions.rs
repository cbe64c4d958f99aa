//! Credits per transaction (RFC 8166 §3.3.1; rules I3 and I4).
//!
//! A Call takes a credit, and its reply gives the credit back. [`RequesterCredits`] keeps us within what the peer granted;
//! [`ResponderCredits`] decides what we grant and notices a peer that goes beyond it. Both only count.
//!
//! *RDMA_DONE* takes a credit too (RFC 5666 §3.8), and nothing answers it. The Requester keeps the credit of a call whose
//! reply it has to read, and sends the RDMA_DONE on it. The credit is free again when the RDMA_DONE is known to have
//! [arrived](super::arrival). So that a Call which proves the arrival can always be sent, the last credit is left for one that
//! follows an RDMA_DONE.

use std::collections::VecDeque;

use super::arrival::{Mark, Shown};

/// Our calls against the peer's grant.
#[derive(Debug)]
pub(crate) struct RequesterCredits {
    requested: u32,
    granted: u32,
    in_flight: u32,
    /// Calls sent so far.
    sent: u64,
    /// Credits of Calls in flight beyond the first: of those that left in several Sends.
    further: u32,
    /// Calls that have their reply and owe an RDMA_DONE.
    owed: u32,
    /// RDMA_DONEs sent that the peer may not have received.
    dones: VecDeque<Mark>,
    /// Sends of Calls that were answered before all of them may have arrived.
    unproved: VecDeque<Mark>,
    /// Whether calls can come to owe an RDMA_DONE.
    read_read: bool,
    /// The last of the Calls that have their reply, by its number.
    answered: u64,
    /// A reply that was no error has told the grant.
    told: bool,
}

impl RequesterCredits {
    /// `requested` is what every Call asks for, at least 1; `initial` what may be assumed before the first reply.
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

    /// The same where replies may have to be read (RFC 5666 §3.8). At least 2 credits are asked for: with one, nothing could be
    /// sent after an RDMA_DONE.
    pub(crate) fn with_read_read(requested: u32, initial: u32) -> Self {
        Self { read_read: true, ..Self::new(requested.max(2), initial) }
    }

    /// The value for `rdma_credit` of a Call.
    pub(crate) const fn requested(&self) -> u32 {
        self.requested
    }

    /// The grant in force: never 0, never above what we asked for.
    pub(crate) fn granted(&self) -> u32 {
        self.granted.min(self.requested)
    }

    /// Calls without a reply.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Takes a credit for a Call, if there is one.
    pub(crate) fn take(&mut self) -> bool {
        let free = self.available();
        if free {
            self.in_flight += 1;
            self.sent += 1;
        }
        free
    }

    /// The number of Calls sent: that of the Call that took the last credit.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// The number of the last Call, in the order of sending, that has its reply.
    pub(crate) const fn answered(&self) -> u64 {
        self.answered
    }

    /// Credits of calls without a reply, and of RDMA_DONEs to be sent or not known to have arrived.
    fn in_use(&self) -> u32 {
        let dones = u32::try_from(self.dones.len()).unwrap_or(u32::MAX);
        self.in_flight.saturating_add(self.further).saturating_add(self.owed).saturating_add(dones)
    }

    /// Those, and the ones of other Sends that are not known to have arrived.
    fn taken(&self) -> u32 {
        self.in_use().saturating_add(u32::try_from(self.unproved.len()).unwrap_or(u32::MAX))
    }

    /// Sends that a Call may take now, each of which uses a Receive of the peer (rtrext-02 §4.3).
    pub(crate) fn room(&self) -> u32 {
        if self.available() { self.granted().saturating_sub(self.taken()).max(1) } else { 0 }
    }

    /// The same for a Call that has no other way than in several Sends. If nothing but unproved Sends stands against it, it has all that is
    /// granted: waiting would prove nothing.
    pub(crate) fn room_in_turn(&self) -> u32 {
        if self.in_use() == 0 { self.granted() } else { self.room() }
    }

    /// Takes credits for the Sends of a Call beyond the one that [`take`](Self::take) took a credit for. There is
    /// [`room`](Self::room) for them.
    pub(crate) const fn take_further(&mut self, sends: u32) {
        self.further = self.further.saturating_add(sends);
    }

    /// Such a Call was answered before all of its Sends may have arrived: their credits are free when a later Call is answered, like
    /// those of RDMA_DONEs.
    pub(crate) fn leave_unproved(&mut self, sends: u32) {
        self.release_further(sends);
        let mark = Mark::after_calls(self.sent);
        (0..sends).for_each(|_| self.unproved.push_back(mark));
    }

    /// Such a Call was answered.
    pub(crate) const fn release_further(&mut self, sends: u32) {
        self.further = self.further.saturating_sub(sends);
    }

    /// Whether a Call may be sent. RFC 8166 §3.3.1.
    ///
    /// One always may if nothing but unproved Sends stand against it, which can be more than a lower grant: the peer had granted those,
    /// and what it granted with its answer comes on top of them. Only the answer to another Call proves them.
    pub(crate) fn available(&self) -> bool {
        let (taken, granted) = (self.taken(), self.granted());
        let last = self.read_read && taken > 0 && taken + 1 == granted;
        let proves = self.in_use() == 0;
        (taken < granted || proves) && (!last || proves || !self.dones.is_empty())
    }

    /// Whether every credit is with an RDMA_DONE that was sent: nothing will ever free one.
    pub(crate) fn is_stuck(&self) -> bool {
        self.in_flight == 0 && self.owed == 0 && !self.dones.is_empty() && !self.available()
    }

    /// A Call was answered by a reply that has to be read: its credit is kept for the RDMA_DONE.
    pub(crate) const fn owe_done(&mut self) {
        self.release();
        self.owed += 1;
    }

    /// The RDMA_DONE was sent.
    pub(crate) fn send_done(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        self.dones.push_back(Mark::after_calls(self.sent));
    }

    /// The Call that was the `number`th to be sent has its reply: RDMA_DONEs sent before it have arrived.
    pub(crate) fn cover(&mut self, number: u64) {
        self.answered = self.answered.max(number);
        let shown = Shown { answered: number, received: 0 };
        for sent in [&mut self.dones, &mut self.unproved] {
            while sent.front().is_some_and(|mark| mark.is_proved(shown)) {
                sent.pop_front();
            }
        }
    }

    /// A Call was answered: its credit is free again.
    pub(crate) const fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The peer granted `value`. A grant of 0 would stop everything for ever and counts as 1.
    pub(crate) fn grant(&mut self, value: u32) {
        self.granted = value.max(1);
        self.told = true;
    }

    /// The same, said by an error: before anything else has told a grant it says nothing, as some peers send the header of the
    /// Call back (RFC 8166 §3.3.3: "a valid reply"; version-two-01 §5: "a non-error message").
    pub(crate) fn grant_by_error(&mut self, value: u32) {
        if self.told {
            self.granted = value.max(1);
        }
    }
}

/// The peer's Calls against our grant.
#[derive(Debug)]
pub(crate) struct ResponderCredits {
    most: u32,
    wanted: u32,
    highest: u32,
    in_progress: u32,
    /// Of those, transmissions of Calls that are not whole yet.
    parts: u32,
    accepted: u64,
}

impl ResponderCredits {
    /// `most` is the largest grant (at least 1); the peer has `initial` credits without asking.
    pub(crate) fn new(most: u32, initial: u32) -> Self {
        let most = most.max(1);
        let wanted = initial.clamp(1, most);
        Self { most, wanted, highest: initial.max(1), in_progress: 0, parts: 0, accepted: 0 }
    }

    /// A Call asks for `requested` credits.
    pub(crate) fn request(&mut self, requested: u32) {
        self.wanted = requested.clamp(1, self.most);
    }

    /// The grant that the peer shall get, as far as Receives back it.
    pub(crate) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// A Call arrived; `false` if it goes beyond every grant that ever left.
    pub(crate) const fn accept(&mut self) -> bool {
        if self.in_progress >= self.highest {
            return false;
        }
        self.in_progress += 1;
        self.accepted += 1;
        true
    }

    /// A transmission arrived of a Call that is not whole yet, or was given up; `false` as for a Call. It is none itself.
    pub(crate) const fn accept_part(&mut self) -> bool {
        if self.in_progress >= self.highest {
            return false;
        }
        self.in_progress += 1;
        self.parts += 1;
        true
    }

    /// So many of these need no credit any more: their Call is whole and has one, or was given up.
    pub(crate) fn give_back(&mut self, parts: u32) {
        let parts = parts.min(self.parts);
        self.parts -= parts;
        self.in_progress = self.in_progress.saturating_sub(parts);
    }

    /// A Call arrived that is bounded otherwise ([`messages`]).
    pub(crate) const fn count(&mut self) {
        self.in_progress += 1;
        self.accepted += 1;
    }

    /// Calls in progress beyond what was granted: where credits are counted per message, those that were meant for replies were used
    /// for them.
    pub(crate) fn overdrawn(&self) -> u32 {
        self.in_progress.saturating_sub(self.wanted.max(self.highest))
    }

    /// The highest grant that ever left: the peer may act on it still.
    pub(crate) const fn highest(&self) -> u32 {
        self.highest
    }

    /// Calls that are not answered yet, and transmissions of those that are not whole.
    pub(crate) const fn in_progress(&self) -> u32 {
        self.in_progress
    }

    /// Of those that have come, how many are not in progress any more.
    pub(crate) fn finished(&self) -> u64 {
        self.accepted.saturating_sub(u64::from(self.in_progress.saturating_sub(self.parts)))
    }

    /// Calls that have come so far.
    pub(crate) const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Receives that should be posted now: one for each credit that the peer has or shall get, but for those that its Calls
    /// in progress have used. A lower grant does not undo a higher one that the peer may still be using.
    pub(crate) fn receives_owed(&self) -> u32 {
        self.wanted.max(self.highest).saturating_sub(self.in_progress)
    }

    /// A Call is not in progress any more: its Receive is owed again.
    pub(crate) const fn finish(&mut self) {
        self.in_progress = self.in_progress.saturating_sub(1);
    }

    /// The grant for an answer that leaves now, to a Call that is still counted as in progress. `backed` is the number of
    /// posted Receives that no call of ours waits for. `None` if the grant would be 0 (rule I3: the answer has to wait): the
    /// credits of other Calls in progress need no Receive until they are answered, so only the last answer waits for one.
    pub(crate) fn grant(&self, backed: u32) -> Option<u32> {
        let value = self.wanted.min(backed.saturating_add(self.in_progress.saturating_sub(1)));
        (value > 0).then_some(value)
    }

    /// An answer with this grant leaves.
    pub(crate) fn granted(&mut self, value: u32) {
        self.highest = self.highest.max(value);
    }
}

#[cfg(test)]
mod tests;
