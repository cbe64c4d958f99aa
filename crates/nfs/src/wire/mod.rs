//! The NFS version 3 protocol as types (RFC 1813 §2 and §3).
//!
//! Every type encodes and decodes itself as XDR. The types have the names of RFC 1813 in Rust's spelling, and
//! their docs give the original names. Payloads (READ and WRITE data, link targets) are [`bytes::Bytes`],
//! which are shared and never copied. Names and handles are small and are copied out of the message, so that
//! keeping one does not keep a receive buffer. The constants below bound counts and lengths during decoding,
//! before any allocation. A value over a bound is a [`DecodeError`](rpcrdma_xdr::DecodeError).
//!
//! Names are bytes, not text: a file server returns the bytes that it received.

mod attributes;
mod data;
mod directory;
mod filesystem;
mod handle;
mod name;
mod namespace;
mod object;
mod procedure;
mod status;

#[cfg(test)]
pub(crate) mod tests;

pub use attributes::{
    Attributes, FileType, NfsTime, PostOpAttr, SetAttributes, SetTime, SpecData, Verifier, WccAttr, WccData,
};
pub use data::{
    CommitArgs, CommitOk, CommitResult, ReadArgs, ReadOk, ReadResult, StableHow, WriteArgs, WriteOk,
    WriteResult,
};
pub use directory::{
    DirEntry, DirEntryPlus, DirList, DirListPlus, ReaddirArgs, ReaddirOk, ReaddirResult, ReaddirplusArgs,
    ReaddirplusOk, ReaddirplusResult,
};
pub use filesystem::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, FsinfoArgs, FsinfoOk, FsinfoResult,
    FsstatArgs, FsstatOk, FsstatResult, PathconfArgs, PathconfOk, PathconfResult,
};
pub use handle::{FileHandle, HandleTooLong};
pub use name::{FileName, NameError};
pub use namespace::{
    CreateArgs, CreateHow, CreateResult, DeviceData, DirOpArgs, LinkArgs, LinkAttributes, LinkResult,
    MkdirArgs, MkdirResult, MknodArgs, MknodData, MknodResult, NewObject, RemoveArgs, RemoveResult,
    RenameArgs, RenameResult, RenameWcc, RmdirArgs, RmdirResult, SymlinkArgs, SymlinkData, SymlinkResult,
};
pub use object::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ,
    AccessArgs, AccessOk, AccessResult, GetattrArgs, GetattrResult, LookupArgs, LookupOk, LookupResult,
    ReadlinkArgs, ReadlinkOk, ReadlinkResult, SetattrArgs, SetattrResult,
};
pub use procedure::{NfsCall, NfsProcedure};
pub use status::{NfsResult, Status};

/// RPC program number of NFS (RFC 1813 §3).
pub const NFS_PROGRAM: u32 = 100_003;
/// The protocol version of this module (RFC 1813 §3).
pub const NFS_VERSION: u32 = 3;
/// Port of NFS over RPC-over-RDMA (RFC 8267 §9).
pub const NFS_RDMA_PORT: u16 = 20049;
/// Port of NFS over TCP (RFC 1813 §2.3).
pub const NFS_TCP_PORT: u16 = 2049;

/// Most bytes in a file handle, `NFS3_FHSIZE` (RFC 1813 §2.4).
pub const MAX_HANDLE: usize = 64;
/// Bytes of the verifiers of READDIR cookies, exclusive CREATE and WRITE (RFC 1813 §2.4).
pub const VERIFIER_SIZE: usize = 8;
/// Most bytes of a path component that a file system accepts. The server answers a longer one with
/// NFS3ERR_NAMETOOLONG.
pub const MAX_NAME: usize = 255;
/// Most bytes of a name that are decoded at all. RFC 1813 §2.4 leaves the limit to the server, which must
/// decode a name before it can refuse it with NFS3ERR_NAMETOOLONG. A longer name is a malformed message.
pub const MAX_NAME_ON_WIRE: usize = 4096;
/// Most bytes in the target of a symbolic link (Linux `PATH_MAX`; RFC 1813 §2.4 leaves it to the server).
pub const MAX_PATH: usize = 4096;
/// Most bytes of a link's target that are decoded in SYMLINK, so that the server can refuse targets over
/// [`MAX_PATH`] with NFS3ERR_NAMETOOLONG. A longer target is a malformed message.
pub const MAX_PATH_ON_WIRE: usize = 65_536;
/// Most bytes of data that are decoded in one READ or WRITE. A server announces its own, usually lower, limit
/// as `rtmax` and `wtmax` of FSINFO.
pub const MAX_PAYLOAD: usize = 4 << 20;
/// Most entries decoded from one READDIR or READDIRPLUS reply: as many as fit in [`MAX_PAYLOAD`] bytes.
pub const MAX_DIRECTORY_ENTRIES: usize = MAX_PAYLOAD / DirEntry::MIN_SIZE;
