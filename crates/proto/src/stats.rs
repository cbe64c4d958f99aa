//! Counters of a connection.

use std::collections::BTreeMap;
use std::fmt;

use crate::message::{Form, Travelled};
use crate::wire::{ChunkLists, ProtocolError, WriteChunk, wide};

/// Messages of one direction, by form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Messages {
    /// RDMA_MSG with everything inline.
    pub inline: u64,
    /// RDMA_MSGP with everything inline.
    pub padded: u64,
    /// RDMA_MSG with items in chunks.
    pub reduced: u64,
    /// Messages in several Sends, without items placed by Sends.
    pub continued: u64,
    /// Messages with items placed by Sends, in one Send or several (rtrext-02 §7).
    pub placed: u64,
    /// RDMA_NOMSG.
    pub long: u64,
    /// RDMA_ERROR.
    pub errors: u64,
    /// Bytes of all Sends, headers included.
    pub send_bytes: u64,
    /// Bytes moved by RDMA Read.
    pub read_bytes: u64,
    /// Bytes moved by RDMA Write into Write chunks.
    pub write_bytes: u64,
    /// Bytes moved by RDMA Write into Reply chunks.
    pub reply_chunk_bytes: u64,
}

/// Lists the number of each form, as "3 inline, 1 placed".
impl fmt::Display for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = [
            (self.inline, "inline"),
            (self.padded, "padded"),
            (self.reduced, "reduced"),
            (self.continued, "continued"),
            (self.placed, "placed"),
            (self.long, "long"),
            (self.errors, "errors"),
        ];
        let mut comma = "";
        for (count, form) in forms.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, "{comma}{count} {form}")?;
            comma = ", ";
        }
        if comma.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl Messages {
    /// Returns the number of messages, without errors.
    #[must_use]
    pub const fn count(&self) -> u64 {
        let Self { inline, padded, reduced, continued, placed, long, .. } = *self;
        inline + padded + reduced + continued + placed + long
    }

    /// Returns the bytes moved by all operations together.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.send_bytes + self.read_bytes + self.write_bytes + self.reply_chunk_bytes
    }

    /// Returns the difference from `earlier`, a previous state of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.joined(earlier, u64::saturating_sub)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.joined(other, u64::saturating_add)
    }

    fn joined(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            inline: join(self.inline, other.inline),
            padded: join(self.padded, other.padded),
            reduced: join(self.reduced, other.reduced),
            continued: join(self.continued, other.continued),
            placed: join(self.placed, other.placed),
            long: join(self.long, other.long),
            errors: join(self.errors, other.errors),
            send_bytes: join(self.send_bytes, other.send_bytes),
            read_bytes: join(self.read_bytes, other.read_bytes),
            write_bytes: join(self.write_bytes, other.write_bytes),
            reply_chunk_bytes: join(self.reply_chunk_bytes, other.reply_chunk_bytes),
        }
    }

    pub(crate) fn add(&mut self, travelled: &Travelled) {
        match travelled.form {
            Form::Inline => self.inline += 1,
            Form::Padded => self.padded += 1,
            Form::Reduced => self.reduced += 1,
            Form::Continued => self.continued += 1,
            Form::Placed => self.placed += 1,
            Form::Long => self.long += 1,
        }
        self.send_bytes += wide(travelled.sent);
        self.read_bytes += wide(travelled.read);
        self.write_bytes += wide(travelled.written);
        self.reply_chunk_bytes += wide(travelled.reply_chunk);
    }
}

