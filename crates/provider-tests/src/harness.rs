//! Two connected queue pairs, driven together and watched.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::{
    Buffer, Completion, ConnectError, ConnectParameters, Disconnected, Key, OwnPrivateData, PostErrorKind,
    ProtectionDomain, QueuePair, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Work,
    WorkRequest, WrId,
};

use crate::Fixture;

/// Longest wait of a test.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Limit of each side's pool, in bytes.
pub const POOL: usize = 128 << 20;

/// A queue pair with all its completions.
pub struct Node {
    /// The queue pair.
    pub queue_pair: Box<dyn QueuePair>,
    /// Completions that no case has taken.
    pub completions: Vec<Completion>,
    /// Windows that the end of the connection closed, with their memory.
    pub flushed: Vec<(Key, WindowMemory)>,
    /// The reason why the connection ended.
    pub ended: Option<Disconnected>,
    outstanding: BTreeSet<WrId>,
    next_id: u64,
}

/// Both ends of one connection.
pub struct Duo {
    /// The end that connected.
    pub a: Node,
    /// The end that accepted.
    pub b: Node,
}

/// Returns the usual parameters, with a pool of their own.
#[must_use]
pub fn parameters() -> ConnectParameters {
    ConnectParameters {
        private_data: OwnPrivateData::default(),
        ird: 16,
        ord: 16,
        max_send_wr: 256,
        max_recv_wr: 256,
        domain: ProtectionDomain::new(POOL),
    }
}

/// Returns bytes that differ from place to place and from one `salt` to another.
#[must_use]
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    let mut state = u64::from(salt) + 1;
    let mut bytes = Vec::with_capacity(len + 4);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes()[..4]);
    }
    bytes.truncate(len);
    bytes
}

/// Waits for `future`, but not longer than [`LIMIT`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {LIMIT:?}"),
    }
}

/// Connects with the usual parameters.
pub async fn connect(fixture: &dyn Fixture) -> Duo {
    connect_with(fixture, parameters(), parameters()).await
}

/// Connects with these parameters, and sends a first message from the side that connected: only then may the other side
/// send.
pub async fn connect_with(fixture: &dyn Fixture, a: ConnectParameters, b: ConnectParameters) -> Duo {
    let mut duo = connect_silently(fixture, a, b).await;
    // Posted before the first poll, so in time.
    let receive = duo.b.receive(&[8]);
    duo.a.send(Bytes::from_static(b"hello"));
    duo.b_completes(receive).await;
    assert_eq!(duo.b.take_message(receive), b"hello");
    duo.drive("A completes its Send", |duo| duo.a.outstanding() == 0).await;
    duo.a.completions.clear();
    duo
}

/// Connects with these parameters, and sends nothing.
pub async fn connect_silently(fixture: &dyn Fixture, a: ConnectParameters, b: ConnectParameters) -> Duo {
    let mut listener = fixture.listen().await;
    let address = listener.local_address().expect("a listener has an address");
    let connector = fixture.connector();
    let accept = async {
        let incoming = listener.accept().await.expect("an attempt arrives");
        let request = incoming.request().await.expect("the peer sends its request");
        request.accept(b).await.expect("accepting succeeds")
    };
    meet(connector.connect(address, a), accept).await
}

/// Waits for both ends of a connection. The end that accepts is driven meanwhile: its answer may leave with a poll.
pub async fn meet(
    connecting: impl Future<Output = Result<Box<dyn QueuePair>, ConnectError>>,
    accepting: impl Future<Output = Box<dyn QueuePair>>,
) -> Duo {
    tokio::pin!(connecting, accepting);
    let (mut a, mut b) = (None, None);
    let both = poll_fn(|cx| {
        if a.is_none()
            && let Poll::Ready(connected) = connecting.as_mut().poll(cx)
        {
            a = Some(Node::new(connected.expect("connecting succeeds")));
        }
        if b.is_none()
            && let Poll::Ready(accepted) = accepting.as_mut().poll(cx)
        {
            b = Some(Node::new(accepted));
        }
        if let (None, Some(b)) = (&a, &mut b) {
            while b.poll(cx) {}
        }
        match (a.take(), b.take()) {
            (Some(a), Some(b)) => Poll::Ready(Duo { a, b }),
            (one, other) => {
                (a, b) = (one, other);
                Poll::Pending
            }
        }
    });
    within("connecting", both).await
}

