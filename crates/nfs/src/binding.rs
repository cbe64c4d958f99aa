//! The Upper-Layer Binding of NFS version 3 and MOUNT (RFC 8267 §3, §4 and §5).
//!
//! The types themselves mark the items that may travel in chunks (`#[xdr(ddp)]` in [`wire`](crate::wire)).
//! This module states their number for each procedure, and the largest size of a reply, so that a client
//! offers enough memory for it. By RFC 8267 §4.1 the reply to every procedure of NFS version 3 is
//! predictable, and a client that offers too little is wrong.

use rpcrdma_oncrpc::CacheLimits;
use rpcrdma_proto::Eligibility;

use crate::mount::{MAX_AUTH_FLAVORS, MountProcedure};
use crate::wire::{
    AccessArgs, Attributes, CommitArgs, CreateArgs, FsinfoArgs, FsstatArgs, GetattrArgs, LinkArgs,
    LookupArgs, MAX_HANDLE, MAX_PATH, MkdirArgs, MknodArgs, NfsCall, NfsProcedure, PathconfArgs, ReadArgs,
    ReaddirArgs, ReaddirplusArgs, ReadlinkArgs, RemoveArgs, RenameArgs, RmdirArgs, SetattrArgs, SymlinkArgs,
    VERIFIER_SIZE, WccData, WriteArgs,
};

/// Returns the DDP-eligible items of a procedure of NFS version 3. These are the data of WRITE, the path of
/// SYMLINK, the data of READ and the path of READLINK, and no others (RFC 8267 §4).
pub fn eligibility(procedure: NfsProcedure) -> Eligibility {
    match procedure {
        NfsProcedure::Write | NfsProcedure::Symlink => Eligibility { arguments: 1, results: 0 },
        NfsProcedure::Read | NfsProcedure::Readlink => Eligibility { arguments: 0, results: 1 },
        _ => Eligibility::default(),
    }
}

/// Largest results of a call, in bytes of XDR without the RPC reply header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargestResults {
    /// All items; the DDP-eligible item counts with its length word only.
    pub inline: usize,
    /// The DDP-eligible item, without its pad; `None` if the procedure has none.
    pub payload: Option<usize>,
}

impl LargestResults {
    /// Returns the size of results without an eligible item.
    const fn plain(inline: usize) -> Self {
        Self { inline, payload: None }
    }

    /// Returns the size if everything travels inline or in the Reply chunk, including the payload's pad.
    pub fn unreduced(self) -> usize {
        self.inline.saturating_add(self.payload.map_or(0, |payload| payload.saturating_add(3) & !3))
    }
}

/// Encoded sizes of the parts of results (RFC 1813 §2.6).
const STATUS: usize = 4;
const POST_OP_ATTR: usize = 4 + Attributes::SIZE;
const WCC_DATA: usize = WccData::MAX_SIZE;
const HANDLE: usize = 4 + MAX_HANDLE;
const POST_OP_HANDLE: usize = 4 + HANDLE;
const NEW_OBJECT: usize = STATUS + POST_OP_HANDLE + POST_OP_ATTR + WCC_DATA;

/// Most bytes of an RPC reply in front of the results, with a verifier of 400 bytes (RFC 5531 §8.2, §9).
const REPLY_HEADER: usize = 24 + 400;

/// Most bytes offered for the lists that DUMP and EXPORT of MOUNT return. The protocol sets no limit; a
/// client requests a longer list of exports again over TCP.
pub const MAX_MOUNT_LIST: usize = 256 << 10;

/// A call whose arguments determine the size of its largest results (RFC 8267 §3).
pub trait PredictReply: NfsCall {
    /// Returns the size of the largest results of this call, whether it succeeds or fails.
    fn largest_results(&self) -> LargestResults;
}

macro_rules! fixed {
    ($($arguments:ty => $bytes:expr;)*) => {
        $(impl PredictReply for $arguments {
            fn largest_results(&self) -> LargestResults {
                LargestResults::plain($bytes)
            }
        }
        // All procedures that are not idempotent are in this list: the reply cache must hold their longest
        // replies.
        const _: () = assert!(REPLY_HEADER + $bytes <= CacheLimits::REPLY_LEN);)*
    };
}

fixed! {
    GetattrArgs => STATUS + Attributes::SIZE;
    SetattrArgs => STATUS + WCC_DATA;
    LookupArgs => STATUS + HANDLE + 2 * POST_OP_ATTR;
    AccessArgs => STATUS + POST_OP_ATTR + 4;
    WriteArgs => STATUS + WCC_DATA + 4 + 4 + VERIFIER_SIZE;
    CreateArgs => NEW_OBJECT;
    MkdirArgs => NEW_OBJECT;
    SymlinkArgs => NEW_OBJECT;
    MknodArgs => NEW_OBJECT;
    RemoveArgs => STATUS + WCC_DATA;
    RmdirArgs => STATUS + WCC_DATA;
    RenameArgs => STATUS + 2 * WCC_DATA;
    LinkArgs => STATUS + POST_OP_ATTR + WCC_DATA;
    FsstatArgs => STATUS + POST_OP_ATTR + 6 * 8 + 4;
    FsinfoArgs => STATUS + POST_OP_ATTR + 7 * 4 + 8 + 8 + 4;
    PathconfArgs => STATUS + POST_OP_ATTR + 6 * 4;
    CommitArgs => STATUS + WCC_DATA + VERIFIER_SIZE;
}

/// Converts a count. `usize` has at least 32 bits on every supported platform; on a smaller one the result
/// saturates.
fn bytes(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl PredictReply for ReadArgs {
    fn largest_results(&self) -> LargestResults {
        LargestResults { inline: STATUS + POST_OP_ATTR + 4 + 4 + 4, payload: Some(bytes(self.count)) }
    }
}

impl PredictReply for ReadlinkArgs {
    fn largest_results(&self) -> LargestResults {
        LargestResults { inline: STATUS + POST_OP_ATTR + 4, payload: Some(MAX_PATH) }
    }
}

// RFC 1813 §3.3.16, §3.3.17: the count covers the whole ...resok with its XDR overhead; a failure carries
// attributes.
impl PredictReply for ReaddirArgs {
    fn largest_results(&self) -> LargestResults {
        LargestResults::plain(STATUS.saturating_add(bytes(self.count).max(POST_OP_ATTR)))
    }
}

impl PredictReply for ReaddirplusArgs {
    fn largest_results(&self) -> LargestResults {
        LargestResults::plain(STATUS.saturating_add(bytes(self.maxcount).max(POST_OP_ATTR)))
    }
}

/// Returns the size of the largest results of a procedure of MOUNT, which has no DDP-eligible item.
pub fn largest_mount_results(procedure: MountProcedure) -> LargestResults {
    LargestResults::plain(match procedure {
        MountProcedure::Null | MountProcedure::Umnt | MountProcedure::UmntAll => 0,
        MountProcedure::Mnt => STATUS + HANDLE + 4 + 4 * MAX_AUTH_FLAVORS,
        MountProcedure::Dump | MountProcedure::Export => MAX_MOUNT_LIST,
    })
}
