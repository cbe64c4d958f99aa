//! Programs that cases run and that Debian does not package: third-party programs from crates.io, built once,
//! and tests and examples of the project.
//!
//! Host and guest run the same Debian release, so the guest can run a program that is built on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Maximum time of a build: it takes one to three minutes; downloads may be slow.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// A program that the suite builds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Name of the program.
    pub(crate) name: &'static str,
    source: Source,
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// The crate of the program's name from crates.io, in the version for which the expectations of the cases were
    /// written.
    Registry { version: &'static str },
    /// The integration test of the program's name of a package of the project.
    Test { package: &'static str },
    /// The example of the program's name of a package of the project, optimised.
    Example { package: &'static str },
}

/// A POSIX file system test suite, BSD-2-Clause.
pub(crate) const PJDFSTEST: Tool = Tool { name: "pjdfstest", source: Source::Registry { version: "0.2.2" } };

/// The provider tests over libibverbs.
pub(crate) const PROVIDER_TESTS: Tool =
    Tool { name: "provider", source: Source::Test { package: "rpcrdma-ibverbs" } };

/// The program of heavy use.
pub(crate) const SOAK: Tool = Tool { name: "soak", source: Source::Example { package: "rpcrdma" } };

/// A client of NFS version 3 from crates.io, as a test.
pub(crate) const FOREIGN_CLIENT: Tool =
    Tool { name: "foreign_client", source: Source::Test { package: "rpcrdma-nfs" } };

impl Tool {
    /// Returns the path of the program after [`Tool::prepare`].
    pub(crate) fn program(&self, target: &Path) -> PathBuf {
        match self.source {
            Source::Registry { version } => self.root(target, version).join("bin").join(self.name),
            Source::Test { .. } | Source::Example { .. } => target.join("tools").join(self.name),
        }
    }

    fn root(&self, target: &Path, version: &str) -> PathBuf {
        target.join("tools").join(format!("{}-{version}", self.name))
    }

    /// Builds the program, unless it is there and current.
    pub(crate) fn prepare(&self, project: &Path, target: &Path) -> Result<(), Failure> {
        match self.source {
            Source::Registry { version } => self.install(target, version),
            Source::Test { package } => {
                self.build(project, target, &["test", "--package", package, "--test", self.name, "--no-run"])
            }
            Source::Example { package } => self.build(
                project,
                target,
                &["build", "--release", "--package", package, "--example", self.name],
            ),
        }
    }

    /// Installs the program from crates.io, unless an earlier run has done so. Needs the network.
    fn install(&self, target: &Path, version: &str) -> Result<(), Failure> {
        if self.program(target).exists() {
            return Ok(());
        }
        println!("building {} {version}", self.name);
        let started = Instant::now();
        let root = self.root(target, version);
        let build = target.join("tools/build");
        let mut install = cargo();
        install
            .args(["install", "--quiet", "--locked", "--no-track", "--version"])
            .arg(format!("={version}"))
            .arg("--root")
            .arg(&root)
            .arg("--target-dir")
            .arg(&build)
            .arg(self.name)
            // The settings of the project's own build do not apply.
            .env_remove("RUSTFLAGS")
            .current_dir(target);
        let finished = process::run(install, BUILD_LIMIT)?;
        ensure!(
            finished.success(),
            "cargo install {} {version}: {}: {}",
            self.name,
            finished.ending(),
            process::last_lines(&finished.errors, 12)
        );
        fs::remove_dir_all(&build).context("removing the build folder")?;
        println!("{} built in {:.0} s", self.name, started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Builds a program of the project by this command of cargo, which decides whether it is current.
    fn build(&self, project: &Path, target: &Path, command: &[&str]) -> Result<(), Failure> {
        let mut build = cargo();
        build.args(command).args(["--locked", "--message-format=json"]).current_dir(project);
        let finished = process::run(build, BUILD_LIMIT)?;
        let error = finished.errors.lines().find(|line| line.starts_with("error"));
        ensure!(
            finished.success(),
            "cargo {}: {}: {}",
            command.join(" "),
            finished.ending(),
            error.unwrap_or_default()
        );
        let built = executable(&finished.text(), self.name)
            .ok_or_else(|| Failure::new(format!("cargo names no executable of {}", self.name)))?;
        fs::create_dir_all(target.join("tools"))?;
        fs::copy(built, self.program(target)).context("copying the program")?;
        Ok(())
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A message of cargo about a target that it has built.
#[derive(Debug, Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Returns the executable of a test or an example from the messages of cargo, one JSON document a line.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .find(|artifact| {
            artifact.target.name == name
                && artifact.target.kind.iter().any(|kind| kind == "test" || kind == "example")
        })?
        .executable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_that_of_the_test_or_the_example() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"provider"},"executable":null}"#,
            "\n",
            r#"{"reason":"build-script-executed","package_id":"x"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"provider"},"executable":"/t/provider-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["example"],"name":"soak"},"executable":"/t/soak-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#
        );
        assert_eq!(executable(messages, "provider"), Some(PathBuf::from("/t/provider-1")));
        assert_eq!(executable(messages, "soak"), Some(PathBuf::from("/t/soak-1")));
        assert_eq!(executable(messages, "other"), None);
    }
}
