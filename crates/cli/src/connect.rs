//! Connections to servers: from a URL to an RPC client, and to the mounted export that contains a path. Here URLs with
//! wildcards become those of the objects that they match ([`Servers::expand`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use glob::{MatchOptions, Pattern};
use rpcrdma::tls::TlsClient;
use rpcrdma::{AttemptError, CallError, CcpClient, ConnectError, GssUser, Transport, Versions, Workers};
use rpcrdma_gssapi::KerberosInitiator;
use rpcrdma_iwarp::Timeouts;
use rpcrdma_nfs::client::{Client, ClientOptions, Error, NfsUrl, Node, Query};
use rpcrdma_nfs::wire::{
    ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, AccessArgs, FileType, NFS_PROGRAM, NFS_VERSION, Status,
};
use rpcrdma_oncrpc::{AuthStat, Credential, Refused};
use rpcrdma_verbs::{self as verbs, Connector};
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep, timeout};

use crate::arguments::{Connection, Flavor, Proto};
use crate::exit::{Exit, Failure};
use crate::output::{printable, warn};
use crate::provider::Settings;

/// Memory for READs and WRITEs in flight and for messages, in bytes.
const MEMORY: usize = 256 << 20;

/// Program NFS and its version.
pub(crate) const NFS: (u32, u32) = (NFS_PROGRAM, NFS_VERSION);

/// Opens an RPC connection to the host of a URL. Tries all addresses of the host in turn. The connection
/// offers Version Two by a NULL Call of `program`.
pub(crate) async fn rpc(
    url: &NfsUrl,
    connection: &Connection,
    program: (u32, u32),
) -> Result<rpcrdma::Client, Failure> {
    let versions = connection.versions()?;
    let tls = connection.tls.settings(connection.proto, url.host())?;
    let ccp = conf_rdma(connection, url.host()).await?;
    let settings =
        Settings { options: &connection.rdma, no_crc: connection.no_crc, timeouts: Timeouts::default() };
    let authority = url.authority(connection.proto.default_port());
    let unknown = |reason: &dyn std::fmt::Display| {
        Failure::new(Exit::Unreachable, format!("cannot find the address of {}: {reason}", url.host()))
    };
    let addresses: Vec<SocketAddr> = timeout(connection.timeout, lookup_host(&authority))
        .await
        .map_err(|_| unknown(&format_args!("no answer within {:?}", connection.timeout)).late())?
        .map_err(|error| unknown(&error))?
        .collect();
    let mut last = None;
    // Whether the last server had all its time.
    let mut late = false;
    for address in addresses {
        let began = Instant::now();
        let mut doubt = String::new();
        let attempt = async {
            let connector = match connection.proto {
                Proto::Rdma => {
                    let (connector, chosen) = settings.connector(address).await?;
                    doubt = chosen.hint();
                    Some(connector)
                }
                Proto::Tcp => None,
            };
            let opened = open(address, connector, connection, versions, program, (tls.clone(), ccp.clone()));
            opened.await.map_err(|error| explain(&error, connection))
        };
        let reason = match timeout(connection.timeout, attempt).await {
            Ok(Ok(client)) => {
                let (open, wanted) = (client.connections(), connection.connections);
                if open < usize::try_from(wanted).unwrap_or(usize::MAX) {
                    warn(format_args!("{address} takes {open} of {wanted} connections; -v shows its reason"));
                }
                return Ok(client);
            }
            Ok(Err(reason)) => reason,
            Err(_) => format!("no connection within {:?}", connection.timeout),
        };
        late = began.elapsed() >= connection.timeout;
        last = Some((address, reason + &doubt));
    }
    let message = match last {
        Some((address, reason)) => {
            format!("cannot connect to {address} over {}: {reason}", connection.proto.name())
        }
        None => format!("{} has no address", url.host()),
    };
    let failure = Failure::new(Exit::Unreachable, message);
    Err(if late { failure.late() } else { failure })
}

/// Returns how connections ask for sizes; `None` if they do not.
async fn conf_rdma(connection: &Connection, host: &str) -> Result<Option<CcpClient>, Failure> {
    if connection.insecure_conf_rdma {
        return Ok(Some(CcpClient::insecure()));
    }
    let user = if connection.conf_rdma { user(connection, host).await? } else { None };
    Ok(user.map(|user| CcpClient::protected(&user)))
}

