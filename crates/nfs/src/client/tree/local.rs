//! Local files and directories of a copy, on threads where calls may block.
//!
//! *Directories* ([`LocalDir`]) know their parent and their name in it. System calls get a descriptor and one name. So
//! a path may be longer than any system call takes, and a link that somebody puts in the way is not followed. Few
//! descriptors are kept open; a directory whose descriptor was closed is opened again from the nearest one above.
//!
//! *Targets.* [`Sink`] is where the content of a file goes. A regular file is written under a temporary name and renamed,
//! after its close went well. A file with several names that the caller named, a device or a pipe is written in place.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, StatxAttributes, StatxFlags, Timespec, Timestamps,
    UTIME_OMIT, Uid, XattrFlags, chownat, fgetxattr, flistxattr, fsetxattr, fstatfs, linkat, mkdirat, openat,
    readlinkat, renameat, statx, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::{CopyRun, Copying, Kept, Owned, temporary_name};
use crate::client::walk::shortened;
use crate::client::{Error, MAX_SYMLINKS};
use crate::wire::{Attributes, NfsTime};

/// Directory descriptors of one copy that stay open while nobody uses them.
const OPEN_DIRECTORIES: usize = 64;
/// Longest list of extended attributes, and longest value of one, in bytes: the limits of Linux.
const XATTR_MAX: usize = 64 << 10;
/// The type of procfs in statfs (`PROC_SUPER_MAGIC`).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
/// Permission bits that anybody may set on what is their own.
const PERMISSIONS: u32 = 0o777;
/// Permission bits of the owner: a directory has all of them while a copy fills it.
pub(super) const OWNER_ALL: u32 = 0o700;
/// Mode of a file that nobody else may touch yet: it will get the attributes of another one.
pub(super) const PRIVATE_FILE: u32 = 0o600;
/// Length of the blocks in which zeros are looked for, in bytes: no common file system has smaller ones.
const BLOCK: usize = 4096;
const BLOCK_LENGTH: u64 = 4096;

/// Runs what may block on a thread for that. `path` is for errors.
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

/// Descriptors that are kept open: the last ones that were used.
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

/// A local directory: one that the caller named, or an entry of another one.
#[derive(Debug)]
pub(super) struct LocalDir {
    place: DirPlace,
    open: Mutex<Weak<OwnedFd>>,
    recent: Arc<Recent>,
    /// Its file system and number, once they were asked for.
    id: OnceLock<FileId>,
}

/// A local file or directory: its file system and number.
pub(super) type FileId = (u64, u64);

