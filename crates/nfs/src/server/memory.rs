//! Memory for results, from the share of the caller's address: what a client does not take, it holds of its own (I6).
//!
//! *Who owns which buffer.* What is had here belongs to the results, and goes back when they have left or their connection is
//! gone.
//!
//! *What happens on error.* Who finds the share or the domain used up waits for [`BUFFER_WAIT`], then has none.

use std::future::poll_fn;
use std::net::IpAddr;

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, PoolExhausted, ProtectionDomain, Reserved};
use rpcrdma_xdr::{Piece, Stream};

use super::{BUFFER_WAIT, Shared};

/// Alignment of buffers, in octets: a cache line.
const BUFFER_ALIGN: usize = 64;

/// Room for results whose length is not known yet.
pub(crate) struct Room {
    domain: ProtectionDomain,
    reserved: Reserved,
}

impl Shared {
    /// A buffer of `length` octets.
    pub(super) async fn buffer(&self, peer: Option<IpAddr>, length: usize) -> Option<Buffer> {
        if length == 0 {
            return Some(Buffer::adopt(Vec::new()));
        }
        obtain(&self.shares.of(peer), length, |domain| domain.allocate(length, BUFFER_ALIGN)).await
    }

    /// Room for results of up to `length` octets.
    pub(crate) async fn room(&self, peer: Option<IpAddr>, length: usize) -> Option<Room> {
        let domain = self.shares.of(peer);
        let reserved = obtain(&domain, length, |domain| domain.reserve(length)).await?;
        Some(Room { domain, reserved })
    }
}

/// Takes memory of `domain` for `length` octets; waits when there is none.
async fn obtain<T>(
    domain: &ProtectionDomain,
    length: usize,
    take: impl Fn(&ProtectionDomain) -> Result<T, PoolExhausted>,
) -> Option<T> {
    match take(domain) {
        Ok(taken) => return Some(taken),
        Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {}
        Err(error) => {
            tracing::error!(%error, "a share of the server's memory cannot hold the results of one call");
            return None;
        }
    }
    let mut line = domain.wait();
    let wait = async {
        loop {
            poll_fn(|context| line.poll(context, ProtectionDomain::room_for(length))).await;
            if let Ok(taken) = take(domain) {
                return taken;
            }
        }
    };
    tokio::time::timeout(BUFFER_WAIT, wait).await.ok()
}

impl Room {
    /// Moves octets here; they are not more than the room is for. One copy.
    pub(crate) fn hold(self, octets: &[u8]) -> Option<Bytes> {
        // Few octets in a room for many would hold more than they are.
        let mut buffer = match self.domain.allocate(octets.len(), BUFFER_ALIGN) {
            Ok(buffer) => buffer,
            Err(_) => self.reserved.into_buffer(),
        };
        buffer.get_mut(..octets.len())?.copy_from_slice(octets);
        buffer.truncate(octets.len());
        Some(buffer.freeze())
    }

    /// Moves encoded results here, but for a head of a few octets if they are longer than the room. One copy.
    pub(crate) fn keep(self, results: &Stream) -> Stream {
        let (octets, _) = results.flatten();
        let head = octets.len().saturating_sub(self.reserved.len()).next_multiple_of(4).min(octets.len());
        let body = octets.slice(head..);
        // Short results in a room for long ones would hold more than they are.
        let mut buffer = match self.domain.allocate(body.len(), BUFFER_ALIGN) {
            Ok(buffer) => buffer,
            Err(_) => self.reserved.into_buffer(),
        };
        buffer.truncate(body.len());
        buffer.copy_from_slice(&body);
        let mut kept = Stream::new();
        kept.push(Piece::Inline(octets.slice(..head)));
        kept.push(Piece::Inline(buffer.freeze()));
        kept
    }
}
