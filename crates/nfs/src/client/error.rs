//! Why an operation of the client failed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rpcrdma::CallError;
use rpcrdma_oncrpc::Refused;
use rpcrdma_xdr::DecodeError;

use crate::mount::MountStatus;
use crate::wire::{NameError, NfsProcedure, Status};

/// Why an operation failed. The three families: the server said no (`Nfs`, `Mount`), the call did not get through
/// (`Rpc`, `Transport`), the server broke the protocol (`Protocol`); the rest are refusals of this client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with a status.
    #[error("{}{status} [{operation}]", prefix(.path))]
    Nfs {
        /// What it said.
        status: Status,
        /// The procedure that it answered so.
        operation: NfsProcedure,
        /// What the operation was about; empty if it was called by handle.
        path: String,
    },
    /// The server does not let this client mount the export.
    #[error("cannot mount {path}: {status}")]
    Mount {
        /// What it said.
        status: MountStatus,
        /// The path that was to be mounted.
        path: String,
    },
    /// The server refused the call itself: credential, program, version, procedure or arguments.
    #[error("{operation}: {source}")]
    Rpc {
        /// The procedure.
        operation: &'static str,
        /// The refusal.
        source: Refused,
    },
    /// The call or its reply got lost, or no connection could be had.
    #[error("{operation}: {source}")]
    Transport {
        /// The procedure.
        operation: &'static str,
        /// What happened.
        source: CallError,
    },
    /// The server sent something that the protocol does not allow.
    #[error("the server broke the protocol in its answer to {operation}: {violation}")]
    Protocol {
        /// The procedure.
        operation: &'static str,
        /// How.
        violation: Violation,
    },
    /// A name that cannot be one.
    #[error("{path}: {source}")]
    Name {
        /// The path with the name in it.
        path: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// A path that names no entry that could be made, removed or renamed: the root, or one that ends in `..`.
    #[error("{path:?} does not end in a name")]
    NoName {
        /// The path.
        path: String,
    },
    /// A directory where a file is wanted, for want of `recursive`.
    #[error("{path} is a directory (copy it recursively)")]
    IsDirectory {
        /// The directory.
        path: String,
    },
    /// A directory that is too deep to be copied.
    #[error("{path}: more than {limit} directories deep")]
    TooDeep {
        /// The directory.
        path: String,
        /// How deep a copy goes.
        limit: usize,
    },
    /// A directory that the server shows inside itself.
    #[error("{path} is a directory inside itself")]
    DirectoryLoop {
        /// The directory.
        path: String,
    },
    /// An object that is in the way of another type of object.
    #[error("{path} cannot be stored: at the server there is {what} of that name")]
    Exists {
        /// The object that was to be stored.
        path: String,
        /// What is there, with an article.
        what: &'static str,
    },
    /// A file that would be copied onto itself: the server exports what is a local file here.
    #[error("{path} and its target are the same file")]
    SameFile {
        /// The source.
        path: String,
    },
    /// A directory that contains its own copy.
    #[error("{path}: cannot copy a directory into itself")]
    IntoItself {
        /// The directory that was met again.
        path: String,
    },
    /// A source whose copy would have a name that an earlier source of the command has got.
    #[error("{path} is not copied over what another source has just made")]
    JustMade {
        /// The source.
        path: String,
    },
    /// Something else where a regular file is wanted.
    #[error("{path} is {what}, not a regular file")]
    NotRegular {
        /// The object.
        path: String,
        /// Its type, with an article.
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
        /// What was tried.
        reason: String,
    },
    /// A local file could not be read or written.
    #[error("{}: {source}", path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What the protocol does not allow, and a server did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Results that are malformed.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// READ returned more than asked, or a count that is not the length of the data.
    #[error("{asked} bytes asked for, a count of {count} and {length} bytes of data returned")]
    ReadCount {
        /// Bytes asked for.
        asked: u32,
        /// The count in the results.
        count: u32,
        /// Bytes of data in the results.
        length: usize,
    },
    /// READ returned nothing before the end of the file.
    #[error("no data at offset {offset}, and not the end of the file")]
    NoProgress {
        /// Where.
        offset: u64,
    },
    /// WRITE wrote nothing, or more than it was given.
    #[error("{count} bytes written of {asked}")]
    WriteCount {
        /// Bytes given.
        asked: u32,
        /// The count in the results.
        count: u32,
    },
    /// WRITE is less stable than asked.
    #[error("data is less stable than was asked for")]
    LessStable,
    /// READDIR neither went on nor came to an end.
    #[error("the directory does not go on after cookie {cookie:#x}, and does not end")]
    StuckDirectory {
        /// The cookie.
        cookie: u64,
    },
    /// READDIR goes on for ever.
    #[error("a directory of more than {limit} entries")]
    EndlessDirectory {
        /// What is read at most.
        limit: usize,
    },
    /// EXTENTS returned ranges that overlap, go back, or do not go on.
    #[error("ranges behind offset {offset} that are out of order, empty or none")]
    Extents {
        /// Where they were to begin.
        offset: u64,
    },
    /// A name in a directory that cannot be one.
    #[error("the entry {name:?}: {source}")]
    EntryName {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: NameError,
    },
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
    /// The NFS status, if it is one.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Nfs { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether everything that follows would fail alike, so that copying a tree had better stop: the server cannot be
    /// reached, or takes no calls from us.
    pub fn ends_everything(&self) -> bool {
        match self {
            Self::Transport { source, .. } => {
                !matches!(source, CallError::Unsendable { .. } | CallError::Chunk)
            }
            Self::Rpc { source, .. } => !matches!(source, Refused::GarbageArguments | Refused::SystemError),
            _ => false,
        }
    }

    /// Says what the operation was about, if it does not say so already.
    pub(crate) fn at(mut self, name: &[u8]) -> Self {
        if let Self::Nfs { path, .. } = &mut self
            && path.is_empty()
        {
            *path = super::walk::lossy(name);
        }
        self
    }
}
