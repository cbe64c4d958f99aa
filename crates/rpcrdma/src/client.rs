//! [`Client`]: calls RPC programs of one server over RDMA or TCP.
//!
//! A client is one connection at a time that is opened again when it is lost, and any number of calls in flight on it.
//! Cloning shares it; it closes when the last clone is gone.
//!
//! A client can serve programs too, on the connection that it opened (RFC 8167): [`ClientBuilder::program`]. It then keeps its
//! connection also when it has nothing to call. One that serves none answers every Call of its server with PROG_UNAVAIL: it
//! has a Receive for one such Call and grants no more than that one credit.
//!
//! *Who owns which buffer.* A call's arguments and result sinks belong to the call until it ends; a DDP-eligible result is
//! handed out as a slice of its sink, without a copy.
//!
//! *What happens on error.* Every call ends with its reply or one [`CallError`] that says what is known about its
//! execution. Dropping a call's future abandons the answer, not the memory (rule I10).

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_oncrpc::CacheCounters;
use rpcrdma_proto::{
    Agreement, Binding, Characteristic, Characteristics, Disposition, NotExchanged, Notice, Profile, Stats,
    Thresholds,
};
use rpcrdma_verbs::{ConnectError, Connector, Counters, ProtectionDomain};
use tokio::sync::broadcast;

use crate::call::{Call, Reply, Transfer};
use crate::config::ClientConfig;
use crate::error::CallError;
use crate::programs::Programs;
use crate::rdma::client::RdmaClient;
use crate::tcp::client::TcpClient;
use crate::trace::Calling;

/// Calls RPC programs of one server; see the module's introduction. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    to: SocketAddr,
    link: Link,
}

enum Link {
    Rdma(RdmaClient),
    Tcp(TcpClient),
}

/// What a [`Client`] is made of.
#[derive(Default)]
pub struct ClientBuilder {
    config: ClientConfig,
    programs: Vec<Arc<dyn Binding>>,
}

/// A client as the handlers of its own programs see it.
pub(crate) struct Forechannel(Weak<Inner>);

impl Forechannel {
    pub(crate) fn client(&self) -> Option<Client> {
        Some(Client { inner: self.0.upgrade()? })
    }
}

/// What a client did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// Calls made.
    pub calls: u64,
    /// Calls that got no reply in time.
    pub timed_out: u64,
    /// Calls sent again after a connection was lost.
    pub retransmissions: u64,
    /// Connections opened.
    pub connections: u64,
    /// Connections that agreed by CONF_RDMA ([`ccp`](crate::ccp)).
    pub agreed: u64,
    /// Connections whose server has no CONF_RDMA, or refused it.
    pub not_agreed: u64,
    /// Calls of the server that were received, in the reverse direction.
    pub served: u64,
    /// What the cache of replies to those did.
    pub reply_cache: CacheCounters,
    /// Bytes of the client's memory in use.
    pub memory_in_use: usize,
    /// Bytes that were copied between the RDMA link and the memory of calls. Providers may copy what travels by Send; of
    /// payload in chunks nothing is.
    pub payload_bytes_copied: u64,
}

/// The counters of one RPC-over-RDMA connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Those of the protocol: messages by form, bytes by path, chunks, credits, errors.
    pub protocol: Stats,
    /// The version spoken, with its profile if it has any; `None` as long as that is not settled.
    pub version: Option<(u32, Option<Profile>)>,
    /// The inline thresholds of the moment.
    pub thresholds: Thresholds,
    /// What holds here, of transport characteristics; `None` where the version has none.
    pub characteristics: Option<Characteristics>,
    /// What the server has told of its own.
    pub peer_characteristics: Option<Characteristics>,
    /// What was agreed by CONF_RDMA ([`ccp`](crate::ccp)), if anything.
    pub agreement: Option<Agreement>,
    /// Those of the provider.
    pub link: Counters,
}

impl Client {
    /// Opens an RPC-over-RDMA connection by this provider. Later connections of the client go the same way.
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

