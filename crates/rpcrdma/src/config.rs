//! Settings of clients and servers, and the bound on memory that follows from them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rpcrdma_oncrpc::CacheLimits;
use rpcrdma_proto::{Config, Profile, Session, Versions};
use rpcrdma_verbs::ProtectionDomain;

use crate::ccp::{CcpClient, CcpServer};
use crate::connect::ConfigError;
use crate::shares::PeerShares;
use crate::tls::{TlsClient, TlsServer};

/// Settings of a [`Client`](crate::Client).
///
/// ```
/// let mut config = rpcrdma::ClientConfig::default();
/// config.connections = 4;
/// # let _ = config;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Credits, inline sizes, chunks and timers of RPC-over-RDMA. Over TCP, [`calls`](Config::calls) bounds the calls
    /// in flight, and the timers for calls and for reconnecting apply too.
    ///
    /// [`versions`](Config::versions) is Version One by default, because some servers never look at the version.
    /// A client whose highest version is Two needs a [`program`](Config::program), since it connects before any call.
    ///
    /// For a client that serves programs (RFC 8167), [`grant`](Config::grant) bounds the server's Calls in progress, by
    /// default [`REVERSE_CREDITS`](Self::REVERSE_CREDITS). From its grant on, each has a Receive of
    /// [`receive_size`](Config::receive_size) bytes. A client that serves no program grants 1. With
    /// [`reverse_chunks`](Config::reverse_chunks) the client takes chunks with such Calls; [`limits`](Config::limits)
    /// then bounds the part of [`memory`](Self::memory) that each can take. The client sets
    /// [`bindings`](Config::bindings) itself, and [`keep_connected`](Config::keep_connected) if it serves anything.
    pub protocol: Config,
    /// Settings of CONF_RDMA (RFC 5666 §6), with which each RDMA connection then begins; `None`, the default, omits it.
    pub ccp: Option<CcpClient>,
    /// Settings of TLS (RFC 9289), with which each TCP connection then begins, by a NULL call of
    /// [`program`](Config::program), or of rpcbind if that is not set. `None`, the default: no TLS. RPC-over-RDMA has
    /// none, so a client over RDMA refuses the setting. [`connect`](rpcrdma_proto::Timeouts::connect) bounds the time
    /// for connection and handshake together.
    pub tls: Option<TlsClient>,
    /// Connections at a time, 1 to [`MAX_CONNECTIONS`](Self::MAX_CONNECTIONS); 1 by default. Calls are spread over
    /// them: each takes the connection with the fewest calls in progress, or that of its [key](crate::Call::key). On one connection a single thread at a time
    /// works at either end, so several help where processors are left. They hold credits and memory of the server each,
    /// and a server may take fewer from one address: the client then goes on with those. A connection that is lost later
    /// keeps its calls until it is back, or until their time is up. A client that serves programs has one connection.
    pub connections: usize,
    /// Memory that Buffers of this client may hold together, in bytes, on all connections: Receives, result windows,
    /// TCP records.
    pub memory: usize,
    /// RDMA Reads that the server may have outstanding at this side. With [`ccp`](Self::ccp) at least 1, because 0 in
    /// CONF_RDMA forbids Read chunks.
    pub ird: u16,
    /// RDMA Reads that this side wants to have outstanding at the server. They serve the Read chunks of its Calls in
    /// the reverse direction and, under the Read-Read model, of its replies. With
    /// [`reverse_chunks`](Config::reverse_chunks) or that model at least 1.
    pub ord: u16,
    /// Work requests that the send queue must hold.
    pub max_send_wr: usize,
    /// Longest record over TCP, in bytes: of a reply that is accepted, and of a call that is sent. A call whose largest
    /// results do not fit is refused ([`CallError::ResultsTooLong`](crate::CallError::ResultsTooLong)).
    pub max_record: usize,
    /// Time that a TCP record that has begun, or calls being sent, may stand still; then the connection is given up.
    /// Data slower than [`least_rate`](rpcrdma_proto::Timeouts::least_rate) on average counts as standing still.
    pub stall: Duration,
    /// Idle time after which TCP probes whether the peer is still there.
    pub keep_alive: Duration,
    /// Bounds of the cache that answers retransmitted Calls of the server to procedures that must not be repeated.
    pub reply_cache: CacheLimits,
}

