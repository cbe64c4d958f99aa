//! Terms of an export: which clients it admits, and what each client gets.
//!
//! Each call asks here, because nothing about a client is remembered between calls. So after a change of the exports the next
//! call has the new terms. So the decision takes a look-up for each length of prefix in use, however many networks
//! there are.
//!
//! *Buffers.* The table has one entry for each network. A decision allocates nothing.
//!
//! *Errors.* None: a client without terms is not admitted.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use ipnet::IpNet;
use rpcrdma_oncrpc::Credential;

use super::exports::{Export, Squash};
use super::security::Security;
use crate::fs::Identity;

/// Options of an export for some of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether clients may not change anything.
    pub read_only: bool,
    /// Whether callers over TCP must use a source port below 1024 ([`Export::secure`]).
    pub secure: bool,
    /// Callers that act as [`Self::anonymous`].
    pub squash: Squash,
    /// Identity of callers without one.
    pub anonymous: Identity,
    /// Flavours that calls may have, the preferred one first; never empty.
    pub security: Vec<Security>,
    /// Other terms for calls of some of these flavours, as several `sec=` of exports(5) give them. The first terms
    /// with the flavour of a call decide, and their own `apart` has no meaning. None for most clients.
    pub apart: Vec<Self>,
}

impl Terms {
    /// Returns the terms for calls of this flavour.
    #[must_use]
    pub fn of(&self, flavor: Security) -> &Self {
        self.apart.iter().find(|terms| terms.security.contains(&flavor)).unwrap_or(self)
    }

    /// Returns whether a caller with this user ID acts as [`Self::anonymous`].
    pub(super) fn squashes(&self, user: u32) -> bool {
        match self.squash {
            Squash::Everybody => true,
            Squash::Root => user == 0,
            Squash::Nobody => false,
        }
    }

    /// Returns the identity under which a caller acts. For callers of RPCSEC_GSS that is [`Self::anonymous`]: the server
    /// gives the user of their principal as AUTH_SYS.
    #[must_use]
    pub fn identity(&self, credential: &Credential) -> Identity {
        let Credential::Sys(sys) = credential else { return self.anonymous.clone() };
        let squashed_group = |gid: u32| {
            if gid == 0 && self.squash == Squash::Root { self.anonymous.gid } else { gid }
        };
        if self.squashes(sys.uid) {
            return self.anonymous.clone();
        }
        Identity {
            uid: sys.uid,
            gid: squashed_group(sys.gid),
            groups: sys.gids.iter().copied().map(squashed_group).collect(),
        }
    }
}

/// Terms for clients of some networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// Networks of the clients.
    pub networks: Vec<IpNet>,
    /// Terms of these clients.
    pub terms: Terms,
}

/// Number of terms in [`Clients::terms`].
type Number = usize;
/// Number of the export's own terms.
const OWN: Number = 0;

/// Networks of one address family by the length of their prefix, the longest first.
#[derive(Debug)]
struct Networks<A> {
    levels: Vec<(A, HashMap<A, Number>)>,
}

impl<A> Networks<A>
where
    A: Copy + Eq + Hash + Ord + std::ops::BitAnd<Output = A>,
{
    /// Adds the network with this mask. Of two terms for one network the first stay.
    fn add(&mut self, network: A, mask: A, terms: Number) {
        // A longer prefix has the greater mask.
        let level = match self.levels.binary_search_by(|(other, _)| mask.cmp(other)) {
            Ok(level) => level,
            Err(level) => {
                self.levels.insert(level, (mask, HashMap::new()));
                level
            }
        };
        if let Some((_, networks)) = self.levels.get_mut(level) {
            networks.entry(network & mask).or_insert(terms);
        }
    }

    fn find(&self, address: A) -> Option<Number> {
        self.levels.iter().find_map(|(mask, networks)| networks.get(&(address & *mask)).copied())
    }
}

/// The clients of an export, with the terms of each.
#[derive(Debug)]
pub(super) struct Clients {
    /// The export's own terms, then those of its rules.
    terms: Vec<Terms>,
    /// Whether clients of no network have the export's own terms.
    open: bool,
    four: Networks<u32>,
    six: Networks<u128>,
}

impl Clients {
    pub(super) fn new(export: &Export) -> Self {
        let mut clients = Self {
            terms: vec![export.terms()],
            open: export.allow.is_everybody(),
            four: Networks { levels: Vec::new() },
            six: Networks { levels: Vec::new() },
        };
        clients.add(export.allow.networks(), OWN);
        for rule in &export.rules {
            clients.add(&rule.networks, clients.terms.len());
            clients.terms.push(rule.terms.clone());
        }
        clients
    }

    fn add(&mut self, networks: &[IpNet], terms: Number) {
        for network in networks {
            match network {
                IpNet::V4(network) => {
                    self.four.add(network.network().to_bits(), network.netmask().to_bits(), terms);
                }
                IpNet::V6(network) => {
                    self.six.add(network.network().to_bits(), network.netmask().to_bits(), terms);
                }
            }
        }
    }

