//! The counters of a client, and of one of its connections.

use rpcrdma_oncrpc::CacheCounters;
use rpcrdma_proto::{Agreement, Characteristics, Profile, Stats, Thresholds};
use rpcrdma_verbs::Counters;

/// Counters of a client, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// Calls made.
    pub calls: u64,
    /// Calls that got no reply in time.
    pub timed_out: u64,
    /// Calls sent again after a connection was lost.
    pub retransmissions: u64,
    /// Connections opened.
    pub connections: u64,
    /// Connections that agreed by CONF_RDMA ([`ccp`](crate::ccp)).
    pub agreed: u64,
    /// Connections whose server has no CONF_RDMA, or refused it.
    pub not_agreed: u64,
    /// Calls of the server received, in the reverse direction.
    pub served: u64,
    /// Counters of the cache of replies to those Calls.
    pub reply_cache: CacheCounters,
    /// Bytes of the client's memory in use.
    pub memory_in_use: usize,
    /// Payload bytes copied between the RDMA link and the memory of calls. Providers may copy payload that travels by
    /// Send; payload in chunks is never copied.
    pub payload_bytes_copied: u64,
}

impl ClientStats {
    /// Adds the counters of another connection of the client. Memory and reply cache belong to the client, so both
    /// already have these.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            timed_out: self.timed_out + other.timed_out,
            retransmissions: self.retransmissions + other.retransmissions,
            connections: self.connections + other.connections,
            agreed: self.agreed + other.agreed,
            not_agreed: self.not_agreed + other.not_agreed,
            served: self.served + other.served,
            reply_cache: self.reply_cache,
            memory_in_use: self.memory_in_use,
            payload_bytes_copied: self.payload_bytes_copied + other.payload_bytes_copied,
        }
    }
}

/// The counters of one RPC-over-RDMA connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Counters of the protocol: messages by form, bytes by path, chunks, credits, errors.
    pub protocol: Stats,
    /// The version spoken, with its profile if it has any; `None` until that is settled.
    pub version: Option<(u32, Option<Profile>)>,
    /// The inline thresholds now in effect.
    pub thresholds: Thresholds,
    /// Transport characteristics of this side; `None` where the version has none.
    pub characteristics: Option<Characteristics>,
    /// Transport characteristics that the server has announced.
    pub peer_characteristics: Option<Characteristics>,
    /// The agreement by CONF_RDMA ([`ccp`](crate::ccp)), if any.
    pub agreement: Option<Agreement>,
    /// Counters of the provider.
    pub link: Counters,
}
