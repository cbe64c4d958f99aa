//! Capabilities of a provider. RPC-over-RDMA derives from them what it announces to peers (RFC 8797 private data,
//! credits, chunk sizes).

/// Properties of a queue pair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether the provider can send and receive Send with Invalidate.
    pub remote_invalidation: bool,
    /// The scope in which a key is valid.
    pub key_scope: KeyScope,
    /// How the sink of an RDMA Read is named on the wire.
    pub read_sink: ReadSink,
    /// Whether Receives of [`Pooled`](crate::ReceiveMemory::Pooled) memory take it only when data arrives.
    pub pooled_receives: bool,
    /// Whether the provider honours [`SendRequest::express`](crate::SendRequest::express).
    pub express_sends: bool,
    /// Whether the completion of a Send or Write means that the peer has the data. Users must not rely on `true`: the
    /// semantics are the weakest.
    pub acknowledged_completions: bool,
    /// Entries allowed in one gather or scatter list.
    pub max_sge: usize,
    /// Work requests that can be outstanding on the send queue.
    pub max_send_wr: usize,
    /// Receives that can be posted.
    pub max_recv_wr: usize,
    /// Windows that can exist at a time.
    pub max_windows: usize,
    /// RDMA Reads that the peer may have outstanding at this side; 0 if the peer announced that it makes none.
    pub ird: u16,
    /// RDMA Reads that this side may have outstanding at the peer; further ones wait in the provider. With 0 none can
    /// be posted.
    pub ord: u16,
    /// Longest message of one Send, Read or Write, in bytes.
    pub max_message_len: u32,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            remote_invalidation: true,
            key_scope: KeyScope::QueuePair,
            read_sink: ReadSink::Tagged,
            pooled_receives: true,
            express_sends: true,
            acknowledged_completions: false,
            max_sge: 64,
            max_send_wr: 1024,
            max_recv_wr: 1024,
            max_windows: 4096,
            ird: 32,
            ord: 32,
            max_message_len: u32::MAX,
        }
    }
}

/// The scope in which a steering tag is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyScope {
    /// Only the queue pair that the window is bound to (type-2 window, RFC 5040 STag of one stream).
    QueuePair,
    /// Every queue pair of the protection domain (a memory region).
    ProtectionDomain,
}

/// The way in which the provider names the memory that an RDMA Read fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadSink {
    /// By local key: the peer learns nothing (InfiniBand, RoCE).
    Local,
    /// By a tag that the peer could write to while the Read is outstanding (iWARP, RFC 5040 §4.2).
    Tagged,
}
