//! Limits are announced and kept, and refused requests are given back.

use std::collections::BTreeSet;

use bytes::Bytes;
use rpcrdma_verbs::{
    Buffer, Key, PostErrorKind, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowErrorKind,
    WindowMemory, WorkRequest,
};

use crate::harness::{bytes, connect, connect_with, parameters, pattern};
use crate::{Difference, Fixture};

/// Checks that the send queue takes as many requests as it announces, and more when some have completed.
pub async fn a_full_send_queue_refuses(fixture: &dyn Fixture) {
    let mut a = parameters();
    a.max_send_wr = 8;
    let mut duo = connect_with(fixture, a, parameters()).await;
    duo.is_alive().await;
    let limit = duo.a.queue_pair.capabilities().max_send_wr;
    assert!(limit >= 8);
    for _ in 0..limit {
        duo.b.receive(&[4]);
        duo.a.send(Bytes::from_static(b"x"));
    }
    let gather = vec![Bytes::from_static(b"one too many")];
    let request = WorkRequest::Send(SendRequest { gather: gather.clone(), ..SendRequest::default() });
    let Err((PostErrorKind::QueueFull { limit: told }, WorkRequest::Send(back))) = duo.a.try_post(request)
    else {
        panic!("the queue took more than it can");
    };
    assert_eq!((told, back.gather), (limit, gather));
    duo.drive("all", |duo| duo.a.outstanding() == 0 && duo.b.outstanding() == 0).await;
    duo.is_alive().await;
}

/// Checks that the receive queue takes as many Receives as it announces, and no more.
pub async fn a_full_receive_queue_refuses(fixture: &dyn Fixture) {
    let mut b = parameters();
    b.max_recv_wr = 8;
    let mut duo = connect_with(fixture, parameters(), b).await;
    let limit = duo.b.queue_pair.capabilities().max_recv_wr;
    assert!(limit >= 8);
    for _ in 0..limit {
        duo.b.receive(&[4]);
    }
    let memory = ReceiveMemory::Scatter(vec![Buffer::adopt(vec![9; 5])]);
    let Err((PostErrorKind::QueueFull { limit: told }, ReceiveMemory::Scatter(back))) =
        duo.b.try_post_receive(memory)
    else {
        panic!("the queue took more than it can");
    };
    assert_eq!((told, &back[0][..]), (limit, &[9; 5][..]));
    for _ in 0..limit {
        duo.a.send(Bytes::from_static(b"x"));
    }
    duo.drive("all", |duo| duo.b.outstanding() == 0).await;
    duo.is_alive().await;
}

/// Checks that a Read or Write takes an entry for each of its segments, and an invalidation none.
pub async fn room_is_counted_by_segments(fixture: &dyn Fixture) {
    let mut a = parameters();
    a.max_send_wr = 16;
    let mut duo = connect_with(fixture, a, parameters()).await;
    let target = duo.b.write_window(vec![0; 100]);
    let source = duo.b.read_window(vec![0; 100]);
    let own = duo.a.read_window(vec![0; 100]);
    duo.is_alive().await;
    duo.drive("all", |duo| duo.a.outstanding() == 0 && duo.b.outstanding() == 0).await;
    let room = duo.a.queue_pair.send_room();
    assert!(room >= 16);
    duo.a.post(WorkRequest::Write { gather: vec![Bytes::from(vec![1; 300])], targets: vec![target; 3] });
    assert_eq!(duo.a.queue_pair.send_room(), room - 3);
    duo.a.post(WorkRequest::Read { sink: Buffer::adopt(vec![0; 400]), sources: vec![source; 4] });
    assert_eq!(duo.a.queue_pair.send_room(), room - 7);
    duo.b.receive(&[10]);
    duo.a.send(Bytes::new());
    assert_eq!(duo.a.queue_pair.send_room(), room - 8);
    let targets = vec![target; room - 7];
    let gather = vec![Bytes::from(vec![1; 100 * (room - 7)])];
    let refused = duo.a.try_post(WorkRequest::Write { gather, targets });
    assert!(
        matches!(refused, Err((PostErrorKind::QueueFull { .. }, WorkRequest::Write { .. }))),
        "{refused:?}"
    );
    for _ in 0..room - 8 {
        duo.b.receive(&[10]);
        duo.a.send(Bytes::new());
    }
    assert_eq!(duo.a.queue_pair.send_room(), 0);
    let invalidate = duo.a.invalidate(own.key);
    duo.a_completes(invalidate).await;
    assert!(duo.a.take_memory(invalidate).is_some());
    duo.drive("all", |duo| duo.a.outstanding() == 0 && duo.b.outstanding() == 0).await;
    assert_eq!(duo.a.queue_pair.send_room(), room);
}

