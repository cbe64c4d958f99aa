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
use crate::registry::{Origins, Record};

/// Target of the events.
const TARGET: &str = "rpcrdma::clients";

/// Reason for the end of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The server stopped, in order or with its runtime.
    Stopped,
    /// The server stopped at once, while calls had no answer.
    Cut,
    /// An administrator ended the connection.
    Ordered,
    /// Any other, as text.
    Because(String),
}

impl End {
    /// Returns the reason with this text. The text is made only if the log wants it.
    pub(crate) fn because(reason: &dyn Display) -> Self {
        let wanted = tracing::enabled!(target: TARGET, tracing::Level::INFO);
        Self::Because(if wanted { reason.to_string() } else { String::new() })
    }
}

impl Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "the server stopped",
            Self::Cut => "the server stopped before every call was answered",
            Self::Ordered => "ended by an administrator",
            Self::Because(reason) => reason,
        })
    }
}

/// A connection of a client, for the log. Its end is logged when this value is dropped, which has to be after the connection
/// published its counters for the last time.
#[derive(Debug)]
pub(crate) struct Visit {
    record: Arc<Record>,
    since: Instant,
    lines: Arc<Allowance>,
    /// The protocol version, once the client has shown it.
    pub(crate) version: Option<&'static str>,
    /// The reason that the connection itself knows.
    end: Option<End>,
}

impl Visit {
    /// Logs that a client has come, whose connection has this entry.
    pub(crate) fn new(record: Arc<Record>, lines: Arc<Allowance>) -> Self {
        let Origins { peer, provider, owner, .. } = record.origins();
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
        Self { record, since, lines, version: None, end: None }
    }

    /// Notes the reason of the end.
    pub(crate) fn ends(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Returns the reason of the end. A connection that noted none lost its task: by order, or with the server.
    fn end(&mut self) -> End {
        let ordered = self.record.is_ended().then_some(End::Ordered);
        self.end.take().or(ordered).unwrap_or(End::Stopped)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if tracing::enabled!(target: TARGET, tracing::Level::INFO)
            && let Some(not_logged) = self.lines.take()
        {
            let Origins { peer, provider, .. } = self.record.origins();
            let (version, calls) = (self.version, self.record.calls());
            let not_logged = Some(not_logged).filter(|count| *count > 0);
            let reason = self.end().to_string();
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
