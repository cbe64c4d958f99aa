//! [`Configurator`]: the server's side of one connection.
//!
//! The first part of a call's way is that of any call: RPCSEC_GSS in the contexts of all the server's callers, then a
//! dispatcher.
//!
//! *Errors.* A call that cannot be served gets the error reply that RFC 5531 has for it; an earlier agreement stays in
//! effect.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rpcrdma_oncrpc::auth::flavor::{AUTH_NONE, AUTH_SYS, RPCSEC_GSS};
use rpcrdma_oncrpc::{CallContext, CallFailure, Dispatcher, Outcome, Peer};
use rpcrdma_proto::{Agreement, BASIC_INLINE, Config, Connection};
use rpcrdma_verbs::{Capabilities, RECEIVE_ALIGN};
use rpcrdma_xdr::{Bounded as _, DecodeError, Decoder};

use super::{CcpServer, ConfigReply, ConfigRequest, rdmaconfig, size, word};
use crate::programs::{self, Dispatch};
use crate::secured::{Gss, SecuredCall};

/// The server's side of CONF_RDMA, on one connection.
pub struct Configurator {
    dispatcher: Arc<Dispatcher>,
    /// Contexts of callers, if RPCSEC_GSS is served.
    gss: Option<Gss>,
    negotiation: Arc<Mutex<Negotiation>>,
}

/// The limits of the connection, and the progress of the negotiation.
#[derive(Debug)]
struct Negotiation {
    /// Longest Call that can be agreed, in bytes; at least [`BASIC_INLINE`].
    longest_call: usize,
    reads: u32,
    /// Alignment of RDMA_MSGP in our Receives, in bytes; 1 if we take none.
    align: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No call has come yet.
    Fresh,
    /// Question and answer, with the agreement until the connection has taken it.
    Agreed(ConfigRequest, ConfigReply, Option<Agreement>),
    /// Other calls have come.
    Late,
}

impl Configurator {
    /// Creates the state for a connection that was just made.
    pub fn new(
        settings: CcpServer,
        connection: &Connection,
        protocol: &Config,
        capabilities: &Capabilities,
    ) -> Self {
        let negotiation = Negotiation {
            longest_call: connection.agreeable().receive,
            reads: capabilities.ird.into(),
            align: if protocol.honours_padding() { word(RECEIVE_ALIGN) } else { 1 },
            state: State::Fresh,
        };
        let negotiation = Arc::new(Mutex::new(negotiation));
        let mut dispatcher = Dispatcher::new(Arc::default());
        let program = RdmaConfig { negotiation: Arc::clone(&negotiation), settings };
        // The first program of a dispatcher is never refused.
        let registered = dispatcher.register(Arc::new(rdmaconfig::serve(program)));
        debug_assert_eq!(registered, Ok(()));
        Self { dispatcher: Arc::new(dispatcher), gss: None, negotiation }
    }

    /// Serves callers in these contexts too.
    pub(crate) fn with_gss(mut self, gss: Option<Gss>) -> Self {
        self.gss = gss;
        self
    }

    /// Returns whether a message is for this program; takes notice of any other message.
    pub(crate) fn takes(&self, message: &Decoder) -> bool {
        let mut header = message.clone();
        // RFC 5531 §9: XID, message type, RPC version, program.
        let [_, _, _, program] = [(); 4].map(|()| header.u32().unwrap_or_default());
        if program == rdmaconfig::PROGRAM {
            return true;
        }
        let mut negotiation = lock(&self.negotiation);
        if matches!(negotiation.state, State::Fresh)
            && !SecuredCall::read(message).is_some_and(|call| call.creates_context())
        {
            negotiation.state = State::Late;
        }
        false
    }

    /// Serves a message for this program.
    pub(crate) fn dispatch(&self, peer: Peer, message: Decoder, now: Instant) -> Dispatch {
        // The answer does not depend on the caller, so nobody is claimed to be a user of this machine.
        let peer = Peer { owner: None, ..peer };
        programs::dispatch(&self.dispatcher, self.gss.as_ref(), peer, message, now, None)
    }

    /// Serves a message for this program if it needs no context; takes notice of any other message.
    pub fn serve(&self, peer: Peer, message: &Decoder, now: Instant) -> Option<Outcome> {
        self.takes(message).then(|| {
            let mut served = self.dispatch(peer, message.clone(), now);
            match Pin::new(&mut served).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready((outcome, _)) => outcome,
                Poll::Pending => Outcome::Drop,
            }
        })
    }

    /// Takes the agreement, which the connection must apply before the answer leaves.
    pub fn take_agreed(&self) -> Option<Agreement> {
        match &mut lock(&self.negotiation).state {
            State::Agreed(_, _, agreement) => agreement.take(),
            State::Fresh | State::Late => None,
        }
    }
}

fn lock(negotiation: &Mutex<Negotiation>) -> MutexGuard<'_, Negotiation> {
    // A state is only replaced as a whole, so a panic leaves it consistent.
    negotiation.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Negotiation {
    fn answer(&mut self, request: ConfigRequest) -> Result<ConfigReply, CallFailure> {
        // RFC 5666 §6.1: every connection takes 1 KiB.
        if size(request.max_reply_send_size) < BASIC_INLINE {
            let reason = "Replies of less than 1024 bytes (RFC 5666 §6.1)";
            return Err(DecodeError::Invalid { position: ConfigRequest::MAX_LEN, reason }.into());
        }
        match &self.state {
            State::Agreed(before, reply, _) if *before == request => return Ok(*reply),
            State::Agreed(before, ..) => {
                tracing::warn!(?request, ?before, "CONF_RDMA refused: something else was agreed");
                return Err(CallFailure::SystemError);
            }
            State::Late => {
                tracing::warn!(?request, "CONF_RDMA refused: other calls came before it (RFC 5666 §6.1)");
                return Err(CallFailure::SystemError);
            }
            State::Fresh => {}
        }
        // "The server MAY return a value that is smaller or larger than the client's request": here never less than the
        // basic level. It is no more than the request either, so that our Receives need not hold more.
        let longest_call = size(request.max_call_send_size).clamp(BASIC_INLINE, self.longest_call);
        let reply = ConfigReply {
            max_call_send_size: word(longest_call),
            align: self.align,
            max_rdma_read: self.reads,
        };
        let agreement = Agreement {
            call_size: longest_call,
            reply_size: size(request.max_reply_send_size),
            client_reads: request.max_rdma_read,
            server_reads: self.reads,
            align: reply.align,
        };
        self.state = State::Agreed(request, reply, Some(agreement));
        Ok(reply)
    }
}

/// The program `rdmaconfig` on one connection.
struct RdmaConfig {
    negotiation: Arc<Mutex<Negotiation>>,
    settings: CcpServer,
}

impl rdmaconfig::Service for RdmaConfig {
    async fn conf_rdma(&self, _: &CallContext, request: ConfigRequest) -> Result<ConfigReply, CallFailure> {
        lock(&self.negotiation).answer(request)
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        matches!(flavor, AUTH_NONE | AUTH_SYS | RPCSEC_GSS)
    }

    fn requires_integrity(&self, _: u32) -> bool {
        self.settings == CcpServer::Protected
    }
}

#[cfg(test)]
mod tests;
