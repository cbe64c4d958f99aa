//! ONC RPC over RDMA for any RPC program: client and server.
//!
//! [`Client`] calls the programs of a server, and [`Server`] serves them. RPC-over-RDMA Version One (RFC 8166) runs on
//! any provider of [`rpcrdma_verbs`], software iWARP by default. RPC over TCP uses record marking (RFC 5531 §11). Both
//! go through one dispatch and one reply cache. [`program!`] declares the procedures of a program with the types of
//! their arguments and results, which mark what is DDP-eligible (`#[xdr(ddp)]`). Services are traits, and calls are
//! methods: [`Client::call`]. A program by hand implements [`Program`] and [`Binding`], and [`Client::call_raw`] calls it.
//!
//! The examples of this crate show complete programs: `blob` stores and fetches large objects, and in `callback` a
//! server calls its clients.
//!
//! Over RDMA both sides can call and serve at once on the connection that the client opened (RFC 8167). A client serves
//! programs by [`ClientBuilder::program`]; a server calls through a [`Backchannel`].
//!
//! This crate does the I/O: sockets, timers and tasks are here, and the sans-I/O layers below decide.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `client`, `server` | the public faces |
//! | `context` | from a call's context to its connection |
//! | `rdma` | drives a `proto` connection or session on a queue pair |
//! | `tcp` | record marking on sockets |
//! | [`tls`] | certificates and policies of TLS on TCP (RFC 9289), off by default |
//! | `programs` | the programs that one side serves, with their reply cache |
//! | `handlers` | calls in progress |
//! | `serving` | what a server and its connections share |
//! | `backchannel` | calls of a server to its client |
//! | `gss`, `in_context` | users of RPCSEC_GSS, and their calls |
//! | `secured` | the service of such calls |
//! | `caller` | calls with types |
//! | `channel` | what a caller needs of the connection that carries its calls |
//! | `links` | one connection of a client, by either transport |
//! | `failed_reads` | XIDs whose chunks earlier connections of a peer could not read |
//! | `admission` | limits on connections |
//! | `owners` | owners of connections from this machine |
//! | `refusals` | the log of refused connections |
//! | [`ccp`] | agreement at the start of a connection (RFC 5666 §6), off by default |
//! | `shares` | memory, divided among peer addresses |
//! | [`rpcbind`] | registration and lookup |
//! | `spaced` | lines of the log at most once a second |
//! | `spread` | the connections of a client, and which of them carries a call |
//! | `stats` | the counters of a client |
//! | `trace` | the events of each call |
//! | `turns` | the order in which tasks are polled |
//! | [`typed`] | programs with types, and [`program!`] that declares them |
//! | `workers` | threads for handlers that may block |
//! | [`xdr`] | types with an XDR form |
//!
//! Each call leaves a `tracing` event of level `DEBUG` under the target `rpcrdma::call` (at the caller) or
//! `rpcrdma::serve` (at the server). The event has connection, XID, program and procedure, how call and reply
//! travelled, and which side invalidated.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

// Tests within this crate and beside it share their certificates.
#[cfg(test)]
extern crate self as rpcrdma;

mod admission;
mod backchannel;
mod call;
mod caller;
pub mod ccp;
mod channel;
mod client;
mod config;
mod context;
mod credits;
mod error;
mod failed_reads;
mod gss;
mod handlers;
mod in_context;
mod links;
mod owners;
mod programs;
mod rdma;
mod refusals;
pub mod rpcbind;
mod secured;
mod server;
mod serving;
mod shares;
mod spaced;
mod spread;
mod stats;
mod tcp;
pub mod tls;
mod totals;
mod trace;
mod turns;
pub mod typed;
mod workers;
pub mod xdr;
mod xid;

pub use backchannel::Backchannel;
pub use bytes;
pub use call::{Call, Reply, ReplyShape, Transfer, Transport};
pub use caller::Caller;
pub use ccp::{CcpClient, CcpServer};
pub use client::{Client, ClientBuilder};
pub use config::{ClientConfig, ServerConfig};
pub use context::ConnectionContext;
pub use error::{CallError, Execution};
pub use gss::GssUser;
pub use rpcrdma_iwarp as iwarp;
pub use rpcrdma_oncrpc as oncrpc;
pub use rpcrdma_oncrpc::typed::{Bounds, Procedure};
pub use rpcrdma_oncrpc::{
    AuthSys, CacheCounters, CacheLimits, CallContext, CallFailure, Credential, Effect, Origin, ProcedureInfo,
    Program, ResponseFuture, TransportKind,
};
pub use rpcrdma_proto::{
    Agreement, AlignmentBase, Binding, BufferGroup, BufferStructure, Characteristic, Characteristics,
    ChunkSupport, Compatibility, Config, Disposition, Eligibility, Exchanged, Features, Form, Invalidations,
    Limits, Messages, NotExchanged, NotRegistered, Notice, OperationBase, OperationNumbers, PaddedMessages,
    Profile, ReadRead, Registered, ReplyPlacement, ReverseSupport, Sink, Timeouts, TransmissionSettings,
    Transmissions, Travelled, Versions,
};
pub use rpcrdma_verbs as verbs;
pub use server::{ServeError, Server, ServerBuilder, ServerMonitor, ServerStats};
pub use shares::PeerShares;
pub use stats::{ClientStats, ConnectionStats};
pub use workers::{WorkLost, Workers};
