//! An end of a connection: its user's requests, carried out by the contract.
//!
//! An end moves only when it is polled. [`End::handle_arrivals`](End::handle_arrivals) takes frames from its link;
//! [`End::transmit`](End::transmit) puts frames that may leave on the link to the peer. Work requests own their memory
//! in here until they complete. On any error the end stops, reports the reason to the peer, and flushes everything,
//! windows included.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::StdRng;
use rpcrdma_verbs::{
    Capabilities, Completion, ConnectParameters, Counters, Disconnected, PostError, PostErrorKind,
    ReceiveMemory, RemoteSegment, Status, WindowError, WindowErrorKind, WindowMemory, Work, WorkRequest,
    WrId,
};

use crate::completions::{Completions, Pending};
use crate::gather::Gather;
use crate::link::Link;
use crate::receive::{Received, Receives};
use crate::transmit::{Job, Posted, ReadPart, Response};
use crate::window::{Keys, Windows};
use crate::{Action, CompletionMode, Delivery, FabricConfig, Fault, Side, Step};

/// The parts of the fabric that an end may use while it is polled.
pub(crate) struct Env<'a> {
    pub(crate) now: Duration,
    pub(crate) config: &'a FabricConfig,
    pub(crate) rng: &'a mut StdRng,
    pub(crate) keys: &'a mut Keys,
    pub(crate) faults: &'a mut Vec<Fault>,
    /// Deliveries that are not reported to the tap yet, if there is a tap.
    pub(crate) taps: Option<Vec<Delivery>>,
    pub(crate) connection: u64,
}

impl Env<'_> {
    /// Takes the fault planned for this step, which happens once.
    pub(crate) fn fault(&mut self, side: Side, at: Step) -> Option<Action> {
        let connection = self.connection;
        let index = self
            .faults
            .iter()
            .position(|fault| (fault.connection, fault.side, fault.at) == (connection, side, at))?;
        Some(self.faults.remove(index).action)
    }

    pub(crate) fn acknowledged(&self) -> bool {
        self.config.completion_mode == CompletionMode::Acknowledged
    }
}

/// The state of a graceful disconnect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closing {
    pub(crate) deadline: Duration,
    /// Whether everything has left, and the peer has been sent the close.
    pub(crate) told: bool,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) side: Side,
    pub(crate) capabilities: Capabilities,
    pub(crate) completions: Completions,
    pub(crate) windows: Windows,
    pub(crate) receives: Receives,
    pub(crate) counters: Counters,
    /// Bytes of answers to our RDMA Reads.
    pub(crate) read: u64,
    /// Requests in the order of posting, but for express Sends and some invalidations.
    pub(crate) queue: VecDeque<Posted>,
    pub(crate) express: VecDeque<Posted>,
    /// Read Requests that may not leave yet, and those not answered.
    pub(crate) reads_waiting: VecDeque<ReadPart>,
    pub(crate) reads_outstanding: VecDeque<ReadPart>,
    pub(crate) responses: VecDeque<Response>,
    /// Bytes of the current RDMA Write message that are placed.
    pub(crate) write_len: usize,
    /// Whether arrivals wait: a Send with Invalidate waits for Read Responses of its window.
    pub(crate) stalled: bool,
    /// The time at which this end gives up because its send queue stands still.
    pub(crate) stuck_until: Option<Duration>,
    pub(crate) closing: Option<Closing>,
    pub(crate) ended: Option<Disconnected>,
    pub(crate) waker: Option<Waker>,
    pub(crate) posted: u64,
    pub(crate) segments: u64,
    pub(crate) delivered: u64,
}

/// Returns the entries that a request takes in the send queue.
fn cost_of(request: &WorkRequest) -> usize {
    match request {
        WorkRequest::LocalInvalidate { .. } => 0,
        WorkRequest::Write { targets, .. } => targets.len().max(1),
        WorkRequest::Read { sources, .. } => sources.len().max(1),
        _ => 1,
    }
}

impl End {
    pub(crate) fn new(
        side: Side,
        parameters: &ConnectParameters,
        peer: &ConnectParameters,
        config: &FabricConfig,
    ) -> Self {
        let mut capabilities = config.capabilities.clone();
        capabilities.acknowledged_completions = config.completion_mode == CompletionMode::Acknowledged;
        capabilities.ird = if peer.ord == 0 { 0 } else { parameters.ird };
        capabilities.ord = parameters.ord.min(peer.ird);
        capabilities.max_send_wr = parameters.max_send_wr;
        capabilities.max_recv_wr = parameters.max_recv_wr;
        Self {
            side,
            capabilities,
            completions: Completions::new(config.completion_jitter),
            windows: Windows::default(),
            receives: Receives::default(),
            counters: Counters::default(),
            read: 0,
            queue: VecDeque::new(),
            express: VecDeque::new(),
            reads_waiting: VecDeque::new(),
            reads_outstanding: VecDeque::new(),
            responses: VecDeque::new(),
            write_len: 0,
            stalled: false,
            stuck_until: None,
            closing: None,
            ended: None,
            waker: None,
            posted: 0,
            segments: 0,
            delivered: 0,
        }
    }

