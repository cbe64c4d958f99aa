//! The bases: a plain TCP stream of 1 MiB writes, and a ping-pong of 128 bytes.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::OPERATION;

/// Bytes of each message of the ping-pong.
const MESSAGE: usize = 128;

/// Serves both bases. The first byte of a connection selects stream or ping-pong.
pub(super) async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            // The client reports a measurement that fails.
            let _ = serve_one(stream).await;
        });
    }
}

async fn serve_one(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match stream.read_u8().await? {
        b'S' => {
            let mut block = vec![0; OPERATION];
            loop {
                let mut left = stream.read_u64().await?;
                while left > 0 {
                    let room = usize::try_from(left).unwrap_or(OPERATION).min(OPERATION);
                    let count = match stream.read(block.get_mut(..room).unwrap_or_default()).await? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => count,
                    };
                    left -= count as u64;
                }
                stream.write_u8(1).await?;
            }
        }
        _ => {
            let mut message = [0; MESSAGE];
            loop {
                stream.read_exact(&mut message).await?;
                stream.write_all(&message).await?;
            }
        }
    }
}

/// Client of the stream.
pub(super) struct Stream {
    stream: TcpStream,
    block: Vec<u8>,
}

impl Stream {
    pub(super) async fn connect(to: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        stream.write_u8(b'S').await?;
        Ok(Self { stream, block: vec![0x5a; OPERATION] })
    }

    /// Sends until the peer has all data. Returns bytes a second.
    pub(super) async fn run(&mut self, operations: u32) -> io::Result<f64> {
        let start = Instant::now();
        let bytes = u64::from(operations) * OPERATION as u64;
        self.stream.write_u64(bytes).await?;
        for _ in 0..operations {
            self.stream.write_all(&self.block).await?;
        }
        self.stream.read_u8().await?;
        Ok(super::rate(operations, start.elapsed()))
    }
}

/// Client of the ping-pong.
pub(super) struct PingPong {
    stream: TcpStream,
}

impl PingPong {
    pub(super) async fn connect(to: SocketAddr) -> io::Result<Self> {
        let mut stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        stream.write_u8(b'P').await?;
        Ok(Self { stream })
    }

    /// Returns the median round trip in seconds.
    pub(super) async fn run(&mut self, times: u32) -> io::Result<f64> {
        let mut message = [7; MESSAGE];
        let mut trips = Vec::with_capacity(times as usize);
        for _ in 0..times {
            let start = Instant::now();
            self.stream.write_all(&message).await?;
            self.stream.read_exact(&mut message).await?;
            trips.push(start.elapsed().as_secs_f64());
        }
        Ok(super::table::median(trips))
    }
}
