//! For tests: two connections on the simulated fabric, a small program for them, and a peer that sends any bytes.
//!
//! There is no runtime: the clock stands still while a step is possible, then jumps to the next event.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_sim::{Fabric, FabricConfig, SimQueuePair};
use rpcrdma_verbs::{
    Completion, ConnectParameters, Disconnected, ProtectionDomain, QueuePair, ReceiveMemory, RemoteSegment,
    SendRequest, WindowMemory, Windows, Work, WorkRequest, WrId,
};
use rpcrdma_xdr::{Decoder, Encoder, Stream};

use crate::settings::binding::{Bindings, Eligibility};
use crate::wire::{Body, Codec, Fixed, Header, Segment, v1::V1};
use crate::{
    Answer, Call, CallFailure, CallId, CloseReason, Config, Connection, Event, IncomingReply, Limits, Notice,
    Post, ReplyShape, ReplyToken, Side, Sink, Travelled,
};

pub(crate) const PROGRAM: u32 = 0x2000_0001;
pub(crate) const VERSION: u32 = 1;

/// Data (eligible) → the same data (eligible).
pub(crate) const ECHO: u32 = 1;
/// Length → that much data (eligible).
pub(crate) const READ: u32 = 2;
/// Data (eligible) → its length.
pub(crate) const WRITE: u32 = 3;
/// Length → that much data, not eligible.
pub(crate) const LIST: u32 = 4;
/// Data, not eligible → its length.
pub(crate) const STORE: u32 = 5;
/// Two lengths → data (eligible), and data that is not.
pub(crate) const BOTH: u32 = 6;
/// Two data (eligible) → both joined, twice (eligible).
pub(crate) const TWO: u32 = 7;

/// The largest item, in bytes.
pub(crate) const MAX: usize = 4 << 20;
/// Bytes of a reply's header and one count.
pub(crate) const REPLY_HEADER: usize = 24 + 4;

/// The DDP-eligible items of the program above.
#[derive(Debug)]
pub(crate) struct TestBindings;

impl Bindings for TestBindings {
    fn eligibility(&self, program: u32, version: u32, procedure: u32) -> Option<Eligibility> {
        if (program, version) != (PROGRAM, VERSION) {
            return None;
        }
        let (arguments, results) = match procedure {
            ECHO => (1, 1),
            READ | BOTH => (0, 1),
            WRITE => (1, 0),
            TWO => (2, 2),
            _ => (0, 0),
        };
        Some(Eligibility { arguments, results })
    }
}

pub(crate) fn pattern(len: usize) -> Bytes {
    (0..len).map(|index| (index % 253).to_le_bytes()[0]).collect()
}

fn call_header(xid: u32, procedure: u32) -> Encoder {
    let mut encoder = Encoder::new();
    for word in [xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0] {
        encoder.u32(word);
    }
    encoder
}

/// A call whose reply has no data.
pub(crate) fn call_of(xid: u32, procedure: u32, arguments: impl FnOnce(&mut Encoder)) -> Call {
    let mut encoder = call_header(xid, procedure);
    arguments(&mut encoder);
    Call {
        xid,
        program: PROGRAM,
        version: VERSION,
        procedure,
        message: encoder.finish(),
        reply: ReplyShape::plain(REPLY_HEADER),
        flavor_touches_data: false,
        timeout: None,
    }
}

pub(crate) fn null(xid: u32) -> Call {
    call_of(xid, 0, |_| {})
}

pub(crate) fn write(xid: u32, len: usize) -> Call {
    call_of(xid, WRITE, |encoder| encoder.payload(pattern(len), MAX, true).unwrap())
}

pub(crate) fn store(xid: u32, len: usize) -> Call {
    call_of(xid, STORE, |encoder| encoder.payload(pattern(len), MAX, false).unwrap())
}

pub(crate) fn read(xid: u32, len: usize) -> Call {
    let mut call = call_of(xid, READ, |encoder| encoder.u32(u32::try_from(len).unwrap()));
    call.reply.sinks = vec![Sink::Pool(len)];
    call
}

pub(crate) fn list(xid: u32, len: usize) -> Call {
    let mut call = call_of(xid, LIST, |encoder| encoder.u32(u32::try_from(len).unwrap()));
    call.reply.max_len += len;
    call
}

