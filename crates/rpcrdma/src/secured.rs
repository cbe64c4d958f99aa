//! Calls of RPCSEC_GSS at a server (RFC 2203): who makes them, and the protection of arguments and results.
//!
//! The mechanism computes over whole messages and may read files, so its work is done by [`Workers`], unless it is short. A
//! call goes there once to be opened, and once more to have its results protected, if they are. In between it is served like any
//! other. Addresses take turns at the threads. All listeners share the contexts: a client may create one by TCP and use it by RDMA.
//!
//! *Buffers.* Without protection of arguments and results, both stay where they are and may travel in chunks.
//!
//! *Errors.* RFC 2203 §5.3.3 has an answer for each fault of a caller, or none.

use std::sync::Arc;
use std::time::Instant;

use rpcrdma_oncrpc::gss::{
    CreationReply, GssCredential, GssProcedure, GssServer, OpenError, Opened, Received, Refusal, Sealer,
    Unprotectable,
};
use rpcrdma_oncrpc::{
    AcceptStat, CacheKey, CallHeader, Dispatcher, OpaqueAuth, Origin, Outcome, Peer, RejectReason,
    ReplyHeader, auth,
};
use rpcrdma_xdr::{Decoder, Stream};

use crate::gss::compute_for;
use crate::registry::Record;
use crate::spaced::Spaced;
use crate::workers::{Running, WorkLost, Workers};

/// Memory of a call of RPCSEC_GSS beside that of other calls, in bytes. It has the future, its work for a thread, and copies of
/// the header. A TCP connection of a server with contexts reserves it for each call.
pub(crate) const SECURED_ROOM: usize = 4 << 10;

/// Contexts of callers, and threads for the work of the mechanism.
#[derive(Clone)]
pub(crate) struct Gss {
    contexts: Arc<GssServer>,
    workers: Workers,
    /// Threads for the creation of contexts, where a mechanism may wait for files or a network. Requests never wait for these.
    creators: Workers,
    lines: Arc<Lines>,
}

