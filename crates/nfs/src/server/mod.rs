//! The NFS version 3 server: every procedure of RFC 1813 on exported [`FileSystem`]s.
//!
//! A call is decoded, its handle opened (authenticated, then the export's rules), and its procedure run: in place if
//! the file system cannot block, else on an I/O thread. Module `io` keeps calls that wait for a disk out of the way of
//! others. One file holds what one part of the protocol does, under the names of [`crate::wire`].
//!
//! **Buffers.** READ allocates a buffer from the share of the caller's address ([`PeerShares`]), the file system fills it,
//! and it becomes the results' payload: the RDMA Write takes it from there, nothing copies it. WRITE hands the received
//! payload to the file system as it lies. Listings are as long as READs, so READDIR and READDIRPLUS (and READLINK, DUMP, EXPORT) take room for their results
//! there too, before they begin (`memory`). So the memory of the server's own is at most the domain's limit, and one address
//! holds at most its share; a call that finds either used up waits for [`BUFFER_WAIT`] and is then put off with
//! NFS3ERR_JUKEBOX.
//!
//! **Errors.** Arguments that do not decode are GARBAGE_ARGS; whatever else is wrong has an NFS status. A call that cannot
//! begin, because no call in front of it goes on, is put off with NFS3ERR_JUKEBOX.
#![allow(clippy::result_large_err, reason = "a failure carries attributes, and is as large as a success")]

mod caller;
mod convert;
mod counters;
mod data;
mod directory;
mod exports;
mod extents;
mod filesystem;
mod handle;
mod io;
mod memory;
mod namespace;
mod object;
mod refusals;
mod users;

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::Duration;

pub(crate) use caller::Caller;
pub use counters::{NfsCounters, ProcedureCount};
pub(crate) use exports::{Crossing, Exports, Served, components};
pub use exports::{Export, ExportError, NOBODY, Squash};
pub use extents::ExtentsProgram;
pub use handle::{ExportId, HandleKey};
use io::{IoThreads, JOB_ROOM, Source};
pub(crate) use io::{Running, Unserved, Work};
use memory::{Room, Soon};
pub(crate) use refusals::Refusal;
use refusals::Refusals;
use rpcrdma::{PeerShares, ServerConfig};
use rpcrdma_oncrpc::auth::GIDS_MAX;
use rpcrdma_oncrpc::{CallContext, CallFailure, Credential, Origin, Procedure, Program, ResponseFuture};
use rpcrdma_proto::{Binding, Eligibility};
use rpcrdma_verbs::ProtectionDomain;
use rpcrdma_xdr::{Decoder, Stream, encode};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use users::Users;
pub use users::{Membership, SystemUsers, UserDatabase};

use crate::fs::{Attributes, Change, FileId, FileSystem, FsError, Identity, LookupName, Name, Node};
use crate::mount::server::{MountProgram, MountTable};
use crate::wire::{
    self, AccessArgs, CommitArgs, CreateArgs, FileHandle, FsinfoArgs, FsstatArgs, GetattrArgs, LinkArgs,
    LookupArgs, MAX_PATH, MAX_PAYLOAD, MkdirArgs, MknodArgs, NFS_PROGRAM, NFS_VERSION, NfsCall, NfsProcedure,
    NfsResult, PathconfArgs, ReadArgs, ReaddirArgs, ReaddirplusArgs, ReadlinkArgs, RemoveArgs, RenameArgs,
    RmdirArgs, SetattrArgs, Status, SymlinkArgs, WccData, WriteArgs,
};

/// What the future of a call takes at the most, in bytes.
const FUTURE_ROOM: usize = 5 << 8;
/// What the groups of a caller take at the most, as they were claimed and as they count, in bytes. A call with more groups, of
/// this machine's database, takes room for them.
const GROUPS_ROOM: usize = 2 * GIDS_MAX * size_of::<u32>();
/// What a `tracing` span takes while it is logged, in bytes; the subscriber of the command line takes less.
const SPAN_ROOM: usize = 512;
/// Over TCP memory is set aside for this with each call (I6).
const _: () = assert!(FUTURE_ROOM + JOB_ROOM + GROUPS_ROOM + SPAN_ROOM <= ServerConfig::HANDLER_ROOM);

