//! ONC RPC over RDMA for any RPC program: client and server.
//!
//! [`Client`] calls the programs of a server, and [`Server`] serves them. RPC-over-RDMA Version One (RFC 8166) runs on
//! any provider of [`verbs`], software iWARP by default. RPC over TCP uses record marking (RFC 5531 §11). Both go through
//! one dispatch and one reply cache. [`program!`] declares the procedures of a program with the types of their arguments
//! and results, which mark what is DDP-eligible (`#[xdr(ddp)]`). Services are traits, and calls are methods:
//! [`Client::call`]. A program by hand implements [`Program`] and [`Binding`], and [`Client::call_raw`] calls it.
//!
//! A service, and a client that calls it over software iWARP:
//!
//! ```
//! use std::sync::Arc;
//!
//! use rpcrdma::iwarp::{self, IwarpListener};
//! use rpcrdma::{CallContext, CallFailure, Client, Server};
//!
//! rpcrdma::program! {
//!     /// Arithmetic.
//!     mod numbers {
//!         program 0x2000_0001, version 1;
//!         /// Doubles a number.
//!         fn double = 1, Double(u32) -> u32, Idempotent;
//!     }
//! }
//!
//! struct Numbers;
//!
//! impl numbers::Service for Numbers {
//!     async fn double(&self, _: &CallContext, number: u32) -> Result<u32, CallFailure> {
//!         Ok(number.wrapping_mul(2))
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let any = "127.0.0.1:0".parse()?;
//!     let listener = IwarpListener::bind(any, iwarp::Config::default()).await?;
//!     let server = Server::builder().program(Arc::new(numbers::serve(Numbers)));
//!     let server = server.listen_rdma(Box::new(listener)).build()?;
//!     let address = server.rdma_addresses()?[0];
//!     tokio::spawn(server.serve(std::future::pending()));
//!
//!     // A name does as well: Client::connect("server.example.org:20049").
//!     let client = Client::connect(address).await?;
//!     assert_eq!(client.call::<numbers::Double>(21).await?, 42);
//!     client.close().await;
//!     Ok(())
//! }
//! ```
//!
//! [`Client::builder`] leads to settings and to other [`Transport`]s. [`ConnectError`] tells why there is no connection,
//! and [`CallError`] why there is no reply; `source()` leads to the errors of the layers below. Those layers are
//! re-exported as [`xdr`], [`oncrpc`], [`verbs`] and [`iwarp`], so a program needs no other crate of the project. Names
//! that only drafts have are in [`experimental`].
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
//! | `endpoint`, `connect`, `builder` | from the name of a server to a client's first connections |
//! | `cause` | errors of layers below, in public errors |
//! | `context` | from a call's context to its connection |
//! | `rdma` | drives a `proto` connection or session on a queue pair |
//! | `tcp` | record marking on sockets |
//! | [`tls`] | certificates and policies of TLS on TCP (RFC 9289), off by default |
//! | `programs` | the programs that one side serves, with their reply cache |
//! | `overseer`, `shed` | limits on the calls that programs carry out, and the log of these and of panics |
//! | `handlers` | calls in progress |
//! | `serving` | what a server and its connections share |
//! | `backchannel` | calls of a server to its client |
//! | `gss`, `in_context` | users of RPCSEC_GSS, and their calls |
//! | `secured` | the service of such calls |
//! | `handle`, `intercept`, `retry` | defaults for calls, and what happens between a caller and its calls |
//! | `health` | whether a program answers |
//! | `caller` | calls with types |
//! | `channel` | what a caller needs of the connection that carries its calls |
//! | `over_rdma` | the part of a client that exists over RDMA only |
//! | [`experimental`] | names that only drafts have |
//! | `links` | one connection of a client, by either transport |
//! | `fits` | whether a call and its results fit, before anything leaves |
//! | `failed_reads` | XIDs whose chunks earlier connections of a peer could not read |
//! | `admission` | limits on connections |
//! | `owners` | owners of connections from this machine |
//! | `refusals` | the log of refused connections, and their numbers by reason |
//! | `registry` | the open connections of a server, with the counters of each |
//! | `counts` | calls by procedure, with their failures and times |
//! | [`ccp`] | agreement at the start of a connection (RFC 5666 §6), off by default |
//! | `shares` | memory, divided among peer addresses |
//! | [`rpcbind`] | registration and lookup |
//! | `spaced` | lines of the log at most once a second |
//! | `spread` | the connections of a client, and which of them carries a call |
//! | `stats` | the counters of a client |
//! | [`streaming`] | long objects in pieces, from and to files and byte streams |
//! | `trace` | the events of each call |
//! | `turns` | the order in which tasks are polled |
//! | [`typed`] | programs with types, and [`program!`] that declares them |
//! | `workers` | threads for handlers that may block |
//! | [`xdr`] | types with an XDR form |
//!
//! Each call is in a `tracing` span `rpcrdma::call` of level `DEBUG` at the caller, and each handler in a span
//! `rpcrdma::serve`. A call leaves an event of that level under the target `rpcrdma::call` (at the caller) or
//! `rpcrdma::serve` (at the server). The event has connection, XID, program and procedure, how call and reply travelled,
//! and which side invalidated.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

