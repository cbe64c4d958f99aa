//! [`Session`]: the client's side across connections.
//!
//! A session owns the calls that wait for a connection, and the present connection. When a connection is lost, its
//! calls without a reply are sent again on the next one with the same XID (rule I8). They are never sent again on the
//! same connection. The server's reply cache recognises them. A call ends with its reply, with an error that gives the
//! reason, or at its deadline.

mod connect;
mod offer;
mod prelude;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use rpcrdma_verbs::{Completion, Disconnected, PostErrorKind, Progress, Windows, WrId};

use self::connect::Backoff;
pub use self::offer::NoProgram;
use self::offer::Offer;
use crate::call::{Call, CallFailure, CallId, IncomingReply, Refused, RefusedKind};
use crate::connection::Connection;
use crate::error::{CallError, CloseReason};
use crate::event::{Answer, Event, IncomingCall, ReplyToken};
use crate::ids::IdMap;
use crate::outbound::Post;
use crate::settings::config::Config;
use crate::settings::timers::{after, earliest};
use crate::stats::Stats;
use crate::two::characteristics::Notice;

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
    pub(crate) config: Arc<Config>,
    state: State,
    /// Whether connections begin in [`State::Prelude`].
    prelude: bool,
    attempt: u32,
    pub(crate) connection: Option<Connection>,
    calls: Calls,
    offer: Offer,
    backoff: Backoff,
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

/// The calls that have not ended.
#[derive(Debug)]
struct Calls {
    /// Those of the owner, by XID.
    open: IdMap<u32, Open>,
    /// Those without a connection, oldest first.
    waiting: BTreeMap<CallId, Call>,
    /// The number of calls so far.
    count: u32,
    next_xid: u32,
}

/// A call that has not ended, on whatever connection.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: CallId,
    deadline: Instant,
    /// Whether the call left on an earlier connection. The present one does not know.
    sent: bool,
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

impl Calls {
    /// Returns an empty table; `next_xid` is the first XID.
    fn new(next_xid: u32) -> Self {
        Self { open: IdMap::default(), waiting: BTreeMap::new(), count: 0, next_xid }
    }

    /// Returns the id of a new call under this XID.
    const fn new_id(&mut self, xid: u32) -> CallId {
        self.count = self.count.wrapping_add(1);
        CallId::new(self.count, xid)
    }

    /// Adds a call under this XID, and returns its id.
    fn begin(&mut self, xid: u32, deadline: Instant) -> CallId {
        let id = self.new_id(xid);
        self.open.insert(xid, Open { id, deadline, sent: false });
        id
    }

    /// Returns a call; `None` if the call has ended.
    fn get(&self, id: CallId) -> Option<&Open> {
        self.open.get(&id.xid()).filter(|open| open.id == id)
    }

    /// Returns the deadline of a call; `None` if the call has ended.
    fn deadline(&self, id: CallId) -> Option<Instant> {
        self.get(id).map(|open| open.deadline)
    }

    /// Returns whether a call left on an earlier connection.
    fn left_before(&self, id: CallId) -> bool {
        self.get(id).is_some_and(|open| open.sent)
    }

    /// Keeps a call for the next connection; `sent`: it left on the last one.
    fn keep(&mut self, id: CallId, call: Call, sent: bool) {
        if let Some(open) = self.open.get_mut(&id.xid()).filter(|open| open.id == id) {
            open.sent |= sent;
        }
        self.waiting.insert(id, call);
    }

    /// Removes a call, and returns the event of its end. The result learns of earlier connections (rule I8).
    fn end(&mut self, id: CallId, mut result: Result<IncomingReply, CallFailure>) -> SessionEvent {
        let before = self.open.remove(&id.xid()).is_some_and(|open| open.sent);
        match &mut result {
            Ok(reply) => reply.sent_before = before,
            Err(failure) => {
                failure.sent |= before;
                failure.sent_before = before;
            }
        }
        SessionEvent::Reply { id, result }
    }

    /// Returns the first deadline of a waiting call.
    fn next_deadline(&self) -> Option<Instant> {
        self.waiting.keys().filter_map(|id| self.deadline(*id)).min()
    }
}

impl Session {
    /// Returns a session without a connection. `entropy` comes from the system's random source: XIDs and back-off
    /// derive from it.
    #[must_use]
    pub fn new(config: Arc<Config>, entropy: u64) -> Self {
        let (backoff, first_xid) = Backoff::new(entropy);
        Self {
            state: State::Idle,
            prelude: false,
            attempt: 0,
            connection: None,
            calls: Calls::new(first_xid),
            offer: Offer::new(config.program),
            backoff,
            events: VecDeque::new(),
            stats: SessionStats::default(),
            config,
        }
    }

