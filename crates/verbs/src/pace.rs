//! [`Pace`]: the difference between slow data and data that stands still. Times are arguments; nothing here reads a
//! clock.

use std::time::{Duration, Instant};

/// The furthest deadline, so that adding a long time cannot overflow.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The demands on data under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Longest time without any progress.
    pub stall: Duration,
    /// Bytes in a second that must move on average; 0: any byte is progress.
    pub least_rate: u64,
}

impl Pace {
    /// Returns the time that this many bytes may take.
    #[must_use]
    pub fn time_for(&self, bytes: u64) -> Duration {
        match (bytes, self.least_rate) {
            (0, _) => Duration::ZERO,
            (_, 0) => FAR,
            (bytes, rate) => {
                let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(FAR)
            }
        }
    }

    /// Returns the bytes that may take this time; 0 if there is no least rate.
    #[must_use]
    pub fn bytes_in(&self, time: Duration) -> u64 {
        let bytes = time.as_nanos().saturating_mul(u128::from(self.least_rate)) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the deadline of data of which `bytes` have moved since `deadline` was set, the last at `moved_at`. The
    /// new deadline is later by the time for these bytes, but not later than `stall` after `moved_at`.
    #[must_use]
    pub fn extended(&self, deadline: Instant, bytes: u64, moved_at: Instant) -> Instant {
        if bytes == 0 {
            return deadline;
        }
        let latest = moved_at + self.stall.min(FAR);
        (deadline + self.time_for(bytes)).min(latest).max(deadline)
    }
}
