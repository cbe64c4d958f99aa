//! [`Link`]: one connection of a client at a time, by either transport.

use std::time::Duration;

use crate::call::{Call, RawReply};
use crate::error::CallError;
use crate::rdma::client::RdmaClient;
use crate::tcp::client::TcpClient;

/// One connection of a client at a time, by either transport.
pub(crate) enum Link {
    Rdma(RdmaClient),
    Tcp(TcpClient),
}

impl Link {
    /// Makes a call and waits for its reply, whatever that says.
    pub(crate) async fn call(&self, call: Call) -> Result<RawReply, CallError> {
        match self {
            Self::Rdma(client) => client.call(call).await,
            Self::Tcp(client) => client.call(call).await,
        }
    }

    /// Returns an XID for a call that needs it before it is given to [`call`](Self::call).
    pub(crate) fn next_xid(&self) -> u32 {
        match self {
            Self::Rdma(client) => client.next_xid(),
            Self::Tcp(client) => client.next_xid(),
        }
    }

    /// Returns the time that a call has for its reply.
    pub(crate) fn call_timeout(&self) -> Duration {
        match self {
            Self::Rdma(client) => client.call_timeout(),
            Self::Tcp(client) => client.call_timeout(),
        }
    }
}
