//! Attributes: `fattr3`, `sattr3` and the weak cache consistency data (RFC 1813 §2.5).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rpcrdma_xdr::Xdr;

use super::VERIFIER_SIZE;

/// `ftype3`: the type of a file system object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Xdr)]
pub enum FileType {
    /// `NF3REG`: a regular file.
    Regular = 1,
    /// `NF3DIR`: a directory.
    Directory = 2,
    /// `NF3BLK`: a block special device.
    BlockDevice = 3,
    /// `NF3CHR`: a character special device.
    CharacterDevice = 4,
    /// `NF3LNK`: a symbolic link.
    Symlink = 5,
    /// `NF3SOCK`: a socket.
    Socket = 6,
    /// `NF3FIFO`: a named pipe.
    Fifo = 7,
}

/// `specdata3`: the two numbers of a device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Xdr)]
pub struct SpecData {
    /// `specdata1`: the major number.
    pub major: u32,
    /// `specdata2`: the minor number.
    pub minor: u32,
}

/// `nfstime3`: seconds and nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Xdr)]
pub struct NfsTime {
    /// Whole seconds.
    pub seconds: u32,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

impl From<SystemTime> for NfsTime {
    /// Returns the nearest time that the protocol can express: 1970 for earlier times, the last second of
    /// `u32` for times after 2106.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u32::try_from(since.as_secs()).map_or(
            Self { seconds: u32::MAX, nanoseconds: 999_999_999 },
            |seconds| Self { seconds, nanoseconds: since.subsec_nanos() },
        )
    }
}

impl From<NfsTime> for SystemTime {
    fn from(time: NfsTime) -> Self {
        UNIX_EPOCH
            + Duration::new(u64::from(time.seconds), 0)
            + Duration::from_nanos(u64::from(time.nanoseconds))
    }
}

/// `fattr3`: the attributes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Xdr)]
pub struct Attributes {
    /// `type`.
    pub file_type: FileType,
    /// Permission bits, with set-user-ID, set-group-ID and sticky bit: 0o7777.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of storage in use.
    pub used: u64,
    /// Device numbers, of a device file.
    pub rdev: SpecData,
    /// Identifier of the file system.
    pub fsid: u64,
    /// Identifier of the object within its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: NfsTime,
    /// Last change of the data.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

impl Attributes {
    /// Encoded length of `fattr3`, in bytes: always 84.
    pub const SIZE: usize = 84;

    /// Returns the part that `wcc_attr` carries: the attributes *before* an operation.
    pub fn wcc(&self) -> WccAttr {
        WccAttr { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }

    /// Returns whether the object is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }
}

/// `post_op_attr`: attributes after an operation, if the server has them available.
pub type PostOpAttr = Option<Attributes>;

/// `wcc_attr`: attributes that show a client whether its cache is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Xdr)]
pub struct WccAttr {
    /// Length in bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

/// `wcc_data`: attributes before and after an operation. The server omits the first unless both were taken
/// atomically with the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Xdr)]
pub struct WccData {
    /// `pre_op_attr`.
    pub before: Option<WccAttr>,
    /// `post_op_attr`.
    pub after: PostOpAttr,
}

impl WccData {
    /// Largest encoded form, with both parts, in bytes.
    pub const MAX_SIZE: usize = 4 + 24 + 4 + Attributes::SIZE;
}

/// `set_atime` and `set_mtime`: how to set a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Xdr)]
pub enum SetTime {
    /// `DONT_CHANGE`.
    #[default]
    #[xdr(value = 0)]
    DontChange,
    /// `SET_TO_SERVER_TIME`: to the server's clock.
    #[xdr(value = 1)]
    ServerTime,
    /// `SET_TO_CLIENT_TIME`: to this time.
    #[xdr(value = 2)]
    ClientTime(NfsTime),
}

/// `sattr3`: the attributes that a client may set. Fields that are `None` or `DontChange` stay unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Xdr)]
pub struct SetAttributes {
    /// Permission bits (0o7777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes. A shorter length truncates the file, a longer one fills it with zeros.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: SetTime,
    /// Time of last change.
    pub mtime: SetTime,
}

/// `cookieverf3`, `createverf3`, `writeverf3`: opaque values for comparison only.
pub type Verifier = [u8; VERIFIER_SIZE];
