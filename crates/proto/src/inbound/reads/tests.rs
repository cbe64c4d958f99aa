use std::time::Duration;

use rpcrdma_verbs::{Progress, SendRequest};

use super::*;
use crate::settings::timers::Timeouts;
use crate::wire::Segment;

const LEN: usize = 4096;

/// A chunk of segments of [`LEN`] bytes each.
fn chunk(position: u32, segments: usize) -> ReadChunk {
    let segment = Segment { handle: 1, length: LEN.try_into().unwrap(), offset: 0 };
    ReadChunk { position, segments: vec![segment; segments], len: (segments * LEN).try_into().unwrap() }
}

fn pull(segments: usize) -> Pull {
    Pull::new(Layout { zero: Some(chunk(0, segments)), chunks: vec![] })
}

/// RDMA Reads in a domain of this many bytes, and their surroundings.
struct World {
    reads: Reads,
    now: Instant,
    domain: ProtectionDomain,
    outbox: Outbox,
    stats: Stats,
}

fn world(memory: usize) -> World {
    let mut capabilities = Capabilities::default();
    capabilities.ord = 4;
    World {
        reads: Reads::new(Arc::default(), &capabilities),
        now: Instant::now(),
        domain: ProtectionDomain::new(memory),
        outbox: Outbox::new(&capabilities),
        stats: Stats::default(),
    }
}

impl World {
    fn add(&mut self, owner: Owner, segments: usize) {
        self.reads.add(owner, pull(segments), None::<fn(u64) -> Moving>);
    }

    /// Gets memory for the next message, if there is some.
    fn take_memory(&mut self) -> bool {
        self.reads.take_memory(self.now, &self.domain, &mut self.stats).unwrap()
    }

    fn next(&mut self) -> Option<(Origin, WorkRequest)> {
        self.reads.next(self.now, &self.outbox, &mut self.stats)
    }

    /// Completes an RDMA Read.
    fn complete(&mut self, (origin, request): (Origin, WorkRequest)) -> Option<Pulled> {
        let (Origin::Read { owner, chunk, part }, WorkRequest::Read { sink, .. }) = (origin, request) else {
            panic!("no RDMA Read");
        };
        self.reads.complete(self.now, owner, (chunk, part), (Status::Success, sink), &self.outbox).unwrap()
    }
}

/// Rule I6: the time of a wait for memory begins with the wait, and ends with it.
#[test]
fn i6_a_wait_for_memory_has_one_deadline() {
    let mut world = world(LEN);
    let _held = world.domain.allocate(LEN, 1).unwrap();
    let [first, second] = [Owner::Reply(1), Owner::Reply(2)];
    world.add(first, 1);
    world.add(second, 1);
    assert!(!world.take_memory() && world.reads.reply_waits());
    let deadline = world.reads.poll_timeout();
    assert!(deadline.is_some());
    world.now += Duration::from_secs(1);
    assert!(!world.take_memory());
    assert_eq!(world.reads.poll_timeout(), deadline, "another try gives no more time");
    assert!(world.reads.withdraw(second));
    assert_eq!(world.reads.poll_timeout(), deadline, "another message has left");
    assert!(world.reads.withdraw(first) && !world.reads.withdraw(first));
    assert_eq!(world.reads.poll_timeout(), None);
}

/// Data that a reply exposes precedes new Calls, but arguments of the peer's Calls do not.
#[test]
fn i6_only_replies_that_wait_for_memory_hold_calls_back() {
    for (owner, waits) in [(Owner::Reply(1), true), (Owner::Call(1), false)] {
        let mut world = world(LEN);
        let held = world.domain.allocate(LEN, 1).unwrap();
        assert!(!world.reads.reply_waits());
        world.add(owner, 1);
        assert!(!world.take_memory());
        assert_eq!(world.reads.reply_waits(), waits, "{owner:?}");
        drop(held);
        assert!(world.take_memory() && world.next().is_some());
        assert!(!world.reads.reply_waits());
    }
}

