//! A directly driven queue pair: Receives, windows, and any bytes in a Send.
//!
//! *Buffers.* A window's memory is with the queue pair until it is taken back ([`Endpoint::take_back`]). That needs a
//! local invalidation, one by the peer, or the end of the connection.
//!
//! *Errors.* A request that is refused because the connection has ended is dropped: the next wait reports the end, and
//! rows check there.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::wire::Segment;
use rpcrdma_verbs::{
    Buffer, Completion, ConnectParameters, Counters, Key, OwnPrivateData, ProtectionDomain, QueuePair,
    ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Work, WorkRequest, WrId,
};
use tokio::time::{Instant, timeout, timeout_at};

/// Memory of one connection, in bytes.
const MEMORY: usize = 64 << 20;
/// Maximum number of RDMA Reads in flight, in each direction.
const READS: u16 = 16;
/// Number of entries of the queues.
const QUEUE: usize = 1024;
/// Maximum number of messages that wait to be handled; beyond it a peer that never stops gets no more Receives.
const MAX_ARRIVED: usize = 2048;
/// Maximum time of a graceful end.
const CLOSE: Duration = Duration::from_secs(2);

/// Reason why a row does not apply on a provider that cannot send an invalidation.
pub(crate) const CANNOT_INVALIDATE: &str = "the tester's adapter sends no invalidation";

/// A message of the peer.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) bytes: Bytes,
    /// The window of ours that the message invalidated.
    pub(crate) invalidated: Option<u32>,
}

/// Result of a wait for a message.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    Message(Arrived),
    /// No message within the time.
    Silence,
    /// The connection has ended, with the reason.
    Closed(String),
}

/// A directly driven connection; see the module.
pub(crate) struct Endpoint {
    queue_pair: Box<dyn QueuePair>,
    next_id: u64,
    receive_len: usize,
    arrived: VecDeque<Arrived>,
    returned: Vec<(u32, WindowMemory)>,
    /// Local invalidations in progress.
    closing: Vec<(WrId, u32)>,
    reads: Vec<(WrId, Status, Buffer)>,
    ended: Option<String>,
}

/// Returns the parameters that the tester requires of a provider, in both roles.
pub(crate) fn parameters(private_data: OwnPrivateData) -> ConnectParameters {
    ConnectParameters {
        private_data,
        ird: READS,
        ord: READS,
        max_send_wr: QUEUE,
        max_recv_wr: QUEUE,
        domain: ProtectionDomain::new(MEMORY),
    }
}

/// Returns a window as a segment of a header.
pub(crate) fn segment(window: RemoteSegment) -> Segment {
    Segment { handle: window.key.0, length: window.length, offset: window.address }
}

fn remote(segment: &Segment) -> RemoteSegment {
    RemoteSegment { key: Key(segment.handle), address: segment.offset, length: segment.length }
}