    pub(crate) fn reserve(
        &mut self,
        env: &mut Env<'_>,
        memory: WindowMemory,
    ) -> Result<RemoteSegment, WindowError> {
        let limit = self.capabilities.max_windows;
        let kind = match u32::try_from(memory.len()) {
            _ if self.ended.is_some() => WindowErrorKind::Disconnected,
            _ if self.windows.len() >= limit => WindowErrorKind::Exhausted { limit },
            Ok(length) => return Ok(self.windows.reserve(memory, length, env.keys, env.rng)),
            Err(_) => WindowErrorKind::TooLong { len: memory.len() },
        };
        Err(WindowError { kind, memory })
    }

    /// Returns the number of work requests that can be posted now.
    pub(crate) fn send_room(&self) -> usize {
        self.capabilities.max_send_wr.saturating_sub(self.completions.room_taken())
    }

    pub(crate) fn post(
        &mut self,
        env: &mut Env<'_>,
        id: WrId,
        request: WorkRequest,
    ) -> Result<(), PostError<WorkRequest>> {
        let is_invalidate = matches!(request, WorkRequest::LocalInvalidate { .. });
        if self.ended.is_some() || (self.closing.is_some() && !is_invalidate) {
            return Err(PostError { kind: PostErrorKind::Disconnected, request });
        }
        if cost_of(&request) > self.send_room() {
            let limit = self.capabilities.max_send_wr;
            return Err(PostError { kind: PostErrorKind::QueueFull { limit }, request });
        }
        if let Err(reason) = self.check(&request) {
            return Err(PostError { kind: PostErrorKind::Invalid(reason), request });
        }
        let seq = self.posted;
        let cost = cost_of(&request);
        let mut ordered = true;
        let (pending, job) = match request {
            WorkRequest::Send(send) => {
                let express = send.express && self.capabilities.express_sends;
                ordered = !express;
                let gather = Gather::new(&send.gather);
                let job = Job::Send {
                    gather,
                    offset: 0,
                    invalidate: send.invalidate,
                    solicited: send.solicited,
                    begun: false,
                };
                (Pending::Send { gather: send.gather }, job)
            }
            WorkRequest::Write { gather, targets } => {
                let pieces = Gather::new(&gather);
                (Pending::Write { gather }, Job::write(pieces, targets))
            }
            WorkRequest::Read { sink, sources } => {
                let parts = ReadPart::cut(seq, env.now, &sources);
                ordered = false;
                (Pending::Read { sink, missing: parts.len() }, Job::Read { parts })
            }
            WorkRequest::BindWindow { key } => {
                // In effect at once, which is "before any request posted later leaves".
                if let Err(reason) = self.windows.bind(key) {
                    let request = WorkRequest::BindWindow { key };
                    return Err(PostError { kind: PostErrorKind::Invalid(reason), request });
                }
                self.counters.windows_bound += 1;
                (Pending::BindWindow, Job::BindWindow)
            }
            WorkRequest::LocalInvalidate { key } => {
                // An invalidation may pass requests that have not left: the seed decides whether it does.
                ordered = env.rng.random();
                (Pending::LocalInvalidate { key }, Job::LocalInvalidate { key })
            }
            request => {
                let kind = PostErrorKind::Invalid("a request that this fabric does not know");
                return Err(PostError { kind, request });
            }
        };
        self.posted += 1;
        self.completions.posted(seq, id, ordered, cost, pending);
        let posted = Posted { seq, not_before: env.now, begun: false, cut_after: false, job };
        match posted.job {
            Job::Send { .. } if !ordered => self.express.push_back(posted),
            Job::LocalInvalidate { .. } if !ordered => {
                // Behind requests that have begun, and behind other invalidations.
                let stays =
                    |posted: &Posted| posted.begun || matches!(posted.job, Job::LocalInvalidate { .. });
                let place = self.queue.iter().take_while(|posted| stays(posted)).count();
                self.queue.insert(place, posted);
            }
            _ => self.queue.push_back(posted),
        }
        Ok(())
    }

