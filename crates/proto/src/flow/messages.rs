//! Credits per message (version-two-07 §4.2.1), which profile P3 of Version Two uses in place of credits per
//! transaction.
//!
//! Each side counts its Sends and its completed Receives. In `rdma_credit` it announces the count up to which the other
//! side may send. Every message of either direction uses a credit. A side that has reached its limit waits for a GRANT,
//! which only raises that limit. Counts and limits wrap at 2^32. This module only counts messages;
//! [`receives`](super::receives) counts Receives.
//!
//! *The window* bounds the Calls of the peer: a Call returns its credit when it is answered, like a credit per
//! transaction. Other messages return their credit at once. The reply to a Call of ours has its own credit, which
//! leaves with the Call. The messages that change a limit therefore announce it too, and GRANTs are rare.
//!
//! Two sentences of §4.2.1 contradict the rest of it, and are read as follows:
//! - "MUST NOT post this message if the Sent message counter is *greater than* the Received credits": with the initial
//!   values 0 and 1 that would allow two messages where §4.3 allows one. Here a message leaves if the count of sent
//!   messages is below the limit.
//! - `rdma_credit` as the sum of "*Sent* message count" and Advertised credits: the other side compares the value with
//!   its own Sends, which are the messages received here. Here the sum uses the received count.
//!
//! *GRANT* (§4.2.1.1). A spare Receive beyond the advertised ones takes a GRANT. A side without a credit can thus still
//! raise the other's limit, but only once until its own is raised. A GRANT is a message too, and may cause a GRANT in
//! return. Two idle sides could thus exchange GRANTs for ever. A GRANT is therefore due only when half of the window
//! has been used, or all of it. The GRANT has to add at least two messages. A gain of one message suffices if memory allows
//! no more Receives, and the last message received was no GRANT.

use std::cmp::Ordering;

use crate::settings::config::SPARE_RECEIVES;

/// The fewest messages that a GRANT adds.
const LEAST_GAIN: u32 = 2;

/// The smallest window: half of it is two messages, the least gain of a GRANT.
pub(crate) const LEAST_WINDOW: u32 = 4;
/// The largest window: "credit limit values MUST be less than 2^31 - 1" (§4.2.1), which leaves as much for messages in
/// flight.
pub(crate) const MOST_WINDOW: u32 = 1 << 30;

/// Credits of our messages within the peer's limit, and of its messages within ours.
#[derive(Debug)]
pub(crate) struct MessageCredits {
    /// Messages that the peer shall be able to send without another announcement.
    window: u32,
    /// "Sent message count".
    sent: u32,
    /// "Received message count".
    received: u32,
    /// "Received credits": the count up to which we may send.
    limit: u32,
    /// The limit in our last announcement to the peer.
    told: u32,
    /// Messages sent since the peer's last announcement that return their credit on arrival: all except Calls and the
    /// first Send of each answer.
    returning: u32,
    /// Of the messages sent earlier, those that the limit seems not to include: the peer announced it before they
    /// arrived.
    crossed: u32,
    /// The peer has announced a limit; until then only one message may leave (§4.3).
    heard: bool,
    /// The last message received was a GRANT.
    after_grant: bool,
}

impl MessageCredits {
    /// Returns the credits of a new connection. `window`, in messages, is clamped to
    /// [`LEAST_WINDOW`]..=[`MOST_WINDOW`].
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

    /// Returns the credits of a connection on which messages passed before both sides began to count them. Of those
    /// that we sent, `awaited` Calls have no reply yet.
    pub(crate) fn after(sent: u32, received: u32, awaited: u32) -> Self {
        let (limit, told) = (sent.wrapping_add(1), received.wrapping_add(1).wrapping_add(awaited));
        Self { sent, received, limit, told, ..Self::new(LEAST_WINDOW) }
    }

