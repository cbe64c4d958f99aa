//! A provider that puts one fault between the link and its user. It changes the messages of a good peer into those of a
//! faulty one.
//!
//! Matching messages are withheld from the good peer, or changed first. Messages that it sends are changed before they
//! leave. A connection that ends may take the listener with it.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, ChunkLists, Codec, Header};
use rpcrdma_proto::{Limits, Profile};
use rpcrdma_verbs::{
    BoxFuture, Buffer, Capabilities, Completion, ConnectError, ConnectParameters, ConnectionRequest,
    Connector, Counters, Disconnected, Incoming, Key, Listener, PostError, Progress, ProtectionDomain,
    QueuePair, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowError, WindowMemory, Windows, Work,
    WorkRequest, WrId,
};

use super::script::{Past, Script, Turn};

/// Identifiers of the Sends that the fault makes.
const OWN: u64 = 1 << 62;

/// State of a connection so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Profile of Version Two that the peers speak, if they do.
    pub profile: Option<Profile>,
    /// Messages received.
    pub count: usize,
    /// `rdma_credit` of the last one.
    pub credit: u32,
    /// Handles of the first message that had any, and of the last one.
    pub first_handles: Vec<u32>,
    pub last_handles: Vec<u32>,
    /// XIDs of earlier messages, of all connections.
    pub xids: Vec<u32>,
    /// Whether the message invalidates a window.
    pub invalidates: bool,
    /// XIDs of the RPC messages that the good peer has sent, in order.
    pub sent: Vec<u32>,
    /// Lists of these messages, by XID.
    pub offered: HashMap<u32, ChunkLists>,
}

impl Seen {
    /// Returns the codec of the version that the peers speak.
    pub fn codec(&self) -> &'static dyn Codec {
        self.profile.map_or(&V1, Profile::codec)
    }

    /// Returns the header of a message, if it decodes.
    pub fn header(&self, bytes: &[u8]) -> Option<Header> {
        self.codec().decode(bytes, &Limits::default()).ok().map(|(header, _)| header)
    }

    /// Returns `rdma_proc` and the lists of a message, if it decodes.
    pub fn lists<'a>(&self, bytes: &'a [u8]) -> Option<(bool, ChunkLists, &'a [u8])> {
        lists_by(self.codec(), bytes)
    }

    /// Changes the lists of a message.
    pub fn with_lists(&self, bytes: &[u8], change: impl FnOnce(&mut ChunkLists)) -> Vec<u8> {
        with_lists_by(self.codec(), bytes, change)
    }

    /// Returns the lists that a message of the good peer had under the XID of this one.
    pub fn offer(&self, bytes: &[u8]) -> ChunkLists {
        self.offered.get(&word(bytes, 0)).cloned().unwrap_or_default()
    }
}

/// Treatment of a message that the good peer does not get.
#[derive(Clone, Copy)]
pub enum Act {
    Ignore,
    ErrChunk,
    /// ERR_CHUNK, then the graceful end of the connection.
    ErrChunkAndEnd,
    ErrVers(u32, u32),
    /// An RPC reply with this accept_stat and no results.
    Reply(u32),
    /// ERR_VERS 1-1, then the connection ends gracefully.
    ErrVersAndClose,
    /// ERR_CHUNK, in front of the answer to the next message.
    LateErrChunk,
    Close,
    /// The connection ends, and the listener accepts no other.
    Die,
    /// The good peer gets the result of this function instead.
    Rewrite(fn(&[u8]) -> Vec<u8>),
    /// As [`Self::Rewrite`], by what the peer has seen.
    Mend(fn(&Seen, &[u8]) -> Vec<u8>),
}

