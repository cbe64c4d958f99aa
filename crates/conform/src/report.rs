//! Rows, verdicts and tables.
//!
//! A row is a named case with a section number, an action and an expectation. [`Rule`] states how binding the
//! expectation is, [`Verdict`] the result.

use std::fmt::{self, Write};

use serde::Serialize;

/// The obligation of a row, by the wording of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The text says MUST, or every peer has to understand the form: any other behaviour is a failure.
    Required,
    /// The text says SHOULD: any other harmless behaviour differs.
    Recommended,
    /// The text leaves the behaviour to the peer, within bounds that the row names.
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

/// Result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Not as the text recommends, but harmless.
    Differs,
    /// Against the text, or harm to the peer.
    Fail,
    /// The row could not be tested; [`RowReport::seen`] gives the reason.
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

/// Reason why a row did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) verdict: Verdict,
    pub(crate) seen: String,
}

/// Returns a failure, with the observation.
pub(crate) fn fail(seen: impl Into<String>) -> Wrong {
    Wrong { verdict: Verdict::Fail, seen: seen.into() }
}

/// Returns a harmless difference, with the observation.
pub(crate) fn differs(seen: impl Into<String>) -> Wrong {
    Wrong { verdict: Verdict::Differs, seen: seen.into() }
}

/// Returns the result of a row that could not be tested, with the reason.
pub(crate) fn not_applicable(why: impl Into<String>) -> Wrong {
    Wrong { verdict: Verdict::NotApplicable, seen: why.into() }
}

/// Observation of a row, or the reason why it did not pass.
pub(crate) type Outcome = Result<String, Wrong>;

/// The constant parts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RowInfo {
    /// Name of the row, for `--filter` and for tables.
    pub name: &'static str,
    /// Section with the expectation.
    pub section: &'static str,
    /// Obligation by the section.
    pub rule: Rule,
    /// Message or action of the tester.
    pub sends: &'static str,
    /// Expected behaviour of the peer.
    pub expects: &'static str,
}

/// Result of a tested row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowReport {
    /// The tested row.
    #[serde(flatten)]
    pub row: RowInfo,
    /// Verdict of the row.
    pub verdict: Verdict,
    /// Observed behaviour of the peer.
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

/// Results of all tested rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Results in the order of the table.
    pub rows: Vec<RowReport>,
}

impl Report {
    /// Returns the number of rows with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Returns whether no row failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.count(Verdict::Fail) == 0
    }

    /// Returns the table as Markdown, with one line for each row.
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

    /// Returns the number of rows for each verdict, in one line.
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

/// Returns untested rows as Markdown.
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

/// Returns a cell without bars and control characters: strings of a peer may contain any.
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
