//! Copying files and trees between the server and the local file system, with `cp -r` semantics.
//!
//! - A target that is a directory gets the source under its own name in it; else the target is the new name. The
//!   root of an export has no name: its contents are copied.
//! - Symbolic links inside a tree are copied as links. Without `recursive` a link that is named is followed.
//! - Mode (permission bits) and time of last change come along, if [`CopyOptions::preserve`] says so.
//! - Devices, sockets and named pipes are left out and reported.
//! - What cannot be copied is reported and the rest goes on; when the server is lost, the copy ends.
//!
//! *What a server cannot do.* The names that it lists become local names only after
//! [`FileName::check_component`](crate::wire::FileName::check_component); no name comes twice from one directory; a
//! local directory is entered only if it is one itself, not a link; set-user-ID and set-group-ID bits are not taken
//! over; the depth is bounded.
//!
//! *What an interrupted copy leaves.* [`Client::get`](super::Client::get) writes under a temporary name in the
//! target directory and renames at the end: the final name is never a half file. A dropped future removes its
//! temporary files.

mod get;
mod local;
mod put;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use super::Error;
use crate::wire::{Attributes, NfsTime};

/// Deepest directory below the source that is copied.
pub const MAX_DEPTH: usize = 512;

/// Called as a copy goes on, from several tasks: it must not block.
pub type Progress = Arc<dyn Fn(CopyEvent<'_>) + Send + Sync>;

/// How to copy.
#[derive(Clone)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Directories with everything in them; without it a directory is an error. Default: no.
    pub recursive: bool,
    /// Mode and time of last change of files and directories. Default: yes.
    pub preserve: bool,
    /// Files that are copied at the same time. Default: 16.
    pub parallel: usize,
    /// Told of everything that happens.
    pub progress: Option<Progress>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self { recursive: false, preserve: true, parallel: 16, progress: None }
    }
}

impl fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recursive, preserve, parallel, progress } = self;
        f.debug_struct("CopyOptions")
            .field("recursive", recursive)
            .field("preserve", preserve)
            .field("parallel", parallel)
            .field("progress", &progress.is_some())
            .finish()
    }
}

/// What happens during a copy. Paths are those of the source.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CopyEvent<'a> {
    /// A file will be copied.
    Found {
        /// Its path.
        path: &'a str,
        /// Its length now.
        bytes: u64,
    },
    /// So many more bytes have been copied.
    Bytes(u64),
    /// A file, link or directory is complete.
    Done {
        /// Its path.
        path: &'a str,
    },
    /// Something was left out.
    Skipped {
        /// Its path.
        path: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// Something could not be copied.
    Failed {
        /// Its path.
        path: &'a str,
        /// Why.
        error: &'a Error,
    },
}

/// What could not be copied.
#[derive(Debug)]
#[non_exhaustive]
pub struct CopyFailure {
    /// Its path.
    pub path: String,
    /// Why.
    pub error: Error,
}

/// What a copy did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CopyReport {
    /// Regular files copied.
    pub files: u64,
    /// Directories copied.
    pub directories: u64,
    /// Symbolic links copied.
    pub symlinks: u64,
    /// Bytes of files copied.
    pub bytes: u64,
    /// Paths that were left out, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Paths that could not be copied.
    pub failures: Vec<CopyFailure>,
}

/// Options and report of a copy, shared by its tasks.
#[derive(Clone)]
struct Copying {
    options: CopyOptions,
    report: Arc<Mutex<CopyReport>>,
}

impl Copying {
    fn new(options: &CopyOptions) -> Self {
        Self { options: options.clone(), report: Arc::default() }
    }

    fn tell(&self, event: CopyEvent<'_>) {
        if let Some(progress) = &self.options.progress {
            progress(event);
        }
    }

    fn note(&self, change: impl FnOnce(&mut CopyReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn moved(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.note(|report| report.bytes = report.bytes.saturating_add(bytes));
        self.tell(CopyEvent::Bytes(bytes));
    }

    fn done(&self, path: &str, count: impl FnOnce(&mut CopyReport) -> &mut u64) {
        self.note(|report| *count(report) += 1);
        self.tell(CopyEvent::Done { path });
    }

    fn skipped(&self, path: &str, reason: &str) {
        self.tell(CopyEvent::Skipped { path, reason });
        self.note(|report| report.skipped.push((path.to_owned(), reason.to_owned())));
    }

    /// Notes down a failure; gives it back if the whole copy had better end.
    fn failed(&self, path: &str, error: Error) -> Result<(), Error> {
        if error.ends_everything() {
            return Err(error);
        }
        self.tell(CopyEvent::Failed { path, error: &error });
        self.note(|report| report.failures.push(CopyFailure { path: path.to_owned(), error }));
        Ok(())
    }

    fn report(&self) -> CopyReport {
        std::mem::take(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tasks of a copy, a bounded number at a time.
struct Tasks {
    set: JoinSet<(String, Result<(), Error>)>,
    copying: Copying,
}

impl Tasks {
    fn new(copying: Copying) -> Self {
        Self { set: JoinSet::new(), copying }
    }

    /// Starts a task as soon as there is room for it.
    async fn start(
        &mut self,
        path: String,
        task: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        while self.set.len() >= self.copying.options.parallel.max(1) {
            self.join_one().await?;
        }
        self.set.spawn(async move { (path, task.await) });
        Ok(())
    }

    /// Waits for all of them.
    async fn finish(&mut self) -> Result<(), Error> {
        while !self.set.is_empty() {
            self.join_one().await?;
        }
        Ok(())
    }

    async fn join_one(&mut self) -> Result<(), Error> {
        match self.set.join_next().await {
            None | Some(Ok((_, Ok(())))) => Ok(()),
            Some(Ok((path, Err(error)))) => self.copying.failed(&path, error),
            Some(Err(lost)) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
            // Only whoever drops the set cancels.
            Some(Err(_)) => Ok(()),
        }
    }
}

/// Mode and time that a copy keeps of its original.
#[derive(Debug, Clone, Copy)]
struct Kept {
    mode: u32,
    mtime: NfsTime,
}

impl From<&Attributes> for Kept {
    fn from(attributes: &Attributes) -> Self {
        Self { mode: attributes.mode, mtime: attributes.mtime }
    }
}

/// The path of an entry, for messages and reports.
fn child(path: &str, name: &str) -> String {
    if path.ends_with('/') || path.is_empty() { format!("{path}{name}") } else { format!("{path}/{name}") }
}
