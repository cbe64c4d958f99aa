//! [`Spaced`]: lines for the log that a peer can cause, and how often one is written.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Least time between two lines.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Lines of one kind for the log: at most one in [`EVERY`].
#[derive(Debug, Default)]
pub(crate) struct Spaced {
    /// Time of the next line at the earliest, and lines left out since the last one.
    state: Mutex<(Option<Instant>, u64)>,
}

impl Spaced {
    /// Returns the number of lines left out before this one; `None` if this one is left out, too.
    pub(crate) fn due(&self) -> Option<u64> {
        let now = Instant::now();
        // Plain values stay consistent when a thread panics.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (quiet_until, left_out) = &mut *state;
        if quiet_until.is_some_and(|until| now < until) {
            *left_out += 1;
            return None;
        }
        *quiet_until = Some(now + EVERY);
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_within_a_second_are_counted() {
        let lines = Spaced::default();
        assert_eq!(lines.due(), Some(0));
        for _ in 0..3 {
            assert_eq!(lines.due(), None);
        }
        tokio::time::advance(EVERY).await;
        assert_eq!((lines.due(), lines.due()), (Some(3), None));
    }
}
