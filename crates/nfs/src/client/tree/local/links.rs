//! Symbolic links, and further names of files.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, chownat, linkat, openat, readlinkat,
    symlinkat, utimensat,
};

use super::attributes::{give, id_of, is_type, look, stat_of};
use super::names::{Spot, Temporary};
use crate::client::tree::{Copying, Kept, Owned};

/// Makes a symbolic link under an unused name, or in the place of a file or another link.
pub(in crate::client::tree) fn make_symlink(
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
    temporary.rename(&spot.name, Some(id_of(&stat_of(&link)?)))?;
    Ok(owned)
}

/// Returns a descriptor of a link that was just made. The owner of its directory may have replaced it
/// meanwhile.
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

/// Makes a further name of a file under an unused name, or in the place of a file or a link. Returns `false` if
/// that file has the name already.
pub(in crate::client::tree) fn make_link(file: &Spot, spot: &Spot, copying: &Copying) -> io::Result<bool> {
    let (from, to) = (file.dir.fd()?, spot.dir.fd()?);
    let object = id_of(&look(&*from, &file.name)?);
    let existing = spot.replaceable()?;
    // Renaming one name of a file to another name of that file does nothing.
    let same = existing.as_ref().is_some_and(|there| id_of(there) == object);
    if let Some(there) = existing.filter(|_| !same) {
        spot.spare(&there, &copying.run)?;
    }
    copying.run.link(object, &spot.dir.id()?, spot.name.as_bytes());
    if same {
        return Ok(false);
    }
    let mut temporary = Temporary::beside(spot, copying);
    linkat(&*from, &file.name, &*to, &temporary.spot.name, AtFlags::empty())?;
    temporary.made = true;
    // Claimed only here, because a copy of the content may need the name.
    spot.claim(copying)?;
    temporary.rename(&spot.name, None).map(|()| true)
}

/// Sets owner, group and time of a symbolic link that has this target, as far as this process may. Returns `None`
/// if another object has its name by now.
pub(in crate::client::tree) fn apply_to_link(spot: &Spot, target: &[u8], kept: &Kept) -> Option<Owned> {
    open_symlink(target, spot).ok().map(|link| keep_symlink(&link, kept))
}

#[cfg(test)]
mod tests;
