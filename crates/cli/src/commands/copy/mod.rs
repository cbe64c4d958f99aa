//! `rpcrdma cat`, `get`, `put`, `cp` and `sync`: copy files from, to and between servers.
//!
//! [`rpcrdma_nfs::client::Client`] does the copying. These modules have the options, the progress and the
//! report.

mod cat;
mod cp;
mod filters;
mod get;
mod plan;
mod progress;
mod put;
mod sync;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use rpcrdma_nfs::client::{CopyEvent, CopyReport, CopyRun, MAX_REPORTED, SyncOptions};
use serde::Serialize;

pub(crate) use cat::Cat;
pub(crate) use cp::Cp;
pub(crate) use get::Get;
pub(crate) use put::Put;
pub(crate) use sync::Sync;

use super::serve::limits::raise_descriptors;
use crate::arguments::{Common, whole};
use crate::connect::{Location, describe};
use crate::exit::{Exit, Failure};
use crate::output::{self, printable};
use filters::Filters;
use plan::{Plan, Planned};
use progress::Progress;

/// Part of `--help` about the output of `--json`.
const JSON_HELP: &str = "\
--json prints {ended, files, directories, symlinks, hard_links, bytes, holes, resumed, unchanged, attributes, deleted, \
changed_meanwhile, seconds, bytes_per_second, owners_not_kept, groups_not_kept, xattrs_not_kept, changes: [{change, path}], \
changes_more, skipped: [{path, reason}], skipped_more, failed: [{path, reason}], failed_more}. ended is \
complete if the command went through all sources; otherwise it names the cause, such as a signal or the loss of the server. The \
other fields count the work up to then. bytes includes holes, and holes counts only those; resumed counts bytes that were there from \
an earlier copy. unchanged counts files and links that sync left alone, attributes those of which it set only attributes, deleted \
what it removed. changed_meanwhile counts files that changed while they were read. changes is what sync --dry-run would do. \
changes, skipped and failed have the first 1000 paths each, and changes_more, skipped_more and failed_more count the rest. octets and octets_per_second are older names of bytes and \
bytes_per_second.";

/// Part of `--help` about the attributes that `-p` keeps.
const KEPT_HELP: &str = "\
-p keeps permissions, times of change and hard links inside the tree, and groups that the user is in; as root also owners, \
set-user-ID and set-group-ID bits. Groups and, as root, owners that could not be set are counted and reported once. NFS version \
3 does not carry extended attributes and access control lists: those of local files are counted and reported once.";

/// Part of `--help` about `--partial`.
const PARTIAL_HELP: &str = "\
With --partial, an interrupted copy leaves its incomplete file as .NAME.HASH.rpcrdma-partial beside NAME, and the next copy of the \
file with --partial continues it. HASH is of the length, time and number of the source: a source that has changed is copied anew, and \
the old incomplete file stays until rm or sync --delete removes it. At a server only data that it has committed counts, in steps of \
32 MiB, so nothing is left there of a file that is no longer. A local incomplete file is for one copy at a time: another one waits \
for up to a second, and then copies into a file that no later copy continues. Other users of a directory cannot pass off files of \
theirs.";

/// Part of `--help` about patterns.
const FILTER_HELP: &str = "\
Patterns are for the entries of a tree, as those of rsync; the first that matches decides. A PATTERN without a slash is for names; \
another one is for the end of a path. A slash in front ties it to the top of SOURCE, and one at the end is for directories only. * and \
? match no slash, ** between slashes matches any directories, [...] a class of letters, and DIR/*** is DIR with all in it. What lies \
in a directory that is left out is left out too. In a FILE of patterns, empty lines and those that begin with # or ; say nothing.";

/// Operand for standard input or output; a file of that name is `./-`.
const STANDARD_STREAM: &str = "-";

/// Descriptors of a copy beside those of its files: connections, threads, and directories that stay open.
const BESIDE: u64 = 160;
/// Most descriptors of one file: the file itself, and the directory in which it grows.
const OF_FILE: u64 = 2;

/// Returns how many of `files` may be copied at the same time under a limit of open files. At least one is tried.
fn within(limit: Option<u64>, files: usize) -> usize {
    let possible = limit.map(|limit| limit.saturating_sub(BESIDE) / OF_FILE);
    possible
        .and_then(|possible| usize::try_from(possible).ok())
        .map_or(files, |possible| files.min(possible))
        .max(1)
}

