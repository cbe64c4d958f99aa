//! Calls of a client over RPC-over-RDMA, on one connection after the other.
//!
//! A lock guards the session and its queue pair; it is never held across an `await`. Two tasks may drive them:
//!
//! * A call that is the only one in progress drives the connection itself while it waits. Its reply then wakes its own
//!   task directly.
//! * The background task drives in every other case, carries out connection attempts, and watches the timers. Without the
//!   lock it asks at the start of connections ([`prelude`]). It also serves Calls of the server (RFC 8167) without the
//!   lock, since their handlers may make calls of their own.
//!
//! A provider keeps one waker, that of the last poll. [`State::poller`] names its owner. A call that stops driving
//! leaves the driving to the background task. That task takes over at once if calls wait, otherwise after a short
//! watch, so that consecutive calls do not cost a task switch each. A call that drives may never be polled again
//! without being dropped. So the background task watches such a call too, and takes over when nothing has been polled
//! for that time.
//!
//! *Buffers.* The session and the queue pair own all buffers, until a call's reply gives its results to the caller.
//!
//! *Errors.* The session decides whether calls are sent again on the next connection (I8) or fail. It abandons a call
//! whose future is dropped (I10). A Call of the server is answered on its own connection or not at all. A panic outside of
//! programs ends the connection of its Call, as at the server.

mod late;
mod prelude;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rpcrdma_oncrpc::{Attached, WindowId};
use rpcrdma_proto::{
    Action, CallId, Characteristic, Connection, Disposition, IdMap, IncomingCall, IncomingReply,
    NotExchanged, Notice, ReplyToken, Session, SessionEvent,
};
use rpcrdma_verbs::{BoxFuture, ConnectError, ConnectParameters, Connector, ProtectionDomain, QueuePair};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};

use self::prelude::{Asking, Prelude, Question};
use super::departures::Departures;
use super::link::{Link, Progress};
use super::service::{Answered, Service};
use crate::call::{Call, RawReply};
use crate::cause::Cause;
use crate::ccp::client::{Answer, Unusable};
use crate::config::ClientConfig;
use crate::connect::AttemptError;
use crate::error::CallError;
use crate::handlers::HandlerPanicked;
use crate::programs::Programs;
use crate::stats::{ClientStats, ConnectionStats};

/// Rounds in one poll of a task before others get their turn.
const ROUNDS_PER_POLL: usize = 32;
/// News about characteristics that a slow listener can have waiting.
const NOTICES: usize = 64;
/// Time without a driver, or without a poll of the call that drives, after which the background task drives.
const WATCH: Duration = Duration::from_millis(5);

/// The runner of calls over RPC-over-RDMA.
pub(crate) struct RdmaClient {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Arc<dyn Connector>,
    to: SocketAddr,
    config: ClientConfig,
    domain: ProtectionDomain,
    programs: Arc<Programs>,
    state: Mutex<State>,
    /// Notifies of the end of the background task.
    ended: Notify,
}

struct State {
    session: Session,
    link: Option<Link>,
    prelude: Option<Prelude>,
    calls: IdMap<CallId, Waiting>,
    /// Calls of the server on the present connection that wait for a handler. The connection's credits bound their
    /// number.
    incoming: VecDeque<IncomingCall>,
    programs: Arc<Programs>,
    /// Answers to those Calls.
    departures: Option<Departures>,
    poller: Poller,
    background: Background,
    phase: Phase,
    /// The reason why there is no connection.
    down: Option<Cause>,
    /// The error of the last attempt, of which the session gets the words only.
    attempt_error: Option<Cause>,
    /// No connection without a call is asked for before this time.
    reopen_after: Option<Instant>,
    /// The number of connections so far.
    connected: watch::Sender<u64>,
    notices: broadcast::Sender<Notice>,
    stats: ClientStats,
    /// Payload bytes copied on earlier connections.
    copied_before: u64,
}

/// The owner of the waker that the queue pair has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poller {
    Nobody,
    Background,
    Call(CallId),
}

/// Requests to the background task, and its state.
#[derive(Debug, Default)]
struct Background {
    waker: Option<Waker>,
    /// The task is to drive, whoever else does.
    wanted: bool,
    /// The task looks after the connection soon anyway.
    watching: bool,
    /// The latest time at which the task's timer rings.
    armed: Option<Instant>,
    /// The connection attempt to begin.
    attempt: Option<u32>,
    /// Number of calls that drove themselves.
    activity: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// New calls are refused; the session is closed when those in progress have ended.
    Closing,
    /// The session is closing.
    Ending,
    /// The background task has ended.
    Closed,
}

