//! The `tracing` event that each call leaves at the server, target `rpcrdma::serve`.
//!
//! How the reply leaves is decided later, by `proto`, which traces it under the same XID.

use std::fmt;
use std::net::SocketAddr;

use rpcrdma_oncrpc::Outcome;
use rpcrdma_xdr::{Decoder, Piece};
use tokio::time::Instant;

use crate::server::Shared;

/// What is called, and since when; zeros if the message is too short to say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traced {
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    since: Instant,
}

impl Traced {
    /// Looks at a message that stands at its XID (RFC 5531 §9); `None` if nobody wants to know.
    pub(crate) fn new(message: &Decoder, since: Instant) -> Option<Self> {
        if !tracing::enabled!(target: "rpcrdma::serve", tracing::Level::DEBUG) {
            return None;
        }
        let mut header = message.clone();
        let [xid, _message_type, _rpc_version, program, version, procedure] =
            [(); 6].map(|()| header.u32().unwrap_or_default());
        Some(Self { xid, program, version, procedure, since })
    }
}

impl Shared {
    /// Says what was answered; `way` is how the call came.
    pub(crate) fn trace(
        &self,
        peer: Option<SocketAddr>,
        call: Option<Traced>,
        outcome: &Outcome,
        way: &dyn fmt::Display,
    ) {
        let Some(Traced { xid, program, version, procedure, since }) = call else { return };
        tracing::debug!(
            target: "rpcrdma::serve",
            peer = peer.map(tracing::field::display), xid, program, version, procedure, name = self.name(program, version, procedure),
            elapsed = ?since.elapsed(), travelled = format_args!("call {way}; reply {}", Answered(outcome))
        );
    }

    fn name(&self, program: u32, version: u32, procedure: u32) -> &'static str {
        let served = self
            .programs
            .iter()
            .find(|served| served.number() == program && served.versions().contains(&version));
        match served {
            Some(_) if procedure == 0 => "NULL",
            Some(served) => served.procedure(version, procedure).map_or("", |procedure| procedure.name),
            None => "",
        }
    }
}

/// Writes an answer.
struct Answered<'a>(&'a Outcome);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::Reply(reply) => {
                let eligible = |piece: &&Piece| matches!(piece, Piece::Payload { ddp_eligible: true, .. });
                let eligible: usize = reply.pieces().iter().filter(eligible).map(Piece::len).sum();
                write!(f, "{} B", reply.len())?;
                if eligible > 0 {
                    write!(f, ", {eligible} B of it eligible")?;
                }
                Ok(())
            }
            Outcome::ChunkViolation(error) => write!(f, "ERR_CHUNK: {error}"),
            Outcome::Drop => write!(f, "nothing"),
        }
    }
}
