//! The NFS client: files and directories of a mounted export, by path.
//!
//! ```text
//! Client ── open, create ──> File ── read_at, write_at, sync; read_stream, write_stream
//!   │  └─ read_dir, mkdir, remove, rename, symlink, …          (by path, from the root of the export)
//!   └─ procedures(): the 22 procedures of RFC 1813, by handle
//! ```
//!
//! [`Client::mount`] makes a [`Client`] on an RPC connection, over RDMA or TCP. Clones share it. Any number
//! of operations may run at the same time. Transfers of much data keep several calls in flight, up to
//! [`ClientOptions::window`] over all files together.
//!
//! ```no_run
//! use rpcrdma_nfs::client::{Client, ClientOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let rpc = rpcrdma::Client::connect("server.example.org").await?;
//! let client = Client::mount(&rpc, "/export", ClientOptions::default()).await?;
//! for item in client.read_dir("/").await? {
//!     println!("{}", item.name);
//! }
//! let file = client.create("/notes", Default::default()).await?;
//! file.write_at(0, "some data".into()).await?;
//! file.sync().await?;
//! assert_eq!(file.read_at(5, 100).await?, "data");
//! # Ok(())
//! # }
//! ```
//!
//! *Buffers.* Data from reads is passed on as [`bytes::Bytes`] in the memory where the transport placed it.
//! Data for writes is taken as `Bytes` and shared with the transport. Neither is copied. Data that the server
//! holds only in memory stays with the [`File`] until COMMIT reports that it is stable.
//!
//! *Errors.* Every operation ends with its result or an [`Error`]. Dropping a future abandons the answer: the
//! server may still carry out the call.

mod connect;
mod directory;
mod error;
mod extents;
mod file;
mod mount;
mod namespace;
mod procedures;
mod read;
mod slash;
mod transport;
mod tree;
mod url;
mod walk;
mod write;

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rpcrdma::GssUser;
use rpcrdma::streaming::InFlight;
use rpcrdma_oncrpc::gss::Service;
use rpcrdma_oncrpc::{AuthSys, Credential};
use tokio::sync::Semaphore;

pub use connect::MOUNT_TIMEOUT;
pub use directory::{DirItem, DirReader, MAX_LISTING};
pub use error::{Error, Violation};
pub use file::File;
pub use mount::MountClient;
pub use procedures::{JUKEBOX_FIRST_PAUSE, JUKEBOX_LONGEST_PAUSE, Procedures};
pub use read::ReadStream;
use transport::Transport;
pub use tree::{
    Change, CopyEvent, CopyFailure, CopyOptions, CopyReport, CopyRun, Filter, FilterError, MAX_DEPTH,
    MAX_REPORTED, PARTIAL_STEP, Progress, SyncOptions,
};
pub use url::{NfsUrl, Query, UrlError};
pub use walk::{MAX_SYMLINKS, Node};
pub use write::WriteStream;

use crate::mount::{KRB5, KRB5I, KRB5P};
use crate::wire::{FileHandle, FsinfoArgs, FsinfoOk, MAX_PAYLOAD};

/// Smallest size of READ and WRITE that the client uses, whatever the server announces, in bytes.
const MIN_CHUNK: u32 = 1024;
/// Bounds for the count of READDIR, in bytes. Within them the client uses the server's preference.
const READDIR_COUNT: std::ops::RangeInclusive<u32> = 4096..=(256 << 10);

/// Calls in flight, whose results are returned in the order of their start.
type Calls<T> = InFlight<Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>>;

/// Options of a client.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Identity of the caller. Default: AUTH_SYS with the user and groups of this process.
    pub credential: Credential,
    /// Kerberos user for the calls of NFS, instead of `credential`. The calls of MOUNT have the latter (RFC 2623 §2.7).
    /// Default: none.
    pub gss: Option<Arc<GssUser>>,
    /// Largest READ and WRITE in bytes, if the server accepts it. Default: 1 MiB.
    pub chunk: u32,
    /// READs and WRITEs in flight at a time, over all files. They hold `window` × `chunk` bytes of memory,
    /// and one `chunk` more for each file. READs of whole short files in copies of trees do not count. They are as many as
    /// files copied at the same time, of 64 KiB at most. Default: 32.
    pub window: usize,
    /// READs or WRITEs in flight for one file. Default: 16.
    pub file_window: usize,
    /// Most bytes written that may wait for COMMIT, over all files; the client keeps them until then. Beyond
    /// this limit, each file being written commits its data. Default: 128 MiB.
    pub unstable_limit: usize,
    /// Time limit of each call; with `None`, that of the transport.
    pub timeout: Option<Duration>,
    /// TCP port of the MOUNT service, if the NFS connection has no such service. With `None`, the client asks
    /// rpcbind.
    pub mount_port: Option<u16>,
    /// Time limit for each step of the search for a MOUNT service: the question on the NFS connection, the connections to
    /// rpcbind and to the service, and each call on them. Default: [`MOUNT_TIMEOUT`].
    pub mount_timeout: Duration,
    /// Time for which a call that gets NFS3ERR_JUKEBOX is repeated before it fails. Default: one minute.
    pub jukebox_patience: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            credential: process_credential(),
            gss: None,
            chunk: 1 << 20,
            window: 32,
            file_window: 16,
            unstable_limit: 128 << 20,
            timeout: None,
            mount_port: None,
            mount_timeout: MOUNT_TIMEOUT,
            jukebox_patience: Duration::from_secs(60),
        }
    }
}