/// Checks that windows count from their reservation to their invalidation.
pub async fn windows_run_out_and_come_back(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let limit = duo.b.queue_pair.capabilities().max_windows;
    let memory = |byte| WindowMemory::Write(Buffer::adopt(vec![byte; 10]));
    let windows: Vec<_> = (0..limit).map(|_| duo.b.reserve(memory(1))).collect();
    let error = duo.b.queue_pair.reserve_window(memory(2)).expect_err("one too many");
    assert_eq!(error.kind, WindowErrorKind::Exhausted { limit });
    assert_eq!(bytes(Some(&error.memory)), [2; 10]);
    duo.memory_of_b(windows[limit / 2].key).await;
    let again = duo.b.write_window(vec![0; 10]);
    duo.a.write(pattern(10, 1), again);
    duo.is_alive().await;
    let memory = duo.memory_of_b(again.key).await;
    assert_eq!(bytes(memory.as_ref()), pattern(10, 1));
}

/// Checks that contradictory requests are refused when they are posted, and have no effect.
pub async fn contradictory_requests_are_given_back(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let window = duo.b.write_window(vec![0; 100]);
    let ones = |len| Bytes::from(vec![1; len]);
    let short = RemoteSegment { length: 10, ..window };
    let too_many = duo.a.queue_pair.capabilities().max_sge + 1;
    let requests = vec![
        (
            "a Write longer than its target",
            WorkRequest::Write { gather: vec![ones(11)], targets: vec![short] },
        ),
        ("a Write to nowhere", WorkRequest::Write { gather: vec![ones(1)], targets: vec![] }),
        (
            "a Read longer than its sink",
            WorkRequest::Read { sink: Buffer::adopt(vec![0; 9]), sources: vec![short] },
        ),
        (
            "a Read shorter than its sink",
            WorkRequest::Read { sink: Buffer::adopt(vec![0; 11]), sources: vec![short] },
        ),
        ("too many pieces", WorkRequest::Write { gather: vec![ones(1); too_many], targets: vec![window] }),
        (
            "too many pieces",
            WorkRequest::Send(SendRequest { gather: vec![ones(1); too_many], ..SendRequest::default() }),
        ),
    ];
    for (what, request) in requests {
        let before = std::mem::discriminant(&request);
        match duo.a.try_post(request) {
            Err((PostErrorKind::Invalid(_), back)) => assert_eq!(std::mem::discriminant(&back), before),
            other => panic!("{what}: {other:?}"),
        }
    }
    duo.is_alive().await;
    let memory = duo.memory_of_b(window.key).await;
    assert_eq!(bytes(memory.as_ref()), [0; 100]);
}

/// Checks that a bind without a reserved window is refused at once or fails, and that a bound window is not affected.
pub async fn binds_of_nothing_fail(fixture: &dyn Fixture) {
    for twice in [false, true] {
        let mut duo = connect(fixture).await;
        let bound = duo.b.write_window(pattern(100, 1));
        duo.is_alive().await;
        let key = if twice { bound.key } else { Key(bound.key.0 ^ 0x100) };
        match duo.b.try_post(WorkRequest::BindWindow { key }) {
            Err((PostErrorKind::Invalid(_), WorkRequest::BindWindow { key: back })) => assert_eq!(back, key),
            Err(other) => panic!("{other:?}"),
            Ok(id) => {
                duo.b_completes(id).await;
                assert_eq!(duo.b.take(id).status, Status::LocalProtection);
            }
        }
        let memory = duo.memory_of_b(bound.key).await;
        assert!(memory.is_some(), "a bind that was refused lost the memory of the bound window");
        assert_eq!(bytes(memory.as_ref()), pattern(100, 1));
    }
}

/// Checks that keys and addresses differ, follow no simple rule, and are not reused soon (RFC 5042 §6.1.1).
pub async fn keys_cannot_be_guessed(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let mut keys = Vec::new();
    let mut addresses = BTreeSet::new();
    let memory = Bytes::from(vec![0; 100]);
    for _ in 0..8 {
        let windows: Vec<_> = (0..64).map(|_| duo.b.reserve(WindowMemory::Read(memory.clone()))).collect();
        for window in windows {
            keys.push(window.key.0);
            addresses.insert(window.address);
            duo.b.invalidate(window.key);
        }
        duo.drive("all invalid", |duo| duo.b.outstanding() == 0).await;
    }
    let distinct: BTreeSet<_> = keys.iter().copied().collect();
    assert_eq!(distinct.len(), keys.len(), "a key came back at once");
    let steps: BTreeSet<_> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > keys.len() / 2, "keys follow a rule: {steps:?}");
    let predictable = addresses.len() <= keys.len() / 2;
    assert_eq!(predictable, fixture.differs(Difference::ProcessAddresses), "{} addresses", addresses.len());
}
