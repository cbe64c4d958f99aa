//! Copies of files and trees between the server and the local file system, or another server, with `cp -r` semantics.
//!
//! - If the target is a directory, the source goes into it under its own name; otherwise the target is the
//!   new name. The root of an export has no name: its contents are copied.
//! - A target with a slash at its end is a directory, or becomes one. A file is not copied to it otherwise.
//! - Symbolic links inside a tree are copied as links. Without `recursive`, a link that the caller names is
//!   followed.
//! - Mode (permission bits) and time of last change are copied if [`CopyOptions::preserve`] is set. Then
//!   files that are hard links of each other inside the tree are so in the copy too.
//! - Root keeps owners, and with them set-user-ID and set-group-ID bits.
//! - Devices, sockets and named pipes inside a tree are left out and reported. A pipe or device that the
//!   caller names is read to its end, or written.
//! - Objects that cannot be copied are reported, and the copy continues. It ends when the server is lost.
//!
//! *Existing files.* A new file with the mode and owner of an existing regular file replaces it. If the
//! caller names a file with several names, that file is written in place. In a tree it loses the name
//! instead, because its other names may belong to other files of the tree. A file that the caller may write
//! but cannot replace is written in place too. Examples are a file of another user, a file in a directory
//! where the caller may make nothing, and a mounted file. No file is written in place twice. A symbolic link
//! that the caller names is followed. At the server, links are also followed in trees. In a local tree they
//! are replaced, because the server chose the names. Devices, pipes, sockets and directories are never
//! replaced.
//!
//! *Source and target.* The server may export local files; file numbers and times reveal that. Then a file is
//! not copied onto itself, and a directory not into itself. Two sources of one command do not get one name
//! ([`CopyRun`]).
//!
//! *Hostile servers.* Names from a server become local names only after
//! [`FileName::check_component`](crate::wire::FileName::check_component). No name comes twice from one
//! directory. A local directory is entered only if it is itself a directory, not a link. In a tree, no local
//! device or pipe is opened. A directory that contains itself is detected, and the depth is bounded. A file
//! is read up to the length in its attributes. They are requested once more at the end, because the file may
//! have grown.
//!
//! *Interruption.* In both directions a file grows under a temporary name beside its final name
//! (`.rpcrdma-….part`). It is renamed at the end; at the server, after COMMIT. So the final name never
//! belongs to an incomplete file. A dropped future removes its temporary files. At the server a separate task
//! does so, and the runtime must keep running meanwhile. With [`CopyOptions::in_place`] there are no
//! temporary names. With [`CopyOptions::partial`] the file stays under a name by which a later copy finds and
//! continues it ([`partial`]).
//!
//! *Changes meanwhile.* Length and time of a file are compared before and after it is read. A file that changed
//! is reported and its copy stays, with the time of the state that was found. So a later [`sync`] copies it again.
//!
//! *Holes.* Holes of local files are not sent. Blocks of zeros are not written to local files. Servers of
//! this project report where a file has data ([`crate::extents`]), and the rest is not read.

mod across;
mod compare;
mod filter;
mod get;
mod identity;
mod local;
mod partial;
mod put;
mod remove;
mod run;
mod sync;
mod upload;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::task::JoinSet;

pub use compare::SyncOptions;
pub use filter::{Filter, FilterError};
pub use run::{CopyRun, MAX_REPORTED};

use super::directory::LIMIT;
use super::walk::{Place, shortened};
use super::{Error, Violation};
use crate::wire::{Attributes, FileType, NfsTime};

/// Default for the greatest depth of a directory below the source. No real tree is as deep; a server could
/// invent one.
pub const MAX_DEPTH: usize = 1 << 17;

