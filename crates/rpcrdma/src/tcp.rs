//! RPC over TCP with record marking (RFC 5531 §11): the client's and the server's side of a connection.

pub(crate) mod client;
pub(crate) mod record;
pub(crate) mod server;

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Sets what every connection has: no delay of small records, and timers that find a dead peer (I6).
pub(crate) fn prepare(stream: &TcpStream, keep_alive: Duration, stall: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let interval = (keep_alive / 4).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(keep_alive).with_interval(interval))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(stall))?;
    #[cfg(not(target_os = "linux"))]
    let _ = stall;
    Ok(())
}