/// A call in progress.
#[derive(Debug)]
struct Waiting {
    waker: Option<Waker>,
    result: Option<Result<IncomingReply, CallError>>,
    retransmit: bool,
    after: Duration,
}

impl RdmaClient {
    /// Opens a connection to this address within this time.
    pub(crate) async fn connect(
        connector: Arc<dyn Connector>,
        (to, limit): (SocketAddr, Duration),
        config: ClientConfig,
        domain: ProtectionDomain,
        programs: Arc<Programs>,
    ) -> Result<Self, AttemptError> {
        let make = if config.ccp.is_some() { Session::with_prelude } else { Session::new };
        let mut session = make(Arc::new(config.protocol.clone()), crate::xid::entropy());
        let shared = |session, link| Shared {
            connector: Arc::clone(&connector),
            to,
            domain: domain.clone(),
            config: config.clone(),
            state: Mutex::new(State::new(
                session,
                link,
                config.ccp.clone().map(Prelude::new),
                Arc::clone(&programs),
            )),
            programs,
            ended: Notify::new(),
        };
        let attempt = timeout(limit, connector.connect(to, parameters(&config, domain.clone())));
        session
            .connect(Instant::now().into_std())
            .map_err(|error| ConnectError::Invalid(error.to_string()))?;
        let Some(Action::Connect { attempt: number }) = session.poll_action(Instant::now().into_std()) else {
            return Err(ConnectError::Invalid("the session does not want to connect".to_owned()).into());
        };
        let queue_pair = attempt.await.map_err(|_| ConnectError::Timeout("RDMA connection"))??;
        let link = admit(&mut session, number, queue_pair).ok_or(ConnectError::Timeout("RDMA connection"))?;
        Ok(Self { shared: Arc::new(shared(session, link)) })
    }

    /// Starts the background task; handlers of the server's Calls get `attached`.
    pub(crate) fn start(&self, attached: Attached) {
        let mut task = Task::new(Arc::clone(&self.shared), attached);
        // Receives are posted at once, whichever side sends first.
        self.shared.lock().background.wanted = true;
        tokio::spawn(async move { poll_fn(|cx| task.poll(cx)).await });
    }

    /// Waits for a connection after the first `seen`, and returns the number of connections.
    pub(crate) async fn connected_again(&self, seen: u64) -> u64 {
        let mut connected = self.shared.lock().connected.subscribe();
        // `self` owns the sender, so the channel stays open.
        connected.wait_for(|count| *count > seen).await.map_or(seen, |count| *count)
    }

    pub(crate) async fn call(&self, call: Call) -> Result<RawReply, CallError> {
        call.check_rdma(&self.shared.config)?;
        let mut guard = InProgress { shared: &self.shared, id: None };
        let deadline = call.deadline;
        let mut call = Some(call);
        let exchange = poll_fn(|cx| guard.poll(cx, &mut call));
        let Some(deadline) = deadline else { return Ok(exchange.await?.into()) };
        match timeout(deadline, exchange).await {
            Ok(result) => Ok(result?.into()),
            Err(_) => Ok(guard.late(deadline)?.into()),
        }
    }

