//! The timers of a connection and a session (rule I6).
//!
//! Times are arguments; nothing here reads a clock. The provider has its own timers (MPA start-up, partial FPDU,
//! stalled send).
//!
//! A slow peer is not a stalled one. Timers for data in flight measure lack of progress:
//! [`rdma_read`](Timeouts::rdma_read), [`send`](Timeouts::send), [`call`](Timeouts::call),
//! [`abandoned`](Timeouts::abandoned), and [`close`](Timeouts::close). By [`Pace`] each byte that moves extends the
//! deadline at the [`least_rate`](Timeouts::least_rate), up to the whole time again. A peer that keeps to that rate is
//! thus never cut off, but a peer that sends an occasional byte is.
//!
//! The driver reports the progress of data ([`Connection::handle_progress`](crate::Connection::handle_progress)), as
//! far as the provider knows it. With a provider that reports only completions, the timer is longer from the start, by
//! the time that the data needs at the least rate.

use std::time::{Duration, Instant};

use rpcrdma_verbs::{Pace, Progress};

/// Timeouts of a connection and a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// Time for the reply to a call without a timeout of its own; then the call fails, but its memory stays reserved.
    /// If chunks move at the deadline, the call gets more time as long as they keep to the [least
    /// rate](Self::least_rate). The extra time is at most what all chunks of calls in flight need at that rate.
    pub call: Duration,
    /// Time for the late reply to a call that was abandoned or timed out; then the connection is closed to get the
    /// call's memory back. As for [`call`](Self::call), data that moves gives more time.
    pub abandoned: Duration,
    /// Time without progress of the RDMA Reads in flight, or of data that leaves before their Requests; then the
    /// connection is closed.
    pub rdma_read: Duration,
    /// Time without progress of Sends, and of RDMA Writes of replies; then the connection is closed.
    pub send: Duration,
    /// Bytes per second: data in flight with a lower average rate counts as stalled. With 0 any byte is progress, but
    /// with a provider that reports no progress these timers are never extended.
    pub least_rate: u64,
    /// Time for memory of the domain for a Call's chunks, when it is the Call's turn; then the connection is closed.
    /// The timer runs only while no RDMA Read is in progress, since completed Reads return memory. It does not expire
    /// while Sends or RDMA Writes are in progress, for the same reason.
    pub memory: Duration,
    /// Time for credits for an answer, in versions that count messages (version-two-07 §4.2.1); then the connection is
    /// closed.
    pub credits: Duration,
    /// Time for the rest of a message in several Sends, after its first Send; then the connection is closed.
    pub continuation: Duration,
    /// Time for an invalidation that an answered call waits for; then the connection is closed.
    pub invalidate: Duration,
    /// Time for the RDMA_DONE of a reply with exposed data (RFC 5666 §3.8). Then the data is closed to the peer, and a
    /// later Read of it ends the connection. A Requester that reads such a reply has three quarters of this time,
    /// including the wait for memory; then it closes the connection.
    pub done: Duration,
    /// Time without progress of the remaining Sends on a connection that is closing in order; then the connection is
    /// aborted.
    pub close: Duration,
    /// Time without any call in progress; then the connection is closed. `None` keeps the connection.
    pub idle: Option<Duration>,
    /// Time for a connection attempt; then the next attempt is due.
    pub connect: Duration,
    /// Time for the answer to the first message in a version that the peer may not speak. Then the peer counts as one
    /// that does not (version-two-01 §5.2). Also the peer's later announcement, while a Call waits for it
    /// (version-two-07 §5.1).
    pub offer: Duration,
    /// Time for which a peer counts as speaking Version One only. Afterwards the next connection offers a higher
    /// version again.
    pub version_memory: Duration,
    /// Time for the first message of a client, which decides the version, while a Call of the server waits for it. Then
    /// the Call leaves in Version One by guess, since a client that prefers another version offers it at once. A client
    /// that offers another version later does not take the Call, which then fails; the connection continues in that
    /// version.
    pub first_message: Duration,
    /// The first pause before a reconnection; doubled with each failure.
    pub reconnect_least: Duration,
    /// The longest pause before a reconnection.
    pub reconnect_most: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(60),
            abandoned: Duration::from_secs(60),
            rdma_read: Duration::from_secs(30),
            send: Duration::from_secs(60),
            least_rate: Self::LEAST_RATE,
            memory: Duration::from_secs(30),
            credits: Duration::from_secs(30),
            continuation: Duration::from_secs(30),
            invalidate: Duration::from_secs(30),
            done: Duration::from_secs(30),
            close: Duration::from_secs(5),
            idle: None,
            connect: Duration::from_secs(10),
            offer: Duration::from_secs(3),
            version_memory: Duration::from_secs(600),
            first_message: Duration::from_millis(500),
            reconnect_least: Duration::from_millis(100),
            reconnect_most: Duration::from_secs(30),
        }
    }
}

