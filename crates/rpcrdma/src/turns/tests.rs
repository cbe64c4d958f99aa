use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::*;

const fn address(last: u8) -> Option<IpAddr> {
    Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
}

/// Turns in the order in which they were taken: the last bytes of the addresses.
type Log = Arc<Mutex<Vec<u8>>>;

/// A task that always has something to do, for this many turns.
fn busy(
    turns: &Turns,
    from: u8,
    count: usize,
    log: &Log,
) -> InTurn<impl Future<Output = ()> + Unpin + use<>> {
    let log = Arc::clone(log);
    let mut left = count;
    turns.line(address(from)).in_turn(poll_fn(move |cx| {
        lock(&log).push(from);
        left -= 1;
        if left == 0 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }))
}

fn shares(log: &[u8], from: u8) -> usize {
    log.iter().filter(|&&turn| turn == from).count()
}

#[tokio::test]
async fn i6_an_address_with_many_tasks_has_no_more_turns_than_one_with_a_single_task() {
    let (turns, log) = (Turns::default(), Log::default());
    let mut tasks = JoinSet::new();
    for _ in 0..60 {
        tasks.spawn(busy(&turns, 1, 40, &log));
    }
    tasks.spawn(busy(&turns, 2, 100, &log));
    tasks.spawn(busy(&turns, 3, 100, &log));
    tasks.join_all().await;
    let log = lock(&log);
    // The first address has one turn before the others exist.
    let both = log.get(..300).unwrap();
    for from in 1..=3 {
        assert!((98..=102).contains(&shares(both, from)), "{from}: {} of 300", shares(both, from));
    }
    assert_eq!(log.len(), 60 * 40 + 200);
}

#[tokio::test]
async fn i6_an_address_that_called_little_has_the_next_turn() {
    let (turns, log) = (Turns::default(), Log::default());
    let wake = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    for from in 1..=16 {
        for _ in 0..10 {
            tasks.spawn(busy(&turns, from, 20, &log));
        }
    }
    let (seen, calls) = (Arc::clone(&log), Arc::clone(&wake));
    let rare = Box::pin(async move {
        let mut at = Vec::new();
        for _ in 0..30 {
            calls.notified().await;
            at.push(lock(&seen).len());
        }
        at
    });
    let rare = tokio::spawn(turns.line(address(99)).in_turn(rare));
    let mut woken = Vec::new();
    // Until all of them have had their first turn.
    while lock(&log).len() < 40 {
        yield_now().await;
    }
    for _ in 0..30 {
        // This task does not wait for turns. Meanwhile each of the others has more than one.
        for _ in 0..40 {
            yield_now().await;
        }
        woken.push(lock(&log).len());
        wake.notify_one();
        for _ in 0..40 {
            yield_now().await;
        }
    }
    let had = rare.await.unwrap();
    for (woken, had) in woken.into_iter().zip(had) {
        assert!(had <= woken + 2, "woken after {woken} turns, it had its own after {had}");
    }
    tasks.join_all().await;
}

/// Polls a task as the runtime does, until it is over. Returns the number of polls.
async fn polls(mut task: InTurn<impl Future<Output = ()> + Unpin>) -> usize {
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        Pin::new(&mut task).poll(cx)
    })
    .await;
    polls
}

#[tokio::test]
async fn a_task_goes_on_while_nobody_else_wants_its_turn() {
    let (turns, log) = (Turns::default(), Log::default());
    let task = |limit| {
        let mut task = busy(&turns, 1, 10, &log);
        task.limit = limit;
        task
    };
    assert_eq!(polls(task(Duration::MAX)).await, 10, "the only turn there is");
    turns.at_a_time(2);
    assert_eq!(polls(task(Duration::MAX)).await, 1);
    assert_eq!(polls(task(Duration::ZERO)).await, 10, "its time is over");
    assert_eq!(turns.now(), 30, "each of them counts as a turn");
    // A new task will want a turn.
    let new = turns.line(address(2)).in_turn(poll_fn(|_| Poll::<()>::Pending));
    assert_eq!(polls(task(Duration::MAX)).await, 10);
    // Others have all the other turns.
    assert!(lock(&turns.order).ask(&new.task));
    drop(new);
    assert_eq!(polls(task(Duration::MAX)).await, 10);
}

