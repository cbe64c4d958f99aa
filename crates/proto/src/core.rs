//! [`Core`]: the state that both halves of a connection share. It holds the peer's limits, the Sends, and the reason
//! for the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{Capabilities, Key, SendRequest, WorkRequest, WrId};

use crate::error::CloseReason;
use crate::event::Event;
use crate::flow::{Ledger, Permit};
use crate::inbound::reads::Reads;
use crate::outbound::{Origin, Outbox, Post, gather};
use crate::peer::{Peer, ReverseSupport};
use crate::planner::Route;
use crate::retired::Retired;
use crate::settings::agreement::Agreement;
use crate::settings::config::{ChunkSupport, Config, Side};
use crate::settings::private_data::Thresholds;
use crate::stats::Stats;
use crate::two::receiving::limit_exceeded;
use crate::two::sending::Sending;
use crate::wire::{Body, ChunkLists, Codec, Direction, Fixed, Header, ProtocolError, sized};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Arc<Config>,
    pub(crate) codec: &'static dyn Codec,
    /// The limits and abilities of the peer.
    pub(crate) peer: Peer,
    /// Whether a reply may invalidate a handle of ours.
    pub(crate) may_invalidate: bool,
    /// State of the Sends of Version Two, if the connection speaks it.
    pub(crate) sending: Option<Box<Sending>>,
    /// The retired forms, if any is enabled.
    pub(crate) retired: Option<Box<Retired>>,
    /// The credits of both sides, and the Receives that back them.
    pub(crate) ledger: Ledger,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: Stats,
    /// The first reason to end the connection.
    pub(crate) failure: Option<CloseReason>,
    /// RDMA Reads of the peer's memory.
    pub(crate) reads: Reads,
    /// Windows in use: reserved, and not invalid yet.
    pub(crate) windows: usize,
    /// The queue of work requests for the queue pair.
    pub(crate) outbox: Outbox,
    /// Memory for the next header, of an earlier one.
    pub(crate) header_space: BytesMut,
}

impl Core {
    pub(crate) fn new(
        config: Arc<Config>,
        codec: &'static dyn Codec,
        peer: Peer,
        ledger: Ledger,
        capabilities: &Capabilities,
    ) -> Self {
        Self {
            ledger,
            may_invalidate: config.remote_invalidation && capabilities.remote_invalidation,
            sending: None,
            retired: Retired::open(&config.compatibility),
            reads: Reads::new(Arc::clone(&config), capabilities),
            config,
            codec,
            peer,
            events: VecDeque::new(),
            stats: Stats::default(),
            failure: None,
            windows: 0,
            outbox: Outbox::new(capabilities),
            header_space: BytesMut::new(),
        }
    }

    /// Returns the side of the connection.
    pub(crate) const fn side(&self) -> Side {
        self.ledger.side()
    }

    /// Whether neither door is open: the connection speaks Version One, without retired forms.
    pub(crate) const fn is_plain(&self) -> bool {
        self.sending.is_none() && self.retired.is_none()
    }

    /// Counts a message of the peer.
    ///
    /// # Errors
    /// The peer has exceeded its limit.
    pub(crate) fn count_received(
        &mut self,
        is_grant: bool,
        fixed: Option<Fixed>,
    ) -> Result<(), ProtocolError> {
        let version = self.codec.rules().version;
        let credit = fixed.filter(|fixed| fixed.version == version).map(|fixed| fixed.credit);
        self.ledger.count_message(is_grant, credit).map_err(limit_exceeded)
    }

    /// Records a grant of the peer.
    pub(crate) fn note_grant(&mut self) {
        self.stats.credits_granted_to_us = self.ledger.granted_to_us();
    }

    /// Ends the connection for this reason, unless an earlier reason ended it.
    pub(crate) fn fail(&mut self, reason: CloseReason) {
        if self.failure.is_none() {
            tracing::debug!(side = %self.side(), %reason, "connection fails");
            self.failure = Some(reason);
        }
    }

    /// Posts a request. A transfer follows the messages that wait to be combined, so that none of them waits for
    /// another's transfer.
    pub(crate) fn post(&mut self, origin: Origin, request: WorkRequest) {
        if matches!(request, WorkRequest::Write { .. } | WorkRequest::Read { .. }) {
            self.send_combined();
        }
        self.outbox.push(origin, request);
    }

