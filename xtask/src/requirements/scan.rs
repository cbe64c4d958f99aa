//! Finds the comments in which tests name the requirements that they cover.
//!
//! Such a comment is a separate line of exactly this form: two slashes, a space, `requirement:`, a space, and ids with
//! commas between them.
//!
//! A comment belongs to a test if it stands in its function, or among the attributes and comments directly above. A
//! test is a function with an attribute `test` (also `tokio::test`, also in `proptest!`) that is not ignored. Elsewhere
//! the comment is a hint for readers and proves nothing.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use proc_macro2::{Delimiter, Group, LineColumn, TokenStream, TokenTree};

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

/// The function of a test.
#[derive(Debug)]
struct Test {
    name: String,
    lines: RangeInclusive<usize>,
}

/// Returns all Rust files of the workspace that have annotations, in the order of their paths.
pub(crate) fn workspace(project: &Path) -> Result<Vec<File>, Failure> {
    let mut paths = BTreeSet::new();
    for folder in FOLDERS {
        collect(&project.join(folder), &mut paths)?;
    }
    let mut files = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).context(format!("reading {}", path.display()))?;
        if !text.contains(MARK) {
            continue;
        }
        let below = path.strip_prefix(project).unwrap_or(&path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let annotations = annotations(&text).context(below.display())?;
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

/// Returns the annotations of one file.
pub(crate) fn annotations(text: &str) -> Result<Vec<Annotation>, Failure> {
    let stream: TokenStream = text.parse().map_err(|error| Failure::new(format!("not Rust: {error}")))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut code = Code { lines: &lines, tests: Vec::new(), literals: Vec::new() };
    code.walk(stream);
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let number = index + 1;
        let Some(at) = line.match_indices(MARK).map(|(at, _)| at).find(|at| !code.in_literal(number, *at))
        else {
            continue;
        };
        let Some(ids) = marked(line, at).context(format!("line {number}"))? else { continue };
        let test = code.tests.iter().find(|test| test.lines.contains(&number));
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

/// The findings of a walk over the tokens of a file. Tokens know their positions; comments are not tokens.
struct Code<'a> {
    lines: &'a [&'a str],
    tests: Vec<Test>,
    /// Positions of literals: text in a literal is not a comment.
    literals: Vec<(LineColumn, LineColumn)>,
}

/// The attributes in front of an item.
#[derive(Default)]
struct Attributes {
    /// Line of the first attribute.
    first: Option<usize>,
    test: bool,
    ignored: bool,
}

impl Code<'_> {
    fn walk(&mut self, stream: TokenStream) {
        let mut tokens = stream.into_iter().peekable();
        let mut attributes = Attributes::default();
        let mut name = None;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    // An inner attribute belongs to the item around it.
                    let inner =
                        |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == '!');
                    let inner = tokens.next_if(inner).is_some();
                    let group = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket);
                    if let Some(TokenTree::Group(group)) = tokens.next_if(group)
                        && !inner
                    {
                        attributes.first.get_or_insert(punct.span().start().line);
                        attributes.add(&group);
                        self.walk(group.stream());
                    }
                }
                TokenTree::Ident(ident) if ident == "fn" => {
                    name = match tokens.peek() {
                        Some(TokenTree::Ident(name)) => Some(name.to_string()),
                        _ => None,
                    };
                }
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace {
                        let attributes = std::mem::take(&mut attributes);
                        if let (Some(name), true, false) = (name.take(), attributes.test, attributes.ignored)
                        {
                            self.add(name, attributes.first.unwrap_or_default(), &group);
                        }
                    }
                    self.walk(group.stream());
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    attributes = Attributes::default();
                    name = None;
                }
                TokenTree::Literal(literal) => {
                    // The text of a doc comment is a literal too, which begins with its slashes.
                    let (start, end) = (literal.span().start(), literal.span().end());
                    let line = self.lines.get(start.line - 1).copied().unwrap_or_default();
                    if !line.chars().skip(start.column).take(2).eq("//".chars()) {
                        self.literals.push((start, end));
                    }
                }
                TokenTree::Punct(_) | TokenTree::Ident(_) => {}
            }
        }
    }

    /// Returns whether a line has a literal at this byte.
    fn in_literal(&self, line: usize, at: usize) -> bool {
        let before = self.lines.get(line - 1).and_then(|line| line.get(..at)).unwrap_or_default();
        let here = LineColumn { line, column: before.chars().count() };
        self.literals.iter().any(|(start, end)| *start <= here && here < *end)
    }

    /// Adds a test, which begins with the comments directly above its attributes.
    fn add(&mut self, name: String, first: usize, body: &Group) {
        let above = |number: &usize| {
            number
                .checked_sub(1)
                .and_then(|index| self.lines.get(index))
                .is_some_and(|line| line.trim_start().starts_with("//"))
        };
        let first = (1..first).rev().take_while(above).last().unwrap_or(first);
        self.tests.push(Test { name, lines: first..=body.span_close().end().line });
    }
}

impl Attributes {
    fn add(&mut self, group: &Group) {
        let path: Vec<String> = group
            .stream()
            .into_iter()
            .take_while(|token| matches!(token, TokenTree::Ident(_) | TokenTree::Punct(_)))
            .map(|token| token.to_string())
            .take_while(|token| token != "=")
            .collect();
        self.test |= path.last().is_some_and(|last| last == "test");
        self.ignored |= path.first().is_some_and(|first| first == "ignore");
    }
}

#[cfg(test)]
mod tests;
