//! A program for both ends of a connection, which calls the program of the same kind at the other end.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Duration;

use rpcrdma::{
    Backchannel, Binding, Call, CallContext, CallError, CallFailure, ConnectionContext, Effect,
    ProcedureInfo, Program, ResponseFuture,
};
use rpcrdma_xdr::{Decoder, encode};

use super::Caller;

pub const PROGRAM: u32 = 0x2000_00f1;
/// Calls BOUNCE of the other end with an argument less by 1, until that is 0; returns the number of calls.
pub const BOUNCE: u32 = 1;
/// Keeps the caller's backchannel.
pub const SUBSCRIBE: u32 = 2;

#[derive(Default)]
pub struct Bounce {
    pub subscribed: Mutex<Vec<Backchannel>>,
}

pub fn bounce_call(depth: u32) -> Call {
    Call::new(PROGRAM, 1, BOUNCE).name("BOUNCE").arguments(encode(&depth).unwrap()).results(4)
}

pub async fn bounce(caller: &impl Caller, depth: u32) -> Result<u32, CallError> {
    Ok(caller.call_raw(bounce_call(depth).timeout(Duration::from_secs(30))).await?.results.u32()?)
}

pub async fn subscribe(caller: &impl Caller) {
    caller.call_raw(Call::new(PROGRAM, 1, SUBSCRIBE).name("SUBSCRIBE")).await.unwrap();
}

async fn bounced(context: CallContext, depth: u32) -> Result<u32, CallFailure> {
    let Some(less) = depth.checked_sub(1) else { return Ok(0) };
    let back = match (context.backchannel(), context.forechannel()) {
        (Some(backchannel), None) => bounce(&backchannel, less).await,
        (None, Some(client)) => bounce(&client, less).await,
        _ => return Err(CallFailure::ProcedureUnavailable),
    };
    back.map(|times| times + 1).map_err(|_| CallFailure::SystemError)
}

impl Program for Bounce {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "BOUNCE", "SUBSCRIBE"].get(usize::try_from(procedure).unwrap())?;
        Some(ProcedureInfo { name, effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        if context.procedure == SUBSCRIBE {
            self.subscribed.lock().unwrap().extend(context.backchannel());
            return Box::pin(std::future::ready(Ok(Default::default())));
        }
        Box::pin(async move { Ok(encode(&bounced(context, arguments.decode_all()?).await?)?) })
    }
}

impl Binding for Bounce {}