impl ClientConfig {
    /// Default credits of the reverse direction, the number that Linux grants.
    pub const REVERSE_CREDITS: u32 = 16;
    /// Most connections of a client, as many as Linux allows a mount (`nconnect`).
    pub const MAX_CONNECTIONS: usize = 16;

    /// Returns the memory that results of one call can have at most over RPC-over-RDMA, in bytes. The Receives for its reply
    /// and for the server's Calls are there before the call leaves (rule I3).
    pub(crate) fn memory_for_results(&self) -> usize {
        let receives = usize::try_from(self.protocol.grant).unwrap_or(usize::MAX).saturating_add(1);
        let receive = ProtectionDomain::room_for(self.protocol.receive_size);
        self.memory.saturating_sub(receives.saturating_mul(receive))
    }

    /// Refuses a number of connections that is not allowed.
    pub(crate) fn check_connections(&self) -> Result<(), ConfigError> {
        let (asked, most) = (self.connections, Self::MAX_CONNECTIONS);
        if (1..=most).contains(&asked) {
            return Ok(());
        }
        Err(ConfigError::Connections { asked, most })
    }

    /// Refuses settings of RPC-over-RDMA that cannot work together.
    pub(crate) fn check_rdma(&self) -> Result<(), ConfigError> {
        let protocol = &self.protocol;
        if protocol.takes_reverse_chunks() && protocol.has_read_read() {
            return Err(ConfigError::ReverseChunksAndReadRead);
        }
        let receive = ProtectionDomain::room_for(protocol.receive_size);
        if receive.saturating_mul(self.connections) > self.memory {
            let (memory, connections) = (self.memory, self.connections);
            return Err(ConfigError::Memory { memory, receive, connections });
        }
        // Only a session knows whether it can connect before any call.
        Ok(Session::new(Arc::new(protocol.clone()), 0).connect(Instant::now())?)
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        let mut protocol = Config::default();
        protocol.grant = Self::REVERSE_CREDITS;
        Self {
            protocol,
            ccp: None,
            tls: None,
            connections: 1,
            memory: 256 << 20,
            ird: 32,
            ord: 1,
            max_send_wr: 1024,
            max_record: 4 << 20,
            stall: Duration::from_secs(30),
            keep_alive: Duration::from_secs(20),
            reply_cache: CacheLimits::default(),
        }
    }
}

