//! [`QueuePair`]: one connection as its user sees it.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use thiserror::Error;

use crate::{
    Capabilities, Completion, ProtectionDomain, ReceiveMemory, RemoteSegment, WindowMemory, WorkRequest, WrId,
};

/// The part of a queue pair that encoding a message needs: memory, and keys that are known before anything is posted.
pub trait Windows {
    /// What the provider can do.
    fn capabilities(&self) -> &Capabilities;

    /// Where Buffers come from.
    fn domain(&self) -> &ProtectionDomain;

    /// Reserves a key and an address range for `memory`, which the provider owns from now on; the peer can use it only after a
    /// [`WorkRequest::BindWindow`]. Key and address are unpredictable where the fabric allows it (RFC 5042 §6.1.1). A window
    /// that is never bound is given up by `LocalInvalidate` all the same.
    ///
    /// A key is not given out again before the completion that returned its memory was delivered, and then as late as
    /// possible.
    ///
    /// # Errors
    /// [`WindowError`] with the memory given back when no window is left or the connection has ended.
    fn reserve_window(&mut self, memory: WindowMemory) -> Result<RemoteSegment, WindowError>;
}

/// One connected queue pair.
///
/// Commands ([`post`](Self::post), [`post_receive`](Self::post_receive), [`disconnect`](Self::disconnect)) only queue;
/// [`poll`](Self::poll) carries out. Whoever has posted calls `poll` afterwards, or wakes the task that does. Only the waker
/// of the last `poll` is kept: whoever stops driving wakes a successor.
///
/// Dropping a queue pair makes every key invalid first and then frees all memory that it owned.
pub trait QueuePair: Windows + Send {
    /// Queues a work request.
    ///
    /// # Errors
    /// [`PostError`], with the request given back: the queue is full, the request is malformed, or the connection has
    /// ended.
    fn post(&mut self, id: WrId, request: WorkRequest) -> Result<(), PostError<WorkRequest>>;

    /// Requests that can be posted now without [`PostErrorKind::QueueFull`]. A Read or Write counts once for each of its
    /// segments, every other request once, `LocalInvalidate` not at all.
    fn send_room(&self) -> usize;

    /// Queues a Receive. Messages fill Receives in the order of posting. Never withdrawn, only drained.
    ///
    /// # Errors
    /// [`PostError`], with the memory given back.
    fn post_receive(&mut self, id: WrId, memory: ReceiveMemory) -> Result<(), PostError<ReceiveMemory>>;

    /// Makes all progress that is possible without blocking.
    ///
    /// * `Ready(Ok(()))`: completions were appended.
    /// * `Pending`: none were; the task is woken when calling again is worth it.
    /// * `Ready(Err(_))`: the connection has ended *and* everything outstanding has completed in earlier calls, windows
    ///   included ([`Work::WindowFlushed`](crate::Work::WindowFlushed)). Final: posting fails from now on.
    ///
    /// A bounded number of completions comes from one call: call again until `Pending`.
    ///
    /// Every work request but a Receive completes in bounded time: a link that takes nothing, or does not answer, for longer than
    /// the provider allows ends with [`Disconnected::Timeout`] (on TCP: a timer of stalled sends and `TCP_USER_TIMEOUT`). An idle
    /// connection whose peer is gone may stay.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        completions: &mut Vec<Completion>,
    ) -> Poll<Result<(), Disconnected>>;

    /// Ends the connection gracefully: what was posted is still sent, then the link is closed. Completions go on until
    /// [`poll`](Self::poll) reports the end.
    fn disconnect(&mut self);

    /// Ends the connection at once; what was not sent is flushed.
    fn abort(&mut self);

    /// Private data of the peer, from connection set-up (all bytes that the provider got: others may have put data of
    /// their own in front, RFC 8797 §5.1).
    fn peer_private_data(&self) -> &Bytes;

    /// Our end, if the fabric has addresses.
    fn local_address(&self) -> Option<SocketAddr>;

    /// The peer's end.
    fn peer_address(&self) -> Option<SocketAddr>;

    /// What happened so far.
    fn counters(&self) -> Counters;

    /// How far data has got, where the provider sees that before a request completes. `None`, the default: completions are all
    /// that it sees. Users may then not count on more, and allow a request as much time as its bytes take at the least rate
    /// that they put up with.
    fn progress(&self) -> Option<Progress> {
        None
    }
}

/// How far data has got on a queue pair: bytes since the start of the connection. None of them ever shrinks.
///
/// It tells a slow peer from one that stands still. Whoever judges a peer takes the number that only this peer can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Payload of the peer's answers to RDMA Reads of ours.
    pub read: u64,
    /// What the link has taken of ours, headers included.
    pub sent: u64,
    /// What came from the link, headers included.
    pub received: u64,
}

impl Progress {
    /// The numbers, in the order of their declaration.
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
    /// The same of Sends.
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
    /// Windows invalidated by us.
    pub local_invalidations: u64,
    /// Windows of ours that the peer invalidated.
    pub remote_invalidations: u64,
}

impl Counters {
    /// What was counted after `earlier`, a state of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.joined(earlier, u64::saturating_sub)
    }

    /// Both together.
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
        }
    }
}

/// Why a request was not queued. Gives it back.
#[derive(Debug, Error)]
#[error("{kind}")]
pub struct PostError<T> {
    /// The reason.
    pub kind: PostErrorKind,
    /// What was to be posted.
    pub request: T,
}

/// The reasons of a [`PostError`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// The queue holds as many requests as it can.
    #[error("the queue is full ({limit} requests)")]
    QueueFull {
        /// Its capacity.
        limit: usize,
    },
    /// The request contradicts itself or the provider's capabilities.
    #[error("invalid request: {0}")]
    Invalid(&'static str),
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
}

/// Why a window could not be reserved. Gives the memory back.
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
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Disconnected {
    /// We closed it.
    #[error("closed by us")]
    Local,
    /// The peer closed it in order.
    #[error("closed by the peer")]
    Peer,
    /// The peer reported an error and closed.
    #[error("the peer ended the connection: {0}")]
    Terminated(TerminateCause),
    /// The peer broke the protocol of the fabric; we told it and closed.
    #[error("protocol error of the peer: {0}")]
    ProtocolError(String),
    /// A timer of the provider ran out.
    #[error("timeout: {0}")]
    Timeout(&'static str),
    /// The link failed.
    #[error("link failure: {0}")]
    Link(String),
}

/// What the peer said when it ended the connection (RFC 5040 §4.8 on iWARP).
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