/// How long a READ waits for a buffer when all are in use, and a listing for room.
pub const BUFFER_WAIT: Duration = Duration::from_secs(2);

/// Settings of an [`NfsServer`].
#[derive(Clone)]
pub struct ServerOptions {
    /// Largest payload of one READ or WRITE in bytes (`rtmax` and `wtmax` of FSINFO), at most [`MAX_PAYLOAD`].
    /// Default 1 MiB.
    pub max_payload: u32,
    /// Threads of each export whose file system may block, at most; at least [`Self::IO_THREADS_LEAST`]. A quarter is for
    /// each kind of work: what looks at objects, READ, changes of names and attributes, WRITE with COMMIT. Of each quarter,
    /// calls from one address hold at most three quarters. Threads without work end. Default 8 for each processor, from 32
    /// to 128.
    pub io_threads: usize,
    /// How long [`NfsServer::flush`] waits for the file systems. Default 60 s.
    pub flush_wait: Duration,
    /// Where the buffers of READ and of listings come from; best what the connections take theirs from
    /// ([`ServerConfig::shares`](rpcrdma::ServerConfig::shares)). Default: a domain of 64 MiB, 16 MiB for an address.
    pub shares: PeerShares,
    /// Whether the groups of callers are those of [`users`](Self::users) and not those that they claim. Default: false. So it is in
    /// any case for callers on this machine whose socket is that of a user other than root.
    pub manage_groups: bool,
    /// Who knows users and groups. Default: the database of this machine.
    pub users: Arc<dyn UserDatabase>,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("max_payload", &self.max_payload)
            .field("io_threads", &self.io_threads)
            .field("flush_wait", &self.flush_wait)
            .field("shares", &self.shares)
            .field("manage_groups", &self.manage_groups)
            .finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// The least of [`Self::io_threads`].
    pub const IO_THREADS_LEAST: usize = io::THREADS_LEAST;
}

impl Default for ServerOptions {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self {
            max_payload: 1 << 20,
            io_threads: (8 * processors).clamp(32, 128),
            flush_wait: Duration::from_secs(60),
            shares: PeerShares::new(ProtectionDomain::new(64 << 20), 16 << 20),
            manage_groups: false,
            users: Arc::new(SystemUsers),
        }
    }
}

/// Why data may not be on stable storage.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushError {
    /// The file system says so.
    #[error("export {export:?}: {error}")]
    Failed {
        /// Name of the export.
        export: String,
        /// The refusal of the file system.
        error: FsError,
    },
    /// It has not ended in time. Its thread goes on.
    #[error(
        "export {export:?}: the file system was not done after {waited:?}; it may be frozen, or its server gone"
    )]
    Late {
        /// Name of the export.
        export: String,
        /// How long it had ([`ServerOptions::flush_wait`]).
        waited: Duration,
    },
}

/// The NFS and MOUNT programs over one set of exports. Clones are views of one server.
#[derive(Clone)]
pub struct NfsServer {
    shared: Arc<Shared>,
}

/// What the programs share.
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) mounts: MountTable,
    pub(crate) refusals: Refusals,
    shares: PeerShares,
    io: IoThreads,
    flush_wait: Duration,
    users: Users,
    manage_groups: bool,
    counters: NfsCounters,
    max_payload: u32,
}

