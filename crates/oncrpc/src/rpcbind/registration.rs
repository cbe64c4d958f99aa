//! Announcements of services.

use std::net::SocketAddr;

use super::{IPPROTO_TCP, Mapping, Netid, Rpcb, UniversalAddress};

/// A service to announce. At the start, UNSET removes announcements of an earlier run. When the service is ready, SET
/// announces it. At the end UNSET withdraws it. rpcbind accepts both only from its own machine (RFC 1833 §2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The transport.
    pub netid: Netid,
    /// The address on which the service listens.
    pub address: SocketAddr,
    /// Name of the user who runs the service; only that user may withdraw the announcement.
    pub owner: String,
}

impl Registration {
    /// Returns the announcement in the form of versions 3 and 4.
    #[must_use]
    pub fn announcement(&self) -> Rpcb {
        Rpcb {
            program: self.program,
            version: self.version,
            netid: self.netid.as_str().into(),
            address: UniversalAddress(self.address).to_string().into(),
            owner: self.owner.as_str().into(),
        }
    }

    /// Returns the announcement in the form of version 2, if that can name the transport: TCP over IPv4 only.
    #[must_use]
    pub fn mapping(&self) -> Option<Mapping> {
        (self.netid == Netid::Tcp).then(|| Mapping {
            program: self.program,
            version: self.version,
            protocol: IPPROTO_TCP,
            port: self.address.port().into(),
        })
    }
}