/// Options of all copies.
#[derive(Clone, Debug, Args)]
pub(crate) struct Transfer {
    /// Show no progress; without a terminal on standard error, or with -v, there is none anyway
    #[arg(short, long)]
    quiet: bool,
    /// Files to copy at the same time, 1 to 256
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole::<u16>(1, 256))]
    files: u16,
    #[command(flatten)]
    filters: Filters,
}

/// Option of `get` and `put`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Partial {
    /// Keep the incomplete file of an interrupted copy, and continue that of an earlier one
    #[arg(long, conflicts_with = "in_place")]
    partial: bool,
}

/// Options of `get`, `put` and `cp`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CopyOptions {
    /// Copy directories with all their content
    #[arg(short, long)]
    recursive: bool,
    /// Keep permissions, time of change, hard links, groups and, as root, owners. Without this option new
    /// files have the current time and the permissions that the umask leaves
    #[arg(short, long)]
    preserve: bool,
    /// Write files under their final names, existing ones in place; an interrupted copy then leaves an
    /// incomplete file
    #[arg(long)]
    in_place: bool,
    #[command(flatten)]
    transfer: Transfer,
}

/// Returns the sources, and whether each is the last.
fn lasts<T>(sources: &[T]) -> impl Iterator<Item = (&T, bool)> {
    sources.iter().enumerate().map(|(index, source)| (source, index + 1 == sources.len()))
}

/// JSON document of the work of a copy.
#[derive(Debug, Default, Serialize)]
struct Document {
    /// `complete`, or the reason why the copy ended early.
    ended: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    hard_links: u64,
    bytes: u64,
    holes: u64,
    resumed: u64,
    unchanged: u64,
    attributes: u64,
    deleted: u64,
    changed_meanwhile: u64,
    seconds: f64,
    bytes_per_second: f64,
    owners_not_kept: u64,
    groups_not_kept: u64,
    xattrs_not_kept: u64,
    changes: Vec<Planned>,
    changes_more: u64,
    skipped: Vec<Reason>,
    skipped_more: u64,
    failed: Vec<Reason>,
    failed_more: u64,
}

/// A [`Document`] with the older names of two fields, for scripts that use them.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    document: &'a Document,
    octets: u64,
    octets_per_second: f64,
}

impl<'a> Printed<'a> {
    const fn new(document: &'a Document) -> Self {
        Self { document, octets: document.bytes, octets_per_second: document.bytes_per_second }
    }
}

impl Document {
    /// Returns warnings about files and attributes that were not copied, with their counts.
    fn warnings(&self) -> Vec<String> {
        let all = [
            (self.left_out(), "left out: neither files nor directories nor symbolic links"),
            (
                self.owners_not_kept,
                "without the owner of the original, and without set-id bits: it could not be set",
            ),
            (self.groups_not_kept, "without the group of the original: it could not be set"),
            (
                self.xattrs_not_kept,
                "without extended attributes or access control lists: NFS version 3 has none",
            ),
            (
                self.changed_meanwhile,
                "changed while they were read: copy them again when nothing writes to them",
            ),
        ];
        let told = all.into_iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{count} {what}")).collect()
    }

    /// Takes over the changes of a dry run.
    fn plan(&mut self, listed: plan::Listed) {
        (self.changes, self.changes_more) = (listed.changes, listed.more);
    }

    fn left_out(&self) -> u64 {
        u64::try_from(self.skipped.len()).unwrap_or(u64::MAX).saturating_add(self.skipped_more)
    }

    /// Returns the line at the end. Counts of what did not happen are left out.
    fn summary(&self) -> String {
        let mut line = format!(
            "files: {}; {} bytes in {:.2} s: {:.1} MB/s",
            self.files,
            self.bytes,
            self.seconds,
            self.bytes_per_second / 1e6
        );
        let failed = u64::try_from(self.failed.len()).unwrap_or(u64::MAX).saturating_add(self.failed_more);
        let others = [
            ("bytes already there", self.resumed),
            ("unchanged", self.unchanged),
            ("attributes only", self.attributes),
            ("deleted", self.deleted),
            ("left out", self.left_out()),
            ("failed", failed),
        ];
        for (what, count) in others.into_iter().filter(|(_, count)| *count > 0) {
            line.push_str(&format!("; {what}: {count}"));
        }
        line
    }
}

/// A path and the reason why it is listed.
#[derive(Debug, Serialize)]
struct Reason {
    path: String,
    reason: String,
}

