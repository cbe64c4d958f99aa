//! [`Workers`]: threads for work that may block.
//!
//! The task of a connection must never wait for a disk. A handler that may block hands that part of its work to these
//! threads and awaits the result. Threads are started when there is work for them, up to a given number.
//!
//! *Order.* Work is queued by the [`Origin`] that it is done for. A free thread goes to the origin that holds the fewest
//! threads; equal ones take turns. So work for an origin without a thread waits until one piece of work ends, however much waits
//! for others. All work without an origin counts as that of one.
//!
//! *Bounds.* Work without an origin is bounded in number; beyond that its caller waits. Work for an origin is a part of a call in
//! progress, whose number has a bound of its own.
//!
//! *Buffers.* Values that the closure captures belong to it; its result hands buffers back. If the waiting future is
//! dropped, the work is still done and its result is dropped on the thread.
//!
//! *Errors.* A closure that panics ends only itself: its caller gets [`WorkLost`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use rpcrdma_oncrpc::Origin;
use thiserror::Error;
use tokio::sync::{Semaphore, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// The error of work without a result: the closure panicked, or no thread could be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the work was not finished: it panicked, or the system gave no thread for it")]
pub struct WorkLost;

/// A bounded pool of threads for blocking work. Cheap to clone; the threads end when the last clone is dropped and
/// the queue is empty.
#[derive(Clone)]
pub struct Workers {
    /// `None`: the caller's own thread does the work.
    owner: Option<Arc<Owner>>,
}

/// The owner, which tells the threads to end when the last [`Workers`] is gone.
struct Owner {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    max_threads: usize,
    queue: Mutex<Queue>,
    work: Condvar,
    room: Semaphore,
}

#[derive(Default)]
struct Queue {
    jobs: Queues<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The work of one origin.
struct Flow<J> {
    waiting: VecDeque<J>,
    /// Threads that run work of the origin.
    held: usize,
    /// Time of the last turn; lower is longer ago.
    turn: u64,
}

/// The order of work; see the module documentation.
struct Queues<J> {
    /// Ordered, not hashed: peers choose the origins.
    flows: BTreeMap<Option<Origin>, Flow<J>>,
    /// Origins with work that waits, by the threads that they hold and their last turn.
    ready: BTreeSet<(usize, u64, Option<Origin>)>,
    turns: u64,
    /// Number of pieces of work that wait.
    waiting: usize,
}

impl<J> Default for Queues<J> {
    fn default() -> Self {
        Self { flows: BTreeMap::new(), ready: BTreeSet::new(), turns: 0, waiting: 0 }
    }
}

impl<J> Queues<J> {
    fn push(&mut self, origin: Option<Origin>, job: J) {
        // A new origin comes behind those that wait.
        self.turns += 1;
        let new = Flow { waiting: VecDeque::new(), held: 0, turn: self.turns };
        let flow = self.flows.entry(origin).or_insert(new);
        flow.waiting.push_back(job);
        self.waiting += 1;
        self.ready.insert((flow.held, flow.turn, origin));
    }

    /// Returns the next piece of work. Its origin holds the thread until [`finish`](Self::finish).
    fn begin(&mut self) -> Option<(Option<Origin>, J)> {
        let (.., origin) = self.ready.pop_first()?;
        let flow = self.flows.get_mut(&origin)?;
        let job = flow.waiting.pop_front()?;
        self.waiting -= 1;
        self.turns += 1;
        (flow.held, flow.turn) = (flow.held + 1, self.turns);
        if !flow.waiting.is_empty() {
            self.ready.insert((flow.held, flow.turn, origin));
        }
        Some((origin, job))
    }

    /// Ends a piece of work of this origin.
    fn finish(&mut self, origin: Option<Origin>) {
        let Some(flow) = self.flows.get_mut(&origin) else { return };
        self.ready.remove(&(flow.held, flow.turn, origin));
        flow.held -= 1;
        if !flow.waiting.is_empty() {
            self.ready.insert((flow.held, flow.turn, origin));
        } else if flow.held == 0 {
            self.flows.remove(&origin);
        }
    }
}

/// Future of the result of work. Must not be polled after completion.
pub(crate) enum Running<T> {
    /// The work is done.
    Done(Option<T>),
    /// A thread does the work, or will do it.
    Waits(oneshot::Receiver<T>),
}

/// No result is pinned.
impl<T> Unpin for Running<T> {}

impl<T> Future for Running<T> {
    type Output = Result<T, WorkLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(result.take().ok_or(WorkLost)),
            Self::Waits(receiver) => Pin::new(receiver).poll(cx).map_err(|_| WorkLost),
        }
    }
}

