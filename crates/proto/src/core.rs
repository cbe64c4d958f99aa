//! What the two halves of a connection share: the way to the queue pair, and the numbers that both need.
//!
//! Work waits in `out` until the driver takes it, and not longer than the send queue has room. Windows own their memory
//! from their reservation on, so that a request that is never posted loses nothing but a sink of an RDMA Read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{
    Buffer, Capabilities, Key, PoolExhausted, ProtectionDomain, ReceiveMemory, RemoteSegment, SendRequest,
    WorkRequest, WrId,
};

use rpcrdma_xdr::Piece;

use crate::agreement::Agreement;
use crate::characteristics::ReverseSupport;
use crate::combine::{BETWEEN, Combine, Room, Waiting};
use crate::compatibility::{PaddedMessages, ReadRead};
use crate::config::{ChunkSupport, Config, Side};
use crate::credits::RequesterCredits;
use crate::credits::messages::MessageCredits;
use crate::error::ProtocolError;
use crate::event::{CloseReason, Event, Post};
use crate::gather::Gather;
use crate::ids::IdMap;
use crate::planner::AlignmentRules;
use crate::private_data::{Thresholds, announced};
use crate::reads::{Owner, Reads};
use crate::receives::Receives;
use crate::stats::Stats;
use crate::timers::{Flow, Moving, Told};
use crate::two::arrange::{Arrangement, Targets};
use crate::wire::two::combined::aligned;
use crate::wire::two::transmission::BufferStructure;
use crate::wire::two::{Fragment, operation_len};
use crate::wire::{Body, ChunkLists, Codec, Direction, Fixed, Header, Segment, two};

/// Room for a header with a few segments, in bytes.
const SMALL_HEADER: usize = 128;

/// Which credits a message that goes on may count on, where messages are counted; as many are left as `others` need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Allowance {
    /// Those that are there.
    Now { others: u32 },
    /// Those that will be there once nothing of ours is outstanding: the message waits for them. `calls` are those that ours took.
    Lasting { others: u32, calls: u32 },
}

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Receive,
    Send,
    Write,
    /// The bind of a call's window.
    Bind {
        xid: u32,
        window: usize,
    },
    /// The invalidation of a call's window.
    Invalidate {
        xid: u32,
        window: usize,
        key: Key,
    },
    /// A reservation that was not used.
    Release,
    /// The RDMA Reads of a part of a chunk.
    Read {
        owner: Owner,
        chunk: usize,
        part: usize,
    },
    /// The bind of a window of an exposed reply.
    Expose,
    /// The invalidation of such a window.
    Conceal {
        token: u64,
        key: Key,
    },
}

/// What the peer has said of transmission groups (rtrext-02 §8).
#[derive(Debug)]
pub(crate) struct PeerGroups {
    /// It takes Calls in groups, unless it has refused one.
    pub(crate) takes_calls: bool,
    /// It places items of its replies by Sends, where it is told to (§5.3).
    pub(crate) places: bool,
    /// Sends of the longest Call that it takes.
    pub(crate) requests: usize,
    /// Sends of the longest reply that it makes.
    pub(crate) responses: usize,
    /// Where its Receives take items, if they do.
    pub(crate) targets: Option<Targets>,
}

