//! [`Session`]: the client's side across connections.
//!
//! It owns the calls that wait for a connection, and the connection while there is one. When a connection is lost, calls
//! without a reply are sent again with the same XID on the next one, never on the same one (rule I8); the server's
//! reply cache recognises them. A call ends with its reply, with an error that says why there is none, or when its time is
//! up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rpcrdma_verbs::{Capabilities, Completion, Disconnected, PostErrorKind, Progress, Windows, WrId};
use rpcrdma_xdr::Encoder;

use crate::agreement::{Agreement, BelowBasic};
use crate::call::{Call, CallError, CallFailure, CallId, IncomingReply, Refused, RefusedKind, ReplyShape};
use crate::characteristics::{Characteristic, NotExchanged, Notice};
use crate::config::{Config, Side};
use crate::connection::Connection;
use crate::error::ProtocolError;
use crate::event::{Answer, CloseReason, Event, IncomingCall, Post, ReplyToken};
use crate::ids::{IdMap, IdSet};
use crate::stats::Stats;
use crate::timers::{after, earlier};
use crate::wire::{Codec, two, v1::V1};

/// NFS, version 3: the program whose NULL procedure offers a version when no call says another.
const NFS: (u32, u32) = (100_003, 3);
/// Bytes of the longest reply to a NULL Call with AUTH_NONE: with a verifier of 400 bytes (RFC 5531 §8.2).
const NULL_REPLY: usize = 24 + 400;

/// A client's calls, on one connection after the other.
///
/// The four kinds of method are those of [`Connection`], and with a connection they are used in the same order. In
/// addition:
///
/// * *Output*: [`poll_action`](Self::poll_action) until `None`, after any command or input: when to connect.
/// * *Input*: what became of it, [`connected`](Self::connected) or [`connect_failed`](Self::connect_failed).
///
/// With [`with_prelude`](Self::with_prelude) each connection begins with calls of the owner that belong to it alone
/// ([`prelude_call`](Self::prelude_call)); all others wait for [`prelude_done`](Self::prelude_done).
///
/// [`SessionEvent::Closed`] is the last event.
#[derive(Debug)]
pub struct Session {
    config: Arc<Config>,
    rng: StdRng,
    state: State,
    /// Connections begin in [`State::Prelude`].
    prelude: bool,
    /// Failures to connect in a row.
    failures: u32,
    /// Connections lost since the last answer, or since one that lasted [`Timeouts::reconnect_most`](crate::Timeouts::reconnect_most):
    /// a peer that takes connections and ends them at once is not asked more often than one that takes none.
    losses: u32,
    /// When the present connection came.
    connected_at: Option<Instant>,
    attempt: u32,
    connection: Option<Connection>,
    /// Calls without a connection, oldest first.
    waiting: BTreeMap<CallId, Waiting>,
    /// Calls that the connection has, by its names for them.
    issued: IdMap<CallId, Issued>,
    /// The connection's names for them.
    names: IdMap<CallId, CallId>,
    /// XIDs of all of those.
    xids: IdSet<u32>,
    next_id: u64,
    next_xid: u32,
    /// What the peer said that it speaks.
    versions: Option<(u32, u32)>,
    /// Until when the peer is taken for one that speaks Version One only (version-two-01 §5.2).
    fallback: Option<Instant>,
    /// The call that offers the version, by the connection's name for it.
    offer: Option<CallId>,
    events: VecDeque<SessionEvent>,
    stats: SessionStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing to do; the next call connects.
    Idle,
    /// A connection is wanted from this time on.
    Wanted(Instant),
    /// The driver is connecting; given up at this time.
    Connecting(Instant),
    /// There is a connection, and a version is offered to the peer on it until this time.
    Offering(Instant),
    /// There is a connection, for the owner alone.
    Prelude,
    Connected,
    /// The owner closed; the server may finish reading the arguments of calls, until this time.
    Draining(Instant),
    /// The owner closed; the connection is ending, if there is one.
    Closing,
    Closed,
}

#[derive(Debug)]
struct Waiting {
    call: Box<Call>,
    /// Whether it left on an earlier connection.
    sent: bool,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    id: CallId,
    xid: u32,
    deadline: Instant,
}

