//! Random schedules with random faults. In all of them, every request completes once, and every window's memory comes
//! back once. Nothing is leaked, delivered bytes are right, and one seed gives one trace.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use rpcrdma_sim::{
    Action, CompletionMode, Delivery, Fabric, FabricConfig, Fault, Outstanding, Side, SimQueuePair, Step,
};
use rpcrdma_verbs::{
    Access, Completion, ConnectParameters, Disconnected, Key, OwnPrivateData, PostErrorKind,
    ProtectionDomain, QueuePair, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Windows,
    Work, WorkRequest, WrId,
};

const MESSAGE: usize = 12_000;

#[derive(Debug, Clone, Copy)]
enum Op {
    Send { len: usize, express: bool },
    SendInvalidate { which: usize },
    Write { which: usize, part: u32 },
    Read { which: usize, second: bool },
    Open { access: Access, len: usize },
    Invalidate { which: usize },
    Receive,
    Run { steps: usize },
    Wait { time: Duration },
    Abort,
    Disconnect,
    Cut,
    Partition,
    Heal,
}

#[derive(Debug, Clone)]
struct Schedule {
    config: FabricConfig,
    ird: u16,
    faults: Vec<Fault>,
    ops: Vec<(usize, Op)>,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..MESSAGE, any::<bool>()).prop_map(|(len, express)| Op::Send { len, express }),
        2 => any::<usize>().prop_map(|which| Op::SendInvalidate { which }),
        6 => (any::<usize>(), 0_u32..=100).prop_map(|(which, part)| Op::Write { which, part }),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(which, second)| Op::Read { which, second }),
        8 => (any::<bool>(), 0_usize..60_000).prop_map(|(write, len)| Op::Open {
            access: if write { Access::RemoteWrite } else { Access::RemoteRead },
            len,
        }),
        3 => any::<usize>().prop_map(|which| Op::Invalidate { which }),
        4 => Just(Op::Receive),
        8 => (1_usize..40).prop_map(|steps| Op::Run { steps }),
        2 => (1_u64..2000).prop_map(|micros| Op::Wait { time: Duration::from_micros(micros) }),
        1 => prop_oneof![
            Just(Op::Abort), Just(Op::Disconnect), Just(Op::Cut), Just(Op::Partition), Just(Op::Heal)
        ],
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let step = prop_oneof![
        (0_u64..20).prop_map(Step::Posted),
        (0_u64..100).prop_map(Step::Segment),
        (0_u64..20).prop_map(Step::Delivered),
    ];
    let action = prop_oneof![
        Just(Action::Cut),
        Just(Action::CutAfter),
        Just(Action::Fail(Status::Fatal)),
        (1_u64..5000).prop_map(|micros| Action::Delay(Duration::from_micros(micros))),
    ];
    (any::<bool>(), step, action).prop_map(|(a, at, action)| Fault {
        connection: 0,
        side: if a { Side::A } else { Side::B },
        at,
        action,
    })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let config = (
        any::<u64>(),
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(None), Just(Some(1_000_000_000)), Just(Some(20_000_000))],
        prop_oneof![Just(100_usize), Just(1408), Just(16_384)],
    )
        .prop_map(|(seed, acknowledged, jitter, bandwidth, segment_size)| FabricConfig {
            seed,
            completion_mode: if acknowledged { CompletionMode::Acknowledged } else { CompletionMode::Local },
            jitter: if jitter { Duration::from_micros(50) } else { Duration::ZERO },
            completion_jitter: if jitter { Duration::from_micros(70) } else { Duration::ZERO },
            bandwidth,
            segment_size,
            ..FabricConfig::default()
        });
    let ops = prop::collection::vec((0_usize..2, op()), 0..60);
    (config, 1_u16..4, prop::collection::vec(fault(), 0..3), ops)
        .prop_map(|(config, ird, faults, ops)| Schedule { config, ird, faults, ops })
}

/// Returns the content of a read window, which allows a check of a Read by its length and address alone.
fn content(len: usize, key_salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ key_salt as u8).collect()
}

struct End {
    queue_pair: SimQueuePair,
    domain: ProtectionDomain,
    outstanding: BTreeSet<WrId>,
    next_id: u64,
    /// Windows whose memory has not come back.
    memory: BTreeSet<Key>,
    /// Windows that the peer may believe to be open.
    open: Vec<(RemoteSegment, Access, usize)>,
    /// The bytes that Reads must return.
    expected: BTreeMap<WrId, Vec<u8>>,
    sent: [u64; 2],
    received: [u64; 2],
    ended: Option<Disconnected>,
    completed: Vec<(WrId, Status)>,
}

impl End {
    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    fn post(&mut self, request: WorkRequest) -> Option<WrId> {
        let id = self.id();
        match self.queue_pair.post(id, request) {
            Ok(()) => {
                self.outstanding.insert(id);
                Some(id)
            }
            Err(error) => {
                assert!(matches!(error.kind, PostErrorKind::Disconnected | PostErrorKind::QueueFull { .. }));
                None
            }
        }
    }

