//! [`Client`]: calls RPC programs of one server over RDMA or TCP.
//!
//! A client has one connection at a time, or [`ClientConfig::connections`](crate::ClientConfig::connections). It opens a connection again when it is lost,
//! and has any number of calls in flight. Clones share the client; it closes when the last clone is gone.
//!
//! A client can also serve programs, on the connection that it opened (RFC 8167): [`ClientBuilder::program`]. It then
//! keeps its connection even without calls of its own. A client that serves no program answers every Call of its server
//! with PROG_UNAVAIL. For that it has one Receive, and grants one credit.
//!
//! *Buffers.* A call's arguments and result sinks belong to the call until it ends. The caller gets a DDP-eligible
//! result as a slice of its sink, without a copy.
//!
//! *Errors.* Every call ends with its reply or one [`CallError`] that states what is known about its execution.
//! Dropping a call's future abandons the answer, not the memory (rule I10).

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use rpcrdma_verbs::ProtectionDomain;
use tracing::{Instrument, Span};

use crate::builder::ClientBuilder;
use crate::call::{Call, Reply, Transfer};
use crate::channel::Channel;
use crate::connect::ConnectError;
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::gss::GssUser;
use crate::handle::Handle;
use crate::links::Link;
use crate::over_rdma::Rdma;
use crate::spread::Spread;
use crate::stats::ClientStats;
use crate::tls::TlsClient;
use crate::trace::{Calling, call_span};

/// A client of one server's RPC programs, over RDMA or TCP. Cheap to clone.
///
/// A client has one connection at a time and opens it again when it is lost. With [`ClientConfig::connections`](crate::ClientConfig::connections) it has
/// several, and each call takes the one with the fewest calls in progress, of those that are up. It closes when the last
/// clone is gone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    to: SocketAddr,
    links: Spread<Link>,
    /// The user of the connections' own calls ([`CcpClient`](crate::CcpClient)).
    asks_as: Option<Arc<GssUser>>,
}

/// A client as the handlers of its own programs refer to it.
pub(crate) struct Forechannel(Weak<Inner>);

impl Forechannel {
    pub(crate) fn client(&self) -> Option<Client> {
        Some(Client { inner: self.0.upgrade()? })
    }
}

impl Client {
    /// Opens RPC-over-RDMA connections by software iWARP, with the default configuration. [`builder`](Self::builder) leads
    /// to other transports and settings.
    ///
    /// A name is resolved, and its addresses are tried in turn; [`ClientBuilder::connect`] has the rules.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = rpcrdma::Client::connect("server.example.org:20049").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(endpoint: impl Into<Endpoint>) -> Result<Self, ConnectError> {
        Self::builder().connect(endpoint).await
    }

    /// Starts with the default configuration, RPC-over-RDMA by software iWARP, and no program.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Creates a client of this server on open connections.
    pub(crate) fn new(to: SocketAddr, links: Spread<Link>, asks_as: Option<Arc<GssUser>>) -> Self {
        Self { inner: Arc::new(Inner { to, links, asks_as }) }
    }

    /// Returns the client as the handlers of its own programs refer to it.
    pub(crate) fn forechannel(&self) -> Forechannel {
        Forechannel(Arc::downgrade(&self.inner))
    }

    /// Returns the connections.
    pub(crate) fn links(&self) -> &Spread<Link> {
        &self.inner.links
    }

    /// Makes a call and waits for its reply.
    ///
    /// The future may be dropped at any point: a call that was sent may still be carried out.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] states what is known about the call's execution.
    pub async fn call_raw(&self, call: Call) -> Result<Reply, CallError> {
        let span = self.span(&call);
        self.attempt(call).instrument(span).await
    }

    /// Returns a handle, by which calls get defaults: an identity, times, repetitions, interceptors.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    /// Returns the span of a call.
    pub(crate) fn span(&self, call: &Call) -> Span {
        call_span(Some(self.inner.to), call)
    }

    /// Makes a call once, outside of a span.
    pub(crate) async fn attempt(&self, mut call: Call) -> Result<Reply, CallError> {
        let calling = Calling::new(&call);
        let link = match call.key {
            None => self.inner.links.carrier(Link::is_up, Link::reopen),
            Some(key) => self.inner.links.carrier_of(key, Link::is_up, Link::reopen),
        };
        let result = match call.gss.take() {
            None => link.call(call).await.and_then(Reply::try_from),
            // Apart, so that calls without a user have small futures: each move of a future copies all of it.
            Some(user) => Box::pin(user.call(&*link, call)).await,
        };
        drop(link);
        calling.ended(Some(self.inner.to), &result);
        result
    }

    /// Ends a user's security context at the server (RFC 2203 §5.4), as far as it can be reached. A later call creates
    /// another one.
    pub async fn end_context(&self, user: &GssUser) {
        let Some(context) = user.current().take() else { return };
        let link = self.inner.links.carrier(Link::is_up, Link::reopen);
        // Nothing depends on it: the server forgets an idle context anyway.
        let _ = user.end_on(&*link, &context).await;
    }

    /// Calls procedure 0 of a program, which does nothing. The reply shows that the server is there and how long a call
    /// takes.
    ///
    /// # Errors
    /// As [`call_raw`](Self::call_raw).
    pub async fn null(&self, program: u32, version: u32) -> Result<Transfer, CallError> {
        let reply = self.call_raw(Call::null(program, version)).await?;
        reply.results.finish()?;
        Ok(reply.travelled)
    }

    /// Returns the address of the server to which this client connects, now and after a loss.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.inner.to
    }

    /// Returns the settings of TLS that this client uses on its connections; `None` over RDMA. A companion of this client
    /// on another port of the server needs them too.
    #[must_use]
    pub fn tls(&self) -> Option<&TlsClient> {
        match self.inner.links.first() {
            Link::Rdma(_) => None,
            Link::Tcp(client) => client.tls(),
        }
    }

    /// Returns how many connections this client has, or opens again when they are lost.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inner.links.len()
    }

    /// Returns the counters since the start, of all connections together.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let stats = self.inner.links.all().map(|link| match link {
            Link::Rdma(client) => client.stats(),
            Link::Tcp(client) => client.stats(),
        });
        stats.reduce(ClientStats::with).unwrap_or_default()
    }

    /// Returns the part of this client that exists over RPC-over-RDMA only; `None` over TCP.
    #[must_use]
    pub fn rdma(&self) -> Option<Rdma<'_>> {
        match self.inner.links.first() {
            Link::Rdma(client) => Some(Rdma::new(client)),
            Link::Tcp(_) => None,
        }
    }

    /// Returns the domain of this client's memory. Buffers for arguments and results are best allocated in it.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        match self.inner.links.first() {
            Link::Rdma(client) => client.domain(),
            Link::Tcp(client) => client.domain(),
        }
    }

    /// Refuses new calls, waits for those in progress (their timers bound the wait), then closes the connection in
    /// order. The client serves Calls of the server until then; those in progress get no answer.
    pub async fn close(&self) {
        // Only now: the context serves all connections of this client. Without one it is not worth a new connection.
        let connected = self.rdma().is_some_and(|rdma| rdma.connection_stats().is_some());
        if let Some(user) = self.inner.asks_as.as_ref().filter(|_| connected) {
            self.end_context(user).await;
        }
        for link in self.inner.links.all() {
            match link {
                Link::Rdma(client) => client.refuse(),
                Link::Tcp(client) => client.refuse(),
            }
        }
        for link in self.inner.links.all() {
            match link {
                Link::Rdma(client) => client.close().await,
                Link::Tcp(client) => client.close().await,
            }
        }
    }
}
