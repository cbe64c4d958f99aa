//! [`Programs`]: what one end of a connection serves, with the reply cache that its calls pass.
//!
//! The same for a server on all its connections, RDMA and TCP, and for a client on its own (RFC 8167): there is one way from
//! a received call to its reply.
//!
//! *What happens on error.* Every fault of a call becomes an [`Outcome`](rpcrdma_oncrpc::Outcome).

use std::sync::Arc;
use std::time::Instant;

use rpcrdma_oncrpc::{CacheLimits, DispatchFuture, Dispatcher, Peer, Program, RegisterError, ReplyCache};
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
    pub(crate) fn dispatch(&self, peer: Peer, message: Decoder, now: Instant) -> DispatchFuture {
        self.dispatcher.dispatch(peer, message, now)
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
