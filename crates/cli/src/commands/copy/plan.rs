//! Changes that `sync --dry-run` would make: one line each, or a list in the JSON document.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_nfs::client::{Change, MAX_REPORTED};
use serde::Serialize;

use super::progress::Progress;
use crate::exit::Failure;
use crate::output::{self, printable};

/// Changes of a dry run. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    listed: Arc<Mutex<Listed>>,
}

/// Changes as the JSON document has them.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Whether the changes are printed instead of kept.
    printing: bool,
    /// The first [`MAX_REPORTED`].
    pub(super) changes: Vec<Planned>,
    /// Number of further ones.
    pub(super) more: u64,
    /// The first failure of standard output.
    failure: Option<Failure>,
}

/// A change.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    change: &'static str,
    path: String,
}

impl Plan {
    /// Creates a list that is printed line by line, or kept.
    pub(super) fn new(printing: bool) -> Self {
        Self { listed: Arc::new(Mutex::new(Listed { printing, ..Listed::default() })) }
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change.
    pub(super) fn add(&self, change: Change, path: &str, progress: &Progress) {
        let mut listed = self.listed();
        let change = words(change);
        if !listed.printing {
            if listed.changes.len() < MAX_REPORTED {
                listed.changes.push(Planned { change, path: path.to_owned() });
            } else {
                listed.more += 1;
            }
        } else if listed.failure.is_none() {
            let line = format!("{change} {}", printable(path.as_bytes()));
            listed.failure = progress.suspend(|| output::line(line)).err();
        }
    }

    /// Returns the changes.
    ///
    /// # Errors
    /// They could not be printed.
    pub(super) fn take(&self) -> Result<Listed, Failure> {
        let mut listed = std::mem::take(&mut *self.listed());
        match listed.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(listed),
        }
    }
}

/// Returns the beginning of the line for a change. The words are part of the interface.
const fn words(change: Change) -> &'static str {
    match change {
        Change::Copy => "copy",
        Change::MakeDirectory => "make directory",
        Change::Symlink => "make symbolic link",
        Change::HardLink => "make hard link",
        Change::Attributes => "set attributes of",
        Change::Delete => "delete",
        _ => "change",
    }
}
