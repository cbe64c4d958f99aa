//! [`QueuePair`]: one connection from its user's point of view.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use thiserror::Error;

use crate::{
    Capabilities, Completion, ProtectionDomain, ReceiveMemory, RemoteSegment, WindowMemory, WorkRequest, WrId,
};

/// The part of a queue pair that is needed to encode a message: memory, and keys that are known before anything is
/// posted.
pub trait Windows {
    /// Returns the provider's capabilities.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the source of Buffers.
    fn domain(&self) -> &ProtectionDomain;

    /// Reserves a key and an address range for `memory`, which the provider owns from now on. The peer can use it only
    /// after a [`WorkRequest::BindWindow`]. Key and address are unpredictable where the fabric allows that (RFC 5042
    /// §6.1.1). `LocalInvalidate` also gives up a window that was never bound.
    ///
    /// A key is not reused before the completion that returned its memory was delivered, and then as late as possible.
    ///
    /// # Errors
    /// [`WindowError`], with the memory given back, when no window is left or the connection has ended.
    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError>;
}

/// A connected queue pair.
///
/// Commands ([`post`](Self::post), [`post_receive`](Self::post_receive), [`disconnect`](Self::disconnect)) only queue
/// work; [`poll`](Self::poll) carries it out. After posting, a user calls `poll`, or wakes the task that does. Only the
/// waker of the last `poll` is kept: a task that stops driving wakes a successor.
///
/// Dropping a queue pair first makes every key invalid and then frees all memory that it owned.
pub trait QueuePair: Windows + Send {
    /// Queues a work request.
    ///
    /// # Errors
    /// [`PostError`], with the request given back: the queue is full, the request is malformed, or the connection has
    /// ended.
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>>;

    /// Returns the number of requests that can be posted now without [`PostErrorKind::QueueFull`]. A Read or Write
    /// counts once for each of its segments, every other request once, `LocalInvalidate` not at all.
    fn send_room(&self) -> usize;

    /// Queues a Receive. Messages fill Receives in the order of posting. A Receive is never withdrawn, only drained.
    ///
    /// # Errors
    /// [`PostError`], with the memory given back.
    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>>;

    /// Makes all progress that is possible without blocking.
    ///
    /// * `Ready(Ok(()))`: completions were appended.
    /// * `Pending`: none were; the task is woken when it is worth calling again.
    /// * `Ready(Err(_))`: the connection has ended *and* all outstanding work has completed in earlier calls, windows
    ///   included ([`Work::WindowFlushed`](crate::Work::WindowFlushed)). Final: posting fails from now on.
    ///
    /// A call returns a bounded number of completions: call again until `Pending`.
    ///
    /// Every work request but a Receive completes in bounded time. If a link takes nothing, or does not answer, for
    /// longer than the provider allows, the connection ends with [`Disconnected::Timeout`]. On TCP, a timer of stalled
    /// sends and `TCP_USER_TIMEOUT` do that. An idle connection whose peer is gone may stay.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>>;

    /// Ends the connection gracefully: posted work is still sent, then the link is closed. Completions go on until
    /// [`poll`](Self::poll) reports the end.
    fn disconnect(&mut self);

    /// Ends the connection at once; work that was not sent is flushed.
    fn abort(&mut self);

    /// Returns private data of the peer, from connection set-up: all bytes that the provider got. Other protocols may
    /// have put data of their own in front (RFC 8797 §5.1).
    fn peer_private_data(&self) -> &Bytes;

    /// Returns our address, if the fabric has addresses.
    fn local_address(&self) -> Option<SocketAddr>;

    /// Returns the peer's address, if the fabric has addresses.
    fn peer_address(&self) -> Option<SocketAddr>;

    /// Returns the counters since the start of the connection.
    fn counters(&self) -> Counters;

    /// Returns how far data has got, if the provider sees that before a request completes. `None`, the default, means
    /// that it only sees completions. Users may then not count on more. They allow a request as much time as its bytes
    /// take at the least rate that they accept.
    fn progress(&self) -> Option<Progress> {
        None
    }
}

/// Progress of data on a queue pair: bytes since the start of the connection. No number ever shrinks.
///
/// Progress distinguishes a slow peer from one that stands still. To judge a peer, use the number that only this peer
/// can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Payload of the peer's answers to our RDMA Reads.
    pub read: u64,
    /// Bytes of ours that the link has taken, headers included.
    pub sent: u64,
    /// Bytes that came from the link, headers included.
    pub received: u64,
}

impl Progress {
    /// Creates a value of these numbers, in the order of their declaration.
    #[must_use]
    pub const fn new(read: u64, sent: u64, received: u64) -> Self {
        Self { read, sent, received }
    }
}

