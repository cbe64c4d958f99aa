//! Lookup and registration of services at rpcbind (RFC 1833), over TCP or an existing RDMA connection, and a program
//! that answers lookups ([`RpcbindService`]).
//!
//! rpcbind accepts registrations only from the machine on which it runs.
//!
//! *Lookup.* GETADDR answers only for the transport of the question (RFC 1833 §2.2.1). So an `rdma` address is asked for
//! over TCP by GETADDRLIST, then by DUMP. For TCP, GETADDR comes first and version 2 GETPORT last. After a question that
//! rpcbind refuses, or answers with nothing, comes the next. When none is left the service is not announced.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::rpcbind::{
    self as messages, AddressText, Lookup, Mapping, MappingList, Netid, PORT, Registration, Rpcb,
    RpcbEntryList, RpcbList,
};
use rpcrdma_oncrpc::typed::{Bounds, Procedure};
use thiserror::Error;

use crate::call::REPLY_HEADER_MAX;
use crate::client::Client;
use crate::config::ClientConfig;
use crate::connect::{ConnectError, Transport};
use crate::error::CallError;

mod service;

pub use service::RpcbindService;

/// Time for one question to rpcbind.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer accepted from rpcbind, in bytes.
const MAX_RECORD: usize = 256 << 10;
/// Largest list: RFC 1833 gives no limit.
const LIST: Bounds = Bounds::inline(MAX_RECORD - REPLY_HEADER_MAX);
/// Memory for the exchange, in bytes.
const MEMORY: usize = 1 << 20;

crate::program! {
    /// The port mapper (RFC 1833 §3), without procedures that make calls for others.
    pub mod version_2 {
        program messages::PROGRAM, version messages::VERSION_2;
        /// Announces a service; returns whether that was done.
        fn set = 1, Set(Mapping) -> bool, State;
        /// Withdraws an announcement, whatever its protocol and port; returns whether there was one.
        fn unset = 2, Unset(Mapping) -> bool, State;
        /// Returns the port of a service, 0 if there is none.
        fn getport = 3, Getport(Mapping) -> u32, Idempotent;
        /// Lists all announcements.
        fn dump = 4, Dump() -> MappingList, Idempotent, bounds = |()| LIST;
    }
}

crate::program! {
    /// rpcbind version 3 (RFC 1833 §2.2.1), without procedures that make calls for others.
    pub mod version_3 {
        program messages::PROGRAM, version messages::VERSION_3;
        /// Announces a service; returns whether that was done.
        fn set = 1, Set(Rpcb) -> bool, State;
        /// Withdraws announcements, those on all transports if the netid is empty; returns whether there were any.
        fn unset = 2, Unset(Rpcb) -> bool, State;
        /// Returns the address of a service on the transport of the call, empty if there is none.
        fn getaddr = 3, Getaddr(Rpcb) -> AddressText, Idempotent;
        /// Lists all announcements.
        fn dump = 4, Dump() -> RpcbList, Idempotent, bounds = |()| LIST;
    }
}

crate::program! {
    /// rpcbind version 4 (RFC 1833 §2.2.2), without procedures that make calls for others.
    pub mod version_4 {
        program messages::PROGRAM, version messages::VERSION_4;
        /// Announces a service; returns whether that was done.
        fn set = 1, Set(Rpcb) -> bool, State;
        /// Withdraws announcements, those on all transports if the netid is empty; returns whether there were any.
        fn unset = 2, Unset(Rpcb) -> bool, State;
        /// Returns the address of a service on the transport of the call, empty if there is none.
        fn getaddr = 3, Getaddr(Rpcb) -> AddressText, Idempotent;
        /// Lists all announcements.
        fn dump = 4, Dump() -> RpcbList, Idempotent, bounds = |()| LIST;
        /// Returns the addresses of a service on all transports.
        fn getaddrlist = 11, Getaddrlist(Rpcb) -> RpcbEntryList, Idempotent, bounds = |_| LIST;
    }
}

/// The reason why rpcbind could not be asked, or did not carry out a request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RpcbindError {
    /// There is no rpcbind at the address, which the cause names.
    #[error("cannot reach rpcbind: {0}")]
    Connect(#[from] ConnectError),
    /// A question got no usable answer.
    #[error("rpcbind did not answer: {0}")]
    Call(#[from] CallError),
    /// rpcbind knows no such service.
    #[error("rpcbind knows no program {program} version {version} on {netid}")]
    NotRegistered {
        /// Program number.
        program: u32,
        /// Version of the program.
        version: u32,
        /// The transport.
        netid: Netid,
    },
    /// rpcbind refused an announcement: another owner has one.
    #[error(
        "rpcbind did not accept program {program} version {version} on {netid}; is it registered by another user?"
    )]
    NotAccepted {
        /// Program number.
        program: u32,
        /// Version of the program.
        version: u32,
        /// The transport.
        netid: Netid,
    },
    /// No version of rpcbind can name this transport.
    #[error("rpcbind speaks no version that can name transport {netid}")]
    NoVersion {
        /// The transport.
        netid: Netid,
    },
}

/// A connection to rpcbind.
pub struct Rpcbind {
    client: Client,
    host: IpAddr,
}

impl Rpcbind {
    /// Connects to rpcbind on this host, port 111.
    ///
    /// # Errors
    /// [`RpcbindError::Connect`].
    pub async fn connect(host: IpAddr) -> Result<Self, RpcbindError> {
        Self::connect_to(SocketAddr::new(host, PORT)).await
    }