impl Workers {
    /// Creates a pool of at most `max_threads` threads (at least 1). It lets at most `max_queued` pieces of work without an
    /// origin wait or run at a time (at least `max_threads`).
    #[must_use]
    pub fn new(name: &str, max_threads: usize, max_queued: usize) -> Self {
        let max_threads = max_threads.max(1);
        let shared = Shared {
            name: name.to_owned(),
            max_threads,
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Semaphore::new(max_queued.clamp(max_threads, Semaphore::MAX_PERMITS)),
        };
        Self { owner: Some(Arc::new(Owner { shared: Arc::new(shared) })) }
    }

    /// Creates a pool without threads, for work that never blocks: [`run`](Self::run) does it at once.
    pub(crate) const fn in_place() -> Self {
        Self { owner: None }
    }

    /// Runs `work` on a thread and waits for its result. Waits first if the queue is full.
    ///
    /// # Errors
    /// [`WorkLost`] if the closure panicked or no thread can be started.
    pub async fn run<T, F>(&self, work: F) -> Result<T, WorkLost>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // The permit is given back by the job itself, so that work of a dropped future still counts.
        let permit = match self.owner.as_deref() {
            Some(Owner { shared }) => {
                shared.room.acquire().await.map_err(|_| WorkLost)?.forget();
                Some(Permit(Arc::clone(shared)))
            }
            None => None,
        };
        self.submit(None, move || {
            let _permit = permit;
            work()
        })
        .await
    }

    /// Runs `work` on a thread, in turns with that for other origins. It has to be a part of a call in progress.
    pub(crate) fn run_for<T, F>(&self, origin: Option<Origin>, work: F) -> Running<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit(origin, work)
    }

    fn submit<T, F>(&self, origin: Option<Origin>, work: F) -> Running<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let Some(Owner { shared }) = self.owner.as_deref() else {
            return Running::Done(catch_unwind(AssertUnwindSafe(work)).ok());
        };
        let (send, receive) = oneshot::channel();
        let job: Job = Box::new(move || {
            if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
                // The caller may have gone.
                let _ = send.send(result);
            }
        });
        Shared::submit(shared, origin, job);
        Running::Waits(receive)
    }
}

