//! [`RpcbindService`]: a program that answers questions to rpcbind about the services of one server, where that server
//! listens.
//!
//! RFC 5666 §10 lets clients reach the portmapper on the RDMA interconnect itself. A client asks there over its RDMA
//! connection, perhaps the only one that it has. The operator of the server makes announcements, not calls: SET and
//! UNSET return FALSE, as rpcbind does to other machines. CALLIT and similar procedures, by which rpcbind makes calls
//! for others, do not exist here.

use std::sync::Arc;

use rpcrdma_oncrpc::rpcbind::{
    AddressText, IPPROTO_TCP, Mapping, MappingList, Netid, Registration, Rpcb, RpcbEntry, RpcbEntryList,
    RpcbList,
};
use rpcrdma_oncrpc::{CallContext, CallFailure, TransportKind};
use rpcrdma_proto::Binding;

use super::{version_2, version_3, version_4};

/// `nc_semantics` of connections with an orderly end (RFC 1833 §2.1).
const CONNECTION_ORDERLY: u32 = 3;

/// The program rpcbind, versions 2 to 4, with announcements that do not change. A server with this program answers
/// rpcbind's questions on its own connections (RFC 5666 §10).
#[derive(Debug, Clone)]
pub struct RpcbindService {
    services: Vec<Registration>,
}

impl RpcbindService {
    /// Creates a program that answers for these services.
    #[must_use]
    pub const fn new(services: Vec<Registration>) -> Self {
        Self { services }
    }

    /// Returns the program in all its versions, for a server.
    #[must_use]
    pub fn versions(self) -> [Arc<dyn Binding>; 3] {
        let service = Arc::new(self);
        [
            Arc::new(version_2::serve(Arc::clone(&service))),
            Arc::new(version_3::serve(Arc::clone(&service))),
            Arc::new(version_4::serve(service)),
        ]
    }

    /// Returns the service of this version. If there is none, returns that of another version, from which the caller
    /// learns the version (RFC 1833 §2.2.1, §3.2).
    fn find(&self, program: u32, version: u32, netid: Netid) -> Option<&Registration> {
        let mut known: Vec<_> = self
            .services
            .iter()
            .filter(|service| (service.program, service.netid) == (program, netid))
            .collect();
        known.sort_by_key(|service| service.version != version);
        known.first().copied()
    }

    fn address(&self, context: &CallContext, asked: &Rpcb) -> AddressText {
        // RFC 1833 §2.2.1: on the transport of the call, whatever netid it names.
        let found = self.find(asked.program, asked.version, netid_of(context));
        AddressText(found.map(|found| found.announcement().address).unwrap_or_default())
    }

    fn list(&self) -> RpcbList {
        RpcbList(self.services.iter().map(Registration::announcement).collect())
    }
}

impl version_2::Service for RpcbindService {
    async fn set(&self, _: &CallContext, _: Mapping) -> Result<bool, CallFailure> {
        Ok(false)
    }

    async fn unset(&self, _: &CallContext, _: Mapping) -> Result<bool, CallFailure> {
        Ok(false)
    }

    async fn getport(&self, _: &CallContext, asked: Mapping) -> Result<u32, CallFailure> {
        // Version 2 cannot name RDMA.
        let found = self.find(asked.program, asked.version, Netid::Tcp);
        let found = found.filter(|_| asked.protocol == IPPROTO_TCP);
        Ok(found.map_or(0, |found| found.address.port().into()))
    }

    async fn dump(&self, _: &CallContext) -> Result<MappingList, CallFailure> {
        Ok(MappingList(self.services.iter().filter_map(Registration::mapping).collect()))
    }
}

impl version_3::Service for RpcbindService {
    async fn set(&self, _: &CallContext, _: Rpcb) -> Result<bool, CallFailure> {
        Ok(false)
    }

    async fn unset(&self, _: &CallContext, _: Rpcb) -> Result<bool, CallFailure> {
        Ok(false)
    }

    async fn getaddr(&self, context: &CallContext, asked: Rpcb) -> Result<AddressText, CallFailure> {
        Ok(self.address(context, &asked))
    }

    async fn dump(&self, _: &CallContext) -> Result<RpcbList, CallFailure> {
        Ok(self.list())
    }
}

impl version_4::Service for RpcbindService {
    async fn set(&self, _: &CallContext, _: Rpcb) -> Result<bool, CallFailure> {
        Ok(false)
    }

    async fn unset(&self, _: &CallContext, _: Rpcb) -> Result<bool, CallFailure> {
        Ok(false)
    }

    async fn getaddr(&self, context: &CallContext, asked: Rpcb) -> Result<AddressText, CallFailure> {
        Ok(self.address(context, &asked))
    }

    async fn dump(&self, _: &CallContext) -> Result<RpcbList, CallFailure> {
        Ok(self.list())
    }

    async fn getaddrlist(&self, _: &CallContext, asked: Rpcb) -> Result<RpcbEntryList, CallFailure> {
        let ours = self
            .services
            .iter()
            .filter(|service| (service.program, service.version) == (asked.program, asked.version));
        Ok(RpcbEntryList(ours.map(entry).collect()))
    }
}

fn netid_of(context: &CallContext) -> Netid {
    // A dual-stack listener sees IPv4 clients under mapped addresses.
    let ip = context.peer.map_or(std::net::Ipv4Addr::LOCALHOST.into(), |peer| peer.ip().to_canonical());
    if context.transport == TransportKind::Tcp { Netid::tcp(ip) } else { Netid::rdma(ip) }
}

fn entry(service: &Registration) -> RpcbEntry {
    let Rpcb { address, netid, .. } = service.announcement();
    RpcbEntry {
        address,
        netid,
        semantics: CONNECTION_ORDERLY,
        protocol_family: if service.netid.is_ipv6() { "inet6" } else { "inet" }.into(),
        protocol: if service.netid.is_rdma() { "rdma" } else { "tcp" }.into(),
    }
}
