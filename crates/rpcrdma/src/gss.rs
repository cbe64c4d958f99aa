//! RPCSEC_GSS on connections (RFC 2203): [`GssUser`] for calls of a client, and the service of such calls at a server.
//!
//! [`rpcrdma_oncrpc::gss`] has the rules, without I/O. Here are the threads for the work of mechanisms, and the calls that
//! create and end contexts. Contexts belong to no connection: a client may create one by TCP and use it by RDMA.

mod client;
mod server;

use std::num::NonZero;
use std::thread;

pub use client::GssUser;
pub(crate) use client::{Established, Proof};
pub(crate) use server::{Gss, SecuredCall};

use crate::workers::Workers;

/// Most pieces of work that wait for a thread. Further calls wait for their turn.
const QUEUED: usize = 1024;

/// Creates the threads for the work of mechanisms: one for each processor.
fn workers() -> Workers {
    Workers::new("gss", thread::available_parallelism().map_or(1, NonZero::get), QUEUED)
}
