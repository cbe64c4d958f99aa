//! Witnesses of files with uncommitted data, and the writes and syncs that use them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::file::OpenFile;
use crate::fs::directory::storage::Reach;
use crate::fs::types::FsError;

/// Witness of a file with uncommitted data.
#[derive(Debug)]
pub(in crate::fs::directory) struct Uncommitted {
    pub(super) file: OpenFile,
    pub(super) state: Mutex<Writing>,
}

#[derive(Debug)]
pub(super) struct Writing {
    /// Number of writes that have begun.
    pub(super) epoch: u64,
    /// Number of writes in progress.
    pub(super) now: usize,
    pub(super) last: Instant,
}

impl Uncommitted {
    pub(super) fn state(&self) -> MutexGuard<'_, Writing> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An UNSTABLE write in progress. A COMMIT that arrives meanwhile does not cover it.
#[derive(Debug)]
pub(in crate::fs::directory) struct UnstableWrite(pub(super) Arc<Uncommitted>);

impl Drop for UnstableWrite {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.now -= 1;
        state.last = state.last.max(Instant::now());
    }
}

/// State of the uncommitted data before a sync. Data of a write that was in progress then, or began later,
/// stays uncommitted.
#[derive(Clone, Debug)]
pub(in crate::fs::directory) struct Snapshot {
    pub(super) uncommitted: Arc<Uncommitted>,
    epoch: u64,
    /// Whether no write was in progress. A sync may end before the bytes of such a write are in the file.
    quiet: bool,
}

impl Snapshot {
    pub(super) fn of(uncommitted: &Arc<Uncommitted>) -> Self {
        let state = uncommitted.state();
        let (epoch, quiet) = (state.epoch, state.now == 0);
        drop(state);
        Self { uncommitted: Arc::clone(uncommitted), epoch, quiet }
    }

    /// Returns the descriptor to sync.
    pub(in crate::fs::directory) fn file(&self) -> &OpenFile {
        &self.uncommitted.file
    }

    /// Makes the data stable. If another call got the report of a loss, the write verifier reveals it.
    pub(in crate::fs::directory) fn sync(&self) -> Result<(), FsError> {
        self.file().sync(Reach::File, self.file().losses())
    }

    /// Returns whether all data was in the file before.
    pub(super) fn is_all(&self) -> bool {
        self.quiet && self.uncommitted.state().epoch == self.epoch
    }
}
