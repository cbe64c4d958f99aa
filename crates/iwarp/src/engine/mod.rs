//! An iWARP connection after start-up, without I/O and without a clock.
//!
//! # Order of calls
//!
//! * Commands: [`post`](Engine::post), [`post_receive`](Engine::post_receive),
//!   [`reserve_window`](Engine::reserve_window), [`disconnect`](Engine::disconnect), [`abort`](Engine::abort).
//! * Output: [`prepare`](Engine::prepare) lays FPDUs out. While [`has_output`](Engine::has_output),
//!   [`with_transmit_slices`](Engine::with_transmit_slices) lends them, and the driver reports the number of written
//!   bytes to [`transmitted`](Engine::transmitted). When [`shutdown_due`](Engine::shutdown_due), the driver closes the
//!   sending half of TCP and calls [`handle_shutdown`](Engine::handle_shutdown).
//! * Input: while [`wants_input`](Engine::wants_input), [`with_receive_slices`](Engine::with_receive_slices) lends the
//!   slices to read into. The driver reports the number of bytes read to [`received`](Engine::received).
//!   [`handle_end_of_stream`](Engine::handle_end_of_stream) and [`handle_link_error`](Engine::handle_link_error) end
//!   the input.
//! * Time: the driver calls [`handle_timeout`](Engine::handle_timeout) at [`poll_timeout`](Engine::poll_timeout).
//! * Results: [`poll_completion`](Engine::poll_completion); [`end`](Engine::end) reports the end of the connection.
//!
//! # Who owns which memory
//!
//! Payload to send is shared (`Bytes`) and lent to the socket in place. Memory to fill is owned by a posted Receive, an
//! RDMA Read or a window of this engine. It is lent to the socket directly when a segment still has
//! [`DIRECT_PLACEMENT_MIN`] bytes to come. Smaller segments are read together with their neighbours and copied once,
//! and the copies are counted.
//!
//! # Errors
//!
//! A [`Violation`] of the peer stops placement, completes all work as flushed, sends a Terminate and closes. No work
//! completes before its CRC matched. A directly placed segment puts bytes into memory before its CRC is known; this
//! peer may write to that memory in any case. This deviates from RFC 5044 §6; [`Parameters::strict_crc`] stages
//! instead.

mod gather;
mod inbound;
mod input;
mod output;
mod read_ahead;
mod reads;
mod receives;
mod responses;
mod schedule;
mod timers;
mod violation;
mod windows;

use std::collections::VecDeque;
use std::time::Instant;

use rpcrdma_verbs::{
    Capabilities, Completion, Counters, Disconnected, PostError, PostErrorKind, Progress, ProtectionDomain,
    ReceiveMemory, RemoteSegment, Rest, Status, WindowError, WindowErrorKind, WindowMemory, Work,
    WorkRequest, WrId,
};

use self::input::Input;
use self::output::{Finish, Output};
use self::reads::{Finished, Reads};
use self::receives::{Delivery, Receives};
use self::responses::Responses;
use self::schedule::{Item, SendQueue};
pub use self::timers::{NUDGE_AFTER, NUDGES_MAX, Timeouts};
use self::timers::{Timer, Timers, after};
pub use self::violation::Violation;
use self::windows::{Closed, WindowTable};
use crate::startup::{Negotiated, Role};
use crate::wire::fpdu::{MAX_MULPDU, mulpdu};
use crate::wire::rdmap::ReadRequest;
use crate::wire::terminate::Terminate;

/// Minimum number of missing bytes of a segment for which the socket fills the target itself. With fewer bytes missing,
/// the read-ahead takes them together with the following input. A system call costs about as much as copying a few KiB.
pub const DIRECT_PLACEMENT_MIN: usize = 4096;

