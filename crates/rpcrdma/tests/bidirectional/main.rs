//! Bidirectional operation (RFC 8167): either side requester and responder at once, on one connection.
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

mod bounds;
mod chunks;
mod credits;
mod endings;
mod iwarp;
mod load;
mod loss;
mod read_read;
mod wire;
mod world;
