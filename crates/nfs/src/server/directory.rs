//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).
//!
//! Entries are taken from the file system until the next would not fit in what the client allows: the encoded size of
//! the whole `resok`, and for READDIRPLUS also the size of names and numbers alone. A client that allows more than the
//! server's largest payload gets at most that.

use std::ops::ControlFlow;

use super::{At, Serve, Served3};
use crate::fs::Listing;
use crate::wire::{
    DirEntry, DirEntryPlus, DirList, DirListPlus, FileHandle, FileName, ReaddirArgs, ReaddirOk,
    ReaddirplusArgs, ReaddirplusOk, Status, Verifier,
};

/// The room for entries within a limit from the wire.
fn room(at: &At, limit: u32, overhead: usize) -> usize {
    usize::try_from(limit.min(at.shared.max_payload)).unwrap_or_default().saturating_sub(overhead)
}

/// What a listing says for all entries together; an error if there is room for none.
///
/// RFC 1813 §2.6, NFS3ERR_TOOSMALL: an empty list that is not the end would keep a client asking for ever.
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
        // RFC 1813 §3.3.17: what the client wants of names and numbers. At least one entry is given, or a client with
        // a small wish would never come to the end.
        let mut names_left = room(at, self.dircount, 0);
        let mut entries: Vec<DirEntryPlus> = Vec::new();
        // The directory above, and the place of `..` among the entries. The file system lists as the caller, who may not open
        // handles. So the check that the directory is in the export comes behind that.
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
