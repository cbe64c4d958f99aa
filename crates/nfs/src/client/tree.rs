//! Copying files and trees between the server and the local file system, with `cp -r` semantics.
//!
//! - A target that is a directory gets the source under its own name in it; else the target is the new name. The
//!   root of an export has no name: its contents are copied.
//! - Symbolic links inside a tree are copied as links. Without `recursive` a link that is named is followed.
//! - Mode (permission bits) and time of last change come along, if [`CopyOptions::preserve`] says so. So do names of
//!   one file: files that are hard links of each other inside the tree are so in the copy.
//! - Root keeps owners, and with them set-user-ID and set-group-ID bits.
//! - Devices, sockets and named pipes inside a tree are left out and reported. A pipe or device that the caller names
//!   is read to its end, or written.
//! - What cannot be copied is reported and the rest goes on; when the server is lost, the copy ends.
//!
//! *Existing files.* A regular file is replaced by a new one with its mode and owner. If the caller names a file that has
//! several names, it is written in place. In a tree it loses the name instead: its other names may be those of further
//! files of the tree. A file that the caller may write but not replace is written in place too. That is somebody else's, or
//! one in a directory where the caller can make nothing, or one that is mounted. No file is written in place twice. A symbolic link that the caller
//! names is followed. At the server links are followed in trees too. In a local tree they are replaced: the server chose
//! the names. Devices, pipes, sockets and directories are never replaced.
//!
//! *Source and target.* The server may export files that are local here: number and times tell. A file is not copied onto
//! itself then, nor a directory into itself. Two sources of one command do not get one name ([`CopyRun`]).
//!
//! *Hostile servers.* The names that a server lists become local names only after
//! [`FileName::check_component`](crate::wire::FileName::check_component). No name comes twice from one directory. A local
//! directory is entered only if it is a directory itself, not a link. A tree touches no local device or pipe. A directory
//! that contains itself is found out, and the depth is bounded. A file is read as far as its attributes say. They are asked
//! for once more at the end: the file may have grown.
//!
//! *Interruption.* Both ways a file grows under a temporary name beside the final name (`.rpcrdma-….part`) and is renamed
//! at the end, at the server after COMMIT. So the final name is never a half file. A dropped future removes its temporary
//! files. At the server a task of its own does so: the runtime has to go on meanwhile. With [`CopyOptions::in_place`]
//! there are no temporary names.
//!
//! *Holes.* Holes of local files are not sent. Blocks of zeros are not written to local files. Our own servers tell where
//! a file has data ([`crate::extents`]), and the rest is not read.

mod get;
mod local;
mod put;
mod run;
mod upload;

use std::fmt;
use std::sync::Arc;

use tokio::task::JoinSet;

pub use run::{CopyRun, MAX_REPORTED};

use super::Error;
use super::walk::shortened;
use crate::wire::{Attributes, NfsTime};

/// Deepest directory below the source that is copied, by default. No real tree is as deep; a server could make one up.
pub const MAX_DEPTH: usize = 1 << 17;

/// Called as a copy goes on, from several tasks: it must not block.
pub type Progress = Arc<dyn Fn(CopyEvent<'_>) + Send + Sync>;

/// How to copy.
#[derive(Clone)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Directories with everything in them; without it a directory is an error. Default: no.
    pub recursive: bool,
    /// Keeps mode, time of last change and group, names of one file inside the tree, and as root the owner. Default: yes.
    pub preserve: bool,
    /// Writes existing files in place and new ones under their own names: an interrupted copy leaves half a file. A file that
    /// was written so already gets a new one in the place of its next name. Default: no.
    pub in_place: bool,
    /// Files that are copied at the same time. Default: 16.
    pub parallel: usize,
    /// Deepest directory below the source that is copied. Default: [`MAX_DEPTH`].
    pub max_depth: usize,
    /// Told of everything that happens.
    pub progress: Option<Progress>,
    /// Permission bits that new files and directories at the server do not get, unless attributes are kept. Local ones have
    /// the mask of the process. Default: none.
    pub umask: u32,
    /// Shared by the copies of one command. Default: each copy is alone.
    pub run: Option<CopyRun>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            preserve: true,
            in_place: false,
            parallel: 16,
            max_depth: MAX_DEPTH,
            progress: None,
            umask: 0,
            run: None,
        }
    }
}

