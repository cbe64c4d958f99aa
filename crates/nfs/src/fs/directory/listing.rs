//! Listings of a directory tree.
//!
//! A cookie is the kernel's own position after an entry (`d_off`). File systems promise that such a position
//! stays valid while the directory changes, because `telldir` returns it. So the verifier is always 0 (RFC
//! 1813 §3.3.16).

use std::ops::ControlFlow;

use rustix::fs::{OFlags, RawDir, SeekFrom, seek};
use rustix::io::Errno;

use super::DirectoryFs;
use super::convert::{attributes, stat};
use super::ids::Object;
use crate::fs::EntrySink;
use crate::fs::types::{Entry, FileId, FsError, Identity, Listing, Name, Node, Place};

/// Memory for the entries of one system call, in bytes.
const BATCH: usize = 32 * 1024;

impl DirectoryFs {
    pub(super) fn list(
        &self,
        who: &Identity,
        directory: &FileId,
        (cookie, verifier): (u64, u64),
        nodes: bool,
        sink: &mut EntrySink<'_>,
    ) -> Result<Listing, FsError> {
        let directory = self.directory(directory)?;
        if verifier != 0 {
            return Err(FsError::BadCookie);
        }
        let at_root = Place::from(&directory.stat) == Place::from(&self.root.stat);
        let parent = match (nodes, at_root) {
            (true, false) => self.parent(who, &directory).ok(),
            _ => None,
        };
        // The whole listing runs as the caller. Opening the directory checks the right to list, and each
        // entry checks the right to look up.
        let acting = self.actor.act_as(who)?;
        let open = self.reopen(&directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        if cookie != 0 {
            seek(&open, SeekFrom::Start(cookie)).map_err(|errno| match errno {
                Errno::INVAL | Errno::OVERFLOW => FsError::BadCookie,
                other => other.into(),
            })?;
        }
        let mut buffer = Vec::with_capacity(BATCH);
        let mut entries = RawDir::new(&open, buffer.spare_capacity_mut());
        let mut end = true;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let mut number = entry.ino();
            let node = match name {
                b"." => self.node_if(nodes, || self.node(&directory, None)),
                b".." if at_root => {
                    number = directory.stat.stx_ino;
                    self.node_if(nodes, || self.node(&directory, None))
                }
                b".." => parent.as_ref().and_then(|parent| self.node(parent, None).ok()),
                _ => self.node_if(nodes, || self.entry_node(&directory, name)),
            };
            if let Some(node) = &node {
                number = node.attributes.number;
            }
            let cookie = entry.next_entry_cookie();
            if let ControlFlow::Break(()) = sink(&Entry { name, number, cookie, node }) {
                end = false;
                break;
            }
        }
        drop(acting);
        Ok(Listing { end, verifier: 0, attributes: attributes(&stat(&directory)?) })
    }

    fn node_if(&self, wanted: bool, node: impl FnOnce() -> Result<Node, FsError>) -> Option<Node> {
        if wanted { node().ok() } else { None }
    }

    fn entry_node(&self, directory: &Object, name: &[u8]) -> Result<Node, FsError> {
        let object = self.child(directory, Name::new(name)?)?;
        self.node(&object, Some((directory, name)))
    }
}
