//! ONC RPC (RFC 5531), sans I/O: messages, programs, dispatch, the reply cache, record marking and rpcbind.
//!
//! | module | mechanism |
//! | --- | --- |
//! | [`message`] | call and reply headers with every accept and reject status (RFC 5531 §9) |
//! | [`auth`] | `opaque_auth`, AUTH_NONE and AUTH_SYS (RFC 5531 §8.2, Appendix A) |
//! | [`program`] | the trait that a program implements |
//! | [`intercept`] | code around the calls of programs |
//! | [`handler`] | calls in the hands of programs: their overseer, and the guard against panics |
//! | [`gss`] | RPCSEC_GSS: contexts, and the protection of calls and replies (RFC 2203) |
//! | [`dispatch`] | from a received call message to its reply, for RDMA and TCP alike |
//! | [`outcome`] | the decision about a received message |
//! | [`cache`] | duplicate requests: one execution, one reply |
//! | [`origin`] | addresses that count as one client for limits |
//! | [`record`] | record marking for byte streams (RFC 5531 §11) |
//! | [`rpcbind`] | registration and lookup (RFC 1833), universal addresses (RFC 5665) |
//! | [`typed`] | procedures and versions as types, with the sizes of arguments and results |
//!
//! Nothing here opens a socket, starts a thread or reads a clock: bytes and the time are arguments.
//!
//! *Buffers.* Arguments are slices of the received message, and results are the pieces of an XDR
//! [`Stream`](rpcrdma_xdr::Stream). The reply cache copies the small replies that it keeps.
//!
//! *Errors.* A call that can't be served becomes the error reply that RFC 5531 has for it ([`CallFailure`]). A message
//! that is no call is dropped.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod auth;
pub mod cache;
pub mod dispatch;
pub mod gss;
pub mod handler;
pub mod intercept;
pub mod message;
pub mod origin;
pub mod outcome;
pub mod program;
pub mod record;
pub mod rpcbind;
mod shown;
pub mod typed;

pub use auth::{AuthSys, Credential, OpaqueAuth, User};
pub use cache::{CacheCounters, CacheKey, CacheLimits, ENTRY_COST, ReplyCache, ReplyWindow, WindowId};
pub use dispatch::{DispatchFuture, Dispatcher, Peer, RegisterError};
pub use handler::{Overseer, ServedCall};
pub use intercept::{InterceptService, NextService};
pub use message::{
    AcceptStat, AuthStat, CallHeader, CallHeaderError, Refused, RejectReason, ReplyBody, ReplyHeader,
};
pub use origin::Origin;
pub use outcome::Outcome;
pub use program::{
    Attached, CallContext, CallFailure, Effect, ProcedureInfo, Program, ResponseFuture, TransportKind,
};
pub use shown::Shown;
