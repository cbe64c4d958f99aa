//! The NFS version 3 server: every procedure of RFC 1813 on exported [`FileSystem`]s.
//!
//! The server decodes a call and opens its handle: it checks the handle's authenticity and then the rules of
//! the export. Then the procedure runs: in place if the file system cannot block, or has in memory what the call
//! needs, otherwise on an I/O thread.
//! Module `io` keeps calls that wait for a disk from delaying others. Each further module has one group of
//! procedures, with the name used in [`crate::wire`].
//!
//! **Buffers.** READ allocates a buffer from the share of the caller's address ([`PeerShares`]). The file
//! system fills it, and it becomes the payload of the results. The RDMA Write sends it from there without a
//! copy. WRITE passes the received payload to the file system unchanged. Listings are as long as READs. So
//! READDIR, READDIRPLUS, READLINK, DUMP and EXPORT also reserve memory for their results in that share before
//! they begin (`memory`). So the server's own memory is bounded by the domain's limit, and an address holds
//! at most its share. A call that finds either used up waits for [`BUFFER_WAIT`] and then gets
//! NFS3ERR_JUKEBOX.
//!
//! **Errors.** Arguments that do not decode are GARBAGE_ARGS; any other fault has an NFS status. A call that
//! cannot begin, because no call ahead of it makes progress, gets NFS3ERR_JUKEBOX.
#![allow(clippy::result_large_err, reason = "a failure carries attributes, and is as large as a success")]

mod caller;
mod clients;
mod convert;
mod counters;
mod data;
mod directory;
mod exports;
mod extents;
mod filesystem;
mod handle;
mod identity;
mod io;
mod memory;
mod mount;
mod namespace;
mod object;
mod principals;
mod refusals;
mod security;
mod status;
mod users;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::Duration;

use caller::Caller;
pub use clients::{ClientRule, Terms};
pub use counters::{NfsCounters, ProcedureCount};
pub use exports::{Admitted, Export, ExportAccess, ExportError, NOBODY, Squash};
use exports::{Crossing, Current, Exports, Served, components};
pub use extents::ExtentsProgram;
pub use handle::{ExportId, HandleKey};
use identity::Known;
pub use io::LaneStatus;
use io::{IoThreads, JOB_ROOM, Running, Source, Unserved, Work};
use memory::{Room, Soon};
use mount::MountTable;
pub use mount::{MOUNTS_MAX, MOUNTS_PER_HOST, MountProgram};
pub use principals::{LineError, MAP_MAX, MapError, Principals};
use refusals::{Refusal, Refusals};
use rpcrdma::{PeerShares, Procedure, ServerConfig, typed};
use rpcrdma_oncrpc::auth::GIDS_MAX;
use rpcrdma_oncrpc::{CallContext, CallFailure, Origin, ProcedureInfo, ResponseFuture};
use rpcrdma_verbs::ProtectionDomain;
use rpcrdma_xdr::{Decoder, Stream};
pub use security::Security;
use security::{Denied, Purpose};
pub use status::ExportStatus;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use users::Users;
pub use users::{Account, Membership, SystemUsers, UserDatabase};

use crate::fs::{Attributes, Change, FileId, FileSystem, FsError, Identity, LookupName, Name, Node};
use crate::wire::{
    self, AccessArgs, CommitArgs, CreateArgs, FileHandle, FsinfoArgs, FsstatArgs, GetattrArgs, LinkArgs,
    LookupArgs, MAX_PATH, MAX_PAYLOAD, MkdirArgs, MknodArgs, NFS_PROGRAM, NFS_VERSION, NfsCall, NfsProcedure,
    NfsResult, PathconfArgs, ReadArgs, ReaddirArgs, ReaddirplusArgs, ReadlinkArgs, RemoveArgs, RenameArgs,
    RmdirArgs, SetattrArgs, Status, SymlinkArgs, WccData, WriteArgs,
};

