//! [`Ledger`]: the credits of both sides, and the Receives that back them.

use rpcrdma_verbs::{ProtectionDomain, ReceiveMemory};

use super::arrival::{Mark, Shown};
use super::line::Line;
use super::messages::MessageCredits;
use super::permit::{Charge, DoneOwed, Lease, Offer, Permit, Settled, Wait};
use super::receives::Receives;
use super::transactions::{RequesterCredits, ResponderCredits};
use crate::settings::config::Side;
use crate::wire::Direction;
use crate::wire::narrow;

/// The size of each Receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveSize {
    /// Bytes.
    pub(crate) len: usize,
    /// Alignment of the memory, bytes.
    pub(crate) align: usize,
}

/// The account of one connection: credits of both sides, and the Receives that back them.
///
/// A sender asks for an [`Offer`] before a message leaves ([`ask_call`](Self::ask_call),
/// [`ask_answer`](Self::ask_answer)), and takes its [`Permit`] when the message is ready ([`take_call`](Self::take_call),
/// [`take_answer`](Self::take_answer)). The Receives that a permit relies on are reserved first;
/// [`next_receive`](Self::next_receive) returns them, to be posted before the message.
/// [`count_message`](Self::count_message), [`admit`](Self::admit) and [`settle`](Self::settle) count
/// received messages.
#[derive(Debug)]
pub(crate) struct Ledger {
    side: Side,
    /// Credits of our Calls, within the peer's grant.
    pub(crate) calls: RequesterCredits,
    /// Credits of the peer's Calls, within our grant.
    pub(crate) served: ResponderCredits,
    /// Credits per message, in versions that count them (version-two-07 §4.2.1).
    messages: Option<MessageCredits>,
    /// Messages that wait for several of these credits at once.
    pub(crate) line: Line,
    pub(crate) receives: Receives,
    /// Receives for further parts of awaited replies.
    further_replies: u32,
    /// Further Sends of Calls without a reply, with credits per message.
    further_sends: u32,
    /// Receives for operations on characteristics.
    operations: u32,
    /// Exposed replies, each of which may lead to an RDMA_DONE.
    exposed: u32,
    /// Messages sent.
    sent: u32,
    /// Messages received.
    received: u32,
}

impl Ledger {
    pub(crate) fn new(
        side: Side,
        calls: RequesterCredits,
        served: ResponderCredits,
        size: ReceiveSize,
    ) -> Self {
        Self {
            side,
            calls,
            served,
            messages: None,
            line: Line::default(),
            receives: Receives::new(size),
            further_replies: 0,
            further_sends: 0,
            operations: 0,
            exposed: 0,
            sent: 0,
            received: 0,
        }
    }

    /// Returns the side of the connection.
    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    /// Changes between credits per message and credits per transaction.
    pub(crate) fn count_messages(&mut self, counted: bool) {
        if counted != self.messages.is_some() {
            // Receives for the replies to Calls in another version are posted already.
            let awaited = self.calls.in_flight();
            self.messages = counted.then(|| MessageCredits::after(self.sent, self.received, awaited));
        }
    }

    /// Keeps Receives for operations on characteristics.
    pub(crate) const fn keep_for_operations(&mut self, receives: u32) {
        self.operations = receives;
    }

    // Requests: Calls of ours.

    /// Checks whether any Call may leave (rule I4).
    ///
    /// # Errors
    /// [`Wait`]: the event to wait for.
    #[inline]
    pub(crate) fn may_call(&self) -> Result<(), Wait> {
        if !self.calls.available() {
            return Err(if self.calls.is_stuck() { Wait::Never } else { Wait::Credits });
        }
        match &self.messages {
            Some(messages) if messages.room() <= self.left_for_answers() => Err(Wait::Credits),
            _ => Ok(()),
        }
    }

    /// Returns the Sends that the next Call may use. With `falls_back` the Call has another form: its share of the free
    /// credits is reduced by the `waiting` Calls. Otherwise the Call may wait for all credits that there will be.
    pub(crate) fn sends_for_call(&self, falls_back: bool, waiting: usize) -> u32 {
        match &self.messages {
            None if falls_back => {
                let waiting = narrow(waiting);
                let wanting = self.calls.in_flight().saturating_add(waiting).max(1);
                self.calls.room().min((self.calls.granted() / wanting).max(1))
            }
            None => self.calls.granted(),
            Some(messages) if falls_back => messages.room().saturating_sub(self.left_for_answers()),
            Some(messages) => messages.lasting(self.sends_out()).saturating_sub(self.served.in_progress()),
        }
    }