/// Parameters of an engine.
#[derive(Debug)]
pub struct Parameters {
    /// The result of start-up.
    pub negotiated: Negotiated,
    /// Source of the memory of pooled Receives.
    pub domain: ProtectionDomain,
    /// Maximum number of outstanding work requests.
    pub max_send_wr: usize,
    /// Maximum number of posted Receives.
    pub max_recv_wr: usize,
    /// Maximum number of windows.
    pub max_windows: usize,
    /// Places no payload before its CRC matched, at the cost of a copy of all payload.
    pub strict_crc: bool,
    /// Timeouts of the connection.
    pub timeouts: Timeouts,
    /// Largest TCP segment, in bytes.
    pub emss: usize,
    /// Seed of keys and addresses. Must be unpredictable.
    pub seed: [u8; 32],
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In full operation.
    Open,
    /// We end the connection gracefully: posted work still leaves.
    Closing,
    /// The peer broke the rules: a Terminate leaves, and input is discarded.
    Failing,
    /// Our half is closed; the peer's is not.
    HalfClosed,
    /// The connection has ended.
    Ended,
}

/// An iWARP connection. See the [module](self) for the order of calls.
#[derive(Debug)]
pub struct Engine {
    capabilities: Capabilities,
    domain: ProtectionDomain,
    timeouts: Timeouts,
    role: Role,
    /// Longest ULPDU in bytes that the peer accepts whatever the segments are; 0 if it did not say.
    large_ulpdu: usize,
    max_ulpdu: usize,
    /// Set once FPDUs may leave: at once for an Initiator, after the first valid FPDU for a Responder.
    may_send: bool,
    heard: bool,
    phase: Phase,
    /// The peer closed its half before our Terminate had left.
    peer_closed: bool,
    outcome: Option<Disconnected>,
    windows: WindowTable,
    sends: SendQueue,
    reads: Reads,
    responses: Responses,
    receives: Receives,
    deliveries: VecDeque<Delivery>,
    input: Input,
    output: Output,
    completions: VecDeque<Completion>,
    send_wr: usize,
    timers: Timers,
    counters: Counters,
    crc_errors: u64,
    /// The Read Request that breaks a rule, until the Terminate names it.
    refused_read: Option<ReadRequest>,
}

impl Engine {
    /// Returns a connection in full operation. `behind` holds the bytes that start-up read beyond its last frame.
    pub fn new(parameters: Parameters, behind: &[u8], now: Instant) -> Self {
        let Parameters { negotiated, domain, timeouts, .. } = parameters;
        let mut capabilities = Capabilities::default();
        capabilities.max_send_wr = parameters.max_send_wr;
        capabilities.max_recv_wr = parameters.max_recv_wr;
        capabilities.max_windows = parameters.max_windows;
        capabilities.ird = negotiated.ird;
        capabilities.ord = negotiated.ord;
        let initiator = negotiated.role == Role::Initiator;
        let mut engine = Self {
            capabilities,
            domain,
            timeouts,
            role: negotiated.role,
            large_ulpdu: usize::from(negotiated.large_fpdu.unwrap_or_default()),
            max_ulpdu: 0,
            // RFC 5044 §7.1.2 (4).
            may_send: initiator,
            heard: !behind.is_empty(),
            phase: Phase::Open,
            peer_closed: false,
            outcome: None,
            windows: WindowTable::new(parameters.max_windows, DIRECT_PLACEMENT_MIN, parameters.seed),
            sends: SendQueue::new(negotiated.rtr),
            reads: Reads::new(negotiated.ord),
            responses: Responses::new(negotiated.ird),
            receives: Receives::new(negotiated.rtr_send_expected),
            deliveries: VecDeque::new(),
            input: Input::new(negotiated.crc, parameters.strict_crc, behind),
            output: Output::new(negotiated.crc, negotiated.markers),
            completions: VecDeque::new(),
            send_wr: 0,
            timers: Timers::default(),
            counters: Counters::default(),
            crc_errors: 0,
            refused_read: None,
        };
        engine.set_emss(parameters.emss);
        if !initiator {
            engine.timers.set(Timer::FirstFpdu, after(now, timeouts.first_fpdu));
        }
        engine
    }

    /// Sets a new TCP segment size, which later FPDUs follow (RFC 5044 §4.5).
    pub fn set_emss(&mut self, emss: usize) {
        self.output.set_emss(emss);
        let fitting = mulpdu(emss.min(usize::from(u16::MAX)), self.output.has_markers());
        self.max_ulpdu = fitting.max(self.large_ulpdu.min(MAX_MULPDU));
    }