    /// Returns whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        let state = self.shared.lock();
        state.link.is_some() && state.down.is_none()
    }

    /// Asks for a connection without a call: at once, and then at most once in the longest pause between attempts.
    pub(crate) fn reopen(&self) {
        let now = Instant::now();
        let mut state = self.shared.lock();
        if state.phase != Phase::Open || state.reopen_after.is_some_and(|after| now < after) {
            return;
        }
        // The client has connected before, so the version needs no other program.
        if state.session.connect(now.into_std()).is_ok() {
            state.reopen_after = now.checked_add(self.shared.config.protocol.timeouts.reconnect_most);
            state.want_background();
        }
    }

    /// Returns an XID that no other call gets.
    pub(crate) fn next_xid(&self) -> u32 {
        self.shared.lock().session.next_xid()
    }

    /// Returns the time that a call has for its reply.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.shared.config.protocol.timeouts.call
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let state = self.shared.lock();
        let session = state.session.stats();
        ClientStats {
            connections: session.connections,
            agreed: state.prelude.as_ref().map_or(0, |prelude| prelude.agreed),
            not_agreed: state.prelude.as_ref().map_or(0, |prelude| prelude.refused),
            retransmissions: session.retransmissions,
            reply_cache: self.shared.programs.cache_counters(),
            memory_in_use: self.shared.domain.usage().in_use,
            payload_bytes_copied: state.copied_before + state.copied_now(),
            ..state.stats
        }
    }

    pub(crate) fn connection_stats(&self) -> Option<ConnectionStats> {
        let state = self.shared.lock();
        let link = state.link.as_ref()?.queue_pair.counters();
        let connection = state.session.connection()?;
        Some(ConnectionStats {
            protocol: connection.stats().clone(),
            version: connection.version().map(|rules| (rules.version, rules.two.map(|two| two.profile))),
            thresholds: connection.thresholds(),
            characteristics: connection.characteristics().cloned(),
            peer_characteristics: connection.peer_characteristics().cloned(),
            agreement: connection.agreement().copied(),
            link,
        })
    }

    pub(crate) async fn ask(
        &self,
        want: Vec<Characteristic>,
    ) -> Result<Vec<(Characteristic, Disposition)>, NotExchanged> {
        let (asked, mut notices) = {
            let mut state = self.shared.lock();
            let notices = state.notices.subscribe();
            let asked = state.session.ask(want)?;
            // The background task sends the question.
            state.want_background();
            (asked, notices)
        };
        let limit = self.shared.config.protocol.timeouts.call;
        let deadline = Instant::now() + limit;
        loop {
            let notice = timeout_at(deadline, notices.recv()).await.map_err(|_| NotExchanged::TimedOut)?;
            match notice {
                Ok(Notice::Answered { request, dispositions }) if request == asked => {
                    return Ok(dispositions);
                }
                Ok(Notice::Unsupported) => return Err(NotExchanged::Unsupported),
                Ok(Notice::Ended) | Err(RecvError::Closed) => return Err(NotExchanged::Ended),
                Ok(_) => {}
                // The answer, or the end, was among the missed notices.
                Err(RecvError::Lagged(_)) => return Err(NotExchanged::Ended),
            }
        }
    }

    pub(crate) fn change(&self, value: Characteristic) -> Result<(), NotExchanged> {
        let mut state = self.shared.lock();
        state.session.change(value)?;
        state.want_background();
        Ok(())
    }

    pub(crate) fn notices(&self) -> broadcast::Receiver<Notice> {
        self.shared.lock().notices.subscribe()
    }

    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.shared.domain
    }

    /// Refuses new calls.
    pub(crate) fn refuse(&self) {
        self.shared.close();
    }

    pub(crate) async fn close(&self) {
        self.refuse();
        loop {
            let ended = self.shared.ended.notified();
            if self.shared.lock().phase == Phase::Closed {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for RdmaClient {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Returns the parameters with which a connection is opened.
fn parameters(config: &ClientConfig, domain: ProtectionDomain) -> ConnectParameters {
    let protocol = &config.protocol;
    ConnectParameters {
        private_data: protocol.announcement(),
        // 0 in CONF_RDMA forbids Read chunks altogether (RFC 5666 §6.2).
        ird: config.ird.max(u16::from(config.ccp.is_some())),
        // We pull Read chunks of the reverse direction (RFC 8167 §5.3) and of replies (RFC 5666 §3.8).
        ord: config.ord.max(u16::from(protocol.takes_reverse_chunks() || protocol.has_read_read())),
        max_send_wr: config.max_send_wr,
        max_recv_wr: protocol.max_recv_wr(),
        domain,
    }
}

/// Gives a queue pair to the session; returns `None` if it came too late.
fn admit(session: &mut Session, attempt: u32, queue_pair: Box<dyn QueuePair>) -> Option<Link> {
    let now = Instant::now().into_std();
    session
        .connected(now, attempt, queue_pair.peer_private_data(), queue_pair.capabilities())
        .then(|| Link::new(queue_pair))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a defect of this crate. Going on with the state machines is still the best choice.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        state.want_background();
    }
}

impl State {
    fn new(session: Session, link: Link, prelude: Option<Prelude>, programs: Arc<Programs>) -> Self {
        let departures = Some(Departures::new(programs.window()));
        Self {
            session,
            link: Some(link),
            prelude,
            calls: IdMap::default(),
            incoming: VecDeque::new(),
            programs,
            departures,
            poller: Poller::Nobody,
            background: Background::default(),
            phase: Phase::Open,
            down: None,
            attempt_error: None,
            reopen_after: None,
            connected: watch::Sender::new(0),
            notices: broadcast::Sender::new(NOTICES),
            stats: ClientStats::default(),
            copied_before: 0,
        }
    }

    fn copied_now(&self) -> u64 {
        let link = self.link.as_ref().map_or(0, |link| link.queue_pair.counters().payload_bytes_copied);
        let protocol = self.session.connection_stats().map_or(0, |stats| stats.payload_bytes_copied);
        link + protocol
    }

    /// Makes the background task drive.
    fn want_background(&mut self) {
        self.background.wanted = true;
        self.wake_background();
    }

    fn wake_background(&mut self) {
        if let Some(waker) = &self.background.waker {
            waker.wake_by_ref();
        }
    }

    /// Works until nothing is left to do, or until the call `until` has its result. The caller becomes the poller.
    /// Returns the session's next deadline if nothing is left to do.
    ///
    /// The clock is read once for all rounds: together they take a few milliseconds at most.
    fn drive(&mut self, now: Instant, cx: &mut Context<'_>, until: Option<CallId>) -> Option<Instant> {
        for _ in 0..ROUNDS_PER_POLL {
            let mut progress = Progress::None;
            if let Some(link) = &mut self.link {
                let ended = link.ended();
                progress = link.advance(&mut self.session, now.into_std(), cx);
                if link.ended() && !ended {
                    if let Some(stats) = self.session.connection_stats() {
                        let (calls, replies) = (&stats.calls_sent, &stats.replies_received);
                        tracing::info!(target: "rpcrdma::forms", %calls, %replies, "RDMA connection ended");
                    }
                    self.copied_before += self.copied_now();
                }
            }
            if let (Some(departures), Some(connection)) = (&mut self.departures, self.session.connection()) {
                departures.advance(connection);
            }
            while let Some(event) = self.session.poll_event(now.into_std()) {
                progress = Progress::Some;
                self.handle_event(event, now);
            }
            if let Some(Action::Connect { attempt }) = self.session.poll_action(now.into_std()) {
                self.background.attempt = Some(attempt);
                self.wake_background();
            }
            let done = until.is_some_and(|id| self.calls.get(&id).is_some_and(|call| call.result.is_some()));
            if done {
                return None;
            }
            if progress == Progress::None {
                let due = self.session.poll_timeout().map(Instant::from_std);
                if due.is_none_or(|due| due > now) {
                    return due;
                }
                // The timeout may have left something to post.
                self.session.handle_timeout(now.into_std());
            }
        }
        // Timers run even if there is always something to do.
        self.session.handle_timeout(now.into_std());
        cx.waker().wake_by_ref();
        None
    }

    fn handle_event(&mut self, event: SessionEvent, now: Instant) {
        match event {
            SessionEvent::Reply { id, result } => {
                if let Some(prelude) = self.prelude.as_mut().filter(|prelude| prelude.made(id)) {
                    return prelude.ended(result);
                }
                if let Some(call) = self.calls.get(&id) {
                    let result = result
                        .map_err(|failure| CallError::from_failure(failure, call.after, self.down.clone()));
                    self.finish(id, result);
                }
            }
            SessionEvent::Connected => {
                if !self.begin_prelude() {
                    self.down = None;
                }
                if let Some(rules) = self.session.connection().and_then(Connection::version) {
                    tracing::info!(target: "rpcrdma::version", version = rules.name, "connected");
                }
                self.connected.send_replace(self.session.stats().connections);
            }
            SessionEvent::ConnectFailed { reason, .. } => {
                let typed = self.attempt_error.take().filter(|error| error.to_string() == reason);
                self.down = Some(typed.unwrap_or_else(|| Cause::message(reason)));
            }
            SessionEvent::Disconnected(reason) => {
                self.link = None;
                self.incoming.clear();
                self.departures = None;
                self.poller = Poller::Nobody;
                let reason = Cause::new(reason);
                self.fail_unrepeatable(&reason, now);
                self.down = Some(reason);
                self.want_background();
            }
            SessionEvent::Closed => {
                self.phase = Phase::Closed;
                self.want_background();
            }
            SessionEvent::Characteristics(notice) => {
                tracing::debug!(?notice, "characteristics");
                if let Notice::Peer(peer) = &notice {
                    tracing::info!(target: "rpcrdma::version", %peer, "the server announced its characteristics");
                }
                // There may be no listener.
                let _ = self.notices.send(notice);
            }
            SessionEvent::Call(call) => {
                self.stats.served += 1;
                self.incoming.push_back(call);
                self.wake_background();
            }
        }
    }

    fn finish(&mut self, id: CallId, result: Result<IncomingReply, CallError>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        self.stats.timed_out += u64::from(matches!(result, Err(CallError::TimedOut { .. })));
        call.result = Some(result);
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
    }

    /// Ends the calls that must not be sent twice, after the loss of the connection.
    fn fail_unrepeatable(&mut self, reason: &Cause, now: Instant) {
        let ended = |id: CallId, call: &Waiting| {
            !call.retransmit && call.result.is_none() && self.session.was_sent(id)
        };
        let ids: Vec<CallId> =
            self.calls.iter().filter(|(id, call)| ended(**id, call)).map(|(id, _)| *id).collect();
        for id in ids {
            self.session.abandon(now.into_std(), id);
            self.finish(id, Err(CallError::ConnectionLost { reason: reason.clone() }));
        }
    }

    /// Hands a new call to the session.
    fn start(&mut self, now: Instant, call: Call, default_timeout: Duration) -> Result<CallId, CallError> {
        if self.phase != Phase::Open {
            return Err(CallError::Closed { sent: false });
        }
        let xid = call.xid().unwrap_or_else(|| self.session.next_xid());
        let after = call.time(default_timeout);
        let retransmit = call.retransmit;
        let call = call.into_protocol(xid, after)?;
        let taken = self.session.call(now.into_std(), call);
        let id = taken.map_err(|refused| CallError::from_refusal(refused.kind))?;
        self.stats.calls += 1;
        self.calls.insert(id, Waiting { waker: None, result: None, retransmit, after });
        Ok(id)
    }

    /// Gives the answers of handlers to the session.
    fn answer(&mut self, answers: Vec<Result<Answered, (ReplyToken, HandlerPanicked)>>) {
        if answers.is_empty() {
            return;
        }
        let now = Instant::now().into_std();
        for answer in answers {
            match answer {
                Ok(Answered { token, answer, kept }) => {
                    // An answer for an earlier connection is never sent.
                    let here = self.session.connection().is_some_and(|connection| connection.has_call(token));
                    self.session.reply(now, token, answer);
                    if let (Some(key), Some(departures)) = (kept, &mut self.departures)
                        && here
                    {
                        departures.add(token, key);
                    }
                }
                Err((token, error)) => {
                    tracing::warn!(%error, "the connection of its Call is given up");
                    self.session.give_up_connection(token);
                }
            }
        }
        self.background.wanted = true;
    }

    /// Takes the outcome of a connection attempt.
    fn connected(&mut self, attempt: u32, outcome: Connected) {
        match outcome {
            Ok(queue_pair) => {
                if let Some(link) = admit(&mut self.session, attempt, queue_pair) {
                    self.link = Some(link);
                    self.departures = Some(Departures::new(self.programs.window()));
                }
            }
            Err(error) => {
                let retry = !matches!(error, ConnectError::Invalid(_));
                let (now, error) = (Instant::now().into_std(), AttemptError::Link(error));
                let words = error.to_string();
                self.attempt_error = Some(error.into());
                self.session.connect_failed(now, attempt, words, retry);
            }
        }
        self.background.wanted = true;
    }

    /// Returns whether the timer of the background task rings too late for this deadline.
    fn timer_is_late(&self, due: Option<Instant>) -> bool {
        match (due, self.background.armed) {
            (Some(due), Some(armed)) => due < armed,
            (due, None) => due.is_some(),
            (None, Some(_)) => false,
        }
    }
}

/// A call's future; dropping it abandons the call.
struct InProgress<'a> {
    shared: &'a Shared,
    id: Option<CallId>,
}

impl InProgress<'_> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        call: &mut Option<Call>,
    ) -> Poll<Result<IncomingReply, CallError>> {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let id = match (self.id, call.take()) {
            (Some(id), _) => id,
            (None, Some(call)) => {
                let id = state.start(now, call, self.shared.config.protocol.timeouts.call)?;
                *self.id.insert(id)
            }
            (None, None) => return Poll::Pending,
        };
        let alone = state.calls.len() == 1 && state.link.is_some();
        let mut waker = None;
        if alone {
            state.poller = Poller::Call(id);
            state.background.activity += 1;
            // This task takes its reply right away, so it need not be woken.
            waker = state.calls.get_mut(&id).and_then(|call| call.waker.take());
            let due = state.drive(now, cx, Some(id));
            if state.timer_is_late(due) {
                state.wake_background();
            }
        } else if state.calls.get(&id).is_some_and(|call| call.waker.is_none() && call.result.is_none()) {
            // A new call: the background task sends it, together with others made meanwhile.
            state.want_background();
        }
        let Some(waiting) = state.calls.get_mut(&id) else { return Poll::Pending };
        match waiting.result.take() {
            Some(result) => {
                state.leave(id);
                self.id = None;
                Poll::Ready(result)
            }
            None => {
                let known = waker.or(waiting.waker.take()).filter(|waker| waker.will_wake(cx.waker()));
                waiting.waker = Some(known.unwrap_or_else(|| cx.waker().clone()));
                if alone && !state.background.watching {
                    // This may be the last time that the future is polled.
                    state.wake_background();
                }
                Poll::Pending
            }
        }
    }
}

