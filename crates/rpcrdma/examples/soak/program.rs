//! The RPC program of the soak test. All data is a part of one block that both sides make, so each side can check it;
//! checksums go with the data.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use rpcrdma::{Bounds, CallContext, CallFailure, Client, PeerShares, ServerMonitor};
use rpcrdma_xdr::Xdr;

use crate::Failure;

rpcrdma::program! {
    /// The procedures of the soak test.
    pub(crate) mod soak {
        program 0x2000_50a6, version 1;
        /// Returns its argument; long arguments travel in long messages.
        fn echo = 1, Echo(Data) -> Data, Idempotent, bounds = |data| Bounds::inline(data.0.len() + 8);
        /// Takes data, and returns its CRC32C.
        fn put = 2, Put(Piece) -> u32, Data;
        /// Returns data, and its CRC32C.
        fn get = 3, Get(Wanted) -> Found, Idempotent, bounds = |wanted| Bounds::inline(8).item(size(wanted.1));
        /// Increments the counter of this number, and returns it. It stands for CREATE, REMOVE and RENAME, as PUT does for
        /// WRITE.
        fn add = 4, Add(u32) -> u32, State;
        /// Returns the counter of this number.
        fn counter = 5, Counter(u32) -> u32, Idempotent;
        /// Returns the server's state.
        fn state = 6, Look() -> State, Idempotent;
    }
}

/// Longest data, in bytes.
pub(crate) const MAX: usize = 1 << 20;
/// Offsets in the block are below this number of bytes.
pub(crate) const OFFSETS: u32 = 4096;
/// Number of counters of a server.
pub(crate) const COUNTERS: usize = 1024;

