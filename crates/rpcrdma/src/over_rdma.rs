//! [`Rdma`]: the part of a client that exists over RPC-over-RDMA only.

use crate::experimental::Exchange;
use crate::rdma::client::RdmaClient;
use crate::stats::ConnectionStats;

/// The part of a client that exists over RPC-over-RDMA only. Of several connections the first one counts.
///
/// [`Client::rdma`](crate::Client::rdma) returns it.
#[derive(Clone, Copy)]
pub struct Rdma<'a> {
    first: &'a RdmaClient,
}

impl<'a> Rdma<'a> {
    pub(crate) const fn new(first: &'a RdmaClient) -> Self {
        Self { first }
    }

    /// Returns the counters of the present connection; `None` while there is none.
    #[must_use]
    pub fn connection_stats(self) -> Option<ConnectionStats> {
        self.first.connection_stats()
    }

    /// Waits until the client has opened more than `seen` connections, and returns their number
    /// ([`ClientStats::connections`](crate::ClientStats::connections)). A server that calls a client knows the client by
    /// its connection. So on each new connection the client has to announce again that it can be called. Never ready
    /// when the client is closed.
    pub async fn connected_again(self, seen: u64) -> u64 {
        self.first.connected_again(seen).await
    }

    /// Returns the exchange of transport characteristics with the server (Version Two).
    #[must_use]
    pub const fn characteristics(self) -> Exchange<'a> {
        Exchange::new(self.first)
    }
}
