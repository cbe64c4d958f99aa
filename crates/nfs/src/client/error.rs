//! Errors of the client's operations.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rpcrdma::CallError;
use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_xdr::DecodeError;

use crate::mount::{KRB5, KRB5I, KRB5P, MountStatus};
use crate::wire::{NameError, NfsProcedure, Status};

/// Error of an operation. There are three families. The server refused (`Nfs`, `Mount`), the call did not get
/// through (`Rpc`, `Transport`), or the server broke the protocol (`Protocol`). All others are refusals of
/// this client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with a status.
    #[error("{}{status} [{operation}]", prefix(.path))]
    Nfs {
        /// Status in the answer.
        status: Status,
        /// Procedure that the server answered.
        operation: NfsProcedure,
        /// Path of the operation; empty if it was called by handle.
        path: String,
    },
    /// The server does not let this client mount the export.
    #[error("cannot mount {path}: {status}")]
    Mount {
        /// Status in the answer.
        status: MountStatus,
        /// Path to mount.
        path: String,
    },
    /// The export allows other security flavours than that of this client.
    #[error("{path} allows {} only, and not {}", names(.allowed), flavor_name(*.used))]
    Flavor {
        /// Path to mount.
        path: String,
        /// The flavours of the export, as the MOUNT service lists them.
        allowed: Vec<u32>,
        /// The flavour of this client.
        used: u32,
    },
    /// The server refused the call itself: credential, program, version, procedure or arguments.
    #[error("{operation}: {source}")]
    Rpc {
        /// Name of the procedure.
        operation: &'static str,
        /// The refusal.
        source: Refused,
    },
    /// The call or its reply was lost, or there was no connection.
    #[error("{operation}: {source}")]
    Transport {
        /// Name of the procedure.
        operation: &'static str,
        /// Failure of the transport.
        source: CallError,
    },
    /// A copy that ended while the server could not be asked any more, so that its unfinished file may still be there.
    #[error("{error}; its unfinished file {leftover} may be left at the server")]
    Unfinished {
        /// Why the copy ended.
        #[source]
        error: Box<Self>,
        /// Name of the unfinished file, in the directory of the copy.
        leftover: String,
    },
    /// The server sent data that the protocol does not allow.
    #[error("the server broke the protocol in its answer to {operation}: {violation}")]
    Protocol {
        /// Name of the procedure.
        operation: &'static str,
        /// Violation of the protocol.
        violation: Violation,
    },
    /// A name that no directory entry can have.
    #[error("{path}: {source}")]
    Name {
        /// Path with that name in it.
        path: String,
        /// Fault of the name.
        source: NameError,
    },
    /// A path that names no entry to make, remove or rename: the root, or a path that ends in `..`.
    #[error("{path:?} does not end in a name")]
    NoName {
        /// The path.
        path: String,
    },
    /// A directory where a file is required, because `recursive` is not set.
    #[error("{path} is a directory (copy it recursively)")]
    IsDirectory {
        /// The directory.
        path: String,
    },
    /// A directory that is too deep for a copy.
    #[error("{path}: more than {limit} directories deep")]
    TooDeep {
        /// The directory.
        path: String,
        /// Greatest depth of a copy.
        limit: usize,
    },
    /// A directory that the server lists inside itself.
    #[error("{path} is a directory inside itself")]
    DirectoryLoop {
        /// The directory.
        path: String,
    },
    /// An object of another type that has the name already.
    #[error("{path} cannot be stored: at the server there is {what} of that name")]
    Exists {
        /// Path of the object to store.
        path: String,
        /// Type of the existing object, with an article.
        what: &'static str,
    },
    /// An object that a sync does not replace by one of another type, without [`SyncOptions::delete`].
    ///
    /// [`SyncOptions::delete`]: super::SyncOptions::delete
    #[error(
        "{path} is {what}, but the target has {there} of that name, which only a sync with delete replaces"
    )]
    OtherType {
        /// Path of the source.
        path: String,
        /// Type of the source, with an article.
        what: &'static str,
        /// Type of the object of the target, with an article.
        there: &'static str,
    },
    /// A directory of the target that has to go, but contains objects that stay.
    #[error("{path} cannot be removed: what the patterns exclude in it stays, without delete-excluded")]
    NotEmptied {
        /// Path of the directory.
        path: String,
    },
    /// A directory that a sync would delete, although it is the source.
    #[error("{path} is the source of this sync, and is not deleted")]
    IsSource {
        /// Path of the directory in the target.
        path: String,
    },
    /// A file that would be copied onto itself, because the server exports the local file.
    #[error("{path} and its target are the same file")]
    SameFile {
        /// The source.
        path: String,
    },
    /// A directory that contains its own copy.
    #[error("{path}: cannot copy a directory into itself")]
    IntoItself {
        /// The directory found again.
        path: String,
    },
    /// A source whose copy would have the same name as that of an earlier source of the command.
    #[error("{path} is not copied over the result of another source")]
    JustMade {
        /// The source.
        path: String,
    },
    /// A path with a slash at its end, which names a directory, where there is none.
    #[error("{}not a directory: {seen}", prefix(.path))]
    NotDirectory {
        /// The path.
        path: String,
        /// What there is instead, for a message.
        seen: &'static str,
    },
    /// Another type of object where a regular file is required.
    #[error("{path} is {what}, not a regular file")]
    NotRegular {
        /// The object.
        path: String,
        /// Type of the object, with an article.
        what: &'static str,
    },
    /// More symbolic links on the way than [`MAX_SYMLINKS`](super::MAX_SYMLINKS).
    #[error("{path}: more than {} symbolic links on the way", super::MAX_SYMLINKS)]
    TooManyLinks {
        /// The path.
        path: String,
    },
    /// Neither the NFS connection nor TCP led to a MOUNT service.
    #[error("no MOUNT service at {host}: {reason}")]
    NoMountService {
        /// The server.
        host: String,
        /// Failed attempts.
        reason: String,
    },
    /// A local file could not be read or written.
    #[error("{}: {source}", path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Violation of the protocol by a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Malformed results.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// READ returned more than requested, or a count that differs from the length of the data.
    #[error("{asked} bytes requested, but the reply has a count of {count} and {length} bytes of data")]
    ReadCount {
        /// Bytes requested.
        asked: u32,
        /// The count in the results.
        count: u32,
        /// Bytes of data in the results.
        length: usize,
    },
    /// READ returned no data before the end of the file.
    #[error("no data at offset {offset}, and not the end of the file")]
    NoProgress {
        /// Offset of the READ, in bytes.
        offset: u64,
    },
    /// WRITE reported zero bytes, or more than were sent.
    #[error("{asked} bytes sent, but {count} bytes reported as written")]
    WriteCount {
        /// Bytes sent.
        asked: u32,
        /// The count in the results.
        count: u32,
    },
    /// WRITE reported less stability than requested.
    #[error("data is less stable than requested")]
    LessStable,
    /// READDIR neither advanced nor reached the end, or it went back to a cookie that came before.
    #[error("the directory neither continues nor ends after cookie {cookie:#x}")]
    StuckDirectory {
        /// The cookie from which the listing was continued.
        cookie: u64,
    },
    /// READDIR did not end, or the directories of a tree did not.
    #[error("a directory or tree of more than {limit} entries at a time")]
    EndlessDirectory {
        /// Most entries that the client reads.
        limit: usize,
    },
    /// EXTENTS returned ranges that overlap, go back, or do not advance.
    #[error("the ranges after offset {offset} are out of order, empty or missing")]
    Extents {
        /// Offset at which they should begin, in bytes.
        offset: u64,
    },
    /// A listed name that no directory entry can have.
    #[error("the entry {name:?}: {source}")]
    EntryName {
        /// The name.
        name: String,
        /// Fault of the name.
        source: NameError,
    },
}

