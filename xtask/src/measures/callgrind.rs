//! Counts the instructions and lines of one NULL call, as the difference of two runs under valgrind's callgrind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, ensure};

/// Calls of the shorter run; the difference to the longer one leaves set-up and end out.
const FEW: u64 = 500;
/// Calls of the longer run.
const MANY: u64 = 1500;
/// The folder of the engine in the names of files.
const PROTO: &str = "crates/proto/src/";
/// The versions that the example speaks: the argument, and the name.
pub(crate) const VERSIONS: [(&str, &str); 4] =
    [("1", "One"), ("p1", "Two, P1"), ("p2", "Two, P2"), ("p3", "Two, P3")];

/// Whether valgrind can be started.
pub(crate) fn is_installed() -> bool {
    let version =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// The example `null` of `rpcrdma`, built with line tables.
#[derive(Debug)]
pub(crate) struct Example {
    program: PathBuf,
}

impl Example {
    /// Builds the example. Only the engine and the driver get line tables: all other crates come from the
    /// usual release build.
    pub(crate) fn build(project: &Path) -> Result<Self, Failure> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(project).args(["build", "--release", "--locked", "--quiet", "-p", "rpcrdma"]);
        cargo.args(["--example", "null", "--message-format", "json-render-diagnostics"]);
        for package in ["rpcrdma-proto", "rpcrdma"] {
            cargo.arg("--config");
            cargo.arg(format!("profile.release.package.{package}.debug=\"line-tables-only\""));
        }
        let output = cargo.stderr(Stdio::inherit()).output().context("starting cargo")?;
        ensure!(output.status.success(), "the example null does not build");
        let messages = String::from_utf8_lossy(&output.stdout);
        let mut program = messages.lines().filter_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let is_example = message.pointer("/target/name")? == "null";
            message.get("executable")?.as_str().filter(|_| is_example).map(PathBuf::from)
        });
        let program =
            program.next_back().ok_or_else(|| Failure::new("cargo names no program for the example null"))?;
        Ok(Self { program })
    }

    /// Measures a NULL call of a version, both ends together.
    pub(crate) fn measure(&self, version: &str) -> Result<Call, Failure> {
        let few = self.run(version, FEW)?;
        let many = self.run(version, MANY)?;
        Ok(Call::between(&few, &many, MANY - FEW))
    }

    /// Runs the example with this number of calls.
    fn run(&self, version: &str, calls: u64) -> Result<Costs, Failure> {
        let name = format!("rpcrdma-measures-{}-{version}-{calls}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut valgrind = Command::new("valgrind");
        valgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", file.display()));
        valgrind.arg(&self.program).arg(version).arg(calls.to_string());
        let output = valgrind.output().context("starting valgrind")?;
        let text = std::fs::read_to_string(&file).context("reading what callgrind counted");
        drop(std::fs::remove_file(&file));
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Costs::parse(&text?)
    }
}

/// The instructions of one call in steady state.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// In the functions of the engine, with what is inlined into them, without their callees.
    pub(crate) proto: u64,
    /// With the driver, the simulated fabric and the runtime.
    pub(crate) all: u64,
    /// The lines of the engine's files that every call executes.
    pub(crate) lines: BTreeMap<String, BTreeSet<usize>>,
}

impl Call {
    /// Returns one call, from two runs that differ by this number of calls.
    fn between(few: &Costs, many: &Costs, calls: u64) -> Self {
        let each = |few: u64, many: u64| many.saturating_sub(few) / calls;
        let mut lines: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for ((file, line), cost) in &many.lines {
            let before = few.lines.get(&(file.clone(), *line)).copied().unwrap_or_default();
            // A line that only some calls execute, as when a table grows, is no part of the steady state.
            if each(before, *cost) > 0 && *line > 0 {
                lines.entry(file.clone()).or_default().insert(*line);
            }
        }
        Self { proto: each(few.proto, many.proto), all: each(few.all, many.all), lines }
    }
}

/// The costs of a run, as callgrind wrote them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Costs {
    proto: u64,
    all: u64,
    /// By file of the engine and line. Inlined code counts for its own file.
    lines: BTreeMap<(String, usize), u64>,
}

impl Costs {
    /// Parses a file of callgrind with one event (instructions) and positions by line.
    fn parse(text: &str) -> Result<Self, Failure> {
        let mut costs = Self::default();
        let (mut files, mut functions) = (Names::default(), Names::default());
        let (mut file, mut in_proto) = (None, false);
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
                    "fn" => in_proto = functions.resolve(value)?.contains("rpcrdma_proto"),
                    // Names of callees count too: each name stands once, where it comes first.
                    "cfi" | "cfl" => drop(files.resolve(value)?),
                    "cfn" => drop(functions.resolve(value)?),
                    "calls" => is_callee = true,
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
            if in_proto {
                costs.proto += cost;
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