    /// Makes a call and waits for its reply.
    ///
    /// The future may be dropped at any point: what was sent may then still be carried out.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::execution`] says what is known about the call's execution.
    pub async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let calling = Calling::new(&call);
        let result = match &self.inner.link {
            Link::Rdma(client) => client.call(call).await,
            Link::Tcp(client) => client.call(call).await,
        };
        calling.ended(Some(self.inner.to), &result);
        result
    }

    /// Calls procedure 0 of a program: it does nothing, so it shows that the server is there and how long a call takes.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub async fn null(&self, program: u32, version: u32) -> Result<Transfer, CallError> {
        let reply = self.call(Call::new(program, version, 0).name("NULL")).await?;
        reply.results.finish()?;
        Ok(reply.travelled)
    }

    /// The server.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.inner.to
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        match &self.inner.link {
            Link::Rdma(client) => client.stats(),
            Link::Tcp(client) => client.stats(),
        }
    }

    /// The counters of the present RPC-over-RDMA connection; `None` over TCP, and while there is no connection.
    #[must_use]
    pub fn connection_stats(&self) -> Option<ConnectionStats> {
        match &self.inner.link {
            Link::Rdma(client) => client.connection_stats(),
            Link::Tcp(_) => None,
        }
    }

    /// Waits until this client has opened more RPC-over-RDMA connections than `seen`; says how many
    /// ([`ClientStats::connections`]). A server knows a client that it calls by its connection: on each new one the client has
    /// to say again that it can be called. Never ready over TCP and when the client is closed.
    pub async fn connected_again(&self, seen: u64) -> u64 {
        match &self.inner.link {
            Link::Rdma(client) => client.connected_again(seen).await,
            Link::Tcp(_) => std::future::pending().await,
        }
    }

    /// Asks the server to change transport characteristics (Version Two, xcharext-02 §4.2) and waits for its answer. What it
    /// accepts for later comes as a [`Notice`]. Larger Receives are in effect when Calls have used up those of before: under P2,
    /// which knows no pending changes, the answer itself waits for that.
    ///
    /// # Errors
    /// [`NotExchanged`], also when the connection ends before the answer.
    pub async fn ask(
        &self,
        want: Vec<Characteristic>,
    ) -> Result<Vec<(Characteristic, Disposition)>, NotExchanged> {
        match &self.inner.link {
            Link::Rdma(client) => client.ask(want).await,
            Link::Tcp(_) => Err(NotExchanged::NotSpoken),
        }
    }

    /// Changes a transport characteristic of this client on the present connection, and tells the server. A larger receive
    /// size is in effect when a [`Notice::Own`] says so.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn change(&self, value: Characteristic) -> Result<(), NotExchanged> {
        match &self.inner.link {
            Link::Rdma(client) => client.change(value),
            Link::Tcp(_) => Err(NotExchanged::NotSpoken),
        }
    }

    /// News about transport characteristics from now on; never any over TCP. Who does not take them in time misses the oldest.
    #[must_use]
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        match &self.inner.link {
            Link::Rdma(client) => client.notices(),
            Link::Tcp(_) => broadcast::channel(1).1,
        }
    }

    /// Where this client's memory comes from: Buffers for arguments and results are best allocated here.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        match &self.inner.link {
            Link::Rdma(client) => client.domain(),
            Link::Tcp(client) => client.domain(),
        }
    }

    /// Refuses new calls, waits for those in progress (their timers bound that), then closes the connection in order. Calls of
    /// the server are served until then; those in progress get no answer.
    pub async fn close(&self) {
        match &self.inner.link {
            Link::Rdma(client) => client.close().await,
            Link::Tcp(client) => client.close().await,
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

    /// Serves this program to the server, on the client's own connection (RFC 8167). What it is granted and how long messages
    /// can be is in [`ClientConfig`].
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Binding>) -> Self {
        self.programs.push(program);
        self
    }

    /// Opens an RPC-over-RDMA connection by this provider. Later connections of the client go the same way.
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection; [`ConnectError::Invalid`] if the programs cannot be served together.
    pub async fn rdma(self, connector: Arc<dyn Connector>, to: SocketAddr) -> Result<Client, ConnectError> {
        let Self { mut config, programs } = self;
        let protocol = &mut config.protocol;
        let serves = !programs.is_empty();
        let programs = Programs::new(programs, config.reply_cache)
            .map_err(|error| ConnectError::Invalid(error.to_string()))?;
        protocol.bindings = Some(Arc::new(programs.bindings()));
        protocol.keep_connected |= serves;
        if !serves {
            // No more than it takes to say that nothing is served.
            protocol.grant = 1;
        }
        let client = RdmaClient::connect(connector, to, config, Arc::new(programs)).await?;
        let inner = Arc::new(Inner { to, link: Link::Rdma(client) });
        if let Link::Rdma(client) = &inner.link {
            client.start(Forechannel(Arc::downgrade(&inner)));
        }
        Ok(Client { inner })
    }

    /// Opens a TCP connection with record marking (RFC 5531 §11).
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection; [`ConnectError::Invalid`] if there are programs to serve: that is done over
    /// RPC-over-RDMA only.
    pub async fn tcp(self, to: SocketAddr) -> Result<Client, ConnectError> {
        if !self.programs.is_empty() {
            let (count, plural) = (self.programs.len(), if self.programs.len() == 1 { "" } else { "s" });
            return Err(ConnectError::Invalid(format!(
                "{count} program{plural} to serve over TCP: clients serve over RPC-over-RDMA only (ClientBuilder::rdma)"
            )));
        }
        let link = Link::Tcp(TcpClient::connect(to, self.config).await?);
        Ok(Client { inner: Arc::new(Inner { to, link }) })
    }
}
