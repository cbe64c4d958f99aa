//! Opening connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rpcrdma_verbs::{BoxFuture, ConnectError, ConnectParameters, Connector, QueuePair, RejectReason};

use crate::adapter::Adapter;
use crate::cm::{Endpoint, Event, Kind, MAX_PRIVATE_DATA};
use crate::config::Config;
use crate::memory::Mode;
use crate::queue_pair::{IbverbsQueuePair, Setup};
use crate::trial;

/// Status of a rejection by the peer's program; other codes come from its connection manager.
const CONSUMER_REJECT: i32 = 28;

/// Ports of ours that are tried until one is free in TCP too.
const OWN_PORTS: u32 = 8;

/// Opens connections on RDMA adapters.
#[derive(Clone, Debug, Default)]
pub struct IbverbsConnector {
    config: Config,
}

impl IbverbsConnector {
    /// Returns a connector with these settings.
    pub const fn new(config: Config) -> Self {
        Self { config }
    }
}

impl Connector for IbverbsConnector {
    fn connect(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> BoxFuture<'_, Result<Box<dyn QueuePair>, ConnectError>> {
        Box::pin(async move {
            check(parameters.private_data.max_len())?;
            let mut tries = OWN_PORTS;
            loop {
                tries -= 1;
                match self.open(to, parameters.clone()).await {
                    // The connection manager has ports of its own; iWARP of Linux in software needs the TCP port too.
                    Err(ConnectError::Io(error)) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {
                    }
                    result => return result,
                }
            }
        })
    }
}

impl IbverbsConnector {
    async fn open(
        &self,
        to: SocketAddr,
        parameters: ConnectParameters,
    ) -> Result<Box<dyn QueuePair>, ConnectError> {
        let endpoint = resolved(to, &self.config).await?;
        let adapter = adapter(&endpoint)?;
        if let Some(wanted) = &self.config.device
            && *wanted != adapter.name
        {
            let text = format!("{to} is reached by {}, not by {wanted}", adapter.name);
            return Err(ConnectError::Invalid(text));
        }
        let mode = trial::mode(&endpoint, &adapter, &self.config).await;
        Ok(Box::new(establish(endpoint, &adapter, mode, &self.config, parameters).await?))
    }
}

/// Checks that a fabric can carry private data of this length.
pub(crate) fn check(len: usize) -> Result<(), ConnectError> {
    if len > MAX_PRIVATE_DATA {
        let text = format!("{len} octets of private data; at most {MAX_PRIVATE_DATA} are allowed");
        return Err(ConnectError::Invalid(text));
    }
    Ok(())
}

/// Returns an identifier with the device and the route to an address.
pub(crate) async fn resolved(to: SocketAddr, config: &Config) -> Result<Endpoint, ConnectError> {
    let mut endpoint = Endpoint::new()?;
    if let Some(octet) = config.type_of_service {
        endpoint.set_type_of_service(octet)?;
    }
    endpoint.resolve_address(to, config.setup).map_err(|error| no_device(error, to))?;
    expect(&mut endpoint, Kind::AddressResolved, "the address", config.setup, to).await?;
    endpoint.resolve_route(config.setup)?;
    expect(&mut endpoint, Kind::RouteResolved, "the route", config.setup, to).await?;
    Ok(endpoint)
}

/// Returns the adapter of an identifier that is bound to one.
pub(crate) fn adapter(endpoint: &Endpoint) -> io::Result<Adapter> {
    let context = endpoint.context();
    let context = context.ok_or_else(|| io::Error::other("the address is on no RDMA device"))?;
    Adapter::of(context, endpoint.port())
}

