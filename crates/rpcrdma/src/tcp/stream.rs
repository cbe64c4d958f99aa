//! [`ByteStream`]: what records travel on. A TCP connection is one as it is; TLS on one is another (`tls`).
//!
//! Reader and writer of records are generic over it, so that plain TCP has no layer between.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::task::yield_now;

/// A stream of bytes that never blocks. Several futures may use it at a time.
pub(crate) trait ByteStream: Send + Sync {
    /// Reads what is there, 0 bytes at the end; `WouldBlock` if there is nothing.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes what the stream takes, and returns how much; `WouldBlock` if it takes nothing. Bytes that were not written
    /// have to come first in the next call.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until a read may succeed. Cancel safe.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits until a write may succeed. Cancel safe.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Bytes that are discarded at a time.
const DISCARDED: usize = 16 << 10;

/// Closes the sending half, waits until the peer has closed, and discards what it still sends. A socket closed with unread
/// data would reset the connection, and the peer might never see what was sent last. The caller limits the time.
pub(crate) async fn linger(socket: &TcpStream) {
    if SockRef::from(socket).shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut discarded = vec![0; DISCARDED];
    while socket.readable().await.is_ok() {
        match socket.try_read(&mut discarded) {
            Ok(1..) => yield_now().await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

impl ByteStream for TcpStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, buffer)
    }

    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::try_write_vectored(self, slices)
    }

    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::readable(self)
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::writable(self)
    }
}
