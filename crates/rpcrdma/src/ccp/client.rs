//! [`Asker`]: the client's side, on one connection after the other.
//!
//! *Errors.* If the server has no such program, or refuses, the connection goes on without an agreement. If the server
//! gives no reliable answer, the connection ends, and the client opens the next one after a pause.

use std::time::Instant;

use rpcrdma_oncrpc::auth::AUTH_BODY_MAX;
use rpcrdma_oncrpc::{CallHeader, OpaqueAuth, ReplyBody, ReplyHeader};
use rpcrdma_proto::{
    Agreement, BelowBasic, Call, CallError, CallFailure, CallId, IncomingReply, ReplyShape, Session,
};
use rpcrdma_xdr::{DecodeError, EncodeError, encode};
use thiserror::Error;

use super::{CONF_RDMA, Ccp, ConfigReply, ConfigRequest, PROGRAM, VERSION, size, word};

/// Longest answer, in bytes: a reply header of six words and a verifier (RFC 5531 §9), then three words.
const REPLY_MAX: usize = 24 + AUTH_BODY_MAX + 12;

/// The client's side of CONF_RDMA; asks on each new connection.
pub(crate) struct Asker {
    settings: Ccp,
    asked: Option<(CallId, u32, ConfigRequest)>,
    /// Connections that agreed.
    pub(crate) agreed: u64,
    /// Connections whose server refused.
    pub(crate) refused: u64,
}

/// The reason why a connection ends.
#[derive(Debug, Error)]
enum Unusable {
    #[error("the call of CONF_RDMA cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
    #[error("CONF_RDMA was not answered in time")]
    TimedOut,
    #[error("the answer to CONF_RDMA is not protected by the security flavour, or was changed")]
    Verifier,
    #[error("malformed answer to CONF_RDMA: {0}")]
    Malformed(#[from] DecodeError),
    #[error("answer to CONF_RDMA refused: {0}")]
    BelowBasic(#[from] BelowBasic),
}

impl Asker {
    pub(crate) const fn new(settings: Ccp) -> Self {
        Self { settings, asked: None, agreed: 0, refused: 0 }
    }

    /// Asks on a new connection; `reads` is how many RDMA Reads may be under way at this side.
    pub(crate) fn ask(&mut self, session: &mut Session, now: Instant, reads: u32) {
        if let Err(error) = self.try_ask(session, now, reads) {
            session.prelude_failed(error.to_string());
        }
    }

    fn try_ask(&mut self, session: &mut Session, now: Instant, reads: u32) -> Result<(), Unusable> {
        let Some(most) = session.connection().map(rpcrdma_proto::Connection::agreeable) else {
            return Ok(());
        };
        let request = ConfigRequest {
            max_call_send_size: word(most.send),
            max_reply_send_size: word(most.receive),
            max_rdma_read: reads,
        };
        let xid = session.next_xid();
        let mut header = CallHeader {
            xid,
            program: PROGRAM,
            version: VERSION,
            procedure: CONF_RDMA,
            credential: OpaqueAuth::none(),
            verifier: OpaqueAuth::none(),
        };
        let arguments = encode(&request)?;
        if let Some(integrity) = self.settings.integrity() {
            integrity.seal_call(&mut header, &arguments);
        }
        let call = Call {
            xid,
            program: PROGRAM,
            version: VERSION,
            procedure: CONF_RDMA,
            message: header.with_arguments(arguments)?,
            reply: ReplyShape::plain(REPLY_MAX),
            flavor_touches_data: false,
            timeout: Some(self.settings.timeout),
        };
        // If the call is refused, the connection is ending already.
        self.asked = session.prelude_call(now, call).ok().map(|id| (id, xid, request));
        Ok(())
    }

    /// Returns whether this call is the question.
    pub(crate) fn asked(&self, id: CallId) -> bool {
        self.asked.is_some_and(|(asked, ..)| asked == id)
    }

    /// Takes the result of the call; returns whether its connection can be used now.
    pub(crate) fn answered(
        &mut self,
        session: &mut Session,
        now: Instant,
        result: Result<IncomingReply, CallFailure>,
    ) -> bool {
        let Some((_, xid, request)) = self.asked.take() else { return false };
        match self.outcome(session, (xid, request), result) {
            Ok(Some(agreement)) => {
                self.agreed += 1;
                tracing::info!(target: "rpcrdma::ccp", %agreement, "agreed by CONF_RDMA");
                session.prelude_done(now);
            }
            Ok(None) => session.prelude_done(now),
            Err(error) => {
                tracing::warn!(target: "rpcrdma::ccp", %error, "connection given up");
                session.prelude_failed(error.to_string());
                return false;
            }
        }
        true
    }

    /// Returns the agreement; `None` if there is none.
    fn outcome(
        &mut self,
        session: &mut Session,
        (xid, request): (u32, ConfigRequest),
        result: Result<IncomingReply, CallFailure>,
    ) -> Result<Option<Agreement>, Unusable> {
        let mut message = match result {
            Ok(reply) => reply.message,
            Err(CallFailure { error: CallError::TimedOut, .. }) => return Err(Unusable::TimedOut),
            // Nothing was refused: the next connection asks again.
            Err(CallFailure { error: CallError::ConnectionLost(_) | CallError::Closed, .. }) => {
                return Ok(None);
            }
            Err(failure) => {
                self.refused(&failure);
                return Ok(None);
            }
        };
        let header: ReplyHeader = message.decode()?;
        if let Err(refused) = header.success() {
            self.refused(&refused);
            return Ok(None);
        }
        if let Some(integrity) = self.settings.integrity() {
            let ReplyBody::Accepted { verifier, .. } = &header.body else { return Err(Unusable::Verifier) };
            if verifier.flavor != integrity.flavor() || !integrity.check_reply(xid, verifier, &message) {
                return Err(Unusable::Verifier);
            }
        }
        let reply: ConfigReply = message.decode_all()?;
        let agreement = Agreement {
            call_size: size(reply.max_call_send_size),
            reply_size: size(request.max_reply_send_size),
            client_reads: request.max_rdma_read,
            server_reads: reply.max_rdma_read,
            align: reply.align,
        };
        session.agree(agreement)?;
        Ok(session.connection().and_then(|connection| connection.agreement().copied()))
    }

    fn refused(&mut self, reason: &dyn std::error::Error) {
        self.refused += 1;
        tracing::info!(target: "rpcrdma::ccp", %reason, "nothing agreed by CONF_RDMA");
    }
}
