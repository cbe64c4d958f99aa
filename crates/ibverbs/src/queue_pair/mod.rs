//! [`IbverbsQueuePair`]: a connection on an adapter, by the contract of `rpcrdma-verbs`.
//!
//! Receives go to the adapter at once. Requests wait here until [`poll`](QueuePair::poll) hands them over, many in one
//! call. A request waits longer if the adapter's queue is full. The adapter completes requests in order, but RDMA Reads
//! on siw. So one completion stands for all before it: the last request of a call asks for one, and those that a user
//! waits for.
//!
//! *Buffers.* The memory of a request belongs to its entry in a queue, that of a window to the table of windows. It comes
//! back after the adapter has completed the request, or after the queue pair has ended. [`Hardware::stop`] precedes every
//! completion that says `Flushed`.
//!
//! *Errors.* The first failure ends the connection and gives it its reason. The queue pair is then in the error state
//! and flushes its queues; [`FLUSH`] bounds the wait for that.

mod receiving;
mod reserving;
mod sending;
mod status;
mod windows;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::{
    Buffer, Capabilities, Completion, ConnectParameters, Counters, Disconnected, KeyScope, OwnPrivateData,
    PostError, PostErrorKind, ProtectionDomain, QueuePair, ReadSink, ReceiveMemory, Registrar, Status, Work,
    WorkRequest, WrId,
};
use tokio::time::{Instant, Sleep};

use self::receiving::Receives;
use self::sending::Sends;
use self::windows::{Backing, State as WindowState, Table};
use crate::adapter::Adapter;
use crate::cm::{Endpoint, Kind, Offer};
use crate::config::Config;
use crate::ffi::ibv_wc;
use crate::ffi::value::{WC_IP_CSUM_OK, WC_WITH_INV};
use crate::hardware::Hardware;
use crate::memory::Mode;
use crate::presence::{Gone, gone, say_farewell};

/// Time for the adapter to flush its queues after the end.
const FLUSH: Duration = Duration::from_secs(1);
/// Time without any completion after which a connection with requests at the adapter ends. InfiniBand and RoCE notice a
/// silent peer before that; iWARP leaves it to TCP, which may try for a quarter of an hour.
const STALL: Duration = Duration::from_secs(60);
/// Entries of the send queue beside those that users count: for invalidations.
const EXTRA: usize = 64;
/// Maximum number of completions from one call of `poll`.
const COMPLETIONS_PER_POLL: usize = 256;
/// Most octets of short pieces that wait in memory of the connection until they are sent.
const STAGING: usize = 4 << 20;
/// Marks the number of a Receive.
const RECEIVE: u64 = 1 << 63;

/// How far a connection is.
enum State {
    /// The user has accepted the request; the reply leaves with the first poll, after the Receives.
    Accepting(Offer),
    /// The reply has left. Requests wait until the peer is known to have it, until this time at most.
    Replied(Instant),
    /// Set up.
    Open,
    /// The queue pair flushes its queues, until this time at most.
    Ending(Instant),
    /// The adapter has nothing of this connection any more.
    Ended,
}

/// A connection on an adapter.
pub(crate) struct IbverbsQueuePair {
    /// `None` after the end.
    hardware: Option<Hardware>,
    /// Ready when the device is gone.
    gone: Gone,
    state: State,
    /// Set when the end begins.
    end: Option<Disconnected>,
    /// Whether the completion queue tells of the next completion.
    armed: bool,
    sends: Sends,
    receives: Receives,
    windows: Table,
    mode: Mode,
    iwarp: bool,
    /// RDMA Reads that the adapter answers at a time.
    most_reads_in: u16,
    /// Time for the last step of set-up.
    set_up: Duration,
    /// Memory for short pieces that are not registered.
    staging: ProtectionDomain,
    /// An octet that windows without memory expose, and that Receives without memory name.
    nothing: Option<Buffer>,
    done: VecDeque<Completion>,
    /// Completions of the adapter, copied before they are handled.
    taken: Vec<ibv_wc>,
    /// Time of the last completion of a request, or of the first request after all were completed.
    moved: Instant,
    /// The one timer: runs while the adapter has requests, and until the end.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the connection ends when everything that was posted has been carried out.
    draining: bool,
    capabilities: Capabilities,
    domain: ProtectionDomain,
    private_data: Bytes,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    counters: Counters,
    /// Flags of the last message's completion.
    last_flags: u32,
}

