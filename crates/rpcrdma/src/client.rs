//! [`Client`]: calls RPC programs of one server over RDMA or TCP.
//!
//! A client has one connection at a time, or [`ClientConfig::connections`]. It opens a connection again when it is lost,
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

use std::borrow::Borrow;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_oncrpc::Attached;
use rpcrdma_oncrpc::typed::{Bounds, Procedure};
use rpcrdma_proto::{Binding, Characteristic, Disposition, NotExchanged, Notice};
use rpcrdma_verbs::{ConnectError, Connector, ProtectionDomain};
use tokio::sync::broadcast;

use crate::call::{Call, Reply, Transfer};
use crate::caller::Caller;
use crate::channel::Channel;
use crate::config::ClientConfig;
use crate::error::CallError;
use crate::gss::GssUser;
use crate::links::Link;
use crate::programs::Programs;
use crate::rdma::client::RdmaClient;
use crate::spread::Spread;
use crate::stats::{ClientStats, ConnectionStats};
use crate::tcp::client::TcpClient;
use crate::tls::TlsClient;
use crate::trace::Calling;

/// A client of one server's RPC programs, over RDMA or TCP. Cheap to clone.
///
/// A client has one connection at a time and opens it again when it is lost. With [`ClientConfig::connections`] it has
/// several, and each call takes the one with the fewest calls in progress. It closes when the last clone is gone.
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

/// A builder of [`Client`]s.
#[derive(Default)]
pub struct ClientBuilder {
    config: ClientConfig,
    programs: Vec<Arc<dyn Binding>>,
}

/// A client as the handlers of its own programs refer to it.
pub(crate) struct Forechannel(Weak<Inner>);

impl Forechannel {
    pub(crate) fn client(&self) -> Option<Client> {
        Some(Client { inner: self.0.upgrade()? })
    }
}