/// Numbers that a provider keeps for each queue pair. All count from the start of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Bytes sent on the link, headers included.
    pub link_bytes_sent: u64,
    /// Bytes received from the link.
    pub link_bytes_received: u64,
    /// Bytes of RDMA Writes and RDMA Reads that a receive path had to copy after they left the socket.
    pub payload_bytes_copied: u64,
    /// Bytes of Sends that a receive path had to copy after they left the socket.
    pub message_bytes_copied: u64,
    /// Bytes of tagged payload (RDMA Write, Read Response) that arrived.
    pub tagged_bytes_received: u64,
    /// Segments (FPDUs) sent.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received.
    pub receive_calls: u64,
    /// Windows bound.
    pub windows_bound: u64,
    /// Windows that this side invalidated.
    pub local_invalidations: u64,
    /// Windows of ours that the peer invalidated.
    pub remote_invalidations: u64,
    /// Registrations of memory with an adapter for this connection.
    pub registrations: u64,
    /// Completions taken from an adapter.
    pub completions: u64,
}

impl Counters {
    /// Returns the counts after `earlier`, a state of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.joined(earlier, u64::saturating_sub)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.joined(other, u64::saturating_add)
    }

    fn joined(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            link_bytes_sent: join(self.link_bytes_sent, other.link_bytes_sent),
            link_bytes_received: join(self.link_bytes_received, other.link_bytes_received),
            payload_bytes_copied: join(self.payload_bytes_copied, other.payload_bytes_copied),
            message_bytes_copied: join(self.message_bytes_copied, other.message_bytes_copied),
            tagged_bytes_received: join(self.tagged_bytes_received, other.tagged_bytes_received),
            segments_sent: join(self.segments_sent, other.segments_sent),
            segments_received: join(self.segments_received, other.segments_received),
            send_calls: join(self.send_calls, other.send_calls),
            receive_calls: join(self.receive_calls, other.receive_calls),
            windows_bound: join(self.windows_bound, other.windows_bound),
            local_invalidations: join(self.local_invalidations, other.local_invalidations),
            remote_invalidations: join(self.remote_invalidations, other.remote_invalidations),
            registrations: join(self.registrations, other.registrations),
            completions: join(self.completions, other.completions),
        }
    }
}

/// The reason why a request was not queued, with the request.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct PostError<T> {
    /// The reason.
    pub kind: PostErrorKind,
    /// The request that was to be posted.
    pub request: T,
}

/// The reasons of a [`PostError`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// The queue holds as many requests as it can.
    #[error("the queue is full ({limit} requests)")]
    QueueFull {
        /// Capacity of the queue.
        limit: usize,
    },
    /// The request contradicts itself or the provider's capabilities.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
}

/// The reason why a window could not be reserved, with the memory.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct WindowError {
    /// The reason.
    pub kind: WindowErrorKind,
    /// The memory that was to be exposed.
    pub memory: WindowMemory,
}

/// The reasons of a [`WindowError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowErrorKind {
    /// More bytes than a segment can name (2³² − 1).
    #[error("{len} bytes cannot be exposed by one window")]
    TooLong {
        /// Bytes given.
        len: usize,
    },
    /// As many windows exist as the provider allows.
    #[error("all {limit} windows are in use")]
    Exhausted {
        /// The provider's limit.
        limit: usize,
    },
    /// The adapter cannot expose the memory, for instance because the process may not lock more of it.
    #[error("{len} bytes cannot be registered for the peer: {}", std::io::Error::from_raw_os_error(*os_error))]
    Registration {
        /// Bytes given.
        len: usize,
        /// The system's number of the error.
        os_error: i32,
    },
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
}

/// The reason why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Disconnected {
    /// This side closed the connection.
    #[error("closed by this side")]
    Local,
    /// The peer closed the connection in order.
    #[error("closed by the peer")]
    Peer,
    /// The peer reported an error and closed the connection.
    #[error("the peer ended the connection: {0}")]
    Terminated(TerminateCause),
    /// The peer violated the protocol of the fabric; this side reported that and closed the connection.
    #[error("protocol error of the peer: {0}")]
    ProtocolError(String),
    /// A timer of the provider ran out.
    #[error("timeout: {0}")]
    Timeout(&'static str),
    /// The link failed.
    #[error("link failure: {0}")]
    Link(String),
}

/// The cause that the peer reported when it ended the connection (RFC 5040 §4.8 on iWARP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("layer {layer}, type {error_type}, code {code:#04x}")]
pub struct TerminateCause {
    /// Layer that found the error: 0 RDMA, 1 DDP, 2 the layer below.
    pub layer: u8,
    /// Type of error, by layer.
    pub error_type: u8,
    /// The code, by layer and type.
    pub code: u8,
}
