//! The Upper-Layer Binding of NFS version 3 and MOUNT (RFC 8267 §3, §4 and §5).
//!
//! Which items may travel in chunks is marked on the types themselves (`#[xdr(ddp)]` in [`wire`](crate::wire)); this
//! module says how many there are per procedure, and how large a reply can be, so that a client offers enough room
//! for it: by RFC 8267 §4.1 the reply to every procedure of NFS version 3 is predictable, and a client that offers
//! too little is wrong.

use rpcrdma_oncrpc::CacheLimits;
use rpcrdma_proto::Eligibility;

use crate::mount::{MAX_AUTH_FLAVORS, MountProcedure};
use crate::wire::{
    AccessArgs, Attributes, CommitArgs, CreateArgs, FsinfoArgs, FsstatArgs, GetattrArgs, LinkArgs,
    LookupArgs, MAX_HANDLE, MAX_PATH, MkdirArgs, MknodArgs, NfsCall, NfsProcedure, PathconfArgs, ReadArgs,
    ReaddirArgs, ReaddirplusArgs, ReadlinkArgs, RemoveArgs, RenameArgs, RmdirArgs, SetattrArgs, SymlinkArgs,
    VERIFIER_SIZE, WccData, WriteArgs,
};

/// The DDP-eligible items of an NFS version 3 procedure: the data of WRITE and the path of SYMLINK, the data of READ
/// and the path of READLINK, and no other (RFC 8267 §4).
pub fn eligibility(procedure: NfsProcedure) -> Eligibility {
    match procedure {
        NfsProcedure::Write | NfsProcedure::Symlink => Eligibility { arguments: 1, results: 0 },
        NfsProcedure::Read | NfsProcedure::Readlink => Eligibility { arguments: 0, results: 1 },
        _ => Eligibility::default(),
    }
}

/// The largest results that a call can have, in bytes of XDR without the RPC reply header in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargestResults {
    /// All items; of the DDP-eligible one its length word only.
    pub inline: usize,
    /// The DDP-eligible item, without its pad; `None` if the procedure has none.
    pub payload: Option<usize>,
}

impl LargestResults {
    /// Results without an eligible item.
    const fn plain(inline: usize) -> Self {
        Self { inline, payload: None }
    }

    /// Bytes when everything travels inline or in the Reply chunk, the payload's pad included.
    pub fn unreduced(self) -> usize {
        self.inline.saturating_add(self.payload.map_or(0, |payload| payload.saturating_add(3) & !3))
    }
}

/// Encoded sizes of the parts that results are made of (RFC 1813 §2.6).
const STATUS: usize = 4;
const POST_OP_ATTR: usize = 4 + Attributes::SIZE;
const WCC_DATA: usize = WccData::MAX_SIZE;
const HANDLE: usize = 4 + MAX_HANDLE;
const POST_OP_HANDLE: usize = 4 + HANDLE;
const NEW_OBJECT: usize = STATUS + POST_OP_HANDLE + POST_OP_ATTR + WCC_DATA;

/// Most bytes of an RPC reply in front of the results, with a verifier of 400 bytes (RFC 5531 §8.2, §9).
const REPLY_HEADER: usize = 24 + 400;

/// Most bytes offered for the lists that DUMP and EXPORT of MOUNT return. They have no limit in the protocol; a
/// longer list of exports is asked for again over TCP.
pub const MAX_MOUNT_LIST: usize = 256 << 10;

/// A call whose largest results can be told from its arguments (RFC 8267 §3).
pub trait PredictReply: NfsCall {
    /// The largest results of this call, whether it succeeds or fails.
    fn largest_results(&self) -> LargestResults;
}

macro_rules! fixed {
    ($($arguments:ty => $bytes:expr;)*) => {
        $(impl PredictReply for $arguments {
            fn largest_results(&self) -> LargestResults {
                LargestResults::plain($bytes)
            }
        }
        // All procedures that are not idempotent are here: the reply cache keeps their replies, however long.
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

/// `usize` is at least 32 bits wide wherever this runs; a smaller one saturates.
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

// RFC 1813 §3.3.16, §3.3.17: the count covers the whole ...resok with its XDR overhead; a failure carries attributes.
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

/// The largest results of a procedure of MOUNT (none of its items is DDP-eligible).
pub fn largest_mount_results(procedure: MountProcedure) -> LargestResults {
    LargestResults::plain(match procedure {
        MountProcedure::Null | MountProcedure::Umnt | MountProcedure::UmntAll => 0,
        MountProcedure::Mnt => STATUS + HANDLE + 4 + 4 * MAX_AUTH_FLAVORS,
        MountProcedure::Dump | MountProcedure::Export => MAX_MOUNT_LIST,
    })
}
