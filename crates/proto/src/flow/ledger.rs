//! [`Ledger`]: what may leave, what the peer may send, and the Receives for it.

use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_verbs::{ProtectionDomain, ReceiveMemory, Reserved};

use super::arrival::{Mark, Shown};
use super::line::Line;
use super::messages::MessageCredits;
use super::permit::{Charge, DoneOwed, Lease, Offer, Permit, Settled, Wait};
use super::receives::Receives;
use super::transactions::{RequesterCredits, ResponderCredits};
use crate::config::Side;
use crate::wire::Direction;

/// The size of each Receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveSize {
    /// Bytes.
    pub(crate) len: usize,
    /// Its memory begins at a multiple of this, bytes.
    pub(crate) align: usize,
}

/// The account of one connection: credits of both sides, and the Receives that back them.
///
/// Before a message leaves, its sender asks for a [`Permit`]: [`call`](Self::call), [`answer`](Self::answer), [`done`](Self::done),
/// [`operation`](Self::operation), [`report`](Self::report), [`grant`](Self::grant). Receives that a permit relies on are reserved
/// first; [`next_receive`](Self::next_receive) hands them out, to be posted before the message. What has come is counted by
/// [`count_message`](Self::count_message), [`admit`](Self::admit), and [`settle`](Self::settle).
#[derive(Debug)]
pub(crate) struct Ledger {
    side: Side,
    /// Our Calls against the peer's grant.
    calls: RequesterCredits,
    /// The peer's Calls against our grant.
    served: ResponderCredits,
    /// Credits, where they are counted per message (version-two-07 §4.2.1).
    messages: Option<MessageCredits>,
    /// Messages that need several credits of those at once.
    line: Line,
    receives: Receives,
    /// Receives beyond the first of each reply that is awaited.
    further_replies: u32,
    /// Sends beyond the first of each Call without a reply, where messages are counted.
    further_sends: u32,
    /// Receives for operations on characteristics.
    operations: u32,
    /// Replies that are exposed, for each of which an RDMA_DONE may come.
    exposed: u32,
    /// Messages sent so far.
    sent: u32,
    /// Messages that have come so far.
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

    /// Which side this is.
    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    /// From now on credits are counted per message, or per transaction.
    pub(crate) fn count_messages(&mut self, counted: bool) {
        if counted != self.messages.is_some() {
            self.messages = counted.then(|| MessageCredits::after(self.sent, self.received));
        }
    }

    /// Keeps so many Receives for operations on characteristics.
    pub(crate) const fn keep_for_operations(&mut self, receives: u32) {
        self.operations = receives;
    }

    // Asking: Calls of ours.

    /// Whether a Call may leave at all (rule I4).
    ///
    /// # Errors
    /// [`Wait`], for what.
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

    /// Sends that the next Call may take. With `falls_back` the Call has another way: it gets its share of the credits that are
    /// there, `waiting` Calls wanting some. Without, it may wait for as many as there will be.
    pub(crate) fn sends_for_call(&self, falls_back: bool, waiting: usize) -> u32 {
        match &self.messages {
            None if falls_back => {
                let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
                let wanting = self.calls.in_flight().saturating_add(waiting).max(1);
                self.calls.room().min((self.calls.granted() / wanting).max(1))
            }
            None => self.calls.granted(),
            Some(messages) if falls_back => messages.room().saturating_sub(self.left_for_answers()),
            Some(messages) => messages.lasting(self.sends_out()).saturating_sub(self.served.in_progress()),
        }
    }

    /// Whether the receive queue has room for a reply in several Sends: for one at a time.
    pub(crate) const fn has_room_for_long_reply(&self) -> bool {
        self.further_replies == 0
    }