impl NfsServer {
    /// A server of these exports. Handles are authenticated with `key`.
    ///
    /// # Errors
    /// Each variant of [`ExportError`].
    pub fn new(key: HandleKey, exports: Vec<Export>, options: ServerOptions) -> Result<Self, ExportError> {
        let largest = u32::try_from(MAX_PAYLOAD).unwrap_or(u32::MAX);
        let shared = Shared {
            exports: Exports::new(key, exports)?,
            mounts: MountTable::default(),
            refusals: Refusals::default(),
            shares: options.shares,
            io: IoThreads::new(options.io_threads),
            flush_wait: options.flush_wait,
            users: Users::new(options.users),
            manage_groups: options.manage_groups,
            counters: NfsCounters::new(),
            max_payload: options.max_payload.clamp(1, largest),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// NFS version 3, to be registered with a dispatcher and, for RPC-over-RDMA, as a binding.
    #[must_use]
    pub fn nfs_program(&self) -> Arc<NfsProgram> {
        Arc::new(NfsProgram { shared: Arc::clone(&self.shared) })
    }

    /// Where files have data: our own extension ([`crate::extents`]), for clients of this project.
    #[must_use]
    pub fn extents_program(&self) -> Arc<ExtentsProgram> {
        Arc::new(ExtentsProgram { shared: Arc::clone(&self.shared) })
    }

    /// MOUNT version 3.
    #[must_use]
    pub fn mount_program(&self) -> Arc<MountProgram> {
        Arc::new(MountProgram::new(Arc::clone(&self.shared)))
    }

    /// What was served so far.
    #[must_use]
    pub fn counters(&self) -> &NfsCounters {
        &self.shared.counters
    }

    /// The handle of the root of an export, as MOUNT would give it.
    #[must_use]
    pub fn root_handle(&self, name: &str) -> Option<FileHandle> {
        let served = self.shared.exports.iter().find(|served| served.export.name == name)?;
        Some(self.shared.exports.seal(served, &served.root))
    }

    /// Brings everything that was written to stable storage: for a clean stop, after the last call. Each file system does so
    /// on a thread of its own. None waits for one that is frozen, or for calls that are stuck there.
    ///
    /// # Errors
    /// The first of the exports that failed, or that was not done within [`ServerOptions::flush_wait`]; each is logged.
    pub async fn flush(&self) -> Result<(), FlushError> {
        let deadline = Instant::now() + self.shared.flush_wait;
        let mut flushes = Vec::new();
        let mut seen: Vec<&Arc<dyn FileSystem>> = Vec::new();
        for served in self.shared.exports.iter() {
            let file_system = &served.export.file_system;
            if !seen.iter().any(|other| Arc::ptr_eq(other, file_system)) {
                seen.push(file_system);
                flushes.push((served.export.name.clone(), flush(Arc::clone(file_system))));
            }
        }
        let mut result = Ok(());
        for (export, flushed) in flushes {
            let flushed = match timeout_at(deadline, flushed).await {
                Ok(Ok(Ok(()))) => continue,
                Ok(Ok(Err(error))) => FlushError::Failed { export, error },
                // It panicked, or there was no thread for it.
                Ok(Err(_)) => FlushError::Failed { export, error: FsError::ServerFault },
                Err(_) => FlushError::Late { export, waited: self.shared.flush_wait },
            };
            tracing::error!(error = %flushed, "not all data is on stable storage");
            result = result.and(Err(flushed));
        }
        result
    }
}

/// Flushes on a thread of its own. The sender is dropped if it cannot say how that went.
fn flush(file_system: Arc<dyn FileSystem>) -> oneshot::Receiver<Result<(), FsError>> {
    let (sender, receiver) = oneshot::channel();
    let flush = move || {
        // Nobody listens any more if it took too long.
        let _ = sender.send(file_system.flush());
    };
    if let Err(error) = thread::Builder::new().name("nfs-flush".to_owned()).spawn(flush) {
        tracing::error!(%error, "no thread that flushes could be started");
    }
    receiver
}

/// As whom a caller acts.
pub(crate) struct Known {
    pub(crate) who: Identity,
    /// For groups beyond those that a call can claim.
    pub(crate) room: Option<Room>,
}

/// A caller at an object: what a procedure works on.
pub(crate) struct At {
    shared: Arc<Shared>,
    served: Arc<Served>,
    id: FileId,
    caller: Caller,
    who: Identity,
    /// For the groups of the caller, as long as this lives.
    _room: Option<Room>,
}

impl Shared {
    /// The identity as whom a caller acts in an export. The database of users is asked only for a caller whom the export admits,
    /// and who does not lose the identity there.
    ///
    /// # Errors
    /// [`Status::Acces`]: the export does not admit the caller. [`Status::Jukebox`]: the database of users does not say now in
    /// which groups the caller is, or the share of the caller's address has no room for so many.
    pub(crate) fn identity(
        self: &Arc<Self>,
        served: &Arc<Served>,
        caller: &Caller,
    ) -> Soon<Result<Known, Status>> {
        if !served.admits(caller) {
            return Soon::Now(Some(Err(Status::Acces)));
        }
        match &caller.credential {
            Credential::Sys(claimed)
                if (self.manage_groups || caller.is_local_user()) && !served.export.squashes(claimed.uid) =>
            {
                let (shared, served, claimed) = (Arc::clone(self), Arc::clone(served), claimed.clone());
                let (origin, peer) = (caller.origin(), caller.ip());
                Soon::Later(Box::pin(async move {
                    let known = shared.users.with_groups(origin, &claimed).await.ok_or(Status::Jukebox)?;
                    let room = if known.gids.len() > GIDS_MAX {
                        let room = shared.room(peer, size_of_val(known.gids.as_slice())).await;
                        Some(room.ok_or(Status::Jukebox)?)
                    } else {
                        None
                    };
                    Ok(Known { who: served.export.identity(&Credential::Sys(known)), room })
                }))
            }
            claimed => Soon::Now(Some(Ok(Known { who: served.export.identity(claimed), room: None }))),
        }
    }

    /// Opens a handle for a caller: first the handle, then the address, and then only who calls.
    fn enter(self: &Arc<Self>, handle: &FileHandle, context: CallContext) -> Soon<Result<At, Status>> {
        let caller = Caller::new(context);
        let opened = self.exports.open(handle).inspect_err(|status| {
            let why = match status {
                Status::BadHandle => "this server did not make it",
                _ => "its export is no longer there, or has changed",
            };
            self.refusals.refuse(Refusal::Handle, caller.address(), format_args!("{why}"));
        });
        let (served, id) = match opened {
            Ok((served, id)) => (Arc::clone(served), id),
            Err(status) => return Soon::Now(Some(Err(status))),
        };
        let shared = Arc::clone(self);
        match self.identity(&served, &caller) {
            Soon::Now(known) => Soon::Now(known.map(|known| shared.entered(served, id, caller, known))),
            Soon::Later(known) => {
                Soon::Later(Box::pin(async move { shared.entered(served, id, caller, known.await) }))
            }
        }
    }

    fn entered(
        self: Arc<Self>,
        served: Arc<Served>,
        id: FileId,
        caller: Caller,
        known: Result<Known, Status>,
    ) -> Result<At, Status> {
        let Known { who, room } = known.inspect_err(|status| {
            if *status == Status::Acces {
                let why = format_args!("export {:?} does not admit this address", served.export.name);
                self.refusals.refuse(Refusal::Caller, caller.address(), why);
            }
        })?;
        Ok(At { shared: self, served, id, caller, who, _room: room })
    }

    /// Runs `job` where the file system allows it: at once, or on an I/O thread. The future has nothing of the job but its result.
    pub(crate) fn blocking<T: Send + 'static>(
        &self,
        served: &Served,
        peer: Option<IpAddr>,
        work: Work,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Running<T> {
        if !served.export.file_system.may_block() {
            return Running::done(job());
        }
        let source = Source { export: served.id, address: peer.map(Origin::of) };
        self.io.run(source, work, None, move |_| job())
    }

    /// Runs a job that writes to a file in its turn there. The job gets what ends the turn before the job ends.
    fn writing<T: Send + 'static>(
        &self,
        served: &Served,
        peer: Option<IpAddr>,
        file: FileId,
        job: impl FnOnce(&dyn Fn()) -> T + Send + 'static,
    ) -> Running<T> {
        if !served.export.file_system.may_block() {
            return Running::done(job(&|| {}));
        }
        let source = Source { export: served.id, address: peer.map(Origin::of) };
        self.io.run(source, Work::Write, Some(file), move |turn| job(&|| turn.release()))
    }
}

/// The kind of work that a procedure asks of the file system.
fn work(procedure: NfsProcedure) -> Work {
    match procedure {
        NfsProcedure::Null
        | NfsProcedure::Getattr
        | NfsProcedure::Lookup
        | NfsProcedure::Access
        | NfsProcedure::Readlink
        | NfsProcedure::Readdir
        | NfsProcedure::Readdirplus
        | NfsProcedure::Fsstat
        | NfsProcedure::Fsinfo
        | NfsProcedure::Pathconf => Work::Look,
        NfsProcedure::Read => Work::Read,
        NfsProcedure::Setattr
        | NfsProcedure::Create
        | NfsProcedure::Mkdir
        | NfsProcedure::Symlink
        | NfsProcedure::Mknod
        | NfsProcedure::Remove
        | NfsProcedure::Rmdir
        | NfsProcedure::Rename
        | NfsProcedure::Link => Work::Change,
        NfsProcedure::Write | NfsProcedure::Commit => Work::Write,
    }
}

impl At {
    fn fs(&self) -> &dyn FileSystem {
        &*self.served.export.file_system
    }

