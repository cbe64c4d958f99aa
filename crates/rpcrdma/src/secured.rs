//! Calls of RPCSEC_GSS at a server (RFC 2203): who makes them, and the protection of arguments and results.
//!
//! The mechanism computes over whole messages and may read files, so its work is done by [`Workers`], unless it is short. A
//! call goes there once to be opened, and once more to have its results protected, if they are. In between it is served like any
//! other. All
//! listeners share the contexts: a client may create one by TCP and use it by RDMA.
//!
//! *Buffers.* Without protection of arguments and results, both stay where they are and may travel in chunks.
//!
//! *Errors.* RFC 2203 §5.3.3 has an answer for each fault of a caller, or none.

use std::sync::Arc;
use std::time::Instant;

use rpcrdma_oncrpc::gss::{
    CreationReply, GssCredential, GssProcedure, GssServer, Incoming, OpenError, Opened, Received, Refusal,
    Sealer,
};
use rpcrdma_oncrpc::{
    AcceptStat, CacheKey, CallHeader, Dispatcher, OpaqueAuth, Origin, Outcome, Peer, RejectReason,
    ReplyHeader, auth,
};
use rpcrdma_xdr::{Decoder, Stream};

use crate::gss::compute;
use crate::spaced::Spaced;
use crate::workers::Workers;

/// Contexts of callers, and threads for the work of the mechanism.
#[derive(Clone)]
pub(crate) struct Gss {
    contexts: Arc<GssServer>,
    workers: Workers,
    /// Threads for the creation of contexts, where a mechanism may wait for files or a network. Requests never wait for these.
    creators: Workers,
    /// Lines of the log about callers without a context.
    refusals: Arc<Spaced>,
}

/// A call with a credential of RPCSEC_GSS.
pub(crate) struct SecuredCall {
    header: CallHeader,
    arguments: Decoder,
}

impl SecuredCall {
    /// Reads a message; `None` if it is no such call.
    pub(crate) fn read(message: &Decoder) -> Option<Self> {
        let mut arguments = message.clone();
        let header = CallHeader::read(&mut arguments).ok()?;
        (header.credential.flavor == auth::flavor::RPCSEC_GSS).then_some(Self { header, arguments })
    }

    /// Returns whether the call only creates a context (RFC 2203 §5.2.2).
    pub(crate) fn creates_context(&self) -> bool {
        let credential = GssCredential::read(&self.header.credential.body);
        credential.is_ok_and(|credential| {
            matches!(credential.procedure, GssProcedure::Init | GssProcedure::ContinueInit)
        })
    }
}

impl Gss {
    pub(crate) fn new(contexts: Arc<GssServer>) -> Self {
        let workers = |name| crate::gss::workers(name, contexts.may_wait());
        Self { workers: workers("gss"), creators: workers("gss-new"), contexts, refusals: Arc::default() }
    }

    /// Serves a call.
    pub(crate) async fn serve(
        self,
        dispatcher: Arc<Dispatcher>,
        peer: Peer,
        call: SecuredCall,
        now: Instant,
    ) -> (Outcome, Option<CacheKey>) {
        let SecuredCall { header, arguments } = call;
        let xid = header.xid;
        let origin = peer.address.map(|address| Origin::of(address.ip()));
        let outcome = match self.contexts.receive(origin, &header, now) {
            Err(refusal) => refused(xid, refusal),
            Ok(Received::Create(creation)) => {
                match self.creators.run(move || creation.run(arguments)).await {
                    Ok(Ok(reply)) => {
                        self.tell(&peer, &reply);
                        created(xid, &reply)
                    }
                    Ok(Err(_)) => {
                        accepted(xid, AcceptStat::GarbageArguments, OpaqueAuth::none(), Stream::new())
                    }
                    Err(_) => accepted(xid, AcceptStat::SystemError, OpaqueAuth::none(), Stream::new()),
                }
            }
            Ok(Received::Request(incoming)) => {
                return self.request(&dispatcher, peer, &header, incoming, arguments, now).await;
            }
        };
        (outcome, None)
    }

