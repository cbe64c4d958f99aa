//! A peer that sends anything: messages that are nearly right, quite wrong, or answers to calls that it received.

use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_proto::Profile;
use rpcrdma_proto::characteristics::EXPERIMENTAL;
use rpcrdma_proto::wire::two::{self, Exchange, Rest, Subset, Value, combined};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{
    Body, ChunkLists, Codec, Direction, ErrorBody, Fixed, Header, ReadSegment, Segment, WriteChunk,
};
use rpcrdma_sim::SimQueuePair;
use rpcrdma_verbs::{
    Key, ProtectionDomain, QueuePair, ReceiveMemory, RemoteSegment, SendRequest, WindowMemory, Windows, Work,
    WorkRequest, WrId,
};

use crate::draw::Draw;
use crate::ledger::{decode, messages};
use crate::link::joined;
use crate::program::{PROGRAM, VERSION};

/// Number of messages that the peer remembers.
const REMEMBERED: usize = 16;
/// Length of a Receive, in bytes.
const RECEIVE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Peer {
    qp: SimQueuePair,
    domain: ProtectionDomain,
    /// The version that the peer mostly speaks: a profile of Version Two, or Version One.
    profile: Option<Profile>,
    /// The profile in which the other side speaks Version Two, if it does.
    theirs: Option<Profile>,
    next_id: u64,
    /// The last received messages.
    received: Vec<Bytes>,
    /// Windows of the peer, some of them closed.
    windows: Vec<Segment>,
    /// Memory that was open for reading.
    exposed: Vec<Bytes>,
    ended: bool,
}

impl Peer {
    /// Returns a peer that speaks Version Two in `profile`, if any; the other side speaks `theirs`.
    pub(crate) fn new(qp: SimQueuePair, profile: Option<Profile>, theirs: Option<Profile>) -> Self {
        let domain = qp.domain().clone();
        let (received, windows, exposed) = (vec![], vec![], vec![]);
        Self { qp, domain, profile, theirs, next_id: 0, received, windows, exposed, ended: false }
    }

    /// Returns all memory that was ever open for reading.
    pub(crate) fn exposed(&self) -> &[Bytes] {
        &self.exposed
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    fn post(&mut self, request: WorkRequest) {
        let id = self.id();
        // The queue may be full, the request malformed, the connection over: the peer does not care.
        let _ = self.qp.post(id, request);
    }

    pub(crate) fn post_receives(&mut self, count: usize) {
        for _ in 0..count {
            let Ok(memory) = self.domain.reserve(RECEIVE) else { return };
            let id = self.id();
            let _ = self.qp.post_receive(id, ReceiveMemory::Pooled(memory));
        }
    }

    pub(crate) fn abort(&mut self) {
        self.qp.abort();
    }

    pub(crate) fn pump(&mut self) -> bool {
        let mut completions = Vec::new();
        if self.ended {
            return false;
        }
        match self.qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => self.ended = true,
        }
        for completion in completions {
            if let Work::Receive { buffers, len, .. } = completion.work
                && completion.status.is_success()
            {
                self.received.extend(messages(self.theirs, &joined(&buffers, len)));
                let forgotten = self.received.len().saturating_sub(REMEMBERED);
                self.received.drain(..forgotten);
            }
        }
        true
    }

