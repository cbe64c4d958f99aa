//! Results of a run: the table for the page and for people, the remarks below it, and JSON.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::figure::Figure;
use super::goals::{Goal, Group, Outcome, Row};
use crate::failure::{Context, Failure};
use crate::figures::Origin;

/// Most characters of a reason in a cell.
const REASON: usize = 160;

/// Result of a group.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) group: &'static Group,
    /// A figure for each row, or the reason why there is none.
    pub(crate) outcome: Result<Outcome, String>,
}

impl Measured {
    /// Returns the rows with their figures.
    fn rows(&self) -> impl Iterator<Item = (&'static Row, Option<&Figure>)> {
        let figures = self.outcome.as_ref().map_or(&[][..], |outcome| &outcome.figures);
        self.group.rows.iter().enumerate().map(|(index, row)| (row, figures.get(index)))
    }

    /// Returns the lines of the table.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for (row, figure) in self.rows() {
            let goal = goal(row);
            let cells = match (figure, &self.outcome) {
                (Some(figure), _) => figured(row, figure),
                (None, Err(reason)) => format!("not measured: {} | | | |", cell(reason)),
                (None, Ok(_)) => "not measured: no result | | | |".to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "| {} | {goal} | {cells} |", row.measure);
        }
        lines
    }
}

/// Returns the cells of a row from the measured number on.
fn figured(row: &Row, figure: &Figure) -> String {
    let Figure { measured, least, most, rounds, value, base } = figure;
    let range = format!("{}–{}", row.show(*least), row.show(*most));
    let compared =
        base.map_or_else(String::new, |base| format!("{} ÷ {}", row.unit.show(*value), row.unit.show(base)));
    let met = match row.goal.is_met(*measured) {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    };
    format!("{} | {range} | {rounds} | {compared} | {met}", row.show(*measured))
}

/// Returns the goal of a row, as a cell.
fn goal(row: &Row) -> String {
    match row.goal {
        Goal::AtLeast(bound) => format!("≥ {}", row.show(bound)),
        Goal::AtMost(bound) => format!("≤ {}", row.show(bound)),
        Goal::Information => String::new(),
    }
}

/// Returns the first line of a reason as a cell may have it.
fn cell(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default().replace('|', "/");
    if line.chars().count() <= REASON {
        return line;
    }
    line.chars().take(REASON).chain(['…']).collect()
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) origin: Origin,
    /// The commit that was measured, as `git describe` names it.
    pub(crate) commit: String,
    pub(crate) quick: bool,
    pub(crate) seconds: f64,
    /// Share of the processors that worked before the first group, in percent.
    pub(crate) busy_before: f64,
    /// Share of the time that other virtual machines had instead, in percent.
    pub(crate) stolen: f64,
    pub(crate) groups: Vec<Measured>,
}

/// JSON document of a run.
#[derive(Debug, Serialize)]
struct Document<'a> {
    machine: &'a str,
    date: &'a str,
    commit: &'a str,
    quick: bool,
    seconds: f64,
    busy_before_percent: f64,
    stolen_percent: f64,
    groups: Vec<GroupDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct GroupDocument<'a> {
    name: &'a str,
    failure: Option<&'a str>,
    notes: &'a [String],
    rows: Vec<RowDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct RowDocument<'a> {
    measure: &'a str,
    goal: String,
    unit: &'a str,
    #[serde(flatten)]
    figure: Option<&'a Figure>,
    met: Option<bool>,
}

const HEAD: &str = "| measure | goal | measured | range | rounds | value ÷ base | met |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
";

impl Report {
    /// Returns whether all rows have figures.
    pub(crate) fn is_complete(&self) -> bool {
        self.groups.iter().all(|measured| measured.rows().all(|(_, figure)| figure.is_some()))
    }

    /// Returns the text of the page: the origin, the table, and the remarks.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}\n\n{HEAD}", self.origin);
        text.extend(self.groups.iter().map(Measured::lines));
        let mut notes: Vec<&str> = Vec::new();
        for outcome in self.groups.iter().filter_map(|measured| measured.outcome.as_ref().ok()) {
            for note in &outcome.notes {
                if !notes.contains(&note.as_str()) {
                    notes.push(note);
                }
            }
        }
        let around = format!(
            "The run took {:.0} minutes. Before it, {:.0} % of the processors' time was in use. During it, other virtual \
             machines of the host took {:.1} %.",
            self.seconds / 60.0,
            self.busy_before,
            self.stolen
        );
        text.push('\n');
        for note in notes.into_iter().chain([around.as_str()]) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "- {note}");
        }
        text
    }

    /// Writes JSON for programs.
    pub(crate) fn write_json(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&self.document()).context("writing the report as JSON")?;
        fs::write(file, text + "\n").context(format!("writing {}", file.display()))
    }

    fn document(&self) -> Document<'_> {
        Document {
            machine: &self.origin.machine,
            date: &self.origin.date,
            commit: &self.commit,
            quick: self.quick,
            seconds: self.seconds,
            busy_before_percent: self.busy_before,
            stolen_percent: self.stolen,
            groups: self.groups.iter().map(GroupDocument::of).collect(),
        }
    }
}