/// Greatest size of the future of a call, in bytes.
const FUTURE_ROOM: usize = 5 << 8;
/// Greatest memory for the groups of a caller, as claimed and as applied, in bytes. A call with more groups,
/// from this machine's database, reserves memory for them.
const GROUPS_ROOM: usize = 2 * GIDS_MAX * size_of::<u32>();
/// Memory of a `tracing` span while it is logged, in bytes; the subscriber of the command line needs less.
const SPAN_ROOM: usize = 512;
/// Over TCP, this much memory is reserved with each call (I6).
const _: () = assert!(FUTURE_ROOM + JOB_ROOM + GROUPS_ROOM + SPAN_ROOM <= ServerConfig::HANDLER_ROOM);

/// Time for which a READ waits for a buffer, or a listing for memory, when all is in use.
pub const BUFFER_WAIT: Duration = Duration::from_secs(2);

/// Settings of an [`NfsServer`].
#[derive(Clone)]
pub struct ServerOptions {
    /// Largest payload of one READ or WRITE in bytes (`rtmax` and `wtmax` of FSINFO), at most
    /// [`MAX_PAYLOAD`]. Default 1 MiB.
    pub max_payload: u32,
    /// Most threads of each export whose file system may block; at least [`Self::IO_THREADS_LEAST`]. A
    /// quarter serves each kind of work: looking at objects, READ, changes of names and attributes, WRITE
    /// with COMMIT. Calls from one address hold at most three quarters of each quarter. Idle threads end.
    /// Default 8 for each processor, from 32 to 128.
    pub io_threads: usize,
    /// Time for which [`NfsServer::flush`] waits for the file systems. Default 60 s.
    pub flush_wait: Duration,
    /// Source of the buffers of READ and of listings, preferably that of the connections
    /// ([`ServerConfig::shares`](rpcrdma::ServerConfig::shares)). Default: a domain of 64 MiB, with 16 MiB
    /// for an address.
    pub shares: PeerShares,
    /// Whether callers have the groups of [`users`](Self::users) instead of those that they claim. Default:
    /// false. Callers on this machine always have them if a user other than root owns their socket.
    pub manage_groups: bool,
    /// Database of users and groups. Default: that of this machine.
    pub users: Arc<dyn UserDatabase>,
    /// Users of callers by Kerberos, as the administrator maps them. Default: none are mapped.
    pub principals: Principals,
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
    /// Least value of [`Self::io_threads`].
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
            principals: Principals::default(),
        }
    }
}

/// Reason why data may not be on stable storage.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushError {
    /// The file system reported an error.
    #[error("export {export:?}: {error}")]
    Failed {
        /// Name of the export.
        export: String,
        /// Error of the file system.
        error: FsError,
    },
    /// The flush did not end in time. Its thread continues.
    #[error(
        "export {export:?}: the file system did not finish within {waited:?}; it may be frozen, or its server may be gone"
    )]
    Late {
        /// Name of the export.
        export: String,
        /// Time that the flush had ([`ServerOptions::flush_wait`]).
        waited: Duration,
    },
}

/// Difference between the exports before and after [`NfsServer::replace`], by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Exports that were not there before.
    pub added: Vec<String>,
    /// Exports that are gone.
    pub removed: Vec<String>,
    /// Exports whose earlier handles are stale, because they have another root or other exports inside.
    pub renumbered: Vec<String>,
}

/// The NFS and MOUNT programs over one set of exports. Clones share the server.
#[derive(Clone)]
pub struct NfsServer {
    shared: Arc<Shared>,
}

/// State that the programs share.
pub(crate) struct Shared {
    exports: Current,
    pub(crate) mounts: MountTable,
    pub(crate) refusals: Refusals,
    shares: PeerShares,
    io: IoThreads,
    flush_wait: Duration,
    users: Users,
    principals: Principals,
    manage_groups: bool,
    counters: NfsCounters,
    max_payload: u32,
}

