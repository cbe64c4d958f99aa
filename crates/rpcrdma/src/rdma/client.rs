//! Calls of a client over RPC-over-RDMA, on one connection after the other.
//!
//! One lock guards the session and its queue pair; it is never held across an `await`. Two may drive them:
//!
//! * A call that is the only one in progress drives the connection itself while it waits: its reply wakes its own task,
//!   without a detour.
//! * The background task drives in every other case, carries out connection attempts, and watches the timers.
//!
//! A provider keeps one waker, that of the last poll. [`State::poller`] says whose it is; who stops driving leaves it to
//! the background task, which takes over at once if calls wait, else after a short watch, so that one call after the other
//! does not cost a task switch each.
//!
//! *Who owns which buffer.* The session and the queue pair do, until a call's reply gives its results to the caller.
//!
//! *What happens on error.* The session decides: calls are sent again on the next connection (I8) or fail. A call whose
//! future is dropped is abandoned there (I10).

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rpcrdma_proto::{
    self as proto, Action, CallFailure, CallId, IdMap, IncomingReply, RefusedKind, Session, SessionEvent,
};
use rpcrdma_verbs::{BoxFuture, ConnectError, ConnectParameters, Connector, ProtectionDomain, QueuePair};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::link::{Link, Progress};
use crate::call::{Call, Reply, Transfer, Transport};
use crate::ccp::client::Asker;
use crate::client::{ClientStats, ConnectionStats, open_reply};
use crate::config::ClientConfig;
use crate::error::CallError;

/// Rounds in one poll of a task before others get their turn.
const ROUNDS_PER_POLL: usize = 32;
/// How long nobody needs to drive after a call that drove itself, before the background task does.
const WATCH: Duration = Duration::from_millis(5);
/// Longest RPC reply header, in octets: six words and a verifier of 400 octets (RFC 5531 §8.2, §9).
const REPLY_HEADER_MAX: usize = 24 + 400;
/// Octets that follow it in the longest refusal, PROG_MISMATCH.
const REFUSAL_MAX: usize = 8;

/// Runs calls over RPC-over-RDMA.
pub(crate) struct RdmaClient {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Arc<dyn Connector>,
    to: SocketAddr,
    config: ClientConfig,
    domain: ProtectionDomain,
    state: Mutex<State>,
    /// Tells that the background task has ended.
    ended: Notify,
}

struct State {
    session: Session,
    link: Option<Link>,
    ccp: Option<Asker>,
    calls: IdMap<CallId, Waiting>,
    poller: Poller,
    background: Background,
    phase: Phase,
    /// Why there is no connection.
    down: Option<String>,
    stats: ClientStats,
    /// Payload copied on connections that are over.
    copied_before: u64,
}

/// Whose waker the queue pair has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poller {
    Nobody,
    Background,
    Call(CallId),
}

