//! The end of a connection: nothing is lost, and nothing is leaked (I8, I10).

use bytes::Bytes;
use rpcrdma_verbs::{
    Buffer, Disconnected, PostErrorKind, ReceiveMemory, Status, WindowErrorKind, WindowMemory, Work,
    WorkRequest,
};

use crate::Fixture;
use crate::harness::{Duo, bytes, connect, pattern};

/// Posts a request of each kind on both sides, most of them large.
fn fill(duo: &mut Duo) -> Vec<rpcrdma_verbs::RemoteSegment> {
    let (a, b) = (duo.a.queue_pair.domain().clone(), duo.b.queue_pair.domain().clone());
    let target = duo.b.window(WindowMemory::Write(b.allocate(1 << 20, 4096).unwrap()));
    let source = duo.b.window(WindowMemory::Read(b.allocate(1 << 20, 1).unwrap().freeze()));
    for round in 0..10 {
        duo.a.receive_pooled(4096);
        duo.b.receive_pooled(4096);
        let buffers = vec![b.allocate(100, 1).unwrap(), b.allocate(5000, 1).unwrap()];
        duo.b.try_post_receive(ReceiveMemory::Scatter(buffers)).map_err(|(kind, _)| kind).unwrap();
        duo.a.write(a.allocate(1 << 20, 1).unwrap().freeze(), target);
        duo.a.send(pattern(4000, round));
        duo.b.send(pattern(4000, round));
        let sink = a.allocate(1 << 20, 1).unwrap();
        duo.a.post(WorkRequest::Read { sink, sources: vec![source] });
    }
    vec![target, source]
}

/// Checks that after an abort at any time every request and Receive completes on both sides, and all memory comes back.
pub async fn abort_flushes_everything(fixture: &dyn Fixture) {
    for (by_a, after) in [(true, 0), (true, 1), (false, 1), (true, 9), (false, 20), (true, 37)] {
        let mut duo = connect(fixture).await;
        let windows = fill(&mut duo);
        // Some requests have completed, whichever they are.
        duo.drive("some completions", |duo| duo.a.completions.len() + duo.b.completions.len() >= after).await;
        let aborting = if by_a { &mut duo.a } else { &mut duo.b };
        aborting.queue_pair.abort();
        duo.both_end().await;
        let ended = if by_a { &duo.a.ended } else { &duo.b.ended };
        assert_eq!(ended, &Some(Disconnected::Local));
        // `Node` has checked that each completed once.
        for node in [&mut duo.a, &mut duo.b] {
            assert_eq!(node.outstanding(), 0);
            for completion in node.completions.drain(..) {
                assert!(
                    matches!(completion.status, Status::Success | Status::Flushed),
                    "an abort is no error: {completion:?}"
                );
            }
        }
        for window in windows {
            assert!(duo.memory_of_b(window.key).await.is_some());
        }
        assert!(duo.b.flushed.is_empty());
        for node in [&duo.a, &duo.b] {
            assert_eq!(node.queue_pair.domain().usage().in_use, 0, "memory leaked");
        }
    }
}

/// Checks that work posted before `disconnect` still arrives, and that both ends then report an orderly end.
pub async fn graceful_disconnect_delivers_what_was_posted(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let target = duo.b.write_window(vec![0; 2 << 20]);
    let receives: Vec<_> = (0..20).map(|_| duo.b.receive(&[5000])).collect();
    let unused = duo.b.receive(&[10]);
    duo.is_alive_later().await;
    let write = duo.a.write(pattern(2 << 20, 3), target);
    let sends: Vec<_> = (0..19).map(|salt| duo.a.send(pattern(5000, salt))).collect();
    duo.a.queue_pair.disconnect();
    let refused = duo.a.try_post(WorkRequest::Write { gather: vec![], targets: vec![target] });
    assert!(matches!(refused, Err((PostErrorKind::Disconnected, _))));
    duo.both_end().await;
    assert_eq!((&duo.a.ended, &duo.b.ended), (&Some(Disconnected::Local), &Some(Disconnected::Peer)));
    duo.a.take_success(write);
    for id in sends {
        duo.a.take_success(id);
    }
    for (salt, id) in receives.into_iter().skip(1).enumerate() {
        assert!(duo.b.take_message(id) == pattern(5000, u8::try_from(salt).unwrap()));
    }
    assert_eq!(duo.b.take(unused).status, Status::Flushed);
    let memory = duo.memory_of_b(target.key).await;
    assert!(bytes(memory.as_ref()) == pattern(2 << 20, 3));
}

impl Duo {
    /// Waits for B's next Receive to be used up, so that the bind before it is in effect.
    async fn is_alive_later(&mut self) {
        let before = self.b.completions.len();
        self.a.send(Bytes::from_static(b"first"));
        self.drive("the first message", |duo| {
            duo.b.completions[before..].iter().any(|c| matches!(c.work, Work::Receive { .. }))
        })
        .await;
    }
}