/// Returns the Kerberos user for a host, if calls are made by one.
pub(crate) async fn user(connection: &Connection, host: &str) -> Result<Option<Arc<GssUser>>, Failure> {
    // Options that exclude each other are told before a missing ticket.
    connection.versions()?;
    if connection.security.sec == Flavor::Sys {
        return connection.security.user(host);
    }
    let (security, host) = (connection.security.clone(), host.to_owned());
    // The library waits for each KDC in turn. It cannot be stopped, and nobody waits for a thread of this kind at the end.
    let found = Workers::new("tickets", 1, 1);
    match timeout(connection.timeout, found.run(move || security.user(&host))).await {
        Ok(found) => found.map_err(|error| Failure::failed(error.to_string()))?,
        Err(_) => Err(Failure::failed(format!(
            "no ticket within {:?}: {}",
            connection.timeout,
            KerberosInitiator::OVERDUE
        ))
        .late()),
    }
}

/// Opens a connection by this connector, or over TCP if there is none.
async fn open(
    to: SocketAddr,
    connector: Option<Arc<dyn Connector>>,
    connection: &Connection,
    versions: Versions,
    program: (u32, u32),
    (tls, ccp): (Option<TlsClient>, Option<CcpClient>),
) -> Result<rpcrdma::Client, ConnectError> {
    let mut config = rpcrdma::ClientConfig::default();
    config.memory = MEMORY;
    config.tls = tls;
    config.ccp = ccp;
    let inline = usize::try_from(connection.inline).unwrap_or(usize::MAX);
    config.protocol.send_size = inline;
    config.protocol.receive_size = inline;
    config.protocol.calls = connection.credits;
    config.connections = usize::try_from(connection.connections).unwrap_or(usize::MAX);
    config.protocol.versions = versions;
    config.protocol.program = Some(program);
    connection.sends.apply(&mut config.protocol);
    config.protocol.timeouts.call = connection.timeout;
    config.protocol.timeouts.connect = connection.timeout;
    let transport = connector.map_or_else(Transport::tcp, Transport::rdma_on);
    rpcrdma::Client::builder().config(config).transport(transport).connect(to).await
}

/// Returns the reason, with a hint where the cause is likely. The line says "cannot connect" and the address already.
fn explain(error: &ConnectError, connection: &Connection) -> String {
    let Some(attempt) = error.attempts().last() else { return error.to_string() };
    let hint = match &attempt.error {
        error if error.is_refused() => "; is the server running there? (rpcrdma serve prints its ports)",
        AttemptError::Link(verbs::ConnectError::Io(_) | verbs::ConnectError::Rejected(_)) => "",
        // A listener that does not speak RDMA.
        _ if connection.proto == Proto::Rdma => {
            "; if that is a TCP port, name the RDMA port, or add --proto tcp"
        }
        _ => "",
    };
    format!("{}{hint}", attempt.error)
}

/// Time after which a peer over TCP without an answer is suspected to expect RDMA there.
const SUSPECT: Duration = Duration::from_millis(250);

/// Returns the result of the first calls on a connection to `peer`. A listener of software iWARP never answers RPC over TCP:
/// it closes each connection at the first call. The client would try again until its time is over, so the function finds
/// out meanwhile whether the peer is one.
pub(crate) async fn first<T>(
    peer: SocketAddr,
    connection: &Connection,
    calls: impl Future<Output = T>,
) -> Result<T, Failure> {
    if connection.proto != Proto::Tcp {
        return Ok(calls.await);
    }
    tokio::select! {
        biased;
        done = calls => Ok(done),
        () = takes_rdma(peer, connection) => Err(Failure::new(Exit::Unreachable, format!(
            "cannot connect to {peer} over tcp: an RDMA listener (software iWARP) is there; leave --proto tcp out, or name \
             the TCP port"
        ))),
    }
}

/// Returns if the peer turns out to be a listener of software iWARP. Otherwise never returns.
async fn takes_rdma(peer: SocketAddr, connection: &Connection) {
    sleep(SUSPECT).await;
    let mut other = connection.clone();
    other.proto = Proto::Rdma;
    let settings = Settings { options: &other.rdma, no_crc: false, timeouts: Timeouts::default() };
    if let Ok((connector, _)) = settings.connector(peer).await
        && let Ok(client) = open(peer, Some(connector), &other, Versions::ONE, NFS, (None, None)).await
    {
        client.close().await;
        return;
    }
    std::future::pending::<()>().await;
}

