//! [`Link`]: one connection of a client at a time, by either transport.

use std::time::Duration;

use crate::call::{Call, RawReply};
use crate::channel::Channel;
use crate::error::CallError;
use crate::rdma::client::RdmaClient;
use crate::tcp::client::TcpClient;

/// One connection of a client at a time, by either transport.
pub(crate) enum Link {
    Rdma(RdmaClient),
    Tcp(TcpClient),
}

impl Link {
    /// Returns whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        match self {
            Self::Rdma(client) => client.is_up(),
            Self::Tcp(client) => client.is_up(),
        }
    }

    /// Asks for a connection without a call, after the pause of the client's timers.
    pub(crate) fn reopen(&self) {
        match self {
            Self::Rdma(client) => client.reopen(),
            Self::Tcp(client) => client.reopen(),
        }
    }
}

impl Channel for Link {
    async fn call(&self, call: Call) -> Result<RawReply, CallError> {
        match self {
            Self::Rdma(client) => client.call(call).await,
            Self::Tcp(client) => client.call(call).await,
        }
    }

    fn next_xid(&self) -> u32 {
        match self {
            Self::Rdma(client) => client.next_xid(),
            Self::Tcp(client) => client.next_xid(),
        }
    }

    fn call_timeout(&self) -> Duration {
        match self {
            Self::Rdma(client) => client.call_timeout(),
            Self::Tcp(client) => client.call_timeout(),
        }
    }
}
