use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use super::*;
use crate::is_fair;

#[test]
fn memory_is_reused_and_bounded() {
    let domain = ProtectionDomain::new(1 << 20);
    let buffer = domain.allocate(1 << 19, 4096).unwrap();
    let address = buffer.as_ptr();
    assert_eq!(address.align_offset(4096), 0);
    let second = domain.allocate(1 << 19, 1).unwrap();
    assert!(matches!(domain.allocate(1, 1), Err(PoolExhausted::InUse { .. })));
    drop(buffer);
    let again = domain.allocate(1 << 19, 4096).unwrap();
    assert_eq!(again.as_ptr(), address);
    drop((second, again));
    assert_eq!(domain.usage(), PoolUsage { in_use: 0, cached: 1 << 20, limit: 1 << 20 });
    // A Buffer of another class evicts cached memory rather than exceed the limit.
    let whole = domain.allocate(1 << 20, 1).unwrap();
    assert_eq!(domain.usage(), PoolUsage { in_use: 1 << 20, cached: 0, limit: 1 << 20 });
    drop(whole);
}

#[test]
fn memory_is_had_together_up_to_all_that_there_is() {
    let domain = ProtectionDomain::new(ProtectionDomain::room_for(4096) + ProtectionDomain::room_for(8192));
    let lengths = |buffers: Vec<Option<Buffer>>| {
        buffers.iter().map(|buffer| buffer.as_ref().map(|buffer| buffer.len())).collect::<Vec<_>>()
    };
    let buffers = domain.allocate_together(&[4096, 0, 8192]).unwrap();
    let limit = domain.usage().limit;
    assert!(matches!(
        domain.allocate_together(&[4096, 8192]),
        Err(PoolExhausted::InUse { requested, .. }) if requested == limit
    ));
    assert_eq!(lengths(buffers), [Some(4096), None, Some(8192)]);
    assert!(matches!(
        domain.allocate_together(&[4096, 8192, 1]),
        Err(PoolExhausted::OverLimit { requested, .. }) if requested > limit
    ));
}

