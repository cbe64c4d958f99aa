//! Tests of the real binary as server and client, over iWARP and TCP on the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod announced;
mod bench;
mod callers;
mod command_line;
mod conform;
mod copies;
mod documents;
mod files;
mod handover;
mod kerberos;
mod logs;
#[allow(unreachable_pub, reason = "tests of another crate use it too")]
#[path = "../../../rpcrdma/tests/support/network.rs"]
mod network;
mod observe;
mod provider;
mod serving;
mod slashes;
mod support;
mod sync;
mod tls;
mod tree;
