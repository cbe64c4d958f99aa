//! Connections to servers: from a URL to an RPC client, and to the mounted export that a path lies in.

use std::net::SocketAddr;
use std::sync::Arc;

use rpcrdma::Versions;
use rpcrdma_iwarp::IwarpConnector;
use rpcrdma_nfs::client::{Client, ClientOptions, Error, NfsUrl};
use rpcrdma_nfs::wire::{ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, AccessArgs, Status};
use rpcrdma_verbs::ConnectError;
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::arguments::{Connection, Proto};
use crate::exit::{Exit, Failure};
use crate::output::printable;

/// Memory for READs and WRITEs in flight and for messages, in bytes.
const MEMORY: usize = 256 << 20;

/// Opens an RPC connection to the host of a URL; all its addresses are tried in turn.
pub(crate) async fn rpc(url: &NfsUrl, connection: &Connection) -> Result<rpcrdma::Client, Failure> {
    let versions = connection.versions()?;
    let authority = url.authority(connection.proto.default_port());
    let addresses: Vec<SocketAddr> = lookup_host(&authority)
        .await
        .map_err(|error| {
            Failure::new(Exit::Unreachable, format!("cannot find the address of {}: {error}", url.host()))
        })?
        .collect();
    let mut last = None;
    for address in addresses {
        match timeout(connection.timeout, open(address, connection, versions)).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => last = Some((address, explain(&error, connection))),
            Err(_) => last = Some((address, format!("no connection within {:?}", connection.timeout))),
        }
    }
    let message = match last {
        Some((address, reason)) => {
            format!("cannot connect to {address} over {}: {reason}", connection.proto.name())
        }
        None => format!("{} has no address", url.host()),
    };
    Err(Failure::new(Exit::Unreachable, message))
}

async fn open(
    to: SocketAddr,
    connection: &Connection,
    versions: Versions,
) -> Result<rpcrdma::Client, ConnectError> {
    let mut config = rpcrdma::ClientConfig { memory: MEMORY, ..rpcrdma::ClientConfig::default() };
    let inline = usize::try_from(connection.inline).unwrap_or(usize::MAX);
    config.protocol.send_size = inline;
    config.protocol.receive_size = inline;
    config.protocol.calls = connection.credits;
    config.protocol.versions = versions;
    connection.sends.apply(&mut config.protocol);
    config.ccp = connection.insecure_conf_rdma.then(rpcrdma::Ccp::insecure);
    config.protocol.timeouts.call = connection.timeout;
    config.protocol.timeouts.connect = connection.timeout;
    match connection.proto {
        Proto::Rdma => {
            let mut iwarp = rpcrdma_iwarp::Config::default();
            iwarp.crc = !connection.no_crc;
            rpcrdma::Client::rdma(Arc::new(IwarpConnector::new(iwarp)), to, config).await
        }
        Proto::Tcp => rpcrdma::Client::tcp(to, config).await,
    }
}

/// Says what to do about a failed connection, where that can be known.
fn explain(error: &ConnectError, connection: &Connection) -> String {
    let hint = match error {
        ConnectError::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused => {
            "; is the server running there? (rpcrdma serve prints its ports)"
        }
        ConnectError::Io(_) | ConnectError::Rejected(_) => "",
        // Something listens there, and it is not what we speak.
        _ if connection.proto == Proto::Rdma => "; if that is a TCP port, add --proto tcp",
        _ => "",
    };
    format!("{error}{hint}")
}

/// The servers that a command talks to: one connection to each.
pub(crate) struct Servers<'a> {
    connection: &'a Connection,
    open: Vec<(String, rpcrdma::Client)>,
}

impl<'a> Servers<'a> {
    /// None yet.
    pub(crate) const fn new(connection: &'a Connection) -> Self {
        Self { connection, open: Vec::new() }
    }

    /// The RPC connection to the host of a URL.
    pub(crate) async fn rpc(&mut self, url: &NfsUrl) -> Result<rpcrdma::Client, Failure> {
        let authority = url.authority(self.connection.proto.default_port());
        if let Some((_, client)) = self.open.iter().find(|(open, _)| *open == authority) {
            return Ok(client.clone());
        }
        let client = rpc(url, self.connection).await?;
        self.open.push((authority, client.clone()));
        Ok(client)
    }

    /// Mounts the export that the path of a URL lies in.
    pub(crate) async fn locate(&mut self, url: &NfsUrl) -> Result<Location, Failure> {
        let rpc = self.rpc(url).await?;
        let (client, path) = Client::mount_containing(&rpc, url.path(), self.options())
            .await
            .map_err(|error| failure(url, error))?;
        let root_is_nobody = root_is_nobody(&client).await;
        Ok(Location { client, path, root_is_nobody, url: url.clone(), server: rpc.peer_address() })
    }

    /// Options of NFS clients.
    pub(crate) fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::default();
        options.mount_port = self.connection.mountport;
        options
    }
}

/// A path at a server, and the mounted export that it lies in.
pub(crate) struct Location {
    /// The export.
    pub(crate) client: Client,
    /// The path from the root of the export on.
    pub(crate) path: Vec<u8>,
    /// This process is root, and the server does not treat it so.
    pub(crate) root_is_nobody: bool,
    url: NfsUrl,
    server: SocketAddr,
}

impl Location {
    /// The components of the path.
    pub(crate) fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.path.split(|&byte| byte == b'/').filter(|part| !part.is_empty())
    }

    /// Whether this is the root of the export.
    pub(crate) fn is_root(&self) -> bool {
        self.components().next().is_none()
    }

    /// The path of a name in this directory.
    pub(crate) fn child(&self, name: &[u8]) -> Vec<u8> {
        [&self.path, b"/".as_slice(), name].concat()
    }

    /// Whether both are in the same export of the same server.
    pub(crate) fn same_export(&self, other: &Self) -> bool {
        self.server == other.server && self.client.root() == other.client.root()
    }

    /// A failure of an operation on this path.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        explained(&self.url, &error, self.root_is_nobody)
    }
}

/// Whether this process is root and the export gives it less than root has. Root may do everything in the root directory
/// of an export that can be changed. If everybody may, the answer says nothing, and no hint is given.
async fn root_is_nobody(client: &Client) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let access = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY;
    let granted = client.procedures().access(&AccessArgs { object: client.root(), access }).await;
    granted.is_ok_and(|granted| granted.access & access != access)
}

/// A failure of an operation on the path of a URL, without an export.
pub(crate) fn failure(url: &NfsUrl, error: Error) -> Failure {
    explained(url, &error, false)
}

fn explained(url: &NfsUrl, error: &Error, root_is_nobody: bool) -> Failure {
    let exit = match error {
        Error::Transport { .. } | Error::NoMountService { .. } => Exit::Unreachable,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{url}: {}", describe(error, &url.path(), root_is_nobody)))
}

/// An error of an operation on `path`, which is named by whoever prints this.
pub(crate) fn describe(error: &Error, path: &[u8], root_is_nobody: bool) -> String {
    let text = match error {
        Error::NoMountService { .. } => format!("{error} (--mountport)"),
        Error::Nfs { status, operation, path: about } => {
            // Named only if it is something below the path.
            let about = about.trim_matches('/');
            let place = if path.ends_with(about.as_bytes()) { String::new() } else { format!("{about}: ") };
            let hint = match status {
                Status::Acces | Status::Perm if root_is_nobody => {
                    "; root is nobody at this server unless it exports with squash=none"
                }
                _ => "",
            };
            format!("{place}{status} [{operation}]{hint}")
        }
        error => error.to_string(),
    };
    printable(text.as_bytes())
}
