//! Messages of ours in Version Two: divided among several Sends, or combined in one. [`Sending`] is the state for that.
//!
//! Waiting messages own their headers, and share their payloads. *Errors*: when the connection ends, waiting messages
//! are lost, like those in the send queue.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::BytesMut;
use rpcrdma_verbs::Key;
use rpcrdma_xdr::{Piece, Stream};

use super::arrange::{Arrangement, Targets};
use super::combine::{BETWEEN, Combine, Room, Waiting};
use super::plan::{CallGroups, CallOptions, ReplyGroups, ReplyOptions};
use super::requests::SentGroup;
use super::settings::ReplyPlacement;
use crate::core::Core;
use crate::flow::Permit;
use crate::ids::IdMap;
use crate::peer::ReverseSupport;
use crate::settings::config::{Config, Side};
use crate::two::groups::{CallGroup, takes_groups};
use crate::wire::two::combined::aligned;
use crate::wire::two::transmission::ErrorReport;
use crate::wire::two::{Fragment, operation_len};
use crate::wire::{Body, Direction, Header, narrow, sized, two, wide};

/// The most replies in transmission groups that a report can still name.
const IN_GROUPS: usize = 1024;

/// The peer's properties of transmission groups (rtrext-02 §8).
#[derive(Debug)]
pub(crate) struct PeerGroups {
    /// The peer accepts Calls in groups, unless it has refused one.
    pub(crate) takes_calls: bool,
    /// The peer places items of its replies by Sends, where the Call directs that (§5.3).
    pub(crate) places: bool,
    /// Sends of the longest Call that the peer accepts.
    pub(crate) requests: usize,
    /// Sends of the longest reply that the peer makes.
    pub(crate) responses: usize,
    /// Segments of the peer's Receives in which items can be placed.
    pub(crate) targets: Option<Targets>,
}

/// The state for messages of ours in Version Two.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Messages that wait to leave together.
    pub(crate) combine: Combine,
    /// The peer's properties of transmission groups, if this side uses groups.
    pub(crate) peer_groups: Option<PeerGroups>,
    /// The peer has refused a Call in a group as not supported, against its announcement.
    pub(crate) refuses_groups: bool,
    /// Segments of our Receives in which items can be placed.
    pub(crate) targets: Option<Targets>,
    /// The end of the wait for the peer's announcement, for a Call that the peer may then accept.
    pub(crate) untold: Option<Instant>,
    /// Consecutive Calls in groups that the peer has reported.
    pub(crate) reported: u32,
    /// Reports to the peer about its replies.
    pub(crate) reports: VecDeque<(u32, ErrorReport)>,
    /// Calls of ours that have left in transmission groups, until they end; and those whose reply was reported.
    pub(crate) groups: IdMap<u32, SentGroup>,
    /// XIDs of the last replies that left in transmission groups. A report about any other reply is invalid.
    in_groups: VecDeque<u32>,
}

impl Sending {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            combine: Combine::default(),
            peer_groups: None,
            refuses_groups: false,
            targets: config.structure().and_then(Targets::of),
            untold: None,
            reported: 0,
            reports: VecDeque::new(),
            groups: IdMap::default(),
            in_groups: VecDeque::new(),
        }
    }

    /// Discards the messages that wait to be combined.
    pub(crate) fn discard(&mut self) {
        self.combine.take();
    }
}

impl Core {
    /// Whether messages wait to be combined.
    pub(crate) fn holds_messages(&self) -> bool {
        self.sending.as_ref().is_some_and(|sending| !sending.combine.is_empty())
    }

    /// Whether a combined Send has left.
    pub(crate) fn has_combined(&self) -> bool {
        self.sending.as_ref().is_some_and(|sending| sending.combine.used)
    }

    /// Returns the end of the wait for the peer's announcement.
    pub(crate) fn untold(&self) -> Option<Instant> {
        self.sending.as_ref().and_then(|sending| sending.untold)
    }