pub(crate) fn echo(xid: u32, len: usize) -> Call {
    let mut call = call_of(xid, ECHO, |encoder| encoder.payload(pattern(len), MAX, true).unwrap());
    call.reply.sinks = vec![Sink::Pool(len)];
    call
}

pub(crate) fn both(xid: u32, data: usize, list: usize) -> Call {
    let mut call = call_of(xid, BOTH, |encoder| {
        encoder.u32(u32::try_from(data).unwrap());
        encoder.u32(u32::try_from(list).unwrap());
    });
    call.reply = ReplyShape { max_len: REPLY_HEADER + 4 + list, sinks: vec![Sink::Pool(data)] };
    call
}

pub(crate) fn two(xid: u32, first: usize, second: usize) -> Call {
    let mut call = call_of(xid, TWO, |encoder| {
        encoder.payload(pattern(first), MAX, true).unwrap();
        encoder.payload(pattern(second), MAX, true).unwrap();
    });
    let joined = first + second;
    call.reply =
        ReplyShape { max_len: REPLY_HEADER + 4, sinks: vec![Sink::Pool(joined), Sink::Pool(joined)] };
    call
}

/// The program: returns the server's answer to a Call.
pub(crate) fn serve(mut message: Decoder) -> Answer {
    let words: Vec<u32> = (0..10).map(|_| message.u32().unwrap()).collect();
    let (xid, procedure) = (words[0], words[5]);
    let mut reply = Encoder::new();
    for word in [xid, 1, 0, 0, 0, 0] {
        reply.u32(word);
    }
    match results(procedure, message, &mut reply) {
        Ok(()) => Answer::message(reply.finish()),
        Err(error) if error.is_chunk_violation() => Answer::ChunkError,
        Err(_) => {
            let mut garbage = Encoder::new();
            for word in [xid, 1, 0, 0, 0, 4] {
                garbage.u32(word);
            }
            Answer::message(garbage.finish())
        }
    }
}

fn results(
    procedure: u32,
    mut message: Decoder,
    reply: &mut Encoder,
) -> Result<(), rpcrdma_xdr::DecodeError> {
    let length = |data: &Bytes| u32::try_from(data.len()).unwrap();
    let size = |word: u32| usize::try_from(word).unwrap();
    match procedure {
        ECHO => reply.payload(message.payload(MAX)?, MAX, true).unwrap(),
        READ => reply.payload(pattern(size(message.u32()?)), MAX, true).unwrap(),
        WRITE => {
            let data = message.payload(MAX)?;
            assert_eq!(data, pattern(data.len()));
            reply.u32(length(&data));
        }
        LIST => reply.payload(pattern(size(message.u32()?)), MAX, false).unwrap(),
        STORE => {
            let data = message.opaque(MAX)?;
            assert_eq!(data, pattern(data.len()));
            reply.u32(length(&data));
        }
        BOTH => {
            reply.payload(pattern(size(message.u32()?)), MAX, true).unwrap();
            reply.payload(pattern(size(message.u32()?)), MAX, false).unwrap();
        }
        TWO => {
            let joined: Bytes = [message.payload(MAX)?, message.payload(MAX)?].concat().into();
            reply.payload(joined.clone(), MAX, true).unwrap();
            reply.payload(joined, MAX, true).unwrap();
        }
        _ => {}
    }
    message.finish()
}

/// Checks the reply to one of the calls above.
#[track_caller]
pub(crate) fn check_reply(procedure: u32, len: usize, reply: IncomingReply) {
    let mut message = reply.message;
    let words: Vec<u32> = (0..6).map(|_| message.u32().unwrap()).collect();
    assert_eq!(words[1..], [1, 0, 0, 0, 0]);
    match procedure {
        ECHO | READ => assert_eq!(message.payload(MAX).unwrap(), pattern(len)),
        WRITE | STORE => assert_eq!(message.u32().unwrap(), u32::try_from(len).unwrap()),
        LIST => assert_eq!(message.opaque(MAX).unwrap(), pattern(len)),
        _ => {}
    }
    if procedure <= STORE {
        message.finish().unwrap();
    }
}