/// The fault of a peer.
#[derive(Clone, Copy)]
pub enum Fault {
    None,
    /// Treats messages that match in this way.
    On(fn(&Seen, &[u8]) -> bool, Act),
    /// Changes messages that are sent.
    Sends(fn(&Seen, &mut Vec<u8>)),
    /// Changes data that is written into memory of the other side.
    Writes(fn(&mut Vec<u8>)),
    /// Appends these bytes to data that is written into memory.
    WritesMore(&'static [u8]),
    /// Sends every message again under the next XID.
    Doubles,
    /// As [`Self::Doubles`], on all connections but the first.
    DoublesLater,
    /// Makes windows larger than announced, by this many bytes.
    WidensWindows(usize),
    /// Makes windows for writing readable.
    OpensForReading,
    /// Invalidates this key with Sends.
    Invalidates(fn(&Seen) -> Option<u32>),
    /// Changes the private data of the other side; `None`: the connection is refused.
    PrivateData(fn(&Bytes) -> Option<Bytes>),
    /// Reads the private data of the other side in this way.
    Misreads(fn(&Bytes) -> Bytes),
    /// An adapter that loses RDMA Writes under this key, without an error.
    LosesWrites(u32),
    /// An adapter that answers RDMA Reads under this key.
    AnswersReads(u32),
    /// An adapter that ignores the invalidation of this key.
    KeepsKey(u32),
    /// An adapter that cuts longer Sends off, without an error.
    CutsSends(usize),
    /// Ends the listener after the end of a connection for such a reason, and after a failed connection attempt.
    DiesAtEnd(fn(&Disconnected) -> bool),
    /// Accepts no other connection while there is one.
    OneAtATime,
    /// Accepts no connection while an RDMA Read is in progress.
    StallsOnReads,
    /// Does what the script says.
    Script(Script),
}

impl Fault {
    /// Returns whether a peer with this fault goes on, with wrong results.
    pub const fn is_live(&self) -> bool {
        !matches!(self, Self::None | Self::On(_, Act::Die) | Self::DiesAtEnd(_))
    }

    /// Returns whether the adapter of the peer has the fault: it is put between the tester and its link.
    pub const fn is_of_adapter(&self) -> bool {
        matches!(self, Self::LosesWrites(_) | Self::AnswersReads(_) | Self::KeepsKey(_) | Self::CutsSends(_))
    }
}

/// A peer that does not survive a connection without a graceful end.
pub const DIES_OF_FAULTS: Fault = Fault::DiesAtEnd(|reason| !matches!(reason, Disconnected::Peer));
/// A peer that does not survive the end of any connection.
pub const DIES_WITH_ITS_CONNECTION: Fault = Fault::DiesAtEnd(|_| true);

/// Returns `rdma_proc` and the lists of a message of Version One, if it decodes.
pub fn lists(bytes: &[u8]) -> Option<(bool, ChunkLists, &[u8])> {
    lists_by(&V1, bytes)
}

fn lists_by<'a>(codec: &dyn Codec, bytes: &'a [u8]) -> Option<(bool, ChunkLists, &'a [u8])> {
    let (header, len) = codec.decode(bytes, &Limits::default()).ok()?;
    match header.body {
        Body::Message(lists) => Some((true, lists, &bytes[len..])),
        Body::NoMessage(lists) => Some((false, lists, &bytes[len..])),
        _ => None,
    }
}

/// Returns a word of a message.
pub fn word(bytes: &[u8], index: usize) -> u32 {
    bytes.get(index * 4..index * 4 + 4).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()))
}

/// Changes the lists of a message of Version One.
pub fn with_lists(bytes: &[u8], change: impl FnOnce(&mut ChunkLists)) -> Vec<u8> {
    with_lists_by(&V1, bytes, change)
}

fn with_lists_by(codec: &dyn Codec, bytes: &[u8], change: impl FnOnce(&mut ChunkLists)) -> Vec<u8> {
    let Ok((header, len)) = codec.decode(bytes, &Limits::default()) else { return bytes.to_vec() };
    let body = match header.body {
        Body::Message(mut lists) => {
            change(&mut lists);
            Body::Message(lists)
        }
        Body::NoMessage(mut lists) => {
            change(&mut lists);
            Body::NoMessage(lists)
        }
        body => body,
    };
    let mut out = BytesMut::new();
    codec.encode(&Header { body, ..header }, &mut out);
    out.extend_from_slice(&bytes[len..]);
    out.to_vec()
}

