//! Bidirectional operation (RFC 8167): each side is requester and responder at once, on one connection.

mod bounds;
mod chunks;
mod credits;
mod endings;
mod iwarp;
mod load;
mod loss;
mod read_read;
mod wire;
pub mod world;
