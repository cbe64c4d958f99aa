//! [`RpcbindService`]: a program that answers questions to rpcbind about the services of one server, where that server
//! listens.
//!
//! RFC 5666 §10 lets clients reach the portmapper on the RDMA interconnect itself. A client asks there over its RDMA
//! connection, perhaps the only one that it has. The operator of the server makes announcements, not calls: SET and
//! UNSET return FALSE, as rpcbind does to other machines. CALLIT and similar procedures, by which rpcbind makes calls
//! for others, do not exist here.

use std::ops::RangeInclusive;

use rpcrdma_oncrpc::rpcbind::{
    AddressText, IPPROTO_TCP, Mapping, MappingList, Netid, PROGRAM, Registration, Rpcb, RpcbEntry,
    RpcbEntryList, RpcbList, VERSION_2, VERSION_4, procedure,
};
use rpcrdma_oncrpc::{
    CallContext, CallFailure, Effect, ProcedureInfo, Program, ResponseFuture, TransportKind,
};
use rpcrdma_proto::Binding;
use rpcrdma_xdr::{Decoder, Stream, encode};

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

    fn answer(&self, context: &CallContext, arguments: Decoder) -> Result<Stream, CallFailure> {
        let results = match (context.version, context.procedure) {
            (VERSION_2, procedure::SET | procedure::UNSET) => {
                arguments.decode_all::<Mapping>()?;
                encode(&false)?
            }
            (VERSION_2, procedure::GETPORT) => {
                let asked: Mapping = arguments.decode_all()?;
                let found = self.find(asked.program, asked.version, Netid::Tcp);
                // Version 2 cannot name RDMA.
                encode(
                    &found
                        .filter(|_| asked.protocol == IPPROTO_TCP)
                        .map_or(0, |found| found.address.port().into()),
                )?
            }
            (VERSION_2, procedure::DUMP) => {
                arguments.finish()?;
                encode(&MappingList(self.services.iter().filter_map(Registration::mapping).collect()))?
            }
            (_, procedure::SET | procedure::UNSET) => {
                arguments.decode_all::<Rpcb>()?;
                encode(&false)?
            }
            (_, procedure::GETADDR) => {
                let asked: Rpcb = arguments.decode_all()?;
                // RFC 1833 §2.2.1: on the transport of the call, whatever netid it names.
                let found = self.find(asked.program, asked.version, netid_of(context));
                encode(&AddressText(found.map(|found| found.announcement().address).unwrap_or_default()))?
            }
            (_, procedure::DUMP) => {
                arguments.finish()?;
                encode(&RpcbList(self.services.iter().map(Registration::announcement).collect()))?
            }
            (VERSION_4, procedure::GETADDRLIST) => {
                let asked: Rpcb = arguments.decode_all()?;
                let ours = self
                    .services
                    .iter()
                    .filter(|service| (service.program, service.version) == (asked.program, asked.version));
                encode(&RpcbEntryList(ours.map(entry).collect()))?
            }
            _ => return Err(CallFailure::ProcedureUnavailable),
        };
        Ok(results)
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

impl Program for RpcbindService {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION_2..=VERSION_4
    }

    fn procedure(&self, version: u32, procedure: u32) -> Option<ProcedureInfo> {
        let name = match (version, procedure) {
            (_, procedure::SET) => "SET",
            (_, procedure::UNSET) => "UNSET",
            (VERSION_2, procedure::GETPORT) => "GETPORT",
            (_, procedure::GETADDR) => "GETADDR",
            (_, procedure::DUMP) => "DUMP",
            (VERSION_4, procedure::GETADDRLIST) => "GETADDRLIST",
            _ => return None,
        };
        Some(ProcedureInfo { name, effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(std::future::ready(self.answer(&context, arguments)))
    }
}

impl Binding for RpcbindService {}
