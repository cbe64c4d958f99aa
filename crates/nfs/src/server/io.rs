//! The threads that call file systems which may block.
//!
//! A job is a procedure from its first system call to its last, and holds one thread. A job can wait for a
//! disk, or for ever if its file system is frozen or its server is gone. So there is one rule. A job that
//! does not end delays only calls of its own export, its own kind of work and its own address.
//!
//! *Lanes.* Each export has a [`Lane`] for each kind of [`Work`]: looking at objects, READ, changes of names
//! and attributes, and WRITE with COMMIT. A lane has threads and queues of its own, a quarter of the export's
//! threads. So a frozen export holds its own threads only, and calls that look at objects never wait behind
//! data. Reads work even on a file system that is frozen for changes (`fsfreeze`).
//!
//! *Addresses.* In a lane, each address or IPv6 network ([`Origin`]) has a queue, and holds at most three
//! quarters of the threads. The next free thread goes to the address that holds the fewest ([`queues`] has
//! the order). So a job from an address without a thread waits until one job ends, however many wait. The
//! cost of a job counts by itself: a slow job holds its thread longer. Looks that are answered from memory
//! need processors only. As long as they are quick, an address holds threads for half of the processors.
//!
//! *Writes.* The kernel runs one WRITE to a file at a time. The others for that file wait in the queue and
//! hold no thread. A stable WRITE ends its turn at the file when its data is in the file ([`Turn::release`]),
//! while its sync holds the thread. WRITEs that wait for the end of a sync share the next one. READ and
//! COMMIT of the file never wait here. A COMMIT must cover the WRITEs that were answered before it arrived,
//! and those have ended.
//!
//! *Bounds.* The threads of an export, times the number of exports, bound the threads; an idle thread ends
//! after [`IDLE`]. At most one job for each call in progress waits. The credits of the connections and
//! `max_calls` bound these calls (`rpcrdma::ServerConfig`), and their arguments are in the memory share of
//! their address. A job that cannot begin, because no job ahead of it makes progress, is refused after
//! [`queues::STALLED`]. Its call gets NFS3ERR_JUKEBOX. A job that has begun is never refused, because its
//! progress is unknown.
//!
//! *Callers.* A job that has begun goes on without its caller. A job whose caller has gone before is not begun. Callers go
//! only when the server stops.
//!
//! *Errors.* A job that panics fails its own call. If no thread can be started, the jobs of the lane are
//! refused. When the last handle is dropped, the threads finish their queues and end; stuck threads are not
//! waited for.

mod queues;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use queues::{Begun, Limits, Queues, STALLED};
use rpcrdma_oncrpc::Origin;
use tokio::sync::oneshot;

use super::handle::ExportId;
use crate::fs::FileId;

/// Time for which an idle thread is kept.
const IDLE: Duration = Duration::from_secs(10);
/// Interval of the search for jobs that have waited too long.
const WATCH: Duration = Duration::from_secs(2);
/// Time after which an idle thread looks again for jobs that wait for quick ones of their address.
const LOOKOUT: Duration = Duration::from_millis(2);
/// Duration from which on a look at an object has waited for a disk.
const SLOW: Duration = Duration::from_micros(200);
/// Duration from which on a change or a write has waited for a disk. The quickest disks sync in little more, and serve
/// several syncs together.
const SYNCED: Duration = Duration::from_micros(60);
/// Greatest size of a job, with the memory for its result, in bytes. Each call that waits for a thread holds
/// one job.
pub(super) const JOB_ROOM: usize = 1 << 10;
/// Part of [`JOB_ROOM`] for the place in the queue and the channel, in bytes.
const JOB_BESIDE: usize = 256;
/// Number of kinds of work, which share the threads of an export evenly.
const LANES: usize = 4;
/// Fewest threads of a lane: a single address never has all of them.
const LANE_LEAST: usize = 2;

/// Fewest threads of an export.
pub(super) const THREADS_LEAST: usize = LANES * LANE_LEAST;

/// Kinds of work. No kind waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Looks at objects and names, and changes nothing.
    Look,
    /// Reads data from a disk.
    Read,
    /// Changes names or attributes, and waits until they are on stable storage.
    Change,
    /// WRITE and COMMIT.
    Write,
}

impl Work {
    const fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Read => "read",
            Self::Change => "change",
            Self::Write => "write",
        }
    }
}

