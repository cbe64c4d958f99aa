//! [`ClientBuilder`]: the settings of a client, and its first connections.
//!
//! *Errors.* Settings that cannot work are refused before anything is sent ([`ConfigError`]).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use rpcrdma_oncrpc::{Attached, InterceptService};
use rpcrdma_proto::Binding;
use rpcrdma_verbs::{Connector, ProtectionDomain};

use crate::call::Call;
use crate::client::Client;
use crate::config::ClientConfig;
use crate::connect::{self, ConfigError, ConnectError, Transport, Way};
use crate::endpoint::Endpoint;
use crate::links::Link;
use crate::programs::{Around, Programs};
use crate::rdma::client::RdmaClient;
use crate::spread::Spread;
use crate::tcp::client::TcpClient;

/// A builder of [`Client`]s.
///
/// ```no_run
/// use rpcrdma::{Client, ClientConfig, Transport};
///
/// # async fn example() -> Result<(), rpcrdma::ConnectError> {
/// let mut config = ClientConfig::default();
/// config.connections = 4;
/// let client = Client::builder().config(config).transport(Transport::tcp()).connect("server.example.org").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct ClientBuilder {
    config: ClientConfig,
    transport: Transport,
    programs: Vec<Arc<dyn Binding>>,
    interceptors: Vec<Arc<dyn InterceptService>>,
}

impl ClientBuilder {
    /// Sets limits and timers.
    #[must_use]
    pub fn config(mut self, config: ClientConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the transport. The default is RPC-over-RDMA by software iWARP.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Serves this program to the server, on the client's own connection (RFC 8167), which needs RPC-over-RDMA.
    /// [`ClientConfig`] sets the credits and the length of messages.
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Binding>) -> Self {
        self.programs.push(program);
        self
    }

    /// Puts an interceptor around the calls of the client's programs, inside of those given before. It sees the calls of
    /// the server, not those of the client.
    #[must_use]
    pub fn intercept_service(mut self, interceptor: impl InterceptService) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Opens the client's connections: one, or [`ClientConfig::connections`].
    ///
    /// The name of an [`Endpoint`] is resolved on a thread of its own. Its addresses are tried in the order of the
    /// resolver. [`Timeouts::connect`](crate::Timeouts::connect) bounds lookup and attempts together, and each attempt
    /// gets an equal part of the time left. All later connections go to the address that answered.
    ///
    /// If the server refuses further connections, the client goes on with those that it has ([`Client::connections`]),
    /// and says so in an event of level `WARN`. Over TCP a server refuses by closing the connection. So the client calls
    /// NULL of [`program`](rpcrdma_proto::Config::program) on each further connection, if that is set.
    ///
    /// # Errors
    /// [`ConnectError`] of the first connection; [`ConnectError::Config`] if the settings cannot work.
    pub async fn connect(self, endpoint: impl Into<Endpoint>) -> Result<Client, ConnectError> {
        let endpoint = endpoint.into();
        self.check()?;
        let Self { config, transport, programs, interceptors } = self;
        match transport.0.clone() {
            Way::Rdma(connector) => {
                let around = Around { interceptors, limits: None, slow: None };
                let programs =
                    Programs::new(programs, around, config.reply_cache).map_err(ConfigError::Program)?;
                rdma(&endpoint, &transport, connector, config, programs).await
            }
            Way::Tcp => tcp(&endpoint, &transport, &config).await,
        }
    }

    /// Refuses settings that cannot work.
    fn check(&self) -> Result<(), ConfigError> {
        let Self { config, transport, programs, .. } = self;
        config.check_connections()?;
        match transport.0 {
            Way::Rdma(_) if config.tls.is_some() => Err(ConfigError::TlsOverRdma),
            Way::Rdma(_) if !programs.is_empty() && config.connections > 1 => {
                Err(ConfigError::ServesOnSeveral { connections: config.connections })
            }
            Way::Rdma(_) => config.check_rdma(),
            Way::Tcp if programs.is_empty() => Ok(()),
            Way::Tcp => Err(ConfigError::ServesOverTcp { programs: programs.len() }),
        }
    }
}

/// Opens the RPC-over-RDMA connections of a client.
async fn rdma(
    endpoint: &Endpoint,
    transport: &Transport,
    connector: Arc<dyn Connector>,
    mut config: ClientConfig,
    programs: Programs,
) -> Result<Client, ConnectError> {
    let serves = programs.serves();
    let protocol = &mut config.protocol;
    protocol.bindings = Some(Arc::new(programs.bindings()));
    protocol.keep_connected |= serves;
    if !serves {
        // The single credit that it takes to answer that nothing is served.
        protocol.grant = 1;
    }
    let programs = Arc::new(programs);
    let domain = ProtectionDomain::new(config.memory);
    let open = |to, limit| {
        let (connector, programs) = (Arc::clone(&connector), Arc::clone(&programs));
        RdmaClient::connect(connector, (to, limit), config.clone(), domain.clone(), programs)
    };
    // The server sees one of them in set-up at a time.
    let limit = config.protocol.timeouts.connect;
    let (to, link) = connect::first(endpoint, transport, limit, open).await?;
    let mut links = Spread::new(Link::Rdma(link));
    while links.len() < config.connections {
        match open(to, limit).await {
            Ok(link) => links.add(Link::Rdma(link)),
            Err(error) => {
                tell_fewer(to, links.len(), config.connections, &error);
                break;
            }
        }
    }
    let asks_as = config.ccp.as_ref().and_then(|ccp| ccp.user().cloned());
    let client = Client::new(to, links, asks_as);
    for link in client.links().all() {
        if let Link::Rdma(link) = link {
            link.start(Attached::new(client.forechannel()));
        }
    }
    Ok(client)
}

/// Opens the TCP connections of a client.
async fn tcp(
    endpoint: &Endpoint,
    transport: &Transport,
    config: &ClientConfig,
) -> Result<Client, ConnectError> {
    let domain = ProtectionDomain::new(config.memory);
    let open = |to, limit| TcpClient::connect((to, limit), config.clone(), domain.clone());
    let limit = config.protocol.timeouts.connect;
    let (to, link) = connect::first(endpoint, transport, limit, open).await?;
    let mut links = Spread::new(Link::Tcp(link));
    while links.len() < config.connections {
        let opened = async {
            let link = open(to, limit).await.map_err(|error| error.to_string())?;
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
    Ok(Client::new(to, links, None))
}

/// Tells that a server does not take as many connections as this client is to have.
fn tell_fewer(to: SocketAddr, open: usize, wanted: usize, error: &impl fmt::Display) {
    tracing::warn!(server = %to, open, wanted, %error, "going on with fewer connections than wanted");
}
