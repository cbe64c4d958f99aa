//! An open file: reads and writes at offsets, and stable storage of written data.
//!
//! Writes are UNSTABLE: the server may hold the data in memory. The data (shared, not copied) stays with the
//! [`File`] until a COMMIT answers with the verifier under which it was written. A different verifier shows
//! that the server restarted and may have lost the data. The client then writes it again (RFC 1813 §3.3.7,
//! §3.3.21, §4.8). All clones of a `File` share this state.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rpcrdma_xdr::Payload;

use super::{Client, Error, ReadStream, Violation, WriteStream};
use crate::wire::{
    Attributes, CommitArgs, FileHandle, ReadArgs, SetAttributes, StableHow, Verifier, WriteArgs,
};

/// An open file; see the module documentation. Cheap to clone.
#[derive(Clone)]
pub struct File {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    handle: FileHandle,
    path: String,
    unstable: Mutex<Unstable>,
    /// Attributes in the answers to READ, of the last state.
    seen: Mutex<Option<Attributes>>,
    /// Held during a commit.
    committing: tokio::sync::Mutex<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let left = self.unstable.get_mut().unwrap_or_else(PoisonError::into_inner).bytes;
        self.client.inner.unstable.fetch_sub(left, Ordering::Relaxed);
    }
}

/// Written data that the server may lose, in the order of the WRITEs.
#[derive(Default)]
struct Unstable {
    writes: Vec<UnstableWrite>,
    bytes: usize,
}

#[derive(Clone)]
struct UnstableWrite {
    offset: u64,
    data: Bytes,
    /// UNSTABLE, or DATA_SYNC: its metadata may be lost, but not its data.
    committed: StableHow,
    verifier: Verifier,
}