/// RFC 8166 §4.5.3: an RDMA Read that fails is blamed on its message, if only one has Reads in flight.
#[test]
fn s4_5_3_a_message_that_waits_for_memory_is_not_read() {
    for waiting in [Owner::Reply(2), Owner::Call(2)] {
        let mut world = world(LEN);
        world.add(Owner::Reply(1), 1);
        assert!(world.take_memory());
        world.add(waiting, 1);
        assert!(!world.take_memory());
        assert_eq!(world.reads.sole(), Some(Owner::Reply(1)), "{waiting:?}");
    }
    let mut world = world(2 * LEN);
    for owner in [Owner::Reply(1), Owner::Call(2)] {
        world.add(owner, 1);
        assert!(world.take_memory());
    }
    assert_eq!(world.reads.sole(), None, "either of the two");
}

/// Rule I6: RDMA Reads in flight have a deadline, also after others have completed.
#[test]
fn i6_the_remaining_rdma_reads_have_a_deadline() {
    let mut world = world(2 * LEN);
    for owner in [Owner::Reply(1), Owner::Call(2)] {
        world.add(owner, 1);
        assert!(world.take_memory());
    }
    let [first, second] = [world.next().unwrap(), world.next().unwrap()];
    let before = world.reads.poll_timeout();
    world.now += Duration::from_secs(1);
    assert!(world.complete(first).is_some());
    assert_eq!(world.reads.poll_timeout(), before.map(|before| before + Duration::from_secs(1)));
    assert!(world.complete(second).is_some());
    assert_eq!(world.reads.poll_timeout(), None);
}

/// Rule I6: data that moves extends a deadline that is reached, not one that is to come.
#[test]
fn i6_a_deadline_of_rdma_reads_stands_until_it_is_reached() {
    let mut world = world(LEN);
    world.outbox.handle_progress(world.now, Progress::new(0, 0, 0));
    world.add(Owner::Call(1), 1);
    assert!(world.take_memory() && world.next().is_some());
    let deadline = world.reads.poll_timeout();
    world.now += Duration::from_secs(1);
    world.outbox.handle_progress(world.now, Progress::new(1024, 0, 0));
    assert_eq!(world.reads.late(world.now, &world.outbox), None);
    assert_eq!(world.reads.poll_timeout(), deadline);
    world.now = deadline.unwrap();
    assert_eq!(world.reads.late(world.now, &world.outbox), None);
    assert!(world.reads.poll_timeout() > deadline, "data has moved");
}

/// Rule I6: memory can return with each Send that leaves, so the wait for it goes on while Sends leave.
#[test]
fn i6_a_wait_for_memory_goes_on_while_sends_leave() {
    let mut world = world(LEN);
    let wait = Timeouts::default().memory;
    let _held = world.domain.allocate(LEN, 1).unwrap();
    world.add(Owner::Reply(1), 1);
    assert!(!world.take_memory());
    let request = SendRequest { gather: vec![Bytes::from_static(&[0; 4])], ..SendRequest::default() };
    let id = world.outbox.push(Origin::Send, WorkRequest::Send(request));
    assert!(world.outbox.next(world.now, wait).is_some());
    let deadline = world.reads.poll_timeout().unwrap();
    assert_eq!(world.reads.late(world.now + Duration::from_secs(1), &world.outbox), None);
    assert_eq!(world.reads.poll_timeout(), Some(deadline), "it is not reached");
    assert_eq!(world.reads.late(deadline, &world.outbox), None);
    assert_eq!(world.reads.poll_timeout(), Some(deadline + wait));
    world.outbox.complete(id, Some((deadline, wait)));
    assert_eq!(world.reads.late(deadline + wait, &world.outbox), Some("memory for a reply's chunks"));
}

