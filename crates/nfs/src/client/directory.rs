//! Directory listings by READDIRPLUS, or by READDIR if the server lacks it (RFC 1813 §3.3.16, §3.3.17).
//!
//! A listing continues from cookie to cookie under the verifier of the last reply. If a server has forgotten
//! a cookie, it answers NFS3ERR_BAD_COOKIE. The listing then starts again and omits names already returned. A
//! hostile server could send a listing that does not end, does not advance or goes back, or impossible names. These end
//! the listing with a [`Violation`]. No name is returned twice.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::walk::lossy;
use super::{Client, Error, Node, Violation};
use crate::wire::{
    Attributes, DirEntryPlus, FileHandle, FileName, ReaddirArgs, ReaddirplusArgs, Status, VERIFIER_SIZE,
    Verifier,
};

/// Most entries read from a directory.
pub const MAX_LISTING: usize = 1 << 22;
/// [`MAX_LISTING`], or a number that tests reach. It also bounds the directories of a tree that wait for their turn.
pub(super) const LIMIT: usize = if cfg!(test) { 1 << 12 } else { MAX_LISTING };
/// Most restarts of a listing after NFS3ERR_BAD_COOKIE.
const MAX_RESTARTS: u32 = 8;
/// Largest count tried after NFS3ERR_TOOSMALL, in bytes.
const MAX_COUNT: u32 = 1 << 20;

/// A directory entry. `.` and `..` are omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirItem {
    /// The name, checked: a single component of a path.
    pub name: FileName,
    /// The object's number within the file system.
    pub fileid: u64,
    /// The object's attributes, if the server sent them.
    pub attributes: Option<Attributes>,
    /// The object's handle, if the server sent it.
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
    /// Entries received so far, including repeated ones.
    received: usize,
    /// Names returned to the caller.
    seen: HashSet<FileName>,
    /// Cookies from which the listing has continued since its start.
    cookies: HashSet<u64>,
}

impl Client {
    /// Returns all entries of a directory; follows symbolic links to it.
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

    /// Returns an entry of the directory `dir` with the handle and attributes that its listing may omit. `None` if the
    /// entry is gone.
    pub async fn entry_of(&self, dir: FileHandle, item: &DirItem) -> Result<Option<Node>, Error> {
        if let Some((handle, attributes)) = item.handle.zip(item.attributes) {
            return Ok(Some(Node { handle, attributes }));
        }
        match self.lookup_in(dir, item.name.clone()).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.status() == Some(Status::NoEnt) => Ok(None),
            Err(error) => Err(error.at(item.name.as_bytes())),
        }
    }

    /// Returns a listing of the directory with this handle; `path` is for messages.
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
            cookies: HashSet::new(),
        }
    }
}

/// Entries of one reply.
struct Batch {
    entries: Vec<DirEntryPlus>,
    verifier: Verifier,
    eof: bool,
    /// Name of the procedure, for messages.
    operation: &'static str,
}

impl DirReader {
    /// Returns the entries of the next reply, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<DirItem>>, Error> {
        while !self.ended {
            let batch = match self.call().await {
                Ok(batch) => batch,
                Err(error) => match error.status() {
                    // RFC 1813 §3.3.16: the cookie is no longer valid. The listing starts again.
                    Some(Status::BadCookie) if self.cookie != 0 && self.restarts < MAX_RESTARTS => {
                        self.restarts += 1;
                        self.cookie = 0;
                        self.cookies.clear();
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
            _ if eof => {}
            // From a cookie that came before, the listing would go in a circle.
            Some(last) if last.cookie != self.cookie && self.cookies.insert(last.cookie) => {
                self.cookie = last.cookie;
            }
            _ => return Err(broken(Violation::StuckDirectory { cookie: self.cookie })),
        }
        self.verifier = verifier;
        self.ended = eof;
        self.received = self.received.saturating_add(entries.len());
        if self.received > LIMIT {
            return Err(broken(Violation::EndlessDirectory { limit: LIMIT }));
        }
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            let DirEntryPlus { fileid, name, attributes, handle, .. } = entry;
            if name.is_dot_or_dot_dot() {
                continue;
            }
            // Callers may make local paths of the names, so only single components pass.
            name.check_component().map_err(|source| {
                broken(Violation::EntryName { name: name.as_bytes().escape_ascii().to_string(), source })
            })?;
            // After a restart, or if the directory changes meanwhile, an entry can come twice.
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
                // RFC 1813 §3.3.17: READDIRPLUS is optional.
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