    /// Performs one random action.
    pub(crate) fn act(&mut self, draw: &mut Draw<'_>) {
        match draw.below(64) {
            0..=20 => {
                let message = self.call(draw);
                self.send(draw, message);
            }
            21..=38 => {
                let message = self.answer(draw);
                self.send(draw, message);
            }
            39..=40 => {
                let count = draw.below(220);
                let together = count % 4 == 3 && matches!(self.profile, Some(Profile::P1 | Profile::P2));
                let message = if together { self.together(draw) } else { draw.bytes(count).into() };
                self.send(draw, message);
            }
            41..=49 => {
                let len = draw.length();
                let memory = if draw.flag() {
                    // Content of a chunk, or a Call for the Position-Zero chunk.
                    let bytes = if len % 3 == 1 {
                        let xid = u32::from(draw.byte());
                        rpc_call(draw, xid)
                    } else {
                        vec![0x5a; len].into()
                    };
                    self.exposed.push(bytes.clone());
                    WindowMemory::Read(bytes)
                } else {
                    let Ok(buffer) = self.domain.allocate(len.max(1), 1) else { return };
                    WindowMemory::Write(buffer)
                };
                let Ok(window) = self.qp.reserve_window(memory) else { return };
                self.post(WorkRequest::BindWindow { key: window.key });
                let segment = Segment { handle: window.key.0, length: window.length, offset: window.address };
                self.windows.push(segment);
            }
            50..=51 => {
                if let Some(window) = self.windows.pop() {
                    self.post(WorkRequest::LocalInvalidate { key: Key(window.handle) });
                }
            }
            52..=55 => self.write(draw),
            56..=58 => self.read(draw),
            59..=61 => {
                let count = draw.below(8);
                self.post_receives(count);
            }
            62 => self.qp.disconnect(),
            _ => self.qp.abort(),
        }
    }

    fn send(&mut self, draw: &mut Draw<'_>, message: Bytes) {
        let message = if draw.rarely(6) { spoiled(draw, &message) } else { message };
        let invalidate = draw.rarely(12).then(|| {
            let keys: Vec<u32> =
                self.offered().iter().flat_map(|lists| lists.handles().collect::<Vec<_>>()).collect();
            let wild = draw.word();
            Key(if keys.is_empty() || draw.rarely(4) { wild } else { draw.pick(&keys) })
        });
        self.post(WorkRequest::Send(SendRequest {
            gather: vec![message],
            invalidate,
            ..SendRequest::default()
        }));
    }

    /// Returns the headers that the peer received.
    fn decoded(&self) -> Vec<Header> {
        let decode = |message: &Bytes| decode(self.theirs, message).ok().map(|(header, _)| header);
        self.received.iter().filter_map(decode).collect()
    }

    /// Returns the chunk lists that the peer received.
    fn offered(&self) -> Vec<ChunkLists> {
        let lists = |header| match header {
            Body::Message(lists) | Body::NoMessage(lists) => Some(lists),
            _ => None,
        };
        self.decoded().into_iter().filter_map(|header| lists(header.body)).collect()
    }

    /// Returns a segment of memory that is open, was open, or never was.
    fn segment(&self, draw: &mut Draw<'_>) -> Segment {
        let mut segment = if self.windows.is_empty() || draw.rarely(32) {
            Segment { handle: draw.word(), length: draw.word(), offset: u64::from(draw.word()) << 32 }
        } else {
            draw.pick(&self.windows)
        };
        if draw.rarely(12) {
            segment.length = draw.pick(&[0, 1, segment.length / 2, segment.length.wrapping_add(1), u32::MAX]);
        }
        segment
    }

    fn chunk(&self, draw: &mut Draw<'_>) -> WriteChunk {
        let count = draw.pick(&[1, 1, 1, 2, 3, 0, 16, 300]);
        WriteChunk { segments: (0..count).map(|_| self.segment(draw)).collect() }
    }

    fn lists(&self, draw: &mut Draw<'_>) -> ChunkLists {
        let mut lists = ChunkLists::default();
        for _ in 0..draw.pick(&[0, 0, 0, 1, 1, 1, 2, 3, 20]) {
            let position = match draw.below(8) {
                0..=2 => 0,
                3..=5 => 44,
                6 => draw.pick(&[4, 40, 48, 1000]),
                _ => draw.pick(&[42, 44, 44, u32::MAX]),
            };
            let segment = self.segment(draw);
            lists.read.push(ReadSegment { position, segment, padding: draw.rarely(16) });
        }
        lists.write = (0..draw.pick(&[0, 0, 0, 1, 1, 1, 2, 20])).map(|_| self.chunk(draw)).collect();
        lists.reply = draw.rarely(3).then(|| self.chunk(draw));
        lists
    }