impl NfsServer {
    /// Creates a server of these exports. `key` authenticates handles.
    ///
    /// # Errors
    /// Each variant of [`ExportError`].
    pub fn new(key: HandleKey, exports: Vec<Export>, options: ServerOptions) -> Result<Self, ExportError> {
        let largest = u32::try_from(MAX_PAYLOAD).unwrap_or(u32::MAX);
        let shared = Shared {
            exports: Current::new(Exports::new(key, exports)?),
            mounts: MountTable::default(),
            refusals: Refusals::default(),
            shares: options.shares,
            io: IoThreads::new(options.io_threads),
            flush_wait: options.flush_wait,
            users: Users::new(options.users),
            principals: options.principals,
            manage_groups: options.manage_groups,
            counters: NfsCounters::new(),
            max_payload: options.max_payload.clamp(1, largest),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns NFS version 3, for registration with a dispatcher and, for RPC-over-RDMA, as a binding.
    #[must_use]
    pub fn nfs_program(&self) -> Arc<typed::Served<NfsProgram>> {
        Arc::new(typed::Served::new(NfsProgram { shared: Arc::clone(&self.shared) }))
    }

    /// Returns EXTENTS, a private extension for clients of this project that reports where files have data
    /// ([`crate::extents`]).
    #[must_use]
    pub fn extents_program(&self) -> Arc<typed::Served<ExtentsProgram>> {
        Arc::new(typed::Served::new(ExtentsProgram { shared: Arc::clone(&self.shared) }))
    }

    /// Returns MOUNT version 3.
    #[must_use]
    pub fn mount_program(&self) -> Arc<typed::Served<MountProgram>> {
        Arc::new(typed::Served::new(MountProgram::new(Arc::clone(&self.shared))))
    }

    /// Returns the counters of served calls.
    #[must_use]
    pub fn counters(&self) -> &NfsCounters {
        &self.shared.counters
    }

    /// Returns the handle of the root of an export, as MOUNT would.
    #[must_use]
    pub fn root_handle(&self, name: &str) -> Option<FileHandle> {
        let exports = self.shared.exports();
        let served = exports.named(name)?;
        Some(exports.seal(served, &served.root))
    }

    /// Puts other exports in force, for all calls from now on. Calls in progress end by the exports that they began with.
    ///
    /// An export with an unchanged name, root and exports inside it keeps its number, so its handles stay valid. Handles of
    /// all others get NFS3ERR_STALE. A client that an export no longer admits gets NFS3ERR_ACCES. Mounts that a client
    /// could not make again leave the list that DUMP returns.
    ///
    /// # Errors
    /// Each variant of [`ExportError`]. The previous exports then stay in force.
    pub fn replace(&self, exports: Vec<Export>) -> Result<Replaced, ExportError> {
        let exports = Arc::new(Exports::new(self.shared.exports().key(), exports)?);
        let before = self.shared.exports.replace(Arc::clone(&exports));
        let ids: BTreeSet<ExportId> = exports.iter().map(|served| served.id).collect();
        self.shared.io.retain(|id| ids.contains(&id));
        self.shared
            .mounts
            .retain(|host, path| exports.find(path).is_some_and(|(served, _)| served.admits_address(host)));
        let names = |some: &Exports, others: &Exports| {
            let only = some.iter().filter(|served| others.named(&served.export.name).is_none());
            only.map(|served| served.export.name.clone()).collect()
        };
        let renumbered = exports
            .iter()
            .filter(|now| before.named(&now.export.name).is_some_and(|before| before.id != now.id));
        Ok(Replaced {
            added: names(&exports, &before),
            removed: names(&before, &exports),
            renumbered: renumbered.map(|served| served.export.name.clone()).collect(),
        })
    }

    /// Brings all written data to stable storage, for a clean stop after the last call. Each file system does
    /// so on a thread of its own. None waits for a frozen file system, or for calls that are stuck there.
    ///
    /// # Errors
    /// Error of the first export that failed or did not finish within [`ServerOptions::flush_wait`]. The log
    /// has all of them.
    pub async fn flush(&self) -> Result<(), FlushError> {
        let deadline = Instant::now() + self.shared.flush_wait;
        let mut flushes = Vec::new();
        let mut seen: Vec<&Arc<dyn FileSystem>> = Vec::new();
        let exports = self.shared.exports();
        for served in exports.iter() {
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
                // The thread panicked or could not be started.
                Ok(Err(_)) => FlushError::Failed { export, error: FsError::ServerFault },
                Err(_) => FlushError::Late { export, waited: self.shared.flush_wait },
            };
            tracing::error!(error = %flushed, "not all data is on stable storage");
            result = result.and(Err(flushed));
        }
        result
    }
}

/// Flushes on a thread of its own. If the result is unknown, the sender is dropped.
fn flush(file_system: Arc<dyn FileSystem>) -> oneshot::Receiver<Result<(), FsError>> {
    let (sender, receiver) = oneshot::channel();
    let flush = move || {
        // After the time limit the receiver is gone.
        let _ = sender.send(file_system.flush());
    };
    if let Err(error) = thread::Builder::new().name("nfs-flush".to_owned()).spawn(flush) {
        tracing::error!(%error, "cannot start a thread for the flush");
    }
    receiver
}

/// A caller at an object: the context of a procedure.
pub(crate) struct At {
    shared: Arc<Shared>,
    /// The exports with which the call began.
    exports: Arc<Exports>,
    served: Arc<Served>,
    id: FileId,
    caller: Caller,
    who: Identity,
    /// Memory for the groups of the caller, held for the lifetime of this value.
    _room: Option<Room>,
}

impl Shared {
    /// Returns the exports in force now.
    pub(crate) fn exports(&self) -> Arc<Exports> {
        self.exports.get()
    }

