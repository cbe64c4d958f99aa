//! The switches of mutants, in a crate that is tested with them. At most one mutant is on: that of `MUTANT`. With
//! `MUTANTS_REACHED`, the file of that name gets the numbers of mutants that the process reaches: a line for each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static SWITCHES: LazyLock<Switches> = LazyLock::new(Switches::read);

struct Switches {
    on: Option<usize>,
    reached: Option<(File, Vec<AtomicBool>)>,
}

impl Switches {
    fn read() -> Self {
        let on = std::env::var("MUTANT").ok().and_then(|number| number.parse().ok());
        let file = std::env::var_os("MUTANTS_REACHED");
        let file = file.and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok());
        let seen = || std::iter::repeat_with(AtomicBool::default).take(1 << 16).collect();
        Self { on, reached: file.map(|file| (file, seen())) }
    }

    fn reach(&self, mutant: usize) {
        if let Some((file, seen)) = &self.reached
            && seen.get(mutant).is_some_and(|seen| !seen.swap(true, Ordering::Relaxed))
        {
            let mut file = file;
            let _ = file.write_all(format!("{mutant}\n").as_bytes());
        }
    }
}

/// Whether the mutant is on.
#[inline(never)]
pub fn on(mutant: usize) -> bool {
    SWITCHES.reach(mutant);
    SWITCHES.on == Some(mutant)
}

/// Returns the value, or its change if the mutant is on. A mutant without a change is not reached.
#[inline(never)]
pub fn pick(mutant: usize, value: bool, change: bool) -> bool {
    if value != change && on(mutant) { change } else { value }
}
