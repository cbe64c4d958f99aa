//! [`Connection`]: one connection, both roles.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `version` | the version of the connection, and when it is settled |
//! | `receiving` | completions, and the dispatch of every message of the peer |
//! | `halves` | both halves for Version Two, and the handling of faults |
//! | `transmitting` | the order of work requests, timers, and the end |
//!
//! A connection owns no socket, clock or thread. The provider owns memory that is open to the peer until its window is
//! closed; memory of messages is shared. A fault of the peer is counted, and answered as
//! [`ProtocolError::action`](crate::ProtocolError::action) defines. A fault never ends more than this connection.

mod halves;
mod receiving;
mod timers;
mod transmitting;
mod version;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_verbs::{Capabilities, Progress, ProtectionDomain, Reserved, Rest};

pub(crate) use self::halves::{Halves, Outcome};
use self::version::Version;
use crate::call::{Call, CallId, Refused, RefusedKind};
use crate::core::Core;
use crate::error::CloseReason;
use crate::event::{Answer, Event, ReplyToken};
use crate::flow::{Ledger, ReceiveSize, RequesterCredits, ResponderCredits};
use crate::peer::Peer;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::settings::agreement::{Agreement, BelowBasic};
use crate::settings::config::{Config, Side};
use crate::settings::private_data::{PrivateData, Thresholds, announced};
use crate::settings::timers::{Moving, after};
use crate::stats::Stats;
use crate::two::Two;
use crate::two::characteristics::OPERATION_RECEIVES;
use crate::wire::Codec;
use crate::wire::{narrow, sized};

/// An RPC-over-RDMA connection, sans I/O: a requester and a responder on one queue pair.
///
/// There are four kinds of method:
///
/// 1. *Getters* look: [`side`](Self::side), [`stats`](Self::stats), [`wants_memory`](Self::wants_memory),
///    [`in_progress`](Self::in_progress), [`thresholds`](Self::thresholds), [`agreement`](Self::agreement),
///    [`calls_received`](Self::calls_received), [`calls_that_prove`](Self::calls_that_prove), [`posted`](Self::posted),
///    [`has_departed`](Self::has_departed), [`is_in_order`](Self::is_in_order).
/// 2. *Commands* of the owner: [`call`](Self::call), [`abandon`](Self::abandon), [`reply`](Self::reply),
///    [`close`](Self::close), [`give_up`](Self::give_up), [`refuse`](Self::refuse), [`keep`](Self::keep),
///    [`agree`](Self::agree), [`provide`](Self::provide).
/// 3. *Input*, when it happens: [`handle_completion`](Self::handle_completion),
///    [`handle_post_error`](Self::handle_post_error), [`handle_progress`](Self::handle_progress),
///    [`handle_timeout`](Self::handle_timeout),
///    [`handle_disconnected`](Self::handle_disconnected).
/// 4. *Output*, after any of 2 and 3, in this order:
///    * [`poll_transmit`](Self::poll_transmit) until `None`; each [`Post`](crate::Post) goes to the queue pair at once. The first
///      pass precedes any poll of the queue pair, so that the Receives are there for the first message;
///    * the queue pair's `poll`; its completions go to `handle_completion`, its end to `handle_disconnected`, its
///      `progress` to `handle_progress`;
///    * [`poll_event`](Self::poll_event) until `None`. Answers and calls made meanwhile need `poll_transmit` again;
///    * [`poll_timeout`](Self::poll_timeout): when to call `handle_timeout` at the latest;
///    * [`wants_memory`](Self::wants_memory): if it is set, `poll_transmit` is called again when the domain has
///      that much memory, or [`poll_receives`](Self::poll_receives) is ready.
///
/// [`Event::Closed`] is the last event.
#[derive(Debug)]
pub struct Connection {
    pub(crate) core: Core,
    requester: Requester,
    responder: Responder,
    state: State,
    /// The largest thresholds that an agreement can reach.
    agreeable: Thresholds,
    /// The queue pair accepts nothing any more; it will report its end.
    ended: bool,
    last_activity: Instant,
    /// The owner needs the connection even without traffic.
    kept: bool,
    version: Version,
    /// The outcome of private data, for versions that use it.
    announced: (Thresholds, bool),
    /// The state of Version Two, if the connection speaks it.
    pub(crate) two: Option<Box<Two>>,
    /// The least memory, bytes, that would allow progress, as of the last pass without any.
    wants_memory: Option<usize>,
    /// The last pass found nothing to post and lacks no memory, and nothing has happened since.
    pub(crate) at_rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The owner closed the connection. The queue pair is ending, and still sends what was posted.
    Closing(Moving),
    /// The queue pair has to end at once.
    Aborting,
    Closed,
}