/// The threads of an export for one kind of work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStatus {
    /// Name of the export.
    pub export: String,
    /// Kind of work: `look`, `read`, `change` or `write`.
    pub work: &'static str,
    /// Threads now.
    pub threads: usize,
    /// Threads without a job.
    pub idle: usize,
    /// Most threads.
    pub limit: usize,
    /// Jobs that wait for a thread, or for another job at the file.
    pub waiting: usize,
}

/// Origin of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) export: ExportId,
    pub(super) address: Option<Origin>,
}

/// Reason why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// The job panicked.
    Panicked,
    /// The job did not begin: the jobs ahead of it make no progress, or there are no threads.
    Refused,
}

type Job = Box<dyn FnOnce(&Turn<'_>) + Send>;

/// Future of the result of a job. Must not be polled after completion.
pub(crate) enum Running<T> {
    /// The job is done.
    Done(Option<Result<T, Unserved>>),
    /// A thread runs the job, or will run it.
    Waits(oneshot::Receiver<Result<T, Unserved>>),
}

/// No result is pinned.
impl<T> Unpin for Running<T> {}

impl<T> Running<T> {
    /// Returns the future of a job that was done at once.
    pub(super) const fn done(result: T) -> Self {
        Self::Done(Some(Ok(result)))
    }
}

impl<T> Future for Running<T> {
    type Output = Result<T, Unserved>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => result.take().map_or(Poll::Pending, Poll::Ready),
            Self::Waits(receiver) => {
                Pin::new(receiver).poll(cx).map(|received| received.unwrap_or(Err(Unserved::Refused)))
            }
        }
    }
}

/// Threads and queues of an export for one kind of work.
struct Lane {
    work: Work,
    limits: Limits,
    idle: Duration,
    state: Mutex<State>,
}

struct State {
    queues: Queues<Job>,
    threads: usize,
    /// The idle threads, the one that was busy last at the end: the others end unless there is work for them, too.
    idle: Vec<Thread>,
    /// Whether a thread was woken or started and has not looked for work yet. It sends for the next one, if there is work
    /// for both.
    coming: bool,
    lookout: Lookout,
    closed: bool,
}

/// An idle thread that looks again soon: jobs wait for others of their address, which are quick so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lookout {
    None,
    /// A thread was woken or started for it.
    Coming,
    There,
}

/// Next step to give a job a thread.
#[derive(Debug)]
enum Staff {
    /// No step: no job can begin, or busy threads will see it.
    Enough,
    Wake(Thread),
    Start,
}

impl State {
    fn staff(&mut self, limit: usize, now: Instant) -> Staff {
        if self.coming {
            return Staff::Enough;
        }
        if !self.queues.is_ready(now) {
            if self.lookout != Lookout::None || !self.queues.is_held_back() {
                return Staff::Enough;
            }
            self.lookout = Lookout::Coming;
        }
        if let Some(thread) = self.idle.pop() {
            self.coming = true;
            Staff::Wake(thread)
        } else if self.threads < limit {
            self.coming = true;
            self.threads += 1;
            Staff::Start
        } else {
            Staff::Enough
        }
    }
}

/// Turn of a WRITE at its file, up to the end of its job.
pub(super) struct Turn<'a> {
    lane: &'a Arc<Lane>,
    file: Cell<Option<FileId>>,
}

impl Turn<'_> {
    /// Ends the turn because the data is in the file: the next WRITE may begin while this job continues.
    pub(super) fn release(&self) {
        if let Some(file) = self.file.take() {
            let mut state = self.lane.lock();
            state.queues.release(&file);
            let staff = state.staff(self.lane.limits.threads, Instant::now());
            drop(state);
            self.lane.act(staff);
        }
    }
}

/// Returns how often this thread has given its processor up to wait for something; `None` if the system does not say.
fn waits() -> Option<i64> {
    getrusage(UsageWho::RUSAGE_THREAD).ok().map(|usage| usage.voluntary_context_switches())
}

