//! Two engines and the bytes between them, for tests without socket and clock.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma_verbs::{
    Buffer, Completion, Disconnected, ProtectionDomain, ReceiveMemory, RemoteSegment, SendRequest, Status,
    WindowMemory, Work, WorkRequest, WrId,
};

use super::{Engine, Parameters, Timeouts};
use crate::startup::{Negotiated, Role};

/// Parameters that a test may vary.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) crc: bool,
    pub(super) strict_crc: bool,
    pub(super) markers: bool,
    pub(super) emss: usize,
    pub(super) ird: u16,
    pub(super) ord: u16,
    pub(super) max_send_wr: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { crc: true, strict_crc: false, markers: false, emss: 65483, ird: 4, ord: 4, max_send_wr: 256 }
    }
}

impl Setup {
    /// Returns what this side agreed with its peer: no Ready-To-Receive message.
    pub(super) fn negotiated(&self, role: Role) -> Negotiated {
        Negotiated {
            role,
            crc: self.crc,
            markers: self.markers,
            large_fpdu: None,
            ird: self.ird,
            ord: self.ord,
            rtr: None,
            rtr_send_expected: false,
            private_data: Bytes::new(),
        }
    }

    pub(super) fn engine(&self, role: Role, now: Instant) -> Engine {
        self.engine_with(self.negotiated(role), now)
    }

    pub(super) fn engine_with(&self, negotiated: Negotiated, now: Instant) -> Engine {
        let seed = [if negotiated.role == Role::Initiator { 1 } else { 2 }; 32];
        let parameters = Parameters {
            negotiated,
            domain: ProtectionDomain::new(1 << 26),
            max_send_wr: self.max_send_wr,
            max_recv_wr: 64,
            max_windows: 64,
            strict_crc: self.strict_crc,
            timeouts: Timeouts::default(),
            emss: self.emss,
            seed,
        };
        Engine::new(parameters, &[], now)
    }
}

/// An end of the pair.
#[derive(Debug)]
pub(super) struct End {
    pub(super) engine: Engine,
    pub(super) done: Vec<Completion>,
    next_id: u64,
}

