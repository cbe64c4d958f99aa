//! A TCP connection of the server: records in, dispatch, records out.
//!
//! Calls are answered in the order in which their handlers end. Back-pressure works by not reading. A connection reads
//! no further call while [`max_calls`](crate::ServerConfig::max_calls) are in progress, or while more than
//! [`max_queued`](crate::ServerConfig::max_queued) bytes of replies wait for the client. Records, calls in progress and
//! replies count against the share of the client's address ([`PeerShares`](crate::PeerShares)). A connection whose
//! address has used its share up reads nothing.
//! Calls do not wait for each other in a share. Memory for a call and its reply is reserved before memory of its
//! record. So a complete record needs no more to begin, nor a call to end. Replies wait for the client alone, and
//! incomplete records have a time limit.
//!
//! Replies to calls that arrived together leave together, by one system call. They wait until no further call is here,
//! the turn is over, or the next call waits for memory.
//!
//! TCP grants no credits. The server assumes that a client has at most [`tcp_calls`](crate::ServerConfig::tcp_calls)
//! Calls without a reply, so that later Calls prove replies received.
//!
//! A client sends a Call again on its next connection only. So a Call that gets no reply ends this one, behind the replies
//! that are ready ([`Connection::lost`]). It proves no reply received.
//!
//! When the server stops, a connection closes its sending half behind the last reply. It then waits until the client has
//! closed, for a limited time: a call whose reply got lost would be executed again by the next server.
//!
//! A client may ask for TLS (RFC 9289): [`Door`] finds that out. The connection then answers the calls in progress, and the
//! probe last. After the handshake it goes on with the same state on a [`TlsStream`].
//!
//! *Buffers.* A call's record belongs to its handler, a reply's pieces to the writer until written.
//!
//! *Errors.* The connection ends; handlers go on to the reply cache (see [`Handlers`]). A program that panics has an answer like
//! others.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_oncrpc::{Attached, Outcome, Peer, ReplyWindow, TransportKind};
use rpcrdma_proto::Pace;
use rpcrdma_verbs::{PoolExhausted, ProtectionDomain, Reserved};
use rpcrdma_xdr::Decoder;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::door::{Door, Entry, offer};
use super::record::{CALL_ROOM, RecordError, RecordSink, RecordSource};
use super::stream::{ByteStream, linger};
use super::tls::{TLS_ROOM, TlsStream};
use crate::admission::Place;
use crate::clients::{End, Visit};
use crate::config::ServerConfig;
use crate::counts::{Arrived, Meter};
use crate::handlers::{HandlerPanicked, Handlers};
use crate::programs::{Dispatch, Dispatched};
use crate::registry::{Published, Record, Registered};
use crate::serving::{Phase, Shared, StopSignal};
use crate::tls::{AUDIT, TlsServer};
use crate::trace::Traced;
use crate::turns::{BYTES_PER_TURN, Line, end_turn};

/// The reason why a connection ended other than in order.
#[derive(Debug, Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Handler(#[from] HandlerPanicked),
    #[error("the server stopped before every call was answered")]
    Stopped,
    /// RFC 9289 §5.1.1: such data is discarded without an answer.
    #[error("data came behind the probe for TLS, before the handshake")]
    Spurious,
    #[error("the TLS handshake failed: {0}")]
    Handshake(io::Error),
    #[error("TLS was not set up within {0:?}")]
    Slow(Duration),
}

/// The way in which a stream ended in order.
enum After {
    /// The reason.
    Closed(End),
    /// The client waits for the handshake.
    StartTls(TlsServer),
}

impl After {
    /// Returns the reason of an end in order, for the log.
    fn reason(self) -> End {
        match self {
            Self::Closed(why) => why,
            // Not on a stream that has TLS already.
            Self::StartTls(_) => End::because(&"a second handshake was asked for"),
        }
    }
}

