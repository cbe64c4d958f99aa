//! The 22 procedures of NFS version 3 as typed calls.
//!
//! A call encodes its arguments (payloads shared, not copied). It offers memory for the largest reply that the
//! arguments allow (RFC 8267 §3), by [`Procedure::bounds`](rpcrdma::Procedure::bounds). Then it decodes the results;
//! READ data is a slice of the memory where it was placed. After NFS3ERR_JUKEBOX the call is repeated with
//! pauses, within a time limit. Any other status or failure is an [`Error`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rpcrdma_oncrpc::Credential;

use super::error::Error;
use super::transport::{Transport, carry, null};
use crate::wire::{
    AccessArgs, AccessOk, Attributes, CommitArgs, CommitOk, CreateArgs, FsinfoArgs, FsinfoOk, FsstatArgs,
    FsstatOk, GetattrArgs, LinkArgs, LinkAttributes, LookupArgs, LookupOk, MkdirArgs, MknodArgs, NFS_PROGRAM,
    NFS_VERSION, NewObject, NfsCall, PathconfArgs, PathconfOk, ReadArgs, ReadOk, ReaddirArgs, ReaddirOk,
    ReaddirplusArgs, ReaddirplusOk, ReadlinkArgs, ReadlinkOk, RemoveArgs, RenameArgs, RenameWcc, RmdirArgs,
    SetattrArgs, Status, SymlinkArgs, WccData, WriteArgs, WriteOk,
};

/// First pause after NFS3ERR_JUKEBOX; each further pause is twice as long, up to [`JUKEBOX_LONGEST_PAUSE`].
pub const JUKEBOX_FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two attempts after NFS3ERR_JUKEBOX.
pub const JUKEBOX_LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// NFS version 3 by procedure and file handle. Cheap to clone; calls may run at the same time.
#[derive(Clone)]
pub struct Procedures {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) credential: Credential,
    pub(super) timeout: Option<Duration>,
    /// Time for which calls are repeated after NFS3ERR_JUKEBOX.
    pub(super) patience: Duration,
    pub(super) activity: Arc<Activity>,
}

/// Counters of calls.
#[derive(Debug, Default)]
pub(super) struct Activity {
    pub(super) in_flight: AtomicUsize,
    pub(super) answered: AtomicU64,
}

/// A call in progress.
struct InProgress<'a>(&'a Activity);

impl<'a> InProgress<'a> {
    fn new(activity: &'a Activity) -> Self {
        activity.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(activity)
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Procedures {
    /// Makes a call and checks its status.
    pub(crate) async fn call<A: NfsCall>(&self, arguments: &A) -> Result<A::Ok, Error> {
        let _in_progress = InProgress::new(&self.activity);
        let mut waited = Duration::ZERO;
        let mut pause = JUKEBOX_FIRST_PAUSE;
        loop {
            let result =
                carry::<A>(&*self.transport, arguments, self.credential.clone(), self.timeout).await?;
            self.activity.answered.fetch_add(1, Ordering::Relaxed);
            match result.into_result() {
                Ok(results) => return Ok(results),
                // RFC 1813 §2.6: the client waits, then tries again with a new XID.
                Err((Status::Jukebox, _)) if waited + pause <= self.patience => {
                    tracing::debug!(procedure = %A::PROCEDURE, ?pause, "NFS3ERR_JUKEBOX: trying again later");
                    tokio::time::sleep(pause).await;
                    waited += pause;
                    pause = (pause * 2).min(JUKEBOX_LONGEST_PAUSE);
                }
                Err((status, _)) => {
                    return Err(Error::Nfs { status, operation: A::PROCEDURE, path: String::new() });
                }
            }
        }
    }

    /// Procedure 0, NULL: checks whether the server answers (RFC 1813 §3.3.0). The call has no credential.
    pub async fn null(&self) -> Result<(), Error> {
        null(&*self.transport, (NFS_PROGRAM, NFS_VERSION), self.timeout).await
    }
}

macro_rules! procedures {
    ($($(#[$doc:meta])* $name:ident($arguments:ty) -> $ok:ty;)*) => {
        impl Procedures {
            $($(#[$doc])*
            pub async fn $name(&self, arguments: &$arguments) -> Result<$ok, Error> {
                self.call(arguments).await
            })*
        }
    };
}

procedures! {
    /// Procedure 1, GETATTR: returns the attributes of an object (RFC 1813 §3.3.1).
    getattr(GetattrArgs) -> Attributes;
    /// Procedure 2, SETATTR: changes attributes (RFC 1813 §3.3.2).
    setattr(SetattrArgs) -> WccData;
    /// Procedure 3, LOOKUP: finds a name in a directory (RFC 1813 §3.3.3).
    lookup(LookupArgs) -> LookupOk;
    /// Procedure 4, ACCESS: returns the rights of this user (RFC 1813 §3.3.4).
    access(AccessArgs) -> AccessOk;
    /// Procedure 5, READLINK: returns the target of a symbolic link (RFC 1813 §3.3.5).
    readlink(ReadlinkArgs) -> ReadlinkOk;
    /// Procedure 6, READ: reads data (RFC 1813 §3.3.6).
    read(ReadArgs) -> ReadOk;
    /// Procedure 7, WRITE: writes data (RFC 1813 §3.3.7).
    write(WriteArgs) -> WriteOk;
    /// Procedure 8, CREATE: makes a file (RFC 1813 §3.3.8).
    create(CreateArgs) -> NewObject;
    /// Procedure 9, MKDIR: makes a directory (RFC 1813 §3.3.9).
    mkdir(MkdirArgs) -> NewObject;
    /// Procedure 10, SYMLINK: makes a symbolic link (RFC 1813 §3.3.10).
    symlink(SymlinkArgs) -> NewObject;
    /// Procedure 11, MKNOD: makes a device, socket or named pipe (RFC 1813 §3.3.11).
    mknod(MknodArgs) -> NewObject;
    /// Procedure 12, REMOVE: removes an object that is not a directory (RFC 1813 §3.3.12).
    remove(RemoveArgs) -> WccData;
    /// Procedure 13, RMDIR: removes an empty directory (RFC 1813 §3.3.13).
    rmdir(RmdirArgs) -> WccData;
    /// Procedure 14, RENAME: renames or moves an object (RFC 1813 §3.3.14).
    rename(RenameArgs) -> RenameWcc;
    /// Procedure 15, LINK: makes a hard link (RFC 1813 §3.3.15).
    link(LinkArgs) -> LinkAttributes;
    /// Procedure 16, READDIR: lists names in a directory (RFC 1813 §3.3.16).
    readdir(ReaddirArgs) -> ReaddirOk;
    /// Procedure 17, READDIRPLUS: lists names with attributes and handles (RFC 1813 §3.3.17).
    readdirplus(ReaddirplusArgs) -> ReaddirplusOk;
    /// Procedure 18, FSSTAT: returns space and files (RFC 1813 §3.3.18).
    fsstat(FsstatArgs) -> FsstatOk;
    /// Procedure 19, FSINFO: returns limits and preferred sizes (RFC 1813 §3.3.19).
    fsinfo(FsinfoArgs) -> FsinfoOk;
    /// Procedure 20, PATHCONF: returns limits of names and links (RFC 1813 §3.3.20).
    pathconf(PathconfArgs) -> PathconfOk;
    /// Procedure 21, COMMIT: makes unstable writes stable (RFC 1813 §3.3.21).
    commit(CommitArgs) -> CommitOk;
}
