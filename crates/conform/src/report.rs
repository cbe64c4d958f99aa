//! Rows, verdicts and tables.
//!
//! A row is a named case with a section number, what is sent and what is expected of the peer. [`Rule`] says how binding the
//! expectation is, [`Verdict`] what came of it.

use std::fmt::{self, Write};

use serde::Serialize;

/// How binding a row is, by the wording of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The text says MUST, or every peer has to understand the form: anything else is a failure.
    Required,
    /// The text says SHOULD: anything else that harms nobody differs.
    Recommended,
    /// The text leaves it to the peer, within bounds that the row names.
    Choice,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Required => "required",
            Self::Recommended => "recommended",
            Self::Choice => "peer's choice",
        })
    }
}

/// What came of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Not what the text recommends, but nobody is harmed.
    Differs,
    /// Against the text, or the peer was harmed.
    Fail,
    /// The row could not be tried; what was seen says why.
    NotApplicable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Differs => "differs",
            Self::Fail => "FAIL",
            Self::NotApplicable => "n/a",
        })
    }
}

/// Why a row did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) verdict: Verdict,
    pub(crate) seen: String,
}

/// A failure, with what was seen.
pub(crate) fn fail(seen: impl Into<String>) -> Wrong {
    Wrong { verdict: Verdict::Fail, seen: seen.into() }
}

/// Something that harms nobody, with what was seen.
pub(crate) fn differs(seen: impl Into<String>) -> Wrong {
    Wrong { verdict: Verdict::Differs, seen: seen.into() }
}

/// A row that could not be tried, with the reason.
pub(crate) fn not_applicable(why: impl Into<String>) -> Wrong {
    Wrong { verdict: Verdict::NotApplicable, seen: why.into() }
}

/// What a row saw, or why it did not pass.
pub(crate) type Outcome = Result<String, Wrong>;

/// The parts of a row that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RowInfo {
    /// Its name, for `--filter` and for tables.
    pub name: &'static str,
    /// Where the expectation is written.
    pub section: &'static str,
    /// How binding it is.
    pub rule: Rule,
    /// What is sent or done.
    pub sends: &'static str,
    /// What is expected.
    pub expects: &'static str,
}

/// A row that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowReport {
    /// The row.
    #[serde(flatten)]
    pub row: RowInfo,
    /// What came of it.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
}

impl RowReport {
    pub(crate) fn new(row: RowInfo, outcome: Outcome) -> Self {
        match outcome {
            Ok(seen) => Self { row, verdict: Verdict::Pass, seen },
            Err(Wrong { verdict, seen }) => Self { row, verdict, seen },
        }
    }
}

/// All rows that were tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of the table.
    pub rows: Vec<RowReport>,
}

impl Report {
    /// Rows with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Whether no row failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.count(Verdict::Fail) == 0
    }

    /// The table as Markdown, one line a row.
    #[must_use]
    pub fn table(&self) -> String {
        let cells: Vec<[String; 6]> = self
            .rows
            .iter()
            .map(|RowReport { row, verdict, seen }| {
                [
                    verdict.to_string(),
                    row.name.into(),
                    row.section.into(),
                    row.rule.to_string(),
                    row.expects.into(),
                    seen.clone(),
                ]
            })
            .collect();
        table(["verdict", "row", "section", "rule", "expected", "seen"], &cells)
    }

    /// How many rows had which verdict, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "{} rows: {} pass, {} differ, {} fail, {} not applicable",
            self.rows.len(),
            self.count(Verdict::Pass),
            self.count(Verdict::Differs),
            self.count(Verdict::Fail),
            self.count(Verdict::NotApplicable)
        )
    }
}

/// Rows that were not tried, as Markdown.
#[must_use]
pub fn list(rows: &[RowInfo]) -> String {
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [row.name.into(), row.section.into(), row.rule.to_string(), row.sends.into(), row.expects.into()]
        })
        .collect();
    table(["row", "section", "rule", "sent", "expected"], &cells)
}

fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(printable(cell).chars().count());
        }
    }
    let mut out = String::new();
    let mut line = |cells: &[String; N]| {
        for (cell, width) in cells.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(out, "| {:width$} ", printable(cell));
        }
        out.push_str("|\n");
    };
    line(&head.map(Into::into));
    line(&widths.map(|width| "-".repeat(width)));
    rows.iter().for_each(line);
    out
}

/// What came from a peer may hold anything; a cell holds no bar and no control character.
fn printable(cell: &str) -> String {
    cell.chars()
        .map(|c| {
            if c.is_control() {
                ' '
            } else if c == '|' {
                '/'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: RowInfo = RowInfo {
        name: "null",
        section: "RFC 8166 §3.5.1",
        rule: Rule::Required,
        sends: "a call",
        expects: "a reply",
    };

    #[test]
    fn a_report_is_good_if_nothing_failed() {
        let mut report = Report::default();
        assert!(report.is_good());
        report.rows.push(RowReport::new(ROW, Ok("a reply".into())));
        report.rows.push(RowReport::new(ROW, Err(differs("something else"))));
        report.rows.push(RowReport::new(ROW, Err(not_applicable("nothing to read"))));
        assert!(report.is_good());
        report.rows.push(RowReport::new(ROW, Err(fail("nothing"))));
        assert!(!report.is_good());
        assert_eq!(report.summary(), "4 rows: 1 pass, 1 differ, 1 fail, 1 not applicable");
    }

    #[test]
    fn cells_of_a_table_are_aligned_and_clean() {
        let report = Report { rows: vec![RowReport::new(ROW, Err(fail("a|b\nc")))] };
        let table = report.table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{table}");
        assert!(lines[2].contains("| FAIL ") && lines[2].contains("a/b c"), "{table}");
        assert!(list(&[ROW]).contains("| a call | a reply"));
    }
}
