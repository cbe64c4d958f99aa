//! A file system whose operations a test watches, and may hold or fail.

use std::io::IoSlice;
use std::sync::Arc;

use crate::fs::{
    Access, Attributes, Change, CreateHow, EntrySink, Extents, FileId, FileSystem, Found, FsError, Identity,
    Linked, Listing, Location, LookupName, Name, Node, Outcome, Place, Properties, ReadResult, Renamed,
    SetAttributes, Special, Stability, Statistics, Timestamp, WriteResult,
};

/// An operation that a watch sees before it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Attributes(FileId),
    /// ACCESS of this user.
    Access(u32),
    Read(FileId),
    /// WRITE of this user, to this file, from this offset.
    Write(u32, FileId, u64),
    /// The sync of a stable WRITE, after the data is in the file.
    Settle(FileId),
    Commit(FileId),
    SetAttributes(FileId),
    Flush,
}

/// What a test does before an operation is carried out.
pub(super) trait Watch: Send + Sync + 'static {
    /// Sees this operation; may hold it.
    fn before(&self, _step: Step) {}

    /// Sees the look-up of this name, which an error ends.
    fn before_lookup(&self, _name: &Name<'_>) -> Result<(), FsError> {
        Ok(())
    }

    /// Returns whether the file system has hard links.
    fn has_links(&self) -> bool {
        true
    }

    /// Returns whether the file system makes hard links for its callers.
    fn may_link(&self) -> bool {
        self.has_links()
    }

    /// Returns whether an object is still where it was.
    fn holds(&self, _id: &FileId) -> bool {
        true
    }

    /// Returns the ranges with data of every file, if not those of the file system.
    fn extents(&self) -> Option<Extents> {
        None
    }

    /// Returns whether the file system answers what it has in memory.
    fn lets_try(&self) -> bool {
        false
    }

    /// Returns whether the location of the file system is known.
    fn shows_location(&self) -> bool {
        true
    }
}

/// A file system that tells each operation to a watch first.
pub(super) struct WatchedFs<W> {
    inner: Arc<dyn FileSystem>,
    pub(super) watch: W,
}

impl<W> WatchedFs<W> {
    pub(super) fn over(inner: Arc<dyn FileSystem>, watch: W) -> Self {
        Self { inner, watch }
    }
}

impl<W: Watch> FileSystem for WatchedFs<W> {
    fn may_block(&self) -> bool {
        true
    }

    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn location(&self) -> Option<Location> {
        self.inner.location().filter(|_| self.watch.shows_location())
    }

    fn is_within(&self, id: &FileId, borders: &[Place]) -> Result<bool, FsError> {
        Ok(self.watch.holds(id) && self.inner.is_within(id, borders)?)
    }

    fn properties(&self) -> Result<Properties, FsError> {
        let properties = self.inner.properties()?;
        Ok(Properties { hard_links: properties.hard_links && self.watch.has_links(), ..properties })
    }

    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError> {
        self.inner.statistics(id)
    }

    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError> {
        self.watch.before(Step::Attributes(*id));
        self.inner.attributes(id)
    }

    fn try_attributes(&self, id: &FileId) -> Option<Attributes> {
        if self.watch.lets_try() { self.inner.try_attributes(id) } else { None }
    }

    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError> {
        self.watch.before(Step::Access(who.uid));
        self.inner.access(who, id, wanted)
    }

    fn try_access(&self, who: &Identity, id: &FileId, wanted: Access) -> Option<(Access, Attributes)> {
        if self.watch.lets_try() { self.inner.try_access(who, id, wanted) } else { None }
    }

    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError> {
        if let LookupName::Entry(name) = &name {
            self.watch.before_lookup(name)?;
        }
        self.inner.lookup(who, directory, name)
    }

    fn try_lookup(
        &self,
        who: &Identity,
        directory: &FileId,
        name: LookupName<'_>,
    ) -> Option<Result<Found, FsError>> {
        if self.watch.lets_try() { self.inner.try_lookup(who, directory, name) } else { None }
    }

    fn read_link(
        &self,
        who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError> {
        self.inner.read_link(who, id, target)
    }

    fn read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        self.watch.before(Step::Read(*id));
        self.inner.read(who, id, offset, buffer)
    }

    fn extents(&self, who: &Identity, id: &FileId, offset: u64, limit: usize) -> Result<Extents, FsError> {
        self.watch.extents().map_or_else(|| self.inner.extents(who, id, offset, limit), Ok)
    }

    fn write_telling(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[IoSlice<'_>],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult> {
        self.watch.before(Step::Write(who.uid, *id, offset));
        let outcome = self.inner.write_telling(who, id, offset, data, stability, &|| {});
        written();
        if stability != Stability::Unstable {
            self.watch.before(Step::Settle(*id));
        }
        outcome
    }

    fn commit(&self, who: &Identity, id: &FileId, offset: u64, count: u32) -> Outcome<u64> {
        self.watch.before(Step::Commit(*id));
        self.inner.commit(who, id, offset, count)
    }

    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        self.watch.before(Step::SetAttributes(*id));
        self.inner.set_attributes(who, id, new, guard)
    }

    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node> {
        self.inner.create(who, directory, name, how)
    }

    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node> {
        self.inner.make(who, directory, name, what, attributes)
    }

    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.inner.remove(who, directory, name)
    }

    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.inner.remove_directory(who, directory, name)
    }

    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed {
        self.inner.rename(who, from, from_name, to, to_name)
    }

    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked {
        if !self.watch.may_link() {
            return Linked { result: Err(FsError::NotPermitted), file: None, directory: Change::default() };
        }
        self.inner.link(who, file, directory, name)
    }

    fn read_directory(
        &self,
        who: &Identity,
        directory: &FileId,
        cookie: u64,
        verifier: u64,
        nodes: bool,
        sink: &mut EntrySink<'_>,
    ) -> Result<Listing, FsError> {
        self.inner.read_directory(who, directory, cookie, verifier, nodes, sink)
    }

    fn flush(&self) -> Result<(), FsError> {
        self.watch.before(Step::Flush);
        self.inner.flush()
    }
}