    /// Refuses changes through a read-only export.
    fn writable(&self) -> Result<(), Status> {
        if self.served.export.read_only { Err(Status::Rofs) } else { Ok(()) }
    }

    /// Refuses a handle of a directory that has come to lie outside of its export.
    fn check_place(&self, id: &FileId) -> Result<(), Status> {
        if self.served.holds(id)? { Ok(()) } else { Err(Status::Stale) }
    }

    /// The object of a second handle, which must be of the same export.
    fn sibling(&self, handle: &FileHandle) -> Result<FileId, Status> {
        let (served, id) = self.shared.exports.open(handle)?;
        // RFC 1813 §3.3.14, §3.3.15: both on the same file system.
        if served.id != self.served.id {
            return Err(Status::Xdev);
        }
        self.check_place(&id)?;
        Ok(id)
    }

    /// What a name of this directory stands for, as the caller may see it: in this export, or the root of the one that the
    /// name leads into.
    fn found(&self, name: &[u8], node: &Node) -> Result<(FileHandle, wire::Attributes), Status> {
        let seen = self.seen(node)?;
        if name == b".." && seen.stays {
            self.check_place(&node.id)?;
        }
        Ok((seen.handle, seen.attributes))
    }

    /// [`Self::found`] but for the place of `..`. Asks the file system nothing.
    fn seen(&self, node: &Node) -> Result<Seen, Status> {
        match self.shared.exports.crossing(&self.served, &node.attributes, &self.caller) {
            Crossing::Closed => Err(Status::Acces),
            Crossing::Enters(inner) => Ok(Seen {
                handle: self.shared.exports.seal(inner, &inner.root),
                attributes: convert::attributes(&node.attributes, inner.id.as_fsid()),
                stays: false,
            }),
            Crossing::Stays => Ok(Seen {
                handle: self.seal(&node.id),
                attributes: self.attributes(&node.attributes),
                stays: true,
            }),
        }
    }

