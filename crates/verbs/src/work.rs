//! Work requests and their completions.

use bytes::Bytes;

use crate::{Buffer, Reserved};

/// Names a work request or Receive in its completion. Chosen by the poster; must be unique among those outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrId(pub u64);

/// A steering tag (STag, R_key): names a window to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u32);

/// A range of a window as the peer names it: what an RDMA segment of RPC-over-RDMA carries (RFC 8166 §3.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSegment {
    /// The window's key ("handle" in RPC-over-RDMA).
    pub key: Key,
    /// First byte ("offset" in RPC-over-RDMA). Not a process address.
    pub address: u64,
    /// Number of bytes.
    pub length: u32,
}

/// What the peer may do with a window. Exactly one of the two: least rights.
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
    /// The peer may RDMA Read it, nobody writes it.
    Read(Bytes),
    /// The peer may RDMA Write it, nobody else touches it.
    Write(Buffer),
}

impl WindowMemory {
    /// The right that the peer gets.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Read(_) => Access::RemoteRead,
            Self::Write(_) => Access::RemoteWrite,
        }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Read(bytes) => bytes.len(),
            Self::Write(buffer) => buffer.len(),
        }
    }

    /// Whether there are no bytes.
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
    /// The message does not depend on the Writes posted before it. The provider may let it pass Writes and other Sends that have
    /// not left yet, so that bulk data does not delay small messages. Completions may then come out of order. An express Send
    /// never passes a `BindWindow`, a `LocalInvalidate` or another express Send, and no later Send passes it. So the poster
    /// decides which Sends keep their order.
    pub express: bool,
}

/// One request to the send queue.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkRequest {
    /// Sends a message.
    Send(SendRequest),
    /// RDMA Write: the gathered bytes fill the targets one after the other; targets may be longer than the data, and
    /// those that get nothing cause no message. With no data at all and one target: a zero-length RDMA Write.
    Write {
        /// The data; at most [`max_sge`](crate::Capabilities::max_sge) pieces.
        gather: Vec<Bytes>,
        /// Where it goes, in order.
        targets: Vec<RemoteSegment>,
    },
    /// RDMA Read: the sources, one after the other, fill the sink. One completion, when all are there.
    Read {
        /// Filled from its first byte on; as long as all sources together. Returned in [`Work::Read`].
        sink: Buffer,
        /// What is read, in order. A source of length 0 causes a zero-length RDMA Read only if it is the only one.
        sources: Vec<RemoteSegment>,
    },
    /// Opens a window made by [`reserve_window`](crate::Windows::reserve_window). In effect before any request posted later
    /// leaves.
    BindWindow {
        /// The window.
        key: Key,
    },
    /// Closes a window of ours, bound or only reserved. Completes only after Read Responses of it that are queued or half
    /// sent have left, and no segment into it is half placed or waits for its CRC; then the peer cannot touch the memory any
    /// more, and the completion gives it back. Never refused for want of room in the queue.
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
    /// A message of up to the reserved length; the provider takes the memory when the message's first segment arrives (or
    /// when the Receive is posted, if it cannot do otherwise). The reservation makes sure that it is there (I3).
    Pooled(Reserved),
}

impl ReceiveMemory {
    /// Longest message that fits, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Scatter(buffers) => buffers.iter().map(Buffer::len).sum(),
            Self::Pooled(reserved) => reserved.len(),
        }
    }
}

/// How a work request ended; the names are those of `ibv_wc_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Success,
    /// The connection ended first. What the peer saw of it is unknown.
    Flushed,
    /// A message longer than the Receive.
    LocalLength,
    /// The request named a key or memory of ours that is not valid.
    LocalProtection,
    /// The peer refused key, range or right.
    RemoteAccess,
    /// The peer could not carry it out, for instance a key that cannot be invalidated.
    RemoteOperation,
    /// The peer had no Receive posted.
    ReceiverNotReady,
    /// A fault of the provider.
    Fatal,
}

impl Status {
    /// Whether the request was carried out.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Success
    }
}

/// The end of a work request or Receive. Memory that it owned comes back whatever the status is.
#[derive(Debug)]
pub struct Completion {
    /// As posted.
    pub id: WrId,
    /// How it ended.
    pub status: Status,
    /// What it was, and what it gives back.
    pub work: Work,
}

/// What completed.
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
        /// Its memory; `None` if the key named no window any more (for instance, the peer had invalidated it).
        memory: Option<WindowMemory>,
    },
    /// A Receive.
    Receive {
        /// The memory in order. With success, [`len`](Self::Receive::len) bytes of it are the message; pooled Receives
        /// that were flushed give back none.
        buffers: Vec<Buffer>,
        /// Length of the message.
        len: usize,
        /// The window of ours that the message invalidated, with its memory. The same care as for `LocalInvalidate` was taken:
        /// queued Read Responses of it have left before the message is delivered (a timer of the provider bounds the wait).
        invalidated: Option<(Key, WindowMemory)>,
        /// The peer asked for a solicited event.
        solicited: bool,
    },
    /// The connection ended while this window, bound or reserved, was valid; it no longer is. Not the end of a posted
    /// request: the id means nothing.
    WindowFlushed {
        /// The window.
        key: Key,
        /// Its memory.
        memory: WindowMemory,
    },
}
