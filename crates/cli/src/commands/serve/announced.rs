//! Registration with rpcbind by `serve --rpcbind`, and its removal at the end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rpcrdma::rpcbind::Rpcbind;
use rpcrdma_nfs::mount::{MOUNT_PROGRAM, MOUNT_VERSION};
use rpcrdma_nfs::wire::{NFS_PROGRAM, NFS_VERSION};
use rpcrdma_oncrpc::rpcbind::{Netid, Registration};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::exit::Failure;
use crate::output;

/// Returns the services to register, with the addresses at which clients reach them.
///
/// rpcbind knows one address for each program and transport: the first of several.
pub(super) fn services(rdma: &[SocketAddr], tcp: Option<SocketAddr>) -> Vec<Registration> {
    // IPv6 sockets accept IPv4 too, unless a system setting forbids it.
    let only = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    services_of(rdma, tcp, !only.is_ok_and(|only| only.trim() == "1"))
}

fn services_of(rdma: &[SocketAddr], tcp: Option<SocketAddr>, both_families: bool) -> Vec<Registration> {
    let reached_at = |listener| reached_at(listener, both_families);
    let service = |program, version, netid: fn(IpAddr) -> Netid| {
        move |address: SocketAddr| Registration {
            program,
            version,
            netid: netid(address.ip()),
            address,
            owner: "rpcrdma".to_owned(),
        }
    };
    let tcp = || tcp.into_iter().flat_map(reached_at);
    let mut services: Vec<Registration> = rdma
        .iter()
        .copied()
        .flat_map(reached_at)
        .map(service(NFS_PROGRAM, NFS_VERSION, Netid::rdma))
        .chain(tcp().map(service(NFS_PROGRAM, NFS_VERSION, Netid::tcp)))
        .chain(tcp().map(service(MOUNT_PROGRAM, MOUNT_VERSION, Netid::tcp)))
        .collect();
    let mut known = Vec::with_capacity(services.len());
    services.retain(|service| {
        let key = (service.program, service.netid.as_str());
        let first = !known.contains(&key);
        known.push(key);
        first
    });
    services
}

/// Returns the addresses at which clients reach a listener. A listener on all IPv6 addresses may accept IPv4
/// too, which is another transport to rpcbind.
fn reached_at(listener: SocketAddr, both_families: bool) -> impl Iterator<Item = SocketAddr> {
    let mapped = (both_families && listener.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED))
        .then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), listener.port()));
    std::iter::once(listener).chain(mapped)
}

/// Services registered with rpcbind.
#[derive(Default)]
pub(super) struct Announced {
    rpcbind: Option<Rpcbind>,
    services: Vec<Registration>,
}

impl Announced {
    pub(super) async fn make(services: Vec<Registration>) -> Result<Self, Failure> {
        let failed = |error: rpcrdma::rpcbind::RpcbindError| {
            Failure::failed(format!("cannot register: {error} (without --rpcbind, clients need the ports)"))
        };
        let rpcbind = Rpcbind::local().await.map_err(failed)?;
        let mut announced = Self { rpcbind: None, services: Vec::new() };
        for service in services {
            if let Err(error) = rpcbind.register(&service).await {
                announced.rpcbind = Some(rpcbind);
                announced.take_back().await;
                return Err(failed(error));
            }
            announced.services.push(service);
        }
        announced.rpcbind = Some(rpcbind);
        Ok(announced)
    }

    /// Takes the registrations back.
    pub(super) async fn take_back(self) {
        let Some(rpcbind) = self.rpcbind else { return };
        for service in &self.services {
            if let Err(error) = rpcbind.unregister(service).await {
                output::warn(format_args!("program {} stays registered: {error}", service.program));
            }
        }
    }
}

/// Takes registrations back that rpcbind may still be asked for, within the limit.
pub(super) async fn take_back_within(limit: Duration, announced: JoinHandle<Announced>) {
    let forgotten = async { announced.await.unwrap_or_default().take_back().await };
    if timeout(limit, forgotten).await.is_err() {
        tracing::warn!("rpcbind does not answer: registrations stay");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rdma: &str, tcp: Option<&str>) -> Vec<(u32, &'static str, String)> {
        let address = |text: &str| text.parse().expect("an address");
        let rdma: Vec<SocketAddr> = rdma.split(' ').map(address).collect();
        services_of(&rdma, tcp.map(address), true)
            .into_iter()
            .map(|service| (service.program, service.netid.as_str(), service.address.to_string()))
            .collect()
    }

    #[test]
    fn each_listener_is_announced_under_its_netid() {
        assert_eq!(
            told("192.0.2.1:20049", Some("[2001:db8::1]:2049")),
            [
                (NFS_PROGRAM, "rdma", "192.0.2.1:20049".into()),
                (NFS_PROGRAM, "tcp6", "[2001:db8::1]:2049".into()),
                (MOUNT_PROGRAM, "tcp6", "[2001:db8::1]:2049".into()),
            ]
        );
    }

    /// RFC 5665 §5.2: `rdma` and `rdma6` are two transports, and an IPv4 client asks only for the first.
    #[test]
    fn a_listener_on_all_addresses_is_announced_for_both_families() {
        assert_eq!(
            told("[::]:20049", None),
            [(NFS_PROGRAM, "rdma6", "[::]:20049".into()), (NFS_PROGRAM, "rdma", "0.0.0.0:20049".into())]
        );
        let only = services_of(&["[::]:20049".parse().expect("an address")], None, false);
        assert_eq!(only.len(), 1);
        assert_eq!(told("0.0.0.0:20049", None), [(NFS_PROGRAM, "rdma", "0.0.0.0:20049".into())]);
    }

    /// RFC 1833 §2.2.1: PMAPPROC_SET and RPCBPROC_SET refuse a second address of a transport.
    #[test]
    fn the_first_of_several_addresses_is_announced() {
        assert_eq!(
            told("192.0.2.1:20049 192.0.2.2:20050 [2001:db8::1]:20049", None),
            [
                (NFS_PROGRAM, "rdma", "192.0.2.1:20049".into()),
                (NFS_PROGRAM, "rdma6", "[2001:db8::1]:20049".into()),
            ]
        );
        // What [::] says of IPv4 comes after an address of its own.
        assert_eq!(
            told("192.0.2.1:20049 [::]:20050", None),
            [(NFS_PROGRAM, "rdma", "192.0.2.1:20049".into()), (NFS_PROGRAM, "rdma6", "[::]:20050".into())]
        );
    }
}
