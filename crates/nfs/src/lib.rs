//! NFS version 3 and MOUNT over RPC-over-RDMA: server, client and file systems.
//!
//! - [`wire`]: the types of RFC 1813, every procedure's arguments and results, with their limits. The four
//!   DDP-eligible items of RFC 8267 §4 are marked where they are declared.
//! - [`mount`]: the MOUNT protocol, version 3 (RFC 1813 Appendix I).
//! - [`fs`]: file systems that can be served, in memory and on a directory tree.
//! - [`server`]: NFS version 3 on exported file systems; MOUNT is [`mount::server`].
//! - [`client`]: a client for Rust programs, over RDMA and TCP.
//! - [`extents`]: where files have data, a program of our own.
//! - [`binding`]: the Upper-Layer Binding of RFC 8267: what may travel in chunks, how large a reply can be.

pub mod binding;
pub mod client;
pub mod extents;
pub mod fs;
pub mod mount;
pub mod server;
pub mod wire;

pub use client::Client;