    /// Logs who has a context now, or why somebody has none.
    fn tell(&self, peer: &Peer, reply: &CreationReply) {
        let address = peer.address;
        if let Some(principal) = &reply.created {
            tracing::debug!(?principal, ?address, "security context created");
        } else if let Some(failure) = &reply.failure
            && let Some(not_logged) = self.refusals.due()
        {
            let peer = address.map_or("unknown".to_owned(), |address| address.to_string());
            tracing::warn!(peer, not_logged, "no security context for a caller: {failure}");
        }
    }

    async fn request(
        &self,
        dispatcher: &Dispatcher,
        peer: Peer,
        header: &CallHeader,
        incoming: Incoming,
        arguments: Decoder,
        now: Instant,
    ) -> (Outcome, Option<CacheKey>) {
        let xid = header.xid;
        let (quick, length) = (incoming.is_quick(), arguments.remaining());
        let length = if incoming.covers_arguments() { length } else { 0 };
        let opened = match compute(&self.workers, quick, length, move || incoming.open(arguments)).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return (unopened(xid, error), None),
            Err(_) => return (Outcome::Drop, None),
        };
        let Opened { caller, arguments, sealer, destroyed } = opened;
        if destroyed {
            return (accepted(xid, AcceptStat::Success, sealer.verifier().clone(), Stream::new()), None);
        }
        let served = dispatcher.dispatch_opened(peer, header, caller, arguments, now);
        let key = served.key();
        let outcome = match served.await {
            Outcome::Reply(reply) => self.seal(xid, reply, sealer).await,
            other => other,
        };
        (outcome, key)
    }

    /// Protects a reply.
    async fn seal(&self, xid: u32, reply: Stream, sealer: Sealer) -> Outcome {
        let Ok((header, results)) = ReplyHeader::split(reply) else { return Outcome::Drop };
        let header = header.with_verifier(sealer.verifier().clone());
        if header.success().is_err() || !sealer.covers_results() {
            return message(&header, results);
        }
        match compute(&self.workers, sealer.is_quick(), results.len(), move || sealer.seal(results)).await {
            Ok(Ok(results)) => message(&header, results),
            // RFC 2203 §5.3.3.4: no reply.
            Ok(Err(error)) => {
                tracing::warn!(xid, %error, "results cannot be protected");
                Outcome::Drop
            }
            Err(error) => {
                tracing::warn!(xid, %error, "results cannot be protected");
                Outcome::Drop
            }
        }
    }
}

fn message(header: &ReplyHeader, results: Stream) -> Outcome {
    header.with_results(results).map_or(Outcome::Drop, Outcome::Reply)
}

fn accepted(xid: u32, status: AcceptStat, verifier: OpaqueAuth, results: Stream) -> Outcome {
    message(&ReplyHeader::accepted(xid, status).with_verifier(verifier), results)
}

fn refused(xid: u32, refusal: Refusal) -> Outcome {
    tracing::debug!(xid, ?refusal, "call of RPCSEC_GSS refused");
    match refusal {
        Refusal::Auth(stat) => {
            message(&ReplyHeader::denied(xid, RejectReason::AuthError(stat)), Stream::new())
        }
        Refusal::Discard => Outcome::Drop,
        Refusal::Busy => accepted(xid, AcceptStat::SystemError, OpaqueAuth::none(), Stream::new()),
    }
}

fn unopened(xid: u32, error: OpenError) -> Outcome {
    tracing::debug!(xid, %error, "call of RPCSEC_GSS refused");
    match error {
        OpenError::Auth(stat, _) => {
            message(&ReplyHeader::denied(xid, RejectReason::AuthError(stat)), Stream::new())
        }
        OpenError::Discard => Outcome::Drop,
        OpenError::Garbage { verifier, fault } => match fault.chunk_violation() {
            Some(error) => Outcome::ChunkViolation(error),
            None => accepted(xid, AcceptStat::GarbageArguments, verifier, Stream::new()),
        },
    }
}

fn created(xid: u32, reply: &CreationReply) -> Outcome {
    match reply.stream() {
        Ok(results) => accepted(xid, AcceptStat::Success, reply.verifier.clone(), results),
        Err(_) => accepted(xid, AcceptStat::SystemError, OpaqueAuth::none(), Stream::new()),
    }
}
