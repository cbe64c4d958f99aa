//! Memory for results, from the share of the caller's address. A client that does not read its results holds
//! memory of its own share (I6).
//!
//! *Buffers.* Memory from here belongs to the results. It is released when they have left or their connection
//! is gone.
//!
//! *Errors.* A caller that finds the share or the domain used up waits for [`BUFFER_WAIT`], and then gets no
//! memory.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, PoolExhausted, ProtectionDomain, Reserved};
use rpcrdma_xdr::{Piece, Stream};

use super::{BUFFER_WAIT, Shared};

/// Alignment of buffers, in bytes: a cache line.
const BUFFER_ALIGN: usize = 64;

/// Memory for results of yet unknown length, or for data kept elsewhere.
#[derive(Debug)]
pub(crate) struct Room {
    domain: ProtectionDomain,
    reserved: Reserved,
}

/// A value that is mostly available at once. A future that has to wait is boxed, so that the futures of other
/// calls stay small.
pub(crate) enum Soon<T> {
    /// The value is available. Must not be polled again.
    Now(Option<T>),
    /// The value will be available later.
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Only the content of the box is pinned.
impl<T> Unpin for Soon<T> {}

impl<T> Future for Soon<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            Self::Now(there) => there.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(waits) => waits.as_mut().poll(cx),
        }
    }
}

impl Shared {
    /// Returns a buffer of `length` bytes.
    pub(super) fn buffer(&self, peer: Option<IpAddr>, length: usize) -> Soon<Option<Buffer>> {
        if length == 0 {
            return Soon::Now(Some(Some(Buffer::adopt(Vec::new()))));
        }
        obtain(self.shares.of(peer), length, move |domain| domain.allocate(length, BUFFER_ALIGN))
    }

    /// Returns memory for results of up to `length` bytes.
    pub(crate) fn room(&self, peer: Option<IpAddr>, length: usize) -> Soon<Option<Room>> {
        let take = move |domain: &ProtectionDomain| {
            domain.reserve(length).map(|reserved| Room { domain: domain.clone(), reserved })
        };
        obtain(self.shares.of(peer), length, take)
    }
}

/// Allocates `length` bytes of `domain`; waits if there are none.
fn obtain<T: Send + 'static>(
    domain: ProtectionDomain,
    length: usize,
    take: impl Fn(&ProtectionDomain) -> Result<T, PoolExhausted> + Send + 'static,
) -> Soon<Option<T>> {
    match take(&domain) {
        Ok(taken) => return Soon::Now(Some(Some(taken))),
        Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {}
        Err(error) => {
            tracing::error!(%error, "a share of the server's memory cannot hold the results of one call");
            return Soon::Now(Some(None));
        }
    }
    let mut line = domain.wait();
    let wait = async move {
        loop {
            poll_fn(|context| line.poll(context, ProtectionDomain::room_for(length))).await;
            if let Ok(taken) = take(&domain) {
                return taken;
            }
        }
    };
    Soon::Later(Box::pin(async { tokio::time::timeout(BUFFER_WAIT, wait).await.ok() }))
}

impl Room {
    /// Copies bytes into this memory, whose size they do not exceed.
    pub(crate) fn hold(self, bytes: &[u8]) -> Option<Bytes> {
        // Few bytes in a large buffer would hold more memory than necessary.
        let mut buffer = match self.domain.allocate(bytes.len(), BUFFER_ALIGN) {
            Ok(buffer) => buffer,
            Err(_) => self.reserved.into_buffer(),
        };
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        buffer.truncate(bytes.len());
        Some(buffer.freeze())
    }

    /// Copies encoded results into this memory. If they are longer, their first bytes stay outside.
    pub(crate) fn keep(self, results: &Stream) -> Stream {
        let (bytes, _) = results.flatten();
        let head = bytes.len().saturating_sub(self.reserved.len()).next_multiple_of(4).min(bytes.len());
        let body = bytes.slice(head..);
        // Short results in a large buffer would hold more memory than necessary.
        let mut buffer = match self.domain.allocate(body.len(), BUFFER_ALIGN) {
            Ok(buffer) => buffer,
            Err(_) => self.reserved.into_buffer(),
        };
        buffer.truncate(body.len());
        buffer.copy_from_slice(&body);
        let mut kept = Stream::new();
        kept.push(Piece::Inline(bytes.slice(..head)));
        kept.push(Piece::Inline(buffer.freeze()));
        kept
    }
}