/// What the driver should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Connect, with [`Config::private_data`], and report the outcome with this number.
    Connect {
        /// The number.
        attempt: u32,
    },
}

/// Something for the owner of a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// A connection is up. With a prelude the owner has it to itself now.
    Connected,
    /// A connection attempt failed.
    ConnectFailed {
        /// Failures in a row.
        failures: u32,
        /// Why.
        reason: String,
    },
    /// A Call of the server, in the reverse direction.
    Call(IncomingCall),
    /// News about transport characteristics.
    Characteristics(Notice),
    /// A call of ours ended.
    Reply {
        /// Which one.
        id: CallId,
        /// Its reply, or why there is none.
        result: Result<IncomingReply, CallFailure>,
    },
    /// The connection is over; there may be another one.
    Disconnected(CloseReason),
    /// The session is over. The last event.
    Closed,
}

/// What happened to a session, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Connections that came up.
    pub connections: u64,
    /// Attempts that failed.
    pub connect_failures: u64,
    /// Calls sent again on a new connection.
    pub retransmissions: u64,
}

impl Session {
    /// A session without a connection. `entropy` comes from the system's random source: XIDs and back-off derive from it.
    #[must_use]
    pub fn new(config: Arc<Config>, entropy: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(entropy);
        let next_xid = rng.random();
        Self {
            config,
            rng,
            state: State::Idle,
            prelude: false,
            failures: 0,
            losses: 0,
            connected_at: None,
            attempt: 0,
            connection: None,
            waiting: BTreeMap::new(),
            issued: IdMap::default(),
            names: IdMap::default(),
            xids: IdSet::default(),
            next_id: 0,
            next_xid,
            versions: None,
            fallback: None,
            offer: None,
            events: VecDeque::new(),
            stats: SessionStats::default(),
        }
    }

    /// The same with a prelude on each connection.
    #[must_use]
    pub fn with_prelude(config: Arc<Config>, entropy: u64) -> Self {
        Self { prelude: true, ..Self::new(config, entropy) }
    }

    /// An XID for a new call: unpredictable at first, unique among those in use.
    pub fn next_xid(&mut self) -> u32 {
        loop {
            let xid = self.next_xid;
            self.next_xid = xid.wrapping_add(1);
            if !self.xid_in_use(xid) {
                return xid;
            }
        }
    }

    fn xid_in_use(&self, xid: u32) -> bool {
        self.xids.contains(&xid)
            || self.connection.as_ref().is_some_and(|connection| connection.xid_in_use(xid))
    }

    /// The counters of the session.
    #[must_use]
    pub const fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// The counters of the connection, if there is one.
    #[must_use]
    pub fn connection_stats(&self) -> Option<&Stats> {
        self.connection.as_ref().map(Connection::stats)
    }

    /// The connection, if there is one.
    #[must_use]
    pub const fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Versions that the peer said it speaks, when it refused ours.
    #[must_use]
    pub const fn peer_versions(&self) -> Option<(u32, u32)> {
        self.versions
    }

