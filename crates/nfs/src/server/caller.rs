//! The caller, as far as exports care.

use std::net::{IpAddr, SocketAddr};

use rpcrdma_oncrpc::{Credential, TransportKind};

/// Source ports that only root of the calling machine can use, by the custom of Unix (`IPPORT_RESERVED`).
const RESERVED_PORTS: u16 = 1024;

/// Where a call comes from, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    address: Option<SocketAddr>,
    transport: TransportKind,
    /// With groups of the server's own database, where those are to be believed and not the caller's.
    pub(crate) credential: Credential,
}

impl Caller {
    pub(super) fn new(address: Option<SocketAddr>, transport: TransportKind, credential: Credential) -> Self {
        Self { address, transport, credential }
    }

    /// The address without port.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// The address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether the call comes from a port of root's. Over RDMA that says nothing, and everybody does.
    pub(super) fn has_reserved_port(&self) -> bool {
        self.transport != TransportKind::Tcp
            || self.address.is_some_and(|address| address.port() < RESERVED_PORTS)
    }
}