/// RFC 5666 §3.8: a result is read into the caller's memory, and a Position-Zero chunk is no result.
#[test]
fn rfc5666_s3_8_results_beside_a_long_reply_are_read_in_place() {
    let layout = Layout { zero: Some(chunk(0, 1)), chunks: vec![chunk(40, 1)] };
    let mut sinks = [Sink::Buffer(Buffer::adopt(vec![0; LEN]))];
    Pull::new(layout).read_into(&mut sinks);
    assert!(matches!(sinks, [Sink::Pool(LEN)]));
}

/// Rule I6: the end of the connection names the lack. A message waits for memory if it could be read with it.
#[test]
fn i6_a_message_behind_others_does_not_wait_for_memory() {
    for (may_be_read, late) in [(true, "memory for a reply's chunks"), (false, "an RDMA Read")] {
        let mut world = world(LEN);
        if !may_be_read {
            world.reads.allow(0);
        }
        world.add(Owner::Call(1), 1);
        assert!(world.take_memory());
        let by = Moving::new(world.now, Duration::from_secs(1), Flow::Read, None, 0);
        world.reads.add(Owner::Reply(2), pull(1), Some(|_| by));
        world.now += Duration::from_secs(2);
        assert_eq!(world.reads.late(world.now, &world.outbox), Some(late));
    }
}

/// RFC 6581 §9.1: an agreement allows no RDMA Read that the queue pair cannot have in flight. No more messages hold memory.
#[test]
fn i6_an_agreement_raises_no_limit_of_the_queue_pair() {
    for (ord, messages) in [(0, 1), (1, 2), (4, 5)] {
        let mut capabilities = Capabilities::default();
        capabilities.ord = ord;
        let mut world = World {
            reads: Reads::new(Arc::default(), &capabilities),
            ..world(64 * ProtectionDomain::room_for(LEN))
        };
        world.reads.allow(100);
        assert_eq!(world.reads.are_allowed(), ord > 0);
        (0..10).for_each(|xid| world.add(Owner::Reply(xid), 1));
        assert_eq!((0..10).filter(|_| world.take_memory()).count(), messages, "{ord} RDMA Reads");
    }
}

/// Rule I6: reads of a connection that has ended have no deadline: not for RDMA Reads, memory, or the whole message.
#[test]
fn i6_reads_that_are_cleared_have_no_deadline() {
    for step in 0..3 {
        let mut world = world(LEN);
        let by = Moving::new(world.now, Duration::from_secs(1), Flow::Read, None, 0);
        match step {
            0 => world.reads.add(Owner::Reply(1), pull(1), Some(|_| by)),
            1 => {
                world.add(Owner::Reply(1), 1);
                assert!(world.take_memory() && world.next().is_some());
            }
            _ => {
                let _held = world.domain.allocate(LEN, 1).unwrap();
                world.add(Owner::Reply(1), 1);
                assert!(!world.take_memory());
            }
        }
        assert!(world.reads.poll_timeout().is_some());
        world.reads.clear();
        assert_eq!(world.reads.poll_timeout(), None, "{step}");
        assert!(world.next().is_none() && !world.take_memory() && world.reads.sole().is_none());
    }
}

/// Rule I6: a wait for memory has its whole time once nothing is read that could give some back. A message that comes
/// before the one that waits has a time of its own. What is late is reported once.
#[test]
fn i6_a_wait_for_memory_begins_anew_after_rdma_reads() {
    let second = Duration::from_secs(1);
    let memory = Timeouts::default().memory;
    let mut world = world(LEN);
    world.add(Owner::Call(1), 1);
    assert!(world.take_memory());
    let read = world.next().unwrap();
    world.add(Owner::Call(2), 1);
    assert!(!world.take_memory());
    world.now += second;
    let _pulled = world.complete(read).unwrap();
    assert_eq!(world.reads.poll_timeout(), Some(world.now + memory));
    world.now += second;
    world.add(Owner::Reply(3), 1);
    assert!(world.next().is_none());
    assert!(!world.reads.reply_waits(), "it has not asked for memory");
    assert!(!world.take_memory() && world.reads.reply_waits());
    assert_eq!(world.reads.poll_timeout(), Some(world.now + memory));
    world.now += memory;
    assert_eq!(world.reads.late(world.now, &world.outbox), Some("memory for a reply's chunks"));
    assert_eq!((world.reads.late(world.now, &world.outbox), world.reads.poll_timeout()), (None, None));
}

