//! [`Session`]: the client's side across connections.
//!
//! A session owns the calls that wait for a connection, and the present connection. When a connection is lost, its
//! calls without a reply are sent again on the next one with the same XID (rule I8). They are never sent again on the
//! same connection. The server's reply cache recognises them. A call ends with its reply, with an error that gives the
//! reason, or at its deadline.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rpcrdma_oncrpc::{CallHeader, OpaqueAuth};
use rpcrdma_verbs::{Capabilities, Completion, Disconnected, PostErrorKind, Progress, Windows, WrId};
use rpcrdma_xdr::Stream;
use thiserror::Error;

use crate::agreement::{Agreement, BelowBasic};
use crate::call::{Call, CallError, CallFailure, CallId, IncomingReply, Refused, RefusedKind, ReplyShape};
use crate::config::{Config, Side};
use crate::connection::Connection;
use crate::error::ProtocolError;
use crate::event::{Answer, CloseReason, Event, IncomingCall, Post, ReplyToken};
use crate::ids::{IdMap, IdSet};
use crate::stats::Stats;
use crate::timers::{after, earlier};
use crate::two::characteristics::Notice;
use crate::wire::{Codec, v1::V1};

/// Bytes of the longest reply to a NULL Call with AUTH_NONE: the verifier has up to 400 bytes (RFC 5531 §8.2).
const NULL_REPLY: usize = 24 + 400;

/// The calls of a client, over successive connections.
///
/// A session has the four kinds of method of [`Connection`], which are called in the same order. In addition:
///
/// * *Output*: [`poll_action`](Self::poll_action) until `None`, after any command or input, says when to connect.
/// * *Input*: [`connected`](Self::connected) or [`connect_failed`](Self::connect_failed) reports the outcome.
///
/// With [`with_prelude`](Self::with_prelude) each connection begins with calls that belong to that connection alone
/// ([`prelude_call`](Self::prelude_call)). All other calls wait for [`prelude_done`](Self::prelude_done).
///
/// [`SessionEvent::Closed`] is the last event.
#[derive(Debug)]
pub struct Session {
    config: Arc<Config>,
    rng: StdRng,
    state: State,
    /// Whether connections begin in [`State::Prelude`].
    prelude: bool,
    /// Consecutive failures to connect.
    failures: u32,
    /// Connections lost since the last answer, or since a connection that lasted
    /// [`Timeouts::reconnect_most`](crate::Timeouts::reconnect_most). They lengthen the pause like failures, against a
    /// peer that accepts connections and ends them at once.
    losses: u32,
    /// The time when the present connection came up.
    connected_at: Option<Instant>,
    attempt: u32,
    pub(crate) connection: Option<Connection>,
    /// Calls without a connection, oldest first.
    waiting: BTreeMap<CallId, Waiting>,
    /// Calls given to the connection, by the connection's ids.
    issued: IdMap<CallId, Issued>,
    /// The connection's ids of the session's calls.
    names: IdMap<CallId, CallId>,
    /// XIDs of all calls in progress.
    xids: IdSet<u32>,
    next_id: u64,
    next_xid: u32,
    /// The version range in the peer's last version error.
    versions: Option<(u32, u32)>,
    /// The program whose NULL procedure offers a version: [`Config::program`], otherwise that of the first call.
    program: Option<(u32, u32)>,
    /// End of the time in which the session counts on Version One only (version-two-01 §5.2).
    fallback: Option<Instant>,
    /// The call that offers the version, by the connection's id.
    offer: Option<CallId>,
    events: VecDeque<SessionEvent>,
    stats: SessionStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No connection; the next call connects.
    Idle,
    /// A connection is wanted from this time on.
    Wanted(Instant),
    /// The driver is connecting; the attempt fails at this time.
    Connecting(Instant),
    /// A connection is up, and offers a version to the peer until this time.
    Offering(Instant),
    /// A connection is up, for prelude calls only.
    Prelude,
    Connected,
    /// The owner closed the session; until this time the server may finish its reads of the calls' arguments.
    Draining(Instant),
    /// The owner closed the session; the connection, if there is one, is ending.
    Closing,
    Closed,
}

#[derive(Debug)]
struct Waiting {
    call: Box<Call>,
    /// Whether the call left on an earlier connection.
    sent: bool,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    id: CallId,
    xid: u32,
    deadline: Instant,
}

/// An action for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Connect, with [`Config::private_data`], and report the outcome with this number.
    Connect {
        /// The number of the attempt.
        attempt: u32,
    },
}

