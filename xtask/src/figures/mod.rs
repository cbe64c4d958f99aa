//! The figures in the documentation, with command, commit, date and machine ([`page`]): which are old, and which lack
//! their origin.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use self::page::Commit;
pub(crate) use self::page::Origin;
use crate::failure::{Context, Failure, ensure};
use crate::project::project;

mod page;

/// Figures are stale after more commits than this.
const FRESH: usize = 50;
/// The pages outside of `docs`.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "interop/README.md"];

/// Runs `cargo xtask figures`.
pub(crate) fn run() -> ExitCode {
    match project().and_then(|project| check(&project)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("figures: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Fails if a checkout has files that its commit lacks or has otherwise. A command that writes figures into `pages` calls
/// this first: such figures would be of no commit. Changes of these pages do not count.
pub(crate) fn ensure_committed(project: &Path, pages: &[&str]) -> Result<(), Failure> {
    let pages = pages.iter().map(|page| format!(":(top,exclude){page}"));
    let command = ["status", "--porcelain", "--untracked-files=all", "--", ":(top)"];
    let arguments: Vec<String> = command.map(str::to_owned).into_iter().chain(pages).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Without a repository the figures state that no commit is recorded.
    let changes = git(project, &arguments).unwrap_or_default();
    ensure!(
        changes.is_empty(),
        "figures name the commit that was measured, and these files differ from it; commit them first:\n{changes}"
    );
    Ok(())
}

/// Returns the origin of figures that are measured now.
pub(crate) fn origin(project: &Path, command: &str, machine: &str) -> Origin {
    let commit = git(project, &["rev-parse", "--short", "HEAD"]);
    let commit = commit.map_or(Commit::Unknown, Commit::Measured);
    let today = output(Command::new("date").args(["-u", "+%F"]));
    Origin {
        command: command.to_owned(),
        commit,
        date: today.unwrap_or_else(|| page::UNKNOWN.to_owned()),
        machine: machine.to_owned(),
    }
}

/// Returns the commit of a checkout, with "-dirty" behind it if files differ.
pub(crate) fn commit(project: &Path) -> Option<String> {
    git(project, &["describe", "--always", "--dirty", "--exclude", "*"])
}

/// The age of figures.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Age {
    /// Commits since.
    Commits(usize),
    /// The repository is shallow or missing: the commit may be in the complete history.
    Unseen,
    /// The page names no commit.
    NotRecorded,
    /// The complete history of HEAD does not have the commit.
    Foreign,
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commits(count) => write!(f, "{count} commits old"),
            Self::Unseen => f.write_str("its commit is not in this clone"),
            Self::NotRecorded => f.write_str("no commit recorded"),
            Self::Foreign => f.write_str("its commit is not in the history of HEAD, perhaps since a rebase"),
        }
    }
}

/// Prints stale figures and faults, and returns whether there are no faults.
fn check(project: &Path) -> Result<bool, Failure> {
    let complete = git(project, &["rev-parse", "--is-shallow-repository"]).as_deref() == Some("false");
    if !complete {
        println!("figures: this is a shallow clone, or none: the ages of older figures are unknown");
    }
    let mut good = true;
    for page in pages(project)? {
        let text = fs::read_to_string(project.join(&page)).context(&page)?;
        for figures in page::figures(&text) {
            let place = format!("{page}:{}", figures.line);
            match figures.origin {
                Err(fault) => {
                    eprintln!("figures: {place}: {fault}");
                    good = false;
                }
                Ok(origin) => {
                    let age = age(project, &origin.commit, complete);
                    match age {
                        Age::Commits(count) if count <= FRESH => {}
                        Age::Foreign => {
                            eprintln!("figures: {place}: {age}: {origin}");
                            good = false;
                        }
                        _ => println!(
                            "{place}: {age}; {}; {}; `{}`",
                            origin.date, origin.machine, origin.command
                        ),
                    }
                }
            }
        }
    }
    Ok(good)
}

/// Returns the pages of the documentation, with slashes.
fn pages(project: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut pages: BTreeSet<String> = PAGES.map(str::to_owned).into();
    for entry in fs::read_dir(project.join("docs")).context("docs")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.insert(format!("docs/{name}"));
        }
    }
    Ok(pages)
}

/// Returns the age of figures. `complete`: the repository has all commits.
fn age(project: &Path, commit: &Commit, complete: bool) -> Age {
    let Some(hash) = commit.hash() else { return Age::NotRecorded };
    let known = git(project, &["merge-base", "--is-ancestor", hash, "HEAD"]).is_some();
    let count = git(project, &["rev-list", "--count", &format!("{hash}..HEAD")]);
    match count.and_then(|count| count.parse().ok()).filter(|_| known) {
        Some(count) => Age::Commits(count),
        None if complete => Age::Foreign,
        None => Age::Unseen,
    }
}

/// Returns the output of a Git command, or `None` if it fails.
fn git(project: &Path, arguments: &[&str]) -> Option<String> {
    output(Command::new("git").arg("-C").arg(project).args(arguments))
}

fn output(command: &mut Command) -> Option<String> {
    let told = command.output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests;
