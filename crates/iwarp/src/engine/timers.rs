//! All timers of a connection in one table. Time is an argument; nothing here reads a clock.

use std::time::{Duration, Instant};

use rpcrdma_verbs::Pace;

/// Timeouts for each situation in which a connection waits for the peer. A connection never waits without one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time for the complete MPA start-up frame of the peer. 10 s by default, as Linux allows as Initiator.
    pub startup: Duration,
    /// For an Initiator whose caller has left: time for TCP to connect, and then for the Reply to the Request. 2 s by
    /// default. A step that has had this time already ends at once.
    pub abandoned: Duration,
    /// For a Responder: time from the Reply to the first FPDU. 60 s by default.
    pub first_fpdu: Duration,
    /// Time for which an FPDU that has begun may stand still. 30 s by default.
    pub partial_fpdu: Duration,
    /// Average rate that such an FPDU must reach, in bytes per second: a slower FPDU stands still. With 0 any byte is
    /// progress. 8192 by default, so that the longest FPDU has 8 s beyond [`partial_fpdu`](Self::partial_fpdu).
    pub least_rate: u64,
    /// Time between two segments of the Read Response that is due. 60 s by default.
    pub read: Duration,
    /// Time for which output may wait while the peer accepts none of it; also set as `TCP_USER_TIMEOUT`. 60 s by
    /// default.
    pub stalled_send: Duration,
    /// Time of a graceful end, for queued data that does not leave, and for the peer to close too. 5 s by default.
    pub linger: Duration,
    /// TCP keep-alive: idle time before the first probe. 30 s by default, then six probes 10 s apart.
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            startup: Duration::from_secs(10),
            abandoned: Duration::from_secs(2),
            first_fpdu: Duration::from_secs(60),
            partial_fpdu: Duration::from_secs(30),
            least_rate: 8 << 10,
            read: Duration::from_secs(60),
            stalled_send: Duration::from_secs(60),
            linger: Duration::from_secs(5),
            keepalive: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// Returns the required pace of an FPDU that has begun.
    pub(super) const fn fpdu(&self) -> Pace {
        Pace { stall: self.partial_fpdu, least_rate: self.least_rate }
    }
}

/// Delay after which an Initiator without an answer to its first message sends a zero-length RDMA Write. Linux `siw`
/// can overlook an FPDU that arrives within milliseconds after its Reply, until the next TCP segment comes.
pub const NUDGE_AFTER: Duration = Duration::from_millis(20);
/// Maximum number of nudges of a connection. Each waits twice as long as the one before, since a busy host may overlook
/// a nudge too. The last comes 2.54 s after the first message.
pub const NUDGES_MAX: u32 = 7;

/// A duration beyond any wait.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns the time `wait` after `now`. Values of [`Timeouts`] may be too long for the clock.
pub(super) fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + NEVER)
}

/// The timers of a running connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    FirstFpdu,
    PartialFpdu,
    Read,
    StalledSend,
    Linger,
    Nudge,
}

impl Timer {
    pub(super) const ALL: [Self; 6] =
        [Self::FirstFpdu, Self::PartialFpdu, Self::Read, Self::StalledSend, Self::Linger, Self::Nudge];

    /// Returns a description of the expired timer for [`Disconnected::Timeout`](rpcrdma_verbs::Disconnected::Timeout).
    pub(super) const fn describe(self) -> &'static str {
        match self {
            Self::FirstFpdu => "the peer sent nothing after connection set-up",
            Self::PartialFpdu => "the peer did not finish an FPDU",
            Self::Read => "the peer did not answer an RDMA Read",
            Self::StalledSend => "the peer takes no data",
            Self::Linger => "the peer did not close",
            Self::Nudge => "nudge",
        }
    }
}

/// Deadlines by timer.
#[derive(Debug, Default)]
pub(super) struct Timers {
    first_fpdu: Option<Instant>,
    partial_fpdu: Option<Instant>,
    read: Option<Instant>,
    stalled_send: Option<Instant>,
    linger: Option<Instant>,
    nudge: Option<Instant>,
}

impl Timers {
    fn slot(&mut self, timer: Timer) -> &mut Option<Instant> {
        match timer {
            Timer::FirstFpdu => &mut self.first_fpdu,
            Timer::PartialFpdu => &mut self.partial_fpdu,
            Timer::Read => &mut self.read,
            Timer::StalledSend => &mut self.stalled_send,
            Timer::Linger => &mut self.linger,
            Timer::Nudge => &mut self.nudge,
        }
    }

    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        *self.slot(timer) = Some(at);
    }

    /// Sets the timer unless it is running.
    pub(super) fn start(&mut self, timer: Timer, at: Instant) {
        self.slot(timer).get_or_insert(at);
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        *self.slot(timer) = None;
    }

    pub(super) fn stop_all(&mut self) {
        *self = Self::default();
    }

    /// Returns the earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.first_fpdu, self.partial_fpdu, self.read, self.stalled_send, self.linger, self.nudge]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes one expired timer, with its deadline.
    pub(super) fn expired(&mut self, now: Instant) -> Option<(Timer, Instant)> {
        Timer::ALL.into_iter().find_map(|timer| Some((timer, self.slot(timer).take_if(|at| *at <= now)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_comes_first() {
        let now = Instant::now();
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::Read, now + Duration::from_secs(2));
        timers.set(Timer::Linger, now + Duration::from_secs(1));
        timers.start(Timer::Linger, now + Duration::from_secs(9));
        assert_eq!(timers.next(), Some(now + Duration::from_secs(1)));
        assert_eq!(timers.expired(now), None);
        let mut expired = |seconds| timers.expired(now + Duration::from_secs(seconds));
        assert_eq!(expired(2), Some((Timer::Read, now + Duration::from_secs(2))));
        assert_eq!(expired(2), Some((Timer::Linger, now + Duration::from_secs(1))));
        assert_eq!(timers.expired(now + Duration::from_secs(2)), None);
    }

    #[test]
    fn no_wait_is_too_long_for_the_clock() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_secs(3)), now + Duration::from_secs(3));
        assert_eq!(after(now, Duration::MAX), now + NEVER);
        assert!(NEVER > Duration::from_secs(1 << 29));
    }

    #[test]
    fn every_timer_has_a_slot_of_its_own() {
        let now = Instant::now();
        for timer in Timer::ALL {
            let mut timers = Timers::default();
            timers.set(timer, now);
            assert_eq!(timers.next(), Some(now));
            assert_eq!(timers.expired(now), Some((timer, now)));
            assert!(!timer.describe().is_empty());
        }
    }
}
