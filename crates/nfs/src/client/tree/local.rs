//! What a copy does to local files, on threads where it may block.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use super::Kept;
use crate::client::Error;

/// Permission bits that a copy takes over; not set-user-ID, set-group-ID and sticky.
const MODE_MASK: u32 = 0o777;

/// Runs what may block on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let owned = path.to_owned();
    let result = tokio::task::spawn_blocking(move || work(&owned)).await;
    match result {
        Ok(result) => result.map_err(|source| Error::Local { path: path.to_owned(), source }),
        Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
        Err(_) => Err(Error::Local {
            path: path.to_owned(),
            source: io::Error::other("the runtime is shutting down"),
        }),
    }
}

/// A name beside `path` that nobody has.
fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    }
    Ok(path.with_file_name(format!(".rpcrdma-{:016x}.part", rand::random::<u64>())))
}

/// Removes a temporary name, unless it was renamed.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    /// Gives it its final name.
    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // There is nobody to tell, and nothing else to be done.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that has its final name only when it is complete.
pub(super) struct PartFile {
    target: PathBuf,
    file: File,
    temporary: Temporary,
}

impl PartFile {
    /// A new file; the mask of this process applies to `mode`.
    pub(super) fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let path = temporary_name(target)?;
        let mode = mode & MODE_MASK;
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        let temporary = Temporary { path, kept: false };
        Ok(Self { target: target.to_owned(), file, temporary })
    }

    pub(super) fn write(&self, offset: u64, data: &Bytes) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    /// Sets mode and time, then the name.
    pub(super) fn finish(self, kept: Option<Kept>) -> io::Result<()> {
        if let Some(Kept { mode, mtime }) = kept {
            self.file.set_permissions(Permissions::from_mode(mode & MODE_MASK))?;
            self.file.set_times(FileTimes::new().set_modified(mtime.into()))?;
        }
        self.temporary.rename(&self.target)
    }
}

/// Makes a symbolic link, in the place of anything but a directory.
pub(super) fn make_symlink(target: &[u8], path: &Path) -> io::Result<()> {
    let temporary = temporary_name(path)?;
    symlink(OsStr::from_bytes(target), &temporary)?;
    Temporary { path: temporary, kept: false }.rename(path)
}

/// Makes a directory in which its owner may write, or takes an existing one: a directory itself, not a link to one.
/// The mask of this process applies to `mode`.
pub(super) fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode & MODE_MASK | 0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(path)?.is_dir() {
                return Ok(());
            }
            Err(io::Error::new(io::ErrorKind::NotADirectory, "exists and is not a directory"))
        }
        result => result,
    }
}

/// Sets mode and time of a directory after everything in it is there.
pub(super) fn finish_directory(path: &Path, Kept { mode, mtime }: Kept) -> io::Result<()> {
    File::open(path)?.set_times(FileTimes::new().set_modified(mtime.into()))?;
    fs::set_permissions(path, Permissions::from_mode(mode & MODE_MASK))
}

/// Reads up to `length` bytes at `offset`; fewer only at the end of the file.
pub(super) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut data = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(data.into())
}

/// What a copy keeps of a local file.
pub(super) fn kept(metadata: &fs::Metadata) -> Kept {
    let mtime = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Kept { mode: metadata.permissions().mode() & MODE_MASK, mtime: mtime.into() }
}