/// Settings of a [`Server`](crate::Server).
///
/// # Memory
/// A pool of [`memory`](Self::memory) bytes, which is the bound, holds Receives and payload, and over TCP records,
/// calls in progress and replies. Each RDMA connection reserves at most `grant × receive_size` of the pool for
/// Receives. If its client is called (RFC 8167), it reserves `calls × receive_size` more for the replies and, under the
/// Read-Read model, one Receive for each exposed reply. A software provider takes that memory only while messages
/// arrive. At least `memory − max_connections × (grant + calls) × receive_size` remains for payload: 368 MiB with the
/// defaults. [`least_credits`](Self::least_credits) allows more connections. Outside the pool are the state of each
/// connection, some ten KiB, and the reply cache ([`CacheLimits::memory`]). An exhausted pool makes callers wait, then
/// refuses; it never grows. Programs take the memory of long results from the pool themselves:
/// [`ServerBuilder::program`](crate::ServerBuilder::program).
///
/// All connections from one address together, and the programs that answer them, hold at most
/// [`memory_per_peer`](Self::memory_per_peer) of the pool. So a peer that reads slowly, or never answers our RDMA
/// Reads, uses up its own share only. The limit of an address shrinks with the free memory (`rpcrdma_verbs::is_fair`),
/// down to the need of one connection. With the defaults, ten addresses that take all they can leave 118 MiB, and a
/// hundred leave 15 MiB. Connections are shared out likewise. All addresses of one IPv6 network count as one, and so do
/// all loopback addresses ([`Origin`](crate::Origin)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerConfig {
    /// Credits, inline sizes, bounds on chunk lists and timers of RPC-over-RDMA. The server sets
    /// [`bindings`](Config::bindings) itself. [`calls`](Config::calls) bounds the calls in progress to one client, in
    /// the reverse direction (RFC 8167), by default [`REVERSE_CALLS`](Self::REVERSE_CALLS).
    /// [`versions`](Config::versions) are One, and Two by profile P1, by default. By default a connection without a
    /// call for [`RDMA_IDLE`](Self::RDMA_IDLE) is closed (`timeouts.idle`): it holds Receives, and clients connect
    /// again when they have something to call.
    pub protocol: Config,
    /// Settings of CONF_RDMA (RFC 5666 §6) on RDMA connections; `None`, the default, does not serve it.
    pub ccp: Option<CcpServer>,
    /// Settings of TLS (RFC 9289) on TCP connections; `None`, the default, does not offer it. RPC-over-RDMA has no TLS
    /// (§5.1.3). A connection under TLS reserves 128 KiB of its address's share. [`set_up`](Self::set_up) bounds the time
    /// of its handshake.
    pub tls: Option<TlsServer>,
    /// Memory that Buffers of this server may hold together, in bytes.
    pub memory: usize,
    /// Limit for one peer address while others hold none, in bytes; shrinks as they allocate. Loopback counts as an
    /// address like any other. `None`, the default, is a quarter of [`memory`](Self::memory). The limit is never less
    /// than the need of one connection: twice its Receives and the longest chunks of a Call.
    pub memory_per_peer: Option<usize>,
    /// RDMA Reads that a client may have outstanding at the server. Only two settings expose memory to them:
    /// [`reverse_chunks`](Config::reverse_chunks) in the reverse direction, and the Read-Read model in replies. Either
    /// makes the number at least 1. So does [`ccp`](Self::ccp), where 0 would forbid the Read chunks of Calls.
    pub ird: u16,
    /// RDMA Reads that the server may have outstanding at a client.
    pub ord: u16,
    /// Work requests that the send queue of a connection must hold.
    pub max_send_wr: usize,
    /// Longest Call record accepted over TCP, in bytes.
    pub max_record: usize,
    /// Most calls in progress on one TCP connection; the server reads the next when one of them is answered.
    pub max_calls: usize,
    /// Most calls that a TCP client is assumed to have without a reply, because TCP has no credits. When that many
    /// calls have come after a reply, the reply cache may forget the reply. A client with more calls outstanding can
    /// have a call executed twice.
    pub tcp_calls: usize,
    /// Bytes of replies that may wait on one TCP connection; while more wait, the server reads no further call.
    pub max_queued: usize,
    /// Time without a call after which a TCP connection is closed (RFC 5531 leaves it to the server; 6 min are common).
    pub tcp_idle: Duration,
    /// Time that a TCP record that has begun, or replies being sent, may stand still; then the connection is closed.
    /// Data slower than [`least_rate`](rpcrdma_proto::Timeouts::least_rate) on average counts as standing still.
    pub stall: Duration,
    /// Idle time after which TCP probes whether the peer is still there.
    pub keep_alive: Duration,
    /// Most calls in progress through one [`Backchannel`](crate::Backchannel), including those that wait for credits;
    /// further calls are refused. 0: no client is called.
    pub max_reverse_calls: usize,
    /// Credits that every RDMA connection can be granted, however many connections there are; at least 2. `None`, the
    /// default: each can be granted [`grant`](Config::grant), so the Receives of all connections must fit in the memory.
    ///
    /// With a number, [`shares`](Self::shares) sets memory for Receives aside, at most half of it all. It holds these
    /// credits of [`max_connections`](Self::max_connections), and a quarter of [`memory`](Self::memory) is for further
    /// ones. At its set-up a connection gets further credits, up to `grant`. It gets all while its address holds less
    /// than half of its fair part, a quarter of [`memory_per_peer`](Self::memory_per_peer) at most; later ones get
    /// fewer. Each credit has its Receive with memory all the same. A client with more calls than credits keeps the
    /// other calls until credits return. A server does not start if the memory does not suffice for the least credits.
    pub least_credits: Option<u32>,
    /// Connections at a time, over all listeners.
    pub max_connections: usize,
    /// Connections at a time from one address while there are no others. The limit shrinks as places run out, but an
    /// address without a connection gets one as long as any place is left.
    pub max_connections_per_peer: usize,
    /// RDMA connections being set up at a time. An address can have half of them, and fewer as places run out, but one
    /// as long as any is left.
    pub max_half_open: usize,
    /// Whether a caller on this machine may claim, by AUTH_SYS, only the user who owns the socket at the other end;
    /// root may claim any. The check covers TCP and software iWARP. Without it, any user of this machine can claim any
    /// UID. Default: true.
    pub local_owners: bool,
    /// Time to set up one RDMA connection, or TLS on a TCP connection; then the attempt is dropped.
    pub set_up: Duration,
    /// Pause after a failed accept, for instance when no file descriptor is free.
    pub accept_pause: Duration,
    /// Time to answer the calls in progress when the server stops; then connections are closed at once.
    pub grace: Duration,
    /// Bounds of the cache that answers retransmitted calls to procedures that must not be repeated.
    pub reply_cache: CacheLimits,
    /// Time in the hands of its handler from which on a call is slow; `None`: no call is. A slow call leaves an event of
    /// level `WARN` and target `rpcrdma::slow` when it ends, at most one a second. Default:
    /// [`SLOW_CALL`](Self::SLOW_CALL).
    pub slow_call: Option<Duration>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let mut protocol = Config::default();
        protocol.calls = Self::REVERSE_CALLS;
        protocol.versions = Versions::both(Profile::P1);
        protocol.timeouts.idle = Some(Self::RDMA_IDLE);
        Self {
            protocol,
            ccp: None,
            tls: None,
            memory: 512 << 20,
            memory_per_peer: None,
            ird: 1,
            ord: 32,
            max_send_wr: 1024,
            max_record: (1 << 20) + (64 << 10),
            max_calls: 64,
            tcp_calls: Self::TCP_CALLS,
            max_queued: 4 << 20,
            tcp_idle: Duration::from_secs(360),
            stall: Duration::from_secs(30),
            keep_alive: Duration::from_secs(20),
            max_reverse_calls: 256,
            least_credits: None,
            max_connections: 512,
            max_connections_per_peer: 192,
            max_half_open: 64,
            local_owners: true,
            set_up: Duration::from_secs(10),
            accept_pause: Duration::from_millis(100),
            grace: Duration::from_secs(10),
            reply_cache: CacheLimits::default(),
            slow_call: Some(Self::SLOW_CALL),
        }
    }
}

