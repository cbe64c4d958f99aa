//! Settings of clients and servers, with the bound on memory that follows from them.

use std::time::Duration;

use rpcrdma_oncrpc::CacheLimits;
use rpcrdma_proto::{Config, Profile, Versions};
use rpcrdma_verbs::ProtectionDomain;

use crate::ccp::Ccp;
use crate::shares::PeerShares;

/// What a [`Client`](crate::Client) asks for and allows.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Credits, inline sizes, chunks and timers of RPC-over-RDMA. Over TCP, [`calls`](Config::calls) bounds the calls in
    /// flight, and the timers for calls and for reconnecting hold too.
    ///
    /// [`versions`](Config::versions) is Version One by default: there are servers that never look at the version.
    ///
    /// For a client that serves programs (RFC 8167), [`grant`](Config::grant) bounds the Calls of the server in progress, by
    /// default [`REVERSE_CREDITS`](Self::REVERSE_CREDITS); each has a Receive of [`receive_size`](Config::receive_size) bytes
    /// when it is granted. A client that serves none grants 1. [`reverse_chunks`](Config::reverse_chunks) makes the client take
    /// chunks with such Calls: [`limits`](Config::limits) then bounds the memory that each can take of [`memory`](Self::memory).
    /// [`bindings`](Config::bindings) is set by the client, [`keep_connected`](Config::keep_connected) if it serves anything.
    pub protocol: Config,
    /// Whether each RDMA connection begins with CONF_RDMA (RFC 5666 §6), and how it is protected; `None`, the default, is no.
    pub ccp: Option<Ccp>,
    /// Memory that Buffers of this client may hold together, in bytes: Receives, result windows, TCP records.
    pub memory: usize,
    /// RDMA Reads that the server may have outstanding at us. With [`ccp`](Self::ccp) at least 1: to say 0 there is to forbid Read
    /// chunks.
    pub ird: u16,
    /// RDMA Reads that we want to have outstanding at the server: for the Read chunks of its Calls in the reverse direction and,
    /// under the Read-Read model, of its replies. With [`reverse_chunks`](Config::reverse_chunks) or that model at least 1.
    pub ord: u16,
    /// Work requests that the send queue must hold.
    pub max_send_wr: usize,
    /// Longest reply record that is accepted over TCP, in bytes.
    pub max_record: usize,
    /// A TCP record that has begun, and calls that are being sent, may stand still for this long; else the connection is given up.
    /// What moves slower than [`least_rate`](rpcrdma_proto::Timeouts::least_rate) on average counts as standing still.
    pub stall: Duration,
    /// Idle time after which TCP asks whether the peer is still there.
    pub keep_alive: Duration,
    /// Bounds of the cache that answers retransmissions of the server's Calls of procedures that must not be repeated.
    pub reply_cache: CacheLimits,
}