    fn receive(&mut self, pooled: bool) {
        let id = self.id();
        let memory = if pooled {
            ReceiveMemory::Pooled(self.domain.reserve(MESSAGE).unwrap())
        } else {
            let len = MESSAGE - 4000;
            let buffers = [4000, len].map(|len| self.domain.allocate(len, 1).unwrap());
            ReceiveMemory::Scatter(buffers.into())
        };
        if self.queue_pair.post_receive(id, memory).is_ok() {
            self.outstanding.insert(id);
        }
    }

    fn poll(&mut self) -> bool {
        let mut completions = Vec::new();
        match self.queue_pair.poll(&mut Context::from_waker(Waker::noop()), &mut completions) {
            Poll::Pending => {
                assert!(completions.is_empty());
                false
            }
            Poll::Ready(Err(reason)) => {
                assert!(completions.is_empty());
                assert!(self.outstanding.is_empty(), "not completed: {:?}", self.outstanding);
                assert!(self.memory.is_empty(), "not given back: {:?}", self.memory);
                self.ended = Some(reason);
                false
            }
            Poll::Ready(Ok(())) => {
                assert!(self.ended.is_none() && !completions.is_empty());
                completions.into_iter().for_each(|completion| self.check(completion));
                true
            }
        }
    }

    fn give_back(&mut self, key: Key) {
        assert!(self.memory.remove(&key), "{key:?} came back twice");
    }

    fn check(&mut self, completion: Completion) {
        self.completed.push((completion.id, completion.status));
        if let Work::WindowFlushed { key, .. } = completion.work {
            self.give_back(key);
            return;
        }
        assert!(self.outstanding.remove(&completion.id), "{completion:?}");
        let success = completion.status.is_success();
        match completion.work {
            Work::Read { sink } if success => {
                assert!(sink[..] == self.expected[&completion.id], "a Read brought wrong bytes");
            }
            Work::Receive { buffers, len, invalidated, .. } if success => {
                let message: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter()).copied().collect();
                let message = &message[..len];
                if let Some((key, _)) = invalidated {
                    self.give_back(key);
                }
                let class = usize::from(message[0]);
                let number = u64::from_be_bytes(message[1..9].try_into().unwrap());
                assert_eq!(number, self.received[class], "a message is lost, repeated or out of order");
                self.received[class] += 1;
                assert!(message[9..].iter().all(|&byte| byte == number as u8));
            }
            Work::LocalInvalidate { memory: Some(memory) } => {
                // The invalidations of one side complete in order, so the first names the window.
                let _ = memory;
                let key = self.invalidating(completion.id);
                self.give_back(key);
            }
            _ => {}
        }
    }

    fn invalidating(&self, id: WrId) -> Key {
        let bytes = &self.expected[&id];
        Key(u32::from_be_bytes(bytes[..4].try_into().unwrap()))
    }

    fn message(&mut self, len: usize, express: bool) -> Bytes {
        let class = usize::from(express);
        let number = self.sent[class];
        let mut message = vec![class as u8];
        message.extend(number.to_be_bytes());
        message.resize(len.max(9), number as u8);
        message.into()
    }
}

struct Run {
    trace: Vec<Delivery>,
    completed: Vec<Vec<(WrId, Status)>>,
    ended: Vec<Option<Disconnected>>,
}

fn run(schedule: &Schedule) -> Run {
    let fabric = Fabric::new(schedule.config.clone());
    let trace = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&trace);
    fabric.tap(move |delivery| into.lock().unwrap().push(delivery.clone()));
    schedule.faults.iter().for_each(|&fault| fabric.plan(fault));
    let domains = [ProtectionDomain::new(64 << 20), ProtectionDomain::new(64 << 20)];
    let [a, b] = [0, 1].map(|side: usize| ConnectParameters {
        private_data: OwnPrivateData::default(),
        ird: schedule.ird,
        ord: 4,
        max_send_wr: 32,
        max_recv_wr: 100,
        domain: domains[side].clone(),
    });
    let (a, b) = fabric.pair(a, b);
    let mut ends = [a, b].map(|queue_pair| End {
        domain: queue_pair.domain().clone(),
        queue_pair,
        outstanding: BTreeSet::new(),
        next_id: 0,
        memory: BTreeSet::new(),
        open: Vec::new(),
        expected: BTreeMap::new(),
        sent: [0; 2],
        received: [0; 2],
        ended: None,
        completed: Vec::new(),
    });
    for end in &mut ends {
        (0..30).for_each(|number| end.receive(number % 2 == 0));
    }
    for &(side, op) in &schedule.ops {
        apply(&fabric, &mut ends, side, op);
    }
    fabric.heal(0);
    drive(&fabric, &mut ends, usize::MAX);
    ends[0].queue_pair.abort();
    drive(&fabric, &mut ends, usize::MAX);
    for end in &ends {
        assert!(end.ended.is_some());
        assert_eq!(end.domain.usage().in_use, 0, "memory leaked");
    }
    assert_eq!(fabric.outstanding(), Outstanding::default());
    let trace = std::mem::take(&mut *trace.lock().unwrap());
    let [a, b] = ends;
    Run { trace, completed: vec![a.completed, b.completed], ended: vec![a.ended, b.ended] }
}