impl Timeouts {
    /// Default of [`least_rate`](Self::least_rate): 64 kbit/s. At twice that rate, 1 MiB takes a minute.
    pub const LEAST_RATE: u64 = 8 << 10;

    /// Returns the time to read a message that the peer exposes: three quarters of `done`. The peer's timer, which is
    /// assumed equal to ours, started earlier, and the RDMA_DONE still has to arrive.
    pub(crate) fn read_by(&self) -> Duration {
        self.done - self.done / 4
    }

    pub(crate) const fn pace(&self, stall: Duration) -> Pace {
        Pace { stall, least_rate: self.least_rate }
    }
}

/// The driver's last report of progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) progress: Progress,
    /// When each kind of progress last changed.
    read_at: Instant,
    sent_at: Instant,
    link_at: Instant,
}

/// A counter of [`Progress`], or a sum of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Answers to our RDMA Reads.
    Read,
    /// Read answers and bytes that leave: an RDMA Read Request waits for earlier requests.
    SentAndRead,
    /// Bytes that leave.
    Sent,
    /// Bytes that leave or arrive.
    Link,
}

impl Told {
    pub(crate) const fn new(now: Instant, progress: Progress) -> Self {
        Self { progress, read_at: now, sent_at: now, link_at: now }
    }

    pub(crate) fn update(&mut self, now: Instant, progress: Progress) {
        let before = std::mem::replace(&mut self.progress, progress);
        if progress == before {
            return;
        }
        self.link_at = now;
        if progress.read != before.read {
            self.read_at = now;
        }
        if progress.sent != before.sent {
            self.sent_at = now;
        }
    }

    pub(crate) const fn bytes(&self, flow: Flow) -> u64 {
        match flow {
            Flow::Read => self.progress.read,
            Flow::SentAndRead => self.progress.sent.saturating_add(self.progress.read),
            Flow::Sent => self.progress.sent,
            Flow::Link => self.progress.sent.saturating_add(self.progress.received),
        }
    }

    fn moved_at(&self, flow: Flow) -> Instant {
        match flow {
            Flow::Read => self.read_at,
            Flow::SentAndRead => self.sent_at.max(self.read_at),
            Flow::Sent => self.sent_at,
            Flow::Link => self.link_at,
        }
    }
}

/// Data in flight. Progress is examined only at the deadline, so that single bytes cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) deadline: Instant,
    flow: Flow,
    /// Bytes that had moved when the deadline was set.
    seen: u64,
    /// Bytes still to move that have not extended the deadline yet.
    left: u64,
}

impl Moving {
    /// Returns the state of `bytes` to move from now on.
    pub(crate) fn new(now: Instant, stall: Duration, flow: Flow, told: Option<&Told>, bytes: u64) -> Self {
        let seen = told.map_or(0, |told| told.bytes(flow));
        Self { deadline: after(now, stall), flow, seen, left: bytes }
    }