/// Results of set-up.
pub(crate) struct Setup<'a> {
    pub(crate) config: &'a Config,
    pub(crate) adapter: &'a Adapter,
    pub(crate) mode: Mode,
    pub(crate) parameters: ConnectParameters,
}

impl IbverbsQueuePair {
    /// Makes the queue pair of an identifier that is bound to the adapter.
    pub(crate) fn new(endpoint: Endpoint, setup: Setup<'_>) -> io::Result<Self> {
        let Setup { config, adapter, mode, parameters } = setup;
        let memory = adapter.registrations(mode)?;
        if mode.windows && !adapter.iwarp {
            // All connections share a domain: the pool's memory is registered once, before it is used.
            let registrar: Arc<dyn Registrar> = Arc::clone(&memory) as Arc<dyn Registrar>;
            parameters.domain.add_registrar(&registrar);
        }
        let sends = parameters.max_send_wr.saturating_add(EXTRA);
        let hardware = Hardware::new(endpoint, adapter, memory, sends, parameters.max_recv_wr)?;
        let sizes = hardware.sizes;
        let mut windows = config.max_windows;
        if mode.windows {
            windows = windows.min(adapter.limits.windows);
        }
        let mut capabilities = Capabilities::default();
        capabilities.remote_invalidation = mode.invalidation_flag.is_some();
        // Without windows, each connection has a protection domain of its own.
        capabilities.key_scope = KeyScope::QueuePair;
        capabilities.read_sink = if adapter.iwarp { ReadSink::Tagged } else { ReadSink::Local };
        capabilities.pooled_receives = false;
        capabilities.express_sends = false;
        capabilities.acknowledged_completions = !adapter.iwarp;
        capabilities.max_sge = sizes.send_segments.min(sizes.receive_segments);
        capabilities.max_send_wr = parameters.max_send_wr.min(sizes.sends);
        capabilities.max_recv_wr = parameters.max_recv_wr;
        capabilities.max_windows = windows;
        capabilities.ird = parameters.ird.min(u16::from(adapter.limits.reads_in));
        capabilities.ord = parameters.ord.min(u16::from(adapter.limits.reads_out));
        capabilities.max_message_len = adapter.limits.message_octets;
        let staging = ProtectionDomain::new(STAGING);
        Ok(Self {
            gone: gone(adapter.context()),
            hardware: Some(hardware),
            state: State::Open,
            end: None,
            armed: false,
            sends: Sends::new(sizes.sends),
            receives: Receives::new(sizes.receives),
            windows: Table::new(windows),
            mode,
            iwarp: adapter.iwarp,
            most_reads_in: u16::from(adapter.limits.reads_in),
            set_up: config.setup,
            nothing: staging.allocate(1, 1).ok(),
            staging,
            done: VecDeque::new(),
            taken: Vec::new(),
            moved: Instant::now(),
            timer: None,
            draining: false,
            capabilities,
            domain: parameters.domain,
            private_data: Bytes::new(),
            local: None,
            peer: None,
            counters: Counters::default(),
            last_flags: 0,
        })
    }

    /// Returns what this side states in its request or reply.
    pub(crate) fn offer(&self, announcement: &OwnPrivateData) -> Offer {
        let octet = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
        Offer {
            private_data: announcement.stated_by(&self.capabilities).clone(),
            reads_in: octet(self.capabilities.ird),
            reads_out: octet(self.capabilities.ord),
        }
    }

    /// Returns the identifier, for the rest of set-up.
    pub(crate) fn endpoint(&mut self) -> Option<&mut Endpoint> {
        self.hardware.as_mut().map(|hardware| &mut hardware.endpoint)
    }

