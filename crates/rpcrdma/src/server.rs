//! [`Server`]: RPC programs over RDMA and TCP, through one dispatch and one reply cache.
//!
//! Each listener has a task that accepts, and each connection a task of its own. Connections being set up have a limit
//! of their own, so that silent peers cannot keep others out. Stopping is graceful: listeners close, calls in progress
//! are answered within [`grace`](crate::ServerConfig::grace), then connections close.
//! [`Server::spawn`] serves in a task of its own, and gives a [`ServerHandle`] for the end.
//!
//! Around the programs stand interceptors ([`ServerBuilder::intercept`]) and limits on calls in progress
//! ([`ServerBuilder::shed`]).
//!
//! *Buffers.* All payload memory comes from one domain, which bounds it, and within the domain from the share of the
//! peer's address ([`PeerShares`], [`ServerConfig`]).
//!
//! *Errors.* A faulty connection ends alone (I6). A program that panics ends its call only, with SYSTEM_ERR. A failed accept
//! is logged and tried again after a pause.

mod handle;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rpcrdma_oncrpc::gss::GssServer;
use rpcrdma_oncrpc::{CacheCounters, InterceptService, RegisterError, TransportKind};
use rpcrdma_proto::{Binding, Messages};
use rpcrdma_verbs::{Counters, Listener, ProtectionDomain, TcpEnds};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use self::handle::ServerHandle;
use crate::admission::{Admission, Refused};
use crate::backchannel::Backchannel;
use crate::ccp::CcpServer;
use crate::clients::Visit;
use crate::config::ServerConfig;
use crate::counts::ProcedureStats;
use crate::owners::{NoOwner, Owner, Owners};
use crate::programs::{Around, Programs};
use crate::refusals::{Refusals, RefusedConnections};
use crate::registry::{Origins, ServedConnection, TransportStats};
use crate::serving::{Phase, Shared, StopSignal, plain};
use crate::shares::PeerShares;
use crate::shed::{ShedLimits, ShedStats};
use crate::turns::Turns;
use crate::{rdma, tcp};

/// A server of RPC programs over RDMA and TCP, through one dispatch and one reply cache. [`ServerConfig`] bounds its
/// memory and its connections.
pub struct Server {
    inner: Arc<Inner>,
    rdma: Vec<Box<dyn Listener>>,
    tcp: Vec<TcpListener>,
}

/// A builder of [`Server`]s.
#[derive(Default)]
pub struct ServerBuilder {
    config: ServerConfig,
    shares: Option<PeerShares>,
    programs: Vec<Arc<dyn Binding>>,
    around: Around,
    gss: Option<Arc<GssServer>>,
    rdma: Vec<Box<dyn Listener>>,
    tcp: Vec<TcpListener>,
}

/// The reason why a server could not be built, or stopped serving.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server was given no listener.
    #[error("the server has no listener")]
    NoListener,
    /// A program cannot be served beside the others.
    #[error(transparent)]
    Program(#[from] RegisterError),
    /// The memory can never hold one Receive, or the Receives for [`ServerConfig::least_credits`] of all connections.
    #[error("{memory} bytes of memory for Receives, which take {needed}")]
    Memory {
        /// Memory for Receives, or for one peer address, in bytes.
        memory: usize,
        /// Memory that one Receive takes, or those that are promised, in bytes.
        needed: usize,
    },
    /// CONF_RDMA needs protection ([`CcpServer::Protected`](crate::CcpServer::Protected)), but there are no contexts that
    /// could give it ([`ServerBuilder::gss`]).
    #[error("CONF_RDMA needs the protection of RPCSEC_GSS, which the server does not have")]
    Unprotected,
    /// The task of a listener ended, by a defect of this crate.
    #[error("the task of a listener ended unexpectedly")]
    ListenerEnded,
    /// The runtime ended before a server that was [spawned](Server::spawn) had stopped in order.
    #[error("the runtime ended before the server had stopped")]
    Interrupted,
}