#[derive(Default)]
struct Shared {
    dead: AtomicBool,
    open: AtomicUsize,
    ended: AtomicUsize,
    reading: AtomicUsize,
    xids: Mutex<Vec<u32>>,
    /// Connections so far.
    connections: AtomicUsize,
    profile: Option<Profile>,
}

pub struct FaultyListener {
    inner: Box<dyn Listener>,
    fault: Fault,
    shared: Arc<Shared>,
}

impl FaultyListener {
    pub fn new(inner: Box<dyn Listener>, fault: Fault) -> Self {
        Self { inner, fault, shared: Arc::default() }
    }
}

impl Listener for FaultyListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async move {
            loop {
                let inner = self.inner.accept().await?;
                while matches!(self.fault, Fault::OneAtATime) && self.shared.open.load(Ordering::SeqCst) > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                while matches!(self.fault, Fault::StallsOnReads)
                    && self.shared.reading.load(Ordering::SeqCst) > 0
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                if !self.shared.dead.load(Ordering::SeqCst) {
                    let (fault, shared) = (self.fault, self.shared.clone());
                    return Ok(Box::new(FaultyIncoming { inner, fault, shared }) as Box<dyn Incoming>);
                }
            }
        })
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.inner.local_address()
    }
}

struct FaultyIncoming {
    inner: Box<dyn Incoming>,
    fault: Fault,
    shared: Arc<Shared>,
}

impl Incoming for FaultyIncoming {
    fn peer_address(&self) -> Option<SocketAddr> {
        self.inner.peer_address()
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>> {
        Box::pin(async move {
            let Self { inner, fault, shared } = *self;
            let inner = inner.request().await?;
            let private_data = inner.private_data().clone();
            let seen = match fault {
                Fault::PrivateData(see) => see(&private_data),
                Fault::Misreads(read) => Some(read(&private_data)),
                _ => Some(private_data),
            };
            match seen {
                Some(private_data) => Ok(Box::new(FaultyRequest { inner, private_data, fault, shared })
                    as Box<dyn ConnectionRequest>),
                None => {
                    inner.reject(Bytes::new()).await?;
                    Err(ConnectError::Protocol("not as this peer likes it".into()))
                }
            }
        })
    }
}

struct FaultyRequest {
    inner: Box<dyn ConnectionRequest>,
    private_data: Bytes,
    fault: Fault,
    shared: Arc<Shared>,
}

impl ConnectionRequest for FaultyRequest {
    fn private_data(&self) -> &Bytes {
        &self.private_data
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.inner.peer_address()
    }

    fn accept(
        self: Box<Self>,
        parameters: ConnectParameters,
    ) -> BoxFuture<'static, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            let Self { inner, private_data, fault, shared } = *self;
            let mut parameters = parameters;
            if let Fault::Script(script) = fault {
                let said = parameters.private_data.stated_by(&Capabilities::default());
                parameters.private_data = (script.announces)(said.clone()).into();
            }
            let inner = inner.accept(parameters).await?;
            Ok(FaultyQueuePair::wrap(inner, private_data, fault, shared))
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), ConnectError>> {
        self.inner.reject(private_data)
    }
}

/// Connector of faulty clients.
pub struct FaultyConnector {
    inner: Arc<dyn Connector>,
    fault: Fault,
    shared: Arc<Shared>,
}

impl FaultyConnector {
    pub fn new(inner: Arc<dyn Connector>, fault: Fault) -> Self {
        Self::speaking(inner, fault, None)
    }

    /// Returns the connector of a client that speaks Version Two in this profile.
    pub fn speaking(inner: Arc<dyn Connector>, fault: Fault, profile: Option<Profile>) -> Self {
        Self { inner, fault, shared: Arc::new(Shared { profile, ..Shared::default() }) }
    }
}