/// Makes a call whose last argument and result are opaque data of these lengths, or the word before it if 4. Long data
/// has to reach both programs in several slices, without a copy.
#[track_caller]
pub(crate) fn check_slices(pair: &mut Pair, call: Call, len: usize, reply_len: usize) {
    let copies = |end: &End| {
        let stats = end.connection.stats();
        (stats.payload_bytes_copied, stats.inline_bytes_copied)
    };
    let check = |mut message: Decoder, words: usize, len: usize| {
        if len == 4 {
            return;
        }
        for _ in 0..words {
            message.u32().unwrap();
        }
        let data = message.payload_slices(MAX).unwrap();
        assert_eq!((&data, message.copied()), (&pattern(len).into(), rpcrdma_xdr::CopyCount::default()));
        assert!(data.iter().count() > 1);
        message.finish().unwrap();
    };
    pair.server.serving = false;
    let before = copies(&pair.server);
    pair.call(call);
    pair.settle();
    assert_eq!(copies(&pair.server), before, "the Call was copied");
    let (token, _, _, message) = pair.server.calls.pop().unwrap();
    check(message.clone(), 10, len);
    let before = copies(&pair.client);
    let now = pair.now();
    pair.server.connection.reply(now, token, serve(message));
    pair.settle();
    assert_eq!(copies(&pair.client), before, "the reply was copied");
    let (_, reply) = pair.client.replies.pop().unwrap();
    check(reply.unwrap().message, 6, reply_len);
}

/// An end of a connection, with its queue pair.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) qp: SimQueuePair,
    pub(crate) domain: ProtectionDomain,
    /// Events that the program did not answer.
    pub(crate) replies: Vec<(CallId, Result<IncomingReply, CallFailure>)>,
    pub(crate) calls: Vec<(ReplyToken, u32, Travelled, Decoder)>,
    pub(crate) closed: Option<CloseReason>,
    pub(crate) notices: Vec<Notice>,
    /// The program answers calls at once; otherwise they stay in `calls`.
    pub(crate) serving: bool,
    /// The provider reports the progress of data.
    pub(crate) tells: bool,
    ended: bool,
    /// Receives that the queue pair has.
    receives: usize,
    /// Receives that have completed.
    received: u32,
}

impl End {
    pub(crate) fn new(
        side: Side,
        config: Arc<Config>,
        qp: SimQueuePair,
        domain: ProtectionDomain,
        now: Instant,
    ) -> Self {
        let connection = Connection::new(side, config, qp.peer_private_data(), qp.capabilities(), now);
        Self {
            connection,
            qp,
            domain,
            replies: vec![],
            calls: vec![],
            closed: None,
            notices: vec![],
            serving: true,
            tells: true,
            ended: false,
            receives: 0,
            received: 0,
        }
    }

    /// Checks rule I3 at each answer that leaves: every credit that no Call in progress uses has a Receive at the queue
    /// pair.
    fn check_grant(&self, request: &WorkRequest) {
        let WorkRequest::Send(send) = request else { return };
        self.check_grant_of(&send.gather.concat().into());
    }

    fn check_grant_of(&self, message: &Bytes) {
        let limits = Limits { combined_messages: 64, ..Limits::default() };
        let Ok((header, len)) = self.connection.codec().decode(message, &limits) else { return };
        if let Body::Two(body) = &header.body
            && let Some(messages) = body.messages(&message.slice(len..), Fixed::decode(message).unwrap())
        {
            return messages.unwrap().iter().for_each(|message| self.check_grant_of(message));
        }
        // Where messages are counted: the messages that the peer may still send, and a GRANT.
        if self.connection.codec().rules().two.is_some_and(|two| two.counts_messages) {
            let outstanding = header.credit.wrapping_sub(self.received).cast_signed();
            assert!(i64::from(outstanding) < i64::try_from(self.receives).unwrap(), "rule I3");
            return;
        }
        let answer = match header.body {
            Body::Message(_) => message[len + 4..len + 8] == 1_u32.to_be_bytes(),
            Body::NoMessage(lists) => {
                lists.reply.is_some_and(|chunk| chunk.total() > 0) && lists.read.is_empty()
            }
            Body::Error(_) => true,
            _ => false,
        };
        if answer && self.connection.side() == Side::Server {
            let granted = usize::try_from(header.credit).unwrap();
            let (receives, in_progress) = (self.receives, self.connection.in_progress());
            assert!(granted >= 1, "a grant is never 0");
            assert!(granted <= receives + in_progress, "{granted} > {receives} + {in_progress}");
        }
    }

