//! The fabric without a runtime, as tests of `proto` use it.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_sim::{
    Action, CompletionMode, Delivery, Fabric, FabricConfig, Fault, MessageKind, Outstanding, Side,
    SimQueuePair, Step, Steps,
};
use rpcrdma_verbs::{
    Access, Buffer, Completion, ConnectParameters, Disconnected, OwnPrivateData, ProtectionDomain, QueuePair,
    ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Windows, Work, WorkRequest, WrId,
};

fn parameters(domain: &ProtectionDomain) -> ConnectParameters {
    ConnectParameters {
        private_data: OwnPrivateData::default(),
        ird: 4,
        ord: 4,
        max_send_wr: 64,
        max_recv_wr: 64,
        domain: domain.clone(),
    }
}

struct Pair {
    fabric: Fabric,
    domain: ProtectionDomain,
    a: SimQueuePair,
    b: SimQueuePair,
    log: Arc<Mutex<Vec<Delivery>>>,
}

fn pair(config: FabricConfig) -> Pair {
    let fabric = Fabric::new(config);
    let domain = ProtectionDomain::new(64 << 20);
    let (a, b) = fabric.pair(parameters(&domain), parameters(&domain));
    let log = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&log);
    fabric.tap(move |delivery| into.lock().unwrap().push(delivery.clone()));
    Pair { fabric, domain, a, b, log }
}

impl Pair {
    fn settle(&mut self) -> (Vec<Completion>, Vec<Completion>) {
        let mut both = self.fabric.settle(&mut [&mut self.a, &mut self.b]);
        let b = both.pop().unwrap();
        (both.pop().unwrap(), b)
    }

    /// Opens a window of B over memory that starts as zeros, or that holds `bytes`.
    fn window(&mut self, access: Access, bytes: Vec<u8>) -> RemoteSegment {
        let memory = match access {
            Access::RemoteRead => WindowMemory::Read(bytes.into()),
            Access::RemoteWrite => WindowMemory::Write(Buffer::adopt(bytes)),
        };
        self.open(memory)
    }

    /// Opens a window of B.
    fn open(&mut self, memory: WindowMemory) -> RemoteSegment {
        let window = self.b.reserve_window(memory).unwrap();
        self.b.post(WrId(900), WorkRequest::BindWindow { key: window.key }).unwrap();
        window
    }

    fn end_of_a(&mut self) -> Disconnected {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match self.a.poll(&mut cx, &mut Vec::new()) {
            std::task::Poll::Ready(Err(end)) => end,
            other => panic!("{other:?}"),
        }
    }
}

fn send(bytes: &'static [u8]) -> WorkRequest {
    WorkRequest::Send(SendRequest { gather: vec![Bytes::from_static(bytes)], ..SendRequest::default() })
}

fn write(bytes: usize, target: RemoteSegment) -> WorkRequest {
    WorkRequest::Write { gather: vec![Bytes::from(vec![0xaa; bytes])], targets: vec![target] }
}

fn status_of(completions: &[Completion], id: u64) -> Status {
    completions.iter().find(|completion| completion.id == WrId(id)).unwrap().status
}

fn config(completion_mode: CompletionMode) -> FabricConfig {
    FabricConfig { completion_mode, ..FabricConfig::default() }
}

/// Returns the memory of a window, given back at the end of the connection.
fn flushed(completions: &[Completion], window: RemoteSegment) -> &Buffer {
    completions
        .iter()
        .find_map(|completion| match &completion.work {
            Work::WindowFlushed { key, memory: WindowMemory::Write(memory) } if *key == window.key => {
                Some(memory)
            }
            _ => None,
        })
        .unwrap()
}