impl fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recursive, preserve, in_place, parallel, max_depth, progress, umask, run } = self;
        f.debug_struct("CopyOptions")
            .field("recursive", recursive)
            .field("preserve", preserve)
            .field("in_place", in_place)
            .field("parallel", parallel)
            .field("max_depth", max_depth)
            .field("progress", &progress.is_some())
            .field("umask", umask)
            .field("run", run)
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
    /// Further names made of files that were copied: hard links.
    pub hard_links: u64,
    /// Bytes of files copied, holes included.
    pub bytes: u64,
    /// Those of them that lie in holes: they were neither sent nor written.
    pub holes: u64,
    /// Objects whose owner could not be kept, although this was root: the copy belongs to whoever made it.
    pub owners_not_kept: u64,
    /// Objects whose group could not be kept: the caller is neither root nor in that group.
    pub groups_not_kept: u64,
    /// Local objects with extended attributes or access control lists, which NFS version 3 cannot carry. Counted only if
    /// attributes are kept at all.
    pub xattrs_not_kept: u64,
    /// Paths that were left out, with the reason: the first [`MAX_REPORTED`] of them. Long paths are shortened.
    pub skipped: Vec<(String, String)>,
    /// How many more were left out.
    pub skipped_more: u64,
    /// Paths that could not be copied, likewise.
    pub failures: Vec<CopyFailure>,
    /// How many more could not be copied.
    pub failures_more: u64,
}

/// Options and report of a copy, shared by its tasks.
#[derive(Clone)]
struct Copying {
    options: CopyOptions,
    run: CopyRun,
}

impl Copying {
    fn new(options: &CopyOptions) -> Self {
        Self { options: options.clone(), run: options.run.clone().unwrap_or_default() }
    }

    fn tell(&self, event: CopyEvent<'_>) {
        if let Some(progress) = &self.options.progress {
            progress(event);
        }
    }

    fn note(&self, change: impl FnOnce(&mut CopyReport)) {
        self.run.note(change);
    }

    fn moved(&self, bytes: usize) {
        self.counted(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Goes past a hole.
    fn hole(&self, bytes: u64) {
        self.note(|report| report.holes = report.holes.saturating_add(bytes));
        self.counted(bytes);
    }

    fn counted(&self, bytes: u64) {
        self.note(|report| report.bytes = report.bytes.saturating_add(bytes));
        self.tell(CopyEvent::Bytes(bytes));
    }

    fn done(&self, path: &str, count: impl FnOnce(&mut CopyReport) -> &mut u64) {
        self.note(|report| *count(report) += 1);
        self.tell(CopyEvent::Done { path });
    }

    fn skipped(&self, path: &str, reason: &str) {
        self.tell(CopyEvent::Skipped { path, reason });
        self.note(|report| {
            if report.skipped.len() < MAX_REPORTED {
                report.skipped.push((path.to_owned(), reason.to_owned()));
            } else {
                report.skipped_more += 1;
            }
        });
    }

    /// Counts an owner or group that could not be kept.
    fn owner(&self, kept: Owned) {
        self.note(|report| report.count_owner(kept));
    }

    /// Notes down a failure; gives it back if the whole copy had better end.
    fn failed(&self, path: &str, error: Error) -> Result<(), Error> {
        if error.ends_everything() {
            return Err(error);
        }
        self.tell(CopyEvent::Failed { path, error: &error });
        self.note(|report| {
            if report.failures.len() < MAX_REPORTED {
                report.failures.push(CopyFailure { path: path.to_owned(), error });
            } else {
                report.failures_more += 1;
            }
        });
        Ok(())
    }

    fn report(&self) -> CopyReport {
        self.run.take_report()
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

/// Whether owner and group of an object could be kept.
#[derive(Debug, Clone, Copy, Default)]
struct Owned {
    owner: bool,
    group: bool,
}

impl Owned {
    /// Nothing was to be kept, or all of it was.
    const ALL: Self = Self { owner: true, group: true };

    const fn all(self) -> bool {
        self.owner && self.group
    }
}

impl CopyReport {
    fn count_owner(&mut self, kept: Owned) {
        self.owners_not_kept += u64::from(!kept.owner);
        self.groups_not_kept += u64::from(!kept.group);
    }
}

/// Attributes that a copy keeps of its original.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// With set-user-ID, set-group-ID and sticky bit; who may not give the owner does not set those.
    mode: u32,
    mtime: NfsTime,
    uid: u32,
    gid: u32,
}

impl From<&Attributes> for Kept {
    fn from(attributes: &Attributes) -> Self {
        let &Attributes { mode, mtime, uid, gid, .. } = attributes;
        Self { mode, mtime, uid, gid }
    }
}

/// An unused name for an incomplete file.
fn temporary_name() -> String {
    format!(".rpcrdma-{:016x}.part", rand::random::<u64>())
}

/// The path of an entry, for messages and reports: a long one is shortened.
fn child(path: &str, name: &str) -> String {
    let between = if path.ends_with('/') || path.is_empty() { "" } else { "/" };
    shortened(format!("{path}{between}{name}"))
}

/// The path that these names lead to, likewise.
fn below<'a>(path: &str, names: impl IntoIterator<Item = &'a std::ffi::OsStr>) -> String {
    let mut path = path.to_owned();
    for name in names {
        if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&name.to_string_lossy());
    }
    shortened(path)
}
