//! [`Allowance`]: how many lines of one kind a log gets from the peers of a server.
//!
//! Each line here has a peer as its cause, and peers can cause any number (I6). So a few lines are written at once, and a
//! flood of them slowly. Lines left out are counted, and the next line has their number. Refusals have a stricter bound:
//! one line a second.
//!
//! *Errors.* Nothing here fails.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// An allowance of lines in a log: [`BURST`](Self::BURST) lines at once, and after them one in [`EVERY`](Self::EVERY).
#[derive(Debug, Default)]
pub struct Allowance {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Time at which the whole allowance is there again; `None`: it is there.
    full: Option<Instant>,
    /// Lines left out since the last one that was written.
    left_out: u64,
}

impl Allowance {
    /// Lines that can be written at once after a time of rest. All clients of a large server may come back together after
    /// its restart.
    pub const BURST: u32 = 1024;
    /// Time after which one more line can be written.
    pub const EVERY: Duration = Duration::from_millis(100);

    /// Takes a line of the allowance. Returns the number of lines left out before it; `None` if this one is left out, too.
    #[must_use]
    pub fn take(&self) -> Option<u64> {
        let now = Instant::now();
        // Plain values stay consistent when a thread panics.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let full = state.full.filter(|full| *full > now).unwrap_or(now);
        let next = full + Self::EVERY;
        if next - now > Self::EVERY * Self::BURST {
            state.left_out += 1;
            return None;
        }
        state.full = Some(next);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn i6_a_flood_of_lines_is_written_slowly_and_counted() {
        let lines = Allowance::default();
        for _ in 0..Allowance::BURST {
            assert_eq!(lines.take(), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(lines.take(), None);
        }
        tokio::time::advance(Allowance::EVERY).await;
        assert_eq!((lines.take(), lines.take()), (Some(7), None));
        tokio::time::advance(Allowance::EVERY * Allowance::BURST).await;
        for told in [1].into_iter().chain([0; 1023]) {
            assert_eq!(lines.take(), Some(told));
        }
        assert_eq!(lines.take(), None);
    }
}
