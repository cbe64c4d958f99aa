//! Third-party programs that cases run in the guest and that Debian does not package: built from crates.io, once.
//!
//! Host and guest run the same Debian release, so the guest can run a program that is built on the host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::process;
use crate::failure::{Context, Failure, ensure};

/// Maximum time of a build: it takes one to three minutes; downloads may be slow.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// A program from crates.io.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Name of the crate, and of the program that it installs.
    pub(crate) name: &'static str,
    /// The version for which the expectations of the cases were written.
    pub(crate) version: &'static str,
}

/// A POSIX file system test suite, BSD-2-Clause.
pub(crate) const PJDFSTEST: Tool = Tool { name: "pjdfstest", version: "0.2.2" };

impl Tool {
    /// Returns the path of the program after [`Tool::prepare`].
    pub(crate) fn program(&self, target: &Path) -> PathBuf {
        self.root(target).join("bin").join(self.name)
    }

    fn root(&self, target: &Path) -> PathBuf {
        target.join("tools").join(format!("{}-{}", self.name, self.version))
    }

    /// Builds the program, unless an earlier run has built it. Needs the network.
    pub(crate) fn prepare(&self, target: &Path) -> Result<(), Failure> {
        if self.program(target).exists() {
            return Ok(());
        }
        println!("building {} {}", self.name, self.version);
        let started = Instant::now();
        let root = self.root(target);
        let build = target.join("tools/build");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut install = Command::new(cargo);
        install
            .args(["install", "--quiet", "--locked", "--no-track", "--version"])
            .arg(format!("={}", self.version))
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
            "cargo install {} {}: {}: {}",
            self.name,
            self.version,
            finished.ending(),
            process::last_lines(&finished.errors, 12)
        );
        fs::remove_dir_all(&build).context("removing the build folder")?;
        println!("{} built in {:.0} s", self.name, started.elapsed().as_secs_f64());
        Ok(())
    }
}
