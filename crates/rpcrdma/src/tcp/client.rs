//! The client's side of RPC over TCP.
//!
//! A single task runs the connection; calls wait for it. When the connection is lost, the task opens another as soon as
//! there is a call to send, with growing pauses. It then sends again, under the same XIDs, the unanswered calls that
//! may be sent twice (I8). Calls in flight are bounded; further ones wait.
//!
//! With [`ClientConfig::tls`] each connection begins with TLS, or there is none (`starttls`). If TLS is refused, the calls
//! that wait fail at once: waiting would not help them.
//!
//! *Buffers.* A call's message stays here until its reply came, for sending again. A reply's record goes to the caller.
//!
//! *Errors.* A fault of the stream ends the connection, never the client. A call that is dropped or times out is
//! forgotten; its late reply is discarded (I10).

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_oncrpc::TransportKind;
use rpcrdma_proto::{Invalidations, Pace, Travelled};
use rpcrdma_verbs::{ConnectError, ProtectionDomain};
use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::record::{RecordError, RecordSink, RecordSource};
use super::starttls::{self, Link};
use super::stream::ByteStream;
use super::tls::{Explained, is_fault};
use super::{Moved, Patience};
use crate::call::{Call, RawReply, ReplyShape, Transfer};
use crate::cause::Cause;
use crate::config::ClientConfig;
use crate::connect::AttemptError;
use crate::error::CallError;
use crate::stats::ClientStats;
use crate::tls::TlsClient;
use crate::xid::Xids;

/// Length of the shortest reply, in bytes: XID and message type.
const REPLY_MIN: usize = 8;

/// Bytes of call and reply together from which on a call has more time while data moves.
const BULK: usize = 8 << 10;

/// The runner of calls over TCP.
pub(crate) struct TcpClient {
    shared: Arc<Shared>,
}

struct Shared {
    to: SocketAddr,
    config: ClientConfig,
    domain: ProtectionDomain,
    state: Mutex<State>,
    /// Notifies the task of something to send, or of the client's end.
    work: Notify,
    /// Notifies of the end of the task.
    ended: Notify,
    in_flight: Semaphore,
    moved: Arc<Moved>,
}

struct State {
    xids: Xids,
    calls: HashMap<u32, Pending>,
    unsent: VecDeque<u32>,
    phase: Phase,
    /// The reason why there is no connection.
    down: Option<Cause>,
    /// An attempt to open a connection is to be made, even without a call.
    wanted: bool,
    stats: ClientStats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// New calls are refused; the task ends when those in progress have ended.
    Closing,
    /// The task has ended.
    Closed,
}

/// A call that waits for its reply.
struct Pending {
    message: Stream,
    /// Bytes of the call and its reply, by [`bulk`].
    bulk: u64,
    retransmit: bool,
    transmissions: u32,
    reply: oneshot::Sender<Result<Answered, CallError>>,
}

/// The record of a reply, and whether its call had left on an earlier connection too.
struct Answered {
    record: Bytes,
    sent_before: bool,
}

/// The reason why a connection ended.
#[derive(Debug, Error)]
enum Lost {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("closed by the server")]
    Peer,
    #[error("record of {0} bytes; a reply has at least {REPLY_MIN}")]
    ShortReply(usize),
    #[error("closed by this side")]
    Closed,
}

/// Returns the bytes that a call and its reply can have together; 0 for fewer than [`BULK`].
fn bulk(length: usize, reply: &ReplyShape) -> u64 {
    let bytes = length.saturating_add(reply.whole());
    if bytes < BULK { 0 } else { u64::try_from(bytes).unwrap_or(u64::MAX) }
}

impl Lost {
    /// Returns whether the peer refused TLS, by an alert for instance.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Record(RecordError::Io(error)) if is_fault(error))
    }

    /// Returns the reason for calls, with the remedy for a refusal of TLS.
    fn into_cause(self) -> Cause {
        match self {
            Self::Record(RecordError::Io(error)) if is_fault(&error) => Explained(error).into(),
            Self::Record(error) => error.into(),
            lost => lost.into(),
        }
    }
}

impl State {
    /// Returns the bytes that calls in flight can have, by [`bulk`].
    fn bulk(&self) -> u64 {
        self.calls.values().map(|call| call.bulk).fold(0, u64::saturating_add)
    }
}