/// Counters of one connection since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls sent.
    pub calls_sent: Messages,
    /// Replies received.
    pub replies_received: Messages,
    /// Calls received.
    pub calls_received: Messages,
    /// Replies sent.
    pub replies_sent: Messages,
    /// Read segments, sent or received.
    pub read_segments: u64,
    /// Write segments, sent or received.
    pub write_segments: u64,
    /// Reply chunk segments, sent or received.
    pub reply_segments: u64,
    /// Payload bytes copied by this crate.
    pub payload_bytes_copied: u64,
    /// Other message bytes copied by this crate.
    pub inline_bytes_copied: u64,
    /// Windows bound.
    pub registrations: u64,
    /// Windows that this side invalidated.
    pub local_invalidations: u64,
    /// Windows that the peer's Send with Invalidate closed.
    pub remote_invalidations: u64,
    /// Windows of the peer that our Sends invalidated.
    pub invalidations_sent: u64,
    /// RDMA_DONEs sent.
    pub dones_sent: u64,
    /// RDMA_DONEs received for exposed replies.
    pub dones_received: u64,
    /// Exposed replies whose RDMA_DONE did not arrive in time.
    pub exposures_expired: u64,
    /// Parts of messages received, except the last part of each.
    pub parts_received: u64,
    /// Calls sent again in plain messages, after the peer refused them in a transmission group.
    pub sent_plainly: u64,
    /// Replies of the peer that this side reported as wrong (rtrext-02 §5.4).
    pub reports_sent: u64,
    /// Replies of this side that the peer reported as wrong.
    pub replies_reported: u64,
    /// Sends with messages of any kind.
    pub sends: u64,
    /// Sends with several messages ([`combined`](crate::wire::two::combined)).
    pub sends_combined: u64,
    /// Messages in combined Sends.
    pub messages_combined: u64,
    /// Receives that held several messages.
    pub receives_combined: u64,
    /// GRANTs sent (version-two-07 §6.3.2).
    pub grants_sent: u64,
    /// GRANTs received.
    pub grants_received: u64,
    /// Operations on characteristics sent.
    pub operations_sent: u64,
    /// Operations on characteristics received.
    pub operations_received: u64,
    /// Operations on characteristics that the peer refused.
    pub operations_refused: u64,
    /// The grant in force for our calls. With credits per message (version-two-07 §4.2.1): the messages that may be in
    /// flight by the peer's last limit. A Call without a reply counts as in flight, since its credit returns with the
    /// reply. Without open Calls the value is the number of messages that may leave.
    pub credits_granted_to_us: u32,
    /// The last grant to the peer; with credits per message, the messages that it may send.
    pub credits_granted_to_peer: u32,
    /// Calls that had to wait for a credit, a window or memory.
    pub calls_queued: u64,
    /// Calls whose deadline passed.
    pub timeouts: u64,
    /// Messages of the peer whose chunks had to wait for memory.
    pub memory_waits: u64,
    /// The most RDMA Reads in flight at a time, as posted by this crate; a provider holds some back.
    pub reads_at_once: u64,
    /// Faults of the peer by [`ProtocolError::name`].
    pub errors: BTreeMap<&'static str, u64>,
}

impl Stats {
    pub(crate) fn fault(&mut self, error: &ProtocolError) {
        *self.errors.entry(error.name()).or_default() += 1;
    }

    pub(crate) fn count_segments(&mut self, lists: &ChunkLists) {
        let segments = |chunk: &WriteChunk| wide(chunk.segments.len());
        self.read_segments += wide(lists.read.len());
        self.write_segments += lists.write.iter().map(segments).sum::<u64>();
        self.reply_segments += lists.reply.as_ref().map_or(0, segments);
    }

    pub(crate) fn copied(&mut self, count: rpcrdma_xdr::CopyCount) {
        self.payload_bytes_copied += wide(count.payload);
        self.inline_bytes_copied += wide(count.inline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_add_up_by_kind() {
        let mut stats = Stats::default();
        for _ in 0..2 {
            stats.copied(rpcrdma_xdr::CopyCount { payload: 3, inline: 4 });
        }
        assert_eq!((stats.payload_bytes_copied, stats.inline_bytes_copied), (6, 8));
    }

    #[test]
    fn messages_add_up_by_form_and_by_path() {
        let mut messages = Messages::default();
        for form in
            [Form::Inline, Form::Padded, Form::Reduced, Form::Reduced, Form::Long, Form::Long, Form::Long]
        {
            let travelled = Travelled { form, sent: 2, read: 3, written: 5, reply_chunk: 7, segments: 1 };
            messages.add(&travelled);
        }
        assert_eq!((messages.inline, messages.reduced, messages.long, messages.errors), (1, 2, 3, 0));
        assert_eq!(messages.padded, 1);
        assert_eq!((messages.send_bytes, messages.read_bytes), (14, 21));
        assert_eq!((messages.write_bytes, messages.reply_chunk_bytes), (35, 49));
        assert_eq!((messages.count(), messages.bytes()), (7, 119));
    }

    #[test]
    fn counters_of_several_connections_add_up() {
        let mut earlier = Messages::default();
        let mut now = Messages::default();
        let forms = [Form::Inline, Form::Padded, Form::Reduced, Form::Continued, Form::Placed, Form::Long];
        for (times, form) in (1..).zip(forms) {
            let travelled = Travelled { form, sent: 2, read: 3, written: 5, reply_chunk: 7, segments: 1 };
            earlier.add(&travelled);
            (0..=times).for_each(|_| now.add(&travelled));
        }
        let between = now.since(&earlier);
        assert_eq!((between.inline, between.padded, between.reduced), (1, 2, 3));
        assert_eq!((between.continued, between.placed, between.long), (4, 5, 6));
        assert_eq!(between.plus(&earlier), now);
        assert_eq!(between.to_string(), "1 inline, 2 padded, 3 reduced, 4 continued, 5 placed, 6 long");
        assert_eq!(Messages::default().to_string(), "none");
        assert_eq!(earlier.since(&now), Messages::default());
    }
}