/// Counters of a server, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Connections now, including those being set up and those that have ended while calls of theirs are still carried
    /// out.
    pub connections: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections that are being set up; part of `connections`.
    pub half_open: usize,
    /// Connections refused: for a limit, or because their owner could not be found out.
    pub refused: u64,
    /// These by reason.
    pub refused_by: RefusedConnections,
    /// Calls received.
    pub calls: u64,
    /// RDMA connections that agreed by CONF_RDMA ([`ccp`](crate::ccp)).
    pub agreed: u64,
    /// Calls made to clients, in the reverse direction.
    pub reverse_calls: u64,
    /// The connections over RDMA, with those that have ended.
    pub rdma: TransportStats,
    /// The connections over TCP, with those that have ended.
    pub tcp: TransportStats,
    /// Credits granted to all clients with an open connection.
    pub credits_granted: u64,
    /// Bytes of the pool in use.
    pub memory_in_use: usize,
    /// Most bytes of the pool.
    pub memory_limit: usize,
    /// Payload bytes copied between the RDMA links and the memory of calls. Providers may copy payload that travels by
    /// Send; payload in chunks is never copied.
    pub payload_bytes_copied: u64,
    /// Other bytes of messages that RPC-over-RDMA copied: short pieces that leave together, and messages that came in
    /// several Sends.
    pub inline_bytes_copied: u64,
    /// Calls that came by RDMA, by the form that their client chose: inline, with chunks, long, in several Sends, placed.
    pub calls_received: Messages,
    /// Replies to those Calls, by the form that this side chose.
    pub replies_sent: Messages,
    /// The counters of all RDMA links together.
    pub link: Counters,
    /// Counters of the reply cache. Each reply that was evicted early, without proof that its client has it, means that
    /// a call could be executed twice.
    pub reply_cache: CacheCounters,
    /// Calls in progress, and calls shed, within the limits of [`ServerBuilder::shed`].
    pub shed: ShedStats,
    /// Bytes that the replies in the cache count for, within [`ServerConfig::reply_cache`].
    pub reply_cache_memory: usize,
}

/// The state of a server: the part that its connections share, and the part that is for accepting them.
struct Inner {
    shared: Arc<Shared>,
    admission: Admission,
    turns: Turns,
    refusals: Refusals,
    owners: Option<Owners>,
    accepted: AtomicU64,
}

impl Inner {
    /// Returns the user at the other end of a TCP connection, if the check is on and the user is known.
    fn owner(&self, ends: io::Result<Option<TcpEnds>>) -> Result<Option<u32>, Refused> {
        let Some(owners) = &self.owners else { return Ok(None) };
        let Some(ends) = ends.map_err(|_| NoOwner::Closed)? else { return Ok(None) };
        match owners.of(&ends)? {
            Owner::User(user) => Ok(Some(user)),
            Owner::Elsewhere => Ok(None),
        }
    }

    /// Waits for the next connection; meanwhile logs refusals that are due.
    async fn next<T>(&self, accept: impl Future<Output = T>) -> T {
        tokio::pin!(accept);
        loop {
            tokio::select! {
                biased;
                accepted = &mut accept => return accepted,
                () = self.refusals.tell() => {}
            }
        }
    }
}

impl Server {
    /// Starts with the default configuration, no program and no listener.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the server's counters. The handle outlives [`serve`](Self::serve).
    #[must_use]
    pub fn monitor(&self) -> ServerMonitor {
        ServerMonitor { inner: Arc::clone(&self.inner) }
    }

