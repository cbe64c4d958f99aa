//! GETATTR, SETATTR, LOOKUP, ACCESS and READLINK (RFC 1813 §3.3.1 to §3.3.5).

use bytes::Bytes;
use rpcrdma_xdr::Xdr;

use super::{
    Attributes, DirOpArgs, FileHandle, MAX_PATH, NfsResult, NfsTime, PostOpAttr, SetAttributes, WccData,
};

/// Read data of a file, or a directory (RFC 1813 §3.3.4).
pub const ACCESS3_READ: u32 = 0x0001;
/// Look up a name in a directory.
pub const ACCESS3_LOOKUP: u32 = 0x0002;
/// Rewrite data of a file, or change entries of a directory.
pub const ACCESS3_MODIFY: u32 = 0x0004;
/// Write new data, or add entries.
pub const ACCESS3_EXTEND: u32 = 0x0008;
/// Delete an entry of a directory.
pub const ACCESS3_DELETE: u32 = 0x0010;
/// Execute a file.
pub const ACCESS3_EXECUTE: u32 = 0x0020;

/// `GETATTR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct GetattrArgs {
    /// The object.
    pub object: FileHandle,
}

/// `GETATTR3res`: the attributes; a failure has only a status.
pub type GetattrResult = NfsResult<Attributes, ()>;

/// `SETATTR3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct SetattrArgs {
    /// The object.
    pub object: FileHandle,
    /// Attributes to set.
    pub new_attributes: SetAttributes,
    /// `sattrguard3`: the ctime that the object must have, else `NFS3ERR_NOT_SYNC`.
    pub guard: Option<NfsTime>,
}

/// `SETATTR3res`.
pub type SetattrResult = NfsResult<WccData, WccData>;

/// `LOOKUP3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct LookupArgs {
    /// Directory and name.
    pub what: DirOpArgs,
}

/// `LOOKUP3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct LookupOk {
    /// Handle of the object found.
    pub object: FileHandle,
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
}

/// `LOOKUP3res`; a failure carries the directory's attributes.
pub type LookupResult = NfsResult<LookupOk, PostOpAttr>;

/// `ACCESS3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct AccessArgs {
    /// The object.
    pub object: FileHandle,
    /// The `ACCESS3_*` bits in question.
    pub access: u32,
}

/// `ACCESS3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct AccessOk {
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// Bits of the request that are granted.
    pub access: u32,
}

/// `ACCESS3res`.
pub type AccessResult = NfsResult<AccessOk, PostOpAttr>;

/// `READLINK3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ReadlinkArgs {
    /// The symbolic link.
    pub symlink: FileHandle,
}

/// `READLINK3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ReadlinkOk {
    /// `symlink_attributes`: the link's attributes.
    pub attributes: PostOpAttr,
    /// `data`: the target. DDP-eligible (RFC 8267 §4).
    #[xdr(ddp, max = MAX_PATH)]
    pub data: Bytes,
}

/// `READLINK3res`.
pub type ReadlinkResult = NfsResult<ReadlinkOk, PostOpAttr>;
