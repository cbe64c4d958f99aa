//! Raw TCP, the base of the ratios: streams in both directions, and a ping-pong of 128 bytes.
//!
//! A connection begins with a header of 13 bytes. It has the number of a session, a letter for the kind, and
//! the length of each write of the server. The server admits it with one byte, or closes it. Both sides own their
//! blocks for as long as the connection lasts. An error ends the connection; the client reports it.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use super::{FILE_OPERATIONS, OPERATION};

/// Bytes of each message of the ping-pong.
pub(super) const MESSAGE: usize = 128;
/// Session, kind, and bytes of a write.
const HEADER: usize = 8 + 1 + 4;
/// Answer to a header that the server accepts.
const WELCOME: u8 = b'!';
/// Length of a stream that lasts until its end.
pub(super) const ENDLESS: u64 = u64::MAX;

/// Connections without a header that a server keeps at a time; further ones wait.
const STRANGERS: usize = 64;
/// Time for a header.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Kind of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server reads streams. Each begins with its length, and has as its answer the bytes that arrived.
    Sink,
    /// The server writes, until the client closes the connection.
    Source,
    /// The server returns each message.
    Echo,
}

impl Kind {
    const fn letter(self) -> u8 {
        match self {
            Self::Sink => b'S',
            Self::Source => b'R',
            Self::Echo => b'P',
        }
    }

    fn of(letter: u8) -> io::Result<Self> {
        [Self::Sink, Self::Source, Self::Echo]
            .into_iter()
            .find(|kind| kind.letter() == letter)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no kind of connection"))
    }
}

/// Decides which connections a server admits: those of a session, by its number.
pub(super) type Door = Arc<dyn Fn(u64) -> Option<Pass> + Send + Sync>;

/// Returns a door for everyone, for a server in the process of its only client.
pub(super) fn open_door() -> Door {
    Arc::new(|_| Some(Pass::default()))
}

/// The right of a connection to go on. It counts against its session until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Bytes that came by streams.
    pub(super) received: Arc<AtomicU64>,
    /// Closed when the session ends.
    pub(super) session: Option<watch::Receiver<()>>,
    /// One of the session's places.
    #[expect(dead_code, reason = "it counts for as long as it is held")]
    pub(super) place: Option<Arc<()>>,
}

impl Pass {
    /// Waits for the end of the session.
    async fn over(session: Option<watch::Receiver<()>>) {
        match session {
            Some(mut session) => while session.changed().await.is_ok() {},
            None => std::future::pending().await,
        }
    }
}

/// Serves connections of all kinds.
pub(super) async fn serve(listener: TcpListener, door: Door) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    // Nobody closes the semaphore.
    while let Ok(stranger) = Arc::clone(&strangers).acquire_owned().await {
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            let Ok(Ok((kind, size, mut pass))) = timeout(HEADER_TIME, admit(&mut stream, &door)).await else {
                return;
            };
            drop(stranger);
            let over = Pass::over(pass.session.take());
            // The client reports a measurement that fails.
            tokio::select! {
                _ = serve_one(stream, kind, size, &pass) => {}
                () = over => {}
            }
        });
    }
}

/// Reads a header, and answers it.
async fn admit(stream: &mut TcpStream, door: &Door) -> io::Result<(Kind, usize, Pass)> {
    stream.set_nodelay(true)?;
    let session = stream.read_u64().await?;
    let kind = Kind::of(stream.read_u8().await?)?;
    let size = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX).clamp(1, OPERATION);
    let pass = door(session).ok_or(io::ErrorKind::PermissionDenied)?;
    stream.write_u8(WELCOME).await?;
    Ok((kind, size, pass))
}

async fn serve_one(mut stream: TcpStream, kind: Kind, size: usize, pass: &Pass) -> io::Result<()> {
    match kind {
        Kind::Sink => {
            let mut block = vec![0; OPERATION];
            loop {
                let length = stream.read_u64().await?;
                let mut left = length;
                while left > 0 {
                    let room = usize::try_from(left).unwrap_or(OPERATION).min(OPERATION);
                    let count = match stream.read(block.get_mut(..room).unwrap_or_default()).await? {
                        0 if length == ENDLESS => break,
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        count => count as u64,
                    };
                    pass.received.fetch_add(count, Ordering::Relaxed);
                    left -= count;
                }
                stream.write_u64(length - left).await?;
            }
        }
        Kind::Source => {
            let block = vec![0x5a; size];
            loop {
                stream.write_all(&block).await?;
            }
        }
        Kind::Echo => {
            let mut message = [0; MESSAGE];
            loop {
                stream.read_exact(&mut message).await?;
                stream.write_all(&message).await?;
            }
        }
    }
}

/// Opens a connection of a session. A server with an [`open_door`] looks at no session.
pub(super) async fn open(to: SocketAddr, session: u64, kind: Kind, size: usize) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(&session.to_be_bytes());
    header.push(kind.letter());
    header.extend_from_slice(&u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
    stream.write_all(&header).await?;
    match stream.read_u8().await {
        Ok(WELCOME) => Ok(stream),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "this port is not one of raw TCP")),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the server closed a raw TCP connection: its session has ended, or has no place left",
        )),
    }
}

