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
//! | the server has no such program, or refuses; no security context can be had, or not in time | the client goes on without an agreement |
//! | no answer in time; a malformed answer, one whose protection is missing or wrong, or one of less than 1024 bytes | the client ends the connection |
//! | sizes above the limits of a side | its own limits hold |
//! | 0 RDMA Reads | no Call with Read chunks leaves; one that arrives from such a client gets ERR_CHUNK |
//! | the client takes Replies of less than 1024 bytes | GARBAGE_ARGS |
//! | the same question again | the same answer |
//! | another question, or the first one after other calls | SYSTEM_ERR: messages under way rely on the agreed values |
//!
//! # Security
//! RFC 5666 §11: "when used, MUST be protected by an appropriate RPC security flavor". That is RPCSEC_GSS (RFC 2203) with
//! integrity or privacy here. [`CcpServer::Protected`] complies: other questions get AUTH_TOOWEAK. So does
//! [`CcpClient::protected`], which believes no other answer. [`CcpClient::insecure`] and [`CcpServer::Insecure`] do not
//! comply, with the consequences that are listed there.
//!
//! *The context.* The question precedes the client's other calls, and calls create a context. So the client makes those
//! first, on the same connection: NULL of this program, one at a time (RFC 2203 §5.2.2). They fit §6.1. A token that is too
//! long for 1024 bytes travels in a long Call, of which only a short header comes by Send. §6.2 limits inline messages
//! alone. The server fetches the token by one RDMA Read, which this client always allows. The longest token has
//! [`TOKEN_MAX`](rpcrdma_oncrpc::gss::TOKEN_MAX) bytes. A question may follow calls that create contexts, of any program,
//! but no other calls.
//!
//! *Whose context.* It belongs to the client's [`GssUser`] but is not the one of the user's other calls. Those may hold the
//! turn to create a context, or all numbers of the server's window, while they wait for the agreement. The context stays for
//! later connections, and [`Client::close`](crate::Client::close) ends it. If the server forgot it, or it is too old, the
//! client repeats the question in a new one.
//!
//! *Limits of the protection.* RFC 2203 §5.3.3.3 does not protect refusals. So an attacker who can change packets can
//! prevent an agreement, but not alter one. Without an agreement the values of connection set-up hold.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_xdr::Xdr;

use crate::gss::GssUser;

pub(crate) mod client;
pub(crate) mod server;

// For the fuzz targets; not part of the public interface.
#[doc(hidden)]
pub use server::Configurator;

crate::program! {
    /// The program `rdmaconfig` (RFC 5666 §12).
    pub mod rdmaconfig {
        program 100_417, version 1;
        /// Agrees on limits. A repeat on one connection is recognized by its values, and another connection has a state of
        /// its own.
        fn conf_rdma = 1, ConfRdma(ConfigRequest) -> ConfigReply, Idempotent;
    }
}

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

/// Settings of the protocol for a client.
#[derive(Clone, Debug)]
pub struct CcpClient {
    /// The user whose context protects the question; `None` without protection.
    user: Option<Arc<GssUser>>,
    /// Time for the answer, with the creation of a context if one is needed. Then the client ends the connection.
    pub timeout: Duration,
}

impl CcpClient {
    /// Default of [`timeout`](Self::timeout).
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Asks as this user, with the user's protection but at least integrity, and believes no other answer. The question has
    /// a context of its own, which all connections of a client share.
    #[must_use]
    pub fn protected(user: &GssUser) -> Self {
        Self { user: Some(Arc::new(user.apart())), timeout: Self::TIMEOUT }
    }

    /// Goes without protection, against RFC 5666 §11.
    ///
    /// An attacker who can change packets can then make messages smaller and slower, or forbid RDMA Reads so that long
    /// calls fail. Promising more than a side takes costs the connection. The attacker gains no access to data or
    /// memory by this. For links that protect packets themselves, and for tests.
    #[must_use]
    pub const fn insecure() -> Self {
        Self { user: None, timeout: Self::TIMEOUT }
    }

    /// Returns the user whose context protects the question.
    pub(crate) const fn user(&self) -> Option<&Arc<GssUser>> {
        self.user.as_ref()
    }
}

/// Settings of the protocol for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CcpServer {
    /// Answers questions with integrity or privacy, of any caller with a context
    /// ([`ServerBuilder::gss`](crate::ServerBuilder::gss)).
    Protected,
    /// Answers every question, against RFC 5666 §11. [`CcpClient::insecure`] lists what an attacker can do then.
    Insecure,
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
