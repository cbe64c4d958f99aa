//! CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK (RFC 1813 §3.3.8 to §3.3.15).

use bytes::Bytes;
use rpcrdma_xdr::Xdr;

use super::{
    FileHandle, FileName, MAX_PATH_ON_WIRE, NfsResult, PostOpAttr, SetAttributes, SpecData, Verifier, WccData,
};

/// `diropargs3`: a name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Xdr)]
pub struct DirOpArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The name in it.
    pub name: FileName,
}

/// The `resok` of CREATE, MKDIR, SYMLINK and MKNOD: the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct NewObject {
    /// `post_op_fh3`: the handle. If the server omits it, the client uses LOOKUP.
    pub object: Option<FileHandle>,
    /// `obj_attributes`: the object's attributes.
    pub attributes: PostOpAttr,
    /// The directory's attributes before and after.
    pub dir_wcc: WccData,
}

/// How CREATE treats an object that is there: `createhow3` (RFC 1813 §3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub enum CreateHow {
    /// `UNCHECKED`: accepts an existing file.
    #[xdr(value = 0)]
    Unchecked(SetAttributes),
    /// `GUARDED`: an existing file gives `NFS3ERR_EXIST`.
    #[xdr(value = 1)]
    Guarded(SetAttributes),
    /// `EXCLUSIVE`: like GUARDED, but a repeated call with the same verifier succeeds.
    #[xdr(value = 2)]
    Exclusive(Verifier),
}

/// `CREATE3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct CreateArgs {
    /// `where`: directory and name of the new file.
    pub place: DirOpArgs,
    /// Treatment of an existing file.
    pub how: CreateHow,
}

/// `CREATE3res`.
pub type CreateResult = NfsResult<NewObject, WccData>;

/// `MKDIR3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct MkdirArgs {
    /// `where`: parent and name of the new directory.
    pub place: DirOpArgs,
    /// Initial attributes.
    pub attributes: SetAttributes,
}

/// `MKDIR3res`.
pub type MkdirResult = NfsResult<NewObject, WccData>;

/// A new symbolic link, its attributes and its text: `symlinkdata3` (RFC 1813 §3.3.10).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct SymlinkData {
    /// `symlink_attributes`: the link's initial attributes.
    pub attributes: SetAttributes,
    /// `symlink_data`: the target. DDP-eligible (RFC 8267 §4).
    #[xdr(ddp, max = MAX_PATH_ON_WIRE)]
    pub target: Bytes,
}

/// `SYMLINK3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct SymlinkArgs {
    /// `where`: directory and name of the new link.
    pub place: DirOpArgs,
    /// Target and attributes.
    pub symlink: SymlinkData,
}

/// `SYMLINK3res`.
pub type SymlinkResult = NfsResult<NewObject, WccData>;

/// A new device, its attributes and its numbers: `devicedata3` (RFC 1813 §3.3.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct DeviceData {
    /// `dev_attributes`: initial attributes.
    pub attributes: SetAttributes,
    /// Major and minor number.
    pub spec: SpecData,
}

/// The object that MKNOD makes: `mknoddata3` (RFC 1813 §3.3.11). The types that MKNOD does not make are included so
/// that a server can answer `NFS3ERR_BADTYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub enum MknodData {
    /// `NF3REG`: not valid for MKNOD.
    #[xdr(value = 1)]
    Regular,
    /// `NF3DIR`: not valid for MKNOD.
    #[xdr(value = 2)]
    Directory,
    /// `NF3BLK`.
    #[xdr(value = 3)]
    BlockDevice(DeviceData),
    /// `NF3CHR`.
    #[xdr(value = 4)]
    CharacterDevice(DeviceData),
    /// `NF3LNK`: not valid for MKNOD.
    #[xdr(value = 5)]
    Symlink,
    /// `NF3SOCK`.
    #[xdr(value = 6)]
    Socket(SetAttributes),
    /// `NF3FIFO`.
    #[xdr(value = 7)]
    Fifo(SetAttributes),
}

/// `MKNOD3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct MknodArgs {
    /// `where`: directory and name of the new object.
    pub place: DirOpArgs,
    /// Type and initial attributes.
    pub what: MknodData,
}

/// `MKNOD3res`.
pub type MknodResult = NfsResult<NewObject, WccData>;

/// `REMOVE3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct RemoveArgs {
    /// Directory and name of the object to remove.
    pub object: DirOpArgs,
}

/// `REMOVE3res`: the directory's attributes before and after.
pub type RemoveResult = NfsResult<WccData, WccData>;

/// `RMDIR3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct RmdirArgs {
    /// Parent and name of the directory to remove.
    pub object: DirOpArgs,
}

/// `RMDIR3res`: the parent's attributes before and after.
pub type RmdirResult = NfsResult<WccData, WccData>;

/// `RENAME3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct RenameArgs {
    /// Old directory and name.
    pub from: DirOpArgs,
    /// New directory and name.
    pub to: DirOpArgs,
}

/// `RENAME3resok` and `RENAME3resfail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct RenameWcc {
    /// `fromdir_wcc`.
    pub from_dir: WccData,
    /// `todir_wcc`.
    pub to_dir: WccData,
}

/// `RENAME3res`.
pub type RenameResult = NfsResult<RenameWcc, RenameWcc>;

/// `LINK3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct LinkArgs {
    /// The existing object.
    pub file: FileHandle,
    /// Directory and name of the new link.
    pub link: DirOpArgs,
}

/// `LINK3resok` and `LINK3resfail`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct LinkAttributes {
    /// `file_attributes`: attributes of the object.
    pub file: PostOpAttr,
    /// `linkdir_wcc`: attributes of the directory.
    pub link_dir: WccData,
}

/// `LINK3res`.
pub type LinkResult = NfsResult<LinkAttributes, LinkAttributes>;