/// Servers that a command talks to, with a client for each.
pub(crate) struct Servers<'a> {
    connection: &'a Connection,
    open: Vec<Open>,
    /// Exports mounted so far.
    mounted: Vec<Mounted>,
    /// Kerberos users by authority: a host can have several servers, and a context is known to one of them.
    users: Vec<(String, Arc<GssUser>)>,
}

/// A mounted export.
struct Mounted {
    authority: String,
    /// Caller and ports that the URL named.
    query: Query,
    client: Client,
    root_is_nobody: bool,
}

/// A server with a connection.
struct Open {
    authority: String,
    client: rpcrdma::Client,
}

impl<'a> Servers<'a> {
    /// Returns a set of no servers.
    pub(crate) const fn new(connection: &'a Connection) -> Self {
        Self { connection, open: Vec::new(), mounted: Vec::new(), users: Vec::new() }
    }

    /// Returns the RPC connection to the host of a URL; opens one if there is none.
    pub(crate) async fn rpc(&mut self, url: &NfsUrl) -> Result<rpcrdma::Client, Failure> {
        let authority = url.authority(self.connection.proto.default_port());
        if let Some(open) = self.open.iter().find(|open| open.authority == authority) {
            return Ok(open.client.clone());
        }
        let client = rpc(url, self.connection, NFS).await?;
        self.open.push(Open { authority, client: client.clone() });
        Ok(client)
    }

    /// Mounts the export that contains the path of a URL, unless it is mounted already.
    pub(crate) async fn locate(&mut self, url: &NfsUrl) -> Result<Location, Failure> {
        // Before the connection: without a ticket there is nothing to connect for.
        let user = self.user(url).await?;
        let mut options = self.options(url)?;
        let as_root = user.is_none() && matches!(&options.credential, Credential::Sys(sys) if sys.uid == 0);
        options.gss = user;
        let rpc = self.rpc(url).await?;
        let (authority, query) = (url.authority(self.connection.proto.default_port()), url.query());
        let location = |client: Client, path, root_is_nobody| Location {
            client,
            path,
            root_is_nobody,
            url: url.clone(),
            server: rpc.peer_address(),
        };
        let mut known =
            self.mounted.iter().filter(|mounted| mounted.authority == authority && mounted.query == query);
        if let Some((mounted, path)) =
            known.find_map(|mounted| Some((mounted, mounted.client.rest_of(&url.path())?)))
        {
            return Ok(location(mounted.client.clone(), path, mounted.root_is_nobody));
        }
        let mounting = Client::mount_containing(&rpc, url.path(), options);
        let (client, path) = first(rpc.peer_address(), self.connection, mounting)
            .await?
            .map_err(|error| failure(url, error))?;
        let root_is_nobody = as_root && root_is_nobody(&client).await;
        let found = location(client.clone(), path, root_is_nobody);
        self.mounted.push(Mounted { authority, query, client, root_is_nobody });
        Ok(found)
    }

    /// Returns the URLs of the objects that a URL with wildcards matches, sorted, or the URL itself if it has none. An
    /// object with that very name goes before the pattern. If nothing matches, the URL is taken as it stands, and the
    /// command finds nothing there.
    pub(crate) async fn expand(&mut self, url: &NfsUrl) -> Result<Vec<NfsUrl>, Failure> {
        let literal = url.literal();
        let patterns: Vec<(usize, Pattern)> =
            url.patterns().filter_map(|(index, text)| Some((index, compiled(&text)?))).collect();
        if patterns.is_empty() {
            return Ok(vec![literal]);
        }
        if self.is_there(&literal).await? {
            return Ok(vec![literal]);
        }
        let matched = self.matched(url, &patterns).await?;
        Ok(if matched.is_empty() { vec![literal] } else { matched })
    }

    /// Returns the URLs of the objects that the patterns match.
    async fn matched(&mut self, url: &NfsUrl, patterns: &[(usize, Pattern)]) -> Result<Vec<NfsUrl>, Failure> {
        let mut found = vec![url.truncated(0)];
        let mut done = 0;
        for (index, pattern) in patterns {
            let between = |done: usize, index: usize| {
                let names = url.components().iter().skip(done).take(index.saturating_sub(done));
                names.map(Vec::as_slice)
            };
            let last = index + 1 == url.components().len();
            let directories_only = !last || url.is_directory();
            let mut next = Vec::new();
            for parent in found {
                let parent = parent.below(between(done, *index));
                for (name, node) in self.listed(&parent, pattern).await? {
                    // A link may lead to a directory; the next step finds out.
                    let kind = node.attributes.file_type;
                    if !directories_only || matches!(kind, FileType::Directory | FileType::Symlink) {
                        next.push(parent.child(&name));
                    }
                }
            }
            found = next;
            done = index + 1;
        }
        let rest: Vec<&[u8]> = url.components().iter().skip(done).map(Vec::as_slice).collect();
        let mut matched = Vec::new();
        for parent in found {
            let whole = parent.below(rest.iter().copied()).as_directory(url.is_directory());
            // The names after the last pattern need not exist.
            let was_listed = rest.is_empty() && !url.is_directory();
            if was_listed || self.is_there(&whole).await? {
                matched.push(whole);
            }
        }
        Ok(matched)
    }

