//! The listeners of a server: sockets that were passed to it, and those that it opens itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rpcrdma::rpcbind::RpcbindService;
use rpcrdma::{Server, ServerBuilder};
use rpcrdma_nfs::server::NfsServer;
use rpcrdma_verbs::Listener;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::announced::services;
use super::export::ExportOption;
use super::observe::give::Given;
use super::passed::{Passed, Role, cannot_take, taken};
use super::ready::{Listening, Ready};
use super::systemd::replaced;
use super::{Serve, kerberos};
use crate::commands::cannot_listen;
use crate::exit::Failure;
use crate::output;
use crate::provider::{Chosen, Opened, Provider, Settings, is_of_adapter};

/// Port for NFS and MOUNT over TCP, if it is free.
pub(super) const TCP_PORT: u16 = 20048;
/// Time in which the server before this one closes the listener of an adapter.
const CLOSES: Duration = Duration::from_secs(10);
/// Pause before another attempt.
const AGAIN: Duration = Duration::from_millis(50);

/// Open listeners.
pub(super) struct Listeners {
    rdma: Vec<(Box<dyn Listener>, Listening)>,
    tcp: Option<TcpListener>,
    /// Duplicates of the sockets that a later server may take.
    pub(super) given: Vec<Given>,
    /// Addresses of adapters that the server before this one still has.
    late: Vec<(Provider, SocketAddr)>,
}

impl Listeners {
    fn add_iwarp(&mut self, listener: TcpListener, settings: &Settings<'_>) -> io::Result<()> {
        self.given.push(Given::of(Role::Rdma, &listener)?);
        self.add(settings.adopt(listener), Chosen::Iwarp.name())
    }

    fn add(&mut self, listener: Box<dyn Listener>, provider: &'static str) -> io::Result<()> {
        let address = listener.local_address()?;
        self.rdma.push((listener, Listening { address, provider }));
        Ok(())
    }

    /// Returns whether one of the listeners for RDMA has this address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.rdma.iter().any(|(_, listening)| listening.address == address)
    }

    /// Returns whether listeners are missing that the server before this one has to close.
    pub(super) fn are_late(&self) -> bool {
        !self.late.is_empty()
    }
}

