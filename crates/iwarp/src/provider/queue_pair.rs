//! A connection: the engine, its socket, and one timer.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_verbs::{
    Capabilities, Completion, ConnectParameters, Counters, Disconnected, PostError, Progress,
    ProtectionDomain, QueuePair, ReceiveMemory, RemoteSegment, WindowError, WindowMemory, Windows,
    WorkRequest, WrId,
};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::socket;
use crate::config::Config;
use crate::engine::{Engine, Parameters};
use crate::startup::Negotiated;

/// Maximum number of system calls in one call of `poll` before other tasks get a turn.
const CALLS_PER_POLL: usize = 64;
/// Maximum number of bytes moved in each direction by one call of `poll` before other tasks get a turn.
const BYTES_PER_POLL: usize = 512 * 1024;
/// Maximum length of output that is copied together for one plain `send`, in bytes: a few small messages.
const SHORT_OUTPUT: usize = 512;
/// Maximum number of completions from one call of `poll`.
const COMPLETIONS_PER_POLL: usize = 256;
/// Number of calls with less than a segment after which the segment size is queried again.
const EMSS_CHECK: u8 = 64;
/// Ends a TCP segment, so that the next FPDU starts one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const END_SEGMENT: SendFlags = SendFlags::EOR;
/// TCP chooses the end of segments.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const END_SEGMENT: SendFlags = SendFlags::empty();

/// An iWARP connection on a TCP socket.
pub(super) struct IwarpQueuePair {
    engine: Engine,
    /// `None` after the end of the connection: the peer sees the end even if this object lives on.
    stream: Option<TcpStream>,
    started: bool,
    private_data: Bytes,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    timer: Option<Pin<Box<Sleep>>>,
    until_emss_check: u8,
}

impl IwarpQueuePair {
    pub(super) fn new(
        stream: TcpStream,
        config: &Config,
        parameters: ConnectParameters,
        negotiated: Negotiated,
        behind: &[u8],
    ) -> Self {
        let private_data = negotiated.private_data.clone();
        let engine = Engine::new(
            Parameters {
                negotiated,
                domain: parameters.domain,
                max_send_wr: parameters.max_send_wr,
                max_recv_wr: parameters.max_recv_wr,
                max_windows: config.max_windows,
                strict_crc: config.strict_crc,
                timeouts: config.timeouts,
                emss: socket::emss(&stream),
                seed: rand::random(),
            },
            behind,
            now(),
        );
        Self {
            engine,
            local: stream.local_addr().ok(),
            peer: stream.peer_addr().ok(),
            stream: Some(stream),
            started: false,
            private_data,
            timer: None,
            until_emss_check: EMSS_CHECK,
        }
    }

    /// Writes as much as the socket and the budget accept. Returns whether any byte moved.
    fn write(&mut self, cx: &mut Context<'_>, clock: &mut Clock, budget: &mut Budget) -> bool {
        let mut progress = false;
        loop {
            if self.engine.has_work() {
                self.engine.prepare(clock.now());
            }
            let Some(stream) = &self.stream else { break };
            if !self.engine.has_output() {
                if self.engine.shutdown_due() {
                    // Reading reports an error here again.
                    let _ = SockRef::from(stream).shutdown(std::net::Shutdown::Write);
                    self.engine.handle_shutdown();
                    progress = true;
                }
                break;
            }
            if budget.is_used_up() {
                break;
            }
            match stream.poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => {
                    self.engine.handle_link_error(error.to_string());
                    return true;
                }
                Poll::Ready(Ok(())) => {}
            }
            // The size grows after TCP's start, and follows the path MTU.
            self.until_emss_check = self.until_emss_check.saturating_sub(1);
            if self.until_emss_check == 0 || self.engine.output_exceeds_segment() {
                self.engine.set_emss(socket::emss(stream));
                self.until_emss_check = EMSS_CHECK;
            }
            let mut written = None;
            let result = self.engine.with_transmit_slices(|slices, end_segment| {
                let flags = if end_segment { SendFlags::NOSIGNAL | END_SEGMENT } else { SendFlags::NOSIGNAL };
                stream.try_io(Interest::WRITABLE, || {
                    let lent: usize = slices.iter().map(|slice| slice.len()).sum();
                    let count = send(stream, slices, lent, flags)?;
                    written = Some(count);
                    drained(count < lent)
                })
            });
            if let Some(count) = written {
                self.engine.transmitted(count, clock.now());
                budget.spend(count);
                progress = true;
            } else if let Err(error) = result
                && is_fatal(&error)
            {
                self.engine.handle_link_error(error.to_string());
                return true;
            }
        }
        progress
    }

    /// Reads as much as is available and the budget allows. Returns whether any byte moved.
    fn read(&mut self, cx: &mut Context<'_>, clock: &mut Clock, budget: &mut Budget) -> bool {
        let mut progress = false;
        while let Some(stream) = &self.stream {
            if !self.engine.wants_input() || budget.is_used_up() {
                break;
            }
            match stream.poll_read_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => {
                    self.engine.handle_link_error(error.to_string());
                    return true;
                }
                Poll::Ready(Ok(())) => {}
            }
            let mut read = None;
            let mut short = false;
            let engine = &mut self.engine;
            let result = stream.try_io(Interest::READABLE, || {
                let mut received = Ok(0);
                let count = engine.with_receive_slices(|slices| {
                    let lent: usize = slices.iter().map(|slice| slice.len()).sum();
                    received = receive(stream, slices);
                    let count = received.unwrap_or_default();
                    short = count < lent;
                    count
                });
                received?;
                read = Some(count);
                drained(short)
            });
            match (read, result) {
                (Some(0), _) => {
                    self.engine.handle_end_of_stream();
                    return true;
                }
                (Some(count), _) => {
                    self.engine.received(count, clock.now());
                    budget.spend(count);
                    progress = true;
                    if short && self.engine.has_completions() {
                        // No more input is available, and the caller polls again.
                        break;
                    }
                }
                (None, Err(error)) if is_fatal(&error) => {
                    self.engine.handle_link_error(error.to_string());
                    return true;
                }
                (None, _) => {}
            }
        }
        progress
    }

    /// Runs the timer. Returns whether it fired.
    ///
    /// The timer may fire before the earliest deadline, which saves setting it again with every message.
    fn time(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.engine.poll_timeout() else { return false };
        let deadline = tokio::time::Instant::from_std(deadline);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.is_elapsed() || deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.engine.handle_timeout(now());
        true
    }
}

