//! Attributes of local objects: their types and numbers, and the attributes that a copy keeps.

use std::ffi::OsStr;
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{AtFlags, FileType, Gid, Statx, StatxFlags, Uid, flistxattr, flistxattr_query, statx};
use rustix::io::Errno;

use super::names::Spot;
use super::source::open_regular;
use crate::client::tree::identity::nfs_time;
use crate::client::tree::{Kept, Owned};
use crate::wire::FileType as NfsType;

/// Greatest length of a list of extended attributes, and of a value, in bytes: the limits of Linux.
pub(super) const XATTR_MAX: usize = 64 << 10;
/// Permission bits that users may set on their own files.
pub(super) const PERMISSIONS: u32 = 0o777;
/// Permission bits of the owner: a directory has all of them during a copy into it.
pub(in crate::client::tree) const OWNER_ALL: u32 = 0o700;
/// Mode of a file before it gets the attributes of another file: only its owner may access it.
pub(in crate::client::tree) const PRIVATE_FILE: u32 = 0o600;

/// Identity of a local file or directory: file system and number.
pub(in crate::client::tree) type FileId = (u64, u64);

pub(in crate::client::tree) fn id_of(stat: &Statx) -> FileId {
    (rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// Returns the type of an object. One of an unknown type is treated as a socket, which no copy touches.
pub(in crate::client::tree) fn kind_of(stat: &Statx) -> NfsType {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => NfsType::Regular,
        FileType::Directory => NfsType::Directory,
        FileType::Symlink => NfsType::Symlink,
        FileType::Fifo => NfsType::Fifo,
        FileType::CharacterDevice => NfsType::CharacterDevice,
        FileType::BlockDevice => NfsType::BlockDevice,
        _ => NfsType::Socket,
    }
}

/// Returns the attributes of an open file or directory.
pub(in crate::client::tree) fn stat_of(file: impl AsFd) -> io::Result<Statx> {
    Ok(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?)
}

/// Returns the attributes of a name; a link at the end is not followed.
pub(super) fn look(dir: impl AsFd, name: &OsStr) -> io::Result<Statx> {
    Ok(statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?)
}

pub(in crate::client::tree) fn is_type(stat: &Statx, wanted: FileType) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == wanted
}

/// Returns the attributes of a local object that a copy keeps.
pub(in crate::client::tree) fn kept(stat: &Statx) -> Kept {
    let mtime = nfs_time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    Kept { mode: u32::from(stat.stx_mode) & 0o7777, mtime, uid: stat.stx_uid, gid: stat.stx_gid }
}

/// Returns the bits of a mode that may be set. Set-id bits are set only by root, and only together with the
/// owner and group that they stand for.
pub(super) fn settable(owned: Owned) -> u32 {
    if owned.all() && rustix::process::geteuid().is_root() { 0o7777 } else { PERMISSIONS }
}

/// Sets owner and group of an object, as far as this process may: root both, other users a group that they
/// are in. Only root is expected to keep the owner.
pub(super) fn give(
    kept: &Kept,
    change: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
) -> Owned {
    let (uid, gid) = (Some(Uid::from_raw(kept.uid)), Some(Gid::from_raw(kept.gid)));
    let root = rustix::process::geteuid().is_root();
    if root && change(uid, gid).is_ok() {
        return Owned::ALL;
    }
    Owned { owner: !root, group: change(None, gid).is_ok() }
}

/// Sets owner and group (if this process may), mode and time.
pub(super) fn apply(file: &File, kept: Kept) -> io::Result<Owned> {
    let owned = give(&kept, |uid, gid| rustix::fs::fchown(file, uid, gid));
    file.set_permissions(Permissions::from_mode(kept.mode & settable(owned)))?;
    file.set_times(FileTimes::new().set_modified(kept.mtime.into()))?;
    Ok(owned)
}

/// Sets the attributes of a regular file of a tree. Returns `None` if this user may not open the file, or another
/// object has its name by now.
pub(in crate::client::tree) fn apply_to(spot: &Spot, kept: Kept) -> io::Result<Option<Owned>> {
    match open_regular(spot) {
        Ok(file) => apply(&file, kept).map(Some),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the names of a file's extended attributes, including access control lists.
pub(super) fn xattr_names(file: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    // Most files have none, and need no memory for the list.
    if flistxattr_query(&file) == Ok(0) {
        return Ok(Vec::new());
    }
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

/// Returns whether there are extended attributes, including access control lists.
pub(in crate::client::tree) fn has_xattrs(file: impl AsFd) -> bool {
    xattr_names(file).is_ok_and(|names| !names.is_empty())
}
