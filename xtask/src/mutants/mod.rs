//! Mutation testing: does a test fail when the code changes?
//!
//! A copy of the workspace gets all mutants of a package at once, each behind a switch ([`rewrite`], [`splice`]), and
//! its tests are built once ([`build`]). Each test runs without a mutant, and records which ones it reaches. Then the
//! tests that reach a mutant run with its switch on ([`judge`]). Verdicts are kept ([`store`]): a run can stop and go
//! on, and a mutant of an unchanged function is judged once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::build::{Build, Changed};
use self::judge::{Tests, lock};
use self::rewrite::Mutant;
use self::store::{Store, Verdict};
use crate::failure::{Context, Failure, ensure};
use crate::project::project;
use crate::source::Tree;

mod build;
mod judge;
mod rewrite;
mod splice;
mod store;
mod values;

#[cfg(test)]
mod tests;

/// The module with the switches, which the copy of a package gets.
const SWITCH: &str = include_str!("switch.rs");

/// The options of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the package below `crates`, as in `oncrpc`
    #[arg(long, value_name = "FOLDER")]
    package: String,
    /// Only files whose path below `src` begins so; may be given more than once
    #[arg(long, value_name = "PATH")]
    file: Vec<String>,
    /// Test this package too, as in `rpcrdma-histories`; may be given more than once
    #[arg(long, value_name = "PACKAGE")]
    with: Vec<String>,
    /// Tests that run at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Judge again what survived: after new tests
    #[arg(long)]
    again: bool,
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> ExitCode {
    let done = project().and_then(|project| mutants(&project, &project.join("target/mutants"), options));
    match done {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Finds, builds and judges the mutants of a package, and returns the report.
fn mutants(project: &Path, work: &Path, options: &Options) -> Result<String, Failure> {
    let root = format!("crates/{}/src/", options.package);
    let (mutants, mut files) = find(project, &root, &options.file)?;
    let copy = work.join("source");
    let switch = format!("{root}mutant.rs");
    let own: BTreeSet<PathBuf> =
        files.iter().map(|file| &file.path).chain([&switch]).map(PathBuf::from).collect();
    build::copy(project, &copy, &own)?;
    build::write(&copy.join(&switch), SWITCH.as_bytes())?;

    let mut store = Store::open(&work.join(format!("{}.tsv", options.package)))?;
    let is_dropped = |mutant: &Mutant| store.get(mutant) == Some(Verdict::Dropped);
    let mut dropped: BTreeSet<usize> =
        mutants.iter().enumerate().filter(|(_, mutant)| is_dropped(mutant)).map(|(id, _)| id).collect();
    let mut packages = vec![name(project, &options.package)?];
    packages.extend(options.with.iter().cloned());
    let build = Build {
        copy: &copy,
        target: &work.join("target"),
        packages: &packages,
        root: &format!("{root}lib.rs"),
        mutants: &mutants,
    };
    let binaries = build.run(&mut files, &mut dropped)?;
    for mutant in dropped.iter().filter_map(|id| mutants.get(*id)) {
        if store.get(mutant) != Some(Verdict::Dropped) {
            store.put(mutant, Verdict::Dropped)?;
        }
    }
    eprintln!("mutants: {} in all, of which {} do not compile", mutants.len(), dropped.len());

    let tests = Tests::record(binaries, work, options.jobs)?;
    let is_open = |mutant: &Mutant| match store.get(mutant) {
        None | Some(Verdict::NotReached) => true,
        Some(Verdict::Survived) => options.again,
        Some(_) => false,
    };
    let open: Vec<usize> =
        mutants.iter().enumerate().filter(|(_, mutant)| is_open(mutant)).map(|(id, _)| id).collect();
    eprintln!("mutants: {} tests, {} mutants to judge", tests.len(), open.len());
    let (shared, told) = (Mutex::new(&mut store), AtomicUsize::new(0));
    tests.judge(&open, options.jobs, |id, verdict| {
        let count = told.fetch_add(1, Ordering::Relaxed) + 1;
        if count % 100 == 0 {
            eprintln!("mutants: {count} judged");
        }
        mutants.get(id).map_or(Ok(()), |mutant| lock(&shared).put(mutant, verdict))
    })?;
    let judged: Vec<(&Mutant, Verdict)> =
        mutants.iter().filter_map(|mutant| Some((mutant, store.get(mutant)?))).collect();
    Ok(store::report(&judged, &root))
}

/// Finds the mutants of a package's files, and the files to change. The root file is one of them.
fn find(project: &Path, root: &str, wanted: &[String]) -> Result<(Vec<Mutant>, Vec<Changed>), Failure> {
    let tree = Tree::read(&project.join(root), "lib.rs")?;
    let (mut mutants, mut files) = (Vec::new(), Vec::new());
    for file in &tree.files {
        let is_wanted = wanted.is_empty() || wanted.iter().any(|start| file.path.starts_with(start));
        if !is_wanted && file.path != "lib.rs" {
            continue;
        }
        let path = format!("{root}{}", file.path);
        let text = fs::read_to_string(project.join(&path)).context(&path)?;
        let sites = if is_wanted { rewrite::sites(&path, file, &text, &mut mutants) } else { Vec::new() };
        files.push(Changed { path, text, sites });
    }
    ensure!(!mutants.is_empty(), "no mutants in these files of {root}");
    Ok((mutants, files))
}

/// Returns the name of a package by its folder.
fn name(project: &Path, folder: &str) -> Result<String, Failure> {
    let path = project.join("crates").join(folder).join("Cargo.toml");
    let manifest: toml::Table =
        fs::read_to_string(&path).context(path.display())?.parse().context(path.display())?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    name.map(str::to_owned).ok_or_else(|| Failure::new(format!("{} has no name", path.display())))
}