impl File {
    pub(super) fn new(client: Client, handle: FileHandle, path: String) -> Self {
        let shared = Shared {
            client,
            handle,
            path,
            unstable: Mutex::new(Unstable::default()),
            seen: Mutex::default(),
            committing: tokio::sync::Mutex::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the file's handle.
    pub fn handle(&self) -> FileHandle {
        self.shared.handle
    }

    /// Returns the path by which the file was opened, for messages.
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// Returns the client of the file.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    fn named(&self, error: Error) -> Error {
        error.at(self.shared.path.as_bytes())
    }

    /// Returns the file's attributes.
    pub async fn attributes(&self) -> Result<Attributes, Error> {
        self.client().attributes(self.handle()).await.map_err(|error| self.named(error))
    }

    /// Returns the file's length in bytes. (`is_empty` does not exist, because it would need a call too.)
    #[allow(clippy::len_without_is_empty)]
    pub async fn len(&self) -> Result<u64, Error> {
        Ok(self.attributes().await?.size)
    }

    /// Truncates the file to `length` bytes, or extends it with zeros.
    pub async fn set_len(&self, length: u64) -> Result<(), Error> {
        self.set_attributes(SetAttributes { size: Some(length), ..SetAttributes::default() }).await
    }

    /// Changes the file's attributes.
    pub async fn set_attributes(&self, attributes: SetAttributes) -> Result<(), Error> {
        self.client().set_attributes_of(self.handle(), attributes).await.map_err(|error| self.named(error))
    }

    /// Reads up to `count` bytes in one call, at most [`Client::read_size`]. Returns no bytes at the end of
    /// the file, and possibly fewer than requested before the end. Bytes that arrive in several slices are
    /// joined; those of [`read_stream`](Self::read_stream) are not.
    pub async fn read_at(&self, offset: u64, count: u32) -> Result<Bytes, Error> {
        let (data, _) = self.read_once(offset, count.min(self.client().read_size())).await?;
        Ok(data.join().0)
    }

    /// Makes one READ. Returns the data, and whether the file ends after it.
    pub(super) async fn read_once(&self, offset: u64, count: u32) -> Result<(Payload, bool), Error> {
        if count == 0 {
            return Ok((Payload::default(), false));
        }
        let arguments = ReadArgs { file: self.handle(), offset, count };
        let ok = self.client().procedures().read(&arguments).await.map_err(|error| self.named(error))?;
        let broken = |violation| Error::Protocol { operation: "READ", violation };
        // RFC 1813 §3.3.6: the count is the length of the data, and at most the requested count.
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
        if let Some(now) = ok.attributes {
            let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            // Answers may overtake each other.
            if seen.is_none_or(|seen| seen.ctime <= now.ctime) {
                *seen = Some(now);
            }
        }
        Ok((ok.data, ok.eof))
    }

    /// Returns the attributes that came with the answers to READ, if any did.
    pub(super) fn seen(&self) -> Option<Attributes> {
        *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads ahead from `offset` with many calls in flight; see [`ReadStream`]. The stream has `length`
    /// bytes, or ends at the end of the file.
    pub async fn read_stream(&self, offset: u64, length: Option<u64>) -> Result<ReadStream, Error> {
        Ok(match length {
            Some(length) => ReadStream::new(self.clone(), offset, offset.saturating_add(length), true),
            None => ReadStream::new(self.clone(), offset, self.len().await?, false),
        })
    }

    /// Reads ahead from `offset` to the end of the file, whose length is known to be `size`.
    pub(super) fn read_all(&self, offset: u64, size: u64) -> ReadStream {
        ReadStream::new(self.clone(), offset, size, false)
    }

    /// Reads a short file of `size` bytes in one call, outside of the window. Returns `None` unless the file ends there.
    pub(super) async fn read_whole(&self, size: u32) -> Result<Option<Payload>, Error> {
        let (data, eof) = self.read_once(0, size).await?;
        Ok((eof && u32::try_from(data.len()) == Ok(size)).then_some(data))
    }

    /// Reads several ranges, one after the other.
    pub(super) fn read_ranges(&self, ranges: Vec<Range<u64>>) -> ReadStream {
        ReadStream::of_ranges(self.clone(), ranges)
    }

    /// Writes all of `data` at `offset`. The data is stable only after [`sync`](Self::sync).
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

    /// Writes at most [`Client::write_size`] bytes, in several calls if the server writes less than
    /// requested.
    pub(super) async fn write_piece(&self, offset: u64, data: Bytes, stable: StableHow) -> Result<(), Error> {
        let mut offset = offset;
        let mut data = data;
        while !data.is_empty() {
            let asked = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let arguments =
                WriteArgs { file: self.handle(), offset, count: asked, stable, data: data.clone().into() };
            let ok = self.client().procedures().write(&arguments).await.map_err(|error| self.named(error))?;
            let broken = |violation| Error::Protocol { operation: "WRITE", violation };
            // RFC 1813 §3.3.7: a server may write fewer bytes, but at least one, with at least the stability
            // requested.
            let written = usize::try_from(ok.count).unwrap_or(usize::MAX);
            if written == 0 || written > data.len() {
                return Err(broken(Violation::WriteCount { asked, count: ok.count }));
            }
            if ok.committed < stable {
                return Err(broken(Violation::LessStable));
            }
            let done = data.split_to(written);
            // RFC 1813 §3.3.7: a COMMIT follows unless all data and metadata are on stable storage.
            if ok.committed < StableHow::FileSync {
                let (committed, verifier) = (ok.committed, ok.verifier);
                self.remember(UnstableWrite { offset, data: done, committed, verifier });
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

    /// Returns whether this file must commit before it writes more: the data of all files exceeds the limit,
    /// and this file has some of it. No file waits for another one.
    pub(super) fn must_commit(&self) -> bool {
        let inner = &self.client().inner;
        inner.unstable.load(Ordering::Relaxed) > inner.options.unstable_limit && self.unstable_bytes() > 0
    }

    /// Returns the bytes that wait for COMMIT.
    pub fn unstable_bytes(&self) -> usize {
        self.shared.unstable.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// Waits until all data written before is on the server's stable storage. Writes data again that a
    /// restart of the server may have lost.
    pub async fn sync(&self) -> Result<(), Error> {
        let _only = self.shared.committing.lock().await;
        // With a copy of the list, a dropped future forgets nothing.
        let writes = self.shared.unstable.lock().unwrap_or_else(PoisonError::into_inner).writes.clone();
        if writes.is_empty() {
            return Ok(());
        }
        let arguments = CommitArgs { file: self.handle(), offset: 0, count: 0 };
        let ok = self.client().procedures().commit(&arguments).await.map_err(|error| self.named(error))?;
        // RFC 1813 §3.3.21: another verifier means that the data may be lost. Later writes are repeated too,
        // even safe ones, because they may overlap earlier writes that are repeated now.
        let is_lost =
            |write: &UnstableWrite| write.committed == StableHow::Unstable && write.verifier != ok.verifier;
        let lost = writes.iter().position(is_lost).unwrap_or(writes.len());
        for write in writes.iter().skip(lost) {
            self.write_piece(write.offset, write.data.clone(), StableHow::FileSync).await?;
        }
        if lost < writes.len() {
            tracing::info!(
                path = self.path(),
                writes = writes.len() - lost,
                "the server restarted: data is written again"
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
