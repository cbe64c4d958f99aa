//! The stage of a run: the machine if a case needs it, the programs under test, and what happens around each case.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::cases::{Case, Detail, Group, Run};
use super::lab::{self, Lab, Page};
use super::report::{CaseResult, Verdict};
use super::site::Site;
use super::tools::Tool;
use super::{Options, capture, machine, network, report};
use crate::failure::{Context, Failure, ensure};
use crate::figures::Origin;
use crate::needs::Needs;
use crate::{process, project};

/// Stands for the machine and its processor in a run without one.
const NO_MACHINE: &str = "no machine";

/// The environment of all cases; see the module.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The machine, if a case needs it.
    lab: Option<Lab>,
    /// Folder of everything that the suite builds and keeps.
    target: PathBuf,
    /// The command under test.
    rpcrdma: PathBuf,
    /// Programs that cannot be built, with the reasons.
    unbuilt: Vec<(&'static str, String)>,
}

impl Stage {
    /// Builds what the chosen cases need, and boots the machine if one of them runs there.
    pub(crate) fn prepare(
        options: &Options,
        chosen: &[(&'static Group, &'static Case)],
        project: &Path,
        target: &Path,
    ) -> Result<Self, Failure> {
        let has_machine = chosen.iter().any(|(_, case)| matches!(case.run, Run::Machine(_)));
        let interop = project.join("interop");
        if has_machine {
            let missing = machine::missing(&interop)?;
            ensure!(missing.is_empty(), "the suite cannot run here:\n  {}", missing.join("\n  "));
        }
        let rpcrdma = project::build_command(project)?;
        let machine = has_machine.then(|| machine::prepare(&interop, target, options.rebuild)).transpose()?;
        let unbuilt = build_tools(chosen, project, target);
        let lab = match machine {
            Some(machine) => {
                // From here on the suite's network is the only one.
                network::enter().context("setting up the suite's network; it needs root and /dev/net/tun")?;
                Some(Lab::start(machine, project, &target.join("run"), &rpcrdma, options.accel)?)
            }
            None => None,
        };
        Ok(Self { lab, target: target.to_owned(), rpcrdma, unbuilt })
    }

    /// Describes the guest in words.
    pub(crate) fn description(&self) -> String {
        self.lab.as_ref().map_or_else(|| NO_MACHINE.to_owned(), Lab::description)
    }

    /// Returns the kind of the guest's processor.
    pub(crate) fn accel(&self) -> &'static str {
        self.lab.as_ref().map_or(NO_MACHINE, |lab| lab.accel().name())
    }

    /// Returns the origin of tables that this run writes.
    pub(crate) fn origin(&self, project: &Path) -> Origin {
        self.lab.as_ref().map_or_else(|| lab::origin(project, NO_MACHINE), Lab::origin)
    }

    /// Runs a case. An error means that the machine is gone.
    pub(crate) fn one(&mut self, group: &'static Group, case: &'static Case) -> Result<Verdict, Failure> {
        let unbuilt = case.tool.and_then(|tool| self.unbuilt.iter().find(|(name, _)| *name == tool.name));
        if let Some((_, reason)) = unbuilt {
            return Ok(not_run(group, case, CaseResult::Failed, reason.clone()));
        }
        match (case.run, &mut self.lab) {
            (Run::Programs(needs, run), _) => Ok(self.with_programs(group, case, needs, run)),
            (Run::Machine(run), Some(lab)) => on_machine(lab, group, case, run, &self.target),
            (Run::Machine(_), None) => Err(Failure::new("the case needs the machine, which was not booted")),
        }
    }

    /// Runs a case without the machine.
    fn with_programs(
        &self,
        group: &'static Group,
        case: &'static Case,
        needs: Needs,
        run: fn(&mut Site) -> Result<Detail, Failure>,
    ) -> Verdict {
        if let Some(reason) = needs.lacking() {
            return not_run(group, case, CaseResult::Skipped, reason);
        }
        let started = Instant::now();
        let folder = self.target.join("site");
        let result = Site::enter(&self.rpcrdma, &self.target, &folder, case.limit).and_then(|mut site| {
            let detail = run(&mut site)?;
            site.settle()?;
            Ok(detail)
        });
        let seconds = report::seconds(started.elapsed());
        let (result, detail) = match result {
            Ok(detail) => (CaseResult::Ok, detail),
            Err(failure) => (CaseResult::Failed, failure.to_string()),
        };
        let verdict =
            Verdict { group: group.name, name: case.name, checks: case.checks, result, seconds, detail };
        println!("{verdict}");
        if result == CaseResult::Failed {
            println!("  it checks: {}", case.checks);
            let logs = Site::logs(&folder);
            for log in &logs {
                section(&log.display().to_string(), &process::tail(log, 25));
            }
            let keep = self.target.join("failures").join(group.name).join(case.name);
            match keep_files(logs.iter().map(PathBuf::as_path), &keep) {
                Ok(()) => println!("  kept in {}", keep.display()),
                Err(failure) => println!("  not all could be kept: {failure}"),
            }
        }
        verdict
    }

    /// Ends the run. Returns whether the machine has survived, and the texts of cases for pages.
    pub(crate) fn end(mut self) -> (bool, Vec<Page>) {
        match &mut self.lab {
            Some(lab) => {
                let pages = std::mem::take(&mut lab.pages);
                (lab.is_alive(), pages)
            }
            None => (true, Vec::new()),
        }
    }
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

/// Returns the verdict of a case that does not run, and prints it.
fn not_run(group: &'static Group, case: &'static Case, result: CaseResult, reason: String) -> Verdict {
    let Case { name, checks, .. } = *case;
    let verdict = Verdict { group: group.name, name, checks, result, seconds: 0.0, detail: reason };
    println!("{verdict}");
    verdict
}

/// Runs a case on the machine, and leaves a clean one. An error means that the machine is gone.
fn on_machine(
    lab: &mut Lab,
    group: &'static Group,
    case: &'static Case,
    run: fn(&mut Lab) -> Result<Detail, Failure>,
    target: &Path,
) -> Result<Verdict, Failure> {
    let started = Instant::now();
    let result = lab.begin(case.limit, case.capture, case.fabric, case.link).and_then(|()| {
        let detail = run(lab)?;
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
    let verdict = |ok: bool, detail: String| Verdict {
        group: group.name,
        name: case.name,
        checks: case.checks,
        result: if ok { CaseResult::Ok } else { CaseResult::Failed },
        seconds: elapsed,
        detail,
    };
    println!("{}", verdict(ok, detail.clone()));
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
    Ok(verdict(ok, detail))
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
    let logs = lab.server_logs().iter().map(PathBuf::as_path).chain(capture);
    keep_files(logs, keep)?;
    fs::write(keep.join("kernel.log"), lab.kernel_log())?;
    println!("  kept in {}", keep.display());
    Ok(())
}

/// Keeps these files in a folder, and no older ones.
fn keep_files<'a>(files: impl IntoIterator<Item = &'a Path>, keep: &Path) -> Result<(), Failure> {
    if keep.exists() {
        fs::remove_dir_all(keep)?;
    }
    fs::create_dir_all(keep)?;
    for file in files {
        if let Some(name) = file.file_name() {
            fs::copy(file, keep.join(name))?;
        }
    }
    Ok(())
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
