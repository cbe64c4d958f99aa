//! Local directories, by descriptors of few of them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, chmodat, mkdirat, openat};
use rustix::io::Errno;

use super::attributes::{FileId, OWNER_ALL, PERMISSIONS, apply, has_xattrs, id_of, is_type, look, stat_of};
use crate::client::tree::{Kept, Owned};
use crate::client::walk::shortened;

/// Most unused directory descriptors of a copy that stay open.
const OPEN_DIRECTORIES: usize = 64;

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
pub(in crate::client::tree) struct LocalDir {
    place: DirPlace,
    open: Mutex<Weak<OwnedFd>>,
    recent: Arc<Recent>,
    /// File system and number of the directory, once they are known.
    id: OnceLock<FileId>,
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
    /// Drops the parents in a loop, because a recursion would need stack in proportion to the depth of the
    /// tree.
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
    pub(in crate::client::tree) fn named(path: &Path) -> io::Result<Arc<Self>> {
        let used = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = Arc::new(openat(CWD, used, flags() | OFlags::PATH, Mode::empty())?);
        let open = Mutex::new(Arc::downgrade(&fd));
        let place = DirPlace::Named { path: path.to_owned(), _open: fd };
        Ok(Arc::new(Self { place, open, recent: Arc::default(), id: OnceLock::new() }))
    }

    /// Returns the directory of that name in this directory. It need not exist yet.
    pub(in crate::client::tree) fn entry(self: &Arc<Self>, name: &OsStr) -> Arc<Self> {
        let place = DirPlace::Entry { parent: Arc::clone(self), name: name.to_owned() };
        let recent = Arc::clone(&self.recent);
        Arc::new(Self { place, open: Mutex::default(), recent, id: OnceLock::new() })
    }

    /// Returns the names from the caller's directory to this one.
    pub(in crate::client::tree) fn names(&self) -> Vec<&OsStr> {
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
    pub(in crate::client::tree) fn path(&self) -> PathBuf {
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
    pub(in crate::client::tree) fn fd(&self) -> io::Result<Arc<OwnedFd>> {
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
    pub(in crate::client::tree) fn stat(&self) -> io::Result<Statx> {
        stat_of(&*self.fd()?)
    }

    /// Returns file system and number of the directory.
    pub(in crate::client::tree) fn id(&self) -> io::Result<FileId> {
        match self.id.get() {
            Some(id) => Ok(*id),
            None => {
                let id = id_of(&self.stat()?);
                Ok(*self.id.get_or_init(|| id))
            }
        }
    }

    /// Opens the directory to read or change it.
    pub(in crate::client::tree) fn open(&self) -> io::Result<OwnedFd> {
        Ok(openat(&*self.fd()?, ".", flags(), Mode::empty())?)
    }

    /// Makes the directory so that its owner may write in it, or uses an existing directory that is not a
    /// link. The umask of this process applies to `mode`. With `private`, only its owner has rights until
    /// [`finish`](Self::finish). Returns whether the directory is new.
    pub(in crate::client::tree) fn make(&self, mode: u32, private: bool) -> io::Result<bool> {
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

    /// Gives the owner all permissions for a directory with this mode, if this process may.
    pub(in crate::client::tree) fn lend(&self, mode: u32) {
        let mode = Mode::from_raw_mode(mode & 0o7777 | OWNER_ALL);
        // Without the permissions, the first change in the directory fails and is reported.
        let _ = self.fd().map(|fd| chmodat(&*fd, ".", mode, AtFlags::empty()));
    }

    /// Sets the attributes to keep, after all entries of the directory exist.
    pub(in crate::client::tree) fn finish(&self, kept: Kept) -> io::Result<Owned> {
        apply(&File::from(self.open()?), kept)
    }

    /// Removes the owner's permissions that [`make`](Self::make) added beyond `mode`.
    pub(in crate::client::tree) fn restrict(&self, mode: u32) -> io::Result<()> {
        let directory = File::from(self.open()?);
        let now = directory.metadata()?.mode();
        directory.set_permissions(Permissions::from_mode(now & 0o7777 & (mode | !OWNER_ALL)))
    }
}

/// Returns a path for messages, shortened if it is long.
pub(super) fn shown(path: PathBuf) -> PathBuf {
    shortened(path.to_string_lossy().into_owned()).into()
}

fn flags() -> OFlags {
    OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// An entry of a local directory.
pub(in crate::client::tree) struct LocalEntry {
    pub(in crate::client::tree) name: OsString,
    pub(in crate::client::tree) stat: io::Result<Statx>,
}

/// Returns all entries of a directory, and whether the directory has extended attributes.
pub(in crate::client::tree) fn list(dir: &LocalDir) -> io::Result<(Vec<LocalEntry>, bool)> {
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