#[test]
fn write_read_send_and_invalidate() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let mut pair = pair(config(mode));
        let target = pair.window(Access::RemoteWrite, vec![0; 20_000]);
        let source = pair.window(Access::RemoteRead, (0..20_000_u32).map(|i| i as u8).collect());
        pair.b.post_receive(WrId(1), ReceiveMemory::Pooled(pair.domain.reserve(100).unwrap())).unwrap();
        let sink = pair.domain.allocate(20_000, 1).unwrap();
        pair.a.post(WrId(10), WorkRequest::Read { sink, sources: vec![source] }).unwrap();
        pair.a.post(WrId(11), write(20_000, target)).unwrap();
        let invalidate = SendRequest {
            gather: vec![Bytes::from_static(b"done")],
            invalidate: Some(target.key),
            solicited: true,
            express: false,
        };
        pair.a.post(WrId(12), WorkRequest::Send(invalidate)).unwrap();
        let (a, b) = pair.settle();
        assert!(a.iter().all(|completion| completion.status.is_success()), "{a:?}");
        let read = a.iter().find(|completion| completion.id == WrId(10)).unwrap();
        let Work::Read { sink } = &read.work else { panic!() };
        assert!(sink.iter().enumerate().all(|(i, &byte)| byte == i as u8));
        let received = b.iter().find(|completion| completion.id == WrId(1)).unwrap();
        let Work::Receive {
            buffers,
            len,
            invalidated: Some((key, WindowMemory::Write(memory))),
            solicited: true,
        } = &received.work
        else {
            panic!("{received:?}")
        };
        assert_eq!((&buffers[0][..*len], *key), (&b"done"[..], target.key));
        assert!(memory.iter().all(|&byte| byte == 0xaa));

        pair.b.post(WrId(20), WorkRequest::LocalInvalidate { key: source.key }).unwrap();
        pair.b.post(WrId(21), WorkRequest::LocalInvalidate { key: target.key }).unwrap();
        let (_, b) = pair.settle();
        assert!(matches!(&b[0].work, Work::LocalInvalidate { memory: Some(WindowMemory::Read(_)) }));
        assert!(matches!(&b[1].work, Work::LocalInvalidate { memory: None }));
        let kinds: Vec<_> = pair.log.lock().unwrap().iter().map(|delivery| delivery.kind).collect();
        for kind in
            [MessageKind::Send, MessageKind::Write, MessageKind::ReadRequest, MessageKind::ReadResponse]
        {
            assert_eq!(kinds.iter().filter(|&&seen| seen == kind).count(), 1, "{kind:?}");
        }
        assert_eq!(pair.fabric.outstanding(), Outstanding::default());
    }
}

#[test]
fn i7_a_wrong_key_leaves_memory_alone_and_ends_the_connection() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let mut pair = pair(config(mode));
        let target = pair.window(Access::RemoteWrite, vec![0; 64]);
        let wrong = RemoteSegment { address: target.address + 1, ..target };
        pair.a.post(WrId(1), write(64, wrong)).unwrap();
        pair.a.post_receive(WrId(2), ReceiveMemory::Pooled(pair.domain.reserve(10).unwrap())).unwrap();
        let (a, b) = pair.settle();
        let expected = match mode {
            CompletionMode::Local => Status::Success,
            CompletionMode::Acknowledged => Status::RemoteAccess,
        };
        assert_eq!(status_of(&a, 1), expected);
        assert_eq!(status_of(&a, 2), Status::Flushed);
        assert!(
            matches!(pair.end_of_a(), Disconnected::Terminated(cause) if (cause.layer, cause.error_type, cause.code) == (1, 1, 1))
        );
        let memory = flushed(&b, target);
        assert!(memory.iter().all(|&byte| byte == 0));
        assert_eq!(pair.fabric.outstanding(), Outstanding::default());
    }
}

#[test]
fn a_cut_in_the_middle_of_a_write_leaves_the_first_segments() {
    let mut pair = pair(FabricConfig { segment_size: 1000, ..FabricConfig::default() });
    pair.fabric.plan(Fault { connection: 0, side: Side::B, at: Step::Segment(3), action: Action::Cut });
    let target = pair.window(Access::RemoteWrite, vec![0; 10_000]);
    pair.a.post(WrId(1), write(10_000, target)).unwrap();
    let (_, b) = pair.settle();
    let memory = flushed(&b, target);
    assert_eq!(memory.iter().filter(|&&byte| byte == 0xaa).count(), 3000);
    assert_eq!(memory[..3000], [0xaa; 3000]);
}

#[test]
fn faults_at_a_work_request() {
    let outcomes =
        [Action::Cut, Action::CutAfter, Action::Fail(Status::Fatal), Action::Delay(Duration::from_secs(1))]
            .map(|action| {
                let mut pair = pair(config(CompletionMode::Local));
                pair.fabric.plan(Fault { connection: 0, side: Side::A, at: Step::Posted(1), action });
                for id in 0..3 {
                    pair.b
                        .post_receive(WrId(id), ReceiveMemory::Pooled(pair.domain.reserve(10).unwrap()))
                        .unwrap();
                    pair.a.post(WrId(id), send(b"x")).unwrap();
                }
                let (a, b) = pair.settle();
                assert_eq!((a.len(), b.len()), (3, 3));
                let statuses = |completions: &[Completion]| [0, 1, 2].map(|id| status_of(completions, id));
                (statuses(&a), statuses(&b), pair.fabric.now() >= Duration::from_secs(1))
            });
    use Status::{Fatal, Flushed, Success};
    // "Before": the first message may be lost too, since it was still under way.
    assert_eq!(outcomes[0], ([Success, Flushed, Flushed], [Flushed, Flushed, Flushed], false));
    assert_eq!(outcomes[1], ([Success, Success, Flushed], [Success, Success, Flushed], false));
    assert_eq!(outcomes[2], ([Success, Fatal, Flushed], [Success, Flushed, Flushed], false));
    assert_eq!(outcomes[3], ([Success, Success, Success], [Success, Success, Success], true));
}