/// An event for the owner of a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// A connection is up; with a prelude, only prelude calls use it yet.
    Connected,
    /// A connection attempt failed.
    ConnectFailed {
        /// Consecutive failures.
        failures: u32,
        /// The reason for the last one.
        reason: String,
    },
    /// A Call of the server, in the reverse direction.
    Call(IncomingCall),
    /// An event of the exchange of transport characteristics.
    Characteristics(Notice),
    /// A call of ours ended.
    Reply {
        /// The id that [`Session::call`] returned.
        id: CallId,
        /// The reply, or the reason for its absence.
        result: Result<IncomingReply, CallFailure>,
    },
    /// The connection is over; another one may follow.
    Disconnected(CloseReason),
    /// The session is over. The last event.
    Closed,
}

/// A connection cannot begin without a call: its first message offers a version by a NULL Call, and no program is known.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("no program for the NULL Call that offers Version Two: set Config::program, or make a call first")]
pub struct NoProgram;

/// Counters of a session.
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
    /// Returns a session without a connection. `entropy` comes from the system's random source: XIDs and back-off
    /// derive from it.
    #[must_use]
    pub fn new(config: Arc<Config>, entropy: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(entropy);
        let next_xid = rng.random();
        Self {
            program: config.program,
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

    /// Returns a session with a prelude on each connection; otherwise like [`new`](Self::new).
    #[must_use]
    pub fn with_prelude(config: Arc<Config>, entropy: u64) -> Self {
        Self { prelude: true, ..Self::new(config, entropy) }
    }

    /// Returns an XID for a new call. The first is unpredictable, and each differs from those in use.
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

    /// Returns the counters of the session.
    #[must_use]
    pub const fn stats(&self) -> &SessionStats {
        &self.stats
    }

    /// Returns the counters of the present connection.
    #[must_use]
    pub fn connection_stats(&self) -> Option<&Stats> {
        self.connection.as_ref().map(Connection::stats)
    }

    /// Returns the present connection.
    #[must_use]
    pub const fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Returns the lowest and highest version in the peer's last version error.
    #[must_use]
    pub const fn peer_versions(&self) -> Option<(u32, u32)> {
        self.versions
    }

    /// Returns the number of calls that have not ended.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.waiting.len() + self.issued.len()
    }

    /// Returns the result of [`Connection::wants_memory`] for the present connection.
    #[must_use]
    pub fn wants_memory(&self) -> Option<usize> {
        self.connection.as_ref()?.wants_memory()
    }

    /// Polls [`Connection::poll_receives`] of the present connection.
    pub fn poll_receives(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.as_ref().map_or(Poll::Pending, |connection| connection.poll_receives(cx))
    }

    /// Whether the prelude of the connection is in progress.
    #[must_use]
    pub fn is_prelude(&self) -> bool {
        self.state == State::Prelude
    }

    /// Requests a connection without a call.
    ///
    /// # Errors
    /// [`NoProgram`] if the highest version is Two, [`Config::program`] is not set, and no call was made before.
    pub fn connect(&mut self, now: Instant) -> Result<(), NoProgram> {
        if self.program.is_none() && self.config.versions.highest().rules().two.is_some() {
            return Err(NoProgram);
        }
        self.want_connection(now);
        Ok(())
    }

    fn want_connection(&mut self, now: Instant) {
        if self.state == State::Idle {
            self.state = State::Wanted(now);
        }
    }

    /// Accepts a call, which waits if there is no connection; see [`Connection::call`].
    ///
    /// # Errors
    /// [`Refused`], which returns the call.
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
        self.program.get_or_insert((call.program, call.version));
        let waiting = Waiting { call: Box::new(call), sent: false, deadline };
        self.offer(now, id, waiting)?;
        self.next_id += 1;
        self.xids.insert(xid);
        self.want_connection(now);
        Ok(id)
    }

    /// Makes a call that belongs to the present connection: it precedes all waiting calls, and ends with the
    /// connection.
    ///
    /// # Errors
    /// [`Refused`], which returns the call; [`RefusedKind::Closed`] outside a prelude.
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

    /// Applies [`Connection::agree`] to the present connection.
    ///
    /// # Errors
    /// [`BelowBasic`]: see there.
    pub fn agree(&mut self, agreement: Agreement) -> Result<(), BelowBasic> {
        self.connection.as_mut().map_or(Ok(()), |connection| connection.agree(agreement))
    }

    /// Ends the prelude and sends the waiting calls.
    pub fn prelude_done(&mut self, now: Instant) {
        if self.state == State::Prelude {
            self.state = State::Connected;
            self.issue(now);
        }
    }

    /// Ends a connection whose prelude has failed. Another connection follows after a pause, which grows with each
    /// failure.
    pub fn prelude_failed(&mut self, reason: String) {
        if let Some(connection) = self.connection.as_mut().filter(|_| self.state == State::Prelude) {
            connection.fail(CloseReason::Refused(reason));
        }
    }

    /// Gives a call to the connection, or keeps the call until there is one.
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
            // The connection is about to end, so the next one gets the call.
            Err(Refused { kind: RefusedKind::Closed, call }) => {
                self.waiting.insert(id, Waiting { call, sent, deadline });
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }

    /// Abandons a call: see [`Connection::abandon`].
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

    /// Answers a Call of the server; ignored if the Call's connection is over.
    pub fn reply(&mut self, now: Instant, token: ReplyToken, answer: Answer) {
        if let Some(connection) = &mut self.connection {
            connection.reply(now, token, answer);
        }
    }

    /// Ends the connection of this Call at once, if it still exists, but not the session: see [`Connection::give_up`].
    /// Calls without a reply wait for the next connection.
    pub fn give_up_connection(&mut self, token: ReplyToken) {
        if let Some(connection) = self.connection.as_mut().filter(|connection| connection.has_call(token)) {
            connection.give_up();
        }
    }

    /// Ends the session. Unsent calls fail now; calls in flight fail when the connection is over.
    ///
    /// The connection stays open while the server may be reading arguments from our memory, even of abandoned calls,
    /// for at most [`Timeouts::close`](crate::Timeouts::close). Some servers, Linux's among them, never recover a
    /// thread from an RDMA Read on a connection that ended.
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

    /// Ends the connection of a closed session when the server no longer reads call arguments, or at the deadline.
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

    /// Returns the next action for the driver.
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

    /// Hands over the queue pair of an attempt. `false`: the attempt is no longer current, and the driver drops the
    /// queue pair.
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

    /// Starts to use the connection.
    fn begin(&mut self, now: Instant, prelude: bool) {
        self.state = if prelude { State::Prelude } else { State::Connected };
        self.events.push_back(SessionEvent::Connected);
        if !prelude {
            self.issue(now);
        }
    }

    /// Returns the highest version that both sides are known to speak.
    fn codec(&mut self, now: Instant) -> &'static dyn Codec {
        // A peer may gain a version after an upgrade, so the session forgets its version error after some time.
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

    /// Sends the first message in a version that the peer may not speak: a NULL Call, which is short and has a reply
    /// (version-two-01 §5).
    fn offer_version(&mut self, now: Instant) {
        let xid = self.next_xid();
        let call = self.program.and_then(|program| null_call(xid, program, self.config.timeouts.offer));
        let Some(connection) = &mut self.connection else { return };
        match call {
            Some(call) => self.offer = connection.call(now, call).ok(),
            None => connection.fail(CloseReason::Refused(NoProgram.to_string())),
        }
    }

    /// Handles the outcome of the offer.
    fn offer_ended(&mut self, now: Instant, result: Result<IncomingReply, CallFailure>) {
        self.offer = None;
        let State::Offering(_) = self.state else { return };
        let has_one = self.config.versions.has_one();
        match result {
            // Any RPC reply will do: it came in this version. The values of RFC 5666 §6 do not apply in this version.
            Ok(_) => self.begin(now, false),
            // version-two-01 §5.2: continue on the same connection.
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
                    let reason =
                        format!("the peer refused {name}, of which it may speak another profile: {error}");
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

    /// Returns the deadline of the offer; `None` once the offer has ended, even if its connection still exists.
    fn offer_deadline(&self) -> Option<Instant> {
        match self.state {
            State::Offering(deadline) => self.offer.map(|_| deadline),
            _ => None,
        }
    }

    /// Remembers for some time that the peer speaks only Version One, or only `versions`.
    fn remember(&mut self, now: Instant, versions: Option<(u32, u32)>) {
        self.fallback = Some(after(now, self.config.timeouts.version_memory));
        self.versions = versions.or(self.versions);
    }

    /// Whether an unfinished call has left on any connection.
    #[must_use]
    pub fn was_sent(&self, id: CallId) -> bool {
        self.waiting.get(&id).is_some_and(|waiting| waiting.sent) || self.names.contains_key(&id)
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

    /// Handles a failed attempt. If `retry`, another attempt follows after a pause. Otherwise no attempt would succeed,
    /// and the waiting calls fail.
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
                // The calls fail, but the session continues.
                self.state = State::Wanted(after(now, self.pause()));
            } else {
                self.failures = 0;
                self.state = State::Idle;
            }
            self.fail_waiting(&error);
        }
    }

    /// Returns the pause before the next attempt. The pause doubles with each failure and each loss. A random factor
    /// between a half and one keeps the clients of a restarted server from reconnecting all at once.
    fn pause(&mut self) -> Duration {
        let timeouts = &self.config.timeouts;
        let doublings = self.failures.saturating_add(self.losses).saturating_sub(1).min(16);
        let longest = timeouts.reconnect_least.saturating_mul(1 << doublings).min(timeouts.reconnect_most);
        longest.mul_f64(self.rng.random_range(0.5..=1.0))
    }

    /// Passes a completion to the connection: see [`Connection::handle_completion`].
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        if let Some(connection) = &mut self.connection {
            connection.handle_completion(now, completion);
        }
        self.end_draining(now);
    }

    /// Passes a post error to the connection: see [`Connection::handle_post_error`].
    pub fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
        if let Some(connection) = &mut self.connection {
            connection.handle_post_error(id, kind);
        }
    }

    /// Passes progress to the connection: see [`Connection::handle_progress`].
    pub fn handle_progress(&mut self, now: Instant, progress: Progress) {
        if let Some(connection) = &mut self.connection {
            connection.handle_progress(now, progress);
        }
    }

    /// Handles the loss of the connection: see [`Connection::handle_disconnected`]. Calls without a reply wait for the
    /// next connection.
    pub fn handle_disconnected(&mut self, reason: Disconnected) {
        if let Some(connection) = &mut self.connection {
            connection.handle_disconnected(reason);
        }
    }

    /// Handles all timers that are due; harmless if none is.
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

    /// Returns the next work request to post: see [`Connection::poll_transmit`]; `None` without a connection.
    pub fn poll_transmit(&mut self, now: Instant, qp: &mut dyn Windows) -> Option<Post> {
        self.connection.as_mut()?.poll_transmit(now, qp)
    }

    /// Returns the next event, if there is one. After [`SessionEvent::Disconnected`] the queue pair is of no use any
    /// more.
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
                // A Call does not prove the connection useful: a server may accept, call and leave, again and again.
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
                    if matches!(&reason, CloseReason::Protocol(ProtocolError::Two(error)) if error.is_refusal_of_combined())
                    {
                        // The experimental numbers may have another meaning for this peer.
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

    /// Returns the event for a call that the connection has ended; `None` if the call waits for the next connection.
    fn reply_event(
        &mut self,
        name: CallId,
        result: Result<IncomingReply, CallFailure>,
    ) -> Option<SessionEvent> {
        let Issued { id, xid, deadline } = self.issued.remove(&name)?;
        self.names.remove(&id);
        // A reply in the prelude does not yet prove the connection useful.
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
            // Rule I8: the call is not lost, but sent again on the next connection.
            Err(CallFailure { error: CallError::ConnectionLost(_), call: Some(call), sent })
                if self.state == State::Connected =>
            {
                self.waiting.insert(id, Waiting { call, sent, deadline });
                return None;
            }
            // RFC 8166 §4.5.1: the range gives the version for the next connection.
            Err(CallFailure { error: CallError::Version { low, high }, .. }) => {
                self.versions = Some((low, high));
                // The next connection can use a version that the peer speaks.
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

    /// Returns the time when [`handle_timeout`](Self::handle_timeout) or [`poll_action`](Self::poll_action) is due;
    /// `None` if no timer runs.
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

/// Returns a NULL Call with AUTH_NONE to this version of a program.
fn null_call(xid: u32, (program, version): (u32, u32), timeout: Duration) -> Option<Call> {
    let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
    let header = CallHeader { xid, program, version, procedure: 0, credential, verifier };
    Some(Call {
        xid,
        program,
        version,
        procedure: 0,
        message: header.with_arguments(Stream::default()).ok()?,
        reply: ReplyShape::plain(NULL_REPLY),
        flavor_touches_data: false,
        timeout: Some(timeout),
    })
}

#[cfg(test)]
mod tests;
