//! Runs tests against mutants.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::build::Binary;
use super::store::Verdict;
use crate::failure::{Context, Failure};

/// Longest time of a test without a mutant.
const LONGEST: Duration = Duration::from_secs(300);
/// What tests get beyond ten times their own time.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between two looks at a process, at first.
const TICK: Duration = Duration::from_millis(2);
/// Limits for a process that a mutant made endless: kilobytes of memory, seconds of processor time.
const BOUND: &str = "ulimit -v 12582912; ulimit -t 600; exec \"$0\" \"$@\"";

/// A test.
#[derive(Clone, Debug)]
struct Test {
    binary: usize,
    name: String,
    time: Duration,
}

/// The tests, with what they reach.
#[derive(Debug)]
pub(crate) struct Tests {
    binaries: Vec<Binary>,
    tests: Vec<Test>,
    /// Tests that reach a mutant, the shortest first.
    reaching: BTreeMap<usize, Vec<usize>>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

impl Tests {
    /// Runs each test alone, without a mutant, and records which mutants it reaches.
    pub(crate) fn record(binaries: Vec<Binary>, folder: &Path, jobs: usize) -> Result<Self, Failure> {
        let mut tests = Vec::new();
        for (binary, own) in binaries.iter().enumerate() {
            let ignored = list(own, &["--ignored"])?;
            let names = list(own, &[])?.into_iter().filter(|name| !ignored.contains(name));
            tests.extend(names.map(|name| Test { binary, name, time: Duration::ZERO }));
        }
        let found = Mutex::new(BTreeMap::new());
        parallel(jobs, tests.len(), |job, index| {
            let Some(test) = tests.get(index) else { return Ok(()) };
            let file = folder.join(format!("reached-{job}"));
            let _ = fs::remove_file(&file);
            let begin = Instant::now();
            let end = run(&binaries, test.binary, &[&test.name], LONGEST, ("MUTANTS_REACHED", &file))?;
            if end == End::Passed {
                let text = fs::read_to_string(&file).unwrap_or_default();
                let reached: Vec<usize> = text.lines().filter_map(|line| line.parse().ok()).collect();
                lock(&found).insert(index, (begin.elapsed(), reached));
            } else {
                eprintln!("mutants: {} fails without a mutant, and is left out", test.name);
            }
            Ok(())
        })?;
        let mut reaching: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, (time, reached)) in lock(&found).iter() {
            if let Some(test) = tests.get_mut(*index) {
                test.time = *time;
            }
            for mutant in reached {
                reaching.entry(*mutant).or_default().push(*index);
            }
        }
        for reaching in reaching.values_mut() {
            reaching.sort_by_key(|index| tests.get(*index).map(|test| test.time));
        }
        Ok(Self { binaries, tests, reaching })
    }

    /// Returns the number of tests.
    pub(crate) const fn len(&self) -> usize {
        self.tests.len()
    }

    /// Judges mutants, and tells each verdict.
    pub(crate) fn judge(
        &self,
        mutants: &[usize],
        jobs: usize,
        tell: impl Fn(usize, Verdict) -> Result<(), Failure> + Sync,
    ) -> Result<(), Failure> {
        parallel(jobs, mutants.len(), |_, index| {
            let Some(mutant) = mutants.get(index) else { return Ok(()) };
            tell(*mutant, self.verdict(*mutant)?)
        })
    }

    /// Runs the tests that reach a mutant, in batches, the shortest first.
    fn verdict(&self, mutant: usize) -> Result<Verdict, Failure> {
        let Some(mut left) = self.reaching.get(&mutant).map(Vec::as_slice) else {
            return Ok(Verdict::NotReached);
        };
        let number = PathBuf::from(mutant.to_string());
        let mut size = 2;
        while !left.is_empty() {
            let (batch, rest) = left.split_at(left.len().min(size));
            (left, size) = (rest, size * 3);
            let mut by_binary: BTreeMap<usize, (Vec<&str>, Duration)> = BTreeMap::new();
            for test in batch.iter().filter_map(|index| self.tests.get(*index)) {
                let (names, time) = by_binary.entry(test.binary).or_default();
                names.push(&test.name);
                *time += test.time;
            }
            for (binary, (names, time)) in by_binary {
                match run(&self.binaries, binary, &names, GRACE + time * 10, ("MUTANT", &number))? {
                    End::Passed => {}
                    End::Failed => return Ok(Verdict::Killed),
                    End::TimedOut => return Ok(Verdict::TimedOut),
                }
            }
        }
        Ok(Verdict::Survived)
    }
}

/// Does the work for each index below `count` on `jobs` threads, which have numbers. Stops at the first failure.
fn parallel(
    jobs: usize,
    count: usize,
    work: impl Fn(usize, usize) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for job in 0..jobs {
            let (next, failure, work) = (&next, &failure, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    if let Err(error) = work(job, index) {
                        next.store(count, Ordering::Relaxed);
                        *lock(failure) = Some(error);
                    }
                }
            });
        }
    });
    lock(&failure).take().map_or(Ok(()), Err)
}

/// Locks; a thread that panicked leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the names of the tests in a binary.
fn list(binary: &Binary, options: &[&str]) -> Result<Vec<String>, Failure> {
    let mut command = Command::new(&binary.path);
    command.args(["--list", "--format", "terse"]).args(options).current_dir(&binary.folder);
    let listed = command.output().context(binary.path.display())?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs tests in one process, with a variable in its environment.
fn run(
    binaries: &[Binary],
    binary: usize,
    names: &[&str],
    limit: Duration,
    (variable, value): (&str, &Path),
) -> Result<End, Failure> {
    let binary = binaries.get(binary).ok_or_else(|| Failure::new("no such binary"))?;
    let mut command = Command::new("sh");
    command.args(["-c", BOUND]).arg(&binary.path).args(["--exact", "--test-threads=1"]).args(names);
    command.env(variable, value).current_dir(&binary.folder);
    // Properties try the same values each time, and keep nothing.
    command.envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")]);
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("starting tests")?;
    let (begin, mut tick) = (Instant::now(), TICK);
    loop {
        if let Some(status) = child.try_wait().context("waiting for tests")? {
            return Ok(if status.success() { End::Passed } else { End::Failed });
        }
        if begin.elapsed() > limit {
            // Either fails only if the process has just ended.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(End::TimedOut);
        }
        thread::sleep(tick);
        tick = (tick * 2).min(Duration::from_millis(20));
    }
}
