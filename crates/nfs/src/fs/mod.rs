//! File systems for the server: the [`FileSystem`] trait, a file system in memory, and one on a directory
//! tree.
//!
//! **Calls.** The methods are synchronous and take their caller as an argument. An NFS procedure is a few
//! system calls that must run on one thread under one identity. So the server moves the whole procedure to an
//! I/O thread once, instead of each system call. A file system that never waits reports so by
//! [`FileSystem::may_block`], and the server calls it in place. Methods that begin with `try_` never wait either
//! ([`FileSystem::try_read`]): they answer only what is in memory.
//!
//! **Memory.** A read fills a slice of the caller (the server lends its pooled, registered buffer). A write
//! gets slices of the bytes that the transport received. No file system owns payload buffers, and payload is
//! copied only into or out of the store.
//!
//! **Errors.** [`FsError`] has one variant for each kind of refusal, and each variant has one NFS status. An
//! operation reports its changes even if it fails ([`Outcome`]).

mod directory;
mod exposure;
mod location;
mod memory;
mod permission;
mod state;
#[cfg(test)]
pub(crate) mod testing;
mod types;

use std::io::IoSlice;
use std::ops::ControlFlow;

#[cfg(test)]
pub(crate) use directory::RECHECK_HERE;
pub use directory::{DirectoryFs, DirectoryOptions, HandleSource, OpenError, WriteVerifier};
pub use exposure::is_exposed;
pub use location::Location;
pub use memory::{MemoryFs, MemoryOptions};
pub use state::{Following, StateDirectory, StateError};
pub use types::{
    Access, Attributes, Before, Change, CreateHow, DeviceNumber, Entry, Extents, FILE_ID_MAX, FileId,
    FileKind, Found, FsError, Identity, LINK_TARGET_MAX, Linked, Listing, LookupName, NAME_MAX, Name, Node,
    Outcome, Place, Properties, ReadResult, Renamed, SetAttributes, SetTime, Special, Stability, Statistics,
    Timestamp, WriteResult,
};

/// Receiver of the entries of a listing. It breaks when it has enough; the entry on which it breaks does not
/// count. The file system may call it with the identity of the caller, so it must not call the file system.
pub type EntrySink<'a> = dyn FnMut(&Entry<'_>) -> ControlFlow<()> + 'a;