impl Connection {
    /// Returns a connection on a queue pair that was just set up. `peer_private_data` is the peer's complete private
    /// data; [`Config::private_data`] is ours.
    #[must_use]
    pub fn new(
        side: Side,
        config: Arc<Config>,
        peer_private_data: &[u8],
        capabilities: &Capabilities,
        now: Instant,
    ) -> Self {
        let codec = config.versions.highest();
        Self::with_codec(side, config, codec, peer_private_data, capabilities, now)
    }

    /// Returns a connection that may begin with another version than the highest; otherwise like [`new`](Self::new).
    pub(crate) fn with_codec(
        side: Side,
        config: Arc<Config>,
        codec: &'static dyn Codec,
        peer_private_data: &[u8],
        capabilities: &Capabilities,
        now: Instant,
    ) -> Self {
        let said = PrivateData::find(peer_private_data);
        let peer = said.unwrap_or_default();
        let mut local = config.private_data();
        let unbounded = PrivateData { send_size: usize::MAX, receive_size: usize::MAX, ..peer };
        let agreeable = Thresholds::negotiate(&local, &said.unwrap_or(unbounded));
        if !config.announce {
            // Our expectation is the peer's without private data (RFC 8797 §5.1).
            local.receive_size = PrivateData::default().receive_size;
            local.remote_invalidation = false;
        }
        let thresholds = Thresholds::negotiate(&local, &peer);
        // RFC 8797 §4.1: only if both sides announce it, and the provider can do it.
        let invalidate =
            local.remote_invalidation && peer.remote_invalidation && capabilities.remote_invalidation;
        let initial = codec.rules().initial_credits;
        // Both directions share the receive queue beyond the entries for RDMA_DONEs.
        let shared = capabilities.max_recv_wr.saturating_sub(config.receives_for_dones());
        let operations = if config.versions.profile().is_some() { OPERATION_RECEIVES } else { 0 };
        let shared = shared.saturating_sub(operations).saturating_sub(config.receives_for_messages());
        let most = narrow(shared / 2).max(1);
        let early =
            if side == Side::Server { config.early_calls.max(initial).min(config.grant) } else { initial };
        let calls = config.calls.min(most);
        // Only a client reads replies.
        let credits = if side == Side::Client && config.has_read_read() {
            RequesterCredits::with_read_read(calls, initial)
        } else {
            RequesterCredits::new(calls, initial)
        };
        let served = ResponderCredits::new(config.grant.min(most), early.min(most));
        let size = ReceiveSize {
            // The announced size, which may exceed our threshold.
            len: announced(config.receive_size.max(config.versions.least_receive())),
            align: config.receive_align(),
        };
        let ledger = Ledger::new(side, credits, served, size);
        let config = fit_limits(config, capabilities);
        let awaits_version = side == Side::Server && config.versions.profile().is_some();
        let peer = Peer::new(thresholds, peer.send_size, invalidate, capabilities);
        let core = Core::new(config, codec, peer, ledger, capabilities);
        let mut connection = Self {
            core,
            requester: Requester::new(capabilities.max_windows),
            responder: Responder::default(),
            state: State::Open,
            agreeable,
            ended: false,
            last_activity: now,
            kept: false,
            version: Version::Settled,
            announced: (thresholds, invalidate),
            two: None,
            wants_memory: None,
            at_rest: false,
        };
        connection.speak(codec);
        if awaits_version {
            let wait = connection.core.config.timeouts.first_message;
            connection.version = Version::Awaited(after(now, wait));
            // The first message decides how credits count.
            connection.core.ledger.count_messages(false);
        }
        connection
    }

