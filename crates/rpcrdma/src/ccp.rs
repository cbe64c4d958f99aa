//! The Connection Configuration Protocol (RFC 5666 §6, §12), `rdmaconfig`: one call at the begin of a connection by which client
//! and server tell each other how large inline messages may be, how many RDMA Reads, and how Receives are aligned.
//!
//! RFC 8166 has done without it (§A): a default of 1024 bytes and, where more is wanted, private data at connection set-up
//! (RFC 8797) do its work without a round trip. It is off unless [`ClientConfig::ccp`](crate::ClientConfig::ccp) or
//! [`ServerConfig::ccp`](crate::ServerConfig::ccp) says otherwise. What the private data of a peer said is a bound that an
//! agreement can lower, not raise.
//!
//! It is a matter of the transport, so it does not go to the programs that the server was given: each RDMA connection has a
//! program of its own (`server`) that knows it, and TCP has none and answers PROG_UNAVAIL. The client (`client`) asks
//! before any other call of each new connection, within 1024 bytes and the one credit that there is (§6.1). What was agreed is
//! kept by [`rpcrdma_proto::Connection::agree`].
//!
//! | what happens | what follows |
//! | --- | --- |
//! | the server has no such program, or refuses | the client goes on with what it has |
//! | no answer in time, an answer that is malformed, not protected as it must be, or of less than 1024 bytes | the client ends the connection |
//! | sizes above what a side can do | its own are the bound |
//! | 0 RDMA Reads | no Call with Read chunks leaves; one that arrives from such a client gets ERR_CHUNK |
//! | the client takes Replies of less than 1024 bytes | GARBAGE_ARGS |
//! | the same question again | the same answer |
//! | another question, or the first one after other calls | SYSTEM_ERR: what messages under way count on does not change |
//!
//! # Security
//! RFC 5666 §11: "when used, MUST be protected by an appropriate RPC security flavor". [`Ccp::protected`] does: a call or
//! answer under any other flavour is refused. [`Ccp::insecure`] does not: see there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_oncrpc::Integrity;
use rpcrdma_xdr::Xdr;

pub(crate) mod client;
pub(crate) mod server;

/// Program number of `rdmaconfig` (RFC 5666 §12).
pub const PROGRAM: u32 = 100_417;
/// Its only version.
pub const VERSION: u32 = 1;
/// Its only procedure beside NULL.
pub const CONF_RDMA: u32 = 1;

/// `config_rdma_req`: what the client asks for and allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ConfigRequest {
    /// The longest Call that it wants to send inline, bytes.
    pub max_call_send_size: u32,
    /// The longest Reply that it takes inline, bytes.
    pub max_reply_send_size: u32,
    /// RDMA Reads that may be under way at the client.
    pub max_rdma_read: u32,
}

/// `config_rdma_reply`: what the server takes. Not the order of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ConfigReply {
    /// The longest Call that it takes inline, bytes; the client MUST NOT send longer ones.
    pub max_call_send_size: u32,
    /// Where its Receives begin: at multiples of this many bytes; 1 if it takes no RDMA_MSGP.
    pub align: u32,
    /// RDMA Reads that may be under way at the server.
    pub max_rdma_read: u32,
}

/// How the protocol is spoken, by a client or a server.
#[derive(Clone)]
pub struct Ccp {
    security: Security,
    /// How long a client waits for the answer; then it ends the connection. Servers do not look at it.
    pub timeout: Duration,
}

#[derive(Clone)]
enum Security {
    Protected(Arc<dyn Integrity>),
    Insecure,
}

impl Ccp {
    /// Default of [`timeout`](Self::timeout).
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Under this flavour, and no other.
    #[must_use]
    pub fn protected(flavor: Arc<dyn Integrity>) -> Self {
        Self { security: Security::Protected(flavor), timeout: Self::TIMEOUT }
    }

    /// Without protection, against RFC 5666 §11.
    ///
    /// Whoever can change packets on the way can then make messages smaller and slower, forbid RDMA Reads so that long calls
    /// fail, or promise more than a side takes, which costs the connection. Data and memory are not open to him by this. For
    /// links that protect packets themselves, and for tests.
    #[must_use]
    pub const fn insecure() -> Self {
        Self { security: Security::Insecure, timeout: Self::TIMEOUT }
    }

    fn integrity(&self) -> Option<&Arc<dyn Integrity>> {
        match &self.security {
            Security::Protected(flavor) => Some(flavor),
            Security::Insecure => None,
        }
    }
}

impl fmt::Debug for Ccp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flavor = self.integrity().map(|flavor| flavor.flavor());
        f.debug_struct("Ccp").field("flavor", &flavor).field("timeout", &self.timeout).finish()
    }
}

/// A size on the wire.
fn word(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// A size from the wire.
fn size(word: u32) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