fn id_of(stat: &Statx) -> FileId {
    (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// Tells whether a local object and one of a server are one: that is so if the server exports this file system. Any change of
/// the object changes some of this.
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

    /// Whether this is an object that was seen before and after, with a time of change between.
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

/// The nearest time that the protocol can say.
fn nfs_time(seconds: i64, nanoseconds: u32) -> NfsTime {
    match u64::try_from(seconds) {
        Err(_) => NfsTime::default(),
        Ok(seconds) => std::time::UNIX_EPOCH
            .checked_add(std::time::Duration::new(seconds, nanoseconds))
            .map_or(NfsTime { seconds: u32::MAX, nanoseconds: 999_999_999 }, NfsTime::from),
    }
}

/// The attributes of an open file or directory.
pub(super) fn stat_of(file: impl AsFd) -> io::Result<Statx> {
    Ok(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?)
}

#[derive(Debug)]
enum DirPlace {
    /// A directory that the caller named: links on the way and at the end are followed, once.
    Named {
        path: PathBuf,
        _open: Arc<OwnedFd>,
    },
    Entry {
        parent: Arc<LocalDir>,
        name: OsString,
    },
    /// Only while it is dropped.
    Gone,
}

impl Drop for LocalDir {
    /// Drops the parents in a loop: a recursion as deep as the tree would need as much stack.
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
    /// An existing directory; links are followed.
    pub(super) fn named(path: &Path) -> io::Result<Arc<Self>> {
        let used = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = Arc::new(openat(CWD, used, flags() | OFlags::PATH, Mode::empty())?);
        let open = Mutex::new(Arc::downgrade(&fd));
        let place = DirPlace::Named { path: path.to_owned(), _open: fd };
        Ok(Arc::new(Self { place, open, recent: Arc::default(), id: OnceLock::new() }))
    }

    /// The directory of that name in this one, which need not exist yet.
    pub(super) fn entry(self: &Arc<Self>, name: &OsStr) -> Arc<Self> {
        let place = DirPlace::Entry { parent: Arc::clone(self), name: name.to_owned() };
        let recent = Arc::clone(&self.recent);
        Arc::new(Self { place, open: Mutex::default(), recent, id: OnceLock::new() })
    }

    /// The names that lead here from the directory that the caller named.
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

    /// The path, for messages: a long one is shortened.
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

    /// A descriptor by which names in this directory are reached.
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

    /// Its attributes.
    pub(super) fn stat(&self) -> io::Result<Statx> {
        stat_of(&*self.fd()?)
    }

    /// Its file system and number.
    fn id(&self) -> io::Result<FileId> {
        match self.id.get() {
            Some(id) => Ok(*id),
            None => {
                let id = id_of(&self.stat()?);
                Ok(*self.id.get_or_init(|| id))
            }
        }
    }

    /// A descriptor to read the directory by, or to change it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        Ok(openat(&*self.fd()?, ".", flags(), Mode::empty())?)
    }

    /// Makes the directory, such that its owner may write in it, or takes an existing one: a directory itself, not a link
    /// to one. The mask of this process applies to `mode`. A `private` one is for its owner alone until [`finish`](Self::finish).
    /// Whether it is new.
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

    /// Sets what a copy keeps, after everything in the directory is there.
    pub(super) fn finish(&self, kept: Kept) -> io::Result<Owned> {
        apply(&File::from(self.open()?), kept)
    }

    /// Takes the permissions of the owner away that `mode` does not have and [`make`](Self::make) gave.
    pub(super) fn restrict(&self, mode: u32) -> io::Result<()> {
        let directory = File::from(self.open()?);
        let now = directory.metadata()?.mode();
        directory.set_permissions(Permissions::from_mode(now & 0o7777 & (mode | !OWNER_ALL)))
    }
}

/// A path for messages.
fn shown(path: PathBuf) -> PathBuf {
    shortened(path.to_string_lossy().into_owned()).into()
}

fn flags() -> OFlags {
    OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// The attributes of a name; a link at the end is not followed.
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
    /// The path, for messages.
    pub(super) fn path(&self) -> PathBuf {
        shown(self.dir.path().join(&self.name))
    }

    /// Takes this name for one source of a command.
    fn claim(&self, copying: &Copying) -> io::Result<()> {
        if copying.run.claim(&(self.dir.id()?, self.name.as_os_str())) { Ok(()) } else { Err(just_made()) }
    }

    /// The attributes of the object with this name, which a new one may replace: a regular file or a link.
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

    /// The attributes of the object with this name, if there is one.
    fn existing(&self) -> io::Result<Option<Statx>> {
        match look(&*self.dir.fd()?, &self.name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Another source has the name, or the object.
fn just_made() -> io::Error {
    let reason = "another source of this command has just made it: not overwritten";
    io::Error::new(io::ErrorKind::AlreadyExists, reason)
}

/// Refuses an existing object that an earlier source has: the file system takes two names for one.
fn spare(existing: &Statx, run: &CopyRun) -> io::Result<()> {
    if run.has(id_of(existing)) { Err(just_made()) } else { Ok(()) }
}

/// The name at the end of a path, in its directory.
pub(super) fn spot_of(path: &Path) -> io::Result<Spot> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let dir = LocalDir::named(path.parent().unwrap_or_else(|| Path::new("")))?;
    Ok(Spot { dir, name: name.to_owned() })
}

/// Where the last of a path's links leads.
enum End {
    /// To a place, where something may or may not be.
    Place(Spot),
    /// To what a process has open (`/dev/stdout`): only the link itself leads there.
    Magic(PathBuf),
}

/// Whether somebody else may have laid a link in our way: in a directory like `/tmp`, if its owner is neither this user nor
/// the directory's. Linux follows no such link either (`fs.protected_symlinks`).
fn is_trap(link: &Statx, dir: &Statx) -> bool {
    const STICKY_FOR_ALL: u16 = 0o1002;
    let user = rustix::process::geteuid().as_raw();
    dir.stx_mode & STICKY_FOR_ALL == STICKY_FOR_ALL && link.stx_uid != user && link.stx_uid != dir.stx_uid
}

/// Follows the links at the end of a path, as opening it would.
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
        // The numbers of file system types are small, whatever type statfs has for them.
        if u64::try_from(fstatfs(&*dir)?.f_type).is_ok_and(|kind| kind == PROC_SUPER_MAGIC) {
            return Ok(End::Magic(path));
        }
        let target = readlinkat(&*dir, &spot.name, Vec::new())?;
        path = path.parent().unwrap_or_else(|| Path::new("")).join(OsStr::from_bytes(target.to_bytes()));
    }
    Err(Errno::LOOP.into())
}

/// A temporary name beside another one. If something has that name, and it was not renamed, it is removed.
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

    /// Gives `object`, which has the temporary name, its final one.
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
            // There is nobody to tell, and nothing else to be done.
            let _ = self.spot.dir.fd().map(|dir| unlinkat(&*dir, &self.spot.name, AtFlags::empty()));
        }
    }
}

