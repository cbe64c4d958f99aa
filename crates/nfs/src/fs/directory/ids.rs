//! From ids to objects and back.
//!
//! There are two methods. With the kernel's own file handles, an id *is* such a handle. It stays valid
//! whatever happens to the name, through this server or locally, and the server need not remember anything.
//! The method needs `CAP_DAC_READ_SEARCH` and a file system that can be exported. Otherwise an id is inode
//! number and [`Generation`](super::map::Generation), and [`PathMap`] remembers the last known name of the
//! object. The map follows renames through this server. An object that a local user moved is stale until the
//! next look-up.
//!
//! Both return `O_PATH` descriptors, which identify an object and grant no rights. [`Ids::open_to_sync`] alone returns one that
//! grants a right: that to read a directory, without which the kernel syncs none. Only the kernel's handles give it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rpcrdma_sys::{KernelHandle, handle_of, open_by_handle};
use rustix::fs::{Mode, OFlags, ResolveFlags, Statx, openat2};
use rustix::io::Errno;

use super::convert::stat;
use super::map::{InPhase, Key, PathMap};
use crate::fs::types::{FILE_ID_MAX, FileId, FileKind, FsError, Place};

/// Flags of a descriptor that identifies an object and grants no rights.
pub(super) const NAMING: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags of a descriptor of a directory that can be synced.
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Flags of a walk: never out of the directory, through a symbolic link or onto another mount.
pub(super) const WALK: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The object of an id.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) fd: OwnedFd,
    pub(super) stat: Statx,
    /// Key of the object, once it is known.
    pub(super) key: OnceLock<Key>,
}

#[cfg(test)]
thread_local! {
    /// Number of objects that this thread has opened.
    pub(super) static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Object {
    pub(super) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        #[cfg(test)]
        OPENED.set(OPENED.get() + 1);
        let stat = stat(&fd)?;
        Ok(Self { fd, stat, key: OnceLock::new() })
    }

    /// Reads the attributes anew.
    pub(super) fn look_again(&mut self) -> Result<(), Errno> {
        self.stat = stat(&self.fd)?;
        Ok(())
    }

    pub(super) fn kind(&self) -> FileKind {
        super::convert::kind(&self.stat)
    }
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Method to make ids.
#[derive(Debug)]
pub(super) enum Ids {
    /// Handles of the kernel; the descriptor is on the exported file system.
    Kernel(OwnedFd),
    /// Inode numbers and a map.
    Map(Box<PathMap>),
}

fn kernel_id(fd: BorrowedFd<'_>) -> io::Result<FileId> {
    let handle = handle_of(fd)?;
    // The type is the first byte, the handle the rest.
    let kind = u8::try_from(handle.kind).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let mut bytes = Vec::with_capacity(FILE_ID_MAX);
    bytes.push(kind);
    bytes.extend_from_slice(&handle.bytes);
    FileId::new(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// Most attempts to open an object by its handle while the kernel reports a lack of memory.
const OPEN_TRIES: usize = 64;

fn kernel_open(mount: BorrowedFd<'_>, id: &FileId, flags: OFlags) -> io::Result<OwnedFd> {
    let (kind, bytes) = id
        .as_bytes()
        .split_first()
        .ok_or_else(|| io::Error::from_raw_os_error(Errno::STALE.raw_os_error()))?;
    let handle = KernelHandle { kind: i32::from(*kind), bytes: bytes.to_vec() };
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let mut tries = 1;
    loop {
        match open_by_handle(mount, &handle, flags) {
            // Linux also reports this while the inode's number is given to a new object. The handle is then
            // stale, as the next attempt shows.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOMEM) && tries < OPEN_TRIES => {
                tries += 1;
                std::thread::yield_now();
            }
            result => return result,
        }
    }
}

/// Opens an object by the kernel's handle if the object has a name.
fn open_existing(mount: BorrowedFd<'_>, id: &FileId, flags: OFlags) -> Result<Object, FsError> {
    let fd = kernel_open(mount, id, flags).map_err(|error| match from_io(&error) {
        // The bytes are not a handle of this file system.
        Some(FsError::InvalidArgument) | None => FsError::BadId,
        Some(other) => other,
    })?;
    let object = Object::new(fd)?;
    // An object that only a descriptor of this server keeps alive does not exist for clients.
    if object.stat.stx_nlink == 0 { Err(FsError::Stale) } else { Ok(object) }
}

/// Returns whether the kernel's handles work on the file system of `root` (not an `O_PATH` descriptor).
pub(super) fn kernel_handles_work(root: BorrowedFd<'_>) -> bool {
    let reopened = kernel_id(root).and_then(|id| kernel_open(root, &id, NAMING));
    match (reopened, stat(root)) {
        (Ok(fd), Ok(expected)) => stat(&fd).is_ok_and(|got| Place::from(&got) == Place::from(&expected)),
        _ => false,
    }
}

impl Ids {
    /// Returns the id of an object that was reached as `name` in `parent`.
    pub(super) fn id_of(&self, object: &Object, parent: Option<(&Object, &[u8])>) -> Result<FileId, FsError> {
        match self {
            Self::Kernel(_) => {
                kernel_id(object.as_fd()).map_err(|error| from_io(&error).unwrap_or(FsError::Io))
            }
            Self::Map(map) => {
                let key = map.key(object);
                if let Some((parent, name)) = parent {
                    map.remember(key, map.key(parent), name);
                }
                Ok(key.id())
            }
        }
    }

    /// Opens the object of an id; `root` is the root of the tree. Returns `None` if it was not found but may
    /// be moving from one name to another; [`Self::open_at_rest`] then decides. Call this with the identity
    /// of the process.
    pub(super) fn open(&self, root: BorrowedFd<'_>, id: &FileId) -> Result<Option<Object>, FsError> {
        match self {
            Self::Kernel(mount) => open_existing(mount.as_fd(), id, NAMING).map(Some),
            Self::Map(map) => {
                map.tidy();
                let key = Key::from_id(id).ok_or(FsError::BadId)?;
                match find(map, root, key)? {
                    Search::Found(object) => Ok(Some(object)),
                    Search::Gone | Search::Hidden => Ok(None),
                }
            }
        }
    }

    /// Opens a directory such that it can be synced. Returns `None` if that is impossible here; [`Self::open`] then opens it
    /// without rights. Call this with the identity of the process.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`], and errors of the kernel.
    pub(super) fn open_to_sync(&self, id: &FileId) -> Result<Option<Object>, FsError> {
        let Self::Kernel(mount) = self else { return Ok(None) };
        match open_existing(mount.as_fd(), id, READING) {
            // Another server can forbid it.
            Err(FsError::AccessDenied | FsError::NotPermitted) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Returns whether what identifies objects belongs to this server alone. Call this with the identity of the process.
    pub(super) fn take_over(&self) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::Map(map) => map.take_over(),
        }
    }

    /// Returns whether names identify objects, so that they have to be learnt and forgotten.
    pub(super) const fn go_by_names(&self) -> bool {
        matches!(self, Self::Map(_))
    }

    /// Waits until no rename is in progress. New renames wait while the guard is held.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if a rename does not end.
    pub(super) fn at_rest(&self) -> Result<Option<InPhase<'_>>, FsError> {
        match self {
            Self::Kernel(_) => Ok(None),
            Self::Map(map) => map.at_rest().map(Some),
        }
    }

    /// Opens an object that [`Self::open`] did not find, because a directory above may have been renamed
    /// between the look-up in the map and the walk. The caller holds [`Self::at_rest`].
    pub(super) fn open_at_rest(&self, root: BorrowedFd<'_>, id: &FileId) -> Result<Object, FsError> {
        let Self::Map(map) = self else { return Err(FsError::Stale) };
        let key = Key::from_id(id).ok_or(FsError::BadId)?;
        let (learnt, follows) = (map.learnt(), map.follows());
        match find(map, root, key)? {
            Search::Found(object) => return Ok(object),
            // The other server may have given it another name just now.
            Search::Gone if follows => return Err(FsError::TryLater),
            Search::Gone => map.drop_gone(key, learnt),
            Search::Hidden => {}
        }
        Err(FsError::Stale)
    }

    /// Returns a guard for a rename and the calls of [`Self::learn`] and [`Self::forget`] for it.
    ///
    /// # Errors
    /// [`FsError::TryLater`] if the rename cannot begin.
    pub(super) fn renaming(&self) -> Result<Option<InPhase<'_>>, FsError> {
        match self {
            Self::Kernel(_) => Ok(None),
            Self::Map(map) => map.renaming().map(Some),
        }
    }

    /// Records that an object got a name.
    pub(super) fn learn(&self, object: &Object, parent: &Object, name: &[u8]) {
        if let Self::Map(map) = self {
            map.remember(map.key(object), map.key(parent), name);
        }
    }

    /// Records that an object lost a name.
    pub(super) fn forget(&self, object: &Object, parent: &Object, name: &[u8]) {
        if let Self::Map(map) = self {
            map.forget(map.key(object), map.key(parent), name);
        }
    }
}

