//! Sources and targets of streams: byte streams here, files in `file`.
//!
//! *Buffers.* A source fills a Buffer that the stream gives it, and gives it back. A target gets the slices of a piece
//! and drops them when they are written.
//!
//! *Errors.* Both report how far they came.

use std::io::{self, ErrorKind, IoSlice};

use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::Payload;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most slices of one vectored write.
const SLICES_MAX: usize = 64;

/// The origin of the bytes that [`send`](super::send) sends: an [`AsyncRead`], or a [`FileAt`](super::FileAt). A `&mut`
/// reference to a reader is a source too, which leaves the reader to its owner.
///
/// A stream of a file begins at its own offset in the file. A reader is read from where it stands, whatever the offset.
pub trait Source: sealed::Fill {}

impl<S: sealed::Fill> Source for S {}

/// The destination of the bytes that [`receive`](super::receive) receives: an [`AsyncWrite`], or a
/// [`FileAt`](super::FileAt). A `&mut` reference to a writer is a target too, which leaves the writer to its owner.
///
/// A stream is written to a file at its own offset. A writer gets the bytes one after the other, and is flushed at the
/// end, but not shut down.
pub trait Target: sealed::Store {}

impl<T: sealed::Store> Target for T {}

pub(super) mod sealed {
    use super::{Buffer, Payload, io};

    pub trait Fill: Send {
        /// Reads at `offset` until the Buffer is full. At the end of the source the Buffer comes back shorter. An error
        /// has the number of bytes read before it.
        fn fill(
            &mut self,
            offset: u64,
            buffer: Buffer,
        ) -> impl Future<Output = Result<Buffer, (usize, io::Error)>> + Send;
    }

    pub trait Store: Send {
        /// Writes all bytes at `offset`. Returns how many were written, and the error that ended the work.
        fn store(
            &mut self,
            offset: u64,
            data: Payload,
        ) -> impl Future<Output = (usize, io::Result<()>)> + Send;

        /// Passes on all that this side still holds.
        fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send;
    }
}

impl<R: AsyncRead + Unpin + Send> sealed::Fill for R {
    async fn fill(&mut self, _: u64, mut buffer: Buffer) -> Result<Buffer, (usize, io::Error)> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest).await {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((filled, error)),
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }
}

impl<W: AsyncWrite + Unpin + Send> sealed::Store for W {
    async fn store(&mut self, _: u64, mut data: Payload) -> (usize, io::Result<()>) {
        let length = data.len();
        while !data.is_empty() {
            let slices: Vec<_> = data.iter().take(SLICES_MAX).map(|slice| IoSlice::new(slice)).collect();
            let written = self.write_vectored(&slices).await;
            drop(slices);
            let error = match written {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(count) => {
                    drop(data.split_to(count));
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return (length - data.len(), Err(error));
        }
        (length, Ok(()))
    }

    async fn flush(&mut self) -> io::Result<()> {
        AsyncWriteExt::flush(self).await
    }
}
