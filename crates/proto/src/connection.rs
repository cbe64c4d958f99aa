//! [`Connection`]: one connection, both roles.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `version` | which version is spoken, and when that is settled |
//! | `characteristics` | what is told, asked and changed of characteristics |
//! | `receiving` | completions, and every message of the peer on its way to the half that it is for |
//! | `halves` | the two halves for Version Two, and what is done about faults |
//! | `transmitting` | what is posted next, timers, and the end |
//!
//! It owns no socket, clock or thread. Memory that is open to the peer is the provider's until its window is closed; memory of
//! messages is shared. A fault of the peer is counted, answered as [`ProtocolError::action`](crate::ProtocolError::action) says, and never ends more
//! than this connection.

mod characteristics;
mod halves;
mod receiving;
mod transmitting;
mod version;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_verbs::{Capabilities, Progress, ProtectionDomain, Reserved};

pub(crate) use self::halves::{Arrived, Halves};
use self::version::Version;
use crate::agreement::{Agreement, BelowBasic};
use crate::call::{Call, CallId, Refused, RefusedKind};
use crate::characteristics::OPERATION_RECEIVES;
use crate::config::{Config, Side};
use crate::core::Core;
use crate::event::{Answer, CloseReason, Event, ReplyToken};
use crate::flow::{Ledger, ReceiveSize, RequesterCredits, ResponderCredits};
use crate::private_data::{PrivateData, Thresholds, announced};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::stats::Stats;
use crate::timers::{Moving, Told, after};
use crate::two::Two;
use crate::wire::Codec;
use crate::wire::two::transmission::BufferStructure;

/// One RPC-over-RDMA connection, sans I/O: a requester and a responder on one queue pair.
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
/// 3. *Input*, told as it happens: [`handle_completion`](Self::handle_completion),
///    [`handle_post_error`](Self::handle_post_error), [`handle_progress`](Self::handle_progress),
///    [`handle_timeout`](Self::handle_timeout),
///    [`handle_disconnected`](Self::handle_disconnected).
/// 4. *Output*, asked for after any of 2 and 3, in this order:
///    * [`poll_transmit`](Self::poll_transmit) until `None`, each [`Post`](crate::Post) being given to the queue pair at once. The first
///      time before the queue pair is polled, so that the Receives are there for the first message;
///    * the queue pair's `poll`; its completions go to `handle_completion`, its end to `handle_disconnected`, what its `progress`
///      tells to `handle_progress`;
///    * [`poll_event`](Self::poll_event) until `None`. Answers and calls made meanwhile need `poll_transmit` again;
///    * [`poll_timeout`](Self::poll_timeout): when to call `handle_timeout` at the latest;
///    * [`wants_memory`](Self::wants_memory): if it says something, `poll_transmit` is called again when the domain has
///      that much memory, or [`poll_receives`](Self::poll_receives) is ready.
///
/// After [`Event::Closed`] nothing more comes.
#[derive(Debug)]
pub struct Connection {
    core: Core,
    requester: Requester,
    responder: Responder,
    state: State,
    /// The thresholds that an agreement can reach at most.
    agreeable: Thresholds,
    /// The queue pair takes nothing any more; its end will be reported.
    ended: bool,
    last_activity: Instant,
    /// The owner has uses for it that are not seen here.
    kept: bool,
    version: Version,
    /// What private data came to, for versions that go by it.
    announced: (Thresholds, bool),
    /// Version Two, where it is spoken.
    two: Two,
    /// The least room by which anything goes on, as of the last time that nothing did.
    wants_memory: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The owner said close; the queue pair has been told, and shall end while what is left moves.
    Closing(Moving),
    /// The queue pair has been told to end at once.
    Aborting,
    Closed,
}

impl Connection {
    /// A connection on a queue pair that was just set up. `peer_private_data` is what came with it, complete;
    /// what we said is [`Config::private_data`].
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

