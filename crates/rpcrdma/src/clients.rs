//! [`Visit`]: the lines of the log about clients that come and go, target `rpcrdma::clients`.
//!
//! A connection has one line of level INFO at its beginning and one at its end. A client can connect as often as it likes,
//! so [`Allowance`] bounds the lines.
//!
//! *Errors.* Nothing here fails.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;

use crate::log::Allowance;

/// Target of the events.
const TARGET: &str = "rpcrdma::clients";

/// A connection of a client, for the log. Its end is logged when this value is dropped.
#[derive(Debug)]
pub(crate) struct Visit {
    peer: Option<SocketAddr>,
    /// The provider of RDMA, or `tcp`.
    provider: &'static str,
    since: Instant,
    lines: Arc<Allowance>,
    /// The protocol version, once the client has shown it.
    pub(crate) version: Option<&'static str>,
    /// Calls of the client.
    pub(crate) calls: u64,
    reason: Option<String>,
}

impl Visit {
    /// Logs that a client has come. `owner` is the user at the other end, if the kernel knows.
    pub(crate) fn new(
        peer: Option<SocketAddr>,
        provider: &'static str,
        owner: Option<u32>,
        lines: Arc<Allowance>,
    ) -> Self {
        if tracing::enabled!(target: TARGET, tracing::Level::INFO)
            && let Some(not_logged) = lines.take()
        {
            let not_logged = Some(not_logged).filter(|count| *count > 0);
            tracing::info!(
                target: TARGET,
                peer = peer.map(tracing::field::display), provider, owner, not_logged,
                "client {} came by {provider}{}{}", Peer(peer), Owner(owner), NotLogged(not_logged)
            );
        }
        let since = Instant::now();
        Self { peer, provider, since, lines, version: None, calls: 0, reason: None }
    }

    /// Notes the reason of the end.
    pub(crate) fn ends(&mut self, reason: &dyn Display) {
        if tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            self.reason = Some(reason.to_string());
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if tracing::enabled!(target: TARGET, tracing::Level::INFO)
            && let Some(not_logged) = self.lines.take()
        {
            let Self { peer, provider, version, calls, .. } = *self;
            let not_logged = Some(not_logged).filter(|count| *count > 0);
            let reason = self.reason.as_deref().unwrap_or("the server stopped");
            let lasted = self.since.elapsed().as_secs_f64();
            let seconds = (lasted * 1e6).round() / 1e6;
            tracing::info!(
                target: TARGET,
                peer = peer.map(tracing::field::display), provider, version, calls, seconds, reason, not_logged,
                "client {} left {provider} after {lasted:.3} s with {calls} calls{}: {reason}{}",
                Peer(peer), Version(version), NotLogged(not_logged)
            );
        }
    }
}

/// An address, if the fabric has addresses.
pub(crate) struct Peer(pub(crate) Option<SocketAddr>);

impl Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => peer.fmt(f),
            None => f.write_str("without address"),
        }
    }
}

struct Owner(Option<u32>);

impl Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |owner| write!(f, ", a program of user {owner}"))
    }
}

struct Version(Option<&'static str>);

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |version| write!(f, " of {version}"))
    }
}

/// The number of lines left out before this one.
pub(crate) struct NotLogged(pub(crate) Option<u64>);

impl Display for NotLogged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |count| write!(f, " ({count} lines like this were left out before)"))
    }
}
