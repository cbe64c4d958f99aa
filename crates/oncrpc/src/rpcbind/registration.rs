//! Announcements of services.

use std::net::SocketAddr;

use rpcrdma_xdr::EncodeError;

use super::{IPPROTO_TCP, Mapping, Netid, Request, Rpcb, UniversalAddress, VERSION_2};

/// A service to announce. At the start, [`unset`](Self::unset) removes announcements of an earlier run. When the service
/// is ready, [`set`](Self::set) announces it. At the end [`unset`](Self::unset) withdraws it. rpcbind accepts both only from its
/// own machine (RFC 1833 §2.2).
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
    /// Returns the call that announces the service, to version `rpcbind` of rpcbind; its result is whether rpcbind did.
    /// `None` if that version can't name the transport: version 2 has TCP over IPv4 only.
    pub fn set(&self, rpcbind: u32) -> Result<Option<Request<bool>>, EncodeError> {
        if rpcbind == VERSION_2 {
            return self.mapping().map(Request::set_mapping).transpose();
        }
        Request::set(rpcbind, &self.announcement()).map(Some)
    }

    /// Returns the call that withdraws the announcement; its result is whether there was one. `None` as for
    /// [`set`](Self::set).
    pub fn unset(&self, rpcbind: u32) -> Result<Option<Request<bool>>, EncodeError> {
        if rpcbind == VERSION_2 {
            return self.mapping().map(Request::unset_mapping).transpose();
        }
        Request::unset(rpcbind, &self.announcement()).map(Some)
    }

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

    /// Returns the announcement in the form of version 2, if that can name the transport.
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
