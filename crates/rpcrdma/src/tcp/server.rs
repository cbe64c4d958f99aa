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
//! Calls without a reply, so that later Calls prove replies received. Calls that end without a reply prove nothing.
//!
//! *Buffers.* A call's record belongs to its handler, a reply's pieces to the writer until written.
//!
//! *Errors.* The connection ends; handlers go on to the reply cache (see [`Handlers`]).

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use rpcrdma_oncrpc::{Outcome, Peer, ReplyWindow, TransportKind};
use rpcrdma_proto::Pace;
use rpcrdma_verbs::{ProtectionDomain, Reserved};
use rpcrdma_xdr::Decoder;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::record::{RecordError, RecordSink, RecordSource};
use crate::admission::Place;
use crate::handlers::{HandlerPanicked, Handlers};
use crate::programs::Dispatched;
use crate::serving::{Phase, Shared, StopSignal};
use crate::trace::Traced;
use crate::turns::{BYTES_PER_TURN, Line};

/// The reason why a connection ended other than in order.
#[derive(Debug, Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Handler(#[from] HandlerPanicked),
    #[error("the server stopped before every call was answered")]
    Stopped,
}

/// Runs a connection to its end. `owner` is the user at the other end, if known.
pub(crate) async fn run(
    stream: TcpStream,
    (peer, owner): (SocketAddr, Option<u32>),
    shared: Arc<Shared>,
    place: (Place, Line),
    stop: StopSignal,
) {
    let connection = Connection::new(&stream, (peer, owner), shared, place, stop);
    match connection.run().await {
        Ok(()) => tracing::debug!(%peer, "TCP connection closed"),
        Err(error) => tracing::info!(%peer, %error, "TCP connection ended"),
    }
}

/// A call that a handler works on.
#[derive(Debug)]
struct InProgress {
    served: Option<Traced>,
    /// Length of the call's record, in bytes.
    length: usize,
    /// Memory of the address's share, reserved for the reply.
    room: Reserved,
}

struct Connection<'a> {
    stream: &'a TcpStream,
    peer: SocketAddr,
    owner: Option<u32>,
    shared: Arc<Shared>,
    stop: StopSignal,
    domain: ProtectionDomain,
    reader: RecordSource,
    writer: RecordSink,
    handlers: Handlers<InProgress, Dispatched>,
    window: ReplyWindow,
    /// Calls read, and the number of those that have ended, with a reply or without.
    calls: u64,
    ended: u64,
    /// Whether no further calls are read; the connection closes when all are answered.
    draining: bool,
    /// Time of the last call or reply.
    active: Instant,
}

impl<'a> Connection<'a> {
    fn new(
        stream: &'a TcpStream,
        (peer, owner): (SocketAddr, Option<u32>),
        shared: Arc<Shared>,
        (place, line): (Place, Line),
        stop: StopSignal,
    ) -> Self {
        let config = &shared.config;
        let domain = shared.shares.of(Some(peer.ip()));
        let pace = Pace { stall: config.stall, least_rate: config.protocol.timeouts.least_rate };
        let reader = RecordSource::new(domain.clone(), config.max_record, pace);
        let writer = RecordSink::new(pace);
        let window = shared.programs.window();
        Self {
            stream,
            peer,
            domain,
            owner,
            reader,
            writer,
            shared,
            stop,
            handlers: Handlers::new(place, Some(line)),
            window,
            calls: 0,
            ended: 0,
            draining: false,
            active: Instant::now(),
        }
    }

    async fn run(mut self) -> Result<(), Ended> {
        loop {
            // Replies to calls that arrived together leave together.
            if self.writer.queued() > 0 && !(self.may_read() && self.reader.has_record()) {
                self.writer.write_now(self.stream)?;
                self.active = Instant::now();
            }
            let busy = self.handlers.len() > 0;
            let queued = self.writer.queued() > 0;
            if self.draining && !busy && !queued {
                return Ok(());
            }
            let may_read = self.may_read();
            if !may_read {
                self.reader.pause();
            }
            tokio::select! {
                biased;
                phase = self.stop.changed() => match phase {
                    Phase::Run => {}
                    Phase::Drain => self.draining = true,
                    Phase::Abort => return Err(Ended::Stopped),
                },
                next = poll_fn(|cx| self.handlers.poll_next(cx)), if busy => {
                    if let Some((call, outcome)) = next {
                        self.answer(call, outcome?);
                    }
                }
                record = self.reader.next_with_room(self.stream), if may_read => match record? {
                    Some((record, room)) => self.start(record, room).await?,
                    None => self.draining = true,
                },
                // Also while the next record waits for memory, which replies may hold.
                flushed = self.writer.flush(self.stream), if queued => {
                    flushed?;
                    self.active = Instant::now();
                }
                () = sleep_until(super::after(self.active, self.shared.config.tcp_idle)), if !busy && !queued => return Ok(()),
            }
        }
    }

    /// Returns whether a further call may be read.
    fn may_read(&self) -> bool {
        let config = &self.shared.config;
        !self.draining
            && self.handlers.len() < config.max_calls
            && self.writer.queued() <= config.max_queued
            && !self.writer.is_overdrawn()
    }

    async fn start(&mut self, record: Bytes, room: Reserved) -> Result<(), HandlerPanicked> {
        self.active = Instant::now();
        self.shared.count_call();
        self.calls += 1;
        let window = Some(self.window.id());
        let peer = Peer {
            address: Some(self.peer),
            transport: TransportKind::Tcp,
            window,
            attached: None,
            owner: self.owner,
        };
        let length = record.len();
        let message = Decoder::new(record);
        let call = InProgress { served: Traced::new(&message, self.active), length, room };
        let (programs, now) = (Arc::clone(&self.shared.programs), self.active.into_std());
        let mut new = Some((call, || programs.dispatch(peer, message, now)));
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
        }
        Ok(())
    }

    fn answer(&mut self, call: InProgress, (outcome, key): Dispatched) {
        self.shared.programs.trace(
            Some(self.peer),
            call.served,
            &outcome,
            &format_args!("{} B by TCP", call.length),
        );
        self.ended += 1;
        match outcome {
            Outcome::Reply(reply) => {
                self.writer.push_reply(&reply, call.room, &self.domain);
                let unanswered = u64::try_from(self.shared.config.tcp_calls).unwrap_or(u64::MAX);
                let proof = self.ended.saturating_add(unanswered);
                self.window.advance(self.calls, key.map(|key| (key, proof)));
            }
            Outcome::ChunkViolation(error) => {
                tracing::warn!(peer = %self.peer, %error, "chunk violation on TCP, where no chunks exist");
            }
            Outcome::Drop => {}
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
