//! Capabilities of the file system below an export (RFC 1813 §3.3.19, §3.3.20), determined once.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SeekFrom, fstatfs, fstatvfs, openat, seek};

use crate::fs::types::{NAME_MAX, Properties, Timestamp};

const EXT: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;
const TMPFS: u64 = 0x0102_1994;
const FAT: u64 = 0x4d44;
const FUSE: u64 = 0x6573_5546;
const EXFAT: u64 = 0x2011_bab0;
const OVERLAYFS: u64 = 0x794c_7630;
const F2FS: u64 = 0xf2f5_2010;

/// Returns the properties of a directory's file system (not for an `O_PATH` descriptor).
pub(super) fn properties(root: &OwnedFd) -> Properties {
    let magic = magic(root);
    let name_max = fstatvfs(root).map_or(NAME_MAX as u64, |found| found.f_namemax).min(NAME_MAX as u64);
    let fat = matches!(magic, FAT | EXFAT);
    let link_max = match magic {
        EXT => 65_000,
        XFS | TMPFS => i32::MAX.unsigned_abs(),
        BTRFS => 65_535,
        FAT | EXFAT => 1,
        // LINK_MAX of the kernel's limits.h, if no better value is known.
        _ => 127,
    };
    Properties {
        max_file_size: max_file_size(root),
        time_delta: if fat {
            Timestamp { seconds: 2, nanoseconds: 0 }
        } else {
            Timestamp { seconds: 0, nanoseconds: 1 }
        },
        hard_links: !fat,
        symbolic_links: !fat,
        link_max,
        name_max: u32::try_from(name_max).unwrap_or(255),
        chown_restricted: true,
        case_insensitive: fat,
        case_preserving: true,
    }
}

/// Returns whether the file system is FUSE, that of a user process.
pub(super) fn is_fuse(root: &OwnedFd) -> bool {
    magic(root) == FUSE
}

/// Returns whether the file system is overlayfs, whose objects move between layers.
pub(super) fn is_overlay(root: &OwnedFd) -> bool {
    magic(root) == OVERLAYFS
}

/// Returns whether the file system is one of this machine's disks or memory. It has the attributes of an open object in
/// memory, so that a look at them never waits.
pub(super) fn is_local(root: &OwnedFd) -> bool {
    matches!(magic(root), EXT | XFS | BTRFS | TMPFS | F2FS)
}

/// Returns the number of the file system's type: 32 bits, in a type that depends on the machine.
fn magic(root: &OwnedFd) -> u64 {
    fstatfs(root).map_or(0, |found| u64::from_le_bytes(widen(found.f_type)) & 0xffff_ffff)
}

fn widen(value: impl Into<i64>) -> [u8; 8] {
    value.into().to_le_bytes()
}

/// Returns the largest offset in a file: the kernel refuses to seek beyond it. A file without a name serves
/// as the probe. Where none can be made (a read-only file system), the limit is that of the system calls.
fn max_file_size(root: impl AsFd) -> u64 {
    let largest = i64::MAX.unsigned_abs();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(probe) = openat(root, c".", flags, Mode::RUSR) else { return largest };
    let takes = |offset: u64| seek(&probe, SeekFrom::Start(offset)).is_ok();
    let (mut low, mut high) = (0, largest);
    if takes(high) {
        return high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if takes(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