/// Sends the request, and waits for the peer's answer.
pub(crate) async fn establish(
    endpoint: Endpoint,
    adapter: &Adapter,
    mode: Mode,
    config: &Config,
    parameters: ConnectParameters,
) -> Result<IbverbsQueuePair, ConnectError> {
    let announcement = parameters.private_data.clone();
    let mut queue_pair = IbverbsQueuePair::new(endpoint, Setup { config, adapter, mode, parameters })?;
    let offer = queue_pair.offer(&announcement);
    // On iWARP the call waits until TCP is connected.
    let sending = tokio::task::spawn_blocking(move || {
        let result = match queue_pair.endpoint() {
            Some(endpoint) => endpoint.connect(&offer),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        (queue_pair, result)
    });
    let (mut queue_pair, result) = tokio::time::timeout(config.setup, sending)
        .await
        .map_err(|_| ConnectError::Timeout("the TCP connection of iWARP"))?
        .map_err(|_| ConnectError::Io(io::Error::other("the runtime has ended")))?;
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => ConnectError::Invalid(
            "the adapter refuses the request; InfiniBand and RoCE carry at most 56 octets of private data"
                .to_owned(),
        ),
        _ => ConnectError::Io(error),
    })?;
    let Some(endpoint) = queue_pair.endpoint() else {
        return Err(ConnectError::Io(io::ErrorKind::NotConnected.into()));
    };
    let answer = async {
        loop {
            let event = endpoint.event().await?;
            if event.kind != Kind::Other {
                break Ok::<Event, io::Error>(event);
            }
        }
    };
    let answer = tokio::time::timeout(config.setup, answer)
        .await
        .map_err(|_| ConnectError::Timeout("the peer's answer"))??;
    match answer.kind {
        Kind::Established => {
            queue_pair.agree(answer.private_data, answer.reads_in, answer.reads_out, false);
            Ok(queue_pair)
        }
        Kind::Rejected => Err(rejected(answer)),
        Kind::Unreachable => Err(ConnectError::Timeout("the peer's answer")),
        Kind::DeviceRemoved => Err(ConnectError::Io(io::Error::other("the RDMA device is gone"))),
        _ => Err(ConnectError::Io(answer.error())),
    }
}

/// Tells a rejection by the peer's program from an address at which nobody listens.
fn rejected(answer: Event) -> ConnectError {
    match -answer.status {
        // On iWARP: a Reply that rejects (RFC 5044 §7.1), and a TCP port that is closed.
        libc::ECONNRESET => {}
        libc::ECONNREFUSED if !answer.private_data.is_empty() => {}
        libc::ECONNREFUSED => return ConnectError::Io(io::ErrorKind::ConnectionRefused.into()),
        _ if answer.status == CONSUMER_REJECT => {}
        // On InfiniBand and RoCE, the code of a connection manager: no listener, for instance.
        _ if answer.status > 0 => return ConnectError::Io(io::ErrorKind::ConnectionRefused.into()),
        _ => return ConnectError::Io(answer.error()),
    }
    ConnectError::Rejected(RejectReason { private_data: answer.private_data })
}

/// Waits for an event of set-up.
async fn expect(
    endpoint: &mut Endpoint,
    kind: Kind,
    what: &'static str,
    within: Duration,
    to: SocketAddr,
) -> Result<(), ConnectError> {
    let event =
        tokio::time::timeout(within, endpoint.event()).await.map_err(|_| ConnectError::Timeout(what))??;
    if event.kind == kind {
        return Ok(());
    }
    Err(no_device(event.error(), to))
}

/// Adds to the error of a resolution what a user can do about it.
fn no_device(error: io::Error, to: SocketAddr) -> ConnectError {
    let hint = match error.raw_os_error() {
        Some(libc::ENODEV | libc::EADDRNOTAVAIL | libc::ENETUNREACH) => {
            ": no RDMA device has a route to it (rpcrdma devices lists them)"
        }
        Some(libc::ETIMEDOUT) => ": no host answers at this address",
        _ => "",
    };
    ConnectError::Io(io::Error::new(error.kind(), format!("{to} over an RDMA device: {error}{hint}")))
}