    /// Returns the addresses of the RDMA listeners, in the order in which they were given.
    ///
    /// # Errors
    /// Errors of the provider.
    pub fn rdma_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.rdma.iter().map(|listener| listener.local_address()).collect()
    }

    /// Returns the addresses of the TCP listeners, in the order in which they were given.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn tcp_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.tcp.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves in a task of its own until the handle stops it, or is dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use = "the server stops when its handle is dropped"]
    pub fn spawn(self) -> ServerHandle {
        ServerHandle::new(self)
    }

    /// Serves until `shutdown` is ready, then stops in order. New connections and calls are refused, but calls on a
    /// connection whose client is being called are not. Calls in progress are answered, for at most
    /// [`grace`](ServerConfig::grace), then connections close. Handlers whose connection has ended by then are dropped, since
    /// their clients may call another server. If this future is dropped instead, connections end at once.
    ///
    /// # Errors
    /// [`ServeError::ListenerEnded`]; the server has stopped in order in this case, too.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        self.serve_telling(shutdown, || ()).await
    }

    /// Serves as [`serve`](Self::serve) does, and calls `closed` when no listener is open any more, before the calls in
    /// progress are answered. From then on another server accepts all connections that come to a socket that both have.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub async fn serve_telling(
        self,
        shutdown: impl Future<Output = ()>,
        closed: impl FnOnce(),
    ) -> Result<(), ServeError> {
        self.inner.turns.at_a_time(Handle::current().metrics().num_workers());
        let (phase, signal) = watch::channel(Phase::Run);
        let stop = StopSignal::new(signal);
        // Every connection holds a sender; the channel ends when all are gone.
        let (alive, mut all_gone) = mpsc::channel::<()>(1);
        let mut listeners = JoinSet::new();
        for listener in self.tcp {
            listeners.spawn(accept_tcp(listener, Arc::clone(&self.inner), stop.clone(), alive.clone()));
        }
        for listener in self.rdma {
            listeners.spawn(accept_rdma(listener, Arc::clone(&self.inner), stop.clone(), alive.clone()));
        }
        drop(alive);

        let result = tokio::select! {
            () = shutdown => Ok(()),
            _ = listeners.join_next() => Err(ServeError::ListenerEnded),
        };
        // Listening sockets close here: connection attempts are refused, not left waiting.
        listeners.shutdown().await;
        closed();
        phase.send_replace(Phase::Drain);
        if timeout(self.inner.shared.config.grace, all_gone.recv()).await.is_err() {
            tracing::warn!(
                connections = self.inner.admission.connections(),
                "calls in progress took too long"
            );
            phase.send_replace(Phase::Abort);
            all_gone.recv().await;
        }
        self.inner.shared.orphans.end();
        result
    }
}

impl ServerBuilder {
    /// Sets limits and timers.
    #[must_use]
    pub fn config(mut self, config: ServerConfig) -> Self {
        self.config = config;
        self
    }

    /// Takes memory from these shares instead of [`ServerConfig::shares`]. Programs may take theirs from the same
    /// shares.
    #[must_use]
    pub fn shares(mut self, shares: PeerShares) -> Self {
        self.shares = Some(shares);
        self
    }

    /// Serves this program on every listener.
    ///
    /// A client that takes no replies makes the server keep them. Short replies count against the share of the client's
    /// address. For longer results (more than 2 KiB in one piece), a program should take memory from that share itself,
    /// before it makes them: [`PeerShares::of`]. Otherwise the pool does not bound them.
    #[must_use]
    pub fn program(mut self, program: Arc<dyn Binding>) -> Self {
        self.programs.push(program);
        self
    }