/// Runs a connection to its end. `owner` is the user at the other end, if known.
pub(crate) async fn run(
    stream: TcpStream,
    (peer, owner): (SocketAddr, Option<u32>),
    shared: Arc<Shared>,
    place: (Place, Line),
    stop: StopSignal,
    entry: &Registered,
) {
    // Dropped after the connection, which then has published its last counters.
    let mut visit = Visit::new(Arc::clone(entry.record()), Arc::clone(&shared.visits));
    let mut connection = Connection::new((peer, owner), shared, place, stop, Arc::clone(entry.record()));
    let ended = match connection.run(&stream).await {
        Ok(After::StartTls(settings)) => Box::pin(connection.secured(stream, &settings)).await,
        Ok(after) => {
            connection.part(linger(&stream)).await;
            Ok(after.reason())
        }
        Err(error) => Err(error),
    };
    visit.ends(match ended {
        Ok(end) => end,
        Err(Ended::Stopped) => End::Cut,
        Err(error) => End::because(&error),
    });
}

/// A call that a handler works on.
#[derive(Debug)]
struct InProgress {
    served: Option<Traced>,
    /// The call for the counters.
    arrived: Arrived,
    /// Length of the call's record, in bytes.
    length: usize,
    /// Memory of the address's share, reserved for the reply.
    room: Reserved,
}

struct Connection {
    peer: SocketAddr,
    owner: Option<u32>,
    shared: Arc<Shared>,
    stop: StopSignal,
    domain: ProtectionDomain,
    reader: RecordSource,
    writer: RecordSink,
    handlers: Handlers<Dispatch, InProgress>,
    window: ReplyWindow,
    /// Examines calls if the server speaks TLS.
    door: Option<Door>,
    /// The client as TLS knows it, for handlers.
    tls: Option<Attached>,
    /// The probe for TLS, while calls before it are in progress.
    probe: Option<(Bytes, Reserved)>,
    /// Calls read, and the number of those that have ended, with a reply or without.
    calls: u64,
    ended: u64,
    /// Bytes of records received and sent.
    received: u64,
    sent: u64,
    meter: Meter,
    /// The entry in the list of connections.
    record: Arc<Record>,
    /// Whether no further calls are read; the connection closes when all are answered.
    draining: bool,
    /// Whether the server stops.
    stopping: bool,
    /// Whether a call has no reply: nothing more is read, and the connection closes behind the replies that are ready.
    lost: bool,
    /// Time of the last call or reply.
    active: Instant,
}

/// A server that stops begins nothing more for a client that has gone: the client may call the next server meanwhile.
impl Drop for Connection {
    fn drop(&mut self) {
        if self.stopping {
            self.handlers.abandon();
        }
    }
}

impl Connection {
    fn new(
        (peer, owner): (SocketAddr, Option<u32>),
        shared: Arc<Shared>,
        (place, line): (Place, Line),
        stop: StopSignal,
        record: Arc<Record>,
    ) -> Self {
        let config = &shared.config;
        let domain = shared.shares.of(Some(peer.ip()));
        record.holds(domain.clone(), None);
        let pace = Pace { stall: config.stall, least_rate: config.protocol.timeouts.least_rate };
        let call_room = CALL_ROOM + shared.programs.secured_room();
        let reader = RecordSource::new(domain.clone(), config.max_record, pace).with_call_room(call_room);
        let writer = RecordSink::new(pace);
        let window = shared.programs.window();
        let door = config.tls.clone().map(Door::new);
        let meter = shared.meter();
        let orphans = Arc::clone(&shared.orphans);
        Self {
            peer,
            domain,
            owner,
            reader,
            writer,
            shared,
            stop,
            handlers: Handlers::new(place, Some(line)).outlived_by(orphans),
            window,
            door,
            tls: None,
            probe: None,
            calls: 0,
            ended: 0,
            received: 0,
            sent: 0,
            meter,
            record,
            draining: false,
            stopping: false,
            lost: false,
            active: Instant::now(),
        }
    }