impl ServerConfig {
    /// Memory of a handler while its call is in progress, in bytes: the future of its program and all that the future
    /// points to. Over TCP, each call reserves this much in the share of the client's address, beside its record.
    /// Programs that hold more take it from that share ([`PeerShares`](crate::PeerShares)).
    pub const HANDLER_ROOM: usize = 3 << 10;
    /// Default time without a call after which an RDMA connection is closed. It is longer than the 5 minutes after
    /// which Linux closes an idle connection itself.
    pub const RDMA_IDLE: Duration = Duration::from_secs(600);
    /// Default of [`slow_call`](Self::slow_call).
    pub const SLOW_CALL: Duration = Duration::from_secs(1);
    /// Memory that an address can have in any case beside the longest chunks of one Call, in bytes. A TCP connection needs
    /// it to read ahead, and for calls in progress.
    pub(crate) const BESIDE_PAYLOAD: usize = 256 << 10;
    /// Least value of [`least_credits`](Self::least_credits). The Receive of the last call in progress may hold its
    /// message while the answer needs the next Receive.
    pub const CREDITS_TO_GO_ON: u32 = 2;
    /// Default of [`tcp_calls`](Self::tcp_calls).
    pub const TCP_CALLS: usize = 1024;
    /// Default number of calls in progress to one client, in the reverse direction.
    pub const REVERSE_CALLS: u32 = 8;

