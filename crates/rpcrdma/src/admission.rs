//! Limits on the connections of a server: in total, from one address or IPv6 network ([`Origin`]), and half open.
//!
//! Places are shared out fairly ([`is_fair`]): as places run out, the limit of an address shrinks. So a few addresses
//! cannot keep all others out (I6). An address without a place gets its first as long as any is free.
//!
//! The server takes a [`Place`] before it does anything else for a connection. The place becomes free when it is
//! dropped: when the connection has ended, and its last handler too. It keeps the connection's further credits that long,
//! since a handler may hold a message of the connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma_oncrpc::Origin;
use rpcrdma_verbs::is_fair;
use thiserror::Error;

use crate::credits::Further;
use crate::owners::NoOwner;

/// The reason why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum Refused {
    /// The server has as many connections as it allows.
    #[error("the server has {limit} connections, its limit")]
    Connections {
        /// The limit.
        limit: usize,
    },
    /// The address has as many connections as the server allows to one address.
    #[error("{peer} has {limit} connections, the limit for one address")]
    PerPeer {
        /// The address, or the network.
        peer: Origin,
        /// The limit.
        limit: usize,
    },
    /// The free places are for other addresses.
    #[error("{peer} has {held} connections, and {left} are left for all addresses")]
    Unfair {
        /// The address, or the network.
        peer: Origin,
        /// Connections of the address.
        held: usize,
        /// Free places.
        left: usize,
    },
    /// As many connections are being set up as the server allows.
    #[error("{limit} connections are being set up, the limit")]
    HalfOpen {
        /// The limit.
        limit: usize,
    },
    /// The address has half of the connections that may be set up at a time: one silent peer must not keep all others
    /// out.
    #[error("{peer} has {limit} connections being set up, the limit for one address")]
    HalfOpenPeer {
        /// The address, or the network.
        peer: Origin,
        /// The limit.
        limit: usize,
    },
    /// The free places for set-up are for other addresses.
    #[error("{peer} has {held} connections being set up, and {left} more may be for all addresses")]
    HalfOpenUnfair {
        /// The address, or the network.
        peer: Origin,
        /// Connections of the address that are being set up.
        held: usize,
        /// Free places.
        left: usize,
    },
    /// The connection comes from this machine, and its owner is unknown.
    #[error(transparent)]
    NoOwner(#[from] NoOwner),
}

/// The count of connections, with its limits.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    max_total: usize,
    max_per_peer: usize,
    max_half_open: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    half_open: usize,
    by_peer: HashMap<Origin, Count>,
}

/// Connections of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    total: usize,
    half_open: usize,
}

impl Admission {
    pub(crate) fn new(max_total: usize, max_per_peer: usize, max_half_open: usize) -> Self {
        Self { inner: Arc::new(Inner { max_total, max_per_peer, max_half_open, state: Mutex::default() }) }
    }

    /// Takes a place for a connection from `peer`. Without an address only the total counts.
    pub(crate) fn admit(&self, peer: Option<SocketAddr>, half_open: bool) -> Result<Place, Refused> {
        let peer = peer.map(|address| Origin::of(address.ip()));
        let Inner { max_total, max_per_peer, max_half_open, .. } = *self.inner;
        let mut state = self.inner.lock();
        if state.total >= max_total {
            return Err(Refused::Connections { limit: max_total });
        }
        if half_open && state.half_open >= max_half_open {
            return Err(Refused::HalfOpen { limit: max_half_open });
        }
        if let Some(peer) = peer {
            let Count { total, half_open: opening } = state.by_peer.get(&peer).copied().unwrap_or_default();
            if total >= max_per_peer {
                return Err(Refused::PerPeer { peer, limit: max_per_peer });
            }
            let left = max_total - state.total;
            if total > 0 && !is_fair(total + 1, left - 1, max_per_peer, max_total) {
                return Err(Refused::Unfair { peer, held: total, left });
            }
            let limit = max_half_open.div_ceil(2);
            if half_open && opening >= limit {
                return Err(Refused::HalfOpenPeer { peer, limit });
            }
            let left = max_half_open.saturating_sub(state.half_open);
            if half_open && opening > 0 && !is_fair(opening + 1, left - 1, limit, max_half_open) {
                return Err(Refused::HalfOpenUnfair { peer, held: opening, left });
            }
            let half_open = opening + usize::from(half_open);
            state.by_peer.insert(peer, Count { total: total + 1, half_open });
        }
        state.total += 1;
        state.half_open += usize::from(half_open);
        Ok(Place { inner: Arc::clone(&self.inner), peer, half_open, further: None })
    }

