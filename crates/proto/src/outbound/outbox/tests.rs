use rpcrdma_verbs::{Buffer, Progress, RemoteSegment};

use super::*;

/// The provider never refuses an invalidation because its queue is full, so an invalidation costs no entry.
#[test]
fn requests_cost_what_the_send_queue_counts() {
    let segment = RemoteSegment { key: Key(1), address: 0, length: 4 };
    let targets = vec![segment; 3];
    let sources = vec![segment; 2];
    let sink = Buffer::adopt(vec![0; 8]);
    for (request, entries) in [
        (WorkRequest::Send(SendRequest::default()), 1),
        (WorkRequest::Write { gather: vec![], targets }, 3),
        (WorkRequest::Read { sink, sources }, 2),
        (WorkRequest::BindWindow { key: Key(1) }, 1),
        (WorkRequest::LocalInvalidate { key: Key(1) }, 0),
    ] {
        assert_eq!(cost(&request), entries, "{request:?}");
    }
}

const PACE: Pace = Pace { stall: Duration::from_secs(10), least_rate: 100 };

/// An outbox with these requests posted, and their ids.
fn posted(start: Instant, requests: Vec<(Origin, WorkRequest)>) -> (Outbox, Vec<WrId>) {
    let mut outbox = Outbox::new(&Capabilities::default());
    let ids = requests.into_iter().map(|(origin, request)| outbox.push(origin, request)).collect();
    assert_eq!(outbox.timeout(), None, "nothing is posted yet");
    while let Some(post) = outbox.next(start, PACE.stall) {
        assert!(matches!(post, Post::Work(..)));
    }
    (outbox, ids)
}

/// A Send of 99 bytes, which count as 100.
fn send() -> (Origin, WorkRequest) {
    let gather = vec![bytes::Bytes::from_static(&[0; 99])];
    (Origin::Send, WorkRequest::Send(SendRequest { gather, ..SendRequest::default() }))
}

/// Rule I6: where only completions are known, each completion gives the rest its time anew, and the rest alone.
#[test]
fn i6_posted_data_has_a_deadline_until_all_of_it_has_left() {
    let start = Instant::now();
    let later = start + Duration::from_secs(4);
    let bind = (Origin::Expose, WorkRequest::BindWindow { key: Key(1) });
    let (mut outbox, ids) = posted(start, vec![send(), send(), bind, send()]);
    assert_eq!((outbox.bytes_to_leave(), outbox.bytes_made()), (300, 300));
    assert_eq!(outbox.timeout(), Some(start + PACE.stall));
    let left = Some((later, PACE.stall));
    assert_eq!(outbox.complete(ids[0], left), Some(Origin::Send));
    assert_eq!(outbox.timeout(), Some(later + PACE.stall));
    outbox.complete(ids[2], Some((start, PACE.stall)));
    assert_eq!(outbox.timeout(), Some(later + PACE.stall), "a bind sends nothing");
    assert!(outbox.is_sending());
    // Two Sends are left: 2 s at the least rate.
    let deadline = later + PACE.stall;
    assert!(outbox.handle_timeout(deadline, PACE));
    assert_eq!(outbox.timeout(), Some(deadline + Duration::from_secs(2)));
    outbox.complete(ids[1], left);
    outbox.complete(ids[3], left);
    assert_eq!((outbox.timeout(), outbox.is_sending(), outbox.bytes_to_leave()), (None, false, 0));
    assert!(outbox.handle_timeout(deadline + PACE.stall, PACE), "nothing is late");
}

/// Rule I6: data that is late ends the wait, and reported once.
#[test]
fn i6_data_that_does_not_leave_is_late_once() {
    let start = Instant::now();
    let (mut outbox, _) = posted(start, vec![send()]);
    let deadline = start + PACE.stall;
    assert!(outbox.handle_timeout(deadline, PACE));
    let last = deadline + Duration::from_secs(1);
    assert!(!outbox.handle_timeout(last, PACE));
    assert_eq!(outbox.timeout(), None);
    assert!(outbox.handle_timeout(last, PACE));
}

/// Where the provider reports progress, a completion alone gives no more time.
#[test]
fn i6_reported_progress_decides_about_the_deadline() {
    let start = Instant::now();
    let mut outbox = Outbox::new(&Capabilities::default());
    outbox.handle_progress(start, Progress::new(0, 0, 0));
    let (origin, request) = send();
    let id = outbox.push(origin, request);
    let (origin, request) = send();
    outbox.push(origin, request);
    while outbox.next(start, PACE.stall).is_some() {}
    outbox.complete(id, Some((start + Duration::from_secs(4), PACE.stall)));
    assert_eq!(outbox.timeout(), Some(start + PACE.stall));
    assert!(!outbox.handle_timeout(start + PACE.stall, PACE));
}

