//! Credits per message (version-two-07 §4.2.1): what profile P3 of Version Two has in the place of credits per transaction.
//!
//! Each side counts its Sends and its completed Receives, and says in `rdma_credit` up to which count the other may send. Every
//! message takes a credit, whichever way the RPC in it goes; a limit can be reached, and is then raised by a GRANT, which does
//! nothing else. Counts and limits go round at 2^32. This module counts only; Receives are counted in
//! [`receives`](super::receives).
//!
//! *The window* is what bounds the Calls of the peer: a Call has its message back when it is answered, like a credit per
//! transaction. What else comes has it back at once, and the reply to a Call of ours has one for itself, which leaves with the
//! Call. So what a side tells the other of goes up with the message that is the reason for it, and GRANTs are rare.
//!
//! Two sentences of §4.2.1 do not fit the rest of it, and are read so that they do:
//! - "MUST NOT post this message if the Sent message counter is *greater than* the Received credits": with the initial values 0
//!   and 1 that would let two messages go where §4.3 wants one. A message leaves if fewer than the limit have been sent.
//! - `rdma_credit` as the sum of "*Sent* message count" and Advertised credits: the other side compares it with what *it* has
//!   sent, which is what has been received here. So that count is in the sum.
//!
//! *GRANT* (§4.2.1.1). There is a Receive for one beyond those advertised, so that a side without a credit can still lift the other's
//! limit, but once until its own is raised. A GRANT is a message too: it uses up what it may cause another to give back. One is
//! due when half of the window has been used, or all of it, and not for a gain of one message, unless memory gives no more Receives
//! and the last one was no GRANT: two sides that have nothing to say would send each other GRANTs for ever.

use std::cmp::Ordering;

/// The Receive for a GRANT that comes without a credit (§4.2.1.1).
const SPARE: u32 = 1;
/// The same.
pub(crate) const SPARE_RECEIVES: usize = 1;
/// The fewest messages that a GRANT may add.
const LEAST_GAIN: u32 = 2;

/// The smallest window: half of it is two messages, the least that a GRANT is sent for.
pub(crate) const LEAST_WINDOW: u32 = 4;
/// The largest window: "credit limit values MUST be less than 2^31 - 1" (§4.2.1), which leaves as much for what is under way.
pub(crate) const MOST_WINDOW: u32 = 1 << 30;

/// Our messages against the peer's limit, and its messages against ours.
#[derive(Debug)]
pub(crate) struct MessageCredits {
    /// Messages that the peer shall be able to send without another word from us.
    window: u32,
    /// "Sent message count".
    sent: u32,
    /// "Received message count".
    received: u32,
    /// "Received credits": the count up to which we may send.
    limit: u32,
    /// The same that the peer was told last.
    told: u32,
    /// Messages sent since the peer last told a limit that it has only to receive to give them back: parts of answers, and what is
    /// neither Call nor answer.
    returning: u32,
    /// Of those sent before, the ones that the limit does not seem to count in: it was told before they had come.
    crossed: u32,
    /// The peer has said a limit; before that one message is all (§4.3).
    heard: bool,
    /// The last message that came was a GRANT.
    after_grant: bool,
}

impl MessageCredits {
    /// Of a connection that was just set up. `window`, in messages, is brought into [`LEAST_WINDOW`] to [`MOST_WINDOW`].
    pub(crate) fn new(window: u32) -> Self {
        let window = window.clamp(LEAST_WINDOW, MOST_WINDOW);
        Self {
            window,
            sent: 0,
            received: 0,
            limit: 1,
            told: 1,
            returning: 0,
            crossed: 0,
            heard: false,
            after_grant: false,
        }
    }

    /// Of a connection on which messages have passed before it was known that they are counted.
    pub(crate) fn after(sent: u32, received: u32) -> Self {
        let (limit, told) = (sent.wrapping_add(1), received.wrapping_add(1));
        Self { sent, received, limit, told, ..Self::new(LEAST_WINDOW) }
    }

