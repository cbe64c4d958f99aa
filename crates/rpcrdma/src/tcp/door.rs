//! [`Door`]: where calls enter a server that speaks TLS (RFC 9289 §4.1). A server without TLS has no door, and no call
//! looks for one.
//!
//! The door reads the first words of a record. It knows the probe, AUTH_TLS on NULL, and refuses AUTH_TLS anywhere else.
//! If the server serves under TLS only, the door refuses other calls before that. NULL needs no TLS, as it needs no
//! credential.

use std::net::SocketAddr;

use bytes::Bytes;
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_oncrpc::message::{CALL, RPC_VERSION};
use rpcrdma_oncrpc::{AuthStat, CallHeader, OpaqueAuth, Outcome, RejectReason, ReplyBody, ReplyHeader};
use rpcrdma_xdr::{Decoder, Stream};

use crate::tls::{AUDIT, TlsServer};

/// The body of the verifier by which a server offers TLS (§4.1).
pub(super) const STARTTLS: &[u8; 8] = b"STARTTLS";

/// Bytes of a Call up to the flavour of its credential.
const WORDS: usize = 7;

/// The entry of a connection.
#[derive(Debug)]
pub(super) struct Door {
    settings: TlsServer,
    /// Whether TLS protects the connection.
    inside: bool,
    /// Whether the log has that the connection is used without TLS.
    told: bool,
}

/// The fate of a record.
#[derive(Debug)]
pub(super) enum Entry {
    /// The dispatcher decides.
    Pass,
    /// The call ends like this and is not carried out.
    Refuse(Outcome),
    /// The client asks for TLS.
    Probe,
}

impl Door {
    /// Returns the door of a new connection.
    pub(super) const fn new(settings: TlsServer) -> Self {
        Self { settings, inside: false, told: false }
    }

    pub(super) const fn settings(&self) -> &TlsServer {
        &self.settings
    }

    /// Notes that TLS protects the connection from now on.
    pub(super) const fn enter(&mut self) {
        self.inside = true;
    }

    /// Examines a record. Records that are not Calls of RPC version 2 are the dispatcher's.
    pub(super) fn examine(&mut self, record: &Bytes, peer: SocketAddr) -> Entry {
        let Some([xid, CALL, RPC_VERSION, _, _, procedure, flavor]) = words(record) else {
            return Entry::Pass;
        };
        if flavor == flavor::AUTH_TLS {
            return self.examine_probe(record, xid, procedure);
        }
        // RPCSEC_GSS makes contexts by NULL (RFC 2203 §5.2.2), which must not happen unprotected.
        if self.inside || (procedure == 0 && flavor != flavor::RPCSEC_GSS) {
            return Entry::Pass;
        }
        let told = std::mem::replace(&mut self.told, true);
        if self.settings.is_only() {
            if !told {
                self.settings.tell_refusal(peer, &"calls without TLS");
            }
            return refuse(xid, AuthStat::TooWeak);
        }
        if !told {
            tracing::info!(target: AUDIT, %peer, "calls without TLS");
        }
        Entry::Pass
    }

    fn examine_probe(&self, record: &Bytes, xid: u32, procedure: u32) -> Entry {
        // §4.1: AUTH_TLS on another procedure, or inside of a session.
        if procedure != 0 || self.inside {
            return refuse(xid, AuthStat::BadCred);
        }
        let Ok(header) = CallHeader::read(&mut Decoder::new(record.clone())) else { return Entry::Pass };
        // §4.1: the credential has no body, the verifier is an empty one of AUTH_NONE.
        if !header.credential.body.is_empty() {
            return refuse(xid, AuthStat::BadCred);
        }
        if header.verifier != OpaqueAuth::none() {
            return refuse(xid, AuthStat::BadVerf);
        }
        Entry::Probe
    }
}

/// Returns the reply to a probe with the offer of TLS; `None` if the call was not accepted.
pub(super) fn offer(reply: Stream) -> Option<Stream> {
    let (header, results) = ReplyHeader::split(reply).ok()?;
    if !matches!(header.body, ReplyBody::Accepted { .. }) {
        return None;
    }
    let verifier = OpaqueAuth { flavor: flavor::AUTH_NONE, body: Bytes::from_static(STARTTLS) };
    header.with_verifier(verifier).with_results(results).ok()
}

/// Refuses the call with this XID.
fn refuse(xid: u32, stat: AuthStat) -> Entry {
    let header = ReplyHeader::denied(xid, RejectReason::AuthError(stat));
    Entry::Refuse(header.with_results(Stream::new()).map_or(Outcome::Drop, Outcome::Reply))
}

fn words(record: &Bytes) -> Option<[u32; WORDS]> {
    let (words, _) = record.as_chunks::<4>();
    let first = words.first_chunk::<WORDS>()?;
    Some(first.map(u32::from_be_bytes))
}

#[cfg(test)]
mod tests;
