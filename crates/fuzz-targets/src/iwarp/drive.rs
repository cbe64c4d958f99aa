//! An endpoint after start-up that reads a stream of its peer, with the account of its work and memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_iwarp::engine::{Engine, Parameters, Timeouts};
use rpcrdma_iwarp::startup::{Negotiated, Role, Rtr};
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_verbs::{
    Buffer, Completion, Disconnected, Key, ProtectionDomain, ReceiveMemory, RemoteSegment, SendRequest,
    Status, WindowMemory, Work, WorkRequest, WrId,
};

/// Properties of an endpoint after start-up, by the bits of a byte; 0 is a plain Initiator without CRCs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup(pub(super) u8);

impl Setup {
    const fn has(self, bit: u8) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// Returns whether payload is placed only after its CRC matched.
    pub(super) const fn is_strict(self) -> bool {
        self.has(0)
    }

    /// Returns whether a window is closed, and more work is posted, while the peer sends.
    pub(super) const fn goes_on(self) -> bool {
        self.has(5)
    }

    pub(super) fn negotiated(self) -> Negotiated {
        let role = if self.has(1) { Role::Responder } else { Role::Initiator };
        let rtr = match (role, self.0 >> 3 & 3) {
            (Role::Responder, _) | (_, 0) => None,
            (_, 1) => Some(Rtr::Send),
            (_, 2) => Some(Rtr::Write),
            _ => Some(Rtr::Read),
        };
        Negotiated {
            role,
            crc: self.has(6),
            markers: self.has(2),
            large_fpdu: None,
            ird: 4,
            ord: 4,
            rtr,
            rtr_send_expected: role == Role::Responder && self.has(3),
            private_data: Bytes::new(),
        }
    }
}

/// The times at which the endpoint sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pump {
    /// After each read.
    Each,
    /// At the start, and at the end of each FPDU, where a read ends.
    Boundary,
    /// At the start and at the end.
    Start,
}

/// A work request that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Receive { id: u64, bytes: Vec<u8>, invalidated: Option<(Key, Vec<u8>)>, solicited: bool },
    Read { id: u64, bytes: Vec<u8> },
}

/// What an endpoint did.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Receives and RDMA Reads in the order of their completion.
    pub(super) done: Vec<Done>,
    /// All bytes sent.
    pub(super) sent: Vec<u8>,
    /// The end of the connection.
    pub(super) end: Disconnected,
    /// Windows that were open to the end, with their memory.
    pub(super) left: Vec<(Key, Vec<u8>)>,
    /// Capacity of each Receive, in the order of posting; the id is the position.
    pub(super) receives: Vec<usize>,
    /// The window that is open to RDMA Writes, and that to RDMA Reads.
    pub(super) windows: [RemoteSegment; 2],
}

/// The number of Receives.
const RECEIVES: u64 = 4;
/// Byte of a window for RDMA Writes to which nothing was written.
pub(super) const UNWRITTEN: u8 = 0xA5;

