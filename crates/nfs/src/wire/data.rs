//! READ, WRITE and COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use rpcrdma_xdr::{Payload, Xdr};

use super::{FileHandle, MAX_PAYLOAD, NfsResult, PostOpAttr, Verifier, WccData};

/// `READ3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ReadArgs {
    /// The file.
    pub file: FileHandle,
    /// Start of the range, in bytes.
    pub offset: u64,
    /// Most bytes to return.
    pub count: u32,
}

/// `READ3resok`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ReadOk {
    /// `file_attributes`: the file's attributes.
    pub attributes: PostOpAttr,
    /// Bytes read: the length of `data`.
    pub count: u32,
    /// Whether the read reached the end of the file.
    pub eof: bool,
    /// The bytes, in the slices in which they arrived. DDP-eligible (RFC 8267 §4).
    #[xdr(ddp, max = MAX_PAYLOAD)]
    pub data: Payload,
}

/// `READ3res`.
pub type ReadResult = NfsResult<ReadOk, PostOpAttr>;

/// `stable_how`: how safe written data must be before the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Xdr)]
pub enum StableHow {
    /// `UNSTABLE`: no guarantee until COMMIT.
    Unstable = 0,
    /// `DATA_SYNC`: the data, and the metadata needed to read it, on stable storage.
    DataSync = 1,
    /// `FILE_SYNC`: data and all attributes on stable storage.
    FileSync = 2,
}

/// `WRITE3args`.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct WriteArgs {
    /// The file.
    pub file: FileHandle,
    /// Start of the range, in bytes.
    pub offset: u64,
    /// Bytes to write: the length of `data`.
    pub count: u32,
    /// Least stability required.
    pub stable: StableHow,
    /// The bytes, in the slices in which they arrived. DDP-eligible (RFC 8267 §4).
    #[xdr(ddp, max = MAX_PAYLOAD)]
    pub data: Payload,
}

/// `WRITE3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct WriteOk {
    /// The file's attributes before and after.
    pub file_wcc: WccData,
    /// Bytes written, possibly fewer than requested.
    pub count: u32,
    /// Stability of the data: at least the one requested.
    pub committed: StableHow,
    /// `writeverf3`: changes when the server may have lost unstable data.
    pub verifier: Verifier,
}

/// `WRITE3res`.
pub type WriteResult = NfsResult<WriteOk, WccData>;

/// `COMMIT3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct CommitArgs {
    /// The file.
    pub file: FileHandle,
    /// Start of the range, in bytes.
    pub offset: u64,
    /// Bytes in the range; 0 means up to the end of the file.
    pub count: u32,
}

/// `COMMIT3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct CommitOk {
    /// The file's attributes before and after.
    pub file_wcc: WccData,
    /// `writeverf3`: data written under another verifier must be written again.
    pub verifier: Verifier,
}

/// `COMMIT3res`.
pub type CommitResult = NfsResult<CommitOk, WccData>;