    /// Whether the receive queue can hold a reply in several Sends; only one at a time is possible.
    pub(crate) const fn has_room_for_long_reply(&self) -> bool {
        self.further_replies == 0
    }

    /// Asks for a Call of so many Sends, whose reply uses up to `replies` Receives. With `falls_back` the Call has
    /// another form.
    ///
    /// # Errors
    /// [`Wait`]: the event to wait for.
    pub(crate) fn ask_call(
        &mut self,
        (sends, replies): (u32, u32),
        falls_back: bool,
        domain: &ProtectionDomain,
    ) -> Result<Offer, Wait> {
        match &self.messages {
            // All Sends of a group leave together, and each uses a Receive of the peer (rtrext-02 §4.3).
            None if sends > 1 => {
                let room = if falls_back { self.calls.room() } else { self.calls.room_in_turn() };
                if sends > room {
                    return Err(Wait::Credits);
                }
            }
            Some(messages) if messages.room() < self.left_for_answers().saturating_add(sends) => {
                return Err(Wait::Line);
            }
            _ => {}
        }
        if replies > 1 && !self.has_room_for_long_reply() {
            return Err(Wait::Credits);
        }
        // Rule I3: a Receive for each Send of the reply, before the Call leaves.
        if self.reserve(self.receives_owed().saturating_add(replies), domain) > 0 {
            return Err(Wait::Receives(self.receives.room_for_one()));
        }
        Ok(Offer { sends, replies, credit: self.calls.requested() })
    }

    /// Counts a Call that leaves.
    pub(crate) fn take_call(&mut self, offer: Offer) -> (Permit, Lease) {
        let Offer { sends, replies, credit } = offer;
        let taken = self.calls.take();
        debug_assert!(taken, "a credit was available");
        let further = sends.saturating_sub(1);
        match self.messages {
            None => self.calls.take_further(further),
            Some(_) => self.further_sends += further,
        }
        self.further_replies += replies.saturating_sub(1);
        self.line.pass();
        (self.permit(sends, credit, false), Lease { number: self.calls.sent(), sends, replies })
    }

    /// Checks whether the first Call in line has its credits, or never will; returns its XID if so. An error forbids
    /// other Calls for now.
    pub(crate) fn next_in_line(&mut self) -> Result<Option<u32>, Wait> {
        let Some((sends, may_pass)) = self.line.first_call(self.sends_out() > 0) else { return Ok(None) };
        let Some(messages) = &self.messages else { return Ok(self.line.pop_call()) };
        let fits = messages.room() >= self.left_for_answers().saturating_add(sends);
        let hopeless = messages.lasting(self.sends_out()) < sends;
        match (fits || hopeless, may_pass) {
            (true, _) => Ok(self.line.pop_call()),
            (false, true) => Ok(None),
            (false, false) => Err(Wait::Line),
        }
    }

    // Requests: answers to Calls of the peer.

    /// Returns the Sends that the next answer may use. An answer that is not `in_turn` may wait for all credits that
    /// there will be.
    pub(crate) fn sends_for_answer(&self, in_turn: bool) -> u32 {
        match &self.messages {
            None => 1,
            Some(messages) if in_turn => messages.room(),
            Some(messages) => messages.lasting(self.sends_out()),
        }
    }

    /// Asks for an answer of so many Sends, or for an error. An answer that `exposes` data needs a Receive for its
    /// RDMA_DONE too. An answer `in_turn` has waited in line.
    ///
    /// # Errors
    /// [`Wait`]: the event to wait for.
    pub(crate) fn ask_answer(
        &mut self,
        sends: u32,
        (exposes, in_turn): (bool, bool),
        domain: &ProtectionDomain,
    ) -> Result<Offer, Wait> {
        if !in_turn && (sends > 1 || self.line.has_answers()) && self.has_to_wait(sends) {
            return Err(Wait::Line);
        }
        let others = self.others_owed().saturating_add(u32::from(exposes));
        let owed = self.served.receives_owed().saturating_add(1);
        self.reserve(owed.saturating_add(others), domain);
        let credit = match &self.messages {
            Some(messages) if messages.room() == 0 => return Err(Wait::Credits),
            Some(_) => 0,
            // The answer proves that an operation has arrived: after it the peer may send the next one.
            None => {
                let backed = self.receives.posted().checked_sub(others);
                let credit = backed.and_then(|backed| self.served.grant(backed));
                credit.ok_or(Wait::Receives(self.receives.room_for_one()))?
            }
        };
        Ok(Offer { sends, replies: 0, credit })
    }