    /// Connects to rpcbind on this machine, where it accepts registrations.
    ///
    /// # Errors
    /// [`RpcbindError::Connect`].
    pub async fn local() -> Result<Self, RpcbindError> {
        Self::connect(Ipv4Addr::LOCALHOST.into()).await
    }

    /// Connects to an rpcbind at another address or port.
    ///
    /// # Errors
    /// [`RpcbindError::Connect`].
    pub async fn connect_to(address: SocketAddr) -> Result<Self, RpcbindError> {
        Self::connect_within(address, PATIENCE).await
    }

    /// Connects to an rpcbind at another address or port, with this time limit for the connection and for each question.
    ///
    /// # Errors
    /// [`RpcbindError::Connect`].
    pub async fn connect_within(address: SocketAddr, limit: Duration) -> Result<Self, RpcbindError> {
        let mut config = ClientConfig { max_record: MAX_RECORD, memory: MEMORY, ..ClientConfig::default() };
        config.protocol.timeouts.connect = limit;
        config.protocol.timeouts.call = limit;
        let client = Client::builder().config(config).transport(Transport::tcp()).connect(address).await?;
        Ok(Self { client, host: address.ip() })
    }

    /// Asks over an existing connection, for instance the RDMA connection to a server that answers for itself.
    #[must_use]
    pub fn over(client: Client) -> Self {
        let host = client.peer_address().ip();
        Self { client, host }
    }

    /// Returns the address at which a program listens on this transport.
    ///
    /// # Errors
    /// [`RpcbindError::NotRegistered`], [`RpcbindError::Call`].
    pub async fn lookup(&self, program: u32, version: u32, netid: Netid) -> Result<SocketAddr, RpcbindError> {
        let lookup = Lookup { program, version, netid, host: self.host };
        let found = if netid.is_rdma() { self.lists(&lookup).await } else { self.addresses(&lookup).await };
        found?.ok_or(RpcbindError::NotRegistered { program, version, netid })
    }

    /// Asks for the address of a service on RDMA.
    async fn lists(&self, lookup: &Lookup) -> Result<Option<SocketAddr>, CallError> {
        let entries = self.ask::<version_4::Getaddrlist>(&lookup.question()).await?;
        let mut found = entries.and_then(|entries| lookup.in_entries(&entries));
        if found.is_none() {
            found = self.ask::<version_4::Dump>(&()).await?.and_then(|list| lookup.in_list(&list));
        }
        if found.is_none() {
            found = self.ask::<version_3::Dump>(&()).await?.and_then(|list| lookup.in_list(&list));
        }
        Ok(found)
    }

    /// Asks for the address of a service on TCP.
    async fn addresses(&self, lookup: &Lookup) -> Result<Option<SocketAddr>, CallError> {
        let question = lookup.question();
        let address = self.ask::<version_4::Getaddr>(&question).await?;
        let mut found = address.and_then(|address| lookup.in_address(&address));
        if found.is_none() {
            let address = self.ask::<version_3::Getaddr>(&question).await?;
            found = address.and_then(|address| lookup.in_address(&address));
        }
        if found.is_none() && lookup.netid == Netid::Tcp {
            let port = self.ask::<version_2::Getport>(&lookup.mapping()).await?;
            found = port.and_then(|port| lookup.at_port(port));
        }
        Ok(found)
    }

    /// Asks a question that rpcbind may refuse, for instance because it does not have that version.
    async fn ask<P: Procedure>(&self, arguments: &P::Arguments) -> Result<Option<P::Results>, CallError> {
        match self.client.call::<P>(arguments).await {
            Ok(results) => Ok(Some(results)),
            Err(CallError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Announces a service, in place of an announcement that an earlier run may have left.
    ///
    /// # Errors
    /// [`RpcbindError::NotAccepted`], [`RpcbindError::NoVersion`], [`RpcbindError::Call`].
    pub async fn register(&self, service: &Registration) -> Result<(), RpcbindError> {
        self.unregister(service).await?;
        if self.tell::<version_4::Set, version_3::Set, version_2::Set>(service).await? {
            return Ok(());
        }
        let Registration { program, version, netid, .. } = *service;
        Err(RpcbindError::NotAccepted { program, version, netid })
    }

    /// Withdraws an announcement; returns whether there was one.
    ///
    /// # Errors
    /// [`RpcbindError::NoVersion`], [`RpcbindError::Call`].
    pub async fn unregister(&self, service: &Registration) -> Result<bool, RpcbindError> {
        self.tell::<version_4::Unset, version_3::Unset, version_2::Unset>(service).await
    }

    /// Makes a request in the newest version that rpcbind speaks.
    async fn tell<Four, Three, Two>(&self, service: &Registration) -> Result<bool, RpcbindError>
    where
        Four: Procedure<Arguments = Rpcb, Results = bool>,
        Three: Procedure<Arguments = Rpcb, Results = bool>,
        Two: Procedure<Arguments = Mapping, Results = bool>,
    {
        let announcement = service.announcement();
        let mut told = self.client.call::<Four>(&announcement).await;
        if is_other_version(&told) {
            told = self.client.call::<Three>(&announcement).await;
        }
        if is_other_version(&told)
            && let Some(mapping) = service.mapping()
        {
            told = self.client.call::<Two>(mapping).await;
        }
        if is_other_version(&told) {
            return Err(RpcbindError::NoVersion { netid: service.netid });
        }
        Ok(told?)
    }
}

/// Returns whether rpcbind does not have the version of this call.
const fn is_other_version<R>(told: &Result<R, CallError>) -> bool {
    matches!(told, Err(CallError::Refused(Refused::ProgramMismatch { .. })))
}
