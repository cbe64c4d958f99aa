//! Identity of objects: whether a local object and an object of a server are the same.

use rustix::fs::Statx;

use crate::wire::{Attributes, NfsTime};

/// Attributes that show whether a local object and an object of a server are the same. They are the same if
/// the server exports this file system. Every change of the object changes some of these attributes.
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

impl Identity {
    /// Returns whether the object has the same length and time of change of its data as in another look.
    pub(super) fn has_state_of(&self, other: &Self) -> bool {
        (self.number, self.size, self.mtime) == (other.number, other.size, other.mtime)
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) const fn mtime(&self) -> NfsTime {
        self.mtime
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
pub(super) fn nfs_time(seconds: i64, nanoseconds: u32) -> NfsTime {
    match u64::try_from(seconds) {
        Err(_) => NfsTime::default(),
        Ok(seconds) => std::time::UNIX_EPOCH
            .checked_add(std::time::Duration::new(seconds, nanoseconds))
            .map_or(NfsTime { seconds: u32::MAX, nanoseconds: 999_999_999 }, NfsTime::from),
    }
}