    /// Takes over what the peer has stated, in its reply or (`requested`) in its request.
    pub(crate) fn agree(&mut self, private_data: Bytes, reads_in: u8, reads_out: u8, requested: bool) {
        let most = match (requested, self.iwarp) {
            // The Reply of siw repeats what was requested, so the adapter has to hold it.
            (true, true) => self.most_reads_in,
            _ => self.capabilities.ird,
        };
        self.capabilities.ird = most.min(u16::from(reads_in));
        self.capabilities.ord = self.capabilities.ord.min(u16::from(reads_out));
        self.private_data = private_data;
        if let Some(hardware) = &self.hardware {
            self.local = hardware.endpoint.local_address();
            self.peer = hardware.endpoint.peer_address();
        }
    }

    /// Sends this reply with the first poll.
    pub(crate) fn accept_later(&mut self, offer: Offer) {
        self.state = State::Accepting(offer);
    }

    /// Returns the flags of the last message's completion, as the adapter set them.
    pub(crate) fn last_flags(&self) -> u32 {
        self.last_flags
    }

    /// Returns whether the connection has neither ended nor begun to end.
    pub(crate) fn takes_work(&self) -> bool {
        matches!(self.state, State::Accepting(_) | State::Replied(_) | State::Open) && !self.draining
    }

    /// Ends the connection, for the first reason that is given.
    fn fail(&mut self, reason: Disconnected) {
        if !matches!(self.state, State::Ended) {
            if self.end.is_none() {
                tracing::debug!(%reason, peer = self.peer.map(tracing::field::display), "connection ends");
                self.end = Some(reason);
            }
            self.begin_end();
        }
    }

    /// Puts the queue pair into the error state, in which it flushes its queues, and tells the peer.
    fn begin_end(&mut self) {
        if matches!(self.state, State::Ending(_) | State::Ended) {
            return;
        }
        // A Receive that is flushed may come before the event that tells of the peer's orderly end.
        let in_order = matches!(self.end, None | Some(Disconnected::Local | Disconnected::Peer));
        let in_order = in_order && self.sends.is_empty();
        if let Some(hardware) = &mut self.hardware {
            hardware.disconnect(in_order);
        }
        // It has another deadline from here on.
        self.timer = None;
        self.state = State::Ending(Instant::now() + FLUSH);
    }

    /// Takes everything back from the adapter. Work that it has not carried out is flushed.
    fn finish(&mut self) {
        // Dropped at the end: the domain and the device stay until all registrations have ended.
        while self.take_completions() {}
        let mut hardware = self.hardware.take();
        if let Some(hardware) = &mut hardware {
            hardware.count(&mut self.counters);
            if let Some(fault) = hardware.fault() {
                self.end = Some(fault.reason(self.end.take()));
            }
            hardware.stop();
        }
        self.sends.flush(&mut self.done);
        self.receives.flush(&mut self.done);
        for (key, entry) in self.windows.drain() {
            let completion = |id, work| Completion { id, status: Status::Flushed, work };
            self.done.extend(
                entry.waiting.into_iter().map(|id| completion(id, Work::LocalInvalidate { memory: None })),
            );
            self.done.push_back(completion(WrId(0), Work::WindowFlushed { key, memory: entry.memory }));
        }
        self.nothing = None;
        // The adapter flushed everything and nobody said why, as after a fault of the peer.
        self.end.get_or_insert_with(|| Disconnected::Link("the adapter has ended the queue pair".to_owned()));
        self.state = State::Ended;
    }

