//! The provider against the contract of `rpcrdma-verbs`, on sockets of the loopback interface.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};

use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener, LargeFpdu};
use rpcrdma_provider_tests::Fixture;
use rpcrdma_verbs::{BoxFuture, Connector, Listener};

struct Iwarp(Config);

impl Iwarp {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        change(&mut config);
        Self(config)
    }
}

impl Fixture for Iwarp {
    fn connector(&self) -> Box<dyn Connector> {
        Box::new(IwarpConnector::new(self.0.clone()))
    }

    fn listen(&self) -> BoxFuture<'_, Box<dyn Listener>> {
        Box::pin(async {
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            Box::new(IwarpListener::bind(any_port, self.0.clone()).await.unwrap()) as Box<dyn Listener>
        })
    }

    fn max_private_data(&self) -> usize {
        // RFC 6581 §6: the enhanced data takes four of 512 bytes.
        508
    }

    fn places_directly(&self) -> bool {
        !self.0.strict_crc
    }
}

mod defaults {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test]
        => Iwarp::new(|_| {})
    }
}

mod strict_crc {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test]
        => Iwarp::new(|config| config.strict_crc = true)
    }
}

mod peer_to_peer_without_crc {
    use super::*;

    rpcrdma_provider_tests::tests! {
        #[tokio::test]
        => Iwarp::new(|config| {
            config.peer_to_peer = true;
            config.crc = false;
            config.large_fpdu = LargeFpdu::Flagged;
        })
    }
}
