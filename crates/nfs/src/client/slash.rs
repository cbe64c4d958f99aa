//! Paths that end in a slash. Such a path names a directory, or one that is about to be made (POSIX.1-2017, XBD
//! §4.13).
//!
//! All operations by path keep this rule, and here it is decided. Nothing but a directory is found or made
//! under such a path. A link at its end is followed to find a directory. An operation on the name itself (to
//! remove, rename or make something) refuses the link. A path that ends in `/.` is treated alike.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::walk::{Place, lossy};
use super::{Client, Error, Node};
use crate::wire::{FileType, Status};

/// Message about a path where nothing exists.
const NOTHING: &str = "nothing has that name";

/// Returns whether a path can name only a directory, by a slash at its end.
pub(super) fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// Returns a path without the slashes at its end; the root becomes empty.
pub(super) fn without_slash(mut path: &[u8]) -> &[u8] {
    while let Some(shorter) = path.strip_suffix(b"/").or_else(|| path.strip_suffix(b"/.")) {
        path = shorter;
    }
    path
}

pub(super) const fn seen(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "it is a file",
        FileType::Directory => "it is a directory",
        FileType::Symlink => "it is a symbolic link",
        FileType::BlockDevice | FileType::CharacterDevice => "it is a device",
        FileType::Socket => "it is a socket",
        FileType::Fifo => "it is a named pipe",
    }
}

/// Returns the error for a path that should name a directory.
pub(super) fn not_directory(path: &[u8], kind: FileType) -> Error {
    Error::NotDirectory { path: lossy(path), seen: seen(kind) }
}

/// Refuses an object that the path, by a slash at its end, does not name.
pub(super) fn check(path: &[u8], node: Node) -> Result<Node, Error> {
    let kind = node.attributes.file_type;
    if names_directory(path) && kind != FileType::Directory {
        Err(not_directory(path, kind))
    } else {
        Ok(node)
    }
}

impl Client {
    /// Returns the object that has the name at the end of a path. A link is itself the object, also if a slash
    /// follows its name; it is then refused, because it is no directory.
    pub async fn entry(&self, path: impl AsRef<[u8]>) -> Result<Node, Error> {
        let path = path.as_ref();
        let Place { dir, name } = self.place(path).await?;
        check(path, self.lookup_in(dir, name).await.map_err(|error| error.at(path))?)
    }

    /// Returns the place at a path for an object other than a directory.
    pub(super) async fn place_of_file(&self, path: &[u8]) -> Result<Place, Error> {
        self.place_for(path, false).await
    }

    /// Returns the place at a path for a new object: a `directory` or another one.
    pub(super) async fn place_for(&self, path: &[u8], directory: bool) -> Result<Place, Error> {
        let place = self.place(path).await?;
        if names_directory(path) {
            match self.lookup_in(place.dir, place.name.clone()).await {
                // The server refuses to replace a directory.
                Ok(node) => drop(check(path, node)?),
                Err(error) if error.status() != Some(Status::NoEnt) => return Err(error.at(path)),
                Err(_) if directory => {}
                Err(_) => return Err(Error::NotDirectory { path: lossy(path), seen: NOTHING }),
            }
        }
        Ok(place)
    }

    /// Returns the places for a rename. Only a directory gets, or has, a name with a slash at its end.
    pub(super) async fn places_of_rename(&self, from: &[u8], to: &[u8]) -> Result<(Place, Place), Error> {
        let old = self.place(from).await?;
        if !names_directory(from) && !names_directory(to) {
            return Ok((old, self.place(to).await?));
        }
        let moved = self.lookup_in(old.dir, old.name.clone()).await.map_err(|error| error.at(from))?;
        let moved = check(from, moved)?;
        Ok((old, self.place_for(to, moved.attributes.is_directory()).await?))
    }
}

/// Returns whether a copy goes into the local `target`, which is then a directory. Otherwise `target` is the name of the
/// copy, which is a `directory` or not.
pub(super) fn goes_into(target: &Path, directory: bool) -> io::Result<bool> {
    let absent = match std::fs::metadata(target) {
        Ok(metadata) => return Ok(metadata.is_dir()),
        Err(error) => error,
    };
    let missing = absent.kind() == io::ErrorKind::NotFound;
    let bytes = target.as_os_str().as_bytes();
    if !names_directory(bytes) {
        return if missing { Ok(false) } else { Err(absent) };
    }
    if !missing && absent.kind() != io::ErrorKind::NotADirectory {
        return Err(absent);
    }
    let name = Path::new(std::ffi::OsStr::from_bytes(without_slash(bytes)));
    let there = match std::fs::symlink_metadata(name) {
        Ok(metadata) if metadata.is_file() => seen(FileType::Regular),
        Ok(metadata) if metadata.is_symlink() => seen(FileType::Symlink),
        Ok(_) => "it is a device, pipe or socket",
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) if directory => return Ok(false),
        Err(_) => NOTHING,
    };
    Err(io::Error::new(io::ErrorKind::NotADirectory, format!("not a directory: {there}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_or_a_dot_after_one_names_a_directory() {
        for path in ["/", "a/", "/a//", "/a/.", "./", "/a/../"] {
            assert!(names_directory(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "/a", "/a.", "/a/.b", "/a/.."] {
            assert!(!names_directory(path.as_bytes()), "{path}");
        }
        for (path, bare) in [("/a/", "/a"), ("a/.//./", "a"), ("/", ""), ("/a.", "/a."), ("", "")] {
            assert_eq!(without_slash(path.as_bytes()), bare.as_bytes(), "{path}");
        }
    }
}