#[derive(Xdr)]
pub(crate) struct Data(#[xdr(max = MAX)] Bytes);

/// Data, and its offset in the block.
#[derive(Xdr)]
pub(crate) struct Piece(u32, #[xdr(ddp, max = MAX)] Bytes);

/// Offset in the block, and length.
#[derive(Xdr)]
pub(crate) struct Wanted(u32, u32);

/// Data, and its CRC32C.
#[derive(Xdr)]
pub(crate) struct Found(#[xdr(ddp, max = MAX)] Bytes, u32);

/// The state of a server.
#[derive(Xdr, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Connections now.
    pub(crate) connections: u32,
    /// Bytes of its pool in use.
    pub(crate) memory: u64,
    /// Calls so far.
    pub(crate) calls: u64,
    /// Connections so far.
    pub(crate) accepted: u64,
    /// Retransmissions that the reply cache answered.
    pub(crate) repeats: u64,
    /// Replies that the cache knows to be received.
    pub(crate) proven: u64,
    /// Replies that the cache dropped too early.
    pub(crate) evicted: u64,
    /// Bytes that the cache takes.
    pub(crate) cache: u64,
}

/// Returns the block that all data is a part of.
pub(crate) fn block() -> Bytes {
    let length = MAX + usize::try_from(OFFSETS).unwrap_or_default();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_be_bytes).take(length).collect()
}

/// Returns a number of bytes, or of a counter.
fn size(word: u32) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

fn part(block: &Bytes, offset: u32, length: usize) -> Option<Bytes> {
    let start = size(offset);
    let end = start.checked_add(length)?;
    (end <= block.len()).then(|| block.slice(start..end))
}

pub(crate) struct Service {
    block: Bytes,
    shares: PeerShares,
    counters: Vec<AtomicU32>,
    monitor: OnceLock<ServerMonitor>,
}

impl Service {
    pub(crate) fn new(shares: PeerShares) -> Self {
        let counters = (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        Self { block: block(), shares, counters, monitor: OnceLock::new() }
    }

    /// Sets the server that serves this program.
    pub(crate) fn watch(&self, monitor: ServerMonitor) {
        // There is only one server, so the cell is empty.
        let _ = self.monitor.set(monitor);
    }

    fn at(&self, counter: u32) -> Result<&AtomicU32, CallFailure> {
        self.counters.get(size(counter)).ok_or(CallFailure::SystemError)
    }
}

impl soak::Service for Service {
    async fn echo(&self, _: &CallContext, data: Data) -> Result<Data, CallFailure> {
        Ok(data)
    }

    async fn put(&self, _: &CallContext, Piece(offset, data): Piece) -> Result<u32, CallFailure> {
        if part(&self.block, offset, data.len()).as_ref() != Some(&data) {
            return Err(CallFailure::SystemError);
        }
        Ok(crc32c::crc32c(&data))
    }

    async fn get(&self, context: &CallContext, wanted: Wanted) -> Result<Found, CallFailure> {
        let Wanted(offset, length) = wanted;
        let data = part(&self.block, offset, size(length)).ok_or(CallFailure::SystemError)?;
        // From the pool, as in a file server.
        let share = self.shares.of(context.peer.map(|peer| peer.ip()));
        let data = match share.allocate(data.len(), 1) {
            Ok(mut buffer) => {
                buffer.copy_from_slice(&data);
                buffer.freeze()
            }
            Err(_) => data,
        };
        let crc = crc32c::crc32c(&data);
        Ok(Found(data, crc))
    }

    async fn add(&self, _: &CallContext, counter: u32) -> Result<u32, CallFailure> {
        Ok(self.at(counter)?.fetch_add(1, Ordering::SeqCst).wrapping_add(1))
    }

    async fn counter(&self, _: &CallContext, counter: u32) -> Result<u32, CallFailure> {
        Ok(self.at(counter)?.load(Ordering::SeqCst))
    }

    async fn state(&self, _: &CallContext) -> Result<State, CallFailure> {
        let stats = self.monitor.get().ok_or(CallFailure::SystemError)?.stats();
        Ok(State {
            connections: u32::try_from(stats.connections).unwrap_or(u32::MAX),
            memory: u64::try_from(stats.memory_in_use).unwrap_or(u64::MAX),
            calls: stats.calls,
            accepted: stats.accepted,
            repeats: stats.reply_cache.replayed + stats.reply_cache.waited,
            proven: stats.reply_cache.proven,
            evicted: stats.reply_cache.evicted,
            cache: u64::try_from(stats.reply_cache_memory).unwrap_or(u64::MAX),
        })
    }
}

/// The client's side: makes calls and checks their replies.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) block: Bytes,
}

impl Caller {
    fn part(&self, offset: u32, length: usize) -> Result<Bytes, Failure> {
        Ok(part(&self.block, offset, length).ok_or("beyond the block")?)
    }

    pub(crate) async fn null(&self) -> Result<(), Failure> {
        self.client.null(soak::PROGRAM, soak::VERSION).await?;
        Ok(())
    }

    pub(crate) async fn echo(&self, offset: u32, length: usize) -> Result<(), Failure> {
        let data = Data(self.part(offset, length)?);
        let Data(back) = self.client.call::<soak::Echo>(&data).await?;
        if back == data.0 { Ok(()) } else { Err("ECHO returned other data".into()) }
    }

    pub(crate) async fn put(&self, offset: u32, length: usize) -> Result<(), Failure> {
        let piece = Piece(offset, self.part(offset, length)?);
        let crc = self.client.call::<soak::Put>(&piece).await?;
        if crc == crc32c::crc32c(&piece.1) { Ok(()) } else { Err("PUT delivered other data".into()) }
    }

    pub(crate) async fn get(&self, offset: u32, length: usize) -> Result<(), Failure> {
        let wanted = Wanted(offset, u32::try_from(length)?);
        let Found(data, crc) = self.client.call::<soak::Get>(wanted).await?;
        let right = data == self.part(offset, length)? && crc == crc32c::crc32c(&data);
        if right { Ok(()) } else { Err("GET returned other data".into()) }
    }

    pub(crate) async fn add(&self, counter: u32) -> Result<u32, Failure> {
        Ok(self.client.call::<soak::Add>(counter).await?)
    }

    pub(crate) async fn counter(&self, counter: u32) -> Result<u32, Failure> {
        Ok(self.client.call::<soak::Counter>(counter).await?)
    }

    pub(crate) async fn state(&self) -> Result<State, Failure> {
        Ok(self.client.call::<soak::Look>(()).await?)
    }
}