    /// Returns a session with a prelude on each connection; otherwise like [`new`](Self::new).
    #[must_use]
    pub fn with_prelude(config: Arc<Config>, entropy: u64) -> Self {
        Self { prelude: true, ..Self::new(config, entropy) }
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

    /// Applies this to the present connection, if there is one.
    fn on_connection(&mut self, act: impl FnOnce(&mut Connection)) {
        if let Some(connection) = &mut self.connection {
            act(connection);
        }
    }

    /// Connects, unless there is a connection or an attempt.
    fn want_connection(&mut self, now: Instant) {
        if self.state == State::Idle {
            self.state = State::Wanted(now);
        }
    }

    /// Returns an XID for a new call. The first is unpredictable, and each differs from those in use.
    pub fn next_xid(&mut self) -> u32 {
        loop {
            let xid = self.calls.next_xid;
            self.calls.next_xid = xid.wrapping_add(1);
            if !self.xid_in_use(xid) {
                return xid;
            }
        }
    }

    fn xid_in_use(&self, xid: u32) -> bool {
        self.calls.open.contains_key(&xid)
            || self.connection.as_ref().is_some_and(|connection| connection.xid_in_use(xid))
    }

    /// Returns the number of calls that have not ended.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.calls.open.len()
    }

    /// Whether an unfinished call has left on any connection.
    #[must_use]
    pub fn was_sent(&self, id: CallId) -> bool {
        let waits = self.calls.waiting.contains_key(&id);
        self.calls.get(id).is_some_and(|open| open.sent || !waits)
    }

    /// Accepts a call, which waits if there is no connection; see [`Connection::call`].
    ///
    /// # Errors
    /// [`Refused`], which returns the call.
    pub fn call(&mut self, now: Instant, call: Call) -> Result<CallId, Refused> {
        let (id, call) = self.accept(now, call, !self.is_closed())?;
        self.offer.program.get_or_insert((call.program, call.version));
        self.issue(now, id, call);
        self.want_connection(now);
        Ok(id)
    }

    /// Returns an accepted call with its id. A session that is not `open` accepts none.
    fn accept(&mut self, now: Instant, call: Call, open: bool) -> Result<(CallId, Call), Refused> {
        let xid = call.xid;
        let kind = if !open {
            RefusedKind::Closed
        } else if self.xid_in_use(xid) {
            RefusedKind::XidInUse(xid)
        } else if !call.begins_with_xid() {
            RefusedKind::XidMismatch(xid)
        } else {
            let deadline = after(now, call.timeout.unwrap_or(self.config.timeouts.call));
            return Ok((self.calls.begin(xid, deadline), call));
        };
        Err(Refused { kind, call: Box::new(call) })
    }

    /// Gives a call to the connection; returns the call if the connection is ending.
    fn give(&mut self, now: Instant, id: CallId, mut call: Call) -> Option<Call> {
        let Some(connection) = &mut self.connection else { return Some(call) };
        let deadline = self.calls.deadline(id);
        call.timeout = deadline.map(|deadline| deadline.saturating_duration_since(now));
        connection.call_as(now, id, call).err().map(|refused| *refused.call)
    }

    /// Gives a call to the connection, or keeps the call until the connection is ready, or the next one.
    fn issue(&mut self, now: Instant, id: CallId, call: Call) {
        let kept = if self.state == State::Connected { self.give(now, id, call) } else { Some(call) };
        match kept {
            Some(call) => self.calls.keep(id, call, false),
            None => self.stats.retransmissions += u64::from(self.calls.left_before(id)),
        }
    }

    /// Gives all waiting calls to the connection, oldest first.
    fn issue_waiting(&mut self, now: Instant) {
        for (id, call) in std::mem::take(&mut self.calls.waiting) {
            self.issue(now, id, call);
        }
    }

    /// Abandons a call: see [`Connection::abandon`].
    pub fn abandon(&mut self, now: Instant, id: CallId) {
        self.events.retain(|event| !matches!(event, SessionEvent::Reply { id: ended, .. } if *ended == id));
        if self.calls.deadline(id).is_none() {
            return;
        }
        self.calls.open.remove(&id.xid());
        if self.calls.waiting.remove(&id).is_none() {
            self.on_connection(|connection| connection.abandon(now, id));
        }
    }