    /// Refuses to take away a name that stands for the root of another export, as the kernel does for a mount point.
    fn removable(&self, directory: &FileId, name: Name<'_>) -> Result<(), Status> {
        if !self.served.overlaps() {
            return Ok(());
        }
        match self.fs().lookup(&self.who, directory, LookupName::Entry(name)) {
            Ok(found) => {
                match self.shared.exports.crossing(&self.served, &found.node.attributes, &self.caller) {
                    Crossing::Stays => Ok(()),
                    Crossing::Enters(_) | Crossing::Closed => Err(Status::Acces),
                }
            }
            // There is nothing to protect; the operation will say so.
            Err(FsError::NotFound) => Ok(()),
            // It is not known what the name stands for.
            Err(error) => Err(error.into()),
        }
    }

    fn seal(&self, id: &FileId) -> FileHandle {
        self.shared.exports.seal(&self.served, id)
    }

    fn attributes(&self, attributes: &Attributes) -> wire::Attributes {
        convert::attributes(attributes, self.served.id.as_fsid())
    }

    /// The object's attributes for a reply that failed, if they can still be had.
    fn post_op(&self) -> Option<wire::Attributes> {
        self.fs().attributes(&self.id).ok().map(|attributes| self.attributes(&attributes))
    }

    /// Attributes after a failed change that never got to the object.
    fn untouched(&self) -> WccData {
        WccData { before: None, after: self.post_op() }
    }

