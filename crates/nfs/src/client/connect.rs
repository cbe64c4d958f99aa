//! From an RPC connection to a mounted export: finds the MOUNT service and requests the first handle.
//!
//! RFC 8267 §5.1 requires MOUNT on TCP. A server of this project also answers MOUNT on the NFS connection, so
//! the client tries that first. Then it tries TCP, at the port that the caller names or that rpcbind knows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rpcrdma::CallError;
use rpcrdma::rpcbind::{Rpcbind, RpcbindError};
use rpcrdma::tls::TlsClient;
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_oncrpc::rpcbind::{self, Netid};

use super::transport::Secured;
use super::{Client, ClientOptions, Error, MountClient, Transport};
use crate::mount::{ExportNode, MOUNT_PROGRAM, MOUNT_VERSION, MountStatus};

/// Default of [`ClientOptions::mount_timeout`].
pub const MOUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// Memory for replies of a MOUNT service over TCP, in bytes.
const MOUNT_MEMORY: usize = 8 << 20;

/// A mounted export.
pub(super) struct Mounted {
    service: MountClient,
    path: Vec<u8>,
    /// The server's exports, as far as it told them.
    exports: Arc<[ExportNode]>,
}

impl Client {
    /// Mounts the export (or directory in an export) `path` of the server that `rpc` is connected to.
    ///
    /// # Errors
    /// [`Error::Mount`] if the server refuses, [`Error::NoMountService`] if none was found.
    pub async fn mount(
        rpc: &rpcrdma::Client,
        path: impl AsRef<[u8]>,
        options: ClientOptions,
    ) -> Result<Self, Error> {
        let service = mount_service(rpc, &options).await?;
        mount_by(service, carrier(rpc, &options), path.as_ref(), options, Arc::default()).await
    }

    /// Mounts the export that contains `path`. Returns the client, and the rest of the path relative to the
    /// root of the export. The root can be a file if the server mounts that file and no directory above it; the rest
    /// is then empty.
    ///
    /// # Errors
    /// As [`mount`](Self::mount).
    pub async fn mount_containing(
        rpc: &rpcrdma::Client,
        path: impl AsRef<[u8]>,
        options: ClientOptions,
    ) -> Result<(Self, Vec<u8>), Error> {
        let service = mount_service(rpc, &options).await?;
        mount_containing_by(service, carrier(rpc, &options), path.as_ref(), options).await
    }

    /// Returns the rest of a path relative to the root of this export, if [`mount_containing`](Self::mount_containing)
    /// would mount this export for that path of the server. `None` if another export contains the path, or if the
    /// server did not tell its exports.
    pub fn rest_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mounted = self.inner.mounted.as_ref()?;
        let containing = candidates(path, &mounted.exports).into_iter().next()?;
        if mounted.exports.is_empty() || containing != mounted.path {
            return None;
        }
        path.get(containing.len()..).map(<[u8]>::to_vec)
    }

    /// Returns the exports of the server that `rpc` is connected to.
    pub async fn exports(rpc: &rpcrdma::Client, options: &ClientOptions) -> Result<Vec<ExportNode>, Error> {
        match mount_service(rpc, options).await?.exports().await {
            // The list is longer than the memory that a call over RDMA offers.
            Err(Error::Transport { source: CallError::Chunk, .. }) => {
                mount_service_over_tcp(rpc, options, "its list of exports is too long for RDMA")
                    .await?
                    .exports()
                    .await
            }
            result => result,
        }
    }

    /// Returns whether the root is a directory, as it usually is.
    async fn root_is_directory(&self) -> Result<bool, Error> {
        let attributes = match self.info().attributes {
            Some(attributes) => attributes,
            None => self.attributes(self.root()).await?,
        };
        Ok(attributes.is_directory())
    }

    /// Tells the MOUNT service that this client is done (UMNT). The server needs this only for the list that
    /// DUMP returns.
    pub async fn unmount(&self) -> Result<(), Error> {
        match &self.inner.mounted {
            Some(mounted) => mounted.service.umnt(&mounted.path).await,
            None => Ok(()),
        }
    }
}

/// Returns what carries the calls of NFS.
fn carrier(rpc: &rpcrdma::Client, options: &ClientOptions) -> Arc<dyn Transport> {
    match &options.gss {
        Some(user) => Arc::new(Secured { rpc: rpc.clone(), user: Arc::clone(user) }),
        None => Arc::new(rpc.clone()),
    }
}