/// A work request or Receive from its making to its completion.
#[derive(Clone, Copy, Debug)]
struct Posted {
    origin: Origin,
    /// Entries of the send queue that it takes.
    cost: usize,
    /// Bytes that leave by it.
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Arc<Config>,
    pub(crate) side: Side,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) thresholds: Thresholds,
    /// The longest message that the peer sends inline for certain, bytes: what its private data said.
    promised: usize,
    /// The longest reply to a Call that was there before the peer was asked for less (xcharext-02 §3.1).
    pub(crate) send_earlier: usize,
    /// Whether a reply may invalidate a window of the peer (RFC 8797 §4.1).
    pub(crate) invalidate_peer: bool,
    /// Whether a reply may invalidate a window of ours.
    pub(crate) may_invalidate: bool,
    /// What the peer does with transmission groups, if this side does anything with them.
    pub(crate) peer_groups: Option<PeerGroups>,
    /// The peer has refused a Call in a group as not supported, whatever it says.
    pub(crate) refuses_groups: bool,
    /// Where our Receives take items, if they do.
    pub(crate) targets: Option<Targets>,
    /// Messages that leave together.
    pub(crate) combine: Combine,
    /// What the peer takes in the reverse direction, where it has said so.
    pub(crate) peer_reverse: Option<ReverseSupport>,
    /// The longest segment that the peer takes, bytes, and the most in a header, where it has said so.
    pub(crate) peer_segments: (Option<u32>, Option<u32>),
    /// Until when a Call waits that the peer may come to take, as it has not told yet what it takes.
    pub(crate) untold: Option<Instant>,
    pub(crate) receives: Receives,
    /// Credits, where they are counted per message (version-two-07 §4.2.1).
    pub(crate) messages: Option<MessageCredits>,
    /// Sends posted so far.
    sent: u32,
    /// Receives completed so far, but for the message that is being looked at.
    received: u32,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    /// The first reason to end the connection.
    pub(crate) failure: Option<CloseReason>,
    /// What is read of the peer.
    pub(crate) reads: Reads,
    /// Whether the peer can have RDMA Reads outstanding here.
    peer_reads: bool,
    /// What was agreed on this connection.
    pub(crate) agreement: Option<Agreement>,
    /// Bytes that each Receive holds from now on.
    receive_len: usize,
    /// What their memory begins at a multiple of, bytes.
    receive_align: usize,
    /// Windows of exposed replies.
    pub(crate) exposed_windows: usize,
    max_sge: usize,
    max_send_wr: usize,
    out: VecDeque<Post>,
    works: IdMap<WrId, Posted>,
    /// How far data has got, if the driver tells.
    pub(crate) told: Option<Told>,
    /// Sends and RDMA Writes at the provider.
    sending: Option<Moving>,
    /// How many these are, and their bytes.
    data_outstanding: (usize, u64),
    /// Bytes of those, and of those that wait in `out`.
    to_leave: u64,
    /// Bytes of all that was ever posted.
    bytes_posted: u64,
    next_id: u64,
    sends_outstanding: usize,
    /// Sends that are not express and have not completed, with the grant that each says.
    in_order: Vec<(WrId, u32)>,
}

impl Core {
    pub(crate) fn new(
        config: Arc<Config>,
        side: Side,
        codec: &'static dyn Codec,
        thresholds: Thresholds,
        promised: usize,
        invalidate_peer: bool,
        capabilities: &Capabilities,
    ) -> Self {
        Self {
            // What the peer was told, whatever our threshold came to.
            receive_len: announced(config.receive_size.max(config.versions.least_receive())),
            may_invalidate: config.remote_invalidation && capabilities.remote_invalidation,
            send_earlier: thresholds.send,
            peer_groups: None,
            targets: config.structure().and_then(Targets::of),
            receive_align: config.structure().map_or(1, BufferStructure::align),
            refuses_groups: false,
            combine: Combine::default(),
            peer_reverse: None,
            peer_segments: (None, None),
            untold: None,
            config,
            side,
            codec,
            thresholds,
            promised: announced(promised),
            invalidate_peer,
            receives: Receives::default(),
            messages: None,
            sent: 0,
            received: 0,
            events: VecDeque::new(),
            stats: Stats::default(),
            failure: None,
            reads: Reads::new(capabilities),
            peer_reads: capabilities.ird > 0,
            agreement: None,
            exposed_windows: 0,
            max_sge: capabilities.max_sge.max(1),
            max_send_wr: capabilities.max_send_wr.max(1),
            out: VecDeque::new(),
            works: IdMap::default(),
            told: None,
            sending: None,
            data_outstanding: (0, 0),
            to_leave: 0,
            bytes_posted: 0,
            next_id: 0,
            sends_outstanding: 0,
            in_order: Vec::new(),
        }
    }

    /// Speaks this version from now on.
    pub(crate) fn set_codec(&mut self, codec: &'static dyn Codec) {
        self.codec = codec;
        self.messages = match (codec.rules().two, self.messages.take()) {
            (Some(two), None) if two.counts_messages => Some(MessageCredits::after(self.sent, self.received)),
            (Some(two), counted) if two.counts_messages => counted,
            _ => None,
        };
    }