    fn wcc(&self, change: &Change) -> WccData {
        WccData {
            before: change.before.as_ref().map(convert::before),
            after: change.after.as_ref().map(|attributes| self.attributes(attributes)),
        }
    }
}

/// An object as a caller sees it.
struct Seen {
    handle: FileHandle,
    attributes: wire::Attributes,
    /// In the export of the directory that was searched.
    stays: bool,
}

/// The results of a procedure, or a status with the attributes that go with it.
type Served3<C> = Result<<C as NfsCall>::Ok, (Status, <C as NfsCall>::Fail)>;

/// A procedure: what it does with its arguments at the object of its (first) handle.
trait Serve: NfsCall + Send + 'static {
    /// The handle that says which export is meant.
    fn handle(&self) -> &FileHandle;

    /// Does it. May block if the export's file system may.
    fn serve(self, at: &At) -> Served3<Self>;
}

/// Serves a call whose object is still in its export.
fn in_place<C>(call: C, at: &At) -> Served3<C>
where
    C: Serve<Fail: Default>,
{
    at.check_place(&at.id).map_err(|status| (status, C::Fail::default()))?;
    call.serve(at)
}

/// What a program gives the dispatcher.
pub(crate) fn boxed<F>(respond: F) -> ResponseFuture
where
    F: Future<Output = Result<Stream, CallFailure>> + Send + 'static,
{
    const { assert!(size_of::<F>() <= FUTURE_ROOM, "see FUTURE_ROOM") };
    Box::pin(respond)
}

/// A call that fails at once.
pub(crate) fn failed(failure: CallFailure) -> ResponseFuture {
    boxed(std::future::ready(Err(failure)))
}

/// NFS version 3 as an RPC program.
pub struct NfsProgram {
    shared: Arc<Shared>,
}

/// The reply to a call that has no results.
fn unserved<C>(shared: &Shared, unserved: Unserved) -> Result<Stream, CallFailure>
where
    C: NfsCall<Fail: Default>,
{
    match unserved {
        Unserved::Panicked => Err(CallFailure::SystemError),
        Unserved::Refused => finish::<C>(shared, Err((Status::Jukebox, C::Fail::default()))),
    }
}

/// Counts, logs and encodes the results of a call.
fn finish<C: NfsCall>(shared: &Shared, results: Served3<C>) -> Result<Stream, CallFailure> {
    shared.counters.count(C::PROCEDURE, results.is_err());
    match results {
        Ok(results) => {
            tracing::debug!(status = "NFS3_OK", "served");
            Ok(encode(&NfsResult::<C::Ok, C::Fail>::Ok(results))?)
        }
        Err((status, attributes)) => {
            tracing::debug!(status = status.name(), "served");
            Ok(encode(&NfsResult::<C::Ok, C::Fail>::Fail { status, attributes })?)
        }
    }
}

