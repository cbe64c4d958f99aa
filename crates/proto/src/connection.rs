//! [`Connection`]: one connection, both roles.
//!
//! It owns no socket, clock or thread. Memory that is open to the peer is the provider's until its window is closed; memory of
//! messages is shared. A fault of the peer is counted, answered as [`ProtocolError::action`] says, and never ends more
//! than this connection.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{
    Buffer, Capabilities, Completion, Disconnected, PostErrorKind, Status, Windows, Work, WrId,
};
use rpcrdma_xdr::{Padding, Stream};

use crate::agreement::{Agreement, BelowBasic};
use crate::call::{Call, CallId, Refused, RefusedKind};
use crate::characteristics::exchange::{Effect, Exchanges, Operation, Progress};
use crate::characteristics::{
    Characteristic, Characteristics, NotExchanged, Notice, OPERATION_RECEIVES, ReverseSupport,
};
use crate::compatibility::{AlignmentBase, PaddedMessages};
use crate::config::{Config, Side};
use crate::core::{Core, Origin};
use crate::credits::{RequesterCredits, ResponderCredits};
use crate::error::{Action, ProtocolError, Taken};
use crate::event::{Answer, CloseReason, Event, Post, ReplyToken};
use crate::private_data::{PrivateData, Thresholds};
use crate::reads::Owner;
use crate::requester::{Received, Requester};
use crate::responder::{CALL, REPLY, ReceivedCall, Responder, rpc_prefix};
use crate::stats::Stats;
use crate::timers::{after, earlier};
use crate::versions::FIRST_MESSAGE;
use crate::wire::{
    self, Body, ChunkLists, Codec, Direction, ErrorBody, Exchange, Fixed, Invalidation, Profile, Rules,
};

/// The XID of the first operation on characteristics. Those of Calls begin anywhere; whichever is in use is passed over.
const FIRST_OPERATION: u32 = 0x8000_0000;

/// One RPC-over-RDMA connection, sans I/O: a requester and a responder on one queue pair.
///
/// There are four kinds of method:
///
/// 1. *Getters* look: [`side`](Self::side), [`stats`](Self::stats), [`wants_memory`](Self::wants_memory),
///    [`in_progress`](Self::in_progress), [`thresholds`](Self::thresholds), [`agreement`](Self::agreement).
/// 2. *Commands* of the owner: [`call`](Self::call), [`abandon`](Self::abandon), [`reply`](Self::reply),
///    [`close`](Self::close), [`give_up`](Self::give_up), [`refuse`](Self::refuse), [`keep`](Self::keep),
///    [`agree`](Self::agree).
/// 3. *Input*, told as it happens: [`handle_completion`](Self::handle_completion),
///    [`handle_post_error`](Self::handle_post_error), [`handle_timeout`](Self::handle_timeout),
///    [`handle_disconnected`](Self::handle_disconnected).
/// 4. *Output*, asked for after any of 2 and 3, in this order:
///    * [`poll_transmit`](Self::poll_transmit) until `None`, each [`Post`] being given to the queue pair at once. The first
///      time before the queue pair is polled, so that the Receives are there for the first message;
///    * the queue pair's `poll`; its completions go to `handle_completion`, its end to `handle_disconnected`;
///    * [`poll_event`](Self::poll_event) until `None`. Answers and calls made meanwhile need `poll_transmit` again;
///    * [`poll_timeout`](Self::poll_timeout): when to call `handle_timeout` at the latest;
///    * [`wants_memory`](Self::wants_memory): if it says something, `poll_transmit` is called again when the domain has
///      that much memory.
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
    /// The conversation about characteristics, where the version has it.
    exchanges: Option<Exchanges>,
    /// No answer has left in a version whose thresholds hold after the first.
    first_answer_due: bool,
    /// The XID of the next operation.
    next_operation: u32,
}