/// Adds reasons up to [`MAX_REPORTED`]; counts the others in `more`.
fn extend(list: &mut Vec<Reason>, more: &mut u64, reasons: impl Iterator<Item = Reason>) {
    for reason in reasons {
        if list.len() < MAX_REPORTED {
            list.push(reason);
        } else {
            *more += 1;
        }
    }
}

/// Copies of a command: options, progress and result.
struct Copying {
    common: Common,
    options: rpcrdma_nfs::client::CopyOptions,
    /// Counts the work of copies that ended without a report.
    run: CopyRun,
    progress: Progress,
    /// Whether the server of the current source or destination treats root as nobody.
    root_is_nobody: Arc<AtomicBool>,
    /// Whether the source in progress is the last.
    last: Arc<AtomicBool>,
    /// Changes of a dry run.
    plan: Option<Plan>,
    started: Instant,
    document: Document,
}

impl Copying {
    /// Prepares copies. `umask` applies to new files and directories at the server.
    ///
    /// # Errors
    /// Patterns cannot be used.
    fn new(common: Common, given: &CopyOptions, umask: u32) -> Result<Self, Failure> {
        let mut options = rpcrdma_nfs::client::CopyOptions::default();
        options.recursive = given.recursive;
        options.preserve = given.preserve;
        options.in_place = given.in_place;
        options.umask = umask;
        if !given.recursive && !given.transfer.filters.is_empty() {
            return Err(Failure::usage("--exclude, --include and --exclude-from are for trees: add -r"));
        }
        Self::prepare(common, &given.transfer, options, None)
    }

    /// Prepares a synchronisation.
    ///
    /// # Errors
    /// Patterns cannot be used.
    fn syncing(common: Common, given: &Transfer, sync: SyncOptions) -> Result<Self, Failure> {
        let plan = sync.dry_run.then(|| Plan::new(!common.json));
        let mut options = rpcrdma_nfs::client::CopyOptions::default();
        options.sync = sync;
        Self::prepare(common, given, options, plan)
    }

