//! The location of a directory inside its file system.
//!
//! A path depends on mounts, and bind mounts give one directory many paths. The kernel's list of mounts shows
//! which part of which file system each mount has. So two directories can be compared, whatever their paths.
//! File systems that show the files of others, as overlayfs shows its layers, are not detected.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

/// A place inside a file system, independent of mounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The file system, by its number in the list of mounts.
    device: String,
    /// Path from the root of the file system.
    path: PathBuf,
}

impl Location {
    /// Returns the location of an open directory.
    ///
    /// # Errors
    /// Errors of reading `/proc`; [`io::ErrorKind::NotFound`] if the list of mounts does not have the
    /// directory's mount.
    pub fn of(directory: impl AsFd) -> io::Result<Self> {
        // A thread can have its own mounts.
        let thread = Path::new("/proc/thread-self");
        let number = directory.as_fd().as_raw_fd().to_string();
        let path = std::fs::read_link(thread.join("fd").join(&number))?;
        let about = std::fs::read_to_string(thread.join("fdinfo").join(&number))?;
        let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
        let mounts = std::fs::read(thread.join("mountinfo"))?;
        mount.and_then(|mount| locate(&mounts, mount.as_bytes(), &path)).ok_or_else(|| {
            let message = format!("the list of mounts does not have the mount of {}", path.display());
            io::Error::new(io::ErrorKind::NotFound, message)
        })
    }

    /// Returns the location of a directory by name.
    ///
    /// # Errors
    /// Errors of opening the directory, and of [`Location::of`].
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Self::of(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Returns this location and all above it, up to the root of the file system.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = Self> {
        self.path.ancestors().map(|path| Self { device: self.device.clone(), path: path.to_owned() })
    }

    /// Returns whether `other` is this location or lies below it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.device == other.device && other.path.starts_with(&self.path)
    }
}

/// Looks a path up in a list of mounts, in the format of `/proc/self/mountinfo`.
fn locate(mounts: &[u8], mount: &[u8], path: &Path) -> Option<Location> {
    let mut fields = mounts
        .split(|byte| *byte == b'\n')
        .map(|line| line.split(|byte| *byte == b' '))
        .find_map(|mut fields| (fields.next() == Some(mount)).then_some(fields))?;
    let (_parent, device) = (fields.next()?, fields.next()?);
    let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
    let below = path.strip_prefix(OsStr::from_bytes(&point)).ok()?;
    let device = String::from_utf8(device.to_vec()).ok()?;
    Some(Location { device, path: Path::new(OsStr::from_bytes(&root)).join(below) })
}

/// Decodes the escapes of spaces, tabs, line feeds and backslashes in the list: `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, behind)) = rest.split_first() {
        let escaped = behind.first_chunk::<3>().filter(|_| *byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        plain.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"22 27 0:21 / /proc rw - proc proc rw\n\
        30 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        31 30 8:1 /srv/secret /mnt/a\\040b rw - ext4 /dev/sda1 rw\n\
        32 30 0:40 /sub /mnt/other rw - btrfs /dev/sdb rw\n";

    fn at(mount: &str, path: &str) -> Location {
        locate(MOUNTS, mount.as_bytes(), Path::new(path)).unwrap()
    }

    #[test]
    fn a_bind_mount_shows_the_place_that_it_was_made_of() {
        let (whole, bound) = (at("30", "/srv"), at("31", "/mnt/a b/deep"));
        assert_eq!(bound, at("30", "/srv/secret/deep"));
        assert!(whole.contains(&bound) && !bound.contains(&whole));
        assert!(whole.contains(&whole));
        assert!(!whole.contains(&at("30", "/srv2")), "a longer name");
        assert!(!at("30", "/").contains(&at("32", "/mnt/other")), "another file system");
        assert!(locate(MOUNTS, b"33", Path::new("/")).is_none());
    }

    #[test]
    fn escapes_of_the_list() {
        assert_eq!(unescape(b"/a\\134040\\011\\012b\\"), b"/a\\040\t\nb\\");
        assert_eq!(unescape(b"\\999"), b"\\999");
    }

    #[test]
    fn a_directory_lies_in_its_parent() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("in ner")).unwrap();
        let outer = Location::of_path(place.path()).unwrap();
        let inner = Location::of_path(&place.path().join("in ner")).unwrap();
        assert!(outer.contains(&inner) && !inner.contains(&outer));
    }
}