    /// The same for a client that begins with another version than the highest.
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
            // What the peer counts on is what we count on (RFC 8797 §5.1).
            local.receive_size = PrivateData::default().receive_size;
            local.remote_invalidation = false;
        }
        let thresholds = Thresholds::negotiate(&local, &peer);
        // RFC 8797 §4.1: only if both sides said so, and if the provider can.
        let invalidate =
            local.remote_invalidation && peer.remote_invalidation && capabilities.remote_invalidation;
        let initial = codec.rules().initial_credits;
        // What the receive queue holds beyond those for RDMA_DONEs is shared by the two directions.
        let shared = capabilities.max_recv_wr.saturating_sub(config.receives_for_dones());
        let operations = if config.versions.profile().is_some() { OPERATION_RECEIVES } else { 0 };
        let shared = shared.saturating_sub(operations).saturating_sub(config.receives_for_messages());
        let most = u32::try_from(shared / 2).unwrap_or(u32::MAX).max(1);
        let early =
            if side == Side::Server { config.early_calls.max(initial).min(config.grant) } else { initial };
        let calls = config.calls.min(most);
        // Only a client reads replies.
        let credits = if side == Side::Client && config.compatibility.read_read.is_some() {
            RequesterCredits::with_read_read(calls, initial)
        } else {
            RequesterCredits::new(calls, initial)
        };
        let served = ResponderCredits::new(config.grant.min(most), early.min(most));
        let size = ReceiveSize {
            // What the peer was told, whatever our threshold came to.
            len: announced(config.receive_size.max(config.versions.least_receive())),
            align: config.structure().map_or(1, BufferStructure::align),
        };
        let ledger = Ledger::new(side, credits, served, size);
        let config = fit_limits(config, capabilities);
        let awaits_version = side == Side::Server && config.versions.profile().is_some();
        let two = Two::new(&config);
        let core = Core::new(config, codec, thresholds, peer.send_size, invalidate, ledger, capabilities);
        let mut connection = Self {
            core,
            requester: Requester::new(capabilities.max_windows),
            responder: Responder::new(),
            state: State::Open,
            agreeable,
            ended: false,
            last_activity: now,
            kept: false,
            version: Version::Settled,
            announced: (thresholds, invalidate),
            two,
            wants_memory: None,
        };
        connection.speak(codec);
        if awaits_version {
            let wait = connection.core.config.timeouts.first_message;
            connection.version = Version::Open(after(now, wait));
            // What credits count is known with the first message.
            connection.core.ledger.count_messages(false);
        }
        connection
    }

    /// The codec in use.
    pub(crate) fn codec(&self) -> &'static dyn Codec {
        self.core.codec
    }

    /// Which side this is.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.core.side
    }

    /// The inline thresholds.
    #[must_use]
    pub const fn thresholds(&self) -> Thresholds {
        self.core.thresholds
    }

    /// The thresholds that an agreement can reach at most: our sizes, and what the peer's private data said if it sent any.
    #[must_use]
    pub const fn agreeable(&self) -> Thresholds {
        self.agreeable
    }

    /// What was agreed on this connection; `None`: nothing, and what holds is what came with its set-up.
    #[must_use]
    pub const fn agreement(&self) -> Option<&Agreement> {
        self.core.agreement.as_ref()
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.core.stats
    }

    /// Calls in progress in both directions; those abandoned count until their memory is back.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        let theirs = usize::try_from(self.core.ledger.served_in_progress()).unwrap_or(usize::MAX);
        self.requester.in_progress().saturating_add(theirs)
    }

    /// Whether the peer may be reading the arguments of a call of ours.
    pub(crate) fn is_read(&self) -> bool {
        self.requester.is_read()
    }

    /// Fails the calls that were not sent.
    pub(crate) fn fail_queued(&mut self) {
        self.requester.fail_all_queued(&mut self.core);
    }

    /// The least room that the domain must have before more can be done, as of the last [`poll_transmit`](Self::poll_transmit) that
    /// returned `None`, for [`RoomWait`](rpcrdma_verbs::RoomWait). `None` if memory alone would not help: if nothing waits for memory, or
    /// the send queue is full.
    #[must_use]
    pub fn wants_memory(&self) -> Option<usize> {
        // Nothing more is asked of a connection that ends: its driver would go round and round for it (rule I6).
        let goes_on = self.state == State::Open && !self.ended;
        self.wants_memory.filter(|_| goes_on)
    }

    /// Ready when room for a Receive that is missing has come back to the connection, whose own it is; otherwise the task is woken
    /// then. To be asked when [`wants_memory`](Self::wants_memory) says something, beside the domain: others do not get that room,
    /// so the domain does not know of it.
    pub fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.wants_memory().is_some() { self.core.poll_receives(cx) } else { Poll::Pending }
    }

    /// XIDs of Calls whose chunks the provider could not read, because of the peer. To be given to
    /// [`refuse`](Self::refuse) of the same peer's next connection (RFC 8166 §4.5.3).
    #[must_use]
    pub fn failed_reads(&self) -> &[u32] {
        self.responder.failed_reads()
    }

    /// Answers these XIDs with ERR_CHUNK when they arrive with chunks or not, once each.
    pub fn refuse(&mut self, xids: impl IntoIterator<Item = u32>) {
        self.responder.refuse(xids);
    }

    /// Keeps to an agreement from now on, as far as it is within [`agreeable`](Self::agreeable). To be called once, before
    /// there is other traffic than the messages that agreed (RFC 5666 §6.1): what has left is not called back. A client takes
    /// Replies of the agreed size, but counts on none that is longer than what the server's private data said.
    ///
    /// # Errors
    /// [`BelowBasic`]; nothing has changed then.
    pub fn agree(&mut self, agreement: Agreement) -> Result<(), BelowBasic> {
        let Thresholds { send, receive } = self.agreeable;
        let (call, reply) = match self.core.side {
            Side::Client => (send, receive),
            Side::Server => (receive, send),
        };
        let Agreement { call_size, reply_size, .. } = agreement;
        let within =
            Agreement { call_size: call_size.min(call), reply_size: reply_size.min(reply), ..agreement };
        let agreement = within.checked()?;
        tracing::debug!(side = %self.core.side, ?agreement, "agreed");
        self.core.agree(agreement);
        Ok(())
    }

    /// Ends the connection at once: it is of no use to its owner.
    pub(crate) fn fail(&mut self, reason: CloseReason) {
        if self.state == State::Open {
            self.core.fail(reason);
        }
    }

    /// Whether a call under this XID is in progress, or abandoned and its memory not back.
    #[must_use]
    pub fn xid_in_use(&self, xid: u32) -> bool {
        self.requester.knows(xid) || self.two.knows(xid)
    }

    #[cfg(test)]
    pub(crate) const fn receives_posted(&self) -> u32 {
        self.core.ledger.receives_posted()
    }

    /// Windows of a call, and how many of them are open.
    #[cfg(test)]
    pub(crate) fn windows_of(&self, xid: u32) -> (usize, usize) {
        self.requester.windows_of(xid)
    }

    /// The first token that Calls of the peer are given.
    pub(crate) const fn number_tokens_from(&mut self, first: u64) {
        self.responder.next_token = first;
    }

    /// Whether a Call of the peer waits for its answer, or that waits to be posted.
    #[must_use]
    pub fn has_call(&self, token: ReplyToken) -> bool {
        self.responder.has_call(token)
    }

    /// Whether the answer to a Call of the peer was posted, and is not exposed. The peer has received an exposed reply when it has
    /// read it. `false` too while messages wait to leave together in one Send, since the answer may be among them.
    #[must_use]
    pub fn has_departed(&self, token: ReplyToken) -> bool {
        !self.responder.has_call(token) && !self.responder.has_exposed(token) && self.core.combine.is_empty()
    }

    /// Calls of the peer that have come.
    #[must_use]
    pub const fn calls_received(&self) -> u64 {
        self.core.ledger.calls_received()
    }

    /// A mark behind all that was posted up to now, for [`is_in_order`](Self::is_in_order).
    #[must_use]
    pub const fn posted(&self) -> u64 {
        self.core.outbox.mark()
    }

    /// Whether nothing that is posted from now on can pass an answer that had [departed](Self::has_departed) before this mark.
    /// Express Sends pass plain ones that have not completed.
    #[must_use]
    pub fn is_in_order(&self, mark: u64) -> bool {
        self.core.outbox.is_in_order(mark)
    }

    /// When this number of Calls has come ([`calls_received`](Self::calls_received)), the peer has received all answers that
    /// are [in order](Self::is_in_order) now: a peer that misses one misses all later ones.
    ///
    /// Where credits are counted per Call, a peer with `highest` credits that misses an answer has at most `highest` Calls
    /// without one. Where messages are counted, it can send no more of them than it was told.
    #[must_use]
    pub fn calls_that_prove(&self) -> u64 {
        self.core.ledger.calls_that_prove()
    }

    /// Takes a call. It waits for credits, windows and memory as long as its time allows; it is never refused for them.
    ///
    /// # Errors
    /// [`Refused`], with the call given back: XID in use or not that of the message, or closed.
    pub fn call(&mut self, now: Instant, call: Call) -> Result<CallId, Refused> {
        if self.state != State::Open || self.core.failure.is_some() {
            return Err(Refused { kind: RefusedKind::Closed, call: Box::new(call) });
        }
        if self.two.knows(call.xid) {
            let kind = RefusedKind::XidInUse(call.xid);
            return Err(Refused { kind, call: Box::new(call) });
        }
        self.last_activity = now;
        self.requester.call(&mut self.core, now, call)
    }

    /// Gives the answer of a call up: no event comes for it any more. If it has left, its memory, XID and credit stay with the
    /// connection until the reply or a timer (rule I10). Unknown ids are ignored.
    pub fn abandon(&mut self, now: Instant, id: CallId) {
        self.core.events.retain(|event| !matches!(event, Event::Reply { id: ended, .. } if *ended == id));
        self.requester.abandon(&mut self.core, now, id);
    }

    /// Answers a Call of the peer. Ignored when the connection is over.
    pub fn reply(&mut self, now: Instant, token: ReplyToken, answer: Answer) {
        self.last_activity = now;
        self.responder.reply(token, answer);
    }

    /// While it is kept the connection does not count as idle, whatever passes on it: its owner may have something to call at
    /// any time (RFC 8167 §5.4).
    pub fn keep(&mut self, now: Instant, kept: bool) {
        if self.kept && !kept {
            self.last_activity = now;
        }
        self.kept = kept;
    }

    /// Ends the connection at once, for an owner that cannot answer a Call of the peer any more.
    pub fn give_up(&mut self) {
        if self.state == State::Open {
            self.core.fail(CloseReason::Local);
        }
    }

    /// Ends the connection in order: what is posted still leaves. Calls that were not sent fail now, those in flight when the
    /// connection is over.
    pub fn close(&mut self, now: Instant) {
        self.close_for(now, CloseReason::Local);
    }

    /// Takes the share of the domain that is to be the connection's own, and room in it for Receives that the owner set aside before
    /// it accepted. They are posted first: a Receive for the first Call is there, whatever others hold of the domain (rule I3).
    /// To be called before anything else.
    pub fn provide(&mut self, share: ProtectionDomain, receives: Vec<Reserved>) {
        self.core.ledger.provide(share, receives);
    }

    /// How far data has got on the queue pair. To be told after it was polled, if the provider knows more than completions
    /// ([`QueuePair::progress`](rpcrdma_verbs::QueuePair::progress)): it then gives slow data more time.
    pub fn handle_progress(&mut self, now: Instant, progress: Progress) {
        match &mut self.core.told {
            Some(told) => told.update(now, progress),
            none => *none = Some(Told::new(now, progress)),
        }
    }

    /// The next event; `None` when there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }
}

/// A chunk is moved by one work request: it must not have more segments than the send queue has entries.
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
