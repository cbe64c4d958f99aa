//! Checks pages in `docs` against the code. Tests that a page names exist, and tests on a real clock are named. Code in the
//! guide stands in files that are built.

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

/// Returns the code blocks of a page, each with the line before it and with its lines.
fn blocks(page: &str) -> Vec<(&str, Vec<&str>)> {
    let (mut blocks, mut before) = (Vec::new(), "");
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```") {
            let code = lines.by_ref().take_while(|line| line.trim() != "```").map(str::trim).collect();
            blocks.push((before, code));
        }
        before = line;
    }
    blocks
}

/// Returns whether the lines stand in the source one after the other, whatever their indentation.
fn stands_in(code: &[&str], source: &str) -> bool {
    let source: Vec<&str> = source.lines().map(str::trim).collect();
    !code.is_empty() && source.windows(code.len()).any(|lines| lines == code)
}

#[test]
fn every_block_of_the_guide_stands_in_a_file_that_is_built() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(project.join("docs/guide.md")).unwrap();
    let blocks = blocks(&page);
    for (before, code) in &blocks {
        let path = before.strip_prefix("<!-- from ").and_then(|rest| rest.strip_suffix(" -->"));
        let path = path.unwrap_or_else(|| panic!("no file is named before {code:#?}"));
        assert!(path.starts_with("crates/") && !path.contains(".."), "{path} is built by no crate");
        let source = fs::read_to_string(project.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(stands_in(code, &source), "{path} does not have {code:#?}");
    }
    assert!(blocks.len() > 20, "{}", blocks.len());
}

#[test]
fn a_block_that_differs_from_its_file_is_found() {
    let source = "fn one() {\n    let two = 2;\n\n    two\n}\n";
    let page = "Text.\n\n<!-- from crates/a.rs -->\n```rust\nlet two = 2;\n\ntwo\n```\n";
    let found = blocks(page);
    assert_eq!(found, [("<!-- from crates/a.rs -->", vec!["let two = 2;", "", "two"])]);
    assert!(stands_in(&found[0].1, source));
    // Lines that are left out, or changed, and a block without any.
    assert!(!stands_in(&["let two = 2;", "two"], source));
    assert!(!stands_in(&["let two = 3;"], source));
    assert!(!stands_in(&[], source));
}
