use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::server::HandleKey;

fn source(export: &str, address: u8) -> Source {
    let export =
        HandleKey::random().export_id(export.as_bytes(), &FileId::from_array(b"root"), &BTreeSet::new());
    Source { export, address: at(address) }
}

fn at(address: u8) -> Option<Origin> {
    Some(Origin::of([192, 0, 2, address].into()))
}

/// Time for which an idle thread is kept where a test shows that something else ends it.
const FOREVER: Duration = Duration::from_secs(3600);

/// Time within which the system runs a thread that is ready, however busy it is.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until a lane is in some state. Threads signal their start, their end and idleness.
fn wait_until(lane: &Lane, mut is: impl FnMut(&State) -> bool) {
    let start = Instant::now();
    while !is(&lane.lock()) {
        assert!(start.elapsed() < LIMIT, "the lane never gets there");
        thread::yield_now();
    }
}

/// Waits until the lane has no threads.
fn wait_for_end(lane: &Lane) {
    wait_until(lane, |state| state.threads == 0);
}

/// Threads that only end with the last handle.
fn lasting_threads() -> IoThreads {
    let mut threads = IoThreads::new(THREADS_LEAST);
    threads.idle = FOREVER;
    threads
}

#[tokio::test]
async fn jobs_run_side_by_side_within_the_limits() {
    let threads = IoThreads::new(16);
    let Limits { threads: most_threads, of_address, .. } = threads.limits;
    assert_eq!((most_threads, of_address), (4, 3));
    let barrier = Arc::new(Barrier::new(of_address));
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let from = source("/", 1);
    let jobs: Vec<_> = (0..12)
        .map(|number| {
            let (barrier, running, most) = (Arc::clone(&barrier), Arc::clone(&running), Arc::clone(&most));
            threads.run(from, Work::Read, None, move |_| {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                barrier.wait();
                running.fetch_sub(1, Ordering::SeqCst);
                number
            })
        })
        .collect();
    for (number, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.await, Ok(number));
    }
    assert_eq!(most.load(Ordering::SeqCst), of_address);
}

#[test]
fn i6_no_address_has_all_threads_of_a_lane() {
    let limits = |threads| IoThreads::new(threads).limits;
    assert_eq!(limits(0), Limits { threads: 2, of_address: 1, quick: 1, slow: SLOW });
    assert_eq!(limits(64), Limits { threads: 16, of_address: 12, quick: 12, slow: SLOW });
    // Looks need processors, of which one address has half.
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let looks = IoThreads::new(64 * processors).limits(Work::Look).quick;
    assert!(looks == 1 || 2 * looks <= processors, "{looks} of {processors}");
}

#[test]
fn a_thread_is_woken_once_and_started_up_to_the_limit() {
    let limits = Limits { threads: 2, of_address: 2, quick: 1, slow: SLOW };
    let lane = Lane::new(Work::Look, limits, IDLE);
    let mut state = lane.lock();
    assert_eq!((state.threads, state.idle.len()), (0, 0));
    let now = Instant::now();
    let steps = |state: &mut State| {
        [(); 2].map(|()| match state.staff(limits.threads, now) {
            Staff::Enough => "enough",
            Staff::Wake(_) => "wake",
            Staff::Start => "start",
        })
    };
    assert_eq!(steps(&mut state), ["enough"; 2], "there is no job");
    let push = |state: &mut State, address| {
        assert!(state.queues.push(at(address), None, Box::new(|_| {}), now).is_ok());
    };
    (state.threads, state.idle) = (1, vec![thread::current()]);
    push(&mut state, 1);
    assert_eq!(steps(&mut state), ["wake", "enough"], "the idle thread is woken once");
    // The thread that came looks, too.
    for step in ["start", "enough"] {
        state.coming = false;
        assert_eq!(steps(&mut state), [step, "enough"]);
        assert_eq!(state.threads, 2, "the lane has its threads");
    }
    // A job waits for a quick one of its address: one thread looks again.
    assert!(state.queues.begin(now).is_some());
    (state.threads, state.idle, state.coming) = (0, Vec::new(), false);
    push(&mut state, 1);
    assert_eq!(steps(&mut state), ["start", "enough"]);
    (state.lookout, state.coming) = (Lookout::There, false);
    assert_eq!(steps(&mut state), ["enough"; 2], "it is there");
}

#[tokio::test]
async fn i6_a_lane_that_is_stuck_leaves_the_other_lanes_and_exports() {
    let threads = IoThreads::new(THREADS_LEAST);
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let stuck = source("/stuck", 1);
    let held: Vec<_> = (0..50)
        .map(|number| {
            let gate = Arc::clone(&gate);
            let from = Source { address: at(number), ..stuck };
            // Ends when the sender is gone.
            threads.run(from, Work::Write, None, move |_| gate.lock().unwrap().recv().is_err())
        })
        .collect();
    for (source, work) in
        [(stuck, Work::Look), (stuck, Work::Read), (stuck, Work::Change), (source("/live", 1), Work::Write)]
    {
        assert_eq!(threads.run(source, work, None, |_| 5).await, Ok(5));
    }
    drop(open);
    for job in held {
        assert_eq!(job.await, Ok(true));
    }
}