/// Client of a stream to a server in this process.
pub(super) struct Stream {
    stream: TcpStream,
    block: Vec<u8>,
}

impl Stream {
    pub(super) async fn connect(to: SocketAddr) -> io::Result<Self> {
        let stream = open(to, 0, Kind::Sink, OPERATION).await?;
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
        self.stream.read_u64().await?;
        Ok(super::rate(operations, start.elapsed()))
    }

    /// Sends a file of the page cache, operation after operation and again from its start, until the peer has all data:
    /// what any server must do that copies files into messages. Returns bytes a second.
    pub(super) async fn run_file(&mut self, file: &File, operations: u32) -> io::Result<f64> {
        let start = Instant::now();
        let bytes = u64::from(operations) * OPERATION as u64;
        self.stream.write_u64(bytes).await?;
        for operation in 0..operations {
            let offset = u64::from(operation % FILE_OPERATIONS) * OPERATION as u64;
            file.read_exact_at(&mut self.block, offset)?;
            self.stream.write_all(&self.block).await?;
        }
        self.stream.read_u64().await?;
        Ok(super::rate(operations, start.elapsed()))
    }
}

/// Client of the ping-pong.
pub(super) struct PingPong {
    stream: TcpStream,
    message: [u8; MESSAGE],
}

impl PingPong {
    /// Connects to a server in this process.
    pub(super) async fn connect(to: SocketAddr) -> io::Result<Self> {
        Ok(Self::on(open(to, 0, Kind::Echo, MESSAGE).await?))
    }

    /// Uses this connection.
    pub(super) const fn on(stream: TcpStream) -> Self {
        Self { stream, message: [7; MESSAGE] }
    }

    /// Returns the time of a round trip.
    pub(super) async fn trip(&mut self) -> io::Result<Duration> {
        let start = Instant::now();
        self.stream.write_all(&self.message).await?;
        self.stream.read_exact(&mut self.message).await?;
        Ok(start.elapsed())
    }

    /// Returns the median round trip in seconds.
    pub(super) async fn run(&mut self, times: u32) -> io::Result<f64> {
        let mut trips = Vec::with_capacity(times as usize);
        for _ in 0..times {
            trips.push(self.trip().await?.as_secs_f64());
        }
        Ok(super::table::median(trips))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::remote::sessions::{Sessions, testing};

    /// Serves raw TCP to sessions.
    async fn server() -> (SocketAddr, Sessions) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, sessions) = (listener.local_addr().unwrap(), testing::sessions());
        tokio::spawn(serve(listener, sessions.door()));
        (address, sessions)
    }

    #[tokio::test]
    async fn a_stream_is_counted_and_has_its_length_as_the_answer() {
        let (address, sessions) = server().await;
        let session = testing::open(&sessions);
        let mut stream = open(address, session, Kind::Sink, 1).await.unwrap();
        stream.write_u64(3).await.unwrap();
        stream.write_all(b"abc").await.unwrap();
        assert_eq!(stream.read_u64().await.unwrap(), 3);
        stream.write_u64(ENDLESS).await.unwrap();
        stream.write_all(&[0; 70_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read_u64().await.unwrap(), 70_000);
        assert_eq!(testing::received(&sessions, session), 70_003);
    }

    #[tokio::test]
    async fn a_source_writes_and_an_echo_answers() {
        let (address, sessions) = server().await;
        let session = testing::open(&sessions);
        let mut stream = open(address, session, Kind::Source, 4096).await.unwrap();
        let mut block = [0; 10_000];
        stream.read_exact(&mut block).await.unwrap();
        assert!(block.iter().all(|byte| *byte == 0x5a));
        let mut ping_pong = PingPong::on(open(address, session, Kind::Echo, 1).await.unwrap());
        ping_pong.trip().await.unwrap();
    }

    /// Sends a header as it is. Returns what the server answers until it closes the connection.
    async fn answer(address: SocketAddr, header: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(header).await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn i6_a_connection_without_a_session_or_of_no_kind_is_closed() {
        let (address, sessions) = server().await;
        let session = testing::open(&sessions).to_be_bytes();
        for (session, kind) in [([7; 8], b'S'), (session, b'X'), (session, 0)] {
            let header = [&session[..], &[kind], &[0xff; 4]].concat();
            assert_eq!(answer(address, &header).await, b"");
        }
        let error = open(address, 7, Kind::Echo, 1).await.unwrap_err();
        assert!(error.to_string().contains("its session has ended"), "{error}");
    }

    #[tokio::test]
    async fn i6_the_end_of_a_session_ends_its_connections() {
        let (address, sessions) = server().await;
        let session = testing::open(&sessions);
        let mut stream = open(address, session, Kind::Echo, 1).await.unwrap();
        testing::close(&sessions, session);
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }
}
