//! The interoperability suite: builds the virtual machine, boots it, runs the cases, prints the table.
//!
//! The suite succeeds only if every chosen case is green. On an unsuitable host it fails with the reason and a remedy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use self::cases::{Case, GROUPS, Group, HARDWARE, LINUX};
use self::lab::Lab;
use self::report::{Report, Verdict};
use self::tools::Tool;
use self::vm::Accel;
use crate::failure::{Context, Failure, ensure};
use crate::figures::{self, Origin};
use crate::page::{self, Markers};
use crate::process;
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
    let chosen: Vec<(&Group, &Case)> = GROUPS
        .iter()
        .flat_map(|group| group.cases.iter().map(move |case| (group, case)))
        .filter(|(group, case)| {
            let full = format!("{}/{}", group.name, case.name);
            let named = options.filter.iter().any(|text| full.contains(text.as_str()));
            (options.filter.is_empty() || named) && !(options.quick && case.thorough)
        })
        .collect();
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
    let interop = project.join("interop");
    let target = project::target(&project).join("interop");
    fs::create_dir_all(&target)?;
    let lock = fs::File::create(target.join("lock")).context("creating the lock")?;
    ensure!(lock.try_lock().is_ok(), "another run of the suite uses {}", target.display());
    let missing = machine::missing(&interop)?;
    ensure!(missing.is_empty(), "the suite cannot run here:\n  {}", missing.join("\n  "));
    let rpcrdma = project::build_command(&project)?;
    let machine = machine::prepare(&interop, &target, options.rebuild)?;
    let unbuilt = build_tools(&chosen, &project, &target);
    // From here on the suite's network is the only one.
    network::enter().context("setting up the suite's network; it needs root and /dev/net/tun")?;
    let run = target.join("run");
    let mut lab = Lab::start(machine, &project, &run, &rpcrdma, options.accel)?;
    println!("{}, {} cases", lab.description(), chosen.len());
    let mut report = Report {
        machine: lab.description(),
        commit: figures::commit(&project).unwrap_or_else(|| "unknown".to_owned()),
        origin: origin(&lab),
        accel: lab.accel().name(),
        complete: options.filter.is_empty() && !options.quick,
        seconds: 0.0,
        cases: Vec::new(),
    };
    for (group, case) in &chosen {
        let unbuilt = case.tool.and_then(|tool| unbuilt.iter().find(|(name, _)| *name == tool.name));
        let verdict = match unbuilt {
            Some((_, reason)) => unbuilt_case(group, case, reason),
            None => one(&mut lab, group, case, &target)?,
        };
        let red = !verdict.ok;
        report.cases.push(verdict);
        if red && options.fail_fast {
            break;
        }
    }
    let pages = std::mem::take(&mut lab.pages);
    let survived = lab.is_alive();
    drop(lab);
    report.seconds = report::seconds(started.elapsed());
    let missing = report.missing(&chosen);
    println!("\n{}", report.table());
    println!(
        "{} of {} cases green with {} in {:.0} s",
        report.cases.len() - report.red(),
        chosen.len(),
        report.accel,
        report.seconds
    );
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
        for (page, markers, text) in &pages {
            page::write_page(&project.join(page), *markers, text)?;
        }
        if report.complete {
            ensure!(missing.is_empty(), "the tables of cases stay as they are: not all cases have run");
            page::write_page(&project.join(LINUX), Markers::USUAL, &report.markdown(LINUX))?;
            page::write_page(&project.join(HARDWARE), Markers::CASES, &report.markdown(HARDWARE))?;
        }
    }
    Ok(survived && report.red() == 0 && missing.is_empty())
}