    /// Serves the stream until it ends, or until TLS is to begin on it.
    async fn run(&mut self, stream: &impl ByteStream) -> Result<After, Ended> {
        // Bytes of replies in this turn.
        let mut made: usize = 0;
        loop {
            // Replies to calls that arrived together leave together.
            if self.writer.queued() > 0 && !(self.may_read() && self.reader.has_record()) {
                self.writer.write_now(stream)?;
                self.handed_over();
            }
            let busy = self.handlers.len() > 0;
            let queued = self.writer.queued() > 0;
            // Calls in progress go on to the reply cache if one is lost: it must not wait for them.
            if !queued && (self.lost || self.draining && !busy) {
                return Ok(After::Closed(self.why_closed()));
            }
            if !busy
                && !queued
                && let Some((probe, room)) = self.probe.take()
                && let Some(settings) = self.start_tls(stream, probe, room).await?
            {
                return Ok(After::StartTls(settings));
            }
            let may_read = self.may_read();
            if !may_read {
                self.reader.pause();
            }
            tokio::select! {
                biased;
                phase = self.stop.changed() => self.obey(phase)?,
                next = poll_fn(|cx| self.handlers.poll_next(cx)), if busy => {
                    if let Some((call, outcome)) = next {
                        let outcome = outcome?;
                        if let (Outcome::Reply(reply), _) = &outcome {
                            made = reply.len().saturating_add(made);
                        }
                        self.answer(call, outcome);
                        // Light handlers make their results here.
                        if made >= BYTES_PER_TURN {
                            made = 0;
                            end_turn().await;
                        }
                    }
                }
                record = self.reader.next_with_room(stream), if may_read => match record? {
                    Some((record, room)) => self.start(record, room).await?,
                    None => self.draining = true,
                },
                // Also while the next record waits for memory, which replies may hold.
                flushed = self.writer.flush(stream), if queued => {
                    flushed?;
                    self.handed_over();
                }
                () = sleep_until(super::after(self.active, self.shared.config.tcp_idle)), if !busy && !queued => return Ok(After::Closed(End::because(&"idle"))),
            }
        }
    }

    /// Returns why the connection closes in order, for the log.
    fn why_closed(&self) -> End {
        match (self.lost, self.stopping) {
            (true, _) => End::because(&"no reply could be made to a call"),
            (false, true) => End::Stopped,
            (false, false) => End::because(&"closed by the client"),
        }
    }

    /// Notes that replies were handed to the stream, which is the end of their calls for the counters.
    fn handed_over(&mut self) {
        self.active = Instant::now();
        self.meter.take(self.active);
    }

    /// Publishes the counters of the connection.
    fn publish(&self) {
        self.record.publish(Published {
            calls: self.calls,
            in_flight: self.handlers.len(),
            received: self.received,
            sent: self.sent,
            credits: 0,
            version: 0,
        });
    }

    /// Follows the server when it begins to stop, or stops at once.
    fn obey(&mut self, phase: Phase) -> Result<(), Ended> {
        match phase {
            Phase::Run => {}
            Phase::Drain => (self.draining, self.stopping) = (true, true),
            Phase::Abort => {
                self.stopping = true;
                return Err(Ended::Stopped);
            }
        }
        Ok(())
    }

    /// Returns whether a further call may be read.
    fn may_read(&self) -> bool {
        let config = &self.shared.config;
        !self.draining
            && !self.lost
            && self.probe.is_none()
            && self.handlers.len() < config.max_calls
            && self.writer.queued() <= config.max_queued
            && !self.writer.is_overdrawn()
    }

    async fn start(&mut self, record: Bytes, room: Reserved) -> Result<(), HandlerPanicked> {
        self.active = Instant::now();
        self.shared.count_call();
        self.calls += 1;
        self.received = self.received.saturating_add(MARK + length_of(&record));
        let entry = self.door.as_mut().map_or(Entry::Pass, |door| door.examine(&record, self.peer));
        if matches!(entry, Entry::Probe) {
            self.probe = Some((record, room));
            return Ok(());
        }
        let peer = self.caller();
        let length = record.len();
        let message = Decoder::new(record);
        let arrived = self.meter.arrived(&message, self.active);
        let call = InProgress { served: Traced::new(&message, self.active), arrived, length, room };
        if let Entry::Refuse(outcome) = entry {
            self.answer(call, (outcome, None));
            return Ok(());
        }
        let (programs, now) = (Arc::clone(&self.shared.programs), self.active.into_std());
        // Only contexts know principals.
        let record = programs.has_contexts().then(|| Arc::clone(&self.record));
        let mut new = Some((call, || programs.dispatch(peer, message, now, record.as_ref())));
        let done = poll_fn(|cx| {
            let started = new.take().map(|(call, begin)| self.handlers.start(cx, call, begin));
            Poll::Ready(started.transpose())
        })
        .await?
        .flatten();
        if let Some((call, outcome)) = done {
            if let (Outcome::Reply(reply), _) = &outcome
                && reply.len() >= BYTES_PER_TURN
            {
                self.reader.end_turn();
            }
            self.answer(call, outcome);
        } else {
            self.publish();
        }
        Ok(())
    }