pub(super) async fn mount_by(
    service: MountClient,
    transport: Arc<dyn Transport>,
    path: &[u8],
    options: ClientOptions,
    exports: Arc<[ExportNode]>,
) -> Result<Client, Error> {
    let ok = service.mnt(path).await?;
    let (allowed, used) = (ok.auth_flavors, options.flavor());
    if !allows(&allowed, used) {
        return Err(Error::Flavor { path: String::from_utf8_lossy(path).into_owned(), allowed, used });
    }
    let mounted = Mounted { service, path: path.to_vec(), exports };
    Client::with_root(transport, ok.handle, options, Some(mounted)).await
}

/// Returns whether calls of this flavour are allowed by the list that MOUNT returned.
///
/// RFC 1813 §5.2.1: an empty list means "no preference". AUTH_NONE in it means that the server ignores who calls, so it takes
/// AUTH_SYS as well. Whoever asks for Kerberos wants more than that, so Kerberos has to be in the list.
fn allows(allowed: &[u32], used: u32) -> bool {
    allowed.is_empty()
        || allowed.contains(&used)
        || (used == flavor::AUTH_SYS && allowed.contains(&flavor::AUTH_NONE))
}

pub(super) async fn mount_containing_by(
    service: MountClient,
    transport: Arc<dyn Transport>,
    path: &[u8],
    options: ClientOptions,
) -> Result<(Client, Vec<u8>), Error> {
    // The server may hide its exports. Then every directory on the way is a candidate.
    let exports = match service.exports().await {
        Ok(exports) => exports,
        Err(error) if error.ends_everything() => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "no list of exports");
            Vec::new()
        }
    };
    let exports: Arc<[ExportNode]> = exports.into();
    let mut refused = None;
    let mut file: Option<(Client, Vec<u8>)> = None;
    for export in candidates(path, &exports) {
        let (service, transport, known) = (service.clone(), transport.clone(), Arc::clone(&exports));
        match mount_by(service, transport, &export, options.clone(), known).await {
            Ok(client) => {
                let rest = path.get(export.len()..).unwrap_or_default().to_vec();
                if client.root_is_directory().await? {
                    if let Some((file, _)) = file {
                        // The entry that stays otherwise does no harm.
                        let _ = file.unmount().await;
                    }
                    return Ok((client, rest));
                }
                // Servers of Linux mount a single file. It can be read and written, but a name can be removed or replaced
                // only in the directory above, if that can be mounted.
                file.get_or_insert((client, rest));
            }
            Err(error @ Error::Mount { status, .. }) => {
                // The first refusal that is more specific than "no such export" is returned.
                let tells = !matches!(status, MountStatus::NoEnt | MountStatus::NotDir);
                if refused.is_none() || tells {
                    refused = Some(error);
                }
                if tells {
                    break;
                }
            }
            Err(error) if file.is_none() => return Err(error),
            Err(_) => break,
        }
    }
    if let Some(mounted) = file {
        return Ok(mounted);
    }
    let path = String::from_utf8_lossy(path).into_owned();
    Err(refused.unwrap_or(Error::Mount { status: MountStatus::NoEnt, path }))
}