    /// Returns a message of the version that the peer speaks, or claims to speak.
    fn encoded(&self, draw: &mut Draw<'_>, xid: u32, direction: Direction, body: Body) -> BytesMut {
        let spoken = if self.profile.is_some() { 2 } else { 1 };
        let version = if draw.rarely(20) { draw.pick(&[0, 3 - spoken, u32::MAX]) } else { spoken };
        let credit = draw.pick(&[8, 1, 1, 32, 0, u32::MAX]);
        let mut message = BytesMut::new();
        match self.profile {
            None => V1.encode(&Header { version, ..Header::v1(xid, credit, body) }, &mut message),
            Some(profile) => {
                let said = if draw.rarely(16) { other(direction) } else { direction };
                let handle = self.offered().iter().flat_map(|lists| lists.handles().next()).next();
                let invalidate = draw.pick(&[0, 0, handle.unwrap_or(7), 1]);
                let header = Header { xid, version, credit, direction: Some(said), invalidate, body };
                profile.codec().encode(&header, &mut message);
            }
        }
        message
    }

    /// Returns a body with these lists.
    fn body(&self, draw: &mut Draw<'_>, lists: ChunkLists) -> Body {
        match (draw.below(16), self.profile) {
            (0..=8, _) => Body::Message(lists),
            (9..=12, _) => Body::NoMessage(lists),
            (13, None) => Body::Error(ErrorBody::Chunk),
            (14, None) => Body::Error(version_error(draw)),
            (_, None) if draw.flag() => Body::Done,
            (_, None) => Body::Padded { align: draw.word(), threshold: draw.word(), lists },
            (13, Some(_)) => Body::Error(match draw.below(6) {
                0 => ErrorBody::Chunk,
                1 => version_error(draw),
                2 => ErrorBody::Two(two::ErrorBody::InvalidOption),
                3 => ErrorBody::Two(two::ErrorBody::InvalidProcedure),
                4 => ErrorBody::Two(two::ErrorBody::ReplyResource {
                    segment: draw.word(),
                    needed: draw.word(),
                }),
                _ => ErrorBody::Two(two::ErrorBody::System),
            }),
            (14, Some(Profile::P3)) => {
                Body::Two(two::Body::Middle { remaining: draw.pick(&[44, 84, 0, 4096]) })
            }
            (15, Some(Profile::P3)) if draw.flag() => Body::Two(two::Body::Grant),
            (_, Some(_)) => Body::Two(two::Body::Exchange(exchange(draw))),
        }
    }

    /// Returns a call, more or less correct.
    fn call(&self, draw: &mut Draw<'_>) -> Bytes {
        let xid = u32::from(draw.byte());
        let lists = self.lists(draw);
        let body = self.body(draw, lists);
        let mut message = self.encoded(draw, xid, Direction::Call, body);
        message.extend_from_slice(&rpc_call(draw, xid));
        message.freeze()
    }

    /// Returns several messages in one Send, more or less correct.
    fn together(&self, draw: &mut Draw<'_>) -> Bytes {
        let count = draw.pick(&[2, 3, 8, 9, 1]);
        let messages: Vec<Bytes> =
            (0..count).map(|_| if draw.flag() { self.call(draw) } else { self.answer(draw) }).collect();
        let mut lengths: Vec<u32> =
            messages.iter().map(|message| u32::try_from(message.len()).unwrap_or(u32::MAX)).collect();
        if draw.rarely(8) {
            lengths[0] = draw.pick(&[0, 4, 12, u32::MAX]);
        }
        let xid = messages.first().and_then(|first| Fixed::decode(first).ok()).map_or(0, |fixed| fixed.xid);
        let mut send = self.encoded(draw, xid, Direction::Call, Body::Two(two::Body::Combined(lengths)));
        for (index, message) in messages.iter().enumerate() {
            send.extend_from_slice(message);
            let last = index + 1 == messages.len();
            send.put_bytes(0, if last { 0 } else { message.len().next_multiple_of(4) - message.len() });
        }
        send.freeze()
    }

