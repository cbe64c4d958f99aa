//! Work requests and their completions.

use bytes::Bytes;

use crate::{Buffer, Reserved};

/// Identifies a work request or Receive in its completion. Chosen by the poster; must be unique among those
/// outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrId(pub u64);

/// A steering tag (STag, R_key), which names a window to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u32);

/// A range of a window as the peer names it: the content of an RDMA segment of RPC-over-RDMA (RFC 8166 §3.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSegment {
    /// The window's key ("handle" in RPC-over-RDMA).
    pub key: Key,
    /// First byte ("offset" in RPC-over-RDMA). Not a process address.
    pub address: u64,
    /// Number of bytes.
    pub length: u32,
}

/// The peer's right to a window: exactly one of the two, as least right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The peer may RDMA Read.
    RemoteRead,
    /// The peer may RDMA Write.
    RemoteWrite,
}

/// Memory exposed by a window; its kind is the peer's right.
#[derive(Debug)]
pub enum WindowMemory {
    /// The peer may RDMA Read the memory, and nothing writes to it.
    Read(Bytes),
    /// The peer may RDMA Write to the memory, and nothing else touches it.
    Write(Buffer),
}

impl WindowMemory {
    /// Returns the right that the peer gets.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Read(_) => Access::RemoteRead,
            Self::Write(_) => Access::RemoteWrite,
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Read(bytes) => bytes.len(),
            Self::Write(buffer) => buffer.len(),
        }
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message to the peer's next Receive (RFC 5040 §5.3).
#[derive(Debug, Clone, Default)]
pub struct SendRequest {
    /// The message, in pieces; at most [`max_sge`](crate::Capabilities::max_sge).
    pub gather: Vec<Bytes>,
    /// Invalidates this window *of the peer* before the message is delivered.
    pub invalidate: Option<Key>,
    /// Asks for a solicited event at the peer.
    pub solicited: bool,
    /// The message does not depend on the Writes posted before it. The provider may let it pass Writes and other Sends
    /// that have not left yet, so that bulk data does not delay small messages. Completions may then come out of order.
    /// An express Send never passes a `BindWindow`, a `LocalInvalidate` or another express Send, and no later Send
    /// passes it. So the poster decides which Sends keep their order.
    pub express: bool,
}

/// A request to the send queue.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkRequest {
    /// Sends a message.
    Send(SendRequest),
    /// An RDMA Write: the gathered bytes fill the targets one after the other. Targets may be longer than the data, and
    /// a target without data causes no message. With no data at all and one target, it is a zero-length RDMA Write.
    Write {
        /// The data; at most [`max_sge`](crate::Capabilities::max_sge) pieces.
        gather: Vec<Bytes>,
        /// Destinations of the data, in order.
        targets: Vec<RemoteSegment>,
    },
    /// An RDMA Read: the sources, one after the other, fill the sink. It has one completion, when all data is there.
    Read {
        /// Filled from its first byte on; as long as all sources together. Returned in [`Work::Read`].
        sink: Buffer,
        /// Sources of the data, in order. A source of length 0 causes a zero-length RDMA Read only if it is the only
        /// one.
        sources: Vec<RemoteSegment>,
    },
    /// Opens a window made by [`reserve_window`](crate::Windows::reserve_window). Takes effect before any request
    /// posted later leaves.
    BindWindow {
        /// The window.
        key: Key,
    },
    /// Closes a window of ours, bound or only reserved. Two conditions hold when the request completes. No Read Response of
    /// the window is queued or half sent, and no segment into it is half placed or lacks its CRC. Then the peer cannot touch the
    /// memory any more, and the completion gives it back. Never refused because the queue is full.
    LocalInvalidate {
        /// The window.
        key: Key,
    },
}

/// Memory for one Receive.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveMemory {
    /// These Buffers, filled in order.
    Scatter(Vec<Buffer>),
    /// A message of up to the reserved length. The provider takes the memory when the message's first segment arrives
    /// (or when the Receive is posted, if it cannot do otherwise). The reservation guarantees that memory (I3).
    Pooled(Reserved),
}

impl ReceiveMemory {
    /// Returns the length of the longest message that fits, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Scatter(buffers) => buffers.iter().map(Buffer::len).sum(),
            Self::Pooled(reserved) => reserved.len(),
        }
    }
}

/// The result of a work request; the names are those of `ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The request was carried out.
    Success,
    /// The connection ended first. The request's effect at the peer is unknown.
    Flushed,
    /// The message was longer than the Receive.
    LocalLength,
    /// The request named a key or memory of ours that is not valid.
    LocalProtection,
    /// The peer refused key, range or right.
    RemoteAccess,
    /// The peer could not carry the request out, for instance because a key cannot be invalidated.
    RemoteOperation,
    /// The peer had no Receive posted.
    ReceiverNotReady,
    /// The provider has a defect.
    Fatal,
}

impl Status {
    /// Returns whether the request was carried out.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

/// The end of a work request or Receive. Memory that it owned comes back whatever the status is.
#[derive(Debug)]
pub struct Completion {
    /// The number given when the request was posted.
    pub id: WrId,
    /// The result of the request.
    pub status: Status,
    /// The kind of request, with the memory that it gives back.
    pub work: Work,
}

/// The kind of request that completed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Work {
    /// A Send: its pieces may be reused.
    Send,
    /// An RDMA Write: its pieces may be reused.
    Write,
    /// An RDMA Read.
    Read {
        /// The sink; filled if the status is success, else of unspecified content.
        sink: Buffer,
    },
    /// A window is bound. If the status is not success, the memory comes back as [`Work::WindowFlushed`].
    BindWindow,
    /// A window is invalid.
    LocalInvalidate {
        /// The memory of the window; `None` if the key named no window any more (for instance, because the peer had
        /// invalidated it).
        memory: Option<WindowMemory>,
    },
    /// A Receive.
    Receive {
        /// The memory in order. On success, its first [`len`](Self::Receive::len) bytes are the message. Pooled
        /// Receives that were flushed give back none.
        buffers: Vec<Buffer>,
        /// Length of the message.
        len: usize,
        /// The window of ours that the message invalidated, with its memory. Queued Read Responses of the window have
        /// left before the message is delivered, as with `LocalInvalidate` (a timer of the provider bounds the wait).
        invalidated: Option<(Key, WindowMemory)>,
        /// Whether the peer asked for a solicited event.
        solicited: bool,
    },
    /// The connection ended while this window, bound or reserved, was valid; it no longer is. This is not the end of a
    /// posted request: the id has no meaning.
    WindowFlushed {
        /// The key of the window.
        key: Key,
        /// The memory of the window.
        memory: WindowMemory,
    },
}
