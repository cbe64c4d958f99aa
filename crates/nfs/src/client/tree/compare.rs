//! Comparison of the two sides of a synchronisation.
//!
//! *Files.* A file is unchanged if its length and its time of change are. [`SyncOptions::checksum`] compares content
//! instead of times. NFS version 3 has no checksums, so both files are read. If only mode, owner, group or time differ,
//! the attributes are set and no data is copied. Attributes that this caller cannot set are not compared.
//!
//! *Precision of times.* File systems cut times. So two times are compared at the coarser precision of both: that
//! of FSINFO, and that of the values, by the zeros at their end. A time without a fraction equals each time of its
//! second. [`SyncOptions::modify_window`] allows more.
//!
//! *Hard links.* Names of one file become names of one file. Two files of the source never share a file.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::Statx;

use super::local::{OWNER_ALL, id_of, kept, kind_of};
use super::remove::Removal;
use super::{Change, CopyRun, Copying, Kept, Owned};
use crate::wire::{Attributes, FileType, NfsTime};

/// Options of a synchronisation; see [`Client::sync_to_local`](crate::client::Client::sync_to_local).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SyncOptions {
    /// Compares the content of files of equal length, instead of their times. Both files are read. Default: no.
    pub checksum: bool,
    /// Removes objects of the target that the source lacks. Default: no.
    pub delete: bool,
    /// Removes objects of the target that the filter excludes, too. Default: no, so they stay.
    pub delete_excluded: bool,
    /// Changes nothing at either side, and reports what would be done. Default: no.
    pub dry_run: bool,
    /// Times that differ by no more than this are equal. Default: zero.
    pub modify_window: Duration,
}

/// File system and number of an object.
type ObjectId = (u64, u64);

/// Longest precision that a server may claim for its times, in nanoseconds: FAT has 2 s.
const COARSEST: u64 = 2_000_000_000;

/// An object of either side, as far as objects are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) kind: FileType,
    pub(super) kept: Kept,
    pub(super) size: u64,
    pub(super) nlink: u32,
    pub(super) id: ObjectId,
}

impl From<&Attributes> for Seen {
    fn from(attributes: &Attributes) -> Self {
        let &Attributes { file_type, size, nlink, fsid, fileid, .. } = attributes;
        Self { kind: file_type, kept: Kept::from(attributes), size, nlink, id: (fsid, fileid) }
    }
}

impl From<&Statx> for Seen {
    fn from(stat: &Statx) -> Self {
        Self {
            kind: kind_of(stat),
            kept: kept(stat),
            size: stat.stx_size,
            nlink: stat.stx_nlink,
            id: id_of(stat),
        }
    }
}

/// Decision about a file of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its content is copied to a new file.
    Copy,
    /// The content of both files is compared first.
    Compare,
    /// Only attributes are set.
    Attributes,
    /// Nothing.
    Same,
}

/// How objects are compared, and what the caller may set at the target.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) options: SyncOptions,
    /// Precision of the server's times, in nanoseconds.
    resolution: u64,
    /// Whether the caller sets owners, as root does.
    root: bool,
    /// Groups that the caller may give to files.
    groups: Vec<u32>,
    /// Whether the target has refused an owner.
    refused: AtomicBool,
}

impl Comparison {
    pub(super) fn new(options: &SyncOptions, resolution: NfsTime, root: bool, groups: Vec<u32>) -> Arc<Self> {
        let resolution = nanoseconds(resolution).min(COARSEST);
        Arc::new(Self { options: options.clone(), resolution, root, groups, refused: AtomicBool::new(false) })
    }

    /// Records whether the owner of an object could be set. Where it could not, owners are not compared any more.
    pub(super) fn tried(&self, owned: Owned) {
        if !owned.owner {
            self.refused.store(true, Ordering::Relaxed);
        }
    }

    /// Returns what is to be done about a file, with what the target has in its place: nothing, a file or a link.
    pub(super) fn file(&self, source: &Seen, there: Option<&Seen>) -> Verdict {
        match there {
            Some(there) if there.kind == FileType::Regular && there.size == source.size => {
                if self.options.checksum {
                    Verdict::Compare
                } else if !self.same_time(source.kept.mtime, there.kept.mtime) {
                    Verdict::Copy
                } else if self.differ(source, there) {
                    Verdict::Attributes
                } else {
                    Verdict::Same
                }
            }
            _ => Verdict::Copy,
        }
    }