#[test]
fn limits_are_told_apart() {
    let domain = ProtectionDomain::new(1 << 16);
    assert!(matches!(domain.allocate((1 << 16) + 1, 1), Err(PoolExhausted::OverLimit { .. })));
    assert!(matches!(domain.allocate(usize::MAX, 1), Err(PoolExhausted::OverLimit { .. })));
    assert!(matches!(domain.allocate(1, 3), Err(PoolExhausted::Alignment(3))));
    assert!(matches!(domain.allocate(1, 8192), Err(PoolExhausted::Alignment(8192))));
    assert!(domain.allocate(1 << 16, 1).is_ok());
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (Arc::clone(&count), Waker::from(count))
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waiting_task_is_woken_when_memory_returns() {
    let (count, waker) = Count::new();
    let mut cx = Context::from_waker(&waker);
    let domain = ProtectionDomain::new(1 << 16);
    let buffer = domain.allocate(1 << 16, 1).unwrap();
    let mut wait = domain.wait();
    assert!(wait.poll(&mut cx, 4096).is_pending());
    assert!(wait.poll(&mut cx, 4096).is_pending());
    drop(buffer);
    assert_eq!(count.get(), 1);
    assert!(wait.poll(&mut cx, 4096).is_ready());
}

/// Starts tasks that wait for these sizes, in this order.
fn line(domain: &ProtectionDomain, rooms: &[usize]) -> Vec<(RoomWait, Arc<Count>, Waker)> {
    let waits = rooms.iter().map(|&room| {
        let (count, waker) = Count::new();
        let mut wait = domain.wait();
        assert!(wait.poll(&mut Context::from_waker(&waker), room).is_pending());
        (wait, count, waker)
    });
    waits.collect()
}

fn woken(line: &[(RoomWait, Arc<Count>, Waker)]) -> Vec<usize> {
    line.iter().map(|(_, count, _)| count.get()).collect()
}

#[test]
fn i6_of_a_share_that_may_have_no_more_one_task_comes_in_vain_and_not_all() {
    let domain = ProtectionDomain::new(1 << 20);
    let (full, other) = (domain.fair_share(1 << 18, 0), domain.share(usize::MAX));
    let mut others: Vec<_> = (0..512).map(|_| other.reserve(1024).unwrap()).collect();
    let held: Vec<_> = std::iter::from_fn(|| full.reserve(4096).ok()).collect();
    assert!(matches!(full.reserve(4096), Err(PoolExhausted::Unfair { .. })));
    let mut waits = line(&full, &[4096; 1000]);
    // Too little for another task of theirs.
    others.pop();
    let mut vain = 0;
    while let Some((wait, count, waker)) = waits.iter_mut().find(|(_, count, _)| count.get() > 0) {
        count.0.store(0, Ordering::SeqCst);
        vain += 1;
        assert!(wait.poll(&mut Context::from_waker(waker), 4096).is_pending());
    }
    assert_eq!(vain, 1, "tasks woken in vain");
    // Enough for all of them, one after the other as each takes its memory.
    drop((others, held));
    let mut served = 0;
    let mut taken = Vec::new();
    while let Some((wait, count, waker)) = waits.iter_mut().find(|(_, count, _)| count.get() > 0) {
        count.0.store(0, Ordering::SeqCst);
        if wait.poll(&mut Context::from_waker(waker), 4096).is_ready() {
            taken.push(full.reserve(4096).unwrap());
            served += 1;
        }
        wait.leave();
    }
    assert_eq!(served, 64, "as many as the limit of the share allows");
}

#[test]
fn i6_memory_that_returns_wakes_those_it_is_enough_for_in_their_order() {
    let domain = ProtectionDomain::new(1 << 16);
    let mut held: Vec<_> = (0..16).map(|_| domain.reserve(4096).unwrap()).collect();
    // A thousand tasks wait for memory that is enough for one.
    let mut waits = line(&domain, &[4096; 1000]);
    held.pop();
    assert_eq!(woken(&waits).iter().sum::<usize>(), 1);
    assert_eq!(woken(&waits)[0], 1);
    held.pop();
    held.pop();
    assert_eq!(woken(&waits)[..4], [1, 1, 1, 0]);
    // Each keeps its offer until it comes; no other task was woken for that memory.
    for (wait, _, waker) in &mut waits[..3] {
        assert!(wait.poll(&mut Context::from_waker(waker), 4096).is_ready());
        held.push(domain.reserve(4096).unwrap());
        wait.leave();
    }
    assert_eq!(woken(&waits).iter().sum::<usize>(), 3);
    held.pop();
    assert_eq!(woken(&waits)[3], 1);
}

#[test]
fn i6_no_wake_up_is_lost_with_the_one_that_was_woken() {
    let domain = ProtectionDomain::new(1 << 16);
    let held: Vec<_> = (0..2).map(|_| domain.reserve(1 << 15).unwrap()).collect();
    let mut waits = line(&domain, &[1 << 15, 1 << 15, 1 << 15, 1 << 15, 1 << 12]);
    drop(held);
    assert_eq!(woken(&waits), [1, 1, 0, 0, 0]);
    // The woken task goes away before it comes.
    waits.remove(0);
    assert_eq!(woken(&waits), [1, 1, 0, 0]);
    // The task comes, and goes away without having taken anything.
    let (wait, _, waker) = &mut waits[0];
    assert!(wait.poll(&mut Context::from_waker(waker), 1 << 15).is_ready());
    wait.leave();
    assert_eq!(woken(&waits), [1, 1, 1, 0]);
    // The task comes in vain, since another was faster: it keeps its place.
    let fast = domain.reserve((1 << 15) + 1).unwrap();
    for (wait, _, waker) in &mut waits[1..3] {
        assert!(wait.poll(&mut Context::from_waker(waker), 1 << 15).is_pending());
    }
    drop(fast);
    assert_eq!(woken(&waits), [1, 2, 2, 0]);
    // Less memory is enough for the last task, which does not wait behind them.
    drop(waits.drain(..2));
    assert_eq!(woken(&waits), [2, 1]);
}

#[test]
fn i6_a_share_and_the_whole_have_one_line_each_and_nobody_sleeps_at_the_wrong_one() {
    let domain = ProtectionDomain::new(1 << 14);
    let share = domain.share(1 << 13);
    let own = share.reserve(1 << 13).unwrap();
    let other = domain.reserve(1 << 13).unwrap();
    let mut at_share = line(&share, &[1 << 13, 1 << 12]);
    let at_whole = line(&domain, &[1 << 13]);
    // The share has memory again, and the whole has as much: the first task at the share comes first.
    drop(own);
    assert_eq!((woken(&at_share), woken(&at_whole)), (vec![1, 0], vec![1]));
    let taken = domain.reserve(1 << 13).unwrap();
    let (wait, _, waker) = &mut at_share[0];
    assert!(wait.poll(&mut Context::from_waker(waker), 1 << 13).is_pending());
    // That task waits at the whole now, so the next one at the share has its turn.
    assert_eq!(woken(&at_share), [1, 1]);
    let (wait, _, waker) = &mut at_share[1];
    assert!(wait.poll(&mut Context::from_waker(waker), 1 << 12).is_pending());
    drop(at_whole);
    drop(other);
    assert_eq!(woken(&at_share), [2, 1]);
    drop(taken);
    assert_eq!(woken(&at_share), [2, 2]);
}

#[test]
fn i3_reserved_room_is_there_when_the_domain_is_exhausted() {
    let domain = ProtectionDomain::new(1 << 16);
    let reserved = domain.reserve(4096).unwrap();
    let mut others = Vec::new();
    while let Ok(buffer) = domain.allocate(4096, 1) {
        others.push(buffer);
    }
    assert_eq!(others.len(), 15);
    let buffer = reserved.into_buffer();
    assert_eq!(buffer.len(), 4096);
    assert_eq!(domain.usage().in_use, 1 << 16);
    drop((buffer, others));
    assert_eq!(domain.usage().in_use, 0);
    drop(domain.reserve(4096).unwrap());
    assert_eq!(domain.usage().in_use, 0);
}

#[test]
fn a_reserved_buffer_begins_where_it_was_asked_to() {
    let domain = ProtectionDomain::new(1 << 20);
    // Memory is reused too, and memory of other alignments is not mixed up with it.
    for _ in 0..3 {
        for align in [1, 64, 1024, MAX_ALIGN] {
            let buffer = domain.reserve(9216).unwrap().aligned(align).into_buffer();
            assert_eq!(buffer.as_ptr().align_offset(align), 0);
        }
    }
    for none in [0, 48, 2 * MAX_ALIGN] {
        assert_eq!(domain.reserve(100).unwrap().aligned(none).into_buffer().len(), 100);
    }
}

#[test]
fn a_page_aligned_small_buffer_costs_its_class() {
    let domain = ProtectionDomain::new(1 << 20);
    let buffers: Vec<_> = (0..32).map(|_| domain.allocate(8192, 4096).unwrap()).collect();
    assert_eq!(domain.usage().in_use, 32 * 8192);
    assert!(buffers.iter().all(|buffer| buffer.as_ptr().align_offset(4096) == 0));
}

#[test]
fn absurd_sizes_are_refused() {
    let domain = ProtectionDomain::new(usize::MAX);
    assert!(matches!(domain.allocate(1 << 63, 1), Err(PoolExhausted::OverLimit { .. })));
    assert!(matches!(domain.reserve(usize::MAX), Err(PoolExhausted::OverLimit { .. })));
    assert_eq!(domain.usage().in_use, 0);
}

// requirement: rfc5042-3-2, rfc5042-3-3, rfc5042-6.4.1-1, rfc5042-6.4.3.1-1
// requirement: rfc5040-8.1.2-2, rfc5041-8.3.2-3, rfc5041-8.3-5, rfc5041-8.3.2-1, rfc5040-8.1.2-8, rfc5041-8.3.2-7
#[test]
fn i6_a_share_is_bounded_and_leaves_the_rest_to_others() {
    let domain = ProtectionDomain::new(1 << 16);
    let (greedy, modest) = (domain.share(1 << 14), domain.share(usize::MAX));
    assert_eq!((greedy.usage().limit, modest.usage().limit), (1 << 14, 1 << 16));
    assert!(matches!(greedy.allocate((1 << 14) + 1, 1), Err(PoolExhausted::OverLimit { limit: 16_384, .. })));
    let held: Vec<_> = (0..4).map(|_| greedy.reserve(4096).unwrap()).collect();
    assert!(matches!(greedy.reserve(1), Err(PoolExhausted::InUse { in_use: 16_384, limit: 16_384, .. })));
    assert!(matches!(greedy.clone().reserve(1), Err(PoolExhausted::InUse { .. })));
    // Bytes that the share was refused are counted nowhere; the rest of the domain is there for others.
    assert_eq!((greedy.usage().in_use, domain.usage().in_use), (1 << 14, 1 << 14));
    let rest = (modest.allocate(1 << 15, 1).unwrap(), domain.allocate(1 << 14, 1).unwrap());
    assert_eq!(domain.usage().in_use, 1 << 16);
    let refused = modest.allocate(1, 1);
    assert!(matches!(refused, Err(PoolExhausted::InUse { in_use: 65_536, limit: 65_536, .. })));
    assert_eq!(modest.usage().in_use, 1 << 15, "refused by the domain, the share is not charged");
    drop((held, rest));
    assert_eq!((greedy.usage().in_use, modest.usage().in_use, domain.usage().in_use), (0, 0, 0));
}

#[test]
fn memory_of_a_share_is_reused_by_the_whole_domain() {
    let domain = ProtectionDomain::new(1 << 16);
    let (one, other) = (domain.share(1 << 15), domain.share(1 << 15).share(1 << 14));
    let buffer = one.allocate(1 << 14, 64).unwrap();
    let address = buffer.as_ptr();
    drop(buffer);
    assert_eq!((one.usage().cached, domain.usage().cached), (0, 1 << 14));
    let buffer = other.allocate(1 << 14, 64).unwrap();
    assert_eq!(buffer.as_ptr(), address);
    // Buffers may outlive the handles of their domain, and parts of a Buffer may outlive each other.
    let mut head = one.allocate(1 << 15, 1).unwrap();
    let tail = head.split_off(100);
    let weak = one.downgrade();
    drop((one, other, head));
    assert_eq!(weak.upgrade().map(|one| one.usage().in_use), Some(1 << 15));
    drop(tail);
    assert!(weak.upgrade().is_none());
    assert_eq!(domain.usage().in_use, 1 << 14);
    drop(buffer);
    assert_eq!(domain.usage(), PoolUsage { in_use: 0, cached: 1 << 14, limit: 1 << 16 });
}

#[test]
fn a_task_that_waits_at_a_share_is_woken_by_what_it_lacks() {
    let domain = ProtectionDomain::new(1 << 16);
    let share = domain.share(1 << 14);
    let (count, waker) = Count::new();
    let mut cx = Context::from_waker(&waker);
    let own = share.allocate(1 << 14, 1).unwrap();
    let others: Vec<_> = (0..3).map(|_| domain.allocate(1 << 14, 1).unwrap()).collect();
    let mut wait = share.wait();
    assert!(wait.poll(&mut cx, 1 << 14).is_pending());
    // Free memory of the domain does not wake a task whose share is used up.
    drop(others);
    assert_eq!(count.get(), 0);
    let others = domain.allocate((1 << 16) - (1 << 14), 1);
    assert!(others.is_err(), "the class is the whole domain");
    let others = (domain.allocate(1 << 15, 1).unwrap(), domain.allocate(1 << 14, 1).unwrap());
    drop(own);
    assert_eq!(count.get(), 1);
    assert!(wait.poll(&mut cx, 1 << 14).is_ready());
    // Now the domain is used up.
    let last = domain.allocate(1 << 14, 1).unwrap();
    assert!(wait.poll(&mut cx, 1 << 10).is_pending());
    drop(others.1);
    assert_eq!(count.get(), 2);
    assert!(wait.poll(&mut cx, 1 << 10).is_ready());
    drop((others.0, last));
    // Beyond the share's limit waiting does not help: `allocate` returns the error.
    assert!(wait.poll(&mut cx, (1 << 14) + 1).is_ready());
}

#[test]
fn i6_no_number_of_fair_shares_takes_everything() {
    const KIB: usize = 1 << 10;
    // With a limit of a quarter, n shares that take all they get have a 1 / (n + 3)th each.
    for (count, each) in [(1, 1024), (2, 819), (4, 585), (10, 315), (61, 64)] {
        let domain = ProtectionDomain::new(4096 * KIB);
        let shares: Vec<_> = (0..count).map(|_| domain.fair_share(1024 * KIB, 0)).collect();
        let mut held: Vec<Vec<Reserved>> = (0..count).map(|_| Vec::new()).collect();
        // In turns, so that no share is early.
        loop {
            let got: Vec<_> = shares.iter().map(|share| share.reserve(KIB).ok()).collect();
            if got.iter().all(Option::is_none) {
                break;
            }
            held.iter_mut().zip(got).for_each(|(held, got)| held.extend(got));
        }
        for held in &held {
            assert!(held.len().abs_diff(each) <= 3, "{count}: {} KiB and not {each}", held.len());
        }
        assert!(matches!(
            shares[0].reserve(KIB),
            Err(PoolExhausted::Unfair { .. } | PoolExhausted::InUse { .. })
        ));
        // Another share finds as much.
        let other = domain.fair_share(1024 * KIB, 0);
        let found = (0..each).map_while(|_| other.reserve(KIB).ok()).collect::<Vec<_>>().len();
        assert!(found * 10 >= each * 7, "{count}: {found} KiB of {each}");
    }
}

#[test]
fn a_limit_of_everything_is_fair() {
    let domain = ProtectionDomain::new(1 << 16);
    let (one, other) = (domain.fair_share(usize::MAX, 0), domain.fair_share(usize::MAX, 0));
    let held = one.reserve((1 << 15) + 1).unwrap();
    assert!(matches!(other.reserve(1), Err(PoolExhausted::InUse { in_use: 65_536, limit: 65_536, .. })));
    drop(held);
    assert!(is_fair(5, 0, 5, 5) && !is_fair(6, 0, 5, 5) && is_fair(usize::MAX, 0, usize::MAX, usize::MAX));
    assert!(is_fair(0, 0, 0, 9) && !is_fair(1, 9, 0, 9));
}

#[test]
fn a_task_that_waits_for_a_fairer_time_is_woken_by_others() {
    let (count, waker) = Count::new();
    let mut cx = Context::from_waker(&waker);
    let domain = ProtectionDomain::new(1 << 16);
    let share = domain.fair_share(1 << 15, 0);
    let mut others: Vec<_> = (0..3).map(|_| domain.allocate(1 << 14, 1).unwrap()).collect();
    // A quarter is free, and alone the share could have a half: it can have half of that quarter.
    let own = share.allocate(1 << 13, 1).unwrap();
    let refused = share.allocate(1 << 10, 1).unwrap_err();
    assert_eq!(refused, PoolExhausted::Unfair { requested: 1 << 10, held: 1 << 13, left: 1 << 13 });
    let mut wait = share.wait();
    assert!(wait.poll(&mut cx, 1 << 10).is_pending());
    assert_eq!(
        (share.usage().in_use, domain.usage().in_use),
        (1 << 13, 7 << 13),
        "what was refused is counted nowhere"
    );
    others.pop();
    assert_eq!(count.get(), 1);
    assert!(wait.poll(&mut cx, 1 << 10).is_ready());
    assert!(share.allocate(1 << 10, 1).is_ok());
    drop((own, others));
    assert_eq!(share.allocate(1 << 15, 1).map(|buffer| buffer.len()).ok(), Some(1 << 15));
}

#[test]
fn what_one_connection_needs_is_had_as_long_as_there_is_room() {
    let domain = ProtectionDomain::new(1 << 16);
    let others: Vec<_> = (0..3).map(|_| domain.allocate(1 << 14, 1).unwrap()).collect();
    let (without, with) = (domain.fair_share(1 << 14, 0), domain.fair_share(1 << 14, 1 << 13));
    assert!(matches!(without.allocate(1 << 13, 1), Err(PoolExhausted::Unfair { left: 16_384, .. })));
    let least = with.allocate(1 << 13, 1).unwrap();
    assert!(matches!(with.allocate(1, 1), Err(PoolExhausted::Unfair { held: 8192, .. })));
    let last = domain.allocate(1 << 13, 1).unwrap();
    drop(least);
    let all = domain.allocate(1 << 13, 1).unwrap();
    assert!(matches!(with.allocate(1, 1), Err(PoolExhausted::InUse { .. })));
    drop((others, last, all));
}

#[test]
fn i3_room_that_a_share_keeps_is_there_again_when_the_domain_is_exhausted() {
    let domain = ProtectionDomain::new(1 << 16);
    let share = domain.share(1 << 16);
    share.keep(2 << 12);
    assert_eq!(domain.usage().in_use, 0, "nothing is taken in advance");
    let held: Vec<_> = (0..3).map(|_| share.allocate(4096, 1).unwrap()).collect();
    let others: Vec<_> = std::iter::from_fn(|| domain.allocate(4096, 1).ok()).collect();
    assert_eq!((held.len(), others.len()), (3, 13));
    drop(held);
    // Memory of two Buffers stays with the share; that of the third is for any user.
    assert_eq!((share.usage().in_use, domain.usage().in_use), (0, 15 << 12));
    let third = domain.allocate(4096, 1).unwrap();
    assert!(domain.allocate(1, 1).is_err());
    let (count, waker) = Count::new();
    let mut cx = Context::from_waker(&waker);
    let mut wait = domain.wait();
    assert!(share.wait().poll(&mut cx, 4096).is_ready());
    assert!(wait.poll(&mut cx, 4096).is_pending());
    let again = [share.reserve(4096).unwrap().into_buffer(), share.allocate(4096, 1).unwrap()];
    assert!(matches!(share.allocate(1, 1), Err(PoolExhausted::InUse { .. })));
    let (kept, waker_of_kept) = Count::new();
    let mut cx_of_kept = Context::from_waker(&waker_of_kept);
    assert!(share.poll_kept(&mut cx_of_kept, 4096).is_pending());
    assert!(share.poll_kept(&mut cx_of_kept, 4096).is_pending());
    // The share keeps no more than that, whatever the size of its Buffers.
    share.keep(1 << 12);
    drop(again);
    assert_eq!((count.get(), kept.get()), (1, 1));
    assert!(share.poll_kept(&mut cx_of_kept, 4096).is_ready());
    assert_eq!(domain.usage().in_use, 15 << 12);
    let small = share.allocate(1, 1).unwrap();
    assert_eq!((share.usage().in_use, domain.usage().in_use), (1 << 10, 15 << 12));
    let larger = share.allocate(8192, 1).unwrap_err();
    assert!(matches!(larger, PoolExhausted::InUse { .. }), "{larger}");
    drop(small);
    share.keep(0);
    assert_eq!(domain.usage().in_use, 14 << 12);
    drop((others, third));
    assert_eq!(domain.usage().in_use, 0);
}

#[test]
fn kept_room_goes_back_with_the_share() {
    let domain = ProtectionDomain::new(1 << 16);
    for ends_before in [false, true] {
        let share = domain.fair_share(1 << 15, 0);
        share.keep(usize::MAX);
        let (first, second) = (share.allocate(1 << 14, 1).unwrap(), share.allocate(1 << 13, 1).unwrap());
        drop(first);
        assert_eq!(domain.usage().in_use, 3 << 13);
        // Kept memory counts as held by the share.
        let more = share.share(1 << 14).allocate(1 << 14, 1);
        assert_eq!((more.is_ok(), domain.usage().in_use), (true, 3 << 13));
        drop(more);
        if ends_before {
            drop(share);
            assert_eq!(domain.usage().in_use, 3 << 13);
            drop(second);
        } else {
            drop(second);
            assert_eq!(domain.usage().in_use, 3 << 13);
            drop(share);
        }
        assert_eq!(domain.usage().in_use, 0);
    }
    // A domain that is no share keeps nothing.
    domain.keep(1 << 16);
    drop(domain.allocate(1 << 16, 1).unwrap());
    assert_eq!(domain.usage().in_use, 0);
}
