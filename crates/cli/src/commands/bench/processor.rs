//! A processor for each end, as two machines have it; else the scheduler puts both threads on one at times, and the rounds
//! measure different things.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps this thread, and those that it starts later, on the `index`-th of the processors that it may use. Without so many
/// processors, or without the right to choose, it stays where the scheduler puts it.
pub(super) fn keep_to(index: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(processor) = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).nth(index)
    else {
        return;
    };
    let mut one = CpuSet::new();
    one.set(processor);
    if let Err(error) = sched_setaffinity(None, &one) {
        tracing::debug!(%error, "cannot choose a processor");
    }
}
