//! Accepting connections.

use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_verbs::{
    BoxFuture, ConnectError, ConnectParameters, ConnectionRequest, Incoming, Listener, QueuePair,
};

use crate::cm::{Endpoint, Event, Kind};
use crate::config::Config;
use crate::connect::{adapter, check};
use crate::presence::{Gone, gone, is_there, say_farewell};
use crate::queue_pair::{IbverbsQueuePair, Setup};
use crate::trial;

/// Requests that wait for an answer.
const BACKLOG: i32 = 128;
/// Interval in which a listener whose device is gone looks for it.
const RETURN: Duration = Duration::from_secs(1);
/// Free ports that are tried until one is free in TCP too.
const FREE_PORTS: u32 = 32;

/// Accepts connections on RDMA adapters.
pub struct IbverbsListener {
    /// `None` while the device is gone.
    endpoint: Option<Endpoint>,
    /// Ready when the device of the listener is gone, if it listens at one.
    gone: Gone,
    address: SocketAddr,
    config: Config,
}

impl fmt::Debug for IbverbsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IbverbsListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl IbverbsListener {
    /// Listens at `address`: at one of a device, or at all devices if it is unspecified.
    ///
    /// # Errors
    /// A library, kernel module, permission or device is missing, or the address is in use. The text names the remedy.
    pub async fn bind(address: SocketAddr, config: Config) -> io::Result<Self> {
        let mut tries = if address.port() == 0 { FREE_PORTS } else { 1 };
        loop {
            tries -= 1;
            match Self::listen(address, &config) {
                // The connection manager has ports of its own; iWARP of Linux in software needs the TCP port too.
                Err(error) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
    }

    fn listen(address: SocketAddr, config: &Config) -> io::Result<Self> {
        let endpoint = Endpoint::new()?;
        if let Some(octet) = config.type_of_service {
            endpoint.set_type_of_service(octet)?;
        }
        endpoint.bind(address).map_err(|error| without_device(error, address))?;
        if let Some(wanted) = &config.device {
            let name = adapter(&endpoint).map(|adapter| adapter.name);
            if name.as_ref().ok() != Some(wanted) {
                let found =
                    name.map_or_else(|_| "not on one RDMA device".to_owned(), |name| format!("on {name}"));
                return Err(io::Error::other(format!("{address} is {found}, not on {wanted}")));
            }
        }
        if endpoint.context().is_some_and(|context| !is_there(context)) {
            return Err(io::Error::other("the RDMA device is about to be removed"));
        }
        endpoint.listen(BACKLOG).map_err(|error| without_device(error, address))?;
        let address = endpoint.local_address().unwrap_or(address);
        let gone = match endpoint.context() {
            Some(context) => gone(context),
            None => Box::pin(pending()),
        };
        Ok(Self { endpoint: Some(endpoint), gone, address, config: config.clone() })
    }
}

impl IbverbsListener {
    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> io::Result<IbverbsIncoming> {
        loop {
            let Some(endpoint) = &mut self.endpoint else {
                match Self::listen(self.address, &self.config) {
                    Ok(listener) => {
                        tracing::info!(address = %self.address, "the RDMA device is back");
                        *self = listener;
                    }
                    Err(error) => {
                        tracing::debug!(address = %self.address, %error, "the RDMA device is not back");
                        tokio::time::sleep(RETURN).await;
                    }
                }
                continue;
            };
            let event = tokio::select! {
                event = endpoint.event() => Some(event?),
                () = &mut self.gone => None,
            };
            match event {
                Some(event) if event.kind == Kind::Request => {
                    return IbverbsIncoming::new(event, self.config.clone());
                }
                Some(event) if event.kind != Kind::DeviceRemoved => {}
                lost => {
                    if lost.is_some() {
                        tokio::spawn(say_farewell());
                    }
                    // The system waits until every user of the device has let go.
                    self.endpoint = None;
                    self.gone = Box::pin(pending());
                    let text = format!("the RDMA device of the listener at {} is gone", self.address);
                    return Err(io::Error::other(text));
                }
            }
        }
    }
}

/// Adds to the error of a listener what a user can do about it.
fn without_device(error: io::Error, address: SocketAddr) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => io::Error::new(
            error.kind(),
            format!("{address} is not an address of an RDMA device (rpcrdma devices lists them)"),
        ),
        _ => error,
    }
}

impl Listener for IbverbsListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Incoming>>> {
        Box::pin(async { Ok(Box::new(self.next().await?) as Box<dyn Incoming>) })
    }

    fn provider(&self) -> &'static str {
        "verbs"
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// A connection request of the fabric, which comes whole.
pub(crate) struct IbverbsIncoming {
    endpoint: Endpoint,
    config: Config,
    private_data: Bytes,
    peer: Option<SocketAddr>,
    reads_in: u8,
    reads_out: u8,
}

impl IbverbsIncoming {
    fn new(event: Event, config: Config) -> io::Result<Self> {
        let Event { request, private_data, reads_in, reads_out, .. } = event;
        let id = request.ok_or_else(|| io::Error::other("a connection request without an identifier"))?;
        let endpoint = Endpoint::of_request(id)?;
        let peer = endpoint.peer_address();
        Ok(Self { endpoint, config, private_data, peer, reads_in, reads_out })
    }

    /// Returns the identifier of the request.
    pub(crate) fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }
}

impl Incoming for IbverbsIncoming {
    fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn request(self: Box<Self>) -> BoxFuture<'static, Result<Box<dyn ConnectionRequest>, ConnectError>> {
        Box::pin(async move { Ok(self as Box<dyn ConnectionRequest>) })
    }
}

impl ConnectionRequest for IbverbsIncoming {
    fn private_data(&self) -> &Bytes {
        &self.private_data
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn accept(
        self: Box<Self>,
        parameters: ConnectParameters,
    ) -> BoxFuture<'static, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            check(parameters.private_data.max_len())?;
            let Self { endpoint, config, private_data, reads_in, reads_out, .. } = *self;
            if let Some(octet) = config.type_of_service {
                endpoint.set_type_of_service(octet)?;
            }
            let adapter = adapter(&endpoint)?;
            let mode = trial::mode(&endpoint, &adapter, &config).await;
            let ours = parameters.private_data.clone();
            let setup = Setup { config: &config, adapter: &adapter, mode, parameters };
            let mut queue_pair = IbverbsQueuePair::new(endpoint, setup)?;
            queue_pair.agree(private_data, reads_in, reads_out, true);
            let offer = queue_pair.offer(&ours);
            queue_pair.accept_later(offer);
            Ok(Box::new(queue_pair) as Box<dyn QueuePair>)
        })
    }

    fn reject(self: Box<Self>, private_data: Bytes) -> BoxFuture<'static, Result<(), ConnectError>> {
        Box::pin(async move {
            check(private_data.len())?;
            self.endpoint.reject(&private_data)?;
            Ok(())
        })
    }
}
