//! The figures of a page: tables and printed results, each with a line that states their origin.

use std::fmt;

/// Begin of the line.
const BEGIN: &str = "<!-- figures: ";
/// End of the line.
const END: &str = " -->";
/// Separator of its four parts.
const SEPARATOR: &str = " | ";
/// Stands for a part that cannot be proved.
pub(super) const UNKNOWN: &str = "not recorded";
/// Stands before a commit that wrote the figures, if the measured one is not known.
const WRITTEN: &str = "written in ";

/// The commit of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The code that was measured.
    Measured(String),
    /// The commit that brought the figures into the page: the measured code is not newer.
    Written(String),
    Unknown,
}

impl Commit {
    /// Returns the hash.
    pub(crate) fn hash(&self) -> Option<&str> {
        match self {
            Self::Measured(hash) | Self::Written(hash) => Some(hash),
            Self::Unknown => None,
        }
    }
}

/// The origin of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) command: String,
    pub(crate) commit: Commit,
    pub(crate) date: String,
    pub(crate) machine: String,
}

impl Origin {
    /// Parses a line of a page; `None` if it is no such line.
    fn parse(line: &str) -> Option<Result<Self, String>> {
        let inner = line.strip_prefix(BEGIN.trim_end())?;
        Some(Self::parts(inner.strip_suffix(END).unwrap_or_default().trim_start()))
    }

    fn parts(inner: &str) -> Result<Self, String> {
        let parts: Vec<&str> = inner.split(SEPARATOR).collect();
        let &[command, commit, date, machine] = &parts[..] else {
            return Err(format!("{inner:?} is not COMMAND | COMMIT | DATE | MACHINE"));
        };
        if [command, machine].iter().any(|part| part.trim().is_empty()) {
            return Err("the command or the machine is empty".to_owned());
        }
        if date != UNKNOWN && !is_date(date) {
            return Err(format!("{date:?} is neither YYYY-MM-DD nor \"{UNKNOWN}\""));
        }
        let commit = if commit == UNKNOWN {
            Commit::Unknown
        } else if let Some(hash) = commit.strip_prefix(WRITTEN) {
            Commit::Written(checked(hash)?)
        } else {
            Commit::Measured(checked(commit)?)
        };
        let (command, date, machine) = (command.to_owned(), date.to_owned(), machine.to_owned());
        Ok(Self { command, commit, date, machine })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, commit, date, machine } = self;
        let commit = match commit {
            Commit::Measured(hash) => hash.clone(),
            Commit::Written(hash) => format!("{WRITTEN}{hash}"),
            Commit::Unknown => UNKNOWN.to_owned(),
        };
        write!(f, "{BEGIN}{command}{SEPARATOR}{commit}{SEPARATOR}{date}{SEPARATOR}{machine}{END}")
    }
}

/// Returns a hash if it is one of Git's, perhaps shortened.
fn checked(hash: &str) -> Result<String, String> {
    let good = (7..=40).contains(&hash.len()) && hash.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
    if good { Ok(hash.to_owned()) } else { Err(format!("{hash:?} is no hash of a commit")) }
}

fn is_date(text: &str) -> bool {
    let pattern =
        |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() == 10 && text.bytes().enumerate().all(pattern)
}

/// Figures of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Line of the table or the fence, from 1.
    pub(crate) line: usize,
    /// Their origin, or what is wrong with its line.
    pub(crate) origin: Result<Origin, String>,
}

/// Returns the figures of a page in order. A table has figures if a column is aligned to the right, or if two have the
/// titles "verdict" and "row". A fence has figures if its language is `text`. The line with the origin is the last one above that is
/// not blank.
pub(crate) fn figures(page: &str) -> Vec<Figures> {
    let lines: Vec<&str> = page.lines().collect();
    let mut found = Vec::new();
    let mut in_fence = false;
    let mut above = None;
    for (index, line) in lines.iter().enumerate() {
        let next = lines.get(index + 1).copied().unwrap_or_default();
        let fence = line.trim_start().starts_with("```");
        let begins = if fence {
            !in_fence && line.trim_start() == "```text"
        } else {
            !in_fence && has_figures(line, next)
        };
        if begins {
            let origin = above.and_then(Origin::parse);
            let origin = origin.unwrap_or_else(|| Err(format!("no line \"{BEGIN}…{END}\" above")));
            found.push(Figures { line: index + 1, origin });
        }
        in_fence ^= fence;
        if !line.trim().is_empty() {
            above = Some(line.trim());
        }
    }
    found
}

/// Whether a line is the head of a table with figures; the next one aligns the columns.
fn has_figures(head: &str, alignment: &str) -> bool {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_lowercase()).collect()
    };
    let aligned = cells(alignment);
    let is_alignment = |cell: &String| cell.contains('-') && cell.bytes().all(|byte| b"-:".contains(&byte));
    head.trim_start().starts_with('|')
        && aligned.iter().all(is_alignment)
        && (aligned.iter().any(|cell| cell.ends_with(':'))
            || ["verdict", "row"].iter().all(|title| cells(head).iter().any(|cell| cell == title)))
}

#[cfg(test)]
mod tests;
