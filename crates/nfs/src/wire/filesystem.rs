//! FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.18 to §3.3.20).

use rpcrdma_xdr::Xdr;

use super::{FileHandle, NfsResult, NfsTime, PostOpAttr};

/// The file system has hard links (`properties` of FSINFO).
pub const FSF3_LINK: u32 = 0x0001;
/// The file system has symbolic links.
pub const FSF3_SYMLINK: u32 = 0x0002;
/// PATHCONF is the same for every object.
pub const FSF3_HOMOGENEOUS: u32 = 0x0008;
/// SETATTR can set times to the client's.
pub const FSF3_CANSETTIME: u32 = 0x0010;

/// `FSSTAT3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct FsstatArgs {
    /// `fsroot`: any object of the file system.
    pub root: FileHandle,
}

/// `FSSTAT3resok`: what changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct FsstatOk {
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// `tbytes`: bytes in all.
    pub total_bytes: u64,
    /// `fbytes`: bytes that are free.
    pub free_bytes: u64,
    /// `abytes`: bytes that this user may have.
    pub available_bytes: u64,
    /// `tfiles`: files in all.
    pub total_files: u64,
    /// `ffiles`: files that can still be made.
    pub free_files: u64,
    /// `afiles`: files that this user can make.
    pub available_files: u64,
    /// `invarsec`: seconds for which these numbers are not expected to change.
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

/// `FSINFO3resok`: what does not change. Sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct FsinfoOk {
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// `rtmax`: largest READ.
    pub read_max: u32,
    /// `rtpref`: best READ.
    pub read_preferred: u32,
    /// `rtmult`: READ sizes should be multiples of it.
    pub read_multiple: u32,
    /// `wtmax`: largest WRITE.
    pub write_max: u32,
    /// `wtpref`: best WRITE.
    pub write_preferred: u32,
    /// `wtmult`: WRITE sizes should be multiples of it.
    pub write_multiple: u32,
    /// `dtpref`: best READDIR count.
    pub readdir_preferred: u32,
    /// `maxfilesize`: largest file.
    pub max_file_size: u64,
    /// `time_delta`: the granularity of times.
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
    /// A longer name is refused, not cut off.
    pub no_trunc: bool,
    /// Only a privileged user may change the owner.
    pub chown_restricted: bool,
    /// Names that differ only in case are the same.
    pub case_insensitive: bool,
    /// The case of a name is kept.
    pub case_preserving: bool,
}

/// `PATHCONF3res`.
pub type PathconfResult = NfsResult<PathconfOk, PostOpAttr>;
