//! Where a file has data: a small RPC program of our own beside NFS version 3, which cannot tell holes from zeros.
//!
//! *An extension.* No document defines it. The program number is from the range that RFC 5531 §8.3 leaves to users. A
//! server of others answers PROG_UNAVAIL, and a client then reads everything. A client of others never asks.
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
//! EXTENTS gives the ranges of a file, from an offset on, that may have other bytes than zeros. The parts between them read as
//! zeros. The server answers under the checks of READ: handle, allowed addresses, squashing, right to read.
//!
//! *The doors.* This module has types and numbers. The server's side is [`ExtentsProgram`](crate::server::ExtentsProgram),
//! on [`FileSystem::extents`](crate::fs::FileSystem::extents). The client asks in `client::extents` only, when it copies
//! a file whose attributes say that less storage is used than the file is long.

use rpcrdma_xdr::Xdr;

use crate::wire::{FileHandle, NfsResult};

/// The program number: of the range 0x20000000 to 0x3fffffff, which users define (RFC 5531 §8.3).
pub const EXTENTS_PROGRAM: u32 = 0x2052_4458;
/// Its version.
pub const EXTENTS_VERSION: u32 = 1;
/// Most ranges in one reply.
pub const MAX_EXTENTS: usize = 256;

/// A procedure of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentsProcedure {
    /// Procedure 0: does nothing.
    Null = 0,
    /// Procedure 1: ranges with data.
    Extents = 1,
}

impl ExtentsProcedure {
    /// The procedure of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Null),
            1 => Some(Self::Extents),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Extents => "EXTENTS",
        }
    }
}

/// Arguments of EXTENTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct ExtentsArgs {
    /// The file.
    pub file: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// Most ranges to return; more than [`MAX_EXTENTS`] counts as that.
    pub count: u32,
}

/// Part of a file that may have other bytes than zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Xdr)]
pub struct Extent {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes, not 0. It may go beyond the end of the file.
    pub length: u64,
}

/// Results of EXTENTS.
#[derive(Debug, Clone, PartialEq, Eq, Xdr)]
pub struct ExtentsOk {
    /// In the order of their offsets; none of them before the offset that was asked for, and none overlaps another.
    #[xdr(max = MAX_EXTENTS)]
    pub extents: Vec<Extent>,
    /// Whether there is nothing but a hole behind the last of them.
    pub complete: bool,
}

/// `EXTENTS1res`: a status, and the ranges if it is NFS3_OK.
pub type ExtentsResult = NfsResult<ExtentsOk, ()>;

/// Encoded bytes of the largest results: status, count, ranges, `complete`.
pub const MAX_EXTENTS_RESULTS: usize = 4 + 4 + 16 * MAX_EXTENTS + 4;
