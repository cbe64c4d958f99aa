//! RPC program whose calls and replies have the length, and the eligibility for placement, that a caller asks
//! for.

use std::future::{Future as _, poll_fn};
use std::ops::RangeInclusive;
use std::task::Poll;

use bytes::Bytes;
use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, Effect, Eligibility, ProcedureInfo, Program,
    ResponseFuture, Sink,
};
use rpcrdma_verbs::{PoolExhausted, ProtectionDomain};
use rpcrdma_xdr::{Decoder, EncodeError, Encoder, Stream};

/// Number of the program, from the range for users (RFC 5531 §8.3).
pub(super) const PROGRAM: u32 = 0x2000_4a7f;
pub(super) const VERSION: u32 = 1;
/// Procedure that takes eligible data.
const PUT: u32 = 1;
/// Procedure that returns eligible data of the length asked for.
const GET: u32 = 2;
/// Procedure that takes data that is not eligible.
const TELL: u32 = 3;
/// Procedure that returns data that is not eligible, of the length asked for.
const ASK: u32 = 4;
/// Most bytes of data in a Call or a reply.
pub(super) const MAX: usize = 1 << 20;

/// An operation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A short Call and a short reply.
    Small,
    /// This many short Calls at once.
    Several(usize),
    /// A Call with this many bytes of a DDP-eligible argument, like NFS WRITE.
    Put(usize),
    /// A reply with this many bytes of a DDP-eligible result, like NFS READ.
    Get(usize),
    /// A Call with this many bytes that are not eligible.
    LongCall(usize),
    /// A reply with this many bytes that are not eligible.
    LongReply(usize),
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Small => "small call, small reply",
            Self::Several(_) => "8 small calls at once",
            Self::Put(_) => "call with placed data (WRITE)",
            Self::Get(_) => "reply with placed data (READ)",
            Self::LongCall(_) => "long call",
            Self::LongReply(_) => "long reply",
        }
    }
}

/// The program. All replies share the same data, so a call makes and keeps none.
#[derive(Debug)]
pub(super) struct Transfers {
    data: Bytes,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { data: vec![0x5a; MAX].into() }
    }
}

impl Transfers {
    /// Returns the program with its data in memory of this pool, which an adapter registers once.
    pub(super) fn in_pool(domain: &ProtectionDomain) -> Result<Self, PoolExhausted> {
        Ok(Self { data: pooled(domain, MAX)? })
    }

    fn serve(&self, procedure: u32, mut arguments: Decoder) -> Result<Stream, CallFailure> {
        let mut results = Encoder::new();
        match procedure {
            PUT => drop(arguments.payload_slices(MAX)?),
            TELL => drop(arguments.opaque(MAX)?),
            _ => {
                let len = usize::try_from(arguments.u32()?).unwrap_or(usize::MAX).min(MAX);
                results.payload(self.data.slice(..len.min(self.data.len())), MAX, procedure == GET)?;
            }
        }
        arguments.finish()?;
        Ok(results.finish())
    }
}

impl Program for Transfers {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "PUT", "GET", "TELL", "ASK"].get(usize::try_from(procedure).ok()?)?;
        Some(ProcedureInfo { name, effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(std::future::ready(self.serve(context.procedure, arguments)))
    }
}

impl Binding for Transfers {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: usize::from(procedure == PUT), results: usize::from(procedure == GET) }
    }
}

/// Returns data in memory of this pool.
pub(super) fn pooled(domain: &ProtectionDomain, len: usize) -> Result<Bytes, PoolExhausted> {
    let mut buffer = domain.allocate(len, 4096)?;
    buffer.fill(0x5a);
    Ok(buffer.freeze())
}

fn call(procedure: u32, name: &'static str) -> Call {
    Call::new(PROGRAM, VERSION, procedure).name(name)
}

fn length(len: usize) -> Stream {
    let mut arguments = Encoder::new();
    arguments.u32(u32::try_from(len).unwrap_or(u32::MAX));
    arguments.finish()
}

/// Returns a call that brings this data to the server, where it is DDP-eligible.
pub(super) fn put(data: Bytes) -> Result<Call, EncodeError> {
    let mut arguments = Encoder::new();
    arguments.payload(data, MAX, true)?;
    Ok(call(PUT, "PUT").arguments(arguments.finish()))
}

/// Returns a call for this many bytes of DDP-eligible data.
pub(super) fn get(len: usize) -> Call {
    call(GET, "GET").arguments(length(len)).results(4).sink(Sink::Pool(len))
}

/// Returns a call that brings this data to the server, where it is not eligible.
pub(super) fn tell(data: Bytes) -> Result<Call, EncodeError> {
    let mut arguments = Encoder::new();
    arguments.payload(data, MAX, false)?;
    Ok(call(TELL, "TELL").arguments(arguments.finish()))
}

/// Returns a call for this many bytes of data that is not eligible.
pub(super) fn ask(len: usize) -> Call {
    call(ASK, "ASK").arguments(length(len)).results(len.saturating_add(8))
}

/// Carries an operation out.
pub(super) async fn carry_out(client: &Client, operation: Operation) -> Result<(), CallError> {
    let call = match operation {
        Operation::Small => return client.null(PROGRAM, VERSION).await.map(drop),
        Operation::Several(count) => return several(client, count).await,
        Operation::Put(len) => put(vec![0x5a; len].into())?,
        Operation::Get(len) => get(len),
        Operation::LongCall(len) => tell(vec![0x5a; len].into())?,
        Operation::LongReply(len) => ask(len),
    };
    client.call_raw(call).await.map(drop)
}

/// Makes several calls at once and waits for all replies.
async fn several(client: &Client, count: usize) -> Result<(), CallError> {
    let mut calls: Vec<_> = (0..count).map(|_| Box::pin(client.null(PROGRAM, VERSION))).collect();
    poll_fn(|cx| {
        let mut error = None;
        calls.retain_mut(|call| match call.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                error = error.take().or(result.err());
                false
            }
        });
        match error {
            Some(error) => Poll::Ready(Err(error)),
            None if calls.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