    /// Posts a command after everything that waits.
    pub(crate) fn post_command(&mut self, command: Post) {
        self.send_combined();
        self.outbox.push_command(command);
    }

    pub(crate) fn invalidate(&mut self, origin: Origin, key: Key) {
        self.post(origin, WorkRequest::LocalInvalidate { key });
    }

    /// Applies an agreement from now on.
    pub(crate) fn agree(&mut self, agreement: Agreement) {
        let (sent, received, reads) = match self.side() {
            Side::Client => (agreement.call_size, agreement.reply_size, agreement.server_reads),
            Side::Server => (agreement.reply_size, agreement.call_size, agreement.client_reads),
        };
        // RFC 5666 §6.2 limits what the client accepts, not what the server sends. Only private data announces that.
        let promised = match self.side() {
            Side::Client => received.min(self.peer.promised),
            Side::Server => received,
        };
        self.peer.thresholds = Thresholds { send: sent, receive: promised };
        // RFC 8167 §4.2: messages of the reverse direction have the same limits.
        self.ledger.receives.set_len(received);
        self.reads.allow(sized(reads));
        self.peer.agreement = Some(agreement);
    }

    /// Whether a Call may make the peer read. A peer whose ORD is 0 cannot (RFC 6581 §9.1).
    pub(crate) fn read_chunks(&self) -> bool {
        self.peer.reads && self.peer.agreement.is_none_or(|agreement| agreement.read_chunks())
    }

    /// Whether a server's Calls may have chunks (RFC 8167 §5.3), by the client's announcement if there is one
    /// (xcharext-02 §3.3).
    fn reverse_chunks(&self) -> bool {
        self.config.reverse_chunks
            && self.peer.reverse.is_none_or(|reverse| reverse == ReverseSupport::General)
    }

    /// Whether Calls of ours may have chunks (rtissues-03 §3.5).
    pub(crate) fn uses_chunks(&self) -> bool {
        match (self.config.chunks, self.side()) {
            (ChunkSupport::Required, _) | (ChunkSupport::Forward, Side::Client) => true,
            (ChunkSupport::Optional { forward }, Side::Client) => forward,
            (ChunkSupport::Forward | ChunkSupport::Optional { .. }, Side::Server) => self.reverse_chunks(),
        }
    }

    /// Whether Calls of the peer may have chunks.
    pub(crate) fn takes_chunks(&self) -> bool {
        match (self.config.chunks, self.side()) {
            (_, Side::Client) => self.config.takes_reverse_chunks(),
            (ChunkSupport::Required | ChunkSupport::Forward, Side::Server) => true,
            (ChunkSupport::Optional { forward }, Side::Server) => forward,
        }
    }

    /// Returns the handle that the answer to a Call with these chunks may invalidate, or 0: `rdma_inv_handle`
    /// (version-two-03 §6.2.3), for versions that have the word.
    pub(crate) fn invalidates(&self, offered: &ChunkLists) -> u32 {
        if self.may_invalidate { offered.handles().next().unwrap_or(0) } else { 0 }
    }

    /// Returns the handle that the reply to a Call with these chunks invalidates; the Call may have `named` one, or 0.
    /// The handle has to belong to this XID, so it is one of the Call's chunks.
    pub(crate) fn invalidated_by_reply(&self, offered: &ChunkLists, named: Option<u32>) -> Option<Key> {
        if !self.peer.invalidates || offered.is_empty() {
            return None;
        }
        let mut handles = offered.handles();
        match named {
            Some(named) => handles.find(|handle| *handle == named && named != 0).map(Key),
            None => handles.next().map(Key),
        }
    }

    /// Returns a header in the connection's version, for a message that leaves with this permit.
    pub(crate) fn header(&mut self, direction: Direction, xid: u32, permit: &Permit, body: Body) -> Header {
        let version = self.codec.rules().version;
        if let Some(credit) = permit.grant() {
            self.stats.credits_granted_to_peer = self.ledger.messages_granted().unwrap_or(credit);
        }
        Header { xid, version, credit: permit.credit(), direction: Some(direction), invalidate: 0, body }
    }

