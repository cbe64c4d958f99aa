//! From a path to a handle: LOOKUP by component, with symbolic links resolved by the client (RFC 1813 §4.3,
//! §4.9).
//!
//! Paths begin at the root of the export, with or without a leading `/`. `..` goes back on the way walked,
//! never above the root. An absolute link target also begins at the root of the export, because the client
//! has no other root. Each operation follows the last link of a path or not, as it requires. With a slash at its
//! end, a path names a directory ([`slash`](super::slash)), and the last link is followed.

use std::collections::VecDeque;

use super::slash::{check, names_directory, not_directory};
use super::{Client, Error};
use crate::wire::{
    Attributes, DirOpArgs, FileHandle, FileName, FileType, GetattrArgs, LookupArgs, MAX_NAME, NameError,
    ReadlinkArgs, Status,
};

/// Most symbolic links followed in the walk of one path, as in Linux.
pub const MAX_SYMLINKS: usize = 40;

/// An object found by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The object's handle.
    pub handle: FileHandle,
    /// The object's attributes.
    pub attributes: Attributes,
}

/// A directory, and the name at the end of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) dir: FileHandle,
    pub(super) name: FileName,
}

impl Place {
    pub(super) fn args(&self) -> DirOpArgs {
        DirOpArgs { dir: self.dir, name: self.name.clone() }
    }
}

/// Returns the components of a path, without empty components and `.`.
fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

impl Client {
    /// Returns the object at the end of a path; follows symbolic links.
    pub async fn lookup(&self, path: impl AsRef<[u8]>) -> Result<Node, Error> {
        self.walk(path.as_ref(), true).await
    }

    /// Returns the object at the end of a path. A link at the end is itself the object, unless a slash follows.
    pub async fn lookup_link(&self, path: impl AsRef<[u8]>) -> Result<Node, Error> {
        self.walk(path.as_ref(), false).await
    }

    /// Returns the attributes of the object at the end of a path; follows symbolic links.
    pub async fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes, Error> {
        let path = path.as_ref();
        let node = self.walk(path, true).await?;
        self.attributes(node.handle).await.map_err(|error| error.at(path))
    }

    pub(super) async fn attributes(&self, object: FileHandle) -> Result<Attributes, Error> {
        self.procedures().getattr(&GetattrArgs { object }).await
    }

    /// Looks up a name in a directory. Requests the attributes if LOOKUP does not return them.
    pub(super) async fn lookup_in(&self, dir: FileHandle, name: FileName) -> Result<Node, Error> {
        let found = self.procedures().lookup(&LookupArgs { what: DirOpArgs { dir, name } }).await?;
        let attributes = match found.attributes {
            Some(attributes) => attributes,
            None => self.attributes(found.object).await?,
        };
        Ok(Node { handle: found.object, attributes })
    }

    /// Returns the target of the symbolic link with this handle.
    pub async fn read_link_of(&self, symlink: FileHandle) -> Result<Vec<u8>, Error> {
        Ok(self.procedures().readlink(&ReadlinkArgs { symlink }).await?.data.to_vec())
    }

    async fn walk(&self, path: &[u8], follow_last: bool) -> Result<Node, Error> {
        let follow_last = follow_last || names_directory(path);
        match self.walk_components(components(path).collect(), path, follow_last).await? {
            Some(node) => check(path, node),
            None => {
                let handle = self.root();
                let attributes = self.attributes(handle).await.map_err(|error| error.at(path))?;
                // The root is a file if the server mounted one.
                check(path, Node { handle, attributes })
            }
        }
    }