/// Checks that neither side waits for the other for ever, and neither sees an error.
pub async fn both_may_disconnect_at_once(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    duo.is_alive().await;
    duo.b.receive(&[10]);
    duo.a.send(Bytes::from_static(b"bye"));
    duo.a.queue_pair.disconnect();
    duo.b.queue_pair.disconnect();
    // A second call changes nothing.
    duo.a.queue_pair.disconnect();
    duo.both_end().await;
    for node in [&duo.a, &duo.b] {
        assert!(matches!(node.ended, Some(Disconnected::Local | Disconnected::Peer)), "{:?}", node.ended);
    }
}

/// Checks that after the end everything is refused and given back.
pub async fn posting_fails_after_the_end(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let bound = duo.b.write_window(pattern(64, 1));
    duo.is_alive().await;
    duo.a.queue_pair.abort();
    duo.both_end().await;
    for node in [&mut duo.a, &mut duo.b] {
        let gather = vec![Bytes::from_static(b"late")];
        let write = WorkRequest::Write { gather, targets: vec![bound] };
        let Err((PostErrorKind::Disconnected, WorkRequest::Write { gather, .. })) = node.try_post(write)
        else {
            panic!("a Write was accepted after the end");
        };
        assert_eq!(gather[0], Bytes::from_static(b"late"));
        let memory = ReceiveMemory::Scatter(vec![Buffer::adopt(vec![8; 50])]);
        let Err((PostErrorKind::Disconnected, ReceiveMemory::Scatter(buffers))) =
            node.try_post_receive(memory)
        else {
            panic!("a Receive was accepted after the end");
        };
        assert_eq!(buffers[0][..], [8; 50]);
        let memory = WindowMemory::Write(Buffer::adopt(vec![7; 50]));
        let error = node.queue_pair.reserve_window(memory).expect_err("a window after the end");
        assert_eq!(error.kind, WindowErrorKind::Disconnected);
        assert_eq!(bytes(Some(&error.memory)), [7; 50]);
        node.queue_pair.disconnect();
        node.queue_pair.abort();
    }
    let ended = duo.b.ended.take();
    // The queue pair still reports the same end, and nothing else.
    duo.drive("the end, again", |duo| duo.b.ended.is_some()).await;
    assert_eq!(duo.b.ended, ended);
    let memory = duo.memory_of_b(bound.key).await;
    assert_eq!(bytes(memory.as_ref()), pattern(64, 1));
    assert!(duo.b.flushed.is_empty());
}

/// Checks that a queue pair that is dropped with outstanding work notifies its peer and gives its memory back.
pub async fn a_dropped_queue_pair_ends_the_connection(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    fill(&mut duo);
    duo.drive("some completions", |duo| duo.a.completions.len() + duo.b.completions.len() >= 5).await;
    let (a_domain, b_domain) = (duo.a.queue_pair.domain().clone(), duo.b.queue_pair.domain().clone());
    let Duo { a, b } = duo;
    drop(b);
    assert_eq!(b_domain.usage().in_use, 0, "the dropped queue pair leaked memory");
    // B is gone: only A is driven.
    let mut a = a;
    let end = std::future::poll_fn(|cx| {
        while a.poll(cx) {}
        if a.ended.is_some() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    });
    crate::harness::within("the end", end).await;
    assert_eq!(a.outstanding(), 0);
    a.completions.clear();
    assert_eq!(a_domain.usage().in_use, 0, "memory leaked");
}

/// Checks that windows give their memory back at the end: reserved ones, bound ones, and one whose bind is still
/// queued.
pub async fn windows_give_their_memory_back_at_the_end(fixture: &dyn Fixture) {
    for by_a in [false, true] {
        let mut duo = connect(fixture).await;
        let target = duo.a.write_window(vec![0; 1 << 20]);
        let early = duo.b.write_window(pattern(64, 3));
        duo.is_alive().await;
        let reserved = duo.b.reserve(WindowMemory::Read(pattern(100, 2).into()));
        // Behind bulk, so that the bind may not have been carried out.
        duo.b.write(pattern(1 << 20, 1), target);
        let late = duo.b.write_window(pattern(64, 1));
        let aborting = if by_a { &mut duo.a } else { &mut duo.b };
        aborting.queue_pair.abort();
        duo.both_end().await;
        for (window, content) in
            [(reserved, pattern(100, 2)), (late, pattern(64, 1)), (early, pattern(64, 3))]
        {
            let memory = duo.b.take_flushed(window.key);
            assert_eq!(bytes(memory.as_ref()), content);
        }
        assert!(duo.b.flushed.is_empty());
    }
}
