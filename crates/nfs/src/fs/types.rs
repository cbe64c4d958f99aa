//! Types of a file system that every NFS version needs, independent of wire formats.
//!
//! All types are plain values without resources. Values that could be malformed (a name, a file id) are
//! checked when they are built, so invalid ones cannot exist.

use std::fmt;

use thiserror::Error;

/// Longest [`FileId`] in bytes.
///
/// A version 3 file handle has 64 bytes (RFC 1813 §2.4, `NFS3_FHSIZE`). The server's own fields leave this
/// many for the id.
pub const FILE_ID_MAX: usize = 39;

/// Longest component of a path that any file system here accepts, in bytes.
pub const NAME_MAX: usize = 255;

/// Longest text of a symbolic link, in bytes (`PATH_MAX` less the terminator).
pub const LINK_TARGET_MAX: usize = 4095;

/// Identifies an object of a file system for as long as the object exists, across renames and restarts. An id
/// is never reused.
///
/// Opaque to all but the file system that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    len: u8,
    bytes: [u8; FILE_ID_MAX],
}

impl FileId {
    /// Creates an id from bytes; `None` if there are more than [`FILE_ID_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = Self { len: u8::try_from(bytes.len()).ok()?, bytes: [0; FILE_ID_MAX] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// Creates an id from an array that is known to fit.
    pub(crate) fn from_array<const N: usize>(array: &[u8; N]) -> Self {
        const { assert!(N <= FILE_ID_MAX) };
        let mut bytes = [0; FILE_ID_MAX];
        for (target, byte) in bytes.iter_mut().zip(array) {
            *target = *byte;
        }
        // FILE_ID_MAX is below 256.
        Self { len: u8::try_from(N).unwrap_or_default(), bytes }
    }

    /// Returns the bytes given to [`FileId::new`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileId(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Name of an entry to make, remove or rename. It is not empty, contains no `/` and no NUL, is neither `.`
/// nor `..`, and has at most [`NAME_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name from the wire (RFC 1813 §3.2).
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] for an empty name or a name with `/` or NUL (the status of §3.2),
    /// [`FsError::Exists`] for `.` and `..` (see [`Name::for_removal`]), [`FsError::NameTooLong`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, FsError> {
        match LookupName::new(bytes)? {
            LookupName::Entry(name) => Ok(name),
            LookupName::SelfEntry | LookupName::Parent => Err(FsError::Exists),
        }
    }

    /// Checks the name of an entry to remove. For `.` and `..` the error is [`FsError::InvalidArgument`] (RFC
    /// 1813 §3.3.13, §3.3.14).
    ///
    /// # Errors
    /// As [`Name::new`], except for `.` and `..`.
    pub fn for_removal(bytes: &'a [u8]) -> Result<Self, FsError> {
        match LookupName::new(bytes)? {
            LookupName::Entry(name) => Ok(name),
            LookupName::SelfEntry | LookupName::Parent => Err(FsError::InvalidArgument),
        }
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// A name to look up, where `.` and `..` are valid too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupName<'a> {
    /// `.`: the directory itself.
    SelfEntry,
    /// `..`: its parent; at the root of an export, the root itself.
    Parent,
    /// An entry of the directory.
    Entry(Name<'a>),
}

impl<'a> LookupName<'a> {
    /// Checks a name from the wire (RFC 1813 §3.2).
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] for an empty name or a name with `/` or NUL, [`FsError::NameTooLong`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, FsError> {
        // RFC 1813 §3.2, 1 and 5: the null string, and characters that the server cannot handle.
        if bytes.is_empty() || bytes.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(FsError::AccessDenied);
        }
        // RFC 1813 §3.2, 4: no_trunc is TRUE.
        if bytes.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        Ok(match bytes {
            b"." => Self::SelfEntry,
            b".." => Self::Parent,
            _ => Self::Entry(Name(bytes)),
        })
    }
}

/// Identity of a caller: the RPC credential after root squash and the other rules of the export.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups: at most 16 by AUTH_SYS (RFC 5531 Appendix A).
    pub groups: Vec<u32>,
}

impl Identity {
    /// Returns user and group 0, which permission bits do not restrict.
    #[must_use]
    pub fn superuser() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// Returns whether `gid` is the caller's group or a supplementary group.
    #[must_use]
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link. Clients interpret its text; no file system here follows it.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// A point in time: seconds since 1970-01-01 UTC and nanoseconds (0 to 999,999,999).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch, negative before it.
    pub seconds: i64,
    /// Nanoseconds after `seconds`.
    pub nanoseconds: u32,
}

/// The numbers of a device special file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Identifies an object among all objects of this machine while it exists, whichever
/// [`FileSystem`](super::FileSystem) leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// File system of the object.
    pub file_system: DeviceNumber,
    /// Inode number in that file system.
    pub number: u64,
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type of the object.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky bit: the lower twelve.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of storage in use.
    pub used: u64,
    /// Device numbers, zero for everything but devices.
    pub device: DeviceNumber,
    /// The inode number. Never 0 (RFC 1813 §3.3.16).
    pub number: u64,
    /// Place of the object; `None` where no second file system can lead to it.
    pub place: Option<Place>,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
}

