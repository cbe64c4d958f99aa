//! A program for tests, which echoes, stores and counts; and helpers that the tests of all transports share.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
pub use rpcrdma::Caller;
use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Credential, Effect, Eligibility, PeerShares,
    ProcedureInfo, Program, Reply, ResponseFuture, Sink,
};
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_xdr::{Decoder, Encoder, Stream};
use tokio::sync::watch;

pub mod bounce;
pub mod certificates;
pub mod meddler;
pub mod network;
pub mod raw;
pub mod warnings;

pub const PROGRAM: u32 = 0x2000_00f0;
pub const VERSION: u32 = 1;
pub const MAX: usize = 1 << 20;

/// Echoes an opaque that is not eligible: a long opaque makes a long call and a long reply.
pub const ECHO: u32 = 1;
/// Takes an eligible opaque, returns its length and sum.
pub const PUT: u32 = 2;
/// Returns an eligible opaque of the length asked for.
pub const GET: u32 = 3;
/// Increments the counter and returns it: must not be executed twice for one call.
pub const COUNT: u32 = 4;
/// Answers after the given number of milliseconds.
pub const SLEEP: u32 = 5;
/// Panics.
pub const PANIC: u32 = 6;
/// Discards every second call.
pub const DISCARD: u32 = 7;

#[derive(Default)]
pub struct TestProgram {
    /// Executions of COUNT.
    pub count: AtomicU32,
    /// Calls of any procedure.
    pub calls: AtomicUsize,
    /// Milliseconds that COUNT takes: for tests whose clock is virtual.
    pub delay: AtomicU32,
    /// While it is true, answers of COUNT and SLEEP wait: for tests whose clock is real.
    pub held: watch::Sender<bool>,
    /// The source of GET's memory.
    pub shares: Option<PeerShares>,
    /// Credential of the last call.
    pub caller: Mutex<Option<Credential>>,
}

/// Returns a value after a change: settings cannot be written as literals outside of their crate.
pub fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

/// Returns the data of GET.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
}

pub fn sum(data: &[u8]) -> u32 {
    data.iter().fold(0, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)))
}

impl TestProgram {
    fn run(&self, context: &CallContext, mut arguments: Decoder) -> Result<Stream, CallFailure> {
        let earlier = self.calls.fetch_add(1, Ordering::SeqCst);
        *self.caller.lock().unwrap() = Some(context.credential.clone());
        let mut results = Encoder::new();
        match context.procedure {
            ECHO => {
                let data = arguments.opaque(MAX)?;
                arguments.finish()?;
                results.payload(data, MAX, false)?;
            }
            PUT => {
                let data = arguments.payload(MAX)?;
                arguments.finish()?;
                results.u32(u32::try_from(data.len()).unwrap());
                results.u32(sum(&data));
            }
            GET => {
                let length = usize::try_from(arguments.u32()?).unwrap();
                arguments.finish()?;
                let data = match &self.shares {
                    Some(shares) => {
                        let share = shares.of(context.peer.map(|peer| peer.ip()));
                        let mut buffer = share.allocate(length, 1).map_err(|_| CallFailure::SystemError)?;
                        buffer.copy_from_slice(&pattern(length));
                        buffer.freeze()
                    }
                    None => Bytes::from(pattern(length)),
                };
                results.payload(data, MAX, true)?;
            }
            COUNT => {
                arguments.finish()?;
                results.u32(self.count.fetch_add(1, Ordering::SeqCst) + 1);
            }
            SLEEP => results.u32(arguments.u32()?),
            DISCARD if earlier.is_multiple_of(2) => return Err(CallFailure::Discard),
            DISCARD => {}
            _ => panic!("asked to"),
        }
        Ok(results.finish())
    }
}

impl Program for TestProgram {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = ["NULL", "ECHO", "PUT", "GET", "COUNT", "SLEEP", "PANIC", "DISCARD"]
            .get(usize::try_from(procedure).unwrap())?;
        let effect = match procedure {
            PUT => Effect::Data,
            COUNT => Effect::State,
            _ => Effect::Idempotent,
        };
        Some(ProcedureInfo { name, effect })
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        matches!(flavor, flavor::AUTH_NONE | flavor::AUTH_SYS | flavor::RPCSEC_GSS)
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        let delay = match context.procedure {
            SLEEP => u64::from(arguments.clone().u32().unwrap_or(0)),
            COUNT => u64::from(self.delay.load(Ordering::SeqCst)),
            _ => 0,
        };
        let mut held = matches!(context.procedure, COUNT | SLEEP).then(|| self.held.subscribe());
        let result = self.run(&context, arguments);
        Box::pin(async move {
            if let Some(held) = &mut held {
                // An error means that the program is gone, so nobody waits for the answer.
                let _ = held.wait_for(|held| !held).await;
            }
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            result
        })
    }
}

impl Binding for TestProgram {
    fn eligibility(&self, _: u32, procedure: u32) -> Eligibility {
        Eligibility { arguments: usize::from(procedure == PUT), results: usize::from(procedure == GET) }
    }
}

pub fn program() -> Arc<TestProgram> {
    Arc::new(TestProgram::default())
}

pub fn call(procedure: u32) -> Call {
    Call::new(PROGRAM, VERSION, procedure)
}

pub fn echo_call(data: &[u8]) -> Call {
    let mut arguments = Encoder::new();
    arguments.payload(Bytes::copy_from_slice(data), MAX, false).unwrap();
    call(ECHO).name("ECHO").arguments(arguments.finish()).results(data.len() + 8)
}

pub async fn echo(caller: &impl Caller, data: &[u8]) -> Result<Reply, CallError> {
    let mut reply = caller.call_raw(echo_call(data)).await?;
    assert_eq!(&reply.results.opaque(MAX).unwrap()[..], data);
    Ok(reply)
}

pub fn put_call(data: Bytes) -> Call {
    let mut arguments = Encoder::new();
    arguments.payload(data, MAX, true).unwrap();
    call(PUT).name("PUT").arguments(arguments.finish()).results(8)
}

pub async fn put(caller: &impl Caller, data: Bytes) -> Result<Reply, CallError> {
    let expected = (u32::try_from(data.len()).unwrap(), sum(&data));
    let mut reply = caller.call_raw(put_call(data)).await?;
    assert_eq!((reply.results.u32().unwrap(), reply.results.u32().unwrap()), expected);
    Ok(reply)
}

pub fn get_call(length: usize, sink: Sink) -> Call {
    let mut arguments = Encoder::new();
    arguments.u32(u32::try_from(length).unwrap());
    call(GET).name("GET").arguments(arguments.finish()).results(4).sink(sink)
}

pub async fn get(caller: &impl Caller, length: usize) -> Result<Reply, CallError> {
    let mut reply = caller.call_raw(get_call(length, Sink::Pool(length))).await?;
    assert_eq!(reply.results.payload(MAX).unwrap(), pattern(length));
    Ok(reply)
}

pub async fn count(caller: &impl Caller) -> Result<u32, CallError> {
    Ok(caller.call_raw(call(COUNT).name("COUNT").results(4)).await?.results.u32()?)
}

pub fn sleep_call(milliseconds: u32) -> Call {
    let mut arguments = Encoder::new();
    arguments.u32(milliseconds);
    call(SLEEP).name("SLEEP").arguments(arguments.finish()).results(4)
}