impl Node {
    /// Starts to watch a queue pair.
    #[must_use]
    pub fn new(queue_pair: Box<dyn QueuePair>) -> Self {
        Self {
            queue_pair,
            completions: Vec::new(),
            flushed: Vec::new(),
            ended: None,
            outstanding: BTreeSet::new(),
            next_id: 1,
        }
    }

    fn next_id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    /// Posts a request; returns the reason if it is refused.
    pub fn try_post(&mut self, request: WorkRequest) -> Result<WrId, (PostErrorKind, WorkRequest)> {
        let id = self.next_id();
        match self.queue_pair.post(id, request) {
            Ok(()) => {
                self.outstanding.insert(id);
                Ok(id)
            }
            Err(error) => Err((error.kind, error.request)),
        }
    }

    /// Posts a request that must be accepted.
    pub fn post(&mut self, request: WorkRequest) -> WrId {
        self.try_post(request).unwrap_or_else(|(kind, request)| panic!("{request:?} was refused: {kind}"))
    }

    /// Posts a Send of one piece.
    pub fn send(&mut self, bytes: impl Into<Bytes>) -> WrId {
        self.post(WorkRequest::Send(SendRequest { gather: vec![bytes.into()], ..SendRequest::default() }))
    }

    /// Posts a Write of one piece to one target.
    pub fn write(&mut self, bytes: impl Into<Bytes>, target: RemoteSegment) -> WrId {
        self.post(WorkRequest::Write { gather: vec![bytes.into()], targets: vec![target] })
    }

    /// Posts a Read of one source.
    pub fn read(&mut self, source: RemoteSegment) -> WrId {
        let sink = Buffer::adopt(vec![0; usize::try_from(source.length).unwrap()]);
        self.post(WorkRequest::Read { sink, sources: vec![source] })
    }

    /// Returns whether Sends with Invalidate are possible.
    #[must_use]
    pub fn invalidates_remotely(&self) -> bool {
        self.queue_pair.capabilities().remote_invalidation
    }

    /// Posts an invalidation.
    pub fn invalidate(&mut self, key: Key) -> WrId {
        self.post(WorkRequest::LocalInvalidate { key })
    }

    /// Posts a Receive; returns the reason if it is refused.
    pub fn try_post_receive(
        &mut self,
        memory: ReceiveMemory,
    ) -> Result<WrId, (PostErrorKind, ReceiveMemory)> {
        let id = self.next_id();
        match self.queue_pair.post_receive(id, memory) {
            Ok(()) => {
                self.outstanding.insert(id);
                Ok(id)
            }
            Err(error) => Err((error.kind, error.request)),
        }
    }

    /// Posts a Receive into Buffers of these lengths, full of `0x55`.
    pub fn receive(&mut self, lengths: &[usize]) -> WrId {
        let buffers = lengths.iter().map(|&len| Buffer::adopt(vec![0x55; len])).collect();
        self.try_post_receive(ReceiveMemory::Scatter(buffers))
            .unwrap_or_else(|(kind, _)| panic!("a Receive was refused: {kind}"))
    }

    /// Posts a pooled Receive.
    pub fn receive_pooled(&mut self, capacity: usize) -> WrId {
        let reserved = self.queue_pair.domain().reserve(capacity).expect("the pool has memory");
        self.try_post_receive(ReceiveMemory::Pooled(reserved))
            .unwrap_or_else(|(kind, _)| panic!("a pooled Receive was refused: {kind}"))
    }

    /// Opens a window that the peer may write, on memory with this content.
    pub fn write_window(&mut self, content: Vec<u8>) -> RemoteSegment {
        self.window(WindowMemory::Write(Buffer::adopt(content)))
    }

