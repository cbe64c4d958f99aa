//! [`PeerShares`]: the memory of a server, divided so that no address can take it all.
//!
//! All connections from one address, or IPv6 network ([`Origin`]), and the programs that answer its calls, draw on one
//! [share](ProtectionDomain::share) of the server's domain. A peer that reads slowly, or never answers an RDMA Read,
//! pins memory of its own share only; calls from other addresses find theirs (I6). Shares are
//! [fair](ProtectionDomain::fair_share): several addresses together cannot take all memory either, because the limit of
//! each shrinks with the free memory.
//!
//! *Buffers.* Connections and Buffers keep their share alive; the table only finds it again. An address that comes back
//! while Buffers of its old connections live gets the same share, so it cannot have two.
//!
//! *Errors.* Nothing here fails. A share that is used up refuses as any domain does.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rpcrdma_oncrpc::Origin;
use rpcrdma_verbs::{ProtectionDomain, WeakDomain};

/// Number of entries below which the table is not cleared out.
const FEW: usize = 64;

/// A domain with a share for each peer address. Cheap to clone; clones are the same shares.
///
/// All connections from one address, or IPv6 network ([`Origin`]), and the programs that answer its calls, draw on one
/// share. So a peer that reads slowly pins memory of its own share only.
#[derive(Debug, Clone)]
pub struct PeerShares {
    domain: ProtectionDomain,
    /// The part in which the addresses have their shares.
    divided: ProtectionDomain,
    /// The part for Receives, if they have one of their own.
    receives: Option<ProtectionDomain>,
    limit: usize,
    least: usize,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Peers without an address have one share together.
    by_peer: HashMap<Option<Origin>, WeakDomain>,
    /// Number of entries at which those of dropped shares are removed.
    full: usize,
}

impl PeerShares {
    /// Creates shares of `domain`, of at most `limit` bytes for each address. An address can hold that much while
    /// others hold nothing.
    #[must_use]
    pub fn new(domain: ProtectionDomain, limit: usize) -> Self {
        let limit = limit.min(domain.usage().limit);
        Self {
            domain: domain.clone(),
            divided: domain,
            receives: None,
            limit,
            least: 0,
            table: Arc::default(),
        }
    }

    /// Sets `bytes` of the domain aside for the Receives of RDMA connections; the addresses have their shares in the
    /// rest. A server divides that memory by [`least_credits`](crate::ServerConfig::least_credits).
    #[must_use]
    pub fn receives_apart(mut self, bytes: usize) -> Self {
        let rest = self.domain.usage().limit.saturating_sub(bytes);
        self.receives = Some(self.domain.share(bytes));
        self.divided = self.domain.share(rest);
        self.limit = self.limit.min(rest);
        self.least = self.least.min(self.limit);
        self
    }

    /// Returns the memory for Receives, if it was set aside.
    pub(crate) const fn receives(&self) -> Option<&ProtectionDomain> {
        self.receives.as_ref()
    }

    /// Sets the bytes that each address can hold however much others hold, as long as there is memory: the need of one
    /// connection. Applies to addresses that have no share yet.
    #[must_use]
    pub fn least(mut self, bytes: usize) -> Self {
        self.least = bytes;
        self
    }

    /// Returns the share of an address: that of its [`Origin`].
    #[must_use]
    pub fn of(&self, peer: Option<IpAddr>) -> ProtectionDomain {
        let peer = peer.map(Origin::of);
        // A map of plain values stays consistent when a thread panics.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = table.by_peer.get(&peer).and_then(WeakDomain::upgrade) {
            return share;
        }
        if table.by_peer.len() >= table.full {
            table.by_peer.retain(|_, share| share.upgrade().is_some());
            table.full = FEW.max(table.by_peer.len().saturating_mul(2));
        }
        let share = self.divided.fair_share(self.limit, self.least);
        table.by_peer.insert(peer, share.downgrade());
        share
    }

    /// Returns the whole domain.
    #[must_use]
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Returns the bytes that one address can hold while others hold nothing.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));

    #[test]
    fn i6_an_address_has_one_share_however_often_it_comes() {
        let shares = PeerShares::new(ProtectionDomain::new(1 << 20), 1 << 18);
        let buffer = shares.of(PEER).allocate(1 << 18, 1).unwrap();
        // The connection is gone, but its Buffer is not; and the same host may come through a dual-stack socket.
        let mapped = "::ffff:192.0.2.1".parse().ok();
        assert!(shares.clone().of(mapped).allocate(1, 1).is_err());
        assert!(shares.of(None).allocate(1 << 17, 1).is_ok());
        assert_eq!(shares.domain().usage().in_use, 1 << 18);
        drop(buffer);
        assert!(shares.of(PEER).allocate(1 << 18, 1).is_ok());
    }

    #[test]
    fn i6_the_addresses_of_one_ipv6_network_have_one_share() {
        let shares = PeerShares::new(ProtectionDomain::new(1 << 20), 1 << 18);
        let of = |address: &str| shares.of(address.parse().ok());
        let _buffer = of("2001:db8::1").allocate(1 << 18, 1).unwrap();
        assert!(of("2001:db8::ffff:2").allocate(1, 1).is_err());
        assert!(of("2001:db8:0:1::1").allocate(1 << 17, 1).is_ok());
    }

    #[test]
    fn i6_addresses_that_are_gone_are_forgotten() {
        let shares = PeerShares::new(ProtectionDomain::new(1 << 20), usize::MAX);
        assert_eq!(shares.limit(), 1 << 20);
        let kept = shares.of(PEER);
        for number in 0..10_000_u32 {
            drop(shares.of(Some(IpAddr::V4(Ipv4Addr::from(number)))));
        }
        let table = shares.table.lock().unwrap();
        assert!(table.by_peer.len() <= FEW, "{}", table.by_peer.len());
        assert!(table.by_peer.contains_key(&PEER.map(Origin::of)));
        drop(kept);
    }
}