    /// Sets or ends the wait for the peer's announcement.
    pub(crate) fn set_untold(&mut self, until: Option<Instant>) {
        if let Some(sending) = &mut self.sending {
            sending.untold = until;
        }
    }

    /// Records a reply that leaves in a transmission group.
    fn left_in_group(&mut self, xid: u32) {
        let Some(sending) = &mut self.sending else { return };
        sending.in_groups.push_back(xid);
        if sending.in_groups.len() > IN_GROUPS {
            sending.in_groups.pop_front();
        }
    }

    /// Whether a report may name this reply: it left in a group, and has not been reported yet.
    pub(crate) fn may_be_reported(&mut self, xid: u32) -> bool {
        let Some(sending) = &mut self.sending else { return false };
        let place = sending.in_groups.iter().position(|left| *left == xid);
        place.is_some_and(|place| sending.in_groups.remove(place).is_some())
    }

    /// Returns the options for the Call of this XID, one of `queued`, in Version Two. A Call that can use chunks does not
    /// wait for credits or Receives for several Sends.
    pub(crate) fn call_options(&self, xid: u32, queued: usize) -> Option<CallOptions<'_>> {
        self.sending.as_ref()?;
        let falls_back = self.uses_chunks();
        let sends = self.ledger.sends_for_call(falls_back, queued);
        let continues = self.side() == Side::Client || self.peer.reverse >= Some(ReverseSupport::Continued);
        Some(CallOptions {
            continued: if continues { self.continued_parts(sends) } else { 1 },
            continued_reply: if continues { self.continued_reply_parts() } else { 1 },
            continued_reply_len: self.config.limits.continued_len,
            // Not if the peer has refused the Call in a group.
            groups: if self.in_group(xid) { None } else { self.call_groups(sends, falls_back) },
        })
    }

    /// Returns the options for the answer to a Call, which came in this group, in Version Two. An answer waits once for
    /// credits that will come; then it is `in_turn`.
    pub(crate) fn reply_options<'a>(
        &'a self,
        group: Option<&'a CallGroup>,
        in_turn: bool,
    ) -> Option<ReplyOptions<'a>> {
        self.sending.as_ref()?;
        Some(ReplyOptions {
            continued: self.continued_parts(self.ledger.sends_for_answer(in_turn)),
            groups: group.map(|group| self.reply_groups(group)),
        })
    }

    /// Whether a message of ours may be divided among several Sends. A reply may leave in a group if its Call came in one,
    /// even if the peer has announced nothing.
    fn divides(&self) -> bool {
        (self.continues() || takes_groups(self)) && self.config.continued_parts > 1
    }

    /// Returns the Sends that a message of ours may use, if messages can be continued, within `credits`.
    fn continued_parts(&self, credits: u32) -> usize {
        if !self.continues() {
            return 1;
        }
        self.config.continued_parts.min(sized(credits)).max(1)
    }

    /// Returns the most Sends of a reply to a Call of ours. As many Receives are posted before the Call leaves, so the
    /// peer has the credits.
    fn continued_reply_parts(&self) -> usize {
        if self.continues() { self.config.continued_parts.min(self.config.limits.continued_parts) } else { 1 }
    }

    /// Whether messages of ours may be continued.
    fn continues(&self) -> bool {
        self.codec.rules().two.is_some_and(|two| two.part_header.is_some()) && self.config.continued_parts > 1
    }

    /// Sends a GRANT, if one is due.
    pub(crate) fn grant(&mut self) -> bool {
        let Some(permit) = self.ledger.grant() else { return false };
        let header = self.header(Direction::Call, 0, &permit, Body::Two(two::Body::Grant));
        self.send(permit, &header, &Stream::new(), None, true);
        self.stats.grants_sent += 1;
        true
    }

    /// Returns the options of transmission groups for a Call that leaves now. The receive queue can hold one reply in
    /// several Sends. A Call that `falls_back` to chunks is not spread over many Sends.
    fn call_groups(&self, sends: u32, falls_back: bool) -> Option<CallGroups<'_>> {
        let sending = self.sending.as_ref()?;
        let peer = sending.peer_groups.as_ref().filter(|peer| peer.takes_calls && !sending.refuses_groups)?;
        let settings = &self.config.transmissions;
        let most = self.config.continued_parts.max(1);
        let own = if settings.calls.continuation { most } else { 1 };
        let (replies, spread_up_to) =
            if falls_back { (settings.reply_sends, settings.spread_up_to) } else { (usize::MAX, usize::MAX) };
        let long_reply = !falls_back || self.ledger.has_room_for_long_reply();
        let awaited = if settings.continued_replies && long_reply { most.min(replies) } else { 1 };
        let awaited = awaited.min(self.config.limits.continued_parts).min(peer.responses).max(1);
        let asks = peer.places && settings.asked != ReplyPlacement::Explicit;
        Some(CallGroups {
            sends: own.min(peer.requests).min(sized(sends)).max(1),
            reply_sends: awaited,
            theirs: peer.targets.as_ref().filter(|_| settings.calls.placement),
            ours: sending.targets.as_ref().filter(|_| asks),
            // A peer that limits such replies only by their Sends follows directions too.
            directs: peer.places || peer.responses > 1,
            asked: settings.asked,
            place_from: settings.place_from,
            spread_up_to,
            reply_len: self.config.limits.continued_len,
        })
    }

    /// Returns the options of transmission groups for the reply to a Call in a group.
    fn reply_groups<'a>(&'a self, asked: &'a CallGroup) -> ReplyGroups<'a> {
        let peer = self.sending.as_ref().and_then(|sending| sending.peer_groups.as_ref());
        let buffers = sized(asked.buffers);
        let settings = self.config.transmissions.replies;
        ReplyGroups {
            sends: if settings.continuation { self.config.continued_parts.min(buffers).max(1) } else { 1 },
            places: settings.placement,
            directions: &asked.directions,
            theirs: peer.and_then(|peer| peer.targets.as_ref()),
        }
    }

    /// Sends a divided message, one Send after the other; returns the length of all Sends, bytes. `header` is the
    /// header of the message.
    pub(crate) fn send_arranged(
        &mut self,
        mut permit: Permit,
        header: &Header,
        arrangement: &mut Arrangement,
        payload: &Stream,
        invalidate: Option<Key>,
    ) -> usize {
        if let (Some(directions), Some(sending)) = (arrangement.directions.take(), &mut self.sending) {
            sending.groups.insert(header.xid, SentGroup::new(directions));
        }
        if let (Some(Direction::Reply), Body::Two(two::Body::Transmission(_))) =
            (header.direction, &header.body)
        {
            self.left_in_group(header.xid);
        }
        let last = arrangement.sends.len().saturating_sub(1);
        let two = self.codec.rules().two;
        let mut remaining = payload.len();
        let mut sent = 0;
        let sends = arrangement.sends.iter().zip(arrangement.split(payload)).enumerate();
        for (number, (send, mut behind)) in sends {
            remaining = remaining.saturating_sub(send.payload);
            let fragment =
                Fragment { number: narrow(number), len: narrow(send.payload), remaining: narrow(remaining) };
            let Header { xid, version, credit, direction, invalidate: named, .. } = *header;
            let further = two.filter(|_| number != arrangement.headed()).map(|two| {
                let body = two.fragment(&header.body, fragment);
                Header { xid, version, credit, direction, invalidate: named, body }
            });
            let header = further.as_ref().unwrap_or(header);
            // Only groups place items.
            if let Body::Two(two::Body::Transmission(operation)) = &header.body {
                arrangement.put_items(send, operation_len(operation) + send.payload, &mut behind);
            }
            let invalidate = invalidate.filter(|_| number == last);
            sent += self.post_send(&mut permit, header, &behind, invalidate, false);
        }
        sent
    }

    /// Sends a message after those that wait, or keeps it to combine with others. `encoded` is its header.
    pub(crate) fn send_in_order(
        &mut self,
        header: &Header,
        (encoded, payload): (BytesMut, &Stream),
        (invalidate, express): (Option<Key>, bool),
        grant: Option<u32>,
    ) {
        // All parts of a message stay in order, so no Send may pass another.
        let express = express && !self.divides();
        let message = match invalidate {
            Some(_) => Some(encoded),
            None => self.combine(header, grant, (encoded, payload), express),
        };
        if let Some(encoded) = message {
            self.send_combined();
            self.post_encoded((&encoded, payload), invalidate, express, grant);
            self.header_space = encoded;
        }
    }

    /// Keeps a message to combine with others, or posts it after those that wait. Returns the header of a message that
    /// has a Send of its own.
    fn combine(
        &mut self,
        header: &Header,
        grant: Option<u32>,
        (encoded, payload): (BytesMut, &Stream),
        express: bool,
    ) -> Option<BytesMut> {
        let version = self.codec.rules().version;
        if !self.sending.as_ref().is_some_and(|sending| sending.combine.takes(header, version)) {
            return Some(encoded);
        }
        let (xid, credit) = (header.xid, header.credit);
        let direction = header.direction.unwrap_or_default();
        let payload = payload.clone();
        let message = Waiting { xid, direction, credit, grant, header: encoded, payload, express };
        // A reply may be planned by either size; the smaller one holds both.
        let len = self.peer.thresholds.send.min(self.peer.send_earlier);
        let room = Room { len, entries: self.outbox.max_sge() };
        if !self.sending.as_ref().is_some_and(|sending| sending.combine.fits(&message, room)) {
            self.send_combined();
        }
        match &mut self.sending {
            Some(sending) if sending.combine.fits(&message, room) => sending.combine.push(message),
            _ => self.post_alone(message),
        }
        None
    }

    /// Posts the messages that wait, combined in one Send; `false` if there are none.
    #[inline]
    pub(crate) fn send_combined(&mut self) -> bool {
        let waits = self.holds_messages();
        if waits {
            self.post_combined();
        }
        waits
    }

    fn post_alone(&mut self, message: Waiting) {
        self.post_encoded((&message.header, &message.payload), None, message.express, message.grant);
    }

    fn post_combined(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        let mut messages = sending.combine.take();
        if messages.len() < 2 {
            if let Some(message) = messages.pop() {
                self.post_alone(message);
            }
            return;
        }
        let grant = messages.iter().rev().find_map(|message| message.grant);
        let lengths = messages.iter().map(|message| narrow(message.len()));
        let body = Body::Two(two::Body::Combined(lengths.collect()));
        let (first, last) = (messages.first(), messages.last());
        let header = Header {
            xid: first.map_or(0, |first| first.xid),
            version: self.codec.rules().version,
            credit: last.map_or(0, |last| last.credit),
            direction: first.map(|first| first.direction),
            invalidate: 0,
            body,
        };
        self.stats.sends_combined += 1;
        self.stats.messages_combined += wide(messages.len());
        tracing::debug!(side = %self.side(), messages = messages.len(), "messages in one Send");
        let mut encoded = BytesMut::new();
        self.codec.encode(&header, &mut encoded);
        let mut behind = Stream::new();
        let express = first.is_some_and(|first| first.express);
        let last = messages.len().saturating_sub(1);
        for (index, message) in messages.into_iter().enumerate() {
            let len = message.len();
            behind.push(Piece::Inline(message.header.freeze()));
            message.payload.pieces().iter().for_each(|piece| behind.push(piece.clone()));
            if index < last {
                behind.push(Piece::Inline(BETWEEN.slice(..aligned(len) - len)));
            }
        }
        self.post_encoded((&encoded, &behind), None, express, grant);
    }
}