    /// Posts a request or a Receive to the queue pair.
    pub(crate) fn post(&mut self, post: Post) {
        match post {
            Post::Work(id, request) => {
                self.check_grant(&request);
                if let Err(error) = self.qp.post(id, request) {
                    self.connection.handle_post_error(id, &error.kind);
                }
            }
            Post::Receive(id, memory) => {
                self.receives += 1;
                if let Err(error) = self.qp.post_receive(id, memory) {
                    self.connection.handle_post_error(id, &error.kind);
                }
            }
            Post::Disconnect => self.qp.disconnect(),
            Post::Abort => self.qp.abort(),
        }
    }

    /// Takes every step that is possible now; returns whether there was any.
    pub(crate) fn pump(&mut self, now: Instant) -> bool {
        let mut progress = false;
        while let Some(post) = self.connection.poll_transmit(now, &mut self.qp) {
            progress = true;
            self.post(post);
        }
        let mut completions = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let outcome = self.qp.poll(&mut cx, &mut completions);
        if let Some(told) = self.qp.progress().filter(|_| self.tells) {
            self.connection.handle_progress(now, told);
        }
        match outcome {
            Poll::Ready(Err(reason)) if !self.ended => {
                progress = true;
                self.ended = true;
                self.handle(now, completions);
                self.connection.handle_disconnected(reason);
            }
            Poll::Ready(Ok(())) => {
                progress = true;
                self.handle(now, completions);
            }
            _ => {}
        }
        while let Some(event) = self.connection.poll_event() {
            progress = true;
            assert!(self.closed.is_none(), "{event:?} after Closed");
            match event {
                Event::Call(call) if self.serving => {
                    self.connection.reply(now, call.token, serve(call.message));
                }
                Event::Call(call) => self.calls.push((call.token, call.xid, call.travelled, call.message)),
                Event::Reply { id, result } => self.replies.push((id, result)),
                Event::Characteristics(notice) => self.notices.push(notice),
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
        progress
    }

    fn handle(&mut self, now: Instant, completions: Vec<Completion>) {
        for completion in completions {
            if let Work::Receive { .. } = completion.work {
                self.receives -= 1;
                self.received = self.received.wrapping_add(1);
            }
            self.connection.handle_completion(now, completion);
        }
    }
}

/// Two connected ends.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) fabric: Fabric,
    pub(crate) client: End,
    pub(crate) server: End,
}

pub(crate) fn parameters(config: &Config, domain: &ProtectionDomain) -> ConnectParameters {
    ConnectParameters {
        private_data: config.announcement(),
        ird: 16,
        ord: 16,
        max_send_wr: 256,
        max_recv_wr: config.max_recv_wr(),
        domain: domain.clone(),
    }
}

/// Settings with which the server knows the program's binding.
pub(crate) fn server_config() -> Config {
    let limits = Limits { read_segment_len: 8 << 20, read_total: 8 << 20, ..Limits::default() };
    Config { bindings: Some(Arc::new(TestBindings)), limits, ..Config::default() }
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(FabricConfig::default(), Config::default(), server_config())
    }

    pub(crate) fn with(fabric: FabricConfig, client: Config, server: Config) -> Self {
        Self::on(&Fabric::new(fabric), client, server, 64 << 20)
    }

    pub(crate) fn on(fabric: &Fabric, client: Config, server: Config, server_memory: usize) -> Self {
        Self::on_queues(fabric, client, server, server_memory, 256)
    }