impl Connector for FaultyConnector {
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            if self.shared.dead.load(Ordering::SeqCst) {
                return Err(ConnectError::Io(io::ErrorKind::ConnectionAborted.into()));
            }
            let inner = match self.inner.connect(to, parameters).await {
                Err(_) if matches!(self.fault, Fault::DiesAtEnd(_)) => {
                    self.shared.dead.store(true, Ordering::SeqCst);
                    return Err(ConnectError::Io(io::ErrorKind::ConnectionAborted.into()));
                }
                connected => connected?,
            };
            let private_data = inner.peer_private_data().clone();
            let seen = match self.fault {
                Fault::PrivateData(see) => see(&private_data),
                Fault::Misreads(read) => Some(read(&private_data)),
                _ => Some(private_data),
            };
            match seen {
                Some(private_data) => {
                    Ok(FaultyQueuePair::wrap(inner, private_data, self.fault, self.shared.clone()))
                }
                None => {
                    self.shared.dead.store(true, Ordering::SeqCst);
                    Err(ConnectError::Protocol("not as this peer likes it".into()))
                }
            }
        })
    }
}

struct FaultyQueuePair {
    inner: Box<dyn QueuePair>,
    private_data: Bytes,
    fault: Fault,
    shared: Arc<Shared>,
    seen: Seen,
    own: u64,
    /// An answer that is held back.
    late: Option<[u32; 5]>,
    /// RDMA Reads in progress.
    reading: usize,
    /// What a script knows.
    past: Past,
    /// Whether this is the first connection.
    is_first: bool,
    /// Completions of requests that the adapter answers by itself.
    answered: Vec<Completion>,
}

impl FaultyQueuePair {
    fn wrap(
        inner: Box<dyn QueuePair>,
        private_data: Bytes,
        fault: Fault,
        shared: Arc<Shared>,
    ) -> Box<dyn QueuePair> {
        shared.open.fetch_add(1, Ordering::SeqCst);
        let seen = Seen { profile: shared.profile, ..Seen::default() };
        let is_first = shared.connections.fetch_add(1, Ordering::SeqCst) == 0;
        Box::new(Self {
            inner,
            private_data,
            fault,
            shared,
            seen,
            own: OWN,
            late: None,
            reading: 0,
            past: Past::default(),
            is_first,
            answered: Vec::new(),
        })
    }

    fn answer(&mut self, words: &[u32]) {
        self.send(words.iter().flat_map(|word| word.to_be_bytes()).collect());
    }

    /// Sends a message, which no later one passes.
    fn send(&mut self, bytes: Vec<u8>) {
        self.own += 1;
        let request = SendRequest { gather: vec![bytes.into()], express: true, ..SendRequest::default() };
        let _ = self.inner.post(WrId(self.own), WorkRequest::Send(request));
    }

    /// Does with a received message what the script says.
    fn scripted(&mut self, script: Script, bytes: Vec<u8>) -> Option<Vec<u8>> {
        self.past.ended = self.shared.ended.load(Ordering::SeqCst);
        self.past.xids.clone_from(&self.seen.xids);
        let Turn { answers, passes, ends } = (script.receives)(&self.past, &bytes);
        self.past.received.push(bytes);
        answers.into_iter().for_each(|answer| self.send(answer));
        if ends {
            self.inner.disconnect();
        }
        passes
    }