impl State {
    /// Removes a call that has ended, and finds another task to drive.
    fn leave(&mut self, id: CallId) {
        self.calls.remove(&id);
        if self.poller == Poller::Call(id) {
            self.poller = Poller::Nobody;
            if !self.calls.is_empty() {
                self.want_background();
            } else if !self.background.watching {
                self.wake_background();
            }
        }
        if self.phase == Phase::Closing && self.calls.is_empty() {
            self.want_background();
        }
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let mut state = self.shared.lock();
        state.session.abandon(Instant::now().into_std(), id);
        state.leave(id);
        // The background task does the work that the abandoned call leaves.
        state.want_background();
    }
}

/// The outcome of a connection attempt.
type Connected = Result<Box<dyn QueuePair>, ConnectError>;

/// The background task.
struct Task {
    shared: Arc<Shared>,
    timer: Pin<Box<Sleep>>,
    watch: Pin<Box<Sleep>>,
    /// Activity when the watch began.
    seen: u64,
    connecting: Option<(u32, BoxFuture<'static, Connected>)>,
    /// The question of the present connection.
    asking: Option<Asking>,
    /// Calls of the server on any connection: handlers outlive their connections.
    service: Service,
    /// Most handlers at a time: as many as the server has credits. Without the limit it could connect and leave, again
    /// and again (I6).
    max_handlers: usize,
}

impl Task {
    fn new(shared: Arc<Shared>, attached: Attached) -> Self {
        let now = Instant::now();
        let service =
            Service::new(Arc::clone(&shared.programs), (Some(shared.to), None), attached, ((), None));
        let max_handlers = usize::try_from(shared.config.protocol.grant).unwrap_or(usize::MAX).max(1);
        Self {
            shared,
            timer: Box::pin(sleep_until(now)),
            watch: Box::pin(sleep_until(now)),
            seen: 0,
            connecting: None,
            asking: None,
            service,
            max_handlers,
        }
    }

