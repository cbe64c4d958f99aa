//! The program EXTENTS, a private RPC program beside NFS version 3. It reports which ranges of a file have
//! data; NFS version 3 cannot tell holes from zeros.
//!
//! *An extension.* No document defines this program. Its number is from the range that RFC 5531 §8.3 leaves
//! to users. Another server answers PROG_UNAVAIL, and the client then reads everything. Another client never
//! calls it.
//!
//! ```text
//! program EXTENTS_PROGRAM {
//!     version EXTENTS_V1 {
//!         void           NULL(void)              = 0;
//!         EXTENTS1res    EXTENTS(EXTENTS1args)   = 1;
//!     } = 1;
//! } = 0x20524458;
//! ```
//!
//! EXTENTS returns the ranges of a file, from an offset on, that may have other bytes than zeros. The parts
//! between them read as zeros. The server makes the checks of READ: handle, allowed addresses, squashing,
//! right to read.
//!
//! *Where it is used.* This module has types and numbers. [`ExtentsProgram`](crate::server::ExtentsProgram)
//! is the server's side, based on [`FileSystem::extents`](crate::fs::FileSystem::extents). The client calls
//! EXTENTS only in `client::extents`, when it copies a file whose attributes show less storage than its
//! length.

use rpcrdma_oncrpc::Effect;
use rpcrdma_oncrpc::typed::Procedure;
use rpcrdma_xdr::Xdr;

use crate::wire::{FileHandle, NfsResult};

/// RPC program number of EXTENTS, from the range 0x20000000 to 0x3fffffff for users (RFC 5531 §8.3).
pub const EXTENTS_PROGRAM: u32 = 0x2052_4458;
/// Version of the program.
pub const EXTENTS_VERSION: u32 = 1;
/// Most ranges in one reply.
pub const MAX_EXTENTS: usize = 256;

/// Arguments of EXTENTS, which are its type ([`Procedure`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ExtentsArgs {
    /// The file.
    pub file: FileHandle,
    /// Start of the range of interest, in bytes.
    pub offset: u64,
    /// Most ranges to return, limited to [`MAX_EXTENTS`].
    pub count: u32,
}

/// Part of a file that may have other bytes than zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct Extent {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes, not 0. The range may extend beyond the end of the file.
    pub length: u64,
}

/// Results of EXTENTS.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ExtentsOk {
    /// Ranges in the order of their offsets. They do not overlap, and none begins before the offset asked
    /// for.
    #[xdr(max = MAX_EXTENTS)]
    pub extents: Vec<Extent>,
    /// Whether only a hole follows the last range.
    pub complete: bool,
}

/// `EXTENTS1res`: a status, and the ranges if it is NFS3_OK.
pub type ExtentsResult = NfsResult<ExtentsOk, ()>;

impl Procedure for ExtentsArgs {
    type Arguments = Self;
    type Results = ExtentsResult;
    const PROGRAM: u32 = EXTENTS_PROGRAM;
    const VERSION: u32 = EXTENTS_VERSION;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "EXTENTS";
    const EFFECT: Effect = Effect::Idempotent;
}