    /// Returns the number of connections now, half-open ones included.
    pub(crate) fn connections(&self) -> usize {
        self.inner.lock().total
    }

    /// Returns the number of connections that are being set up.
    pub(crate) fn half_open(&self) -> usize {
        self.inner.lock().half_open
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot interrupt a change half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts a connection of `peer` as no longer half open.
    fn opened(&mut self, peer: Option<Origin>) {
        self.half_open -= 1;
        if let Some(count) = peer.and_then(|peer| self.by_peer.get_mut(&peer)) {
            count.half_open -= 1;
        }
    }

    /// Removes a connection of `peer` from the counts.
    fn closed(&mut self, peer: Option<Origin>) {
        self.total -= 1;
        if let Some(peer) = peer
            && let Some(count) = self.by_peer.get_mut(&peer)
        {
            count.total -= 1;
            if count.total == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

/// The right to have one connection.
#[derive(Debug)]
pub(crate) struct Place {
    inner: Arc<Inner>,
    peer: Option<Origin>,
    half_open: bool,
    further: Option<Further>,
}

impl Place {
    /// Keeps these credits until the place is free.
    pub(crate) fn keep(&mut self, further: Option<Further>) {
        self.further = further;
    }

    /// Marks the connection as set up.
    pub(crate) fn opened(&mut self) {
        if std::mem::take(&mut self.half_open) {
            self.inner.lock().opened(self.peer);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.opened();
        self.inner.lock().closed(self.peer);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn peer(last: u8, port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, last], port)))
    }

    // requirement: rfc5042-3-2, rfc5042-6.4.1-1
    // requirement: rfc5040-8.1.2-2, rfc5041-8.3.2-3, rfc5041-8.3-5, rfc5041-8.3.2-1
    #[test]
    fn i6_each_limit_refuses_and_recovers() {
        let admission = Admission::new(3, 2, 1);
        let mut first = admission.admit(peer(1, 1), true).unwrap();
        assert_eq!(admission.admit(peer(2, 1), true).unwrap_err(), Refused::HalfOpen { limit: 1 });
        first.opened();
        let second = admission.admit(peer(1, 2), true).unwrap();
        assert!(matches!(admission.admit(peer(1, 3), false), Err(Refused::PerPeer { limit: 2, .. })));
        // The host of the first two connections, through a dual-stack socket.
        let mapped = "[::ffff:192.0.2.1]:9".parse().ok();
        assert!(matches!(admission.admit(mapped, false), Err(Refused::PerPeer { .. })));
        let third = admission.admit(peer(2, 1), false).unwrap();
        assert_eq!(admission.admit(peer(3, 1), false).unwrap_err(), Refused::Connections { limit: 3 });
        drop((first, second, third));
        assert_eq!(admission.connections(), 0);
        assert!(admission.inner.lock().by_peer.is_empty(), "no address is remembered for nothing");
        assert!(admission.admit(peer(1, 4), true).is_ok());
    }

    #[test]
    fn i6_the_addresses_of_one_ipv6_network_have_the_places_of_one() {
        let admission = Admission::new(100, 4, 8);
        let at = |host: u16| SocketAddr::from(([0x2001, 0xdb8, 0, 1, 0, 0, 0, host], 1));
        let mut places: Vec<Place> =
            (0..4).map(|host| admission.admit(Some(at(host)), host < 2).unwrap()).collect();
        let refused = admission.admit(Some(at(4)), false).unwrap_err();
        assert!(matches!(refused, Refused::PerPeer { limit: 4, .. }), "{refused}");
        assert!(refused.to_string().starts_with("2001:db8:0:1::/64 has 4"), "{refused}");
        places.truncate(2);
        places.extend((0..1).map(|_| admission.admit(Some(at(7)), true).unwrap()));
        let other = SocketAddr::from(([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1], 1));
        places.push(admission.admit(Some(other), true).unwrap());
        drop(places);
        assert!(admission.inner.lock().by_peer.is_empty());
    }

    #[test]
    fn i6_the_loopback_addresses_leave_places_for_other_machines() {
        // The defaults of a server.
        let (total, per_peer, half_open) = (512, 256, 64);
        for half in [false, true] {
            let admission = Admission::new(total, per_peer, half_open);
            // A user of this machine can bind sockets to any of these, and to ::1.
            let ipv4 = (1..).step_by(9999).map(|host| IpAddr::from(Ipv4Addr::from_bits(127 << 24 | host)));
            let addresses = ipv4.take(2 * total).chain([Ipv6Addr::LOCALHOST.into()]);
            let admitted = addresses.map(|address| admission.admit(Some(SocketAddr::new(address, 1)), half));
            let places: Vec<Place> = admitted.filter_map(Result::ok).collect();
            let other = admission.admit(peer(1, 1), half);
            assert!(other.is_ok(), "{} places are taken: {}", places.len(), other.unwrap_err());
            assert_eq!(places.len(), if half { half_open / 2 } else { per_peer });
        }
    }

    #[test]
    fn i6_one_silent_peer_leaves_room_for_others_to_connect() {
        let admission = Admission::new(100, 100, 4);
        let mut places: Vec<Place> =
            (0..2).map(|port| admission.admit(peer(1, port), true).unwrap()).collect();
        let refused = admission.admit(peer(1, 9), true).unwrap_err();
        assert!(matches!(refused, Refused::HalfOpenPeer { limit: 2, .. }), "{refused}");
        places.push(admission.admit(peer(2, 1), true).unwrap());
        // The last of four places is for an address that has none.
        let refused = admission.admit(peer(2, 2), true).unwrap_err();
        assert!(matches!(refused, Refused::HalfOpenUnfair { held: 1, left: 1, .. }), "{refused}");
        places.push(admission.admit(peer(3, 1), true).unwrap());
        assert_eq!(admission.admit(peer(4, 1), true).unwrap_err(), Refused::HalfOpen { limit: 4 });
        places[0].opened();
        places.push(admission.admit(peer(4, 1), true).unwrap());
        drop(places);
        assert!(admission.inner.lock().by_peer.is_empty());
        assert_eq!(admission.inner.lock().half_open, 0);
    }

    #[test]
    fn i6_a_few_addresses_do_not_keep_all_others_out() {
        for (addresses, each) in [(1, 256), (2, 170), (10, 46), (100, 5)] {
            let admission = Admission::new(512, 256, 64);
            let mut places = Vec::new();
            // In turns, until no address gets another place.
            loop {
                let before = places.len();
                places.extend((1..=addresses).filter_map(|last| admission.admit(peer(last, 1), false).ok()));
                if places.len() == before {
                    break;
                }
            }
            let held = places.len() / usize::from(addresses);
            assert!(held.abs_diff(each) <= 1, "{addresses}: {held}");
            // The places left over are as many as each address has. Newcomers get them.
            for last in 200..=204 {
                places.push(admission.admit(peer(last, 1), false).unwrap());
            }
        }
        // If one address may have all places, it gets them.
        let admission = Admission::new(8, 8, 8);
        let places: Vec<_> = (0..8).map(|port| admission.admit(peer(1, port), false).unwrap()).collect();
        assert_eq!(places.len(), 8);
    }
}
