//! Connections to the server, with the settings of the command `rpcrdma`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use rpcrdma::tls::TlsClient;
use rpcrdma::{Client, ClientConfig, ConnectError, GssUser, Transport};
use rpcrdma_gssapi::{KerberosInitiator, OpenError};
use rpcrdma_iwarp::{Config, IwarpConnector, LargeFpdu};
use rpcrdma_oncrpc::gss::Service;

/// Time for a connection, and for each reply.
const LIMIT: Duration = Duration::from_secs(60);

/// Transport of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proto {
    /// RPC over RDMA, on software iWARP
    Rdma,
    /// RPC over TCP
    Tcp,
}

/// Security flavour of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flavor {
    /// AUTH_SYS
    Sys,
    /// Kerberos
    Krb5,
    /// Kerberos with integrity
    Krb5i,
    /// Kerberos with privacy
    Krb5p,
}

impl Flavor {
    /// Returns the user for calls to a server of this name; `None` for AUTH_SYS.
    pub(crate) fn user(self, server: &str) -> Result<Option<Arc<GssUser>>, OpenError> {
        let service = match self {
            Self::Sys => return Ok(None),
            Self::Krb5 => Service::None,
            Self::Krb5i => Service::Integrity,
            Self::Krb5p => Service::Privacy,
        };
        let initiator = Arc::new(KerberosInitiator::open(None, None)?);
        Ok(Some(Arc::new(GssUser::new(initiator, format!("nfs@{server}"), service))))
    }
}

/// Opens a connection whose messages and data take at most `memory` bytes at a time. Over TCP, `tls` may protect it.
pub(crate) async fn connect(
    proto: Proto,
    to: SocketAddr,
    memory: usize,
    tls: Option<TlsClient>,
) -> Result<Client, ConnectError> {
    let mut config = ClientConfig::default();
    config.memory = memory;
    config.tls = tls;
    config.protocol.timeouts.call = LIMIT;
    config.protocol.timeouts.connect = LIMIT;
    let transport = match proto {
        Proto::Rdma => {
            let mut iwarp = Config::default();
            iwarp.large_fpdu = LargeFpdu::Offered;
            Transport::rdma_on(Arc::new(IwarpConnector::new(iwarp)))
        }
        Proto::Tcp => Transport::tcp(),
    };
    Client::builder().config(config).transport(transport).connect(to).await
}
