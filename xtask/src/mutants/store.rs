//! Verdicts, kept from one run to the next.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::rewrite::Mutant;
use crate::failure::{Context, Failure};

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The code does not compile with it.
    Dropped,
    /// A test failed.
    Killed,
    /// A test did not end.
    TimedOut,
    /// All tests that reach it passed.
    Survived,
    /// No test reaches it.
    NotReached,
}

/// Names of the verdicts in the file.
const NAMES: [(Verdict, &str); 5] = [
    (Verdict::Dropped, "dropped"),
    (Verdict::Killed, "killed"),
    (Verdict::TimedOut, "time-out"),
    (Verdict::Survived, "survived"),
    (Verdict::NotReached, "not reached"),
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(verdict, _)| verdict == self).map(|(_, name)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

/// A file of verdicts: a line for each, the last of a mutant holds.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
    known: BTreeMap<String, Verdict>,
}

impl Store {
    /// Opens the file, or begins one.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let mut known = BTreeMap::new();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let mut fields = line.split('\t');
            let (Some(key), Some(name)) = (fields.next(), fields.next()) else { continue };
            if let Some((verdict, _)) = NAMES.iter().find(|(_, known)| *known == name) {
                known.insert(key.to_owned(), *verdict);
            }
        }
        let file = OpenOptions::new().append(true).create(true).open(path).context(path.display())?;
        Ok(Self { file, known })
    }

    /// Returns the verdict on a mutant.
    pub(crate) fn get(&self, mutant: &Mutant) -> Option<Verdict> {
        self.known.get(&key(mutant)).copied()
    }

    /// Keeps a verdict.
    pub(crate) fn put(&mut self, mutant: &Mutant, verdict: Verdict) -> Result<(), Failure> {
        let key = key(mutant);
        writeln!(self.file, "{key}\t{verdict}\t{}:{}", mutant.file, mutant.line)?;
        self.known.insert(key, verdict);
        Ok(())
    }
}

/// Returns a short name of a mutant, which stays while its function does.
fn key(mutant: &Mutant) -> String {
    Sha256::digest(mutant.identity.as_bytes()).iter().take(12).fold(String::new(), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    })
}

/// Verdicts of one file, counted.
#[derive(Debug, Default)]
struct Count {
    mutants: usize,
    killed: usize,
    timed_out: usize,
    survived: usize,
    not_reached: usize,
}

impl Count {
    fn add(&mut self, verdict: Verdict) {
        self.mutants += 1;
        match verdict {
            Verdict::Dropped => self.mutants -= 1,
            Verdict::Killed => self.killed += 1,
            Verdict::TimedOut => {
                self.killed += 1;
                self.timed_out += 1;
            }
            Verdict::Survived => self.survived += 1,
            Verdict::NotReached => self.not_reached += 1,
        }
    }
}

/// Returns a table of files, and the list of those that no test kills.
pub(crate) fn report(judged: &[(&Mutant, Verdict)], root: &str) -> String {
    let mut files: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    let mut list = String::new();
    for (mutant, verdict) in judged {
        files.entry(&mutant.file).or_default().add(*verdict);
        all.add(*verdict);
        if matches!(verdict, Verdict::Survived | Verdict::NotReached) {
            let Mutant { file, line, function, change, .. } = mutant;
            let _ = writeln!(list, "{file}:{line} {function}: {change} ({verdict})");
        }
    }
    let mut text =
        format!("| file in `{root}` | mutants | killed | of these by time-out | survived | not reached |\n");
    text.push_str("| --- | ---: | ---: | ---: | ---: | ---: |\n");
    let rows = files.iter().map(|(file, count)| (format!("`{}`", file.trim_start_matches(root)), count));
    for (name, count) in rows.chain([("all".to_owned(), &all)]) {
        let Count { mutants, killed, timed_out, survived, not_reached } = count;
        let _ =
            writeln!(text, "| {name} | {mutants} | {killed} | {timed_out} | {survived} | {not_reached} |");
    }
    text + "\n" + &list
}
