//! The threads on which file systems that may block are called.
//!
//! A job is one procedure from its first system call to its last, and holds one thread. A job can wait for a disk, or for
//! ever if its file system is frozen or its server is gone. So there is one rule: a job that does not end costs its own
//! export, its own kind of work and its own address. Nobody else pays.
//!
//! *Lanes.* Each export has a [`Lane`] for each kind of [`Work`]: looking at objects, READ, changes of names and attributes,
//! and WRITE with COMMIT. A lane has threads and queues of its own, a quarter of the export's threads. So an export that is
//! frozen holds its own threads and no others, and calls that only look at objects never wait behind data. A file system
//! that is frozen for changes (`fsfreeze`) is still read.
//!
//! *Addresses.* In a lane each address, or IPv6 network ([`Origin`]), has a queue, and holds at most three quarters of the threads. The next free thread
//! goes to the address that holds the fewest ([`queues`] has the order). So a job from an address that holds no thread
//! waits until one job ends, however many wait. The cost of a job counts by itself: a slow one holds its thread longer.
//! Looks that are answered from memory need processors only: as long as they are quick, an address holds threads for half of the
//! processors.
//!
//! *Writes.* The kernel lets one WRITE at a time into a file. The others to that file wait in the queue and hold no thread.
//! A WRITE that has to be stable gives the file free when its data is in it ([`Turn::release`]). Its sync holds the thread.
//! WRITEs that wait for the end of a sync share the next one. READ and COMMIT of the file never wait here. A COMMIT has to cover the WRITEs that were answered before it came, and these are over.
//!
//! *Bounds.* Threads: those of an export, times the number of exports; a thread without work for [`IDLE`] ends. Jobs that
//! wait: one for each call in progress. The credits of the connections and `max_calls` bound these
//! (`rpcrdma::ServerConfig`), and their arguments are in the memory share of their address. Time: a job that cannot begin
//! because nothing in front of it goes on is refused after [`queues::STALLED`]. Its call is put off (NFS3ERR_JUKEBOX). A
//! job that has begun is never refused, since nobody knows how far it came.
//!
//! *Errors.* A job that panics fails its own call. When no thread can be started, the jobs of the lane are refused. When the
//! last handle is dropped, the threads finish their queues and end; nobody waits for those that are stuck.

mod queues;

use std::cell::Cell;
use std::collections::HashMap;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use queues::{Begun, Limits, Queues, STALLED};
use rpcrdma_oncrpc::Origin;
use tokio::sync::oneshot;

use super::handle::ExportId;
use crate::fs::FileId;

/// How long a thread without work is kept.
const IDLE: Duration = Duration::from_secs(10);
/// How often the queues are looked through for jobs that have waited too long.
const WATCH: Duration = Duration::from_secs(2);
/// What a job takes at the most, with room for its result, in bytes. Each call that waits for a thread holds one.
pub(super) const JOB_ROOM: usize = 1 << 10;
/// Of that, what is not the job's own: its place in the queue and its channel, in bytes.
const JOB_BESIDE: usize = 256;
/// Kinds of work, which share the threads of an export evenly.
const LANES: usize = 4;
/// Fewest threads of a lane: one address never has all of them.
const LANE_LEAST: usize = 2;

/// Fewest threads of an export.
pub(super) const THREADS_LEAST: usize = LANES * LANE_LEAST;

/// Kinds of work. No kind waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Where a job comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) export: ExportId,
    pub(super) address: Option<Origin>,
}

/// Why a job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// It panicked.
    Panicked,
    /// It was not begun: what it waited for does not go on, or there are no threads.
    Refused,
}

type Job = Box<dyn FnOnce(&Turn<'_>) + Send>;

/// Resolves to the result of a job. Not to be polled after that.
pub(crate) enum Running<T> {
    /// It is done.
    Done(Option<Result<T, Unserved>>),
    /// A thread has it, or will have it.
    Waits(oneshot::Receiver<Result<T, Unserved>>),
}

/// No result is pinned.
impl<T> Unpin for Running<T> {}

impl<T> Running<T> {
    /// What was done at once.
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

/// Threads and queues of one export for one kind of work.
struct Lane {
    work: Work,
    limits: Limits,
    idle: Duration,
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    queues: Queues<Job>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
    /// How many of the idle threads were told that there is some.
    woken: usize,
    closed: bool,
}

/// The step by which a job gets a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staff {
    /// Nothing: none can begin, or those at work will see it.
    Enough,
    Wake,
    Start,
}

impl State {
    fn staff(&mut self, limit: usize, now: Instant) -> Staff {
        if !self.queues.is_ready(now) {
            return Staff::Enough;
        }
        if self.idle > self.woken {
            self.woken += 1;
            Staff::Wake
        } else if self.threads < limit {
            self.threads += 1;
            Staff::Start
        } else {
            Staff::Enough
        }
    }
}

/// The turn of a WRITE at its file, for as long as its job is at work.
pub(super) struct Turn<'a> {
    lane: &'a Arc<Lane>,
    file: Cell<Option<FileId>>,
}

impl Turn<'_> {
    /// The data is in the file: the next WRITE to it may begin while this job goes on.
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