impl TcpClient {
    /// Opens a connection to this address within this time.
    pub(crate) async fn connect(
        (to, limit): (SocketAddr, Duration),
        config: ClientConfig,
        domain: ProtectionDomain,
    ) -> Result<Self, AttemptError> {
        let first = open((to, limit), &config, &domain).await?;
        let calls = usize::try_from(config.protocol.calls).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            to,
            domain,
            state: Mutex::new(State {
                xids: Xids::new(),
                calls: HashMap::new(),
                unsent: VecDeque::new(),
                phase: Phase::Open,
                down: None,
                wanted: false,
                stats: ClientStats { connections: 1, ..ClientStats::default() },
            }),
            work: Notify::new(),
            ended: Notify::new(),
            in_flight: Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS)),
            moved: Arc::new(Moved::new()),
            config,
        });
        tokio::spawn(run(Arc::clone(&shared), first));
        Ok(Self { shared })
    }

    pub(crate) async fn call(&self, call: Call) -> Result<RawReply, CallError> {
        call.check_tcp(&self.shared.config)?;
        let after = call.time(self.shared.config.protocol.timeouts.call);
        let (Answered { record, sent_before }, sent_len) = self.exchange(call, after).await?;
        let inline = |sent| {
            let mut travelled = Travelled::default();
            travelled.sent = sent;
            travelled
        };
        let travelled = Transfer {
            transport: TransportKind::Tcp,
            call: inline(sent_len),
            reply: inline(record.len()),
            invalidations: Invalidations::default(),
        };
        Ok(RawReply { message: Decoder::new(record), travelled, sent_before })
    }

    /// Sends the call and waits for its reply, which is returned with the length of the call.
    async fn exchange(&self, call: Call, after: Duration) -> Result<(Answered, usize), CallError> {
        let shared = &self.shared;
        let least_rate = shared.config.protocol.timeouts.least_rate;
        let limit = call.deadline.map(|deadline| (super::after(Instant::now(), deadline), deadline));
        let mut patience = Patience::new(Pace { stall: after, least_rate }, &shared.moved)
            .until(limit.map(|(until, _)| until));
        let late = |sent| {
            let mut state = shared.lock();
            state.stats.timed_out += 1;
            let over = limit.filter(|(until, _)| *until <= Instant::now());
            CallError::TimedOut {
                after: over.map_or(after, |(_, time)| time),
                sent,
                link: state.down.clone(),
            }
        };
        let mut acquire = pin!(shared.in_flight.acquire());
        let in_flight = loop {
            match timeout_at(patience.deadline, acquire.as_mut()).await {
                Ok(in_flight) => break in_flight,
                // The call waits for those in flight.
                Err(_) if patience.goes_on(&shared.moved, &mut shared.lock().bulk()) => {}
                Err(_) => return Err(late(false)),
            }
        };
        let _in_flight = in_flight.map_err(|_| CallError::Closed { sent: false })?;
        let (reply, answered) = oneshot::channel();
        let (xid, length) = {
            let mut state = shared.lock();
            if state.phase != Phase::Open {
                return Err(CallError::Closed { sent: false });
            }
            let xid = call.xid().unwrap_or_else(|| state.xids.take());
            let retransmit = call.retransmit;
            let (message, shape) = call.into_message(xid)?;
            let (length, room) = (message.len(), shared.config.max_record);
            if length > room {
                return Err(CallError::CallTooLong { len: length, room });
            }
            let bulk = bulk(length, &shape);
            state.calls.insert(xid, Pending { message, bulk, retransmit, transmissions: 0, reply });
            state.unsent.push_back(xid);
            state.stats.calls += 1;
            (xid, length)
        };
        // From here on, dropping the future at any point forgets the call.
        let _forget = Forget { shared, xid };
        shared.work.notify_one();
        let mut answered = pin!(answered);
        // Bytes that can give the call more time: those in flight when its time is first up.
        let mut left = None;
        loop {
            match timeout_at(patience.deadline, answered.as_mut()).await {
                Ok(result) => return Ok((result.map_err(|_| CallError::Closed { sent: true })??, length)),
                Err(_)
                    if patience.goes_on(&shared.moved, left.get_or_insert_with(|| shared.lock().bulk())) => {}
                Err(_) => {
                    let sent = shared.lock().calls.get(&xid).is_none_or(|call| call.transmissions > 0);
                    return Err(late(sent));
                }
            }
        }
    }

    /// Returns an XID that no other call gets.
    pub(crate) fn next_xid(&self) -> u32 {
        self.shared.lock().xids.take()
    }

    /// Returns the time that a call has for its reply.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.shared.config.protocol.timeouts.call
    }

    /// Returns whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.lock().down.is_none()
    }

    /// Asks for a connection without a call.
    pub(crate) fn reopen(&self) {
        self.shared.lock().wanted = true;
        self.shared.work.notify_one();
    }

    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.shared.domain
    }

    pub(crate) fn tls(&self) -> Option<&TlsClient> {
        self.shared.config.tls.as_ref()
    }

    pub(crate) fn stats(&self) -> ClientStats {
        let state = self.shared.lock();
        ClientStats { memory_in_use: self.shared.domain.usage().in_use, ..state.stats }
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

impl Drop for TcpClient {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Forgets a call whose future ends, in whatever way.
struct Forget<'a> {
    shared: &'a Shared,
    xid: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.calls.remove(&self.xid);
        if state.phase == Phase::Closing && state.calls.is_empty() {
            self.shared.work.notify_one();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Closing;
        }
        drop(state);
        self.work.notify_one();
    }

    /// Returns whether there is a reason to open a connection.
    fn wants_connection(&self) -> bool {
        let mut state = self.lock();
        std::mem::take(&mut state.wanted) || !state.calls.is_empty()
    }

    /// Returns whether the task has nothing left to do.
    fn finished(&self) -> bool {
        let state = self.lock();
        state.phase != Phase::Open && state.calls.is_empty()
    }

    /// Queues the messages that are to be sent.
    fn queue(&self, writer: &mut RecordSink) {
        let mut state = self.lock();
        let State { calls, unsent, stats, .. } = &mut *state;
        for xid in unsent.drain(..) {
            // Calls that were forgotten meanwhile are not sent.
            let Some(call) = calls.get_mut(&xid) else { continue };
            stats.retransmissions += u64::from(call.transmissions > 0);
            call.transmissions += 1;
            writer.push(&call.message);
        }
    }

    fn answered(&self, record: Bytes) -> Result<(), Lost> {
        let Some(&[a, b, c, d, ..]) = record.first_chunk::<REPLY_MIN>() else {
            return Err(Lost::ShortReply(record.len()));
        };
        let xid = u32::from_be_bytes([a, b, c, d]);
        match self.lock().calls.remove(&xid) {
            // The future may be dropped at this very moment.
            Some(call) => {
                let sent_before = call.transmissions > 1;
                drop(call.reply.send(Ok(Answered { record, sent_before })));
            }
            None => tracing::debug!(xid, "reply to no call that waits"),
        }
        Ok(())
    }

    /// Handles the loss of the connection. Calls that may be sent again are queued in the order of their XIDs; the
    /// others fail.
    fn lost(&self, reason: Cause) {
        let mut state = self.lock();
        let State { calls, unsent, .. } = &mut *state;
        let final_ones: Vec<u32> = calls
            .iter()
            .filter(|(_, call)| call.transmissions > 0 && !call.retransmit)
            .map(|(&xid, _)| xid)
            .collect();
        for call in final_ones.iter().filter_map(|xid| calls.remove(xid)) {
            let _ = call.reply.send(Err(CallError::ConnectionLost { reason: reason.clone() }));
        }
        let mut again: Vec<u32> =
            calls.iter().filter(|(_, call)| call.transmissions > 0).map(|(&xid, _)| xid).collect();
        again.sort_unstable();
        again.extend(unsent.drain(..));
        unsent.extend(again);
        state.down = Some(reason);
    }

    /// Handles a refusal of TLS: every call fails, as if the server had refused its credential (RFC 9289 §4.1).
    fn refused(&self, reason: Cause) {
        let mut state = self.lock();
        let State { calls, unsent, down, .. } = &mut *state;
        unsent.clear();
        for (_, call) in calls.drain() {
            let (reason, sent) = (reason.clone(), call.transmissions > 0);
            let _ = call.reply.send(Err(CallError::Tls { reason, sent }));
        }
        *down = Some(reason);
    }
}