    /// Adds bytes to move.
    pub(crate) const fn add(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// Sets the bytes to move from now on; the deadline stays.
    pub(crate) const fn set_left(&mut self, bytes: u64) {
        self.left = bytes;
    }

    /// Excludes the bytes moved so far from extending the deadline.
    pub(crate) fn see(&mut self, told: Option<&Told>) {
        self.seen = told.map_or(self.seen, |told| told.bytes(self.flow));
    }

    /// Extends a deadline reached at `now` if data has moved; `false` if the deadline stands.
    pub(crate) fn goes_on(&mut self, now: Instant, pace: Pace, told: Option<&Told>) -> bool {
        self.deadline = match told {
            Some(told) => {
                let bytes = told.bytes(self.flow);
                let moved = bytes.saturating_sub(self.seen).min(self.left);
                self.seen = bytes;
                let extended = pace.extended(self.deadline, moved, told.moved_at(self.flow));
                self.left -= pace.bytes_in(extended - self.deadline).min(moved);
                extended
            }
            // Without a least rate and reports, the data gets no more time.
            None if pace.least_rate == 0 => self.deadline,
            // Without reports, all bytes get their time at the least rate.
            None => after(self.deadline, pace.time_for(std::mem::take(&mut self.left))),
        };
        self.deadline > now
    }
}

/// The longest time to a deadline, so that a caller's time cannot overflow.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the deadline after this wait.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FAR)
}

