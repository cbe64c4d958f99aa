//! Whether an address belongs to this machine, by the kernel's choice of a route to it (`rtnetlink(7)`).
//!
//! A route to another machine is of type `RTN_UNICAST`, or refuses traffic. Each other type ends here: the addresses of
//! interfaces, those that a route alone makes local, broadcast and anycast. Binding a socket to the address would be a
//! weaker test: it fails for anycast, and where ports or file descriptors are used up.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use rustix::io::Errno;

use super::netlink::{Message, Netlink, number};
use super::{IPV4, IPV6, bytes_of, scope};

/// `RTM_NEWROUTE` and `RTM_GETROUTE` of `linux/rtnetlink.h`.
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// `RTA_DST`, `RTA_OIF`.
const DESTINATION: u16 = 1;
const INTERFACE: u16 = 4;
/// Offset of the type in `struct rtmsg`.
const TYPE: usize = 7;
/// `RTN_UNICAST`, and from `RTN_BLACKHOLE` to `RTN_THROW`.
const UNICAST: u8 = 1;
const REFUSING: RangeInclusive<u8> = 6..=9;

/// The place of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On this machine.
    Here,
    /// On another machine.
    Elsewhere,
    /// The kernel reports no routes.
    Unknown,
}

/// The kernel's routes.
#[derive(Debug)]
pub(super) struct Routes {
    netlink: io::Result<Netlink>,
}

impl Routes {
    /// Tests, on an address of our own, whether the kernel can be asked here.
    pub(super) fn new() -> Self {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let netlink = Netlink::open(None).and_then(|netlink| {
            let known = ask(&netlink, own)?;
            known
                .then_some(netlink)
                .ok_or_else(|| io::Error::other("it does not know the server's own address"))
        });
        Self { netlink }
    }

    /// Creates routes without a kernel that can be asked.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { netlink: Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Returns the place of a connection's peer; our end is at `local`.
    pub(super) fn place(&self, local: SocketAddr, peer: SocketAddr) -> Place {
        if peer.ip().to_canonical().is_loopback() || peer.ip().to_canonical() == local.ip().to_canonical() {
            return Place::Here;
        }
        match &self.netlink {
            Err(_) => Place::Unknown,
            Ok(netlink) => judge(ask(netlink, peer)),
        }
    }
}

/// Judges an answer. On the safe side: an address is of this machine unless the kernel says otherwise.
fn judge(answer: io::Result<bool>) -> Place {
    match answer {
        Ok(false) => Place::Elsewhere,
        Ok(true) => Place::Here,
        Err(error) => match Errno::from_io_error(&error) {
            // Our own addresses have routes.
            Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS) => Place::Elsewhere,
            _ => {
                tracing::warn!(%error, "the kernel did not report whether an address belongs to this machine");
                Place::Here
            }
        },
    }
}

/// Returns whether the route to `peer` ends on this machine.
fn ask(netlink: &Netlink, peer: SocketAddr) -> io::Result<bool> {
    netlink.ask(GET_ROUTE, &question(peer), |answer| ends_here(&answer))
}

/// Returns `struct rtmsg` and its attributes.
fn question(peer: SocketAddr) -> Vec<u8> {
    let destination = peer.ip().to_canonical();
    let (family, bits) = if destination.is_ipv4() { (IPV4, 32) } else { (IPV6, 128) };
    let mut bytes = vec![family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attribute(&mut bytes, DESTINATION, &bytes_of(destination));
    // Without its link, a link-local address is ambiguous.
    if scope(peer) != 0 {
        attribute(&mut bytes, INTERFACE, &scope(peer).to_ne_bytes());
    }
    bytes
}

/// Appends a `struct rtattr`.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
}

fn ends_here(answer: &Message<'_>) -> io::Result<bool> {
    let [kind] = number(answer.body, TYPE)?;
    if answer.kind != NEW_ROUTE {
        let other = format!("an answer of type {}", answer.kind);
        return Err(io::Error::new(io::ErrorKind::InvalidData, other));
    }
    Ok(kind != UNICAST && !REFUSING.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_an_error_does_not_put_an_address_elsewhere() {
        assert_eq!(judge(Ok(true)), Place::Here);
        assert_eq!(judge(Ok(false)), Place::Elsewhere);
        for elsewhere in [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::ACCESS] {
            assert_eq!(judge(Err(elsewhere.into())), Place::Elsewhere);
        }
        for here in [Errno::ADDRINUSE, Errno::INVAL, Errno::MFILE, Errno::NOBUFS, Errno::AGAIN, Errno::NODEV]
        {
            assert_eq!(judge(Err(here.into())), Place::Here, "{here}");
        }
        assert_eq!(judge(Err(io::ErrorKind::InvalidData.into())), Place::Here);
    }

    #[test]
    fn i5_answers_that_are_cut_off_or_of_something_else() {
        let mut body = [0; 12];
        for (kind, here) in [(1, false), (2, true), (3, true), (4, true), (6, false), (9, false), (10, true)]
        {
            body[TYPE] = kind;
            assert_eq!(ends_here(&Message { kind: NEW_ROUTE, body: &body }).unwrap(), here);
        }
        assert!(ends_here(&Message { kind: GET_ROUTE, body: &body }).is_err());
        for length in 0..=TYPE {
            assert!(ends_here(&Message { kind: NEW_ROUTE, body: &body[..length] }).is_err(), "{length}");
        }
    }

    #[test]
    fn without_routes_only_what_needs_none_is_known() {
        let routes = Routes::none();
        let address = |address: &str| address.parse().unwrap();
        let place = |local: &str, peer: &str| routes.place(address(local), address(peer));
        assert_eq!(place("192.0.2.1:1", "127.0.0.9:2"), Place::Here);
        assert_eq!(place("[::ffff:192.0.2.1]:1", "192.0.2.1:2"), Place::Here);
        assert_eq!(place("192.0.2.1:1", "192.0.2.2:2"), Place::Unknown);
    }
}
