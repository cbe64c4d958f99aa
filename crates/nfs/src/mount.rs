//! The types and procedures of MOUNT, version 3 (RFC 1813 Appendix I), with their limits.
//!
//! MOUNT leads from the path of an export to its first file handle. RFC 8267 §5.1 requires MOUNT over TCP;
//! this crate serves and uses MOUNT on RPC-over-RDMA too. No item of MOUNT is DDP-eligible.

use std::fmt;

use rpcrdma_oncrpc::typed::Bounds;
use rpcrdma_xdr::Xdr;

use crate::procedures::procedures;
use crate::wire::{FileHandle, MAX_PATH};

/// RPC program number of MOUNT (RFC 1813 §5.1.2).
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The protocol version of this module (RFC 1813 §5.1.2).
pub const MOUNT_VERSION: u32 = 3;
/// Most bytes in the path of an export, `MNTPATHLEN` (RFC 1813 §5.1.4). The server answers a longer path with
/// MNT3ERR_NAMETOOLONG; for that it decodes up to [`MAX_PATH`] bytes.
pub const MAX_MOUNT_PATH: usize = 1024;
/// Most bytes in the name of a host or group, `MNTNAMLEN` (RFC 1813 §5.1.4).
pub const MAX_MOUNT_NAME: usize = 255;
/// Most authentication flavors decoded from an answer to MNT; the RFC sets no limit.
pub const MAX_AUTH_FLAVORS: usize = 64;
/// Most elements decoded from a list of MOUNT (mounts, exports, groups of an export); the RFC sets no limit.
pub const MAX_EXPORTS: usize = 1 << 16;
/// Most bytes offered for the lists that DUMP and EXPORT return; the RFC sets no limit. A client requests a longer list of
/// exports again over TCP.
pub const MAX_MOUNT_LIST: usize = 256 << 10;

/// `dirpath`: the path of a directory on the server.
#[derive(Clone, PartialEq, Eq, Hash, Default, Xdr)]
pub struct DirPath(#[xdr(max = MAX_PATH)] Vec<u8>);

impl DirPath {
    /// Creates a path from bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for DirPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for DirPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// `name`: a host, or a group of hosts.
#[derive(Clone, PartialEq, Eq, Hash, Default, Xdr)]
pub struct MountName(#[xdr(max = MAX_MOUNT_NAME)] Vec<u8>);

impl MountName {
    /// Creates a name from bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for MountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for MountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// `mountstat3` without `MNT3_OK`: the reason why MNT failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Xdr)]
pub enum MountStatus {
    /// `MNT3ERR_PERM`: not the owner.
    Perm = 1,
    /// `MNT3ERR_NOENT`: no such export.
    NoEnt = 2,
    /// `MNT3ERR_IO`: a hard error of the storage.
    Io = 5,
    /// `MNT3ERR_ACCES`: this client may not mount the directory.
    Acces = 13,
    /// `MNT3ERR_NOTDIR`: not a directory.
    NotDir = 20,
    /// `MNT3ERR_INVAL`: an invalid argument.
    Inval = 22,
    /// `MNT3ERR_NAMETOOLONG`: a path longer than [`MAX_MOUNT_PATH`].
    NameTooLong = 63,
    /// `MNT3ERR_NOTSUPP`: the server does not have this operation.
    NotSupp = 10004,
    /// `MNT3ERR_SERVERFAULT`: an error without a status of its own.
    ServerFault = 10006,
}

impl MountStatus {
    /// Every status that RFC 1813 defines, without MNT3_OK.
    pub const ALL: [Self; 9] = [
        Self::Perm,
        Self::NoEnt,
        Self::Io,
        Self::Acces,
        Self::NotDir,
        Self::Inval,
        Self::NameTooLong,
        Self::NotSupp,
        Self::ServerFault,
    ];

    /// Returns the name in RFC 1813.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perm => "MNT3ERR_PERM",
            Self::NoEnt => "MNT3ERR_NOENT",
            Self::Io => "MNT3ERR_IO",
            Self::Acces => "MNT3ERR_ACCES",
            Self::NotDir => "MNT3ERR_NOTDIR",
            Self::Inval => "MNT3ERR_INVAL",
            Self::NameTooLong => "MNT3ERR_NAMETOOLONG",
            Self::NotSupp => "MNT3ERR_NOTSUPP",
            Self::ServerFault => "MNT3ERR_SERVERFAULT",
        }
    }
}

impl fmt::Display for MountStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Perm => "operation not permitted",
            Self::NoEnt => "no such export",
            Self::Io => "input/output error on the server",
            Self::Acces => "this client may not mount it",
            Self::NotDir => "not a directory",
            Self::Inval => "invalid argument",
            Self::NameTooLong => "path too long",
            Self::NotSupp => "operation not supported by the server",
            Self::ServerFault => "server fault",
        };
        write!(f, "{text} ({})", self.name())
    }
}