/// Returns the earliest of these deadlines.
pub(crate) fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    let earlier = |a: Option<Instant>, b| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    deadlines.into_iter().fold(None, earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_too_long() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_secs(3)), now + Duration::from_secs(3));
        assert!(after(now, Duration::MAX) > now + Duration::from_secs(1 << 30));
    }

    const PACE: Pace = Pace { stall: Duration::from_secs(30), least_rate: 1000 };

    fn progress(read: u64) -> Progress {
        Progress::new(read, 0, 0)
    }

    /// Returns the seconds until data with this rate is given up.
    fn lasts(bytes: u64, per_second: u64) -> u64 {
        let start = Instant::now();
        let mut told = Told::new(start, progress(7));
        let mut moving = Moving::new(start, PACE.stall, Flow::Read, Some(&told), bytes);
        for second in 1.. {
            let now = start + Duration::from_secs(second);
            told.update(now, progress(7 + second * per_second));
            if second * per_second >= bytes
                || (moving.deadline <= now && !moving.goes_on(now, PACE, Some(&told)))
            {
                return second;
            }
        }
        0
    }

    #[test]
    fn i6_data_goes_on_as_long_as_it_moves_at_the_least_rate() {
        assert_eq!(lasts(1_000_000, 1000), 1000, "all of it came");
        assert_eq!(lasts(1_000_000, 2000), 500);
        // Below that rate the deadline comes the later the faster the data moves, since time runs down by the missing
        // part.
        assert_eq!(lasts(1_000_000, 0), 30);
        assert_eq!(lasts(1_000_000, 1), 31);
        assert_eq!(lasts(1_000_000, 500), 60);
        // A fast beginning saves no time for later.
        let start = Instant::now();
        let mut told = Told::new(start, progress(0));
        let mut moving = Moving::new(start, PACE.stall, Flow::Read, Some(&told), 1_000_000);
        told.update(start + Duration::from_secs(1), progress(900_000));
        assert!(moving.goes_on(moving.deadline, PACE, Some(&told)));
        assert_eq!(moving.deadline, start + Duration::from_secs(31));
        assert!(!moving.goes_on(moving.deadline, PACE, Some(&told)));
    }

    #[test]
    fn i6_others_bytes_give_no_more_time_than_ones_own_take() {
        let start = Instant::now();
        let mut told = Told::new(start, progress(0));
        let mut moving = Moving::new(start, PACE.stall, Flow::Link, Some(&told), 5000);
        let mut now = start;
        while moving.deadline > now || moving.goes_on(now, PACE, Some(&told)) {
            now += Duration::from_secs(1);
            told.update(now, Progress::new(0, told.progress.sent + 100_000, 0));
        }
        assert_eq!(now - start, Duration::from_secs(35));
    }

    /// Rule I6: bytes that gave no time still count. A burst of others' data takes nothing from data of one's own.
    #[test]
    fn i6_a_burst_of_others_takes_no_time_away() {
        let start = Instant::now();
        let mut told = Told::new(start, progress(0));
        let mut moving = Moving::new(start, PACE.stall, Flow::Link, Some(&told), 1_000_000);
        told.update(start + Duration::from_secs(1), Progress::new(0, 900_000, 0));
        let mut now = start;
        for second in 2..=500 {
            now = start + Duration::from_secs(second);
            told.update(now, Progress::new(0, 900_000, second * 2000));
            assert!(moving.deadline > now || moving.goes_on(now, PACE, Some(&told)), "{second} s");
        }
        assert_eq!(now - start, Duration::from_secs(500));
    }

    #[test]
    fn where_only_completions_are_known_data_has_the_time_of_the_least_rate() {
        let start = Instant::now();
        let mut moving = Moving::new(start, PACE.stall, Flow::Sent, None, 2000);
        moving.add(3000);
        assert!(moving.goes_on(moving.deadline, PACE, None));
        assert_eq!(moving.deadline, start + Duration::from_secs(35));
        assert!(!moving.goes_on(moving.deadline, PACE, None));
    }

    /// Rule I6: only the data that someone waits for gives more time. Other data that moves on the link does not.
    #[test]
    fn i6_each_flow_has_the_time_of_its_own_progress() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut told = Told::new(start, Progress::new(0, 0, 0));
        told.update(start + second, Progress::new(7, 0, 0));
        told.update(start + 2 * second, Progress::new(7, 5, 0));
        told.update(start + 3 * second, Progress::new(7, 5, 3));
        told.update(start + 4 * second, Progress::new(7, 5, 3));
        let moved = |flow| (told.bytes(flow), told.moved_at(flow) - start);
        assert_eq!(moved(Flow::Read), (7, second));
        assert_eq!(moved(Flow::Sent), (5, 2 * second));
        assert_eq!(moved(Flow::SentAndRead), (12, 2 * second));
        assert_eq!(moved(Flow::Link), (8, 3 * second));
    }

    /// Rule I6: without a least rate and without reports of progress, nothing gives the data more time.
    #[test]
    fn i6_where_only_completions_are_known_no_least_rate_gives_no_more_time() {
        let start = Instant::now();
        let mut moving = Moving::new(start, PACE.stall, Flow::Sent, None, 2000);
        assert!(!moving.goes_on(moving.deadline, Pace { least_rate: 0, ..PACE }, None));
        assert_eq!(moving.deadline, start + PACE.stall);
    }

    #[test]
    fn no_byte_takes_too_long() {
        let now = Instant::now();
        let any = Pace { least_rate: 0, ..PACE };
        assert_eq!((PACE.time_for(1500), PACE.time_for(0)), (Duration::from_millis(1500), Duration::ZERO));
        assert_eq!((any.time_for(0), any.time_for(1)), (Duration::ZERO, FAR));
        assert_eq!(PACE.time_for(u64::MAX), FAR);
        assert_eq!((PACE.bytes_in(Duration::from_millis(1500)), any.bytes_in(FAR)), (1500, 0));
        assert_eq!(any.extended(now, 1, now), now + PACE.stall);
        assert_eq!(PACE.extended(now, 0, now + PACE.stall), now, "nothing has moved");
    }

    #[test]
    fn the_earliest_deadline_is_one_that_is_set() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        assert_eq!(earliest([Some(later), None, Some(now)]), Some(now));
        assert_eq!(earliest([None, Some(now), Some(later)]), Some(now));
        assert_eq!(earliest([None, Some(later)]), Some(later));
        assert_eq!(earliest([None, None]), None);
    }

    /// Bytes that moved before are no reason for more time.
    #[test]
    fn i6_bytes_that_were_seen_extend_no_deadline() {
        for sees in [false, true] {
            let start = Instant::now();
            let mut told = Told::new(start, progress(0));
            let mut moving = Moving::new(start, PACE.stall, Flow::Read, Some(&told), 1_000_000);
            told.update(start + Duration::from_secs(1), progress(10_000));
            if sees {
                moving.see(Some(&told));
            }
            let deadline = moving.deadline;
            assert_eq!(moving.goes_on(deadline, PACE, Some(&told)), !sees);
        }
    }
}
