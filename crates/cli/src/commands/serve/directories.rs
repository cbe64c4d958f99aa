//! Directories behind the exports. Each directory is opened once, however many exports it has.
//!
//! So its locks, its open files and, without the kernel's file handles, its map of names have one owner. All
//! directories share one write verifier.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rpcrdma_nfs::fs::{DirectoryFs, DirectoryOptions, OpenError, StateDirectory};
use rustix::fs::{StatVfsMountFlags, statvfs};

/// Identity of a directory: device, inode, flags of the mount. The flags matter: exports of a second,
/// read-only mount must not use the writable first mount.
type Root = (u64, u64, StatVfsMountFlags);

/// Directories opened so far.
pub(super) struct Directories<'a> {
    state: &'a StateDirectory,
    options: DirectoryOptions,
    opened: Vec<(Root, Arc<DirectoryFs>)>,
}

impl<'a> Directories<'a> {
    pub(super) fn new(state: &'a StateDirectory, options: DirectoryOptions) -> Self {
        Self { state, options, opened: Vec::new() }
    }

    /// Opens a directory, or returns the open one.
    ///
    /// # Errors
    /// Those of [`DirectoryFs::open`].
    pub(super) fn open(&mut self, path: &Path) -> Result<Arc<DirectoryFs>, OpenError> {
        let at_root = |source: io::Error| OpenError::Root { path: path.to_owned(), source };
        let found = path.metadata().map_err(at_root)?;
        let mount = statvfs(path).map_err(|errno| at_root(errno.into()))?;
        let root = (found.dev(), found.ino(), mount.f_flag);
        if let Some((_, directory)) = self.opened.iter().find(|(other, _)| *other == root) {
            // The state directory may lie inside by this path, though not by the path of the first opening.
            self.state.check_outside(path)?;
            return Ok(Arc::clone(directory));
        }
        // The clone has the same write verifier.
        let directory = Arc::new(DirectoryFs::open(path, self.state, self.options.clone())?);
        self.opened.push((root, Arc::clone(&directory)));
        Ok(directory)
    }

    /// Returns whether any directory has file handles of the kernel.
    pub(super) fn have_kernel_handles(&self) -> bool {
        self.opened.iter().any(|(_, directory)| directory.has_kernel_handles())
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_nfs::fs::HandleSource;

    use super::*;

    #[test]
    fn one_directory_is_opened_once_whatever_leads_to_it() {
        let (place, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let state = StateDirectory::open(state.path()).unwrap();
        let (first, other) = (place.path().join("first"), place.path().join("other"));
        for path in [&first, &other] {
            std::fs::create_dir(path).unwrap();
        }
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&first, &link).unwrap();
        for handles in [HandleSource::Automatic, HandleSource::Map] {
            let options = DirectoryOptions { handles, ..DirectoryOptions::default() };
            let mut directories = Directories::new(&state, options);
            let opened = directories.open(&first).unwrap();
            for again in [&first, &link, &other.join("../first")] {
                assert!(Arc::ptr_eq(&opened, &directories.open(again).unwrap()), "{}", again.display());
            }
            assert!(!Arc::ptr_eq(&opened, &directories.open(&other).unwrap()));
        }
        let missing = Directories::new(&state, DirectoryOptions::default()).open(&place.path().join("none"));
        assert!(matches!(missing, Err(OpenError::Root { .. })));
    }
}