/// Lines of the log.
#[derive(Default)]
struct Lines {
    /// Callers without a context.
    refused: Spaced,
    /// Results that cannot be protected.
    unprotected: Spaced,
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
        Self { workers: workers("gss"), creators: workers("gss-new"), contexts, lines: Arc::default() }
    }

    /// Serves a call.
    pub(crate) async fn serve(
        self,
        dispatcher: Arc<Dispatcher>,
        peer: Peer,
        call: SecuredCall,
        now: Instant,
        record: Option<Arc<Record>>,
    ) -> (Outcome, Option<CacheKey>) {
        let SecuredCall { header, arguments } = call;
        let xid = header.xid;
        let origin = peer.address.map(|address| Origin::of(address.ip()));
        let outcome = match self.contexts.receive(origin, &header, now) {
            Err(refusal) => refused(xid, refusal),
            Ok(Received::Create(creation)) => {
                let created = self.creators.run_for(origin, move || creation.run(arguments));
                match created.await {
                    Ok(Ok(reply)) => self.created(xid, &peer, &reply),
                    Ok(Err(_)) => {
                        accepted(xid, AcceptStat::GarbageArguments, OpaqueAuth::none(), Stream::new())
                    }
                    Err(_) => accepted(xid, AcceptStat::SystemError, OpaqueAuth::none(), Stream::new()),
                }
            }
            Ok(Received::Request(incoming)) => {
                let (quick, length) = (incoming.is_quick(), arguments.remaining());
                let length = if incoming.covers_arguments() { length } else { 0 };
                let open = move || incoming.open(arguments);
                let opened = match compute_for((&self.workers, origin), (quick, length), open).await {
                    Ok(Ok(opened)) => opened,
                    Ok(Err(error)) => return (unopened(xid, error), None),
                    Err(_) => return (Outcome::Drop, None),
                };
                let Opened { caller, arguments, sealer, destroyed } = opened;
                if let Some(record) = &record {
                    record.known_as(&caller.principal.name);
                }
                if destroyed {
                    accepted(xid, AcceptStat::Success, sealer.verifier().clone(), Stream::new())
                } else {
                    let served = dispatcher.dispatch_opened(peer, &header, caller, arguments, now);
                    let (outcome, key) = served.keyed().await;
                    let outcome = match outcome {
                        Outcome::Reply(reply) => match self.seal(origin, reply, sealer) {
                            Ok((header, sealed)) => self.sealed(&header, sealed.await),
                            Err(outcome) => outcome,
                        },
                        other => other,
                    };
                    return (outcome, key);
                }
            }
        };
        (outcome, None)
    }

    fn created(&self, xid: u32, peer: &Peer, reply: &CreationReply) -> Outcome {
        match (&reply.created, &reply.failure) {
            (Some(principal), _) => {
                tracing::debug!(?principal, address = ?peer.address, "security context created");
            }
            (None, Some(reason)) => {
                if let Some(not_logged) = self.lines.refused.due() {
                    let peer = peer.address.map_or("unknown".to_owned(), |address| address.to_string());
                    tracing::warn!(peer, not_logged, "no security context for a caller: {reason}");
                }
            }
            (None, None) => {}
        }
        match reply.stream() {
            Ok(results) => accepted(xid, AcceptStat::Success, reply.verifier.clone(), results),
            Err(_) => accepted(xid, AcceptStat::SystemError, OpaqueAuth::none(), Stream::new()),
        }
    }

    /// Returns the outcome of a call with these results. RFC 2203 §5.3.3.4: no reply without protection.
    fn sealed(
        &self,
        header: &ReplyHeader,
        sealed: Result<Result<Stream, Unprotectable>, WorkLost>,
    ) -> Outcome {
        let reason = match sealed {
            Ok(Ok(results)) => return message(header, results),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        if let Some(not_logged) = self.lines.unprotected.due() {
            tracing::warn!(xid = header.xid, reason, not_logged, "results cannot be protected");
        }
        Outcome::Drop
    }

    /// Begins to protect the results of a reply.
    ///
    /// # Errors
    /// The outcome of the call, if its results need no protection.
    fn seal(&self, origin: Option<Origin>, reply: Stream, sealer: Sealer) -> Result<Sealing, Outcome> {
        let Ok((header, results)) = ReplyHeader::split(reply) else { return Err(Outcome::Drop) };
        let header = header.with_verifier(sealer.verifier().clone());
        if header.success().is_err() || !sealer.covers_results() {
            return Err(message(&header, results));
        }
        let size = (sealer.is_quick(), results.len());
        Ok((header, compute_for((&self.workers, origin), size, move || sealer.seal(results))))
    }
}

/// A reply whose results are being protected.
type Sealing = (ReplyHeader, Running<Result<Stream, Unprotectable>>);

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
#[cfg(test)]
mod tests {
    use rpcrdma_oncrpc::gss::{Creation, GssCaller, Incoming};

    use super::*;

    /// The place in the queue and the channel of work, in bytes.
    const BESIDE_WORK: usize = 256;
    /// The copy of a header for its checksum, and the verifier of the reply, in bytes (RFC 5531 §8.2).
    const HEADERS: usize = (6 * 4 + 8 + 400) + 400;

    fn size<F>(
        _: impl FnOnce(Gss, Arc<Dispatcher>, Peer, SecuredCall, Instant, Option<Arc<Record>>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn i6_the_future_of_a_secured_call_and_its_work_fit_into_their_room() {
        let future = size(Gss::serve);
        // The values that the work captures.
        let captured = [size_of::<Incoming>(), size_of::<Creation>()].map(|size| size + size_of::<Decoder>());
        let result = size_of::<Result<Opened, OpenError>>().max(size_of::<CreationReply>());
        let work = captured.into_iter().max().unwrap() + result + size_of::<GssCaller>() + BESIDE_WORK;
        let all = future + work + HEADERS;
        assert!((future..=SECURED_ROOM).contains(&all), "{future} for the future, {work} for its work");
    }
}