    /// Sets the window, 0 to [`MOST_WINDOW`] messages. It grows with the awaited replies, and shrinks with unanswered
    /// Calls, so that these are bounded too. An announced limit is never withdrawn.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.window = window.min(MOST_WINDOW);
    }

    /// Returns the messages that may be sent now.
    pub(crate) fn room(&self) -> u32 {
        if self.available() { self.limit.wrapping_sub(self.sent) } else { 0 }
    }

    /// Returns the messages that may be sent once none of ours is outstanding, by the last announced limit. The value
    /// can shrink, and never relies on earlier limits. `calls` are the messages of our unanswered Calls, whose credits
    /// return with the replies.
    pub(crate) fn lasting(&self, calls: u32) -> u32 {
        let (free, lack) =
            if self.available() { (self.room(), 0) } else { (0, self.sent.wrapping_sub(self.limit)) };
        let returning = self.returning.saturating_add(self.crossed);
        free.saturating_add(calls).saturating_add(returning).saturating_sub(lack)
    }

    /// Counts messages sent that return their credit on arrival.
    pub(crate) const fn count_returning(&mut self, messages: u32) {
        self.returning = self.returning.saturating_add(messages);
    }

    /// Returns the messages that the peer may still send by our last announcement.
    pub(crate) fn outstanding(&self) -> u32 {
        match compare(self.told, self.received) {
            Ordering::Greater => self.told.wrapping_sub(self.received),
            Ordering::Equal | Ordering::Less => 0,
        }
    }

    /// Returns the count up to which the peer may send.
    pub(crate) const fn told(&self) -> u32 {
        self.told
    }

    /// Returns the messages that the peer shall be able to send without another announcement.
    #[cfg(test)]
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    /// Whether a message may be sent; for a GRANT, see [`grant_due`](Self::grant_due).
    pub(crate) fn available(&self) -> bool {
        compare(self.sent, self.limit) == Ordering::Less
    }

    /// Uses credits for messages; they must be available.
    pub(crate) fn take(&mut self, messages: u32) {
        debug_assert!(self.room() >= messages, "{messages} of {} messages", self.room());
        self.sent = self.sent.wrapping_add(messages);
    }

    /// Sets the limit from the `rdma_credit` of the peer's last message. The limit may be lower than the previous one;
    /// then nothing leaves until the peer raises it enough.
    pub(crate) fn limit(&mut self, rdma_credit: u32) {
        let before = self.room().saturating_add(self.returning);
        self.limit = rdma_credit;
        self.heard = true;
        self.crossed = std::mem::take(&mut self.returning).min(before.saturating_sub(self.room()));
    }

    /// Allows the refusal of a Call in another version, for which the peer has a Receive. Before the first limit, the
    /// credit for a message of ours is kept (§4.3). A client that knows a limit gets no such Calls.
    pub(crate) fn allow_refusal(&mut self, is_server: bool) {
        if !self.heard {
            self.limit = self.limit.wrapping_add(1);
        } else if is_server && self.room() == 0 {
            self.limit(self.sent.wrapping_add(1));
        }
    }

    /// Returns the `rdma_credit` of a message that leaves now. `posted` is the number of posted Receives, which back
    /// the whole announcement (rule I3). As a Receive is never withdrawn, the value never decreases.
    pub(crate) fn advertise(&mut self, posted: u32) -> u32 {
        let offer = self.offer(posted);
        if compare(offer, self.told) == Ordering::Greater {
            self.told = offer;
        }
        self.told
    }

    /// Returns the limit that `posted` Receives back. After a GRANT has used the spare Receive, the limit is below the
    /// received count. The peer thus learns that no Receive is left for another GRANT.
    fn offer(&self, posted: u32) -> u32 {
        self.received.wrapping_add(posted.min(self.window + SPARE_RECEIVES)).wrapping_sub(SPARE_RECEIVES)
    }

    /// Whether a GRANT should leave now, and may.
    pub(crate) fn grant_due(&self, posted: u32) -> bool {
        // This frequent call nearly always ends here: more than half of the window is left.
        if self.outstanding() > self.window / 2 {
            return false;
        }
        let offer = self.offer(posted);
        let gain =
            if compare(offer, self.told) == Ordering::Greater { offer.wrapping_sub(self.told) } else { 0 };
        let exhausted = compare(self.received, self.told) != Ordering::Less;
        // The peer's spare Receive is free as long as all our messages are within its limit.
        let may = self.heard && compare(self.sent, self.limit) != Ordering::Greater;
        let short = posted < self.window.saturating_add(SPARE_RECEIVES) && !self.after_grant;
        let least = if exhausted && short { 1 } else { LEAST_GAIN };
        may && gain >= least && (exhausted || gain >= self.window.div_ceil(2))
    }

    /// Counts a GRANT that is due and leaves now; returns its `rdma_credit`.
    pub(crate) fn grant(&mut self, posted: u32) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.count_returning(1);
        self.advertise(posted)
    }

    /// Counts a completed Receive; `false` if the peer exceeded its limit, beyond which it may send only one GRANT.
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

    /// Returns the number of Receives to have posted: those of the window or of the announced limit, and one for a
    /// GRANT.
    pub(crate) fn receives_owed(&self) -> u32 {
        self.window.max(self.outstanding()).saturating_add(SPARE_RECEIVES)
    }
}

/// Compares two counts that wrap: the greater one is less than 2^31 steps ahead.
fn compare(one: u32, other: u32) -> Ordering {
    match one.wrapping_sub(other) {
        0 => Ordering::Equal,
        steps if steps < 1 << 31 => Ordering::Greater,
        _ => Ordering::Less,
    }
}

#[cfg(test)]
mod tests;
