//! Lookup and registration of services at rpcbind (RFC 1833), over TCP or an existing RDMA connection, and a program
//! that answers lookups ([`RpcbindService`]).
//!
//! [`rpcrdma_oncrpc::rpcbind`] decides which question comes next; this module asks it. rpcbind accepts registrations
//! only from the machine on which it runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::rpcbind::{
    Lookup, LookupError, Netid, PORT, PROGRAM, Progress, Registration, Request, VERSION_2, VERSION_3,
    VERSION_4,
};
use rpcrdma_verbs::ConnectError;
use rpcrdma_xdr::{Decoder, EncodeError, Stream};
use thiserror::Error;

use crate::call::Call;
use crate::client::Client;
use crate::config::ClientConfig;
use crate::error::CallError;

mod service;

pub use service::RpcbindService;

/// Time for one question to rpcbind.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest list accepted from rpcbind, in bytes.
const MAX_RECORD: usize = 256 << 10;
/// Memory for the exchange, in bytes.
const MEMORY: usize = 1 << 20;

/// The reason why rpcbind could not be asked, or did not carry out a request.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RpcbindError {
    /// There is no rpcbind at the address.
    #[error("cannot reach rpcbind at {address}: {error}")]
    Connect {
        /// The address that was tried.
        address: SocketAddr,
        /// The cause.
        error: ConnectError,
    },
    /// A question got no usable answer.
    #[error("rpcbind did not answer: {0}")]
    Call(#[from] CallError),
    /// The service is not announced, or the answer is malformed.
    #[error(transparent)]
    Lookup(#[from] LookupError),
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

impl From<EncodeError> for RpcbindError {
    fn from(error: EncodeError) -> Self {
        Self::Call(error.into())
    }
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
        let client =
            Client::tcp(address, config).await.map_err(|error| RpcbindError::Connect { address, error })?;
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
    /// [`RpcbindError::Lookup`] if it is not announced; [`RpcbindError::Call`].
    pub async fn lookup(&self, program: u32, version: u32, netid: Netid) -> Result<SocketAddr, RpcbindError> {
        let mut lookup = Lookup::new(program, version, netid, self.host);
        let mut progress = lookup.start()?;
        loop {
            progress = match progress {
                Progress::Found(address) => return Ok(address),
                Progress::Call { version, procedure, arguments } => {
                    match self.call(version, procedure, arguments).await {
                        Ok(results) => lookup.handle_results(results)?,
                        Err(CallError::Refused(_)) => lookup.handle_refusal()?,
                        Err(error) => return Err(error.into()),
                    }
                }
            };
        }
    }

    /// Announces a service, in place of an announcement that an earlier run may have left.
    ///
    /// # Errors
    /// [`RpcbindError::NotAccepted`], [`RpcbindError::NoVersion`], [`RpcbindError::Call`].
    pub async fn register(&self, service: &Registration) -> Result<(), RpcbindError> {
        self.tell(service, Registration::unset).await?;
        if self.tell(service, Registration::set).await? {
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
        self.tell(service, Registration::unset).await
    }

    /// Makes a request in the newest version that rpcbind speaks.
    async fn tell(
        &self,
        service: &Registration,
        request: impl Fn(&Registration, u32) -> Result<Option<Request<bool>>, EncodeError>,
    ) -> Result<bool, RpcbindError> {
        for version in [VERSION_4, VERSION_3, VERSION_2] {
            let Some(request) = request(service, version)? else { continue };
            match self.call(request.version, request.procedure, request.arguments.clone()).await {
                Ok(results) => return Ok(request.results(results).map_err(CallError::from)?),
                Err(CallError::Refused(Refused::ProgramMismatch { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RpcbindError::NoVersion { netid: service.netid })
    }

    async fn call(&self, version: u32, procedure: u32, arguments: Stream) -> Result<Decoder, CallError> {
        let call = Call::new(PROGRAM, version, procedure).name("rpcbind").arguments(arguments);
        Ok(self.client.call_raw(call).await?.results)
    }
}