impl End {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, done: Vec::new(), next_id: 0 }
    }

    pub(super) fn post(&mut self, request: WorkRequest) -> WrId {
        self.next_id += 1;
        let id = WrId(self.next_id);
        self.engine.post(id, request).unwrap();
        id
    }

    pub(super) fn send(&mut self, message: &[u8]) -> WrId {
        self.post(WorkRequest::Send(send(message)))
    }

    pub(super) fn receive(&mut self, capacity: usize) -> WrId {
        self.next_id += 1;
        let id = WrId(self.next_id);
        let reserved = self.engine.domain().reserve(capacity).unwrap();
        self.engine.post_receive(id, ReceiveMemory::Pooled(reserved)).unwrap();
        id
    }

    pub(super) fn receive_into(&mut self, lengths: &[usize]) -> WrId {
        self.next_id += 1;
        let id = WrId(self.next_id);
        let buffers = lengths.iter().map(|&length| Buffer::adopt(vec![0; length])).collect();
        self.engine.post_receive(id, ReceiveMemory::Scatter(buffers)).unwrap();
        id
    }

    pub(super) fn open(&mut self, memory: WindowMemory) -> RemoteSegment {
        let segment = self.engine.reserve_window(memory).unwrap();
        self.post(WorkRequest::BindWindow { key: segment.key });
        segment
    }

    pub(super) fn open_write(&mut self, length: usize) -> RemoteSegment {
        self.open(WindowMemory::Write(Buffer::adopt(vec![0; length])))
    }

    pub(super) fn open_read(&mut self, bytes: Vec<u8>) -> RemoteSegment {
        self.open(WindowMemory::Read(bytes.into()))
    }

    pub(super) fn write(&mut self, bytes: Vec<u8>, target: RemoteSegment) -> WrId {
        self.post(WorkRequest::Write { gather: vec![bytes.into()], targets: vec![target] })
    }

    pub(super) fn read(&mut self, source: RemoteSegment) -> WrId {
        let sink = Buffer::adopt(vec![0; usize::try_from(source.length).unwrap()]);
        self.post(WorkRequest::Read { sink, sources: vec![source] })
    }

    pub(super) fn collect(&mut self) {
        while let Some(completion) = self.engine.poll_completion() {
            self.done.push(completion);
        }
    }

    /// Takes the completion of a request.
    pub(super) fn take(&mut self, id: WrId) -> Option<Completion> {
        self.collect();
        let at = self.done.iter().position(|completion| {
            completion.id == id && !matches!(completion.work, Work::WindowFlushed { .. })
        })?;
        Some(self.done.remove(at))
    }

    /// Takes the message of a Receive that must have completed.
    pub(super) fn message(&mut self, id: WrId) -> Vec<u8> {
        let completion = self.take(id).expect("the Receive has completed");
        assert_eq!(completion.status, Status::Success);
        let Work::Receive { buffers, len, .. } = completion.work else { panic!("no Receive") };
        let mut message: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_vec()).collect();
        message.truncate(len);
        message
    }

    /// Takes the sink of a Read that must have completed.
    pub(super) fn sink(&mut self, id: WrId) -> Vec<u8> {
        let completion = self.take(id).expect("the Read has completed");
        assert_eq!(completion.status, Status::Success);
        let Work::Read { sink } = completion.work else { panic!("no Read") };
        sink.to_vec()
    }

    /// Invalidates a window and takes its memory, which must come at once.
    pub(super) fn close(&mut self, segment: RemoteSegment) -> Vec<u8> {
        let id = self.post(WorkRequest::LocalInvalidate { key: segment.key });
        match self.take(id).expect("nothing uses the window").work {
            Work::LocalInvalidate { memory: Some(WindowMemory::Write(buffer)) } => buffer.to_vec(),
            Work::LocalInvalidate { memory: Some(WindowMemory::Read(bytes)) } => bytes.to_vec(),
            other => panic!("no memory: {other:?}"),
        }
    }

    /// Returns all bytes that leave now.
    pub(super) fn transmit(&mut self, now: Instant) -> Vec<u8> {
        let mut stream = Vec::new();
        loop {
            let part = self.transmit_some(usize::MAX, now);
            if part.is_empty() {
                return stream;
            }
            stream.extend_from_slice(&part);
        }
    }

    /// Returns at most `limit` bytes that leave now.
    pub(super) fn transmit_some(&mut self, limit: usize, now: Instant) -> Vec<u8> {
        self.engine.prepare(now);
        let mut part = self.engine.with_transmit_slices(|slices, _| {
            slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>()
        });
        part.truncate(limit);
        if !part.is_empty() {
            self.engine.transmitted(part.len(), now);
        }
        self.collect();
        part
    }

    /// Feeds bytes, at most `step` in one read.
    pub(super) fn feed(&mut self, mut stream: &[u8], mut step: impl FnMut() -> usize, now: Instant) {
        while !stream.is_empty() && self.engine.wants_input() {
            let limit = step().max(1);
            let count = self.engine.with_receive_slices(|slices| {
                let mut count = 0;
                for slice in slices {
                    let part = slice.len().min(stream.len() - count).min(limit - count);
                    slice[..part].copy_from_slice(&stream[count..count + part]);
                    count += part;
                }
                count
            });
            assert!(count > 0, "nothing was lent");
            self.engine.received(count, now);
            stream = &stream[count..];
        }
        self.collect();
    }

    pub(super) fn take_whole(&mut self, stream: &[u8], now: Instant) {
        self.feed(stream, || usize::MAX, now);
    }

    pub(super) fn end(&mut self) -> Option<Disconnected> {
        self.collect();
        self.engine.end().cloned()
    }
}

/// Two connected ends.
#[derive(Debug)]
pub(super) struct Pair {
    /// The Initiator.
    pub(super) client: End,
    /// The Responder.
    pub(super) server: End,
    pub(super) now: Instant,
}

impl Pair {
    pub(super) fn new(setup: &Setup) -> Self {
        let now = Instant::now();
        Self {
            client: End::new(setup.engine(Role::Initiator, now)),
            server: End::new(setup.engine(Role::Responder, now)),
            now,
        }
    }

    /// Returns a pair in which both sides may send.
    pub(super) fn open(setup: &Setup) -> Self {
        let mut pair = Self::new(setup);
        let id = pair.server.receive(4);
        pair.client.send(b"open");
        pair.run();
        assert_eq!(pair.server.message(id), b"open");
        pair.client.done.clear();
        pair
    }

    /// Moves bytes in both directions until none move.
    pub(super) fn run(&mut self) {
        self.run_cut(|| usize::MAX);
    }

    /// Moves bytes in both directions, with writes and reads of given sizes, until none move.
    pub(super) fn run_cut(&mut self, mut step: impl FnMut() -> usize) {
        loop {
            let out = self.client.transmit_some(step().max(1), self.now);
            self.server.feed(&out, &mut step, self.now);
            let back = self.server.transmit_some(step().max(1), self.now);
            self.client.feed(&back, &mut step, self.now);
            if out.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.client.engine.handle_timeout(self.now);
        self.server.engine.handle_timeout(self.now);
    }
}

pub(super) fn send(message: &[u8]) -> SendRequest {
    SendRequest { gather: vec![Bytes::copy_from_slice(message)], ..SendRequest::default() }
}

/// Returns bytes that depend on their positions.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0]).collect()
}