/// A message that is withdrawn leaves the others in their places; one that memory never suffices for leaves no trace.
#[test]
fn messages_that_leave_the_line_leave_the_others() {
    let mut world = world(2 * LEN);
    world.add(Owner::Reply(1), 1);
    world.add(Owner::Reply(2), 1);
    assert!(world.reads.withdraw(Owner::Reply(2)));
    assert!(world.take_memory());
    assert!(matches!(world.next(), Some((Origin::Read { owner: Owner::Reply(1), .. }, _))));
    world.add(Owner::Reply(3), 9);
    let refused = world.reads.take_memory(world.now, &world.domain, &mut world.stats);
    assert!(matches!(refused, Err((Owner::Reply(3), PoolExhausted::OverLimit { .. }))), "{refused:?}");
    assert_eq!(world.reads.sole(), Some(Owner::Reply(1)), "nothing else is read");
    assert!(!world.take_memory());
}

/// Rule I6: without reports of progress, data in flight has the time of the least rate, all of it and nothing else: RDMA
/// Reads that are not complete, and what leaves before and between them.
#[test]
fn i6_rdma_reads_in_flight_have_the_time_of_their_bytes() {
    let timeouts = Timeouts::default();
    let pace = timeouts.pace(timeouts.rdma_read);
    let len = u64::try_from(LEN).unwrap();
    let mut world = world(8 * ProtectionDomain::room_for(LEN));
    let send = |outbox: &mut Outbox, len| {
        let gather = vec![Bytes::from(vec![0; len])];
        outbox.push(Origin::Send, WorkRequest::Send(SendRequest { gather, ..SendRequest::default() }));
    };
    send(&mut world.outbox, 999);
    for owner in [Owner::Call(1), Owner::Call(2), Owner::Call(3)] {
        world.add(owner, 1);
        assert!(world.take_memory());
    }
    let first = world.next().unwrap();
    let deadline = world.reads.poll_timeout().unwrap();
    send(&mut world.outbox, 1999);
    world.now += Duration::from_secs(1);
    let second = world.next().unwrap();
    assert_eq!(
        world.reads.poll_timeout(),
        Some(deadline),
        "another RDMA Read gives no time before it is due"
    );
    assert_eq!(world.reads.late(deadline, &world.outbox), None);
    // A Send counts as one byte more than it has.
    let extended = deadline + pace.time_for(2 * len + 1000 + 2000);
    assert_eq!(world.reads.poll_timeout(), Some(extended));
    let third = world.next().unwrap();
    world.now += Duration::from_secs(1);
    world.complete(first);
    let deadline = world.now + pace.stall;
    assert_eq!(world.reads.poll_timeout(), Some(deadline));
    assert_eq!(world.reads.late(deadline, &world.outbox), None);
    let left = world.outbox.bytes_to_leave();
    assert_eq!(world.reads.poll_timeout(), Some(deadline + pace.time_for(2 * len + left)));
    world.complete(second);
    world.complete(third);
    assert_eq!(world.reads.poll_timeout(), None);
}

/// Rule I10: a message for which there will never be memory leaves nothing behind.
#[test]
fn i10_nothing_is_left_of_a_message_that_no_memory_can_hold() {
    let mut world = world(LEN);
    world.add(Owner::Call(1), 2);
    world.add(Owner::Call(2), 1);
    let refused = world.reads.take_memory(world.now, &world.domain, &mut world.stats);
    assert!(matches!(refused, Err((Owner::Call(1), PoolExhausted::OverLimit { .. }))));
    assert!(!world.reads.withdraw(Owner::Call(1)), "it is forgotten");
    assert_eq!(world.reads.poll_timeout(), None);
    assert!(world.take_memory(), "the next message has its turn");
}

