//! Neutral vocabulary of a file system: what every NFS version needs and no wire format owns.
//!
//! Plain values only. Nothing here holds a resource, so nothing here can leak one. A value that could be
//! malformed (a name, a file id) is checked when it is built, and cannot exist otherwise.

use std::fmt;

use thiserror::Error;

/// Longest [`FileId`] in bytes.
///
/// A version 3 file handle has 64 bytes (RFC 1813 §2.4, `NFS3_FHSIZE`); what the server puts around the id
/// leaves this many.
pub const FILE_ID_MAX: usize = 39;

/// Longest component of a path, in bytes, that any file system here takes.
pub const NAME_MAX: usize = 255;

/// Longest text of a symbolic link, in bytes (`PATH_MAX` less the terminator).
pub const LINK_TARGET_MAX: usize = 4095;

/// Names one object of one file system, for as long as the object exists: across renames and restarts, and
/// never again afterwards.
///
/// Opaque to everybody but the file system that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    len: u8,
    bytes: [u8; FILE_ID_MAX],
}

impl FileId {
    /// An id of these bytes; `None` if there are more than [`FILE_ID_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = Self { len: u8::try_from(bytes.len()).ok()?, bytes: [0; FILE_ID_MAX] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// An id of an array that is known to fit.
    pub(crate) fn from_array<const N: usize>(array: &[u8; N]) -> Self {
        const { assert!(N <= FILE_ID_MAX) };
        let mut bytes = [0; FILE_ID_MAX];
        for (target, byte) in bytes.iter_mut().zip(array) {
            *target = *byte;
        }
        // FILE_ID_MAX is below 256.
        Self { len: u8::try_from(N).unwrap_or_default(), bytes }
    }

    /// The bytes given to [`FileId::new`].
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

/// The name of an entry that is created, removed or renamed: not empty, no `/`, no NUL, neither `.` nor `..`,
/// at most [`NAME_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name from the wire (RFC 1813 §3.2).
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] for an empty name or one with `/` or NUL in it (the status that §3.2 asks
    /// for), [`FsError::Exists`] for `.` and `..` (see [`Name::for_removal`]), [`FsError::NameTooLong`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, FsError> {
        match LookupName::new(bytes)? {
            LookupName::Entry(name) => Ok(name),
            LookupName::SelfEntry | LookupName::Parent => Err(FsError::Exists),
        }
    }

    /// The same for a name that has to go: `.` and `..` are [`FsError::InvalidArgument`], as RFC 1813 §3.3.13
    /// and §3.3.14 have it.
    ///
    /// # Errors
    /// As [`Name::new`] but for `.` and `..`.
    pub fn for_removal(bytes: &'a [u8]) -> Result<Self, FsError> {
        match LookupName::new(bytes)? {
            LookupName::Entry(name) => Ok(name),
            LookupName::SelfEntry | LookupName::Parent => Err(FsError::InvalidArgument),
        }
    }

    /// The bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// A name that is only looked up: also `.` and `..` have a meaning there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupName<'a> {
    /// `.`: the directory itself.
    SelfEntry,
    /// `..`: its parent; at the root of an export the root itself.
    Parent,
    /// An entry of the directory.
    Entry(Name<'a>),
}

impl<'a> LookupName<'a> {
    /// Checks a name from the wire (RFC 1813 §3.2).
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] for an empty name or one with `/` or NUL in it, [`FsError::NameTooLong`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, FsError> {
        // RFC 1813 §3.2, 1 and 5: the null string and characters the server cannot handle.
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

/// Who asks: what is left of an RPC credential after root squash and the rest of the export's rules.
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
    /// User and group 0, which no permission bit stops.
    #[must_use]
    pub fn superuser() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// Whether `gid` is the caller's group or one of the supplementary ones.
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
    /// A symbolic link. Its text is the client's business: no file system here follows it.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Tells an object from all others of this machine while it exists, whichever [`FileSystem`](super::FileSystem) leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file system that it is on.
    pub file_system: DeviceNumber,
    /// Its inode number there.
    pub number: u64,
}

/// What is known about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: the lower twelve.
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
    /// Where it is; `None` where no second file system can lead to it.
    pub place: Option<Place>,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
}

/// The part of the attributes that tells a client whether somebody else was here before (RFC 1813 §2.6,
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

/// Weak cache consistency: attributes before and after an operation that changes something, as far as they
/// are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub before: Option<Before>,
    /// After.
    pub after: Option<Attributes>,
}

/// The result of an operation that changes something, with its [`Change`] in success and in failure.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What came of it.
    pub result: Result<T, FsError>,
    /// Attributes of the directory or file that was to be changed.
    pub change: Change,
}

impl<T> Outcome<T> {
    /// A failure before anything about the object was known.
    #[must_use]
    pub fn failed(error: FsError) -> Self {
        Self { result: Err(error), change: Change::default() }
    }
}

/// The result of a rename.
#[derive(Debug)]
pub struct Renamed {
    /// What came of it.
    pub result: Result<(), FsError>,
    /// The directory the entry was in.
    pub from: Change,
    /// The directory the entry is in now.
    pub to: Change,
}

/// The result of a link.
#[derive(Debug)]
pub struct Linked {
    /// What came of it.
    pub result: Result<(), FsError>,
    /// Attributes of the file with one more name.
    pub file: Option<Attributes>,
    /// The directory that the name was added to.
    pub directory: Change,
}

/// An object that an operation found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its id.
    pub id: FileId,
    /// Its attributes.
    pub attributes: Attributes,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What the name stands for.
    pub node: Node,
    /// Attributes of the directory that was searched.
    pub directory: Option<Attributes>,
}