#[test]
fn a_partition_delays_and_heals_or_ends_the_connection() {
    let mut pair = pair(FabricConfig::default());
    pair.b.post_receive(WrId(1), ReceiveMemory::Pooled(pair.domain.reserve(10).unwrap())).unwrap();
    pair.b.post_receive(WrId(2), ReceiveMemory::Pooled(pair.domain.reserve(10).unwrap())).unwrap();
    pair.fabric.partition(0);
    pair.a.post(WrId(1), send(b"x")).unwrap();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut completions = Vec::new();
    let _ = pair.a.poll(&mut cx, &mut completions);
    pair.fabric.advance(Duration::from_secs(5));
    assert!(pair.b.poll(&mut cx, &mut completions).is_pending());
    pair.fabric.heal(0);
    let (_, b) = pair.settle();
    assert_eq!((b.len(), b[0].status), (1, Status::Success));

    pair.fabric.partition(0);
    let (_, b) = pair.settle();
    assert_eq!((b.len(), b[0].status), (1, Status::Flushed));
    assert!(matches!(pair.end_of_a(), Disconnected::Timeout(_)));
}

#[test]
fn i6_what_stands_still_for_longer_than_the_link_timeout_ends_the_connection() {
    let timeout = FabricConfig::default().link_timeout;
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        for (side, at) in
            [(Side::A, Step::Posted(0)), (Side::B, Step::Segment(0)), (Side::B, Step::Delivered(0))]
        {
            for (time, lives) in [(timeout, true), (timeout + Duration::from_millis(1), false)] {
                let mut pair = pair(config(mode));
                pair.fabric.plan(Fault { connection: 0, side, at, action: Action::Delay(time) });
                for id in 0..2 {
                    let memory = pair.domain.reserve(10).unwrap();
                    pair.b.post_receive(WrId(id), ReceiveMemory::Pooled(memory)).unwrap();
                    pair.a.post(WrId(id), send(b"x")).unwrap();
                }
                let (a, b) = pair.settle();
                assert_eq!((a.len(), b.len()), (2, 2), "{mode:?} {at:?}");
                assert_eq!(status_of(&b, 1).is_success(), lives, "{mode:?} {at:?} {time:?}");
                assert_eq!(pair.fabric.outstanding(), Outstanding::default());
                if !lives {
                    assert_eq!(pair.end_of_a(), Disconnected::Timeout("the link is dead"));
                    let waited = pair.fabric.now();
                    assert!((timeout..timeout + Duration::from_millis(1)).contains(&waited), "{waited:?}");
                }
            }
        }
    }
}

#[test]
fn i6_an_end_that_gave_up_tells_the_peer_when_the_link_is_back() {
    let mut pair = pair(FabricConfig::default());
    pair.fabric.partition(0);
    pair.fabric.advance(FabricConfig::default().link_timeout);
    assert_eq!(pair.end_of_a(), Disconnected::Timeout("the link is dead"));
    // The other end was not polled in time.
    pair.fabric.heal(0);
    pair.settle();
    assert!(pair.b.post(WrId(1), send(b"x")).is_err(), "a connection with one end is over");
}

#[test]
fn express_sends_overtake_bulk() {
    let mut pair = pair(FabricConfig::default());
    let target = pair.window(Access::RemoteWrite, vec![0; 4 << 20]);
    pair.b.post_receive(WrId(1), ReceiveMemory::Pooled(pair.domain.reserve(10).unwrap())).unwrap();
    pair.a.post(WrId(1), write(4 << 20, target)).unwrap();
    let express =
        SendRequest { gather: vec![Bytes::from_static(b"x")], express: true, ..SendRequest::default() };
    pair.a.post(WrId(2), WorkRequest::Send(express)).unwrap();
    let (a, _) = pair.settle();
    assert_eq!(a.iter().map(|completion| completion.id.0).collect::<Vec<_>>(), [2, 1]);
    let log = pair.log.lock().unwrap();
    assert_eq!(log[0].kind, MessageKind::Send);
    assert!(log[0].at < Duration::from_micros(100), "{:?}", log[0].at);
    assert!(log[1].at > Duration::from_millis(3), "4 MiB at 10 Gb/s: {:?}", log[1].at);
}