/// Callback for the events of a copy. Several tasks call it, and it must not block.
pub type Progress = Arc<dyn Fn(CopyEvent<'_>) + Send + Sync>;

/// Options of a copy.
#[derive(Clone)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Copies directories with all their content; without this option a directory is an error. Default: no.
    pub recursive: bool,
    /// Keeps mode, time of last change, group, and hard links inside the tree; as root also the owner.
    /// Default: yes.
    pub preserve: bool,
    /// Writes existing files in place and new files under their final names. An interrupted copy then leaves
    /// an incomplete file. A file already written in place gets a new file in the place of its next name.
    /// Default: no.
    pub in_place: bool,
    /// Files copied at the same time. Default: 64.
    pub parallel: usize,
    /// Greatest depth of a directory below the source. Default: [`MAX_DEPTH`].
    pub max_depth: usize,
    /// Receives all events.
    pub progress: Option<Progress>,
    /// Permission bits that new files and directories at the server do not get, unless attributes are kept.
    /// To local files the umask of the process applies. Default: none.
    pub umask: u32,
    /// State shared by the copies of one command. Default: each copy is independent.
    pub run: Option<CopyRun>,
    /// Patterns of objects below the source that are not copied. Default: none.
    pub filter: Filter,
    /// Keeps the incomplete file of a copy that ends early, and continues the one of an earlier copy. A file that
    /// is written in place is not continued. Default: no.
    pub partial: bool,
    /// With `partial`: bytes after which data at the server is made stable, at least one. A copy to the server
    /// continues at a multiple of this number, and only files that are longer are kept. Two copies with different
    /// numbers do not continue each other. Default: [`PARTIAL_STEP`].
    pub partial_step: u64,
    /// Comparison and changes of a synchronisation. A plain copy ignores this. Default: [`SyncOptions::default`].
    pub sync: SyncOptions,
}

/// Default of [`CopyOptions::partial_step`], in bytes.
pub const PARTIAL_STEP: u64 = 32 << 20;

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: false,
            preserve: true,
            in_place: false,
            parallel: 64,
            max_depth: MAX_DEPTH,
            progress: None,
            umask: 0,
            run: None,
            filter: Filter::default(),
            partial: false,
            partial_step: PARTIAL_STEP,
            sync: SyncOptions::default(),
        }
    }
}

impl fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recursive, preserve, in_place, parallel, max_depth, progress, umask, run, .. } = self;
        f.debug_struct("CopyOptions")
            .field("recursive", recursive)
            .field("preserve", preserve)
            .field("in_place", in_place)
            .field("parallel", parallel)
            .field("max_depth", max_depth)
            .field("progress", &progress.is_some())
            .field("umask", umask)
            .field("run", run)
            .field("filter", &self.filter)
            .field("partial", &self.partial)
            .field("partial_step", &self.partial_step)
            .field("sync", &self.sync)
            .finish()
    }
}

/// An event of a copy. Paths are those of the source.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CopyEvent<'a> {
    /// A file is going to be copied.
    Found {
        /// Its path.
        path: &'a str,
        /// Current length.
        bytes: u64,
    },
    /// The walk of the source is over: no more files will be found in it.
    Walked,
    /// This many more bytes have been copied.
    Bytes(u64),
    /// This many bytes of a file were already there, from an earlier copy.
    Resumed(u64),
    /// A file, link or directory is complete.
    Done {
        /// Its path.
        path: &'a str,
        /// Whether it is a file for which [`Found`](Self::Found) came before.
        file: bool,
    },
    /// A synchronisation found a file or link that is as it should be.
    Unchanged {
        /// Its path.
        path: &'a str,
    },
    /// A synchronisation makes this change; with [`SyncOptions::dry_run`] it would make it.
    Change {
        /// The kind of change.
        change: Change,
        /// Path of the source. If something is deleted, path of the target. A directory has a slash at its end.
        path: &'a str,
    },
    /// A file changed while it was read: its copy may have parts of both states.
    ChangedMeanwhile {
        /// Its path.
        path: &'a str,
    },
    /// An object was left out.
    Skipped {
        /// Its path.
        path: &'a str,
        /// The reason.
        reason: &'a str,
    },
    /// An object could not be copied.
    Failed {
        /// Its path.
        path: &'a str,
        /// The reason.
        error: &'a Error,
    },
}

/// Kind of a change by a synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The content of a file is copied.
    Copy,
    /// A directory is made.
    MakeDirectory,
    /// A symbolic link is made.
    Symlink,
    /// A further name is given to a file.
    HardLink,
    /// Mode, owner, group or time is set.
    Attributes,
    /// An object of the target is removed.
    Delete,
}

