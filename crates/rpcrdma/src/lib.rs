//! ONC RPC over RDMA for any RPC program: client and server.
//!
//! [`Client`] calls the programs of a server, [`Server`] serves them: over RPC-over-RDMA Version One (RFC 8166) on any
//! provider of [`rpcrdma_verbs`], software iWARP by default, and over TCP with record marking (RFC 5531 §11), through
//! one dispatch and one reply cache. A program implements [`Program`] and [`Binding`]; which of its arguments and results
//! are DDP-eligible is marked in their types (`#[xdr(ddp)]`).
//!
//! Over RDMA both sides can call and serve at once on the connection that the client opened (RFC 8167): a client serves
//! programs by [`ClientBuilder::program`], a server calls through a [`Backchannel`].
//!
//! This crate drives: sockets, timers and tasks are here, decisions are in the sans-I/O layers below.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `client`, `server` | the public faces |
//! | `rdma` | drives a `proto` connection or session on a queue pair |
//! | `tcp` | record marking on sockets |
//! | `programs` | what one side serves, with its reply cache |
//! | `handlers` | calls in progress |
//! | `backchannel` | calls of a server to its client |
//! | `admission` | limits on connections |
//! | `owners` | whose a connection from this machine is |
//! | `refusals` | what is said about connections that were refused |
//! | [`ccp`] | what is agreed at the begin of a connection (RFC 5666 §6), off by default |
//! | `shares` | memory, divided among peer addresses |
//! | [`rpcbind`] | registration and lookup |
//! | `trace` | what is said about each call |
//! | `turns` | whose task is polled next |
//! | `workers` | threads for handlers that may block |
//!
//! Each call leaves a `tracing` event of level `DEBUG` under the target `rpcrdma::call` (where it is made) or
//! `rpcrdma::serve` (where it is served): connection, XID, program and procedure, how call and reply travelled, and who invalidated.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod admission;
mod backchannel;
mod call;
pub mod ccp;
mod client;
mod config;
mod error;
mod handlers;
mod owners;
mod programs;
mod rdma;
mod refusals;
pub mod rpcbind;
mod server;
mod shares;
mod tcp;
mod totals;
mod trace;
mod turns;
mod workers;
mod xid;

pub use backchannel::{Backchannel, ConnectionContext};
pub use call::{Call, Reply, ReplyShape, Transfer, Transport};
pub use ccp::Ccp;
pub use client::{Client, ClientBuilder, ClientStats, ConnectionStats};
pub use config::{ClientConfig, ServerConfig};
pub use error::{CallError, Execution};
pub use rpcrdma_oncrpc::{
    AuthSys, CacheCounters, CacheLimits, CallContext, CallFailure, Credential, Effect, Integrity, Origin,
    Procedure, Program, ResponseFuture, TransportKind,
};
pub use rpcrdma_proto::{
    Agreement, AlignmentBase, Binding, BufferGroup, BufferStructure, Characteristic, Characteristics,
    ChunkSupport, Compatibility, Config, Disposition, Eligibility, Exchanged, Features, Form, Invalidations,
    Limits, Messages, NotExchanged, NotRegistered, Notice, OperationBase, OperationNumbers, PaddedMessages,
    Profile, ReadRead, Registered, ReplyPlacement, ReverseSupport, Sink, Timeouts, TransmissionSettings,
    Transmissions, Travelled, Versions,
};
pub use server::{ServeError, Server, ServerBuilder, ServerMonitor, ServerStats};
pub use shares::PeerShares;
pub use workers::{WorkLost, Workers};
