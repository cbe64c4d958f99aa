//! The `tracing` events of each call: level `DEBUG`, target `rpcrdma::call` at the caller, `rpcrdma::serve` at the
//! server. At the caller each call is in a span of that level, target and name.
//!
//! `proto` decides later how the reply of a served call leaves, and traces that under the same XID.

use std::fmt;
use std::net::SocketAddr;

use rpcrdma_oncrpc::Outcome;
use rpcrdma_xdr::{Decoder, Piece};
use tokio::time::Instant;
use tracing::Span;

use crate::call::{Call, Reply};
use crate::error::CallError;
use crate::programs::Programs;

/// A served procedure, and the time of the call; zeros if the message is too short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traced {
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    since: Instant,
}

impl Traced {
    /// Reads a message that stands at its XID (RFC 5531 §9); returns `None` if these events are off.
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

impl Programs {
    /// Traces an answer; `way` is how the call came.
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
}

/// Returns the span of a call to this peer, disabled if nobody listens. A call that is repeated has one for all attempts,
/// each of which leaves an event in it.
pub(crate) fn call_span(to: Option<SocketAddr>, call: &Call) -> Span {
    let Call { program, version, procedure, name, .. } = *call;
    let to = to.map(tracing::field::display);
    tracing::debug_span!(target: "rpcrdma::call", "rpcrdma::call", to, program, version, procedure, name)
}

/// A call that is being made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calling {
    program: u32,
    version: u32,
    procedure: u32,
    name: &'static str,
    since: Option<Instant>,
}

impl Calling {
    pub(crate) fn new(call: &Call) -> Self {
        let Call { program, version, procedure, name, .. } = *call;
        let since = tracing::enabled!(target: "rpcrdma::call", tracing::Level::DEBUG).then(Instant::now);
        Self { program, version, procedure, name, since }
    }

    /// Traces how the call to this peer ended.
    pub(crate) fn ended(self, to: Option<SocketAddr>, result: &Result<Reply, CallError>) {
        let Self { program, version, procedure, name, since } = self;
        let Some(since) = since else { return };
        let (to, elapsed) = (to.map(tracing::field::display), since.elapsed());
        match result {
            Ok(reply) => tracing::debug!(
                target: "rpcrdma::call",
                to, xid = reply.xid, program, version, procedure, name, ?elapsed, travelled = %reply.travelled
            ),
            Err(error) => tracing::debug!(
                target: "rpcrdma::call",
                to, program, version, procedure, name, ?elapsed, %error
            ),
        }
    }
}

/// An answer, for display.
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