/// An object that could not be copied.
#[derive(Debug)]
#[non_exhaustive]
pub struct CopyFailure {
    /// Its path.
    pub path: String,
    /// The reason.
    pub error: Error,
}

/// Results of a copy.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CopyReport {
    /// Regular files copied.
    pub files: u64,
    /// Directories copied.
    pub directories: u64,
    /// Symbolic links copied.
    pub symlinks: u64,
    /// Hard links: further names made for copied files.
    pub hard_links: u64,
    /// Bytes of files copied, holes included.
    pub bytes: u64,
    /// Part of `bytes` in holes, which were neither sent nor written.
    pub holes: u64,
    /// Bytes that were already there from earlier copies ([`CopyOptions::partial`]). They are not in `bytes`.
    pub resumed: u64,
    /// Files and links that a synchronisation left as they were.
    pub unchanged: u64,
    /// Objects of which a synchronisation set only mode, owner, group or time.
    pub attributes: u64,
    /// Objects of the target that a synchronisation removed.
    pub deleted: u64,
    /// Files that changed while they were read.
    pub changed_meanwhile: u64,
    /// Objects whose owner could not be kept although the caller is root. Their copies belong to the user
    /// that made them.
    pub owners_not_kept: u64,
    /// Objects whose group could not be kept, because the caller is neither root nor in that group.
    pub groups_not_kept: u64,
    /// Local objects with extended attributes or access control lists, which NFS version 3 cannot carry. They
    /// count only if attributes are kept.
    pub xattrs_not_kept: u64,
    /// Paths left out, with the reason: the first [`MAX_REPORTED`]. Long paths are shortened.
    pub skipped: Vec<(String, String)>,
    /// Number of further paths left out.
    pub skipped_more: u64,
    /// Paths that could not be copied: the first [`MAX_REPORTED`].
    pub failures: Vec<CopyFailure>,
    /// Number of further paths that could not be copied.
    pub failures_more: u64,
}

/// Options and report of a copy, shared by its tasks.
#[derive(Clone)]
struct Copying {
    options: CopyOptions,
    run: CopyRun,
}

impl Copying {
    /// Prepares a plain copy.
    fn new(options: &CopyOptions) -> Self {
        Self::syncing(&CopyOptions { sync: SyncOptions::default(), ..options.clone() })
    }

    /// Prepares a synchronisation.
    fn syncing(options: &CopyOptions) -> Self {
        Self { options: options.clone(), run: options.run.clone().unwrap_or_default() }
    }

    /// Returns the attributes of the original, if they are kept.
    fn kept(&self, kept: Kept) -> Option<Kept> {
        self.options.preserve.then_some(kept)
    }

    /// Returns the mode of a new object at a server whose attributes are not kept.
    fn masked(&self, kept: Kept) -> u32 {
        kept.mode & 0o777 & !self.options.umask
    }

