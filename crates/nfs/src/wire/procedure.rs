//! The procedures of NFS version 3: numbers, names, what belongs together (RFC 1813 §3).

use std::fmt;

use rpcrdma_xdr::{Decode, Encode};

use super::{
    AccessArgs, AccessOk, Attributes, CommitArgs, CommitOk, CreateArgs, FsinfoArgs, FsinfoOk, FsstatArgs,
    FsstatOk, GetattrArgs, LinkArgs, LinkAttributes, LookupArgs, LookupOk, MkdirArgs, MknodArgs, NewObject,
    PathconfArgs, PathconfOk, PostOpAttr, ReadArgs, ReadOk, ReaddirArgs, ReaddirOk, ReaddirplusArgs,
    ReaddirplusOk, ReadlinkArgs, ReadlinkOk, RemoveArgs, RenameArgs, RenameWcc, RmdirArgs, SetattrArgs,
    SymlinkArgs, WccData, WriteArgs, WriteOk,
};

macro_rules! procedures {
    ($($variant:ident = $number:literal, $name:literal, $idempotent:literal;)*) => {
        /// A procedure of NFS version 3 (RFC 1813 §3).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NfsProcedure {
            $(#[doc = concat!("Procedure ", $number, ", ", $name, ".")] $variant = $number,)*
        }

        impl NfsProcedure {
            /// All 22, by number.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The procedure of this number.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its number.
            pub fn number(self) -> u32 {
                self as u32
            }

            /// Its name, for instance `READDIRPLUS`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Whether executing it again, at any later time, is the same as once (RFC 1813 §4.5): if not, its replies
            /// belong in the duplicate request cache. WRITE is among those: repeated late, it would undo a WRITE that
            /// came between.
            pub fn is_idempotent(self) -> bool {
                match self {
                    $(Self::$variant => $idempotent,)*
                }
            }
        }
    };
}

procedures! {
    Null = 0, "NULL", true;
    Getattr = 1, "GETATTR", true;
    Setattr = 2, "SETATTR", false;
    Lookup = 3, "LOOKUP", true;
    Access = 4, "ACCESS", true;
    Readlink = 5, "READLINK", true;
    Read = 6, "READ", true;
    Write = 7, "WRITE", false;
    Create = 8, "CREATE", false;
    Mkdir = 9, "MKDIR", false;
    Symlink = 10, "SYMLINK", false;
    Mknod = 11, "MKNOD", false;
    Remove = 12, "REMOVE", false;
    Rmdir = 13, "RMDIR", false;
    Rename = 14, "RENAME", false;
    Link = 15, "LINK", false;
    Readdir = 16, "READDIR", true;
    Readdirplus = 17, "READDIRPLUS", true;
    Fsstat = 18, "FSSTAT", true;
    Fsinfo = 19, "FSINFO", true;
    Pathconf = 20, "PATHCONF", true;
    Commit = 21, "COMMIT", true;
}

impl fmt::Display for NfsProcedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The arguments of a procedure know which procedure they belong to and what it returns. (NULL takes and returns
/// nothing and is not here.)
pub trait NfsCall: Encode + Decode + Send + Sync + 'static {
    /// The procedure.
    const PROCEDURE: NfsProcedure;
    /// Its `...resok`.
    type Ok: Encode + Decode + Send + 'static;
    /// Its `...resfail`.
    type Fail: Encode + Decode + Send + 'static;
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