    /// Handles events of the connection manager.
    fn handle_events(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some(hardware) = &mut self.hardware else { return };
            let event = match hardware.endpoint.poll_event(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(event)) => event,
                Poll::Ready(Err(error)) => {
                    self.fail(Disconnected::Link(format!("events of the connection: {error}")));
                    return;
                }
            };
            tracing::trace!(kind = ?event.kind, status = event.status, "event of the connection");
            match event.kind {
                Kind::Established => self.established(),
                Kind::Disconnected => {
                    // Work of before the end has completed: it precedes the event.
                    while self.take_completions() {}
                    self.end.get_or_insert(Disconnected::Peer);
                    self.begin_end();
                }
                Kind::DeviceRemoved => {
                    self.lose_device();
                    tokio::spawn(say_farewell());
                    return;
                }
                Kind::Unreachable => self.fail(Disconnected::Timeout("the peer did not finish the set-up")),
                Kind::Failed | Kind::Rejected => {
                    self.fail(Disconnected::Link(format!("set-up failed: status {}", event.status)));
                }
                Kind::AddressResolved
                | Kind::RouteResolved
                | Kind::Unresolved
                | Kind::Request
                | Kind::Other => {}
            }
        }
    }

    /// Lets go of the device at once, since the system waits for that.
    fn lose_device(&mut self) {
        self.fail(Disconnected::Link("the RDMA device is gone".to_owned()));
        self.finish();
        self.gone = Box::pin(std::future::pending());
    }

    fn established(&mut self) {
        if matches!(self.state, State::Replied(_)) {
            self.state = State::Open;
            // It waits for other things from here on.
            self.timer = None;
        }
    }

    /// Sends the reply of an accepted connection, when its Receives are posted.
    fn reply(&mut self) {
        let State::Accepting(offer) = &self.state else { return };
        let Some(hardware) = &self.hardware else { return };
        match hardware.endpoint.accept(offer) {
            Ok(()) => self.state = State::Replied(Instant::now() + self.set_up),
            Err(error) => self.fail(Disconnected::Link(format!("cannot accept: {error}"))),
        }
    }

    /// Handles the completions that are there. Returns whether there was one.
    fn take_completions(&mut self) -> bool {
        let Some(hardware) = &mut self.hardware else { return false };
        self.taken.clear();
        match hardware.take_completions() {
            Ok(taken) => self.taken.extend_from_slice(taken),
            Err(error) => {
                self.fail(Disconnected::Link(error.to_string()));
                return false;
            }
        }
        for index in 0..self.taken.len() {
            let Some(&taken) = self.taken.get(index) else { break };
            if taken.wr_id & RECEIVE == 0 {
                self.sent(&taken);
            } else {
                self.received(&taken);
            }
        }
        !self.taken.is_empty()
    }

    /// Handles a completion of the send queue.
    fn sent(&mut self, taken: &ibv_wc) {
        let number = taken.wr_id;
        self.sends.retire(number);
        if taken.status != status::SUCCESS {
            if !matches!(self.state, State::Ending(_)) {
                self.sends.fail(number, status::status(taken.status));
                self.settle();
            }
            self.failed(taken.status, false);
            return;
        }
        self.sends.succeed(number);
        self.moved = Instant::now();
        self.settle();
    }

    /// Handles the failure of a request or Receive.
    fn failed(&mut self, code: i32, receive: bool) {
        match status::reason(code, receive) {
            Some(reason) => self.fail(reason),
            // The reason is in another completion, or the peer has closed the connection: an event says that.
            None => self.begin_end(),
        }
    }

    /// Delivers requests that are carried out.
    fn settle(&mut self) {
        while let Some(posted) = self.sends.next_done() {
            let work = match posted.kind {
                sending::Kind::Send => Work::Send,
                sending::Kind::Write => Work::Write,
                sending::Kind::Read { sink } => {
                    let len = sink.len() as u64;
                    self.counters.tagged_bytes_received += len;
                    self.counters.link_bytes_received += len;
                    Work::Read { sink }
                }
                sending::Kind::Bind => Work::BindWindow,
                sending::Kind::Nothing => Work::LocalInvalidate { memory: None },
                sending::Kind::Close { memory } => Work::LocalInvalidate { memory: Some(memory) },
                sending::Kind::Invalidate { key } => {
                    let removed = self.windows.remove(key);
                    let (memory, waiting) =
                        removed.map_or((None, Vec::new()), |(memory, waiting)| (Some(memory), waiting));
                    let work = Work::LocalInvalidate { memory };
                    self.done.push_back(Completion { id: posted.id, status: Status::Success, work });
                    self.complete_waiting(waiting);
                    continue;
                }
            };
            self.done.push_back(Completion { id: posted.id, status: Status::Success, work });
        }
    }

    /// Completes invalidations of a window that is closed already.
    fn complete_waiting(&mut self, waiting: Vec<WrId>) {
        let work =
            |id| Completion { id, status: Status::Success, work: Work::LocalInvalidate { memory: None } };
        self.done.extend(waiting.into_iter().map(work));
    }

    /// Handles a completion of the receive queue.
    fn received(&mut self, taken: &ibv_wc) {
        if taken.status != status::SUCCESS {
            self.receives.fail(taken.wr_id & !RECEIVE, status::status(taken.status));
            self.failed(taken.status, true);
            return;
        }
        let Some(mut posted) = self.receives.take(taken.wr_id & !RECEIVE) else { return };
        self.last_flags = taken.wc_flags;
        // The peer sends only when it has our reply.
        self.established();
        let len = usize::try_from(taken.byte_len).unwrap_or(usize::MAX);
        self.counters.link_bytes_received += u64::from(taken.byte_len);
        let key = rpcrdma_verbs::Key(taken.invalidated_rkey);
        let tells = self.mode.invalidation_flag.is_some_and(|flag| taken.wc_flags & flag != 0);
        let mut invalidated = None;
        if tells && self.windows.is_open(key) {
            // An invalidation of ours that was posted meanwhile finds no window, and says so.
            invalidated = self.windows.remove(key).map(|(memory, waiting)| {
                self.counters.remote_invalidations += 1;
                self.complete_waiting(waiting);
                (key, memory)
            });
        }
        let work = Work::Receive { buffers: posted.take_buffers(), len, invalidated, solicited: false };
        self.done.push_back(Completion { id: posted.id(), status: Status::Success, work });
    }

    /// Gives waiting Receives and requests to the adapter.
    fn flush_queues(&mut self) {
        if let Err(reason) = self.post_receives() {
            self.fail(reason);
            return;
        }
        self.reply();
        if matches!(self.state, State::Open)
            && let Err(reason) = self.post_sends()
        {
            self.fail(reason);
        }
        self.settle();
    }

    /// Ends the connection if the adapter has requests and none has completed for too long.
    fn check_stall(&mut self, cx: &mut Context<'_>) {
        if self.sends.is_idle() {
            self.timer = None;
            return;
        }
        if self.timer.is_none() {
            self.moved = Instant::now();
        }
        // Completions do not set the timer again, which would cost more than a look at the clock when it fires.
        let mut deadline = self.moved + STALL;
        while self.is_over(deadline, cx) {
            deadline = self.moved + STALL;
            if Instant::now() >= deadline {
                self.timer = None;
                let (outstanding, oldest, armed) =
                    (self.sends.outstanding(), self.sends.oldest(), self.armed);
                tracing::warn!(
                    outstanding,
                    oldest,
                    armed,
                    peer = self.peer.map(tracing::field::display),
                    "the adapter completes nothing"
                );
                self.fail(Disconnected::Timeout("the link took no data, or the peer did not answer"));
                return;
            }
            self.timer = None;
        }
    }

    /// Returns whether the timer has fired, which is set to this time if it does not run.
    fn is_over(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        timer.as_mut().poll(cx).is_ready()
    }

    /// Does everything that can be done now.
    fn advance(&mut self, cx: &mut Context<'_>) {
        loop {
            self.handle_events(cx);
            // All of them: an invalidation by the peer must be known before a window is invalidated here.
            while self.take_completions() {}
            if let State::Ending(deadline) = self.state {
                let idle = self.sends.outstanding() == 0 && self.receives.outstanding() == 0;
                if (idle && self.end.is_some()) || self.is_over(deadline, cx) {
                    self.finish();
                }
            } else {
                self.flush_queues();
                if let State::Replied(deadline) = self.state {
                    if self.is_over(deadline, cx) {
                        self.fail(Disconnected::Timeout("the peer did not finish the set-up"));
                    }
                } else {
                    self.check_stall(cx);
                }
                if self.draining && matches!(self.state, State::Open) && self.sends.is_empty() {
                    self.fail(Disconnected::Local);
                }
                if matches!(self.state, State::Ending(_)) {
                    continue;
                }
            }
            let Some(hardware) = &mut self.hardware else { return };
            if !self.done.is_empty() {
                // The caller polls again.
                return;
            }
            if !std::mem::replace(&mut self.armed, true) {
                if let Err(error) = hardware.arm() {
                    self.fail(Disconnected::Link(error.to_string()));
                }
                if self.take_completions() || matches!(self.state, State::Ending(_)) {
                    continue;
                }
            }
            // Here and not at each poll: only a connection that has nothing to do waits for this.
            if self.gone.as_mut().poll(cx).is_ready() {
                self.lose_device();
                return;
            }
            let Some(hardware) = &mut self.hardware else { return };
            match hardware.poll_event(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => self.armed = false,
                Poll::Ready(Err(error)) => self.fail(Disconnected::Link(error.to_string())),
            }
        }
    }
}