/// Kerberos, as the MOUNT service lists it: proof of the caller only (RFC 2623 §2.2).
pub const KRB5: u32 = 390_003;
/// Kerberos with integrity.
pub const KRB5I: u32 = 390_004;
/// Kerberos with privacy.
pub const KRB5P: u32 = 390_005;

/// The results of a successful MNT: `mountres3_ok` (RFC 1813 §5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct MountOk {
    /// The handle of the directory.
    pub handle: FileHandle,
    /// RPC authentication flavors that the server accepts with this handle.
    #[xdr(max = MAX_AUTH_FLAVORS)]
    pub auth_flavors: Vec<u32>,
}

/// The results of MNT: `mountres3` (RFC 1813 §5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub enum MountResult {
    /// `MNT3_OK`.
    #[xdr(value = 0)]
    Ok(MountOk),
    /// Any other status.
    #[xdr(default)]
    Fail(MountStatus),
}

/// `mountbody`: a client, and a directory that it has mounted.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct MountBody {
    /// The client.
    pub hostname: MountName,
    /// The directory.
    pub directory: DirPath,
}

/// `mountlist`: the answer to DUMP.
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct MountList {
    /// Mounts that the server remembers.
    #[xdr(list, max = MAX_EXPORTS)]
    pub mounts: Vec<MountBody>,
}

/// `groups`: hosts that may mount an export; an empty list allows all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct Groups {
    /// Hosts, or groups of hosts.
    #[xdr(list, max = MAX_EXPORTS)]
    pub names: Vec<MountName>,
}

/// One export of a server: `exportnode` (RFC 1813 §5.2.5).
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ExportNode {
    /// The path to give to MNT.
    pub directory: DirPath,
    /// Hosts that may mount the export.
    pub groups: Groups,
}

/// `exports`: the answer to EXPORT.
#[derive(Debug, Clone, PartialEq, Eq, Default, Xdr)]
pub struct Exports {
    /// Exports of the server.
    #[xdr(list, max = MAX_EXPORTS)]
    pub exports: Vec<ExportNode>,
}

/// MNT: returns the first handle of an export (RFC 1813 §5.2.1).
#[derive(Debug, Clone, Copy)]
pub struct Mnt;

/// DUMP: returns the mounts that the server remembers (RFC 1813 §5.2.2).
#[derive(Debug, Clone, Copy)]
pub struct Dump;

/// UMNT: forgets a mount (RFC 1813 §5.2.3).
#[derive(Debug, Clone, Copy)]
pub struct Umnt;

/// UMNTALL: forgets all mounts of the caller (RFC 1813 §5.2.4).
#[derive(Debug, Clone, Copy)]
pub struct UmntAll;

/// EXPORT: returns the exports (RFC 1813 §5.2.5).
#[derive(Debug, Clone, Copy)]
pub struct Export;

procedures! {
    /// A procedure of MOUNT version 3 (RFC 1813 §5.2). All procedures can be repeated without harm: their state is of no
    /// consequence.
    pub enum MountProcedure, program MOUNT_PROGRAM, version MOUNT_VERSION;
    Mnt = 1, "MNT", Mnt: (DirPath) -> MountResult, Idempotent;
    Dump = 2, "DUMP", Dump: (()) -> MountList, Idempotent, bounds list;
    Umnt = 3, "UMNT", Umnt: (DirPath) -> (), Idempotent;
    UmntAll = 4, "UMNTALL", UmntAll: (()) -> (), Idempotent;
    Export = 5, "EXPORT", Export: (()) -> Exports, Idempotent, bounds list;
}

/// Returns the largest list that a client takes.
fn list((): &()) -> Bounds {
    Bounds::inline(MAX_MOUNT_LIST)
}

#[cfg(test)]
mod tests;
