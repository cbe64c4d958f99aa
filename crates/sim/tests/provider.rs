//! The fabric against the contract, with each kind of completion and on links of different speed.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rpcrdma_provider_tests::Fixture;
use rpcrdma_sim::{CompletionMode, Fabric, FabricConfig};
use rpcrdma_verbs::{BoxFuture, Connector, Listener};

struct Sim(Fabric);

impl Sim {
    fn new(config: FabricConfig) -> Self {
        Self(Fabric::on_tokio(config))
    }
}

impl Fixture for Sim {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(self.0.connector(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    fn listen(&self) -> BoxFuture<'_, Box<dyn Listener>> {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Box::pin(async move { Box::new(self.0.listen(address).unwrap()) as Box<dyn Listener> })
    }

    fn max_private_data(&self) -> usize {
        self.0.config().max_private_data
    }
}

mod local {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test(start_paused = true)]
        => Sim::new(FabricConfig { completion_mode: CompletionMode::Local, ..FabricConfig::default() })
    }
}

mod acknowledged {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test(start_paused = true)]
        => Sim::new(FabricConfig { completion_mode: CompletionMode::Acknowledged, ..FabricConfig::default() })
    }
}

/// A long latency with jitter, and late completions.
mod distant {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test(start_paused = true)]
        => Sim::new(FabricConfig {
            seed: 3,
            latency: Duration::from_millis(20),
            jitter: Duration::from_millis(5),
            completion_jitter: Duration::from_millis(3),
            segment_size: 1408,
            ..FabricConfig::default()
        })
    }
}

/// Transmission takes no time at all.
mod boundless {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test(start_paused = true)]
        => Sim::new(FabricConfig {
            bandwidth: None,
            latency: Duration::ZERO,
            completion_mode: CompletionMode::Acknowledged,
            ..FabricConfig::default()
        })
    }
}
