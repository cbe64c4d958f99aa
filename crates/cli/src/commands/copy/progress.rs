//! Progress of a copy, on one line of a terminal.
//!
//! The line shows only what is known. The number of files found has a plus sign while more may be found. The rate is
//! that of the last seconds. A time left is shown once all files are found. While calls wait and none is answered,
//! the line says that the server does not respond. On a narrow terminal the line has less, and is never broken.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use console::Term;
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
/// Columns of the bar, and of that on a narrow terminal.
const BAR: usize = 16;
const SHORT_BAR: usize = 8;
/// Fewest columns for the name of the last object.
const NAME: usize = 12;

/// Progress line of a copy. Without a terminal nothing is shown. Clones share the line.
#[derive(Clone)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Whether the user sees standard error, perhaps on a terminal that cannot replace a line.
    watched: bool,
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
        let watched = visible && io::stderr().is_terminal();
        let bar = if watched {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10))
        } else {
            ProgressBar::hidden()
        };
        if bar.is_hidden() {
            return Self { bar, watched, state };
        }
        let shown = Arc::clone(&state);
        let terminal = Term::stderr();
        let status = move |progress: &ProgressState, out: &mut dyn std::fmt::Write| {
            let State { meter, client } = &mut *lock(&shown);
            let activity = client.as_ref().map(Client::activity).unwrap_or_default();
            let line = meter.line(Instant::now(), activity);
            let width = usize::from(terminal.size().1);
            // A line that cannot be written is lost.
            let _ = out.write_str(&line.fitted(progress.fraction(), width));
        };
        if let Ok(style) = ProgressStyle::with_template("{status}{wide_msg}") {
            bar.set_style(style.with_key("status", status));
        }
        bar.enable_steady_tick(TICK);
        Self { bar, watched, state }
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

    /// Returns whether the user wants to see how the copy went.
    pub(super) const fn is_watched(&self) -> bool {
        self.watched
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

/// Parts of the text of a line.
struct Line {
    files: String,
    bytes: String,
    /// The rate, or that the server does not respond.
    pace: String,
    /// The time left, if it is known.
    left: Option<String>,
}

impl Line {
    /// Returns the text for a terminal of `width` columns: as much as fits, and spaces if the rest is too short for a
    /// name. `fraction` of the work is done.
    fn fitted(&self, fraction: f32, width: usize) -> String {
        let Self { files, bytes, pace, left } = self;
        let paced: Vec<&str> = [pace.as_str()].into_iter().chain(left.as_deref()).collect();
        let whole = [&[files.as_str(), bytes], paced.as_slice()].concat().join(", ");
        let choices = [
            format!("{} {whole}", bar(fraction, BAR)),
            format!("{} {whole}", bar(fraction, SHORT_BAR)),
            whole,
            [&[bytes.as_str()], paced.as_slice()].concat().join(", "),
            format!("{bytes}, {pace}"),
            pace.clone(),
        ];
        // The cursor needs a column behind the text.
        let room = width.saturating_sub(1);
        let text = choices.iter().find(|text| text.len() <= room).unwrap_or(pace);
        if room >= text.len() + 1 + NAME {
            return format!("{text} ");
        }
        // All of it is ASCII, so a character is a byte.
        text.chars().take(room).chain(std::iter::repeat(' ')).take(width).collect()
    }
}

/// Returns a bar for a part of the work, between 0 and 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "saturates, and terminals have few columns"
)]
fn bar(fraction: f32, columns: usize) -> String {
    // At most all columns, whatever the fraction is.
    let full = ((fraction * columns as f32) as usize).min(columns);
    let head = if full < columns { ">" } else { "" };
    format!("{:<columns$}", "=".repeat(full) + head)
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

    /// Returns the parts of the line.
    fn line(&mut self, now: Instant, activity: Activity) -> Line {
        self.mark(now);
        if activity.in_flight == 0 || activity.answered != self.answered {
            (self.last, self.answered) = (now, activity.answered);
        }
        let more = if self.walked { "" } else { "+" };
        let moved = self.moved.saturating_add(self.there);
        let files = format!("{} of {}{more} files", self.done, self.found);
        let bytes = format!("{} of {}{more}", BinaryBytes(moved), BinaryBytes(self.expected));
        if now.duration_since(self.last) >= SILENCE {
            let pace = "server not responding, still trying".to_owned();
            return Line { files, bytes, pace, left: None };
        }
        let rate = self.rate(now);
        let mut line = Line { files, bytes, pace: format!("{}/s", BinaryBytes(rate)), left: None };
        if let Some(rest) = self.expected.checked_sub(moved).filter(|rest| *rest > 0 && self.walked)
            && rate > 0
        {
            let seconds = rest.div_ceil(rate);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let hours = if hours > 0 { format!("{hours}:{minutes:02}") } else { minutes.to_string() };
            line.left = Some(format!("{hours}:{:02} left", seconds % 60));
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

    /// Returns all parts of a line.
    fn text(line: Line) -> String {
        line.fitted(0.5, 1000).strip_prefix("========>        ").unwrap().trim_end().to_owned()
    }

    #[test]
    fn a_narrow_terminal_shows_what_fits() {
        let line = Line {
            files: "249 of 303 files".to_owned(),
            bytes: "91.00 MiB of 1.12 GiB".to_owned(),
            pace: "60.07 MiB/s".to_owned(),
            left: Some("0:18 left".to_owned()),
        };
        let fitted = |width| line.fitted(0.08, width);
        let whole = "249 of 303 files, 91.00 MiB of 1.12 GiB, 60.07 MiB/s, 0:18 left";
        assert_eq!(fitted(100), format!("=>               {whole} "));
        assert_eq!(fitted(85).trim_end(), format!("=>               {whole}"));
        assert_eq!(fitted(80).trim_end(), format!(">        {whole}"));
        assert_eq!(fitted(70).trim_end(), whole);
        assert_eq!(fitted(60).trim_end(), "91.00 MiB of 1.12 GiB, 60.07 MiB/s, 0:18 left");
        assert_eq!(fitted(40).trim_end(), "91.00 MiB of 1.12 GiB, 60.07 MiB/s");
        assert_eq!((fitted(20).trim_end(), fitted(7).as_str()), ("60.07 MiB/s", "60.07  "));
        assert!([7, 20, 40, 85].iter().all(|width| fitted(*width).len() == *width));
        let silent = Line { pace: "server not responding, still trying".to_owned(), left: None, ..line };
        assert_eq!(silent.fitted(0.08, 40).trim_end(), "server not responding, still trying");
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(|part| bar(part, 4)), [">   ", "==> ", "====", "===="]);
    }

    #[test]
    fn time_left_is_shown_when_all_files_are_found() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut meter = Meter::new(start);
        meter.found(100 * MIB);
        meter.unchanged();
        (1..=10).for_each(|second| meter.moved(MIB, at(second)));
        let line = text(meter.line(at(10), activity(1, 1)));
        assert_eq!(line, "1 of 2+ files, 10.00 MiB of 100.00 MiB+, 1.00 MiB/s");
        meter.walked = true;
        meter.there = 30 * MIB;
        let line = text(meter.line(at(10), activity(1, 2)));
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
        assert!(text(meter.line(at(20), activity(1, 1))).contains(", 1.00 MiB/s, 1:06:21 left"));
        // The rate falls while nothing comes.
        let line = text(meter.line(at(24), activity(1, 2)));
        assert!(!line.contains(" 1.00 MiB/s"), "{line}");
    }

    #[test]
    fn a_server_without_answers_does_not_respond() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut meter = Meter::new(start);
        let silent = |line: Line| text(line).ends_with("server not responding, still trying");
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
