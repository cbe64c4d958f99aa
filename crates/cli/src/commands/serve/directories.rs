//! Directories behind the exports. Each directory is opened once, however many exports it has.
//!
//! So its locks, its open files and, without the kernel's file handles, its map of names have one owner. All
//! directories share one write verifier. A directory stays open until its last export is gone, and the calls in progress
//! there.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rpcrdma_nfs::fs::{DirectoryFs, DirectoryOptions, Following, HandleSource, OpenError, StateDirectory};
use rustix::fs::statvfs;
use tokio::time::{Instant, sleep};

/// Identity of a directory: device, inode, flags of the mount. The flags matter: exports of a second,
/// read-only mount must not use the writable first mount.
type Root = (u64, u64, u64);

/// Directories that are open.
pub(super) struct Directories {
    state: StateDirectory,
    options: DirectoryOptions,
    opened: HashMap<Root, Weak<DirectoryFs>>,
}

impl Directories {
    pub(super) fn new(state: StateDirectory, options: DirectoryOptions) -> Self {
        Self { state, options, opened: HashMap::new() }
    }

    /// Returns the state directory.
    pub(super) fn state(&self) -> &StateDirectory {
        &self.state
    }

    /// Uses maps of names for directories that are opened from now on: Landlock refuses files that are opened by the
    /// kernel's handles.
    pub(super) fn without_kernel_handles(&mut self) {
        self.options.handles = HandleSource::Map;
    }

    /// Opens a directory, or returns the open one.
    ///
    /// # Errors
    /// Those of [`DirectoryFs::open`].
    pub(super) fn open(&mut self, path: &Path) -> Result<Arc<DirectoryFs>, OpenError> {
        let at_root = |source: io::Error| OpenError::Root { path: path.to_owned(), source };
        let found = path.metadata().map_err(at_root)?;
        let mount = statvfs(path).map_err(|errno| at_root(errno.into()))?;
        let root = (found.dev(), found.ino(), mount.f_flag.bits());
        if let Some(directory) = self.opened.get(&root).and_then(Weak::upgrade) {
            // The state directory may lie inside by this path, though not by the path of the first opening.
            self.state.check_outside(path)?;
            // A directory that was moved since then may overlap others.
            directory.locate(path);
            return Ok(directory);
        }
        // The clone has the same write verifier.
        let directory = Arc::new(DirectoryFs::open(path, &self.state, self.options.clone())?);
        self.opened.retain(|_, directory| directory.strong_count() > 0);
        self.opened.insert(root, Arc::downgrade(&directory));
        Ok(directory)
    }

    /// Returns whether any directory has file handles of the kernel.
    pub(super) fn have_kernel_handles(&self) -> bool {
        self.opened.values().filter_map(Weak::upgrade).any(|directory| directory.has_kernel_handles())
    }
}

/// Directories that the server before this one may have open, too.
pub(super) struct Shared {
    following: Following,
    directories: Vec<Weak<DirectoryFs>>,
}

impl Shared {
    /// Lets directories be opened that another server has.
    pub(super) fn begin(state: &StateDirectory) -> Self {
        Self { following: state.follow(), directories: Vec::new() }
    }

    /// Ends that, and remembers the directories that are open.
    pub(super) fn opened(&mut self, directories: &Directories) {
        self.following.end();
        self.directories = directories.opened.values().cloned().collect();
    }

    /// Returns whether all of them belong to this server, now or within the limit.
    pub(super) async fn take_over(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            let directories = self.directories.clone();
            // It writes files.
            let all = tokio::task::spawn_blocking(move || {
                directories.iter().filter_map(Weak::upgrade).all(|directory| directory.take_over())
            });
            if all.await.unwrap_or(false) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(AGAIN).await;
        }
    }
}

/// Pause before another look at directories of another server.
const AGAIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use rpcrdma_nfs::fs::FileSystem as _;

    use super::*;

    /// Also without handles of the kernel, where its map of names is locked.
    #[test]
    fn a_directory_that_was_moved_stays_open() {
        let (place, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for handles in [HandleSource::Automatic, HandleSource::Map] {
            let first = place.path().join(format!("{handles:?}"));
            let outer = first.with_extension("outer");
            let inside = outer.join("inside");
            for path in [&first, &outer] {
                std::fs::create_dir(path).unwrap();
            }
            let options = DirectoryOptions { handles, ..DirectoryOptions::default() };
            let mut directories = Directories::new(StateDirectory::open(state.path()).unwrap(), options);
            let opened = directories.open(&first).unwrap();
            std::fs::rename(&first, &inside).unwrap();
            assert!(Arc::ptr_eq(&opened, &directories.open(&inside).unwrap()));
            let around = directories.open(&outer).unwrap().location().unwrap();
            assert!(around.contains(&opened.location().unwrap()), "the overlap is seen");
            // Another directory in the old place is another one.
            std::fs::create_dir(&first).unwrap();
            assert!(!Arc::ptr_eq(&opened, &directories.open(&first).unwrap()));
        }
    }

    #[test]
    fn one_directory_is_opened_once_whatever_leads_to_it() {
        let (place, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, other) = (place.path().join("first"), place.path().join("other"));
        for path in [&first, &other] {
            std::fs::create_dir(path).unwrap();
        }
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&first, &link).unwrap();
        for handles in [HandleSource::Automatic, HandleSource::Map] {
            let options = DirectoryOptions { handles, ..DirectoryOptions::default() };
            let mut directories = Directories::new(StateDirectory::open(state.path()).unwrap(), options);
            let opened = directories.open(&first).unwrap();
            for again in [&first, &link, &other.join("../first")] {
                assert!(Arc::ptr_eq(&opened, &directories.open(again).unwrap()), "{}", again.display());
            }
            assert!(!Arc::ptr_eq(&opened, &directories.open(&other).unwrap()));
            // After the last use it is opened again.
            drop(opened);
            directories.open(&first).unwrap();
        }
        let state = StateDirectory::open(state.path()).unwrap();
        let missing = Directories::new(state, DirectoryOptions::default()).open(&place.path().join("none"));
        assert!(matches!(missing, Err(OpenError::Root { .. })));
    }
}
