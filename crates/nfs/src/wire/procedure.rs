//! The procedures of NFS version 3: numbers, names, arguments and results (RFC 1813 §3).

use std::fmt;

use rpcrdma_oncrpc::Effect;
use rpcrdma_xdr::{Bounded, Decode, Encode};

use super::{
    AccessArgs, AccessOk, Attributes, CommitArgs, CommitOk, CreateArgs, FsinfoArgs, FsinfoOk, FsstatArgs,
    FsstatOk, GetattrArgs, LinkArgs, LinkAttributes, LookupArgs, LookupOk, MkdirArgs, MknodArgs, NewObject,
    PathconfArgs, PathconfOk, PostOpAttr, ReadArgs, ReadOk, ReaddirArgs, ReaddirOk, ReaddirplusArgs,
    ReaddirplusOk, ReadlinkArgs, ReadlinkOk, RemoveArgs, RenameArgs, RenameWcc, RmdirArgs, SetattrArgs,
    SymlinkArgs, WccData, WriteArgs, WriteOk,
};

macro_rules! procedures {
    ($($variant:ident = $number:literal, $name:literal, $effect:ident;)*) => {
        /// A procedure of NFS version 3 (RFC 1813 §3).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NfsProcedure {
            $(#[doc = concat!("Procedure ", $number, ", ", $name, ".")] $variant = $number,)*
        }

        impl NfsProcedure {
            /// All 22 procedures, by number.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the procedure of this number.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the procedure's number.
            pub fn number(self) -> u32 {
                self as u32
            }

            /// Returns the procedure's name, for instance `READDIRPLUS`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the kind of change that the procedure makes (RFC 1813 §4.5). The duplicate request
            /// cache keeps the replies of all procedures that are not idempotent. It keeps those of WRITE
            /// too: a late repetition would undo a WRITE that came between.
            pub fn effect(self) -> Effect {
                match self {
                    $(Self::$variant => Effect::$effect,)*
                }
            }
        }
    };
}

procedures! {
    Null = 0, "NULL", Idempotent;
    Getattr = 1, "GETATTR", Idempotent;
    Setattr = 2, "SETATTR", State;
    Lookup = 3, "LOOKUP", Idempotent;
    Access = 4, "ACCESS", Idempotent;
    Readlink = 5, "READLINK", Idempotent;
    Read = 6, "READ", Idempotent;
    Write = 7, "WRITE", Data;
    Create = 8, "CREATE", State;
    Mkdir = 9, "MKDIR", State;
    Symlink = 10, "SYMLINK", State;
    Mknod = 11, "MKNOD", State;
    Remove = 12, "REMOVE", State;
    Rmdir = 13, "RMDIR", State;
    Rename = 14, "RENAME", State;
    Link = 15, "LINK", State;
    Readdir = 16, "READDIR", Idempotent;
    Readdirplus = 17, "READDIRPLUS", Idempotent;
    Fsstat = 18, "FSSTAT", Idempotent;
    Fsinfo = 19, "FSINFO", Idempotent;
    Pathconf = 20, "PATHCONF", Idempotent;
    Commit = 21, "COMMIT", Idempotent;
}

impl fmt::Display for NfsProcedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Arguments of a procedure, with the procedure and its results as associated types. NULL, without arguments
/// and results, has no implementation.
pub trait NfsCall: Encode + Decode + Bounded + Send + Sync + 'static {
    /// The procedure.
    const PROCEDURE: NfsProcedure;
    /// The `...resok` structure.
    type Ok: Encode + Decode + Bounded + Send + 'static;
    /// The `...resfail` structure.
    type Fail: Encode + Decode + Bounded + Send + 'static;
}

macro_rules! calls {
    ($($arguments:ty => $variant:ident, $ok:ty, $fail:ty;)*) => {
        $(impl NfsCall for $arguments {
            const PROCEDURE: NfsProcedure = NfsProcedure::$variant;
            type Ok = $ok;
            type Fail = $fail;
        })*
    };
}

calls! {
    GetattrArgs => Getattr, Attributes, ();
    SetattrArgs => Setattr, WccData, WccData;
    LookupArgs => Lookup, LookupOk, PostOpAttr;
    AccessArgs => Access, AccessOk, PostOpAttr;
    ReadlinkArgs => Readlink, ReadlinkOk, PostOpAttr;
    ReadArgs => Read, ReadOk, PostOpAttr;
    WriteArgs => Write, WriteOk, WccData;
    CreateArgs => Create, NewObject, WccData;
    MkdirArgs => Mkdir, NewObject, WccData;
    SymlinkArgs => Symlink, NewObject, WccData;
    MknodArgs => Mknod, NewObject, WccData;
    RemoveArgs => Remove, WccData, WccData;
    RmdirArgs => Rmdir, WccData, WccData;
    RenameArgs => Rename, RenameWcc, RenameWcc;
    LinkArgs => Link, LinkAttributes, LinkAttributes;
    ReaddirArgs => Readdir, ReaddirOk, PostOpAttr;
    ReaddirplusArgs => Readdirplus, ReaddirplusOk, PostOpAttr;
    FsstatArgs => Fsstat, FsstatOk, PostOpAttr;
    FsinfoArgs => Fsinfo, FsinfoOk, PostOpAttr;
    PathconfArgs => Pathconf, PathconfOk, PostOpAttr;
    CommitArgs => Commit, CommitOk, WccData;
}
