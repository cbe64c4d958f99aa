//! Streams of long objects (`rpcrdma::streaming`): order, window, memory, ends, errors, and copies.

mod copies;
mod dropped;
mod receive;
mod send;
pub mod world;