    /// Returns the capabilities of this connection.
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns the domain that Buffers come from.
    pub const fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        counters.segments_sent = self.output.segments();
        counters
    }

    /// Returns the progress of the data.
    pub const fn progress(&self) -> Progress {
        let Counters { link_bytes_sent, link_bytes_received, .. } = self.counters;
        Progress::new(self.reads.answered(), link_bytes_sent, link_bytes_received)
    }

    /// Returns the number of FPDUs with a wrong CRC: 0 or 1, since the first one ends the connection.
    pub const fn crc_errors(&self) -> u64 {
        self.crc_errors
    }

    /// Returns the reason for the end of the connection. `Some` only after every completion was taken.
    pub fn end(&self) -> Option<&Disconnected> {
        self.outcome.as_ref().filter(|_| self.phase == Phase::Ended && self.completions.is_empty())
    }

    /// Returns whether the link is no longer used.
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Takes the next completion.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// Returns whether completions wait to be taken.
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Releases memory that only a burst needs. The driver calls this when nothing is left to do.
    pub fn rest(&mut self) {
        self.input.rest();
        self.completions.rest();
        self.deliveries.rest();
        self.receives.rest();
        self.output.rest();
        self.sends.rest();
        self.responses.rest();
        self.reads.rest();
    }

    /// Reserves a window; see [`Windows::reserve_window`](rpcrdma_verbs::Windows::reserve_window).
    ///
    /// # Errors
    /// [`WindowError`] with the memory.
    pub fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        if self.phase != Phase::Open {
            return Err(WindowError { kind: WindowErrorKind::Disconnected, memory });
        }
        self.windows.reserve(memory)
    }

    /// Returns the number of requests that the send queue accepts now; see
    /// [`QueuePair::send_room`](rpcrdma_verbs::QueuePair::send_room).
    pub fn send_room(&self) -> usize {
        self.capabilities.max_send_wr.saturating_sub(self.send_wr)
    }

    /// Queues a work request; see [`QueuePair::post`](rpcrdma_verbs::QueuePair::post). Binding and invalidating need no link
    /// and take effect at once.
    ///
    /// # Errors
    /// [`PostError`] with the request.
    pub fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        let refuse = |kind, request| Err(PostError { kind, request });
        if let WorkRequest::LocalInvalidate { key } = request {
            if !matches!(self.phase, Phase::Open | Phase::Closing | Phase::HalfClosed) {
                return refuse(PostErrorKind::Disconnected, request);
            }
            if let Closed::Now(memory) = self.windows.close_local(key, id) {
                self.invalidated_locally(id, Status::Success, memory);
            }
            return Ok(());
        }
        if self.phase != Phase::Open {
            return refuse(PostErrorKind::Disconnected, request);
        }
        let cost = match self.check(&request) {
            Ok(cost) => cost,
            Err(reason) => return refuse(PostErrorKind::Invalid(reason), request),
        };
        if cost > self.send_room() {
            return refuse(PostErrorKind::QueueFull { limit: self.capabilities.max_send_wr }, request);
        }
        if let WorkRequest::BindWindow { key } = request
            && !self.windows.bind(key)
        {
            let reason = "the key names no window that waits to be bound";
            return refuse(PostErrorKind::Invalid(reason), request);
        }
        self.send_wr += cost;
        match request {
            WorkRequest::Send(send) => self.sends.push_send(id, send),
            WorkRequest::Write { gather, targets } => self.sends.push_write(id, gather, targets),
            WorkRequest::Read { sink, sources } => {
                let name = self.windows.fresh_name(u32::try_from(sink.len()).unwrap_or(u32::MAX));
                self.sends.push_read(id, sink, sources, name);
            }
            WorkRequest::BindWindow { .. } => {
                self.counters.windows_bound += 1;
                self.complete(id, cost, Status::Success, Work::BindWindow);
            }
            // `check` has refused every other kind.
            _ => {}
        }
        Ok(())
    }

    /// Returns the share of the send queue that a request takes, or an error if it is malformed.
    fn check(&self, request: &WorkRequest) -> Result<usize, &'static str> {
        const TOO_LONG: &str = "the message is longer than 2^32-1 bytes";
        let max_sge = self.capabilities.max_sge;
        let gathered = |gather: &[bytes::Bytes]| {
            if gather.len() > max_sge {
                return Err("the gather list has more than max_sge pieces");
            }
            let total: u64 = gather.iter().map(|piece| piece.len() as u64).sum();
            u32::try_from(total).map_err(|_| TOO_LONG)
        };
        let total = |segments: &[RemoteSegment]| segments.iter().map(|s| u64::from(s.length)).sum::<u64>();
        match request {
            WorkRequest::Send(send) => gathered(&send.gather).map(|_| 1),
            WorkRequest::Write { gather, targets } => {
                if u64::from(gathered(gather)?) > total(targets) {
                    return Err("the data is longer than the targets");
                }
                Ok(targets.len().max(1))
            }
            WorkRequest::Read { sink, sources } => {
                if self.capabilities.ord == 0 {
                    return Err("the peer takes no RDMA Reads (ORD is 0)");
                }
                if sources.is_empty() {
                    return Err("an RDMA Read needs a source");
                }
                if sink.len() as u64 != total(sources) {
                    return Err("the sink is not as long as the sources");
                }
                u32::try_from(sink.len()).map(|_| sources.len()).map_err(|_| TOO_LONG)
            }
            WorkRequest::BindWindow { .. } => Ok(1),
            _ => Err("this kind of work request is not known"),
        }
    }

    /// Queues a Receive; see [`QueuePair::post_receive`](rpcrdma_verbs::QueuePair::post_receive).
    ///
    /// # Errors
    /// [`PostError`] with the memory.
    pub fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        if self.phase != Phase::Open {
            return Err(PostError { kind: PostErrorKind::Disconnected, request: memory });
        }
        let limit = self.capabilities.max_recv_wr;
        if self.receives.posted() >= limit {
            return Err(PostError { kind: PostErrorKind::QueueFull { limit }, request: memory });
        }
        let invalid = match &memory {
            ReceiveMemory::Scatter(buffers) => (buffers.len() > self.capabilities.max_sge)
                .then_some("the scatter list has more than max_sge buffers"),
            ReceiveMemory::Pooled(_) => None,
            _ => Some("this kind of receive memory is not known"),
        };
        if let Some(reason) = invalid {
            return Err(PostError { kind: PostErrorKind::Invalid(reason), request: memory });
        }
        self.receives.post(id, memory);
        Ok(())
    }

    /// Ends the connection after all posted work has left and every RDMA Read is answered, within [`Timeouts::linger`].
    pub fn disconnect(&mut self, now: Instant) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.outcome = Some(Disconnected::Local);
            self.timers.set(Timer::Linger, after(now, self.timeouts.linger));
        }
    }

    /// Ends the connection at once.
    pub fn abort(&mut self) {
        self.finish(Disconnected::Local);
    }

    /// Ends the connection after a link failure.
    pub fn handle_link_error(&mut self, error: String) {
        self.finish(Disconnected::Link(error));
    }

    /// Handles the end of the peer's half. A Terminate for the peer still leaves, since the other half may be open (RFC
    /// 5040 §6.2.1).
    pub fn handle_end_of_stream(&mut self) {
        if self.phase == Phase::Failing && !self.output.is_empty() {
            self.peer_closed = true;
        } else if self.input.is_inside_fpdu() {
            self.finish(Disconnected::Link("the peer closed in the middle of an FPDU".to_owned()));
        } else {
            self.finish(Disconnected::Peer);
        }
    }

    /// Records that our half of TCP is closed, as [`shutdown_due`](Self::shutdown_due) asked.
    pub fn handle_shutdown(&mut self) {
        self.phase = Phase::HalfClosed;
        self.timers.stop(Timer::StalledSend);
        if self.peer_closed {
            self.finish(Disconnected::Peer);
        }
    }

    /// Returns the earliest deadline.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Handles every expired timer.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((timer, deadline)) = self.timers.expired(now) {
            match timer {
                Timer::Nudge => self.nudge(now),
                Timer::PartialFpdu if self.fpdu_goes_on(deadline, now) => {}
                _ => self.finish(Disconnected::Timeout(timer.describe())),
            }
        }
    }

    /// Reports a violation to the peer if a message may leave, and winds up (RFC 5040 §7.1).
    fn fail(&mut self, violation: Violation, terminate: &Terminate, now: Instant) {
        if let Violation::Crc { .. } = violation {
            self.crc_errors += 1;
        }
        tracing::debug!(%violation, "closing the connection");
        let half_closed = self.phase == Phase::HalfClosed;
        if self.outcome.is_none() {
            self.outcome = Some(Disconnected::ProtocolError(violation.to_string()));
        }
        self.input.discard();
        self.flush();
        self.output.cut_after_current();
        if half_closed {
            self.finish(Disconnected::Local);
            return;
        }
        self.phase = Phase::Failing;
        self.timers.stop_all();
        self.timers.set(Timer::Linger, after(now, self.timeouts.linger));
        // RFC 5044 §7.1.2 (4) holds for a Terminate too.
        if self.may_send {
            self.lay_out_terminate(terminate);
        }
    }

    /// Ends the connection. From now on no part of it touches memory.
    fn finish(&mut self, outcome: Disconnected) {
        if self.phase == Phase::Ended {
            return;
        }
        self.phase = Phase::Ended;
        self.outcome.get_or_insert(outcome);
        self.timers.stop_all();
        self.input.discard();
        self.flush();
        self.output.clear();
    }

    /// Completes all outstanding work as flushed and returns all memory.
    fn flush(&mut self) {
        const STATUS: Status = Status::Flushed;
        while let Some(finish) = self.output.take_unfinished() {
            match finish {
                Finish::Send(id) => self.complete(id, 1, STATUS, Work::Send),
                Finish::Write(id, cost) => self.complete(id, cost, STATUS, Work::Write),
                Finish::Nothing | Finish::ReadResponse(_) | Finish::Terminate => {}
            }
        }
        while let Some(read) = self.reads.take() {
            self.complete_read(read, STATUS);
        }
        while let Some(item) = self.sends.take() {
            match item {
                Item::Send { id, .. } => self.complete(id, 1, STATUS, Work::Send),
                Item::Write { id, cost, .. } => self.complete(id, cost, STATUS, Work::Write),
                Item::Read { id, sink, sources, .. } => {
                    self.complete(id, sources.len(), STATUS, Work::Read { sink });
                }
            }
        }
        self.responses.clear();
        self.windows.release_all();
        self.settle_windows(STATUS);
        while let Some((id, work)) = self.receives.take() {
            self.completions.push_back(Completion { id, status: STATUS, work });
        }
        while let Some((key, memory)) = self.windows.take() {
            let work = Work::WindowFlushed { key, memory };
            self.completions.push_back(Completion { id: WrId(u64::from(key.0)), status: STATUS, work });
        }
    }

    /// Completes a work request that took `cost` of the send queue.
    fn complete(&mut self, id: WrId, cost: usize, status: Status, work: Work) {
        self.send_wr = self.send_wr.saturating_sub(cost);
        self.completions.push_back(Completion { id, status, work });
    }

    /// Completes a Read, unless the engine itself requested it.
    fn complete_read(&mut self, read: Finished, status: Status) {
        if let Some(id) = read.id {
            self.complete(id, read.cost, status, Work::Read { sink: read.sink });
        }
    }

    fn invalidated_locally(&mut self, id: WrId, status: Status, memory: Option<WindowMemory>) {
        self.counters.local_invalidations += u64::from(memory.is_some());
        self.complete(id, 0, status, Work::LocalInvalidate { memory });
    }

    /// Hands out the memory of windows that are closed and now unused, and the Receives that waited for them.
    fn settle_windows(&mut self, status: Status) {
        while let Some(late) = self.windows.take_closed() {
            match late.local {
                Some(id) => self.invalidated_locally(id, status, Some(late.memory)),
                None => {
                    let waiting =
                        self.deliveries.iter_mut().find(|delivery| delivery.waits_for == Some(late.key));
                    if let Some(delivery) = waiting {
                        delivery.invalidated = Some((late.key, late.memory));
                        delivery.waits_for = None;
                    }
                }
            }
        }
        self.deliver();
    }

    /// Completes received messages in order, up to one whose window is still in use (RFC 5040 §5.5 (10)).
    fn deliver(&mut self) {
        while self.deliveries.front().is_some_and(|delivery| delivery.waits_for.is_none())
            && let Some(delivery) = self.deliveries.pop_front()
        {
            self.completions.push_back(delivery.into_completion());
        }
    }
}

#[cfg(test)]
mod pair;
#[cfg(test)]
mod tests;
