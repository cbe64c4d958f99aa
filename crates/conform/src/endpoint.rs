//! A queue pair driven by hand: Receives, windows, and any bytes in a Send.
//!
//! *Who owns which buffer.* A window's memory is with the queue pair until it is taken back ([`Endpoint::take_back`]), by a
//! local invalidation, or because the peer or the end of the connection invalidated it.
//!
//! *What happens on error.* A request that is refused because the connection has ended is dropped: the end shows at the next
//! wait, which is where rows look for it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_proto::wire::Segment;
use rpcrdma_verbs::{
    Buffer, Completion, ConnectParameters, Counters, Key, ProtectionDomain, QueuePair, ReceiveMemory,
    RemoteSegment, SendRequest, Status, WindowMemory, Work, WorkRequest, WrId,
};
use tokio::time::{Instant, timeout, timeout_at};

/// Memory of one connection, in bytes.
const MEMORY: usize = 64 << 20;
/// RDMA Reads in flight, each way.
const READS: u16 = 16;
/// Entries of the queues.
const QUEUE: usize = 1024;
/// Messages that wait to be looked at; beyond that a peer that never stops gets no more Receives.
const MAX_ARRIVED: usize = 2048;
/// How long an orderly end may take.
const CLOSE: Duration = Duration::from_secs(2);

/// A message of the peer.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) bytes: Bytes,
    /// The window of ours that it invalidated.
    pub(crate) invalidated: Option<u32>,
}

/// What a wait for a message came to.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    Message(Arrived),
    /// Nothing within the time.
    Silence,
    /// The connection has ended, with the reason.
    Closed(String),
}

/// See the module's introduction.
pub(crate) struct Endpoint {
    queue_pair: Box<dyn QueuePair>,
    next_id: u64,
    receive_len: usize,
    arrived: VecDeque<Arrived>,
    returned: Vec<(u32, WindowMemory)>,
    /// Local invalidations under way.
    closing: Vec<(WrId, u32)>,
    reads: Vec<(WrId, Status, Buffer)>,
    ended: Option<String>,
}

/// What both sides of the tester ask of a provider.
pub(crate) fn parameters(private_data: Bytes) -> ConnectParameters {
    ConnectParameters {
        private_data,
        ird: READS,
        ord: READS,
        max_send_wr: QUEUE,
        max_recv_wr: QUEUE,
        domain: ProtectionDomain::new(MEMORY),
    }
}

/// A segment as a header names it.
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
        for _ in 0..receives {
            endpoint.post_receive();
        }
        endpoint
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
        // See the module's introduction.
        let _ = self.queue_pair.post(id, request);
        id
    }

    /// Private data of the peer.
    pub(crate) fn peer_private_data(&self) -> Bytes {
        self.queue_pair.peer_private_data().clone()
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, message: Bytes) {
        self.post(WorkRequest::Send(SendRequest { gather: vec![message], ..SendRequest::default() }));
    }

    /// Sends bytes and invalidates a window of the peer.
    pub(crate) fn send_invalidating(&mut self, message: Bytes, key: u32) {
        let invalidate = Some(Key(key));
        self.post(WorkRequest::Send(SendRequest {
            gather: vec![message],
            invalidate,
            ..SendRequest::default()
        }));
    }

    /// Writes into memory of the peer: as much as fits, from the front.
    pub(crate) fn write(&mut self, data: Bytes, targets: &[Segment]) {
        if !data.is_empty() {
            self.post(WorkRequest::Write {
                gather: vec![data],
                targets: targets.iter().map(remote).collect(),
            });
        }
    }

    /// Reads memory of the peer. `None` if it cannot be had.
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

    /// Opens memory that the peer may read.
    pub(crate) fn readable(&mut self, data: Bytes) -> Segment {
        self.window(WindowMemory::Read(data))
    }

    /// Opens memory that the peer may write, full of this byte.
    pub(crate) fn writable(&mut self, len: usize, fill: u8) -> Segment {
        self.window(WindowMemory::Write(Buffer::adopt(vec![fill; len])))
    }

    fn window(&mut self, memory: WindowMemory) -> Segment {
        match self.queue_pair.reserve_window(memory) {
            Ok(window) => {
                self.post(WorkRequest::BindWindow { key: window.key });
                segment(window)
            }
            // The connection has ended; nobody will ask for this memory.
            Err(error) => {
                Segment { handle: 0, length: u32::try_from(error.memory.len()).unwrap_or(0), offset: 0 }
            }
        }
    }

    /// Closes a window and gives its memory back: as the peer left it.
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

    /// Lets what was posted leave, as far as the link takes it.
    pub(crate) async fn push(&mut self) {
        poll_fn(|cx| {
            while self.poll(cx) {}
            Poll::Ready(())
        })
        .await;
    }

    /// What has come and gone so far.
    pub(crate) fn counters(&self) -> Counters {
        self.queue_pair.counters()
    }

    /// Makes progress step by step until the counters say so. `false` if that is not seen within a time, or before a message comes or the
    /// connection ends.
    pub(crate) async fn shows(&mut self, shown: impl Fn(&Counters) -> bool, limit: Duration) -> bool {
        let seen = |endpoint: &mut Self| {
            let seen = shown(&endpoint.queue_pair.counters());
            (seen || !endpoint.arrived.is_empty()).then_some(seen)
        };
        self.until(Instant::now() + limit, seen).await.unwrap_or(false)
    }

    /// The next message, within a time.
    pub(crate) async fn next(&mut self, limit: Duration) -> Next {
        match self.until(Instant::now() + limit, |endpoint| endpoint.arrived.pop_front()).await {
            Some(arrived) => Next::Message(arrived),
            None => self.ended.clone().map_or(Next::Silence, Next::Closed),
        }
    }

    /// The same for who waits for several connections.
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

    /// Whether the connection has ended, as far as was seen.
    pub(crate) const fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Waits for something until a time or the end of the connection.
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

    /// Makes progress; whether there was any.
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

    /// Ends the connection in order.
    pub(crate) async fn close(mut self) {
        self.queue_pair.disconnect();
        let end = poll_fn(|cx| {
            while self.poll(cx) {}
            if self.ended.is_some() { Poll::Ready(()) } else { Poll::Pending }
        });
        // A peer that does not end its half is cut off.
        let _ = timeout(CLOSE, end).await;
    }

    /// Cuts the connection off after what was posted has left, as far as the link took it.
    pub(crate) async fn cut(mut self) {
        self.push().await;
        self.abort().await;
    }

    /// Cuts the connection off where it is.
    pub(crate) async fn abort(mut self) {
        self.queue_pair.abort();
        self.push().await;
    }
}