    async fn is_there(&mut self, url: &NfsUrl) -> Result<bool, Failure> {
        match self.locate(url).await {
            Ok(location) => Ok(location.client.lookup_link(&location.path).await.is_ok()),
            Err(failure) if failure.exit() != Exit::Failed => Err(failure),
            Err(_) => Ok(false),
        }
    }

    /// Returns the entries of a directory that a pattern matches, sorted; none of a directory that cannot be listed.
    async fn listed(&mut self, url: &NfsUrl, pattern: &Pattern) -> Result<Vec<(Vec<u8>, Node)>, Failure> {
        let location = match self.locate(url).await {
            Ok(location) => location,
            Err(failure) if failure.exit() != Exit::Failed => return Err(failure),
            Err(_) => return Ok(Vec::new()),
        };
        let Ok(directory) = location.client.lookup(&location.path).await else { return Ok(Vec::new()) };
        let mut reader = location.client.dir_reader(directory.handle, &location.path);
        let mut found = Vec::new();
        // Names that begin with a dot are hidden from patterns that do not.
        let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
        while let Ok(Some(batch)) = reader.next().await {
            for item in batch {
                if pattern.matches_with(&item.name.to_string_lossy(), options)
                    && let Ok(Some(node)) = location.client.entry_of(directory.handle, &item).await
                {
                    found.push((item.name.into_bytes(), node));
                }
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }

    /// Closes all connections in order, so that their counters are logged.
    pub(crate) async fn close(self) {
        for Open { authority, client } in self.open {
            if let Some((_, user)) = self.users.iter().find(|(known, _)| *known == authority) {
                client.end_context(user).await;
            }
            client.close().await;
        }
    }

    /// Returns the options for NFS clients that make their calls by AUTH_SYS.
    ///
    /// # Errors
    /// The URL or the options name a caller in a way that has no meaning.
    pub(crate) fn options(&self, url: &NfsUrl) -> Result<ClientOptions, Failure> {
        let mut options = ClientOptions::default();
        options.credential = self.connection.security.credential(url.query())?;
        options.mount_port = url.query().mount_port.or(self.connection.mountport);
        options.mount_timeout = options.mount_timeout.min(self.connection.timeout);
        Ok(options)
    }

    /// Returns the Kerberos user for the server of a URL, if calls are made by one.
    async fn user(&mut self, url: &NfsUrl) -> Result<Option<Arc<GssUser>>, Failure> {
        let authority = url.authority(self.connection.proto.default_port());
        if let Some((_, user)) = self.users.iter().find(|(known, _)| *known == authority) {
            return Ok(Some(Arc::clone(user)));
        }
        let user = user(self.connection, url.host()).await?;
        self.users.extend(user.clone().map(|user| (authority, user)));
        Ok(user)
    }
}

/// Returns a pattern; `None` if the text is no pattern, such as a bracket alone.
pub(crate) fn compiled(text: &str) -> Option<Pattern> {
    // Two stars in a row mean one here.
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '*' || !plain.ends_with('*') {
            plain.push(character);
        }
    }
    Pattern::new(&plain).ok()
}

/// Path at a server, and the mounted export that contains it.
pub(crate) struct Location {
    /// Client of the export.
    pub(crate) client: Client,
    /// Path relative to the root of the export.
    pub(crate) path: Vec<u8>,
    /// Whether this process is root but the server does not treat it as root.
    pub(crate) root_is_nobody: bool,
    url: NfsUrl,
    server: SocketAddr,
}

impl Location {
    /// Returns the components of the path.
    pub(crate) fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.path.split(|&byte| byte == b'/').filter(|part| !part.is_empty())
    }

    /// Returns whether this is the root of the export.
    pub(crate) fn is_root(&self) -> bool {
        self.components().next().is_none()
    }

