//! [`Queue`]: lines on their way to standard error, which may be slow, full or closed.
//!
//! A server goes on whatever becomes of its log. So whoever logs puts a line into a queue of bounded length, and a thread
//! writes it. A line that finds the queue full, or whose write fails, is lost. The next line that can be written tells how
//! many were lost.
//!
//! Before [`Queue::start`] each line is written at once: a server gives up its rights while it has one thread.
//!
//! *Errors.* No error of a write leaves this module.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of lines that wait.
const ROOM: usize = 1 << 20;
/// Pause before the next attempt if standard error is not blocking, and takes nothing now.
const PAUSE: Duration = Duration::from_millis(10);

/// Lines that wait for their writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines lost since the last line that told of them.
    lost: u64,
    /// Whether a thread writes the lines.
    started: bool,
    /// Whether the thread has taken lines that it has not written yet.
    writing: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Plain values stay consistent when a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line. Never waits once a thread writes the lines.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.lock();
        if !state.started {
            drop(state);
            // Nobody could be told of a failure.
            let _ = io::stderr().write_all(line);
            return;
        }
        if state.bytes.saturating_add(line.len()) > ROOM {
            state.lost += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Starts the thread that writes lines to `out`. `lost` makes the line that tells how many lines were lost.
    ///
    /// # Errors
    /// The thread cannot be started: lines are still written at once.
    pub(super) fn start(
        self: &Arc<Self>,
        out: impl Write + Send + 'static,
        lost: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<()> {
        let queue = Arc::clone(self);
        self.lock().started = true;
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || queue.serve(out, lost));
        if thread.is_err() {
            self.lock().started = false;
        }
        thread.map(drop)
    }

    /// Waits until all lines are written, or this time is over. Returns whether all are written.
    pub(super) fn finish(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        while state.writing || !state.lines.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Writes lines for the rest of the process.
    fn serve(&self, out: impl Write, tell: impl Fn(u64) -> String) {
        let mut out = Out { out, torn: false };
        loop {
            let mut state = self.lock();
            while state.lines.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.writing = true;
            let lines = std::mem::take(&mut state.lines);
            drop(state);
            for line in lines {
                let failed = out.line(&line).is_err();
                let mut state = self.lock();
                // The room is free only now: the thread may hold a line for long.
                state.bytes -= line.len();
                state.lost += u64::from(failed);
            }
            let lost = self.lock().lost;
            if lost > 0 && out.line(tell(lost).as_bytes()).is_ok() {
                self.lock().lost -= lost;
            }
            self.lock().writing = false;
            self.changed.notify_all();
        }
    }
}

/// A stream that may fail in the middle of a line.
struct Out<W> {
    out: W,
    /// Whether the last line has no end.
    torn: bool,
}

impl<W: Write> Out<W> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.all(b"\n")?;
            self.torn = false;
        }
        self.all(line)
    }

    fn all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            match self.out.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    left = left.get(written..).unwrap_or_default();
                    self.torn = !left.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A stream that takes so many bytes of each write, by order of the test.
    struct Slow {
        orders: mpsc::Receiver<io::Result<usize>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without further orders everything is taken.
            let taken = self.orders.recv().unwrap_or(Ok(usize::MAX))?.min(bytes.len());
            self.written.lock().unwrap().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[expect(clippy::type_complexity, reason = "three values of one test")]
    fn world() -> (Arc<Queue>, mpsc::Sender<io::Result<usize>>, Arc<Mutex<Vec<u8>>>) {
        let (queue, written) = (Arc::<Queue>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (sender, orders) = mpsc::channel();
        let out = Slow { orders, written: Arc::clone(&written) };
        queue.start(out, |count| format!("{count} lost\n")).unwrap();
        (queue, sender, written)
    }

    fn text(written: &Mutex<Vec<u8>>) -> String {
        String::from_utf8(written.lock().unwrap().clone()).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn i6_a_stream_that_takes_nothing_holds_nobody_up() {
        let (queue, orders, written) = world();
        let line = vec![b'x'; 1000];
        let began = Instant::now();
        for _ in 0..2000 {
            queue.push(&line);
        }
        assert!(began.elapsed() < LIMIT);
        let lost = queue.lock().lost;
        assert_eq!(usize::try_from(lost).unwrap(), 2000 - ROOM / 1000);
        assert!(!queue.finish(Duration::from_millis(10)));
        assert!(written.lock().unwrap().is_empty());
        drop(orders);
        assert!(queue.finish(LIMIT));
        let text = text(&written);
        assert!(text.ends_with(&format!("x{lost} lost\n")), "{lost}");
        let state = queue.lock();
        assert_eq!((state.lost, state.bytes), (0, 0));
    }

    #[test]
    fn i6_a_full_disk_costs_lines_and_the_next_one_tells_their_number() {
        let (queue, orders, written) = world();
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        // Half of the first line, and nothing of the second; no line tells of both.
        for order in [Ok(2), full(), full(), full()] {
            orders.send(order).unwrap();
        }
        queue.push(b"first\n");
        queue.push(b"second\n");
        drop(orders);
        queue.push(b"third\n");
        assert!(queue.finish(LIMIT));
        queue.push(b"fourth\n");
        assert!(queue.finish(LIMIT));
        let text = text(&written);
        let lost: u64 = text
            .lines()
            .filter_map(|line| line.strip_suffix(" lost"))
            .map(|count| count.parse::<u64>().unwrap())
            .sum();
        let whole = ["first", "second", "third", "fourth"]
            .iter()
            .filter(|line| text.lines().any(|l| l == **line))
            .count();
        assert!(text.starts_with("fi\n") && text.contains("\nfourth\n"), "{text}");
        assert_eq!(whole as u64 + lost, 4, "{text}");
    }

    #[test]
    fn a_stream_that_does_not_block_gets_its_line_later() {
        let (queue, orders, written) = world();
        orders.send(Err(io::ErrorKind::WouldBlock.into())).unwrap();
        drop(orders);
        queue.push(b"line\n");
        assert!(queue.finish(LIMIT));
        assert_eq!(text(&written), "line\n");
    }
}