impl Lane {
    fn new(work: Work, limits: Limits, idle: Duration) -> Self {
        let state = State {
            queues: Queues::new(limits),
            threads: 0,
            idle: Vec::new(),
            coming: false,
            lookout: Lookout::None,
            closed: false,
        };
        Self { work, limits, idle, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads when they have finished the queues.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        idle.iter().for_each(Thread::unpark);
    }

    /// Accepts a job, or refuses it by dropping it. Returns whether the job may have to wait.
    fn push(self: &Arc<Self>, address: Option<Origin>, file: Option<FileId>, job: Job) -> bool {
        let mut state = self.lock();
        // Jobs that arrive before the first one begins may have to wait too.
        let busy = state.queues.held() > 0 || state.queues.is_waiting();
        let now = Instant::now();
        let pushed = state.queues.push(address, file, job, now);
        let staff = state.staff(self.limits.threads, now);
        drop(state);
        if pushed.is_err() {
            tracing::debug!(
                ?address,
                work = self.work.name(),
                "call refused for now: no call ahead of it makes progress"
            );
        }
        self.act(staff);
        busy
    }

    fn act(self: &Arc<Self>, staff: Staff) {
        match staff {
            Staff::Enough => {}
            Staff::Wake(thread) => thread.unpark(),
            Staff::Start => {
                let lane = Arc::clone(self);
                let name = format!("nfs-{}", self.work.name());
                if let Err(error) = thread::Builder::new().name(name).spawn(move || lane.serve()) {
                    tracing::error!(%error, work = self.work.name(), "cannot start a thread for file I/O");
                    let mut state = self.lock();
                    state.threads -= 1;
                    state.coming = false;
                    if state.lookout == Lookout::Coming {
                        state.lookout = Lookout::None;
                    }
                    // Calls that came meanwhile have woken nobody.
                    if let Some(thread) = state.idle.pop() {
                        state.coming = true;
                        thread.unpark();
                    }
                    // Dropping the jobs refuses their calls.
                    let jobs = if state.threads == 0 { state.queues.clear() } else { Vec::new() };
                    drop(state);
                    drop(jobs);
                }
            }
        }
    }

    /// Runs jobs until the thread is idle for too long.
    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        state.coming = false;
        let mut waited = false;
        let mut now = Instant::now();
        loop {
            if let Some(Begun { job, address, file }) = state.queues.begin(now) {
                if state.lookout == Lookout::Coming {
                    state.lookout = Lookout::None;
                }
                let staff = state.staff(self.limits.threads, now);
                drop(state);
                self.act(staff);
                let turn = Turn { lane: &self, file: Cell::new(file) };
                let waits = waits();
                job(&turn);
                let begun = std::mem::replace(&mut now, Instant::now());
                let mut took = now.saturating_duration_since(begun);
                // A job that lost its processor to others for a time has not waited for a disk.
                if took >= self.limits.slow && waits.is_some() && waits == self::waits() {
                    took = Duration::ZERO;
                }
                state = self.lock();
                if let Some(file) = turn.file.take() {
                    state.queues.release(&file);
                }
                state.queues.finish(address, took);
                waited = false;
            } else if waited || state.closed {
                state.threads -= 1;
                return;
            } else {
                let lookout = state.lookout != Lookout::There && state.queues.is_held_back();
                if state.lookout != Lookout::There {
                    state.lookout = if lookout { Lookout::There } else { Lookout::None };
                }
                let this = thread::current();
                let id = this.id();
                state.idle.push(this);
                drop(state);
                thread::park_timeout(if lookout { LOOKOUT } else { self.idle });
                state = self.lock();
                // Whoever wakes a thread takes it off the list.
                let before = state.idle.len();
                state.idle.retain(|idle| idle.id() != id);
                let woken = state.idle.len() == before;
                if woken {
                    state.coming = false;
                }
                if lookout {
                    state.lookout = Lookout::None;
                }
                let slept = std::mem::replace(&mut now, Instant::now());
                // A thread can wake up for no reason.
                waited = !woken && !lookout && now.saturating_duration_since(slept) >= self.idle;
            }
        }
    }

    /// Refuses jobs that have waited too long, and gives threads to jobs that may begin now. Returns whether
    /// any job still waits.
    fn sweep(self: &Arc<Self>, now: Instant) -> bool {
        let mut state = self.lock();
        let late = state.queues.sweep(now);
        let waiting = state.queues.is_waiting();
        let staff = state.staff(self.limits.threads, now);
        drop(state);
        self.act(staff);
        if !late.is_empty() {
            tracing::warn!(
                calls = late.len(),
                work = self.work.name(),
                "calls refused for now: the file system has completed no call ahead of them for {STALLED:?}"
            );
        }
        waiting
    }
}