    /// Returns a received message as the good peer sees it, if it sees it.
    fn arrived(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (xid, version) = (word(&bytes, 0), word(&bytes, 1));
        self.seen.count += 1;
        self.seen.credit = word(&bytes, 2);
        if let Some((_, lists, _)) = self.seen.lists(&bytes) {
            self.seen.last_handles = lists.handles().collect();
            if self.seen.first_handles.is_empty() {
                self.seen.first_handles = self.seen.last_handles.clone();
            }
        }
        self.seen.xids = self.shared.xids.lock().unwrap().clone();
        self.shared.xids.lock().unwrap().push(xid);
        if let Some(late) = self.late.take() {
            self.answer(&late);
        }
        if let Fault::Script(script) = self.fault {
            return self.scripted(script, bytes);
        }
        let Fault::On(when, act) = self.fault else { return Some(bytes) };
        if !when(&self.seen, &bytes) {
            return Some(bytes);
        }
        match act {
            Act::Ignore => {}
            Act::ErrChunk => self.answer(&[xid, version, 32, 4, 2]),
            Act::ErrChunkAndEnd => {
                self.answer(&[xid, version, 32, 4, 2]);
                self.inner.disconnect();
            }
            Act::ErrVers(low, high) => self.answer(&[xid, version, 32, 4, 1, low, high]),
            Act::ErrVersAndClose => {
                self.answer(&[xid, version, 32, 4, 1, 1, 1]);
                self.inner.disconnect();
            }
            Act::LateErrChunk => self.late = Some([xid, version, 32, 4, 2]),
            Act::Reply(status) => self.answer(&[xid, 1, 32, 0, 0, 0, 0, xid, 1, 0, 0, 0, status]),
            Act::Close => self.inner.abort(),
            Act::Die => {
                self.shared.dead.store(true, Ordering::SeqCst);
                self.inner.abort();
            }
            Act::Rewrite(rewrite) => return Some(rewrite(&bytes)),
            Act::Mend(mend) => return Some(mend(&self.seen, &bytes)),
        }
        None
    }
}

impl Drop for FaultyQueuePair {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::SeqCst);
        self.shared.ended.fetch_add(1, Ordering::SeqCst);
        self.shared.reading.fetch_sub(self.reading, Ordering::SeqCst);
    }
}

impl Windows for FaultyQueuePair {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn domain(&self) -> &ProtectionDomain {
        self.inner.domain()
    }

    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError> {
        match (self.fault, memory) {
            (Fault::WidensWindows(bytes), memory) => {
                let length = u32::try_from(memory.len()).unwrap();
                let memory = match memory {
                    WindowMemory::Read(data) => {
                        WindowMemory::Read([&data[..], &vec![0; bytes]].concat().into())
                    }
                    WindowMemory::Write(buffer) => {
                        WindowMemory::Write(Buffer::adopt(vec![0; buffer.len() + bytes]))
                    }
                };
                self.inner.reserve_window(memory).map(|window| RemoteSegment { length, ..window })
            }
            (Fault::OpensForReading, WindowMemory::Write(buffer)) => {
                self.inner.reserve_window(WindowMemory::Read(buffer.freeze()))
            }
            (_, memory) => self.inner.reserve_window(memory),
        }
    }
}