impl<'a> GroupDocument<'a> {
    fn of(measured: &'a Measured) -> Self {
        let row = |(row, figure): (&'static Row, Option<&'a Figure>)| RowDocument {
            measure: row.measure,
            goal: goal(row),
            unit: row.unit.name(),
            figure,
            met: figure.and_then(|figure| row.goal.is_met(figure.measured)),
        };
        Self {
            name: measured.group.name,
            failure: measured.outcome.as_ref().err().map(String::as_str),
            notes: measured.outcome.as_ref().map_or(&[], |outcome| &outcome.notes),
            rows: measured.rows().map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::Round;
    use super::super::goals;
    use super::*;

    fn figure(value: f64, base: Option<f64>) -> Figure {
        Figure::of(&[Round { value, base }]).unwrap()
    }

    fn report(groups: Vec<Measured>) -> Report {
        let origin =
            crate::figures::origin(Path::new("."), "cargo xtask performance --write-docs", "a machine");
        let commit = "abc1234".to_owned();
        Report { origin, commit, quick: false, seconds: 600.0, busy_before: 1.0, stolen: 0.5, groups }
    }

    fn measured(name: &str, outcome: Result<Outcome, String>) -> Measured {
        Measured { group: goals::group(name).unwrap(), outcome }
    }

    fn good() -> Vec<Measured> {
        let note = || vec!["The same remark.".to_owned()];
        let cat = Outcome { figures: vec![figure(0.5, Some(1.0)), figure(0.9, Some(1.0))], notes: note() };
        let memory = Outcome { figures: vec![figure(20_480.0, None)], notes: note() };
        vec![measured("cat", Ok(cat)), measured("memory", Ok(memory))]
    }

    #[test]
    fn a_row_has_goal_figure_and_verdict() {
        let report = report(good());
        let text = report.markdown();
        for line in [
            "| server CPU ÷ Ganesha's, cat, TCP on both | ≤ 0.70 | 0.50 | 0.50–0.50 | 1 | 0.500 s ÷ 1.000 s | yes |",
            "| server CPU ÷ Ganesha's, cat, RDMA on ours |  | 0.90 | 0.90–0.90 | 1 | 0.900 s ÷ 1.000 s |  |",
            "| server memory of an idle connection | ≤ 16.0 KiB | 20.0 KiB | 20.0 KiB–20.0 KiB | 1 |  | **no** |",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("The same remark.").count(), 1, "{text}");
        assert!(report.is_complete());
    }

    #[test]
    fn the_page_is_one_that_figures_accept() {
        let text = report(good()).markdown();
        assert!(text.starts_with("<!-- figures: cargo xtask performance --write-docs | "), "{text}");
        assert!(text.contains(" | a machine -->\n\n| measure |"), "{text}");
    }

    #[test]
    fn a_failure_stands_in_each_row_of_its_group_and_costs_no_other() {
        let mut groups = good();
        groups.push(measured("calls", Err("it needs a | b\nand more".to_owned())));
        let report = report(groups);
        assert!(!report.is_complete());
        let text = report.markdown();
        assert!(text.contains("depth 1 each | ≥ 4.00 | not measured: it needs a / b | | | | |\n"), "{text}");
        assert!(text.contains("| 0.50 | 0.50–0.50 |"), "{text}");
        let columns = |line: &str| line.matches('|').count();
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(table.iter().all(|line| columns(line) == 8), "{text}");
    }

    #[test]
    fn a_result_without_all_figures_is_incomplete() {
        let short = Outcome { figures: vec![figure(1.0, Some(2.0))], notes: Vec::new() };
        let report = report(vec![measured("cat", Ok(short))]);
        assert!(!report.is_complete());
        assert!(report.markdown().contains("not measured: no result"));
    }

    #[test]
    fn the_document_has_what_the_table_has() {
        let mut groups = good();
        groups.push(measured("calls", Err("no program".to_owned())));
        let report = report(groups);
        let document = serde_json::to_value(report.document()).unwrap();
        let row = &document["groups"][0]["rows"][0];
        assert_eq!((&row["measured"], &row["base"], &row["met"]), (&0.5.into(), &1.0.into(), &true.into()));
        assert_eq!(document["groups"][2]["failure"], "no program");
        assert!(document["groups"][2]["rows"][0]["met"].is_null());
        assert_eq!(document["commit"], "abc1234");
    }

    #[test]
    fn long_reasons_are_cut() {
        assert_eq!(cell("short"), "short");
        assert_eq!(cell(&"ä".repeat(REASON + 1)).chars().count(), REASON + 1);
    }
}