/// The attributes that show a client whether another client has changed the object (RFC 1813 §2.6,
/// `wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Length in bytes.
    pub size: u64,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
}

impl From<&Attributes> for Before {
    fn from(attributes: &Attributes) -> Self {
        Self { size: attributes.size, modified: attributes.modified, changed: attributes.changed }
    }
}

/// Weak cache consistency: attributes before and after a change, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Attributes before the change.
    pub before: Option<Before>,
    /// Attributes after the change.
    pub after: Option<Attributes>,
}

/// Result of an operation that changes an object, with its [`Change`] in success and in failure.
#[derive(Debug)]
pub struct Outcome<T> {
    /// Result of the operation.
    pub result: Result<T, FsError>,
    /// Attributes of the directory or file to change.
    pub change: Change,
}

impl<T> Outcome<T> {
    /// Returns a failure without any attributes.
    #[must_use]
    pub fn failed(error: FsError) -> Self {
        Self { result: Err(error), change: Change::default() }
    }
}

/// Result of a rename.
#[derive(Debug)]
pub struct Renamed {
    /// Result of the operation.
    pub result: Result<(), FsError>,
    /// Attributes of the old directory.
    pub from: Change,
    /// Attributes of the new directory.
    pub to: Change,
}

/// Result of a link.
#[derive(Debug)]
pub struct Linked {
    /// Result of the operation.
    pub result: Result<(), FsError>,
    /// Attributes of the file with the new name.
    pub file: Option<Attributes>,
    /// Attributes of the directory with the new name.
    pub directory: Change,
}

/// An object found or made by an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Id of the object.
    pub id: FileId,
    /// Attributes of the object.
    pub attributes: Attributes,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Object of the name.
    pub node: Node,
    /// Attributes of the directory that was searched.
    pub directory: Option<Attributes>,
}

/// Parts of a file that may have other bytes than zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Ranges in the order of their offsets, not empty and without overlaps. The last may extend beyond the
    /// end of the file.
    pub ranges: Vec<std::ops::Range<u64>>,
    /// Whether only a hole follows the last range.
    pub complete: bool,
}

impl Extents {
    /// Returns one range: everything from `offset` on.
    #[must_use]
    pub fn everything(offset: u64) -> Self {
        let ranges =
            if offset == u64::MAX { Vec::new() } else { std::iter::once(offset..u64::MAX).collect() };
        Self { ranges, complete: true }
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// Bytes placed at the front of the buffer.
    pub length: usize,
    /// Whether the end of the file was reached (RFC 1813 §3.3.6).
    pub end_of_file: bool,
    /// Attributes after the read.
    pub attributes: Attributes,
}

/// Safety of written data before the reply (RFC 1813 §3.3.7, `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// The data may still be lost.
    Unstable,
    /// The data, and the metadata needed to read it, are on stable storage.
    DataSync,
    /// Data and all attributes are on stable storage.
    FileSync,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// Bytes written, from the beginning of the data.
    pub length: usize,
    /// Stability of the data, never less than requested.
    pub committed: Stability,
    /// The verifier that was valid **before** the write. If a later commit returns another verifier, the data
    /// may be lost.
    pub verifier: u64,
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Keep the time.
    #[default]
    Keep,
    /// Set the time to the server's clock.
    Now,
    /// Set this time.
    To(Timestamp),
}

/// Attributes to set. Fields that are `None` or [`SetTime::Keep`] stay unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits (the lower twelve).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes. A shorter length truncates, a longer one adds zeros.
    pub size: Option<u64>,
    /// Time of last access.
    pub accessed: SetTime,
    /// Time of last modification.
    pub modified: SetTime,
}

impl SetAttributes {
    /// Returns whether there is nothing to set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How to make a regular file (RFC 1813 §3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Open an existing regular file; of these attributes, only the size is applied to it.
    Unchecked(SetAttributes),
    /// Fail if the name exists.
    Guarded(SetAttributes),
    /// Fail if the name exists, unless it was made with this verifier, which is kept on stable storage.
    Exclusive([u8; 8]),
}

/// An object to make that is not a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special<'a> {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A character device.
    CharacterDevice(DeviceNumber),
}

impl Special<'_> {
    /// Returns the kind of the object.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        match self {
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::BlockDevice(_) => FileKind::BlockDevice,
            Self::CharacterDevice(_) => FileKind::CharacterDevice,
        }
    }
}

