//! The RPC program of the soak test. All data is a part of one block that both sides make, so each side can check it;
//! checksums go with the data.

use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use rpcrdma::{
    Binding, Call, CallContext, CallFailure, Client, Effect, Eligibility, PeerShares, ProcedureInfo, Program,
    ResponseFuture, ServerMonitor, Sink,
};
use rpcrdma_xdr::{Decoder, Stream, Xdr, encode};

use crate::Failure;

pub(crate) const SOAK: u32 = 0x2000_50a6;
pub(crate) const VERSION: u32 = 1;
/// Returns its argument; long arguments travel in long messages.
const ECHO: u32 = 1;
/// Data (eligible) and its offset in the block → its CRC32C.
const PUT: u32 = 2;
/// Offset in the block and length → data (eligible), its CRC32C.
const GET: u32 = 3;
/// Number of a counter → that counter, incremented. ADD stands for CREATE, REMOVE and RENAME, as PUT does for WRITE.
const ADD: u32 = 4;
/// Number of a counter → its value.
const COUNTER: u32 = 5;
/// Returns the server's state.
const STATE: u32 = 6;

/// Longest data, in bytes.
pub(crate) const MAX: usize = 1 << 20;
/// Offsets in the block are below this number of bytes.
pub(crate) const OFFSETS: u32 = 4096;
/// Number of counters of a server.
pub(crate) const COUNTERS: usize = 1024;

#[derive(Xdr)]
struct Echo(#[xdr(max = MAX)] Bytes);

#[derive(Xdr)]
struct Put(u32, #[xdr(ddp, max = MAX)] Bytes);

#[derive(Xdr)]
struct Get(u32, u32);

#[derive(Xdr)]
struct Got(#[xdr(ddp, max = MAX)] Bytes, u32);

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

fn part(block: &Bytes, offset: u32, length: usize) -> Option<Bytes> {
    let start = usize::try_from(offset).ok()?;
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

    fn run(&self, context: &CallContext, arguments: Decoder) -> Result<Stream, CallFailure> {
        Ok(match context.procedure {
            ECHO => encode(&arguments.decode_all::<Echo>()?)?,
            PUT => {
                let Put(offset, data) = arguments.decode_all()?;
                if part(&self.block, offset, data.len()) != Some(data.clone()) {
                    return Err(CallFailure::SystemError);
                }
                encode(&crc32c::crc32c(&data))?
            }
            GET => {
                let Get(offset, length) = arguments.decode_all()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let Some(data) = part(&self.block, offset, length) else {
                    return Err(CallFailure::SystemError);
                };
                // From the pool, as in a file server.
                let share = self.shares.of(context.peer.map(|peer| peer.ip()));
                let data = match share.allocate(length, 1) {
                    Ok(mut buffer) => {
                        buffer.copy_from_slice(&data);
                        buffer.freeze()
                    }
                    Err(_) => data,
                };
                let crc = crc32c::crc32c(&data);
                encode(&Got(data, crc))?
            }
            ADD => encode(&(self.counter(arguments)?.fetch_add(1, Ordering::SeqCst).wrapping_add(1)))?,
            COUNTER => encode(&self.counter(arguments)?.load(Ordering::SeqCst))?,
            _ => {
                arguments.finish()?;
                let stats = self.monitor.get().ok_or(CallFailure::SystemError)?.stats();
                encode(&State {
                    connections: u32::try_from(stats.connections).unwrap_or(u32::MAX),
                    memory: u64::try_from(stats.memory_in_use).unwrap_or(u64::MAX),
                    calls: stats.calls,
                    accepted: stats.accepted,
                    repeats: stats.reply_cache.replayed + stats.reply_cache.waited,
                    proven: stats.reply_cache.proven,
                    evicted: stats.reply_cache.evicted,
                    cache: u64::try_from(stats.reply_cache_memory).unwrap_or(u64::MAX),
                })?
            }
        })
    }

    fn counter(&self, arguments: Decoder) -> Result<&AtomicU32, CallFailure> {
        let number: u32 = arguments.decode_all()?;
        let counter = usize::try_from(number).ok().and_then(|number| self.counters.get(number));
        counter.ok_or(CallFailure::SystemError)
    }
}

impl Program for Service {
    fn number(&self) -> u32 {
        SOAK
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn procedure(&self, _version: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "ECHO", "PUT", "GET", "ADD", "COUNTER", "STATE"]
            .get(usize::try_from(procedure).ok()?)?;
        let effect = match procedure {
            PUT => Effect::Data,
            ADD => Effect::State,
            _ => Effect::Idempotent,
        };
        Some(ProcedureInfo { name, effect })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(std::future::ready(self.run(&context, arguments)))
    }
}

impl Binding for Service {
    fn eligibility(&self, _version: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: usize::from(procedure == PUT), results: usize::from(procedure == GET) }
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

    async fn call(&self, call: Call) -> Result<Decoder, Failure> {
        Ok(self.client.call_raw(call).await?.results)
    }

    pub(crate) async fn null(&self) -> Result<(), Failure> {
        self.client.null(SOAK, VERSION).await?;
        Ok(())
    }

    pub(crate) async fn echo(&self, offset: u32, length: usize) -> Result<(), Failure> {
        let data = self.part(offset, length)?;
        let call = Call::new(SOAK, VERSION, ECHO).arguments(encode(&Echo(data.clone()))?).results(length + 8);
        let Echo(back) = self.call(call).await?.decode_all()?;
        if back == data { Ok(()) } else { Err("ECHO returned other data".into()) }
    }

    pub(crate) async fn put(&self, offset: u32, length: usize) -> Result<(), Failure> {
        let data = self.part(offset, length)?;
        let call = Call::new(SOAK, VERSION, PUT).arguments(encode(&Put(offset, data.clone()))?).results(4);
        let crc: u32 = self.call(call).await?.decode_all()?;
        if crc == crc32c::crc32c(&data) { Ok(()) } else { Err("PUT delivered other data".into()) }
    }

    pub(crate) async fn get(&self, offset: u32, length: usize) -> Result<(), Failure> {
        let arguments = encode(&Get(offset, u32::try_from(length)?))?;
        let call = Call::new(SOAK, VERSION, GET).arguments(arguments).results(8).sink(Sink::Pool(length));
        let Got(data, crc) = self.call(call).await?.decode_all()?;
        let right = data == self.part(offset, length)? && crc == crc32c::crc32c(&data);
        if right { Ok(()) } else { Err("GET returned other data".into()) }
    }

    pub(crate) async fn add(&self, counter: u32) -> Result<u32, Failure> {
        self.number(ADD, counter).await
    }

    pub(crate) async fn counter(&self, counter: u32) -> Result<u32, Failure> {
        self.number(COUNTER, counter).await
    }

    async fn number(&self, procedure: u32, counter: u32) -> Result<u32, Failure> {
        let call = Call::new(SOAK, VERSION, procedure).arguments(encode(&counter)?).results(4);
        Ok(self.call(call).await?.decode_all()?)
    }

    pub(crate) async fn state(&self) -> Result<State, Failure> {
        Ok(self.call(Call::new(SOAK, VERSION, STATE).results(60)).await?.decode_all()?)
    }
}
