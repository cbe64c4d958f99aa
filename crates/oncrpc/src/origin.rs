//! [`Origin`]: addresses that count as one client wherever a limit holds for each address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bits of an IPv6 address that name its network (RFC 4291 §2.5.1). The other 64 are its host's choice.
const NETWORK_BITS: u32 = 64;

/// The origin of a peer, for limits: an IPv4 address, all addresses of one IPv6 network of 64 bits, or all loopback
/// addresses.
///
/// A host can have any number of addresses of its IPv6 network, so a limit for each of them would be none. Hosts of one
/// network therefore share one limit. So do all hosts that come by link-local addresses, whatever their link. An IPv4
/// address on an IPv6 socket (RFC 4291 §2.5.5.2) counts as that IPv4 address.
///
/// Any user of this machine can bind sockets to each address of 127.0.0.0/8 (RFC 1122 §3.2.1.3 (g)). So all of these
/// addresses and `::1` are one origin, shown as 127.0.0.1.
///
/// Decisions about rights or identity must not use an origin but the whole address: which clients an export admits, and
/// to whom a call belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(IpAddr);

impl Origin {
    /// Returns the origin of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(address) => {
                let network = u128::MAX << (u128::BITS - NETWORK_BITS);
                Ipv6Addr::from_bits(address.to_bits() & network).into()
            }
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(network) => write!(f, "{network}/{NETWORK_BITS}"),
            IpAddr::V4(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_all_addresses_of_one_host_are_one_origin() {
        let of = |address: &str| Origin::of(address.parse().unwrap());
        for (address, origin) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
            ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
            ("fe80::1", "fe80::/64"),
            ("fe80::fc:ff:fe00:1", "fe80::/64"),
        ] {
            assert_eq!(of(address).to_string(), origin, "{address}");
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn i6_all_loopback_addresses_are_one_origin() {
        let of = |address: &str| Origin::of(address.parse().unwrap());
        for address in [
            "127.0.0.1",
            "127.0.0.2",
            "127.0.1.1",
            "127.255.255.254",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:127.9.9.9",
        ] {
            assert_eq!(of(address).to_string(), "127.0.0.1", "{address}");
            assert_eq!(of(address), of("127.0.0.1"), "{address}");
        }
        for address in ["126.255.255.255", "128.0.0.0", "::2", "192.0.2.1"] {
            assert_ne!(of(address), of("127.0.0.1"), "{address}");
        }
    }
}
