//! The threads on which file systems that may block are called.
//!
//! Named and bounded; started when there is work and none is idle. A job is one procedure from its first system call
//! to its last. Jobs wait in one queue, which is as long as there are calls in progress: the credits of the connections
//! bound it. A job that panics fails its own call. When the last handle is dropped, the threads finish the queue and
//! end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads; see the module.
#[derive(Debug)]
pub(super) struct IoThreads {
    shared: Arc<Shared>,
}

struct Shared {
    limit: usize,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                drop(state);
                job();
                state = self.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl IoThreads {
    /// At most `limit` threads, at least one.
    pub(super) fn new(limit: usize) -> Self {
        let shared = Shared { limit: limit.max(1), state: Mutex::default(), work: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Runs a job; `None` if it panicked or no thread could be started.
    pub(super) fn run<T, J>(&self, job: J) -> impl Future<Output = Option<T>> + Send + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce() -> T + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.push(Box::new(move || {
            if let Ok(result) = catch_unwind(AssertUnwindSafe(job)) {
                // The caller may have gone; the job is done all the same.
                let _ = sender.send(result);
            }
        }));
        async move { receiver.await.ok() }
    }

    fn push(&self, job: Job) {
        let mut state = self.shared.lock();
        state.queue.push_back(job);
        if state.idle < state.queue.len() && state.threads < self.shared.limit {
            let shared = Arc::clone(&self.shared);
            let number = state.threads;
            match thread::Builder::new().name(format!("nfs-io-{number}")).spawn(move || shared.serve()) {
                Ok(_) => state.threads += 1,
                Err(error) => {
                    tracing::error!(%error, "no thread for file I/O could be started");
                    if state.threads == 0 {
                        // Dropping the jobs fails their calls.
                        state.queue.clear();
                    }
                }
            }
        }
        drop(state);
        self.shared.work.notify_one();
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn jobs_run_side_by_side_within_the_limit() {
        let pool = IoThreads::new(3);
        let barrier = Arc::new(Barrier::new(3));
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let jobs: Vec<_> = (0..12)
            .map(|number| {
                let (barrier, running, most) =
                    (Arc::clone(&barrier), Arc::clone(&running), Arc::clone(&most));
                pool.run(move || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    barrier.wait();
                    running.fetch_sub(1, Ordering::SeqCst);
                    number
                })
            })
            .collect();
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await, Some(number));
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_job_only() {
        let pool = IoThreads::new(1);
        let failed = pool.run(|| assert_eq!(1, 2, "on purpose"));
        let good = pool.run(|| 5);
        assert_eq!(failed.await, None);
        assert_eq!(good.await, Some(5));
    }

    #[tokio::test]
    async fn the_queue_is_finished_after_the_pool_is_dropped() {
        let pool = IoThreads::new(1);
        let jobs: Vec<_> = (0..5).map(|number| pool.run(move || number)).collect();
        drop(pool);
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await, Some(number));
        }
    }
}
