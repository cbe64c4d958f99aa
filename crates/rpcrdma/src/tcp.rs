//! RPC over TCP with record marking (RFC 5531 §11): the client's and the server's side of a connection.

pub(crate) mod client;
pub(crate) mod record;
pub(crate) mod server;

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Longest time that `TCP_USER_TIMEOUT` takes: it is an `int` of milliseconds.
#[cfg(target_os = "linux")]
const USER_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);

/// Sets what every connection has: no delay of small records, and timers that find a dead peer (I6).
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

/// A time so far away that nobody waits for it.
const NEVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// `from` and this much later. What a caller sets may be too long for the clock.
pub(crate) fn after(from: Instant, wait: Duration) -> Instant {
    from.checked_add(wait).unwrap_or_else(|| from + NEVER)
}
