//! Announcing a service.

use std::net::SocketAddr;

use rpcrdma_xdr::EncodeError;

use super::{IPPROTO_TCP, Mapping, Netid, Request, Rpcb, UniversalAddress, VERSION_2};

/// A service to announce: [`unset`](Self::unset) what an earlier run left behind, [`set`](Self::set) when ready,
/// [`unset`](Self::unset) at the end. rpcbind takes both only from the machine it runs on (RFC 1833 §2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// The transport.
    pub netid: Netid,
    /// Where the service listens.
    pub address: SocketAddr,
    /// Name of the user who runs it; only that one may take the announcement back.
    pub owner: String,
}

impl Registration {
    /// The call that announces the service, to version `rpcbind` of rpcbind; its result says whether it did. None if
    /// that version can't name the transport: version 2 knows TCP over IPv4 only.
    pub fn set(&self, rpcbind: u32) -> Result<Option<Request<bool>>, EncodeError> {
        if rpcbind == VERSION_2 {
            return self.mapping().map(Request::set_mapping).transpose();
        }
        Request::set(rpcbind, &self.announcement()).map(Some)
    }

    /// The call that takes the announcement back; its result says whether there was one. None as for
    /// [`set`](Self::set).
    pub fn unset(&self, rpcbind: u32) -> Result<Option<Request<bool>>, EncodeError> {
        if rpcbind == VERSION_2 {
            return self.mapping().map(Request::unset_mapping).transpose();
        }
        Request::unset(rpcbind, &self.announcement()).map(Some)
    }

    /// The announcement, as versions 3 and 4 have it.
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

    /// The announcement, as version 2 has it, if it can name the transport.
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
