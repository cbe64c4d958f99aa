//! A conformance tester for peers that speak RPC-over-RDMA: Version One (RFC 8166, RFC 8797; NFS chunks by RFC 8267), or
//! Version Two in one of its profiles.
//!
//! The tester drives one side directly, with a queue pair of any provider of [`rpcrdma_verbs`], posted Receives and
//! windows. It builds messages word by word, so it can send messages that no correct peer sends. It never uses the
//! protocol engine, which other crates of this workspace test; from `rpcrdma-proto` it takes the header codec and the
//! private data.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`server`] | rows against a server: the tester is its client |
//! | [`client`] | rows against a client: the tester is its server |
//! | [`report`] | rows, verdicts, tables |
//! | `endpoint` | a directly driven queue pair |
//! | `message` | messages built word by word, and the decoding of answers |
//! | `nfs` | the few NFSv3 calls and results that rows with chunks need |
//! | `placement` | the structure of a peer's Receives |
//!
//! *Buffers.* Each connection has its own domain; all memory ends with the row.
//!
//! *Errors.* Any behaviour of a peer is a verdict of the row. No message of a peer ends the tester, and every wait has
//! a limit ([`DEFAULT_LIMIT`], [`DEFAULT_SILENCE`]).

pub mod client;
mod endpoint;
mod message;
mod nfs;
mod placement;
pub mod report;
pub mod server;

use std::time::Duration;

pub use report::{Report, RowReport, Rule, Verdict};

/// Default of the maximum time for each answer of a peer.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// Default of the time for which a peer must stay silent to count as having discarded a message.
pub const DEFAULT_SILENCE: Duration = Duration::from_millis(150);
