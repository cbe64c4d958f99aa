//! The settings of a fabric: speed, granularity of the clock, and meaning of completions.

use std::time::Duration;

use rpcrdma_verbs::Capabilities;

/// The time at which a Send or Write completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompletionMode {
    /// When its last byte has left (iWARP). The peer may never get it; a wrong key shows only as the end of the
    /// connection, some time after the request completed with success.
    #[default]
    Local,
    /// When the peer has the data (InfiniBand, RoCE). A wrong key fails the request with
    /// [`RemoteAccess`](rpcrdma_verbs::Status::RemoteAccess); then the connection ends.
    Acknowledged,
}

/// Properties of a [`Fabric`](crate::Fabric). Set the relevant fields, and take the others from [`Default`].
#[derive(Debug, Clone)]
pub struct FabricConfig {
    /// Seed of keys, addresses and every free choice. Equal seeds and equal calls give equal traces.
    pub seed: u64,
    /// Time that each segment takes after its last byte left.
    pub latency: Duration,
    /// Most time added to the latency of each segment, by the seed. The order of segments on a link stays.
    pub jitter: Duration,
    /// Bytes per second of each direction of a connection; `None`: transmission takes no time, and no segment ever
    /// waits for the link.
    pub bandwidth: Option<u64>,
    /// Most payload bytes in one segment. Messages on one connection interleave at segment borders.
    pub segment_size: usize,
    /// The time at which Sends and Writes complete.
    pub completion_mode: CompletionMode,
    /// Most time before a completion can be polled, by the seed. The order within a queue pair stays; completions of
    /// different queue pairs are reordered.
    pub completion_jitter: Duration,
    /// Time after which the ends of a connection give up a partition, or a delay of a link or send queue.
    pub link_timeout: Duration,
    /// Time that a graceful disconnect waits for the peer.
    pub close_timeout: Duration,
    /// Time for each step of connection set-up (under tokio only).
    pub setup_timeout: Duration,
    /// Most private data of a connection or a rejection, in bytes.
    pub max_private_data: usize,
    /// Template of the capabilities of each queue pair. IRD, ORD and queue sizes come from the connection's parameters.
    pub capabilities: Capabilities,
}

impl Default for FabricConfig {
    fn default() -> Self {
        let mut capabilities = Capabilities::default();
        capabilities.read_sink = rpcrdma_verbs::ReadSink::Local;
        Self {
            seed: 0,
            latency: Duration::from_micros(10),
            jitter: Duration::ZERO,
            bandwidth: Some(1_250_000_000),
            segment_size: 4096,
            completion_mode: CompletionMode::Local,
            completion_jitter: Duration::ZERO,
            link_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            setup_timeout: Duration::from_secs(10),
            max_private_data: 512,
            capabilities,
        }
    }
}