    /// Opens a handle for a caller. The handle is checked first, then the address, and only then the
    /// identity.
    fn enter(self: &Arc<Self>, handle: &FileHandle, context: CallContext) -> Soon<Result<At, Status>> {
        let mounting = is_part_of_mounting(&context);
        let caller = Caller::new(context);
        let exports = self.exports();
        let opened = exports.open(handle).inspect_err(|status| {
            let why = match status {
                Status::BadHandle => "this server did not make it",
                _ => "its export is no longer there, or has changed",
            };
            self.refusals.refuse(Refusal::Handle, caller.address(), &why);
        });
        let (served, id) = match opened {
            Ok((served, id)) => (Arc::clone(served), id),
            Err(status) => return Soon::Now(Some(Err(status))),
        };
        let shared = Arc::clone(self);
        let purpose = if mounting && id == served.root { Purpose::Probe } else { Purpose::Use };
        match self.identity(&served, &caller, purpose) {
            Soon::Now(known) => {
                Soon::Now(known.map(|known| shared.entered(exports, (served, id), caller, known)))
            }
            Soon::Later(known) => {
                Soon::Later(Box::pin(
                    async move { shared.entered(exports, (served, id), caller, known.await) },
                ))
            }
        }
    }

    fn entered(
        self: Arc<Self>,
        exports: Arc<Exports>,
        (served, id): (Arc<Served>, FileId),
        caller: Caller,
        known: Result<Known, Status>,
    ) -> Result<At, Status> {
        let Known { who, room } = known.inspect_err(|status| {
            if *status == Status::Acces {
                let name = &served.export.name;
                let why = match served.admits(&caller, Purpose::Use) {
                    Err(Denied::Flavor) => {
                        let flavor = Security::of(&caller.credential).map_or("unknown", Security::name);
                        format!("export {name:?} does not allow the flavour {flavor}")
                    }
                    _ => format!("export {name:?} does not admit this address"),
                };
                self.refusals.refuse(Refusal::Caller, caller.address(), &why);
            }
        })?;
        Ok(At { shared: self, exports, served, id, caller, who, _room: room })
    }

    /// Runs `job` in place or on an I/O thread, as the file system requires. The future contains only the
    /// result of the job.
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

