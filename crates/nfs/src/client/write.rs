//! Write-behind: data in order, with several WRITEs in flight.
//!
//! Data is split into WRITEs of [`Client::write_size`](super::Client::write_size) bytes. A shorter rest waits
//! for more data, so that small pieces do not become small calls. WRITEs are UNSTABLE. The file is synced
//! whenever [`ClientOptions::unstable_limit`](super::ClientOptions::unstable_limit) bytes of all files wait
//! for COMMIT, and at the end.

use bytes::{Bytes, BytesMut};

use super::{Calls, Error, File};
use crate::wire::StableHow;

/// Stream that writes a file from an offset on. No data is certain to be stable before
/// [`finish`](Self::finish).
pub struct WriteStream {
    file: File,
    /// Offset of the data that waits.
    offset: u64,
    waiting: Bytes,
    in_flight: Calls<()>,
    /// Bytes after which all earlier data is made stable first, and the number of such steps that are stable.
    steps: Option<(u64, u64)>,
}

impl WriteStream {
    pub(super) fn new(file: File, offset: u64) -> Self {
        Self { file, offset, waiting: Bytes::new(), in_flight: Calls::new(), steps: None }
    }

    /// Accepts data, and returns when the window has a permit for it. Pieces of [`Client::write_size`] bytes
    /// are not copied; the last may be shorter.
    ///
    /// [`Client::write_size`]: super::Client::write_size
    pub async fn write(&mut self, data: Bytes) -> Result<(), Error> {
        let size = self.file.write_size();
        let mut data = data;
        if !self.waiting.is_empty() {
            let part = data.split_to(data.len().min(size.saturating_sub(self.waiting.len())));
            let mut joined = BytesMut::from(std::mem::take(&mut self.waiting));
            joined.extend_from_slice(&part);
            self.waiting = joined.freeze();
            if self.waiting.len() >= size {
                let full = std::mem::take(&mut self.waiting);
                self.start(full, StableHow::Unstable).await?;
            }
        }
        while data.len() >= size {
            let piece = data.split_to(size);
            self.start(piece, StableHow::Unstable).await?;
        }
        if !data.is_empty() {
            self.waiting = data;
        }
        Ok(())
    }

    /// Makes all data below each multiple of `step` stable before any data above it is sent.
    pub(super) fn settle_every(&mut self, step: u64) {
        self.steps = self.offset.checked_div(step).map(|settled| (step, settled));
    }

    /// Returns the bytes of one WRITE.
    pub(super) fn piece(&self) -> usize {
        self.file.write_size()
    }

    /// Continues at `offset`. The stream writes nothing in between.
    pub async fn seek(&mut self, offset: u64) -> Result<(), Error> {
        let last = std::mem::take(&mut self.waiting);
        if !last.is_empty() {
            self.start(last, StableHow::Unstable).await?;
        }
        self.offset = offset;
        Ok(())
    }

    /// Writes the rest, and returns when all data is on stable storage.
    pub async fn finish(mut self) -> Result<(), Error> {
        let last = std::mem::take(&mut self.waiting);
        if !last.is_empty() {
            // A file of one WRITE needs no COMMIT.
            let alone = self.in_flight.is_empty() && self.file.unstable_bytes() == 0;
            let stable = if alone { StableHow::FileSync } else { StableHow::Unstable };
            self.start(last, stable).await?;
        }
        self.drain().await?;
        self.file.sync().await
    }

    async fn drain(&mut self) -> Result<(), Error> {
        while let Some(result) = self.in_flight.next().await {
            result?;
        }
        Ok(())
    }

    async fn start(&mut self, piece: Bytes, stable: StableHow) -> Result<(), Error> {
        let mut piece = piece;
        if let Some((step, _)) = self.steps {
            loop {
                let room = usize::try_from(step - self.offset % step).unwrap_or(usize::MAX);
                if piece.len() <= room {
                    break;
                }
                let part = piece.split_to(room);
                self.start_one(part, StableHow::Unstable).await?;
            }
        }
        self.start_one(piece, stable).await
    }

    async fn start_one(&mut self, piece: Bytes, stable: StableHow) -> Result<(), Error> {
        if let Some((step, settled)) = &mut self.steps {
            let now = self.offset / *step;
            if now > std::mem::replace(settled, now) {
                self.drain().await?;
                self.file.sync().await?;
            }
        }
        if self.file.must_commit() {
            self.drain().await?;
            self.file.sync().await?;
        }
        let inner = &self.file.client().inner;
        let (window, file_window) = (inner.window.clone(), inner.options.file_window.max(1));
        // A single WRITE may always start, more while the window has permits. So streams with a common window
        // cannot block each other.
        let place = loop {
            if self.in_flight.is_empty() {
                break window.try_acquire_owned().ok();
            }
            if self.in_flight.len() < file_window
                && let Ok(place) = window.clone().try_acquire_owned()
            {
                break Some(place);
            }
            if let Some(result) = self.in_flight.next().await {
                result?;
            }
        };
        let (file, offset) = (self.file.clone(), self.offset);
        self.offset = offset.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        self.in_flight.push(Box::pin(async move {
            let _place = place;
            file.write_piece(offset, piece, stable).await
        }));
        self.in_flight.progress().await;
        Ok(())
    }
}
