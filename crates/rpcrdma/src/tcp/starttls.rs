//! The client's part before TLS: the probe, and the handshake (RFC 9289 §4.1).
//!
//! On a fresh connection the client calls NULL with AUTH_TLS and waits for the reply. It sends nothing else meanwhile. With
//! the offer of the server, TLS begins on the same connection. Without it, [`TlsClient`] decides whether the client goes on.

use std::net::SocketAddr;

use bytes::Bytes;
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_oncrpc::rpcbind;
use rpcrdma_oncrpc::{CallHeader, OpaqueAuth, ReplyBody, ReplyHeader};
use rpcrdma_proto::Pace;
use rpcrdma_verbs::{ConnectError, ProtectionDomain};
use rpcrdma_xdr::{Decoder, Stream};
use thiserror::Error;
use tokio::net::TcpStream;

use super::door::STARTTLS;
use super::record::{RecordError, RecordSink, RecordSource};
use super::tls::{Explained, TlsStream, is_fault};
use crate::cause::Cause;
use crate::config::ClientConfig;
use crate::connect::AttemptError;
use crate::tls::{AUDIT, TlsClient};
use crate::xid::Xids;

/// Longest reply to the probe, in bytes: its verifier has at most 400.
const REPLY_MAX: usize = 1 << 10;

/// A connection that is ready for calls.
pub(super) enum Link {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// The TLS handshake failed by a fault of either side, not of the link.
#[derive(Debug, Error)]
#[error("the TLS handshake failed: {0}")]
struct HandshakeFailed(#[source] Explained);

impl From<RecordError> for AttemptError {
    fn from(error: RecordError) -> Self {
        Self::Link(match error {
            RecordError::Io(error) => ConnectError::Io(error),
            error => ConnectError::Protocol(error.to_string()),
        })
    }
}

/// Asks the server for TLS, and begins it. The caller limits the time.
pub(super) async fn start(
    socket: TcpStream,
    to: SocketAddr,
    settings: &TlsClient,
    config: &ClientConfig,
    domain: &ProtectionDomain,
) -> Result<Link, AttemptError> {
    if let Err(reason) = probe(&socket, config, domain).await? {
        if settings.is_required() {
            tracing::warn!(target: AUDIT, server = %to, reason, "no TLS, so no connection");
            return Err(refused(format!("the server does not offer TLS: {reason}")));
        }
        tracing::warn!(target: AUDIT, server = %to, reason, "going on without TLS");
        return Ok(Link::Plain(socket));
    }
    let begun = async {
        let stream = TlsStream::client(socket, settings)?;
        stream.handshake().await.map(|()| stream)
    };
    match begun.await {
        Ok(stream) => {
            let (server, suite) = stream.peer();
            tracing::info!(target: AUDIT, server = %to, name = server.unwrap_or_default(), suite, "TLS begins");
            Ok(Link::Tls(Box::new(stream)))
        }
        Err(error) => {
            tracing::warn!(target: AUDIT, server = %to, %error, "TLS failed");
            if is_fault(&error) {
                return Err(AttemptError::Tls(HandshakeFailed(Explained(error)).into()));
            }
            Err(AttemptError::Link(error.into()))
        }
    }
}

/// Returns the error of a server that does not begin TLS as it should. §4.1: calls fail as if the server had refused the
/// caller.
fn refused(reason: impl Into<String>) -> AttemptError {
    AttemptError::Tls(Cause::message(reason))
}

/// Calls NULL with AUTH_TLS. Returns whether the server offers TLS, or why not.
async fn probe(
    socket: &TcpStream,
    config: &ClientConfig,
    domain: &ProtectionDomain,
) -> Result<Result<(), String>, AttemptError> {
    let pace = Pace { stall: config.stall, least_rate: config.protocol.timeouts.least_rate };
    let xid = Xids::new().take();
    let (program, version) = config.protocol.program.unwrap_or((rpcbind::PROGRAM, rpcbind::VERSION_4));
    let header = CallHeader {
        xid,
        program,
        version,
        procedure: 0,
        credential: OpaqueAuth { flavor: flavor::AUTH_TLS, body: Bytes::new() },
        verifier: OpaqueAuth::none(),
    };
    let message = header.with_arguments(Stream::new());
    let message = message.map_err(|error| ConnectError::Protocol(error.to_string()))?;
    let mut writer = RecordSink::new(pace);
    writer.push(&message);
    writer.flush(socket).await?;
    let mut reader = RecordSource::new(domain.clone(), REPLY_MAX, pace);
    let record = reader.next(socket).await?;
    let record = record
        .ok_or_else(|| ConnectError::Protocol("closed by the server at the probe for TLS".to_owned()))?;
    // §5.1.1: nothing may come between the reply and the handshake.
    if !reader.is_empty() {
        return Err(refused("the server sent data between its offer of TLS and the handshake"));
    }
    let reply: ReplyHeader = Decoder::new(record)
        .decode()
        .map_err(|error| ConnectError::Protocol(format!("the reply to the probe for TLS: {error}")))?;
    if reply.xid != xid {
        let reason = format!("a reply to {:#010x} came instead of that to the probe for TLS", reply.xid);
        return Err(ConnectError::Protocol(reason).into());
    }
    Ok(offered(&reply))
}

/// Returns whether a reply offers TLS; its status does not matter (§4.1).
fn offered(reply: &ReplyHeader) -> Result<(), String> {
    match &reply.body {
        ReplyBody::Accepted { verifier, .. } => match verifier {
            OpaqueAuth { flavor: flavor::AUTH_NONE, body } if body[..] == STARTTLS[..] => Ok(()),
            _ => Err("its reply to AUTH_TLS has no STARTTLS".to_owned()),
        },
        ReplyBody::Denied(reason) => Err(format!("it denied AUTH_TLS ({reason:?})")),
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_oncrpc::{AcceptStat, AuthStat, RejectReason};

    use super::*;

    fn accepted(flavor: u32, body: &'static [u8], status: AcceptStat) -> ReplyHeader {
        let verifier = OpaqueAuth { flavor, body: Bytes::from_static(body) };
        ReplyHeader { xid: 1, body: ReplyBody::Accepted { verifier, status } }
    }

    // requirement: rfc9289-4.1-4
    // requirement: rfc9289-4.1-5
    // requirement: rfc9289-4.1-8
    #[test]
    fn rfc9289_4_1_only_the_token_in_an_accepted_reply_offers_tls() {
        for status in [AcceptStat::Success, AcceptStat::ProgramUnavailable, AcceptStat::SystemError] {
            offered(&accepted(flavor::AUTH_NONE, b"STARTTLS", status)).unwrap();
        }
        for (flavor, body) in [
            (flavor::AUTH_NONE, &b""[..]),
            (flavor::AUTH_NONE, b"starttls"),
            (flavor::AUTH_NONE, b"STARTTL"),
            (flavor::AUTH_NONE, b"STARTTLSX"),
            (flavor::AUTH_SYS, b"STARTTLS"),
            (flavor::AUTH_TLS, b"STARTTLS"),
        ] {
            offered(&accepted(flavor, body, AcceptStat::Success)).unwrap_err();
        }
        for reason in [
            RejectReason::AuthError(AuthStat::BadCred),
            RejectReason::AuthError(AuthStat::RejectedCred),
            RejectReason::RpcMismatch { low: 2, high: 2 },
        ] {
            offered(&ReplyHeader::denied(1, reason)).unwrap_err();
        }
    }
}
