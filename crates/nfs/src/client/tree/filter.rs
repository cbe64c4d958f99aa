//! Patterns that leave objects out of a copy, with the habits of rsync.
//!
//! - The first pattern that matches decides. An object that no pattern matches is copied.
//! - A pattern without a slash is for names. Any other pattern is for the end of a path, in whole components.
//! - A slash at the beginning ties the pattern to the top of the tree. The top itself is never left out.
//! - A slash at the end is for directories only. `/***` at the end is for a directory and all in it.
//! - `*` and `?` match no slash, `**` matches any number of components, and `[...]` is a class of characters.
//!   A backslash takes the special meaning from the next character.
//!
//! All that lies in a directory that is left out is left out too, whatever patterns match it.
//!
//! *Errors.* [`FilterError`] names the pattern. POSIX classes (`[:alpha:]`) and `**` beside other characters
//! are refused, because the matcher would give them another meaning than rsync does.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};

/// Patterns in their order; see the module documentation. Cheap to clone. The default has none.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    rules: Arc<Vec<Rule>>,
}

#[derive(Debug, Clone)]
struct Rule {
    include: bool,
    /// Whether only directories match.
    directories: bool,
    /// Whether the path is matched, not only the name.
    path: bool,
    glob: GlobMatcher,
}

/// A pattern that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the pattern {pattern:?}: {reason}")]
pub struct FilterError {
    /// The pattern.
    pub pattern: String,
    /// Its fault.
    pub reason: String,
}

impl Filter {
    /// Adds a pattern of objects to leave out.
    ///
    /// # Errors
    /// The pattern is malformed.
    pub fn exclude(&mut self, pattern: &str) -> Result<(), FilterError> {
        self.add(pattern, false)
    }

    /// Adds a pattern of objects to copy.
    ///
    /// # Errors
    /// The pattern is malformed.
    pub fn include(&mut self, pattern: &str) -> Result<(), FilterError> {
        self.add(pattern, true)
    }

    /// Adds the patterns of a file, one a line. Lines that are empty or begin with `#` or `;` say nothing. A line
    /// that begins with `+ ` is a pattern to copy. Any other is one to leave out, with or without `- ` in front.
    ///
    /// # Errors
    /// A pattern is malformed.
    pub fn exclude_lines(&mut self, text: &str) -> Result<(), FilterError> {
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
            match (line.strip_prefix("+ "), line.strip_prefix("- ")) {
                (Some(pattern), _) => self.include(pattern)?,
                (None, Some(pattern)) => self.exclude(pattern)?,
                (None, None) => self.exclude(line)?,
            }
        }
        Ok(())
    }

    /// Returns whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns whether an object is left out. `path` begins below the top of the tree and has no slash in front.
    pub fn is_excluded(&self, path: &[u8], directory: bool) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let matching = self.rules.iter().filter(|rule| directory || !rule.directories).find(|rule| {
            let text = if rule.path { path } else { name };
            rule.glob.is_match(Path::new(OsStr::from_bytes(text)))
        });
        matching.is_some_and(|rule| !rule.include)
    }

    fn add(&mut self, pattern: &str, include: bool) -> Result<(), FilterError> {
        let rules = Arc::make_mut(&mut self.rules);
        if let Some(directory) = pattern.strip_suffix("/***").filter(|rest| !rest.is_empty()) {
            rules.push(Rule::new(&format!("{directory}/"), include, pattern)?);
            rules.push(Rule::new(&format!("{directory}/**"), include, pattern)?);
        } else {
            rules.push(Rule::new(pattern, include, pattern)?);
        }
        Ok(())
    }
}

impl Rule {
    /// Parses `text`, a pattern or part of `pattern`.
    fn new(text: &str, include: bool, pattern: &str) -> Result<Self, FilterError> {
        let fault = |reason: &str| FilterError { pattern: pattern.to_owned(), reason: reason.to_owned() };
        let anchored = text.starts_with('/');
        let bare = text.trim_start_matches('/').trim_end_matches('/');
        if bare.is_empty() {
            return Err(fault("it is empty; write a name, or ** for everything"));
        }
        let components = || bare.split('/');
        if components().any(|part| part.contains("**") && part != "**") {
            return Err(fault("** stands alone between slashes; write * within a name"));
        }
        if bare.contains("[:") {
            return Err(fault("classes such as [:alpha:] are unknown; write ranges, such as [a-z]"));
        }
        let path = anchored || bare.contains('/') || bare == "**";
        let ends = if path && !anchored && components().next() != Some("**") { "**/" } else { "" };
        let glob = GlobBuilder::new(&format!("{ends}{}", translated(bare)))
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| fault(&error.kind().to_string()))?;
        Ok(Self { include, directories: text.ends_with('/'), path, glob: glob.compile_matcher() })
    }
}