    /// Whether an answer of so many Sends has to join the line.
    fn has_to_wait(&self, sends: u32) -> bool {
        let Some(messages) = &self.messages else { return false };
        if sends > 1 {
            return messages.room() < sends || self.line.has_answers();
        }
        // An answer passes as long as enough credits are left for the first in line, or there will never be enough for
        // that one.
        self.awaited().is_some_and(|first| messages.lasting(self.sends_out()) <= first)
    }

    /// Counts the answer, or error, to a Call of the peer that leaves.
    pub(crate) fn take_answer(&mut self, offer: Offer, charge: Charge) -> Permit {
        self.served.granted(offer.credit);
        self.finish(charge);
        if let Some(messages) = &mut self.messages {
            // The first Send is the answer; the credits of the others return on arrival.
            messages.count_returning(offer.sends.saturating_sub(1));
        }
        self.permit(offer.sends, offer.credit, true)
    }

    /// Ends a Call of the peer, with or without an answer.
    pub(crate) fn finish(&mut self, charge: Charge) {
        let Charge(()) = charge;
        self.served.finish();
    }

    /// Removes the first answer in line, if its credits are there.
    pub(crate) fn next_answer_in_line(&mut self) -> Option<u64> {
        let sends = self.line.first_answer()?;
        self.may_send(sends).then(|| self.line.pop_answer())?
    }

    // Requests: other messages.

    /// Whether so many messages may leave, with credits per message (rule I4).
    pub(crate) fn may_send(&self, messages: u32) -> bool {
        self.messages.as_ref().is_none_or(|credits| credits.room() >= messages)
    }

    /// Counts the RDMA_DONE of a Call of ours, which leaves on the Call's credit.
    pub(crate) fn done(&mut self, owed: DoneOwed) -> Permit {
        let DoneOwed(()) = owed;
        self.calls.send_done();
        self.permit(1, self.calls.requested(), false)
    }

    /// Counts an operation on characteristics, if it may leave.
    pub(crate) fn operation(&mut self, direction: Direction) -> Option<Permit> {
        if !self.may_send(1) {
            return None;
        }
        if let Some(messages) = &mut self.messages {
            messages.count_returning(1);
        }
        Some(match direction {
            Direction::Call => self.permit(1, self.calls.requested(), false),
            Direction::Reply => self.permit(1, self.served.highest(), true),
        })
    }

    /// Counts a report about a reply, which leaves on the credit of its Call, the holder of the lease (rtrext-02 §5.4).
    pub(crate) fn report(&mut self, _: &Lease) -> Permit {
        self.permit(1, self.calls.requested(), false)
    }

    /// Counts a GRANT, if one is due.
    pub(crate) fn grant(&mut self) -> Option<Permit> {
        let posted = self.receives.posted();
        let messages = self.messages.as_mut().filter(|credits| credits.grant_due(posted))?;
        let credit = messages.grant(posted);
        self.sent = self.sent.wrapping_add(1);
        Some(Permit { sends: 1, credit, grants: true })
    }

    /// Returns the permit for so many Sends, whose credits are there.
    fn permit(&mut self, sends: u32, credit: u32, grants: bool) -> Permit {
        self.sent = self.sent.wrapping_add(sends);
        match &mut self.messages {
            None => Permit { sends, credit, grants },
            Some(messages) => {
                messages.take(sends);
                Permit { sends, credit: messages.advertise(self.receives.posted()), grants: true }
            }
        }
    }

    // Received messages.

    /// Counts a message of the peer, in a version without credits per message.
    pub(crate) const fn count_received(&mut self) {
        self.received = self.received.wrapping_add(1);
    }