    /// Returns an answer to one of the received calls, more or less correct.
    fn answer(&self, draw: &mut Draw<'_>) -> Bytes {
        let decoded = self.decoded();
        if decoded.is_empty() {
            return self.call(draw);
        }
        let call = draw.pick(&decoded);
        let mut lists = match call.body {
            Body::Message(lists) | Body::NoMessage(lists) => lists,
            Body::Two(two::Body::Exchange(Exchange::Request { want })) => {
                let response = response(draw, self.profile, &want);
                return self
                    .encoded(draw, call.xid, Direction::Reply, Body::Two(two::Body::Exchange(response)))
                    .freeze();
            }
            _ => ChunkLists::default(),
        };
        lists.read.clear();
        let mut written = 0;
        for chunk in lists.write.iter_mut().chain(&mut lists.reply) {
            let all = chunk.total();
            written = draw.pick(&[all, all, 0, all / 2, all.saturating_sub(1)]);
            *chunk = chunk.filled(written);
            if draw.rarely(8) {
                *chunk = self.chunk(draw);
            }
        }
        if draw.rarely(8) {
            lists = self.lists(draw);
        }
        let mut body = self.body(draw, lists);
        if let Body::NoMessage(ChunkLists { reply: None, .. }) = &body {
            body = Body::Message(ChunkLists::default());
        }
        let mut message = self.encoded(draw, call.xid, Direction::Reply, body);
        put_reply(draw, call.xid, &mut message);
        if draw.flag() {
            message.put_u32(u32::try_from(written).unwrap_or(u32::MAX));
        }
        message.put_bytes(0, draw.below(64));
        message.freeze()
    }

    /// Makes an RDMA Write to offered memory, or to any.
    fn write(&mut self, draw: &mut Draw<'_>) {
        let mut targets = Vec::new();
        for Header { xid, body, .. } in self.decoded() {
            if let Body::Message(lists) | Body::NoMessage(lists) = body {
                let chunks = lists.write.into_iter().chain(lists.reply);
                targets.extend(chunks.flat_map(|chunk| chunk.segments).map(|segment| (xid, segment)));
            }
        }
        let wild = targets.is_empty() || draw.rarely(32);
        let (xid, target) = if wild { (0, self.segment(draw)) } else { draw.pick(&targets) };
        let all = usize::try_from(target.length).unwrap_or_default().min(1 << 20);
        let len = draw.pick(&[all, all, all / 2, 0]);
        let mut target = remote(target);
        if draw.rarely(8) {
            target.address = target.address.wrapping_add(1);
        }
        // Content of the Reply chunk, or other data.
        let mut data = BytesMut::new();
        if len % 3 == 1 {
            put_reply(draw, xid, &mut data);
        }
        data.resize(len, 0x77);
        self.post(WorkRequest::Write { gather: vec![data.freeze()], targets: vec![target] });
    }

    /// Makes an RDMA Read of offered memory, or of any.
    fn read(&mut self, draw: &mut Draw<'_>) {
        let sources: Vec<Segment> = self
            .offered()
            .into_iter()
            .flat_map(|lists| lists.read)
            .map(|entry| entry.segment)
            .filter(|segment| segment.length <= 1 << 20)
            .collect();
        let wild = Segment { handle: draw.word(), length: 100, offset: 0 };
        let source = if sources.is_empty() { wild } else { draw.pick(&sources) };
        let Ok(sink) = self.domain.allocate(usize::try_from(source.length).unwrap_or_default().max(1), 1)
        else {
            return;
        };
        self.post(WorkRequest::Read { sink, sources: vec![remote(source)] });
    }
}

fn remote(segment: Segment) -> RemoteSegment {
    RemoteSegment { key: Key(segment.handle), address: segment.offset, length: segment.length }
}