/// Like connections that are made, call, and end in one turn each: in between, nothing of their address is there.
#[tokio::test]
async fn i6_addresses_that_come_and_go_have_no_more_turns_than_one_that_stays() {
    let (turns, log) = (Turns::default(), Log::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(busy(&turns, 2, 100, &log));
    for from in [1, 3] {
        let (turns, log) = (turns.clone(), Arc::clone(&log));
        tasks.spawn(async move {
            for _ in 0..500 {
                let turn = poll_fn(|_| {
                    lock(&log).push(from);
                    Poll::Ready(())
                });
                turns.line(address(from)).in_turn(turn).await;
            }
        });
    }
    tasks.join_all().await;
    let log = lock(&log);
    let first = log.get(..150).unwrap();
    assert!(shares(first, 2) >= 45, "{} of 150", shares(first, 2));
}

/// Like an address that has worked alone for long and then has company: the past counts for nothing.
#[tokio::test]
async fn turns_that_nobody_else_wanted_do_not_count() {
    let (turns, log) = (Turns::default(), Log::default());
    busy(&turns, 1, 10_000, &log).await;
    lock(&log).clear();
    let mut tasks = JoinSet::new();
    tasks.spawn(busy(&turns, 1, 50, &log));
    tasks.spawn(busy(&turns, 2, 50, &log));
    tasks.join_all().await;
    assert!((24..=26).contains(&shares(&lock(&log)[..50], 1)), "{:?}", lock(&log));
}

#[tokio::test]
async fn connections_without_an_address_have_lines_of_their_own() {
    let turns = Turns::default();
    let lines = [turns.line(None), turns.line(None)];
    assert_ne!(lines[0].key, lines[1].key);
    let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
    assert_eq!(turns.line(Some(mapped)).key, turns.line(address(1)).key);
}

/// More addresses give a host no more turns.
#[test]
fn i6_the_addresses_of_one_ipv6_network_have_one_line() {
    let turns = Turns::default();
    let key = |address: &str| turns.line(address.parse().ok()).key;
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
}

#[tokio::test]
async fn a_task_that_is_dropped_gives_its_turn_back() {
    let (turns, log) = (Turns::default(), Log::default());
    let (held, holds) = oneshot::channel::<()>();
    let line = turns.line(address(1));
    // A task is dropped before its first poll, another in line, another while it waits for something else; the last one
    // panics.
    drop(line.in_turn(Box::pin(async {})));
    let idle = tokio::spawn(line.in_turn(Box::pin(async {
        let _ = holds.await;
    })));
    let panics = tokio::spawn(line.in_turn(Box::pin(async { panic!("as a handler may") })));
    let waits = tokio::spawn(busy(&turns, 1, usize::MAX, &log));
    for _ in 0..10 {
        yield_now().await;
    }
    idle.abort();
    waits.abort();
    assert!(idle.await.is_err() && waits.await.is_err() && panics.await.is_err());
    drop((held, line));
    busy(&turns, 2, 3, &log).await;
    let order = lock(&turns.order);
    assert_eq!((order.given, order.lines.len(), order.ready.len()), (0, 0, 0));
}

#[tokio::test]
async fn a_wake_during_a_turn_is_not_lost() {
    let turns = Turns::default();
    let mut polls = 0;
    let task = turns.line(address(1)).in_turn(poll_fn(move |cx| {
        polls += 1;
        cx.waker().wake_by_ref();
        cx.waker().wake_by_ref();
        if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
    }));
    tokio::spawn(task).await.unwrap();
}

/// Tasks on threads wake each other across lines, and none of them is forgotten.
#[test]
fn every_task_that_is_woken_is_polled() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let turns = Turns::default();
        turns.at_a_time(2);
        let most = Arc::new(AtomicUsize::new(0));
        let now = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for pair in 0..40_u8 {
            let (there, back) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            for (own, other, from) in [(Arc::clone(&there), Arc::clone(&back), pair % 5), (back, there, 7)] {
                let (most, now) = (Arc::clone(&most), Arc::clone(&now));
                let mut ball = Box::pin(async move {
                    for _ in 0..200 {
                        other.notify_one();
                        own.notified().await;
                    }
                    other.notify_one();
                });
                tasks.spawn(turns.line(address(from)).in_turn(poll_fn(move |cx| {
                    most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    let polled = ball.as_mut().poll(cx);
                    now.fetch_sub(1, Ordering::Relaxed);
                    polled
                })));
            }
        }
        tasks.join_all().await;
        assert_eq!(lock(&turns.order).given, 0);
        assert!(most.load(Ordering::Relaxed) <= 2, "more turns at a time than there are");
    });
}

proptest! {
    /// In any order of wakes, polls and drops, as many turns are given as there are, and a woken task has one in the
    /// end.
    #[test]
    fn turns_are_neither_lost_nor_made(
        most in 1..4_usize,
        steps in proptest::collection::vec((0..12_usize, 0..4_u8), 1..200),
    ) {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let turns = Turns::default();
        turns.at_a_time(most);
        let polled: Arc<Vec<AtomicBool>> = Arc::new((0..12).map(|_| AtomicBool::new(false)).collect());
        let flags: Vec<Arc<Flag>> = (0..12).map(|_| Arc::new(Flag(AtomicBool::new(true)))).collect();
        let mut tasks: Vec<Option<InTurn<_>>> = (0..12_u8)
            .map(|number| {
                let polled = Arc::clone(&polled);
                let future = poll_fn(move |_: &mut Context<'_>| {
                    polled[usize::from(number)].store(true, Ordering::Relaxed);
                    Poll::<()>::Pending
                });
                Some(turns.line(address(number % 3)).in_turn(future))
            })
            .collect();
        let mut wanted = [true; 12];
        let run = |tasks: &mut Vec<Option<InTurn<_>>>, number: usize| {
            if let Some(task) = &mut tasks[number]
                && flags[number].0.swap(false, Ordering::Relaxed)
            {
                let waker = Waker::from(Arc::clone(&flags[number]));
                let _ = Pin::new(task).poll(&mut Context::from_waker(&waker));
            }
        };
        for (number, step) in steps {
            match (&tasks[number], step) {
                (Some(task), 0) => {
                    polled[number].store(false, Ordering::Relaxed);
                    wanted[number] = true;
                    task.waker.wake_by_ref();
                }
                (Some(_), 1) => tasks[number] = None,
                _ => run(&mut tasks, number),
            }
            prop_assert!(lock(&turns.order).given <= most);
        }
        for _ in 0..30 {
            for number in 0..12 {
                run(&mut tasks, number);
            }
        }
        for number in 0..12 {
            prop_assert!(tasks[number].is_none() || !wanted[number] || polled[number].load(Ordering::Relaxed));
        }
        prop_assert_eq!(lock(&turns.order).given, 0);
    }
}