/// Opens a connection to this address within this time, with TLS if that is set.
async fn open(
    (to, limit): (SocketAddr, Duration),
    config: &ClientConfig,
    domain: &ProtectionDomain,
) -> Result<Link, AttemptError> {
    let opening = async {
        let stream = TcpStream::connect(to).await.map_err(ConnectError::Io)?;
        super::prepare(&stream, config.keep_alive, config.stall).map_err(ConnectError::Io)?;
        match &config.tls {
            None => Ok(Link::Plain(stream)),
            Some(settings) => Box::pin(starttls::start(stream, to, settings, config, domain)).await,
        }
    };
    let step = if config.tls.is_some() { "TCP connection with TLS" } else { "TCP connection" };
    timeout(limit, opening).await.map_err(|_| ConnectError::Timeout(step))?
}

/// Runs one connection after the other until the client closes.
async fn run(shared: Arc<Shared>, first: Link) {
    let mut pauses = Pauses::new(&shared.config);
    let mut link = Some(first);
    while let Some(connection) = link.take() {
        let (reason, answered) = match &connection {
            Link::Plain(stream) => serve(&shared, stream).await,
            Link::Tls(stream) => {
                let ended = serve(&shared, &**stream).await;
                stream.close();
                ended
            }
        };
        drop(connection);
        if answered {
            pauses.reset();
        }
        if matches!(reason, Lost::Closed) {
            break;
        }
        tracing::info!(to = %shared.to, %reason, "TCP connection lost");
        // A server checks the client's certificate after the client's part of the handshake.
        if reason.is_refusal() && !answered {
            shared.refused(reason.into_cause());
        } else {
            shared.lost(reason.into_cause());
        }
        link = reopen(&shared, &mut pauses).await;
    }
    let mut state = shared.lock();
    state.phase = Phase::Closed;
    state.calls.clear();
    drop(state);
    shared.ended.notify_waiters();
}

