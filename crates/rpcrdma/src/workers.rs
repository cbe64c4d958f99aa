//! [`Workers`]: threads for work that may block.
//!
//! The task of a connection must never wait for a disk. A handler that may block hands that part of its work to these
//! threads and awaits the result. Threads are started when there is work for them, up to a given number. The queue in
//! front of them is bounded; a full queue makes the caller wait.
//!
//! *Buffers.* Values that the closure captures belong to it; its result hands buffers back. If the waiting future is
//! dropped, the work is still done and its result is dropped on the thread.
//!
//! *Errors.* A closure that panics ends only itself: its caller gets [`WorkLost`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

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
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Workers {
    /// Creates a pool of at most `max_threads` threads (at least 1). It lets at most `max_queued` pieces of work wait
    /// or run at a time (at least `max_threads`).
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
        let Some(Owner { shared }) = self.owner.as_deref() else {
            return catch_unwind(AssertUnwindSafe(work)).map_err(|_| WorkLost);
        };
        // The permit is given back by the job itself, so that work of a dropped future still counts.
        shared.room.acquire().await.map_err(|_| WorkLost)?.forget();
        let (send, receive) = oneshot::channel();
        let account = Arc::clone(shared);
        let job: Job = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            account.room.add_permits(1);
            if let Ok(result) = result {
                // The caller may have gone.
                let _ = send.send(result);
            }
        });
        if !Shared::submit(shared, job) {
            shared.room.add_permits(1);
            return Err(WorkLost);
        }
        receive.await.map_err(|_| WorkLost)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the job; starts a thread if all are busy. Returns `false` if there is no thread at all.
    fn submit(this: &Arc<Self>, job: Job) -> bool {
        let mut queue = this.lock();
        queue.jobs.push_back(job);
        if queue.jobs.len() > queue.idle && queue.threads < this.max_threads {
            let shared = Arc::clone(this);
            let name = format!("{}-{}", this.name, queue.threads);
            match thread::Builder::new().name(name).spawn(move || shared.serve()) {
                Ok(_) => queue.threads += 1,
                Err(error) => {
                    tracing::warn!(%error, threads = queue.threads, "no further worker thread");
                    if queue.threads == 0 {
                        queue.jobs.pop_back();
                        return false;
                    }
                }
            }
        }
        drop(queue);
        this.work.notify_one();
        true
    }

    fn serve(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.lock();
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
}
