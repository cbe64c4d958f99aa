//! Processors: how long they worked, and which of them the two ends use. Throughput is measured where the scheduler puts them. The round
//! trip of a small call depends strongly on whether it includes a wake-up across processors. So it is
//! measured both ways.

use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of a clock, which is finer than that of getrusage(2).
pub(super) fn cpu(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the number of processors that this process may use.
pub(super) fn count() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Time of all processors of this machine since its start, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    /// Ticks in which a processor worked, for any process or for the kernel, or for another machine.
    pub(super) busy: u64,
    /// All ticks.
    pub(super) all: u64,
}

impl Ticks {
    /// Returns the present count; zeros where the kernel tells none.
    pub(super) fn now() -> Self {
        Self::from_stat(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Reads the first line of `/proc/stat` (proc(5)). Idle is the fourth number, and waiting for a disk the
    /// fifth; the ninth and tenth are parts of the first and second.
    fn from_stat(stat: &str) -> Self {
        let numbers = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
        let numbers = numbers.unwrap_or_default().split_whitespace().take(8).map(str::parse::<u64>);
        let mut ticks = Self::default();
        for (index, number) in numbers.map_while(Result::ok).enumerate() {
            ticks.all = ticks.all.saturating_add(number);
            if !matches!(index, 3 | 4) {
                ticks.busy = ticks.busy.saturating_add(number);
            }
        }
        ticks
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_guests_count_once() {
        let stat = "cpu  10 1 20 300 40 2 3 4 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(Ticks::from_stat(stat), Ticks { busy: 40, all: 380 });
        assert_eq!(Ticks::from_stat(""), Ticks::default());
        let now = Ticks::now();
        assert!(now.busy > 0 && now.busy < now.all, "{now:?}");
    }
}
