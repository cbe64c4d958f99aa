//! Progress of a copy, on one line of a terminal.
//!
//! The line shows only what is known. The number of files found has a plus sign while more may be found. The rate is
//! that of the last seconds. A time left is shown once all files are found. While calls wait and none is answered,
//! the line says that the server does not respond.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use rpcrdma_nfs::client::{Activity, Client};

use crate::output::{self, printable};

/// Time over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(5);
/// Shortest time between two points of the measurement.
const MARK: Duration = Duration::from_millis(250);
/// Time without a byte or an answer after which the server counts as not responding.
const SILENCE: Duration = Duration::from_secs(5);
/// Time between two looks at the line without any event.
const TICK: Duration = Duration::from_millis(500);

/// Progress line of a copy. Without a terminal nothing is shown. Clones share the line.
#[derive(Clone)]
pub(super) struct Progress {
    bar: ProgressBar,
    state: Arc<Mutex<State>>,
}

struct State {
    meter: Meter,
    /// Client whose server is asked.
    client: Option<Client>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress {
    /// Creates a line. Without `visible` nothing is shown.
    pub(super) fn new(visible: bool) -> Self {
        let state = Arc::new(Mutex::new(State { meter: Meter::new(Instant::now()), client: None }));
        let bar = if visible && io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10))
        } else {
            ProgressBar::hidden()
        };
        if bar.is_hidden() {
            return Self { bar, state };
        }
        let shown = Arc::clone(&state);
        let status = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let State { meter, client } = &mut *lock(&shown);
            let activity = client.as_ref().map(Client::activity).unwrap_or_default();
            // A line that cannot be written is lost.
            let _ = out.write_str(&meter.line(Instant::now(), activity));
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:16} {status} {wide_msg}") {
            bar.set_style(style.progress_chars("=> ").with_key("status", status));
        }
        bar.enable_steady_tick(TICK);
        Self { bar, state }
    }

    /// Sets the client whose calls show whether the server responds.
    pub(super) fn watch(&self, client: &Client) {
        lock(&self.state).client = Some(client.clone());
    }

    fn meter(&self, change: impl FnOnce(&mut Meter)) {
        change(&mut lock(&self.state).meter);
    }

    /// Adds a file to those found.
    pub(super) fn found(&self, bytes: u64) {
        self.meter(|meter| meter.found(bytes));
        self.bar.inc_length(bytes);
    }

    /// Adds a file to those found and done.
    pub(super) fn unchanged(&self) {
        self.meter(Meter::unchanged);
    }

    /// Adds a file to those done.
    pub(super) fn done(&self) {
        self.meter(|meter| meter.done += 1);
    }

    /// Notes that no more files will be found.
    pub(super) fn walked(&self) {
        self.meter(|meter| meter.walked = true);
    }

    /// Adds bytes to those copied.
    pub(super) fn add(&self, bytes: u64) {
        self.meter(|meter| meter.moved(bytes, Instant::now()));
        self.bar.inc(bytes);
    }

    /// Adds bytes to those that need not be copied.
    pub(super) fn resumed(&self, bytes: u64) {
        self.meter(|meter| meter.there += bytes);
        self.bar.inc(bytes);
    }

    /// Returns whether nothing is shown.
    pub(super) fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }

    /// Shows the name of the last object.
    pub(super) fn at(&self, name: impl Display) {
        if !self.bar.is_hidden() {
            self.bar.set_message(printable(name.to_string().as_bytes()));
        }
    }

    /// Prints a warning above the line.
    pub(super) fn warn(&self, message: impl Display) {
        self.bar.suspend(|| output::warn(message));
    }

    /// Prints a line of output above the progress.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the line.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Measurement of a copy.
struct Meter {
    found: u64,
    done: u64,
    /// Whether all files are found.
    walked: bool,
    /// Bytes of the files found.
    expected: u64,
    /// Bytes copied.
    moved: u64,
    /// Bytes that an earlier copy left.
    there: u64,
    /// Bytes copied at earlier times, within the window.
    marks: VecDeque<(Instant, u64)>,
    /// Time of the last byte or answer.
    last: Instant,
    answered: u64,
}

impl Meter {
    fn new(now: Instant) -> Self {
        Self {
            found: 0,
            done: 0,
            walked: false,
            expected: 0,
            moved: 0,
            there: 0,
            marks: VecDeque::from([(now, 0)]),
            last: now,
            answered: 0,
        }
    }

