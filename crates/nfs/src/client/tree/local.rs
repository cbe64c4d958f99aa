//! Local files and directories of a copy, accessed on threads where calls may block.
//!
//! *Directories* ([`LocalDir`]) know their parent and their name in it. System calls get a descriptor and one name. So
//! a path may be longer than any system call accepts, and a link placed in the way is not followed. Few descriptors
//! stay open. A directory whose descriptor was closed is opened again from the nearest open directory above it.
//!
//! *Targets.* A [`Sink`] receives the content of a file. A regular file is written under a temporary name, and renamed
//! after a successful close. A device, a pipe, or a file with several names that the caller named is written in place.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Permissions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use rpcrdma_xdr::Payload;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, StatxAttributes, StatxFlags, Timespec, Timestamps,
    UTIME_OMIT, Uid, XattrFlags, chownat, fgetxattr, flistxattr, fsetxattr, fstatfs, linkat, mkdirat, openat,
    readlinkat, renameat, statx, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, pwritev, writev};

use super::{CopyRun, Copying, Kept, Owned, temporary_name};
use crate::client::walk::shortened;
use crate::client::{Error, MAX_SYMLINKS};
use crate::vectored::write_all;
use crate::wire::{Attributes, NfsTime};

/// Most unused directory descriptors of a copy that stay open.
const OPEN_DIRECTORIES: usize = 64;
/// Greatest length of a list of extended attributes, and of a value, in bytes: the limits of Linux.
const XATTR_MAX: usize = 64 << 10;
/// Type of procfs in statfs (`PROC_SUPER_MAGIC`).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
/// Permission bits that users may set on their own files.
const PERMISSIONS: u32 = 0o777;
/// Permission bits of the owner: a directory has all of them during a copy into it.
pub(super) const OWNER_ALL: u32 = 0o700;
/// Mode of a file before it gets the attributes of another file: only its owner may access it.
pub(super) const PRIVATE_FILE: u32 = 0o600;
/// Length of the blocks that are tested for zeros, in bytes: no common file system has smaller blocks.
const BLOCK: usize = 4096;
const BLOCK_LENGTH: u64 = 4096;

/// Runs a closure that may block on a thread for such work. `path` is for errors.
pub(super) async fn blocking<T: Send + 'static>(
    path: impl FnOnce() -> PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(source)) => Err(Error::Local { path: path(), source }),
        Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
        Err(_) => {
            let source = io::Error::other("the runtime is shutting down");
            Err(Error::Local { path: path(), source })
        }
    }
}

/// Descriptors that stay open: those used last.
#[derive(Debug, Default)]
struct Recent(Mutex<VecDeque<Arc<OwnedFd>>>);

