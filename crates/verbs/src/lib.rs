//! The contract between RPC-over-RDMA and an RDMA provider.
//!
//! RFC 5666 §2 and RFC 8166 §2.3 list the demands of the protocol on the fabric. These are registered memory named by a
//! steering tag and an offset, ordered Sends into posted Receives, RDMA Read and Write, and invalidation. This crate
//! states those demands as types and traits. Providers (`rpcrdma-iwarp`, `rpcrdma-sim`, a future libibverbs one)
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
//!
//! # Sketch: libibverbs against this contract
//!
//! | contract | libibverbs / librdmacm |
//! | --- | --- |
//! | [`ProtectionDomain`] | `ibv_pd`. A hook where the pool allocates storage calls `ibv_reg_mr` with local rights only. It keeps the registration beside the storage, so that neither outlives the other. Adopted memory and foreign `Bytes` are registered for the time of the request |
//! | [`Windows::reserve_window`] | a type-2 memory window from a free list. `ibv_inc_rkey` gives the key that the coming bind will use, so the key is known before anything is posted. The address is the virtual address of the memory, or 0 with `IBV_ACCESS_ZERO_BASED`. Without type-2 windows (siw has neither windows nor fast registration in user space): `ibv_reg_mr` of the memory here, for a queue pair alone in its domain |
//! | [`WorkRequest::BindWindow`] | `IBV_WR_BIND_MW`, rights from [`WindowMemory`]; nothing where the memory was registered at reservation |
//! | [`WorkRequest::LocalInvalidate`] | `IBV_WR_LOCAL_INV`, fenced; otherwise `ibv_dereg_mr`. Queue entries for `max_windows` of them are reserved |
//! | [`WorkRequest::Read`] with several sources | one `IBV_WR_RDMA_READ` for each source, the last one signaled. On iWARP devices the sink needs remote-write rights ([`Capabilities::read_sink`]), given by a window of the provider's own |
//! | [`WorkRequest::Write`] | one `IBV_WR_RDMA_WRITE` for each target, gather entries cut at the target borders |
//! | [`ReceiveMemory::Pooled`] | the reservation becomes memory when posting, since a receive queue in hardware needs addresses |
//! | [`ReceiveMemory::Scatter`] | the scatter list of `ibv_recv_wr`. A structured Receive (send-based placement) is such a list whose later entries are page-aligned buffers |
//! | [`SendRequest::express`] | ignored: a hardware send queue is strictly in order |
//! | [`QueuePair::poll`] | `ibv_poll_cq`; when empty, `ibv_req_notify_cq` and the completion channel's file descriptor in the reactor |
//! | [`QueuePair::progress`] | `None`: a completion queue does not report requests that are half done |
//! | [`Connector`], [`Listener`], [`Incoming`], [`ConnectionRequest`] | `rdma_resolve_addr/route`, `rdma_connect`, `rdma_listen`, `RDMA_CM_EVENT_CONNECT_REQUEST`, `rdma_accept`, `rdma_reject` |
//! | [`Status`], [`Disconnected`] | `ibv_wc_status`, `RDMA_CM_EVENT_DISCONNECTED` and asynchronous QP events |

mod buffer;
mod capabilities;
mod cm;
mod domain;
mod pace;
mod pool;
mod queue_pair;
mod work;

pub use buffer::Buffer;
pub use capabilities::{Capabilities, KeyScope, ReadSink};
pub use cm::{
    BoxFuture, ConnectError, ConnectParameters, ConnectionRequest, Connector, Incoming, Listener,
    RejectReason, TcpEnds,
};
pub use domain::{ProtectionDomain, Reserved, WeakDomain};
pub use pace::Pace;
pub use pool::{MAX_ALIGN, PoolExhausted, PoolUsage, RECEIVE_ALIGN, RoomWait, is_fair};
pub use queue_pair::{
    Counters, Disconnected, PostError, PostErrorKind, Progress, QueuePair, TerminateCause, WindowError,
    WindowErrorKind, Windows,
};
pub use work::{
    Access, Completion, Key, ReceiveMemory, RemoteSegment, SendRequest, Status, WindowMemory, Work,
    WorkRequest, WrId,
};
