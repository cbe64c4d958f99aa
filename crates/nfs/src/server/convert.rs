//! Conversions between the terms of [`crate::fs`] and those of NFS version 3.

use crate::fs::{self, FileKind, FsError, SetTime};
use crate::wire::{self, FileType, NfsTime, SpecData, Status, WccAttr};

const NANOSECONDS: u32 = 1_000_000_000;

impl From<FsError> for Status {
    fn from(error: FsError) -> Self {
        match error {
            FsError::NotPermitted => Self::Perm,
            FsError::NotFound => Self::NoEnt,
            FsError::Io => Self::Io,
            FsError::NoSuchDevice => Self::Nxio,
            FsError::AccessDenied => Self::Acces,
            FsError::Exists => Self::Exist,
            FsError::CrossDevice => Self::Xdev,
            FsError::WrongDevice => Self::NoDev,
            FsError::NotDirectory => Self::NotDir,
            FsError::IsDirectory => Self::IsDir,
            FsError::InvalidArgument => Self::Inval,
            FsError::FileTooLarge => Self::FBig,
            FsError::NoSpace => Self::NoSpc,
            FsError::ReadOnly => Self::Rofs,
            FsError::TooManyLinks => Self::MLink,
            FsError::NameTooLong => Self::NameTooLong,
            FsError::NotEmpty => Self::NotEmpty,
            FsError::QuotaExceeded => Self::DQuot,
            FsError::Stale => Self::Stale,
            FsError::BadId => Self::BadHandle,
            FsError::NotSynchronized => Self::NotSync,
            FsError::BadCookie => Self::BadCookie,
            FsError::NotSupported => Self::NotSupp,
            FsError::BadType => Self::BadType,
            FsError::TryLater => Self::Jukebox,
            FsError::ServerFault => Self::ServerFault,
        }
    }
}

/// Converts a time. RFC 1813 §2.5: seconds are unsigned and have 32 bits; times outside become the nearest
/// possible one.
pub(super) fn time(time: fs::Timestamp) -> NfsTime {
    match u32::try_from(time.seconds) {
        Ok(seconds) => NfsTime { seconds, nanoseconds: time.nanoseconds },
        Err(_) if time.seconds < 0 => NfsTime { seconds: 0, nanoseconds: 0 },
        Err(_) => NfsTime { seconds: u32::MAX, nanoseconds: NANOSECONDS - 1 },
    }
}

/// Converts a time from the wire. A second or more of nanoseconds is invalid.
pub(super) fn timestamp(time: NfsTime) -> Result<fs::Timestamp, Status> {
    if time.nanoseconds >= NANOSECONDS {
        return Err(Status::Inval);
    }
    Ok(fs::Timestamp { seconds: i64::from(time.seconds), nanoseconds: time.nanoseconds })
}

pub(super) fn attributes(attributes: &fs::Attributes, fsid: u64) -> wire::Attributes {
    let file_type = match attributes.kind {
        FileKind::Regular => FileType::Regular,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    };
    wire::Attributes {
        file_type,
        mode: attributes.mode,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        used: attributes.used,
        rdev: SpecData { major: attributes.device.major, minor: attributes.device.minor },
        fsid,
        fileid: attributes.number,
        atime: time(attributes.accessed),
        mtime: time(attributes.modified),
        ctime: time(attributes.changed),
    }
}

pub(super) fn before(before: &fs::Before) -> WccAttr {
    WccAttr { size: before.size, mtime: time(before.modified), ctime: time(before.changed) }
}

/// Converts attributes to set.
pub(super) fn set_attributes(set: &wire::SetAttributes) -> Result<fs::SetAttributes, Status> {
    let set_time = |time| -> Result<SetTime, Status> {
        Ok(match time {
            wire::SetTime::DontChange => SetTime::Keep,
            wire::SetTime::ServerTime => SetTime::Now,
            wire::SetTime::ClientTime(time) => SetTime::To(timestamp(time)?),
        })
    };
    Ok(fs::SetAttributes {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        accessed: set_time(set.atime)?,
        modified: set_time(set.mtime)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // requirement: rfc1813-2.5-10
    #[test]
    fn times_beyond_the_wire_are_clamped() {
        let at = |seconds| time(fs::Timestamp { seconds, nanoseconds: 5 });
        assert_eq!(at(-1), NfsTime { seconds: 0, nanoseconds: 0 });
        assert_eq!(at(0), NfsTime { seconds: 0, nanoseconds: 5 });
        assert_eq!(at(i64::from(u32::MAX)), NfsTime { seconds: u32::MAX, nanoseconds: 5 });
        assert_eq!(at(1 << 32), NfsTime { seconds: u32::MAX, nanoseconds: 999_999_999 });
    }

    #[test]
    fn a_time_with_a_whole_second_of_nanoseconds_is_refused() {
        assert!(timestamp(NfsTime { seconds: 1, nanoseconds: 999_999_999 }).is_ok());
        assert_eq!(timestamp(NfsTime { seconds: 1, nanoseconds: 1_000_000_000 }), Err(Status::Inval));
        // Values that mean "now" or "unchanged" to the kernel must not come from the wire.
        assert_eq!(timestamp(NfsTime { seconds: 1, nanoseconds: (1 << 30) - 1 }), Err(Status::Inval));
    }
}