impl QueuePair for FaultyQueuePair {
    fn progress(&self) -> Option<Progress> {
        self.inner.progress()
    }

    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>> {
        let request = match request {
            WorkRequest::Send(mut send) => {
                let mut bytes = send.gather.concat();
                if let Some((_, lists, _)) = self.seen.lists(&bytes) {
                    self.seen.sent.push(word(&bytes, 0));
                    self.seen.offered.insert(word(&bytes, 0), lists);
                }
                if let Fault::Sends(change) = self.fault {
                    change(&self.seen, &mut bytes);
                }
                if let Fault::Script(script) = self.fault {
                    self.past.ended = self.shared.ended.load(Ordering::SeqCst);
                    let mut leaving = (script.sends)(&self.past, bytes);
                    self.past.sent.extend_from_slice(&leaving);
                    // The last one completes the request of the good peer.
                    bytes = leaving.pop().unwrap_or_default();
                    leaving.into_iter().for_each(|message| self.send(message));
                    send.invalidate = (script.invalidates)(&self.past).map(Key).or(send.invalidate);
                }
                if let Fault::Invalidates(key) = self.fault {
                    send.invalidate = key(&self.seen).map(Key);
                }
                match self.fault {
                    Fault::KeepsKey(key) => send.invalidate = send.invalidate.filter(|there| there.0 != key),
                    Fault::CutsSends(len) => bytes.truncate(len),
                    _ => {}
                }
                let doubles = match self.fault {
                    Fault::Doubles => true,
                    Fault::DoublesLater => !self.is_first,
                    _ => false,
                };
                if doubles {
                    let mut again = bytes.clone();
                    // The XID of an inline call stands behind the header, too.
                    let inline = self.seen.lists(&bytes).map_or(0, |(_, _, payload)| payload.len());
                    for at in [3, bytes.len() - inline + 3] {
                        if let Some(byte) = again.get_mut(at) {
                            *byte = byte.wrapping_add(1);
                        }
                    }
                    self.send(again);
                }
                WorkRequest::Send(SendRequest { gather: vec![bytes.into()], ..send })
            }
            WorkRequest::Write { targets, .. } if matches!(self.fault, Fault::LosesWrites(key) if targets.iter().any(|target| target.key.0 == key)) =>
            {
                return Ok(());
            }
            WorkRequest::Read { sink, sources } if matches!(self.fault, Fault::AnswersReads(key) if sources.iter().any(|source| source.key.0 == key)) =>
            {
                self.answered.push(Completion { id, status: Status::Success, work: Work::Read { sink } });
                return Ok(());
            }
            WorkRequest::Write { gather, mut targets } => {
                let mut bytes = gather.concat();
                if let Fault::Writes(change) = self.fault {
                    change(&mut bytes);
                }
                if let (Fault::WritesMore(more), Some(last)) = (self.fault, targets.last_mut()) {
                    last.length += u32::try_from(more.len()).unwrap();
                    bytes.extend_from_slice(more);
                }
                WorkRequest::Write { gather: vec![bytes.into()], targets }
            }
            request @ WorkRequest::Read { .. } => {
                self.reading += 1;
                self.shared.reading.fetch_add(1, Ordering::SeqCst);
                request
            }
            request => request,
        };
        self.inner.post(id, request)
    }

    fn send_room(&self) -> usize {
        self.inner.send_room()
    }

    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>> {
        self.inner.post_receive(id, memory)
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>> {
        if !self.answered.is_empty() {
            completions.append(&mut self.answered);
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut arrived = Vec::new();
            match self.inner.poll(cx, &mut arrived) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(reason)) => {
                    if matches!(self.fault, Fault::DiesAtEnd(dies) if dies(&reason)) {
                        self.shared.dead.store(true, Ordering::SeqCst);
                    }
                    return Poll::Ready(Err(reason));
                }
                Poll::Ready(Ok(())) => {}
            }
            let before = completions.len();
            for Completion { id, status, work } in arrived {
                let work = match work {
                    Work::Send if id.0 > OWN => continue,
                    Work::Read { sink } => {
                        self.reading -= 1;
                        self.shared.reading.fetch_sub(1, Ordering::SeqCst);
                        Work::Read { sink }
                    }
                    Work::Receive { buffers, len, invalidated, solicited } if status.is_success() => {
                        self.seen.invalidates = invalidated.is_some();
                        let bytes =
                            buffers.iter().flat_map(|buffer| buffer.iter().copied()).take(len).collect();
                        let Some(bytes) = self.arrived(bytes) else { continue };
                        let len = bytes.len();
                        Work::Receive { buffers: vec![Buffer::adopt(bytes)], len, invalidated, solicited }
                    }
                    work => work,
                };
                completions.push(Completion { id, status, work });
            }
            if completions.len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn disconnect(&mut self) {
        self.inner.disconnect();
    }

    fn abort(&mut self) {
        self.inner.abort();
    }

    fn peer_private_data(&self) -> &Bytes {
        &self.private_data
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.inner.local_address()
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.inner.peer_address()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
