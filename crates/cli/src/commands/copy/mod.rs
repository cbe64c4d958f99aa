//! `rpcrdma cat`, `get` and `put`: files from a server, and to it.
//!
//! The copying itself is done by [`rpcrdma_nfs::client::Client`]; here is what the user sees of it.

mod cat;
mod get;
mod put;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use rpcrdma_nfs::client::{CopyEvent, CopyReport};
use serde::Serialize;

pub(crate) use cat::Cat;
pub(crate) use get::Get;
pub(crate) use put::Put;

use crate::arguments::Common;
use crate::connect::{Location, describe};
use crate::exit::{Exit, Failure};
use crate::output::{self, Progress, printable};

/// What `--json` prints, for `--help`.
const JSON_HELP: &str = "\
--json prints {files, directories, symlinks, hard_links, octets, holes, seconds, octets_per_second, owners_not_kept, \
xattrs_not_kept, skipped: [{path, reason}], failed: [{path, reason}]}. octets counts holes, holes is their part of it.";

/// What `-p` keeps, for `--help`.
const KEPT_HELP: &str = "\
-p keeps permissions, times of change and hard links inside the tree; as root also owners, set-user-ID and set-group-ID bits. \
Extended attributes and access control lists do not travel by NFS version 3: local ones are counted, and told once.";

/// The operand that stands for standard input or output; a file of that name is `./-`.
const STANDARD_STREAM: &str = "-";

/// How copies are made.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CopyOptions {
    /// Copy directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// Keep permissions, time of change, hard links and as root owners; without it new files have the usual permissions and
    /// the time of now
    #[arg(short, long)]
    preserve: bool,
    /// Write files under their own names, existing ones in place: an interrupted copy leaves half a file
    #[arg(long)]
    in_place: bool,
    /// No progress bar; there is none anyway if standard error is not a terminal, or with -v
    #[arg(short, long)]
    quiet: bool,
    /// Files that are copied at the same time, 1 to 256
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    files: u16,
}

/// What a copy did, as JSON shows it.
#[derive(Debug, Default, Serialize)]
struct Document {
    files: u64,
    directories: u64,
    symlinks: u64,
    hard_links: u64,
    octets: u64,
    holes: u64,
    seconds: f64,
    octets_per_second: f64,
    owners_not_kept: u64,
    xattrs_not_kept: u64,
    skipped: Vec<Reason>,
    failed: Vec<Reason>,
}

impl Document {
    /// What the copies do not have, with how often.
    fn warnings(&self) -> Vec<String> {
        let left_out = u64::try_from(self.skipped.len()).unwrap_or(u64::MAX);
        let all = [
            (left_out, "left out: neither files nor directories nor symbolic links"),
            (
                self.owners_not_kept,
                "without the owner of the original, and without set-id bits: it could not be set",
            ),
            (
                self.xattrs_not_kept,
                "without extended attributes or access control lists: NFS version 3 has none",
            ),
        ];
        let told = all.into_iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// A path and what is to be said about it.
#[derive(Debug, Serialize)]
struct Reason {
    path: String,
    reason: String,
}

/// One command's copies: options, progress and result.
struct Copying {
    common: Common,
    options: rpcrdma_nfs::client::CopyOptions,
    progress: Progress,
    /// Of the server of the present source or destination.
    root_is_nobody: Arc<AtomicBool>,
    started: Instant,
    document: Document,
}

impl Copying {
    fn new(common: Common, given: CopyOptions) -> Self {
        let progress = Progress::new(!given.quiet && common.verbose == 0);
        let mut options = rpcrdma_nfs::client::CopyOptions::default();
        options.recursive = given.recursive;
        options.preserve = given.preserve;
        options.in_place = given.in_place;
        options.parallel = given.files.into();
        let root_is_nobody = Arc::new(AtomicBool::new(false));
        let (shown, nobody) = (progress.clone(), Arc::clone(&root_is_nobody));
        options.progress = Some(Arc::new(move |event: CopyEvent<'_>| {
            show(&shown, event, nobody.load(Ordering::Relaxed));
        }));
        let (started, document) = (Instant::now(), Document::default());
        Self { common, options, progress, root_is_nobody, started, document }
    }

    /// The next copies are from or to this place.
    fn at(&self, location: &Location) {
        self.root_is_nobody.store(location.root_is_nobody, Ordering::Relaxed);
    }

    /// Takes the report of one source in.
    fn add(&mut self, report: CopyReport) {
        let document = &mut self.document;
        document.files += report.files;
        document.directories += report.directories;
        document.symlinks += report.symlinks;
        document.hard_links += report.hard_links;
        document.octets += report.bytes;
        document.holes += report.holes;
        document.owners_not_kept += report.owners_not_kept;
        document.xattrs_not_kept += report.xattrs_not_kept;
        let reason = |(path, reason)| Reason { path, reason };
        document.skipped.extend(report.skipped.into_iter().map(reason));
        let nobody = self.root_is_nobody.load(Ordering::Relaxed);
        let failure = |failure: rpcrdma_nfs::client::CopyFailure| Reason {
            reason: describe(&failure.error, failure.path.as_bytes(), nobody),
            path: failure.path,
        };
        document.failed.extend(report.failures.into_iter().map(failure));
    }

    /// Takes in that one source could not be copied at all.
    fn add_failure(&mut self, path: String, failure: Failure) -> Result<(), Failure> {
        if failure.exit() != Exit::Failed {
            self.progress.finish();
            return Err(failure);
        }
        self.progress.warn(&failure);
        self.document.failed.push(Reason { path, reason: failure.to_string() });
        Ok(())
    }

    /// Shows the result.
    fn finish(mut self) -> Result<(), Failure> {
        self.progress.finish();
        let document = &mut self.document;
        document.seconds = self.started.elapsed().as_secs_f64();
        // Exact enough: 2^53 octets are 9 PB.
        document.octets_per_second = document.octets as f64 / document.seconds.max(1e-9);
        for warning in document.warnings() {
            output::warn(warning);
        }
        if self.common.json {
            output::json(document)?;
        } else if !self.progress.is_hidden() {
            output::note(format_args!(
                "files: {}; {} octets in {:.2} s: {:.1} MB/s",
                document.files,
                document.octets,
                document.seconds,
                document.octets_per_second / 1e6
            ));
        }
        let copied = document.files + document.directories + document.symlinks + document.hard_links;
        match (document.failed.is_empty(), copied) {
            (true, _) => Ok(()),
            (false, 0) => Err(Failure::silent(Exit::Failed)),
            (false, _) => Err(Failure::silent(Exit::Partial)),
        }
    }
}

fn show(progress: &Progress, event: CopyEvent<'_>, root_is_nobody: bool) {
    match event {
        CopyEvent::Found { bytes, .. } => progress.expect(bytes),
        CopyEvent::Bytes(octets) => progress.add(octets),
        CopyEvent::Done { path } => progress.at(path),
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
