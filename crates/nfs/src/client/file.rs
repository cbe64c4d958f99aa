//! One file: reading and writing at offsets, and making what was written stable.
//!
//! Writes are UNSTABLE: the server may hold them in memory. The data (shared, not copied) stays with the [`File`]
//! until a COMMIT answers with the verifier under which it was written; a different verifier says that the server
//! restarted and may have lost it, and it is written again (RFC 1813 §3.3.7, §3.3.21, §4.8). All clones of a `File`
//! share this.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::{Client, Error, ReadStream, Violation, WriteStream};
use crate::wire::{
    Attributes, CommitArgs, FileHandle, ReadArgs, SetAttributes, StableHow, Verifier, WriteArgs,
};

/// An open file; see the module's introduction. Cheap to clone.
#[derive(Clone)]
pub struct File {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    handle: FileHandle,
    path: String,
    unstable: Mutex<Unstable>,
    /// Held by whoever commits.
    committing: tokio::sync::Mutex<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let left = self.unstable.get_mut().unwrap_or_else(PoisonError::into_inner).bytes;
        self.client.inner.unstable.fetch_sub(left, Ordering::Relaxed);
    }
}

/// What the server may lose, in the order in which it was written.
#[derive(Default)]
struct Unstable {
    writes: Vec<UnstableWrite>,
    bytes: usize,
}

#[derive(Clone)]
struct UnstableWrite {
    offset: u64,
    data: Bytes,
    verifier: Verifier,
}

