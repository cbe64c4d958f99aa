//! Helpers for tests in several modules.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{OpenError, StateError};

/// Environment variable that gives the place of the bind mount to the second run.
const BOUND: &str = "RPCRDMA_TEST_BIND_MOUNT";

/// Runs the named test again, in a mount namespace of its own where `hidden` is also visible as `shown`.
/// Returns `Some` in the second run, which does the testing. In the first run, and where mounts are
/// impossible, returns `None`.
pub(crate) fn with_bind_mount(test: &str, hidden: &Path, shown: &Path) -> Option<(PathBuf, PathBuf)> {
    if let Ok(bound) = std::env::var(BOUND) {
        let (hidden, shown) = bound.split_once(':').unwrap();
        return Some((hidden.into(), shown.into()));
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root makes mounts");
        return None;
    }
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).args([hidden, shown]);
        command
    };
    if !namespace("mount --bind \"$1\" \"$2\"").status().is_ok_and(|status| status.success()) {
        println!("skipped: this machine lets root make no mounts");
        return None;
    }
    let status = namespace("mount --bind \"$1\" \"$2\" && exec \"$3\" --exact \"$4\"")
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(BOUND, format!("{}:{}", hidden.display(), shown.display()))
        .status();
    assert!(status.unwrap().success(), "in the namespace");
    None
}

/// Opens an object that was closed just now. The child of another test holds its lock between fork and exec.
pub(crate) fn reopened<T, E: Into<OpenError>>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match open().map_err(Into::into) {
            Ok(opened) => return opened,
            Err(OpenError::State(StateError::InUse { .. }))
                if started.elapsed() < Duration::from_secs(20) =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