/// Whether all of it is zero.
fn is_zero(data: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    data.chunks(BLOCK).all(|block| ZEROS.get(..block.len()) == Some(block))
}

/// All that a new local file needs beside its content.
pub(super) struct Wanted {
    /// The file at the server.
    pub(super) source: Attributes,
    /// The copy that it belongs to.
    pub(super) copying: Copying,
}

impl Wanted {
    /// Mode of a new file when it is made; the mask of this process applies to it.
    fn first_mode(&self) -> Mode {
        let kept = self.copying.options.preserve;
        Mode::from_raw_mode(if kept { PRIVATE_FILE } else { self.source.mode & PERMISSIONS })
    }

    /// Refuses to copy a file onto itself.
    fn differs(&self, existing: &Statx) -> io::Result<()> {
        if Identity::from(existing) == Identity::from(&self.source) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "source and target are the same file"));
        }
        Ok(())
    }

    /// Takes a file to write it in place. Whether it was not written so yet.
    fn take_in_place(&self, existing: &Statx) -> io::Result<bool> {
        let run = &self.copying.run;
        let _turn = run.local_turn();
        spare(existing, run)?;
        // Another name that leads here is this one, by another spelling.
        if existing.stx_nlink <= 1 {
            run.take(id_of(existing));
        }
        Ok(run.first_in_place(id_of(existing)))
    }
}

/// Calls of the system whose failure is a lost file.
#[derive(Clone, Copy)]
struct Storage {
    sync: fn(&File) -> io::Result<()>,
    close: fn(OwnedFd) -> io::Result<()>,
}

impl Storage {
    const SYSTEM: Self = Self { sync: File::sync_data, close: rpcrdma_sys::close };
}

/// Where the content of one file goes; see the module's introduction.
pub(super) struct Sink {
    file: File,
    kind: Kind,
    storage: Storage,
}

enum Kind {
    /// Gets the name at the end, and the mode of what it replaces.
    Part { temporary: Temporary, name: OsString, mode: Option<u32> },
    /// A regular file that is there; whether it was cut to nothing already.
    InPlace { empty: bool },
    /// A device or pipe: written from the beginning to the end.
    Stream,
}