    /// Returns the path of a name in this directory.
    pub(crate) fn child(&self, name: &[u8]) -> Vec<u8> {
        let path = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        [path, b"/", name].concat()
    }

    /// Returns whether both are in the same export of the same server.
    pub(crate) fn same_export(&self, other: &Self) -> bool {
        self.server == other.server && self.client.root() == other.client.root()
    }

    /// Returns the failure for an error of an operation on this path.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        explained(&self.url, &error, self.root_is_nobody)
    }

    /// Returns the failure for an error of an operation on an object below this path, whose URL is given.
    pub(crate) fn failure_at(&self, url: &NfsUrl, error: Error) -> Failure {
        explained(url, &error, self.root_is_nobody)
    }

    /// Returns the address of the server.
    pub(crate) const fn server(&self) -> SocketAddr {
        self.server
    }
}

/// Returns whether an export gives fewer rights than root has to a client whose calls are made as root.
///
/// In the root directory of a writable export, root may do everything. If all users may do so, the answer
/// proves nothing: the function returns `false`, and no hint is given.
pub(crate) async fn root_is_nobody(client: &Client) -> bool {
    let access = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY;
    let granted = client.procedures().access(&AccessArgs { object: client.root(), access }).await;
    granted.is_ok_and(|granted| granted.access & access != access)
}

/// Returns the failure for an error of an operation on the path of a URL, before an export is mounted.
pub(crate) fn failure(url: &NfsUrl, error: Error) -> Failure {
    explained(url, &error, false)
}

fn explained(url: &NfsUrl, error: &Error, root_is_nobody: bool) -> Failure {
    if let Error::Unfinished { error, leftover } = error {
        let failure = explained(url, error, root_is_nobody);
        let left =
            format!("{failure}; the unfinished file {leftover} may be left beside it: rpcrdma rm removes it");
        return Failure::new(failure.exit(), printable(left.as_bytes()));
    }
    let path = url.path();
    let text = describe(error, &path, root_is_nobody);
    let message = match error {
        // The text names the local file: the URL is not at fault.
        Error::Local { .. } => text,
        Error::IsDirectory { path: directory } if !names(&path, directory) => text,
        Error::IsDirectory { .. } => format!("{url} {IS_DIRECTORY}"),
        _ => format!("{url}: {text}"),
    };
    Failure::new(exit(error, Exit::Failed), message)
}

/// Returns the reason for the exit code after this error, or `otherwise` if the server answered.
pub(crate) fn exit(error: &Error, otherwise: Exit) -> Exit {
    match error {
        // The server is there, but not for this user.
        Error::Transport {
            source: CallError::NoContext { .. } | CallError::ContextTimedOut { .. }, ..
        } => otherwise,
        Error::Transport { .. } | Error::NoMountService { .. } => Exit::Unreachable,
        Error::Unfinished { error, .. } => exit(error, otherwise),
        _ => otherwise,
    }
}

/// Complaint about a directory to copy, after its name.
const IS_DIRECTORY: &str = "is a directory: add -r to copy it";

/// Returns whether `path`, of a URL, ends with the path of an error.
pub(crate) fn names(path: &[u8], about: &str) -> bool {
    path.strip_suffix(b"/").unwrap_or(path).ends_with(about.trim_matches('/').as_bytes())
}

/// Returns the text for an error of an operation on `path`. The caller prints the path itself.
pub(crate) fn describe(error: &Error, path: &[u8], root_is_nobody: bool) -> String {
    let text = match error {
        Error::NoMountService { .. } => format!("{error} (--mountport)"),
        Error::Nfs { status, operation, path: about } => {
            // The object is named only if it lies below `path`.
            let place =
                if names(path, about) { String::new() } else { format!("{}: ", about.trim_matches('/')) };
            let hint = match status {
                Status::Acces | Status::Perm if root_is_nobody => {
                    "; root is nobody at this server unless it exports with squash=none"
                }
                _ => "",
            };
            format!("{place}{status} [{operation}]{hint}")
        }
        Error::IsDirectory { path } => format!("{path} {IS_DIRECTORY}"),
        Error::Rpc { source: Refused::AuthError(AuthStat::TooWeak), .. } => format!(
            "{error}: the server demands TLS (--proto tcp --xprtsec tls or mtls), or it runs on this machine, and another user \
             is claimed"
        ),
        Error::NotDirectory { path: about, seen } if names(path, about) => format!("not a directory: {seen}"),
        error => error.to_string(),
    };
    printable(text.as_bytes())
}