/// Returns the memory of the window for RDMA Reads.
pub(super) fn readable() -> Vec<u8> {
    (0..4096_u32).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Work and memory that an engine must return.
#[derive(Debug, Default)]
struct Account {
    /// Requests and Receives that have not completed, with the window that each is to close.
    posted: BTreeMap<WrId, Option<Key>>,
    /// Windows whose memory has not been returned.
    windows: BTreeSet<Key>,
    done: Vec<Done>,
    left: Vec<(Key, Vec<u8>)>,
}

fn content(memory: &WindowMemory) -> Vec<u8> {
    match memory {
        WindowMemory::Write(buffer) => buffer.to_vec(),
        WindowMemory::Read(bytes) => bytes.to_vec(),
    }
}

impl Account {
    fn post(&mut self, engine: &mut Engine, id: u64, request: WorkRequest) {
        let closes = match &request {
            WorkRequest::LocalInvalidate { key } => Some(*key),
            _ => None,
        };
        if engine.post(WrId(id), request).is_ok() {
            assert!(self.posted.insert(WrId(id), closes).is_none(), "the ids of this test are its own");
        }
    }

    /// Takes the completions, and checks that each request and each window completes once.
    fn poll(&mut self, engine: &mut Engine) {
        while let Some(Completion { id, status, work }) = engine.poll_completion() {
            if let Work::WindowFlushed { key, memory } = work {
                assert!(self.windows.remove(&key), "{key:?} comes back twice, or was never reserved");
                self.left.push((key, content(&memory)));
                continue;
            }
            let posted = self.posted.remove(&id);
            let closes = posted.unwrap_or_else(|| panic!("{id:?} completes twice, or was never posted"));
            let returned = match &work {
                Work::Receive { invalidated, .. } => invalidated.as_ref().map(|(key, _)| *key),
                Work::LocalInvalidate { memory: Some(_) } => closes,
                _ => None,
            };
            if let Some(key) = returned {
                assert!(self.windows.remove(&key), "{key:?} comes back twice, or was never reserved");
            }
            if status == Status::Success {
                self.succeed(id.0, work);
            }
        }
    }

    fn succeed(&mut self, id: u64, work: Work) {
        match work {
            Work::Receive { buffers, len, invalidated, solicited } => {
                let mut bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
                assert!(bytes.len() >= len, "a message of {len} bytes in {}", bytes.len());
                bytes.truncate(len);
                let invalidated = invalidated.map(|(key, memory)| (key, content(&memory)));
                self.done.push(Done::Receive { id, bytes, invalidated, solicited });
            }
            Work::Read { sink } => self.done.push(Done::Read { id, bytes: sink.to_vec() }),
            _ => {}
        }
    }
}

/// Sends all that the endpoint has to send.
fn pump(engine: &mut Engine, sent: &mut Vec<u8>, now: Instant) {
    engine.prepare(now);
    while engine.has_output() {
        let before = sent.len();
        engine.with_transmit_slices(|slices, _| {
            slices.iter().for_each(|slice| sent.extend_from_slice(slice));
        });
        assert!(sent.len() > before, "an endpoint with output lends it");
        engine.transmitted(sent.len() - before, now);
        engine.prepare(now);
    }
}

/// Returns the positions at which FPDUs end.
fn boundaries(stream: &[u8]) -> BTreeSet<usize> {
    let (mut ends, mut at) = (BTreeSet::new(), 0);
    while let Some(length) = stream.get(at..).and_then(|rest| FpduView::new(rest).fpdu_len()) {
        at += length;
        ends.insert(at);
    }
    ends
}

/// Reads from `stream` into the slices that the engine lends, at most `most` bytes. Returns their number.
fn read(engine: &mut Engine, stream: &[u8], most: usize) -> usize {
    engine.with_receive_slices(|slices| {
        let mut count = 0;
        for slice in slices {
            let part = slice.len().min(stream.len() - count).min(most - count);
            slice[..part].copy_from_slice(&stream[count..count + part]);
            count += part;
        }
        count
    })
}

/// Feeds `stream` to an endpoint after start-up, at most `step` bytes in one read.
///
/// # Panics
/// If a request completes twice, or not at all although the stream has ended. If a window is not returned exactly once.
/// If memory is missing from the domain at the end, or the endpoint takes more of it.
pub(super) fn drive(stream: &[u8], step: usize, times: Pump, setup: Setup) -> Run {
    let now = Instant::now();
    let domain = ProtectionDomain::new(1 << 20);
    let parameters = Parameters {
        negotiated: setup.negotiated(),
        domain: domain.clone(),
        max_send_wr: 16,
        max_recv_wr: 16,
        max_windows: 16,
        strict_crc: setup.is_strict(),
        timeouts: Timeouts::default(),
        emss: 1448,
        seed: [0; 32],
    };
    let mut engine = Engine::new(parameters, &[], now);
    let mut account = Account::default();
    let allocate = |len| domain.allocate(len, 1).expect("the domain has room for all of this");
    let receives = post_receives(&mut engine, &mut account, &domain, allocate);
    let mut writable = allocate(16_384);
    writable.fill(UNWRITTEN);
    let windows = [(10, WindowMemory::Write(writable)), (20, WindowMemory::Read(readable().into()))];
    let windows = windows.map(|(id, memory)| {
        let window = engine.reserve_window(memory).expect("the endpoint has room for windows");
        account.windows.insert(window.key);
        account.post(&mut engine, id, WorkRequest::BindWindow { key: window.key });
        let sink = allocate(usize::try_from(window.length).unwrap());
        account.post(&mut engine, id + 1, WorkRequest::Read { sink, sources: vec![window] });
        window
    });
    let mut open = windows.to_vec();
    let in_use = domain.usage().in_use;
    let mut sent = Vec::new();
    if times != Pump::Each {
        pump(&mut engine, &mut sent, now);
    }
    let ends = boundaries(stream);
    let mut at = 0;
    while at < stream.len() && engine.wants_input() {
        let end = ends.range(at + 1..).next().filter(|_| times == Pump::Boundary);
        let most = end.map_or(stream.len(), |end| *end) - at;
        let count = read(&mut engine, &stream[at..], most.min(step));
        assert!(count > 0, "an endpoint that wants input lends room for it");
        engine.received(count, now);
        at += count;
        if setup.goes_on()
            && let Some(target) = open.pop()
        {
            post_more(&mut engine, &mut account, target);
        }
        if times == Pump::Each || times == Pump::Boundary && ends.contains(&at) {
            pump(&mut engine, &mut sent, now);
        }
        account.poll(&mut engine);
        assert!(domain.usage().in_use <= in_use, "the endpoint takes more memory");
    }
    pump(&mut engine, &mut sent, now);
    if engine.shutdown_due() {
        engine.handle_shutdown();
    }
    engine.handle_end_of_stream();
    account.poll(&mut engine);
    assert!(account.posted.is_empty(), "never completed: {:?}", account.posted);
    assert!(account.windows.is_empty(), "never given back: {:?}", account.windows);
    let end = engine.end().expect("the connection is over").clone();
    drop(engine);
    assert_eq!(domain.usage().in_use, 0, "all memory is back");
    let Account { done, mut left, .. } = account;
    left.sort();
    let run = Run { done, sent, end, left, receives, windows };
    super::spoken::Spoken::of(&run.sent, &setup.negotiated());
    run
}

/// Posts Receives, by turns with memory of their own and of the pool. Returns their capacities.
fn post_receives(
    engine: &mut Engine,
    account: &mut Account,
    domain: &ProtectionDomain,
    allocate: impl Fn(usize) -> Buffer,
) -> Vec<usize> {
    let receives = (0..RECEIVES).map(|id| {
        let memory = match domain.reserve(8192) {
            Ok(memory) if id % 2 == 1 => ReceiveMemory::Pooled(memory),
            _ => ReceiveMemory::Scatter(vec![allocate(64), allocate(8192)]),
        };
        let capacity = memory.capacity();
        engine.post_receive(WrId(id), memory).expect("the endpoint has room for Receives");
        account.posted.insert(WrId(id), None);
        capacity
    });
    receives.collect()
}

/// Posts an RDMA Write, a Send, and the end of a window.
fn post_more(engine: &mut Engine, account: &mut Account, target: RemoteSegment) {
    let gather = vec![Bytes::from_static(&[9; 3000])];
    let id = u64::from(target.key.0) << 8;
    account.post(engine, id, WorkRequest::Write { gather: gather.clone(), targets: vec![target] });
    account.post(engine, id + 1, WorkRequest::Send(SendRequest { gather, ..SendRequest::default() }));
    account.post(engine, id + 2, WorkRequest::LocalInvalidate { key: target.key });
}

/// Returns the window for RDMA Writes of each endpoint, whose names follow from the seed of [`drive`].
pub(crate) fn writable_window() -> RemoteSegment {
    drive(&[], 1, Pump::Start, Setup(0)).windows[0]
}

/// Returns the window for RDMA Reads of each endpoint.
pub(crate) fn readable_window() -> RemoteSegment {
    drive(&[], 1, Pump::Start, Setup(0)).windows[1]
}
