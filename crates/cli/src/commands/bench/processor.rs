//! Choice of processors for the two ends. Throughput is measured where the scheduler puts them. The round
//! trip of a small call depends strongly on whether it includes a wake-up across processors. So it is
//! measured both ways.

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// Threads of both ends, and the processors that they may use.
#[derive(Debug)]
pub(super) struct Processors {
    server: Pid,
    client: Pid,
    /// `None` if the set is unknown: the scheduler then always decides.
    allowed: Option<CpuSet>,
}

impl Processors {
    /// Returns the processors of a benchmark with this thread as the client.
    pub(super) fn new(server: Pid) -> Self {
        Self { server, client: gettid(), allowed: sched_getaffinity(None).ok() }
    }

    /// Puts each end on a processor of its own, as if they were two machines.
    pub(super) fn apart(&self) {
        self.keep(self.client, 1);
        self.keep(self.server, 0);
    }

    /// Puts both ends on one processor.
    pub(super) fn together(&self) {
        self.keep(self.client, 0);
        self.keep(self.server, 0);
    }

    /// Lets the scheduler choose.
    pub(super) fn free(&self) {
        if let Some(allowed) = &self.allowed {
            set(self.client, allowed);
            set(self.server, allowed);
        }
    }

    /// Binds a thread to the processor number `index`. With fewer processors the thread stays where it is.
    fn keep(&self, thread: Pid, index: usize) {
        let Some(allowed) = &self.allowed else { return };
        if let Some(processor) = (0..CpuSet::MAX_CPU).filter(|&one| allowed.is_set(one)).nth(index) {
            let mut one = CpuSet::new();
            one.set(processor);
            set(thread, &one);
        }
    }
}

fn set(thread: Pid, processors: &CpuSet) {
    if let Err(error) = sched_setaffinity(Some(thread), processors) {
        tracing::debug!(%error, "cannot choose a processor");
    }
}