// Tests within this crate and beside it share their certificates.
#[cfg(test)]
extern crate self as rpcrdma;

mod admission;
mod backchannel;
mod builder;
mod call;
mod caller;
mod cause;
pub mod ccp;
mod channel;
mod client;
mod clients;
mod config;
mod connect;
mod context;
mod counts;
mod credits;
mod endpoint;
mod error;
pub mod experimental;
mod failed_reads;
mod fits;
mod gss;
mod handle;
mod handlers;
mod health;
mod in_context;
mod intercept;
mod links;
pub mod log;
mod over_rdma;
mod overseer;
mod owners;
mod programs;
mod rdma;
mod refusals;
mod registry;
mod retry;
pub mod rpcbind;
mod secured;
mod server;
mod serving;
mod shares;
mod shed;
mod spaced;
mod spread;
mod stats;
pub mod streaming;
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
pub use builder::ClientBuilder;
pub use bytes;
pub use call::{Call, Reply, ReplyShape, Transfer};
pub use caller::Caller;
pub use cause::Cause;
pub use ccp::{CcpClient, CcpServer};
pub use client::Client;
pub use config::{ClientConfig, ServerConfig};
pub use connect::{Attempt, AttemptError, ConfigError, ConnectError, Transport};
pub use context::ConnectionContext;
pub use counts::{Failed, Latencies, ProcedureStats};
pub use endpoint::{Endpoint, EndpointError};
pub use error::{CallError, Execution, LastError};
pub use gss::GssUser;
pub use handle::Handle;
pub use health::{Alive, Health, HealthState, HealthWatch};
pub use intercept::{Intercept, Next};
pub use over_rdma::Rdma;
pub use refusals::RefusedConnections;
pub use registry::{ServedConnection, TransportStats};
pub use retry::Retry;
pub use rpcrdma_iwarp as iwarp;
pub use rpcrdma_oncrpc as oncrpc;
pub use rpcrdma_oncrpc::gss::ReplyFault;
pub use rpcrdma_oncrpc::typed::{Bounds, Procedure};
pub use rpcrdma_oncrpc::{
    AuthStat, AuthSys, CacheCounters, CacheLimits, CallContext, CallFailure, Credential, Effect,
    InterceptService, NextService, Origin, ProcedureInfo, Program, Refused, RegisterError, ResponseFuture,
    TransportKind,
};
pub use rpcrdma_proto::{
    Agreement, AlignmentBase, Binding, CloseReason, Compatibility, Config, Eligibility, Form, Invalidations,
    Limits, Messages, NoProgram, PaddedMessages, ProtocolError, Refusal, Sink, Timeouts, Travelled, Versions,
};
pub use rpcrdma_verbs as verbs;
pub use rpcrdma_verbs::BoxFuture;
pub use rpcrdma_xdr::{DecodeError, EncodeError};
pub use server::{ServeError, Server, ServerBuilder, ServerHandle, ServerMonitor, ServerStats};
pub use shares::PeerShares;
pub use shed::{ShedLimits, ShedStats};
pub use stats::{ClientStats, ConnectionStats};
pub use workers::{WorkLost, Workers};