    fn prepare(
        common: Common,
        given: &Transfer,
        mut options: rpcrdma_nfs::client::CopyOptions,
        plan: Option<Plan>,
    ) -> Result<Self, Failure> {
        options.parallel = within(raise_descriptors(), given.files.into());
        options.filter = given.filters.filter()?;
        let run = CopyRun::default();
        options.run = Some(run.clone());
        let progress = Progress::new(!given.quiet && common.verbose == 0);
        let root_is_nobody = Arc::new(AtomicBool::new(false));
        let last = Arc::new(AtomicBool::new(false));
        let (shown, nobody, ending) = (progress.clone(), Arc::clone(&root_is_nobody), Arc::clone(&last));
        let planned = plan.clone();
        options.progress = Some(Arc::new(move |event: CopyEvent<'_>| match event {
            CopyEvent::Walked if !ending.load(Ordering::Relaxed) => {}
            CopyEvent::Change { change, path } => {
                if let Some(plan) = &planned {
                    plan.add(change, path, &shown);
                }
            }
            event => show(&shown, event, nobody.load(Ordering::Relaxed)),
        }));
        let (started, document) = (Instant::now(), Document::default());
        Ok(Self { common, options, run, progress, root_is_nobody, last, plan, started, document })
    }

    /// Sets whether incomplete files are kept and continued.
    const fn partial(mut self, partial: bool) -> Self {
        self.options.partial = partial;
        self
    }

    /// Begins with a source; `last` tells whether it is the last.
    fn source(&self, last: bool) {
        self.last.store(last, Ordering::Relaxed);
    }

    /// Sets the location of the next copies.
    fn at(&self, location: &Location) {
        self.root_is_nobody.store(location.root_is_nobody, Ordering::Relaxed);
        self.progress.watch(&location.client);
    }

    /// Adds the report of a source.
    fn add(&mut self, report: CopyReport) {
        let document = &mut self.document;
        document.files += report.files;
        document.directories += report.directories;
        document.symlinks += report.symlinks;
        document.hard_links += report.hard_links;
        document.bytes += report.bytes;
        document.holes += report.holes;
        document.resumed += report.resumed;
        document.unchanged += report.unchanged;
        document.attributes += report.attributes;
        document.deleted += report.deleted;
        document.changed_meanwhile += report.changed_meanwhile;
        document.owners_not_kept += report.owners_not_kept;
        document.groups_not_kept += report.groups_not_kept;
        document.xattrs_not_kept += report.xattrs_not_kept;
        let reason = |(path, reason)| Reason { path, reason };
        document.skipped_more += report.skipped_more;
        extend(&mut document.skipped, &mut document.skipped_more, report.skipped.into_iter().map(reason));
        let nobody = self.root_is_nobody.load(Ordering::Relaxed);
        let failure = |failure: rpcrdma_nfs::client::CopyFailure| Reason {
            reason: describe(&failure.error, failure.path.as_bytes(), nobody),
            path: failure.path,
        };
        document.failed_more += report.failures_more;
        extend(&mut document.failed, &mut document.failed_more, report.failures.into_iter().map(failure));
    }

    /// Adds the failure of a source that could not be copied at all.
    fn add_failure(&mut self, path: String, failure: Failure) -> Result<(), Failure> {
        if failure.exit() != Exit::Failed {
            return Err(failure);
        }
        self.progress.warn(&failure);
        self.add(self.run.take_report());
        let reason = Reason { path, reason: failure.to_string() };
        let Document { failed, failed_more, .. } = &mut self.document;
        extend(failed, failed_more, std::iter::once(reason));
        Ok(())
    }

    /// Reports the work done, even if the command ended early.
    fn finish(mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        self.progress.finish();
        // After a wrong command line there is no work to report.
        if ended.as_ref().is_err_and(|failure| failure.exit() == Exit::Usage) {
            return ended;
        }
        self.add(self.run.take_report());
        let planned = self.plan.as_ref().map_or_else(|| Ok(Default::default()), Plan::take);
        let ended = ended.and_then(|()| planned.map(|listed| self.document.plan(listed)));
        let document = &mut self.document;
        document.ended = ended.as_ref().map_or_else(ToString::to_string, |()| "complete".to_owned());
        document.seconds = self.started.elapsed().as_secs_f64();
        // Exact enough: 2^53 bytes are 9 PB.
        document.bytes_per_second = document.bytes as f64 / document.seconds.max(1e-9);
        for warning in document.warnings() {
            output::warn(warning);
        }
        if self.common.json {
            let printed = output::document(&Printed::new(document));
            // The reason why the command ended is more important.
            if ended.is_ok() {
                printed?;
            }
        } else if self.progress.is_watched() {
            output::note(document.summary());
        }
        ended?;
        let copied = document.files + document.directories + document.symlinks + document.hard_links;
        let right = copied + document.unchanged + document.attributes + document.deleted;
        let exit = match (document.failed.is_empty(), right) {
            (true, _) if document.changed_meanwhile > 0 => Exit::Partial,
            (true, _) => return Ok(()),
            (false, 0) => Exit::Failed,
            (false, _) => Exit::Partial,
        };
        let mut causes: Vec<String> = document.failed.iter().map(|failed| failed.reason.clone()).collect();
        if causes.is_empty() {
            causes.push(format!("{} changed while they were read", document.changed_meanwhile));
        }
        Err(Failure::silent(exit).with_causes(causes))
    }
}

fn show(progress: &Progress, event: CopyEvent<'_>, root_is_nobody: bool) {
    match event {
        CopyEvent::Found { bytes, .. } => progress.found(bytes),
        CopyEvent::Walked => progress.walked(),
        CopyEvent::Bytes(bytes) => progress.add(bytes),
        CopyEvent::Resumed(bytes) => progress.resumed(bytes),
        CopyEvent::Unchanged { .. } => progress.unchanged(),
        CopyEvent::Done { path, file } => {
            if file {
                progress.done();
            }
            progress.at(path);
        }
        CopyEvent::ChangedMeanwhile { path } => {
            progress.warn(format_args!("{}: changed while it was read", printable(path.as_bytes())));
        }
        CopyEvent::Skipped { path, reason } => {
            progress.warn(format_args!("{}: left out, {reason}", printable(path.as_bytes())));
        }
        CopyEvent::Failed { path, error } => {
            let reason = describe(error, path.as_bytes(), root_is_nobody);
            progress.warn(format_args!("{}: {reason}", printable(path.as_bytes())));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_mean_few_files_at_the_same_time() {
        assert_eq!(within(None, 64), 64);
        assert_eq!(within(Some(1024), 64), 64);
        assert_eq!(within(Some(BESIDE + 20), 64), 10);
        assert_eq!(within(Some(32), 64), 1);
    }
}