    /// Counts a message of the peer, whatever is in it.
    ///
    /// # Errors
    /// [`ProtocolError::LimitExceeded`]
    pub(crate) fn count_received(
        &mut self,
        is_grant: bool,
        fixed: Option<Fixed>,
    ) -> Result<(), ProtocolError> {
        self.received = self.received.wrapping_add(1);
        let Some(messages) = &mut self.messages else { return Ok(()) };
        if !messages.accept(is_grant) {
            return Err(ProtocolError::LimitExceeded { limit: messages.told() });
        }
        match fixed {
            Some(fixed) if fixed.version == self.codec.rules().version => messages.limit(fixed.credit),
            // In another version the word counts something else; but who asks in it has a Receive for the answer. Only a client does.
            Some(_) if self.side == Side::Server && messages.room() == 0 => {
                messages.limit(self.sent.wrapping_add(1));
            }
            _ => {}
        }
        Ok(())
    }

    /// What a credit value means for Calls: where messages are counted, these are not bounded by it.
    pub(crate) const fn granted(&self, credit: u32) -> u32 {
        if self.messages.is_some() { u32::MAX } else { credit }
    }

    /// The peer has said what it takes: of messages, what may be sent now, and what comes back with the replies that are awaited.
    pub(crate) fn note_grant(&mut self, credits: &RequesterCredits) {
        self.stats.credits_granted_to_us = match &self.messages {
            Some(messages) => messages.room().saturating_add(credits.in_flight()),
            None => credits.granted(),
        };
    }

    /// Whether so many messages may leave, where they are counted (rule I4).
    pub(crate) fn may_send(&self, messages: u32) -> bool {
        self.messages.as_ref().is_none_or(|credits| credits.room() >= messages)
    }

    /// Sends that a message of ours may take at the most.
    pub(crate) fn continued_parts(&self, allowance: Allowance) -> usize {
        let Some(messages) = self.messages.as_ref().filter(|_| self.continues()) else { return 1 };
        let (credits, others) = match allowance {
            Allowance::Now { others } => (messages.room(), others),
            Allowance::Lasting { others, calls } => (messages.lasting(calls), others),
        };
        let room = usize::try_from(credits.saturating_sub(others)).unwrap_or(usize::MAX);
        self.config.continued_parts.min(room).max(1)
    }

    /// Sends that a reply to a Call of ours may take at the most: that many Receives are posted before the Call leaves, so the peer has
    /// credits for it.
    pub(crate) fn continued_reply_parts(&self) -> usize {
        if self.continues() { self.config.continued_parts.min(self.config.limits.continued_parts) } else { 1 }
    }

    /// Messages that may leave once nothing of ours is outstanding, where they are counted; `calls` are those that ours without a
    /// reply took.
    pub(crate) fn lasting(&self, calls: u32) -> u32 {
        self.messages.as_ref().map_or(u32::MAX, |credits| credits.lasting(calls))
    }

    /// Whether messages of ours may be continued.
    fn continues(&self) -> bool {
        self.codec.rules().two.is_some_and(|two| two.part_header.is_some()) && self.config.continued_parts > 1
    }

    /// Whether messages of ours may leave in groups of several Sends. A reply may if its Call came in one, also to a peer that has told
    /// nothing of itself.
    fn makes_groups(&self) -> bool {
        let enabled = self.codec.rules().two.is_some_and(|two| two.operations.is_some())
            && self.config.transmissions.enabled;
        enabled && self.config.continued_parts > 1
    }

    /// Raises the peer's limit by a message that does nothing else, if that is due.
    pub(crate) fn grant(&mut self) -> bool {
        let posted = self.receives.posted();
        let due = self.messages.as_mut().filter(|credits| credits.grant_due(posted));
        let Some(credit) = due.map(|credits| credits.grant(posted)) else { return false };
        let header = self.header(Direction::Call, 0, credit, Body::Two(two::Body::Grant));
        self.post_send(&header, &rpcrdma_xdr::Stream::new(), None, true);
        self.stats.grants_sent += 1;
        true
    }