    /// Runs a job that writes to a file in its turn for that file. The job gets a value that can end the turn
    /// early.
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

/// Returns whether clients make this call while they mount: GETATTR or FSINFO (RFC 2623 §2.3.2).
fn is_part_of_mounting(context: &CallContext) -> bool {
    context.program == NFS_PROGRAM
        && matches!(
            NfsProcedure::from_number(context.procedure),
            Some(NfsProcedure::Getattr | NfsProcedure::Fsinfo)
        )
}

/// Returns the kind of work that a procedure requires of the file system.
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

    /// Checks that the export permits changes.
    fn writable(&self) -> Result<(), Status> {
        match self.served.terms(&self.caller) {
            Some(terms) if !terms.read_only => Ok(()),
            _ => Err(Status::Rofs),
        }
    }

    /// Checks that a directory still lies in its export.
    fn check_place(&self, id: &FileId) -> Result<(), Status> {
        if self.served.holds(id)? { Ok(()) } else { Err(Status::Stale) }
    }

    /// Returns the object of a second handle, which must belong to the same export.
    fn sibling(&self, handle: &FileHandle) -> Result<FileId, Status> {
        let (served, id) = self.exports.open(handle)?;
        // RFC 1813 §3.3.14, §3.3.15: both must be on one file system.
        if served.id != self.served.id {
            return Err(Status::Xdev);
        }
        self.check_place(&id)?;
        Ok(id)
    }

    /// Returns the object of a name in this directory, as the caller may see it. The object lies in this
    /// export, or is the root of the export that the name enters.
    fn found(&self, name: &[u8], node: &Node) -> Result<(FileHandle, wire::Attributes), Status> {
        let seen = self.seen(node)?;
        if name == b".." && seen.stays {
            self.check_place(&node.id)?;
        }
        Ok((seen.handle, seen.attributes))
    }