    /// Returns the codec in use.
    pub(crate) fn codec(&self) -> &'static dyn Codec {
        self.core.codec
    }

    /// Returns the side of the connection.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.core.side()
    }

    /// Returns the inline thresholds.
    #[must_use]
    pub const fn thresholds(&self) -> Thresholds {
        self.core.peer.thresholds
    }

    /// Returns the largest thresholds that an agreement can reach: our sizes, within those of the peer's private data
    /// if there is any.
    #[must_use]
    pub const fn agreeable(&self) -> Thresholds {
        self.agreeable
    }

    /// Returns the agreement on this connection; without one the values of the connection set-up hold.
    #[must_use]
    pub const fn agreement(&self) -> Option<&Agreement> {
        self.core.peer.agreement.as_ref()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Returns the number of calls in progress in both directions; abandoned calls count until their memory is back.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        let theirs = sized(self.core.ledger.served.in_progress());
        self.requester.calls.len().saturating_add(theirs)
    }

    /// Releases memory that only a burst of calls needs. The driver calls this when it has taken all events and goes to
    /// sleep, so that a server can have many idle connections.
    pub fn rest(&mut self) {
        self.core.outbox.rest();
        self.core.ledger.receives.rest();
        self.core.events.rest();
        self.responder.rest();
    }

    /// Whether the peer may be reading the arguments of a call of ours.
    pub(crate) fn is_read(&self) -> bool {
        self.requester.is_read()
    }

    /// Fails the calls that were not sent.
    pub(crate) fn fail_queued(&mut self) {
        self.at_rest = false;
        self.requester.fail_all_queued(&mut self.core);
    }

    /// Returns the least memory in bytes that the domain must have before more can be done, for
    /// [`RoomWait`](rpcrdma_verbs::RoomWait). The value is that of the last [`poll_transmit`](Self::poll_transmit) that
    /// returned `None`. `None` if memory alone would not help: nothing waits for memory, or the send queue is full.
    #[must_use]
    pub fn wants_memory(&self) -> Option<usize> {
        self.wants_memory.filter(|_| self.goes_on())
    }

    /// Whether memory is of use. A connection that ends asks for none; its driver would otherwise loop for ever (rule
    /// I6).
    fn goes_on(&self) -> bool {
        self.state == State::Open && !self.ended
    }

    /// Returns ready when the connection's own share has memory again for a missing Receive; otherwise registers the
    /// task. The driver polls this before it sleeps. The domain does not know of that memory, which no other user gets.
    pub fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.goes_on() { self.core.ledger.receives.poll_room(cx) } else { Poll::Pending }
    }

    /// Returns the XIDs of Calls whose chunks the provider could not read, because of the peer. The owner passes them
    /// to [`refuse`](Self::refuse) of the peer's next connection (RFC 8166 §4.5.3).
    #[must_use]
    pub fn failed_reads(&self) -> &[u32] {
        &self.responder.failed_reads
    }

    /// Answers these XIDs with ERR_CHUNK, once each, when they arrive with chunks.
    pub fn refuse(&mut self, xids: impl IntoIterator<Item = u32>) {
        self.at_rest = false;
        self.responder.refuse(xids);
    }

    /// Applies an agreement from now on, within [`agreeable`](Self::agreeable). The owner calls this once, before any
    /// traffic other than the messages of the agreement (RFC 5666 §6.1), since messages that have left are not
    /// recalled. A client accepts replies of the agreed size, but relies on no more than the server's private data
    /// announced.
    ///
    /// # Errors
    /// [`BelowBasic`]; nothing has changed then.
    pub fn agree(&mut self, agreement: Agreement) -> Result<(), BelowBasic> {
        self.at_rest = false;
        let Thresholds { send, receive } = self.agreeable;
        let (call, reply) = match self.core.side() {
            Side::Client => (send, receive),
            Side::Server => (receive, send),
        };
        let Agreement { call_size, reply_size, .. } = agreement;
        let within =
            Agreement { call_size: call_size.min(call), reply_size: reply_size.min(reply), ..agreement };
        let agreement = within.checked()?;
        tracing::debug!(side = %self.core.side(), ?agreement, "agreed");
        self.core.agree(agreement);
        Ok(())
    }

    /// Ends the connection at once, for an owner that has no use for it.
    pub(crate) fn fail(&mut self, reason: CloseReason) {
        self.at_rest = false;
        if self.state == State::Open {
            self.core.fail(reason);
        }
    }

    /// Whether a call under this XID is in progress, or abandoned with memory still held.
    #[must_use]
    pub fn xid_in_use(&self, xid: u32) -> bool {
        self.requester.knows(xid) || self.two.as_ref().is_some_and(|two| two.knows(xid))
    }

    #[cfg(test)]
    pub(crate) const fn receives_posted(&self) -> u32 {
        self.core.ledger.receives_posted()
    }

    /// Returns the number of windows of a call, and how many are open.
    #[cfg(test)]
    pub(crate) fn windows_of(&self, xid: u32) -> (usize, usize) {
        self.requester.windows_of(xid)
    }

    /// Sets the first token for Calls of the peer.
    pub(crate) const fn number_tokens_from(&mut self, first: u64) {
        self.responder.next_token = first;
    }

    /// Whether a Call of the peer waits for its answer, or its answer waits to be posted.
    #[must_use]
    pub fn has_call(&self, token: ReplyToken) -> bool {
        self.responder.has_call(token)
    }

    /// Whether the answer to a Call of the peer was posted, and is not exposed. The peer has received an exposed reply when
    /// it has read the data. Also `false` while messages wait to be combined, since the answer may be among them.
    #[must_use]
    pub fn has_departed(&self, token: ReplyToken) -> bool {
        !self.responder.has_call(token) && !self.core.has_exposed(token.0) && !self.core.holds_messages()
    }

    /// Returns the number of the peer's Calls received.
    #[must_use]
    pub const fn calls_received(&self) -> u64 {
        self.core.ledger.served.accepted()
    }

    /// Returns a mark after everything posted so far, for [`is_in_order`](Self::is_in_order).
    #[must_use]
    pub const fn posted(&self) -> u64 {
        self.core.outbox.mark()
    }

    /// Whether no later Send can pass an answer that had [departed](Self::has_departed) before this mark. Express Sends
    /// pass plain ones that have not completed.
    #[must_use]
    pub fn is_in_order(&self, mark: u64) -> bool {
        self.core.outbox.is_in_order(mark)
    }

    /// Returns the number of received Calls ([`calls_received`](Self::calls_received)) that proves the arrival of all
    /// answers [in order](Self::is_in_order) now. A peer that misses an answer misses all later ones.
    ///
    /// With credits per Call, a peer with `highest` credits that misses an answer has at most `highest` unanswered
    /// Calls. With credits per message, the peer can send no more than the announced limit.
    #[must_use]
    pub fn calls_that_prove(&self) -> u64 {
        self.core.ledger.calls_that_prove()
    }

    /// Accepts a call, which waits for credits, windows and memory until its deadline; these are never a reason for
    /// refusal.
    ///
    /// # Errors
    /// [`Refused`], which returns the call: the XID is in use or not that of the message, or the connection is closed.
    pub fn call(&mut self, now: Instant, call: Call) -> Result<CallId, Refused> {
        let id = self.requester.new_id(call.xid);
        self.call_as(now, id, call).map(|()| id)
    }

    /// Accepts a call under an id of the owner; otherwise like [`call`](Self::call). All calls of a connection have
    /// their ids from one source.
    pub(crate) fn call_as(&mut self, now: Instant, id: CallId, call: Call) -> Result<(), Refused> {
        self.at_rest = false;
        if self.state != State::Open || self.core.failure.is_some() {
            return Err(Refused { kind: RefusedKind::Closed, call: Box::new(call) });
        }
        if self.xid_in_use(call.xid) {
            return Err(Refused { kind: RefusedKind::XidInUse(call.xid), call: Box::new(call) });
        }
        self.last_activity = now;
        self.requester.call(&mut self.core, now, id, call)
    }

    /// Abandons a call: no event reports its end. After it has left, its memory, XID and credit stay with the
    /// connection until the reply or a timer (rule I10). Unknown ids are ignored.
    pub fn abandon(&mut self, now: Instant, id: CallId) {
        self.at_rest = false;
        self.core.events.retain(|event| !matches!(event, Event::Reply { id: ended, .. } if *ended == id));
        self.requester.abandon(&mut self.core, now, id);
    }

    /// Answers a Call of the peer; ignored when the connection is over.
    pub fn reply(&mut self, now: Instant, token: ReplyToken, answer: Answer) {
        self.at_rest = false;
        self.last_activity = now;
        self.responder.reply(token, answer);
    }

    /// Keeps the connection open even without traffic, since its owner may make calls at any time (RFC 8167 §5.4).
    pub fn keep(&mut self, now: Instant, kept: bool) {
        if self.kept && !kept {
            self.last_activity = now;
        }
        self.kept = kept;
    }

    /// Ends the connection at once, for an owner that can no longer answer a Call of the peer.
    pub fn give_up(&mut self) {
        self.at_rest = false;
        if self.state == State::Open {
            self.core.fail(CloseReason::Local);
        }
    }

    /// Ends the connection in order: posted messages still leave. Unsent calls fail now; calls in flight fail when the
    /// connection is over.
    pub fn close(&mut self, now: Instant) {
        self.close_for(now, CloseReason::Local);
    }

    /// Sets the connection's own share of the domain, with memory that the owner reserved for Receives before it
    /// accepted. The connection posts these first, so the first Call finds a Receive even in a full domain (rule I3).
    /// The owner calls this before anything else.
    ///
    /// With `credits` the share is apart from the domain of the queue pair. It [keeps](ProtectionDomain::keep) memory for
    /// all Receives of the connection under a grant of so many credits, and no grant is larger. Two credits are the least
    /// that always go on. The Receive of the last Call in progress may still hold its message, and the answer needs the
    /// next one.
    pub fn provide(&mut self, share: ProtectionDomain, mut receives: Vec<Reserved>, credits: Option<u32>) {
        self.at_rest = false;
        receives.truncate(sized(self.core.ledger.served.accepted_at_once()));
        self.core.ledger.receives.provide(share, receives, credits.is_some());
        if let Some(credits) = credits {
            self.core.ledger.served.limit(credits);
        }
    }

    /// Records the progress of data on the queue pair, which gives slow data more time. The driver calls this after
    /// each poll, if the provider reports more than completions
    /// ([`QueuePair::progress`](rpcrdma_verbs::QueuePair::progress)).
    pub fn handle_progress(&mut self, now: Instant, progress: Progress) {
        self.core.outbox.handle_progress(now, progress);
    }

    /// Returns the next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }
}

/// Limits the segments of a chunk to the entries of the send queue, since one work request moves a chunk.
fn fit_limits(config: Arc<Config>, capabilities: &Capabilities) -> Arc<Config> {
    if config.limits.segments_per_chunk <= capabilities.max_send_wr {
        return config;
    }
    let mut fitted = Config::clone(&config);
    fitted.limits.segments_per_chunk = capabilities.max_send_wr;
    Arc::new(fitted)
}

#[cfg(test)]
mod tests;