    /// Polls the task; ready when the session is closed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if !state.background.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.background.waker = Some(cx.waker().clone());
        }
        if state.background.armed.is_some() && self.timer.as_mut().poll(cx).is_ready() {
            state.background.armed = None;
            state.background.wanted = true;
        }
        for _ in 0..ROUNDS_PER_POLL {
            if state.phase == Phase::Closing && state.calls.is_empty() {
                state.phase = Phase::Ending;
                state.session.close(Instant::now().into_std());
                state.background.wanted = true;
            }
            if self.shall_drive(&mut state, cx) {
                state.background.wanted = false;
                state.poller = Poller::Background;
                state.drive(Instant::now(), cx, None);
            }
            if state.phase == Phase::Closed {
                state.link = None;
                drop(state);
                shared.ended.notify_waiters();
                return Poll::Ready(());
            }
            let begin = state.background.attempt.take();
            let question = state.prelude.as_mut().and_then(Prelude::take_wanted);
            let calls = self.admit_calls(&mut state);
            drop(state);
            let ended = self.connect(begin, cx);
            let asked = self.ask(question, cx);
            let answers = self.serve(calls, cx);
            state = shared.lock();
            state.answer(answers);
            if let Some(outcome) = asked {
                state.asked(outcome);
            }
            match ended {
                Some((attempt, outcome)) => state.connected(attempt, outcome),
                None if state.background.wanted || state.background.attempt.is_some() => {}
                None => {
                    self.arm(&mut state, cx);
                    return Poll::Pending;
                }
            }
        }
        // Other tasks get their turn even if a server calls without end.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns whether this task drives now. If no task drives, or the call that drives is not polled, this task soon
    /// will.
    fn shall_drive(&mut self, state: &mut State, cx: &mut Context<'_>) -> bool {
        let background = &mut state.background;
        if background.wanted || state.poller == Poller::Background {
            background.watching = false;
            return true;
        }
        if !background.watching {
            background.watching = true;
            self.watch_from_now(background.activity);
        }
        while self.watch.as_mut().poll(cx).is_ready() {
            if self.seen == background.activity {
                background.watching = false;
                return true;
            }
            self.watch_from_now(background.activity);
        }
        false
    }