/// What the background task is told.
#[derive(Debug, Default)]
struct Background {
    waker: Option<Waker>,
    /// It shall drive, whoever else does.
    wanted: bool,
    /// It looks after the connection soon anyway.
    watching: bool,
    /// Its timer rings at this time or earlier.
    armed: Option<Instant>,
    /// The connection attempt to begin.
    attempt: Option<u32>,
    /// Counts calls that drove themselves.
    activity: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// No new calls; the session is closed when those in progress have ended.
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
    pub(crate) async fn connect(
        connector: Arc<dyn Connector>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, ConnectError> {
        let domain = ProtectionDomain::new(config.memory);
        let make = if config.ccp.is_some() { Session::with_prelude } else { Session::new };
        let mut session = make(Arc::new(config.protocol.clone()), crate::xid::entropy());
        let shared = |session, link| Shared {
            connector: Arc::clone(&connector),
            to,
            domain: domain.clone(),
            config: config.clone(),
            state: Mutex::new(State::new(session, link, config.ccp.clone().map(Asker::new))),
            ended: Notify::new(),
        };
        let attempt = timeout(
            config.protocol.timeouts.connect,
            connector.connect(to, parameters(&config, domain.clone())),
        );
        session.connect(Instant::now().into_std());
        let Some(Action::Connect { attempt: number }) = session.poll_action(Instant::now().into_std()) else {
            return Err(ConnectError::Invalid("the session does not want to connect".to_owned()));
        };
        let queue_pair = attempt.await.map_err(|_| ConnectError::Timeout("RDMA connection"))??;
        let link = admit(&mut session, number, queue_pair).ok_or(ConnectError::Timeout("RDMA connection"))?;
        let shared = Arc::new(shared(session, link));
        let mut task = Task::new(Arc::clone(&shared));
        tokio::spawn(async move { poll_fn(|cx| task.poll(cx)).await });
        Ok(Self { shared })
    }

    pub(crate) async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let mut guard = InProgress { shared: &self.shared, id: None };
        let mut call = Some(call);
        let reply = poll_fn(|cx| guard.poll(cx, &mut call)).await?;
        let travelled = Transfer {
            transport: Transport::Rdma,
            call: reply.call,
            reply: reply.reply,
            invalidations: reply.invalidations,
        };
        open_reply(reply.message, travelled)
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let state = self.shared.lock();
        let session = state.session.stats();
        ClientStats {
            connections: session.connections,
            agreed: state.ccp.as_ref().map_or(0, |ccp| ccp.agreed),
            not_agreed: state.ccp.as_ref().map_or(0, |ccp| ccp.refused),
            retransmissions: session.retransmissions,
            memory_in_use: self.shared.domain.usage().in_use,
            payload_bytes_copied: state.copied_before + state.copied_now(),
            ..state.stats
        }
    }

