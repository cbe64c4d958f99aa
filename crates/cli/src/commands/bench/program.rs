//! RPC program whose calls and replies have the length, and the eligibility for placement, that a caller asks
//! for.

use std::future::{Future as _, poll_fn};
use std::task::Poll;

use bytes::Bytes;
use rpcrdma::{Bounds, CallContext, CallError, CallFailure, Client};
use rpcrdma_verbs::{PoolExhausted, ProtectionDomain};
use rpcrdma_xdr::{Payload, Xdr};

rpcrdma::program! {
    /// Transfers. The number is from the range for users (RFC 5531 §8.3).
    pub(super) mod transfers {
        program 0x2000_4a7f, version 1;
        /// Takes eligible data.
        fn put = 1, Put(Placed) -> (), Idempotent;
        /// Returns so many bytes of eligible data.
        fn get = 2, Get(u32) -> Placed, Idempotent, bounds = |len| Bounds::inline(4).item(size(*len));
        /// Takes data that is not eligible.
        fn tell = 3, Tell(Carried) -> (), Idempotent;
        /// Returns so many bytes of data that is not eligible.
        fn ask = 4, Ask(u32) -> Carried, Idempotent, bounds = |len| Bounds::inline(size(*len).saturating_add(8));
    }
}

/// Most bytes of data in a Call or a reply.
pub(super) const MAX: usize = 1 << 20;

/// Data that is eligible for placement.
#[derive(Debug, Xdr)]
pub(super) struct Placed(#[xdr(ddp, max = MAX)] pub(super) Payload);

/// Data that is not eligible.
#[derive(Debug, Xdr)]
pub(super) struct Carried(#[xdr(max = MAX)] pub(super) Bytes);

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
pub(super) struct Transfers {
    data: Bytes,
    /// Whether calls are served at the moment.
    open: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { data: vec![0x5a; MAX].into(), open: Box::new(|| true) }
    }
}

impl Transfers {
    /// Returns the program with its data in memory of this pool, which an adapter registers once. It refuses calls while it
    /// is not open. No interceptor does that, because an interceptor would cost each measured call time.
    pub(super) fn in_pool(
        domain: &ProtectionDomain,
        open: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, PoolExhausted> {
        Ok(Self { data: pooled(domain, MAX)?, open: Box::new(open) })
    }

    /// Returns so many bytes, at most [`MAX`].
    fn data(&self, len: u32) -> Result<Bytes, CallFailure> {
        if (self.open)() {
            Ok(self.data.slice(..size(len).min(self.data.len())))
        } else {
            Err(CallFailure::SystemError)
        }
    }
}

impl transfers::Service for Transfers {
    async fn put(&self, _: &CallContext, _: Placed) -> Result<(), CallFailure> {
        self.data(0).map(drop)
    }

    async fn get(&self, _: &CallContext, len: u32) -> Result<Placed, CallFailure> {
        Ok(Placed(self.data(len)?.into()))
    }

    async fn tell(&self, _: &CallContext, _: Carried) -> Result<(), CallFailure> {
        self.data(0).map(drop)
    }

    async fn ask(&self, _: &CallContext, len: u32) -> Result<Carried, CallFailure> {
        self.data(len).map(Carried)
    }
}

/// Returns data in memory of this pool.
pub(super) fn pooled(domain: &ProtectionDomain, len: usize) -> Result<Bytes, PoolExhausted> {
    let mut buffer = domain.allocate(len, 4096)?;
    buffer.fill(0x5a);
    Ok(buffer.freeze())
}

/// Returns a length of data as it travels.
pub(super) fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn size(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Carries an operation out.
pub(super) async fn carry_out(client: &Client, operation: Operation) -> Result<(), CallError> {
    let calls = transfers::Client::new(client);
    match operation {
        Operation::Small => null(client).await,
        Operation::Several(count) => several(client, count).await,
        Operation::Put(len) => calls.put(Placed(vec![0x5a; len].into())).await,
        Operation::Get(len) => calls.get(word(len)).await.map(drop),
        Operation::LongCall(len) => calls.tell(Carried(vec![0x5a; len].into())).await,
        Operation::LongReply(len) => calls.ask(word(len)).await.map(drop),
    }
}

/// Makes a call without arguments and results.
pub(super) async fn null(client: &Client) -> Result<(), CallError> {
    client.null(transfers::PROGRAM, transfers::VERSION).await.map(drop)
}

/// Makes several calls at once and waits for all replies.
async fn several(client: &Client, count: usize) -> Result<(), CallError> {
    let mut calls: Vec<_> = (0..count).map(|_| Box::pin(null(client))).collect();
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