/// A place in the queue, until the drop.
struct Permit(Arc<Shared>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.room.add_permits(1);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the job; starts a thread if all are busy. Drops the job if there is no thread at all.
    fn submit(this: &Arc<Self>, origin: Option<Origin>, job: Job) {
        let mut queue = this.lock();
        queue.jobs.push(origin, job);
        if queue.jobs.waiting > queue.idle && queue.threads < this.max_threads {
            let shared = Arc::clone(this);
            let name = format!("{}-{}", this.name, queue.threads);
            match thread::Builder::new().name(name).spawn(move || shared.serve()) {
                Ok(_) => queue.threads += 1,
                Err(error) => {
                    tracing::warn!(%error, threads = queue.threads, "no further worker thread");
                    if queue.threads == 0 {
                        let jobs = std::mem::take(&mut queue.jobs);
                        drop(queue);
                        drop(jobs);
                        return;
                    }
                }
            }
        }
        drop(queue);
        this.work.notify_one();
    }

    fn serve(&self) {
        let mut queue = self.lock();
        loop {
            if let Some((origin, job)) = queue.jobs.begin() {
                drop(queue);
                job();
                queue = self.lock();
                queue.jobs.finish(origin);
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn results_come_back_and_panics_do_not_spread() {
        let workers = Workers::new("test", 2, 4);
        assert_eq!(workers.run(|| 6 * 7).await, Ok(42));
        assert_eq!(workers.run(|| -> u32 { panic!("a fault of the closure") }).await, Err(WorkLost));
        assert_eq!(workers.run(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn without_threads_the_work_is_done_in_place() {
        let (workers, here) = (Workers::in_place(), thread::current().id());
        assert_eq!(workers.run(|| thread::current().id()).await, Ok(here));
        assert_eq!(workers.run(|| -> u32 { panic!("a fault of the closure") }).await, Err(WorkLost));
    }

    #[tokio::test]
    async fn never_more_threads_than_allowed() {
        let workers = Workers::new("test", 3, 100);
        let now = Arc::new(AtomicUsize::new(0));
        let peak = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (workers, now, peak) = (workers.clone(), Arc::clone(&now), Arc::clone(&peak));
            tasks.spawn(async move {
                workers
                    .run(move || {
                        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    })
                    .await
            });
        }
        assert!(tasks.join_all().await.into_iter().all(|result| result.is_ok()));
        assert!((1..=3).contains(&peak.load(Ordering::SeqCst)));
    }

    fn origin(number: u8) -> Option<Origin> {
        Some(Origin::of(std::net::IpAddr::from([192, 0, 2, number])))
    }

    /// Begins work until none waits. Returns the numbers of its origins.
    fn order(queues: &mut Queues<u8>) -> Vec<u8> {
        std::iter::from_fn(|| queues.begin())
            .map(|(from, job)| {
                assert_eq!(from, origin(job));
                job
            })
            .collect()
    }

    #[test]
    fn i6_much_work_of_one_origin_delays_no_other() {
        let mut queues = Queues::default();
        for from in [1, 1, 1, 1, 2, 3, 2] {
            queues.push(origin(from), from);
        }
        // Each thread that an origin holds counts, so the long work of one leaves the threads to others.
        assert_eq!(order(&mut queues), [1, 2, 3, 1, 2, 1, 1]);
        assert_eq!(queues.waiting, 0);
        for from in [1, 2, 3, 1] {
            queues.push(origin(from), from);
        }
        queues.finish(origin(1));
        assert_eq!(order(&mut queues), [3, 2, 1, 1]);
        for from in [1, 1, 1, 1, 1, 2, 2, 2, 3, 3] {
            queues.finish(origin(from));
        }
        assert!(queues.flows.is_empty() && queues.ready.is_empty(), "no origin is remembered for nothing");
        // Among origins without a thread, the longest ago is next.
        for from in [1, 1, 2] {
            queues.push(origin(from), from);
        }
        for expected in [1, 2, 1] {
            let (from, job) = queues.begin().unwrap();
            assert_eq!(job, expected);
            queues.finish(from);
        }
    }

    #[tokio::test]
    async fn i6_work_without_an_origin_is_bounded() {
        let workers = Workers::new("test", 1, 1);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let mut first = Box::pin(workers.run(move || held.recv()));
        let mut second = Box::pin(workers.run(|| 2));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
        let owner = workers.owner.as_ref().unwrap();
        assert_eq!(owner.shared.room.available_permits(), 0);
        let other = workers.run_for(origin(1), || 3);
        release.send(()).unwrap();
        assert_eq!((first.await, second.await, other.await), (Ok(Ok(())), Ok(2), Ok(3)));
        // A permit is back before the next piece of work begins.
        workers.run(|| ()).await.unwrap();
    }
}