    /// Returns the object at the end of the components, or `None` for the root.
    async fn walk_components(
        &self,
        mut ahead: VecDeque<Vec<u8>>,
        path: &[u8],
        follow_last: bool,
    ) -> Result<Option<Node>, Error> {
        let named = |error: Error| error.at(path);
        let root = self.root();
        // Directories from the root to the current position; the root itself is never removed.
        let mut way: Vec<Node> = Vec::new();
        let mut links = 0;
        // Whether the text of the last link ends in a slash.
        let mut directory = false;
        while let Some(component) = ahead.pop_front() {
            if component == b".." {
                way.pop();
                continue;
            }
            // RFC 1813 §3.3.3: a longer name would be NFS3ERR_NAMETOOLONG anyway.
            if component.len() > MAX_NAME {
                let source = NameError::TooLong { length: component.len() };
                return Err(Error::Name { path: lossy(path), source });
            }
            let dir = way.last().map_or(root, |node| node.handle);
            let node = self.lookup_in(dir, FileName::new(component)).await.map_err(named)?;
            if node.attributes.file_type != FileType::Symlink || (ahead.is_empty() && !follow_last) {
                way.push(node);
                continue;
            }
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(Error::TooManyLinks { path: lossy(path) });
            }
            let target = self.read_link_of(node.handle).await.map_err(named)?;
            if target.first() == Some(&b'/') {
                way.clear();
            }
            directory |= ahead.is_empty() && names_directory(&target);
            for part in components(&target).rev() {
                ahead.push_front(part);
            }
        }
        let end = way.pop();
        match end.map(|node| node.attributes.file_type) {
            Some(kind) if directory && kind != FileType::Directory => Err(not_directory(path, kind)),
            _ => Ok(end),
        }
    }

    /// Returns the directory (links followed) and the name of a path's last component, which need not exist.
    pub(super) async fn place(&self, path: &[u8]) -> Result<Place, Error> {
        let mut all: VecDeque<Vec<u8>> = components(path).collect();
        let name = match all.pop_back() {
            Some(name) if name != b".." => FileName::new(name),
            _ => return Err(Error::NoName { path: lossy(path) }),
        };
        name.check_component().map_err(|source| Error::Name { path: lossy(path), source })?;
        let dir = self.walk_components(all, path, true).await?.map_or(self.root(), |node| node.handle);
        Ok(Place { dir, name })
    }
}

impl Client {
    /// Returns the place as [`place`](Self::place), with the links at the end followed, and the object there,
    /// if one exists.
    pub(super) async fn place_followed(&self, path: &[u8]) -> Result<(Place, Option<Node>), Error> {
        let mut at = path.to_vec();
        for _ in 0..=MAX_SYMLINKS {
            let place = self.place_of_file(&at).await?;
            let node = match self.lookup_in(place.dir, place.name.clone()).await {
                Ok(node) => node,
                Err(error) if error.status() == Some(Status::NoEnt) => return Ok((place, None)),
                Err(error) => return Err(error.at(path)),
            };
            if node.attributes.file_type != FileType::Symlink {
                return Ok((place, Some(node)));
            }
            let target = self.read_link_of(node.handle).await.map_err(|error| error.at(path))?;
            at = if target.first() == Some(&b'/') {
                target
            } else {
                let all: Vec<Vec<u8>> = components(&at).collect();
                let parents = all.split_last().map(|(_, parents)| parents).unwrap_or_default();
                [parents.join(b"/".as_slice()).as_slice(), b"/", &target].concat()
            };
        }
        Err(Error::TooManyLinks { path: lossy(path) })
    }
}

/// Longest path in a message or report, in bytes. A longer path is shortened in its middle.
const SHOWN_PATH: usize = 4096;
/// Bytes of the beginning and the end of a shortened path.
const SHOWN_PARTS: (usize, usize) = (1024, 2048);

/// Returns a path for display.
pub(super) fn lossy(path: &[u8]) -> String {
    shortened(String::from_utf8_lossy(path).into_owned())
}

/// Returns a path for display, with a bounded length. A server may list directories of any depth.
pub(super) fn shortened(path: String) -> String {
    if path.len() <= SHOWN_PATH {
        return path;
    }
    let start = path.get(..path.floor_char_boundary(SHOWN_PARTS.0)).unwrap_or_default();
    let end = path.get(path.ceil_char_boundary(path.len() - SHOWN_PARTS.1)..).unwrap_or_default();
    format!("{start}[…]{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_long_paths_are_shortened() {
        assert_eq!(lossy(b"/a/b"), "/a/b");
        let whole = "é".repeat(SHOWN_PATH / 2);
        assert_eq!(lossy(whole.as_bytes()), whole);
        for letter in ["a", "é", "雪"] {
            let long = format!("start{}end", letter.repeat(1 << 20));
            let shown = lossy(long.as_bytes());
            assert!(shown.len() < SHOWN_PATH && shown.starts_with("start") && shown.ends_with("end"));
        }
        // Replacement characters take more bytes than the original ones.
        assert!(lossy(&[0xff; 4000]).len() <= SHOWN_PATH);
    }
}