impl Lane {
    fn new(work: Work, limits: Limits, idle: Duration) -> Self {
        let state = State { queues: Queues::new(limits), threads: 0, idle: 0, woken: 0, closed: false };
        Self { work, limits, idle, state: Mutex::new(state), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a job in, or drops it, which refuses it. Returns whether the job may have to wait.
    fn push(self: &Arc<Self>, address: Option<Origin>, file: Option<FileId>, job: Job) -> bool {
        let mut state = self.lock();
        let busy = state.queues.held() > 0;
        let now = Instant::now();
        let pushed = state.queues.push(address, file, job, now);
        let staff = state.staff(self.limits.threads, now);
        drop(state);
        if pushed.is_err() {
            tracing::debug!(
                ?address,
                work = self.work.name(),
                "put off: nothing in front of this call goes on"
            );
        }
        self.act(staff);
        busy
    }

    fn act(self: &Arc<Self>, staff: Staff) {
        match staff {
            Staff::Enough => {}
            Staff::Wake => self.ready.notify_one(),
            Staff::Start => {
                let lane = Arc::clone(self);
                let name = format!("nfs-{}", self.work.name());
                if let Err(error) = thread::Builder::new().name(name).spawn(move || lane.serve()) {
                    tracing::error!(%error, work = self.work.name(), "no thread for file I/O could be started");
                    let mut state = self.lock();
                    state.threads -= 1;
                    // Dropping the jobs refuses their calls.
                    let jobs = if state.threads == 0 { state.queues.clear() } else { Vec::new() };
                    drop(state);
                    drop(jobs);
                }
            }
        }
    }

    /// The life of a thread.
    fn serve(self: Arc<Self>) {
        let mut state = self.lock();
        let mut waited = false;
        let mut now = Instant::now();
        loop {
            if let Some(Begun { job, address, file }) = state.queues.begin(now) {
                let staff = state.staff(self.limits.threads, now);
                drop(state);
                self.act(staff);
                let turn = Turn { lane: &self, file: Cell::new(file) };
                job(&turn);
                let begun = std::mem::replace(&mut now, Instant::now());
                state = self.lock();
                if let Some(file) = turn.file.take() {
                    state.queues.release(&file);
                }
                state.queues.finish(address, now.saturating_duration_since(begun));
                waited = false;
            } else if waited || state.closed {
                state.threads -= 1;
                #[cfg(test)]
                self.ready.notify_all();
                return;
            } else {
                state.idle += 1;
                let (next, result) =
                    self.ready.wait_timeout(state, self.idle).unwrap_or_else(PoisonError::into_inner);
                state = next;
                state.idle -= 1;
                state.woken = state.woken.saturating_sub(1);
                waited = result.timed_out();
                now = Instant::now();
            }
        }
    }

    /// Refuses what has waited too long, and gives threads to what may begin by now; says whether anything waits still.
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
                "put off: the file system has ended no call in front of them for {STALLED:?}"
            );
        }
        waiting
    }
}

/// A thread that looks for jobs that have waited too long, while there are any.
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

    /// Sees to it that the queues are looked through from now on.
    fn begin(self: &Arc<Self>) {
        if std::mem::replace(&mut self.lock().running, true) {
            return;
        }
        let watch = Arc::clone(self);
        if let Err(error) = thread::Builder::new().name("nfs-watch".to_owned()).spawn(move || watch.run()) {
            tracing::warn!(%error, "no thread that looks for calls that wait too long");
            self.lock().running = false;
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            state = self.changed.wait_timeout(state, WATCH).unwrap_or_else(PoisonError::into_inner).0;
            // Before the look: a job that comes behind it begins another watch.
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

/// All threads of a server; see the module.
pub(super) struct IoThreads {
    limits: Limits,
    /// Threads on which an address looks at objects in memory.
    looks: usize,
    lanes: RwLock<HashMap<(ExportId, Work), Arc<Lane>>>,
    watch: Arc<Watch>,
}

impl IoThreads {
    /// At most `threads` for each export, at least [`THREADS_LEAST`].
    pub(super) fn new(threads: usize) -> Self {
        let threads = (threads / LANES).max(LANE_LEAST);
        let of_address = (threads * 3 / 4).max(1);
        let limits = Limits { threads, of_address, quick: of_address };
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let looks = (processors / 2).clamp(1, of_address);
        Self { limits, looks, lanes: RwLock::default(), watch: Arc::default() }
    }

    /// Data has to come from a disk or go there. Objects that jobs look at are mostly in memory.
    const fn limits(&self, work: Work) -> Limits {
        match work {
            Work::Look => Limits { quick: self.looks, ..self.limits },
            Work::Read | Work::Change | Work::Write => self.limits,
        }
    }

    fn lane(&self, export: ExportId, work: Work) -> Arc<Lane> {
        let key = (export, work);
        if let Some(lane) = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Arc::clone(lane);
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(key).or_insert_with(|| {
            let lane = Arc::new(Lane::new(work, self.limits(work), IDLE));
            self.watch.lock().lanes.push(Arc::downgrade(&lane));
            lane
        });
        Arc::clone(lane)
    }

    /// Runs a job. With a `file` it waits for its turn there, for as long as it does not end the [`Turn`].
    pub(super) fn run<T, J>(&self, source: Source, work: Work, file: Option<FileId>, job: J) -> Running<T>
    where
        T: Send + 'static,
        J: FnOnce(&Turn<'_>) -> T + Send + 'static,
    {
        const { assert!(size_of::<J>() + size_of::<T>() + JOB_BESIDE <= JOB_ROOM, "see JOB_ROOM") };
        let (sender, receiver) = oneshot::channel();
        let lane = self.lane(source.export, work);
        let job = move |turn: &Turn<'_>| {
            let result = catch_unwind(AssertUnwindSafe(|| job(turn)));
            // The caller may have gone; the job is done all the same.
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
            lane.lock().closed = true;
            lane.ready.notify_all();
        }
        self.watch.lock().closed = true;
        self.watch.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