    /// Puts an interceptor around the calls of all programs, inside of those given before: the first one sees a call first
    /// and its results last. It sees neither procedure 0 nor a repeat that gets a kept reply ([`InterceptService`]).
    #[must_use]
    pub fn intercept(mut self, interceptor: impl InterceptService) -> Self {
        self.around.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Sheds calls beyond these limits on calls in progress; by default none is. A call that is shed gets SYSTEM_ERR at once.
    /// Procedure 0 never is. [`ServerStats::shed`] counts.
    #[must_use]
    pub fn shed(mut self, limits: ShedLimits) -> Self {
        self.around.limits = Some(limits);
        self
    }

    /// Serves calls of RPCSEC_GSS, of callers in these contexts. All listeners share them. Each program still decides
    /// whether it accepts the flavour ([`Program::accepts_flavor`](rpcrdma_oncrpc::Program::accepts_flavor)).
    #[must_use]
    pub fn gss(mut self, contexts: Arc<GssServer>) -> Self {
        self.gss = Some(contexts);
        self
    }

    /// Serves RPC-over-RDMA on this listener.
    #[must_use]
    pub fn listen_rdma(mut self, listener: Box<dyn Listener>) -> Self {
        self.rdma.push(listener);
        self
    }

    /// Serves RPC over TCP with record marking on this listener.
    #[must_use]
    pub fn listen_tcp(mut self, listener: TcpListener) -> Self {
        self.tcp.push(listener);
        self
    }

    /// Builds the server, which accepts connections when [`Server::serve`] is polled.
    ///
    /// # Errors
    /// [`ServeError::NoListener`], [`ServeError::Program`], [`ServeError::Memory`], [`ServeError::Unprotected`].
    pub fn build(self) -> Result<Server, ServeError> {
        if self.rdma.is_empty() && self.tcp.is_empty() {
            return Err(ServeError::NoListener);
        }
        let mut config = self.config;
        if config.ccp == Some(CcpServer::Protected) && self.gss.is_none() {
            return Err(ServeError::Unprotected);
        }
        let around = Around { slow: config.slow_call, ..self.around };
        let mut programs = Programs::new(self.programs, around, config.reply_cache)?;
        if let Some(contexts) = self.gss {
            programs = programs.with_gss(contexts);
        }
        let shares = self.shares.unwrap_or_else(|| config.shares());
        if !self.rdma.is_empty() {
            check_memory(&config, &shares)?;
        }
        config.protocol.bindings = Some(Arc::new(programs.bindings()));
        let inner = Inner {
            admission: Admission::new(
                config.max_connections,
                config.max_connections_per_peer,
                config.max_half_open,
            ),
            turns: Turns::default(),
            refusals: Refusals::default(),
            owners: config.local_owners.then(Owners::new),
            accepted: AtomicU64::new(0),
            shared: Arc::new(Shared::new(config, programs, shares)),
        };
        Ok(Server { inner: Arc::new(inner), rdma: self.rdma, tcp: self.tcp })
    }
}

/// The counters and open connections of a server, also while it serves. Cheap to clone.
#[derive(Clone)]
pub struct ServerMonitor {
    inner: Arc<Inner>,
}

impl ServerMonitor {
    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let Inner { shared, admission, refusals, accepted, .. } = &*self.inner;
        let (sums, refused_by) = (shared.totals.get(), refusals.total());
        let ([rdma, tcp], credits_granted) = shared.registry.totals();
        let memory = shared.shares.domain().usage();
        ServerStats {
            connections: admission.connections(),
            half_open: admission.half_open(),
            accepted: accepted.load(Ordering::Relaxed),
            refused: refused_by.total(),
            refused_by,
            calls: shared.calls(),
            agreed: shared.agreed(),
            reverse_calls: shared.backchannels.calls(),
            rdma,
            tcp,
            credits_granted,
            memory_in_use: memory.in_use,
            memory_limit: memory.limit,
            payload_bytes_copied: sums.copied.saturating_add(sums.link.payload_bytes_copied),
            inline_bytes_copied: sums.copied_inline,
            calls_received: sums.calls,
            replies_sent: sums.replies,
            link: sums.link,
            reply_cache: shared.programs.cache_counters(),
            shed: shared.programs.shed_stats(),
            reply_cache_memory: shared.programs.cache_memory(),
        }
    }
}

impl ServerMonitor {
    /// Returns the counters of all procedures that were called, those of one program together. Programs that are not served
    /// come first.
    #[must_use]
    pub fn procedures(&self) -> Vec<ProcedureStats> {
        self.inner.shared.counts.get()
    }

