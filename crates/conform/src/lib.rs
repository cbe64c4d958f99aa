//! A conformance tester for peers that speak RPC-over-RDMA Version One (RFC 8166, RFC 8797; NFS chunks by RFC 8267).
//!
//! The tester plays one side by hand: a queue pair of any provider of [`rpcrdma_verbs`], posted Receives, windows, and
//! messages put together word by word, so that it can send what no correct peer sends. It never uses the protocol engine
//! that is tested elsewhere in this workspace; of `rpcrdma-proto` it takes the header codec and the private data.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`server`] | rows against a server: the tester is its client |
//! | [`client`] | rows against a client: the tester is its server |
//! | [`report`] | what a row is, verdicts, tables |
//! | `endpoint` | a queue pair driven by hand |
//! | `message` | messages put together by hand, and what an answer says |
//! | `nfs` | the few NFSv3 calls and results that rows with chunks need |
//!
//! *Who owns which buffer.* Each connection has a domain of its own; all memory ends with the row.
//!
//! *What happens on error.* Whatever a peer does is a verdict of the row; nothing that it sends ends the tester, and every
//! wait has a limit ([`DEFAULT_LIMIT`], [`DEFAULT_SILENCE`]).

pub mod client;
mod endpoint;
mod message;
mod nfs;
pub mod report;
pub mod server;

use std::time::Duration;

pub use report::{Report, RowReport, Rule, Verdict};

/// How long a peer may take for each answer, if nothing else is said.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// How long a peer that should discard a message is watched before it is believed to have done so, if nothing else is said.
pub const DEFAULT_SILENCE: Duration = Duration::from_millis(150);