    fn caller(&self) -> Peer {
        Peer {
            address: Some(self.peer),
            transport: TransportKind::Tcp,
            window: Some(self.window.id()),
            attached: self.tls.clone(),
            owner: self.owner,
        }
    }

    /// Answers the probe for TLS, after all calls before it. Returns the settings of the handshake that follows; `None` if
    /// the call is none that the server accepts.
    async fn start_tls(
        &mut self,
        stream: &impl ByteStream,
        probe: Bytes,
        room: Reserved,
    ) -> Result<Option<TlsServer>, Ended> {
        // A client waits for the answer before its handshake, so anything else was slipped in.
        if !self.reader.is_empty() {
            return Err(Ended::Spurious);
        }
        let length = probe.len();
        let message = Decoder::new(probe);
        let arrived = self.meter.arrived(&message, self.active);
        let call = InProgress { served: Traced::new(&message, self.active), arrived, length, room };
        // NULL never waits. The status of its reply does not matter (RFC 9289 §4.1).
        let (outcome, key) =
            self.shared.programs.dispatch(self.caller(), message, self.active.into_std(), None).await;
        let offered = match &outcome {
            Outcome::Reply(reply) => offer(reply.clone()),
            Outcome::ChunkViolation(_) | Outcome::Drop => None,
        };
        let settings = self.door.as_ref().filter(|_| offered.is_some()).map(|door| door.settings().clone());
        self.answer(call, (offered.map_or(outcome, Outcome::Reply), key));
        loop {
            tokio::select! {
                biased;
                phase = self.stop.changed() => self.obey(phase)?,
                flushed = self.writer.flush(stream) => break flushed?,
            }
        }
        self.active = Instant::now();
        Ok(settings.filter(|_| !self.draining))
    }

    /// Sets TLS up on the stream and serves it to its end.
    async fn secured(&mut self, stream: TcpStream, settings: &TlsServer) -> Result<End, Ended> {
        let set_up = self.shared.config.set_up;
        let until = super::after(Instant::now(), set_up);
        let slow = |_| Ended::Slow(set_up);
        let _room = self.room(TLS_ROOM, until).await?;
        let stream = TlsStream::server(stream, settings).map_err(Ended::Handshake)?;
        let handshake = tokio::select! {
            done = timeout_at(until, stream.handshake()) => done.map_err(slow)?,
            () = stopping(&mut self.stop) => return Err(Ended::Stopped),
        };
        if let Err(error) = handshake {
            settings.tell_refusal(self.peer, &error);
            // The client has until then to read why, or until the server stops.
            tokio::select! {
                _ = timeout_at(until, stream.linger()) => {}
                () = stopping(&mut self.stop) => {}
            }
            return Err(Ended::Handshake(error));
        }
        let (client, suite) = stream.peer();
        let client = client.filter(|_| settings.authenticates()).unwrap_or_else(|| "anonymous".to_owned());
        tracing::info!(target: AUDIT, peer = %self.peer, client, suite, "TLS begins");
        if settings.authenticates() {
            self.record.known_as(&client);
        }
        // Handlers may keep the certificates longer than the connection lives.
        let room = match stream.certificates_memory() {
            memory @ 1.. if settings.authenticates() => Some(self.room(memory, until).await?),
            _ => None,
        };
        self.tls = Some(Attached::new(stream.client_facts(room)));
        if let Some(door) = &mut self.door {
            door.enter();
        }
        self.active = Instant::now();
        let ended = self.run(&stream).await.map(After::reason);
        stream.close();
        if ended.is_ok() {
            self.part(stream.linger()).await;
        }
        ended
    }

    /// Lets the client take the last replies when the server stops. The client sends a call without a reply again, perhaps to
    /// another server, which would execute it once more. The first call of a client that has just connected may be on its way,
    /// and would meet a reset.
    async fn part(&mut self, lingers: impl Future<Output = ()>) {
        let (since, limit) = if self.calls > 0 { (ARRIVED, LINGER) } else { (FIRST_CALL, FIRST_CALL) };
        if self.stopping && self.active.elapsed() < since {
            tokio::select! {
                _ = timeout(limit, lingers) => {}
                // The phase after the one in which the server stops.
                _ = self.stop.changed() => {}
            }
        }
    }

