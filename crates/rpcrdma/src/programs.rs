//! [`Programs`]: the programs that one end of a connection serves, with the reply cache that their calls pass.
//!
//! A server uses this type for all its connections, RDMA and TCP, and a client for its own (RFC 8167). So there is one
//! way from a received call to its reply.
//!
//! *Errors.* Every fault of a call becomes an [`Outcome`](rpcrdma_oncrpc::Outcome).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rpcrdma_oncrpc::gss::GssServer;
use rpcrdma_oncrpc::{
    CacheCounters, CacheKey, CacheLimits, DispatchFuture, Dispatcher, InterceptService, Outcome, Overseer,
    Peer, Program, RegisterError, ReplyCache, ReplyWindow,
};
use rpcrdma_proto::{Binding, BindingTable};
use rpcrdma_xdr::Decoder;

use crate::handlers::Handler;
use crate::overseer::Oversees;
use crate::registry::Record;
use crate::secured::{Gss, SECURED_ROOM, SecuredCall};
use crate::shed::{ShedLimits, ShedStats};

/// The code around the calls of programs.
#[derive(Default)]
pub(crate) struct Around {
    /// The outermost first.
    pub(crate) interceptors: Vec<Arc<dyn InterceptService>>,
    pub(crate) limits: Option<ShedLimits>,
    /// Time of a call from which on the log has a line for it.
    pub(crate) slow: Option<Duration>,
}

/// Programs that are served together.
pub(crate) struct Programs {
    dispatcher: Arc<Dispatcher>,
    served: Vec<Arc<dyn Binding>>,
    overseer: Arc<Oversees>,
    /// Contexts of callers, if RPCSEC_GSS is served.
    gss: Option<Gss>,
}

impl Programs {
    pub(crate) fn new(
        served: Vec<Arc<dyn Binding>>,
        Around { interceptors, limits, slow }: Around,
        cache: CacheLimits,
    ) -> Result<Self, RegisterError> {
        let mut dispatcher = Dispatcher::new(Arc::new(ReplyCache::new(cache)));
        for program in &served {
            dispatcher.register(Arc::clone(program) as Arc<dyn Program>)?;
        }
        for interceptor in interceptors {
            dispatcher.intercept(interceptor);
        }
        let overseer = Arc::new(Oversees::new(limits, slow));
        dispatcher.oversee(Arc::clone(&overseer) as Arc<dyn Overseer>);
        Ok(Self { dispatcher: Arc::new(dispatcher), served, overseer, gss: None })
    }

    /// Serves RPCSEC_GSS too.
    pub(crate) fn with_gss(mut self, contexts: Arc<GssServer>) -> Self {
        self.gss = Some(Gss::new(contexts));
        self
    }

    /// Returns which of their arguments and results are DDP-eligible.
    pub(crate) fn bindings(&self) -> BindingTable {
        BindingTable::new(self.served.clone())
    }

    /// Returns the programs.
    pub(crate) fn served(&self) -> &[Arc<dyn Binding>] {
        &self.served
    }

    /// Returns whether there is any program.
    pub(crate) fn serves(&self) -> bool {
        !self.served.is_empty()
    }

    /// Returns the memory that a call may need beside that of a handler and its task, in bytes.
    pub(crate) const fn secured_room(&self) -> usize {
        if self.gss.is_some() { SECURED_ROOM } else { 0 }
    }

    /// Serves one message; see [`Dispatcher::dispatch`]. `record` learns which principal calls.
    pub(crate) fn dispatch(
        &self,
        peer: Peer,
        message: Decoder,
        now: Instant,
        record: Option<&Arc<Record>>,
    ) -> Dispatch {
        dispatch(&self.dispatcher, self.gss.as_ref(), peer, message, now, record)
    }

    /// Returns whether RPCSEC_GSS is served.
    pub(crate) const fn has_contexts(&self) -> bool {
        self.gss.is_some()
    }

    /// Returns the contexts of callers, if RPCSEC_GSS is served.
    pub(crate) fn gss(&self) -> Option<Gss> {
        self.gss.clone()
    }

    /// Returns the window of a new connection in the reply cache.
    pub(crate) fn window(&self) -> ReplyWindow {
        self.dispatcher.cache().window()
    }

    /// Returns the counters of the reply cache.
    pub(crate) fn cache_counters(&self) -> CacheCounters {
        self.dispatcher.cache().counters()
    }

    /// Returns the calls in progress and those shed, if there are limits.
    pub(crate) fn shed_stats(&self) -> ShedStats {
        self.overseer.stats()
    }

    /// Returns the bytes that the replies in the cache count for.
    pub(crate) fn cache_memory(&self) -> usize {
        self.dispatcher.cache().memory()
    }

    /// Returns the procedure's name, for traces; empty if the procedure is not served.
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

/// Serves one message by a dispatcher, after RPCSEC_GSS if the message has it and there are contexts.
pub(crate) fn dispatch(
    dispatcher: &Arc<Dispatcher>,
    gss: Option<&Gss>,
    peer: Peer,
    message: Decoder,
    now: Instant,
    record: Option<&Arc<Record>>,
) -> Dispatch {
    if let Some(gss) = gss
        && let Some(call) = SecuredCall::read(&message)
    {
        let record = record.cloned();
        return Dispatch::Secured(Box::pin(gss.clone().serve(
            Arc::clone(dispatcher),
            peer,
            call,
            now,
            record,
        )));
    }
    Dispatch::Plain(dispatcher.dispatch(peer, message, now))
}

/// The outcome of a call, with the key of its reply if the reply cache has it.
pub(crate) type Dispatched = (Outcome, Option<CacheKey>);

/// A future that resolves to the outcome of a call. Must not be polled after that.
#[expect(
    clippy::large_enum_variant,
    reason = "most calls are plain: a box would cost each of them an allocation"
)]
pub(crate) enum Dispatch {
    Plain(DispatchFuture),
    /// A call of RPCSEC_GSS.
    Secured(Pin<Box<dyn Future<Output = Dispatched> + Send>>),
}

impl Handler for Dispatch {
    fn is_light(&self) -> bool {
        match self {
            Self::Plain(future) => future.is_light(),
            // Protection of results takes time.
            Self::Secured(_) => false,
        }
    }
}

impl Future for Dispatch {
    type Output = Dispatched;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Dispatched> {
        match &mut *self {
            Self::Plain(future) => {
                let outcome = ready!(Pin::new(&mut *future).poll(cx));
                Poll::Ready((outcome, future.key()))
            }
            Self::Secured(future) => future.as_mut().poll(cx),
        }
    }
}
