//! A delay line: TCP as over a long link, on the loopback interface, in real time.
//!
//! Each direction of a connection holds its bytes for the delay, counted from their arrival, and passes them
//! on in order. The end of a stream is delayed too. There is no bandwidth: bytes that arrive together leave
//! together. A direction holds a limited number of bytes. While it is full it reads nothing, and TCP holds
//! the sender back.
//!
//! Each direction has two blocking threads, a reader and a writer, because the timers of a runtime are too
//! coarse. They end with their connection, or when the line is dropped, which cuts its connections. A failure
//! of either side ends both.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Most bytes that a direction holds.
const MAX_HELD: usize = 8 << 20;
/// Most bytes that are read at a time.
const BLOCK: usize = 64 << 10;
/// Cost of a block beside its bytes.
const BLOCK_COST: usize = 64;

/// Listener on a port of its own that connects each connection to the destination.
#[derive(Debug)]
pub(super) struct DelayLine {
    address: SocketAddr,
    accepting: JoinHandle<()>,
    /// Sockets of both sides of all connections.
    streams: Streams,
}

type Streams = Arc<Mutex<Vec<TcpStream>>>;

impl DelayLine {
    /// Starts a line to `to` that holds everything for `delay` each way.
    ///
    /// # Errors
    /// The socket cannot listen.
    pub(super) async fn start(to: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let streams = Streams::default();
        let kept = Arc::clone(&streams);
        let accepting = tokio::spawn(async move {
            // If the onward connection fails, this connection ends, and its client sees that.
            while let Ok((near, _)) = listener.accept().await {
                let before = locked(&kept).len();
                if let Ok(far) = tokio::net::TcpStream::connect(to).await
                    && lead(near, far, delay, &kept).is_err()
                {
                    cut(locked(&kept).drain(before..));
                }
            }
        });
        Ok(Self { address, accepting, streams })
    }

    /// Returns the address to connect to.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.accepting.abort();
        cut(locked(&self.streams).drain(..));
    }
}

fn cut(streams: impl Iterator<Item = TcpStream>) {
    for stream in streams {
        // The stream may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Starts both directions between two ends.
fn lead(
    near: tokio::net::TcpStream,
    far: tokio::net::TcpStream,
    delay: Duration,
    streams: &Streams,
) -> io::Result<()> {
    let blocking = |stream: tokio::net::TcpStream| {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok::<_, io::Error>(stream)
    };
    let (near, far) = (blocking(near)?, blocking(far)?);
    locked(streams).extend([near.try_clone()?, far.try_clone()?]);
    for (from, to) in [(near.try_clone()?, far.try_clone()?), (far, near)] {
        let held = Arc::new(Held::new(MAX_HELD));
        let filled = Arc::clone(&held);
        thread::Builder::new().name("delay-in".to_owned()).spawn(move || fill(from, &filled))?;
        thread::Builder::new().name("delay-out".to_owned()).spawn(move || drain(&held, to, delay))?;
    }
    Ok(())
}

/// Reads until the stream ends or the writer has given up.
fn fill(mut from: TcpStream, held: &Held) {
    let mut block = vec![0; BLOCK];
    loop {
        let len = match from.read(&mut block) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                // The writer sees that the socket is closed for writing, or the end that follows.
                let _ = from.shutdown(Shutdown::Both);
                0
            }
        };
        let data = block.get(..len).unwrap_or(&[]).to_vec();
        let arrived = Instant::now();
        if !held.put(Block { arrived, data }) {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
        if len == 0 {
            return;
        }
    }
}

/// Writes each block when it is due, until the end of the stream.
fn drain(held: &Held, mut to: TcpStream, delay: Duration) {
    loop {
        let Block { arrived, data } = held.take();
        thread::sleep((arrived + delay).saturating_duration_since(Instant::now()));
        if data.is_empty() {
            // The stream may have ended already.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if to.write_all(&data).is_err() {
            held.give_up();
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Bytes that were read together; empty at the end of the stream.
#[derive(Debug)]
struct Block {
    arrived: Instant,
    data: Vec<u8>,
}

impl Block {
    fn cost(&self) -> usize {
        self.data.len() + BLOCK_COST
    }
}

/// Blocks in one direction of the line, in the order of their arrival.
#[derive(Debug)]
struct Held {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    blocks: VecDeque<Block>,
    /// Cost of all blocks.
    cost: usize,
    /// Whether blocks are no longer accepted.
    given_up: bool,
}

impl Held {
    fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for space, of which there always is enough if nothing is held. Returns whether the block was
    /// accepted.
    fn put(&self, block: Block) -> bool {
        let full =
            |state: &mut State| !state.given_up && state.cost > 0 && state.cost + block.cost() > self.most;
        let waited = self.changed.wait_while(locked(&self.state), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.given_up {
            state.cost += block.cost();
            state.blocks.push_back(block);
            self.changed.notify_all();
        }
        !state.given_up
    }

    /// Waits for a block.
    fn take(&self) -> Block {
        let mut state = locked(&self.state);
        loop {
            if let Some(block) = state.blocks.pop_front() {
                state.cost -= block.cost();
                self.changed.notify_all();
                return block;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Accepts no more blocks, and wakes the reader that waits for space.
    fn give_up(&self) {
        let mut state = locked(&self.state);
        *state = State { given_up: true, ..State::default() };
        self.changed.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// Returns a line to a socket of the test, and both ends of a connection through it.
    async fn connected() -> (DelayLine, tokio::net::TcpStream, tokio::net::TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let line = DelayLine::start(listener.local_addr().unwrap(), DELAY).await.unwrap();
        let near = tokio::net::TcpStream::connect(line.address()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        (line, near, far)
    }

    #[test]
    fn bytes_and_the_end_come_in_order_and_not_before_the_delay() {
        runtime().block_on(async {
            let (_line, mut near, mut far) = connected().await;
            let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
            let expected = sent.clone();
            let began = Instant::now();
            let writing = tokio::spawn(async move {
                near.write_all(&sent).await.unwrap();
                near
            });
            let mut came = vec![0; expected.len()];
            far.read_exact(&mut came[..1]).await.unwrap();
            assert!(began.elapsed() >= DELAY);
            far.read_exact(&mut came[1..]).await.unwrap();
            assert!(came == expected);
            // Then the other direction, and the end.
            let mut near = writing.await.unwrap();
            let answered = Instant::now();
            far.write_all(b"answer").await.unwrap();
            drop(far);
            let mut answer = Vec::new();
            near.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"answer");
            assert!(answered.elapsed() >= DELAY);
        });
    }

    #[test]
    fn a_line_that_is_dropped_cuts_its_connections() {
        runtime().block_on(async {
            let (line, mut near, mut far) = connected().await;
            drop(line);
            for end in [&mut near, &mut far] {
                assert!(matches!(end.read(&mut [0]).await, Ok(0) | Err(_)));
            }
        });
    }

    #[test]
    fn a_full_line_reads_nothing_until_there_is_room() {
        let block = || Block { arrived: Instant::now(), data: vec![0; 1000] };
        let held = Arc::new(Held::new(2 * block().cost()));
        let (tell, told) = mpsc::channel();
        let filling = Arc::clone(&held);
        let thread = thread::spawn(move || {
            for _ in 0..4 {
                tell.send(filling.put(block())).unwrap();
            }
        });
        assert!(told.recv().unwrap() && told.recv().unwrap());
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        drop(held.take());
        assert!(told.recv().unwrap());
        // A reader that waits for space learns that there will be none.
        held.give_up();
        assert!(!told.recv().unwrap());
        thread.join().unwrap();
    }
}
