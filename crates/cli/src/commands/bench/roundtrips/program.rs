//! RPC program whose calls and replies have the length, and the eligibility for placement, that a caller asks
//! for.

use std::future::{Future as _, poll_fn};
use std::ops::RangeInclusive;
use std::task::Poll;

use bytes::Bytes;
use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, Effect, Eligibility, Procedure, Program,
    ResponseFuture, Sink,
};
use rpcrdma_xdr::{Decoder, Encoder, Stream};

use super::mechanisms::Operation;

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
/// Most bytes of data.
const MAX: usize = 16 << 20;

#[derive(Debug)]
pub(in crate::commands::bench) struct Transfers;

impl Transfers {
    fn serve(procedure: u32, mut arguments: Decoder) -> Result<Stream, CallFailure> {
        let mut results = Encoder::new();
        match procedure {
            PUT => drop(arguments.payload(MAX)?),
            TELL => drop(arguments.opaque(MAX)?),
            _ => {
                let len = usize::try_from(arguments.u32()?).unwrap_or(usize::MAX).min(MAX);
                results.payload(Bytes::from(vec![0x5a; len]), MAX, procedure == GET)?;
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

    fn procedure(&self, _: u32, procedure: u32) -> Option<Procedure> {
        let name = ["NULL", "PUT", "GET", "TELL", "ASK"].get(usize::try_from(procedure).ok()?)?;
        Some(Procedure { name, effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(std::future::ready(Self::serve(context.procedure, arguments)))
    }
}

impl Binding for Transfers {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: usize::from(procedure == PUT), results: usize::from(procedure == GET) }
    }
}

/// Carries an operation out.
pub(in crate::commands::bench) async fn carry_out(
    client: &Client,
    operation: Operation,
) -> Result<(), CallError> {
    let call = |procedure| Call::new(PROGRAM, VERSION, procedure);
    let data = |len: usize, eligible| {
        let mut arguments = Encoder::new();
        arguments.payload(Bytes::from(vec![0x5a; len]), MAX, eligible)?;
        Ok::<_, CallError>(arguments.finish())
    };
    let length = |len: usize| {
        let mut arguments = Encoder::new();
        arguments.u32(u32::try_from(len).unwrap_or(u32::MAX));
        arguments.finish()
    };
    let call = match operation {
        Operation::Small => return client.null(PROGRAM, VERSION).await.map(drop),
        Operation::Several(count) => return several(client, count).await,
        Operation::Put(len) => call(PUT).arguments(data(len, true)?),
        Operation::Get(len) => call(GET).arguments(length(len)).results(4).sink(Sink::Pool(len)),
        Operation::LongCall(len) => call(TELL).arguments(data(len, false)?),
        Operation::LongReply(len) => call(ASK).arguments(length(len)).results(len.saturating_add(8)),
    };
    client.call(call).await.map(drop)
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