    /// Returns the object as [`Self::found`] does, except for the directory of `..`. This makes no call to
    /// the file system.
    fn seen(&self, node: &Node) -> Result<Seen, Status> {
        let caller = (&self.caller, Purpose::Use);
        match self.exports.crossing(&self.served, &node.attributes, caller) {
            Crossing::Closed => Err(Status::Acces),
            Crossing::Enters(inner) => Ok(Seen {
                handle: self.exports.seal(inner, &inner.root),
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

    /// Checks that a name does not stand for the root of another export, which must stay, like a mount point
    /// in the kernel.
    fn removable(&self, directory: &FileId, name: Name<'_>) -> Result<(), Status> {
        if !self.served.overlaps() {
            return Ok(());
        }
        match self.fs().lookup(&self.who, directory, LookupName::Entry(name)) {
            Ok(found) => {
                let caller = (&self.caller, Purpose::Use);
                match self.exports.crossing(&self.served, &found.node.attributes, caller) {
                    Crossing::Stays => Ok(()),
                    Crossing::Enters(_) | Crossing::Closed => Err(Status::Acces),
                }
            }
            // Nothing needs protection; the operation will report the missing name.
            Err(FsError::NotFound) => Ok(()),
            // The object of the name is unknown.
            Err(error) => Err(error.into()),
        }
    }

    fn seal(&self, id: &FileId) -> FileHandle {
        self.exports.seal(&self.served, id)
    }

    fn attributes(&self, attributes: &Attributes) -> wire::Attributes {
        convert::attributes(attributes, self.served.id.as_fsid())
    }

    /// Returns the object's attributes for a failed reply, if they are available.
    fn post_op(&self) -> Option<wire::Attributes> {
        self.fs().attributes(&self.id).ok().map(|attributes| self.attributes(&attributes))
    }

    /// Returns attributes after a failed change that did not reach the object.
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
    /// Whether the object lies in the export of the directory that was searched.
    stays: bool,
}

/// Results of a procedure, or a status with its attributes.
type Served3<C> = Result<<C as NfsCall>::Ok, (Status, <C as NfsCall>::Fail)>;

/// A procedure, with its implementation at the object of its (first) handle.
trait Serve: NfsCall + Send + 'static {
    /// Returns the handle that selects the export.
    fn handle(&self) -> &FileHandle;

    /// Carries out the procedure. It may block if the export's file system may.
    fn serve(self, at: &At) -> Served3<Self>;

    /// Carries out the procedure without waiting. `None` if [`Self::serve`] has to.
    fn try_serve(&self, _at: &At) -> Option<Served3<Self>> {
        None
    }
}

/// Serves a call after a check that its object is still in its export.
fn in_place<C>(call: C, at: &At) -> Served3<C>
where
    C: Serve<Fail: Default>,
{
    at.check_place(&at.id).map_err(|status| (status, C::Fail::default()))?;
    call.serve(at)
}

/// Serves a call from what is in memory. If exports overlap, a check whether the object is still in its export comes
/// first, which may wait.
fn from_memory<C: Serve>(call: &C, at: &At) -> Option<Served3<C>> {
    if at.served.overlaps() { None } else { call.try_serve(at) }
}

/// Boxes a response for the dispatcher.
pub(crate) fn boxed<F>(respond: F) -> ResponseFuture
where
    F: Future<Output = Result<Stream, CallFailure>> + Send + 'static,
{
    const { assert!(size_of::<F>() <= FUTURE_ROOM, "see FUTURE_ROOM") };
    Box::pin(respond)
}

/// Returns the response to a call that fails at once.
pub(crate) fn failed(failure: CallFailure) -> ResponseFuture {
    boxed(std::future::ready(Err(failure)))
}

/// Decodes the arguments of a call and serves it.
pub(crate) fn decoded<P: Procedure>(
    arguments: Decoder,
    serve: impl FnOnce(P::Arguments) -> ResponseFuture,
) -> ResponseFuture {
    typed::arguments::<P>(arguments).map_or_else(failed, serve)
}

/// NFS version 3 as an RPC program.
pub struct NfsProgram {
    shared: Arc<Shared>,
}

/// Returns the reply to a call whose job has no result.
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
    shared.counters.count(C::PROCEDURE, results.as_ref().err().map(|(status, _)| *status));
    let results = match results {
        Ok(results) => {
            tracing::debug!(status = "NFS3_OK", "served");
            NfsResult::Ok(results)
        }
        Err((status, attributes)) => {
            tracing::debug!(status = status.name(), "served");
            NfsResult::Fail { status, attributes }
        }
    };
    typed::results::<C>(&results)
}

impl NfsProgram {
    fn serve<C>(&self, context: CallContext, call: C) -> ResponseFuture
    where
        C: Serve<Ok: Send, Fail: Default + Send>,
    {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = C::NAME, xid = context.xid);
        let entering = shared.enter(call.handle(), context);
        let respond = async move {
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return finish::<C>(&shared, Err((status, C::Fail::default()))),
            };
            if let Some(results) = from_memory(&call, &at) {
                return finish::<C>(&shared, results);
            }
            let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
            match shared.blocking(&served, peer, work(C::PROCEDURE), move || in_place(call, &at)).await {
                Ok(results) => finish::<C>(&shared, results),
                Err(error) => unserved::<C>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }

    /// Serves a listing. It reserves memory for its results first: a client that does not read them holds
    /// memory of its own share.
    fn list<C>(&self, context: CallContext, call: C, count: u32) -> ResponseFuture
    where
        C: Serve<Ok: Send, Fail: Default + Send>,
    {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = C::NAME, xid = context.xid);
        let entering = shared.enter(call.handle(), context);
        let respond = async move {
            let refuse = |status| finish::<C>(&shared, Err((status, C::Fail::default())));
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return refuse(status),
            };
            let Some(room) = shared.room(at.caller.ip(), data::limited(count, &shared)).await else {
                return refuse(Status::Jukebox);
            };
            let (served, peer) = (Arc::clone(&at.served), at.caller.ip());
            let (job_shared, span) = (Arc::clone(&shared), tracing::Span::current());
            // Entries take several times the memory of their encoding. They end with the job, and few jobs
            // run at a time.
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

    /// Serves READLINK, after reserving memory for the longest text.
    fn readlink(&self, context: CallContext, call: ReadlinkArgs) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = ReadlinkArgs::NAME, xid = context.xid);
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

    /// Serves READ: waits for a buffer, and then tries without an I/O thread.
    fn read(&self, context: CallContext, call: ReadArgs) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = ReadArgs::NAME, xid = context.xid);
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

