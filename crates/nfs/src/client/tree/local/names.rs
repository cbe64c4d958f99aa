//! Names in local directories: whose object may be replaced, and where a path ends.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Statx, fstatfs, readlinkat, renameat, unlinkat};
use rustix::io::Errno;

use super::attributes::{FileId, id_of, is_type, look, stat_of};
use super::directory::{LocalDir, shown};
use super::part::Held;
use crate::client::MAX_SYMLINKS;
use crate::client::tree::{CopyRun, Copying, temporary_name};

/// Type of procfs in statfs (`PROC_SUPER_MAGIC`).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// A name in a local directory.
#[derive(Debug, Clone)]
pub(in crate::client::tree) struct Spot {
    pub(in crate::client::tree) dir: Arc<LocalDir>,
    pub(in crate::client::tree) name: OsString,
}

impl Spot {
    /// Returns the path for messages.
    pub(in crate::client::tree) fn path(&self) -> PathBuf {
        shown(self.dir.path().join(&self.name))
    }

    /// Claims this name for one source of a command.
    pub(super) fn claim(&self, copying: &Copying) -> io::Result<()> {
        if copying.run.claim(&(self.dir.id()?, self.name.as_os_str())) { Ok(()) } else { Err(just_made()) }
    }

    /// Returns the attributes of an object with this name that a new one may replace: a regular file or a
    /// link.
    pub(super) fn replaceable(&self) -> io::Result<Option<Statx>> {
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

    /// Returns whether the object with this name belongs to an earlier source.
    pub(in crate::client::tree) fn is_taken(&self, stat: &Statx, run: &CopyRun) -> io::Result<bool> {
        Ok(run.has_name(id_of(stat), &self.dir.id()?, self.name.as_bytes()))
    }

    /// Refuses the object with this name if it belongs to an earlier source.
    pub(super) fn spare(&self, existing: &Statx, run: &CopyRun) -> io::Result<()> {
        if self.is_taken(existing, run)? { Err(just_made()) } else { Ok(()) }
    }

    /// Returns the attributes of the object with this name, if one exists.
    pub(in crate::client::tree) fn existing(&self) -> io::Result<Option<Statx>> {
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
pub(super) fn spare(existing: &Statx, run: &CopyRun) -> io::Result<()> {
    if run.has(id_of(existing)) { Err(just_made()) } else { Ok(()) }
}

/// Returns the name at the end of a path, with its directory.
pub(in crate::client::tree) fn spot_of(path: &Path) -> io::Result<Spot> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let dir = LocalDir::named(path.parent().unwrap_or_else(|| Path::new("")))?;
    Ok(Spot { dir, name: name.to_owned() })
}

/// Destination of a path after its last link.
pub(super) enum End {
    /// A name, whose object may or may not exist.
    Place(Spot),
    /// A file that a process has open (`/dev/stdout`), reachable only through the link itself.
    Magic(PathBuf),
}

/// Returns whether another user may have placed a link in the way. That is so in a directory like `/tmp`, if
/// the link's owner is neither this user nor the directory's. Linux does not follow such links either
/// (`fs.protected_symlinks`).
fn is_trap(link: &Statx, dir: &Statx) -> bool {
    const STICKY_FOR_ALL: u16 = 0o1002;
    let user = rustix::process::geteuid().as_raw();
    dir.stx_mode & STICKY_FOR_ALL == STICKY_FOR_ALL && link.stx_uid != user && link.stx_uid != dir.stx_uid
}

/// Follows the links at the end of a path, as an open would.
pub(super) fn follow(path: &Path) -> io::Result<End> {
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

/// A temporary name beside another one. If an object has it and was not renamed, the drop removes that
/// object.
pub(super) struct Temporary {
    pub(super) spot: Spot,
    pub(super) made: bool,
    /// Whether the drop keeps an object with content, for a later copy.
    lasting: bool,
    /// Lock of a file for a later copy.
    held: Option<Held>,
    run: CopyRun,
}

impl Temporary {
    pub(super) fn beside(spot: &Spot, copying: &Copying) -> Self {
        let spot = Spot { dir: Arc::clone(&spot.dir), name: temporary_name().into() };
        Self { spot, made: false, lasting: false, held: None, run: copying.run.clone() }
    }

    /// Returns the name of a file that this copy has locked, and that the drop keeps.
    pub(super) fn lasting(spot: Spot, held: Held, copying: &Copying) -> Self {
        Self { spot, made: true, lasting: true, held: Some(held), run: copying.run.clone() }
    }

    /// Makes the drop remove the object.
    pub(super) const fn give_up(&mut self) {
        self.lasting = false;
    }

    /// Renames the object that has the temporary name to its final name. `made` is the object if this run made it.
    pub(super) fn rename(mut self, name: &OsStr, made: Option<FileId>) -> io::Result<()> {
        let run = self.run.clone();
        let _turn = run.local_turn();
        let place = Spot { dir: Arc::clone(&self.spot.dir), name: name.to_owned() };
        if let Some(there) = place.existing()? {
            place.spare(&there, &run)?;
        }
        if let Some(held) = &self.held
            && self.spot.existing()?.is_none_or(|there| id_of(&there) != held.id)
        {
            let reason = "its incomplete file was moved, removed or replaced during the copy";
            return Err(io::Error::other(reason));
        }
        let dir = self.spot.dir.fd()?;
        renameat(&*dir, &self.spot.name, &*dir, name)?;
        self.made = false;
        if let Some(object) = made {
            run.take(object);
        }
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.made {
            return;
        }
        // Another copy may have put its own file in the place of one that it did not continue.
        let kept = self.held.as_ref().is_some_and(|held| match self.spot.existing() {
            Ok(Some(stat)) => id_of(&stat) != held.id || self.lasting && stat.stx_size > 0,
            _ => true,
        });
        if !kept {
            // An error here can be neither reported nor repaired.
            let _ = self.spot.dir.fd().map(|dir| unlinkat(&*dir, &self.spot.name, AtFlags::empty()));
        }
    }
}
