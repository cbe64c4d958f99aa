//! Listing a directory: READDIRPLUS, or READDIR where the server does not have it (RFC 1813 §3.3.16, §3.3.17).
//!
//! A listing goes on from cookie to cookie under the verifier of the last reply. A server that has forgotten a
//! cookie answers NFS3ERR_BAD_COOKIE: the listing begins anew and leaves out the names that were given already. What
//! a hostile server could do (a listing without an end, one that does not go on, names that cannot be) ends it with a
//! [`Violation`]; no name is given twice.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::walk::lossy;
use super::{Client, Error, Violation};
use crate::wire::{
    Attributes, DirEntryPlus, FileHandle, FileName, ReaddirArgs, ReaddirplusArgs, Status, VERIFIER_SIZE,
    Verifier,
};

/// Most entries read from one directory.
pub const MAX_LISTING: usize = 1 << 22;
/// How often one listing begins anew after NFS3ERR_BAD_COOKIE.
const MAX_RESTARTS: u32 = 8;
/// Largest count that is tried after NFS3ERR_TOOSMALL, in bytes.
const MAX_COUNT: u32 = 1 << 20;

/// An entry of a directory. `.` and `..` are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirItem {
    /// The name: checked, it can be one component of a path and nothing else.
    pub name: FileName,
    /// The object's number within the file system.
    pub fileid: u64,
    /// Its attributes, if the server sent them along.
    pub attributes: Option<Attributes>,
    /// Its handle, likewise.
    pub handle: Option<FileHandle>,
}

/// A listing in progress, reply by reply.
pub struct DirReader {
    client: Client,
    dir: FileHandle,
    path: String,
    cookie: u64,
    verifier: Verifier,
    count: u32,
    restarts: u32,
    ended: bool,
    /// Entries so far, repeated ones too.
    received: usize,
    /// Names given to the caller.
    seen: HashSet<FileName>,
}

impl Client {
    /// All entries of a directory; symbolic links to it are followed.
    pub async fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirItem>, Error> {
        let path = path.as_ref();
        let dir = self.lookup(path).await?.handle;
        let mut reader = self.dir_reader(dir, path);
        let mut items = Vec::new();
        while let Some(batch) = reader.next().await? {
            items.extend(batch);
        }
        Ok(items)
    }

    /// A listing of the directory with this handle; `path` is for messages.
    pub fn dir_reader(&self, dir: FileHandle, path: impl AsRef<[u8]>) -> DirReader {
        DirReader {
            client: self.clone(),
            dir,
            path: lossy(path.as_ref()),
            cookie: 0,
            verifier: [0; VERIFIER_SIZE],
            count: self.readdir_count(),
            restarts: 0,
            ended: false,
            received: 0,
            seen: HashSet::new(),
        }
    }
}

/// What one call brought.
struct Batch {
    entries: Vec<DirEntryPlus>,
    verifier: Verifier,
    eof: bool,
    /// For messages.
    operation: &'static str,
}

impl DirReader {
    /// The entries of the next reply; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<DirItem>>, Error> {
        while !self.ended {
            let batch = match self.call().await {
                Ok(batch) => batch,
                Err(error) => match error.status() {
                    // RFC 1813 §3.3.16: the cookie is not valid any more; from the beginning, then.
                    Some(Status::BadCookie) if self.cookie != 0 && self.restarts < MAX_RESTARTS => {
                        self.restarts += 1;
                        self.cookie = 0;
                        self.verifier = [0; VERIFIER_SIZE];
                        continue;
                    }
                    // RFC 1813 §3.3.16: not even one entry fits.
                    Some(Status::TooSmall) if self.count < MAX_COUNT => {
                        self.count = self.count.saturating_mul(2).min(MAX_COUNT);
                        continue;
                    }
                    _ => return Err(error.at(self.path.as_bytes())),
                },
            };
            let items = self.take(batch)?;
            if !items.is_empty() {
                return Ok(Some(items));
            }
        }
        Ok(None)
    }

    fn take(&mut self, batch: Batch) -> Result<Vec<DirItem>, Error> {
        let Batch { entries, verifier, eof, operation } = batch;
        let broken = |violation| Error::Protocol { operation, violation };
        match entries.last() {
            Some(last) if last.cookie != self.cookie => self.cookie = last.cookie,
            _ if eof => {}
            _ => return Err(broken(Violation::StuckDirectory { cookie: self.cookie })),
        }
        self.verifier = verifier;
        self.ended = eof;
        self.received = self.received.saturating_add(entries.len());
        if self.received > MAX_LISTING {
            return Err(broken(Violation::EndlessDirectory { limit: MAX_LISTING }));
        }
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            let DirEntryPlus { fileid, name, attributes, handle, .. } = entry;
            if name.is_dot_or_dot_dot() {
                continue;
            }
            // Whoever lists may make local paths of the names: only what is one component passes.
            name.check_component().map_err(|source| {
                broken(Violation::EntryName { name: name.as_bytes().escape_ascii().to_string(), source })
            })?;
            // After a new beginning, or while the directory changes, an entry can come twice.
            if self.seen.insert(name.clone()) {
                items.push(DirItem { name, fileid, attributes, handle });
            }
        }
        Ok(items)
    }

    async fn call(&self) -> Result<Batch, Error> {
        let &Self { dir, cookie, verifier, count, .. } = self;
        let procedures = self.client.procedures();
        let no_readdirplus = &self.client.inner.no_readdirplus;
        if !no_readdirplus.load(Ordering::Relaxed) {
            let arguments = ReaddirplusArgs { dir, cookie, verifier, dircount: count, maxcount: count };
            match procedures.readdirplus(&arguments).await {
                Ok(ok) => {
                    let (entries, eof) = (ok.reply.entries, ok.reply.eof);
                    return Ok(Batch { entries, verifier: ok.verifier, eof, operation: "READDIRPLUS" });
                }
                // RFC 1813 §3.3.17: a server need not have it.
                Err(error) if error.status() == Some(Status::NotSupp) => {
                    no_readdirplus.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let ok = procedures.readdir(&ReaddirArgs { dir, cookie, verifier, count }).await?;
        let plain = |entry: crate::wire::DirEntry| DirEntryPlus {
            fileid: entry.fileid,
            name: entry.name,
            cookie: entry.cookie,
            attributes: None,
            handle: None,
        };
        let entries = ok.reply.entries.into_iter().map(plain).collect();
        Ok(Batch { entries, verifier: ok.verifier, eof: ok.reply.eof, operation: "READDIR" })
    }
}
