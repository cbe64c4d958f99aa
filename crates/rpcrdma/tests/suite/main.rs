//! Clients and servers of programs, on every transport: the simulated fabric on tokio's paused clock, software iWARP
//! and TCP on loopback.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod bidirectional;
mod ccp;
mod characteristics;
mod clients;
mod connect;
mod exactly_once;
mod gss;
mod gss_answers;
mod gss_calls;
mod hostile;
mod iwarp;
mod many;
mod middle;
mod owners;
mod pace;
mod refusals;
mod rpcbind;
mod serving;
mod sim;
mod streaming;
mod tcp;
mod tcp_memory;
mod tls;
mod turns;
mod typed;