    /// Ends the connection for this reason, unless it has one already.
    pub(crate) fn fail(&mut self, reason: CloseReason) {
        if self.failure.is_none() {
            tracing::debug!(side = %self.side, %reason, "connection fails");
            self.failure = Some(reason);
        }
    }

    /// The Read-Read transfer model, as far as a client reads replies.
    pub(crate) fn reads_replies(&self) -> Option<&ReadRead> {
        let reads = self.side == Side::Client && self.has_read_read();
        self.config.compatibility.read_read.as_ref().filter(|_| reads)
    }

    /// The same, as far as a server exposes them.
    pub(crate) fn exposes_replies(&self) -> Option<&ReadRead> {
        let exposes = self.side == Side::Server && self.read_chunks() && self.has_read_read();
        self.config.compatibility.read_read.as_ref().filter(|_| exposes)
    }

    /// Only Version One has an RDMA_DONE.
    fn has_read_read(&self) -> bool {
        self.codec.rules().two.is_none()
    }

    /// What opaque data in our Calls is aligned to.
    pub(crate) fn alignment(&self) -> Option<AlignmentRules> {
        let compatibility = &self.config.compatibility;
        // RFC 5666 §6.2: what is agreed is the alignment of the server's Receives, so it is for Calls of the client.
        let agreed = self.agreement.filter(|_| self.side == Side::Client);
        let align = agreed.map_or(compatibility.alignment, |agreement| agreement.align);
        let usable =
            align >= 4 && align.is_power_of_two() && compatibility.padded_messages == PaddedMessages::Honour;
        usable.then_some(AlignmentRules {
            align,
            threshold: compatibility.alignment_threshold,
            base: compatibility.alignment_base,
        })
    }

    fn id(&mut self, origin: Origin, cost: usize, bytes: u64) -> WrId {
        let id = WrId(self.next_id);
        self.next_id += 1;
        self.works.insert(id, Posted { origin, cost, bytes });
        self.to_leave = self.to_leave.saturating_add(bytes);
        self.bytes_posted = self.bytes_posted.saturating_add(bytes);
        id
    }

    pub(crate) fn post(&mut self, origin: Origin, request: WorkRequest) -> WrId {
        // No message waits for the transfers of another.
        if matches!(request, WorkRequest::Write { .. } | WorkRequest::Read { .. }) {
            self.send_combined();
        }
        let id = self.id(origin, cost(&request), leaving(&request));
        self.out.push_back(Post::Work(id, request));
        id
    }

    pub(crate) fn post_command(&mut self, command: Post) {
        self.send_combined();
        self.out.push_back(command);
    }

    pub(crate) fn invalidate(&mut self, origin: Origin, key: Key) {
        self.post(origin, WorkRequest::LocalInvalidate { key });
    }

    /// Keeps to an agreement from now on.
    pub(crate) fn agree(&mut self, agreement: Agreement) {
        let (sent, received, reads) = match self.side {
            Side::Client => (agreement.call_size, agreement.reply_size, agreement.server_reads),
            Side::Server => (agreement.reply_size, agreement.call_size, agreement.client_reads),
        };
        // RFC 5666 §6.2 says what the client takes, not what the server sends: that is known from private data only.
        let promised = match self.side {
            Side::Client => received.min(self.promised),
            Side::Server => received,
        };
        self.thresholds = Thresholds { send: sent, receive: promised };
        // RFC 8167 §4.2: messages of the reverse direction have the same bounds.
        self.receive_len = received;
        self.reads.allow(usize::try_from(reads).unwrap_or(usize::MAX));
        self.agreement = Some(agreement);
    }

    /// Whether a Call may leave that makes the peer read. A peer whose ORD is 0 cannot (RFC 6581 §9.1).
    pub(crate) fn read_chunks(&self) -> bool {
        self.peer_reads && self.agreement.is_none_or(|agreement| agreement.read_chunks())
    }

    /// Room that one more Receive takes of the domain.
    pub(crate) fn receive_room(&self) -> usize {
        ProtectionDomain::room_for(self.receive_len)
    }

