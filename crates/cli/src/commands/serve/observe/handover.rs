//! Handover: a new server takes the listening sockets of the one that runs, which answers its last calls and ends.
//!
//! Both talk on the control socket of the old server:
//!
//! ```text
//! new  {"command":"handover","version":1}
//! old  {"handover":{"version":1,"pid":7,"sockets":[{"role":"rdma","address":"127.0.0.1:20049"}],"adapters":[]}}, with the descriptors
//! new  {"command":"go"}                      it is ready to accept
//! old  {"gone":true}                         it accepts nothing more, and has given up the control socket
//! ```
//!
//! A server that stops for another reason answers `{"gone":true}` instead of an offer, or ends the session. The new one then starts
//! by itself.
//!
//! The old server goes on as before if the session ends before `go`. It keeps the session open until it ends, so the new one
//! learns that the old one is gone. Only then the new one hands over itself: until then both may write the map of names.
//!
//! [`give`](super::give) is the side of the old server, [`take`](super::take) that of the new one.
//!
//! *Errors.* Whatever goes wrong before `go` ends the new server, and the old one serves on.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::commands::serve::passed::Role;

/// Target of the log of handovers.
pub(in crate::commands::serve) const TARGET: &str = "rpcrdma::handover";
/// Version of the exchange.
pub(super) const VERSION: u32 = 1;
/// Most sockets in one message (`SCM_MAX_FD` of Linux).
pub(super) const SOCKETS_MAX: usize = 253;

/// The sockets of a server that hands over, in the order of their descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::commands) struct Offer {
    pub(super) version: u32,
    /// Number of the old server's process.
    pub(super) pid: u32,
    pub(super) sockets: Vec<Described>,
    /// Addresses of adapters, whose listeners cannot be passed.
    pub(super) adapters: Vec<SocketAddr>,
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Described {
    pub(super) role: Role,
    pub(super) address: SocketAddr,
}
