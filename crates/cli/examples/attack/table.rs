//! Table of the results, and their comparison with the limits.

use std::time::Duration;

use crate::Options;
use crate::list::{Attack, Who};
use crate::server::Resident;
use crate::victim::Delays;

/// Bytes that a server may hold beyond its options: for code, for state, for each connection.
const BESIDE: u64 = 64 << 20;
/// Greatest factor between the median under attack and the quiet median.
const SLOWER: u32 = 3;
/// Longest delay allowed.
const LONGEST: Duration = Duration::from_millis(250);

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) rest: u64,
    pub(crate) end: Resident,
    pub(crate) quiet: Delays,
    pub(crate) attacked: Delays,
}

struct Row {
    name: &'static str,
    limit: u64,
    runs: Vec<Measured>,
}

/// Results of all attacks.
pub(crate) struct Table {
    rows: Vec<Row>,
    shown: usize,
}

const fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

impl Row {
    fn highest(&self) -> u64 {
        self.runs.iter().map(|run| run.end.highest).max().unwrap_or(0)
    }

    fn longest(&self) -> Duration {
        self.runs.iter().map(|run| run.attacked.longest).max().unwrap_or_default()
    }

    /// Returns the run whose median grew most.
    fn slowest(&self) -> Option<&Measured> {
        let growth = |run: &Measured| run.attacked.median.as_secs_f64() / run.quiet.median.as_secs_f64();
        self.runs.iter().max_by(|one, other| growth(one).total_cmp(&growth(other)))
    }

    fn faults(&self) -> Vec<&'static str> {
        let slow = self.runs.iter().any(|run| run.attacked.median > run.quiet.median * SLOWER);
        [(self.highest() > self.limit, "memory"), (slow, "median"), (self.longest() > LONGEST, "longest")]
            .into_iter()
            .filter_map(|(fault, name)| fault.then_some(name))
            .collect()
    }

    fn show(&self) {
        let rest = self.runs.iter().map(|run| run.rest).max().unwrap_or(0);
        let Some(slowest) = self.slowest() else { return };
        let faults = self.faults();
        let verdict = if faults.is_empty() { "ok".to_owned() } else { faults.join(", ") };
        println!(
            "{:<22} {:>5} {:>7} {:>6} {:>9} {:>9} {:>9}  {verdict}",
            self.name,
            mib(rest),
            mib(self.highest()),
            mib(self.limit),
            milliseconds(slowest.quiet.median),
            milliseconds(slowest.attacked.median),
            milliseconds(self.longest()),
        );
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        println!("resident memory of the server in MiB, delay of the other client's GETATTR in ms");
        println!(
            "{:<22} {:>5} {:>7} {:>6} {:>9} {:>9} {:>9}",
            "attack", "rest", "highest", "limit", "quiet", "median", "longest"
        );
        Self { rows: Vec::new(), shown: 0 }
    }

    pub(crate) fn add(&mut self, attack: &Attack, measured: Measured, options: &Options) {
        let memory = match attack.who {
            Who::One => options.memory_per_peer,
            Who::Many => options.memory,
        };
        if let Some(row) = self.rows.iter_mut().find(|row| row.name == attack.name) {
            row.runs.push(measured);
        } else {
            let limit = (memory << 20) + BESIDE;
            self.rows.push(Row { name: attack.name, limit, runs: vec![measured] });
        }
    }

    /// Prints the row added last, unless it is printed already.
    pub(crate) fn show_last(&mut self) {
        self.rows.iter().skip(self.shown).for_each(Row::show);
        self.shown = self.rows.len();
    }

    /// Prints the verdict. Returns whether all results are within the limits.
    pub(crate) fn verdict(&self) -> bool {
        let bad = self.rows.iter().filter(|row| !row.faults().is_empty()).count();
        println!(
            "limits: memory as the column says; median at most {SLOWER} times the quiet one; longest at most {} ms",
            LONGEST.as_millis()
        );
        match bad {
            0 => println!("passed: {} attacks", self.rows.len()),
            bad => println!("failed: {bad} of {} attacks", self.rows.len()),
        }
        bad == 0
    }
}
