//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).
//!
//! Entries are read from the file system until the next one would exceed the client's limit. The limit bounds
//! the encoded size of the whole `resok`, and for READDIRPLUS also the size of names and numbers alone. The
//! server's largest payload bounds the client's limit.

use std::ops::ControlFlow;

use super::{At, Serve, Served3};
use crate::fs::Listing;
use crate::wire::{
    DirEntry, DirEntryPlus, DirList, DirListPlus, FileHandle, FileName, ReaddirArgs, ReaddirOk,
    ReaddirplusArgs, ReaddirplusOk, Status, Verifier,
};

/// Returns the bytes for entries within a limit from the wire.
fn room(at: &At, limit: u32, overhead: usize) -> usize {
    usize::try_from(limit.min(at.shared.max_payload)).unwrap_or_default().saturating_sub(overhead)
}

/// Returns the attributes and the verifier of a listing.
///
/// # Errors
/// RFC 1813 §2.6, NFS3ERR_TOOSMALL: no entry fits. An empty list without an end would make a client ask for
/// ever.
fn conclude(at: &At, listing: &Listing, empty: bool) -> Result<(crate::wire::Attributes, Verifier), Status> {
    if empty && !listing.end {
        return Err(Status::TooSmall);
    }
    Ok((at.attributes(&listing.attributes), listing.verifier.to_be_bytes()))
}

impl Serve for ReaddirArgs {
    fn handle(&self) -> &FileHandle {
        &self.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let mut left = room(at, self.count, ReaddirOk::OVERHEAD);
        let mut entries = Vec::new();
        let verifier = u64::from_be_bytes(self.verifier);
        let listed = at.fs().read_directory(&at.who, &at.id, self.cookie, verifier, false, &mut |found| {
            let entry =
                DirEntry { fileid: found.number, name: FileName::new(found.name), cookie: found.cookie };
            match left.checked_sub(entry.size()) {
                Some(rest) => left = rest,
                None => return ControlFlow::Break(()),
            }
            entries.push(entry);
            ControlFlow::Continue(())
        });
        let concluded = listed.map_err(Status::from).and_then(|listing| {
            conclude(at, &listing, entries.is_empty()).map(|concluded| (concluded, listing.end))
        });
        let ((attributes, verifier), eof) = concluded.map_err(|status| (status, at.post_op()))?;
        Ok(ReaddirOk { dir_attributes: Some(attributes), verifier, reply: DirList { entries, eof } })
    }
}

impl Serve for ReaddirplusArgs {
    fn handle(&self) -> &FileHandle {
        &self.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let mut left = room(at, self.maxcount, ReaddirplusOk::OVERHEAD);
        // RFC 1813 §3.3.17: the client's limit on names and numbers. At least one entry is returned, or a
        // client with a small limit would never reach the end.
        let mut names_left = room(at, self.dircount, 0);
        let mut entries: Vec<DirEntryPlus> = Vec::new();
        // The parent directory, and the index of `..` among the entries. The file system lists as the caller,
        // who may not open handles. So the check that the parent is in the export comes afterwards.
        let mut above = None;
        let verifier = u64::from_be_bytes(self.verifier);
        let listed = at.fs().read_directory(&at.who, &at.id, self.cookie, verifier, true, &mut |found| {
            let seen = found.node.as_ref().and_then(|node| {
                let seen = at.seen(node).ok()?;
                if found.name == b".." && seen.stays {
                    above = Some((entries.len(), node.id));
                }
                Some((seen.handle, seen.attributes))
            });
            let entry = DirEntryPlus {
                fileid: found.number,
                name: FileName::new(found.name),
                cookie: found.cookie,
                attributes: seen.as_ref().map(|(_, attributes)| *attributes),
                handle: seen.as_ref().map(|(handle, _)| *handle),
            };
            let fits = match names_left.checked_sub(entry.dir_size()) {
                Some(rest) => {
                    names_left = rest;
                    true
                }
                None => entries.is_empty(),
            };
            match left.checked_sub(entry.size()) {
                Some(rest) if fits => left = rest,
                _ => return ControlFlow::Break(()),
            }
            entries.push(entry);
            ControlFlow::Continue(())
        });
        if let Some((place, id)) = above
            && let Some(entry) = entries.get_mut(place)
            && at.check_place(&id).is_err()
        {
            (entry.attributes, entry.handle) = (None, None);
        }
        let concluded = listed.map_err(Status::from).and_then(|listing| {
            conclude(at, &listing, entries.is_empty()).map(|concluded| (concluded, listing.end))
        });
        let ((attributes, verifier), eof) = concluded.map_err(|status| (status, at.post_op()))?;
        Ok(ReaddirplusOk { dir_attributes: Some(attributes), verifier, reply: DirListPlus { entries, eof } })
    }
}
