//! The trait that a program implements to be called.
//!
//! A program gets its arguments as a [`Decoder`] that hands payloads out as slices of the message, or of the chunks
//! that carried them. It returns its results as a [`Stream`] of pieces. Matching XIDs, encoding headers and detecting
//! duplicates happen elsewhere. A program reports a failure as a [`CallFailure`], which becomes the reply that RFC 5531
//! has for it.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Stream};
use thiserror::Error;

use crate::auth::{Credential, flavor};
use crate::message::AuthStat;

/// The transport of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportKind {
    /// RPC-over-RDMA.
    Rdma,
    /// TCP with record marking.
    Tcp,
    /// The simulated fabric.
    Sim,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RDMA",
            Self::Tcp => "TCP",
            Self::Sim => "the simulated fabric",
        })
    }
}

/// A value that the transport attaches to the calls of a connection, for handlers that know its type. It may be a way
/// to call the peer back. This crate never looks inside. Two are equal if they share one value.
#[derive(Clone)]
pub struct Attached(Arc<dyn Any + Send + Sync>);

impl Attached {
    /// Wraps a value to be attached.
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Arc::new(value))
    }

    /// Returns the wrapped value, if it is of this type.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attached")
    }
}

impl PartialEq for Attached {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Attached {}

/// The caller of a procedure, and the procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallContext {
    /// The peer's address, if the transport has one.
    pub peer: Option<SocketAddr>,
    /// The transport of the call.
    pub transport: TransportKind,
    /// The call's XID.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// The identity that the caller claims.
    pub credential: Credential,
    /// The value that the transport attached.
    pub attached: Option<Attached>,
    /// The user at the other end, if the transport knows ([`Peer::owner`](crate::Peer::owner)).
    pub owner: Option<u32>,
}

/// The kind of change that the execution of a procedure makes. It decides whether the reply cache keeps the replies,
/// and in which budget. Many calls of one kind do not displace the replies of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// No change, or none that would do harm if made again at any later time. Replies are not kept.
    Idempotent,
    /// A change of contents, in bulk, for instance WRITE of NFS. A late second execution would undo later writes by
    /// others.
    Data,
    /// Any other change, for instance REMOVE and RENAME of NFS. A second execution has another result, or does harm.
    State,
}

/// A procedure's name and effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureInfo {
    /// The name, for logs and counters.
    pub name: &'static str,
    /// The kind of change that the execution makes.
    pub effect: Effect,
}

/// The reason why a call has no results.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFailure {
    /// The arguments don't decode: GARBAGE_ARGS, or `ERR_CHUNK` if the error is a chunk violation.
    #[error("arguments refused: {0}")]
    GarbageArgs(#[from] DecodeError),
    /// The program failed: SYSTEM_ERR.
    #[error("the program failed")]
    SystemError,
    /// The results don't encode, which is a defect of the program: SYSTEM_ERR.
    #[error("results can't be encoded: {0}")]
    Results(#[from] EncodeError),
    /// The caller may not call this: AUTH_ERROR.
    #[error("caller refused: {0:?}")]
    Auth(AuthStat),
    /// There is no such procedure: PROC_UNAVAIL.
    #[error("no such procedure")]
    ProcedureUnavailable,
    /// The handler panicked: SYSTEM_ERR. It may have carried out a part of the call. So the reply is kept like any other,
    /// and a repeat of the call is not executed.
    #[error("the handler panicked")]
    Panicked,
    /// The server has too much to do, so the call did not begin: SYSTEM_ERR. The reply is not kept, and a repeat of the
    /// call may be executed.
    #[error("too many calls are in progress")]
    Shed,
    /// The call gets no reply at all. An RDMA connection closes for that, and the caller sends the call again (RFC 8166
    /// §4.5.4).
    #[error("call discarded")]
    Discard,
}

/// The future results of a call.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Stream, CallFailure>> + Send>>;

/// A program that can be called: decodes arguments, does the work, encodes results.
pub trait Program: Send + Sync + 'static {
    /// Returns the program number.
    fn number(&self) -> u32;

    /// Returns the versions served.
    fn versions(&self) -> RangeInclusive<u32>;

    /// Returns the procedure with this number in this version, if there is one. Not called for procedure 0, which the
    /// dispatcher answers.
    fn procedure(&self, version: u32, procedure: u32) -> Option<ProcedureInfo>;

    /// Returns whether a credential of this flavour ([`flavor`]) is accepted. By default AUTH_NONE and AUTH_SYS are.
    fn accepts_flavor(&self, flavor: u32) -> bool {
        accepted_by_default(flavor)
    }

    /// Returns whether this procedure is only called with RPCSEC_GSS integrity or privacy; other calls get AUTH_TOOWEAK. By
    /// default no procedure is.
    fn requires_integrity(&self, _version: u32, _procedure: u32) -> bool {
        false
    }

    /// Returns whether handlers, once they have begun, only wait for work that is done elsewhere, and take little time for
    /// their results. Such a handler goes on in the task of its connection, which saves a task for each call. The others get
    /// tasks, and so run side by side. By default none is light.
    fn is_light(&self) -> bool {
        false
    }

    /// Serves one call. `arguments` stands at the first argument. The program must refuse bytes left unread
    /// ([`Decoder::finish`]).
    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture;
}

/// Returns whether programs accept a credential of this flavour unless they say otherwise: AUTH_NONE and AUTH_SYS.
#[must_use]
pub const fn accepted_by_default(flavor: u32) -> bool {
    matches!(flavor, flavor::AUTH_NONE | flavor::AUTH_SYS)
}