    /// Returns all open connections, oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<ServedConnection> {
        self.inner.shared.registry.list()
    }

    /// Ends the open connection with this [number](ServedConnection::id) at once. Returns whether there was one. Its calls in
    /// progress go on to the reply cache. The client may connect again. The log of clients names an administrator as the reason.
    #[must_use = "the connection may have ended by itself"]
    pub fn disconnect(&self, id: u64) -> bool {
        let ended = self.inner.shared.registry.disconnect(id);
        if let Some(peer) = ended {
            tracing::info!(id, peer = peer.map(tracing::field::display), "connection ended by order");
        }
        ended.is_some()
    }

    /// Returns the reverse directions of all open RDMA connections (RFC 8167), oldest connection first. The upper layer
    /// has to know which of the clients serve programs: the others answer PROG_UNAVAIL, or nothing.
    #[must_use]
    pub fn backchannels(&self) -> Vec<Backchannel> {
        self.inner.shared.backchannels.open()
    }
}

/// Checks that RDMA connections find memory for their Receives, and warns if they can take much of it.
fn check_memory(config: &ServerConfig, shares: &PeerShares) -> Result<(), ServeError> {
    let whole = shares.domain().usage().limit;
    let (memory, needed) = match shares.receives().filter(|_| config.least_credits.is_some()) {
        Some(apart) => {
            (apart.usage().limit, config.least_receives().saturating_mul(config.max_connections.max(1)))
        }
        None => (whole.min(shares.limit()), ProtectionDomain::room_for(config.protocol.receive_size)),
    };
    if needed > memory {
        return Err(ServeError::Memory { memory, needed });
    }
    if shares.receives().is_some() {
        return Ok(());
    }
    for (whose, connections, limit) in [
        ("all connections", config.max_connections, whole),
        ("all connections of one address", config.max_connections_per_peer, shares.limit()),
    ] {
        let receives = config.receives().saturating_mul(connections);
        if receives > limit / 2 {
            tracing::warn!(
                receives,
                limit,
                "{whose} could take more than half of their memory for Receives: allow fewer connections or credits, \
                 smaller inline messages or more memory, or set `least_credits`"
            );
        }
    }
    Ok(())
}

/// Marks a connection as one that the stopping server waits for.
type Alive = mpsc::Sender<()>;

async fn accept_tcp(listener: TcpListener, inner: Arc<Inner>, stop: StopSignal, alive: Alive) {
    loop {
        let (stream, peer) = match inner.next(listener.accept()).await {
            Ok((stream, peer)) => (stream, plain(peer)),
            Err(error) => {
                // For instance EMFILE: trying again at once would fail again.
                tracing::warn!(%error, "accept failed");
                sleep(inner.shared.config.accept_pause).await;
                continue;
            }
        };
        let place = match inner.admission.admit(Some(peer), false) {
            Ok(place) => place,
            Err(refused) => {
                inner.refusals.refuse(Some(peer), refused);
                continue;
            }
        };
        let owner = match inner.owner(tcp::ends(&stream, peer).map(Some)) {
            Ok(owner) => owner,
            Err(refused) => {
                inner.refusals.refuse(Some(peer), refused);
                continue;
            }
        };
        inner.accepted.fetch_add(1, Ordering::Relaxed);
        let config = &inner.shared.config;
        if let Err(error) = tcp::prepare(&stream, config.keep_alive, config.stall) {
            tracing::debug!(%peer, %error, "socket options not set");
        }
        let (shared, stop, alive) = (Arc::clone(&inner.shared), stop.clone(), alive.clone());
        let line = inner.turns.line(Some(peer.ip()));
        let own = line.clone();
        let transport = TransportKind::Tcp;
        let entry =
            inner.shared.registry.open(Origins { peer: Some(peer), transport, provider: "tcp", owner });
        let record = Arc::clone(entry.record());
        let connection = Box::pin(async move {
            tcp::server::run(stream, (peer, owner), shared, (place, line), stop, &entry).await;
            drop(alive);
        });
        record.runs_as(tokio::spawn(own.in_turn(connection)).abort_handle());
    }
}

