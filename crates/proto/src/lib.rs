//! RPC-over-RDMA sans I/O: no socket, no clock, no thread; time is an argument.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`wire`] | headers: a codec and a table of rules for each version; the bounds on them, and the peer's faults |
//! | [`versions`] | the versions of a side, and the choice among them |
//! | [`characteristics`] | announcements, requests and changes of transport characteristics in Version Two |
//! | [`private_data`] | CM private data at connection set-up (RFC 8797) |
//! | [`agreement`] | the agreement of both sides after set-up (RFC 5666 §6) |
//! | [`planner`] | the choice of how each message travels |
//! | [`reassembly`] | the layout of a Read list in the Payload stream |
//! | `two` | Version Two, except its header formats |
//! | `retired` | the forms that RFC 8166 retired, each with its own setting |
//! | `flow` | flow control: credits, and the Receives that back them |
//! | [`connection`] | one connection: a requester and a responder on one queue pair |
//! | [`session`] | the client's side across connections: reconnect and retransmit |
//! | [`binding`] | the DDP-eligible items of a program |
//! | [`ids`] | maps by numbers of this side |
//! | [`timers`], [`stats`] | timers and counters, each in one table |
//!
//! A driver moves work requests from a [`connection::Connection`] (or [`session::Session`]) to a queue pair, and
//! completions back. The documentation of these types gives the order.
//!
//! *Buffers.* Messages are shared, read-only memory. Memory that is open to the peer belongs to its window, and returns
//! when the peer can no longer access it. Only then does a call complete (RFC 8166 §4.1).
//!
//! *Errors.* The decoder of a message checks it. Each refusal is a variant of [`ProtocolError`], and one
//! function maps it to its answer.
// Without Version Two or the retired forms, some states of a Call never occur.
#![cfg_attr(not(all(feature = "two", feature = "retired")), allow(dead_code, unused_imports))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod agreement;
pub mod binding;
pub mod call;
pub mod config;
pub mod connection;
mod core;
mod doors;
pub mod error;
pub mod event;
mod flow;
pub mod ids;
pub mod message;
mod outbound;
mod peer;
pub mod planner;
pub mod private_data;
mod reads;
pub mod reassembly;
mod received;
mod requester;
mod responder;
#[cfg(feature = "retired")]
mod retired;
#[cfg(not(feature = "retired"))]
#[path = "no_retired.rs"]
mod retired;
pub mod session;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod timers;
#[cfg(feature = "two")]
mod two;
#[cfg(not(feature = "two"))]
#[path = "no_two.rs"]
mod two;
pub mod versions;
pub mod wire;

pub use agreement::{Agreement, BASIC_INLINE, BelowBasic};
pub use binding::{Binding, BindingTable, Bindings, Eligibility};
pub use call::{
    Call, CallFailure, CallId, IncomingReply, Invalidations, Refused, RefusedKind, ReplyShape, Sink,
};
pub use config::{ChunkSupport, Config, Side};
pub use connection::Connection;
pub use error::{CallError, CloseReason};
pub use event::{Answer, Event, IncomingCall, ReplyToken};
pub use ids::IdMap;
pub use message::{Form, Travelled};
pub use outbound::Post;
pub use private_data::{PrivateData, Thresholds};
pub use retired::face::*;
pub use rpcrdma_verbs::Pace;
pub use session::{Action, NoProgram, Session, SessionEvent, SessionStats};
pub use stats::{Messages, Stats};
pub use timers::Timeouts;
pub use two::characteristics;
pub use two::face::*;
pub use versions::Versions;
pub use wire::two::Profile;
pub use wire::two::transmission::OperationBase;
pub use wire::{Limits, ProtocolError};