/// Builds the programs that cases need. Returns those that cannot be built, with the reasons.
fn build_tools(
    chosen: &[(&'static Group, &'static Case)],
    project: &Path,
    target: &Path,
) -> Vec<(&'static str, String)> {
    let mut tools: Vec<&'static Tool> = Vec::new();
    for tool in chosen.iter().filter_map(|(_, case)| case.tool) {
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    let build = |tool: &Tool| tool.prepare(project, target).err().map(|failure| failure.to_string());
    tools.into_iter().filter_map(|tool| Some((tool.name, build(tool)?))).collect()
}

/// Returns the verdict of a case whose program cannot be built.
fn unbuilt_case(group: &'static Group, case: &'static Case, reason: &str) -> Verdict {
    println!("FAILED {}/{}: {reason}", group.name, case.name);
    let Case { name, checks, .. } = *case;
    Verdict { group: group.name, name, checks, ok: false, seconds: 0.0, detail: reason.to_owned() }
}

/// Runs a case, and leaves a clean machine. An error means that the machine is gone.
fn one(lab: &mut Lab, group: &'static Group, case: &'static Case, target: &Path) -> Result<Verdict, Failure> {
    let started = Instant::now();
    let result = lab.begin(case.limit, case.capture, case.fabric, case.link).and_then(|()| {
        let detail = (case.run)(lab)?;
        lab.settle()?;
        Ok(detail)
    });
    let elapsed = report::seconds(started.elapsed());
    let (mut ok, mut detail) = match result {
        Ok(detail) => (true, detail),
        Err(failure) => (false, failure.to_string()),
    };
    let capture = lab.end_capture().unwrap_or_else(|failure| {
        println!("  no trace: {failure}");
        None
    });
    println!(
        "{:6} {}/{} ({elapsed} s){}{}",
        if ok { "ok" } else { "FAILED" },
        group.name,
        case.name,
        if detail.is_empty() { "" } else { ": " },
        detail
    );
    if !ok {
        let keep = target.join("failures").join(group.name).join(case.name);
        if let Err(failure) = explain(lab, case, capture.as_deref(), &keep) {
            println!("  not all could be kept: {failure}");
        }
    }
    let note = lab.clear()?;
    // Processes that ended after the check of the case may have logged more complaints.
    let complaint = lab.judge().err().map(|failure| failure.to_string());
    if let Some(note) = &note {
        println!("  {note}");
    }
    let green = ok;
    (ok, detail) = afterwards(ok, detail, note.as_deref(), complaint);
    if green && !ok {
        println!("FAILED {}/{} after its end: {detail}", group.name, case.name);
    }
    Ok(Verdict { group: group.name, name: case.name, checks: case.checks, ok, seconds: elapsed, detail })
}

/// Returns the result of a case after the clean-up: a green case is red if the guest had to be booted again (`note`) or
/// its kernel complained.
fn afterwards(ok: bool, detail: String, note: Option<&str>, complaint: Option<String>) -> (bool, String) {
    let note = note.map(|note| note.lines().next().unwrap_or_default().to_owned());
    if ok {
        note.or(complaint).map_or((true, detail), |reason| (false, reason))
    } else {
        (false, note.map_or(detail.clone(), |note| format!("{detail}; {note}")))
    }
}

/// Prints information about a red case, and keeps its files.
fn explain(lab: &mut Lab, case: &Case, capture: Option<&Path>, keep: &Path) -> Result<(), Failure> {
    println!("  it checks: {}", case.checks);
    lab.extend();
    section("kernel log", &process::last_lines(lab.kernel_log(), 25));
    for log in lab.server_logs() {
        section("our server", &process::tail(log, 25));
    }
    if let Some(file) = capture {
        section("the wire, last frames", &capture::decode(file, 40));
    }
    if keep.exists() {
        fs::remove_dir_all(keep)?;
    }
    fs::create_dir_all(keep)?;
    fs::write(keep.join("kernel.log"), lab.kernel_log())?;
    for log in lab.server_logs().iter().map(PathBuf::as_path).chain(capture) {
        if let Some(name) = log.file_name() {
            fs::copy(log, keep.join(name))?;
        }
    }
    println!("  kept in {}", keep.display());
    Ok(())
}

/// Returns the origin of a table that this run writes.
fn origin(lab: &Lab) -> Origin {
    let machine = format!("{}, {}", lab.description(), lab.accel().name());
    figures::origin(&lab.project, "cargo xtask interop --write-docs", &machine)
}

fn section(title: &str, text: &str) {
    println!("  -- {title}");
    for line in text.lines() {
        println!("  {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIED: &str = "the guest died; booted again\nconsole of the guest";

    fn after(ok: bool, note: Option<&str>, complaint: Option<&str>) -> (bool, String) {
        afterwards(ok, "detail".to_owned(), note, complaint.map(str::to_owned))
    }

    #[test]
    fn a_clean_end_changes_nothing() {
        assert_eq!(after(true, None, None), (true, "detail".to_owned()));
        assert_eq!(after(false, None, None), (false, "detail".to_owned()));
    }

    #[test]
    fn a_guest_that_dies_after_a_green_case_makes_it_red() {
        assert_eq!(after(true, Some(DIED), None), (false, "the guest died; booted again".to_owned()));
        assert_eq!(after(true, Some(DIED), Some("BUG")), (false, "the guest died; booted again".to_owned()));
    }

    #[test]
    fn a_complaint_after_a_green_case_makes_it_red() {
        assert_eq!(after(true, None, Some("BUG")), (false, "BUG".to_owned()));
    }

    #[test]
    fn a_red_case_keeps_its_reason() {
        assert_eq!(after(false, None, Some("BUG")), (false, "detail".to_owned()));
        let both = (false, "detail; the guest died; booted again".to_owned());
        assert_eq!(after(false, Some(DIED), None), both);
    }
}