    /// Counts a message of the peer. `credit` is its `rdma_credit`; `None` if the header was not readable, or if the
    /// field has another meaning in the version of the message.
    ///
    /// # Errors
    /// The limit announced to the peer, if the message exceeds it.
    pub(crate) fn count_message(&mut self, is_grant: bool, credit: Option<u32>) -> Result<(), u32> {
        self.count_received();
        let Some(messages) = &mut self.messages else { return Ok(()) };
        if !messages.accept(is_grant) {
            return Err(messages.told());
        }
        if let Some(credit) = credit {
            messages.limit(credit);
        }
        Ok(())
    }

    /// Allows the refusal of a Call in another version, whose sender has a Receive for the answer.
    pub(crate) fn allow_refusal(&mut self) {
        if let Some(messages) = &mut self.messages {
            messages.allow_refusal(self.side == Side::Server);
        }
    }

    /// Counts a Call of the peer. `requested` is its credit request; `None` if its direction is only assumed (RFC 8167
    /// §4.1).
    ///
    /// # Errors
    /// The highest grant, if the Call exceeds it.
    pub(crate) fn admit(&mut self, requested: Option<u32>) -> Result<Charge, u32> {
        if let Some(requested) = requested {
            self.request(requested);
        }
        // With credits per message, the message has been admitted already.
        if self.messages.is_some() {
            self.served.count();
        } else if !self.served.accept() {
            return Err(self.served.accepted_at_once());
        }
        Ok(Charge(()))
    }

    /// Counts a transmission of an incomplete or abandoned Call of the peer.
    ///
    /// # Errors
    /// As in [`admit`](Self::admit).
    pub(crate) fn admit_part(&mut self, requested: Option<u32>) -> Result<(), u32> {
        if let Some(requested) = requested {
            self.request(requested);
        }
        if self.served.accept_part() { Ok(()) } else { Err(self.served.accepted_at_once()) }
    }

    /// Frees the credits of transmissions whose Call is complete, and has one credit, or was abandoned.
    pub(crate) fn give_back(&mut self, parts: usize) {
        self.served.give_back(narrow(parts));
    }

    fn request(&mut self, requested: u32) {
        self.served.request(self.per_call(requested));
    }

    /// Converts a credit value into Calls; credits per message do not bound them.
    const fn per_call(&self, credit: u32) -> u32 {
        if self.messages.is_some() { u32::MAX } else { credit }
    }

    /// Ends a Call of ours.
    pub(crate) fn settle(&mut self, lease: Lease, settled: Settled) {
        let Lease { number, sends, replies } = lease;
        let further = sends.saturating_sub(1);
        self.further_replies = self.further_replies.saturating_sub(replies.saturating_sub(1));
        let grouped = if self.messages.is_some() { 0 } else { further };
        self.further_sends = self.further_sends.saturating_sub(further - grouped);
        match settled {
            Settled::Answered { .. } => self.calls.release_further(grouped),
            // Some Sends may not have arrived: they keep their credits until their arrival is known.
            Settled::Refused { .. } => self.calls.leave_unproved(grouped),
        }
        self.calls.release();
        self.calls.cover(number);
        match settled {
            Settled::Answered { grant } => self.calls.grant(self.per_call(grant)),
            Settled::Refused { grant } => self.calls.grant_by_error(self.per_call(grant)),
        }
    }

    /// Records a reply that has to be read; the Call's credit is kept for the RDMA_DONE.
    pub(crate) fn owe_done(&mut self, lease: Lease, grant: u32) -> DoneOwed {
        self.calls.owe_done();
        self.calls.cover(lease.number);
        self.calls.grant(grant);
        DoneOwed(())
    }

    /// Counts an exposed reply, which may lead to an RDMA_DONE.
    pub(crate) const fn expose(&mut self) {
        self.exposed += 1;
    }

    /// Counts a reply that is no longer exposed.
    pub(crate) const fn conceal(&mut self) {
        self.exposed = self.exposed.saturating_sub(1);
    }

    /// Whether a reply is exposed.
    pub(crate) const fn exposes(&self) -> bool {
        self.exposed > 0
    }

    // Receives.

    /// Reserves the Receives that are needed now, as far as the domain has memory; returns how many are missing (rule
    /// I3). Between messages the connection keeps the memory of the Receives that the peer was granted.
    pub(crate) fn reserve_receives(&mut self, domain: &ProtectionDomain) -> u32 {
        self.receives.keep(self.served.highest(), domain);
        self.receives.decide_anew();
        self.reserve(self.receives_owed(), domain)
    }