    pub(crate) fn on_queues(
        fabric: &Fabric,
        client: Config,
        server: Config,
        server_memory: usize,
        max_send_wr: usize,
    ) -> Self {
        let domains = [ProtectionDomain::new(64 << 20), ProtectionDomain::new(server_memory)];
        let parameters = |config, domain| ConnectParameters { max_send_wr, ..parameters(config, domain) };
        let (a, b) = fabric.pair(parameters(&client, &domains[0]), parameters(&server, &domains[1]));
        let [client_domain, server_domain] = domains;
        let now = fabric.instant();
        Self {
            fabric: fabric.clone(),
            client: End::new(Side::Client, Arc::new(client), a, client_domain, now),
            server: End::new(Side::Server, Arc::new(server), b, server_domain, now),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.fabric.instant()
    }

    /// Takes every step that is possible without the passing of time.
    pub(crate) fn pump(&mut self) {
        loop {
            let now = self.fabric.instant();
            let client = self.client.pump(now);
            if !(self.server.pump(now) || client) {
                return;
            }
        }
    }

    /// Runs until the fabric carries nothing more. No timer fires.
    pub(crate) fn settle(&mut self) {
        loop {
            self.pump();
            if !self.fabric.step() {
                return;
            }
        }
    }

    /// Runs for this time; timers fire when they are due.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        loop {
            self.pump();
            let timers = [self.client.connection.poll_timeout(), self.server.connection.poll_timeout()];
            let fabric = self.fabric.next_event().map(|at| self.fabric.instant_at(at));
            let next = timers.into_iter().flatten().chain(fabric).min().unwrap_or(end).min(end);
            let now = self.now();
            self.fabric.advance(next.saturating_duration_since(now));
            let now = self.now();
            self.client.connection.handle_timeout(now);
            self.server.connection.handle_timeout(now);
            if now >= end {
                return self.pump();
            }
        }
    }

    #[track_caller]
    pub(crate) fn call(&mut self, call: Call) -> CallId {
        let now = self.now();
        self.client.connection.call(now, call).unwrap()
    }

    /// Makes a call, runs until it ends, and returns its reply.
    #[track_caller]
    pub(crate) fn round_trip(&mut self, call: Call) -> IncomingReply {
        self.outcome(call).unwrap()
    }

    /// Makes a call, runs until it ends, and returns the outcome.
    #[track_caller]
    pub(crate) fn outcome(&mut self, call: Call) -> Result<IncomingReply, CallFailure> {
        let id = self.call(call);
        self.settle();
        let at = self.client.replies.iter().position(|(reply, _)| *reply == id).expect("the call has ended");
        self.client.replies.swap_remove(at).1
    }

    /// Checks that no request is outstanding, except Receives, and that no window is open.
    #[track_caller]
    pub(crate) fn check_no_leak(&self) {
        let outstanding = self.fabric.outstanding();
        assert_eq!((outstanding.work_requests, outstanding.windows), (0, 0), "{outstanding:?}");
    }
}

/// A connection, and a peer that sends any bytes.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) fabric: Fabric,
    pub(crate) end: End,
    pub(crate) peer: SimQueuePair,
    /// Messages that the peer received.
    pub(crate) received: Vec<Bytes>,
    /// Windows of the peer that a Send invalidated.
    pub(crate) invalidated: Vec<(rpcrdma_verbs::Key, WindowMemory)>,
    pub(crate) ended: Option<Disconnected>,
    domain: ProtectionDomain,
    next_id: u64,
}

impl Raw {
    /// Creates a connection of this side; the peer has posted many Receives and accepts Send with Invalidate.
    pub(crate) fn new(side: Side, config: Config) -> Self {
        Self::with_peer(side, config, &Config::default())
    }

    pub(crate) fn with_peer(side: Side, config: Config, peer: &Config) -> Self {
        Self::on(&Fabric::new(FabricConfig::default()), side, config, peer)
    }

    pub(crate) fn on(fabric: &Fabric, side: Side, config: Config, peer: &Config) -> Self {
        Self::with_depths(fabric, side, config, peer, (16, 16))
    }

    /// Creates a connection whose peer has this IRD and ORD.
    pub(crate) fn with_depths(
        fabric: &Fabric,
        side: Side,
        config: Config,
        peer: &Config,
        depths: (u16, u16),
    ) -> Self {
        Self::with_memory(fabric, side, config, peer, depths, ProtectionDomain::new(64 << 20))
    }

    /// Creates a connection with this memory, which it may share with others.
    pub(crate) fn with_memory(
        fabric: &Fabric,
        side: Side,
        config: Config,
        peer: &Config,
        (ird, ord): (u16, u16),
        ours: ProtectionDomain,
    ) -> Self {
        let theirs = ProtectionDomain::new(64 << 20);
        let theirs_set_up = ConnectParameters { max_recv_wr: 256, ird, ord, ..parameters(peer, &theirs) };
        let (a, b) = match side {
            Side::Client => fabric.pair(parameters(&config, &ours), theirs_set_up),
            Side::Server => {
                let (b, a) = fabric.pair(theirs_set_up, parameters(&config, &ours));
                (a, b)
            }
        };
        let end = End::new(side, Arc::new(config), a, ours, fabric.instant());
        let mut raw = Self {
            fabric: fabric.clone(),
            end,
            peer: b,
            received: vec![],
            invalidated: vec![],
            ended: None,
            domain: theirs,
            next_id: 0,
        };
        raw.post_receives(200);
        raw.settle();
        raw
    }

