//! The table of `docs/hardware.md`: where combinations of devices differ from the contract of a provider.
//!
//! The test `differences` prints what each module of the provider tests allows: `difference: MODULE: TITLE: TEXT`. The
//! tests of the module prove it.

use std::fmt::Write;

use super::suite::{self, MODULES, Results};
use crate::failure::{Failure, ensure};
use crate::interop::cases::{Detail, HARDWARE};
use crate::interop::lab::Lab;
use crate::page::Markers;

/// The place of the table in its page.
const MARKERS: Markers =
    Markers { begin: "<!-- provider differences: begin -->", end: "<!-- provider differences: end -->" };

/// Cell of a combination without the difference.
const AS_THE_CONTRACT: &str = "as the contract";

pub(super) fn differences(lab: &mut Lab) -> Result<Detail, Failure> {
    let output = suite::run(lab, &["--nocapture", "differences"])?;
    let results = Results::of(&output);
    ensure!(results.passed == 1 && results.failed.is_empty(), "{results}, one was due");
    let table = Table::of(&output)?;
    ensure!(!table.titles.is_empty(), "the test prints no difference");
    let text = format!("{}.\n\n{}\n\n{}", lab.description(), lab.origin(), table.markdown());
    lab.page(HARDWARE, MARKERS, text);
    Ok(format!("{} titles", table.titles.len()))
}

/// The differences, by title in the order of their first appearance.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table<'a> {
    titles: Vec<(&'a str, [Option<&'a str>; MODULES.len()])>,
}

impl<'a> Table<'a> {
    fn of(output: &'a str) -> Result<Self, Failure> {
        let mut table = Self::default();
        // Without capture, the harness puts the first line of a test behind the test's name.
        let lines = output.lines().filter_map(|line| line.split_once("difference: "));
        for (_, line) in lines {
            let mut parts = line.splitn(3, ": ");
            let (Some(module), Some(title), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(Failure::new(format!("not MODULE: TITLE: TEXT: {line}")));
            };
            let at = table.titles.iter().position(|(known, _)| *known == title).unwrap_or_else(|| {
                table.titles.push((title, [None; MODULES.len()]));
                table.titles.len() - 1
            });
            let cell = MODULES
                .iter()
                .position(|(known, _)| *known == module)
                .and_then(|column| table.titles.get_mut(at)?.1.get_mut(column));
            let Some(cell) = cell else {
                return Err(Failure::new(format!("no module {module}: {line}")));
            };
            *cell = Some(text.trim());
        }
        Ok(table)
    }

    fn markdown(&self) -> String {
        let mut text = String::from("| property |");
        for (module, _) in MODULES {
            // Writing to a String cannot fail.
            let _ = write!(text, " `{module}` |");
        }
        let _ = writeln!(text, "\n|{}", " --- |".repeat(MODULES.len() + 1));
        for (title, cells) in &self.titles {
            let _ = write!(text, "| {} |", plain(title));
            for cell in cells {
                let _ = write!(text, " {} |", plain(cell.unwrap_or(AS_THE_CONTRACT)));
            }
            text.push('\n');
        }
        text
    }
}

/// Returns a text that does not end its cell.
fn plain(text: &str) -> String {
    text.replace('|', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_all_modules_make_a_table() {
        let output = "test siw::differences ... difference: siw: remote invalidation: ends the connection\n\
                      difference: siw: address: of the process | as is\nok\n\
                      difference: rxe_windows: address: zero: based\n";
        let table = Table::of(output).unwrap();
        let cells = |index: usize| table.titles[index];
        assert_eq!(cells(0), ("remote invalidation", [None, None, Some("ends the connection"), None, None]));
        assert_eq!(
            cells(1),
            ("address", [Some("zero: based"), None, Some("of the process | as is"), None, None])
        );
        let text = table.markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "| --- | --- | --- | --- | --- | --- |");
        assert_eq!(
            lines[2],
            "| remote invalidation | as the contract | as the contract | ends the connection | as the contract | as the contract |"
        );
        assert!(lines[3].contains("of the process / as is"));
    }

    #[test]
    fn unknown_modules_and_short_lines_are_errors() {
        assert!(Table::of("difference: other: title: text\n").is_err());
        assert!(Table::of("difference: siw: title\n").is_err());
    }
}
