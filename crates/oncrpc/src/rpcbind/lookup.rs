//! The address of a service in the answers of rpcbind.

use std::net::{IpAddr, SocketAddr};

use rpcrdma_xdr::Text;

use super::{AddressText, IPPROTO_TCP, Mapping, Netid, Rpcb, RpcbEntryList, RpcbList, UniversalAddress};

/// The search for one service. Each answer that a method takes has an address of it or not.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The transport.
    pub netid: Netid,
    /// The machine whose rpcbind answers. A service that listens on all addresses of the machine is assumed here.
    pub host: IpAddr,
}

impl Lookup {
    /// Returns the question of versions 3 and 4.
    #[must_use]
    pub fn question(&self) -> Rpcb {
        let Self { program, version, netid, .. } = *self;
        Rpcb { program, version, netid: netid.as_str().into(), ..Rpcb::default() }
    }

    /// Returns the question of version 2, for TCP over IPv4.
    #[must_use]
    pub const fn mapping(&self) -> Mapping {
        Mapping { program: self.program, version: self.version, protocol: IPPROTO_TCP, port: 0 }
    }

    /// Returns the address in the answer to GETADDR.
    #[must_use]
    pub fn in_address(&self, AddressText(address): &AddressText) -> Option<SocketAddr> {
        self.usable(address)
    }

    /// Returns the address in the answer to GETADDRLIST.
    #[must_use]
    pub fn in_entries(&self, RpcbEntryList(entries): &RpcbEntryList) -> Option<SocketAddr> {
        let mut ours = entries.iter().filter(|entry| entry.netid == *self.netid.as_str());
        ours.find_map(|entry| self.usable(&entry.address))
    }

    /// Returns the address in the answer of version 3 or 4 to DUMP.
    #[must_use]
    pub fn in_list(&self, RpcbList(entries): &RpcbList) -> Option<SocketAddr> {
        let mut ours = entries.iter().filter(|entry| {
            entry.netid == *self.netid.as_str()
                && (entry.program, entry.version) == (self.program, self.version)
        });
        ours.find_map(|entry| self.usable(&entry.address))
    }

    /// Returns the address with the port that GETPORT returned. Port 0, and those beyond 16 bits, are none.
    #[must_use]
    pub fn at_port(&self, port: u32) -> Option<SocketAddr> {
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        Some(SocketAddr::new(self.host, port))
    }

    /// Returns an address of the right family with a port, and with a wildcard replaced by the machine that was asked.
    fn usable(&self, text: &Text) -> Option<SocketAddr> {
        let UniversalAddress(mut address) = text.to_str()?.parse().ok()?;
        if address.ip().is_unspecified() {
            address.set_ip(self.host);
        }
        (address.is_ipv6() == self.netid.is_ipv6() && address.port() != 0).then_some(address)
    }
}

#[cfg(test)]
mod tests;