#[test]
fn a_dropped_queue_pair_gives_everything_back() {
    let mut pair = pair(FabricConfig::default());
    pair.window(Access::RemoteRead, vec![1; 100]);
    let buffer = pair.domain.allocate(5000, 1).unwrap();
    pair.b.post_receive(WrId(1), ReceiveMemory::Scatter(vec![buffer])).unwrap();
    let Pair { fabric, domain, a, b, .. } = pair;
    drop(b);
    drop(a);
    assert_eq!(domain.usage().in_use, 0);
    assert_eq!(fabric.outstanding(), Outstanding::default());
    assert!(fabric.connections().is_empty());
}

/// Runs one exchange with at most one fault; returns the steps of both sides and whether the answer arrived.
fn exchange(mode: CompletionMode, fault: Option<Fault>) -> ([Steps; 2], bool) {
    let mut pair = pair(FabricConfig { segment_size: 500, ..config(mode) });
    fault.into_iter().for_each(|fault| pair.fabric.plan(fault));
    let target = pair.open(WindowMemory::Write(pair.domain.allocate(2000, 1).unwrap()));
    let source = pair.open(WindowMemory::Read(pair.domain.allocate(2000, 1).unwrap().freeze()));
    pair.b.post_receive(WrId(1), ReceiveMemory::Pooled(pair.domain.reserve(100).unwrap())).unwrap();
    let sink = pair.domain.allocate(2000, 1).unwrap();
    pair.a.post(WrId(10), WorkRequest::Read { sink, sources: vec![source] }).unwrap();
    pair.a.post(WrId(11), write(2000, target)).unwrap();
    pair.a.post(WrId(12), send(b"done")).unwrap();
    let (a, b) = pair.settle();
    assert_eq!((a.len(), b.iter().filter(|completion| completion.id == WrId(1)).count()), (3, 1));
    let arrived = status_of(&b, 1).is_success() && a.iter().all(|completion| completion.status.is_success());
    let steps = [Side::A, Side::B].map(|side| pair.fabric.steps(0, side).unwrap());
    pair.a.abort();
    pair.b.abort();
    let rest = pair.settle();
    drop((a, b, rest));
    assert_eq!(pair.domain.usage().in_use, 0, "leaked with {fault:?}");
    assert_eq!(pair.fabric.outstanding(), Outstanding::default());
    (steps, arrived)
}

#[test]
fn i8_a_fault_at_each_step_of_an_exchange() {
    for mode in [CompletionMode::Local, CompletionMode::Acknowledged] {
        let ([a, b], arrived) = exchange(mode, None);
        assert!(arrived && a.each().count() >= 8 && b.each().count() >= 8, "{a:?} {b:?}");
        for action in [
            Action::Cut,
            Action::CutAfter,
            Action::Fail(Status::Fatal),
            Action::Delay(Duration::from_millis(1)),
        ] {
            for (side, steps) in [(Side::A, a), (Side::B, b)] {
                for at in steps.each() {
                    let (_, arrived) = exchange(mode, Some(Fault { connection: 0, side, at, action }));
                    assert!(
                        arrived || !matches!(action, Action::Delay(_)),
                        "a delay at {at:?} loses nothing"
                    );
                }
            }
        }
    }
}

#[test]
fn a_cut_loses_what_is_under_way() {
    let mut pair = pair(config(CompletionMode::Local));
    pair.b.post_receive(WrId(1), ReceiveMemory::Pooled(pair.domain.reserve(10).unwrap())).unwrap();
    pair.a.post(WrId(2), send(b"x")).unwrap();
    let mut completions = Vec::new();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    // The message leaves, and the completion means no more than that.
    while pair.a.poll(&mut cx, &mut completions).is_pending() {
        pair.fabric.advance(Duration::from_nanos(10));
    }
    assert!(status_of(&completions, 2).is_success());
    pair.fabric.cut(0);
    let (_, b) = pair.settle();
    assert_eq!(status_of(&b, 1), Status::Flushed);
    assert!(matches!(pair.end_of_a(), Disconnected::Link(_)));
    assert!(pair.log.lock().unwrap().is_empty());
}
