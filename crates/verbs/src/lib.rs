//! The contract between RPC-over-RDMA and an RDMA provider.
//!
//! RFC 5666 §2 and RFC 8166 §2.3 list the demands of the protocol on the fabric. These are registered memory named by a
//! steering tag and an offset, ordered Sends into posted Receives, RDMA Read and Write, and invalidation. This crate
//! states those demands as types and traits. Providers (`rpcrdma-iwarp`, `rpcrdma-ibverbs`, `rpcrdma-sim`)
//! implement them, and `rpcrdma-proto` and `rpcrdma` use them. Nothing here does I/O.
//!
//! # Ownership of memory
//!
//! | memory | type | owner |
//! | --- | --- | --- |
//! | written by us or by the peer | [`Buffer`]: unique, writable | moves into a work request or window and comes back in a [`Completion`] |
//! | only read, by us or by the peer | [`bytes::Bytes`]: shared, read-only | cheap clones; a frozen [`Buffer`] returns to its pool when the last clone is dropped |
//!
//! A [`Buffer`] that is open to the peer belongs to its window ([`WindowMemory`]). It comes back only when the peer can
//! no longer touch it, by one of three events. These are the completion of a [`WorkRequest::LocalInvalidate`], the
//! Receive of a Send with Invalidate, and [`Work::WindowFlushed`] when the connection has ended.
//!
//! # Semantics: the weakest of all fabrics
//!
//! 1. Work requests of one queue pair are carried out in the order of posting, with three exceptions. A Send with
//!    [`SendRequest::express`] may pass others. `LocalInvalidate` may pass Sends and Writes that have not left. Later
//!    requests may pass RDMA Reads (RFC 5040 §5.5): a user of a Read's data waits for its completion first.
//! 2. A Send is delivered to the peer after the RDMA Writes posted before it are placed (unless it is `express`).
//! 3. The completion of a Send or Write means that the memory may be reused. It does *not* mean that the peer has the
//!    data (iWARP). A wrong key may show only as the end of the connection.
//! 4. A zero-length Read or Write checks no key.
//! 5. When the connection ends, every work request and every Receive completes with [`Status::Flushed`]. Every window
//!    gives its memory back ([`Work::WindowFlushed`]). Only then does [`QueuePair::poll`] report [`Disconnected`].
//! 6. The side that accepted a connection does not send before it has received. So the peer need not post its Receives
//!    before the connection is accepted.
//! 7. Posting never blocks and does no I/O. A provider makes progress only inside [`QueuePair::poll`].

mod buffer;
mod capabilities;
mod cm;
mod companions;
mod domain;
mod pace;
mod pool;
mod queue_pair;
mod rest;
mod work;

pub use buffer::Buffer;
pub use capabilities::{Capabilities, KeyScope, ReadSink};
pub use cm::{
    BoxFuture, ConnectError, ConnectParameters, ConnectionRequest, Connector, Incoming, Listener,
    OwnPrivateData, RejectReason, TcpEnds,
};
pub use companions::{Companion, Registrar};
pub use domain::{ProtectionDomain, Reserved, WeakDomain};
pub use pace::Pace;
pub use pool::{MAX_ALIGN, PoolExhausted, PoolUsage, RECEIVE_ALIGN, RoomWait, is_fair};
pub use queue_pair::{
    Counters, Disconnected, PostError, PostErrorKind, Progress, QueuePair, TerminateCause, WindowError,
    WindowErrorKind, Windows,
};
pub use rest::Rest;
pub use work::{
    Access, Completion, Key, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Work,
    WorkRequest, WrId,
};