    /// Opens a window that the peer may read.
    pub fn read_window(&mut self, content: impl Into<Bytes>) -> RemoteSegment {
        self.window(WindowMemory::Read(content.into()))
    }

    /// Opens a window.
    pub fn window(&mut self, memory: WindowMemory) -> RemoteSegment {
        let window = self.reserve(memory);
        let id = self.post(WorkRequest::BindWindow { key: window.key });
        if !self.sees_data() {
            // An adapter binds on its own time, and the cases use the window without a message that tells of it.
            let mut cx = Context::from_waker(Waker::noop());
            let start = std::time::Instant::now();
            while !self.has(id) && self.ended.is_none() {
                self.poll(&mut cx);
                assert!(start.elapsed() < LIMIT, "no bind within {LIMIT:?}");
                std::thread::yield_now();
            }
        }
        window
    }

    /// Reserves a window, without a bind.
    pub fn reserve(&mut self, memory: WindowMemory) -> RemoteSegment {
        let len = memory.len();
        let window = self
            .queue_pair
            .reserve_window(memory)
            .unwrap_or_else(|error| panic!("a window was refused: {}", error.kind));
        assert_eq!(usize::try_from(window.length), Ok(len));
        assert!(window.address.checked_add(u64::from(window.length)).is_some(), "the window wraps");
        window
    }

    /// Polls once; returns whether there was progress.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.completions.len();
        match self.queue_pair.poll(cx, &mut self.completions) {
            Poll::Ready(Ok(())) => {
                assert!(self.completions.len() > before, "poll was ready without a completion");
                for completion in self.completions.split_off(before) {
                    if let Work::WindowFlushed { key, memory } = completion.work {
                        assert!(self.flushed.iter().all(|(seen, _)| *seen != key), "{key:?} came back twice");
                        self.flushed.push((key, memory));
                    } else {
                        assert!(
                            self.outstanding.remove(&completion.id),
                            "unknown or repeated: {completion:?}"
                        );
                        self.completions.push(completion);
                    }
                }
                true
            }
            Poll::Ready(Err(end)) => {
                assert_eq!(self.completions.len(), before, "completions together with the end");
                assert!(self.outstanding.is_empty(), "not completed at the end: {:?}", self.outstanding);
                let first = self.ended.is_none();
                self.ended.get_or_insert(end);
                first
            }
            Poll::Pending => {
                assert_eq!(self.completions.len(), before, "completions although poll is pending");
                false
            }
        }
    }

    /// Returns whether this request has completed and its completion was not taken.
    #[must_use]
    pub fn has(&self, id: WrId) -> bool {
        self.completions.iter().any(|completion| completion.id == id)
    }

    /// Takes a completion.
    pub fn take(&mut self, id: WrId) -> Completion {
        let index = self.completions.iter().position(|completion| completion.id == id);
        self.completions.remove(index.unwrap_or_else(|| panic!("{id:?} has not completed")))
    }

    /// Takes a completion that must be a success.
    pub fn take_success(&mut self, id: WrId) -> Work {
        let completion = self.take(id);
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion.work
    }

    /// Takes the sink of a Read that must be a success.
    pub fn take_read(&mut self, id: WrId) -> Buffer {
        match self.take_success(id) {
            Work::Read { sink } => sink,
            work => panic!("a Read completed as {work:?}"),
        }
    }

    /// Takes the message of a Receive that must be a success.
    pub fn take_message(&mut self, id: WrId) -> Vec<u8> {
        match self.take_success(id) {
            Work::Receive { buffers, len, .. } => {
                let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter()).copied().collect();
                bytes.get(..len).expect("no longer than its buffers").to_vec()
            }
            work => panic!("a Receive completed as {work:?}"),
        }
    }

    /// Takes the memory that an invalidation gave back, whether the connection lived or not.
    pub fn take_memory(&mut self, id: WrId) -> Option<WindowMemory> {
        let completion = self.take(id);
        assert!(matches!(completion.status, Status::Success | Status::Flushed), "{completion:?}");
        match completion.work {
            Work::LocalInvalidate { memory } => memory,
            work => panic!("an invalidation completed as {work:?}"),
        }
    }

    /// Returns whether the provider counts data that is on its way, not only completions.
    #[must_use]
    pub fn sees_data(&self) -> bool {
        self.queue_pair.progress().is_some()
    }

    /// Takes the memory of a window that the end of the connection closed.
    pub fn take_flushed(&mut self, key: Key) -> Option<WindowMemory> {
        let index = self.flushed.iter().position(|(seen, _)| *seen == key)?;
        Some(self.flushed.remove(index).1)
    }

    /// Returns the number of requests and Receives that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }
}

