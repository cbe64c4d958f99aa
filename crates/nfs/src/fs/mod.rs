//! File systems that can be served: the [`FileSystem`] trait, one in memory, one on a real directory tree.
//!
//! **Calls.** The methods are synchronous and take their caller as an argument. An NFS procedure is a handful
//! of system calls that have to run on one thread under one identity, so the server moves the whole procedure to
//! an I/O thread once, instead of each call for itself; a file system that never waits says so by
//! [`FileSystem::may_block`] and is called in place. For a read whose data is at hand there is
//! [`FileSystem::try_read`], which never waits.
//!
//! **Memory.** A read fills a slice of the caller's (the server lends its pooled, registered buffer), a write
//! takes a slice of what the transport received: no file system owns payload buffers, none copies payload but
//! into or out of its store.
//!
//! **Errors.** [`FsError`] has one variant a refusal, and each variant has one NFS status. What an operation
//! changed is reported in failure too ([`Outcome`]).

mod directory;
mod location;
mod memory;
mod permission;
mod state;
#[cfg(test)]
pub(crate) mod testing;
mod types;

use std::ops::ControlFlow;

pub use directory::{DirectoryFs, DirectoryOptions, HandleSource, OpenError, WriteVerifier};
pub use location::Location;
pub use memory::{MemoryFs, MemoryOptions};
pub use state::{StateDirectory, StateError};
pub use types::{
    Access, Attributes, Before, Change, CreateHow, DeviceNumber, Entry, Extents, FILE_ID_MAX, FileId,
    FileKind, Found, FsError, Identity, LINK_TARGET_MAX, Linked, Listing, LookupName, NAME_MAX, Name, Node,
    Outcome, Place, Properties, ReadResult, Renamed, SetAttributes, SetTime, Special, Stability, Statistics,
    Timestamp, WriteResult,
};

/// Receives the entries of a listing; breaks when it has enough. The entry it breaks on counts as not taken.
/// The file system may call it with the identity of the caller: it must not call the file system again.
pub type EntrySink<'a> = dyn FnMut(&Entry<'_>) -> ControlFlow<()> + 'a;

/// A tree of files that an NFS server can give out.
///
/// Ids and names come from the network: an implementation treats a [`FileId`] it does not know as
/// [`FsError::BadId`] or [`FsError::Stale`], and never panics on one. It does not follow symbolic links, and
/// nothing outside of its tree can be reached through it.
pub trait FileSystem: Send + Sync + 'static {
    /// Whether methods may wait for a device. If so, they are called on I/O threads only, [`Self::try_read`]
    /// excepted.
    fn may_block(&self) -> bool;

    /// The id of the root directory.
    fn root(&self) -> FileId;

    /// Where the root is, for comparison with other trees. `None`: nothing in this tree can be in another one, or that is not
    /// known.
    fn location(&self) -> Option<&Location> {
        None
    }

    /// Whether a directory still lies below the root, with none of `borders` (roots of other exports) on the way there. True
    /// of what is no directory: a file can have several names, and only a name is in a tree.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn is_within(&self, _id: &FileId, _borders: &[Place]) -> Result<bool, FsError> {
        Ok(true)
    }

    /// What this file system can do.
    ///
    /// # Errors
    /// [`FsError::Io`] if it cannot be asked.
    fn properties(&self) -> Result<Properties, FsError>;

    /// Space and files, as `id` sees them.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError>;

    /// Attributes of an object. Needs no rights (RFC 1813 §4.4).
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError>;

    /// Which of the `wanted` rights the caller has.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError>;

    /// Finds a name in a directory. `..` of the root is the root.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::AccessDenied`] (also for a mount point: other
    /// file systems below the root are not entered), [`FsError::Stale`], ...
    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError>;

    /// Copies the text of a symbolic link into the front of `target`, and says how long it is, in bytes.
    ///
    /// # Errors
    /// [`FsError::InvalidArgument`] if the object is no link, [`FsError::ServerFault`] if the text does not fit.
    fn read_link(
        &self,
        who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError>;

    /// Reads without ever waiting, or says with `None` that [`Self::read`] is to be used. May be called on
    /// any thread.
    fn try_read(
        &self,
        _who: &Identity,
        _id: &FileId,
        _offset: u64,
        _buffer: &mut [u8],
    ) -> Option<Result<ReadResult, FsError>> {
        None
    }

    /// Reads from a regular file into the front of `buffer`. A read at or behind the end gives 0 bytes.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::InvalidArgument`] (neither file nor directory),
    /// [`FsError::AccessDenied`], ...
    fn read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError>;

    /// Which parts of a regular file may have other bytes than zeros, from `offset` on, at most `limit` of them. Needs the
    /// right to read, like [`Self::read`]. By default everything is data, which tells nothing of the file.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn extents(&self, _who: &Identity, _id: &FileId, offset: u64, _limit: usize) -> Result<Extents, FsError> {
        Ok(Extents::everything(offset))
    }

    /// Writes `data` at `offset` and makes it as stable as asked.
    fn write(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Outcome<WriteResult>;

    /// Writes as [`Self::write`] does, and calls `written` as soon as the data is in the file, before stable storage is waited
    /// for: the next write to the file begins then, or at the latest when this returns.
    fn write_telling(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult> {
        let outcome = self.write(who, id, offset, data, stability);
        written();
        outcome
    }

    /// Brings what was written to `count` bytes from `offset` to stable storage (`count` 0: to the end). The
    /// result is the write verifier.
    fn commit(&self, who: &Identity, id: &FileId, offset: u64, count: u32) -> Outcome<u64>;

    /// Sets attributes, if `guard` is `None` or equals the time of last change.
    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()>;

    /// Makes or takes a regular file.
    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node>;

    /// Makes an object of another type. A symbolic link takes no attributes but its owner.
    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node>;

    /// Removes a name that is no directory.
    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()>;

    /// Renames, replacing what is in the way if it is compatible. The object keeps its id.
    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed;

    /// Gives a file one more name.
    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked;

    /// Lists a directory from behind `cookie` (0: from the start). With `nodes`, entries carry their objects.
    ///
    /// # Errors
    /// [`FsError::BadCookie`] if cookie and verifier mean nothing here, [`FsError::NotDirectory`],
    /// [`FsError::AccessDenied`], ...
    fn read_directory(
        &self,
        who: &Identity,
        directory: &FileId,
        cookie: u64,
        verifier: u64,
        nodes: bool,
        sink: &mut EntrySink<'_>,
    ) -> Result<Listing, FsError>;

    /// Brings everything written so far to stable storage: for a clean stop.
    ///
    /// # Errors
    /// [`FsError::Io`], [`FsError::NoSpace`], [`FsError::QuotaExceeded`].
    fn flush(&self) -> Result<(), FsError>;
}
