//! RPC-over-RDMA sans I/O: no socket, no clock, no thread; time is an argument.
//!
//! A driver moves work requests from a [`Connection`] (or [`Session`]) to a queue pair, and completions back. The
//! documentation of these types gives the order.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`wire`] | headers: a codec and a table of rules for each version; the bounds on them, and the peer's faults |
//! | [`characteristics`] | announcements, requests and changes of transport characteristics in Version Two |
//! | [`private_data`] | CM private data at connection set-up (RFC 8797) |
//! | [`reassembly`] | the layout of a Read list in the Payload stream |
//! | [`connection`] | one connection: a requester and a responder on one queue pair |
//!
//! The other modules are private, and their public types stand at the root:
//!
//! | module | mechanism |
//! | --- | --- |
//! | `session` | the client's side across connections: reconnect and retransmit |
//! | `planner` | the choice of how each message travels |
//! | `flow` | flow control: credits, and the Receives that back them |
//! | `requester`, `responder` | the halves of a connection |
//! | `core`, `peer` | the state that both halves share |
//! | `inbound` | messages of the peer: their layout, the RDMA Reads of their chunks, and the complete message |
//! | `outbound` | the requests for the queue pair, and the gather lists of Sends |
//! | `doors` | the choice between the ways of Version One and those of the next two |
//! | `two` | Version Two, except its header formats |
//! | `retired` | the forms that RFC 8166 retired, each with its own setting |
//! | `settings` | the settings of a side, its timeouts and versions, and what both sides agree on |
//! | `call`, `event`, `message` | the calls, answers and events of the owner |
//! | `error` | the reasons why a call or a connection ends |
//! | `stats` | counters, in one table |
//! | `ids` | maps by numbers of this side |
//!
//! *Buffers.* Messages are shared, read-only memory. Memory that is open to the peer belongs to its window, and returns
//! when the peer can no longer access it. Only then does a call complete (RFC 8166 §4.1).
//!
//! *Errors.* The decoder of a message checks it. Each refusal is a variant of [`ProtocolError`], and one
//! function maps it to its answer.
// Without Version Two or the retired forms, some states of a Call never occur.
#![cfg_attr(not(all(feature = "two", feature = "retired")), allow(dead_code, unused_imports))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod call;
pub mod connection;
mod core;
mod doors;
mod error;
mod event;
mod flow;
mod ids;
mod inbound;
mod message;
mod outbound;
mod peer;
mod planner;
mod requester;
mod responder;
#[cfg(feature = "retired")]
mod retired;
#[cfg(not(feature = "retired"))]
#[path = "no_retired.rs"]
mod retired;
mod session;
mod settings;
mod stats;
#[cfg(test)]
mod testing;
#[cfg(feature = "two")]
mod two;
#[cfg(not(feature = "two"))]
#[path = "no_two.rs"]
mod two;
pub mod wire;

pub use call::{
    Call, CallFailure, CallId, IncomingReply, Invalidations, Refused, RefusedKind, ReplyShape, Sink,
};
pub use connection::Connection;
pub use error::{CallError, CloseReason};
pub use event::{Answer, Event, IncomingCall, ReplyToken};
pub use ids::IdMap;
pub use inbound::reassembly;
pub use message::{Form, Travelled};
pub use outbound::Post;
pub use planner::Refusal;
pub use retired::face::*;
pub use rpcrdma_verbs::Pace;
pub use session::{Action, NoProgram, Session, SessionEvent, SessionStats};
pub use settings::agreement::{Agreement, BASIC_INLINE, BelowBasic};
pub use settings::binding::{Binding, BindingTable, Bindings, Eligibility};
pub use settings::config::{ChunkSupport, Config, Side};
pub use settings::private_data;
pub use settings::private_data::{PrivateData, Thresholds};
pub use settings::timers::Timeouts;
pub use settings::versions::Versions;
pub use stats::{Messages, Stats};
pub use two::characteristics;
pub use two::face::*;
pub use wire::two::Profile;
pub use wire::two::transmission::OperationBase;
pub use wire::{Limits, ProtocolError};
