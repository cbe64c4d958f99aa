//! Checks that the tests named on the pages in `docs` exist.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::fs;
use std::path::Path;

/// Maximum number of lines between the attribute of a test and its name: other attributes and comments.
const ABOVE: usize = 4;

/// Returns the tests that a row names as `` [`name`](../path) ``.
fn named(row: &str) -> Vec<(&str, &str)> {
    let links = row.split("[`").skip(1);
    links
        .map(|part| part.split_once("`](../").expect("a link"))
        .map(|(name, rest)| (name, rest.split_once(')').expect("a link's end").0))
        .collect()
}

/// Returns whether there is a test of this name.
fn is_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let function = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        let above = &lines[at.saturating_sub(ABOVE)..at];
        line.contains(&function)
            && above.iter().rev().take_while(|line| !line.is_empty()).any(|line| {
                let line = line.trim_start();
                line.starts_with("#[test]") || line.starts_with("#[tokio::test")
            })
    })
}

#[test]
fn every_row_of_bad_input_names_tests_that_exist() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(project.join("docs/hostile.md")).unwrap();
    let head =
        |line: &str| ["| ---", "| input | ", "| assertion | "].iter().any(|head| line.starts_with(head));
    let rows = page.lines().filter(|line| line.starts_with("| ") && !head(line));
    let mut tests = 0;
    for row in rows {
        let named = named(row);
        assert!(!named.is_empty(), "no test: {row}");
        for (name, path) in named {
            let source =
                fs::read_to_string(project.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(is_test(&source, name), "{path} has no test {name}");
            tests += 1;
        }
    }
    assert!(tests > 100, "{tests}");
}