    /// Fails the waiting calls that are due until then, or all.
    fn fail_waiting(&mut self, error: &CallError, until: Option<Instant>) {
        let Calls { open, waiting, .. } = &mut self.calls;
        let due = |id: &CallId| {
            open.get(&id.xid()).is_none_or(|open| until.is_none_or(|until| open.deadline <= until))
        };
        let failed: Vec<_> = waiting.extract_if(.., |id, _| due(id)).collect();
        for (id, call) in failed {
            let failure =
                CallFailure { call: Some(Box::new(call)), ..CallFailure::permanent(error.clone(), false) };
            self.events.push_back(self.calls.end(id, Err(failure)));
        }
    }

    /// Returns the event for a call that the connection has ended; `None` if the call waits for the next connection.
    fn call_ended(&mut self, id: CallId, result: Result<IncomingReply, CallFailure>) -> Option<SessionEvent> {
        self.calls.deadline(id)?;
        let connected = self.state == State::Connected;
        let result = match result {
            // Rule I8: the call is not lost, but sent again on the next connection.
            Err(CallFailure { error: CallError::ConnectionLost(_), call: Some(call), sent, .. })
                if connected =>
            {
                self.calls.keep(id, *call, sent);
                return None;
            }
            result => result,
        };
        // A reply in the prelude does not yet prove the connection useful.
        if connected && result.as_ref().map_or_else(|failure| failure.error.is_answer(), |_| true) {
            self.backoff.losses = 0;
        }
        if let Err(CallFailure { error: error @ CallError::Version { low, high }, .. }) = &result {
            self.version_refused(error, (*low, *high));
        }
        Some(self.calls.end(id, result))
    }

    /// Answers a Call of the server; ignored if the Call's connection is over.
    pub fn reply(&mut self, now: Instant, token: ReplyToken, answer: Answer) {
        self.on_connection(|connection| connection.reply(now, token, answer));
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
        self.fail_waiting(&CallError::Closed, None);
        self.on_connection(|connection| connection.fail_queued());
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
        self.on_connection(|connection| connection.close(now));
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

    /// Passes a completion to the connection: see [`Connection::handle_completion`].
    pub fn handle_completion(&mut self, now: Instant, completion: Completion) {
        self.on_connection(|connection| connection.handle_completion(now, completion));
        self.end_draining(now);
    }

    /// Passes a post error to the connection: see [`Connection::handle_post_error`].
    pub fn handle_post_error(&mut self, id: WrId, kind: &PostErrorKind) {
        self.on_connection(|connection| connection.handle_post_error(id, kind));
    }

    /// Passes progress to the connection: see [`Connection::handle_progress`].
    pub fn handle_progress(&mut self, now: Instant, progress: Progress) {
        self.on_connection(|connection| connection.handle_progress(now, progress));
    }

    /// Handles the loss of the connection: see [`Connection::handle_disconnected`]. Calls without a reply wait for the
    /// next connection.
    pub fn handle_disconnected(&mut self, reason: Disconnected) {
        self.on_connection(|connection| connection.handle_disconnected(reason));
    }

    /// Handles all timers that are due; harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.on_connection(|connection| connection.handle_timeout(now));
        self.end_draining(now);
        self.fail_waiting(&CallError::TimedOut, Some(now));
        // The offer of a connection that is ending has no timer.
        if let State::Offering(deadline) = self.state
            && self.offer.call.is_some()
            && deadline <= now
        {
            self.offer_ended(now, Err(CallFailure::permanent(CallError::TimedOut, true)));
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
                let closed = self.connection.is_none() && self.state == State::Closing;
                return closed.then(|| {
                    self.state = State::Closed;
                    SessionEvent::Closed
                });
            };
            let event = match event {
                // A Call does not prove the connection useful: a server may accept, call and leave, again and again.
                Event::Call(call) => Some(SessionEvent::Call(call)),
                Event::Characteristics(notice) => Some(SessionEvent::Characteristics(notice)),
                Event::Reply { id, result } if self.offer.call == Some(id) => {
                    self.offer_ended(now, result);
                    None
                }
                Event::Reply { id, result } => self.call_ended(id, result),
                Event::Closed(reason) => {
                    self.connection_ended(now, &reason);
                    Some(SessionEvent::Disconnected(reason))
                }
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Returns the time when [`handle_timeout`](Self::handle_timeout) or [`poll_action`](Self::poll_action) is due;
    /// `None` if no timer runs.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let state = match self.state {
            State::Wanted(at) | State::Connecting(at) | State::Draining(at) => Some(at),
            State::Offering(at) => self.offer.call.map(|_| at),
            _ => None,
        };
        let connection = self.connection.as_ref().and_then(Connection::poll_timeout);
        earliest([state, self.calls.next_deadline(), connection])
    }
}

#[cfg(test)]
mod tests;
