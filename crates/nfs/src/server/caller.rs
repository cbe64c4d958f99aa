//! The caller, as far as exports care.

use std::net::{IpAddr, SocketAddr};

use rpcrdma_oncrpc::{CallContext, Credential, Origin, TransportKind};

/// Source ports that only root of the calling machine can use, by the custom of Unix (`IPPORT_RESERVED`).
const RESERVED_PORTS: u16 = 1024;

/// Where a call comes from, and whose it claims to be.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    address: Option<SocketAddr>,
    transport: TransportKind,
    /// The user of this machine who has the other end, if that is known.
    owner: Option<u32>,
    /// As claimed.
    pub(super) credential: Credential,
}

impl Caller {
    pub(crate) fn new(context: CallContext) -> Self {
        let CallContext { peer, transport, owner, credential, .. } = context;
        Self { address: peer, transport, owner, credential }
    }

    /// Whether a user of this machine calls, other than root.
    pub(super) fn is_local_user(&self) -> bool {
        self.owner.is_some_and(|owner| owner != 0)
    }

    /// Whose limits count.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.ip().map(Origin::of)
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
