//! The MOUNT protocol, version 3 (RFC 1813 Appendix I): from the path of an export to its first file handle.
//!
//! RFC 8267 §5.1 requires MOUNT over TCP; this crate serves and uses MOUNT on RPC-over-RDMA too. No item of MOUNT is
//! DDP-eligible.

mod client;
pub mod server;
mod types;

#[cfg(test)]
mod tests;

pub use client::MountClient;
pub use types::{
    DirPath, ExportNode, Exports, Groups, MAX_AUTH_FLAVORS, MAX_EXPORTS, MAX_MOUNT_NAME, MAX_MOUNT_PATH,
    MountBody, MountList, MountName, MountOk, MountProcedure, MountResult, MountStatus,
};

/// RPC program number of MOUNT (RFC 1813 §5.1.2).
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The protocol version of this module (RFC 1813 §5.1.2).
pub const MOUNT_VERSION: u32 = 3;
