//! Counts the instructions, allocations and lines of one operation, as the difference of two runs of an example under
//! valgrind's callgrind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, ensure};

/// The folder of the engine in the names of files.
const PROTO: &str = "crates/proto/src/";
/// Functions that allocate memory.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];
/// The versions that the example speaks: the argument, and the name.
pub(crate) const VERSIONS: [(&str, &str); 4] =
    [("1", "One"), ("p1", "Two, P1"), ("p2", "Two, P2"), ("p3", "Two, P3")];

/// Whether valgrind can be started.
pub(crate) fn is_installed() -> bool {
    let version =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// An example of a package, and the work that it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    package: &'static str,
    name: &'static str,
    /// Packages that get line tables: all other crates come from the usual release build.
    tables: &'static [&'static str],
    /// The functions that count have one of these in their names.
    functions: &'static [&'static str],
    /// Operations of the shorter run; the difference to the longer one leaves set-up and end out.
    few: u64,
    /// Operations of the longer run.
    many: u64,
}

/// Calls of RPC-over-RDMA on the simulated fabric; what `proto` does counts.
pub(crate) const CALLS: Subject = Subject {
    package: "rpcrdma",
    name: "calls",
    tables: &["rpcrdma-proto", "rpcrdma"],
    functions: &["rpcrdma_proto"],
    few: 500,
    many: 1500,
};

/// RDMA Writes of 1 MiB on an engine of `iwarp`, at one end. The loop that drives the engine counts, since the compiler
/// inlines parts of the engine there.
pub(crate) const FPDUS: Subject = Subject {
    package: "rpcrdma-iwarp",
    name: "fpdus",
    tables: &["rpcrdma-iwarp"],
    functions: &["rpcrdma_iwarp", "fpdus::"],
    few: 4,
    many: 12,
};

/// An example, built with line tables.
#[derive(Debug)]
pub(crate) struct Example {
    subject: Subject,
    program: PathBuf,
}

impl Example {
    /// Builds the example.
    pub(crate) fn build(project: &Path, subject: Subject) -> Result<Self, Failure> {
        let name = subject.name;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(project).args(["build", "--release", "--locked", "--quiet", "-p", subject.package]);
        cargo.args(["--example", name, "--message-format", "json-render-diagnostics"]);
        for package in subject.tables {
            cargo.arg("--config");
            cargo.arg(format!("profile.release.package.{package}.debug=\"line-tables-only\""));
        }
        let output = cargo.stderr(Stdio::inherit()).output().context("starting cargo")?;
        ensure!(output.status.success(), "the example {name} does not build");
        let messages = String::from_utf8_lossy(&output.stdout);
        let mut program = messages.lines().filter_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let is_example = message.pointer("/target/name")? == name;
            message.get("executable")?.as_str().filter(|_| is_example).map(PathBuf::from)
        });
        let program = program
            .next_back()
            .ok_or_else(|| Failure::new(format!("cargo names no program for the example {name}")))?;
        Ok(Self { subject, program })
    }

    /// Measures an operation, which the arguments name.
    pub(crate) fn measure(&self, arguments: &[&str]) -> Result<Operation, Failure> {
        let Subject { few, many, .. } = self.subject;
        let (less, more) = (self.run(arguments, few)?, self.run(arguments, many)?);
        Ok(Operation::between(&less, &more, many - few))
    }

    /// Runs the example with this number of operations.
    fn run(&self, arguments: &[&str], count: u64) -> Result<Costs, Failure> {
        let what = arguments.join("-");
        let name = format!("rpcrdma-measures-{}-{what}-{count}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", file.display()));
        valgrind.arg(&self.program).args(arguments).arg(count.to_string());
        let output = valgrind.output().context("starting valgrind")?;
        let text = std::fs::read_to_string(&file).context("reading what callgrind counted");
        drop(std::fs::remove_file(&file));
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Costs::parse(&text?, self.subject.functions)
    }
}

/// The work of one operation in steady state.
#[derive(Debug, Default)]
pub(crate) struct Operation {
    /// Instructions in the functions that count, with what is inlined into them, without their callees.
    pub(crate) own: u64,
    /// Instructions of the whole program.
    pub(crate) all: u64,
    /// Allocations of the whole program.
    pub(crate) allocations: u64,
    /// The lines of the engine's files that every operation executes.
    pub(crate) lines: BTreeMap<String, BTreeSet<usize>>,
}