    /// Serves WRITE, which waits for its turn at the file.
    fn write(&self, context: CallContext, call: WriteArgs) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let span = tracing::debug_span!("nfs", procedure = WriteArgs::NAME, xid = context.xid);
        let entering = shared.enter(&call.file, context);
        let respond = async move {
            let at = match entering.await {
                Ok(at) => at,
                Err(status) => return finish::<WriteArgs>(&shared, Err((status, WccData::default()))),
            };
            let (served, peer, file) = (Arc::clone(&at.served), at.caller.ip(), at.id);
            let job = move |written: &dyn Fn()| data::write(call, &at, written);
            match shared.writing(&served, peer, file, job).await {
                Ok(results) => finish::<WriteArgs>(&shared, results),
                Err(error) => unserved::<WriteArgs>(&shared, error),
            }
        };
        boxed(respond.instrument(span))
    }
}

impl typed::Version for NfsProgram {
    fn number(&self) -> u32 {
        NFS_PROGRAM
    }

    fn version(&self) -> u32 {
        NFS_VERSION
    }

    fn procedure(&self, procedure: u32) -> Option<ProcedureInfo> {
        NfsProcedure::from_number(procedure).map(NfsProcedure::info)
    }

    fn eligibility(&self, procedure: u32) -> (usize, usize) {
        NfsProcedure::from_number(procedure).map_or((0, 0), NfsProcedure::eligibility)
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        self.shared.exports().accept_flavor(flavor)
    }

    /// Handlers wait for the threads that call file systems, which also make the results.
    fn is_light(&self) -> bool {
        true
    }

    fn call(self: Arc<Self>, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let Some(procedure) = NfsProcedure::from_number(context.procedure) else {
            return failed(CallFailure::ProcedureUnavailable);
        };
        match procedure {
            // The dispatcher answers NULL.
            NfsProcedure::Null => failed(CallFailure::ProcedureUnavailable),
            NfsProcedure::Getattr => decoded::<GetattrArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Setattr => decoded::<SetattrArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Lookup => decoded::<LookupArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Access => decoded::<AccessArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Readlink => decoded::<ReadlinkArgs>(arguments, |call| self.readlink(context, call)),
            NfsProcedure::Read => decoded::<ReadArgs>(arguments, |call| self.read(context, call)),
            NfsProcedure::Write => decoded::<WriteArgs>(arguments, |call| self.write(context, call)),
            NfsProcedure::Create => decoded::<CreateArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Mkdir => decoded::<MkdirArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Symlink => decoded::<SymlinkArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Mknod => decoded::<MknodArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Remove => decoded::<RemoveArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Rmdir => decoded::<RmdirArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Rename => decoded::<RenameArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Link => decoded::<LinkArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Readdir => {
                decoded::<ReaddirArgs>(arguments, |call| self.list(context, call, call.count))
            }
            NfsProcedure::Readdirplus => {
                decoded::<ReaddirplusArgs>(arguments, |call| self.list(context, call, call.maxcount))
            }
            NfsProcedure::Fsstat => decoded::<FsstatArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Fsinfo => decoded::<FsinfoArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Pathconf => decoded::<PathconfArgs>(arguments, |call| self.serve(context, call)),
            NfsProcedure::Commit => decoded::<CommitArgs>(arguments, |call| self.serve(context, call)),
        }
    }
}

#[cfg(test)]
mod tests;
