//! A file system on a directory tree.
//!
//! **Borders.** Every walk goes one component at a time from a descriptor, by `openat2` with
//! `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS` and `RESOLVE_NO_XDEV`. So no name leads
//! out of the tree, and the server follows no symbolic link. Other file systems mounted below the root are
//! not entered. They are listed, and refused with "permission denied", like an export without `crossmnt`
//! elsewhere. `..` of the root is the root; `..` of another directory works only if the root is still above
//! it. A handle stays valid wherever a local user moves its object on the file system, as usual for NFS
//! servers without subtree checks.
//!
//! **Rights.** If the process is root, the kernel decides, under the caller's identity (`identity`).
//! Otherwise everything happens as the user of the process, and nobody gets set-id bits. NFS needs two
//! exceptions (RFC 1813 §4.4). An owner may always read and write the data of a file, and a user who may
//! execute a file may read it. A process that is not root can make the first exception only for files that it
//! has open. So it keeps files open that are made read-only through it. It closes them when they have been
//! idle for ten minutes, when there are too many (`open_files`), or at its end.
//!
//! **Stable storage.** An operation that changes a directory or attributes is on stable storage before it
//! returns (RFC 1813 §4.7), unless [`DirectoryOptions::sync_metadata`] is off. Written data is stable as
//! requested, or after a commit. If the storage fails to keep the data, the write verifier changes, so that
//! every client repeats its uncommitted writes (`storage`). All rights to a change of attributes are checked
//! before any attribute is changed.
//!
//! **Concurrency.** Each object has its own lock (`locks`). A change holds the lock from reading the
//! attributes before it to reading those after it. A directory is not locked while an object in it is synced
//! or truncated.
//!
//! **Memory.** Data goes between the file and the caller's slices by one `pread` or `pwrite`. Only
//! descriptors are kept (`open_files`), of files at most [`DirectoryOptions::open_files`], and as many of other
//! objects (`looks`).

mod convert;
mod data;
mod followed;
mod identity;
mod ids;
mod listing;
mod locks;
mod looks;
mod map;
mod namespace;
mod open_files;
mod probe;
mod storage;
mod verifier;

use std::ffi::CString;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use convert::{attributes, mode_bits, stat, timespec};
use identity::Actor;
use ids::{Ids, NAMING, Object, WALK};
use locks::Locks;
use map::{Generation, PathMap};
#[cfg(test)]
pub(crate) use open_files::RECHECK_HERE;
use open_files::{OpenFiles, out_of_descriptors};
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmodat, chownat,
    fstatvfs, open, openat, openat2, readlinkat, readlinkat_raw, utimensat,
};
use rustix::io::Errno;
use storage::{Reach, Storage, Syncs};
use thiserror::Error;
pub use verifier::WriteVerifier;

use super::permission::{SET_GROUP_ID, SET_USER_ID};
use super::state::{StateDirectory, StateError};
use super::types::{
    Access, Attributes, Before, Change, CreateHow, Extents, FileId, FileKind, Found, FsError, Identity,
    Linked, Listing, LookupName, Name, Node, Outcome, Place, Properties, ReadResult, Renamed, SetAttributes,
    SetTime, Special, Stability, Statistics, Timestamp, WriteResult,
};
use super::{EntrySink, FileSystem, Location};

/// Most look-ups of `..` if a directory above is renamed meanwhile.
const PARENT_TRIES: usize = 8;
/// Most directories climbed for one `..` when the kernel reports no path. With those of the reported path,
/// this is more than twice the depth of any path of the kernel.
const CLIMB_MAX: usize = 4096;
/// Directories climbed by the first system call; [`CLIMB_STEPS_MAX`] is the limit. The kernel accepts a path
/// of `../` for each.
const CLIMB_STEPS: usize = 256;
const CLIMB_STEPS_MAX: usize = 1024;

/// Flags for a walk of `..`.
const UP: ResolveFlags =
    ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

/// Position of a directory relative to the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// In the tree.
    Inside,
    /// Not in the tree.
    Outside,
    /// Different at each look.
    Moving,
    /// Under a path that is too long for the kernel to report.
    TooDeep,
}

/// Method to identify objects ([`DirectoryFs`] describes the consequences for clients).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandleSource {
    /// The kernel's file handles where they work, otherwise the map.
    #[default]
    Automatic,
    /// The map of inodes to names in the state directory.
    Map,
}