    /// The window from now on, 0 to [`MOST_WINDOW`] messages: it grows with the replies that are awaited, and shrinks with the
    /// Calls that are not answered, so that these are bounded too. What was told stays told.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.window = window.min(MOST_WINDOW);
    }

    /// Messages that may be sent now.
    pub(crate) fn room(&self) -> u32 {
        if self.available() { self.limit.wrapping_sub(self.sent) } else { 0 }
    }

    /// Messages that may be sent once nothing of ours is outstanding, by the limit as it was told last; so it can become less, and it
    /// never counts on what the peer let us send before. `calls` are those that our Calls without a reply took: they come back
    /// with the replies.
    pub(crate) fn lasting(&self, calls: u32) -> u32 {
        let (free, lack) =
            if self.available() { (self.room(), 0) } else { (0, self.sent.wrapping_sub(self.limit)) };
        let returning = self.returning.saturating_add(self.crossed);
        free.saturating_add(calls).saturating_add(returning).saturating_sub(lack)
    }

    /// So many of the messages that were sent are given back as they come.
    pub(crate) const fn count_returning(&mut self, messages: u32) {
        self.returning = self.returning.saturating_add(messages);
    }

    /// Messages that the peer may send still, as far as it was told.
    pub(crate) fn outstanding(&self) -> u32 {
        match compare(self.told, self.received) {
            Ordering::Greater => self.told.wrapping_sub(self.received),
            Ordering::Equal | Ordering::Less => 0,
        }
    }

    /// The count up to which the peer may send.
    pub(crate) const fn told(&self) -> u32 {
        self.told
    }

    /// Messages that the peer shall be able to send without another word from us.
    #[cfg(test)]
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    /// Whether a message may be sent; a GRANT has [`grant_due`](Self::grant_due).
    pub(crate) fn available(&self) -> bool {
        compare(self.sent, self.limit) == Ordering::Less
    }

    /// Takes credits for so many messages, which are there.
    pub(crate) fn take(&mut self, messages: u32) {
        debug_assert!(self.room() >= messages, "{messages} of {} messages", self.room());
        self.sent = self.sent.wrapping_add(messages);
    }

    /// The peer's last message had this `rdma_credit`. It may be lower than the one before: then nothing leaves until enough has
    /// been given again.
    pub(crate) fn limit(&mut self, rdma_credit: u32) {
        let before = self.room().saturating_add(self.returning);
        self.limit = rdma_credit;
        self.heard = true;
        self.crossed = std::mem::take(&mut self.returning).min(before.saturating_sub(self.room()));
    }

    /// The value for `rdma_credit` of a message that leaves now. `posted` are the Receives that are posted: nothing is told that
    /// they do not back (rule I3). As a Receive is never withdrawn, the value never goes down.
    pub(crate) fn advertise(&mut self, posted: u32) -> u32 {
        let offer = self.offer(posted);
        if compare(offer, self.told) == Ordering::Greater {
            self.told = offer;
        }
        self.told
    }

    /// Without its Receive, a GRANT that has come leaves the offer behind what was received: the peer has to see that there is no
    /// room for another.
    fn offer(&self, posted: u32) -> u32 {
        self.received.wrapping_add(posted.min(self.window + SPARE)).wrapping_sub(SPARE)
    }

    /// Whether a GRANT should leave now, and may.
    pub(crate) fn grant_due(&self, posted: u32) -> bool {
        // Asked whenever nothing else is to be done, and nearly always answered by this: more than half of the window is left.
        if self.outstanding() > self.window / 2 {
            return false;
        }
        let offer = self.offer(posted);
        let gain =
            if compare(offer, self.told) == Ordering::Greater { offer.wrapping_sub(self.told) } else { 0 };
        let exhausted = compare(self.received, self.told) != Ordering::Less;
        // The spare Receive of the peer is free as long as all that was sent is within its limit.
        let may = self.heard && compare(self.sent, self.limit) != Ordering::Greater;
        let short = posted < self.window.saturating_add(SPARE) && !self.after_grant;
        let least = if exhausted && short { 1 } else { LEAST_GAIN };
        may && gain >= least && (exhausted || gain >= self.window.div_ceil(2))
    }

    /// Counts a GRANT that leaves now, which is due; says its `rdma_credit`.
    pub(crate) fn grant(&mut self, posted: u32) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.count_returning(1);
        self.advertise(posted)
    }

    /// A Receive has completed; `false` if the peer sent beyond its limit, where it may only send one GRANT.
    pub(crate) fn accept(&mut self, is_grant: bool) -> bool {
        let within = match compare(self.received, self.told) {
            Ordering::Less => true,
            Ordering::Equal => is_grant,
            Ordering::Greater => false,
        };
        if within {
            self.received = self.received.wrapping_add(1);
            self.after_grant = is_grant;
        }
        within
    }

    /// Receives that should be posted now: those of the window or of what was told, and the one for a GRANT.
    pub(crate) fn receives_owed(&self) -> u32 {
        self.window.max(self.outstanding()).saturating_add(SPARE)
    }
}

/// Which of two counts is ahead, where both go round: the one that is reached from the other in less than 2^31 steps.
fn compare(one: u32, other: u32) -> Ordering {
    match one.wrapping_sub(other) {
        0 => Ordering::Equal,
        steps if steps < 1 << 31 => Ordering::Greater,
        _ => Ordering::Less,
    }
}

#[cfg(test)]
mod tests;