impl QueuePair for IbverbsQueuePair {
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        let kind = match self.check(&request) {
            Ok(cost) => {
                if let WorkRequest::BindWindow { key } = request
                    && let Some(entry) = self.windows.get_mut(key)
                {
                    entry.state = WindowState::Queued;
                    if let Backing::Registration(_) = entry.backing {
                        // Open since the reservation.
                        entry.state = WindowState::Bound;
                        self.counters.windows_bound += 1;
                        self.done.push_back(Completion {
                            id,
                            status: Status::Success,
                            work: Work::BindWindow,
                        });
                        return Ok(());
                    }
                }
                if let WorkRequest::LocalInvalidate { key } = request
                    && let Some(entry) = self.windows.get_mut(key)
                    && entry.state == WindowState::Reserved
                    && let Backing::Window { .. } = entry.backing
                {
                    entry.state = WindowState::Released;
                }
                self.sends.push(id, request, cost);
                return Ok(());
            }
            Err(kind) => kind,
        };
        Err(PostError { kind, request })
    }

    fn send_room(&self) -> usize {
        self.capabilities.max_send_wr.saturating_sub(self.sends.cost())
    }

    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        let limit = self.capabilities.max_recv_wr;
        let segments = self.hardware.as_ref().map_or(0, |hardware| hardware.sizes.receive_segments);
        let kind = if !self.takes_work() {
            PostErrorKind::Disconnected
        } else if self.receives.len() >= limit {
            PostErrorKind::QueueFull { limit }
        } else if matches!(&memory, ReceiveMemory::Scatter(buffers) if buffers.len() > segments) {
            PostErrorKind::Invalid("the Receive has more Buffers than the adapter allows")
        } else {
            self.receives.push(id, memory);
            // At once: a message must not come before its Receive, since iWARP ends the connection then.
            if let Err(reason) = self.post_receives() {
                self.fail(reason);
            }
            return Ok(());
        };
        Err(PostError { kind, request: memory })
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>> {
        if self.done.is_empty() && !matches!(self.state, State::Ended) {
            self.advance(cx);
        }
        if !self.done.is_empty() {
            let count = self.done.len().min(COMPLETIONS_PER_POLL);
            completions.extend(self.done.drain(..count));
            return Poll::Ready(Ok(()));
        }
        match (&self.state, &self.end) {
            (State::Ended, Some(end)) => Poll::Ready(Err(end.clone())),
            _ => Poll::Pending,
        }
    }

    fn disconnect(&mut self) {
        match self.state {
            State::Accepting(_) | State::Replied(_) if self.sends.is_empty() => {
                self.fail(Disconnected::Local)
            }
            State::Accepting(_) | State::Replied(_) | State::Open => self.draining = true,
            State::Ending(_) | State::Ended => {}
        }
    }

    fn abort(&mut self) {
        self.fail(Disconnected::Local);
    }

    fn peer_private_data(&self) -> &Bytes {
        &self.private_data
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.local
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some(hardware) = &self.hardware {
            hardware.count(&mut counters);
        }
        counters
    }
}

impl Drop for IbverbsQueuePair {
    fn drop(&mut self) {
        if !matches!(self.state, State::Ended) {
            self.finish();
        }
    }
}

/// Flags that a completion with a remote invalidation may have: that of the interface, and the flag that rxe sets in its
/// place (Linux 6.1).
pub(crate) const INVALIDATION_FLAGS: [u32; 2] = [WC_WITH_INV, WC_IP_CSUM_OK];
