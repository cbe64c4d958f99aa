//! [`Programs`]: what one end of a connection serves, with the reply cache that its calls pass.
//!
//! The same for a server on all its connections, RDMA and TCP, and for a client on its own (RFC 8167): there is one way from
//! a received call to its reply.
//!
//! *What happens on error.* Every fault of a call becomes an [`Outcome`](rpcrdma_oncrpc::Outcome).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpcrdma_oncrpc::{
    CacheCounters, CacheKey, CacheLimits, DispatchFuture, Dispatcher, Outcome, Peer, Program, RegisterError,
    ReplyCache, ReplyWindow,
};
use rpcrdma_proto::{Binding, BindingTable};
use rpcrdma_xdr::Decoder;

/// Programs that are served together.
pub(crate) struct Programs {
    dispatcher: Dispatcher,
    served: Vec<Arc<dyn Binding>>,
}

impl Programs {
    pub(crate) fn new(served: Vec<Arc<dyn Binding>>, cache: CacheLimits) -> Result<Self, RegisterError> {
        let mut dispatcher = Dispatcher::new(Arc::new(ReplyCache::new(cache)));
        for program in &served {
            dispatcher.register(Arc::clone(program) as Arc<dyn Program>)?;
        }
        Ok(Self { dispatcher, served })
    }

    /// What is DDP-eligible in them.
    pub(crate) fn bindings(&self) -> BindingTable {
        BindingTable::new(self.served.clone())
    }

    /// Serves one message; see [`Dispatcher::dispatch`].
    pub(crate) fn dispatch(&self, peer: Peer, message: Decoder, now: Instant) -> Dispatch {
        Dispatch(self.dispatcher.dispatch(peer, message, now))
    }

    /// The window of a new connection in the reply cache.
    pub(crate) fn window(&self) -> ReplyWindow {
        self.dispatcher.cache().window()
    }

    /// What the reply cache did.
    pub(crate) fn cache_counters(&self) -> CacheCounters {
        self.dispatcher.cache().counters()
    }

    /// Bytes that the replies in the cache count for.
    pub(crate) fn cache_memory(&self) -> usize {
        self.dispatcher.cache().memory()
    }

    /// The procedure's name, for traces; empty if it is not served.
    pub(crate) fn name(&self, program: u32, version: u32, procedure: u32) -> &'static str {
        let served = self
            .served
            .iter()
            .find(|served| served.number() == program && served.versions().contains(&version));
        match served {
            Some(_) if procedure == 0 => "NULL",
            Some(served) => served.procedure(version, procedure).map_or("", |procedure| procedure.name),
            None => "",
        }
    }
}

/// What becomes of a call, and by what the reply cache knows its reply, if it does.
pub(crate) type Dispatched = (Outcome, Option<CacheKey>);

/// Resolves to what became of a call. Not to be polled after that.
pub(crate) struct Dispatch(DispatchFuture);

impl Future for Dispatch {
    type Output = Dispatched;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Dispatched> {
        let key = self.0.key();
        Pin::new(&mut self.0).poll(cx).map(|outcome| (outcome, key))
    }
}