    /// Checks that a request agrees with itself and with the capabilities.
    fn check(&self, request: &WorkRequest) -> Result<(), &'static str> {
        let total = |segments: &[RemoteSegment]| segments.iter().map(|s| u64::from(s.length)).sum::<u64>();
        let bytes = |gather: &[Bytes]| gather.iter().map(Bytes::len).sum::<usize>();
        let max_len = usize::try_from(self.capabilities.max_message_len).unwrap_or(usize::MAX);
        match request {
            WorkRequest::Send(send) => {
                if send.gather.len() > self.capabilities.max_sge {
                    return Err("a gather list of more than max_sge entries");
                }
                if bytes(&send.gather) > max_len {
                    return Err("a Send of more than max_message_len bytes");
                }
                if send.invalidate.is_some() && !self.capabilities.remote_invalidation {
                    return Err("a Send with Invalidate, which this fabric cannot do");
                }
            }
            WorkRequest::Write { gather, targets } => {
                if gather.len() > self.capabilities.max_sge {
                    return Err("a gather list of more than max_sge entries");
                }
                let bytes = bytes(gather);
                if bytes > max_len {
                    return Err("a Write of more than max_message_len bytes");
                }
                if targets.is_empty() {
                    return Err("a Write without targets");
                }
                if u64::try_from(bytes).is_ok_and(|bytes| bytes > total(targets)) {
                    return Err("a Write of more bytes than its targets have");
                }
            }
            WorkRequest::Read { sink, sources } => {
                if sources.is_empty() {
                    return Err("a Read without sources");
                }
                if sink.len() > max_len {
                    return Err("a Read of more than max_message_len bytes");
                }
                if u64::try_from(sink.len()) != Ok(total(sources)) {
                    return Err("a Read whose sink is not as long as its sources");
                }
                if self.capabilities.ord == 0 && !sources.is_empty() {
                    return Err("a Read on a connection that allows none (ORD is 0)");
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn post_receive(
        &mut self,
        id: WrId,
        memory: ReceiveMemory,
    ) -> Result<(), PostError<ReceiveMemory>> {
        if self.ended.is_some() {
            return Err(PostError { kind: PostErrorKind::Disconnected, request: memory });
        }
        let limit = self.capabilities.max_recv_wr;
        if self.completions.receives >= limit {
            return Err(PostError { kind: PostErrorKind::QueueFull { limit }, request: memory });
        }
        let refused = match &memory {
            ReceiveMemory::Scatter(buffers) => (buffers.len() > self.capabilities.max_sge)
                .then_some("a scatter list of more than max_sge entries"),
            ReceiveMemory::Pooled(_) => None,
            _ => Some("receive memory of a kind that this fabric does not know"),
        };
        if let Some(reason) = refused {
            return Err(PostError { kind: PostErrorKind::Invalid(reason), request: memory });
        }
        self.completions.receives += 1;
        self.receives.post(id, memory);
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, env: &Env<'_>) {
        if self.ended.is_none() && self.closing.is_none() {
            self.closing = Some(Closing { deadline: env.now + env.config.close_timeout, told: false });
        }
    }

    /// Ends this side: all outstanding work completes, and nothing is sent or handled any more.
    pub(crate) fn end(&mut self, env: &mut Env<'_>, reason: Disconnected) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason);
        self.stalled = false;
        self.queue.clear();
        self.express.clear();
        self.reads_waiting.clear();
        self.reads_outstanding.clear();
        self.responses.clear();
        let (windows, counters, keys) = (&mut self.windows, &mut self.counters, &mut *env.keys);
        let invalidate = |key| {
            let memory = windows.remove(key, keys);
            counters.local_invalidations += u64::from(memory.is_some());
            memory
        };
        self.completions.flush(env.now, invalidate, env.rng);
        while let Some(received) = self.receives.abandon().or_else(|| self.receives.drain_one()) {
            self.receive_failed(env, received, Status::Flushed);
        }
        for (key, memory) in self.windows.flush(env.keys) {
            let work = Work::WindowFlushed { key, memory };
            let completion = Completion { id: WrId(u64::from(key.0)), status: Status::Flushed, work };
            self.completions.push(env.now, completion, env.rng);
        }
    }

    pub(crate) fn receive_failed(&mut self, env: &mut Env<'_>, received: Received, status: Status) {
        let work = Work::Receive { buffers: received.buffers, len: 0, invalidated: None, solicited: false };
        self.completions.push(env.now, Completion { id: received.id, status, work }, env.rng);
    }

    /// Returns the next time at which polling this end is useful, if nothing else happens.
    pub(crate) fn next_event(
        &self,
        inbound: &Link,
        outbound: &Link,
        config: &FabricConfig,
    ) -> Option<Duration> {
        let completion = self.completions.next_visible();
        if self.ended.is_some() {
            return completion;
        }
        let arrival = if self.stalled { None } else { inbound.next_arrival() };
        let closing = self.closing.map(|closing| {
            if !closing.told && self.is_drained() { Duration::ZERO } else { closing.deadline }
        });
        let dead = self.gives_up_at(inbound, outbound, config);
        [completion, arrival, closing, dead, self.next_transmission(outbound)].into_iter().flatten().min()
    }

    /// Returns the time at which this end will give up the link, as things stand.
    pub(crate) fn gives_up_at(
        &self,
        inbound: &Link,
        outbound: &Link,
        config: &FabricConfig,
    ) -> Option<Duration> {
        let links = [inbound, outbound].map(|link| link.dead_at(config.link_timeout));
        links.into_iter().chain([self.stuck_until]).flatten().min()
    }
}
