//! Conversions from the kernel's terms to those of [`crate::fs`]: `statx` to attributes, errno to errors.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, Statx, StatxFlags, StatxTimestamp, Timespec, statx};
use rustix::io::Errno;

use crate::fs::types::{Attributes, DeviceNumber, FileKind, FsError, Place, Timestamp};

const SECTOR: u64 = 512;

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::NotPermitted,
            Errno::NOENT => Self::NotFound,
            Errno::NXIO => Self::NoSuchDevice,
            // A mount point in use, a running program, a symbolic link where none is allowed: refused to this
            // caller.
            Errno::ACCESS | Errno::BUSY | Errno::TXTBSY | Errno::LOOP => Self::AccessDenied,
            Errno::EXIST => Self::Exists,
            Errno::XDEV => Self::CrossDevice,
            Errno::NODEV => Self::WrongDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::INVAL => Self::InvalidArgument,
            Errno::FBIG | Errno::OVERFLOW => Self::FileTooLarge,
            Errno::NOSPC => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::QuotaExceeded,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::NotSupported,
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOBUFS => Self::TryLater,
            _ => Self::Io,
        }
    }
}

pub(super) fn timestamp(time: &StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

pub(super) fn timespec(time: &Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
}

/// Returns the lower twelve bits as the kernel's type.
pub(super) fn mode_bits(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o7777)
}

#[cfg(test)]
thread_local! {
    /// Number of calls of [`stat`] by this thread.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns the `statx` of a descriptor's object.
pub(super) fn stat(fd: impl AsFd) -> Result<Statx, Errno> {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
    statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// Returns the `statx` of a descriptor's object from the cache of a network or FUSE file system, without
/// waiting.
pub(super) fn stat_cached(fd: impl AsFd) -> Result<Statx, Errno> {
    statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS)
}

pub(super) fn kind(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Regular,
    }
}

pub(super) fn attributes(stat: &Statx) -> Attributes {
    let kind = kind(stat);
    let device = match kind {
        FileKind::BlockDevice | FileKind::CharacterDevice => {
            DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor }
        }
        _ => DeviceNumber::default(),
    };
    Attributes {
        kind,
        mode: u32::from(stat.stx_mode) & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(SECTOR),
        device,
        number: stat.stx_ino,
        place: Some(Place::from(stat)),
        accessed: timestamp(&stat.stx_atime),
        modified: timestamp(&stat.stx_mtime),
        changed: timestamp(&stat.stx_ctime),
    }
}

impl From<&Statx> for Place {
    fn from(stat: &Statx) -> Self {
        let file_system = DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
        Self { file_system, number: stat.stx_ino }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // requirement: rfc1813-2.6-5
    #[test]
    fn errno_values_become_refusals() {
        let table = [
            (Errno::NOSPC, FsError::NoSpace),
            (Errno::DQUOT, FsError::QuotaExceeded),
            (Errno::ACCESS, FsError::AccessDenied),
            (Errno::PERM, FsError::NotPermitted),
            (Errno::STALE, FsError::Stale),
            (Errno::NAMETOOLONG, FsError::NameTooLong),
            (Errno::NOTDIR, FsError::NotDirectory),
            (Errno::ISDIR, FsError::IsDirectory),
            (Errno::NOTEMPTY, FsError::NotEmpty),
            (Errno::XDEV, FsError::CrossDevice),
            (Errno::FBIG, FsError::FileTooLarge),
            (Errno::ROFS, FsError::ReadOnly),
            (Errno::MLINK, FsError::TooManyLinks),
            (Errno::IO, FsError::Io),
            (Errno::LOOP, FsError::AccessDenied),
            (Errno::NXIO, FsError::NoSuchDevice),
            (Errno::NODEV, FsError::WrongDevice),
            (Errno::INVAL, FsError::InvalidArgument),
            (Errno::EXIST, FsError::Exists),
            (Errno::NOENT, FsError::NotFound),
            (Errno::OPNOTSUPP, FsError::NotSupported),
            (Errno::MFILE, FsError::TryLater),
        ];
        for (errno, refusal) in table {
            assert_eq!(FsError::from(errno), refusal, "{errno}");
        }
    }
}