async fn accept_rdma(mut listener: Box<dyn Listener>, inner: Arc<Inner>, stop: StopSignal, alive: Alive) {
    let provider = listener.provider();
    loop {
        let incoming = match inner.next(listener.accept()).await {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                sleep(inner.shared.config.accept_pause).await;
                continue;
            }
        };
        let peer = incoming.peer_address().map(plain);
        let mut place = match inner.admission.admit(peer, true) {
            Ok(place) => place,
            Err(refused) => {
                inner.refusals.refuse(peer, refused);
                continue;
            }
        };
        let owner = match inner.owner(incoming.tcp_ends()) {
            Ok(owner) => owner,
            Err(refused) => {
                inner.refusals.refuse(peer, refused);
                continue;
            }
        };
        inner.accepted.fetch_add(1, Ordering::Relaxed);
        let (shared, stop, alive) = (Arc::clone(&inner.shared), stop.clone(), alive.clone());
        let line = inner.turns.line(peer.map(|peer| peer.ip()));
        let own = line.clone();
        let transport = TransportKind::Rdma;
        let entry = inner.shared.registry.open(Origins { peer, transport, provider, owner });
        let record = Arc::clone(entry.record());
        let connection = Box::pin(async move {
            let set_up = timeout(shared.config.set_up, rdma::server::set_up(incoming, peer, &shared));
            let outcome = tokio::select! {
                outcome = set_up => outcome,
                // Nothing was promised to this peer yet.
                () = left_alone(stop.clone()) => return,
            };
            match outcome {
                Ok(Ok(accepted)) => {
                    place.opened();
                    let visit = Visit::new(Arc::clone(entry.record()), Arc::clone(&shared.visits));
                    rdma::server::run(accepted, owner, shared, ((place, line), visit), stop, &entry).await;
                }
                Ok(Err(error)) => {
                    let peer = peer.map(tracing::field::display);
                    tracing::info!(peer, %error, "RDMA connection not set up");
                }
                Err(_) => {
                    let peer = peer.map(tracing::field::display);
                    tracing::info!(peer, "RDMA connection not set up in time");
                }
            }
            drop(alive);
        });
        record.runs_as(tokio::spawn(own.in_turn(connection)).abort_handle());
    }
}

/// Time for a connection to be set up when the server stops. A client whose first connection is refused gives up, while one
/// whose connection closes in order comes again.
const LAST_SET_UP: Duration = Duration::from_secs(1);

/// Waits until the server has stopped for so long that a connection is no longer set up.
async fn left_alone(mut stop: StopSignal) {
    if stop.changed().await == Phase::Drain {
        tokio::select! {
            () = sleep(LAST_SET_UP) => {}
            _ = stop.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_iwarp::{Config, IwarpConnector, IwarpListener};

    use super::*;
    use crate::Client;

    /// No server has this program: the refusal is the reply.
    const PROGRAM: u32 = 0x2000_0000;
    const CALLS: u64 = 40;

    /// With two turns for a call, the runtime would look at its sockets twice as well.
    #[tokio::test]
    async fn a_short_call_takes_one_turn() {
        let listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), Config::default()).await.unwrap();
        let server = Server::builder().listen_rdma(Box::new(listener)).build().unwrap();
        let (address, inner) = (server.rdma_addresses().unwrap()[0], Arc::clone(&server.inner));
        let serving = tokio::spawn(server.serve(std::future::pending()));
        let connector = Arc::new(IwarpConnector::new(Config::default()));
        let client =
            Client::builder().transport(crate::Transport::rdma_on(connector)).connect(address).await.unwrap();
        client.null(PROGRAM, 1).await.unwrap_err();
        let before = inner.turns.now();
        for _ in 0..CALLS {
            client.null(PROGRAM, 1).await.unwrap_err();
        }
        let turns = inner.turns.now() - before;
        // A kernel that is busy may deliver a message in two parts.
        assert!((CALLS..CALLS + CALLS / 2).contains(&turns), "{turns} turns");
        client.close().await;
        serving.abort();
    }
}