/// Settings of a [`DirectoryFs`].
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// Most descriptors of files kept open between calls, and most of objects that callers look at. Default 4096. All
    /// directories together keep at most half of the descriptors that the process may have (`RLIMIT_NOFILE`).
    pub open_files: usize,
    /// Method to identify objects.
    pub handles: HandleSource,
    /// Whether changes of names and attributes are on stable storage before the reply. Default true, as RFC
    /// 1813 §4.7 requires.
    pub sync_metadata: bool,
    /// Write verifier, which reveals lost data to clients. Default: a new one, which clones of these options
    /// share.
    pub verifier: WriteVerifier,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            open_files: 4096,
            handles: HandleSource::Automatic,
            sync_metadata: true,
            verifier: WriteVerifier::default(),
        }
    }
}

/// Reason why a directory cannot be exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory cannot be opened.
    #[error("{}: {source}", .path.display())]
    Root {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The kernel or a container forbids `openat2`, and no other walk is safe.
    #[error(
        "openat2 does not work here ({0}): Linux 5.6 or later is needed, and a container has to allow it"
    )]
    Walk(io::Error),
    /// `/proc` is missing.
    #[error("/proc/self/fd: {0}: a mounted /proc is needed")]
    Proc(io::Error),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A directory tree in service.
#[derive(Debug)]
pub struct DirectoryFs {
    root: Object,
    root_id: FileId,
    location: RwLock<Option<Location>>,
    proc_fds: OwnedFd,
    ids: Ids,
    actor: Actor,
    storage: Storage,
    /// The root, opened at the start; the kernel reports failures since then to it.
    whole: OwnedFd,
    open_files: OpenFiles,
    properties: Properties,
    /// Whether the file system is one of this machine's disks or memory.
    is_local: bool,
    options: DirectoryOptions,
    /// Locks that keep other changes from coming between the attributes before and after a change.
    locks: Locks,
}

/// Logs that a location is unknown.
fn located(path: &Path, location: io::Result<Location>) -> Option<Location> {
    location
        .map_err(|error| tracing::warn!(path = %path.display(), %error, "overlaps of exports cannot be detected here"))
        .ok()
}

impl DirectoryFs {
    /// Opens the tree below `path`.
    ///
    /// # Errors
    /// Each variant of [`OpenError`], including a state directory inside the tree.
    pub fn open(path: &Path, state: &StateDirectory, options: DirectoryOptions) -> Result<Self, OpenError> {
        let storage = Storage::new(options.verifier.clone());
        Self::open_on(storage, path, state, options)
    }

    /// Opens the tree on another storage than the kernel's.
    fn open_on(
        storage: Storage,
        path: &Path,
        state: &StateDirectory,
        options: DirectoryOptions,
    ) -> Result<Self, OpenError> {
        let at_root = |errno: Errno| OpenError::Root { path: path.to_owned(), source: errno.into() };
        state.check_outside(path)?;
        let mount = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(at_root)?;
        let named = openat2(&mount, c".", NAMING, Mode::empty(), WALK)
            .map_err(|errno| OpenError::Walk(errno.into()))?;
        let root = Object::new(named).map_err(at_root)?;
        let proc_fds = open(c"/proc/self/fd", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| OpenError::Proc(errno.into()))?;
        let location = located(path, Location::of(&mount));
        let properties = probe::properties(&mount);
        let is_local = probe::is_local(&mount);
        let whole = mount.try_clone().map_err(|source| OpenError::Root { path: path.to_owned(), source })?;
        // FUSE handles become invalid when the kernel forgets the inode.
        let lasting = !probe::is_fuse(&mount);
        let kernel =
            options.handles == HandleSource::Automatic && lasting && ids::kernel_handles_work(mount.as_fd());
        let ids = if kernel {
            Ids::Kernel(mount)
        } else {
            let generation = if !lasting {
                Generation::Birth
            } else if probe::is_overlay(&mount) {
                Generation::Kind
            } else {
                Generation::Handle
            };
            Ids::Map(Box::new(PathMap::open(state, &root, generation)?))
        };
        let root_id = ids
            .id_of(&root, None)
            .map_err(|error| OpenError::Root { path: path.to_owned(), source: io::Error::other(error) })?;
        let actor = Actor::new();
        if actor.is_root() && !actor.switches() {
            tracing::warn!(
                path = %path.display(),
                "this process is root and cannot act as its callers (CAP_SETUID, CAP_SETGID): all of them, squashed or \
                 not, have its rights here"
            );
        }
        Ok(Self {
            root,
            root_id,
            location: RwLock::new(location),
            proc_fds,
            ids,
            actor,
            whole,
            open_files: OpenFiles::new(options.open_files),
            storage,
            properties,
            is_local,
            options,
            locks: Locks::new(),
        })
    }