impl ClientConfig {
    /// Default of the Calls in the reverse direction that a server is granted: what Linux grants.
    pub const REVERSE_CREDITS: u32 = 16;
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            protocol: Config { grant: Self::REVERSE_CREDITS, ..Config::default() },
            ccp: None,
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

/// What a [`Server`](crate::Server) grants and allows.
///
/// # Memory
/// Receives, payload, and over TCP records, calls in progress and replies all come out of one pool of
/// [`memory`](Self::memory) bytes, which is the bound. Each RDMA connection sets at most `grant × receive_size` of it aside
/// for Receives, and when its client is called (RFC 8167) `calls × receive_size` for the replies (and, under the Read-Read
/// model, one Receive for each reply that is exposed); a software provider takes
/// that memory only while messages arrive. What is left for payload is at least
/// `memory − max_connections × (grant + calls) × receive_size`: 368 MiB with the defaults. Beside the pool there is the state of each
/// connection, some ten KiB, and the reply cache ([`CacheLimits::memory`]). An exhausted pool makes callers wait, then refuses; it
/// never grows. Programs take the memory of long results from the pool themselves: [`ServerBuilder::program`](crate::ServerBuilder::program).
///
/// Of the pool, all connections from one address together, and the programs that answer them, hold at most
/// [`memory_per_peer`](Self::memory_per_peer). A peer that reads slowly or never answers our RDMA Reads thus uses up its own
/// share. What an address may hold shrinks with what is left (`rpcrdma_verbs::is_fair`), down to what one connection needs: with
/// the defaults, ten addresses that take what they can leave 118 MiB, a hundred 15 MiB. Connections are shared out likewise. All
/// addresses of one IPv6 network count as one, and so do all loopback addresses ([`Origin`](crate::Origin)).
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Credits, inline sizes, bounds on chunk lists and timers of RPC-over-RDMA.
    /// [`bindings`](Config::bindings) is set by the server. [`calls`](Config::calls) are those in the reverse direction
    /// (RFC 8167) that each client is asked to take at a time, by default [`REVERSE_CALLS`](Self::REVERSE_CALLS).
    /// [`versions`](Config::versions) are One, and Two by profile P1, by default.
    /// By default a connection without a call for
    /// [`RDMA_IDLE`](Self::RDMA_IDLE) is closed (`timeouts.idle`): it holds Receives, and clients come back when they have
    /// something to call.
    pub protocol: Config,
    /// Whether CONF_RDMA (RFC 5666 §6) is served on RDMA connections, and how it is protected; `None`, the default, is no.
    pub ccp: Option<Ccp>,
    /// Memory that Buffers of this server may hold together, in bytes.
    pub memory: usize,
    /// Of that, what is held for one peer address when others hold nothing, in bytes, and less the more they hold; loopback is an
    /// address like any other. `None`, the default, is a quarter. Never less than what one connection needs: twice its Receives and the longest chunks of a Call.
    pub memory_per_peer: Option<usize>,
    /// RDMA Reads that a client may have outstanding at us. Memory is exposed to them only in the reverse direction with
    /// [`reverse_chunks`](Config::reverse_chunks), and in replies under the Read-Read model; either makes it at least 1, and so
    /// does [`ccp`](Self::ccp), where 0 would forbid the Read chunks of Calls.
    pub ird: u16,
    /// RDMA Reads that we may have outstanding at a client.
    pub ord: u16,
    /// Work requests that the send queue of a connection must hold.
    pub max_send_wr: usize,
    /// Longest Call record accepted over TCP, in bytes.
    pub max_record: usize,
    /// Calls in progress on one TCP connection; the next is read when one of them is answered.
    pub max_calls: usize,
    /// Calls that a TCP client is taken to have without a reply at the most: TCP has no credits. When so many have come
    /// behind a reply, the reply cache may forget it. A client with more of them can have a call executed twice.
    pub tcp_calls: usize,
    /// Bytes of replies that may wait on one TCP connection; no further call is read while more wait.
    pub max_queued: usize,
    /// Without a call for this long, a TCP connection is closed (RFC 5531 leaves it to the server; common are 6 min).
    pub tcp_idle: Duration,
    /// A TCP record that has begun, and replies that are being sent, may stand still for this long; else the connection is closed.
    /// What moves slower than [`least_rate`](rpcrdma_proto::Timeouts::least_rate) on average counts as standing still.
    pub stall: Duration,
    /// Idle time after which TCP asks whether the peer is still there.
    pub keep_alive: Duration,
    /// Calls through one [`Backchannel`](crate::Backchannel) that may be in progress, those that wait for credits included;
    /// others are refused. 0: no client is called.
    pub max_reverse_calls: usize,
    /// Connections at a time, over all listeners.
    pub max_connections: usize,
    /// Connections at a time from one address when there are no others; it can have fewer the fewer places are left, but one
    /// as long as there is any.
    pub max_connections_per_peer: usize,
    /// RDMA connections being set up at a time; one address can have half of them, and fewer the fewer are left, but one as long as
    /// there is any.
    pub max_half_open: usize,
    /// Whether a caller on this machine may claim by AUTH_SYS only the user who owns the socket at the other end, unless that is
    /// root. It holds over TCP and software iWARP. Without it any user of this machine can claim any UID. Default true.
    pub local_owners: bool,
    /// For setting up one RDMA connection; then the attempt is dropped.
    pub set_up: Duration,
    /// Pause after a failed accept, for instance for want of file descriptors.
    pub accept_pause: Duration,
    /// For answering the calls in progress when the server stops; then connections are closed at once.
    pub grace: Duration,
    /// Bounds of the cache that answers retransmissions of procedures that must not be repeated.
    pub reply_cache: CacheLimits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let versions = Versions::both(Profile::P1);
        let mut protocol = Config { calls: Self::REVERSE_CALLS, versions, ..Config::default() };
        protocol.timeouts.idle = Some(Self::RDMA_IDLE);
        Self {
            protocol,
            ccp: None,
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
            max_connections: 512,
            max_connections_per_peer: 256,
            max_half_open: 64,
            local_owners: true,
            set_up: Duration::from_secs(10),
            accept_pause: Duration::from_millis(100),
            grace: Duration::from_secs(10),
            reply_cache: CacheLimits::default(),
        }
    }
}

impl ServerConfig {
    /// Memory that a handler may hold while its call is in progress, in bytes: the future of its program and all that the
    /// future points to. Over TCP so much of the share of the client's address is set aside with each call, beside its record.
    /// Programs that hold more take it from that share ([`PeerShares`](crate::PeerShares)).
    pub const HANDLER_ROOM: usize = 3 << 10;
    /// Default of the time without a call after which an RDMA connection is closed. Longer than the 5 minutes after which
    /// Linux closes an idle one itself.
    pub const RDMA_IDLE: Duration = Duration::from_secs(600);
    /// Default of the Calls that a TCP client is taken to have without a reply.
    pub const TCP_CALLS: usize = 1024;
    /// Default of the Calls in the reverse direction that a client is asked to take at a time.
    pub const REVERSE_CALLS: u32 = 8;

    /// The memory of a server with these settings, for [`ServerBuilder::shares`](crate::ServerBuilder::shares) and for
    /// programs that take memory for their results: what either takes for an address counts against its one share.
    #[must_use]
    pub fn shares(&self) -> PeerShares {
        let read_total = usize::try_from(self.protocol.limits.read_total).unwrap_or(usize::MAX);
        let least = self.receives().saturating_mul(2).saturating_add(ProtectionDomain::room_for(read_total));
        let limit = self.memory_per_peer.unwrap_or(self.memory / 4);
        PeerShares::new(ProtectionDomain::new(self.memory), limit.max(least)).least(least)
    }

    /// Bytes that the Receives of one RDMA connection can take: for Calls, for replies to Calls of the server's own, for what
    /// Read-Read and Version Two send beside them, each of the largest size that a Receive can have.
    #[must_use]
    pub fn receives(&self) -> usize {
        let [grant, calls] = [self.protocol.grant, self.protocol.calls]
            .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let replies = calls.min(self.max_reverse_calls);
        let parts = if replies == 0 { self.protocol.receives_for_parts() } else { 0 };
        let others = self.protocol.receives_beyond_calls().saturating_sub(parts);
        let receives = grant.saturating_add(replies).saturating_add(others);
        receives.saturating_mul(self.protocol.largest_receive())
    }
}
