//! The copy of the workspace with all mutants, and the binaries of its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::rewrite::Mutant;
use super::splice::{Site, Spliced};
use crate::failure::{Context, Failure, ensure};

/// A file with mutants.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Path in the project.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) sites: Vec<Site>,
}

/// A binary of tests.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    /// Folder of the package: where its tests run.
    pub(crate) folder: PathBuf,
}

/// Copies all files of the project that git does not ignore; those of `own` are left out.
pub(crate) fn copy(project: &Path, copy: &Path, own: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(project);
    let listed = git.output().context("git ls-files")?;
    ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let files: BTreeSet<&Path> =
        listed.split_terminator('\0').map(Path::new).filter(|path| project.join(path).is_file()).collect();
    for file in files.iter().filter(|file| !own.contains(**file)) {
        write(&copy.join(file), &fs::read(project.join(file)).context(file.display())?)?;
    }
    let mut folders = vec![copy.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).context(folder.display())? {
            let path = entry?.path();
            let below = path.strip_prefix(copy).unwrap_or(&path);
            if path.is_dir() {
                folders.push(path);
            } else if !files.contains(below) && !own.contains(below) {
                fs::remove_file(&path).context(path.display())?;
            }
        }
    }
    Ok(())
}

/// Writes a file unless it has these bytes: cargo builds again what is newer.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).context(folder.display())?;
    }
    fs::write(path, bytes).context(path.display())
}

/// A build of tests.
#[derive(Debug)]
pub(crate) struct Build<'a> {
    /// The copy of the workspace.
    pub(crate) copy: &'a Path,
    /// Where cargo builds.
    pub(crate) target: &'a Path,
    /// Names of the packages to test.
    pub(crate) packages: &'a [String],
    /// The root file of the package with mutants, in the project.
    pub(crate) root: &'a str,
    pub(crate) mutants: &'a [Mutant],
}

impl Build<'_> {
    /// Builds the tests. Mutants that do not compile are dropped, until the others do.
    pub(crate) fn run(
        &self,
        files: &mut [Changed],
        dropped: &mut BTreeSet<usize>,
    ) -> Result<Vec<Binary>, Failure> {
        loop {
            let mut spliced = BTreeMap::new();
            for file in files.iter_mut() {
                let mut changed = Spliced::new(&file.text, &mut file.sites, dropped);
                if file.path == self.root {
                    changed.text.push_str("\n#[doc(hidden)]\npub mod mutant;\n");
                }
                write(&self.copy.join(&file.path), changed.text.as_bytes())?;
                spliced.insert(file.path.clone(), changed);
            }
            let messages = self.cargo()?;
            let errors: Vec<&Value> =
                messages.iter().filter(|message| text(message, "/message/level") == Some("error")).collect();
            if errors.is_empty() {
                let finished =
                    |message: &Value| message["reason"] == "build-finished" && message["success"] == true;
                ensure!(messages.iter().any(finished), "cargo failed");
                return Ok(messages.iter().filter_map(binary).collect());
            }
            let before = dropped.len();
            for error in &errors {
                dropped.extend(self.guilty(&error["message"], &spliced));
            }
            eprintln!("mutants: {} do not compile", dropped.len());
            let rendered = || errors.iter().filter_map(|error| text(error, "/message/rendered"));
            ensure!(dropped.len() > before, "no mutant explains:\n{}", rendered().collect::<String>());
        }
    }

    /// Calls cargo, and returns its messages.
    fn cargo(&self) -> Result<Vec<Value>, Failure> {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["test", "--no-run", "--locked", "--message-format=json"])
            .arg("--target-dir")
            .arg(self.target);
        for package in self.packages {
            cargo.args(["--package", package]);
        }
        cargo.args(["--lib", "--tests"]).current_dir(self.copy).env("RUSTFLAGS", "--cap-lints=allow");
        let output = cargo.stderr(Stdio::inherit()).output().context("cargo")?;
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
        lines.map(|line| serde_json::from_slice(line).context("a message of cargo")).collect()
    }

    /// Returns the mutants that an error comes from.
    fn guilty(&self, error: &Value, spliced: &BTreeMap<String, Spliced>) -> Vec<usize> {
        let message = error["message"].as_str().unwrap_or_default();
        if text(error, "/code/code") == Some("E0015") {
            return self.of_constant(message);
        }
        let mut spans = Vec::new();
        collect_spans(error, &mut spans);
        // The first primary one has most to do with the fault.
        spans.sort_by_key(|span| span["is_primary"] != true);
        let found = spans.iter().map(|span| {
            let file = span["file_name"].as_str().and_then(|name| spliced.get(name));
            file.map_or(&[][..], |file| file.mutants_at(&bytes(span)))
        });
        found.into_iter().find(|mutants| !mutants.is_empty()).map(<[usize]>::to_vec).unwrap_or_default()
    }

    /// Returns the mutants of a function that a constant needs. Only without them can it stay a `const fn`.
    fn of_constant(&self, message: &str) -> Vec<usize> {
        let name = message.split('`').nth(1).unwrap_or_default();
        let mut plain = String::new();
        let mut depth = 0_usize;
        for letter in name.chars() {
            match letter {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                letter if depth == 0 => plain.push(letter),
                _ => {}
            }
        }
        let parts: Vec<&str> = plain.split("::").filter(|part| !part.is_empty()).collect();
        let is_called = |mutant: &Mutant| {
            let own: Vec<&str> = mutant.function.split("::").collect();
            own.ends_with(&parts) || parts.ends_with(&own)
        };
        let mutants = self.mutants.iter().enumerate().filter(|(_, mutant)| is_called(mutant));
        mutants.map(|(id, _)| id).collect()
    }
}

/// Returns the text at a path in a value.
fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path)?.as_str()
}

/// Collects the spans of a message and of its notes.
fn collect_spans<'a>(message: &'a Value, spans: &mut Vec<&'a Value>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        spans.push(span);
    }
    for note in message["children"].as_array().into_iter().flatten() {
        collect_spans(note, spans);
    }
}

/// Returns the bytes of a span.
fn bytes(span: &Value) -> Range<usize> {
    let at = |name: &str| span[name].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or_default();
    at("byte_start")..at("byte_end")
}

/// Returns the binary of tests that a message is about.
fn binary(message: &Value) -> Option<Binary> {
    let executable = text(message, "/executable")?;
    let is_test = message.pointer("/profile/test").and_then(Value::as_bool);
    let folder = Path::new(text(message, "/manifest_path")?).parent()?;
    is_test?.then(|| Binary { path: PathBuf::from(executable), folder: folder.to_owned() })
}