    /// Reserves so many bytes for TLS before this time.
    async fn room(&mut self, length: usize, until: Instant) -> Result<Reserved, Ended> {
        let config = &self.shared.config;
        let spare = config.max_record.saturating_add(ServerConfig::BESIDE_PAYLOAD);
        tokio::select! {
            room = timeout_at(until, reserve(&self.domain, length, spare)) => {
                Ok(room.map_err(|_| Ended::Slow(config.set_up))??)
            }
            () = stopping(&mut self.stop) => Err(Ended::Stopped),
        }
    }

    fn answer(&mut self, call: InProgress, (outcome, key): Dispatched) {
        self.shared.programs.trace(
            Some(self.peer),
            call.served,
            &outcome,
            &format_args!("{} B by TCP", call.length),
        );
        self.ended += 1;
        self.meter.answered(call.arrived, &outcome);
        match outcome {
            Outcome::Reply(reply) => {
                self.sent = self.sent.saturating_add(MARK + u64::try_from(reply.len()).unwrap_or(u64::MAX));
                self.writer.push_reply(&reply, call.room, &self.domain);
                let unanswered = u64::try_from(self.shared.config.tcp_calls).unwrap_or(u64::MAX);
                let proof = self.ended.saturating_add(unanswered);
                self.window.advance(self.calls, key.map(|key| (key, proof)));
            }
            Outcome::ChunkViolation(error) => {
                tracing::warn!(peer = %self.peer, %error, "chunk violation on TCP, where no chunks exist");
                self.lost = true;
            }
            Outcome::Drop => {
                tracing::debug!(peer = %self.peer, "a call gets no reply: the connection closes");
                // A server that stops answers the others first.
                self.lost = !self.stopping;
            }
        }
        self.publish();
    }
}

/// Time for a client to take its last replies and to close, when the server stops.
const LINGER: Duration = Duration::from_secs(5);
/// Time after a connection's begin in which its first call may be on its way, and for its client to close when the server stops.
const FIRST_CALL: Duration = Duration::from_secs(1);
/// Time after which the last reply has arrived, even over a slow link.
const ARRIVED: Duration = Duration::from_secs(60);

/// Bytes of the mark in front of a record (RFC 5531 §11).
const MARK: u64 = 4;

/// Returns the length of a record in bytes.
fn length_of(record: &Bytes) -> u64 {
    u64::try_from(record.len()).unwrap_or(u64::MAX)
}

/// Waits until the server stops.
async fn stopping(stop: &mut StopSignal) {
    while matches!(stop.changed().await, Phase::Run) {}
}

/// Reserves `length` bytes for a connection under TLS, and waits for them. Afterwards as much as `spare` is left: otherwise
/// sessions at rest could hold what each of them needs to read a call.
async fn reserve(domain: &ProtectionDomain, length: usize, spare: usize) -> Result<Reserved, RecordError> {
    let mut wait = domain.wait();
    loop {
        let both = domain.reserve(length).and_then(|room| domain.reserve(spare).map(|_| room));
        match both {
            Ok(room) => return Ok(room),
            Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {
                let room = [length, spare].map(ProtectionDomain::room_for).into_iter().sum();
                poll_fn(|cx| wait.poll(cx, room)).await;
            }
            Err(error) => return Err(RecordError::Memory(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::*;
    use crate::handlers::{TASK_ROOM, carry_on};
    use crate::programs::Dispatch;

    /// Returns the size of a function's return value, in bytes.
    fn returned<A, B, C, R>(_: impl Fn(A, B, C) -> R) -> usize {
        size_of::<R>()
    }

    #[test]
    fn i6_the_task_of_a_call_fits_into_its_room() {
        // The runtime keeps this much for a task beside its future, including entries in the set of tasks and in the
        // line of its address.
        const RUNTIME: usize = 384;
        let task =
            returned(|call: (Dispatch, InProgress), keeps: Arc<dyn Any + Send + Sync>, line: &Line| {
                line.in_turn(carry_on(call.0, call.1, keeps))
            });
        assert!((size_of::<Dispatch>()..=TASK_ROOM - RUNTIME).contains(&task), "{task}");
    }
}
