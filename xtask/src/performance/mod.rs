//! The goals of performance, measured in one run: what each is, how far it is reached, and on which machine.
//!
//! Rows that are measured together are a group ([`goals`]). Each group runs in a process of its own ([`group`]), as root in
//! namespaces of its own for network, mounts and processes. So a group that fails, hangs or is interrupted leaves no process,
//! link or mount, and costs no other group. Its files are in a folder that this process removes. Rounds alternate
//! between subject and base, and the table has medians ([`figure`], [`report`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::builder::PossibleValuesParser;

use self::goals::{GROUPS, Group};
use self::lab::Effort;
use self::machine::Ticks;
use self::report::{Measured, Report};
use self::stop::Stop;
use crate::failure::{Context, Failure, ensure};
use crate::figures;
use crate::page::{self, Markers};
use crate::project::{self, project};

mod calls;
mod connections;
mod copies;
mod figure;
mod goals;
mod group;
mod kerberos;
mod lab;
mod loopback;
mod machine;
mod nfs;
mod report;
mod scaling;
mod server;
mod stop;
mod tls;
mod wire;

/// The page with the table.
const PAGE: &str = "docs/performance.md";
/// Package and name of the load program.
const LOAD: (&str, &str) = ("rpcrdma-cli", "load");

/// The options of `cargo xtask performance`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure only these groups of rows, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(goals::names()))]
    only: Vec<String>,
    /// Measure briefly, to see that everything works; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Write the results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table into docs/performance.md; all other files must be committed
    #[arg(long, conflicts_with_all = ["only", "quick"])]
    write_docs: bool,
    #[command(flatten)]
    inside: group::Inside,
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> ExitCode {
    let inside = options.inside.is_group();
    let done = if inside { options.inside.run(Effort::new(options.quick)) } else { performance(options) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("performance: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints the table, and returns whether all rows have figures.
fn performance(options: &Options) -> Result<bool, Failure> {
    let project = project()?;
    if options.write_docs {
        figures::ensure_committed(&project, &[PAGE])?;
    }
    let target = project::target(&project).join("performance");
    fs::create_dir_all(&target)?;
    // Ganesha exports no path through a symbolic link.
    let target = target.canonicalize().context(target.display())?;
    let lock = fs::File::create(target.join("lock")).context("creating the lock")?;
    ensure!(lock.try_lock().is_ok(), "another run uses {}", target.display());
    let programs = group::Programs {
        rpcrdma: project::build_command(&project)?,
        load: project::build_example(&project, LOAD.0, LOAD.1)?,
    };
    let command =
        if options.write_docs { "cargo xtask performance --write-docs" } else { "cargo xtask performance" };
    let origin = figures::origin(&project, command, &machine::name());
    let commit = figures::commit(&project).unwrap_or_else(|| "unknown".to_owned());
    let stop = Stop::listen()?;
    let busy_before = machine::busy();
    println!("{}; {busy_before:.0} % in use before the run", origin.machine);
    let (started, ticks) = (Instant::now(), Ticks::now());
    let chosen = |group: &&'static Group| {
        options.only.is_empty() || options.only.iter().any(|name| name == group.name)
    };
    let groups = GROUPS
        .iter()
        .filter(chosen)
        .map(|group| one(group, &programs, &target.join("run"), options.quick, &stop))
        .collect();
    let report = Report {
        origin,
        commit,
        quick: options.quick,
        seconds: started.elapsed().as_secs_f64(),
        busy_before,
        stolen: machine::stolen_since(ticks),
        groups,
    };
    ensure!(!stop.is_asked(), "interrupted: nothing was written");
    println!("\n{}", report.markdown());
    if let Some(file) = &options.json {
        report.write_json(file)?;
    }
    if options.write_docs {
        page::write_page(&project.join(PAGE), Markers::GOALS, &report.markdown())?;
    }
    let complete = report.is_complete();
    if !complete {
        println!("Some rows have no figure.");
    }
    Ok(complete)
}

/// Measures a group, and shows its rows.
fn one(
    group: &'static Group,
    programs: &group::Programs,
    folder: &Path,
    quick: bool,
    stop: &Stop,
) -> Measured {
    println!("{}:", group.name);
    let started = Instant::now();
    let outcome = group::measure(group, programs, folder, quick, stop).map_err(|failure| failure.to_string());
    let measured = Measured { group, outcome };
    print!("{}", measured.lines());
    println!("  {:.0} s", started.elapsed().as_secs_f64());
    measured
}
