//! Content of local files, to be stored at the server.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use super::names::Spot;

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

/// Fills up to `length` bytes by `read`, whose arguments are the free part and the bytes read so far. Returns
/// fewer bytes only at the end.
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

/// Reads up to `length` bytes at `offset`; returns fewer only at the end of the file.
pub(in crate::client::tree) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    fill(length, |rest, filled| {
        file.read_at(rest, offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX)))
    })
}

/// Reads the next `length` bytes of a pipe or device; returns fewer only at its end.
pub(in crate::client::tree) fn read_next(file: &File, length: usize) -> io::Result<Bytes> {
    let mut file = file;
    fill(length, |rest, _| io::Read::read(&mut file, rest))
}