impl ClientOptions {
    /// Returns the flavour of the calls of NFS, as the MOUNT service lists it (RFC 2623 §2.2).
    fn flavor(&self) -> u32 {
        match self.gss.as_ref().map(|user| user.service()) {
            None => self.credential.flavor(),
            Some(Service::None) => KRB5,
            Some(Service::Integrity) => KRB5I,
            Some(Service::Privacy) => KRB5P,
        }
    }
}

/// Returns the AUTH_SYS credential of this process: effective user and group, and up to 16 further groups
/// (RFC 5531 Appendix A).
pub fn process_credential() -> Credential {
    let gids = rustix::process::getgroups().unwrap_or_default();
    let machine = rustix::system::uname();
    Credential::Sys(AuthSys {
        stamp: 0,
        machine_name: machine.nodename().to_string_lossy().as_ref().into(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: gids
            .into_iter()
            .take(rpcrdma_oncrpc::auth::GIDS_MAX)
            .map(rustix::process::Gid::as_raw)
            .collect(),
    })
}

/// Calls of a client. If some wait and none is answered for long, the server does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Activity {
    /// Calls that wait for an answer. They wait through lost connections and repetitions.
    pub in_flight: usize,
    /// Calls answered, by results or a status.
    pub answered: u64,
}

/// A mounted export; see the module documentation. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    procedures: Procedures,
    root: FileHandle,
    /// Answer of FSINFO; sizes are bounded where they are used.
    info: FsinfoOk,
    options: ClientOptions,
    /// A permit for each READ or WRITE in flight, or finished but not yet taken from its stream.
    window: Arc<Semaphore>,
    /// Bytes of all files that wait for COMMIT.
    unstable: AtomicUsize,
    /// Whether the server answered READDIRPLUS with NFS3ERR_NOTSUPP.
    no_readdirplus: AtomicBool,
    /// Whether the server lacks the program of [`crate::extents`], or answers it badly.
    no_extents: AtomicBool,
    mounted: Option<connect::Mounted>,
}

impl Client {
    /// Creates a client for the tree under `root`, a known handle.
    async fn with_root(
        transport: Arc<dyn Transport>,
        root: FileHandle,
        options: ClientOptions,
        mounted: Option<connect::Mounted>,
    ) -> Result<Self, Error> {
        let procedures = Procedures {
            transport,
            credential: options.credential.clone(),
            timeout: options.timeout,
            patience: options.jukebox_patience,
            activity: Arc::default(),
        };
        let info = procedures.fsinfo(&FsinfoArgs { root }).await?;
        let window = Arc::new(Semaphore::new(options.window.clamp(1, Semaphore::MAX_PERMITS)));
        let no_readdirplus = AtomicBool::new(false);
        let no_extents = AtomicBool::new(false);
        let unstable = AtomicUsize::new(0);
        let inner =
            Inner { procedures, root, info, options, window, unstable, no_readdirplus, no_extents, mounted };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the procedures of RFC 1813 by file handle.
    pub fn procedures(&self) -> &Procedures {
        &self.inner.procedures
    }

    /// Returns the calls of NFS that wait for an answer now, and those answered so far.
    pub fn activity(&self) -> Activity {
        let counters = &self.inner.procedures.activity;
        Activity {
            in_flight: counters.in_flight.load(Ordering::Relaxed),
            answered: counters.answered.load(Ordering::Relaxed),
        }
    }

    /// Returns the handle of the root of the export.
    pub fn root(&self) -> FileHandle {
        self.inner.root
    }

    /// Returns the answer of FSINFO at the time of the mount.
    pub fn info(&self) -> &FsinfoOk {
        &self.inner.info
    }

    /// Returns the bytes of one READ: the server's maximum, within the options and [`MAX_PAYLOAD`].
    pub fn read_size(&self) -> u32 {
        self.chunk(self.inner.info.read_max)
    }

    /// Returns the bytes of one WRITE: the server's maximum, within the options and [`MAX_PAYLOAD`].
    pub fn write_size(&self) -> u32 {
        self.chunk(self.inner.info.write_max)
    }

    fn chunk(&self, server: u32) -> u32 {
        let most = u32::try_from(MAX_PAYLOAD).unwrap_or(u32::MAX);
        // A server that announces no size accepts at least the smallest size of RFC 1094.
        self.inner.options.chunk.min(server).clamp(MIN_CHUNK, most)
    }

    fn readdir_count(&self) -> u32 {
        self.inner.info.readdir_preferred.clamp(*READDIR_COUNT.start(), *READDIR_COUNT.end())
    }
}
