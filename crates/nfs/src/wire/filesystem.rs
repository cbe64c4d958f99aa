//! FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.18 to §3.3.20).

use rpcrdma_xdr::Xdr;

use super::{FileHandle, NfsResult, NfsTime, PostOpAttr};

/// Bit of the FSINFO `properties`: the file system has hard links.
pub const FSF3_LINK: u32 = 0x0001;
/// Bit: the file system has symbolic links.
pub const FSF3_SYMLINK: u32 = 0x0002;
/// Bit: PATHCONF returns the same values for every object.
pub const FSF3_HOMOGENEOUS: u32 = 0x0008;
/// Bit: SETATTR can set times to those of the client.
pub const FSF3_CANSETTIME: u32 = 0x0010;

/// `FSSTAT3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct FsstatArgs {
    /// `fsroot`: any object of the file system.
    pub root: FileHandle,
}

/// `FSSTAT3resok`: values that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct FsstatOk {
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// `tbytes`: total bytes.
    pub total_bytes: u64,
    /// `fbytes`: free bytes.
    pub free_bytes: u64,
    /// `abytes`: bytes available to this user.
    pub available_bytes: u64,
    /// `tfiles`: total files.
    pub total_files: u64,
    /// `ffiles`: free files.
    pub free_files: u64,
    /// `afiles`: files available to this user.
    pub available_files: u64,
    /// `invarsec`: seconds for which these values are not expected to change.
    pub invariant_seconds: u32,
}

/// `FSSTAT3res`.
pub type FsstatResult = NfsResult<FsstatOk, PostOpAttr>;

/// `FSINFO3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct FsinfoArgs {
    /// `fsroot`: any object of the file system.
    pub root: FileHandle,
}

/// `FSINFO3resok`: values that do not change. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct FsinfoOk {
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// `rtmax`: largest READ.
    pub read_max: u32,
    /// `rtpref`: preferred READ.
    pub read_preferred: u32,
    /// `rtmult`: READ sizes should be multiples of this.
    pub read_multiple: u32,
    /// `wtmax`: largest WRITE.
    pub write_max: u32,
    /// `wtpref`: preferred WRITE.
    pub write_preferred: u32,
    /// `wtmult`: WRITE sizes should be multiples of this.
    pub write_multiple: u32,
    /// `dtpref`: preferred count of READDIR.
    pub readdir_preferred: u32,
    /// `maxfilesize`: largest file.
    pub max_file_size: u64,
    /// `time_delta`: the resolution of times.
    pub time_delta: NfsTime,
    /// `FSF3_*` bits.
    pub properties: u32,
}

/// `FSINFO3res`.
pub type FsinfoResult = NfsResult<FsinfoOk, PostOpAttr>;

/// `PATHCONF3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct PathconfArgs {
    /// The object.
    pub object: FileHandle,
}

/// `PATHCONF3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct PathconfOk {
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// `linkmax`: most hard links to an object.
    pub link_max: u32,
    /// Most bytes in a component.
    pub name_max: u32,
    /// Whether a longer name is refused, not truncated.
    pub no_trunc: bool,
    /// Whether only a privileged user may change the owner.
    pub chown_restricted: bool,
    /// Whether names that differ only in case are equal.
    pub case_insensitive: bool,
    /// Whether the case of a name is preserved.
    pub case_preserving: bool,
}

/// `PATHCONF3res`.
pub type PathconfResult = NfsResult<PathconfOk, PostOpAttr>;