impl NfsProgram {
    fn serve<C>(&self, context: CallContext, arguments: Decoder) -> ResponseFuture
    where
        C: Serve<Ok: Send, Fail: Default + Send>,
    {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = C::PROCEDURE.name(), xid = context.xid);
        let call: C = match arguments.decode_all() {
            Ok(call) => call,
            Err(error) => return failed(error.into()),
        };
        let entering = shared.enter(call.handle(), context);
        let respond = async move {
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return finish::<C>(&shared, Err((status, C::Fail::default()))),
            };
            let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
            match shared.blocking(&served, peer, work(C::PROCEDURE), move || in_place(call, &at)).await {
                Ok(results) => finish::<C>(&shared, results),
                Err(error) => unserved::<C>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }

    /// A listing waits for room for its results first: a client that takes none holds memory of its own share.
    fn list<C>(&self, context: CallContext, arguments: Decoder, count: fn(&C) -> u32) -> ResponseFuture
    where
        C: Serve<Ok: Send, Fail: Default + Send>,
    {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = C::PROCEDURE.name(), xid = context.xid);
        let call: C = match arguments.decode_all() {
            Ok(call) => call,
            Err(error) => return failed(error.into()),
        };
        let entering = shared.enter(call.handle(), context);
        let respond = async move {
            let refuse = |status| finish::<C>(&shared, Err((status, C::Fail::default())));
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return refuse(status),
            };
            let Some(room) = shared.room(at.caller.ip(), data::limited(count(&call), &shared)).await else {
                return refuse(Status::Jukebox);
            };
            let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
            let (job_shared, span) = (Arc::clone(&shared), tracing::Span::current());
            // Entries take several times the memory of their encoding: they end with the job, of which there are few.
            let job = move || {
                span.in_scope(|| {
                    finish::<C>(&job_shared, in_place(call, &at)).map(|results| room.keep(&results))
                })
            };
            match shared.blocking(&served, peer, work(C::PROCEDURE), job).await {
                Ok(results) => results,
                Err(error) => unserved::<C>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }

    /// READLINK takes room for the longest text first.
    fn readlink(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = ReadlinkArgs::PROCEDURE.name(), xid = context.xid);
        let call: ReadlinkArgs = match arguments.decode_all() {
            Ok(call) => call,
            Err(error) => return failed(error.into()),
        };
        let entering = shared.enter(&call.symlink, context);
        let respond = async move {
            let refuse = |status| finish::<ReadlinkArgs>(&shared, Err((status, None)));
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return refuse(status),
            };
            let Some(room) = shared.room(at.caller.ip(), MAX_PATH).await else {
                return refuse(Status::Jukebox);
            };
            let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
            let job = move || object::read_link(&at, room);
            match shared.blocking(&served, peer, work(ReadlinkArgs::PROCEDURE), job).await {
                Ok(results) => finish::<ReadlinkArgs>(&shared, results),
                Err(error) => unserved::<ReadlinkArgs>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }

    /// READ waits for a buffer first, and tries without an I/O thread.
    fn read(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = ReadArgs::PROCEDURE.name(), xid = context.xid);
        let call: ReadArgs = match arguments.decode_all() {
            Ok(call) => call,
            Err(error) => return failed(error.into()),
        };
        let entering = shared.enter(&call.file, context);
        let respond = async move {
            let refuse = |status| finish::<ReadArgs>(&shared, Err((status, None)));
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return refuse(status),
            };
            let length = data::limited(call.count, &shared);
            let Some(buffer) = shared.buffer(at.caller.ip(), length).await else {
                return refuse(Status::Jukebox);
            };
            match data::read(&shared, at, call, buffer).await {
                Ok(results) => finish::<ReadArgs>(&shared, results),
                Err(error) => unserved::<ReadArgs>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }

    /// WRITE waits for its turn at the file first.
    fn write(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = WriteArgs::PROCEDURE.name(), xid = context.xid);
        let call: WriteArgs = match arguments.decode_all() {
            Ok(call) => call,
            Err(error) => return failed(error.into()),
        };
        let entering = shared.enter(&call.file, context);
        let respond = async move {
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return finish::<WriteArgs>(&shared, Err((status, WccData::default()))),
            };
            let (served, peer, file) = (Arc::clone(&at.served), at.caller.ip(), at.id);
            let job = move |written: &dyn Fn()| data::write(&call, &at, written);
            match shared.writing(&served, peer, file, job).await {
                Ok(results) => finish::<WriteArgs>(&shared, results),
                Err(error) => unserved::<WriteArgs>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }
}

impl Program for NfsProgram {
    fn number(&self) -> u32 {
        NFS_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NFS_VERSION..=NFS_VERSION
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<Procedure> {
        let procedure = NfsProcedure::from_number(procedure)?;
        Some(Procedure { name: procedure.name(), effect: procedure.effect() })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let Some(procedure) = NfsProcedure::from_number(context.procedure) else {
            return failed(CallFailure::ProcedureUnavailable);
        };
        match procedure {
            NfsProcedure::Null => boxed(std::future::ready(
                arguments.finish().map(|()| Stream::default()).map_err(CallFailure::from),
            )),
            NfsProcedure::Getattr => self.serve::<GetattrArgs>(context, arguments),
            NfsProcedure::Setattr => self.serve::<SetattrArgs>(context, arguments),
            NfsProcedure::Lookup => self.serve::<LookupArgs>(context, arguments),
            NfsProcedure::Access => self.serve::<AccessArgs>(context, arguments),
            NfsProcedure::Readlink => self.readlink(context, arguments),
            NfsProcedure::Read => self.read(context, arguments),
            NfsProcedure::Write => self.write(context, arguments),
            NfsProcedure::Create => self.serve::<CreateArgs>(context, arguments),
            NfsProcedure::Mkdir => self.serve::<MkdirArgs>(context, arguments),
            NfsProcedure::Symlink => self.serve::<SymlinkArgs>(context, arguments),
            NfsProcedure::Mknod => self.serve::<MknodArgs>(context, arguments),
            NfsProcedure::Remove => self.serve::<RemoveArgs>(context, arguments),
            NfsProcedure::Rmdir => self.serve::<RmdirArgs>(context, arguments),
            NfsProcedure::Rename => self.serve::<RenameArgs>(context, arguments),
            NfsProcedure::Link => self.serve::<LinkArgs>(context, arguments),
            NfsProcedure::Readdir => self.list::<ReaddirArgs>(context, arguments, |call| call.count),
            NfsProcedure::Readdirplus => {
                self.list::<ReaddirplusArgs>(context, arguments, |call| call.maxcount)
            }
            NfsProcedure::Fsstat => self.serve::<FsstatArgs>(context, arguments),
            NfsProcedure::Fsinfo => self.serve::<FsinfoArgs>(context, arguments),
            NfsProcedure::Pathconf => self.serve::<PathconfArgs>(context, arguments),
            NfsProcedure::Commit => self.serve::<CommitArgs>(context, arguments),
        }
    }
}

impl Binding for NfsProgram {
    /// RFC 8267 §4.
    fn eligibility(&self, _version: u32, procedure: u32) -> Eligibility {
        let eligible =
            NfsProcedure::from_number(procedure).map(crate::binding::eligibility).unwrap_or_default();
        Eligibility { arguments: eligible.arguments, results: eligible.results }
    }
}

#[cfg(test)]
mod tests;
