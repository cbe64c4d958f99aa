//! The Connection Configuration Protocol (RFC 5666 §6, §12), `rdmaconfig`, by which client and server agree on three
//! limits. These are the length of inline messages, the number of RDMA Reads, and the alignment of Receives. The client
//! asks by a call at the start of a connection.
//!
//! RFC 8166 dropped the protocol (§A). A default of 1024 bytes and, for longer messages, private data at connection
//! set-up (RFC 8797) do its work without a round trip. The protocol is off unless
//! [`ClientConfig::ccp`](crate::ClientConfig::ccp) or [`ServerConfig::ccp`](crate::ServerConfig::ccp) turns it on. The
//! private data of a peer sets bounds that an agreement can lower, not raise.
//!
//! The protocol belongs to the transport, so its calls do not go to the server's programs. Each RDMA connection has a
//! program of its own (`server`); TCP has none and answers PROG_UNAVAIL. The client (`client`) asks before any other
//! call of each new connection, within 1024 bytes and one credit (§6.1). The connection applies the agreement:
//! [`rpcrdma_proto::Connection::agree`].
//!
//! | event | consequence |
//! | --- | --- |
//! | the server has no such program, or refuses | the client goes on without an agreement |
//! | no answer in time; a malformed answer, one without the required protection, or one of less than 1024 bytes | the client ends the connection |
//! | sizes above the limits of a side | its own limits hold |
//! | 0 RDMA Reads | no Call with Read chunks leaves; one that arrives from such a client gets ERR_CHUNK |
//! | the client takes Replies of less than 1024 bytes | GARBAGE_ARGS |
//! | the same question again | the same answer |
//! | another question, or the first one after other calls | SYSTEM_ERR: messages under way rely on the agreed values |
//!
//! # Security
//! RFC 5666 §11: "when used, MUST be protected by an appropriate RPC security flavor". An agreement of
//! [`Ccp::protected`] complies: it refuses a call or answer under any other flavour. One of [`Ccp::insecure`] does not,
//! with the consequences that are listed there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma_oncrpc::Integrity;
use rpcrdma_xdr::Xdr;

pub(crate) mod client;
pub(crate) mod server;

// For the fuzz targets; not part of the public interface.
#[doc(hidden)]
pub use server::Configurator;

/// Program number of `rdmaconfig` (RFC 5666 §12).
pub const PROGRAM: u32 = 100_417;
/// Version of the program; there is no other.
pub const VERSION: u32 = 1;
/// Procedure number of CONF_RDMA, the only procedure beside NULL.
pub const CONF_RDMA: u32 = 1;

/// `config_rdma_req`: the limits and wishes of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ConfigRequest {
    /// Longest Call that the client wants to send inline, in bytes.
    pub max_call_send_size: u32,
    /// Longest Reply that the client takes inline, in bytes.
    pub max_reply_send_size: u32,
    /// RDMA Reads that may be under way at the client.
    pub max_rdma_read: u32,
}

/// `config_rdma_reply`: the limits of the server. The order of its fields differs from the request's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub struct ConfigReply {
    /// Longest Call that the server takes inline, in bytes; the client MUST NOT send longer ones.
    pub max_call_send_size: u32,
    /// Alignment of the server's Receives, in bytes; 1 if the server takes no RDMA_MSGP.
    pub align: u32,
    /// RDMA Reads that may be under way at the server.
    pub max_rdma_read: u32,
}

/// Settings of the protocol, for a client or a server.
#[derive(Clone)]
pub struct Ccp {
    security: Security,
    /// Time that a client waits for the answer before it ends the connection. Servers ignore it.
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

    /// Requires this flavour, and accepts no other.
    #[must_use]
    pub fn protected(flavor: Arc<dyn Integrity>) -> Self {
        Self { security: Security::Protected(flavor), timeout: Self::TIMEOUT }
    }

    /// Goes without protection, against RFC 5666 §11.
    ///
    /// An attacker who can change packets can then make messages smaller and slower, or forbid RDMA Reads so that long
    /// calls fail. Promising more than a side takes costs the connection. The attacker gains no access to data or
    /// memory by this. For links that protect packets themselves, and for tests.
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

/// Returns a size as a word on the wire.
fn word(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Returns a size from a word on the wire.
fn size(word: u32) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