/// A thread that searches for jobs that have waited too long, while there are any.
#[derive(Default)]
struct Watch {
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchState {
    lanes: Vec<Weak<Lane>>,
    running: bool,
    closed: bool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the search if it is not running.
    fn begin(self: &Arc<Self>) {
        if std::mem::replace(&mut self.lock().running, true) {
            return;
        }
        let watch = Arc::clone(self);
        if let Err(error) = thread::Builder::new().name("nfs-watch".to_owned()).spawn(move || watch.run()) {
            tracing::warn!(%error, "cannot start a thread that checks for calls that wait too long");
            self.lock().running = false;
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            state = self.changed.wait_timeout(state, WATCH).unwrap_or_else(PoisonError::into_inner).0;
            // Set before the search: a job that arrives later starts another watch.
            state.running = false;
            let lanes: Vec<_> = state.lanes.iter().filter_map(Weak::upgrade).collect();
            drop(state);
            let now = Instant::now();
            let waiting = lanes.iter().map(|lane| lane.sweep(now)).fold(false, |any, one| any | one);
            state = self.lock();
            if !waiting || std::mem::replace(&mut state.running, true) {
                return;
            }
        }
    }
}

/// All I/O threads of a server; see the module documentation.
pub(super) struct IoThreads {
    limits: Limits,
    /// Threads for one address whose jobs are done in memory.
    quick: usize,
    /// Time for which an idle thread is kept.
    idle: Duration,
    lanes: RwLock<BTreeMap<(ExportId, Work), Arc<Lane>>>,
    watch: Arc<Watch>,
}

impl IoThreads {
    /// Returns the state of the lanes of exports for which `name` has one.
    pub(super) fn lanes(&self, name: impl Fn(ExportId) -> Option<String>) -> Vec<LaneStatus> {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        let status = lanes.iter().filter_map(|((export, work), lane)| {
            let export = name(*export)?;
            let state = lane.lock();
            Some(LaneStatus {
                export,
                work: work.name(),
                threads: state.threads,
                idle: state.idle.len(),
                limit: lane.limits.threads,
                waiting: state.queues.waiting(),
            })
        });
        status.collect()
    }

    /// Ends the threads of exports that are gone, once they have finished their queues.
    pub(super) fn retain(&self, stays: impl Fn(ExportId) -> bool) {
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> =
            lanes.extract_if(.., |(export, _), _| !stays(*export)).map(|(_, lane)| lane).collect();
        drop(lanes);
        gone.iter().for_each(|lane| lane.close());
    }

    /// Creates at most `threads` threads for each export, at least [`THREADS_LEAST`].
    pub(super) fn new(threads: usize) -> Self {
        let threads = (threads / LANES).max(LANE_LEAST);
        let of_address = (threads * 3 / 4).max(1);
        let limits = Limits { threads, of_address, quick: of_address, slow: SLOW };
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let quick = (processors / 2).clamp(1, of_address);
        Self { limits, quick, idle: IDLE, lanes: RwLock::default(), watch: Arc::default() }
    }

    /// Returns the limits for a kind of work. Many READs run side by side, because disks serve them so. All other work is
    /// often done in memory.
    const fn limits(&self, work: Work) -> Limits {
        match work {
            Work::Look => Limits { quick: self.quick, ..self.limits },
            Work::Change | Work::Write => Limits { quick: self.quick, slow: SYNCED, ..self.limits },
            Work::Read => self.limits,
        }
    }

    fn lane(&self, export: ExportId, work: Work) -> Arc<Lane> {
        let key = (export, work);
        if let Some(lane) = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Arc::clone(lane);
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(key).or_insert_with(|| {
            let lane = Arc::new(Lane::new(work, self.limits(work), self.idle));
            let mut watch = self.watch.lock();
            watch.lanes.retain(|lane| lane.strong_count() > 0);
            watch.lanes.push(Arc::downgrade(&lane));
            drop(watch);
            lane
        });
        Arc::clone(lane)
    }

    /// Runs a job. With a `file` the job waits for its turn there, and holds the turn until it ends the
    /// [`Turn`].
    pub(super) fn run<T, J>(&self, source: Source, work: Work, file: Option<FileId>, job: J) -> Running<T>
    where
        T: Send + 'static,
        J: FnOnce(&Turn<'_>) -> T + Send + 'static,
    {
        const { assert!(size_of::<J>() + size_of::<T>() + JOB_BESIDE <= JOB_ROOM, "see JOB_ROOM") };
        let (sender, receiver) = oneshot::channel();
        let lane = self.lane(source.export, work);
        let job = move |turn: &Turn<'_>| {
            // The server stops, and another one may have got the call meanwhile.
            if sender.is_closed() {
                return;
            }
            let result = catch_unwind(AssertUnwindSafe(|| job(turn)));
            // A job that has begun completes even if the caller is gone.
            let _ = sender.send(result.map_err(|_| Unserved::Panicked));
        };
        if lane.push(source.address, file, Box::new(job)) {
            self.watch.begin();
        }
        Running::Waits(receiver)
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        let lanes = self.lanes.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes.values() {
            lane.close();
        }
        self.watch.lock().closed = true;
        self.watch.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
