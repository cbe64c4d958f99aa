//! RPCSEC_GSS version 1 (RFC 2203), both roles, for any mechanism of the GSS-API.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `wire` | credentials, and the messages that create a context (§5) |
//! | `window` | sequence numbers: which requests are new (§5.3.3.1) |
//! | [`SecurityContext`], [`Acceptor`], [`Initiator`] | what a mechanism provides |
//! | [`GssServer`] | contexts of callers: creation, requests, destruction |
//! | [`GssClient`] | a context with a server: creation, requests, replies |
//!
//! Nothing here waits, starts a thread or reads a clock. But a mechanism computes over whole messages, and its creation of a
//! context may wait for files or a network. So each step has two parts. The first one looks a context up and never waits; it
//! returns a value. The methods of that value do the mechanism's work, on a thread that may wait.
//!
//! *Buffers.* With [`Service::None`] arguments and results stay as they are, and may travel in chunks. The other services
//! make a copy of them: their protection covers one run of memory, and nothing is DDP-eligible (RFC 8166 §8.2.2.3).
//!
//! *Errors.* Each fault of a caller has the answer that RFC 2203 §5.3.3 gives it, or none.

mod client;
mod mechanism;
mod protection;
mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod window;
mod wire;

pub use crate::auth::{GssCaller, Principal, Service};
pub use client::{Creating, CreationError, GssClient, InitCall, Place, Progress, ReplyFault, Sealed};
pub use mechanism::{
    Accepting, Acceptor, Created, Initiating, Initiator, MechanismError, SecurityContext, Step, major,
};
pub use protection::{Unprotectable, Unprotected};
pub use server::{
    Creation, CreationReply, GssLimits, GssServer, Incoming, OpenError, Opened, Received, Refusal, Sealer,
};
pub use window::WINDOW;
pub use wire::{
    GssCredential, GssProcedure, HANDLE_MAX, InitArguments, InitResults, SEQUENCE_END, TOKEN_MAX, VERSION,
};

#[cfg(test)]
mod tests;