fn drive(fabric: &Fabric, ends: &mut [End; 2], steps: usize) {
    for _ in 0..steps.min(100_000) {
        while ends[0].poll() | ends[1].poll() {}
        if !fabric.step() {
            return;
        }
    }
    assert!(steps < usize::MAX, "the fabric does not come to rest");
}

fn apply(fabric: &Fabric, ends: &mut [End; 2], side: usize, op: Op) {
    let [a, b] = ends;
    let (end, peer) = if side == 0 { (a, b) } else { (b, a) };
    let pick = |which: usize, wanted: Option<Access>, windows: &[(RemoteSegment, Access, usize)]| {
        let fitting: Vec<_> =
            (0..windows.len()).filter(|&i| wanted.is_none_or(|wanted| windows[i].1 == wanted)).collect();
        (!fitting.is_empty()).then(|| fitting[which % fitting.len()])
    };
    match op {
        Op::Send { len, express } => {
            let gather = vec![end.message(len, express)];
            let request = SendRequest { gather, express, ..SendRequest::default() };
            if end.post(WorkRequest::Send(request)).is_some() {
                end.sent[usize::from(express)] += 1;
            }
        }
        Op::SendInvalidate { which } => {
            let Some(index) = pick(which, None, &peer.open) else { return };
            let invalidate = Some(peer.open.remove(index).0.key);
            let gather = vec![end.message(100, false)];
            if end
                .post(WorkRequest::Send(SendRequest { gather, invalidate, ..SendRequest::default() }))
                .is_some()
            {
                end.sent[0] += 1;
            }
        }
        Op::Write { which, part } => {
            let Some(index) = pick(which, Some(Access::RemoteWrite), &peer.open) else { return };
            let target = peer.open[index].0;
            let len = (u64::from(target.length) * u64::from(part) / 100) as usize;
            end.post(WorkRequest::Write { gather: vec![Bytes::from(vec![7; len])], targets: vec![target] });
        }
        Op::Read { which, second } => {
            let Some(index) = pick(which, Some(Access::RemoteRead), &peer.open) else { return };
            let (source, _, salt) = peer.open[index];
            let mut sources = vec![source];
            let mut expected = content(source.length as usize, salt);
            if second {
                let skip = source.length / 3;
                expected.extend_from_within(skip as usize..);
                sources.push(RemoteSegment {
                    address: source.address + u64::from(skip),
                    length: source.length - skip,
                    ..source
                });
            }
            let sink = end.domain.allocate(expected.len(), 1).unwrap();
            if let Some(id) = end.post(WorkRequest::Read { sink, sources }) {
                end.expected.insert(id, expected);
            }
        }
        Op::Open { access, len } => {
            let salt = end.memory.len();
            let mut buffer = end.domain.allocate(len, 1).unwrap();
            buffer.copy_from_slice(&content(len, salt));
            let memory = match access {
                Access::RemoteRead => WindowMemory::Read(buffer.freeze()),
                Access::RemoteWrite => WindowMemory::Write(buffer),
            };
            let Ok(window) = end.queue_pair.reserve_window(memory) else { return };
            end.memory.insert(window.key);
            if end.post(WorkRequest::BindWindow { key: window.key }).is_some() {
                end.open.push((window, access, salt));
            }
        }
        Op::Invalidate { which } => {
            let Some(index) = pick(which, None, &end.open) else { return };
            // Sometimes the window stays in the list: then it is used, and invalidated, once more.
            let key = if which % 5 == 0 { end.open[index].0.key } else { end.open.remove(index).0.key };
            if let Some(id) = end.post(WorkRequest::LocalInvalidate { key }) {
                end.expected.insert(id, key.0.to_be_bytes().to_vec());
            }
        }
        Op::Receive => end.receive(true),
        Op::Run { steps } => drive(fabric, ends, steps),
        Op::Wait { time } => fabric.advance(time),
        Op::Abort => end.queue_pair.abort(),
        Op::Disconnect => end.queue_pair.disconnect(),
        Op::Cut => fabric.cut(0),
        Op::Partition => fabric.partition(0),
        Op::Heal => fabric.heal(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn i8_nothing_is_lost_or_leaked(schedule in schedule()) {
        run(&schedule);
    }

    #[test]
    fn one_seed_gives_one_trace(schedule in schedule()) {
        let (first, second) = (run(&schedule), run(&schedule));
        prop_assert_eq!(first.trace, second.trace);
        prop_assert_eq!(first.completed, second.completed);
        prop_assert_eq!(first.ended, second.ended);
    }
}

#[test]
fn another_seed_gives_other_keys() {
    let keys = [1, 2].map(|seed| {
        let ops = vec![
            (1, Op::Open { access: Access::RemoteWrite, len: 10 }),
            (0, Op::Write { which: 0, part: 100 }),
        ];
        let config = FabricConfig { seed, ..FabricConfig::default() };
        let run = run(&Schedule { config, ird: 1, faults: Vec::new(), ops });
        (run.trace[0].key, run.trace[0].address)
    });
    assert_ne!(keys[0], keys[1]);
}