    /// Returns whether attributes differ that this caller can set.
    pub(super) fn differ(&self, source: &Seen, there: &Seen) -> bool {
        let (new, old) = (&source.kept, &there.kept);
        let root = self.root && !self.refused.load(Ordering::Relaxed);
        let settable = if root { 0o7777 } else { 0o777 };
        // A symbolic link has no mode.
        let mode = source.kind != FileType::Symlink && (new.mode ^ old.mode) & settable != 0;
        let owner = root && new.uid != old.uid;
        let group = new.gid != old.gid && (root || self.groups.contains(&new.gid));
        mode || owner || group || !self.same_time(new.mtime, old.mtime)
    }

    fn same_time(&self, one: NfsTime, other: NfsTime) -> bool {
        let unit = unit_of(one).max(unit_of(other));
        let (one, other) = (nanoseconds(one), nanoseconds(other));
        let apart = one.abs_diff(other);
        apart < self.resolution
            || u128::from(apart) <= self.options.modify_window.as_nanos()
            || one / unit == other / unit
    }
}

fn nanoseconds(time: NfsTime) -> u64 {
    u64::from(time.seconds) * 1_000_000_000 + u64::from(time.nanoseconds)
}

/// Returns the precision that a time shows, in nanoseconds: that of common file systems, by the zeros at its end.
fn unit_of(time: NfsTime) -> u64 {
    let units = [1_000_000_000, 1_000_000, 1000, 100];
    let nanoseconds = u64::from(time.nanoseconds);
    units.into_iter().find(|unit| nanoseconds.is_multiple_of(*unit)).unwrap_or(1)
}

/// Returns whether a sync gives up this object, for one of another type, only with `delete`.
pub(super) const fn is_kept_without_delete(kind: FileType) -> bool {
    !matches!(kind, FileType::Regular | FileType::Symlink)
}

/// A directory of the target while its source is walked.
pub(super) struct Here<N, T> {
    /// Entries that the source has not listed yet.
    pub(super) entries: HashMap<N, T>,
    /// Names of incomplete files that another copy may continue.
    pub(super) parts: Vec<Vec<u8>>,
    /// Whether something in the directory changes, so that its own time will.
    pub(super) changed: bool,
    /// Path below the top of the tree, for the filter.
    pub(super) prefix: Vec<u8>,
}

impl<N, T> Here<N, T> {
    pub(super) fn empty() -> Self {
        Self { entries: HashMap::new(), parts: Vec::new(), changed: false, prefix: Vec::new() }
    }

    /// Returns whether the filter excludes an entry of this directory.
    pub(super) fn excludes(&self, copying: &Copying, name: &[u8], directory: bool) -> bool {
        let filter = &copying.options.filter;
        !filter.is_empty() && filter.is_excluded(&Removal::below(&self.prefix, name), directory)
    }
}

/// Result of the walk of a directory.
pub(super) struct Walked {
    /// Whether the copy made the directory.
    pub(super) new: bool,
    /// Whether its attributes are to be set at the end.
    pub(super) finish: bool,
}

impl Comparison {
    /// Returns what is left to do for a directory after the walk of its entries. `there` is the directory of the
    /// target before. Reports attributes that differ.
    pub(super) fn walked(
        &self,
        copying: &Copying,
        path: &str,
        source: &Kept,
        there: Option<&Seen>,
        changed: bool,
    ) -> Walked {
        let Some(there) = there else { return Walked { new: true, finish: !self.options.dry_run } };
        let differ = self.differ(&Seen { kept: *source, ..*there }, there);
        if differ {
            copying.change(Change::Attributes, &format!("{path}/"));
            if !self.options.dry_run {
                copying.note(|report| report.attributes += 1);
            }
        }
        Walked { new: false, finish: !self.options.dry_run && (differ || changed) }
    }

    /// Returns whether the owner of an existing directory must first be allowed to change it.
    pub(super) const fn lends(&self, there: &Seen) -> bool {
        !self.options.dry_run && !self.root && there.kept.mode & OWNER_ALL != OWNER_ALL
    }
}

/// Decision about a further name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// The name has to be made.
    New,
    /// The name has to be made if the content of the file is copied.
    Compared,
    /// The file has the name already.
    There,
}

/// Files with several names that a sync has met.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// Files of the target that stay, by the files of the source; and whether the comparison of content may yet
    /// replace them.
    first: HashMap<ObjectId, (ObjectId, bool)>,
    /// Files of the source, by the files of the target that stay.
    owners: HashMap<ObjectId, ObjectId>,
}

impl Linked {
    /// Records that a file of the target stays for this file of the source, unless a comparison of content replaces it.
    fn stays(&mut self, source: &Seen, there: &Seen, compared: bool) {
        if there.nlink > 1 {
            self.owners.insert(there.id, source.id);
        }
        if source.nlink > 1 {
            self.first.insert(source.id, (there.id, compared));
        }
    }