/// Returns a pattern as the matcher takes it. Braces have no meaning in rsync, and a class that excludes
/// characters does not match a slash.
fn translated(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars().peekable();
    // Letters of the class so far, if the current letter is in one.
    let mut class = None;
    while let Some(letter) = letters.next() {
        match (letter, class) {
            ('\\', None) => {
                text.push(letter);
                text.extend(letters.next());
            }
            ('{' | '}', None) => text.extend(['\\', letter]),
            ('[', None) => {
                text.push(letter);
                class = Some(0);
                if letters.next_if(|next| matches!(next, '!' | '^')).is_some() {
                    text.push('!');
                    if letters.peek() != Some(&']') {
                        text.push('/');
                    }
                }
            }
            (']', Some(1..)) => {
                text.push(letter);
                class = None;
            }
            (_, inside) => {
                text.push(letter);
                class = inside.map(|count| count + 1);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let mut filter = Filter::default();
        filter.exclude_lines(&rules.join("\n")).unwrap();
        filter
    }

    /// Checks which of the paths one pattern leaves out. A slash at the end of a path stands for a directory.
    fn check(pattern: &str, out: &[&str], stay: &[&str]) {
        let filter = filter(&[pattern]);
        for (paths, expected) in [(out, true), (stay, false)] {
            for path in paths {
                let bare = path.trim_end_matches('/');
                assert_eq!(
                    filter.is_excluded(bare.as_bytes(), path.ends_with('/')),
                    expected,
                    "{pattern} {path}"
                );
            }
        }
    }

    #[test]
    fn a_pattern_without_a_slash_is_for_names() {
        check("*.o", &["a.o", "d/e/a.o", ".o", "x.o/"], &["a.oo", "a.o/b"]);
        check("f?o", &["foo", "d/f o"], &["fo", "d/f/o", "fooo"]);
        check("[a-c]x", &["ax", "d/cx"], &["dx", "x"]);
        check("[!a-c]x", &["dx", "é/dx"], &["ax", "x"]);
        check("[^]a]x", &["bx"], &["]x", "ax"]);
        check("{a,b}", &["{a,b}"], &["a", "b"]);
        check("a\\*", &["a*"], &["ab"]);
        check("**", &["a", "a/b", "a/b/c/"], &[]);
    }

    #[test]
    fn a_slash_ties_a_pattern_to_the_top_or_to_directories() {
        check("/foo", &["foo", "foo/"], &["d/foo", "foo/x"]);
        check("foo/", &["foo/", "d/foo/"], &["foo", "d/foo"]);
        check("/foo/", &["foo/"], &["foo", "d/foo/"]);
        check("a/b", &["a/b", "x/y/a/b"], &["xa/b", "a/x/b", "b"]);
        check("/a/*", &["a/b", "a/c/"], &["a", "a/b/c", "x/a/b"]);
        check("/a/**", &["a/b", "a/b/c"], &["a", "b"]);
        check("/a/**/z", &["a/z", "a/b/c/z"], &["z", "b/z"]);
        check("**/z", &["z", "b/c/z"], &["zz"]);
        check("d/***", &["d/", "d/a", "d/a/b", "x/d/"], &["d", "e/"]);
        check("a[!x]b/c", &["azb/c"], &["a/b/c", "axb/c"]);
    }

    #[test]
    fn the_first_match_decides() {
        let only = filter(&["# sources only", "", "; so", "+ */", "+ *.rs", "- *"]);
        for (path, directory, expected) in
            [("a.rs", false, false), ("d", true, false), ("d/b.rs", false, false), ("a.c", false, true)]
        {
            assert_eq!(only.is_excluded(path.as_bytes(), directory), expected, "{path}");
        }
        let other = filter(&["*", "+ *.rs"]);
        assert!(other.is_excluded(b"a.rs", false));
        assert!(!Filter::default().is_excluded(b"a", false));
    }

    #[test]
    fn names_need_not_be_text() {
        check("*.o", &[], &["x"]);
        assert!(filter(&["*.o"]).is_excluded(b"d/\xff\xfe.o", false));
        assert!(filter(&["?"]).is_excluded(b"\xff", false));
    }

    #[test]
    fn patterns_that_would_mean_something_else_are_refused() {
        for pattern in ["", "/", "//", "a**b", "[[:alpha:]]", "[a", "[z-a]"] {
            let error = Filter::default().exclude(pattern).unwrap_err();
            assert!(error.to_string().starts_with(&format!("the pattern {pattern:?}: ")), "{error}");
        }
    }
}