    fn watch_from_now(&mut self, activity: u64) {
        self.seen = activity;
        self.watch.as_mut().reset(Instant::now() + WATCH);
    }

    /// Takes the server's Calls for which there are handlers, with the window of their connection.
    fn admit_calls(&self, state: &mut State) -> (Vec<IncomingCall>, Option<WindowId>) {
        let free = self.max_handlers.saturating_sub(self.service.len()).min(state.incoming.len());
        (state.incoming.drain(..free).collect(), state.departures.as_ref().map(Departures::window))
    }

    /// Serves these Calls and goes on with earlier ones, without the lock; returns the answers. The caller repeats this
    /// as long as there are answers, so no Call waits for a handler that has just ended.
    fn serve(
        &mut self,
        (calls, window): (Vec<IncomingCall>, Option<WindowId>),
        cx: &mut Context<'_>,
    ) -> Vec<Result<Answered, (ReplyToken, HandlerPanicked)>> {
        let mut answers = Vec::new();
        for call in calls {
            let token = call.token;
            match self.service.start(Instant::now(), cx, call, window) {
                Ok(answered) => answers.extend(answered.map(Ok)),
                Err(panicked) => answers.push(Err((token, panicked))),
            }
        }
        while let Poll::Ready(Some(answered)) = self.service.poll_next(cx) {
            answers.push(answered);
        }
        answers
    }

