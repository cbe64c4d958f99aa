//! The location of the workspace.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Returns the folder of the workspace: the one above this package.
pub(crate) fn project() -> Result<PathBuf, Failure> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| Failure::new("the package has no folder above it"))
}