    /// Returns whether ids are the kernel's own handles, which always stay with their object.
    #[must_use]
    pub fn has_kernel_handles(&self) -> bool {
        matches!(self.ids, Ids::Kernel(_))
    }

    /// Notes the location of the root again, which was found at `path`. A local user may have moved it since it was opened.
    pub fn locate(&self, path: &Path) {
        // The mount by which it was opened may be gone.
        let location = Location::of(&self.whole).or_else(|_| Location::of_path(path));
        let location = located(path, location);
        *self.location.write().unwrap_or_else(PoisonError::into_inner) = location;
    }

    /// Takes over what identifies objects from a server before this one ([`StateDirectory::follow`]), if that one has ended.
    /// Returns whether it has. Until then, a handle that this server does not know gets [`FsError::TryLater`]. Call this with
    /// the identity of the process.
    pub fn take_over(&self) -> bool {
        self.ids.take_over()
    }

    /// Returns whether operations run as the users that callers claim; if not, all run as the user of this
    /// process.
    #[must_use]
    pub fn acts_as_callers(&self) -> bool {
        self.actor.switches()
    }

    fn object(&self, id: &FileId) -> Result<Object, FsError> {
        let out = |error: &FsError| *error == FsError::TryLater;
        if let Some(object) = self.open_files.opening(out, || self.ids.open(self.root.as_fd(), id))? {
            return Ok(object);
        }
        let _at_rest = self.ids.at_rest()?;
        self.open_files.opening(out, || self.ids.open_at_rest(self.root.as_fd(), id))
    }

    fn directory(&self, id: &FileId) -> Result<Object, FsError> {
        let object = self.object(id)?;
        if object.kind() == FileKind::Directory { Ok(object) } else { Err(FsError::NotDirectory) }
    }

    /// Returns the entry of a directory, of any kind.
    fn child(&self, directory: &Object, name: Name<'_>) -> Result<Object, FsError> {
        self.step(directory, name.as_bytes(), NAMING, WALK)
    }

    /// Makes one step of a walk.
    fn step(&self, from: &Object, name: &[u8], flags: OFlags, how: ResolveFlags) -> Result<Object, FsError> {
        let open = || openat2(from, name, flags, Mode::empty(), how);
        let fd = self.open_files.opening(out_of_descriptors, open).map_err(|errno| match errno {
            // The root of another file system is not entered.
            Errno::XDEV => FsError::AccessDenied,
            other => other.into(),
        })?;
        Ok(Object::new(fd)?)
    }

    /// Returns the name of a descriptor below [`Self::proc_fds`], which turns an `O_PATH` descriptor into a
    /// real one.
    fn proc_name(object: &impl AsFd) -> CString {
        CString::new(object.as_fd().as_raw_fd().to_string()).unwrap_or_default()
    }

    /// Opens an object by its descriptor. The kernel checks only the rights to the object. Only for regular
    /// files and directories, because opening a device or FIFO would have effects.
    fn reopen(&self, object: &impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let name = Self::proc_name(object);
        let open = || openat(&self.proc_fds, &name, flags, Mode::empty());
        self.open_files.opening(out_of_descriptors, open)
    }

    fn node(&self, object: &Object, parent: Option<(&Object, &[u8])>) -> Result<Node, FsError> {
        Ok(Node { id: self.ids.id_of(object, parent)?, attributes: attributes(&object.stat) })
    }

    /// Returns the parent of a directory that is not the root.
    ///
    /// If a local user has moved the directory out of the tree, its parent must not be shown to the client.
    fn parent(&self, who: &Identity, directory: &Object) -> Result<Object, FsError> {
        for _ in 0..PARENT_TRIES {
            let parent = {
                let _acting = self.actor.act_as(who)?;
                self.step(directory, b"..", NAMING | OFlags::DIRECTORY, UP)?
            };
            match self.sight_by_ancestors(&parent)? {
                Sight::Inside => return Ok(parent),
                Sight::Outside => return Err(FsError::AccessDenied),
                Sight::Moving | Sight::TooDeep => {}
            }
        }
        Err(FsError::TryLater)
    }