    /// Returns the memory of a server with these settings, for [`ServerBuilder::shares`](crate::ServerBuilder::shares)
    /// and for programs that take memory for their results. Memory that the server or a program takes for an address
    /// counts against the one share of that address.
    #[must_use]
    pub fn shares(&self) -> PeerShares {
        let read_total = usize::try_from(self.protocol.limits.read_total).unwrap_or(usize::MAX);
        let (domain, limit) = (ProtectionDomain::new(self.memory), self.limit_per_peer());
        let payload = ProtectionDomain::room_for(read_total);
        if self.least_credits.is_none() {
            let least = self.receives().saturating_mul(2).saturating_add(payload);
            return PeerShares::new(domain, limit.max(least)).least(least);
        }
        let least = payload.saturating_add(Self::BESIDE_PAYLOAD);
        let limit = (limit - self.further_per_peer()).max(least);
        let first = self.least_receives().saturating_mul(self.max_connections);
        let receives = first.saturating_add(self.memory / 4).min(self.memory / 2);
        PeerShares::new(domain, limit).least(least).receives_apart(receives)
    }

    fn limit_per_peer(&self) -> usize {
        self.memory_per_peer.unwrap_or(self.memory / 4)
    }

    /// Returns the bytes that the connections of one address can have for their further credits, while those of other
    /// addresses have none.
    pub(crate) fn further_per_peer(&self) -> usize {
        self.limit_per_peer() / 4
    }

    /// Returns the bytes that the Receives of one RDMA connection take at least, each with its largest size: for its
    /// [`least_credits`](Self::least_credits), or for [all](Self::receives).
    #[must_use]
    pub fn least_receives(&self) -> usize {
        self.receives_for(self.credits_at_least())
    }

    /// Returns the most credits of a connection beyond those that every one can be granted.
    pub(crate) fn further_credits(&self) -> u32 {
        self.protocol.grant.saturating_sub(self.credits_at_least())
    }

    /// Returns the credits that every connection can be granted.
    pub(crate) fn credits_at_least(&self) -> u32 {
        let grant = self.protocol.grant;
        self.least_credits.map_or(grant, |least| least.max(Self::CREDITS_TO_GO_ON).min(grant))
    }

    /// Returns the bytes that the Receives of one RDMA connection can take, each with its largest size. They are
    /// Receives for Calls, for replies to the server's own Calls, and for additional messages of Read-Read and Version
    /// Two.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.receives_for(self.protocol.grant)
    }

    /// Returns the bytes of the Receives of a connection with so many credits.
    pub(crate) fn receives_for(&self, credits: u32) -> usize {
        self.receive_count(credits)
            .saturating_mul(ProtectionDomain::room_for(self.protocol.largest_receive()))
    }

    /// Returns the Receives of a connection with so many credits.
    pub(crate) fn receive_count(&self, credits: u32) -> usize {
        let [grant, calls] =
            [credits, self.protocol.calls].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let replies = calls.min(self.max_reverse_calls);
        let parts = if replies == 0 { self.protocol.receives_for_parts() } else { 0 };
        let others = self.protocol.receives_beyond_calls().saturating_sub(parts);
        grant.saturating_add(replies).saturating_add(others)
    }
}