/// Returns the time by the clock of the runtime, which tests can turn.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time of one call of `poll`: read when first needed, since many calls have no work.
#[derive(Default)]
struct Clock(Option<Instant>);

impl Clock {
    fn now(&mut self) -> Instant {
        *self.0.get_or_insert_with(now)
    }
}

/// Remaining work of one call of `poll` in one direction.
struct Budget {
    calls: usize,
    bytes: usize,
}

impl Budget {
    const fn new() -> Self {
        Self { calls: CALLS_PER_POLL, bytes: BYTES_PER_POLL }
    }

    fn spend(&mut self, bytes: usize) {
        self.calls = self.calls.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    const fn is_used_up(&self) -> bool {
        self.calls == 0 || self.bytes == 0
    }
}

/// Sends the lent slices of `len` bytes together. Short output is copied together first, since a list costs the kernel
/// more than the copy.
fn send(
    stream: &TcpStream,
    slices: &[IoSlice<'_>],
    len: usize,
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let mut joined = [0; SHORT_OUTPUT];
    let Some(joined) = joined.get_mut(..len) else {
        let mut control = SendAncillaryBuffer::default();
        return rustix::net::sendmsg(stream, slices, &mut control, flags);
    };
    let mut rest = &mut *joined;
    for slice in slices {
        let Some((here, behind)) = rest.split_at_mut_checked(slice.len()) else { break };
        here.copy_from_slice(slice);
        rest = behind;
    }
    rustix::net::send(stream, joined, flags)
}

/// Receives into the lent slices.
fn receive(stream: &TcpStream, slices: &mut [IoSliceMut<'_>]) -> rustix::io::Result<usize> {
    match slices {
        [slice] => rustix::net::recv(stream, &mut **slice, RecvFlags::empty()).map(|(count, _)| count),
        slices => rustix::io::readv(stream, slices),
    }
}

/// Tells tokio that the socket is drained, after a call that moved less than it could have moved. This saves another
/// attempt.
fn drained(short: bool) -> io::Result<()> {
    if short { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

fn is_fatal(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Windows for IwarpQueuePair {
    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    fn domain(&self) -> &ProtectionDomain {
        self.engine.domain()
    }

    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        self.engine.reserve_window(memory)
    }
}

impl QueuePair for IwarpQueuePair {
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        self.engine.post(id, request)
    }

    fn send_room(&self) -> usize {
        self.engine.send_room()
    }

    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        self.engine.post_receive(id, memory)
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>> {
        let mut clock = Clock::default();
        if !std::mem::replace(&mut self.started, true) {
            self.engine.start(clock.now());
        }
        let (mut input, mut output) = (Budget::new(), Budget::new());
        loop {
            // Input comes first: it can cause output, which then leaves in the same call.
            let read = self.read(cx, &mut clock, &mut input);
            let written = self.write(cx, &mut clock, &mut output);
            let timer = self.time(cx);
            if self.engine.is_ended() {
                self.stream = None;
            }
            if self.engine.has_completions() {
                // The caller polls again.
                break;
            }
            if input.is_used_up() || output.is_used_up() {
                cx.waker().wake_by_ref();
                break;
            }
            if !(read || written || timer) {
                break;
            }
        }
        let before = completions.len();
        while completions.len() - before < COMPLETIONS_PER_POLL
            && let Some(completion) = self.engine.poll_completion()
        {
            completions.push(completion);
        }
        if completions.len() > before {
            return Poll::Ready(Ok(()));
        }
        match self.engine.end() {
            Some(end) => Poll::Ready(Err(end.clone())),
            None => {
                self.engine.rest();
                Poll::Pending
            }
        }
    }

    fn disconnect(&mut self) {
        self.engine.disconnect(now());
    }

    fn abort(&mut self) {
        self.engine.abort();
        self.stream = None;
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
        self.engine.counters()
    }

    fn progress(&self) -> Option<Progress> {
        Some(self.engine.progress())
    }
}
