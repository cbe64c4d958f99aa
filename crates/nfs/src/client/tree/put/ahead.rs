//! Short files of a copy to the server: many of them share a visit to a thread where calls may block.
//!
//! Such a visit costs more than the system calls for a short file. So a copy opens and reads the short files of up to
//! [`AHEAD`] entries of a directory in one visit. Each file still has its own failure.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{FileType as LocalType, Statx};

use super::super::local::{LocalDir, LocalEntry, Opened, SHORT, Spot, blocking, is_type, open_regular};
use super::super::upload::Upload;
use super::{Put, Putting, ServerHere};
use crate::client::Error;
use crate::wire::FileName;

/// Entries of a local directory whose short files one visit reads. They hold at most this number times [`SHORT`] bytes.
pub(super) const AHEAD: usize = 32;

/// An entry of a local directory. A short file is open already, or could not be opened.
pub(super) type Entry = (LocalEntry, Option<io::Result<Opened>>);

impl Put {
    /// Opens and reads the short files among these entries, if they are going to be copied.
    pub(super) async fn ahead(
        &self,
        dir: &Arc<LocalDir>,
        entries: Vec<LocalEntry>,
        here: &ServerHere,
    ) -> Result<Vec<Entry>, Error> {
        let copying = &self.with.copying;
        // A further name of a file becomes a link. A sync reads a file only after it has compared it.
        let is_short = |stat: &Statx| {
            is_type(stat, LocalType::RegularFile)
                && stat.stx_size <= SHORT
                && !(copying.options.preserve && stat.stx_nlink > 1)
        };
        let is_wanted = |entry: &LocalEntry| {
            let name = entry.name.as_encoded_bytes();
            entry.stat.as_ref().is_ok_and(is_short)
                && !here.entries.contains_key(&FileName::from(name))
                && !here.excludes(copying, name, false)
        };
        let marked: Vec<_> = entries.into_iter().map(|entry| (is_wanted(&entry), entry)).collect();
        if copying.is_dry() || !marked.iter().any(|(wanted, _)| *wanted) {
            return Ok(marked.into_iter().map(|(_, entry)| (entry, None)).collect());
        }
        let place = Arc::clone(dir);
        let open = move |(wanted, entry): (bool, LocalEntry)| {
            let opened = wanted.then(|| {
                let spot = Spot { dir: Arc::clone(&place), name: entry.name.clone() };
                open_regular(&spot).and_then(Opened::of)
            });
            (entry, opened)
        };
        blocking(|| dir.path(), move || Ok(marked.into_iter().map(open).collect())).await
    }
}

impl Putting {
    /// Sends the content of a short file.
    pub(super) async fn whole(&self, data: Bytes, upload: &mut Upload) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        upload.begin().await?;
        let length = data.len();
        let mut stream = upload.file.write_stream(0);
        stream.write(data).await?;
        self.copying.moved(length);
        stream.finish().await
    }
}