    fn reserve(&mut self, mut owed: u32, domain: &ProtectionDomain) -> u32 {
        if let Some(messages) = &mut self.messages {
            messages.set_window(owed);
            owed = messages.receives_owed();
        }
        self.receives.reserve(owed, domain)
    }

    /// Returns a Receive to post.
    #[inline]
    pub(crate) fn next_receive(&mut self) -> Option<ReceiveMemory> {
        self.receives.next()
    }

    /// Returns the number of Receives that are needed now.
    fn receives_owed(&self) -> u32 {
        self.served.receives_owed().saturating_add(self.others_owed())
    }

    /// Returns the number of Receives that are needed now for all but Calls of the peer.
    fn others_owed(&self) -> u32 {
        self.replies_owed().saturating_add(self.exposed)
    }

    /// Returns the number of Receives for replies to our Calls and for operations, without those that Calls of the peer
    /// have used.
    fn replies_owed(&self) -> u32 {
        let awaited = self.calls.in_flight().saturating_add(self.further_replies);
        awaited.saturating_add(self.operations).saturating_sub(self.served.overdrawn())
    }

    /// Releases everything at the end of the connection.
    pub(crate) fn end(&mut self) {
        self.receives.end();
        self.line.clear();
    }

    /// Returns whether the Receives for all but Calls of the peer are there.
    pub(crate) fn backs_others(&self) -> bool {
        self.receives.posted() >= self.others_owed()
    }

    // Queries.

    /// Returns the messages of our unanswered Calls; credits per message return with the replies.
    fn sends_out(&self) -> u32 {
        self.calls.in_flight().saturating_add(self.further_sends)
    }

    /// Returns the messages reserved for answers: one for each Call of the peer, and those that the first in line waits
    /// for.
    fn left_for_answers(&self) -> u32 {
        self.served.in_progress().saturating_add(self.awaited().map_or(0, |sends| sends.saturating_sub(1)))
    }

    /// Returns the Sends of the first answer in line, unless the peer's limit can never allow them.
    fn awaited(&self) -> Option<u32> {
        let messages = self.messages.as_ref()?;
        self.line.first_answer().filter(|sends| *sends <= messages.lasting(self.sends_out()))
    }

    /// Returns the Calls that the peer accepts, including those in flight. With credits per message: the messages that
    /// may leave now, and those that return with replies.
    pub(crate) fn granted_to_us(&self) -> u32 {
        match &self.messages {
            None => self.calls.granted(),
            Some(messages) => messages.room().saturating_add(self.calls.in_flight()),
        }
    }

    /// Returns the messages that the peer may send; `None` with credits per transaction.
    pub(crate) fn messages_granted(&self) -> Option<u32> {
        self.messages.as_ref().map(MessageCredits::outstanding)
    }

    /// Whether the peer may send any message.
    pub(crate) fn peer_may_send(&self) -> bool {
        self.messages.as_ref().is_none_or(|credits| credits.outstanding() > 0)
    }

    // Proof of arrival.

    /// Returns the position in the send order of a message that leaves now.
    pub(crate) fn mark(&self) -> Mark {
        let granted = u64::from(self.served.accepted_at_once());
        Mark { calls: self.calls.sent(), allowed: self.served.finished().saturating_add(granted) }
    }

    /// Returns the peer's proof of messages that have arrived.
    pub(crate) const fn shown(&self) -> Shown {
        Shown { answered: self.calls.answered(), received: self.served.accepted() }
    }

    /// Returns the number of the peer's Calls that proves the arrival of all answers sent so far. A peer without one of
    /// these answers has one more unanswered Call, so it can make one Call less than after [`mark`](Self::mark). With
    /// credits per message, it can send no more than the announced limit.
    pub(crate) fn calls_that_prove(&self) -> u64 {
        match &self.messages {
            None => self.mark().allowed,
            Some(messages) => self.served.accepted().saturating_add(u64::from(messages.outstanding()) + 1),
        }
    }
}

#[cfg(test)]
impl Ledger {
    /// Returns the number of Receives posted and not completed.
    pub(crate) const fn receives_posted(&self) -> u32 {
        self.receives.posted()
    }
}

#[cfg(test)]
mod tests;