    /// Begins and continues a connection attempt, without the lock; returns its outcome.
    fn connect(&mut self, begin: Option<u32>, cx: &mut Context<'_>) -> Option<(u32, Connected)> {
        if let Some(attempt) = begin {
            let connector = Arc::clone(&self.shared.connector);
            let parameters = parameters(&self.shared.config, self.shared.domain.clone());
            let to = self.shared.to;
            let future = async move { connector.connect(to, parameters).await };
            self.connecting = Some((attempt, Box::pin(future)));
        }
        let (attempt, future) = self.connecting.as_mut()?;
        let Poll::Ready(outcome) = future.as_mut().poll(cx) else { return None };
        let attempt = *attempt;
        self.connecting = None;
        Some((attempt, outcome))
    }

    /// Begins and continues the question of a connection, without the lock; returns its outcome.
    fn ask(
        &mut self,
        begin: Option<Question>,
        cx: &mut Context<'_>,
    ) -> Option<(u64, Result<Answer, Unusable>)> {
        if let Some(question) = begin {
            self.asking = Some(question.ask(&self.shared));
        }
        let Poll::Ready(outcome) = self.asking.as_mut()?.poll(cx) else { return None };
        self.asking = None;
        Some(outcome)
    }

    /// Sets the timer for the next deadline. The timer is only ever set earlier: a needless ring now and then costs
    /// less than setting it for every call.
    fn arm(&mut self, state: &mut State, cx: &mut Context<'_>) {
        let due = state.session.poll_timeout().map(Instant::from_std);
        let Some(due) = due.filter(|_| state.timer_is_late(due)) else { return };
        self.timer.as_mut().reset(due);
        state.background.armed = Some(due);
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}
