//! Which processor a thread runs on. Left to the scheduler, both ends share one at times, and rounds measure different things.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that this process may use.
#[derive(Clone, Debug)]
pub(super) struct Processors(Vec<usize>);

impl Processors {
    /// Those of this thread, before it was kept to one. None if they cannot be known.
    pub(super) fn allowed() -> Self {
        let Ok(allowed) = sched_getaffinity(None) else { return Self(Vec::new()) };
        Self((0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect())
    }

    /// Keeps this thread, and those that it starts later, on the `index`-th of them. Without so many, or without the right
    /// to choose, it stays where the scheduler puts it.
    pub(super) fn keep_to(&self, index: usize) {
        let Some(&processor) = self.0.get(index) else { return };
        let mut one = CpuSet::new();
        one.set(processor);
        if let Err(error) = sched_setaffinity(None, &one) {
            tracing::debug!(%error, "cannot choose a processor");
        }
    }
}