/// How far a connection has come with its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// A server's, before the first message. Calls of its own wait until then, or until this time.
    Open(Instant),
    /// A client's: the peer has not shown yet that it speaks it.
    Offered,
    Settled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The owner said close; the queue pair has been told, and shall have ended by then.
    Closing(Instant),
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
        let shared = shared.saturating_sub(operations);
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
        let requester = Requester::new(credits, capabilities.max_windows);
        let responder = Responder::new(ResponderCredits::new(config.grant.min(most), early.min(most)));
        let config = fit_limits(config, capabilities);
        let several = config.versions.codecs().count() > 1;
        let core = Core::new(config, side, codec, thresholds, peer.send_size, invalidate, capabilities);
        let mut connection = Self {
            core,
            requester,
            responder,
            state: State::Open,
            agreeable,
            ended: false,
            last_activity: now,
            kept: false,
            version: Version::Settled,
            announced: (thresholds, invalidate),
            exchanges: None,
            first_answer_due: false,
            next_operation: FIRST_OPERATION,
        };
        connection.speak(codec);
        if side == Side::Server && several {
            let wait = connection.core.config.timeouts.first_message;
            connection.version = Version::Open(after(now, wait));
        }
        connection
    }

    /// Speaks another version from now on: nothing but a message that was refused for its version has passed. A client's
    /// first message has to fit what every peer takes (version-two-01 §5).
    pub(crate) fn speak(&mut self, codec: &'static dyn Codec) {
        self.core.codec = codec;
        self.exchanges = None;
        self.core.peer_reverse = None;
        let (thresholds, invalidate) = self.announced;
        if codec.rules().profile.is_none() {
            self.core.thresholds = thresholds;
            self.core.invalidate_peer = invalidate;
            self.version = Version::Settled;
        } else {
            self.core.thresholds = Thresholds { send: FIRST_MESSAGE, receive: FIRST_MESSAGE };
            self.core.invalidate_peer = false;
            self.version = Version::Offered;
        }
        self.core.send_earlier = self.core.thresholds.send;
    }

    /// Both sides speak the version: from now on its thresholds hold, and its characteristics can be exchanged.
    fn settle(&mut self) {
        self.version = Version::Settled;
        let Some(profile) = self.core.codec.rules().profile else { return };
        let config = &self.core.config;
        let reverse = if config.reverse_chunks { ReverseSupport::General } else { ReverseSupport::Inline };
        let (size, invalidate) = (self.core.receive_len(), self.core.may_invalidate);
        let mut exchanges = Exchanges::new(profile, config, size, reverse, invalidate);
        // A server answers with its own.
        if self.core.side == Side::Client {
            exchanges.begin();
        }
        self.exchanges = Some(exchanges);
        self.first_answer_due = self.core.side == Side::Server;
        tracing::debug!(side = %self.core.side, version = self.core.codec.rules().name, "version settled");
        self.follow_characteristics();
    }

    /// Makes what was told hold.
    fn follow_characteristics(&mut self) {
        let Some(exchanges) = &self.exchanges else { return };
        let rules = self.core.codec.rules();
        let own = self.core.config.send_size.max(rules.default_inline);
        let (mut send, mut earlier) = exchanges.send(own, rules.largest_inline);
        // version-two-01 §5.1: the defaults hold after the first answer.
        if self.first_answer_due {
            (send, earlier) = (FIRST_MESSAGE, FIRST_MESSAGE);
        }
        self.core.thresholds = Thresholds { send, receive: exchanges.receive() };
        self.core.send_earlier = earlier;
        let peer = exchanges.peer();
        self.core.peer_reverse = Some(peer.reverse);
        self.core.invalidate_peer = self.core.may_invalidate
            && match rules.invalidation {
                Invalidation::Characteristic => peer.remote_invalidation,
                Invalidation::PerCall => true,
                Invalidation::PrivateData => self.announced.1,
            };
    }

    /// The codec in use.
    pub(crate) fn codec(&self) -> &'static dyn Codec {
        self.core.codec
    }

    /// The version spoken; `None` as long as a server has had no message that says it, or a client none that confirms it.
    #[must_use]
    pub fn version(&self) -> Option<&'static Rules> {
        (self.version == Version::Settled).then(|| self.core.codec.rules())
    }

    /// What the peer has told of itself; the defaults, as long as it has told nothing. `None` where the version has no
    /// characteristics.
    #[must_use]
    pub fn peer_characteristics(&self) -> Option<&Characteristics> {
        self.exchanges.as_ref().map(Exchanges::peer)
    }

    /// What holds on this side.
    #[must_use]
    pub fn characteristics(&self) -> Option<&Characteristics> {
        self.exchanges.as_ref().map(Exchanges::ours)
    }

    /// Whether the peer exchanges characteristics; `None` as long as it has not shown it.
    #[must_use]
    pub fn exchanges_characteristics(&self) -> Option<bool> {
        self.exchanges.as_ref().and_then(Exchanges::is_exchanged)
    }

    /// Asks the peer to change characteristics (xcharext-02 §4.2). What becomes of it comes as
    /// [`Notice::Answered`] with this number, and perhaps [`Notice::Completed`].
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn ask(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        let allowed = self.core.config.limits.characteristics;
        let exchanges = self.exchanges.as_mut().ok_or(NotExchanged::NotSpoken)?;
        let request = exchanges.ask(want, allowed)?;
        self.follow_characteristics();
        Ok(request)
    }

    /// Changes a characteristic of ours, and tells the peer. A larger receive size takes effect when the last smaller Receive
    /// has been used (xcharext-02 §3.1); [`Notice::Own`] says when.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn change(&mut self, value: Characteristic) -> Result<(), NotExchanged> {
        let exchanges = self.exchanges.as_mut().ok_or(NotExchanged::NotSpoken)?;
        let effect = exchanges.change(value)?;
        self.carry_out(effect);
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) {
        if let Effect::PostReceivesOf(size) = effect {
            self.core.resize_receives(usize::try_from(size).unwrap_or(usize::MAX));
        }
    }

    /// How far both sides have come.
    fn progress(&self) -> Progress {
        let lowering = self.exchanges.as_ref().is_some_and(Exchanges::is_lowering);
        let (ours, theirs) = (&self.requester.credits, &self.responder.credits);
        Progress {
            calls: ours.sent(),
            oldest: if lowering { self.requester.oldest() } else { None },
            answered: ours.answered(),
            received: theirs.accepted(),
            finished: theirs.finished(),
            granted: u64::from(theirs.highest()),
        }
    }

    /// Whether anything is to be done about characteristics. Asked with every message, so it does not look far.
    fn has_operation(&mut self) -> bool {
        if self.first_answer_due && self.responder.credits.finished() > 0 {
            self.first_answer_due = false;
            self.follow_characteristics();
        }
        self.exchanges.as_ref().is_some_and(Exchanges::has_something_to_do)
    }

    /// Goes on with changes, and sends what is to be said about characteristics if that may leave; `false` if nothing was.
    fn transmit_operation(&mut self, may_leave: bool) -> bool {
        let progress = self.progress();
        let Some(exchanges) = &mut self.exchanges else { return false };
        let effect = exchanges.advance(progress, self.core.receives.least_earlier(), &mut self.core.events);
        let next = if may_leave { exchanges.next(progress) } else { None };
        self.carry_out(effect);
        let sent = next.is_some();
        if let Some(Operation { direction, xid, body }) = next {
            let xid = xid.unwrap_or_else(|| self.operation_xid(&body));
            let credit = match direction {
                Direction::Call => self.requester.credits.requested(),
                Direction::Reply => self.responder.credits.highest(),
            };
            tracing::debug!(side = %self.core.side, xid = format_args!("{xid:#010x}"), ?body, "operation");
            let header = self.core.header(direction, xid, credit, body);
            self.core.send(&header, &Stream::new(), None, true);
            self.core.stats.operations_sent += 1;
        }
        self.follow_characteristics();
        sent
    }

    /// An XID for an operation of ours: of the same space as those of our Calls (version-two-01 §4.2.2).
    fn operation_xid(&mut self, body: &Body) -> u32 {
        let xid = loop {
            let xid = self.next_operation;
            self.next_operation = xid.wrapping_add(1);
            if !self.requester.knows(xid) {
                break xid;
            }
        };
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.sent_under(xid, matches!(body, Body::Exchange(Exchange::Request { .. })));
        }
        xid
    }

    /// Takes an operation of the peer.
    fn handle_operation(&mut self, now: Instant, fixed: Fixed, exchange: Exchange) {
        let (progress, limit) = (self.progress(), self.core.config.limits.operations);
        let Some(exchanges) = &mut self.exchanges else { return };
        self.core.stats.operations_received += 1;
        tracing::debug!(side = %self.core.side, ?exchange, "operation received");
        let mut faults = Vec::new();
        let events = &mut self.core.events;
        let effect = exchanges.handle(fixed.xid, exchange, progress, limit, events, &mut faults);
        for fault in faults {
            self.core.stats.fault(&fault);
        }
        match effect {
            Ok(effect) => self.carry_out(effect),
            Err(error) => self.refuse_operation(now, fixed, error),
        }
        self.follow_characteristics();
    }

    /// An operation cannot be used (version-two-01 §3.1, xcharext-02 §2.1).
    fn refuse_operation(&mut self, now: Instant, fixed: Fixed, error: ProtocolError) {
        let answer = error.action(Taken::AsCall) == Action::Answer;
        match &mut self.exchanges {
            Some(exchanges) if answer => {
                tracing::debug!(side = %self.core.side, %error, "operation refused");
                self.core.stats.fault(&error);
                exchanges.refuse(fixed.xid, self.core.codec.refusal(&error));
            }
            _ => self.fault(now, error, Taken::AsCall, Some(fixed)),
        }
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
        let theirs = usize::try_from(self.responder.in_progress()).unwrap_or(usize::MAX);
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

    /// Room that the domain must have before more can be done, for
    /// [`poll_room`](rpcrdma_verbs::ProtectionDomain::poll_room); `None` if nothing waits for memory.
    #[must_use]
    pub fn wants_memory(&self) -> Option<usize> {
        // Nothing more is asked of a connection that ends: its driver would go round and round for it (rule I6).
        let goes_on = self.state == State::Open && !self.ended;
        let halves = self.requester.wants_memory.max(self.responder.wants_memory);
        halves.max(self.core.reads.wants_memory()).filter(|_| goes_on)
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
        self.requester.knows(xid) || self.exchanges.as_ref().is_some_and(|exchanges| exchanges.knows(xid))
    }

    #[cfg(test)]
    pub(crate) const fn receives_posted(&self) -> u32 {
        self.core.receives.posted()
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

    /// Whether a Call of the peer waits for its answer.
    pub(crate) fn has_call(&self, token: ReplyToken) -> bool {
        self.responder.has_call(token)
    }

    /// Takes a call. It waits for credits, windows and memory as long as its time allows; it is never refused for them.
    ///
    /// # Errors
    /// [`Refused`], with the call given back: XID in use or not that of the message, or closed.
    pub fn call(&mut self, now: Instant, call: Call) -> Result<CallId, Refused> {
        if self.state != State::Open || self.core.failure.is_some() {
            return Err(Refused { kind: RefusedKind::Closed, call: Box::new(call) });
        }
        if self.exchanges.as_ref().is_some_and(|exchanges| exchanges.knows(call.xid)) {
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
        self.requester.abandon(&self.core, now, id);
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

    fn close_for(&mut self, now: Instant, reason: CloseReason) {
        if self.state == State::Open && self.core.failure.is_none() {
            // What was not sent is for the next connection, unless there shall be none.
            if reason == CloseReason::Local {
                self.requester.fail_all_queued(&mut self.core);
            }
            self.core.failure = Some(reason);
            self.state = State::Closing(after(now, self.core.config.timeouts.close));
            self.core.post_command(Post::Disconnect);
        }
    }

    /// A request or Receive of ours has completed, or a window was flushed.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        if self.state == State::Closed {
            return;
        }
        let Completion { id, status, work } = completion;
        // What is flushed must not be posted again: that would go on for ever.
        self.ended |= status == Status::Flushed;
        if let Work::WindowFlushed { key, memory } = work {
            if let Some(xid) = self.requester.window_closed(key, Some(memory)) {
                self.requester.complete_if_closed(&mut self.core, xid);
            }
            return;
        }
        let Some(origin) = self.core.complete(id) else { return };
        match (origin, work) {
            (Origin::Receive, Work::Receive { buffers, len, invalidated, .. }) => {
                let message = status.is_success().then(|| self.join(buffers, len));
                let invalidated = invalidated.map(|(key, memory)| {
                    let xid = message
                        .as_ref()
                        .and_then(|message| Fixed::decode(message).ok())
                        .map(|fixed| fixed.xid);
                    let foreign = xid.filter(|xid| self.requester.belongs_to_other(key, *xid));
                    (self.requester.window_closed(key, Some(memory)), foreign)
                });
                if let Some((Some(owner), foreign)) = invalidated {
                    self.requester.count_remote(&mut self.core, owner);
                    if let Some(xid) = foreign {
                        self.fault(now, ProtocolError::ForeignInvalidation { xid }, Taken::AsReply, None);
                    }
                }
                match message {
                    Some(message) => self.handle_message(now, message),
                    None => self.work_failed(status),
                }
                // It may have been the last window of a call that has its answer already.
                if let Some((Some(owner), _)) = invalidated {
                    self.requester.complete_if_closed(&mut self.core, owner);
                    self.responder.window_freed();
                }
            }
            (Origin::Invalidate { xid, window, key }, Work::LocalInvalidate { memory }) => {
                if status.is_success() || memory.is_some() {
                    self.requester.handle_invalidated(&mut self.core, xid, (window, key), memory);
                    self.responder.window_freed();
                } else if status != Status::Flushed {
                    // Rule I2: the connection ends before the call does.
                    self.core.fail(CloseReason::InvalidationFailed);
                }
            }
            (Origin::Read { owner, chunk, part }, Work::Read { sink }) => {
                if let Owner::Call(token) = owner {
                    self.responder.note_read(token, status);
                }
                let pulled = self.core.handle_read(owner, (chunk, part), status, sink);
                match (owner, pulled) {
                    (Owner::Reply(xid), Some(pulled)) => {
                        self.requester.handle_pulled(&mut self.core, now, xid, pulled);
                    }
                    (Owner::Call(token), Some(pulled)) => {
                        self.responder.handle_pulled(&mut self.core, token, pulled);
                    }
                    (_, None) => {}
                }
            }
            (Origin::Conceal { token, key }, Work::LocalInvalidate { memory }) => {
                if status.is_success() || memory.is_some() {
                    self.responder.concealed(&mut self.core, token, key);
                    self.requester.window_freed();
                } else if status != Status::Flushed {
                    self.core.fail(CloseReason::InvalidationFailed);
                }
            }
            (Origin::Release, Work::LocalInvalidate { .. }) => self.requester.reservation_released(),
            _ => self.work_failed(status),
        }
    }

    /// Anything that ends the connection by itself is only noted; what remains is a fault that must end it.
    fn work_failed(&mut self, status: Status) {
        if !matches!(status, Status::Success | Status::Flushed) {
            self.core.fail(CloseReason::WorkFailed(status));
        }
    }

    /// A request or Receive could not be posted. After [`PostErrorKind::Disconnected`] the end of the queue pair is awaited.
    pub fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
        self.core.complete(id);
        if *kind == PostErrorKind::Disconnected {
            self.ended = true;
        } else {
            tracing::debug!(side = %self.core.side, %kind, "request not posted");
            self.core.fail(CloseReason::WorkFailed(Status::Fatal));
        }
    }

    /// Time has passed; harmless when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Closed {
            return;
        }
        self.core.handle_read_timeout(now);
        self.requester.handle_timeout(&mut self.core, now);
        self.responder.handle_timeout(&mut self.core, now);
        if let State::Closing(deadline) = self.state
            && deadline <= now
        {
            self.abort();
        }
        if self.first_message_due().is_some_and(|deadline| deadline <= now) {
            self.speak(&wire::v1::V1);
        }
        if self.idle_deadline().is_some_and(|deadline| deadline <= now) {
            self.close_for(now, CloseReason::Idle);
        }
    }

    fn abort(&mut self) {
        self.state = State::Aborting;
        self.core.withdraw_commands();
        self.core.post_command(Post::Abort);
    }

    /// Until when a Call of a server waits for the client to say the version.
    fn first_message_due(&self) -> Option<Instant> {
        match self.version {
            Version::Open(until) if self.requester.has_queued() && self.core.config.versions.has_one() => {
                Some(until)
            }
            _ => None,
        }
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let idle = self.core.config.timeouts.idle?;
        let busy = self.in_progress() > 0 || self.responder.exposes() || self.kept;
        (self.state == State::Open && !busy).then(|| after(self.last_activity, idle))
    }

    /// The queue pair has reported its end, after all its completions.
    pub fn handle_disconnected(&mut self, reason: Disconnected) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.responder.handle_disconnected(&reason, self.core.reads.sole());
        self.core.reads.clear();
        let reason = self.core.failure.take().unwrap_or(CloseReason::Link(reason));
        self.core.withdraw();
        self.requester.handle_disconnected(&mut self.core, &reason);
        tracing::debug!(side = %self.core.side, %reason, "connection closed");
        if self.exchanges.is_some() {
            self.core.events.push_back(Event::Characteristics(Notice::Ended));
        }
        self.core.events.push_back(Event::Closed(reason));
    }

    /// The next thing for the queue pair, in order; `None` when there is nothing to post now. Messages are planned and
    /// encoded here.
    pub fn poll_transmit(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post> {
        loop {
            if self.state == State::Closed {
                return None;
            }
            if self.core.failure.is_some() && self.state == State::Open {
                self.abort();
            }
            // A queue pair that takes nothing any more can still be told to end at once (rule I6).
            if self.ended && self.state != State::Aborting {
                return None;
            }
            if let Some(post) = self.core.take_post() {
                return Some(post);
            }
            if !self.core.is_idle() || self.state != State::Open {
                return None;
            }
            let operations = self.exchanges.as_ref().map_or(0, Exchanges::receives_owed);
            let in_flight = self.requester.credits.in_flight().saturating_add(operations);
            let owed = self.responder.receives_owed();
            let missing = self.core.post_receives(owed.saturating_add(in_flight), qp.domain());
            if !self.core.is_idle() {
                continue;
            }
            // What answers a request needs a Receive, and what is told is to be had before the Calls that rely on it.
            if self.has_operation() && self.transmit_operation(missing == 0) {
                continue;
            }
            // A server's own Calls wait until the client has said which version is spoken.
            let speaks = !matches!(self.version, Version::Open(_));
            let progress =
                self.responder.transmit(&mut self.core, now, (in_flight, self.requester.windows()), qp)
                    || self.read_on(now, qp)
                    || (speaks
                        && self.requester.transmit(&mut self.core, now, owed.saturating_add(operations), qp));
            if self.responder.has_lost_a_reply() {
                self.close_for(now, CloseReason::ReplyLost);
            }
            if !progress {
                if missing > 0 && self.responder.wants_memory.is_none() {
                    self.responder.wants_memory = Some(self.core.receive_room());
                }
                if self.core.is_idle() {
                    return None;
                }
            }
        }
    }

    /// Reads more of the peer's messages; `false` if nothing can be done now.
    fn read_on(&mut self, now: Instant, qp: &dyn Windows) -> bool {
        // What is answered makes room for what comes next, not the other way round.
        if self.responder.wants_memory.is_some() {
            return false;
        }
        match self.core.read_on(now, qp) {
            Ok(progress) => progress,
            Err((Owner::Reply(xid), error)) => {
                self.requester.handle_unreadable(&mut self.core, now, xid, error);
                true
            }
            Err((Owner::Call(token), _)) => {
                self.responder.handle_unreadable(&mut self.core, token);
                true
            }
        }
    }

    /// The next event; `None` when there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` if nothing is timed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            State::Open => earlier(self.idle_deadline(), self.first_message_due()),
            State::Closing(deadline) => Some(deadline),
            State::Aborting | State::Closed => None,
        };
        let halves = earlier(self.requester.poll_timeout(), self.responder.poll_timeout());
        earlier(state, earlier(halves, self.core.reads.poll_timeout()))
    }

    /// The bytes of a received message; copied together only if they came in several Buffers.
    fn join(&mut self, mut buffers: Vec<Buffer>, len: usize) -> Bytes {
        if let [buffer] = buffers.as_mut_slice() {
            buffer.truncate(len);
            return buffers.pop().map(Buffer::freeze).unwrap_or_default();
        }
        let mut message = BytesMut::with_capacity(len);
        for buffer in &buffers {
            let left = len - message.len();
            message.extend_from_slice(buffer.get(..left.min(buffer.len())).unwrap_or_default());
        }
        self.core.stats.copied(rpcrdma_xdr::CopyCount { inline: message.len(), payload: 0 });
        message.freeze()
    }

    /// How a message without a known direction is taken (RFC 8167 §4.1).
    const fn usually(&self) -> Taken {
        match self.core.side {
            Side::Server => Taken::AsCall,
            Side::Client => Taken::AsReply,
        }
    }

    /// How a message is taken whose lists are beyond our bounds. Nothing behind them was looked at; but where no reply is
    /// awaited it can only be a Call, which its Requester wants to know refused (RFC 8167 §5.3).
    fn taken_over_bounds(&self, error: &ProtocolError, xid: u32) -> Taken {
        let over_bounds = matches!(
            error,
            ProtocolError::TooManyReadSegments { .. }
                | ProtocolError::TooManySegments { .. }
                | ProtocolError::TooManyWriteChunks { .. }
                | ProtocolError::ReadSegmentTooLong { .. }
                | ProtocolError::ReadListTooLong { .. }
        );
        if over_bounds && !self.requester.awaits(xid) { Taken::AsCall } else { self.usually() }
    }

    fn handle_message(&mut self, now: Instant, message: Bytes) {
        if self.state != State::Open || self.core.failure.is_some() {
            return;
        }
        self.last_activity = now;
        let fixed = match Fixed::decode(&message) {
            Ok(fixed) => fixed,
            Err(error) => return self.fault(now, error, self.usually(), None),
        };
        let codec = match self.version {
            // An RDMA_ERROR is read whatever its version, and never answered.
            Version::Open(_) if fixed.procedure == wire::RDMA_ERROR => self.core.codec,
            // The peer says it (version-two-01 §5.3).
            Version::Open(_) => match self.core.config.versions.codec(fixed.version) {
                Some(codec) => {
                    // What is wrong with it is said in its version (RFC 8166 §4.5).
                    self.core.codec = codec;
                    codec
                }
                None => {
                    let error = ProtocolError::UnsupportedVersion { version: fixed.version };
                    return self.fault(now, error, self.usually(), Some(fixed));
                }
            },
            Version::Offered | Version::Settled => self.core.codec,
        };
        let decoded = codec.decode(&message, &self.core.config.limits);
        if matches!(self.version, Version::Open(_)) && decoded.is_ok() && fixed.procedure != wire::RDMA_ERROR
        {
            self.speak(codec);
            self.settle();
        }
        let (header, header_len) = match decoded {
            Ok(decoded) => decoded,
            Err(ProtocolError::UnsupportedVersion { version })
                if self.version == Version::Settled && self.core.config.versions.codec(version).is_some() =>
            {
                let used = self.core.codec.rules().version;
                let error = ProtocolError::VersionChanged { version, used };
                return self.fault(now, error, self.usually(), Some(fixed));
            }
            Err(error) if self.exchanges.is_some() && error.is_of_operation() => {
                return self.refuse_operation(now, fixed, error);
            }
            Err(error) => {
                let taken = self.taken_over_bounds(&error, fixed.xid);
                return self.fault(now, error, taken, Some(fixed));
            }
        };
        let len = message.len();
        // Not an ERR_VERS, and nothing from before the version was changed.
        if self.version == Version::Offered && !matches!(header.body, Body::Error(_)) {
            self.settle();
        }
        let (lists, payload, padded) = match header.body {
            Body::Message(lists) => (lists, Some(message.slice(header_len..)), None),
            Body::NoMessage(lists) => (lists, None, None),
            Body::Padded { align, threshold, lists } => {
                (lists, Some(message.slice(header_len..)), Some((align, threshold)))
            }
            Body::Done => {
                // RFC 8166 §4.6.2
                if let Err(error) = self.responder.handle_done(&mut self.core, now, header.xid) {
                    self.fault(now, error, Taken::AsReply, None);
                }
                return;
            }
            // No version that a connection speaks has them.
            Body::Middle { .. } | Body::Grant => {
                let error = ProtocolError::UnknownProcedure { procedure: fixed.procedure };
                return self.fault(now, error, self.usually(), Some(fixed));
            }
            Body::Exchange(exchange) => return self.handle_operation(now, fixed, exchange),
            Body::Error(error) => {
                if let Some(exchanges) =
                    self.exchanges.as_mut().filter(|exchanges| exchanges.knows(header.xid))
                {
                    exchanges.handle_refusal(&mut self.core.events);
                    self.core.stats.operations_refused += 1;
                    return self.follow_characteristics();
                }
                let taken =
                    self.requester.handle_error(&mut self.core, now, header.xid, header.credit, error);
                if let Err(error) = taken {
                    self.fault(now, error, Taken::AsReply, None);
                }
                return;
            }
        };
        let xid = header.xid;
        // The direction first: a fault of a reply is never answered, one of a Call always (RFC 8166 §4.5).
        let taken = match self.direction(xid, header.direction, &lists, payload.as_deref()) {
            Ok(taken) => taken,
            Err((error, taken)) => return self.fault(now, error, taken, Some(fixed)),
        };
        let padding = match self.forms(&lists, padded, header_len) {
            Ok(padding) => padding,
            Err(error) => return self.fault(now, error, taken, Some(fixed)),
        };
        match taken {
            Taken::AsReply => {
                let received = Received { xid, credit: header.credit, lists, payload, padding, len };
                match self.requester.handle_reply(&mut self.core, now, received) {
                    Ok(()) => self.rpc_taken(),
                    Err(error) => self.fault(now, error, Taken::AsReply, None),
                }
            }
            Taken::AsCall => {
                if !self.admit(now, Some(header.credit)) {
                    return;
                }
                self.rpc_taken();
                let call = ReceivedCall { xid, lists, invalidate: header.invalidate, payload, padding, len };
                if let Err(error) = self.responder.handle_call(&mut self.core, now, call) {
                    self.refuse_call(now, error, fixed);
                }
            }
        }
    }

    /// Whether the retired forms of a message are taken; what is skipped in it, if it is an RDMA_MSGP of these words.
    fn forms(
        &self,
        lists: &ChunkLists,
        padded: Option<(u32, u32)>,
        header: usize,
    ) -> Result<Option<Padding>, ProtocolError> {
        if lists.has_padding() && !self.core.config.compatibility.padding_segments {
            return Err(ProtocolError::PaddingSegment);
        }
        if let Some(position) = lists.pad_chunk().filter(|_| !self.core.config.compatibility.pad_chunks) {
            return Err(ProtocolError::UnalignedPosition { position });
        }
        padded.map_or(Ok(None), |(align, threshold)| self.padding(align, threshold, header))
    }

    /// A Call or reply was taken: operations on characteristics are counted between those.
    fn rpc_taken(&mut self) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.rpc_received();
        }
    }

    /// What is skipped in an RDMA_MSGP, if it is taken at all (RFC 5666 §3.9, RFC 8166 §4.6.1).
    fn padding(&self, align: u32, threshold: u32, header: usize) -> Result<Option<Padding>, ProtocolError> {
        let compatibility = &self.core.config.compatibility;
        match compatibility.padded_messages {
            PaddedMessages::Refuse => Err(ProtocolError::PaddedMessage),
            PaddedMessages::AsMessage => Ok(None),
            PaddedMessages::Honour if align == 0 => Err(ProtocolError::BadAlignment { align }),
            PaddedMessages::Honour => {
                let before = match compatibility.alignment_base {
                    AlignmentBase::Send => header,
                    AlignmentBase::Payload => 0,
                };
                let wide = |value| usize::try_from(value).unwrap_or(usize::MAX);
                Ok(Some(Padding { align: wide(align), threshold: wide(threshold), before }))
            }
        }
    }

    /// The direction of a message whose header decoded (RFC 8167 §2.4.1, §4.1).
    fn direction(
        &self,
        xid: u32,
        said: Option<Direction>,
        lists: &ChunkLists,
        payload: Option<&[u8]>,
    ) -> Result<Taken, (ProtocolError, Taken)> {
        let said = said.map(Taken::from);
        let Some(payload) = payload else {
            // RFC 8166 §4.5.2
            if lists.is_empty() {
                return Err((ProtocolError::NoChunks, said.unwrap_or(self.usually())));
            }
            // version-two-01 §4.2.2
            if let Some(said) = said {
                return Ok(said);
            }
            // The direction word is not here yet: only a Call has a Position-Zero chunk, only a reply a filled Reply chunk.
            // Or a reply has, by RFC 5666 §5.1, if it is awaited; not in the reverse direction, where nothing could tell them apart.
            let exposed = self.core.reads_replies().is_some() && self.requester.awaits(xid);
            let reply = (exposed || !lists.has_position_zero())
                && (self.core.side == Side::Client
                    || (self.requester.awaits(xid)
                        && lists.reply.as_ref().is_some_and(|chunk| chunk.total() > 0)));
            return Ok(if reply { Taken::AsReply } else { Taken::AsCall });
        };
        // A reduced Call keeps its first words inline: neither XID nor direction is DDP-eligible.
        let (seen, direction) =
            rpc_prefix(payload).map_err(|error| (error, said.unwrap_or(self.usually())))?;
        // In P2 one word more stands before the lists: all that is read as they are is a word early.
        if self.core.codec.rules().profile == Some(Profile::P1) && seen == 0 && direction == xid && xid > 1 {
            let error = ProtocolError::OtherProfile { ours: Profile::P1, theirs: Profile::P2 };
            return Err((error, said.unwrap_or(self.usually())));
        }
        let taken = match direction {
            CALL => Taken::AsCall,
            REPLY => Taken::AsReply,
            value => {
                return Err((
                    ProtocolError::WrongDirection { value, expected: "Call or reply" },
                    self.usually(),
                ));
            }
        };
        // version-two-01 §4.2.2
        if let Some(header) = said.filter(|said| *said != taken) {
            let header = if header == Taken::AsCall { Direction::Call } else { Direction::Reply };
            return Err((ProtocolError::DirectionMismatch { header }, taken));
        }
        // RFC 8166 §4.2.1, §4.5.2
        if seen != xid {
            return Err((ProtocolError::XidMismatch { header: xid, payload: seen }, taken));
        }
        Ok(taken)
    }

    /// Counts a Call against the grant. RFC 8167 §4.1: what it requests is ignored if its direction is only assumed.
    fn admit(&mut self, now: Instant, requested: Option<u32>) -> bool {
        if let Some(requested) = requested {
            self.responder.credits.request(requested);
        }
        let admitted = self.responder.credits.accept();
        if !admitted {
            let granted = self.responder.credits.highest();
            self.fault(now, ProtocolError::CreditsExceeded { granted }, Taken::AsCall, None);
        }
        admitted
    }

    /// A message cannot be used. `fixed` is known if it can be answered.
    fn fault(&mut self, now: Instant, error: ProtocolError, taken: Taken, fixed: Option<Fixed>) {
        match (error.action(taken), fixed) {
            (Action::AnswerVersion | Action::Answer, Some(fixed)) => {
                if self.admit(now, None) {
                    self.refuse_call(now, error, fixed);
                }
            }
            (Action::Close, _) => {
                self.core.stats.fault(&error);
                self.core.fail(error.into());
            }
            _ => {
                tracing::debug!(side = %self.core.side, %error, "message discarded");
                self.core.stats.fault(&error);
            }
        }
    }

    /// Answers a Call that was admitted with an RDMA_ERROR.
    fn refuse_call(&mut self, now: Instant, error: ProtocolError, fixed: Fixed) {
        tracing::debug!(side = %self.core.side, xid = format_args!("{:#010x}", fixed.xid), %error, "call refused");
        let body = match error.action(Taken::AsCall) {
            // RFC 8166 §4.5.1: with the version of the request.
            Action::AnswerVersion => {
                let (low, high) = match &error {
                    ProtocolError::VersionChanged { used, .. } => (*used, *used),
                    _ => self.core.config.versions.range(),
                };
                ErrorBody::Version { low, high }
            }
            Action::Answer => self.core.codec.refusal(&error),
            Action::Discard | Action::Close => {
                self.responder.credits.finish();
                return self.fault(now, error, Taken::AsReply, None);
            }
        };
        self.core.stats.fault(&error);
        let version = if matches!(body, ErrorBody::Version { .. }) {
            fixed.version
        } else {
            self.core.codec.rules().version
        };
        self.responder.answer_error(fixed.xid, version, body);
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
