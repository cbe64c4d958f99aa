//! RPC over TCP with record marking (RFC 5531 §11): the client's and the server's side of a connection.
//!
//! With TLS (RFC 9289) three files more take part: `door` at the server and `starttls` at the client come before the
//! handshake, `tls` is the stream after it. Without TLS no call comes near them.

pub(crate) mod client;
mod door;
pub(crate) mod record;
pub(crate) mod server;
mod starttls;
mod stream;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpcrdma_proto::Pace;
use rpcrdma_verbs::TcpEnds;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Longest time that `TCP_USER_TIMEOUT` takes, an `int` of milliseconds.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);

/// Sets the options of every connection: no delay of small records, and timers that find a dead peer (I6).
pub(crate) fn prepare(stream: &TcpStream, keep_alive: Duration, stall: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let interval = (keep_alive / 4).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(keep_alive).with_interval(interval))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(stall.min(USER_TIMEOUT_MAX)))?;
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
    Ok(())
}

/// Returns the ends of an accepted connection, by which the owner of the other end is found.
pub(crate) fn ends(stream: &TcpStream, peer: SocketAddr) -> io::Result<TcpEnds> {
    let inode = rustix::fs::fstat(stream)?.st_ino;
    Ok(TcpEnds { local: stream.local_addr()?, peer, inode })
}

/// The progress of data on connections, for calls that wait for it.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Bytes in both directions, and the time of the last of them.
    state: Mutex<(u64, Instant)>,
}

impl Moved {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new((0, Instant::now())) }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Instant)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes that have passed.
    fn add(&self, bytes: usize, now: Instant) {
        let mut state = self.lock();
        *state = (state.0.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX)), now);
    }

    /// Returns the bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().0
    }
}

/// The time that a call still waits, by the rules of [`Timeouts::call`](rpcrdma_proto::Timeouts::call) for calls over
/// RDMA.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) deadline: Instant,
    /// The time at which the call ends, whatever has moved.
    until: Option<Instant>,
    pace: Pace,
    seen: u64,
}

impl Patience {
    pub(crate) fn new(pace: Pace, moved: &Moved) -> Self {
        Self { deadline: after(Instant::now(), pace.stall), until: None, pace, seen: moved.bytes() }
    }

    /// Ends the call at this time, whatever has moved.
    pub(crate) fn until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }

    /// Extends the time, which is up, for data that has moved; returns whether any is left. At most `left` bytes extend
    /// it; those that did are subtracted.
    pub(crate) fn goes_on(&mut self, moved: &Moved, left: &mut u64) -> bool {
        let (bytes, at) = *moved.lock();
        let gained = bytes.saturating_sub(self.seen).min(*left);
        self.seen = bytes;
        let extended = Instant::from_std(self.pace.extended(self.deadline.into_std(), gained, at.into_std()));
        *left -= self.pace.bytes_in(extended - self.deadline).min(gained);
        self.deadline = self.until.map_or(extended, |until| extended.min(until));
        self.deadline > Instant::now()
    }
}

/// A time so long that no caller waits for its end.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Returns the time `wait` after `from`; a `wait` too long for the clock becomes [`NEVER`].
pub(crate) fn after(from: Instant, wait: Duration) -> Instant {
    from.checked_add(wait).unwrap_or_else(|| from + NEVER)
}
