//! The reasons why a client has no connection from the start.
//!
//! A message is complete: it includes those of the errors below it, which [`Error::source`] returns by type.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use rpcrdma_oncrpc::{RegisterError, TransportKind};
use rpcrdma_proto::NoProgram;
use rpcrdma_verbs as verbs;

use crate::cause::Cause;
use crate::endpoint::{Endpoint, EndpointError};

/// The reason why a client was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint names no server; nothing was sent.
    Endpoint {
        /// The endpoint as it was given.
        endpoint: Endpoint,
        /// Its fault.
        error: EndpointError,
    },
    /// The name of the server could not be resolved in time.
    Lookup {
        /// The endpoint as it was given.
        endpoint: Endpoint,
        /// The resolver's error; `TimedOut` if it did not answer within [`connect`](crate::Timeouts::connect).
        error: io::Error,
    },
    /// No address of the server took a connection.
    Unreachable {
        /// The endpoint as it was given.
        endpoint: Endpoint,
        /// The transport.
        transport: TransportKind,
        /// The attempts in their order, one for each address.
        attempts: Vec<Attempt>,
    },
    /// The settings of the client cannot work; nothing was sent.
    Config(ConfigError),
}

/// A failed attempt to connect to one address of a server.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {error}")]
#[non_exhaustive]
pub struct Attempt {
    /// The address.
    pub address: SocketAddr,
    /// The reason.
    #[source]
    pub error: AttemptError,
}

/// The reason why an address took no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// The link or the provider below failed.
    #[error("{}", bare(.0))]
    Link(#[from] verbs::ConnectError),
    /// The connection cannot have the TLS that this client requires, or the server refuses the client's certificate
    /// (RFC 9289 §4.1).
    #[error("{0}")]
    Tls(#[source] Cause),
}

impl AttemptError {
    /// Returns whether nobody listens at the address.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Link(verbs::ConnectError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
    }
}

/// Shows an error of the link without "cannot connect", which the message around it says already.
fn bare(error: &verbs::ConnectError) -> &dyn fmt::Display {
    match error {
        verbs::ConnectError::Io(error) => error,
        error => error,
    }
}

/// The reason why settings of a client cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number of connections that is not allowed.
    #[error("{asked} connections; a client has 1 to {most}")]
    Connections {
        /// [`ClientConfig::connections`](crate::ClientConfig::connections).
        asked: usize,
        /// The most, [`MAX_CONNECTIONS`](crate::ClientConfig::MAX_CONNECTIONS).
        most: usize,
    },
    /// [`ClientConfig::tls`](crate::ClientConfig::tls) over RPC-over-RDMA.
    #[error("TLS over RPC-over-RDMA: RFC 9289 has it for TCP only")]
    TlsOverRdma,
    /// Programs to serve over TCP.
    #[error(
        "{programs} program{} to serve over TCP: clients serve over RPC-over-RDMA only (Transport::rdma)",
        if *programs == 1 { "" } else { "s" }
    )]
    ServesOverTcp {
        /// Number of programs.
        programs: usize,
    },
    /// Programs to serve on several connections.
    #[error(
        "programs to serve on {connections} connections: the server would know this client by one of them only"
    )]
    ServesOnSeveral {
        /// [`ClientConfig::connections`](crate::ClientConfig::connections).
        connections: usize,
    },
    /// Programs that cannot be served together.
    #[error(transparent)]
    Program(#[from] RegisterError),
    /// [`Config::reverse_chunks`](crate::Config::reverse_chunks) and the Read-Read model.
    #[error(
        "chunks in the reverse direction and the Read-Read model: a long Call could not be told from a long reply"
    )]
    ReverseChunksAndReadRead,
    /// Too little memory for a Receive on each connection.
    #[error(
        "{memory} bytes of memory, but one Receive takes {receive}, on each of {connections} connections"
    )]
    Memory {
        /// [`ClientConfig::memory`](crate::ClientConfig::memory), in bytes.
        memory: usize,
        /// Memory of one Receive, in bytes.
        receive: usize,
        /// [`ClientConfig::connections`](crate::ClientConfig::connections).
        connections: usize,
    },
    /// Version Two without a program to offer it by.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
}

impl ConnectError {
    /// Returns what was to be connected to; `None` if the settings were refused before.
    #[must_use]
    pub const fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Endpoint { endpoint, .. }
            | Self::Lookup { endpoint, .. }
            | Self::Unreachable { endpoint, .. } => Some(endpoint),
            Self::Config(_) => None,
        }
    }

    /// Returns the failed attempts in their order; none if there was no address to connect to.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        match self {
            Self::Unreachable { attempts, .. } => attempts,
            _ => &[],
        }
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Names each address once.
impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint { endpoint, error } => write!(f, "{endpoint} names no server: {error}"),
            Self::Lookup { endpoint, error } => write!(f, "cannot find the address of {endpoint}: {error}"),
            Self::Unreachable { endpoint, transport, attempts } => {
                match (endpoint.is_name(), &attempts[..]) {
                    (true, [Attempt { address, error }]) => {
                        write!(f, "cannot connect to {endpoint} ({address}) over {transport}: {error}")
                    }
                    (false, [Attempt { address, error }]) => {
                        write!(f, "cannot connect to {address} over {transport}: {error}")
                    }
                    (name, attempts) => {
                        f.write_str("cannot connect ")?;
                        if name {
                            write!(f, "to {endpoint} ")?;
                        }
                        write!(f, "over {transport}")?;
                        for (index, attempt) in attempts.iter().enumerate() {
                            let mark = if index == 0 { ":" } else { ";" };
                            write!(f, "{mark} {attempt}")?;
                        }
                        Ok(())
                    }
                }
            }
            Self::Config(error) => write!(f, "invalid configuration: {error}"),
        }
    }
}

/// The source of several failed attempts is the last one.
impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Endpoint { error, .. } => Some(error),
            Self::Lookup { error, .. } => Some(error),
            Self::Unreachable { attempts, .. } => attempts.last().map(|attempt| &attempt.error as _),
            Self::Config(error) => Some(error),
        }
    }
}
