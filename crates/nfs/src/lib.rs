//! NFS version 3 and MOUNT over RPC-over-RDMA and TCP: server, client and file systems.
//!
//! - [`wire`]: the types of RFC 1813: arguments and results of every procedure, with their limits. The
//!   declarations mark the four DDP-eligible items of RFC 8267 §4.
//! - [`mount`]: the types of MOUNT, version 3 (RFC 1813 Appendix I).
//! - [`fs`]: file systems for the server, in memory and on a directory tree.
//! - [`server`]: NFS version 3 on exported file systems, and MOUNT for them.
//! - [`client`]: a client for Rust programs, over RDMA and TCP, and a client of MOUNT.
//! - [`extents`]: a private program that reports the ranges of a file that have data.
//!
//! The Upper-Layer Binding of RFC 8267 is in the types: which items may travel in chunks, and how large replies are.

pub mod client;
pub mod extents;
pub mod fs;
pub mod mount;
mod procedures;
pub mod server;
pub mod wire;

pub use client::Client;