    /// Returns the terms for a client, those of the smallest network that contains its address. `None` if the export does
    /// not admit the client. A client without an address belongs to no network.
    pub(super) fn find(&self, peer: Option<IpAddr>) -> Option<&Terms> {
        let number = match peer.map(|peer| peer.to_canonical()) {
            Some(IpAddr::V4(peer)) => self.four.find(peer.to_bits()),
            Some(IpAddr::V6(peer)) => self.six.find(peer.to_bits()),
            None => None,
        };
        self.terms.get(number.or(self.open.then_some(OWN))?)
    }

    /// Returns whether any client may use Kerberos.
    pub(super) fn use_kerberos(&self) -> bool {
        self.terms.iter().flat_map(|terms| &terms.security).any(|flavor| flavor.is_kerberos())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rpcrdma_oncrpc::AuthSys;

    use super::super::NOBODY;
    use super::*;
    use crate::fs::{MemoryFs, MemoryOptions};

    fn export() -> Export {
        Export::new("/", Arc::new(MemoryFs::new(MemoryOptions::default())))
    }

    fn admits(export: &Export, peer: &str) -> bool {
        Clients::new(export).find(Some(peer.parse().unwrap())).is_some()
    }

    fn sys(uid: u32, gid: u32, gids: Vec<u32>) -> Credential {
        Credential::Sys(AuthSys { uid, gid, gids, ..AuthSys::default() })
    }

    #[test]
    fn networks() {
        let mut export = export();
        assert!(admits(&export, "192.0.2.1"));
        assert!(Clients::new(&export).find(None).is_some());
        export.allow = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()].into();
        assert!(admits(&export, "192.0.2.1"));
        assert!(admits(&export, "::ffff:192.0.2.1"), "IPv4 on an IPv6 socket");
        assert!(admits(&export, "2001:db8::1"));
        assert!(!admits(&export, "192.0.3.1"));
        assert!(Clients::new(&export).find(None).is_none(), "nobody knows from where");
        export.allow = vec!["0.0.0.0/0".parse().unwrap()].into();
        assert!(admits(&export, "203.0.113.9") && !admits(&export, "2001:db8::1"));
        // A list that became empty opens nothing.
        export.allow = Vec::new().into();
        for peer in ["192.0.2.1", "127.0.0.1", "::1"] {
            assert!(!admits(&export, peer), "{peer}");
        }
        assert!(Clients::new(&export).find(None).is_none());
        assert_eq!(export.admitted(), Some(Vec::new()));
    }

    #[test]
    fn the_smallest_network_decides() {
        let mut export = export();
        let read_only = |networks: &[&str], read_only| ClientRule {
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            terms: Terms { read_only, ..export.terms() },
        };
        let rules = vec![
            read_only(&["10.0.0.0/8", "2001:db8::/32"], true),
            read_only(&["10.1.0.0/16", "2001:db8:1::/48"], false),
            read_only(&["10.1.2.3/32"], true),
            // The first rule for a network stays.
            read_only(&["10.1.2.3/32", "10.0.0.0/8"], false),
        ];
        export.rules = rules;
        export.allow = vec!["192.0.2.1/32".parse().unwrap()].into();
        let clients = Clients::new(&export);
        let of = |peer: &str| clients.find(Some(peer.parse().unwrap())).map(|terms| terms.read_only);
        for (peer, expected) in [
            ("10.200.0.1", Some(true)),
            ("10.1.9.9", Some(false)),
            ("10.1.2.3", Some(true)),
            ("192.0.2.1", Some(false)),
            ("192.0.2.2", None),
            ("2001:db8:9::1", Some(true)),
            ("2001:db8:1::1", Some(false)),
            ("2001:db9::1", None),
        ] {
            assert_eq!(of(peer), expected, "{peer}");
        }
    }

    #[test]
    fn squashing() {
        let mut terms = export().terms();
        let nobody = terms.anonymous.clone();
        let user = Identity { uid: 5, gid: 6, groups: vec![7] };
        assert_eq!(terms.identity(&sys(0, 0, vec![0])), nobody);
        assert_eq!(terms.identity(&sys(5, 6, vec![7])), user);
        // Group 0 is root's too.
        assert_eq!(terms.identity(&sys(5, 0, vec![0, 7])).gid, NOBODY);
        assert_eq!(terms.identity(&sys(5, 0, vec![0, 7])).groups, [NOBODY, 7]);
        assert_eq!(terms.identity(&Credential::None), nobody);
        terms.squash = Squash::Nobody;
        assert_eq!(terms.identity(&sys(0, 0, vec![])), Identity::superuser());
        terms.squash = Squash::Everybody;
        assert_eq!(terms.identity(&sys(5, 6, vec![7])), nobody);
    }
}