impl Recent {
    fn keep(&self, fd: &Arc<OwnedFd>) {
        let mut kept = lock(&self.0);
        if kept.len() >= OPEN_DIRECTORIES {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(fd));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A local directory: named by the caller, or an entry of another directory.
#[derive(Debug)]
pub(super) struct LocalDir {
    place: DirPlace,
    open: Mutex<Weak<OwnedFd>>,
    recent: Arc<Recent>,
    /// File system and number of the directory, once they are known.
    id: OnceLock<FileId>,
}

/// Identity of a local file or directory: file system and number.
pub(super) type FileId = (u64, u64);

fn id_of(stat: &Statx) -> FileId {
    (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// Attributes that show whether a local object and an object of a server are the same. They are the same if the server
/// exports this file system. Every change of the object changes some of these attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    number: u64,
    size: u64,
    mtime: NfsTime,
    ctime: NfsTime,
}

impl Identity {
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether this is the object of both looks, with a time of change between theirs.
    pub(super) fn is_between(&self, before: &Self, after: &Self) -> bool {
        self.number == before.number
            && self.number == after.number
            && (before.ctime..=after.ctime).contains(&self.ctime)
    }
}

impl From<&Attributes> for Identity {
    fn from(attributes: &Attributes) -> Self {
        let &Attributes { fileid, size, mtime, ctime, .. } = attributes;
        Self { number: fileid, size, mtime, ctime }
    }
}

impl From<&Statx> for Identity {
    fn from(stat: &Statx) -> Self {
        let (mtime, ctime) = (stat.stx_mtime, stat.stx_ctime);
        Self {
            number: stat.stx_ino,
            size: stat.stx_size,
            mtime: nfs_time(mtime.tv_sec, mtime.tv_nsec),
            ctime: nfs_time(ctime.tv_sec, ctime.tv_nsec),
        }
    }
}

/// Returns the nearest time that the protocol can express.
fn nfs_time(seconds: i64, nanoseconds: u32) -> NfsTime {
    match u64::try_from(seconds) {
        Err(_) => NfsTime::default(),
        Ok(seconds) => std::time::UNIX_EPOCH
            .checked_add(std::time::Duration::new(seconds, nanoseconds))
            .map_or(NfsTime { seconds: u32::MAX, nanoseconds: 999_999_999 }, NfsTime::from),
    }
}

/// Returns the attributes of an open file or directory.
pub(super) fn stat_of(file: impl AsFd) -> io::Result<Statx> {
    Ok(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?)
}

#[derive(Debug)]
enum DirPlace {
    /// A directory that the caller named. Links on the way and at the end are followed once.
    Named {
        path: PathBuf,
        _open: Arc<OwnedFd>,
    },
    Entry {
        parent: Arc<LocalDir>,
        name: OsString,
    },
    /// State during the drop only.
    Gone,
}

impl Drop for LocalDir {
    /// Drops the parents in a loop, because a recursion would need stack in proportion to the depth of the tree.
    fn drop(&mut self) {
        let mut place = std::mem::replace(&mut self.place, DirPlace::Gone);
        while let DirPlace::Entry { parent, .. } = place {
            match Arc::into_inner(parent) {
                Some(mut last) => place = std::mem::replace(&mut last.place, DirPlace::Gone),
                None => return,
            }
        }
    }
}

impl LocalDir {
    /// Opens an existing directory; follows links.
    pub(super) fn named(path: &Path) -> io::Result<Arc<Self>> {
        let used = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = Arc::new(openat(CWD, used, flags() | OFlags::PATH, Mode::empty())?);
        let open = Mutex::new(Arc::downgrade(&fd));
        let place = DirPlace::Named { path: path.to_owned(), _open: fd };
        Ok(Arc::new(Self { place, open, recent: Arc::default(), id: OnceLock::new() }))
    }

    /// Returns the directory of that name in this directory. It need not exist yet.
    pub(super) fn entry(self: &Arc<Self>, name: &OsStr) -> Arc<Self> {
        let place = DirPlace::Entry { parent: Arc::clone(self), name: name.to_owned() };
        let recent = Arc::clone(&self.recent);
        Arc::new(Self { place, open: Mutex::default(), recent, id: OnceLock::new() })
    }

    /// Returns the names from the caller's directory to this one.
    pub(super) fn names(&self) -> Vec<&OsStr> {
        let mut names = Vec::new();
        let mut at = self;
        while let DirPlace::Entry { parent, name } = &at.place {
            names.push(name.as_os_str());
            at = parent;
        }
        names.reverse();
        names
    }

    /// Returns the path for messages, shortened if it is long.
    pub(super) fn path(&self) -> PathBuf {
        shown(self.whole_path())
    }

    fn whole_path(&self) -> PathBuf {
        let mut at = self;
        while let DirPlace::Entry { parent, .. } = &at.place {
            at = parent;
        }
        let start = match &at.place {
            DirPlace::Named { path, .. } => path.as_path(),
            _ => Path::new(""),
        };
        let names = self.names();
        let length = start.as_os_str().len() + names.iter().map(|name| name.len() + 1).sum::<usize>();
        let mut path = PathBuf::with_capacity(length);
        path.push(start);
        path.extend(names);
        path
    }

    /// Returns a descriptor for access to names in this directory.
    fn fd(&self) -> io::Result<Arc<OwnedFd>> {
        let mut closed = Vec::new();
        let mut at = self;
        let mut fd = loop {
            if let Some(fd) = lock(&at.open).upgrade() {
                break fd;
            }
            let DirPlace::Entry { parent, name } = &at.place else {
                return Err(Errno::BADF.into());
            };
            closed.push((at, name));
            at = parent;
        };
        while let Some((at, name)) = closed.pop() {
            fd = Arc::new(openat(&*fd, name, flags() | OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?);
            *lock(&at.open) = Arc::downgrade(&fd);
            self.recent.keep(&fd);
        }
        Ok(fd)
    }

    /// Returns the directory's attributes.
    pub(super) fn stat(&self) -> io::Result<Statx> {
        stat_of(&*self.fd()?)
    }

    /// Returns file system and number of the directory.
    fn id(&self) -> io::Result<FileId> {
        match self.id.get() {
            Some(id) => Ok(*id),
            None => {
                let id = id_of(&self.stat()?);
                Ok(*self.id.get_or_init(|| id))
            }
        }
    }

    /// Opens the directory to read or change it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        Ok(openat(&*self.fd()?, ".", flags(), Mode::empty())?)
    }

    /// Makes the directory so that its owner may write in it, or uses an existing directory that is not a link. The
    /// umask of this process applies to `mode`. With `private`, only its owner has rights until
    /// [`finish`](Self::finish). Returns whether the directory is new.
    pub(super) fn make(&self, mode: u32, private: bool) -> io::Result<bool> {
        let DirPlace::Entry { parent, name } = &self.place else { return Ok(false) };
        let fd = parent.fd()?;
        let mode = if private { OWNER_ALL } else { mode & PERMISSIONS | OWNER_ALL };
        match mkdirat(&*fd, name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if is_type(&look(&*fd, name)?, FileType::Directory) => Ok(false),
            Err(Errno::EXIST) => {
                Err(io::Error::new(io::ErrorKind::NotADirectory, "exists and is not a directory"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the attributes to keep, after all entries of the directory exist.
    pub(super) fn finish(&self, kept: Kept) -> io::Result<Owned> {
        apply(&File::from(self.open()?), kept)
    }

    /// Removes the owner's permissions that [`make`](Self::make) added beyond `mode`.
    pub(super) fn restrict(&self, mode: u32) -> io::Result<()> {
        let directory = File::from(self.open()?);
        let now = directory.metadata()?.mode();
        directory.set_permissions(Permissions::from_mode(now & 0o7777 & (mode | !OWNER_ALL)))
    }
}

/// Returns a path for messages, shortened if it is long.
fn shown(path: PathBuf) -> PathBuf {
    shortened(path.to_string_lossy().into_owned()).into()
}

fn flags() -> OFlags {
    OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Returns the attributes of a name; a link at the end is not followed.
pub(super) fn look(dir: impl AsFd, name: &OsStr) -> io::Result<Statx> {
    Ok(statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?)
}

pub(super) fn is_type(stat: &Statx, wanted: FileType) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == wanted
}

/// A name in a local directory.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) dir: Arc<LocalDir>,
    pub(super) name: OsString,
}

impl Spot {
    /// Returns the path for messages.
    pub(super) fn path(&self) -> PathBuf {
        shown(self.dir.path().join(&self.name))
    }

    /// Claims this name for one source of a command.
    fn claim(&self, copying: &Copying) -> io::Result<()> {
        if copying.run.claim(&(self.dir.id()?, self.name.as_os_str())) { Ok(()) } else { Err(just_made()) }
    }

    /// Returns the attributes of an object with this name that a new one may replace: a regular file or a link.
    fn replaceable(&self) -> io::Result<Option<Statx>> {
        let existing = self.existing()?;
        match existing.as_ref().map(|stat| FileType::from_raw_mode(stat.stx_mode.into())) {
            None | Some(FileType::RegularFile | FileType::Symlink) => Ok(existing),
            Some(FileType::Directory) => Err(Errno::ISDIR.into()),
            Some(_) => Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "exists and is a device, pipe or socket: it is left alone",
            )),
        }
    }

    /// Returns the attributes of the object with this name, if one exists.
    fn existing(&self) -> io::Result<Option<Statx>> {
        match look(&*self.dir.fd()?, &self.name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the error for a name or object that belongs to another source.
fn just_made() -> io::Error {
    let reason = "not overwritten: another source of this command has just made this object";
    io::Error::new(io::ErrorKind::AlreadyExists, reason)
}

/// Refuses an existing object that belongs to an earlier source: the file system treats two names as one.
fn spare(existing: &Statx, run: &CopyRun) -> io::Result<()> {
    if run.has(id_of(existing)) { Err(just_made()) } else { Ok(()) }
}

/// Returns the name at the end of a path, with its directory.
pub(super) fn spot_of(path: &Path) -> io::Result<Spot> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let dir = LocalDir::named(path.parent().unwrap_or_else(|| Path::new("")))?;
    Ok(Spot { dir, name: name.to_owned() })
}

/// Destination of a path after its last link.
enum End {
    /// A name, whose object may or may not exist.
    Place(Spot),
    /// A file that a process has open (`/dev/stdout`), reachable only through the link itself.
    Magic(PathBuf),
}

/// Returns whether another user may have placed a link in the way. That is so in a directory like `/tmp`, if the link's
/// owner is neither this user nor the directory's. Linux does not follow such links either (`fs.protected_symlinks`).
fn is_trap(link: &Statx, dir: &Statx) -> bool {
    const STICKY_FOR_ALL: u16 = 0o1002;
    let user = rustix::process::geteuid().as_raw();
    dir.stx_mode & STICKY_FOR_ALL == STICKY_FOR_ALL && link.stx_uid != user && link.stx_uid != dir.stx_uid
}

/// Follows the links at the end of a path, as an open would.
fn follow(path: &Path) -> io::Result<End> {
    let mut path = path.to_owned();
    for _ in 0..=MAX_SYMLINKS {
        let spot = spot_of(&path)?;
        let link = match spot.existing()? {
            Some(stat) if is_type(&stat, FileType::Symlink) => stat,
            _ => return Ok(End::Place(spot)),
        };
        let dir = spot.dir.fd()?;
        if is_trap(&link, &stat_of(&*dir)?) {
            let reason =
                "is a link of another user in a directory where everybody may make one: not followed";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        // The numbers of file system types are small, whatever the type of the statfs field.
        if u64::try_from(fstatfs(&*dir)?.f_type).is_ok_and(|kind| kind == PROC_SUPER_MAGIC) {
            return Ok(End::Magic(path));
        }
        let target = readlinkat(&*dir, &spot.name, Vec::new())?;
        path = path.parent().unwrap_or_else(|| Path::new("")).join(OsStr::from_bytes(target.to_bytes()));
    }
    Err(Errno::LOOP.into())
}

/// A temporary name beside another one. If an object has it and was not renamed, the drop removes that object.
struct Temporary {
    spot: Spot,
    made: bool,
    run: CopyRun,
}

impl Temporary {
    fn beside(spot: &Spot, copying: &Copying) -> Self {
        let spot = Spot { dir: Arc::clone(&spot.dir), name: temporary_name().into() };
        Self { spot, made: false, run: copying.run.clone() }
    }

    /// Renames `object`, which has the temporary name, to its final name.
    fn rename(mut self, name: &OsStr, object: FileId) -> io::Result<()> {
        let run = self.run.clone();
        let _turn = run.local_turn();
        let place = Spot { dir: Arc::clone(&self.spot.dir), name: name.to_owned() };
        if let Some(there) = place.existing()? {
            spare(&there, &run)?;
        }
        let dir = self.spot.dir.fd()?;
        renameat(&*dir, &self.spot.name, &*dir, name)?;
        self.made = false;
        run.take(object);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.made {
            // An error here can be neither reported nor repaired.
            let _ = self.spot.dir.fd().map(|dir| unlinkat(&*dir, &self.spot.name, AtFlags::empty()));
        }
    }
}

/// Returns whether all bytes are zero.
fn is_zero(data: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    data.chunks(BLOCK).all(|block| ZEROS.get(..block.len()) == Some(block))
}

/// Requirements of a new local file beside its content.
pub(super) struct Wanted {
    /// Attributes of the file at the server.
    pub(super) source: Attributes,
    /// Copy that the file belongs to.
    pub(super) copying: Copying,
}

impl Wanted {
    /// Returns the initial mode of a new file; the umask of this process applies to it.
    fn first_mode(&self) -> Mode {
        let kept = self.copying.options.preserve;
        Mode::from_raw_mode(if kept { PRIVATE_FILE } else { self.source.mode & PERMISSIONS })
    }

    /// Checks that the file would not be copied onto itself.
    fn differs(&self, existing: &Statx) -> io::Result<()> {
        if Identity::from(existing) == Identity::from(&self.source) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "source and target are the same file"));
        }
        Ok(())
    }

    /// Claims a file to write it in place. Returns whether this is the first time.
    fn take_in_place(&self, existing: &Statx) -> io::Result<bool> {
        let run = &self.copying.run;
        let _turn = run.local_turn();
        spare(existing, run)?;
        // With one link, another name that leads here is another spelling of this name.
        if existing.stx_nlink <= 1 {
            run.take(id_of(existing));
        }
        Ok(run.first_in_place(id_of(existing)))
    }
}

/// System calls whose failure means lost data.
#[derive(Clone, Copy)]
struct Storage {
    sync: fn(&File) -> io::Result<()>,
    close: fn(OwnedFd) -> io::Result<()>,
}

impl Storage {
    const SYSTEM: Self = Self { sync: File::sync_data, close: rpcrdma_sys::close };
}

/// Content without holes, in the slices in which it arrived.
struct Run<'a> {
    offset: u64,
    slices: Vec<IoSlice<'a>>,
}

impl<'a> Run<'a> {
    fn push(&mut self, slice: &'a [u8], part: Range<usize>) {
        self.slices.extend(slice.get(part).filter(|part| !part.is_empty()).map(IoSlice::new));
    }

    fn write(&self, file: &File) -> io::Result<()> {
        let (_, written) =
            write_all(&self.slices, |rest, done| pwritev(file, rest, self.offset.saturating_add(wide(done))));
        Ok(written?)
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Destination of a file's content; see the module documentation.
pub(super) struct Sink {
    file: File,
    kind: Kind,
    storage: Storage,
}

enum Kind {
    /// A file that gets its name at the end, and the mode of the file that it replaces.
    Part { temporary: Temporary, name: OsString, mode: Option<u32> },
    /// An existing regular file. `empty` is set once the old content is truncated.
    InPlace { empty: bool },
    /// A device or pipe, written from beginning to end.
    Stream,
}

impl Sink {
    /// Opens the file at the end of a path that the caller named. Follows links, and opens devices and pipes for
    /// writing.
    pub(super) fn named(path: &Path, wanted: &Wanted) -> io::Result<Self> {
        let spot = match follow(path)? {
            End::Place(spot) => spot,
            End::Magic(path) => {
                let file = File::options().write(true).open(path)?;
                let stat = stat_of(&file)?;
                if !is_type(&stat, FileType::RegularFile) {
                    return Ok(Self::new(file, Kind::Stream));
                }
                wanted.differs(&stat)?;
                return Ok(Self::new(file, Kind::InPlace { empty: false }));
            }
        };
        match spot.existing()? {
            Some(stat) if !is_type(&stat, FileType::RegularFile) && !is_type(&stat, FileType::Directory) => {
                // As with cp, a pipe waits here for its reader.
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
                Ok(Self::new(file, Kind::Stream))
            }
            Some(stat) => Self::over(&spot, &stat, wanted, stat.stx_nlink > 1),
            None => Self::fresh(&spot, wanted),
        }
    }

    /// Opens a file of a tree. A link in its place is replaced, not followed; any object that is neither a file nor a
    /// link is left alone.
    pub(super) fn in_tree(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        match spot.replaceable()? {
            None => Self::fresh(spot, wanted),
            Some(stat) if is_type(&stat, FileType::Symlink) => {
                spot.claim(&wanted.copying)?;
                Self::part(spot, None, wanted)
            }
            Some(stat) => Self::over(spot, &stat, wanted, false),
        }
    }

    const fn new(file: File, kind: Kind) -> Self {
        Self { file, kind, storage: Storage::SYSTEM }
    }

    /// Makes a file under an unused name.
    fn fresh(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        spot.claim(&wanted.copying)?;
        if wanted.copying.options.in_place {
            Self::create(spot, wanted)
        } else {
            Self::part(spot, None, wanted)
        }
    }

    /// Opens an existing regular file. If it is written in place, its other names get the new content.
    fn over(spot: &Spot, stat: &Statx, wanted: &Wanted, with_other_names: bool) -> io::Result<Self> {
        if is_type(stat, FileType::Directory) {
            return Err(Errno::ISDIR.into());
        }
        wanted.differs(stat)?;
        spot.claim(&wanted.copying)?;
        spare(stat, &wanted.copying.run)?;
        // A file on which another file is mounted cannot be replaced by a rename (EBUSY).
        let mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let in_place = wanted.copying.options.in_place || with_other_names || mounted;
        if in_place && let Some(file) = Self::existing(spot, wanted)? {
            return Ok(file);
        }
        match Self::part(spot, Some(stat), wanted) {
            // A user who may not make files here, or not with this owner, may still write to the existing file.
            Err(error) if cannot_replace(&error) => Self::existing(spot, wanted).ok().flatten().ok_or(error),
            part => part,
        }
    }

    fn create(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let run = &wanted.copying.run;
        let _turn = run.local_turn();
        let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, wanted.first_mode())?);
        run.take(id_of(&stat_of(&file)?));
        Ok(Self::new(file, Kind::InPlace { empty: true }))
    }

    /// Opens an existing file to write it in place. Returns `None` if an earlier name led to the same file.
    fn existing(spot: &Spot, wanted: &Wanted) -> io::Result<Option<Self>> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is not a regular file any more"));
        }
        let first = wanted.take_in_place(&stat_of(&file)?)?;
        Ok(first.then(|| Self::new(file, Kind::InPlace { empty: false })))
    }

    /// Makes a new file under a temporary name, which will replace `existing`.
    fn part(spot: &Spot, existing: Option<&Statx>, wanted: &Wanted) -> io::Result<Self> {
        let mut temporary = Temporary::beside(spot, &wanted.copying);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // The file stays private until it has the attributes of the file that it replaces.
        let first = if existing.is_some() { Mode::from_raw_mode(PRIVATE_FILE) } else { wanted.first_mode() };
        let file = File::from(openat(&*spot.dir.fd()?, &temporary.spot.name, flags, first)?);
        temporary.made = true;
        let mut replaced = None;
        if let Some(stat) = existing {
            let (uid, gid) = (stat.stx_uid, stat.stx_gid);
            let made = file.metadata()?;
            if (made.uid(), made.gid()) != (uid, gid) {
                rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            copy_xattrs(spot, &file)?;
            replaced = Some(u32::from(stat.stx_mode));
        }
        Ok(Self::new(file, Kind::Part { temporary, name: spot.name.clone(), mode: replaced }))
    }

    /// Writes content at `offset`. Offsets never decrease.
    pub(super) fn write(&mut self, offset: u64, data: &Payload) -> io::Result<()> {
        match &mut self.kind {
            Kind::Stream => {
                let slices: Vec<_> = data.iter().map(|slice| IoSlice::new(slice)).collect();
                return Ok(write_all(&slices, |rest, _| writev(&self.file, rest)).1?);
            }
            Kind::InPlace { empty } => cut(&self.file, empty)?,
            Kind::Part { .. } => {}
        }
        // A run of blocks that are not all zeros is written in one call. Unwritten parts read as zeros. A block that
        // lies in two slices is tested in two parts.
        let mut run = Run { offset, slices: Vec::new() };
        let mut at = offset;
        for slice in data.iter() {
            let within = usize::try_from(at % BLOCK_LENGTH).unwrap_or_default();
            let (mut start, mut end) = (0, 0);
            let mut next = slice.len().min(BLOCK - within);
            while end < slice.len() {
                if slice.get(end..next).is_some_and(is_zero) {
                    run.push(slice, start..end);
                    run.write(&self.file)?;
                    run = Run { offset: at.saturating_add(wide(next)), slices: Vec::new() };
                    start = next;
                }
                end = next;
                next = slice.len().min(end.saturating_add(BLOCK));
            }
            run.push(slice, start..end);
            at = at.saturating_add(wide(slice.len()));
        }
        run.write(&self.file)
    }

    /// Returns whether zeros need not be written because the file already reads as zeros.
    pub(super) fn takes_holes(&self) -> bool {
        !matches!(self.kind, Kind::Stream)
    }

    /// Sets the length of the file, then the attributes to keep, and last the name. The close must succeed before. An
    /// old file is given up only for data on stable storage. Returns whether owner and group could be kept.
    pub(super) fn finish(self, size: u64, kept: Option<Kept>) -> io::Result<Owned> {
        let Self { file, mut kind, storage } = self;
        let mut owned = Owned::ALL;
        let durable = match &mut kind {
            // The queue of a disk reports no errors at close.
            Kind::Stream => is_type(&stat_of(&file)?, FileType::BlockDevice),
            Kind::InPlace { empty } => {
                cut(&file, empty)?;
                false
            }
            Kind::Part { mode, .. } => mode.is_some(),
        };
        if !matches!(kind, Kind::Stream) {
            file.set_len(size)?;
            let replaced = if let Kind::Part { mode, .. } = &kind { *mode } else { None };
            match (kept, replaced) {
                (Some(kept), _) => owned = apply(&file, kept)?,
                (None, Some(mode)) => {
                    file.set_permissions(Permissions::from_mode(mode & settable(Owned::ALL)))?;
                }
                (None, None) => {}
            }
        }
        if durable {
            (storage.sync)(&file)?;
        }
        let object = id_of(&stat_of(&file)?);
        (storage.close)(file.into())?;
        if let Kind::Part { temporary, name, .. } = kind {
            temporary.rename(&name, object)?;
        }
        Ok(owned)
    }
}

/// Truncates a file that is written in place, not before the first content is available.
fn cut(file: &File, empty: &mut bool) -> io::Result<()> {
    if !*empty {
        file.set_len(0)?;
        *empty = true;
    }
    Ok(())
}

/// Returns whether an error means that a file cannot be replaced by a similar one, but perhaps be written.
fn cannot_replace(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
}

/// Returns the bits of a mode that may be set. Set-id bits are set only by root, and only together with the owner and
/// group that they stand for.
fn settable(owned: Owned) -> u32 {
    if owned.all() && rustix::process::geteuid().is_root() { 0o7777 } else { PERMISSIONS }
}

/// Sets owner and group of an object, as far as this process may: root both, other users a group that they are in. Only
/// root is expected to keep the owner.
fn give(kept: &Kept, change: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>) -> Owned {
    let (uid, gid) = (Some(Uid::from_raw(kept.uid)), Some(Gid::from_raw(kept.gid)));
    let root = rustix::process::geteuid().is_root();
    if root && change(uid, gid).is_ok() {
        return Owned::ALL;
    }
    Owned { owner: !root, group: change(None, gid).is_ok() }
}

/// Sets owner and group (if this process may), mode and time.
fn apply(file: &File, kept: Kept) -> io::Result<Owned> {
    let owned = give(&kept, |uid, gid| rustix::fs::fchown(file, uid, gid));
    file.set_permissions(Permissions::from_mode(kept.mode & settable(owned)))?;
    file.set_times(FileTimes::new().set_modified(kept.mtime.into()))?;
    Ok(owned)
}

/// Returns the names of a file's extended attributes, including access control lists.
fn xattr_names(file: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; XATTR_MAX];
    let length = match flistxattr(file, list.as_mut_slice()) {
        Ok(length) => length,
        // The file system has no extended attributes.
        Err(Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list.get(..length).unwrap_or_default().split(|&byte| byte == 0);
    // The system sets SELinux labels, and removes capabilities when a file is written.
    let own =
        |name: &&[u8]| !name.is_empty() && !matches!(*name, b"security.selinux" | b"security.capability");
    Ok(names.filter(own).map(<[u8]>::to_vec).collect())
}

/// Copies the extended attributes of a file to the new file that will replace it.
fn copy_xattrs(spot: &Spot, to: &File) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let from = openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?;
    for name in xattr_names(&from)? {
        let mut value = vec![0; XATTR_MAX];
        let length = fgetxattr(&from, name.as_slice(), value.as_mut_slice())?;
        fsetxattr(to, name.as_slice(), value.get(..length).unwrap_or_default(), XattrFlags::empty())?;
    }
    Ok(())
}

/// Makes a symbolic link under an unused name, or in the place of a file or another link.
pub(super) fn make_symlink(
    target: &[u8],
    spot: &Spot,
    kept: Option<Kept>,
    copying: &Copying,
) -> io::Result<Owned> {
    spot.replaceable()?;
    spot.claim(copying)?;
    let mut temporary = Temporary::beside(spot, copying);
    let (dir, name) = (spot.dir.fd()?, &temporary.spot.name);
    symlinkat(OsStr::from_bytes(target), &*dir, name)?;
    temporary.made = true;
    let link = open_symlink(target, &temporary.spot)?;
    let owned = kept.map_or(Owned::ALL, |kept| keep_symlink(&link, &kept));
    temporary.rename(&spot.name, id_of(&stat_of(&link)?))?;
    Ok(owned)
}

/// Returns a descriptor of a link that was just made. The owner of its directory may have replaced it meanwhile.
fn open_symlink(target: &[u8], spot: &Spot) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?;
    let stat = stat_of(&link)?;
    if !is_type(&stat, FileType::Symlink)
        || stat.stx_nlink > 1
        || readlinkat(&link, "", Vec::new())?.to_bytes() != target
    {
        return Err(io::Error::other(
            "somebody has changed the new symbolic link: it does not get its attributes",
        ));
    }
    Ok(link)
}

/// Sets owner, group and time of the link itself, whatever object has its name by now.
fn keep_symlink(link: &OwnedFd, kept: &Kept) -> Owned {
    let owned = give(kept, |uid, gid| chownat(link, "", uid, gid, AtFlags::EMPTY_PATH));
    let mtime = kept.mtime;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds.into(), tv_nsec: mtime.nanoseconds.into() },
    };
    // Some file systems have no times of links. Linux accepts a descriptor here since version 5.8.
    let _ = utimensat(link, "", &times, AtFlags::EMPTY_PATH);
    owned
}

