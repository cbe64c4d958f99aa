//! Files that the server trusts: keys, and all that says who callers are. None may lie in an export.

use std::path::PathBuf;

use rpcrdma_nfs::fs::is_exposed;

use super::export::ExportOption;
use crate::exit::Failure;

/// Checks that clients reach none of these files, each with the option or variable that names it.
///
/// # Errors
/// The first file that lies in an export, or to which a link in an export leads.
pub(super) fn check_outside(
    files: impl IntoIterator<Item = (&'static str, PathBuf)>,
    exports: &[ExportOption],
) -> Result<(), Failure> {
    for (name, path) in files {
        if let Some(export) = exports.iter().find(|export| is_exposed(&path, &export.directory)) {
            return Err(Failure::failed(format!(
                "cannot serve: {} ({name}) lies inside the export {}, or a link that leads to it does: clients could read or \
                 replace it; keep it outside of all exports",
                path.display(),
                export.directory.display()
            )));
        }
    }
    Ok(())
}
