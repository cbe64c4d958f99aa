//! [`FailedReads`]: XIDs whose chunks could not be read, kept until the peer comes again.
//!
//! RFC 8166 §4.5.3: an RDMA Read that the peer's memory refuses costs the connection; on the next connection the Call
//! would cost that too. So the server remembers the XID by the peer's address, without the port, and answers the Call
//! by ERR_CHUNK. A client may have several connections, so the Call need not come again on the first new one. Each
//! connection that follows within a time learns the XIDs, and answers each once.
//!
//! An ERR_CHUNK is final, so an entry must not outlive its reason. A client sends a Call again as soon as it is
//! connected; after [`FailedReads::AGE`] the XID belongs to another call. Until then another program at that address
//! could meet the entry, by a Call with Read chunks under one of these XIDs out of 2^32.
//!
//! Entries are bounded in number, for each address or IPv6 network ([`Origin`]), and in age. An XID that does not fit
//! is forgotten, and its peer loses one more connection.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpcrdma_oncrpc::Origin;
use tokio::time::Instant;

/// XIDs whose chunks could not be read, by peer.
#[derive(Debug, Default)]
pub(crate) struct FailedReads {
    by_origin: Mutex<HashMap<Origin, VecDeque<Failed>>>,
}

#[derive(Debug)]
struct Failed {
    since: Instant,
    peer: IpAddr,
    xid: u32,
}

impl FailedReads {
    /// Most origins remembered.
    const MAX_ORIGINS: usize = 256;
    /// Most XIDs remembered for one origin.
    const MAX_XIDS: usize = 64;
    /// Age at which an XID is forgotten: the default time of a call.
    const AGE: Duration = Duration::from_secs(60);

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, VecDeque<Failed>>> {
        // A map of plain values stays consistent when a thread panics.
        self.by_origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the XIDs whose chunks a connection of this peer could not read. The oldest are forgotten first.
    pub(crate) fn put(&self, peer: Option<SocketAddr>, xids: &[u32], now: Instant) {
        let Some(peer) = peer.map(|peer| peer.ip().to_canonical()).filter(|_| !xids.is_empty()) else {
            return;
        };
        let origin = Origin::of(peer);
        let mut by_origin = self.lock();
        by_origin.retain(|_, known| forget_old(known, now));
        if by_origin.len() >= Self::MAX_ORIGINS && !by_origin.contains_key(&origin) {
            return;
        }
        let known = by_origin.entry(origin).or_default();
        for &xid in xids {
            known.retain(|other| (other.peer, other.xid) != (peer, xid));
            known.push_back(Failed { since: now, peer, xid });
        }
        known.drain(..known.len().saturating_sub(Self::MAX_XIDS));
    }

    /// Returns the XIDs that a new connection of this peer refuses.
    pub(crate) fn of(&self, peer: Option<SocketAddr>, now: Instant) -> Vec<u32> {
        let Some(peer) = peer.map(|peer| peer.ip().to_canonical()) else { return vec![] };
        let origin = Origin::of(peer);
        let mut by_origin = self.lock();
        let Some(known) = by_origin.get_mut(&origin) else { return vec![] };
        if !forget_old(known, now) {
            by_origin.remove(&origin);
            return vec![];
        }
        known.iter().filter(|failed| failed.peer == peer).map(|failed| failed.xid).collect()
    }
}

/// Removes old XIDs; returns whether any are left.
fn forget_old(known: &mut VecDeque<Failed>, now: Instant) -> bool {
    known.retain(|failed| now.saturating_duration_since(failed.since) < FailedReads::AGE);
    !known.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u16, port: u16) -> Option<SocketAddr> {
        let [high, low] = host.to_be_bytes();
        Some(SocketAddr::from(([192, 0, high, low], port)))
    }

    #[test]
    fn s4_5_3_each_connection_of_the_address_is_told_for_a_time() {
        let (failed, now) = (FailedReads::default(), Instant::now());
        failed.put(peer(1, 700), &[5, 6], now);
        for port in [800, 900] {
            assert_eq!(failed.of(peer(1, port), now + Duration::from_secs(59)), [5, 6]);
        }
        assert_eq!(failed.of(peer(2, 700), now), []);
        assert_eq!(failed.of(None, now), []);
        // An XID that comes again counts from then on.
        failed.put(peer(1, 800), &[5], now + Duration::from_secs(59));
        assert_eq!(failed.of(peer(1, 900), now + FailedReads::AGE), [5]);
        assert_eq!(failed.of(peer(1, 900), now + Duration::from_secs(59) + FailedReads::AGE), []);
        assert!(failed.lock().is_empty());
    }

    #[test]
    fn i6_what_is_remembered_is_bounded() {
        let (failed, now) = (FailedReads::default(), Instant::now());
        let many: Vec<u32> = (0..100).collect();
        failed.put(peer(0, 1), &many, now);
        assert_eq!(failed.of(peer(0, 1), now), many[36..]);
        for host in 1..=300 {
            failed.put(peer(host, 1), &[1], now);
        }
        assert_eq!(failed.lock().len(), FailedReads::MAX_ORIGINS);
        assert_eq!(failed.of(peer(256, 1), now), []);
        // The addresses of one IPv6 network count as one, and each meets its own XIDs only.
        let other = FailedReads::default();
        let at = |host: u16| Some(SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, host], 1)));
        for host in 0..300 {
            other.put(at(host), &[u32::from(host)], now);
        }
        assert_eq!((other.of(at(0), now), other.of(at(299), now)), (vec![], vec![299]));
        other.put(peer(1, 1), &[1], now);
        assert_eq!(other.of(peer(1, 1), now), [1]);
        // Old entries make way.
        failed.put(peer(256, 1), &[1], now + FailedReads::AGE);
        assert_eq!(failed.lock().len(), 1);
    }
}
