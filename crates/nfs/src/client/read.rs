//! Read-ahead: a file as a sequence of pieces, with several READs in flight.
//!
//! READs of [`Client::read_size`](super::Client::read_size) bytes start in order. A single READ may always
//! start. More start as long as the client's window has permits, up to
//! [`ClientOptions::file_window`](super::ClientOptions::file_window). The pieces are returned in order, in
//! the slices in which they arrived. Each piece holds its permit until the next is requested. A short READ is
//! completed by further READs, which ask for no more than the last one returned. If a reply does not fill the
//! memory that its READ offered, that memory is not kept.
//!
//! *End.* The stream ends at the caller's length, or where a READ reports the end of the file. If no READ
//! does so at the length in the attributes, the client requests the attributes once more, and the second
//! answer is final.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use rpcrdma::streaming::Gathered;
use rpcrdma_xdr::Payload;
use tokio::sync::OwnedSemaphorePermit;

use super::{Calls, Error, File};

/// The pieces of a file, in order. Dropping the stream abandons the READs in flight.
pub struct ReadStream {
    file: File,
    /// Offset of the next READ.
    next: u64,
    /// Current end of the READs.
    end: u64,
    /// Ranges to read after `end`.
    later: VecDeque<Range<u64>>,
    /// Whether `end` is final: set by the caller, or by the second request for attributes.
    bounded: bool,
    in_flight: Calls<Chunk>,
    /// The current chunk with its offset, and its permit of the window.
    ready: Option<(u64, Payload)>,
    /// The rest of the piece whose slices are returned one by one.
    rest: Payload,
    place: Option<OwnedSemaphorePermit>,
    ended: bool,
}

struct Chunk {
    offset: u64,
    data: Payload,
    /// Whether the file ends after the data.
    eof: bool,
    /// The end of the file, if it was requested.
    end: Option<u64>,
    place: Option<OwnedSemaphorePermit>,
}

impl ReadStream {
    pub(super) fn new(file: File, offset: u64, end: u64, bounded: bool) -> Self {
        Self {
            file,
            next: offset,
            end,
            later: VecDeque::new(),
            bounded,
            in_flight: Calls::new(),
            ready: None,
            rest: Payload::default(),
            place: None,
            ended: false,
        }
    }

    /// Creates a stream of these ranges, one after the other.
    pub(super) fn of_ranges(file: File, ranges: Vec<Range<u64>>) -> Self {
        Self { later: ranges.into(), ..Self::new(file, 0, 0, true) }
    }

    /// Returns the next slice of a piece, or `None` at the end and after an error. Dropping this future loses no data.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.rest.is_empty()
            && let Some((_, piece)) = self.next_at().await?
        {
            self.rest = piece;
        }
        let slice = self.rest.iter().next().cloned();
        let _ = self.rest.split_to(slice.as_ref().map_or(0, Bytes::len));
        Ok(slice)
    }

    /// Returns the next piece, all of its slices, with its offset.
    pub(super) async fn next_at(&mut self) -> Result<Option<(u64, Payload)>, Error> {
        loop {
            if self.ready.is_some() {
                // Later READs make progress while the caller uses this piece. The piece leaves the queue afterwards, so
                // that dropping this future loses nothing.
                self.in_flight.progress().await;
                return Ok(self.ready.take());
            }
            self.place = None;
            if self.ended {
                return Ok(None);
            }
            self.fill();
            match self.in_flight.next().await {
                Some(Ok(chunk)) => {
                    self.ready = Some((chunk.offset, chunk.data)).filter(|(_, data)| !data.is_empty());
                    self.place = chunk.place;
                    if let Some(end) = chunk.end {
                        (self.end, self.bounded) = (end, true);
                    }
                    if chunk.eof {
                        self.stop();
                    }
                }
                Some(Err(error)) => {
                    self.stop();
                    return Err(error);
                }
                None => self.ended = true,
            }
        }
    }

    fn stop(&mut self) {
        self.ended = true;
        self.in_flight.clear();
    }

    /// Starts READs up to the window. The first needs no permit, and no READ waits for a permit, so that
    /// streams with a common window cannot block each other.
    fn fill(&mut self) {
        let inner = &self.file.client().inner;
        let size = u64::from(self.file.client().read_size());
        while self.in_flight.len() < inner.options.file_window.max(1) {
            if self.next >= self.end
                && let Some(range) = self.later.pop_front()
            {
                (self.next, self.end) = (range.start, range.end);
                continue;
            }
            if self.next >= self.end {
                // The file may have grown beyond the known length. The client asks only once. A server that
                // never reports the end, or moves it each time, would otherwise fill the destination.
                if !self.bounded && self.in_flight.is_empty() {
                    let (file, offset) = (self.file.clone(), self.next);
                    self.in_flight.push(Box::pin(async move { ask_end(&file, offset).await }));
                }
                return;
            }
            let place = inner.window.clone().try_acquire_owned().ok();
            if place.is_none() && !self.in_flight.is_empty() {
                return;
            }
            let length = size.min(self.end - self.next);
            let (file, offset) = (self.file.clone(), self.next);
            self.next += length;
            self.in_flight.push(Box::pin(async move { read_chunk(&file, offset, length, place).await }));
        }
    }
}

/// Requests the current end of the file.
async fn ask_end(file: &File, offset: u64) -> Result<Chunk, Error> {
    let end = file.len().await?;
    Ok(Chunk { offset, data: Payload::default(), eof: end <= offset, end: Some(end), place: None })
}

/// Reads `length` bytes, or fewer at the end of the file. After a short READ, the next READs ask for the
/// length that it returned.
async fn read_chunk(
    file: &File,
    offset: u64,
    length: u64,
    place: Option<OwnedSemaphorePermit>,
) -> Result<Chunk, Error> {
    let mut gathered = Gathered::default();
    let (mut most, mut done, mut eof) = (u32::MAX, 0, false);
    while done < length && !eof {
        let count = u32::try_from(length - done).unwrap_or(u32::MAX).min(most);
        let data;
        (data, eof) = file.read_once(offset.saturating_add(done), count).await?;
        done += u64::try_from(data.len()).unwrap_or(u64::MAX);
        most = u32::try_from(data.len()).unwrap_or(u32::MAX);
        gathered.push(data, usize::try_from(count).unwrap_or(usize::MAX));
    }
    Ok(Chunk { offset, data: gathered.finish().0, eof, end: None, place })
}