    /// The peer was granted so much: from one message to the next the room of these Receives stays with the connection.
    pub(crate) fn keep_receives(&mut self, granted: u32, domain: &ProtectionDomain) {
        self.receives.keep(granted, self.receive_len, domain);
    }

    /// For a Receive that is lacking.
    pub(crate) fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.receives.poll_room(cx, self.receive_len)
    }

    /// Posts Receives until `owed` are there or the domain has no room; says how many are missing (rule I3).
    pub(crate) fn post_receives(&mut self, mut owed: u32, domain: &ProtectionDomain) -> u32 {
        if let Some(credits) = &mut self.messages {
            credits.set_window(owed);
            owed = credits.receives_owed();
        }
        while self.receives.missing(owed) > 0 {
            let Some(reserved) = self.receives.reserve(self.receive_len, domain) else { break };
            let id = self.id(Origin::Receive, 0, 0);
            let memory = ReceiveMemory::Pooled(reserved.aligned(self.receive_align));
            self.out.push_back(Post::Receive(id, memory));
            self.receives.post();
        }
        self.receives.missing(owed)
    }

    /// Whether a server's Calls may have chunks (RFC 8167 §5.3); where the client has said so, as it says (xcharext-02 §3.3).
    fn reverse_chunks(&self) -> bool {
        self.config.reverse_chunks
            && self.peer_reverse.is_none_or(|reverse| reverse == ReverseSupport::General)
    }

    /// Whether Calls of ours may have chunks (rtissues-03 §3.5).
    pub(crate) fn uses_chunks(&self) -> bool {
        match (self.config.chunks, self.side) {
            (ChunkSupport::Required, _) | (ChunkSupport::Forward, Side::Client) => true,
            (ChunkSupport::Optional { forward }, Side::Client) => forward,
            (ChunkSupport::Forward | ChunkSupport::Optional { .. }, Side::Server) => self.reverse_chunks(),
        }
    }

    /// Whether those of the peer may.
    pub(crate) fn takes_chunks(&self) -> bool {
        match (self.config.chunks, self.side) {
            (_, Side::Client) => self.config.takes_reverse_chunks(),
            (ChunkSupport::Required | ChunkSupport::Forward, Side::Server) => true,
            (ChunkSupport::Optional { forward }, Side::Server) => forward,
        }
    }

    /// Bytes that each Receive holds from now on.
    pub(crate) const fn receive_len(&self) -> usize {
        self.receive_len
    }

    /// Receives that are posted from now on have this size.
    pub(crate) fn resize_receives(&mut self, size: usize) {
        self.receives.resize(self.receive_len);
        self.receive_len = size;
    }

    /// What the answer to a Call with these chunks may invalidate: `rdma_inv_handle` (version-two-03 §6.2.3).
    pub(crate) fn invalidates(&self, offered: &ChunkLists) -> u32 {
        let said = self.codec.rules().two.is_some_and(|two| two.names_handle) && self.may_invalidate;
        if said { offered.handles().next().unwrap_or(0) } else { 0 }
    }

    /// What the reply to a Call with these chunks invalidates, the Call having named `named`. The tag has to belong to this XID, so
    /// it is one of those that came with it.
    pub(crate) fn invalidated_by_reply(&self, offered: &ChunkLists, named: u32) -> Option<Key> {
        if !self.invalidate_peer {
            return None;
        }
        let mut handles = offered.handles();
        if self.codec.rules().two.is_some_and(|two| two.names_handle) {
            handles.find(|handle| *handle == named && named != 0).map(Key)
        } else {
            handles.next().map(Key)
        }
    }

    /// A header of the version spoken, for a message that leaves now. `credit` is what it says where credits are counted per
    /// transaction.
    pub(crate) fn header(&mut self, direction: Direction, xid: u32, mut credit: u32, body: Body) -> Header {
        let version = self.codec.rules().version;
        if let Some(messages) = &mut self.messages {
            credit = messages.advertise(self.receives.posted());
            self.stats.credits_granted_to_peer = messages.outstanding();
        }
        Header { xid, version, credit, direction: Some(direction), invalidate: 0, body }
    }

    /// Sends a header and what follows it, on a credit that is there; returns the length of the message in bytes. Without a credit
    /// nothing leaves, and the connection ends (rule I4): whoever plans messages has counted wrong.
    pub(crate) fn send(
        &mut self,
        header: &Header,
        payload: &rpcrdma_xdr::Stream,
        invalidate: Option<Key>,
        express: bool,
    ) -> usize {
        if !self.messages.as_mut().is_none_or(MessageCredits::take) {
            self.fail(CloseReason::CreditsOverdrawn);
            return 0;
        }
        self.post_send(header, payload, invalidate, express)
    }

    /// Sends a message that is divided, one Send behind the other; returns the length of all of them, bytes. There have to be credits,
    /// and Receives at the peer, for each. `header` is the header of the message.
    pub(crate) fn send_arranged(
        &mut self,
        header: &Header,
        arrangement: &Arrangement,
        payload: &rpcrdma_xdr::Stream,
        invalidate: Option<Key>,
    ) -> usize {
        let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
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
            // Items are placed in groups only.
            if let Body::Two(two::Body::Transmission(operation)) = &header.body {
                arrangement.put_items(send, operation_len(operation) + send.payload, &mut behind);
            }
            sent += self.send(header, &behind, invalidate.filter(|_| number == last), false);
        }
        sent
    }

    /// So many of the messages that were sent are neither Calls nor answers, where they are counted.
    pub(crate) const fn count_returning(&mut self, messages: u32) {
        if let Some(credits) = &mut self.messages {
            credits.count_returning(messages);
        }
    }

    fn post_send(
        &mut self,
        header: &Header,
        payload: &rpcrdma_xdr::Stream,
        invalidate: Option<Key>,
        express: bool,
    ) -> usize {
        self.sent = self.sent.wrapping_add(1);
        let mut encoded = BytesMut::with_capacity(SMALL_HEADER);
        self.codec.encode(header, &mut encoded);
        let len = encoded.len() + payload.len();
        // Nothing may come between the parts of a message, so that no Send passes another.
        let express = express && !self.continues() && !self.makes_groups();
        if self.combine.takes(header, invalidate.is_some(), self.codec.rules().version) {
            let (xid, credit) = (header.xid, header.credit);
            let direction = header.direction.unwrap_or_default();
            let payload = payload.clone();
            self.combine_or_post(Waiting { xid, direction, credit, header: encoded, payload, express });
        } else {
            self.send_combined();
            let told = self.told(header.direction.unwrap_or_default(), header.credit);
            self.post_encoded((encoded, payload), invalidate, express, told);
        }
        len
    }

    /// The grant that a message says: a Call says what it asks for, unless messages are counted.
    fn told(&self, direction: Direction, credit: u32) -> Option<u32> {
        (direction == Direction::Reply || self.messages.is_some()).then_some(credit)
    }

    /// Lets a message wait for others, or posts it after those that wait.
    fn combine_or_post(&mut self, message: Waiting) {
        // Whichever of the two a reply is planned by.
        let room = Room { len: self.thresholds.send.min(self.send_earlier), entries: self.max_sge };
        if !self.combine.fits(&message, room) {
            self.send_combined();
        }
        if self.combine.fits(&message, room) {
            self.combine.push(message);
        } else {
            self.post_alone(message);
        }
    }

    /// Posts the messages that wait for others, in one Send; `false` if there are none.
    #[inline]
    pub(crate) fn send_combined(&mut self) -> bool {
        let waits = !self.combine.is_empty();
        if waits {
            self.post_combined();
        }
        waits
    }

    fn post_alone(&mut self, message: Waiting) {
        let told = self.told(message.direction, message.credit);
        self.post_encoded((message.header, &message.payload), None, message.express, told);
    }

    fn post_combined(&mut self) {
        let mut messages = self.combine.take();
        if messages.len() < 2 {
            if let Some(message) = messages.pop() {
                self.post_alone(message);
            }
            return;
        }
        let told = messages.iter().rev().find_map(|message| self.told(message.direction, message.credit));
        let lengths = messages.iter().map(|message| u32::try_from(message.len()).unwrap_or(u32::MAX));
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
        self.stats.messages_combined += u64::try_from(messages.len()).unwrap_or(u64::MAX);
        tracing::debug!(side = %self.side, messages = messages.len(), "messages in one Send");
        let mut encoded = BytesMut::with_capacity(SMALL_HEADER);
        self.codec.encode(&header, &mut encoded);
        let mut behind = rpcrdma_xdr::Stream::new();
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
        self.post_encoded((encoded, &behind), None, express, told);
    }

    /// Posts a Send that says the grant `told`. The peer keeps to the grant that came last, and Receives may back only the one that
    /// left last. So a Send never passes one that says another grant (rule I3).
    fn post_encoded(
        &mut self,
        (header, payload): (BytesMut, &rpcrdma_xdr::Stream),
        invalidate: Option<Key>,
        express: bool,
        told: Option<u32>,
    ) {
        let express = express && told.is_none_or(|told| self.in_order.iter().all(|(_, said)| *said == told));
        self.stats.sends += 1;
        let mut gather = Gather::default();
        gather.push(header.freeze(), false);
        gather.push_stream(payload);
        let gather = self.gather(gather);
        let request = SendRequest { gather, invalidate, solicited: false, express };
        let id = self.post(Origin::Send, WorkRequest::Send(request));
        self.in_order.extend(told.filter(|_| !express).map(|told| (id, told)));
    }

    /// A gather list that the provider takes; counts what is copied for it.
    pub(crate) fn gather(&mut self, gather: Gather) -> Vec<Bytes> {
        let (parts, copied) = gather.finish(self.max_sge);
        self.stats.copied(copied);
        parts
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// The next thing to post, if the send queue has room for it.
    pub(crate) fn take_post(&mut self, now: Instant) -> Option<Post> {
        if let Some(Post::Work(id, request)) = self.out.front() {
            // Never more than the whole queue has: `fit_limits` bounds the chunks.
            let cost = cost(request);
            if self.sends_outstanding + cost > self.max_send_wr {
                return None;
            }
            self.sends_outstanding += cost;
            let bytes = self.works.get(id).map_or(0, |posted| posted.bytes);
            if bytes > 0 {
                let (count, total) = self.data_outstanding;
                self.data_outstanding = (count + 1, total.saturating_add(bytes));
                let (stall, told) = (self.config.timeouts.send, self.told.as_ref());
                self.sending.get_or_insert_with(|| Moving::new(now, stall, Flow::Sent, told, 0)).add(bytes);
            }
        }
        self.out.pop_front()
    }

    /// A mark behind all that was posted.
    pub(crate) const fn posted(&self) -> u64 {
        self.next_id
    }

    /// Whether no plain Send before this mark is outstanding.
    pub(crate) fn is_in_order(&self, mark: u64) -> bool {
        self.in_order.first().is_none_or(|(WrId(id), _)| *id >= mark)
    }

    /// A Send or RDMA Write has completed: the next ones have their time from now on.
    pub(crate) fn has_sent(&mut self, now: Instant, bytes: u64) {
        let (count, total) = self.data_outstanding;
        let (count, total) = (count.saturating_sub(1), total.saturating_sub(bytes));
        self.data_outstanding = (count, total);
        if count == 0 {
            self.sending = None;
        } else if self.told.is_none() {
            self.sending = Some(Moving::new(now, self.config.timeouts.send, Flow::Sent, None, total));
        }
    }

    /// Whether Sends or RDMA Writes are at the provider.
    pub(crate) const fn is_sending(&self) -> bool {
        self.data_outstanding.0 > 0
    }

    /// Bytes that were posted and have not left, whether they are at the provider or wait for room in the send queue.
    pub(crate) const fn bytes_to_leave(&self) -> u64 {
        self.to_leave
    }

    /// Bytes of all Sends and RDMA Writes that were ever posted.
    pub(crate) const fn bytes_posted(&self) -> u64 {
        self.bytes_posted
    }

    /// When it is due to look at what is being sent.
    pub(crate) fn sending_timeout(&self) -> Option<Instant> {
        self.sending.map(|sending| sending.deadline)
    }

    /// Time has passed: what is being sent has to move.
    pub(crate) fn handle_sending_timeout(&mut self, now: Instant) {
        let timeouts = &self.config.timeouts;
        if let Some(sending) = self.sending.as_mut().filter(|sending| sending.deadline <= now)
            && !sending.goes_on(now, timeouts.pace(timeouts.send), self.told.as_ref())
        {
            self.sending = None;
            self.fail(CloseReason::Timeout("the peer to take what is sent"));
        }
    }

    /// What a completion belongs to, and how many bytes have left by it.
    pub(crate) fn complete(&mut self, id: WrId) -> Option<(Origin, u64)> {
        let Posted { origin, cost, bytes } = self.works.remove(&id)?;
        self.to_leave = self.to_leave.saturating_sub(bytes);
        match origin {
            Origin::Receive => self.receives.complete(),
            Origin::Send => self.in_order.retain(|(sent, _)| *sent != id),
            _ => {}
        }
        self.sends_outstanding = self.sends_outstanding.saturating_sub(cost);
        Some((origin, bytes))
    }

    /// Takes back what was not posted yet, so that the next command is the next thing to be done.
    pub(crate) fn withdraw_commands(&mut self) {
        self.combine.take();
        for post in std::mem::take(&mut self.out) {
            if let Post::Work(id, _) | Post::Receive(id, _) = post
                && let Some(withdrawn) = self.works.remove(&id)
            {
                self.to_leave = self.to_leave.saturating_sub(withdrawn.bytes);
            }
        }
    }

    /// Forgets everything: the connection is over.
    pub(crate) fn withdraw(&mut self) {
        self.combine.take();
        self.out.clear();
        self.works.clear();
        self.in_order.clear();
        self.receives.end();
        self.sending = None;
        self.data_outstanding = (0, 0);
        self.to_leave = 0;
    }
}