#[tokio::test]
async fn a_panic_fails_its_own_job_only_and_gives_its_file_free() {
    let threads = IoThreads::new(THREADS_LEAST);
    let (from, file) = (source("/", 1), Some(FileId::from_array(b"file")));
    for _ in 0..10 {
        let failed = threads.run(from, Work::Write, file, |_| assert_eq!(1, 2, "on purpose"));
        let good = threads.run(from, Work::Write, file, |_| 5);
        assert_eq!(failed.await, Err(Unserved::Panicked));
        assert_eq!(good.await, Ok(5));
    }
}

#[tokio::test]
async fn a_write_that_has_to_be_stable_gives_its_file_free_before_its_sync() {
    let threads = IoThreads::new(16);
    let (from, file) = (source("/", 1), Some(FileId::from_array(b"file")));
    let barrier = Arc::new(Barrier::new(2));
    let writing = Arc::new(AtomicUsize::new(0));
    let jobs = [(); 2].map(|()| {
        let (barrier, writing) = (Arc::clone(&barrier), Arc::clone(&writing));
        threads.run(from, Work::Write, file, move |turn| {
            let alone = writing.fetch_add(1, Ordering::SeqCst) == 0;
            writing.fetch_sub(1, Ordering::SeqCst);
            turn.release();
            // Both syncs run at the same time.
            barrier.wait();
            alone
        })
    });
    for job in jobs {
        assert_eq!(job.await, Ok(true));
    }
}

/// No other job comes or ends during the sync.
#[test]
fn the_end_of_a_turn_gives_the_next_write_a_thread() {
    let lane =
        Arc::new(Lane::new(Work::Write, Limits { threads: 2, of_address: 2, quick: 2, slow: SLOW }, FOREVER));
    let file = Some(FileId::from_array(b"file"));
    let (begin, begun) = mpsc::channel();
    let (written, data) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let first = move |turn: &Turn<'_>| {
        begin.send(()).unwrap();
        data.recv().unwrap();
        turn.release();
        assert!(gate.recv().is_err());
    };
    lane.push(at(1), file, Box::new(first));
    begun.recv().unwrap();
    let (tell, told) = mpsc::channel();
    lane.push(at(1), file, Box::new(move |_| tell.send(()).unwrap()));
    written.send(()).unwrap();
    told.recv_timeout(LIMIT).unwrap();
    drop(open);
}

#[tokio::test]
async fn i6_a_watch_runs_while_jobs_wait_and_ends_with_the_threads() {
    let threads = lasting_threads();
    let (open, gate) = mpsc::channel::<()>();
    let from = source("/", 1);
    let is_watched = || threads.watch.lock().running;
    let stuck = threads.run(from, Work::Look, None, move |_| gate.recv().is_err());
    assert!(!is_watched(), "no job waits");
    let behind = threads.run(from, Work::Look, None, |_| 5);
    assert!(is_watched(), "it may wait for ever");
    let too = threads.run(from, Work::Look, None, |_| 6);
    assert_eq!(Arc::strong_count(&threads.watch), 2, "one thread looks after both");
    assert_eq!(threads.watch.lock().lanes.len(), 1);
    let lane = threads.lane(from.export, Work::Look);
    let watch = Arc::downgrade(&threads.watch);
    drop(threads);
    // A watch that goes on refuses the jobs in the end.
    while watch.strong_count() > 0 {
        thread::yield_now();
    }
    drop(open);
    assert_eq!((stuck.await, behind.await, too.await), (Ok(true), Ok(5), Ok(6)));
    // A closed lane keeps no idle thread.
    wait_for_end(&lane);
}

#[tokio::test]
async fn idle_threads_end_with_the_last_handle() {
    let threads = lasting_threads();
    let from = source("/", 1);
    assert_eq!(threads.run(from, Work::Look, None, |_| 5).await, Ok(5));
    let lane = threads.lane(from.export, Work::Look);
    wait_until(&lane, |state| !state.idle.is_empty());
    drop(threads);
    wait_for_end(&lane);
}

#[tokio::test]
async fn the_queues_are_finished_after_the_last_handle_is_gone() {
    let threads = IoThreads::new(THREADS_LEAST);
    let from = source("/", 1);
    let file = Some(FileId::from_array(b"file"));
    let jobs: Vec<_> = (0..20)
        .map(|number| threads.run(from, Work::Write, file.filter(|_| number % 2 == 0), move |_| number))
        .collect();
    drop(threads);
    for (number, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.await, Ok(number));
    }
}

