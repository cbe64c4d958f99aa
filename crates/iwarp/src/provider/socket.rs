//! Socket options and the bytes of start-up.

use std::io;
use std::time::Duration;

use rpcrdma_verbs::ConnectError;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::engine::Timeouts;
use crate::startup::{MAX_FRAME, StartupError};
use crate::wire::ddp::{FIRST_MSN, Untagged, queue};
use crate::wire::fpdu::seal;
use crate::wire::rdmap::Opcode;
use crate::wire::terminate::Terminate;

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 6;
/// Maximum number of unsent bytes in TCP, on Linux. More bytes would only wait in the kernel, beyond the scheduler that
/// lets small messages pass. With far fewer bytes both ends sleep and wake each other for every other segment. At 128
/// KiB a stream over loopback has less than half of the rate at 512 KiB. Larger values do not help.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_UNSENT: u32 = 512 * 1024;
/// Largest value of `TCP_USER_TIMEOUT`: an `int` of milliseconds.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX.unsigned_abs() as u64);
/// Segment size where the socket does not report it: that of Ethernet with timestamps.
const DEFAULT_EMSS: usize = 1448;

/// Sets the options of a connection: no delay, keep-alive, and a limit on unacknowledged data.
pub(super) fn configure(stream: &TcpStream, timeouts: &Timeouts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(timeouts.keepalive)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        socket.set_tcp_user_timeout(Some(timeouts.stalled_send.min(USER_TIMEOUT_MAX)))?;
        // An optimisation; correctness does not depend on it.
        let _ = socket.set_tcp_notsent_lowat(MAX_UNSENT);
    }
    Ok(())
}

/// Returns the present size of a full TCP segment.
pub(super) fn emss(stream: &TcpStream) -> usize {
    let told = SockRef::from(stream).tcp_mss().ok().and_then(|mss| usize::try_from(mss).ok());
    told.filter(|&mss| mss > 0).unwrap_or(DEFAULT_EMSS)
}

/// Reads until `feed` has its frame. `within` bounds the total wait.
pub(super) async fn read_frame<T>(
    stream: &mut TcpStream,
    within: Duration,
    what: &'static str,
    mut feed: impl FnMut(&[u8]) -> Result<Option<T>, StartupError>,
) -> Result<T, FrameFailure> {
    let read = async {
        let mut buffer = [0; MAX_FRAME];
        loop {
            let count = stream.read(&mut buffer).await.map_err(ConnectError::Io)?;
            if count == 0 {
                let closed = format!("the peer closed before {what}");
                return Err(FrameFailure::Connect(ConnectError::Protocol(closed)));
            }
            let bytes = buffer.get(..count).unwrap_or_default();
            if let Some(result) = feed(bytes).map_err(FrameFailure::Startup)? {
                return Ok(result);
            }
        }
    };
    tokio::time::timeout(within, read)
        .await
        .unwrap_or(Err(FrameFailure::Connect(ConnectError::Timeout("the peer's MPA start-up frame"))))
}

/// Reason for a missing frame.
pub(super) enum FrameFailure {
    /// The frame is invalid, or rejects the connection.
    Startup(StartupError),
    /// The link failed.
    Connect(ConnectError),
}

impl From<ConnectError> for FrameFailure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

/// Sends the Terminate of a failed set-up (RFC 6581 §9). Its arrival does not matter.
pub(super) async fn last_words(stream: &mut TcpStream, error: &StartupError, within: Duration) {
    let Some(cause) = error.last_words() else { return };
    let header = Untagged {
        last: true,
        control: Opcode::Terminate.control(),
        invalidate: 0,
        queue: queue::TERMINATE,
        msn: FIRST_MSN,
        offset: 0,
    };
    let mut ulpdu = header.encode().to_vec();
    let (bytes, used) = Terminate::bare(cause).encode();
    ulpdu.extend_from_slice(bytes.get(..used).unwrap_or_default());
    let Some(fpdu) = seal(&ulpdu, true) else { return };
    let send = async {
        let _ = stream.write_all(&fpdu).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(within, send).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_has_its_options() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let hours = Duration::from_secs(3600 * 24 * 365);
        for (stalled_send, limit) in
            [(Duration::from_secs(7), Duration::from_secs(7)), (hours, USER_TIMEOUT_MAX)]
        {
            let timeouts =
                Timeouts { keepalive: Duration::from_secs(5), stalled_send, ..Timeouts::default() };
            configure(&stream, &timeouts).unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(5));
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
        }
        assert_eq!(emss(&stream), usize::try_from(SockRef::from(&stream).tcp_mss().unwrap()).unwrap());
    }
}
