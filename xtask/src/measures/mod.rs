//! The measures of the engine: its size, its order, and the work of a call; and the work of software iWARP.
//!
//! Sources are parsed ([`crate::source`]); the way of a call and its instructions are counted by valgrind
//! ([`callgrind`]) on examples of `rpcrdma` and `iwarp`. `--check` fails if a figure is beyond its gate
//! ([`gates`]), or if the table in `ARCHITECTURE.md` ([`page`]) is stale.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use self::callgrind::{CALLS, Example};
use self::measure::Now;
use crate::failure::{Context, Failure, ensure};
use crate::figures;
use crate::project::project;

mod callgrind;
mod circles;
mod foreign;
mod gates;
mod measure;
mod names;
mod page;
mod shape;
mod take;

/// The page with the table.
const PAGE: &str = "ARCHITECTURE.md";

/// The options of `cargo xtask measures`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Fail if a measure is beyond its gate or the table in ARCHITECTURE.md is stale
    #[arg(long)]
    check: bool,
    /// Write the table into ARCHITECTURE.md; all other files must be committed
    #[arg(long)]
    write_docs: bool,
    /// Print what one measure counts, by name: code, code-one, credits, files, checks, functions, fields,
    /// instructions, read, send or receive, each of these four with its allocations (allocations,
    /// read-allocations, send-allocations, receive-allocations), typed-null, typed-void or typed-echo, cfg, circles,
    /// pages or features
    #[arg(long, value_name = "MEASURE")]
    list: Option<String>,
    /// Print the instructions of a NULL call in each version, both ends together
    #[arg(long)]
    instructions: bool,
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> ExitCode {
    let done = if options.instructions { instructions() } else { measures(options) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("measures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes the measures, prints them, and returns whether the task succeeded.
fn measures(options: &Options) -> Result<bool, Failure> {
    let project = project()?;
    if options.write_docs {
        figures::ensure_committed(&project, &[PAGE])?;
    }
    let needs_valgrind = options.list.as_ref().is_none_or(|key| take::COUNTED.contains(&key.as_str()));
    let has_counted = needs_valgrind && callgrind::is_installed();
    let counted = if has_counted {
        take::Counted::take(&project, options.list.as_deref())?
    } else {
        take::Counted::default()
    };
    let measures = take::all(&project, &counted)?;
    if let Some(key) = &options.list {
        let Some(measure) = measures.iter().find(|measure| measure.key == key.as_str()) else {
            let keys: Vec<&str> = measures.iter().map(|measure| measure.key).collect();
            return Err(Failure::new(format!("no measure {key}: there are {}", keys.join(", "))));
        };
        let list: String = measure.list.iter().flat_map(|line| [line, "\n"]).collect();
        // A pager that has seen enough closes the pipe.
        return match std::io::stdout().write_all(list.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(error).context("standard output")
            }
            _ => Ok(true),
        };
    }
    print!("{}", page::table(&measures));
    let mut faults: Vec<String> = measures.iter().flat_map(|measure| measure.broken.clone()).collect();
    for measure in measures.iter().filter(|measure| matches!(measure.now, Now::Unmeasured)) {
        faults.push(format!("{}: valgrind counts this, and is not installed", measure.title));
    }
    let file = project.join(PAGE);
    let text = fs::read_to_string(&file).context(PAGE)?;
    if options.write_docs {
        ensure!(has_counted, "the table needs valgrind");
        let origin = figures::origin(&project, "cargo xtask measures --write-docs", "any: counts, no times");
        fs::write(&file, page::with_table(&text, &measures, &origin)?).context(PAGE)?;
    } else {
        faults.extend(page::stale(&text, &measures));
    }
    for note in measures.iter().flat_map(|measure| &measure.notes) {
        eprintln!("measures: note: {note}");
    }
    for fault in &faults {
        eprintln!("measures: {fault}");
    }
    Ok(faults.is_empty() || !options.check)
}

/// Prints the instructions of a NULL call by version.
fn instructions() -> Result<bool, Failure> {
    ensure!(callgrind::is_installed(), "this needs valgrind");
    let example = Example::build(&project()?, CALLS)?;
    println!("{:<8} {:>8} {:>8}", "version", "proto", "all");
    for (argument, name) in callgrind::VERSIONS {
        let call = example.measure(&["null", argument])?;
        println!("{name:<8} {:>8} {:>8}", call.own, call.all);
    }
    Ok(true)
}

/// Returns the features that the build of the engine without default features enables: lines of `cargo tree`.
fn features(project: &Path) -> Result<String, Failure> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(project).args(["tree", "--locked", "-e", "features,no-dev", "-p", "rpcrdma-proto"]);
    let output = cargo.arg("--no-default-features").output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