/// Opens the next connection when there is a call for it; returns `None` if the client closes first.
async fn reopen(shared: &Shared, pauses: &mut Pauses) -> Option<Link> {
    loop {
        loop {
            if shared.finished() {
                return None;
            }
            if shared.wants_connection() {
                break;
            }
            shared.work.notified().await;
        }
        pauses.wait(shared).await;
        if shared.finished() {
            return None;
        }
        let limit = shared.config.protocol.timeouts.connect;
        match open((shared.to, limit), &shared.config, &shared.domain).await {
            Ok(link) => {
                let mut state = shared.lock();
                state.down = None;
                state.wanted = false;
                state.stats.connections += 1;
                drop(state);
                return Some(link);
            }
            Err(AttemptError::Tls(reason)) => {
                tracing::info!(to = %shared.to, %reason, "cannot reconnect");
                shared.refused(reason);
            }
            Err(error) => {
                tracing::info!(to = %shared.to, %error, "cannot reconnect");
                shared.lock().down = Some(error.into());
            }
        }
    }
}

/// Runs one connection; returns why it ended and whether anything was answered on it.
async fn serve(shared: &Shared, stream: &impl ByteStream) -> (Lost, bool) {
    let config = &shared.config;
    let pace = Pace { stall: config.stall, least_rate: config.protocol.timeouts.least_rate };
    let mut reader =
        RecordSource::new(shared.domain.clone(), config.max_record, pace).telling(Arc::clone(&shared.moved));
    let mut writer = RecordSink::new(pace).telling(Arc::clone(&shared.moved));
    let mut answered = false;
    let reason = async {
        loop {
            shared.queue(&mut writer);
            if shared.finished() {
                return Err(Lost::Closed);
            }
            tokio::select! {
                record = reader.next(stream) => {
                    shared.answered(record?.ok_or(Lost::Peer)?)?;
                    answered = true;
                }
                flushed = writer.flush(stream), if writer.queued() > 0 => flushed?,
                () = shared.work.notified() => {}
            }
        }
    }
    .await;
    let Err::<std::convert::Infallible, Lost>(reason) = reason;
    (reason, answered)
}

/// The pauses before connection attempts: none at first, then growing until something is answered again.
struct Pauses {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Pauses {
    fn new(config: &ClientConfig) -> Self {
        let timeouts = &config.protocol.timeouts;
        Self { least: timeouts.reconnect_least, most: timeouts.reconnect_most, next: Duration::ZERO }
    }

    fn reset(&mut self) {
        self.next = Duration::ZERO;
    }

    /// Waits for the pause; ends early if the client closes and no call is left.
    async fn wait(&mut self, shared: &Shared) {
        let until = super::after(Instant::now(), self.next);
        self.next = self.next.saturating_mul(2).max(self.least).min(self.most);
        // A wake-up that was meant for the next connection is not lost: that connection looks for work before it waits.
        while !shared.finished() && timeout_at(until, shared.work.notified()).await.is_ok() {}
    }
}
