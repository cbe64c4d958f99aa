//! Finds the comments in which tests name the requirements that they cover.
//!
//! Such a comment is a separate line of exactly this form: two slashes, a space, `requirement:`, a space, and ids with
//! commas between them.
//!
//! A comment belongs to a test if it stands in its function, or among the attributes and comments directly above. Only
//! tests count that a build of `.ci/run` has ([`builds`](super::builds), [`items`](super::items)). Elsewhere the comment
//! is a hint for readers and proves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proc_macro2::{LineColumn, TokenStream, TokenTree};

use super::builds;
use super::items::{self, Test, Tests};
use crate::failure::{Context, Failure, ensure};

/// Beginning of the comment, behind its slashes.
const MARK: &str = "requirement:";
/// The folders of the workspace that hold Rust files.
const FOLDERS: [&str; 3] = ["crates", "fuzz", "xtask"];

/// An id in a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Annotation {
    pub(crate) id: String,
    pub(crate) line: usize,
    /// The test of the comment, if any.
    pub(crate) test: Option<String>,
}

/// A Rust file with annotations.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// Path below the workspace, with slashes.
    pub(crate) path: String,
    pub(crate) annotations: Vec<Annotation>,
}

/// Returns all Rust files of the workspace that have annotations, in the order of their paths.
pub(crate) fn workspace(project: &Path) -> Result<Vec<File>, Failure> {
    let mut paths = BTreeSet::new();
    for folder in FOLDERS {
        collect(&project.join(folder), &mut paths)?;
    }
    let mut tests = Tests::new();
    for build in builds::of_workspace(project)? {
        items::collect(&build, &mut tests)?;
    }
    let mut files = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).context(format!("reading {}", path.display()))?;
        if !text.contains(MARK) {
            continue;
        }
        let below = path.strip_prefix(project).unwrap_or(&path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let canonical = path.canonicalize().context(path.display())?;
        let tests = tests.get(&canonical).map_or(&[][..], Vec::as_slice);
        let annotations = annotations(&text, tests).context(below.display())?;
        if !annotations.is_empty() {
            files.push(File { path: parts.join("/"), annotations });
        }
    }
    Ok(files)
}

fn collect(folder: &Path, paths: &mut BTreeSet<std::path::PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).context(format!("reading {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                collect(&path, paths)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.insert(path);
        }
    }
    Ok(())
}

/// Returns the annotations of one file, which has these tests.
pub(crate) fn annotations(text: &str, tests: &[Test]) -> Result<Vec<Annotation>, Failure> {
    let stream: TokenStream = text.parse().map_err(|error| Failure::new(format!("not Rust: {error}")))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut code = Literals { lines: &lines, found: Vec::new() };
    code.walk(stream);
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let Some(at) = line.match_indices(MARK).map(|(at, _)| at).find(|at| !code.covers(number, *at)) else {
            continue;
        };
        let Some(ids) = marked(line, at).context(format!("line {number}"))? else { continue };
        let test = tests.iter().find(|test| test.lines.contains(&number));
        found.extend(ids.into_iter().map(|id| Annotation {
            id: id.to_owned(),
            line: number,
            test: test.map(|test| test.name.clone()),
        }));
    }
    Ok(found)
}

/// Returns the ids of a line, if its mark at `at` makes it an annotation. A near miss is an error: it would be
/// overlooked.
fn marked(line: &str, at: usize) -> Result<Option<Vec<&str>>, Failure> {
    let (before, list) =
        (line.get(..at).unwrap_or_default(), line.get(at + MARK.len()..).unwrap_or_default());
    let code = before.trim_end_matches(['/', '!', '*', ' ']);
    if !before.get(code.len()..).is_some_and(|comment| comment.contains("//")) {
        return Ok(None);
    }
    ensure!(code.is_empty(), "an annotation stands on a line of its own");
    ensure!(before.trim_start() == "// ", "an annotation is written \"// {MARK} ID, ID\"");
    let ids: Vec<&str> = list.split(',').map(str::trim).collect();
    let good = |id: &&str| {
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    ensure!(ids.iter().all(good), "{list:?} is not a list of ids");
    Ok(Some(ids))
}

/// The literals of a file: text in a literal is not a comment.
struct Literals<'a> {
    lines: &'a [&'a str],
    found: Vec<(LineColumn, LineColumn)>,
}

impl Literals<'_> {
    fn walk(&mut self, stream: TokenStream) {
        for token in stream {
            match token {
                TokenTree::Group(group) => self.walk(group.stream()),
                TokenTree::Literal(literal) => {
                    // The text of a doc comment is a literal too, which begins with its slashes.
                    let (start, end) = (literal.span().start(), literal.span().end());
                    let line = self.lines.get(start.line - 1).copied().unwrap_or_default();
                    if !line.chars().skip(start.column).take(2).eq("//".chars()) {
                        self.found.push((start, end));
                    }
                }
                TokenTree::Punct(_) | TokenTree::Ident(_) => {}
            }
        }
    }

    /// Returns whether a line has a literal at this byte.
    fn covers(&self, line: usize, at: usize) -> bool {
        let before = self.lines.get(line - 1).and_then(|line| line.get(..at)).unwrap_or_default();
        let here = LineColumn { line, column: before.chars().count() };
        self.found.iter().any(|(start, end)| *start <= here && here < *end)
    }
}

/// Returns the annotations of a text as a file of its own.
#[cfg(test)]
pub(super) fn of_text(text: &str) -> Result<Vec<Annotation>, Failure> {
    let build = builds::Build::default();
    annotations(text, &items::Items::of(text, &build)?.tests)
}

#[cfg(test)]
mod tests;