/// Makes a further name of a file under an unused name, or in the place of a file or a link.
pub(super) fn make_link(file: &Spot, spot: &Spot, copying: &Copying) -> io::Result<()> {
    let (from, to) = (file.dir.fd()?, spot.dir.fd()?);
    // Renaming one name of a file to another name of that file does nothing.
    let object = id_of(&look(&*from, &file.name)?);
    if let Some(there) = spot.replaceable()? {
        if id_of(&there) == object {
            return Ok(());
        }
        spare(&there, &copying.run)?;
    }
    let mut temporary = Temporary::beside(spot, copying);
    linkat(&*from, &file.name, &*to, &temporary.spot.name, AtFlags::empty())?;
    temporary.made = true;
    // Claimed only here, because a copy of the content may need the name.
    spot.claim(copying)?;
    temporary.rename(&spot.name, object)
}

/// An entry of a local directory.
pub(super) struct LocalEntry {
    pub(super) name: OsString,
    pub(super) stat: io::Result<Statx>,
}

/// Returns all entries of a directory, and whether the directory has extended attributes.
pub(super) fn list(dir: &LocalDir) -> io::Result<(Vec<LocalEntry>, bool)> {
    let fd = dir.open()?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(&fd)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            let name = OsStr::from_bytes(name).to_owned();
            let stat = look(&fd, &name);
            entries.push(LocalEntry { name, stat });
        }
    }
    Ok((entries, has_xattrs(&fd)))
}

