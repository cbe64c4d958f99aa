//! Content of local files, to be stored at the server.
//!
//! *Short files* are read as a whole when they are opened ([`Opened`]). So one visit to a thread where calls may
//! block serves many of them.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags, Statx, openat, readlinkat};
use rustix::io::{Errno, pread};

use super::attributes::{has_xattrs, is_type, stat_of};
use super::names::Spot;
use crate::client::tree::identity::Identity;

/// Greatest length of a file that is read as a whole when it is opened, in bytes.
pub(in crate::client::tree) const SHORT: u64 = 64 << 10;
/// Unit of the number of blocks of a file, in bytes, whatever the blocks of its file system.
const BLOCK_UNIT: u64 = 512;

/// A local file that was opened to be stored.
pub(in crate::client::tree) struct Opened {
    pub(in crate::client::tree) content: Content,
    /// Identity of a regular file.
    pub(in crate::client::tree) identity: Option<Identity>,
    /// Whether a regular file has extended attributes.
    pub(in crate::client::tree) xattrs: bool,
}

/// Content of an opened file.
pub(in crate::client::tree) enum Content {
    /// All of a short file.
    Whole(Bytes),
    /// A regular file of a length, perhaps with holes.
    File(File),
    /// A pipe, a device, or a file of the kernel: those in procfs have content but length 0.
    Stream(File),
}

impl Opened {
    /// Returns an open file that is read to its end, whatever kind of file it is.
    pub(in crate::client::tree) const fn stream(file: File) -> Self {
        Self { content: Content::Stream(file), identity: None, xattrs: false }
    }

    /// Looks at an open file, and reads a short one.
    pub(in crate::client::tree) fn of(file: File) -> io::Result<Self> {
        let stat = stat_of(&file)?;
        if !is_type(&stat, FileType::RegularFile) {
            return Ok(Self::stream(file));
        }
        let xattrs = has_xattrs(&file);
        let content = match whole(&file, &stat)? {
            Some(data) => Content::Whole(data),
            None if stat.stx_size == 0 => Content::Stream(file),
            None => Content::File(file),
        };
        Ok(Self { content, identity: Some(Identity::from(&stat)), xattrs })
    }
}

/// Returns the content of a short file without holes. Returns `None` for other files, and for a file that changes
/// meanwhile.
fn whole(file: &File, stat: &Statx) -> io::Result<Option<Bytes>> {
    let length = match usize::try_from(stat.stx_size) {
        Ok(length) if stat.stx_size <= SHORT => length,
        _ => return Ok(None),
    };
    // A file with fewer blocks than bytes has holes, or its content lies in the inode.
    if stat.stx_blocks.saturating_mul(BLOCK_UNIT) < stat.stx_size
        && next_data(file, 0)?.is_none_or(|data| data.start > 0 || data.end < stat.stx_size)
    {
        return Ok(None);
    }
    let data = read_at(file, 0, length + 1)?;
    let is_same = data.len() == length && Identity::from(&stat_of(file)?).has_state_of(&Identity::from(stat));
    Ok(is_same.then_some(data))
}

/// Opens a regular file in a directory.
pub(in crate::client::tree) fn open_regular(spot: &Spot) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(openat(&*spot.dir.fd()?, &spot.name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file any more"))
    }
}

/// Returns the target of a symbolic link.
pub(in crate::client::tree) fn read_link(spot: &Spot) -> io::Result<Bytes> {
    Ok(Bytes::from(readlinkat(&*spot.dir.fd()?, &spot.name, Vec::new())?.into_bytes()))
}

/// Returns the next range from `offset` on that has data, as far as the file system reports it. Returns
/// `None` if only a hole follows.
pub(in crate::client::tree) fn next_data(file: &File, offset: u64) -> io::Result<Option<Range<u64>>> {
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

/// Reads up to `length` bytes at `offset`; returns fewer only at the end of the file.
pub(in crate::client::tree) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut data = Vec::with_capacity(length);
    while data.len() < length {
        let at = offset.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        match pread(file, spare_capacity(&mut data), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocation may be longer than `length`.
    data.truncate(length);
    Ok(data.into())
}

/// Reads the next `length` bytes of a pipe or device; returns fewer only at its end.
pub(in crate::client::tree) fn read_next(file: &File, length: usize) -> io::Result<Bytes> {
    let mut data = Vec::with_capacity(length);
    file.take(u64::try_from(length).unwrap_or(u64::MAX)).read_to_end(&mut data)?;
    Ok(data.into())
}
