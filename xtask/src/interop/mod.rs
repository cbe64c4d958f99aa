//! The interoperability suite: builds the virtual machine, boots it, runs the cases, prints the table.
//!
//! The suite succeeds only if every chosen case is green. On an unsuitable host it fails with the reason and a remedy. A
//! case without a machine is skipped, with its reason, if the host lacks a program of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use self::cases::{Case, GROUPS, Group, HARDWARE, LINUX};
use self::lab::Page;
use self::report::{CaseResult, Report};
use self::stage::Stage;
use self::vm::Accel;
use crate::failure::{Context, Failure, ensure};
use crate::figures;
use crate::page::{self, Markers};
use crate::project::{self, project};

mod capture;
mod cases;
mod fabric;
mod kernel_log;
mod lab;
mod link;
mod machine;
mod network;
mod pattern;
mod proxy;
mod report;
pub(crate) mod roce_capture;
mod site;
mod stage;
mod tools;
mod vm;

/// The options of `cargo xtask interop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Print the cases and run none
    #[arg(long)]
    list: bool,
    /// Run only cases with TEXT in their full names (GROUP/NAME); may be given several times
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Leave out the cases that repeat the mechanism of another one at length; --list shows what is left
    #[arg(long)]
    quick: bool,
    /// Kind of the guest's processor
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,
    /// Build the machine again even if it is current
    #[arg(long)]
    rebuild: bool,
    /// Write the results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables of cases into docs/linux.md and docs/hardware.md if all cases have run, that of the conformance
    /// tester into docs/conform.md if its case is green, and that of differences between devices into docs/hardware.md if
    /// its case is green; all other files must be committed
    #[arg(long)]
    write_docs: bool,
    /// Stop at the first red case
    #[arg(long)]
    fail_fast: bool,
}

/// Runs the suite.
pub(crate) fn run(options: &Options) -> ExitCode {
    match suite(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("interop: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn suite(options: &Options) -> Result<bool, Failure> {
    let chosen = chosen(options);
    ensure!(!chosen.is_empty(), "no case has such a name; see --list");
    if options.list {
        for (group, case) in &chosen {
            println!("{}/{}: {}", group.name, case.name, case.checks);
        }
        return Ok(true);
    }
    let started = Instant::now();
    let project = project()?;
    if options.write_docs {
        figures::ensure_committed(&project, &[LINUX, HARDWARE, "docs/conform.md"])?;
    }
    let target = project::target(&project).join("interop");
    fs::create_dir_all(&target)?;
    let lock = fs::File::create(target.join("lock")).context("creating the lock")?;
    ensure!(lock.try_lock().is_ok(), "another run of the suite uses {}", target.display());
    let mut stage = Stage::prepare(options, &chosen, &project, &target)?;
    println!("{}, {} cases", stage.description(), chosen.len());
    let mut report = Report {
        machine: stage.description(),
        commit: figures::commit(&project).unwrap_or_else(|| "unknown".to_owned()),
        origin: stage.origin(&project),
        accel: stage.accel(),
        complete: options.filter.is_empty() && !options.quick,
        seconds: 0.0,
        cases: Vec::new(),
    };
    for (group, case) in &chosen {
        let verdict = stage.one(group, case)?;
        let red = verdict.result == CaseResult::Failed;
        report.cases.push(verdict);
        if red && options.fail_fast {
            break;
        }
    }
    let (survived, pages) = stage.end();
    report.seconds = report::seconds(started.elapsed());
    println!("\n{}", report.table());
    println!("{}", report.summary(chosen.len()));
    let missing = report.missing(&chosen);
    if !missing.is_empty() {
        println!("without a result: {}", missing.join(", "));
    }
    if !survived {
        println!("the guest died after the last case");
    }
    if let Some(file) = &options.json {
        report.write_json(file)?;
    }
    if options.write_docs && survived {
        write_docs(&project, &report, &pages, &missing)?;
    }
    Ok(survived && report.count(CaseResult::Failed) == 0 && missing.is_empty())
}

/// Returns the cases to run, in their order.
fn chosen(options: &Options) -> Vec<(&'static Group, &'static Case)> {
    let is_chosen = |(group, case): &(&Group, &Case)| {
        let full = format!("{}/{}", group.name, case.name);
        let named = options.filter.iter().any(|text| full.contains(text.as_str()));
        (options.filter.is_empty() || named) && !(options.quick && case.thorough)
    };
    GROUPS
        .iter()
        .flat_map(|group| group.cases.iter().map(move |case| (group, case)))
        .filter(is_chosen)
        .collect()
}

/// Writes what this run knows into the pages of the documentation. `missing` are the cases without a result.
fn write_docs(project: &Path, report: &Report, pages: &[Page], missing: &[String]) -> Result<(), Failure> {
    for (page, markers, text) in pages {
        page::write_page(&project.join(page), *markers, text)?;
    }
    if report.complete {
        let all = missing.is_empty() && report.count(CaseResult::Skipped) == 0;
        ensure!(all, "the tables of cases stay as they are: not all cases have run");
        page::write_page(&project.join(LINUX), Markers::USUAL, &report.markdown(LINUX))?;
        page::write_page(&project.join(HARDWARE), Markers::CASES, &report.markdown(HARDWARE))?;
    }
    Ok(())
}