impl Operation {
    /// Returns one operation, from two runs that differ by this number of operations.
    fn between(few: &Costs, many: &Costs, count: u64) -> Self {
        let each = |few: u64, many: u64| many.saturating_sub(few) / count;
        let mut lines: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for ((file, line), cost) in &many.lines {
            let before = few.lines.get(&(file.clone(), *line)).copied().unwrap_or_default();
            // A line that only some operations execute, as when a table grows, is no part of the steady state.
            if each(before, *cost) > 0 && *line > 0 {
                lines.entry(file.clone()).or_default().insert(*line);
            }
        }
        Self {
            own: each(few.own, many.own),
            all: each(few.all, many.all),
            // Rounded up: a single one in all operations counts.
            allocations: many.allocations.saturating_sub(few.allocations).div_ceil(count),
            lines,
        }
    }
}

/// The costs of a run, as callgrind wrote them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Costs {
    own: u64,
    all: u64,
    allocations: u64,
    /// By file of the engine and line. Inlined code counts for its own file.
    lines: BTreeMap<(String, usize), u64>,
}

impl Costs {
    /// Parses a file of callgrind with one event (instructions) and positions by line. Functions count that have one of
    /// these in their names.
    fn parse(text: &str, counted: &[&str]) -> Result<Self, Failure> {
        let mut costs = Self::default();
        let (mut files, mut functions) = (Names::default(), Names::default());
        let (mut file, mut is_own, mut allocates) = (None, false, false);
        let mut at = 0_usize;
        let mut is_callee = false;
        for line in text.lines() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "fl" | "fi" | "fe" => {
                        let name = files.resolve(value)?;
                        file =
                            name.find(PROTO).and_then(|at| name.get(at + PROTO.len()..)).map(str::to_owned);
                    }
                    "fn" => {
                        let name = functions.resolve(value)?;
                        is_own = counted.iter().any(|part| name.contains(part));
                    }
                    // Names of callees count too: each name stands once, where it comes first.
                    "cfi" | "cfl" => drop(files.resolve(value)?),
                    "cfn" => allocates = ALLOCATORS.contains(&functions.resolve(value)?),
                    "calls" => {
                        is_callee = true;
                        if allocates {
                            let count = value.split(' ').next().unwrap_or_default();
                            costs.allocations +=
                                count.parse::<u64>().context(format!("the line {line:?} of callgrind"))?;
                        }
                    }
                    _ => {}
                }
                continue;
            }
            let Some((position, cost)) = line.split_once(' ') else { continue };
            let Some(position) = moved(at, position) else { continue };
            let cost: u64 = cost.trim().parse().context(format!("the line {line:?} of callgrind"))?;
            at = position;
            // The line behind "calls" has the costs of the callee, which stand at the callee too.
            if std::mem::take(&mut is_callee) {
                continue;
            }
            costs.all += cost;
            if is_own {
                costs.own += cost;
            }
            if let Some(file) = &file {
                *costs.lines.entry((file.clone(), at)).or_default() += cost;
            }
        }
        ensure!(costs.all > 0, "callgrind counted nothing");
        Ok(costs)
    }
}

/// Returns the line after a position of callgrind: a number, a difference to the line before, or `*` for no
/// change.
fn moved(at: usize, position: &str) -> Option<usize> {
    if position == "*" {
        return Some(at);
    }
    if let Some(more) = position.strip_prefix('+') {
        return at.checked_add(more.parse().ok()?);
    }
    if let Some(less) = position.strip_prefix('-') {
        return at.checked_sub(less.parse().ok()?);
    }
    position.parse().ok()
}

/// Names that callgrind abbreviates: `(7) name` once, then `(7)`.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn resolve(&mut self, value: &str) -> Result<&str, Failure> {
        let (number, name) = value.split_once(' ').unwrap_or((value, ""));
        if !number.starts_with('(') {
            return Ok(self.0.entry(value.to_owned()).or_insert_with(|| value.to_owned()));
        }
        if !name.is_empty() {
            self.0.insert(number.to_owned(), name.to_owned());
        }
        let known = self.0.get(number);
        known.map(String::as_str).ok_or_else(|| Failure::new(format!("callgrind gives no name for {value}")))
    }
}

#[cfg(test)]
mod tests;