/// Returns the paths to try as exports for `path`: the exports that contain it, longest first. Without any,
/// returns the path itself and the directories above it.
fn candidates(path: &[u8], exports: &[ExportNode]) -> Vec<Vec<u8>> {
    let contains = |export: &[u8]| {
        let bare = export.strip_suffix(b"/").unwrap_or(export);
        path.strip_prefix(bare).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let mut found: Vec<Vec<u8>> = exports
        .iter()
        .map(|export| export.directory.as_bytes())
        .filter(|export| export.starts_with(b"/") && contains(export))
        .map(<[u8]>::to_vec)
        .collect();
    if found.is_empty() {
        found = (0..=path.len())
            .filter(|&end| path.get(end).is_none_or(|&byte| byte == b'/'))
            .filter_map(|end| path.get(..end))
            .filter(|prefix| !prefix.ends_with(b"/"))
            .map(|prefix| if prefix.is_empty() { b"/".to_vec() } else { prefix.to_vec() })
            .collect();
    }
    found.sort_by_key(|export| std::cmp::Reverse(export.len()));
    found.dedup();
    found
}

/// Returns the MOUNT service of the server that `rpc` is connected to: on that connection, else over TCP.
async fn mount_service(rpc: &rpcrdma::Client, options: &ClientOptions) -> Result<MountClient, Error> {
    let transport: Arc<dyn Transport> = Arc::new(rpc.clone());
    let probe = MountClient::on(transport.clone(), options.credential.clone(), Some(options.mount_timeout));
    match probe.null().await {
        Ok(()) => Ok(MountClient::on(transport, options.credential.clone(), options.timeout)),
        Err(
            error @ Error::Transport {
                source: CallError::Unreachable { .. } | CallError::Closed { .. } | CallError::Tls { .. },
                ..
            },
        ) => Err(error),
        // RFC 5531 §9: PROG_UNAVAIL, as other NFS servers answer on RDMA, or no answer.
        Err(error) => {
            mount_service_over_tcp(rpc, options, &format!("not on the NFS connection ({error})")).await
        }
    }
}

/// Returns the MOUNT service on TCP; `otherwise` is the reason for the use of TCP.
async fn mount_service_over_tcp(
    rpc: &rpcrdma::Client,
    options: &ClientOptions,
    otherwise: &str,
) -> Result<MountClient, Error> {
    let mut address = rpc.peer_address();
    let host = address.ip();
    let failed = |reason: String| Error::NoMountService {
        host: host.to_string(),
        reason: format!("{otherwise}; {reason}"),
    };
    if let Some(port) = options.mount_port {
        address.set_port(port);
    } else {
        let hint = |error: RpcbindError| failed(format!("{error}; name its TCP port"));
        let netid = if host.is_ipv6() { Netid::Tcp6 } else { Netid::Tcp };
        address.set_port(rpcbind::PORT);
        let rpcbind = Rpcbind::connect_within(address, options.mount_timeout).await.map_err(hint)?;
        address = rpcbind.lookup(MOUNT_PROGRAM, MOUNT_VERSION, netid).await.map_err(hint)?;
    }
    // RFC 9289 §4.1: TLS on one port says nothing of another, so this connection asks for it itself.
    connect_mount(address, options, rpc.tls().cloned()).await.map_err(failed)
}

async fn connect_mount(
    address: SocketAddr,
    options: &ClientOptions,
    tls: Option<TlsClient>,
) -> Result<MountClient, String> {
    let limit = options.mount_timeout;
    let mut config = rpcrdma::ClientConfig::default();
    config.memory = MOUNT_MEMORY;
    config.tls = tls;
    config.protocol.program = Some((MOUNT_PROGRAM, MOUNT_VERSION));
    let connecting =
        rpcrdma::Client::builder().config(config).transport(rpcrdma::Transport::tcp()).connect(address);
    let client = tokio::time::timeout(limit, connecting)
        .await
        .map_err(|_| format!("no TCP connection to {address} within {limit:?}"))?
        .map_err(|error| error.to_string())?;
    let service = MountClient::on(Arc::new(client), options.credential.clone(), Some(limit));
    service.null().await.map_err(|error| format!("TCP to {address}: {error}"))?;
    Ok(service)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{DirPath, Groups, KRB5, KRB5I};

    #[test]
    fn kerberos_has_to_be_in_the_list() {
        let (none, sys) = (flavor::AUTH_NONE, flavor::AUTH_SYS);
        for (allowed, used, expected) in [
            (&[][..], KRB5I, true),
            (&[sys, KRB5I, none], KRB5I, true),
            (&[sys, KRB5, none], KRB5I, false),
            (&[sys, none], KRB5, false),
            (&[none], KRB5, false),
            (&[none], sys, true),
            (&[KRB5, none], sys, true),
            (&[KRB5], sys, false),
        ] {
            assert_eq!(allows(allowed, used), expected, "{allowed:?} {used}");
        }
    }

    fn exports(paths: &[&str]) -> Vec<ExportNode> {
        let export = |path: &&str| ExportNode { directory: DirPath::new(*path), groups: Groups::default() };
        paths.iter().map(export).collect()
    }

    fn check(path: &str, exported: &[&str], expected: &[&str]) {
        let found = candidates(path.as_bytes(), &exports(exported));
        let expected: Vec<Vec<u8>> = expected.iter().map(|path| path.as_bytes().to_vec()).collect();
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn which_export_contains_a_path() {
        check("/", &["/"], &["/"]);
        check("/a/b", &["/"], &["/"]);
        check("/a/b", &["/", "/a", "/a/b", "/a/b/c", "/ab"], &["/a/b", "/a", "/"]);
        check("/ab", &["/a", "/"], &["/"]);
        check("/a/b", &["/a/"], &["/a/"]);
        check("/a", &["relative", "/x"], &["/a", "/"]);
        check("/a/b/c", &[], &["/a/b/c", "/a/b", "/a", "/"]);
        check("/", &[], &["/"]);
    }
}
