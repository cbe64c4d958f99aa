//! Results of a run: progress, the table, JSON, the table of `docs/linux.md`, and the tables of other pages.

use std::fmt::{self, Write};
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::cases::{Case, GROUPS, Group, LINUX};
use crate::failure::{Context, Failure};
use crate::figures::Origin;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CaseResult {
    Ok,
    Failed,
    /// The host lacks a program of the case.
    Skipped,
}

impl CaseResult {
    /// Returns the word for people at the terminal.
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

/// Result of one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) checks: &'static str,
    pub(crate) result: CaseResult,
    pub(crate) seconds: f64,
    /// Remark of the case, or the reason why it failed or was skipped.
    pub(crate) detail: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, name, result, seconds, detail, .. } = self;
        write!(f, "{:7} {group}/{name} ({seconds} s)", result.word())?;
        if detail.is_empty() { Ok(()) } else { write!(f, ": {detail}") }
    }
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Description of the guest.
    pub(crate) machine: String,
    /// The commit that was tested, as `git describe` names it.
    pub(crate) commit: String,
    /// Origin of the tables.
    #[serde(skip)]
    pub(crate) origin: Origin,
    /// `kvm` or `tcg`.
    pub(crate) accel: &'static str,
    /// Whether all cases of the suite were chosen.
    pub(crate) complete: bool,
    pub(crate) seconds: f64,
    pub(crate) cases: Vec<Verdict>,
}

impl Report {
    /// Returns the number of cases with a result.
    pub(crate) fn count(&self, result: CaseResult) -> usize {
        self.cases.iter().filter(|verdict| verdict.result == result).count()
    }

    /// Returns the last line for people: how many of the chosen cases are green.
    pub(crate) fn summary(&self, chosen: usize) -> String {
        let green = self.count(CaseResult::Ok);
        let skipped = match self.count(CaseResult::Skipped) {
            0 => String::new(),
            skipped => format!(", {skipped} skipped,"),
        };
        format!("{green} of {chosen} cases green{skipped} with {} in {:.0} s", self.accel, self.seconds)
    }

    /// Returns the full names of the chosen cases without a result.
    pub(crate) fn missing(&self, chosen: &[(&'static Group, &'static Case)]) -> Vec<String> {
        let has = |group: &Group, case: &Case| {
            self.cases.iter().any(|verdict| verdict.group == group.name && verdict.name == case.name)
        };
        chosen
            .iter()
            .filter(|(group, case)| !has(group, case))
            .map(|(group, case)| format!("{}/{}", group.name, case.name))
            .collect()
    }

    /// Returns the table for people.
    pub(crate) fn table(&self) -> String {
        let width =
            self.cases.iter().map(|verdict| verdict.group.len() + verdict.name.len() + 1).max().unwrap_or(0);
        let mut text = String::new();
        for verdict in &self.cases {
            let name = format!("{}/{}", verdict.group, verdict.name);
            let result = verdict.result.word();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{name:width$}  {result:7}  {:6.1} s  {}",
                verdict.seconds,
                verdict.detail.lines().next().unwrap_or_default()
            );
        }
        text
    }

    /// Writes JSON for programs.
    pub(crate) fn write_json(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).context("writing the report as JSON")?;
        fs::write(file, text + "\n").context(format!("writing {}", file.display()))
    }

    /// Returns the tables of a page.
    pub(crate) fn markdown(&self, page: &str) -> String {
        let groups = GROUPS.iter().filter(|group| group.page == page);
        let mut text = format!("{}; commit {}", self.machine, self.commit);
        if page == LINUX {
            // Writing to a String cannot fail.
            let _ = write!(text, "; {} cases in {:.0} s ({})", self.cases.len(), self.seconds, self.accel);
        }
        text.push_str(".\n");
        for group in groups {
            let _ = write!(
                text,
                "\n### {}\n\n{}\n\n| case | check | result | seconds |\n| --- | --- | --- | ---: |\n",
                group.title, self.origin
            );
            for verdict in self.cases.iter().filter(|verdict| verdict.group == group.name) {
                let result = if verdict.result == CaseResult::Ok { "ok" } else { "**failed**" };
                let Verdict { name, checks, seconds, .. } = verdict;
                let _ = writeln!(text, "| `{name}` | {checks} | {result} | {seconds:.1} |");
            }
        }
        text
    }
}

/// Rounds a time for a progress line.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_the_cases_that_there_are() {
        let page = include_str!("../../../docs/linux.md");
        for group in GROUPS.iter().filter(|group| group.page == LINUX) {
            let (_, section) = page.split_once(&format!("### {}\n", group.title)).unwrap();
            let section = section.split("\n#").next().unwrap();
            let listed: Vec<&str> = section
                .lines()
                .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
                .map(|(name, rest)| {
                    let case = group.cases.iter().find(|case| case.name == name).unwrap();
                    assert!(rest.starts_with(&format!("{} | ", case.checks)), "{name}: {rest}");
                    name
                })
                .collect();
            assert_eq!(listed, group.cases.iter().map(|case| case.name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_skipped_is_neither_green_nor_red() {
        let verdict = |result| Verdict {
            group: "group",
            name: "case",
            checks: "a claim",
            result,
            seconds: 1.5,
            detail: "missing: one (package first)".to_owned(),
        };
        let skipped = verdict(CaseResult::Skipped);
        assert_eq!(skipped.to_string(), "skipped group/case (1.5 s): missing: one (package first)");
        let report = Report {
            machine: String::new(),
            commit: String::new(),
            origin: crate::figures::origin(std::path::Path::new("."), "make", "a machine"),
            accel: "kvm",
            complete: true,
            seconds: 2.0,
            cases: vec![verdict(CaseResult::Ok), skipped],
        };
        assert_eq!((report.count(CaseResult::Failed), report.count(CaseResult::Ok)), (0, 1));
        assert_eq!(report.summary(2), "1 of 2 cases green, 1 skipped, with kvm in 2 s");
    }

    #[test]
    fn a_case_without_result_is_missing() {
        let chosen: Vec<_> =
            GROUPS.iter().flat_map(|group| group.cases.iter().map(move |case| (group, case))).collect();
        let report = Report {
            machine: String::new(),
            commit: String::new(),
            origin: crate::figures::origin(std::path::Path::new("."), "make", "a machine"),
            accel: "kvm",
            complete: true,
            seconds: 0.0,
            cases: Vec::new(),
        };
        assert_eq!(report.missing(&chosen).len(), chosen.len());
    }
}
