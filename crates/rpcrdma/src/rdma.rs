//! RPC-over-RDMA: drives `proto` on queue pairs.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `link` | moves work from a connection to its queue pair and completions back |
//! | `service` | Calls of the peer, at either end |
//! | `client` | calls of a client, on one connection after the other |
//! | `server` | one connection of the server |
//! | `departures` | replies on their way, for the reply cache |

pub(crate) mod client;
mod departures;
mod link;
pub(crate) mod server;
mod service;
