//! All timers of a connection and a session in one table (rule I6).
//!
//! Times are arguments; nothing here reads a clock. Timers of the provider (MPA start-up, partial FPDU, stalled send) are
//! set there.
//!
//! A slow peer is not a stalled one. Timers for data under way measure lack of progress: [`rdma_read`](Timeouts::rdma_read),
//! [`send`](Timeouts::send), [`call`](Timeouts::call), [`abandoned`](Timeouts::abandoned), and [`close`](Timeouts::close).
//! By [`Pace`] each byte that moves buys time at the [`least_rate`](Timeouts::least_rate), up to the whole time again. So a peer
//! that keeps to that rate is never cut off, and a peer that sends a byte now and then is.
//!
//! The driver tells how far data has got ([`Connection::handle_progress`](crate::Connection::handle_progress)), as far as the
//! provider knows. A provider that knows nothing but completions is allowed for beforehand: its time is longer by what the data
//! takes at the least rate.

use std::time::{Duration, Instant};

use rpcrdma_verbs::{Pace, Progress};

/// How long is waited for what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// For the reply to a call that sets no time of its own; then the call fails and its memory waits on. If chunks move
    /// when it runs out, the call has more time: as long as they keep to the [least rate](Self::least_rate), and at the most what all
    /// chunks of calls in flight take at that rate.
    pub call: Duration,
    /// For the late reply to a call that was abandoned or timed out; then the connection is closed to get its memory back. As for
    /// [`call`](Self::call), data that moves gives more time.
    pub abandoned: Duration,
    /// Without progress of the RDMA Reads under way, or of what leaves before their Requests; then the connection is closed.
    pub rdma_read: Duration,
    /// Without progress of what is being sent: Sends, and RDMA Writes of replies; then the connection is closed.
    pub send: Duration,
    /// Bytes in a second: data under way that moves slower than this on average counts as standing still. 0: any byte is
    /// progress, and a provider that tells no progress gives data no more time than these timers.
    pub least_rate: u64,
    /// For memory of the domain to pull a Call's chunks into, when it is its turn; then the connection is closed. Time
    /// runs while no RDMA Read is under way: memory of those that are comes back. It does not end while Sends or RDMA Writes are
    /// under way, whose memory comes back too.
    pub memory: Duration,
    /// For the peer to let an answer leave, where it counts messages (version-two-07 §4.2.1); then the connection is closed.
    pub credits: Duration,
    /// For the rest of a message that comes in several Sends, from its first one on; then the connection is closed.
    pub continuation: Duration,
    /// For an invalidation that a completed call waits for; then the connection is closed.
    pub invalidate: Duration,
    /// For the RDMA_DONE of a reply whose data is exposed (RFC 5666 §3.8); then the data is closed to the peer, and a later Read
    /// of it ends the connection. Who reads such a reply, waits for memory included, has three quarters of this; then the
    /// connection is closed.
    pub done: Duration,
    /// Without progress of what is left to send on a connection that was told to close in order; then it is aborted.
    pub close: Duration,
    /// Without any call in progress, after which a connection is closed; `None` keeps it.
    pub idle: Option<Duration>,
    /// For a connection attempt; then the next one is due.
    pub connect: Duration,
    /// For the answer to the first message of a version that the peer may not speak; then it is taken for one that does not
    /// (version-two-01 §5.2). Also for what the peer tells of itself behind that answer, while a Call waits for it (version-two-07 §5.1).
    pub offer: Duration,
    /// For which a peer is taken for one that speaks Version One only; then a higher version is offered again, on the next
    /// connection.
    pub version_memory: Duration,
    /// For the first message of a client, which says the version, while a Call of the server waits for it; then the client is taken
    /// for one that speaks Version One: one that prefers another version offers it at once.
    pub first_message: Duration,
    /// The first pause before a connection is tried again; doubled with each failure.
    pub reconnect_least: Duration,
    /// The longest pause before a connection is tried again.
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
    /// Default of [`least_rate`](Self::least_rate): 64 kbit/s. Twice as fast as that, 1 MiB takes a minute.
    pub const LEAST_RATE: u64 = 8 << 10;

    /// For which a message that the peer exposes can be read: three quarters of `done`. The peer, whose `done` is taken to be ours,
    /// began to wait before, and the RDMA_DONE is on its way after.
    pub(crate) fn read_by(&self) -> Duration {
        self.done - self.done / 4
    }

    pub(crate) const fn pace(&self, stall: Duration) -> Pace {
        Pace { stall, least_rate: self.least_rate }
    }
}

/// How far data had got when the driver told last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) progress: Progress,
    /// When each of its numbers moved last.
    read_at: Instant,
    sent_at: Instant,
    link_at: Instant,
}

/// A number of [`Progress`], or two of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Answers to our RDMA Reads.
    Read,
    /// These, and bytes that leave: an RDMA Read Request waits behind what was posted before it.
    SentAndRead,
    /// Bytes that leave.
    Sent,
    /// Bytes that leave or come.
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

/// Data under way. Whether it moves is looked at only when its time is up, so that bytes cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) deadline: Instant,
    flow: Flow,
    /// Bytes that had moved when the deadline was set.
    seen: u64,
    /// Bytes that may give it more time: those that are to move, as far as they have not given any.
    left: u64,
}

impl Moving {
    /// `bytes` are to move from now on.
    pub(crate) fn new(now: Instant, stall: Duration, flow: Flow, told: Option<&Told>, bytes: u64) -> Self {
        let seen = told.map_or(0, |told| told.bytes(flow));
        Self { deadline: after(now, stall), flow, seen, left: bytes }
    }

    /// So many more are.
    pub(crate) const fn add(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    /// So many bytes are to move from now on, whatever was before; the deadline stays.
    pub(crate) const fn set_left(&mut self, bytes: u64) {
        self.left = bytes;
    }

    /// Bytes that have moved by now give no time.
    pub(crate) fn see(&mut self, told: Option<&Told>) {
        self.seen = told.map_or(self.seen, |told| told.bytes(self.flow));
    }

    /// Its time is up at `now`: sets the deadline anew if it has moved; `false` if it is up all the same.
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
            // Neither is known how far they have got, nor how long they may take.
            None if pace.least_rate == 0 => self.deadline,
            // Nothing is known: they all may take their time.
            None => after(self.deadline, pace.time_for(std::mem::take(&mut self.left))),
        };
        self.deadline > now
    }
}

/// No deadline is further away than this, so that adding a caller's time cannot overflow.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The deadline of something that may take so long.
#[must_use]
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FAR)
}

/// The earlier of two deadlines.
#[must_use]
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
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

    /// Seconds until data under way is given up that moves so many bytes each second.
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
        // Below that it is given up, the later the faster it is: time runs down by what is missing.
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

    #[test]
    fn where_only_completions_are_known_data_has_the_time_of_the_least_rate() {
        let start = Instant::now();
        let mut moving = Moving::new(start, PACE.stall, Flow::Sent, None, 2000);
        moving.add(3000);
        assert!(moving.goes_on(moving.deadline, PACE, None));
        assert_eq!(moving.deadline, start + Duration::from_secs(35));
        assert!(!moving.goes_on(moving.deadline, PACE, None));
    }

    /// Rule I6: without a least rate, and without a word of progress, nothing tells for how long data may take.
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
    fn earlier_prefers_what_is_set() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        assert_eq!(earlier(Some(later), Some(now)), Some(now));
        assert_eq!(earlier(None, Some(later)), Some(later));
        assert_eq!(earlier(Some(later), None), Some(later));
        assert_eq!(earlier(None, None), None);
    }
}
