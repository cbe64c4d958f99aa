//! The procedures of NFS version 3: numbers, names, arguments and results (RFC 1813 §3).
//!
//! The arguments of a procedure are its type ([`Procedure`]). The types mark the four DDP-eligible items of RFC 8267 §4,
//! and state the largest results. Three procedures bound theirs by their arguments: READ, READDIR and READDIRPLUS.

use rpcrdma_oncrpc::typed::{Bounds, Procedure};
use rpcrdma_xdr::{Bounded, Decode, Encode};

use super::{
    AccessArgs, AccessOk, Attributes, CommitArgs, CommitOk, CreateArgs, FsinfoArgs, FsinfoOk, FsstatArgs,
    FsstatOk, GetattrArgs, LinkArgs, LinkAttributes, LookupArgs, LookupOk, MkdirArgs, MknodArgs, NFS_PROGRAM,
    NFS_VERSION, NewObject, NfsResult, PathconfArgs, PathconfOk, PostOpAttr, ReadArgs, ReadOk, ReadResult,
    ReaddirArgs, ReaddirOk, ReaddirplusArgs, ReaddirplusOk, ReadlinkArgs, ReadlinkOk, RemoveArgs, RenameArgs,
    RenameWcc, RmdirArgs, SetattrArgs, SymlinkArgs, WccData, WriteArgs, WriteOk,
};
use crate::procedures::procedures;

/// Arguments of a procedure, which are its type, with the parts of its results.
pub trait NfsCall:
    Procedure<Arguments = Self, Results = NfsResult<<Self as NfsCall>::Ok, <Self as NfsCall>::Fail>>
    + Encode
    + Decode
    + Bounded
{
    /// The procedure.
    const PROCEDURE: NfsProcedure;
    /// The `...resok` structure.
    type Ok: Encode + Decode + Bounded + Send + 'static;
    /// The `...resfail` structure.
    type Fail: Encode + Decode + Bounded + Send + 'static;
}

macro_rules! calls {
    ($(
        $variant:ident = $number:literal, $name:literal, $effect:ident,
        $arguments:ty => $ok:ty, $fail:ty $(, bounds $bounds:expr)?;
    )*) => {
        procedures! {
            /// A procedure of NFS version 3 (RFC 1813 §3). The duplicate request cache keeps the replies of all
            /// procedures that are not idempotent (RFC 1813 §4.5). It keeps those of WRITE too: a late repetition
            /// would undo a WRITE that came between.
            pub enum NfsProcedure, program NFS_PROGRAM, version NFS_VERSION;
            $(
                $variant = $number, $name,
                $arguments: ($arguments) -> NfsResult<$ok, $fail>, $effect $(, bounds $bounds)?;
            )*
        }

        $(impl NfsCall for $arguments {
            const PROCEDURE: NfsProcedure = NfsProcedure::$variant;
            type Ok = $ok;
            type Fail = $fail;
        })*
    };
}

calls! {
    Getattr = 1, "GETATTR", Idempotent, GetattrArgs => Attributes, ();
    Setattr = 2, "SETATTR", State, SetattrArgs => WccData, WccData;
    Lookup = 3, "LOOKUP", Idempotent, LookupArgs => LookupOk, PostOpAttr;
    Access = 4, "ACCESS", Idempotent, AccessArgs => AccessOk, PostOpAttr;
    Readlink = 5, "READLINK", Idempotent, ReadlinkArgs => ReadlinkOk, PostOpAttr;
    Read = 6, "READ", Idempotent, ReadArgs => ReadOk, PostOpAttr, bounds read;
    Write = 7, "WRITE", Data, WriteArgs => WriteOk, WccData;
    Create = 8, "CREATE", State, CreateArgs => NewObject, WccData;
    Mkdir = 9, "MKDIR", State, MkdirArgs => NewObject, WccData;
    Symlink = 10, "SYMLINK", State, SymlinkArgs => NewObject, WccData;
    Mknod = 11, "MKNOD", State, MknodArgs => NewObject, WccData;
    Remove = 12, "REMOVE", State, RemoveArgs => WccData, WccData;
    Rmdir = 13, "RMDIR", State, RmdirArgs => WccData, WccData;
    Rename = 14, "RENAME", State, RenameArgs => RenameWcc, RenameWcc;
    Link = 15, "LINK", State, LinkArgs => LinkAttributes, LinkAttributes;
    Readdir = 16, "READDIR", Idempotent, ReaddirArgs => ReaddirOk, PostOpAttr,
        bounds |arguments| listing(arguments.count);
    Readdirplus = 17, "READDIRPLUS", Idempotent, ReaddirplusArgs => ReaddirplusOk, PostOpAttr,
        bounds |arguments| listing(arguments.maxcount);
    Fsstat = 18, "FSSTAT", Idempotent, FsstatArgs => FsstatOk, PostOpAttr;
    Fsinfo = 19, "FSINFO", Idempotent, FsinfoArgs => FsinfoOk, PostOpAttr;
    Pathconf = 20, "PATHCONF", Idempotent, PathconfArgs => PathconfOk, PostOpAttr;
    Commit = 21, "COMMIT", Idempotent, CommitArgs => CommitOk, WccData;
}

/// Converts a count. `usize` has at least 32 bits on every supported platform; on a smaller one the result saturates.
fn bytes(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the largest results of a READ: data of the length asked for (RFC 1813 §3.3.6).
fn read(arguments: &ReadArgs) -> Bounds {
    Bounds::inline(ReadResult::MAX_LEN).item(bytes(arguments.count))
}

/// Returns the largest results of a listing. The count covers the whole `...resok` with its XDR overhead (RFC 1813
/// §3.3.16, §3.3.17). A failure has attributes.
fn listing(count: u32) -> Bounds {
    Bounds::inline(u32::MAX_LEN.saturating_add(bytes(count).max(PostOpAttr::MAX_LEN)))
}
