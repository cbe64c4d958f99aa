//! The table of requirements: the demands of the protocol's documents, joined with the tests that cover them.
//!
//! The requirements are TOML files in `docs/requirements` ([`catalogue`]); tests name the requirements that they cover
//! in comments ([`scan`]). The check fails on every contradiction ([`join`]). It also fails if `docs/requirements.md`,
//! which is generated from both ([`page`]), is stale.
//!
//! The documents themselves are no part of the project. `--texts` recounts their requirements from a folder of them
//! ([`texts`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::catalogue::Document;
use self::join::{Fault, Table};
use crate::failure::{Context, Failure};
use crate::project::project;

mod builds;
mod catalogue;
mod items;
mod join;
mod page;
mod scan;
mod texts;

/// Folder of the requirements.
const CATALOGUE: &str = "docs/requirements";
/// The page that is generated from them.
const PAGE: &str = "docs/requirements.md";

/// The options of `cargo xtask requirements`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the table into docs/requirements.md (only without faults)
    #[arg(long)]
    write_docs: bool,
    /// Write the table to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Recount the requirements from the texts in FOLDER: .txt files as the RFC Editor and the IETF Datatracker name them
    #[arg(long, value_name = "FOLDER")]
    texts: Option<PathBuf>,
}

/// Runs the check.
pub(crate) fn run(options: &Options) -> ExitCode {
    match check(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("requirements: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn check(options: &Options) -> Result<bool, Failure> {
    let project = project()?;
    let documents = documents(&project.join(CATALOGUE))?;
    let files = scan::workspace(&project)?;
    let recounted = options.texts.as_ref().map(|folder| texts::compare(&documents, folder));
    let (table, mut faults) = join::join(documents, files);
    faults.extend(recounted.into_iter().flatten());
    print!("{}", page::counts(&table));
    if let Some(file) = &options.json {
        write_json(&table, file)?;
    }
    let file = project.join(PAGE);
    let text = page::page(&table);
    if options.write_docs && faults.is_empty() {
        fs::write(&file, text).context(format!("writing {}", file.display()))?;
    } else if fs::read_to_string(&file).ok() != Some(text) {
        faults.push(Fault::StalePage);
    }
    for fault in &faults {
        eprintln!("requirements: {fault}");
    }
    Ok(faults.is_empty())
}

/// Returns the documents, in the order of their file names.
fn documents(folder: &Path) -> Result<Vec<Document>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).context(format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).context(format!("reading {}", file.display()))?;
            Document::parse(&text).context(file.display())
        })
        .collect()
}

fn write_json(table: &Table, file: &Path) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(table).context("writing the table as JSON")?;
    fs::write(file, text + "\n").context(format!("writing {}", file.display()))
}