impl Serve {
    /// Returns settings of connections.
    pub(super) fn settings(&self) -> Settings<'_> {
        Settings { options: &self.rdma, no_crc: self.no_crc, timeouts: self.bounds.timeouts() }
    }

    /// Opens all listeners, and takes those that were passed. `adapters` are addresses of another server whose listeners cannot
    /// be passed.
    pub(super) async fn listeners_of(
        &self,
        options: &[ExportOption],
        passed: &mut Passed,
        adapters: &[SocketAddr],
    ) -> Result<Listeners, Failure> {
        let settings = self.settings();
        let mut open = Listeners { rdma: Vec::new(), tcp: None, given: Vec::new(), late: Vec::new() };
        // Sockets of the service manager replace those of software iWARP, and no adapter's.
        let are_replaced = passed.replaces(Role::Rdma);
        while are_replaced && let Some(socket) = passed.first(Role::Rdma) {
            open.add_iwarp(taken(socket)?, &settings).map_err(cannot_take)?;
        }
        let passed_at: Vec<SocketAddr> = open.rdma.iter().map(|(_, listening)| listening.address).collect();
        let named: Vec<SocketAddr> = self.listeners().map(|(_, address)| address).collect();
        for (provider, address) in self.listeners() {
            if are_replaced && !is_of_adapter(provider, address).await {
                replaced(address, &passed_at);
                continue;
            }
            let may_be_iwarp = !matches!(provider, Provider::Verbs(_));
            if may_be_iwarp && let Some(socket) = passed.at(Role::Rdma, address, &named) {
                open.add_iwarp(taken(socket)?, &settings).map_err(cannot_take)?;
                continue;
            }
            match settings.open(provider, address).await {
                Ok(Opened::Iwarp(listener)) => open.add_iwarp(listener, &settings),
                Ok(Opened::Verbs(listener, chosen)) => open.add(listener, chosen.name()),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && adapters.contains(&address) => {
                    open.late.push((provider.clone(), address));
                    Ok(())
                }
                Err(error) => Err(error),
            }
            .map_err(cannot_listen(address))?;
        }
        if let Some(first) = self.listen.first().map(|at| at.address.ip()).filter(|_| !self.no_tcp) {
            let (wanted, tcp) = if passed.replaces(Role::Tcp)
                && let Some(socket) = passed.first(Role::Tcp)
            {
                (SocketAddr::new(first, 0), Ok(taken(socket)?))
            } else if let Some(address) = self.tcp {
                (address, self.tcp_at(address, passed).await)
            } else {
                listen_by_default(first, kerberos::usual_ports(options), passed).await
            };
            let tcp = tcp.map_err(cannot_listen(wanted))?;
            open.given.push(Given::of(Role::Tcp, &tcp).map_err(cannot_listen(wanted))?);
            open.tcp = Some(tcp);
        }
        Ok(open)
    }

    async fn tcp_at(&self, address: SocketAddr, passed: &mut Passed) -> io::Result<TcpListener> {
        match passed.at(Role::Tcp, address, &[]) {
            Some(socket) => adopted(socket),
            None => TcpListener::bind(address).await,
        }
    }

    /// Opens the listeners that the server before this one has closed by now. Without one of them this server goes on, as
    /// nobody else would serve the others.
    pub(super) async fn open_late(&self, open: &mut Listeners) {
        let until = Instant::now() + CLOSES;
        for (provider, address) in std::mem::take(&mut open.late) {
            let opened = loop {
                match self.settings().listen(&provider, address).await {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                        sleep(AGAIN).await;
                    }
                    opened => break opened,
                }
            };
            let added = opened.and_then(|(listener, chosen)| open.add(listener, chosen.name()));
            if let Err(error) = added {
                output::warn(cannot_listen(address)(error));
            }
        }
    }

    /// Returns the server on these listeners, with its addresses.
    pub(super) fn build(
        &self,
        builder: ServerBuilder,
        nfs: &NfsServer,
        options: &[ExportOption],
        open: Listeners,
    ) -> Result<(Server, Ready), Failure> {
        let mut builder =
            builder.program(nfs.nfs_program()).program(nfs.mount_program()).program(nfs.extents_program());
        let mut rdma = Vec::new();
        for (listener, listening) in open.rdma {
            builder = builder.listen_rdma(listener);
            rdma.push(listening);
        }
        let mut tcp_address = None;
        if let Some(tcp) = open.tcp {
            tcp_address = Some(tcp.local_addr().map_err(cannot_take)?);
            builder = builder.listen_tcp(tcp);
        }
        let addresses: Vec<SocketAddr> = rdma.iter().map(|listening| listening.address).collect();
        if let Some(missing) = kerberos::missing(options, &addresses, tcp_address) {
            output::warn(missing);
        }
        let ready = Ready::new(rdma, tcp_address, options);
        if self.rpcbind {
            let services = services(&ready.rdma_addresses(), ready.tcp);
            builder =
                RpcbindService::new(services).versions().into_iter().fold(builder, ServerBuilder::program);
        }
        let server = builder.build().map_err(|error| Failure::failed(format!("cannot serve: {error}")))?;
        Ok((server, ready))
    }
}

fn adopted(socket: std::net::TcpListener) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Listens on the first of the usual ports that was passed or is not in use. Without one, the function takes the other port
/// of the server before this one, or a free one.
pub(super) async fn listen_by_default(
    ip: IpAddr,
    usual: &[u16],
    passed: &mut Passed,
) -> (SocketAddr, io::Result<TcpListener>) {
    for &port in usual {
        let address = SocketAddr::new(ip, port);
        if let Some(socket) = passed.at(Role::Tcp, address, &[]) {
            return (address, adopted(socket));
        }
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return (address, bound),
        }
    }
    let free = SocketAddr::new(ip, 0);
    match passed.at(Role::Tcp, free, &[]) {
        Some(socket) => (free, adopted(socket)),
        None => (free, TcpListener::bind(free).await),
    }
}