/// Returns the bytes of a window's memory.
#[must_use]
pub fn bytes(memory: Option<&WindowMemory>) -> &[u8] {
    match memory {
        Some(WindowMemory::Read(bytes)) => bytes,
        Some(WindowMemory::Write(buffer)) => buffer,
        None => panic!("no memory came back"),
    }
}

impl Duo {
    /// Drives both ends until `done` returns true.
    pub async fn drive(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let driven = poll_fn(|cx| {
            loop {
                if done(self) {
                    return Poll::Ready(());
                }
                let progress = self.a.poll(cx) | self.b.poll(cx);
                if !progress {
                    return if done(self) { Poll::Ready(()) } else { Poll::Pending };
                }
            }
        });
        let timely = tokio::time::timeout(LIMIT, driven).await.is_ok();
        assert!(
            timely,
            "{what}: not within {LIMIT:?}; A: {} outstanding, ended {:?}; B: {} outstanding, ended {:?}",
            self.a.outstanding(),
            self.a.ended,
            self.b.outstanding(),
            self.b.ended,
        );
    }

    /// Drives both ends for this time.
    pub async fn drive_for(&mut self, time: Duration) {
        let driven = poll_fn(|cx| {
            while self.a.poll(cx) | self.b.poll(cx) {}
            Poll::<()>::Pending
        });
        let _ = tokio::time::timeout(time, driven).await;
    }

    /// Drives both ends until A has completed `id`.
    pub async fn a_completes(&mut self, id: WrId) {
        self.drive("a completion of A", |duo| duo.a.has(id)).await;
    }

    /// Drives both ends until B has completed `id`.
    pub async fn b_completes(&mut self, id: WrId) {
        self.drive("a completion of B", |duo| duo.b.has(id)).await;
    }

    /// Drives both ends until both know that the connection is over.
    pub async fn both_end(&mut self) {
        self.drive("the end of the connection", |duo| duo.a.ended.is_some() && duo.b.ended.is_some()).await;
    }

    /// Sends a message from A to B and back, which shows that the connection lives and that everything before has
    /// arrived.
    pub async fn is_alive(&mut self) {
        let at_b = self.b.receive(&[16]);
        self.a.send(Bytes::from_static(b"are you there"));
        self.b_completes(at_b).await;
        assert_eq!(self.b.take_message(at_b), b"are you there");
        let at_a = self.a.receive(&[16]);
        self.b.send(Bytes::from_static(b"yes"));
        self.a_completes(at_a).await;
        assert_eq!(self.a.take_message(at_a), b"yes");
    }

    /// Invalidates a window of B, unless the end of the connection has done so, and returns its memory.
    pub async fn memory_of_b(&mut self, key: Key) -> Option<WindowMemory> {
        let request = WorkRequest::LocalInvalidate { key };
        match self.b.try_post(request) {
            Ok(id) => {
                self.b_completes(id).await;
                // The connection may have ended before the invalidation was carried out.
                self.b.take_memory(id).or_else(|| self.b.take_flushed(key))
            }
            Err((PostErrorKind::Disconnected, _)) => {
                self.drive("the end at B", |duo| duo.b.ended.is_some()).await;
                self.b.take_flushed(key)
            }
            Err((kind, _)) => panic!("an invalidation was refused: {kind}"),
        }
    }
}