impl Endpoint {
    /// Posts `receives` Receives of this length; each is posted again when it was filled.
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>, receives: usize, receive_len: usize) -> Self {
        let mut endpoint = Self {
            queue_pair,
            next_id: 0,
            receive_len,
            arrived: VecDeque::new(),
            returned: Vec::new(),
            closing: Vec::new(),
            reads: Vec::new(),
            ended: None,
        };
        endpoint.add_receives(receives);
        endpoint
    }

    /// Posts `count` more Receives.
    pub(crate) fn add_receives(&mut self, count: usize) {
        for _ in 0..count {
            self.post_receive();
        }
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    fn post_receive(&mut self) {
        if let Ok(reserved) = self.queue_pair.domain().reserve(self.receive_len) {
            let id = self.id();
            // Refused only when the connection has ended.
            let _ = self.queue_pair.post_receive(id, ReceiveMemory::Pooled(reserved));
        }
    }

    fn post(&mut self, request: WorkRequest) -> WrId {
        let id = self.id();
        // The module describes errors.
        let _ = self.queue_pair.post(id, request);
        id
    }

    /// Returns the private data of the peer.
    pub(crate) fn peer_private_data(&self) -> Bytes {
        self.queue_pair.peer_private_data().clone()
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, message: Bytes) {
        self.post(WorkRequest::Send(SendRequest { gather: vec![message], ..SendRequest::default() }));
    }

    /// Returns whether the provider can send an invalidation.
    pub(crate) fn invalidates(&self) -> bool {
        self.queue_pair.capabilities().remote_invalidation
    }

    /// Sends bytes and invalidates a window of the peer, if [`invalidates`](Self::invalidates).
    pub(crate) fn send_invalidating(&mut self, message: Bytes, key: u32) {
        let invalidate = Some(Key(key));
        self.post(WorkRequest::Send(SendRequest {
            gather: vec![message],
            invalidate,
            ..SendRequest::default()
        }));
    }

    /// Writes into memory of the peer, from the front, as far as the targets reach.
    pub(crate) fn write(&mut self, data: Bytes, targets: &[Segment]) {
        if !data.is_empty() {
            self.post(WorkRequest::Write {
                gather: vec![data],
                targets: targets.iter().map(remote).collect(),
            });
        }
    }

    /// Reads memory of the peer. `None` if the Read fails.
    pub(crate) async fn read(&mut self, sources: &[Segment], limit: Duration) -> Option<Bytes> {
        let length = |source: &Segment| usize::try_from(source.length).unwrap_or(usize::MAX);
        let len = sources.iter().map(length).fold(0, usize::saturating_add);
        let sink = self.queue_pair.domain().allocate(len, 1).ok()?;
        let id = self.post(WorkRequest::Read { sink, sources: sources.iter().map(remote).collect() });
        let read = |endpoint: &mut Self| {
            let at = endpoint.reads.iter().position(|(read, ..)| *read == id)?;
            Some(endpoint.reads.swap_remove(at))
        };
        let (_, status, sink) = self.until(Instant::now() + limit, read).await?;
        status.is_success().then(|| sink.freeze())
    }

    /// Opens memory for reading by the peer.
    pub(crate) fn readable(&mut self, data: Bytes) -> Segment {
        self.window(WindowMemory::Read(data))
    }

    /// Opens memory for writing by the peer, filled with this byte.
    pub(crate) fn writable(&mut self, len: usize, fill: u8) -> Segment {
        self.window(WindowMemory::Write(Buffer::adopt(vec![fill; len])))
    }

    fn window(&mut self, memory: WindowMemory) -> Segment {
        match self.queue_pair.reserve_window(memory) {
            Ok(window) => {
                self.post(WorkRequest::BindWindow { key: window.key });
                segment(window)
            }
            // The connection has ended; no row will ask for this memory.
            Err(error) => {
                Segment { handle: 0, length: u32::try_from(error.memory.len()).unwrap_or(0), offset: 0 }
            }
        }
    }

    /// Closes a window and returns its memory, as the peer left it.
    pub(crate) async fn take_back(&mut self, window: &Segment, limit: Duration) -> Option<Bytes> {
        let handle = window.handle;
        if !self.returned.iter().any(|(key, _)| *key == handle) {
            let id = self.post(WorkRequest::LocalInvalidate { key: Key(handle) });
            self.closing.push((id, handle));
        }
        let memory = |endpoint: &mut Self| {
            let at = endpoint.returned.iter().position(|(key, _)| *key == handle)?;
            Some(endpoint.returned.swap_remove(at).1)
        };
        match self.until(Instant::now() + limit, memory).await? {
            WindowMemory::Read(data) => Some(data),
            WindowMemory::Write(buffer) => Some(buffer.freeze()),
        }
    }

    /// Lets posted requests leave, as far as the link accepts them.
    pub(crate) async fn push(&mut self) {
        poll_fn(|cx| {
            while self.poll(cx) {}
            Poll::Ready(())
        })
        .await;
    }

    /// Returns the counters of the link so far.
    pub(crate) fn counters(&self) -> Counters {
        self.queue_pair.counters()
    }

    /// Makes progress step by step until the counters satisfy `shown`. Returns `false` after `limit`, and if a message
    /// comes or the connection ends before.
    pub(crate) async fn shows(&mut self, shown: impl Fn(&Counters) -> bool, limit: Duration) -> bool {
        let seen = |endpoint: &mut Self| {
            let seen = shown(&endpoint.queue_pair.counters());
            (seen || !endpoint.arrived.is_empty()).then_some(seen)
        };
        self.until(Instant::now() + limit, seen).await.unwrap_or(false)
    }

    /// Waits for the next message, at most for `limit`.
    pub(crate) async fn next(&mut self, limit: Duration) -> Next {
        match self.until(Instant::now() + limit, |endpoint| endpoint.arrived.pop_front()).await {
            Some(arrived) => Next::Message(arrived),
            None => self.ended.clone().map_or(Next::Silence, Next::Closed),
        }
    }

    /// Polls for the next message, for a caller that waits for several connections.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return Poll::Ready(Next::Message(arrived));
            }
            if let Some(reason) = &self.ended {
                return Poll::Ready(Next::Closed(reason.clone()));
            }
            if !self.poll(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Returns whether the connection is known to have ended.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Polls `ready` until it returns a value, the time is over or the connection ends.
    async fn until<T>(
        &mut self,
        deadline: Instant,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let waited = poll_fn(|cx| {
            loop {
                if let Some(value) = ready(self) {
                    return Poll::Ready(Some(value));
                }
                if self.ended.is_some() {
                    return Poll::Ready(None);
                }
                if !self.poll(cx) {
                    return Poll::Pending;
                }
            }
        });
        timeout_at(deadline, waited).await.ok().flatten()
    }

    /// Makes progress, and returns whether there was any.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let mut completions = Vec::new();
        match self.queue_pair.poll(cx, &mut completions) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                completions.into_iter().for_each(|completion| self.completed(completion));
                true
            }
            Poll::Ready(Err(reason)) => {
                self.ended = Some(reason.to_string());
                true
            }
        }
    }

    fn completed(&mut self, completion: Completion) {
        let Completion { id, status, work } = completion;
        match work {
            Work::Receive { buffers, len, invalidated, .. } => {
                let key = invalidated.as_ref().map(|(key, _)| key.0);
                self.returned.extend(invalidated.map(|(key, memory)| (key.0, memory)));
                if status.is_success() {
                    let bytes: Vec<u8> =
                        buffers.iter().flat_map(|buffer| buffer.iter().copied()).take(len).collect();
                    self.arrived.push_back(Arrived { bytes: bytes.into(), invalidated: key });
                    if self.arrived.len() < MAX_ARRIVED {
                        self.post_receive();
                    }
                }
            }
            Work::Read { sink } => self.reads.push((id, status, sink)),
            Work::LocalInvalidate { memory } => {
                let at = self.closing.iter().position(|(closing, _)| *closing == id);
                if let (Some(at), Some(memory)) = (at, memory) {
                    self.returned.push((self.closing.swap_remove(at).1, memory));
                }
            }
            Work::WindowFlushed { key, memory } => self.returned.push((key.0, memory)),
            _ => {}
        }
    }

    /// Ends the connection gracefully.
    pub(crate) async fn close(mut self) {
        self.queue_pair.disconnect();
        let end = poll_fn(|cx| {
            while self.poll(cx) {}
            if self.ended.is_some() { Poll::Ready(()) } else { Poll::Pending }
        });
        // A peer that does not end its half is cut off.
        let _ = timeout(CLOSE, end).await;
    }

    /// Cuts the connection off after the posted requests have left, as far as the link accepted them.
    pub(crate) async fn cut(mut self) {
        self.push().await;
        self.abort().await;
    }

    /// Cuts the connection off at once.
    pub(crate) async fn abort(mut self) {
        self.queue_pair.abort();
        self.push().await;
    }
}
