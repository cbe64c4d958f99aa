//! A directory tree whose look-ups fail on demand.

use std::sync::{Arc, Mutex};

use crate::fs::{
    Access, Attributes, CreateHow, DirectoryFs, EntrySink, FileId, FileSystem, Found, FsError, Identity,
    Linked, Listing, Location, LookupName, Name, Node, Outcome, Place, Properties, ReadResult, Renamed,
    SetAttributes, Special, Stability, Statistics, Timestamp, WriteResult,
};

/// File system with failures on demand.
pub(super) struct FlakyFs {
    directory: Arc<DirectoryFs>,
    fault: Mutex<Option<(&'static str, FsError)>>,
    located: bool,
}

impl FlakyFs {
    pub(super) fn new(directory: Arc<DirectoryFs>) -> Self {
        Self { directory, fault: Mutex::default(), located: true }
    }

    /// Returns a file system without a known location, as without the list of mounts.
    pub(super) fn without_location(directory: Arc<DirectoryFs>) -> Self {
        Self { located: false, ..Self::new(directory) }
    }

    /// Makes the next look-up of this name fail.
    pub(super) fn fail_once(&self, name: &'static str, error: FsError) {
        *self.fault.lock().unwrap() = Some((name, error));
    }

    /// Returns whether the failure happened.
    pub(super) fn has_failed(&self) -> bool {
        self.fault.lock().unwrap().is_none()
    }
}

impl FileSystem for FlakyFs {
    fn may_block(&self) -> bool {
        true
    }

    fn root(&self) -> FileId {
        self.directory.root()
    }

    fn location(&self) -> Option<&Location> {
        self.directory.location().filter(|_| self.located)
    }

    fn is_within(&self, id: &FileId, borders: &[Place]) -> Result<bool, FsError> {
        self.directory.is_within(id, borders)
    }

    fn properties(&self) -> Result<Properties, FsError> {
        self.directory.properties()
    }

    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError> {
        self.directory.statistics(id)
    }

    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError> {
        self.directory.attributes(id)
    }

    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError> {
        self.directory.access(who, id, wanted)
    }

    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError> {
        if let LookupName::Entry(name) = &name {
            let meets = |fault: &mut (&'static str, FsError)| fault.0.as_bytes() == name.as_bytes();
            if let Some((_, error)) = self.fault.lock().unwrap().take_if(meets) {
                return Err(error);
            }
        }
        self.directory.lookup(who, directory, name)
    }

    fn read_link(
        &self,
        who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError> {
        self.directory.read_link(who, id, target)
    }

    fn read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        self.directory.read(who, id, offset, buffer)
    }

    fn write(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Outcome<WriteResult> {
        self.directory.write(who, id, offset, data, stability)
    }

    fn commit(&self, who: &Identity, id: &FileId, offset: u64, count: u32) -> Outcome<u64> {
        self.directory.commit(who, id, offset, count)
    }

    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        self.directory.set_attributes(who, id, new, guard)
    }

    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node> {
        self.directory.create(who, directory, name, how)
    }

    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node> {
        self.directory.make(who, directory, name, what, attributes)
    }

    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.directory.remove(who, directory, name)
    }

    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.directory.remove_directory(who, directory, name)
    }

    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed {
        self.directory.rename(who, from, from_name, to, to_name)
    }

    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked {
        self.directory.link(who, file, directory, name)
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
        self.directory.read_directory(who, directory, cookie, verifier, nodes, sink)
    }

    fn flush(&self) -> Result<(), FsError> {
        self.directory.flush()
    }
}