    /// Asks for a Call of so many Sends, whose reply takes up to `replies` Receives. What `falls_back` has another way.
    ///
    /// # Errors
    /// [`Wait`], for what.
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
            return Err(Wait::Receives(self.receive_room()));
        }
        Ok(Offer { sends, replies, credit: self.calls.requested() })
    }

    /// The Call leaves.
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

    /// The Call that stands first in line is next if its credits are there, or never will be; returns whether other Calls may leave.
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

    /// Until when the first answer in line waits.
    pub(crate) fn line_deadline(&self) -> Option<Instant> {
        self.line.deadline()
    }

    /// The one queue of those that wait for several credits at once.
    pub(crate) const fn line(&self) -> &Line {
        &self.line
    }

    /// The same queue, to be changed.
    pub(crate) const fn line_mut(&mut self) -> &mut Line {
        &mut self.line
    }

    // Asking: answers to Calls of the peer.

    /// Sends that the next answer may take. An answer that is not `in_turn` may wait for as many as there will be.
    pub(crate) fn sends_for_answer(&self, in_turn: bool) -> u32 {
        match &self.messages {
            None => 1,
            Some(messages) if in_turn => messages.room(),
            Some(messages) => messages.lasting(self.sends_out()),
        }
    }

    /// Asks for an answer of so many Sends, or an error. What `exposes` data needs a Receive for its RDMA_DONE too. An answer that is
    /// `in_turn` has stood in line.
    ///
    /// # Errors
    /// [`Wait`], for what.
    pub(crate) fn ask_answer(
        &mut self,
        sends: u32,
        (exposes, in_turn): (bool, bool),
        domain: &ProtectionDomain,
    ) -> Result<Offer, Wait> {
        if !in_turn && (sends > 1 || self.line.has_answers()) && self.has_to_wait(sends) {
            return Err(Wait::Line);
        }
        let others = self.replies_owed().saturating_add(u32::from(exposes));
        let owed = self.served.receives_owed().saturating_add(self.exposed).saturating_add(1);
        self.reserve(owed.saturating_add(others), domain);
        let credit = match &self.messages {
            Some(messages) if messages.room() == 0 => return Err(Wait::Credits),
            Some(_) => 0,
            None => {
                let backed = self.receives.beyond(others.saturating_add(self.exposed));
                self.served.grant(backed).ok_or(Wait::Receives(self.receive_room()))?
            }
        };
        Ok(Offer { sends, replies: 0, credit })
    }

    /// Whether an answer of so many Sends stands in line.
    fn has_to_wait(&self, sends: u32) -> bool {
        let Some(messages) = &self.messages else { return false };
        if sends > 1 {
            return messages.room() < sends || self.line.has_answers();
        }
        // It passes as long as enough is left for the first in line, or there will never be enough for that.
        self.awaited().is_some_and(|first| messages.lasting(self.sends_out()) <= first)
    }

    /// The answer, or error, to this Call of the peer leaves.
    pub(crate) fn take_answer(&mut self, offer: Offer, charge: Charge) -> Permit {
        self.served.granted(offer.credit);
        self.finish(charge);
        if let Some(messages) = &mut self.messages {
            // The first of them answers; the others come back as they arrive.
            messages.count_returning(offer.sends.saturating_sub(1));
        }
        self.permit(offer.sends, offer.credit, true)
    }

    /// A Call of the peer is over: by its answer, or without one.
    pub(crate) fn finish(&mut self, charge: Charge) {
        let Charge(()) = charge;
        self.served.finish();
    }

    /// The answer that stands first in line is next, if its credits are there.
    pub(crate) fn next_answer_in_line(&mut self) -> Option<u64> {
        let sends = self.line.first_answer()?;
        self.may_send(sends).then(|| self.line.pop_answer())?
    }

    // Asking: everything else.

    /// Whether so many messages may leave, where they are counted (rule I4).
    pub(crate) fn may_send(&self, messages: u32) -> bool {
        self.messages.as_ref().is_none_or(|credits| credits.room() >= messages)
    }

    /// The RDMA_DONE that a Call of ours owes leaves, on the credit of that.
    pub(crate) fn done(&mut self, owed: DoneOwed) -> Permit {
        let DoneOwed(()) = owed;
        self.calls.send_done();
        self.permit(1, self.calls.requested(), false)
    }

    /// An operation on characteristics leaves, if it may.
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

    /// A report about a reply leaves, on the credit of its Call, which this lease is of (rtrext-02 §5.4).
    pub(crate) fn report(&mut self, _: &Lease) -> Permit {
        self.permit(1, self.calls.requested(), false)
    }

    /// A GRANT leaves, if one is due.
    pub(crate) fn grant(&mut self) -> Option<Permit> {
        let posted = self.receives.posted();
        let messages = self.messages.as_mut().filter(|credits| credits.grant_due(posted))?;
        let credit = messages.grant(posted);
        self.sent = self.sent.wrapping_add(1);
        Some(Permit { sends: 1, credit, grants: true })
    }

    /// The right to so many Sends, for which there are credits.
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

    // What has come.

    /// Counts a message of the peer, whatever is in it. `credit` is its `rdma_credit`, if that is known to be in the version that is
    /// spoken: `None` if nothing was to be read, `Some(None)` in another version.
    ///
    /// # Errors
    /// The limit that the peer was told, if it has sent beyond that.
    pub(crate) fn count_message(&mut self, is_grant: bool, credit: Option<Option<u32>>) -> Result<(), u32> {
        self.received = self.received.wrapping_add(1);
        let Some(messages) = &mut self.messages else { return Ok(()) };
        if !messages.accept(is_grant) {
            return Err(messages.told());
        }
        match credit {
            Some(Some(credit)) => messages.limit(credit),
            // In another version the word counts something else. But who asks in it has a Receive for the answer; only a client does.
            Some(None) if self.side == Side::Server && messages.room() == 0 => {
                messages.limit(self.sent.wrapping_add(1));
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts a Call of the peer, which asks for so many credits if that is known (RFC 8167 §4.1: not if its direction is only
    /// assumed).
    ///
    /// # Errors
    /// The highest grant, if the peer went beyond that.
    pub(crate) fn admit(&mut self, requested: Option<u32>) -> Result<Charge, u32> {
        if let Some(requested) = requested {
            self.request(requested);
        }
        // What is counted per message was admitted as such.
        if self.messages.is_some() {
            self.served.count();
        } else if !self.served.accept() {
            return Err(self.served.highest());
        }
        Ok(Charge(()))
    }

    /// Counts a transmission of a Call of the peer that is not complete, or was given up.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) fn admit_part(&mut self, requested: Option<u32>) -> Result<(), u32> {
        if let Some(requested) = requested {
            self.request(requested);
        }
        if self.served.accept_part() { Ok(()) } else { Err(self.served.highest()) }
    }

    /// So many transmissions need no credit any more: their Call has one for all of them, or was given up.
    pub(crate) fn give_back(&mut self, parts: usize) {
        self.served.give_back(u32::try_from(parts).unwrap_or(u32::MAX));
    }

    fn request(&mut self, requested: u32) {
        self.served.request(self.per_call(requested));
    }

    /// What a credit value means for Calls: where messages are counted, these are not bounded by it.
    const fn per_call(&self, credit: u32) -> u32 {
        if self.messages.is_some() { u32::MAX } else { credit }
    }

    /// A Call of ours is over.
    pub(crate) fn settle(&mut self, lease: Lease, settled: Settled) {
        let Lease { number, sends, replies } = lease;
        let further = sends.saturating_sub(1);
        self.further_replies = self.further_replies.saturating_sub(replies.saturating_sub(1));
        let grouped = if self.messages.is_some() { 0 } else { further };
        self.further_sends = self.further_sends.saturating_sub(further - grouped);
        match settled {
            Settled::Answered { .. } => self.calls.release_further(grouped),
            // Some may not have arrived: they keep their credits until they are known to have.
            Settled::Refused { .. } => self.calls.leave_unproved(grouped),
        }
        self.calls.release();
        self.calls.cover(number);
        match settled {
            Settled::Answered { grant } => self.calls.grant(self.per_call(grant)),
            Settled::Refused { grant } => self.calls.grant_by_error(self.per_call(grant)),
        }
    }

    /// A Call of ours has a reply that has to be read; its credit is kept for the RDMA_DONE.
    pub(crate) fn owe_done(&mut self, lease: Lease, grant: u32) -> DoneOwed {
        self.calls.owe_done();
        self.calls.cover(lease.number);
        self.calls.grant(grant);
        DoneOwed(())
    }

    /// A reply is exposed: an RDMA_DONE may come for it.
    pub(crate) const fn expose(&mut self) {
        self.exposed += 1;
    }

    /// A reply is not exposed any more.
    pub(crate) const fn conceal(&mut self) {
        self.exposed = self.exposed.saturating_sub(1);
    }

    // Receives.

    /// Takes the share of the domain that is to be the connection's own, and room in it for Receives.
    pub(crate) fn provide(&mut self, share: ProtectionDomain, receives: Vec<Reserved>) {
        self.receives.provide(share, receives);
    }

    /// Reserves the Receives that are needed now, as far as the domain has room; returns how many are missing (rule I3). From one
    /// message to the next the room of those that the peer was granted stays with the connection.
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

    /// A Receive to be posted.
    #[inline]
    pub(crate) fn next_receive(&mut self) -> Option<ReceiveMemory> {
        self.receives.next()
    }

    /// Receives that are needed now.
    fn receives_owed(&self) -> u32 {
        let own = self.served.receives_owed().saturating_add(self.exposed);
        own.saturating_add(self.replies_owed())
    }

    /// Receives for replies to Calls of ours, and for operations; less those that Calls of the peer have used of them.
    fn replies_owed(&self) -> u32 {
        let awaited = self.calls.in_flight().saturating_add(self.further_replies);
        awaited.saturating_add(self.operations).saturating_sub(self.served.overdrawn())
    }

    /// Room that one more Receive takes of the domain, bytes.
    pub(crate) fn receive_room(&self) -> usize {
        self.receives.room_for_one()
    }

    /// Ready when there is room for a Receive that is missing.
    pub(crate) fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.receives.poll_room(cx)
    }

    /// Bytes that each Receive holds from now on.
    pub(crate) const fn receive_len(&self) -> usize {
        self.receives.len()
    }

    /// Receives that are reserved from now on hold so many bytes, for the peer's messages are that long at most.
    pub(crate) const fn set_receive_len(&mut self, len: usize) {
        self.receives.set_len(len);
    }

    /// Receives that are reserved from now on have another size; smaller ones are posted still.
    pub(crate) fn resize_receives(&mut self, len: usize) {
        self.receives.resize(len);
    }

    /// The smallest Receive that was posted before the last resize, if one is left.
    pub(crate) fn least_earlier_receive(&self) -> Option<usize> {
        self.receives.least_earlier()
    }

    /// The oldest Receive has completed.
    pub(crate) fn receive_completed(&mut self) {
        self.receives.complete();
    }

    /// The connection is over.
    pub(crate) fn end(&mut self) {
        self.receives.end();
        self.line.clear();
    }

    // Looking.

    /// Messages of Calls of ours without a reply: they come back with it, where messages are counted.
    fn sends_out(&self) -> u32 {
        self.calls.in_flight().saturating_add(self.further_sends)
    }

    /// Messages that are left for answers to Calls of the peer: one for each, and those that the first in line waits for.
    fn left_for_answers(&self) -> u32 {
        self.served.in_progress().saturating_add(self.awaited().map_or(0, |sends| sends.saturating_sub(1)))
    }

    /// Sends of the first answer in line, as long as the peer's limit has room for them.
    fn awaited(&self) -> Option<u32> {
        let messages = self.messages.as_ref()?;
        self.line.first_answer().filter(|sends| *sends <= messages.lasting(self.sends_out()))
    }

    /// Calls of the peer in progress.
    pub(crate) const fn served_in_progress(&self) -> u32 {
        self.served.in_progress()
    }

    /// Whether a Call may take no credit now.
    pub(crate) fn has_credit(&self) -> bool {
        self.calls.available()
    }

    /// The grant that the peer shall have.
    pub(crate) const fn wanted(&self) -> u32 {
        self.served.wanted()
    }

    /// Calls of the peer that have come.
    pub(crate) const fn calls_received(&self) -> u64 {
        self.served.accepted()
    }

    /// Whether an answer to the peer has left.
    pub(crate) fn has_answered(&self) -> bool {
        self.served.finished() > 0
    }

    /// What the peer takes of Calls, those in flight included; of messages, what may be sent now, and what comes back with replies.
    pub(crate) fn granted_to_us(&self) -> u32 {
        match &self.messages {
            None => self.calls.granted(),
            Some(messages) => messages.room().saturating_add(self.calls.in_flight()),
        }
    }

    /// What the peer may send, of messages; `None` where Calls are counted.
    pub(crate) fn messages_granted(&self) -> Option<u32> {
        self.messages.as_ref().map(MessageCredits::outstanding)
    }

    /// Whether the peer may send anything.
    pub(crate) fn peer_may_send(&self) -> bool {
        self.messages.as_ref().is_none_or(|credits| credits.outstanding() > 0)
    }

    /// Calls of ours that are in flight, and how many may be.
    pub(crate) fn in_flight(&self) -> (u32, u32) {
        (self.calls.in_flight(), self.calls.granted())
    }

    // What has arrived.

    /// The place of a message that leaves now.
    pub(crate) fn mark(&self) -> Mark {
        let granted = u64::from(self.served.highest());
        Mark { calls: self.calls.sent(), allowed: self.served.finished().saturating_add(granted) }
    }

    /// What the peer has shown of our messages that it has.
    pub(crate) const fn shown(&self) -> Shown {
        Shown { answered: self.calls.answered(), received: self.served.accepted() }
    }

    /// When so many Calls of the peer have come, it has all answers that have left up to now. A peer that misses an answer has one
    /// more Call without an answer, so it can make one Call less than after [`mark`](Self::mark). Where messages are counted, it can send
    /// no more of them than it was told.
    pub(crate) fn calls_that_prove(&self) -> u64 {
        match &self.messages {
            None => self.mark().allowed,
            Some(messages) => self.served.accepted().saturating_add(u64::from(messages.outstanding()) + 1),
        }
    }
}

#[cfg(test)]
impl Ledger {
    /// Receives posted and not completed.
    pub(crate) const fn receives_posted(&self) -> u32 {
        self.receives.posted()
    }
}

#[cfg(test)]
mod tests;