const fn other(direction: Direction) -> Direction {
    match direction {
        Direction::Call => Direction::Reply,
        Direction::Reply => Direction::Call,
    }
}

fn version_error(draw: &mut Draw<'_>) -> ErrorBody {
    ErrorBody::Version { low: draw.word() % 4, high: draw.word() % 4 }
}

/// Returns an RPC Call with arguments, more or less correct.
fn rpc_call(draw: &mut Draw<'_>, xid: u32) -> Bytes {
    let mut message = BytesMut::new();
    let procedure = u32::from(draw.byte() % 8);
    for word in [xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0] {
        message.put_u32(word);
    }
    // A count, a length, and the data that exists.
    let (first, second) = (draw.length(), draw.length());
    message.put_u32(u32::try_from(first).unwrap_or_default());
    if draw.flag() {
        message.put_u32(u32::try_from(second).unwrap_or_default());
        message.put_bytes(7, draw.below(1200));
    }
    message.freeze()
}

/// Appends the header of an RPC Reply.
fn put_reply(draw: &mut Draw<'_>, xid: u32, message: &mut BytesMut) {
    for word in [xid, 1, 0, 0, 0, draw.pick(&[0, 0, 0, 1, 4])] {
        message.put_u32(word);
    }
}

/// Returns characteristics with values that are possible, or not.
fn values(draw: &mut Draw<'_>) -> Vec<Value> {
    let count = draw.pick(&[1, 1, 2, 3, 0, 40]);
    let value = |_| {
        let id = draw.pick(&[1, 1, 2, 3, EXPERIMENTAL, combined::CHARACTERISTIC, 0, 77]);
        let data = if draw.rarely(8) {
            let len = draw.below(40);
            draw.bytes(len)
        } else {
            draw.pick(&[4096_u32, 8192, 1, 0, 2, 1024, 65_536, u32::MAX]).to_be_bytes().to_vec()
        };
        Value { id, data: data.into() }
    };
    (0..count).map(value).collect()
}

/// Returns a subset of `count` entries, perhaps with others.
fn subset(draw: &mut Draw<'_>, count: usize) -> Subset {
    let all = count + usize::from(draw.rarely(16)) * 40;
    (0..all).filter(|_| draw.flag()).collect()
}

/// Returns an unrequested operation; a response without a request is one too.
fn exchange(draw: &mut Draw<'_>) -> Exchange {
    let values = values(draw);
    match draw.below(8) {
        0..=2 => Exchange::Initial { constant: subset(draw, values.len()), start: values },
        3..=4 => Exchange::Request { want: values },
        5..=6 => Exchange::Update { now: values, clears: draw.flag() },
        _ => response(draw, None, &values),
    }
}

fn response(draw: &mut Draw<'_>, profile: Option<Profile>, want: &[Value]) -> Exchange {
    let (done, rejected) = (subset(draw, want.len()), subset(draw, want.len()));
    let rest = match profile {
        Some(Profile::P2) => Rest::Other(values(draw)),
        _ => Rest::Pending(subset(draw, want.len())),
    };
    Exchange::Response { done, rejected, rest }
}

/// Returns a message with one fault: a changed word, a missing end, or additional bytes.
fn spoiled(draw: &mut Draw<'_>, message: &Bytes) -> Bytes {
    let mut bytes = message.to_vec();
    match draw.below(4) {
        0 | 1 => {
            let words = (bytes.len() / 4).clamp(1, 40);
            let at = draw.below(words) * 4;
            let value = draw.pick(&[0, 1, 2, 9, 1_000_000, u32::MAX]);
            if let Some(word) = bytes.get_mut(at..at + 4) {
                word.copy_from_slice(&value.to_be_bytes());
            }
        }
        2 => bytes.truncate(draw.below(bytes.len() + 1)),
        _ => {
            let count = draw.below(6000);
            bytes.resize(bytes.len() + count, 3);
        }
    }
    bytes.into()
}