    /// Decides about a file that is no further name. A file of the target that stays belongs to this source from now on. If
    /// it stays for another source already, the content gets a file of its own.
    pub(super) fn decide(
        &mut self,
        sync: &Comparison,
        run: &CopyRun,
        source: &Seen,
        there: Option<&Seen>,
    ) -> Verdict {
        let verdict = sync.file(source, there);
        let stays = there.filter(|_| verdict != Verdict::Copy);
        let Some(there) = stays else { return verdict };
        if self.is_shared(source, there) {
            return Verdict::Copy;
        }
        let compared = verdict == Verdict::Compare;
        self.stays(source, there, compared);
        if there.nlink == 1 && !compared {
            run.take(there.id);
        }
        verdict
    }

    /// Returns whether a file of the target stays for another file of the source.
    fn is_shared(&self, source: &Seen, there: &Seen) -> bool {
        self.owners.get(&there.id).is_some_and(|owner| *owner != source.id)
    }

    /// Returns what is to be done about a further name of a file.
    pub(super) fn further(&self, source: &Seen, there: Option<&Seen>) -> Name {
        match (self.first.get(&source.id), there) {
            (Some((first, compared)), Some(there)) if *first == there.id => {
                if *compared {
                    Name::Compared
                } else {
                    Name::There
                }
            }
            _ => Name::New,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(size: u64, seconds: u32, nanoseconds: u32) -> Seen {
        let kept = Kept { mode: 0o644, mtime: NfsTime { seconds, nanoseconds }, uid: 1, gid: 1 };
        Seen { kind: FileType::Regular, kept, size, nlink: 1, id: (1, 1) }
    }

    fn comparison(options: SyncOptions, resolution: u32) -> Arc<Comparison> {
        Comparison::new(&options, NfsTime { seconds: 0, nanoseconds: resolution }, false, vec![1, 2])
    }

    #[test]
    fn times_are_compared_at_the_coarser_precision() {
        let exact = comparison(SyncOptions::default(), 1);
        let source = seen(5, 100, 123_456_789);
        for (nanoseconds, expected) in [
            (123_456_789, Verdict::Same),
            (123_456_788, Verdict::Copy),
            (123_456_700, Verdict::Same),
            (123_456_000, Verdict::Same),
            (123_000_000, Verdict::Same),
            (124_000_000, Verdict::Copy),
            (0, Verdict::Same),
        ] {
            assert_eq!(exact.file(&source, Some(&seen(5, 100, nanoseconds))), expected, "{nanoseconds}");
        }
        assert_eq!(exact.file(&source, Some(&seen(5, 101, 0))), Verdict::Copy);
        let coarse = comparison(SyncOptions::default(), 1_000_000);
        assert_eq!(coarse.file(&source, Some(&seen(5, 100, 123_999_999))), Verdict::Same);
        assert_eq!(coarse.file(&source, Some(&seen(5, 100, 124_999_999))), Verdict::Copy);
        let window = SyncOptions { modify_window: Duration::from_secs(2), ..SyncOptions::default() };
        let window = comparison(window, 1);
        assert_eq!(window.file(&source, Some(&seen(5, 102, 123_456_789))), Verdict::Same);
        assert_eq!(window.file(&source, Some(&seen(5, 102, 123_456_791))), Verdict::Copy);
    }

    #[test]
    fn only_attributes_that_the_caller_can_set_are_compared() {
        let comparison = comparison(SyncOptions::default(), 1);
        let source = seen(5, 100, 1);
        let change = |change: fn(&mut Kept)| {
            let mut there = source;
            change(&mut there.kept);
            comparison.file(&source, Some(&there))
        };
        assert_eq!(change(|kept| kept.mode = 0o600), Verdict::Attributes);
        assert_eq!(change(|kept| kept.mode = 0o4644), Verdict::Same);
        assert_eq!(change(|kept| kept.uid = 9), Verdict::Same);
        assert_eq!(change(|kept| kept.gid = 2), Verdict::Attributes);
        let foreign = Seen { kept: Kept { gid: 9, ..source.kept }, ..source };
        assert_eq!(comparison.file(&foreign, Some(&source)), Verdict::Same);
    }

    #[test]
    fn the_kind_and_the_length_come_first() {
        let options = SyncOptions { checksum: true, ..SyncOptions::default() };
        let comparison = comparison(options, 1);
        let source = seen(5, 100, 1);
        assert_eq!(comparison.file(&source, None), Verdict::Copy);
        assert_eq!(comparison.file(&source, Some(&seen(6, 100, 1))), Verdict::Copy);
        assert_eq!(comparison.file(&source, Some(&seen(5, 7, 7))), Verdict::Compare);
        let link = Seen { kind: FileType::Symlink, ..source };
        assert_eq!(comparison.file(&source, Some(&link)), Verdict::Copy);
    }
}