/// The server stops, and its successor may have got the call meanwhile.
#[tokio::test]
async fn a_job_whose_caller_has_gone_is_not_begun() {
    let threads = lasting_threads();
    let (from, file) = (source("/", 1), Some(FileId::from_array(b"file")));
    let (begun, begins) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let (done, ends) = mpsc::channel();
    let first = threads.run(from, Work::Write, file, move |_| {
        begun.send(()).unwrap();
        let _ = gate.recv();
        done.send("first").unwrap();
    });
    begins.recv().unwrap();
    let (tell, told) = mpsc::channel();
    let second = threads.run(from, Work::Write, file, move |_| tell.send("second"));
    let third = threads.run(from, Work::Write, file, |_| 3);
    drop((first, second));
    drop(open);
    assert_eq!(ends.recv(), Ok("first"), "it had begun");
    assert_eq!(third.await, Ok(3));
    assert!(told.recv().is_err(), "it was not begun");
}

#[test]
fn threads_are_started_for_work_and_end_without() {
    let limits = Limits { threads: 4, of_address: 4, quick: 4, slow: SLOW };
    let lane = Arc::new(Lane::new(Work::Look, limits, Duration::ZERO));
    for _ in 0..3 {
        let names = Arc::new(Mutex::new(BTreeSet::new()));
        let barrier = Arc::new(Barrier::new(4));
        for number in 0..20_u8 {
            let (names, barrier) = (Arc::clone(&names), Arc::clone(&barrier));
            let job = move |_: &Turn<'_>| {
                names.lock().unwrap().insert(format!("{:?}", thread::current().id()));
                barrier.wait();
            };
            lane.push(at(number), None, Box::new(job));
        }
        wait_for_end(&lane);
        // A thread that ended early is started again, so there can be more threads over time.
        assert!(names.lock().unwrap().len() >= 4);
        assert!(!lane.lock().queues.is_waiting());
        assert_eq!(lane.lock().queues.held(), 0);
    }
}

#[test]
fn jobs_that_block_do_not_keep_others_of_their_address_waiting() {
    let limits = Limits { threads: 4, of_address: 3, quick: 1, slow: SLOW };
    let lane = Arc::new(Lane::new(Work::Look, limits, IDLE));
    let barrier = Arc::new(Barrier::new(3));
    let (tell, told) = mpsc::channel();
    for _ in 0..3 {
        let (barrier, tell) = (Arc::clone(&barrier), tell.clone());
        let job = move |_: &Turn<'_>| {
            barrier.wait();
            tell.send(()).unwrap();
        };
        lane.push(at(1), None, Box::new(job));
    }
    // No job ends, and no other job comes.
    while lane.sweep(Instant::now()) {
        thread::yield_now();
    }
    for _ in 0..3 {
        told.recv().unwrap();
    }
}

/// Jobs that arrive before the first of them begins get the threads of their address, although no other job
/// comes or ends.
#[test]
fn i6_jobs_that_come_together_and_block_get_the_threads_of_their_address() {
    let limits = Limits { threads: 4, of_address: 3, quick: 1, slow: SLOW };
    for _ in 0..50 {
        let lane = Arc::new(Lane::new(Work::Look, limits, IDLE));
        let barrier = Arc::new(Barrier::new(3));
        let (tell, told) = mpsc::channel();
        for number in 0..3 {
            let (barrier, tell) = (Arc::clone(&barrier), tell.clone());
            let job = move |_: &Turn<'_>| {
                barrier.wait();
                tell.send(()).unwrap();
            };
            let waits = lane.push(at(1), None, Box::new(job));
            assert_eq!(waits, number > 0, "the watch has to look after what waits, and that alone");
        }
        for _ in 0..3 {
            told.recv_timeout(LIMIT).unwrap();
        }
    }
}

#[test]
fn i6_jobs_behind_what_does_not_go_on_are_refused() {
    let limits = Limits { threads: 2, of_address: 1, quick: 1, slow: SLOW };
    let lane = Arc::new(Lane::new(Work::Look, limits, IDLE));
    let address = at(1);
    let (open, gate) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let push = |name: &'static str, job: Box<dyn FnOnce() + Send>| {
        let tell = tell.clone();
        // Signals when the job has ended or is dropped.
        let job = move |_: &Turn<'_>| {
            job();
            tell.send(name).unwrap();
        };
        lane.push(address, None, Box::new(job));
    };
    let (begin, begun) = mpsc::channel();
    push(
        "stuck",
        Box::new(move || {
            begin.send(()).unwrap();
            assert!(gate.recv().is_err());
        }),
    );
    begun.recv().unwrap();
    push("behind", Box::new(|| {}));
    let now = Instant::now();
    assert!(lane.sweep(now), "it waits");
    assert!(!lane.sweep(now + STALLED), "it was refused");
    drop(open);
    assert_eq!(told.recv(), Ok("stuck"));
    push("after", Box::new(|| {}));
    assert_eq!(told.recv(), Ok("after"));
}
