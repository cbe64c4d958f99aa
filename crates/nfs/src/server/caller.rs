//! The caller, as seen by exports.

use std::net::{IpAddr, SocketAddr};

use rpcrdma_oncrpc::{CallContext, Credential, Origin, TransportKind};

/// Ports below this number are open only to root of the calling machine, by the custom of Unix
/// (`IPPORT_RESERVED`).
const RESERVED_PORTS: u16 = 1024;

/// Origin and claimed identity of a call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    address: Option<SocketAddr>,
    transport: TransportKind,
    /// User of this machine who owns the other end, if known.
    owner: Option<u32>,
    /// Claimed credential.
    pub(super) credential: Credential,
}

impl Caller {
    pub(crate) fn new(context: CallContext) -> Self {
        let CallContext { peer, transport, owner, credential, .. } = context;
        Self { address: peer, transport, owner, credential }
    }

    /// Returns whether a user of this machine other than root calls.
    pub(super) fn is_local_user(&self) -> bool {
        self.owner.is_some_and(|owner| owner != 0)
    }

    /// Returns the origin whose limits apply.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.ip().map(Origin::of)
    }

    /// Returns the address without port.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip())
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns whether the call comes from a port that only root can use. Over RDMA, ports have no meaning,
    /// and the answer is always true.
    pub(super) fn has_reserved_port(&self) -> bool {
        self.transport != TransportKind::Tcp
            || self.address.is_some_and(|address| address.port() < RESERVED_PORTS)
    }
}