impl File {
    pub(super) fn new(client: Client, handle: FileHandle, path: String) -> Self {
        let shared = Shared {
            client,
            handle,
            path,
            unstable: Mutex::new(Unstable::default()),
            committing: tokio::sync::Mutex::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Its handle.
    pub fn handle(&self) -> FileHandle {
        self.shared.handle
    }

    /// The path that it was opened by, for messages.
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// The client that it belongs to.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    fn named(&self, error: Error) -> Error {
        error.at(self.shared.path.as_bytes())
    }

    /// Its attributes.
    pub async fn attributes(&self) -> Result<Attributes, Error> {
        self.client().attributes(self.handle()).await.map_err(|error| self.named(error))
    }

    /// Its length in bytes. (There is no `is_empty` without asking the server.)
    #[allow(clippy::len_without_is_empty)]
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.attributes().await?.size)
    }

    /// Cuts the file off at `length`, or fills it up with zeros.
    pub async fn set_len(&self, length: u64) -> Result<(), Error> {
        self.set_attributes(SetAttributes { size: Some(length), ..SetAttributes::default() }).await
    }

    /// Changes its attributes.
    pub async fn set_attributes(&self, attributes: SetAttributes) -> Result<(), Error> {
        self.client().set_attributes_of(self.handle(), attributes).await.map_err(|error| self.named(error))
    }

    /// Reads up to `count` bytes in one call, at most [`Client::read_size`]; nothing at the end of the file, and
    /// perhaps fewer than asked before it.
    pub async fn read_at(&self, offset: u64, count: u32) -> Result<Bytes, Error> {
        let (data, _) = self.read_once(offset, count.min(self.client().read_size())).await?;
        Ok(data)
    }

    /// One READ: the data, and whether the file ends behind it.
    pub(super) async fn read_once(&self, offset: u64, count: u32) -> Result<(Bytes, bool), Error> {
        if count == 0 {
            return Ok((Bytes::new(), false));
        }
        let arguments = ReadArgs { file: self.handle(), offset, count };
        let ok = self.client().procedures().read(&arguments).await.map_err(|error| self.named(error))?;
        let broken = |violation| Error::Protocol { operation: "READ", violation };
        // RFC 1813 §3.3.6: the count is that of the data, and not more than was asked for.
        if ok.count > count || usize::try_from(ok.count) != Ok(ok.data.len()) {
            return Err(broken(Violation::ReadCount {
                asked: count,
                count: ok.count,
                length: ok.data.len(),
            }));
        }
        if ok.data.is_empty() && !ok.eof {
            return Err(broken(Violation::NoProgress { offset }));
        }
        Ok((ok.data, ok.eof))
    }

    /// Reads ahead from `offset` with many calls in flight; see [`ReadStream`]. `length` bytes, or up to the end of
    /// the file.
    pub async fn read_stream(&self, offset: u64, length: Option<u64>) -> Result<ReadStream, Error> {
        Ok(match length {
            Some(length) => ReadStream::new(self.clone(), offset, offset.saturating_add(length), true),
            None => ReadStream::new(self.clone(), offset, self.len().await?, false),
        })
    }

    /// As [`read_stream`](Self::read_stream) from `offset` to the end of the file, whose length is known already.
    pub(super) fn read_all(&self, offset: u64, size: u64) -> ReadStream {
        ReadStream::new(self.clone(), offset, size, false)
    }

    /// Reads some ranges, one behind the other.
    pub(super) fn read_ranges(&self, ranges: Vec<Range<u64>>) -> ReadStream {
        ReadStream::of_ranges(self.clone(), ranges)
    }

    /// Writes all of `data` at `offset`; stable only after [`sync`](Self::sync).
    pub async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let mut offset = offset;
        let mut data = data;
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(self.write_size()));
            let length = piece.len();
            self.write_piece(offset, piece, StableHow::Unstable).await?;
            offset = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        }
        if self.must_commit() {
            self.sync().await?;
        }
        Ok(())
    }

    /// Writes `data` with many calls in flight; see [`WriteStream`].
    pub fn write_stream(&self, offset: u64) -> WriteStream {
        WriteStream::new(self.clone(), offset)
    }

    pub(super) fn write_size(&self) -> usize {
        usize::try_from(self.client().write_size()).unwrap_or(usize::MAX)
    }

    /// Writes one piece, at most [`Client::write_size`] bytes, in as many calls as the server makes of it.
    pub(super) async fn write_piece(&self, offset: u64, data: Bytes, stable: StableHow) -> Result<(), Error> {
        let mut offset = offset;
        let mut data = data;
        while !data.is_empty() {
            let asked = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let arguments =
                WriteArgs { file: self.handle(), offset, count: asked, stable, data: data.clone() };
            let ok = self.client().procedures().write(&arguments).await.map_err(|error| self.named(error))?;
            let broken = |violation| Error::Protocol { operation: "WRITE", violation };
            // RFC 1813 §3.3.7: fewer bytes may be written, but some; as stable as asked, or more.
            let written = usize::try_from(ok.count).unwrap_or(usize::MAX);
            if written == 0 || written > data.len() {
                return Err(broken(Violation::WriteCount { asked, count: ok.count }));
            }
            if ok.committed < stable {
                return Err(broken(Violation::LessStable));
            }
            let done = data.split_to(written);
            if ok.committed == StableHow::Unstable {
                self.remember(UnstableWrite { offset, data: done, verifier: ok.verifier });
            }
            offset = offset.saturating_add(u64::from(ok.count));
        }
        Ok(())
    }

    fn remember(&self, write: UnstableWrite) {
        let mut unstable = self.shared.unstable.lock().unwrap_or_else(PoisonError::into_inner);
        let length = write.data.len();
        unstable.bytes = unstable.bytes.saturating_add(length);
        unstable.writes.push(write);
        self.client().inner.unstable.fetch_add(length, Ordering::Relaxed);
    }

    /// Whether this file has to commit before it writes more: too much waits in all files together, some of it here. No file
    /// waits for another one.
    pub(super) fn must_commit(&self) -> bool {
        let inner = &self.client().inner;
        inner.unstable.load(Ordering::Relaxed) > inner.options.unstable_limit && self.unstable_bytes() > 0
    }

    /// Bytes that wait for COMMIT.
    pub fn unstable_bytes(&self) -> usize {
        self.shared.unstable.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Returns when everything written before is on the server's stable storage; data that a restart of the server
    /// may have lost is written again.
    pub async fn sync(&self) -> Result<(), Error> {
        let _only = self.shared.committing.lock().await;
        // A copy: if this future is dropped, nothing is forgotten.
        let writes = self.shared.unstable.lock().unwrap_or_else(PoisonError::into_inner).writes.clone();
        if writes.is_empty() {
            return Ok(());
        }
        let arguments = CommitArgs { file: self.handle(), offset: 0, count: 0 };
        let ok = self.client().procedures().commit(&arguments).await.map_err(|error| self.named(error))?;
        // RFC 1813 §3.3.21: another verifier means that the data may be lost. What was written later goes again too,
        // even if it is safe: it may lie over what is written again before it.
        let lost = writes.iter().position(|write| write.verifier != ok.verifier).unwrap_or(writes.len());
        for write in writes.iter().skip(lost) {
            self.write_piece(write.offset, write.data.clone(), StableHow::FileSync).await?;
        }
        if lost < writes.len() {
            tracing::info!(
                path = self.path(),
                writes = writes.len() - lost,
                "the server restarted: written again"
            );
        }
        let mut unstable = self.shared.unstable.lock().unwrap_or_else(PoisonError::into_inner);
        unstable.writes.drain(..writes.len());
        let left = unstable.writes.iter().map(|write| write.data.len()).sum();
        let before = std::mem::replace(&mut unstable.bytes, left);
        self.client().inner.unstable.fetch_sub(before.saturating_sub(left), Ordering::Relaxed);
        Ok(())
    }
}