fn from_io(error: &io::Error) -> Option<FsError> {
    Errno::from_io_error(error).map(FsError::from)
}

/// Result of a search under the names of an object.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
enum Search {
    Found(Object),
    /// Each name has another object or none.
    Gone,
    /// The object may exist: part of a path could not be walked.
    Hidden,
}

/// Walks the paths until the object with this key is found. The map is not locked during system calls.
fn find(map: &PathMap, root: BorrowedFd<'_>, key: Key) -> Result<Search, FsError> {
    let mut search = Search::Gone;
    // Read first: the other server's names may all come between the two.
    let follows = map.follows();
    let paths = map.paths(key).map_err(|error| match error {
        // The other server may have learnt the name just now.
        FsError::Stale if follows => FsError::TryLater,
        error => error,
    });
    for path in paths? {
        match walk(root, &path) {
            Ok(object) if map.key(&object) == key => return Ok(Search::Found(object)),
            // The name now has another object or none.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return Err(FsError::TryLater),
            Err(_) => search = Search::Hidden,
        }
    }
    Ok(search)
}

/// Longest path walked in one call, in bytes: less than `PATH_MAX`.
const WALK_MAX: usize = 2048;

/// Walks from the root along `path`, which may be longer than the kernel accepts in one call.
fn walk(root: BorrowedFd<'_>, path: &[Box<[u8]>]) -> Result<Object, Errno> {
    let mut at: Option<OwnedFd> = None;
    let mut part: Vec<u8> = Vec::new();
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        if !part.is_empty() {
            part.push(b'/');
        }
        part.extend_from_slice(name);
        if part.len() >= WALK_MAX || names.peek().is_none() {
            let from = at.as_ref().map_or(root, AsFd::as_fd);
            at = Some(openat2(from, part.as_slice(), NAMING, Mode::empty(), WALK)?);
            part.clear();
        }
    }
    match at {
        Some(fd) => Object::new(fd),
        None => Object::new(openat2(root, c".", NAMING, Mode::empty(), WALK)?),
    }
}