    fn found(&mut self, bytes: u64) {
        self.found += 1;
        self.expected = self.expected.saturating_add(bytes);
    }

    fn unchanged(&mut self) {
        self.found += 1;
        self.done += 1;
    }

    fn moved(&mut self, bytes: u64, now: Instant) {
        self.moved = self.moved.saturating_add(bytes);
        self.last = now;
        self.mark(now);
    }

    fn mark(&mut self, now: Instant) {
        if self.marks.back().is_none_or(|(last, _)| now.duration_since(*last) >= MARK) {
            self.marks.push_back((now, self.moved));
        }
        while self.marks.len() > 2
            && self.marks.get(1).is_some_and(|(next, _)| now.duration_since(*next) >= WINDOW)
        {
            self.marks.pop_front();
        }
    }

    /// Returns the bytes of a second, over the window.
    fn rate(&self, now: Instant) -> u64 {
        let Some((since, before)) = self.marks.front() else { return 0 };
        let bytes = u128::from(self.moved.saturating_sub(*before)) * 1000;
        bytes
            .checked_div(now.duration_since(*since).as_millis())
            .map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the text of the line.
    fn line(&mut self, now: Instant, activity: Activity) -> String {
        self.mark(now);
        if activity.in_flight == 0 || activity.answered != self.answered {
            (self.last, self.answered) = (now, activity.answered);
        }
        let more = if self.walked { "" } else { "+" };
        let moved = self.moved.saturating_add(self.there);
        let mut line = format!(
            "{} of {}{more} files, {} of {}{more}",
            self.done,
            self.found,
            BinaryBytes(moved),
            BinaryBytes(self.expected)
        );
        if now.duration_since(self.last) >= SILENCE {
            line.push_str(", server not responding, still trying");
            return line;
        }
        let rate = self.rate(now);
        line.push_str(&format!(", {}/s", BinaryBytes(rate)));
        if let Some(rest) = self.expected.checked_sub(moved).filter(|rest| *rest > 0 && self.walked)
            && rate > 0
        {
            let seconds = rest.div_ceil(rate);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let hours = if hours > 0 { format!("{hours}:{minutes:02}") } else { minutes.to_string() };
            line.push_str(&format!(", {hours}:{:02} left", seconds % 60));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn activity(in_flight: usize, answered: u64) -> Activity {
        let mut activity = Activity::default();
        (activity.in_flight, activity.answered) = (in_flight, answered);
        activity
    }

    #[test]
    fn time_left_is_shown_when_all_files_are_found() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut meter = Meter::new(start);
        meter.found(100 * MIB);
        meter.unchanged();
        (1..=10).for_each(|second| meter.moved(MIB, at(second)));
        let line = meter.line(at(10), activity(1, 1));
        assert_eq!(line, "1 of 2+ files, 10.00 MiB of 100.00 MiB+, 1.00 MiB/s");
        meter.walked = true;
        meter.there = 30 * MIB;
        let line = meter.line(at(10), activity(1, 2));
        assert_eq!(line, "1 of 2 files, 40.00 MiB of 100.00 MiB, 1.00 MiB/s, 1:00 left");
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut meter = Meter::new(start);
        meter.walked = true;
        meter.found(8000 * MIB);
        meter.moved(4000 * MIB, at(1));
        (2..=20).for_each(|second| meter.moved(MIB, at(second)));
        assert!(meter.line(at(20), activity(1, 1)).contains(", 1.00 MiB/s, 1:06:21 left"));
        // The rate falls while nothing comes.
        let line = meter.line(at(24), activity(1, 2));
        assert!(!line.contains(" 1.00 MiB/s"), "{line}");
    }

    #[test]
    fn a_server_without_answers_does_not_respond() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut meter = Meter::new(start);
        let silent = |line: String| line.ends_with("server not responding, still trying");
        meter.moved(5, at(1));
        assert!(!silent(meter.line(at(1), activity(3, 7))));
        assert!(!silent(meter.line(at(5), activity(3, 7))));
        assert!(silent(meter.line(at(6), activity(3, 7))));
        assert!(silent(meter.line(at(60), activity(1, 7))));
        // An answer ends that, and so does the end of all calls: a slow disk is no silent server.
        assert!(!silent(meter.line(at(61), activity(1, 8))));
        assert!(!silent(meter.line(at(90), activity(0, 8))));
        assert!(!silent(meter.line(at(94), activity(1, 8))));
    }
}