    /// Calls that have not ended.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.waiting.len() + self.issued.len()
    }

    /// As [`Connection::wants_memory`].
    #[must_use]
    pub fn wants_memory(&self) -> Option<usize> {
        self.connection.as_ref()?.wants_memory()
    }

    /// As [`Connection::poll_receives`].
    pub fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.as_ref().map_or(Poll::Pending, |connection| connection.poll_receives(cx))
    }

    /// Whether the connection belongs to its owner alone.
    #[must_use]
    pub fn is_prelude(&self) -> bool {
        self.state == State::Prelude
    }

    /// Asks for a connection without a call.
    pub fn connect(&mut self, now: Instant) {
        if self.state == State::Idle {
            self.state = State::Wanted(now);
        }
    }

    /// Takes a call. Without a connection it waits for one; see [`Connection::call`].
    ///
    /// # Errors
    /// [`Refused`], with the call given back.
    pub fn call(&mut self, now: Instant, call: Call) -> Result<CallId, Refused> {
        let xid = call.xid;
        if self.is_closed() {
            return Err(Refused { kind: RefusedKind::Closed, call: Box::new(call) });
        }
        if self.xid_in_use(xid) {
            return Err(Refused { kind: RefusedKind::XidInUse(xid), call: Box::new(call) });
        }
        if !call.begins_with_xid() {
            return Err(Refused { kind: RefusedKind::XidMismatch(xid), call: Box::new(call) });
        }
        let deadline = after(now, call.timeout.unwrap_or(self.config.timeouts.call));
        let id = CallId(self.next_id);
        let waiting = Waiting { call: Box::new(call), sent: false, deadline };
        self.offer(now, id, waiting)?;
        self.next_id += 1;
        self.xids.insert(xid);
        self.connect(now);
        Ok(id)
    }

    /// Makes a call that belongs to the connection: it goes before all that wait, and ends with it.
    ///
    /// # Errors
    /// [`Refused`], with the call given back; [`RefusedKind::Closed`] where no prelude is going on.
    pub fn prelude_call(&mut self, now: Instant, mut call: Call) -> Result<CallId, Refused> {
        let Some(connection) = self.connection.as_mut().filter(|_| self.state == State::Prelude) else {
            return Err(Refused { kind: RefusedKind::Closed, call: Box::new(call) });
        };
        let xid = call.xid;
        let deadline = after(now, *call.timeout.get_or_insert(self.config.timeouts.call));
        let name = connection.call(now, call)?;
        let id = CallId(self.next_id);
        self.next_id += 1;
        self.xids.insert(xid);
        self.issued.insert(name, Issued { id, xid, deadline });
        self.names.insert(id, name);
        Ok(id)
    }

    /// As [`Connection::agree`], for the present connection.
    ///
    /// # Errors
    /// [`BelowBasic`].
    pub fn agree(&mut self, agreement: Agreement) -> Result<(), BelowBasic> {
        self.connection.as_mut().map_or(Ok(()), |connection| connection.agree(agreement))
    }

    /// The prelude is over: calls that waited are sent.
    pub fn prelude_done(&mut self, now: Instant) {
        if self.state == State::Prelude {
            self.state = State::Connected;
            self.issue(now);
        }
    }

    /// The prelude has shown that the connection is of no use: it ends at once. Another one follows after a pause that grows.
    pub fn prelude_failed(&mut self, reason: String) {
        if let Some(connection) = self.connection.as_mut().filter(|_| self.state == State::Prelude) {
            connection.fail(CloseReason::Refused(reason));
        }
    }

    /// Gives a call to the connection, or keeps it until there is one.
    fn offer(&mut self, now: Instant, id: CallId, waiting: Waiting) -> Result<(), Refused> {
        let Waiting { mut call, sent, deadline } = waiting;
        let xid = call.xid;
        let Some(connection) = self.connection.as_mut().filter(|_| self.state == State::Connected) else {
            self.waiting.insert(id, Waiting { call, sent, deadline });
            return Ok(());
        };
        call.timeout = Some(deadline.saturating_duration_since(now));
        match connection.call(now, *call) {
            Ok(name) => {
                self.stats.retransmissions += u64::from(sent);
                self.issued.insert(name, Issued { id, xid, deadline });
                self.names.insert(id, name);
                Ok(())
            }
            // It is about to end: the next one takes the call.
            Err(Refused { kind: RefusedKind::Closed, call }) => {
                self.waiting.insert(id, Waiting { call, sent, deadline });
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    /// As [`Connection::abandon`].
    pub fn abandon(&mut self, now: Instant, id: CallId) {
        self.events.retain(|event| !matches!(event, SessionEvent::Reply { id: ended, .. } if *ended == id));
        if let Some(waiting) = self.waiting.remove(&id) {
            self.xids.remove(&waiting.call.xid);
        }
        if let Some(name) = self.names.remove(&id) {
            if let Some(issued) = self.issued.remove(&name) {
                self.xids.remove(&issued.xid);
            }
            if let Some(connection) = &mut self.connection {
                connection.abandon(now, name);
            }
        }
    }

    /// Answers a Call of the server. Ignored if its connection is over.
    pub fn reply(&mut self, now: Instant, token: ReplyToken, answer: Answer) {
        if let Some(connection) = &mut self.connection {
            connection.reply(now, token, answer);
        }
    }

    /// Ends the connection at once that this Call came on, if it is still there, not the session: see [`Connection::give_up`].
    /// Calls without a reply wait for the next one.
    pub fn give_up_connection(&mut self, token: ReplyToken) {
        if let Some(connection) = self.connection.as_mut().filter(|connection| connection.has_call(token)) {
            connection.give_up();
        }
    }

    /// Ends the session: calls that were not sent fail now, those in flight when the connection is over.
    ///
    /// The connection lasts while the server may be reading the arguments of a call from our memory, given up or not, for
    /// [`Timeouts::close`](crate::Timeouts::close) at the most: there are servers whose threads never come back from an RDMA
    /// Read of a connection that ended (Linux's among them).
    pub fn close(&mut self, now: Instant) {
        if self.is_closed() {
            return;
        }
        self.state = State::Draining(after(now, self.config.timeouts.close));
        self.fail_waiting(&CallError::Closed);
        if let Some(connection) = &mut self.connection {
            connection.fail_queued();
        }
        self.end_draining(now);
    }

    const fn is_closed(&self) -> bool {
        matches!(self.state, State::Draining(_) | State::Closing | State::Closed)
    }

    /// Lets the connection of a closed session end, if nothing is worth waiting for any more.
    fn end_draining(&mut self, now: Instant) {
        let State::Draining(deadline) = self.state else { return };
        let waits = self.connection.as_ref().is_some_and(Connection::is_read);
        if waits && now < deadline {
            return;
        }
        self.state = State::Closing;
        if let Some(connection) = &mut self.connection {
            connection.close(now);
        }
    }

    fn fail_waiting(&mut self, error: &CallError) {
        for (id, Waiting { call, sent, .. }) in std::mem::take(&mut self.waiting) {
            self.xids.remove(&call.xid);
            let result = Err(CallFailure { error: error.clone(), call: Some(call), sent });
            self.events.push_back(SessionEvent::Reply { id, result });
        }
    }

    /// What the driver should do now.
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        match self.state {
            State::Wanted(from) if from <= now => {
                self.attempt = self.attempt.wrapping_add(1);
                self.state = State::Connecting(after(now, self.config.timeouts.connect));
                Some(Action::Connect { attempt: self.attempt })
            }
            _ => None,
        }
    }

    /// The driver has a queue pair for this attempt. `false`: it came too late, and is to be dropped.
    #[must_use]
    pub fn connected(
        &mut self,
        now: Instant,
        attempt: u32,
        peer_private_data: &[u8],
        capabilities: &Capabilities,
    ) -> bool {
        if attempt != self.attempt || !matches!(self.state, State::Connecting(_)) {
            return false;
        }
        let config = Arc::clone(&self.config);
        let codec = self.codec(now);
        let mut connection =
            Connection::with_codec(Side::Client, config, codec, peer_private_data, capabilities, now);
        connection.number_tokens_from(u64::from(attempt) << u32::BITS);
        connection.keep(now, self.config.keep_connected);
        self.connection = Some(connection);
        self.failures = 0;
        self.connected_at = Some(now);
        self.stats.connections += 1;
        if codec.rules().two.is_some() {
            self.state = State::Offering(after(now, self.config.timeouts.offer));
            self.offer_version(now);
        } else {
            self.begin(now, self.prelude);
        }
        true
    }

    /// The connection is ready for use.
    fn begin(&mut self, now: Instant, prelude: bool) {
        self.state = if prelude { State::Prelude } else { State::Connected };
        self.events.push_back(SessionEvent::Connected);
        if !prelude {
            self.issue(now);
        }
    }

    /// The highest version that both sides speak, as far as that is known.
    fn codec(&mut self, now: Instant) -> &'static dyn Codec {
        // A peer may learn another version: what it said is not believed for ever.
        self.fallback = self.fallback.filter(|until| *until > now);
        let fallback = self.fallback.is_some();
        if !fallback {
            self.versions = None;
        }
        let known = |codec: &&'static dyn Codec| {
            let version = codec.rules().version;
            self.versions.is_none_or(|(low, high)| (low..=high).contains(&version))
                && (version == V1.rules().version || !fallback)
        };
        self.config.versions.codecs().find(known).unwrap_or_else(|| self.config.versions.highest())
    }

    /// Sends the first message of a version that the peer may not speak: a NULL Call, as it has a reply and is short
    /// (version-two-01 §5).
    fn offer_version(&mut self, now: Instant) {
        let xid = self.next_xid();
        let waiting = self.waiting.values().next();
        let (program, version) = waiting.map_or(NFS, |waiting| (waiting.call.program, waiting.call.version));
        // RFC 5531 §9: a Call of procedure 0 with AUTH_NONE.
        let mut message = Encoder::new();
        for word in [xid, 0, 2, program, version, 0, 0, 0, 0, 0] {
            message.u32(word);
        }
        let call = Call {
            xid,
            program,
            version,
            procedure: 0,
            message: message.finish(),
            reply: ReplyShape::plain(NULL_REPLY),
            flavor_touches_data: false,
            timeout: Some(self.config.timeouts.offer),
        };
        self.offer = self.connection.as_mut().and_then(|connection| connection.call(now, call).ok());
    }

    /// The peer has answered the offer, or will not.
    fn offer_ended(&mut self, now: Instant, result: Result<IncomingReply, CallFailure>) {
        self.offer = None;
        let State::Offering(_) = self.state else { return };
        let has_one = self.config.versions.has_one();
        match result {
            // Whatever the RPC reply says: it came in this version. What RFC 5666 §6 agrees on has no meaning in it.
            Ok(_) => self.begin(now, false),
            // version-two-01 §5.2: on the same connection.
            Err(CallFailure { error: CallError::Version { low, high }, .. }) => {
                self.remember(now, Some((low, high)));
                let Some(connection) = &mut self.connection else { return };
                let version = V1.rules().version;
                if has_one && (low..=high).contains(&version) {
                    tracing::debug!(low, high, "the peer speaks Version One");
                    connection.speak(&V1);
                    self.begin(now, self.prelude);
                } else {
                    let reason = format!("the peer speaks versions {low} to {high} of RPC-over-RDMA only");
                    connection.fail(CloseReason::Refused(reason));
                    self.fail_waiting(&CallError::Version { low, high });
                }
            }
            Err(CallFailure { error, .. }) => {
                if has_one {
                    self.remember(now, None);
                }
                let Some(connection) = &mut self.connection else { return };
                if let CallError::Chunk | CallError::Refused(_) = &error {
                    let name = connection.codec().rules().name;
                    let reason = format!(
                        "the peer does not understand {name} ({error}): it may speak another document of that version"
                    );
                    connection.fail(CloseReason::Refused(reason.clone()));
                    if !has_one {
                        self.fail_waiting(&CallError::ConnectionLost(CloseReason::Refused(reason)));
                    }
                } else {
                    connection.fail(CloseReason::Timeout("the answer to the first message of a version"));
                }
            }
        }
    }

    /// Until when the answer to the offer is awaited; `None` once it has ended, though its connection may be there still.
    fn offer_deadline(&self) -> Option<Instant> {
        match self.state {
            State::Offering(deadline) => self.offer.map(|_| deadline),
            _ => None,
        }
    }

    /// The peer speaks Version One only, or what it said; for some time.
    fn remember(&mut self, now: Instant, versions: Option<(u32, u32)>) {
        self.fallback = Some(after(now, self.config.timeouts.version_memory));
        self.versions = versions.or(self.versions);
    }

    /// Whether a call that has not ended left on any connection.
    #[must_use]
    pub fn was_sent(&self, id: CallId) -> bool {
        self.waiting.get(&id).is_some_and(|waiting| waiting.sent) || self.names.contains_key(&id)
    }

    /// As [`Connection::ask`], of the present connection.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn ask(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        self.connection.as_mut().map_or(Err(NotExchanged::NotSpoken), |connection| connection.ask(want))
    }

    /// As [`Connection::change`], for the present connection.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn change(&mut self, value: Characteristic) -> Result<(), NotExchanged> {
        self.connection.as_mut().map_or(Err(NotExchanged::NotSpoken), |connection| connection.change(value))
    }

    /// Gives all waiting calls to the connection, oldest first.
    fn issue(&mut self, now: Instant) {
        for (id, waiting) in std::mem::take(&mut self.waiting) {
            let sent = waiting.sent;
            if let Err(Refused { kind, call }) = self.offer(now, id, waiting) {
                tracing::debug!(%kind, "call refused by a new connection");
                self.xids.remove(&call.xid);
                let result = Err(CallFailure { error: CallError::Closed, call: Some(call), sent });
                self.events.push_back(SessionEvent::Reply { id, result });
            }
        }
    }

    /// The attempt failed. With `retry` another one follows after a pause; without, no attempt would do better, and the
    /// waiting calls fail.
    pub fn connect_failed(&mut self, now: Instant, attempt: u32, reason: String, retry: bool) {
        if attempt != self.attempt || !matches!(self.state, State::Connecting(_)) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.stats.connect_failures += 1;
        tracing::debug!(failures = self.failures, %reason, retry, "connecting failed");
        self.events
            .push_back(SessionEvent::ConnectFailed { failures: self.failures, reason: reason.clone() });
        if retry && self.config.connect_attempts.is_none_or(|most| self.failures < most) {
            self.state = State::Wanted(after(now, self.pause()));
        } else {
            let error = CallError::Unreachable { attempts: self.failures, reason };
            if retry && self.config.keep_connected {
                // The calls give up, the session does not.
                self.state = State::Wanted(after(now, self.pause()));
            } else {
                self.failures = 0;
                self.state = State::Idle;
            }
            self.fail_waiting(&error);
        }
    }

    /// The pause before the next attempt: doubled with each failure and each loss, and between half of that and all of it at
    /// random, so that the clients of a restarted server do not come back all at once.
    fn pause(&mut self) -> std::time::Duration {
        let timeouts = &self.config.timeouts;
        let doublings = self.failures.saturating_add(self.losses).saturating_sub(1).min(16);
        let longest = timeouts.reconnect_least.saturating_mul(1 << doublings).min(timeouts.reconnect_most);
        longest.mul_f64(self.rng.random_range(0.5..=1.0))
    }

    /// As [`Connection::handle_completion`].
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        if let Some(connection) = &mut self.connection {
            connection.handle_completion(now, completion);
        }
        self.end_draining(now);
    }

    /// As [`Connection::handle_post_error`].
    pub fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
        if let Some(connection) = &mut self.connection {
            connection.handle_post_error(id, kind);
        }
    }

    /// As [`Connection::handle_progress`].
    pub fn handle_progress(&mut self, now: Instant, progress: Progress) {
        if let Some(connection) = &mut self.connection {
            connection.handle_progress(now, progress);
        }
    }

    /// As [`Connection::handle_disconnected`]. What has no reply yet waits for the next connection.
    pub fn handle_disconnected(&mut self, reason: Disconnected) {
        if let Some(connection) = &mut self.connection {
            connection.handle_disconnected(reason);
        }
    }

    /// Time has passed; harmless when nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
        self.end_draining(now);
        for (id, waiting) in self.waiting.extract_if(.., |_, waiting| waiting.deadline <= now) {
            self.xids.remove(&waiting.call.xid);
            let result = Err(CallFailure::permanent(CallError::TimedOut, waiting.sent));
            self.events.push_back(SessionEvent::Reply { id, result });
        }
        if self.offer_deadline().is_some_and(|deadline| deadline <= now) {
            let error = CallError::TimedOut;
            self.offer_ended(now, Err(CallFailure { error, call: None, sent: true }));
        }
        if let State::Connecting(deadline) = self.state
            && deadline <= now
        {
            self.connect_failed(now, self.attempt, "no answer in time".to_owned(), true);
        }
    }

    /// As [`Connection::poll_transmit`]; `None` without a connection.
    pub fn poll_transmit(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post> {
        self.connection.as_mut()?.poll_transmit(now, qp)
    }

    /// The next event; `None` when there is none. After [`SessionEvent::Disconnected`] the queue pair is of no use any more.
    pub fn poll_event(&mut self, now: Instant) -> Option<SessionEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Some(event) = self.connection.as_mut().and_then(Connection::poll_event) else {
                self.end_draining(now);
                if self.connection.is_none() && self.state == State::Closing {
                    self.state = State::Closed;
                    return Some(SessionEvent::Closed);
                }
                return None;
            };
            match event {
                // No sign that the connection is of use: a server may accept, call and leave, again and again.
                Event::Call(call) => return Some(SessionEvent::Call(call)),
                Event::Characteristics(notice) => return Some(SessionEvent::Characteristics(notice)),
                Event::Reply { id, result } if self.offer == Some(id) => self.offer_ended(now, result),
                Event::Reply { id, result } => {
                    if let Some(event) = self.reply_event(id, result) {
                        return Some(event);
                    }
                }
                Event::Closed(reason) => {
                    self.connection = None;
                    self.offer = None;
                    if matches!(
                        reason,
                        CloseReason::Protocol(ProtocolError::Two(two::Error::CombinedRefused))
                    ) {
                        // It is an experiment, whose numbers may mean something else to this peer.
                        let config = Arc::make_mut(&mut self.config);
                        config.combined_messages = 1;
                        config.limits.combined_messages = 1;
                    }
                    // version-two-01 §5.2: the first message was lost, or its refusal was.
                    if let State::Offering(_) = self.state {
                        let wanted = self.config.keep_connected || !self.waiting.is_empty();
                        self.state = State::Idle;
                        if wanted {
                            let again = self.config.versions.has_one();
                            if again {
                                self.remember(now, None);
                            }
                            self.losses = self.losses.saturating_add(u32::from(!again));
                            let at = if again { now } else { after(now, self.pause()) };
                            self.state = State::Wanted(at);
                        }
                    }
                    if matches!(self.state, State::Connected | State::Prelude) {
                        let wanted = self.config.keep_connected || !self.waiting.is_empty();
                        let lasted = self.connected_at.map(|since| now.saturating_duration_since(since));
                        if lasted >= Some(self.config.timeouts.reconnect_most) {
                            self.losses = 0;
                        }
                        self.losses = self.losses.saturating_add(1);
                        self.state = State::Idle;
                        if wanted {
                            self.state = State::Wanted(after(now, self.pause()));
                        }
                    }
                    return Some(SessionEvent::Disconnected(reason));
                }
            }
        }
    }

    /// What becomes of a call that the connection is done with; `None` if it waits for the next one.
    fn reply_event(
        &mut self,
        name: CallId,
        result: Result<IncomingReply, CallFailure>,
    ) -> Option<SessionEvent> {
        let Issued { id, xid, deadline } = self.issued.remove(&name)?;
        self.names.remove(&id);
        // What the prelude hears does not say yet that the connection is of use.
        let answered = matches!(
            result,
            Ok(_)
                | Err(CallFailure {
                    error: CallError::Chunk | CallError::Version { .. } | CallError::Refused(_),
                    ..
                })
        );
        if answered && self.state == State::Connected {
            self.losses = 0;
        }
        match result {
            // Rule I8: not lost, but sent again on the next connection.
            Err(CallFailure { error: CallError::ConnectionLost(_), call: Some(call), sent })
                if self.state == State::Connected =>
            {
                self.waiting.insert(id, Waiting { call, sent, deadline });
                return None;
            }
            // RFC 8166 §4.5.1: the range says what to try on the next connection.
            Err(CallFailure { error: CallError::Version { low, high }, .. }) => {
                self.versions = Some((low, high));
                // There is a version that would do better, on the next connection.
                let present = self.connection.as_ref().map(|connection| connection.codec().rules().version);
                let better = |codec: &dyn Codec| {
                    let version = codec.rules().version;
                    (low..=high).contains(&version) && Some(version) != present
                };
                if self.config.versions.codecs().any(better)
                    && let Some(connection) = &mut self.connection
                {
                    self.fallback = None;
                    connection.fail(CloseReason::Refused(format!(
                        "the peer speaks versions {low} to {high} of RPC-over-RDMA only"
                    )));
                }
            }
            _ => {}
        }
        self.xids.remove(&xid);
        Some(SessionEvent::Reply { id, result })
    }

    /// When [`handle_timeout`](Self::handle_timeout) or [`poll_action`](Self::poll_action) is due; `None` if nothing is
    /// timed.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            State::Wanted(at) | State::Connecting(at) | State::Draining(at) => Some(at),
            _ => self.offer_deadline(),
        };
        let calls = self.waiting.values().map(|call| call.deadline).min();
        earlier(earlier(state, calls), self.connection.as_ref().and_then(Connection::poll_timeout))
    }
}

#[cfg(test)]
mod tests;