/// A tree of files that an NFS server can export.
///
/// Ids and names come from the network. An implementation answers an unknown [`FileId`] with
/// [`FsError::BadId`] or [`FsError::Stale`], and never panics. It does not follow symbolic links, and nothing
/// outside its tree can be reached through it.
pub trait FileSystem: Send + Sync + 'static {
    /// Returns whether methods may wait for a device. If so, only I/O threads call them, except those whose names
    /// begin with `try_`.
    fn may_block(&self) -> bool;

    /// Returns the id of the root directory.
    fn root(&self) -> FileId;

    /// Returns the location of the root, for comparison with other trees. `None` means that nothing in this
    /// tree can be in another one, or that the location is unknown. Objects of a tree with a location have a
    /// [`Place`].
    fn location(&self) -> Option<Location> {
        None
    }

    /// Returns whether a directory still lies below the root, with none of `borders` in between. These
    /// are the roots of all exports, in order. The result is true for other objects: a file can have several names, and only a name is in
    /// a tree.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn is_within(&self, _id: &FileId, _borders: &[Place]) -> Result<bool, FsError> {
        Ok(true)
    }

    /// Returns the capabilities of this file system.
    ///
    /// # Errors
    /// [`FsError::Io`] if they cannot be determined.
    fn properties(&self) -> Result<Properties, FsError>;

    /// Returns space and files, as seen from `id`.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError>;

    /// Returns the attributes of an object. This requires no rights (RFC 1813 §4.4).
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError>;

    /// Returns the attributes of an object without waiting. Returns `None` if [`Self::attributes`] must be used
    /// instead. Any thread may call this.
    fn try_attributes(&self, _id: &FileId) -> Option<Attributes> {
        None
    }

    /// Returns the rights of the caller among those `wanted`.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadId`], [`FsError::Io`].
    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError>;

    /// Returns rights as [`Self::access`] does, without waiting. Returns `None` if that must be used instead. Any
    /// thread may call this.
    fn try_access(&self, _who: &Identity, _id: &FileId, _wanted: Access) -> Option<(Access, Attributes)> {
        None
    }

    /// Finds a name in a directory. At the root, `..` is the root.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::AccessDenied`] (also for a mount point:
    /// other file systems below the root are not entered), [`FsError::Stale`], ...
    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError>;

    /// Finds a name as [`Self::lookup`] does, without waiting. Returns `None` if that must be used instead. Any thread
    /// may call this. After an error, [`Self::try_attributes`] has the directory.
    fn try_lookup(
        &self,
        _who: &Identity,
        _directory: &FileId,
        _name: LookupName<'_>,
    ) -> Option<Result<Found, FsError>> {
        None
    }

    /// Copies the text of a symbolic link to the beginning of `target`. Returns its length in bytes.
    ///
    /// # Errors
    /// [`FsError::InvalidArgument`] if the object is not a link, [`FsError::ServerFault`] if the text does
    /// not fit.
    fn read_link(
        &self,
        who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError>;

    /// Reads without waiting. Returns `None` if [`Self::read`] must be used instead. Any thread may call
    /// this.
    fn try_read(
        &self,
        _who: &Identity,
        _id: &FileId,
        _offset: u64,
        _buffer: &mut [u8],
    ) -> Option<Result<ReadResult, FsError>> {
        None
    }

    /// Reads from a regular file to the beginning of `buffer`. A read at or behind the end returns 0 bytes.
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

    /// Returns the parts of a regular file from `offset` on that may have other bytes than zeros, at most
    /// `limit`. Like [`Self::read`], this requires the right to read. The default implementation returns
    /// everything as data, which reveals nothing about the file.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn extents(&self, _who: &Identity, _id: &FileId, offset: u64, _limit: usize) -> Result<Extents, FsError> {
        Ok(Extents::everything(offset))
    }

    /// Writes the slices of `data`, one after the other, at `offset` with at least the stability requested.
    /// Calls `written` when the data is in the file, before waiting for stable storage. The next write to the
    /// file begins then, or at the latest when this returns.
    fn write_telling(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[IoSlice<'_>],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult>;

    /// Writes data in one slice, as [`Self::write_telling`] does.
    fn write(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Outcome<WriteResult> {
        self.write_telling(who, id, offset, &[IoSlice::new(data)], stability, &|| {})
    }

    /// Brings written data to stable storage: `count` bytes from `offset`, or up to the end if `count` is 0.
    /// Returns the write verifier.
    fn commit(&self, who: &Identity, id: &FileId, offset: u64, count: u32) -> Outcome<u64>;

    /// Sets attributes, if `guard` is `None` or equals the time of last change.
    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()>;

    /// Makes a regular file, or opens an existing one.
    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node>;

    /// Makes an object of another type. Of a symbolic link only the owner is set.
    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node>;

    /// Removes a name of an object that is not a directory.
    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()>;

    /// Renames an object and replaces a compatible object of the new name. The object keeps its id.
    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed;

    /// Adds a name to a file.
    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked;

    /// Lists a directory after `cookie` (0: from the beginning). With `nodes`, entries include their objects.
    ///
    /// # Errors
    /// [`FsError::BadCookie`] if cookie and verifier are invalid here, [`FsError::NotDirectory`],
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

    /// Brings all written data to stable storage, for a clean stop.
    ///
    /// # Errors
    /// [`FsError::Io`], [`FsError::NoSpace`], [`FsError::QuotaExceeded`].
    fn flush(&self) -> Result<(), FsError>;
}