/// Which parts of a file may have other bytes than zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents {
    /// In the order of their offsets, without overlaps; none is empty. The last may go beyond the end of the file.
    pub ranges: Vec<std::ops::Range<u64>>,
    /// Whether there is nothing but a hole behind the last of them.
    pub complete: bool,
}

impl Extents {
    /// Everything from `offset` on.
    #[must_use]
    pub fn everything(offset: u64) -> Self {
        let ranges =
            if offset == u64::MAX { Vec::new() } else { std::iter::once(offset..u64::MAX).collect() };
        Self { ranges, complete: true }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResult {
    /// Bytes placed at the front of the buffer.
    pub length: usize,
    /// Whether the end of the file was reached (RFC 1813 §3.3.6).
    pub end_of_file: bool,
    /// Attributes after the read.
    pub attributes: Attributes,
}

/// How safe written data has to be before the answer leaves (RFC 1813 §3.3.7, `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// May still be lost.
    Unstable,
    /// The data, and what is needed to read it back, are on stable storage.
    DataSync,
    /// Data and all attributes are on stable storage.
    FileSync,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// Bytes written, from the front of the data.
    pub length: usize,
    /// What was achieved: never less than what was asked for.
    pub committed: Stability,
    /// The verifier that was valid **before** the data was written: if it differs from that of a later commit,
    /// the data may be lost.
    pub verifier: u64,
}

/// A new time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// Set it to the server's clock.
    Now,
    /// Set it to this.
    To(Timestamp),
}

/// Attributes to set; what is `None` or [`SetTime::Keep`] stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits (the lower twelve count).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: cuts, or adds bytes of zero.
    pub size: Option<u64>,
    /// Time of last access.
    pub accessed: SetTime,
    /// Time of last modification.
    pub modified: SetTime,
}

impl SetAttributes {
    /// Whether there is nothing to set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a regular file is made (RFC 1813 §3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// An existing regular file is taken as it is, with these attributes' size applied to it.
    Unchecked(SetAttributes),
    /// An existing name is an error.
    Guarded(SetAttributes),
    /// An existing name is an error unless it was made with this same verifier, which is kept on stable storage.
    Exclusive([u8; 8]),
}

/// What is made, when it is not a regular file.
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
    /// The kind of what is made.
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
    /// Everything.
    pub const ALL: Self = Self(0x3f);

    /// The set with these bits; unknown ones are left out.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The set as bits of `ACCESS3_*`.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in the set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is granted to somebody who may read, write and execute (or search) as stated.
    ///
    /// RFC 1813 §3.3.4: LOOKUP and DELETE have a meaning for directories only, EXECUTE for the others.
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

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name; `.` and `..` are listed too.
    pub name: &'a [u8],
    /// Its inode number.
    pub number: u64,
    /// Where a listing goes on after this entry. Never 0.
    pub cookie: u64,
    /// The object, if the caller asked for it and it could be had (it may have gone meanwhile, or be on another
    /// file system).
    pub node: Option<Node>,
}

/// What a listing says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Whether the last entry of the directory was given out.
    pub end: bool,
    /// Presented again with a cookie; 0 where cookies are always valid.
    pub verifier: u64,
    /// Attributes of the directory.
    pub attributes: Attributes,
}

/// Space and files, in bytes and objects (RFC 1813 §3.3.18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes free to an ordinary user.
    pub available_bytes: u64,
    /// Objects in all.
    pub total_files: u64,
    /// Objects free.
    pub free_files: u64,
    /// Objects free to an ordinary user.
    pub available_files: u64,
}

/// What a file system can do (RFC 1813 §3.3.19 and §3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Largest file in bytes.
    pub max_file_size: u64,
    /// Granularity of times.
    pub time_delta: Timestamp,
    /// Whether there are hard links.
    pub hard_links: bool,
    /// Whether there are symbolic links.
    pub symbolic_links: bool,
    /// Largest number of names of one object.
    pub link_max: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Whether only a privileged user may give a file away.
    pub chown_restricted: bool,
    /// Whether the case of letters is ignored in names.
    pub case_insensitive: bool,
    /// Whether the case of letters is kept in names.
    pub case_preserving: bool,
}

/// Why a file system refused.
///
/// Each variant has one status in NFS version 3 (RFC 1813 §2.6) and version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum FsError {
    /// Neither owner nor privileged.
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
    /// The name is taken.
    #[error("the name exists already")]
    Exists,
    /// The other side is on another file system.
    #[error("the objects are on different file systems")]
    CrossDevice,
    /// The operation is not possible on this device.
    #[error("operation not supported by the device")]
    WrongDevice,
    /// Not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// A directory.
    #[error("is a directory")]
    IsDirectory,
    /// An argument that makes no sense for this object.
    #[error("invalid argument")]
    InvalidArgument,
    /// The file would become too large.
    #[error("file too large")]
    FileTooLarge,
    /// Storage is full.
    #[error("no space left on the file system")]
    NoSpace,
    /// Read-only export or file system.
    #[error("read-only file system")]
    ReadOnly,
    /// No more names possible.
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
    /// The cookie of a listing means nothing any more.
    #[error("stale directory cookie")]
    BadCookie,
    /// The file system cannot do this.
    #[error("operation not supported")]
    NotSupported,
    /// Objects of that type cannot be made here.
    #[error("objects of this type are not supported")]
    BadType,
    /// Try again later.
    #[error("temporarily out of resources, try again")]
    TryLater,
    /// Something that has no better name.
    #[error("unexpected failure in the server")]
    ServerFault,
}