/// Returns the name of a flavour, as options of clients have it.
fn flavor_name(flavor: u32) -> String {
    match flavor {
        flavor::AUTH_NONE => "none".to_owned(),
        flavor::AUTH_SYS => "sys".to_owned(),
        KRB5 => "krb5".to_owned(),
        KRB5I => "krb5i".to_owned(),
        KRB5P => "krb5p".to_owned(),
        number => format!("flavour {number}"),
    }
}

/// Returns the names of the flavours that a client can choose: AUTH_NONE comes with others, and says nothing beside them.
fn names(flavors: &[u32]) -> String {
    let alone = flavors.iter().all(|flavor| *flavor == flavor::AUTH_NONE);
    let chosen = flavors.iter().filter(|flavor| alone || **flavor != flavor::AUTH_NONE);
    chosen.map(|flavor| flavor_name(*flavor)).collect::<Vec<_>>().join(", ")
}

fn prefix(path: &str) -> impl fmt::Display + '_ {
    struct Prefix<'a>(&'a str);
    impl fmt::Display for Prefix<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
        }
    }
    Prefix(path)
}

impl Error {
    /// Returns the NFS status, if the error is one.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Nfs { status, .. } => Some(*status),
            Self::Unfinished { error, .. } => error.status(),
            _ => None,
        }
    }

    /// Returns whether all further calls would fail too, so that a copy of a tree should stop. The server
    /// cannot be reached, or accepts no calls of this client.
    pub fn ends_everything(&self) -> bool {
        match self {
            Self::Transport { source, .. } => {
                !matches!(source, CallError::Unsendable { .. } | CallError::Chunk)
            }
            Self::Rpc { source, .. } => !matches!(source, Refused::GarbageArguments | Refused::SystemError),
            Self::Unfinished { error, .. } => error.ends_everything(),
            _ => false,
        }
    }

    /// Adds the name of the object, unless the error has one.
    pub(crate) fn at(mut self, name: &[u8]) -> Self {
        if let Self::Nfs { path, .. } = &mut self
            && path.is_empty()
        {
            *path = super::walk::lossy(name);
        }
        self
    }
}
