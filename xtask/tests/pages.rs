//! Checks pages in `docs` against the tests: those named exist, and those on a real clock are named.

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

/// Functions that look at a clock.
const CLOCKED: [&str; 7] =
    ["sleep", "timeout", "recv_timeout", "wait_timeout", "wait_timeout_while", "elapsed", "set_read_timeout"];

/// Returns the tests in a source file: all of it, or what follows the beginning of its module of tests.
fn tests_of<'a>(path: &str, source: &'a str) -> Option<&'a str> {
    if path.contains("/tests/") || path.ends_with("/tests.rs") {
        return Some(source);
    }
    let module = "#[cfg(test)]\nmod tests {";
    source.find(module).map(|at| &source[at..])
}

/// Returns whether a test of the file, or a function that tests share, looks at a clock that is not paused.
fn uses_real_time(tests: &str) -> bool {
    let mut attribute = "";
    for line in tests.lines() {
        let line = line.trim_start();
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            attribute = line;
        }
        // A builder's method sets a limit of virtual time as well; functions of tokio and of channels wait.
        let clocked = CLOCKED.iter().any(|call| {
            let called = line.split(&format!("{call}(")).collect::<Vec<_>>();
            called.len() > 1 && !called[0].ends_with(|c: char| c == '_' || c.is_alphanumeric())
        }) && !line.contains(".timeout(");
        if clocked && !line.starts_with("//") && !attribute.contains("start_paused") {
            return true;
        }
    }
    false
}

#[test]
fn every_file_with_tests_on_a_real_clock_has_its_reason() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(project.join("docs/real-time.md")).unwrap();
    let mut folders = vec![project.join("crates"), project.join("xtask")];
    let (mut found, mut missing) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let shown = path.strip_prefix(project).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if shown.ends_with(".rs")
                && let source = fs::read_to_string(&path).unwrap()
                && tests_of(&shown, &source).is_some_and(uses_real_time)
            {
                found += 1;
                if !page.contains(&format!("](../{shown})")) {
                    missing.push(shown);
                }
            }
        }
    }
    assert!(missing.is_empty(), "docs/real-time.md does not list {missing:#?}");
    assert!(found > 20, "{found}");
}