impl Sink {
    /// For the file at the end of a path that the caller named. Links are followed, devices and pipes are written to.
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
                // A pipe waits here for its reader, as with cp.
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
                Ok(Self::new(file, Kind::Stream))
            }
            Some(stat) => Self::over(&spot, &stat, wanted, stat.stx_nlink > 1),
            None => Self::fresh(&spot, wanted),
        }
    }

    /// For a file of a tree. A link in its place is replaced and not followed; whatever is neither a file nor a link is
    /// left alone.
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

    /// A file where nothing is.
    fn fresh(spot: &Spot, wanted: &Wanted) -> io::Result<Self> {
        spot.claim(&wanted.copying)?;
        if wanted.copying.options.in_place {
            Self::create(spot, wanted)
        } else {
            Self::part(spot, None, wanted)
        }
    }

    /// For a regular file that is there. Its other names see the new content if it is written in place.
    fn over(spot: &Spot, stat: &Statx, wanted: &Wanted, with_other_names: bool) -> io::Result<Self> {
        if is_type(stat, FileType::Directory) {
            return Err(Errno::ISDIR.into());
        }
        wanted.differs(stat)?;
        spot.claim(&wanted.copying)?;
        spare(stat, &wanted.copying.run)?;
        // Nothing can be renamed over a file on which another one is mounted (EBUSY).
        let mounted = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let in_place = wanted.copying.options.in_place || with_other_names || mounted;
        if in_place && let Some(file) = Self::existing(spot, wanted)? {
            return Ok(file);
        }
        match Self::part(spot, Some(stat), wanted) {
            // A user who may not make files here, or not with this owner, may still write to this one.
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

    /// An existing file to be written in place; nothing if that was done before, under another name.
    fn existing(spot: &Spot, wanted: &Wanted) -> io::Result<Option<Self>> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is not a regular file any more"));
        }
        let first = wanted.take_in_place(&stat_of(&file)?)?;
        Ok(first.then(|| Self::new(file, Kind::InPlace { empty: false })))
    }

    /// A new file under a temporary name, which is to replace `existing`.
    fn part(spot: &Spot, existing: Option<&Statx>, wanted: &Wanted) -> io::Result<Self> {
        let mut temporary = Temporary::beside(spot, &wanted.copying);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // Nobody reads it before it is what it replaces.
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

    /// Takes the content from `offset` on, in the order of the offsets.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Kind::Stream => return self.file.write_all(data),
            Kind::InPlace { empty } => cut(&self.file, empty)?,
            Kind::Part { .. } => {}
        }
        // A run of blocks that are not all zeros is written at once; where nothing is written, zeros are read.
        let within = usize::try_from(offset % BLOCK_LENGTH).unwrap_or_default();
        let mut start = 0;
        let mut end = 0;
        let mut next = data.len().min(BLOCK - within);
        while end < data.len() {
            if data.get(end..next).is_some_and(is_zero) {
                self.write_run(offset, data, start, end)?;
                start = next;
            }
            end = next;
            next = data.len().min(end.saturating_add(BLOCK));
        }
        self.write_run(offset, data, start, end)
    }

    fn write_run(&self, offset: u64, data: &[u8], start: usize, end: usize) -> io::Result<()> {
        match data.get(start..end).filter(|run| !run.is_empty()) {
            Some(run) => {
                let start = u64::try_from(start).unwrap_or(u64::MAX);
                self.file.write_all_at(run, offset.saturating_add(start))
            }
            None => Ok(()),
        }
    }

    /// Whether bytes that are zero need not be written: they are there already.
    pub(super) fn takes_holes(&self) -> bool {
        !matches!(self.kind, Kind::Stream)
    }

    /// Gives the file its length, the attributes that it keeps, and last its name. The close has to go well before. An old file
    /// is given up only for data on stable storage. Whether owner and group could be kept.
    pub(super) fn finish(self, size: u64, kept: Option<Kept>) -> io::Result<Owned> {
        let Self { file, mut kind, storage } = self;
        let mut owned = Owned::ALL;
        let durable = match &mut kind {
            // The queue of a disk has no close that fails.
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

/// Makes a file that is written in place empty, when the first content is there and not before.
fn cut(file: &File, empty: &mut bool) -> io::Result<()> {
    if !*empty {
        file.set_len(0)?;
        *empty = true;
    }
    Ok(())
}

/// Whether a file cannot be replaced by another one like it, but perhaps be written.
fn cannot_replace(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
}

/// Which bits of a mode may be set: set-id bits only by root, and only together with owner and group that they stand for.
fn settable(owned: Owned) -> u32 {
    if owned.all() && rustix::process::geteuid().is_root() { 0o7777 } else { PERMISSIONS }
}

/// Gives an object owner and group, as far as this process may: root both, others a group that they are in. Only root is
/// expected to keep the owner.
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

/// The names of a file's extended attributes; access control lists are among them.
fn xattr_names(file: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; XATTR_MAX];
    let length = match flistxattr(file, list.as_mut_slice()) {
        Ok(length) => length,
        // The file system has none.
        Err(Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = list.get(..length).unwrap_or_default().split(|&byte| byte == 0);
    // A label of SELinux is given by the system; capabilities go when a file is written.
    let own =
        |name: &&[u8]| !name.is_empty() && !matches!(*name, b"security.selinux" | b"security.capability");
    Ok(names.filter(own).map(<[u8]>::to_vec).collect())
}

/// Gives a new file the extended attributes of what it is to replace.
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

/// Makes a symbolic link, in the place of nothing, a file or another link.
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

/// A descriptor of a link that was just made. The owner of its directory may have given the name to something else since.
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

/// Sets owner, group and time of the link itself, whatever has its name by now.
fn keep_symlink(link: &OwnedFd, kept: &Kept) -> Owned {
    let owned = give(kept, |uid, gid| chownat(link, "", uid, gid, AtFlags::EMPTY_PATH));
    let mtime = kept.mtime;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds.into(), tv_nsec: mtime.nanoseconds.into() },
    };
    // Not every file system has times of links. Linux takes a descriptor here since version 5.8.
    let _ = utimensat(link, "", &times, AtFlags::EMPTY_PATH);
    owned
}

/// Makes a further name of a file, in the place of nothing, a file or a link.
pub(super) fn make_link(file: &Spot, spot: &Spot, copying: &Copying) -> io::Result<()> {
    let (from, to) = (file.dir.fd()?, spot.dir.fd()?);
    // To rename one name of a file to another one of it does nothing.
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
    // Not before: a copy of the content may have to take the name.
    spot.claim(copying)?;
    temporary.rename(&spot.name, object)
}

/// An entry of a local directory.
pub(super) struct LocalEntry {
    pub(super) name: OsString,
    pub(super) stat: io::Result<Statx>,
}

/// Everything in a directory, and whether the directory has extended attributes.
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

/// Whether there are extended attributes, access control lists among them.
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

/// The target of a symbolic link.
pub(super) fn read_link(spot: &Spot) -> io::Result<Bytes> {
    Ok(Bytes::from(readlinkat(&*spot.dir.fd()?, &spot.name, Vec::new())?.into_bytes()))
}

/// The next bytes from `offset` on that are no hole, as far as the file system tells; nothing if there are only holes.
pub(super) fn next_data(file: &File, offset: u64) -> io::Result<Option<std::ops::Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not tell: everything is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..u64::MAX)),
        Err(error) => return Err(error.into()),
    };
    let end = match seek(file, SeekFrom::Hole(start)) {
        Ok(end) if end > start => end,
        _ => u64::MAX,
    };
    Ok(Some(start..end))
}

/// Fills up to `length` bytes by `read`, which gets what is left and how much there is already; fewer only at the end.
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

/// Reads up to `length` bytes at `offset`; fewer only at the end of the file.
pub(super) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    fill(length, |rest, filled| {
        file.read_at(rest, offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX)))
    })
}

/// Reads the next `length` bytes of a pipe or device; fewer only at its end.
pub(super) fn read_next(file: &File, length: usize) -> io::Result<Bytes> {
    let mut file = file;
    fill(length, |rest, _| io::Read::read(&mut file, rest))
}

/// Attributes that a copy keeps of a local object.
pub(super) fn kept(stat: &Statx) -> Kept {
    let mtime = nfs_time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    Kept { mode: u32::from(stat.stx_mode) & 0o7777, mtime, uid: stat.stx_uid, gid: stat.stx_gid }
}

#[cfg(test)]
mod tests;
