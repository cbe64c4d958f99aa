//! The machine of a run: its name for the page, and how much of its time went to others.

use std::fs;
use std::thread;
use std::time::Duration;

/// Time of the look at an idle machine.
const LOOK: Duration = Duration::from_secs(1);

/// Returns number and model of the processors, and the kernel.
pub(crate) fn name() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let count = thread::available_parallelism().map_or(1, usize::from);
    described(count, &read("/proc/cpuinfo"), &read("/proc/sys/kernel/osrelease"))
}

fn described(count: usize, processors: &str, kernel: &str) -> String {
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()))
        .unwrap_or("unknown processor");
    format!("{count} x {model}, Linux {}", kernel.trim())
}

/// Time of all processors since the start of the machine, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    busy: u64,
    /// Ticks that another virtual machine of the same host had instead.
    stolen: u64,
    all: u64,
}

impl Ticks {
    /// Returns the present count; zeros where the kernel tells none.
    pub(crate) fn now() -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Reads the first line of `/proc/stat` (proc(5)). Idle time is the fourth number, waiting for a disk
    /// the fifth, and stolen time the eighth. The ninth and tenth are parts of the first and second.
    fn of(stat: &str) -> Self {
        let numbers = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
        let numbers = numbers.unwrap_or_default().split_whitespace().take(8).map(str::parse::<u64>);
        let mut ticks = Self::default();
        for (index, number) in numbers.map_while(Result::ok).enumerate() {
            ticks.all = ticks.all.saturating_add(number);
            match index {
                3 | 4 => {}
                7 => ticks.stolen = number,
                _ => ticks.busy = ticks.busy.saturating_add(number),
            }
        }
        ticks
    }

    /// Returns the shares of the time since then, in percent: busy, and stolen.
    fn shares_since(self, then: Self) -> (f64, f64) {
        let all = self.all.saturating_sub(then.all).max(1);
        // Ticks of years fit.
        #[allow(clippy::cast_precision_loss, reason = "see above")]
        let share = |now: u64, then: u64| 100.0 * now.saturating_sub(then) as f64 / all as f64;
        (share(self.busy, then.busy), share(self.stolen, then.stolen))
    }
}

/// Returns how busy the machine is while nothing is measured, in percent.
pub(crate) fn busy() -> f64 {
    let before = Ticks::now();
    thread::sleep(LOOK);
    Ticks::now().shares_since(before).0
}

/// Returns the time since then that other virtual machines had instead of this one, in percent.
pub(crate) fn stolen_since(then: Ticks) -> f64 {
    Ticks::now().shares_since(then).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_told_apart() {
        let before = Ticks::of("cpu  10 1 20 300 40 2 3 4 9 1\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        assert_eq!(before, Ticks { busy: 36, stolen: 4, all: 380 });
        let after = Ticks::of("cpu  40 1 20 350 50 2 3 14 9 1\n");
        assert_eq!(after.shares_since(before), (30.0, 10.0));
        assert_eq!(Ticks::of(""), Ticks::default());
        assert_eq!(before.shares_since(before), (0.0, 0.0));
    }

    #[test]
    fn the_machine_has_a_name() {
        let processors = "processor\t: 0\nmodel name\t: A Processor\n";
        assert_eq!(described(2, processors, "6.18.1\n"), "2 x A Processor, Linux 6.18.1");
        assert_eq!(described(1, "", "6"), "1 x unknown processor, Linux 6");
    }
}
