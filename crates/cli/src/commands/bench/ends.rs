//! Provider and address of the two ends of a benchmark.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rpcrdma_iwarp::Timeouts;
use rpcrdma_verbs::{Connector, Listener};

use super::failed;
use crate::commands::cannot_listen;
use crate::exit::Failure;
use crate::provider::{ProviderOptions, Settings};

/// Where a benchmark runs. The default is the loopback interface, where software iWARP is the provider.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) options: ProviderOptions,
    pub(super) address: IpAddr,
}

impl Default for Ends {
    fn default() -> Self {
        Self { options: ProviderOptions::default(), address: Ipv4Addr::LOCALHOST.into() }
    }
}

impl Ends {
    fn settings(&self) -> Settings<'_> {
        Settings { options: &self.options, no_crc: false, timeouts: Timeouts::default() }
    }

    /// Returns the way of the client to its server.
    pub(super) async fn connector(&self, to: SocketAddr) -> Result<Arc<dyn Connector>, Failure> {
        let (connector, _) = self.settings().connector(to).await.map_err(failed("connect"))?;
        Ok(connector)
    }

    /// Listens for the server, at a free port. Returns the name of the provider too.
    pub(super) async fn listen(&self) -> Result<(Box<dyn Listener>, &'static str), Failure> {
        self.listen_at(SocketAddr::new(self.address, 0)).await
    }

    /// Listens at this address. Returns the name of the provider too.
    pub(super) async fn listen_at(
        &self,
        at: SocketAddr,
    ) -> Result<(Box<dyn Listener>, &'static str), Failure> {
        let (listener, chosen) =
            self.settings().listen(&self.options.provider, at).await.map_err(cannot_listen(at))?;
        Ok((listener, chosen.name()))
    }
}