/// A queue pair that has ended leaves no deadline, and no data to leave.
#[test]
fn i6_what_was_withdrawn_does_not_leave() {
    let start = Instant::now();
    let (mut outbox, _) = posted(start, vec![send()]);
    let (origin, request) = send();
    outbox.push(origin, request);
    assert_eq!(outbox.bytes_to_leave(), 200);
    outbox.withdraw();
    assert_eq!(outbox.bytes_to_leave(), 100, "only what was posted");
    outbox.clear();
    assert_eq!((outbox.timeout(), outbox.is_sending(), outbox.bytes_to_leave()), (None, false, 0));
    assert!(outbox.is_in_order(outbox.mark()));
}

/// Rule I8: an answer is in order only when all earlier plain Sends have completed.
#[test]
fn i8_a_completion_puts_only_its_own_send_in_order() {
    let start = Instant::now();
    let mut outbox = Outbox::new(&Capabilities::default());
    let before = outbox.mark();
    for _ in 0..2 {
        outbox.push_send(SendRequest::default(), Some(5));
    }
    let mut ids = Vec::new();
    while let Some(Post::Work(id, _)) = outbox.next(start, PACE.stall) {
        ids.push(id);
    }
    assert!(outbox.is_in_order(before), "they were posted after the mark");
    let mark = outbox.mark();
    assert!(!outbox.is_in_order(mark));
    outbox.complete(ids[0], None);
    assert!(!outbox.is_in_order(mark), "the second may still be passed");
    outbox.complete(ids[1], None);
    assert!(outbox.is_in_order(mark));
}

/// Rule I6: `handle_timeout` changes nothing before the deadline, even if data has moved.
#[test]
fn i6_a_deadline_that_is_to_come_stands() {
    let start = Instant::now();
    let (mut outbox, _) = posted(start, vec![send(), send()]);
    outbox.handle_progress(start, Progress::new(0, 0, 0));
    let deadline = outbox.timeout();
    let early = start + Duration::from_secs(1);
    outbox.handle_progress(early, Progress::new(0, 100, 0));
    assert!(outbox.handle_timeout(early, PACE));
    assert_eq!(outbox.timeout(), deadline);
}

/// A provider that states no limit is used with the least that any has.
#[test]
fn a_queue_pair_takes_at_least_one_request_of_one_entry() {
    for (stated, used) in [(0, 1), (1, 1), (2, 2)] {
        let mut capabilities = Capabilities::default();
        (capabilities.max_sge, capabilities.max_send_wr) = (stated, stated);
        let outbox = Outbox::new(&capabilities);
        assert_eq!((outbox.max_sge(), outbox.max_send_wr), (used, used));
    }
}

/// The count of Receives replaces an entry for each, and no id of a work request is taken for one.
#[test]
fn receives_are_counted_apart_from_work_requests() {
    let mut outbox = Outbox::new(&Capabilities::default());
    let mut receive = || match outbox.receive(ReceiveMemory::Scatter(Vec::new())) {
        Post::Receive(id, _) => id,
        other => panic!("{other:?}"),
    };
    let (first, second) = (receive(), receive());
    assert_ne!(first, second);
    assert!(outbox.works.is_empty());
    let send = outbox.push(send().0, send().1);
    assert!(send != first && send != second);
    assert_eq!(outbox.complete(WrId(99), None), None, "no such id was given");
    assert_eq!(outbox.complete(first, None), Some(Origin::Receive));
    assert_eq!(outbox.complete(send, None), Some(Origin::Send));
    assert_eq!(outbox.complete(second, None), Some(Origin::Receive));
    assert_eq!(outbox.complete(second, None), None, "no Receive is outstanding");
    outbox.receive(ReceiveMemory::Scatter(Vec::new()));
    outbox.clear();
    assert_eq!(outbox.complete(second, None), None);
}

#[test]
fn an_outbox_at_rest_keeps_memory_for_a_few_requests_only() {
    let mut outbox = Outbox::new(&Capabilities::default());
    let ids: Vec<_> =
        (0..100).map(|_| outbox.push(Origin::Expose, WorkRequest::BindWindow { key: Key(1) })).collect();
    outbox.rest();
    assert_eq!((outbox.waiting.len(), outbox.works.len()), (100, 100), "nothing in use is released");
    outbox.waiting.clear();
    assert!(ids.into_iter().all(|id| outbox.complete(id, None).is_some()));
    outbox.rest();
    assert!(outbox.waiting.capacity() == 0 && outbox.works.capacity() == 0);
}