/// Rights to an object, as a set (RFC 1813 §3.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Read a file or list a directory.
    pub const READ: Self = Self(0x01);
    /// Look up a name in a directory.
    pub const LOOKUP: Self = Self(0x02);
    /// Rewrite data or change directory entries.
    pub const MODIFY: Self = Self(0x04);
    /// Append data or add directory entries.
    pub const EXTEND: Self = Self(0x08);
    /// Delete a directory entry.
    pub const DELETE: Self = Self(0x10);
    /// Execute a file.
    pub const EXECUTE: Self = Self(0x20);
    /// All rights.
    pub const ALL: Self = Self(0x3f);

    /// Returns the set of these bits; unknown bits are dropped.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns the set as bits of `ACCESS3_*`.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns whether the set contains all of `other`.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the rights of a caller that may read, write and execute (or search) as given.
    ///
    /// RFC 1813 §3.3.4: LOOKUP and DELETE apply to directories only, EXECUTE to other objects.
    #[must_use]
    pub fn from_permissions(kind: FileKind, read: bool, write: bool, execute: bool) -> Self {
        let directory = kind == FileKind::Directory;
        let mut granted = Self::default();
        if read {
            granted = granted.union(Self::READ);
        }
        if write {
            granted = granted.union(Self::MODIFY).union(Self::EXTEND);
            if directory {
                granted = granted.union(Self::DELETE);
            }
        }
        if execute {
            granted = granted.union(if directory { Self::LOOKUP } else { Self::EXECUTE });
        }
        granted
    }
}

/// A directory entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Name of the entry; `.` and `..` are included.
    pub name: &'a [u8],
    /// Inode number of the object.
    pub number: u64,
    /// Position for the continuation after this entry. Never 0.
    pub cookie: u64,
    /// The object, if the caller asked for it and it is available. It may have been removed meanwhile, or lie
    /// on another file system.
    pub node: Option<Node>,
}

/// Values for the whole of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Whether the last entry of the directory was returned.
    pub end: bool,
    /// Value to send with a cookie; 0 where cookies are always valid.
    pub verifier: u64,
    /// Attributes of the directory.
    pub attributes: Attributes,
}

/// Space and files, in bytes and objects (RFC 1813 §3.3.18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Total bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes available to an ordinary user.
    pub available_bytes: u64,
    /// Total objects.
    pub total_files: u64,
    /// Free objects.
    pub free_files: u64,
    /// Objects available to an ordinary user.
    pub available_files: u64,
}

/// Capabilities of a file system (RFC 1813 §3.3.19 and §3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Largest file in bytes.
    pub max_file_size: u64,
    /// Resolution of times.
    pub time_delta: Timestamp,
    /// Whether there are hard links.
    pub hard_links: bool,
    /// Whether there are symbolic links.
    pub symbolic_links: bool,
    /// Most names of an object.
    pub link_max: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Whether only a privileged user may give a file away.
    pub chown_restricted: bool,
    /// Whether names ignore case.
    pub case_insensitive: bool,
    /// Whether names keep their case.
    pub case_preserving: bool,
}

/// Error of a file system.
///
/// Each variant has one status in NFS version 3 (RFC 1813 §2.6) and version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum FsError {
    /// The caller is neither owner nor privileged.
    #[error("operation not permitted: the caller is neither the owner nor privileged")]
    NotPermitted,
    /// No such entry.
    #[error("no such file or directory")]
    NotFound,
    /// The storage failed.
    #[error("input/output error in the file system")]
    Io,
    /// No such device or address.
    #[error("no such device or address")]
    NoSuchDevice,
    /// The permission bits do not allow it.
    #[error("permission denied")]
    AccessDenied,
    /// The name exists already.
    #[error("the name exists already")]
    Exists,
    /// The other object is on another file system.
    #[error("the objects are on different file systems")]
    CrossDevice,
    /// The operation is not possible on this device.
    #[error("operation not supported by the device")]
    WrongDevice,
    /// The object is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The object is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The argument is invalid for this object.
    #[error("invalid argument")]
    InvalidArgument,
    /// The file would be too large.
    #[error("file too large")]
    FileTooLarge,
    /// Storage is full.
    #[error("no space left on the file system")]
    NoSpace,
    /// Read-only export or file system.
    #[error("read-only file system")]
    ReadOnly,
    /// The object cannot have more names.
    #[error("too many links")]
    TooManyLinks,
    /// A name is longer than allowed.
    #[error("file name too long")]
    NameTooLong,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller's quota is used up.
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// The object no longer exists.
    #[error("stale file id: the object no longer exists")]
    Stale,
    /// The id was never given out by this file system.
    #[error("bad file id: not one of this file system's")]
    BadId,
    /// The guard of a SETATTR did not match.
    #[error("the object was changed meanwhile: guard and change time differ")]
    NotSynchronized,
    /// The cookie of a listing is no longer valid.
    #[error("stale directory cookie")]
    BadCookie,
    /// The file system does not support the operation.
    #[error("operation not supported")]
    NotSupported,
    /// Objects of that type cannot be made here.
    #[error("objects of this type are not supported")]
    BadType,
    /// Try again later.
    #[error("temporarily out of resources, try again")]
    TryLater,
    /// An error without a name of its own.
    #[error("unexpected failure in the server")]
    ServerFault,
}