    /// Returns whether a directory is in the tree. A climb to the root would cost a system call for each
    /// directory above, and a client can make chains of any length. So the kernel reports the path of the
    /// directory. The path is only a hint: a walk from the root along it must lead to this very object.
    fn sight(&self, directory: &Object) -> Result<Sight, FsError> {
        let place = Place::from(&directory.stat);
        if place == Place::from(&self.root.stat) {
            return Ok(Sight::Inside);
        }
        let Some(path) = self.path_of(directory)? else { return Ok(Sight::TooDeep) };
        let root = self.path_of(&self.root)?.ok_or(FsError::NameTooLong)?;
        let below = match path.strip_prefix(root.as_slice()) {
            Some([b'/', below @ ..]) => below,
            Some(below) if root == b"/" => below,
            _ => return Ok(Sight::Outside),
        };
        let walk = || openat2(&self.root, below, NAMING, Mode::empty(), WALK);
        match self.open_files.opening(out_of_descriptors, walk) {
            Ok(found) if Place::from(&stat(&found)?) == place => Ok(Sight::Inside),
            // A directory above was renamed in between.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::AGAIN) => Ok(Sight::Moving),
            Err(Errno::XDEV) => Ok(Sight::Outside),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the result of [`Self::sight`], also for a directory whose path is too long. It uses the
    /// nearest directory above whose path is short enough. A single system call climbs many steps, or fewer
    /// where many would lead out of the tree.
    fn sight_by_ancestors(&self, directory: &Object) -> Result<Sight, FsError> {
        let mut sight = self.sight(directory)?;
        let mut above: Option<Object> = None;
        let (mut steps, mut climbed) = (CLIMB_STEPS, 0);
        while sight == Sight::TooDeep {
            if climbed >= CLIMB_MAX {
                return Ok(Sight::Outside);
            }
            let from = above.as_ref().unwrap_or(directory);
            let up = b"../".repeat(steps);
            let (ancestor, seen) = match self.step(from, &up, NAMING | OFlags::DIRECTORY, UP) {
                Ok(ancestor) => {
                    let seen = self.sight(&ancestor)?;
                    (Some(ancestor), seen)
                }
                // The root of the file system.
                Err(FsError::AccessDenied) => (None, Sight::Outside),
                Err(error) => return Err(error),
            };
            match seen {
                Sight::TooDeep => {
                    climbed += steps;
                    above = ancestor;
                    steps = (2 * steps).min(CLIMB_STEPS_MAX);
                }
                Sight::Outside if steps > 1 => steps /= 2,
                seen => sight = seen,
            }
        }
        Ok(sight)
    }

    /// Returns whether a directory is the root or lies below it, with none of `borders` in between.
    fn is_below_root(&self, directory: &Object, borders: &[Place]) -> Result<bool, FsError> {
        let root = Place::from(&self.root.stat);
        let mut at = Place::from(&directory.stat);
        let mut above: Option<Object> = None;
        let mut climbed = 0;
        while at != root {
            climbed += 1;
            if borders.binary_search(&at).is_ok() || climbed > CLIMB_MAX {
                return Ok(false);
            }
            let next =
                self.step(above.as_ref().unwrap_or(directory), b"..", NAMING | OFlags::DIRECTORY, UP)?;
            let place = Place::from(&next.stat);
            // The root of the file system is its own parent.
            if place == at {
                return Ok(false);
            }
            at = place;
            above = Some(next);
        }
        Ok(true)
    }

    /// Returns the path of an object from the root of the process, as the kernel reports it; `None` if it is
    /// too long.
    fn path_of(&self, object: &Object) -> Result<Option<Vec<u8>>, FsError> {
        match readlinkat(&self.proc_fds, Self::proc_name(object), Vec::new()) {
            Ok(path) => Ok(Some(path.into_bytes())),
            Err(Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Changes a directory and reports its attributes before and after. No other change through this server
    /// comes in between. `finish` is the part that may take long; other calls change the directory meanwhile.
    fn change_in<T, U>(
        &self,
        directory: &FileId,
        operation: impl FnOnce(&Object) -> Result<T, FsError>,
        finish: impl FnOnce(T) -> Result<U, FsError>,
    ) -> Outcome<U> {
        let open = match self.to_change(directory) {
            Ok(open) => open,
            Err(error) => return Outcome::failed(error),
        };
        let Some(object) = open.object() else { return Outcome::failed(FsError::Stale) };
        let locked = match self.locks.lock(directory) {
            Ok(locked) => locked,
            Err(error) => return Outcome::failed(error),
        };
        let losses = open.syncs().map(Syncs::losses);
        let before = match stat(object) {
            // A directory that only a descriptor of this server keeps alive does not exist for clients.
            Ok(stat) if stat.stx_nlink == 0 => return Outcome::failed(FsError::Stale),
            Ok(stat) => Some(Before::from(&attributes(&stat))),
            Err(_) => None,
        };
        let result = operation(object);
        let last = stat(object).ok();
        let after = last.as_ref().map(attributes);
        drop(locked);
        let result = result.and_then(finish).and_then(|value| {
            match (open.syncs(), losses) {
                (Some(_), _) if !self.options.sync_metadata => {}
                (Some(syncs), Some(losses)) => {
                    self.storage.sync_shared(object, Reach::File, syncs, losses)?;
                }
                _ => self.settle(object)?,
            }
            Ok(value)
        });
        if last.is_some_and(|stat| stat.stx_nlink > 0) {
            self.keep_to_change(directory, open);
        }
        Outcome { result, change: Change { before, after } }
    }

    /// Brings the metadata of a directory or regular file to stable storage (RFC 1813 §4.7).
    fn settle(&self, object: &Object) -> Result<(), FsError> {
        if !self.options.sync_metadata || !matches!(object.kind(), FileKind::Regular | FileKind::Directory) {
            return Ok(());
        }
        match self.reopen(object, OFlags::RDONLY) {
            Ok(fd) => self.storage.sync(fd, Reach::File),
            // Without root, an object that its owner may not read cannot be opened, and nothing can be done.
            Err(Errno::ACCESS | Errno::PERM) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the part of a mode that an object may have. Where callers do not act as themselves, everything
    /// belongs to the user of this process. With a set-id bit, any caller could leave a program here that
    /// acts as that user. On a directory, set-group-id only determines the group of new entries.
    fn lendable(&self, mode: u32, kind: FileKind) -> u32 {
        match kind {
            _ if self.actor.switches() => mode,
            FileKind::Directory => mode & !SET_USER_ID,
            _ => mode & !(SET_USER_ID | SET_GROUP_ID),
        }
    }

    /// Sets all attributes except the size. The thread acts as the caller, and the kernel decides.
    fn apply(&self, object: &Object, new: &SetAttributes) -> Result<(), FsError> {
        if new.uid.is_some() || new.gid.is_some() {
            // -1 would mean "unchanged" to the kernel.
            if new.uid == Some(u32::MAX) || new.gid == Some(u32::MAX) {
                return Err(FsError::InvalidArgument);
            }
            let uid = new.uid.map(rustix::fs::Uid::from_raw);
            let gid = new.gid.map(rustix::fs::Gid::from_raw);
            chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = new.mode {
            let mode = self.lendable(mode, object.kind());
            chmodat(&self.proc_fds, Self::proc_name(object), mode_bits(mode), AtFlags::empty()).map_err(
                |errno| if errno == Errno::OPNOTSUPP { FsError::InvalidArgument } else { errno.into() },
            )?;
        }
        if new.accessed != SetTime::Keep || new.modified != SetTime::Keep {
            let time = |set: &SetTime| match set {
                SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
                SetTime::To(time) => timespec(time),
            };
            let times =
                Timestamps { last_access: time(&new.accessed), last_modification: time(&new.modified) };
            utimensat(object, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

impl FileSystem for DirectoryFs {
    fn may_block(&self) -> bool {
        true
    }

    fn root(&self) -> FileId {
        self.root_id
    }

    fn location(&self) -> Option<Location> {
        self.location.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_within(&self, id: &FileId, borders: &[Place]) -> Result<bool, FsError> {
        let object = self.object(id)?;
        if object.kind() != FileKind::Directory {
            return Ok(true);
        }
        match self.is_below_root(&object, borders) {
            // The way up ends at another mount, or at a directory that this process may not search. With the
            // map, the object was found on the way down from the root. Then the names on that way decide, and
            // they lead into no other export.
            Err(FsError::AccessDenied) => Ok(matches!(self.ids, Ids::Map(_))),
            known => known,
        }
    }

    fn properties(&self) -> Result<Properties, FsError> {
        Ok(self.properties)
    }

    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError> {
        let space = fstatvfs(&self.object(id)?)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Statistics {
            total_bytes: bytes(space.f_blocks),
            free_bytes: bytes(space.f_bfree),
            available_bytes: bytes(space.f_bavail),
            total_files: space.f_files,
            free_files: space.f_ffree,
            available_files: space.f_favail,
        })
    }

    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError> {
        let object = self.object(id)?;
        let attributes = attributes(&object.stat);
        self.remember_look(id, object);
        Ok(attributes)
    }

    fn try_attributes(&self, id: &FileId) -> Option<Attributes> {
        self.attributes_in_memory(id)
    }

    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError> {
        let object = self.object(id)?;
        let began = Instant::now();
        let granted = self.rights(who, &object, object.kind())?;
        let attributes = attributes(&object.stat);
        self.remember_rights(id, object, who, (Access::ALL, granted), began);
        Ok((granted.intersection(wanted), attributes))
    }

    fn try_access(&self, who: &Identity, id: &FileId, wanted: Access) -> Option<(Access, Attributes)> {
        self.access_in_memory(who, id, wanted)
    }

    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError> {
        let object = self.directory(directory)?;
        let began = Instant::now();
        let at_root = Place::from(&object.stat) == Place::from(&self.root.stat);
        let node = match name {
            LookupName::SelfEntry => self.node(&object, None)?,
            LookupName::Parent if at_root => self.node(&object, None)?,
            LookupName::Parent => self.node(&self.parent(who, &object)?, None)?,
            LookupName::Entry(name) => {
                let found = {
                    let _acting = self.actor.act_as(who)?;
                    self.child(&object, name)?
                };
                let node = self.node(&found, Some((&object, name.as_bytes())))?;
                self.remember_look(&node.id, found);
                node
            }
        };
        let searched = attributes(&object.stat);
        match name {
            // The kernel has let the caller search the directory.
            LookupName::Entry(_) => {
                let search = Access::LOOKUP;
                self.remember_rights(directory, object, who, (search, search), began);
            }
            // Nobody has asked it.
            LookupName::SelfEntry | LookupName::Parent => self.remember_look(directory, object),
        }
        Ok(Found { node, directory: Some(searched) })
    }

    fn try_lookup(
        &self,
        who: &Identity,
        directory: &FileId,
        name: LookupName<'_>,
    ) -> Option<Result<Found, FsError>> {
        match name {
            LookupName::Entry(name) => self.lookup_in_memory(who, directory, name),
            LookupName::SelfEntry | LookupName::Parent => None,
        }
    }

    fn read_link(
        &self,
        _who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError> {
        let object = self.object(id)?;
        // RFC 1813 §3.3.5: only a symbolic link has a text.
        if object.kind() != FileKind::Symlink {
            return Err(FsError::InvalidArgument);
        }
        let room = target.len();
        let length = readlinkat_raw(&object, c"", target)?;
        // The system truncates a longer text without an error.
        if length == room {
            return Err(FsError::ServerFault);
        }
        Ok((length, attributes(&object.stat)))
    }

    fn try_read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<Result<ReadResult, FsError>> {
        self.read_cached(who, id, offset, buffer).map(Ok)
    }

    fn read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        self.read_file(who, id, offset, buffer)
    }

    fn extents(&self, who: &Identity, id: &FileId, offset: u64, limit: usize) -> Result<Extents, FsError> {
        self.file_extents(who, id, offset, limit)
    }

    fn write_telling(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[IoSlice<'_>],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult> {
        self.write_file(who, id, offset, data, stability, written)
    }

    fn commit(&self, who: &Identity, id: &FileId, _offset: u64, _count: u32) -> Outcome<u64> {
        self.commit_file(who, id)
    }

    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        self.set_file_attributes(who, id, new, guard)
    }

    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node> {
        self.change_in(
            directory,
            |object| self.create_in(who, object, name, how),
            |created| self.finish_create(who, created),
        )
    }

    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node> {
        self.change_in(
            directory,
            |object| self.make_in(who, object, name, what, attributes),
            |(object, node)| {
                if matches!(what, Special::Directory) {
                    self.settle(&object)?;
                }
                Ok(node)
            },
        )
    }

    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.remove_in(who, directory, name, AtFlags::empty())
    }

    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.remove_in(who, directory, name, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed {
        self.rename_between(who, (from, from_name), (to, to_name))
    }

    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked {
        self.link_into(who, file, directory, name)
    }

    fn read_directory(
        &self,
        who: &Identity,
        directory: &FileId,
        cookie: u64,
        verifier: u64,
        nodes: bool,
        sink: &mut EntrySink<'_>,
    ) -> Result<Listing, FsError> {
        self.list(who, directory, (cookie, verifier), nodes, sink)
    }

    fn flush(&self) -> Result<(), FsError> {
        // The result for each file comes first: the file system may not report all losses.
        let files = self.open_files.sync_all();
        files.and(self.storage.sync(&self.whole, Reach::FileSystem))
    }
}

#[cfg(test)]
mod tests;