impl Client {
    /// Opens an RPC-over-RDMA connection through this provider. Later connections of the client use the same provider.
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection.
    pub async fn rdma(
        connector: Arc<dyn Connector>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, ConnectError> {
        Self::builder().config(config).rdma(connector, to).await
    }

    /// Starts with the default configuration and no program.
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Opens an RPC-over-RDMA connection by software iWARP, with the default configuration.
    ///
    /// # Errors
    /// As [`rdma`](Self::rdma).
    pub async fn connect_rdma(to: SocketAddr) -> Result<Self, ConnectError> {
        Self::rdma(Arc::new(IwarpConnector::default()), to, ClientConfig::default()).await
    }

    /// Opens a TCP connection with record marking (RFC 5531 §11).
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection.
    pub async fn tcp(to: SocketAddr, config: ClientConfig) -> Result<Self, ConnectError> {
        Self::builder().config(config).tcp(to).await
    }

    /// Calls a procedure and waits for its results ([`Caller::call`]).
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub fn call<P: Procedure>(
        &self,
        arguments: impl Borrow<P::Arguments> + Send,
    ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
        Caller::call::<P>(self, arguments)
    }

    /// Calls a procedure and waits for its results, of at most this size ([`Caller::call_within`]).
    ///
    /// # Errors
    /// As [`Caller::call`].
    pub fn call_within<P: Procedure>(
        &self,
        arguments: impl Borrow<P::Arguments> + Send,
        bounds: Bounds,
    ) -> impl Future<Output = Result<P::Results, CallError>> + Send {
        Caller::call_within::<P>(self, arguments, bounds)
    }

    /// Makes a call and waits for its reply.
    ///
    /// The future may be dropped at any point: a call that was sent may still be carried out.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] states what is known about the call's execution.
    pub async fn call_raw(&self, mut call: Call) -> Result<Reply, CallError> {
        let calling = Calling::new(&call);
        let link = self.inner.links.carrier();
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
        let link = self.inner.links.carrier();
        // Nothing depends on it: the server forgets an idle context anyway.
        let _ = user.end_on(&*link, &context).await;
    }

    /// Calls procedure 0 of a program, which does nothing. The reply shows that the server is there and how long a call
    /// takes.
    ///
    /// # Errors
    /// As [`call_raw`](Self::call_raw).
    pub async fn null(&self, program: u32, version: u32) -> Result<Transfer, CallError> {
        let reply = self.call_raw(Call::new(program, version, 0).name("NULL")).await?;
        reply.results.finish()?;
        Ok(reply.travelled)
    }

    /// Returns the address of the server.
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

    /// Returns the counters of the present RPC-over-RDMA connection, the first of several; `None` over TCP, and while
    /// there is no connection.
    #[must_use]
    pub fn connection_stats(&self) -> Option<ConnectionStats> {
        match self.inner.links.first() {
            Link::Rdma(client) => client.connection_stats(),
            Link::Tcp(_) => None,
        }
    }

    /// Waits until this client has opened more than `seen` RPC-over-RDMA connections, and returns their number
    /// ([`ClientStats::connections`]). A server that calls a client knows the client by its connection. So on each new
    /// connection the client has to announce again that it can be called. Never ready over TCP and when the client is
    /// closed. Of several connections the first one counts.
    pub async fn connected_again(&self, seen: u64) -> u64 {
        match self.inner.links.first() {
            Link::Rdma(client) => client.connected_again(seen).await,
            Link::Tcp(_) => std::future::pending().await,
        }
    }

    /// Asks the server to change transport characteristics (Version Two, xcharext-02 §4.2) and waits for its answer.
    /// Changes that the server accepts for later arrive as a [`Notice`]. Larger Receives take effect when Calls have
    /// used up the earlier ones. P2 has no pending changes: under P2 the answer itself waits for that. Of several
    /// connections the first one is meant; so it is by [`change`](Self::change) and [`notices`](Self::notices).
    ///
    /// # Errors
    /// [`NotExchanged`], also when the connection ends before the answer.
    pub async fn ask(
        &self,
        want: Vec<Characteristic>,
    ) -> Result<Vec<(Characteristic, Disposition)>, NotExchanged> {
        match self.inner.links.first() {
            Link::Rdma(client) => client.ask(want).await,
            Link::Tcp(_) => Err(NotExchanged::NotSpoken),
        }
    }

    /// Changes a transport characteristic of this client on the present connection, and announces the change to the
    /// server. A larger receive size takes effect with [`Notice::Own`].
    ///
    /// # Errors
    /// [`NotExchanged`].
    pub fn change(&self, value: Characteristic) -> Result<(), NotExchanged> {
        match self.inner.links.first() {
            Link::Rdma(client) => client.change(value),
            Link::Tcp(_) => Err(NotExchanged::NotSpoken),
        }
    }

    /// Returns a receiver of news about transport characteristics, from now on. Over TCP there are none. A slow
    /// receiver misses the oldest.
    #[must_use]
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        match self.inner.links.first() {
            Link::Rdma(client) => client.notices(),
            Link::Tcp(_) => broadcast::channel(1).1,
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
        if let Some(user) = self.inner.asks_as.as_ref().filter(|_| self.connection_stats().is_some()) {
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

impl ClientBuilder {
    /// Sets limits and timers.
    #[must_use]
    pub fn config(mut self, config: ClientConfig) -> Self {
        self.config = config;
        self
    }

    /// Serves this program to the server, on the client's own connection (RFC 8167). [`ClientConfig`] sets the credits
    /// and the length of messages.
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Binding>) -> Self {
        self.programs.push(program);
        self
    }

    /// Opens the client's RPC-over-RDMA connections through this provider: one, or [`ClientConfig::connections`]. If the
    /// server refuses further ones, the client goes on with those that it has ([`Client::connections`]), and says so in
    /// an event of level `WARN`. Later connections of the client use the same provider.
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection. [`ConnectError::Invalid`] if the number of connections is not allowed, or
    /// the programs cannot be served together, or not on several connections.
    pub async fn rdma(self, connector: Arc<dyn Connector>, to: SocketAddr) -> Result<Client, ConnectError> {
        let Self { mut config, programs } = self;
        config.check_connections()?;
        if config.tls.is_some() {
            return Err(ConnectError::Invalid(
                "TLS over RPC-over-RDMA: RFC 9289 has it for TCP only".to_owned(),
            ));
        }
        let serves = !programs.is_empty();
        if serves && config.connections > 1 {
            return Err(ConnectError::Invalid(format!(
                "programs to serve on {} connections: the server would know this client by one of them only",
                config.connections
            )));
        }
        let protocol = &mut config.protocol;
        let programs = Programs::new(programs, config.reply_cache)
            .map_err(|error| ConnectError::Invalid(error.to_string()))?;
        protocol.bindings = Some(Arc::new(programs.bindings()));
        protocol.keep_connected |= serves;
        if !serves {
            // The single credit that it takes to answer that nothing is served.
            protocol.grant = 1;
        }
        let programs = Arc::new(programs);
        let domain = ProtectionDomain::new(config.memory);
        let connect = || {
            let (connector, programs) = (Arc::clone(&connector), Arc::clone(&programs));
            RdmaClient::connect(connector, to, config.clone(), domain.clone(), programs)
        };
        // The server sees one of them in set-up at a time.
        let mut links = Spread::new(Link::Rdma(connect().await?));
        while links.len() < config.connections {
            match connect().await {
                Ok(link) => links.add(Link::Rdma(link)),
                Err(error) => {
                    tell_fewer(to, links.len(), config.connections, &error);
                    break;
                }
            }
        }
        let asks_as = config.ccp.as_ref().and_then(|ccp| ccp.user().cloned());
        let client = Client { inner: Arc::new(Inner { to, links, asks_as }) };
        for link in client.inner.links.all() {
            if let Link::Rdma(link) = link {
                link.start(Attached::new(Forechannel(Arc::downgrade(&client.inner))));
            }
        }
        Ok(client)
    }

    /// Opens the client's TCP connections with record marking (RFC 5531 §11): one, or [`ClientConfig::connections`]. If
    /// the server refuses further ones, the client goes on with those that it has, as with [`rdma`](Self::rdma). Over
    /// TCP a server refuses by closing the connection. So the client calls NULL of [`program`](rpcrdma_proto::Config) on
    /// each further connection, if that is set.
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection; [`ConnectError::Invalid`] if there are programs to serve, which needs
    /// RPC-over-RDMA, or if the number of connections is not allowed.
    pub async fn tcp(self, to: SocketAddr) -> Result<Client, ConnectError> {
        self.config.check_connections()?;
        if !self.programs.is_empty() {
            let (count, plural) = (self.programs.len(), if self.programs.len() == 1 { "" } else { "s" });
            return Err(ConnectError::Invalid(format!(
                "{count} program{plural} to serve over TCP: clients serve over RPC-over-RDMA only (ClientBuilder::rdma)"
            )));
        }
        let config = &self.config;
        let domain = ProtectionDomain::new(config.memory);
        let connect = || TcpClient::connect(to, config.clone(), domain.clone());
        let mut links = Spread::new(Link::Tcp(connect().await?));
        while links.len() < config.connections {
            let opened = async {
                let link = connect().await.map_err(|error| error.to_string())?;
                if let Some((program, version)) = config.protocol.program {
                    let null = Call::new(program, version, 0).once();
                    link.call(null).await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(link)
            };
            match opened.await {
                Ok(link) => links.add(Link::Tcp(link)),
                Err(error) => {
                    tell_fewer(to, links.len(), config.connections, &error);
                    break;
                }
            }
        }
        Ok(Client { inner: Arc::new(Inner { to, links, asks_as: None }) })
    }
}

/// Tells that a server does not take as many connections as this client is to have.
fn tell_fewer(to: SocketAddr, open: usize, wanted: usize, error: &impl fmt::Display) {
    tracing::warn!(server = %to, open, wanted, %error, "going on with fewer connections than wanted");
}