/// Entries of the send queue that a request takes.
fn cost(request: &WorkRequest) -> usize {
    match request {
        WorkRequest::Write { targets, .. } => targets.len(),
        WorkRequest::Read { sources, .. } => sources.len(),
        WorkRequest::LocalInvalidate { .. } => 0,
        _ => 1,
    }
}

/// Bytes that leave by a request; never none where any do, as there are headers too.
fn leaving(request: &WorkRequest) -> u64 {
    let gather = match request {
        WorkRequest::Send(send) => &send.gather,
        WorkRequest::Write { gather, .. } => gather,
        _ => return 0,
    };
    gather.iter().map(|part| u64::try_from(part.len()).unwrap_or(u64::MAX)).fold(1, u64::saturating_add)
}

/// Buffers of these lengths, all or none; `None` for one without bytes.
///
/// # Errors
/// [`PoolExhausted`], where `requested` is the room that all of them together take: enough to wait for.
pub(crate) fn allocate_together(
    domain: &ProtectionDomain,
    lengths: &[usize],
) -> Result<Vec<Option<Buffer>>, PoolExhausted> {
    let rooms = lengths.iter().filter(|len| **len > 0).map(|len| ProtectionDomain::room_for(*len));
    let requested = rooms.fold(0, usize::saturating_add);
    let limit = domain.usage().limit;
    if requested > limit {
        return Err(PoolExhausted::OverLimit { requested, limit });
    }
    let allocate = |len: &usize| if *len == 0 { Ok(None) } else { domain.allocate(*len, 1).map(Some) };
    lengths.iter().map(allocate).collect::<Result<_, _>>().map_err(|error| match error {
        PoolExhausted::InUse { in_use, limit, .. } => PoolExhausted::InUse { requested, in_use, limit },
        PoolExhausted::Unfair { held, left, .. } => PoolExhausted::Unfair { requested, held, left },
        other => other,
    })
}

/// A segment of the peer as the provider names it.
pub(crate) const fn remote(segment: &Segment) -> RemoteSegment {
    RemoteSegment { key: Key(segment.handle), address: segment.offset, length: segment.length }
}

/// A window of ours as the wire names it.
pub(crate) const fn segment(window: &RemoteSegment) -> Segment {
    Segment { handle: window.key.0, length: window.length, offset: window.address }
}

#[cfg(test)]
mod tests;
