//! Which processors the two ends run on. Throughput is measured where the scheduler puts them; the round trip of a small call
//! depends so much on it (a wake-up across processors, or none) that it is measured both ways.

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// The threads of both ends, and the processors that they may use.
#[derive(Debug)]
pub(super) struct Processors {
    server: Pid,
    client: Pid,
    /// None if they cannot be known: then the scheduler decides always.
    allowed: Option<CpuSet>,
}

impl Processors {
    /// With this thread as the client.
    pub(super) fn new(server: Pid) -> Self {
        Self { server, client: gettid(), allowed: sched_getaffinity(None).ok() }
    }

    /// A processor for each end, as two machines have it.
    pub(super) fn apart(&self) {
        self.keep(self.client, 1);
        self.keep(self.server, 0);
    }

    /// One processor for both.
    pub(super) fn together(&self) {
        self.keep(self.client, 0);
        self.keep(self.server, 0);
    }

    /// Where the scheduler puts them.
    pub(super) fn free(&self) {
        if let Some(allowed) = &self.allowed {
            set(self.client, allowed);
            set(self.server, allowed);
        }
    }

    /// Keeps a thread on the `index`-th of the processors. Without so many it stays where it is.
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
