//! Who calls, as far as exports care.

use std::net::{IpAddr, SocketAddr};

use rpcrdma_oncrpc::{CallContext, Credential};

/// Where a call comes from, and whose it claims to be.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) credential: Credential,
}

impl From<CallContext> for Caller {
    fn from(context: CallContext) -> Self {
        Self { peer: context.peer.map(|peer: SocketAddr| peer.ip()), credential: context.credential }
    }
}
