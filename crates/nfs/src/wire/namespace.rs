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

/// The `resok` of CREATE, MKDIR, SYMLINK and MKNOD: what was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Xdr)]
pub struct NewObject {
    /// `post_op_fh3`: its handle, if the server tells it; else LOOKUP does.
    pub object: Option<FileHandle>,
    /// `obj_attributes`: its attributes.
    pub attributes: PostOpAttr,
    /// The directory's attributes before and after.
    pub dir_wcc: WccData,
}

/// `createhow3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub enum CreateHow {
    /// `UNCHECKED`: an existing file is taken as it is.
    #[xdr(value = 0)]
    Unchecked(SetAttributes),
    /// `GUARDED`: an existing file is `NFS3ERR_EXIST`.
    #[xdr(value = 1)]
    Guarded(SetAttributes),
    /// `EXCLUSIVE`: as guarded, but a repeat with the same verifier succeeds.
    #[xdr(value = 2)]
    Exclusive(Verifier),
}

/// `CREATE3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct CreateArgs {
    /// `where`: directory and name of the new file.
    pub place: DirOpArgs,
    /// How to create it.
    pub how: CreateHow,
}

/// `CREATE3res`.
pub type CreateResult = NfsResult<NewObject, WccData>;

/// `MKDIR3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct MkdirArgs {
    /// `where`: parent and name of the new directory.
    pub place: DirOpArgs,
    /// Its first attributes.
    pub attributes: SetAttributes,
}

/// `MKDIR3res`.
pub type MkdirResult = NfsResult<NewObject, WccData>;

/// `symlinkdata3`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct SymlinkData {
    /// `symlink_attributes`: the link's first attributes.
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

/// `devicedata3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct DeviceData {
    /// `dev_attributes`: first attributes.
    pub attributes: SetAttributes,
    /// Major and minor number.
    pub spec: SpecData,
}

/// `mknoddata3`. Types that MKNOD does not make are named so that a server can answer `NFS3ERR_BADTYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub enum MknodData {
    /// `NF3REG`: no business of MKNOD.
    #[xdr(value = 1)]
    Regular,
    /// `NF3DIR`: no business of MKNOD.
    #[xdr(value = 2)]
    Directory,
    /// `NF3BLK`.
    #[xdr(value = 3)]
    BlockDevice(DeviceData),
    /// `NF3CHR`.
    #[xdr(value = 4)]
    CharacterDevice(DeviceData),
    /// `NF3LNK`: no business of MKNOD.
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
    /// What it is.
    pub what: MknodData,
}

/// `MKNOD3res`.
pub type MknodResult = NfsResult<NewObject, WccData>;

/// `REMOVE3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct RemoveArgs {
    /// Directory and name of what is to go.
    pub object: DirOpArgs,
}

/// `REMOVE3res`: the directory's attributes before and after.
pub type RemoveResult = NfsResult<WccData, WccData>;

/// `RMDIR3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct RmdirArgs {
    /// Parent and name of the directory that is to go.
    pub object: DirOpArgs,
}

/// `RMDIR3res`: the parent's attributes before and after.
pub type RmdirResult = NfsResult<WccData, WccData>;

/// `RENAME3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct RenameArgs {
    /// The old place.
    pub from: DirOpArgs,
    /// The new one.
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
    /// `file_attributes`: those of the object.
    pub file: PostOpAttr,
    /// `linkdir_wcc`: those of the directory.
    pub link_dir: WccData,
}

/// `LINK3res`.
pub type LinkResult = NfsResult<LinkAttributes, LinkAttributes>;
