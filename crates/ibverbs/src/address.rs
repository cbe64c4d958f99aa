//! Socket addresses in the form of the C library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// Returns an address in the form of the C library.
pub(crate) fn to_c(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: every field is an integer or an array of them, for which zeros are a value.
    #[allow(unsafe_code)]
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let target = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            let value = sockaddr_in {
                sin_family: family(AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is long enough and aligned for every kind of address.
            #[allow(unsafe_code)]
            unsafe {
                target.cast::<sockaddr_in>().write(value);
            }
        }
        SocketAddr::V6(address) => {
            let value = sockaddr_in6 {
                sin6_family: family(AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe {
                target.cast::<sockaddr_in6>().write(value);
            }
        }
    }
    storage
}

/// Returns the address in this storage; `None` if it is not one of IP.
pub(crate) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let source = &raw const *storage;
    match i32::from(storage.ss_family) {
        AF_INET => {
            // SAFETY: the storage is long enough and aligned, and its family is that of this type.
            #[allow(unsafe_code)]
            let value = unsafe { source.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(value.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(value.sin_port)))
        }
        AF_INET6 => {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let value = unsafe { source.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
            let port = u16::from_be(value.sin6_port);
            Some(SocketAddrV6::new(ip, port, value.sin6_flowinfo, value.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn family(family: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(family).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["192.0.2.1:20049", "0.0.0.0:0", "[2001:db8::1]:20049", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(from_c(&to_c(address)), Some(address));
        }
        // SAFETY: zeros are a value.
        #[allow(unsafe_code)]
        let nothing: sockaddr_storage = unsafe { std::mem::zeroed() };
        assert_eq!(from_c(&nothing), None);
    }
}