    pub(crate) fn connection_stats(&self) -> Option<ConnectionStats> {
        let state = self.shared.lock();
        let link = state.link.as_ref()?.queue_pair.counters();
        let connection = state.session.connection()?;
        let (protocol, agreement) = (connection.stats().clone(), connection.agreement().copied());
        Some(ConnectionStats { protocol, agreement, link })
    }

    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.shared.domain
    }

    pub(crate) async fn close(&self) {
        self.shared.close();
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

/// What a connection is opened with.
fn parameters(config: &ClientConfig, domain: ProtectionDomain) -> ConnectParameters {
    let protocol = &config.protocol;
    let receives = usize::try_from(protocol.calls.max(protocol.grant)).unwrap_or(usize::MAX);
    ConnectParameters {
        private_data: protocol.announcement(),
        ird: config.ird,
        ord: config.ord,
        max_send_wr: config.max_send_wr,
        // Half of the queue backs our calls, half what we grant in the reverse direction.
        max_recv_wr: receives.saturating_mul(2),
        domain,
    }
}

/// Gives a queue pair to the session; `None` if it came too late.
fn admit(session: &mut Session, attempt: u32, queue_pair: Box<dyn QueuePair>) -> Option<Link> {
    let now = Instant::now().into_std();
    session
        .connected(now, attempt, queue_pair.peer_private_data(), queue_pair.capabilities())
        .then(|| Link::new(queue_pair))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a fault of ours; the state machines are still the best there is to go on with.
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
    fn new(session: Session, link: Link, ccp: Option<Asker>) -> Self {
        Self {
            session,
            link: Some(link),
            ccp,
            calls: IdMap::default(),
            poller: Poller::Nobody,
            background: Background::default(),
            phase: Phase::Open,
            down: None,
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

    /// Works until nothing is left to do, or until the call `until` has its result. Whoever calls this is the poller.
    ///
    /// One reading of the clock is enough for all rounds: together they take a few milliseconds at most.
    fn drive(&mut self, now: Instant, cx: &mut Context<'_>, until: Option<CallId>) {
        for _ in 0..ROUNDS_PER_POLL {
            let mut progress = Progress::None;
            if let Some(link) = &mut self.link {
                let ended = link.ended();
                progress = link.advance(&mut self.session, now.into_std(), cx);
                if link.ended() && !ended {
                    self.copied_before += self.copied_now();
                }
            }
            if self.session.poll_timeout().is_some_and(|due| due <= now.into_std()) {
                self.session.handle_timeout(now.into_std());
                // It may have something to post.
                progress = Progress::Some;
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
            if progress == Progress::None || done {
                return;
            }
        }
        cx.waker().wake_by_ref();
    }

    fn handle_event(&mut self, event: SessionEvent, now: Instant) {
        match event {
            SessionEvent::Reply { id, result } => {
                if let Some(ccp) = self.ccp.as_mut().filter(|ccp| ccp.asked(id)) {
                    if ccp.answered(&mut self.session, now.into_std(), result) {
                        self.down = None;
                    }
                    return;
                }
                if let Some(call) = self.calls.get(&id) {
                    let result = result.map_err(|failure| self.failure(failure, call.after));
                    self.finish(id, result);
                }
            }
            SessionEvent::Connected => {
                if let (Some(ccp), Some(link)) = (&mut self.ccp, &self.link) {
                    let reads = link.queue_pair.capabilities().ird;
                    ccp.ask(&mut self.session, now.into_std(), reads.into());
                } else {
                    self.down = None;
                }
            }
            SessionEvent::ConnectFailed { reason, .. } => self.down = Some(reason),
            SessionEvent::Disconnected(reason) => {
                self.link = None;
                self.poller = Poller::Nobody;
                self.down = Some(reason.to_string());
                self.fail_unrepeatable(&reason.to_string(), now);
                self.want_background();
            }
            SessionEvent::Closed => {
                self.phase = Phase::Closed;
                self.want_background();
            }
            // Calls in the reverse direction are nobody's here: the peer gets no answer and knows it from its timer.
            SessionEvent::Call(call) => self.session.reply(now.into_std(), call.token, proto::Answer::Drop),
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

    /// The connection is gone: calls that are not to be sent twice end here.
    fn fail_unrepeatable(&mut self, reason: &str, now: Instant) {
        let ended = |call: &Waiting| !call.retransmit && call.result.is_none();
        let ids: Vec<CallId> = self.calls.iter().filter(|(_, call)| ended(call)).map(|(id, _)| *id).collect();
        for id in ids {
            self.session.abandon(now.into_std(), id);
            self.finish(id, Err(CallError::ConnectionLost { reason: reason.to_owned() }));
        }
    }

    /// The session's word for why there is no reply, in ours.
    fn failure(&self, failure: CallFailure, after: Duration) -> CallError {
        let CallFailure { error, sent, .. } = failure;
        let reason = error.to_string();
        match error {
            proto::CallError::TimedOut => CallError::TimedOut { after, sent, link: self.down.clone() },
            proto::CallError::Version { low, high } => CallError::TransportVersion { low, high },
            proto::CallError::Chunk => CallError::Chunk,
            proto::CallError::Unsendable(_) => CallError::Unsendable { reason },
            proto::CallError::Memory(_) | proto::CallError::Windows(_) => CallError::Memory { reason },
            proto::CallError::Unreachable { .. } => CallError::Unreachable { reason, sent },
            proto::CallError::Closed => CallError::Closed { sent },
            _ => CallError::ConnectionLost { reason },
        }
    }

    /// Hands a new call to the session.
    fn start(&mut self, now: Instant, call: Call, default_timeout: Duration) -> Result<CallId, CallError> {
        if self.phase != Phase::Open {
            return Err(CallError::Closed { sent: false });
        }
        let xid = self.session.next_xid();
        let (program, version, procedure) = (call.program, call.version, call.procedure);
        let after = call.timeout.unwrap_or(default_timeout);
        let retransmit = call.retransmit;
        let (message, reply) = call.into_message(xid)?;
        let call = proto::Call {
            xid,
            program,
            version,
            procedure,
            message,
            reply: proto::ReplyShape {
                max_len: REPLY_HEADER_MAX.saturating_add(reply.max_len.max(REFUSAL_MAX)),
                sinks: reply.sinks,
            },
            flavor_touches_data: false,
            timeout: Some(after),
        };
        let id = self.session.call(now.into_std(), call).map_err(|refused| match refused.kind {
            RefusedKind::Closed => CallError::Closed { sent: false },
            kind => CallError::Unsendable { reason: kind.to_string() },
        })?;
        self.stats.calls += 1;
        self.calls.insert(id, Waiting { waker: None, result: None, retransmit, after });
        Ok(id)
    }

    /// A connection attempt has ended.
    fn connected(&mut self, attempt: u32, outcome: Connected) {
        match outcome {
            Ok(queue_pair) => {
                if let Some(link) = admit(&mut self.session, attempt, queue_pair) {
                    self.link = Some(link);
                }
            }
            Err(error) => {
                let retry = !matches!(error, ConnectError::Invalid(_));
                let now = Instant::now().into_std();
                self.session.connect_failed(now, attempt, error.to_string(), retry);
            }
        }
        self.background.wanted = true;
    }

    /// The timer of the background task rings too late for the session.
    fn timer_is_late(&self) -> bool {
        match (self.session.poll_timeout().map(Instant::from_std), self.background.armed) {
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
            // This task takes its reply right away: it need not be woken for it.
            waker = state.calls.get_mut(&id).and_then(|call| call.waker.take());
            state.drive(now, cx, Some(id));
            if state.timer_is_late() {
                state.wake_background();
            }
        } else if state.calls.get(&id).is_some_and(|call| call.waker.is_none() && call.result.is_none()) {
            // Just made: the background task sends it, together with others made meanwhile.
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
                Poll::Pending
            }
        }
    }
}

impl State {
    /// Forgets a call that has ended, and finds somebody else to drive.
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
        // What the abandoned call leaves to do is the background task's.
        state.want_background();
    }
}

/// How a connection attempt ended.
type Connected = Result<Box<dyn QueuePair>, ConnectError>;

/// The background task.
struct Task {
    shared: Arc<Shared>,
    timer: Pin<Box<Sleep>>,
    watch: Pin<Box<Sleep>>,
    /// Activity when the watch began.
    seen: u64,
    connecting: Option<(u32, BoxFuture<'static, Connected>)>,
}

impl Task {
    fn new(shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        Self {
            shared,
            timer: Box::pin(sleep_until(now)),
            watch: Box::pin(sleep_until(now)),
            seen: 0,
            connecting: None,
        }
    }

    /// Ready when the session is closed.
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
        loop {
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
            drop(state);
            let ended = self.connect(begin, cx);
            state = shared.lock();
            match ended {
                Some((attempt, outcome)) => state.connected(attempt, outcome),
                None if state.background.wanted || state.background.attempt.is_some() => {}
                None => break,
            }
        }
        self.arm(&mut state, cx);
        Poll::Pending
    }

    /// Whether this task drives now; if nobody does, it soon will.
    fn shall_drive(&mut self, state: &mut State, cx: &mut Context<'_>) -> bool {
        let background = &mut state.background;
        if background.wanted || state.poller == Poller::Background {
            background.watching = false;
            return true;
        }
        if !background.watching {
            if state.poller != Poller::Nobody {
                return false;
            }
            background.watching = true;
            self.watch_from_now(background.activity);
        }
        while self.watch.as_mut().poll(cx).is_ready() {
            if state.poller != Poller::Nobody {
                background.watching = false;
                return false;
            }
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

    /// Begins and continues a connection attempt, without the lock; says how it ended.
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

    /// Sets the timer for what is due next. It is only ever set earlier: ringing for nothing now and then costs less than
    /// being set for every call.
    fn arm(&mut self, state: &mut State, cx: &mut Context<'_>) {
        if !state.timer_is_late() {
            return;
        }
        let Some(due) = state.session.poll_timeout().map(Instant::from_std) else { return };
        self.timer.as_mut().reset(due);
        state.background.armed = Some(due);
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}
