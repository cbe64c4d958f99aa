//! All timers of a connection and a session in one table (rule I6).
//!
//! Times are arguments; nothing here reads a clock. Timers of the provider (MPA start-up, partial FPDU, stalled send) are
//! set there.

use std::time::{Duration, Instant};

/// How long is waited for what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeouts {
    /// For the reply to a call that sets no time of its own; then the call fails and its memory waits on.
    pub call: Duration,
    /// For the late reply to a call that was abandoned or timed out; then the connection is closed to get its memory back.
    pub abandoned: Duration,
    /// For an RDMA Read of a Call's chunks; then the connection is closed.
    pub rdma_read: Duration,
    /// For memory of the domain to pull a Call's chunks into; then the connection is closed.
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
    /// For the end of a connection that was told to close in order; then it is aborted.
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