/// Returns whether there are extended attributes, including access control lists.
pub(super) fn has_xattrs(file: impl AsFd) -> bool {
    xattr_names(file).is_ok_and(|names| !names.is_empty())
}

/// Opens a regular file in a directory.
pub(super) fn open_regular(spot: &Spot) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file any more"))
    }
}

/// Returns the target of a symbolic link.
pub(super) fn read_link(spot: &Spot) -> io::Result<Bytes> {
    Ok(Bytes::from(readlinkat(&*spot.dir.fd()?, &spot.name, Vec::new())?.into_bytes()))
}

/// Returns the next range from `offset` on that has data, as far as the file system reports it. Returns `None` if only
/// a hole follows.
pub(super) fn next_data(file: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system reports no holes: everything is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..u64::MAX)),
        Err(error) => return Err(error.into()),
    };
    let end = match seek(file, SeekFrom::Hole(start)) {
        Ok(end) if end > start => end,
        _ => u64::MAX,
    };
    Ok(Some(start..end))
}

/// Fills up to `length` bytes by `read`, whose arguments are the free part and the bytes read so far. Returns fewer
/// bytes only at the end.
fn fill(length: usize, mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>) -> io::Result<Bytes> {
    let mut data = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read(rest, filled) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(data.into())
}

/// Reads up to `length` bytes at `offset`; returns fewer only at the end of the file.
pub(super) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    fill(length, |rest, filled| file.read_at(rest, offset.saturating_add(wide(filled))))
}

/// Reads the next `length` bytes of a pipe or device; returns fewer only at its end.
pub(super) fn read_next(file: &File, length: usize) -> io::Result<Bytes> {
    let mut file = file;
    fill(length, |rest, _| io::Read::read(&mut file, rest))
}

/// Returns the attributes of a local object that a copy keeps.
pub(super) fn kept(stat: &Statx) -> Kept {
    let mtime = nfs_time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    Kept { mode: u32::from(stat.stx_mode) & 0o7777, mtime, uid: stat.stx_uid, gid: stat.stx_gid }
}

#[cfg(test)]
mod tests;