/// Rule I6: memory that the caller gave for a result is not asked for again.
#[test]
fn i6_a_result_with_memory_of_its_own_needs_none_of_the_pool() {
    let mut world = world(ProtectionDomain::room_for(LEN));
    let mut pull = Pull::new(Layout { zero: None, chunks: vec![chunk(40, 1)] });
    pull.read_into(&mut [Sink::Buffer(Buffer::adopt(vec![0; LEN]))]);
    let _held = world.domain.allocate(LEN, 1).unwrap();
    world.reads.add(Owner::Reply(1), pull, None::<fn(u64) -> Moving>);
    assert!(world.take_memory(), "the pool is empty, but nothing is missing");
    assert!(world.next().is_some());
}

/// RFC 5666 §3.8: memory for results is used only if each result has its own.
#[test]
fn rfc5666_s3_8_memory_for_other_results_is_not_used() {
    let layout = Layout { zero: None, chunks: vec![chunk(40, 1), chunk(80, 1)] };
    let mut sinks = [Sink::Buffer(Buffer::adopt(vec![0; LEN]))];
    Pull::new(layout).read_into(&mut sinks);
    assert!(matches!(&sinks, [Sink::Buffer(memory)] if memory.len() == LEN));
}

/// Rule I6: a wait for memory ends when there is memory, and leaves no timer.
#[test]
fn i6_memory_that_has_come_is_waited_for_no_more() {
    let mut world = world(LEN);
    let held = world.domain.allocate(LEN, 1).unwrap();
    world.add(Owner::Call(1), 1);
    assert!(!world.take_memory() && world.reads.poll_timeout().is_some());
    drop(held);
    assert!(world.take_memory());
    assert_eq!(world.reads.poll_timeout(), None);
}

/// Rule I6: a message whose data moves gets more time, and a new deadline for that.
#[test]
fn i6_a_message_with_more_time_has_a_deadline_again() {
    let mut world = world(LEN);
    world.outbox.handle_progress(world.now, Progress::new(0, 0, 0));
    let by = Moving::new(world.now, Duration::from_secs(1), Flow::Read, world.outbox.told(), 100_000);
    world.reads.add(Owner::Reply(1), pull(1), Some(|_| by));
    let deadline = world.now + Duration::from_secs(1);
    assert_eq!(world.reads.poll_timeout(), Some(deadline));
    world.outbox.handle_progress(deadline, Progress::new(10_000, 0, 0));
    assert_eq!(world.reads.late(deadline, &world.outbox), None);
    let next = world.reads.poll_timeout().expect("a deadline");
    assert!(next > deadline);
    assert!(world.reads.late(next, &world.outbox).is_some(), "nothing has moved since");
}

/// Rule I6: a message for which there will never be memory gives no other one more time to wait.
#[test]
fn i6_a_wait_goes_on_behind_a_message_that_no_memory_can_hold() {
    let mut world = world(2 * LEN);
    let _held = world.domain.allocate(2 * LEN, 1).unwrap();
    world.add(Owner::Call(1), 1);
    assert!(!world.take_memory());
    let deadline = world.reads.poll_timeout();
    assert!(deadline.is_some());
    world.now += Duration::from_secs(1);
    world.add(Owner::Reply(3), 9);
    let refused = world.reads.take_memory(world.now, &world.domain, &mut world.stats);
    assert!(matches!(refused, Err((Owner::Reply(3), PoolExhausted::OverLimit { .. }))), "{refused:?}");
    assert!(!world.take_memory());
    assert_eq!(world.reads.poll_timeout(), deadline);
}