    /// Posts Receives of the peer.
    pub(crate) fn post_receives(&mut self, count: usize) {
        for _ in 0..count {
            let memory = ReceiveMemory::Pooled(self.domain.reserve(4096).unwrap());
            let id = self.id();
            self.peer.post_receive(id, memory).unwrap();
        }
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    pub(crate) fn settle(&mut self) {
        loop {
            let now = self.fabric.instant();
            let mut progress = self.end.pump(now);
            let mut completions = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            match self.peer.poll(&mut cx, &mut completions) {
                Poll::Ready(Ok(())) => progress = true,
                Poll::Ready(Err(reason)) => self.ended = Some(reason),
                Poll::Pending => {}
            }
            for completion in completions {
                if let Work::Receive { buffers, len, invalidated, .. } = completion.work {
                    if completion.status.is_success() {
                        self.received.push(Bytes::copy_from_slice(&buffers[0][..len]));
                    }
                    self.invalidated.extend(invalidated);
                }
            }
            if !progress && !self.fabric.step() {
                return;
            }
        }
    }

    /// Handles what has completed at both ends. Nothing is posted, and no event is read.
    pub(crate) fn take_completions(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = self.peer.poll(&mut cx, &mut vec![]);
        let mut completions = vec![];
        let _ = self.end.qp.poll(&mut cx, &mut completions);
        self.end.handle(self.fabric.instant(), completions);
    }

    /// Sends a message from the peer.
    pub(crate) fn send(&mut self, message: impl Into<Bytes>) {
        self.send_invalidating(message, None);
    }

    pub(crate) fn send_invalidating(
        &mut self,
        message: impl Into<Bytes>,
        invalidate: Option<rpcrdma_verbs::Key>,
    ) {
        let id = self.id();
        let request = SendRequest { gather: vec![message.into()], invalidate, ..SendRequest::default() };
        self.peer.post(id, WorkRequest::Send(request)).unwrap();
        self.settle();
    }

    /// Writes into a window of the connection by RDMA Write.
    pub(crate) fn write(&mut self, data: Bytes, target: Segment) {
        let id = self.id();
        let targets = vec![RemoteSegment::from(&target)];
        self.peer.post(id, WorkRequest::Write { gather: vec![data], targets }).unwrap();
        self.settle();
    }

    /// Opens memory of the peer as a window.
    pub(crate) fn window(&mut self, memory: WindowMemory) -> Segment {
        let window = self.peer.reserve_window(memory).unwrap();
        let id = self.id();
        self.peer.post(id, WorkRequest::BindWindow { key: window.key }).unwrap();
        Segment::from(&window)
    }

    pub(crate) fn readable(&mut self, data: &[u8]) -> Segment {
        self.window(WindowMemory::Read(Bytes::copy_from_slice(data)))
    }

    pub(crate) fn writable(&mut self, len: usize) -> Segment {
        let buffer = self.domain.allocate(len, 1).unwrap();
        self.window(WindowMemory::Write(buffer))
    }

    /// Takes the memory of a window back.
    pub(crate) fn take_back(&mut self, segment: Segment) -> Bytes {
        let id = self.id();
        self.peer.post(id, WorkRequest::LocalInvalidate { key: rpcrdma_verbs::Key(segment.handle) }).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let mut completions = Vec::new();
            let _ = self.peer.poll(&mut cx, &mut completions);
            for completion in completions {
                if let Work::LocalInvalidate { memory: Some(memory) } = completion.work {
                    return match memory {
                        WindowMemory::Read(data) => data,
                        WindowMemory::Write(buffer) => buffer.freeze(),
                    };
                }
            }
            assert!(self.fabric.step(), "the window comes back");
        }
    }

    /// Returns the header of the last message that the peer received, and the bytes after it.
    #[track_caller]
    pub(crate) fn last(&self) -> (Header, Bytes) {
        let message = self.received.last().expect("a message");
        let (header, len) = V1.decode(message, &Limits::default()).unwrap();
        (header, message.slice(len..))
    }
}

/// Encodes a message with any header and payload.
pub(crate) fn message(header: &Header, payload: &Stream) -> Bytes {
    let mut out = bytes::BytesMut::new();
    V1.encode(header, &mut out);
    out.extend_from_slice(&payload.flatten().0);
    out.freeze()
}

pub(crate) const fn header(xid: u32, body: Body) -> Header {
    Header::v1(xid, 8, body)
}
