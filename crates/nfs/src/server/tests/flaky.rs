//! A directory tree whose look-ups fail on demand.

use std::sync::{Arc, Mutex};

use super::watched::{Watch, WatchedFs};
use crate::fs::{DirectoryFs, FileId, FsError, Name};

/// File system with failures on demand.
pub(super) type FlakyFs = WatchedFs<Faults>;

/// The failure that is to come, the object that was moved away, and whether the location of the tree is known.
#[derive(Default)]
pub(super) struct Faults {
    fault: Mutex<Option<(&'static str, FsError)>>,
    moved: Mutex<Option<FileId>>,
    located: bool,
}

impl FlakyFs {
    pub(super) fn new(directory: Arc<DirectoryFs>) -> Self {
        Self::over(directory, Faults { located: true, ..Faults::default() })
    }

    /// Returns a file system without a known location, as without the list of mounts.
    pub(super) fn without_location(directory: Arc<DirectoryFs>) -> Self {
        Self::over(directory, Faults::default())
    }

    /// Makes the next look-up of this name fail.
    pub(super) fn fail_once(&self, name: &'static str, error: FsError) {
        *self.watch.fault.lock().unwrap() = Some((name, error));
    }

    /// Moves this object out of the tree, as another process may between any two calls of the file system.
    pub(super) fn move_away(&self, id: FileId) {
        *self.watch.moved.lock().unwrap() = Some(id);
    }

    /// Returns whether the failure happened.
    pub(super) fn has_failed(&self) -> bool {
        self.watch.fault.lock().unwrap().is_none()
    }
}

impl Watch for Faults {
    fn before_lookup(&self, name: &Name<'_>) -> Result<(), FsError> {
        let meets = |fault: &mut (&'static str, FsError)| fault.0.as_bytes() == name.as_bytes();
        self.fault.lock().unwrap().take_if(meets).map_or(Ok(()), |(_, error)| Err(error))
    }

    fn holds(&self, id: &FileId) -> bool {
        *self.moved.lock().unwrap() != Some(*id)
    }

    fn shows_location(&self) -> bool {
        self.located
    }
}