    /// Sends a message by its route; returns the length of the message, bytes.
    pub(crate) fn send_by(
        &mut self,
        route: &mut Route,
        permit: Permit,
        header: &Header,
        payload: &rpcrdma_xdr::Stream,
        (invalidate, express): (Option<Key>, bool),
    ) -> usize {
        match route {
            Route::Sends(arrangement) => self.send_arranged(permit, header, arrangement, payload, invalidate),
            _ => self.send(permit, header, payload, invalidate, express),
        }
    }

    /// Sends a header and the data after it; returns the length of the message, bytes.
    pub(crate) fn send(
        &mut self,
        mut permit: Permit,
        header: &Header,
        payload: &rpcrdma_xdr::Stream,
        invalidate: Option<Key>,
        express: bool,
    ) -> usize {
        self.post_send(&mut permit, header, payload, invalidate, express)
    }

    /// Posts a Send with this permit.
    pub(crate) fn post_send(
        &mut self,
        permit: &mut Permit,
        header: &Header,
        payload: &rpcrdma_xdr::Stream,
        invalidate: Option<Key>,
        express: bool,
    ) -> usize {
        if !permit.spend() {
            debug_assert!(false, "a message of more Sends than there are credits for");
            return 0;
        }
        let mut encoded = std::mem::take(&mut self.header_space);
        encoded.clear();
        self.codec.encode(header, &mut encoded);
        let len = encoded.len() + payload.len();
        if self.sending.is_some() {
            self.send_in_order(header, (encoded, payload), (invalidate, express), permit.grant());
            return len;
        }
        self.post_encoded((&encoded, payload), invalidate, express, permit.grant());
        self.header_space = encoded;
        len
    }

    /// Posts a Send with this grant.
    pub(crate) fn post_encoded(
        &mut self,
        (header, payload): (&[u8], &rpcrdma_xdr::Stream),
        invalidate: Option<Key>,
        express: bool,
        grant: Option<u32>,
    ) {
        self.stats.sends += 1;
        let gather = self.gather(header, payload);
        self.outbox.push_send(SendRequest { gather, invalidate, solicited: false, express }, grant);
    }

    /// Returns a gather list within the provider's limit; counts the bytes copied for it.
    pub(crate) fn gather(&mut self, header: &[u8], stream: &rpcrdma_xdr::Stream) -> Vec<Bytes> {
        let (parts, copied) = gather(header, stream, self.outbox.max_sge());
        self.stats.copied(copied);
        parts
    }

    /// Returns the next work request to post, if the send queue has space for it. Receives come before the messages that
    /// rely on them (rule I3).
    pub(crate) fn take_post(&mut self, now: Instant) -> Option<Post> {
        if let Some(memory) = self.ledger.next_receive() {
            return Some(self.outbox.receive(memory));
        }
        self.outbox.next(now, self.config.timeouts.send)
    }

    /// Checks the progress of Sends when their timer is due.
    pub(crate) fn handle_sending_timeout(&mut self, now: Instant) {
        let timeouts = &self.config.timeouts;
        if !self.outbox.handle_timeout(now, timeouts.pace(timeouts.send)) {
            self.fail(CloseReason::Timeout("the peer to take what is sent"));
        }
    }

    /// Returns the origin of a completed request. A Send or RDMA Write that has `left` restarts the timer of the next
    /// ones.
    pub(crate) fn complete(&mut self, id: WrId, left: Option<Instant>) -> Option<Origin> {
        let stall = self.config.timeouts.send;
        let origin = self.outbox.complete(id, left.map(|now| (now, stall)))?;
        if origin == Origin::Receive {
            self.ledger.receives.complete();
        }
        Some(origin)
    }

    /// Withdraws everything not posted yet, so that the next command is posted next.
    pub(crate) fn withdraw_commands(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.discard();
        }
        self.outbox.withdraw();
        self.ledger.receives.end();
    }

    /// Withdraws everything: the connection is over.
    pub(crate) fn withdraw(&mut self) {
        self.withdraw_commands();
        self.outbox.clear();
        self.ledger.end();
        if let Some(retired) = &mut self.retired {
            retired.clear();
        }
    }
}