    /// Claims a name at a server for one source of the command.
    fn claim(&self, place: &Place, path: &str) -> Result<(), Error> {
        if self.run.claim(place) { Ok(()) } else { Err(Error::JustMade { path: path.to_owned() }) }
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

    /// Counts a hole.
    fn hole(&self, bytes: u64) {
        self.note(|report| report.holes = report.holes.saturating_add(bytes));
        self.counted(bytes);
    }

    fn counted(&self, bytes: u64) {
        self.note(|report| report.bytes = report.bytes.saturating_add(bytes));
        self.tell(CopyEvent::Bytes(bytes));
    }

    /// Counts bytes that an earlier copy left.
    fn resumed(&self, bytes: u64) {
        if bytes > 0 {
            self.note(|report| report.resumed = report.resumed.saturating_add(bytes));
            self.tell(CopyEvent::Resumed(bytes));
        }
    }

    fn done(&self, path: &str, count: impl FnOnce(&mut CopyReport) -> &mut u64) {
        self.note(|report| *count(report) += 1);
        self.tell(CopyEvent::Done { path, file: false });
    }

    /// Counts a file for which [`CopyEvent::Found`] was told.
    fn file_done(&self, path: &str) {
        self.note(|report| report.files += 1);
        self.tell(CopyEvent::Done { path, file: true });
    }

    fn unchanged(&self, path: &str) {
        self.note(|report| report.unchanged += 1);
        self.tell(CopyEvent::Unchanged { path });
    }

    /// Returns whether nothing is changed.
    const fn is_dry(&self) -> bool {
        self.options.sync.dry_run
    }

    fn change(&self, change: Change, path: &str) {
        self.tell(CopyEvent::Change { change, path });
    }

    /// Tells what a dry run found for a further name, after the comparison of the file's content.
    fn name_compared(&self, path: &str, same: bool) {
        if same { self.unchanged(path) } else { self.change(Change::HardLink, path) }
    }

    fn changed_meanwhile(&self, path: &str) {
        self.note(|report| report.changed_meanwhile += 1);
        self.tell(CopyEvent::ChangedMeanwhile { path });
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

    /// Records a failure. Returns the error if the whole copy should end.
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

/// The copy of a file. Boxed where it is made: each move of a future copies all of it, and these have thousands of bytes.
type Task = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Result of the copy of a file, with its path for messages.
type Copied = (String, Result<(), Error>);

/// Tasks of a copy. The number of files in progress is bounded.
struct Tasks {
    set: JoinSet<(usize, Vec<Copied>)>,
    /// Files in progress.
    files: usize,
    copying: Copying,
}

impl Tasks {
    fn new(copying: Copying) -> Self {
        Self { set: JoinSet::new(), files: 0, copying }
    }

    /// Returns the bound of the files in progress.
    fn limit(&self) -> usize {
        self.copying.options.parallel.max(1)
    }

    /// Starts the task of one file as soon as the bound allows.
    async fn start(&mut self, path: String, task: Task) -> Result<(), Error> {
        self.start_batch(1, async move { vec![(path, task.await)] }).await
    }

    /// Starts the task of `files` files, at most [`Self::limit`], as soon as the bound allows. The task returns a result for
    /// each.
    async fn start_batch(
        &mut self,
        files: usize,
        task: impl Future<Output = Vec<Copied>> + Send + 'static,
    ) -> Result<(), Error> {
        while self.files.saturating_add(files) > self.limit() && self.files > 0 {
            self.join_one().await?;
        }
        self.files = self.files.saturating_add(files);
        self.set.spawn(async move { (files, task.await) });
        Ok(())
    }

    /// Waits for all tasks.
    async fn finish(&mut self) -> Result<(), Error> {
        while !self.set.is_empty() {
            self.join_one().await?;
        }
        Ok(())
    }

    async fn join_one(&mut self) -> Result<(), Error> {
        match self.set.join_next().await {
            Some(Ok((files, results))) => {
                self.files = self.files.saturating_sub(files);
                for (path, result) in results {
                    if let Err(error) = result {
                        self.copying.failed(&path, error)?;
                    }
                }
                Ok(())
            }
            Some(Err(lost)) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
            // A task is cancelled only when the set is dropped.
            None | Some(Err(_)) => Ok(()),
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
    /// Both were kept, or neither was to be kept.
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

/// Attributes of the original that a copy keeps.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Permissions with set-user-ID, set-group-ID and sticky bit. A caller that cannot set the owner does not
    /// set these three.
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

/// Checks the number of directories that wait for their turn: a server could invent more and more. The error ends a copy.
fn bounded(waiting: usize) -> Result<(), Error> {
    if waiting > LIMIT {
        let violation = Violation::EndlessDirectory { limit: LIMIT };
        return Err(Error::Protocol { operation: "READDIRPLUS", violation });
    }
    Ok(())
}

/// Returns the name of an object type with an article, for messages.
fn article(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        FileType::Socket => "a socket",
        FileType::Fifo => "a named pipe",
    }
}

/// Returns an unused name for an incomplete file.
fn temporary_name() -> String {
    format!(".rpcrdma-{:016x}.part", rand::random::<u64>())
}

/// Returns the path of an entry for messages and reports, shortened if it is long.
fn child(path: &str, name: &str) -> String {
    let between = if path.ends_with('/') || path.is_empty() { "" } else { "/" };
    shortened(format!("{path}{between}{name}"))
}

/// Returns the path after these names for messages and reports, shortened if it is long.
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
