//! The table of measures in `ARCHITECTURE.md`, and the section there that names the files of a call.

use std::collections::BTreeSet;

use super::gates::TOLERANCE;
use super::measure::{Measure, Now};
use crate::failure::{Failure, ensure};
use crate::figures::Origin;

/// Mark before the table.
const BEGIN: &str = "<!-- measures: `cargo xtask measures --write-docs` writes this table -->";
/// Mark after the table.
const END: &str = "<!-- end of measures -->";
/// Title of the section that names the files of a call.
const SECTION: &str = "## A call of Version One, file by file";

/// Returns the table.
pub(crate) fn table(measures: &[Measure]) -> String {
    let mut text = String::from(
        "| measure | at the start | now | target | command |\n| --- | ---: | ---: | ---: | --- |\n",
    );
    for measure in measures {
        let Measure { key, title, start, target, .. } = measure;
        let now = match &measure.now {
            Now::Exact(count) | Now::Near(count) | Now::Free(count) => thousands(*count),
            Now::Text(text) => text.clone(),
            Now::Unmeasured => "needs valgrind".to_owned(),
        };
        text += &format!("| {title} | {start} | {now} | {target} | `cargo xtask measures --list {key}` |\n");
    }
    text
}

/// Returns a number with commas between thousands.
pub(crate) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the parts of a page: with the mark before the table, the table, and from the mark behind it.
fn parts(page: &str) -> Option<(&str, &str, &str)> {
    let begin = page.find(BEGIN)? + BEGIN.len();
    let end = begin + page.get(begin..)?.find(END)?;
    Some((page.get(..begin)?, page.get(begin..end)?, page.get(end..)?))
}

/// Returns the page with this table, of this origin.
pub(crate) fn with_table(page: &str, measures: &[Measure], origin: &Origin) -> Result<String, Failure> {
    let (before, _, after) =
        parts(page).ok_or_else(|| Failure::new(format!("no mark {BEGIN:?} and {END:?} for the table")))?;
    Ok(format!("{before}\n\n{origin}\n\n{}\n{after}", table(measures)))
}

/// Returns the rows of the page's table that do not state the figures.
pub(crate) fn stale(page: &str, measures: &[Measure]) -> Vec<String> {
    let Some((_, written, _)) = parts(page) else {
        return vec![format!("the page has no mark {BEGIN:?} and {END:?} for the table")];
    };
    let rows: Vec<Vec<&str>> =
        written.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let mut faults = Vec::new();
    for measure in measures {
        let row = rows.iter().find(|row| row.first() == Some(&measure.title));
        let stated = row.and_then(|row| row.get(2)).copied();
        let number = stated.and_then(|stated| stated.replace(',', "").parse::<usize>().ok());
        let agrees = match (&measure.now, stated) {
            (_, None) => false,
            (Now::Exact(now), _) => number == Some(*now),
            (Now::Near(now), _) => {
                number.is_some_and(|number| number.abs_diff(*now) * 100 <= TOLERANCE * *now)
            }
            (Now::Text(text), Some(stated)) => text == stated,
            (Now::Free(_) | Now::Unmeasured, Some(_)) => true,
        };
        if !agrees {
            let stated = stated.unwrap_or("nothing");
            let command = "cargo xtask measures --write-docs writes the table";
            faults.push(format!("{}: ARCHITECTURE.md states {stated}; {command}", measure.title));
        }
    }
    faults
}

/// Returns the files in the first column of the table of the section about a call of Version One, or `None`
/// without the section.
pub(crate) fn files_of_section(page: &str) -> Option<Result<BTreeSet<String>, Failure>> {
    let (_, section) = page.split_once(SECTION)?;
    let section = section.split("\n## ").next().unwrap_or_default();
    Some(first_column(section))
}

/// Returns the file names in backquotes of the first column of a section's tables.
fn first_column(section: &str) -> Result<BTreeSet<String>, Failure> {
    let cells =
        section.lines().filter(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    let mut files = BTreeSet::new();
    for cell in cells {
        let names = cell.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs"));
        files.extend(names.map(|name| name.trim_start_matches("crates/proto/src/").to_owned()));
    }
    ensure!(!files.is_empty(), "the section {SECTION:?} names no file in the first column of a table");
    Ok(files)
}

#[cfg(test)]
mod tests;
