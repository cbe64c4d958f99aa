//! The location of the workspace, and builds of what it has.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Maximum time of a build: a first one takes minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// Returns the folder of the workspace: the one above this package.
pub(crate) fn project() -> Result<PathBuf, Failure> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| Failure::new("the package has no folder above it"))
}

/// Returns the folder for everything that is built.
pub(crate) fn target(project: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), |folder| project.join(folder))
}

/// Builds the command under test as for users; `$RPCRDMA` names an existing build instead.
pub(crate) fn build_command(project: &Path) -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os("RPCRDMA") {
        return Ok(project.join(given));
    }
    build(project, &["--package", "rpcrdma-cli"])?;
    Ok(target(project).join("release/rpcrdma"))
}

/// Builds an example program of a package as for users.
pub(crate) fn build_example(project: &Path, package: &str, example: &str) -> Result<PathBuf, Failure> {
    build(project, &["--package", package, "--example", example])?;
    Ok(target(project).join("release/examples").join(example))
}

fn build(project: &Path, what: &[&str]) -> Result<(), Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked"]).args(what).current_dir(project);
    let mut child = build.spawn().context("starting cargo")?;
    let status = process::wait(&mut child, BUILD_LIMIT)?;
    if status.is_none() {
        process::kill(&mut child);
    }
    ensure!(status.is_some_and(|status| status.success()), "cargo does not build {}", what.join(" "));
    Ok(())
}
